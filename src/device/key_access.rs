//! Memory behind a key as the device's firmware writes it: for itself, on no queue's behalf (dumps, traces).
//!
//! The key is judged when it is made, as every key; here its bounds, rights and translations are checked as for a local
//! write in the key's own protection domain.

use super::hca::Hca;
use super::rdma::memory::MemoryError;
use crate::dma::{Bus, Horizon, Store, StoreClass, Stream, Wait};
use crate::mkey::translate::{Access, Place, Request, collect};

/// Pieces that a write may be in.
const MAX_PIECES: usize = 64;

impl Hca {
    /// Writes `bytes` at `va` of a key, after what `after` covers; nothing is written if the key does not allow all of
    /// it.
    pub fn store_through_key(
        &mut self,
        key: u32,
        va: u64,
        bytes: &[u8],
        after: Option<Horizon>,
        bus: &mut Bus,
    ) -> Result<(), MemoryError> {
        let pd = self.objects.mkeys.get(key >> 8).map_or(0, |entry| entry.object.context.pd);
        let request =
            Request { key, va, len: bytes.len() as u64, access: Access::LocalWrite, pd, qpn: 0, reserved_lkey: false };
        let pieces = collect(&self.objects, &self.key_space, &request, MAX_PIECES)?.ok_or(MemoryError::Scattered)?;
        let mut rest = bytes;
        for piece in pieces {
            let (part, behind) = rest.split_at_checked(piece.len as usize).ok_or(MemoryError::Short)?;
            rest = behind;
            match piece.place {
                Place::Nowhere => {}
                Place::Device(at) => self.memic.write(at, part),
                Place::Memory(at) => {
                    let wait = Wait { after, ..Wait::default() };
                    let (class, stream) = (StoreClass::Payload, Stream::Command);
                    let store = Store { class, stream, key: piece.order, index: piece.key, chain: None, wait };
                    bus.store(store, at, part)?;
                }
            }
        }
        Ok(())
    }
}
