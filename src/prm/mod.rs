//! PRM layouts: commands, contexts, capabilities, work queue entries and events, as the mlx5 driver and the device share
//! them. Data only; nothing here knows the device.
//!
//! Names, offsets and widths are those of `mlx5_ifc.h` of the newest supported kernel, compared field by field by
//! `tests/prm_ifc.rs`. An older driver's register image may be shorter than the layout.
//!
//! | modules | hold |
//! |---|---|
//! | [`macros`], [`layout`](mod@layout), [`bits`] | `layout!`, the runtime field table, bit access |
//! | [`commands`] | which layouts belong to a command, capability type, access register |
//! | [`opcode`], [`status`], [`event`], [`values`] | numbers with PRM names |
//! | [`init_segment`], [`cmd`] | BAR0's first page, command queue, mailboxes |
//! | [`hca`], `caps_*` | bring-up, pages, capabilities |
//! | [`eq`], [`eqe`], [`cq`], [`cqe`], [`wqe`] | event and completion queues, work queue entries, doorbells |
//! | [`mkey`], [`pd`], [`qp`], [`srq`], [`queue`], [`tir`], [`devx`] | objects of verbs and of the netdev |
//! | [`flow`], [`flow_match`], [`counters`], [`qos`], [`vport`] | steering, counters, scheduling, vports |
//! | [`reg`], [`reg_device`], [`reg_counters`] | access registers |

pub mod bits;
pub mod layout;
pub mod macros;

pub mod caps_flow;
pub mod caps_general;
pub mod caps_general2;
pub mod caps_net;
pub mod cmd;
mod codes;
pub mod commands;
pub mod counters;
pub mod cq;
pub mod cqe;
pub mod devx;
pub mod diag;
pub mod eq;
pub mod eqe;
pub mod event;
pub mod flow;
pub mod flow_match;
pub mod hca;
pub mod init_segment;
pub mod mkey;
pub mod opcode;
pub mod pd;
pub mod qos;
pub mod qp;
pub mod queue;
pub mod reg;
pub mod reg_counters;
pub mod reg_device;
pub mod srq;
pub mod status;
pub mod tir;
pub mod values;
pub mod vport;
pub mod wqe;

pub use layout::{Field, Kind, Layout, PathError, TooShort, Value};
#[doc(inline)]
pub use macros::layout;
pub use opcode::Opcode;
pub use status::{Delivery, Status};
