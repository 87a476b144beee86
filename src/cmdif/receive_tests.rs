//! Tests of the Ethernet receive path, from the wire and from send queues, through its tables, rings and completions.

use super::ethernet_tests::{Net, number};
use super::send_tests::{DATA, Sender};
use crate::device::port::AdminStatus;
use crate::device::rq::Tir;
use crate::device::steering::FlowEntry;
use crate::prm::counters::{QueryFlowCounterIn, QueryQCounterOut};
use crate::prm::cq::CreateCqIn;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::event::EventType;
use crate::prm::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, FlowContext, ModifyFlowTableIn, SetFlowTableRootIn, SetFteIn,
};
use crate::prm::opcode::Opcode;
use crate::prm::queue::{CreateRqIn, Rqc};
use crate::prm::srq::CreateRmpIn;
use crate::prm::tir::{CreateTirIn, Tirc};
use crate::prm::values::{CqeOpcode, CqeSyndrome, FlowAction, FlowDestType, WqState, WqeOpcode};
use crate::prm::wqe::DataSeg;
use crate::testing::FREE;

const CQ: u64 = FREE + 0x60_0000;
const RECORDS: u64 = FREE + 0x61_0000;
const RINGS: u64 = FREE + 0x62_0000;
const BUFFERS: u64 = FREE + 0x80_0000;
/// Bytes from ring to ring, and of a receive entry: four segments.
const RING: u64 = 0x1000;
const STRIDE: u64 = 64;
/// Bytes of a receive buffer.
const BUFFER: u64 = 0x4000;
const TABLE: FlowDestType = FlowDestType::FLOW_TABLE;
const TIR: FlowDestType = FlowDestType::TIR;

/// A send queue and whatever receives.
struct Receiver {
    s: Sender,
    cqn: u32,
    /// Completions that were looked at.
    seen: u64,
    /// Receive queues, in the order of their rings.
    rqs: Vec<u32>,
    posted: Vec<u32>,
}

fn ring(i: usize) -> u64 {
    RINGS + i as u64 * RING
}

fn buffer(queue: usize, entry: u32) -> u64 {
    BUFFERS + (queue as u64 * 16 + u64::from(entry) % 16) * BUFFER
}

/// A frame with this EtherType to this address and `len` bytes in all.
fn frame(to: [u8; 6], kind: u16, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 1], &kind.to_be_bytes()].concat();
    frame.extend((frame.len()..len).map(|i| i as u8));
    frame
}

const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 9];

/// A UDP packet over IPv4 from 10.0.0.1 to `to`, padded to 60 bytes, with right checksums.
fn packet(to: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = frame(GROUP, 0x0800, 14);
    frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
    frame.extend(to);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame.resize(60, 0x55);
    let layers = crate::wire::layers::layers(&frame, true);
    crate::wire::checksum::fill_l3(&mut frame, &layers);
    crate::wire::checksum::fill_l4(&mut frame, &layers);
    frame
}

impl Receiver {
    fn new() -> Receiver {
        Receiver::with(&[])
    }

    fn with(sets: &[&str]) -> Receiver {
        let mut s = Sender::with(sets);
        let mut input = CreateCqIn::with_tail(8 * 4);
        let mut context = input.cq_context_mut();
        context.set_log_cq_size(8);
        context.set_uar_page(s.net.uar);
        context.set_c_eqn_or_apu_element(1);
        context.set_dbr_addr(RECORDS);
        for (i, page) in input.pas_mut().chunks_exact_mut(8).enumerate() {
            page.copy_from_slice(&(CQ + i as u64 * 4096).to_be_bytes());
        }
        let cqn = number(&s.net.must(Opcode::CREATE_CQ, input.into_inner(), 16));
        s.net.rig.write(CQ, &[0xf1; 4 * 4096]);
        Receiver { s, cqn, seen: 0, rqs: Vec::new(), posted: Vec::new() }
    }

    fn must(&mut self, opcode: Opcode, input: Vec<u8>) -> u32 {
        number(&self.s.net.must(opcode, input, 16))
    }

    /// Creates a ready receive queue of 16 entries; returns its place in `rqs`.
    fn queue(&mut self, edit: impl Fn(&mut Rqc<&mut [u8]>)) -> usize {
        let i = self.rqs.len();
        let mut input: CreateRqIn<Vec<u8>> = self.s.net.rq();
        let mut context = input.ctx_mut();
        context.set_cqn(self.cqn);
        context.set_flush_in_error_en(1);
        context.set_vsd(1);
        context.set_user_index(0x100 + i as u32);
        let mut wq = context.wq_mut();
        wq.set_log_wq_stride(STRIDE.ilog2());
        wq.set_log_wq_sz(4);
        wq.set_dbr_addr(RECORDS + 64 * (i as u64 + 1));
        wq.pas_mut().copy_from_slice(&ring(i).to_be_bytes());
        edit(&mut input.ctx_mut());
        let rqn = self.must(Opcode::CREATE_RQ, input.into_inner());
        assert_eq!(self.s.net.modify_rq(rqn, WqState::RST, WqState::RDY, 0, 1, 0).status(), 0);
        self.rqs.push(rqn);
        self.posted.push(0);
        i
    }

    /// Posts an entry with these segments.
    fn post_list(&mut self, queue: usize, segments: &[(u32, u32, u64)]) {
        let mut entry = Vec::new();
        for (count, key, at) in segments {
            let mut segment = DataSeg::zeroed();
            segment.set_inline(count >> 31);
            segment.set_byte_count(count & 0x7fff_ffff);
            segment.set_lkey(*key);
            segment.set_addr(*at);
            entry.extend(segment.into_inner());
        }
        entry.resize(STRIDE as usize, 0);
        let at = ring(queue) + u64::from(self.posted[queue] % 16) * STRIDE;
        self.s.net.rig.write(at, &entry);
        self.posted[queue] += 1;
        self.record(queue, self.posted[queue]);
    }

    fn record(&mut self, queue: usize, count: u32) {
        self.s.net.rig.write(RECORDS + 64 * (queue as u64 + 1), &count.to_be_bytes());
    }

    /// Posts entries with a buffer each.
    fn post(&mut self, queue: usize, count: u32) {
        for _ in 0..count {
            let at = buffer(queue, self.posted[queue]);
            self.post_list(queue, &[(BUFFER as u32, self.s.key, at)]);
        }
    }

    /// Creates a direct interface in a transport domain of its own.
    fn interface(&mut self, queue: usize) -> u32 {
        let td = number(&self.s.net.must(Opcode::ALLOC_TRANSPORT_DOMAIN, vec![0; 16], 16));
        self.interface_in(td, queue, |_| {})
    }

