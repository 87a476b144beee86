//! Faults of the wire: packets that are lost, doubled or late on purpose, so that what retries can be tested.
//!
//! A rule says which packets it looks at, which of those it hits, and what becomes of them. It is written
//! `ACTION:KEY=VALUE,...`, on the command line and in the list `wire.fault`; a configuration file can also have a table
//! `[[wire.fault]]` for each rule, with the key `action`. The key of a fault is a queue pair and the place of a packet in
//! its traffic, as in Lumina (SIGCOMM 2023).

use super::keys::{join_or, nearest, parse_int};
use serde::{Deserialize, Serialize};
use std::fmt;
use toml::Value;

/// Most rules at a time: each is asked for every packet.
pub const MAX_RULES: usize = 64;

/// Longest delay in microseconds. A requester gives up after 7 retries of at most 4.3 s in practice.
pub const MAX_DELAY_US: u64 = 60_000_000;

/// Largest number of a queue pair, and largest sequence number.
const MAX_24: u64 = 0xff_ffff;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives later, behind what is sent meanwhile.
    Delay {
        /// How much later.
        microseconds: u64,
    },
}

/// Kinds of packets, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketKind {
    /// All.
    #[default]
    Any,
    /// From a requester.
    Request,
    /// From a responder.
    Response,
    /// Parts of SENDs.
    Send,
    /// Parts of RDMA WRITEs.
    Write,
    /// RDMA READ requests.
    Read,
    /// Requests of atomic operations.
    Atomic,
    /// Responses to RDMA READs.
    ReadResponse,
    /// Responses to atomic operations.
    AtomicResponse,
    /// Acknowledgements, positive and negative.
    Ack,
}

impl PacketKind {
    /// All kinds.
    pub const ALL: [PacketKind; 10] = [
        PacketKind::Any,
        PacketKind::Request,
        PacketKind::Response,
        PacketKind::Send,
        PacketKind::Write,
        PacketKind::Read,
        PacketKind::Atomic,
        PacketKind::ReadResponse,
        PacketKind::AtomicResponse,
        PacketKind::Ack,
    ];

    /// How a rule names it.
    pub fn name(self) -> &'static str {
        match self {
            PacketKind::Any => "any",
            PacketKind::Request => "request",
            PacketKind::Response => "response",
            PacketKind::Send => "send",
            PacketKind::Write => "write",
            PacketKind::Read => "read",
            PacketKind::Atomic => "atomic",
            PacketKind::ReadResponse => "read-response",
            PacketKind::AtomicResponse => "atomic-response",
            PacketKind::Ack => "ack",
        }
    }
}

/// Transport services that a rule can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
}

impl Service {
    /// All services.
    pub const ALL: [Service; 4] = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc];

    /// How a rule names it.
    pub fn name(self) -> &'static str {
        match self {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
            Service::Xrc => "xrc",
        }
    }
}

/// A rule. It looks at the packets that agree with all of `qpn`, `source`, `dest`, `service`, `kind` and `psn`, and counts
/// them. It hits the one with the number `nth` and each `every`th after it, `times` of them in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FaultRule {
    /// What becomes of a packet that is hit.
    pub action: Action,
    /// Queue pair at either end.
    pub qpn: Option<u32>,
    /// Queue pair that sends.
    pub source: Option<u32>,
    /// Queue pair that the packet is for.
    pub dest: Option<u32>,
    /// Transport service.
    pub service: Option<Service>,
    /// What the packet does.
    pub kind: PacketKind,
    /// Sequence number.
    pub psn: Option<u32>,
    /// The first packet that is hit, counted from 1.
    pub nth: u64,
    /// Distance of packets that are hit.
    pub every: u64,
    /// How many are hit; `None` is no end.
    pub times: Option<u64>,
}

