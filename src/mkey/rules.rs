//! What the capabilities and the configuration allow keys to be, looked up once when the device is initialized.

use super::limits::Limits;
use super::policy::OrderingCaps;
use super::umr::UmrCaps;
use crate::device::capabilities::Capabilities;

/// What keys may be and what a UMR may make of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// Sizes that keys must keep.
    pub limits: Limits,
    /// What a UMR may do.
    pub umr: UmrCaps,
    /// Whether KLM lists may have repeat blocks (`repeated_block_disabled`).
    pub repeat_blocks: bool,
    ordering: OrderingCaps,
    ordering_on_pci: OrderingCaps,
}

impl KeyRules {
    /// From the capabilities in force.
    pub fn new(caps: &Capabilities) -> KeyRules {
        KeyRules {
            limits: Limits::new(caps),
            umr: UmrCaps::new(caps),
            repeat_blocks: caps.general("repeated_block_disabled") == 0,
            ordering: OrderingCaps::new(caps, false),
            ordering_on_pci: OrderingCaps::new(caps, true),
        }
    }

    /// What keys may ask of ordering; `pci_enabled` is "Enable Relaxed Ordering" of PCIe Device Control.
    pub fn ordering(&self, pci_enabled: bool) -> OrderingCaps {
        if pci_enabled { self.ordering_on_pci } else { self.ordering }
    }
}