    fn interface_in(&mut self, td: u32, queue: usize, edit: impl Fn(&mut Tirc<&mut [u8]>)) -> u32 {
        let mut input = CreateTirIn::zeroed();
        let mut context = input.ctx_mut();
        context.set_inline_rqn(self.rqs[queue]);
        context.set_transport_domain(td);
        edit(&mut context);
        self.must(Opcode::CREATE_TIR, input.into_inner())
    }

    fn table(&mut self, level: u32, miss: Option<u32>) -> u32 {
        let mut input = CreateFlowTableIn::zeroed();
        let mut context = input.flow_table_context_mut();
        context.set_level(level);
        context.set_log_size(8);
        if let Some(id) = miss {
            context.set_table_miss_action(1);
            context.set_table_miss_id(id);
        }
        self.must(Opcode::CREATE_FLOW_TABLE, input.into_inner())
    }

    fn root(&mut self, table: u32) {
        let mut input = SetFlowTableRootIn::zeroed();
        input.set_table_id(table);
        self.s.net.must(Opcode::SET_FLOW_TABLE_ROOT, input.into_inner(), 16);
    }

    fn group(&mut self, table: u32, range: std::ops::RangeInclusive<u32>, mask: &[(&str, u64)]) -> u32 {
        let mut input = CreateFlowGroupIn::zeroed();
        input.set_table_id(table);
        input.set_start_flow_index(*range.start());
        input.set_end_flow_index(*range.end());
        input.set_match_criteria_enable(u32::from(!mask.is_empty()));
        let mut outer = input.match_criteria_mut();
        let mut outer = outer.outer_headers_mut();
        for (field, value) in mask {
            crate::prm::flow_match::FteMatchSetLyr24::LAYOUT.write(outer.as_bytes_mut(), field, *value).unwrap();
        }
        self.must(Opcode::CREATE_FLOW_GROUP, input.into_inner())
    }

    fn entry(
        &mut self,
        (table, group, index): (u32, u32, u32),
        value: &[(&str, u64)],
        to: &[(FlowDestType, u32)],
        edit: impl Fn(&mut FlowContext<&mut [u8]>),
    ) {
        let mut input = SetFteIn::with_tail(8 * to.len() + 8);
        input.set_table_id(table);
        input.set_flow_index(index);
        let mut context = input.flow_context_mut();
        context.set_group_id(group);
        let action = if to.is_empty() { FlowAction::DROP } else { FlowAction::FWD_DEST };
        context.set_action(action.bits().into());
        context.set_destination_list_size(to.len() as u32);
        for (slot, (kind, id)) in context.destination_mut().chunks_mut(8).zip(to) {
            slot[..4].copy_from_slice(&(u32::from(kind.0) << 24 | id).to_be_bytes());
        }
        let mut outer = context.match_value_mut();
        let mut outer = outer.outer_headers_mut();
        for (field, value) in value {
            crate::prm::flow_match::FteMatchSetLyr24::LAYOUT.write(outer.as_bytes_mut(), field, *value).unwrap();
        }
        edit(&mut input.flow_context_mut());
        self.s.net.must(Opcode::SET_FLOW_TABLE_ENTRY, input.into_inner(), 16);
    }

    /// A root table whose one entry sends everything to `to`.
    fn everything_to(&mut self, to: &[(FlowDestType, u32)]) -> (u32, u32) {
        let table = self.table(1, None);
        let group = self.group(table, 0..=0, &[]);
        self.entry((table, group, 0), &[], to, |_| {});
        self.root(table);
        (table, group)
    }

    /// One queue with `count` entries that gets everything.
    fn simple(count: u32) -> Receiver {
        let mut r = Receiver::new();
        r.queue(|_| {});
        r.post(0, count);
        let tirn = r.interface(0);
        r.everything_to(&[(TIR, tirn)]);
        r
    }

    /// Frames come in through the port.
    fn bring(&mut self, frames: &[Vec<u8>]) {
        self.s.tap.coming.borrow_mut().extend(frames.iter().cloned());
        self.s.net.rig.settle();
    }

    /// The send queue sends a frame.
    fn send(&mut self, frame: &[u8]) {
        self.s.net.rig.write(DATA, frame);
        let body = [Sender::eth(&[], |_| {}), self.s.data(DATA, frame.len() as u32)].concat();
        self.s.post(WqeOpcode::SEND, 0, &body);
        self.s.ring();
    }

    /// The next completion, if there is one.
    fn take(&mut self) -> Option<Cqe<Vec<u8>>> {
        let cqe = Cqe::new(self.s.net.rig.read(CQ + self.seen % 256 * 64, 64)).unwrap();
        if u64::from(cqe.owner()) != self.seen >> 8 & 1 || cqe.opcode() == 0xf {
            return None;
        }
        self.seen += 1;
        self.s.net.rig.write(RECORDS, &(self.seen as u32).to_be_bytes());
        Some(cqe)
    }

    /// The next completion, which must be a frame; returns it with the frame's bytes.
    fn received(&mut self) -> (Cqe<Vec<u8>>, Vec<u8>) {
        let cqe = self.take().expect("a completion");
        assert_eq!(cqe.opcode(), u32::from(CqeOpcode::RESP_SEND.0));
        let queue = cqe.srqn_user_index() as usize - 0x100;
        let bytes = self.s.net.rig.read(buffer(queue, cqe.wqe_counter()), cqe.byte_cnt() as usize);
        (cqe, bytes)
    }

    /// The queues of the completions that there are.
    fn queues(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.take()).map(|cqe| cqe.srqn_user_index() - 0x100).collect()
    }

    /// The next completion, which must be an error: queue, index, syndrome, vendor's syndrome.
    fn error(&mut self) -> (usize, u32, CqeSyndrome, u32) {
        let cqe = ErrCqe::new(self.take().expect("a completion").into_inner()).unwrap();
        assert_eq!(cqe.opcode(), u32::from(CqeOpcode::RESP_ERR.0));
        let queue = cqe.srqn_user_index() as usize - 0x100;
        assert_eq!(cqe.qpn(), self.rqs[queue]);
        (queue, cqe.wqe_counter(), CqeSyndrome(cqe.syndrome() as u8), cqe.vendor_err_synd())
    }

    fn state(&mut self, queue: usize) -> WqState {
        self.s.net.rig.function.hca().objects.rqs.get(self.rqs[queue]).expect("it exists").object.state
    }

    fn counter(&mut self) -> u32 {
        u32::from(self.s.net.must(Opcode::ALLOC_Q_COUNTER, vec![0; 16], 16)[11])
    }

    fn out_of_buffer(&mut self, counter: u32) -> u32 {
        let mut input = vec![0; 32];
        input[31] = counter as u8;
        QueryQCounterOut::new(self.s.net.must(Opcode::QUERY_Q_COUNTER, input, 0x100)).unwrap().out_of_buffer()
    }

    fn own_mac(&self) -> [u8; 6] {
        self.s.net.rig.function.hca().vport.mac()
    }
}

