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
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use log::Level;
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::connection::{Filled, Frame, Framing, Receiver, Sender};
use super::layout::{IrqFlags, Layout, Region, RegionFlags};
use super::listener::{Accepted, Listener};
use super::message::{
    Command, DmaMap, DmaUnmap, Header, InfoRequest, MAX_DATA, RegionAccess, SetIrqs, WriteMulti, flag,
};
use super::version;
use crate::dma::map::{MAP_READ, MAP_WRITE, UNMAP_ALL};

const LOG: &str = "cx10::transport";

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
struct LogLimit {
    second: u64,
    said: u32,
    unsaid: u64,
}

impl LogLimit {
    const PER_SECOND: u32 = 20;

    fn say(&mut self, now: u64, level: log::Level, what: fmt::Arguments<'_>) {
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

/// A refusal of one message.
struct Refusal {
    errno: i32,
    /// The connection ends with it.
    fatal: bool,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal { errno: error.raw_os_error().unwrap_or(libc::EIO), fatal: false }
    }
}

fn refuse<T>(errno: i32) -> Result<T, Refusal> {
    Err(Refusal { errno, fatal: false })
}

fn invalid() -> Refusal {
    Refusal { errno: libc::EINVAL, fatal: false }
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    rx: Receiver,
    tx: Sender,
    client: Option<version::Client>,
    /// Replies are being sent for the last time.
    closing: Option<Gone>,
    deadline: Option<u64>,
    /// Commands (by bit) of which a refusal has been logged.
    complained: u64,
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

/// One call's view of the server.
struct Session<'a> {
    layout: &'a Layout,
    version_reply: &'a [u8],
    stats: &'a mut Stats,
    log: &'a mut LogLimit,
    now: u64,
    backend: &'a mut dyn ServerBackend,
    connection: &'a mut Connection,
    left: usize,
    answered: bool,
}

impl Session<'_> {
    fn serve(&mut self) -> Result<(), Gone> {
        if !self.flush()? || self.connection.closing.is_some() {
            return self.finish();
        }
        if !self.connection.rx.is_ready() {
            match self.connection.rx.fill(&self.connection.stream) {
                Ok(Filled::Some) => {}
                Ok(Filled::Nothing) => return Ok(()),
                Ok(Filled::End) => return Err(Gone::Closed),
                Ok(Filled::Failed(error)) => return Err(Gone::Socket(error)),
                Err(framing) => self.lost_step(framing),
            }
        }
        while self.left > 0 && self.connection.closing.is_none() && !self.connection.tx.is_full() {
            match self.connection.rx.take_frame() {
                Ok(Some(frame)) => self.message(frame),
                Ok(None) => break,
                Err(framing) => self.lost_step(framing),
            }
        }
        self.answered = self.connection.tx.pending() > 0;
        self.flush()?;
        self.finish()
    }

    fn flush(&mut self) -> Result<bool, Gone> {
        Ok(self.connection.tx.flush(&self.connection.stream)?)
    }

    /// A connection that is closing ends when its last reply has left.
    fn finish(&mut self) -> Result<(), Gone> {
        match self.connection.closing.take() {
            Some(gone) if self.connection.tx.pending() == 0 => Err(gone),
            closing => {
                self.connection.closing = closing;
                Ok(())
            }
        }
    }

    fn close(&mut self, why: String) {
        self.connection.closing = Some(Gone::Protocol(why));
        self.connection.deadline = Some(self.now.saturating_add(GOODBYE_NS));
    }

    fn lost_step(&mut self, framing: Framing) {
        self.stats.refused += 1;
        let why = match framing {
            Framing::TooSmall(header) | Framing::TooLarge(header) => {
                if header.kind() == flag::COMMAND && !header.no_reply() {
                    let errno = if let Framing::TooSmall(_) = framing { libc::EINVAL } else { libc::EMSGSIZE };
                    self.connection.tx.push(header.error_reply(errno), &[]);
                }
                format!("{:?} of {:#x} bytes", header.command, header.size)
            }
            Framing::Descriptors => "descriptors in the middle of a message".to_owned(),
        };
        self.close(why);
    }

    fn message(&mut self, mut frame: Frame) {
        self.left -= 1;
        self.stats.messages += 1;
        let header = frame.header;
        if header.kind() == flag::REPLY {
            // Nothing was asked, so nothing is answered; answering would only confuse both sides.
            self.stats.stray_replies += 1;
            log::debug!(target: LOG, "dropped a reply to {:?} id {:#x}", header.command, header.id);
            return;
        }
        log::trace!(target: LOG, "{:?} id {:#x} size {} flags {:#x}", header.command, header.id, header.size, header.flags);
        let fds = std::mem::take(&mut frame.fds);
        let result = if header.kind() != flag::COMMAND || frame.fds_lost {
            refuse(libc::EINVAL)
        } else {
            self.dispatch(&frame, fds)
        };
        if let Err(refusal) = result {
            self.stats.refused += 1;
            self.complain(header, refusal.errno);
            if !header.no_reply() {
                self.connection.tx.push(header.error_reply(refusal.errno), &[]);
            }
            if refusal.fatal {
                self.close(format!("{:?} refused", header.command));
            }
        }
    }

