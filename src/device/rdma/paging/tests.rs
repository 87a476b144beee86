//! Page faults by their events and resumes.

use crate::cmdif::error::Syndrome;
use crate::mkey::reserved::Reserved;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::eqe::{MemoryPageFault, RdmaPageFault, WqePageFault};
use crate::prm::event::{EventType, PageFault};
use crate::prm::mkey::PageFaultResumeIn;
use crate::prm::status::Status;
use crate::prm::values::{CqeOpcode, CqeSyndrome, QpMtu, QpState, QpType, WqeOpcode};
use crate::prm::wqe::AtomicSeg;
use crate::profile::Profile;
use crate::testing::queues::{Eq, QueueRig};
use crate::testing::rdma::{Cq, Link, Qp, RdmaRig, data, inline, remote};

mod random;

const PAGE: u64 = 4096;
/// Pages of every region.
const PAGES: u64 = 8;
/// The address of the first byte in every region's key.
const VA: u64 = 0x7000_0000;
const READ: u64 = 1;
const WRITE: u64 = 2;
/// An "at most this many retries" of none, so that a fault that cost one would be seen.
const NO_RETRY: Link = Link {
    mtu: QpMtu::MTU_1K,
    retries: 0,
    rnr_retries: 7,
    timeout: 14,
    log_reads: 4,
    psn: 0xff_fffe,
    access: true,
    atomic_mode: crate::prm::values::AtomicMode::IB_SPEC,
};
/// Time after which any peer has tried again.
const WHILE: u64 = 1_000_000;

/// A region whose pages come one by one.
#[derive(Clone, Copy)]
struct Region {
    key: u32,
    frames: u64,
}

struct Pager {
    rig: RdmaRig,
    eq: Eq,
}

/// A fault as an event tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    kind: u32,
    queue: u32,
    token: u32,
    committed: u32,
    /// Index of the entry, or the address of the request.
    at: u64,
    len: u32,
}

impl Pager {
    fn new(sets: &[&str]) -> Pager {
        let mut rig = RdmaRig::with(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        let eq = rig.create_eq(2, 1 << EventType::PAGE_FAULT.0, 6);
        Pager { rig, eq }
    }

    fn region(&mut self) -> Region {
        let frames = self.rig.memory(PAGES * PAGE);
        let key = self.rig.create_listed_key(&[0; 8 * PAGES as usize], |mkc| {
            mkc.set_access_mode_1_0(1);
            mkc.set_translations_octword_size(PAGES as u32 / 2);
            mkc.set_log_page_size(12);
            mkc.set_start_addr(VA);
            mkc.set_len(PAGES * PAGE);
            mkc.set_umr_en(1);
        });
        Region { key, frames }
    }

    /// What the driver does about some pages of a region.
    fn set(&mut self, region: Region, pages: std::ops::Range<u64>, rights: u64) {
        let hca = self.rig.function.hca_mut();
        let key = &mut hca.objects.mkeys.get_mut(region.key >> 8).expect("a key").object;
        let crate::mkey::list::Translations::Mtt(table) = &mut key.list else { panic!("{:?}", key.list) };
        for page in pages {
            let entry = if rights == 0 { 0 } else { (region.frames + PAGE * page) | rights };
            table.load(page as usize, PAGES as usize, &entry.to_be_bytes());
        }
    }

    fn all(&mut self, region: Region) {
        self.set(region, 0..PAGES, READ | WRITE);
    }

    fn event(&mut self) -> Option<Vec<u8>> {
        self.rig.settle();
        self.rig.land();
        let eqe = self.rig.take_event(&mut self.eq);
        if let Some(eqe) = &eqe {
            assert_eq!(eqe[1], EventType::PAGE_FAULT.0);
            let eq = self.eq.clone();
            self.rig.arm_eq(&eq);
        }
        eqe
    }

    fn fault(&mut self) -> Told {
        let eqe = self.event().expect("a page fault");
        let data = &eqe[0x20..0x3c];
        match PageFault(eqe[3]) {
            PageFault::WQE => {
                let event = WqePageFault::wrap(data);
                Told {
                    kind: event.page_fault_type(),
                    queue: event.wq_number(),
                    token: event.token(),
                    committed: event.bytes_committed(),
                    at: event.wqe_index().into(),
                    len: event.packet_length(),
                }
            }
            PageFault::RDMA => {
                let event = RdmaPageFault::wrap(data);
                Told {
                    kind: event.page_fault_type(),
                    queue: event.token(),
                    token: event.token(),
                    committed: event.bytes_committed(),
                    at: event.rdma_va(),
                    len: event.rdma_op_len(),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn none(&mut self) {
        assert_eq!(self.event(), None, "no further fault");
    }

    fn answer(&mut self, kind: u32, queue: u32, token: u32, error: bool) -> Result<(), (Status, Syndrome)> {
        let mut input = PageFaultResumeIn::zeroed();
        input.set_opcode(0x204);
        let mut info = input.page_fault_info_mut();
        let mut info = info.trans_page_fault_info_mut();
        info.set_page_fault_type(kind);
        info.set_wq_number(queue);
        info.set_fault_token(token);
        info.set_error(error.into());
        let answer = self.rig.exec(input.as_bytes(), 16);
        self.rig.settle();
        match answer.status() {
            0 => Ok(()),
            status => Err((Status(status), Syndrome(answer.syndrome()))),
        }
    }

    fn resume(&mut self, told: Told, error: bool) {
        self.answer(told.kind, told.queue, told.token, error).expect("resumed");
    }

    fn poll(&mut self, cq: &mut Cq) -> Option<Cqe<Vec<u8>>> {
        self.rig.settle();
        self.rig.land();
        self.rig.poll(cq)
    }

    fn success(&mut self, cq: &mut Cq) -> Cqe<Vec<u8>> {
        let cqe = self.poll(cq).expect("a completion");
        let error = ErrCqe::wrap(cqe.as_bytes());
        assert!(cqe.opcode() < u32::from(CqeOpcode::REQ_ERR.0), "{:#x}", error.syndrome());
        cqe
    }

    fn failure(&mut self, cq: &mut Cq) -> CqeSyndrome {
        let cqe = self.poll(cq).expect("a completion");
        assert!(cqe.opcode() >= u32::from(CqeOpcode::REQ_ERR.0), "{}", cqe.opcode());
        CqeSyndrome(ErrCqe::wrap(cqe.as_bytes()).syndrome() as u8)
    }

    /// Nothing completes and nothing is told, however often the peer tries.
    fn rests(&mut self, queues: &mut [&mut Cq]) {
        for _ in 0..200 {
            self.rig.pass(WHILE);
            for cq in &mut *queues {
                assert!(self.rig.poll(cq).is_none());
            }
        }
        self.none();
    }

    fn pending(&self) -> usize {
        self.rig.function.hca().paging.pending()
    }

    fn state(&mut self, qpn: u32) -> QpState {
        QpState(self.rig.query(qpn).state() as u8)
    }
}

const SEND_OR_WRITE: u32 = 1;
const RECEIVE: u32 = 2;
const READ_OR_ATOMIC: u32 = 3;
const RDMA_READ: u32 = 4;
const RDMA_WRITE: u32 = 6;

fn add(value: u64) -> Vec<u8> {
    let mut segment = AtomicSeg::zeroed();
    segment.set_swap_add(value);
    segment.as_bytes().to_vec()
}

#[test]
fn a_sender_waits_for_the_pages_that_it_gathers() {
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (from, key) = (pager.region(), pager.rig.key);
    let to = pager.rig.memory(PAGES * PAGE);
    pager.set(from, 0..1, READ);
    let bytes = pager.rig.pattern(from.frames, 3 * PAGE as usize, 5);
    let segments = [remote(to, key), inline(b"ab"), data(3 * PAGE as u32 - 100, from.key, VA + 100)].concat();
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at, told.committed), (SEND_OR_WRITE, a.qpn, 0, 0));
    // What is posted behind it waits, too; no time-out is counted.
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to + 5 * PAGE, key), inline(b"behind")].concat());
    pager.rests(&mut [&mut a.cq]);
    assert_eq!(pager.rig.read(to + 5 * PAGE, 6), [0; 6]);
    // A resume too early meets the next page that is missing, with a token of its own.
    pager.set(from, 1..2, READ);
    pager.resume(told, false);
    let again = pager.fault();
    assert_ne!(again.token, told.token);
    pager.set(from, 2..3, READ);
    pager.resume(again, false);
    assert_eq!((pager.success(&mut a.cq).wqe_counter(), pager.success(&mut a.cq).wqe_counter()), (0, 1));
    assert_eq!(pager.rig.read(to, 2), b"ab");
    assert_eq!(pager.rig.read(to + 2, 3 * PAGE as usize - 100), bytes[100..]);
    assert_eq!(pager.rig.read(to + 5 * PAGE, 6), b"behind");
    assert_eq!((pager.pending(), pager.rig.function.hca().rdma.traffic.page_faults), (0, 2));
    pager.none();
}

