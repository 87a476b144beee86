//! The vfio-user server as an orderly client sees it: negotiation, information, memory maps, interrupts, region
//! accesses, reset. A toy device is behind it.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::client::*;
use common::guest::{Event, Ram};
use common::serve::Served;
use common::toy::{self, Call, Toy};
use cx10::sys;
use cx10::transport::layout::{Irq, IrqFlags, Layout, Region, RegionFlags, SparseArea, irq, region};
use cx10::transport::message::{Command, MAX_DATA, SetIrqs, flag};

const NONE: u32 = SetIrqs::DATA_NONE;
const BOOL: u32 = SetIrqs::DATA_BOOL;
const EVENTFD: u32 = SetIrqs::DATA_EVENTFD;
const MASK: u32 = SetIrqs::ACTION_MASK;
const UNMASK: u32 = SetIrqs::ACTION_UNMASK;
const TRIGGER: u32 = SetIrqs::ACTION_TRIGGER;

const SOON: Duration = Duration::from_secs(5);

fn toy() -> (Served<Toy>, toy::Record) {
    let toy = Toy::new();
    let record = toy.record();
    (Served::new(toy), record)
}

fn toy_client() -> (Served<Toy>, toy::Record, Client) {
    let (served, record) = toy();
    let client = served.client();
    (served, record, client)
}

// Negotiation.

#[test]
fn negotiation_with_qemu_announces_descriptors_sizes_and_multi_writes() {
    let (served, _) = toy();
    let json = Client::connect(&served.path()).negotiate().unwrap();
    assert_eq!(
        json,
        r#"{"capabilities":{"max_msg_fds":16,"max_dma_maps":32768,"max_data_xfer_size":65536,"write_multiple":true}}"#
    );
}

#[test]
fn the_version_reply_is_not_longer_than_the_request() {
    let (served, _) = toy();
    let json = Client::connect(&served.path()).negotiate().unwrap();
    assert!(json.len() <= QEMU_CAPABILITIES.len());
}

#[test]
fn a_higher_minor_version_is_answered_with_ours() {
    let (served, _) = toy();
    let (major, minor, _) = Client::connect(&served.path()).version(0, 3, "{}").unwrap();
    assert_eq!((major, minor), (0, 0));
}

#[test]
fn unsuitable_versions_and_capabilities_are_refused_and_end_the_connection() {
    let (served, _) = toy();
    let texts = [
        &b"{}"[..],
        b"{\0",
        b"\"\0",
        b"\0",
        b"[]\0",
        b"{ \"capabilities\": \"23\" }\0",
        b"{ \"capabilities\": { \"max_msg_fds\": \"foo\" } }\0",
        b"{ \"capabilities\": { \"max_msg_fds\": -1 } }\0",
        b"{ \"capabilities\": { \"migration\": \"23\" } }\0",
        b"{ \"capabilities\": { \"max_data_xfer_size\": 1.5 } }\0",
    ];
    let mut payloads: Vec<_> = texts.iter().map(|text| version_payload(0, 0, text)).collect();
    payloads.push(version_payload(999, 0, b"{}\0"));
    payloads.push(vec![0, 0]);
    for payload in payloads {
        let mut client = Client::connect(&served.path());
        assert_eq!(client.version_raw(&payload), Err(EINVAL), "{:?}", String::from_utf8_lossy(&payload));
        client.expect_closed();
    }
    served.client().expect_silence();
}

#[test]
fn a_second_negotiation_is_refused_and_the_first_stays() {
    let (_served, _, mut client) = toy_client();
    assert_eq!(client.version(0, 0, "{}"), Err(EINVAL));
    client.expect_silence();
}

// Information.

#[test]
fn device_info_is_a_resettable_pci_device() {
    let (_served, _, mut client) = toy_client();
    assert_eq!(client.info(), Ok(Info { flags: 3, regions: 9, irqs: 5 }));
}

