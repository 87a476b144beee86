//! The tables of the PRM layer that the decoder needs, in one place.

use crate::prm::Layout;

/// Name of an opcode.
pub fn opcode_name(_opcode: u16) -> Option<&'static str> {
    None
}
/// Layout of a command's input.
pub fn in_layout(_opcode: u16) -> Option<&'static Layout> {
    None
}
/// Layout of a command's output.
pub fn out_layout(_opcode: u16) -> Option<&'static Layout> {
    None
}
/// Layout of a capability type.
pub fn cap_layout(_cap_type: u16) -> Option<&'static Layout> {
    None
}
/// Name and layout of an access register.
pub fn reg_layout(_register: u16) -> Option<(&'static str, &'static Layout)> {
    None
}
/// Name of a command status.
pub fn status_name(_status: u8) -> Option<&'static str> {
    None
}
/// Name of a delivery status.
pub fn delivery_name(_delivery: u8) -> Option<&'static str> {
    None
}