#[test]
fn a_frame_from_the_wire_lands_in_the_next_entry() {
    let mut r = Receiver::new();
    r.queue(|_| {});
    r.post(0, 2);
    let tirn = r.interface(0);
    let table = r.table(1, None);
    let group = r.group(table, 0..=0, &[]);
    r.entry((table, group, 0), &[], &[(TIR, tirn)], |context| context.set_flow_tag(0x12_3456));
    r.root(table);
    r.s.net.rig.clock.advance(99);
    let sent = packet([10, 0, 0, 2], [7, 8]);
    let other = frame([2, 0, 0, 0, 0, 9], 0x88b5, 200);
    r.bring(&[sent.clone(), other.clone()]);
    let (cqe, bytes) = r.received();
    assert_eq!(bytes, sent);
    assert_eq!((cqe.byte_cnt(), cqe.wqe_counter(), cqe.srqn_user_index(), cqe.qpn()), (60, 0, 0x100, 0x12_3456));
    assert_eq!((cqe.l2_ok(), cqe.l3_ok(), cqe.l4_ok(), cqe.l3_hdr_type(), cqe.l4_hdr_type()), (1, 1, 1, 2, 2));
    assert_eq!((cqe.vlan_present(), cqe.rss_hash_result(), cqe.rss_hash_type(), cqe.send_wqe_opcode()), (0, 0, 0, 0));
    assert_eq!(cqe.check_sum(), u32::from(crate::wire::checksum::ones_complement(&sent[14..])));
    assert!(cqe.timestamp() >= 99);
    let (cqe, bytes) = r.received();
    assert_eq!((bytes, cqe.wqe_counter()), (other, 1));
    assert_eq!((cqe.l3_ok(), cqe.l4_ok(), cqe.l3_hdr_type(), cqe.l4_hdr_type()), (0, 0, 0, 0));
    assert!(r.take().is_none());
    let hca = r.s.net.rig.function.hca();
    assert_eq!((hca.port.counters.rx.multicast, hca.port.counters.rx.unicast), (1, 1));
    assert_eq!(hca.vport.counters.received_eth_multicast.octets, 60);
    assert_eq!(hca.vport.counters.received_eth_unicast.octets, 200);
}

#[test]
fn frames_without_a_way_are_dropped_and_counted() {
    let mut r = Receiver::new();
    let counts = |r: &Receiver| {
        let hca = r.s.net.rig.function.hca();
        (hca.vport.env.nic_receive_steering_discard, hca.vport.env.receive_discard_vport_down, hca.port.counters.rx)
    };
    r.bring(&[frame(GROUP, 0x88b5, 60)]);
    assert_eq!(counts(&r).0, 1, "no table");
    r.queue(|_| {});
    r.post(0, 4);
    let table = r.table(1, None);
    r.root(table);
    r.bring(&[frame(GROUP, 0x88b5, 60)]);
    assert_eq!(counts(&r).0, 2, "no entry");
    let tirn = r.interface(0);
    let group = r.group(table, 0..=0, &[]);
    r.entry((table, group, 0), &[], &[(TIR, tirn)], |_| {});
    // Too short, too long, and the longest.
    r.bring(&[frame(GROUP, 0x88b5, 14)[..13].to_vec(), frame(GROUP, 0x88b5, 1519), frame(GROUP, 0x88b5, 1518)]);
    assert_eq!((counts(&r).2.errors, counts(&r).2.multicast), (2, 3));
    assert_eq!(r.received().1.len(), 1518);
    r.s.net.rig.function.hca_mut().change_link(|hca| hca.port.set_admin(AdminStatus::Down));
    r.bring(&[frame(GROUP, 0x88b5, 60)]);
    assert_eq!(counts(&r).2.multicast, 3, "a port without link receives nothing");
    r.s.net.rig.function.hca_mut().change_link(|hca| {
        hca.port.set_admin(AdminStatus::Up);
        hca.vport.admin = crate::device::vport::AdminState::Down;
    });
    r.bring(&[frame(GROUP, 0x88b5, 60)]);
    assert_eq!((counts(&r).1, counts(&r).2.discards), (1, 1));
    assert!(r.take().is_none());
}

#[test]
fn frames_without_an_entry_are_counted_by_the_queues_counter() {
    let mut r = Receiver::new();
    let counter = r.counter();
    r.queue(|context| context.set_counter_set_id(counter));
    let tirn = r.interface(0);
    r.everything_to(&[(TIR, tirn)]);
    r.bring(&[frame(GROUP, 1, 60), frame(GROUP, 2, 60)]);
    assert_eq!(r.out_of_buffer(counter), 2);
    r.post(0, 1);
    r.bring(&[frame(GROUP, 3, 61), frame(GROUP, 4, 60)]);
    assert_eq!((r.received().1.len(), r.out_of_buffer(counter)), (61, 3));
    assert_eq!(r.state(0), WqState::RDY);
}

#[test]
fn a_vlan_tag_is_stripped_where_the_queue_wants_it() {
    let mut r = Receiver::new();
    r.queue(|context| context.set_vsd(0));
    r.queue(|_| {});
    r.s.net.modify_rq(r.rqs[0], WqState::RDY, WqState::RDY, 2, 0, 0);
    r.post(0, 3);
    r.post(1, 3);
    let (a, b) = (r.interface(0), r.interface(1));
    r.everything_to(&[(TIR, a), (TIR, b)]);
    let mut tagged = packet([10, 0, 0, 2], [7, 8]);
    tagged.splice(12..12, [0x81, 0, 0xa0, 5]);
    let mut service = tagged.clone();
    service[12..14].copy_from_slice(&[0x88, 0xa8]);
    r.bring(&[tagged.clone(), service.clone()]);
    let sum = |bytes: &[u8]| u32::from(crate::wire::checksum::ones_complement(bytes));
    let (cqe, bytes) = r.received();
    assert_eq!(bytes, packet([10, 0, 0, 2], [7, 8]));
    assert_eq!((cqe.vlan_present(), cqe.vlan_info(), cqe.l4_ok()), (1, 0xa005, 1));
    assert_eq!(cqe.check_sum(), sum(&bytes[14..]));
    let (cqe, bytes) = r.received();
    assert_eq!(bytes, tagged);
    assert_eq!((cqe.vlan_present(), cqe.vlan_info(), cqe.l4_ok()), (0, 0, 1));
    assert_eq!(cqe.check_sum(), sum(&bytes[14..]));
    for _ in 0..2 {
        let (cqe, bytes) = r.received();
        assert_eq!((&bytes, cqe.vlan_present()), (&service, 0), "service tags stay");
    }
}

