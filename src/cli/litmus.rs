//! `cx10 litmus`: the ordering contract, tested on this build.

use super::{EXIT_CLEAN, read_bounded};
use crate::config::keys;
use crate::dma::order::rules::Rule;
use crate::dma::order::settings;
use crate::litmus::compare::{self, CompareError, Comparison, Effort, compare};
use crate::litmus::explore::{ExploreError, Move};
use crate::litmus::mutants::Jury;
use crate::litmus::oracle::TooLarge;
use crate::litmus::program::{self, Program, ProgramError, Source, limits};
use crate::litmus::{Mode, random, table};
use crate::run::progress::Progress;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A check of cx10 failed: here, engine and model disagree.
const EXIT_CHECK: u8 = 3;

/// `cx10 litmus`.
#[derive(Clone, Debug, Args)]
pub struct LitmusArgs {
    /// Programs by name, for example A1, or a letter for its group [default: all]
    #[arg(value_name = "NAME")]
    pub programs: Vec<String>,
    /// Run the programs of a file (JSON, see below) instead of the table; `-` is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Programs")]
    pub file: Option<PathBuf>,
    /// Run so many random programs instead; the first that fails is made as small as possible and printed
    #[arg(long, value_name = "N", conflicts_with_all = ["programs", "file", "source", "sets", "outcomes"], help_heading = "Programs")]
    pub random: Option<u64>,
    /// Seed of random programs
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "random", help_heading = "Programs")]
    pub seed: u64,
    /// Leave out each rule of the engine in turn and tell which program notices
    #[arg(long, conflicts_with_all = ["programs", "file", "random", "source", "sets", "modes", "outcomes", "explain"], help_heading = "Programs")]
    pub mutants: bool,
    /// Modes to run, separated by commas [default: all]
    #[arg(short, long = "mode", value_name = "MODE", value_delimiter = ',', ignore_case = true, value_parser = mode_parser(), help_heading = "Contract")]
    pub modes: Vec<Mode>,
    /// Fix one knob, laid over those of the program: raw_scope=qp|bytes|function, atomic=man|pcie_ro|rmw,
    /// ack=visible|receive, fence2=ibta|pr1780; may be repeated
    #[arg(short, long = "set", value_name = "KNOB=VALUE", help_heading = "Contract")]
    pub sets: Vec<String>,
    /// Print all outcomes of each program, not only whether the one in question is allowed
    #[arg(short, long, help_heading = "Output")]
    pub outcomes: bool,
    /// Print what each program does, and with all outcomes a schedule that leads to each
    #[arg(short, long, help_heading = "Output")]
    pub explain: bool,
    /// Print JSON, one object a line for each program and mode
    #[arg(short, long, help_heading = "Output")]
    pub json: bool,
    /// Print the programs themselves as JSON instead of running them, to start a file of your own
    #[arg(long, conflicts_with_all = ["json", "modes", "explain", "outcomes"], help_heading = "Output")]
    pub source: bool,
}

fn mode_parser() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).map(|name| {
        let found = Mode::ALL.into_iter().find(|m| m.name().eq_ignore_ascii_case(&name));
        // The parser lets nothing else through.
        found.unwrap_or(Mode::NU)
    })
}

