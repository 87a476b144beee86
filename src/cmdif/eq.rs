//! CREATE_EQ, DESTROY_EQ, QUERY_EQ (PRM "Event Queue Commands"; kernel `eq.c:create_map_eq`).

use super::error::{CmdError, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::eq::{EQE_SIZE, EventQueue};
use crate::device::objects::{Kind, ObjRef};
use crate::device::page_list::{ADAPTER_PAGE_SHIFT, PageList};
use crate::dma::order::Scope;
use crate::prm::eq::{CreateEqIn, CreateEqOut, DestroyEqIn, Eqc, QueryEqIn, QueryEqOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

syndromes! {
    /// Checks of event queues.
    pub mod syn = 0x0012_0000;
    1 TOO_LARGE "log_eq_size is beyond log_max_eq_sz";
    2 NO_SUCH_VECTOR "intr is beyond the MSI-X table";
    3 EVENT_TAKEN "another event queue takes one of the events already";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::running(Opcode::CREATE_EQ, create_eq),
    Command::running(Opcode::DESTROY_EQ, destroy_eq),
    Command::running(Opcode::QUERY_EQ, query_eq),
];

fn create_eq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateEqIn::new(input)?;
    let context = Eqc::new(input.eq_context_entry().as_bytes().to_vec())?;
    let refuse = |syndrome| Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome));
    let log_size = context.log_eq_size();
    if u64::from(log_size) > ctx.hca.caps.general("log_max_eq_sz") {
        return refuse(syn::TOO_LARGE);
    }
    if context.intr() >= ctx.bus.irq().count() {
        return refuse(syn::NO_SUCH_VECTOR);
    }
    let bitmask: [u64; 4] = std::array::from_fn(|i| input.event_bitmask(i).unwrap_or(0));
    let overlaps = |eq: &EventQueue| eq.event_bitmask.iter().zip(&bitmask).any(|(a, b)| a & b != 0);
    if ctx.hca.objects.eqs.iter().any(|(_, entry)| overlaps(&entry.object)) {
        return refuse(syn::EVENT_TAKEN);
    }
    let shift = context.log_page_size() + ADAPTER_PAGE_SHIFT;
    let offset = u64::from(context.page_offset()) << shift.saturating_sub(6).min(63);
    let buffer = PageList::parse(input.pas(), shift, offset, (EQE_SIZE as u64) << log_size)?;
    let uar = ObjRef { kind: Kind::Uar, id: context.uar_page() };
    let mut eq = EventQueue::new(context, bitmask, buffer);
    eq.set_polled(ctx.hca.polling.is_some());
    let eqn = ctx.hca.objects.create(ctx.uid, eq, &[uar])?;
    let mut out = CreateEqOut::zeroed();
    out.set_eq_number(eqn);
    Ok(out.into_inner())
}

fn destroy_eq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let eqn = DestroyEqIn::new(input)?.eq_number();
    ctx.hca.objects.destroy::<EventQueue>(ctx.uid, eqn)?;
    ctx.bus.drain(Scope::Eq(eqn));
    done()
}

fn query_eq(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let eqn = QueryEqIn::new(input)?.eq_number();
    let eq = ctx.hca.objects.get::<EventQueue>(ctx.uid, eqn)?;
    let pas = eq.pas();
    let mut out = QueryEqOut::with_tail(pas.len());
    out.eq_context_entry_mut().as_bytes_mut().copy_from_slice(eq.queried().as_bytes());
    out.set_event_bitmask(eq.event_bitmask[0]);
    out.pas_mut().copy_from_slice(&pas);
    Ok(out.into_inner())
}
