//! On-demand paging: an access to a page that is not there waits until the driver has brought the page in (PRM "Page Fault
//! Handling"; kernel `infiniband/hw/mlx5/odp.c`).
//!
//! A fault is raised as an event, and one side of the queue pair stalls until PAGE_FAULT_RESUME names the event's token:
//!
//! | who meets the page | what it does meanwhile |
//! |---|---|
//! | requester, gathering | sends nothing |
//! | requester, scattering a response | drops responses, and asks again from there |
//! | responder of a SEND, WRITE | answers that it is not ready (RNR), and the peer tries again |
//! | responder of a READ, an atomic | the same, and holds the answer and those behind it, which go out as soon as they can |
//! | shared receive queue of datagrams | keeps the entry, and drops datagrams |
//!
//! The access itself is not issued. A resume tries it again, and it may fault again; a resume with error fails it as a key
//! that forbids the access would. Each side has one fault at a time, so a guest cannot make more of them than it has
//! queue pairs, twice. There may be more of them than the event queue has room for: they wait until the driver takes some.
//!
//! There are two ways to say where the page is. In the transport scheme an event names the work queue entry or the peer's
//! request, and the driver finds the keys; in the memory scheme, which the driver asks for by SET_HCA_CAP, it names the key
//! and the address at which the walk ended. Where no event queue takes page faults, there is no paging.

use std::collections::BTreeMap;

use bitflags::bitflags;

use super::memory::{Keys, MemoryError, Reach, Who};
use super::packet::{Remote, Transport, psn_add};
use super::responder::Refusal;
use super::state::{Job, ResponderStall, Settings, Stall, Started, transport};
use super::{PART_COST, Portion, TRAIN_PARTS};
use crate::device::capabilities::{Capabilities, ODP};
use crate::device::hca::{Event, Hca};
use crate::mkey::translate::{Access, KeyError, Missing};
use crate::prm::eqe::{MemoryPageFault, RdmaPageFault, WqePageFault};
use crate::prm::event::{EventType, PageFault};
use crate::prm::values::WqeOpcode;

/// Tokens have as many bits as a resume of the transport scheme has room for.
const TOKENS: u32 = 1 << 24;
/// Bytes of a page of the memory scheme, whatever the page size of the key.
const PAGE: u64 = 4096;

bitflags! {
    /// Operations of a transport that may meet pages that are not there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Operations: u8 {
        /// Data of a SEND.
        const SEND = 1 << 0;
        /// Receive entries of a queue pair's own ring.
        const RECEIVE = 1 << 1;
        /// RDMA WRITE, on both sides.
        const WRITE = 1 << 2;
        /// RDMA READ, on both sides.
        const READ = 1 << 3;
        /// Atomic operations, on both sides.
        const ATOMIC = 1 << 4;
        /// Entries of a shared receive queue.
        const SHARED_RECEIVE = 1 << 5;
    }
}

/// How an event says where a page is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By the entry or request that needs it.
    Transport,
    /// By key and address.
    Memory,
}

impl Scheme {
    /// The scheme in force, if there is any paging.
    pub fn of(caps: &Capabilities) -> Option<Scheme> {
        if caps.general("pg") == 0 {
            return None;
        }
        Some(if caps.get(ODP, "mem_page_fault") != 0 { Scheme::Memory } else { Scheme::Transport })
    }
}

/// A side of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It sends requests.
    Requester,
    /// It executes a peer's.
    Responder,
}

impl Side {
    fn index(self) -> usize {
        match self {
            Side::Requester => 0,
            Side::Responder => 1,
        }
    }
}

/// `page_fault_type` of the transport scheme (kernel `MLX5_WQE_PF_TYPE_*`, `MLX5_PFAULT_*`).
mod kind {
    pub const SHARED_RECEIVE: u32 = 0;
    pub const SEND_OR_WRITE: u32 = 1;
    pub const RECEIVE: u32 = 2;
    pub const READ_OR_ATOMIC: u32 = 3;
    pub const RDMA_READ: u32 = 4;
    pub const RDMA_WRITE: u32 = 6;
}

/// A fault that the driver has been told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    qpn: u32,
    side: Side,
    /// What a resume must name beside the token.
    kind: u32,
    queue: u32,
}

/// Why there is nothing to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotResumed {
    /// No fault has the token.
    NoFault,
    /// The fault is of another kind.
    OtherKind,
    /// The fault is of another queue.
    OtherQueue,
}

