//! Queues for tests: a running HCA with a UAR page and event queues, and the commands that make more.

use std::ops::{Deref, DerefMut};

use super::{FREE, Rig};
use crate::prm::cq::CreateCqIn;
use crate::prm::devx::CreateUmemIn;
use crate::prm::eq::CreateEqIn;
use crate::prm::event::EventType;
use crate::prm::qp::{CreateQpIn, Qpc, Rst2initQpIn};
use crate::prm::srq::{CreateRmpIn, CreateXrcSrqIn};
use crate::prm::values::QpType;
use crate::profile::Profile;

/// An event queue as a driver holds it.
#[derive(Clone, Debug)]
pub struct Eq {
    /// Its number.
    pub eqn: u32,
    /// Its vector.
    pub vector: u32,
    at: u64,
    log_size: u32,
    next: u32,
}

impl Eq {
    /// What its doorbells carry: the queue, and the index behind what was taken.
    pub fn word(&self) -> u32 {
        self.eqn << 24 | self.next & 0xff_ffff
    }
}

/// A running HCA with queues.
pub struct QueueRig {
    rig: Rig,
    /// A UAR page.
    pub uar: u32,
    /// Takes completion events; vector 1.
    pub comp: Eq,
    /// Takes the events of queues; vector 0.
    pub events: Eq,
    free: u64,
}

impl Deref for QueueRig {
    type Target = Rig;
    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl DerefMut for QueueRig {
    fn deref_mut(&mut self) -> &mut Rig {
        &mut self.rig
    }
}

/// A 24-bit number at bytes 9..12 of an output, where every create command has it.
pub fn number(output: &[u8]) -> u32 {
    u32::from_be_bytes([0, output[9], output[10], output[11]])
}

impl QueueRig {
    /// Brings the default profile up and creates one UAR page and two event queues.
    pub fn new() -> QueueRig {
        QueueRig::with(Profile::default())
    }

    /// The same with a profile.
    pub fn with(profile: Profile) -> QueueRig {
        let mut rig = Rig::new(profile);
        rig.bring_up();
        let uar = number(&rig.ok(&Rig::input(0x802, 0, 16), 16));
        let none = Eq { eqn: 0, vector: 0, at: 0, log_size: 0, next: 0 };
        let mut rig = QueueRig { rig, uar, comp: none.clone(), events: none, free: FREE };
        let types = [
            EventType::PATH_MIG,
            EventType::COMM_EST,
            EventType::SQ_DRAINED,
            EventType::CQ_ERROR,
            EventType::WQ_CATAS_ERROR,
            EventType::WQ_INVAL_REQ_ERROR,
            EventType::WQ_ACCESS_ERROR,
            EventType::SRQ_CATAS_ERROR,
            EventType::SRQ_LAST_WQE,
            EventType::SRQ_RQ_LIMIT,
            EventType::DEVICE_TRACER,
        ];
        rig.events = rig.create_eq(0, types.iter().fold(0, |mask, t| mask | 1 << t.0), 6);
        rig.comp = rig.create_eq(1, 0, 6);
        rig
    }

    /// Guest memory for a queue, page aligned and zeroed.
    pub fn memory(&mut self, bytes: u64) -> u64 {
        let at = self.free;
        self.free += bytes.div_ceil(4096) * 4096;
        let zeroes = vec![0; bytes as usize];
        self.rig.write(at, &zeroes);
        at
    }

    /// Creates an event queue, armed.
    pub fn create_eq(&mut self, vector: u32, events: u64, log_size: u32) -> Eq {
        let at = self.memory(64 << log_size);
        // Entries that hardware owns.
        for i in 0..1u64 << log_size {
            self.rig.write(at + 64 * i + 63, &[1]);
        }
        let pages = (64u64 << log_size).div_ceil(4096);
        let mut input = CreateEqIn::with_tail(8 * pages as usize);
        input.set_opcode(0x301);
        input.set_event_bitmask(0, events);
        let mut context = input.eq_context_entry_mut();
        context.set_log_eq_size(log_size);
        context.set_intr(vector);
        context.set_uar_page(self.uar);
        fill_pas(input.pas_mut(), at);
        let out = self.rig.ok(input.as_bytes(), 16);
        let eq = Eq { eqn: u32::from(out[11]), vector, at, log_size, next: 0 };
        self.arm_eq(&eq);
        eq
    }

    /// Arms an event queue at what was taken from it.
    pub fn arm_eq(&mut self, eq: &Eq) {
        let offset = u64::from(self.uar) * 4096 + 0x40;
        self.rig.function.bar_write(offset, &eq.word().to_be_bytes());
    }

