use std::sync::{Arc, Mutex};

use super::super::log::Log;
use super::super::pool::tests::Ram;
use super::super::{Fence, Limits, Profile, Range};
use super::*;

use crate::dma::KeyOrder;

/// Where a test's log goes.
#[derive(Clone, Default)]
pub(in crate::dma::order) struct Sink(pub Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A generator for tests; its quality does not matter.
pub(in crate::dma::order) struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Drives an engine as a device with two queue pairs, each with its completion queue and a common event queue, does.
pub(in crate::dma::order) fn drive(order: &mut Order, ram: &mut Ram, steps: u64, seed: u64) {
    let mut dice = Dice(seed);
    let mut now = 0;
    for _ in 0..steps {
        now += dice.below(30);
        let qpn = dice.below(2) as u32;
        let stream = if dice.one_in(2) { Stream::Responder(qpn) } else { Stream::Requester(qpn) };
        let key =
            KeyOrder { relaxed_write: !dice.one_in(3), relaxed_read: false, relaxed_read_after_write: dice.one_in(2) };
        let fences = [Fence::Local, Fence::Read, Fence::Strong];
        let fence = if dice.one_in(6) { fences[dice.below(3) as usize] } else { Fence::None };
        let ack = if dice.one_in(5) { order.ack(Stream::Responder(1 - qpn)) } else { None };
        let keys = [1 + dice.below(4) as u32, 0];
        let ranges: Vec<Range> = (0..1 + dice.below(2))
            .map(|_| Range { at: Iova(dice.below(0x200)), len: 1 + dice.below(64) as u32 })
            .collect();
        let len: u32 = ranges.iter().map(|range| range.len).sum();
        let bytes = vec![dice.below(256) as u8; len as usize];
        let base = NewTxn {
            order: key,
            fence,
            after: [ack, None],
            keys,
            ..NewTxn::device(Kind::Write, stream, &ranges, Payload::Bytes(&bytes))
        };
        match dice.below(16) {
            0..=3 => drop(order.issue(&base, ram).unwrap()),
            4..=6 => {
                let from = [Range { at: Iova(dice.below(0x200)), len }];
                let read = NewTxn {
                    kind: Kind::Read,
                    stream: Stream::Requester(1 - qpn),
                    ranges: &from,
                    payload: Payload::Sample,
                    ..base
                };
                let write = NewTxn { stream: Stream::Responder(qpn), ..base };
                order.copy(&read, &write, ram).unwrap();
            }
            7 => {
                let read = NewTxn { kind: Kind::Read, payload: Payload::Sample, ..base };
                order.issue(&read, ram).unwrap();
            }
            8 => {
                let read = NewTxn { kind: Kind::Read, payload: Payload::Sample, ..base };
                order.read_now(&read, ram, &mut vec![0; len as usize]).unwrap();
            }
            9 | 10 => {
                let word = [Range { at: Iova(0x400 + 8 * dice.below(2)), len: 8 }];
                let add = Payload::Atomic(AtomicOp::FetchAdd { add: 1, boundary: 0 });
                let atomic = NewTxn { kind: Kind::Atomic, ranges: &word, payload: add, ..base };
                if dice.one_in(2) {
                    order.atomic_now(&atomic, ram).unwrap();
                } else {
                    order.issue(&atomic, ram).unwrap();
                }
            }
            11 | 12 => {
                let entry = [Range { at: Iova(0x1000 + 64 * dice.below(16)), len: 64 }];
                let cqe = NewTxn {
                    kind: Kind::Cqe,
                    chain: Some(qpn),
                    ranges: &entry,
                    payload: Payload::Bytes(&[1; 64]),
                    order: KeyOrder::default(),
                    ..base
                };
                order.issue(&cqe, ram).unwrap();
                if dice.one_in(2) {
                    let payload = Payload::Bytes(&[2; 64]);
                    let eqe = NewTxn::device(Kind::Eqe, Stream::Eq(0), &entry, payload);
                    order.issue(&NewTxn { chain: Some(qpn), ..eqe }, ram).unwrap();
                    let msi = NewTxn::device(Kind::Msi, Stream::Eq(0), &[], Payload::Signal(qpn));
                    order.issue(&NewTxn { chain: Some(qpn), ..msi }, ram).unwrap();
                }
            }
            13 => {
                let command = [Range { at: Iova(0x2000), len: 16 }, Range { at: Iova(0x203f), len: 1 }];
                let drained = order.horizon(Stream::Responder(qpn));
                let output = NewTxn::device(Kind::Command, Stream::Command, &command, Payload::Bytes(&[3; 17]));
                order.issue(&NewTxn { after: [Some(drained), None], ..output }, ram).unwrap();
                let done = [Some(order.horizon(Stream::Command)), None];
                let entry = [Range { at: Iova(0x3000), len: 64 }];
                let eqe = NewTxn::device(Kind::Eqe, Stream::Eq(0), &entry, Payload::Bytes(&[4; 64]));
                order.issue(&NewTxn { after: done, ..eqe }, ram).unwrap();
            }
            14 if dice.one_in(3) => {
                // An event of no completion queue, or an interrupt alone.
                let entry = [Range { at: Iova(0x3040), len: 64 }];
                let eqe = NewTxn::device(Kind::Eqe, Stream::Eq(1), &entry, Payload::Bytes(&[5; 64]));
                let msi = NewTxn::device(Kind::Msi, Stream::Eq(2), &[], Payload::Signal(9));
                let msi = NewTxn { after: [Some(order.horizon(stream)), None], ..msi };
                order.issue(if dice.one_in(2) { &eqe } else { &msi }, ram).unwrap();
            }
            14 => {
                let mut word = [0; 4];
                let record = [Range { at: Iova(0x2100), len: 4 }];
                let fetch = NewTxn::device(Kind::Control, stream, &record, Payload::Sample);
                order.read_now(&fetch, ram, &mut word).unwrap();
            }
            _ if dice.one_in(4) => {
                let scopes = [
                    Scope::All,
                    Scope::Qp(qpn),
                    Scope::Cq(qpn),
                    Scope::Eq(0),
                    Scope::Key(keys[0]),
                    Scope::Range(Iova(0x80), 0x100),
                    Scope::Stream(stream),
                ];
                order.drain(scopes[dice.below(7) as usize], ram);
            }
            _ if dice.one_in(20) => order.discard(),
            _ => {}
        }
        order.advance(now, ram);
    }
    while let Some(due) = order.next_due() {
        order.advance(due, ram);
    }
    assert!(order.pool().is_empty(), "progress without any further issue");
}

fn settings(policy: Policy, profile: Profile, seed: u64) -> Settings {
    Settings { check: true, ..Settings::with(policy, profile, seed) }
}

/// Runs and answers the live verdict, the log and what memory looks like.
fn run(settings: &Settings, steps: u64, seed: u64) -> (Verdict, Log, Vec<u8>) {
    let sink = Sink::default();
    let mut order = Order::new(settings.clone());
    order.keep_log(Writer::new(Box::new(sink.clone()), settings, "test", u64::MAX).unwrap());
    let mut ram = Ram::new();
    drive(&mut order, &mut ram, steps, seed);
    assert_eq!(order.pool().failures(), 0);
    let verdict = order.verdict().unwrap().clone();
    drop(order);
    let log = Log::read(&sink.0.lock().unwrap()).unwrap();
    (verdict, log, ram.bytes)
}

fn judge(log: &Log) -> Verdict {
    let mut checker = Checker::new(&log.settings);
    log.events().unwrap().for_each(|event| checker.event(&event.unwrap()));
    checker.verdict().clone()
}

#[test]
fn every_policy_under_every_profile_satisfies_the_checker() {
    for policy in Policy::ALL {
        for profile in Profile::ALL {
            for seed in 0..3 {
                let mut settings = settings(policy, *profile, seed);
                settings.limits.max_transactions = [256, 8, 2][seed as usize % 3];
                settings.limits.max_bytes = [1 << 20, 1 << 20, 200][seed as usize % 3];
                let (verdict, log, _) = run(&settings, 200, seed);
                assert!(verdict.is_legal(), "{policy} {profile:?} {seed}: {:#?}", verdict.described);
                assert!(verdict.applied > 100 && verdict.issued > 80);
                assert_eq!(judge(&log), verdict, "the file says the same as the run");
            }
        }
    }
}

#[test]
fn every_knob_satisfies_the_checker() {
    for knob in [
        ("strict_on_unordered", "honour-per-qp"),
        ("raw_scope", "function"),
        ("raw_scope", "bytes"),
        ("ack", "receive"),
        ("atomic", "rmw"),
        ("atomic", "pcie_ro"),
        ("fence2", "pr1780"),
        ("granule", "1"),
        ("granule", "64"),
        ("split", "random"),
        ("split_path", "0x1000"),
        ("fabric", "pcie"),
        ("ro_only", "0"),
        ("rate", "30"),
        ("max_delay", "0"),
    ] {
        for seed in 0..2 {
            let mut settings = settings(Policy::Random, Profile::Cx10Unordered, seed);
            settings.set(knob.0, knob.1).unwrap();
            let (verdict, log, _) = run(&settings, 300, seed);
            assert!(verdict.is_legal(), "{knob:?} {seed}: {:#?}", verdict.described);
            assert_eq!(judge(&log), verdict);
        }
    }
}

#[test]
fn every_illegal_mode_is_caught_under_every_policy() {
    for illegal in Illegal::ALL {
        for policy in Policy::ALL {
            for profile in [Profile::Cx10Ro, Profile::PcieStrong] {
                let settings = Settings { illegal: Some(*illegal), ..settings(policy, profile, 1) };
                let (verdict, log, _) = run(&settings, 400, 1);
                assert!(!verdict.is_legal(), "{illegal:?} {policy} {profile:?}");
                assert_eq!(judge(&log), verdict);
                assert_eq!(log.settings.illegal, Some(*illegal), "the log is marked");
            }
        }
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed_by_the_checker() {
    use super::super::rules::Omit;
    let mut missed = Vec::new();
    for rule in Rule::ALL {
        // Alone on the fabric where the other half of the contract does not hide it.
        let name = rule.name();
        let profile = if name.starts_with("fabric") || *rule == Rule::Ascending {
            Profile::PcieUnordered
        } else {
            Profile::Cx10Unordered
        };
        let mut caught = false;
        for seed in 0..40 {
            let mut settings = settings(Policy::Random, profile, seed);
            if *rule == Rule::AtomicBytes {
                settings.set("atomic", "rmw").unwrap();
            }
            if *rule == Rule::WriteWrite {
                settings.set("ro_only", "0").unwrap();
            }
            settings.rules.omit = Omit::NOTHING.and(*rule);
            if *rule == Rule::MsiCqe {
                settings.rules.omit = settings.rules.omit.and(Rule::MsiEqe);
            }
            caught |= !run(&settings, 300, seed).0.is_legal();
            if caught {
                break;
            }
        }
        if !caught {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    for policy in Policy::ALL {
        let first = run(&settings(policy, Profile::Cx10Unordered, 5), 400, 1);
        let again = run(&settings(policy, Profile::Cx10Unordered, 5), 400, 1);
        let events = |log: &Log| log.events().unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(events(&first.1), events(&again.1), "{policy}");
        assert_eq!(first.2, again.2);
        let other = run(&settings(policy, Profile::Cx10Unordered, 6), 400, 1);
        let seeded = matches!(policy, Policy::Random | Policy::HoldOne | Policy::Pct(_) | Policy::QpSkew);
        assert_eq!(events(&first.1) != events(&other.1), seeded, "{policy}");
    }
}

#[test]
fn in_order_leaves_nothing_pending_and_overtakes_nothing() {
    let mut order = Order::new(settings(Policy::InOrder, Profile::Cx10Unordered, 1));
    let mut ram = Ram::new();
    drive(&mut order, &mut ram, 500, 1);
    let happened: u64 = order.coverage().rows(&order.settings().rules).iter().map(|row| row.count).sum();
    assert_eq!((happened, order.counters().held), (0, 0));
    assert!(order.counters().most_pending <= 2);
}

#[test]
fn a_guest_that_never_lets_the_pool_drain_meets_back_pressure() {
    let mut settings = settings(Policy::ReadEarly, Profile::Cx10Unordered, 1);
    settings.limits = Limits { max_transactions: 16, max_bytes: 1000, ..Limits::default() };
    let mut order = Order::new(settings);
    let mut ram = Ram::new();
    let ranges = [Range { at: Iova(0), len: 100 }];
    let data = NewTxn::device(Kind::Write, Stream::Responder(1), &ranges, Payload::Bytes(&[1; 100]));
    for _ in 0..100 {
        order.issue(&data, &mut ram).unwrap();
        assert!(order.pool().len() <= 10 && order.pool().bytes() <= 1000);
    }
    assert_eq!(order.counters().applied[Why::Pressure as usize], 90);
    let large = [Range { at: Iova(0), len: 5000 }];
    order.issue(&NewTxn { ranges: &large, payload: Payload::Bytes(&[2; 5000]), ..data }, &mut ram).unwrap();
    assert_eq!(order.pool().len(), 1, "one that is larger than the bound is alone");
    assert!(order.verdict().unwrap().is_legal());
}

#[test]
fn what_is_performed_at_once_sees_what_it_must_wait_for() {
    let mut order = Order::new(settings(Policy::ReadEarly, Profile::Cx10Unordered, 1));
    let mut ram = Ram::new();
    let ranges = [Range { at: Iova(0x40), len: 8 }];
    let relaxed = KeyOrder { relaxed_write: true, relaxed_read: false, relaxed_read_after_write: true };
    let stream = Stream::Responder(1);
    let data = NewTxn::device(Kind::Write, stream, &ranges, Payload::Bytes(&[1; 8]));
    let read = NewTxn::device(Kind::Read, stream, &ranges, Payload::Sample);
    let mut out = [9; 8];
    order.issue(&data, &mut ram).unwrap();
    order.read_now(&NewTxn { order: relaxed, ..read }, &mut ram, &mut out).unwrap();
    assert_eq!(out, [0; 8], "a relaxed read does not wait");
    order.read_now(&NewTxn { stream: Stream::Responder(2), ..read }, &mut ram, &mut out).unwrap();
    assert_eq!(out, [0; 8], "nor a strong one of another queue");
    order.read_now(&read, &mut ram, &mut out).unwrap();
    assert_eq!(out, [1; 8], "a strong read does");
    order.issue(&NewTxn { payload: Payload::Bytes(&[2; 8]), ..data }, &mut ram).unwrap();
    let add = Payload::Atomic(AtomicOp::FetchAdd { add: 1, boundary: 0 });
    let atomic = NewTxn { payload: add, ..NewTxn::device(Kind::Atomic, stream, &ranges, add) };
    assert_eq!(order.atomic_now(&atomic, &mut ram), Ok(0x0202_0202_0202_0202));
    assert_eq!(ram.bytes[0x40], 3);
    assert_eq!(order.counters().applied[Why::Needed as usize], 2);
}

#[test]
fn a_part_is_applied_when_it_is_due_and_not_before() {
    let mut order = Order::new(settings(Policy::HoldOne, Profile::Cx10Unordered, 1));
    let mut ram = Ram::new();
    let ranges = [Range { at: Iova(0x100), len: 256 }];
    let data = NewTxn::device(Kind::Write, Stream::Responder(1), &ranges, Payload::Bytes(&[1; 256]));
    order.set_now(1000);
    order.issue(&data, &mut ram).unwrap();
    let entry = [Range { at: Iova(0x400), len: 64 }];
    let cqe = NewTxn::device(Kind::Cqe, Stream::Responder(1), &entry, Payload::Bytes(&[1; 64]));
    order.issue(&NewTxn { chain: Some(1), ..cqe }, &mut ram).unwrap();
    assert_eq!(order.next_due(), Some(1000));
    assert!(!order.advance(1000, &mut ram));
    assert_eq!(ram.bytes[0x100..0x200].iter().filter(|byte| **byte == 0).count(), 4, "one granule is held");
    assert_eq!(order.next_due(), Some(1200));
    order.advance(1199, &mut ram);
    assert_eq!(ram.bytes[0x43f], 0);
    order.advance(1200, &mut ram);
    assert_eq!((ram.bytes[0x43f], order.next_due()), (1, None));
    assert!(ram.bytes[0x100..0x200].iter().all(|byte| *byte == 1));
    assert_eq!(order.counters().oldest, 200);
}

#[test]
fn one_call_applies_a_portion_and_says_that_there_is_more() {
    let mut order = Order::new(settings(Policy::ReadEarly, Profile::Cx10Unordered, 1));
    let mut ram = Ram::new();
    let ranges: Vec<Range> = (0..600).map(|index| Range { at: Iova(index * 2), len: 1 }).collect();
    let output = NewTxn::device(Kind::Command, Stream::Command, &ranges, Payload::Bytes(&[1; 600]));
    order.issue(&output, &mut ram).unwrap();
    assert!(order.advance(200, &mut ram));
    assert!(!order.advance(200, &mut ram));
    assert!(order.pool().is_empty());
}

/// Memory that counts what is read, and fails from a read on.
struct Failing {
    ram: Ram,
    reads: u32,
    after: u32,
}

impl Memory for Failing {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        self.reads += 1;
        if self.reads > self.after { Err(DmaError::NoBacking { at }) } else { self.ram.read(at, buf) }
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        self.ram.write(at, bytes)
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        self.ram.update_u64(at, op)
    }

    fn signal(&mut self, vector: u32) {
        self.ram.signal(vector);
    }
}

#[test]
fn an_atomic_by_read_and_write_reads_once_and_leaves_nothing_pending_when_that_fails() {
    let mut settings = settings(Policy::Random, Profile::Cx10Unordered, 1);
    settings.set("atomic", "rmw").unwrap();
    let mut order = Order::new(settings);
    let mut memory = Failing { ram: Ram::new(), reads: 0, after: 1 };
    memory.ram.bytes[0x40] = 7;
    let word = [Range { at: Iova(0x40), len: 8 }];
    let add = Payload::Atomic(AtomicOp::FetchAdd { add: 1, boundary: 0 });
    let atomic = NewTxn::device(Kind::Atomic, Stream::Responder(1), &word, add);
    assert_eq!((order.atomic_now(&atomic, &mut memory), memory.reads), (Ok(7), 1));
    let gone = Err(DmaError::NoBacking { at: Iova(0x40) });
    assert_eq!((order.atomic_now(&atomic, &mut memory), memory.reads), (gone, 2));
    assert!(order.pool().is_empty());
    assert_eq!(memory.ram.bytes[0x40], 8, "the first one is complete, the second stored nothing");
    assert!(order.verdict().unwrap().is_legal());
}

/// What memory looks like in the middle of forty delayed stores.
fn half_way(order: &mut Order, start: Tick) -> Vec<u8> {
    let mut ram = Ram::new();
    order.set_now(start);
    for n in 0..40u8 {
        let range = [Range { at: Iova(u64::from(n) * 16), len: 16 }];
        let bytes = [n + 1; 16];
        let key = KeyOrder { relaxed_write: true, ..KeyOrder::default() };
        let store = NewTxn::device(Kind::Write, Stream::Responder(1), &range, Payload::Bytes(&bytes));
        order.issue(&NewTxn { order: key, ..store }, &mut ram).unwrap();
    }
    order.advance(start + 40, &mut ram);
    let seen = ram.bytes[..640].to_vec();
    order.drain(Scope::All, &mut ram);
    seen
}

#[test]
fn each_life_has_the_next_seed_and_decides_as_if_it_were_the_only_one() {
    let range = Settings { seeds: 3, ..settings(Policy::Random, Profile::Cx10Unordered, 7) };
    let mut order = Order::new(range);
    let mut seen = Vec::new();
    for (life, seed) in [7, 8, 9, 7].into_iter().enumerate() {
        order.begin_life(&mut Ram::new());
        seen.push(half_way(&mut order, 1000 * life as Tick));
        let mut alone = Order::new(settings(Policy::Random, Profile::Cx10Unordered, seed));
        assert_eq!(half_way(&mut alone, 0), seen[life], "life {life}, seed {seed}");
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
    assert_eq!(order.lives().iter().map(|life| life.seed).collect::<Vec<_>>(), [7, 8, 9, 7]);
    assert_eq!(order.lives().iter().map(|life| life.issued).collect::<Vec<_>>(), [0, 40, 80, 120]);
    assert_eq!(order.verdict().unwrap().described, [""; 0]);
}

#[test]
fn one_seed_is_that_of_all_lives() {
    let mut order = Order::new(settings(Policy::Random, Profile::Cx10Unordered, 7));
    let first = half_way(&mut order, 0);
    order.begin_life(&mut Ram::new());
    assert_ne!(half_way(&mut order, 1000), first, "the numbers of the stream go on");
    assert!(order.lives().is_empty());
}

#[test]
fn a_write_whose_last_part_comes_before_others_is_counted() {
    let counted = |policy, kind| {
        let mut order = Order::new(settings(policy, Profile::Cx10Unordered, 1));
        let mut ram = Ram::new();
        let range = [Range { at: Iova(0), len: 256 }];
        let payload = if kind == Kind::Read { Payload::Sample } else { Payload::Bytes(&[1; 256]) };
        let key = KeyOrder { relaxed_write: true, ..KeyOrder::default() };
        let txn = NewTxn { order: key, ..NewTxn::device(kind, Stream::Responder(1), &range, payload) };
        order.issue(&txn, &mut ram).unwrap();
        order.advance(1, &mut ram);
        order.drain(Scope::All, &mut ram);
        order.counters().tails
    };
    assert_eq!(counted(Policy::TailFirst, Kind::Write), 1);
    assert_eq!(counted(Policy::TailFirst, Kind::Read), 0);
    assert_eq!(counted(Policy::InOrder, Kind::Write), 0);
    assert_eq!(counted(Policy::ReadEarly, Kind::Write), 0, "held as a whole");
}
