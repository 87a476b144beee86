//! A driver that takes pages away and brings them back as it likes, and answers faults late, wrongly or not at all.
//!
//! What must hold: the device comes to rest after every step, and knows as many faults as its queue pairs have. Once all
//! pages are there and all faults answered, everything that was posted completes; what nobody broke completes well, in
//! order, and once.

use std::collections::VecDeque;

use super::*;
use crate::dma::order::Scope;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Repetitions for each of the ways.
const SEEDS: u64 = 20;
/// Entries that a queue pair has posted at most.
const DEPTH: usize = 4;
/// Longest bulk transfer.
const BULK: u64 = 3 * PAGE;
const PAIRS: usize = 3;

struct Side {
    qp: Qp,
    /// Indices of posted entries without completion.
    sends: VecDeque<u16>,
    /// What was written last to its word.
    written: u64,
    /// What its counter has to be.
    sum: u64,
}

struct World {
    pager: Pager,
    dice: Dice,
    memory_scheme: bool,
    /// Writes through relaxed keys may pass each other.
    reorders: bool,
    /// Pairs, and whether anything was done that may break their work.
    sides: Vec<[Side; 2]>,
    spoiled: Vec<bool>,
    words: Region,
    bulk: Region,
    /// Both regions behind one key.
    both: u32,
    told: Vec<Told>,
    stamp: u64,
}

impl World {
    fn new(sets: &[&str], seed: u64) -> World {
        let mut pager = Pager::new(sets);
        let (words, bulk) = (pager.region(), pager.region());
        let both = implicit(&mut pager, &[(words.key, VA), (bulk.key, VA)]);
        let pairs = (0..PAIRS).map(|_| pager.rig.pair(QpType::RC, Link::default())).collect::<Vec<_>>();
        let side = |qp| Side { qp, sends: VecDeque::new(), written: 0, sum: 0 };
        World {
            pager,
            dice: Dice(seed * 2 + 1),
            memory_scheme: sets.contains(&"caps.odp.mem_page_fault=1"),
            reorders: sets.contains(&"order.policy=random"),
            spoiled: vec![false; PAIRS],
            sides: pairs.into_iter().map(|(a, b)| [side(a), side(b)]).collect(),
            words,
            bulk,
            both,
            told: Vec::new(),
            stamp: 0,
        }
    }

    /// Where the word of a side is, and behind it its counter.
    fn word(pair: usize, side: usize) -> u64 {
        let number = (pair * 2 + side) as u64;
        number * PAGE + 64 * number
    }

    /// A place in one of the regions by its own key or by the key of both.
    fn place(&mut self, bulk: bool, at: u64) -> (u32, u64) {
        let region = if bulk { self.bulk } else { self.words };
        if self.dice.one_in(3) {
            return (self.both, if bulk { PAGES * PAGE + at } else { at });
        }
        (region.key, VA + at)
    }

    /// A list for a bulk transfer of `len` bytes: one to three segments, some of them not paged.
    fn list(&mut self, len: u64) -> Vec<u8> {
        let (mut list, mut left) = (Vec::new(), len);
        while left > 0 {
            let last = list.len() >= 32;
            let part = if last { left } else { 1 + self.dice.below(left) };
            let (key, at) = match self.dice.below(4) {
                0 => (self.pager.rig.key, 0x280_0000),
                _ => {
                    let at = self.dice.below(PAGES * PAGE - part);
                    self.place(true, at)
                }
            };
            list.extend(data(part as u32, key, at));
            left -= part;
        }
        list
    }

    fn post(&mut self) {
        let (pair, side) = (self.dice.below(PAIRS as u64) as usize, self.dice.below(2) as usize);
        for _ in 0..1 + self.dice.below(3) {
            if self.sides[pair][side].sends.len() < DEPTH {
                self.post_one(pair, side);
            }
        }
        let qp = self.sides[pair][side].qp.clone();
        self.pager.rig.ring_send(&qp);
    }