#[test]
fn a_long_message_goes_on_from_where_its_pages_ended() {
    let mut pager = Pager::new(&["wire.fault=[\"drop:every=100000\"]"]);
    // Packets travel one by one where the wire has faults.
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (from, to) = (pager.region(), pager.rig.memory(PAGES * PAGE));
    let key = pager.rig.key;
    pager.set(from, 0..2, READ);
    let bytes = pager.rig.pattern(from.frames, (PAGES * PAGE) as usize, 7);
    pager.rig.post_receive(&mut b, &data((PAGES * PAGE) as u32, key, to));
    pager.rig.send(&mut a, WqeOpcode::SEND, &data((PAGES * PAGE) as u32, from.key, VA));
    let told = pager.fault();
    assert_eq!((told.kind, told.committed, told.len), (SEND_OR_WRITE, 2 * PAGE as u32, 1024));
    assert_eq!(pager.rig.read(to, 2 * PAGE as usize), bytes[..2 * PAGE as usize]);
    pager.rests(&mut [&mut a.cq, &mut b.cq]);
    pager.all(from);
    pager.resume(told, false);
    pager.success(&mut a.cq);
    pager.success(&mut b.cq);
    assert_eq!(pager.rig.read(to, bytes.len()), bytes);
}

#[test]
fn a_reader_waits_for_the_pages_that_it_scatters_to_and_asks_again() {
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (to, key) = (pager.region(), pager.rig.key);
    let from = pager.rig.memory(PAGES * PAGE);
    let bytes = pager.rig.pattern(from, 4 * PAGE as usize, 9);
    // The first page may be read only: that is not enough.
    pager.set(to, 0..1, READ);
    for part in 0..2u64 {
        let half = 2 * PAGE;
        let segments = [remote(from + half * part, key), data(half as u32, to.key, VA + half * part)].concat();
        pager.rig.post_send(&mut a, WqeOpcode::RDMA_READ, &segments, |_| {});
    }
    pager.rig.ring_send(&a);
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at, told.committed), (READ_OR_ATOMIC, a.qpn, 0, 0));
    pager.rests(&mut [&mut a.cq]);
    pager.set(to, 0..2, READ | WRITE);
    pager.resume(told, false);
    assert_eq!(pager.success(&mut a.cq).byte_cnt(), 2 * PAGE as u32);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (READ_OR_ATOMIC, 1));
    pager.all(to);
    pager.resume(told, false);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(to.frames, bytes.len()), bytes);
    pager.none();
}

#[test]
fn an_atomic_whose_result_faults_is_done_once() {
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (result, word, key) = (pager.region(), pager.rig.memory(PAGE), pager.rig.key);
    pager.rig.write(word, &40u64.to_be_bytes());
    let segments = [remote(word, key), add(2), data(8, result.key, VA + 16)].concat();
    pager.rig.send(&mut a, WqeOpcode::ATOMIC_FA, &segments);
    let told = pager.fault();
    assert_eq!(told.kind, READ_OR_ATOMIC);
    pager.all(result);
    pager.resume(told, false);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(word, 8), 42u64.to_be_bytes());
    assert_eq!(pager.rig.read(result.frames + 16, 8), 40u64.to_be_bytes());
}

#[test]
fn a_writer_is_told_to_wait_for_the_peers_pages() {
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (to, key) = (pager.region(), pager.rig.key);
    let from = pager.rig.memory(PAGES * PAGE);
    let bytes = pager.rig.pattern(from, 2 * PAGE as usize, 4);
    let segments = [remote(VA + PAGE, to.key), data(2 * PAGE as u32, key, from)].concat();
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
    let told = pager.fault();
    assert_eq!((told.kind, told.at, told.len, told.committed), (RDMA_WRITE, VA + PAGE, 2 * PAGE as u32, 0));
    pager.rests(&mut [&mut a.cq]);
    pager.all(to);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(to.frames + PAGE, bytes.len()), bytes);
    assert!(pager.rig.function.hca().rdma.traffic.receiver_not_ready > 1);
}

#[test]
fn a_writer_that_may_not_wait_gives_up() {
    let mut pager = Pager::new(&[]);
    let (mut a, b) = pager.rig.pair(QpType::RC, Link { rnr_retries: 1, ..NO_RETRY });
    let to = pager.region();
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(VA, to.key), inline(b"x")].concat());
    let told = pager.fault();
    pager.rig.pass(WHILE);
    pager.rig.pass(WHILE);
    assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::RNR_RETRY_EXC_ERR);
    pager.resume(told, false);
    assert_eq!(pager.state(b.qpn), QpState::RTS);
}

