//! Reading layers and laying them over each other.

use super::keys::{self, Rule};
use crate::profile::{Profile, builtin, caps};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Longest chain of `inherits`, so that a circle ends.
const MAX_INHERIT: usize = 8;

/// Largest configuration file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A profile compiled into the program.
    Builtin {
        /// Name of the profile.
        name: String,
        /// Line in its TOML text.
        line: usize,
    },
    /// A file.
    File {
        /// Path as given.
        path: PathBuf,
        /// Line.
        line: usize,
    },
    /// A `--set` option.
    Set(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Builtin { name, line } => write!(f, "profile {name}, line {line}"),
            Place::File { path, line } => write!(f, "{}:{line}", path.display()),
            Place::Set(text) => write!(f, "--set {text}"),
        }
    }
}

/// Why a configuration cannot be used. All of these are the user's to correct.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is not TOML.
    #[error("{}: {error}", origin)]
    Syntax {
        /// The file or profile.
        origin: String,
        /// What the parser said, with line and column.
        error: Box<toml::de::Error>,
    },
    /// A value, key or name is wrong.
    #[error("{place}: {message}")]
    Bad {
        /// Where.
        place: Place,
        /// What.
        message: String,
    },
    /// No such profile.
    #[error("no profile `{name}`{}; profiles are {known}, or give the path of a TOML file", hint(near))]
    UnknownProfile {
        /// The name asked for.
        name: String,
        /// A name like it.
        near: Option<String>,
        /// All names.
        known: String,
    },
    /// `inherits` goes in a circle or too deep.
    #[error("profile `{0}` inherits itself, or through more than {MAX_INHERIT} others")]
    Circle(String),
    /// A profile without `inherits` lacks keys.
    #[error(
        "profile `{name}` does not set {missing}; set it or start from another profile with `inherits = \"{base}\"`"
    )]
    Incomplete {
        /// The profile.
        name: String,
        /// The first missing keys.
        missing: String,
        /// A profile to inherit.
        base: String,
    },
    /// Values contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
}

/// What to lay over each other.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--profile`: a name, or the path of a profile file. Wins over `profile = "…"` in the file.
    pub profile: Option<String>,
    /// `--config FILE`.
    pub file: Option<PathBuf>,
    /// `--set KEY=VALUE`, in order.
    pub sets: Vec<String>,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value, checked.
    pub value: Value,
    /// Where it was set last.
    pub place: Place,
}

/// All keys in force, by dotted name.
pub type Entries = BTreeMap<String, Entry>;

/// Reads all layers and builds the profile in force.
pub fn load(sources: &Sources) -> Result<Profile, ConfigError> {
    let file = match &sources.file {
        Some(path) => Some(Layer::read(path)?),
        None => None,
    };
    let name = sources
        .profile
        .clone()
        .or_else(|| file.as_ref().and_then(|f| f.profile.clone()))
        .unwrap_or_else(|| builtin::DEFAULT.to_string());
    let (name, description, mut entries) = load_chain(&name)?;
    check_complete(&name, &entries)?;
    if let Some(file) = file {
        if let Some((key, line)) =
            file.inherits.map(|(_, l)| ("inherits", l)).or(file.description.map(|(_, l)| ("description", l)))
        {
            let place = Place::File { path: sources.file.clone().unwrap_or_default(), line };
            let message = format!(
                "`{key}` belongs into a profile; a configuration file names its profile with `profile = \"NAME\"`"
            );
            return Err(ConfigError::Bad { place, message });
        }
        entries.extend(file.entries);
    }
    for set in &sources.sets {
        let (key, entry) = read_set(set)?;
        entries.insert(key, entry);
    }
    Profile::from_entries(name, description, entries)
}

/// A profile with everything it inherits: name, description, entries.
fn load_chain(name: &str) -> Result<(String, String, Entries), ConfigError> {
    let mut chain: Vec<Layer> = Vec::new();
    let mut next = Some(name.to_string());
    while let Some(wanted) = next {
        if chain.len() == MAX_INHERIT {
            return Err(ConfigError::Circle(name.to_string()));
        }
        let layer = Layer::profile(&wanted, chain.last().map(|l| l.directory.as_path()))?;
        next = layer.inherits.as_ref().map(|(n, _)| n.clone());
        chain.push(layer);
    }
    let shown = chain[0].name.clone();
    let description = chain.iter().find_map(|l| l.description.clone()).map(|(d, _)| d).unwrap_or_default();
    let mut entries = Entries::new();
    for layer in chain.into_iter().rev() {
        entries.extend(layer.entries);
    }
    Ok((shown, description, entries))
}

