use std::collections::BTreeSet;

use super::super::checker::Verdict;
use super::super::engine::tests::{Dice, Sink, drive};
use super::super::log::Writer;
use super::super::pool::tests::Ram;
use super::super::{Iova, NewTxn, Order, Payload, Policy, Profile, Range, Settings, Stream};
use super::*;

struct Run {
    log: Log,
    ram: Ram,
    verdict: Verdict,
    diverged: u64,
    remaining: u64,
    beyond: u64,
}

fn run(settings: &Settings, plan: Option<Plan>, play: impl Fn(&mut Order, &mut Ram)) -> Run {
    let sink = Sink::default();
    let settings = Settings { check: true, ..settings.clone() };
    let mut order = Order::new(settings.clone());
    order.keep_log(Writer::new(Box::new(sink.clone()), &settings, "test", u64::MAX).unwrap());
    if let Some(plan) = plan {
        order.follow(plan);
    }
    let mut ram = Ram::new();
    play(&mut order, &mut ram);
    let verdict = order.verdict().unwrap().clone();
    let told = |replay: &Replay| (replay.diverged(), replay.remaining(), replay.beyond());
    let (diverged, remaining, beyond) = order.replay().map_or((0, 0, 0), told);
    drop(order);
    let log = Log::read(&sink.0.lock().unwrap()).unwrap();
    Run { log, ram, verdict, diverged, remaining, beyond }
}

fn applied(log: &Log) -> Vec<Recorded> {
    log.applications().unwrap().map(Result::unwrap).collect()
}

fn names(log: &Log) -> Vec<Identity> {
    applied(log).iter().map(|applied| applied.part).filter(|part| !part.control).collect()
}

#[test]
fn a_replay_has_exactly_the_order_and_the_windows_of_the_log() {
    for policy in [Policy::Random, Policy::Lifo, Policy::HoldOne, Policy::TailFirst, Policy::Pct(3), Policy::QpSkew] {
        for profile in [Profile::Cx10Unordered, Profile::PcieUnordered] {
            for seed in 0..4 {
                let mut settings = Settings::with(policy, profile, seed);
                settings.limits.max_transactions = [256, 12][seed as usize % 2];
                let play = |order: &mut Order, ram: &mut Ram| drive(order, ram, 250, seed);
                let first = run(&settings, None, play);
                let again = run(&settings, Some(Plan::Replay(Replay::new(&first.log).unwrap())), play);
                assert_eq!(names(&again.log), names(&first.log), "{policy} {profile:?} {seed}");
                assert_eq!((again.diverged, again.remaining), (0, 0), "{policy} {profile:?} {seed}");
                assert_eq!(again.ram.bytes, first.ram.bytes);
                assert!(again.verdict.is_legal());
                let ages = |log: &Log| applied(log).iter().map(|applied| applied.age).collect::<Vec<_>>();
                assert_eq!(ages(&again.log), ages(&first.log), "{policy} {profile:?} {seed}");
            }
        }
    }
}

#[test]
fn a_replay_of_another_run_goes_on_and_counts_what_differs() {
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
    let first = run(&settings, None, |order, ram| drive(order, ram, 300, 1));
    let other =
        run(&settings, Some(Plan::Replay(Replay::new(&first.log).unwrap())), |order, ram| drive(order, ram, 300, 2));
    assert!(other.diverged > 50, "{}", other.diverged);
    assert!(other.verdict.is_legal(), "{:#?}", other.verdict.described);
    let empty = run(&settings, None, |_, _| {});
    let none =
        run(&settings, Some(Plan::Replay(Replay::new(&empty.log).unwrap())), |order, ram| drive(order, ram, 100, 2));
    assert!(none.verdict.is_legal() && none.diverged == 0 && none.beyond > 50);
}

#[test]
fn a_replay_catches_up_after_something_that_does_not_come() {
    let ranges = [Range { at: Iova(0x40), len: 64 }];
    let play = |skipped: u64| {
        move |order: &mut Order, ram: &mut Ram| {
            for index in 0..40u64 {
                let stream = Stream::Responder(index as u32);
                let data = NewTxn::device(Kind::Write, stream, &ranges, Payload::Bytes(&[1; 64]));
                if index != skipped {
                    order.issue(&data, ram).unwrap();
                }
                order.advance(index * 10, ram);
            }
            while let Some(due) = order.next_due() {
                order.advance(due, ram);
            }
        }
    };
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 3);
    let first = run(&settings, None, play(99));
    let again = run(&settings, Some(Plan::Replay(Replay::new(&first.log).unwrap())), play(10));
    let missing = |name: &Identity| name.stream != Stream::Responder(10);
    let expected: Vec<Identity> = names(&first.log).into_iter().filter(missing).collect();
    let got = names(&again.log);
    assert_eq!(got.len(), expected.len());
    // One of the parts goes out of turn, when patience ends; then the record is followed again.
    assert!((1..=3).contains(&again.diverged), "{}", again.diverged);
}

