//! PAGE_FAULT_RESUME (PRM "Page Fault Handling"; kernel `mlx5_ib odp.c:mlx5_ib_page_fault_resume`).

use super::error::{CmdError, common, syndromes};
use super::{Command, Ctx, Reply, unknown_op_mod};
use crate::device::rdma::paging::{Named, NotResumed, Scheme};
use crate::prm::mkey::{PageFaultResumeIn, PageFaultResumeOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

syndromes! {
    /// Checks of page faults.
    pub mod syn = 0x0026_0000;
    1 NO_FAULT "no page fault waits with this token";
    2 OTHER_TYPE "page_fault_type is not that of the fault";
    3 OTHER_QUEUE "wq_number is not that of the fault";
}

pub(super) const COMMANDS: &[Command] = &[Command::running(Opcode::PAGE_FAULT_RESUME, resume)];

fn resume(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let Some(scheme) = ctx.hca.paging.scheme() else {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    };
    let input = PageFaultResumeIn::new(input)?;
    let info = input.page_fault_info();
    let no_fault = CmdError::new(Status::BAD_RES_ERR, syn::NO_FAULT);
    let (token, named, error) = match scheme {
        Scheme::Transport => {
            let info = info.trans_page_fault_info();
            let named = Named::Queue { kind: info.page_fault_type(), number: info.wq_number() };
            (info.fault_token(), named, info.error() != 0)
        }
        Scheme::Memory => {
            let info = info.mem_page_fault_info();
            if info.fault_token_47_32() != 0 {
                return Err(no_fault);
            }
            (info.fault_token_31_0(), Named::Nothing, info.error() != 0)
        }
    };
    ctx.hca.resume_fault(token, named, error, ctx.now).map_err(|why| match why {
        NotResumed::NoFault => no_fault,
        NotResumed::OtherKind => CmdError::new(Status::BAD_PARAM_ERR, syn::OTHER_TYPE),
        NotResumed::OtherQueue => CmdError::new(Status::BAD_PARAM_ERR, syn::OTHER_QUEUE),
    })?;
    Ok(PageFaultResumeOut::zeroed().into_inner())
}
