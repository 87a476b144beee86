//! The NIC vport's commands (PRM "NIC Vport Commands"; kernel `vport.c`, `en_main.c:mlx5e_update_carrier`).
//!
//! The function has one vport, its own: it is neither an e-switch manager nor a vport group manager, so that
//! commands for other vports, and fields that only a manager may set, are refused.

use super::error::{CmdError, Syndrome, common, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::capabilities::ETHERNET;
use crate::device::port::PORT_NUMBER;
use crate::device::vport::{AdminState, INLINE_MODE_VPORT, Traffic};
use crate::prm::counters::{
    QueryVnicEnvIn, QueryVnicEnvOut, QueryVportCounterIn, QueryVportCounterOut, TrafficCounter,
};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{VportListType, VportStateOpMod};
use crate::prm::vport::{
    MacAddressLayout, ModifyNicVportContextIn, ModifyNicVportFieldSelect, ModifyVportStateIn, NicVportContext,
    QueryHcaVportPkeyIn, QueryHcaVportPkeyOut, QueryNicVportContextIn, QueryNicVportContextOut, QueryVportStateIn,
    QueryVportStateOut, VlanLayout,
};

syndromes! {
    /// Checks of vports.
    pub mod syn = 0x0031_0000;
    1 UNKNOWN_FIELD "field_select has bits without meaning";
    2 MANAGER_ONLY "only a vport group or e-switch manager may set the field";
    3 LIST_TYPE "the list type is reserved";
    4 LIST_TOO_LONG "the list is longer than its capability allows";
    5 LIST_TRUNCATED "the input is shorter than the list that it announces";
    6 LIST_ENTRY "an address of the list has the wrong kind";
    7 MTU "the MTU is 0 or beyond the port's maximum";
    8 ROCE "RoCE is not advertised";
    9 LOOPBACK "disabling local loopback is not advertised";
    10 INLINE_MODE "the minimum inline mode is not the vport's to set, or reserved";
    11 ADMIN_STATE "the administrative state is reserved";
    12 NO_SUCH_PORT "the port does not exist";
    13 PKEY_INDEX "the P_Key index is beyond pkey_table_size";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::QUERY_VPORT_STATE, query_vport_state),
    Command::running(Opcode::MODIFY_VPORT_STATE, modify_vport_state),
    Command::user(Opcode::QUERY_NIC_VPORT_CONTEXT, query_nic_vport_context),
    Command::running(Opcode::MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context),
    Command::user(Opcode::QUERY_VPORT_COUNTER, query_vport_counter),
    Command::user(Opcode::QUERY_VNIC_ENV, query_vnic_env),
    Command::user(Opcode::QUERY_HCA_VPORT_PKEY, query_hca_vport_pkey),
];

fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

/// Only the function's own vport can be named: number 0, without `other_vport`.
fn own_vport(other_vport: u32, vport_number: u32) -> Result<(), CmdError> {
    if other_vport != 0 || vport_number != 0 { Err(refuse(common::OTHER_VPORT)) } else { Ok(()) }
}

/// The state of the vNIC; e-switch vports and uplinks belong to a manager.
fn vnic_state(op_mod: u16) -> Result<(), CmdError> {
    match VportStateOpMod(op_mod) {
        VportStateOpMod::VNIC_VPORT => Ok(()),
        VportStateOpMod::ESW_VPORT | VportStateOpMod::UPLINK => Err(refuse(syn::MANAGER_ONLY)),
        _ => Err(unknown_op_mod()),
    }
}

fn query_vport_state(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryVportStateIn::new(input)?;
    vnic_state(ctx.op_mod)?;
    own_vport(input.other_vport(), input.vport_number())?;
    let mut out = QueryVportStateOut::zeroed();
    out.set_admin_state(ctx.hca.vport.admin as u32);
    out.set_state(ctx.hca.vport_is_up().into());
    Ok(out.into_inner())
}

/// The default partition, full membership (IBTA 10.9.1.2). RoCE has no other: the rest of the table is invalid keys.
const DEFAULT_PKEY: u16 = 0xffff;
/// Asks for the whole table.
const ALL_PKEYS: u32 = 0xffff;