#[test]
fn sums_may_cover_the_packet_alone() {
    let mut r = Receiver::with(&["caps.ethernet.cqe_checksum_full=0"]);
    r.queue(|_| {});
    r.post(0, 2);
    let tirn = r.interface(0);
    r.everything_to(&[(TIR, tirn)]);
    let mut tagged = packet([10, 0, 0, 2], [7, 8]);
    tagged.splice(12..12, [0x81, 0, 0xa0, 5]);
    r.bring(&[tagged.clone(), frame(GROUP, 0x88b5, 60)]);
    let sum = crate::wire::checksum::ones_complement(&tagged[18..50]);
    assert_eq!((r.received().0.check_sum(), r.received().0.check_sum()), (sum.into(), 0));
}

#[test]
fn wrong_checksums_are_not_called_right() {
    let mut r = Receiver::simple(3);
    let mut l3 = packet([10, 0, 0, 2], [7, 8]);
    l3[24] ^= 1;
    let mut l4 = packet([10, 0, 0, 2], [7, 8]);
    l4[45] ^= 1;
    let mut cut = packet([10, 0, 0, 2], [7, 8]);
    cut[17] = 200;
    r.bring(&[l3, l4, cut]);
    let ok = [(); 3].map(|()| r.received().0).map(|cqe| (cqe.l3_ok(), cqe.l4_ok(), cqe.l3_hdr_type()));
    assert_eq!(ok, [(0, 1, 2), (1, 0, 2), (0, 0, 0)]);
}

#[test]
fn a_frame_is_scattered_over_the_entrys_segments() {
    let mut r = Receiver::simple(0);
    let key = r.s.key;
    let at = buffer(0, 0);
    // A start padding hint, nothing, the rest, and the terminator before something that must not be touched.
    let list = [(0x8000_0000 | 10, key, at), (0, key, 1 << 60), (60, key, at + 10), (0, 0x100, 0)];
    r.post_list(0, &list);
    r.post_list(0, &[(59, key, at + 100), (0, 0x100, 0), (1000, key, at + 200)]);
    let sent = frame(GROUP, 1, 60);
    r.bring(&[sent.clone(), sent.clone()]);
    assert_eq!(r.received().1, sent);
    assert_eq!(r.s.net.rig.read(at + 60, 10), [0; 10], "nothing behind the frame");
    assert_eq!(r.error(), (0, 1, CqeSyndrome::LOCAL_LENGTH_ERR, 1));
    assert_eq!(r.s.net.rig.read(at + 200, 10), [0; 10], "nothing behind the terminator");
}

#[test]
fn an_entry_that_cannot_take_its_frame_stops_the_queue() {
    type Fault = fn(&mut Receiver) -> (u32, u32, u64);
    let faults: [(&str, Fault, CqeSyndrome, u32); 6] = [
        ("a short list", |r| (59, r.s.key, buffer(0, 0)), CqeSyndrome::LOCAL_LENGTH_ERR, 1),
        ("a stale key", |r| (100, r.s.key | 1, buffer(0, 0)), CqeSyndrome::LOCAL_PROT_ERR, 2),
        ("no key", |_| (100, 0xffff_ff00, buffer(0, 0)), CqeSyndrome::LOCAL_PROT_ERR, 2),
        ("the reserved key", |_| (100, 0x200, buffer(0, 0)), CqeSyndrome::LOCAL_PROT_ERR, 2),
        ("no memory", |r| (100, r.s.key, 1 << 40), CqeSyndrome::LOCAL_PROT_ERR, 3),
        ("the end of addresses", |r| (100, r.s.key, u64::MAX - 30), CqeSyndrome::LOCAL_PROT_ERR, 2),
    ];
    for (what, fault, syndrome, vendor) in faults {
        let mut r = Receiver::simple(0);
        let segment = fault(&mut r);
        r.post_list(0, &[segment]);
        r.post(0, 2);
        r.bring(&[frame(GROUP, 1, 60), frame(GROUP, 2, 60)]);
        assert_eq!(r.error(), (0, 0, syndrome, vendor), "{what}");
        assert_eq!(r.error(), (0, 1, CqeSyndrome::WR_FLUSH_ERR, 0xf9), "{what}");
        assert_eq!(r.error(), (0, 2, CqeSyndrome::WR_FLUSH_ERR, 0xf9), "{what}");
        assert!(r.take().is_none() && r.state(0) == WqState::ERR, "{what}");
        // Through reset the queue works again, from its beginning.
        let rqn = r.rqs[0];
        r.s.net.modify_rq(rqn, WqState::ERR, WqState::RST, 0, 1, 0);
        r.posted[0] = 0;
        r.post(0, 1);
        r.s.net.modify_rq(rqn, WqState::RST, WqState::RDY, 0, 1, 0);
        r.bring(&[frame(GROUP, 3, 60)]);
        let (cqe, bytes) = r.received();
        assert_eq!((cqe.wqe_counter(), bytes), (0, frame(GROUP, 3, 60)), "{what}");
    }
}

#[test]
fn a_queue_that_is_not_ready_gets_nothing() {
    let mut r = Receiver::simple(2);
    let rqn = r.rqs[0];
    r.s.net.modify_rq(rqn, WqState::RDY, WqState::RST, 0, 1, 0);
    r.bring(&[frame(GROUP, 1, 60)]);
    assert!(r.take().is_none());
    r.s.net.modify_rq(rqn, WqState::RST, WqState::ERR, 0, 1, 0);
    assert_eq!((r.error().1, r.error().1), (0, 1));
    r.bring(&[frame(GROUP, 1, 60)]);
    assert!(r.take().is_none());
}

#[test]
fn entries_wrap_around_the_ring_and_counters_around_16_bits() {
    let mut r = Receiver::simple(0);
    let rqn = r.rqs[0];
    let rq = &mut r.s.net.rig.function.hca_mut().objects.rqs.get_mut(rqn).unwrap().object;
    (rq.consumed, rq.posted) = (0xfffe, 0xfffe);
    r.posted[0] = 0xfffe;
    r.post(0, 16);
    for i in 0..16 {
        r.bring(&[frame(GROUP, i, 60)]);
        let (cqe, bytes) = r.received();
        assert_eq!((cqe.wqe_counter(), bytes), ((0xfffe + u32::from(i)) & 0xffff, frame(GROUP, i, 60)));
    }
}

