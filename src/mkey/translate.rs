//! From an address of a key to memory: lookup, checks, and the walk through translation lists (PRM "Memory Key",
//! "Address Translation"; kernel `mlx5_ib odp.c:pagefault_single_data_segment` for indirect keys).
//!
//! [`resolve`] checks a request against its key and gives a [`Walk`] that yields pieces of memory in order. A walk
//! holds one frame for each level of indirection and finds entries by binary search, so it needs no memory at all
//! beyond itself and every piece costs little. A request may pass its own checks and still fail inside the walk, at
//! a page that is not present or at a child key that forbids the access: the caller has then used the pieces before
//! it, as hardware has.
//!
//! Rights of a child key are those of local use: a peer's rights are a matter of the key that it names. Bounds are
//! checked by subtraction. A request of no bytes passes without looking at its key, as IBTA has it for R_Keys.
//!
//! Where there is on-demand paging, a page that is absent or lacks a right may come yet ([`KeyError::is_fault`]), and so
//! may what a list leads to by way of the null key; [`Walk::missing`] says where a walk met it.
//!
//! Limits: pieces can be as short as one byte, so a caller bounds how many it takes at a time.

use super::MemoryKey;
use super::context::{ANY_QPN, KeyContext, Mode, Rights};
use super::list::{Entry, Ksm, MTT_READ, MTT_WRITE, Table, Translations};
use super::reserved::Reserved;
use crate::config::{MkeyConfig, Strict};
use crate::device::capabilities::Capabilities;
use crate::device::devx::Umem;
use crate::device::objects::{Object, Objects};
use crate::device::rdma::paging::Scheme;
use crate::dma::{Iova, KeyOrder};

/// What is done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Gathered for sending.
    LocalRead,
    /// Scattered by a receive, or by returned data.
    LocalWrite,
    /// Read by a peer.
    RemoteRead,
    /// Written by a peer.
    RemoteWrite,
    /// Changed by a peer's atomic operation.
    RemoteAtomic,
}

impl Access {
    fn rights(self) -> Rights {
        match self {
            Access::LocalRead => Rights::LOCAL_READ,
            Access::LocalWrite => Rights::LOCAL_WRITE,
            Access::RemoteRead => Rights::REMOTE_READ,
            Access::RemoteWrite => Rights::REMOTE_WRITE,
            Access::RemoteAtomic => Rights::ATOMIC,
        }
    }

    /// What the same access is to a child key.
    fn on_child(self) -> Access {
        match self {
            Access::LocalRead | Access::RemoteRead => Access::LocalRead,
            Access::LocalWrite | Access::RemoteWrite | Access::RemoteAtomic => Access::LocalWrite,
        }
    }

    /// Rights of a page that it needs.
    fn page_rights(self) -> u64 {
        match self {
            Access::LocalRead | Access::RemoteRead => MTT_READ,
            Access::LocalWrite | Access::RemoteWrite => MTT_WRITE,
            Access::RemoteAtomic => MTT_READ | MTT_WRITE,
        }
    }
}

/// Pages behind the first one that a piece has at most, so that finding one takes little time.
const MERGED: usize = 255;

/// Who asks for memory, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The whole key.
    pub key: u32,
    /// The address in it.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// What for.
    pub access: Access,
    /// Protection domain of the queue.
    pub pd: u32,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Whether the queue may use the reserved lkey (`rlky`).
    pub reserved_lkey: bool,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key has the index.
    #[error("no such key")]
    NoSuchKey,
    /// The low byte is not that of the key.
    #[error("the low byte of the key is stale")]
    WrongVariant,
    /// The key is free.
    #[error("the key is free")]
    Free,
    /// Another protection domain.
    #[error("the key belongs to another protection domain")]
    WrongPd,
    /// Another queue pair.
    #[error("the key is bound to another queue pair")]
    WrongQp,
    /// The key does not allow the access.
    #[error("the key does not allow the access")]
    Rights,
    /// Beyond the key.
    #[error("the address is beyond the key")]
    Bounds,
    /// The translation is not there, and never was.
    #[error("the translation is not present")]
    NotPresent,
    /// The page is not there, and may come.
    #[error("the page is not present")]
    Absent,
    /// The page does not allow the access.
    #[error("the page does not allow the access")]
    PageRights,
    /// More levels of keys than the capabilities allow.
    #[error("indirect keys are nested too deeply")]
    TooDeep,
}

impl KeyError {
    /// Whether on-demand paging can do something about it.
    pub fn is_fault(self) -> bool {
        matches!(self, KeyError::Absent | KeyError::PageRights)
    }
}

/// Where a walk met a page that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The whole key that has the page.
    pub key: u32,
    /// The address in it.
    pub va: u64,
    /// Bytes that are wanted of that key from there on.
    pub len: u64,
    /// Bytes before those.
    pub before: u64,
}