#[test]
fn an_argsz_that_is_too_small_is_refused_everywhere() {
    let (_served, record, mut client) = toy_client();
    assert_eq!(client.request(Command::GET_INFO, &info_payload(15, 0)), Err(EINVAL));
    assert_eq!(client.request(Command::GET_IRQ_INFO, &info_payload(15, 2)), Err(EINVAL));
    assert_eq!(client.region_info_argsz(0, 31).map(drop), Err(EINVAL));
    assert_eq!(client.request(Command::DMA_MAP, &map_payload(31, 3, 0, 0, 4096)), Err(EINVAL));
    assert_eq!(client.request(Command::DMA_UNMAP, &unmap_payload(23, 0, 0, 4096)), Err(EINVAL));
    assert_eq!(client.request(Command::SET_IRQS, &irq_payload(3, NONE | TRIGGER, 2, 0, 0)), Err(EINVAL));
    assert_eq!(record.take(), []);
}

#[test]
fn requests_without_or_with_half_a_payload_are_refused() {
    let (_served, record, mut client) = toy_client();
    for command in 2..=15u16 {
        let command = Command(command);
        for len in [0usize, 1, 8, 15] {
            let empty_is_fine = command == Command::RESET && len == 0;
            if !empty_is_fine {
                let refused = client.request(command, &vec![0xff; len]).expect_err("short payload");
                assert!([libc::EINVAL, libc::EOPNOTSUPP].contains(&refused.0), "{command:?} {len}: {refused:?}");
            }
        }
    }
    assert_eq!(record.take(), []);
}

#[test]
fn region_info_tells_sizes_and_flags() {
    let (_served, _, mut client) = toy_client();
    let info = client.region_info(region::BAR0).unwrap();
    assert_eq!((info.argsz, info.flags, info.size, info.cap_offset), (32, 3, toy::BAR0_SIZE, 0));
    assert_eq!(client.region_info(region::CONFIG).unwrap().size, 4096);
    assert_eq!(client.region_info(8).unwrap().size, 0);
    assert_eq!(client.region_info(9).map(drop), Err(EINVAL));
    assert_eq!(client.region_info(u32::MAX).map(drop), Err(EINVAL));
}

#[test]
fn a_sparse_region_is_told_when_there_is_room_and_the_descriptor_comes_with_it() {
    let mut layout = Layout::pci(toy::BAR0_SIZE, toy::VECTORS);
    let fd = Arc::new(sys::memfd("bar2", 0x4000, true).unwrap());
    layout.regions[2] = Region {
        size: 0x4000,
        flags: RegionFlags::READ | RegionFlags::WRITE | RegionFlags::MMAP,
        mmap_offset: 0x1000,
        areas: vec![SparseArea { offset: 0x1000, size: 0x1000 }, SparseArea { offset: 0x3000, size: 0x1000 }],
        mmap_fd: Some(fd.clone()),
    };
    layout.regions[4] =
        Region { size: 0x1000, flags: RegionFlags::READ | RegionFlags::MMAP, mmap_fd: Some(fd), ..Region::default() };
    let served = Served::new(Toy::with(layout));
    let mut client = served.client();
    let short = client.region_info_argsz(2, 79).unwrap();
    assert_eq!((short.argsz, short.flags, short.cap_offset), (80, 0xf, 32), "an offset that QEMU takes for valid");
    assert!(short.fd.is_none() && short.areas.is_empty());
    let full = client.region_info(2).unwrap();
    assert_eq!((full.argsz, full.cap_offset, full.offset), (80, 32, 0x1000));
    assert_eq!(full.areas, [(0x1000, 0x1000), (0x3000, 0x1000)]);
    assert!(full.fd.is_some());
    let whole = client.region_info(4).unwrap();
    assert_eq!((whole.argsz, whole.flags, whole.cap_offset), (32, 5, 0), "a whole region needs no capability");
    assert!(whole.fd.is_some());
    client.expect_silence();
}

#[test]
fn irq_info_tells_counts_and_refuses_unknown_indices() {
    let (_served, _, mut client) = toy_client();
    assert_eq!(client.irq_info(irq::MSIX), Ok(IrqInfo { flags: 1, count: toy::VECTORS }));
    assert_eq!(client.irq_info(irq::ERR), Ok(IrqInfo { flags: 0, count: 0 }));
    assert_eq!(client.irq_info(5), Err(EINVAL));
}

