//! Queue pairs: their state machine, what each command takes from the context, and where their entries are (PRM
//! "Queue Pair Context", "QP State Transition Commands"; kernel `drivers/infiniband/hw/mlx5/qp.c`, `qpc.c`).
//!
//! Every field that the driver writes is kept; QUERY_QP returns it. Queues are run by [`super::rdma`].

use super::hca::{Event, Hca};
use super::objects::{Charged, Kind, ObjRef};
use super::page_list::PageList;
use super::rdma::packet::{PSN_MASK, psn_add};
use super::rdma::state::{Flow, Settings};
use crate::dma::{Bus, Iova, Stream};
use crate::prm::eq::QpEvents;
use crate::prm::event::{EventQueueType, EventType};
use crate::prm::qp::Qpc;
use crate::prm::values::{QpOptPar, QpRqType, QpState, QpType};

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Reset: nothing is accepted.
    Rst,
    /// Initialized: receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue stopped at an error.
    SqErr,
    /// The send queue is drained.
    Sqd,
    /// Error: everything is flushed.
    Err,
}

/// Commands that move a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// RST2INIT_QP.
    RstToInit,
    /// INIT2INIT_QP.
    InitToInit,
    /// INIT2RTR_QP.
    InitToRtr,
    /// RTR2RTS_QP.
    RtrToRts,
    /// RTS2RTS_QP.
    RtsToRts,
    /// SQERR2RTS_QP.
    SqErrToRts,
    /// SQD_RTS_QP.
    SqdToRts,
    /// 2ERR_QP.
    ToErr,
    /// 2RST_QP.
    ToRst,
}

impl State {
    /// The state after `step`, or `None` where the PRM does not allow it.
    pub fn step(self, step: Step) -> Option<State> {
        match (self, step) {
            (State::Rst, Step::RstToInit) | (State::Init, Step::InitToInit) => Some(State::Init),
            (State::Init, Step::InitToRtr) => Some(State::Rtr),
            (State::Rtr, Step::RtrToRts)
            | (State::Rts, Step::RtsToRts)
            | (State::SqErr, Step::SqErrToRts)
            | (State::Sqd, Step::SqdToRts) => Some(State::Rts),
            (_, Step::ToErr) => Some(State::Err),
            (_, Step::ToRst) => Some(State::Rst),
            _ => None,
        }
    }

    /// `qpc.state`.
    pub fn code(self) -> QpState {
        match self {
            State::Rst => QpState::RST,
            State::Init => QpState::INIT,
            State::Rtr => QpState::RTR,
            State::Rts => QpState::RTS,
            State::SqErr => QpState::SQER,
            State::Sqd => QpState::SQD,
            State::Err => QpState::ERR,
        }
    }
}

/// Service types that the device implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection, initiator or target.
    Xrc,
    /// Subnet management, QP0.
    Qp0,
    /// General services, QP1.
    Qp1,
    /// Raw Ethernet.
    RawEthertype,
    /// Memory registration.
    RegUmr,
}

impl Service {
    /// Every one.
    pub const ALL: [Service; 8] = [
        Service::Rc,
        Service::Uc,
        Service::Ud,
        Service::Xrc,
        Service::Qp0,
        Service::Qp1,
        Service::RawEthertype,
        Service::RegUmr,
    ];

    /// The service type of a `qpc.st`, if the device implements it.
    pub fn from_code(code: QpType) -> Option<Service> {
        Some(match code {
            QpType::RC => Service::Rc,
            QpType::UC => Service::Uc,
            QpType::UD => Service::Ud,
            QpType::XRC => Service::Xrc,
            QpType::QP0 => Service::Qp0,
            QpType::QP1 => Service::Qp1,
            QpType::RAW_ETHERTYPE => Service::RawEthertype,
            QpType::REG_UMR => Service::RegUmr,
            _ => return None,
        })
    }