#[test]
fn a_reader_waits_for_the_peers_pages_and_an_atomic_is_done_once() {
    let mut pager = Pager::new(&[]);
    let (mut a, b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (from, key) = (pager.region(), pager.rig.key);
    let to = pager.rig.memory(PAGES * PAGE);
    let bytes = pager.rig.pattern(from.frames, 3 * PAGE as usize, 8);
    let segments = [remote(VA, from.key), data(3 * PAGE as u32, key, to)].concat();
    pager.rig.send(&mut a, WqeOpcode::RDMA_READ, &segments);
    let told = pager.fault();
    assert_eq!((told.kind, told.at, told.len, told.committed), (RDMA_READ, VA, 3 * PAGE as u32, 0));
    // Answers go out in order: that of a WRITE waits behind.
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to + 5 * PAGE, key), inline(b"behind")].concat());
    pager.rests(&mut [&mut a.cq]);
    pager.set(from, 0..3, READ);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    assert_eq!((pager.success(&mut a.cq).wqe_counter(), pager.success(&mut a.cq).wqe_counter()), (0, 1));
    assert_eq!(pager.rig.read(to, bytes.len()), bytes);

    // The page may be read; an atomic operation writes, too.
    let before = u64::from_be_bytes(bytes[PAGE as usize..][..8].try_into().unwrap());
    let segments = [remote(VA + PAGE, from.key), add(3), data(8, key, to)].concat();
    pager.rig.send(&mut a, WqeOpcode::ATOMIC_FA, &segments);
    let told = pager.fault();
    assert_eq!((told.kind, told.at, told.len), (RDMA_WRITE, VA + PAGE, 8));
    pager.all(from);
    pager.resume(told, false);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(from.frames + PAGE, 8), before.wrapping_add(3).to_be_bytes());
    assert_eq!(pager.state(b.qpn), QpState::RTS);
}

#[test]
fn a_receiver_keeps_its_entry_until_its_pages_are_there() {
    let mut pager = Pager::new(&[]);
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (to, key) = (pager.region(), pager.rig.key);
    let small = pager.rig.memory(PAGE);
    pager.rig.post_receive(&mut b, &data(64, key, small));
    pager.rig.post_receive(&mut b, &[data(4, key, small), data(2 * PAGE as u32, to.key, VA)].concat());
    pager.rig.post_receive(&mut b, &data(64, key, small + 64));
    for bytes in [&b"first"[..], b"second", b"third"] {
        pager.rig.send(&mut a, WqeOpcode::SEND, &inline(bytes));
    }
    pager.success(&mut b.cq);
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at, told.len), (RECEIVE, b.qpn, 1, 6));
    pager.success(&mut a.cq);
    pager.rests(&mut [&mut a.cq, &mut b.cq]);
    pager.set(to, 0..1, WRITE);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    assert_eq!((pager.success(&mut b.cq).wqe_counter(), pager.success(&mut b.cq).wqe_counter()), (1, 2));
    assert_eq!(pager.rig.read(to.frames, 2), b"nd");
    assert_eq!(pager.rig.read(small, 4), b"seco");
    assert_eq!(pager.rig.read(small + 64, 5), b"third");
}

/// Ways in which a queue pair `a` with a peer `b` may meet `region`, and the syndromes on both sides if a page does not
/// come.
type Way = fn(&mut Pager, &mut Qp, &mut Qp, Region);
const WAYS: [(&str, Way, CqeSyndrome, Option<CqeSyndrome>); 6] = [
    (
        "gather",
        |pager, a, _, region| {
            let to = remote(0x200_0000, pager.rig.key);
            pager.rig.send(a, WqeOpcode::RDMA_WRITE, &[to, data(8, region.key, VA)].concat());
        },
        CqeSyndrome::LOCAL_PROT_ERR,
        None,
    ),
    (
        "scatter",
        |pager, a, _, region| {
            let from = remote(0x200_0000, pager.rig.key);
            pager.rig.send(a, WqeOpcode::RDMA_READ, &[from, data(8, region.key, VA)].concat());
        },
        CqeSyndrome::LOCAL_PROT_ERR,
        None,
    ),
    (
        "write",
        |pager, a, _, region| {
            pager.rig.send(a, WqeOpcode::RDMA_WRITE, &[remote(VA, region.key), inline(b"x")].concat());
        },
        CqeSyndrome::REMOTE_ACCESS_ERR,
        None,
    ),
    (
        "read",
        |pager, a, _, region| {
            let to = data(8, pager.rig.key, 0x200_0000);
            pager.rig.send(a, WqeOpcode::RDMA_READ, &[remote(VA, region.key), to].concat());
        },
        CqeSyndrome::REMOTE_ACCESS_ERR,
        None,
    ),
    (
        "atomic",
        |pager, a, _, region| {
            let to = data(8, pager.rig.key, 0x200_0000);
            pager.rig.send(a, WqeOpcode::ATOMIC_FA, &[remote(VA, region.key), add(1), to].concat());
        },
        CqeSyndrome::REMOTE_ACCESS_ERR,
        None,
    ),
    (
        "receive",
        |pager, a, b, region| {
            pager.rig.post_receive(b, &data(64, region.key, VA));
            pager.rig.send(a, WqeOpcode::SEND, &inline(b"x"));
        },
        CqeSyndrome::REMOTE_OP_ERR,
        Some(CqeSyndrome::LOCAL_PROT_ERR),
    ),
];

#[test]
fn a_page_that_does_not_come_fails_what_needs_it() {
    for (name, way, sender, receiver) in WAYS {
        let mut pager = Pager::new(&[]);
        let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
        let region = pager.region();
        way(&mut pager, &mut a, &mut b, region);
        let told = pager.fault();
        pager.resume(told, true);
        pager.rig.pass(WHILE);
        assert_eq!(pager.failure(&mut a.cq), sender, "{name}");
        assert_eq!(pager.state(a.qpn), QpState::ERR, "{name}");
        if let Some(syndrome) = receiver {
            assert_eq!(pager.failure(&mut b.cq), syndrome, "{name}");
        }
        let remote = sender != CqeSyndrome::LOCAL_PROT_ERR;
        assert_eq!(pager.state(b.qpn), if remote { QpState::ERR } else { QpState::RTS }, "{name}");
        assert_eq!(pager.answer(told.kind, told.queue, told.token, false).unwrap_err().0, Status::BAD_RES_ERR);
    }
}

