//! The command interface as a driver sees it: delivery, phases, signatures, and the way up and down.

use super::error::common;
use super::hca::syn as hca_syn;
use super::hca_cap::syn as cap_syn;
use crate::cmdif::error::{objects as obj_syn, pages as page_syn};
use crate::prm::event::EventType;
use crate::prm::hca::{QueryHcaCapOut, QueryIssiOut, QueryPagesOut, SetHcaCapIn};
use crate::prm::status::{Delivery, Status};
use crate::profile::Profile;
use crate::testing::{FREE, RAM, Rig};

fn rig() -> Rig {
    Rig::new(Profile::default())
}

fn refused(rig: &mut Rig, input: &[u8]) -> (Status, u32) {
    let answer = rig.exec(input, 16);
    assert_eq!(answer.delivery, 0, "delivered");
    (Status(answer.status()), answer.syndrome())
}

#[test]
fn the_way_up_and_down_returns_every_page() {
    let mut rig = rig();
    rig.bring_up();
    let lent = rig.function.hca().objects.pages.counters().lent;
    assert_eq!(lent, 64 + 1024);
    assert_eq!(rig.tear_down(), lent);
    let pages = rig.function.hca().objects.pages.counters();
    assert_eq!((pages.given, pages.returned, pages.lent), (lent, lent, 0));
    rig.bring_up();
    assert_eq!(rig.tear_down(), lent);
}

#[test]
fn commands_are_refused_in_the_wrong_phase() {
    let mut rig = rig();
    let wrong = (Status::BAD_SYS_STATE_ERR, common::WRONG_STATE.0);
    for opcode in [0x100, 0x102, 0x103, 0x105, 0x107, 0x10a, 0x301, 0x802] {
        assert_eq!(refused(&mut rig, &Rig::input(opcode, 0, 16)), wrong, "{opcode:#x} before ENABLE_HCA");
    }
    rig.bring_up();
    for opcode in [0x104, 0x102, 0x105, 0x109] {
        assert_eq!(refused(&mut rig, &Rig::input(opcode, 0, 16)), wrong, "{opcode:#x} while running");
    }
    rig.ok(&Rig::input(0x103, 0, 16), 16);
    for opcode in [0x103, 0x301, 0x802] {
        assert_eq!(refused(&mut rig, &Rig::input(opcode, 0, 16)), wrong, "{opcode:#x} after TEARDOWN_HCA");
    }
}

#[test]
fn an_unknown_opcode_is_refused_and_counted_once_by_name() {
    let mut rig = rig();
    assert_eq!(refused(&mut rig, &Rig::input(0xfff, 0, 16)), (Status::BAD_OP_ERR, common::UNKNOWN_OPCODE.0));
    refused(&mut rig, &Rig::input(0xfff, 0, 16));
    let summary = rig.function.summary();
    assert_eq!(summary.unimplemented.opcodes.values().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_short_input_is_refused_by_length() {
    let mut rig = rig();
    assert_eq!(refused(&mut rig, &Rig::input(0x104, 0, 8)).0, Status::BAD_INP_LEN_ERR);
    rig.bring_up();
    assert_eq!(refused(&mut rig, &Rig::input(0x301, 0, 64)), (Status::BAD_INP_LEN_ERR, common::INPUT_TOO_SHORT.0));
}

#[test]
fn output_is_cut_to_the_room_and_zero_filled_beyond_the_answer() {
    let mut rig = rig();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    let out = rig.ok(&Rig::input(0x10a, 0, 16), 0x70);
    assert_eq!(QueryIssiOut::new(&out[..]).expect("whole").supported_issi_dw0(), 3);
    rig.write(0x80_0000, &[0xee; 512]);
    let out = rig.ok(&Rig::input(0x10a, 0, 16), 0x200);
    assert_eq!(out[0x6c..0x70], [0, 0, 0, 3]);
    assert!(out[0x70..].iter().all(|byte| *byte == 0));
    assert_eq!(rig.ok(&Rig::input(0x10a, 0, 16), 8)[0], 0);
}

/// Changes one field of a good ENABLE_HCA entry and says what the driver reads back.
fn delivered(change: impl FnOnce(&mut [u8; 64])) -> Delivery {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 64), 64);
    let mut entry: [u8; 64] = rig.entry(0).try_into().expect("64 bytes");
    change(&mut entry);
    rig.write_entry(0, entry);
    rig.ring(1);
    let entry = rig.entry(0);
    assert_eq!(entry[0x3f] & 1, 0, "ownership returns");
    assert_eq!(entry.iter().fold(0, |sum, byte| sum ^ byte), 0xff, "the answer is signed");
    Delivery(entry[0x3f] >> 1)
}

