//! SET_FLOW_TABLE_ENTRY, QUERY_FLOW_TABLE_ENTRY, DELETE_FLOW_TABLE_ENTRY (PRM "Flow Table Entry Commands"; kernel
//! `fs_cmd.c:mlx5_cmd_set_fte`).

use super::error::{CmdError, objects};
use super::flow::{Scope, descends, group, property, refuse, scope, syn, table};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::objects::Charged;
use crate::device::steering::{Destination, FlowEntry, FlowGroup, FlowTable};
use crate::prm::flow::{
    DeleteFteIn, DestFormatStruct, FlowContext, FlowCounterList, QueryFteIn, QueryFteOut, SetFteIn,
};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{FlowAction, FlowDestType, FlowTableType};

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::SET_FLOW_TABLE_ENTRY, set_fte),
    Command::user(Opcode::QUERY_FLOW_TABLE_ENTRY, query_fte),
    Command::user(Opcode::DELETE_FLOW_TABLE_ENTRY, delete_fte),
];

/// `op_mod` of SET_FLOW_TABLE_ENTRY.
const SET: u16 = 0;
const MODIFY: u16 = 1;

/// Bits of `modify_enable_mask` (kernel `mlx5_ifc.h`, `MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`).
const MODIFY_ACTION: u32 = 1 << 0;
const MODIFY_FLOW_TAG: u32 = 1 << 1;
const MODIFY_DESTINATIONS: u32 = 1 << 2;
const MODIFY_COUNTERS: u32 = 1 << 3;
const MODIFY_ALL: u32 = MODIFY_ACTION | MODIFY_FLOW_TAG | MODIFY_DESTINATIONS | MODIFY_COUNTERS;

/// Bytes of an element of the lists of destinations and counters.
const ELEMENT: usize = DestFormatStruct::SIZE;

/// What an entry does, as the command says.
struct Effect {
    destinations: Vec<Destination>,
    counters: Vec<u32>,
}

/// Reads and checks the action and its lists.
fn effect(ctx: &Ctx<'_>, table_type: FlowTableType, level: u32, input: &SetFteIn<&[u8]>) -> Result<Effect, CmdError> {
    let context = input.flow_context();
    let action = FlowAction::from_bits(context.action() as u16).ok_or(refuse(syn::ACTION))?;
    let supported = FlowAction::ALLOW | FlowAction::DROP | FlowAction::FWD_DEST | FlowAction::COUNT;
    // An entry lets packets go on, drops them or forwards them; counting goes with each.
    let verdicts = action.difference(FlowAction::COUNT).iter().count();
    if !supported.contains(action) || verdicts > 1 {
        return Err(refuse(syn::ACTION));
    }
    if action.contains(FlowAction::COUNT) && property(ctx, table_type, "flow_counter") == 0 {
        return Err(refuse(syn::ACTION));
    }
    let features = [
        context.extended_destination(),
        context.uplink_hairpin_en(),
        context.flow_source(),
        context.encrypt_decrypt_type(),
        context.packet_reformat_id(),
        context.modify_header_id(),
    ];
    if features.iter().any(|field| *field != 0) {
        return Err(refuse(syn::ENTRY_FEATURE));
    }
    let ignore_level = input.ignore_flow_level() != 0;
    if ignore_level && property(ctx, table_type, "ignore_flow_level") == 0 {
        return Err(refuse(syn::ENTRY_FEATURE));
    }
    let (destinations, counters) = (context.destination_list_size(), context.flow_counter_list_size());
    let within = |count: u32, wanted: bool, field| {
        let max = 1 << property(ctx, table_type, field);
        if wanted { (1..=max).contains(&u64::from(count)) } else { count == 0 }
    };
    if !within(destinations, action.contains(FlowAction::FWD_DEST), "log_max_destination") {
        return Err(refuse(syn::DESTINATIONS));
    }
    if !within(counters, action.contains(FlowAction::COUNT), "log_max_flow_counter") {
        return Err(refuse(syn::COUNTERS));
    }
    let lists = context
        .destination()
        .get(..(destinations as usize + counters as usize) * ELEMENT)
        .ok_or(CmdError::new(Status::BAD_INP_LEN_ERR, syn::LISTS_TRUNCATED))?;
    let (destinations, counters) = lists.split_at(destinations as usize * ELEMENT);
    let destinations = destinations
        .chunks_exact(ELEMENT)
        .map(|element| destination(ctx, table_type, level, ignore_level, &DestFormatStruct::new(element)?))
        .collect::<Result<_, _>>()?;
    let counters = counters
        .chunks_exact(ELEMENT)
        .map(|element| Ok(FlowCounterList::new(element)?.flow_counter_id()))
        .collect::<Result<_, CmdError>>()?;
    Ok(Effect { destinations, counters })
}

