//! RDMA over the socket with polled doorbells, beside `memcpy` of the same buffers in the same run.
//!
//! The driver of `tests/common/rdma.rs` posts RDMA WRITEs on a reliable connection between two queue pairs of the
//! device, path MTU 4096, keys in pages of 4 KiB. Driver and device have a processor each. `memcpy` copies between the
//! same addresses in the same order, on the driver's processor, where RDMA has the device copy. Rounds are interleaved;
//! medians are compared.
//!
//! `cargo bench --bench rdma [-- ROUNDS]`, or `rdma BYTES COUNT [KEY=VALUE...]` and `rdma latency COUNT` for a profiler:
//! one kind of traffic, with options of the device such as `order.policy=random` and `order.check=true`.
// A program, not a library: nothing in it is public.
#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use common::device::Device;
use common::pin;
use common::rdma::{Cq, Key, Qp, Rdma, Request, Shape};
use cx10::prm::values::{CqeOpcode, WqeOpcode};

/// Bytes that each contestant moves in a round, and the memory on each side in which it does so.
const BYTES: u64 = 256 << 20;
const WINDOW: u64 = 1 << 20;
/// Messages that are under way at most, and after how many one asks for a completion.
const DEPTH: u64 = 128;
const SIGNAL: u64 = 32;
const MESSAGES: u64 = 1_000_000;
const SAMPLES: usize = 20_000;

struct Bench {
    rdma: Rdma,
    cq: Cq,
    qp: Qp,
    from: Key,
    to: Key,
}

impl Bench {
    fn new(device: &Device) -> Bench {
        let mut rdma = Rdma::attach(&device.socket());
        let (cq, other) = (rdma.create_cq(10), rdma.create_cq(4));
        let uar = rdma.alloc_uar();
        let shape = Shape { log_send: 8, log_receive: 4, uar: Some(uar), ..Shape::default() };
        let [qp, _] = rdma.pair(shape, [&cq, &other], 5);
        let (from, to) = (rdma.register(WINDOW), rdma.register(WINDOW));
        rdma.driver.ram.write(from.at, &vec![0x5a; WINDOW as usize]);
        rdma.driver.ram.write(to.at, &vec![0xa5; WINDOW as usize]);
        Bench { rdma, cq, qp, from, to }
    }

    fn request(&self, len: u64, offset: u64) -> Request {
        Request::new(WqeOpcode::RDMA_WRITE).remote(self.to, offset).data(self.from, offset, len as u32)
    }

