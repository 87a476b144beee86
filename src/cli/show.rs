//! The small subcommands: they print something and end.

use super::{DeviceArgs, ProfileCommand, TraceArgs, model};
use crate::config::{self, ConfigError, Sources, keys};
use crate::prm::Kind;
use crate::profile::{CapMode, Profile, builtin, caps};
use crate::trace::human;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// Why a small subcommand failed. All are the user's to correct or the system's fault; none is a verdict.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// A trace cannot be shown.
    #[error("{path}: {error}")]
    Trace {
        /// The file.
        path: String,
        /// Why.
        error: human::TraceError,
    },
    /// A name does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The output cannot be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

impl ShowError {
    /// True if the reader of our output has gone away, as `head` does. That is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, ShowError::Output(e) | ShowError::Trace { error: human::TraceError::Write(e), .. }
            if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> ShowError {
    ShowError::Unknown(match keys::nearest(name, known.iter().copied()) {
        Some(near) => format!("no {what} `{name}`; did you mean `{near}`?"),
        None => format!("no {what} `{name}`; there are {}", known.join(", ")),
    })
}

/// `cx10 trace`.
pub fn trace(args: &TraceArgs) -> Result<(), ShowError> {
    let options = human::Options {
        opcodes: args.opcodes.clone(),
        events: args.events.clone(),
        failed: args.failed,
        uid: args.uid,
        full: args.full,
        follow: args.follow,
        count: args.count,
    };
    let path = args.file.display().to_string();
    let input: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let open = File::open(&args.file).and_then(|f| match f.metadata()?.is_dir() {
            true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            false => Ok(f),
        });
        Box::new(BufReader::new(open.map_err(|error| ShowError::File { path: path.clone(), error })?))
    };
    let counts = human::print(input, BufWriter::new(io::stdout().lock()), &options)
        .map_err(|error| ShowError::Trace { path, error })?;
    if counts.shown == 0 && counts.read > 0 {
        eprintln!("cx10: none of {} events matches", counts.read);
    }
    Ok(())
}

/// `--print-config`.
pub fn print_config(device: &DeviceArgs) -> Result<(), ShowError> {
    let profile = device.load_telling()?;
    io::stdout().write_all(profile.to_toml().as_bytes())?;
    Ok(())
}

/// `cx10 profile`.
pub fn profile(command: &ProfileCommand) -> Result<(), ShowError> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        ProfileCommand::List => {
            for name in builtin::names() {
                let p = Profile::with(name, &[])?;
                let mark = if name == builtin::DEFAULT { " (default)" } else { "" };
                writeln!(out, "{name:<16} {}{mark}", p.description)?;
            }
        }
        ProfileCommand::Show { name, config, sets } => {
            let sources = Sources { profile: name.clone(), file: config.clone(), sets: sets.clone() };
            let profile = config::load(&sources)?;
            for warning in profile.warnings() {
                log::warn!(target: "cx10::config", "{warning}");
            }
            write!(out, "{}", profile.to_toml())?;
        }
        ProfileCommand::Diff { from, to } => diff(&mut out, &Profile::with(from, &[])?, &Profile::with(to, &[])?)?,
        ProfileCommand::Keys { section } => list_keys(&mut out, section.as_deref())?,
        ProfileCommand::Fields { cap_type, filter, profile } => {
            let p = Profile::with(profile.as_deref().unwrap_or(builtin::DEFAULT), &[])?;
            list_fields(&mut out, &p, cap_type.as_deref(), filter.as_deref())?;
        }
    }
    out.flush()?;
    Ok(())
}

fn diff(out: &mut impl Write, from: &Profile, to: &Profile) -> io::Result<()> {
    let show = |p: &Profile, key: &str| match p.entries().get(key) {
        Some(entry) => config::layers::show(key, &entry.value),
        // A capability that no key names reads 0.
        None => "0".to_string(),
    };
    let keys: BTreeSet<_> = from.entries().keys().chain(to.entries().keys()).collect();
    for key in keys {
        let (a, b) = (show(from, key), show(to, key));
        if a != b {
            writeln!(out, "{key} = {a} -> {b}")?;
        }
    }
    Ok(())
}

