//! The may-pass relation: which earlier transaction a later one must wait for, and why.
//!
//! Two parts, and a pair is ordered if either says so. The fabric's part is function-wide and only there for PCI Express:
//! a posted write passes no posted write unless it is relaxed, a read pushes the writes before it. The device's part is
//! the same on every fabric: what the network adapter owes its software, and keeps by waiting.
//!
//! The attribute of the *passing* transaction decides: a strict write after relaxed data is a release, a relaxed write
//! after strict data is not held back.
//!
//! Sources: PCI Express Base Specification 2.4.1, table "Ordering Rules Summary"; IBTA volume 1, 9.5, 10.8.3.3; rdma-core
//! `ibv_reg_mr(3)` with pull request 1780; kernel `Documentation/driver-api/device-io.rst` for interrupts.

use super::knobs::{Ack, AtomicMode, Fabric, Fence2, RawScope, Rules, UnknownName, names};
use super::{Fence, Horizon, Kind, Stream};

names! {
    /// Why a transaction waits.
    Rule {
        /// PCIe: a strict write passes no posted write.
        FabricWrite = "fabric-write",
        /// PCIe: a completion entry is a strict write.
        FabricCqe = "fabric-cqe",
        /// PCIe: an event entry is a strict write.
        FabricEqe = "fabric-eqe",
        /// PCIe: an interrupt message is a strict write.
        FabricMsi = "fabric-msi",
        /// PCIe: command output is a strict write.
        FabricCommand = "fabric-command",
        /// PCIe: a strong read passes no posted write.
        FabricRead = "fabric-read",
        /// PCIe: a control read passes no posted write.
        FabricControl = "fabric-control",
        /// PCIe: an atomic passes no posted write.
        FabricAtomic = "fabric-atomic",
        /// A strict write waits for earlier writes of its stream.
        WriteWrite = "write-write",
        /// A write waits for earlier atomics of its stream.
        WriteAtomic = "write-atomic",
        /// A strong read waits for earlier writes in its scope.
        ReadWrite = "read-write",
        /// A read waits for earlier atomics of its stream.
        ReadAtomic = "read-atomic",
        /// An atomic waits for earlier writes of its stream.
        AtomicWrite = "atomic-write",
        /// An atomic waits for earlier reads of its stream.
        AtomicRead = "atomic-read",
        /// An atomic waits for earlier atomics of its stream.
        AtomicAtomic = "atomic-atomic",
        /// An atomic by read and write waits for those of the same bytes, whoever's they are.
        AtomicBytes = "atomic-bytes",
        /// A completion waits for earlier writes of its stream.
        CqeWrite = "cqe-write",
        /// A completion waits for earlier reads of its stream: the buffer may be reused.
        CqeRead = "cqe-read",
        /// A completion waits for earlier atomics of its stream.
        CqeAtomic = "cqe-atomic",
        /// A completion waits for earlier ones of its completion queue.
        CqeCqe = "cqe-cqe",
        /// An event waits for the completions that it announces.
        EqeCqe = "eqe-cqe",
        /// An event waits for earlier ones of its event queue.
        EqeEqe = "eqe-eqe",
        /// An interrupt waits for the completions that its event announces.
        MsiCqe = "msi-cqe",
        /// An interrupt waits for the events of its queue.
        MsiEqe = "msi-eqe",
        /// Fence 1.
        FenceLocal = "fence-local",
        /// Fences 2 and 4.
        FenceRead = "fence-read",
        /// Fence 3.
        FenceStrong = "fence-strong",
        /// What a completion was told to wait for.
        AfterCqe = "after-cqe",
        /// What an event was told to wait for.
        AfterEqe = "after-eqe",
        /// What an interrupt was told to wait for.
        AfterMsi = "after-msi",
        /// What any other transaction was told to wait for.
        After = "after",
        /// The parts of a strict write on PCIe become visible in address order.
        Ascending = "ascending",
        /// The owner or status byte is last.
        OwnerLast = "owner-last",
        /// Nothing comes between the halves of an atomic.
        Indivisible = "indivisible",
    }
}

/// A set of rules that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omit(u64);

impl Omit {
    /// Every rule is kept.
    pub const NOTHING: Omit = Omit(0);