    fn complain(&mut self, header: Header, errno: i32) {
        let bit = 1u64 << header.command.0.min(63);
        let first = self.connection.complained & bit == 0;
        self.connection.complained |= bit;
        let error = io::Error::from_raw_os_error(errno);
        let what = format_args!("{:?} id {:#x} size {} refused: {error}", header.command, header.id, header.size);
        if first {
            self.log.say(self.now, Level::Warn, what);
        } else {
            log::debug!(target: LOG, "{what}");
        }
    }

    fn dispatch(&mut self, frame: &Frame, fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        let header = frame.header;
        if header.command == Command::VERSION {
            return self.version(frame);
        }
        if self.connection.client.is_none() {
            return refuse(libc::EINVAL);
        }
        match header.command {
            Command::REGION_WRITE => self.region_write(frame),
            Command::REGION_READ => self.region_read(frame),
            Command::REGION_WRITE_MULTI => self.region_write_multi(frame),
            Command::DMA_MAP => self.dma_map(frame, fds),
            Command::DMA_UNMAP => self.dma_unmap(frame),
            Command::GET_INFO => self.get_info(frame),
            Command::GET_REGION_INFO => self.get_region_info(frame),
            Command::GET_IRQ_INFO => self.get_irq_info(frame),
            Command::SET_IRQS => self.set_irqs(frame, fds),
            Command::RESET => {
                if !frame.payload.is_empty() {
                    return refuse(libc::EINVAL);
                }
                self.backend.reset()?;
                self.answer(header, &[])
            }
            // What the kernel answers for a feature that a device does not have.
            Command::DEVICE_FEATURE => refuse(libc::ENOTTY),
            Command::GET_REGION_IO_FDS | Command::DIRTY_PAGES | Command::MIG_DATA_READ | Command::MIG_DATA_WRITE => {
                refuse(libc::EOPNOTSUPP)
            }
            _ => refuse(libc::EINVAL),
        }
    }

    fn answer(&mut self, header: Header, payload: &[u8]) -> Result<(), Refusal> {
        if !header.no_reply() {
            self.connection.tx.push(header.reply(payload.len()), payload);
        }
        Ok(())
    }

    /// A request that makes no sense without a reply.
    fn wants_reply(header: Header) -> Result<(), Refusal> {
        if header.no_reply() { refuse(libc::EINVAL) } else { Ok(()) }
    }

    fn version(&mut self, frame: &Frame) -> Result<(), Refusal> {
        Self::wants_reply(frame.header)?;
        if self.connection.client.is_some() {
            return refuse(libc::EINVAL);
        }
        match version::parse(self.connection.rx.payload(frame)) {
            Ok(client) => {
                self.log.say(
                    self.now,
                    Level::Info,
                    format_args!("client speaks version 0.{}, {client:?}", client.minor),
                );
                self.connection.client = Some(client);
                self.connection.deadline = None;
                self.answer(frame.header, self.version_reply)
            }
            Err(error) => {
                self.log.say(self.now, Level::Warn, format_args!("negotiation failed: {error}"));
                Err(Refusal { errno: libc::EINVAL, fatal: true })
            }
        }
    }

    fn dma_map(&mut self, frame: &Frame, mut fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        let map = DmaMap::parse(self.connection.rx.payload(frame)).ok_or_else(invalid)?;
        let rights = map.flags & (MAP_READ | MAP_WRITE);
        let wraps = map.size == 0 || map.address.checked_add(map.size - 1).is_none();
        if (map.argsz as usize) < DmaMap::SIZE || rights != map.flags || rights == 0 || wraps || fds.len() > 1 {
            return refuse(libc::EINVAL);
        }
        let flags = DmaMapFlags::from_bits_retain(map.flags);
        self.backend.dma_map(flags, map.offset, map.address, map.size, fds.pop().map(File::from))?;
        self.answer(frame.header, &[])
    }

