use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;

use super::*;
use crate::dma::StoreClass;
use crate::dma::map::Rights;
use crate::sys::{BULK, Mapping, Protection, memfd};

const PAGE: u64 = 0x1000;

fn load() -> Load {
    Load::device(LoadClass::Payload, Stream::Responder(1))
}

fn store() -> Store {
    Store::device(StoreClass::Payload, Stream::Responder(1))
}

/// A bus on `pages` pages from 0 on, one map each, that lie in their file in an order of their own.
fn paged(pages: u64, sealed: bool) -> (OwnedFd, Bus) {
    let fd = memfd("cx10-bus-test", pages * PAGE, sealed).unwrap();
    let mut bus = Bus::new(0);
    bus.set_bus_master(true);
    for page in 0..pages {
        let offset = (page * 5 + 2) % pages * PAGE;
        bus.map_mut().map(Iova(page * PAGE), PAGE, Rights::ReadWrite, Some(fd.as_fd()), offset).unwrap();
    }
    (fd, bus)
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 7) as u8).collect()
}

fn contents(bus: &mut Bus, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    bus.load(load(), Iova(0), &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_is_a_load_followed_by_a_store(
        from in 0..8 * PAGE,
        to in 0..8 * PAGE,
        near in -40i64..40,
        use_near: bool,
        len in prop_oneof![0..20u64, 240..270u64, 0..4 * PAGE],
        sealed: bool,
        seed: u64,
    ) {
        let (_fd, mut bus) = paged(8, sealed);
        let to = if use_near { from.saturating_add_signed(near) } else { to };
        let before = pattern(8 * PAGE, seed);
        bus.store(store(), Iova(0), &before).unwrap();
        let fits = |at: u64| at + len <= 8 * PAGE || len == 0;
        let result = bus.copy(load(), Iova(from), store(), Iova(to), len);
        let mut wanted = before.clone();
        if !fits(from) {
            prop_assert!(matches!(result, Err(CopyError::Source(_))), "{:?}", result);
        } else if !fits(to) {
            prop_assert!(matches!(result, Err(CopyError::Target(_))), "{:?}", result);
        } else {
            prop_assert_eq!(result, Ok(()));
            if len > 0 {
                wanted.copy_within(from as usize..(from + len) as usize, to as usize);
            }
        }
        let after = contents(&mut bus, 8 * PAGE);
        let differs = after.iter().zip(&wanted).position(|(a, b)| a != b);
        prop_assert_eq!(differs, None);
    }

    #[test]
    fn masked_atomics_do_what_a_bit_by_bit_reference_does(
        old: u64,
        a: u64,
        b: u64,
        mask in prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>()],
        swap_mask in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        equal: bool,
    ) {
        let (_fd, mut bus) = paged(2, true);
        let at = Iova(PAGE - 8);
        let mut word = |op| {
            bus.store(store(), at, &old.to_le_bytes()).unwrap();
            let original = bus.atomic(store(), at, op).unwrap();
            let mut word = [0; 8];
            bus.load(load(), at, &mut word).unwrap();
            (original, u64::from_le_bytes(word))
        };
        let compare = if equal { (old & mask) | (a & !mask) } else { a };
        let all_agree = (0..64).all(|bit| mask >> bit & 1 == 0 || old >> bit & 1 == compare >> bit & 1);
        let swapped = (0..64).fold(0u64, |sum, bit| {
            let from = if all_agree && swap_mask >> bit & 1 == 1 { b } else { old };
            sum | (from >> bit & 1) << bit
        });
        let swap = AtomicOp::CompareSwap { compare, compare_mask: mask, swap: b, swap_mask };
        prop_assert_eq!(word(swap), (old, swapped));

        let mut carry = 0;
        let added = (0..64).fold(0u64, |sum, bit| {
            let digit = (old >> bit & 1) + (a >> bit & 1) + carry;
            carry = if mask >> bit & 1 == 1 { 0 } else { digit >> 1 };
            sum | (digit & 1) << bit
        });
        prop_assert_eq!(word(AtomicOp::FetchAdd { add: a, boundary: mask }), (old, added));
    }
}

