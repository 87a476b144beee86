//! Register accesses over the socket: our server beside the one of the `vfio_user` crate, in the same run.
//!
//! Both serve the same toy device, each in a thread of its own. Rounds are interleaved, so that a machine that gets
//! slower does so for both; medians of the rounds are compared. What counts is the ratio: absolute figures are
//! mostly the price of a wake-up on the machine at hand.
//!
//! `cargo bench --bench transport [-- ROUNDS]`
// A program, not a library: nothing in it is public.
#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use common::client::{access_payload, version_payload, write_payload};
use common::toy::Toy;
use cx10::engine::{Device, Options, Stop, serve};
use cx10::transport::layout::region;
use cx10::transport::message::{Command, Header, flag};
use vfio_bindings::bindings::vfio::vfio_region_info;
use vfio_user::{IrqInfo, Server, ServerRegion};
use vmm_sys_util::tempdir::TempDir;

const READS: usize = 20_000;
const POSTED: usize = 100_000;
const CAPABILITIES: &[u8] =
    b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":1048576,\"migration\":{\"pgsize\":4096}}}\0";

/// The most a read round trip may take and the least that posted writes must reach, as ratios to the crate.
const READ_LIMIT: f64 = 1.0;
const POSTED_LIMIT: f64 = 1.4;

fn toy() -> Toy {
    let mut toy = Toy::new();
    toy.quiet = true;
    toy
}

fn message(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { id: 1, command, size: 16 + payload.len() as u32, flags, error: 0 };
    [&header.to_bytes()[..], payload].concat()
}

/// Puts the calling thread on one processor, if the machine lets us.
fn pin(cpu: usize) {
    let Ok(thread) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(tid) = thread.file_name() else { return };
    let mut taskset = Process::new("taskset");
    let _ = taskset.args(["-cp", &cpu.to_string()]).arg(tid).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn ours(path: &Path, stop: &Stop) {
    pin(1);
    serve(path, &mut toy(), &Options::default(), stop).expect("our server");
}

fn the_crate(path: &Path) {
    pin(1);
    let mut toy = toy();
    let layout = toy.layout();
    let irqs = (0..).zip(&layout.irqs).map(|(index, irq)| IrqInfo { index, flags: irq.flags.bits(), count: irq.count });
    let regions = (0..).zip(&layout.regions).map(|(index, region)| ServerRegion {
        region_info: vfio_region_info {
            argsz: 32,
            flags: region.flags.bits(),
            index,
            size: region.size,
            ..vfio_region_info::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    });
    let server = Server::new(path, true, irqs.collect(), regions.collect()).expect("the crate's server");
    server.run(&mut toy).expect("the crate's server");
}

struct Peer {
    stream: UnixStream,
    read: Vec<u8>,
    write: Vec<u8>,
    acked: Vec<u8>,
}

impl Peer {
    fn connect(path: &Path) -> Peer {
        let end = Instant::now() + Duration::from_secs(5);
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let data = write_payload(region::BAR0, 0x40, &[1, 2, 3, 4]);
        let mut peer = Peer {
            stream,
            read: message(Command::REGION_READ, 0, &access_payload(region::BAR0, 0x40, 4)),
            write: message(Command::REGION_WRITE, flag::NO_REPLY, &data),
            acked: message(Command::REGION_WRITE, 0, &data),
        };
        peer.stream.write_all(&message(Command::VERSION, 0, &version_payload(0, 0, CAPABILITIES))).expect("send");
        let mut header = [0; 16];
        peer.stream.read_exact(&mut header).expect("version");
        let mut rest = vec![0; Header::parse(&header).expect("header").size as usize - 16];
        peer.stream.read_exact(&mut rest).expect("version");
        peer
    }

    fn round_trip(&mut self) {
        let mut reply = [0; 36];
        self.stream.write_all(&self.read).expect("send");
        self.stream.read_exact(&mut reply).expect("reply");
    }

    /// Microseconds: median and 99th percentile.
    fn reads(&mut self) -> (f64, f64) {
        let mut times: Vec<f64> = (0..READS)
            .map(|_| {
                let start = Instant::now();
                self.round_trip();
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        (times[READS / 2], times[READS * 99 / 100])
    }

    fn acked(&mut self) -> f64 {
        let mut times: Vec<f64> = (0..READS / 4)
            .map(|_| {
                let mut reply = [0; 32];
                let start = Instant::now();
                self.stream.write_all(&self.acked).expect("send");
                self.stream.read_exact(&mut reply).expect("reply");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    /// Thousands of posted writes per second, `per_send` to a system call; a read ends the measurement.
    fn posted(&mut self, per_send: usize) -> f64 {
        let batch = self.write.repeat(per_send);
        let start = Instant::now();
        for _ in 0..POSTED / per_send {
            self.stream.write_all(&batch).expect("send");
        }
        self.round_trip();
        (POSTED / per_send * per_send) as f64 / start.elapsed().as_secs_f64() / 1e3
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// One line: medians, ranges, the ratio of ours to the crate.
fn line(what: &str, ours: &[f64], theirs: &[f64]) -> f64 {
    let range = |v: &[f64]| {
        let low = v.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{:9.2} [{:.2}..{:.2}]", median(v), low, v.iter().copied().fold(0.0, f64::max))
    };
    let ratio = median(ours) / median(theirs);
    println!("{what:<30} {:<32} {:<32} {ratio:.2}", range(ours), range(theirs));
    ratio
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(9usize).max(1);
    let dir = TempDir::new_with_prefix("/tmp/cx10-bench").expect("temporary directory");
    let (our_path, crate_path) = (dir.as_path().join("ours"), dir.as_path().join("crate"));
    let stop = Stop::new().expect("stop");
    std::thread::scope(|scope| {
        scope.spawn(|| ours(&our_path, &stop));
        scope.spawn(|| the_crate(&crate_path));
        pin(0);
        let mut peers = [Peer::connect(&our_path), Peer::connect(&crate_path)];
        // By peer: read median, read p99, acked write, posted, posted 64 to a send.
        let mut results: [[Vec<f64>; 5]; 2] = Default::default();
        for round in 0..rounds + 1 {
            for (peer, result) in peers.iter_mut().zip(&mut results) {
                let (read, p99) = peer.reads();
                let values = [read, p99, peer.acked(), peer.posted(1), peer.posted(64)];
                // The first round warms up.
                if round > 0 {
                    result.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
                }
            }
        }
        let [a, b] = &results;
        println!("{rounds} interleaved rounds, medians [lowest..highest]");
        println!("{:<30} {:<32} {:<32} ratio", "", "cx10", "vfio_user crate");
        let read = line("4-byte read, median us", &a[0], &b[0]);
        line("4-byte read, p99 us", &a[1], &b[1]);
        line("acked 4-byte write, us", &a[2], &b[2]);
        let posted = line("posted writes, k/s", &a[3], &b[3]);
        line("posted, 64 per send, k/s", &a[4], &b[4]);
        let verdict = |met| if met { "met" } else { "MISSED" };
        println!("read round trip at most {READ_LIMIT:.2}: {}", verdict(read <= READ_LIMIT));
        println!("posted writes at least {POSTED_LIMIT:.2}: {}", verdict(posted >= POSTED_LIMIT));
        drop(peers);
        stop.stop();
    });
}
