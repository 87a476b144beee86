//! Queue pairs by their rings, doorbells and completions.

use crate::config::fault::FaultRule;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::event::EventType;
use crate::prm::values::{AtomicMode, CqeOpcode, CqeSyndrome, QpMtu, QpState, QpType, WqeOpcode};
use crate::prm::wqe::{AtomicSeg, MaskedAtomicSeg};
use crate::testing::rdma::{Cq, Link, RdmaRig, data, inline, remote};

type Entry = Cqe<Vec<u8>>;

fn success(cqe: Option<Entry>, opcode: CqeOpcode) -> Entry {
    let cqe = cqe.expect("a completion");
    let error = ErrCqe::wrap(cqe.as_bytes());
    assert_eq!(cqe.opcode(), u32::from(opcode.0), "syndrome {:#x} {:#x}", error.syndrome(), error.vendor_err_synd());
    cqe
}

fn failure(cqe: Option<Entry>, opcode: CqeOpcode) -> CqeSyndrome {
    let cqe = cqe.expect("a completion");
    assert_eq!(cqe.opcode(), u32::from(opcode.0));
    CqeSyndrome(ErrCqe::wrap(cqe.as_bytes()).syndrome() as u8)
}

fn nothing(rig: &mut RdmaRig, cq: &mut Cq) {
    assert!(rig.poll(cq).is_none());
}

fn state(rig: &mut RdmaRig, qpn: u32) -> QpState {
    QpState(rig.query(qpn).state() as u8)
}

const SIZES: [usize; 9] = [0, 1, 7, 1023, 1024, 1025, 2048, 5000, 70_000];

#[test]
fn a_write_moves_every_byte_and_no_other() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, to) = (rig.memory(1 << 17), rig.memory(1 << 17));
    for size in SIZES {
        let bytes = rig.pattern(from, size, size as u8);
        rig.write(to, &vec![0xee; size + 128]);
        let mut segments = remote(to + 64, key);
        if size > 0 {
            segments.extend(data(size as u32, key, from));
        }
        rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
        let cqe = rig.poll(&mut a.cq);
        let cqe = success(cqe, CqeOpcode::REQ);
        assert_eq!((cqe.qpn(), cqe.srqn_user_index()), (a.qpn, 0xabc));
        assert_eq!(cqe.send_wqe_opcode(), u32::from(WqeOpcode::RDMA_WRITE.0));
        let seen = rig.read(to, size + 128);
        assert_eq!(seen[64..64 + size], bytes, "{size}");
        assert!(seen[..64].iter().chain(&seen[64 + size..]).all(|byte| *byte == 0xee), "{size}");
    }
}

#[test]
fn a_send_fills_the_receive_list_and_says_how_much() {
    let mut rig = RdmaRig::new();
    for service in [QpType::RC, QpType::UC] {
        let (mut a, mut b) = rig.pair(service, Link::default());
        let key = rig.key;
        let (from, to) = (rig.memory(1 << 17), rig.memory(1 << 17));
        for size in SIZES {
            let bytes = rig.pattern(from, size, 3);
            rig.write(to, &vec![0; 1 << 17]);
            let mut list = data(3, key, to);
            list.extend(data(0, key, 0));
            list.extend(data(1 << 16 | 0xfff0, key, to + 0x100));
            rig.post_receive(&mut b, &list);
            let segments = if size > 0 { data(size as u32, key, from) } else { vec![] };
            rig.post_send(&mut a, WqeOpcode::SEND_IMM, &segments, |ctrl| {
                ctrl.set_imm(0x1234_5678);
                ctrl.set_se(1);
            });
            rig.ring_send(&a);
            rig.settle();
            let sent = rig.poll(&mut a.cq);
            success(sent, CqeOpcode::REQ);
            let received = rig.poll(&mut b.cq);
            let cqe = success(received, CqeOpcode::RESP_SEND_IMM);
            assert_eq!((cqe.byte_cnt(), cqe.immediate(), cqe.se()), (size as u32, 0x1234_5678, 1));
            assert_eq!((cqe.rqpn(), cqe.qpn(), cqe.grh(), cqe.roce_l3_type()), (a.qpn, b.qpn, 1, 2));
            let head = size.min(3);
            assert_eq!(rig.read(to, head), bytes[..head]);
            assert_eq!(rig.read(to + 0x100, size - head), bytes[head..]);
        }
    }
}

#[test]
fn inline_data_needs_no_key_and_wraps_with_the_ring() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let to = rig.memory(4096);
    for round in 0..50u8 {
        let bytes: Vec<u8> = (0..200).map(|i| i as u8 ^ round).collect();
        let mut segments = remote(to, key);
        segments.extend(inline(&bytes[..150]));
        segments.extend(inline(&bytes[150..]));
        rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
        let cqe = rig.poll(&mut a.cq);
        success(cqe, CqeOpcode::REQ);
        assert_eq!(rig.read(to, 200), bytes, "{round}");
    }
}

#[test]
fn a_read_brings_every_byte_into_the_list() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, to) = (rig.memory(1 << 17), rig.memory(1 << 17));
    for size in SIZES {
        let bytes = rig.pattern(from, size, 9);
        rig.write(to, &vec![0; 1 << 17]);
        let mut segments = remote(from, key);
        let head = size.min(5);
        for (len, at) in [(head, to), (size - head, to + 0x100)] {
            if len > 0 {
                segments.extend(data(len as u32, key, at));
            }
        }
        rig.send(&mut a, WqeOpcode::RDMA_READ, &segments);
        let cqe = rig.poll(&mut a.cq);
        assert_eq!(success(cqe, CqeOpcode::REQ).byte_cnt(), size as u32);
        assert_eq!(rig.read(to, head), bytes[..head]);
        assert_eq!(rig.read(to + 0x100, size - head), bytes[head..]);
    }
}

#[test]
fn more_reads_than_allowed_wait_for_each_other() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link { log_reads: 1, ..Link::default() });
    let key = rig.key;
    let (from, to) = (rig.memory(1 << 16), rig.memory(1 << 16));
    let bytes = rig.pattern(from, 40_000, 1);
    for i in 0..10u64 {
        let mut segments = remote(from + 4000 * i, key);
        segments.extend(data(4000, key, to + 4000 * i));
        rig.post_send(&mut a, WqeOpcode::RDMA_READ, &segments, |_| {});
    }
    rig.ring_send(&a);
    rig.settle();
    for i in 0..10 {
        let cqe = rig.poll(&mut a.cq);
        assert_eq!(success(cqe, CqeOpcode::REQ).wqe_counter(), i);
    }
    assert_eq!(rig.read(to, 40_000), bytes);
}

fn atomic(swap_add: u64, compare: u64) -> Vec<u8> {
    let mut segment = AtomicSeg::zeroed();
    segment.set_swap_add(swap_add);
    segment.set_compare(compare);
    segment.as_bytes().to_vec()
}