#[test]
fn what_cannot_be_read_is_reported_once_by_event() {
    let mut r = Receiver::new();
    let events = r.s.net.rig.event_queue(1 << EventType::WQ_CATAS_ERROR.0);
    r.queue(|_| {});
    r.queue(|context| context.wq_mut().pas_mut().copy_from_slice(&(1u64 << 40).to_be_bytes()));
    r.queue(|context| context.wq_mut().set_dbr_addr(1 << 40));
    r.record(0, 17);
    r.record(1, 1);
    let destinations = [0, 1, 2].map(|queue| (TIR, r.interface(queue)));
    r.everything_to(&destinations);
    r.bring(&[frame(GROUP, 1, 60), frame(GROUP, 1, 60)]);
    for i in 0..3 {
        let eqe = r.s.net.rig.read(events + 64 * i, 64);
        assert_eq!((eqe[1], eqe[0x34]), (EventType::WQ_CATAS_ERROR.0, 1));
        assert_eq!(eqe[0x39..0x3c], r.rqs[i as usize].to_be_bytes()[1..]);
        assert_eq!(r.state(i as usize), WqState::ERR);
    }
    assert_eq!(r.s.net.rig.read(events + 3 * 64, 64)[1], 0xff);
    assert!(r.take().is_none());
}

#[test]
fn a_full_completion_queue_stops_the_queue() {
    let mut r = Receiver::simple(0);
    for _ in 0..17 {
        r.post(0, 16);
        r.bring(&vec![frame(GROUP, 1, 60); 16]);
    }
    assert_eq!(r.state(0), WqState::ERR, "256 completions fit, the 257th does not");
    assert_eq!(r.queues().len(), 256);
}

#[test]
fn the_lowest_index_wins_and_misses_go_where_the_table_says() {
    let mut r = Receiver::new();
    (0..4).for_each(|_| {
        let queue = r.queue(|_| {});
        r.post(queue, 8);
    });
    let tirs = [0, 1, 2, 3].map(|queue| r.interface(queue));
    let last = r.table(5, None);
    let first = r.table(1, Some(last));
    r.root(first);
    // The groups of the first table are made against their order.
    let by_kind = r.group(first, 10..=20, &[("ethertype", 0xffff)]);
    let by_both = r.group(first, 2..=5, &[("ethertype", 0xffff), ("dmac_47_16", 0xffff_ffff)]);
    let everything = r.group(last, 0..=9, &[]);
    let dmac = 0x0100_5e00;
    r.entry((first, by_kind, 20), &[("ethertype", 1)], &[(TIR, tirs[0])], |_| {});
    r.entry((first, by_both, 4), &[("ethertype", 2), ("dmac_47_16", dmac)], &[(TIR, tirs[1])], |_| {});
    r.entry((first, by_both, 3), &[("ethertype", 2), ("dmac_47_16", dmac)], &[(TIR, tirs[2])], |_| {});
    r.entry((first, by_kind, 11), &[("ethertype", 2)], &[(TIR, tirs[0])], |_| {});
    r.entry((first, by_kind, 12), &[("ethertype", 3)], &[], |_| {});
    r.entry((last, everything, 0), &[], &[(TIR, tirs[3])], |_| {});
    let to = |to, kind| frame(to, kind, 60);
    r.bring(&[to(GROUP, 1), to(GROUP, 2), to([2; 6], 2), to(GROUP, 3), to(GROUP, 4)]);
    assert_eq!(r.queues(), [0, 2, 0, 3], "the fourth was dropped by its entry");
    // Without the better entry the other one of the same value is found.
    let mut delete = vec![0; 0x40];
    delete[0x14..0x18].copy_from_slice(&first.to_be_bytes());
    delete[0x20..0x24].copy_from_slice(&3u32.to_be_bytes());
    r.s.net.must(Opcode::DELETE_FLOW_TABLE_ENTRY, delete, 16);
    r.bring(&[to(GROUP, 2)]);
    assert_eq!(r.queues(), [1]);
    // A miss that goes nowhere drops.
    let mut modify = ModifyFlowTableIn::zeroed();
    modify.set_table_id(first);
    modify.set_modify_field_select(1);
    r.s.net.must(Opcode::MODIFY_FLOW_TABLE, modify.into_inner(), 16);
    r.bring(&[to(GROUP, 4), to(GROUP, 1)]);
    assert_eq!(r.queues(), [0]);
}

#[test]
fn entries_forward_to_several_destinations_tag_and_count() {
    let mut r = Receiver::new();
    (0..3).for_each(|_| {
        let queue = r.queue(|_| {});
        r.post(queue, 8);
    });
    let tirs = [0, 1, 2].map(|queue| r.interface(queue));
    let counter = number(&r.s.net.must(Opcode::ALLOC_FLOW_COUNTER, vec![0; 16], 16));
    let (first, second) = (r.table(1, None), r.table(2, None));
    r.root(first);
    let (a, b) = (r.group(first, 0..=0, &[]), r.group(second, 0..=0, &[]));
    r.entry((second, b, 0), &[], &[(TIR, tirs[2])], |_| {});
    r.entry((first, a, 0), &[], &[(TIR, tirs[0]), (TABLE, second), (TIR, tirs[1])], |context| {
        context.set_flow_tag(7);
        context.set_action((FlowAction::FWD_DEST | FlowAction::COUNT).bits().into());
        context.set_flow_counter_list_size(1);
        context.destination_mut()[3 * 8..][..4].copy_from_slice(&counter.to_be_bytes());
    });
    r.bring(&[frame(GROUP, 1, 70)]);
    let got: Vec<_> = std::iter::from_fn(|| r.take()).map(|cqe| (cqe.srqn_user_index(), cqe.qpn())).collect();
    assert_eq!(got, [(0x100, 7), (0x101, 7), (0x102, 7)]);
    let mut query = QueryFlowCounterIn::zeroed();
    query.set_flow_counter_id(counter);
    let out = r.s.net.must(Opcode::QUERY_FLOW_COUNTER, query.into_inner(), 32);
    assert_eq!(out[16..32], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 70]);
    let hca = r.s.net.rig.function.hca();
    assert_eq!(hca.vport.counters.received_eth_multicast.packets, 1, "one frame, however often it is given");
}

