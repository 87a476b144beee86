//! Overtakes: which part was applied before one that was issued earlier. They are what a run differs in from one in
//! order, what `cx10 shrink` takes away one by one, and what remains of a failure as a litmus program.
//!
//! A part is named by its stream, its number there and its place in the transaction, so that the same part has the same
//! name in another run. One overtake is one line of text: `responder:0x12/34/0 over responder:0x12/33/1 for 180`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::log::follow::Follow;
use super::log::{Event, Log, LogError, Recorded};
use super::{Stream, Tick};

/// A part, the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Whose.
    pub stream: Stream,
    /// A control read; those have numbers of their own.
    pub control: bool,
    /// The transaction's number in the stream.
    pub seq: u64,
    /// Its place in the transaction.
    pub part: u16,
}

/// A part that was applied before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Overtake {
    /// What overtook.
    pub later: Identity,
    /// What was overtaken.
    pub earlier: Identity,
    /// How long the earlier one came after the later one, in ticks.
    pub gap: Tick,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = if self.control { "control/" } else { "" };
        write!(f, "{}/{control}{}/{}", StreamName(self.stream), self.seq, self.part)
    }
}

impl fmt::Display for Overtake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {} for {}", self.later, self.earlier, self.gap)
    }
}

/// A stream in text.
struct StreamName(Stream);

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Stream::Requester(number) => write!(f, "requester:{number:#x}"),
            Stream::Responder(number) => write!(f, "responder:{number:#x}"),
            Stream::Queue(number) => write!(f, "queue:{number:#x}"),
            Stream::Cq(number) => write!(f, "cq:{number:#x}"),
            Stream::Eq(number) => write!(f, "eq:{number:#x}"),
            Stream::Command => f.write_str("command"),
        }
    }
}

/// A line that is no overtake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no overtake; expected: STREAM/NUMBER/PART over STREAM/NUMBER/PART for TICKS")]
pub struct NotAnOvertake(String);

fn parse_identity(text: &str) -> Option<Identity> {
    let (stream, rest) = text.split_once('/')?;
    let (control, rest) = match rest.strip_prefix("control/") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (seq, part) = rest.split_once('/')?;
    let stream = if stream == "command" {
        Stream::Command
    } else {
        let (kind, number) = stream.split_once(":0x")?;
        let number = u32::from_str_radix(number, 16).ok()?;
        match kind {
            "requester" => Stream::Requester(number),
            "responder" => Stream::Responder(number),
            "queue" => Stream::Queue(number),
            "cq" => Stream::Cq(number),
            "eq" => Stream::Eq(number),
            _ => return None,
        }
    };
    Some(Identity { stream, control, seq: seq.parse().ok()?, part: part.parse().ok()? })
}

impl std::str::FromStr for Overtake {
    type Err = NotAnOvertake;

    fn from_str(text: &str) -> Result<Overtake, NotAnOvertake> {
        let parse = || {
            let (later, rest) = text.trim().split_once(" over ")?;
            let (earlier, gap) = rest.split_once(" for ")?;
            let (later, earlier) = (parse_identity(later)?, parse_identity(earlier)?);
            Some(Overtake { later, earlier, gap: gap.parse().ok()? })
        };
        parse().ok_or_else(|| NotAnOvertake(text.to_owned()))
    }
}

/// One overtake a line; empty lines and those that begin with `#` say nothing.
pub fn parse_lines(text: &str) -> Result<Vec<Overtake>, NotAnOvertake> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(str::parse).collect()
}