#[test]
fn the_plain_forms_of_atomics_compare_swap_and_add_with_wrap() {
    let (_fd, mut bus) = paged(1, true);
    let swap = |compare, swap| AtomicOp::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX };
    assert_eq!(bus.atomic(store(), Iova(8), swap(1, 7)), Ok(0), "differs, so nothing is stored");
    assert_eq!(bus.atomic(store(), Iova(8), swap(0, u64::MAX)), Ok(0));
    assert_eq!(bus.atomic(store(), Iova(8), AtomicOp::FetchAdd { add: 3, boundary: 0 }), Ok(u64::MAX));
    let mut word = [0; 8];
    bus.load(load(), Iova(8), &mut word).unwrap();
    assert_eq!(word, [2, 0, 0, 0, 0, 0, 0, 0], "little-endian in memory");
    let counters = bus.counters();
    assert_eq!((counters.loads, counters.stores, counters.faults), (4, 3, 0));
}

#[test]
fn a_field_boundary_stops_the_carry() {
    let op = AtomicOp::FetchAdd { add: 0x0000_0001_0000_0001, boundary: 0x8000_0000_8000_0000 };
    assert_eq!(op.apply(0xffff_ffff_ffff_ffff), 0);
    assert_eq!(op.apply(0x0000_0005_ffff_ffff), 0x0000_0006_0000_0000);
}

#[test]
fn an_atomic_needs_alignment_rights_and_bus_mastering() {
    let fd = memfd("cx10-bus-test", 2 * PAGE, true).unwrap();
    let mut bus = Bus::new(0);
    bus.map_mut().map(Iova(0), PAGE, Rights::Read, Some(fd.as_fd()), 0).unwrap();
    bus.map_mut().map(Iova(PAGE), PAGE, Rights::Write, Some(fd.as_fd()), PAGE).unwrap();
    let add = AtomicOp::FetchAdd { add: 1, boundary: 0 };
    assert_eq!(bus.atomic(store(), Iova(0), add), Err(BusError::MasterDisabled));
    bus.set_bus_master(true);
    for at in [1, 4, 7] {
        let refused = Err(BusError::Map(DmaError::Misaligned { at: Iova(at) }));
        assert_eq!(bus.atomic(store(), Iova(at), add), refused);
    }
    assert_eq!(bus.atomic(store(), Iova(8), add), Err(BusError::Map(DmaError::ReadOnly { at: Iova(8) })));
    assert_eq!(bus.atomic(store(), Iova(PAGE), add), Err(BusError::Map(DmaError::WriteOnly { at: Iova(PAGE) })));
    let at = Iova(2 * PAGE);
    assert_eq!(bus.atomic(store(), at, add), Err(BusError::Map(DmaError::Unmapped { at })));
    assert_eq!(bus.counters(), BusCounters { loads: 0, stores: 0, faults: 7 });
}

#[test]
fn atomics_of_several_threads_lose_nothing() {
    const EACH: u64 = 20_000;
    let (fd, mut bus) = paged(1, true);
    let processor = Mapping::new(fd.as_fd(), 0, PAGE, Protection::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..EACH {
                processor.update_u64(0, |word| word + (1 << 32)).unwrap();
            }
        });
        for _ in 0..EACH {
            bus.atomic(store(), Iova(0), AtomicOp::FetchAdd { add: 1, boundary: 1 << 31 }).unwrap();
        }
    });
    assert_eq!(processor.read_u64(0), Ok(EACH << 32 | EACH));
}

