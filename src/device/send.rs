//! The engine of Ethernet send queues: doorbell to frames and completions (PRM "Ethernet Send Work Requests"; kernel
//! `en_tx.c`, `en_rx.c:mlx5e_post_rx_wqes` for the NOPs that start a queue).
//!
//! A doorbell only says that there may be work; how much is read from the doorbell record. Queues with work take
//! turns in the order of their doorbells. A turn, and a portion of work, ends after a bounded number of entries and
//! bytes, so that no queue and no portion keeps others waiting. What takes time without moving many bytes counts as
//! bytes too: pieces of memory and packets. A large send may take several turns; each reads its entry anew. While a
//! frame is on its way to receive queues of the function nothing is sent.
//!
//! An entry that fails completes with an error and puts its queue into error; entries behind it are flushed one by
//! one where `flush_in_error_en` asks for it. A ring or record that cannot be read is a catastrophic error: an event
//! says so, and the queue stays silent until it is reset.
//!
//! Opcodes: NOP, SEND, LSO. The others need capabilities that are not advertised.

use std::collections::VecDeque;

use super::capabilities::{Capabilities, ETHERNET};
use super::cq::{CQE, Completion};
use super::flush::FLUSHED;
use super::hca::{Event, Hca};
use super::memic::DeviceMemory;
use super::objects::Objects;
use super::sq::{SendQueue, WQEBB};
use crate::dma::{Bus, Iova, Load, LoadClass, Stream, Wait};
use crate::log_limit::limited;
use crate::mkey::translate::{Access, KeySpace, Piece, Place, Request, resolve};
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::eq::QpEvents;
use crate::prm::event::{EventQueueType, EventType};
use crate::prm::values::{CqeOpcode, CqeSyndrome, WqState, WqeOpcode};
use crate::prm::wqe::{CtrlSeg, DataSeg, EthSeg, InlineSeg};
use crate::wire::checksum::{fill_l3, fill_l4};
use crate::wire::layers::layers;
use crate::wire::segment::Segments;
use crate::wire::{MAC_HEADER, MIN_FRAME};

/// Entries that one turn executes at most.
const ENTRIES_PER_TURN: usize = 32;
/// Bytes after which a turn ends, and with it the portion of work.
const BYTES_PER_TURN: usize = 256 << 10;
/// What finding a piece of memory and making a packet count for, in bytes.
const BYTES_PER_STEP: usize = 64;
/// Turns in one portion of work.
const TURNS_PER_PORTION: usize = 4;

/// Bytes of a unit of an entry.
const UNIT: usize = 16;
/// Units of a basic block.
const UNITS_PER_BLOCK: u32 = 4;
/// `ctrl.ce`: complete always; complete always and ask for an event.
const CE_ALWAYS: u32 = 2;
const CE_EVENT: u32 = 3;

/// Queues that have work, in the order in which they take turns.
#[derive(Debug, Default)]
pub struct SendSchedule {
    ready: VecDeque<u32>,
    /// Bytes of the longest message.
    limit: usize,
    scratch: Scratch,
}

/// Memory that is used again for every entry.
#[derive(Debug, Default)]
struct Scratch {
    /// The segments behind the control segment.
    body: Vec<u8>,
    /// Headers of a large send.
    headers: Vec<u8>,
    /// A frame, or the payload of a large send.
    data: Vec<u8>,
    /// A packet of a large send.
    packet: Vec<u8>,
}

impl SendSchedule {
    /// No queue has work; messages are as long as `max_lso_cap` says.
    pub fn new(caps: &Capabilities) -> SendSchedule {
        const LONGEST: u64 = 18;
        let limit = 1 << caps.get(ETHERNET, "max_lso_cap").min(LONGEST);
        SendSchedule { limit, ..SendSchedule::default() }
    }
}

