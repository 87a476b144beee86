//! Clients that break the rules. After each of them the server lives, holds a bounded amount of memory and
//! descriptors, and serves the next client.
//!
//! The letter and number of a case name the weakness of other servers that it probes: A negotiation, B order of
//! commands, C framing, D sizes, E errors, F descriptors, G timing, H the end.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::client::*;
use common::guest::{Event, Ram};
use common::serve::Served;
use common::toy::{self, Call, Toy};
use cx10::engine::Device;
use cx10::transport::connection::SEND_LIMIT;
use cx10::transport::layout::{Layout, irq, region};
use cx10::transport::message::{Command, HEADER_SIZE, Header, MAX_DATA, MAX_MESSAGE, SetIrqs, flag};
use cx10::transport::server::Server;

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

/// A header that says what it likes.
fn header(command: Command, size: u32, flags: u32) -> Vec<u8> {
    Header { id: 7, command, size, flags, error: 0 }.to_bytes().to_vec()
}

fn expect_error(client: &mut Client, command: Command, errno: i32) {
    let reply = client.reply(7, command);
    assert_eq!(reply.result(), Err(Errno(errno)));
}

/// The header makes the stream unusable: an error comes, then the end, and the next client is served.
fn ends_the_connection(served: &Served<Toy>, mut client: Client, bytes: &[u8], command: Command, errno: i32) {
    client.send_raw(bytes);
    expect_error(&mut client, command, errno);
    client.expect_closed();
    served.client().expect_silence();
}

/// Memory of this process (server and test) in MiB.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") / 256
}

// A: negotiation.

#[test]
fn a1_a_version_shorter_than_its_fixed_part_is_refused() {
    for len in 0..4 {
        let (served, _) = toy();
        let mut client = Client::connect(&served.path());
        assert_eq!(client.version_raw(&vec![0; len]), Err(EINVAL), "{len} bytes");
        client.expect_closed();
        served.client().expect_silence();
    }
}

#[test]
fn a2_a_version_without_data_is_legal() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    let (major, minor, json) = client.version_raw(&version_payload(0, 0, &[])).unwrap();
    assert_eq!((major, minor), (0, 0));
    assert!(json.contains("max_data_xfer_size"));
    client.expect_silence();
}

#[test]
fn a3_version_data_without_nul_is_refused() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    assert_eq!(client.version_raw(&version_payload(0, 0, b"{}")), Err(EINVAL));
    client.expect_closed();
    served.client().expect_silence();
}

#[test]
fn a4_version_data_with_a_nul_inside_is_refused() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    assert_eq!(client.version_raw(&version_payload(0, 0, b"{}\0{}\0")), Err(EINVAL));
    client.expect_closed();
    served.client().expect_silence();
}

#[test]
fn a5_an_object_without_capabilities_is_accepted() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    client.version(0, 0, "{}").unwrap();
    client.expect_silence();
}

#[test]
fn a6_another_major_version_is_refused() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    assert_eq!(client.version(1, 0, QEMU_CAPABILITIES), Err(EINVAL));
    client.expect_closed();
    served.client().expect_silence();
}

#[test]
fn a7_migration_without_page_size_is_accepted() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    client.version(0, 0, r#"{"capabilities":{"migration":{}}}"#).unwrap();
    client.expect_silence();
}

#[test]
fn a8_a_version_of_four_gigabytes_is_refused_unread() {
    let (served, _) = toy();
    let client = Client::connect(&served.path());
    let before = resident();
    ends_the_connection(&served, client, &header(Command::VERSION, u32::MAX, 0), Command::VERSION, libc::EMSGSIZE);
    assert!(resident() < before + 64);
}

#[test]
fn a9_deeply_nested_version_data_is_refused() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    let text = "{\"capabilities\":".to_owned() + &"[".repeat(4000);
    assert_eq!(client.version(0, 0, &text), Err(EINVAL));
    client.expect_closed();
    let mut client = Client::connect(&served.path());
    assert_eq!(client.version(0, 0, &" ".repeat(60_000)), Err(EINVAL), "longer than any real one");
    client.expect_closed();
    served.client().expect_silence();
}

