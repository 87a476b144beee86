//! Shared guest memory. See the limits in [`super`].

use std::cell::Cell;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

use super::words::{load_words, store_release, store_words};
use super::{check, errno};

/// Why an access to a [`Mapping`] was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The access does not lie inside the mapping.
    #[error("outside the mapping")]
    OutOfBounds,
    /// A store to a read-only mapping.
    #[error("mapping is read-only")]
    ReadOnly,
    /// A single-copy-atomic access whose address is not a multiple of its size.
    #[error("not naturally aligned")]
    Misaligned,
    /// The file behind the mapping was truncated; its contents are gone.
    #[error("the memory behind the mapping is gone")]
    Torn,
}

/// Which side of a copy between mappings failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The bytes could not be loaded.
    #[error("source: {0}")]
    Source(AccessError),
    /// The bytes could not be stored.
    #[error("target: {0}")]
    Target(AccessError),
}

/// What the owner of a mapping may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Loads only.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// A shared mapping of a file, usually guest memory.
///
/// All accesses are bounds-checked copies. [`Mapping::read`] and [`Mapping::write`] use naturally aligned
/// accesses of up to eight bytes for short copies, so that an aligned field of 1, 2, 4 or 8 bytes is never
/// torn; copies of [`BULK`] bytes or more go through `memcpy` and promise nothing about order or atomicity
/// within the copy.
#[derive(Debug)]
pub struct Mapping {
    /// Start of what mmap returned.
    pub(super) base: NonNull<u8>,
    /// Length handed to munmap.
    map_len: usize,
    /// Distance from `base` to the first byte asked for.
    delta: usize,
    /// Bytes asked for.
    len: usize,
    protection: Protection,
    /// The file may shrink under us, so accesses are guarded.
    guarded: bool,
    torn: AtomicBool,
}

/// From this length on a copy is a `memcpy`.
pub const BULK: usize = 256;

// SAFETY: the mapping is owned memory; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: every access goes through atomics or through copies of plain bytes of which other processes may
// change any part at any time anyway; no reference to the memory is ever made.
unsafe impl Sync for Mapping {}

thread_local! {
    /// The guarded ranges this thread is accessing; (0, 0) is none. A copy has two. Const-initialised and without
    /// destructor, so a signal handler may read it.
    static GUARDED: Cell<[(usize, usize); 2]> = const { Cell::new([(0, 0); 2]) };
    /// Set by the SIGBUS handler when it replaced a guarded range.
    static TORN: Cell<[bool; 2]> = const { Cell::new([false; 2]) };
}