/// Why an entry fails. The number is the `vendor_err_synd` of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The opcode is not one of an Ethernet send queue.
    #[error("the opcode is not supported")]
    Opcode = 1,
    /// The control segment names another queue.
    #[error("the entry is for another queue")]
    Queue = 2,
    /// The size is 0, beyond what was posted, or too small for the segments.
    #[error("the entry's size does not fit")]
    Size = 3,
    /// A feature of the Ethernet segment is not advertised.
    #[error("the Ethernet segment asks for a feature that is not advertised")]
    Feature = 4,
    /// Fewer header bytes are inline than the context demands.
    #[error("fewer headers are inline than min_wqe_inline_mode demands")]
    Inline = 5,
    /// The frame has no MAC header, or the message is longer than the device sends.
    #[error("the message is too short or too long")]
    Length = 6,
    /// A key does not allow the access, or its memory cannot be read.
    #[error("a data segment cannot be read through its key")]
    Protection = 7,
    /// The headers of a large send cannot be segmented.
    #[error("the message cannot be segmented")]
    Segmentation = 8,
}

impl SendError {
    fn syndrome(self) -> CqeSyndrome {
        match self {
            SendError::Length => CqeSyndrome::LOCAL_LENGTH_ERR,
            SendError::Protection => CqeSyndrome::LOCAL_PROT_ERR,
            _ => CqeSyndrome::LOCAL_QP_OP_ERR,
        }
    }
}

/// The ring or its record cannot be read, or more was posted than the ring holds.
struct Catastrophe;

/// An entry out of the ring.
struct Entry {
    opcode: WqeOpcode,
    ce: u32,
    blocks: u16,
    /// Why its segments were not read.
    fault: Option<SendError>,
}

/// What an entry sends.
enum Message {
    Nothing,
    /// The frame in the scratch memory.
    Frame,
    /// The headers and the payload in the scratch memory.
    Large {
        mss: usize,
    },
}

/// How a turn of a queue goes on.
enum Next {
    /// Something was done that counts for so many bytes.
    Done(usize),
    /// The same, but the entry is not done yet.
    Unfinished(usize),
    /// There is nothing to do.
    Idle,
}

/// Reads `buf.len()` bytes of the ring at `offset`, around its end.
fn read_ring(sq: &SendQueue, sqn: u32, offset: u64, buf: &mut [u8], bus: &mut Bus) -> Result<(), Catastrophe> {
    let mut done = 0;
    while done < buf.len() {
        let at = (offset + done as u64) % sq.wq.len();
        let (iova, room) = sq.wq.buffer.locate(at).ok_or(Catastrophe)?;
        let len = (buf.len() - done).min(usize::try_from(room).unwrap_or(usize::MAX));
        let load = Load::device(LoadClass::Wqe, Stream::Queue(sqn));
        bus.load(load, iova, &mut buf[done..done + len]).map_err(|_| Catastrophe)?;
        done += len;
    }
    Ok(())
}

/// Reads the entry at the queue's index, of which `available` blocks are posted; its segments into `body`.
fn fetch(sq: &SendQueue, sqn: u32, available: u16, body: &mut Vec<u8>, bus: &mut Bus) -> Result<Entry, Catastrophe> {
    let offset = sq.wq.offset(sq.executed);
    let mut bytes = [0; UNIT];
    read_ring(sq, sqn, offset, &mut bytes, bus)?;
    let ctrl = CtrlSeg::wrap(&bytes[..]);
    let (units, opcode) = (ctrl.ds(), WqeOpcode(ctrl.opcode() as u8));
    let blocks = units.div_ceil(UNITS_PER_BLOCK).max(1) as u16;
    let fault = if ctrl.qpn() != sqn {
        Some(SendError::Queue)
    } else if units == 0 || blocks > available {
        Some(SendError::Size)
    } else {
        body.clear();
        body.resize((units as usize - 1) * UNIT, 0);
        read_ring(sq, sqn, offset + UNIT as u64, body, bus)?;
        None
    };
    // An entry that cannot be measured takes what is left of the one block that it begins in.
    let blocks = blocks.min(available);
    Ok(Entry { opcode, ce: ctrl.ce(), blocks, fault })
}

