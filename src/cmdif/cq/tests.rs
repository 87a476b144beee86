use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use super::super::error::{objects, pas};
use super::super::{buffer, error};
use super::syn;
use crate::cmdif::error::Syndrome;
use crate::device::cq::Completion;
use crate::prm::cq::{Cqc, CreateCqIn, DestroyCqIn, ModifyCqIn, QueryCqIn};
use crate::prm::status::Status;
use crate::profile::Profile;
use crate::testing::queues::{QueueRig, fill_pas, number};
use crate::testing::{Answer, Rig};

/// A completion that says which one it is.
fn cqe(counter: u16) -> [u8; 64] {
    let mut cqe = [0; 64];
    cqe[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    cqe
}

fn solicited(counter: u16) -> [u8; 64] {
    let mut cqe = cqe(counter);
    cqe[63] = 2;
    cqe
}

fn refused(answer: Answer, status: Status, syndrome: Syndrome) {
    assert_eq!((answer.delivery, answer.status(), answer.syndrome()), (0, status.0, syndrome.0));
}

fn destroy(rig: &mut QueueRig, cqn: u32) -> Answer {
    let mut input = DestroyCqIn::zeroed();
    input.set_opcode(0x401);
    input.set_cqn(cqn);
    rig.exec(input.as_bytes(), 16)
}

fn query(rig: &mut QueueRig, cqn: u32) -> Cqc<Vec<u8>> {
    let mut input = QueryCqIn::zeroed();
    input.set_opcode(0x402);
    input.set_cqn(cqn);
    let out = rig.ok(input.as_bytes(), 0x118);
    Cqc::new(out[0x10..0x50].to_vec()).expect("64 bytes")
}

fn modify(rig: &mut QueueRig, cqn: u32, fields: u32, change: impl FnOnce(&mut Cqc<&mut [u8]>)) -> Answer {
    let mut input = ModifyCqIn::zeroed();
    input.set_opcode(0x403);
    input.set_cqn(cqn);
    let mut select = input.modify_field_select_resize_field_select_mut();
    select.modify_field_select_mut().set_modify_field_select(fields);
    change(&mut input.cq_context_mut());
    rig.exec(input.as_bytes(), 16)
}

fn resize_in(rig: &mut QueueRig, cqn: u32, log_size: u32) -> (ModifyCqIn, u64) {
    let bytes = 64u64 << log_size;
    let at = rig.memory(bytes);
    let mut input = ModifyCqIn::with_tail(8 * bytes.div_ceil(4096) as usize);
    input.set_opcode(0x403);
    input.set_op_mod(1);
    input.set_cqn(cqn);
    let mut select = input.modify_field_select_resize_field_select_mut();
    select.resize_field_select_mut().set_resize_field_select(7);
    input.cq_context_mut().set_log_cq_size(log_size);
    fill_pas(input.pas_mut(), at);
    (input, at)
}

#[test]
fn a_queue_reads_back_as_it_was_created() {
    let mut rig = QueueRig::new();
    let (mut input, at, record) = rig.create_cq_in(4);
    input.cq_context_mut().set_cq_period(5);
    input.cq_context_mut().set_cq_max_count(9);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    let mut request = QueryCqIn::zeroed();
    request.set_opcode(0x402);
    request.set_cqn(cqn);
    let out = rig.ok(request.as_bytes(), 0x118);
    let context = Cqc::new(&out[0x10..0x50]).expect("64 bytes");
    assert_eq!((context.log_cq_size(), context.cq_period(), context.cq_max_count()), (4, 5, 9));
    assert_eq!((context.c_eqn_or_apu_element(), context.uar_page()), (rig.comp.eqn, rig.uar));
    assert_eq!((context.dbr_addr(), context.status(), context.st()), (record, 0, 0xa));
    assert_eq!(out[0x110..0x118], at.to_be_bytes());
    assert_eq!(destroy(&mut rig, cqn).status(), 0);
    refused(destroy(&mut rig, cqn), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
}

#[test]
fn what_the_device_cannot_do_is_refused() {
    type Change = fn(&mut CreateCqIn);
    let bad = Status::BAD_PARAM_ERR;
    let cases: &[(&str, Change, Status, Syndrome)] = &[
        ("size", |i| i.cq_context_mut().set_log_cq_size(23), bad, syn::TOO_LARGE),
        ("size 31", |i| i.cq_context_mut().set_log_cq_size(31), bad, syn::TOO_LARGE),
        ("cqe size 3", |i| i.cq_context_mut().set_cqe_sz(3), bad, syn::CQE_SIZE),
        ("cqe size 7", |i| i.cq_context_mut().set_cqe_sz(7), bad, syn::CQE_SIZE),
        ("compression", |i| i.cq_context_mut().set_cqe_comp_en(1), bad, syn::COMPRESSION),
        ("layout", |i| i.cq_context_mut().set_cqe_compression_layout(1), bad, syn::COMPRESSION),
        ("period mode", |i| i.cq_context_mut().set_cq_period_mode(2), bad, syn::PERIOD_MODE),
        ("apu", |i| i.cq_context_mut().set_apu_cq(1), bad, syn::APU),
        ("record", |i| i.cq_context_mut().set_dbr_addr(0x1004), bad, buffer::syn::RECORD_MISALIGNED),
        ("pages", |i| i.cq_context_mut().set_log_cq_size(7), bad, pas::TOO_FEW),
        ("page size", |i| i.cq_context_mut().set_log_page_size(31), bad, pas::MISALIGNED),
        ("eq", |i| i.cq_context_mut().set_c_eqn_or_apu_element(99), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
        ("eq 0", |i| i.cq_context_mut().set_c_eqn_or_apu_element(0), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
        (
            "eq beyond its table",
            |i| i.cq_context_mut().set_c_eqn_or_apu_element(u32::MAX),
            Status::BAD_RES_ERR,
            objects::NO_SUCH_DEPENDENCY,
        ),
        ("uar", |i| i.cq_context_mut().set_uar_page(0xff_ffff), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
        (
            "straddling",
            |i| {
                i.cq_context_mut().set_cqe_sz(1);
                i.cq_context_mut().set_page_offset(1);
            },
            bad,
            syn::ENTRY_STRADDLES,
        ),
    ];
    let mut rig = QueueRig::new();
    for (name, change, status, syndrome) in cases {
        let (mut input, ..) = rig.create_cq_in(4);
        change(&mut input);
        let answer = rig.exec(input.as_bytes(), 16);
        assert_eq!((answer.status(), Syndrome(answer.syndrome())), (status.0, *syndrome), "{name}");
    }
    assert_eq!(rig.function.hca().objects.cqs.len(), 0);
    let mut input = Rig::input(0x403, 2, 0x110);
    input[11] = 1;
    refused(rig.exec(&input, 16), Status::BAD_PARAM_ERR, error::common::UNKNOWN_OP_MOD);
    refused(rig.exec(&Rig::input(0x400, 0, 0x40), 16), Status::BAD_INP_LEN_ERR, error::common::INPUT_TOO_SHORT);
}

#[test]
fn features_follow_the_capabilities() {
    let caps = ["cq_oi", "cq_moderation", "scqe_break_moderation", "cqe_128_always", "cq_period_start_from_cqe"];
    let caps = caps.map(|cap| format!("caps.general.{cap}=0"));
    let caps: Vec<&str> = caps.iter().map(String::as_str).collect();
    let mut rig = QueueRig::with(Profile::with("connectx10-c2c", &caps).expect("a profile"));
    type Change = fn(&mut Cqc<&mut [u8]>);
    let cases: &[(Change, Syndrome)] = &[
        (|c| c.set_oi(1), syn::OVERRUN_IGNORE),
        (|c| c.set_cq_period(1), syn::MODERATION),
        (|c| c.set_cq_max_count(1), syn::MODERATION),
        (|c| c.set_scqe_break_moderation_en(1), syn::BREAK_MODERATION),
        (|c| c.set_cqe_sz(2), syn::CQE_SIZE),
        (|c| c.set_cq_period_mode(1), syn::PERIOD_MODE),
    ];
    for (change, syndrome) in cases {
        let (mut input, ..) = rig.create_cq_in(3);
        change(&mut input.cq_context_mut());
        refused(rig.exec(input.as_bytes(), 16), Status::BAD_PARAM_ERR, *syndrome);
    }
    let cqn = rig.create_cq(3);
    refused(modify(&mut rig, cqn, 1, |_| {}), Status::BAD_PARAM_ERR, syn::FIELD_NOT_CAPABLE);
    refused(modify(&mut rig, cqn, 4, |_| {}), Status::BAD_PARAM_ERR, syn::FIELD_NOT_CAPABLE);
}

/// The user's library may close its objects in this order, and the driver frees the page regardless.
#[test]
fn a_page_goes_from_under_completion_queues_which_stay_without_doorbells() {
    let mut rig = QueueRig::new();
    let uar = number(&rig.ok(&Rig::input(0x802, 0, 16), 16));
    let (mut input, ..) = rig.create_cq_in(3);
    input.cq_context_mut().set_uar_page(uar);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    let mut dealloc_uar = Rig::input(0x803, 0, 16);
    dealloc_uar[8..12].copy_from_slice(&uar.to_be_bytes());
    assert!(rig.function.hca_mut().arm_cq(uar, cqn, 0, 0));
    rig.ok(&dealloc_uar, 16);
    rig.function.hca().audit().expect("references agree");
    assert!(!rig.function.hca_mut().arm_cq(uar, cqn, 0, 0));

    // The next page of this number belongs to somebody else.
    let again = (0..5000).any(|_| {
        let next = number(&rig.ok(&Rig::input(0x802, 0, 16), 16));
        dealloc_uar[8..12].copy_from_slice(&next.to_be_bytes());
        if next != uar {
            rig.ok(&dealloc_uar, 16);
        }
        next == uar
    });
    assert!(again, "numbers go around");
    assert!(!rig.function.hca_mut().arm_cq(uar, cqn, 0, 0));
    assert_eq!(modify(&mut rig, cqn, 1, |c| c.set_cq_period(1)).status(), 0);
    assert_eq!(destroy(&mut rig, cqn).status(), 0);
    rig.ok(&dealloc_uar, 16);
    rig.function.hca().audit().expect("references agree");
}

#[test]
fn an_event_queue_or_uar_in_use_is_not_destroyed() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(3);
    let mut destroy_eq = Rig::input(0x302, 0, 16);
    destroy_eq[11] = rig.comp.eqn as u8;
    let mut dealloc_uar = Rig::input(0x803, 0, 16);
    dealloc_uar[8..12].copy_from_slice(&rig.uar.to_be_bytes());
    refused(rig.exec(&destroy_eq, 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(rig.exec(&dealloc_uar, 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    assert_eq!(destroy(&mut rig, cqn).status(), 0);
    assert_eq!(rig.exec(&destroy_eq, 16).status(), 0);
}

#[test]
fn an_entry_turns_its_owner_bit_on_each_lap_and_keeps_the_rest() {
    let mut rig = QueueRig::new();
    let (input, at, record) = rig.create_cq_in(1);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    for i in 0..4u16 {
        rig.write(record, &u32::from(i).to_be_bytes());
        let mut entry = cqe(i);
        entry[5] = 0xab;
        entry[63] = 0x21; // the owner bit given here does not count
        assert_eq!(rig.function.complete(cqn, &entry), Completion::Posted);
        entry[63] = 0x20 | (i >> 1) as u8;
        assert_eq!(rig.read(at + 64 * u64::from(i & 1), 64), entry);
    }
}

#[test]
fn a_wide_entry_carries_the_completion_in_its_second_half() {
    let mut rig = QueueRig::new();
    let (mut input, at, _) = rig.create_cq_in(2);
    input.cq_context_mut().set_log_cq_size(1);
    input.cq_context_mut().set_cqe_sz(2);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    rig.write(at, &[0xee; 256]);
    rig.function.complete(cqn, &cqe(7));
    rig.function.complete(cqn, &cqe(8));
    assert_eq!(rig.read(at, 64), [0; 64]);
    assert_eq!(rig.read(at + 64, 64), cqe(7));
    assert_eq!(rig.read(at + 192, 64), cqe(8));
}

#[test]
fn a_collapsed_queue_writes_its_first_entry_only() {
    let mut rig = QueueRig::new();
    let (mut input, at, _) = rig.create_cq_in(2);
    input.cq_context_mut().set_cc(1);
    input.cq_context_mut().set_oi(1);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    let before = rig.read(at + 64, 192);
    for i in 0..9 {
        assert_eq!(rig.function.complete(cqn, &cqe(i)), Completion::Posted);
    }
    assert_eq!(rig.read(at, 64), cqe(8));
    assert_eq!(rig.read(at + 64, 192), before);
}

#[test]
fn arming_asks_for_one_event_and_one_interrupt() {
    let mut rig = QueueRig::new();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    assert!(rig.function.irq_mut().connect(1, Some(File::from(OwnedFd::from(writer)))));
    let cqn = rig.create_cq(4);
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.take_completion_event(), None, "nobody asked");
    rig.arm_cq(cqn, 1, false);
    assert_eq!(query(&mut rig, cqn).st(), 9);
    assert_eq!(rig.take_completion_event(), None, "nothing beyond the index");
    rig.function.complete(cqn, &cqe(1));
    rig.function.complete(cqn, &cqe(2));
    assert_eq!(rig.take_completion_event(), Some(cqn));
    assert_eq!(rig.take_completion_event(), None, "one event for one request");
    let mut count = [0; 8];
    reader.read_exact(&mut count).expect("an interrupt");
    assert_eq!((u64::from_ne_bytes(count), rig.function.irq().counters()), (1, (1, 0)));
    let context = query(&mut rig, cqn);
    assert_eq!((context.st(), context.producer_counter(), context.last_notified_index()), (0xa, 3, 2));
}

#[test]
fn arming_behind_the_producer_fires_at_once() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    for i in 0..3 {
        rig.function.complete(cqn, &cqe(i));
    }
    rig.arm_cq(cqn, 2, false);
    assert_eq!(rig.take_completion_event(), Some(cqn));
    rig.arm_cq(cqn, 3, false);
    assert_eq!(rig.take_completion_event(), None);
}

#[test]
fn a_solicited_request_waits_for_a_solicited_completion_or_an_error() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    rig.arm_cq(cqn, 0, true);
    assert_eq!(query(&mut rig, cqn).st(), 6);
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.take_completion_event(), None);
    rig.function.complete(cqn, &solicited(1));
    assert_eq!(rig.take_completion_event(), Some(cqn));
    rig.arm_cq(cqn, 2, true);
    assert_eq!(rig.take_completion_event(), None, "the solicited one was seen");
    let mut error = cqe(2);
    error[63] = 13 << 4;
    rig.function.complete(cqn, &error);
    assert_eq!(rig.take_completion_event(), Some(cqn));
    rig.arm_cq(cqn, 1, true);
    assert_eq!(rig.take_completion_event(), None, "both had their events");
    rig.function.complete(cqn, &cqe(3));
    assert_eq!(rig.take_completion_event(), None);
    rig.function.complete(cqn, &solicited(4));
    assert_eq!(rig.take_completion_event(), Some(cqn));
}

#[test]
fn a_request_before_the_completions_of_an_event_are_taken_off_waits_for_new_ones() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    rig.arm_cq(cqn, 0, false);
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.take_completion_event(), Some(cqn));
    rig.arm_cq(cqn, 0, false);
    assert_eq!(rig.take_completion_event(), None, "that completion had its event");
    rig.function.complete(cqn, &cqe(1));
    rig.function.complete(cqn, &cqe(2));
    assert_eq!(rig.take_completion_event(), Some(cqn));
    rig.arm_cq(cqn, 1, false);
    assert_eq!(rig.take_completion_event(), Some(cqn), "the last one came behind the event");
    rig.arm_cq(cqn, 1, false);
    assert_eq!(rig.take_completion_event(), None);
}

#[test]
fn a_queue_is_armed_only_through_its_own_page() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    let own = rig.uar;
    rig.uar = number(&rig.ok(&Rig::input(0x802, 0, 16), 16));
    rig.arm_cq(cqn, 0, false);
    rig.arm_cq(cqn + 1, 0, false);
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.take_completion_event(), None);
    rig.uar = own;
    rig.arm_cq(cqn, 0, false);
    assert_eq!(rig.take_completion_event(), Some(cqn));
}