/// The P_Key table, which the RDMA core reads of Ethernet ports too (`mlx5_ib_query_pkey`).
fn query_hca_vport_pkey(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryHcaVportPkeyIn::new(input)?;
    own_vport(input.other_vport(), input.vport_number())?;
    // One port: the number is 0 where there is nothing to choose.
    if input.port_num() > PORT_NUMBER {
        return Err(refuse(syn::NO_SUCH_PORT));
    }
    // 0 is 128 entries, each step doubles them (`mlx5_to_sw_pkey_sz`).
    let entries = 128usize << ctx.hca.caps.general("pkey_table_size").min(5);
    let index = input.pkey_index();
    let wanted = match usize::try_from(index) {
        _ if index == ALL_PKEYS => 0..entries,
        Ok(index) if index < entries => index..index + 1,
        _ => return Err(refuse(syn::PKEY_INDEX)),
    };
    let table = wanted.flat_map(|index| u32::from(if index == 0 { DEFAULT_PKEY } else { 0 }).to_be_bytes());
    let table: Vec<u8> = table.collect();
    let mut out = QueryHcaVportPkeyOut::with_tail(table.len());
    out.pkey_mut().copy_from_slice(&table);
    Ok(out.into_inner())
}

fn modify_vport_state(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyVportStateIn::new(input)?;
    vnic_state(ctx.op_mod)?;
    own_vport(input.other_vport(), input.vport_number())?;
    if input.max_tx_speed() != 0 || input.ingress_connect_valid() != 0 || input.egress_connect_valid() != 0 {
        return Err(refuse(syn::MANAGER_ONLY));
    }
    let admin = AdminState::from_number(input.admin_state()).ok_or(refuse(syn::ADMIN_STATE))?;
    ctx.hca.change_link(|hca| hca.vport.admin = admin);
    done()
}

fn mac_entry(mac: [u8; 6]) -> Vec<u8> {
    let mut entry = MacAddressLayout::zeroed();
    entry.set_mac_addr_47_32(u32::from(u16::from_be_bytes([mac[0], mac[1]])));
    entry.set_mac_addr_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
    entry.into_inner()
}

fn mac_of(entry: &[u8]) -> Result<[u8; 6], CmdError> {
    let entry = MacAddressLayout::new(entry)?;
    let (high, low) = ((entry.mac_addr_47_32() as u16).to_be_bytes(), entry.mac_addr_31_0().to_be_bytes());
    Ok([high[0], high[1], low[0], low[1], low[2], low[3]])
}

fn vlan_entry(vlan: u16) -> Vec<u8> {
    let mut entry = VlanLayout::zeroed();
    entry.set_vlan(vlan.into());
    entry.into_inner()
}

fn query_nic_vport_context(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryNicVportContextIn::new(input)?;
    own_vport(input.other_vport(), input.vport_number())?;
    let vport = &ctx.hca.vport;
    let list: Vec<Vec<u8>> = match VportListType(input.allowed_list_type() as u8) {
        VportListType::UC => vport.unicast.iter().copied().map(mac_entry).collect(),
        VportListType::MC => vport.multicast.iter().copied().map(mac_entry).collect(),
        VportListType::VLAN => vport.vlans.iter().copied().map(vlan_entry).collect(),
        _ => return Err(refuse(syn::LIST_TYPE)),
    };
    let mut out = QueryNicVportContextOut::with_tail(list.concat().len());
    let mut context = out.nic_vport_context_mut();
    context.as_bytes_mut()[..NicVportContext::SIZE].copy_from_slice(vport.context.as_bytes());
    context.set_allowed_list_type(input.allowed_list_type());
    context.set_allowed_list_size(list.len() as u32);
    context.current_uc_mac_address_mut().copy_from_slice(&list.concat());
    Ok(out.into_inner())
}

/// Every bit of `field_select` that has a meaning.
fn known_fields() -> u32 {
    ModifyNicVportFieldSelect::LAYOUT.fields.iter().fold(0, |mask, field| mask | 1 << (31 - field.offset))
}

/// One of the three lists as the driver wrote it.
enum List {
    Unicast(Vec<[u8; 6]>),
    Multicast(Vec<[u8; 6]>),
    Vlans(Vec<u16>),
}

