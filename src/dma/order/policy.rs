//! Policies: when a part is applied, among all the orders that are allowed.
//!
//! A decision is a delay in ticks, counted from when the part can be applied, and a priority among parts that are due
//! at the same tick. Both are pure functions of the seed, the stream, the number in the stream, the part and what is
//! decided; never of a shared generator, of addresses or of time. So a decision does not depend on how the streams of a
//! run interleave.
//!
//! An illegal mode breaks one promise, to see whether a test would notice. It leaves rules out and delays what would
//! hide that.

use super::knobs::{Limits, UnknownName, names};
use super::rules::{Omit, Rule};
use super::{Kind, Stream, Tick};

/// How the order is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Everything at once, in the order of issue.
    #[default]
    InOrder,
    /// Every part at a time of its own.
    Random,
    /// What was issued last comes first.
    Lifo,
    /// The last granule of each packet first, the rest held.
    TailFirst,
    /// One granule of each packet held.
    HoldOne,
    /// The data of some queue pairs held, of others not; who is held changes.
    QpSkew,
    /// Reads at once, writes held.
    ReadEarly,
    /// Writes at once, reads held.
    ReadLate,
    /// Streams have priorities, and change them at that many points less one (probabilistic concurrency testing).
    Pct(u32),
}

/// Names of the policies, for messages.
pub(super) const POLICIES: [&str; 9] =
    ["in-order", "random", "lifo", "tail-first", "hold-one", "qp-skew", "read-early", "read-late", "pct"];

impl Policy {
    /// All policies, `pct` with depth 3.
    pub const ALL: [Policy; 9] = [
        Policy::InOrder,
        Policy::Random,
        Policy::Lifo,
        Policy::TailFirst,
        Policy::HoldOne,
        Policy::QpSkew,
        Policy::ReadEarly,
        Policy::ReadLate,
        Policy::Pct(3),
    ];

    /// The policy of a name: one of `in-order`, `random`, `lifo`, `tail-first`, `hold-one`, `qp-skew`, `read-early`,
    /// `read-late`, `pct` or `pct(DEPTH)`.
    pub fn parse(text: &str) -> Result<Policy, UnknownName> {
        if let Some(policy) = Policy::ALL.iter().find(|policy| policy.base_name() == text) {
            return Ok(*policy);
        }
        let depth = text.strip_prefix("pct(").and_then(|rest| rest.strip_suffix(')'));
        match depth.and_then(|depth| depth.parse().ok()) {
            Some(depth) if (1..=64).contains(&depth) => Ok(Policy::Pct(depth)),
            _ => Err(UnknownName::new(text, POLICIES.into_iter())),
        }
    }

    fn base_name(self) -> &'static str {
        match self {
            Policy::InOrder => "in-order",
            Policy::Random => "random",
            Policy::Lifo => "lifo",
            Policy::TailFirst => "tail-first",
            Policy::HoldOne => "hold-one",
            Policy::QpSkew => "qp-skew",
            Policy::ReadEarly => "read-early",
            Policy::ReadLate => "read-late",
            Policy::Pct(_) => "pct",
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Policy::Pct(depth) => write!(f, "pct({depth})"),
            other => f.write_str(other.base_name()),
        }
    }
}

names! {
    /// A promise that is broken on purpose.
    Illegal {
        /// Completions before their data.
        CompletionFirst = "completion-first",
        /// The owner or status byte before the rest of its entry.
        OwnerFirst = "owner-first",
        /// Events before their completions.
        EqeFirst = "eqe-first",
        /// Interrupts before their events.
        MsiFirst = "msi-first",
        /// Strong reads before earlier writes.
        RawBreak = "raw-break",
        /// Atomics in two halves with anything between them.
        AtomicTorn = "atomic-torn",
        /// Drains that do not drain.
        DrainSkip = "drain-skip",
    }
}

