//! ALLOC_UAR and DEALLOC_UAR (PRM "User Access Regions"; kernel `uar.c`).

use super::{Command, Ctx, Reply, done};
use crate::device::uar::Uar;
use crate::prm::opcode::Opcode;
use crate::prm::pd::{AllocUarOut, DeallocUarIn};

pub(super) const COMMANDS: &[Command] =
    &[Command::user(Opcode::ALLOC_UAR, alloc_uar), Command::user(Opcode::DEALLOC_UAR, dealloc_uar)];

fn alloc_uar(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    let uar = ctx.hca.objects.create(ctx.uid, Uar::default(), &[])?;
    if let Some(polling) = &ctx.hca.polling {
        polling.clear_page(uar);
    }
    let mut out = AllocUarOut::zeroed();
    out.set_uar(uar);
    Ok(out.into_inner())
}

fn dealloc_uar(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let uar = DeallocUarIn::new(input)?.uar();
    ctx.hca.objects.destroy_uar(ctx.uid, uar)?;
    done()
}
