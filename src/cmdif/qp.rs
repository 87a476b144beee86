//! CREATE_QP, DESTROY_QP, QUERY_QP and the commands that move a queue pair (PRM "Queue Pair Commands"; kernel
//! `qp.c:__mlx5_ib_modify_qp`, `qpc.c:modify_qp_mbox_alloc`).
//!
//! A command takes its mandatory attributes always, and optional ones exactly as `opt_param_mask` says
//! ([`mandatory`], [`optional`]); everything else in its input is not looked at.

mod check;

use super::buffer::{Access, Memory, UmemPart, doorbell_record, queue_memory};
use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::qp::{
    Attributes, Geometry, QueuePair, Service, State, Step, WQEBB, mandatory, optional, selected, take,
};
use crate::dma::order::Scope;
use crate::prm::opcode::Opcode;
use crate::prm::qp::{
    CreateQpIn, CreateQpOut, DestroyQpIn, Qp2errIn, Qp2rstIn, Qpc, QueryQpIn, QueryQpOut, Rst2initQpIn, Rst2initQpOut,
};
use crate::prm::status::Status;
use crate::prm::values::{QpOptPar, QpRqType, QpType};

syndromes! {
    /// Checks of queue pairs.
    pub mod syn = 0x0014_0000;
    1 SERVICE_TYPE "the service type is unknown or not advertised";
    2 SPECIAL "this kind of queue pair is not for user contexts";
    3 RESERVED_LKEY "rlky is not for user contexts";
    4 FEATURE "the context asks for a feature that is not advertised";
    5 PLACEMENT_ORDER "unordered data placement is not advertised for the service type";
    6 MIGRATION "path migration (apm) is not advertised";
    7 TIMESTAMP "the timestamp format is not advertised";
    8 RQ_TYPE "rq_type is unknown or not one of the service type";
    9 TOO_LARGE "log_sq_size or log_rq_size is beyond log_max_qp_sz";
    10 STRIDE "the receive entry's size is beyond max_wqe_sz_rq";
    11 GEOMETRY "the send queue does not begin at a multiple of 64 bytes";
    12 ONE_PER_PORT "the port has this special queue pair already";
    13 INPUT_QPN "a number of the driver's choice is not supported";
    14 CREATE_MASK "opt_param_mask has no meaning in CREATE_QP";
    15 EXTENSION "the context extension (qpc_extension) is not advertised";
    16 ECE "ece is set and ece_support is not advertised";
    17 STATE "the queue pair is not in the state that the command starts from";
    18 UNKNOWN_OPTION "opt_param_mask has a bit that is unknown";
    19 OPTION "opt_param_mask has a bit that the command and service type do not have";
    20 PORT "vhca_port_num is beyond the number of ports";
    21 PKEY "pkey_index is beyond the table";
    22 GID_INDEX "src_addr_index is beyond roce_address_table_size";
    23 MTU "mtu is not one of 256 to 4096";
    24 MESSAGE_SIZE "log_msg_max is beyond log_max_msg";
    25 READS "log_rra_max or log_sra_max is beyond its capability";
    26 ATOMIC_MODE "atomic_mode is not one that the atomic capabilities grant";
    27 COUNTER_SET "changing the counter set needs rts2rts_qp_counters_set_id, which is not advertised";
    28 NO_SRQ "a shared receive queue is set, and the queue pair uses none";
    29 ATTACHED "the queue pair is attached to a multicast group";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_QP, create_qp),
    Command::user(Opcode::DESTROY_QP, destroy_qp),
    Command::user(Opcode::QUERY_QP, query_qp),
    Command::user(Opcode::RST2INIT_QP, |ctx, input| modify(ctx, input, Step::RstToInit)),
    Command::user(Opcode::INIT2INIT_QP, |ctx, input| modify(ctx, input, Step::InitToInit)),
    Command::user(Opcode::INIT2RTR_QP, |ctx, input| modify(ctx, input, Step::InitToRtr)),
    Command::user(Opcode::RTR2RTS_QP, |ctx, input| modify(ctx, input, Step::RtrToRts)),
    Command::user(Opcode::RTS2RTS_QP, |ctx, input| modify(ctx, input, Step::RtsToRts)),
    Command::user(Opcode::SQERR2RTS_QP, |ctx, input| modify(ctx, input, Step::SqErrToRts)),
    Command::user(Opcode::SQD_RTS_QP, |ctx, input| modify(ctx, input, Step::SqdToRts)),
    Command::user(Opcode::QP_2ERR, to_error),
    Command::user(Opcode::QP_2RST, to_reset),
];

