//! Doorbells that are polled: UAR pages in memory that the VMM maps, and the look at them.
//!
//! A register is eight bytes of memory, and the guest overwrites it: two queues that share a register, or completion
//! queues that share an arm register, can overwrite each other's ring before the device looks. So a value only says
//! "look at this page". What it names is served at once; then every other queue of the page that the register may
//! have been about is looked at: send queues by the counter of their doorbell record, completion queues by the arm
//! word of theirs ([`super::cq`] tells what counts as a new request). Such a pass is done in bounded parts, and
//! begins anew if the register is written meanwhile.
//!
//! Event queues have no doorbell record. A queue whose page is polled is therefore always armed: every event signals
//! its vector. A consumer index moves forward only, and may be behind what the driver has taken. When the register is
//! written, queues with events that are not known to be taken are signalled again a little later; the driver's
//! handler then finds nothing and writes its index once more. A queue that looks full keeps its event waiting for as
//! long as [`super::eq`] allows before it counts as overrun.
//!
//! A burst of 64 bytes (BlueFlame) lands as memory; the first eight bytes of each register count. Only registers are
//! read, and only pages that queues use.
//!
//! Order: the guest stores entry, record and register in this order; the register is taken with acquire, everything
//! else is read after it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::hca::Hca;
use super::objects::{Kind, ObjRef};
use super::uar::{self, Class, Doorbell};
use crate::dma::Bus;
use crate::sys::{self, Mapping, Protection};

const LOG: &str = "cx10::uar";

/// Pages that one portion looks at.
const PAGES_PER_PORTION: usize = 64;
/// Queues that one portion looks at on behalf of rings that may have been overwritten.
const QUEUES_PER_PORTION: usize = 16;
/// How long after a write for some event queue the others of the page are signalled.
const NUDGE_NS: u64 = 1_000_000;

/// The pages of one VMM.
#[derive(Debug)]
pub struct UarPages {
    fd: Arc<OwnedFd>,
    memory: Mapping,
}

impl UarPages {
    /// Zeroed pages.
    pub fn new() -> io::Result<UarPages> {
        let fd = sys::memfd("cx10-doorbells", uar::END, true)?;
        let memory = Mapping::new(fd.as_fd(), 0, uar::END, Protection::ReadWrite)?;
        Ok(UarPages { fd: Arc::new(fd), memory })
    }

    /// The file; a page lies at its offset in BAR 0.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }

    /// Takes what was written to a register, if something was.
    fn take(&self, page: u32, register: u64) -> Option<[u8; 8]> {
        let at = u64::from(page) * uar::PAGE + register;
        match self.memory.load_acquire_u64(at) {
            Ok(0) | Err(_) => None,
            Ok(_) => self.memory.swap_u64(at, 0).ok().filter(|value| *value != 0).map(u64::to_ne_bytes),
        }
    }

    /// Forgets what was written to a page, for its next owner.
    fn clear(&self, page: u32) {
        for register in uar::REGISTERS {
            self.take(page, register);
        }
    }

    /// Forgets what was written to any page.
    fn clear_all(&self) {
        if let Err(error) = sys::discard(self.fd.as_fd(), 0, uar::END) {
            log::error!(target: LOG, "cannot clear the doorbell pages: {error}");
        }
    }
}

/// What a look at the pages found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Something was written.
    pub rung: bool,
    /// Pages or queues are left to look at now.
    pub more: bool,
}

/// Pages that are polled, and how far the look at them is.
#[derive(Debug)]
pub struct Polling {
    pages: UarPages,
    /// The page to go on with.
    next: u32,
    /// Pages with passes under way.
    passes: VecDeque<u32>,
    /// When event queues are signalled that may have been armed unseen.
    nudge_at: Option<u64>,
}

impl Polling {
    /// Begins to poll `pages`.
    pub fn new(pages: UarPages) -> Polling {
        Polling { pages, next: uar::FIRST, passes: VecDeque::new(), nudge_at: None }
    }

    /// The pages.
    pub fn pages(&self) -> &UarPages {
        &self.pages
    }

    /// When something is to be done although nobody writes.
    pub fn next_deadline(&self) -> Option<u64> {
        self.nudge_at
    }