#[test]
fn each_fault_of_an_entry_has_its_delivery_status() {
    let put = |entry: &mut [u8; 64], at: usize, value: u64| {
        entry[at..at + 8].copy_from_slice(&value.to_be_bytes());
    };
    assert_eq!(delivered(|_| ()), Delivery::OK);
    assert_eq!(delivered(|e| e[0] = 6), Delivery::CMD_DESCR_ERR);
    assert_eq!(delivered(|e| e[4..8].copy_from_slice(&7u32.to_be_bytes())), Delivery::IN_LENGTH_ERR);
    assert_eq!(delivered(|e| e[4..8].fill(0xff)), Delivery::IN_LENGTH_ERR);
    assert_eq!(delivered(|e| e[0x38..0x3c].copy_from_slice(&7u32.to_be_bytes())), Delivery::OUT_LENGTH_ERR);
    assert_eq!(delivered(|e| e[0x38..0x3c].fill(0xff)), Delivery::OUT_LENGTH_ERR);
    assert_eq!(delivered(|e| put(e, 8, 0)), Delivery::IN_LENGTH_ERR);
    assert_eq!(delivered(|e| put(e, 0x30, 0)), Delivery::OUT_LENGTH_ERR);
    assert_eq!(delivered(|e| put(e, 8, RAM)), Delivery::IN_PTR_ALIGN_ERR);
    assert_eq!(delivered(|e| put(e, 8, !0x3ff)), Delivery::IN_PTR_ALIGN_ERR);
    assert_eq!(delivered(|e| put(e, 0x30, RAM)), Delivery::OUT_PTR_ALIGN_ERR);
    assert_eq!(delivered(|e| put(e, 8, 0x10_0200)), Delivery::IN_PTR_ALIGN_ERR);
    assert_eq!(delivered(|e| e[0x3c] ^= 1), Delivery::TOK_ERR);
}

#[test]
fn a_wrong_entry_signature_is_a_signature_error() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 16), 16);
    let mut entry = rig.entry(0);
    entry[0x3d] ^= 0x10;
    rig.write(0x1000, &entry);
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], Delivery::SIGNAT_ERR.0 << 1);
}

#[test]
fn a_looping_mailbox_chain_ends_at_the_wrong_block_number() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 16 + 3 * 512), 16);
    let first = 0x10_0000u64;
    rig.write(first + 0x400 + 0x230, &first.to_be_bytes());
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], Delivery::BAD_BLK_NUM_ERR.0 << 1);
}

#[test]
fn a_truncated_mailbox_chain_is_a_length_error() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 16 + 3 * 512), 16);
    rig.write(0x10_0000 + 0x400 + 0x230, &0u64.to_be_bytes());
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], Delivery::IN_LENGTH_ERR.0 << 1);
}

#[test]
fn stale_blocks_beyond_the_length_are_not_looked_at() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 64), 16);
    rig.write(0x10_0000 + 0x230, &0xdead_beefu64.to_be_bytes());
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], 0);
}

#[test]
fn an_entry_that_software_owns_is_left_alone() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 16), 16);
    let mut entry: [u8; 64] = rig.entry(0).try_into().expect("64 bytes");
    entry[0x3f] = 0;
    rig.write_entry(0, entry);
    let before = rig.entry(0);
    rig.ring(1);
    assert_eq!(rig.entry(0), before);
}

