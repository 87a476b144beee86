//! Recomputes from a log, live or from a file, whether the order in it was allowed.
//!
//! Written from the contract as a list of duties, not from the rules that the pool follows, and shares no code with them:
//! only the plain types of a transaction. It knows no policy, no delay and no illegal mode. From what was issued it
//! derives what each transaction owes to which earlier one, and at each application it looks whether that was paid.
//!
//! Sources: as for the duties in `docs/ordering.md`: PCI Express Base Specification 2.4.1, IBTA volume 1, 9.5 and
//! 10.8.3.3, and the manual pages of rdma-core.

use std::collections::{BTreeMap, BTreeSet};

use super::knobs::{Ack, AtomicMode, Fabric, Fence2, Keys, RawScope, Rules, Strict};
use super::log::{Event, Issued};
use super::settings::Settings;
use super::{Fence, Kind, Range, Scope, Stream, TxnId, describe};

/// Violations that are described; the rest is only counted.
const DESCRIBED: usize = 16;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Transactions seen.
    pub issued: u64,
    /// Applications seen.
    pub applied: u64,
    /// Drains seen.
    pub drains: u64,
    /// How many were not allowed.
    pub violations: u64,
    /// The first of them.
    pub described: Vec<String>,
}

impl Verdict {
    /// Everything was allowed.
    pub fn is_legal(&self) -> bool {
        self.violations == 0
    }
}