/// Where a piece of a request lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Guest memory.
    Memory(Iova),
    /// Device memory, by the offset from its start.
    Device(u64),
    /// Nowhere: reads give zeros, writes are dropped.
    Nowhere,
}

/// A piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub place: Place,
    /// Bytes; at least one.
    pub len: u64,
    /// The ordering attributes of the key that the piece lies in.
    pub order: KeyOrder,
    /// The index of that key; 0 for a reserved one.
    pub key: u32,
}

/// Levels of indirect keys that a walk has room for; `max_indirection` may not be more.
pub const MAX_INDIRECTION: u32 = 7;
/// The indirect levels and the direct key below them.
const MAX_LEVELS: usize = MAX_INDIRECTION as usize + 1;

/// What the capabilities say about keys, looked up once when the device is initialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpace {
    null: bool,
    /// A list that leads to the null key has no page there yet: that is how the driver marks the holes of implicit regions
    /// in the transport scheme (kernel `mlx5_ib odp.c:populate_ksm`).
    null_faults: bool,
    dump_fill: bool,
    max_indirection: u32,
    reserved_order: KeyOrder,
}

impl KeySpace {
    /// From the capabilities in force. Accesses through the reserved lkey are as relaxed as the device makes all others
    /// be: the driver cannot say.
    pub fn new(caps: &Capabilities, config: &MkeyConfig) -> KeySpace {
        let relaxed_write = config.strict != Strict::Off;
        KeySpace {
            null: Reserved::Null.exists(caps),
            null_faults: Scheme::of(caps) == Some(Scheme::Transport),
            dump_fill: Reserved::DumpFill.exists(caps),
            max_indirection: caps.general("max_indirection") as u32,
            reserved_order: KeyOrder { relaxed_write, ..KeyOrder::default() },
        }
    }
}

/// Checks a request and prepares the walk to its memory.
pub fn resolve<'a>(objects: &'a Objects, space: &KeySpace, request: &Request) -> Result<Walk<'a>, KeyError> {
    let mut walk =
        Walk { objects, space: *space, request: *request, frames: [None; MAX_LEVELS], depth: 0, failed: false };
    if request.len > 0 {
        walk.enter(request.key, request.va, request.len, request.access)?;
    }
    Ok(walk)
}

/// The piece that a request lies in, if it is only one and behind a single key: that takes no walk. Inlined always: on
/// its way through memory a piece is written by field and read by word, which waits for the writes.
#[inline(always)]
pub fn direct(objects: &Objects, space: &KeySpace, request: &Request) -> Result<Option<Piece>, KeyError> {
    let Request { key, va, len, access, .. } = *request;
    if len == 0 {
        return Ok(None);
    }
    let target = target(objects, space, request, (key, va, len, access))?;
    match target {
        Target::Key(key, _) if key.context.mode.is_indirect() => Ok(None),
        _ => match step(objects, space, access, &Frame { target, va, left: len })? {
            Step::Piece(piece) if piece.len == len => Ok(Some(piece)),
            _ => Ok(None),
        },
    }
}

/// Whether a request passes the checks of its key, without a look at what is behind it.
pub fn allowed(objects: &Objects, space: &KeySpace, request: &Request) -> Result<(), KeyError> {
    let Request { key, va, len, access, .. } = *request;
    if len == 0 {
        return Ok(());
    }
    match target(objects, space, request, (key, va, len, access))? {
        Target::Key(key, _) if key.context.mode.is_indirect() && space.max_indirection == 0 => Err(KeyError::TooDeep),
        _ => Ok(()),
    }
}

/// Resolves a request into all its pieces, for accesses that must not happen in part. `None` of them are kept when the
/// request has more than `max`.
pub fn collect(
    objects: &Objects,
    space: &KeySpace,
    request: &Request,
    max: usize,
) -> Result<Option<Vec<Piece>>, KeyError> {
    let mut pieces = Vec::new();
    for piece in resolve(objects, space, request)? {
        if pieces.len() == max {
            return Ok(None);
        }
        pieces.push(piece?);
    }
    Ok(Some(pieces))
}

/// One level of a walk.
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    target: Target<'a>,
    va: u64,
    left: u64,
}

#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    /// A key and its index.
    Key(&'a MemoryKey, u32),
    Dma,
    Nowhere,
}

/// The pieces of a request in the order of its bytes. After an error it yields nothing.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    objects: &'a Objects,
    space: KeySpace,
    request: Request,
    /// The levels that are entered, `depth` of them.
    frames: [Option<Frame<'a>>; MAX_LEVELS],
    depth: usize,
    failed: bool,
}