#[test]
fn every_slot_of_a_doorbell_is_served() {
    let mut rig = rig();
    for slot in 0..32 {
        rig.post(slot, &Rig::input(0xfff, 0, 16), 16);
    }
    rig.ring(0xffff_ffff);
    for slot in 0..32 {
        assert_eq!(rig.entry(slot)[0x3f], 0, "slot {slot}");
        assert_eq!(rig.entry(slot)[0x20], Status::BAD_OP_ERR.0, "slot {slot}");
    }
}

#[test]
fn a_queue_outside_guest_memory_harms_nobody() {
    let mut rig = rig();
    for address in [RAM, !0xfff] {
        rig.function.bar_write(0x10, &((address >> 32) as u32).to_be_bytes());
        rig.function.bar_write(0x14, &(address as u32).to_be_bytes());
        rig.ring(0xffff_ffff);
        assert_eq!(rig.bar(0x23c) >> 16 & 0xff, 0xa, "the health buffer says the fetch failed");
        assert_eq!(rig.bar(0x14) >> 8 & 7, 1, "the interface is disabled");
    }
    rig.enable();
    rig.bring_up();
}

#[test]
fn no_command_runs_without_bus_mastering() {
    let mut rig = rig();
    rig.post(0, &Rig::input(0x104, 0, 16), 16);
    rig.function.config_write(4, &[2, 0]);
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], 1);
}

#[test]
fn mailbox_signatures_are_checked_and_produced_once_enabled() {
    let mut rig = rig();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    let caps = rig.ok(&Rig::input(0x100, 1, 16), 0x1010);
    let mut set = SetHcaCapIn::zeroed();
    set.set_opcode(0x109);
    set.set_capability(QueryHcaCapOut::new(&caps[..]).expect("whole").capability());
    let checksum = crate::profile::caps::layout(0).and_then(|l| l.find("cmdif_checksum")).expect("declared");
    let mut bytes = set.into_inner();
    crate::prm::bits::set(&mut bytes[16..], checksum.0, checksum.1, 3);
    rig.ok(&bytes, 16);
    // An unsigned input block is refused from now on.
    rig.post(0, &Rig::input(0x100, 1, 64), 64);
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], Delivery::SIGNAT_ERR.0 << 1);
    // An answer carries both signatures.
    rig.ok(&Rig::input(0x100, 1, 16), 0x200);
    let block = rig.read(0x80_0000, 576);
    assert_eq!(block[512..575].iter().fold(0, |sum, b| sum ^ b), 0xff);
    assert_eq!(block.iter().fold(0, |sum, b| sum ^ b), 0xff);
}

#[test]
fn capabilities_beyond_the_maximum_cannot_be_set() {
    let mut rig = rig();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    let mut input = Rig::input(0x109, 0, 0x1010);
    input[16..].fill(0xff);
    assert_eq!(refused(&mut rig, &input), (Status::BAD_PARAM_ERR, cap_syn::BEYOND_MAX.0));
    assert_eq!(refused(&mut rig, &Rig::input(0x100, 0x7f << 1, 16)), (Status::BAD_PARAM_ERR, cap_syn::NO_SUCH_TYPE.0));
}

#[test]
fn setting_the_atomic_mode_leaves_the_other_atomic_capabilities() {
    let mut rig = rig();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    let field = |name| crate::prm::caps_general2::AtomicCaps::LAYOUT.find(name).expect("declared");
    let mode = field("atomic_req_8B_endianness_mode");
    let before = rig.ok(&Rig::input(0x100, 3 << 1 | 1, 16), 0x1010);
    let mut input = Rig::input(0x109, 3 << 1, 0x1010);
    crate::prm::bits::set(&mut input[16..], mode.0, mode.1, 1);
    rig.ok(&input, 16);
    let mut after = rig.ok(&Rig::input(0x100, 3 << 1 | 1, 16), 0x1010);
    assert_eq!(crate::prm::bits::get(&after[16..], mode.0, mode.1), 1);
    crate::prm::bits::set(&mut after[16..], mode.0, mode.1, 0);
    assert_eq!(after, before);
}

