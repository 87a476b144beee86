//! Commands of flow tables, their roots and their groups (PRM "Flow Table Commands"; kernel `fs_cmd.c`,
//! `fs_core.c`).

use super::error::{CmdError, Syndrome, common, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::capabilities::FLOW_TABLE;
use crate::device::objects::{Kind, ObjRef};
use crate::device::steering::{FlowGroup, FlowTable};
use crate::prm::flow::{
    CreateFlowGroupIn, CreateFlowGroupOut, CreateFlowTableIn, CreateFlowTableOut, DestroyFlowGroupIn,
    DestroyFlowTableIn, FlowTableContext, ModifyFlowTableIn, QueryFlowGroupIn, QueryFlowGroupOut, QueryFlowTableIn,
    QueryFlowTableOut, SetFlowTableRootIn,
};
use crate::prm::flow_match::{FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{FlowTableType, MatchCriteria, TableMissAction};

syndromes! {
    /// Checks of flow steering.
    pub mod syn = 0x003a_0000;
    1 TABLE_TYPE "the flow table type is not supported";
    2 OTHER_ESWITCH "the command names another e-switch, and there is none";
    3 LEVEL "the level is beyond max_ft_level";
    4 SIZE "log_size is beyond log_max_ft_size";
    5 MISS_ACTION "the miss action is reserved or not advertised";
    6 TABLE_FEATURE "the table asks for a feature that is not advertised";
    7 TOO_MANY_TABLES "log_max_ft_num tables of the type exist";
    8 WRONG_TYPE "the table is of another type than the command says";
    9 MISS_LEVEL "the miss table is not of the same type at a higher level";
    10 UNKNOWN_FIELD "modify_field_select has bits that are not advertised";
    11 MODIFY "modifying tables or roots is not advertised";
    12 UNDERLAY "underlay queue pairs belong to IPoIB, which is not advertised";
    13 GROUP_RANGE "the group's indices are reversed or beyond the table";
    14 GROUP_OVERLAP "the group shares an index with another group of the table";
    15 GROUP_TYPE "only groups of hashed entries exist";
    16 DEFINER "match definers are not advertised";
    17 CRITERIA_SET "the mask has bits in a set that match_criteria_enable leaves out";
    18 CRITERIA_FIELD "the mask has bits of a field that ft_field_support leaves out";
    19 WRONG_TABLE "the group belongs to another table";
    20 ENTRY_EXISTS "an entry with this index exists";
    21 NO_ENTRY "no entry with this index exists";
    22 ENTRY_OUTSIDE_GROUP "the index is outside the group";
    23 VALUE_OUTSIDE_MASK "the match value has bits outside the group's mask";
    24 ACTION "the action is reserved, contradicts itself or is not advertised";
    25 ENTRY_FEATURE "the entry asks for a feature that is not advertised";
    26 DESTINATIONS "the number of destinations does not fit the action or log_max_destination";
    27 COUNTERS "the number of counters does not fit the action or log_max_flow_counter";
    28 LISTS_TRUNCATED "the input is shorter than the lists that it announces";
    29 DESTINATION_TYPE "the destination type is not supported for this table type";
    30 DESTINATION_LEVEL "a destination table is not of the same type at a higher level";
    31 MODIFY_ENTRY "modifying entries is not advertised, or the mask has bits without meaning";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_FLOW_TABLE, create_flow_table),
    Command::user(Opcode::DESTROY_FLOW_TABLE, destroy_flow_table),
    Command::user(Opcode::QUERY_FLOW_TABLE, query_flow_table),
    Command::user(Opcode::MODIFY_FLOW_TABLE, modify_flow_table),
    Command::running(Opcode::SET_FLOW_TABLE_ROOT, set_flow_table_root),
    Command::user(Opcode::CREATE_FLOW_GROUP, create_flow_group),
    Command::user(Opcode::DESTROY_FLOW_GROUP, destroy_flow_group),
    Command::user(Opcode::QUERY_FLOW_GROUP, query_flow_group),
];

pub(super) fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

/// The capability structure of a table type.
fn properties(table_type: FlowTableType) -> Option<&'static str> {
    Some(match table_type {
        FlowTableType::NIC_RX => "flow_table_properties_nic_receive",
        FlowTableType::NIC_TX => "flow_table_properties_nic_transmit",
        FlowTableType::SNIFFER_RX => "flow_table_properties_nic_receive_sniffer",
        FlowTableType::SNIFFER_TX => "flow_table_properties_nic_transmit_sniffer",
        FlowTableType::RDMA_RX => "flow_table_properties_nic_receive_rdma",
        FlowTableType::RDMA_TX => "flow_table_properties_nic_transmit_rdma",
        _ => return None,
    })
}

