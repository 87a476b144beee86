//! SET_ROCE_ADDRESS and QUERY_ROCE_ADDRESS (PRM "RoCE Address Table"; kernel `lib/gid.c:mlx5_core_roce_gid_set`).

use super::error::{CmdError, common, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::capabilities::ROCE;
use crate::device::port::PORT_NUMBER;
use crate::device::roce::{L3_IPV4, L3_IPV6};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::vport::{QueryRoceAddressIn, QueryRoceAddressOut, RoceAddrLayout, SetRoceAddressIn};

syndromes! {
    /// Checks of the RoCE address table.
    pub mod syn = 0x0032_0000;
    1 NO_SUCH_INDEX "the GID index is beyond roce_address_table_size";
    2 NO_SUCH_PORT "the port does not exist";
    3 VERSION "the RoCE version is not in roce_version";
    4 L3_TYPE "the layer 3 type is not in l3_type";
    5 NOT_MAPPED "an IPv4 address is not written as IPv4-mapped IPv6";
    6 SOURCE_MAC "the source MAC address is a group address";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::running(Opcode::SET_ROCE_ADDRESS, set_roce_address),
    Command::user(Opcode::QUERY_ROCE_ADDRESS, query_roce_address),
];

fn refuse(syndrome: super::error::Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

fn check_selectors(ctx: &Ctx<'_>, index: u32, port: u32) -> Result<(), CmdError> {
    if ctx.hca.caps.general("roce") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    // The driver names the port only where a device has several.
    if port != 0 && port != PORT_NUMBER {
        return Err(refuse(syn::NO_SUCH_PORT));
    }
    if index as usize >= ctx.hca.roce.len() {
        return Err(refuse(syn::NO_SUCH_INDEX));
    }
    Ok(())
}

fn set_roce_address(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = SetRoceAddressIn::new(input)?;
    let index = input.roce_address_index();
    check_selectors(ctx, index, input.vhca_port_num())?;
    let address = input.roce_address();
    let l3_address = *address.source_l3_address();
    // Deleting writes the unspecified address; version and type are left over from before or 0.
    if l3_address == [0; 16] {
        ctx.hca.roce.set(index, None);
        return done();
    }
    let supports = |field, bit: u32| ctx.hca.caps.get(ROCE, field) >> bit & 1 != 0;
    if address.roce_version() >= 8 || !supports("roce_version", address.roce_version()) {
        return Err(refuse(syn::VERSION));
    }
    // l3_type is a mask: bit 1 IPv4, bit 2 IPv6.
    let supported = match address.roce_l3_type() {
        L3_IPV4 => supports("l3_type", 1),
        L3_IPV6 => supports("l3_type", 2),
        _ => false,
    };
    if !supported {
        return Err(refuse(syn::L3_TYPE));
    }
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    if address.roce_l3_type() == L3_IPV4 && l3_address[..12] != MAPPED {
        return Err(refuse(syn::NOT_MAPPED));
    }
    if address.source_mac_47_32() >> 8 & 1 != 0 {
        return Err(refuse(syn::SOURCE_MAC));
    }
    let entry = RoceAddrLayout::new(address.as_bytes().to_vec())?;
    ctx.hca.roce.set(index, Some(entry));
    done()
}

fn query_roce_address(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryRoceAddressIn::new(input)?;
    check_selectors(ctx, input.roce_address_index(), input.vhca_port_num())?;
    let mut out = QueryRoceAddressOut::zeroed();
    if let Some(address) = ctx.hca.roce.get(input.roce_address_index()) {
        out.roce_address_mut().as_bytes_mut().copy_from_slice(address.as_bytes());
    }
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig() -> Rig {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        rig
    }

    fn set(index: u32, l3: u32, version: u32, address: [u8; 16]) -> SetRoceAddressIn<Vec<u8>> {
        let mut input = SetRoceAddressIn::zeroed();
        input.set_opcode(Opcode::SET_ROCE_ADDRESS.0.into());
        input.set_roce_address_index(index);
        let mut entry = input.roce_address_mut();
        entry.set_roce_l3_type(l3);
        entry.set_roce_version(version);
        entry.set_source_mac_47_32(0x02c1);
        entry.set_source_l3_address(&address);
        input
    }

    fn query(rig: &mut Rig, index: u32) -> QueryRoceAddressOut<Vec<u8>> {
        let mut input = QueryRoceAddressIn::zeroed();
        input.set_opcode(Opcode::QUERY_ROCE_ADDRESS.0.into());
        input.set_roce_address_index(index);
        QueryRoceAddressOut::new(rig.ok(input.as_bytes(), 48)).unwrap()
    }

    const V6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];

    #[test]
    fn an_address_is_returned_as_it_was_set_until_it_is_deleted() {
        let mut rig = rig();
        rig.ok(set(127, L3_IPV6, 2, V6).as_bytes(), 16);
        rig.ok(set(0, L3_IPV4, 2, V4).as_bytes(), 16);
        let out = query(&mut rig, 127);
        assert_eq!(out.roce_address().source_l3_address(), &V6);
        assert_eq!((out.roce_address().roce_version(), out.roce_address().source_mac_47_32()), (2, 0x02c1));
        rig.ok(set(127, L3_IPV4, 0, [0; 16]).as_bytes(), 16);
        assert_eq!(query(&mut rig, 127).roce_address().as_bytes(), [0; 32]);
        assert_eq!(rig.function.hca().roce.iter().map(|(index, _)| index).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn addresses_beyond_the_capabilities_are_refused() {
        let mut rig = rig();
        let mut group = set(0, L3_IPV6, 2, V6);
        group.roce_address_mut().set_source_mac_47_32(0x0100);
        let mut port = set(0, L3_IPV6, 2, V6);
        port.set_vhca_port_num(2);
        for (input, syndrome) in [
            (set(128, L3_IPV6, 2, V6), syn::NO_SUCH_INDEX),
            (set(0xffff, L3_IPV6, 2, V6), syn::NO_SUCH_INDEX),
            (set(0, L3_IPV6, 0, V6), syn::VERSION),
            (set(0, L3_IPV6, 255, V6), syn::VERSION),
            (set(0, 2, 2, V6), syn::L3_TYPE),
            (set(0, L3_IPV4, 2, V6), syn::NOT_MAPPED),
            (group, syn::SOURCE_MAC),
            (port, syn::NO_SUCH_PORT),
        ] {
            let answer = rig.exec(input.as_bytes(), 16);
            assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syndrome.0));
        }
    }

    #[test]
    fn a_driver_finds_the_table_empty() {
        let mut rig = rig();
        rig.ok(set(3, L3_IPV6, 2, V6).as_bytes(), 16);
        rig.tear_down();
        rig.bring_up();
        assert_eq!(query(&mut rig, 3).roce_address().as_bytes(), [0; 32]);
    }
}