fn check_complete(name: &str, entries: &Entries) -> Result<(), ConfigError> {
    let missing: Vec<_> =
        keys::KEYS.iter().filter(|k| !entries.contains_key(k.path)).map(|k| format!("`{}`", k.path)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut text = missing.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if missing.len() > 3 {
        text.push_str(&format!(" and {} more keys", missing.len() - 3));
    }
    Err(ConfigError::Incomplete { name: name.into(), missing: text, base: builtin::DEFAULT.into() })
}

/// One TOML text.
struct Layer {
    name: String,
    directory: PathBuf,
    entries: Entries,
    /// `profile = "…"` (files of `--config`).
    profile: Option<String>,
    /// `inherits = "…"` and its line.
    inherits: Option<(String, usize)>,
    /// `description = "…"` and its line.
    description: Option<(String, usize)>,
}

impl Layer {
    /// A profile by name or path; a relative path in `inherits` is relative to the inheriting file.
    fn profile(wanted: &str, directory: Option<&Path>) -> Result<Layer, ConfigError> {
        if let Some(text) = builtin::text(wanted) {
            let name = wanted.to_string();
            return Layer::parse(text, wanted, PathBuf::new(), &|line| Place::Builtin { name: name.clone(), line });
        }
        if wanted.contains('/') || wanted.ends_with(".toml") {
            let path = directory.unwrap_or(Path::new("")).join(wanted);
            let mut layer = Layer::read(&path)?;
            if let Some(other) = &layer.profile {
                let message = format!("a profile inherits another with `inherits = \"{other}\"`, not with `profile`");
                return Err(ConfigError::Bad { place: Place::File { path, line: 1 }, message });
            }
            layer.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(layer);
        }
        Err(ConfigError::UnknownProfile {
            name: wanted.into(),
            near: keys::nearest(wanted, builtin::names()).map(str::to_string),
            known: builtin::names().collect::<Vec<_>>().join(", "),
        })
    }

    fn read(path: &Path) -> Result<Layer, ConfigError> {
        let failed = |error| ConfigError::Read { path: path.into(), error };
        let mut text = String::new();
        // Not by the size of the file: a device has none, and a file may grow.
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            return Err(failed(std::io::Error::other("larger than 1 MiB")));
        }
        let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Layer::parse(&text, &path.display().to_string(), directory, &|line| Place::File { path: path.into(), line })
    }

    fn parse(
        text: &str,
        origin: &str,
        directory: PathBuf,
        place: &dyn Fn(usize) -> Place,
    ) -> Result<Layer, ConfigError> {
        let table = DeTable::parse(text)
            .map_err(|error| ConfigError::Syntax { origin: origin.into(), error: Box::new(error) })?;
        let line = |at: usize| 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count();
        let mut layer = Layer {
            name: origin.into(),
            directory,
            entries: Entries::new(),
            profile: None,
            inherits: None,
            description: None,
        };
        for (key, value) in table.get_ref() {
            let line_here = line(key.span().start);
            let name = key.get_ref().as_ref();
            let bad = |message| ConfigError::Bad { place: place(line_here), message };
            match (name, value.get_ref()) {
                ("profile", DeValue::String(s)) => layer.profile = Some(s.to_string()),
                ("inherits", DeValue::String(s)) => layer.inherits = Some((s.to_string(), line_here)),
                ("description", DeValue::String(s)) => layer.description = Some((s.to_string(), line_here)),
                ("profile" | "inherits" | "description", _) => return Err(bad(format!("`{name}` takes a text"))),
                (_, value) => flatten(name, value, line_here, &line, place, &mut layer.entries)?,
            }
        }
        Ok(layer)
    }
}

