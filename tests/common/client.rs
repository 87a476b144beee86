//! A strict vfio-user client that can misbehave.
//!
//! Strict: every reply is checked for id, command, type, size and a sensible errno, and nothing may be left in
//! the socket that was not asked for. Misbehaving: [`Client::send_raw`] sends whatever a test likes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cx10::sys;
use cx10::transport::layout::{irq, region};
use cx10::transport::message::{Command, HEADER_SIZE, Header, RegionAccess, SetIrqs, flag, u32_at, u64_at};

use super::guest::{Event, Ram};

/// How long a reply may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// QEMU's VERSION data.
pub const QEMU_CAPABILITIES: &str = r#"{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}"#;

/// The errno of an error reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {} ({})", self.0, io::Error::from_raw_os_error(self.0))
    }
}

pub const EINVAL: Errno = Errno(libc::EINVAL);

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub header: Header,
    pub payload: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    /// The payload of a good reply, the errno of a bad one.
    pub fn result(self) -> Result<Vec<u8>, Errno> {
        if self.header.flags & flag::ERROR != 0 {
            assert_ne!(self.header.error, 0, "an error reply without errno is taken for success");
            assert!(self.payload.is_empty(), "an error reply has no payload");
            Err(Errno(self.header.error as i32))
        } else {
            assert_eq!(self.header.error, 0, "an errno without the error flag");
            Ok(self.payload)
        }
    }
}

/// Answer to GET_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub flags: u32,
    pub regions: u32,
    pub irqs: u32,
}

/// Answer to GET_REGION_INFO.
#[derive(Debug)]
pub struct RegionInfo {
    pub argsz: u32,
    pub flags: u32,
    pub cap_offset: u32,
    pub size: u64,
    pub offset: u64,
    pub areas: Vec<(u64, u64)>,
    pub fd: Option<OwnedFd>,
}

/// Answer to GET_IRQ_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfo {
    pub flags: u32,
    pub count: u32,
}

/// A connection to the device.
pub struct Client {
    stream: UnixStream,
    next_id: u16,
}