#[test]
fn an_overrun_is_an_error_and_the_end_of_completions() {
    let mut rig = QueueRig::new();
    let (input, at, record) = rig.create_cq_in(1);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    rig.function.complete(cqn, &cqe(0));
    rig.function.complete(cqn, &cqe(1));
    rig.write(record, &1u32.to_be_bytes());
    assert_eq!(rig.function.complete(cqn, &cqe(2)), Completion::Posted, "the record is read when the ring looks full");
    assert_eq!(rig.take_async_event(), None);
    rig.arm_cq(cqn, 3, false);
    assert_eq!(rig.function.complete(cqn, &cqe(3)), Completion::Dropped);
    let eqe = rig.take_async_event().expect("an event");
    assert_eq!((eqe[1], &eqe[0x20..0x24], eqe[0x2b]), (4, &cqn.to_be_bytes()[..], 1));
    rig.write(record, &3u32.to_be_bytes());
    assert_eq!(rig.function.complete(cqn, &cqe(4)), Completion::Dropped);
    assert_eq!(rig.take_async_event(), None, "said once");
    assert_eq!(rig.take_completion_event(), None, "a queue in error completes nothing");
    assert_eq!(rig.read(at, 64), {
        let mut c = cqe(2);
        c[63] = 1;
        c
    });
    assert_eq!(query(&mut rig, cqn).status(), 9);
    let (input, _) = resize_in(&mut rig, cqn, 4);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_RES_STATE_ERR, syn::IN_ERROR);
    assert_eq!(destroy(&mut rig, cqn).status(), 0);
}

