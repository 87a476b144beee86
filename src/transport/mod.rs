//! vfio-user: the server loop, its messages, and the description of a device that it serves.
//!
//! | module | holds |
//! |---|---|
//! | [`layout`] | regions and interrupts of the device |
//! | [`message`] | numbers, header and payloads on the wire |
//! | [`version`] | negotiation |
//! | [`connection`] | framed receive with descriptors, batched send |
//! | [`listener`] | the socket file |
//! | [`server`] | clients one after the other, deadlines, disconnect |
//! | `session` | the messages of one client: checks, dispatch, replies |
//! | [`backend`] | the function as a `vfio_user::ServerBackend` |

pub mod backend;
pub mod connection;
pub mod layout;
pub mod listener;
pub mod message;
pub mod server;
mod session;
pub mod version;
