//! RDMA traffic between queue pairs of the device over a real socket, with every byte checked. No QEMU.

mod common;

use common::device::Device;
use common::rdma::{Cq, Key, Qp, Rdma, Request, Shape};
use cx10::prm::values::{CqeOpcode, WqeOpcode};

const MTU: u64 = 4096;
const MTU_CODE: u32 = 5;
/// Doorbells of both kinds, and memory accesses in an order of their own.
const WAYS: [&[&str]; 4] = [
    &["doorbells=trap"],
    &["doorbells=poll"],
    &["doorbells=trap", "order.policy=random", "order.check=true"],
    &["doorbells=poll", "order.policy=hold-one", "order.check=true"],
];

/// Bytes that differ from place to place and from `seed` to `seed`.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed * 0x1234_5677) >> 13) as u8).collect()
}

/// Two connected queue pairs with memory on both sides.
struct Pair {
    rdma: Rdma,
    cqs: [Cq; 2],
    qps: [Qp; 2],
    keys: [Key; 2],
}

/// Bytes of memory on each side.
const ROOM: u64 = 4 << 20;

impl Pair {
    fn new(device: &Device) -> Pair {
        let mut rdma = Rdma::attach(&device.socket());
        let cqs = [rdma.create_cq(8), rdma.create_cq(8)];
        let qps = rdma.pair(Shape::default(), [&cqs[0], &cqs[1]], MTU_CODE);
        let keys = [rdma.register(ROOM), rdma.register(ROOM)];
        Pair { rdma, cqs, qps, keys }
    }

    fn fill(&self, side: usize, offset: u64, bytes: &[u8]) {
        self.rdma.driver.ram.write(self.keys[side].at + offset, bytes);
    }

    fn bytes(&self, side: usize, offset: u64, len: u64) -> Vec<u8> {
        self.rdma.driver.ram.read(self.keys[side].at + offset, len as usize)
    }

    /// Sends from side 0 and waits until it is done.
    fn run(&mut self, request: Request) {
        let index = self.rdma.send(&mut self.qps[0], request.signaled());
        let [qp, _] = &self.qps;
        let [cq, _] = &mut self.cqs;
        self.rdma.wait_sent(cq, qp, index);
    }
}

/// Lengths around every boundary.
fn sizes() -> Vec<u64> {
    vec![0, 1, 7, 8, 63, 64, 65, 1000, MTU - 1, MTU, MTU + 1, 2 * MTU - 1, 2 * MTU, 3 * MTU + 17, 65536, 1 << 20]
}

/// Offsets of source and target: aligned to pages, to nothing, and to nothing in different ways.
const OFFSETS: [(u64, u64); 3] = [(4096, 8192), (4097, 8193), (4099, 12285)];

#[test]
fn writes_put_every_byte_where_it_belongs_and_no_other() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut pair = Pair::new(&device);
        for (seed, len) in (1..).zip(sizes()) {
            for (from, to) in OFFSETS {
                let data = pattern(seed + from, len);
                pair.fill(0, from, &data);
                pair.fill(1, to - 8, &vec![0xee; len as usize + 16]);
                let (local, remote) = (pair.keys[0], pair.keys[1]);
                pair.run(Request::new(WqeOpcode::RDMA_WRITE).remote(remote, to).data(local, from, len as u32));
                assert!(pair.bytes(1, to, len) == data, "{ways:?} {len} bytes from {from} to {to}");
                assert_eq!(pair.bytes(1, to - 8, 8), [0xee; 8], "in front");
                assert_eq!(pair.bytes(1, to + len, 8), [0xee; 8], "behind");
            }
        }
    }
}

#[test]
fn reads_bring_every_byte() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut pair = Pair::new(&device);
        for (seed, len) in (1..).zip(sizes()) {
            for (to, from) in OFFSETS {
                let data = pattern(seed + from, len);
                pair.fill(1, from, &data);
                pair.fill(0, to - 8, &vec![0xee; len as usize + 16]);
                let (local, remote) = (pair.keys[0], pair.keys[1]);
                pair.run(Request::new(WqeOpcode::RDMA_READ).remote(remote, from).data(local, to, len as u32));
                assert!(pair.bytes(0, to, len) == data, "{ways:?} {len} bytes from {from} to {to}");
                assert_eq!(pair.bytes(0, to - 8, 8), [0xee; 8], "in front");
                assert_eq!(pair.bytes(0, to + len, 8), [0xee; 8], "behind");
            }
        }
    }
}

