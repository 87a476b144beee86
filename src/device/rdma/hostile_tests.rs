//! Queue pairs whose driver, memory and wire are hostile.

use std::ops::Range;

use crate::config::fault::FaultRule;
use crate::device::function::ResetKind;
use crate::dma::Iova;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::values::{AtomicMode, CqeOpcode, CqeSyndrome, QpMtu, QpType, WqeOpcode};
use crate::prm::wqe::{Av, UmrCtrlSeg};
use crate::testing::Rig;
use crate::testing::queues::{QueueRig, number};
use crate::testing::rdma::{Link, Qp, RdmaRig, data, inline, remote};

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.roll() >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn klm(len: u32, key: u32, va: u64) -> Vec<u8> {
    [&len.to_be_bytes()[..], &key.to_be_bytes(), &va.to_be_bytes()].concat()
}

/// A key of `len` bytes, each of which is a part of its own, at `at` of `key`.
fn in_single_bytes(rig: &mut RdmaRig, key: u32, at: u64, len: u32) -> u32 {
    let repeat = crate::mkey::reserved::Reserved::Repeat.key();
    let list = [klm(1, repeat, u64::from(len) << 32 | 1), klm(1 << 16 | 1, key, at)].concat();
    rig.create_listed_key(&list, |mkc| {
        mkc.set_access_mode_1_0(2);
        mkc.set_len(len.into());
        mkc.set_translations_octword_size(4);
    })
}

fn outcome(rig: &mut RdmaRig, qp: &mut Qp) -> Option<Result<(), CqeSyndrome>> {
    let cqe: Cqe<Vec<u8>> = rig.poll(&mut qp.cq)?;
    if cqe.opcode() == u32::from(CqeOpcode::REQ.0) {
        return Some(Ok(()));
    }
    assert_eq!(cqe.opcode(), u32::from(CqeOpcode::REQ_ERR.0));
    Some(Err(CqeSyndrome(ErrCqe::wrap(cqe.as_bytes()).syndrome() as u8)))
}

/// Other queue pairs still work, and the books are in order.
fn survives(rig: &mut RdmaRig) {
    rig.settle();
    rig.function.hca().audit().expect("references and memory agree");
    let (mut a, _) = rig.pair(QpType::RC, Link::default());
    let (key, at) = (rig.key, rig.memory(4096));
    rig.send(&mut a, WqeOpcode::RDMA_WRITE, &[remote(at, key), inline(b"works")].concat());
    for _ in 0..100 {
        if rig.read(at, 5) == b"works" {
            break;
        }
        rig.pass(100_000_000);
    }
    assert_eq!(rig.read(at, 5), b"works");
}

/// Portions of work until the device is idle.
fn portions(rig: &mut RdmaRig) -> usize {
    (1..100_000).find(|_| !rig.function.work().more).expect("it becomes idle")
}

#[test]
fn a_target_in_very_many_parts_costs_as_much_as_a_source() {
    let mut rig = RdmaRig::new();
    const LEN: u32 = 256 << 10;
    let (mut a, _) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_4K, ..Link::default() });
    let (key, from, to) = (rig.key, rig.memory(LEN.into()), rig.memory(LEN.into()));
    let parts = in_single_bytes(&mut rig, key, to, LEN);
    let bytes = rig.pattern(from, LEN as usize, 7);
    for (opcode, segments) in [
        (WqeOpcode::RDMA_WRITE, [remote(0, parts), data(LEN, key, from)].concat()),
        (WqeOpcode::RDMA_READ, [remote(from, key), data(LEN, parts, 0)].concat()),
    ] {
        rig.write(to, &vec![0; LEN as usize]);
        rig.post_send(&mut a, opcode, &segments, |_| {});
        rig.ring_send(&a);
        let portions = portions(&mut rig);
        assert_eq!(outcome(&mut rig, &mut a), Some(Ok(())));
        assert_eq!(rig.read(to, LEN as usize), bytes);
        let least = LEN as usize * super::PART_COST / super::BYTES_PER_PORTION / 4;
        assert!(portions > least, "{opcode}: {LEN} parts in {portions} portions");
    }
}