impl Illegal {
    /// The rules that it leaves out.
    pub fn omits(self) -> Omit {
        let omit = |rules: &[Rule]| rules.iter().fold(Omit::NOTHING, |omit, rule| omit.and(*rule));
        match self {
            Illegal::CompletionFirst => {
                omit(&[Rule::CqeWrite, Rule::CqeRead, Rule::CqeAtomic, Rule::FabricCqe, Rule::AfterCqe])
            }
            Illegal::OwnerFirst => omit(&[Rule::OwnerLast]),
            Illegal::EqeFirst => omit(&[Rule::EqeCqe, Rule::FabricEqe, Rule::AfterEqe]),
            Illegal::MsiFirst => omit(&[Rule::MsiCqe, Rule::MsiEqe, Rule::FabricMsi, Rule::AfterMsi]),
            Illegal::RawBreak => omit(&[Rule::ReadWrite, Rule::FabricRead]),
            Illegal::AtomicTorn => omit(&[Rule::Indivisible]),
            Illegal::DrainSkip => Omit::NOTHING,
        }
    }
}

/// What is decided; keeps decisions about the same part apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Purpose {
    Touched,
    Spread,
    Delay,
    Priority,
    Starved,
    StreamRank,
    ChangePoint,
    Parts,
    Cut,
    Victim,
    Unit,
}

/// A pseudo-random function: equally distributed, the same for the same arguments on every machine. The mixing step is
/// that of SplitMix64.
pub(super) fn prf(seed: u64, stream: Stream, seq: u64, part: u16, purpose: Purpose) -> u64 {
    let (kind, number) = match stream {
        Stream::Requester(number) => (1, number),
        Stream::Responder(number) => (2, number),
        Stream::Queue(number) => (3, number),
        Stream::Cq(number) => (4, number),
        Stream::Eq(number) => (5, number),
        Stream::Command => (6, 0),
    };
    let words = [u64::from(number) << 8 | kind, seq, u64::from(part) << 8 | purpose as u64];
    words.into_iter().fold(mix(seed), |state, word| mix(state ^ word))
}

fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What a decision is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub kind: Kind,
    pub stream: Stream,
    pub seq: u64,
    /// The transaction's number in the pool.
    pub id: u64,
    pub part: u16,
    pub parts: u16,
    /// The part that hold-one holds.
    pub victim: u16,
}

/// A policy with all that its decisions depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decider {
    pub policy: Policy,
    pub illegal: Option<Illegal>,
    pub seed: u64,
    pub limits: Limits,
}

/// How many transactions of a stream are starved or not in a row.
const SKEW_RUN: u64 = 64;

/// Transactions of a stream after which its priority may have changed for the last time (pct).
const PCT_LENGTH: u64 = 1024;

impl Decider {
    /// When a part that can be applied from `now` on is applied, and its rank among parts due at the same tick.
    pub(super) fn decide(&self, about: &About, now: Tick) -> (Tick, u64) {
        let draw = |purpose| prf(self.seed, about.stream, about.seq, about.part, purpose);
        let whole = |purpose| prf(self.seed, about.stream, about.seq, 0, purpose);
        let hold = Tick::from(self.limits.hold.min(self.limits.max_delay));
        if let Some(held) = self.illegal.and_then(|illegal| breaks(illegal, about)) {
            return (now + if held { hold } else { 0 }, about.id);
        }
        let untouched = self.limits.rate < 100 && whole(Purpose::Touched) % 100 >= u64::from(self.limits.rate);
        let data = matches!(about.kind, Kind::Write | Kind::Read | Kind::Atomic);
        let held = |held: bool| (now + if held { hold } else { 0 }, about.id);
        match self.policy {
            _ if untouched => (now, about.id),
            Policy::InOrder => (now, about.id),
            Policy::Random => {
                let delay = spread(draw(Purpose::Spread), draw(Purpose::Delay), self.limits.max_delay);
                (now + delay, draw(Purpose::Priority))
            }
            Policy::Lifo => {
                // Everything that can be applied within one stretch of time is applied at its end, backwards.
                let due = now.checked_div(hold).map_or(now, |stretch| (stretch + 1).saturating_mul(hold));
                (due, u64::MAX - ((about.id << 12) | u64::from(about.part)))
            }
            Policy::TailFirst => held(data && about.part + 1 != about.parts),
            Policy::HoldOne => held(data && about.part == about.victim),
            Policy::QpSkew => {
                let starved = prf(self.seed, about.stream, about.seq / SKEW_RUN, 0, Purpose::Starved) & 1 != 0;
                held(data && starved)
            }
            Policy::ReadEarly => held(about.kind == Kind::Write),
            Policy::ReadLate => held(about.kind == Kind::Read),
            Policy::Pct(depth) => {
                let changes = (1..depth.min(64)).filter(|change| self.change_point(*change) < about.seq).count() as u64;
                let rank = prf(self.seed, about.stream, changes, 0, Purpose::StreamRank) >> 32;
                (now + ((rank * (hold + 1)) >> 32), rank)
            }
        }
    }