fn parse_list(ctx: &Ctx<'_>, context: &NicVportContext<&[u8]>) -> Result<List, CmdError> {
    const ENTRY: usize = 8;
    let list_type = VportListType(context.allowed_list_type() as u8);
    let limit = match list_type {
        VportListType::UC => "log_max_current_uc_list",
        VportListType::MC => "log_max_current_mc_list",
        VportListType::VLAN => "log_max_vlan_list",
        _ => return Err(refuse(syn::LIST_TYPE)),
    };
    let count = context.allowed_list_size();
    if u64::from(count) > 1 << ctx.hca.caps.general(limit) {
        return Err(refuse(syn::LIST_TOO_LONG));
    }
    let entries = context
        .current_uc_mac_address()
        .get(..count as usize * ENTRY)
        .ok_or(CmdError::new(Status::BAD_INP_LEN_ERR, syn::LIST_TRUNCATED))?
        .chunks_exact(ENTRY);
    if list_type == VportListType::VLAN {
        let vlans: Result<Vec<u16>, CmdError> =
            entries.map(|entry| Ok(VlanLayout::new(entry)?.vlan() as u16)).collect();
        return Ok(List::Vlans(vlans?));
    }
    let macs = entries.map(mac_of).collect::<Result<Vec<_>, _>>()?;
    let group = |mac: &[u8; 6]| mac[0] & 1 != 0;
    if list_type == VportListType::UC {
        // Zero addresses stand for nobody.
        if macs.iter().any(|mac| group(mac) || *mac == [0; 6]) {
            return Err(refuse(syn::LIST_ENTRY));
        }
        Ok(List::Unicast(macs))
    } else if macs.iter().all(group) {
        Ok(List::Multicast(macs))
    } else {
        Err(refuse(syn::LIST_ENTRY))
    }
}

/// Applies the selected fields, all or none.
fn modify_nic_vport_context(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyNicVportContextIn::new(input)?;
    own_vport(input.other_vport(), input.vport_number())?;
    let select = input.field_select();
    if u32::from_be_bytes(*select.as_bytes().first_chunk().unwrap_or(&[0; 4])) & !known_fields() != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let manager = [
        select.affiliation(),
        select.node_guid(),
        select.port_guid(),
        select.change_event(),
        select.permanent_address(),
    ];
    if manager.iter().any(|bit| *bit != 0) {
        return Err(refuse(syn::MANAGER_ONLY));
    }
    let context = input.nic_vport_context();
    if select.mtu() != 0 && !(1..=u32::from(ctx.hca.port.max_mtu())).contains(&context.mtu()) {
        return Err(refuse(syn::MTU));
    }
    if select.roce_en() != 0 && ctx.hca.caps.general("roce") == 0 {
        return Err(refuse(syn::ROCE));
    }
    if select.disable_uc_local_lb() != 0 && ctx.hca.caps.general("disable_local_lb_uc") == 0
        || select.disable_mc_local_lb() != 0 && ctx.hca.caps.general("disable_local_lb_mc") == 0
    {
        return Err(refuse(syn::LOOPBACK));
    }
    const INLINE_MODES: u32 = 5;
    if select.min_inline() != 0
        && (ctx.hca.caps.get(ETHERNET, "wqe_inline_mode") != INLINE_MODE_VPORT
            || context.min_wqe_inline_mode() >= INLINE_MODES)
    {
        return Err(refuse(syn::INLINE_MODE));
    }
    let list = if select.addresses_list() != 0 { Some(parse_list(ctx, &context)?) } else { None };

    let vport = &mut ctx.hca.vport;
    match list {
        Some(List::Unicast(macs)) => vport.unicast = macs,
        Some(List::Multicast(macs)) => vport.multicast = macs,
        Some(List::Vlans(vlans)) => vport.vlans = vlans,
        None => {}
    }
    if select.mtu() != 0 {
        vport.context.set_mtu(context.mtu());
    }
    if select.roce_en() != 0 {
        vport.context.set_roce_en(context.roce_en());
    }
    if select.promisc() != 0 {
        vport.context.set_promisc_uc(context.promisc_uc());
        vport.context.set_promisc_mc(context.promisc_mc());
        vport.context.set_promisc_all(context.promisc_all());
    }
    if select.disable_uc_local_lb() != 0 {
        vport.context.set_disable_uc_local_lb(context.disable_uc_local_lb());
    }
    if select.disable_mc_local_lb() != 0 {
        vport.context.set_disable_mc_local_lb(context.disable_mc_local_lb());
    }
    if select.min_inline() != 0 {
        vport.context.set_min_wqe_inline_mode(context.min_wqe_inline_mode());
    }
    done()
}