/// A property of a table type; 0 for types without properties.
pub(super) fn property(ctx: &Ctx<'_>, table_type: FlowTableType, field: &str) -> u64 {
    properties(table_type).map_or(0, |set| ctx.hca.caps.get(FLOW_TABLE, &format!("{set}.{field}")))
}

/// What every command of a table names beside it.
pub(super) struct Scope {
    pub table_type: u32,
    pub other_vport: u32,
    pub vport_number: u32,
    pub other_eswitch: u32,
    pub eswitch_owner_vhca_id: u32,
}

/// Takes the scope out of any input that has one.
macro_rules! scope {
    ($input:expr) => {
        $crate::cmdif::flow::Scope {
            table_type: $input.table_type(),
            other_vport: $input.other_vport(),
            vport_number: $input.vport_number(),
            other_eswitch: $input.other_eswitch(),
            eswitch_owner_vhca_id: $input.eswitch_owner_vhca_id(),
        }
    };
}
pub(super) use scope;

impl Scope {
    /// Commands whose layout has only the type.
    pub fn of_type(table_type: u32) -> Scope {
        Scope { table_type, other_vport: 0, vport_number: 0, other_eswitch: 0, eswitch_owner_vhca_id: 0 }
    }

    /// The table type, if the device has tables of it and the command means the function's own.
    pub fn check(&self, ctx: &Ctx<'_>) -> Result<FlowTableType, CmdError> {
        if self.other_vport != 0 || self.vport_number != 0 {
            return Err(refuse(common::OTHER_VPORT));
        }
        let own = ctx.hca.caps.general("vhca_id");
        let owner = u64::from(self.eswitch_owner_vhca_id);
        if self.other_eswitch != 0 || (owner != 0 && owner != own) {
            return Err(refuse(syn::OTHER_ESWITCH));
        }
        let table_type = FlowTableType(self.table_type as u8);
        if property(ctx, table_type, "ft_support") == 0 {
            return Err(refuse(syn::TABLE_TYPE));
        }
        Ok(table_type)
    }
}

/// The table `table_id`, which must be of the type that the command says.
pub(super) fn table<'a>(ctx: &'a Ctx<'_>, table_type: FlowTableType, table_id: u32) -> Result<&'a FlowTable, CmdError> {
    let table = ctx.hca.objects.get::<FlowTable>(ctx.uid, table_id)?;
    if table.table_type != table_type {
        return Err(refuse(syn::WRONG_TYPE));
    }
    Ok(table)
}

/// Whether packets may go from `level` of `table_type` to the table `target`: down the levels, within one type.
pub(super) fn descends(ctx: &Ctx<'_>, table_type: FlowTableType, level: u32, target: u32) -> Result<bool, CmdError> {
    let target = ctx.hca.objects.get::<FlowTable>(ctx.uid, target)?;
    Ok(target.table_type == table_type && target.context.level() > level)
}

fn check_miss(
    ctx: &Ctx<'_>,
    table_type: FlowTableType,
    level: u32,
    context: &FlowTableContext<&[u8]>,
) -> Result<(), CmdError> {
    match TableMissAction(context.table_miss_action() as u8) {
        TableMissAction::DEF => Ok(()),
        TableMissAction::FWD if property(ctx, table_type, "identified_miss_table_mode") != 0 => {
            if descends(ctx, table_type, level, context.table_miss_id())? {
                Ok(())
            } else {
                Err(refuse(syn::MISS_LEVEL))
            }
        }
        TableMissAction::SWITCH_DOMAIN if property(ctx, table_type, "table_miss_action_domain") != 0 => Ok(()),
        _ => Err(refuse(syn::MISS_ACTION)),
    }
}

