//! Overtakes of a run as a litmus program in the interchange format that `cx10 litmus --file` reads.
//!
//! The program holds the transactions that take part, in issue order, with their attributes, fences and dependencies.
//! A granule is named after its guest address and length, a queue after its queue pair, a label after the transaction
//! and its key, so that the text leads back to the driver's buffers. An observer that could see each overtake is added.
//!
//! Limits: parts that take no part are left out, and a store whose bytes come from a read is shown with a number of its
//! own behind that read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::knobs::{Ack, Fabric, Fence2, RawScope, Rules};
use super::log::{Issued, Log, LogError};
use super::overtakes::{Identity, Overtake};
use super::{Fence, Kind, Range, Stream};

/// No program has more; one that `cx10 litmus` can run is far smaller.
const MOST_OVERTAKES: usize = 4096;
const MOST_TRANSACTIONS: usize = 256;
const MOST_PIECES: usize = 4096;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum NoProgram {
    /// The log cannot be read again.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Overtakes of something else.
    #[error("the overtakes are not in the log")]
    Nothing,
    /// It would be too large to be of use.
    #[error("{count} {what} are too many for a program")]
    TooMany {
        /// How many there are.
        count: usize,
        /// Of what.
        what: &'static str,
    },
}

/// The litmus mode that has the fabric and the attributes of a profile; programs state each attribute themselves.
pub fn mode(rules: &Rules) -> &'static str {
    match (rules.fabric, rules.ro_only) {
        (Fabric::Pcie, _) => "S",
        (Fabric::None, true) => "NU",
        (Fabric::None, false) => "NS",
    }
}

/// A transaction of the program.
struct Taken<'a> {
    issued: &'a Issued<'static>,
    parts: BTreeSet<u16>,
    /// Its number in the program, and what it stores.
    number: usize,
    granules: Vec<String>,
}

impl Taken<'_> {
    fn label(&self) -> String {
        let issued = self.issued;
        let key = match issued.keys {
            [0, 0] => String::new(),
            [key, 0] => format!(" key {key:#x}"),
            [key, leaf] => format!(" key {key:#x} leaf {leaf:#x}"),
        };
        format!("{}: {} {} of {}{key}", self.number, issued.kind.letter(), issued.seq, queue(issued.stream))
    }

    fn stores(&self) -> bool {
        !matches!(self.issued.kind, Kind::Read | Kind::Control)
    }

    fn register(&self, granule: usize) -> String {
        format!("t{}_{granule}", self.number)
    }
}

fn queue(stream: Stream) -> String {
    match stream {
        Stream::Requester(number) => format!("requester_{number:#x}"),
        Stream::Responder(number) => format!("responder_{number:#x}"),
        Stream::Queue(number) => format!("queue_{number:#x}"),
        Stream::Cq(number) => format!("cq_{number:#x}"),
        Stream::Eq(number) => format!("eq_{number:#x}"),
        Stream::Command => "command".to_owned(),
    }
}

/// The transactions that take part in overtakes, in issue order.
fn taken<'a>(found: &'a BTreeMap<Identity, Issued<'static>>, overtakes: &[Overtake]) -> Vec<Taken<'a>> {
    let mut wanted: BTreeMap<Identity, BTreeSet<u16>> = BTreeMap::new();
    for name in overtakes.iter().flat_map(|overtake| [overtake.later, overtake.earlier]) {
        wanted.entry(Identity { part: 0, ..name }).or_default().insert(name.part);
    }
    let mut issued: Vec<&Issued<'static>> = found.values().collect();
    issued.sort_unstable_by_key(|issued| issued.id);
    let taken = issued.into_iter().zip(1..).map(|(issued, number)| {
        let parts = wanted.remove(&issued.name()).unwrap_or_default();
        Taken { issued, parts, number, granules: Vec::new() }
    });
    taken.collect()
}

/// The ranges of a transaction that take part: those parts, or all of an entry, an atomic or what was done at once.
fn ranges(taken: &Taken<'_>) -> Vec<(u64, u64)> {
    let issued = taken.issued;
    let ranges: Vec<Range> = match issued.kind {
        Kind::Cqe | Kind::Eqe | Kind::Command | Kind::Atomic => issued.ranges.to_vec(),
        _ => taken.parts.iter().flat_map(|part| issued.part(*part)).copied().collect(),
    };
    ranges.iter().map(|range| (range.at.0, range.at.0.saturating_add(range.len.into()))).collect()
}

