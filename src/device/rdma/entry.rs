//! Send entries of queue pairs: fetched from the ring, measured, and taken apart (PRM "Send WQE"; kernel
//! `infiniband/hw/mlx5/wr.c`, `include/linux/mlx5/qp.h`).
//!
//! The bytes are the guest's and may say anything. [`fetch`] never reads beyond what was posted; [`SendEntry::parse`]
//! never looks beyond what was fetched.

use super::packet::{Operands, Remote};
use crate::device::page_list::PageList;
use crate::device::qp::{Service, WQEBB};
use crate::dma::{Bus, Load, LoadClass, Stream};
use crate::prm::values::{CqeSyndrome, WqeOpcode};
use crate::prm::wqe::{AtomicSeg, Av, BaseAv, CtrlSeg, DataSeg, MaskedAtomicSeg, RaddrSeg, XrcSeg};

/// Bytes of a unit of an entry.
pub const UNIT: usize = 16;
/// Bytes of a data segment.
pub const DATA_SEGMENT: usize = DataSeg::SIZE;
/// Largest entry: `ds` has six bits.
const LARGEST: usize = 64 * UNIT;
/// Bytes of a message that no capability allows to exceed.
pub const MAX_MESSAGE: u64 = 1 << 30;

/// Why a send entry fails before anything is sent. The number is the `vendor_err_synd` of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The opcode is unknown, or not one of this service type.
    #[error("the opcode is not one of this service type")]
    Opcode = 0x21,
    /// The control segment names another queue.
    #[error("the entry is for another queue")]
    Queue = 0x22,
    /// The size is 0, beyond what was posted, or does not fit the segments.
    #[error("the entry's size does not fit")]
    Size = 0x23,
    /// The message is longer than allowed, or than a datagram may be.
    #[error("the message is too long")]
    Length = 0x24,
    /// An atomic operation whose result does not go to eight bytes.
    #[error("an atomic operation needs a data segment of eight bytes")]
    Atomic = 0x25,
    /// The entry changed while it was being worked on.
    #[error("the entry changed while it was worked on")]
    Changed = 0x26,
}

impl EntryError {
    /// The syndrome of its completion.
    pub fn syndrome(self) -> CqeSyndrome {
        match self {
            EntryError::Length => CqeSyndrome::LOCAL_LENGTH_ERR,
            _ => CqeSyndrome::LOCAL_QP_OP_ERR,
        }
    }
}

/// The ring cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A send entry.
#[derive(Debug)]
pub struct SendEntry {
    buf: Box<[u8; LARGEST]>,
    len: usize,
    /// Index of its first basic block.
    pub index: u16,
    /// Basic blocks that it takes.
    pub blocks: u16,
    /// Opcode.
    pub opcode: WqeOpcode,
    /// Opcode modifier.
    pub opmod: u8,
    /// When to complete.
    pub ce: u8,
    /// Solicited event.
    pub solicited: bool,
    /// Fence.
    pub fence: u8,
    /// Immediate data, key to invalidate, or key to change.
    pub immediate: u32,
    /// Remote memory.
    pub remote: Remote,
    /// Operands of an atomic operation.
    pub operands: Operands,
    /// XRC shared receive queue.
    pub srqn: u32,
    /// Where the address vector begins; 0 if there is none.
    av: usize,
    /// Where data segments begin.
    data: usize,
}

/// A queue's ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// The buffer that it is in.
    pub buffer: &'a PageList,
    /// Where it begins.
    pub start: u64,
    /// Its bytes, a power of two.
    pub bytes: u64,
}

impl Ring<'_> {
    /// Where an offset is that may be beyond the end.
    #[inline]
    fn around(&self, offset: u64) -> u64 {
        offset & self.bytes.saturating_sub(1)
    }

    /// Reads at `offset`, around the end.
    fn read(&self, offset: u64, buf: &mut [u8], stream: Stream, bus: &mut Bus) -> Result<(), Unreadable> {
        let mut done = 0;
        while done < buf.len() {
            let at = self.around(offset + done as u64);
            let (iova, room) = self.buffer.locate(self.start + at).ok_or(Unreadable)?;
            let room = room.min(self.bytes - at);
            let len = (buf.len() - done).min(usize::try_from(room).unwrap_or(usize::MAX));
            let part = &mut buf[done..done + len];
            bus.load(Load::device(LoadClass::Wqe, stream), iova, part).map_err(|_| Unreadable)?;
            done += len;
        }
        Ok(())
    }
}

