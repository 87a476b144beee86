//! How the bytes of a transaction are cut into parts.
//!
//! A cut is at an address that is a multiple of the granule (or of a larger unit, knob `split`). A packet gets few parts,
//! placed where the policy needs them: every part costs a step, and a handful of cuts at places of the seed's choice finds
//! what a cut at every granule would.
//!
//! Sources: PCI Express Base Specification 2.4.2, 2.4.3 for what is visible at once; `docs/ordering.md`, "Knobs".

use super::knobs::{Rules, Split};
use super::policy::{Decider, Policy, Purpose, prf};
use super::{Kind, NewTxn, Range};
use crate::dma::Iova;

/// A transaction that is cut: ranges, and how many of them each part has.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    pub ranges: Vec<Range>,
    pub steps: Vec<u16>,
}

/// Cuts in one transaction at most.
const MOST: usize = 4;

/// Where the bytes of a transaction are cut, in ascending order.
#[derive(Default)]
struct Places {
    at: [u64; MOST],
    count: usize,
}

impl Places {
    fn add(&mut self, place: u64) {
        let Err(index) = self.at[..self.count].binary_search(&place) else { return };
        if place > 0 && self.count < MOST {
            self.at.copy_within(index..self.count, index + 1);
            self.at[index] = place;
            self.count += 1;
        }
    }
}

/// Cuts the ranges of a transaction that will have number `seq` in its stream; answers the part that a policy may single
/// out. `out` is emptied first.
///
/// Payload is cut by its bytes, not by its ranges: where cuts are depends on addresses only below the size of a page, so
/// the same traffic has the same parts however its pages lie.
pub(super) fn split(txn: &NewTxn<'_>, seq: u64, rules: &Rules, decider: &Decider, out: &mut Cuts) -> u16 {
    out.ranges.clear();
    out.steps.clear();
    let mut places = Places::default();
    let len = txn.len();
    let granule = rules.granule.max(1);
    match txn.kind {
        Kind::Cqe | Kind::Eqe | Kind::Command => {
            // The granule with the owner or status byte.
            if let Some(last) = len.checked_sub(1) {
                places.add(border(txn.ranges, last, granule));
            }
            lay(txn, &places, true, out);
            0
        }
        Kind::Write | Kind::Read => {
            let victim = payload(txn, len, seq, rules, decider, &mut places);
            lay(txn, &places, false, out);
            places.at[..places.count].partition_point(|place| *place <= victim) as u16
        }
        Kind::Atomic | Kind::Msi | Kind::Control => {
            lay(txn, &places, true, out);
            0
        }
    }
}

/// Cuts the ranges at those places. Each of them is a part of its own, or a part reaches from one place to the next.
fn lay(txn: &NewTxn<'_>, places: &Places, apart: bool, out: &mut Cuts) {
    let mut places = places.at[..places.count].iter().copied().peekable();
    let mut offset = 0;
    let mut begins = true;
    for range in txn.ranges.iter().filter(|range| range.len > 0) {
        let mut rest = *range;
        while rest.len > 0 {
            begins |= apart;
            begins |= places.next_if(|place| *place <= offset).is_some();
            let len = places.peek().map_or(rest.len, |place| rest.len.min((place - offset) as u32));
            out.ranges.push(Range { at: rest.at, len });
            match out.steps.last_mut() {
                Some(step) if !begins => *step += 1,
                _ => out.steps.push(1),
            }
            begins = false;
            offset += u64::from(len);
            rest = Range { at: Iova(rest.at.0.wrapping_add(len.into())), len: rest.len - len };
        }
    }
}

/// The range that holds byte `offset` of all, and the number of its first byte.
fn find(ranges: &[Range], offset: u64) -> Option<(Range, u64)> {
    let mut start = 0;
    ranges.iter().find_map(|range| {
        let first = start;
        start += u64::from(range.len);
        (offset < start).then_some((*range, first))
    })
}

/// The place of the last multiple of `unit` that is not above byte `offset`, or of the begin of its range.
fn border(ranges: &[Range], offset: u64, unit: u32) -> u64 {
    let Some((range, start)) = find(ranges, offset) else { return 0 };
    let over = (range.at.0 + (offset - start)) % u64::from(unit);
    (offset - start).saturating_sub(over) + start
}

