//! CREATE_SQ, MODIFY_SQ, QUERY_SQ, DESTROY_SQ (PRM "Send Queue Commands"; kernel `transobj.c`, `en_main.c`,
//! `infiniband/hw/mlx5/qp.c`).

use super::error::{CmdError, Syndrome, common, syndromes};
use super::wq::{Strides, check_timestamps, refuse, syn as wq_syn, work_queue};
use super::{Command, Ctx, Reply, done};
use crate::device::capabilities::ETHERNET;
use crate::device::sq::{SendQueue, WQEBB};
use crate::device::wq::may_change;
use crate::dma::Stream;
use crate::dma::order::Scope;
use crate::prm::opcode::Opcode;
use crate::prm::queue::{CreateSqIn, CreateSqOut, DestroySqIn, ModifySqIn, QuerySqIn, QuerySqOut, Sqc};
use crate::prm::status::Status;
use crate::prm::values::WqState;

syndromes! {
    /// Checks of send queues.
    pub mod syn = 0x0036_0000;
    1 STRIDE "the stride is not a basic block";
    2 CROSS_CHANNEL "cross-channel synchronization is not advertised";
    3 MULTI_PACKET "multi-packet send WQEs are not advertised";
    4 UMR "UMR on Ethernet send queues is not advertised";
    5 SW_PARSER "software parsing is not advertised";
    6 NON_WIRE "queues that end inside the device are not supported";
    7 TIS_LIST "the list of transport interfaces is longer than log_max_tis_per_sq allows";
    8 RATE_LIMIT "packet pacing and queue groups are not advertised";
    9 TIMESTAMP_CQ "timestamp completions on another queue are not advertised";
    10 INLINE_MODE "min_wqe_inline_mode is reserved";
    11 UNKNOWN_FIELD "modify_bitmask has bits that are not advertised";
}

/// Strides that a send queue may have.
const STRIDES: Strides = Strides { min: "log_min_stride_sz_sq", max: "log_max_stride_sz_sq" };

/// `min_wqe_inline_mode`: nothing, L2, IP, TCP/UDP, inner L2 and so on; five are defined.
const INLINE_MODES: u32 = 5;

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_SQ, create_sq),
    Command::user(Opcode::MODIFY_SQ, modify_sq),
    Command::user(Opcode::QUERY_SQ, query_sq),
    Command::user(Opcode::DESTROY_SQ, destroy_sq),
];

/// Refuses what a context asks for and the capabilities do not advertise.
fn check_features(ctx: &Ctx<'_>, context: &Sqc<&[u8]>) -> Result<(), CmdError> {
    let ethernet = |field| ctx.hca.caps.get(ETHERNET, field) != 0;
    let multi_packet = ethernet("multi_pkt_send_wqe") || ethernet("enhanced_multi_pkt_send_wqe");
    let checks: [(bool, Syndrome); 12] = [
        (context.rlky() != 0 && ctx.uid != 0, wq_syn::RESERVED_LKEY),
        (context.hairpin() != 0, wq_syn::HAIRPIN),
        (context.non_wire() != 0, syn::NON_WIRE),
        (context.cd_master() != 0 && ctx.hca.caps.general("cd") == 0, syn::CROSS_CHANNEL),
        (context.allow_multi_pkt_send_wqe() != 0 && !multi_packet, syn::MULTI_PACKET),
        (context.reg_umr() != 0 && !ethernet("reg_umr_sq"), syn::UMR),
        (context.allow_swp() != 0 && !ethernet("swp"), syn::SW_PARSER),
        (context.min_wqe_inline_mode() >= INLINE_MODES, syn::INLINE_MODE),
        (context.packet_pacing_rate_limit_index() != 0, syn::RATE_LIMIT),
        (context.qos_queue_group_id() != 0, syn::RATE_LIMIT),
        (context.ts_cqe_to_dest_cqn() != 0, syn::TIMESTAMP_CQ),
        // The context has room for one number.
        (context.tis_lst_sz() > 1, syn::TIS_LIST),
    ];
    match checks.iter().find(|(refused, _)| *refused) {
        Some((_, syndrome)) => Err(refuse(*syndrome)),
        None => check_timestamps(ctx, "sq_ts_format", context.ts_format()),
    }
}

fn create_sq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.hca.caps.general("log_max_sq") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    let input = CreateSqIn::new(input)?;
    let context = input.ctx();
    if WqState(context.state() as u8) != WqState::RST {
        return Err(refuse(wq_syn::STATE));
    }
    check_features(ctx, &context)?;
    let wq = work_queue(ctx, &context.wq(), &STRIDES)?;
    if 1 << wq.log_stride != WQEBB {
        return Err(refuse(syn::STRIDE));
    }
    let context = Sqc::new(context.as_bytes()[..Sqc::SIZE].to_vec())?;
    let sq = SendQueue::new(context, wq);
    let deps = sq.deps();
    let sqn = ctx.hca.objects.create(ctx.uid, sq, &deps)?;
    let mut out = CreateSqOut::zeroed();
    out.set_sqn(sqn);
    Ok(out.into_inner())
}

fn modify_sq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifySqIn::new(input)?;
    // Rate limits and queue groups are all that can be modified, and neither is advertised.
    if input.modify_bitmask() != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let (current, new) = (WqState(input.sq_state() as u8), WqState(input.ctx().state() as u8));
    let sq = ctx.hca.objects.get_mut::<SendQueue>(ctx.uid, input.sqn())?;
    if sq.state != current {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, wq_syn::WRONG_STATE));
    }
    if !may_change(current, new) {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, wq_syn::TRANSITION));
    }
    sq.set_state(new);
    if new != WqState::RDY {
        ctx.bus.drain(Scope::Stream(Stream::Queue(input.sqn())));
    }
    if new == WqState::ERR {
        // What is posted is flushed.
        ctx.hca.schedule_sq(input.sqn());
    }
    done()
}

fn query_sq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let sqn = QuerySqIn::new(input)?.sqn();
    let sq = ctx.hca.objects.get::<SendQueue>(ctx.uid, sqn)?;
    let posted = sq.wq.posted_sends(Stream::Queue(sqn), ctx.bus).unwrap_or(sq.executed);
    let mut context = sq.context.clone();
    context.set_state(sq.state.0.into());
    context.wq_mut().set_hw_counter(sq.executed.into());
    context.wq_mut().set_sw_counter(posted.into());
    let pas = sq.wq.buffer.to_pas();
    let mut out = QuerySqOut::with_tail(pas.len());
    out.sq_context_mut().as_bytes_mut()[..Sqc::SIZE].copy_from_slice(context.as_bytes());
    out.sq_context_mut().wq_mut().pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}

fn destroy_sq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let sqn = DestroySqIn::new(input)?.sqn();
    ctx.hca.objects.destroy::<SendQueue>(ctx.uid, sqn)?;
    ctx.bus.drain(Scope::Stream(Stream::Queue(sqn)));
    done()
}