/// Cuts all ranges where any begins or ends, so that a byte is in one granule only, and names the granules. Answers how
/// many pieces there are; beyond [`MOST_PIECES`] not all are named.
fn name_granules(taken: &mut [Taken<'_>]) -> usize {
    let all: Vec<Vec<(u64, u64)>> = taken.iter().map(ranges).collect();
    let mut pieces: usize = all.iter().map(Vec::len).sum();
    if pieces > MOST_PIECES {
        return pieces;
    }
    let atomics: Vec<(u64, u64)> =
        taken.iter().zip(&all).filter(|(t, _)| t.issued.kind == Kind::Atomic).flat_map(|(_, r)| r.clone()).collect();
    let mut borders: BTreeSet<u64> = all.iter().flatten().flat_map(|(from, to)| [*from, *to]).collect();
    borders.retain(|at| !atomics.iter().any(|(from, to)| from < at && at < to));
    pieces = 0;
    for (transaction, ranges) in taken.iter_mut().zip(&all) {
        let mut cuts: Vec<(u64, u64)> = Vec::new();
        let mut seen = BTreeSet::new();
        for (from, to) in ranges {
            let start = borders.range(..=*from).next_back().copied().unwrap_or(*from);
            let edges: Vec<u64> = borders.range(start..).copied().take_while(|at| at <= to).collect();
            let inside = edges.windows(2).map(|pair| (pair[0], pair[1])).filter(|cut| cut.0 < *to && cut.1 > *from);
            cuts.extend(inside.filter(|cut| seen.insert(*cut)));
            if pieces + cuts.len() > MOST_PIECES {
                return pieces + cuts.len();
            }
        }
        pieces += cuts.len();
        transaction.granules = cuts.iter().map(|(from, to)| format!("{from:#x}+{}", to - from)).collect();
        if transaction.issued.kind == Kind::Msi {
            transaction.granules = vec![format!("interrupt_of_{}", queue(transaction.issued.stream))];
        }
    }
    pieces
}

fn transaction(taken: &Taken<'_>, all: &[Taken<'_>], rules: &Rules) -> Value {
    let issued = taken.issued;
    let mut fields = serde_json::Map::new();
    let mut set = |field: &str, value: Value| {
        fields.insert(field.to_owned(), value);
    };
    set("kind", issued.kind.letter().to_string().into());
    set("queue", queue(issued.stream).into());
    set("at", taken.granules.clone().into());
    if taken.stores() {
        set("values", vec![taken.number; taken.granules.len()].into());
    } else {
        set("into", (0..taken.granules.len()).map(|granule| taken.register(granule)).collect::<Vec<_>>().into());
    }
    let attribute = |relaxed: bool| if relaxed { "RO" } else { "SO" };
    if matches!(issued.kind, Kind::Write | Kind::Atomic) {
        set("waw", attribute(rules.relaxes_write(issued.order.relaxed_write)).into());
    }
    if issued.kind == Kind::Read {
        set("raw", attribute(rules.relaxes_read(issued.order.relaxed_read_after_write)).into());
    }
    let fence = match issued.fence {
        Fence::Local => Some("local"),
        Fence::Read => Some("read"),
        Fence::Strong => Some("strong"),
        Fence::None => None,
    };
    if let Some(fence) = fence {
        set("fence", fence.into());
    }
    if issued.node != 0 {
        set("node", format!("domain_{}", issued.node).into());
    }
    if let Some(chain) = issued.chain.filter(|_| matches!(issued.kind, Kind::Cqe | Kind::Eqe | Kind::Msi)) {
        set("chain", format!("cq_{chain:#x}").into());
    }
    let waited = all.iter().filter(|other| other.number < taken.number).filter(|other| {
        let told = |horizon: &super::Horizon| {
            let theirs = other.issued;
            theirs.stream == horizon.stream && theirs.seq <= horizon.seq && theirs.kind != Kind::Control
        };
        issued.source == Some(other.issued.id) || issued.after.iter().flatten().any(told)
    });
    let waited: Vec<String> = waited.map(Taken::label).collect();
    if !waited.is_empty() {
        set("after", waited.into());
    }
    set("label", taken.label().into());
    Value::Object(fields)
}

