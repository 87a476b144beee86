//! CREATE, DESTROY, QUERY and arming of RMPs, XRC SRQs and the SRQs of interface step 0 (PRM "RMP Commands", "XRC SRQ
//! Commands", "SRQ Commands"; kernel `srq_cmd.c`).
//!
//! XRQs (tag matching) are not advertised and not served.

use super::buffer::{Access, Memory, UmemPart, doorbell_record, queue_memory};
use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::objects::{Kind, ObjRef};
use crate::device::srq::{Pool, Rmp, Srq, XrcSrq};
use crate::dma::order::Scope;
use crate::prm::opcode::Opcode;
use crate::prm::srq::{
    ArmRqIn, ArmXrcSrqIn, CreateRmpIn, CreateRmpOut, CreateSrqIn, CreateSrqOut, CreateXrcSrqIn, CreateXrcSrqOut,
    DestroyRmpIn, DestroySrqIn, DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut, QuerySrqIn, QuerySrqOut,
    QueryXrcSrqIn, QueryXrcSrqOut, Rmpc, Srqc, XrcSrqc,
};
use crate::prm::status::Status;
use crate::prm::values::{RmpState, WqType};

syndromes! {
    /// Checks of shared receive queues.
    pub mod syn = 0x0015_0000;
    1 TOO_LARGE "the number of entries is beyond log_max_srq_sz or log_max_wq_sz";
    2 STRIDE "the entry's size is below 32 bytes or beyond log_max_stride_sz_rq";
    3 WQ_TYPE "the work queue is not a linked list";
    4 SIGNATURE "wq_signature is not advertised";
    5 CYCLIC "basic_cyclic_rcv_wqe is not advertised";
    6 CONTINUOUS "cont_srq is not supported";
    7 RESERVED_LKEY "rlky is not for user contexts";
    8 STATE "the state given is not one that this command can lead to";
    9 WRONG_STATE "the present state is another one than the command says";
    10 UNKNOWN_FIELD "the bitmask has a bit that is unknown";
    11 USER_MEMORY "user memory objects are not supported for XRC SRQs";
    12 INTERFACE_STEP "SRQ commands belong to interface step 0; the driver chose another";
    13 NOT_CAPABLE "XRC is not advertised";
    14 LIMIT "the limit is beyond the number of entries";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_RMP, create_rmp),
    Command::user(Opcode::MODIFY_RMP, modify_rmp),
    Command::user(Opcode::DESTROY_RMP, destroy_rmp),
    Command::user(Opcode::QUERY_RMP, query_rmp),
    Command::user(Opcode::CREATE_XRC_SRQ, create_xrc_srq),
    Command::user(Opcode::DESTROY_XRC_SRQ, destroy_xrc_srq),
    Command::user(Opcode::QUERY_XRC_SRQ, query_xrc_srq),
    Command::user(Opcode::ARM_XRC_SRQ, arm_xrc_srq),
    Command::user(Opcode::CREATE_SRQ, create_srq),
    Command::user(Opcode::DESTROY_SRQ, destroy_srq),
    Command::user(Opcode::QUERY_SRQ, query_srq),
    Command::user(Opcode::ARM_RQ, arm_rq),
];

fn refuse<T>(syndrome: Syndrome) -> Result<T, CmdError> {
    Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome))
}

/// What the three contexts say in their own ways.
struct Wanted<'a> {
    log_size: u32,
    /// Capability that bounds `log_size`.
    size_cap: &'static str,
    log_stride: u32,
    signature: bool,
    cyclic: bool,
    continuous: bool,
    reserved_lkey: bool,
    memory: Memory<'a>,
    record: u64,
    record_umem: Option<u32>,
}

