//! The vfio-user server loop.
//!
//! It serves one client at a time and never waits: the caller watches the descriptors and calls
//! [`Server::on_listener`] and [`Server::on_ready`], which do a bounded amount of work. A second client stays
//! in the kernel's listen queue until the first has gone. The device behind it is any
//! `vfio_user::ServerBackend`.
//!
//! Rules. Sizes are checked before anything is allocated. A message whose header cannot be followed ends the
//! connection; every other error is answered with a non-zero errno and the stream stays in step, because a
//! message is consumed as a whole before it is looked at. A message with No_reply is never answered. Replies to
//! messages of ours do not exist, so messages of that type are dropped. A range that DMA_UNMAP names is quiet
//! when the reply leaves, because the backend answers only then.
//!
//! When the client goes, the function is reset, every eventfd is dropped and every map is removed, in this
//! order and through the backend's own calls.
//!
//! Not supported, and refused: DEVICE_FEATURE and migration, ioeventfds, dirty page tracking, DMA through
//! messages, INTx and MSI masking.
//!
//! Sources: QEMU 11.1.3 as a client (`hw/vfio-user/`), Linux `include/uapi/linux/vfio.h`.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use log::Level;
use vfio_user::{DmaUnmapFlags, ServerBackend};

use super::connection::{Receiver, Sender};
use super::layout::Layout;
use super::listener::{Accepted, Listener};
use super::message::SetIrqs;
use super::session::{Connection, Session};
use super::version;
use crate::dma::map::UNMAP_ALL;

pub(super) const LOG: &str = "cx10::transport";

/// Messages (or entries of a multi-write) handled per call of [`Server::on_ready`].
pub const BUDGET: usize = 256;

/// A client that has not negotiated after this many nanoseconds is dropped: others may be waiting. QEMU negotiates
/// at once, and gives up after 5 s when it waits itself.
pub const NEGOTIATION_NS: u64 = 3_000_000_000;

/// A refused client gets this many nanoseconds to take the refusal.
pub const GOODBYE_NS: u64 = 1_000_000_000;

/// A failed accept is tried again after this many nanoseconds.
const ACCEPT_RETRY_NS: u64 = 100_000_000;

/// Why a client is gone.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// It closed the connection.
    #[error("client closed the connection")]
    Closed,
    /// It broke the protocol in a way that ends the connection.
    #[error("client broke the protocol: {0}")]
    Protocol(String),
    /// It did not negotiate, or did not take a refusal, in time.
    #[error("client did not answer in time")]
    TimedOut,
    /// The socket failed.
    #[error("socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// What a call of [`Server::on_ready`] did.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages handled.
    pub handled: usize,
    /// Replies were made: the client has been waiting, and may ask again at once.
    pub answered: bool,
    /// Whole messages are left in the buffer; call again without waiting for the socket.
    pub more: bool,
    /// The client is gone; stop watching its descriptor, then call [`Server::disconnect`].
    pub gone: Option<Gone>,
}

/// Counters since the server was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Clients accepted.
    pub clients: u64,
    /// Messages handled.
    pub messages: u64,
    /// Messages refused with an error.
    pub refused: u64,
    /// Replies dropped that nobody had asked for.
    pub stray_replies: u64,
}

/// Keeps a client that misbehaves, or comes and goes, from filling the log.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    second: u64,
    said: u32,
    unsaid: u64,
}

impl LogLimit {
    const PER_SECOND: u32 = 20;

    pub(super) fn say(&mut self, now: u64, level: log::Level, what: fmt::Arguments<'_>) {
        let second = now / 1_000_000_000;
        if second != self.second {
            if self.unsaid > 0 {
                log::warn!(target: LOG, "{} more messages were not shown", self.unsaid);
            }
            *self = LogLimit { second, ..LogLimit::default() };
        }
        if self.said < LogLimit::PER_SECOND {
            self.said += 1;
            log::log!(target: LOG, level, "{what}");
        } else {
            self.unsaid += 1;
        }
    }
}

/// A vfio-user server.
#[derive(Debug)]
pub struct Server {
    layout: Layout,
    version_reply: Vec<u8>,
    listener: Option<Listener>,
    connection: Option<Connection>,
    accept_again: Option<u64>,
    stats: Stats,
    log: LogLimit,
}

impl Server {
    /// A server that accepts clients from `listener`.
    pub fn new(listener: Listener, layout: Layout) -> Server {
        Server { listener: Some(listener), ..Server::detached(layout) }
    }

    /// A server that only serves streams given to [`Server::attach`].
    pub fn detached(layout: Layout) -> Server {
        Server {
            layout,
            version_reply: version::reply(),
            listener: None,
            connection: None,
            accept_again: None,
            stats: Stats::default(),
            log: LogLimit::default(),
        }
    }

    /// Logs why a client is gone, unless there are too many of these.
    pub fn log_gone(&mut self, gone: &Gone, now: u64) {
        let level = if let Gone::Closed = gone { Level::Info } else { Level::Warn };
        self.log.say(now, level, format_args!("{gone}"));
    }

