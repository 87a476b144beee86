//! Orders that are given instead of chosen: the one of a log, or one that is in order but for some overtakes.
//!
//! Parts are found by their names (stream, number there, place), because the numbers of the pool differ from run to run
//! as soon as the guest's processors do. A recorded part waits until the one recorded before it is applied and until it
//! is as old as it was then, so that the same windows open; but never longer than [`PATIENCE`], after which it goes on
//! out of turn and the run is counted as divergent. Whatever is applied is enabled in the pool: a replay cannot break
//! a rule that holds.
//!
//! Control reads happen when the device makes them and are no part of an order that is given. What comes after the end of
//! the record is ordered by the policy that made it.

use std::collections::{BTreeMap, VecDeque};

use super::knobs::Limits;
use super::log::{Applications, Ending, Log, LogError, Recorded, Why};
use super::overtakes::{Identity, Overtake};
use super::pool::{Pool, View};
use super::{Choice, Kind, Tick};

/// Longest wait for what is recorded and does not come, in ticks.
pub const PATIENCE: Tick = Limits::HARD_MAX_DELAY as Tick;

/// How far ahead in the record a part is looked for that is applied before its turn, and so much of it is in memory.
const AHEAD: usize = 4096;

/// An order that is given.
#[derive(Clone, Debug)]
pub enum Plan {
    /// That of a log.
    Replay(Replay),
    /// That of issue, but for some overtakes.
    Only(Only),
}

impl Plan {
    /// Nothing more is given; the policy decides about the rest.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Plan::Replay(replay) if replay.window.is_empty())
    }
}

/// The order of a log. Of the log only what comes next is in memory.
#[derive(Clone, Debug)]
pub struct Replay {
    record: Box<Applications>,
    /// What comes next, with whether it is already applied.
    window: VecDeque<(Recorded, bool)>,
    /// The number in the record of the first of those.
    first: u64,
    /// The numbers of those that are not applied.
    places: BTreeMap<Identity, u64>,
    parts: u64,
    ending: Ending,
    diverged: u64,
    beyond: u64,
    broken: Option<String>,
}

/// The name of a part.
pub(super) fn name_of(pool: &Pool, choice: Choice) -> Option<Identity> {
    pool.get(choice.txn).map(|view| name_in(&view, choice.part))
}

fn name_in(view: &View<'_>, part: u16) -> Identity {
    let access = view.access();
    Identity { stream: access.stream, control: access.kind == Kind::Control, seq: access.seq, part }
}

fn find(pool: &Pool, name: Identity) -> Option<Choice> {
    let view = pool.find(name.stream, name.control, name.seq)?;
    (!view.is_applied(name.part)).then_some(Choice { txn: view.id(), part: name.part })
}

impl Replay {
    /// The order of a log.
    pub fn new(log: &Log) -> Result<Replay, LogError> {
        let mut replay = Replay {
            record: Box::new(log.applications()?),
            window: VecDeque::with_capacity(AHEAD),
            first: 0,
            places: BTreeMap::new(),
            parts: log.parts,
            ending: log.ending,
            diverged: 0,
            beyond: 0,
            broken: None,
        };
        replay.refill();
        Ok(replay)
    }

    /// Parts that were applied out of turn: what was recorded before them did not come, or not in time.
    pub fn diverged(&self) -> u64 {
        self.diverged
    }

    /// Recorded applications that are still to come.
    pub fn remaining(&self) -> u64 {
        let early = self.window.iter().filter(|(_, early)| *early).count() as u64;
        self.parts.saturating_sub(self.first + early)
    }

    /// Parts that were applied after the record's end.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Why the record is less than its run: its log was cut, or could not be read to its end.
    pub fn cut(&self) -> Option<&str> {
        let limit = (self.ending == Ending::Limit).then_some("the log was cut at its limit of bytes");
        self.broken.as_deref().or(limit)
    }

    fn refill(&mut self) {
        while self.window.len() < AHEAD && self.broken.is_none() {
            match self.record.next() {
                None => return,
                Some(Ok(recorded)) if recorded.part.control => {}
                Some(Ok(recorded)) => {
                    self.places.insert(recorded.part, self.first + self.window.len() as u64);
                    self.window.push_back((recorded, false));
                }
                Some(Err(error)) => {
                    // It was whole when it was opened.
                    log::error!(target: "cx10::order", "the recorded order ends here: {error}");
                    self.broken = Some(error.to_string());
                }
            }
        }
    }

    /// Takes the first of the window away, and all behind it that are already applied.
    fn pass(&mut self) {
        loop {
            if let Some((recorded, _)) = self.window.pop_front() {
                if self.places.get(&recorded.part) == Some(&self.first) {
                    self.places.remove(&recorded.part);
                }
                self.first += 1;
            }
            self.refill();
            if self.window.front().is_none_or(|(_, early)| !early) {
                return;
            }
        }
    }

    /// What is to be applied next and when, if it is there and can be.
    pub(super) fn due(&self, pool: &Pool, issued: impl Fn(Choice) -> Tick) -> Option<(Tick, Choice)> {
        let (head, _) = self.window.front()?;
        let choice = find(pool, head.part).filter(|choice| pool.is_enabled(*choice))?;
        Some((issued(choice).saturating_add(head.age.min(PATIENCE)), choice))
    }

    /// What is pending and recorded before a part that will be applied now whatever the record says, in recorded order.
    pub(super) fn before(&self, pool: &Pool, part: Identity) -> Vec<Choice> {
        // What is pending is bounded; the record ahead of a part that came much too early is long.
        let Some(place) = self.places.get(&part).filter(|place| **place > self.first) else { return Vec::new() };
        let mut earlier = Vec::new();
        for view in pool.pending() {
            let name = name_in(&view, 0);
            for part in (0..view.parts()).filter(|part| !view.is_applied(*part)) {
                let number = self.places.get(&Identity { part, ..name }).filter(|number| *number < place);
                earlier.extend(number.map(|number| (*number, Choice { txn: view.id(), part })));
            }
        }
        earlier.sort_unstable_by_key(|(number, _)| *number);
        earlier.into_iter().map(|(_, choice)| choice).collect()
    }

    /// A part is applied.
    pub(super) fn applied(&mut self, pool: &Pool, part: Identity) {
        if part.control {
            return;
        }
        let Some((head, _)) = self.window.front() else {
            self.beyond += 1;
            return;
        };
        if head.part == part {
            return self.pass();
        }
        self.diverged += 1;
        let Some(number) = self.places.remove(&part) else { return };
        // Less than the window is long.
        let place = (number - self.first) as usize;
        self.window[place].1 = true;
        // Give up on those before it that are not even pending, unless what was performed at once came early.
        if self.window[place].0.why != Why::AtOnce {
            while self.first <= number && self.window.front().is_some_and(|(head, _)| find(pool, head.part).is_none()) {
                self.pass();
            }
        }
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