fn query_vport_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.hca.caps.general("vport_counters") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    let input = QueryVportCounterIn::new(input)?;
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    own_vport(input.other_vport(), input.vport_number())?;
    if input.port_num() != 0 && input.port_num() != PORT_NUMBER {
        return Err(refuse(syn::NO_SUCH_PORT));
    }
    let counters = ctx.hca.vport.counters;
    let put = |mut slot: TrafficCounter<&mut [u8]>, traffic: Traffic| {
        slot.set_packets(traffic.packets);
        slot.set_octets(traffic.octets);
    };
    let mut out = QueryVportCounterOut::zeroed();
    put(out.received_errors_mut(), counters.received_errors);
    put(out.transmit_errors_mut(), counters.transmit_errors);
    put(out.received_ib_unicast_mut(), counters.received_ib_unicast);
    put(out.transmitted_ib_unicast_mut(), counters.transmitted_ib_unicast);
    put(out.received_ib_multicast_mut(), counters.received_ib_multicast);
    put(out.transmitted_ib_multicast_mut(), counters.transmitted_ib_multicast);
    put(out.received_eth_broadcast_mut(), counters.received_eth_broadcast);
    put(out.transmitted_eth_broadcast_mut(), counters.transmitted_eth_broadcast);
    put(out.received_eth_unicast_mut(), counters.received_eth_unicast);
    put(out.transmitted_eth_unicast_mut(), counters.transmitted_eth_unicast);
    put(out.received_eth_multicast_mut(), counters.received_eth_multicast);
    put(out.transmitted_eth_multicast_mut(), counters.transmitted_eth_multicast);
    if input.clear() != 0 {
        ctx.hca.vport.counters = Default::default();
    }
    Ok(out.into_inner())
}

