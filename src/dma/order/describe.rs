//! Overtakes in sentences: what came before what, how long, and why the contract lets it.
//!
//! The reasons are those of `docs/ordering.md`. They are for readers; what may happen is decided in [`super::rules`].

use super::knobs::Rules;
use super::log::{Issued, Log, LogError};
use super::overtakes::{Identity, Overtake};
use super::{Kind, Range, Stream};

/// A stream in words.
pub(super) fn stream(stream: Stream) -> String {
    match stream {
        Stream::Requester(number) => format!("the requester of queue pair {number:#x}"),
        Stream::Responder(number) => format!("the responder of queue pair {number:#x}"),
        Stream::Queue(number) => format!("queue {number:#x}"),
        Stream::Cq(number) => format!("completion queue {number:#x}"),
        Stream::Eq(number) => format!("event queue {number:#x}"),
        Stream::Command => "the command interface".to_owned(),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Write => "write",
        Kind::Read => "read",
        Kind::Atomic => "atomic operation",
        Kind::Cqe => "completion",
        Kind::Eqe => "event",
        Kind::Msi => "interrupt",
        Kind::Command => "command output",
        Kind::Control => "control read",
    }
}

/// An access with its place: "the write of 8 bytes to 0x2000 (number 2 of the responder of queue pair 0x12, key 0x40)".
pub(super) fn access(what: Kind, of: Stream, seq: u64, chain: Option<u32>, keys: [u32; 2], ranges: &[Range]) -> String {
    let place = match ranges.first() {
        None => String::new(),
        Some(first) => {
            let way = if matches!(what, Kind::Read | Kind::Control) { "from" } else { "to" };
            let len: u64 = ranges.iter().map(|range| u64::from(range.len)).sum();
            let end = first.at.0.saturating_add(first.len.into());
            let (_, joined) = ranges[1..].iter().fold((end, true), |(end, joined), range| {
                (range.at.0.saturating_add(range.len.into()), joined && range.at.0 == end)
            });
            let pieces = if joined { "" } else { " and other places" };
            format!(" of {len} bytes {way} {:#x}{pieces}", first.at.0)
        }
    };
    let keys = match keys {
        [0, 0] => String::new(),
        [key, 0] => format!(", key {key:#x}"),
        [key, leaf] => format!(", key {key:#x}, behind it {leaf:#x}"),
    };
    let chain = chain.map(|cq| format!(", completion queue {cq:#x}")).unwrap_or_default();
    format!("the {}{place} (number {seq} of {}{chain}{keys})", kind(what), stream(of))
}

fn part(issued: &Issued<'_>, part: u16) -> String {
    access(issued.kind, issued.stream, issued.seq, issued.chain, issued.keys, issued.part(part))
}

/// Why the later one owed nothing to the earlier one.
fn reason(later: &Issued<'_>, earlier: &Issued<'_>, rules: &Rules) -> &'static str {
    if later.id == earlier.id {
        return "parts of one access become visible in any order, but for the last one of an entry";
    }
    if later.node != earlier.node {
        return "nothing keeps order between memory domains";
    }
    if later.stream != earlier.stream {
        return match (later.kind, earlier.kind) {
            (Kind::Cqe, _) => "a completion covers its own queue pair and direction, no other",
            _ => "different streams owe each other nothing",
        };
    }
    match (later.kind, earlier.kind) {
        (Kind::Write, Kind::Write) if rules.ro_only => "this device keeps no order between writes",
        (Kind::Write, Kind::Write) => "the later key asks for relaxed ordering of writes",
        (Kind::Write, Kind::Read) => "a write never waits for an earlier read",
        (Kind::Read, Kind::Write) if rules.relaxes_read(later.order.relaxed_read_after_write) => {
            "the later key lets reads pass earlier writes (order_read_after_write)"
        }
        (Kind::Read, Kind::Write) => "the read waits for other bytes only (raw_scope)",
        (Kind::Read, Kind::Read) => "reads are not ordered",
        _ => "the contract asks for no order between these",
    }
}