    /// Whether it has a remote peer.
    pub fn connected(self) -> bool {
        matches!(self, Service::Rc | Service::Uc | Service::Xrc)
    }

    /// Whether it acknowledges and retries.
    pub fn reliable(self) -> bool {
        matches!(self, Service::Rc | Service::Xrc)
    }

    /// Whether only the driver itself may have one.
    pub fn special(self) -> bool {
        matches!(self, Service::Qp0 | Service::Qp1 | Service::RegUmr)
    }
}

bitflags::bitflags! {
    /// Groups of context fields that a command takes from its input.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Attributes: u32 {
        /// `primary_address_path.vhca_port_num`.
        const PORT = 1 << 0;
        /// `primary_address_path.pkey_index`.
        const PKEY = 1 << 1;
        /// `q_key`.
        const Q_KEY = 1 << 2;
        /// `rre`.
        const REMOTE_READ = 1 << 3;
        /// `rwe`.
        const REMOTE_WRITE = 1 << 4;
        /// `rae` and `atomic_mode`.
        const REMOTE_ATOMIC = 1 << 5;
        /// `counter_set_id`.
        const COUNTER_SET = 1 << 6;
        /// `pm_state`.
        const MIGRATION = 1 << 7;
        /// `mtu` and `log_msg_max`.
        const MESSAGE = 1 << 8;
        /// `remote_qpn`.
        const REMOTE_QPN = 1 << 9;
        /// `primary_address_path` without partition key index and acknowledge timeout.
        const PATH = 1 << 10;
        /// `next_rcv_psn`.
        const RCV_PSN = 1 << 11;
        /// `log_rra_max`.
        const RESPONDER_READS = 1 << 12;
        /// `min_rnr_nak`.
        const RNR_NAK = 1 << 13;
        /// `next_send_psn`.
        const SEND_PSN = 1 << 14;
        /// `log_ack_req_freq`.
        const ACK_REQUESTS = 1 << 15;
        /// `primary_address_path.ack_timeout`.
        const ACK_TIMEOUT = 1 << 16;
        /// `retry_count`.
        const RETRIES = 1 << 17;
        /// `rnr_retry`.
        const RNR_RETRIES = 1 << 18;
        /// `log_sra_max`.
        const REQUESTER_READS = 1 << 19;
        /// `secondary_address_path`.
        const ALTERNATE_PATH = 1 << 20;
        /// `srqn_rmpn_xrqn`.
        const SRQN = 1 << 21;
        /// `cqn_rcv`.
        const CQN_RCV = 1 << 22;
        /// `lag_tx_port_affinity`.
        const LAG_AFFINITY = 1 << 23;
        /// `packet_pacing_rate_limit_index`.
        const RATE_LIMIT = 1 << 24;
        /// `dp_ordering_1` and `dp_ordering_force`.
        const PLACEMENT_ORDER = 1 << 25;
        /// `pd`.
        const DOMAIN = 1 << 26;
    }
}

impl Attributes {
    /// What may be done to the queue pair's memory keys from outside.
    const ACCESS: Attributes = Attributes::REMOTE_READ.union(Attributes::REMOTE_WRITE).union(Attributes::REMOTE_ATOMIC);
}

/// The attributes that `step` always takes.
pub fn mandatory(step: Step, service: Service) -> Attributes {
    use Attributes as A;
    let mut taken = match step {
        Step::RstToInit => A::PORT | A::PKEY | A::MIGRATION | A::COUNTER_SET,
        Step::InitToRtr => A::MESSAGE | A::PLACEMENT_ORDER,
        Step::RtrToRts => A::SEND_PSN,
        _ => return A::empty(),
    };
    match (step, service) {
        (Step::RstToInit, Service::Rc | Service::Xrc) => taken |= A::ACCESS,
        (Step::RstToInit, Service::Uc) => taken |= A::REMOTE_WRITE,
        // The driver makes its queue pair for registration without a domain and names one here (kernel
        // `qp.c:create_kernel_qp`, `__mlx5_ib_modify_qp`).
        (Step::RstToInit, Service::RegUmr) => taken |= A::DOMAIN,
        (Step::RstToInit, Service::Ud | Service::Qp0 | Service::Qp1) => taken |= A::Q_KEY,
        (Step::InitToRtr, _) if service.connected() => {
            taken |= A::REMOTE_QPN | A::PATH | A::RCV_PSN;
            if service.reliable() {
                taken |= A::RESPONDER_READS | A::RNR_NAK;
            }
        }
        (Step::RtrToRts, _) if service.reliable() => {
            taken |= A::ACK_REQUESTS | A::ACK_TIMEOUT | A::RETRIES | A::RNR_RETRIES | A::REQUESTER_READS;
        }
        _ => {}
    }
    taken
}

