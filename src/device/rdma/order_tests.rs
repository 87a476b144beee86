//! Queue pairs on a fabric without order: what a driver may see first, and what never.

use crate::dma::order::{Illegal, Policy};
use crate::prm::values::{QpType, WqeOpcode};
use crate::profile::Profile;
use crate::testing::rdma::{Cq, Link, Qp, RdmaRig, data, remote};

const LEN: usize = 4096;
const SEEDS: u64 = 3;
const OLD: u8 = 0xee;
const NEW: u8 = 0x55;
/// No delay chain is longer, in microseconds.
const PATIENCE: usize = 5_000;

fn profile(policy: Policy, seed: u64, sets: &[&str]) -> Profile {
    let (policy, seed) = (format!("order.policy={policy}"), format!("order.seed={seed}"));
    let sets = [&["order.check=true", &policy, &seed], sets].concat();
    Profile::with("connectx10-c2c", &sets).expect("a valid configuration")
}

/// Everything that the checker saw was allowed, and something was reordered.
fn assert_legal(rig: &RdmaRig, what: &str) {
    let summary = rig.function.summary();
    let order = summary.order.expect("an engine");
    let check = order.check.expect("the checker looks on");
    assert!(check.legal && check.applied > 0, "{what}: {:?}", check.described);
    assert_eq!((summary.internal_failures.len(), order.lost), (0, 0), "{what}");
}

struct Bench {
    rig: RdmaRig,
    a: Qp,
    b: Qp,
    from: u64,
    to: u64,
}

impl Bench {
    fn new(profile: Profile) -> Bench {
        let mut rig = RdmaRig::with(profile);
        let (a, b) = rig.pair(QpType::RC, Link::default());
        let (from, to) = (rig.memory(1 << 16), rig.memory(1 << 16));
        rig.write(from, &[NEW; LEN]);
        rig.write(to, &[OLD; 2 * LEN]);
        Bench { rig, a, b, from, to }
    }

    /// Writes `LEN` bytes to the target.
    fn write(&mut self) {
        let segments = [remote(self.to, self.rig.key), data(LEN as u32, self.rig.key, self.from)].concat();
        self.rig.send(&mut self.a, WqeOpcode::RDMA_WRITE, &segments);
    }

    fn landed(&self) -> bool {
        self.rig.read(self.to, LEN).iter().all(|byte| *byte == NEW)
    }

    fn completed(&mut self, cq: &Cq) -> bool {
        self.rig.poll(&mut cq.clone()).is_some()
    }

    /// Looks after every microsecond until nothing is pending any more.
    fn watch(&mut self, mut look: impl FnMut(&mut Bench)) {
        for _ in 0..PATIENCE {
            look(self);
            if !self.rig.tick() {
                return look(self);
            }
        }
        panic!("accesses are pending for ever");
    }
}

fn everywhere(mut test: impl FnMut(Profile, &str)) {
    for contract in ["cx10-unordered", "cx10-ro", "pcie-strong", "pcie-relaxed", "pcie-unordered"] {
        for policy in Policy::ALL {
            for seed in 0..SEEDS {
                let set = format!("order.profile={contract}");
                test(profile(policy, seed, &[&set]), &format!("{contract}, {policy}, seed {seed}"));
            }
        }
    }
}

#[test]
fn a_completion_of_a_write_is_never_seen_before_its_data() {
    everywhere(|profile, what| {
        let mut bench = Bench::new(profile);
        let cq = bench.a.cq.clone();
        bench.write();
        bench.watch(|bench| {
            if bench.completed(&cq) {
                assert!(bench.landed(), "{what}");
            }
        });
        assert!(bench.completed(&cq) && bench.landed(), "{what}");
        assert_legal(&bench.rig, what);
    });
}