/// Why the programs could not be run. A wrong result is no error of this kind: it is exit status 3.
#[derive(Debug, thiserror::Error)]
pub enum LitmusError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// A file has no usable program.
    #[error("{path}: {error}")]
    Program {
        /// The file.
        path: String,
        /// Why.
        error: ProgramError,
    },
    /// A name or value does not exist.
    #[error("{0}")]
    Unknown(String),
    /// A program is too large to be explored.
    #[error("{name}, mode {mode}: {error}")]
    TooLarge {
        /// The program.
        name: String,
        /// In this mode.
        mode: Mode,
        /// Who gave up.
        error: CompareError,
    },
    /// A program of the table is too large. It is not.
    #[error(transparent)]
    Table(#[from] TooLarge),
    /// The output cannot be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

impl LitmusError {
    /// True if the reader of our output has gone away, as `head` does. That is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, LitmusError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Runs the subcommand. Returns the exit code.
pub fn litmus(args: &LitmusArgs, quiet: bool) -> Result<u8, LitmusError> {
    // Large, so that lines rarely meet the progress display on a terminal.
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let code = if args.mutants {
        mutants(&mut out, args.json, quiet)?
    } else if let Some(count) = args.random {
        random_programs(&mut out, args, count, &modes, quiet)?
    } else {
        let mut programs = chosen(args)?;
        apply_sets(&mut programs, &args.sets)?;
        let progress = Progress::new(quiet || !io::stderr().is_terminal());
        let code = if args.source {
            print_sources(&mut out, &programs)?;
            EXIT_CLEAN
        } else if args.json {
            json_lines(&mut out, &programs, &modes, args, &progress)?
        } else if args.file.is_some() || args.outcomes {
            details(&mut out, &programs, &modes, args, &progress)?
        } else {
            matrix(&mut out, &programs, &modes, args, &progress)?
        };
        progress.finish();
        code
    };
    out.flush()?;
    Ok(code)
}

/// The programs that the command line names: of a file, or of the table.
fn chosen(args: &LitmusArgs) -> Result<Vec<Program>, LitmusError> {
    let mut programs = match &args.file {
        None => table::programs(),
        Some(path) => {
            let text = read(path)?;
            let path = path.display().to_string();
            let mut programs = program::parse(&text).map_err(|error| LitmusError::Program { path, error })?;
            for (i, p) in programs.iter_mut().enumerate().filter(|(_, p)| p.source.name.is_empty()) {
                p.source.name = format!("program {i}");
            }
            programs
        }
    };
    if args.programs.is_empty() {
        return Ok(programs);
    }
    let names: Vec<String> = programs.iter().map(|p| p.source.name.clone()).collect();
    let picks = |wanted: &str, name: &str| {
        // A letter stands for its group.
        let group = wanted.len() == 1 && name.strip_prefix(wanted).is_some_and(|n| n.parse::<u32>().is_ok());
        name == wanted || group
    };
    for wanted in &args.programs {
        if !names.iter().any(|name| picks(wanted, name)) {
            return Err(unknown("program", wanted, &names));
        }
    }
    programs.retain(|p| args.programs.iter().any(|wanted| picks(wanted, &p.source.name)));
    Ok(programs)
}

fn unknown(what: &str, name: &str, known: &[String]) -> LitmusError {
    LitmusError::Unknown(match keys::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("no {what} `{name}`; did you mean `{near}`?"),
        None => format!("no {what} `{name}`; there are {}", known.join(", ")),
    })
}

fn read(path: &Path) -> Result<String, LitmusError> {
    let text = match path == Path::new("-") {
        true => read_bounded(io::stdin().lock(), limits::FILE),
        false => File::open(path).and_then(|file| read_bounded(file, limits::FILE)),
    };
    text.map_err(|error| LitmusError::File { path: path.display().to_string(), error })
}

/// Lays `--set` over the knobs of the programs. What a program says of its outcomes holds for its own knobs only.
fn apply_sets(programs: &mut [Program], sets: &[String]) -> Result<(), LitmusError> {
    if sets.is_empty() {
        return Ok(());
    }
    const KNOBS: [&str; 4] = ["raw_scope", "atomic", "ack", "fence2"];
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for p in programs {
        let mut source = p.source.clone();
        let mut set = serde_json::to_value(source.set).unwrap_or_default();
        for text in sets {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                LitmusError::Unknown(format!("--set takes KNOB=VALUE, for example raw_scope=bytes, not `{text}`"))
            })?;
            let key = key.strip_prefix("order.").unwrap_or(key);
            if !KNOBS.contains(&key) {
                return Err(unknown("knob", key, &owned(&KNOBS)));
            }
            let values = settings::values(key);
            if !values.contains(&value) {
                return Err(unknown(&format!("value of {key}"), value, &owned(&values)));
            }
            set[key] = value.into();
        }
        source.set = serde_json::from_value(set).map_err(|e| LitmusError::Unknown(e.to_string()))?;
        if source.set != p.source.set {
            source.allowed.clear();
            source.outcomes.clear();
        }
        let name = source.name.clone();
        *p = Program::new(source).map_err(|error| LitmusError::Program { path: name, error })?;
    }
    Ok(())
}

/// The result of one program in one mode.
struct Cell {
    comparison: Result<Comparison, ExploreError>,
    /// Where the program's own claims differ.
    differs: Vec<String>,
}