/// Finds what a key leads to, and checks an access to it.
#[inline(always)]
fn target<'a>(
    objects: &'a Objects,
    space: &KeySpace,
    request: &Request,
    (key, va, len, access): (u32, u64, u64, Access),
) -> Result<Target<'a>, KeyError> {
    // Reserved keys are for local use: to a peer they are no keys, but a key of the function may lead to the null key.
    let is_local = |access| matches!(access, Access::LocalRead | Access::LocalWrite);
    match Reserved::find(key) {
        Some(Reserved::Null) if space.null && space.null_faults && key != request.key => return Err(KeyError::Absent),
        Some(Reserved::Null) if space.null && is_local(access) => return Ok(Target::Nowhere),
        Some(Reserved::DumpFill) if space.dump_fill && is_local(access) => return Ok(Target::Nowhere),
        Some(Reserved::Lkey) if request.reserved_lkey && is_local(request.access) => {
            va.checked_add(len - 1).ok_or(KeyError::Bounds)?;
            return Ok(Target::Dma);
        }
        _ => {}
    }
    let entry = MemoryKey::table(objects).get(key >> 8).ok_or(KeyError::NoSuchKey)?;
    if entry.object.context.variant != key as u8 {
        return Err(KeyError::WrongVariant);
    }
    check(&entry.object.context, va, len, access, request)?;
    Ok(Target::Key(&entry.object, key >> 8))
}

/// The next piece of a frame, or the next level down as an entry of a child key. What is done to pages is `access`.
#[inline(always)]
fn step(objects: &Objects, space: &KeySpace, access: Access, frame: &Frame<'_>) -> Result<Step, KeyError> {
    let Frame { target, va, left } = *frame;
    let (key, number) = match target {
        Target::Nowhere => {
            return Ok(Step::Piece(Piece { place: Place::Nowhere, len: left, order: KeyOrder::default(), key: 0 }));
        }
        Target::Dma => {
            let place = Place::Memory(Iova(va));
            return Ok(Step::Piece(Piece { place, len: left, order: space.reserved_order, key: 0 }));
        }
        Target::Key(key, number) => (key, number),
    };
    let piece = |place, room: u64, order| Step::Piece(Piece { place, len: left.min(room), order, key: number });
    let context = &key.context;
    let order = context.order();
    let shift = context.log_page_size;
    match &key.list {
        Translations::None if context.mode == Mode::Pa => Ok(piece(Place::Memory(Iova(va)), left, order)),
        Translations::None if context.mode == Mode::Mtt => Err(unwritten(context, index(context, va)?)),
        Translations::None | Translations::DataDirect => Err(KeyError::NotPresent),
        Translations::Mtt(pages) => {
            let index = index(context, va)?;
            let run = pages.run(index);
            let Some((page, rest)) = run.split_first() else { return Err(unwritten(context, index)) };
            let needed = access.page_rights();
            match page & (MTT_READ | MTT_WRITE) {
                0 => return Err(KeyError::Absent),
                have if have & needed != needed => return Err(KeyError::PageRights),
                _ => {}
            }
            let (within, mut room) = in_page(va, shift);
            let size = within + room;
            // A page that does not fit the page size, which a work request may have changed, begins where one would.
            let start = |page: u64| page & !((size - 1) | 0xfff);
            let first = start(*page);
            // Pages that follow each other in memory are one piece.
            let mut end = first.checked_add(size);
            for page in rest.iter().take(MERGED) {
                let follows = page & needed == needed && end == Some(start(*page));
                if room >= left || !follows {
                    break;
                }
                room = room.saturating_add(size);
                end = start(*page).checked_add(size);
            }
            Ok(piece(Place::Memory(Iova(first | within)), room, order))
        }
        Translations::Ksm(list) => {
            let ksm = entry(list, context, va)?;
            if ksm == Ksm::default() {
                return Err(KeyError::NotPresent);
            }
            let (within, room) = in_page(va, shift);
            let va = ksm.va.checked_add(within).ok_or(KeyError::Bounds)?;
            Ok(Step::Down { key: ksm.key, va, len: left.min(room) })
        }
        Translations::Klm(list) => {
            let at = va.wrapping_sub(base(context));
            let found = list.find(at).ok_or(KeyError::NotPresent)?;
            let va = found.va.ok_or(KeyError::Bounds)?;
            Ok(Step::Down { key: found.key, va, len: left.min(found.room) })
        }
        Translations::Umem { umem, offset } => {
            let umem = &Umem::table(objects).get(*umem).ok_or(KeyError::NotPresent)?.object;
            let at = offset.checked_add(va.wrapping_sub(base(context))).ok_or(KeyError::Bounds)?;
            let (iova, room) = umem.locate(at).ok_or(KeyError::Bounds)?;
            Ok(piece(Place::Memory(iova), room, order))
        }
        Translations::DeviceMemory { start } => {
            let at = start.checked_add(va).ok_or(KeyError::Bounds)?;
            Ok(piece(Place::Device(at), left, order))
        }
    }
}