impl Default for SendEntry {
    fn default() -> SendEntry {
        SendEntry {
            buf: Box::new([0; LARGEST]),
            len: 0,
            index: 0,
            blocks: 0,
            opcode: WqeOpcode::NOP,
            opmod: 0,
            ce: 0,
            solicited: false,
            fence: 0,
            immediate: 0,
            remote: Remote::default(),
            operands: Operands::default(),
            srqn: 0,
            av: 0,
            data: 0,
        }
    }
}

impl SendEntry {
    /// Reads the entry at `index`, of which `available` basic blocks are posted. What is wrong with its size or its
    /// queue is answered too; the blocks that it takes are known in any case.
    pub fn fetch(
        &mut self,
        ring: Ring<'_>,
        qpn: u32,
        index: u16,
        available: u16,
        bus: &mut Bus,
    ) -> Result<Result<(), EntryError>, Unreadable> {
        const BLOCK: usize = WQEBB as usize;
        let stream = Stream::Requester(qpn);
        let offset = ring.around(u64::from(index) * WQEBB);
        ring.read(offset, &mut self.buf[..BLOCK], stream, bus)?;
        let ctrl = CtrlSeg::wrap(&self.buf[..UNIT]);
        self.index = index;
        self.opcode = WqeOpcode(ctrl.opcode() as u8);
        self.opmod = ctrl.opmod() as u8;
        self.ce = ctrl.ce() as u8;
        self.solicited = ctrl.se() != 0;
        self.fence = ctrl.fence() as u8;
        self.immediate = ctrl.imm();
        let (units, named) = (ctrl.ds() as usize, ctrl.qpn());
        self.len = units * UNIT;
        let blocks = self.len.div_ceil(BLOCK).max(1) as u16;
        // An entry that cannot be measured takes what is left.
        self.blocks = blocks.min(available.max(1));
        if named != qpn {
            return Ok(Err(EntryError::Queue));
        }
        if units == 0 || blocks > available {
            return Ok(Err(EntryError::Size));
        }
        if self.len > BLOCK {
            let rest = &mut self.buf[BLOCK..self.len];
            ring.read(ring.around(offset + WQEBB), rest, stream, bus)?;
        }
        Ok(Ok(()))
    }

    /// Everything behind the control segment.
    pub fn body(&self) -> &[u8] {
        self.buf.get(UNIT..self.len).unwrap_or_default()
    }

    /// Bytes of the entry.
    pub fn bytes(&self, from: usize, len: usize) -> Option<&[u8]> {
        self.buf.get(..self.len)?.get(from..from.checked_add(len)?)
    }

    /// The whole entry, and where its data segments begin.
    pub fn data(&self) -> (&[u8], usize) {
        (self.buf.get(..self.len).unwrap_or_default(), self.data)
    }

    /// The data segments' keys, for those that point somewhere.
    pub fn data_keys(&self) -> impl Iterator<Item = u32> {
        let segments = self.buf.get(self.data..self.len).unwrap_or_default();
        segments
            .chunks_exact(DATA_SEGMENT)
            .map(DataSeg::wrap)
            .filter(|segment| segment.inline() == 0)
            .map(|segment| segment.lkey())
    }

    /// The address vector of a datagram.
    pub fn address_vector(&self) -> Option<Av<&[u8]>> {
        if self.av == 0 {
            return None;
        }
        Av::new(self.buf.get(self.av..self.av + Av::SIZE)?).ok()
    }