#[test]
fn atomics_change_memory_and_return_what_was_there() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (word, result) = (rig.memory(4096), rig.memory(4096));
    let cases = [
        (WqeOpcode::ATOMIC_FA, atomic(1, 0), 41, 42),
        (WqeOpcode::ATOMIC_CS, atomic(7, 42), 42, 7),
        (WqeOpcode::ATOMIC_CS, atomic(9, 42), 7, 7),
        (WqeOpcode::ATOMIC_FA, atomic(u64::MAX, 0), 7, 6),
    ];
    for big in [true, false] {
        rig.function.hca_mut().atomics_big_endian = big;
        let bytes = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        rig.write(word, &bytes(41));
        for (opcode, operands, before, after) in &cases {
            let mut segments = remote(word, key);
            segments.extend(operands);
            segments.extend(data(8, key, result));
            rig.send(&mut a, *opcode, &segments);
            let cqe = rig.poll(&mut a.cq);
            assert_eq!(success(cqe, CqeOpcode::REQ).byte_cnt(), 8);
            assert_eq!(rig.read(result, 8), bytes(*before));
            assert_eq!(rig.read(word, 8), bytes(*after));
        }
    }
}

fn masked(swap_add: u64, compare: u64, swap_add_mask: u64, compare_mask: u64) -> Vec<u8> {
    let mut segment = MaskedAtomicSeg::zeroed();
    segment.set_swap_add(swap_add);
    segment.set_compare(compare);
    segment.set_swap_add_mask(swap_add_mask);
    segment.set_compare_mask(compare_mask);
    segment.as_bytes().to_vec()
}

#[test]
fn masked_atomics_need_an_extended_mode() {
    let mut rig = RdmaRig::new();
    let key = rig.key;
    let (word, result) = (rig.memory(4096), rig.memory(4096));
    let swap = masked(0x00ff, 0x1100, 0x0fff, 0xff00);
    let add = masked(0x0103, 0, 0x8080_8080_8080_8080, 0);
    let (mut a, _) = rig.pair(QpType::RC, Link { atomic_mode: AtomicMode::ONLY_8B, ..Link::default() });
    let cases = [
        // The upper byte compares equal; twelve bits are swapped.
        (WqeOpcode::ATOMIC_MASKED_CS, swap.clone(), 0x1155, 0x10ff),
        (WqeOpcode::ATOMIC_MASKED_CS, swap.clone(), 0x2255, 0x2255),
        // Bytes do not carry into each other.
        (WqeOpcode::ATOMIC_MASKED_FA, add, 0xff_fe, 0x00_01),
    ];
    for (opcode, operands, before, after) in cases {
        rig.write(word, &u64::to_be_bytes(before));
        rig.send(&mut a, opcode, &[remote(word, key), operands, data(8, key, result)].concat());
        let cqe = rig.poll(&mut a.cq);
        success(cqe, CqeOpcode::REQ);
        assert_eq!(rig.read(result, 8), u64::to_be_bytes(before));
        assert_eq!(rig.read(word, 8), u64::to_be_bytes(after), "{opcode}");
    }
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    rig.send(&mut a, WqeOpcode::ATOMIC_MASKED_CS, &[remote(word, key), swap, data(8, key, result)].concat());
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_INVAL_REQ_ERR);
}

#[test]
fn unsignalled_entries_complete_with_the_next_signalled_one() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let to = rig.memory(4096);
    for i in 0..5u8 {
        let mut segments = remote(to + u64::from(i), key);
        segments.extend(inline(&[i + 1]));
        rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &segments, |ctrl| ctrl.set_ce(if i == 4 { 2 } else { 0 }));
    }
    rig.ring_send(&a);
    rig.settle();
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(success(cqe, CqeOpcode::REQ).wqe_counter(), 4);
    nothing(&mut rig, &mut a.cq);
    assert_eq!(rig.read(to, 5), [1, 2, 3, 4, 5]);
}

#[test]
fn a_write_with_immediate_takes_a_receive_entry_and_leaves_its_buffer() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, to) = (rig.memory(1 << 13), rig.memory(1 << 13));
    let bytes = rig.pattern(from, 3000, 7);
    rig.post_receive(&mut b, &[]);
    let mut segments = remote(to, key);
    segments.extend(data(3000, key, from));
    rig.post_send(&mut a, WqeOpcode::RDMA_WRITE_IMM, &segments, |ctrl| ctrl.set_imm(5));
    rig.ring_send(&a);
    rig.settle();
    let cqe = rig.poll(&mut b.cq);
    let cqe = success(cqe, CqeOpcode::RESP_WR_IMM);
    assert_eq!((cqe.byte_cnt(), cqe.immediate()), (3000, 5));
    assert_eq!(rig.read(to, 3000), bytes);
}

#[test]
fn a_sender_waits_until_the_receiver_is_ready() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, to) = (rig.memory(1 << 13), rig.memory(1 << 13));
    let bytes = rig.pattern(from, 5000, 7);
    rig.send(&mut a, WqeOpcode::SEND, &data(5000, key, from));
    nothing(&mut rig, &mut a.cq);
    rig.post_receive(&mut b, &data(8192, key, to));
    nothing(&mut rig, &mut b.cq);
    rig.pass(10_000);
    let (sent, received) = (rig.poll(&mut a.cq), rig.poll(&mut b.cq));
    success(sent, CqeOpcode::REQ);
    assert_eq!(success(received, CqeOpcode::RESP_SEND).byte_cnt(), 5000);
    assert_eq!(rig.read(to, 5000), bytes);
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_connection() {
    let mut rig = RdmaRig::new();
    let (mut a, b) = rig.pair(QpType::RC, Link { rnr_retries: 2, ..Link::default() });
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"x"));
    rig.pass(10_000);
    nothing(&mut rig, &mut a.cq);
    rig.pass(10_000);
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::RNR_RETRY_EXC_ERR);
    assert_eq!((state(&mut rig, a.qpn), state(&mut rig, b.qpn)), (QpState::ERR, QpState::RTS));
}

#[test]
fn a_peer_that_never_answers_ends_the_connection() {
    let mut rig = RdmaRig::new();
    let (mut a, b) = rig.pair(QpType::RC, Link { retries: 2, timeout: 10, ..Link::default() });
    rig.ok(&crate::testing::queues::QueueRig::naming(0x50a, b.qpn), 16);
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"x"));
    for _ in 0..3 {
        nothing(&mut rig, &mut a.cq);
        rig.pass(4096 << 10);
    }
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
}

/// What a request with this key comes to, at both ends.
fn refused(rig: &mut RdmaRig, opcode: WqeOpcode, segments: &[u8]) -> (CqeSyndrome, QpState, Option<u8>) {
    let (mut a, b) = rig.pair(QpType::RC, Link::default());
    rig.send(&mut a, opcode, segments);
    let cqe = rig.poll(&mut a.cq);
    let syndrome = failure(cqe, CqeOpcode::REQ_ERR);
    assert_eq!(state(rig, a.qpn), QpState::ERR);
    let event = rig.take_async_event().map(|eqe| eqe[1]);
    (syndrome, state(rig, b.qpn), event)
}

