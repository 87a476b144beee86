//! Receive entries: out of a queue pair's own ring or out of a shared receive queue (PRM "Receive WQE"; kernel
//! `infiniband/hw/mlx5/qp.c:mlx5_ib_post_recv`, `srq.c`).
//!
//! Receive queues have no doorbell register: the doorbell record is read when an entry is needed and none is known.

use super::Portion;
use super::memory::Who;
use super::state::Settings;
use crate::device::hca::Hca;
use crate::device::qp::Service;
use crate::device::srq::Pool;
use crate::dma::{Bus, Load, LoadClass, Stream};
use crate::prm::wqe::SrqNextSeg;

/// A receive entry in use.
#[derive(Debug, Default)]
pub struct ReceiveEntry {
    /// Its bytes.
    bytes: Vec<u8>,
    /// Where its data segments begin.
    data: usize,
    /// Counter or index that its completion names.
    pub index: u16,
    /// The shared queue that it comes from.
    pub shared: Option<u32>,
    /// Protection domain of its keys.
    pub pd: u32,
    /// Whether the reserved lkey may be used.
    pub reserved_lkey: bool,
    /// Where it is completed.
    pub cqn: u32,
    /// User index or number that its completion names.
    pub user_index: u32,
}

impl ReceiveEntry {
    /// The whole entry, and where its data segments begin.
    pub fn data(&self) -> (&[u8], usize) {
        (&self.bytes, self.data)
    }

    /// For whom its keys are looked up.
    pub fn who(&self, qpn: u32) -> Who {
        Who { pd: self.pd, qpn, reserved_lkey: self.reserved_lkey }
    }
}

/// Why there is no receive entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEntry {
    /// None is posted.
    Empty,
    /// The ring or its record cannot be read, or more is posted than it holds.
    Broken,
    /// The shared queue does not exist or does not belong there.
    NotThere,
}

/// The user index of a queue of the driver itself: completions then name the shared queue.
pub const NO_USER_INDEX: u32 = 0xff_ffff;

/// Takes the next entry of a shared receive queue; answers its index and whether the limit was passed.
pub(in crate::device) fn take_shared(
    pool: &mut Pool,
    number: u32,
    bytes: &mut Vec<u8>,
    bus: &mut Bus,
) -> Result<(u16, bool), NoEntry> {
    let available = match pool.known() {
        0 => pool.look(number, bus).ok_or(NoEntry::Broken)?,
        known => known,
    };
    if available == 0 {
        return Err(NoEntry::Empty);
    }
    if u64::from(available) > 1 << pool.log_size {
        return Err(NoEntry::Broken);
    }
    let index = pool.next();
    bytes.resize(1 << pool.log_stride, 0);
    let at = pool.buffer.entry(u64::from(index) << pool.log_stride, 1 << pool.log_stride).ok_or(NoEntry::Broken)?;
    bus.load(Load::device(LoadClass::Wqe, Stream::Queue(number)), at, bytes).map_err(|_| NoEntry::Broken)?;
    let next = SrqNextSeg::new(&bytes[..]).map_err(|_| NoEntry::Broken)?.next_wqe_index();
    Ok((index, pool.consume(next as u16, number, bus)))
}

impl Hca {
    /// The shared receive queue with this number, whatever its kind, and what its entries are looked up for.
    fn shared_pool(&mut self, number: u32) -> Option<(&mut Pool, Shared)> {
        if let Some(entry) = self.objects.rmps.get_mut(number) {
            let rmp = &mut entry.object;
            let shared = Shared { pd: rmp.context.wq().pd(), ..Shared::default() };
            return Some((&mut rmp.pool, shared));
        }
        if let Some(entry) = self.objects.xrc_srqs.get_mut(number) {
            let context = &entry.object.context;
            let shared = Shared {
                pd: context.pd(),
                reserved_lkey: context.rlky() != 0,
                xrc: Some((context.xrcd(), context.cqn(), context.user_index())),
            };
            return Some((&mut entry.object.pool, shared));
        }
        let entry = self.objects.srqs.get_mut(number)?;
        let context = &entry.object.context;
        let shared = Shared { pd: context.pd(), reserved_lkey: context.rlky() != 0, xrc: None };
        Some((&mut entry.object.pool, shared))
    }
}

/// What a shared receive queue says about its entries.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    pd: u32,
    reserved_lkey: bool,
    /// Domain, completion queue and user index of an XRC one.
    xrc: Option<(u32, u32, u32)>,
}