#[test]
fn a_copy_is_refused_whole_and_names_the_side() {
    let fd = memfd("cx10-bus-test", 4 * PAGE, true).unwrap();
    let mut bus = Bus::new(0);
    let mut map = |page: u64, rights| {
        bus.map_mut().map(Iova(page * PAGE), PAGE, rights, Some(fd.as_fd()), page * PAGE).unwrap();
    };
    map(0, Rights::ReadWrite);
    map(1, Rights::ReadWrite);
    map(2, Rights::Read);
    map(3, Rights::Write);
    let copy = |bus: &mut Bus, from, to, len| bus.copy(load(), Iova(from), store(), Iova(to), len);
    let disabled = Err(CopyError::Source(BusError::MasterDisabled));
    assert_eq!(copy(&mut bus, 0, PAGE, 8), disabled);
    bus.set_bus_master(true);
    bus.store(store(), Iova(0), &[7; 2 * PAGE as usize]).unwrap();
    let target = |error| Err(CopyError::Target(BusError::Map(error)));
    let source = |error| Err(CopyError::Source(BusError::Map(error)));
    for len in [9, BULK as u64 + 9] {
        let at = 2 * PAGE - len + 1;
        assert_eq!(copy(&mut bus, 0, at, len), target(DmaError::ReadOnly { at: Iova(2 * PAGE) }));
        let at = 3 * PAGE - len + 1;
        assert_eq!(copy(&mut bus, at, 0, len), source(DmaError::WriteOnly { at: Iova(3 * PAGE) }));
        let at = 4 * PAGE - len + 1;
        assert_eq!(copy(&mut bus, 0, at, len), target(DmaError::Unmapped { at: Iova(4 * PAGE) }));
        assert_eq!(copy(&mut bus, u64::MAX - 1, 0, len), source(DmaError::Overflow));
        assert_eq!(copy(&mut bus, 0, u64::MAX - 1, len), target(DmaError::Overflow));
    }
    assert_eq!(copy(&mut bus, 0x9_0000, 0x8_0000, 0), Ok(()), "no bytes need no memory");
    let mut left = [0; 2 * PAGE as usize];
    bus.load(load(), Iova(0), &mut left).unwrap();
    assert!(left.iter().all(|byte| *byte == 7), "a refused copy stores nothing");
    assert_eq!(bus.counters().faults, 11);
}

#[test]
fn a_copy_names_the_side_whose_memory_is_gone() {
    let memory = || memfd("cx10-bus-test", 2 * PAGE, false).unwrap();
    let (a, b) = (memory(), memory());
    let mut bus = Bus::new(0);
    bus.set_bus_master(true);
    bus.map_mut().map(Iova(0), 2 * PAGE, Rights::ReadWrite, Some(a.as_fd()), 0).unwrap();
    bus.map_mut().map(Iova(2 * PAGE), 2 * PAGE, Rights::ReadWrite, Some(b.as_fd()), 0).unwrap();
    File::from(b).set_len(PAGE).unwrap();
    let gone = BusError::Map(DmaError::NoBacking { at: Iova(3 * PAGE) });
    let result = bus.copy(load(), Iova(0), store(), Iova(3 * PAGE), PAGE);
    assert_eq!(result, Err(CopyError::Target(gone)), "found while copying");
    let result = bus.copy(load(), Iova(3 * PAGE), store(), Iova(0), PAGE);
    assert_eq!(result, Err(CopyError::Source(gone)), "known before");
    assert_eq!(bus.copy(load(), Iova(0), store(), Iova(PAGE), PAGE), Ok(()), "the other mapping is whole");
    File::from(a).set_len(0).unwrap();
    let result = bus.copy(load(), Iova(0), store(), Iova(PAGE), PAGE);
    assert!(matches!(result, Err(CopyError::Source(_))), "{result:?}");
}

#[test]
fn an_observer_that_sees_the_last_byte_sees_all() {
    let (fd, mut bus) = paged(4, true);
    // Page 1 of the bus is page 3 of the file, so the target is its first bytes.
    let seen = Mapping::new(fd.as_fd(), 3 * PAGE, PAGE, Protection::ReadOnly).unwrap();
    for len in [1, 7, 8, 64, 300, 1001, PAGE] {
        for round in 1..200u8 {
            bus.store(store(), Iova(0), &vec![round; len as usize]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while seen.load_acquire_u8(len - 1).unwrap() != round {
                        std::hint::spin_loop();
                    }
                    let mut bytes = vec![0; len as usize];
                    seen.read(0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == round), "{len} bytes, round {round}");
                });
                bus.copy(load(), Iova(0), store(), Iova(PAGE), len).unwrap();
            });
        }
    }
}

