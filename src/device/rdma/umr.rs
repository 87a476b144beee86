//! Executes user-mode memory registration (UMR) work requests (PRM "UMR WQE"; kernel `mlx5_ib umr.c`, `wr.c`; rdma-core
//! `providers/mlx5/qp.c`): enabling and revoking pooled keys, fast registration, memory windows, translation lists.
//!
//! [`crate::mkey::umr`] judges what becomes of the key's context; here are the entry's layout, who may change which
//! key, the list, and the order in which it all takes effect. An entry takes effect as a whole or not at all, at once:
//! data access looks a key up at each packet.
//!
//! Who may change which key is ours, since no public source says it. A list of pages is a way to any DMA address, and a
//! region's rights are what the driver pinned its pages for. So only the driver changes keys other than those that lead
//! to other keys, and only its registration queue reaches across protection domains. What a list of keys leads to is
//! checked against the domain of the queue that uses it, so that any queue may write one.

use crate::cmdif::error::{Syndrome, meaning};
use crate::device::hca::Hca;
use crate::device::objects::{Kind, ObjRef};
use crate::dma::order::Scope;
use crate::dma::{Bus, Load, LoadClass, Stream};
use crate::mkey::MemoryKey;
use crate::mkey::context::{ANY_QPN, KeyContext};
use crate::mkey::judged::{self, Judged};
use crate::mkey::list::{OCTWORD, Translations};
use crate::mkey::policy::{Grant, Rules};
use crate::mkey::translate::{Access, KeyError, Place, Request, resolve};
use crate::mkey::umr::{Change, UmrCaps, change, judge};
use crate::prm::mkey::Mkc;
use crate::prm::values::{CqeSyndrome, MkeyMask};
use crate::prm::wqe::{DataSeg, UmrCtrlSeg};

/// Octwords to which drivers pad lists, and with them the room of every key (kernel `MLX5_UMR_FLEX_ALIGNMENT`).
const PADDING: u64 = 4;

/// Parts that a list may be in, if it has fewer octwords.
const MOST_PARTS: usize = 4096;

/// The queue that posted an entry, as far as UMR is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poster {
    /// Its number.
    pub qpn: u32,
    /// Its protection domain.
    pub pd: u32,
    /// The user context that owns it; 0 is the driver.
    pub uid: u16,
    /// `qpc.rlky`: whether its data segments may use the reserved lkey.
    pub reserved_lkey: bool,
    /// `qpc.fre`: whether it may register memory by DMA addresses.
    pub fast_register: bool,
    /// Service type REG_UMR: the driver's own queue for keys of every domain.
    pub registers: bool,
}

impl Poster {
    /// Whether the queue may change keys of other domains, and move keys to other domains.
    fn reaches_all(&self) -> bool {
        self.registers && self.uid == 0
    }

    /// Whether the queue may change keys that lead to memory themselves.
    fn names_memory(&self) -> bool {
        (self.registers || self.fast_register) && self.uid == 0
    }
}

/// Why an entry fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UmrError {
    /// The entry is shorter than its segments or its list.
    #[error("the entry is shorter than its segments or its list")]
    Size,
    /// A flag without meaning, or two that contradict each other.
    #[error("a flag has no meaning, or two contradict each other")]
    Flags,
    /// Signature descriptors.
    #[error("bsf_octowords: integrity offload is not advertised")]
    Integrity,
    /// A wide offset without its capability.
    #[error("xlt_offset[47:16] is set and umr_extended_translation_offset is not advertised")]
    Offset,
    /// No key has the index.
    #[error("no key has the index")]
    NoSuchKey,
    /// The key belongs to another protection domain.
    #[error("the key belongs to another protection domain")]
    WrongPd,
    /// The key is bound to another queue pair.
    #[error("the key is bound to another queue pair")]
    WrongQp,
    /// The key is free and must not be.
    #[error("the key is free")]
    IsFree,
    /// The key is not free and must be.
    #[error("the key is not free")]
    NotFree,
    /// Only the driver may change the key so.
    #[error("the queue may not change a key so")]
    NotAllowed,
    /// The key's context would not be one that the device grants.
    #[error("{}", meaning(.0.0).unwrap_or("the key's context is refused"))]
    Refused(Syndrome),
    /// The key has no list of its own.
    #[error("the key takes no list")]
    NoList,
    /// The list is longer than the key has room for.
    #[error("the list goes beyond mkc.translations_octword_size")]
    Room,
    /// No domain has the number.
    #[error("the protection domain does not exist")]
    NoSuchPd,
    /// The list cannot be read through its key.
    #[error("the list cannot be read through its key: {0}")]
    ListKey(KeyError),
    /// The list's memory cannot be read, or is in too many parts.
    #[error("the list's memory cannot be read, or is in too many parts")]
    ListMemory,
}

