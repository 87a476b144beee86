//! The path of a message through the device, in process: no socket, no second thread, no waiting.
//!
//! A send queue is filled once; a batch is then a new count in its doorbell record, a ring, and the device's work until
//! every message is complete. So nearly everything that is counted is the device's.
//!
//! `cargo bench --bench hot_path` prints nanoseconds of processor time for each kind of message, beside `memcpy` of the
//! same bytes. `hot_path KIND COUNT [KEY=VALUE...]` only sends COUNT messages, for `scripts/bench`, which counts instructions,
//! or for a profiler; options are the device's, such as `order.policy=random` and `order.check=true`.
// A program, not a library: nothing in it is public.
#![allow(missing_docs)]

use std::hint::black_box;

use cx10::prm::values::{QpMtu, QpType, WqeOpcode};
use cx10::profile::Profile;
use cx10::sys::process::thread_time;
use cx10::testing::rdma::{LOG_RQ, LOG_SQ, Link, Qp, RdmaRig, data, remote};

/// Where data comes from and goes to. Each has a key of its own, in pages of 4 KiB.
const FROM: u64 = 40 << 20;
const TO: u64 = 48 << 20;
const ROOM: u64 = 1 << 20;

/// A kind of message.
struct Kind {
    name: &'static str,
    opcode: WqeOpcode,
    len: u64,
    inline: bool,
}

const fn kind(name: &'static str, opcode: WqeOpcode, len: u64) -> Kind {
    Kind { name, opcode, len, inline: false }
}

const KINDS: &[Kind] = &[
    kind("write-8", WqeOpcode::RDMA_WRITE, 8),
    Kind { name: "write-inline-8", opcode: WqeOpcode::RDMA_WRITE, len: 8, inline: true },
    kind("send-8", WqeOpcode::SEND, 8),
    kind("read-8", WqeOpcode::RDMA_READ, 8),
    kind("fetch-add", WqeOpcode::ATOMIC_FA, 8),
    kind("write-4k", WqeOpcode::RDMA_WRITE, 4096),
    kind("read-4k", WqeOpcode::RDMA_READ, 4096),
    kind("send-4k", WqeOpcode::SEND, 4096),
    kind("write-1m", WqeOpcode::RDMA_WRITE, 1 << 20),
    kind("read-1m", WqeOpcode::RDMA_READ, 1 << 20),
];

struct Bench {
    rig: RdmaRig,
    from: Qp,
    to: Qp,
    receives: bool,
}

/// Messages of a batch: as many as every queue takes.
const BATCH: u64 = 1 << LOG_RQ;

impl Bench {
    fn new(kind: &Kind, settings: &[String]) -> Bench {
        let sets: Vec<&str> = ["doorbells=poll"].into_iter().chain(settings.iter().map(String::as_str)).collect();
        let profile = Profile::with("connectx10-c2c", &sets).expect("a profile");
        let mut rig = RdmaRig::with(profile);
        let (mut from, mut to) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_4K, ..Link::default() });
        let mut key = |at: u64| {
            let list: Vec<u8> = (0..ROOM / 4096).flat_map(|page| ((at + 4096 * page) | 3).to_be_bytes()).collect();
            rig.create_listed_key(&list, |mkc| {
                mkc.set_access_mode_1_0(1);
                mkc.set_start_addr(at);
                mkc.set_len(ROOM);
                mkc.set_translations_octword_size((ROOM / 8192) as u32);
                mkc.set_log_page_size(12);
            })
        };
        let keys = (key(FROM), key(TO));
        let receives = kind.opcode == WqeOpcode::SEND;
        for i in 0..1u64 << LOG_SQ {
            let at = i * kind.len.max(64) % ROOM;
            let mut segments = Vec::new();
            if !receives {
                segments.extend(remote(TO + at, keys.1));
            }
            if kind.opcode == WqeOpcode::ATOMIC_FA {
                segments.extend([0; 16]);
            }
            if kind.inline {
                segments.extend((1u32 << 31 | kind.len as u32).to_be_bytes());
                segments.resize(segments.len() + kind.len as usize, 0x5a);
            } else {
                segments.extend(data(kind.len as u32, keys.0, FROM + at));
            }
            rig.post_send(&mut from, kind.opcode, &segments, |_| {});
        }
        from.sent = 0;
        if receives {
            for i in 0..1u64 << LOG_RQ {
                let at = i * kind.len.max(64) % ROOM;
                rig.post_receive(&mut to, &data(kind.len as u32, keys.1, TO + at));
            }
            to.received = 0;
            rig.write(to.record, &0u32.to_be_bytes());
        }
        Bench { rig, from, to, receives }
    }

    /// Sends `BATCH` messages and lets the device work until they are complete.
    fn batch(&mut self) {
        if self.receives {
            self.to.received = self.to.received.wrapping_add(BATCH as u16);
            self.rig.write(self.to.record, &u32::from(self.to.received).to_be_bytes());
        }
        self.from.sent = self.from.sent.wrapping_add(BATCH as u16);
        self.rig.ring_send(&self.from);
        while self.rig.function.work().more {}
        self.rig.land();
        self.rig.take(&mut self.from.cq, BATCH as u32);
        if self.receives {
            self.rig.take(&mut self.to.cq, BATCH as u32);
        }
    }

    fn run(&mut self, messages: u64) {
        for _ in 0..messages.div_ceil(BATCH) {
            self.batch();
        }
    }
}

/// Nanoseconds of processor time for each of `count` calls.
fn time(count: u64, mut call: impl FnMut()) -> f64 {
    let start = thread_time();
    call();
    (thread_time() - start).as_nanos() as f64 / count as f64
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [name, count, settings @ ..] = &args[..] {
        let kind = KINDS.iter().find(|kind| kind.name == name).expect("a kind of message");
        let mut bench = Bench::new(kind, settings);
        let count = count.parse().expect("a number");
        println!("{:.1} ns a message", time(count, || bench.run(count)));
        return;
    }
    println!("{:<16} {:>10} {:>10} {:>8}", "message", "ns", "memcpy ns", "ratio");
    for kind in KINDS {
        let count = ((64 << 20) / kind.len).clamp(256, 200_000);
        let mut bench = Bench::new(kind, &[]);
        bench.run(count / 10);
        let mut ours: Vec<f64> = Vec::new();
        let mut copies: Vec<f64> = Vec::new();
        let (from, mut to) = (vec![1u8; ROOM as usize], vec![2u8; ROOM as usize]);
        for _ in 0..5 {
            ours.push(time(count, || bench.run(count)));
            copies.push(time(count, || {
                for i in 0..count {
                    let at = (i % 64 * kind.len.max(64) % ROOM) as usize;
                    let range = at..at + kind.len as usize;
                    black_box(&mut to)[range.clone()].copy_from_slice(&black_box(&from)[range]);
                }
            }));
        }
        ours.sort_by(f64::total_cmp);
        copies.sort_by(f64::total_cmp);
        println!("{:<16} {:>10.1} {:>10.1} {:>8.3}", kind.name, ours[2], copies[2], copies[2] / ours[2]);
    }
}