/// A transaction that is not done.
#[derive(Clone, Debug)]
struct Open {
    id: TxnId,
    kind: Kind,
    stream: Stream,
    seq: u64,
    chain: Option<u32>,
    strict_write: bool,
    strict_read: bool,
    fence: Fence,
    keys: [u32; 2],
    node: u8,
    ranges: Vec<Range>,
    /// Which steps are not done.
    steps: BTreeSet<u16>,
    last_step: u16,
    /// What it owes to whom.
    debts: Vec<(TxnId, &'static str)>,
}

/// Follows a log.
#[derive(Clone, Debug)]
pub struct Checker {
    contract: Rules,
    most: usize,
    open: BTreeMap<TxnId, Open>,
    /// How many of each kind are open.
    kinds: [u32; Kind::ALL.len()],
    /// The last number of each stream; control reads are numbered apart.
    seqs: BTreeMap<(Stream, bool), u64>,
    /// An atomic whose first half is done.
    torn: Option<TxnId>,
    newest: TxnId,
    verdict: Verdict,
}

type Duty = (&'static str, &'static [Kind], &'static [Kind], fn(&Open, &Open, &Rules) -> bool);

const DATA: &[Kind] = &[Kind::Write, Kind::Read, Kind::Atomic];
const POSTED: &[Kind] = &[Kind::Write, Kind::Cqe, Kind::Eqe, Kind::Msi, Kind::Command];

fn same_queue(later: &Open, earlier: &Open, _: &Rules) -> bool {
    later.stream == earlier.stream
}

fn same_chain(later: &Open, earlier: &Open, _: &Rules) -> bool {
    matches!((later.chain, earlier.chain), (Some(ours), Some(theirs)) if ours == theirs)
}

fn events(later: &Open, earlier: &Open, contract: &Rules) -> bool {
    same_chain(later, earlier, contract) || same_queue(later, earlier, contract)
}

fn on_pcie(contract: &Rules) -> bool {
    contract.fabric == Fabric::Pcie
}

fn relaxed_atomic_op(atomic: &Open, contract: &Rules) -> bool {
    contract.atomic == AtomicMode::PcieRo && !atomic.strict_write
}

fn shares_bytes(a: &Open, b: &Open) -> bool {
    let spans = |txn: &Open| -> Vec<(u128, u128)> {
        txn.ranges.iter().map(|r| (u128::from(r.at.0), u128::from(r.at.0) + u128::from(r.len))).collect()
    };
    let theirs = spans(b);
    spans(a).iter().any(|(from, to)| theirs.iter().any(|(start, end)| from < end && start < to))
}

/// What a transaction of one of the first kinds owes to an earlier one of the second, in the same memory domain, where
/// the condition holds.
const DUTIES: &[Duty] = &[
    ("a completion comes after the data of its queue", &[Kind::Cqe], DATA, same_queue),
    ("completions of a completion queue keep their order", &[Kind::Cqe], &[Kind::Cqe], same_chain),
    ("an event comes after the completion it announces", &[Kind::Eqe], &[Kind::Cqe], same_chain),
    ("events of an event queue keep their order", &[Kind::Eqe], &[Kind::Eqe], events),
    ("an interrupt comes after the completion it is for", &[Kind::Msi], &[Kind::Cqe], same_chain),
    ("an interrupt comes after the events of its queue", &[Kind::Msi], &[Kind::Eqe], events),
    ("nothing of a queue passes its atomics", DATA, &[Kind::Atomic], same_queue),
    ("an atomic passes no read of its queue", &[Kind::Atomic], &[Kind::Read], same_queue),
    ("an atomic passes no write of its queue", &[Kind::Atomic], &[Kind::Write], |later, earlier, contract| {
        later.stream == earlier.stream && !relaxed_atomic_op(later, contract)
    }),
    ("atomics by read and write exclude each other", &[Kind::Atomic], &[Kind::Atomic], |later, earlier, contract| {
        contract.atomic == AtomicMode::Rmw && shares_bytes(later, earlier)
    }),
    ("a strict write passes no write of its queue", &[Kind::Write], &[Kind::Write], |later, earlier, _| {
        later.strict_write && later.stream == earlier.stream
    }),
    ("a strong read sees earlier writes", &[Kind::Read], &[Kind::Write], |later, earlier, contract| {
        let same = later.stream == earlier.stream;
        later.strict_read
            && match contract.raw_scope {
                RawScope::Function => true,
                RawScope::Qp => same,
                RawScope::Bytes => same && shares_bytes(later, earlier),
            }
    }),
    ("PCIe: a strict write pushes posted writes", &[Kind::Write], POSTED, |later, _, contract| {
        on_pcie(contract) && later.strict_write
    }),
    ("PCIe: a strong read pushes posted writes", &[Kind::Read], POSTED, |later, _, contract| {
        on_pcie(contract) && later.strict_read
    }),
    ("PCIe: an atomic pushes posted writes", &[Kind::Atomic], POSTED, |later, _, contract| {
        on_pcie(contract) && !relaxed_atomic_op(later, contract)
    }),
    (
        "PCIe: what the device writes and reads for itself pushes posted writes",
        &[Kind::Cqe, Kind::Eqe, Kind::Msi, Kind::Command, Kind::Control],
        POSTED,
        |_, _, contract| on_pcie(contract),
    ),
];

/// The same, for transactions with a fence.
const FENCES: &[Duty] = &[
    ("fence 1 waits for everything of its queue", &Kind::ALL, &Kind::ALL, |later, earlier, _| {
        later.fence == Fence::Local && later.stream == earlier.stream
    }),
    ("fence 2 waits for reads and atomics", &Kind::ALL, &[Kind::Read, Kind::Atomic], |later, earlier, _| {
        later.fence == Fence::Read && later.stream == earlier.stream
    }),
    ("fence 2 waits for what reads brought", &Kind::ALL, &[Kind::Write], |later, earlier, _| {
        later.fence == Fence::Read && later.stream == earlier.stream && matches!(later.stream, Stream::Requester(_))
    }),
    ("fence 2 waits for all requests (pr1780)", &Kind::ALL, &Kind::ALL, |later, earlier, contract| {
        later.fence == Fence::Read
            && contract.fence2 == Fence2::Pr1780
            && later.stream == earlier.stream
            && (earlier.kind != Kind::Write || contract.ack == Ack::Visible)
    }),
    ("strong ordering waits for all requests", &Kind::ALL, &Kind::ALL, |later, earlier, contract| {
        later.fence == Fence::Strong
            && later.stream == earlier.stream
            && (earlier.kind != Kind::Write || contract.ack == Ack::Visible)
    }),
];

impl Checker {
    /// A checker for logs made with some settings. Illegal modes and omitted rules among them change nothing: the contract
    /// is what the profile and the knobs say.
    pub fn new(settings: &Settings) -> Checker {
        Checker {
            contract: settings.rules.clone(),
            most: settings.limits.max_transactions as usize,
            open: BTreeMap::new(),
            kinds: [0; Kind::ALL.len()],
            seqs: BTreeMap::new(),
            torn: None,
            newest: TxnId(0),
            verdict: Verdict::default(),
        }
    }

    /// What was found so far.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Looks at the next event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Issue(issued) => self.issue(issued),
            Event::Apply { choice, .. } => self.apply(choice.txn, choice.part),
            Event::Drain { scope, .. } => self.drain(*scope),
            Event::Discard { .. } => {
                self.open.clear();
                self.kinds = [0; Kind::ALL.len()];
                self.torn = None;
            }
        }
    }