#[test]
fn a_queue_that_ignores_overruns_overwrites() {
    let mut rig = QueueRig::new();
    let (mut input, at, _) = rig.create_cq_in(1);
    input.cq_context_mut().set_oi(1);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    for i in 0..5 {
        assert_eq!(rig.function.complete(cqn, &cqe(i)), Completion::Posted);
    }
    assert_eq!(rig.read(at, 64), cqe(4));
    assert_eq!(modify(&mut rig, cqn, 4, |_| {}).status(), 0);
    assert_eq!(rig.function.complete(cqn, &cqe(5)), Completion::Dropped);
}

#[test]
fn a_ring_outside_memory_is_an_error() {
    let mut rig = QueueRig::new();
    let (mut input, ..) = rig.create_cq_in(1);
    fill_pas(input.pas_mut(), 0x4000_0000);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    assert_eq!(rig.function.complete(cqn, &cqe(0)), Completion::Dropped);
    let eqe = rig.take_async_event().expect("an event");
    assert_eq!((eqe[1], eqe[0x2b], query(&mut rig, cqn).status()), (4, 2, 0xa));
    let (mut input, ..) = rig.create_cq_in(0);
    input.cq_context_mut().set_dbr_addr(0x4000_0000);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.function.complete(cqn, &cqe(1)), Completion::Dropped, "the record cannot be read");
    assert_eq!(rig.take_async_event().expect("an event")[0x2b], 2);
}