#[test]
fn a_queue_pair_that_ends_takes_its_faults_along() {
    for (name, way, ..) in WAYS {
        for end in ["destroy", "reset", "error"] {
            let mut pager = Pager::new(&[]);
            let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
            let region = pager.region();
            way(&mut pager, &mut a, &mut b, region);
            let told = pager.fault();
            let resumed = |pager: &mut Pager| pager.answer(told.kind, told.queue, told.token, true).map_err(|e| e.0);
            for qpn in [a.qpn, b.qpn] {
                let opcode = if end == "destroy" {
                    0x501
                } else if end == "reset" {
                    0x50a
                } else {
                    0x507
                };
                pager.rig.ok(&QueueRig::naming(opcode, qpn), 16);
            }
            pager.rig.pass(WHILE);
            if end == "error" {
                // The driver may still answer, and changes nothing by it.
                assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::WR_FLUSH_ERR, "{name}");
                assert_eq!((resumed(&mut pager), pager.pending()), (Ok(()), 0), "{name}");
                for cq in [&mut a.cq, &mut b.cq] {
                    while let Some(cqe) = pager.poll(cq) {
                        let syndrome = CqeSyndrome(ErrCqe::wrap(cqe.as_bytes()).syndrome() as u8);
                        assert_eq!(syndrome, CqeSyndrome::WR_FLUSH_ERR, "{name}");
                    }
                }
                continue;
            }
            assert_eq!((pager.pending(), resumed(&mut pager)), (0, Err(Status::BAD_RES_ERR)), "{name} {end}");
            if end == "reset" {
                for record in [a.record, b.record] {
                    pager.rig.write(record, &[0; 8]);
                }
                pager.rig.connect(a.qpn, b.qpn, Link::default());
                pager.rig.connect(b.qpn, a.qpn, Link::default());
                (a.sent, b.received) = (0, 0);
                way(&mut pager, &mut a, &mut b, region);
                let told = pager.fault();
                pager.all(region);
                pager.resume(told, false);
                pager.rig.pass(WHILE);
                pager.success(&mut a.cq);
            }
            pager.rig.function.hca().audit().expect("nothing is left behind");
        }
    }
}

#[test]
fn only_the_fault_itself_is_resumed_and_only_once() {
    let mut pager = Pager::new(&[]);
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let region = pager.region();
    WAYS[0].1(&mut pager, &mut a, &mut b, region);
    let Told { kind, queue, token, .. } = pager.fault();
    use crate::cmdif::SYNDROME_TABLES;
    let text = |syndrome: Syndrome| {
        let all = SYNDROME_TABLES.iter().copied().flatten();
        all.filter(|(known, _)| *known == syndrome).map(|(_, text)| *text).next().unwrap_or("?")
    };
    for (kind, queue, token, status, says) in [
        (kind, queue, token + 1, Status::BAD_RES_ERR, "no page fault waits with this token"),
        (kind, queue, 0, Status::BAD_RES_ERR, "no page fault waits with this token"),
        (kind ^ 1, queue, token, Status::BAD_PARAM_ERR, "page_fault_type is not that of the fault"),
        (kind, queue + 1, token, Status::BAD_PARAM_ERR, "wq_number is not that of the fault"),
    ] {
        let (refused, syndrome) = pager.answer(kind, queue, token, true).unwrap_err();
        assert_eq!((refused, text(syndrome)), (status, says));
    }
    assert_eq!(pager.pending(), 1);
    pager.all(region);
    assert_eq!(pager.answer(kind, queue, token, false), Ok(()));
    pager.success(&mut a.cq);
    for _ in 0..3 {
        assert_eq!(pager.answer(kind, queue, token, true).unwrap_err().0, Status::BAD_RES_ERR);
    }
    assert_eq!(pager.state(a.qpn), QpState::RTS);
    // A driver that resumes again and again without doing anything gets one event for each.
    pager.set(region, 0..PAGES, 0);
    WAYS[2].1(&mut pager, &mut a, &mut b, region);
    for _ in 0..100 {
        let told = pager.fault();
        pager.resume(told, false);
        assert!(pager.pending() <= 1);
        pager.rig.pass(WHILE);
    }
    // Unknown modifiers, and a device without paging.
    let mut input = PageFaultResumeIn::zeroed();
    input.set_opcode(0x204);
    input.set_op_mod(1);
    assert_eq!(pager.rig.exec(input.as_bytes(), 16).status(), Status::BAD_PARAM_ERR.0);
    let mut off = Pager::new(&["caps.general.pg=0"]);
    assert_eq!(off.answer(1, 1, 1, false).unwrap_err().0, Status::BAD_OP_ERR);
}

#[test]
fn both_sides_of_many_queue_pairs_fault_once_each() {
    let mut pager = Pager::new(&[]);
    let region = pager.region();
    const PAIRS: usize = 20;
    let mut pairs: Vec<(Qp, Qp)> = (0..PAIRS).map(|_| pager.rig.pair(QpType::RC, NO_RETRY)).collect();
    for (a, b) in &mut pairs {
        for way in [2, 3, 2] {
            WAYS[way].1(&mut pager, a, b, region);
        }
        for way in [0, 1, 0] {
            WAYS[way].1(&mut pager, b, a, region);
        }
    }
    for _ in 0..20 {
        pager.rig.pass(WHILE);
    }
    assert_eq!(pager.pending(), 2 * PAIRS, "the peer's requester and responder");
    let told: Vec<Told> = (0..2 * PAIRS).map(|_| pager.fault()).collect();
    pager.none();
    let tokens: std::collections::BTreeSet<u32> = told.iter().map(|told| told.token).collect();
    assert_eq!(tokens.len(), 2 * PAIRS);
    pager.all(region);
    for told in told {
        pager.resume(told, false);
    }
    for _ in 0..20 {
        pager.rig.pass(WHILE);
    }
    for (a, b) in &mut pairs {
        for _ in 0..3 {
            pager.success(&mut a.cq);
            pager.success(&mut b.cq);
        }
    }
    assert_eq!(pager.pending(), 0);
}

#[test]
fn faults_wait_for_room_in_their_event_queue() {
    let mut pager = Pager::new(&[]);
    pager.rig.ok(&QueueRig::naming(0x302, pager.eq.eqn), 16);
    pager.eq = pager.rig.create_eq(2, 1 << EventType::PAGE_FAULT.0, 3);
    let region = pager.region();
    const PAIRS: usize = 20;
    let mut pairs: Vec<(Qp, Qp)> = (0..PAIRS).map(|_| pager.rig.pair(QpType::RC, NO_RETRY)).collect();
    for (a, b) in &mut pairs {
        WAYS[0].1(&mut pager, a, b, region);
    }
    pager.rig.settle();
    assert!(!pager.rig.function.hca().internal_error(), "it is not the driver's fault that there are so many");
    // One that has not been told of goes with its queue pair.
    let (last, peer) = pairs.pop().expect("a pair");
    for qpn in [last.qpn, peer.qpn] {
        pager.rig.ok(&QueueRig::naming(0x501, qpn), 16);
    }
    pager.all(region);
    for (a, _) in &mut pairs {
        let told = pager.fault();
        assert_eq!(told.queue, a.qpn);
        pager.resume(told, false);
        pager.success(&mut a.cq);
    }
    pager.none();
    assert_eq!(pager.pending(), 0);
}

