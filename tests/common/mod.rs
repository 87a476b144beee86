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