macro_rules! word_access {
    ($load:ident, $store:ident, $int:ty, $atomic:ty) => {
        /// A single-copy-atomic load, native byte order.
        pub fn $load(&self, offset: u64) -> Result<$int, AccessError> {
            let at = self.word(offset, size_of::<$int>())?;
            // SAFETY: `word` checked bounds and alignment; the memory lives as long as `self`.
            self.guard(|| unsafe { <$atomic>::from_ptr(at.cast()) }.load(Ordering::Relaxed))
        }

        /// A single-copy-atomic store, native byte order.
        pub fn $store(&self, offset: u64, value: $int) -> Result<(), AccessError> {
            let at = self.writable_word(offset, size_of::<$int>())?;
            // SAFETY: as for the load; `writable_word` also checked the protection.
            self.guard(|| unsafe { <$atomic>::from_ptr(at.cast()) }.store(value, Ordering::Relaxed))
        }
    };
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on, shared.
    ///
    /// Only regular files (memfd, shared memory, huge pages, files) are accepted, and only as far as they
    /// reach now.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, len: u64, protection: Protection) -> io::Result<Mapping> {
        let file = FileKind::of(fd)?;
        let end = offset.checked_add(len).ok_or_else(|| errno(libc::EOVERFLOW))?;
        if len == 0 || end > file.size {
            return Err(errno(libc::EINVAL));
        }
        let delta = offset % file.page;
        let start = offset - delta;
        let map_len = (delta + len).checked_next_multiple_of(file.page).ok_or_else(|| errno(libc::EOVERFLOW))?;
        let map_len = usize::try_from(map_len).map_err(|_| errno(libc::ENOMEM))?;
        let start = libc::off_t::try_from(start).map_err(|_| errno(libc::EOVERFLOW))?;
        let prot = match protection {
            Protection::ReadOnly => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let guarded = !file.cannot_shrink;
        if guarded {
            install_sigbus_handler()?;
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { libc::mmap(ptr::null_mut(), map_len, prot, libc::MAP_SHARED, fd.as_raw_fd(), start) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| errno(libc::ENOMEM))?;
        Ok(Mapping {
            base,
            map_len,
            delta: delta as usize,
            len: len as usize,
            protection,
            guarded,
            torn: AtomicBool::new(false),
        })
    }

    /// Bytes mapped.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Never true; a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the mapping allows.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// The file was found truncated by an access.
    pub fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Relaxed)
    }

    /// Whether the file can shrink behind the mapping (it is not sealed against that).
    pub fn can_shrink(&self) -> bool {
        self.guarded
    }

    /// Copies out of the mapping.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), AccessError> {
        let at = self.range(offset, dst.len())?;
        self.guard(|| {
            if dst.len() >= BULK {
                // SAFETY: `range` checked the source; `dst` is ours. The guest may write concurrently; any
                // byte value is a valid `u8` and nothing is derived from the bytes inside the copy.
                unsafe { ptr::copy_nonoverlapping(at.cast_const(), dst.as_mut_ptr(), dst.len()) }
            } else {
                // SAFETY: `range` checked that `dst.len()` bytes from `at` on are mapped.
                unsafe { load_words(at, dst) }
            }
        })
    }

    /// Tells the processor that the first of `len` bytes from `offset` on will be read soon. Beyond [`NEAR`] bytes it
    /// finds out by itself.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        const LINE: usize = 64;
        let len = len.min(NEAR as u64) as usize;
        let Ok(at) = self.range(offset, len) else { return };
        for line in (0..len).step_by(LINE) {
            prefetch_line(at.wrapping_add(line));
        }
    }

    /// Copies into the mapping.
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<(), AccessError> {
        let at = self.writable(offset, src.len())?;
        self.guard(|| {
            if src.len() >= BULK {
                // SAFETY: as in `read`, and `writable` checked the protection.
                unsafe { ptr::copy_nonoverlapping(src.as_ptr(), at, src.len()) }
            } else {
                // SAFETY: `writable` checked that `src.len()` bytes from `at` on are mapped for writing.
                unsafe { store_words(at, src) }
            }
        })
    }

    /// Copies `len` bytes from this mapping into another (or the same) one; the ranges may overlap. Promises nothing
    /// about order or atomicity within the copy. After an error any part of the target may have changed.
    pub fn copy_to(&self, offset: u64, dst: &Mapping, dst_offset: u64, len: usize) -> Result<(), MoveError> {
        let from = self.range(offset, len).map_err(MoveError::Source)?;
        let to = dst.writable(dst_offset, len).map_err(MoveError::Target)?;
        // SAFETY: both ranges were checked and live as long as the mappings; `copy` allows overlap. Others may write
        // concurrently; any byte value is a valid `u8`.
        let copy = || unsafe { ptr::copy(from.cast_const(), to, len) };
        if self.guarded || dst.guarded {
            return guard_both(self, dst, copy);
        }
        copy();
        Ok(())
    }

    /// As [`Mapping::copy_to`] for at least eight bytes, and publishes as [`Mapping::write_release`] does: the last eight
    /// bytes are loaded before all others, and stored after them.
    #[inline]
    pub fn copy_release(&self, offset: u64, dst: &Mapping, dst_offset: u64, len: usize) -> Result<(), MoveError> {
        const TAIL: usize = 8;
        let body = len.checked_sub(TAIL).ok_or(MoveError::Source(AccessError::OutOfBounds))?;
        let from = self.range(offset, len).map_err(MoveError::Source)?;
        let to = dst.writable(dst_offset, len).map_err(MoveError::Target)?;
        let copy = || {
            let mut tail = [0; TAIL];
            // SAFETY: both ranges were checked and live as long as the mappings; `copy` allows overlap. Others may
            // write concurrently; any byte value is a valid `u8`.
            unsafe {
                load_words(from.add(body), &mut tail);
                fence(Ordering::Acquire);
                ptr::copy(from.cast_const(), to, body);
                store_release(to.add(body), &tail);
            }
        };
        if self.guarded || dst.guarded {
            return guard_both(self, dst, copy);
        }
        copy();
        Ok(())
    }

    word_access!(read_u8, write_u8, u8, AtomicU8);
    word_access!(read_u16, write_u16, u16, AtomicU16);
    word_access!(read_u32, write_u32, u32, AtomicU32);
    word_access!(read_u64, write_u64, u64, AtomicU64);

    /// Stores one byte after everything this thread stored before has become visible: the publication of an
    /// ownership bit.
    pub fn store_release_u8(&self, offset: u64, value: u8) -> Result<(), AccessError> {
        let at = self.writable_word(offset, 1)?;
        // SAFETY: bounds and protection checked; one byte is always aligned.
        self.guard(|| unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Release))
    }

    /// Stores eight bytes, native byte order, after everything stored before.
    pub fn store_release_u64(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        let at = self.writable_word(offset, 8)?;
        // SAFETY: bounds, protection and alignment checked.
        self.guard(|| unsafe { AtomicU64::from_ptr(at.cast()) }.store(value, Ordering::Release))
    }

    /// Loads one byte such that later loads see what was stored before it.
    pub fn load_acquire_u8(&self, offset: u64) -> Result<u8, AccessError> {
        let at = self.word(offset, 1)?;
        // SAFETY: bounds checked; one byte is always aligned.
        self.guard(|| unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Acquire))
    }

    /// Loads eight aligned bytes, native byte order, such that later loads see what was stored before them.
    pub fn load_acquire_u64(&self, offset: u64) -> Result<u64, AccessError> {
        let at = self.word(offset, 8)?;
        // SAFETY: bounds and alignment checked.
        self.guard(|| unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Acquire))
    }

    /// Exchanges eight aligned bytes, native byte order, and returns the previous value; later loads see what was
    /// stored before it.
    pub fn swap_u64(&self, offset: u64, value: u64) -> Result<u64, AccessError> {
        let at = self.writable_word(offset, 8)?;
        // SAFETY: bounds, protection and alignment checked.
        self.guard(|| unsafe { AtomicU64::from_ptr(at.cast()) }.swap(value, Ordering::AcqRel))
    }

    /// Compares and exchanges eight aligned bytes, native byte order; returns the previous value.
    pub fn compare_exchange_u64(&self, offset: u64, current: u64, new: u64) -> Result<u64, AccessError> {
        let at = self.writable_word(offset, 8)?;
        self.guard(|| {
            // SAFETY: bounds, protection and alignment checked.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            match word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => old,
            }
        })
    }

    /// Replaces eight aligned bytes, native byte order, by what `change` makes of them, as one step to every other
    /// observer; returns the previous value. `change` may be asked several times. Somebody who stores to the same
    /// word all the time delays this, but of two who compete for it one always gets on.
    pub fn update_u64(&self, offset: u64, change: impl Fn(u64) -> u64) -> Result<u64, AccessError> {
        let at = self.writable_word(offset, 8)?;
        self.guard(|| {
            // SAFETY: bounds, protection and alignment checked.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            let mut old = word.load(Ordering::Relaxed);
            loop {
                match word.compare_exchange(old, change(old), Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) => return old,
                    Err(now) => old = now,
                }
            }
        })
    }

    /// Copies into the mapping, and publishes: the last byte becomes visible last. The naturally aligned word that ends
    /// with it is stored at once, with release ordering, after all bytes before it.
    #[inline]
    pub fn write_release(&self, offset: u64, src: &[u8]) -> Result<(), AccessError> {
        let at = self.writable(offset, src.len())?;
        // SAFETY: `writable` checked that `src.len()` bytes from `at` on are mapped for writing.
        self.guard(|| unsafe { store_release(at, src) })
    }

    #[inline]
    fn range(&self, offset: u64, len: usize) -> Result<*mut u8, AccessError> {
        let offset = usize::try_from(offset).map_err(|_| AccessError::OutOfBounds)?;
        if offset > self.len || len > self.len - offset {
            return Err(AccessError::OutOfBounds);
        }
        // SAFETY: `delta + offset <= delta + len <= map_len`, one allocation.
        Ok(unsafe { self.base.as_ptr().add(self.delta + offset) })
    }

    #[inline]
    fn writable(&self, offset: u64, len: usize) -> Result<*mut u8, AccessError> {
        let at = self.range(offset, len)?;
        match self.protection {
            Protection::ReadWrite => Ok(at),
            Protection::ReadOnly => Err(AccessError::ReadOnly),
        }
    }

    #[inline]
    fn word(&self, offset: u64, size: usize) -> Result<*mut u8, AccessError> {
        let at = self.range(offset, size)?;
        if at as usize % size == 0 { Ok(at) } else { Err(AccessError::Misaligned) }
    }

    #[inline]
    fn writable_word(&self, offset: u64, size: usize) -> Result<*mut u8, AccessError> {
        self.writable(offset, size)?;
        self.word(offset, size)
    }

    /// Runs one access; if the file may shrink, a fault inside it ends the mapping and not the process.
    #[inline]
    fn guard<R>(&self, access: impl FnOnce() -> R) -> Result<R, AccessError> {
        if !self.guarded {
            return Ok(access());
        }
        if self.is_torn() {
            return Err(AccessError::Torn);
        }
        let (result, [torn, _]) = guarded([self.guarded_range(), (0, 0)], access);
        if torn {
            self.torn.store(true, Ordering::Relaxed);
            return Err(AccessError::Torn);
        }
        Ok(result)
    }

    fn guarded_range(&self) -> (usize, usize) {
        if self.guarded { (self.base.as_ptr() as usize, self.map_len) } else { (0, 0) }
    }
}

