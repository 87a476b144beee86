//! vfio-user: the server loop, its messages, and the description of a device that it serves.

pub mod backend;
pub mod layout;
