//! Tests of the Ethernet send engine through its doorbell, ring and completions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::ethernet_tests::{CQ_BUFFER, Net, WQ_BUFFER, WQ_RECORD, number};
use crate::device::port::AdminStatus;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::event::EventType;
use crate::prm::mkey::CreateMkeyIn;
use crate::prm::opcode::Opcode;
use crate::prm::values::{CqeOpcode, CqeSyndrome, WqState, WqeOpcode};
use crate::prm::wqe::{CtrlSeg, DataSeg, EthSeg};
use crate::testing::FREE;
use crate::wire::Link;

pub(super) const DATA: u64 = FREE + 0x40_0000;

/// A link that keeps what it was given, and brings what a test puts there.
#[derive(Clone, Debug, Default)]
pub(super) struct Tap {
    sent: Rc<RefCell<Vec<Vec<u8>>>>,
    pub coming: Rc<RefCell<VecDeque<Vec<u8>>>>,
}

impl Link for Tap {
    fn carrier(&self) -> bool {
        true
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.sent.borrow_mut().push(frame.to_vec());
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let next = self.coming.borrow_mut().pop_front();
        next.map(|next| *frame = next).is_some()
    }
}

/// A ready send queue with a key for all memory.
pub(super) struct Sender {
    pub net: Net,
    pub tap: Tap,
    pub sqn: u32,
    pub key: u32,
    /// Blocks posted so far.
    posted: u16,
    buffer: u64,
    record: u64,
}

fn ready_queue(net: &mut Net, buffer: u64, record: u64) -> u32 {
    let tisn = net.create_tis();
    let mut input = net.sq(tisn);
    let mut context = input.ctx_mut();
    context.set_user_index(0xabc);
    let mut wq = context.wq_mut();
    wq.set_dbr_addr(record);
    wq.pas_mut().copy_from_slice(&buffer.to_be_bytes());
    let sqn = number(&net.must(Opcode::CREATE_SQ, input.into_inner(), 16));
    assert_eq!(net.modify_sq(sqn, WqState::RST, WqState::RDY, 0).status(), 0);
    sqn
}

impl Sender {
    fn new() -> Sender {
        Sender::with(&[])
    }

    pub fn with(sets: &[&str]) -> Sender {
        let mut net = Net::new(sets);
        let tap = Tap::default();
        net.rig.function.hca_mut().link = Box::new(tap.clone());
        let mut input = CreateMkeyIn::zeroed();
        let mut context = input.memory_key_mkey_entry_mut();
        context.set_lr(1);
        context.set_lw(1);
        context.set_length64(1);
        context.set_qpn(0xff_ffff);
        context.set_pd(net.pd);
        context.set_relaxed_ordering_write(1);
        context.set_relaxed_ordering_read(1);
        let key = number(&net.must(Opcode::CREATE_MKEY, input.into_inner(), 16)) << 8;
        let sqn = ready_queue(&mut net, WQ_BUFFER, WQ_RECORD);
        net.rig.write(CQ_BUFFER, &[0xf1; 4096]);
        let mac = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        net.rig.write(DATA, &mac);
        net.rig.write(DATA + 14, &(0..200u8).cycle().take(16384).collect::<Vec<_>>());
        Sender { net, tap, sqn, key, posted: 0, buffer: WQ_BUFFER, record: WQ_RECORD }
    }

    /// Puts an entry into the ring and counts it in the record.
    pub fn post(&mut self, opcode: WqeOpcode, ce: u32, body: &[u8]) {
        let mut entry = CtrlSeg::zeroed();
        entry.set_opcode(opcode.0.into());
        entry.set_qpn(self.sqn);
        entry.set_wqe_index(self.posted.into());
        entry.set_ce(ce);
        entry.set_ds(1 + body.len().div_ceil(16) as u32);
        let mut bytes = entry.into_inner();
        bytes.extend(body);
        self.post_raw(bytes);
    }