#[test]
fn a_way_that_branches_without_end_is_cut_off() {
    let mut r = Receiver::new();
    r.queue(|_| {});
    r.post(0, 16);
    let tirn = r.interface(0);
    let mut next = r.table(120, None);
    let group = r.group(next, 0..=0, &[]);
    r.entry((next, group, 0), &[], &[(TIR, tirn)], |_| {});
    for level in (1..60).rev() {
        let table = r.table(level, None);
        let group = r.group(table, 0..=0, &[]);
        r.entry((table, group, 0), &[], &[(TABLE, next), (TABLE, next)], |_| {});
        next = table;
    }
    r.root(next);
    r.bring(&[frame(GROUP, 1, 60)]);
    assert_eq!(r.queues().len(), 16, "as many as there are entries, and no frame takes for ever");
}

#[test]
fn a_root_is_the_lowest_table_where_none_can_be_set() {
    let mut r = Receiver::with(&["caps.flow_table.flow_table_properties_nic_receive.modify_root=0"]);
    r.queue(|_| {});
    r.post(0, 8);
    let tirn = r.interface(0);
    let high = r.table(9, None);
    let group = r.group(high, 0..=0, &[]);
    r.entry((high, group, 0), &[], &[(TIR, tirn)], |_| {});
    r.bring(&[frame(GROUP, 1, 60)]);
    assert_eq!(r.queues(), [0]);
    let low = r.table(3, None);
    r.bring(&[frame(GROUP, 1, 60)]);
    assert!(r.queues().is_empty());
    let mut destroy = vec![0; 0x40];
    destroy[0x14..0x18].copy_from_slice(&low.to_be_bytes());
    r.s.net.must(Opcode::DESTROY_FLOW_TABLE, destroy, 16);
    r.bring(&[frame(GROUP, 1, 60)]);
    assert_eq!(r.queues(), [0]);
}

#[test]
fn an_indirect_interface_spreads_frames_by_their_hash() {
    /// The key of the verification suite in Microsoft's "Verifying the RSS hash calculation".
    const KEY: [u32; 10] = [
        0x6d5a_56da,
        0x255b_0ec2,
        0x4167_253d,
        0x43a3_8fb0,
        0xd0ca_2bcb,
        0xae7b_30b4,
        0x77cb_2da3,
        0x8030_f20c,
        0x6a42_b73b,
        0xbeac_01fa,
    ];
    let mut r = Receiver::new();
    (0..4).for_each(|_| {
        let queue = r.queue(|_| {});
        r.post(queue, 8);
    });
    let rqtn = r.must(Opcode::CREATE_RQT, Net::rqt(4, &r.rqs).into_inner());
    let mut input = r.s.net.tir(rqtn);
    let mut context = input.ctx_mut();
    (0..10).for_each(|i| context.set_rx_hash_toeplitz_key(i, KEY[i]));
    context.rx_hash_field_selector_outer_mut().set_l4_prot_type(1);
    let tirn = r.must(Opcode::CREATE_TIR, input.into_inner());
    r.everything_to(&[(TIR, tirn)]);
    // The suite's first packet: 66.9.149.187 port 2794 to 161.142.100.80 port 1766.
    let mut suite = packet([161, 142, 100, 80], [2794, 1766]);
    suite[26..30].copy_from_slice(&[66, 9, 149, 187]);
    let mut fragment = suite.clone();
    fragment[20] = 0x20;
    let other = frame(GROUP, 0x88b5, 60);
    r.bring(&[suite, fragment, other]);
    let got: Vec<_> = std::iter::from_fn(|| r.take())
        .map(|cqe| {
            let kind = (cqe.rss_hash_type_ip(), cqe.rss_hash_type_l4());
            (cqe.srqn_user_index() - 0x100, cqe.rss_hash_result(), kind)
        })
        .collect();
    assert_eq!(got, [(0, 0x51cc_c178, (1, 2)), (2, 0x323e_8fc2, (1, 0)), (0, 0, (0, 0))]);
    // Many flows use all queues.
    for port in 0..32 {
        r.bring(&[packet([10, 0, 0, 2], [port, 80])]);
    }
    let mut queues = r.queues();
    queues.sort_unstable();
    queues.dedup();
    assert_eq!(queues, [0, 1, 2, 3]);
}

#[test]
fn frames_to_the_vport_stay_inside_and_frames_to_groups_go_both_ways() {
    let mut r = Receiver::simple(8);
    let (own, stranger, added) = (r.own_mac(), [2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 7, 7]);
    r.s.net.rig.function.hca_mut().vport.unicast.push(added);
    for to in [own, GROUP, [0xff; 6], stranger, added] {
        r.send(&frame(to, 0x88b5, 60));
    }
    let heard: Vec<_> =
        std::iter::from_fn(|| r.take().map(|cqe| r.s.net.rig.read(buffer(0, cqe.wqe_counter()), 60))).collect();
    assert_eq!(heard, [own, GROUP, [0xff; 6], added].map(|to| frame(to, 0x88b5, 60)));
    assert_eq!(r.s.frames(), [GROUP, [0xff; 6], stranger].map(|to| frame(to, 0x88b5, 60)));
    let hca = r.s.net.rig.function.hca();
    assert_eq!((hca.port.counters.rx.frames(), hca.port.counters.tx.frames()), (0, 3));
    assert_eq!(hca.vport.counters.received_eth_unicast.packets, 2);
    assert_eq!(hca.vport.counters.transmitted_eth_unicast.packets, 3);
    // With loopback disabled everything goes to the wire alone.
    let context = &mut r.s.net.rig.function.hca_mut().vport.context;
    context.set_disable_uc_local_lb(1);
    r.send(&frame(own, 1, 60));
    r.send(&frame(GROUP, 2, 60));
    assert_eq!(r.queues().len(), 1);
    r.s.net.rig.function.hca_mut().vport.context.set_disable_mc_local_lb(1);
    r.send(&frame(GROUP, 3, 60));
    assert_eq!((r.queues().len(), r.s.frames().len()), (0, 6));
}

