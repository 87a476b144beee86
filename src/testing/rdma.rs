//! Queue pairs for tests: a driver that creates, connects, posts and polls.

use std::ops::{Deref, DerefMut};

use super::queues::{QueueRig, fill_pas, number};
use crate::prm::cqe::Cqe;
use crate::prm::mkey::{CreateMkeyIn, Mkc};
use crate::prm::qp::{CreateQpIn, Qpc};
use crate::prm::values::{AtomicMode, QpMtu, QpType, WqeOpcode};
use crate::prm::vport::SetRoceAddressIn;
use crate::prm::wqe::{CtrlSeg, DataSeg, RaddrSeg};
use crate::profile::Profile;

/// log2 of the entries of every completion queue.
const LOG_CQ: u32 = 8;
/// log2 of the basic blocks of every send queue.
pub const LOG_SQ: u32 = 6;
/// log2 of the entries of every receive queue.
pub const LOG_RQ: u32 = 5;
/// log2 of the bytes of a receive entry.
const LOG_STRIDE: u32 = 6;
/// The function's address at GID index 0.
pub const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];

/// A completion queue as a driver holds it.
#[derive(Clone, Debug)]
pub struct Cq {
    /// Its number.
    pub cqn: u32,
    /// Where its doorbell record is.
    pub record: u64,
    at: u64,
    next: u32,
}

/// A queue pair as a driver holds it.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Its number.
    pub qpn: u32,
    /// Its completion queue.
    pub cq: Cq,
    /// Where its doorbell record is.
    pub record: u64,
    /// Blocks posted to its send queue.
    pub sent: u16,
    /// Entries posted to its receive queue.
    pub received: u16,
    at: u64,
    send_ring: u64,
}

impl Qp {
    /// Where the send queue begins.
    pub fn send_ring(&self) -> u64 {
        self.send_ring
    }
}

/// What connects two queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Path MTU.
    pub mtu: QpMtu,
    /// Retries.
    pub retries: u32,
    /// Retries when the receiver is not ready.
    pub rnr_retries: u32,
    /// Exponent of the acknowledge timeout.
    pub timeout: u32,
    /// log2 of READs and atomics under way.
    pub log_reads: u32,
    /// First sequence number, both ways.
    pub psn: u32,
    /// `rre`, `rwe` and `rae`.
    pub access: bool,
    /// `atomic_mode`.
    pub atomic_mode: AtomicMode,
}

impl Default for Link {
    fn default() -> Link {
        let mtu = QpMtu::MTU_1K;
        Link {
            mtu,
            retries: 7,
            rnr_retries: 7,
            timeout: 14,
            log_reads: 4,
            psn: 0xff_fffe,
            access: true,
            atomic_mode: AtomicMode::IB_SPEC,
        }
    }
}

/// A running HCA with a protection domain, a key for all memory, and a RoCE address.
pub struct RdmaRig {
    rig: QueueRig,
    /// The protection domain.
    pub pd: u32,
    /// A key with all rights whose addresses are DMA addresses.
    pub key: u32,
}

impl Deref for RdmaRig {
    type Target = QueueRig;
    fn deref(&self) -> &QueueRig {
        &self.rig
    }
}

impl DerefMut for RdmaRig {
    fn deref_mut(&mut self) -> &mut QueueRig {
        &mut self.rig
    }
}

impl RdmaRig {
    /// Brings the default profile up.
    pub fn new() -> RdmaRig {
        RdmaRig::with(Profile::default())
    }

    /// Brings a profile up.
    pub fn with(profile: Profile) -> RdmaRig {
        let mut rig = QueueRig::with(profile);
        let pd = rig.pd();
        let mut rig = RdmaRig { rig, pd, key: 0 };
        rig.key = rig.create_key(|_| {});
        let mac = rig.function.hca().vport.mac();
        let mut input = SetRoceAddressIn::zeroed();
        input.set_opcode(0x761);
        let mut address = input.roce_address_mut();
        address.as_bytes_mut()[..16].copy_from_slice(&GID);
        address.set_source_mac_47_32(u16::from_be_bytes([mac[0], mac[1]]).into());
        address.set_source_mac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
        address.set_roce_version(2);
        rig.ok(input.as_bytes(), 16);
        rig
    }

