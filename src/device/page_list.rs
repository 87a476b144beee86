//! The pages behind a queue or region: the PAS lists of the command interface.

use crate::cmdif::error::CmdError;
use crate::cmdif::error::pas as syn;
use crate::dma::Iova;
use crate::prm::status::Status;

/// Smallest page of a PAS list, log2.
pub const ADAPTER_PAGE_SHIFT: u32 = 12;

/// Equal pages in order, and where the first byte stands in the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageList {
    pages: Vec<u64>,
    page_shift: u32,
    offset: u64,
    len: u64,
}

impl PageList {
    /// The pages of a buffer of `len` bytes that starts `offset` bytes into the first one. `pas` is the list of
    /// big-endian addresses; it must cover the buffer and may be longer, as the driver's buffers are.
    pub fn parse(pas: &[u8], page_shift: u32, offset: u64, len: u64) -> Result<PageList, CmdError> {
        let bad = |syndrome| CmdError::new(Status::BAD_PARAM_ERR, syndrome);
        if !(ADAPTER_PAGE_SHIFT..=62).contains(&page_shift) {
            return Err(bad(syn::PAGE_SIZE));
        }
        let size = 1u64 << page_shift;
        if offset >= size {
            return Err(bad(syn::PAGE_OFFSET));
        }
        let end = offset.checked_add(len).ok_or(bad(syn::TOO_LONG))?;
        let needed = usize::try_from(end.div_ceil(size)).map_err(|_| bad(syn::TOO_LONG))?;
        if pas.len() / 8 < needed {
            return Err(bad(syn::TOO_FEW));
        }
        let pages: Vec<u64> = pas
            .chunks_exact(8)
            .take(needed)
            .map(|entry| u64::from_be_bytes(entry.try_into().unwrap_or_default()) & !0xfff)
            .collect();
        if pages.iter().any(|page| page & (size - 1) != 0 || page.checked_add(size - 1).is_none()) {
            return Err(bad(syn::MISALIGNED));
        }
        Ok(PageList { pages, page_shift, offset, len })
    }

    /// Length of the buffer in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of pages, for accounting.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The address of byte `at`, and how many bytes from there on are contiguous; `None` beyond the buffer.
    pub fn locate(&self, at: u64) -> Option<(Iova, u64)> {
        if at >= self.len {
            return None;
        }
        let from_start = self.offset + at;
        let within = from_start & ((1 << self.page_shift) - 1);
        let page = self.pages.get(usize::try_from(from_start >> self.page_shift).ok()?)?;
        let contiguous = (1u64 << self.page_shift) - within;
        Some((Iova(page + within), contiguous.min(self.len - at)))
    }

    /// The address of an entry of `size` bytes at `at` that must not straddle pages, as queue entries never do.
    pub fn entry(&self, at: u64, size: u64) -> Option<Iova> {
        self.locate(at).and_then(|(iova, contiguous)| (contiguous >= size).then_some(iova))
    }

    /// Whether the buffer's first byte is aligned to `unit`, a power of two of at most the smallest page's size.
    pub fn aligned(&self, unit: u64) -> bool {
        self.offset % unit == 0
    }

    /// The `len` bytes at `at` as a buffer of its own.
    pub fn slice(&self, at: u64, len: u64) -> Result<PageList, CmdError> {
        let bad = |syndrome| CmdError::new(Status::BAD_PARAM_ERR, syndrome);
        let end = at.checked_add(len).ok_or(bad(syn::TOO_LONG))?;
        if end > self.len {
            return Err(bad(syn::TOO_FEW));
        }
        let from = self.offset + at;
        let size = 1u64 << self.page_shift;
        let first = (from >> self.page_shift) as usize;
        let needed = (from % size + len).div_ceil(size) as usize;
        let pages = self.pages.iter().skip(first).take(needed).copied().collect();
        Ok(PageList { pages, page_shift: self.page_shift, offset: from % size, len })
    }

    /// The page addresses as a query command returns them.
    pub fn to_pas(&self) -> Vec<u8> {
        let mut pas = Vec::with_capacity(8 * self.pages.len());
        self.pages.iter().for_each(|page| pas.extend_from_slice(&page.to_be_bytes()));
        pas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pas(pages: &[u64]) -> Vec<u8> {
        pages.iter().flat_map(|page| page.to_be_bytes()).collect()
    }

    #[test]
    fn bytes_are_found_across_pages_and_not_beyond_the_buffer() {
        let list = PageList::parse(&pas(&[0x1000, 0x9000]), 12, 0x40, 0x1000).expect("a legal list");
        assert_eq!(list.locate(0), Some((Iova(0x1040), 0xfc0)));
        assert_eq!(list.locate(0xfbf), Some((Iova(0x1fff), 1)));
        assert_eq!(list.locate(0xfc0), Some((Iova(0x9000), 0x40)));
        assert_eq!(list.locate(0x1000), None);
        assert_eq!(list.entry(0xf80, 0x40), Some(Iova(0x1fc0)));
        assert_eq!(list.entry(0xfa0, 0x40), None);
    }

    #[test]
    fn lists_that_do_not_cover_the_buffer_are_refused() {
        let refused = |pas: &[u8], shift, offset, len| PageList::parse(pas, shift, offset, len).unwrap_err().syndrome;
        assert_eq!(refused(&pas(&[0x1000]), 12, 1, 0x1000), syn::TOO_FEW);
        assert_eq!(refused(&pas(&[0x1000]), 11, 0, 1), syn::PAGE_SIZE);
        assert_eq!(refused(&pas(&[0x1000]), 63, 0, 1), syn::PAGE_SIZE);
        assert_eq!(refused(&pas(&[0x1000]), 12, 0x1000, 1), syn::PAGE_OFFSET);
        assert_eq!(refused(&pas(&[0x1000]), 12, 1, u64::MAX), syn::TOO_LONG);
        assert_eq!(refused(&pas(&[0x1000]), 13, 0, 1), syn::MISALIGNED);
        assert_eq!(refused(&pas(&[u64::MAX << 13]), 14, 0, 1), syn::MISALIGNED);
    }

    #[test]
    fn a_slice_finds_the_bytes_that_the_whole_finds() {
        let list = PageList::parse(&pas(&[0x1000, 0x9000, 0x5000]), 12, 0x40, 0x2f00).expect("a legal list");
        for (at, len) in [(0, 0x2f00), (0xfc0, 0x10), (0xfbf, 2), (0x2eff, 1), (0x1000, 0), (0x2f00, 0)] {
            let slice = list.slice(at, len).expect("inside");
            assert_eq!(slice.len(), len);
            for byte in 0..len {
                assert_eq!(slice.locate(byte).map(|(iova, _)| iova), list.locate(at + byte).map(|(iova, _)| iova));
            }
            assert_eq!(slice.locate(len), None);
        }
        assert_eq!(list.slice(0x2eff, 2).unwrap_err().syndrome, syn::TOO_FEW);
        assert_eq!(list.slice(2, u64::MAX).unwrap_err().syndrome, syn::TOO_LONG);
    }

    #[test]
    fn an_empty_buffer_needs_no_pages() {
        assert_eq!(PageList::parse(&[], 12, 0, 0).expect("legal").pages(), 0);
    }
}
