//! Registers of the device: host endianness, node description, module memory (PRM "Access Registers"; kernel
//! `main.c:set_hca_ctrl`, `infiniband/hw/mlx5/main.c:mlx5_query_node_desc`, `port.c:mlx5_query_mcia`).

use super::{Image, Register, refuse, syn};
use crate::cmdif::Ctx;
use crate::prm::commands::RegisterId;
use crate::prm::reg_device::{MciaReg, NodeDesc, RegisterHostEndianness};

pub(super) const REGISTERS: &[Register] = &[
    Register { id: RegisterId::HOST_ENDIANNESS, read: read_host_endianness, write: Some(write_host_endianness) },
    Register { id: RegisterId::NODE_DESC, read: read_node_desc, write: Some(write_node_desc) },
    Register { id: RegisterId::MCIA, read: read_mcia, write: None },
];

fn read_host_endianness(_ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    RegisterHostEndianness::new(data)?;
    Ok(RegisterHostEndianness::zeroed().into_inner())
}

/// Atomic operations and the driver's own structures follow the host's byte order; only little-endian hosts exist
/// among those that can run the VMM.
fn write_host_endianness(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    if RegisterHostEndianness::new(data)?.he() != 0 {
        return Err(refuse(syn::BIG_ENDIAN_HOST));
    }
    read_host_endianness(ctx, data)
}

fn read_node_desc(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    NodeDesc::new(data)?;
    Ok(ctx.hca.node_description.to_vec())
}

fn write_node_desc(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    NodeDesc::new(data)?;
    if let Some(text) = data.first_chunk() {
        ctx.hca.node_description = *text;
    }
    read_node_desc(ctx, data)
}

/// `mcia_reg.status`: no module is connected; the port's lanes end in another chip.
const MODULE_NOT_CONNECTED: u32 = 3;
/// Modules that PMLP names.
const MODULES: u32 = 1;

fn read_mcia(_ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let mcia = MciaReg::new(data)?;
    if mcia.module() >= MODULES {
        return Err(refuse(syn::NO_SUCH_MODULE));
    }
    let mut out = MciaReg::zeroed();
    out.set_l(mcia.l());
    out.set_module(mcia.module());
    out.set_i2c_device_address(mcia.i2c_device_address());
    out.set_page_number(mcia.page_number());
    out.set_device_address(mcia.device_address());
    out.set_status(MODULE_NOT_CONNECTED);
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::status::Status;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig() -> Rig {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        rig
    }

    #[test]
    fn only_little_endian_hosts_are_served() {
        let mut rig = rig();
        assert_eq!(rig.register_ok(RegisterId::HOST_ENDIANNESS.0, false, &[0; 16]), [0; 16]);
        let mut image = [0; 16];
        image[0] = 0x80;
        let answer = rig.exec(&Rig::register(RegisterId::HOST_ENDIANNESS.0, false, &image), 32);
        assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syn::BIG_ENDIAN_HOST.0));
    }

    #[test]
    fn the_node_description_is_the_profiles_until_it_is_written() {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", &["net.node_description=a name"]).unwrap());
        rig.bring_up();
        let mut expected = [0; 64];
        expected[..6].copy_from_slice(b"a name");
        assert_eq!(rig.register_ok(RegisterId::NODE_DESC.0, true, &[0; 64]), expected);
        rig.register_ok(RegisterId::NODE_DESC.0, false, &[b'x'; 64]);
        assert_eq!(rig.register_ok(RegisterId::NODE_DESC.0, true, &[0; 64]), [b'x'; 64]);
    }

    #[test]
    fn no_module_is_connected() {
        let mut rig = rig();
        let mut mcia = MciaReg::zeroed();
        mcia.set_i2c_device_address(0x50);
        mcia.set_size(1);
        let out = MciaReg::new(rig.register_ok(RegisterId::MCIA.0, true, mcia.as_bytes())).unwrap();
        assert_eq!((out.status(), out.size(), out.dwords()), (MODULE_NOT_CONNECTED, 0, &[0; 128]));
        mcia.set_module(1);
        let answer = rig.exec(&Rig::register(RegisterId::MCIA.0, true, mcia.as_bytes()), 16 + 144);
        assert_eq!(answer.syndrome(), syn::NO_SUCH_MODULE.0);
    }
}
