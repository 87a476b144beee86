//! The engine where it follows a recorded order, or the overtakes that were chosen of one.

use super::super::overtakes::Identity;
use super::super::replay::{Only, Plan, Turn, name_of};
use super::*;

impl Order {
    pub(super) fn next_turn(&self, only: &Only) -> Option<Tick> {
        let turns = self.pool.enabled().into_iter().map(|choice| self.turn(only, choice));
        let ticks = turns.filter_map(|turn| match turn {
            Turn::Now => Some(self.now),
            Turn::Later(tick) => Some(tick),
            Turn::Behind => None,
        });
        ticks.min()
    }

    pub(super) fn turn(&self, only: &Only, choice: Choice) -> Turn {
        only.judge(&self.pool, choice, self.issued_at(choice), self.now)
    }

    /// Applies the next part of a given order, if it has one whose time has come.
    pub(super) fn apply_given(&mut self, memory: &mut dyn Memory) -> bool {
        let choice = match &self.plan {
            None => None,
            Some(Plan::Replay(replay)) => {
                let due = replay.due(&self.pool, |choice| self.issued_at(choice));
                due.filter(|(tick, _)| *tick <= self.now).map(|(_, choice)| choice)
            }
            Some(Plan::Only(only)) => {
                let mut enabled = self.pool.enabled().into_iter();
                enabled.find(|choice| self.turn(only, *choice) == Turn::Now)
            }
        };
        if let Some(choice) = choice {
            self.apply(choice, Why::Recorded, memory);
        }
        choice.is_some()
    }

    /// Something is applied now whatever the order that is given says; what comes before it there goes first.
    pub(super) fn catch_up(&mut self, part: Identity, memory: &mut dyn Memory) {
        let Some(Plan::Replay(replay)) = &self.plan else { return };
        for choice in replay.before(&self.pool, part) {
            if self.pool.is_enabled(choice) {
                self.apply(choice, Why::Recorded, memory);
            }
        }
    }

    /// What is performed at once: what comes before it in the order that is given goes first.
    pub(super) fn give_way(&mut self, id: TxnId, access: &Access, memory: &mut dyn Memory) {
        let control = access.kind == Kind::Control;
        let part = Identity { stream: access.stream, control, seq: access.seq, part: 0 };
        match &self.plan {
            None => {}
            Some(Plan::Replay(_)) => self.catch_up(part, memory),
            // No order has control reads: how many there are is different in each run.
            Some(Plan::Only(_)) if control => {}
            Some(Plan::Only(_)) => {
                for id in self.not_to_be_overtaken(&[part], id) {
                    self.finish(id, Why::Needed, memory);
                }
            }
        }
    }

    /// What was issued before a transaction whose parts are applied now, and may not be overtaken by them or by what then
    /// goes first itself.
    pub(super) fn not_to_be_overtaken(&self, parts: &[Identity], before: TxnId) -> Vec<TxnId> {
        let Some(Plan::Only(only)) = &self.plan else { return Vec::new() };
        let mut ahead = parts.to_vec();
        let mut first = Vec::new();
        let older: Vec<_> = self.pool.older(before).collect();
        for view in older.into_iter().rev() {
            let open = (0..view.parts()).filter(|part| !view.is_applied(*part));
            let names: Vec<Identity> =
                open.filter_map(|part| name_of(&self.pool, Choice { txn: view.id(), part })).collect();
            if ahead.iter().any(|later| names.iter().any(|earlier| !only.allows(*later, *earlier))) {
                ahead.extend(names);
                first.push(view.id());
            }
        }
        first.reverse();
        first
    }

    /// A part of that name is applied.
    pub(super) fn follow_up(&mut self, name: Identity) {
        match &mut self.plan {
            None => {}
            Some(Plan::Replay(replay)) => replay.applied(&self.pool, name),
            Some(Plan::Only(only)) => only.applied(name, self.now),
        }
    }
}
