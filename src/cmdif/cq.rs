//! CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ (PRM "Completion Queue Commands"; kernel `cq.c`, `en_main.c`).

use super::buffer::{Access, Memory, UmemPart, doorbell_record, queue_memory};
use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::cq::{self, CompletionQueue, ResizeError, Ring};
use crate::device::objects::{Kind, ObjRef};
use crate::dma::order::Scope;
use crate::prm::cq::{Cqc, CreateCqIn, CreateCqOut, DestroyCqIn, ModifyCqIn, QueryCqIn, QueryCqOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{CqeSize, ModifyCq};

syndromes! {
    /// Checks of completion queues.
    pub mod syn = 0x0013_0000;
    1 TOO_LARGE "log_cq_size is beyond log_max_cq_sz";
    2 CQE_SIZE "cqe_sz is unknown, or needs a capability that is not advertised";
    3 ENTRY_STRADDLES "page_offset or the umem offset is not a multiple of the entry's size";
    4 COMPRESSION "CQE compression is not advertised";
    5 OVERRUN_IGNORE "oi needs cq_oi, which is not advertised";
    6 PERIOD_MODE "cq_period_mode is unknown, or needs cq_period_start_from_cqe";
    7 MODERATION "cq_period and cq_max_count need cq_moderation, which is not advertised";
    8 BREAK_MODERATION "scqe_break_moderation_en needs scqe_break_moderation, which is not advertised";
    9 APU "an application processing unit's queue is asked for, and there is none";
    10 UNKNOWN_FIELD "modify_field_select has a bit that is unknown";
    11 FIELD_NOT_CAPABLE "modify_field_select has a bit whose capability is not advertised";
    12 RESIZE "resizing needs cq_resize, which is not advertised";
    13 OUTSTANDING "more completions wait than the resize leaves room for";
    14 IN_ERROR "the completion queue is in error";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_CQ, create_cq),
    Command::user(Opcode::DESTROY_CQ, destroy_cq),
    Command::user(Opcode::QUERY_CQ, query_cq),
    Command::user(Opcode::MODIFY_CQ, modify_cq),
];

fn refuse<T>(syndrome: Syndrome) -> Result<T, CmdError> {
    Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome))
}

/// Checks what moderates a queue's events.
fn check_moderation(ctx: &Ctx<'_>, context: &Cqc<impl AsRef<[u8]>>) -> Result<(), CmdError> {
    const FROM_EQE: u32 = 0;
    const FROM_CQE: u32 = 1;
    match context.cq_period_mode() {
        FROM_EQE => {}
        FROM_CQE if ctx.hca.caps.general("cq_period_start_from_cqe") != 0 => {}
        _ => return refuse(syn::PERIOD_MODE),
    }
    if (context.cq_period() != 0 || context.cq_max_count() != 0) && ctx.hca.caps.general("cq_moderation") == 0 {
        return refuse(syn::MODERATION);
    }
    Ok(())
}

/// The ring that a context and the memory of the command describe.
fn ring(ctx: &Ctx<'_>, context: &Cqc<Vec<u8>>, memory: Memory<'_>) -> Result<(Ring, Option<ObjRef>), CmdError> {
    let log_size = context.log_cq_size();
    if u64::from(log_size) > ctx.hca.caps.general("log_max_cq_sz") {
        return refuse(syn::TOO_LARGE);
    }
    let padded = context.cqe_sz() == u32::from(CqeSize::SIZE_128_PAD.0);
    let stride = cq::stride(context.cqe_sz()).filter(|_| !padded || ctx.hca.caps.general("cqe_128_always") != 0);
    let Some(stride) = stride else { return refuse(syn::CQE_SIZE) };
    let (buffer, umem) = queue_memory(ctx, memory, stride << log_size, Access::Write)?;
    if !buffer.aligned(stride) {
        return refuse(syn::ENTRY_STRADDLES);
    }
    Ok((Ring { buffer, log_size, stride }, umem))
}