#[test]
fn a_request_beyond_its_key_touches_nothing_and_ends_both() {
    let mut rig = RdmaRig::new();
    let page = rig.memory(8192);
    let list = (page | 3).to_be_bytes();
    let bound = |mkc: &mut crate::prm::mkey::Mkc<&mut [u8]>| {
        mkc.set_access_mode_1_0(1);
        mkc.set_log_page_size(12);
        mkc.set_start_addr(0x1000);
        mkc.set_len(4096);
        mkc.set_translations_octword_size(1);
    };
    let key = rig.create_listed_key(&list, bound);
    let no_write = rig.create_listed_key(&list, |mkc| {
        bound(mkc);
        mkc.set_rw(0);
    });
    let no_read = rig.create_listed_key(&list, |mkc| {
        bound(mkc);
        mkc.set_rr(0);
    });
    let no_atomic = rig.create_listed_key(&list, |mkc| {
        bound(mkc);
        mkc.set_a(0);
    });
    let pd = rig.pd();
    let other_pd = rig.create_listed_key(&list, |mkc| {
        bound(mkc);
        mkc.set_pd(pd);
    });
    let (all, sink) = (rig.key, rig.memory(8192));
    let write = |va, key| [remote(va, key), inline(&[7; 16])].concat();
    let read = |va, key| [remote(va, key), data(16, all, sink)].concat();
    let fetch = |va, key| [remote(va, key), atomic(1, 0), data(8, all, sink)].concat();
    rig.write(page, &[0xaa; 8192]);
    let access = (CqeSyndrome::REMOTE_ACCESS_ERR, QpState::ERR, Some(EventType::WQ_ACCESS_ERROR.0));
    let invalid = (CqeSyndrome::REMOTE_INVAL_REQ_ERR, QpState::ERR, Some(EventType::WQ_INVAL_REQ_ERROR.0));
    let cases = [
        (WqeOpcode::RDMA_WRITE, write(0x1ff1, key), access),
        (WqeOpcode::RDMA_WRITE, write(0xfff, key), access),
        (WqeOpcode::RDMA_WRITE, write(u64::MAX - 7, key), access),
        (WqeOpcode::RDMA_WRITE, write(0x1000, key + 1), access),
        (WqeOpcode::RDMA_WRITE, write(0x1000, 0x00ff_ff00), access),
        (WqeOpcode::RDMA_WRITE, write(0x1000, no_write), access),
        (WqeOpcode::RDMA_WRITE, write(0x1000, other_pd), access),
        (WqeOpcode::RDMA_READ, read(0x1ff1, key), access),
        (WqeOpcode::RDMA_READ, read(0x1000, no_read), access),
        (WqeOpcode::ATOMIC_FA, fetch(0x1ff9, key), invalid),
        (WqeOpcode::ATOMIC_FA, fetch(0x2000, key), access),
        (WqeOpcode::ATOMIC_FA, fetch(0x1004, key), invalid),
        (WqeOpcode::ATOMIC_FA, fetch(0x1000, no_atomic), access),
    ];
    for (i, (opcode, segments, expected)) in cases.into_iter().enumerate() {
        assert_eq!(refused(&mut rig, opcode, &segments), expected, "{i} {opcode}");
        assert_eq!(rig.read(page, 8192), [0xaa; 8192], "{i} {opcode}");
    }
    // The last byte is inside.
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &write(0x1ff0, key));
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(page + 0xff0, 17), [vec![7; 16], vec![0xaa]].concat());
}

#[test]
fn a_queue_pair_that_allows_nothing_refuses_requests_as_invalid() {
    let mut rig = RdmaRig::new();
    let key = rig.key;
    let at = rig.memory(4096);
    for (opcode, segments) in [
        (WqeOpcode::RDMA_WRITE, [remote(at, key), inline(&[1])].concat()),
        (WqeOpcode::RDMA_READ, [remote(at, key), data(8, key, at)].concat()),
        (WqeOpcode::ATOMIC_FA, [remote(at, key), atomic(1, 0), data(8, key, at)].concat()),
    ] {
        let (mut a, b) = rig.pair(QpType::RC, Link { access: false, ..Link::default() });
        rig.send(&mut a, opcode, &segments);
        let cqe = rig.poll(&mut a.cq);
        assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_INVAL_REQ_ERR, "{opcode}");
        assert_eq!(state(&mut rig, b.qpn), QpState::ERR);
    }
    assert_eq!(rig.read(at, 8), [0; 8]);
}

#[test]
fn local_errors_stop_before_anything_is_sent() {
    let mut rig = RdmaRig::new();
    let key = rig.key;
    let at = rig.memory(4096);
    let no_local_write = rig.create_key(|mkc| mkc.set_lw(0));
    let cases: [(WqeOpcode, Vec<u8>, CqeSyndrome); 9] = [
        (WqeOpcode::SEND, data(8, key + 1, at), CqeSyndrome::LOCAL_PROT_ERR),
        (WqeOpcode::SEND, data(8, key, u64::MAX - 3), CqeSyndrome::LOCAL_PROT_ERR),
        // Beyond guest memory.
        (WqeOpcode::SEND, data(8, key, 1 << 40), CqeSyndrome::LOCAL_PROT_ERR),
        // The reserved key is the driver's.
        (WqeOpcode::SEND, data(8, 0x200, at), CqeSyndrome::LOCAL_PROT_ERR),
        (WqeOpcode::SEND, data(0x7fff_ffff, key, at), CqeSyndrome::LOCAL_LENGTH_ERR),
        (WqeOpcode::SEND, data(0, key, at), CqeSyndrome::LOCAL_LENGTH_ERR),
        (WqeOpcode(0x7e), vec![], CqeSyndrome::LOCAL_QP_OP_ERR),
        (WqeOpcode::RDMA_WRITE, vec![], CqeSyndrome::LOCAL_QP_OP_ERR),
        (WqeOpcode::RDMA_READ, [remote(at, key), data(8, no_local_write, at)].concat(), CqeSyndrome::LOCAL_PROT_ERR),
    ];
    for (i, (opcode, segments, expected)) in cases.into_iter().enumerate() {
        let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
        rig.post_receive(&mut b, &data(64, key, at));
        rig.post_send(&mut a, opcode, &segments, |ctrl| ctrl.set_ce(0));
        rig.post_send(&mut a, WqeOpcode::SEND, &inline(b"later"), |_| {});
        rig.ring_send(&a);
        rig.settle();
        let (first, second) = (rig.poll(&mut a.cq), rig.poll(&mut a.cq));
        assert_eq!(first.as_ref().map(Cqe::wqe_counter), Some(0), "{i}");
        assert_eq!(failure(first, CqeOpcode::REQ_ERR), expected, "{i}");
        assert_eq!(failure(second, CqeOpcode::REQ_ERR), CqeSyndrome::WR_FLUSH_ERR, "{i}");
        assert_eq!((state(&mut rig, a.qpn), state(&mut rig, b.qpn)), (QpState::ERR, QpState::RTS), "{i}");
        // What is behind a READ may be under way when the READ's data cannot be put.
        if opcode != WqeOpcode::RDMA_READ {
            nothing(&mut rig, &mut b.cq);
        }
    }
}

#[test]
fn entries_of_impossible_sizes_fail_and_those_behind_are_flushed() {
    let mut rig = RdmaRig::new();
    for (ds, qpn_off) in [(0, 0), (63, 0), (2, 1)] {
        let (mut a, _) = rig.pair(QpType::RC, Link::default());
        rig.post_send(&mut a, WqeOpcode::SEND, &inline(b"x"), |ctrl| {
            ctrl.set_ds(ds);
            let qpn = ctrl.qpn();
            ctrl.set_qpn(qpn + qpn_off);
        });
        rig.ring_send(&a);
        rig.settle();
        let cqe = rig.poll(&mut a.cq);
        assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::LOCAL_QP_OP_ERR);
        nothing(&mut rig, &mut a.cq);
    }
}

