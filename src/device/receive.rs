//! The Ethernet receive path: from a frame to receive queues (PRM "Flow Table", "TIR", "RQ Table", "Receive Queue",
//! "Ethernet Receive Completion"; kernel `en_rx.c`, `en/tir.c`, `infiniband/hw/mlx5/qp.c:create_raw_packet_qp`).
//!
//! A frame walks through the flow tables to transport interfaces. Each names a receive queue, or spreads frames by a
//! hash over a table of them. The queue's next entry takes the frame, and a completion tells what the device found in
//! it: checksums, header types, VLAN tag, hash, flow tag.
//!
//! One frame is under way at a time. Where it goes to many queues and these cost more than a portion of work may, it
//! stays under way, and neither send queues nor the wire bring another before it is done.
//!
//! What cannot be received is dropped and counted: without an entry in the queue's Q counter, without a way in the
//! vport's discards. A frame that is longer than its entry, or that meets an entry whose keys do not allow the access,
//! completes with an error and puts the queue into error. A ring or record that cannot be read is a catastrophic
//! error: an event says so, and the queue stays silent until it is reset.

use super::capabilities::{Capabilities, ETHERNET};
use super::cq::{CQE, Completion};
use super::hca::{Event, Hca};
use super::rdma::memory::{Keys, MemoryError, Reach, Who};
use super::rdma::packet::Part;
use super::rdma::receive::{NoEntry, take_shared};
use super::rq::{ReceiveMemory, ReceiveQueue, Tir};
use super::steering::packet::{MATCH_WORDS, describe};
use super::steering::walk::{Target, Verdict};
use crate::dma::{Bus, Load, LoadClass, Store, StoreClass, Stream};
use crate::log_limit::limited;
use crate::mkey::translate::{Access, Piece, Place};
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::eq::QpEvents;
use crate::prm::event::{EventQueueType, EventType};
use crate::prm::tir::Tirc;
use crate::prm::values::RmpState;
use crate::prm::values::{CqeOpcode, CqeSyndrome, FlowTableType, RxHashFn, TirDispType, WqState};
use crate::prm::wqe::SrqNextSeg;
use crate::wire::checksum::{l3_is_right, l4_is_right, ones_complement};
use crate::wire::hash::{Fields, KEY, Transport, Tuple, inverted_xor8, toeplitz};
use crate::wire::layers::{L3, L4, Layers, layers};
use crate::wire::{MAC_HEADER, VLAN_TAG};

/// Bytes after which a portion of work delivers no more.
const BYTES_PER_PORTION: usize = 256 << 10;
/// What a piece of memory and a completion count for, in bytes.
const BYTES_PER_STEP: usize = 64;
/// Where the VLAN tag stands in a frame.
const TAG_AT: usize = 12;

/// Where a frame comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Through the port.
    #[default]
    Wire,
    /// From a send queue of the function, in this transport domain.
    Queue(Option<u32>),
}

/// What the device finds in a frame, once for all queues that get it.
#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    layers: Layers,
    l3_ok: bool,
    l4_ok: bool,
    /// The sum for a completion: of the whole frame, and of the frame without its tag.
    sum: u16,
    untagged_sum: u16,
}

/// The frame that is under way, and memory that is used again for every frame.
#[derive(Debug, Default)]
pub struct ReceivePath {
    frame: Vec<u8>,
    origin: Origin,
    findings: Findings,
    verdict: Verdict,
    /// How many of the verdict's targets have the frame.
    served: usize,
    under_way: bool,
    /// Whether it was counted as received; what is only looped back to where it came from is not.
    counted: bool,
    /// Frames come from the wire before they come from send queues.
    pub(super) wire_first: bool,
    /// The entry that takes it.
    entry: Vec<u8>,
    /// `cqe_checksum_full`: completions have the sum of everything behind the MAC header.
    full_sum: bool,
}

