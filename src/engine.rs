//! The event loop that owns the function.
//!
//! One thread, one loop. It answers the VMM first and lets the device work afterwards, in bounded portions on
//! both sides, so that a register access is answered promptly however busy the device is. When nothing is to
//! be done the loop sleeps in `epoll_wait` and uses no processor time.
//!
//! A device that polls for doorbells does not let the loop sleep: see [`Idle`] for what that costs.
//!
//! The loop has one subscriber with these descriptors: the listening socket, the client's socket, a timer, a
//! "kick" eventfd that stays readable while work is left over, the stop eventfd and the signals.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use vfio_user::ServerBackend;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::timerfd::TimerFd;

use crate::device::Function;
use crate::device::function::BAR0_SIZE;
use crate::device::uar;
use crate::sys::{SignalFd, set_nonblocking};
use crate::transport::layout::{Layout, SparseArea};
use crate::transport::listener::{DEFAULT_MODE, Listener};
use crate::transport::server::{Gone, Server, Stats};

const LOG: &str = "cx10::engine";

/// What a device says after a portion of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// More work is ready now; the loop serves the VMM and calls again without waiting.
    pub more: bool,
    /// There was something to do.
    pub busy: bool,
    /// Work may become ready without a message: the loop calls again soon, however idle it is. See [`Idle`].
    pub polls: bool,
    /// When to call again at the latest, in the nanoseconds of [`Device::run`]'s `now`.
    pub next_deadline: Option<u64>,
}

/// A function that the loop can own.
///
/// The transport reaches it through [`ServerBackend`]. When a VMM disconnects the loop calls, in this order,
/// `reset`, `set_irqs` with DATA_NONE | ACTION_TRIGGER and count 0 for every interrupt index with vectors, and
/// `dma_unmap` with the UNMAP_ALL bit (bit 1) and a zero range.
pub trait Device: ServerBackend {
    /// Regions and interrupts, asked before the first VMM is accepted and when one has connected.
    fn layout(&self) -> Layout;

    /// Does a bounded portion of work: a few hundred microseconds at most.
    ///
    /// `now` is monotonic, in nanoseconds since the loop started; the device has no other clock. Called after
    /// each batch of messages, when a deadline has passed, and again at once while it answers `more`.
    fn run(&mut self, now: u64) -> Work;

    /// A VMM connected.
    fn attached(&mut self) {}

    /// The VMM is gone; the calls that its disconnection makes have been made.
    fn detached(&mut self) {}
}

impl Device for Function {
    fn layout(&self) -> Layout {
        let mut layout = Layout::pci(BAR0_SIZE, self.irq().count());
        if let Some(polling) = &self.hca().polling {
            let offset = u64::from(uar::FIRST) * uar::PAGE;
            layout.map_bar0(SparseArea { offset, size: uar::END - offset }, polling.pages().fd());
        }
        layout
    }

    fn run(&mut self, now: u64) -> Work {
        let progress = self.work();
        if !progress.more {
            self.trace().flush();
        }
        Work {
            more: progress.more,
            busy: progress.busy,
            polls: progress.polls,
            next_deadline: progress.wait.map(|wait| now.saturating_add(wait)),
        }
    }

    fn attached(&mut self) {
        self.vmm_attached();
    }

    fn detached(&mut self) {
        self.vmm_gone();
    }
}

/// Why a loop could not be started or had to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A descriptor of the loop itself cannot be made or watched.
    #[error("event loop: {0}")]
    Loop(String),
}

fn loop_error(error: impl std::fmt::Display) -> Error {
    Error::Loop(error.to_string())
}

/// Why [`serve`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// [`Stop::stop`] was called.
    Stopped,
    /// One of the signals given to [`Stop::on_signals`] came.
    Signal(i32),
    /// The client left and [`Options::once`] was set.
    ClientLeft,
}

/// Options of [`serve`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Permission bits of the socket file.
    pub socket_mode: u32,
    /// End when the first client has left instead of waiting for the next.
    pub once: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { socket_mode: DEFAULT_MODE, once: false }
    }
}

/// Ends a loop from outside: by another thread, or by signals.
#[derive(Clone, Debug)]
pub struct Stop {
    event: Arc<EventFd>,
    signals: Option<Arc<SignalFd>>,
}

impl Stop {
    /// A handle that only [`Stop::stop`] triggers.
    pub fn new() -> io::Result<Stop> {
        Ok(Stop { event: Arc::new(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?), signals: None })
    }

