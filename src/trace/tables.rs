//! The tables of the PRM layer that the decoder needs, as plain functions of the numbers on the wire.

use crate::prm::commands::{self, RegisterId};
use crate::prm::{Delivery, Layout, Opcode, Status};

pub use commands::cap_layout;

/// Name of an opcode.
pub fn opcode_name(opcode: u16) -> Option<&'static str> {
    Opcode(opcode).name()
}

/// Layouts of a command's input and output.
pub fn layouts(opcode: u16, op_mod: u16) -> Option<(&'static Layout, &'static Layout)> {
    commands::layouts(Opcode(opcode), op_mod)
}

/// Name and layout of an access register. A register without a layout has its name all the same.
pub fn register(id: u16) -> (String, Option<&'static Layout>) {
    (RegisterId(id).to_string(), commands::register_layout(RegisterId(id)))
}

/// Name of a command status.
pub fn status_name(status: u8) -> Option<&'static str> {
    Status(status).name()
}

/// Name of a delivery status.
pub fn delivery_name(delivery: u8) -> Option<&'static str> {
    Delivery(delivery).name()
}
