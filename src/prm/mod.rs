//! PRM layouts: commands, contexts, capabilities, work queue entries and events, as the mlx5 driver and the device share
//! them. Data only; nothing here knows the device.
//!
//! Names, offsets and widths are those of `mlx5_ifc.h`, compared field by field by `tests/prm_ifc.rs`.

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