/// What a resume says of the fault beside its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// In the transport scheme: `page_fault_type` and `wq_number`.
    Queue {
        /// `page_fault_type`.
        kind: u32,
        /// `wq_number`.
        number: u32,
    },
    /// Nothing, in the memory scheme.
    Nothing,
}

/// What may fault, and what has.
#[derive(Debug, Default)]
pub struct Paging {
    scheme: Option<Scheme>,
    rc: Operations,
    ud: Operations,
    xrc: Operations,
    pending: BTreeMap<u32, Pending>,
    /// Events of those that the driver has not been told of, by token.
    untold: BTreeMap<u32, Event>,
    last: u32,
}

impl Paging {
    /// What the capabilities in force allow.
    pub fn new(caps: &Capabilities) -> Paging {
        let scheme = Scheme::of(caps);
        let operations = |transport| match scheme {
            None => Operations::empty(),
            Some(scheme) => operations(caps, scheme, transport),
        };
        Paging {
            scheme,
            rc: operations("rc"),
            ud: operations("ud"),
            xrc: operations("xrc"),
            pending: BTreeMap::new(),
            untold: BTreeMap::new(),
            last: 0,
        }
    }

    /// The scheme in force.
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// Faults that wait for a resume.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Forgets all faults.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.untold.clear();
    }

    /// A fault that the driver is to be told of: its token, and the event.
    pub fn untold(&self) -> Option<(u32, Event)> {
        self.untold.first_key_value().map(|(token, event)| (*token, *event))
    }

    /// The driver is told of the fault with `token`.
    pub fn told(&mut self, token: u32) {
        self.untold.remove(&token);
    }

    fn allows(&self, transport: Transport, operation: Operations) -> bool {
        let allowed = match transport {
            Transport::Rc => self.rc,
            Transport::Ud => self.ud,
            Transport::Xrc => self.xrc,
            Transport::Uc => Operations::empty(),
        };
        allowed.contains(operation)
    }

    /// A token that no pending fault has; there are far fewer of those than tokens.
    fn token(&mut self) -> u32 {
        loop {
            self.last = (self.last + 1) % TOKENS;
            if self.last != 0 && !self.pending.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

fn operations(caps: &Capabilities, scheme: Scheme, transport: &str) -> Operations {
    let area = match scheme {
        Scheme::Transport => "transport_page_fault_scheme_cap",
        Scheme::Memory => "memory_page_fault_scheme_cap",
    };
    let fields = [
        ("send", Operations::SEND),
        ("receive", Operations::RECEIVE),
        ("write", Operations::WRITE),
        ("read", Operations::READ),
        ("atomic", Operations::ATOMIC),
        ("srq_receive", Operations::SHARED_RECEIVE),
    ];
    let has = |field: &str| caps.get(ODP, &format!("{area}.{transport}_odp_caps.{field}")) != 0;
    fields.into_iter().filter(|(field, _)| has(field)).map(|(_, operation)| operation).collect()
}

/// What was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The data of a work queue entry.
    Entry { kind: u32, queue: u32, index: u16 },
    /// What a peer's request names.
    Request { kind: u32, remote: Remote },
}

/// An access to a page that is not there.
#[derive(Clone, Copy, Debug)]
struct Fault {
    qpn: u32,
    side: Side,
    operation: Operations,
    subject: Subject,
    /// Bytes of the message before those that were accessed.
    committed: u32,
    /// Bytes that were accessed.
    len: u32,
    /// Where the walk ended, and how many bytes from there on the message needs.
    missing: Option<Missing>,
}

/// Whether an access may succeed once a page has come in.
fn is_fault(error: MemoryError) -> bool {
    matches!(error, MemoryError::Key(error) if error.is_fault())
}

impl Portion<'_> {
    fn keys(&self) -> Keys<'_> {
        Keys { objects: &self.hca.objects, space: &self.hca.key_space }
    }

    fn by_memory(&self) -> bool {
        self.hca.paging.scheme == Some(Scheme::Memory)
    }

    /// The requester met `error` while it gathered `len` bytes of the entry being sent; whether that is a page fault. It
    /// is stalled then.
    #[cold]
    pub(super) fn gather_fault(
        &mut self,
        qpn: u32,
        started: &Started,
        offset: u32,
        len: u32,
        error: MemoryError,
    ) -> bool {
        if !is_fault(error) {
            return false;
        }
        let write = matches!(started.opcode, WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM);
        let operation = if write { Operations::WRITE } else { Operations::SEND };
        let missing = self.missing_in_entry(qpn, false, offset, started.len);
        let subject = Subject::Entry { kind: kind::SEND_OR_WRITE, queue: qpn, index: started.index };
        let fault = Fault { qpn, side: Side::Requester, operation, subject, committed: offset, len, missing };
        self.stall_requester(fault, Stall { first: started.first, resend: false, failed: false })
    }

    /// The same for data that a response brings into the list of the entry `started`; the response is dropped.
    #[cold]
    pub(super) fn scatter_fault(&mut self, qpn: u32, started: &Started, len: u32, error: MemoryError) -> bool {
        if !is_fault(error) {
            return false;
        }
        let read = started.opcode == WqeOpcode::RDMA_READ;
        let operation = if read { Operations::READ } else { Operations::ATOMIC };
        let offset = started.received;
        let missing = self.missing_in_entry(qpn, true, offset, started.len);
        let subject = Subject::Entry { kind: kind::READ_OR_ATOMIC, queue: qpn, index: started.index };
        let fault = Fault { qpn, side: Side::Requester, operation, subject, committed: offset, len, missing };
        self.stall_requester(fault, Stall { first: started.first, resend: true, failed: false })
    }

    fn stall_requester(&mut self, fault: Fault, stall: Stall) -> bool {
        if !self.raise(&fault) {
            return false;
        }
        let Some(qp) = self.qp(fault.qpn) else { return false };
        match &mut qp.flow.requester.stall {
            // It is stalled by another page; what was dropped is asked for again then.
            Some(stalled) => stalled.resend |= stall.resend,
            none => *none = Some(stall),
        }
        true
    }

    /// The responder met `error` while it put `len` bytes of a SEND, `offset` bytes into the receive entry in use.
    #[cold]
    pub(super) fn receive_fault(&mut self, qpn: u32, offset: u32, len: u32, error: MemoryError) -> bool {
        if !is_fault(error) {
            return false;
        }
        let Some(qp) = self.hca.objects.qps.get(qpn).map(|entry| &entry.object) else { return false };
        let Some(entry) = qp.flow.responder.entry.as_deref() else { return false };
        let (operation, kind, queue) = match entry.shared {
            Some(number) => (Operations::SHARED_RECEIVE, kind::SHARED_RECEIVE, number),
            None => (Operations::RECEIVE, kind::RECEIVE, qpn),
        };
        let missing = self.by_memory().then(|| {
            let (bytes, at) = entry.data();
            Reach::list(self.keys(), entry.who(qpn), Access::LocalWrite, bytes, at, offset.into(), len.into()).missing()
        });
        let subject = Subject::Entry { kind, queue, index: entry.index };
        let (side, missing) = (Side::Responder, missing.flatten());
        let fault = Fault { qpn, side, operation, subject, committed: offset, len, missing };
        self.stall_responder(fault, ResponderStall { request: true, both: false, refusal: Refusal::Operation(error) })
    }

    /// The responder met `error` while it put `len` bytes of a WRITE to `remote`, behind its first `offset` bytes.
    #[cold]
    pub(super) fn write_fault(
        &mut self,
        qpn: u32,
        settings: &Settings,
        (remote, offset): (Remote, u32),
        len: u32,
        error: MemoryError,
    ) -> bool {
        let stall = ResponderStall { request: true, both: false, refusal: Refusal::Access(error) };
        let range = (remote, offset, len);
        self.remote_fault(settings.who(qpn), Operations::WRITE, Access::RemoteWrite, range, error, stall)
    }

    /// The responder met `error` while it read `len` bytes of a READ of `remote`, or did an atomic operation there.
    #[cold]
    pub(super) fn answer_fault(
        &mut self,
        qpn: u32,
        settings: &Settings,
        atomic: bool,
        range: (Remote, u32, u32),
        error: MemoryError,
    ) -> bool {
        let stall = ResponderStall { request: false, both: false, refusal: Refusal::Access(error) };
        let (operation, access) = match atomic {
            true => (Operations::ATOMIC, Access::RemoteAtomic),
            false => (Operations::READ, Access::RemoteRead),
        };
        self.remote_fault(settings.who(qpn), operation, access, range, error, stall)
    }

    fn remote_fault(
        &mut self,
        who: Who,
        operation: Operations,
        access: Access,
        (remote, offset, len): (Remote, u32, u32),
        error: MemoryError,
        stall: ResponderStall,
    ) -> bool {
        if !is_fault(error) {
            return false;
        }
        let missing = self.by_memory().then(|| {
            let (va, rest) = (remote.va.wrapping_add(offset.into()), remote.len.saturating_sub(offset));
            Reach::key(self.keys(), who, access, remote.key, va, rest.into()).missing()
        });
        let kind = if access == Access::RemoteRead { kind::RDMA_READ } else { kind::RDMA_WRITE };
        let subject = Subject::Request { kind, remote };
        let (qpn, side, missing) = (who.qpn, Side::Responder, missing.flatten());
        let fault = Fault { qpn, side, operation, subject, committed: offset, len, missing };
        self.stall_responder(fault, stall)
    }

    fn stall_responder(&mut self, fault: Fault, stall: ResponderStall) -> bool {
        if !self.raise(&fault) {
            return false;
        }
        let Some(qp) = self.qp(fault.qpn) else { return false };
        match &mut qp.flow.responder.stall {
            Some(stalled) => stalled.both |= stalled.request != stall.request,
            none => *none = Some(stall),
        }
        true
    }

    /// In the memory scheme, where the list of the entry that is being sent, or read into, ends in a missing page.
    fn missing_in_entry(&self, qpn: u32, reading: bool, offset: u32, len: u32) -> Option<Missing> {
        if !self.by_memory() {
            return None;
        }
        let qp = self.hca.objects.qps.get(qpn).map(|entry| &entry.object)?;
        let requester = &qp.flow.requester;
        let (entry, access) = match reading {
            true => (requester.reading.as_deref()?, Access::LocalWrite),
            false => (requester.entry.as_deref()?, Access::LocalRead),
        };
        let (bytes, at) = entry.data();
        let (who, rest) = (qp.flow.settings.who(qpn), len.saturating_sub(offset));
        Reach::list(self.keys(), who, access, bytes, at, offset.into(), rest.into()).missing()
    }

    /// Tells the driver of a fault, unless it was told of one of this side; `false` if it cannot be told.
    fn raise(&mut self, fault: &Fault) -> bool {
        // The walk to the page was in vain, and may have been long.
        self.spent += TRAIN_PARTS * PART_COST;
        let Some(qp) = self.hca.objects.qps.get(fault.qpn).map(|entry| &entry.object) else { return false };
        let paging = &self.hca.paging;
        let Some(scheme) = paging.scheme else { return false };
        if !transport(qp.service()).is_some_and(|transport| paging.allows(transport, fault.operation)) {
            return false;
        }
        if qp.flow.faults[fault.side.index()] != 0 {
            return true;
        }
        // What nobody would resume fails as it does without paging.
        let heard = self.hca.queue_for(EventType::PAGE_FAULT.0).is_some();
        if !heard || (scheme == Scheme::Memory && fault.missing.is_none()) {
            return false;
        }
        let token = self.hca.paging.token();
        let (kind, queue) = match fault.subject {
            Subject::Entry { kind, queue, .. } => (kind, queue),
            Subject::Request { kind, .. } => (kind, token),
        };
        let pending = Pending { qpn: fault.qpn, side: fault.side, kind, queue };
        self.hca.paging.pending.insert(token, pending);
        if let Some(qp) = self.qp(fault.qpn) {
            qp.flow.faults[fault.side.index()] = token;
        }
        self.hca.rdma.traffic.page_faults += 1;
        log::debug!(target: "cx10::rdma", "qpn={:#x}: page fault {token:#x}: {fault:x?}", fault.qpn);
        let (sub_type, data) = match fault.missing.filter(|_| scheme == Scheme::Memory) {
            Some(missing) => (PageFault::MEMORY, memory_event(token, &missing, fault.len)),
            None => transport_event(token, fault),
        };
        let event = Event { event_type: EventType::PAGE_FAULT.0, sub_type: sub_type.0, data, eqn: None };
        self.hca.tracer.event(&event);
        self.hca.paging.untold.insert(token, event);
        true
    }
}

