//! What an engine is told: profile and knobs, policy, seed, bounds. Every setting has a name and a text, so that
//! configuration, command line, reports and logs speak the same language.

use super::knobs::{
    Ack, AtomicMode, Fabric, Fence2, Keys, Limits, Profile, RawScope, Rules, Split, Strict, UnknownName,
};
use super::policy::{Illegal, POLICIES, Policy};
use super::rules::Omit;
use super::{MAX_TRANSACTIONS, Tick};

/// Why a setting was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such knob.
    #[error("order: {0}")]
    Knob(UnknownName),
    /// The knob has no such value.
    #[error("order.{knob}: {source}")]
    Name {
        /// The knob.
        knob: &'static str,
        /// What was given, and what there is.
        source: UnknownName,
    },
    /// Not a number, or out of range.
    #[error("order.{knob}: {value:?} is not valid, expected {expected}")]
    Value {
        /// The knob.
        knob: &'static str,
        /// What was given.
        value: String,
        /// What is valid.
        expected: &'static str,
    },
}

/// Everything that decides what an engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the knobs come from.
    pub profile: Profile,
    /// The knobs; those of the profile unless changed.
    pub rules: Rules,
    /// How the order is chosen.
    pub policy: Policy,
    /// A promise to break. No setting reaches this; only the option that is for it.
    pub illegal: Option<Illegal>,
    /// From which all decisions are derived.
    pub seed: u64,
    /// How many seeds, from that one on, take turns: each life of the function has the next, see [`super::Order::begin_life`].
    pub seeds: u64,
    /// Bounds.
    pub limits: Limits,
    /// Whether the checker looks on.
    pub check: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            profile: Profile::Cx10Unordered,
            rules: Profile::Cx10Unordered.rules(),
            policy: Policy::InOrder,
            illegal: None,
            seed: 0,
            seeds: 1,
            limits: Limits::default(),
            check: false,
        }
    }
}

/// The names of all settings.
pub const KNOBS: [&str; 21] = [
    "profile",
    "policy",
    "seed",
    "seeds",
    "max_delay",
    "hold",
    "rate",
    "max_bytes",
    "max_transactions",
    "check",
    "fabric",
    "ro_only",
    "strict_on_unordered",
    "keys",
    "raw_scope",
    "ack",
    "atomic",
    "fence2",
    "granule",
    "split",
    "split_path",
];

/// Most seeds that take turns.
pub const MAX_SEEDS: u64 = 1000;

/// A knob of the contract whose values have names.
struct Named {
    knob: &'static str,
    values: fn() -> Vec<&'static str>,
    set: fn(&mut Rules, &str) -> Result<(), UnknownName>,
    get: fn(&Rules) -> &'static str,
}

macro_rules! named {
    ($($knob:literal = $field:ident: $kind:ident;)+) => {
        /// All of them.
        const NAMED: &[Named] = &[$(Named {
            knob: $knob,
            values: || $kind::ALL.iter().map(|value| value.name()).collect(),
            set: |rules, text| $kind::parse(text).map(|value| rules.$field = value),
            get: |rules| rules.$field.name(),
        },)+];
    };
}

named! {
    "fabric" = fabric: Fabric;
    "strict_on_unordered" = strict: Strict;
    "keys" = keys: Keys;
    "raw_scope" = raw_scope: RawScope;
    "ack" = ack: Ack;
    "atomic" = atomic: AtomicMode;
    "fence2" = fence2: Fence2;
    "split" = split: Split;
}

/// What a setting takes, in words; nothing for one that is a number.
pub fn values(knob: &str) -> Vec<&'static str> {
    match knob {
        "profile" => Profile::ALL.iter().map(|value| value.name()).collect(),
        "policy" => POLICIES.map(|name| if name == "pct" { "pct(DEPTH)" } else { name }).to_vec(),
        "ro_only" => vec!["0", "1"],
        "granule" => vec!["1", "4", "8", "64"],
        "split_path" => vec!["off", "an address"],
        _ => NAMED.iter().filter(|named| named.knob == knob).flat_map(|named| (named.values)()).collect(),
    }
}

fn number(knob: &'static str, value: &str, expected: &'static str) -> Result<u64, SettingError> {
    let digits = value.strip_prefix("0x");
    let parsed = match digits {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => value.parse(),
    };
    parsed.map_err(|_| SettingError::Value { knob, value: value.to_owned(), expected })
}

fn bounded(
    knob: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u32>,
    expected: &'static str,
) -> Result<u32, SettingError> {
    let parsed = number(knob, value, expected)?;
    let valid = u32::try_from(parsed).ok().filter(|number| range.contains(number));
    valid.ok_or_else(|| SettingError::Value { knob, value: value.to_owned(), expected })
}