    fn violation(&mut self, text: impl FnOnce() -> String) {
        self.verdict.violations += 1;
        if self.verdict.described.len() < DESCRIBED {
            self.verdict.described.push(text());
        }
    }

    /// The transactions of each stream are numbered from 1 again.
    pub fn renumber(&mut self) {
        self.seqs.clear();
    }

    fn issue(&mut self, issued: &Issued<'_>) {
        self.verdict.issued += 1;
        if issued.id <= self.newest {
            self.violation(|| format!("transaction {} is issued twice", issued.id.0));
            return;
        }
        self.newest = issued.id;
        let seq = self.seqs.entry((issued.stream, issued.kind == Kind::Control)).or_insert(0);
        let skipped = issued.seq != *seq + 1;
        *seq = issued.seq;
        if skipped {
            self.violation(|| {
                format!("number {} of {} does not follow the one before", issued.seq, describe::stream(issued.stream))
            });
        }
        let key = issued.order;
        let contract = &self.contract;
        let heeds_writes = !contract.ro_only || contract.strict == Strict::Honour;
        let strict_write = match contract.keys {
            Keys::Strong => true,
            Keys::AsGiven | Keys::StrongReads => heeds_writes && !key.relaxed_write,
        };
        let strict_read = contract.keys != Keys::AsGiven || !key.relaxed_read_after_write;
        let mut txn = Open {
            id: issued.id,
            kind: issued.kind,
            stream: issued.stream,
            seq: issued.seq,
            chain: issued.chain,
            strict_write,
            strict_read,
            fence: issued.fence,
            keys: issued.keys,
            node: issued.node,
            ranges: issued.ranges.to_vec(),
            steps: (0..issued.steps).collect(),
            last_step: issued.steps.saturating_sub(1),
            debts: Vec::new(),
        };
        // Most owe nothing to most: look only at duties that there are at all.
        let may = |duty: &&Duty| duty.1.contains(&txn.kind) && duty.2.iter().any(|kind| self.kinds[*kind as usize] > 0);
        let fences = if txn.fence == Fence::None { &[] } else { FENCES };
        let duties: Vec<&Duty> = DUTIES.iter().chain(fences).filter(may).collect();
        let linked = issued.source.is_some() || issued.after != [None; 2];
        let open = if linked || !duties.is_empty() { Some(&self.open) } else { None };
        for earlier in open.into_iter().flat_map(BTreeMap::values) {
            if let Some(duty) = owed(&txn, earlier, issued, contract, &duties) {
                txn.debts.push((earlier.id, duty));
            }
        }
        if issued.kind == Kind::Atomic && issued.steps > 1 && contract.atomic != AtomicMode::Rmw {
            self.violation(|| format!("{} is an atomic in {} steps", name(&txn), issued.steps));
        }
        if issued.steps > 0 {
            self.kinds[txn.kind as usize] += 1;
            self.open.insert(issued.id, txn);
        }
        // One more than the bound is there while it is performed at once.
        let (open, most) = (self.open.len(), self.most);
        if open > most + 1 {
            self.violation(|| format!("{open} transactions are pending, {most} are allowed"));
        }
    }

