use proptest::prelude::*;

use super::*;
use crate::prm::cqe::ErrCqe;
use crate::prm::values::{CqeOpcode, QpType, WqeOpcode};
use crate::prm::wqe::AtomicSeg;
use crate::profile::Profile;
use crate::testing::rdma::{Link, Qp, RdmaRig, data, remote};

fn faults(specs: &[&str]) -> Faults {
    Faults::new(&specs.iter().map(|spec| FaultRule::parse(spec).unwrap()).collect::<Vec<_>>())
}

fn head(operation: Operation, source: u32, dest: u32, psn: u32) -> Head {
    Head { operation, source, dest, psn, ..Head::default() }
}

/// The numbers, from 1 on, of equal packets that do not simply arrive.
fn hits(faults: &mut Faults, head: &Head, count: u64) -> Vec<u64> {
    (1..=count).filter(|_| faults.judge(head) != Fate::Deliver).collect()
}

#[test]
fn packets_are_counted_from_one() {
    let send = head(Operation::SendOnly, 1, 2, 7);
    let hit = |spec| hits(&mut faults(&[spec]), &send, 12);
    assert_eq!(hit("drop"), (1..=12).collect::<Vec<_>>());
    assert_eq!(hit("drop:nth=3"), [3]);
    assert_eq!(hit("drop:nth=3,times=2"), [3, 4]);
    assert_eq!(hit("drop:every=5"), [5, 10]);
    assert_eq!(hit("drop:nth=2,every=4"), [2, 6, 10]);
    assert_eq!(hit("drop:nth=2,every=4,times=2"), [2, 6]);
    assert_eq!(hit("drop:psn=7"), [1], "the second is the retransmission");
    assert_eq!(hit("drop:psn=7,times=4"), [1, 2, 3, 4]);
    assert!(hit("drop:psn=8").is_empty());
    assert!(hit("drop:nth=13").is_empty());
}

#[test]
fn a_rule_looks_only_at_packets_that_agree_with_all_of_it() {
    let data = head(Operation::WriteOnly, 0x40, 0x41, 5);
    let ack = head(Operation::Ack, 0x41, 0x40, 5);
    let datagram = Head { transport: Transport::Ud, ..head(Operation::SendOnly, 0x50, 0x51, 5) };
    for (spec, wanted) in [
        ("drop", [true, true, true]),
        ("drop:qpn=0x41", [true, true, false]),
        ("drop:source=0x41", [false, true, false]),
        ("drop:dest=0x41", [true, false, false]),
        ("drop:kind=request", [true, false, true]),
        ("drop:kind=response", [false, true, false]),
        ("drop:kind=ack", [false, true, false]),
        ("drop:kind=send", [false, false, true]),
        ("drop:service=ud", [false, false, true]),
        ("drop:service=rc,kind=write,qpn=0x40,dest=0x41,psn=5", [true, false, false]),
        ("drop:service=rc,kind=write,qpn=0x40,dest=0x40,psn=5", [false, false, false]),
        ("drop:psn=4", [false, false, false]),
    ] {
        let got = [data, ack, datagram].map(|head| faults(&[spec]).judge(&head) == Fate::Drop);
        assert_eq!(got, wanted, "{spec}");
    }
}

#[test]
fn every_operation_is_of_one_narrow_kind_at_most() {
    use PacketKind as K;
    let narrow = [K::Send, K::Write, K::Read, K::Atomic, K::ReadResponse, K::AtomicResponse, K::Ack];
    for (operation, _) in Operation::CODES {
        let kinds: Vec<_> = narrow.into_iter().filter(|kind| is_kind(*kind, operation)).collect();
        assert_eq!(kinds.len(), 1, "{operation:?} is {kinds:?}");
        let response = matches!(kinds[0], K::ReadResponse | K::AtomicResponse | K::Ack);
        assert_eq!(is_kind(K::Response, operation), response, "{operation:?}");
        assert_eq!(is_kind(K::Request, operation), !response, "{operation:?}");
    }
}

#[test]
fn the_first_rule_that_wants_a_packet_gets_it_and_all_count_it() {
    let send = head(Operation::SendOnly, 1, 2, 7);
    let mut faults = faults(&["drop:nth=2", "duplicate:nth=2", "delay:us=5,nth=3,times=2"]);
    let fates: Vec<_> = (0..5).map(|_| faults.judge(&send)).collect();
    assert_eq!(fates, [Fate::Deliver, Fate::Drop, Fate::Duplicate, Fate::Delay(5000), Fate::Delay(5000)]);
    let report: Vec<_> = faults.report().into_iter().map(|fault| (fault.seen, fault.hit)).collect();
    assert_eq!(report, [(5, 1), (5, 1), (5, 2)]);
    assert_eq!(faults.report()[2].rule, "delay:us=5,nth=3,times=2");
}