    /// Leaves one more out.
    pub const fn and(self, rule: Rule) -> Omit {
        Omit(self.0 | 1 << rule as u32)
    }

    /// Leaves out what either does.
    pub const fn union(self, other: Omit) -> Omit {
        Omit(self.0 | other.0)
    }

    /// Whether a rule is left out.
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

/// What the rules look at in a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// What it is.
    pub kind: Kind,
    /// For whom.
    pub stream: Stream,
    /// Its number in the stream.
    pub seq: u64,
    /// The completion queue that it belongs to or announces.
    pub chain: Option<u32>,
    /// As a write or an atomic it may pass earlier writes.
    pub relaxed_write: bool,
    /// As a read it may pass earlier writes.
    pub relaxed_read: bool,
    /// Its fence.
    pub fence: Fence,
    /// What it was told to wait for.
    pub after: [Option<Horizon>; 2],
    /// Memory domain.
    pub node: u8,
}

impl Horizon {
    /// Whether a transaction was issued before the point. Control reads are numbered apart and never are.
    pub fn covers(&self, earlier: &Access) -> bool {
        self.stream == earlier.stream && earlier.seq <= self.seq && earlier.kind != Kind::Control
    }
}

/// Which rule makes `later` wait for `earlier`, if any does. `same_bytes` tells whether they touch the same bytes; it is
/// only asked where that matters.
pub fn must_wait(later: &Access, earlier: &Access, rules: &Rules, same_bytes: impl FnOnce() -> bool) -> Option<Rule> {
    let kept = |rule: Rule| (!rules.omit.has(rule)).then_some(rule);
    let told = later.after.iter().flatten().any(|told| told.covers(earlier));
    if told {
        if let Some(rule) = kept(after(later.kind)) {
            return Some(rule);
        }
    }
    if later.node != earlier.node {
        return None;
    }
    fabric(later, earlier, rules)
        .and_then(kept)
        .or_else(|| fence(later, earlier, rules).and_then(kept))
        .or_else(|| device(later, earlier, rules, same_bytes).and_then(kept))
}

fn after(kind: Kind) -> Rule {
    match kind {
        Kind::Cqe => Rule::AfterCqe,
        Kind::Eqe => Rule::AfterEqe,
        Kind::Msi => Rule::AfterMsi,
        _ => Rule::After,
    }
}

/// The fabric's part: the posted column of the PCIe table. Nothing waits for a read or an atomic there.
fn fabric(later: &Access, earlier: &Access, rules: &Rules) -> Option<Rule> {
    let posted = matches!(earlier.kind, Kind::Write | Kind::Cqe | Kind::Eqe | Kind::Msi | Kind::Command);
    if rules.fabric == Fabric::None || !posted {
        return None;
    }
    match later.kind {
        Kind::Write => (!later.relaxed_write).then_some(Rule::FabricWrite),
        Kind::Cqe => Some(Rule::FabricCqe),
        Kind::Eqe => Some(Rule::FabricEqe),
        Kind::Msi => Some(Rule::FabricMsi),
        Kind::Command => Some(Rule::FabricCommand),
        Kind::Read => (!later.relaxed_read).then_some(Rule::FabricRead),
        Kind::Control => Some(Rule::FabricControl),
        Kind::Atomic => (!passes_writes(later, rules)).then_some(Rule::FabricAtomic),
    }
}

/// An atomic that passes writes: by PCIe AtomicOp through a relaxed key.
fn passes_writes(atomic: &Access, rules: &Rules) -> bool {
    rules.atomic == AtomicMode::PcieRo && atomic.relaxed_write
}