#[test]
fn pages_are_accounted_and_hostile_lists_are_refused() {
    let mut rig = rig();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    let give = |rig: &mut Rig, count: u32, pages: &[u64]| {
        let mut input = Rig::input(0x108, 1, 16);
        input[12..16].copy_from_slice(&count.to_be_bytes());
        pages.iter().for_each(|page| input.extend(page.to_be_bytes()));
        refused(rig, &input)
    };
    let bad = |syndrome: crate::cmdif::error::Syndrome| (Status::BAD_PARAM_ERR, syndrome.0);
    assert_eq!(give(&mut rig, 2, &[FREE]), bad(page_syn::COUNT));
    assert_eq!(give(&mut rig, u32::MAX, &[FREE]), bad(page_syn::COUNT));
    assert_eq!(give(&mut rig, 1, &[RAM]), bad(page_syn::NOT_MAPPED));
    assert_eq!(give(&mut rig, 1, &[FREE + 8]), bad(page_syn::MISALIGNED));
    assert_eq!(give(&mut rig, 2, &[FREE, FREE]), bad(page_syn::ALREADY_GIVEN));
    assert_eq!(refused(&mut rig, &Rig::input(0x102, 0, 32)), (Status::BAD_SYS_STATE_ERR, hca_syn::NEEDS_PAGES.0));
    let mut other = Rig::input(0x107, 1, 16);
    other[11] = 1;
    assert_eq!(refused(&mut rig, &other), bad(common::OTHER_FUNCTION));
    let out = rig.ok(&Rig::input(0x107, 1, 16), 16);
    assert_eq!(QueryPagesOut::new(&out[..]).expect("whole").num_pages(), 64);
}

#[test]
fn an_eq_must_fit_the_capabilities_and_its_pages() {
    let mut rig = rig();
    rig.bring_up();
    let uar = rig.ok(&Rig::input(0x802, 0, 16), 16);
    let mut input = Rig::input(0x301, 0, 0x110 + 4 * 8);
    input[0x10 + 0xd..0x20].copy_from_slice(&uar[9..12]);
    input[0x1c] = 8; // 256 entries, four pages
    for page in 0..4u64 {
        let at = 0x110 + 8 * page as usize;
        input[at..at + 8].copy_from_slice(&(FREE + page * 4096).to_be_bytes());
    }
    let eqn = rig.ok(&input, 16)[11];
    assert_ne!(eqn, 0);
    // The UAR is in use now.
    let mut dealloc = Rig::input(0x803, 0, 16);
    dealloc[9..12].copy_from_slice(&uar[9..12]);
    assert_eq!(refused(&mut rig, &dealloc), (Status::BAD_RES_STATE_ERR, obj_syn::IN_USE.0));
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = input.clone();
        change(&mut changed);
        changed
    };
    assert_eq!(refused(&mut rig, &with(&|i| i[0x1c] = 31)).0, Status::BAD_PARAM_ERR);
    assert_eq!(refused(&mut rig, &with(&|i| i[0x1c] = 9)).1, crate::cmdif::error::pas::TOO_FEW.0);
    assert_eq!(refused(&mut rig, &with(&|i| i[0x26..0x28].fill(0xff))).0, Status::BAD_PARAM_ERR);
    assert_eq!(refused(&mut rig, &with(&|i| i[0x1d..0x20].fill(0xff))).1, obj_syn::NO_SUCH_DEPENDENCY.0);
    let mut destroy = Rig::input(0x302, 0, 16);
    destroy[11] = eqn;
    rig.ok(&destroy, 16);
    assert_eq!(refused(&mut rig, &destroy), (Status::BAD_RES_ERR, obj_syn::NO_SUCH_OBJECT.0));
    rig.ok(&dealloc, 16);
}

#[test]
fn a_reset_forgets_everything_and_the_next_driver_starts_anew() {
    let mut rig = rig();
    rig.bring_up();
    rig.ok(&Rig::input(0x802, 0, 16), 16);
    for _ in 0..2 {
        rig.function.config_write(0x68, &[0x10, 0xa8]);
    }
    assert_eq!(rig.function.hca().census().len(), 0);
    rig.forget_pages();
    rig.enable();
    rig.bring_up();
    rig.tear_down();
    let summary = rig.function.summary();
    assert_eq!(summary.resets.get("flr"), Some(&2));
    assert_eq!(summary.pages.dropped_by_reset, 64 + 1024);
}