fn switch(knob: &'static str, value: &str) -> Result<bool, SettingError> {
    match value {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(SettingError::Value { knob, value: value.to_owned(), expected: "0 or 1" }),
    }
}

impl Settings {
    /// The default settings with a policy.
    pub fn with(policy: Policy, profile: Profile, seed: u64) -> Settings {
        Settings { profile, rules: profile.rules(), policy, seed, ..Settings::default() }
    }

    /// Settings by name, in any order: the profile is applied before the knobs that change it.
    pub fn from_names<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Result<Settings, SettingError> {
        let mut result = Settings::default();
        for (_, value) in settings.clone().into_iter().filter(|(knob, _)| *knob == "profile") {
            result.set("profile", value)?;
        }
        for (knob, value) in settings.into_iter().filter(|(knob, _)| *knob != "profile") {
            result.set(knob, value)?;
        }
        Ok(result)
    }

    /// Changes one setting. `profile` sets all knobs of the contract.
    pub fn set(&mut self, knob: &str, value: &str) -> Result<(), SettingError> {
        let known = KNOBS.iter().find(|known| **known == knob);
        let Some(knob) = known.copied() else {
            return Err(SettingError::Knob(UnknownName::new(knob, KNOBS.into_iter())));
        };
        let name = |source| SettingError::Name { knob, source };
        match knob {
            "profile" => {
                self.profile = Profile::parse(value).map_err(name)?;
                self.rules = self.profile.rules();
            }
            "policy" => self.policy = Policy::parse(value).map_err(name)?,
            "seed" => self.seed = number(knob, value, "a number of 64 bits")?,
            "seeds" => {
                let most = MAX_SEEDS as u32;
                self.seeds = bounded(knob, value, 1..=most, "1..1000")?.into();
            }
            "max_delay" => {
                self.limits.max_delay = bounded(knob, value, 0..=Limits::HARD_MAX_DELAY, "microseconds, 0..20000")?;
            }
            "hold" => self.limits.hold = bounded(knob, value, 0..=Limits::HARD_MAX_DELAY, "microseconds, 0..20000")?,
            "rate" => self.limits.rate = bounded(knob, value, 0..=100, "percent, 0..100")?,
            "max_bytes" => self.limits.max_bytes = bounded(knob, value, 0..=1 << 30, "bytes, 0..1073741824")?,
            "max_transactions" => {
                let most = MAX_TRANSACTIONS as u32;
                self.limits.max_transactions = bounded(knob, value, 2..=most, "2..256")?;
            }
            "check" => self.check = switch(knob, value)?,
            "ro_only" => self.rules.ro_only = switch(knob, value)?,
            "granule" => {
                let granule = bounded(knob, value, 1..=64, "1, 4, 8 or 64")?;
                if ![1, 4, 8, 64].contains(&granule) {
                    return Err(SettingError::Value { knob, value: value.to_owned(), expected: "1, 4, 8 or 64" });
                }
                self.rules.granule = granule;
            }
            "split_path" => {
                self.rules.split_path = match value {
                    "off" => None,
                    _ => Some(number(knob, value, "off, or the first address of the second domain")?),
                };
            }
            _ => {
                for named in NAMED.iter().filter(|named| named.knob == knob) {
                    (named.set)(&mut self.rules, value).map_err(name)?;
                }
            }
        }
        Ok(())
    }

    /// The value of a setting.
    fn get(&self, knob: &str) -> String {
        let (rules, limits) = (&self.rules, &self.limits);
        let switch = |on: bool| u8::from(on).to_string();
        match knob {
            "profile" => self.profile.name().to_owned(),
            "policy" => self.policy.to_string(),
            "seed" => self.seed.to_string(),
            "seeds" => self.seeds.to_string(),
            "max_delay" => limits.max_delay.to_string(),
            "hold" => limits.hold.to_string(),
            "rate" => limits.rate.to_string(),
            "max_bytes" => limits.max_bytes.to_string(),
            "max_transactions" => limits.max_transactions.to_string(),
            "check" => switch(self.check),
            "ro_only" => switch(rules.ro_only),
            "granule" => rules.granule.to_string(),
            "split_path" => rules.split_path.map_or("off".to_owned(), |from| format!("{from:#x}")),
            _ => NAMED.iter().find(|named| named.knob == knob).map_or("", |named| (named.get)(rules)).to_owned(),
        }
    }

    /// Every setting by name, `profile` first.
    pub fn names(&self) -> Vec<(&'static str, String)> {
        KNOBS.into_iter().map(|knob| (knob, self.get(knob))).collect()
    }

