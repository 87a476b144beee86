//! Device profiles: what the function is and what it can do.
//!
//! A profile is a TOML text that sets every key of [`crate::config::keys`] and the capability fields by PRM name. Three are
//! compiled in (see [`builtin`]); a file of the user's can inherit one. [`Profile`] is the parsed, checked result with the
//! `--config` file and `--set` options laid over it, and the only form in which the device sees configuration.

pub mod builtin;
pub mod caps;
mod consistency;

use crate::config::{
    ConfigError, Doorbells, FirmwareConfig, MkeyConfig, NetConfig, OrderConfig, PagesConfig, PciConfig, Sources,
    WireConfig,
    layers::{self, Entries},
};
use caps::AREA;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which value of a capability: what is in force, or what the driver may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapMode {
    /// Maximum (`op_mod` bit 0 clear).
    Max,
    /// Current (`op_mod` bit 0 set).
    Cur,
}

/// Current and maximal area of one capability type.
#[derive(Clone, Debug)]
struct Areas {
    cur: Box<[u8; AREA]>,
    max: Box<[u8; AREA]>,
}

/// The sections of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    doorbells: Doorbells,
    mkey: MkeyConfig,
    pci: PciConfig,
    firmware: FirmwareConfig,
    net: NetConfig,
    wire: WireConfig,
    order: OrderConfig,
    pages: PagesConfig,
}

/// A device description, complete and checked.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name of the profile that it started from.
    pub name: String,
    /// One line for lists.
    pub description: String,
    /// How doorbells reach the device.
    pub doorbells: Doorbells,
    /// Ordering policy for keys.
    pub mkey: MkeyConfig,
    /// PCI function.
    pub pci: PciConfig,
    /// Firmware identity.
    pub firmware: FirmwareConfig,
    /// Port and addresses.
    pub net: NetConfig,
    /// What happens to packets on their way.
    pub wire: WireConfig,
    /// In which order memory accesses are performed.
    pub order: OrderConfig,
    /// Firmware pages.
    pub pages: PagesConfig,
    caps: BTreeMap<u16, Areas>,
    entries: Entries,
}

impl Default for Profile {
    /// The default profile, without overrides.
    fn default() -> Self {
        Profile::with(builtin::DEFAULT, &[]).expect("the default profile is checked by a test")
    }
}

impl Profile {
    /// A profile by name with `KEY=VALUE` overrides.
    pub fn with(name: &str, sets: &[&str]) -> Result<Profile, ConfigError> {
        layers::load(&Sources {
            profile: Some(name.to_string()),
            file: None,
            sets: sets.iter().map(|s| s.to_string()).collect(),
        })
    }

    /// Builds a profile from checked entries.
    pub(crate) fn from_entries(name: String, description: String, entries: Entries) -> Result<Profile, ConfigError> {
        let sections: Sections = plain_sections(&entries)
            .try_into()
            // Cannot happen while every key has a rule as strict as its type; said anyway, never a panic.
            .map_err(|e| ConfigError::Contradiction(format!("configuration: {e}")))?;
        let mut caps: BTreeMap<u16, Areas> = BTreeMap::new();
        // Current values first: the maximum starts as a copy of them.
        for root in ["caps", "caps_max"] {
            for (path, entry) in &entries {
                let Some((r, name, Some(field))) = caps::split(path) else { continue };
                if r != root {
                    continue;
                }
                let number = caps::type_number(name);
                let Some((number, layout)) = number.and_then(|n| Some((n, caps::layout(n)?))) else { continue };
                let areas =
                    caps.entry(number).or_insert_with(|| Areas { cur: Box::new([0; AREA]), max: Box::new([0; AREA]) });
                let bad = |e: crate::prm::PathError| ConfigError::Contradiction(format!("{}: {e}", entry.place));
                if root == "caps" {
                    caps::write(&mut areas.cur, layout, field, &entry.value).map_err(bad)?;
                }
                caps::write(&mut areas.max, layout, field, &entry.value).map_err(bad)?;
            }
        }
        let profile = Profile {
            name,
            description,
            doorbells: sections.doorbells,
            mkey: sections.mkey,
            pci: sections.pci,
            firmware: sections.firmware,
            net: sections.net,
            wire: sections.wire,
            order: sections.order,
            pages: sections.pages,
            caps,
            entries,
        };
        consistency::check(&profile).map_err(ConfigError::Contradiction)?;
        Ok(profile)
    }