fn destination(
    ctx: &Ctx<'_>,
    table_type: FlowTableType,
    level: u32,
    ignore_level: bool,
    element: &DestFormatStruct<&[u8]>,
) -> Result<Destination, CmdError> {
    if element.destination_eswitch_owner_vhca_id_valid() != 0 {
        return Err(refuse(syn::OTHER_ESWITCH));
    }
    if element.packet_reformat() != 0 {
        return Err(refuse(syn::ENTRY_FEATURE));
    }
    let id = element.destination_id();
    let receives = matches!(table_type, FlowTableType::NIC_RX | FlowTableType::RDMA_RX | FlowTableType::SNIFFER_RX);
    match FlowDestType(element.destination_type() as u8) {
        FlowDestType::FLOW_TABLE => {
            // Going against the levels is allowed where advertised, but never into another type.
            let same_type = table(ctx, table_type, id).is_ok();
            if descends(ctx, table_type, level, id)? || (ignore_level && same_type) {
                Ok(Destination::Table(id))
            } else {
                Err(refuse(syn::DESTINATION_LEVEL))
            }
        }
        FlowDestType::TIR if receives => Ok(Destination::Tir(id)),
        _ => Err(refuse(syn::DESTINATION_TYPE)),
    }
}

fn set_fte(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = SetFteIn::new(input)?;
    let table_type = scope!(input).check(ctx)?;
    let (table_id, index) = (input.table_id(), input.flow_index());
    let context = input.flow_context();
    let table = table(ctx, table_type, table_id)?;
    let (level, existing) = (table.context.level(), table.entries.get(&index).copied());
    let group = group(ctx, table_id, context.group_id())?;
    if !(group.first..=group.last).contains(&index) {
        return Err(refuse(syn::ENTRY_OUTSIDE_GROUP));
    }
    let value = context.match_value();
    if value.as_bytes().iter().zip(&group.criteria[..]).any(|(value, mask)| value & !mask != 0) {
        return Err(refuse(syn::VALUE_OUTSIDE_MASK));
    }
    let effect = effect(ctx, table_type, level, &input)?;
    match (ctx.op_mod, existing) {
        (SET, None) => {
            let context = FlowContext::new(context.as_bytes()[..FlowContext::SIZE].to_vec())?;
            let Effect { destinations, counters } = effect;
            let group_id = context.group_id();
            let entry = FlowEntry { table_id, index, context, destinations, counters };
            let deps = entry.deps();
            let id = ctx.hca.objects.create(ctx.uid, entry, &deps)?;
            ctx.hca.objects.get_mut::<FlowTable>(ctx.uid, table_id)?.entries.insert(index, id);
            ctx.hca.objects.get_mut::<FlowGroup>(ctx.uid, group_id)?.insert(value.as_bytes(), index, id);
            done()
        }
        (SET, Some(_)) => Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::ENTRY_EXISTS)),
        (MODIFY, Some(id)) => modify(ctx, table_type, id, &input, effect),
        (MODIFY, None) => Err(CmdError::new(Status::BAD_RES_ERR, syn::NO_ENTRY)),
        _ => Err(unknown_op_mod()),
    }
}