impl Log {
    /// Every overtake, at most `most`.
    pub fn overtakes(&self, most: usize) -> Result<Vec<Overtake>, LogError> {
        let mut follow = Follow::default();
        // Of each pending part: what overtook it, and when.
        let mut overtaken: BTreeMap<Identity, Vec<(Identity, Tick)>> = BTreeMap::new();
        let mut waiting = 0;
        let mut overtakes = Vec::new();
        let mut events = self.events()?;
        while let Some(event) = events.next() {
            let event = event?;
            let recorded = follow.event(&event).map_err(|what| events.damaged(what))?;
            match (recorded, event) {
                (Some(Recorded { part, .. }), Event::Apply { tick, choice, .. }) => {
                    // Those that overtook it are known now, with their distance.
                    let by = overtaken.remove(&part).unwrap_or_default();
                    waiting -= by.len();
                    overtakes.extend(by.into_iter().map(|(later, when)| Overtake {
                        later,
                        earlier: part,
                        gap: tick.saturating_sub(when),
                    }));
                    for earlier in follow.before(choice) {
                        overtaken.entry(earlier).or_default().push((part, tick));
                        waiting += 1;
                        if overtakes.len() + waiting > most {
                            return Err(LogError::Overtakes { most });
                        }
                    }
                }
                (_, Event::Discard { .. }) => {
                    overtaken.clear();
                    waiting = 0;
                }
                _ => {}
            }
        }
        Ok(overtakes)
    }
}

/// Halves a set until no part of it can be left out: which of `all` must stay so that `fails` still says yes. `fails` is
/// asked for subsets, and says nothing to end the search with what is left so far; a failure that comes and goes should be
/// asked for several times inside it. The method is the minimizing delta debugging of Zeller and Hildebrandt (IEEE TSE
/// 28(2), 2002).
pub fn shrink<T: Clone>(all: &[T], mut fails: impl FnMut(&[T]) -> Option<bool>) -> Vec<T> {
    search(all, &mut fails).unwrap_or_else(|kept| kept)
}

/// The search; an error is what was left when `fails` had no answer.
fn search<T: Clone>(all: &[T], fails: &mut impl FnMut(&[T]) -> Option<bool>) -> Result<Vec<T>, Vec<T>> {
    let mut kept = all.to_vec();
    if fails(&[]).ok_or_else(|| kept.clone())? {
        return Ok(Vec::new());
    }
    let mut pieces = 2;
    while kept.len() >= 2 {
        let size = kept.len().div_ceil(pieces);
        match smaller(&kept, size, fails).ok_or_else(|| kept.clone())? {
            Some((part, true)) => {
                kept = part;
                pieces = 2;
            }
            Some((rest, false)) => {
                kept = rest;
                pieces = (pieces - 1).max(2);
            }
            None if size == 1 => break,
            None => pieces = (pieces * 2).min(kept.len()),
        }
    }
    Ok(kept)
}

/// The first piece of `size` that fails alone (`true`), else the first rest that fails without one (`false`).
fn smaller<T: Clone>(
    kept: &[T],
    size: usize,
    fails: &mut impl FnMut(&[T]) -> Option<bool>,
) -> Option<Option<(Vec<T>, bool)>> {
    for chunk in kept.chunks(size).filter(|chunk| chunk.len() < kept.len()) {
        if fails(chunk)? {
            return Some(Some((chunk.to_vec(), true)));
        }
    }
    for start in (0..kept.len()).step_by(size) {
        let end = (start + size).min(kept.len());
        let rest = [&kept[..start], &kept[end..]].concat();
        if rest.len() < kept.len() && !rest.is_empty() && fails(&rest)? {
            return Some(Some((rest, false)));
        }
    }
    Some(None)
}