#[test]
fn a_frame_does_not_come_back_into_its_own_transport_domain_unless_allowed() {
    let mut r = Receiver::new();
    let own = r.own_mac();
    let td = r.s.net.td;
    let mut destinations = Vec::new();
    for allowed in 0..4 {
        let queue = r.queue(|_| {});
        r.post(queue, 8);
        destinations.push((TIR, r.interface_in(td, queue, |context| context.set_self_lb_block(allowed))));
    }
    r.everything_to(&destinations);
    r.send(&frame(own, 1, 60));
    assert_eq!(r.queues(), [1, 3], "unicast");
    r.send(&frame(GROUP, 1, 60));
    assert_eq!(r.queues(), [2, 3], "multicast");
    r.send(&frame([0xff; 6], 1, 60));
    assert_eq!(r.queues(), [2, 3], "broadcast");
    r.bring(&[frame(GROUP, 1, 60)]);
    assert_eq!(r.queues(), [0, 1, 2, 3], "from the wire");
    // What is only heard by its sender was not received.
    let mut r = Receiver::new();
    r.queue(|_| {});
    r.post(0, 1);
    let tirn = r.interface_in(td, 0, |_| {});
    r.everything_to(&[(TIR, tirn)]);
    r.send(&frame([0xff; 6], 1, 60));
    assert_eq!(r.s.net.rig.function.hca().vport.counters.received_eth_broadcast.packets, 0);
}

#[test]
fn what_many_get_takes_several_portions_and_keeps_its_order() {
    const QUEUES: usize = 8;
    let mut r = Receiver::new();
    r.s.net.rig.function.hca_mut().port.set_mtu(9978);
    for _ in 0..QUEUES {
        let queue = r.queue(|_| {});
        r.post(queue, 16);
    }
    // Each queue gets each frame four times.
    let tirs: Vec<_> = (0..4 * QUEUES).map(|i| (TIR, r.interface(i % QUEUES))).collect();
    r.everything_to(&tirs);
    let long = |kind| frame(GROUP, kind, 9000);
    r.s.tap.coming.borrow_mut().extend([long(1), long(2)]);
    r.s.net.rig.write(DATA, &long(3));
    let body = [Sender::eth(&[], |_| {}), r.s.data(DATA, 9000)].concat();
    r.s.post(WqeOpcode::SEND, 0, &body);
    r.s.ring_only();
    let mut portions = Vec::new();
    while r.s.net.rig.function.work().more {
        portions.push(r.queues().len());
    }
    portions.push(r.queues().len());
    assert_eq!(portions.iter().sum::<usize>(), 3 * 4 * QUEUES);
    assert!(portions.iter().all(|count| *count <= 40), "{portions:?}: 9000 bytes at a time");
    assert!(portions.len() >= 3, "{portions:?}");
    let kinds: Vec<u8> = (0..12).map(|i| r.s.net.rig.read(buffer(0, i) + 13, 1)[0]).collect();
    let mut sorted = kinds.clone();
    sorted.dedup();
    assert_eq!(sorted.len(), 3, "no frame overtakes another: {kinds:?}");
    r.s.net.rig.function.hca().audit().unwrap();
}

#[test]
fn an_interface_that_goes_while_a_frame_is_under_way_gets_nothing_more() {
    let mut r = Receiver::new();
    r.s.net.rig.function.hca_mut().port.set_mtu(9978);
    let crowd = [0, 1, 2].map(|_| {
        let queue = r.queue(|_| {});
        r.post(queue, 16);
        (TIR, r.interface(queue))
    });
    let last = r.interface(0);
    let mut tirs = crowd.repeat(16);
    tirs.push((TIR, last));
    let (table, _) = r.everything_to(&tirs);
    r.s.tap.coming.borrow_mut().push_back(frame(GROUP, 1, 9000));
    // One more portion than the first would reach the last interface.
    r.s.net.rig.function.work();
    assert!(r.s.net.rig.function.hca().receive.busy());
    let mut delete = vec![0; 0x40];
    delete[0x14..0x18].copy_from_slice(&table.to_be_bytes());
    r.s.net.must(Opcode::DELETE_FLOW_TABLE_ENTRY, delete, 16);
    assert!(!r.s.net.rig.function.hca().receive.busy());
    assert_eq!(r.queues().len(), 48);
    // The same with the interfaces and queues destroyed before the frame gets there.
    let group = r.group(table, 1..=1, &[]);
    r.entry((table, group, 1), &[], &tirs, |_| {});
    (0..3).for_each(|queue| r.post(queue, 16));
    r.s.tap.coming.borrow_mut().push_back(frame(GROUP, 2, 9000));
    r.s.net.rig.function.work();
    let before = r.queues().len();
    let rig = &mut r.s.net.rig;
    assert!(rig.function.hca().receive.busy());
    let objects = &mut rig.function.hca_mut().objects;
    objects.destroy::<FlowEntry>(0, objects.flow_tables.get(table).unwrap().object.entries[&1]).unwrap();
    crowd.iter().for_each(|(_, tirn)| drop(objects.destroy::<Tir>(0, *tirn).unwrap()));
    rig.settle();
    assert!(before < 48);
    assert_eq!(r.queues(), [0], "only the last interface is left");
}

#[test]
fn queues_may_share_a_pool_of_entries() {
    let mut r = Receiver::new();
    let events = r.s.net.rig.event_queue(1 << EventType::SRQ_RQ_LIMIT.0);
    let (at, record) = (ring(14), RECORDS + 0x800);
    let mut input = CreateRmpIn::with_tail(8);
    input.ctx_mut().set_state(1);
    let mut context = input.ctx_mut();
    let mut wq = context.wq_mut();
    wq.set_pd(r.s.net.pd);
    wq.set_log_wq_sz(2);
    wq.set_log_wq_stride(5);
    wq.set_dbr_addr(record);
    wq.set_lwm(2);
    wq.pas_mut().copy_from_slice(&at.to_be_bytes());
    // The list runs 0, 2, 1, 3.
    for (i, next) in [(0u64, 2u16), (2, 1), (1, 3), (3, 0)] {
        let mut entry = vec![0; 16];
        entry[2..4].copy_from_slice(&next.to_be_bytes());
        let mut segment = DataSeg::zeroed();
        segment.set_byte_count(BUFFER as u32);
        segment.set_lkey(r.s.key);
        segment.set_addr(buffer(0, i as u32));
        entry.extend(segment.into_inner());
        r.s.net.rig.write(at + 32 * i, &entry);
    }
    r.s.net.rig.write(record, &4u32.to_be_bytes());
    let rmpn = number(&r.s.net.must(Opcode::CREATE_RMP, input.into_inner(), 16));
    for _ in 0..2 {
        r.queue(|context| {
            context.set_mem_rq_type(1);
            context.set_rmpn(rmpn);
        });
    }
    let (a, b) = (r.interface(0), r.interface(1));
    r.everything_to(&[(TIR, a), (TIR, b)]);
    r.bring(&[frame(GROUP, 1, 60)]);
    assert_eq!(r.s.net.rig.read(events, 64)[1], 0xff, "two are left");
    r.bring(&[frame(GROUP, 2, 60), frame(GROUP, 3, 60)]);
    let got: Vec<_> = std::iter::from_fn(|| r.take()).map(|c| (c.srqn_user_index() - 0x100, c.wqe_counter())).collect();
    assert_eq!(got, [(0, 0), (1, 2), (0, 1), (1, 3)]);
    assert_eq!(r.s.net.rig.read(buffer(0, 3), 60), frame(GROUP, 2, 60));
    let eqe = r.s.net.rig.read(events, 64);
    assert_eq!((eqe[1], &eqe[0x39..0x3c]), (EventType::SRQ_RQ_LIMIT.0, &rmpn.to_be_bytes()[1..]));
}

