//! `cx10 serve`: the device alone, for any VMM.

use super::{EXIT_USAGE, OrderArgs, Recorded, ReplayError, ServeArgs, shrink};
use crate::cmdif::error::meaning;
use crate::config::ConfigError;
use crate::device::Function;
use crate::device::clock::MonotonicClock;
use crate::dma::Bus;
use crate::dma::order::log::{LogError, MOST_LOG, Writer};
use crate::dma::order::replay::{Only, Plan, Replay};
use crate::dma::order::{Order, Settings};
use crate::engine::{self, Options, Stop};
use crate::files;
use crate::profile::Profile;
use crate::sys;
use crate::transport::listener::Listener;
use crate::transport::server::Server;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Why the device could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The order cannot be repeated.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The log of the order cannot be read.
    #[error("{0}")]
    Log(#[from] LogError),
    /// A file or socket cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system resource is missing.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The event loop failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

/// Settings of order that file or options ask for, and that the one of a record goes before.
fn unheeded(profile: &Profile, record: &Settings) -> Vec<String> {
    let Ok(asked) = profile.order.settings() else { return Vec::new() };
    let is_asked = |knob: &str| profile.entries().get(&format!("order.{knob}")).is_some_and(|e| !e.is_from_profile());
    let pairs = asked.names().into_iter().zip(record.names());
    // The checker looks on if either wants it to.
    let differ = pairs.filter(|((knob, ours), (_, theirs))| ours != theirs && *knob != "check" && is_asked(knob));
    differ.map(|((knob, ours), (_, theirs))| format!("order.{knob} = {ours} is not heeded, but {theirs}")).collect()
}

/// Lets the bus repeat a recorded order, and record its own.
fn order(args: &OrderArgs, recorded: Option<Recorded>, device: &str, bus: &mut Bus) -> Result<(), ServeError> {
    if let Some(Recorded { log, overtakes }) = recorded {
        if let Some(warning) = log.warning() {
            log::warn!(target: "cx10::order", "{warning}; the policy orders what comes after it");
        }
        let mut order = Order::new(log.settings.clone());
        order.follow(match overtakes {
            Some(overtakes) => Plan::Only(Only::new(&overtakes)),
            None => Plan::Replay(Replay::new(&log)?),
        });
        bus.reorder(Some(order));
    }
    if let Some(directory) = &args.shrink {
        let path = directory.join(shrink::FOLLOWED);
        std::fs::write(&path, "").map_err(|source| ServeError::File { path, source })?;
    }
    let Some(path) = &args.order_log else { return Ok(()) };
    let file = |source| ServeError::File { path: path.clone(), source };
    if bus.order().is_none() {
        // Accesses as they are issued: to compare with.
        bus.reorder(Some(Order::new(Settings { check: args.check, ..Settings::default() })));
    }
    if let Some(order) = bus.order_mut() {
        let out = File::create(path).map_err(file)?;
        let log = Writer::new(Box::new(out), order.settings(), device, MOST_LOG).map_err(file)?;
        order.keep_log(log);
    }
    Ok(())
}

/// Serves the device until a signal, or until the first VMM has left with `--once`. Returns the exit code: that of
/// the verdict.
pub fn serve(args: &ServeArgs) -> Result<u8, ServeError> {
    let profile = args.device.load_telling()?;
    let Some(path) = &args.socket else { return Ok(EXIT_USAGE) };
    let stop = Stop::on_signals(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    sys::raise_fd_limit()?;
    let file = |path: &PathBuf| {
        let path = path.clone();
        move |source| ServeError::File { path, source }
    };
    let device = profile.identity();
    // Nothing is written over before it is known that there will be a run.
    let recorded = args.device.order.recorded(&profile)?;
    if let Some(path) = &args.report {
        files::can_be_written(path).map_err(file(path))?;
    }
    let trace = args.record.open(&profile, meaning).map_err(file(&args.record.trace.clone().unwrap_or_default()))?;
    // The command that `cx10 shrink` runs is the one that failed, with all its options.
    if let Some(recorded) = recorded.as_ref().filter(|_| args.device.order.shrink.is_none()) {
        for told in unheeded(&profile, &recorded.log.settings) {
            log::warn!(target: "cx10::order", "{told}: the recorded order has its own settings");
        }
    }
    let mut function = Function::new(profile, Box::new(MonotonicClock::start()), trace);
    order(&args.device.order, recorded, &device, function.bus_mut())?;
    let options = Options { once: args.once, ..Options::default() };
    let listener = Listener::bind(path, options.socket_mode).map_err(file(path))?;
    let server = Server::new(listener, engine::Device::layout(&function));
    log::info!(target: "cx10::serve", "listening on {}", path.display());
    let result = engine::run(server, &mut function, &options, &stop);
    function.trace().flush();
    if let Some(order) = function.bus_mut().order_mut() {
        order.flush_log();
    }
    let summary = function.summary();
    if let Some(path) = &args.report {
        summary.write_json(path).map_err(file(path))?;
    } else {
        let check = summary.order.iter().flat_map(|order| &order.check);
        let told = check.flat_map(|check| &check.described).chain(&summary.internal_failures);
        told.for_each(|text| log::error!(target: "cx10::serve", "{text}"));
    }
    result?;
    Ok(summary.verdict().exit_code())
}
