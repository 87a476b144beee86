//! Orders that are given instead of chosen: the one of a log, or one that is in order but for some overtakes.
//!
//! Parts are found by their names (stream, number there, place), because the numbers of the pool differ from run to run
//! as soon as the guest's processors do. A recorded part waits until the one recorded before it is applied and until it
//! is as old as it was then, so that the same windows open; but never longer than [`PATIENCE`], after which it goes on
//! out of turn and the run is counted as divergent. Whatever is applied is enabled in the pool: a replay cannot break
//! a rule that holds.
//!
//! Control reads happen when the device makes them and are no part of an order that is given.

use std::collections::{BTreeMap, BTreeSet};

use super::knobs::Limits;
use super::log::{Log, Why};
use super::overtakes::{Identity, Overtake, Recorded};
use super::pool::Pool;
use super::{Choice, Kind, Tick};

/// Longest wait for what is recorded and does not come, in ticks.
pub const PATIENCE: Tick = Limits::HARD_MAX_DELAY as Tick;

/// How far ahead in the record a part is looked for that is applied before its turn.
const AHEAD: usize = 4096;

/// An order that is given.
#[derive(Clone, Debug)]
pub enum Plan {
    /// That of a log.
    Replay(Replay),
    /// That of issue, but for some overtakes.
    Only(Only),
}

/// The order of a log.
#[derive(Clone, Debug)]
pub struct Replay {
    record: Vec<Recorded>,
    next: usize,
    early: BTreeSet<Identity>,
    diverged: u64,
}

/// The name of a part.
pub(super) fn name_of(pool: &Pool, choice: Choice) -> Option<Identity> {
    let view = pool.get(choice.txn)?;
    let access = view.access();
    let control = access.kind == Kind::Control;
    Some(Identity { stream: access.stream, control, seq: access.seq, part: choice.part })
}

fn find(pool: &Pool, name: Identity) -> Option<Choice> {
    let view = pool.find(name.stream, name.control, name.seq)?;
    (!view.is_applied(name.part)).then_some(Choice { txn: view.id(), part: name.part })
}

impl Replay {
    /// The order of a log.
    pub fn new(log: &Log) -> Replay {
        let record = log.applications().into_iter().filter(|applied| !applied.part.control).collect();
        Replay { record, next: 0, early: BTreeSet::new(), diverged: 0 }
    }

    /// Parts that were applied out of turn: what was recorded before them did not come, or not in time.
    pub fn diverged(&self) -> u64 {
        self.diverged
    }

    /// Recorded applications that are still to come.
    pub fn remaining(&self) -> usize {
        self.record.len() - self.next
    }

    fn skip_early(&mut self) {
        while let Some(head) = self.record.get(self.next) {
            if !self.early.remove(&head.part) {
                return;
            }
            self.next += 1;
        }
    }

    /// What is to be applied next and when, if it is there and can be.
    pub(super) fn due(&self, pool: &Pool, issued: impl Fn(Choice) -> Tick) -> Option<(Tick, Choice)> {
        let head = self.record.get(self.next)?;
        let choice = find(pool, head.part).filter(|choice| pool.is_enabled(*choice))?;
        Some((issued(choice).saturating_add(head.age.min(PATIENCE)), choice))
    }

    /// What is recorded before a part that will be applied now whatever the record says, and can be applied: the first.
    pub(super) fn before(&self, pool: &Pool, part: Identity) -> Option<Choice> {
        let ahead = &self.record[self.next..(self.next + AHEAD).min(self.record.len())];
        let place = ahead.iter().position(|recorded| recorded.part == part)?;
        let mut earlier = ahead[..place].iter().filter(|recorded| !self.early.contains(&recorded.part));
        earlier.find_map(|recorded| find(pool, recorded.part).filter(|choice| pool.is_enabled(*choice)))
    }