impl Client {
    /// Connects without a word, as soon as somebody listens: a socket's file exists a moment before it does.
    pub fn connect(path: &Path) -> Client {
        let end = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Client::over(stream),
                Err(error) => assert!(Instant::now() < end, "connect: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Uses a stream that is connected already.
    pub fn over(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Client { stream, next_id: 0x100 }
    }

    /// Connects and negotiates as QEMU does.
    pub fn negotiated(path: &Path) -> Client {
        let mut client = Client::connect(path);
        client.negotiate().expect("negotiation");
        client
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    // Raw messages.

    /// The bytes of a message with a new id.
    pub fn message(&mut self, command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
        self.next_id = self.next_id.wrapping_add(1);
        let size = (HEADER_SIZE + payload.len()) as u32;
        let header = Header { id: self.next_id, command, size, flags, error: 0 };
        [&header.to_bytes()[..], payload].concat()
    }

    /// Sends bytes as they are.
    pub fn send_raw(&self, bytes: &[u8]) {
        self.try_send_raw(bytes, &[]).expect("send");
    }

    /// Sends bytes and descriptors with one call, as far as the server lets us.
    pub fn try_send_raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut sent = sys::send_wait(self.stream.as_fd(), bytes, fds)?;
        while sent < bytes.len() {
            sent += sys::send_wait(self.stream.as_fd(), &bytes[sent..], &[])?;
        }
        Ok(())
    }

    /// Sends a command and returns its id.
    pub fn send(&mut self, command: Command, flags: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> u16 {
        let bytes = self.message(command, flags, payload);
        self.try_send_raw(&bytes, fds).expect("send");
        self.next_id
    }

    /// Sends a command that must not be answered.
    pub fn post(&mut self, command: Command, payload: &[u8]) {
        self.send(command, flag::NO_REPLY, payload, &[]);
    }

    /// The next message from the server, whatever it is.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut bytes = vec![0; HEADER_SIZE];
        let mut fds = Vec::new();
        let mut got = 0;
        while got < bytes.len() {
            let received = sys::receive_wait(self.stream.as_fd(), &mut bytes[got..], &mut fds)?;
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            got += received.bytes;
            if got == HEADER_SIZE {
                let size = Header::parse(&bytes).expect("a header").size as usize;
                assert!((HEADER_SIZE..1 << 24).contains(&size), "reply of {size:#x} bytes");
                bytes.resize(size, 0);
            }
        }
        let header = Header::parse(&bytes).expect("a header");
        Ok(Reply { header, payload: bytes.split_off(HEADER_SIZE), fds })
    }

    /// The reply to the command with this id, which must be the next message.
    pub fn reply(&mut self, id: u16, command: Command) -> Reply {
        let reply = self.receive().unwrap_or_else(|error| panic!("no reply to {command:?}: {error}"));
        assert_eq!(reply.header.id, id, "{command:?}: reply to another message");
        assert_eq!(reply.header.command, command);
        assert_eq!(reply.header.flags & !flag::ERROR, flag::REPLY, "{command:?}: odd reply flags");
        reply
    }

    /// Sends a command and takes its reply.
    pub fn request(&mut self, command: Command, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        self.request_with(command, payload, &[])
    }

    /// Sends a command with descriptors and takes its reply, which must not bring any.
    pub fn request_with(&mut self, command: Command, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Vec<u8>, Errno> {
        let id = self.send(command, flag::COMMAND, payload, fds);
        let reply = self.reply(id, command);
        assert!(reply.fds.is_empty(), "{command:?}: unexpected descriptors");
        reply.result()
    }

    /// The server has nothing more to say: a request is answered next, so nothing else was sent before.
    pub fn expect_silence(&mut self) {
        let id = self.send(Command::GET_INFO, flag::COMMAND, &info_payload(16, 0), &[]);
        self.reply(id, Command::GET_INFO).result().expect("GET_INFO");
    }

    /// The server closes the connection without another message.
    pub fn expect_closed(&mut self) {
        match self.receive() {
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {}
            other => panic!("expected the end of the connection, got {other:?}"),
        }
    }

    // Typed requests.

    /// VERSION with this data (a NUL is added).
    pub fn version(&mut self, major: u16, minor: u16, json: &str) -> Result<(u16, u16, String), Errno> {
        self.version_raw(&version_payload(major, minor, format!("{json}\0").as_bytes()))
    }

    /// VERSION with exactly this payload.
    pub fn version_raw(&mut self, payload: &[u8]) -> Result<(u16, u16, String), Errno> {
        let reply = self.request(Command::VERSION, payload)?;
        let text = std::str::from_utf8(&reply[4..]).expect("text");
        let text = text.strip_suffix('\0').expect("NUL-terminated");
        assert!(!text.contains('\0'));
        Ok((u16::from_ne_bytes([reply[0], reply[1]]), u16::from_ne_bytes([reply[2], reply[3]]), text.to_owned()))
    }

    /// Negotiates as QEMU does; returns the server's capabilities.
    pub fn negotiate(&mut self) -> Result<String, Errno> {
        let (major, minor, json) = self.version(0, 0, QEMU_CAPABILITIES)?;
        assert_eq!((major, minor), (0, 0));
        Ok(json)
    }

    pub fn info(&mut self) -> Result<Info, Errno> {
        let reply = self.request(Command::GET_INFO, &info_payload(16, 0))?;
        assert_eq!((reply.len(), word(&reply, 0)), (16, 16));
        Ok(Info { flags: word(&reply, 1), regions: word(&reply, 2), irqs: word(&reply, 3) })
    }

    /// GET_REGION_INFO, asked again with more room if the server wants that, as clients do.
    pub fn region_info(&mut self, index: u32) -> Result<RegionInfo, Errno> {
        let info = self.region_info_argsz(index, 32)?;
        if info.argsz > 32 { self.region_info_argsz(index, info.argsz) } else { Ok(info) }
    }

    /// GET_REGION_INFO with room for `argsz` bytes.
    pub fn region_info_argsz(&mut self, index: u32, argsz: u32) -> Result<RegionInfo, Errno> {
        let payload = [argsz, 0, index, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        let id = self.send(Command::GET_REGION_INFO, flag::COMMAND, &payload, &[]);
        let mut reply = self.reply(id, Command::GET_REGION_INFO);
        let mut fds = std::mem::take(&mut reply.fds);
        let reply = reply.result()?;
        assert!(reply.len() <= argsz as usize, "the reply does not fit into the client's buffer");
        assert_eq!(word(&reply, 2), index);
        let cap_offset = word(&reply, 3);
        let mut areas = Vec::new();
        // Without room for them the capabilities are announced only.
        if cap_offset != 0 && word(&reply, 0) <= argsz {
            let cap = &reply[cap_offset as usize..];
            assert_eq!(u32_at(cap, 0), Some(0x0001_0001), "sparse mmap, version 1");
            assert_eq!(u32_at(cap, 4), Some(0), "the only capability");
            for i in 0..word(cap, 2) as usize {
                let at = 16 + 16 * i;
                areas.push((u64_at(cap, at).expect("offset"), u64_at(cap, at + 8).expect("size")));
            }
        }
        assert!(fds.len() <= 1);
        Ok(RegionInfo {
            argsz: word(&reply, 0),
            flags: word(&reply, 1),
            cap_offset,
            size: u64_at(&reply, 16).expect("size"),
            offset: u64_at(&reply, 24).expect("offset"),
            areas,
            fd: fds.pop(),
        })
    }

    pub fn irq_info(&mut self, index: u32) -> Result<IrqInfo, Errno> {
        let reply = self.request(Command::GET_IRQ_INFO, &info_payload(16, index))?;
        assert_eq!((reply.len(), word(&reply, 0), word(&reply, 2)), (16, 16, index));
        Ok(IrqInfo { flags: word(&reply, 1), count: word(&reply, 3) })
    }

    /// Maps all of `ram` at `iova`, readable and writable.
    pub fn map(&mut self, iova: u64, ram: &Ram) -> Result<(), Errno> {
        self.map_part(iova, ram.size(), 3, Some(ram.fd()), 0)
    }

    /// DMA_MAP with everything free; flags 1 read, 2 write.
    pub fn map_part(
        &mut self,
        iova: u64,
        size: u64,
        flags: u32,
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
    ) -> Result<(), Errno> {
        let fds: Vec<_> = fd.into_iter().collect();
        let reply = self.request_with(Command::DMA_MAP, &map_payload(32, flags, offset, iova, size), &fds)?;
        assert!(reply.is_empty(), "DMA_MAP is answered with a bare header");
        Ok(())
    }

    /// Unmaps everything inside the range.
    pub fn unmap(&mut self, iova: u64, size: u64) -> Result<(), Errno> {
        self.unmap_flags(0, iova, size)
    }

    /// Unmaps everything.
    pub fn unmap_all(&mut self) -> Result<(), Errno> {
        self.unmap_flags(2, 0, 0)
    }

    /// DMA_UNMAP with any flags.
    pub fn unmap_flags(&mut self, flags: u32, iova: u64, size: u64) -> Result<(), Errno> {
        let payload = unmap_payload(24, flags, iova, size);
        let reply = self.request(Command::DMA_UNMAP, &payload)?;
        assert_eq!(reply, payload, "DMA_UNMAP is answered with the request");
        Ok(())
    }

    /// REGION_READ.
    pub fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let access = RegionAccess { offset, region, count: data.len() as u32 };
        let reply = self.request(Command::REGION_READ, &access.to_bytes())?;
        assert_eq!(RegionAccess::parse(&reply), Some(access));
        data.copy_from_slice(&reply[RegionAccess::SIZE..]);
        Ok(())
    }

    /// REGION_WRITE that waits for the reply, as for configuration space.
    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let access = RegionAccess { offset, region, count: data.len() as u32 };
        let reply = self.request(Command::REGION_WRITE, &write_payload(region, offset, data))?;
        assert_eq!(RegionAccess::parse(&reply), Some(access));
        assert_eq!(reply.len(), RegionAccess::SIZE);
        Ok(())
    }

    /// REGION_WRITE without reply, as for BARs.
    pub fn post_write(&mut self, region: u32, offset: u64, data: &[u8]) {
        self.post(Command::REGION_WRITE, &write_payload(region, offset, data));
    }

    /// REGION_WRITE_MULTI without reply.
    pub fn post_write_multi(&mut self, entries: &[(u32, u64, &[u8])]) {
        self.post(Command::REGION_WRITE_MULTI, &multi_payload(entries));
    }

    /// Reads a little-endian register of BAR0 (the caller swaps where the device is big-endian).
    pub fn bar_read32(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.read(region::BAR0, offset, &mut data).expect("read BAR0");
        u32::from_le_bytes(data)
    }

    /// Writes a little-endian register of BAR0, posted.
    pub fn bar_write32(&mut self, offset: u64, value: u32) {
        self.post_write(region::BAR0, offset, &value.to_le_bytes());
    }

    /// Reads up to four bytes of configuration space.
    pub fn config_read(&mut self, offset: u64, size: usize) -> u32 {
        let mut data = [0; 4];
        self.read(region::CONFIG, offset, &mut data[..size]).expect("read configuration space");
        u32::from_le_bytes(data)
    }

    /// Writes up to four bytes of configuration space.
    pub fn config_write(&mut self, offset: u64, size: usize, value: u32) {
        self.write(region::CONFIG, offset, &value.to_le_bytes()[..size]).expect("write configuration space");
    }

    /// SET_IRQS with everything free.
    pub fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let reply = self.request_with(Command::SET_IRQS, &irq_payload(20, flags, index, start, count), fds)?;
        assert!(reply.is_empty(), "SET_IRQS is answered with a bare header");
        Ok(())
    }

    /// Hands over the eventfd of an MSI-X vector, as QEMU does when the guest unmasks it.
    pub fn connect_msix(&mut self, vector: u32, event: &Event) -> Result<(), Errno> {
        self.set_irqs(irq::MSIX, SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER, vector, 1, &[event.fd()])
    }

    /// Switches MSI-X off.
    pub fn disconnect_msix(&mut self) -> Result<(), Errno> {
        self.set_irqs(irq::MSIX, SetIrqs::DATA_NONE | SetIrqs::ACTION_TRIGGER, 0, 0, &[])
    }

    pub fn reset(&mut self) -> Result<(), Errno> {
        let reply = self.request(Command::RESET, &[])?;
        assert!(reply.is_empty());
        Ok(())
    }

    /// Closes the connection.
    pub fn disconnect(self) {}
}

/// The n-th 32-bit word.
fn word(bytes: &[u8], n: usize) -> u32 {
    u32_at(bytes, 4 * n).expect("a word")
}

pub fn version_payload(major: u16, minor: u16, data: &[u8]) -> Vec<u8> {
    [&major.to_ne_bytes()[..], &minor.to_ne_bytes(), data].concat()
}

/// GET_INFO and GET_IRQ_INFO.
pub fn info_payload(argsz: u32, index: u32) -> Vec<u8> {
    [argsz, 0, index, 0].map(u32::to_ne_bytes).concat()
}

pub fn map_payload(argsz: u32, flags: u32, offset: u64, iova: u64, size: u64) -> Vec<u8> {
    let head = [argsz, flags].map(u32::to_ne_bytes).concat();
    [head, [offset, iova, size].map(u64::to_ne_bytes).concat()].concat()
}

pub fn unmap_payload(argsz: u32, flags: u32, iova: u64, size: u64) -> Vec<u8> {
    let head = [argsz, flags].map(u32::to_ne_bytes).concat();
    [head, [iova, size].map(u64::to_ne_bytes).concat()].concat()
}

pub fn irq_payload(argsz: u32, flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    [argsz, flags, index, start, count].map(u32::to_ne_bytes).concat()
}

pub fn access_payload(region: u32, offset: u64, count: u32) -> Vec<u8> {
    RegionAccess { offset, region, count }.to_bytes().to_vec()
}

pub fn write_payload(region: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    [&access_payload(region, offset, data.len() as u32)[..], data].concat()
}

pub fn multi_payload(entries: &[(u32, u64, &[u8])]) -> Vec<u8> {
    let mut payload = (entries.len() as u64).to_ne_bytes().to_vec();
    for (region, offset, data) in entries {
        payload.extend_from_slice(&access_payload(*region, *offset, data.len() as u32));
        let mut eight = [0; 8];
        eight[..data.len()].copy_from_slice(data);
        payload.extend_from_slice(&eight);
    }
    payload
}