// B: order of commands.

#[test]
fn b1_commands_before_negotiation_are_refused_and_do_nothing() {
    let (served, record) = toy();
    let mut client = Client::connect(&served.path());
    let ram = Ram::new(0x1000);
    assert_eq!(client.info(), Err(EINVAL));
    assert_eq!(client.map(0, &ram), Err(EINVAL));
    assert_eq!(client.read(region::BAR0, 0, &mut [0; 4]), Err(EINVAL));
    client.post_write(region::BAR0, 0, &[1, 2, 3, 4]);
    assert_eq!(client.reset(), Err(EINVAL));
    assert_eq!(record.take(), []);
    client.negotiate().unwrap();
    client.expect_silence();
}

#[test]
fn b2_replies_are_not_taken_as_commands() {
    let (_served, record, mut client) = toy_client();
    for command in 0..20 {
        client.send(Command(command), flag::REPLY, &[0; 32], &[]);
        client.send(Command(command), flag::REPLY | flag::ERROR, &[], &[]);
    }
    client.expect_silence();
    assert_eq!(record.take(), []);
}

#[test]
fn b3_message_types_that_do_not_exist_are_refused() {
    let (_served, record, mut client) = toy_client();
    for kind in 2..16 {
        let id = client.send(Command::RESET, kind, &[], &[]);
        assert_eq!(client.reply(id, Command::RESET).result(), Err(EINVAL));
    }
    assert_eq!(record.take(), []);
}

#[test]
fn b4_a_refused_negotiation_without_reply_leaves_the_client_unnegotiated() {
    let (served, _) = toy();
    let mut client = Client::connect(&served.path());
    client.post(Command::VERSION, &version_payload(0, 0, b"{}\0"));
    assert_eq!(client.info(), Err(EINVAL));
    client.negotiate().unwrap();
}

// C: framing.

#[test]
fn c1_a_feature_request_of_any_length_keeps_the_stream_in_step() {
    let (_served, _, mut client) = toy_client();
    for len in [8usize, 9, 23, 64, 4000] {
        let refused = client.request(Command::DEVICE_FEATURE, &vec![0; len]);
        assert_eq!(refused, Err(Errno(libc::ENOTTY)));
        client.expect_silence();
    }
}

#[test]
fn c2_the_data_of_a_refused_write_is_not_executed() {
    let (_served, record, mut client) = toy_client();
    let resets = header(Command::RESET, 16, 0).repeat(4);
    assert_eq!(client.write(77, 0, &resets), Err(EINVAL));
    client.expect_silence();
    assert_eq!(record.take(), []);
}

#[test]
fn c3_bytes_behind_the_data_are_refused_and_not_executed() {
    let (_served, record, mut client) = toy_client();
    let mut payload = write_payload(region::BAR0, 0x40, &[1, 2, 3, 4]);
    payload.extend_from_slice(&header(Command::RESET, 16, 0));
    assert_eq!(client.request(Command::REGION_WRITE, &payload), Err(EINVAL));
    let read = [&access_payload(region::BAR0, 0, 4)[..], &header(Command::RESET, 16, 0)].concat();
    assert_eq!(client.request(Command::REGION_READ, &read), Err(EINVAL));
    client.expect_silence();
    assert_eq!(record.take(), []);
}

#[test]
fn c4_a_count_beyond_the_message_does_not_eat_the_next_message() {
    let (_served, record, mut client) = toy_client();
    let payload = [&access_payload(region::BAR0, 0x40, 36)[..], &[1, 2, 3, 4]].concat();
    client.post(Command::REGION_WRITE, &payload);
    client.reset().unwrap();
    assert_eq!(record.take(), [Call::Reset]);
}

#[test]
fn c5_a_message_may_arrive_byte_by_byte() {
    let (_served, _, mut client) = toy_client();
    let bytes =
        client.message(Command::REGION_WRITE, flag::NO_REPLY, &write_payload(region::BAR0, 0x40, &[1, 2, 3, 4]));
    for byte in bytes {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.bar_read32(0x40), 0x0403_0201);
}