#[test]
fn a_portion_of_work_has_room_for_few_faults() {
    let mut pager = Pager::new(&[]);
    let (region, key) = (pager.region(), pager.rig.key);
    // Each byte of the target is a part of its own, and the last one is missing.
    const LEN: usize = 1024;
    let pieces: Vec<u8> = (0..LEN)
        .flat_map(|i| {
            let (child, va) = if i == LEN - 1 { (region.key, VA) } else { (key, 0x200_0000 + 2 * i as u64) };
            [&1u32.to_be_bytes()[..], &child.to_be_bytes(), &va.to_be_bytes()].concat()
        })
        .collect();
    let list = pager.rig.create_listed_key(&pieces, |mkc| {
        mkc.set_access_mode_1_0(2);
        mkc.set_translations_octword_size(LEN as u32);
        mkc.set_len(LEN as u64);
    });
    let mut pairs: Vec<(Qp, Qp)> = (0..60).map(|_| pager.rig.pair(QpType::RC, NO_RETRY)).collect();
    for (a, _) in &mut pairs {
        let segments = [remote(0, list), data(LEN as u32, key, 0x210_0000)].concat();
        pager.rig.post_send(a, WqeOpcode::RDMA_WRITE, &segments, |_| {});
        pager.rig.ring_send(a);
    }
    let mut most = 0;
    loop {
        let before = pager.rig.function.hca().rdma.traffic.page_faults;
        let more = pager.rig.function.work().more;
        most = most.max(pager.rig.function.hca().rdma.traffic.page_faults - before);
        if !more {
            break;
        }
    }
    assert_eq!(pager.pending(), pairs.len());
    assert!(most <= 16, "{most} walks of {LEN} parts in one portion");
}

#[test]
fn a_fault_that_was_not_told_before_its_event_queue_went_is_an_error() {
    let mut pager = Pager::new(&[]);
    pager.rig.ok(&QueueRig::naming(0x302, pager.eq.eqn), 16);
    pager.eq = pager.rig.create_eq(2, 1 << EventType::PAGE_FAULT.0, 2);
    let region = pager.region();
    let mut pairs: Vec<(Qp, Qp)> = (0..6).map(|_| pager.rig.pair(QpType::RC, NO_RETRY)).collect();
    for (a, b) in &mut pairs {
        WAYS[2].1(&mut pager, a, b, region);
    }
    pager.rig.settle();
    pager.rig.ok(&QueueRig::naming(0x302, pager.eq.eqn), 16);
    pager.rig.pass(WHILE);
    for (a, _) in &mut pairs[4..] {
        assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::REMOTE_ACCESS_ERR);
    }
    assert_eq!(pager.pending(), 4, "the driver was told of these");
}

#[test]
fn where_nobody_takes_page_faults_a_missing_page_is_an_error() {
    for (name, way, sender, _) in WAYS {
        for without in ["events", "capability"] {
            let sets: &[&str] = if without == "capability" { &["caps.general.pg=0"] } else { &[] };
            let mut pager = Pager::new(sets);
            if without == "events" {
                pager.rig.ok(&QueueRig::naming(0x302, pager.eq.eqn), 16);
            }
            let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
            let region = pager.region();
            way(&mut pager, &mut a, &mut b, region);
            assert_eq!(pager.failure(&mut a.cq), sender, "{name} without {without}");
            assert_eq!(pager.pending(), 0);
        }
    }
}

#[test]
fn only_operations_that_are_advertised_fault() {
    const RC: &str = "caps.odp.transport_page_fault_scheme_cap.rc_odp_caps";
    for (at, name) in [(0, "write"), (1, "read"), (2, "write"), (3, "read"), (4, "atomic"), (5, "receive")] {
        let mut pager = Pager::new(&[&format!("{RC}.{name}=0")]);
        let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
        let region = pager.region();
        WAYS[at].1(&mut pager, &mut a, &mut b, region);
        assert_eq!(pager.failure(&mut a.cq), WAYS[at].2, "{name}");
    }
    let mut pager = Pager::new(&[]);
    let (mut a, mut b) = pager.rig.pair(QpType::UC, Link::default());
    let region = pager.region();
    WAYS[0].1(&mut pager, &mut a, &mut b, region);
    assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::LOCAL_PROT_ERR, "unreliable connections have no paging");
}

/// A key as the driver makes it for all of an address space: a list of keys, here of two regions' sizes.
fn implicit(pager: &mut Pager, children: &[(u32, u64)]) -> u32 {
    let list: Vec<u8> =
        children.iter().flat_map(|(key, va)| [&(*key as u64).to_be_bytes()[..], &va.to_be_bytes()].concat()).collect();
    pager.rig.create_listed_key(&list, |mkc| {
        mkc.set_access_mode_1_0(3);
        mkc.set_translations_octword_size(children.len() as u32);
        mkc.set_log_page_size(15);
        mkc.set_len(children.len() as u64 * PAGES * PAGE);
    })
}

#[test]
fn in_the_transport_scheme_a_list_that_leads_to_the_null_key_has_a_hole() {
    let mut pager = Pager::new(&[]);
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (region, null) = (pager.region(), Reserved::Null.key());
    pager.all(region);
    let key = implicit(&mut pager, &[(null, 0), (region.key, VA)]);
    let bytes = pager.rig.pattern(region.frames, 64, 2);
    // The second child is there.
    let to = pager.rig.memory(PAGE);
    let all = pager.rig.key;
    pager.rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(PAGES * PAGE, key), data(64, all, to)].concat());
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(to, 64), bytes);
    // The first is not: for a peer, for a sender, for a receiver.
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(8, key), inline(b"hole")].concat());
    let told = pager.fault();
    assert_eq!((told.kind, told.at, told.len), (RDMA_WRITE, 8, 4));
    let hca = pager.rig.function.hca_mut();
    let list = &mut hca.objects.mkeys.get_mut(key >> 8).expect("a key").object.list;
    let entry = [u64::from(region.key).to_be_bytes(), VA.to_be_bytes()].concat();
    list.load(crate::mkey::context::Mode::Ksm, 0, 2, &entry, false);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(region.frames + 8, 4), b"hole");
    // Named itself, the null key has no holes.
    pager.rig.post_receive(&mut b, &data(64, null, 0));
    pager.rig.send(&mut a, WqeOpcode::SEND, &data(64, null, 0));
    pager.success(&mut a.cq);
    pager.none();
}

