//! QUERY_ADAPTER (PRM; kernel `fw.c:mlx5_query_board_id`).

use super::{Command, Ctx, Reply};
use crate::device::hca::Phase;
use crate::prm::hca::QueryAdapterOut;
use crate::prm::opcode::Opcode;

/// The IEEE OUI of Mellanox.
const IEEE_VENDOR_ID: u32 = 0x00_02c9;

pub(super) const COMMANDS: &[Command] = &[Command {
    opcode: Opcode::QUERY_ADAPTER,
    phases: &[Phase::Enabled, Phase::Running],
    user: true,
    run: query_adapter,
}];

fn query_adapter(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    let mut out = QueryAdapterOut::zeroed();
    let mut adapter = out.query_adapter_struct_mut();
    adapter.set_ieee_vendor_id(IEEE_VENDOR_ID);
    adapter.set_vsd_vendor_id(u32::from(ctx.hca.profile.pci.vendor_id));
    for (to, from) in adapter.vsd_contd_psid_mut().iter_mut().zip(ctx.hca.profile.firmware.psid.bytes()) {
        *to = from;
    }
    Ok(out.into_inner())
}