// Memory maps.

#[test]
fn the_device_reaches_memory_that_was_mapped_and_none_that_was_unmapped() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::new(0x4000);
    client.map(0x10_0000, &ram).unwrap();
    ram.memory().write_u64(0x1008, 41).unwrap();
    client.write(region::BAR0, toy::DMA, &0x10_1008u64.to_le_bytes()).unwrap();
    assert_eq!(ram.memory().read_u64(0x1008), Ok(42));
    client.unmap(0x10_0000, 0x4000).unwrap();
    client.write(region::BAR0, toy::DMA, &0x10_1008u64.to_le_bytes()).unwrap();
    assert_eq!(ram.memory().read_u64(0x1008), Ok(42));
}

#[test]
fn map_requests_reach_the_device_as_they_were_made() {
    let (_served, record, mut client) = toy_client();
    let ram = Ram::new(0x4000);
    client.map_part(0x2000, 0x1000, 1, Some(ram.fd()), 0x3000).unwrap();
    client.map_part(0xfffc_0000, 0x4_0000, 1, None, 0).unwrap();
    client.unmap_all().unwrap();
    let calls = record.take();
    assert_eq!(calls[0], Call::Map { flags: 1, offset: 0x3000, address: 0x2000, size: 0x1000, fd: true });
    assert_eq!(calls[1], Call::Map { flags: 1, offset: 0, address: 0xfffc_0000, size: 0x4_0000, fd: false });
    assert_eq!(calls[2], Call::Unmap { flags: 2, address: 0, size: 0 }, "UNMAP_ALL is bit 1 on the wire");
}

#[test]
fn senseless_maps_are_refused_before_they_reach_the_device() {
    let (_served, record, mut client) = toy_client();
    let ram = Ram::new(0x4000);
    for (iova, size, flags) in
        [(0, 0, 3), (u64::MAX - 0xfff, 0x2000, 3), (0x1000, 0x1000, 0), (0x1000, 0x1000, 4), (0x1000, 0x1000, 0x13)]
    {
        assert_eq!(
            client.map_part(iova, size, flags, Some(ram.fd()), 0),
            Err(EINVAL),
            "{iova:#x} {size:#x} {flags:#x}"
        );
    }
    let two = [ram.fd(), ram.fd()];
    assert_eq!(client.request_with(Command::DMA_MAP, &map_payload(32, 3, 0, 0, 0x1000), &two), Err(EINVAL));
    assert_eq!(record.take(), []);
    assert_eq!(client.map_part(0x1800, 0x1000, 3, Some(ram.fd()), 0), Err(EINVAL), "not a multiple of the page size");
    assert_eq!(client.map_part(0x1000, 0x8000, 3, Some(ram.fd()), 0), Err(EINVAL), "longer than the file");
    client.map(0, &ram).unwrap();
    assert_eq!(client.map_part(0x3000, 0x2000, 3, Some(ram.fd()), 0), Err(Errno(libc::EEXIST)));
    let event = Event::new();
    assert_eq!(client.map_part(0x10000, 0x1000, 3, Some(event.fd()), 0), Err(Errno(libc::ENODEV)));
}

#[test]
fn an_unmap_drops_every_map_inside_its_range() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::new(0x1000);
    for iova in [0x1000, 0x2000, 0x8000, 0xffff_ffff_ffff_f000] {
        client.map_part(iova, 0x1000, 3, Some(ram.fd()), 0).unwrap();
    }
    client.unmap(0, 0x3000).unwrap();
    client.unmap(0x4000, 0x1000).unwrap();
    client.unmap(0x5000, 0u64.wrapping_sub(0x5000)).unwrap();
    for iova in [0x1000, 0x2000, 0x8000, 0xffff_ffff_ffff_f000] {
        client.map_part(iova, 0x1000, 3, Some(ram.fd()), 0).unwrap_or_else(|e| panic!("{iova:#x} still mapped: {e:?}"));
    }
}