    /// Writes `count` messages of `len` bytes, one place of the window after the other; seconds.
    fn stream(&mut self, len: u64, count: u64) -> f64 {
        let places = WINDOW / len;
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < DEPTH {
                let mut request = self.request(len, posted % places * len);
                posted += 1;
                if posted % SIGNAL == 0 || posted == count {
                    request = request.signaled();
                }
                self.rdma.send(&mut self.qp, request);
            }
            match self.rdma.poll(&mut self.cq) {
                // A completion stands for all before it.
                Some(completion) => {
                    assert_eq!(completion.opcode, CqeOpcode::REQ);
                    done = (done / SIGNAL + 1) * SIGNAL;
                }
                None => std::hint::spin_loop(),
            }
        }
        start.elapsed().as_secs_f64()
    }

    /// The same with `memcpy`.
    fn copy(&self, len: u64, count: u64) -> f64 {
        let places = WINDOW / len;
        let memory = self.rdma.ram();
        let start = Instant::now();
        for i in 0..count {
            let offset = i % places * len;
            memory.copy_to(self.from.at + offset, memory, self.to.at + offset, len as usize).expect("inside memory");
            black_box(memory);
        }
        start.elapsed().as_secs_f64()
    }

    /// From the doorbell to the completion, in microseconds, sorted.
    fn latency(&mut self, samples: usize) -> Vec<f64> {
        let mut times: Vec<f64> = (0..samples)
            .map(|_| {
                let request = self.request(8, 0).signaled();
                let start = Instant::now();
                let index = self.rdma.send(&mut self.qp, request);
                let done = loop {
                    if let Some(done) = self.rdma.poll(&mut self.cq) {
                        break done;
                    }
                    std::hint::spin_loop();
                };
                let time = start.elapsed().as_secs_f64() * 1e6;
                assert_eq!((done.opcode, done.index), (CqeOpcode::REQ, index));
                time
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// What one round measured.
#[derive(Default)]
struct Round {
    /// GB/s by RDMA and by `memcpy`: messages of 1 MiB, of 4 KiB.
    large: [f64; 2],
    small: [f64; 2],
    /// GB/s of messages of 1 MiB whose memory accesses are reordered.
    random: f64,
    /// Million messages of 8 bytes a second.
    rate: f64,
    /// Microseconds: median and 99th percentile.
    latency: [f64; 2],
    /// The same with trapped doorbells.
    trapped_rate: f64,
    trapped_latency: f64,
}

fn median(rounds: &[Round], pick: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(pick).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// For a profiler: one kind of traffic and nothing else.
fn only(name: &str, count: u64, settings: &[String]) {
    let settings: Vec<&str> = ["doorbells=poll"].into_iter().chain(settings.iter().map(String::as_str)).collect();
    let device = Device::start_on(&settings, 1);
    let mut bench = Bench::new(&device);
    match name {
        "latency" => drop(bench.latency(count as usize)),
        bytes => {
            let len = bytes.parse().expect("latency, or bytes of a message");
            let seconds = bench.stream(len, count);
            println!("{:.1} ns a message", seconds * 1e9 / count as f64);
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [name, count, settings @ ..] = &args[..] {
        pin(0);
        only(name, count.parse().expect("a number"), settings);
        return ExitCode::SUCCESS;
    }
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(7usize);
    pin(0);
    let (polled, trapped) = (Device::start_on(&["doorbells=poll"], 1), Device::start_on(&[], 1));
    let (mut fast, mut slow) = (Bench::new(&polled), Bench::new(&trapped));
    // With the same doorbells as the device in order that it is compared with.
    let reordering = Device::start_on(&["doorbells=poll", "order.policy=random"], 1);
    let mut random = Bench::new(&reordering);
    assert!(fast.rdma.mapped() && !slow.rdma.mapped());
    fast.stream(4096, 10_000);
    slow.stream(4096, 1_000);
    let mut results = Vec::new();
    for _ in 0..rounds {
        let mut round = Round::default();
        for (len, pair) in [(1 << 20, &mut round.large), (4096, &mut round.small)] {
            let count = BYTES / len;
            let gigabytes = (count * len) as f64 / 1e9;
            *pair = [gigabytes / fast.stream(len, count), gigabytes / fast.copy(len, count)];
        }
        let count = BYTES / WINDOW / 4;
        round.random = (count * WINDOW) as f64 / 1e9 / random.stream(WINDOW, count);
        round.rate = MESSAGES as f64 / 1e6 / fast.stream(8, MESSAGES);
        let times = fast.latency(SAMPLES);
        round.latency = [times[SAMPLES / 2], times[SAMPLES * 99 / 100]];
        round.trapped_rate = MESSAGES as f64 / 20e6 / slow.stream(8, MESSAGES / 20);
        round.trapped_latency = slow.latency(SAMPLES / 20)[SAMPLES / 40];
        results.push(round);
    }
    let got = fast.rdma.driver.ram.read(fast.to.at, WINDOW as usize);
    assert!(got.iter().all(|byte| *byte == 0x5a), "every byte arrived");

    let mut missed = 0;
    let mut line = |name: &str, value: f64, unit: &str, limit: Option<(f64, bool)>| {
        let verdict = match limit {
            None => String::new(),
            Some((limit, above)) => {
                let kept = if above { value >= limit } else { value <= limit };
                missed += u32::from(!kept);
                let relation = if above { "at least" } else { "at most" };
                format!("   {relation} {limit}{}", if kept { "" } else { "   MISSED" })
            }
        };
        println!("{name:<44} {value:9.2} {unit}{verdict}");
    };
    line("1 MiB WRITE", median(&results, |r| r.large[0]), "GB/s", None);
    line("1 MiB memcpy", median(&results, |r| r.large[1]), "GB/s", None);
    line("1 MiB WRITE / memcpy", median(&results, |r| r.large[0] / r.large[1]), "", Some((0.7, true)));
    line("1 MiB WRITE, random order", median(&results, |r| r.random), "GB/s", None);
    line("1 MiB WRITE, random order / in order", median(&results, |r| r.random / r.large[0]), "", Some((0.25, true)));
    line("4 KiB WRITE", median(&results, |r| r.small[0]), "GB/s", Some((2.0, true)));
    line("4 KiB memcpy", median(&results, |r| r.small[1]), "GB/s", None);
    line("4 KiB WRITE / memcpy", median(&results, |r| r.small[0] / r.small[1]), "", Some((0.3, true)));
    line("8-byte WRITE", median(&results, |r| r.rate), "M/s", Some((1.0, true)));
    line("8-byte WRITE to completion, median", median(&results, |r| r.latency[0]), "us", Some((5.0, false)));
    line("8-byte WRITE to completion, 99 %", median(&results, |r| r.latency[1]), "us", None);
    line("8-byte WRITE, trapped doorbells", median(&results, |r| r.trapped_rate), "M/s", None);
    line("8-byte WRITE to completion, trapped, median", median(&results, |r| r.trapped_latency), "us", None);
    drop((fast, slow, random));
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