    fn post_raw(&mut self, mut bytes: Vec<u8>) {
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for block in bytes.chunks(64) {
            let at = self.buffer + u64::from(self.posted % 16) * 64;
            self.net.rig.write(at, block);
            self.posted = self.posted.wrapping_add(1);
        }
        let record = u32::from(self.posted).to_be_bytes();
        self.net.rig.write(self.record + 4, &record);
    }

    pub fn ring(&mut self) {
        self.ring_only();
        self.net.rig.settle();
    }

    pub fn ring_only(&mut self) {
        let at = u64::from(self.net.uar) * 4096 + 0x800;
        let mut doorbell = [0; 8];
        doorbell[4..].copy_from_slice(&(self.sqn << 8 | 1).to_be_bytes());
        self.net.rig.function.bar_write(at, &doorbell);
    }

    /// An Ethernet segment with `inline` header bytes.
    pub fn eth(inline: &[u8], edit: impl Fn(&mut EthSeg<Vec<u8>>)) -> Vec<u8> {
        let mut eth = EthSeg::zeroed();
        eth.set_inline_hdr_sz(inline.len() as u32);
        edit(&mut eth);
        let mut bytes = eth.into_inner();
        bytes.truncate(14);
        bytes.extend(inline);
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
    }

    pub fn data(&self, at: u64, len: u32) -> Vec<u8> {
        let mut segment = DataSeg::zeroed();
        segment.set_byte_count(len);
        segment.set_lkey(self.key);
        segment.set_addr(at);
        segment.into_inner()
    }

    /// A frame of `len` bytes by pointer.
    fn frame(&self, len: u32) -> Vec<u8> {
        [Sender::eth(&[], |_| {}), self.data(DATA, len)].concat()
    }

    fn cqe(&self, slot: u64) -> Cqe<Vec<u8>> {
        Cqe::new(self.net.rig.read(CQ_BUFFER + slot * 64, 64)).unwrap()
    }

    fn error(&self, slot: u64) -> (CqeSyndrome, u32, u32) {
        let cqe = ErrCqe::new(self.net.rig.read(CQ_BUFFER + slot * 64, 64)).unwrap();
        assert_eq!((cqe.opcode(), cqe.qpn()), (CqeOpcode::REQ_ERR.0.into(), self.sqn));
        (CqeSyndrome(cqe.syndrome() as u8), cqe.wqe_counter(), cqe.vendor_err_synd())
    }

    fn no_cqe(&self, slot: u64) {
        assert_eq!(self.net.rig.read(CQ_BUFFER + slot * 64, 64), [0xf1; 64]);
    }

    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.tap.sent.borrow().clone()
    }

    fn state(&mut self) -> u32 {
        let sqn = self.sqn;
        self.net.query_sq(sqn).sq_context().state()
    }
}

#[test]
fn a_frame_leaves_and_its_entry_completes() {
    let mut s = Sender::new();
    s.net.rig.clock.advance(77);
    let body = s.frame(100);
    s.post(WqeOpcode::SEND, 2, &body);
    s.ring();
    let frames = s.frames();
    assert_eq!((frames.len(), &frames[0]), (1, &s.net.rig.read(DATA, 100)));
    let cqe = s.cqe(0);
    assert_eq!((cqe.opcode(), cqe.send_wqe_opcode(), cqe.qpn()), (0, WqeOpcode::SEND.0.into(), s.sqn));
    assert_eq!((cqe.wqe_counter(), cqe.srqn_user_index(), cqe.owner()), (0, 0xabc, 0));
    s.no_cqe(1);
    let hca = s.net.rig.function.hca();
    assert_eq!((hca.port.counters.tx.unicast, hca.port.counters.tx.octets), (1, 104));
    assert_eq!(hca.vport.counters.transmitted_eth_unicast.octets, 100);
}

#[test]
fn only_entries_that_ask_for_it_complete() {
    let mut s = Sender::new();
    s.post(WqeOpcode::NOP, 0, &[]);
    let body = s.frame(60);
    s.post(WqeOpcode::SEND, 0, &body);
    s.post(WqeOpcode::NOP, 2, &[]);
    s.post(WqeOpcode::NOP, 3, &[]);
    s.ring();
    assert_eq!((s.cqe(0).wqe_counter(), s.cqe(1).wqe_counter()), (2, 3));
    assert_eq!(s.cqe(0).send_wqe_opcode(), 0);
    s.no_cqe(2);
    assert_eq!(s.frames().len(), 1);
}

