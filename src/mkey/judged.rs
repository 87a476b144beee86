//! What is reported about keys that were granted or refused.

use std::collections::{BTreeSet, VecDeque};

use super::context::{Defect, KeyContext};
use super::fingerprint::{driver_path, work_request_path};
use super::policy::{Grant, Origin};
use crate::cmdif::error::{Syndrome, meaning};
use crate::config::KeyKind;
use crate::dma::KeyOrder;
use crate::trace::KeyRefusal;
use crate::trace::report::Keys;

/// A judged key request, on its way to the trace.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Kind of key.
    pub kind: KeyKind,
    /// How it was requested.
    pub origin: Origin,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a key request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The key exists.
    Created {
        /// Its index.
        index: u32,
        /// What was granted.
        grant: Grant,
        /// The ordering attributes that it has.
        order: KeyOrder,
    },
    /// A UMR made the key usable, or changed the ordering of one that is.
    Enabled {
        /// Its index.
        index: u32,
        /// Whether it was never usable before.
        first: bool,
        /// The ordering attributes that it has now.
        order: KeyOrder,
        /// Whether its write ordering has been counted so before.
        counted: bool,
    },
    /// The key was refused.
    Refused {
        /// By which check.
        syndrome: Syndrome,
        /// Everything about it.
        refusal: Box<KeyRefusal>,
    },
}

/// The report on a refused key.
pub fn refused(
    context: &KeyContext,
    kind: KeyKind,
    uid: u16,
    origin: Origin,
    defect: Defect,
    ordering: bool,
) -> Judged {
    let driver_path = match origin {
        Origin::CreateMkey => driver_path(context, uid),
        Origin::UmrEnable | Origin::UmrModify => work_request_path(context, kind, uid),
    };
    let refusal = KeyRefusal {
        kind: kind.name().to_string(),
        via: origin.name().to_string(),
        ordering,
        field: defect.field.to_string(),
        value: defect.value,
        reason: meaning(defect.syndrome.0).unwrap_or_default().to_string(),
        syndrome: defect.syndrome.0,
        access_mode: context.mode.to_string(),
        uid,
        pd: context.pd,
        start_addr: context.start_addr,
        length: if context.length64 { 0 } else { context.len },
        access: context.rights.names(),
        flags: context.flags(),
        driver_path: driver_path.to_string(),
        count: 1,
    };
    Judged { kind, origin, outcome: Outcome::Refused { syndrome: defect.syndrome, refusal: Box::new(refusal) } }
}

/// Judgements that wait for the trace are bounded; the counters of the report never lose one.
const MAX_WAITING: usize = 4096;

/// Judgements on their way to the trace, and which refusals the log has named.
#[derive(Debug, Default)]
pub struct KeyLog {
    waiting: VecDeque<Judged>,
    named: BTreeSet<(KeyKind, Syndrome)>,
    withdrawn_named: bool,
}

impl KeyLog {
    /// Counts a judgement, logs the first refusal of a kind by a check, and keeps it for the trace.
    pub fn note(&mut self, keys: &mut Keys, judged: Judged) {
        let kind = judged.kind.name();
        match &judged.outcome {
            Outcome::Created { grant, .. } => {
                keys.note_created(kind, (!grant.undecided).then_some(grant.relaxed));
                if grant.withdrawn_encoding && !std::mem::replace(&mut self.withdrawn_named, true) {
                    log::warn!(target: "cx10::mkey", "{kind} key with order_read_after_write = 2, a withdrawn encoding");
                }
            }
            Outcome::Enabled { first, order, counted, .. } => {
                keys.note_enabled(kind, *first, (!counted).then_some(order.relaxed_write));
            }
            Outcome::Refused { syndrome, refusal } => {
                keys.note_refused((**refusal).clone());
                if self.named.insert((judged.kind, *syndrome)) {
                    log_refusal(refusal);
                }
            }
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(judged);
        }
    }

    /// The next judgement for the trace.
    pub fn take(&mut self) -> Option<Judged> {
        self.waiting.pop_front()
    }
}

fn log_refusal(refusal: &KeyRefusal) {
    let KeyRefusal { kind, via, field, value, reason, access_mode, uid, pd, length, access, driver_path, .. } = refusal;
    let from = if driver_path.is_empty() { "an unknown place" } else { driver_path };
    log::warn!(
        target: "cx10::mkey",
        "{via}: {kind} key refused: {field} = {value:#x} ({reason}); mode {access_mode}, uid {uid:#x}, pd {pd:#x}, \
         length {length:#x}, access [{access}], from {from}. Said once for this kind."
    );
}