/// The device's part.
fn device(later: &Access, earlier: &Access, rules: &Rules, same_bytes: impl FnOnce() -> bool) -> Option<Rule> {
    use Kind::{Atomic, Cqe, Eqe, Msi, Read, Write};
    let stream = later.stream == earlier.stream;
    let chain = later.chain.is_some() && later.chain == earlier.chain;
    match (later.kind, earlier.kind) {
        (Write, Write) => (stream && !later.relaxed_write).then_some(Rule::WriteWrite),
        (Write, Atomic) => stream.then_some(Rule::WriteAtomic),
        (Read, Write) if !later.relaxed_read => match rules.raw_scope {
            RawScope::Qp => stream,
            RawScope::Bytes => stream && same_bytes(),
            RawScope::Function => true,
        }
        .then_some(Rule::ReadWrite),
        (Read, Atomic) => stream.then_some(Rule::ReadAtomic),
        (Atomic, Write) => (stream && !passes_writes(later, rules)).then_some(Rule::AtomicWrite),
        (Atomic, Read) => stream.then_some(Rule::AtomicRead),
        (Atomic, Atomic) if stream => Some(Rule::AtomicAtomic),
        (Atomic, Atomic) => (rules.atomic == AtomicMode::Rmw && same_bytes()).then_some(Rule::AtomicBytes),
        (Cqe, Write) => stream.then_some(Rule::CqeWrite),
        (Cqe, Read) => stream.then_some(Rule::CqeRead),
        (Cqe, Atomic) => stream.then_some(Rule::CqeAtomic),
        (Cqe, Cqe) => chain.then_some(Rule::CqeCqe),
        (Eqe, Cqe) => chain.then_some(Rule::EqeCqe),
        (Eqe, Eqe) => (stream || chain).then_some(Rule::EqeEqe),
        (Msi, Cqe) => chain.then_some(Rule::MsiCqe),
        (Msi, Eqe) => (stream || chain).then_some(Rule::MsiEqe),
        _ => None,
    }
}

/// The fence of the later one's work queue entry.
fn fence(later: &Access, earlier: &Access, rules: &Rules) -> Option<Rule> {
    if later.stream != earlier.stream {
        return None;
    }
    let answered = matches!(earlier.kind, Kind::Read | Kind::Atomic);
    let written = earlier.kind == Kind::Write;
    // A write is complete for its requester when it is acknowledged.
    let complete = !written || rules.ack == Ack::Visible;
    let rule = match later.fence {
        Fence::None => None,
        Fence::Local => Some(Rule::FenceLocal),
        Fence::Read if rules.fence2 == Fence2::Pr1780 && complete => Some(Rule::FenceRead),
        Fence::Read => {
            // At a requester the writes are what READs and atomics brought.
            let brought = written && matches!(later.stream, Stream::Requester(_));
            (answered || brought).then_some(Rule::FenceRead)
        }
        Fence::Strong => complete.then_some(Rule::FenceStrong),
    };
    match later.kind {
        Kind::Cqe | Kind::Eqe | Kind::Msi => rule.map(|_| after(later.kind)),
        _ => rule,
    }
}

/// The kinds among which one must be that `later` waits for: a set that is quick to tell, never too small.
pub fn concerns(later: &Access, rules: &Rules) -> KindSet {
    if later.fence != Fence::None || later.after != [None; 2] {
        return KindSet::ALL;
    }
    let writes = KindSet::of(&[Kind::Write]);
    let posted = KindSet::of(&[Kind::Write, Kind::Cqe, Kind::Eqe, Kind::Msi, Kind::Command]);
    let fabric = rules.fabric == Fabric::Pcie;
    match later.kind {
        Kind::Write if later.relaxed_write => KindSet::of(&[Kind::Atomic]),
        Kind::Write => KindSet::of(&[Kind::Atomic]).or(if fabric { posted } else { writes }),
        Kind::Read if later.relaxed_read => KindSet::of(&[Kind::Atomic]),
        Kind::Read => KindSet::of(&[Kind::Atomic]).or(if fabric { posted } else { writes }),
        Kind::Control if fabric => posted,
        Kind::Control => KindSet::NONE,
        Kind::Atomic | Kind::Cqe | Kind::Eqe | Kind::Msi => KindSet::ALL,
        Kind::Command if fabric => posted,
        Kind::Command => KindSet::NONE,
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSet(u8);

impl KindSet {
    /// No kind.
    pub const NONE: KindSet = KindSet(0);
    /// Every kind.
    pub const ALL: KindSet = KindSet(0xff);

    fn of(kinds: &[Kind]) -> KindSet {
        KindSet(kinds.iter().fold(0, |set, kind| set | 1 << *kind as u8))
    }

    fn or(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    /// Whether a kind is in it.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}