#[test]
fn a_destroyed_queue_is_silent() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    rig.arm_cq(cqn, 0, false);
    rig.function.complete(cqn, &cqe(0)); // the event is ready, not delivered
    let mut input = DestroyCqIn::zeroed();
    input.set_opcode(0x401);
    input.set_cqn(cqn);
    rig.post(0, input.as_bytes(), 16);
    rig.function.bar_write(0x18, &1u32.to_be_bytes());
    assert_eq!(rig.take_completion_event(), None);
    assert_eq!(rig.entry(0)[0x20], 0);
    assert_eq!(rig.function.complete(cqn, &cqe(1)), Completion::Dropped);
}

#[test]
fn a_count_holds_the_event_back_until_the_period_has_passed() {
    let mut rig = QueueRig::new();
    rig.clock.advance(1_000_000);
    let (mut input, _, record) = rig.create_cq_in(6);
    input.cq_context_mut().set_cq_period(10);
    input.cq_context_mut().set_cq_max_count(3);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    rig.arm_cq(cqn, 0, false);
    rig.function.complete(cqn, &cqe(0));
    assert_eq!(rig.take_completion_event(), Some(cqn), "no event for longer than the period");
    rig.arm_cq(cqn, 1, false);
    rig.function.complete(cqn, &cqe(1));
    rig.function.complete(cqn, &cqe(2));
    assert_eq!(rig.take_completion_event(), None);
    rig.function.complete(cqn, &cqe(3));
    assert_eq!(rig.take_completion_event(), Some(cqn), "three completions");
    rig.clock.advance(4_000);
    rig.arm_cq(cqn, 4, false);
    rig.function.complete(cqn, &cqe(4));
    assert_eq!(rig.take_completion_event(), None);
    assert_eq!(rig.function.work().wait, Some(6_000), "ten microseconds from the last event");
    rig.clock.advance(5_999);
    assert_eq!(rig.take_completion_event(), None);
    rig.clock.advance(1);
    assert_eq!(rig.take_completion_event(), Some(cqn));
    assert_eq!(rig.function.work().wait, None);
    rig.arm_cq(cqn, 5, false);
    rig.function.complete(cqn, &cqe(5));
    assert_eq!(rig.take_completion_event(), None);
    assert_eq!(modify(&mut rig, cqn, 3, |_| {}).status(), 0);
    assert_eq!(rig.take_completion_event(), Some(cqn), "without moderation it is due");
    rig.write(record, &6u32.to_be_bytes());
    assert_eq!(query(&mut rig, cqn).consumer_counter(), 6);
}