#[test]
fn in_the_memory_scheme_an_event_names_the_key_and_the_address() {
    let mut pager = Pager::new(&["caps.odp.mem_page_fault=1"]);
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (first, second) = (pager.region(), pager.region());
    pager.set(first, 0..1, READ | WRITE);
    let key = implicit(&mut pager, &[(first.key, VA), (second.key, VA)]);
    let bytes = pager.rig.pattern(first.frames, (PAGES * PAGE) as usize, 3);
    let resume = |pager: &mut Pager, token: u32, high: u32, error: bool| {
        let mut input = PageFaultResumeIn::zeroed();
        input.set_opcode(0x204);
        let mut info = input.page_fault_info_mut();
        let mut info = info.mem_page_fault_info_mut();
        info.set_fault_token_31_0(token);
        info.set_fault_token_47_32(high);
        info.set_error(error.into());
        let status = pager.rig.exec(input.as_bytes(), 16).status();
        pager.rig.pass(WHILE);
        status
    };
    let fault = |pager: &mut Pager| {
        let eqe = pager.event().expect("a page fault");
        assert_eq!(PageFault(eqe[3]), PageFault::MEMORY);
        let event = MemoryPageFault::wrap(eqe[0x20..0x3c].to_vec());
        assert_eq!((event.last(), event.token_47_32(), event.pre_demand_fault_pages()), (1, 0, 0));
        event
    };
    // The sender's gather, from an address that is not aligned on, over both children.
    let to = pager.rig.memory(2 * PAGES * PAGE);
    let all = pager.rig.key;
    let len = (2 * PAGES * PAGE) as u32 - 100;
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, all), data(len, key, 100)].concat());
    let told = fault(&mut pager);
    assert_eq!((told.mkey(), told.va()), (first.key, VA + PAGE));
    assert_eq!((told.demand_fault_pages(), told.post_demand_fault_pages()), (PAGES as u32 - 1, 0));
    assert_eq!(resume(&mut pager, told.token_31_0() + 1, 0, false), Status::BAD_RES_ERR.0);
    assert_eq!(resume(&mut pager, told.token_31_0(), 1, false), Status::BAD_RES_ERR.0);
    pager.all(first);
    assert_eq!(resume(&mut pager, told.token_31_0(), 0, false), 0);
    let told = fault(&mut pager);
    assert_eq!((told.mkey(), told.va(), told.demand_fault_pages()), (second.key, VA, PAGES as u32));
    pager.all(second);
    assert_eq!(resume(&mut pager, told.token_31_0(), 0, false), 0);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(to, bytes.len() - 100), bytes[100..]);
    // The other ways, each with the page at an offset into it.
    for (name, way, ..) in WAYS {
        pager.set(first, 0..PAGES, 0);
        way(&mut pager, &mut a, &mut b, first);
        let told = fault(&mut pager);
        assert_eq!((told.mkey(), told.va(), told.demand_fault_pages()), (first.key, VA, 1), "{name}");
        pager.all(first);
        assert_eq!(resume(&mut pager, told.token_31_0(), 0, false), 0, "{name}");
        pager.success(&mut a.cq);
    }
    // A list that leads to the device's null key is no hole here: the driver has null keys of its own.
    let hole = implicit(&mut pager, &[(Reserved::Null.key(), 0), (first.key, VA)]);
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(8, hole), inline(b"gone")].concat());
    pager.success(&mut a.cq);
    assert_eq!(pager.pending(), 0);
}

/// What the driver switches on.
const SHARED: [&str; 3] = [
    "caps.odp.transport_page_fault_scheme_cap.rc_odp_caps.srq_receive=1",
    "caps.odp.transport_page_fault_scheme_cap.ud_odp_caps.srq_receive=1",
    "caps.odp.transport_page_fault_scheme_cap.xrc_odp_caps.srq_receive=1",
];

/// Entry 0 of a shared receive queue whose record is at `record`, behind its page of entries.
fn post_shared(pager: &mut Pager, record: u64, segment: &[u8]) {
    pager.rig.write(record - PAGE, &[&[0, 0, 0, 1][..], &[0; 12], segment].concat());
    pager.rig.write(record, &1u32.to_be_bytes());
}

#[test]
fn an_entry_of_a_shared_receive_queue_is_kept_by_the_queue_pair_that_took_it() {
    let mut pager = Pager::new(&SHARED);
    let pd = pager.rig.pd;
    let to = pager.region();
    let (input, record) = pager.rig.create_rmp_in(pd, 4);
    let rmpn = crate::testing::queues::number(&pager.rig.ok(input.as_bytes(), 16));
    post_shared(&mut pager, record, &data(64, to.key, VA));
    let mut a = pager.rig.qp(QpType::RC);
    let mut b = pager.rig.qp_with(QpType::RC, |context| {
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(rmpn);
    });
    pager.rig.connect(a.qpn, b.qpn, NO_RETRY);
    pager.rig.connect(b.qpn, a.qpn, NO_RETRY);
    pager.rig.send(&mut a, WqeOpcode::SEND, &inline(b"shared"));
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at), (0, rmpn, 0));
    pager.rests(&mut [&mut a.cq, &mut b.cq]);
    pager.all(to);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    assert_eq!((pager.success(&mut b.cq).wqe_counter(), pager.rig.read(to.frames, 6)), (0, b"shared".to_vec()));
    pager.success(&mut a.cq);
}

#[test]
fn an_xrc_request_faults_in_the_queue_that_it_names() {
    let xrc = "caps.odp.transport_page_fault_scheme_cap.xrc_odp_caps";
    let sets: Vec<String> =
        ["send", "write", "read", "atomic", "srq_receive"].map(|name| format!("{xrc}.{name}=1")).into();
    let mut pager = Pager::new(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    let (pd, xrcd, to) = (pager.rig.pd, pager.rig.xrcd(), pager.region());
    let mut cq = pager.rig.cq();
    let internal = pager.rig.create_xrc_srq(pd, xrcd, cq.cqn);
    let (input, record) = pager.rig.create_xrc_srq_in(pd, xrcd, cq.cqn);
    let srqn = crate::testing::queues::number(&pager.rig.ok(input.as_bytes(), 16));
    post_shared(&mut pager, record, &data(64, to.key, VA));
    let edit = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| {
        context.set_xrcd(xrcd);
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(internal);
    };
    let (mut a, b) = (pager.rig.qp_with(QpType::XRC, edit), pager.rig.qp_with(QpType::XRC, edit));
    pager.rig.connect(a.qpn, b.qpn, NO_RETRY);
    pager.rig.connect(b.qpn, a.qpn, NO_RETRY);
    let named = [&srqn.to_be_bytes()[..], &[0; 12]].concat();
    pager.rig.send(&mut a, WqeOpcode::SEND, &[named.clone(), data(8, to.key, VA + PAGE)].concat());
    let told = pager.fault();
    assert_eq!((told.kind, told.queue), (SEND_OR_WRITE, a.qpn));
    pager.set(to, 1..2, READ);
    pager.resume(told, false);
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at), (0, srqn, 0));
    pager.set(to, 0..1, WRITE);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.success(&mut cq).byte_cnt(), 8);
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[named, remote(VA + 3 * PAGE, to.key), inline(b"write")].concat());
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (RDMA_WRITE, VA + 3 * PAGE));
    pager.all(to);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(to.frames + 3 * PAGE, 5), b"write");
}