#[test]
fn a_ring_index_far_ahead_is_a_catastrophe() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    a.sent = 65;
    rig.ring_send(&a);
    let eqe = rig.take_async_event().expect("an event");
    assert_eq!(eqe[1], EventType::WQ_CATAS_ERROR.0);
    assert_eq!(state(&mut rig, a.qpn), QpState::ERR);
    nothing(&mut rig, &mut a.cq);
}

#[test]
fn a_message_longer_than_the_receive_list_fails_at_both_ends() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let to = rig.memory(4096);
    rig.post_receive(&mut b, &data(4, key, to));
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"hello"));
    let (sent, received) = (rig.poll(&mut a.cq), rig.poll(&mut b.cq));
    assert_eq!(failure(sent, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    assert_eq!(failure(received, CqeOpcode::RESP_ERR), CqeSyndrome::LOCAL_LENGTH_ERR);
    assert_eq!(rig.read(to + 4, 1), [0]);
}

#[test]
fn a_bad_receive_buffer_is_the_receivers_fault() {
    let mut rig = RdmaRig::new();
    let pd = rig.pd();
    let other = rig.create_key(|mkc| mkc.set_pd(pd));
    let at = rig.memory(4096);
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    rig.post_receive(&mut b, &data(64, other, at));
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"hello"));
    let (sent, received) = (rig.poll(&mut a.cq), rig.poll(&mut b.cq));
    assert_eq!(failure(sent, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_OP_ERR);
    assert_eq!(failure(received, CqeOpcode::RESP_ERR), CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!((state(&mut rig, a.qpn), state(&mut rig, b.qpn)), (QpState::ERR, QpState::ERR));
}

#[test]
fn in_error_everything_posted_is_flushed_also_what_is_posted_later() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    for _ in 0..3 {
        rig.post_receive(&mut b, &[]);
    }
    rig.ok(&crate::testing::queues::QueueRig::naming(0x507, b.qpn), 16);
    rig.settle();
    for i in 0..3 {
        let cqe = rig.poll(&mut b.cq);
        assert_eq!(cqe.as_ref().map(Cqe::wqe_counter), Some(i));
        assert_eq!(failure(cqe, CqeOpcode::RESP_ERR), CqeSyndrome::WR_FLUSH_ERR);
    }
    nothing(&mut rig, &mut b.cq);
    rig.post_receive(&mut b, &[]);
    rig.pass(5_000_000);
    let cqe = rig.poll(&mut b.cq);
    assert_eq!(failure(cqe, CqeOpcode::RESP_ERR), CqeSyndrome::WR_FLUSH_ERR);
    rig.send(&mut b, WqeOpcode::SEND, &inline(b"x"));
    let cqe = rig.poll(&mut b.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::WR_FLUSH_ERR);
    // The peer notices by itself.
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"x"));
    nothing(&mut rig, &mut a.cq);
}

#[test]
fn a_reset_forgets_everything_and_starts_at_the_first_entry() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let to = rig.memory(4096);
    rig.post_receive(&mut b, &data(64, key, to));
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"one"));
    for qp in [&mut a, &mut b] {
        rig.ok(&crate::testing::queues::QueueRig::naming(0x50a, qp.qpn), 16);
        (qp.sent, qp.received) = (0, 0);
        let record = qp.record;
        rig.write(record, &[0; 8]);
    }
    rig.connect(a.qpn, b.qpn, Link { psn: 77, mtu: QpMtu::MTU_256, ..Link::default() });
    rig.connect(b.qpn, a.qpn, Link { psn: 77, mtu: QpMtu::MTU_256, ..Link::default() });
    let (_, _) = (rig.poll(&mut a.cq), rig.poll(&mut b.cq));
    rig.post_receive(&mut b, &data(64, key, to));
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"two"));
    let cqe = rig.poll(&mut b.cq);
    assert_eq!(success(cqe, CqeOpcode::RESP_SEND).wqe_counter(), 0);
    assert_eq!(rig.read(to, 3), b"two");
    let context = rig.query(a.qpn);
    assert_eq!((context.next_send_psn(), context.last_acked_psn(), context.hw_sq_wqebb_counter()), (78, 77, 1));
    assert_eq!(rig.query(b.qpn).next_rcv_psn(), 78);
}

#[test]
fn a_key_that_is_destroyed_in_the_middle_ends_the_transfer() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_256, ..Link::default() });
    let (from, to) = (rig.memory(1 << 20), rig.memory(1 << 20));
    let local = rig.key;
    let key = rig.create_key(|_| {});
    rig.pattern(from, 1 << 20, 1);
    let mut segments = remote(to, key);
    segments.extend(data(1 << 20, local, from));
    rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &segments, |_| {});
    rig.ring_send(&a);
    assert!(rig.function.work().more, "a megabyte takes more than one portion");
    nothing(&mut rig, &mut a.cq);
    rig.destroy_key(key);
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(rig.read(to + (1 << 20) - 1, 1), [0]);
}

#[test]
fn a_long_transfer_lets_others_in_between() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let (mut c, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, to) = (rig.memory(4 << 20), rig.memory(4 << 20));
    let mut segments = remote(to, key);
    segments.extend(data(4 << 20, key, from));
    rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &segments, |_| {});
    rig.ring_send(&a);
    rig.function.work();
    rig.post_send(&mut c, WqeOpcode::RDMA_WRITE, &[remote(to, key), inline(b"x")].concat(), |_| {});
    rig.ring_send(&c);
    rig.function.work();
    let cqe = rig.poll(&mut c.cq);
    success(cqe, CqeOpcode::REQ);
    nothing(&mut rig, &mut a.cq);
    rig.settle();
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
}

#[test]
fn a_full_completion_queue_stops_its_queue_pair_and_no_other() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let (mut c, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let to = rig.memory(4096);
    for _ in 0..5 {
        for _ in 0..60 {
            rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), inline(b"x")].concat(), |_| {});
        }
        rig.ring_send(&a);
        rig.settle();
    }
    assert_eq!(state(&mut rig, a.qpn), QpState::ERR);
    let events: Vec<u8> = std::iter::from_fn(|| rig.take_async_event()).map(|eqe| eqe[1]).collect();
    assert_eq!(events, [EventType::CQ_ERROR.0, EventType::WQ_CATAS_ERROR.0]);
    rig.send(&mut c, WqeOpcode::RDMA_WRITE, &[remote(to, key), inline(b"x")].concat());
    let cqe = rig.poll(&mut c.cq);
    success(cqe, CqeOpcode::REQ);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, mid, to) = (rig.memory(1 << 16), rig.memory(1 << 16), rig.memory(1 << 16));
    let bytes = rig.pattern(from, 50_000, 5);
    for fence in [2, 3, 4] {
        rig.write(mid, &vec![0; 50_000]);
        rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(50_000, key, mid)].concat(), |_| {});
        let write = [remote(to, key), data(50_000, key, mid)].concat();
        rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &write, |ctrl| ctrl.set_fence(fence));
        rig.ring_send(&a);
        rig.settle();
        assert_eq!(rig.read(to, 50_000), bytes, "fence {fence}");
        rig.write(to, &vec![0; 50_000]);
    }
}