    /// Creates a key over all memory with every right, or as `edit` has it.
    pub fn create_key(&mut self, edit: impl FnOnce(&mut Mkc<&mut [u8]>)) -> u32 {
        self.create_listed_key(&[], edit)
    }

    /// Creates a key with a list of translations.
    pub fn create_listed_key(&mut self, list: &[u8], edit: impl FnOnce(&mut Mkc<&mut [u8]>)) -> u32 {
        let padded = list.len().next_multiple_of(16);
        let mut input = CreateMkeyIn::with_tail(padded);
        input.set_opcode(0x200);
        input.set_pg_access(u32::from(!list.is_empty()));
        input.set_translations_octword_actual_size((padded / 16) as u32);
        input.klm_pas_mtt_mut()[..list.len()].copy_from_slice(list);
        let pd = self.pd;
        let mut mkc = input.memory_key_mkey_entry_mut();
        for set in [Mkc::set_lr, Mkc::set_lw, Mkc::set_rr, Mkc::set_rw, Mkc::set_a, Mkc::set_relaxed_ordering_write] {
            set(&mut mkc, 1);
        }
        mkc.set_length64(u32::from(list.is_empty()));
        mkc.set_pd(pd);
        mkc.set_qpn(0xff_ffff);
        mkc.set_mkey_7_0(0x5a);
        edit(&mut mkc);
        let variant = mkc.mkey_7_0();
        number(&self.ok(input.as_bytes(), 16)) << 8 | variant
    }

    /// Destroys a key.
    pub fn destroy_key(&mut self, key: u32) {
        self.ok(&QueueRig::naming(0x202, key >> 8), 16);
    }

    /// Creates a completion queue.
    pub fn cq(&mut self) -> Cq {
        let (input, at, record) = self.create_cq_in(LOG_CQ);
        let cqn = number(&self.ok(input.as_bytes(), 16));
        Cq { cqn, record, at, next: 0 }
    }

    /// Takes the next completion.
    pub fn poll(&mut self, cq: &mut Cq) -> Option<Cqe<Vec<u8>>> {
        let at = cq.at + 64 * u64::from(cq.next & ((1 << LOG_CQ) - 1));
        let bytes = self.read(at, 64);
        let owner = u32::from(bytes[63] & 1);
        if bytes[63] >> 4 == 0xf || owner != (cq.next >> LOG_CQ & 1) {
            return None;
        }
        cq.next += 1;
        let (record, next) = (cq.record, cq.next);
        self.write(record, &next.to_be_bytes());
        Some(Cqe::wrap(bytes))
    }

    /// Takes `count` completions, which must be there, without looking at them.
    pub fn take(&mut self, cq: &mut Cq, count: u32) {
        cq.next += count;
        let last = cq.next - 1;
        let owner = self.read(cq.at + 64 * u64::from(last & ((1 << LOG_CQ) - 1)) + 63, 1);
        assert!(owner[0] >> 4 != 0xf && u32::from(owner[0] & 1) == (last >> LOG_CQ & 1), "a completion is missing");
        let (record, next) = (cq.record, cq.next);
        self.write(record, &next.to_be_bytes());
    }

    /// Creates a queue pair in reset with a completion queue of its own.
    pub fn qp(&mut self, service: QpType) -> Qp {
        self.qp_with(service, |_| {})
    }