/// As [`Mapping::guard`] for an access to two mappings, which may be the same one.
fn guard_both(src: &Mapping, dst: &Mapping, access: impl FnOnce()) -> Result<(), MoveError> {
    if src.is_torn() {
        return Err(MoveError::Source(AccessError::Torn));
    }
    if dst.is_torn() {
        return Err(MoveError::Target(AccessError::Torn));
    }
    let ((), [src_torn, dst_torn]) = guarded([src.guarded_range(), dst.guarded_range()], access);
    if src_torn {
        src.torn.store(true, Ordering::Relaxed);
    }
    if dst_torn {
        dst.torn.store(true, Ordering::Relaxed);
    }
    match (src_torn, dst_torn) {
        (true, _) => Err(MoveError::Source(AccessError::Torn)),
        (_, true) => Err(MoveError::Target(AccessError::Torn)),
        _ => Ok(()),
    }
}

/// Runs an access to up to two ranges that may lose their memory meanwhile, and tells which ones did.
fn guarded<R>(ranges: [(usize, usize); 2], access: impl FnOnce() -> R) -> (R, [bool; 2]) {
    GUARDED.set(ranges);
    compiler_fence(Ordering::SeqCst);
    let result = access();
    compiler_fence(Ordering::SeqCst);
    GUARDED.set([(0, 0); 2]);
    (result, TORN.take())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned, and no pointer into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.map_len) };
    }
}

