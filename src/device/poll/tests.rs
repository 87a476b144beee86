//! Polled doorbells, with the pages written as a guest writes what its VMM mapped.

use std::os::fd::AsFd;

use super::*;
use crate::device::cq::CQE;
use crate::profile::Profile;
use crate::testing::queues::{Eq, QueueRig, number};

/// A running device with polled doorbells, and the guest's view of the pages.
struct Guest {
    rig: QueueRig,
    pages: Mapping,
}

impl Guest {
    fn new() -> Guest {
        let rig = QueueRig::with(Profile::with("connectx10-c2c", &["doorbells=poll"]).unwrap());
        let fd = rig.function.hca().polling.as_ref().unwrap().pages().fd();
        let pages = Mapping::new(fd.as_fd(), 0, uar::END, Protection::ReadWrite).unwrap();
        Guest { rig, pages }
    }

    /// An eight-byte store to a register.
    fn ring(&self, page: u32, register: u64, words: [u32; 2]) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&words[0].to_be_bytes());
        bytes[4..].copy_from_slice(&words[1].to_be_bytes());
        self.pages.write_u64(u64::from(page) * uar::PAGE + register, u64::from_ne_bytes(bytes)).unwrap();
    }

    /// A four-byte store to a register.
    fn ring_short(&self, page: u32, register: u64, word: u32) {
        self.pages.write_u32(u64::from(page) * uar::PAGE + register, word.to_be()).unwrap();
    }

    /// A completion queue and its doorbell record.
    fn cq(&mut self) -> (u32, u64) {
        let (input, _, record) = self.rig.create_cq_in(4);
        (number(&self.rig.ok(input.as_bytes(), 16)), record)
    }

    fn complete(&mut self, cqn: u32) {
        self.rig.function.complete(cqn, &[0; CQE]);
    }

    /// Arms as a driver does: the record first, then the register.
    fn arm(&mut self, (cqn, record): (u32, u64), word: u32) {
        self.rig.write(record + 4, &word.to_be_bytes());
        self.ring(self.rig.uar, 0x20, [word, cqn]);
    }

    fn interrupts(&self) -> u64 {
        let (raised, lost) = self.rig.function.irq().counters();
        raised + lost
    }

    /// Takes all events of a queue and writes its index, armed.
    fn serve(&mut self, eq: &mut Eq) -> Vec<u8> {
        let mut types = Vec::new();
        while let Some(eqe) = self.rig.take_event(eq) {
            types.push(eqe[1]);
        }
        self.ring_short(self.rig.uar, 0x40, eq.word());
        types
    }
}

#[test]
fn an_arm_in_a_mapped_page_is_served_and_taken_once() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    guest.complete(cq.0);
    guest.arm(cq, 0);
    assert_eq!(guest.rig.take_completion_event(), Some(cq.0));
    guest.complete(cq.0);
    assert_eq!(guest.rig.take_completion_event(), None, "one event for one request");
    guest.arm(cq, 1 << 28 | 1);
    assert_eq!(guest.rig.take_completion_event(), Some(cq.0));
}

#[test]
fn overwritten_arms_are_found_in_the_records() {
    let mut guest = Guest::new();
    let cqs: Vec<_> = (0..40).map(|_| guest.cq()).collect();
    for cq in &cqs {
        guest.complete(cq.0);
    }
    // All in one go: the register keeps the last one only.
    for cq in &cqs {
        guest.arm(*cq, 0);
    }
    let mut events: Vec<_> = std::iter::from_fn(|| guest.rig.take_completion_event()).collect();
    events.sort();
    assert_eq!(events, cqs.iter().map(|cq| cq.0).collect::<Vec<_>>());
    // Room in the event queue.
    guest.ring_short(guest.rig.uar, 0x48, guest.rig.comp.word());
    // The same words again ask for nothing more than the events that were made.
    for cq in &cqs {
        guest.complete(cq.0);
    }
    guest.ring(guest.rig.uar, 0x20, [0, 0xff_ffff]);
    assert_eq!(guest.rig.take_completion_event(), None);
    for cq in &cqs {
        guest.arm(*cq, 1 << 28 | 1);
    }
    assert_eq!(std::iter::from_fn(|| guest.rig.take_completion_event()).count(), 40);
}