#[test]
fn c6_bools_keep_the_stream_in_step() {
    let (_served, _, mut client) = toy_client();
    let fixed = irq_payload(36, SetIrqs::DATA_BOOL | SetIrqs::ACTION_TRIGGER, irq::MSIX, 0, 16);
    let payload = [&fixed[..], &[1; 16]].concat();
    assert_eq!(client.request(Command::SET_IRQS, &payload), Ok(vec![]));
    client.expect_silence();
}

#[test]
fn c7_a_full_multi_write_is_one_message() {
    let (_served, record, mut client) = toy_client();
    client.post_write_multi(&vec![(region::BAR0, 0x80, &[1, 2, 3, 4][..]); 200]);
    client.expect_silence();
    assert_eq!(record.take().len(), 200);
}

#[test]
fn c8_a_multi_write_that_lies_about_its_count_is_refused_as_a_whole() {
    let (_served, record, mut client) = toy_client();
    let good = multi_payload(&[(region::BAR0, 0x80, &[1]), (region::BAR0, 0x81, &[2])]);
    for count in [0u64, 1, 3, 1 << 32, u64::MAX, u64::MAX / 24 + 1] {
        let payload = [&count.to_ne_bytes()[..], &good[8..]].concat();
        assert_eq!(client.request(Command::REGION_WRITE_MULTI, &payload), Err(EINVAL), "{count}");
    }
    assert_eq!(record.take(), []);
}

#[test]
fn c9_unknown_commands_are_refused_with_their_payload() {
    let (_served, record, mut client) = toy_client();
    let resets = header(Command::RESET, 16, 0).repeat(8);
    for command in [0u16, 17, 18, 19, 63, 64, 0x100, 0xffff] {
        client.request(Command(command), &resets).unwrap_err();
    }
    client.expect_silence();
    assert_eq!(record.take(), []);
}

#[test]
fn c10_a_size_below_the_header_ends_the_connection() {
    for size in [0, 1, 15] {
        let (served, _, client) = toy_client();
        ends_the_connection(&served, client, &header(Command::SET_IRQS, size, 0), Command::SET_IRQS, libc::EINVAL);
    }
}

// D: sizes.

#[test]
fn d1_a_read_of_a_gigabyte_is_refused_without_memory() {
    let (_served, _, mut client) = toy_client();
    let before = resident();
    let read = access_payload(region::BAR0, 0, 1 << 30);
    assert_eq!(client.request(Command::REGION_READ, &read), Err(EINVAL));
    assert!(resident() < before + 64);
}

#[test]
fn d2_a_read_whose_reply_size_would_wrap_is_refused() {
    let (_served, _, mut client) = toy_client();
    for count in [0xffff_fff0, u32::MAX, 0xffff_ffe0, 0] {
        let read = access_payload(region::BAR0, 0, count);
        assert_eq!(client.request(Command::REGION_READ, &read), Err(EINVAL), "{count:#x}");
    }
    client.expect_silence();
}

#[test]
fn d3_a_write_of_four_gigabytes_is_refused_unread() {
    let (served, _, client) = toy_client();
    let before = resident();
    let bytes =
        [&header(Command::REGION_WRITE, u32::MAX, 0)[..], &access_payload(region::BAR0, 0, u32::MAX - 32)].concat();
    ends_the_connection(&served, client, &bytes, Command::REGION_WRITE, libc::EMSGSIZE);
    assert!(resident() < before + 64);
}

#[test]
fn d4_one_byte_more_than_the_longest_message_ends_the_connection() {
    let (served, _, client) = toy_client();
    let bytes = header(Command::REGION_WRITE, MAX_MESSAGE as u32 + 1, 0);
    ends_the_connection(&served, client, &bytes, Command::REGION_WRITE, libc::EMSGSIZE);
}

#[test]
fn d5_a_client_that_reads_nothing_does_not_make_the_server_grow() {
    let (served, _, mut client) = toy_client();
    let before = resident();
    client.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let message = client.message(Command::REGION_READ, 0, &access_payload(region::CONFIG, 0, 4096));
    let batch = message.repeat(64);
    let mut sent = 0u64;
    while sent < 16 << 20 && client.stream().write_all(&batch).is_ok() {
        sent += batch.len() as u64;
    }
    assert!(sent < 16 << 20, "the server stopped reading");
    assert!(resident() < before + 64);
    drop(client);
    served.client().expect_silence();
}

