//! Tests of flow steering: tables, groups and entries together.

use super::error::{Syndrome, common, objects};
use super::flow::syn;
use crate::prm::flow::*;
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::{FlowAction, FlowDestType, FlowTableType};
use crate::profile::Profile;
use crate::testing::{Answer, Rig};

struct Steering {
    rig: Rig,
}

fn number(out: &[u8]) -> u32 {
    u32::from_be_bytes([0, out[9], out[10], out[11]])
}

fn refused(answer: &Answer, status: Status, syndrome: Syndrome) {
    assert_eq!((answer.status(), answer.syndrome()), (status.0, syndrome.0), "expected {syndrome:?}");
}

fn bad_param(answer: &Answer, syndrome: Syndrome) {
    refused(answer, Status::BAD_PARAM_ERR, syndrome);
}

fn table(level: u32, log_size: u32, miss: Option<u32>) -> CreateFlowTableIn<Vec<u8>> {
    let mut input = CreateFlowTableIn::zeroed();
    let mut context = input.flow_table_context_mut();
    context.set_level(level);
    context.set_log_size(log_size);
    if let Some(id) = miss {
        context.set_table_miss_action(1);
        context.set_table_miss_id(id);
    }
    input
}

/// A group that matches the EtherType.
fn group(table_id: u32, first: u32, last: u32) -> CreateFlowGroupIn<Vec<u8>> {
    let mut input = CreateFlowGroupIn::zeroed();
    input.set_table_id(table_id);
    input.set_start_flow_index(first);
    input.set_end_flow_index(last);
    input.set_match_criteria_enable(1);
    input.match_criteria_mut().outer_headers_mut().set_ethertype(0xffff);
    input
}

fn entry(table_id: u32, group_id: u32, index: u32, destinations: &[(FlowDestType, u32)]) -> SetFteIn<Vec<u8>> {
    let mut input = SetFteIn::with_tail(8 * destinations.len());
    input.set_table_id(table_id);
    input.set_flow_index(index);
    let mut context = input.flow_context_mut();
    context.set_group_id(group_id);
    context.set_flow_tag(0x1234);
    let action = if destinations.is_empty() { FlowAction::DROP } else { FlowAction::FWD_DEST };
    context.set_action(action.bits().into());
    context.set_destination_list_size(destinations.len() as u32);
    context.match_value_mut().outer_headers_mut().set_ethertype(0x0800);
    for (slot, (kind, id)) in context.destination_mut().chunks_mut(8).zip(destinations) {
        slot[..4].copy_from_slice(&(u32::from(kind.0) << 24 | id).to_be_bytes());
    }
    input
}

impl Steering {
    fn new(sets: &[&str]) -> Steering {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        Steering { rig }
    }

    fn call(&mut self, opcode: Opcode, op_mod: u16, input: &[u8]) -> Answer {
        let mut input = input.to_vec();
        input[..2].copy_from_slice(&opcode.0.to_be_bytes());
        input[6..8].copy_from_slice(&op_mod.to_be_bytes());
        self.rig.exec(&input, 0x440)
    }

    fn must(&mut self, opcode: Opcode, op_mod: u16, input: &[u8]) -> Vec<u8> {
        let answer = self.call(opcode, op_mod, input);
        assert_eq!(answer.status(), 0, "{opcode}: syndrome {:#x}", answer.syndrome());
        answer.output
    }

    fn create_table(&mut self, level: u32, log_size: u32, miss: Option<u32>) -> u32 {
        number(&self.must(Opcode::CREATE_FLOW_TABLE, 0, table(level, log_size, miss).as_bytes()))
    }

    fn create_group(&mut self, table_id: u32, first: u32, last: u32) -> u32 {
        number(&self.must(Opcode::CREATE_FLOW_GROUP, 0, group(table_id, first, last).as_bytes()))
    }

    fn create_entry(&mut self, table_id: u32, group_id: u32, index: u32, to: &[(FlowDestType, u32)]) {
        self.must(Opcode::SET_FLOW_TABLE_ENTRY, 0, entry(table_id, group_id, index, to).as_bytes());
    }

    fn destroy_table(&mut self, table_id: u32) -> Answer {
        let mut input = DestroyFlowTableIn::zeroed();
        input.set_table_id(table_id);
        self.call(Opcode::DESTROY_FLOW_TABLE, 0, input.as_bytes())
    }