fn create_flow_table(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateFlowTableIn::new(input)?;
    // Modifier 1 makes the demultiplexer of a bond.
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let table_type = scope!(input).check(ctx)?;
    let context = input.flow_table_context();
    if u64::from(context.level()) > property(ctx, table_type, "max_ft_level") {
        return Err(refuse(syn::LEVEL));
    }
    if u64::from(context.log_size()) > property(ctx, table_type, "log_max_ft_size") {
        return Err(refuse(syn::SIZE));
    }
    let features = [
        (context.reformat_en(), "reformat"),
        (context.decap_en(), "decap"),
        (context.sw_owner(), "sw_owner"),
        (context.termination_table(), "termination_table"),
        (context.rtc_valid(), "sw_owner_v2"),
    ];
    let missing = features.iter().any(|(asked, field)| *asked != 0 && property(ctx, table_type, field) == 0);
    if missing || context.lag_master_next_table_id() != 0 {
        return Err(refuse(syn::TABLE_FEATURE));
    }
    check_miss(ctx, table_type, context.level(), &context)?;
    let tables = ctx.hca.objects.flow_tables.iter().filter(|(_, e)| e.object.table_type == table_type).count();
    if tables as u64 >= 1 << property(ctx, table_type, "log_max_ft_num") {
        return Err(CmdError::new(Status::LIM_ERR, syn::TOO_MANY_TABLES));
    }
    let deps = FlowTable::deps(&context);
    let table = FlowTable::new(table_type, FlowTableContext::new(context.as_bytes().to_vec())?);
    let table_id = ctx.hca.objects.create(ctx.uid, table, &deps)?;
    choose_root(ctx, table_type);
    let mut out = CreateFlowTableOut::zeroed();
    out.set_table_id(table_id);
    Ok(out.into_inner())
}

/// The driver destroys the last table of a type while it is the root; packets then take the default way.
fn destroy_flow_table(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = DestroyFlowTableIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    table(ctx, table_type, input.table_id())?;
    ctx.hca.objects.destroy::<FlowTable>(ctx.uid, input.table_id())?;
    ctx.hca.roots.forget(input.table_id());
    choose_root(ctx, table_type);
    done()
}

/// Where no root can be set, packets enter at the lowest table of their type, and of these at the first.
fn choose_root(ctx: &mut Ctx<'_>, table_type: FlowTableType) {
    if property(ctx, table_type, "modify_root") != 0 {
        return;
    }
    let tables = ctx.hca.objects.flow_tables.iter().filter(|(_, entry)| entry.object.table_type == table_type);
    match tables.map(|(id, entry)| (entry.object.context.level(), id)).min() {
        Some((_, id)) => ctx.hca.roots.set(table_type, id),
        None => ctx.hca.roots.clear(table_type),
    }
}

fn query_flow_table(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryFlowTableIn::new(input)?;
    let table_type = Scope::of_type(input.table_type()).check(ctx)?;
    let table = table(ctx, table_type, input.table_id())?;
    let mut out = QueryFlowTableOut::zeroed();
    out.flow_table_context_mut().as_bytes_mut().copy_from_slice(table.context.as_bytes());
    Ok(out.into_inner())
}

/// Bits of `modify_field_select` (kernel `fs_cmd.c`).
const MODIFY_MISS_TABLE: u32 = 1 << 0;

fn modify_flow_table(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyFlowTableIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    if property(ctx, table_type, "flow_table_modify") == 0 {
        return Err(refuse(syn::MODIFY));
    }
    let (select, table_id) = (input.modify_field_select(), input.table_id());
    if select & !MODIFY_MISS_TABLE != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let level = table(ctx, table_type, table_id)?.context.level();
    if select & MODIFY_MISS_TABLE != 0 {
        let wanted = input.flow_table_context();
        check_miss(ctx, table_type, level, &wanted)?;
        ctx.hca.objects.depend::<FlowTable>(ctx.uid, table_id, &FlowTable::deps(&wanted))?;
        let table = ctx.hca.objects.get_mut::<FlowTable>(ctx.uid, table_id)?;
        table.context.set_table_miss_action(wanted.table_miss_action());
        table.context.set_table_miss_id(wanted.table_miss_id());
    }
    done()
}