/// The event of the transport scheme.
fn transport_event(token: u32, fault: &Fault) -> (PageFault, [u8; 28]) {
    let len = fault.len.min(0xffff);
    match fault.subject {
        Subject::Entry { kind, queue, index } => {
            let mut event = WqePageFault::wrap([0; 28]);
            event.set_bytes_committed(fault.committed);
            event.set_wqe_index(index.into());
            event.set_packet_length(len);
            event.set_token(token);
            event.set_page_fault_type(kind);
            event.set_wq_number(queue);
            (PageFault::WQE, event.into_inner())
        }
        Subject::Request { kind, remote } => {
            let mut event = RdmaPageFault::wrap([0; 28]);
            event.set_bytes_committed(fault.committed);
            event.set_r_key(remote.key);
            event.set_packet_length(len);
            event.set_rdma_op_len(remote.len);
            event.set_rdma_va(remote.va);
            event.set_page_fault_type(kind);
            event.set_token(token);
            (PageFault::RDMA, event.into_inner())
        }
    }
}

/// The event of the memory scheme: what the access needs of the key, and what the rest of the message will need of it.
fn memory_event(token: u32, missing: &Missing, len: u32) -> [u8; 28] {
    const LAST: u32 = 1;
    let from = missing.va & !(PAGE - 1);
    let pages = |bytes: u64| (missing.va - from).saturating_add(bytes).div_ceil(PAGE);
    let demanded = u64::from(len).saturating_sub(missing.before).clamp(1, missing.len.max(1));
    let (demand, all) = (pages(demanded).min(0xf_ffff), pages(missing.len));
    let mut event = MemoryPageFault::wrap([0; 28]);
    event.set_last(LAST);
    event.set_post_demand_fault_pages(all.saturating_sub(demand).min(0xffff) as u32);
    event.set_token_31_0(token);
    event.set_demand_fault_pages(demand as u32);
    event.set_mkey(missing.key);
    event.set_va(from);
    event.into_inner()
}