/// Members of a group with receive lists of single bytes, and a datagram of 4096 bytes to all of them.
fn spread(rig: &mut RdmaRig, from: u64, members: usize) -> (Qp, Vec<(Qp, u64)>) {
    const LEN: u32 = 4096 + 40;
    let key = rig.key;
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x0e, 1);
    let link = Link { mtu: QpMtu::MTU_4K, ..Link::default() };
    let mut sender = rig.qp(QpType::UD);
    rig.connect(sender.qpn, 0, link);
    let members: Vec<_> = (0..members)
        .map(|_| {
            let mut qp = rig.qp(QpType::UD);
            rig.connect(qp.qpn, 0, link);
            let mut attach = Rig::input(0x806, 0, 32);
            attach[8..12].copy_from_slice(&qp.qpn.to_be_bytes());
            attach[16..].copy_from_slice(&gid);
            rig.ok(&attach, 16);
            let to = rig.memory(LEN.into());
            let parts = in_single_bytes(rig, key, to, LEN);
            rig.post_receive(&mut qp, &data(LEN, parts, 0));
            (qp, to)
        })
        .collect();
    let mut av = Av::zeroed();
    av.set_qkey(0x1111_1111);
    av.set_extended(1);
    av.set_dqp_dct(0xff_ffff);
    av.as_bytes_mut()[0x14..0x1a].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    av.as_bytes_mut()[0x20..].copy_from_slice(&gid);
    rig.post_send(&mut sender, WqeOpcode::SEND, &[av.as_bytes().to_vec(), data(4096, key, from)].concat(), |_| {});
    rig.ring_send(&sender);
    (sender, members)
}

#[test]
fn a_datagram_to_many_takes_many_portions_and_reaches_each_once() {
    const MEMBERS: usize = 12;
    let mut rig = RdmaRig::new();
    let from = rig.memory(4096);
    let sent = rig.pattern(from, 4096, 3);
    let (mut sender, members) = spread(&mut rig, from, MEMBERS);
    rig.function.work();
    // The memory that it came from is the sender's again.
    assert_eq!(outcome(&mut rig, &mut sender), Some(Ok(())));
    rig.write(from, &[0; 4096]);
    let portions = 1 + portions(&mut rig);
    assert!((MEMBERS..3 * MEMBERS).contains(&portions), "{MEMBERS} members in {portions} portions");
    for (mut qp, to) in members {
        assert_eq!(rig.read(to + 40, 4096), sent);
        let cqe = rig.poll(&mut qp.cq).expect("it has received");
        assert_eq!((cqe.opcode(), cqe.byte_cnt()), (u32::from(CqeOpcode::RESP_SEND.0), 4096 + 40));
        assert!(rig.poll(&mut qp.cq).is_none(), "once");
    }
    survives(&mut rig);
}

#[test]
fn members_that_go_before_a_datagram_has_reached_them_are_left_out() {
    let mut rig = RdmaRig::new();
    let from = rig.memory(4096);
    rig.pattern(from, 4096, 3);
    let (_, mut members) = spread(&mut rig, from, 6);
    rig.function.work();
    let (last, to) = members.pop().expect("six");
    // QP destruction needs its memberships gone; the command runs between two portions.
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x0e, 1);
    let mut detach = Rig::input(0x807, 0, 32);
    detach[8..12].copy_from_slice(&last.qpn.to_be_bytes());
    detach[16..].copy_from_slice(&gid);
    rig.ok(&detach, 16);
    rig.settle();
    assert_eq!(rig.read(to + 40, 1), [0]);
    let (mut other, to) = members.pop().expect("five");
    assert!(rig.poll(&mut other.cq).is_some());
    assert_ne!(rig.read(to + 40, 16), [0; 16]);
    survives(&mut rig);
}

