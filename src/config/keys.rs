//! Every configuration key that is not a capability: its type, its range, and what it means.
//!
//! The table is what messages, `cx10 profile keys` and the manual page are made from; a test holds it against the structs of
//! [`super`], so that neither can have a key that the other lacks.

use super::fault::{FaultRule, MAX_RULES};
use super::{Eui64, FirmwareVersion, KeyKind, MacAddr, order};
use toml::Value;

/// What a key accepts.
#[derive(Clone, Copy)]
pub enum Rule {
    /// `true` or `false`.
    Bool,
    /// A number in a range.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// Written in hex when shown (ids).
        hex: bool,
    },
    /// One of these numbers.
    IntOf(&'static [i64]),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of key kinds.
    Kinds,
    /// A list of wire faults.
    Faults,
    /// Printable ASCII text of at most so many characters.
    Text(usize),
    /// The text of a setting of the ordering engine, by its name.
    Order(&'static str),
    /// Text that a type of [`super`] reads; the string describes it.
    Typed(&'static str, fn(&str) -> Result<(), String>),
}

/// A configuration key.
pub struct Key {
    /// Dotted name.
    pub path: &'static str,
    /// What it accepts.
    pub rule: Rule,
    /// What it means.
    pub help: &'static str,
}

const fn key(path: &'static str, rule: Rule, help: &'static str) -> Key {
    Key { path, rule, help }
}

const fn int(min: i64, max: i64) -> Rule {
    Rule::Int { min, max, hex: false }
}

const fn id(max: i64) -> Rule {
    Rule::Int { min: 0, max, hex: true }
}

fn reads_as<T: TryFrom<String, Error = String>>(text: &str) -> Result<(), String> {
    T::try_from(text.to_string()).map(|_| ())
}

/// All keys, by section.
pub static KEYS: &[Key] = &[
    key(
        "doorbells",
        Rule::OneOf(&["trap", "poll"]),
        "how doorbells come: as messages of the VMM, or in pages that the VMM maps and the device polls",
    ),
    key(
        "mkey.strict",
        Rule::OneOf(&["off", "create", "enable"]),
        "when keys without relaxed write ordering are refused: never, by CREATE_MKEY, or when a free key is enabled",
    ),
    key("mkey.exempt", Rule::Kinds, "kinds of keys that are not judged"),
    key("mkey.require_read", Rule::Bool, "require relaxed_ordering_read too"),
    key(
        "mkey.raw_encoding_2",
        Rule::OneOf(&["reject", "accept", "report"]),
        "order_read_after_write = 2, the withdrawn encoding of relaxed: refuse, take as 1, or take as 1 and report",
    ),
    key("pci.vendor_id", id(0xffff), "PCI vendor id"),
    key("pci.device_id", id(0xffff), "PCI device id"),
    key("pci.revision", id(0xff), "PCI revision id"),
    key("pci.subsystem_vendor_id", id(0xffff), "PCI subsystem vendor id"),
    key("pci.subsystem_id", id(0xffff), "PCI subsystem id"),
    key(
        "pci.link_speed",
        Rule::OneOf(&["2.5GT/s", "5GT/s", "8GT/s", "16GT/s", "32GT/s", "64GT/s"]),
        "PCIe link speed in Link Capabilities and Link Status",
    ),
    key("pci.link_width", Rule::IntOf(&[1, 2, 4, 8, 12, 16, 32]), "PCIe link width in lanes"),
    key("pci.msix_vectors", int(2, 2048), "MSI-X table size; the driver uses one vector more than it has CPUs"),
    key(
        "pci.serial_number",
        Rule::Typed("eight hex bytes", reads_as::<Eui64>),
        "device serial number capability (EUI-64)",
    ),
    key(
        "pci.relaxed_ordering",
        Rule::Bool,
        "relaxed-ordering enable bit of Device Control after reset; the driver reads it, see relaxed_ordering_read_pci_enabled",
    ),
    key("pci.vpd_product", Rule::Text(120), "VPD product name"),
    key("pci.vpd_part_number", Rule::Text(40), "VPD part number (PN)"),
    key("pci.vpd_serial", Rule::Text(40), "VPD serial number (SN)"),
    key("pci.vpd_revision", Rule::Text(8), "VPD engineering change level (EC)"),
    key("firmware.version", Rule::Typed("major.minor.subminor", reads_as::<FirmwareVersion>), "firmware version"),
    key("firmware.psid", Rule::Text(16), "board id (PSID) in QUERY_ADAPTER"),
    key(
        "firmware.tracer",
        Rule::Bool,
        "firmware tracer: registers MTRC_*; the kernel's key for it is never relaxed, so a strict device refuses it",
    ),
    key(
        "net.mac",
        Rule::Typed("six hex bytes", reads_as::<MacAddr>),
        "permanent MAC address; node and system image GUID are derived from it",
    ),
    key("net.max_mtu", int(1522, 16384), "largest port MTU in frame bytes"),
    key(
        "net.link_speed",
        Rule::OneOf(&["10G", "25G", "40G", "50G", "100G", "200G", "400G", "800G"]),
        "speed of the port; above 100G it needs caps.general.pcam_reg",
    ),
    key("net.node_description", Rule::Text(63), "node description register"),
    key(
        "wire.fault",
        Rule::Faults,
        "packets that are lost, doubled or late: a list of texts ACTION:KEY=VALUE,..., or a table [[wire.fault]] for each",
    ),
    key(
        "order.policy",
        Rule::Order("policy"),
        "in which order memory accesses are performed, among those that the contract allows",
    ),
    key("order.seed", int(0, i64::MAX), "what all decisions about order are derived from"),
    key(
        "order.seeds",
        int(1, 1000),
        "how many seeds take turns, from that one on: each time a driver initializes the device the next",
    ),
    key("order.profile", Rule::Order("profile"), "the contract: a set of the knobs below"),
    key(
        "order.check",
        Rule::Bool,
        "check every access against a second implementation of the contract; a forbidden one ends with code 3",
    ),
    key("order.max_delay", int(0, 20_000), "longest delay of an access in microseconds, from when it may be performed"),
    key("order.hold", int(0, 20_000), "microseconds that a policy holds what it holds on purpose"),
    key("order.rate", int(0, 100), "percent of the accesses that a policy may delay"),
    key("order.max_bytes", int(0, 1 << 30), "bytes that may be pending; beyond that what is due first is performed"),
    key("order.max_transactions", int(2, 256), "accesses that may be pending"),
    key("order.fabric", Rule::Order("fabric"), "what keeps order between function and memory"),
    key("order.ro_only", Rule::Order("ro_only"), "no order between writes, whatever their keys ask for"),
    key(
        "order.strict_on_unordered",
        Rule::Order("strict_on_unordered"),
        "what becomes of a key that asks for order on such a device",
    ),
    key("order.keys", Rule::Order("keys"), "how far keys are heeded"),
    key("order.raw_scope", Rule::Order("raw_scope"), "which earlier writes a strong read waits for"),
    key(
        "order.ack",
        Rule::Order("ack"),
        "what an acknowledgement tells: that data is visible, or that it was received",
    ),
    key("order.atomic", Rule::Order("atomic"), "how atomic operations are done"),
    key("order.fence2", Rule::Order("fence2"), "what fence 2 covers"),
    key("order.granule", Rule::Order("granule"), "bytes of the smallest piece that becomes visible at once"),
    key("order.split", Rule::Order("split"), "where payload may be cut"),
    key(
        "order.split_path",
        Rule::Order("split_path"),
        "where a second memory domain begins, ordered with nothing in the first",
    ),
    key("pages.boot", int(0, 65536), "firmware pages asked for at boot"),
    key("pages.init", int(0, 262_144), "firmware pages asked for before INIT_HCA"),
];

/// Looks a key up.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.path == path)
}

/// True if keys of this section exist (`path` is a proper prefix of a key).
pub fn is_section(path: &str) -> bool {
    KEYS.iter().any(|k| k.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

fn kind_names() -> impl Iterator<Item = &'static str> + Clone {
    KeyKind::ALL.iter().map(|k| k.name())
}

/// Reads a number as Rust and TOML write it: decimal, `0x`, `0o`, `0b`, underscores.
pub fn parse_int(text: &str) -> Option<i64> {
    let text = text.trim().replace('_', "");
    let (digits, radix) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        Some("0b") => (&text[2..], 2),
        _ => (text.as_str(), 10),
    };
    if digits.starts_with('+') || (radix != 10 && digits.starts_with('-')) {
        return None;
    }
    i64::from_str_radix(digits, radix).ok()
}

/// Reads a truth value in the spellings of the command line.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "on" | "yes" | "1" => Some(true),
        "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    }
}