    /// The same with a context that `edit` changes.
    pub fn qp_with(&mut self, service: QpType, edit: impl FnOnce(&mut Qpc<&mut [u8]>)) -> Qp {
        let cq = self.cq();
        let bytes = (1u64 << (LOG_RQ + LOG_STRIDE)) + (64 << LOG_SQ);
        let (at, record) = (self.memory(bytes), self.memory(8));
        let pages = bytes.div_ceil(4096);
        let mut input = CreateQpIn::with_tail(8 * pages as usize);
        input.set_opcode(0x500);
        let (uar, pd) = (self.uar, self.pd);
        let mut context = input.qpc_mut();
        context.set_st(u32::from(service.0));
        context.set_pm_state(3);
        context.set_pd(pd);
        context.set_log_rq_size(LOG_RQ);
        context.set_log_rq_stride(LOG_STRIDE - 4);
        context.set_log_sq_size(LOG_SQ);
        context.set_uar_page(uar);
        context.set_cqn_snd(cq.cqn);
        context.set_cqn_rcv(cq.cqn);
        context.set_user_index(0xabc);
        context.set_dbr_addr(record);
        edit(&mut context);
        // A receive queue of its own comes first.
        let send_ring = if context.rq_type() == 0 { at + (1 << (LOG_RQ + LOG_STRIDE)) } else { at };
        fill_pas(input.pas_mut(), at);
        let qpn = number(&self.ok(input.as_bytes(), 16));
        Qp { qpn, cq, record, sent: 0, received: 0, at, send_ring }
    }

    /// Runs a command that moves a queue pair.
    pub fn modify(&mut self, opcode: u16, qpn: u32, fill: impl FnOnce(&mut Qpc<&mut [u8]>)) {
        let input = QueueRig::modify_qp_in(opcode, qpn, 0, fill);
        self.ok(input.as_bytes(), 16);
    }

    /// Moves a queue pair from reset to ready-to-send, with `remote` as its peer.
    pub fn connect(&mut self, qpn: u32, remote: u32, link: Link) {
        let mac = self.function.hca().vport.mac();
        let access = u32::from(link.access);
        self.modify(0x502, qpn, |context| {
            context.primary_address_path_mut().set_vhca_port_num(1);
            context.set_pm_state(3);
            context.set_rre(access);
            context.set_rwe(access);
            context.set_rae(access);
            context.set_atomic_mode(access * u32::from(link.atomic_mode.0));
            context.set_q_key(0x1111_1111);
        });
        self.modify(0x503, qpn, |context| {
            let mut path = context.primary_address_path_mut();
            path.set_rmac_47_32(u16::from_be_bytes([mac[0], mac[1]]).into());
            path.set_rmac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
            path.set_hop_limit(64);
            path.set_grh(1);
            path.set_vhca_port_num(1);
            let at = path.as_bytes().len() - 0x2c + 0x10;
            path.as_bytes_mut()[at..at + 16].copy_from_slice(&GID);
            context.set_mtu(u32::from(link.mtu.0));
            context.set_log_msg_max(30);
            context.set_remote_qpn(remote);
            context.set_next_rcv_psn(link.psn);
            context.set_log_rra_max(link.log_reads);
            context.set_min_rnr_nak(1);
        });
        self.modify(0x504, qpn, |context| {
            context.set_next_send_psn(link.psn);
            context.set_retry_count(link.retries);
            context.set_rnr_retry(link.rnr_retries);
            context.set_log_sra_max(link.log_reads);
            context.set_log_ack_req_freq(8);
            context.primary_address_path_mut().set_ack_timeout(link.timeout);
        });
    }

    /// Two connected queue pairs.
    pub fn pair(&mut self, service: QpType, link: Link) -> (Qp, Qp) {
        let (a, b) = (self.qp(service), self.qp(service));
        self.connect(a.qpn, b.qpn, link);
        self.connect(b.qpn, a.qpn, link);
        (a, b)
    }