/// Walks a table down to the keys and checks each.
fn flatten(
    path: &str,
    value: &DeValue<'_>,
    line_here: usize,
    line: &dyn Fn(usize) -> usize,
    place: &dyn Fn(usize) -> Place,
    out: &mut Entries,
) -> Result<(), ConfigError> {
    let bad = |message| ConfigError::Bad { place: place(line_here), message };
    if let DeValue::Table(table) = value {
        if !(keys::is_section(path) || caps::is_section(path)) {
            return Err(bad(unknown(path)));
        }
        for (key, value) in table {
            let path = format!("{path}.{}", key.get_ref());
            flatten(&path, value.get_ref(), line(key.span().start), line, place, out)?;
        }
        return Ok(());
    }
    let value = plain(value).map_err(bad)?;
    let value = check(path, value).map_err(bad)?;
    out.insert(path.to_string(), Entry { value, place: place(line_here) });
    Ok(())
}

/// A value without spans.
fn plain(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(s) => Value::String(s.to_string()),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Integer(i) => {
            let parsed = i64::from_str_radix(i.as_str(), i.radix());
            // A capability field may have 64 bits; TOML numbers end at 63.
            Value::Integer(parsed.map_err(|_| format!("{} does not fit; write it as a text \"0x…\"", i.as_str()))?)
        }
        DeValue::Table(table) => {
            let pairs = table.iter().map(|(key, value)| Ok((key.get_ref().to_string(), plain(value.get_ref())?)));
            Value::Table(pairs.collect::<Result<_, String>>()?)
        }
        DeValue::Array(list) => Value::Array(list.iter().map(|v| plain(v.get_ref())).collect::<Result<_, _>>()?),
        other => return Err(format!("a {} cannot be a value here", other.type_str())),
    })
}

/// Checks a value for a key and gives it its final form.
fn check(path: &str, value: Value) -> Result<Value, String> {
    if caps::is_cap_path(path) {
        return caps::check(path, &value);
    }
    let Some(key) = keys::find(path) else {
        return Err(unknown(path));
    };
    key.rule.check(&value).map_err(|e| format!("`{path}`: {e}"))?;
    Ok(key.rule.finish(value))
}

/// Reads one `--set KEY=VALUE`.
fn read_set(text: &str) -> Result<(String, Entry), ConfigError> {
    let place = Place::Set(text.to_string());
    let bad = |message| ConfigError::Bad { place: place.clone(), message };
    let Some((key, value)) = text.split_once('=') else {
        return Err(bad("expected KEY=VALUE".into()));
    };
    let (key, text) = (key.trim(), value.trim());
    let value = if caps::is_cap_path(key) {
        caps::from_text(text)
    } else if let Some(known) = keys::find(key) {
        known.rule.from_text(text)
    } else if key == "profile" {
        return Err(bad("use --profile".into()));
    } else {
        return Err(bad(unknown(key)));
    };
    let value = check(key, value).map_err(bad)?;
    Ok((key.to_string(), Entry { value, place }))
}

/// Message for a key that does not exist.
fn unknown(path: &str) -> String {
    if keys::is_section(path) || path == "caps" || path == "caps_max" {
        return format!("`{path}` is a section; set one of its keys, see `cx10 profile keys {path}`");
    }
    let mut known: Vec<&str> = keys::KEYS.iter().map(|k| k.path).collect();
    let sections: Vec<&str> = known.iter().filter_map(|p| p.split_once('.')).map(|(s, _)| s).collect();
    known.extend(sections);
    // The name alone may be right and the section wrong or missing.
    let last = path.rsplit('.').next().unwrap_or(path);
    let mut near = keys::KEYS.iter().map(|k| k.path).find(|p| p.rsplit('.').next() == Some(last)).map(str::to_string);
    near = near.or_else(|| caps::path_of_field(last));
    near = near.or_else(|| keys::nearest(path, known.iter().copied().chain(["caps", "caps_max"])).map(str::to_string));
    match near {
        Some(near) => format!("unknown key `{path}`; did you mean `{near}`?"),
        None => format!("unknown key `{path}`; `cx10 profile keys` lists all keys"),
    }
}

impl Entry {
    /// True for values that a profile set, false for those of a file or `--set`.
    pub fn is_from_profile(&self) -> bool {
        matches!(self.place, Place::Builtin { .. })
    }
}

/// How a value of a key is written in TOML.
pub fn show(path: &str, value: &Value) -> String {
    match (keys::find(path).map(|k| k.rule), value) {
        (Some(Rule::Int { hex: true, .. }), Value::Integer(v)) => format!("{v:#06x}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
