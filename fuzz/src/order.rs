//! Recorded orders: any file is refused with a message or followed within bounds, and what was recorded is repeated.

use std::collections::BTreeSet;

use cx10::dma::bus::AtomicOp;
use cx10::dma::order::checker::Checker;
use cx10::dma::order::log::{Log, LogError, Writer};
use cx10::dma::order::overtakes::{Identity, Overtake, parse_lines};
use cx10::dma::order::replay::{Only, Plan, Replay};
use cx10::dma::order::rules::Omit;
use cx10::dma::order::{
    Fence, Kind, Memory, NewTxn, Order, Payload, Policy, Profile, Range, Scope, Settings, Stream, describe, program,
};
use cx10::dma::{DmaError, Iova, KeyOrder};

use crate::input::Input;
use crate::machine::Shared;

/// Accesses of one run.
const STEPS: usize = 96;
/// Overtakes that are looked at.
const OVERTAKES: usize = 20_000;
/// Bytes of guest memory.
const MEMORY: usize = 0x2000;

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    match input.u8() % 4 {
        0 => lines(&String::from_utf8_lossy(input.rest())),
        1 => hostile(input.rest(), &[]),
        2 => {
            // Events of a file that looks whole.
            let how = input.bytes(STEPS).to_vec();
            let mut bytes = recorded(&settings(input), None, &[]).0;
            bytes.truncate(bytes.len() - 9);
            let chunk = input.rest();
            bytes.extend((chunk.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(chunk).to_le_bytes());
            bytes.extend(chunk);
            bytes.extend([1, 0, 0, 0]);
            bytes.extend(crc32fast::hash(&[5]).to_le_bytes());
            bytes.push(5);
            hostile(&bytes, &how);
        }
        _ => repeated(input),
    }
    crate::assert_nothing_kept();
}

/// Lines are refused, or are read as they are written.
fn lines(text: &str) {
    match parse_lines(text) {
        Err(error) => says(&error.to_string()),
        Ok(overtakes) => {
            let again: String = overtakes.iter().map(|overtake| format!("{overtake}\n")).collect();
            assert_eq!(parse_lines(&again).as_ref(), Ok(&overtakes));
            repeat(&Settings::default(), Plan::Only(Only::new(&overtakes)), text.as_bytes());
        }
    }
}

/// What a user is told is a text of a bounded length.
fn says(text: &str) {
    assert!(!text.is_empty() && text.len() < 20_000 && !text.chars().any(char::is_control), "{text:?}");
}

/// Any file as a log, for a run that does `how`.
fn hostile(bytes: &[u8], how: &[u8]) {
    let log = match Log::read(bytes) {
        Err(error) => return says(&error.to_string()),
        Ok(log) => log,
    };
    assert_eq!(log.events().expect("the header was read before").filter(Result::is_ok).count() as u64, log.count);
    let mut checker = Checker::new(&log.settings);
    log.events().expect("as before").flatten().for_each(|event| checker.event(&event));
    match log.overtakes(OVERTAKES) {
        Err(error @ LogError::Overtakes { .. }) => says(&error.to_string()),
        Err(error) => panic!("a log that is whole: {error}"),
        Ok(overtakes) => {
            let some = &overtakes[..overtakes.len().min(8)];
            describe::sentences(&log, some).expect("it is whole").iter().for_each(|sentence| says(sentence));
            if let Err(error) = program::print(&log, &overtakes) {
                says(&error.to_string());
            }
        }
    }
    // As the command line does.
    let mut settings = log.settings.clone();
    settings.illegal = None;
    settings.rules.omit = Omit::NOTHING;
    repeat(&settings, Plan::Replay(Replay::new(&log).expect("it is whole")), how);
}

/// Any given order is legal, and all of it comes to an end.
fn repeat(settings: &Settings, plan: Plan, how: &[u8]) -> (Vec<u8>, Memorised, Order) {
    let (log, memory, order) = recorded(settings, Some(plan), how);
    let verdict = order.verdict().expect("it is checked");
    assert!(verdict.is_legal(), "{:?}", verdict.described);
    (log, memory, order)
}