/// Works through requests of every kind over a wire with faults: each takes effect exactly once, in order.
fn survive(rules: &[&str]) -> (u64, u64) {
    let mut rig = RdmaRig::new();
    let rules: Vec<_> = rules.iter().map(|rule| FaultRule::parse(rule).expect("a rule")).collect();
    rig.function.hca_mut().faults = super::fault::Faults::new(&rules);
    let (mut a, mut b) = rig.pair(QpType::RC, Link { timeout: 8, mtu: QpMtu::MTU_256, ..Link::default() });
    let key = rig.key;
    let (from, to, word, result) = (rig.memory(1 << 14), rig.memory(1 << 14), rig.memory(4096), rig.memory(4096));
    for round in 0..40u64 {
        let len = 1 + (round as usize * 977) % 3000;
        let bytes = rig.pattern(from, len, round as u8);
        rig.write(to, &[0; 9000]);
        rig.post_receive(&mut b, &data(4096, key, to));
        rig.post_send(&mut a, WqeOpcode::SEND, &data(len as u32, key, from), |_| {});
        let write = [remote(to + 4096, key), data(len as u32, key, from)].concat();
        rig.post_send(&mut a, WqeOpcode::RDMA_WRITE, &write, |_| {});
        let add = [remote(word, key), atomic(1, 0), data(8, key, result)].concat();
        rig.post_send(&mut a, WqeOpcode::ATOMIC_FA, &add, |_| {});
        let read = [remote(from, key), data(len as u32, key, result + 64)].concat();
        rig.post_send(&mut a, WqeOpcode::RDMA_READ, &read, |_| {});
        rig.ring_send(&a);
        let mut done = vec![];
        for _ in 0..400 {
            while let Some(cqe) = rig.poll(&mut a.cq) {
                done.push(success(Some(cqe), CqeOpcode::REQ).wqe_counter());
            }
            if done.len() == 4 {
                break;
            }
            rig.pass(300_000);
        }
        assert_eq!(done.len(), 4, "round {round}: {done:?}");
        assert!(done.is_sorted_by_key(|counter| counter.wrapping_sub(done[0])), "{done:?}");
        let cqe = rig.poll(&mut b.cq);
        assert_eq!(success(cqe, CqeOpcode::RESP_SEND).byte_cnt(), len as u32);
        nothing(&mut rig, &mut b.cq);
        assert_eq!(rig.read(to, len), bytes, "round {round}");
        assert_eq!(rig.read(to + 4096, len), bytes, "round {round}");
        assert_eq!(rig.read(result + 64, len), bytes, "round {round}");
        assert_eq!(rig.read(result, 8), round.to_be_bytes(), "an atomic operation is done once");
        assert_eq!(rig.read(word, 8), (round + 1).to_be_bytes());
    }
    let summary = rig.function.summary();
    (summary.rdma.retries, summary.rdma.timeouts)
}

#[test]
fn lost_packets_are_sent_again() {
    let (retries, timeouts) = survive(&["drop:every=17"]);
    assert!(retries > 0 && timeouts > 0);
    survive(&["drop:kind=ack,every=2"]);
    survive(&["drop:kind=read-response,every=13"]);
    survive(&["drop:kind=atomic-response,every=3"]);
    survive(&["drop:kind=request,every=13"]);
}

#[test]
fn doubled_packets_take_effect_once() {
    assert_eq!(survive(&["duplicate:every=1"]).1, 0);
    survive(&["duplicate:every=3", "drop:every=11"]);
}

#[test]
fn late_packets_are_overtaken_and_sent_again() {
    survive(&["delay:us=100,every=19"]);
    survive(&["delay:us=2500,every=29"]);
    survive(&["delay:us=700,every=31", "drop:every=47", "duplicate:every=7"]);
}

#[test]
fn without_faults_nothing_is_sent_again() {
    assert_eq!(survive(&[]), (0, 0));
}

/// Long messages of every kind; what was counted, and the sequence numbers at the end.
fn long_messages(service: QpType, rules: &[&str]) -> (u64, u64, Vec<u32>) {
    let mut rig = RdmaRig::new();
    let rules: Vec<_> = rules.iter().map(|rule| FaultRule::parse(rule).expect("a rule")).collect();
    rig.function.hca_mut().faults = super::fault::Faults::new(&rules);
    let (mut a, mut b) = rig.pair(service, Link { mtu: QpMtu::MTU_256, ..Link::default() });
    let key = rig.key;
    const ROOM: u64 = 1 << 18;
    let [from, sent, written, read] = [0; 4].map(|_| rig.memory(ROOM));
    for len in [255u32, 256, 257, 65_535, 65_536, 65_537, 200_001] {
        let bytes = rig.pattern(from, len as usize, len as u8);
        rig.post_receive(&mut b, &data(ROOM as u32, key, sent));
        rig.send(&mut a, WqeOpcode::SEND, &data(len, key, from));
        let write = [remote(written, key), data(len, key, from)].concat();
        rig.send(&mut a, WqeOpcode::RDMA_WRITE, &write);
        let mut places = vec![sent, written];
        if service == QpType::RC {
            rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(len, key, read)].concat());
            places.push(read);
        }
        for place in places {
            let cqe = rig.poll(&mut a.cq);
            success(cqe, CqeOpcode::REQ);
            assert!(rig.read(place, len as usize) == bytes, "{len} bytes");
        }
    }
    let traffic = rig.function.summary().rdma;
    let flow = |qpn| &rig.function.hca().objects.qps.get(qpn).expect("alive").object.flow;
    let numbers = [flow(a.qpn).requester.psn, flow(a.qpn).requester.unacked, flow(b.qpn).responder.expected];
    (traffic.packets, traffic.bytes, numbers.to_vec())
}

#[test]
fn a_train_counts_for_its_packets() {
    for service in [QpType::RC, QpType::UC] {
        // A rule makes every packet travel alone; this one hits none.
        let alone = long_messages(service, &["drop:qpn=0x123456"]);
        let together = long_messages(service, &[]);
        assert_eq!((together.1, &together.2), (alone.1, &alone.2), "{service:?}");
        // Acknowledgements may be fewer.
        assert!(alone.0 > 3000 && alone.0 - together.0.min(alone.0) < 20, "{} {}", alone.0, together.0);
    }
}

#[test]
fn a_train_of_which_a_part_was_received_before_is_not_received_again() {
    use super::packet::{Head, Operation, Packet, Payload, psn_add};
    let mut rig = RdmaRig::new();
    let (mut a, b) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_256, ..Link::default() });
    let (key, from, to) = (rig.key, rig.memory(4096), rig.memory(4096));
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), data(1024, key, from)].concat());
    let (expected, address) = {
        let flow = |qpn| &rig.function.hca().objects.qps.get(qpn).expect("alive").object.flow;
        let mut address = flow(a.qpn).settings.path;
        address.source = address.dest;
        (flow(b.qpn).responder.expected, address)
    };
    let head = Head {
        operation: Operation::WriteOnly,
        source: a.qpn,
        dest: b.qpn,
        psn: psn_add(expected, super::packet::PSN_MASK - 1),
        train: 3,
        ack_request: true,
        remote: super::packet::Remote { va: to, key, len: 1024 },
        address,
        ..Head::default()
    };
    let mut deliver = |head: Head| {
        let mut bus = crate::dma::Bus::new(0);
        let packet = Packet { head, len: 1024, payload: Payload::Held(vec![0x77; 1024]) };
        super::Portion { hca: rig.function.hca_mut(), bus: &mut bus, now: 0, spent: 0, cut: None }.deliver(&packet);
        rig.function.hca().objects.qps.get(b.qpn).expect("alive").object.flow.responder.expected
    };
    assert_eq!(deliver(head), expected);
    assert_eq!(deliver(Head { psn: psn_add(head.psn, super::packet::PSN_MASK - 3), ..head }), expected, "all of it");
}