#[test]
fn without_rules_everything_arrives() {
    let mut none = Faults::default();
    assert!(none.is_empty());
    assert_eq!(none.judge(&Head::default()), Fate::Deliver);
    assert_eq!(none.report(), []);
}

#[test]
fn late_packets_arrive_in_order_of_time_and_then_of_sending() {
    let packet = |psn| Packet { head: Head { psn, ..Head::default() }, ..Packet::default() };
    let mut delayed = Delayed::default();
    for (at, psn) in [(20, 1), (10, 2), (20, 3), (10, 4)] {
        assert_eq!(delayed.push(at, packet(psn)), None);
    }
    assert_eq!(delayed.next_deadline(), Some(10));
    assert_eq!(delayed.pop(9), None);
    let mut arrived = |now| std::iter::from_fn(|| delayed.pop(now)).map(|p| p.head.psn).collect::<Vec<_>>();
    assert_eq!(arrived(10), [2, 4]);
    assert_eq!(arrived(30), [1, 3]);
    assert_eq!(delayed.next_deadline(), None);
}

#[test]
fn a_packet_that_finds_no_room_is_given_back() {
    let mut delayed = Delayed::default();
    let large = Packet { payload: Payload::Held(vec![0; 4096]), ..Packet::default() };
    let kept = (0..5000).take_while(|at| delayed.push(*at, large.clone()).is_none()).count();
    assert_eq!(kept, MAX_DELAYED);
    assert_eq!(delayed.push(0, large.clone()), Some(large.clone()));
    assert!(delayed.pop(0).is_some());
    assert_eq!(delayed.push(1, large), None);
    let huge = Packet { payload: Payload::Held(vec![0; MAX_DELAYED_BYTES + 1]), ..Packet::default() };
    delayed.clear();
    assert_eq!(delayed.push(1, huge.clone()), Some(huge));
}

/// What a queue pair is asked to do.
#[derive(Clone, Copy, Debug)]
enum Op {
    Send(usize),
    Write(usize),
    WriteImmediate(usize),
    Read(usize),
    Add,
}

/// Largest message.
const ROOM: usize = 8192;
/// Most operations of one queue pair: its rings have no more room.
const OPS: usize = 20;

/// One end of a connection and the memory that it uses.
struct End {
    qp: Qp,
    ops: Vec<Op>,
    /// Where this end gathers from, or reads to.
    local: u64,
    /// Where this end writes to, or reads from.
    remote: u64,
    /// Receive buffers of this end.
    buffers: u64,
    /// The word at the other end that this one adds to.
    word: u64,
    sent: Vec<Vec<u8>>,
    completed: Vec<u32>,
    received: Vec<(u32, u32)>,
}

fn at(base: u64, index: usize) -> u64 {
    base + (index * ROOM) as u64
}