fn query_vnic_env(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryVnicEnvIn::new(input)?;
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    own_vport(input.other_vport(), input.vport_number())?;
    let env = ctx.hca.vport.env;
    let mut out = QueryVnicEnvOut::zeroed();
    let mut counters = out.vport_env_mut();
    counters.set_invalid_command(env.invalid_command);
    counters.set_quota_exceeded_command(env.quota_exceeded_command);
    counters.set_cq_overrun(env.cq_overrun);
    counters.set_nic_receive_steering_discard(env.nic_receive_steering_discard);
    counters.set_receive_discard_vport_down(env.receive_discard_vport_down);
    counters.set_transmit_discard_vport_down(env.transmit_discard_vport_down);
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::event::{EventType, PortChange};
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    fn modify(list: usize) -> ModifyNicVportContextIn<Vec<u8>> {
        let mut input = ModifyNicVportContextIn::with_tail(8 * list);
        input.set_opcode(Opcode::MODIFY_NIC_VPORT_CONTEXT.0.into());
        input
    }

    fn query(rig: &mut Rig, list_type: VportListType) -> QueryNicVportContextOut<Vec<u8>> {
        let mut input = QueryNicVportContextIn::zeroed();
        input.set_opcode(Opcode::QUERY_NIC_VPORT_CONTEXT.0.into());
        input.set_allowed_list_type(list_type.0.into());
        QueryNicVportContextOut::new(rig.ok(input.as_bytes(), 0x110 + 8 * 4)).unwrap()
    }

    fn refused(rig: &mut Rig, input: &[u8], syndrome: Syndrome) {
        let answer = rig.exec(input, 16);
        let status = if syndrome == syn::LIST_TRUNCATED { Status::BAD_INP_LEN_ERR } else { Status::BAD_PARAM_ERR };
        assert_eq!((answer.status(), answer.syndrome()), (status.0, syndrome.0));
    }

    #[test]
    fn the_context_has_the_identity_of_the_profile() {
        let mut rig = rig(&["net.mac=02:c1:0a:11:22:33"]);
        let out = query(&mut rig, VportListType::UC);
        let context = out.nic_vport_context();
        assert_eq!(&context.as_bytes()[0xf4..0xfc], &[0, 0, 2, 0xc1, 0x0a, 0x11, 0x22, 0x33]);
        assert_eq!(context.node_guid(), 0x00c1_0aff_fe11_2233);
        assert_eq!(context.system_image_guid(), context.node_guid());
        assert_eq!((context.mtu(), context.roce_en(), context.allowed_list_size()), (1522, 0, 0));
        assert_eq!(rig.function.hca().vport.mac(), [2, 0xc1, 0x0a, 0x11, 0x22, 0x33]);
    }

    #[test]
    fn the_partition_table_has_the_default_key_alone() {
        let mut rig = rig(&[]);
        let mut input = QueryHcaVportPkeyIn::zeroed();
        input.set_opcode(Opcode::QUERY_HCA_VPORT_PKEY.0.into());
        let key = |rig: &mut Rig, input: &QueryHcaVportPkeyIn<Vec<u8>>| rig.ok(input.as_bytes(), 20).split_off(16);
        assert_eq!(key(&mut rig, &input), [0, 0, 0xff, 0xff]);
        input.set_pkey_index(127);
        assert_eq!(key(&mut rig, &input), [0; 4]);
        input.set_pkey_index(ALL_PKEYS);
        let table = rig.ok(input.as_bytes(), 16 + 4 * 128).split_off(16);
        assert_eq!((&table[..8], table.len()), (&[0, 0, 0xff, 0xff, 0, 0, 0, 0][..], 512));
        input.set_pkey_index(128);
        refused(&mut rig, input.as_bytes(), syn::PKEY_INDEX);
        input.set_pkey_index(0);
        input.set_port_num(2);
        refused(&mut rig, input.as_bytes(), syn::NO_SUCH_PORT);
        input.set_port_num(1);
        input.set_other_vport(1);
        refused(&mut rig, input.as_bytes(), common::OTHER_VPORT);
    }

    #[test]
    fn only_selected_fields_change() {
        let mut rig = rig(&[]);
        let mut input = modify(0);
        input.field_select_mut().set_mtu(1);
        let mut context = input.nic_vport_context_mut();
        context.set_mtu(9022);
        context.set_roce_en(1);
        context.set_promisc_all(1);
        rig.ok(input.as_bytes(), 16);
        let out = query(&mut rig, VportListType::UC);
        let context = out.nic_vport_context();
        assert_eq!((context.mtu(), context.roce_en(), context.promisc_all()), (9022, 0, 0));
        input.field_select_mut().set_mtu(0);
        input.field_select_mut().set_roce_en(1);
        input.field_select_mut().set_promisc(1);
        input.nic_vport_context_mut().set_mtu(100);
        rig.ok(input.as_bytes(), 16);
        let out = query(&mut rig, VportListType::UC);
        let context = out.nic_vport_context();
        assert_eq!((context.mtu(), context.roce_en(), context.promisc_all(), context.promisc_uc()), (9022, 1, 1, 0));
    }

    #[test]
    fn lists_are_returned_by_type() {
        let mut rig = rig(&[]);
        let mut input = modify(2);
        input.field_select_mut().set_addresses_list(1);
        let mut context = input.nic_vport_context_mut();
        context.set_allowed_list_type(VportListType::MC.0.into());
        context.set_allowed_list_size(2);
        context
            .current_uc_mac_address_mut()
            .copy_from_slice(&[0, 0, 0x33, 0x33, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        rig.ok(input.as_bytes(), 16);
        let mut context = input.nic_vport_context_mut();
        context.set_allowed_list_type(VportListType::VLAN.0.into());
        context.set_allowed_list_size(1);
        context.current_uc_mac_address_mut()[..8].copy_from_slice(&[0, 0, 0x0f, 0xff, 0, 0, 0, 0]);
        rig.ok(input.as_bytes(), 16);
        let out = query(&mut rig, VportListType::MC);
        assert_eq!(out.nic_vport_context().allowed_list_size(), 2);
        assert_eq!(out.nic_vport_context().current_uc_mac_address()[..8], [0, 0, 0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(query(&mut rig, VportListType::UC).nic_vport_context().allowed_list_size(), 0);
        let out = query(&mut rig, VportListType::VLAN);
        assert_eq!(out.nic_vport_context().current_uc_mac_address()[..8], [0, 0, 0x0f, 0xff, 0, 0, 0, 0]);
        assert_eq!(rig.function.hca().vport.vlans, [0xfff]);
    }

    #[test]
    fn a_list_must_fit_its_capability_its_input_and_its_kind() {
        let mut rig = rig(&["caps.general.log_max_current_uc_list=1"]);
        let list = |count: u32, entries: usize, mac: u8| {
            let mut input = modify(entries);
            input.field_select_mut().set_addresses_list(1);
            let mut context = input.nic_vport_context_mut();
            context.set_allowed_list_size(count);
            for entry in context.current_uc_mac_address_mut().chunks_mut(8) {
                entry[2] = mac;
                entry[7] = 1;
            }
            input
        };
        rig.ok(list(2, 2, 2).as_bytes(), 16);
        refused(&mut rig, list(3, 3, 2).as_bytes(), syn::LIST_TOO_LONG);
        refused(&mut rig, list(0xffff, 0, 2).as_bytes(), syn::LIST_TOO_LONG);
        refused(&mut rig, list(2, 1, 2).as_bytes(), syn::LIST_TRUNCATED);
        refused(&mut rig, list(1, 1, 1).as_bytes(), syn::LIST_ENTRY);
        let mut multicast = list(1, 1, 2);
        multicast.nic_vport_context_mut().set_allowed_list_type(VportListType::MC.0.into());
        refused(&mut rig, multicast.as_bytes(), syn::LIST_ENTRY);
        multicast.nic_vport_context_mut().set_allowed_list_type(3);
        refused(&mut rig, multicast.as_bytes(), syn::LIST_TYPE);
        assert_eq!(rig.function.hca().vport.unicast.len(), 2, "refusals change nothing");
    }

    #[test]
    fn fields_of_a_manager_and_unknown_fields_are_refused() {
        let mut rig = rig(&["caps.general.disable_local_lb_uc=0"]);
        let mut input = modify(0);
        input.as_bytes_mut()[12] = 0x80;
        refused(&mut rig, input.as_bytes(), syn::UNKNOWN_FIELD);
        let mut input = modify(0);
        input.field_select_mut().set_permanent_address(1);
        refused(&mut rig, input.as_bytes(), syn::MANAGER_ONLY);
        let mut input = modify(0);
        input.field_select_mut().set_disable_uc_local_lb(1);
        refused(&mut rig, input.as_bytes(), syn::LOOPBACK);
        let mut input = modify(0);
        input.field_select_mut().set_min_inline(1);
        refused(&mut rig, input.as_bytes(), syn::INLINE_MODE);
        let mut input = modify(0);
        input.field_select_mut().set_mtu(1);
        refused(&mut rig, input.as_bytes(), syn::MTU);
        input.nic_vport_context_mut().set_mtu(0xffff);
        refused(&mut rig, input.as_bytes(), syn::MTU);
        let mut input = modify(0);
        input.set_other_vport(1);
        refused(&mut rig, input.as_bytes(), common::OTHER_VPORT);
        let mut input = modify(0);
        input.set_vport_number(1);
        refused(&mut rig, input.as_bytes(), common::OTHER_VPORT);
    }

    fn state(rig: &mut Rig) -> (u32, u32) {
        let out = rig.ok(&Rig::input(Opcode::QUERY_VPORT_STATE.0, 0, 16), 16);
        let out = QueryVportStateOut::new(out).unwrap();
        (out.admin_state(), out.state())
    }

    fn set_state(rig: &mut Rig, admin: u32) {
        let mut input = ModifyVportStateIn::zeroed();
        input.set_opcode(Opcode::MODIFY_VPORT_STATE.0.into());
        input.set_admin_state(admin);
        rig.ok(input.as_bytes(), 16);
    }

    #[test]
    fn the_vport_follows_the_port_unless_told_otherwise() {
        let mut rig = rig(&[]);
        assert_eq!(state(&mut rig), (2, 1));
        rig.function.hca_mut().change_link(|hca| hca.port.set_carrier(false));
        assert_eq!(state(&mut rig), (2, 0));
        set_state(&mut rig, 1);
        assert_eq!(state(&mut rig), (1, 1));
        set_state(&mut rig, 0);
        rig.function.hca_mut().change_link(|hca| hca.port.set_carrier(true));
        assert_eq!(state(&mut rig), (0, 0));
        for (op_mod, admin, syndrome) in [
            (0, 3, syn::ADMIN_STATE),
            (1, 0, syn::MANAGER_ONLY),
            (2, 0, syn::MANAGER_ONLY),
            (3, 0, common::UNKNOWN_OP_MOD),
        ] {
            let mut input = ModifyVportStateIn::zeroed();
            input.set_opcode(Opcode::MODIFY_VPORT_STATE.0.into());
            input.set_op_mod(op_mod);
            input.set_admin_state(admin);
            refused(&mut rig, input.as_bytes(), syndrome);
        }
    }

    #[test]
    fn a_change_of_the_vports_link_raises_one_event() {
        let mut rig = rig(&[]);
        let buffer = rig.event_queue(1 << EventType::PORT_CHANGE.0);
        set_state(&mut rig, 1);
        set_state(&mut rig, 0);
        set_state(&mut rig, 2);
        let events: Vec<(u8, u8)> = (0..3).map(|i| rig.read(buffer + i * 64, 64)).map(|eqe| (eqe[1], eqe[3])).collect();
        let port_change = EventType::PORT_CHANGE.0;
        assert_eq!(events, [(port_change, PortChange::DOWN.0), (port_change, PortChange::ACTIVE.0), (0xff, 0xff)]);
    }

    #[test]
    fn traffic_is_counted_by_kind_and_cleared_on_request() {
        let mut rig = rig(&[]);
        rig.function.hca_mut().vport.counters.transmitted(&[0; 60]);
        rig.function.hca_mut().vport.counters.received(&[0xff; 64]);
        let mut input = QueryVportCounterIn::zeroed();
        input.set_opcode(Opcode::QUERY_VPORT_COUNTER.0.into());
        input.set_clear(1);
        let out = QueryVportCounterOut::new(rig.ok(input.as_bytes(), 0x210)).unwrap();
        assert_eq!((out.transmitted_eth_unicast().packets(), out.transmitted_eth_unicast().octets()), (1, 60));
        assert_eq!((out.received_eth_broadcast().packets(), out.received_eth_multicast().packets()), (1, 0));
        let out = QueryVportCounterOut::new(rig.ok(input.as_bytes(), 0x210)).unwrap();
        assert_eq!(out.transmitted_eth_unicast().packets(), 0);
        input.set_port_num(2);
        refused(&mut rig, input.as_bytes(), syn::NO_SUCH_PORT);
    }

    #[test]
    fn refused_commands_are_counted_for_diagnosis() {
        let mut rig = rig(&["caps.general.max_qp_cnt=1"]);
        let env = |rig: &mut Rig| {
            let out = QueryVnicEnvOut::new(rig.ok(&Rig::input(Opcode::QUERY_VNIC_ENV.0, 0, 16), 0x210)).unwrap();
            let env = out.vport_env();
            (env.invalid_command(), env.quota_exceeded_command(), env.transmit_discard_vport_down())
        };
        assert_eq!(env(&mut rig), (0, 0, 0));
        refused(&mut rig, &Rig::input(Opcode::QUERY_VNIC_ENV.0, 1, 16), common::UNKNOWN_OP_MOD);
        rig.ok(&Rig::input(Opcode::ALLOC_Q_COUNTER.0, 0, 16), 16);
        assert_eq!(rig.exec(&Rig::input(Opcode::ALLOC_Q_COUNTER.0, 0, 16), 16).status(), Status::LIM_ERR.0);
        set_state(&mut rig, 0);
        rig.function.hca_mut().transmit(&[0; 60], Default::default(), &mut 0, &mut crate::dma::Bus::new(0), 0);
        assert_eq!(env(&mut rig), (1, 1, 1));
    }
}
