//! CREATE_RQT, MODIFY_RQT, QUERY_RQT, DESTROY_RQT (PRM "RQ Table Commands"; kernel `transobj.c`, `en/rqt.c`).

use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::rq::RqTable;
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::tir::{
    CreateRqtIn, CreateRqtOut, DestroyRqtIn, ModifyRqtIn, QueryRqtIn, QueryRqtOut, RqNum, RqtBitmask, Rqtc,
};

syndromes! {
    /// Checks of RQ tables.
    pub mod syn = 0x0039_0000;
    1 MAX_SIZE "rqt_max_size is 0 or beyond log_max_rqt_size";
    2 ACTUAL_SIZE "rqt_actual_size is not a power of two or beyond rqt_max_size";
    3 QUEUE_TYPE "list_q_type names queues that the device does not have";
    4 OTHER_VHCA "queues of other functions are not advertised";
    5 TRUNCATED "the input is shorter than the list that it announces";
    6 UNKNOWN_FIELD "the bitmask has bits without meaning";
}

/// `rqtc.list_q_type`: receive queues.
const RECEIVE_QUEUES: u32 = 0;

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_RQT, create_rqt),
    Command::user(Opcode::MODIFY_RQT, modify_rqt),
    Command::user(Opcode::QUERY_RQT, query_rqt),
    Command::user(Opcode::DESTROY_RQT, destroy_rqt),
];

fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

/// The queues that `context` lists, `max` at most.
fn queues(context: &Rqtc<&[u8]>, max: u32) -> Result<Vec<u32>, CmdError> {
    if context.list_q_type() != RECEIVE_QUEUES {
        return Err(refuse(syn::QUEUE_TYPE));
    }
    if context.rq_vhca_id_format() != 0 {
        return Err(refuse(syn::OTHER_VHCA));
    }
    let count = context.rqt_actual_size();
    if !count.is_power_of_two() || count > max {
        return Err(refuse(syn::ACTUAL_SIZE));
    }
    let list = context
        .rq_num()
        .get(..count as usize * RqNum::SIZE)
        .ok_or(CmdError::new(Status::BAD_INP_LEN_ERR, syn::TRUNCATED))?;
    list.chunks_exact(RqNum::SIZE).map(|entry| Ok(RqNum::new(entry)?.rq_num())).collect()
}

fn create_rqt(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateRqtIn::new(input)?;
    let context = input.rqt_context();
    let max = context.rqt_max_size();
    if max == 0 || u64::from(max) > 1 << ctx.hca.caps.general("log_max_rqt_size") {
        return Err(refuse(syn::MAX_SIZE));
    }
    let queues = queues(&context, max)?;
    let deps = RqTable::deps(&queues);
    let context = Rqtc::new(context.as_bytes()[..Rqtc::SIZE].to_vec())?;
    let rqtn = ctx.hca.objects.create(ctx.uid, RqTable { context, queues }, &deps)?;
    let mut out = CreateRqtOut::zeroed();
    out.set_rqtn(rqtn);
    Ok(out.into_inner())
}

fn modify_rqt(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyRqtIn::new(input)?;
    let mask = u64::from_be_bytes(*input.bitmask().as_bytes().first_chunk().unwrap_or(&[0; 8]));
    let known = RqtBitmask::LAYOUT.fields.iter().fold(0, |known, f| known | 1u64 << (63 - f.offset));
    if mask & !known != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let rqtn = input.rqtn();
    let max = ctx.hca.objects.get::<RqTable>(ctx.uid, rqtn)?.context.rqt_max_size();
    if input.bitmask().rqn_list() != 0 {
        let queues = queues(&input.ctx(), max)?;
        ctx.hca.objects.depend::<RqTable>(ctx.uid, rqtn, &RqTable::deps(&queues))?;
        let table = ctx.hca.objects.get_mut::<RqTable>(ctx.uid, rqtn)?;
        table.context.set_rqt_actual_size(queues.len() as u32);
        table.queues = queues;
    }
    done()
}

fn query_rqt(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rqtn = QueryRqtIn::new(input)?.rqtn();
    let table = ctx.hca.objects.get::<RqTable>(ctx.uid, rqtn)?;
    let mut out = QueryRqtOut::with_tail(table.queues.len() * RqNum::SIZE);
    let mut context = out.rqt_context_mut();
    context.as_bytes_mut()[..Rqtc::SIZE].copy_from_slice(table.context.as_bytes());
    for (entry, queue) in context.rq_num_mut().chunks_exact_mut(RqNum::SIZE).zip(&table.queues) {
        RqNum::new(entry)?.set_rq_num(*queue);
    }
    Ok(out.into_inner())
}

fn destroy_rqt(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let rqtn = DestroyRqtIn::new(input)?.rqtn();
    ctx.hca.objects.destroy::<RqTable>(ctx.uid, rqtn)?;
    done()
}
