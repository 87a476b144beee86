//! Keys that the device was asked for, read from its trace.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A key that was made, enabled or refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// Seconds of device time.
    pub time: f64,
    /// Which of the kernel's guests asked for it, from 1: each has a device with a time of its own. 0 if it is not known.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub guest: u32,
    /// Kind, as in `mkey.exempt`.
    pub kind: String,
    /// `CREATE_MKEY`, `UMR`, ….
    pub via: String,
    /// `created`, `enabled` or `refused`.
    pub verdict: String,
    /// Its number; a refused key has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `relaxed_ordering_write`.
    pub relaxed: bool,
    /// `relaxed_ordering_read`.
    pub relaxed_read: bool,
    /// `order_read_after_write` asks for no order.
    pub unordered: bool,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Where in the driver it most likely comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The whole event as `cx10 trace` prints it, for a key that was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decoded: String,
    /// The command that was refused, in the same form; empty if it was no command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out a reference
fn is_unknown(guest: &u32) -> bool {
    *guest == 0
}

impl Key {
    /// A line of a trace, if it is about a key.
    pub fn read(event: &Map<String, Value>) -> Option<Key> {
        if event.get("ev")?.as_str()? != "key" {
            return None;
        }
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |name: &str| event.get(name).and_then(Value::as_bool).unwrap_or_default();
        let verdict = text("verdict");
        let refused = verdict == "refused";
        // A refusal names the flags that were set.
        let asked = text("flags");
        let set = |flag: &str| asked.split(' ').any(|name| name == flag);
        Some(Key {
            time: event.get("t")?.as_u64()? as f64 / 1e9,
            guest: 0,
            kind: text("kind"),
            via: text("via"),
            index: event.get("index").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok()),
            relaxed: flag("relaxed") || set("relaxed_ordering_write"),
            relaxed_read: flag("relaxed_read") || set("relaxed_ordering_read"),
            unordered: flag("unordered"),
            reason: text("reason"),
            path: text("driver_path"),
            decoded: if refused { crate::trace::human::event(event, false) } else { String::new() },
            command: String::new(),
            verdict,
        })
    }

    /// The ordering that it asks for, in the words of the flags.
    pub fn ordering(&self) -> &'static str {
        match (self.relaxed, self.unordered) {
            (false, _) => "strong",
            (true, false) => "relaxed",
            (true, true) => "unordered",
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let index = self.index.map(|index| format!(" {index:#x}")).unwrap_or_default();
        let why = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        format!("{} key{index} {} by {}, {}{why}", self.kind, self.verdict, self.via, self.ordering())
    }
}

/// What each key is now. A key that is taken from a pool again without a change makes no event.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeMap<u32, Key>);

impl Known {
    /// Follows an event.
    pub fn note(&mut self, key: &Key) {
        if let Some(index) = key.index {
            self.0.insert(index, key.clone());
        }
    }

    /// The key of an `lkey` or `rkey`.
    pub fn of(&self, key: u32) -> Option<&Key> {
        self.0.get(&(key >> 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_created_key_has_its_ordering_and_is_found_by_its_lkey() {
        let line = r#"{"t":1500000000,"ev":"key","kind":"mtt","via":"UMR","verdict":"enabled","index":18,"relaxed":true,"relaxed_read":false,"unordered":true}"#;
        let key = Key::read(&event(line)).unwrap();
        assert_eq!((key.time, key.index, key.ordering()), (1.5, Some(18), "unordered"));
        assert!(!key.relaxed_read);
        assert_eq!(key.line(), "mtt key 0x12 enabled by UMR, unordered");
        let mut known = Known::default();
        known.note(&key);
        assert_eq!(known.of(0x12_34), Some(&key));
        assert_eq!(known.of(0x13_34), None);
    }

    #[test]
    fn a_refused_key_keeps_its_reason_and_the_flags_that_it_asked_for() {
        let line = r#"{"t":0,"ev":"key","kind":"free","via":"CREATE_MKEY","verdict":"refused","field":"relaxed_ordering_write","value":0,"reason":"must be 1","flags":"free umr_en relaxed_ordering_read","driver_path":"somewhere"}"#;
        let key = Key::read(&event(line)).unwrap();
        assert_eq!((key.ordering(), key.relaxed_read, key.index), ("strong", true, None));
        assert_eq!((key.reason.as_str(), key.path.as_str()), ("must be 1", "somewhere"));
        assert!(key.decoded.contains("free by CREATE_MKEY refused"), "{}", key.decoded);
    }

    #[test]
    fn other_events_are_none() {
        assert_eq!(Key::read(&event(r#"{"t":0,"ev":"irq","vector":1}"#)), None);
        assert_eq!(Key::read(&event(r#"{"t":0}"#)), None);
    }
}
