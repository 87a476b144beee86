//! Which kinds of transactions really overtook which, so that a user knows what a test exercised.

use super::knobs::Rules;
use super::rules::{Access, must_wait};
use super::{Kind, Stream};

/// Classes of transactions: the kinds, with those told apart whose attribute decides.
const CLASSES: [(Kind, bool); 11] = [
    (Kind::Write, true),
    (Kind::Write, false),
    (Kind::Read, true),
    (Kind::Read, false),
    (Kind::Atomic, true),
    (Kind::Atomic, false),
    (Kind::Cqe, false),
    (Kind::Eqe, false),
    (Kind::Msi, false),
    (Kind::Command, false),
    (Kind::Control, false),
];

const COUNT: usize = CLASSES.len();

/// The class of a transaction.
pub(super) fn class(access: &Access) -> u8 {
    match access.kind {
        Kind::Write => u8::from(!access.relaxed_write),
        Kind::Read => 2 + u8::from(!access.relaxed_read),
        Kind::Atomic => 4 + u8::from(!access.relaxed_write),
        Kind::Cqe => 6,
        Kind::Eqe => 7,
        Kind::Msi => 8,
        Kind::Command => 9,
        Kind::Control => 10,
    }
}

fn label(class: usize) -> &'static str {
    [
        "write (relaxed)",
        "write (strict)",
        "read (relaxed)",
        "read (strong)",
        "atomic (relaxed)",
        "atomic (strict)",
        "completion",
        "event",
        "interrupt",
        "command output",
        "control read",
    ][class]
}

/// Counts of overtakes.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Later over earlier, in one stream and between streams.
    pairs: [[[u64; 2]; COUNT]; COUNT],
    /// Within one transaction, by class.
    within: [u64; COUNT],
    /// Transactions, by class.
    seen: [u64; COUNT],
}

/// One kind of overtaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What overtook.
    pub later: &'static str,
    /// What was overtaken; the same transaction's other parts if there is none.
    pub earlier: Option<&'static str>,
    /// In one stream.
    pub same_stream: bool,
    /// How often.
    pub count: u64,
    /// Whether the rules in force allow it.
    pub allowed: bool,
    /// Whether both were there at all.
    pub met: bool,
}

impl Coverage {
    /// A transaction is applied, for the first time, before these.
    pub(super) fn record(&mut self, later: &Access, pending: impl Iterator<Item = (u8, Stream)>) {
        self.seen[usize::from(class(later))] += 1;
        let row = &mut self.pairs[usize::from(class(later))];
        for (earlier, stream) in pending {
            row[usize::from(earlier)][usize::from(stream == later.stream)] += 1;
        }
    }

    /// A part is applied, before an earlier one of its transaction or not.
    pub(super) fn record_part(&mut self, access: &Access, early: bool) {
        self.within[usize::from(class(access))] += u64::from(early);
    }

    /// All kinds of overtaking that the rules allow or that happened.
    pub fn rows(&self, rules: &Rules) -> Vec<Row> {
        let mut rows = Vec::new();
        for (later, (kind, relaxed)) in CLASSES.iter().enumerate() {
            for (earlier, (other, other_relaxed)) in CLASSES.iter().enumerate() {
                for same in [true, false] {
                    let count = self.pairs[later][earlier][usize::from(same)];
                    let ours = access(*kind, *relaxed, 1);
                    let theirs = access(*other, *other_relaxed, if same { 1 } else { 2 });
                    let occurs = occurs(*kind, *relaxed, rules) && occurs(*other, *other_relaxed, rules);
                    let meet = meets(*kind, *other, same);
                    let allowed = must_wait(&ours, &theirs, rules, || false).is_none() && occurs && meet;
                    let met = self.seen[later] > 0 && self.seen[earlier] > 0;
                    if allowed || count > 0 {
                        let (later, earlier) = (label(later), Some(label(earlier)));
                        rows.push(Row { later, earlier, same_stream: same, count, allowed, met });
                    }
                }
            }
            let split = matches!(kind, Kind::Write | Kind::Read | Kind::Cqe | Kind::Eqe | Kind::Command);
            if split && occurs(*kind, *relaxed, rules) {
                let count = self.within[later];
                let met = self.seen[later] > 0;
                rows.push(Row { later: label(later), earlier: None, same_stream: true, count, allowed: true, met });
            }
        }
        rows
    }