    /// Writes a send entry of `segments` behind a control segment, without ringing.
    pub fn post_send(
        &mut self,
        qp: &mut Qp,
        opcode: WqeOpcode,
        segments: &[u8],
        edit: impl FnOnce(&mut CtrlSeg<&mut [u8]>),
    ) {
        let mut bytes = vec![0; 16 + segments.len().next_multiple_of(16)];
        bytes[16..16 + segments.len()].copy_from_slice(segments);
        let units = (bytes.len() / 16) as u32;
        let mut ctrl = CtrlSeg::wrap(&mut bytes[..16]);
        ctrl.set_wqe_index(qp.sent.into());
        ctrl.set_opcode(opcode.0.into());
        ctrl.set_qpn(qp.qpn);
        ctrl.set_ds(units);
        ctrl.set_ce(2);
        edit(&mut ctrl);
        for (i, block) in bytes.chunks(64).enumerate() {
            let slot = u64::from(qp.sent.wrapping_add(i as u16)) & ((1 << LOG_SQ) - 1);
            self.write(qp.send_ring() + 64 * slot, block);
        }
        qp.sent = qp.sent.wrapping_add(units.div_ceil(4) as u16);
    }

    /// Rings the send doorbell without letting the device work.
    pub fn ring_send(&mut self, qp: &Qp) {
        let (record, sent) = (qp.record + 4, u32::from(qp.sent));
        self.write(record, &sent.to_be_bytes());
        let offset = u64::from(self.uar) * 4096 + 0x800;
        let mut bytes = [0; 8];
        bytes[4..].copy_from_slice(&(qp.qpn << 8).to_be_bytes());
        self.function.bar_write(offset, &bytes);
    }

    /// Posts a send entry, rings, and lets the device work.
    pub fn send(&mut self, qp: &mut Qp, opcode: WqeOpcode, segments: &[u8]) {
        self.post_send(qp, opcode, segments, |_| {});
        self.ring_send(qp);
        self.settle();
    }

    /// Posts a receive entry with these data segments.
    pub fn post_receive(&mut self, qp: &mut Qp, segments: &[u8]) {
        let mut entry = segments.to_vec();
        if entry.len() < 1 << LOG_STRIDE {
            entry.extend(data(0, 0x100, 0));
        }
        let slot = u64::from(qp.received) & ((1 << LOG_RQ) - 1);
        self.write(qp.at + (slot << LOG_STRIDE), &entry);
        qp.received = qp.received.wrapping_add(1);
        let (record, received) = (qp.record, u32::from(qp.received));
        self.write(record, &received.to_be_bytes());
    }

    /// Lets time pass and the device work.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.clock.advance(nanoseconds);
        self.settle();
    }

    /// The context of a queue pair as a query returns it.
    pub fn query(&mut self, qpn: u32) -> Qpc<Vec<u8>> {
        let out = self.ok(&QueueRig::naming(0x50b, qpn), 0x110 + 8 * 4);
        Qpc::wrap(out[0x18..0x18 + Qpc::SIZE].to_vec())
    }

    /// Fills memory with a pattern that differs from byte to byte.
    pub fn pattern(&mut self, at: u64, len: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect();
        self.write(at, &bytes);
        bytes
    }
}

impl Default for RdmaRig {
    fn default() -> RdmaRig {
        RdmaRig::new()
    }
}

/// A data segment.
pub fn data(len: u32, key: u32, at: u64) -> Vec<u8> {
    let mut segment = DataSeg::zeroed();
    segment.set_byte_count(len);
    segment.set_lkey(key);
    segment.set_addr(at);
    segment.as_bytes().to_vec()
}

/// A remote address segment.
pub fn remote(va: u64, key: u32) -> Vec<u8> {
    let mut segment = RaddrSeg::zeroed();
    segment.set_raddr(va);
    segment.set_rkey(key);
    segment.as_bytes().to_vec()
}

/// An inline data segment.
pub fn inline(bytes: &[u8]) -> Vec<u8> {
    let mut segment = (1u32 << 31 | bytes.len() as u32).to_be_bytes().to_vec();
    segment.extend(bytes);
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}
