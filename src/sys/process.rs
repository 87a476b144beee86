//! Children and the terminal, for `cx10 run`.

use super::{check, errno};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
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

/// Sends a signal to the process group that a child leads; the child has not been waited for.
pub fn signal_group(child: &Child, signal: i32) -> io::Result<()> {
    let group = libc::pid_t::try_from(child.id()).map_err(|_| errno(libc::ESRCH))?;
    // SAFETY: integers only.
    check(unsafe { libc::kill(-group, signal) })?;
    Ok(())
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