#[test]
fn sends_fill_receive_lists_in_order() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut pair = Pair::new(&device);
        for (seed, len) in (1..).zip(sizes()) {
            let data = pattern(seed, len);
            pair.fill(0, 100, &data);
            pair.fill(1, 0, &vec![0xee; 2 << 20]);
            let (local, target) = (pair.keys[0], pair.keys[1]);
            // Two pieces, the second in front of the first.
            let first = len / 3;
            pair.rdma.receive(&mut pair.qps[1], &[(target, 1 << 20, first as u32), (target, 64, (2 << 19) as u32)]);
            let opcode = WqeOpcode::SEND_IMM;
            pair.run(
                Request::new(opcode).solicited().immediate(0x1234_0000 + seed as u32).data(local, 100, len as u32),
            );
            let done = pair.rdma.wait(&mut pair.cqs[1]);
            assert_eq!((done.opcode, done.qpn), (CqeOpcode::RESP_SEND_IMM, pair.qps[1].qpn));
            assert_eq!((done.bytes, done.immediate, done.solicited), (len as u32, 0x1234_0000 + seed as u32, true));
            let got = [pair.bytes(1, 1 << 20, first), pair.bytes(1, 64, len - first)].concat();
            assert!(got == data, "{ways:?} {len} bytes");
            assert_eq!(pair.bytes(1, 64 + len - first, 8), [0xee; 8], "behind");
        }
    }
}

#[test]
fn gather_lists_are_joined_and_inline_data_needs_no_key() {
    let device = Device::start(&["doorbells=poll"]);
    let mut pair = Pair::new(&device);
    let data = pattern(7, 10_000);
    pair.fill(0, 0, &data);
    let (local, remote) = (pair.keys[0], pair.keys[1]);
    let pieces = [(0u64, 1u64), (5000, 5000), (1, 4095), (4096, 900)];
    let mut request = Request::new(WqeOpcode::RDMA_WRITE).remote(remote, 3);
    let mut wanted = Vec::new();
    for (at, len) in pieces {
        request = request.data(local, at, len as u32);
        wanted.extend_from_slice(&data[at as usize..(at + len) as usize]);
    }
    pair.run(request);
    assert!(pair.bytes(1, 3, wanted.len() as u64) == wanted);
    for len in [0usize, 1, 12, 13, 28, 29, 64, 200, 512, 960] {
        let data = pattern(len as u64, len as u64);
        pair.fill(1, 0, &[0xee; 1024]);
        pair.run(Request::new(WqeOpcode::RDMA_WRITE).remote(remote, 8).inline(&data));
        assert_eq!(pair.bytes(1, 8, len as u64), data, "{len} bytes inline");
        assert_eq!(pair.bytes(1, 8 + len as u64, 8), [0xee; 8]);
    }
}

#[test]
fn atomic_operations_return_what_was_there() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut pair = Pair::new(&device);
        let (local, remote) = (pair.keys[0], pair.keys[1]);
        pair.fill(1, 16, &41u64.to_le_bytes());
        let old = |pair: &Pair| u64::from_le_bytes(pair.bytes(0, 0, 8).try_into().unwrap());
        let now = |pair: &Pair| u64::from_le_bytes(pair.bytes(1, 16, 8).try_into().unwrap());
        pair.run(Request::new(WqeOpcode::ATOMIC_FA).remote(remote, 16).operands(1, 0).data(local, 0, 8));
        assert_eq!((old(&pair), now(&pair)), (41, 42));
        pair.run(Request::new(WqeOpcode::ATOMIC_CS).remote(remote, 16).operands(7, 41).data(local, 0, 8));
        assert_eq!((old(&pair), now(&pair)), (42, 42), "compared and not swapped");
        pair.run(Request::new(WqeOpcode::ATOMIC_CS).remote(remote, 16).operands(7, 42).data(local, 0, 8));
        assert_eq!((old(&pair), now(&pair)), (42, 7));
        for _ in 0..100 {
            pair.run(Request::new(WqeOpcode::ATOMIC_FA).remote(remote, 16).operands(3, 0).data(local, 0, 8));
        }
        assert_eq!((old(&pair), now(&pair)), (304, 307));
    }
}