impl Rule {
    /// What the key accepts, in words.
    pub fn describe(&self) -> String {
        match self {
            Rule::Bool => "true or false".into(),
            Rule::Int { min, max, hex: true } => format!("{min:#x}..{max:#x}"),
            Rule::Int { min, max, hex: false } => format!("{min}..{max}"),
            Rule::IntOf(values) => join_or(values.iter().map(i64::to_string)),
            Rule::OneOf(words) => join_or(words.iter().map(|w| w.to_string())),
            Rule::Kinds => format!("list of {}", join_or(kind_names().map(str::to_string))),
            Rule::Faults => format!("list of at most {MAX_RULES} rules, see `cx10 help serve`"),
            Rule::Text(max) => format!("text, at most {max} characters"),
            Rule::Order(knob) => order::describe(knob),
            Rule::Typed(what, _) => (*what).into(),
        }
    }

    /// Turns the text of `--set KEY=TEXT` into a value of the key's type; [`Rule::check`] is still to be asked.
    pub fn from_text(&self, text: &str) -> Value {
        // A quoted text is TOML; anything else is taken as it stands.
        let quoted =
            text.starts_with(['"', '\'', '[']).then(|| format!("v = {text}").parse::<toml::Table>().ok()).flatten();
        if let Some(value) = quoted.and_then(|mut t| t.remove("v")) {
            return value;
        }
        let plain = || Value::String(text.to_string());
        match self {
            Rule::Bool => parse_bool(text).map_or_else(plain, Value::Boolean),
            Rule::Int { .. } | Rule::IntOf(_) => parse_int(text).map_or_else(plain, Value::Integer),
            Rule::Kinds => Value::Array(
                text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| Value::String(s.into())).collect(),
            ),
            // Rules have commas and no spaces.
            Rule::Faults => Value::Array(text.split_whitespace().map(|s| Value::String(s.into())).collect()),
            Rule::OneOf(_) | Rule::Text(_) | Rule::Order(_) | Rule::Typed(..) => plain(),
        }
    }

    /// The form in which a value that passed [`Rule::check`] is kept.
    pub fn finish(&self, value: Value) -> Value {
        match self {
            Rule::Faults => {
                let rules = FaultRule::list(&value).unwrap_or_default();
                Value::Array(rules.iter().map(|rule| Value::String(rule.to_string())).collect())
            }
            _ => value,
        }
    }

    /// Checks type and range. The error says what is wrong and what would be right.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let wrong = || Err(format!("{value} is not valid, expected {}", self.describe()));
        match (self, value) {
            (Rule::Bool, Value::Boolean(_)) => Ok(()),
            (Rule::Int { min, max, .. }, Value::Integer(v)) if (min..=max).contains(&v) => Ok(()),
            (Rule::IntOf(values), Value::Integer(v)) if values.contains(v) => Ok(()),
            (Rule::OneOf(words), Value::String(s)) => match_word(s, words.iter().copied()),
            (Rule::Kinds, Value::Array(list)) => list.iter().try_for_each(|v| match v {
                Value::String(s) => match_word(s, kind_names()),
                _ => wrong(),
            }),
            (Rule::Faults, value) => FaultRule::list(value).map(|_| ()),
            (Rule::Text(max), Value::String(s)) if s.len() <= *max && s.bytes().all(|b| (b' '..=b'~').contains(&b)) => {
                Ok(())
            }
            (Rule::Order(knob), Value::String(s)) => order::check(knob, s),
            (Rule::Typed(_, read), Value::String(s)) => read(s).map_err(|e| format!("{value} is not valid: {e}")),
            _ => wrong(),
        }
    }
}