    fn dma_unmap(&mut self, frame: &Frame) -> Result<(), Refusal> {
        let payload = self.connection.rx.payload(frame);
        let unmap = DmaUnmap::parse(payload).ok_or_else(invalid)?;
        let sensible = match unmap.flags {
            0 => unmap.size != 0 && unmap.address.checked_add(unmap.size - 1).is_some(),
            UNMAP_ALL => unmap.address == 0 && unmap.size == 0,
            _ => false,
        };
        if (unmap.argsz as usize) < DmaUnmap::SIZE || !sensible {
            return refuse(libc::EINVAL);
        }
        self.backend.dma_unmap(DmaUnmapFlags::from_bits_retain(unmap.flags), unmap.address, unmap.size)?;
        if !frame.header.no_reply() {
            let echo = &self.connection.rx.payload(frame)[..DmaUnmap::SIZE];
            self.connection.tx.push(frame.header.reply(DmaUnmap::SIZE), echo);
        }
        Ok(())
    }

    fn info_request(&self, frame: &Frame, size: usize) -> Result<InfoRequest, Refusal> {
        Self::wants_reply(frame.header)?;
        let request = InfoRequest::parse(self.connection.rx.payload(frame), size).ok_or_else(invalid)?;
        if (request.argsz as usize) < size { refuse(libc::EINVAL) } else { Ok(request) }
    }

    fn get_info(&mut self, frame: &Frame) -> Result<(), Refusal> {
        const FLAG_RESET: u32 = 1 << 0;
        const FLAG_PCI: u32 = 1 << 1;
        self.info_request(frame, InfoRequest::SIZE)?;
        let flags = FLAG_PCI | if self.layout.resettable { FLAG_RESET } else { 0 };
        let words = [InfoRequest::SIZE as u32, flags, self.layout.regions.len() as u32, self.layout.irqs.len() as u32];
        self.answer(frame.header, &words.map(u32::to_ne_bytes).concat())
    }

    fn get_irq_info(&mut self, frame: &Frame) -> Result<(), Refusal> {
        let request = self.info_request(frame, InfoRequest::SIZE)?;
        let irq = self.layout.irqs.get(request.index as usize).ok_or_else(invalid)?;
        let words = [InfoRequest::SIZE as u32, irq.flags.bits(), request.index, irq.count];
        self.answer(frame.header, &words.map(u32::to_ne_bytes).concat())
    }

    fn get_region_info(&mut self, frame: &Frame) -> Result<(), Refusal> {
        const FLAG_CAPS: u32 = 1 << 3;
        const CAP_SPARSE_MMAP: u16 = 1;
        let request = self.info_request(frame, InfoRequest::REGION_SIZE)?;
        let region = self.layout.regions.get(request.index as usize).ok_or_else(invalid)?;
        let mut caps = Vec::new();
        if !region.areas.is_empty() {
            caps.extend_from_slice(&CAP_SPARSE_MMAP.to_ne_bytes());
            caps.extend_from_slice(&1u16.to_ne_bytes());
            caps.extend_from_slice(&0u32.to_ne_bytes());
            caps.extend_from_slice(&(region.areas.len() as u32).to_ne_bytes());
            caps.extend_from_slice(&0u32.to_ne_bytes());
            for area in &region.areas {
                caps.extend_from_slice(&area.offset.to_ne_bytes());
                caps.extend_from_slice(&area.size.to_ne_bytes());
            }
        }
        let full = InfoRequest::REGION_SIZE + caps.len();
        let fits = request.argsz as usize >= full;
        let (flags, cap_offset) = match (caps.is_empty(), fits) {
            (true, _) => (region.flags.bits(), 0),
            // The client learns from argsz that it has to ask again.
            (false, false) => (region.flags.bits() | FLAG_CAPS, 0),
            (false, true) => (region.flags.bits() | FLAG_CAPS, InfoRequest::REGION_SIZE as u32),
        };
        let mut payload = [full as u32, flags, request.index, cap_offset].map(u32::to_ne_bytes).concat();
        payload.extend_from_slice(&region.size.to_ne_bytes());
        payload.extend_from_slice(&region.mmap_offset.to_ne_bytes());
        if fits {
            payload.extend_from_slice(&caps);
        }
        let reply = frame.header.reply(payload.len());
        let takes_fd = self.connection.client.is_some_and(|client| client.max_msg_fds > 0);
        match &region.mmap_fd {
            Some(fd) if fits && takes_fd && region.flags.contains(RegionFlags::MMAP) => {
                self.connection.tx.push_with_fd(reply, &payload, fd.clone());
            }
            _ => self.connection.tx.push(reply, &payload),
        }
        Ok(())
    }