/// What data segments are read through.
struct Memory<'a> {
    objects: &'a Objects,
    keys: &'a KeySpace,
    device: &'a DeviceMemory,
    bus: &'a mut Bus,
    /// What the pieces so far count for.
    cost: usize,
}

impl Memory<'_> {
    /// Appends what a data segment points at to `out`.
    fn gather(
        &mut self,
        sq: &SendQueue,
        sqn: u32,
        segment: &DataSeg<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        let len = segment.byte_count();
        let request = Request {
            key: segment.lkey(),
            va: segment.addr(),
            len: len.into(),
            access: Access::LocalRead,
            pd: sq.context.wq().pd(),
            qpn: sqn,
            reserved_lkey: sq.context.rlky() != 0,
        };
        let walk = resolve(self.objects, self.keys, &request).map_err(|error| {
            log::debug!(target: "cx10::sq", "sqn={sqn:#x}: key {:#x}: {error}", request.key);
            SendError::Protection
        })?;
        for piece in walk {
            let piece = piece.map_err(|_| SendError::Protection)?;
            self.cost += BYTES_PER_STEP + piece.len as usize;
            let from = out.len();
            out.resize(from + piece.len as usize, 0);
            match piece.place {
                Place::Memory(iova) => self.load(sqn, iova, &piece, &mut out[from..])?,
                Place::Device(at) => self.device.read(at, &mut out[from..]),
                Place::Nowhere => {}
            }
        }
        Ok(())
    }

    fn load(&mut self, sqn: u32, at: Iova, piece: &Piece, buf: &mut [u8]) -> Result<(), SendError> {
        let load = Load::payload(Stream::Queue(sqn), piece.order, piece.key, Wait::default());
        self.bus.load(load, at, buf).map_err(|_| SendError::Protection)
    }
}

/// Bytes of headers that must be inline for a `min_wqe_inline_mode`: none, MAC, network, transport header. Modes
/// beyond are about tunnels, of which the outer headers are asked for.
fn inline_demand(mode: u32, frame: &[u8]) -> usize {
    let found = layers(frame, false);
    let l2 = found.l3.map_or(MAC_HEADER, |(_, at)| at);
    let l4 = found.l4.map_or(l2, |(_, at)| at);
    match mode {
        0 => 0,
        1 => l2,
        2 => l4,
        _ => found.l4.map_or(l4, |(_, at)| at + 8),
    }
}