    /// The profile for reports, with the knobs that differ from it: `cx10-unordered, raw_scope=bytes`.
    pub fn describe_profile(&self) -> String {
        let plain = Settings { rules: self.profile.rules(), ..self.clone() };
        let changed = self.names().into_iter().zip(plain.names()).filter(|(ours, theirs)| ours != theirs);
        changed.fold(self.profile.name().to_owned(), |text, ((knob, value), _)| format!("{text}, {knob}={value}"))
    }

    /// The seed, or the range of seeds, as an option takes it: `7`, `1..50`.
    pub fn describe_seeds(&self) -> String {
        match self.seeds {
            0 | 1 => self.seed.to_string(),
            count => format!("{}..{}", self.seed, self.seed.saturating_add(count - 1)),
        }
    }

    /// The seed of a life of the function, counted from 0: the range begins again at its end.
    pub fn seed_of_life(&self, life: u64) -> u64 {
        self.seed.saturating_add(life % self.seeds.max(1))
    }

    /// The contract in force with what an illegal mode leaves out.
    pub(super) fn pool_rules(&self) -> Rules {
        let broken = self.illegal.map_or(Omit::NOTHING, Illegal::omits);
        Rules { omit: self.rules.omit.union(broken), ..self.rules.clone() }
    }

    /// The longest time from the last store of a message until its interrupt: data, completion, event and interrupt each
    /// wait for the one before. For comparison with timeouts of protocols.
    pub fn longest_chain(&self) -> Tick {
        4 * Tick::from(self.limits.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        for profile in Profile::ALL {
            for policy in Policy::ALL {
                let mut settings = Settings::with(policy, *profile, 0xdead_beef_0000_0001);
                settings.rules.split_path = Some(0x1_0000_0000);
                settings.limits.hold = 77;
                settings.seeds = 50;
                let names = settings.names();
                assert_eq!(names.iter().map(|(knob, _)| *knob).collect::<Vec<_>>(), KNOBS);
                // The profile last: it comes first all the same.
                let backwards: Vec<_> = names.iter().rev().map(|(knob, value)| (*knob, value.as_str())).collect();
                assert_eq!(Settings::from_names(backwards), Ok(settings));
            }
        }
    }

    #[test]
    fn the_documentation_names_every_setting_and_every_value() {
        let text = include_str!("../../../docs/ordering.md");
        let knobs = KNOBS.into_iter().filter(|knob| !["profile", "policy", "seed", "check"].contains(knob));
        let profiles = Profile::ALL.iter().map(|profile| profile.name());
        let illegal = Illegal::ALL.iter().map(|illegal| illegal.name());
        let policies = ["in-order", "random", "lifo", "tail-first", "hold-one", "qp-skew", "read-early", "read-late"];
        let values = RawScope::ALL.iter().map(|value| value.name()).chain(AtomicMode::ALL.iter().map(|v| v.name()));
        let values = values.chain(Split::ALL.iter().map(|value| value.name()));
        for name in knobs.chain(profiles).chain(illegal).chain(policies).chain(values).chain(["pct(D)"]) {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_report_names_the_profile_and_what_differs_from_it() {
        let mut settings = Settings::with(Policy::Random, Profile::Cx10Worst, 1);
        assert_eq!(settings.describe_profile(), "cx10-worst");
        settings.set("raw_scope", "function").unwrap();
        settings.set("granule", "8").unwrap();
        assert_eq!(settings.describe_profile(), "cx10-worst, raw_scope=function, granule=8");
    }

    #[test]
    fn what_is_not_valid_is_named_with_what_would_be() {
        let mut settings = Settings::default();
        for (knob, value, text) in [
            ("raw_scop", "qp", "order: unknown name \"raw_scop\"; did you mean \"raw_scope\"?"),
            ("raw_scope", "byte", "order.raw_scope: unknown name \"byte\"; did you mean \"bytes\"?"),
            ("policy", "tail", "order.policy: unknown name \"tail\"; did you mean \"tail-first\"?"),
            ("granule", "16", "order.granule: \"16\" is not valid, expected 1, 4, 8 or 64"),
            ("max_delay", "20001", "order.max_delay: \"20001\" is not valid, expected microseconds, 0..20000"),
            ("max_transactions", "1", "order.max_transactions: \"1\" is not valid, expected 2..256"),
            ("seeds", "0", "order.seeds: \"0\" is not valid, expected 1..1000"),
            ("seed", "-1", "order.seed: \"-1\" is not valid, expected a number of 64 bits"),
            ("ro_only", "maybe", "order.ro_only: \"maybe\" is not valid, expected 0 or 1"),
            (
                "split_path",
                "x",
                "order.split_path: \"x\" is not valid, expected off, or the first address of the second domain",
            ),
        ] {
            assert_eq!(settings.set(knob, value).unwrap_err().to_string(), text);
        }
        assert_eq!(settings, Settings::default());
        assert!(settings.set("illegal", "owner-first").is_err(), "no setting reaches an illegal mode");
    }
}
