//! System calls and memory that std, vmm-sys-util and event-manager do not wrap safely.
//!
//! The only module (with its parts) with `unsafe` code. It holds three things: [`Mapping`], shared guest memory that
//! is only ever touched through bounds-checked copies and atomics (no reference to guest memory exists anywhere);
//! descriptor passing over a Unix socket; and a few process-level calls (signals, parent-death signal, umask,
//! memfd).
//!
//! Limits. Guest memory can be written by the guest and the VMM at any time, and a file behind a mapping can
//! be truncated by whoever holds it. The size is checked when the mapping is made. A memfd sealed against
//! shrinking (QEMU's `memory-backend-memfd` seals by default) cannot be truncated afterwards; for every other
//! file an access is guarded by a SIGBUS handler that replaces the mapping by anonymous memory, so that the
//! access ends, and the mapping then refuses all further accesses with [`AccessError::Torn`]. What is not
//! covered: a file system that never answers a page fault (FUSE, NFS) stops the process in the kernel, and a
//! machine check in guest memory (`BUS_MCEERR_AR`) is treated like a truncation.
//!
//! Sources: `man 2 mmap`, `man 2 memfd_create` (seals), `man 7 unix` (`SCM_RIGHTS`), Linux `mm/mmap.c:
//! ksys_mmap_pgoff` (rounding of huge page mappings), `net/unix/af_unix.c:unix_stream_read_generic`.
#![allow(unsafe_code)] // The one module the crate-wide lint makes an exception for.

mod mapping;
pub mod process;
mod words;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

pub use mapping::{AccessError, BULK, Mapping, MoveError, Protection, page_size};

/// A new memfd of `size` bytes; `sealed` fixes its size for good.
pub fn memfd(name: &str, size: u64, sealed: bool) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let size = libc::off_t::try_from(size).map_err(|_| errno(libc::EINVAL))?;
    // SAFETY: the name is NUL-terminated and outlives the call.
    let raw = check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: no pointers involved.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    if sealed {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no pointers involved.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    }
    Ok(fd)
}

/// Gives the memory of a part of a file back: it reads zero again, for everybody who has it mapped.
pub fn discard(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let as_offset = |value| libc::off_t::try_from(value).map_err(|_| errno(libc::EINVAL));
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers involved.
    check(unsafe { libc::fallocate(fd.as_raw_fd(), mode, as_offset(offset)?, as_offset(len)?) })?;
    Ok(())
}

/// Most descriptors taken from one receive call; what vfio-user clients offer at most.
pub const MAX_FDS: usize = 16;

/// Room for `SCM_RIGHTS` with [`MAX_FDS`] descriptors, aligned for `cmsghdr`.
const CONTROL_WORDS: usize = 16;

/// What one [`receive`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes; 0 is the end of the stream.
    pub bytes: usize,
    /// Descriptors appended to the caller's list.
    pub fds: usize,
    /// More descriptors were sent than could be taken (too many, or the process is at its limit). None of
    /// this batch is kept.
    pub fds_lost: bool,
}

/// Receives bytes and descriptors (close-on-exec) without ever waiting.
///
/// The kernel ends a receive behind the first packet that carried descriptors, so all descriptors of one call
/// came with one send, and that send's bytes are the last ones of the call.
pub fn receive(socket: BorrowedFd<'_>, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Received> {
    receive_flags(socket, buf, fds, libc::MSG_DONTWAIT)
}

/// As [`receive`], but waits as long as the socket's timeout says.
pub fn receive_wait(socket: BorrowedFd<'_>, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Received> {
    receive_flags(socket, buf, fds, 0)
}

fn receive_flags(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: libc::c_int,
) -> io::Result<Received> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut msg: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) } as usize;
    msg.msg_controllen = space.min(size_of_val(&control)) as _;
    // SAFETY: all pointers in `msg` are valid for their lengths during the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut msg, flags | libc::MSG_CMSG_CLOEXEC) };
    let bytes = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let before = fds.len();
    // SAFETY: the kernel filled the control buffer; CMSG_* stay inside `msg_controllen`.
    unsafe {
        let mut cmsg = libc::CMSG_FIRSTHDR(&msg);
        while !cmsg.is_null() {
            if (*cmsg).cmsg_level == libc::SOL_SOCKET && (*cmsg).cmsg_type == libc::SCM_RIGHTS {
                let len = ((*cmsg).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(cmsg).cast::<RawFd>();
                for i in 0..len / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(i))));
                }
            }
            cmsg = libc::CMSG_NXTHDR(&msg, cmsg);
        }
    }
    let fds_lost = msg.msg_flags & libc::MSG_CTRUNC != 0;
    if fds_lost {
        fds.truncate(before);
    }
    Ok(Received { bytes, fds: fds.len() - before, fds_lost })
}