/// Makes the message of an entry from its segments, in the scratch memory.
fn message(
    memory: &mut Memory<'_>,
    sq: &SendQueue,
    sqn: u32,
    entry: &Entry,
    limit: usize,
    scratch: &mut Scratch,
) -> Result<Message, SendError> {
    if let Some(error) = entry.fault {
        return Err(error);
    }
    let Scratch { body, headers: kept, data, .. } = scratch;
    let large = match entry.opcode {
        WqeOpcode::NOP => return Ok(Message::Nothing),
        WqeOpcode::SEND => false,
        WqeOpcode::LSO => true,
        _ => return Err(SendError::Opcode),
    };
    let eth = EthSeg::new(&body[..]).map_err(|_| SendError::Size)?;
    let insertions = eth.trailer() >> 26 != 0;
    if insertions || eth.l3_inner_csum() != 0 || eth.l4_inner_csum() != 0 {
        return Err(SendError::Feature);
    }
    // Header bytes begin inside the segment and run on behind it, up to a multiple of a unit.
    let inline = eth.inline_hdr_sz() as usize;
    const INLINE_AT: usize = EthSeg::SIZE - 2;
    let headers = body.get(INLINE_AT..INLINE_AT + inline).ok_or(SendError::Size)?;
    let segments = EthSeg::SIZE + inline.saturating_sub(2).next_multiple_of(UNIT);
    let mut rest = body.get(segments..).ok_or(SendError::Size)?;

    for memory in [&mut *kept, data] {
        memory.clear();
    }
    if large { &mut *kept } else { &mut *data }.extend_from_slice(headers);
    while !rest.is_empty() {
        let segment = DataSeg::new(rest).map_err(|_| SendError::Size)?;
        if segment.inline() != 0 {
            let count = InlineSeg::wrap(rest).byte_count() as usize;
            let bytes = rest.get(4..4 + count).ok_or(SendError::Size)?;
            data.extend_from_slice(bytes);
            rest = rest.get((4 + count).next_multiple_of(UNIT)..).ok_or(SendError::Size)?;
        } else {
            // No bytes stand for 2^31, which no message may have.
            let len = segment.byte_count() as usize;
            if len == 0 || data.len() + len > limit {
                return Err(SendError::Length);
            }
            let segment = DataSeg::wrap(&rest[..DataSeg::SIZE]);
            memory.gather(sq, sqn, &segment, data)?;
            rest = &rest[DataSeg::SIZE..];
        }
    }
    let start = if large { headers } else { &data[..] };
    if start.len() < MAC_HEADER {
        return Err(SendError::Length);
    }
    if inline < inline_demand(sq.context.min_wqe_inline_mode(), start) {
        return Err(SendError::Inline);
    }
    if large {
        return Ok(Message::Large { mss: eth.mss() as usize });
    }
    let found = layers(data, true);
    if eth.l3_csum() != 0 {
        fill_l3(data, &found);
    }
    if eth.l4_csum() != 0 {
        fill_l4(data, &found);
    }
    pad(data);
    Ok(Message::Frame)
}

/// Pads a frame that is shorter than any on the wire.
fn pad(frame: &mut Vec<u8>) {
    if frame.len() < MIN_FRAME {
        frame.resize(MIN_FRAME, 0);
    }
}

impl Hca {
    /// A doorbell for a send queue came through `uar`. Returns whether the queue exists and takes doorbells there.
    pub fn ring_sq(&mut self, uar: u32, sqn: u32) -> bool {
        if self.objects.sqs.get(sqn).is_none_or(|entry| entry.object.uar() != uar) {
            return false;
        }
        self.schedule_sq(sqn);
        true
    }

    /// Lets a queue take a turn, if it has something to do.
    pub fn schedule_sq(&mut self, sqn: u32) {
        if self.internal_error() {
            return;
        }
        let Some(entry) = self.objects.sqs.get_mut(sqn) else { return };
        if !entry.object.scheduled {
            entry.object.scheduled = true;
            self.sends.ready.push_back(sqn);
        }
    }

    /// Whether send queues wait for their turn.
    pub fn has_sends(&self) -> bool {
        !self.sends.ready.is_empty()
    }

    /// Forgets all turns, as a teardown does.
    pub(super) fn forget_sends(&mut self) {
        self.sends.ready.clear();
    }

    /// Gives turns to the queues that have work.
    pub fn run_sends(&mut self, bus: &mut Bus, now: u64) {
        let mut bytes = 0;
        for _ in 0..TURNS_PER_PORTION {
            if self.receive.busy() {
                break;
            }
            let Some(sqn) = self.sends.ready.pop_front() else { break };
            let Some(entry) = self.objects.sqs.get_mut(sqn) else { continue };
            entry.object.scheduled = false;
            let mut scratch = std::mem::take(&mut self.sends.scratch);
            let turn = self.send_turn(sqn, &mut bytes, &mut scratch, bus, now);
            self.sends.scratch = scratch;
            match turn {
                Ok(true) => self.schedule_sq(sqn),
                Ok(false) => {}
                Err(Catastrophe) => self.sq_catastrophe(sqn),
            }
            if bytes >= BYTES_PER_TURN {
                break;
            }
        }
    }

