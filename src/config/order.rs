//! Section `[order]`: in which order memory accesses are performed; the settings of [`crate::dma::order`].
//!
//! Policy, seed and bounds have values of their own. The knobs of the contract follow the named profile, unless they say
//! otherwise. An illegal mode is no setting: it is asked for by an option, and a configuration file cannot have it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys;
use crate::dma::order::settings::{KNOBS, values};
use crate::dma::order::{Illegal, Order, Policy, SettingError, Settings};

/// The value of a knob that follows the profile.
pub const FOLLOWS: &str = "profile";

/// Section `[order]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderConfig {
    /// How the order is chosen.
    pub policy: String,
    /// What all decisions are derived from.
    pub seed: u64,
    /// How many seeds, from that one on, take turns.
    pub seeds: u32,
    /// A named set of knobs.
    pub profile: String,
    /// Whether the checker looks on.
    pub check: bool,
    /// Longest delay in microseconds.
    pub max_delay: u32,
    /// Microseconds that a policy holds what it holds.
    pub hold: u32,
    /// Percent of the transactions that are delayed.
    pub rate: u32,
    /// Bytes that may be pending.
    pub max_bytes: u32,
    /// Transactions that may be pending.
    pub max_transactions: u32,
    /// What keeps order between the function and memory.
    pub fabric: String,
    /// Whether strict keys count for nothing.
    pub ro_only: String,
    /// What becomes of strict keys then.
    pub strict_on_unordered: String,
    /// How far keys are heeded.
    pub keys: String,
    /// What a strong read waits for.
    pub raw_scope: String,
    /// What an acknowledgement tells.
    pub ack: String,
    /// How atomic operations are done.
    pub atomic: String,
    /// What fence 2 covers.
    pub fence2: String,
    /// The smallest piece that becomes visible at once.
    pub granule: String,
    /// Where payload is cut.
    pub split: String,
    /// Where a second memory domain begins.
    pub split_path: String,
    /// A promise that is broken on purpose; not from any configuration.
    #[serde(skip)]
    pub illegal: Option<Illegal>,
}

impl OrderConfig {
    /// What the engine is told.
    pub fn settings(&self) -> Result<Settings, SettingError> {
        let mut settings = Settings { illegal: self.illegal, ..Settings::default() };
        // What the fields hold, by name: no field fails to be written.
        let fields = serde_json::to_value(self).unwrap_or_default();
        // The profile first: it sets all knobs of the contract.
        for knob in KNOBS {
            match &fields[knob] {
                Value::String(text) if text == FOLLOWS => {}
                Value::String(text) => settings.set(knob, text)?,
                number => settings.set(knob, &number.to_string())?,
            }
        }
        Ok(settings)
    }

    /// The engine, if one is needed: without reordering or checking every access is performed where it is issued.
    pub fn engine(&self) -> Option<Order> {
        let settings = self.settings().ok()?;
        (reorders(&settings) || settings.check).then(|| Order::new(settings))
    }
}

/// Whether an engine with these settings does anything but perform accesses where they are issued.
fn reorders(settings: &Settings) -> bool {
    settings.policy != Policy::InOrder || settings.illegal.is_some()
}

/// Whether a knob of the contract may follow the profile.
fn follows(knob: &str) -> bool {
    !["policy", "profile"].contains(&knob)
}

/// What a key of this section that is a text takes, in words.
pub fn describe(knob: &str) -> String {
    let own = values(knob).into_iter().map(str::to_owned);
    keys::join_or(follows(knob).then(|| FOLLOWS.to_owned()).into_iter().chain(own))
}

/// Whether it takes a text.
pub fn check(knob: &str, text: &str) -> Result<(), String> {
    if follows(knob) && text == FOLLOWS {
        return Ok(());
    }
    // Who asks names the key.
    Settings::default().set(knob, text).map_err(|error| match error {
        SettingError::Name { source, .. } => source.to_string(),
        SettingError::Value { expected, .. } => format!("{text:?} is not valid, expected {expected}"),
        error @ SettingError::Knob(_) => error.to_string(),
    })
}

/// What waits in a protocol, and how many microseconds by default.
const TIMEOUTS: [(&str, u64); 3] = [
    ("the acknowledgement timeout that perftest and ibv_rc_pingpong give reliable connections (timeout 14)", 67_108),
    ("the transmit watchdog of the network device", 5_000_000),
    ("the timeout of commands", 60_000_000),
];

/// Things that are allowed but surprising, one sentence each.
pub fn warnings(config: &OrderConfig) -> Vec<String> {
    let Ok(settings) = config.settings() else { return Vec::new() };
    let mut warnings = Vec::new();
    if let Some(illegal) = settings.illegal {
        warnings.push(format!(
            "ILLEGAL mode {}: the device breaks its contract on purpose; a correct driver must fail",
            illegal.name()
        ));
    }
    if !reorders(&settings) {
        return warnings;
    }
    let chain = settings.longest_chain();
    for (name, micros) in TIMEOUTS.iter().filter(|(_, micros)| chain > *micros) {
        warnings.push(format!(
            "order.max_delay = {} us: data, completion, event and interrupt may come {} ms late together, more than the {} ms of \
             {name}",
            settings.limits.max_delay,
            chain / 1000,
            micros / 1000
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use crate::profile::Profile;

    fn with(sets: &[&str]) -> Result<crate::dma::order::Settings, String> {
        let profile = Profile::with("connectx10-c2c", sets).map_err(|error| error.to_string())?;
        profile.order.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_word_nothing_is_reordered_and_the_contract_is_that_of_the_device() {
        let settings = with(&[]).unwrap();
        assert!(!super::reorders(&settings));
        assert_eq!(settings.describe_profile(), "cx10-unordered");
        let card = Profile::with("connectx7", &[]).unwrap().order.settings().unwrap();
        assert_eq!(card.describe_profile(), "pcie-unordered");
    }

    #[test]
    fn knobs_follow_the_profile_unless_they_are_set() {
        let settings = with(&["order.raw_scope=qp", "order.profile=cx10-worst", "order.policy=pct(2)"]).unwrap();
        assert_eq!(settings.describe_profile(), "cx10-worst, raw_scope=qp");
        assert_eq!(settings.policy.to_string(), "pct(2)");
    }

    #[test]
    fn unknown_names_are_told_with_the_nearest() {
        for (set, near) in [
            ("order.policy=randm", "\"random\""),
            ("order.profile=cx10-wors", "\"cx10-worst\""),
            ("order.raw_scop=bytes", "`order.raw_scope`"),
            ("order.ack=visibl", "\"visible\""),
        ] {
            let error = with(&[set]).unwrap_err();
            assert!(error.contains(&format!("did you mean {near}?")), "{error}");
        }
        assert!(with(&["order.illegal=owner-first"]).is_err(), "no setting reaches an illegal mode");
        assert!(with(&["order.max_delay=20001"]).is_err());
    }

    #[test]
    fn a_bound_beyond_a_timeout_is_warned_of_by_its_name() {
        let profile = |sets: &[&str]| Profile::with("connectx10-c2c", sets).unwrap().warnings();
        assert!(profile(&["order.max_delay=20000"]).is_empty(), "nothing is delayed in order");
        let warnings = profile(&["order.max_delay=20000", "order.policy=random"]);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("acknowledgement timeout"), "{warnings:?}");
        assert!(profile(&["order.policy=random"]).is_empty());
    }
}
