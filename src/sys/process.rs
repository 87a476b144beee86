//! Children and the terminal, for `cx10 run` and `cx10 shrink`.

use super::{check, errno};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::time::Duration;

/// Lets a child take all signals: it would inherit the mask of the thread that starts it.
pub fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is initialised before use; both calls are async-signal-safe.
        let result = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(errno(result)) }
    };
    // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(unblock) };
}

/// Sends a signal to a child that has not been waited for (its process id cannot have been reused).
pub fn send_signal(child: &Child, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(|_| errno(libc::ESRCH))?;
    // SAFETY: integers only.
    check(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// Sends a signal to the process group that a child leads; the child has not been waited for, or [`group_remains`].
pub fn signal_group(child: &Child, signal: i32) -> io::Result<()> {
    let group = libc::pid_t::try_from(child.id()).map_err(|_| errno(libc::ESRCH))?;
    // SAFETY: integers only.
    check(unsafe { libc::kill(-group, signal) })?;
    Ok(())
}

/// Whether a child has ended. It is not waited for, so that its process id and that of its group stay its own.
pub fn has_ended(child: &Child) -> io::Result<bool> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waitid writes one siginfo, which any bytes are a valid value of.
    check(unsafe { libc::waitid(libc::P_PID, child.id(), info.as_mut_ptr(), flags) })?;
    // SAFETY: zeroed, and filled by the kernel if the child has ended; only then its process id is there.
    Ok(unsafe { info.assume_init().si_pid() } != 0)
}

/// Makes this process the parent of what its children leave behind, so that it can wait for that too.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) })?;
    Ok(())
}

/// Waits for children in the process group that a child led who has been waited for, as far as they have ended. Whether
/// there are others: as long as there are, the number of the group is not used again.
pub fn group_remains(leader: &Child) -> io::Result<bool> {
    let group = libc::pid_t::try_from(leader.id()).map_err(|_| errno(libc::ESRCH))?;
    loop {
        // SAFETY: no status is asked for.
        match check(unsafe { libc::waitpid(-group, ptr::null_mut(), libc::WNOHANG) }) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// A pipe: the end that is read, and the one that is written. No child inherits them unless it is given them.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: fresh descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Rows and columns of the terminal behind `fd`, if it is one.
pub fn window_size(fd: BorrowedFd<'_>) -> Option<[u16; 2]> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the ioctl writes one winsize, which any bytes are a valid value of.
    let size = unsafe {
        check(libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr())).ok()?;
        size.assume_init()
    };
    (size.ws_row > 0 && size.ws_col > 0).then_some([size.ws_row, size.ws_col])
}

/// Standard input in raw mode: every key, Ctrl-C too, is a byte. Dropping it restores the terminal.
pub struct RawMode(libc::termios);

impl RawMode {
    /// Switches standard input, which must be a terminal.
    pub fn enter() -> io::Result<RawMode> {
        let mut saved = MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: tcgetattr fills the structure, of which any bytes are a valid value.
        let saved = unsafe {
            check(libc::tcgetattr(libc::STDIN_FILENO, saved.as_mut_ptr()))?;
            saved.assume_init()
        };
        let mut raw = saved;
        // SAFETY: both calls get valid structures.
        unsafe {
            libc::cfmakeraw(&mut raw);
            check(libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw))?;
        }
        Ok(RawMode(saved))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // SAFETY: a structure that tcgetattr filled.
        // Nothing can be done if the terminal is gone.
        let _ = unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &self.0) };
    }
}