#[test]
fn a_fast_teardown_ends_with_a_disabled_interface_that_a_driver_can_revive() {
    let mut rig = rig();
    rig.bring_up();
    if rig.function.hca().caps.general("fast_teardown") == 0 {
        return;
    }
    let mut prepare = Rig::input(0x103, 0, 16);
    prepare[11] = 2;
    rig.ok(&prepare, 16);
    rig.function.bar_write(0x14, &(0x1000u32 | 1 << 8).to_be_bytes());
    assert_eq!(rig.bar(0x14) >> 8 & 7, 1);
    rig.forget_pages();
    rig.enable();
    assert_eq!(rig.bar(0x14) >> 8 & 7, 0);
    rig.bring_up();
}

#[test]
fn an_internal_error_stops_commands_until_a_driver_starts_the_function_anew() {
    let mut rig = rig();
    rig.bring_up();
    rig.function.fail(crate::device::init_segment::Health::FirmwareError);
    assert_eq!(rig.bar(0x238) >> 24 & 0x80, 0x80, "a reset is requested");
    rig.post(0, &Rig::input(0x802, 0, 16), 16);
    rig.ring(1);
    assert_eq!(rig.entry(0)[0x3f], 1, "a disabled interface serves no doorbell");
    rig.forget_pages();
    rig.enable();
    assert_eq!(rig.bar(0x23c), 0);
    rig.bring_up();
    rig.tear_down();
}

#[test]
fn the_command_that_makes_its_event_queue_is_not_announced_on_it_but_the_next_one_is() {
    let mut rig = rig();
    rig.bring_up();
    let buffer = rig.event_queue(1 << EventType::CMD.0);
    rig.settle();
    assert_eq!(rig.read(buffer, 64), [0xff; 64], "the driver still polls");
    rig.ok(&Rig::input(0x10a, 0, 16), 16);
    rig.settle();
    let entry = rig.read(buffer, 64);
    assert_eq!(entry[1], EventType::CMD.0, "event type");
    assert_eq!(entry[32..36], 1u32.to_be_bytes(), "bit of the slot");
    assert_eq!(rig.read(buffer + 64, 64), [0xff; 64], "one event");
}

#[test]
fn a_long_command_ends_its_portion_of_work() {
    let mut rig = Rig::new(Profile::default());
    rig.bring_up();
    let mut input = Rig::input(0x10b, 0, 0x10_0000);
    input[11] = 1;
    // Both slots share their mailboxes and with them a token.
    rig.post(0, &input, 16);
    let entry: [u8; 64] = rig.entry(0).try_into().expect("an entry");
    rig.write_entry(1, entry);
    rig.function.bar_write(0x18, &3u32.to_be_bytes());
    assert!(rig.function.work().more);
    assert_eq!((rig.entry(0)[0x3f] & 1, rig.entry(1)[0x3f] & 1), (0, 1));
    rig.settle();
    assert_eq!(rig.entry(1)[0x3f] & 1, 0);
}

#[test]
fn pages_come_and_go_in_bounded_numbers() {
    let mut rig = Rig::new(Profile::default());
    rig.bring_up();
    let give = |rig: &mut Rig, first: u64, count: u64| {
        let mut input = Rig::input(0x108, 1, 16);
        input[12..16].copy_from_slice(&(count as u32).to_be_bytes());
        input.extend((0..count).flat_map(|i| ((first + i) * 4096).to_be_bytes()));
        rig.exec(&input, 16)
    };
    let answer = give(&mut rig, 1, 4097);
    assert_eq!((answer.status(), answer.syndrome()), (3, page_syn::TOO_MANY.0));
    assert_eq!(give(&mut rig, 1, 4096).status(), 0);
    assert_eq!(give(&mut rig, 4097, 3000).status(), 0);
    let mut take = Rig::input(0x108, 2, 16);
    take[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let out = rig.ok(&take, 16 + 8 * 4096);
    assert_eq!(u32::from_be_bytes([out[8], out[9], out[10], out[11]]), 4096);
}
