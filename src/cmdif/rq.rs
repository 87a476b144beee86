//! CREATE_RQ, MODIFY_RQ, QUERY_RQ, DESTROY_RQ (PRM "Receive Queue Commands"; kernel `transobj.c`, `en_main.c`,
//! `infiniband/hw/mlx5/qp.c`).

use super::error::{CmdError, common, syndromes};
use super::wq::{Strides, check_timestamps, refuse, syn as wq_syn, work_queue};
use super::{Command, Ctx, Reply, done};
use crate::device::capabilities::ETHERNET;
use crate::device::rq::{ReceiveMemory, ReceiveQueue};
use crate::device::wq::may_change;
use crate::dma::Stream;
use crate::dma::order::Scope;
use crate::prm::opcode::Opcode;
use crate::prm::queue::{CreateRqIn, CreateRqOut, DestroyRqIn, ModifyRqIn, QueryRqIn, QueryRqOut, Rqc};
use crate::prm::status::Status;
use crate::prm::values::WqState;

syndromes! {
    /// Checks of receive queues.
    pub mod syn = 0x0035_0000;
    1 MEMORY_TYPE "mem_rq_type is reserved";
    2 FCS "scatter_fcs is not advertised";
    3 DELAY_DROP "rq_delay_drop is not advertised";
    4 UNKNOWN_FIELD "modify_bitmask has bits without meaning";
}

/// Strides that a receive queue may have.
const STRIDES: Strides = Strides { min: "log_min_stride_sz_rq", max: "log_max_stride_sz_rq" };

/// `rqc.mem_rq_type`.
const MEMORY_INLINE: u32 = 0;
const MEMORY_POOL: u32 = 1;

/// Bits of `modify_bitmask` (kernel `mlx5_ifc.h`, `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`).
const MODIFY_VSD: u64 = 1 << 1;
const MODIFY_SCATTER_FCS: u64 = 1 << 2;
const MODIFY_COUNTER_SET_ID: u64 = 1 << 3;

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_RQ, create_rq),
    Command::user(Opcode::MODIFY_RQ, modify_rq),
    Command::user(Opcode::QUERY_RQ, query_rq),
    Command::user(Opcode::DESTROY_RQ, destroy_rq),
];

fn check_fcs(ctx: &Ctx<'_>, scatter_fcs: u32) -> Result<(), CmdError> {
    if scatter_fcs != 0 && ctx.hca.caps.get(ETHERNET, "scatter_fcs") == 0 {
        return Err(refuse(syn::FCS));
    }
    Ok(())
}

fn create_rq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.hca.caps.general("log_max_rq") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    let input = CreateRqIn::new(input)?;
    let context = input.ctx();
    if WqState(context.state() as u8) != WqState::RST {
        return Err(refuse(wq_syn::STATE));
    }
    if context.hairpin() != 0 {
        return Err(refuse(wq_syn::HAIRPIN));
    }
    if context.delay_drop_en() != 0 && ctx.hca.caps.general("rq_delay_drop") == 0 {
        return Err(refuse(syn::DELAY_DROP));
    }
    if context.rlky() != 0 && ctx.uid != 0 {
        return Err(refuse(wq_syn::RESERVED_LKEY));
    }
    check_fcs(ctx, context.scatter_fcs())?;
    check_timestamps(ctx, "rq_ts_format", context.ts_format())?;
    let memory = match context.mem_rq_type() {
        MEMORY_INLINE => ReceiveMemory::Inline(work_queue(ctx, &context.wq(), &STRIDES)?),
        MEMORY_POOL => ReceiveMemory::Pool(context.rmpn()),
        _ => return Err(refuse(syn::MEMORY_TYPE)),
    };
    let context = Rqc::new(context.as_bytes()[..Rqc::SIZE].to_vec())?;
    let rq = ReceiveQueue::new(context, memory);
    let deps = rq.deps();
    let rqn = ctx.hca.objects.create(ctx.uid, rq, &deps)?;
    let mut out = CreateRqOut::zeroed();
    out.set_rqn(rqn);
    Ok(out.into_inner())
}

fn modify_rq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyRqIn::new(input)?;
    let (mask, wanted) = (input.modify_bitmask(), input.ctx());
    if mask & !(MODIFY_VSD | MODIFY_SCATTER_FCS | MODIFY_COUNTER_SET_ID) != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    if mask & MODIFY_SCATTER_FCS != 0 {
        check_fcs(ctx, wanted.scatter_fcs())?;
    }
    let rqn = input.rqn();
    let rq = ctx.hca.objects.get_mut::<ReceiveQueue>(ctx.uid, rqn)?;
    let (current, new) = (WqState(input.rq_state() as u8), WqState(wanted.state() as u8));
    if rq.state != current {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, wq_syn::WRONG_STATE));
    }
    if !may_change(current, new) {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, wq_syn::TRANSITION));
    }
    // The counter set may not exist: it is tried first, so that a refusal changes nothing.
    if mask & MODIFY_COUNTER_SET_ID != 0 {
        let old = rq.context.counter_set_id();
        rq.context.set_counter_set_id(wanted.counter_set_id());
        let deps = rq.deps();
        if let Err(error) = ctx.hca.objects.depend::<ReceiveQueue>(ctx.uid, rqn, &deps) {
            ctx.hca.objects.get_mut::<ReceiveQueue>(ctx.uid, rqn)?.context.set_counter_set_id(old);
            return Err(error);
        }
    }
    let rq = ctx.hca.objects.get_mut::<ReceiveQueue>(ctx.uid, rqn)?;
    if mask & MODIFY_VSD != 0 {
        rq.context.set_vsd(wanted.vsd());
    }
    if mask & MODIFY_SCATTER_FCS != 0 {
        rq.context.set_scatter_fcs(wanted.scatter_fcs());
    }
    rq.set_state(new);
    if new != WqState::RDY {
        ctx.bus.drain(Scope::Stream(Stream::Queue(rqn)));
    }
    if new == WqState::ERR {
        ctx.hca.flush_rq(rqn);
    } else if let Some(rq) = ctx.hca.objects.rqs.get_mut(rqn) {
        ctx.hca.flushes.forget(rqn, &mut rq.object);
    }
    done()
}

fn query_rq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rqn = QueryRqIn::new(input)?.rqn();
    let rq = ctx.hca.objects.get::<ReceiveQueue>(ctx.uid, rqn)?;
    let mut context = rq.context.clone();
    context.set_state(rq.state.0.into());
    let mut pas = Vec::new();
    if let ReceiveMemory::Inline(wq) = &rq.memory {
        let posted = wq.posted_receives(Stream::Queue(rqn), ctx.bus).unwrap_or(rq.consumed);
        context.wq_mut().set_hw_counter(rq.consumed.into());
        context.wq_mut().set_sw_counter(posted.into());
        pas = wq.buffer.to_pas();
    }
    let mut out = QueryRqOut::with_tail(pas.len());
    out.rq_context_mut().as_bytes_mut()[..Rqc::SIZE].copy_from_slice(context.as_bytes());
    out.rq_context_mut().wq_mut().pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}

fn destroy_rq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rqn = DestroyRqIn::new(input)?.rqn();
    let mut rq = ctx.hca.objects.destroy::<ReceiveQueue>(ctx.uid, rqn)?;
    ctx.bus.drain(Scope::Stream(Stream::Queue(rqn)));
    ctx.hca.flushes.forget(rqn, &mut rq);
    done()
}