    /// Also triggered by the given signals, which are blocked for the calling thread (and for threads it
    /// starts later) from now on. SIGTERM and SIGINT for a program.
    pub fn on_signals(signals: &[i32]) -> io::Result<Stop> {
        Ok(Stop { signals: Some(Arc::new(SignalFd::new(signals)?)), ..Stop::new()? })
    }

    /// Ends the loop.
    pub fn stop(&self) {
        if let Err(error) = self.event.write(1) {
            log::error!(target: LOG, "stop: {error}");
        }
    }
}

/// Serves `device` on a socket at `path`, one VMM after the other, until `stop`. The socket file is gone when
/// this returns.
pub fn serve<D: Device>(path: &Path, device: &mut D, options: &Options, stop: &Stop) -> Result<Exit, Error> {
    let listener =
        Listener::bind(path, options.socket_mode).map_err(|source| Error::Listen { path: path.to_owned(), source })?;
    let server = Server::new(listener, device.layout());
    log::info!(target: LOG, "listening on {}", path.display());
    run(server, device, options, stop).map(|(exit, _)| exit)
}

/// Runs a loop around a server that exists already; also answers what the server counted.
pub fn run<D: Device>(server: Server, device: &mut D, options: &Options, stop: &Stop) -> Result<(Exit, Stats), Error> {
    let engine = Engine::new(server, device, options, stop)?;
    let mut manager = EventManager::new().map_err(loop_error)?;
    let id = manager.add_subscriber(engine);
    loop {
        let engine = manager.subscriber_mut(id).map_err(loop_error)?;
        if let Some(end) = engine.end.take() {
            if engine.server.connection_fd().is_some() {
                engine.server.disconnect(engine.device);
                engine.device.detached();
            }
            return end.map(|exit| (exit, engine.server.stats()));
        }
        manager.run().map_err(loop_error)?;
    }
}

/// A round ends after this time, so that timers, signals and a stop are looked at.
const ROUND_NS: u64 = 1_000_000;

/// How long to look for the next request after a reply, before going to sleep.
///
/// A guest reads registers one after the other, and most of the time of a read is the wake-up of the two sides. So
/// the loop looks a little longer (yielding the processor each time) when sleeping turned out to have been too
/// hasty, and less, down to not at all, when the next request took long. A loop without requests never looks.
#[derive(Debug, Default)]
struct Linger {
    ns: u64,
}

impl Linger {
    const LEAST: u64 = 4_000;
    const MOST: u64 = 64_000;

    fn get(&self) -> u64 {
        self.ns
    }

    /// The next request came `after` nanoseconds, some or all of them asleep.
    fn woken(&mut self, after: u64) {
        self.ns = match (after < Linger::MOST, self.ns) {
            (true, ns) => (2 * ns).clamp(Linger::LEAST, Linger::MOST),
            (false, ns) if ns > Linger::LEAST => ns / 2,
            (false, _) => 0,
        };
    }
}

/// How the loop waits for doorbells that it has to look for.
///
/// At first it looks without a break, then it lets others have the processor between two looks, and a device that has
/// been idle for long is looked at from time to time. So a doorbell is found within a fraction of a microsecond while
/// traffic flows, and within [`Idle::NAP_NS`] and a wake-up (60 to 150 us) after a pause. The cost: one processor,
/// whole, while traffic flows and for [`Idle::YIELD_NS`] after it, as far as nobody else wants it; about a tenth of
/// one while the guest is quiet; nothing while no VMM is attached or its driver has no queues.
#[derive(Debug, Default)]
struct Idle {
    /// When there was something to do for the last time.
    since: u64,
}

/// What to do between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Spin,
    Yield,
    Nap,
}

impl Idle {
    /// How long the loop looks without a break.
    const SPIN_NS: u64 = 100_000;
    /// How long it looks before it begins to sleep.
    const YIELD_NS: u64 = 20_000_000;
    /// How long it sleeps.
    const NAP_NS: u64 = 100_000;
    /// How often it looks at the client's socket meanwhile; that is a system call.
    const SOCKET_NS: u64 = 20_000;

    fn wait(&self, now: u64) -> Wait {
        match now.saturating_sub(self.since) {
            idle if idle < Idle::SPIN_NS => Wait::Spin,
            idle if idle < Idle::YIELD_NS => Wait::Yield,
            _ => Wait::Nap,
        }
    }
}

