use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::engine::tests::{Dice, Sink};
use super::super::{Policy, Profile};
use super::*;

fn settings() -> Settings {
    let mut settings = Settings::with(Policy::Pct(4), Profile::Cx10Worst, u64::MAX);
    settings.illegal = Some(Illegal::EqeFirst);
    settings.rules.omit = Omit::NOTHING.and(Rule::OwnerLast);
    settings.rules.split_path = Some(u64::MAX);
    settings
}

/// One of everything, with extreme numbers.
fn events() -> Vec<Event<'static>> {
    let base = Issued {
        tick: 5,
        id: TxnId(1),
        kind: Kind::Write,
        stream: Stream::Responder(0xff_ffff),
        seq: 1,
        chain: None,
        order: KeyOrder { relaxed_write: true, relaxed_read: false, relaxed_read_after_write: true },
        fence: Fence::Strong,
        after: [None; 2],
        keys: [0; 2],
        node: 0,
        source: None,
        steps: 2,
        ranges: Cow::Owned(vec![Range { at: Iova(u64::MAX), len: 1 }, Range { at: Iova(0), len: u32::MAX }]),
    };
    let horizon = |seq| Horizon { stream: Stream::Eq(u32::MAX), seq };
    let mut events = vec![Event::Issue(base.clone())];
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        let id = index as u64 + 2;
        let streams = [Stream::Requester(0), Stream::Queue(7), Stream::Cq(8), Stream::Eq(9), Stream::Command];
        events.push(Event::Issue(Issued {
            tick: 5 + id * 1000,
            id: TxnId(id),
            kind,
            stream: streams[index % streams.len()],
            seq: u64::MAX,
            chain: Some(u32::MAX),
            order: KeyOrder { relaxed_read: true, ..KeyOrder::default() },
            fence: [Fence::None, Fence::Local, Fence::Read][index % 3],
            after: [Some(horizon(1)), (index % 2 == 0).then(|| horizon(u64::MAX))],
            keys: [u32::MAX, 1],
            node: 255,
            source: Some(TxnId(1)),
            steps: 1,
            ..base.clone()
        }));
    }
    for (index, why) in Why::ALL.into_iter().enumerate() {
        let choice = Choice { txn: TxnId(1 + index as u64), part: u16::MAX };
        events.push(Event::Apply { tick: 1 << 40, choice, why });
    }
    for scope in [
        Scope::All,
        Scope::Stream(Stream::Command),
        Scope::Qp(1),
        Scope::Cq(2),
        Scope::Eq(3),
        Scope::Key(u32::MAX),
        Scope::Range(Iova(u64::MAX), u64::MAX),
    ] {
        events.push(Event::Drain { tick: 1 << 41, scope });
    }
    events.push(Event::Discard { tick: 1 << 42 });
    events
}

fn written(events: &[Event<'_>], limit: u64) -> Vec<u8> {
    let sink = Sink::default();
    let mut writer = Writer::new(Box::new(sink.clone()), &settings(), "connectx10-c2c", limit).unwrap();
    events.iter().for_each(|event| writer.event(event));
    drop(writer);
    let bytes = sink.0.lock().unwrap();
    bytes.clone()
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log = Log::read(&written(&events(), u64::MAX)).unwrap();
    assert_eq!(log.settings, settings());
    assert_eq!(log.events, events());
    assert!(log.complete && log.expect_device("connectx10-c2c").is_ok());
    let error = log.expect_device("connectx10").unwrap_err().to_string();
    assert_eq!(error, "the log belongs to another device configuration: connectx10-c2c, not connectx10");
}

#[test]
fn parts_that_no_transaction_has_overtake_nothing_that_is_not_there() {
    // Transaction 1 has two parts; the log says that part 65535 of it was performed, and that before it was issued.
    let log = Log::read(&written(&events(), u64::MAX)).unwrap();
    let first = log.events.iter().find(|event| matches!(event, Event::Apply { choice, .. } if choice.txn == TxnId(1)));
    assert!(matches!(first, Some(Event::Apply { choice: Choice { part: u16::MAX, .. }, .. })));
    let overtakes = log.overtakes(usize::MAX).expect("no limit");
    assert!(overtakes.iter().all(|overtake| overtake.earlier.part < 2), "{overtakes:?}");
}

#[test]
fn every_truncation_is_told_and_whole_chunks_before_it_can_be_read() {
    let bytes = written(&events(), u64::MAX);
    for len in 0..bytes.len() {
        match Log::read(&bytes[..len]) {
            Err(LogError::NotALog) => assert_eq!(len, 0),
            Err(LogError::Truncated { .. }) => {}
            other => panic!("{len}: {other:?}"),
        }
    }
    let sink = Sink::default();
    let mut writer = Writer::new(Box::new(sink.clone()), &settings(), "d", u64::MAX).unwrap();
    writer.event(&events()[0]);
    writer.flush();
    let so_far = sink.0.lock().unwrap().clone();
    let (log, at) = Log::read_prefix(&so_far).unwrap();
    assert_eq!((log.events.len(), log.complete, at), (1, false, so_far.len()));
    let text = Log::read(&so_far).unwrap_err().to_string();
    assert_eq!(text, format!("the log is cut off at byte {at}, after 1 events"));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = written(&events(), u64::MAX);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Log::read(&damaged).is_err(), "byte {at} bit {bit}");
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(Log::read(&longer), Err(LogError::Damaged { what: "something follows its end", .. })));
}