impl UmrError {
    /// `syndrome` of the completion.
    pub fn syndrome(self) -> CqeSyndrome {
        match self {
            UmrError::Size | UmrError::Flags | UmrError::Integrity | UmrError::Offset => CqeSyndrome::LOCAL_QP_OP_ERR,
            UmrError::ListKey(_) | UmrError::ListMemory => CqeSyndrome::LOCAL_PROT_ERR,
            _ => CqeSyndrome::MW_BIND_ERR,
        }
    }

    /// `vendor_err_synd` of the completion: which check.
    pub fn vendor(self) -> u8 {
        match self {
            UmrError::Size => 0x40,
            UmrError::Flags => 0x41,
            UmrError::Integrity => 0x42,
            UmrError::Offset => 0x43,
            UmrError::NoSuchKey => 0x44,
            UmrError::WrongPd => 0x45,
            UmrError::WrongQp => 0x46,
            UmrError::IsFree => 0x47,
            UmrError::NotFree => 0x48,
            UmrError::NotAllowed => 0x49,
            UmrError::Refused(_) => 0x4a,
            UmrError::NoList => 0x4b,
            UmrError::Room => 0x4c,
            UmrError::NoSuchPd => 0x4d,
            UmrError::ListKey(_) => 0x4e,
            UmrError::ListMemory => 0x4f,
        }
    }
}

/// What must hold of the key before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Nothing,
    Free,
    Usable,
}

/// Where the list is.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Inline(&'a [u8]),
    Pointer { key: u32, va: u64, len: u64 },
}

/// An entry, read.
#[derive(Clone, Copy, Debug)]
struct Work<'a> {
    demand: Demand,
    check_qpn: bool,
    mask: u64,
    wanted: KeyContext,
    /// Octword of the key's list at which the entry's begins.
    at: u64,
    octwords: u64,
    source: Source<'a>,
}

