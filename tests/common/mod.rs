//! Shared by the black-box tests: a strict vfio-user client, guest memory, eventfds, a server in a thread, and
//! a toy device.
// Each test program uses its own part of this.
#![allow(dead_code)]

pub mod client;
pub mod device;
pub mod driver;
pub mod guest;
pub mod rdma;
pub mod serve;
pub mod toy;

/// Puts the calling thread on one processor, if the machine lets us.
pub fn pin(cpu: usize) {
    use std::process::{Command, Stdio};
    let Ok(thread) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(tid) = thread.file_name() else { return };
    let mut taskset = Command::new("taskset");
    let _ = taskset.args(["-cp", &cpu.to_string()]).arg(tid).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