fn refuse<T>(syndrome: Syndrome) -> Result<T, CmdError> {
    Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome))
}

fn create_qp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateQpIn::new(input)?;
    let context = Qpc::new(input.qpc().as_bytes().to_vec())?;
    let Some(service) = Service::from_code(QpType(context.st() as u8)) else {
        return refuse(syn::SERVICE_TYPE);
    };
    if input.input_qpn() != 0 {
        return refuse(syn::INPUT_QPN);
    }
    if input.opt_param_mask() != 0 {
        return refuse(syn::CREATE_MASK);
    }
    if input.qpc_ext() != 0 {
        return refuse(syn::EXTENSION);
    }
    if input.ece() != 0 && ctx.hca.caps.general("ece_support") == 0 {
        return refuse(syn::ECE);
    }
    check::creation(ctx, service, &context)?;
    if matches!(service, Service::Qp0 | Service::Qp1)
        && ctx.hca.objects.qps.iter().any(|(_, entry)| entry.object.service() == service)
    {
        return Err(CmdError::new(Status::LIM_ERR, syn::ONE_PER_PORT));
    }
    let geometry = Geometry::of(&context);
    if geometry.sq_bytes != 0 && geometry.rq_bytes % WQEBB != 0 {
        return refuse(syn::GEOMETRY);
    }
    // A queue pair without queues of its own, an XRC target, has neither memory nor record.
    let own_queues = geometry.bytes() != 0;
    let part = UmemPart { id: input.wq_umem_id(), offset: input.wq_umem_offset() };
    let memory = Memory {
        umem: (own_queues && input.wq_umem_valid() != 0).then_some(part),
        pas: input.pas(),
        log_page_size: context.log_page_size(),
        page_offset: if own_queues { context.page_offset() } else { 0 },
    };
    let (buffer, umem) = queue_memory(ctx, memory, geometry.bytes(), Access::Read)?;
    if !buffer.aligned(WQEBB) {
        return refuse(syn::GEOMETRY);
    }
    let mut umems: Vec<_> = umem.into_iter().collect();
    let record = if own_queues {
        let umem = (context.dbr_umem_valid() != 0).then_some(context.dbr_umem_id());
        let (record, umem) = doorbell_record(ctx, umem, context.dbr_addr())?;
        umems.extend(umem);
        Some(record)
    } else {
        None
    };
    let mut stored = context;
    stored.set_state(0);
    for clear in [Qpc::set_hw_sq_wqebb_counter, Qpc::set_sw_sq_wqebb_counter, Qpc::set_hw_rq_counter] {
        clear(&mut stored, 0);
    }
    stored.set_sw_rq_counter(0);
    let qp = QueuePair::new(stored, service, buffer, record, umems);
    let deps = qp.deps(&qp.context);
    let qpn = ctx.hca.objects.create(ctx.uid, qp, &deps)?;
    if service == Service::Qp1 {
        ctx.hca.rdma.general = Some(qpn);
    }
    let mut out = CreateQpOut::zeroed();
    out.set_qpn(qpn);
    Ok(out.into_inner())
}

fn destroy_qp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let qpn = DestroyQpIn::new(input)?.qpn();
    if ctx.hca.objects.get::<QueuePair>(ctx.uid, qpn)?.groups != 0 {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::ATTACHED));
    }
    let qp = ctx.hca.objects.destroy::<QueuePair>(ctx.uid, qpn)?;
    ctx.bus.drain(Scope::Qp(qpn));
    ctx.hca.forget_qp_timer(qpn, qp.flow.timer);
    ctx.hca.forget_faults(qp.flow.faults);
    if qp.service() == Service::Qp1 {
        ctx.hca.rdma.general = None;
    }
    done()
}

fn query_qp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    /// Offset of the page list in the output.
    const PAS: usize = 0x110;
    let input = QueryQpIn::new(input)?;
    if input.qpc_ext() != 0 {
        return refuse(syn::EXTENSION);
    }
    let qp = ctx.hca.objects.get::<QueuePair>(ctx.uid, input.qpn())?;
    let pas = qp.buffer.to_pas();
    let mut out = QueryQpOut::with_tail((PAS + pas.len()).saturating_sub(QueryQpOut::SIZE));
    out.qpc_mut().as_bytes_mut().copy_from_slice(qp.queried(input.qpn(), ctx.bus).as_bytes());
    out.as_bytes_mut()[PAS..PAS + pas.len()].copy_from_slice(&pas);
    Ok(out.into_inner())
}