/// Checks a shared receive queue and finds its memory; with it what the queue depends on besides its numbers.
fn pool(ctx: &Ctx<'_>, wanted: &Wanted<'_>) -> Result<(Pool, Vec<ObjRef>), CmdError> {
    let cap = |name| ctx.hca.caps.general(name);
    if u64::from(wanted.log_size) > cap(wanted.size_cap) {
        return refuse(syn::TOO_LARGE);
    }
    // A link and one scatter entry.
    const MIN_LOG_STRIDE: u32 = 5;
    if wanted.log_stride < MIN_LOG_STRIDE || u64::from(wanted.log_stride) > cap("log_max_stride_sz_rq") {
        return refuse(syn::STRIDE);
    }
    if wanted.signature && cap("wq_signature") == 0 {
        return refuse(syn::SIGNATURE);
    }
    if wanted.cyclic {
        return refuse(syn::CYCLIC);
    }
    if wanted.continuous {
        return refuse(syn::CONTINUOUS);
    }
    if wanted.reserved_lkey && ctx.uid != 0 {
        return refuse(syn::RESERVED_LKEY);
    }
    let (buffer, umem) =
        queue_memory(ctx, wanted.memory, Pool::bytes(wanted.log_size, wanted.log_stride), Access::Read)?;
    let (record, record_umem) = doorbell_record(ctx, wanted.record_umem, wanted.record)?;
    let pool = Pool::new(buffer, record, wanted.log_size, wanted.log_stride);
    Ok((pool, umem.into_iter().chain(record_umem).collect()))
}

fn check_limit(pool: &Pool, limit: u32) -> Result<u16, CmdError> {
    match u16::try_from(limit) {
        Ok(limit) if u64::from(limit) <= 1 << pool.log_size => Ok(limit),
        _ => refuse(syn::LIMIT),
    }
}

fn create_rmp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateRmpIn::new(input)?;
    let context = input.ctx();
    let wq = context.wq();
    if RmpState(context.state() as u8) != RmpState::RDY {
        return refuse(syn::STATE);
    }
    if WqType(wq.wq_type() as u8) != WqType::LINKED_LIST {
        return refuse(syn::WQ_TYPE);
    }
    let part = UmemPart { id: wq.wq_umem_id(), offset: wq.wq_umem_offset() };
    let wanted = Wanted {
        log_size: wq.log_wq_sz(),
        size_cap: "log_max_wq_sz",
        log_stride: wq.log_wq_stride(),
        signature: wq.wq_signature() != 0,
        cyclic: context.basic_cyclic_rcv_wqe() != 0,
        continuous: false,
        reserved_lkey: false,
        memory: Memory {
            umem: (wq.wq_umem_valid() != 0).then_some(part),
            pas: wq.pas(),
            log_page_size: wq.log_wq_pg_sz(),
            page_offset: wq.page_offset(),
        },
        record: wq.dbr_addr(),
        record_umem: (wq.dbr_umem_valid() != 0).then_some(wq.dbr_umem_id()),
    };
    let (pool, mut deps) = pool(ctx, &wanted)?;
    let limit = check_limit(&pool, wq.lwm())?;
    deps.push(ObjRef { kind: Kind::Pd, id: wq.pd() });
    let context = Rmpc::new(context.as_bytes()[..Rmpc::SIZE].to_vec())?;
    let rmpn = ctx.hca.objects.create(ctx.uid, Rmp { context, pool }, &deps)?;
    arm_rmp(ctx, rmpn, limit)?;
    let mut out = CreateRmpOut::zeroed();
    out.set_rmpn(rmpn);
    Ok(out.into_inner())
}

fn arm_rmp(ctx: &mut Ctx<'_>, rmpn: u32, limit: u16) -> Result<(), CmdError> {
    if ctx.hca.objects.get_mut::<Rmp>(ctx.uid, rmpn)?.pool.arm(rmpn, limit, ctx.bus) {
        ctx.hca.srq_limit_reached(rmpn);
    }
    Ok(())
}

