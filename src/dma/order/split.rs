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

/// Cuts the ranges of a transaction that will have number `seq` in its stream; answers the part that a policy may single
/// out. `out` is emptied first.
pub(super) fn split(txn: &NewTxn<'_>, seq: u64, rules: &Rules, decider: &Decider, out: &mut Vec<Range>) -> u16 {
    out.clear();
    out.extend(txn.ranges.iter().filter(|range| range.len > 0));
    let granule = rules.granule.max(1);
    match txn.kind {
        Kind::Cqe | Kind::Eqe | Kind::Command => {
            // The granule with the owner or status byte.
            if let Some(last) = end_of(out).checked_sub(1) {
                cut(out, last, granule);
            }
            0
        }
        Kind::Write | Kind::Read => payload(txn, seq, rules, decider, out),
        Kind::Atomic | Kind::Msi | Kind::Control => 0,
    }
}

fn end_of(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| u64::from(range.len)).sum()
}

/// Cuts the range that holds byte `offset` of all at the last multiple of `unit` that is not above that byte.
fn cut(out: &mut Vec<Range>, offset: u64, unit: u32) {
    let mut start = 0;
    for index in 0..out.len() {
        let range = out[index];
        let len = u64::from(range.len);
        if offset < start + len {
            let byte = range.at.0 + (offset - start);
            let border = byte - byte % u64::from(unit);
            if border <= range.at.0 {
                return;
            }
            let head = (border - range.at.0) as u32;
            out[index].len = head;
            out.insert(index + 1, Range { at: Iova(border), len: range.len - head });
            return;
        }
        start += len;
    }
}

/// The index of the range that holds byte `offset` of all.
fn part_of(ranges: &[Range], offset: u64) -> u16 {
    let mut end = 0;
    let holds = ranges.iter().position(|range| {
        end += u64::from(range.len);
        offset < end
    });
    holds.unwrap_or(0) as u16
}

fn payload(txn: &NewTxn<'_>, seq: u64, rules: &Rules, decider: &Decider, out: &mut Vec<Range>) -> u16 {
    let draw = |place: u16, purpose| prf(decider.seed, txn.stream, seq, place, purpose);
    let len = end_of(out);
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
                cut(out, draw(place, Purpose::Cut) % len, unit);
            }
            0
        }
        Policy::Lifo => {
            for quarter in 1..4 {
                cut(out, len * quarter / 4, unit);
            }
            0
        }
        Policy::TailFirst => {
            cut(out, len - 1, granule);
            0
        }
        Policy::HoldOne => {
            let victim = draw(0, Purpose::Victim) % len;
            cut(out, victim, unit);
            // The granule ends where the next one begins.
            let index = part_of(out, victim);
            let range = out[usize::from(index)];
            let start: u64 = end_of(&out[..usize::from(index)]);
            let first = range.at.0 - range.at.0 % u64::from(unit);
            let next = first.saturating_add(u64::from(unit)).saturating_sub(range.at.0);
            if next < u64::from(range.len) {
                cut(out, start + next, 1);
            }
            part_of(out, victim)
        }
        Policy::InOrder | Policy::QpSkew | Policy::ReadEarly | Policy::ReadLate | Policy::Pct(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Payload, Profile, Stream};
    use super::*;

    fn run(kind: Kind, policy: Policy, rules: &Rules, ranges: &[(u64, u32)], seq: u64) -> (u16, Vec<(u64, u32)>) {
        let ranges: Vec<Range> = ranges.iter().map(|(at, len)| Range { at: Iova(*at), len: *len }).collect();
        let txn = NewTxn::device(kind, Stream::Responder(1), &ranges, Payload::Sample);
        let decider = Decider { policy, illegal: None, seed: 3, limits: Limits::default() };
        let mut out = Vec::new();
        let victim = split(&txn, seq, rules, &decider, &mut out);
        (victim, out.iter().map(|range| (range.at.0, range.len)).collect())
    }

    #[test]
    fn an_entry_is_its_body_and_the_granule_with_its_owner() {
        for (profile, owner) in [(Profile::Cx10Unordered, 4), (Profile::Cx10Worst, 1)] {
            let rules = profile.rules();
            let (_, parts) = run(Kind::Cqe, Policy::Random, &rules, &[(0x1000, 64)], 1);
            assert_eq!(parts, [(0x1000, 64 - owner), (0x1040 - u64::from(owner), owner)]);
        }
        let rules = Rules { granule: 64, ..Profile::Cx10Unordered.rules() };
        assert_eq!(run(Kind::Eqe, Policy::Random, &rules, &[(0x1000, 64)], 1).1, [(0x1000, 64)]);
        let rules = Profile::Cx10Unordered.rules();
        let command = [(0x5000, 496), (0x2010, 16), (0x203f, 1)];
        assert_eq!(run(Kind::Command, Policy::Lifo, &rules, &command, 1).1, command);
    }

    #[test]
    fn the_tail_is_the_last_granule_of_the_address_space_not_of_the_length() {
        let rules = Profile::Cx10Unordered.rules();
        let parts = |ranges: &[(u64, u32)]| run(Kind::Write, Policy::TailFirst, &rules, ranges, 1).1;
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
            let (victim, parts) = run(Kind::Write, Policy::HoldOne, &rules, &[(0x102, 8), (0x204, 8)], seq);
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
                        let (victim, parts) = run(Kind::Write, policy, &rules, &ranges, seq);
                        let bytes = |ranges: &[(u64, u32)]| -> Vec<u64> {
                            ranges.iter().flat_map(|(at, len)| *at..*at + u64::from(*len)).collect()
                        };
                        assert_eq!(bytes(&parts), bytes(&ranges));
                        assert!(parts.len() <= 6 && usize::from(victim) < parts.len());
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
            let parts = run(Kind::Write, Policy::Random, &rules, &[(0x1800, 0x2000)], seq).1;
            assert!(parts.iter().skip(1).all(|(at, _)| at % 4096 == 0), "{parts:x?}");
        }
    }
}