/// A run is repeated exactly, and with any of its overtakes it has no others.
fn repeated(input: &mut Input<'_>) {
    let settings = settings(input);
    let choose = input.u8();
    let how = input.rest();
    let (bytes, memory, order) = recorded(&settings, None, how);
    assert!(order.verdict().is_some_and(|verdict| verdict.is_legal()), "{:?}", order.verdict());
    let log = Log::read(&bytes).expect("our own log is whole");
    let (_, again, order) = repeat(&settings, Plan::Replay(Replay::new(&log).expect("it is whole")), how);
    let replay = order.replay().expect("it follows one");
    assert_eq!((replay.diverged(), replay.remaining(), replay.beyond()), (0, 0, 0));
    assert_eq!(memory.0, again.0, "memory of a repeated run");
    let Ok(all) = log.overtakes(OVERTAKES) else { return };
    let chosen: Vec<Overtake> =
        all.iter().enumerate().filter(|(index, _)| choose >> (index % 8) & 1 != 0).map(|(_, o)| *o).collect();
    let (bytes, ..) = repeat(&settings, Plan::Only(Only::new(&chosen)), how);
    let Ok(happened) = Log::read(&bytes).expect("our own log is whole").overtakes(OVERTAKES) else { return };
    let pairs = |overtakes: &[Overtake]| -> BTreeSet<(Identity, Identity)> {
        overtakes.iter().filter(|o| !o.later.control).map(|o| (o.later, o.earlier)).collect()
    };
    let others: Vec<_> = pairs(&happened).difference(&pairs(&chosen)).copied().collect();
    assert!(others.is_empty(), "not chosen: {others:?}");
}

/// Guest memory.
struct Memorised(Vec<u8>);

impl Memorised {
    fn at(&mut self, at: Iova, len: usize) -> Result<&mut [u8], DmaError> {
        let from = at.0 as usize;
        self.0.get_mut(from..from + len).ok_or(DmaError::Overflow)
    }
}

impl Memory for Memorised {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        buf.copy_from_slice(self.at(at, buf.len())?);
        Ok(())
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        self.at(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        let word = self.at(at, 8)?;
        let old = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        word.copy_from_slice(&op.apply(old).to_le_bytes());
        Ok(old)
    }

    fn signal(&mut self, _: u32) {}
}

fn settings(input: &mut Input<'_>) -> Settings {
    let mut settings = Settings::with(input.pick(&Policy::ALL), input.pick(Profile::ALL), u64::from(input.u8()));
    settings.check = true;
    settings.limits.max_transactions = input.pick(&[256, 12, 3, 2]);
    settings.limits.max_delay = input.pick(&[200, 0, 20_000]);
    settings.limits.hold = input.pick(&[200, 0, 20_000]);
    settings.limits.max_bytes = input.pick(&[1 << 20, 300]);
    settings
}

/// A run that does what the bytes say: its log, what memory holds then, and its engine.
fn recorded(settings: &Settings, plan: Option<Plan>, how: &[u8]) -> (Vec<u8>, Memorised, Order) {
    let settings = Settings { check: true, ..settings.clone() };
    let shared = Shared::default();
    let mut order = Order::new(settings.clone());
    if let Some(plan) = plan {
        order.follow(plan);
    }
    order.keep_log(Writer::new(Box::new(shared.clone()), &settings, "fuzz", u64::MAX).expect("memory"));
    let mut memory = Memorised(vec![0; MEMORY]);
    let input = &mut Input::new(how);
    let mut now = 0;
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        now += u64::from(input.u8() % 64);
        step(input, &mut order, &mut memory);
        order.advance(now, &mut memory);
    }
    for _ in 0..100_000 {
        let Some(due) = order.next_due() else { break };
        order.advance(due, &mut memory);
    }
    assert!(order.pool().is_empty(), "everything comes to an end");
    order.keep_log(Writer::new(Box::new(std::io::sink()), &settings, "fuzz", u64::MAX).expect("nowhere"));
    (shared.take(), memory, order)
}