#[test]
fn d6_large_answers_are_made_only_as_fast_as_they_are_taken() {
    let mut toy = Toy::with(Layout::pci(2 * MAX_DATA as u64, toy::VECTORS));
    let mut server = Server::detached(toy.layout());
    let (peer, stream) = UnixStream::pair().unwrap();
    server.attach(stream, 0);
    let mut client = Client::over(peer);
    let hello = client.message(Command::VERSION, 0, &version_payload(0, 0, b"{}\0"));
    let read = client.message(Command::REGION_READ, 0, &access_payload(region::BAR0, 0, MAX_DATA as u32));
    client.send_raw(&[hello, read.repeat(200)].concat());
    let progress = server.on_ready(&mut toy, 0);
    assert!(progress.handled <= 2 + SEND_LIMIT / MAX_DATA, "{} answers were made at once", progress.handled);
    assert!(server.wants_write() && !progress.more, "now it is the client's turn");
    client.receive().unwrap().result().unwrap();
    for _ in 0..200 {
        while server.on_ready(&mut toy, 0).more {}
        assert_eq!(client.receive().unwrap().result().unwrap().len(), 16 + MAX_DATA);
    }
}

// E: errors.

#[test]
fn e1_messages_without_reply_are_never_answered() {
    let (_served, _, mut client) = toy_client();
    for command in 0..20 {
        for len in [0usize, 4, 16, 20, 32, 40] {
            client.post(Command(command), &vec![0xff; len]);
        }
    }
    client.post_write(region::BAR0, toy::FAIL, &5u32.to_le_bytes());
    client.post_write(region::BAR0, 0x40, &[0; 4]);
    client.post(Command::REGION_READ, &access_payload(region::BAR0, 0, 4));
    client.post(Command::GET_INFO, &info_payload(16, 0));
    client.expect_silence();
}

#[test]
fn e2_every_refusal_has_an_errno() {
    let (_served, _, mut client) = toy_client();
    client.post_write(region::BAR0, toy::FAIL, &0u32.to_le_bytes());
    // The reply is checked for a non-zero errno; a device that fails without one gives EIO.
    assert_eq!(client.read(region::BAR0, 0, &mut [0; 4]), Err(Errno(libc::EIO)));
    assert_eq!(client.request(Command(99), &[]), Err(EINVAL));
}

#[test]
fn e3_unmap_all_is_what_qemu_means_by_it() {
    let (_served, record, mut client) = toy_client();
    let ram = Ram::new(0x1000);
    client.map(0x1000, &ram).unwrap();
    client.unmap_all().unwrap();
    client.map(0x1000, &ram).unwrap();
    assert_eq!(record.take()[1], Call::Unmap { flags: 2, address: 0, size: 0 });
}

// F: descriptors.

/// Open descriptors of this process that are eventfds.
fn eventfds() -> usize {
    let links = fs::read_dir("/proc/self/fd").expect("fds").flatten();
    links
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]"))
        .count()
}

#[test]
fn f1_more_than_sixteen_descriptors_are_refused_with_their_message() {
    let (_served, record, mut client) = toy_client();
    let event = Event::new();
    let many = vec![event.fd(); 17];
    let flags = SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER;
    assert_eq!(client.set_irqs(irq::MSIX, flags, 0, 16, &many), Err(EINVAL));
    assert_eq!(client.set_irqs(irq::MSIX, flags, 0, 17, &many), Err(EINVAL));
    assert_eq!(record.take(), []);
    client.connect_msix(0, &event).unwrap();
}

#[test]
fn f2_eventfds_for_vectors_that_do_not_exist_are_refused() {
    let (_served, record, mut client) = toy_client();
    let event = Event::new();
    let flags = SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER;
    for (start, count) in [(16, 1), (15, 2), (u32::MAX, 1), (0, u32::MAX), (1, u32::MAX)] {
        assert_eq!(client.set_irqs(irq::MSIX, flags, start, count, &[event.fd()]), Err(EINVAL), "{start} {count}");
    }
    assert_eq!(record.take(), []);
}

