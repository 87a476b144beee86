//! QUERY_HCA_CAP and SET_HCA_CAP (PRM "HCA Capabilities"; kernel `main.c:mlx5_core_get_caps`, `set_hca_cap`).

use super::error::{CmdError, common, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::capabilities::AREA;
use crate::device::hca::Phase;
use crate::prm::hca::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::profile::CapMode;

syndromes! {
    /// Checks of capabilities.
    pub mod syn = 0x0011_0000;
    1 NO_SUCH_TYPE "the capability type is not advertised";
    2 BEYOND_MAX "a capability is set beyond its maximum";
    3 SET_MAX "the maximum of a capability cannot be set";
}

pub(super) const COMMANDS: &[Command] = &[
    Command {
        opcode: Opcode::QUERY_HCA_CAP,
        phases: &[Phase::Enabled, Phase::Running],
        user: true,
        run: query_hca_cap,
    },
    Command { opcode: Opcode::SET_HCA_CAP, phases: &[Phase::Enabled], user: false, run: set_hca_cap },
];

fn query_hca_cap(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryHcaCapIn::new(input)?;
    if input.other_function() != 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, common::OTHER_FUNCTION));
    }
    let mode = if ctx.op_mod & 1 != 0 { CapMode::Cur } else { CapMode::Max };
    let area =
        ctx.hca.caps.area(ctx.op_mod >> 1, mode).ok_or(CmdError::new(Status::BAD_PARAM_ERR, syn::NO_SUCH_TYPE))?;
    let mut out = QueryHcaCapOut::zeroed();
    out.set_capability(area);
    Ok(out.into_inner())
}

fn set_hca_cap(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = SetHcaCapIn::new(input)?;
    if input.other_function() != 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, common::OTHER_FUNCTION));
    }
    if ctx.op_mod & 1 != 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::SET_MAX));
    }
    let cap_type = ctx.op_mod >> 1;
    if ctx.hca.caps.area(cap_type, CapMode::Max).is_none() {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::NO_SUCH_TYPE));
    }
    let wanted: &[u8; AREA] = input.capability();
    ctx.hca.caps.set(cap_type, wanted, syn::BEYOND_MAX)?;
    done()
}