#[test]
fn tables_of_the_sending_side_let_frames_pass_or_drop_them() {
    const TX: u32 = 1;
    let mut r = Receiver::simple(8);
    let counter = number(&r.s.net.must(Opcode::ALLOC_FLOW_COUNTER, vec![0; 16], 16));
    let create = |r: &mut Receiver, level| {
        let mut input = CreateFlowTableIn::zeroed();
        input.set_table_type(TX);
        input.flow_table_context_mut().set_level(level);
        input.flow_table_context_mut().set_log_size(4);
        r.must(Opcode::CREATE_FLOW_TABLE, input.into_inner())
    };
    let table = create(&mut r, 1);
    let root = |r: &mut Receiver| {
        let mut input = SetFlowTableRootIn::zeroed();
        input.set_table_type(TX);
        input.set_table_id(table);
        r.s.net.must(Opcode::SET_FLOW_TABLE_ROOT, input.into_inner(), 16);
    };
    root(&mut r);
    r.send(&frame(GROUP, 1, 60));
    assert_eq!((r.queues().len(), r.s.frames().len()), (1, 1), "a table without an entry for a frame lets it pass");
    let mut input = CreateFlowGroupIn::zeroed();
    input.set_table_type(TX);
    input.set_table_id(table);
    input.set_match_criteria_enable(3);
    input.match_criteria_mut().outer_headers_mut().set_ethertype(0xffff);
    input.match_criteria_mut().misc_parameters_mut().set_source_sqn(0xff_ffff);
    input.set_end_flow_index(9);
    let group = r.must(Opcode::CREATE_FLOW_GROUP, input.into_inner());
    let sqn = r.s.sqn;
    for (index, kind, sqn, action) in [
        (0, 2, sqn, FlowAction::DROP),
        (1, 3, sqn + 1, FlowAction::DROP),
        (2, 4, sqn, FlowAction::ALLOW | FlowAction::COUNT),
        (3, 5, sqn, FlowAction::DROP | FlowAction::COUNT),
    ] {
        let mut input = SetFteIn::with_tail(8);
        input.set_table_type(TX);
        input.set_table_id(table);
        input.set_flow_index(index);
        let mut context = input.flow_context_mut();
        context.set_group_id(group);
        context.set_action(action.bits().into());
        if action.contains(FlowAction::COUNT) {
            context.set_flow_counter_list_size(1);
            context.destination_mut()[..4].copy_from_slice(&counter.to_be_bytes());
        }
        context.match_value_mut().outer_headers_mut().set_ethertype(kind);
        context.match_value_mut().misc_parameters_mut().set_source_sqn(sqn);
        r.s.net.must(Opcode::SET_FLOW_TABLE_ENTRY, input.into_inner(), 16);
    }
    for kind in [2, 3, 4, 5] {
        r.send(&frame(GROUP, kind, 60));
    }
    let kinds: Vec<u8> = r.s.frames().iter().map(|frame| frame[13]).collect();
    assert_eq!((kinds, r.queues().len()), (vec![1, 3, 4], 2));
    let traffic = r.s.net.rig.function.hca().objects.flow_counters.get(counter).unwrap().object.traffic;
    assert_eq!((traffic.packets, traffic.octets), (2, 120));
    let hca = r.s.net.rig.function.hca();
    assert_eq!(hca.vport.counters.transmitted_eth_multicast.packets, 3, "what is dropped does not reach the vport");
    // Only the sending side knows the queue.
    let mut input = CreateFlowGroupIn::zeroed();
    input.set_table_id(r.table(3, None));
    input.set_match_criteria_enable(2);
    input.match_criteria_mut().misc_parameters_mut().set_source_sqn(1);
    let answer = r.s.net.call(Opcode::CREATE_FLOW_GROUP, input.into_inner(), 16);
    assert_eq!(answer.syndrome(), super::flow::syn::CRITERIA_FIELD.0);
}

#[test]
fn what_is_posted_to_a_queue_in_error_is_flushed_sooner_or_later() {
    let mut r = Receiver::simple(0);
    let rqn = r.rqs[0];
    r.s.net.modify_rq(rqn, WqState::RDY, WqState::ERR, 0, 1, 0);
    let wait = |r: &mut Receiver| {
        let progress = r.s.net.rig.function.work();
        assert!(!progress.more, "no time is spent on waiting");
        progress.wait
    };
    assert_eq!(wait(&mut r), Some(1_000_000));
    // Ever more seldom, but never not at all.
    let mut waits = Vec::new();
    for _ in 0..15 {
        let Some(next) = wait(&mut r) else { break };
        r.s.net.rig.clock.advance(next);
        waits.push(next / 1_000_000);
        r.s.net.rig.settle();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
    r.post(0, 2);
    r.s.net.rig.settle();
    assert!(r.take().is_none());
    r.s.net.rig.clock.advance(4_096_000_000);
    r.s.net.rig.settle();
    assert_eq!((r.error().1, r.error().1), (0, 1));
    assert_eq!(wait(&mut r), Some(1_000_000), "who posts will post again");
    // A queue that leaves the error state or is gone is not looked at.
    r.s.net.modify_rq(rqn, WqState::ERR, WqState::RST, 0, 1, 0);
    assert_eq!(wait(&mut r), None);
    r.s.net.modify_rq(rqn, WqState::RST, WqState::ERR, 0, 1, 0);
    assert_eq!(r.queues().len(), 2, "after a reset the record counts from 0 again");
    let input = r.s.net.rq().into_inner();
    let lonely = r.must(Opcode::CREATE_RQ, input);
    r.s.net.modify_rq(rqn, WqState::ERR, WqState::RST, 0, 1, 0);
    r.s.net.modify_rq(lonely, WqState::RST, WqState::ERR, 0, 1, 0);
    assert_eq!(wait(&mut r), None, "it does not ask for flushing");
    r.s.net.destroy(Opcode::DESTROY_RQ, lonely);
    assert_eq!(wait(&mut r), None);
}