impl Cell {
    fn run(p: &Program, mode: Mode, progress: &Progress) -> Result<Cell, LitmusError> {
        progress.step(&format!("{} {mode}", p.source.name));
        let comparison = match compare(p, mode, &Effort::default()) {
            Ok(comparison) => Ok(comparison),
            Err(CompareError::Explore(error @ ExploreError::Engine(_))) => Err(error),
            Err(error) => return Err(LitmusError::TooLarge { name: p.source.name.clone(), mode, error }),
        };
        let mut differs = Vec::new();
        if let Ok(c) = &comparison {
            let (stated, found) = (p.source.allowed.get(&mode), c.allows(p));
            let word = |allowed: bool| if allowed { "allowed" } else { "forbidden" };
            if let Some(stated) = stated.filter(|s| **s != found) {
                differs.push(format!("stated to be {}, found to be {}", word(*stated), word(found)));
            }
            let (stated, found) = (p.source.outcomes.get(&mode), c.engine.outcomes.len());
            if let Some(stated) = stated.filter(|s| **s != found) {
                differs.push(format!("stated to have {stated} outcomes, found {found}"));
            }
        }
        Ok(Cell { comparison, differs })
    }

    fn passes(&self) -> bool {
        self.differs.is_empty() && self.comparison.as_ref().is_ok_and(Comparison::agrees)
    }

    /// What is wrong, a line each.
    fn problems(&self, p: &Program, mode: Mode) -> Vec<String> {
        let at = format!("{} {mode}", p.source.name);
        let mut lines = Vec::new();
        match &self.comparison {
            Err(error) => lines.push(format!("{at}: {error}")),
            Ok(c) => {
                for (outcome, schedule) in c.unsound() {
                    lines.push(format!("{at}: UNSOUND, the engine produces {}", p.show(outcome)));
                    lines.extend(compare::describe(p, schedule).into_iter().map(|l| format!("    {l}")));
                }
                let missing = c.missing().map(|o| format!("{at}: INCOMPLETE, the engine never produces {}", p.show(o)));
                lines.extend(missing);
            }
        }
        lines.extend(self.differs.iter().map(|d| format!("{at}: DIFFERS, {d}")));
        lines
    }
}