#[test]
fn the_first_train_of_a_message_goes_to_a_bounded_number_of_parts() {
    const LEN: u32 = super::TRAIN_BYTES;
    const MTU: usize = 1024;
    for (service, opcode) in [
        (QpType::RC, WqeOpcode::RDMA_WRITE),
        (QpType::RC, WqeOpcode::RDMA_WRITE_IMM),
        (QpType::RC, WqeOpcode::SEND),
        (QpType::RC, WqeOpcode::RDMA_READ),
        (QpType::UC, WqeOpcode::RDMA_WRITE),
        (QpType::UC, WqeOpcode::SEND_IMM),
    ] {
        let mut rig = RdmaRig::new();
        let (mut a, mut b) = rig.pair(service, Link { mtu: QpMtu::MTU_1K, ..Link::default() });
        let (key, from, to) = (rig.key, rig.memory(LEN.into()), rig.memory(LEN.into()));
        let parts = in_single_bytes(&mut rig, key, to, LEN);
        let bytes: Vec<u8> = (0..LEN).map(|at| 1 + (at % 251) as u8).collect();
        rig.write(from, &bytes);
        let plain = data(LEN, key, from);
        let segments = match opcode {
            WqeOpcode::RDMA_READ => [remote(from, key), data(LEN, parts, 0)].concat(),
            WqeOpcode::SEND | WqeOpcode::SEND_IMM => plain,
            _ => [remote(0, parts), plain].concat(),
        };
        rig.post_receive(&mut b, &data(LEN, parts, 0));
        rig.post_send(&mut a, opcode, &segments, |_| {});
        rig.ring_send(&a);
        // As many as are paid for, the train's, and those of the packet that goes beyond.
        let most = super::BYTES_PER_PORTION / super::PART_COST + super::TRAIN_PARTS + 2 * MTU;
        let mut before = 0;
        for portion in 0.. {
            let more = rig.function.work().more;
            let now = rig.read(to, LEN as usize).iter().filter(|byte| **byte != 0).count();
            assert!(now - before <= most, "{service} {opcode}: {} bytes in portion {portion}", now - before);
            before = now;
            if !more {
                break;
            }
        }
        rig.settle();
        assert_eq!(outcome(&mut rig, &mut a), Some(Ok(())), "{service} {opcode}");
        assert_eq!(rig.read(to, LEN as usize), bytes, "{service} {opcode}");
        let received = rig.poll(&mut b.cq).map(|cqe: Cqe<Vec<u8>>| cqe.byte_cnt());
        let consumes = !matches!(opcode, WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_READ);
        assert_eq!(received, consumes.then_some(LEN), "{service} {opcode}");
        assert_eq!(rig.poll(&mut b.cq).map(|cqe: Cqe<Vec<u8>>| cqe.opcode()), None);
        survives(&mut rig);
    }
}

#[test]
fn a_gibibyte_is_read_in_the_smallest_packets() {
    let mut rig = RdmaRig::new();
    const MIB: u32 = 1 << 20;
    let (mut a, _) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_256, timeout: 31, ..Link::default() });
    let (key, from, to) = (rig.key, rig.memory(MIB.into()), rig.memory(MIB.into()));
    let mut key_to = |at| {
        let list: Vec<u8> = (0..1024).flat_map(|_| klm(MIB, key, at)).collect();
        rig.create_listed_key(&list, |mkc| {
            mkc.set_access_mode_1_0(2);
            mkc.set_len(1 << 30);
            mkc.set_translations_octword_size(1024);
        })
    };
    let (source, target) = (key_to(from), key_to(to));
    let bytes = rig.pattern(from, MIB as usize, 1);
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(0, source), data(1 << 30, target, 0)].concat());
    assert_eq!(outcome(&mut rig, &mut a), Some(Ok(())));
    assert_eq!(rig.read(to, MIB as usize), bytes);
    survives(&mut rig);
}