impl ReceivePath {
    /// Nothing is under way.
    pub fn new(caps: &Capabilities) -> ReceivePath {
        ReceivePath { full_sum: caps.get(ETHERNET, "cqe_checksum_full") != 0, ..ReceivePath::default() }
    }

    /// Whether a frame is under way.
    pub fn busy(&self) -> bool {
        self.under_way
    }

    /// Forgets the frame that is under way.
    pub fn clear(&mut self) {
        self.under_way = false;
    }

    /// The memory of the next frame, to fill it. Nothing may be under way.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.frame
    }
}

/// Why an entry cannot take a frame. The number is the `vendor_err_synd` of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum ReceiveError {
    #[error("the frame is longer than the entry")]
    Length = 1,
    #[error("a key of the entry does not allow the access")]
    Key = 2,
    #[error("the entry's memory cannot be written")]
    Memory = 3,
}

impl From<MemoryError> for ReceiveError {
    fn from(error: MemoryError) -> ReceiveError {
        match error {
            MemoryError::Short => ReceiveError::Length,
            MemoryError::Key(_) => ReceiveError::Key,
            MemoryError::Bus(_) | MemoryError::Scattered | MemoryError::Gone => ReceiveError::Memory,
        }
    }
}

impl ReceiveError {
    fn syndrome(self) -> CqeSyndrome {
        match self {
            ReceiveError::Length => CqeSyndrome::LOCAL_LENGTH_ERR,
            ReceiveError::Key | ReceiveError::Memory => CqeSyndrome::LOCAL_PROT_ERR,
        }
    }
}

/// The ring or its record cannot be read, or more was posted than the ring holds.
pub(super) struct Catastrophe;

/// A receive entry that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Counter or index that its completion names.
    index: u16,
    /// Where its segments begin.
    segments: usize,
    /// For whom its keys are looked up.
    who: Who,
}

/// The hash of a frame and what it was made of, as completions encode it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RssHash {
    value: u32,
    ip_type: u32,
    l4_type: u32,
}

/// The hash that an interface makes of a frame. What the interface does not ask for or the frame does not have is left
/// out; a frame of another network protocol than the interface's has no hash.
fn rss_hash(context: &Tirc<Vec<u8>>, frame: &[u8], layers: &Layers) -> RssHash {
    let selector = context.rx_hash_field_selector_outer();
    let wanted = if selector.l3_prot_type() == 0 { L3::V4 } else { L3::V6 };
    if layers.l3.is_none_or(|(l3, _)| l3 != wanted) {
        return RssHash::default();
    }
    let transport = if selector.l4_prot_type() == 0 { L4::Tcp } else { L4::Udp };
    let ports = layers.l4.is_some_and(|(l4, _)| l4 == transport);
    let selected = |bit: u32| selector.selected_fields() >> bit & 1 != 0;
    let fields = Fields {
        source: selected(0),
        destination: selected(1),
        source_port: ports && selected(2),
        destination_port: ports && selected(3),
        spi: selected(4),
    };
    let tuple = Tuple::of(frame, layers, fields, context.rx_hash_symmetric() != 0);
    if tuple.bytes().is_empty() {
        return RssHash::default();
    }
    let value = match RxHashFn(context.rx_hash_fn() as u8) {
        RxHashFn::TOEPLITZ => {
            let mut key = [0; KEY];
            for (i, word) in key.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&context.rx_hash_toeplitz_key(i).unwrap_or(0).to_be_bytes());
            }
            toeplitz(&key, tuple.bytes())
        }
        RxHashFn::INVERTED_XOR8 => inverted_xor8(tuple.bytes()),
        _ => return RssHash::default(),
    };
    let ip_type = match (tuple.addresses, wanted) {
        (false, _) => 0,
        (true, L3::V4) => 1,
        (true, L3::V6) => 2,
    };
    let l4_type = match tuple.transport {
        None => 0,
        Some(Transport::Tcp) => 1,
        Some(Transport::Udp) => 2,
        Some(Transport::Spi) => 3,
    };
    RssHash { value, ip_type, l4_type }
}