/// The attributes that `step` takes if `opt_param_mask` says so, bit by bit.
pub fn optional(step: Step, service: Service) -> QpOptPar {
    use QpOptPar as O;
    let access = match service {
        Service::Rc | Service::Xrc => O::RRE | O::RWE | O::RAE,
        Service::Uc => O::RWE,
        _ => O::empty(),
    };
    let datagram = matches!(service, Service::Ud | Service::Qp0 | Service::Qp1);
    let q_key = if datagram { O::Q_KEY } else { O::empty() };
    let rnr = if service.reliable() { O::RNR_TIMEOUT } else { O::empty() };
    let migration = if service.connected() { O::ALT_ADDR_PATH | O::PM_STATE } else { O::empty() };
    let lag = if service.connected() { O::LAG_TX_AFF } else { O::empty() };
    let pacing = if matches!(service, Service::Uc | Service::Ud) { O::PP_INDEX } else { O::empty() };
    match step {
        Step::InitToInit => access | q_key | O::PKEY_INDEX | O::PRI_PORT | lag,
        Step::InitToRtr => access | q_key | O::PKEY_INDEX | migration.difference(O::PM_STATE) | lag,
        Step::RtrToRts => access | q_key | rnr | migration | pacing,
        Step::RtsToRts => {
            let queues = if service == Service::Ud { O::SRQN | O::CQN_RCV } else { O::empty() };
            access | q_key | rnr | migration | pacing | queues | O::COUNTER_SET_ID
        }
        Step::SqErrToRts | Step::SqdToRts => access | q_key | rnr,
        Step::RstToInit | Step::ToErr | Step::ToRst => O::empty(),
    }
}

/// The attributes that the bits of `opt_param_mask` stand for.
pub fn selected(mask: QpOptPar) -> Attributes {
    const BITS: &[(QpOptPar, Attributes)] = &[
        (QpOptPar::ALT_ADDR_PATH, Attributes::ALTERNATE_PATH),
        (QpOptPar::RRE, Attributes::REMOTE_READ),
        (QpOptPar::RAE, Attributes::REMOTE_ATOMIC),
        (QpOptPar::RWE, Attributes::REMOTE_WRITE),
        (QpOptPar::PKEY_INDEX, Attributes::PKEY),
        (QpOptPar::Q_KEY, Attributes::Q_KEY),
        (QpOptPar::RNR_TIMEOUT, Attributes::RNR_NAK),
        (QpOptPar::PM_STATE, Attributes::MIGRATION),
        (QpOptPar::LAG_TX_AFF, Attributes::LAG_AFFINITY),
        (QpOptPar::PRI_PORT, Attributes::PORT),
        (QpOptPar::SRQN, Attributes::SRQN),
        (QpOptPar::CQN_RCV, Attributes::CQN_RCV),
        (QpOptPar::PP_INDEX, Attributes::RATE_LIMIT),
        (QpOptPar::COUNTER_SET_ID, Attributes::COUNTER_SET),
    ];
    BITS.iter().filter(|(bit, _)| mask.contains(*bit)).fold(Attributes::empty(), |all, (_, taken)| all | *taken)
}