#[test]
fn a_key_that_leads_to_itself_leads_nowhere() {
    let mut rig = RdmaRig::new();
    let (key, from) = (rig.key, rig.memory(4096));
    let mut own = rig.create_key(|_| {}) + 0x100;
    for _ in 0..2 {
        for mode in [2, 3] {
            let list = [klm(4096, own, 0), klm(4096, own, 0), klm(0, own, 0), klm(4096, own, 0)].concat();
            let key_to_itself = rig.create_listed_key(&list, |mkc| {
                mkc.set_access_mode_1_0(mode);
                mkc.set_len(8192);
                mkc.set_log_page_size(12);
                mkc.set_translations_octword_size(4);
            });
            assert_eq!(key_to_itself, own, "numbers follow each other");
            own += 0x100;
            for (opcode, segments) in [
                (WqeOpcode::RDMA_WRITE, [remote(0, key_to_itself), data(4096, key, from)].concat()),
                (WqeOpcode::RDMA_WRITE, [remote(from, key), data(4096, key_to_itself, 0)].concat()),
                (WqeOpcode::RDMA_READ, [remote(0, key_to_itself), data(4096, key, from)].concat()),
            ] {
                let (mut a, _) = rig.pair(QpType::RC, Link::default());
                rig.send(&mut a, opcode, &segments);
                assert!(matches!(outcome(&mut rig, &mut a), Some(Err(_))), "{mode} {opcode}");
            }
        }
    }
    survives(&mut rig);
}

#[test]
fn a_message_whose_shared_queue_goes_in_the_middle_is_refused() {
    let mut rig = RdmaRig::new();
    const LEN: u32 = 1 << 20;
    let (pd, key, xrcd) = (rig.pd, rig.key, rig.xrcd());
    let (from, to) = (rig.memory(LEN.into()), rig.memory(LEN.into()));
    let spare = rig.cq();
    let internal = rig.create_xrc_srq(pd, xrcd, spare.cqn);
    let cq = rig.cq();
    let (input, record) = rig.create_xrc_srq_in(pd, xrcd, cq.cqn);
    let srqn = number(&rig.ok(input.as_bytes(), 16));
    let entry = [&[0, 0, 0, 1][..], &[0; 12], &data(LEN, key, to)].concat();
    rig.write(record - 4096, &entry);
    rig.write(record, &1u32.to_be_bytes());
    let xrc = |context: &mut crate::prm::qp::Qpc<&mut [u8]>| {
        context.set_xrcd(xrcd);
        context.set_rq_type(1);
        context.set_srqn_rmpn_xrqn(internal);
    };
    let (mut a, b) = (rig.qp_with(QpType::XRC, xrc), rig.qp_with(QpType::XRC, xrc));
    rig.connect(a.qpn, b.qpn, Link::default());
    rig.connect(b.qpn, a.qpn, Link::default());
    rig.write(from, &vec![0xaa; LEN as usize]);
    let segments = [&srqn.to_be_bytes()[..], &[0; 12], &data(LEN, key, from)].concat();
    rig.post_send(&mut a, WqeOpcode::SEND, &segments, |_| {});
    rig.ring_send(&a);
    assert!(rig.function.work().more, "a megabyte takes more than one portion");
    // The message is half there.
    let commands = [QueueRig::naming(0x706, srqn), QueueRig::naming(0x401, cq.cqn)];
    for (slot, command) in commands.iter().enumerate() {
        rig.post(slot as u64, command, 16);
    }
    rig.function.bar_write(0x18, &3u32.to_be_bytes());
    rig.function.work();
    rig.settle();
    assert_eq!([rig.entry(0)[0x20], rig.entry(1)[0x20]], [0, 0], "nothing holds them");
    assert_eq!(outcome(&mut rig, &mut a), Some(Err(CqeSyndrome::REMOTE_INVAL_REQ_ERR)));
    assert_eq!(rig.read(to + u64::from(LEN) - 1, 1), [0]);
    survives(&mut rig);
}

