//! Accesses to guest memory do not touch the heap, wherever they begin and end.

use std::alloc::System;
use std::os::fd::AsFd;

use cap::Cap;
use cx10::dma::bus::AtomicOp;
use cx10::dma::map::Rights;
use cx10::dma::{Bus, Iova, Load, LoadClass, Store, StoreClass, Stream};
use cx10::sys::memfd;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn loads_stores_copies_and_atomics_do_not_allocate() {
    const PAGE: u64 = 4096;
    let fd = memfd("cx10-dma-alloc", 16 * PAGE, true).unwrap();
    let mut bus = Bus::new(0);
    bus.set_bus_master(true);
    for page in 0..16 {
        bus.map_mut().map(Iova(page * PAGE), PAGE, Rights::ReadWrite, Some(fd.as_fd()), (15 - page) * PAGE).unwrap();
    }
    let load = Load::device(LoadClass::Payload, Stream::Responder(1));
    let store = Store::device(StoreClass::Payload, Stream::Responder(1));
    let mut bytes = vec![7; 3 * PAGE as usize];
    let before = HEAP.total_allocated();
    for len in [1, 8, 64, 255, 256, PAGE, 3 * PAGE] {
        for at in [0, 1, PAGE - 5, PAGE, 4 * PAGE - 1] {
            let bytes = &mut bytes[..len as usize];
            bus.store(store, Iova(at), bytes).unwrap();
            bus.load(load, Iova(at), bytes).unwrap();
            bus.copy(load, Iova(at), store, Iova(8 * PAGE - 3), len).unwrap();
            bus.copy(load, Iova(at), store, Iova(at + 100), len).unwrap();
        }
        bus.atomic(store, Iova(len / 8 * 8), AtomicOp::FetchAdd { add: 1, boundary: 0 }).unwrap();
    }
    assert_eq!(HEAP.total_allocated() - before, 0, "heap bytes");
}

fn main() {
    loads_stores_copies_and_atomics_do_not_allocate();
    println!("loads_stores_copies_and_atomics_do_not_allocate ... ok");
}