    fn post_one(&mut self, pair: usize, side: usize) {
        let word = World::word(pair, side);
        let len = 1 + self.dice.below(BULK);
        let (opcode, segments) = match self.dice.below(6) {
            0 => {
                self.stamp += 1;
                let (key, at) = self.place(false, word);
                self.sides[pair][side].written = self.stamp;
                (WqeOpcode::RDMA_WRITE, [remote(at, key), inline(&self.stamp.to_be_bytes())].concat())
            }
            1 => {
                let (key, at) = self.place(false, word + 8);
                let result = self.dice.below(PAGES * PAGE - 8) & !7;
                let (result_key, result) = self.place(true, result);
                self.sides[pair][side].sum += 3;
                (WqeOpcode::ATOMIC_FA, [remote(at, key), add(3), data(8, result_key, result)].concat())
            }
            2 | 3 => {
                let at = self.dice.below(PAGES * PAGE - len);
                let (key, at) = self.place(true, at);
                let opcode = if self.dice.one_in(2) { WqeOpcode::RDMA_READ } else { WqeOpcode::RDMA_WRITE };
                (opcode, [remote(at, key), self.list(len)].concat())
            }
            _ => {
                let list = self.list(BULK + 64);
                let peer = &mut self.sides[pair][1 - side].qp;
                self.pager.rig.post_receive(peer, &list);
                (WqeOpcode::SEND, self.list(len))
            }
        };
        let side = &mut self.sides[pair][side];
        side.sends.push_back(side.qp.sent);
        self.pager.rig.post_send(&mut side.qp, opcode, &segments, |_| {});
    }

    fn listen(&mut self) {
        loop {
            self.pager.rig.settle();
            self.pager.rig.land();
            let mut eq = self.pager.eq.clone();
            let eqe = self.pager.rig.take_event(&mut eq);
            self.pager.eq = eq.clone();
            let Some(eqe) = eqe else { return };
            self.pager.rig.arm_eq(&eq);
            let data = &eqe[0x20..0x3c];
            let nothing = Told { kind: 0, queue: 0, token: 0, committed: 0, at: 0, len: 0 };
            self.told.push(match PageFault(eqe[3]) {
                PageFault::WQE => {
                    let event = WqePageFault::wrap(data);
                    Told { kind: event.page_fault_type(), queue: event.wq_number(), token: event.token(), ..nothing }
                }
                PageFault::RDMA => {
                    let event = RdmaPageFault::wrap(data);
                    Told { kind: event.page_fault_type(), queue: event.token(), token: event.token(), ..nothing }
                }
                _ => Told { token: MemoryPageFault::wrap(data).token_31_0(), ..nothing },
            });
        }
    }

    fn resume(&mut self, told: Told, error: bool) {
        let mut input = PageFaultResumeIn::zeroed();
        input.set_opcode(0x204);
        let mut info = input.page_fault_info_mut();
        if self.memory_scheme {
            let mut info = info.mem_page_fault_info_mut();
            info.set_fault_token_31_0(told.token);
            info.set_error(error.into());
        } else {
            let mut info = info.trans_page_fault_info_mut();
            info.set_page_fault_type(told.kind);
            info.set_wq_number(told.queue);
            info.set_fault_token(told.token);
            info.set_error(error.into());
        }
        self.pager.rig.exec(input.as_bytes(), 16);
    }

    /// Answers one of the faults; one that fails may be of any pair.
    fn answer(&mut self) {
        self.listen();
        if self.told.is_empty() {
            return;
        }
        let at = self.dice.below(self.told.len() as u64) as usize;
        let told = if self.dice.one_in(8) { self.told[at] } else { self.told.swap_remove(at) };
        let error = self.dice.one_in(40);
        if error {
            self.spoiled.fill(true);
        }
        self.resume(told, error);
    }

    fn complete(&mut self) {
        self.pager.rig.settle();
        self.pager.rig.land();
        for (pair, sides) in self.sides.iter_mut().enumerate() {
            for side in sides {
                while let Some(cqe) = self.pager.rig.poll(&mut side.qp.cq) {
                    let error = ErrCqe::wrap(cqe.as_bytes()).syndrome();
                    let opcode = CqeOpcode(cqe.opcode() as u8);
                    let failed = cqe.opcode() >= u32::from(CqeOpcode::REQ_ERR.0);
                    assert!(self.spoiled[pair] || !failed, "pair {pair}: {opcode:?} {error:#x}");
                    if matches!(opcode, CqeOpcode::REQ | CqeOpcode::REQ_ERR) {
                        assert_eq!(side.sends.pop_front(), Some(cqe.wqe_counter() as u16), "pair {pair}");
                    }
                }
            }
        }
    }

    /// Both queue pairs of a pair start anew.
    fn renew(&mut self, pair: usize) {
        for side in &self.sides[pair] {
            self.pager.rig.ok(&QueueRig::naming(0x50a, side.qp.qpn), 16);
        }
        self.pager.rig.land();
        for (index, side) in self.sides[pair].iter_mut().enumerate() {
            while self.pager.rig.poll(&mut side.qp.cq).is_some() {}
            self.pager.rig.write(side.qp.record, &[0; 8]);
            (side.qp.sent, side.qp.received) = (0, 0);
            side.sends.clear();
            let at = self.words.frames + World::word(pair, index);
            (side.written, side.sum) = (word_at(&self.pager, at), word_at(&self.pager, at + 8));
        }
        let [a, b] = [0, 1].map(|side: usize| self.sides[pair][side].qp.qpn);
        self.pager.rig.connect(a, b, Link::default());
        self.pager.rig.connect(b, a, Link::default());
        self.spoiled[pair] = false;
    }

