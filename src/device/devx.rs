//! DEVX objects: user contexts and user memory (PRM "User Context", "UMEM"; kernel `mlx5_ib devx.c`).

use super::objects::Charged;
use super::page_list::PageList;
use crate::cmdif::error::CmdError;
use crate::dma::Iova;

/// A user context: the owner of the objects that one user process creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserContext {
    /// `uctx.cap`: what the context may do.
    pub cap: u32,
}

impl Charged for UserContext {}

/// A user memory region: pinned pages that contexts refer to by number and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Umem {
    pages: PageList,
    readable: bool,
    writable: bool,
}

impl Charged for Umem {
    fn extra(&self) -> u64 {
        8 * self.pages.pages() as u64
    }
}

impl Umem {
    /// A region on `pages`. The driver gives all pages of a region the same rights; a region is readable or writable
    /// only if every page is.
    pub fn new(pages: PageList, readable: bool, writable: bool) -> Umem {
        Umem { pages, readable, writable }
    }

    /// Bytes from the first one to the end of the last page.
    pub fn len(&self) -> u64 {
        self.pages.len()
    }

    /// Whether the region has no bytes; none of the created ones is.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether the device may read it.
    pub fn readable(&self) -> bool {
        self.readable
    }

    /// Whether the device may write it.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The address of byte `at`, and how many bytes from there on are contiguous; `None` beyond the region.
    pub fn locate(&self, at: u64) -> Option<(Iova, u64)> {
        self.pages.locate(at)
    }

    /// The `len` bytes at `offset` as the buffer of a queue, for contexts with `*_umem_valid`.
    pub fn buffer(&self, offset: u64, len: u64) -> Result<PageList, CmdError> {
        self.pages.slice(offset, len)
    }
}