#[test]
fn a_queue_pair_connected_to_itself_sends_to_itself() {
    let device = Device::start(&["doorbells=poll"]);
    let mut rdma = Rdma::attach(&device.socket());
    let mut cq = rdma.create_cq(4);
    let mut qp = rdma.create_qp(Shape::default(), &cq, &cq);
    let own = qp.qpn;
    rdma.connect(&mut qp, own, 1);
    let key = rdma.register(1 << 20);
    let data = pattern(3, 10_000);
    rdma.driver.ram.write(key.at, &data);
    let index = rdma.send(
        &mut qp,
        Request::new(WqeOpcode::RDMA_WRITE).remote(key, 500_000).data(key, 0, data.len() as u32).signaled(),
    );
    rdma.wait_sent(&mut cq, &qp, index);
    assert!(rdma.driver.ram.read(key.at + 500_000, data.len()) == data);
}

#[test]
fn a_burst_of_64_bytes_rings_once_and_halves_ring_too() {
    let device = Device::start(&["doorbells=poll"]);
    let mut pair = Pair::new(&device);
    let remote = pair.keys[1];
    for (i, register) in (0..).zip([0x800u64, 0xf00, 0xb00]) {
        let request = Request::new(WqeOpcode::RDMA_WRITE).remote(remote, 0).inline(&[i + 1; 8]).signaled();
        let [qp, _] = &mut pair.qps;
        let index = pair.rdma.post(qp, request);
        let entry = [0xa5; 64];
        qp.register = register;
        pair.rdma.burst(qp, &entry);
        pair.rdma.wait_sent(&mut pair.cqs[0], qp, index);
        assert_eq!(pair.bytes(1, 0, 8), [i + 1; 8]);
    }
}

#[test]
fn doorbells_that_come_as_messages_are_served_while_pages_are_mapped() {
    let device = Device::start(&["doorbells=poll"]);
    let mut pair = Pair::new(&device);
    let remote = pair.keys[1];
    for i in 0..20u8 {
        let request = Request::new(WqeOpcode::RDMA_WRITE).remote(remote, 0).inline(&[i; 8]).signaled();
        let [qp, _] = &mut pair.qps;
        let index = pair.rdma.post(qp, request);
        pair.rdma.record_sends(qp);
        pair.rdma.store_by_message(qp.uar(), 0x800, qp.bell());
        pair.rdma.wait_sent(&mut pair.cqs[0], qp, index);
        assert_eq!(pair.bytes(1, 0, 8), [i; 8]);
    }
}

/// Rings of many queues go to one register at once, so that the device sees a few of them.
#[test]
fn no_ring_is_lost_when_many_queue_pairs_share_a_register() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut rdma = Rdma::attach(&device.socket());
        let mut cq = rdma.create_cq(10);
        let key = rdma.register(1 << 20);
        const QPS: usize = 100;
        let shape = Shape { log_send: 4, log_receive: 2, ..Shape::default() };
        let mut qps: Vec<Qp> = Vec::new();
        for _ in 0..QPS {
            let mut qp = rdma.create_qp(shape, &cq, &cq);
            let own = qp.qpn;
            rdma.connect(&mut qp, own, MTU_CODE);
            qps.push(qp);
        }
        for round in 0..20u64 {
            for (i, qp) in qps.iter_mut().enumerate() {
                let value = round * 1000 + i as u64;
                let target = 8 * i as u64;
                let request =
                    Request::new(WqeOpcode::RDMA_WRITE).remote(key, target).inline(&value.to_le_bytes()).signaled();
                rdma.send(qp, request);
            }
            let mut done: Vec<u32> = (0..QPS)
                .map(|_| rdma.wait(&mut cq))
                .map(|done| {
                    assert_eq!(done.opcode, CqeOpcode::REQ);
                    done.qpn
                })
                .collect();
            done.sort();
            assert_eq!(done, qps.iter().map(|qp| qp.qpn).collect::<Vec<_>>(), "round {round}");
            for i in 0..QPS as u64 {
                let value = rdma.driver.ram.memory().read_u64(key.at + 8 * i).unwrap();
                assert_eq!(u64::from_le(value), round * 1000 + i);
            }
        }
    }
}