#[test]
fn a_queue_that_its_driver_marked_as_unarmed_makes_no_event() {
    let mut guest = Guest::new();
    let (quiet, armed) = (guest.cq(), guest.cq());
    guest.rig.write(quiet.1 + 4, &UNARMED_BYTES);
    guest.complete(quiet.0);
    guest.complete(armed.0);
    guest.arm(armed, 0);
    assert_eq!(guest.rig.take_completion_event(), Some(armed.0));
    assert_eq!(guest.rig.take_completion_event(), None);
}

const UNARMED_BYTES: [u8; 4] = [0x20, 0, 0, 0];

#[test]
fn a_record_that_cannot_be_read_asks_for_nothing() {
    let mut guest = Guest::new();
    let (mut input, ..) = guest.rig.create_cq_in(4);
    input.cq_context_mut().set_dbr_addr(0xffff_0000);
    let lost = number(&guest.rig.ok(input.as_bytes(), 16));
    let armed = guest.cq();
    guest.complete(lost);
    guest.complete(armed.0);
    guest.arm(armed, 0);
    assert_eq!(guest.rig.take_completion_event(), Some(armed.0));
    assert_eq!(guest.rig.take_completion_event(), None);
}

#[test]
fn an_arm_that_comes_as_a_message_is_served_too() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    guest.complete(cq.0);
    guest.rig.arm_cq(cq.0, 0, false);
    assert_eq!(guest.rig.take_completion_event(), Some(cq.0));
}

#[test]
fn an_event_queue_interrupts_for_every_event_however_its_doorbells_were_overwritten() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    for round in 0..10u32 {
        // Nobody arms the event queue, which another one's doorbell may have prevented.
        let before = guest.interrupts();
        guest.complete(cq.0);
        guest.arm(cq, (round & 3) << 28 | round);
        assert_eq!(guest.rig.take_completion_event(), Some(cq.0));
        assert_eq!(guest.interrupts(), before + 1, "round {round}");
    }
}

#[test]
fn an_event_queue_with_events_is_signalled_again_after_the_register_was_written_for_another() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    guest.complete(cq.0);
    guest.arm(cq, 0);
    guest.rig.settle();
    let before = guest.interrupts();
    let other = guest.rig.events.word();
    guest.ring_short(guest.rig.uar, 0x40, other);
    guest.rig.settle();
    assert_eq!(guest.interrupts(), before, "not at once: its driver may be at it");
    guest.rig.clock.advance(2 * NUDGE_NS);
    guest.rig.settle();
    assert_eq!(guest.interrupts(), before + 1);
    // Once its events are known to be taken it is left alone.
    let mut comp = guest.rig.comp.clone();
    assert_eq!(guest.serve(&mut comp), [0]);
    guest.rig.settle();
    guest.rig.clock.advance(2 * NUDGE_NS);
    guest.rig.settle();
    assert_eq!(guest.interrupts(), before + 1);
}

#[test]
fn an_event_queue_that_only_looks_full_gets_its_events_later_and_in_order() {
    let mut guest = Guest::new();
    let small = guest.rig.create_eq(2, 0, 0);
    let cqs: Vec<_> = (0..3)
        .map(|_| {
            let (mut input, _, record) = guest.rig.create_cq_in(4);
            input.cq_context_mut().set_c_eqn_or_apu_element(small.eqn);
            (number(&guest.rig.ok(input.as_bytes(), 16)), record)
        })
        .collect();
    for cq in &cqs {
        guest.complete(cq.0);
        guest.arm(*cq, 0);
        guest.rig.settle();
    }
    let mut eq = small;
    let mut order = Vec::new();
    for _ in 0..cqs.len() {
        guest.rig.clock.advance(2 * NUDGE_NS);
        guest.rig.settle();
        let eqe = guest.rig.take_event(&mut eq).expect("an event");
        assert_eq!(guest.rig.take_event(&mut eq), None, "there is room for one");
        order.push(u32::from_be_bytes([0, eqe[0x39], eqe[0x3a], eqe[0x3b]]));
        guest.ring_short(guest.rig.uar, 0x48, eq.word());
    }
    assert_eq!(order, cqs.iter().map(|cq| cq.0).collect::<Vec<_>>());
}

