//! Registers about the firmware: MCAM, MCQS, MCQI (PRM "Management Capabilities", "Firmware Component"; kernel
//! `fw.c:mlx5_fw_version_query`).
//!
//! The firmware has one component, the image that runs. It cannot be updated: there is nothing to update.

use super::{Image, Register, refuse, registers, syn};
use crate::cmdif::Ctx;
use crate::cmdif::error::CmdError;
use crate::prm::bits;
use crate::prm::commands::RegisterId;
use crate::prm::reg_device::{McamReg, McqiCap, McqiReg, McqiVersion, McqsReg};

pub(super) const REGISTERS: &[Register] = &[
    Register { id: RegisterId::MCAM, read: read_mcam, write: None },
    Register { id: RegisterId::MCQS, read: read_mcqs, write: None },
    Register { id: RegisterId::MCQI, read: read_mcqi, write: None },
];

/// First register of group 0, and how many registers a group has.
const MCAM_FIRST: u32 = 0x9000;
const MCAM_GROUP: u32 = 128;
/// Groups that exist; the driver asks for all but the second.
const MCAM_GROUPS: u32 = 4;

fn check_mcam(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.hca.caps.general("mcam_reg") == 0 { Err(refuse(syn::UNKNOWN_REGISTER)) } else { Ok(()) }
}

fn read_mcam(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    check_mcam(ctx)?;
    let mcam = McamReg::new(data)?;
    let group = mcam.access_reg_group();
    if mcam.feature_group() != 0 || group >= MCAM_GROUPS {
        return Err(refuse(syn::NO_SUCH_GROUP));
    }
    let mut out = McamReg::zeroed();
    out.set_access_reg_group(group);
    {
        let first = MCAM_FIRST + group * MCAM_GROUP;
        let mut mask = out.mng_access_reg_cap_mask_mut();
        let tracer = ctx.hca.profile.firmware.tracer;
        let exists = |id: &RegisterId| tracer || !super::tracer::REGISTERS.iter().any(|register| register.id == *id);
        for id in registers().map(|register| register.id).filter(exists).map(|id| u32::from(id.0)) {
            if let Some(bit) = id.checked_sub(first).filter(|bit| *bit < MCAM_GROUP) {
                // Bit n of the mask stands for the group's register n; bit 0 comes last.
                bits::set(mask.as_bytes_mut(), MCAM_GROUP - 1 - bit, 1, 1);
            }
        }
    }
    Ok(out.into_inner())
}

/// `mcqs_reg.identifier`: boot image.
const BOOT_IMAGE: u32 = 1;
/// `component_status`: present.
const PRESENT: u32 = 1;
/// `component_update_state`: no update is under way.
const IDLE: u32 = 0;

fn check_component(ctx: &Ctx<'_>, index: u32) -> Result<(), CmdError> {
    check_mcam(ctx)?;
    if index == 0 { Ok(()) } else { Err(refuse(syn::COMPONENT)) }
}

fn read_mcqs(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    check_component(ctx, McqsReg::new(data)?.component_index())?;
    let mut out = McqsReg::zeroed();
    out.set_last_index_flag(1);
    out.set_identifier(BOOT_IMAGE);
    out.set_component_status(PRESENT);
    out.set_component_update_state(IDLE);
    Ok(out.into_inner())
}

/// `mcqi_reg.info_type`.
const INFO_CAPABILITIES: u32 = 0;
const INFO_VERSION: u32 = 1;