    /// Takes the segments apart; answers how many bytes of data there are.
    pub fn parse(&mut self, service: Service) -> Result<u32, EntryError> {
        use WqeOpcode as O;
        let bytes = self.buf.get(..self.len).unwrap_or_default();
        let mut at = UNIT;
        let mut take = |len: usize| {
            let from = at;
            at += len;
            bytes.get(from..at).ok_or(EntryError::Size)
        };
        let opcode = self.opcode;
        let send = matches!(opcode, O::SEND | O::SEND_IMM);
        let write = matches!(opcode, O::RDMA_WRITE | O::RDMA_WRITE_IMM);
        let atomic = matches!(opcode, O::ATOMIC_CS | O::ATOMIC_FA | O::ATOMIC_MASKED_CS | O::ATOMIC_MASKED_FA);
        let allowed = match service {
            Service::Rc | Service::Xrc => send || write || atomic || matches!(opcode, O::SEND_INVAL | O::RDMA_READ),
            Service::Uc => send || write,
            Service::Ud | Service::Qp1 => send,
            Service::Qp0 | Service::RawEthertype | Service::RegUmr => false,
        };
        if !allowed || self.opmod != 0 {
            return Err(EntryError::Opcode);
        }
        self.av = 0;
        self.srqn = 0;
        self.remote = Remote::default();
        if service == Service::Xrc {
            self.srqn = XrcSeg::wrap(take(XrcSeg::SIZE)?).xrc_srqn();
        }
        if matches!(service, Service::Ud | Service::Qp1) {
            let base = BaseAv::wrap(take(BaseAv::SIZE)?);
            // Without the extension there is no address to send to on Ethernet.
            if base.extended() == 0 {
                return Err(EntryError::Size);
            }
            self.av = UNIT;
            take(Av::SIZE - BaseAv::SIZE)?;
        }
        if write || atomic || opcode == O::RDMA_READ {
            let remote = RaddrSeg::wrap(take(RaddrSeg::SIZE)?);
            self.remote = Remote { va: remote.raddr(), key: remote.rkey(), len: 0 };
        }
        match opcode {
            O::ATOMIC_CS => {
                let seg = AtomicSeg::wrap(take(AtomicSeg::SIZE)?);
                let (swap_add, compare) = (seg.swap_add(), seg.compare());
                self.operands = Operands { swap_add, compare, swap_add_mask: u64::MAX, compare_mask: u64::MAX };
            }
            O::ATOMIC_FA => {
                let seg = AtomicSeg::wrap(take(AtomicSeg::SIZE)?);
                self.operands = Operands { swap_add: seg.swap_add(), ..Operands::default() };
            }
            O::ATOMIC_MASKED_CS | O::ATOMIC_MASKED_FA => {
                let seg = MaskedAtomicSeg::wrap(take(MaskedAtomicSeg::SIZE)?);
                self.operands = Operands {
                    swap_add: seg.swap_add(),
                    compare: seg.compare(),
                    swap_add_mask: seg.swap_add_mask(),
                    compare_mask: seg.compare_mask(),
                };
            }
            _ => {}
        }
        self.data = at;
        let len = measure(bytes.get(at..).unwrap_or_default(), !atomic && opcode != O::RDMA_READ)?;
        if atomic && len != 8 {
            return Err(EntryError::Atomic);
        }
        if len > MAX_MESSAGE {
            return Err(EntryError::Length);
        }
        self.remote.len = len as u32;
        Ok(len as u32)
    }
}

/// Adds up the data segments.
fn measure(mut segments: &[u8], may_inline: bool) -> Result<u64, EntryError> {
    const HEAD: usize = 4;
    let mut total = 0u64;
    while !segments.is_empty() {
        let segment = DataSeg::new(segments.get(..DATA_SEGMENT).ok_or(EntryError::Size)?);
        let segment = segment.map_err(|_| EntryError::Size)?;
        let mut taken = DATA_SEGMENT;
        if segment.inline() != 0 {
            if !may_inline {
                return Err(EntryError::Size);
            }
            let count = (segment.byte_count() & 0x3ff) as usize;
            if HEAD + count > segments.len() {
                return Err(EntryError::Size);
            }
            total += count as u64;
            taken = (HEAD + count).next_multiple_of(DATA_SEGMENT);
        } else {
            // No bytes stand for 2^31.
            total += match segment.byte_count() {
                0 => 1 << 31,
                count => u64::from(count),
            };
        }
        segments = segments.get(taken..).unwrap_or_default();
    }
    Ok(total)
}