    fn apply(&mut self, id: TxnId, step: u16) {
        self.verdict.applied += 1;
        let Some(mut txn) = self.open.remove(&id) else {
            self.violation(|| format!("transaction {} is applied and not pending", id.0));
            return;
        };
        if !txn.steps.remove(&step) {
            self.violation(|| format!("step {step} of {} is applied twice", name(&txn)));
        }
        let unpaid = txn.debts.iter().find_map(|(to, duty)| self.open.get(to).map(|other| (name(other), *duty)));
        if let Some((other, duty)) = unpaid {
            self.violation(|| format!("{} is applied before {other}: {duty}", name(&txn)));
        }
        let owned = matches!(txn.kind, Kind::Cqe | Kind::Eqe | Kind::Command);
        if owned && step == txn.last_step && !txn.steps.is_empty() {
            self.violation(|| format!("the owner of {} is applied before the rest", name(&txn)));
        }
        let ascends = on_pcie(&self.contract) && txn.kind == Kind::Write && txn.strict_write;
        if ascends && txn.steps.first().is_some_and(|first| *first < step) {
            self.violation(|| format!("step {step} of {} is out of address order", name(&txn)));
        }
        self.halves(&txn, step);
        if txn.steps.is_empty() {
            self.kinds[txn.kind as usize] -= 1;
        } else {
            self.open.insert(id, txn);
        }
    }

    /// Nothing atomic comes between the halves of an atomic on the same bytes.
    fn halves(&mut self, txn: &Open, step: u16) {
        if txn.kind != Kind::Atomic {
            return;
        }
        if let Some(torn) = self.torn.filter(|torn| *torn != txn.id) {
            if self.open.get(&torn).is_some_and(|other| shares_bytes(txn, other)) {
                self.violation(|| format!("{} comes between the halves of transaction {}", name(txn), torn.0));
            }
        }
        self.torn = if txn.steps.is_empty() { self.torn.filter(|torn| *torn != txn.id) } else { Some(txn.id) };
        if step > 0 && !txn.steps.is_empty() {
            self.violation(|| format!("{} is written before it is read", name(txn)));
        }
    }

    fn drain(&mut self, scope: Scope) {
        self.verdict.drains += 1;
        let left = self.open.values().find(|txn| match scope {
            Scope::All => true,
            Scope::Stream(stream) => txn.stream == stream,
            Scope::Qp(number) => [Stream::Requester(number), Stream::Responder(number)].contains(&txn.stream),
            Scope::Cq(number) => txn.chain == Some(number) || txn.stream == Stream::Cq(number),
            Scope::Eq(number) => txn.stream == Stream::Eq(number),
            Scope::Key(index) => index > 0 && (txn.keys[0] == index || txn.keys[1] == index),
            Scope::Range(at, len) => {
                let (from, to) = (u128::from(at.0), u128::from(at.0) + u128::from(len));
                txn.ranges.iter().any(|range| {
                    let start = u128::from(range.at.0);
                    start < to && from < start + u128::from(range.len)
                })
            }
        });
        if let Some(left) = left.map(name) {
            self.violation(|| format!("{left} is left by a drain of {scope:?}"));
        }
    }
}

fn owed(later: &Open, earlier: &Open, issued: &Issued<'_>, contract: &Rules, duties: &[&Duty]) -> Option<&'static str> {
    if issued.source == Some(earlier.id) {
        return Some("a copy stores what was read");
    }
    for told in issued.after.iter().flatten() {
        if told.stream == earlier.stream && told.seq >= earlier.seq && earlier.kind != Kind::Control {
            return Some("it was told to wait");
        }
    }
    if later.node != earlier.node {
        return None;
    }
    let applies = |duty: &&&Duty| duty.2.contains(&earlier.kind) && (duty.3)(later, earlier, contract);
    duties.iter().find(applies).map(|duty| duty.0)
}

fn name(txn: &Open) -> String {
    describe::access(txn.kind, txn.stream, txn.seq, txn.chain, txn.keys, &txn.ranges)
}