/// Sends bytes with descriptors on the first of them, without waiting and without SIGPIPE; returns the bytes
/// taken.
pub fn send(socket: BorrowedFd<'_>, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send_flags(socket, buf, fds, libc::MSG_DONTWAIT)
}

/// As [`send`], but waits for room.
pub fn send_wait(socket: BorrowedFd<'_>, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send_flags(socket, buf, fds, 0)
}

fn send_flags(socket: BorrowedFd<'_>, buf: &[u8], fds: &[BorrowedFd<'_>], flags: libc::c_int) -> io::Result<usize> {
    // Room for more than MAX_FDS, so that a test client can send too many.
    let mut control = [0u64; 4 * CONTROL_WORDS];
    let mut iov = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut msg: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        let len = u32::try_from(size_of_val(fds)).map_err(|_| errno(libc::EINVAL))?;
        // SAFETY: CMSG_SPACE only computes.
        let space = unsafe { libc::CMSG_SPACE(len) } as usize;
        if space > size_of_val(&control) {
            return Err(errno(libc::EINVAL));
        }
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = space as _;
        // SAFETY: the buffer is aligned and large enough for one header and `fds.len()` descriptors.
        unsafe {
            let cmsg = libc::CMSG_FIRSTHDR(&msg);
            (*cmsg).cmsg_level = libc::SOL_SOCKET;
            (*cmsg).cmsg_type = libc::SCM_RIGHTS;
            (*cmsg).cmsg_len = libc::CMSG_LEN(len) as _;
            let data = libc::CMSG_DATA(cmsg).cast::<RawFd>();
            for (i, fd) in fds.iter().enumerate() {
                ptr::write_unaligned(data.add(i), fd.as_raw_fd());
            }
        }
    }
    // SAFETY: all pointers in `msg` are valid for their lengths during the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &msg, flags | libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Binds a listening Unix socket whose file has exactly the permission bits `mode` from the start.
///
/// The umask is changed for the duration of the call, so other threads should not create files meanwhile.
pub fn bind_listener(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // SAFETY: no pointers involved; umask cannot fail.
    let old = unsafe { libc::umask((!mode & 0o777) as libc::mode_t) };
    let listener = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(old) };
    listener
}

/// Makes a child of `command` receive `signal` when the thread that spawned it ends.
pub fn die_with_parent(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    let arm = move || {
        // SAFETY: prctl with integer arguments and getppid are async-signal-safe.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) })?;
        // The parent may be gone already; then the signal would never come.
        // SAFETY: no arguments.
        if u32::try_from(unsafe { libc::getppid() }) != Ok(parent) {
            return Err(errno(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure only makes async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(arm) };
}

/// Runs `f` with every signal blocked, so that the threads it starts never take one: signals of the process go to the
/// threads that wait for them.
pub fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initializes the set that pthread_sigmask reads; pthread_sigmask initializes the old one.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr()) == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) == 0
    };
    let result = f();
    if blocked {
        // SAFETY: the call above initialized the old set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut()) };
    }
    result
}

/// A descriptor that becomes readable when one of a set of signals is pending.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` for the calling thread (and threads it starts) and makes them readable.
    pub fn new(signals: &[i32]) -> io::Result<SignalFd> {
        // SAFETY: the set is initialised by sigemptyset before use; the descriptor is fresh.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            check(libc::sigemptyset(&mut set))?;
            for signal in signals {
                check(libc::sigaddset(&mut set, *signal))?;
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) {
                0 => {}
                error => return Err(errno(error)),
            }
            let raw = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(SignalFd(OwnedFd::from_raw_fd(raw)))
        }
    }

    /// The next pending signal, if any.
    pub fn take(&self) -> io::Result<Option<i32>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        // SAFETY: the buffer has the size passed and any bytes are a valid siginfo.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size_of::<libc::signalfd_siginfo>()) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: zeroed, then filled by the kernel.
        let info = unsafe { info.assume_init() };
        Ok(i32::try_from(info.ssi_signo).ok())
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Makes the open file description behind `fd` non-blocking.
pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: no pointers involved.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: no pointers involved.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Whether a write to `fd` would not wait just now.
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd; a timeout of zero returns at once.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLOUT != 0 }
}

/// Whether a file that somebody passed us is an eventfd. Without /proc there is no telling, and it is believed.
pub fn is_eventfd(file: &File) -> bool {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(name) => name.as_os_str() == "anon_inode:[eventfd]",
        Err(_) => true,
    }
}

/// A new eventfd with a counter of zero.
pub fn eventfd(nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | if nonblocking { libc::EFD_NONBLOCK } else { 0 };
    // SAFETY: no pointers involved.
    let raw = check(unsafe { libc::eventfd(0, flags) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Raises the soft limit on open descriptors to the hard one.
pub fn raise_fd_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