impl Work<'_> {
    fn parse<'a>(body: &'a [u8], caps: &UmrCaps) -> Result<Work<'a>, UmrError> {
        const UNKNOWN_FLAGS: u8 = 7;
        let control = UmrCtrlSeg::new(body).map_err(|_| UmrError::Size)?;
        let context = body.get(UmrCtrlSeg::SIZE..).unwrap_or_default();
        let (context, rest) = context.split_at_checked(Mkc::SIZE).ok_or(UmrError::Size)?;
        let demand = match control.check_free() {
            0 => Demand::Nothing,
            1 => Demand::Free,
            2 => Demand::Usable,
            _ => return Err(UmrError::Flags),
        };
        if body.first().is_some_and(|flags| flags & UNKNOWN_FLAGS != 0) {
            return Err(UmrError::Flags);
        }
        let at = if control.translation_offset_en() == 0 {
            if control.bsf_octowords() != 0 {
                return Err(UmrError::Integrity);
            }
            0
        } else {
            if control.xlt_offset_47_16() != 0 && !caps.extended_offset {
                return Err(UmrError::Offset);
            }
            u64::from(control.xlt_offset_47_16()) << 16 | u64::from(control.xlt_offset())
        };
        let octwords = u64::from(control.xlt_octowords());
        let len = octwords as usize * OCTWORD;
        let source = if control.inline() != 0 || octwords == 0 {
            Source::Inline(rest.get(..len).ok_or(UmrError::Size)?)
        } else {
            let segment = DataSeg::new(rest).map_err(|_| UmrError::Size)?;
            if segment.inline() != 0 {
                return Err(UmrError::Flags);
            }
            // No bytes stand for 2^31, which is more than a list can have.
            if segment.byte_count() != 0 && (segment.byte_count() as usize) < len {
                return Err(UmrError::Size);
            }
            Source::Pointer { key: segment.lkey(), va: segment.addr(), len: len as u64 }
        };
        Ok(Work {
            demand,
            check_qpn: control.check_qpn() != 0,
            mask: control.mkey_mask(),
            wanted: KeyContext::read(&Mkc::wrap(context)),
            at,
            octwords,
            source,
        })
    }

    /// Whether `poster` may change `key`, and the key is as the entry demands.
    fn check(&self, poster: &Poster, key: &MemoryKey) -> Result<(), UmrError> {
        let context = &key.context;
        if !poster.reaches_all() {
            if context.pd != poster.pd {
                return Err(UmrError::WrongPd);
            }
            let moves = MkeyMask::from_bits_truncate(self.mask).contains(MkeyMask::PD) && self.wanted.pd != context.pd;
            if moves || !(context.mode.is_indirect() || poster.names_memory()) {
                return Err(UmrError::NotAllowed);
            }
        }
        match self.demand {
            Demand::Free if !context.free => return Err(UmrError::NotFree),
            Demand::Usable if context.free => return Err(UmrError::IsFree),
            _ => {}
        }
        if self.check_qpn && context.qpn != ANY_QPN && context.qpn != poster.qpn {
            return Err(UmrError::WrongQp);
        }
        Ok(())
    }

    /// Whether the key has room for the list. Drivers pad lists beyond what a key has room for.
    fn check_list(&self, key: &MemoryKey, caps: &UmrCaps) -> Result<(), UmrError> {
        if self.octwords == 0 {
            return Ok(());
        }
        let mode = key.context.mode;
        let elsewhere = matches!(key.list, Translations::Umem { .. } | Translations::DeviceMemory { .. });
        if elsewhere || mode.entries_per_octword() == 0 || (mode.is_indirect() && caps.indirect_disabled) {
            return Err(UmrError::NoList);
        }
        let room = u64::from(key.context.octwords).next_multiple_of(PADDING);
        if self.at + self.octwords > room { Err(UmrError::Room) } else { Ok(()) }
    }
}

impl Hca {
    /// Executes an entry of `poster` on the key `mkey` (`ctrl.umr_mkey`, of which only the index counts). `body` is
    /// everything behind the control segment.
    pub fn execute_umr(&mut self, poster: &Poster, mkey: u32, body: &[u8], bus: &mut Bus) -> Result<(), UmrError> {
        let work = Work::parse(body, &self.key_rules.umr)?;
        let index = mkey >> 8;
        let (change, grant) = self.admit_umr(poster, index, &work)?;
        self.drain_key(index, bus);
        match work.source {
            Source::Inline(bytes) => self.apply_umr(index, &work, &change, grant, bytes),
            Source::Pointer { key, va, len } => {
                let mut bytes = std::mem::take(&mut self.umr_list);
                bytes.resize(len as usize, 0);
                let result = self
                    .read_list(poster, key, va, &mut bytes, bus)
                    .and_then(|()| self.apply_umr(index, &work, &change, grant, &bytes));
                self.umr_list = bytes;
                result
            }
        }
    }

    /// What executing an entry counts for, in bytes: those of its list, and of the running lengths that a list of pieces
    /// keeps beside its entries.
    pub fn umr_cost(&self, mkey: u32, body: &[u8]) -> usize {
        let octwords = UmrCtrlSeg::new(body).map_or(0, |control| control.xlt_octowords() as usize);
        let beside = match self.objects.mkeys.get(mkey >> 8).map(|entry| &entry.object.list) {
            Some(Translations::Klm(list)) if octwords > 0 => list.len() * size_of::<u64>(),
            _ => 0,
        };
        body.len() + octwords * OCTWORD + beside
    }

    fn admit_umr(&mut self, poster: &Poster, index: u32, work: &Work<'_>) -> Result<(Change, Grant), UmrError> {
        let key = &self.objects.mkeys.get(index).ok_or(UmrError::NoSuchKey)?.object;
        work.check(poster, key)?;
        let caps = self.key_rules.ordering(self.pci_relaxed_ordering);
        let rules = Rules { config: &self.profile.mkey, caps };
        let change = change(key, work.mask, &work.wanted);
        match judge(key, work.mask, &change, &rules, &self.key_rules.umr, &self.key_rules.limits) {
            Ok(grant) => {
                work.check_list(key, &self.key_rules.umr)?;
                Ok((change, grant))
            }
            Err(violation) => {
                let Change { context, kind, origin } = &change;
                let defect = violation.defect;
                self.note_key(judged::refused(context, *kind, poster.uid, *origin, defect, violation.ordering));
                Err(UmrError::Refused(defect.syndrome))
            }
        }
    }