/// Whether an interface leaves out a frame because it was sent in its own transport domain. The bits of
/// `self_lb_block` allow what their name forbids (kernel `en/tir.c:mlx5e_tir_context_self_lb_block`).
fn blocked(context: &Tirc<Vec<u8>>, origin: Origin, multicast: bool) -> bool {
    const UNICAST: u32 = 1 << 0;
    const MULTICAST: u32 = 1 << 1;
    let allowed = context.self_lb_block() & if multicast { MULTICAST } else { UNICAST } != 0;
    origin == Origin::Queue(Some(context.transport_domain())) && !allowed
}

/// `l4_hdr_type` of a completion.
fn l4_kind(frame: &[u8], layers: &Layers) -> u32 {
    const TCP_NO_ACK: u32 = 1;
    const UDP: u32 = 2;
    const TCP_ACK_NO_DATA: u32 = 3;
    const TCP_ACK_AND_DATA: u32 = 4;
    const ACK: u8 = 0x10;
    match layers.l4 {
        None => 0,
        Some((L4::Udp, _)) => UDP,
        Some((L4::Tcp, at)) if frame[at + 13] & ACK == 0 => TCP_NO_ACK,
        Some((L4::Tcp, at)) if at + usize::from(frame[at + 12] >> 4) * 4 >= layers.end => TCP_ACK_NO_DATA,
        Some((L4::Tcp, _)) => TCP_ACK_AND_DATA,
    }
}

impl Findings {
    fn of(frame: &[u8], full_sum: bool) -> Findings {
        let layers = layers(frame, true);
        let tagged = layers.tags[0].is_some();
        let untagged = ones_complement(&frame[if tagged { MAC_HEADER + VLAN_TAG } else { MAC_HEADER }..]);
        let (sum, untagged_sum) = if full_sum {
            let tag = if tagged { ones_complement(&frame[MAC_HEADER..MAC_HEADER + VLAN_TAG]) } else { 0 };
            let ([a, b], [c, d]) = (tag.to_be_bytes(), untagged.to_be_bytes());
            (ones_complement(&[a, b, c, d]), untagged)
        } else {
            // The packet alone: no tags, no padding.
            let packet = layers.l3.map_or(0, |(_, at)| ones_complement(&frame[at..layers.end]));
            (packet, packet)
        };
        Findings { layers, l3_ok: l3_is_right(frame, &layers), l4_ok: l4_is_right(frame, &layers), sum, untagged_sum }
    }
}

impl ReceiveQueue {
    /// Takes the next entry of the queue's own ring into `entry`; answers its index, or `None` if none is posted.
    fn take(&mut self, rqn: u32, entry: &mut Vec<u8>, bus: &mut Bus) -> Result<Option<u16>, Catastrophe> {
        let ReceiveMemory::Inline(wq) = &self.memory else { return Ok(None) };
        if self.posted == self.consumed {
            self.posted = wq.posted_receives(Stream::Queue(rqn), bus).ok_or(Catastrophe)?;
        }
        match self.posted.wrapping_sub(self.consumed) {
            0 => return Ok(None),
            count if u64::from(count) > 1 << wq.log_size => return Err(Catastrophe),
            _ => {}
        }
        entry.resize(1 << wq.log_stride, 0);
        let at = wq.buffer.entry(wq.offset(self.consumed), entry.len() as u64).ok_or(Catastrophe)?;
        bus.load(Load::device(LoadClass::Wqe, Stream::Queue(rqn)), at, entry).map_err(|_| Catastrophe)?;
        let index = self.consumed;
        self.consumed = index.wrapping_add(1);
        Ok(Some(index))
    }
}