fn list_keys(out: &mut impl Write, section: Option<&str>) -> Result<(), ShowError> {
    let chosen: Vec<_> = keys::KEYS
        .iter()
        .filter(|k| {
            section.is_none_or(|s| k.path == s || k.path.strip_prefix(s).is_some_and(|rest| rest.starts_with('.')))
        })
        .collect();
    if chosen.is_empty() {
        let section = section.unwrap_or_default();
        if section == "caps" || section == "caps_max" {
            return Err(ShowError::Unknown(format!(
                "capabilities are listed by `cx10 profile fields`, not `keys {section}`"
            )));
        }
        let sections = keys::KEYS.iter().filter_map(|k| k.path.split_once('.')).map(|(section, _)| section);
        let known: Vec<&str> = sections.chain(keys::KEYS.iter().map(|k| k.path)).collect();
        return Err(unknown("section or key", section, &known));
    }
    let default = Profile::with(builtin::DEFAULT, &[])?;
    for key in chosen {
        let value = default.entries().get(key.path).map(|e| config::layers::show(key.path, &e.value));
        writeln!(out, "{} = {}", key.path, value.unwrap_or_default())?;
        writeln!(out, "    {}", key.rule.describe())?;
        writeln!(out, "    {}", key.help)?;
    }
    if section.is_none() {
        writeln!(out, "caps.TYPE.FIELD, caps_max.TYPE.FIELD")?;
        writeln!(out, "    a capability by PRM name, and what the driver may set it to; see `cx10 profile fields`")?;
    }
    Ok(())
}

fn list_fields(
    out: &mut impl Write,
    profile: &Profile,
    cap_type: Option<&str>,
    filter: Option<&str>,
) -> Result<(), ShowError> {
    let Some(name) = cap_type else {
        for (number, name, layout) in caps::TYPES {
            let advertised = if profile.caps(*number, CapMode::Cur).is_some() { "advertised" } else { "-" };
            let fields = caps::field_paths(layout).len();
            writeln!(out, "{number:#04x} {name:<20} {advertised:<12} {fields} fields")?;
        }
        return Ok(());
    };
    let names: Vec<&str> = caps::TYPES.iter().map(|(_, n, _)| *n).collect();
    let number = caps::type_number(name).ok_or_else(|| unknown("capability type", name, &names))?;
    let Some(layout) = caps::layout(number) else { return Ok(()) };
    for path in caps::field_paths(layout) {
        if filter.is_some_and(|f| !path.contains(f)) {
            continue;
        }
        let Some((offset, Kind::Scalar { width })) = layout.locate(&path) else { continue };
        let value = profile.cap(number, &path);
        let max = profile.caps(number, CapMode::Max).and_then(|a| layout.read(&a[..], &path).ok()).unwrap_or(0);
        let max = if max == value { String::new() } else { format!(" (max {max:#x})") };
        writeln!(out, "{path} = {value:#x}{max}  # bit {offset:#x}, {width} wide")?;
    }
    Ok(())
}

/// `cx10 completions`.
pub fn completions(shell: clap_complete::Shell) -> Result<(), ShowError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut model(), "cx10", &mut script);
    io::stdout().write_all(&script)?;
    Ok(())
}

/// `cx10 man`.
pub fn man(subcommand: &[String], directory: Option<&Path>) -> Result<(), ShowError> {
    if let Some(directory) = directory {
        let failed = |error| ShowError::File { path: directory.display().to_string(), error };
        std::fs::create_dir_all(directory).map_err(failed)?;
        return clap_mangen::generate_to(man_model(), directory).map_err(failed);
    }
    // Built, so that subcommands know their full names and the global options.
    let mut command = man_model();
    command.build();
    for name in subcommand.iter().flat_map(|s| s.split(['-', ' '])) {
        let known: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_string()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let next = command.find_subcommand(name).cloned();
        command = next.ok_or_else(|| unknown("subcommand", name, &known))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    io::stdout().write_all(&page)?;
    Ok(())
}

/// The model without the generated `help` subcommand, whose pages say nothing.
fn man_model() -> clap::Command {
    model().disable_help_subcommand(true)
}