#[test]
fn senseless_unmaps_are_refused_and_change_nothing() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::new(0x4000);
    client.map(0x4000, &ram).unwrap();
    assert_eq!(client.unmap(0x4000, 0), Err(EINVAL));
    assert_eq!(client.unmap(0x4000, u64::MAX), Err(EINVAL));
    assert_eq!(client.unmap(0x4000, 0x1000), Err(EINVAL), "cuts the map");
    assert_eq!(client.unmap_flags(4, 0x4000, 0x4000), Err(EINVAL));
    assert_eq!(client.unmap_flags(1, 0x4000, 0x4000), Err(EINVAL), "dirty pages are not tracked");
    assert_eq!(client.unmap_flags(2, 0x4000, 0x4000), Err(EINVAL), "UNMAP_ALL takes no range");
    assert_eq!(client.unmap_flags(3, 0, 0), Err(EINVAL));
    assert_eq!(client.map(0x4000, &ram), Err(Errno(libc::EEXIST)));
}

#[test]
fn a_boot_storm_of_maps_and_unmaps_is_answered_in_order() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::new(0x10_0000);
    let mut sent = Vec::new();
    for round in 0..8u64 {
        for page in 0..32u64 {
            let payload = map_payload(32, 3, page * 0x1000, page * 0x1000, 0x1000);
            sent.push((client.send(Command::DMA_MAP, flag::COMMAND, &payload, &[ram.fd()]), Command::DMA_MAP));
        }
        let payload = unmap_payload(24, 0, 0, 0x2_0000 + round);
        sent.push((client.send(Command::DMA_UNMAP, flag::COMMAND, &payload, &[]), Command::DMA_UNMAP));
    }
    for (id, command) in sent {
        client.reply(id, command).result().unwrap();
    }
}

// Interrupts.

#[test]
fn an_interrupt_reaches_the_eventfd_of_its_vector() {
    let (_served, _, mut client) = toy_client();
    let (a, b) = (Event::new(), Event::new());
    client.connect_msix(3, &a).unwrap();
    client.connect_msix(4, &b).unwrap();
    client.post_write(region::BAR0, toy::DOORBELL, &4u32.to_le_bytes());
    assert_eq!(b.wait(SOON), Some(1));
    assert_eq!(a.take(), None);
    client.disconnect_msix().unwrap();
    client.write(region::BAR0, toy::DOORBELL, &4u32.to_le_bytes()).unwrap();
    client.expect_silence();
    assert_eq!(b.take(), None);
}

#[test]
fn sixteen_eventfds_come_with_one_message() {
    let (_served, _, mut client) = toy_client();
    let events: Vec<_> = (0..16).map(|_| Event::new()).collect();
    let fds: Vec<_> = events.iter().map(Event::fd).collect();
    client.set_irqs(irq::MSIX, EVENTFD | TRIGGER, 0, 16, &fds).unwrap();
    for (vector, event) in (0u32..).zip(&events) {
        client.post_write(region::BAR0, toy::DOORBELL, &vector.to_le_bytes());
        assert_eq!(event.wait(SOON), Some(1), "vector {vector}");
    }
}

#[test]
fn the_client_can_fire_vectors_itself() {
    let (_served, _, mut client) = toy_client();
    let (a, b) = (Event::new(), Event::new());
    client.set_irqs(irq::MSIX, EVENTFD | TRIGGER, 0, 2, &[a.fd(), b.fd()]).unwrap();
    client.set_irqs(irq::MSIX, NONE | TRIGGER, 1, 1, &[]).unwrap();
    assert_eq!((a.take(), b.take()), (None, Some(1)));
    let mut payload = irq_payload(22, BOOL | TRIGGER, irq::MSIX, 0, 2);
    payload.extend_from_slice(&[1, 0]);
    assert_eq!(client.request(Command::SET_IRQS, &payload), Ok(vec![]));
    assert_eq!((a.take(), b.take()), (Some(1), None));
}

