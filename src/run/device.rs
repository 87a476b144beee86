//! The device under test as [`super::run`] sees it: something that serves a vfio-user socket and leaves a summary.

use crate::sys;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A device that a guest is run on.
pub trait DeviceUnderTest {
    /// Starts to serve `socket` for one VMM; when that leaves, it writes its summary to `report` and ends. Its standard
    /// error is a pipe. `Ok(None)` is a guest without the device.
    fn start(&mut self, socket: &Path, report: &Path) -> io::Result<Option<Child>>;
}

/// No device: the guest boots without it. For testing the lab itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDevice;

impl DeviceUnderTest for NoDevice {
    fn start(&mut self, _: &Path, _: &Path) -> io::Result<Option<Child>> {
        Ok(None)
    }
}

/// `cx10 serve` as a child process.
#[derive(Clone, Debug)]
pub struct ServeProcess {
    /// The program.
    pub program: PathBuf,
    /// Its arguments behind `serve`: profile, settings, trace.
    pub args: Vec<OsString>,
}

impl ServeProcess {
    /// This very program with these arguments.
    pub fn of_this_program(args: Vec<OsString>) -> io::Result<ServeProcess> {
        Ok(ServeProcess { program: std::env::current_exe()?, args })
    }
}

impl DeviceUnderTest for ServeProcess {
    fn start(&mut self, socket: &Path, report: &Path) -> io::Result<Option<Child>> {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(&self.args).arg("--once").arg("--socket").arg(socket).arg("--report").arg(report);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A Ctrl-C on the terminal is for us; we end the device when QEMU is gone, so that its summary is complete.
        command.process_group(0);
        sys::process::unblock_signals(&mut command);
        sys::die_with_parent(&mut command, libc::SIGTERM);
        command.spawn().map(Some)
    }
}
