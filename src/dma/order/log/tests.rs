use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::engine::tests::{Dice, Sink};
use super::super::rules::{Omit, Rule};
use super::super::{Illegal, MAX_TRANSACTIONS, Policy, Profile};
use super::*;
use crate::dma::Iova;

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
        counts: Cow::Borrowed(&[]),
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
    let pieces = [(1, 1), (2, 2), (9, 3)].map(|(at, len)| Range { at: Iova(at), len });
    events.push(Event::Issue(Issued {
        tick: 1 << 39,
        id: TxnId(20),
        counts: Cow::Borrowed(&[1, 2]),
        ranges: Cow::Owned(pieces.to_vec()),
        ..base.clone()
    }));
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

/// All events, plausible or not.
fn decoded(bytes: &[u8]) -> Result<(Vec<Event<'static>>, Option<Ending>), LogError> {
    let mut reader = Reader::new(Source::Bytes(bytes.into()))?;
    let events = (&mut reader).collect::<Result<_, _>>()?;
    Ok((events, reader.ending))
}

/// What a pool could have done: transactions with two parts each.
fn plausible(count: u64) -> Vec<Event<'static>> {
    let Event::Issue(base) = &events()[0] else { unreachable!() };
    let mut all = Vec::new();
    for id in 1..=count {
        all.push(Event::Issue(Issued { tick: 7, id: TxnId(id), seq: id, ..base.clone() }));
        for part in [1, 0] {
            all.push(Event::Apply { tick: 7, choice: Choice { txn: TxnId(id), part }, why: Why::Due });
        }
    }
    all
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let bytes = written(&events(), u64::MAX);
    assert_eq!(decoded(&bytes).unwrap(), (events(), Some(Ending::Complete)));
    let log = Log::read(&written(&plausible(5), u64::MAX)).unwrap();
    assert_eq!(log.settings, settings());
    assert_eq!((log.count, log.parts, log.ending), (15, 10, Ending::Complete));
    assert_eq!(log.events().unwrap().map(Result::unwrap).collect::<Vec<_>>(), plausible(5));
    assert!(log.expect_device("connectx10-c2c").is_ok() && log.warning().is_none());
    let error = log.expect_device("connectx10").unwrap_err().to_string();
    assert_eq!(error, "the log belongs to another device configuration: connectx10-c2c, not connectx10");
}

#[test]
fn the_ranges_of_a_part_are_known() {
    let issued = |event: &Event<'static>| match event {
        Event::Issue(issued) => issued.clone(),
        _ => panic!("{event:?}"),
    };
    let (events, _) = decoded(&written(&events(), u64::MAX)).unwrap();
    let base = issued(&events[0]);
    assert_eq!((base.part(1), base.part(2)), (&base.ranges[1..], &[][..]));
    let halves = issued(&events[1]);
    assert_eq!(halves.part(0), &*halves.ranges);
    let joined = issued(&events[9]);
    assert_eq!(
        (joined.part(0), joined.part(1), joined.part(2)),
        (&joined.ranges[..1], &joined.ranges[1..], &*joined.ranges)
    );
    let counts = |counts: &'static [u16]| {
        let event = Event::Issue(Issued { counts: Cow::Borrowed(counts), ..joined.clone() });
        decoded(&written(&[event], u64::MAX)).is_ok()
    };
    assert!(counts(&[2, 1]) && !counts(&[2, 2]) && !counts(&[1, 0]) && !counts(&[u16::MAX, 4]));
}