fn exit(wrong: bool) -> u8 {
    if wrong { EXIT_CHECK } else { EXIT_CLEAN }
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn ask(p: &Program) -> String {
    p.source.ask.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// The table: one line a program, one column a mode.
fn matrix(
    out: &mut impl Write,
    programs: &[Program],
    modes: &[Mode],
    args: &LitmusArgs,
    progress: &Progress,
) -> Result<u8, LitmusError> {
    let width = programs.iter().map(|p| p.source.name.len()).max().unwrap_or(0).max(4);
    let columns: String = modes.iter().map(|m| format!("{m:<4}")).collect();
    writeln!(out, "{:<width$} {columns} asked: may this be seen?", "")?;
    let (mut sets, mut outcomes, mut states, mut problems) = (0, 0, 0, Vec::new());
    for p in programs {
        let mut row = String::new();
        for &mode in modes {
            let cell = Cell::run(p, mode, progress)?;
            let mark = match &cell.comparison {
                Err(_) => "E!",
                Ok(c) if !c.is_sound() => "U!",
                Ok(c) if !c.is_complete() => "I!",
                Ok(_) if !cell.differs.is_empty() => "D!",
                Ok(_) if p.source.ask.is_empty() => ".",
                Ok(c) if c.allows(p) => "A",
                Ok(_) => "-",
            };
            if let Ok(c) = &cell.comparison {
                outcomes += c.model.len();
                states += c.engine.states;
            }
            sets += 1;
            row.push_str(&format!("{mark:<4}"));
            problems.extend(cell.problems(p, mode));
        }
        writeln!(out, "{:<width$} {row} {}: {}", p.source.name, p.source.title, ask(p))?;
        if args.explain {
            writeln!(out, "{:<width$}    {}", "", p.source)?;
        }
    }
    writeln!(
        out,
        "\nA allowed, - forbidden; wrong would be: U! unsound, I! incomplete, D! not as stated, E! engine failure"
    )?;
    for line in &problems {
        writeln!(out, "{line}")?;
    }
    let verdict = if problems.is_empty() { "engine and model agree" } else { "engine and model DISAGREE" };
    let (programs, modes) = (plural(programs.len(), "program"), plural(modes.len(), "mode"));
    writeln!(out, "{programs}, {modes}: {verdict} ({sets} sets, {outcomes} outcomes, {states} states of the engine)")?;
    Ok(exit(!problems.is_empty()))
}

/// Each program with all of its outcomes.
fn details(
    out: &mut impl Write,
    programs: &[Program],
    modes: &[Mode],
    args: &LitmusArgs,
    progress: &Progress,
) -> Result<u8, LitmusError> {
    each(programs, modes, progress, |p, mode, cell| {
        if modes.first() == Some(&mode) {
            writeln!(out, "{}", format!("{}  {}", p.source.name, p.source.title).trim_end())?;
            writeln!(out, "    {}", p.source)?;
        }
        if let Ok(c) = &cell.comparison {
            let verdict = match (p.source.ask.is_empty(), c.allows(p)) {
                (true, _) => String::new(),
                (false, true) => format!("; {} is allowed", ask(p)),
                (false, false) => format!("; {} is forbidden", ask(p)),
            };
            writeln!(out, "  {mode}: {}{verdict}", plural(c.engine.outcomes.len(), "outcome"))?;
            for (outcome, schedule) in &c.engine.outcomes {
                let asked = !p.source.ask.is_empty() && p.answers(outcome);
                writeln!(out, "    {} {}", if asked { '*' } else { ' ' }, p.show(outcome))?;
                if args.explain {
                    print_schedule(out, p, schedule)?;
                }
            }
        }
        for line in cell.problems(p, mode) {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    })
}

/// Each program in each mode. Answers the exit code.
fn each(
    programs: &[Program],
    modes: &[Mode],
    progress: &Progress,
    mut show: impl FnMut(&Program, Mode, &Cell) -> io::Result<()>,
) -> Result<u8, LitmusError> {
    let mut wrong = false;
    for p in programs {
        for &mode in modes {
            let cell = Cell::run(p, mode, progress)?;
            wrong |= !cell.passes();
            show(p, mode, &cell)?;
        }
    }
    Ok(exit(wrong))
}

fn print_schedule(out: &mut impl Write, p: &Program, schedule: &[Move]) -> io::Result<()> {
    compare::describe(p, schedule).iter().try_for_each(|line| writeln!(out, "          {line}"))
}

/// An outcome as `ask` spells it.
fn outcome_json(p: &Program, outcome: &[u64]) -> Value {
    Value::Object(p.slots().zip(outcome).map(|(name, value)| (name, json!(value))).collect())
}

/// One JSON object a program and mode.
fn json_lines(
    out: &mut impl Write,
    programs: &[Program],
    modes: &[Mode],
    args: &LitmusArgs,
    progress: &Progress,
) -> Result<u8, LitmusError> {
    each(programs, modes, progress, |p, mode, cell| writeln!(out, "{}", cell_json(p, mode, cell, args.explain)))
}

fn cell_json(p: &Program, mode: Mode, cell: &Cell, explain: bool) -> Value {
    let mut object = json!({ "name": p.source.name, "mode": mode });
    if p.source.set != program::Knobs::default() {
        object["set"] = json!(p.source.set);
    }
    match &cell.comparison {
        Err(error) => object["error"] = json!(error.to_string()),
        Ok(c) => {
            if !p.source.ask.is_empty() {
                object["ask"] = json!(p.source.ask);
                object["allowed"] = json!(c.allows(p));
            }
            object["count"] = json!(c.engine.outcomes.len());
            object["outcomes"] = c.engine.outcomes.keys().map(|o| outcome_json(p, o)).collect();
            if explain {
                let schedules = c.engine.outcomes.values().map(|s| json!(compare::describe(p, s)));
                object["schedules"] = schedules.collect();
            }
            object["sound"] = json!(c.is_sound());
            object["complete"] = json!(c.is_complete());
            object["unsound"] = c.unsound().map(|(o, _)| outcome_json(p, o)).collect();
            object["missing"] = c.missing().map(|o| outcome_json(p, o)).collect();
        }
    }
    if !cell.differs.is_empty() {
        object["differs"] = json!(cell.differs);
    }
    object
}

/// The programs themselves, in the interchange format: one alone, or a table.
fn print_sources(out: &mut impl Write, programs: &[Program]) -> Result<(), LitmusError> {
    let sources: Vec<&Source> = programs.iter().map(|p| &p.source).collect();
    let value = match sources.as_slice() {
        [one] => json!(one),
        many => json!({ "tests": many }),
    };
    serde_json::to_writer_pretty(&mut *out, &value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Random programs, until one fails. That one is made as small as possible and printed.
fn random_programs(
    out: &mut impl Write,
    args: &LitmusArgs,
    count: u64,
    modes: &[Mode],
    quiet: bool,
) -> Result<u8, LitmusError> {
    let started = Instant::now();
    let progress = Progress::new(quiet || !io::stderr().is_terminal());
    let mut shown = started;
    let effort = Effort::default();
    let (mut comparisons, mut outcomes, mut too_large) = (0u64, 0u64, 0u64);
    for number in 0..count {
        if shown.elapsed() > Duration::from_millis(100) {
            shown = Instant::now();
            progress.step(&format!("{number} of {count} programs"));
        }
        let p = random::program(args.seed, number);
        for &mode in modes {
            match compare(&p, mode, &effort) {
                Ok(c) if c.agrees() => {
                    comparisons += 1;
                    outcomes += c.model.len() as u64;
                }
                Err(error) if !error.is_engine() => too_large += 1,
                Ok(_) | Err(_) => {
                    progress.step("a program fails; making it smaller");
                    let fails = |q: &Program| match compare(q, mode, &effort) {
                        Ok(c) => !c.agrees(),
                        Err(error) => error.is_engine(),
                    };
                    let small = random::shrink(&p, fails);
                    progress.finish();
                    let cell = Cell::run(&small, mode, &Progress::new(true))?;
                    if args.json {
                        let mut object = cell_json(&small, mode, &cell, true);
                        object["program"] = json!(small.source);
                        writeln!(out, "{object}")?;
                    } else {
                        writeln!(out, "program {number} of seed {} fails in mode {mode}; at its smallest:", args.seed)?;
                        writeln!(out, "    {}", small.source)?;
                        for line in cell.problems(&small, mode) {
                            writeln!(out, "{line}")?;
                        }
                        print_sources(out, &[small])?;
                    }
                    return Ok(EXIT_CHECK);
                }
            }
        }
    }
    progress.finish();
    if args.json {
        let value = json!({ "seed": args.seed, "programs": count, "comparisons": comparisons, "outcomes": outcomes,
            "too_large": too_large, "agree": true });
        writeln!(out, "{value}")?;
    } else {
        let skipped = if too_large > 0 { format!(", {too_large} too large to compare") } else { String::new() };
        writeln!(
            out,
            "{count} random programs of seed {}: engine and model agree ({comparisons} comparisons, {outcomes} outcomes{skipped}, {:.1} s)",
            args.seed,
            started.elapsed().as_secs_f64()
        )?;
    }
    Ok(EXIT_CLEAN)
}

/// For each rule of the engine: which program notices that it is left out.
fn mutants(out: &mut impl Write, as_json: bool, quiet: bool) -> Result<u8, LitmusError> {
    let programs = table::programs();
    let effort = Effort::default();
    let jury = Jury::new(&programs, &effort)?;
    let progress = Progress::new(quiet || !io::stderr().is_terminal());
    let mut survivors = 0;
    for rule in Rule::ALL.iter().copied() {
        progress.step(&format!("without {}", rule.name()));
        let killers: Vec<_> = jury.killers(rule, &effort).collect();
        let places: Vec<String> = killers
            .iter()
            .filter_map(|k| k.as_ref().ok())
            .map(|k| format!("{} {}", programs[k.program].source.name, k.mode))
            .collect();
        survivors += usize::from(killers.is_empty());
        if as_json {
            writeln!(out, "{}", json!({ "rule": rule.name(), "noticed": places }))?;
            continue;
        }
        match killers.first() {
            None => writeln!(out, "{:<16} NOT NOTICED", rule.name())?,
            Some(Err(error)) => writeln!(out, "{:<16} {error}", rule.name())?,
            Some(Ok(first)) => {
                let p = &programs[first.program];
                let more = killers.len() - 1;
                let place = format!("{} {}", p.source.name, first.mode);
                let also = if more > 0 { format!(" (and {more} more)") } else { String::new() };
                writeln!(out, "{:<16} {place:<8} {}{also}", rule.name(), p.show(&first.outcome))?
            }
        }
    }
    progress.finish();
    if !as_json {
        let (all, seen) = (Rule::ALL.len(), Rule::ALL.len() - survivors);
        writeln!(out, "\n{seen} of {all} rules: a program notices when the engine leaves it out")?;
    }
    Ok(exit(survivors > 0))
}