#[test]
fn the_period_may_start_with_each_completion() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(6);
    let answer = modify(&mut rig, cqn, 0b10011, |context| {
        context.set_cq_period(10);
        context.set_cq_max_count(100);
        context.set_cq_period_mode(1);
    });
    assert_eq!(answer.status(), 0);
    rig.clock.advance(1_000_000);
    rig.arm_cq(cqn, 0, false);
    for _ in 0..3 {
        rig.function.complete(cqn, &cqe(0));
        rig.clock.advance(9_999);
        assert_eq!(rig.take_completion_event(), None);
    }
    rig.clock.advance(1);
    assert_eq!(rig.take_completion_event(), Some(cqn));
}

#[test]
fn a_solicited_completion_breaks_moderation_where_asked() {
    let mut rig = QueueRig::new();
    for breaks in [false, true] {
        let (mut input, ..) = rig.create_cq_in(6);
        input.cq_context_mut().set_cq_period(4095);
        input.cq_context_mut().set_cq_max_count(100);
        input.cq_context_mut().set_scqe_break_moderation_en(u32::from(breaks));
        let cqn = number(&rig.ok(input.as_bytes(), 16));
        rig.arm_cq(cqn, 0, false);
        rig.function.complete(cqn, &solicited(0));
        assert_eq!(rig.take_completion_event(), breaks.then_some(cqn));
        assert_eq!(destroy(&mut rig, cqn).status(), 0);
    }
    assert_eq!(rig.function.work().wait, None, "no timer of a destroyed queue is left");
}