impl Hca {
    /// Takes the frame in the receive path's buffer on its way; what that costs is added to `cost`. Nothing may be
    /// under way.
    pub(super) fn steer(&mut self, origin: Origin, cost: &mut usize) {
        let path = &mut self.receive;
        debug_assert!(!path.under_way, "a frame overtakes another");
        if path.frame.len() < MAC_HEADER {
            return;
        }
        let mut words = [0; MATCH_WORDS];
        describe(&path.frame, &layers(&path.frame, false), &mut words);
        path.verdict.walk(&self.objects, self.roots.get(FlowTableType::NIC_RX), &words);
        *cost += path.verdict.note(&mut self.objects, path.frame.len());
        path.origin = origin;
        path.served = 0;
        path.counted = false;
        path.under_way = !path.verdict.targets.is_empty();
        if path.under_way {
            path.findings = Findings::of(&path.frame, path.full_sum);
            *cost += path.frame.len();
        }
        if origin == Origin::Wire {
            self.note_received();
            if self.receive.verdict.passed && !self.receive.under_way {
                self.vport.env.nic_receive_steering_discard += 1;
            }
        }
    }

    /// Counts the frame that is under way, the first time.
    fn note_received(&mut self) {
        if !std::mem::replace(&mut self.receive.counted, true) {
            self.vport.counters.received(&self.receive.frame);
        }
    }

    /// Gives the frame that is under way to its queues, until it is done or `cost` is beyond what a portion may cost.
    pub(super) fn deliver(&mut self, cost: &mut usize, bus: &mut Bus, now: u64) {
        while self.receive.under_way {
            let Some(target) = self.receive.verdict.targets.get(self.receive.served).copied() else {
                self.receive.under_way = false;
                return;
            };
            if *cost >= BYTES_PER_PORTION {
                return;
            }
            self.receive.served += 1;
            *cost += BYTES_PER_STEP;
            self.deliver_to(target, cost, bus, now);
        }
    }

    fn deliver_to(&mut self, target: Target, cost: &mut usize, bus: &mut Bus, now: u64) {
        let path = &self.receive;
        // The interface may be gone since the frame was steered.
        let Some(Tir { context }) = self.objects.tirs.get(target.tirn).map(|entry| &entry.object) else { return };
        if blocked(context, path.origin, path.frame[0] & 1 != 0) {
            return;
        }
        let (rqn, hash) = match TirDispType(context.disp_type() as u8) {
            TirDispType::INDIRECT => {
                let hash = rss_hash(context, &path.frame, &path.findings.layers);
                let Some(table) = self.objects.rq_tables.get(context.indirect_table()) else { return };
                // The number of queues is a power of two.
                let index = hash.value as usize & (table.object.queues.len().wrapping_sub(1));
                match table.object.queues.get(index) {
                    Some(rqn) => (*rqn, hash),
                    None => return,
                }
            }
            _ => (context.inline_rqn(), RssHash::default()),
        };
        self.note_received();
        match self.fill(rqn, target.tag, hash, cost, bus, now) {
            Ok(()) => {}
            Err(Catastrophe) => self.rq_catastrophe(rqn),
        }
    }