    fn destroy_group(&mut self, table_id: u32, group_id: u32) -> Answer {
        let mut input = DestroyFlowGroupIn::zeroed();
        input.set_table_id(table_id);
        input.set_group_id(group_id);
        self.call(Opcode::DESTROY_FLOW_GROUP, 0, input.as_bytes())
    }

    fn delete_entry(&mut self, table_id: u32, index: u32) -> Answer {
        let mut input = DeleteFteIn::zeroed();
        input.set_table_id(table_id);
        input.set_flow_index(index);
        self.call(Opcode::DELETE_FLOW_TABLE_ENTRY, 0, input.as_bytes())
    }

    fn query_entry(&mut self, table_id: u32, index: u32) -> Answer {
        let mut input = QueryFteIn::zeroed();
        input.set_table_id(table_id);
        input.set_flow_index(index);
        self.call(Opcode::QUERY_FLOW_TABLE_ENTRY, 0, input.as_bytes())
    }

    fn set_root(&mut self, table_id: u32) -> Answer {
        let mut input = SetFlowTableRootIn::zeroed();
        input.set_table_id(table_id);
        self.call(Opcode::SET_FLOW_TABLE_ROOT, 0, input.as_bytes())
    }

    fn root(&self) -> Option<u32> {
        self.rig.function.hca().roots.get(FlowTableType::NIC_RX)
    }
}

const TABLE: FlowDestType = FlowDestType::FLOW_TABLE;