#[test]
fn queue_pairs_that_do_not_fit_each_other_fail_alone() {
    let services = [QpType::RC, QpType::UC, QpType::UD];
    let mut rig = RdmaRig::new();
    let (key, at) = (rig.key, rig.memory(1 << 16));
    let mtus = [QpMtu::MTU_256, QpMtu::MTU_4K];
    for (i, (one, two)) in services.into_iter().flat_map(|one| services.map(|two| (one, two))).enumerate() {
        for (mtu_a, mtu_b) in mtus.into_iter().flat_map(|a| mtus.map(|b| (a, b))) {
            for psn in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff] {
                let (mut a, mut b) = (rig.qp(one), rig.qp(two));
                let link = Link { timeout: 1, retries: 1, rnr_retries: 1, ..Link::default() };
                let itself = i % 2 == 0 && psn == 1;
                rig.connect(a.qpn, if itself { a.qpn } else { b.qpn }, Link { mtu: mtu_a, psn: 0, ..link });
                rig.connect(b.qpn, a.qpn, Link { mtu: mtu_b, psn, ..link });
                rig.post_receive(&mut b, &data(40_000, key, at));
                for (opcode, segments) in [
                    (WqeOpcode::RDMA_WRITE, [remote(at, key), data(9000, key, at + 20_000)].concat()),
                    (WqeOpcode::RDMA_READ, [remote(at, key), data(9000, key, at + 20_000)].concat()),
                    (WqeOpcode::RDMA_READ, remote(at, key)),
                    (WqeOpcode::ATOMIC_FA, [remote(at, key), vec![1; 16], data(8, key, at)].concat()),
                    (WqeOpcode::SEND, data(9000, key, at)),
                    (WqeOpcode::SEND, vec![]),
                ] {
                    rig.post_send(&mut a, opcode, &segments, |_| {});
                }
                rig.ring_send(&a);
                for _ in 0..4 {
                    rig.pass(1_000_000);
                }
                for qp in [a, b] {
                    rig.ok(&QueueRig::naming(0x501, qp.qpn), 16);
                    rig.ok(&QueueRig::naming(0x401, qp.cq.cqn), 16);
                }
            }
        }
        rig.function.hca().audit().expect("references and memory agree");
        // Memory of the queues is used again.
        if i % 3 == 2 {
            survives(&mut rig);
            rig = RdmaRig::new();
        }
    }
}

/// Random drivers, and one.
const MANY: u64 = 4;

/// What a random driver has.
struct Chaos {
    dice: Dice,
    qps: Vec<Qp>,
    keys: Vec<u32>,
    at: Range<u64>,
}

impl Chaos {
    fn key(&mut self) -> u32 {
        match self.dice.below(16) {
            0 => self.dice.roll() as u32,
            1 => crate::mkey::reserved::Reserved::Repeat.key(),
            2 => 0x100 + self.dice.below(8) as u32,
            _ => self.dice.of(&self.keys),
        }
    }

    fn address(&mut self) -> u64 {
        match self.dice.below(12) {
            0 => self.dice.roll(),
            1 => u64::MAX - self.dice.below(20),
            2 => self.at.end - 3,
            _ => self.at.start + self.dice.below(self.at.end - self.at.start),
        }
    }

    fn len(&mut self) -> u32 {
        match self.dice.below(12) {
            0 => 0,
            1 => self.dice.roll() as u32 >> 1,
            2 => 1 << 30,
            3 => self.dice.below(1 << 21) as u32,
            4 => self.dice.of(&[255, 256, 257, 4095, 4096, 4097]),
            _ => self.dice.below(9000) as u32,
        }
    }

    fn segments(&mut self) -> Vec<u8> {
        let mut out = vec![];
        for _ in 0..self.dice.below(6) {
            match self.dice.below(12) {
                0 => out.extend((0..16).map(|_| self.dice.roll() as u8)),
                1 => {
                    let len = self.dice.below(200);
                    out.extend(inline(&vec![7; len as usize]));
                }
                _ => out.extend(data(self.len(), self.key(), self.address())),
            }
        }
        out
    }