    /// Puts the frame that is under way into the next entry of a queue.
    fn fill(
        &mut self,
        rqn: u32,
        tag: u32,
        hash: RssHash,
        cost: &mut usize,
        bus: &mut Bus,
        now: u64,
    ) -> Result<(), Catastrophe> {
        let Some(rq) = self.objects.rqs.get(rqn).map(|entry| &entry.object) else { return Ok(()) };
        if rq.state != WqState::RDY || rq.catastrophic {
            return Ok(());
        }
        let Some(taken) = self.take_entry(rqn, bus)? else { return Ok(()) };
        let Some(rq) = self.objects.rqs.get(rqn).map(|entry| &entry.object) else { return Ok(()) };
        let (cqn, user_index) = (rq.context.cqn(), rq.context.user_index());
        let strip = rq.context.vsd() == 0 && self.receive.findings.layers.tags[0].is_some_and(|tag| !tag.service);
        *cost += self.receive.entry.len();
        let index = taken.index;
        let cqe = match self.scatter(taken, strip, cost, bus) {
            Ok(()) => {
                log::trace!(target: "cx10::rq", "rqn={rqn:#x} index={index:#x}: {} bytes", self.receive.frame.len());
                self.receive_cqe(strip, tag, hash, user_index, index, now)
            }
            Err(error) => {
                log::debug!(target: "cx10::rq", "rqn={rqn:#x} index={index:#x}: {error}");
                if let Some(entry) = self.objects.rqs.get_mut(rqn) {
                    entry.object.set_state(WqState::ERR);
                }
                error_cqe(rqn, user_index, index, error.syndrome(), error as u8)
            }
        };
        let failed = CqeOpcode(cqe[CQE - 1] >> 4) == CqeOpcode::RESP_ERR;
        if self.complete(cqn, &cqe, Stream::Queue(rqn).into(), bus, now) == Completion::Dropped {
            return Err(Catastrophe);
        }
        if failed {
            self.flush_rq(rqn);
        }
        Ok(())
    }