#[test]
fn a_completion_of_a_receive_is_never_seen_before_earlier_writes_of_the_peer() {
    everywhere(|profile, what| {
        let mut bench = Bench::new(profile);
        let (cq, key, at) = (bench.b.cq.clone(), bench.rig.key, bench.to + LEN as u64);
        bench.rig.post_receive(&mut bench.b, &data(LEN as u32, key, at));
        let segments = [remote(bench.to, key), data(LEN as u32, key, bench.from)].concat();
        bench.rig.post_send(&mut bench.a, WqeOpcode::RDMA_WRITE, &segments, |_| {});
        bench.rig.send(&mut bench.a, WqeOpcode::SEND, &data(LEN as u32, key, bench.from));
        bench.watch(|bench| {
            if bench.completed(&cq) {
                let received = bench.rig.read(at, LEN).iter().all(|byte| *byte == NEW);
                assert!(bench.landed() && received, "{what}");
            }
        });
        assert!(bench.completed(&cq), "{what}");
        assert_legal(&bench.rig, what);
    });
}

/// How often the last byte of a WRITE was seen before all of it was there.
fn early_tails(policy: Policy) -> u32 {
    let mut early = 0;
    for seed in 0..SEEDS {
        let mut bench = Bench::new(profile(policy, seed, &[]));
        bench.write();
        let mut seen = false;
        bench.watch(|bench| seen |= bench.rig.read(bench.to + LEN as u64 - 1, 1) == [NEW] && !bench.landed());
        early += u32::from(seen);
    }
    early
}

#[test]
fn who_polls_the_last_byte_sees_it_before_the_rest_under_the_policy_for_that() {
    assert_eq!(early_tails(Policy::InOrder), 0);
    assert_eq!(early_tails(Policy::TailFirst), SEEDS as u32);
    assert!(early_tails(Policy::Random) > 0);
}

#[test]
fn a_strong_fence_makes_a_flag_come_after_data_and_no_fence_does_not() {
    const STRONG: u32 = 3;
    let seen = |fence: u32, sets: &[&str]| {
        let mut early = 0;
        for seed in 0..16 {
            let mut bench = Bench::new(profile(Policy::Random, seed, sets));
            let (key, flag) = (bench.rig.key, bench.to + LEN as u64);
            bench.write();
            let segments = [remote(flag, key), data(1, key, bench.from)].concat();
            bench.rig.post_send(&mut bench.a, WqeOpcode::RDMA_WRITE, &segments, |ctrl| ctrl.set_fence(fence));
            bench.rig.ring_send(&bench.a);
            bench.rig.settle();
            let mut wrong = false;
            bench.watch(|bench| wrong |= bench.rig.read(flag, 1) == [NEW] && !bench.landed());
            assert_legal(&bench.rig, "flag");
            early += u32::from(wrong);
        }
        early
    };
    assert!(seen(0, &[]) > 0);
    assert_eq!(seen(STRONG, &[]), 0);
    assert!(seen(STRONG, &["order.ack=receive"]) > 0, "an acknowledgement at receipt tells nothing");
}

#[test]
fn an_interrupt_comes_after_its_event_and_that_after_its_completion() {
    everywhere(|profile, what| {
        let mut bench = Bench::new(profile);
        let (cq, comp) = (bench.a.cq.clone(), bench.rig.comp.clone());
        bench.rig.arm_cq(cq.cqn, 0, false);
        let before = bench.rig.function.irq().counters();
        let raised = |bench: &Bench| bench.rig.function.irq().counters() != before;
        bench.write();
        bench.watch(|bench| {
            let event = bench.rig.take_event(&mut comp.clone()).is_some();
            assert!(!event || bench.completed(&cq), "{what}: an event before its completion");
            assert!(!raised(bench) || event, "{what}: an interrupt before its event");
        });
        assert!(raised(&bench), "{what}");
    });
}