#[test]
fn without_any_overtake_everything_is_in_order() {
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
    let run = run(&settings, Some(Plan::Only(Only::new(&[]))), |order, ram| drive(order, ram, 300, 1));
    let happened = run.log.overtakes(1000).unwrap();
    assert!(happened.iter().all(|overtake| overtake.later.control), "{happened:#?}");
    assert!(run.verdict.is_legal());
}

#[test]
fn no_overtake_happens_but_those_that_are_allowed() {
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
    let play = |order: &mut Order, ram: &mut Ram| drive(order, ram, 120, 1);
    let first = run(&settings, None, play);
    let all = first.log.overtakes(100_000).unwrap();
    assert!(all.len() > 300, "{}", all.len());
    let pairs = |overtakes: &[Overtake]| -> BTreeSet<(Identity, Identity)> {
        let ordered = overtakes.iter().filter(|overtake| !overtake.later.control);
        ordered.map(|overtake| (overtake.later, overtake.earlier)).collect()
    };
    let mut dice = Dice(4);
    for share in [1, 2, 10, 100] {
        let some: Vec<Overtake> = all.iter().filter(|_| dice.below(share) == 0).copied().collect();
        let run = run(&settings, Some(Plan::Only(Only::new(&some))), play);
        let happened = pairs(&run.log.overtakes(100_000).unwrap());
        assert!(happened.is_subset(&pairs(&some)), "one in {share}");
        assert!(run.verdict.is_legal(), "one in {share}: {:#?}", run.verdict.described);
        assert!(!happened.is_empty() || share == 100, "one in {share}");
    }
}

#[test]
fn control_reads_of_another_number_leave_allowed_overtakes_alone() {
    let ranges = [Range { at: Iova(0x40), len: 4 }];
    let play = |controls: usize| {
        move |order: &mut Order, ram: &mut Ram| {
            for index in 0..40u64 {
                let stream = Stream::Responder(1);
                let data = NewTxn::device(Kind::Write, stream, &ranges, Payload::Bytes(&[1; 4]));
                order.issue(&data, ram).unwrap();
                for _ in 0..controls {
                    let control = NewTxn::device(Kind::Control, Stream::Requester(1), &ranges, Payload::Sample);
                    order.read_now(&control, ram, &mut [0; 4]).unwrap();
                }
                order.advance(index * 20, ram);
            }
            while let Some(due) = order.next_due() {
                order.advance(due, ram);
            }
        }
    };
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
    let pairs = |log: &Log| -> BTreeSet<(Identity, Identity)> {
        let all = log.overtakes(10_000).unwrap();
        let ordered = all.iter().filter(|overtake| !overtake.later.control);
        ordered.map(|overtake| (overtake.later, overtake.earlier)).collect()
    };
    let first = run(&settings, None, play(1));
    let all: Vec<Overtake> = first.log.overtakes(10_000).unwrap();
    for controls in [0, 1, 3] {
        let again = run(&settings, Some(Plan::Only(Only::new(&all))), play(controls));
        let (was, is) = (pairs(&first.log), pairs(&again.log));
        assert!(is.is_subset(&was) && is.len() > was.len() * 3 / 4, "{controls}: {} of {}", is.len(), was.len());
    }
}

#[test]
fn one_allowed_overtake_happens_and_its_window_is_as_wide_as_it_was() {
    let ranges = [[Range { at: Iova(0x40), len: 4 }], [Range { at: Iova(0x80), len: 4 }]];
    let play = |order: &mut Order, ram: &mut Ram| {
        for index in 0..200usize {
            let data = NewTxn::device(Kind::Write, Stream::Responder(1), &ranges[index % 2], Payload::Bytes(&[1; 4]));
            order.issue(&data, ram).unwrap();
            order.advance(index as u64 * 20, ram);
        }
        while let Some(due) = order.next_due() {
            order.advance(due, ram);
        }
    };
    let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
    let first = run(&settings, None, play);
    let all = first.log.overtakes(100_000).unwrap();
    // Neighbours: nothing between them could be in the way.
    let near = |overtake: &&Overtake| overtake.later.seq == overtake.earlier.seq + 1 && overtake.gap > 0;
    let chosen: Vec<Overtake> = all.iter().filter(near).copied().take(10).collect();
    assert_eq!(chosen.len(), 10);
    for overtake in chosen {
        let run = run(&settings, Some(Plan::Only(Only::new(&[overtake]))), play);
        let happened = run.log.overtakes(100).unwrap();
        assert_eq!(happened.iter().filter(|other| other.later == overtake.later).count(), 1);
        let same = happened.iter().find(|other| other.earlier == overtake.earlier).unwrap();
        assert!(same.later == overtake.later && same.gap.abs_diff(overtake.gap) <= 20, "{same} for {overtake}");
    }
}