fn create_cq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateCqIn::new(input)?;
    let context = Cqc::new(input.cq_context().as_bytes().to_vec())?;
    if context.apu_cq() != 0 {
        return refuse(syn::APU);
    }
    if context.cqe_comp_en() != 0 || context.cqe_compression_layout() != 0 {
        return refuse(syn::COMPRESSION);
    }
    if context.oi() != 0 && ctx.hca.caps.general("cq_oi") == 0 {
        return refuse(syn::OVERRUN_IGNORE);
    }
    if context.scqe_break_moderation_en() != 0 && ctx.hca.caps.general("scqe_break_moderation") == 0 {
        return refuse(syn::BREAK_MODERATION);
    }
    check_moderation(ctx, &context)?;
    let umem = UmemPart { id: input.cq_umem_id(), offset: input.cq_umem_offset() };
    let memory = Memory {
        umem: (input.cq_umem_valid() != 0).then_some(umem),
        pas: input.pas(),
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
    };
    let (ring, ring_umem) = ring(ctx, &context, memory)?;
    let record_umem = (context.dbr_umem_valid() != 0).then_some(context.dbr_umem_id());
    let (record, record_umem) = doorbell_record(ctx, record_umem, context.dbr_addr())?;
    let cq = CompletionQueue::new(context, ring, record, record_umem);
    let deps = cq.deps(ring_umem);
    let cqn = ctx.hca.objects.create(ctx.uid, cq, &deps)?;
    let mut out = CreateCqOut::zeroed();
    out.set_cqn(cqn);
    Ok(out.into_inner())
}

fn destroy_cq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let cqn = DestroyCqIn::new(input)?.cqn();
    let cq = ctx.hca.objects.destroy::<CompletionQueue>(ctx.uid, cqn)?;
    ctx.bus.drain(Scope::Cq(cqn));
    ctx.hca.cq_events.forget(cqn, &cq);
    done()
}

fn query_cq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let cqn = QueryCqIn::new(input)?.cqn();
    let cq = ctx.hca.objects.get_mut::<CompletionQueue>(ctx.uid, cqn)?;
    let pas = cq.ring().buffer.to_pas();
    let mut out = QueryCqOut::with_tail(pas.len());
    out.cq_context_mut().as_bytes_mut().copy_from_slice(cq.queried(cqn, ctx.bus).as_bytes());
    out.pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}

fn modify_cq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyCqIn::new(input)?;
    match ModifyCq(ctx.op_mod) {
        ModifyCq::MODIFY => modify(ctx, &input),
        ModifyCq::RESIZE => resize(ctx, &input),
        _ => Err(unknown_op_mod()),
    }
}

/// `modify_field_select` bits with the capability that each needs.
mod select {
    pub const PERIOD: u32 = 1 << 0;
    pub const MAX_COUNT: u32 = 1 << 1;
    pub const OVERRUN: u32 = 1 << 2;
    pub const C_EQN: u32 = 1 << 3;
    pub const PERIOD_MODE: u32 = 1 << 4;
    pub const CAPABILITIES: &[(u32, &str)] = &[
        (PERIOD, "cq_moderation"),
        (MAX_COUNT, "cq_moderation"),
        (OVERRUN, "cq_oi"),
        (C_EQN, "cq_eq_remap"),
        (PERIOD_MODE, "cq_period_mode_modify"),
    ];
    pub const ALL: u32 = PERIOD | MAX_COUNT | OVERRUN | C_EQN | PERIOD_MODE;
}