fn read_mcqi(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let mcqi = McqiReg::new(data)?;
    check_component(ctx, mcqi.component_index())?;
    let information = match mcqi.info_type() {
        INFO_CAPABILITIES => {
            let mut cap = McqiCap::zeroed();
            cap.set_supported_info_bitmask(1 << INFO_CAPABILITIES | 1 << INFO_VERSION);
            cap.into_inner()
        }
        // What is stored is what runs.
        INFO_VERSION => {
            let version = ctx.hca.profile.firmware.version;
            let text = format!("{}.{}.{:04}", version.major, version.minor, version.subminor);
            let mut out = McqiVersion::zeroed();
            out.set_version(
                u32::from(version.major) << 24 | u32::from(version.minor) << 16 | u32::from(version.subminor),
            );
            out.set_version_string_length(text.len() as u32);
            for (slot, byte) in out.version_string_mut().iter_mut().zip(text.bytes()) {
                *slot = byte;
            }
            out.into_inner()
        }
        _ => return Err(refuse(syn::INFORMATION)),
    };
    let (offset, size) = (mcqi.offset() as usize, mcqi.data_size() as usize);
    let end = offset.checked_add(size).ok_or(refuse(syn::INFORMATION))?;
    let part = information.get(offset..end).ok_or(refuse(syn::INFORMATION))?;
    let mut out = McqiReg::with_tail(size);
    out.set_info_type(mcqi.info_type());
    out.set_info_size(information.len() as u32);
    out.set_offset(mcqi.offset());
    out.set_data_size(mcqi.data_size());
    out.data_mut().copy_from_slice(part);
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    #[test]
    fn mcam_names_exactly_the_registers_that_exist() {
        let mut rig = rig(&["caps.general.mcam_reg=1"]);
        let mut mcam = McamReg::zeroed();
        let out = McamReg::new(rig.register_ok(RegisterId::MCAM.0, true, mcam.as_bytes())).unwrap();
        let mask = out.mng_access_reg_cap_mask();
        let regs = mask.access_regs();
        assert_eq!((regs.mcqi(), regs.mcqs(), regs.mcc(), regs.mcda(), regs.mtmp(), regs.mrtc()), (1, 1, 0, 0, 0, 0));
        assert_eq!(regs.tracer_registers(), 0, "there is none in the profile");
        let mut traced = self::rig(&["firmware.tracer=true"]);
        let out = McamReg::new(traced.register_ok(RegisterId::MCAM.0, true, mcam.as_bytes())).unwrap();
        assert_eq!(out.mng_access_reg_cap_mask().access_regs().tracer_registers(), 0xf);
        for group in 1..MCAM_GROUPS {
            mcam.set_access_reg_group(group);
            let out = McamReg::new(rig.register_ok(RegisterId::MCAM.0, true, mcam.as_bytes())).unwrap();
            assert_eq!(out.mng_access_reg_cap_mask().as_bytes(), [0; 16]);
        }
        mcam.set_access_reg_group(MCAM_GROUPS);
        let answer = rig.exec(&Rig::register(RegisterId::MCAM.0, true, mcam.as_bytes()), 16 + 72);
        assert_eq!(answer.syndrome(), syn::NO_SUCH_GROUP.0);
    }

    #[test]
    fn the_running_firmware_is_the_profiles() {
        let mut rig = rig(&["caps.general.mcam_reg=1", "firmware.version=50.48.1000"]);
        let out = McqsReg::new(rig.register_ok(RegisterId::MCQS.0, true, &[0; 16])).unwrap();
        assert_eq!((out.identifier(), out.component_update_state(), out.last_index_flag()), (BOOT_IMAGE, IDLE, 1));
        let mut mcqi = McqiReg::zeroed();
        mcqi.set_info_type(INFO_VERSION);
        mcqi.set_data_size(McqiVersion::SIZE as u32);
        let output = rig.ok(&Rig::register(RegisterId::MCQI.0, true, mcqi.as_bytes()), 16 + 0x18 + 0x7c);
        let version = McqiVersion::new(&output[16 + 0x18..]).unwrap();
        assert_eq!(version.version(), 50 << 24 | 48 << 16 | 1000);
        assert_eq!(&version.version_string()[..10], b"50.48.1000");
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let mut rig = rig(&["caps.general.mcam_reg=1"]);
        let mut refused = |edit: fn(&mut McqiReg<Vec<u8>>), syndrome| {
            let mut mcqi = McqiReg::zeroed();
            mcqi.set_data_size(4);
            edit(&mut mcqi);
            let answer = rig.exec(&Rig::register(RegisterId::MCQI.0, true, mcqi.as_bytes()), 64);
            assert_eq!(answer.syndrome(), syndrome);
        };
        refused(|m| m.set_component_index(1), syn::COMPONENT.0);
        refused(|m| m.set_info_type(5), syn::INFORMATION.0);
        refused(|m| m.set_offset(u32::MAX), syn::INFORMATION.0);
        refused(|m| m.set_data_size(0xffff), syn::INFORMATION.0);
        let mut without = self::rig(&["caps.general.mcam_reg=0"]);
        for (id, len) in [(RegisterId::MCAM, 72), (RegisterId::MCQS, 16), (RegisterId::MCQI, 24)] {
            let answer = without.exec(&Rig::register(id.0, true, &vec![0; len]), 16 + len);
            assert_eq!(answer.syndrome(), syn::UNKNOWN_REGISTER.0, "{id}");
        }
    }
}