    fn entry(&mut self) -> (WqeOpcode, Vec<u8>) {
        use WqeOpcode as O;
        let all = [
            O::NOP,
            O::SEND,
            O::SEND_IMM,
            O::SEND_INVAL,
            O::RDMA_WRITE,
            O::RDMA_WRITE_IMM,
            O::RDMA_READ,
            O::RDMA_READ,
            O::ATOMIC_CS,
            O::ATOMIC_FA,
            O::ATOMIC_MASKED_CS,
            O::ATOMIC_MASKED_FA,
            O::UMR,
            O(self.dice.roll() as u8),
        ];
        let opcode = self.dice.of(&all);
        let mut out = vec![];
        match opcode {
            O::UMR => {
                out = vec![0; 48 + 64];
                out[0] = self.dice.roll() as u8 & 0xf8;
                out[3] = self.dice.below(8) as u8;
                let mask = self.dice.roll() & self.dice.roll();
                out[8..16].copy_from_slice(&mask.to_be_bytes());
                for _ in 0..self.dice.below(20) {
                    let at = 48 + self.dice.below(64) as usize;
                    out[at] = self.dice.roll() as u8;
                }
            }
            O::RDMA_WRITE | O::RDMA_WRITE_IMM | O::RDMA_READ => out = remote(self.address(), self.key()),
            O::ATOMIC_CS | O::ATOMIC_FA => {
                out = remote(self.address() & !7, self.key());
                out.extend([1; 16]);
                out.extend(data(8, self.key(), self.address()));
                return (opcode, out);
            }
            O::ATOMIC_MASKED_CS | O::ATOMIC_MASKED_FA => {
                out = remote(self.address() & !7, self.key());
                out.extend([1; 32]);
                out.extend(data(8, self.key(), self.address()));
                return (opcode, out);
            }
            _ => {}
        }
        out.extend(self.segments());
        (opcode, out)
    }
}

