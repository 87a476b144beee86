//! QUERY_PAGES and MANAGE_PAGES (PRM "Firmware Pages"; kernel `pagealloc.c`).

use super::error::{CmdError, pages as syn};
use super::hca::own_function;
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::hca::Phase;
use crate::device::pages::PAGE;
use crate::dma::Iova;
use crate::prm::hca::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{ManagePages, QueryPages};

const PHASES: &[Phase] = &[Phase::Enabled, Phase::Running];

pub(super) const COMMANDS: &[Command] = &[
    Command { opcode: Opcode::QUERY_PAGES, phases: PHASES, user: false, run: query_pages },
    Command { opcode: Opcode::MANAGE_PAGES, phases: PHASES, user: false, run: manage_pages },
];

fn query_pages(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryPagesIn::new(input)?;
    own_function(input.function_id(), input.embedded_cpu_function())?;
    let pages = &mut ctx.hca.objects.pages;
    let wanted = match QueryPages(ctx.op_mod) {
        QueryPages::BOOT_PAGES => i32::try_from(pages.boot_deficit()).unwrap_or(i32::MAX),
        QueryPages::INIT_PAGES => i32::try_from(pages.init_deficit()).unwrap_or(i32::MAX),
        QueryPages::REGULAR_PAGES => pages.request().unwrap_or(0),
        _ => return Err(unknown_op_mod()),
    };
    let mut out = QueryPagesOut::zeroed();
    out.set_num_pages(wanted as u32); // two's complement: negative asks the driver to take pages back
    Ok(out.into_inner())
}

fn manage_pages(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ManagePagesIn::new(input)?;
    own_function(input.function_id(), input.embedded_cpu_function())?;
    let count = input.input_num_entries();
    match ManagePages(ctx.op_mod) {
        ManagePages::CANT_GIVE => {
            ctx.hca.objects.pages.cannot_give();
            done()
        }
        ManagePages::GIVE => {
            let list = input.pas().chunks_exact(8);
            if list.len() < count as usize {
                return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::COUNT));
            }
            if count > ctx.hca.objects.pages.most_at_a_time() {
                return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::TOO_MANY));
            }
            let pages: Vec<u64> =
                list.take(count as usize).map(|b| u64::from_be_bytes(b.try_into().unwrap_or_default())).collect();
            let reachable = |page: &u64| ctx.bus.map().check_write(Iova(*page), PAGE).is_ok();
            if !pages.iter().all(reachable) {
                return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::NOT_MAPPED));
            }
            ctx.hca.objects.pages.give(&pages)?;
            let mut out = ManagePagesOut::zeroed();
            out.set_output_num_entries(count);
            Ok(out.into_inner())
        }
        ManagePages::TAKE => {
            let running = ctx.hca.phase() == Phase::Running;
            let taken = ctx.hca.objects.pages.take(u64::from(count), running);
            let mut out = ManagePagesOut::with_tail(taken.len() * 8);
            out.set_output_num_entries(taken.len() as u32);
            for (slot, page) in out.pas_mut().chunks_exact_mut(8).zip(&taken) {
                slot.copy_from_slice(&page.to_be_bytes());
            }
            Ok(out.into_inner())
        }
        _ => Err(unknown_op_mod()),
    }
}