/// One access. Each takes the same bytes of the input in every run.
fn step(input: &mut Input<'_>, order: &mut Order, memory: &mut Memorised) {
    let what = input.u8();
    let number = u32::from(input.u8() % 3);
    let bits = input.u8();
    let (ours, theirs) = match bits & 1 {
        0 => (Stream::Responder(number), Stream::Requester(number)),
        _ => (Stream::Requester(number), Stream::Responder((number + 1) % 3)),
    };
    let key = KeyOrder { relaxed_write: bits & 2 != 0, relaxed_read: false, relaxed_read_after_write: bits & 4 != 0 };
    let fence = match bits >> 3 & 7 {
        5 => Fence::Local,
        6 => Fence::Read,
        7 => Fence::Strong,
        _ => Fence::None,
    };
    let ack = if bits & 0x40 != 0 { order.ack(theirs) } else { None };
    let (at, len) = (u64::from(input.u8()) * 8, 1 + u32::from(input.u8()) * 4);
    let ranges = [Range { at: Iova(at), len }, Range { at: Iova(at + 0x800), len: 8 }];
    let ranges = &ranges[..1 + usize::from(bits >> 7)];
    let bytes = vec![what; ranges.iter().map(|range| range.len as usize).sum()];
    let entry = [Range { at: Iova(0x1800 + (at & 0x1c0)), len: 64 }];
    let word = [Range { at: Iova(0x1000 + (at & 0x18)), len: 8 }];
    let base = NewTxn {
        order: key,
        fence,
        after: [ack, None],
        keys: [1 + number, 0],
        ..NewTxn::device(Kind::Write, ours, ranges, Payload::Bytes(&bytes))
    };
    let chain = Some(number);
    // What does not fit is refused, in each run alike.
    match what % 16 {
        0..=3 => {
            let _ = order.issue(&base, memory);
        }
        4 | 5 => {
            let read = NewTxn { kind: Kind::Read, stream: theirs, payload: Payload::Sample, ..base };
            let _ = order.copy(&read, &base, memory);
        }
        6 => {
            let _ = order.issue(&NewTxn { kind: Kind::Read, payload: Payload::Sample, ..base }, memory);
        }
        7 => {
            let read = NewTxn { kind: Kind::Read, payload: Payload::Sample, ..base };
            let _ = order.read_now(&read, memory, &mut vec![0; bytes.len()]);
        }
        8 | 9 => {
            let payload = Payload::Atomic(AtomicOp::FetchAdd { add: u64::from(what), boundary: 0 });
            let atomic = NewTxn { kind: Kind::Atomic, ranges: &word, payload, ..base };
            if what & 0x80 == 0 {
                let _ = order.issue(&atomic, memory);
            } else {
                let _ = order.atomic_now(&atomic, memory);
            }
        }
        10 | 11 => {
            let payload = Payload::Bytes(&[7; 64]);
            let order_of_key = KeyOrder::default();
            let done = NewTxn { kind: Kind::Cqe, chain, ranges: &entry, payload, order: order_of_key, ..base };
            let _ = order.issue(&done, memory);
            if what & 0x40 != 0 {
                let event = NewTxn::device(Kind::Eqe, Stream::Eq(0), &entry, payload);
                let _ = order.issue(&NewTxn { chain, ..event }, memory);
                let message = NewTxn::device(Kind::Msi, Stream::Eq(0), &[], Payload::Signal(number));
                let _ = order.issue(&NewTxn { chain, ..message }, memory);
            }
        }
        12 => {
            let after = [Some(order.horizon(ours)), None];
            let output = NewTxn::device(Kind::Command, Stream::Command, &entry, Payload::Bytes(&[9; 64]));
            let _ = order.issue(&NewTxn { after, ..output }, memory);
        }
        13 => {
            let fetch = NewTxn::device(Kind::Control, ours, &word, Payload::Sample);
            let _ = order.read_now(&fetch, memory, &mut [0; 8]);
        }
        14 => {
            let scopes = [
                Scope::All,
                Scope::Qp(number),
                Scope::Cq(number),
                Scope::Eq(0),
                Scope::Key(1 + number),
                Scope::Range(Iova(at), u64::from(len)),
                Scope::Stream(ours),
                Scope::Stream(Stream::Command),
            ];
            order.drain(scopes[usize::from(bits & 7)], memory);
        }
        _ if bits & 0x38 == 0x38 => order.discard(),
        _ => {}
    }
}