    /// Changes what the next client sees. To be called before its first message is handled.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The descriptor to watch (edge-triggered, for reading) for new clients.
    pub fn listener_fd(&self) -> Option<RawFd> {
        self.listener.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The client's descriptor, to be watched for reading, and for writing if [`Server::wants_write`].
    pub fn connection_fd(&self) -> Option<RawFd> {
        self.connection.as_ref().map(|c| c.stream.as_raw_fd())
    }

    /// Replies wait for room in the socket; nothing is read until they have left.
    pub fn wants_write(&self) -> bool {
        self.connection.as_ref().is_some_and(|c| c.tx.pending() > 0)
    }

    /// Whole messages wait in the buffer.
    pub fn has_work(&self) -> bool {
        self.connection.as_ref().is_some_and(|c| c.closing.is_none() && c.tx.pending() == 0 && c.rx.is_ready())
    }

    /// When [`Server::on_deadline`] has to be called.
    pub fn deadline(&self) -> Option<u64> {
        let connection = self.connection.as_ref().and_then(|c| c.deadline);
        [connection, self.accept_again].into_iter().flatten().min()
    }

    /// Takes the next client if there is none; `true` if one was taken. To be called when the listener is
    /// readable and after [`Server::disconnect`].
    pub fn on_listener(&mut self, now: u64) -> bool {
        let Some(listener) = &self.listener else { return false };
        if self.connection.is_some() {
            self.log.say(now, Level::Info, format_args!("another client is waiting for this one to leave"));
            return false;
        }
        self.accept_again = None;
        match listener.accept() {
            Accepted::Client(stream) => {
                self.log.say(now, Level::Info, format_args!("client connected"));
                self.attach(stream, now);
                true
            }
            Accepted::None => false,
            Accepted::Failed(error) => {
                self.log.say(now, Level::Warn, format_args!("cannot accept a client: {error}"));
                self.accept_again = Some(now.saturating_add(ACCEPT_RETRY_NS));
                false
            }
        }
    }

    /// Serves a stream that is connected already; the previous client must be gone.
    pub fn attach(&mut self, stream: UnixStream, now: u64) {
        debug_assert!(self.connection.is_none());
        self.stats.clients += 1;
        self.connection = Some(Connection {
            stream,
            rx: Receiver::default(),
            tx: Sender::default(),
            client: None,
            closing: None,
            deadline: Some(now.saturating_add(NEGOTIATION_NS)),
            complained: 0,
        });
    }

    /// A deadline has passed. Answers why the client has to go, if it has.
    pub fn on_deadline(&mut self, now: u64) -> Option<Gone> {
        let connection = self.connection.as_mut()?;
        if connection.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        connection.deadline = None;
        Some(connection.closing.take().unwrap_or(Gone::TimedOut))
    }

    /// Receives, handles and answers; at most [`BUDGET`] messages.
    pub fn on_ready(&mut self, backend: &mut dyn ServerBackend, now: u64) -> Progress {
        let mut progress = Progress::default();
        let Some(connection) = &mut self.connection else { return progress };
        let mut session = Session {
            layout: &self.layout,
            version_reply: &self.version_reply,
            stats: &mut self.stats,
            log: &mut self.log,
            now,
            backend,
            connection,
            left: BUDGET,
            answered: false,
        };
        match session.serve() {
            Ok(()) => {}
            Err(gone) => progress.gone = Some(gone),
        }
        progress.handled = BUDGET - session.left;
        progress.answered = session.answered;
        progress.more = progress.gone.is_none() && self.has_work();
        progress
    }

    /// Ends the connection: resets the function, drops its eventfds and its maps. The caller must have stopped
    /// watching the descriptor.
    pub fn disconnect(&mut self, backend: &mut dyn ServerBackend) {
        if self.connection.take().is_none() {
            return;
        }
        let complain = |what: &str, result: io::Result<()>| {
            if let Err(error) = result {
                log::error!(target: LOG, "{what} at disconnect: {error}");
            }
        };
        complain("reset", backend.reset());
        let off = SetIrqs::DATA_NONE | SetIrqs::ACTION_TRIGGER;
        for (index, irq) in (0u32..).zip(&self.layout.irqs) {
            if irq.count > 0 {
                complain("dropping eventfds", backend.set_irqs(index, off, 0, 0, Vec::new()));
            }
        }
        complain("dropping maps", backend.dma_unmap(DmaUnmapFlags::from_bits_retain(UNMAP_ALL), 0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::LogLimit;

    #[test]
    fn the_log_takes_twenty_messages_a_second() {
        let mut limit = LogLimit::default();
        (0..100).for_each(|_| limit.say(5, log::Level::Debug, format_args!("x")));
        assert_eq!((limit.said, limit.unsaid), (20, 80));
        limit.say(1_000_000_000, log::Level::Debug, format_args!("x"));
        assert_eq!((limit.said, limit.unsaid), (1, 0));
    }
}