// Counts descriptors of the process, so it must not run beside tests that open some: they are in here, one
// after the other.
#[test]
fn f3_descriptors_that_nobody_asked_for_are_closed() {
    let (_served, _, mut client) = toy_client();
    let event = Event::new();
    let before = eventfds();
    for _ in 0..200 {
        client.request_with(Command::GET_INFO, &info_payload(16, 0), &[event.fd(); 16]).unwrap();
        client.request_with(Command(99), &[], &[event.fd(); 16]).unwrap_err();
        client.request_with(Command::DMA_MAP, &map_payload(32, 3, 0, 0, 0x1000), &[event.fd()]).unwrap_err();
        let bools = irq_payload(21, SetIrqs::DATA_BOOL | SetIrqs::ACTION_TRIGGER, irq::MSIX, 0, 1);
        client.request_with(Command::SET_IRQS, &bools, &[event.fd(); 2]).unwrap_err();
    }
    // 200 rounds would leave thousands; other tests of this process hold a few.
    assert!(eventfds() < before + 200, "{} eventfds, {before} before", eventfds());
}

#[test]
fn f4_descriptors_in_the_middle_of_a_message_cannot_be_piled_up() {
    let (served, _, mut client) = toy_client();
    let event = Event::new();
    let bytes = client.message(Command::REGION_WRITE, 0, &write_payload(region::BAR0, 0, &[0; 64]));
    for byte in &bytes {
        if client.try_send_raw(&[*byte], &[event.fd(); 16]).is_err() {
            break;
        }
    }
    // Depending on how the bytes were received, the message is refused or the connection ends.
    if let Ok(reply) = client.receive() {
        assert_eq!(reply.result(), Err(EINVAL));
    }
    drop(client);
    served.client().expect_silence();
}

#[test]
fn f5_memory_that_is_truncated_after_mapping_does_not_kill_the_device() {
    let (_served, _, mut client) = toy_client();
    let ram = Ram::shrinkable(0x4000);
    client.map(0, &ram).unwrap();
    ram.truncate(0x1000);
    client.write(region::BAR0, toy::DMA, &0x2000u64.to_le_bytes()).unwrap();
    client.expect_silence();
    client.unmap(0, 0x4000).unwrap();
}

// G: timing.

#[test]
fn g1_a_silent_client_does_not_keep_the_next_one_out_for_ever() {
    let (served, _) = toy();
    let mut silent = Client::connect(&served.path());
    let mut next = Client::connect(&served.path());
    let start = Instant::now();
    next.negotiate().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}: QEMU would have given up", start.elapsed());
    silent.expect_closed();
}

#[test]
fn g2_half_a_header_is_waited_for_and_not_taken_as_a_whole_one() {
    for len in 1..HEADER_SIZE {
        let (_served, _, mut client) = toy_client();
        let bytes = client.message(Command::REGION_WRITE, flag::NO_REPLY, &write_payload(region::BAR0, 0x40, &[9; 4]));
        client.send_raw(&bytes[..len]);
        std::thread::sleep(Duration::from_millis(2));
        client.send_raw(&bytes[len..]);
        assert_eq!(client.bar_read32(0x40), 0x0909_0909);
    }
}

#[test]
fn g3_a_client_that_leaves_in_the_middle_of_a_message_is_forgotten() {
    let (served, record) = toy();
    for len in [1, 15, 16, 20, 35] {
        let mut client = served.client();
        let bytes = client.message(Command::REGION_WRITE, 0, &write_payload(region::BAR0, 0x40, &[9; 4]));
        client.send_raw(&bytes[..len]);
        drop(client);
        served.client().expect_silence();
    }
    assert!(!record.take().iter().any(|call| matches!(call, Call::Write(..))));
}