fn modify(ctx: &mut Ctx<'_>, input: &ModifyCqIn<&[u8]>) -> Reply {
    let cqn = input.cqn();
    let fields = input.modify_field_select_resize_field_select().modify_field_select().modify_field_select();
    if fields & !select::ALL != 0 {
        return refuse(syn::UNKNOWN_FIELD);
    }
    if select::CAPABILITIES.iter().any(|(bit, cap)| fields & bit != 0 && ctx.hca.caps.general(cap) == 0) {
        return refuse(syn::FIELD_NOT_CAPABLE);
    }
    let wanted = input.cq_context();
    let mut context = ctx.hca.objects.get::<CompletionQueue>(ctx.uid, cqn)?.context.clone();
    if fields & select::PERIOD != 0 {
        context.set_cq_period(wanted.cq_period());
    }
    if fields & select::MAX_COUNT != 0 {
        context.set_cq_max_count(wanted.cq_max_count());
    }
    if fields & select::OVERRUN != 0 {
        context.set_oi(wanted.oi());
    }
    if fields & select::PERIOD_MODE != 0 {
        context.set_cq_period_mode(wanted.cq_period_mode());
    }
    check_moderation(ctx, &context)?;
    if fields & select::C_EQN != 0 {
        context.set_c_eqn_or_apu_element(wanted.c_eqn_or_apu_element());
        let mut deps = ctx.hca.objects.entry::<CompletionQueue>(ctx.uid, cqn)?.deps().to_vec();
        deps.iter_mut().filter(|dep| dep.kind == Kind::Eq).for_each(|eq| eq.id = wanted.c_eqn_or_apu_element());
        ctx.hca.objects.depend::<CompletionQueue>(ctx.uid, cqn, &deps)?;
    }
    ctx.hca.objects.get_mut::<CompletionQueue>(ctx.uid, cqn)?.context = context;
    ctx.hca.cq_changed(cqn, ctx.now);
    done()
}

fn resize(ctx: &mut Ctx<'_>, input: &ModifyCqIn<&[u8]>) -> Reply {
    const LOG_SIZE: u32 = 1 << 0;
    const PAGE_OFFSET: u32 = 1 << 1;
    const PAGE_SIZE: u32 = 1 << 2;
    let cqn = input.cqn();
    if ctx.hca.caps.general("cq_resize") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, syn::RESIZE));
    }
    let fields = input.modify_field_select_resize_field_select().resize_field_select().resize_field_select();
    if fields & !(LOG_SIZE | PAGE_OFFSET | PAGE_SIZE) != 0 {
        return refuse(syn::UNKNOWN_FIELD);
    }
    let wanted = input.cq_context();
    let mut context = ctx.hca.objects.get::<CompletionQueue>(ctx.uid, cqn)?.context.clone();
    if fields & LOG_SIZE != 0 {
        context.set_log_cq_size(wanted.log_cq_size());
    }
    if fields & PAGE_OFFSET != 0 {
        context.set_page_offset(wanted.page_offset());
    }
    if fields & PAGE_SIZE != 0 {
        context.set_log_page_size(wanted.log_page_size());
    }
    // No bit selects the size of an entry, and the driver always fills it in.
    context.set_cqe_sz(wanted.cqe_sz());
    let umem = UmemPart { id: input.cq_umem_id(), offset: input.cq_umem_offset() };
    let memory = Memory {
        umem: (input.cq_umem_valid() != 0).then_some(umem),
        pas: input.pas(),
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
    };
    let (ring, ring_umem) = ring(ctx, &context, memory)?;
    let failure = |error| match error {
        ResizeError::Outstanding => CmdError::new(Status::BAD_SIZE_OUTS_CQES_ERR, syn::OUTSTANDING),
        ResizeError::InError => CmdError::new(Status::BAD_RES_STATE_ERR, syn::IN_ERROR),
    };
    let cq = ctx.hca.objects.get_mut::<CompletionQueue>(ctx.uid, cqn)?;
    cq.may_resize(cqn, &ring, ctx.bus).map_err(failure)?;
    let mut deps = cq.deps(ring_umem);
    let held = ctx.hca.objects.entry::<CompletionQueue>(ctx.uid, cqn)?.deps();
    // Its page may have gone.
    deps.retain(|dep| dep.kind != Kind::Uar || held.contains(dep));
    let extra = ring.extra();
    ctx.hca.objects.recharge::<CompletionQueue>(ctx.uid, cqn, extra)?;
    ctx.hca.objects.depend::<CompletionQueue>(ctx.uid, cqn, &deps)?;
    let cq = ctx.hca.objects.get_mut::<CompletionQueue>(ctx.uid, cqn)?;
    if let Err(syndrome) = cq.resize(cqn, ring, context, ctx.bus) {
        ctx.hca.cq_failed(cqn, syndrome);
        return Err(failure(ResizeError::InError));
    }
    // The old ring is the driver's when the command completes.
    ctx.bus.drain(Scope::Cq(cqn));
    done()
}

#[cfg(test)]
mod tests;
