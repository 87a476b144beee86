//! What the server does with the messages of one client: checks, dispatch, replies. The rules are in
//! [`super::server`].

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use log::Level;
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::connection::{Filled, Frame, Framing, Receiver, Sender};
use super::layout::{IrqFlags, Layout, Region, RegionFlags};
use super::message::{
    Command, DmaMap, DmaUnmap, Header, InfoRequest, MAX_DATA, RegionAccess, SetIrqs, WriteMulti, flag,
};
use super::server::{GOODBYE_NS, Gone, LOG, LogLimit, Stats};
use super::version;
use crate::dma::map::{MAP_READ, MAP_WRITE, UNMAP_ALL};

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
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) rx: Receiver,
    pub(super) tx: Sender,
    pub(super) client: Option<version::Client>,
    /// Replies are being sent for the last time.
    pub(super) closing: Option<Gone>,
    pub(super) deadline: Option<u64>,
    /// Commands (by bit) of which a refusal has been logged.
    pub(super) complained: u64,
}

/// One call's view of the server.
pub(super) struct Session<'a> {
    pub(super) layout: &'a Layout,
    pub(super) version_reply: &'a [u8],
    pub(super) stats: &'a mut Stats,
    pub(super) log: &'a mut LogLimit,
    pub(super) now: u64,
    pub(super) backend: &'a mut dyn ServerBackend,
    pub(super) connection: &'a mut Connection,
    pub(super) left: usize,
    pub(super) answered: bool,
}

impl Session<'_> {
    /// Receives, handles and answers what there is, within bounds.
    pub(super) fn serve(&mut self) -> Result<(), Gone> {
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
        // Formatted only where it is written: a client can cause refusals without end.
        let Header { command, id, size, .. } = header;
        if first {
            let what = format_args!("{command:?} id {id:#x} size {size} refused: {error}");
            self.log.say(self.now, Level::Warn, what);
        } else {
            log::debug!(target: LOG, "{command:?} id {id:#x} size {size} refused: {error}");
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
        let (flags, cap_offset) = match caps.is_empty() {
            true => (region.flags.bits(), 0),
            // Where there is no room the client learns from argsz that it has to ask again. QEMU 11.1 refuses the flag
            // without an offset in that reply, too.
            false => (region.flags.bits() | FLAG_CAPS, InfoRequest::REGION_SIZE as u32),
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