impl Hca {
    /// The driver has handled the fault with `token`, or could not (`error`).
    pub fn resume_fault(&mut self, token: u32, named: Named, error: bool, now: u64) -> Result<(), NotResumed> {
        let pending = *self.paging.pending.get(&token).ok_or(NotResumed::NoFault)?;
        if let Named::Queue { kind, number } = named {
            if kind != pending.kind {
                return Err(NotResumed::OtherKind);
            }
            if number != pending.queue {
                return Err(NotResumed::OtherQueue);
            }
        }
        self.paging.pending.remove(&token);
        self.paging.untold.remove(&token);
        let Some(qp) = self.objects.qps.get_mut(pending.qpn).map(|entry| &mut entry.object) else { return Ok(()) };
        let flow = &mut qp.flow;
        flow.faults[pending.side.index()] = 0;
        log::debug!(target: "cx10::rdma", "qpn={:#x}: page fault {token:#x} resumed, error={error}", pending.qpn);
        let (mtu, log_mtu) = (flow.settings.mtu, flow.settings.log_mtu);
        match pending.side {
            Side::Requester => {
                let requester = &mut flow.requester;
                match requester.stall.take() {
                    // In error it is not stalled any more.
                    None => {}
                    Some(stall) if error => requester.stall = Some(Stall { failed: true, ..stall }),
                    Some(stall) => {
                        requester.progress_at = now;
                        if stall.resend {
                            requester.went_back = None;
                            requester.go_back(requester.unacked, mtu);
                        }
                    }
                }
            }
            Side::Responder => {
                if let Some(stall) = flow.responder.stall.take().filter(|_| error) {
                    flow.responder.fail(stall, log_mtu);
                }
            }
        }
        self.schedule_qp(pending.qpn);
        Ok(())
    }

    /// Forgets the faults of a queue pair that is destroyed or reset.
    pub fn forget_faults(&mut self, faults: [u32; 2]) {
        for token in faults {
            self.paging.pending.remove(&token);
            self.paging.untold.remove(&token);
        }
    }
}

impl super::state::Responder {
    /// The page that `stall` waited for does not come.
    fn fail(&mut self, stall: ResponderStall, log_mtu: u32) {
        let refusal = stall.refusal;
        if stall.request {
            self.refusing = true;
            self.jobs.push_back(Job::Refuse { psn: self.expected, refusal });
            return;
        }
        let refused = match self.jobs.front() {
            // Who still needs an answer that was given before keeps the key.
            Some(job) if !job.is_new() => None,
            Some(Job::Read { offset, psn, .. }) => Some(psn_add(*psn, offset >> log_mtu)),
            Some(Job::Atomic { psn, .. }) => Some(*psn),
            _ => return,
        };
        self.jobs.pop_front();
        if let Some(psn) = refused {
            self.jobs.push_front(Job::Refuse { psn, refusal });
        }
    }
}

/// The failure of an access whose page does not come.
pub(super) const UNRESOLVED: MemoryError = MemoryError::Key(KeyError::Absent);

#[cfg(test)]
mod tests;