fn rampage(seed: u64, steps: usize, rules: &[&str]) {
    let mut rig = RdmaRig::new();
    let rules: Vec<_> = rules.iter().map(|rule| FaultRule::parse(rule).expect("a rule")).collect();
    rig.function.hca_mut().faults = super::fault::Faults::new(&rules);
    let at = rig.memory(4 << 20);
    let key = rig.key;
    let mut chaos = Chaos {
        dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        qps: vec![],
        keys: vec![key, key, key, key],
        at: at..at + (4 << 20),
    };
    let pages: Vec<u8> = (0..64u64).flat_map(|page| ((at + 4096 * page) | (page % 4)).to_be_bytes()).collect();
    let mtt = rig.create_listed_key(&pages, |mkc| {
        mkc.set_access_mode_1_0(1);
        mkc.set_log_page_size(12);
        mkc.set_umr_en(1);
        mkc.set_start_addr(at);
        mkc.set_len(64 * 4096);
        mkc.set_translations_octword_size(32);
    });
    let list: Vec<u8> = (0..32).flat_map(|i| klm(100 + 77 * i, if i % 7 == 6 { mtt } else { key }, at)).collect();
    let indirect = rig.create_listed_key(&list, |mkc| {
        mkc.set_access_mode_1_0(2);
        mkc.set_umr_en(1);
        mkc.set_start_addr(at);
        mkc.set_len(32 * 100);
        mkc.set_translations_octword_size(32);
    });
    let bytes = in_single_bytes(&mut rig, key, at, 1 << 16);
    chaos.keys.extend([mtt, indirect, bytes, key]);
    let services = [QpType::RC, QpType::RC, QpType::RC, QpType::UC, QpType::UD];
    let mut hole = None;
    rig.function.bus_mut().map_mut().unmap_all();
    rig.plug(0, at);
    for page in (at..at + (4 << 20)).step_by(4096) {
        rig.plug(page, 4096);
    }
    rig.plug(at + (4 << 20), crate::testing::RAM - at - (4 << 20));
    for step in 0..steps {
        let count = chaos.qps.len() as u64;
        let pick = chaos.dice.below(count.max(1)) as usize;
        match chaos.dice.below(40) {
            _ if count < 6 => {
                let qp = rig.qp(chaos.dice.of(&services));
                chaos.qps.push(qp);
                let last = chaos.qps.len() - 1;
                reconnect(&mut rig, &mut chaos, last);
            }
            0 => {
                let qp = chaos.qps.swap_remove(pick);
                rig.ok(&QueueRig::naming(0x501, qp.qpn), 16);
                if chaos.dice.below(2) == 0 {
                    rig.ok(&QueueRig::naming(0x401, qp.cq.cqn), 16);
                }
            }
            1 => {
                rig.exec(&QueueRig::naming(0x507, chaos.qps[pick].qpn), 16);
            }
            2..=4 => {
                rig.exec(&QueueRig::naming(0x50a, chaos.qps[pick].qpn), 16);
                let qp = &mut chaos.qps[pick];
                (qp.sent, qp.received) = (0, 0);
                let record = qp.record;
                rig.write(record, &[0; 8]);
                reconnect(&mut rig, &mut chaos, pick);
            }
            5 => {
                let opcode = chaos.dice.of(&[0x505, 0x506, 0x508, 0x50e, 0x50c, 0x504]);
                let input = QueueRig::modify_qp_in(opcode, chaos.qps[pick].qpn, 0, |_| {});
                rig.exec(input.as_bytes(), 16);
            }
            6 => {
                let page = chaos.dice.below(1024) * 4096;
                match hole.take() {
                    Some(page) => rig.plug(page, 4096),
                    None => {
                        rig.function.bus_mut().map_mut().unmap(Iova(at + page), 4096).expect("it is mapped");
                        hole = Some(at + page);
                    }
                }
            }
            7 => {
                let record = chaos.qps[pick].record;
                let garbage = chaos.dice.roll();
                rig.write(record, &garbage.to_be_bytes());
                let qp = chaos.qps[pick].clone();
                rig.ring_send(&qp);
            }
            8 => {
                // Overwrites what is posted.
                let at = chaos.qps[pick].send_ring() + chaos.dice.below(64 * 64);
                let garbage = chaos.dice.roll();
                rig.write(at, &garbage.to_be_bytes());
            }
            9 => {
                let (qpn, record) = (chaos.qps[pick].qpn, chaos.qps[pick].cq.record);
                // The driver takes what it never saw.
                let garbage = chaos.dice.roll();
                rig.write(record, &garbage.to_be_bytes());
                rig.exec(&QueueRig::naming(0x50b, qpn), 0x110 + 32);
            }
            10 if chaos.keys.len() > 8 => {
                let key = chaos.keys.pop().unwrap_or_default();
                rig.destroy_key(key);
            }
            11 => {
                let key = rig.create_key(|_| {});
                chaos.keys.push(key);
            }
            12 => rig.pass(1 << chaos.dice.below(34)),
            13 => while rig.poll(&mut chaos.qps[pick].cq).is_some() {},
            14..=17 => {
                let segments = chaos.segments();
                let list = &segments[..segments.len().min(64)];
                rig.post_receive(&mut chaos.qps[pick], list);
            }
            18..=22 => {
                rig.function.work();
            }
            _ => {
                let (opcode, mut segments) = chaos.entry();
                if chaos.dice.below(8) == 0 {
                    segments.splice(0..0, [0x80; 48]);
                }
                let key = chaos.key();
                let (se, fence, ce) = (chaos.dice.below(2), chaos.dice.below(5), chaos.dice.below(4));
                segments.truncate(60 * 16);
                let qp = &mut chaos.qps[pick];
                rig.post_send(qp, opcode, &segments, |ctrl| {
                    ctrl.set_se(se as u32);
                    ctrl.set_fence(fence as u32);
                    ctrl.set_ce(ce as u32);
                    ctrl.set_imm(key);
                });
                let qp = qp.clone();
                rig.ring_send(&qp);
            }
        }
        if step % 64 == 0 {
            rig.function.hca().audit().expect("references and memory agree");
        }
        // Events are taken, lest the queue of events is full.
        if step % 8 == 0 {
            while rig.take_async_event().is_some() {}
            let eq = rig.events.clone();
            rig.arm_eq(&eq);
            while rig.take_completion_event().is_some() {}
            let eq = rig.comp.clone();
            rig.arm_eq(&eq);
        }
    }
    if let Some(page) = hole {
        rig.plug(page, 4096);
    }
    rig.settle();
    for _ in 0..20 {
        rig.pass(5_000_000_000);
    }
    rig.function.hca_mut().faults = super::fault::Faults::new(&[]);
    survives(&mut rig);
    // The end comes with everything under way.
    for which in 0..chaos.qps.len() {
        rig.exec(&QueueRig::naming(0x50a, chaos.qps[which].qpn), 16);
        (chaos.qps[which].sent, chaos.qps[which].received) = (0, 0);
        reconnect(&mut rig, &mut chaos, which);
        let qp = &mut chaos.qps[which];
        let segments = [remote(at, key), data(1 << 20, key, at + (2 << 20))].concat();
        rig.post_send(qp, WqeOpcode::RDMA_WRITE, &segments, |_| {});
        rig.post_send(qp, WqeOpcode::RDMA_READ, &segments, |_| {});
        let qp = qp.clone();
        rig.ring_send(&qp);
    }
    rig.function.work();
    match chaos.dice.below(4) {
        0 => rig.function.reset(ResetKind::Vmm),
        1 => rig.function.reset(ResetKind::FunctionLevel),
        2 => {
            rig.function.config_write(4, &[2, 0]);
            rig.settle();
            rig.function.config_write(4, &[6, 0]);
        }
        _ => {
            rig.exec(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 16);
        }
    }
    for _ in 0..10 {
        rig.pass(1_000_000_000);
    }
    rig.function.hca().audit().expect("references and memory agree");
}