#[test]
fn the_drivers_chain_is_built_and_taken_down() {
    let mut s = Steering::new(&[]);
    let anchor = s.create_table(59, 0, None);
    assert_eq!(s.set_root(anchor).status(), 0);
    let ttc = s.create_table(13, 4, Some(anchor));
    let l2 = s.create_table(12, 16, Some(anchor));
    assert_eq!(s.set_root(l2).status(), 0);
    let group = s.create_group(l2, 0, 0x7fff);
    s.create_group(l2, 0x8000, 0x8000);
    s.create_entry(l2, group, 0x7fff, &[(TABLE, ttc)]);
    assert_eq!(s.root(), Some(l2));

    refused(&s.destroy_table(l2), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(&s.destroy_table(ttc), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(&s.destroy_table(anchor), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(&s.destroy_group(l2, group), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    assert_eq!(s.delete_entry(l2, 0x7fff).status(), 0);
    refused(&s.delete_entry(l2, 0x7fff), Status::BAD_RES_ERR, syn::NO_ENTRY);
    assert_eq!(s.destroy_group(l2, group).status(), 0);
    refused(&s.destroy_group(l2, group), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    assert_eq!(s.destroy_group(l2, group + 1).status(), 0);
    assert_eq!(s.destroy_table(l2).status(), 0);
    assert_eq!(s.root(), None, "a root goes with its table");
    assert_eq!(s.destroy_table(ttc).status(), 0);
    assert_eq!(s.destroy_table(anchor).status(), 0);
    assert!(s.rig.function.hca().census().is_empty());
}

#[test]
fn a_table_stays_within_the_capabilities_of_its_type() {
    let mut s = Steering::new(&[
        "caps.flow_table.flow_table_properties_nic_receive.log_max_ft_num=1",
        "caps.flow_table.flow_table_properties_nic_receive.max_ft_level=64",
        "caps.flow_table.flow_table_properties_nic_receive.log_max_ft_size=17",
    ]);
    type Edit = fn(&mut CreateFlowTableIn<Vec<u8>>);
    let cases: [(Edit, Syndrome); 12] = [
        (|i| i.flow_table_context_mut().set_level(65), syn::LEVEL),
        (|i| i.flow_table_context_mut().set_log_size(18), syn::SIZE),
        (|i| i.flow_table_context_mut().set_log_size(255), syn::SIZE),
        (|i| i.flow_table_context_mut().set_reformat_en(1), syn::TABLE_FEATURE),
        (|i| i.flow_table_context_mut().set_termination_table(1), syn::TABLE_FEATURE),
        (|i| i.flow_table_context_mut().set_table_miss_action(2), syn::MISS_ACTION),
        (|i| i.flow_table_context_mut().set_table_miss_action(3), syn::MISS_ACTION),
        (|i| i.set_table_type(2), syn::TABLE_TYPE),
        (|i| i.set_table_type(4), syn::TABLE_TYPE),
        (|i| i.set_other_vport(1), common::OTHER_VPORT),
        (|i| i.set_other_eswitch(1), syn::OTHER_ESWITCH),
        (|i| i.set_eswitch_owner_vhca_id(2), syn::OTHER_ESWITCH),
    ];
    for (edit, syndrome) in cases {
        let mut input = table(10, 4, None);
        edit(&mut input);
        bad_param(&s.call(Opcode::CREATE_FLOW_TABLE, 0, input.as_bytes()), syndrome);
    }
    bad_param(&s.call(Opcode::CREATE_FLOW_TABLE, 1, table(10, 4, None).as_bytes()), common::UNKNOWN_OP_MOD);
    s.create_table(10, 17, None);
    s.create_table(64, 0, None);
    refused(
        &s.call(Opcode::CREATE_FLOW_TABLE, 0, table(10, 4, None).as_bytes()),
        Status::LIM_ERR,
        syn::TOO_MANY_TABLES,
    );
}

#[test]
fn misses_go_down_the_levels() {
    let mut s = Steering::new(&[]);
    let low = s.create_table(20, 0, None);
    let other = s.create_table(30, 0, None);
    for level in [20, 21] {
        bad_param(&s.call(Opcode::CREATE_FLOW_TABLE, 0, table(level, 0, Some(low)).as_bytes()), syn::MISS_LEVEL);
    }
    refused(
        &s.call(Opcode::CREATE_FLOW_TABLE, 0, table(1, 0, Some(0xffffff)).as_bytes()),
        Status::BAD_RES_ERR,
        objects::NO_SUCH_OBJECT,
    );
    let top = s.create_table(10, 0, Some(low));
    let modify = |select: u32, miss: Option<u32>| {
        let mut input = ModifyFlowTableIn::zeroed();
        input.set_table_id(top);
        input.set_modify_field_select(select);
        if let Some(id) = miss {
            input.flow_table_context_mut().set_table_miss_action(1);
            input.flow_table_context_mut().set_table_miss_id(id);
        }
        input
    };
    s.must(Opcode::MODIFY_FLOW_TABLE, 0, modify(1, Some(other)).as_bytes());
    assert_eq!(s.destroy_table(low).status(), 0, "nothing points at it any more");
    refused(&s.destroy_table(other), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    bad_param(&s.call(Opcode::MODIFY_FLOW_TABLE, 0, modify(1, Some(top)).as_bytes()), syn::MISS_LEVEL);
    bad_param(&s.call(Opcode::MODIFY_FLOW_TABLE, 0, modify(1 << 15, None).as_bytes()), syn::UNKNOWN_FIELD);
    let mut query = QueryFlowTableIn::zeroed();
    query.set_table_id(top);
    let out = QueryFlowTableOut::new(s.must(Opcode::QUERY_FLOW_TABLE, 0, query.as_bytes())).unwrap();
    let context = out.flow_table_context();
    assert_eq!((context.level(), context.table_miss_action(), context.table_miss_id()), (10, 1, other));
    s.must(Opcode::MODIFY_FLOW_TABLE, 0, modify(1, None).as_bytes());
    assert_eq!(s.destroy_table(other).status(), 0);
}

#[test]
fn groups_share_a_table_without_overlap() {
    let mut s = Steering::new(&[]);
    let id = s.create_table(10, 4, None);
    let first = s.create_group(id, 4, 7);
    for (start, end, syndrome) in [
        (7, 8, syn::GROUP_OVERLAP),
        (0, 15, syn::GROUP_OVERLAP),
        (5, 6, syn::GROUP_OVERLAP),
        (9, 8, syn::GROUP_RANGE),
        (15, 16, syn::GROUP_RANGE),
        (0, u32::MAX, syn::GROUP_RANGE),
    ] {
        bad_param(&s.call(Opcode::CREATE_FLOW_GROUP, 0, group(id, start, end).as_bytes()), syndrome);
    }
    s.create_group(id, 0, 3);
    s.create_group(id, 8, 15);
    assert_eq!(s.destroy_group(id, first).status(), 0);
    let again = s.create_group(id, 4, 5);
    let mut query = QueryFlowGroupIn::zeroed();
    query.set_table_id(id);
    query.set_group_id(again);
    let out = QueryFlowGroupOut::new(s.must(Opcode::QUERY_FLOW_GROUP, 0, query.as_bytes())).unwrap();
    assert_eq!((out.start_flow_index(), out.end_flow_index(), out.match_criteria_enable()), (4, 5, 1));
    assert_eq!(out.match_criteria().outer_headers().ethertype(), 0xffff);
    let other = s.create_table(10, 4, None);
    bad_param(&s.destroy_group(other, again), syn::WRONG_TABLE);
}

#[test]
fn a_mask_names_only_what_can_be_matched() {
    let mut s = Steering::new(&["caps.flow_table.flow_table_properties_nic_receive.ft_field_support.outer_dmac=0"]);
    let id = s.create_table(10, 4, None);
    type Edit = fn(&mut CreateFlowGroupIn<Vec<u8>>);
    let cases: [(Edit, Syndrome); 9] = [
        (|i| i.match_criteria_mut().outer_headers_mut().set_dmac_15_0(1), syn::CRITERIA_FIELD),
        (|i| i.match_criteria_mut().outer_headers_mut().set_ipv4_ihl(1), syn::CRITERIA_FIELD),
        (|i| i.match_criteria_mut().misc_parameters_mut().set_source_sqn(1), syn::CRITERIA_SET),
        (|i| i.match_criteria_mut().as_bytes_mut()[0x1ff] = 1, syn::CRITERIA_SET),
        (|i| i.set_match_criteria_enable(0), syn::CRITERIA_SET),
        (
            |i| {
                i.set_match_criteria_enable(5);
                i.match_criteria_mut().inner_headers_mut().set_ethertype(1);
            },
            syn::CRITERIA_FIELD,
        ),
        (|i| i.set_group_type(1), syn::GROUP_TYPE),
        (|i| i.set_match_definer_id(1), syn::DEFINER),
        (|i| i.set_source_eswitch_owner_vhca_id_valid(1), syn::OTHER_ESWITCH),
    ];
    for (edit, syndrome) in cases {
        let mut input = group(id, 0, 1);
        edit(&mut input);
        bad_param(&s.call(Opcode::CREATE_FLOW_GROUP, 0, input.as_bytes()), syndrome);
    }
    let mut all = group(id, 0, 1);
    {
        let mut criteria = all.match_criteria_mut();
        let mut outer = criteria.outer_headers_mut();
        outer.as_bytes_mut().fill(0xff);
        outer.set_dmac_47_16(0);
        outer.set_dmac_15_0(0);
        outer.set_l4_type(0);
        outer.set_l4_type_ext(0);
        outer.set_ipv4_ihl(0);
        outer.set_ttl_hoplimit(0);
        outer.as_bytes_mut()[0x19] = 0;
        outer.as_bytes_mut()[0x1a] = 0;
        outer.as_bytes_mut()[0x18] = 0;
    }
    s.must(Opcode::CREATE_FLOW_GROUP, 0, all.as_bytes());
}

#[test]
fn an_entry_fits_its_group_and_its_mask() {
    let mut s = Steering::new(&[]);
    let id = s.create_table(10, 4, None);
    let first = s.create_group(id, 0, 3);
    let second = s.create_group(id, 4, 7);
    let other = s.create_table(11, 4, None);
    let foreign = s.create_group(other, 0, 3);
    let set = |s: &mut Steering, input: &SetFteIn<Vec<u8>>| s.call(Opcode::SET_FLOW_TABLE_ENTRY, 0, input.as_bytes());
    bad_param(&set(&mut s, &entry(id, first, 4, &[])), syn::ENTRY_OUTSIDE_GROUP);
    bad_param(&set(&mut s, &entry(id, second, 3, &[])), syn::ENTRY_OUTSIDE_GROUP);
    bad_param(&set(&mut s, &entry(id, foreign, 0, &[])), syn::WRONG_TABLE);
    refused(&set(&mut s, &entry(id, 0xffffff, 0, &[])), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    let mut value = entry(id, first, 0, &[]);
    value.flow_context_mut().match_value_mut().outer_headers_mut().set_ip_version(4);
    bad_param(&set(&mut s, &value), syn::VALUE_OUTSIDE_MASK);
    assert_eq!(set(&mut s, &entry(id, first, 0, &[])).status(), 0);
    refused(&set(&mut s, &entry(id, first, 0, &[])), Status::BAD_RES_STATE_ERR, syn::ENTRY_EXISTS);
    bad_param(&s.call(Opcode::SET_FLOW_TABLE_ENTRY, 2, entry(id, first, 1, &[]).as_bytes()), common::UNKNOWN_OP_MOD);
}

#[test]
fn actions_and_lists_go_together() {
    let mut s = Steering::new(&["caps.flow_table.flow_table_properties_nic_receive.log_max_destination=1"]);
    let id = s.create_table(10, 4, None);
    let down = s.create_table(11, 0, None);
    let group = s.create_group(id, 0, 15);
    let set = |s: &mut Steering, input: &SetFteIn<Vec<u8>>| s.call(Opcode::SET_FLOW_TABLE_ENTRY, 0, input.as_bytes());
    let action = |input: &mut SetFteIn<Vec<u8>>, bits: u32| input.flow_context_mut().set_action(bits);
    for (bits, syndrome) in
        [(0x4, syn::DESTINATIONS), (0x8, syn::COUNTERS), (0x3, syn::ACTION), (0x40, syn::ACTION), (0x8000, syn::ACTION)]
    {
        let mut input = entry(id, group, 0, &[]);
        action(&mut input, bits);
        bad_param(&set(&mut s, &input), syndrome);
    }
    let mut input = entry(id, group, 0, &[(TABLE, down)]);
    action(&mut input, 0x2);
    bad_param(&set(&mut s, &input), syn::DESTINATIONS);
    bad_param(&set(&mut s, &entry(id, group, 0, &[(TABLE, down); 3])), syn::DESTINATIONS);
    let mut short = entry(id, group, 0, &[(TABLE, down)]);
    short.flow_context_mut().set_destination_list_size(2);
    refused(&set(&mut s, &short), Status::BAD_INP_LEN_ERR, syn::LISTS_TRUNCATED);
    for (kind, target, syndrome) in [
        (FlowDestType::VPORT, 0, syn::DESTINATION_TYPE),
        (FlowDestType::UPLINK, 0, syn::DESTINATION_TYPE),
        (FlowDestType(0xff), 0, syn::DESTINATION_TYPE),
        (TABLE, id, syn::DESTINATION_LEVEL),
    ] {
        bad_param(&set(&mut s, &entry(id, group, 0, &[(kind, target)])), syndrome);
    }
    refused(
        &set(&mut s, &entry(id, group, 0, &[(FlowDestType::TIR, 7)])),
        Status::BAD_RES_ERR,
        objects::NO_SUCH_DEPENDENCY,
    );
    let mut features = entry(id, group, 0, &[]);
    features.flow_context_mut().set_modify_header_id(1);
    bad_param(&set(&mut s, &features), syn::ENTRY_FEATURE);
    let mut ignore = entry(id, group, 0, &[(TABLE, id)]);
    ignore.set_ignore_flow_level(1);
    bad_param(&set(&mut s, &ignore), syn::ENTRY_FEATURE);
}

#[test]
fn an_entry_is_returned_as_it_was_set_and_modified_by_its_mask() {
    let mut s = Steering::new(&[]);
    let id = s.create_table(10, 4, None);
    let (a, b) = (s.create_table(11, 0, None), s.create_table(12, 0, None));
    let group = s.create_group(id, 0, 15);
    let counter = {
        let out = s.must(Opcode::ALLOC_FLOW_COUNTER, 0, &[0; 16]);
        u32::from_be_bytes(out[8..12].try_into().unwrap())
    };
    s.create_entry(id, group, 3, &[(TABLE, a)]);
    let mut change = entry(id, group, 3, &[(TABLE, b), (FlowDestType(0), counter << 8)]);
    let mut context = change.flow_context_mut();
    context.set_action((FlowAction::FWD_DEST | FlowAction::COUNT).bits().into());
    context.set_destination_list_size(1);
    context.set_flow_counter_list_size(1);
    context.set_flow_tag(0x777);
    context.destination_mut()[8..12].copy_from_slice(&counter.to_be_bytes());
    let modify = |s: &mut Steering, change: &mut SetFteIn<Vec<u8>>, mask: u32| {
        change.set_modify_enable_mask(mask);
        s.call(Opcode::SET_FLOW_TABLE_ENTRY, 1, change.as_bytes())
    };
    // A counter without the action that counts, and the other way round.
    bad_param(&modify(&mut s, &mut change, 1 << 3), syn::COUNTERS);
    bad_param(&modify(&mut s, &mut change, 1 << 0), syn::COUNTERS);
    bad_param(&modify(&mut s, &mut change, 1 << 4), syn::MODIFY_ENTRY);
    assert_eq!(modify(&mut s, &mut change, 1 << 2).status(), 0);
    let out = QueryFteOut::new(s.query_entry(id, 3).output).unwrap();
    assert_eq!(out.flow_context().destination()[..8], [1, 0, 0, b as u8, 0, 0, 0, 0]);
    assert_eq!((out.flow_context().flow_tag(), out.flow_context().action()), (0x1234, 4));
    assert_eq!(s.destroy_table(a).status(), 0, "no longer a destination");
    assert_eq!(modify(&mut s, &mut change, 0b1111).status(), 0);
    let out = QueryFteOut::new(s.query_entry(id, 3).output).unwrap();
    let context = out.flow_context();
    assert_eq!((context.flow_tag(), context.action(), context.flow_counter_list_size()), (0x777, 0xc, 1));
    assert_eq!(context.destination()[8..12], counter.to_be_bytes());
    assert_eq!(context.match_value().outer_headers().ethertype(), 0x0800);
    let mut dealloc = Rig::input(Opcode::DEALLOC_FLOW_COUNTER.0, 0, 16);
    dealloc[8..12].copy_from_slice(&counter.to_be_bytes());
    refused(&s.call(Opcode::DEALLOC_FLOW_COUNTER, 0, &dealloc), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    change.set_flow_index(4);
    refused(&modify(&mut s, &mut change, 1), Status::BAD_RES_ERR, syn::NO_ENTRY);
    refused(&s.query_entry(id, 4), Status::BAD_RES_ERR, syn::NO_ENTRY);
    assert_eq!(s.delete_entry(id, 3).status(), 0);
    assert_eq!(s.call(Opcode::DEALLOC_FLOW_COUNTER, 0, &dealloc).status(), 0);
}

#[test]
fn a_root_must_be_a_table_and_can_only_change_where_advertised() {
    let mut s = Steering::new(&[]);
    refused(&s.set_root(5), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    let id = s.create_table(10, 0, None);
    let mut input = SetFlowTableRootIn::zeroed();
    input.set_table_id(id);
    bad_param(&s.call(Opcode::SET_FLOW_TABLE_ROOT, 1, input.as_bytes()), syn::MODIFY);
    bad_param(&s.call(Opcode::SET_FLOW_TABLE_ROOT, 2, input.as_bytes()), common::UNKNOWN_OP_MOD);
    input.set_underlay_qpn(1);
    bad_param(&s.call(Opcode::SET_FLOW_TABLE_ROOT, 0, input.as_bytes()), syn::UNDERLAY);
    let mut fixed = Steering::new(&["caps.flow_table.flow_table_properties_nic_receive.modify_root=0"]);
    let id = fixed.create_table(10, 0, None);
    bad_param(&fixed.set_root(id), syn::MODIFY);
}

#[test]
fn entries_are_bounded_by_the_memory_that_the_driver_lent() {
    let mut s = Steering::new(&["pages.init=64"]);
    let id = s.create_table(10, 16, None);
    let group = s.create_group(id, 0, 0xffff);
    let mut made = 0;
    let answer = loop {
        let answer = s.call(Opcode::SET_FLOW_TABLE_ENTRY, 0, entry(id, group, made, &[]).as_bytes());
        if answer.status() != 0 {
            break answer;
        }
        made += 1;
    };
    refused(&answer, Status::LIM_ERR, common::NO_ICM_PAGES);
    assert!((100..400).contains(&made), "{made} entries of about 1 KiB in 64 pages");
}

#[test]
fn an_entry_is_charged_for_the_lists_that_it_is_given_later() {
    let mut s = Steering::new(&[]);
    let id = s.create_table(10, 4, None);
    let target = s.create_table(11, 0, None);
    let group = s.create_group(id, 0, 15);
    s.create_entry(id, group, 3, &[(TABLE, target)]);
    let used = |s: &Steering| s.rig.function.hca().objects.pages.used();
    let before = used(&s);
    let mut change = entry(id, group, 3, &[(TABLE, target); 200]);
    change.set_modify_enable_mask(1 << 2);
    s.must(Opcode::SET_FLOW_TABLE_ENTRY, 1, change.as_bytes());
    assert_eq!(used(&s), before + 8 * 199);
    let mut change = entry(id, group, 3, &[(TABLE, target)]);
    change.set_modify_enable_mask(1 << 2);
    s.must(Opcode::SET_FLOW_TABLE_ENTRY, 1, change.as_bytes());
    assert_eq!(used(&s), before);
}