#[test]
fn senseless_interrupt_requests_are_refused_before_they_reach_the_device() {
    let mut layout = Layout::pci(toy::BAR0_SIZE, toy::VECTORS);
    layout.irqs[irq::ERR as usize] = Irq { count: 1, flags: IrqFlags::EVENTFD };
    let toy = Toy::with(layout);
    let record = toy.record();
    let served = Served::new(toy);
    let mut client = served.client();
    let cases = [
        ("no such index", NONE | TRIGGER, 5, 0, 0),
        ("index without vectors", EVENTFD | TRIGGER, irq::INTX, 0, 1),
        ("two actions", NONE | MASK | UNMASK, irq::MSIX, 0, 1),
        ("no action", NONE, irq::MSIX, 0, 1),
        ("two kinds of data", NONE | BOOL | TRIGGER, irq::MSIX, 0, 1),
        ("no kind of data", TRIGGER, irq::MSIX, 0, 1),
        ("unknown flag", NONE | TRIGGER | 0x40, irq::MSIX, 0, 0),
        ("range ends behind the last vector", NONE | TRIGGER, irq::MSIX, 15, 2),
        ("range begins behind the last vector", NONE | TRIGGER, irq::MSIX, 17, 1),
        ("range wraps", NONE | TRIGGER, irq::MSIX, u32::MAX, 2),
        ("MSI-X cannot be masked", NONE | MASK, irq::MSIX, 0, 1),
        ("MSI-X cannot be unmasked", NONE | UNMASK, irq::MSIX, 0, 1),
        ("unmask eventfd", EVENTFD | UNMASK, irq::MSIX, 0, 1),
        ("ERR cannot be masked", NONE | MASK, irq::ERR, 0, 1),
        ("ERR has one vector", NONE | TRIGGER, irq::ERR, 0, 2),
        ("off with a start", NONE | TRIGGER, irq::MSIX, 1, 0),
        ("off by mask", NONE | MASK, irq::MSIX, 0, 0),
        ("off by bools", BOOL | TRIGGER, irq::MSIX, 0, 0),
        ("off by eventfd", EVENTFD | TRIGGER, irq::MSIX, 0, 0),
        ("bools without bytes", BOOL | TRIGGER, irq::MSIX, 0, 1),
    ];
    for (what, flags, index, start, count) in cases {
        assert_eq!(client.set_irqs(index, flags, start, count, &[]), Err(EINVAL), "{what}");
    }
    let event = Event::new();
    let fd = event.fd();
    assert_eq!(client.set_irqs(irq::MSIX, NONE | TRIGGER, 0, 1, &[fd]), Err(EINVAL), "descriptor without use");
    assert_eq!(client.set_irqs(irq::MSIX, EVENTFD | TRIGGER, 0, 2, &[fd]), Err(EINVAL), "one descriptor for two");
    assert_eq!(client.set_irqs(irq::MSIX, EVENTFD | TRIGGER, 0, 1, &[fd, fd]), Err(EINVAL), "two for one");
    for bytes in [&[0u8][..], &[0, 0, 0]] {
        let payload = [&irq_payload(22, BOOL | TRIGGER, irq::MSIX, 0, 2)[..], bytes].concat();
        assert_eq!(client.request(Command::SET_IRQS, &payload), Err(EINVAL), "{} bools for two", bytes.len());
    }
    let payload = [&irq_payload(21, BOOL | TRIGGER, irq::MSIX, 0, 1)[..], &[1]].concat();
    assert_eq!(client.request_with(Command::SET_IRQS, &payload, &[fd]), Err(EINVAL), "descriptor with bools");
    assert_eq!(record.take(), []);
}

#[test]
fn something_else_than_an_eventfd_is_refused() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::new(0x1000);
    assert_eq!(client.set_irqs(irq::MSIX, EVENTFD | TRIGGER, 0, 1, &[ram.fd()]), Err(EINVAL));
}

// Region accesses.

