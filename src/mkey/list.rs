//! Translation lists: what stands behind the addresses of a key (PRM "Translation Table", `mtt`, `klm`; kernel
//! `mr.c`, `umr.c`).

use super::context::Mode;

/// MTT entry: the page may be read.
pub const MTT_READ: u64 = 1 << 0;
/// MTT entry: the page may be written.
pub const MTT_WRITE: u64 = 1 << 1;
/// Bytes of one octword.
pub const OCTWORD: usize = 16;

/// One entry of a KLM list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Klm {
    /// Offset in the key at which the entry ends: its length plus those of all earlier ones.
    pub end: u64,
    /// The key that it leads to.
    pub key: u32,
    /// The address in that key.
    pub va: u64,
}

/// One entry of a KSM list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksm {
    /// The key that it leads to.
    pub key: u32,
    /// The address in that key.
    pub va: u64,
}

/// The translations of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translations {
    /// No list: PA, and lists that were never loaded.
    None,
    /// Pages with their rights in the low bits.
    Mtt(Vec<u64>),
    /// Pieces of any length.
    Klm(Vec<Klm>),
    /// Pieces of equal length.
    Ksm(Vec<Ksm>),
    /// The pages of a user memory region; byte 0 of the key is byte `offset` of the region.
    Umem {
        /// Number of the region.
        umem: u32,
        /// Where the key starts in it.
        offset: u64,
    },
    /// Device memory; address 0 of the key is byte `start` of the memory window in BAR 0.
    DeviceMemory {
        /// Where the key starts.
        start: u64,
    },
}

/// A page address that does not fit the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misaligned {
    /// The entry.
    pub address: u64,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b))
}

/// Reads page entries. Without `access` the low bits mean nothing and every page may be read and written. Entries
/// without any right are not present and may hold any address.
pub fn parse_mtt(bytes: &[u8], page_shift: u32, access: bool) -> Result<Vec<u64>, Misaligned> {
    const FLAGS: u64 = 0xfff;
    let offset_mask = if page_shift >= 64 { u64::MAX } else { (1u64 << page_shift) - 1 };
    bytes
        .chunks_exact(8)
        .map(|entry| {
            let raw = be64(entry, 0);
            let rights = if access { raw & (MTT_READ | MTT_WRITE) } else { MTT_READ | MTT_WRITE };
            let address = raw & !FLAGS;
            if rights != 0 && address & offset_mask != 0 {
                return Err(Misaligned { address });
            }
            Ok(address | rights)
        })
        .collect()
}

/// Reads KLM entries; entries of length 0 are padding.
pub fn parse_klm(bytes: &[u8]) -> Vec<Klm> {
    let mut end = 0u64;
    bytes
        .chunks_exact(OCTWORD)
        .map(|entry| {
            // 32-bit lengths of at most 2^28 entries: no overflow.
            end += u64::from(be32(entry, 0));
            Klm { end, key: be32(entry, 4), va: be64(entry, 8) }
        })
        .collect()
}

/// Reads KSM entries.
pub fn parse_ksm(bytes: &[u8]) -> Vec<Ksm> {
    bytes.chunks_exact(OCTWORD).map(|entry| Ksm { key: be32(entry, 4), va: be64(entry, 8) }).collect()
}

impl Translations {
    /// Reads the list of a key in `mode`.
    pub fn parse(mode: Mode, bytes: &[u8], page_shift: u32, access: bool) -> Result<Translations, Misaligned> {
        Ok(match mode {
            _ if bytes.is_empty() => Translations::None,
            Mode::Mtt => Translations::Mtt(parse_mtt(bytes, page_shift, access)?),
            Mode::Klm => Translations::Klm(parse_klm(bytes)),
            Mode::Ksm => Translations::Ksm(parse_ksm(bytes)),
            _ => Translations::None,
        })
    }

    /// The octword `index` of the list as a query returns it; 0 beyond its end.
    pub fn octword(&self, index: usize, access: bool) -> [u8; OCTWORD] {
        let mut out = [0; OCTWORD];
        match self {
            Translations::Mtt(pages) => {
                let mask = if access { u64::MAX } else { !(MTT_READ | MTT_WRITE) };
                for (half, page) in pages.iter().skip(2 * index).take(2).enumerate() {
                    out[8 * half..8 * half + 8].copy_from_slice(&(page & mask).to_be_bytes());
                }
            }
            Translations::Klm(list) => {
                if let Some(klm) = list.get(index) {
                    let start = index.checked_sub(1).and_then(|i| list.get(i)).map_or(0, |before| before.end);
                    out[..4].copy_from_slice(&((klm.end - start) as u32).to_be_bytes());
                    out[4..8].copy_from_slice(&klm.key.to_be_bytes());
                    out[8..].copy_from_slice(&klm.va.to_be_bytes());
                }
            }
            Translations::Ksm(list) => {
                if let Some(ksm) = list.get(index) {
                    out[4..8].copy_from_slice(&ksm.key.to_be_bytes());
                    out[8..].copy_from_slice(&ksm.va.to_be_bytes());
                }
            }
            Translations::None | Translations::Umem { .. } | Translations::DeviceMemory { .. } => {}
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn page_rights_count_only_with_page_access() {
        let bytes = words(&[0x1001, 0x2002, 0x3000]);
        assert_eq!(parse_mtt(&bytes, 12, true), Ok(vec![0x1001, 0x2002, 0x3000]));
        assert_eq!(parse_mtt(&bytes, 12, false), Ok(vec![0x1003, 0x2003, 0x3003]));
    }

    #[test]
    fn a_present_page_must_be_aligned_and_an_absent_one_need_not() {
        assert_eq!(parse_mtt(&words(&[0x1003]), 13, true), Err(Misaligned { address: 0x1000 }));
        assert_eq!(parse_mtt(&words(&[0x1000]), 13, true), Ok(vec![0x1000]));
        assert_eq!(parse_mtt(&words(&[0x1000]), 13, false), Err(Misaligned { address: 0x1000 }));
    }

    #[test]
    fn lists_read_back_as_they_were_written() {
        let klm = words(&[0x10_0000_0300, 0x1234, 0, 0, 0xffff_ffff_0000_0700, 0x9]);
        let list = Translations::parse(Mode::Klm, &klm, 0, false).expect("any list");
        assert_eq!(
            list,
            Translations::Klm(vec![
                Klm { end: 0x10, key: 0x300, va: 0x1234 },
                Klm { end: 0x10, key: 0, va: 0 },
                Klm { end: 0x1_0000_000f, key: 0x700, va: 9 },
            ])
        );
        for index in 0..3 {
            assert_eq!(list.octword(index, false), klm[16 * index..16 * index + 16]);
        }
        assert_eq!(list.octword(3, false), [0; 16]);
        let mtt = words(&[0x1000, 0x2000]);
        let list = Translations::parse(Mode::Mtt, &mtt, 12, false).expect("aligned");
        assert_eq!(list.octword(0, false), mtt[..]);
        assert_eq!(list.octword(0, true), words(&[0x1003, 0x2003])[..]);
        let ksm = words(&[0x300, 0x40]);
        assert_eq!(Translations::parse(Mode::Ksm, &ksm, 12, false).expect("any list").octword(0, false), ksm[..]);
    }
}