/// The state after `step`, if the queue pair may take it.
fn next_state(qp: &QueuePair, step: Step) -> Result<State, CmdError> {
    qp.state().step(step).ok_or(CmdError::new(Status::BAD_QP_STATE_ERR, syn::STATE))
}

/// All commands that carry a context: their inputs differ in nothing but the opcode.
fn modify(ctx: &mut Ctx<'_>, input: &[u8], step: Step) -> Reply {
    let input = Rst2initQpIn::new(input)?;
    let qpn = input.qpn();
    let qp = ctx.hca.objects.get::<QueuePair>(ctx.uid, qpn)?;
    let next = next_state(qp, step)?;
    let service = qp.service();
    let Some(mask) = QpOptPar::from_bits(input.opt_param_mask()) else {
        return refuse(syn::UNKNOWN_OPTION);
    };
    if !optional(step, service).contains(mask) {
        return refuse(syn::OPTION);
    }
    if mask.contains(QpOptPar::COUNTER_SET_ID) && ctx.hca.caps.general("rts2rts_qp_counters_set_id") == 0 {
        return refuse(syn::COUNTER_SET);
    }
    let carries_ece = !matches!(step, Step::SqErrToRts | Step::SqdToRts);
    if carries_ece && input.ece() != 0 && ctx.hca.caps.general("ece_support") == 0 {
        return refuse(syn::ECE);
    }
    let taken = mandatory(step, service) | selected(mask);
    let wanted = input.qpc();
    check::attributes(ctx, service, taken, &wanted)?;
    let mut context = qp.context.clone();
    if taken.contains(Attributes::SRQN) && QpRqType(context.rq_type() as u8) != QpRqType::SRQ_RQ {
        return refuse(syn::NO_SRQ);
    }
    take(taken, &mut context, &wanted);
    enter(ctx, qpn, next, context)?;
    Ok(Rst2initQpOut::zeroed().into_inner())
}

/// Moves a queue pair on; what it depends on follows its context.
fn enter(ctx: &mut Ctx<'_>, qpn: u32, state: State, context: Qpc<Vec<u8>>) -> Result<(), CmdError> {
    let entry = ctx.hca.objects.entry::<QueuePair>(ctx.uid, qpn)?;
    let deps = entry.object.deps(&context);
    if deps != entry.deps() {
        ctx.hca.objects.depend::<QueuePair>(ctx.uid, qpn, &deps)?;
    }
    let qp = ctx.hca.objects.get_mut::<QueuePair>(ctx.uid, qpn)?;
    let from = qp.state();
    log::debug!(target: "cx10::qp", "qpn={qpn:#x}: {from:?} -> {state:?}");
    let faults = qp.flow.faults;
    qp.enter(state, context);
    if matches!(state, State::Rst | State::Err) {
        ctx.bus.drain(Scope::Qp(qpn));
    }
    match (from, state) {
        (_, State::Rst) => {
            let timer = qp.flow.timer.take();
            ctx.hca.forget_qp_timer(qpn, timer);
            ctx.hca.forget_faults(faults);
        }
        (State::Rst, State::Err) => {}
        (State::Err, State::Err) => ctx.hca.look_at_receives(qpn),
        (_, State::Err) => ctx.hca.qp_in_error(qpn),
        (_, State::Rts) => ctx.hca.schedule_qp(qpn),
        _ => {}
    }
    Ok(())
}

fn to_error(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let qpn = Qp2errIn::new(input)?.qpn();
    let qp = ctx.hca.objects.get::<QueuePair>(ctx.uid, qpn)?;
    let (next, context) = (next_state(qp, Step::ToErr)?, qp.context.clone());
    enter(ctx, qpn, next, context)?;
    done()
}

fn to_reset(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let qpn = Qp2rstIn::new(input)?.qpn();
    let qp = ctx.hca.objects.get::<QueuePair>(ctx.uid, qpn)?;
    let (next, context) = (next_state(qp, Step::ToRst)?, qp.reset_context());
    enter(ctx, qpn, next, context)?;
    done()
}

#[cfg(test)]
mod tests;