/// Keys of a rule in the order in which they are written, with what they accept.
const KEYS: [(&str, &str); 10] = [
    ("us", "microseconds from 1 to 60000000"),
    ("qpn", "the number of a queue pair at either end, or any"),
    ("source", "the number of the sending queue pair, or any"),
    ("dest", "the number of the receiving queue pair, or any"),
    ("service", "rc, uc, ud, xrc or any"),
    ("kind", "any, request, response, send, write, read, atomic, read-response, atomic-response or ack"),
    ("psn", "a sequence number from 0 to 0xffffff, or any"),
    ("nth", "a number from 1 on"),
    ("every", "a number from 1 on"),
    ("times", "a number from 1 on"),
];

const ACTIONS: [&str; 3] = ["drop", "duplicate", "delay"];

fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = join_or(known.clone().map(str::to_string));
    match nearest(word, known) {
        Some(near) => format!("unknown {what} `{word}`, expected {all}; did you mean `{near}`?"),
        None => format!("unknown {what} `{word}`, expected {all}"),
    }
}

impl FaultRule {
    /// Reads `ACTION:KEY=VALUE,...`.
    pub fn parse(text: &str) -> Result<FaultRule, String> {
        let (action, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut pairs = Vec::new();
        for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}`: expected KEY=VALUE"))?;
            pairs.push((key.trim(), value.trim().to_string()));
        }
        FaultRule::build(action.trim(), pairs.iter().map(|(key, value)| (*key, value.as_str())))
    }

    /// Reads a text or a table of a configuration file.
    pub fn from_value(value: &Value) -> Result<FaultRule, String> {
        let table = match value {
            Value::String(text) => return FaultRule::parse(text),
            Value::Table(table) => table,
            other => return Err(format!("{other} is not a rule; expected a text `ACTION:KEY=VALUE,...` or a table")),
        };
        let mut action = None;
        let mut pairs = Vec::new();
        for (key, value) in table {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                other => return Err(format!("`{key}`: {other} is not a number or a word")),
            };
            if key == "action" {
                action = Some(text);
            } else {
                pairs.push((key.as_str(), text));
            }
        }
        let action = action.ok_or_else(|| format!("`action` is missing, expected {}", words(&ACTIONS)))?;
        FaultRule::build(&action, pairs.iter().map(|(key, value)| (*key, value.as_str())))
    }

    fn build<'a>(action: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<FaultRule, String> {
        if !ACTIONS.contains(&action) {
            return Err(unknown("action", action, ACTIONS.into_iter()));
        }
        let mut given: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        for (key, value) in pairs {
            let at = KEYS.iter().position(|(known, _)| *known == key);
            let at = at.ok_or_else(|| unknown("key", key, KEYS.iter().map(|(known, _)| *known)))?;
            if given[at].replace(value).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
        }
        let [us, qpn, source, dest, service, kind, psn, nth, every, times] = given;
        let bad = |key: &str, text: &str| {
            let accepted = KEYS.iter().find(|(known, _)| *known == key).map_or("", |(_, accepted)| accepted);
            format!("`{key}={text}` is not valid, expected {accepted}")
        };
        let number = |key: &str, text: Option<&str>, min: u64, max: u64| match text {
            None => Ok(None),
            Some(text) => match parse_int(text).and_then(|n| u64::try_from(n).ok()) {
                Some(n) if (min..=max).contains(&n) => Ok(Some(n)),
                _ => Err(bad(key, text)),
            },
        };
        let id = |key: &str, text: Option<&str>| {
            let text = text.filter(|text| *text != "any");
            number(key, text, 0, MAX_24).map(|n| n.map(|n| n as u32))
        };
        let count = |key: &str, text: Option<&str>| number(key, text, 1, i64::MAX as u64);

        let action = match (action, number("us", us, 1, MAX_DELAY_US)?) {
            ("delay", Some(microseconds)) => Action::Delay { microseconds },
            ("delay", None) => return Err("`delay` needs `us=MICROSECONDS`".into()),
            (other, Some(_)) => return Err(format!("`us` is of no use with `{other}`, only with `delay`")),
            ("drop", None) => Action::Drop,
            (_, None) => Action::Duplicate,
        };
        let service = match service {
            None | Some("any") => None,
            Some(word) => {
                let found = Service::ALL.into_iter().find(|service| service.name() == word);
                let known = Service::ALL.iter().map(|service| service.name()).chain(["any"]);
                Some(found.ok_or_else(|| unknown("service", word, known))?)
            }
        };
        let kind = match kind {
            None => PacketKind::Any,
            Some(word) => {
                let found = PacketKind::ALL.into_iter().find(|kind| kind.name() == word);
                found.ok_or_else(|| unknown("kind", word, PacketKind::ALL.iter().map(|kind| kind.name())))?
            }
        };
        let psn = id("psn", psn)?;
        let (nth, every, times) = (count("nth", nth)?, count("every", every)?, count("times", times)?);
        // Who names a packet means that one; a retransmission of it comes through.
        let once = every.is_none() && (nth.is_some() || psn.is_some());
        Ok(FaultRule {
            action,
            qpn: id("qpn", qpn)?,
            source: id("source", source)?,
            dest: id("dest", dest)?,
            service,
            kind,
            psn,
            nth: nth.or(every).unwrap_or(1),
            every: every.unwrap_or(1),
            times: times.or(once.then_some(1)),
        })
    }

    /// The list of rules in a value of `wire.fault`.
    pub fn list(value: &Value) -> Result<Vec<FaultRule>, String> {
        let Value::Array(list) = value else {
            return Err(format!("{value} is not valid, expected a list of rules `ACTION:KEY=VALUE,...`"));
        };
        if list.len() > MAX_RULES {
            return Err(format!("{} rules are too many, expected at most {MAX_RULES}", list.len()));
        }
        let rule = |(at, value)| FaultRule::from_value(value).map_err(|e| format!("rule {}: {e}", at + 1));
        list.iter().enumerate().map(rule).collect()
    }
}

fn words(words: &[&str]) -> String {
    join_or(words.iter().map(|word| word.to_string()))
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Drop => ACTIONS[0],
            Action::Duplicate => ACTIONS[1],
            Action::Delay { .. } => ACTIONS[2],
        };
        f.write_str(action)?;
        let mut separator = ':';
        let mut pair = |key: &str, value: &dyn fmt::Display| {
            write!(f, "{separator}{key}={value}")?;
            separator = ',';
            Ok(())
        };
        if let Action::Delay { microseconds } = self.action {
            pair("us", &microseconds)?;
        }
        for (key, id) in [("qpn", self.qpn), ("source", self.source), ("dest", self.dest)] {
            if let Some(id) = id {
                pair(key, &format_args!("{id:#x}"))?;
            }
        }
        if let Some(service) = self.service {
            pair("service", &service.name())?;
        }
        if self.kind != PacketKind::Any {
            pair("kind", &self.kind.name())?;
        }
        if let Some(psn) = self.psn {
            pair("psn", &format_args!("{psn:#x}"))?;
        }
        pair("nth", &self.nth)?;
        // Without a distance `times` would be 1.
        if self.every != 1 || self.times.is_none() {
            pair("every", &self.every)?;
        }
        if let Some(times) = self.times {
            pair("times", &times)?;
        }
        Ok(())
    }
}

impl TryFrom<String> for FaultRule {
    type Error = String;

    fn try_from(text: String) -> Result<FaultRule, String> {
        FaultRule::parse(&text)
    }
}

impl From<FaultRule> for String {
    fn from(rule: FaultRule) -> String {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule() -> impl Strategy<Value = FaultRule> {
        let id = || prop::option::of(0..=0xff_ffffu32);
        let count = || prop_oneof![1..5u64, 1..i64::MAX as u64];
        let action = prop_oneof![
            Just(Action::Drop),
            Just(Action::Duplicate),
            (1..=MAX_DELAY_US).prop_map(|microseconds| Action::Delay { microseconds })
        ];
        let service = prop::option::of(prop::sample::select(Service::ALL.to_vec()));
        let kind = prop::sample::select(PacketKind::ALL.to_vec());
        let counts = (count(), count(), prop::option::of(count()));
        (action, id(), id(), id(), id(), service, kind, counts).prop_map(
            |(action, qpn, source, dest, psn, service, kind, (nth, every, times))| FaultRule {
                action,
                qpn,
                source,
                dest,
                service,
                kind,
                psn,
                nth,
                every,
                times,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_rule_reads_back_as_it_is_written(rule in rule()) {
            prop_assert_eq!(FaultRule::parse(&rule.to_string()), Ok(rule), "{}", rule);
        }

        #[test]
        fn any_text_is_a_rule_or_a_mistake(text in "(drop|delay|duplicate)?:?[a-z0-9=,:x ]{0,40}") {
            if let Ok(rule) = FaultRule::parse(&text) {
                prop_assert!(rule.nth > 0 && rule.every > 0 && rule.times != Some(0));
            }
        }
    }

    #[test]
    fn what_is_left_out_is_what_one_means() {
        let of = |text| {
            let rule = FaultRule::parse(text).unwrap();
            (rule.nth, rule.every, rule.times)
        };
        assert_eq!(of("drop"), (1, 1, None), "everything");
        assert_eq!(of("drop:nth=3"), (3, 1, Some(1)), "the third");
        assert_eq!(of("drop:nth=3,times=2"), (3, 1, Some(2)), "the third and fourth");
        assert_eq!(of("drop:psn=5"), (1, 1, Some(1)), "once, so that a retry comes through");
        assert_eq!(of("drop:every=10"), (10, 10, None), "the tenth, the twentieth");
        assert_eq!(of("drop:nth=5,every=10"), (5, 10, None));
        assert_eq!(of("drop:qpn=any,kind=any,service=any,source=any,dest=any,psn=any"), (1, 1, None));
    }

    #[test]
    fn a_table_says_the_same_as_a_text() {
        let table: toml::Table =
            "action = 'delay'\nus = 500\nqpn = 0x41\nkind = 'read-response'\nevery = 10".parse().unwrap();
        let text = "delay: us=500, qpn=0x41 ,kind=read-response,every=10";
        assert_eq!(FaultRule::from_value(&Value::Table(table)), FaultRule::parse(text));
        assert_eq!(
            FaultRule::parse(text).unwrap().to_string(),
            "delay:us=500,qpn=0x41,kind=read-response,nth=10,every=10"
        );
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        for (text, wanted) in [
            ("dorp:nth=3", "unknown action `dorp`, expected drop, duplicate or delay; did you mean `drop`?"),
            ("drop:qnp=3", "did you mean `qpn`?"),
            ("drop:kind=reqest", "did you mean `request`?"),
            ("drop:service=dc", "unknown service `dc`, expected rc, uc, ud, xrc or any"),
            ("drop:nth", "`nth`: expected KEY=VALUE"),
            ("drop:nth=0", "`nth=0` is not valid, expected a number from 1 on"),
            ("drop:nth=-1", "`nth=-1` is not valid"),
            ("drop:nth=1,nth=2", "`nth` is given twice"),
            ("drop:qpn=0x1000000", "`qpn=0x1000000` is not valid"),
            ("delay", "`delay` needs `us=MICROSECONDS`"),
            ("delay:us=0", "`us=0` is not valid, expected microseconds from 1 to 60000000"),
            ("duplicate:us=5", "`us` is of no use with `duplicate`"),
            ("", "unknown action ``"),
        ] {
            let error = FaultRule::parse(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let list = |text: &str| FaultRule::list(&format!("v = {text}").parse::<toml::Table>().unwrap()["v"]);
        assert_eq!(list("[{nth = 3}]").unwrap_err(), "rule 1: `action` is missing, expected drop, duplicate or delay");
        assert_eq!(
            list("['drop', {action = 'drop', nth = 1.5}]").unwrap_err(),
            "rule 2: `nth`: 1.5 is not a number or a word"
        );
        assert!(list("[7]").unwrap_err().starts_with("rule 1: 7 is not a rule"));
        assert!(list("7").unwrap_err().starts_with("7 is not valid"));
        let many = Value::Array(vec![Value::String("drop".into()); MAX_RULES + 1]);
        assert_eq!(FaultRule::list(&many).unwrap_err(), "65 rules are too many, expected at most 64");
    }
}