/// Bytes that [`Mapping::prefetch`] asks for at most.
const NEAR: usize = 2048;

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; an address that cannot be read has no effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// What `fstat`, `fstatfs` and the seals say about a file that is to be mapped.
struct FileKind {
    size: u64,
    page: u64,
    cannot_shrink: bool,
}

impl FileKind {
    fn of(fd: BorrowedFd<'_>) -> io::Result<FileKind> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the buffer has the right type; it is read only after success.
        check(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
        // SAFETY: fstat succeeded.
        let stat = unsafe { stat.assume_init() };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(errno(libc::ENODEV));
        }
        let mut statfs = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: as above.
        check(unsafe { libc::fstatfs(fd.as_raw_fd(), statfs.as_mut_ptr()) })?;
        // SAFETY: fstatfs succeeded.
        let statfs = unsafe { statfs.assume_init() };
        let huge = statfs.f_type == libc::HUGETLBFS_MAGIC;
        let page = if huge { statfs.f_bsize as u64 } else { page_size() };
        // SAFETY: no pointers involved; a file without seals answers an error.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // Huge pages can also run out at the first touch, so they stay guarded.
        let cannot_shrink = seals >= 0 && seals & libc::F_SEAL_SHRINK != 0 && !huge;
        Ok(FileKind { size: u64::try_from(stat.st_size).unwrap_or(0), page: page.max(1), cannot_shrink })
    }
}

/// The size of a page of this machine.
pub fn page_size() -> u64 {
    // SAFETY: no pointers involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

static OLD_SIGBUS: OnceLock<Option<SigAction>> = OnceLock::new();

struct SigAction(libc::sigaction);
// SAFETY: plain data and a function address that is valid in every thread.
unsafe impl Send for SigAction {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for SigAction {}

fn install_sigbus_handler() -> io::Result<()> {
    let installed = OLD_SIGBUS.get_or_init(|| {
        // SAFETY: all-zero is a valid sigaction; the handler only uses async-signal-safe calls.
        unsafe {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed();
            let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            new.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut new.sa_mask);
            (libc::sigaction(libc::SIGBUS, &new, old.as_mut_ptr()) == 0).then(|| SigAction(old.assume_init()))
        }
    });
    if installed.is_some() { Ok(()) } else { Err(errno(libc::ENOSYS)) }
}

/// Ends a guarded access to a truncated file; every other SIGBUS goes to whoever handled it before.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. Everything called here is a plain system call or a read of
    // const-initialised thread-local data; errno is put back.
    unsafe {
        let saved = *libc::__errno_location();
        let fault = (*info).si_addr() as usize;
        let ranges = GUARDED.get();
        let hit = ranges.iter().position(|(base, len)| fault >= *base && fault - *base < *len);
        let hit = hit.filter(|_| (*info).si_code > 0);
        let replaced = hit.is_some_and(|hit| {
            let (base, len) = ranges[hit];
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let replaced = libc::mmap(base as *mut libc::c_void, len, prot, flags, -1, 0) != libc::MAP_FAILED;
            if replaced {
                let mut torn = TORN.get();
                torn[hit] = true;
                TORN.set(torn);
            }
            replaced
        });
        if !replaced {
            if let Some(Some(old)) = OLD_SIGBUS.get() {
                libc::sigaction(signal, &old.0, ptr::null_mut());
            } else {
                libc::signal(signal, libc::SIG_DFL);
            }
            // A fault repeats by itself when the handler returns; a sent signal has to be sent again.
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        }
        *libc::__errno_location() = saved;
    }
}