    /// Takes the next entry of a queue's ring or pool. If none is posted, the queue's counter counts it.
    fn take_entry(&mut self, rqn: u32, bus: &mut Bus) -> Result<Option<Taken>, Catastrophe> {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return Ok(None) };
        let (pd, reserved_lkey) = (rq.context.wq().pd(), rq.context.rlky() != 0);
        let (counter, who) = (rq.context.counter_set_id(), Who { pd, qpn: rqn, reserved_lkey });
        let bytes = &mut self.receive.entry;
        let taken = match rq.memory {
            ReceiveMemory::Inline(_) => rq.take(rqn, bytes, bus)?.map(|index| Taken { index, segments: 0, who }),
            ReceiveMemory::Pool(rmpn) => {
                let rmp = self.objects.rmps.get_mut(rmpn).map(|entry| &mut entry.object);
                let Some(rmp) = rmp.filter(|rmp| rmp.state() == RmpState::RDY) else { return Ok(None) };
                // Keys of the pool's entries belong to its own domain.
                let who = Who { pd: rmp.context.wq().pd(), ..who };
                match take_shared(&mut rmp.pool, rmpn, bytes, bus) {
                    Ok((index, limit)) => {
                        if limit {
                            self.srq_limit_reached(rmpn);
                        }
                        Some(Taken { index, segments: SrqNextSeg::SIZE, who })
                    }
                    Err(NoEntry::Empty) => None,
                    Err(NoEntry::Broken | NoEntry::NotThere) => return Err(Catastrophe),
                }
            }
        };
        if taken.is_none() {
            if let Some(counter) = self.objects.q_counters.get_mut(counter) {
                counter.object.out_of_buffer = counter.object.out_of_buffer.wrapping_add(1);
            }
        }
        Ok(taken)
    }

    /// Writes the frame to where the entry's segments point, without its VLAN tag if it is to be stripped. The top bit
    /// of a length asks for padding at the start, which is a hint.
    fn scatter(&mut self, taken: Taken, strip: bool, cost: &mut usize, bus: &mut Bus) -> Result<(), ReceiveError> {
        let path = &self.receive;
        let (head, tail) = path.frame.split_at(TAG_AT);
        let mut parts = [head, &tail[if strip { VLAN_TAG } else { 0 }..]];
        let len = parts[0].len() + parts[1].len();
        let keys = Keys { objects: &self.objects, space: &self.key_space };
        let (access, at) = (Access::LocalWrite, taken.segments);
        let mut reach = Reach::list(keys, taken.who, access, &path.entry, at, 0, len as u64);
        while let Some(part) = reach.advance()? {
            let Part::Piece(Piece { place, len, order, key }) = part else { return Err(ReceiveError::Length) };
            *cost += BYTES_PER_STEP + len as usize;
            let stream = Stream::Queue(taken.who.qpn);
            let store = Store { key: order, index: key, ..Store::device(StoreClass::Payload, stream) };
            let (mut done, len) = (0, len as usize);
            while done < len {
                if parts[0].is_empty() {
                    parts = [parts[1], &[]];
                }
                let (now, rest) = parts[0].split_at(parts[0].len().min(len - done));
                if now.is_empty() {
                    return Ok(());
                }
                match place {
                    Place::Memory(at) => {
                        let at = at.checked_add(done as u64).ok_or(ReceiveError::Memory)?;
                        bus.store(store, at, now).map_err(|_| ReceiveError::Memory)?;
                    }
                    Place::Device(at) => self.memic.write(at + done as u64, now),
                    Place::Nowhere => {}
                }
                done += now.len();
                parts[0] = rest;
            }
        }
        Ok(())
    }

    fn receive_cqe(&self, strip: bool, tag: u32, hash: RssHash, user_index: u32, index: u16, now: u64) -> [u8; CQE] {
        let ReceivePath { frame, findings, .. } = &self.receive;
        let mut cqe = Cqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::RESP_SEND.0.into());
        cqe.set_rss_hash_result(hash.value);
        cqe.set_rss_hash_type_ip(hash.ip_type);
        cqe.set_rss_hash_type_l4(hash.l4_type);
        cqe.set_check_sum(if strip { findings.untagged_sum } else { findings.sum }.into());
        cqe.set_l2_ok(1);
        cqe.set_l3_ok(findings.l3_ok.into());
        cqe.set_l4_ok(findings.l4_ok.into());
        cqe.set_l3_hdr_type(match findings.layers.l3 {
            None => 0,
            Some((L3::V6, _)) => 1,
            Some((L3::V4, _)) => 2,
        });
        cqe.set_l4_hdr_type(l4_kind(frame, &findings.layers));
        let mut len = frame.len();
        if let Some(tag) = findings.layers.tags[0].filter(|_| strip) {
            cqe.set_vlan_present(1);
            cqe.set_vlan_info(tag.tci.into());
            len -= VLAN_TAG;
        }
        cqe.set_byte_cnt(len as u32);
        cqe.set_srqn_user_index(user_index);
        cqe.set_timestamp(now);
        // Where other completions have the queue's number, received frames have their flow tag.
        cqe.set_qpn(tag);
        cqe.set_wqe_counter(index.into());
        cqe.into_inner()
    }

    /// A queue's ring, its record or its completions cannot be accessed: the driver learns it by event, once.
    pub(super) fn rq_catastrophe(&mut self, rqn: u32) {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return };
        if std::mem::replace(&mut rq.catastrophic, true) {
            return;
        }
        rq.set_state(WqState::ERR);
        limited!(warn, target: "cx10::rq", "rqn={rqn:#x}: catastrophic error");
        let mut event = QpEvents::zeroed();
        event.set_type(EventQueueType::RQ.0.into());
        event.set_qpn_rqn_sqn(rqn);
        let mut data = [0; 28];
        data.copy_from_slice(event.as_bytes());
        self.raise(Event { event_type: EventType::WQ_CATAS_ERROR.0, sub_type: 0, data, eqn: None });
    }
}

/// The completion of an entry that failed or is flushed.
pub(super) fn error_cqe(rqn: u32, user_index: u32, index: u16, syndrome: CqeSyndrome, vendor: u8) -> [u8; CQE] {
    let mut cqe = ErrCqe::wrap([0; CQE]);
    cqe.set_opcode(CqeOpcode::RESP_ERR.0.into());
    cqe.set_syndrome(syndrome.0.into());
    cqe.set_vendor_err_synd(vendor.into());
    cqe.set_qpn(rqn);
    cqe.set_srqn_user_index(user_index);
    cqe.set_wqe_counter(index.into());
    cqe.into_inner()
}