fn modify_rmp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyRmpIn::new(input)?;
    let rmpn = input.rmpn();
    let rmp = ctx.hca.objects.get::<Rmp>(ctx.uid, rmpn)?;
    let present = rmp.state();
    if RmpState(input.rmp_state() as u8) != present {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::WRONG_STATE));
    }
    let next = RmpState(input.ctx().state() as u8);
    let allowed = matches!((present, next), (RmpState::RDY, RmpState::RDY | RmpState::ERR));
    if !allowed && present != next {
        return refuse(syn::STATE);
    }
    const LWM: u64 = 1;
    let fields = u64::from_be_bytes(input.bitmask().as_bytes().try_into().unwrap_or_default());
    if fields & !LWM != 0 {
        return refuse(syn::UNKNOWN_FIELD);
    }
    let limit = (fields & LWM != 0).then(|| check_limit(&rmp.pool, input.ctx().wq().lwm())).transpose()?;
    ctx.hca.objects.get_mut::<Rmp>(ctx.uid, rmpn)?.context.set_state(u32::from(next.0));
    if let Some(limit) = limit {
        arm_rmp(ctx, rmpn, limit)?;
    }
    done()
}

fn destroy_rmp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rmpn = DestroyRmpIn::new(input)?.rmpn();
    ctx.hca.objects.destroy::<Rmp>(ctx.uid, rmpn)?;
    ctx.bus.drain(Scope::All);
    done()
}

fn query_rmp(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rmpn = QueryRmpIn::new(input)?.rmpn();
    let context = ctx.hca.objects.get_mut::<Rmp>(ctx.uid, rmpn)?.queried(rmpn, ctx.bus);
    let mut out = QueryRmpOut::zeroed();
    out.rmp_context_mut().as_bytes_mut().copy_from_slice(context.as_bytes());
    Ok(out.into_inner())
}

fn create_xrc_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateXrcSrqIn::new(input)?;
    if ctx.hca.caps.general("xrc") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, syn::NOT_CAPABLE));
    }
    let mut context = XrcSrqc::new(input.xrc_srq_context_entry().as_bytes().to_vec())?;
    if input.xrc_srq_umem_valid() != 0 || context.dbr_umem_valid() != 0 {
        // Where the command names the objects is not public.
        return refuse(syn::USER_MEMORY);
    }
    let wanted = Wanted {
        log_size: context.log_xrc_srq_size(),
        size_cap: "log_max_srq_sz",
        log_stride: context.log_rq_stride() + 4,
        signature: context.wq_signature() != 0,
        cyclic: context.basic_cyclic_rcv_wqe() != 0,
        continuous: context.cont_srq() != 0,
        reserved_lkey: context.rlky() != 0,
        memory: Memory {
            umem: None,
            pas: input.pas(),
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
        },
        record: u64::from(context.db_record_addr_h()) << 32 | u64::from(context.db_record_addr_l()) << 2,
        record_umem: None,
    };
    let (pool, mut deps) = pool(ctx, &wanted)?;
    let limit = check_limit(&pool, context.lwm())?;
    deps.extend([
        ObjRef { kind: Kind::Pd, id: context.pd() },
        ObjRef { kind: Kind::Xrcd, id: context.xrcd() },
        ObjRef { kind: Kind::Cq, id: context.cqn() },
    ]);
    context.set_wqe_cnt(0);
    let xrc_srqn = ctx.hca.objects.create(ctx.uid, XrcSrq { context, pool }, &deps)?;
    let created = ctx.hca.objects.get_mut::<XrcSrq>(ctx.uid, xrc_srqn)?;
    if created.context.user_index_equal_xrc_srqn() != 0 {
        created.context.set_user_index(xrc_srqn);
    }
    arm_xrc(ctx, xrc_srqn, limit)?;
    let mut out = CreateXrcSrqOut::zeroed();
    out.set_xrc_srqn(xrc_srqn);
    Ok(out.into_inner())
}

fn arm_xrc(ctx: &mut Ctx<'_>, xrc_srqn: u32, limit: u16) -> Result<(), CmdError> {
    if ctx.hca.objects.get_mut::<XrcSrq>(ctx.uid, xrc_srqn)?.pool.arm(xrc_srqn, limit, ctx.bus) {
        ctx.hca.srq_limit_reached(xrc_srqn);
    }
    Ok(())
}

fn destroy_xrc_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let xrc_srqn = DestroyXrcSrqIn::new(input)?.xrc_srqn();
    ctx.hca.objects.destroy::<XrcSrq>(ctx.uid, xrc_srqn)?;
    // Any XRC queue pair of its domain may have used its entries.
    ctx.bus.drain(Scope::All);
    done()
}