#[test]
fn an_aligned_word_at_the_end_is_stored_at_once() {
    let (fd, mut bus) = paged(4, true);
    let seen = Mapping::new(fd.as_fd(), 3 * PAGE, PAGE, Protection::ReadOnly).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let word = seen.read_u64(8).unwrap();
                assert!(word == 0 || word == u64::MAX, "{word:#x}");
            }
        });
        for round in 0..20_000u32 {
            let byte = if round % 2 == 0 { 0xff } else { 0 };
            bus.store(store(), Iova(PAGE), &[byte; 16]).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A bus that holds every store for 200 us.
fn holding() -> (OwnedFd, Bus) {
    use crate::dma::order::{Order, Policy, Profile, Settings};
    let (fd, mut bus) = paged(4, false);
    bus.reorder(Some(Order::new(Settings::with(Policy::ReadEarly, Profile::Cx10Unordered, 1))));
    (fd, bus)
}

#[test]
fn a_delayed_copy_of_memory_that_the_vmm_truncates_is_lost_and_told() {
    let (fd, mut bus) = holding();
    bus.copy(load(), Iova(0), store(), Iova(PAGE), PAGE).unwrap();
    assert!(!bus.advance(0), "the load is made, the store is not");
    File::from(fd).set_len(0).unwrap();
    bus.advance(200_000);
    assert_eq!((bus.lost(), bus.order().unwrap().pool().len()), (Lost { torn: 1, amiss: 0 }, 0));
}

#[test]
fn a_delayed_store_to_what_was_unmapped_without_a_drain_is_a_mistake_of_ours() {
    let (_fd, mut bus) = holding();
    bus.store(store(), Iova(PAGE), &[1; 8]).unwrap();
    bus.map_mut().unmap(Iova(PAGE), PAGE).unwrap();
    bus.advance(200_000);
    assert_eq!(bus.lost(), Lost { torn: 0, amiss: 1 });
    bus.store(store(), Iova(0), &[1; 8]).unwrap();
    bus.drain(crate::dma::order::Scope::Range(Iova(0), PAGE));
    bus.map_mut().unmap(Iova(0), PAGE).unwrap();
    bus.advance(400_000);
    assert_eq!(bus.lost().amiss, 1, "what is drained first is not lost");
}

#[test]
fn what_is_copied_between_lists_of_ranges_is_one_transaction() {
    use crate::dma::order::Range;
    let (_fd, mut bus) = holding();
    let bytes = pattern(PAGE, 5);
    bus.store(store(), Iova(0), &bytes).unwrap();
    bus.drain(crate::dma::order::Scope::All);
    let range = |at: u64, len: u32| Range { at: Iova(at), len };
    let (from, to) = ([range(0x10, 100), range(0x200, 50)], [range(PAGE + 5, 30), range(2 * PAGE, 120)]);
    bus.copy_ranges(load(), &from, store(), &to).unwrap();
    assert_eq!(bus.order().unwrap().pool().len(), 2, "a read and a write");
    bus.drain(crate::dma::order::Scope::All);
    let got = contents(&mut bus, 4 * PAGE);
    let expected = [&bytes[0x10..0x10 + 100], &bytes[0x200..0x200 + 50]].concat();
    let place = PAGE as usize;
    assert_eq!([&got[place + 5..place + 35], &got[2 * place..2 * place + 120]].concat(), expected);
    let beyond = [range(4 * PAGE - 8, 150)];
    let gone = CopyError::Target(BusError::Map(DmaError::Unmapped { at: Iova(4 * PAGE) }));
    assert_eq!(bus.copy_ranges(load(), &from, store(), &beyond), Err(gone));
    assert_eq!(bus.order().unwrap().pool().len(), 0);
}