    /// The kinds of transactions that the rules allow and that were not there.
    pub fn absent(&self, rules: &Rules) -> impl Iterator<Item = &'static str> {
        let there = |class: usize| self.seen[class] > 0 || !occurs(CLASSES[class].0, CLASSES[class].1, rules);
        (0..COUNT).filter(move |class| !there(*class)).map(label)
    }
}

/// Whether a class can be there under the rules.
fn occurs(kind: Kind, relaxed: bool, rules: &Rules) -> bool {
    match kind {
        Kind::Write | Kind::Atomic if relaxed => rules.relaxes_write(true),
        Kind::Write | Kind::Atomic => !rules.relaxes_write(false),
        Kind::Read if relaxed => rules.relaxes_read(true),
        _ => true,
    }
}

/// Whether two kinds can be in one stream, or in two.
fn meets(kind: Kind, other: Kind, same: bool) -> bool {
    let events = |kind| matches!(kind, Kind::Eqe | Kind::Msi);
    let family = |kind| {
        if events(kind) {
            1
        } else if kind == Kind::Command {
            2
        } else {
            0
        }
    };
    !same || family(kind) == family(other)
}

fn access(kind: Kind, relaxed: bool, number: u32) -> Access {
    Access {
        kind,
        stream: Stream::Responder(number),
        seq: 1,
        chain: None,
        relaxed_write: relaxed,
        relaxed_read: relaxed,
        fence: super::Fence::None,
        after: [None; 2],
        node: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::drive;
    use super::super::pool::tests::Ram;
    use super::super::{Order, Policy, Profile, Settings};
    use super::*;

    fn rows(policy: Policy, profile: Profile) -> Vec<Row> {
        let mut order = Order::new(Settings::with(policy, profile, 1));
        drive(&mut order, &mut Ram::new(), 600, 1);
        order.coverage().rows(&order.settings().rules)
    }

    #[test]
    fn nothing_is_counted_that_the_rules_do_not_allow() {
        for profile in Profile::ALL {
            for policy in Policy::ALL {
                let rows = rows(policy, *profile);
                let wrong: Vec<_> = rows.iter().filter(|row| row.count > 0 && !row.allowed).collect();
                assert!(wrong.is_empty(), "{policy} {profile:?} {wrong:?}");
            }
        }
    }

    #[test]
    fn random_order_on_the_device_exercises_nearly_all_that_is_allowed() {
        let rows = rows(Policy::Random, Profile::Cx10Unordered);
        let never: Vec<_> = rows.iter().filter(|row| row.count == 0 && row.allowed).collect();
        assert!(never.len() * 4 < rows.len(), "{} of {}: {never:#?}", never.len(), rows.len());
        let find = |later, earlier, same_stream| {
            let wanted = |row: &&Row| row.later == later && row.earlier == earlier && row.same_stream == same_stream;
            rows.iter().find(wanted).map(|row| (row.count > 0, row.allowed))
        };
        let write = "write (relaxed)";
        assert_eq!(find(write, Some(write), true), Some((true, true)));
        assert_eq!(find(write, None, true), Some((true, true)));
        assert_eq!(find("completion", Some(write), false), Some((true, true)));
        assert_eq!(find("completion", Some(write), true), None, "never allowed, so never a row");
        assert_eq!(find("write (strict)", Some(write), true), None, "there are no strict writes");
    }

    #[test]
    fn what_was_never_overtaken_is_a_row_with_a_count_of_zero() {
        let rows = rows(Policy::InOrder, Profile::PcieUnordered);
        assert!(rows.iter().all(|row| row.count == 0 && row.allowed));
        assert!(rows.iter().all(|row| row.met), "every kind is there");
        let nothing = Coverage::default();
        assert!(nothing.rows(&Profile::PcieUnordered.rules()).iter().all(|row| !row.met));
        assert_eq!(nothing.absent(&Profile::PcieUnordered.rules()).count(), COUNT);
        assert_eq!(nothing.absent(&Profile::Cx10Unordered.rules()).count(), COUNT - 2, "no strict writes and atomics");
        assert!(rows.len() > 60, "{}", rows.len());
    }
}