    fn change_point(&self, change: u32) -> u64 {
        prf(self.seed, Stream::Command, change.into(), 0, Purpose::ChangePoint) % PCT_LENGTH
    }
}

/// A delay up to `max` of which short ones are likelier: a quarter none at all, the rest spread over all magnitudes. So
/// a run makes progress and long windows open all the same.
fn spread(magnitude: u64, value: u64, max: u32) -> Tick {
    if magnitude % 4 == 0 || max == 0 {
        return 0;
    }
    let magnitudes = u64::from(max.ilog2()) + 2;
    let bound = 1u64 << ((magnitude >> 2) % magnitudes);
    (value % bound + 1).min(u64::from(max))
}

/// Whether an illegal mode holds a part, if it has an opinion.
fn breaks(illegal: Illegal, about: &About) -> Option<bool> {
    let data = matches!(about.kind, Kind::Write | Kind::Read | Kind::Atomic);
    let entry = matches!(about.kind, Kind::Cqe | Kind::Eqe | Kind::Command);
    let last = about.part + 1 == about.parts;
    match illegal {
        Illegal::CompletionFirst => (data || about.kind == Kind::Cqe).then_some(data),
        Illegal::OwnerFirst => entry.then_some(!last),
        Illegal::EqeFirst => matches!(about.kind, Kind::Cqe | Kind::Eqe).then_some(about.kind == Kind::Cqe),
        Illegal::MsiFirst => match about.kind {
            Kind::Eqe | Kind::Cqe => Some(true),
            Kind::Msi => Some(false),
            _ => None,
        },
        Illegal::RawBreak => matches!(about.kind, Kind::Write | Kind::Read).then_some(about.kind == Kind::Write),
        Illegal::AtomicTorn => (about.kind == Kind::Atomic).then_some(about.part > 0),
        Illegal::DrainSkip => data.then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decider(policy: Policy) -> Decider {
        Decider { policy, illegal: None, seed: 7, limits: Limits::default() }
    }

    fn about(seq: u64, part: u16) -> About {
        let stream = Stream::Responder(3);
        About { kind: Kind::Write, stream, seq, id: seq, part, parts: 4, victim: 2 }
    }

    #[test]
    fn names_are_read_as_they_are_written_and_a_slip_is_answered_with_the_nearest() {
        for policy in Policy::ALL {
            let text = policy.to_string();
            assert_eq!(Policy::parse(&text), Ok(policy));
        }
        assert_eq!(Policy::parse("pct(5)"), Ok(Policy::Pct(5)));
        assert_eq!(Policy::parse("pct"), Ok(Policy::Pct(3)));
        for (slip, meant) in [("tailfirst", Some("tail-first")), ("randm", Some("random")), ("pct(0)", Some("pct"))] {
            assert_eq!(Policy::parse(slip).unwrap_err().nearest, meant, "{slip}");
        }
        let error = Policy::parse("completion-first").unwrap_err();
        assert!(error.known.iter().all(|name| *name != "completion-first"), "illegal modes are no policies");
        assert_eq!(Illegal::parse("drain-skp").unwrap_err().nearest, Some("drain-skip"));
    }

    #[test]
    fn a_decision_depends_on_each_argument_and_on_nothing_else() {
        let stream = Stream::Requester(9);
        let base = prf(1, stream, 2, 3, Purpose::Delay);
        assert_eq!(base, prf(1, stream, 2, 3, Purpose::Delay));
        for other in [
            prf(2, stream, 2, 3, Purpose::Delay),
            prf(1, Stream::Responder(9), 2, 3, Purpose::Delay),
            prf(1, Stream::Requester(10), 2, 3, Purpose::Delay),
            prf(1, stream, 3, 3, Purpose::Delay),
            prf(1, stream, 2, 4, Purpose::Delay),
            prf(1, stream, 2, 3, Purpose::Priority),
        ] {
            assert_ne!(base, other);
        }
        // A replay file of one machine is replayed on another.
        assert_eq!(prf(0, Stream::Command, 0, 0, Purpose::Touched), 0x579a_f677_9c56_d37d);
    }

    #[test]
    fn no_policy_delays_beyond_the_bound_and_every_one_but_in_order_delays_something() {
        for policy in Policy::ALL {
            for (max_delay, hold) in [(200, 200), (1, 1), (0, 0), (50, 20_000)] {
                let limits = Limits { max_delay, hold, ..Limits::default() };
                let decider = Decider { limits, ..decider(policy) };
                let mut longest = 0;
                for seq in 0..512 {
                    for (part, kind) in (0..4).flat_map(|part| Kind::ALL.map(|kind| (part, kind))) {
                        let (due, _) = decider.decide(&About { kind, ..about(seq, part) }, 1000);
                        longest = longest.max(due - 1000);
                    }
                }
                assert!(longest <= u64::from(max_delay), "{policy} {longest}");
                assert_eq!(longest > 0, policy != Policy::InOrder && max_delay > 0, "{policy}");
            }
        }
    }

    #[test]
    fn each_policy_holds_what_its_name_says() {
        let delays = |policy, kind| {
            let decider = decider(policy);
            [0, 1, 2, 3].map(|part| decider.decide(&About { kind, ..about(5, part) }, 0).0)
        };
        assert_eq!(delays(Policy::TailFirst, Kind::Write), [200, 200, 200, 0]);
        assert_eq!(delays(Policy::TailFirst, Kind::Cqe), [0; 4]);
        assert_eq!(delays(Policy::HoldOne, Kind::Write), [0, 0, 200, 0]);
        assert_eq!(delays(Policy::ReadEarly, Kind::Write), [200; 4]);
        assert_eq!(delays(Policy::ReadEarly, Kind::Read), [0; 4]);
        assert_eq!(delays(Policy::ReadLate, Kind::Read), [200; 4]);
        let lifo = decider(Policy::Lifo);
        let (old, new) = (lifo.decide(&about(5, 3), 30), lifo.decide(&about(6, 0), 190));
        assert_eq!((old.0, new.0), (200, 200));
        assert!(new.1 < old.1);
        let skew = decider(Policy::QpSkew);
        let starved = (0..64).map(|run| skew.decide(&about(run * SKEW_RUN, 0), 0).0);
        let starved = starved.filter(|delay| *delay == 200).count();
        assert!((16..48).contains(&starved), "{starved}");
    }

    #[test]
    fn random_delays_have_all_magnitudes_and_many_are_short() {
        let decider = decider(Policy::Random);
        let delays: Vec<_> = (0..4096).map(|seq| decider.decide(&about(seq, 0), 0).0).collect();
        let count = |range: std::ops::RangeInclusive<u64>| delays.iter().filter(|d| range.contains(d)).count();
        assert!(count(0..=0) > 800, "{}", count(0..=0));
        assert!(count(101..=200) > 200, "{}", count(101..=200));
        assert!(count(1..=8) > 800, "{}", count(1..=8));
    }

    #[test]
    fn the_rate_says_how_many_transactions_are_touched() {
        let limits = Limits { rate: 25, ..Limits::default() };
        let decider = Decider { limits, ..decider(Policy::ReadEarly) };
        let held = (0..4000).filter(|seq| decider.decide(&about(*seq, 0), 0).0 > 0).count();
        assert!((900..1100).contains(&held), "{held}");
    }
}
