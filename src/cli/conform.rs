//! `cx10 conform`: from the command line to [`crate::conform`].

use super::run::{Error, device_args};
use super::{Accel, DeviceArgs, LogArgs, Size, parse_size};
use crate::conform::protocols::POLICIES;
use crate::conform::{self, Options, SECTIONS, expect, html, markdown, result::Matrix, result::Verdict, text};
use crate::files;
use crate::run::{self, RunError, RunOptions};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `cx10 conform`.
#[derive(Clone, Debug, Args)]
pub struct ConformArgs {
    /// Kernel to walk: 7.3 or 6.12 (Debian packages), a bzImage, or a kernel build tree; may be repeated, which makes a matrix
    #[arg(short, long = "kernel", value_name = "KERNEL", default_values = ["7.3"], conflicts_with = "from", value_parser = NonEmptyStringValueParser::new(), value_hint = ValueHint::AnyPath)]
    pub kernels: Vec<String>,
    /// Only these parts, by name (see below); may be repeated, or a list with commas
    #[arg(long = "only", value_name = "PART", value_delimiter = ',', value_parser = parse_section)]
    pub sections: Vec<String>,
    /// Run the protocols part under these ordering policies only; the other parts choose their own
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(POLICIES))]
    pub policies: Vec<String>,
    /// List the parts and end
    #[arg(long)]
    pub list: bool,
    /// Write the result as JSON, which --expect reads
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub json: Option<PathBuf>,
    /// Write the result as one HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub html: Option<PathBuf>,
    /// Write the result as Markdown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub markdown: Option<PathBuf>,
    /// Do not walk: show this stored result
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json", help_heading = "Records")]
    pub from: Option<PathBuf>,
    /// Compare with a stored result; a row that is worse ends with code 2, a known finding does not
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub expect: Option<PathBuf>,
    /// Every try, not only the answers
    #[arg(long)]
    pub cells: bool,
    /// Device options.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Guest CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255), help_heading = "Guest")]
    pub smp: u32,
    /// Guest memory, with suffix M or G
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size, help_heading = "Guest")]
    pub mem: Size,
    /// Extra kernel command line
    #[arg(long, value_name = "TEXT", help_heading = "Guest")]
    pub append: Option<String>,
    /// How to run the guest's CPUs
    #[arg(long, value_enum, default_value_t, value_name = "HOW", help_heading = "QEMU")]
    pub accel: Accel,
    /// QEMU to use [default: one on PATH that has vfio-user-pci, else a packaged one]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath, help_heading = "QEMU")]
    pub qemu: Option<PathBuf>,
    /// One more argument for QEMU; may be repeated
    #[arg(long = "qemu-arg", value_name = "ARG", allow_hyphen_values = true, help_heading = "QEMU")]
    pub qemu_args: Vec<OsString>,
}