    /// A part is applied.
    pub(super) fn applied(&mut self, pool: &Pool, part: Identity) {
        if part.control {
            return;
        }
        if self.record.get(self.next).is_some_and(|head| head.part == part) {
            self.next += 1;
            self.skip_early();
            return;
        }
        self.diverged += 1;
        let ahead = &self.record[self.next..(self.next + AHEAD).min(self.record.len())];
        let Some(place) = ahead.iter().position(|recorded| recorded.part == part) else { return };
        self.early.insert(part);
        // Give up on those before it that are not even pending, unless what was performed at once came early.
        if ahead[place].why != Why::AtOnce {
            while self.record.get(self.next).is_some_and(|head| find(pool, head.part).is_none()) {
                let skipped = self.record[self.next].part;
                self.early.remove(&skipped);
                self.next += 1;
                if skipped == part {
                    break;
                }
            }
        }
        self.skip_early();
    }
}

/// The order of issue, but for some overtakes.
#[derive(Clone, Debug)]
pub struct Only {
    /// For what may be overtaken: by what, and how long it stays behind.
    behind: BTreeMap<Identity, BTreeMap<Identity, Tick>>,
    /// Those that overtake, with the time of their application.
    ahead: BTreeMap<Identity, Option<Tick>>,
}

/// Whether a part may be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// Not before then, unless what is to overtake it comes.
    Later(Tick),
    /// Not before something older.
    Behind,
}

impl Only {
    /// The order of issue with these overtakes. Those of control reads are nobody's choice: nothing waits for them.
    pub fn new(overtakes: &[Overtake]) -> Only {
        let mut only = Only { behind: BTreeMap::new(), ahead: BTreeMap::new() };
        for overtake in overtakes.iter().filter(|overtake| !overtake.later.control) {
            only.behind.entry(overtake.earlier).or_default().insert(overtake.later, overtake.gap.min(PATIENCE));
            only.ahead.insert(overtake.later, None);
        }
        only
    }

    /// Whether a part may be applied before another that was issued earlier.
    pub(super) fn allows(&self, later: Identity, earlier: Identity) -> bool {
        self.behind.get(&earlier).is_some_and(|ahead| ahead.contains_key(&later))
    }

    /// When a part stays behind for others: until the last of them has been ahead for long enough.
    pub(super) fn turn(&self, part: Identity, issued: Tick, now: Tick) -> Turn {
        let Some(ahead) = self.behind.get(&part) else { return Turn::Now };
        let until = ahead.iter().map(|(later, gap)| match self.ahead.get(later).copied().flatten() {
            Some(applied) => applied.saturating_add(*gap),
            None => issued.saturating_add(PATIENCE),
        });
        let until = until.max().unwrap_or(issued).min(issued.saturating_add(PATIENCE));
        if until <= now { Turn::Now } else { Turn::Later(until) }
    }

    /// Whether a pending part may be applied, with a look at everything older.
    pub(super) fn judge(&self, pool: &Pool, choice: Choice, issued: Tick, now: Tick) -> Turn {
        let Some(part) = name_of(pool, choice) else { return Turn::Behind };
        let mut older = pool
            .older(choice.txn)
            .flat_map(|view| (0..view.parts()).map(move |part| (view.id(), part, view.is_applied(part))));
        let own = (0..choice.part).map(|part| Choice { txn: choice.txn, part });
        let open = |other: Choice| name_of(pool, other).is_some_and(|earlier| !self.allows(part, earlier));
        let blocked = older.any(|(txn, part, applied)| !applied && open(Choice { txn, part }))
            || own.filter(|other| pool.get(other.txn).is_some_and(|view| !view.is_applied(other.part))).any(open);
        if blocked { Turn::Behind } else { self.turn(part, issued, now) }
    }

    /// A part is applied.
    pub(super) fn applied(&mut self, part: Identity, now: Tick) {
        if let Some(when) = self.ahead.get_mut(&part) {
            *when = Some(now);
        }
    }
}

#[cfg(test)]
mod tests;