fn match_word(word: &str, known: impl Iterator<Item = &'static str> + Clone) -> Result<(), String> {
    if known.clone().any(|k| k == word) {
        return Ok(());
    }
    let all = join_or(known.clone().map(str::to_string));
    Err(match nearest(word, known) {
        Some(near) => format!("`{word}` is not one of {all}; did you mean `{near}`?"),
        None => format!("`{word}` is not one of {all}"),
    })
}

pub(super) fn join_or(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// The known name that is most like `name`, if one is like it at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for k in known {
        let slip = if name.len() > 2 && strsim::osa_distance(name, k) == 1 { 0.8 } else { 0.0 };
        let score = strsim::jaro_winkler(name, k).max(strsim::normalized_damerau_levenshtein(name, k)).max(slip);
        if score > 0.7 && best.is_none_or(|(s, _)| score > s) {
            best = Some((score, k));
        }
    }
    best.map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_accepts_its_range_and_nothing_else() {
        let vectors = &find("pci.msix_vectors").unwrap().rule;
        assert!(vectors.check(&Value::Integer(2)).is_ok());
        assert!(vectors.check(&Value::Integer(2048)).is_ok());
        assert_eq!(vectors.check(&Value::Integer(1)).unwrap_err(), "1 is not valid, expected 2..2048");
        assert!(vectors.check(&Value::Integer(2049)).is_err());
        assert!(vectors.check(&Value::String("64".into())).is_err());
        let psid = &find("firmware.psid").unwrap().rule;
        assert!(psid.check(&Value::String("0123456789abcdef".into())).is_ok());
        assert!(psid.check(&Value::String("0123456789abcdefg".into())).is_err());
        assert!(psid.check(&Value::String("tab\there".into())).is_err());
    }

    #[test]
    fn a_misspelt_word_is_answered_with_the_nearest() {
        let strict = &find("mkey.strict").unwrap().rule;
        let error = strict.check(&Value::String("creat".into())).unwrap_err();
        assert_eq!(error, "`creat` is not one of off, create or enable; did you mean `create`?");
        let kinds = find("mkey.exempt").unwrap().rule.from_text("memic,windw");
        let error = find("mkey.exempt").unwrap().rule.check(&kinds).unwrap_err();
        assert!(error.ends_with("did you mean `window`?"), "{error}");
    }

    #[test]
    fn text_becomes_the_type_of_the_key() {
        let rule = |p: &str| &find(p).unwrap().rule;
        assert_eq!(rule("pci.device_id").from_text("0x2101"), Value::Integer(0x2101));
        assert_eq!(rule("mkey.require_read").from_text("on"), Value::Boolean(true));
        assert_eq!(rule("mkey.strict").from_text("off"), Value::String("off".into()));
        assert_eq!(rule("pci.vpd_serial").from_text("1234"), Value::String("1234".into()));
        assert_eq!(rule("mkey.exempt").from_text(""), Value::Array(vec![]));
        assert_eq!(rule("mkey.exempt").from_text("[\"memic\"]"), rule("mkey.exempt").from_text("memic"));
    }

    #[test]
    fn numbers_are_read_as_toml_writes_them() {
        assert_eq!(parse_int("1_000"), Some(1000));
        assert_eq!(parse_int("0x3a9"), Some(0x3a9));
        assert_eq!(parse_int("-1"), Some(-1));
        assert_eq!(parse_int("0x-1"), None);
        assert_eq!(parse_int("+-1"), None);
        assert_eq!(parse_int("1e3"), None);
        assert_eq!(parse_int(""), None);
        assert_eq!(parse_int("é"), None);
    }
}