/// An observer for one overtake, and what it would see; `None` if no program can tell it alone.
fn observe(
    index: usize,
    later: &Taken<'_>,
    earlier: &Taken<'_>,
    ask: &mut serde_json::Map<String, Value>,
) -> Option<Value> {
    let (first, second) = (later.granules.last()?, earlier.granules.first()?);
    match (later.stores(), earlier.stores()) {
        (true, true) if first != second => {
            let (a, b) = (format!("a{index}"), format!("b{index}"));
            ask.insert(a.clone(), later.number.into());
            ask.insert(b.clone(), 0.into());
            let load = |at: &String, into: String| json!({"kind": "load", "at": at, "into": into});
            Some(json!([load(first, a), load(second, b)]))
        }
        (false, true) => {
            // A read that did not see the store before it.
            let shared = later.granules.iter().position(|granule| earlier.granules.contains(granule))?;
            ask.insert(later.register(shared), 0.into());
            None
        }
        (true, false) => {
            // A read that saw the store after it.
            let shared = earlier.granules.iter().position(|granule| later.granules.contains(granule))?;
            ask.insert(earlier.register(shared), later.number.into());
            None
        }
        _ => None,
    }
}

/// The program.
pub fn print(log: &Log, overtakes: &[Overtake]) -> Result<Value, NoProgram> {
    let whole = |name: Identity| Identity { part: 0, ..name };
    let names: BTreeSet<Identity> =
        overtakes.iter().flat_map(|overtake| [overtake.later, overtake.earlier]).map(whole).collect();
    for (count, most, what) in
        [(overtakes.len(), MOST_OVERTAKES, "overtakes"), (names.len(), MOST_TRANSACTIONS, "transactions")]
    {
        if count > most {
            return Err(NoProgram::TooMany { count, what });
        }
    }
    let found = log.find(&names)?;
    let rules = &log.settings.rules;
    let mut taken = taken(&found, overtakes);
    if taken.is_empty() {
        return Err(NoProgram::Nothing);
    }
    let count = name_granules(&mut taken);
    if count > MOST_PIECES {
        return Err(NoProgram::TooMany { count, what: "pieces of memory" });
    }
    let mut ask = serde_json::Map::new();
    let mut cpus = Vec::new();
    let mut seen = BTreeSet::new();
    let places: BTreeMap<Identity, &Taken<'_>> = taken.iter().map(|t| (t.issued.name(), t)).collect();
    for overtake in overtakes {
        let find = |name: Identity| places.get(&whole(name)).copied();
        let (Some(later), Some(earlier)) = (find(overtake.later), find(overtake.earlier)) else { continue };
        if later.number == earlier.number {
            cpus.extend(observe_within(later, overtake, cpus.len(), &mut ask));
        } else if seen.insert((later.number, earlier.number)) {
            cpus.extend(observe(cpus.len(), later, earlier, &mut ask));
        }
    }
    let mut set = serde_json::Map::new();
    if rules.raw_scope != RawScope::Qp {
        set.insert("raw_scope".to_owned(), rules.raw_scope.name().into());
    }
    if rules.atomic.name() != "man" {
        set.insert("atomic".to_owned(), rules.atomic.name().into());
    }
    if rules.ack == Ack::Receive {
        set.insert("ack".to_owned(), rules.ack.name().into());
    }
    if rules.fence2 == Fence2::Pr1780 {
        set.insert("fence2".to_owned(), rules.fence2.name().into());
    }
    let title = format!(
        "{} overtakes, {}, seed {}, mode {}",
        overtakes.len(),
        log.settings.policy,
        log.settings.seed,
        mode(rules)
    );
    let device: Vec<Value> = taken.iter().map(|t| transaction(t, &taken, rules)).collect();
    Ok(json!({ "name": "shrunk", "title": title, "set": set, "device": device, "cpus": cpus, "ask": ask }))
}