    /// The area of a capability type as QUERY_HCA_CAP returns it; `None` if the type is not advertised.
    pub fn caps(&self, cap_type: u16, mode: CapMode) -> Option<&[u8; AREA]> {
        let areas = self.caps.get(&cap_type)?;
        Some(match mode {
            CapMode::Cur => &areas.cur,
            CapMode::Max => &areas.max,
        })
    }

    /// Types that are advertised.
    pub fn cap_types(&self) -> impl Iterator<Item = u16> + '_ {
        self.caps.keys().copied()
    }

    /// Current value of a capability field by PRM name; 0 if the type or the field is not advertised.
    pub fn cap(&self, cap_type: u16, field: &str) -> u64 {
        let Some(areas) = self.caps.get(&cap_type) else { return 0 };
        caps::layout(cap_type).and_then(|l| l.read(&areas.cur[..], field).ok()).unwrap_or(0)
    }

    /// Things that are allowed but surprising, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        consistency::warnings(self)
    }

    /// The effective configuration as TOML; every line that a file or an option set says so. Reading it back with
    /// `--config` gives the same device.
    pub fn to_toml(&self) -> String {
        let name = toml::Value::String(self.name.clone());
        let mut text = format!("# Effective configuration, profile {}.\nprofile = {name}\n", in_comment(&self.name));
        let mut section = String::new();
        let mut entries: Vec<_> = self.entries.iter().collect();
        // Keys of the program first, capabilities after them; tables stay together.
        entries.sort_by_key(|(path, _)| {
            let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
            (caps::is_cap_path(path), table.to_string(), key.to_string())
        });
        for (path, entry) in entries {
            let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
            if table != section {
                section = table.to_string();
                let _ = writeln!(text, "\n[{}]", table.split('.').map(toml_key).collect::<Vec<_>>().join("."));
            }
            let _ = write!(text, "{} = {}", toml_key(key), layers::show(path, &entry.value));
            if !entry.is_from_profile() {
                let _ = write!(text, "  # {}", in_comment(&entry.place.to_string()));
            }
            text.push('\n');
        }
        text
    }

    /// The effective configuration as JSON, for the header of a trace; `with_caps` includes the capabilities.
    pub fn to_json(&self, with_caps: bool) -> serde_json::Value {
        let mut root = serde_json::Map::new();
        for (path, entry) in &self.entries {
            if with_caps || !caps::is_cap_path(path) {
                root.insert(path.clone(), serde_json::to_value(&entry.value).unwrap_or_default());
            }
        }
        serde_json::Value::Object(root)
    }

    /// The device in one line, for records that only fit the same one: its name, its PCI id, and a checksum of its
    /// configuration but for the order of memory accesses.
    pub fn identity(&self) -> String {
        let mut text = String::new();
        for (path, entry) in self.entries.iter().filter(|(path, _)| !path.starts_with("order.")) {
            let _ = writeln!(text, "{path} = {}", entry.value);
        }
        let sum = crc32fast::hash(text.as_bytes());
        format!("{} {:04x}:{:04x} {sum:08x}", self.name, self.pci.vendor_id, self.pci.device_id)
    }

    /// All keys in force with the place that set each.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }
}

/// A text as a TOML comment may hold it: paths and options may have control characters, comments may not.
fn in_comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_string() } else { format!("{key:?}") }
}

/// The entries that are not capabilities, as nested tables.
fn plain_sections(entries: &Entries) -> toml::Table {
    let mut root = toml::Table::new();
    for (path, entry) in entries {
        if caps::is_cap_path(path) {
            continue;
        }
        let Some((section, key)) = path.split_once('.') else {
            root.insert(path.clone(), entry.value.clone());
            continue;
        };
        let table = root.entry(section).or_insert_with(|| toml::Table::new().into());
        if let Some(table) = table.as_table_mut() {
            table.insert(key.to_string(), entry.value.clone());
        }
    }
    root
}

#[cfg(test)]
mod tests;