#[test]
fn completion_events_come_for_every_request_on_a_shared_arm_register() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut rdma = Rdma::attach(&device.socket());
        let uar = rdma.driver.uar();
        let key = rdma.register(4096);
        const QUEUES: usize = 16;
        let mut queues: Vec<(Cq, Qp)> = Vec::new();
        for _ in 0..QUEUES {
            let cq = rdma.create_cq(4);
            let mut qp = rdma.create_qp(Shape { log_send: 4, log_receive: 2, ..Shape::default() }, &cq, &cq);
            let own = qp.qpn;
            rdma.connect(&mut qp, own, MTU_CODE);
            queues.push((cq, qp));
        }
        for round in 0..30 {
            for (cq, _) in &queues {
                rdma.arm(cq, uar);
            }
            for (_, qp) in &mut queues {
                rdma.send(qp, Request::new(WqeOpcode::RDMA_WRITE).remote(key, 0).inline(&[1; 8]).signaled());
            }
            for _ in 0..QUEUES {
                let cqn = rdma.wait_completion_event();
                let (cq, qp) = queues.iter_mut().find(|(cq, _)| cq.cqn == cqn).expect("one of ours");
                cq.notified();
                let done = rdma.wait(cq);
                assert_eq!((done.opcode, done.qpn), (CqeOpcode::REQ, qp.qpn), "{ways:?} round {round}");
            }
        }
    }
}

/// Traffic that goes on by itself for a while: long READs and WRITEs on many queue pairs.
fn flood(rdma: &mut Rdma) -> (Cq, Vec<Qp>, Key) {
    let cq = rdma.create_cq(10);
    let key = rdma.register(64 << 20);
    let mut qps = Vec::new();
    for i in 0..16 {
        let mut qp = rdma.create_qp(Shape::default(), &cq, &cq);
        let own = qp.qpn;
        rdma.connect(&mut qp, own, 1);
        for j in 0..8 {
            let opcode = if (i + j) % 2 == 0 { WqeOpcode::RDMA_WRITE } else { WqeOpcode::RDMA_READ };
            let request = Request::new(opcode).remote(key, 2 << 20).data(key, 4096, 1 << 20).signaled();
            rdma.post(&mut qp, request);
        }
        rdma.ring(&qp);
        qps.push(qp);
    }
    (cq, qps, key)
}

#[test]
fn a_vmm_that_goes_in_the_middle_of_traffic_leaves_a_fresh_device() {
    for ways in WAYS {
        let device = Device::start(ways);
        for _ in 0..3 {
            let mut rdma = Rdma::attach(&device.socket());
            flood(&mut rdma);
            drop(rdma);
        }
        let mut pair = Pair::new(&device);
        let remote = pair.keys[1];
        pair.run(Request::new(WqeOpcode::RDMA_WRITE).remote(remote, 0).inline(&[9; 8]));
        assert_eq!(pair.bytes(1, 0, 8), [9; 8]);
        drop(pair);
        let summary = device.stop();
        assert_eq!(summary.vmms, 4);
        assert!(summary.objects_alive.is_empty());
    }
}

#[test]
fn nothing_moves_after_a_reset_in_the_middle_of_traffic() {
    for ways in WAYS {
        let device = Device::start(ways);
        let mut rdma = Rdma::attach(&device.socket());
        for _ in 0..3 {
            let (mut cq, qps, key) = flood(&mut rdma);
            let before = rdma.wait(&mut cq);
            assert_eq!(before.opcode, CqeOpcode::REQ);
            rdma.driver.client.reset().expect("reset");
            // What was written is old; what would be written now is new.
            rdma.driver.ram.write(key.at + 4096, &vec![0x77; 1 << 20]);
            let target = rdma.driver.ram.read(key.at + (2 << 20), 1 << 20);
            while rdma.poll(&mut cq).is_some() {}
            for qp in &qps {
                rdma.ring(qp);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(rdma.poll(&mut cq).is_none(), "a completion after the reset");
            assert!(rdma.driver.ram.read(key.at + (2 << 20), 1 << 20) == target, "a write after the reset");
            let mut driver = rdma.driver;
            driver.forget();
            driver.enable();
            driver.init_hca();
            rdma = Rdma::bring_up(driver);
        }
    }
}

#[test]
fn an_address_beyond_a_key_fails_the_request_and_touches_nothing() {
    let device = Device::start(&["doorbells=poll"]);
    let mut pair = Pair::new(&device);
    let (local, remote) = (pair.keys[0], pair.keys[1]);
    pair.fill(1, ROOM - 8, &[0xee; 8]);
    let request = Request::new(WqeOpcode::RDMA_WRITE).remote(remote, ROOM - 8).data(local, 0, 9);
    let index = pair.rdma.send(&mut pair.qps[0], request);
    let done = pair.rdma.wait(&mut pair.cqs[0]);
    const REMOTE_ACCESS: u8 = 0x13;
    assert_eq!((done.opcode, done.index, done.syndrome), (CqeOpcode::REQ_ERR, index, REMOTE_ACCESS));
    assert_eq!(pair.bytes(1, ROOM - 8, 8), [0xee; 8]);
}
