//! Sets of slots of the pool.

use super::MAX_TRANSACTIONS;

const WORDS: usize = MAX_TRANSACTIONS / 64;

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots([u64; WORDS]);

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    /// Whether two sets have a slot in common.
    #[inline]
    pub(super) fn meets(&self, other: &Slots) -> bool {
        self.0.iter().zip(other.0).any(|(ours, theirs)| ours & theirs != 0)
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    /// Nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u16> {
        self.0.into_iter().enumerate().flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index as u16 * 64 + bit as u16)
            })
        })
    }
}