    /// One turn of a queue, which adds what it did to `bytes`; whether it wants another.
    fn send_turn(
        &mut self,
        sqn: u32,
        bytes: &mut usize,
        scratch: &mut Scratch,
        bus: &mut Bus,
        now: u64,
    ) -> Result<bool, Catastrophe> {
        for _ in 0..ENTRIES_PER_TURN {
            match self.send_next(sqn, scratch, bus, now)? {
                Next::Idle => return Ok(false),
                Next::Done(done) => *bytes += done,
                Next::Unfinished(done) => {
                    *bytes += done;
                    break;
                }
            }
            if *bytes >= BYTES_PER_TURN || self.receive.busy() {
                break;
            }
        }
        Ok(true)
    }

    /// Executes or flushes the next entry of a queue.
    fn send_next(&mut self, sqn: u32, scratch: &mut Scratch, bus: &mut Bus, now: u64) -> Result<Next, Catastrophe> {
        let Some(sq) = self.objects.sqs.get(sqn).map(|entry| &entry.object) else { return Ok(Next::Idle) };
        let flushes = sq.state == WqState::ERR && sq.context.flush_in_error_en() != 0;
        if sq.catastrophic || (sq.state != WqState::RDY && !flushes) {
            return Ok(Next::Idle);
        }
        let posted = sq.wq.posted_sends(Stream::Queue(sqn), bus).ok_or(Catastrophe)?;
        let available = posted.wrapping_sub(sq.executed);
        if available == 0 {
            return Ok(Next::Idle);
        }
        if u64::from(available) * WQEBB > sq.wq.len() {
            log::debug!(target: "cx10::sq", "sqn={sqn:#x}: {available:#x} blocks posted, more than the ring holds");
            return Err(Catastrophe);
        }
        let entry = fetch(sq, sqn, available, &mut scratch.body, bus)?;
        let index = sq.executed;
        if flushes {
            self.fail_entry(sqn, &entry, CqeSyndrome::WR_FLUSH_ERR, FLUSHED, bus, now);
            return Ok(Next::Done(0));
        }
        let mut memory = Memory { objects: &self.objects, keys: &self.key_space, device: &self.memic, bus, cost: 0 };
        let message = message(&mut memory, sq, sqn, &entry, self.sends.limit, scratch);
        let mut cost = memory.cost + usize::from(entry.blocks) * WQEBB as usize;
        let sent = match message {
            Ok(Message::Nothing) => Ok(()),
            Ok(Message::Frame) => {
                let sender = self.sender(sqn);
                self.transmit(&scratch.data, sender, &mut cost, bus, now);
                Ok(())
            }
            Ok(Message::Large { mss }) => match self.send_large(sqn, mss, scratch, &mut cost, bus, now) {
                Ok(true) => Ok(()),
                Ok(false) => return Ok(Next::Unfinished(cost)),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => {
                log::trace!(target: "cx10::sq", "sqn={sqn:#x} index={index:#x}: {}", entry.opcode);
                self.complete_entry(sqn, &entry, bus, now);
            }
            Err(error) => {
                log::debug!(target: "cx10::sq", "sqn={sqn:#x} index={index:#x}: {}: {error}", entry.opcode);
                self.fail_entry(sqn, &entry, error.syndrome(), error as u8, bus, now);
            }
        }
        Ok(Next::Done(cost))
    }

    /// Sends the packets of a large send that have not left yet, as many as a turn may; whether all have left.
    fn send_large(
        &mut self,
        sqn: u32,
        mss: usize,
        scratch: &mut Scratch,
        cost: &mut usize,
        bus: &mut Bus,
        now: u64,
    ) -> Result<bool, SendError> {
        let Scratch { headers, data, packet, .. } = scratch;
        let segments = Segments::new(headers, data, mss).map_err(|_| SendError::Segmentation)?;
        let Some(from) = self.objects.sqs.get(sqn).map(|entry| entry.object.packets_sent) else { return Ok(true) };
        let sender = self.sender(sqn);
        let mut spent = 0;
        let mut sent = from;
        // What is read again does not count here, so that every turn gets on.
        while sent < segments.count() && spent < BYTES_PER_TURN && !self.receive.busy() {
            segments.build(sent, packet);
            pad(packet);
            spent += BYTES_PER_STEP + packet.len();
            self.transmit(packet, sender, &mut spent, bus, now);
            sent += 1;
        }
        *cost += spent;
        if let Some(entry) = self.objects.sqs.get_mut(sqn) {
            entry.object.packets_sent = sent;
        }
        Ok(sent >= segments.count())
    }

    /// An entry is done: the queue moves on, and the driver learns it if it wants to.
    fn complete_entry(&mut self, sqn: u32, entry: &Entry, bus: &mut Bus, now: u64) {
        let Some(sq) = self.objects.sqs.get_mut(sqn).map(|entry| &mut entry.object) else { return };
        let index = sq.executed;
        sq.executed = index.wrapping_add(entry.blocks);
        sq.packets_sent = 0;
        if entry.ce != CE_ALWAYS && entry.ce != CE_EVENT {
            return;
        }
        let mut cqe = Cqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::REQ.0.into());
        cqe.set_send_wqe_opcode(entry.opcode.0.into());
        cqe.set_qpn(sqn);
        cqe.set_srqn_user_index(sq.context.user_index());
        cqe.set_wqe_counter(index.into());
        cqe.set_timestamp(now);
        let cqn = sq.context.cqn();
        self.post_send_cqe(sqn, cqn, &cqe.into_inner(), bus, now);
    }

