//! What a port is connected to, and what the device must know of the frames that it sends and receives: layers,
//! checksums, segmentation, hashes.
//!
//! A frame is a slice of bytes from the destination address on, without frame check sequence.

pub mod checksum;
pub mod hash;
pub mod layers;
pub mod roce;
pub mod segment;

use std::fmt;

/// Shortest frame, without frame check sequence; shorter ones are padded with zeros (IEEE 802.3).
pub const MIN_FRAME: usize = 60;
/// Bytes of a MAC header without VLAN tags.
pub const MAC_HEADER: usize = 14;
/// Bytes of a VLAN tag.
pub const VLAN_TAG: usize = 4;

/// The other end of the port.
pub trait Link: fmt::Debug {
    /// Whether the port sees a signal.
    fn carrier(&self) -> bool;
    /// Takes a frame that the port sent.
    fn transmit(&mut self, frame: &[u8]);
    /// Puts the next frame that came in into `frame`, in place of what is there; `false` if there is none. Frames that
    /// are not fetched wait at the other end.
    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let _ = frame;
        false
    }
}

/// A link with a signal and nobody on it: frames leave the port and are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotConnected;

impl Link for NotConnected {
    fn carrier(&self) -> bool {
        true
    }

    fn transmit(&mut self, _frame: &[u8]) {}
}
