//! ATTACH_TO_MCG and DETACH_FROM_MCG (PRM "Multicast Group Commands"; kernel `cmd.c:mlx5_cmd_attach_mcg`).

use super::error::{CmdError, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::multicast::{AttachError, MEMBER_BYTES, is_multicast};
use crate::device::qp::{QueuePair, Service};
use crate::prm::opcode::Opcode;
use crate::prm::qp::{AttachToMcgIn, DetachFromMcgIn};
use crate::prm::status::Status;

syndromes! {
    /// Checks of multicast groups.
    pub mod syn = 0x0016_0000;
    1 NOT_MULTICAST "the group's address is not a multicast address";
    2 NOT_DATAGRAM "only unreliable datagram queue pairs join groups";
    3 ATTACHED "the queue pair is a member already";
    4 NOT_ATTACHED "the queue pair is not a member";
    5 GROUP_FULL "the group has max_qp_mcg members";
    6 TOO_MANY_GROUPS "there are as many groups as log_max_mcg allows";
}

pub(super) const COMMANDS: &[Command] =
    &[Command::user(Opcode::ATTACH_TO_MCG, attach_to_mcg), Command::user(Opcode::DETACH_FROM_MCG, detach_from_mcg)];

fn attach_to_mcg(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = AttachToMcgIn::new(input)?;
    let gid = *input.multicast_gid();
    if !is_multicast(&gid) {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::NOT_MULTICAST));
    }
    let (max_members, max_groups) = (ctx.hca.caps.general("max_qp_mcg"), ctx.hca.caps.general("log_max_mcg"));
    let max_groups = 1u64.checked_shl(max_groups as u32).unwrap_or(u64::MAX);
    let qp = ctx.hca.objects.get_mut::<QueuePair>(ctx.uid, input.qpn())?;
    if qp.service() != Service::Ud {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::NOT_DATAGRAM));
    }
    let groups = qp.groups + 1;
    ctx.hca.objects.pages.charge(MEMBER_BYTES)?;
    if let Err(error) = ctx.hca.multicast.attach(gid, input.qpn(), max_members, max_groups) {
        ctx.hca.objects.pages.refund(MEMBER_BYTES);
        return Err(match error {
            AttachError::Attached => CmdError::new(Status::BAD_RES_STATE_ERR, syn::ATTACHED),
            AttachError::GroupFull => CmdError::new(Status::LIM_ERR, syn::GROUP_FULL),
            AttachError::TooManyGroups => CmdError::new(Status::LIM_ERR, syn::TOO_MANY_GROUPS),
        });
    }
    ctx.hca.objects.get_mut::<QueuePair>(ctx.uid, input.qpn())?.groups = groups;
    done()
}

fn detach_from_mcg(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = DetachFromMcgIn::new(input)?;
    let gid = *input.multicast_gid();
    let qp = ctx.hca.objects.get_mut::<QueuePair>(ctx.uid, input.qpn())?;
    if !ctx.hca.multicast.detach(&gid, input.qpn()) {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::NOT_ATTACHED));
    }
    qp.groups -= 1;
    ctx.hca.objects.pages.refund(MEMBER_BYTES);
    done()
}