impl End {
    fn new(rig: &mut RdmaRig, qp: Qp, ops: Vec<Op>, seed: u8) -> End {
        let mut area = || rig.memory((OPS * ROOM) as u64);
        let (local, remote, buffers) = (area(), area(), area());
        let word = rig.memory(8);
        let mut sent = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let (base, size) = match *op {
                Op::Send(size) | Op::Write(size) | Op::WriteImmediate(size) => (local, size),
                Op::Read(size) => (remote, size),
                Op::Add => (local, 0),
            };
            sent.push(rig.pattern(at(base, index), size, seed.wrapping_add(index as u8)));
        }
        End { qp, ops, local, remote, buffers, word, sent, completed: Vec::new(), received: Vec::new() }
    }

    fn post(&mut self, rig: &mut RdmaRig) {
        let key = rig.key;
        for (index, op) in self.ops.clone().into_iter().enumerate() {
            let (here, there) = (at(self.local, index), at(self.remote, index));
            let list = |size: usize| if size > 0 { data(size as u32, key, here) } else { Vec::new() };
            let (opcode, segments) = match op {
                Op::Send(size) => (WqeOpcode::SEND, list(size)),
                Op::Write(size) => (WqeOpcode::RDMA_WRITE, [remote(there, key), list(size)].concat()),
                Op::WriteImmediate(size) => (WqeOpcode::RDMA_WRITE_IMM, [remote(there, key), list(size)].concat()),
                Op::Read(size) => (WqeOpcode::RDMA_READ, [remote(there, key), list(size)].concat()),
                Op::Add => {
                    let mut operands = AtomicSeg::zeroed();
                    operands.set_swap_add(1);
                    (WqeOpcode::ATOMIC_FA, [remote(self.word, key), operands.as_bytes().to_vec(), list(8)].concat())
                }
            };
            rig.post_send(&mut self.qp, opcode, &segments, |ctrl| ctrl.set_imm(index as u32));
        }
        rig.ring_send(&self.qp);
    }

    fn poll(&mut self, rig: &mut RdmaRig) {
        while let Some(cqe) = rig.poll(&mut self.qp.cq) {
            match CqeOpcode(cqe.opcode() as u8) {
                CqeOpcode::REQ => self.completed.push(cqe.wqe_counter()),
                CqeOpcode::RESP_SEND => self.received.push((cqe.wqe_counter(), cqe.byte_cnt())),
                CqeOpcode::RESP_WR_IMM => self.received.push((cqe.wqe_counter(), cqe.immediate())),
                other => panic!("{other:?}, syndrome {:#x}", ErrCqe::wrap(cqe.as_bytes()).syndrome()),
            }
        }
    }

    /// Everything that `self` did is right, as its peer sees it.
    fn check(&self, peer: &End, rig: &RdmaRig) {
        assert_eq!(self.completed, (0..self.ops.len() as u32).collect::<Vec<_>>(), "complete once and in order");
        let mut received = peer.received.iter();
        let mut added = 0u64;
        for (index, (op, bytes)) in self.ops.iter().zip(&self.sent).enumerate() {
            match *op {
                Op::Send(size) => {
                    let (entry, count) = received.next().expect("a receive completion");
                    assert_eq!(*count as usize, size);
                    assert_eq!(&rig.read(at(peer.buffers, *entry as usize), size), bytes, "{op:?}");
                }
                Op::WriteImmediate(size) => {
                    assert_eq!(received.next().map(|(_, immediate)| *immediate), Some(index as u32));
                    assert_eq!(&rig.read(at(self.remote, index), size), bytes, "{op:?}");
                }
                Op::Write(size) => assert_eq!(&rig.read(at(self.remote, index), size), bytes, "{op:?}"),
                Op::Read(size) => assert_eq!(&rig.read(at(self.local, index), size), bytes, "{op:?}"),
                Op::Add => {
                    let original = rig.read(at(self.local, index), 8);
                    let original = u64::from_le_bytes(original.try_into().unwrap());
                    assert_eq!(original, added, "executed once and in order");
                    added += 1;
                }
            }
        }
        assert_eq!(received.next(), None);
        assert_eq!(rig.read(self.word, 8), added.to_le_bytes());
    }
}

fn exchange(rules: &[FaultRule], a: Vec<Op>, b: Vec<Op>) -> RdmaRig {
    let mut rig = RdmaRig::with(Profile::default());
    rig.function.hca_mut().atomics_big_endian = false;
    rig.function.hca_mut().faults = Faults::new(rules);
    let link = Link { timeout: 10, ..Link::default() };
    let (qa, qb) = rig.pair(QpType::RC, link);
    let (mut a, mut b) = (End::new(&mut rig, qa, a, 1), End::new(&mut rig, qb, b, 100));
    for end in [&mut a, &mut b] {
        let key = rig.key;
        for index in 0..OPS {
            rig.post_receive(&mut end.qp, &data(ROOM as u32, key, at(end.buffers, index)));
        }
    }
    a.post(&mut rig);
    b.post(&mut rig);
    rig.settle();
    for _ in 0..400 {
        a.poll(&mut rig);
        b.poll(&mut rig);
        rig.pass(1_000_000);
    }
    assert_eq!(rig.function.hca().rdma.delayed.next_deadline(), None);
    a.poll(&mut rig);
    b.poll(&mut rig);
    a.check(&b, &rig);
    b.check(&a, &rig);
    rig
}

fn op() -> impl Strategy<Value = Op> {
    let size = || prop_oneof![Just(0usize), 1..64usize, 1000..1100usize, 1..ROOM];
    prop_oneof![
        size().prop_map(Op::Send),
        size().prop_map(Op::Write),
        size().prop_map(Op::WriteImmediate),
        size().prop_map(Op::Read),
        Just(Op::Add),
    ]
}