fn set_flow_table_root(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    const SET: u16 = 0;
    const RESET: u16 = 1;
    let input = SetFlowTableRootIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    if input.table_of_other_vport() != 0 || input.table_vport_number() != 0 {
        return Err(refuse(common::OTHER_VPORT));
    }
    if input.table_eswitch_owner_vhca_id_valid() != 0 {
        return Err(refuse(syn::OTHER_ESWITCH));
    }
    if input.underlay_qpn() != 0 {
        return Err(refuse(syn::UNDERLAY));
    }
    match ctx.op_mod {
        SET if property(ctx, table_type, "modify_root") != 0 => {
            table(ctx, table_type, input.table_id())?;
            ctx.hca.roots.set(table_type, input.table_id());
        }
        RESET if property(ctx, table_type, "reset_root_to_default") != 0 => ctx.hca.roots.clear(table_type),
        SET | RESET => return Err(refuse(syn::MODIFY)),
        _ => return Err(unknown_op_mod()),
    }
    done()
}

/// Fields of the outer layers 2 to 4 and the capability that lets a mask name them.
const OUTER_FIELDS: &[(&str, &str)] = &[
    ("smac_47_16", "outer_smac"),
    ("smac_15_0", "outer_smac"),
    ("ethertype", "outer_ether_type"),
    ("dmac_47_16", "outer_dmac"),
    ("dmac_15_0", "outer_dmac"),
    ("first_prio", "outer_first_prio"),
    ("first_cfi", "outer_first_cfi"),
    ("first_vid", "outer_first_vid"),
    ("cvlan_tag", "outer_first_vid"),
    ("svlan_tag", "outer_first_vid"),
    ("ip_protocol", "outer_ip_protocol"),
    ("ip_dscp", "outer_ip_dscp"),
    ("ip_ecn", "outer_ip_ecn"),
    ("frag", "outer_frag"),
    ("ip_version", "outer_ip_version"),
    ("tcp_flags", "outer_tcp_flags"),
    ("tcp_sport", "outer_tcp_sport"),
    ("tcp_dport", "outer_tcp_dport"),
    ("udp_sport", "outer_udp_sport"),
    ("udp_dport", "outer_udp_dport"),
    ("ttl_hoplimit", "outer_ipv4_ttl"),
];

/// The same of the miscellaneous parameters. The flow label of IPv6 has no capability, and neither has
/// the send queue, which only the sending side knows.
const MISC_FIELDS: &[(&str, &str)] = &[
    ("outer_second_prio", "outer_second_prio"),
    ("outer_second_cfi", "outer_second_cfi"),
    ("outer_second_vid", "outer_second_vid"),
    ("outer_second_cvlan_tag", "outer_second_vid"),
    ("outer_second_svlan_tag", "outer_second_vid"),
];