    fn set_irqs(&mut self, frame: &Frame, fds: Vec<OwnedFd>) -> Result<(), Refusal> {
        let payload = self.connection.rx.payload(frame);
        let set = SetIrqs::parse(payload).ok_or_else(invalid)?;
        let irq = self.layout.irqs.get(set.index as usize).ok_or_else(invalid)?;
        let bools = &payload[SetIrqs::SIZE..];
        let data = set.flags & (SetIrqs::DATA_NONE | SetIrqs::DATA_BOOL | SetIrqs::DATA_EVENTFD);
        let action = set.flags & (SetIrqs::ACTION_MASK | SetIrqs::ACTION_UNMASK | SetIrqs::ACTION_TRIGGER);
        let one_of_each = data.count_ones() == 1 && action.count_ones() == 1 && data | action == set.flags;
        let inside = set.start.checked_add(set.count).is_some_and(|end| end <= irq.count);
        if (set.argsz as usize) < SetIrqs::SIZE || !one_of_each || !inside {
            return refuse(libc::EINVAL);
        }
        let trigger = action == SetIrqs::ACTION_TRIGGER;
        if !trigger && (!irq.flags.contains(IrqFlags::MASKABLE) || data == SetIrqs::DATA_EVENTFD) {
            return refuse(libc::EINVAL);
        }
        // Without vectors it means "all off", which needs no data.
        if set.count == 0 && !(trigger && data == SetIrqs::DATA_NONE && set.start == 0) {
            return refuse(libc::EINVAL);
        }
        let data_fits = match data {
            SetIrqs::DATA_EVENTFD => bools.is_empty() && (fds.is_empty() || fds.len() == set.count as usize),
            SetIrqs::DATA_BOOL => fds.is_empty() && bools.len() == set.count as usize,
            _ => fds.is_empty() && bools.is_empty(),
        };
        if !data_fits {
            return refuse(libc::EINVAL);
        }
        if data == SetIrqs::DATA_BOOL {
            // The backend's interface has no room for the bytes, so the chosen vectors go one by one.
            for (vector, _) in (set.start..).zip(bools).filter(|(_, chosen)| **chosen != 0) {
                self.backend.set_irqs(set.index, SetIrqs::DATA_NONE | action, vector, 1, Vec::new())?;
            }
        } else {
            let fds = fds.into_iter().map(File::from).collect();
            self.backend.set_irqs(set.index, set.flags, set.start, set.count, fds)?;
        }
        self.answer(frame.header, &[])
    }

    /// The region of an access that lies inside it.
    fn region(layout: &Layout, access: RegionAccess) -> Result<&Region, Refusal> {
        let region = layout.regions.get(access.region as usize).ok_or_else(invalid)?;
        let end = access.offset.checked_add(u64::from(access.count)).ok_or_else(invalid)?;
        if access.count == 0 || end > region.size { refuse(libc::EINVAL) } else { Ok(region) }
    }

    fn region_read(&mut self, frame: &Frame) -> Result<(), Refusal> {
        Self::wants_reply(frame.header)?;
        let payload = self.connection.rx.payload(frame);
        let access = RegionAccess::parse(payload).ok_or_else(invalid)?;
        let count = access.count as usize;
        if payload.len() != RegionAccess::SIZE || count > MAX_DATA {
            return refuse(libc::EINVAL);
        }
        if !Self::region(self.layout, access)?.flags.contains(RegionFlags::READ) {
            return refuse(libc::EPERM);
        }
        let header = frame.header.reply(RegionAccess::SIZE + count);
        let backend = &mut *self.backend;
        self.connection.tx.push_filled(header, &access.to_bytes(), count, |data| {
            backend.region_read(access.region, access.offset, data)
        })?;
        Ok(())
    }

    fn region_write(&mut self, frame: &Frame) -> Result<(), Refusal> {
        let payload = self.connection.rx.payload(frame);
        let access = RegionAccess::parse(payload).ok_or_else(invalid)?;
        let data = &payload[RegionAccess::SIZE..];
        if data.len() != access.count as usize || data.len() > MAX_DATA {
            return refuse(libc::EINVAL);
        }
        if !Self::region(self.layout, access)?.flags.contains(RegionFlags::WRITE) {
            return refuse(libc::EPERM);
        }
        self.backend.region_write(access.region, access.offset, data)?;
        self.answer(frame.header, &access.to_bytes())
    }

    /// Entries are register writes of their own: one that is refused does not keep the others from happening.
    fn region_write_multi(&mut self, frame: &Frame) -> Result<(), Refusal> {
        let multi = WriteMulti::parse(self.connection.rx.payload(frame)).ok_or_else(invalid)?;
        let mut refusal = None;
        for (access, data) in multi.iter() {
            self.left = self.left.saturating_sub(1);
            let result = match (Self::region(self.layout, access), data) {
                (Ok(region), Some(data)) if region.flags.contains(RegionFlags::WRITE) => {
                    self.backend.region_write(access.region, access.offset, data).map_err(Refusal::from)
                }
                (Ok(_), Some(_)) => refuse(libc::EPERM),
                _ => refuse(libc::EINVAL),
            };
            refusal = refusal.or(result.err());
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => self.answer(frame.header, &[]),
        }
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