    /// Takes the next event, if there is one.
    pub fn take_event(&mut self, eq: &mut Eq) -> Option<Vec<u8>> {
        let slot = u64::from(eq.next & ((1 << eq.log_size) - 1));
        let eqe = self.rig.read(eq.at + 64 * slot, 64);
        if u32::from(eqe[63] & 1) != eq.next >> eq.log_size & 1 {
            return None;
        }
        eq.next += 1;
        Some(eqe)
    }

    /// Takes the next completion event: the number of its completion queue.
    pub fn take_completion_event(&mut self) -> Option<u32> {
        self.rig.settle();
        let mut eq = self.comp.clone();
        let eqe = self.take_event(&mut eq)?;
        self.comp = eq;
        assert_eq!(eqe[1], EventType::COMP.0);
        Some(u32::from_be_bytes([0, eqe[0x39], eqe[0x3a], eqe[0x3b]]))
    }

    /// Takes the next asynchronous event.
    pub fn take_async_event(&mut self) -> Option<Vec<u8>> {
        self.rig.settle();
        let mut eq = self.events.clone();
        let eqe = self.take_event(&mut eq);
        self.events = eq;
        eqe
    }

    /// Input of a CREATE_CQ that the device grants: `1 << log_size` entries of 64 bytes. Returns it with the
    /// addresses of the ring and of the doorbell record.
    pub fn create_cq_in(&mut self, log_size: u32) -> (CreateCqIn, u64, u64) {
        let bytes = 64u64 << log_size;
        let (at, record) = (self.memory(bytes), self.memory(8));
        for i in 0..1u64 << log_size {
            self.rig.write(at + 64 * i + 63, &[0xf1]);
        }
        let mut input = CreateCqIn::with_tail(8 * bytes.div_ceil(4096) as usize);
        input.set_opcode(0x400);
        let mut context = input.cq_context_mut();
        context.set_log_cq_size(log_size);
        context.set_uar_page(self.uar);
        context.set_c_eqn_or_apu_element(self.comp.eqn);
        context.set_dbr_addr(record);
        fill_pas(input.pas_mut(), at);
        (input, at, record)
    }

    /// Creates a completion queue; returns its number.
    pub fn create_cq(&mut self, log_size: u32) -> u32 {
        let (input, ..) = self.create_cq_in(log_size);
        number(&self.rig.ok(input.as_bytes(), 16))
    }

    /// Allocates a protection domain.
    pub fn pd(&mut self) -> u32 {
        number(&self.rig.ok(&Rig::input(0x800, 0, 16), 16))
    }

    /// Allocates an XRC domain.
    pub fn xrcd(&mut self) -> u32 {
        number(&self.rig.ok(&Rig::input(0x80e, 0, 16), 16))
    }

    /// Input of a CREATE_RMP that the device grants: `1 << log_size` entries of 32 bytes in `pd`. Returns it with
    /// the address of the doorbell record.
    pub fn create_rmp_in(&mut self, pd: u32, log_size: u32) -> (CreateRmpIn, u64) {
        let bytes = 32u64 << log_size;
        let (at, record) = (self.memory(bytes), self.memory(8));
        let mut input = CreateRmpIn::with_tail(8 * bytes.div_ceil(4096) as usize);
        input.set_opcode(0x90c);
        input.ctx_mut().set_state(1);
        let mut context = input.ctx_mut();
        let mut wq = context.wq_mut();
        wq.set_pd(pd);
        wq.set_log_wq_sz(log_size);
        wq.set_log_wq_stride(5);
        wq.set_dbr_addr(record);
        fill_pas(wq.pas_mut(), at);
        (input, record)
    }

    /// Creates a receive memory pool in `pd`; returns its number.
    pub fn create_rmp(&mut self, pd: u32) -> u32 {
        let (input, _) = self.create_rmp_in(pd, 4);
        number(&self.rig.ok(input.as_bytes(), 16))
    }

    /// Input of a CREATE_XRC_SRQ that the device grants: 16 entries of 32 bytes. Returns it with the address of the
    /// doorbell record.
    pub fn create_xrc_srq_in(&mut self, pd: u32, xrcd: u32, cqn: u32) -> (CreateXrcSrqIn, u64) {
        let (at, record) = (self.memory(512), self.memory(8));
        let mut input = CreateXrcSrqIn::with_tail(8);
        input.set_opcode(0x705);
        let mut context = input.xrc_srq_context_entry_mut();
        context.set_log_xrc_srq_size(4);
        context.set_log_rq_stride(1);
        context.set_pd(pd);
        context.set_xrcd(xrcd);
        context.set_cqn(cqn);
        context.set_db_record_addr_l((record >> 2) as u32);
        fill_pas(input.pas_mut(), at);
        (input, record)
    }