#[test]
fn another_version_and_another_file_are_told_apart_from_damage() {
    let mut bytes = written(&[], u64::MAX);
    bytes[8] = 2;
    let text = Log::read(&bytes).unwrap_err().to_string();
    assert_eq!(text, "the log has format version 2; this program reads version 1");
    for other in [&b""[..], b"{\"format\": 1}", b"CX10TRC\n0000000000000000"] {
        assert!(matches!(Log::read(other), Err(LogError::NotALog)));
    }
    assert!(matches!(Log::open(std::path::Path::new("/nonexistent")), Err(LogError::Io(_))));
}

#[test]
fn no_bytes_make_the_reader_fail_otherwise_than_by_an_error() {
    let head = written(&[], u64::MAX);
    let header = head.len() - 9;
    let mut dice = Dice(11);
    let mut read = 0;
    for _ in 0..20_000 {
        let chunk: Vec<u8> =
            (0..dice.below(60)).map(|_| [dice.below(256), dice.below(6)][dice.below(2) as usize] as u8).collect();
        let mut bytes = head[..header].to_vec();
        bytes.extend((chunk.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&chunk).to_le_bytes());
        bytes.extend(&chunk);
        if let Ok((log, _)) = Log::read_prefix(&bytes) {
            read += log.events.len();
        }
    }
    assert!(read > 100, "{read}: some of it even makes sense");
}

#[test]
fn a_log_that_reaches_its_limit_ends_there_and_is_still_whole() {
    let many: Vec<Event<'static>> = (0..100_000).map(|tick| Event::Drain { tick, scope: Scope::All }).collect();
    let bytes = written(&many, 100_000);
    assert!(bytes.len() < 150_000);
    let log = Log::read(&bytes).unwrap();
    assert!(log.events.len() > 20_000 && log.events.len() < 60_000, "{}", log.events.len());
    assert_eq!(log.events[..], many[..log.events.len()]);
}

#[test]
fn a_full_disk_ends_the_log_and_nothing_else() {
    struct Full(AtomicUsize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.fetch_add(1, Ordering::Relaxed) > 0 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Box::new(Full(AtomicUsize::new(0))), &settings(), "d", u64::MAX).unwrap();
    for event in events() {
        writer.event(&event);
        writer.flush();
    }
    assert!(writer.failed);
}

#[test]
fn a_transaction_and_its_application_cost_few_bytes() {
    let mut events = Vec::new();
    for id in 1..=10_000u64 {
        let at = Iova(0x1_2345_6000 + id % 256 * 4096);
        events.push(Event::Issue(Issued {
            tick: id * 3,
            id: TxnId(id),
            kind: Kind::Write,
            stream: Stream::Responder(0x123),
            seq: id,
            keys: [0x40, 0],
            steps: 2,
            ranges: Cow::Owned(vec![Range { at, len: 4092 }, Range { at: Iova(at.0 + 4092), len: 4 }]),
            ..match &self::events()[0] {
                Event::Issue(issued) => issued.clone(),
                _ => unreachable!(),
            }
        }));
        for part in 0..2 {
            let choice = Choice { txn: TxnId(id), part };
            events.push(Event::Apply { tick: id * 3 + 1, choice, why: Why::Due });
        }
    }
    let each = written(&events, u64::MAX).len() / 10_000;
    assert!(each < 40, "{each} bytes for a transaction with two parts");
}