#[test]
fn the_record_and_not_the_doorbell_says_what_is_posted() {
    let mut s = Sender::new();
    s.ring();
    s.no_cqe(0);
    s.post(WqeOpcode::NOP, 2, &[]);
    s.post(WqeOpcode::NOP, 2, &[]);
    s.ring();
    s.ring();
    assert_eq!(s.cqe(1).wqe_counter(), 1);
    s.no_cqe(2);
    let sqn = s.sqn;
    let out = s.net.query_sq(sqn);
    assert_eq!((out.sq_context().wq().hw_counter(), out.sq_context().wq().sw_counter()), (2, 2));
}

#[test]
fn frames_are_made_of_inline_headers_and_segments() {
    let mut s = Sender::new();
    let headers = s.net.rig.read(DATA, 18);
    let inline = [&(1u32 << 31 | 20).to_be_bytes()[..], &[0x55; 20], &[0; 8]].concat();
    let body = [Sender::eth(&headers, |_| {}), s.data(DATA + 18, 30), inline, s.data(DATA + 100, 1)].concat();
    s.post(WqeOpcode::SEND, 2, &body);
    s.ring();
    let expected = [s.net.rig.read(DATA, 48), vec![0x55; 20], s.net.rig.read(DATA + 100, 1)].concat();
    assert_eq!(s.frames(), [expected]);
}

#[test]
fn entries_wrap_around_the_ring() {
    let mut s = Sender::new();
    for _ in 0..15 {
        s.post(WqeOpcode::NOP, 0, &[]);
    }
    s.ring();
    let segments: Vec<u8> = (0..5).flat_map(|i| s.data(DATA + i * 20, 20)).collect();
    let body = [Sender::eth(&[], |_| {}), segments].concat();
    s.post(WqeOpcode::SEND, 2, &body);
    s.ring();
    assert_eq!(s.frames(), [s.net.rig.read(DATA, 100)]);
    assert_eq!(s.cqe(0).wqe_counter(), 15);
}

#[test]
fn short_frames_are_padded_and_frames_beyond_the_mtu_are_dropped() {
    let mut s = Sender::new();
    let (short, long) = (s.frame(20), s.frame(1519));
    s.post(WqeOpcode::SEND, 2, &short);
    s.post(WqeOpcode::SEND, 2, &long);
    s.ring();
    let frames = s.frames();
    assert_eq!((frames.len(), frames[0].len()), (1, 60));
    assert_eq!(frames[0][20..], [0; 40]);
    assert_eq!(s.cqe(1).opcode(), 0, "dropped at the port, but sent by the queue");
    assert_eq!(s.net.rig.function.hca().port.counters.tx.discards, 1);
}

#[test]
fn a_port_without_link_drops_and_counts() {
    let mut s = Sender::new();
    s.net.rig.function.hca_mut().change_link(|hca| hca.port.set_admin(AdminStatus::Down));
    let body = s.frame(60);
    s.post(WqeOpcode::SEND, 2, &body);
    s.ring();
    assert!(s.frames().is_empty());
    assert_eq!(s.cqe(0).opcode(), 0);
    assert_eq!(s.net.rig.function.hca().port.counters.tx.discards, 1);
}

#[test]
fn checksums_are_filled_where_the_entry_asks() {
    let mut s = Sender::new();
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 7, 0, 8, 0, 12, 0, 0, 1, 2, 3, 4]);
    s.net.rig.write(DATA, &packet);
    let plain = [Sender::eth(&[], |_| {}), s.data(DATA, 46)].concat();
    let asked = [
        Sender::eth(&[], |eth| {
            eth.set_l3_csum(1);
            eth.set_l4_csum(1);
        }),
        s.data(DATA, 46),
    ]
    .concat();
    s.post(WqeOpcode::SEND, 0, &plain);
    s.post(WqeOpcode::SEND, 0, &asked);
    s.ring();
    let frames = s.frames();
    assert_eq!((&frames[0][24..26], &frames[0][40..42]), (&[0, 0][..], &[0, 0][..]));
    assert_eq!((&frames[1][24..26], &frames[1][40..42]), (&[0x66, 0xca][..], &[0xe7, 0xbe][..]));
}