#[test]
fn modifying_changes_what_the_mask_selects_and_nothing_else() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    let answer = modify(&mut rig, cqn, 2, |context| {
        context.set_cq_period(7);
        context.set_cq_max_count(8);
        context.set_oi(1);
        context.set_cq_period_mode(1);
        context.set_log_cq_size(9);
    });
    assert_eq!(answer.status(), 0);
    let context = query(&mut rig, cqn);
    assert_eq!((context.cq_period(), context.cq_max_count(), context.oi()), (0, 8, 0));
    assert_eq!((context.cq_period_mode(), context.log_cq_size()), (0, 4));
    refused(modify(&mut rig, cqn, 1 << 5, |_| {}), Status::BAD_PARAM_ERR, syn::UNKNOWN_FIELD);
    refused(modify(&mut rig, cqn, 1 << 4, |c| c.set_cq_period_mode(3)), Status::BAD_PARAM_ERR, syn::PERIOD_MODE);
    refused(modify(&mut rig, cqn + 1, 1, |_| {}), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
}

#[test]
fn a_queue_moves_to_another_event_queue() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(4);
    let mut other = rig.create_eq(2, 0, 4);
    let eqn = other.eqn;
    assert_eq!(modify(&mut rig, cqn, 8, |context| context.set_c_eqn_or_apu_element(eqn)).status(), 0);
    let unknown = modify(&mut rig, cqn, 8, |context| context.set_c_eqn_or_apu_element(77));
    refused(unknown, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    rig.arm_cq(cqn, 0, false);
    rig.function.complete(cqn, &cqe(0));
    rig.settle();
    assert_eq!(rig.take_completion_event(), None);
    assert!(rig.take_event(&mut other).is_some());
    let mut destroy_eq = Rig::input(0x302, 0, 16);
    destroy_eq[11] = rig.comp.eqn as u8;
    assert_eq!(rig.exec(&destroy_eq, 16).status(), 0, "the first one is free");
    destroy_eq[11] = eqn as u8;
    refused(rig.exec(&destroy_eq, 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
}

#[test]
fn a_resize_marks_the_old_ring_and_goes_on_in_the_new_one() {
    let mut rig = QueueRig::new();
    let (input, old, record) = rig.create_cq_in(2);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    for i in 0..6u16 {
        rig.write(record, &u32::from(i).to_be_bytes());
        rig.function.complete(cqn, &cqe(i));
    }
    let (input, new) = resize_in(&mut rig, cqn, 7);
    rig.ok(input.as_bytes(), 16);
    assert_eq!(rig.read(old + 64 * 2 + 63, 1), [0x51], "marker at index 6, second lap");
    rig.function.complete(cqn, &cqe(9));
    assert_eq!(rig.read(new + 64 * 7, 64), cqe(9), "index 7, first lap of 128");
    assert_eq!(query(&mut rig, cqn).log_cq_size(), 7);
    let entry = rig.function.hca().objects.cqs.get(cqn).expect("it exists");
    assert_eq!(entry.object.ring().buffer.pages(), 2);
}

#[test]
fn a_resize_without_room_for_what_waits_is_refused() {
    let mut rig = QueueRig::new();
    let (input, _, record) = rig.create_cq_in(3);
    let cqn = number(&rig.ok(input.as_bytes(), 16));
    for i in 0..5 {
        rig.function.complete(cqn, &cqe(i));
    }
    let (input, _) = resize_in(&mut rig, cqn, 2);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_SIZE_OUTS_CQES_ERR, syn::OUTSTANDING);
    rig.write(record, &1u32.to_be_bytes());
    assert_eq!(rig.exec(input.as_bytes(), 16).status(), 0);
    let cqn = rig.create_cq(0);
    rig.function.complete(cqn, &cqe(0));
    let (mut input, _) = resize_in(&mut rig, cqn, 4);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_SIZE_OUTS_CQES_ERR, syn::OUTSTANDING);
    input.cq_context_mut().set_log_cq_size(23);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_PARAM_ERR, syn::TOO_LARGE);
    let mut select = input.modify_field_select_resize_field_select_mut();
    select.resize_field_select_mut().set_resize_field_select(8);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_PARAM_ERR, syn::UNKNOWN_FIELD);
}