#[test]
fn an_unreliable_queue_pair_stops_sending_only_and_can_go_on() {
    let mut rig = RdmaRig::new();
    let key = rig.key;
    let to = rig.memory(4096);
    let (mut a, mut b) = rig.pair(QpType::UC, Link::default());
    for _ in 0..2 {
        rig.post_receive(&mut b, &data(64, key, to));
    }
    rig.post_receive(&mut a, &data(64, key, to + 64));
    rig.post_send(&mut a, WqeOpcode::SEND, &data(8, key + 1, to), |_| {});
    rig.post_send(&mut a, WqeOpcode::SEND, &inline(b"lost"), |_| {});
    rig.ring_send(&a);
    rig.settle();
    let (first, second) = (rig.poll(&mut a.cq), rig.poll(&mut a.cq));
    assert_eq!(failure(first, CqeOpcode::REQ_ERR), CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!(failure(second, CqeOpcode::REQ_ERR), CqeSyndrome::WR_FLUSH_ERR);
    assert_eq!(state(&mut rig, a.qpn), QpState::SQER);
    // It still receives.
    rig.send(&mut b, WqeOpcode::SEND, &inline(b"to a"));
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::RESP_SEND);
    assert_eq!(rig.read(to + 64, 4), b"to a");
    rig.modify(0x506, a.qpn, |_| {});
    rig.send(&mut a, WqeOpcode::SEND, &inline(b"again"));
    let (sent, received) = (rig.poll(&mut a.cq), rig.poll(&mut b.cq));
    let (_, arrived) = (success(sent, CqeOpcode::REQ), received);
    let own = success(arrived, CqeOpcode::REQ);
    assert_eq!(own.send_wqe_opcode(), u32::from(WqeOpcode::SEND.0), "what b sent");
    let cqe = rig.poll(&mut b.cq);
    assert_eq!(success(cqe, CqeOpcode::RESP_SEND).byte_cnt(), 5);
    assert_eq!(rig.read(to, 5), b"again");
}

#[test]
fn datagrams_carry_their_headers_and_need_the_queue_key() {
    let mut rig = RdmaRig::new();
    let key = rig.key;
    let to = rig.memory(4096);
    let (mut a, mut b) = rig.pair(QpType::UD, Link::default());
    let mac = rig.function.hca().vport.mac();
    let send = |qpn: u32, q_key: u32, bytes: &[u8]| {
        let mut av = crate::prm::wqe::Av::zeroed();
        av.set_qkey(q_key);
        av.set_extended(1);
        av.set_dqp_dct(qpn);
        av.set_hop_limit(9);
        av.as_bytes_mut()[0x14..0x1a].copy_from_slice(&mac);
        av.as_bytes_mut()[0x20..].copy_from_slice(&crate::testing::rdma::GID);
        [av.as_bytes().to_vec(), inline(bytes)].concat()
    };
    rig.post_receive(&mut b, &data(1024, key, to));
    rig.send(&mut a, WqeOpcode::SEND, &send(b.qpn, 0x2222, b"wrong key"));
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    nothing(&mut rig, &mut b.cq);
    assert_eq!(rig.function.hca().vport.context.qkey_violation_counter(), 1);
    rig.send(&mut a, WqeOpcode::SEND, &send(b.qpn, 0x1111_1111, b"right"));
    let cqe = rig.poll(&mut b.cq);
    let cqe = success(cqe, CqeOpcode::RESP_SEND);
    assert_eq!((cqe.byte_cnt(), cqe.rqpn(), cqe.roce_l3_type()), (45, a.qpn, 2));
    assert_eq!(rig.read(to, 20), [0; 20]);
    assert_eq!(rig.read(to + 28, 2), [9, 17]);
    assert_eq!(rig.read(to + 40, 5), b"right");
    // Nothing is posted, or nobody is there: the datagram is gone, and the sender does not know.
    for qpn in [b.qpn, 0x3f_ffff] {
        rig.send(&mut a, WqeOpcode::SEND, &send(qpn, 0x8000_0000, b"lost"));
        let cqe = rig.poll(&mut a.cq);
        success(cqe, CqeOpcode::REQ);
    }
    // A buffer too small for the headers ends the receiver.
    rig.post_receive(&mut b, &data(39, key, to));
    rig.send(&mut a, WqeOpcode::SEND, &send(b.qpn, 0x1111_1111, b""));
    let cqe = rig.poll(&mut b.cq);
    assert_eq!(failure(cqe, CqeOpcode::RESP_ERR), CqeSyndrome::LOCAL_LENGTH_ERR);
}

/// Writes entry `index` of a shared receive queue: the entry that follows it, and one data segment.
fn shared_entry(rig: &mut RdmaRig, buffer: u64, index: u64, next: u16, segment: &[u8]) {
    let mut entry = vec![0; 16];
    entry[2..4].copy_from_slice(&next.to_be_bytes());
    entry.extend(segment);
    rig.write(buffer + 32 * index, &entry);
}

#[test]
fn a_shared_receive_queue_is_a_list_with_a_limit() {
    let mut rig = RdmaRig::new();
    let (pd, key) = (rig.pd, rig.key);
    let to = rig.memory(4096);
    let (input, record) = rig.create_rmp_in(pd, 4);
    let buffer = record - 4096;
    let rmpn = crate::testing::queues::number(&rig.ok(input.as_bytes(), 16));
    // 0, then 5, then 3, then 0 again, which is free by then.
    for (index, next) in [(0u64, 5u16), (5, 3), (3, 0)] {
        shared_entry(&mut rig, buffer, index, next, &data(64, key, to + 64 * index));
    }
    rig.write(record, &3u32.to_be_bytes());
    let receiver = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| {
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(rmpn);
    };
    let mut arm = crate::prm::srq::ModifyRmpIn::zeroed();
    arm.set_opcode(0x90d);
    arm.set_rmp_state(1);
    arm.set_rmpn(rmpn);
    arm.bitmask_mut().set_lwm(1);
    arm.ctx_mut().set_state(1);
    arm.ctx_mut().wq_mut().set_lwm(2);
    rig.ok(arm.as_bytes(), 16);
    let mut pairs: Vec<_> = (0..2)
        .map(|_| {
            let (a, b) = (rig.qp(QpType::RC), rig.qp_with(QpType::RC, receiver));
            rig.connect(a.qpn, b.qpn, Link::default());
            rig.connect(b.qpn, a.qpn, Link::default());
            (a, b)
        })
        .collect();
    for (i, (pair, index)) in [(0usize, 0u32), (1, 5), (0, 3)].into_iter().enumerate() {
        let (a, b) = &mut pairs[pair];
        rig.send(a, WqeOpcode::SEND, &inline(&[i as u8 + 1]));
        let cqe = rig.poll(&mut b.cq);
        assert_eq!(success(cqe, CqeOpcode::RESP_SEND).wqe_counter(), index);
        assert_eq!(rig.read(to + 64 * u64::from(index), 1), [i as u8 + 1]);
        let event = rig.take_async_event();
        match i {
            1 => {
                let eqe = event.expect("two left became one");
                assert_eq!(eqe[1], EventType::SRQ_RQ_LIMIT.0);
                assert_eq!(eqe[0x39..0x3c], rmpn.to_be_bytes()[1..]);
            }
            _ => assert!(event.is_none(), "{i}: {event:?}"),
        }
    }
    // In error a queue pair flushes nothing of it and says that it holds nothing.
    let qpn = pairs[1].1.qpn;
    rig.ok(&crate::testing::queues::QueueRig::naming(0x507, qpn), 16);
    let eqe = rig.take_async_event().expect("the last entry");
    assert_eq!((eqe[1], &eqe[0x39..0x3c]), (EventType::SRQ_LAST_WQE.0, &qpn.to_be_bytes()[1..]));
    let (_, b) = &mut pairs[1];
    let mut cq = b.cq.clone();
    nothing(&mut rig, &mut cq);
}