/// Copies `taken` from `wanted` to `context`.
pub fn take(taken: Attributes, context: &mut Qpc<Vec<u8>>, wanted: &Qpc<&[u8]>) {
    use Attributes as A;
    let has = |attribute| taken.contains(attribute);
    let path = wanted.primary_address_path();
    if has(A::PATH) {
        let old = context.primary_address_path();
        let (pkey_index, ack_timeout, port) = (old.pkey_index(), old.ack_timeout(), old.vhca_port_num());
        let mut new = context.primary_address_path_mut();
        new.as_bytes_mut().copy_from_slice(path.as_bytes());
        new.set_pkey_index(pkey_index);
        new.set_ack_timeout(ack_timeout);
        if path.vhca_port_num() == 0 {
            new.set_vhca_port_num(port);
        }
    }
    if has(A::PORT) {
        // Port 0 stands for the function's only one.
        context.primary_address_path_mut().set_vhca_port_num(path.vhca_port_num().max(1));
    }
    if has(A::PKEY) {
        context.primary_address_path_mut().set_pkey_index(path.pkey_index());
    }
    if has(A::ACK_TIMEOUT) {
        context.primary_address_path_mut().set_ack_timeout(path.ack_timeout());
    }
    if has(A::ALTERNATE_PATH) {
        let path = wanted.secondary_address_path();
        context.secondary_address_path_mut().as_bytes_mut().copy_from_slice(path.as_bytes());
    }
    if has(A::REMOTE_ATOMIC) {
        context.set_rae(wanted.rae());
        context.set_atomic_mode(wanted.atomic_mode());
    }
    if has(A::MESSAGE) {
        context.set_mtu(wanted.mtu());
        context.set_log_msg_max(wanted.log_msg_max());
    }
    if has(A::PLACEMENT_ORDER) {
        context.set_dp_ordering_1(wanted.dp_ordering_1());
        context.set_dp_ordering_force(wanted.dp_ordering_force());
    }
    macro_rules! single {
        ($($attribute:ident: $get:ident $set:ident,)*) => {
            $(if has(A::$attribute) {
                context.$set(wanted.$get());
            })*
        };
    }
    single! {
        DOMAIN: pd set_pd,
        Q_KEY: q_key set_q_key,
        REMOTE_READ: rre set_rre,
        REMOTE_WRITE: rwe set_rwe,
        COUNTER_SET: counter_set_id set_counter_set_id,
        MIGRATION: pm_state set_pm_state,
        REMOTE_QPN: remote_qpn set_remote_qpn,
        RCV_PSN: next_rcv_psn set_next_rcv_psn,
        RESPONDER_READS: log_rra_max set_log_rra_max,
        RNR_NAK: min_rnr_nak set_min_rnr_nak,
        SEND_PSN: next_send_psn set_next_send_psn,
        ACK_REQUESTS: log_ack_req_freq set_log_ack_req_freq,
        RETRIES: retry_count set_retry_count,
        RNR_RETRIES: rnr_retry set_rnr_retry,
        REQUESTER_READS: log_sra_max set_log_sra_max,
        SRQN: srqn_rmpn_xrqn set_srqn_rmpn_xrqn,
        CQN_RCV: cqn_rcv set_cqn_rcv,
        LAG_AFFINITY: lag_tx_port_affinity set_lag_tx_port_affinity,
        RATE_LIMIT: packet_pacing_rate_limit_index set_packet_pacing_rate_limit_index,
    }
}

/// Where the queues of a queue pair are in its buffer: receive queue first, send queue behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the receive queue; 0 if it has none of its own.
    pub rq_bytes: u64,
    /// Bytes of the send queue, a power of two; 0 if it has none.
    pub sq_bytes: u64,
}

/// Bytes of a send queue's basic block.
pub const WQEBB: u64 = 64;