#[test]
fn context_memory_follows_the_ring() {
    let mut rig = QueueRig::new();
    let used = |rig: &QueueRig| rig.function.hca().objects.pages.used();
    let before = used(&rig);
    let cqn = rig.create_cq(6);
    let small = used(&rig) - before;
    let (input, _) = resize_in(&mut rig, cqn, 8);
    rig.ok(input.as_bytes(), 16);
    assert_eq!(used(&rig) - before, small + 3 * 8);
    destroy(&mut rig, cqn);
    assert_eq!(used(&rig), before);
}

#[test]
fn halves_of_a_doorbell_do_not_mix_across_pages() {
    let mut rig = QueueRig::new();
    let cqn = rig.create_cq(2);
    let other = number(&rig.ok(&Rig::input(0x802, 0, 16), 16));
    let (mine, theirs) = (u64::from(rig.uar) * 4096, u64::from(other) * 4096);
    rig.function.bar_write(mine + 0x20, &0u32.to_be_bytes());
    // The owner of another page would otherwise decide at which index this queue is armed.
    rig.function.bar_write(theirs + 0x20, &5u32.to_be_bytes());
    rig.function.bar_write(mine + 0x24, &cqn.to_be_bytes());
    rig.function.complete(cqn, &[0; 64]);
    assert_eq!(rig.take_completion_event(), Some(cqn));
}

#[test]
fn many_moderated_queues_come_due_in_portions() {
    const QUEUES: usize = 300;
    let mut rig = QueueRig::new();
    let eq = rig.create_eq(1, 0, 10);
    let cqns: Vec<u32> = (0..QUEUES)
        .map(|_| {
            let (mut input, ..) = rig.create_cq_in(0);
            let mut context = input.cq_context_mut();
            context.set_c_eqn_or_apu_element(eq.eqn);
            context.set_cq_period(10);
            context.set_cq_max_count(100);
            number(&rig.ok(input.as_bytes(), 16))
        })
        .collect();
    for cqn in &cqns {
        rig.function.complete(*cqn, &[0; 64]);
        rig.arm_cq(*cqn, 0, false);
    }
    rig.clock.advance(1_000_000);
    let progress = rig.function.work();
    assert!(progress.more);
    assert!(rig.function.hca().cq_events.next_deadline().is_some(), "not all at once");
    rig.settle();
    assert_eq!(rig.function.hca().cq_events.next_deadline(), None);
    let mut eq = eq;
    let events = (0..QUEUES).filter(|_| rig.take_event(&mut eq).is_some()).count();
    assert_eq!(events, QUEUES);
}