/// An observer of two parts of one transaction.
fn observe_within(
    taken: &Taken<'_>,
    overtake: &Overtake,
    index: usize,
    ask: &mut serde_json::Map<String, Value>,
) -> Option<Value> {
    let place = |part: u16| taken.issued.part(part).first().map(|range| format!("{:#x}+{}", range.at.0, range.len));
    let (first, second) = (place(overtake.later.part)?, place(overtake.earlier.part)?);
    if !taken.stores() || !taken.granules.contains(&first) || !taken.granules.contains(&second) {
        return None;
    }
    let (a, b) = (format!("a{index}"), format!("b{index}"));
    ask.insert(a.clone(), taken.number.into());
    ask.insert(b.clone(), 0.into());
    Some(json!([{"kind": "load", "at": first, "into": a}, {"kind": "load", "at": second, "into": b}]))
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::{Sink, drive};
    use super::super::log::Writer;
    use super::super::pool::tests::Ram;
    use super::super::{Iova, NewTxn, Order, Payload, Policy, Profile, Settings};
    use super::*;
    use crate::dma::KeyOrder;
    use crate::litmus::program::parse;

    fn record(settings: &Settings, play: impl FnOnce(&mut Order, &mut Ram)) -> Log {
        let sink = Sink::default();
        let mut order = Order::new(settings.clone());
        order.keep_log(Writer::new(Box::new(sink.clone()), settings, "test", u64::MAX).unwrap());
        play(&mut order, &mut Ram::new());
        drop(order);
        let bytes = sink.0.lock().unwrap();
        Log::read(&bytes).unwrap()
    }

    #[test]
    fn a_flag_that_overtook_its_data_is_the_message_passing_program_with_addresses_and_keys() {
        let settings = Settings::with(Policy::ReadEarly, Profile::Cx10Unordered, 9);
        let log = record(&settings, |order, ram| {
            let relaxed = KeyOrder { relaxed_write: true, ..KeyOrder::default() };
            let stream = Stream::Responder(0x12);
            for (at, tick) in [(0x1000, 0), (0x2000, 100)] {
                order.set_now(tick);
                let ranges = [Range { at: Iova(at), len: 8 }];
                let data = NewTxn::device(Kind::Write, stream, &ranges, Payload::Bytes(&[1; 8]));
                order.issue(&NewTxn { order: relaxed, keys: [0x40, 0], ..data }, ram).unwrap();
            }
            let last = order.pool().enabled()[1];
            let first = order.pool().enabled()[0];
            for choice in [last, first] {
                // By hand: this policy would not.
                order.apply_for_test(choice, ram);
            }
        });
        let overtakes = log.overtakes(10).unwrap();
        assert_eq!(overtakes.len(), 1);
        let program = print(&log, &overtakes).unwrap();
        let expected = json!({
            "name": "shrunk",
            "title": "1 overtakes, read-early, seed 9, mode NU",
            "set": {},
            "device": [
                {"kind": "W", "queue": "responder_0x12", "at": ["0x1000+8"], "values": [1], "waw": "RO",
                 "label": "1: W 1 of responder_0x12 key 0x40"},
                {"kind": "W", "queue": "responder_0x12", "at": ["0x2000+8"], "values": [2], "waw": "RO",
                 "label": "2: W 2 of responder_0x12 key 0x40"},
            ],
            "cpus": [[
                {"kind": "load", "at": "0x2000+8", "into": "a0"},
                {"kind": "load", "at": "0x1000+8", "into": "b0"},
            ]],
            "ask": {"a0": 2, "b0": 0},
        });
        assert_eq!(program, expected);
    }

    #[test]
    fn every_overtake_of_a_run_is_a_program_that_the_explorer_accepts_and_whose_outcome_is_allowed() {
        use crate::litmus::Mode;
        use crate::litmus::explore::{Options, explore};
        for (profile, seed) in [(Profile::Cx10Unordered, 1), (Profile::PcieUnordered, 2), (Profile::Cx10Worst, 3)] {
            let settings = Settings::with(Policy::Random, profile, seed);
            let log = record(&settings, |order, ram| drive(order, ram, 60, seed));
            let overtakes = log.overtakes(10_000).unwrap();
            assert!(overtakes.len() > 30);
            let mut asked = 0;
            for overtake in overtakes.iter().step_by(overtakes.len() / 30) {
                let json = print(&log, &[*overtake]).unwrap();
                let programs = parse(&json.to_string()).unwrap_or_else(|error| panic!("{error}: {json:#}"));
                if json["ask"].as_object().is_none_or(|ask| ask.is_empty()) {
                    continue;
                }
                asked += 1;
                let mode: Mode = serde_json::from_value(mode(&settings.rules).into()).unwrap();
                let found = explore(&programs[0], mode, &Options::default()).unwrap();
                let seen = found.outcomes.keys().any(|outcome| programs[0].answers(outcome));
                assert!(seen, "{overtake}: {json:#}");
            }
            assert!(asked > 5, "{asked}");
        }
    }

    #[test]
    fn nothing_in_common_is_no_program() {
        let settings = Settings::default();
        let log = record(&settings, |_, _| {});
        assert!(matches!(print(&log, &[]), Err(NoProgram::Nothing)));
    }

    #[test]
    fn what_no_litmus_run_could_hold_is_not_printed() {
        let settings = Settings::with(Policy::Random, Profile::Cx10Unordered, 1);
        let log = record(&settings, |order, ram| drive(order, ram, 2000, 1));
        let all = log.overtakes(1_000_000).unwrap();
        let refused = |overtakes: &[Overtake]| print(&log, overtakes).unwrap_err().to_string();
        assert_eq!(refused(&all), format!("{} overtakes are too many for a program", all.len()));
        let text = refused(&all[..MOST_OVERTAKES]);
        assert!(text.ends_with("transactions are too many for a program"), "{text}");
        assert!(print(&log, &all[..64]).is_ok());
    }
}