fn reconnect(rig: &mut RdmaRig, chaos: &mut Chaos, which: usize) {
    let peers: Vec<u32> = chaos.qps.iter().map(|qp| qp.qpn).chain([0xff_ffff, 0x77_7777]).collect();
    let link = Link {
        mtu: chaos.dice.of(&[QpMtu::MTU_256, QpMtu::MTU_256, QpMtu::MTU_1K, QpMtu::MTU_4K]),
        retries: chaos.dice.below(8) as u32,
        rnr_retries: chaos.dice.below(8) as u32,
        timeout: chaos.dice.below(16) as u32,
        log_reads: chaos.dice.below(5) as u32,
        psn: chaos.dice.of(&[0, 0, 0, 0x7f_ffff, 0xff_fff0]),
        access: chaos.dice.below(8) != 0,
        atomic_mode: chaos.dice.of(&[AtomicMode::IB_SPEC, AtomicMode::ONLY_8B]),
    };
    let next = (which + 1) % chaos.qps.len();
    let peer = if chaos.dice.below(3) == 0 { chaos.dice.of(&peers) } else { chaos.qps[next].qpn };
    let qpn = chaos.qps[which].qpn;
    rig.connect(qpn, peer, link);
}

#[test]
fn a_driver_without_sense_harms_nobody_else() {
    for seed in 1..MANY {
        rampage(seed, 1200, &[]);
    }
}

#[test]
fn a_driver_without_sense_harms_nobody_else_on_a_bad_wire() {
    for seed in 1..MANY {
        let rules = ["drop:every=7", "duplicate:every=5", "delay:us=300,every=3"];
        rampage(seed + 1000, 800, &rules);
    }
}

#[test]
fn a_list_of_translations_is_read_from_a_bounded_number_of_places() {
    let mut rig = RdmaRig::new();
    const OCTWORDS: u32 = 0xff00;
    let (key, list) = (rig.key, rig.memory(1 << 20));
    let single = in_single_bytes(&mut rig, key, list, OCTWORDS * 16);
    let target = rig.create_listed_key(&[], |mkc| {
        mkc.set_access_mode_1_0(2);
        mkc.set_length64(0);
        mkc.set_len(1 << 20);
        mkc.set_umr_en(1);
        mkc.set_translations_octword_size(OCTWORDS);
    });
    let loads = |octwords: u32, key: u32, va: u64| {
        let mut control = UmrCtrlSeg::zeroed();
        control.set_xlt_octowords(octwords);
        [control.as_bytes(), &[0; 64], &data(octwords * 16, key, va)].concat()
    };
    for (octwords, key, va, expected) in [
        (256, single, 0, Ok(())),
        (OCTWORDS, key, list, Ok(())),
        (OCTWORDS, single, 0, Err(CqeSyndrome::LOCAL_PROT_ERR)),
    ] {
        let (mut a, _) = rig.pair(QpType::RC, Link::default());
        rig.post_send(&mut a, WqeOpcode::UMR, &loads(octwords, key, va), |ctrl| ctrl.set_imm(target));
        rig.ring_send(&a);
        rig.settle();
        assert_eq!(outcome(&mut rig, &mut a), Some(expected), "{octwords:#x}");
    }
    survives(&mut rig);
}