#[test]
fn g4_a_waiting_client_is_served_when_the_first_has_left() {
    let (served, _, mut first) = toy_client();
    let mut second = Client::connect(&served.path());
    let id = second.send(Command::VERSION, 0, &version_payload(0, 0, b"{}\0"), &[]);
    second.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(second.receive().is_err(), "served while another is");
    first.expect_silence();
    drop(first);
    second.stream().set_read_timeout(Some(PATIENCE)).unwrap();
    second.reply(id, Command::VERSION).result().unwrap();
}

#[test]
fn g5_a_flood_of_posted_writes_does_not_keep_the_device_from_working() {
    let (_served, _, mut client) = toy_client();
    let event = Event::new();
    client.connect_msix(0, &event).unwrap();
    let flood = client.message(Command::REGION_WRITE, flag::NO_REPLY, &write_payload(region::BAR0, 0x40, &[1; 4]));
    let mut bytes =
        client.message(Command::REGION_WRITE, flag::NO_REPLY, &write_payload(region::BAR0, toy::DOORBELL, &[0; 4]));
    bytes.extend_from_slice(&flood.repeat(200_000));
    let writer = std::thread::spawn({
        let mut stream = client.stream().try_clone().unwrap();
        move || stream.write_all(&bytes).unwrap()
    });
    assert_eq!(event.wait(Duration::from_secs(5)), Some(1));
    assert!(!writer.is_finished(), "the interrupt came while the flood was running");
    writer.join().unwrap();
    client.expect_silence();
}

// H: the end.

#[test]
fn h1_a_client_that_leaves_takes_its_maps_and_eventfds_with_it() {
    let (served, record, mut client) = toy_client();
    let (ram, event) = (Ram::new(0x1000), Event::new());
    client.map(0x1000, &ram).unwrap();
    client.connect_msix(0, &event).unwrap();
    record.take();
    drop(client);
    let mut next = served.client();
    let off = Call::SetIrqs { index: 2, flags: 0x21, start: 0, count: 0, fds: 0 };
    assert_eq!(record.take(), [Call::Reset, off, Call::Unmap { flags: 2, address: 0, size: 0 }]);
    next.bar_write32(toy::DOORBELL, 0);
    next.map(0x1000, &ram).unwrap();
    next.expect_silence();
    assert_eq!(event.take(), None);
}

#[test]
fn h2_a_client_that_closes_one_direction_still_gets_its_replies() {
    let (_served, _, mut client) = toy_client();
    let id = client.send(Command::GET_INFO, 0, &info_payload(16, 0), &[]);
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    client.reply(id, Command::GET_INFO).result().unwrap();
    client.expect_closed();
}

#[test]
fn h3_hundreds_of_short_connections_leave_nothing_behind() {
    let (served, _) = toy();
    for i in 0..300 {
        let mut client = Client::connect(&served.path());
        if i % 3 != 0 {
            client.negotiate().unwrap();
        }
        if i % 3 == 2 {
            client.send_raw(&[0xff; 5]);
        }
    }
    served.client().expect_silence();
    let (_, _, stats) = served.stop();
    assert_eq!(stats.clients, 301);
}

#[test]
fn h4_noise_is_survived() {
    // A fixed sequence of pseudo-random bytes, as messages with plausible headers and as plain noise.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (served, _) = toy();
    for round in 0..40 {
        let mut client = served.client();
        client.stream().set_nonblocking(true).unwrap();
        let mut sink = [0; 4096];
        for _ in 0..200 {
            let len = (random() % 80) as usize;
            let payload: Vec<u8> = (0..len).map(|_| if random() % 3 == 0 { random() as u8 } else { 0 }).collect();
            let command = Command((random() % 20) as u16);
            let flags = [0, 0, 0, 0x10, 1, 0x30][(random() % 6) as usize];
            let mut bytes = client.message(command, flags, &payload);
            if round % 4 == 3 && random() % 50 == 0 {
                bytes[4..8].copy_from_slice(&(random() as u32).to_ne_bytes());
            }
            if client.stream().write_all(&bytes).is_err() {
                break;
            }
            while client.stream().read(&mut sink).is_ok_and(|n| n > 0) {}
        }
    }
    served.client().expect_silence();
}
