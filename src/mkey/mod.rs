//! Memory keys: their context, the ordering policy, and the way from an address of a key to memory.
//!
//! [`context`] reads the key context, [`limits`] are its sizes, [`rules`] what the capabilities say, [`policy`] is the one place that judges its ordering
//! attributes, [`list`] holds translations, [`translate`] follows them, [`umr`] judges changes by work requests. A key
//! is `index << 8 | mkey_7_0`; the index is the object's number, the low byte is the driver's (kernel
//! `mlx5_idx_to_mkey`).

pub mod context;
pub mod fingerprint;
pub mod judged;
pub mod limits;
pub mod list;
pub mod policy;
pub mod reserved;
pub mod rules;
pub mod translate;
pub mod umr;

use self::context::KeyContext;
use self::judged::Outcome;
use self::list::Translations;
use self::policy::Grant;
use crate::config::KeyKind;
use crate::device::objects::Charged;
use crate::dma::KeyOrder;

/// A key that was created.
#[derive(Clone, Debug)]
pub struct MemoryKey {
    /// The kind it was created as. A window stays one when it is bound; a free key becomes what its mode says.
    pub kind: KeyKind,
    /// The context; live.
    pub context: KeyContext,
    /// What stands behind the addresses.
    pub list: Translations,
    /// Whether the key has been usable, as far as reports know.
    enabled: bool,
    /// Whether it was counted as relaxed; `None` while a UMR may yet say.
    counted: Option<bool>,
    /// The ordering attributes that were reported last.
    told: KeyOrder,
}

impl MemoryKey {
    /// A key that was granted.
    pub fn new(kind: KeyKind, context: KeyContext, list: Translations, grant: Grant) -> MemoryKey {
        let counted = (!grant.undecided).then_some(grant.relaxed);
        MemoryKey { kind, enabled: !context.free, told: context.order(), context, list, counted }
    }

    /// The whole key, for the object with number `index`.
    pub fn key(&self, index: u32) -> u32 {
        index << 8 | u32::from(self.context.variant)
    }

    /// What a UMR that left the key as it is now, under `grant`, has to report: nothing where the key was usable before
    /// with the same ordering, however often it is taken from a pool and put back.
    pub fn note_enabled(&mut self, index: u32, grant: Grant) -> Option<Outcome> {
        if self.context.free {
            return None;
        }
        let order = self.context.order();
        let counted = self.counted.replace(grant.relaxed) == Some(grant.relaxed);
        let enabled = std::mem::replace(&mut self.enabled, true);
        let told = std::mem::replace(&mut self.told, order) == order;
        (!enabled || !counted || !told).then_some(Outcome::Enabled { index, first: !enabled, order, counted })
    }
}

impl Charged for MemoryKey {
    /// The list is charged for what it can hold, as a device sets its room aside.
    fn extra(&self) -> u64 {
        u64::from(self.context.octwords) * Translations::bytes_per_octword(self.context.mode)
    }
}