struct Engine<'a, D> {
    server: Server,
    device: &'a mut D,
    once: bool,
    stop: Stop,
    timer: TimerFd,
    kick: EventFd,
    start: Instant,
    /// The client's descriptor and what it is watched for.
    watched: Option<(RawFd, EventSet)>,
    /// The kick is readable.
    kicked: bool,
    /// What the timer is set to.
    armed: Option<u64>,
    end: Option<Result<Exit, Error>>,
    linger: Linger,
    idle: Idle,
    /// When the client had its last answer, or the last round ended.
    waiting_since: u64,
}

impl<'a, D: Device> Engine<'a, D> {
    fn new(server: Server, device: &'a mut D, options: &Options, stop: &Stop) -> Result<Self, Error> {
        let timer = TimerFd::new().map_err(loop_error)?;
        // An expiry may be taken back by setting the timer anew before its event is looked at.
        set_nonblocking(&timer).map_err(loop_error)?;
        Ok(Engine {
            server,
            device,
            once: options.once,
            stop: stop.clone(),
            timer,
            kick: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(loop_error)?,
            start: Instant::now(),
            watched: None,
            kicked: false,
            armed: None,
            end: None,
            linger: Linger::default(),
            idle: Idle::default(),
            waiting_since: 0,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn fail(&mut self, error: impl std::fmt::Display) {
        self.end.get_or_insert_with(|| Err(loop_error(error)));
    }

    /// One round: the VMM first, then the device, then what to wait for. While the VMM asks one question after the
    /// other the round goes on, up to [`ROUND_NS`].
    fn round(&mut self, ops: &mut EventOps<'_>) {
        let start = self.now();
        let mut now = start;
        let mut work = Work::default();
        let mut more = false;
        let mut answered_at: Option<u64> = None;
        let mut nap = None;
        while self.end.is_none() {
            let progress = self.server.on_ready(self.device, now);
            let gone = progress.gone.or_else(|| self.server.on_deadline(now));
            let left = gone.is_some();
            if let Some(gone) = gone {
                self.gone(gone, ops);
            }
            if self.server.connection_fd().is_none() && self.end.is_none() && self.server.on_listener(now) {
                self.device.attached();
                self.server.set_layout(self.device.layout());
            }
            let idle_since = answered_at.filter(|_| progress.handled == 0 && !left);
            if let Some(since) = idle_since {
                if now - since >= self.linger.get() {
                    break;
                }
                std::thread::yield_now();
                now = self.now();
                continue;
            }
            work = self.device.run(now);
            if work.polls {
                if progress.handled > 0 || progress.more {
                    self.idle.since = now;
                }
                let wait;
                (work, wait) = self.look(work, now);
                now = self.now();
                more = wait != Wait::Nap;
                if !more {
                    nap = Some(now.saturating_add(Idle::NAP_NS));
                }
                if !more || now - start >= ROUND_NS {
                    break;
                }
                continue;
            }
            more = progress.more || work.more || self.server.has_work();
            if more || left || !progress.answered || self.linger.get() == 0 || now - start >= ROUND_NS {
                break;
            }
            now = self.now();
            answered_at = Some(now);
        }
        self.watch(ops);
        self.set_kick(more);
        let deadline = [work.next_deadline, self.server.deadline(), nap].into_iter().flatten().min();
        self.arm(deadline);
        self.waiting_since = answered_at.unwrap_or(now);
    }

    /// Looks for doorbells until it is time for the socket again, or to sleep. `work` is what the last call said.
    fn look(&mut self, mut work: Work, mut now: u64) -> (Work, Wait) {
        let until = now.saturating_add(Idle::SOCKET_NS);
        loop {
            let mut wait = Wait::Spin;
            if work.busy || work.more {
                self.idle.since = now;
            } else {
                wait = self.idle.wait(now);
            }
            match wait {
                Wait::Spin => std::hint::spin_loop(),
                Wait::Yield => std::thread::yield_now(),
                Wait::Nap => return (work, wait),
            }
            now = self.now();
            if now >= until || !work.polls {
                return (work, wait);
            }
            work = self.device.run(now);
        }
    }

    fn gone(&mut self, gone: Gone, ops: &mut EventOps<'_>) {
        self.server.log_gone(&gone, self.now());
        let removed = self.watched.take().map_or(Ok(()), |(fd, _)| ops.remove(Events::empty_raw(fd)));
        if let Err(error) = removed {
            self.fail(error);
        }
        self.server.disconnect(self.device);
        self.device.detached();
        if self.once {
            self.end.get_or_insert(Ok(Exit::ClientLeft));
        }
    }

    /// Watches the client for reading, or, while replies wait for room, only for writing.
    fn watch(&mut self, ops: &mut EventOps<'_>) {
        let Some(fd) = self.server.connection_fd() else { return };
        let wanted = if self.server.wants_write() { EventSet::OUT } else { EventSet::IN };
        let result = match self.watched {
            Some((old, set)) if old == fd && set == wanted => Ok(()),
            Some((old, _)) if old == fd => ops.modify(Events::new_raw(fd, wanted)),
            _ => ops.add(Events::new_raw(fd, wanted)),
        };
        match result {
            Ok(()) => self.watched = Some((fd, wanted)),
            Err(error) => self.fail(error),
        }
    }

    fn set_kick(&mut self, wanted: bool) {
        if wanted == self.kicked {
            return;
        }
        let result = if wanted { self.kick.write(1) } else { self.kick.read().map(drop) };
        match result {
            Ok(()) => self.kicked = wanted,
            Err(error) => self.fail(error),
        }
    }

    fn arm(&mut self, deadline: Option<u64>) {
        if deadline == self.armed {
            return;
        }
        let result = match deadline {
            // A zero duration would disarm the timer.
            Some(at) => self.timer.reset(Duration::from_nanos(at.saturating_sub(self.now()).max(1)), None),
            None => self.timer.clear(),
        };
        match result {
            Ok(()) => self.armed = deadline,
            Err(error) => self.fail(error),
        }
    }
}

impl<D: Device> MutEventSubscriber for Engine<'_, D> {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        let mut fds = vec![
            (self.timer.as_raw_fd(), EventSet::IN),
            (self.kick.as_raw_fd(), EventSet::IN),
            (self.stop.event.as_raw_fd(), EventSet::IN),
        ];
        fds.extend(self.stop.signals.as_ref().map(|signals| (signals.as_raw_fd(), EventSet::IN)));
        // Edge-triggered: while a client is served, others may wait without waking the loop again and again.
        fds.extend(self.server.listener_fd().map(|fd| (fd, EventSet::IN | EventSet::EDGE_TRIGGERED)));
        for (fd, set) in fds {
            if let Err(error) = ops.add(Events::new_raw(fd, set)) {
                self.fail(error);
            }
        }
        self.round(ops);
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        let fd = events.fd();
        if self.end.is_some() {
            return;
        }
        if fd == self.stop.event.as_raw_fd() {
            self.end = Some(Ok(Exit::Stopped));
            return;
        }
        if let Some(signals) = self.stop.signals.as_ref().filter(|signals| signals.as_raw_fd() == fd) {
            match signals.take() {
                Ok(Some(signal)) => {
                    log::info!(target: LOG, "signal {signal}");
                    self.end = Some(Ok(Exit::Signal(signal)));
                }
                Ok(None) => {}
                Err(error) => self.fail(error),
            }
            return;
        }
        if fd == self.timer.as_raw_fd() {
            match self.timer.wait() {
                Ok(_) => self.armed = None,
                Err(error) if error.errno() == libc::EAGAIN => {}
                Err(error) => self.fail(error),
            }
        } else if Some(fd) == self.server.listener_fd() && self.server.connection_fd().is_some() {
            let now = self.now();
            self.server.on_listener(now);
            return;
        }
        if self.watched.is_some_and(|(client, _)| client == fd) {
            self.linger.woken(self.now().saturating_sub(self.waiting_since));
        }
        self.round(ops);
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, Linger, Wait};

    #[test]
    fn a_quiet_device_is_looked_at_less_and_less() {
        let idle = Idle { since: 1_000 };
        assert_eq!(idle.wait(1_000), Wait::Spin);
        assert_eq!(idle.wait(1_000 + Idle::SPIN_NS), Wait::Yield);
        assert_eq!(idle.wait(1_000 + Idle::YIELD_NS), Wait::Nap);
    }

    #[test]
    fn quick_questions_make_the_loop_look_longer_and_slow_ones_not_at_all() {
        let mut linger = Linger::default();
        assert_eq!(linger.get(), 0);
        (0..10).for_each(|_| linger.woken(10_000));
        assert_eq!(linger.get(), Linger::MOST);
        (0..10).for_each(|_| linger.woken(1_000_000));
        assert_eq!(linger.get(), 0);
    }
}