/// One sentence for each overtake, in their order; one that is not of this log says only its names.
pub fn sentences(log: &Log, overtakes: &[Overtake]) -> Result<Vec<String>, LogError> {
    let whole = |name: Identity| Identity { part: 0, ..name };
    let names = overtakes.iter().flat_map(|overtake| [overtake.later, overtake.earlier]).map(whole).collect();
    let found = log.find(&names)?;
    let sentence = |overtake: &Overtake| match (found.get(&whole(overtake.later)), found.get(&whole(overtake.earlier)))
    {
        (Some(later), Some(earlier)) => format!(
            "{} came {} us before {}, which was issued first: {}",
            part(later, overtake.later.part),
            overtake.gap,
            part(earlier, overtake.earlier.part),
            reason(later, earlier, &log.settings.rules)
        ),
        _ => overtake.to_string(),
    };
    Ok(overtakes.iter().map(sentence).collect())
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::Sink;
    use super::super::log::{Event, Writer};
    use super::super::{Fence, Policy, Profile, Settings, TxnId};
    use super::*;
    use crate::dma::{Iova, KeyOrder};
    use std::borrow::Cow;

    fn issued(id: u64, kind: Kind, stream: Stream, seq: u64) -> Issued<'static> {
        Issued {
            tick: 0,
            id: TxnId(id),
            kind,
            stream,
            seq,
            chain: (kind == Kind::Cqe).then_some(5),
            order: KeyOrder::default(),
            fence: Fence::None,
            after: [None; 2],
            keys: [0x40, 0],
            node: 0,
            source: None,
            steps: 2,
            counts: Cow::Borrowed(&[]),
            ranges: Cow::Owned(vec![
                Range { at: Iova(id * 0x1000), len: 8 },
                Range { at: Iova(id * 0x1000 + 8), len: 4 },
            ]),
        }
    }

    #[test]
    fn a_violation_is_told_with_addresses_queue_pairs_and_keys() {
        use super::super::Choice;
        use super::super::checker::Checker;
        use super::super::log::Why;
        let mut checker = Checker::new(&Settings::with(Policy::Random, Profile::Cx10Unordered, 1));
        let stream = Stream::Responder(0x12);
        checker.event(&Event::Issue(issued(1, Kind::Write, stream, 1)));
        checker.event(&Event::Issue(issued(2, Kind::Cqe, stream, 2)));
        let choice = Choice { txn: TxnId(2), part: 0 };
        checker.event(&Event::Apply { tick: 1, choice, why: Why::Due });
        assert_eq!(
            checker.verdict().described,
            [
                "the completion of 12 bytes to 0x2000 (number 2 of the responder of queue pair 0x12, completion queue 0x5, key \
              0x40) is applied before the write of 12 bytes to 0x1000 (number 1 of the responder of queue pair 0x12, key \
              0x40): a completion comes after the data of its queue"
            ]
        );
    }

    #[test]
    fn a_sentence_has_addresses_queue_pairs_keys_and_the_reason() {
        let (one, two) = (Stream::Responder(0x12), Stream::Responder(0x13));
        let transactions = [
            issued(1, Kind::Write, one, 1),
            issued(2, Kind::Write, one, 2),
            issued(3, Kind::Cqe, two, 1),
            issued(4, Kind::Read, two, 2),
        ];
        let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
        let sink = Sink::default();
        let mut writer = Writer::new(Box::new(sink.clone()), &settings, "test", u64::MAX).unwrap();
        transactions.into_iter().for_each(|issued| writer.event(&Event::Issue(issued)));
        drop(writer);
        let log = Log::read(&sink.0.lock().unwrap()).unwrap();
        let name = |stream, seq, part| Identity { stream, control: false, seq, part };
        let overtake = |later, earlier| Overtake { later, earlier, gap: 180 };
        let texts = sentences(
            &log,
            &[
                overtake(name(one, 2, 1), name(one, 1, 0)),
                overtake(name(two, 1, 0), name(one, 2, 0)),
                overtake(name(one, 2, 1), name(one, 2, 0)),
                overtake(name(one, 9, 1), name(one, 2, 0)),
            ],
        )
        .unwrap();
        assert_eq!(
            texts[0],
            "the write of 4 bytes to 0x2008 (number 2 of the responder of queue pair 0x12, key 0x40) came 180 us before the \
             write of 8 bytes to 0x1000 (number 1 of the responder of queue pair 0x12, key 0x40), which was issued first: \
             this device keeps no order between writes"
        );
        assert!(texts[1].starts_with(
            "the completion of 8 bytes to 0x3000 (number 1 of the responder of queue pair 0x13, completion queue 0x5, key 0x40)"
        ));
        assert!(texts[1].ends_with("a completion covers its own queue pair and direction, no other"), "{}", texts[1]);
        assert!(texts[2].contains("parts of one access"), "{}", texts[2]);
        assert_eq!(texts[3], "responder:0x12/9/1 over responder:0x12/2/0 for 180");
    }
}