fn parse_section(text: &str) -> Result<String, String> {
    if SECTIONS.iter().any(|section| section.name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    let near = names.iter().max_by(|a, b| strsim::jaro(a, text).total_cmp(&strsim::jaro(b, text)));
    let near = near.filter(|name| strsim::jaro(name, text) > 0.7).map(|name| format!("did you mean `{name}`?"));
    Err(near.unwrap_or_else(|| format!("there are {}", names.join(", "))))
}

/// Exit code of a comparison that found a regression, and of a walk that found something.
const EXIT_FINDING: u8 = 2;

/// Walks, shows, compares. Returns the exit code.
pub fn conform(args: &ConformArgs, log: &LogArgs) -> Result<u8, Error> {
    if args.list {
        for section in SECTIONS {
            say(&format!("{:<12} {}\n", section.name, section.title))?;
        }
        return Ok(super::EXIT_CLEAN);
    }
    // Mistakes are told before an hour of walking.
    let expected = args.expect.as_deref().map(stored).transpose()?;
    let options = options(args, log)?;
    let mut sections: Vec<&str> = options.chosen().map(|section| section.name).collect();
    if let (Some((path, expected)), None) = (&expected, &args.from) {
        let names: Vec<&str> = options.kernels.iter().map(String::as_str).collect();
        expect::stored(expected, &names, &sections).map_err(|error| failed(path, error))?;
    }
    let records = records(args)?;
    let (matrix, walked) = match &args.from {
        Some(path) => {
            let (_, mut matrix) = stored(path)?;
            let there = matrix.sections();
            if let Some(name) = args.sections.iter().find(|name| !there.contains(&name.as_str())) {
                return Err(failed(path, format!("it has no part {name} (it has {})", there.join(", "))));
            }
            sections.retain(|section| there.contains(section));
            matrix.retain(&sections);
            (matrix, Ok(()))
        }
        None => {
            let mut matrix = options.matrix();
            let walked = conform::conform(&options, &mut matrix);
            matrix.complete = walked.is_ok();
            (matrix, walked)
        }
    };
    // An error ends the walk; what it has until then is not lost, and does not take the place of a whole result either.
    if matrix.complete || !matrix.kernels.is_empty() {
        for (path, form) in records {
            let path = place(path, walked.is_ok());
            if walked.is_err() {
                eprintln!("cx10: what was walked until then is in {}", path.display());
            }
            form(&matrix).and_then(|text| files::write_whole(&path, &text)).map_err(|error| failed(&path, error))?;
        }
        if log.quiet == 0 {
            say(&text::text(&matrix, args.cells))?;
        }
    }
    walked?;
    let Some((path, expected)) = expected else {
        return Ok(if matrix.worst() >= Verdict::Finding { EXIT_FINDING } else { super::EXIT_CLEAN });
    };
    let difference = expect::compare(&expected, &matrix, &sections).map_err(|error| failed(path, error))?;
    say(&format!("\n{}", difference.text()))?;
    Ok(if difference.regressions.is_empty() { super::EXIT_CLEAN } else { EXIT_FINDING })
}

fn options(args: &ConformArgs, log: &LogArgs) -> Result<Options, Error> {
    let profile = args.device.load()?;
    let mut serve = device_args(&args.device, log);
    if log.verbose == 0 && log.quiet == 0 {
        // Its warnings about refused keys are what the result is made of.
        serve.push("--quiet".into());
    }
    let run = RunOptions {
        smp: args.smp,
        memory_mib: args.mem.0 >> 20,
        append: args.append.clone(),
        qemu: args.qemu.clone(),
        qemu_args: args.qemu_args.clone(),
        accel: match args.accel {
            Accel::Auto => run::Accel::Auto,
            Accel::Kvm => run::Accel::Kvm,
            Accel::Tcg => run::Accel::Tcg,
        },
        quiet: log.quiet > 0,
        ..RunOptions::default()
    };
    let (kernels, sections, policies) = (args.kernels.clone(), args.sections.clone(), args.policies.clone());
    Ok(Options { kernels, sections, policies, run, serve, profile: profile.name })
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Run(RunError::System(io::Error::other(format!("{}: {error}", path.display()))))
}

fn stored(path: &Path) -> Result<(&Path, Matrix), Error> {
    expect::read(path).map(|matrix| (path, matrix)).map_err(|error| failed(path, error))
}

/// Where the result goes, by form.
fn records(args: &ConformArgs) -> Result<Vec<(&Path, Form)>, Error> {
    let forms: [(_, Form); 3] = [
        (&args.json, json),
        (&args.markdown, |matrix| Ok(markdown::page(matrix))),
        (&args.html, |matrix| Ok(html::page(matrix))),
    ];
    let mut records: Vec<(&Path, Form)> = Vec::new();
    for (path, form) in forms.into_iter().filter_map(|(path, form)| Some((path.as_deref()?, form))) {
        if records.iter().any(|(other, _)| *other == path) {
            return Err(failed(path, "one file cannot have two forms"));
        }
        files::can_be_written(path).map_err(|error| failed(path, error))?;
        records.push((path, form));
    }
    Ok(records)
}

/// Where a result goes: an incomplete one beside the place of a whole one.
fn place(path: &Path, complete: bool) -> PathBuf {
    let mut place = path.to_owned();
    if !complete {
        place.as_mut_os_string().push(".incomplete");
    }
    place
}

type Form = fn(&Matrix) -> io::Result<String>;

fn json(matrix: &Matrix) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(matrix)? + "\n")
}

/// A closed pipe is no error.
fn say(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Run(RunError::System(error))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    #[test]
    fn parts_are_known_by_name_and_the_nearest_is_told() {
        assert_eq!(parse_section("flags"), Ok("flags".to_owned()));
        assert_eq!(parse_section("flag"), Err("did you mean `flags`?".to_owned()));
        assert!(parse_section("zzz").unwrap_err().starts_with("there are flags"));
    }

    #[test]
    fn a_file_has_one_form_and_can_be_written() {
        let records_of = |line: &[&str]| {
            let cli = Cli::try_parse_from([&["cx10", "conform"], line].concat()).unwrap();
            let Command::Conform(args) = cli.command else { panic!() };
            records(&args).map(|records| records.len())
        };
        let path = std::env::temp_dir().join(format!("cx10-conform-record-{}", std::process::id()));
        let path = path.to_str().unwrap();
        assert_eq!(records_of(&["--json", path, "--html", "/dev/null"]).unwrap(), 2);
        assert!(!Path::new(path).exists(), "nothing is left by the look");
        assert!(records_of(&["--markdown", path, "--html", path]).unwrap_err().to_string().contains("two forms"));
        assert!(records_of(&["--json", "/nowhere/result.json"]).is_err());
    }

    #[test]
    fn an_incomplete_result_does_not_take_the_place_of_a_whole_one() {
        assert_eq!(place(Path::new("a/good.json"), true), Path::new("a/good.json"));
        assert_eq!(place(Path::new("a/good.json"), false), Path::new("a/good.json.incomplete"));
    }

    #[test]
    fn kernels_and_device_options_are_taken_over() {
        let line = ["cx10", "conform", "-k", "7.3", "-k", "6.12", "--only", "flags", "--set", "mkey.strict=off"];
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Conform(args) = cli.command else { panic!() };
        let options = options(&args, &cli.log).unwrap();
        assert_eq!(options.kernels, ["7.3", "6.12"]);
        assert_eq!(options.serve, ["--set", "mkey.strict=off", "--quiet"]);
        assert_eq!(options.profile, "connectx10-c2c");
        assert_eq!(options.chosen().map(|section| section.name).collect::<Vec<_>>(), ["flags"]);
    }
}
