//! What the capabilities' sizes allow of a key, however it comes about.

use super::context::{Defect, KeyContext, MAX_PAGE_SHIFT, MIN_PAGE_SHIFT, Mode, syn};
use crate::device::capabilities::Capabilities;

/// Sizes that keys must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `fixed_buffer_size`: whether there are KSM keys.
    ksm: bool,
    /// `log_max_klm_list_size`.
    klm_entries: u64,
    /// `log_max_mrw_sz`, where it says anything.
    len: Option<u64>,
}

impl Default for Limits {
    /// No limits.
    fn default() -> Limits {
        Limits { ksm: true, klm_entries: u64::MAX, len: None }
    }
}

impl Limits {
    /// The capabilities in force.
    pub fn new(caps: &Capabilities) -> Limits {
        let max = caps.general("log_max_mrw_sz");
        Limits {
            ksm: caps.general("fixed_buffer_size") != 0,
            klm_entries: 1u64.checked_shl(caps.general("log_max_klm_list_size") as u32).unwrap_or(u64::MAX),
            len: (1..64).contains(&max).then(|| 1 << max),
        }
    }

    /// Names the first field that is beyond its limit. `umem`: the pages are those of a user memory region.
    pub fn check(&self, context: &KeyContext, umem: bool) -> Result<(), Defect> {
        let defect = |field, value, syndrome| Err(Defect { field, value, syndrome });
        let shift = context.log_page_size;
        match context.mode {
            // A free key gets its page size when it is enabled, one on user memory has that of the region.
            Mode::Mtt if shift == 0 && (context.free || umem) => {}
            Mode::Mtt if !(MIN_PAGE_SHIFT..=MAX_PAGE_SHIFT).contains(&shift) => {
                return defect("log_page_size", shift.into(), syn::PAGE_SIZE);
            }
            Mode::Ksm if !self.ksm => return defect("access_mode", context.mode.value().into(), syn::FIXED_SIZE),
            Mode::Ksm if shift > MAX_PAGE_SHIFT => return defect("log_page_size", shift.into(), syn::PAGE_SIZE),
            Mode::Klm if context.room() > self.klm_entries => {
                return defect("translations_octword_size", context.room(), syn::KLM_LIST);
            }
            _ => {}
        }
        match self.len {
            Some(max) if !context.length64 && context.len > max => defect("len", context.len, syn::TOO_LONG),
            _ => Ok(()),
        }
    }
}