#[test]
fn an_xrc_request_goes_to_the_queue_that_it_names() {
    let mut rig = RdmaRig::new();
    let (pd, key) = (rig.pd, rig.key);
    let other_pd = rig.pd();
    let xrcd = rig.xrcd();
    let to = rig.memory(4096);
    let mut cq = rig.cq();
    let internal = rig.create_xrc_srq(pd, xrcd, cq.cqn);
    // The queue's domain is not that of the queue pairs, and its keys are.
    let its_key = rig.create_key(|mkc| mkc.set_pd(other_pd));
    let (mut input, record) = rig.create_xrc_srq_in(other_pd, xrcd, cq.cqn);
    input.xrc_srq_context_entry_mut().set_user_index(0x77);
    let buffer = record - 4096;
    let srqn = crate::testing::queues::number(&rig.ok(input.as_bytes(), 16));
    shared_entry(&mut rig, buffer, 0, 1, &data(64, its_key, to));
    rig.write(record, &1u32.to_be_bytes());
    let mut a = rig.qp_with(QpType::XRC, |context| {
        context.set_xrcd(xrcd);
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(internal);
    });
    let b = rig.qp_with(QpType::XRC, |context| {
        context.set_xrcd(xrcd);
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(internal);
        context.set_no_sq(1);
    });
    rig.connect(a.qpn, b.qpn, Link::default());
    rig.connect(b.qpn, a.qpn, Link::default());
    let named = |number: u32| [&number.to_be_bytes()[..], &[0; 12]].concat();
    rig.send(&mut a, WqeOpcode::SEND, &[named(srqn), inline(b"hello")].concat());
    let cqe = rig.poll(&mut cq);
    let cqe = success(cqe, CqeOpcode::RESP_SEND);
    assert_eq!((cqe.srqn_user_index(), cqe.qpn(), cqe.byte_cnt()), (0x77, b.qpn, 5));
    assert_eq!(rig.read(to, 5), b"hello");
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    let write = |key| [named(srqn), remote(to, key), inline(b"write")].concat();
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &write(its_key));
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(to, 5), b"write");
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &write(key));
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_ACCESS_ERR);
}

#[test]
fn reserved_keys_are_no_keys_to_a_peer() {
    let mut rig = RdmaRig::new();
    let at = rig.memory(4096);
    let key = rig.key;
    let own_lkey = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| context.set_rlky(1);
    for reserved in [0x200, 0x300, 0x400] {
        for (opcode, segments) in [
            (WqeOpcode::RDMA_WRITE, [remote(at, reserved), inline(b"x")].concat()),
            (WqeOpcode::RDMA_READ, [remote(at, reserved), data(8, key, at + 64)].concat()),
            (WqeOpcode::ATOMIC_FA, [remote(at, reserved), atomic(1, 0), data(8, key, at + 64)].concat()),
        ] {
            let (mut a, b) = (rig.qp_with(QpType::RC, own_lkey), rig.qp_with(QpType::RC, own_lkey));
            rig.connect(a.qpn, b.qpn, Link::default());
            rig.connect(b.qpn, a.qpn, Link::default());
            rig.send(&mut a, opcode, &segments);
            let cqe = rig.poll(&mut a.cq);
            assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_ACCESS_ERR, "{opcode} {reserved:#x}");
        }
    }
    assert_eq!(rig.read(at, 8), [0; 8]);
    // To the queue itself the reserved lkey is one.
    let (mut a, b) = (rig.qp_with(QpType::RC, own_lkey), rig.qp(QpType::RC));
    rig.connect(a.qpn, b.qpn, Link::default());
    rig.connect(b.qpn, a.qpn, Link::default());
    rig.write(at + 128, b"mine");
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(at, key), data(4, 0x200, at + 128)].concat());
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(at, 4), b"mine");
}

#[test]
fn a_read_after_a_whole_lap_of_indices_goes_to_its_own_list() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let key = rig.key;
    let (from, first, second) = (rig.memory(4096), rig.memory(4096), rig.memory(4096));
    rig.write(from, b"data");
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(4, key, first)].concat());
    for _ in 0..0xffff / 51 {
        for _ in 0..51 {
            rig.post_send(&mut a, WqeOpcode::NOP, &[], |ctrl| ctrl.set_ce(0));
        }
        rig.ring_send(&a);
        rig.settle();
    }
    assert_eq!(a.sent, 0, "a whole lap");
    rig.write(first, &[0; 4]);
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(4, key, second)].concat());
    let (one, two) = (rig.poll(&mut a.cq), rig.poll(&mut a.cq));
    success(one, CqeOpcode::REQ);
    success(two, CqeOpcode::REQ);
    assert_eq!((rig.read(first, 4), rig.read(second, 4)), (vec![0; 4], b"data".to_vec()));
}

#[test]
fn a_read_whose_key_goes_in_the_middle_is_refused_as_such() {
    let mut rig = RdmaRig::new();
    let (mut a, b) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_256, retries: 0, timeout: 0, ..Link::default() });
    let (from, to, local) = (rig.memory(1 << 20), rig.memory(1 << 20), rig.key);
    let key = rig.create_key(|_| {});
    rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(1 << 20, local, to)].concat(), |_| {});
    rig.ring_send(&a);
    assert!(rig.function.work().more);
    nothing(&mut rig, &mut a.cq);
    rig.destroy_key(key);
    let cqe = rig.poll(&mut a.cq);
    assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(state(&mut rig, b.qpn), QpState::ERR);
}

#[test]
fn a_late_read_of_a_key_that_is_gone_disturbs_nobody() {
    let mut rig = RdmaRig::new();
    let late = FaultRule::parse("delay:us=50000,kind=read,nth=1").expect("a rule");
    rig.function.hca_mut().faults = super::fault::Faults::new(&[late]);
    let (mut a, b) = rig.pair(QpType::RC, Link { timeout: 8, ..Link::default() });
    let (from, to, local) = (rig.memory(4096), rig.memory(4096), rig.key);
    let key = rig.create_key(|_| {});
    rig.write(from, b"data");
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(4, local, to)].concat());
    for _ in 0..20 {
        rig.pass(1_000_000);
    }
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(to, 4), b"data", "it was asked for again");
    rig.destroy_key(key);
    for _ in 0..40 {
        rig.pass(1_000_000);
    }
    assert_eq!(rig.function.summary().wire_faults[0].hit, 1);
    assert_eq!([state(&mut rig, a.qpn), state(&mut rig, b.qpn)], [QpState::RTS; 2]);
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(from, local), data(4, local, to)].concat());
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
}