#[test]
fn an_event_queue_that_nobody_serves_is_overrun_after_a_while() {
    let mut guest = Guest::new();
    let small = guest.rig.create_eq(2, 0, 0);
    let before = guest.interrupts();
    for _ in 0..2 {
        let (mut input, _, record) = guest.rig.create_cq_in(4);
        input.cq_context_mut().set_c_eqn_or_apu_element(small.eqn);
        let cq = (number(&guest.rig.ok(input.as_bytes(), 16)), record);
        guest.complete(cq.0);
        guest.arm(cq, 0);
    }
    let mut rounds = 0;
    while !guest.rig.function.hca().internal_error() {
        guest.rig.settle();
        guest.rig.clock.advance(NUDGE_NS);
        rounds += 1;
        assert!(rounds < 1000, "the queue is never given up");
    }
    assert!((150..=250).contains(&rounds), "{rounds} ms");
    assert!(guest.interrupts() - before > 100, "its driver was asked again and again");
}

#[test]
fn an_older_index_does_not_move_a_polled_event_queue_back() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    guest.complete(cq.0);
    guest.arm(cq, 0);
    guest.rig.settle();
    let mut comp = guest.rig.comp.clone();
    let stale = comp.word();
    assert_eq!(guest.serve(&mut comp), [0]);
    guest.ring_short(guest.rig.uar, 0x48, stale);
    guest.rig.settle();
    let before = guest.interrupts();
    guest.ring_short(guest.rig.uar, 0x40, comp.word());
    guest.rig.settle();
    guest.rig.clock.advance(2 * NUDGE_NS);
    guest.rig.settle();
    assert_eq!(guest.interrupts(), before, "everything is taken");
}

#[test]
fn the_next_owner_of_a_page_does_not_see_what_was_written_before() {
    let mut guest = Guest::new();
    let old = number(&guest.rig.ok(&crate::testing::Rig::input(0x802, 0, 16), 16));
    guest.rig.ok(&QueueRig::naming(0x803, old), 16);
    for page in uar::FIRST..uar::FIRST + 64 {
        for register in uar::REGISTERS {
            guest.ring(page, register, [0xffff_ffff; 2]);
        }
    }
    let new = number(&guest.rig.ok(&crate::testing::Rig::input(0x802, 0, 16), 16));
    assert_ne!(new, guest.rig.uar);
    for register in uar::REGISTERS {
        let at = u64::from(new) * uar::PAGE + register;
        assert_eq!(guest.pages.read_u64(at), Ok(0), "{register:#x}");
    }
}

#[test]
fn a_reset_clears_the_pages_and_ends_polling() {
    let mut guest = Guest::new();
    assert!(guest.rig.function.hca().polls());
    guest.ring(guest.rig.uar, 0x20, [0, 5]);
    guest.rig.function.reset(crate::device::function::ResetKind::FunctionLevel);
    assert_eq!(guest.pages.read_u64(u64::from(guest.rig.uar) * uar::PAGE + 0x20), Ok(0));
    assert!(!guest.rig.function.hca().polls());
    assert!(!guest.rig.function.work().polls);
}

#[test]
fn each_vmm_has_pages_of_its_own() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    guest.rig.function.vmm_attached();
    guest.complete(cq.0);
    guest.arm(cq, 0);
    assert_eq!(guest.rig.take_completion_event(), None, "written to the pages of the VMM before");
}

#[test]
fn senseless_values_do_no_harm() {
    let mut guest = Guest::new();
    let cq = guest.cq();
    for register in uar::REGISTERS {
        for value in [[1, 0], [0, 1], [0xffff_ffff; 2], [0xffff_ffff, cq.0], [0, 0xffff_ff00]] {
            guest.ring(guest.rig.uar, register, value);
            guest.rig.settle();
        }
    }
    guest.rig.clock.advance(2 * NUDGE_NS);
    guest.rig.settle();
    guest.complete(cq.0);
    guest.arm(cq, 0);
    assert!(std::iter::from_fn(|| guest.rig.take_completion_event()).any(|cqn| cqn == cq.0));
}
