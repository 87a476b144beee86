//! The event loop that owns the function.
//!
//! One thread, one loop. It answers the VMM first and lets the device work afterwards, in bounded portions on
//! both sides, so that a register access is answered promptly however busy the device is.

use vfio_user::ServerBackend;

use crate::transport::layout::Layout;

/// What a device says after a portion of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// More work is ready now; the loop serves the VMM and calls again without waiting.
    pub more: bool,
    /// When to call again at the latest, in the nanoseconds of [`Device::run`]'s `now`.
    pub next_deadline: Option<u64>,
}

/// A function that the loop can own.
///
/// The transport reaches it through [`ServerBackend`]. When a VMM disconnects the loop calls, in this order,
/// `reset`, `set_irqs` with DATA_NONE | ACTION_TRIGGER and count 0 for every interrupt index, and `dma_unmap`
/// with the UNMAP_ALL bit (bit 1) and a zero range.
pub trait Device: ServerBackend {
    /// Regions and interrupts, asked once before the first VMM is accepted.
    fn layout(&self) -> Layout;

    /// Does a bounded portion of work: a few hundred microseconds at most.
    ///
    /// `now` is monotonic, in nanoseconds since the loop started; the device has no other clock. Called after
    /// each batch of messages, when a deadline has passed, and again at once while it answers `more`.
    fn run(&mut self, now: u64) -> Work;
}
