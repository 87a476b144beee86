//! Memory keys: their context, the ordering policy, and the way from an address of a key to memory.
//!
//! [`context`] reads the key context, [`policy`] is the one place that judges its ordering attributes, [`list`] holds
//! translations, [`translate`] follows them, [`umr`] judges changes by work requests. A key is `index << 8 | mkey_7_0`; the index is the object's number, the
//! low byte is the driver's (kernel `mlx5_idx_to_mkey`).

pub mod context;
pub mod fingerprint;
pub mod judged;
pub mod list;
pub mod policy;
pub mod reserved;
pub mod translate;
pub mod umr;

use self::context::KeyContext;
use self::list::{OCTWORD, Translations};
use crate::config::KeyKind;
use crate::device::objects::Charged;

/// A key that was created.
#[derive(Clone, Debug)]
pub struct MemoryKey {
    /// The kind it was created as. A window stays one when it is bound; a free key becomes what its mode says.
    pub kind: KeyKind,
    /// The context; live.
    pub context: KeyContext,
    /// What stands behind the addresses.
    pub list: Translations,
}

impl MemoryKey {
    /// The whole key, for the object with number `index`.
    pub fn key(&self, index: u32) -> u32 {
        index << 8 | u32::from(self.context.variant)
    }
}

impl Charged for MemoryKey {
    /// The list is charged for what it can hold, as a device sets its room aside.
    fn extra(&self) -> u64 {
        u64::from(self.context.octwords) * OCTWORD as u64
    }
}