    /// An entry failed or is flushed: the queue is in error and moves on.
    fn fail_entry(&mut self, sqn: u32, entry: &Entry, syndrome: CqeSyndrome, vendor: u8, bus: &mut Bus, now: u64) {
        let Some(sq) = self.objects.sqs.get_mut(sqn).map(|entry| &mut entry.object) else { return };
        let index = sq.executed;
        sq.executed = index.wrapping_add(entry.blocks);
        sq.packets_sent = 0;
        sq.set_state(WqState::ERR);
        let mut cqe = ErrCqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::REQ_ERR.0.into());
        cqe.set_syndrome(syndrome.0.into());
        cqe.set_vendor_err_synd(vendor.into());
        cqe.set_send_wqe_opcode(entry.opcode.0.into());
        cqe.set_qpn(sqn);
        cqe.set_srqn_user_index(sq.context.user_index());
        cqe.set_wqe_counter(index.into());
        let cqn = sq.context.cqn();
        self.post_send_cqe(sqn, cqn, &cqe.into_inner(), bus, now);
    }

    /// Without room for a completion the queue stops for good.
    fn post_send_cqe(&mut self, sqn: u32, cqn: u32, cqe: &[u8; CQE], bus: &mut Bus, now: u64) {
        if self.complete(cqn, cqe, Stream::Queue(sqn).into(), bus, now) == Completion::Dropped {
            self.sq_catastrophe(sqn);
        }
    }

    /// A queue cannot go on: the driver learns it by event, once.
    fn sq_catastrophe(&mut self, sqn: u32) {
        let Some(sq) = self.objects.sqs.get_mut(sqn).map(|entry| &mut entry.object) else { return };
        if std::mem::replace(&mut sq.catastrophic, true) {
            return;
        }
        sq.set_state(WqState::ERR);
        limited!(warn, target: "cx10::sq", "sqn={sqn:#x}: catastrophic error");
        let mut event = QpEvents::zeroed();
        event.set_type(EventQueueType::SQ.0.into());
        event.set_qpn_rqn_sqn(sqn);
        let mut data = [0; 28];
        data.copy_from_slice(event.as_bytes());
        self.raise(Event { event_type: EventType::WQ_CATAS_ERROR.0, sub_type: 0, data, eqn: None });
    }
}
