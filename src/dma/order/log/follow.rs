//! What is pending at each place of a log, and what was applied there.
//!
//! Refuses what no pool can have done, so that a file that only looks like a log costs no more than one.

use std::collections::{BTreeMap, BTreeSet};

use super::super::overtakes::Identity;
use super::super::{Choice, MAX_PARTS, MAX_TRANSACTIONS, Tick, TxnId};
use super::{Event, LogError, Reader, Why};

/// An application as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What.
    pub part: Identity,
    /// How long after its issue.
    pub age: Tick,
    /// Why.
    pub why: Why,
}

/// A transaction that is not done.
#[derive(Clone, Debug)]
struct Open {
    name: Identity,
    issued: Tick,
    parts: BTreeSet<u16>,
}

/// The transactions of a log that are not done.
#[derive(Clone, Debug, Default)]
pub(in crate::dma::order) struct Follow {
    open: BTreeMap<TxnId, Open>,
    newest: u64,
}

impl Follow {
    /// The next event; answers what was applied, or what is wrong.
    pub(in crate::dma::order) fn event(&mut self, event: &Event<'_>) -> Result<Option<Recorded>, &'static str> {
        match event {
            Event::Issue(issued) => {
                if issued.id.0 <= self.newest {
                    return Err("a transaction is issued twice");
                }
                self.newest = issued.id.0;
                if usize::from(issued.steps) > MAX_PARTS {
                    return Err("a transaction has too many parts");
                }
                // One more than a pool holds is there while it is performed at once.
                if self.open.len() > MAX_TRANSACTIONS {
                    return Err("more is pending than a pool can hold");
                }
                let parts: BTreeSet<u16> = (0..issued.steps).collect();
                if !parts.is_empty() {
                    self.open.insert(issued.id, Open { name: issued.name(), issued: issued.tick, parts });
                }
            }
            Event::Apply { tick, choice, why } => {
                let wrong = "a part is applied that is not pending";
                let open = self.open.get_mut(&choice.txn).ok_or(wrong)?;
                if !open.parts.remove(&choice.part) {
                    return Err(wrong);
                }
                let part = Identity { part: choice.part, ..open.name };
                let age = tick.saturating_sub(open.issued);
                if open.parts.is_empty() {
                    self.open.remove(&choice.txn);
                }
                return Ok(Some(Recorded { part, age, why: *why }));
            }
            Event::Drain { .. } => {}
            Event::Discard { .. } => self.open.clear(),
        }
        Ok(None)
    }

    /// What is pending and was issued before a part.
    pub(in crate::dma::order) fn before(&self, choice: Choice) -> impl Iterator<Item = Identity> {
        self.open.range(..=choice.txn).flat_map(move |(id, open)| {
            let end = if *id == choice.txn { choice.part } else { u16::MAX };
            open.parts.range(..end).map(|part| Identity { part: *part, ..open.name })
        })
    }
}

/// The applications of a log, in their order.
#[derive(Clone, Debug)]
pub struct Applications {
    reader: Reader,
    follow: Follow,
    failed: bool,
}

impl Applications {
    pub(super) fn new(reader: Reader) -> Applications {
        Applications { reader, follow: Follow::default(), failed: false }
    }

    pub(super) fn into_reader(self) -> Reader {
        self.reader
    }
}

impl Iterator for Applications {
    type Item = Result<Recorded, LogError>;

    fn next(&mut self) -> Option<Result<Recorded, LogError>> {
        while !self.failed {
            let event = self.reader.next()?;
            let result = event.and_then(|event| self.follow.event(&event).map_err(|what| self.reader.damaged(what)));
            self.failed = result.is_err();
            if let Some(result) = result.transpose() {
                return Some(result);
            }
        }
        None
    }
}