/// The same for the first multiple above it, or the end of its range.
fn end(ranges: &[Range], offset: u64, unit: u32) -> u64 {
    let Some((range, start)) = find(ranges, offset) else { return offset };
    let over = (range.at.0 + (offset - start)) % u64::from(unit);
    start + (offset - start + u64::from(unit) - over).min(range.len.into())
}

/// Chooses places to cut at; answers the byte that a policy may single out.
fn payload(txn: &NewTxn<'_>, len: u64, seq: u64, rules: &Rules, decider: &Decider, places: &mut Places) -> u64 {
    let draw = |place: u16, purpose| prf(decider.seed, txn.stream, seq, place, purpose);
    if len < 2 {
        return 0;
    }
    let granule = rules.granule.max(1);
    let unit = match rules.split {
        Split::Mtu => granule,
        Split::Rcb => granule.max(64),
        Split::Page => granule.max(4096),
        Split::Random => granule.max([1, 64, 4096][(draw(0, Purpose::Unit) % 3) as usize]),
    };
    match decider.policy {
        Policy::Random => {
            for place in 0..(draw(0, Purpose::Parts) % 4) as u16 {
                places.add(border(txn.ranges, draw(place, Purpose::Cut) % len, unit));
            }
            0
        }
        Policy::Lifo => {
            for quarter in 1..4 {
                places.add(border(txn.ranges, len * quarter / 4, unit));
            }
            0
        }
        Policy::TailFirst => {
            places.add(border(txn.ranges, len - 1, granule));
            0
        }
        Policy::HoldOne => {
            let victim = draw(0, Purpose::Victim) % len;
            let (first, end) = (border(txn.ranges, victim, unit), end(txn.ranges, victim, unit));
            places.add(first);
            if end < len {
                places.add(end);
            }
            first
        }
        Policy::InOrder | Policy::QpSkew | Policy::ReadEarly | Policy::ReadLate | Policy::Pct(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Payload, Profile, Stream};
    use super::*;

    fn run(kind: Kind, policy: Policy, rules: &Rules, ranges: &[(u64, u32)], seq: u64) -> (u16, Cuts) {
        let ranges: Vec<Range> = ranges.iter().map(|(at, len)| Range { at: Iova(*at), len: *len }).collect();
        let txn = NewTxn::device(kind, Stream::Responder(1), &ranges, Payload::Sample);
        let decider = Decider { policy, illegal: None, seed: 3, limits: Limits::default() };
        let mut out = Cuts::default();
        let victim = split(&txn, seq, rules, &decider, &mut out);
        assert_eq!(out.steps.iter().map(|count| usize::from(*count)).sum::<usize>(), out.ranges.len());
        (victim, out)
    }

    /// The parts, each with its first address and its bytes.
    fn parts(cuts: &Cuts) -> Vec<(u64, u32)> {
        let mut ranges = cuts.ranges.iter();
        let part = |count: &u16| -> Vec<&Range> { ranges.by_ref().take(usize::from(*count)).collect() };
        let parts: Vec<Vec<&Range>> = cuts.steps.iter().map(part).collect();
        parts.iter().map(|part| (part[0].at.0, part.iter().map(|range| range.len).sum())).collect()
    }

    #[test]
    fn an_entry_is_its_body_and_the_granule_with_its_owner() {
        for (profile, owner) in [(Profile::Cx10Unordered, 4), (Profile::Cx10Worst, 1)] {
            let rules = profile.rules();
            let (_, cuts) = run(Kind::Cqe, Policy::Random, &rules, &[(0x1000, 64)], 1);
            assert_eq!(parts(&cuts), [(0x1000, 64 - owner), (0x1040 - u64::from(owner), owner)]);
        }
        let rules = Rules { granule: 64, ..Profile::Cx10Unordered.rules() };
        assert_eq!(parts(&run(Kind::Eqe, Policy::Random, &rules, &[(0x1000, 64)], 1).1), [(0x1000, 64)]);
        let rules = Profile::Cx10Unordered.rules();
        let command = [(0x5000, 496), (0x2010, 16), (0x203f, 1)];
        assert_eq!(parts(&run(Kind::Command, Policy::Lifo, &rules, &command, 1).1), command);
    }

    #[test]
    fn the_tail_is_the_last_granule_of_the_address_space_not_of_the_length() {
        let rules = Profile::Cx10Unordered.rules();
        let parts = |ranges: &[(u64, u32)]| parts(&run(Kind::Write, Policy::TailFirst, &rules, ranges, 1).1);
        assert_eq!(parts(&[(0x100, 4096)]), [(0x100, 4092), (0x10fc, 4)]);
        assert_eq!(parts(&[(0x103, 7)]), [(0x103, 5), (0x108, 2)]);
        assert_eq!(parts(&[(0x100, 8), (0x200, 0), (0x301, 2)]), [(0x100, 8), (0x301, 2)]);
        assert_eq!(parts(&[(0x100, 1)]), [(0x100, 1)]);
        assert_eq!(parts(&[]), []);
    }

    #[test]
    fn the_victim_is_one_granule_and_every_place_gets_its_turn() {
        let rules = Profile::Cx10Unordered.rules();
        let mut seen = std::collections::BTreeSet::new();
        for seq in 0..200 {
            let (victim, cuts) = run(Kind::Write, Policy::HoldOne, &rules, &[(0x102, 8), (0x204, 8)], seq);
            let parts = parts(&cuts);
            let (at, len) = parts[usize::from(victim)];
            assert!(len <= 4 && at / 4 == (at + u64::from(len) - 1) / 4, "{parts:?} {victim}");
            seen.insert(at);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0x102, 0x104, 0x108, 0x204, 0x208]);
    }

    #[test]
    fn cuts_keep_every_byte_and_its_order_under_every_policy_and_unit() {
        for policy in Policy::ALL {
            for split in Split::ALL {
                for granule in [1, 4, 8, 64] {
                    let rules = Rules { granule, split: *split, ..Profile::Cx10Unordered.rules() };
                    for seq in 0..16 {
                        let ranges = [(0x1003, 300), (0x7ff0, 700), (0x20_0001, 1)];
                        let (victim, cuts) = run(Kind::Write, policy, &rules, &ranges, seq);
                        let all: Vec<u64> = ranges.iter().flat_map(|(at, len)| *at..*at + u64::from(*len)).collect();
                        let cut = cuts.ranges.iter().flat_map(|range| range.at.0..range.at.0 + u64::from(range.len));
                        assert_eq!(cut.collect::<Vec<_>>(), all);
                        let parts = parts(&cuts);
                        assert!(parts.len() <= 4 && usize::from(victim) < parts.len());
                        let starts = [0x1003, 0x7ff0, 0x20_0001];
                        let aligned = |at: &u64| at % u64::from(granule) == 0 || starts.contains(at);
                        assert!(parts.iter().all(|(at, _)| aligned(at)), "{policy} {parts:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_unit_can_be_coarser_than_the_granule() {
        let rules = Rules { split: Split::Page, ..Profile::Cx10Unordered.rules() };
        for seq in 0..64 {
            let parts = parts(&run(Kind::Write, Policy::Random, &rules, &[(0x1800, 0x2000)], seq).1);
            assert!(parts.iter().skip(1).all(|(at, _)| at % 4096 == 0), "{parts:x?}");
        }
    }

    #[test]
    fn parts_are_the_same_however_pages_lie() {
        let sizes = |cuts: &Cuts| parts(cuts).iter().map(|(_, len)| *len).collect::<Vec<_>>();
        // 20000 bytes from 0x804 in a page on, then 300 of another segment.
        let together = [(0x7804, 20000), (0x9_0123, 300)];
        let scattered =
            [(0x3804, 0x7fc), (0x9000, 0x2000), (0x5000, 0x1000), (0x1_0000, 20000 - 0x37fc), (0x2_0123, 300)];
        let half = [(0x3804, 0x17fc), (0x9000, 20000 - 0x17fc), (0x2_0123, 300)];
        for policy in Policy::ALL {
            for split in Split::ALL {
                let rules = Rules { split: *split, ..Profile::Cx10Unordered.rules() };
                for seq in 0..100 {
                    let of = |ranges: &[(u64, u32)]| {
                        let (victim, cuts) = run(Kind::Write, policy, &rules, ranges, seq);
                        (victim, sizes(&cuts))
                    };
                    let expected = of(&together);
                    assert_eq!(expected.1.iter().sum::<u32>(), 20300);
                    assert_eq!((of(&scattered), of(&half)), (expected.clone(), expected), "{policy} {split:?}");
                }
            }
        }
    }
}