/// Checks that a mask only names what the table type can match: fields of the outer headers, the second VLAN tag.
fn check_criteria(ctx: &Ctx<'_>, table_type: FlowTableType, enabled: u8, mask: &[u8]) -> Result<(), CmdError> {
    let set = FteMatchSetLyr24::SIZE;
    for (i, part) in mask.chunks(set).enumerate() {
        let counts = enabled >> i & 1 != 0;
        if !counts && part.iter().any(|byte| *byte != 0) {
            return Err(refuse(syn::CRITERIA_SET));
        }
    }
    let supports = |field: &str| property(ctx, table_type, &format!("ft_field_support.{field}")) != 0;
    let mut rest = FteMatchParam::new(mask.to_vec())?;
    {
        let mut outer = rest.outer_headers_mut();
        for (field, capability) in OUTER_FIELDS {
            if supports(capability) {
                let cleared = FteMatchSetLyr24::LAYOUT.write(outer.as_bytes_mut(), field, 0);
                debug_assert!(cleared.is_ok(), "{cleared:?}");
            }
        }
        if supports("outer_sip") {
            outer.src_ipv4_src_ipv6_mut().as_bytes_mut().fill(0);
        }
        if supports("outer_dip") {
            outer.dst_ipv4_dst_ipv6_mut().as_bytes_mut().fill(0);
        }
    }
    let mut misc = rest.misc_parameters_mut();
    for (field, capability) in MISC_FIELDS {
        if supports(capability) {
            let cleared = FteMatchSetMisc::LAYOUT.write(misc.as_bytes_mut(), field, 0);
            debug_assert!(cleared.is_ok(), "{cleared:?}");
        }
    }
    misc.set_outer_ipv6_flow_label(0);
    if table_type == FlowTableType::NIC_TX {
        misc.set_source_sqn(0);
    }
    if rest.as_bytes().iter().any(|byte| *byte != 0) {
        return Err(refuse(syn::CRITERIA_FIELD));
    }
    Ok(())
}

fn create_flow_group(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateFlowGroupIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    let table_id = input.table_id();
    let (first, last) = (input.start_flow_index(), input.end_flow_index());
    if input.group_type() != 0 {
        return Err(refuse(syn::GROUP_TYPE));
    }
    if input.match_definer_id() != 0 {
        return Err(refuse(syn::DEFINER));
    }
    if input.source_eswitch_owner_vhca_id_valid() != 0 {
        return Err(refuse(syn::OTHER_ESWITCH));
    }
    let table = table(ctx, table_type, table_id)?;
    if first > last || u64::from(last) >= table.size() {
        return Err(refuse(syn::GROUP_RANGE));
    }
    if table.has_group_in(first, last) {
        return Err(refuse(syn::GROUP_OVERLAP));
    }
    let enabled = MatchCriteria::from_bits_retain(input.match_criteria_enable() as u8);
    let criteria = input.match_criteria();
    check_criteria(ctx, table_type, enabled.bits(), criteria.as_bytes())?;
    let group = FlowGroup::new(table_id, first, last, enabled.bits(), criteria.as_bytes());
    let deps = [ObjRef { kind: Kind::FlowTable, id: table_id }];
    let group_id = ctx.hca.objects.create(ctx.uid, group, &deps)?;
    ctx.hca.objects.get_mut::<FlowTable>(ctx.uid, table_id)?.groups.insert(first, (last, group_id));
    let mut out = CreateFlowGroupOut::zeroed();
    out.set_group_id(group_id);
    Ok(out.into_inner())
}

/// The group `group_id`, which must belong to `table_id`.
pub(super) fn group<'a>(ctx: &'a Ctx<'_>, table_id: u32, group_id: u32) -> Result<&'a FlowGroup, CmdError> {
    let group = ctx.hca.objects.get::<FlowGroup>(ctx.uid, group_id)?;
    if group.table_id != table_id {
        return Err(refuse(syn::WRONG_TABLE));
    }
    Ok(group)
}

fn destroy_flow_group(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = DestroyFlowGroupIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    table(ctx, table_type, input.table_id())?;
    let first = group(ctx, input.table_id(), input.group_id())?.first;
    ctx.hca.objects.destroy::<FlowGroup>(ctx.uid, input.group_id())?;
    ctx.hca.objects.get_mut::<FlowTable>(ctx.uid, input.table_id())?.groups.remove(&first);
    done()
}

fn query_flow_group(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryFlowGroupIn::new(input)?;
    let table_type = Scope::of_type(input.table_type()).check(ctx)?;
    table(ctx, table_type, input.table_id())?;
    let group = group(ctx, input.table_id(), input.group_id())?;
    let mut out = QueryFlowGroupOut::zeroed();
    out.set_start_flow_index(group.first);
    out.set_end_flow_index(group.last);
    out.set_match_criteria_enable(group.enabled.into());
    out.match_criteria_mut().as_bytes_mut().copy_from_slice(&group.criteria[..]);
    Ok(out.into_inner())
}