impl<'a> Walk<'a> {
    /// Checks an access to a key and makes it the innermost level.
    fn enter(&mut self, key: u32, va: u64, len: u64, access: Access) -> Result<(), KeyError> {
        let target = target(self.objects, &self.space, &self.request, (key, va, len, access))?;
        if let Target::Key(key, _) = target {
            let levels = self.depth as u32 + 1;
            if key.context.mode.is_indirect() && levels > self.space.max_indirection {
                return Err(KeyError::TooDeep);
            }
        }
        *self.frames.get_mut(self.depth).ok_or(KeyError::TooDeep)? = Some(Frame { target, va, left: len });
        self.depth += 1;
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Piece>, KeyError> {
        loop {
            let Some(innermost) = self.depth.checked_sub(1) else { return Ok(None) };
            let Some(frame) = &self.frames[innermost] else { return Ok(None) };
            if frame.left == 0 {
                self.depth = innermost;
                continue;
            }
            let step = step(self.objects, &self.space, self.request.access, frame)?;
            let left = frame.left;
            let taken = match step {
                Step::Piece(piece) => piece.len,
                Step::Down { len, .. } => len,
            };
            debug_assert!(taken > 0 && taken <= left, "a step that goes nowhere or too far");
            if let Some(frame) = &mut self.frames[innermost] {
                frame.left -= taken;
                // The last byte of the address space may be the last byte of the frame.
                frame.va = frame.va.wrapping_add(taken);
            }
            match step {
                Step::Piece(piece) => return Ok(Some(piece)),
                Step::Down { key, va, len } => self.enter(key, va, len, self.request.access.on_child())?,
            }
        }
    }
}

impl Walk<'_> {
    /// Where it met a page that is not there, if that was in a key of its own. Bytes before it are counted by the caller.
    pub fn missing(&self) -> Option<Missing> {
        let frame = self.frames.get(self.depth.checked_sub(1)?)?.as_ref()?;
        let Target::Key(key, number) = frame.target else { return None };
        let key = number << 8 | u32::from(key.context.variant);
        Some(Missing { key, va: frame.va, len: frame.left, before: 0 })
    }
}

enum Step {
    Piece(Piece),
    Down { key: u32, va: u64, len: u64 },
}

impl Iterator for Walk<'_> {
    type Item = Result<Piece, KeyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// Everything about a key that does not need its translations.
#[inline]
fn check(context: &KeyContext, va: u64, len: u64, access: Access, request: &Request) -> Result<(), KeyError> {
    if context.free {
        return Err(KeyError::Free);
    }
    if context.pd != request.pd {
        return Err(KeyError::WrongPd);
    }
    if context.qpn != ANY_QPN && context.qpn != request.qpn {
        return Err(KeyError::WrongQp);
    }
    if !context.rights.contains(access.rights()) {
        return Err(KeyError::Rights);
    }
    if context.length64 {
        return va.checked_add(len - 1).map(|_| ()).ok_or(KeyError::Bounds);
    }
    let at = va.checked_sub(base(context)).ok_or(KeyError::Bounds)?;
    let room = context.len.checked_sub(at).ok_or(KeyError::Bounds)?;
    if len > room { Err(KeyError::Bounds) } else { Ok(()) }
}

/// The address of a key's first byte. Device memory keys count from 0: their `start_addr` says where in the device
/// memory they lie (kernel `mlx5_ib_get_dm_mr`, and IB_ZERO_BASED is required of the caller).
fn base(context: &KeyContext) -> u64 {
    if context.mode == Mode::Memic { 0 } else { context.start_addr }
}

/// The entry of a list of equal pages for `va`.
fn entry<T: Entry>(list: &Table<T>, context: &KeyContext, va: u64) -> Result<T, KeyError> {
    list.get(index(context, va)?).ok_or(KeyError::NotPresent)
}

/// Which of a list of equal pages has `va`.
fn index(context: &KeyContext, va: u64) -> Result<usize, KeyError> {
    let shift = context.log_page_size;
    let index = (va >> shift).checked_sub(context.start_addr >> shift).ok_or(KeyError::Bounds)?;
    usize::try_from(index).map_err(|_| KeyError::NotPresent)
}

/// A page that was never written is not there, as far as the key has room for it.
#[cold]
fn unwritten(context: &KeyContext, index: usize) -> KeyError {
    if (index as u64) < context.room() { KeyError::Absent } else { KeyError::NotPresent }
}

/// Where `va` stands in its page, and how many bytes the page has from there on.
fn in_page(va: u64, shift: u32) -> (u64, u64) {
    let size = 1u64 << shift.min(63);
    let within = va & (size - 1);
    (within, size - within)
}

#[cfg(test)]
mod tests;