#[test]
fn registers_keep_what_is_written_at_every_size() {
    let (_served, record, mut client) = toy_client();
    for size in [1usize, 2, 4, 8] {
        let value: Vec<u8> = (0..size as u8).map(|i| i + 1).collect();
        let mut back = vec![0; size];
        client.write(region::BAR0, 0x100, &value).unwrap();
        client.read(region::BAR0, 0x100, &mut back).unwrap();
        assert_eq!(back, value);
    }
    assert_eq!(record.take().len(), 8);
}

#[test]
fn a_posted_write_is_done_before_a_read_behind_it_and_not_answered() {
    let (_served, _, mut client) = toy_client();
    for value in 0..1000u32 {
        client.bar_write32(0x40, value);
        if value % 100 == 99 {
            assert_eq!(client.bar_read32(0x40), value);
        }
    }
    client.expect_silence();
}

#[test]
fn the_whole_configuration_space_is_read_at_once() {
    let (_served, _, mut client) = toy_client();
    let mut config = vec![0; 4096];
    client.read(region::CONFIG, 0, &mut config).unwrap();
    assert!(config.iter().enumerate().all(|(i, b)| *b == (i ^ (i >> 8)) as u8));
}

#[test]
fn accesses_outside_a_region_are_refused_before_they_reach_the_device() {
    let (_served, record, mut client) = toy_client();
    let size = toy::BAR0_SIZE;
    let cases = [
        (0, size, 1),
        (0, size - 3, 4),
        (0, u64::MAX, 1),
        (0, u64::MAX - 3, 8),
        (0, 0, 0),
        (1, 0, 4),
        (9, 0, 4),
        (u32::MAX, 0, 4),
    ];
    for (region, offset, count) in cases {
        let read = client.request(Command::REGION_READ, &access_payload(region, offset, count));
        assert_eq!(read, Err(EINVAL), "read {region} {offset:#x} {count}");
        let write = client.request(Command::REGION_WRITE, &write_payload(region, offset, &vec![0; count as usize]));
        assert_eq!(write, Err(EINVAL), "write {region} {offset:#x} {count}");
    }
    assert_eq!(record.take(), []);
    client.read(region::BAR0, size - 4, &mut [0; 4]).unwrap();
}

#[test]
fn the_rights_of_a_region_hold() {
    let mut layout = Layout::pci(toy::BAR0_SIZE, toy::VECTORS);
    layout.regions[region::BAR0 as usize].flags = RegionFlags::READ;
    layout.regions[region::CONFIG as usize].flags = RegionFlags::WRITE;
    let served = Served::new(Toy::with(layout));
    let mut client = served.client();
    assert_eq!(client.write(region::BAR0, 0, &[0; 4]), Err(Errno(libc::EPERM)));
    assert_eq!(client.read(region::CONFIG, 0, &mut [0; 4]), Err(Errno(libc::EPERM)));
    client.read(region::BAR0, 0, &mut [0; 4]).unwrap();
}

#[test]
fn the_largest_announced_transfer_works_and_one_byte_more_is_refused() {
    let served = Served::new(Toy::with(Layout::pci(2 * MAX_DATA as u64, toy::VECTORS)));
    let mut client = served.client();
    let data: Vec<u8> = (0..MAX_DATA).map(|i| (i % 253) as u8).collect();
    client.write(region::BAR0, 0, &data).unwrap();
    let mut back = vec![0; MAX_DATA];
    client.read(region::BAR0, 0, &mut back).unwrap();
    assert_eq!(back, data);
    let more = access_payload(region::BAR0, 0, MAX_DATA as u32 + 1);
    assert_eq!(client.request(Command::REGION_READ, &more), Err(EINVAL));
    client.expect_silence();
}