    /// Creates an XRC shared receive queue; returns its number.
    pub fn create_xrc_srq(&mut self, pd: u32, xrcd: u32, cqn: u32) -> u32 {
        let (input, _) = self.create_xrc_srq_in(pd, xrcd, cqn);
        number(&self.rig.ok(input.as_bytes(), 16))
    }

    /// Input of a CREATE_QP that the device grants: 8 receive entries of 64 bytes, 16 basic blocks to send, one
    /// completion queue. Returns it with the addresses of the buffer and of the doorbell record.
    pub fn create_qp_in(&mut self, service: QpType, pd: u32, cqn: u32) -> (CreateQpIn, u64, u64) {
        let (at, record) = (self.memory(4096), self.memory(8));
        let mut input = CreateQpIn::with_tail(8);
        input.set_opcode(0x500);
        let mut context = input.qpc_mut();
        context.set_st(u32::from(service.0));
        context.set_pm_state(3);
        context.set_pd(pd);
        context.set_log_rq_size(3);
        context.set_log_rq_stride(2);
        context.set_log_sq_size(4);
        context.set_uar_page(self.uar);
        context.set_cqn_snd(cqn);
        context.set_cqn_rcv(cqn);
        context.set_dbr_addr(record);
        fill_pas(input.pas_mut(), at);
        (input, at, record)
    }

    /// Creates a queue pair; returns its number.
    pub fn create_qp(&mut self, service: QpType, pd: u32, cqn: u32) -> u32 {
        let (input, ..) = self.create_qp_in(service, pd, cqn);
        number(&self.rig.ok(input.as_bytes(), 16))
    }

    /// Input of a command that moves a queue pair and carries a context.
    pub fn modify_qp_in(opcode: u16, qpn: u32, mask: u32, fill: impl FnOnce(&mut Qpc<&mut [u8]>)) -> Rst2initQpIn {
        let mut input = Rst2initQpIn::zeroed();
        input.set_opcode(u32::from(opcode));
        input.set_qpn(qpn);
        input.set_opt_param_mask(mask);
        fill(&mut input.qpc_mut());
        input
    }

    /// Registers `bytes` of user memory for `uid`; returns its number and address.
    pub fn create_umem(&mut self, uid: u16, bytes: u64) -> (u32, u64) {
        let at = self.memory(bytes);
        let pages = bytes.div_ceil(4096);
        let mut input = CreateUmemIn::with_tail(8 * pages as usize);
        input.set_opcode(0xa08);
        input.set_uid(u32::from(uid));
        input.umem_mut().set_num_of_mtt(pages);
        for (i, entry) in input.umem_mut().mtt_mut().chunks_exact_mut(8).enumerate() {
            // Readable and writable.
            entry.copy_from_slice(&((at + 4096 * i as u64) | 3).to_be_bytes());
        }
        (number(&self.rig.ok(input.as_bytes(), 16)), at)
    }

    /// Creates a user context; returns its uid.
    pub fn create_uctx(&mut self) -> u16 {
        let out = self.rig.ok(&Rig::input(0xa04, 0, 0x40), 16);
        u16::from_be_bytes([out[10], out[11]])
    }

    /// Input of a command that names one object at its bytes 9..12, as destroy and query commands do.
    pub fn naming(opcode: u16, number: u32) -> Vec<u8> {
        let mut input = Rig::input(opcode, 0, 16);
        input[8..12].copy_from_slice(&(number & 0xff_ffff).to_be_bytes());
        input
    }

    /// Arms a completion queue.
    pub fn arm_cq(&mut self, cqn: u32, ci: u32, solicited: bool) {
        let first = u32::from(solicited) << 24 | ci & 0xff_ffff;
        let offset = u64::from(self.uar) * 4096 + 0x20;
        let mut bytes = first.to_be_bytes().to_vec();
        bytes.extend(cqn.to_be_bytes());
        self.rig.function.bar_write(offset, &bytes);
    }
}

impl Default for QueueRig {
    fn default() -> QueueRig {
        QueueRig::new()
    }
}

/// Fills a page list with the pages from `at` on.
pub fn fill_pas(pas: &mut [u8], at: u64) {
    for (i, entry) in pas.chunks_exact_mut(8).enumerate() {
        entry.copy_from_slice(&(at + 4096 * i as u64).to_be_bytes());
    }
}