fn query_xrc_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let xrc_srqn = QueryXrcSrqIn::new(input)?.xrc_srqn();
    let srq = ctx.hca.objects.get_mut::<XrcSrq>(ctx.uid, xrc_srqn)?;
    let pas = srq.pool.buffer.to_pas();
    let mut out = QueryXrcSrqOut::with_tail(pas.len());
    out.xrc_srq_context_entry_mut().as_bytes_mut().copy_from_slice(srq.queried(xrc_srqn, ctx.bus).as_bytes());
    out.pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}

fn arm_xrc_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    const XRC_SRQ: u16 = 1;
    let input = ArmXrcSrqIn::new(input)?;
    if ctx.op_mod != XRC_SRQ {
        return Err(unknown_op_mod());
    }
    let limit = check_limit(&ctx.hca.objects.get::<XrcSrq>(ctx.uid, input.xrc_srqn())?.pool, input.lwm())?;
    arm_xrc(ctx, input.xrc_srqn(), limit)?;
    done()
}

/// SRQ commands exist in interface step 0 only; later ones have RMPs.
fn step_0(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.hca.issi == 0 { Ok(()) } else { Err(CmdError::new(Status::BAD_OP_ERR, syn::INTERFACE_STEP)) }
}

fn create_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    step_0(ctx)?;
    let input = CreateSrqIn::new(input)?;
    let context = Srqc::new(input.srq_context_entry().as_bytes().to_vec())?;
    let wanted = Wanted {
        log_size: context.log_srq_size(),
        size_cap: "log_max_srq_sz",
        log_stride: context.log_rq_stride() + 4,
        signature: context.wq_signature() != 0,
        cyclic: false,
        continuous: context.cont_srq() != 0,
        reserved_lkey: context.rlky() != 0,
        memory: Memory {
            umem: None,
            pas: input.pas(),
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
        },
        record: context.dbr_addr(),
        record_umem: None,
    };
    let (pool, mut deps) = pool(ctx, &wanted)?;
    let limit = check_limit(&pool, context.lwm())?;
    // The driver fills in an XRC domain and a CQ; the queue uses neither.
    deps.push(ObjRef { kind: Kind::Pd, id: context.pd() });
    let srqn = ctx.hca.objects.create(ctx.uid, Srq { context, pool }, &deps)?;
    arm_basic(ctx, srqn, limit)?;
    let mut out = CreateSrqOut::zeroed();
    out.set_srqn(srqn);
    Ok(out.into_inner())
}

fn arm_basic(ctx: &mut Ctx<'_>, srqn: u32, limit: u16) -> Result<(), CmdError> {
    if ctx.hca.objects.get_mut::<Srq>(ctx.uid, srqn)?.pool.arm(srqn, limit, ctx.bus) {
        ctx.hca.srq_limit_reached(srqn);
    }
    Ok(())
}

fn destroy_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    step_0(ctx)?;
    let srqn = DestroySrqIn::new(input)?.srqn();
    ctx.hca.objects.destroy::<Srq>(ctx.uid, srqn)?;
    ctx.bus.drain(Scope::All);
    done()
}

fn query_srq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    step_0(ctx)?;
    let srqn = QuerySrqIn::new(input)?.srqn();
    let srq = ctx.hca.objects.get_mut::<Srq>(ctx.uid, srqn)?;
    let pas = srq.pool.buffer.to_pas();
    let mut out = QuerySrqOut::with_tail(pas.len());
    out.srq_context_entry_mut().as_bytes_mut().copy_from_slice(srq.queried(srqn, ctx.bus).as_bytes());
    out.pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}

fn arm_rq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    const SRQ: u16 = 1;
    step_0(ctx)?;
    let input = ArmRqIn::new(input)?;
    if ctx.op_mod != SRQ {
        return Err(unknown_op_mod());
    }
    let srqn = input.srq_number();
    let limit = check_limit(&ctx.hca.objects.get::<Srq>(ctx.uid, srqn)?.pool, input.lwm())?;
    arm_basic(ctx, srqn, limit)?;
    done()
}

#[cfg(test)]
mod tests;