#[test]
fn a_multi_write_is_done_entry_by_entry_in_order() {
    let (_served, record, mut client) = toy_client();
    client.post_write_multi(&[
        (region::BAR0, 0x10, &[1, 2, 3, 4]),
        (region::BAR0, 0x20, &[5, 6, 7, 8, 9, 10, 11, 12]),
        (region::BAR0, 0x10, &[13]),
    ]);
    assert_eq!(client.bar_read32(0x10), 0x0403_020d);
    let writes: Vec<_> = record.take().into_iter().filter(|call| matches!(call, Call::Write(..))).collect();
    assert_eq!(writes.len(), 3);
    assert_eq!(writes[1], Call::Write(region::BAR0, 0x20, vec![5, 6, 7, 8, 9, 10, 11, 12]));
    let acked = client.request(Command::REGION_WRITE_MULTI, &multi_payload(&[(region::BAR0, 0x10, &[1])]));
    assert_eq!(acked, Ok(vec![]));
}

#[test]
fn a_bad_entry_of_a_multi_write_does_not_keep_the_others_from_happening() {
    let (_served, _, mut client) = toy_client();
    let mut payload = multi_payload(&[
        (region::BAR0, 0x10, &[1]),
        (region::BAR0, toy::BAR0_SIZE, &[2]),
        (region::BAR0, 0x11, &[3]),
        (region::BAR0, 0x12, &[4]),
    ]);
    let at = payload.len() - 12;
    payload[at..at + 4].copy_from_slice(&9u32.to_ne_bytes());
    assert_eq!(client.request(Command::REGION_WRITE_MULTI, &payload), Err(EINVAL));
    assert_eq!(client.bar_read32(0x10), 0x0000_0301);
}

#[test]
fn what_qemu_queues_during_a_stall_arrives_completely() {
    let (_served, record, mut client) = toy_client();
    let data = [0x5a; 8];
    let entries = vec![(region::BAR0, 0x80u64, &data[..4]); 200];
    for _ in 0..100 {
        client.post_write_multi(&entries);
    }
    client.expect_silence();
    assert_eq!(record.take().len(), 20_000);
}

// Reset and errors of the device.

#[test]
fn reset_reaches_the_device() {
    let (_served, record, mut client) = toy_client();
    client.bar_write32(0x40, 7);
    client.reset().unwrap();
    assert_eq!(client.bar_read32(0x40), 0);
    assert!(record.take().contains(&Call::Reset));
    assert_eq!(client.request(Command::RESET, &[0; 4]), Err(EINVAL));
}

#[test]
fn an_error_of_the_device_is_answered_with_its_errno() {
    let (_served, _, mut client) = toy_client();
    let fail = |client: &mut Client| client.post_write(region::BAR0, toy::FAIL, &(libc::EBUSY as u32).to_le_bytes());
    let busy = Errno(libc::EBUSY);
    fail(&mut client);
    assert_eq!(client.read(region::BAR0, 0, &mut [0; 4]), Err(busy));
    fail(&mut client);
    assert_eq!(client.write(region::BAR0, 0, &[0; 4]), Err(busy));
    fail(&mut client);
    assert_eq!(client.reset(), Err(busy));
    fail(&mut client);
    assert_eq!(client.map_part(0, 0x1000, 3, None, 0), Err(busy));
    fail(&mut client);
    assert_eq!(client.unmap(0, 0x1000), Err(busy));
    fail(&mut client);
    assert_eq!(client.disconnect_msix(), Err(busy));
    client.expect_silence();
}

#[test]
fn features_that_do_not_exist_are_refused() {
    let (_served, record, mut client) = toy_client();
    let refused = [
        (Command::DEVICE_FEATURE, libc::ENOTTY),
        (Command::GET_REGION_IO_FDS, libc::EOPNOTSUPP),
        (Command::DIRTY_PAGES, libc::EOPNOTSUPP),
        (Command::MIG_DATA_READ, libc::EOPNOTSUPP),
        (Command::MIG_DATA_WRITE, libc::EOPNOTSUPP),
        (Command::DMA_READ, libc::EINVAL),
        (Command::DMA_WRITE, libc::EINVAL),
        (Command(0), libc::EINVAL),
        (Command(19), libc::EINVAL),
        (Command(0xffff), libc::EINVAL),
    ];
    for (command, errno) in refused {
        assert_eq!(client.request(command, &[0; 16]), Err(Errno(errno)), "{command:?}");
    }
    assert_eq!(record.take(), []);
}