#[test]
fn a_large_send_becomes_packets_of_the_segment_size() {
    let mut s = Sender::new();
    let mut headers = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    headers.extend([0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    headers.extend([0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
    let body = [Sender::eth(&headers, |eth| eth.set_mss(1000)), s.data(DATA, 2500)].concat();
    s.post(WqeOpcode::LSO, 2, &body);
    s.ring();
    let frames = s.frames();
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1054, 1054, 554]);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert_eq!(payload, s.net.rig.read(DATA, 2500));
    assert_eq!(s.cqe(0).send_wqe_opcode(), u32::from(WqeOpcode::LSO.0));
}

#[test]
fn a_failed_entry_stops_the_queue_and_flushes_the_rest() {
    let mut s = Sender::new();
    let body = s.frame(60);
    s.post(WqeOpcode::SEND, 0, &body);
    s.post(WqeOpcode::UMR, 0, &body);
    s.post(WqeOpcode::SEND, 0, &body);
    s.post(WqeOpcode::NOP, 2, &[]);
    s.ring();
    assert_eq!(s.frames().len(), 1);
    assert_eq!(s.error(0), (CqeSyndrome::LOCAL_QP_OP_ERR, 1, 1));
    assert_eq!(s.error(1), (CqeSyndrome::WR_FLUSH_ERR, 2, 0xf9));
    assert_eq!(s.error(2), (CqeSyndrome::WR_FLUSH_ERR, 3, 0xf9));
    s.no_cqe(3);
    assert_eq!(s.state(), u32::from(WqState::ERR.0));
    s.post(WqeOpcode::NOP, 0, &[]);
    s.ring();
    assert_eq!(s.error(3), (CqeSyndrome::WR_FLUSH_ERR, 4, 0xf9));
    // Through reset the queue works again, from its beginning.
    let sqn = s.sqn;
    assert_eq!(s.net.modify_sq(sqn, WqState::ERR, WqState::RST, 0).status(), 0);
    assert_eq!(s.net.modify_sq(sqn, WqState::RST, WqState::RDY, 0).status(), 0);
    s.posted = 0;
    s.post(WqeOpcode::SEND, 2, &body);
    s.ring();
    assert_eq!((s.frames().len(), s.cqe(4).opcode(), s.cqe(4).wqe_counter()), (2, 0, 0));
}

#[test]
fn entries_with_faults_fail_with_their_syndromes() {
    let frame = |s: &Sender| s.frame(60);
    type Fault = Box<dyn Fn(&mut Sender)>;
    let faults: Vec<(&str, Fault, CqeSyndrome, u32)> = vec![
        (
            "a stale key",
            Box::new(|s| {
                s.key |= 1;
                let body = s.frame(60);
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_PROT_ERR,
            7,
        ),
        (
            "memory that does not exist",
            Box::new(|s| {
                let body = [Sender::eth(&[], |_| {}), s.data(1 << 40, 60)].concat();
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_PROT_ERR,
            7,
        ),
        (
            "no MAC header",
            Box::new(|s| {
                let body = s.frame(13);
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_LENGTH_ERR,
            6,
        ),
        (
            "a segment of 2 GiB",
            Box::new(|s| {
                let body = s.frame(0);
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_LENGTH_ERR,
            6,
        ),
        (
            "a message beyond max_lso_cap",
            Box::new(|s| {
                let body = s.frame(1 << 20);
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_LENGTH_ERR,
            6,
        ),
        (
            "inline headers beyond the entry",
            Box::new(|s| {
                let mut eth = EthSeg::zeroed();
                eth.set_inline_hdr_sz(1023);
                s.post(WqeOpcode::SEND, 0, eth.as_bytes());
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            3,
        ),
        ("no Ethernet segment", Box::new(|s| s.post(WqeOpcode::SEND, 0, &[])), CqeSyndrome::LOCAL_QP_OP_ERR, 3),
        (
            "VLAN insertion",
            Box::new(|s| {
                let body = [Sender::eth(&[], |eth| eth.set_insert_vlan(1)), s.data(DATA, 60)].concat();
                s.post(WqeOpcode::SEND, 0, &body);
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            4,
        ),
        (
            "a large send that is no TCP",
            Box::new(|s| {
                let headers = s.net.rig.read(DATA, 54);
                let body = [Sender::eth(&headers, |eth| eth.set_mss(1000)), s.data(DATA, 60)].concat();
                s.post(WqeOpcode::LSO, 0, &body);
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            8,
        ),
        (
            "another queue's number",
            Box::new(move |s| {
                s.sqn += 1;
                let body = frame(s);
                s.post(WqeOpcode::SEND, 0, &body);
                s.sqn -= 1;
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            2,
        ),
        (
            "a size of 0",
            Box::new(|s| {
                let mut ctrl = CtrlSeg::zeroed();
                ctrl.set_qpn(s.sqn);
                s.post_raw(ctrl.into_inner());
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            3,
        ),
        (
            "a size beyond what is posted",
            Box::new(|s| {
                let mut ctrl = CtrlSeg::zeroed();
                ctrl.set_qpn(s.sqn);
                ctrl.set_ds(63);
                s.post_raw(ctrl.into_inner());
            }),
            CqeSyndrome::LOCAL_QP_OP_ERR,
            3,
        ),
    ];
    for (what, fault, syndrome, vendor) in faults {
        let mut s = Sender::new();
        fault(&mut s);
        s.ring();
        assert_eq!(s.error(0), (syndrome, 0, vendor), "{what}");
        assert!(s.frames().is_empty(), "{what}");
        s.no_cqe(1);
    }
}

#[test]
fn headers_must_be_inline_as_the_context_demands() {
    let mut s = Sender::new();
    let sqn = s.sqn;
    s.net.rig.function.hca_mut().objects.sqs.get_mut(sqn).unwrap().object.context.set_min_wqe_inline_mode(1);
    let headers = s.net.rig.read(DATA, 14);
    let enough = [Sender::eth(&headers, |_| {}), s.data(DATA + 14, 60)].concat();
    let short = [Sender::eth(&headers[..12], |_| {}), s.data(DATA + 12, 60)].concat();
    s.post(WqeOpcode::SEND, 2, &enough);
    s.post(WqeOpcode::SEND, 0, &short);
    s.ring();
    assert_eq!(s.cqe(0).opcode(), 0);
    assert_eq!(s.error(1), (CqeSyndrome::LOCAL_QP_OP_ERR, 1, 5));
}

#[test]
fn a_ring_that_cannot_be_read_is_reported_once_by_event() {
    let mut s = Sender::new();
    let events = s.net.rig.event_queue(1 << EventType::WQ_CATAS_ERROR.0);
    s.net.rig.write(WQ_RECORD + 4, &17u32.to_be_bytes());
    s.ring();
    s.ring();
    let eqe = s.net.rig.read(events, 64);
    assert_eq!((eqe[1], eqe[0x20 + 0x14]), (EventType::WQ_CATAS_ERROR.0, 2));
    assert_eq!(eqe[0x39..0x3c], s.sqn.to_be_bytes()[1..]);
    assert_eq!(s.net.rig.read(events + 64, 64)[1], 0xff);
    s.no_cqe(0);
    assert_eq!(s.state(), u32::from(WqState::ERR.0));
    // Memory outside of what the VMM mapped.
    let sqn = ready_queue(&mut s.net, 1 << 40, WQ_RECORD);
    s.net.rig.write(WQ_RECORD + 4, &1u32.to_be_bytes());
    s.sqn = sqn;
    s.ring();
    assert_eq!(s.net.rig.read(events + 64, 64)[0x39..0x3c], sqn.to_be_bytes()[1..]);
}

#[test]
fn queues_take_turns() {
    let mut s = Sender::new();
    let (buffer, record) = (FREE + 0x50_0000, FREE + 0x51_0000);
    let (first, second) = (s.sqn, ready_queue(&mut s.net, buffer, record));
    let fill = |s: &mut Sender, len: u32| {
        let body = s.frame(len);
        for _ in 0..16 {
            s.post(WqeOpcode::SEND, 0, &body);
        }
        s.ring_only();
    };
    fill(&mut s, 61);
    (s.sqn, s.buffer, s.record, s.posted) = (second, buffer, record, 0);
    fill(&mut s, 62);
    s.net.rig.function.work();
    let lens: Vec<usize> = s.frames().iter().map(Vec::len).collect();
    assert!(lens.contains(&61) && lens.contains(&62), "both moved in one portion");
    s.net.rig.settle();
    assert_eq!(s.frames().len(), 32);
    let executed = |s: &Sender, sqn| s.net.rig.function.hca().objects.sqs.get(sqn).unwrap().object.executed;
    assert_eq!((executed(&s, first), executed(&s, second)), (16, 16));
}

#[test]
fn doorbells_count_only_through_the_queues_own_page_and_while_it_lives() {
    let mut s = Sender::new();
    let body = s.frame(60);
    s.post(WqeOpcode::SEND, 2, &body);
    let (own, other) = (s.net.uar, number(&s.net.must(Opcode::ALLOC_UAR, vec![0; 16], 16)));
    s.net.uar = other;
    s.ring();
    s.no_cqe(0);
    s.net.uar = own;
    s.ring_only();
    let sqn = s.sqn;
    let mut destroy = vec![0; 16];
    destroy[8..12].copy_from_slice(&sqn.to_be_bytes());
    // The destroy is posted before the device works: it runs first, and nothing of the queue may happen after it.
    let answer = s.net.call(Opcode::DESTROY_SQ, destroy, 16);
    assert_eq!(answer.status(), 0);
    s.ring();
    s.no_cqe(0);
    assert!(s.frames().is_empty());
}

#[test]
fn putting_a_queue_into_error_flushes_what_is_posted() {
    let mut s = Sender::new();
    let body = s.frame(60);
    s.post(WqeOpcode::SEND, 0, &body);
    let sqn = s.sqn;
    s.net.modify_sq(sqn, WqState::RDY, WqState::ERR, 0);
    s.net.rig.settle();
    assert_eq!(s.error(0), (CqeSyndrome::WR_FLUSH_ERR, 0, 0xf9));
    assert!(s.frames().is_empty());
}

#[test]
fn a_full_completion_queue_stops_the_queue() {
    let mut s = Sender::new();
    for _ in 0..5 {
        for _ in 0..16 {
            s.post(WqeOpcode::NOP, 2, &[]);
        }
        s.ring();
    }
    assert_eq!(s.state(), u32::from(WqState::ERR.0), "64 completions fit, the 65th does not");
    assert_eq!(s.cqe(63).wqe_counter(), 63);
}

#[test]
fn a_receive_queue_in_error_flushes_what_is_posted() {
    let mut net = Net::new(&[]);
    net.rig.write(CQ_BUFFER, &[0xf1; 4096]);
    let mut input = net.rq();
    input.ctx_mut().set_flush_in_error_en(1);
    let rqn = number(&net.must(Opcode::CREATE_RQ, input.into_inner(), 16));
    let silent = net.create_rq();
    for rqn in [rqn, silent] {
        assert_eq!(net.modify_rq(rqn, WqState::RST, WqState::RDY, 0, 0, 0).status(), 0);
    }
    net.rig.write(WQ_RECORD, &3u32.to_be_bytes());
    assert_eq!(net.modify_rq(silent, WqState::RDY, WqState::ERR, 0, 0, 0).status(), 0);
    assert_eq!(net.modify_rq(rqn, WqState::RDY, WqState::ERR, 0, 0, 0).status(), 0);
    for i in 0..3 {
        let cqe = ErrCqe::new(net.rig.read(CQ_BUFFER + i * 64, 64)).unwrap();
        assert_eq!((cqe.opcode(), cqe.syndrome()), (CqeOpcode::RESP_ERR.0.into(), CqeSyndrome::WR_FLUSH_ERR.0.into()));
        assert_eq!((cqe.qpn(), cqe.srqn_user_index(), cqe.wqe_counter()), (rqn, 0x123, i as u32));
    }
    assert_eq!(net.rig.read(CQ_BUFFER + 3 * 64, 64), [0xf1; 64]);
    let events = net.rig.event_queue(1 << EventType::WQ_CATAS_ERROR.0);
    net.rig.write(WQ_RECORD, &100u32.to_be_bytes());
    assert_eq!(net.modify_rq(rqn, WqState::ERR, WqState::ERR, 0, 0, 0).status(), 0);
    let eqe = net.rig.read(events, 64);
    assert_eq!((eqe[1], eqe[0x34]), (EventType::WQ_CATAS_ERROR.0, 1), "more is posted than the ring holds");
}

impl Sender {
    pub fn executed(&self) -> u16 {
        self.net.rig.function.hca().objects.sqs.get(self.sqn).expect("it exists").object.executed
    }

    /// Posts `count` entries and lets the device do one portion of work.
    fn one_portion(&mut self, count: usize, opcode: WqeOpcode, body: &[u8]) {
        for _ in 0..count {
            self.post(opcode, 0, body);
        }
        self.ring_only();
        self.net.rig.function.work();
    }
}

#[test]
fn a_portion_of_work_counts_what_it_reads() {
    let mut s = Sender::new();
    let body = s.frame(60_000);
    s.one_portion(15, WqeOpcode::SEND, &body);
    assert!((1..=5).contains(&s.executed()), "{} entries of 60000 bytes", s.executed());
    s.net.rig.settle();
    assert_eq!(s.executed(), 15);
}

#[test]
fn a_portion_of_work_counts_the_pieces_of_its_memory() {
    const PIECES: u32 = 4096;
    let mut s = Sender::new();
    let mut input = CreateMkeyIn::with_tail(16 * PIECES as usize);
    let mut context = input.memory_key_mkey_entry_mut();
    context.set_access_mode_1_0(2);
    context.set_lr(1);
    context.set_qpn(0xff_ffff);
    context.set_pd(s.net.pd);
    context.set_len(PIECES.into());
    context.set_translations_octword_size(PIECES);
    context.set_relaxed_ordering_write(1);
    context.set_relaxed_ordering_read(1);
    input.set_translations_octword_actual_size(PIECES);
    for (i, klm) in input.klm_pas_mtt_mut().chunks_exact_mut(16).enumerate() {
        klm[..4].copy_from_slice(&1u32.to_be_bytes());
        klm[4..8].copy_from_slice(&s.key.to_be_bytes());
        klm[8..].copy_from_slice(&(DATA + i as u64).to_be_bytes());
    }
    s.key = number(&s.net.must(Opcode::CREATE_MKEY, input.into_inner(), 16)) << 8;
    let body = [Sender::eth(&[], |_| {}), s.data(0, PIECES)].concat();
    s.one_portion(15, WqeOpcode::SEND, &body);
    assert!((1..=3).contains(&s.executed()), "{} entries of {PIECES} pieces", s.executed());
    s.net.rig.settle();
    assert_eq!(s.executed(), 15);
}

#[test]
fn a_portion_of_work_counts_the_headers_that_it_repeats() {
    let mut s = Sender::new();
    let mut headers = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    headers.extend([0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    headers.extend([0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
    let body = [Sender::eth(&headers, |eth| eth.set_mss(32)), s.data(DATA, 64_000)].concat();
    s.one_portion(7, WqeOpcode::LSO, &body);
    let sent = s.frames().len();
    assert!((1000..=3000).contains(&sent), "{sent} of 14000 packets in one portion");
    s.net.rig.settle();
    let frames = s.frames();
    assert_eq!((s.executed(), frames.len()), (14, 14_000));
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert!(payload.chunks(64_000).all(|part| part == s.net.rig.read(DATA, 64_000)), "nothing is lost between turns");
}