impl Geometry {
    /// The geometry that a context describes.
    pub fn of<B: AsRef<[u8]>>(context: &Qpc<B>) -> Geometry {
        let own_rq = QpRqType(context.rq_type() as u8) == QpRqType::NON_ZERO_RQ;
        Geometry {
            rq_bytes: if own_rq { 16 << context.log_rq_stride() << context.log_rq_size() } else { 0 },
            sq_bytes: if context.no_sq() == 0 { WQEBB << context.log_sq_size() } else { 0 },
        }
    }

    /// Bytes of both.
    pub fn bytes(self) -> u64 {
        self.rq_bytes + self.sq_bytes
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    /// The context as it stands: what the driver wrote, by CREATE_QP and what each command took.
    pub context: Qpc<Vec<u8>>,
    /// The context as CREATE_QP left it; 2RST_QP returns to it.
    created: Qpc<Vec<u8>>,
    state: State,
    service: Service,
    /// Both queues.
    pub buffer: PageList,
    /// Doorbell record: receive counter, send counter. A queue pair without queues of its own has none.
    pub record: Option<Iova>,
    umems: Vec<ObjRef>,
    /// Fixed at creation.
    geometry: Geometry,
    /// Multicast groups it is attached to.
    pub groups: u32,
    /// What it knows while it runs.
    pub flow: Flow,
}

impl Charged for QueuePair {
    fn extra(&self) -> u64 {
        8 * self.buffer.pages() as u64
    }
}

impl QueuePair {
    /// A queue pair in reset.
    pub fn new(
        context: Qpc<Vec<u8>>,
        service: Service,
        buffer: PageList,
        record: Option<Iova>,
        umems: Vec<ObjRef>,
    ) -> QueuePair {
        let flow = Flow { settings: Settings::of(&context), ..Flow::default() };
        let (created, geometry) = (context.clone(), Geometry::of(&context));
        QueuePair { created, context, state: State::Rst, service, buffer, record, umems, geometry, groups: 0, flow }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its service type.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Where its queues are.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The context after 2RST_QP.
    pub fn reset_context(&self) -> Qpc<Vec<u8>> {
        self.created.clone()
    }

    /// Moves to `state` with `context`, by a command.
    pub fn enter(&mut self, state: State, context: Qpc<Vec<u8>>) {
        let from = std::mem::replace(&mut self.state, state);
        self.context = context;
        let settings = Settings::of(&self.context);
        let flow = &mut self.flow;
        flow.settings = settings;
        let requester = &mut flow.requester;
        match (from, state) {
            (_, State::Rst) => flow.reset(),
            (State::Init, State::Rtr) => flow.responder.expected = settings.receive_psn,
            (State::Rtr, State::Rts) => {
                requester.psn = settings.send_psn;
                requester.unacked = settings.send_psn;
                requester.sent = settings.send_psn;
                requester.retries = settings.retries;
                requester.rnr_retries = settings.rnr_retries;
            }
            (State::SqErr, State::Rts) => {
                requester.stopped = false;
                requester.flush_until = (requester.posted != requester.next).then_some(requester.posted);
            }
            _ => {}
        }
    }

    /// Moves to `state` by itself.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// The UAR page of its doorbells, if it sends.
    pub fn uar(&self) -> Option<u32> {
        (self.context.no_sq() == 0).then(|| self.context.uar_page())
    }

    /// What a queue pair with `context` depends on: what it names and really uses.
    pub fn deps(&self, context: &Qpc<Vec<u8>>) -> Vec<ObjRef> {
        let mut deps = self.umems.clone();
        let mut on = |kind, id| deps.push(ObjRef { kind, id });
        // Memory registration belongs to no domain; the driver leaves the number 0.
        if self.service != Service::RegUmr || context.pd() != 0 {
            on(Kind::Pd, context.pd());
        }
        if context.no_sq() == 0 {
            on(Kind::Uar, context.uar_page());
            on(Kind::Cq, context.cqn_snd());
        }
        let rq_type = QpRqType(context.rq_type() as u8);
        if rq_type != QpRqType::ZERO_LEN_RQ {
            on(Kind::Cq, context.cqn_rcv());
        }
        if rq_type == QpRqType::SRQ_RQ {
            let srqn = context.srqn_rmpn_xrqn();
            on(if self.service == Service::Xrc { Kind::XrcSrq } else { basic_srq(srqn) }, srqn);
        }
        if self.service == Service::Xrc {
            on(Kind::Xrcd, context.xrcd());
        }
        if context.counter_set_id() != 0 {
            on(Kind::QCounter, context.counter_set_id());
        }
        deps
    }

    /// The context with the live state, as a query returns it.
    pub fn queried(&self, qpn: u32, bus: &mut Bus) -> Qpc<Vec<u8>> {
        let mut context = self.context.clone();
        context.set_state(u32::from(self.state.code().0));
        // A record that cannot be read reports that nothing was posted.
        let mut word = |stream, offset| {
            let at = self.record.and_then(|record| record.checked_add(offset));
            at.and_then(|at| bus.load_dbrec(stream, at).ok()).unwrap_or(0) & 0xffff
        };
        let (receives, sends) = (Stream::Responder(qpn), Stream::Requester(qpn));
        let geometry = self.geometry();
        if self.state != State::Rst {
            context.set_sw_rq_counter(if geometry.rq_bytes != 0 { word(receives, 0) } else { 0 });
            context.set_sw_sq_wqebb_counter(if geometry.sq_bytes != 0 { word(sends, 4) } else { 0 });
        }
        let Flow { requester, responder, .. } = &self.flow;
        if !matches!(self.state, State::Rst | State::Init) {
            context.set_next_rcv_psn(responder.expected);
            context.set_rmsn(responder.msn);
            context.set_hw_rq_counter(responder.consumed.into());
        }
        if matches!(self.state, State::Rts | State::SqErr | State::Sqd | State::Err) {
            context.set_hw_sq_wqebb_counter(requester.next.into());
            context.set_next_send_psn(requester.psn);
            context.set_last_acked_psn(psn_add(requester.unacked, PSN_MASK));
            context.set_cur_retry_count(requester.retries.into());
            context.set_cur_rnr_retry(requester.rnr_retries.into());
        }
        context
    }
}

/// The kind of a shared receive queue that is no XRC one, by its number: all kinds share one number space.
fn basic_srq(number: u32) -> Kind {
    const FIRST_SRQ: u32 = 0x80_0000;
    if number < FIRST_SRQ { Kind::Rmp } else { Kind::Srq }
}

impl Hca {
    /// Tells the driver that no entry of a shared receive queue is in use by a queue pair in error any more.
    pub fn last_wqe_reached(&mut self, qpn: u32) {
        let mut events = QpEvents::zeroed();
        events.set_type(u32::from(EventQueueType::QP.0));
        events.set_qpn_rqn_sqn(qpn);
        let mut data = [0; 28];
        data.copy_from_slice(events.as_bytes());
        self.raise(Event { event_type: EventType::SRQ_LAST_WQE.0, sub_type: 0, data, eqn: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 7] = [State::Rst, State::Init, State::Rtr, State::Rts, State::SqErr, State::Sqd, State::Err];
    const STEPS: [Step; 9] = [
        Step::RstToInit,
        Step::InitToInit,
        Step::InitToRtr,
        Step::RtrToRts,
        Step::RtsToRts,
        Step::SqErrToRts,
        Step::SqdToRts,
        Step::ToErr,
        Step::ToRst,
    ];

    #[test]
    fn every_pair_of_state_and_command_is_as_the_prm_has_it() {
        use State::{Err, Init, Rst, Rtr, Rts, SqErr, Sqd};
        // One row for each state, one column for each command.
        type Row = [Option<State>; 9];
        let rows: [(State, Row); 7] = [
            (Rst, [Some(Init), None, None, None, None, None, None, Some(Err), Some(Rst)]),
            (Init, [None, Some(Init), Some(Rtr), None, None, None, None, Some(Err), Some(Rst)]),
            (Rtr, [None, None, None, Some(Rts), None, None, None, Some(Err), Some(Rst)]),
            (Rts, [None, None, None, None, Some(Rts), None, None, Some(Err), Some(Rst)]),
            (SqErr, [None, None, None, None, None, Some(Rts), None, Some(Err), Some(Rst)]),
            (Sqd, [None, None, None, None, None, None, Some(Rts), Some(Err), Some(Rst)]),
            (Err, [None, None, None, None, None, None, None, Some(Err), Some(Rst)]),
        ];
        assert_eq!(rows.map(|(state, _)| state), STATES);
        for (state, row) in rows {
            for (step, next) in STEPS.into_iter().zip(row) {
                assert_eq!(state.step(step), next, "{state:?} {step:?}");
            }
        }
    }

    #[test]
    fn states_have_the_codes_of_the_prm() {
        let codes = STATES.map(|state| state.code().0);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn reliable_services_take_what_retries_need_and_datagrams_their_key() {
        for service in Service::ALL {
            let init = mandatory(Step::RstToInit, service);
            let rtr = mandatory(Step::InitToRtr, service);
            let rts = mandatory(Step::RtrToRts, service);
            assert!(init.contains(Attributes::PORT | Attributes::PKEY) && rtr.contains(Attributes::MESSAGE));
            assert_eq!(init.contains(Attributes::REMOTE_READ), service.reliable(), "{service:?}");
            assert_eq!(init.contains(Attributes::REMOTE_WRITE), service.connected(), "{service:?}");
            assert_eq!(rtr.contains(Attributes::PATH | Attributes::RCV_PSN), service.connected(), "{service:?}");
            assert_eq!(rtr.contains(Attributes::RNR_NAK), service.reliable(), "{service:?}");
            assert_eq!(rts.contains(Attributes::RETRIES | Attributes::ACK_TIMEOUT), service.reliable(), "{service:?}");
            assert!(rts.contains(Attributes::SEND_PSN));
            for step in STEPS {
                // RTR2RTS comes with a path of zeroes but for the timeout.
                assert!(step == Step::InitToRtr || !mandatory(step, service).contains(Attributes::PATH));
            }
        }
        for service in [Service::Ud, Service::Qp0, Service::Qp1] {
            assert!(mandatory(Step::RstToInit, service).contains(Attributes::Q_KEY));
        }
    }

    #[test]
    fn every_optional_bit_stands_for_an_attribute() {
        for step in STEPS {
            for service in Service::ALL {
                for bit in optional(step, service).iter() {
                    assert!(!selected(bit).is_empty(), "{step:?} {service:?} {bit:?}");
                }
            }
            assert!(optional(Step::ToErr, Service::Rc).is_empty());
        }
        // What the driver sends for its own queue pairs (kernel qp.c, opt_mask).
        let sent = QpOptPar::RRE | QpOptPar::RAE | QpOptPar::RWE | QpOptPar::RNR_TIMEOUT | QpOptPar::PM_STATE;
        assert!(optional(Step::RtrToRts, Service::Rc).contains(sent));
        assert!(optional(Step::RtsToRts, Service::Ud).contains(QpOptPar::Q_KEY | QpOptPar::SRQN));
        assert!(!optional(Step::RtsToRts, Service::Uc).contains(QpOptPar::RRE));
    }

    #[test]
    fn the_receive_queue_comes_first() {
        let mut context = Qpc::zeroed();
        context.set_log_rq_size(3);
        context.set_log_rq_stride(2);
        context.set_log_sq_size(4);
        assert_eq!(Geometry::of(&context), Geometry { rq_bytes: 512, sq_bytes: 1024 });
        context.set_rq_type(1);
        context.set_no_sq(1);
        assert_eq!(Geometry::of(&context).bytes(), 0);
    }
}
