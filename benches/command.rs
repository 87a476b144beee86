//! A command, from its doorbell to the status byte in memory, beside a register read of the same function in the same run.
//!
//! The client polls the status as the driver does before it has an event queue. QUERY_ISSI stands for the smallest command,
//! QUERY_HCA_CAP (4 KiB of output in eight mailboxes) for a large one. Rounds are interleaved; medians are compared.
//!
//! `cargo bench --bench command [-- ROUNDS]`
// A program, not a library: nothing in it is public.
#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::client::Client;
use common::guest::Ram;
use cx10::device::Function;
use cx10::device::clock::MonotonicClock;
use cx10::engine::{Options, Stop, serve};
use cx10::profile::Profile;
use cx10::trace::Trace;
use cx10::transport::layout::region;
use vmm_sys_util::tempdir::TempDir;

const SAMPLES: usize = 5_000;
const QUEUE: u64 = 0x1000;
const OUT_BOXES: u64 = 0x1_0000;
const BOX: u64 = 1024;

/// Writes the entry of a command without input mailboxes, and its output mailboxes.
fn post(ram: &Ram, opcode: u16, op_mod: u16, outlen: u32) {
    let boxes = u64::from(outlen.saturating_sub(16)).div_ceil(512);
    for i in 0..boxes {
        let at = OUT_BOXES + i * BOX;
        ram.write_be64(at + 0x230, if i + 1 < boxes { at + BOX } else { 0 });
        ram.write_be32(at + 0x238, i as u32);
        ram.write(at + 0x23d, &[1]);
    }
    let mut entry = [0u8; 64];
    entry[0] = 7;
    entry[4..8].copy_from_slice(&16u32.to_be_bytes());
    entry[0x10..0x12].copy_from_slice(&opcode.to_be_bytes());
    entry[0x16..0x18].copy_from_slice(&op_mod.to_be_bytes());
    if boxes > 0 {
        entry[0x30..0x38].copy_from_slice(&OUT_BOXES.to_be_bytes());
    }
    entry[0x38..0x3c].copy_from_slice(&outlen.to_be_bytes());
    entry[0x3c] = 1;
    entry[0x3f] = 1;
    entry[0x3d] = !entry.iter().fold(0, |sum, byte| sum ^ byte);
    ram.write(QUEUE, &entry);
}

/// Rings the doorbell and spins until software owns the entry again.
fn ring(client: &mut Client, ram: &Ram) {
    client.post_write(region::BAR0, 0x18, &1u32.to_be_bytes());
    let start = Instant::now();
    while ram.memory().load_acquire_u8(QUEUE + 0x3f).expect("inside") & 1 != 0 {
        std::hint::spin_loop();
        assert!(start.elapsed().as_secs() < 5, "the device answers every command");
    }
    assert_eq!(ram.read(QUEUE + 0x3f, 1), [0], "delivered");
    assert_eq!(ram.read(QUEUE + 0x20, 1), [0], "succeeded");
}

fn median(mut sample: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            sample();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[SAMPLES / 2]
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(5usize);
    let dir = TempDir::new_with_prefix("/tmp/cx10-bench").expect("a directory");
    let path = dir.as_path().join("socket");
    let stop = Stop::new().expect("a stop handle");
    let server = std::thread::spawn({
        let (path, stop) = (path.clone(), stop.clone());
        move || {
            let mut function = Function::new(Profile::default(), Box::new(MonotonicClock::start()), Trace::off());
            serve(&path, &mut function, &Options::default(), &stop).expect("the server");
        }
    });
    while !path.exists() {
        std::thread::yield_now();
    }
    let ram = Ram::new(1 << 20);
    let mut client = Client::negotiated(&path);
    client.map(0, &ram).expect("a map");
    client.config_write(4, 2, 6);
    client.bar_write32(0x10, 0);
    client.bar_write32(0x14, (QUEUE as u32).swap_bytes());
    post(&ram, 0x104, 0, 16);
    ring(&mut client, &ram);

    let mut rows = Vec::new();
    for _ in 0..rounds {
        let read = median(|| {
            client.bar_read32(0x4);
        });
        let small = median(|| {
            post(&ram, 0x10a, 0, 16);
            ring(&mut client, &ram);
        });
        let large = median(|| {
            post(&ram, 0x100, 1, 0x1010);
            ring(&mut client, &ram);
        });
        rows.push((read, small, large));
    }
    let middle = |pick: fn(&(f64, f64, f64)) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (read, small, large) = (middle(|r| r.0), middle(|r| r.1), middle(|r| r.2));
    println!("register read             {read:8.2} us   1.00");
    println!("QUERY_ISSI                {small:8.2} us   {:.2}", small / read);
    println!("QUERY_HCA_CAP             {large:8.2} us   {:.2}", large / read);
    drop(client);
    stop.stop();
    server.join().expect("the server ends");
}