impl Portion<'_> {
    /// Takes a receive entry for a message to `qpn`, unless it has one already. `srqn` is what an XRC request names.
    pub(super) fn take_receive(&mut self, qpn: u32, srqn: u32) -> Result<(), NoEntry> {
        let Some(qp) = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object) else {
            return Err(NoEntry::NotThere);
        };
        if qp.flow.responder.taken {
            return Ok(());
        }
        let settings = qp.flow.settings;
        let shared = if qp.service() == Service::Xrc { Some(srqn) } else { settings.shared };
        let xrc = qp.service() == Service::Xrc;
        let mut entry = qp.flow.responder.entry.take().unwrap_or_default();
        let result = match shared {
            Some(number) => self.take_from_shared(number, &settings, xrc, &mut entry),
            None => self.take_from_own(qpn, &settings, &mut entry),
        };
        if let Some(qp) = self.qp(qpn) {
            qp.flow.responder.entry = Some(entry);
            qp.flow.responder.taken = result.is_ok();
        }
        if result == Err(NoEntry::Empty) {
            self.count(settings.counter_set, |counters| &mut counters.out_of_buffer);
        }
        result
    }

    fn take_from_shared(
        &mut self,
        number: u32,
        settings: &Settings,
        xrc: bool,
        entry: &mut ReceiveEntry,
    ) -> Result<(), NoEntry> {
        let (pool, shared) = self.hca.shared_pool(number).ok_or(NoEntry::NotThere)?;
        let (cqn, user_index) = match (xrc, shared.xrc) {
            (true, Some((xrcd, cqn, user_index))) if xrcd == settings.xrcd => (cqn, user_index),
            (false, None) => (settings.cqn_receive, settings.user_index),
            _ => return Err(NoEntry::NotThere),
        };
        let taken = take_shared(pool, number, &mut entry.bytes, self.bus);
        if taken == Err(NoEntry::Broken) && pool.mark_broken() {
            self.hca.srq_catastrophe(number);
        }
        let (index, limit) = taken?;
        entry.data = SrqNextSeg::SIZE;
        entry.index = index;
        entry.shared = Some(number);
        entry.pd = shared.pd;
        entry.reserved_lkey = shared.reserved_lkey || (!xrc && settings.reserved_lkey);
        entry.cqn = cqn;
        // Queues of the driver are found by the number of the shared queue.
        entry.user_index = if user_index == NO_USER_INDEX { number } else { user_index };
        if limit {
            self.hca.srq_limit_reached(number);
        }
        Ok(())
    }

    fn take_from_own(&mut self, qpn: u32, settings: &Settings, entry: &mut ReceiveEntry) -> Result<(), NoEntry> {
        let bus = &mut *self.bus;
        let Some(qp) = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object) else {
            return Err(NoEntry::NotThere);
        };
        let (log_size, log_stride) = (qp.context.log_rq_size(), qp.context.log_rq_stride() + 4);
        if qp.geometry().rq_bytes == 0 {
            return Err(NoEntry::Empty);
        }
        let stream = Stream::Responder(qpn);
        let record = qp.record.ok_or(NoEntry::Broken)?;
        let responder = &mut qp.flow.responder;
        if responder.posted == responder.consumed {
            responder.posted = bus.load_dbrec(stream, record).map_err(|_| NoEntry::Broken)? as u16;
        }
        let available = responder.posted.wrapping_sub(responder.consumed);
        if available == 0 {
            return Err(NoEntry::Empty);
        }
        if u64::from(available) > 1 << log_size {
            return Err(NoEntry::Broken);
        }
        let index = responder.consumed;
        let slot = u64::from(index) & ((1 << log_size) - 1);
        let at = qp.buffer.entry(slot << log_stride, 1 << log_stride).ok_or(NoEntry::Broken)?;
        entry.bytes.resize(1 << log_stride, 0);
        bus.load(Load::device(LoadClass::Wqe, stream), at, &mut entry.bytes).map_err(|_| NoEntry::Broken)?;
        qp.flow.responder.consumed = index.wrapping_add(1);
        entry.data = 0;
        entry.index = index;
        entry.shared = None;
        entry.pd = settings.pd;
        entry.reserved_lkey = settings.reserved_lkey;
        entry.cqn = settings.cqn_receive;
        entry.user_index = settings.user_index;
        Ok(())
    }

    /// Lets go of an entry of an XRC shared receive queue that is gone: its numbers may be those of other objects by now.
    pub(super) fn drop_stale_receive(&mut self, qpn: u32) {
        let Some(qp) = self.hca.objects.qps.get(qpn).map(|entry| &entry.object) else { return };
        let responder = &qp.flow.responder;
        let Some(entry) = responder.entry.as_deref().filter(|_| responder.taken && qp.service() == Service::Xrc) else {
            return;
        };
        let queue = entry.shared.and_then(|number| self.hca.objects.xrc_srqs.get(number));
        let same = queue.is_some_and(|queue| {
            let context = &queue.object.context;
            (context.pd(), context.cqn()) == (entry.pd, entry.cqn)
        });
        if let Some(qp) = self.qp(qpn).filter(|_| !same) {
            qp.flow.responder.taken = false;
            qp.flow.responder.message = None;
        }
    }

    /// How many entries of its own ring wait to be flushed; `None` if that cannot be known.
    pub(super) fn receives_left(&mut self, qpn: u32) -> Option<u16> {
        let bus = &mut *self.bus;
        let qp = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object)?;
        if !qp.flow.settings.own_ring {
            return Some(0);
        }
        let posted = bus.load_dbrec(Stream::Responder(qpn), qp.record?).ok()? as u16;
        let responder = &mut qp.flow.responder;
        responder.posted = posted;
        let left = posted.wrapping_sub(responder.consumed);
        (u64::from(left) <= 1 << qp.context.log_rq_size()).then_some(left)
    }
}