#[test]
fn what_follows_a_receiver_that_is_not_ready_costs_no_retry() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link { retries: 0, timeout: 0, ..Link::default() });
    let (key, to) = (rig.key, rig.memory(4096));
    rig.post_send(&mut a, WqeOpcode::RDMA_READ, &[remote(to, key), data(8, key, to + 8)].concat(), |_| {});
    for i in 0..3u8 {
        rig.post_send(&mut a, WqeOpcode::SEND, &inline(&[i]), |_| {});
    }
    rig.ring_send(&a);
    rig.settle();
    for i in 0..3 {
        rig.post_receive(&mut b, &data(8, key, to + 64 + 8 * i));
    }
    for _ in 0..5 {
        rig.pass(10_000);
    }
    for _ in 0..4 {
        let cqe = rig.poll(&mut a.cq);
        success(cqe, CqeOpcode::REQ);
    }
    for i in 0..3 {
        let cqe = rig.poll(&mut b.cq);
        success(cqe, CqeOpcode::RESP_SEND);
        assert_eq!(rig.read(to + 64 + 8 * i, 1), [i as u8]);
    }
}

#[test]
fn a_message_that_cannot_be_told_of_is_not_acknowledged() {
    let mut rig = RdmaRig::new();
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let (key, to) = (rig.key, rig.memory(4096));
    let mut outcomes = vec![];
    for _ in 0..257 {
        rig.post_receive(&mut b, &data(8, key, to));
        rig.send(&mut a, WqeOpcode::SEND, &inline(b"x"));
        let cqe = rig.poll(&mut a.cq).expect("a completion");
        outcomes.push(cqe.opcode());
    }
    let (last, before) = outcomes.split_last().expect("some");
    assert!(before.iter().all(|opcode| *opcode == u32::from(CqeOpcode::REQ.0)));
    assert_eq!(*last, u32::from(CqeOpcode::REQ_ERR.0), "the receiver's completion queue was full");
    assert_eq!((state(&mut rig, a.qpn), state(&mut rig, b.qpn)), (QpState::ERR, QpState::ERR));
}

#[test]
fn an_xrc_request_stays_in_its_domain() {
    let mut rig = RdmaRig::new();
    let (pd, key) = (rig.pd, rig.key);
    let (xrcd, foreign) = (rig.xrcd(), rig.xrcd());
    let to = rig.memory(4096);
    let cq = rig.cq();
    let internal = rig.create_xrc_srq(pd, xrcd, cq.cqn);
    let other = rig.create_xrc_srq(pd, foreign, cq.cqn);
    let named = |number: u32| [&number.to_be_bytes()[..], &[0; 12]].concat();
    let settings = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| {
        context.set_xrcd(xrcd);
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(internal);
    };
    for (srqn, allowed) in [(internal, true), (other, false), (0x7f_ffff, false)] {
        let (mut a, b) = (rig.qp_with(QpType::XRC, settings), rig.qp_with(QpType::XRC, settings));
        rig.connect(a.qpn, b.qpn, Link::default());
        rig.connect(b.qpn, a.qpn, Link::default());
        rig.write(to, &[0; 8]);
        rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[named(srqn), remote(to, key), inline(b"x")].concat());
        let cqe = rig.poll(&mut a.cq);
        if allowed {
            success(cqe, CqeOpcode::REQ);
        } else {
            assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_INVAL_REQ_ERR);
            assert_eq!(rig.read(to, 1), [0]);
        }
    }
}

#[test]
fn moving_to_error_once_more_looks_at_receives_at_once() {
    let mut rig = RdmaRig::new();
    let (_, mut b) = rig.pair(QpType::RC, Link::default());
    let to_error = crate::testing::queues::QueueRig::naming(0x507, b.qpn);
    rig.ok(&to_error, 16);
    // Long in error: the next look is seconds away.
    for _ in 0..14 {
        rig.pass(5_000_000_000);
    }
    rig.ok(&to_error, 16);
    rig.post_receive(&mut b, &[]);
    rig.send(&mut b, WqeOpcode::SEND, &inline(b"x"));
    rig.pass(1_100_000);
    let (one, two) = (rig.poll(&mut b.cq), rig.poll(&mut b.cq));
    assert_eq!(failure(one, CqeOpcode::REQ_ERR), CqeSyndrome::WR_FLUSH_ERR);
    assert_eq!(failure(two, CqeOpcode::RESP_ERR), CqeSyndrome::WR_FLUSH_ERR);
}

#[test]
fn an_unreadable_shared_queue_is_told_of_once() {
    let mut rig = RdmaRig::new();
    let pd = rig.pd;
    let (input, record) = rig.create_rmp_in(pd, 4);
    let rmpn = crate::testing::queues::number(&rig.ok(input.as_bytes(), 16));
    rig.write(record, &100u32.to_be_bytes());
    for round in 0..2 {
        let mut a = rig.qp(QpType::RC);
        let b = rig.qp_with(QpType::RC, |context| {
            context.set_rq_type(1);
            context.set_srqn_rmpn_xrqn(rmpn);
        });
        rig.connect(a.qpn, b.qpn, Link::default());
        rig.connect(b.qpn, a.qpn, Link::default());
        rig.send(&mut a, WqeOpcode::SEND, &inline(b"x"));
        let cqe = rig.poll(&mut a.cq);
        assert_eq!(failure(cqe, CqeOpcode::REQ_ERR), CqeSyndrome::REMOTE_OP_ERR);
        let events: Vec<u8> = std::iter::from_fn(|| rig.take_async_event()).map(|eqe| eqe[1]).collect();
        assert_eq!(events.contains(&EventType::SRQ_CATAS_ERROR.0), round == 0, "{events:?}");
        assert!(events.contains(&EventType::SRQ_LAST_WQE.0), "{events:?}");
    }
}

#[test]
fn data_in_very_many_parts_moves_as_any_other() {
    let mut rig = RdmaRig::new();
    let (mut a, _) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_256, ..Link::default() });
    let (key, from, to) = (rig.key, rig.memory(4096), rig.memory(8192));
    let bytes = rig.pattern(from, 600, 4);
    // One entry for each byte.
    let list: Vec<u8> = (0..600u64)
        .flat_map(|i| {
            let mut klm = vec![0, 0, 0, 1];
            klm.extend(key.to_be_bytes());
            klm.extend((from + i).to_be_bytes());
            klm
        })
        .collect();
    let scattered = rig.create_listed_key(&list, |mkc| {
        mkc.set_access_mode_1_0(2);
        mkc.set_len(600);
        mkc.set_translations_octword_size(600);
    });
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(to, key), data(600, scattered, 0)].concat());
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(to, 600), bytes);
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(0, scattered), data(600, key, to + 1024)].concat());
    let cqe = rig.poll(&mut a.cq);
    success(cqe, CqeOpcode::REQ);
    assert_eq!(rig.read(to + 1024, 600), bytes);
}