fn modify(ctx: &mut Ctx<'_>, table_type: FlowTableType, id: u32, input: &SetFteIn<&[u8]>, effect: Effect) -> Reply {
    let mask = input.modify_enable_mask();
    if property(ctx, table_type, "flow_modify_en") == 0 || mask & !MODIFY_ALL != 0 {
        return Err(refuse(syn::MODIFY_ENTRY));
    }
    let wanted = input.flow_context();
    let old = ctx.hca.objects.get::<FlowEntry>(ctx.uid, id)?;
    if old.context.group_id() != wanted.group_id() {
        return Err(refuse(syn::WRONG_TABLE));
    }
    let mut new = FlowEntry {
        table_id: old.table_id,
        index: old.index,
        context: old.context.clone(),
        destinations: old.destinations.clone(),
        counters: old.counters.clone(),
    };
    if mask & MODIFY_ACTION != 0 {
        new.context.set_action(wanted.action());
    }
    if mask & MODIFY_FLOW_TAG != 0 {
        new.context.set_flow_tag(wanted.flow_tag());
    }
    if mask & MODIFY_DESTINATIONS != 0 {
        new.destinations = effect.destinations;
    }
    if mask & MODIFY_COUNTERS != 0 {
        new.counters = effect.counters;
    }
    // What is left must still make sense: lists go with their actions.
    let action = FlowAction::from_bits_retain(new.context.action() as u16);
    if action.contains(FlowAction::FWD_DEST) == new.destinations.is_empty() {
        return Err(refuse(syn::DESTINATIONS));
    }
    if action.contains(FlowAction::COUNT) == new.counters.is_empty() {
        return Err(refuse(syn::COUNTERS));
    }
    new.context.set_destination_list_size(new.destinations.len() as u32);
    new.context.set_flow_counter_list_size(new.counters.len() as u32);
    let (before, after) = (old.extra(), new.extra());
    ctx.hca.objects.recharge::<FlowEntry>(ctx.uid, id, after)?;
    if let Err(error) = ctx.hca.objects.depend::<FlowEntry>(ctx.uid, id, &new.deps()) {
        ctx.hca.objects.recharge::<FlowEntry>(ctx.uid, id, before)?;
        return Err(error);
    }
    *ctx.hca.objects.get_mut::<FlowEntry>(ctx.uid, id)? = new;
    done()
}

/// The entry object at an index of a table.
fn entry_id(ctx: &Ctx<'_>, table_type: u32, table_id: u32, index: u32) -> Result<u32, CmdError> {
    let table_type = Scope::of_type(table_type).check(ctx)?;
    let table = table(ctx, table_type, table_id)?;
    table.entries.get(&index).copied().ok_or(CmdError::new(Status::BAD_RES_ERR, syn::NO_ENTRY))
}

fn query_fte(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryFteIn::new(input)?;
    let id = entry_id(ctx, input.table_type(), input.table_id(), input.flow_index())?;
    let entry = ctx.hca.objects.get::<FlowEntry>(ctx.uid, id)?;
    let mut out = QueryFteOut::with_tail((entry.destinations.len() + entry.counters.len()) * ELEMENT);
    let mut context = out.flow_context_mut();
    context.as_bytes_mut()[..FlowContext::SIZE].copy_from_slice(entry.context.as_bytes());
    let mut elements = context.destination_mut().chunks_exact_mut(ELEMENT);
    for (destination, element) in entry.destinations.iter().zip(elements.by_ref()) {
        let (kind, id) = destination.encode();
        let mut element = DestFormatStruct::new(element)?;
        element.set_destination_type(kind.0.into());
        element.set_destination_id(id);
    }
    for (counter, element) in entry.counters.iter().zip(elements) {
        FlowCounterList::new(element)?.set_flow_counter_id(*counter);
    }
    Ok(out.into_inner())
}

fn delete_fte(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = DeleteFteIn::new(input)?;
    scope!(input).check(ctx)?;
    let (table_id, index) = (input.table_id(), input.flow_index());
    let id = entry_id(ctx, input.table_type(), table_id, index)?;
    let entry = ctx.hca.objects.destroy::<FlowEntry>(ctx.uid, id)?;
    if let Some(group) = ctx.hca.objects.flow_groups.get_mut(entry.context.group_id()) {
        group.object.remove(entry.context.match_value().as_bytes(), index);
    }
    let missing = CmdError::new(Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    ctx.hca.objects.flow_tables.get_mut(table_id).ok_or(missing)?.object.entries.remove(&index);
    done()
}
