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
fn an_access_that_is_lost_without_reason_makes_the_run_an_internal_failure() {
    let mut bench = Bench::new(profile(Policy::HoldOne, 1, &[]));
    bench.write();
    bench.rig.function.bus_mut().map_mut().unmap_all();
    while bench.rig.tick() {}
    let summary = bench.rig.function.summary();
    assert_eq!(summary.verdict().exit_code(), 3, "{:?}", summary.internal_failures);
    assert!(summary.order.expect("an engine").lost > 0);
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

/// Where the log of a test goes.
#[derive(Clone, Default)]
struct Sink(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Bulk traffic of two queue pairs over pages that lie as `place` says; everything that was decided, by name.
fn bulk(policy: Policy, place: impl Fn(u64) -> u64, given: Option<&[u8]>) -> (Vec<u8>, Vec<String>, u64) {
    use crate::dma::order::log::{Log, Writer};
    use crate::dma::order::replay::{Plan, Replay};
    const PAGES: u64 = 160;
    const START: u64 = 0x7f00_0000_0800;
    let mut rig = RdmaRig::with(profile(policy, 4, &["order.max_bytes=8388608"]));
    let (mut a, mut b) = rig.pair(QpType::RC, Link::default());
    let at = rig.memory(2 * PAGES * 4096);
    let mut key = |first: u64| {
        let page = |page: u64| ((at + 4096 * (first + place(page))) | 3).to_be_bytes();
        let list: Vec<u8> = (0..PAGES).flat_map(page).collect();
        rig.create_listed_key(&list, |mkc| {
            mkc.set_access_mode_1_0(1);
            mkc.set_start_addr(START);
            mkc.set_len(PAGES * 4096 - 0x800);
            mkc.set_translations_octword_size((PAGES / 2) as u32);
            mkc.set_log_page_size(12);
        })
    };
    let (from, to) = (key(0), key(PAGES));
    for page in 0..PAGES {
        rig.write(at + 4096 * place(page), &[page as u8 ^ 0x5a; 4096]);
    }
    let order = rig.function.bus_mut().order_mut().expect("an engine");
    let sink = Sink::default();
    let settings = order.settings().clone();
    order.keep_log(Writer::new(Box::new(sink.clone()), &settings, "test", u64::MAX).expect("a log"));
    if let Some(bytes) = given {
        order.follow(Plan::Replay(Replay::new(&Log::read(bytes).expect("a log")).expect("a log")));
    }
    let len = 300_001;
    for (at, target) in [(START, START + 0x123), (START + 7, START + 310_000)] {
        let segments = [remote(target, to), data(len, from, at)].concat();
        rig.send(&mut a, WqeOpcode::RDMA_WRITE, &segments);
        rig.land();
    }
    rig.send(&mut a, WqeOpcode::RDMA_READ, &[remote(START + 99, from), data(len, to, START)].concat());
    rig.land();
    // Lists whose parts begin and end anywhere.
    let list = [data(5001, from, START + 1), data(70_000, from, START + 9000), data(3, from, START + 77)].concat();
    rig.post_receive(&mut b, &[data(40_003, to, START + 5), data(60_000, to, START + 200_000)].concat());
    rig.send(&mut a, WqeOpcode::SEND, &list);
    rig.land();
    rig.take(&mut a.cq, 4);
    let want: Vec<u8> = (0..40_003)
        .map(|byte: u64| byte)
        .map(|byte| {
            let offset = 0x800 + if byte < 5001 { 1 + byte } else { 9000 + byte - 5001 };
            (offset / 4096) as u8 ^ 0x5a
        })
        .collect();
    let got = |va: u64| {
        let offset = va - START + 0x800;
        rig.read(at + 4096 * (PAGES + place(offset / 4096)) + offset % 4096, 1)[0]
    };
    assert!((0..40_003).step_by(97).all(|byte| got(START + 5 + byte as u64) == want[byte]), "the bytes arrived");
    assert_legal(&rig, "bulk traffic");
    let diverged =
        rig.function.bus_mut().order().and_then(|order| order.replay()).map_or(0, |replay| replay.diverged());
    drop(rig);
    let bytes = sink.0.lock().expect("a log").clone();
    let log = Log::read(&bytes).expect("a log");
    let decided = log.applications().expect("a log");
    let decided = decided.map(|done| done.expect("a log"));
    let decided = decided.map(|done| format!("{} {} {:?}", done.part, done.age, done.why)).collect();
    (bytes, decided, diverged)
}

#[test]
fn bulk_traffic_is_decided_the_same_however_pages_lie() {
    let together = |page: u64| page;
    let scattered = |page: u64| page * 77 % 160;
    let pairs = |page: u64| page / 2 * 2 * 7 % 160 + page % 2;
    for policy in Policy::ALL {
        let (log, decided, _) = bulk(policy, together, None);
        assert!(decided.len() > 40, "{policy} {}", decided.len());
        for (name, place) in [("scattered", &scattered as &dyn Fn(u64) -> u64), ("pairs", &pairs)] {
            assert_eq!(bulk(policy, place, None).1, decided, "{policy}, {name}");
            let (_, repeated, diverged) = bulk(policy, place, Some(&log));
            assert_eq!(diverged, 0, "{policy}, {name}");
            assert_eq!(repeated.len(), decided.len());
        }
    }
}