    /// Forgets what was written and what is left to do: every queue is gone.
    pub fn clear(&mut self) {
        self.pages.clear_all();
        self.passes.clear();
        self.nudge_at = None;
    }

    /// Forgets what was written to a page, for its next owner.
    pub fn clear_page(&self, page: u32) {
        self.pages.clear(page);
    }

    /// Event queues have to be looked at again after a while.
    pub fn nudge(&mut self, now: u64) {
        self.nudge_at.get_or_insert(now.saturating_add(NUDGE_NS));
    }
}

impl Hca {
    /// Whether doorbells have to be polled for: pages are mapped, and there are queues that use some.
    pub fn polls(&self) -> bool {
        self.polling.is_some() && !self.objects.uars.is_empty()
    }

    /// Looks at a bounded number of pages and queues.
    pub fn poll_doorbells(&mut self, bus: &mut Bus, now: u64) -> Look {
        let Some(mut polling) = self.polling.take() else { return Look::default() };
        let mut look = Look::default();
        let mut wrapped = false;
        for _ in 0..PAGES_PER_PORTION {
            let Some((page, entry)) = self.objects.uars.next_from(polling.next) else {
                wrapped = true;
                polling.next = uar::FIRST;
                break;
            };
            polling.next = page + 1;
            if entry.object.users.is_empty() {
                continue;
            }
            for register in uar::REGISTERS {
                if let Some(bytes) = polling.pages.take(page, register) {
                    look.rung = true;
                    self.rung(&mut polling, page, register, bytes, bus, now);
                }
            }
        }
        for _ in 0..QUEUES_PER_PORTION {
            if !self.pass(&mut polling, bus, now) {
                break;
            }
        }
        if polling.nudge_at.is_some_and(|at| at <= now) {
            polling.nudge_at = None;
            for (eqn, entry) in self.objects.eqs.iter_mut() {
                entry.object.nudge(eqn, bus);
            }
        }
        look.more = !wrapped || !polling.passes.is_empty();
        self.polling = Some(polling);
        look
    }

    /// A register was written: what the value names is served, and a pass over the others begins.
    fn rung(&mut self, polling: &mut Polling, page: u32, register: u64, bytes: [u8; 8], bus: &mut Bus, now: u64) {
        let doorbell = uar::polled(register, bytes);
        let served = match doorbell {
            Doorbell::Eq { eqn, ci, arm } => {
                polling.nudge(now);
                let entry = self.objects.eqs.get_mut(eqn).filter(|entry| entry.object.uar() == page);
                entry.map(|entry| entry.object.doorbell(eqn, ci, arm, bus)).is_some()
            }
            Doorbell::CqArm { cqn, word } => self.arm_cq(page, cqn, word, now),
            Doorbell::Send { qpn, .. } => self.ring_qp(page, qpn) || self.ring_sq(page, qpn),
        };
        log::trace!(target: LOG, "UAR {page:#x}: {doorbell:?}");
        let class = doorbell.class();
        let Some(entry) = self.objects.uars.get_mut(page) else { return };
        if class == Class::Eq || (served && entry.object.is_alone(class)) {
            return;
        }
        if entry.object.begin_pass(class) {
            polling.passes.push_back(page);
        }
    }

    /// Looks at one queue for which a ring may have been overwritten; whether there is anything left to look at.
    fn pass(&mut self, polling: &mut Polling, bus: &mut Bus, now: u64) -> bool {
        let Some(page) = polling.passes.pop_front() else { return false };
        let Some(entry) = self.objects.uars.get_mut(page) else { return true };
        let (user, again) = entry.object.next_of_pass();
        if again {
            polling.passes.push_back(page);
        }
        match user {
            Some(ObjRef { kind: Kind::Cq, id }) => self.look_at_arm(id, bus, now),
            Some(ObjRef { kind: Kind::Qp, id }) => {
                self.ring_qp(page, id);
            }
            Some(ObjRef { id, .. }) => {
                self.ring_sq(page, id);
            }
            None => {}
        }
        true
    }
}

#[cfg(test)]
mod tests;
