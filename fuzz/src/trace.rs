//! What `cx10 trace` reads: any file is refused with a message or printed; and what the device writes is read back.

use std::io::BufReader;

use cx10::trace::human::{self, Options};
use cx10::trace::{self, CommandRecord, Event, Header, Trace};

use crate::grammar;
use crate::input::Input;
use crate::machine::Shared;

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    let how = input.u8();
    let options = Options {
        opcodes: if how & 1 != 0 { vec!["create_mkey".into()] } else { Vec::new() },
        events: if how & 2 != 0 { vec!["command".into()] } else { Vec::new() },
        failed: how & 4 != 0,
        uid: (how & 8 != 0).then_some(1),
        full: how & 16 != 0,
        count: how & 0x80 != 0,
        ..Options::default()
    };
    match how >> 5 & 3 {
        0 => print(input.rest(), &options),
        1 => {
            let mut text = b"{\"cx10_trace\":1,\"version\":\"0\",\"profile\":\"p\",\"config\":{}}\n".to_vec();
            text.extend_from_slice(input.rest());
            print(&text, &options);
        }
        _ => written(input),
    }
    crate::assert_nothing_kept();
}

/// Whatever a file holds, a terminal gets text.
fn print(text: &[u8], options: &Options) {
    let mut out = Vec::new();
    let result = human::print(BufReader::with_capacity(64, text), &mut out, options);
    let printed = String::from_utf8(out).expect("output is text");
    assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "control characters in {printed:?}");
    match result {
        Ok(counts) => assert!(counts.shown <= counts.read),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Records of any commands and events are lines that can be read.
fn written(input: &mut Input<'_>) {
    let shared = Shared::default();
    let header = Header { profile: String::from_utf8_lossy(input.bytes(8)).into_owned(), ..Header::default() };
    let options = trace::Options { full: input.one_in(2) };
    let meaning = cx10::cmdif::error::meaning;
    let trace = Trace::to_writer(Box::new(shared.clone()), "memory", &header, options, meaning).expect("memory");
    let mut records = 0;
    while !input.is_empty() && records < 16 {
        records += 1;
        if input.one_in(4) {
            let text = String::from_utf8_lossy(input.bytes(8)).into_owned();
            let event = match input.u8() % 4 {
                0 => Event::Object { kind: &text, id: input.u64(), change: &text },
                1 => Event::DmaError { iova: input.u64(), len: 1, dir: "read", class: &text, reason: &text },
                2 => Event::Reset { kind: &text },
                _ => Event::Doorbell { kind: &text, uar: input.u32(), value: input.u64() },
            };
            trace.event(input.u64(), &event);
            continue;
        }
        let opcode = if input.one_in(4) { input.u16() } else { grammar::any(input).opcode.0 };
        let mut command = opcode.to_be_bytes().to_vec();
        let len = input.below(512);
        command.extend_from_slice(input.bytes(len));
        if input.one_in(2) {
            command.resize(input.below(0x2000), 0);
        }
        let len = input.below(512);
        let mut output = input.bytes(len).to_vec();
        if input.one_in(2) {
            output.resize(input.below(0x2000), 0);
        }
        trace.command(&CommandRecord {
            time_ns: input.u64(),
            slot: input.u8(),
            token: input.u8(),
            input: &command,
            output: &output,
            delivery: input.u8() & input.u8() & input.u8(),
        });
    }
    assert_eq!(trace.lines(), records);
    drop(trace);
    let text = shared.take();
    let mut out = Vec::new();
    let counts = human::print(&text[..], &mut out, &Options { full: true, ..Options::default() });
    assert_eq!(counts.expect("our own trace is readable").shown, records);
}