#[test]
fn the_entry_of_a_shared_queue_that_is_gone_is_not_completed_for_want_of_its_page() {
    for refused in ["by the driver", "behind an answer"] {
        let xrc = "caps.odp.transport_page_fault_scheme_cap.xrc_odp_caps";
        let sets: Vec<String> = ["read", "srq_receive"].map(|name| format!("{xrc}.{name}=1")).into();
        let mut pager = Pager::new(&sets.iter().map(String::as_str).collect::<Vec<_>>());
        let (pd, xrcd, to) = (pager.rig.pd, pager.rig.xrcd(), pager.region());
        let mut cq = pager.rig.cq();
        let internal = pager.rig.create_xrc_srq(pd, xrcd, cq.cqn);
        let (input, record) = pager.rig.create_xrc_srq_in(pd, xrcd, cq.cqn);
        let srqn = crate::testing::queues::number(&pager.rig.ok(input.as_bytes(), 16));
        let edit = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| {
            context.set_xrcd(xrcd);
            context.set_rq_type(1);
            context.set_srqn_rmpn_xrqn(internal);
        };
        let (mut a, b) = (pager.rig.qp_with(QpType::XRC, edit), pager.rig.qp_with(QpType::XRC, edit));
        pager.rig.connect(a.qpn, b.qpn, NO_RETRY);
        pager.rig.connect(b.qpn, a.qpn, NO_RETRY);
        let naming = |srqn: u32| [&srqn.to_be_bytes()[..], &[0; 12]].concat();
        let all = pager.rig.key;
        let told = if refused == "by the driver" {
            post_shared(&mut pager, record, &data(64, to.key, VA));
            pager.rig.send(&mut a, WqeOpcode::SEND, &[naming(srqn), inline(b"x")].concat());
            pager.fault()
        } else {
            // The SEND is too long for its entry; that is said when the READ is answered.
            post_shared(&mut pager, record, &data(1, all, 0x200_0000));
            let read = [naming(internal), remote(VA, to.key), data(8, all, 0x200_0000)].concat();
            pager.rig.post_send(&mut a, WqeOpcode::RDMA_READ, &read, |_| {});
            pager.rig.post_send(&mut a, WqeOpcode::SEND, &[naming(srqn), inline(b"long")].concat(), |_| {});
            pager.rig.ring_send(&a);
            pager.fault()
        };
        pager.rig.ok(&QueueRig::naming(0x706, srqn), 16);
        let error = told.kind == 0;
        pager.all(to);
        pager.resume(told, error);
        pager.rig.pass(WHILE);
        assert!(pager.poll(&mut cq).is_none(), "{refused}: its number may be another's by now");
        assert_eq!(pager.state(b.qpn), QpState::ERR, "{refused}");
    }
}

#[test]
fn a_datagram_waits_for_its_senders_pages_and_is_lost_for_want_of_its_receivers() {
    let mut pager = Pager::new(&SHARED);
    let (pd, from, to) = (pager.rig.pd, pager.region(), pager.region());
    let (input, record) = pager.rig.create_rmp_in(pd, 4);
    let rmpn = crate::testing::queues::number(&pager.rig.ok(input.as_bytes(), 16));
    post_shared(&mut pager, record, &data(256, to.key, VA));
    let mut a = pager.rig.qp(QpType::UD);
    let mut b = pager.rig.qp_with(QpType::UD, |context| {
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(rmpn);
    });
    for qp in [&a, &b] {
        pager.rig.connect(qp.qpn, 0, Link::default());
    }
    let mut av = crate::prm::wqe::Av::zeroed();
    let mac = pager.rig.function.hca().vport.mac();
    av.set_qkey(0x1111_1111);
    av.set_extended(1);
    av.set_dqp_dct(b.qpn);
    av.as_bytes_mut()[0x14..0x1a].copy_from_slice(&mac);
    av.as_bytes_mut()[0x20..].copy_from_slice(&crate::testing::rdma::GID);
    let bytes = pager.rig.pattern(from.frames, 100, 1);
    let segments = [av.as_bytes().to_vec(), data(100, from.key, VA)].concat();
    pager.rig.send(&mut a, WqeOpcode::SEND, &segments);
    let told = pager.fault();
    assert_eq!((told.kind, told.queue), (SEND_OR_WRITE, a.qpn));
    pager.rests(&mut [&mut a.cq, &mut b.cq]);
    pager.all(from);
    pager.resume(told, false);
    // It is sent, and met by an entry without memory. So is the next one, of which nobody is told.
    let told = pager.fault();
    assert_eq!((told.kind, told.queue, told.at), (0, rmpn, 0));
    pager.rig.send(&mut a, WqeOpcode::SEND, &segments);
    pager.rests(&mut [&mut b.cq]);
    pager.all(to);
    pager.resume(told, false);
    pager.rests(&mut [&mut b.cq]);
    pager.rig.send(&mut a, WqeOpcode::SEND, &segments);
    assert_eq!(pager.success(&mut b.cq).byte_cnt(), 140);
    assert_eq!(pager.rig.read(to.frames + 40, 100), bytes);
    for _ in 0..3 {
        pager.success(&mut a.cq);
    }
    // A receiver without shared queue has no paging.
    let mut c = pager.rig.qp(QpType::UD);
    pager.rig.connect(c.qpn, 0, Link::default());
    pager.set(to, 0..PAGES, 0);
    pager.rig.post_receive(&mut c, &data(256, to.key, VA));
    av.set_dqp_dct(c.qpn);
    pager.rig.send(&mut a, WqeOpcode::SEND, &[av.as_bytes().to_vec(), inline(b"x")].concat());
    assert_eq!(pager.failure(&mut c.cq), CqeSyndrome::LOCAL_PROT_ERR);
    pager.none();
}