    fn new_queue(&mut self) {
        // Nobody can be told of those that come in the meantime.
        self.spoiled.fill(true);
        self.listen();
        self.pager.rig.ok(&QueueRig::naming(0x302, self.pager.eq.eqn), 16);
        self.pager.rig.settle();
        let log_size = 1 + self.dice.below(4) as u32;
        self.pager.eq = self.pager.rig.create_eq(2, 1 << EventType::PAGE_FAULT.0, log_size);
    }

    fn pages(&mut self) {
        let region = if self.dice.one_in(2) { self.words } else { self.bulk };
        let from = self.dice.below(PAGES);
        let to = from + 1 + self.dice.below(PAGES - from);
        let rights = [0, READ, WRITE, READ | WRITE, READ | WRITE][self.dice.below(5) as usize];
        // As a work request does.
        self.pager.rig.function.bus_mut().drain(Scope::Key(region.key >> 8));
        self.pager.set(region, from..to, rights);
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..35 => self.post(),
            35..55 => self.pages(),
            55..85 => self.answer(),
            85..95 => {
                let time = [1000, WHILE, 100 * WHILE][self.dice.below(3) as usize];
                self.pager.rig.pass(time);
            }
            95..97 => {
                let (pair, side) = (self.dice.below(PAIRS as u64) as usize, self.dice.below(2) as usize);
                self.spoiled[pair] = true;
                self.pager.rig.ok(&QueueRig::naming(0x507, self.sides[pair][side].qp.qpn), 16);
            }
            97 => {
                let pair = self.dice.below(PAIRS as u64) as usize;
                self.renew(pair);
            }
            98 => self.new_queue(),
            _ => {
                // It may be one that is still to be told of.
                self.spoiled.fill(true);
                let token = self.dice.below(64) as u32;
                self.resume(Told { kind: 1, queue: 1, token, committed: 0, at: 0, len: 0 }, true);
            }
        }
        self.complete();
        let hca = self.pager.rig.function.hca();
        let faults = hca.objects.qps.iter().flat_map(|(_, entry)| entry.object.flow.faults).filter(|token| *token != 0);
        assert_eq!(faults.count(), hca.paging.pending());
        hca.audit().expect("accounts agree");
        assert!(!hca.internal_error());
    }

    /// Everything is there, and every fault is answered.
    fn finish(&mut self) {
        for region in [self.words, self.bulk] {
            self.pager.all(region);
        }
        for _ in 0..60 {
            self.listen();
            for told in std::mem::take(&mut self.told) {
                self.resume(told, false);
            }
            self.pager.rig.pass(100 * WHILE);
            self.complete();
        }
        assert_eq!(self.pager.pending(), 0);
        for (pair, sides) in self.sides.iter().enumerate() {
            for (index, side) in sides.iter().enumerate() {
                assert!(side.sends.is_empty(), "pair {pair}: {:?} never complete", side.sends);
                if !self.spoiled[pair] {
                    let at = self.words.frames + World::word(pair, index);
                    let written = word_at(&self.pager, at);
                    assert!(self.reorders || written == side.written, "pair {pair}: writes came in order");
                    assert_eq!(word_at(&self.pager, at + 8), side.sum, "pair {pair}: atomics were done once");
                }
            }
        }
    }

    /// A driver and its users as they should be.
    fn behave(&mut self) {
        for pair in 0..PAIRS {
            self.renew(pair);
        }
        for _ in 0..80 {
            match self.dice.below(4) {
                0 => self.post(),
                1 => self.pages(),
                2 => self.pager.rig.pass(WHILE),
                _ => {
                    self.listen();
                    if let Some(told) = self.told.pop() {
                        self.resume(told, false);
                    }
                }
            }
            self.complete();
        }
        self.finish();
    }
}

/// A word as a sender or an atomic operation leaves it.
fn word_at(pager: &Pager, at: u64) -> u64 {
    u64::from_be_bytes(pager.rig.read(at, 8).try_into().expect("8 bytes"))
}

#[test]
fn whatever_comes_of_pages_all_that_is_posted_completes() {
    let sets: [&[&str]; 4] = [
        &[],
        &["caps.odp.mem_page_fault=1"],
        &["wire.fault=[\"drop:every=37\"]"],
        &["order.policy=random", "order.seed=5", "order.check=true"],
    ];
    for sets in sets {
        for seed in 1..=SEEDS {
            let mut world = World::new(sets, seed);
            for _ in 0..120 {
                world.step();
            }
            world.finish();
            world.behave();
        }
    }
}
