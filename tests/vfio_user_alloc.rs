//! The hot path of the server does not touch the heap.

mod common;

use std::alloc::System;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use cap::Cap;
use common::client::{access_payload, info_payload, multi_payload, version_payload, write_payload};
use common::toy::Toy;
use cx10::engine::Device;
use cx10::transport::layout::region;
use cx10::transport::message::{Command, Header, flag};
use cx10::transport::server::Server;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn message(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { id: 1, command, size: 16 + payload.len() as u32, flags, error: 0 };
    [&header.to_bytes()[..], payload].concat()
}

fn register_accesses_do_not_allocate() {
    let (mut client, stream) = UnixStream::pair().unwrap();
    let mut toy = Toy::new();
    toy.quiet = true;
    let mut server = Server::detached(toy.layout());
    server.attach(stream, 0);
    let mut serve = |client: &mut UnixStream, bytes: &[u8], reply: &mut [u8]| {
        client.write_all(bytes).unwrap();
        loop {
            let progress = server.on_ready(&mut toy, 0);
            assert!(progress.gone.is_none());
            if !progress.more && progress.handled == 0 {
                break;
            }
        }
        client.read_exact(reply).unwrap();
    };
    let hello = message(Command::VERSION, 0, &version_payload(0, 0, &[]));
    serve(&mut client, &hello, &mut []);
    client.set_nonblocking(true).unwrap();
    let mut sink = [0; 4096];
    assert!(client.read(&mut sink).unwrap() > 16);

    let posted = message(Command::REGION_WRITE, flag::NO_REPLY, &write_payload(region::BAR0, 0x40, &[1, 2, 3, 4]));
    let multi = multi_payload(&[(region::BAR0, 0x40, &[1, 2, 3, 4][..]); 100]);
    let round = [
        posted.repeat(300),
        message(Command::REGION_WRITE_MULTI, flag::NO_REPLY, &multi),
        message(Command::REGION_WRITE, 0, &write_payload(region::CONFIG, 4, &[6, 0])),
        message(Command::REGION_READ, 0, &access_payload(region::BAR0, 0x40, 4)),
        message(Command::REGION_READ, 0, &access_payload(region::CONFIG, 0, 256)),
        message(Command::REGION_READ, 0, &access_payload(9, 0, 4)),
    ]
    .concat();
    let mut reply = [0; 32 + 36 + 32 + 256 + 16];
    // Warms buffers up, and the log of the refusal.
    serve(&mut client, &round, &mut reply);
    let before = HEAP.total_allocated();
    for _ in 0..100 {
        serve(&mut client, &round, &mut reply);
    }
    assert_eq!(HEAP.total_allocated() - before, 0, "bytes allocated in 30000 messages");

    // The measurement works: this request allocates its answer.
    let info = message(Command::GET_INFO, 0, &info_payload(16, 0));
    serve(&mut client, &info, &mut [0; 32]);
    assert!(HEAP.total_allocated() > before);
}

fn main() {
    register_accesses_do_not_allocate();
    println!("register_accesses_do_not_allocate ... ok");
}