/// The smallest set of overtakes that still fails, as [`shrink`] finds it: first it takes away all that happened behind
/// one part together, because a part that waits for one overtaker usually has to let others past too; then single
/// overtakes. Sets that were asked for before are not asked for again, and the empty set is taken not to fail.
pub fn smallest(all: &[Overtake], mut fails: impl FnMut(&[Overtake]) -> Option<bool>) -> Vec<Overtake> {
    // A set is known by 64 bits of its own, however large it is: two that share them would only end in a larger result.
    let name_of = |set: &[Overtake]| {
        let mut hasher = DefaultHasher::new();
        set.hash(&mut hasher);
        hasher.finish()
    };
    let mut passed = BTreeSet::from([name_of(&[])]);
    let mut ask = |set: &[Overtake]| {
        let name = name_of(set);
        if passed.contains(&name) {
            return Some(false);
        }
        let failed = fails(set)?;
        if !failed {
            passed.insert(name);
        }
        Some(failed)
    };
    let mut behind: Vec<(Identity, Vec<Overtake>)> = Vec::new();
    let mut places = BTreeMap::new();
    for overtake in all {
        let place = *places.entry(overtake.earlier).or_insert(behind.len());
        if place == behind.len() {
            behind.push((overtake.earlier, Vec::new()));
        }
        behind[place].1.push(*overtake);
    }
    let flat = |groups: &[(Identity, Vec<Overtake>)]| -> Vec<Overtake> {
        groups.iter().flat_map(|(_, overtakes)| overtakes.iter().copied()).collect()
    };
    match search(&behind, &mut |groups| ask(&flat(groups))) {
        Ok(groups) => shrink(&flat(&groups), ask),
        Err(groups) => flat(&groups),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overtake(later: u64, earlier: u64) -> Overtake {
        let name = |seq| Identity { stream: Stream::Responder(0x12), control: false, seq, part: 1 };
        Overtake { later: name(later), earlier: name(earlier), gap: 180 }
    }

    #[test]
    fn an_overtake_is_read_as_it_is_written() {
        assert_eq!(overtake(34, 33).to_string(), "responder:0x12/34/1 over responder:0x12/33/1 for 180");
        for stream in [Stream::Requester(1), Stream::Queue(u32::MAX), Stream::Cq(3), Stream::Eq(4), Stream::Command] {
            let later = Identity { stream, control: true, seq: u64::MAX, part: u16::MAX };
            let line = Overtake { later, ..overtake(1, 2) };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        let text = "# kept\n\nresponder:0x12/34/1 over responder:0x12/33/1 for 180\n";
        assert_eq!(parse_lines(text), Ok(vec![overtake(34, 33)]));
        for wrong in ["x", "responder:0x12/34/1 over responder:0x12/33/1", "responder:12/1/1 over command/1/1 for 1"] {
            assert!(parse_lines(wrong).unwrap_err().to_string().contains("is no overtake"), "{wrong}");
        }
    }

    #[test]
    fn shrinking_ends_at_a_set_that_fails_and_from_which_nothing_can_be_taken() {
        let all: Vec<Overtake> = (0..97).map(|index| overtake(index + 1, index)).collect();
        for needed in [vec![], vec![13], vec![0, 96], vec![5, 6, 7, 50]] {
            let mut asked = 0;
            let fails = |set: &[Overtake]| {
                asked += 1;
                Some(needed.iter().all(|index| set.contains(&all[*index])))
            };
            let kept = shrink(&all, fails);
            let expected: Vec<Overtake> = needed.iter().map(|index| all[*index]).collect();
            assert_eq!(kept, expected);
            assert!(asked < 300, "{asked} runs for {needed:?}");
        }
    }

    #[test]
    fn the_smallest_set_is_found_in_few_runs_and_no_set_is_asked_for_twice() {
        // Each part is overtaken by the ten behind it.
        let all: Vec<Overtake> = (0..5000).map(|index| overtake(index / 10 + index % 10 + 1, index / 10)).collect();
        for needed in [vec![4321], vec![17, 4990], vec![100, 101, 102]] {
            let mut asked = BTreeSet::new();
            let fails = |set: &[Overtake]| {
                assert!(!set.is_empty(), "the caller knows that nothing fails in order");
                assert!(asked.insert(set.to_vec()), "asked twice for {} overtakes", set.len());
                Some(needed.iter().all(|index| set.contains(&all[*index])))
            };
            let expected: Vec<Overtake> = needed.iter().map(|index| all[*index]).collect();
            assert_eq!(smallest(&all, fails), expected);
            assert!(asked.len() < 100, "{} runs for {needed:?}", asked.len());
        }
    }

    #[test]
    fn a_search_that_is_stopped_ends_at_once_with_a_set_that_fails() {
        let all: Vec<Overtake> = (0..20_000).map(|index| overtake(index + 1, index)).collect();
        let mut left = 5;
        let mut last = all.clone();
        let kept = smallest(&all, |set| {
            left -= 1;
            if left < 0 {
                return None;
            }
            let fails = set.contains(&all[777]);
            if fails {
                last = set.to_vec();
            }
            Some(fails)
        });
        assert_eq!(kept, last);
        assert!(left == -1 && kept.len() < all.len() / 8 && kept.contains(&all[777]), "{left} {}", kept.len());
    }
}