#[test]
fn nothing_lands_behind_the_back_of_a_destroy_and_nothing_is_lost() {
    for destroy in ["key", "queue pair", "reset of a queue pair", "error of a queue pair"] {
        for seed in 0..SEEDS {
            let mut bench = Bench::new(profile(Policy::HoldOne, seed, &[]));
            let key = bench.rig.create_key(|_| {});
            let segments = [remote(bench.to, key), data(LEN as u32, key, bench.from)].concat();
            bench.rig.send(&mut bench.a, WqeOpcode::RDMA_WRITE, &segments);
            assert!(!bench.landed(), "the policy holds a part");
            let input = match destroy {
                "key" => crate::testing::queues::QueueRig::naming(0x202, key >> 8),
                "queue pair" => crate::testing::queues::QueueRig::naming(0x501, bench.b.qpn),
                "error of a queue pair" => crate::testing::queues::QueueRig::naming(0x507, bench.b.qpn),
                _ => crate::testing::queues::QueueRig::naming(0x50a, bench.b.qpn),
            };
            bench.rig.post(0, &input, 16);
            bench.rig.ring(1);
            // The command's answer may take its time; the data may not.
            assert!(bench.landed(), "{destroy}, seed {seed}");
            bench.rig.land();
            assert_legal(&bench.rig, destroy);
        }
    }
}

#[test]
fn memory_is_quiet_when_the_vmm_has_it_back() {
    use vfio_user::{DmaUnmapFlags, ServerBackend};
    let mut bench = Bench::new(profile(Policy::HoldOne, 1, &[]));
    bench.write();
    assert!(!bench.landed());
    bench.rig.function.dma_unmap(DmaUnmapFlags::empty(), 0, crate::testing::RAM).expect("all memory is one map");
    assert!(bench.landed(), "what was pending has landed");
    bench.rig.land();
    assert_legal(&bench.rig, "unmap");
}

#[test]
fn nothing_lands_after_a_reset() {
    let mut bench = Bench::new(profile(Policy::HoldOne, 1, &[]));
    bench.write();
    bench.rig.function.reset(crate::device::function::ResetKind::Vmm);
    let at_reset = bench.rig.read(bench.to, LEN);
    assert!(at_reset.contains(&OLD));
    while bench.rig.tick() {}
    assert_eq!(bench.rig.read(bench.to, LEN), at_reset);
    assert!(bench.rig.function.summary().order.expect("an engine").discarded > 0);
}

#[test]
fn a_broken_promise_is_seen_by_a_driver_and_by_the_checker() {
    let mut seen = 0;
    for seed in 0..SEEDS {
        let mut profile = profile(Policy::InOrder, seed, &[]);
        profile.order.illegal = Some(Illegal::CompletionFirst);
        let mut bench = Bench::new(profile);
        let cq = bench.a.cq.clone();
        bench.write();
        let mut early = false;
        bench.watch(|bench| early |= bench.completed(&cq) && !bench.landed());
        let summary = bench.rig.function.summary();
        assert!(summary.policy.starts_with("ILLEGAL completion-first, "), "{}", summary.policy);
        let order = summary.order.as_ref().expect("an engine");
        assert_eq!(order.illegal.as_deref(), Some("completion-first"));
        let legal = order.check.as_ref().expect("the checker looks on").legal;
        assert_eq!(summary.verdict().exit_code(), if legal { 0 } else { 3 });
        assert!(!early || !legal, "what a driver saw too early the checker saw, too");
        seen += u32::from(early);
    }
    assert!(seen > 0);
}

#[test]
fn no_delay_makes_a_transport_retry() {
    for policy in Policy::ALL {
        let mut bench = Bench::new(profile(policy, 3, &["order.max_delay=20000", "order.hold=20000"]));
        for _ in 0..8 {
            bench.write();
            bench.rig.land();
        }
        let rdma = bench.rig.function.summary().rdma;
        assert_eq!((rdma.retries, rdma.timeouts), (0, 0), "{policy}");
        assert_legal(&bench.rig, "long delays");
    }
}