fn fault() -> impl Strategy<Value = FaultRule> {
    let kinds = ["any", "request", "response", "ack", "read-response", "atomic-response", "read", "write", "send"];
    let action = prop_oneof![
        3 => Just("drop:".to_string()),
        1 => Just("duplicate:".to_string()),
        1 => (1..20_000u64).prop_map(|us| format!("delay:us={us},")),
    ];
    (action, prop::sample::select(kinds.to_vec()), 1..40u64, 1..7u64).prop_map(|(action, kind, nth, every)| {
        // Two hits of three rules stay below the retries of the connection.
        FaultRule::parse(&format!("{action}service=rc,kind={kind},nth={nth},every={every},times=2")).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reliable_connection_does_everything_once_whatever_the_wire_does(
        rules in prop::collection::vec(fault(), 0..=3),
        a in prop::collection::vec(op(), 0..=OPS),
        b in prop::collection::vec(op(), 0..=OPS),
    ) {
        exchange(&rules, a, b);
    }
}

#[test]
fn each_way_of_losing_one_packet_is_made_good() {
    let ops = [Op::Send(3000), Op::Write(3000), Op::WriteImmediate(2048), Op::Read(3000), Op::Add, Op::Send(0)];
    for action in ["drop", "duplicate", "delay:us=100", "delay:us=9000"] {
        for nth in 1..=24 {
            let separator = if action.contains(':') { ',' } else { ':' };
            let rule = FaultRule::parse(&format!("{action}{separator}service=rc,nth={nth}")).unwrap();
            let rig = exchange(&[rule], ops.to_vec(), Vec::new());
            let report = rig.function.summary().wire_faults;
            assert_eq!(report[0].hit, u64::from(report[0].seen >= nth), "{rule}");
        }
    }
}

#[test]
fn an_unreliable_message_is_gone_when_lost_and_comes_twice_when_doubled() {
    for (spec, count) in [("drop:service=uc,nth=1", 0), ("duplicate:service=uc,nth=1", 2), ("drop:service=rc", 1)] {
        let mut rig = RdmaRig::new();
        rig.function.hca_mut().faults = faults(&[spec]);
        let (mut a, mut b) = rig.pair(QpType::UC, Link::default());
        let (key, to) = (rig.key, rig.memory(4096));
        rig.post_receive(&mut b, &data(64, key, to));
        rig.post_receive(&mut b, &data(64, key, to + 64));
        let entry = crate::testing::rdma::inline(b"hello");
        rig.send(&mut a, WqeOpcode::SEND, &entry);
        assert!(rig.poll(&mut a.cq).is_some(), "the sender does not know");
        let received = std::iter::from_fn(|| rig.poll(&mut b.cq)).count();
        assert_eq!(received, count, "{spec}");
    }
}

#[test]
fn a_teardown_loses_what_is_on_its_way() {
    let mut rig = RdmaRig::new();
    rig.function.hca_mut().faults = faults(&["delay:us=1000"]);
    let (mut a, _b) = rig.pair(QpType::RC, Link::default());
    let (key, to) = (rig.key, rig.memory(4096));
    let segments = [remote(to, key), crate::testing::rdma::inline(&[7; 8])].concat();
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
    assert!(rig.function.hca().rdma.next_deadline().is_some());
    rig.ok(&crate::testing::queues::QueueRig::naming(0x103, 0), 16);
    rig.pass(2_000_000);
    assert_eq!(rig.read(to, 8), [0; 8]);
    assert_eq!(rig.function.summary().wire_faults[0].hit, 1, "the wire's counts are not the function's");
}

#[test]
fn one_lost_response_costs_one_retry_however_many_come_behind_it() {
    let rule = FaultRule::parse("drop:kind=read-response,nth=1").unwrap();
    let mut rig = RdmaRig::new();
    rig.function.hca_mut().faults = Faults::new(&[rule]);
    let (mut a, _b) = rig.pair(QpType::RC, Link { retries: 1, ..Link::default() });
    let (key, from, to) = (rig.key, rig.memory(ROOM as u64), rig.memory(ROOM as u64));
    let bytes = rig.pattern(from, ROOM, 9);
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(from, key), data(ROOM as u32, key, to)].concat());
    let cqe = rig.poll(&mut a.cq).expect("no timer is needed");
    assert_eq!(CqeOpcode(cqe.opcode() as u8), CqeOpcode::REQ);
    assert_eq!(rig.read(to, ROOM), bytes);
}