#[test]
fn faults_are_legal_in_every_order_and_pages_that_go_are_touched_no_more() {
    use crate::dma::order::{Policy, Scope};
    for policy in Policy::ALL {
        for (name, way, ..) in WAYS {
            let set = format!("order.policy={policy}");
            let mut pager = Pager::new(&[&set, "order.seed=3", "order.check=true"]);
            let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
            let region = pager.region();
            way(&mut pager, &mut a, &mut b, region);
            let told = pager.fault();
            pager.rig.land();
            assert_eq!(pager.rig.read(region.frames, 64), [0; 64], "{policy} {name}: not issued");
            pager.all(region);
            pager.resume(told, false);
            pager.rig.pass(WHILE);
            // As a work request that takes the pages away does, while accesses may be pending.
            pager.rig.function.bus_mut().drain(Scope::Key(region.key >> 8));
            pager.set(region, 0..PAGES, 0);
            pager.rig.write(region.frames, &[0x77; 64]);
            pager.rig.land();
            assert_eq!(pager.rig.read(region.frames, 64), [0x77; 64], "{policy} {name}: touched later");
            pager.success(&mut a.cq);
            let order = pager.rig.function.summary().order.expect("an engine");
            assert!(order.check.expect("a checker").legal, "{policy} {name}");
        }
    }
}

#[test]
fn a_side_that_waits_for_a_page_tells_of_no_other() {
    // The requester: the data of a READ come while it waits for those of a WRITE.
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (first, second, key) = (pager.region(), pager.region(), pager.rig.key);
    let (from, to) = (pager.rig.memory(PAGE), pager.rig.memory(PAGE));
    pager.rig.write(from, b"from");
    pager.rig.write(second.frames, b"to");
    pager.rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(4, first.key, VA)].concat(), |_| {});
    pager.rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), data(2, second.key, VA)].concat(), |_| {});
    pager.rig.ring_send(&a);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (SEND_OR_WRITE, 1));
    pager.rests(&mut [&mut a.cq]);
    assert_eq!(pager.pending(), 1);
    pager.all(second);
    pager.resume(told, false);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (READ_OR_ATOMIC, 0));
    pager.all(first);
    pager.resume(told, false);
    assert_eq!((pager.success(&mut a.cq).wqe_counter(), pager.success(&mut a.cq).wqe_counter()), (0, 1));
    assert_eq!((pager.rig.read(first.frames, 4), pager.rig.read(to, 2)), (b"from".to_vec(), b"to".to_vec()));
    pager.none();

    // The responder: a WRITE comes while the answer to a READ waits.
    let mut pager = Pager::new(&[]);
    let (mut a, b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (first, second, key) = (pager.region(), pager.region(), pager.rig.key);
    let to = pager.rig.memory(PAGE);
    pager.rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(VA, first.key), data(4, key, to)].concat());
    let told = pager.fault();
    assert_eq!(told.kind, RDMA_READ);
    pager.rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(VA, second.key), inline(b"late")].concat());
    pager.rests(&mut [&mut a.cq]);
    assert_eq!(pager.pending(), 1);
    pager.all(first);
    pager.resume(told, false);
    pager.success(&mut a.cq);
    pager.rig.pass(WHILE);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (RDMA_WRITE, VA));
    pager.all(second);
    pager.resume(told, false);
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.rig.read(second.frames, 4), b"late");
    assert_eq!((pager.state(a.qpn), pager.state(b.qpn)), (QpState::RTS, QpState::RTS));
}

#[test]
fn an_answer_waits_while_a_request_behind_it_waits_for_another_page() {
    for retries in [7, 4] {
        let mut pager = Pager::new(&[]);
        let (mut a, _) = pager.rig.pair(QpType::RC, Link { rnr_retries: retries, ..NO_RETRY });
        let (first, second) = (pager.region(), pager.region());
        let (to, key) = (pager.rig.memory(PAGE), pager.rig.key);
        pager.rig.write(first.frames, b"from");
        // The WRITE comes before the READ's turn to be answered.
        pager.rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(VA, first.key), data(4, key, to)].concat(), |_| {});
        pager.rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(VA, second.key), inline(b"late")].concat(), |_| {});
        pager.rig.ring_send(&a);
        let told = pager.fault();
        let attempts = if retries == 7 { 600 } else { 2 };
        for _ in 0..attempts {
            pager.rig.pass(WHILE);
        }
        let not_ready = pager.rig.function.hca().rdma.traffic.receiver_not_ready;
        assert!((attempts..attempts + 4).contains(&not_ready), "{not_ready} of {attempts}: once for each attempt");
        pager.all(if told.kind == RDMA_WRITE { second } else { first });
        pager.resume(told, false);
        pager.rig.pass(WHILE);
        let told = pager.fault();
        pager.all(if told.kind == RDMA_WRITE { second } else { first });
        pager.resume(told, false);
        pager.rig.pass(WHILE);
        pager.rig.pass(WHILE);
        assert_eq!((pager.success(&mut a.cq).wqe_counter(), pager.success(&mut a.cq).wqe_counter()), (0, 1));
        assert_eq!((pager.rig.read(to, 4), pager.rig.read(second.frames, 4)), (b"from".to_vec(), b"late".to_vec()));
        pager.none();
    }
}

#[test]
fn what_was_dropped_before_an_entry_that_fails_is_asked_for_again() {
    let mut pager = Pager::new(&[]);
    let (mut a, _) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (first, second, key) = (pager.region(), pager.region(), pager.rig.key);
    let (from, to) = (pager.rig.memory(PAGE), pager.rig.memory(PAGE));
    pager.rig.write(from, b"from");
    pager.rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(4, first.key, VA)].concat(), |_| {});
    pager.rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), data(2, second.key, VA)].concat(), |_| {});
    pager.rig.ring_send(&a);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (SEND_OR_WRITE, 1));
    pager.rests(&mut [&mut a.cq]);
    pager.resume(told, true);
    let told = pager.fault();
    assert_eq!((told.kind, told.at), (READ_OR_ATOMIC, 0));
    pager.all(first);
    pager.resume(told, false);
    assert_eq!(pager.success(&mut a.cq).wqe_counter(), 0);
    assert_eq!(pager.rig.read(first.frames, 4), b"from");
    assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::LOCAL_PROT_ERR);
}

#[test]
fn what_a_receiver_was_not_ready_for_is_sent_again_before_an_entry_that_fails() {
    let mut pager = Pager::new(&["wire.fault=[\"delay:us=50,kind=send,nth=1\"]"]);
    let (mut a, mut b) = pager.rig.pair(QpType::RC, NO_RETRY);
    let (region, key) = (pager.region(), pager.rig.key);
    let to = pager.rig.memory(PAGE);
    pager.rig.post_send(&mut a, WqeOpcode::SEND, &inline(b"early"), |_| {});
    pager.rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), data(2, region.key, VA)].concat(), |_| {});
    pager.rig.ring_send(&a);
    let told = pager.fault();
    pager.rig.pass(60_000);
    assert_eq!(pager.rig.function.hca().rdma.traffic.receiver_not_ready, 1, "while the sender waits for its page");
    pager.resume(told, true);
    pager.rig.post_receive(&mut b, &data(64, key, to + 64));
    pager.rig.pass(WHILE);
    pager.success(&mut a.cq);
    assert_eq!(pager.failure(&mut a.cq), CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!(pager.rig.read(to + 64, 5), b"early");
}