#[test]
fn what_no_pool_can_have_done_is_refused() {
    let good = plausible(3);
    let Event::Issue(first) = good[0].clone() else { unreachable!() };
    let issue = |id: u64, steps: u16| Event::Issue(Issued { id: TxnId(id), steps, ..first.clone() });
    let apply = |id: u64, part: u16| {
        let choice = Choice { txn: TxnId(id), part };
        Event::Apply { tick: 9, choice, why: Why::Due }
    };
    let crowd: Vec<Event<'static>> = (1..=MAX_TRANSACTIONS as u64 + 2).map(|id| issue(id, 1)).collect();
    let at_most: Vec<Event<'static>> = crowd[..crowd.len() - 1].to_vec();
    assert!(Log::read(&written(&at_most, u64::MAX)).is_ok());
    for (events, what) in [
        (vec![issue(1, 2), issue(1, 2)], "a transaction is issued twice"),
        (vec![issue(1, 4097)], "a transaction has too many parts"),
        (crowd, "more is pending than a pool can hold"),
        (vec![issue(1, 2), apply(1, 2)], "a part is applied that is not pending"),
        (vec![issue(1, 2), apply(1, 0), apply(1, 0)], "a part is applied that is not pending"),
        (vec![issue(1, 1), apply(1, 0), apply(1, 0)], "a part is applied that is not pending"),
        (vec![issue(2, 1), apply(1, 0)], "a part is applied that is not pending"),
        (vec![issue(1, 1), Event::Discard { tick: 1 }, apply(1, 0)], "a part is applied that is not pending"),
        (vec![issue(1, 0), apply(1, 0)], "a part is applied that is not pending"),
    ] {
        match Log::read(&written(&events, u64::MAX)) {
            Err(LogError::Damaged { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn files_that_cannot_be_logs_are_refused_before_they_are_read() {
    let dir = std::env::temp_dir().join(format!("cx10-log-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let refused = |path: &Path| Log::open(path).unwrap_err().to_string();
    for other in [Path::new("/dev/zero"), &dir] {
        assert_eq!(refused(other), "not a regular file; an order log is read more than once");
    }
    let large = dir.join("large");
    File::create(&large).unwrap().set_len(MOST_LOG + 1).unwrap();
    assert_eq!(refused(&large), "the log has 1073741825 bytes, more than 1073741824");
    assert_eq!(Log::copy(&large, &dir.join("x")).unwrap_err().to_string(), refused(&large));
    // Zeros have no magic.
    File::create(&large).unwrap().set_len(MOST_LOG).unwrap();
    assert_eq!(refused(&large), "not an order log of cx10");
    std::fs::write(&large, written(&plausible(9), u64::MAX)).unwrap();
    let copy = Log::copy(&large, &dir.join("copy")).unwrap();
    File::create(&large).unwrap();
    assert_eq!(copy.applications().unwrap().map(Result::unwrap).count(), 18);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_header_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let head = |text: &str| {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
        bytes.extend(text.as_bytes());
        Log::read(&bytes).unwrap_err().to_string()
    };
    let damaged = |what: &str| format!("the log's header is damaged: {what}");
    assert_eq!(head("{}"), damaged("no device"));
    assert_eq!(head("{\"device\": \"\\u001b[31m\"}"), damaged("its device has no name"));
    assert_eq!(head("{\"device\": \"d\"}"), damaged("no settings"));
    assert_eq!(head("{\"device\": \"d\", \"settings\": {\"seed\": 1}}"), damaged("a setting is no text"));
    let policy = head("{\"device\": \"d\", \"settings\": {\"policy\": \"randm\"}}");
    assert_eq!(policy, damaged("order.policy: unknown name \"randm\"; did you mean \"random\"?"));
    assert_eq!(head(&" ".repeat(MAX_HEADER + 1)), damaged("it is too long"));
    assert!(head("[[[[").contains("EOF while parsing"), "{}", head("[[[["));
}

#[test]
fn every_truncation_is_told_and_whole_chunks_before_it_can_be_read() {
    let bytes = written(&events(), u64::MAX);
    for len in 0..bytes.len() {
        match decoded(&bytes[..len]) {
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
    let mut reader = Reader::new(Source::Bytes(so_far.as_slice().into())).unwrap();
    assert_eq!(reader.next().unwrap().unwrap(), events()[0]);
    let text = reader.next().unwrap().unwrap_err().to_string();
    let at = so_far.len();
    let why = "its run goes on or was killed, or its disk was full";
    assert_eq!(text, format!("the log is cut off at byte {at}, after 1 events: {why}"));
    assert!(reader.next().is_none() && reader.ending.is_none());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = written(&events(), u64::MAX);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(decoded(&damaged).is_err(), "byte {at} bit {bit}");
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(decoded(&longer), Err(LogError::Damaged { what: "something follows its end", .. })));
}

#[test]
fn another_version_and_another_file_are_told_apart_from_damage() {
    let mut bytes = written(&[], u64::MAX);
    bytes[8] += 1;
    let text = Log::read(&bytes).unwrap_err().to_string();
    assert_eq!(text, "the log has format version 3; this program reads version 2");
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
        read += Reader::new(Source::Bytes(bytes.into())).unwrap().filter(Result::is_ok).count();
    }
    assert!(read > 100, "{read}: some of it even makes sense");
}

#[test]
fn a_log_that_reaches_its_limit_ends_there_and_says_so() {
    let many = plausible(20_000);
    let bytes = written(&many, 100_000);
    assert!((60_000..=100_000).contains(&bytes.len()), "{}", bytes.len());
    let log = Log::read(&bytes).unwrap();
    assert_eq!(log.ending, Ending::Limit);
    let count = log.count as usize;
    assert!(count > 2000 && count < many.len(), "{count}");
    assert!(log.events().unwrap().map(Result::unwrap).eq(many[..count].iter().cloned()));
    let warning = log.warning().unwrap();
    assert!(warning.contains(&format!("cut at its limit of bytes, after {count} events")), "{warning}");

    let mut writer = Writer::new(Box::new(std::io::sink()), &settings(), "d", 100_000).unwrap();
    assert_eq!(writer.cut(), None);
    many.iter().for_each(|event| writer.event(event));
    assert_eq!(writer.cut(), Some("it reached its limit of 100000 bytes"));
}

#[test]
fn what_is_left_when_a_writer_ends_keeps_to_the_limit_too() {
    let many = plausible(100);
    let whole = written(&many, u64::MAX);
    let fits = written(&many, whole.len() as u64);
    assert_eq!(Log::read(&fits).unwrap().ending, Ending::Complete);
    let cut = written(&many, whole.len() as u64 - 1);
    let log = Log::read(&cut).unwrap();
    assert_eq!((log.ending, log.count), (Ending::Limit, 0));
    assert!(cut.len() < whole.len());
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
    let why = writer.cut().unwrap();
    assert!(why.starts_with("it cannot be written: No space left"), "{why}");
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
            counts: Cow::Borrowed(&[]),
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