    /// Reads the list at `va` of `key` into `bytes`.
    fn read_list(&self, poster: &Poster, key: u32, va: u64, bytes: &mut [u8], bus: &mut Bus) -> Result<(), UmrError> {
        let request = Request {
            key,
            va,
            len: bytes.len() as u64,
            access: Access::LocalRead,
            pd: poster.pd,
            qpn: poster.qpn,
            reserved_lkey: poster.reserved_lkey,
        };
        // Finding a part takes much more time than reading an entry, and nothing else is done meanwhile.
        let most = MOST_PARTS.max(bytes.len() / OCTWORD);
        let mut rest = bytes;
        for (count, piece) in resolve(&self.objects, &self.key_space, &request).map_err(UmrError::ListKey)?.enumerate()
        {
            let piece = piece.map_err(UmrError::ListKey)?;
            if count >= most {
                return Err(UmrError::ListMemory);
            }
            let (now, later) = rest.split_at_mut(piece.len as usize);
            match piece.place {
                Place::Memory(iova) => {
                    let load = Load::device(LoadClass::Translation, Stream::Requester(poster.qpn));
                    let load = Load { key: piece.order, index: piece.key, ..load };
                    bus.load(load, iova, now).map_err(|_| UmrError::ListMemory)?;
                }
                Place::Device(at) => self.memic.read(at, now),
                Place::Nowhere => now.fill(0),
            }
            rest = later;
        }
        Ok(())
    }

    fn apply_umr(
        &mut self,
        index: u32,
        work: &Work<'_>,
        change: &Change,
        grant: Grant,
        bytes: &[u8],
    ) -> Result<(), UmrError> {
        let Some(entry) = self.objects.mkeys.get(index) else { return Err(UmrError::NoSuchKey) };
        let (from, to) = (entry.object.context.pd, change.context.pd);
        if from != to {
            let pd = |id| ObjRef { kind: Kind::Pd, id };
            self.objects.redirect::<MemoryKey>(0, index, pd(from), pd(to)).map_err(|_| UmrError::NoSuchPd)?;
        }
        let repeat = self.key_rules.repeat_blocks;
        let Some(entry) = self.objects.mkeys.get_mut(index) else { return Err(UmrError::NoSuchKey) };
        let key = &mut entry.object;
        key.list.load(key.context.mode, work.at, key.context.octwords.into(), bytes, repeat);
        key.context = change.context;
        if let Some(outcome) = key.note_enabled(index, grant) {
            self.note_key(Judged { kind: change.kind, origin: change.origin, outcome });
        }
        Ok(())
    }

    /// Invalidates the key `rkey` at a peer's request, which came to queue pair `qpn` of domain `pd` with a send.
    pub fn invalidate_remote(&mut self, rkey: u32, pd: u32, qpn: u32, bus: &mut Bus) -> Result<(), KeyError> {
        let entry = self.objects.mkeys.get_mut(rkey >> 8).ok_or(KeyError::NoSuchKey)?;
        let context = &mut entry.object.context;
        if context.variant != rkey as u8 {
            return Err(KeyError::WrongVariant);
        }
        if context.free {
            return Err(KeyError::Free);
        }
        if context.pd != pd {
            return Err(KeyError::WrongPd);
        }
        if context.qpn != ANY_QPN && context.qpn != qpn {
            return Err(KeyError::WrongQp);
        }
        if !context.en_rinval {
            return Err(KeyError::Rights);
        }
        context.free = true;
        self.drain_key(rkey >> 8, bus);
        Ok(())
    }

    /// Waits for all accesses through a key: its memory is about to be someone else's.
    pub fn drain_key(&self, index: u32, bus: &mut Bus) {
        let Some(entry) = self.objects.mkeys.get(index) else { return };
        // Accesses know the key that they end in, not those that led to it.
        let indirect = entry.object.context.mode.is_indirect();
        bus.drain(if indirect { Scope::All } else { Scope::Key(index) });
    }
}

#[cfg(test)]
mod tests;
