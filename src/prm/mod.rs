//! PRM layouts: commands, contexts, capabilities, work queue entries and events, as the mlx5 driver and the device share
//! them. Data only; nothing here knows the device.
//!
//! Names, offsets and widths are those of `mlx5_ifc.h`, compared field by field by `tests/prm_ifc.rs`.

pub mod bits;
pub mod layout;
pub mod macros;

pub use layout::{Field, Kind, Layout, PathError, TooShort, Value};
#[doc(inline)]
pub use macros::layout;
