//! QUERY_ADAPTER and QUERY_VUID (PRM; kernel `fw.c:mlx5_query_board_id`, `mlx5_ib cmd.c:mlx5_cmd_query_vuid`).

use super::error::{CmdError, common};
use super::{Command, Ctx, Reply};
use crate::device::capabilities::GENERAL_2;
use crate::device::hca::Phase;
use crate::prm::hca::{QueryAdapterOut, QueryVuidIn, QueryVuidOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

/// The IEEE OUI of Mellanox.
const IEEE_VENDOR_ID: u32 = 0x00_02c9;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        opcode: Opcode::QUERY_ADAPTER,
        phases: &[Phase::Enabled, Phase::Running],
        user: true,
        run: query_adapter,
    },
    Command::running(Opcode::QUERY_VUID, query_vuid),
];

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

/// Bytes of a unique id.
const VUID: usize = 128;

/// The unique id of the function, or of the data-direct function that belongs to it, by which the driver would find
/// that one on the bus. It is not there: ids end where a guest finds nothing of that name.
fn query_vuid(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let refuse = |syndrome| Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome));
    if ctx.hca.caps.get(GENERAL_2, "query_vuid") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    let input = QueryVuidIn::new(input)?;
    let data_direct = input.data_direct() != 0;
    if data_direct && ctx.hca.caps.general("data_direct") == 0 {
        return refuse(common::NOT_CAPABLE);
    }
    if u64::from(input.vhca_id()) != ctx.hca.caps.general("vhca_id") || input.query_vfs_vuid() != 0 {
        return refuse(common::OTHER_FUNCTION);
    }
    let id = format!("{}MLNXS0D0F{}", ctx.hca.profile.pci.vpd_serial, u32::from(data_direct));
    let mut out = QueryVuidOut::with_tail(VUID);
    out.set_num_of_entries(1);
    for (to, from) in out.vuid_mut().iter_mut().zip(id.bytes()) {
        *to = from;
    }
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn query(data_direct: u32, vhca_id: u32) -> Vec<u8> {
        let mut input = QueryVuidIn::zeroed();
        input.set_opcode(Opcode::QUERY_VUID.0.into());
        input.set_data_direct(data_direct);
        input.set_vhca_id(vhca_id);
        input.into_inner()
    }

    fn rig(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    #[test]
    fn a_function_and_its_data_direct_function_have_different_ids() {
        let id = |rig: &mut Rig, data_direct| {
            let out = QueryVuidOut::new(rig.ok(&query(data_direct, 1), 0x40 + VUID)).expect("long enough");
            String::from_utf8(out.vuid().iter().copied().take_while(|byte| *byte != 0).collect()).expect("ASCII")
        };
        let known = ["caps.general.hca_cap_2=1", "caps.general_2.query_vuid=1", "caps.general.data_direct=1"];
        let mut rig = rig(&known);
        assert_eq!(id(&mut rig, 0), "CX10EMU00001MLNXS0D0F0");
        assert_eq!(id(&mut rig, 1), "CX10EMU00001MLNXS0D0F1");
        let other = rig.exec(&query(0, 2), 0x40 + VUID);
        assert_eq!((other.status(), other.syndrome()), (3, common::OTHER_FUNCTION.0));
        let mut without = self::rig(&known[..2]);
        assert_eq!(without.exec(&query(1, 1), 0x40 + VUID).syndrome(), common::NOT_CAPABLE.0);
        assert_eq!(self::rig(&[]).exec(&query(0, 1), 0x40 + VUID).status(), 2);
    }
}
