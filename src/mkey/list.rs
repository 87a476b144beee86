//! Translation lists: what stands behind the addresses of a key (PRM "Translation Table", `mtt`, `klm`; kernel
//! `mr.c`, `umr.c`; repeat blocks: `mlx5_stride_block_ctrl_seg`, rdma-core `umr_strided_seg_create`).
//!
//! A list is what the device's own table would be: as many entries as the key has room for, of which any part can be
//! overwritten at any time, and whose entries mean nothing before something is accessed through them. So nothing is
//! judged when a list is loaded by a work request, and entries that were never written are not present.
//!
//! Lists take no more memory than their key is charged for ([`Translations::bytes_per_octword`]).

use super::context::Mode;
use super::reserved::Reserved;

/// MTT entry: the page may be read.
pub const MTT_READ: u64 = 1 << 0;
/// MTT entry: the page may be written.
pub const MTT_WRITE: u64 = 1 << 1;
/// Bits of an MTT entry that are no address.
const MTT_FLAGS: u64 = 0xfff;
/// Bytes of one octword.
pub const OCTWORD: usize = 16;

/// An entry that is as long as all others of its list.
pub trait Entry: Copy + Default {
    /// Bytes of the entry in the list.
    const BYTES: usize;
    /// Reads it.
    fn read(bytes: &[u8]) -> Self;
}

impl Entry for u64 {
    const BYTES: usize = 8;

    fn read(bytes: &[u8]) -> u64 {
        be64(bytes, 0) & (!MTT_FLAGS | MTT_READ | MTT_WRITE)
    }
}

/// One entry of a KSM list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ksm {
    /// The key that it leads to.
    pub key: u32,
    /// The address in that key.
    pub va: u64,
}

impl Entry for Ksm {
    const BYTES: usize = OCTWORD;

    fn read(bytes: &[u8]) -> Ksm {
        Ksm { key: be32(bytes, 4), va: be64(bytes, 8) }
    }
}

/// Entries in one piece of a [`Table`].
const PIECE: usize = 1 << 15;

/// Equal entries, in pieces: writing anywhere in a long list takes no more time than its entries and two pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<T> {
    pieces: Vec<Vec<T>>,
}

impl<T: Entry> Table<T> {
    /// The entry `index`; `None` where none was ever written.
    pub fn get(&self, index: usize) -> Option<T> {
        self.pieces.get(index / PIECE)?.get(index % PIECE).copied()
    }

    /// The entries from `index` on, some or all of them; none where none was ever written.
    pub fn run(&self, index: usize) -> &[T] {
        self.pieces.get(index / PIECE).and_then(|piece| piece.get(index % PIECE..)).unwrap_or_default()
    }

    /// Overwrites the entries from `at` on. Those beyond `room` are dropped.
    pub fn load(&mut self, at: usize, room: usize, bytes: &[u8]) {
        let count = (bytes.len() / T::BYTES).min(room.saturating_sub(at));
        let (mut at, mut bytes) = (at, &bytes[..count * T::BYTES]);
        while !bytes.is_empty() {
            let within = at % PIECE;
            let count = (bytes.len() / T::BYTES).min(PIECE - within);
            let (now, later) = bytes.split_at(count * T::BYTES);
            let piece = self.piece(at / PIECE, room);
            if piece.len() < within {
                piece.resize(within, T::default());
            }
            let mut entries = now.chunks_exact(T::BYTES).map(T::read);
            for (slot, entry) in piece[within..].iter_mut().zip(&mut entries) {
                *slot = entry;
            }
            piece.extend(entries);
            (at, bytes) = (at + count, later);
        }
    }

    /// A piece with space for all its entries of a list of `room`, so that a list that is loaded again and again is
    /// allocated once.
    fn piece(&mut self, number: usize, room: usize) -> &mut Vec<T> {
        if self.pieces.len() <= number {
            self.pieces.resize_with(number + 1, Vec::new);
        }
        let piece = &mut self.pieces[number];
        let space = room.saturating_sub(number * PIECE).min(PIECE);
        piece.reserve_exact(space.saturating_sub(piece.len()));
        piece
    }
}

impl<T: Copy> From<Vec<T>> for Table<T> {
    fn from(entries: Vec<T>) -> Table<T> {
        if entries.len() <= PIECE {
            return Table { pieces: vec![entries] };
        }
        Table { pieces: entries.chunks(PIECE).map(<[T]>::to_vec).collect() }
    }
}

/// One entry of a KLM list, or the head of a repeat block, or an entry of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Klm {
    /// Bytes of the entry. In a head, bytes of one repetition; in a block, stride and bytes of the entry, 16 bits each.
    pub len: u32,
    /// The key that it leads to. In a head, [`Reserved::Repeat`].
    pub key: u32,
    /// The address in that key. In a head, repetitions and, in the low 16 bits, entries of the block.
    pub va: u64,
}

impl Entry for Klm {
    const BYTES: usize = OCTWORD;

    fn read(bytes: &[u8]) -> Klm {
        Klm { len: be32(bytes, 0), key: be32(bytes, 4), va: be64(bytes, 8) }
    }
}

/// Where an offset in a KLM key leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub key: u32,
    /// The address in it; `None` if it goes beyond 64 bits.
    pub va: Option<u64>,
    /// How many bytes lie there together.
    pub room: u64,
}

/// Entries of any length, and repeat blocks: some entries in turn, again and again, each at its own stride.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KlmList {
    entries: Vec<Klm>,
    /// Where each entry ends in the key; head and entries of a block end where the block does.
    ends: Vec<u64>,
    /// Where each entry of a block ends in one repetition; empty in a list without blocks.
    turn_ends: Vec<u32>,
}

impl KlmList {
    /// Overwrites the entries from `at` on. Those beyond `room` are dropped. `repeat`: there are repeat blocks.
    pub fn load(&mut self, at: usize, room: usize, bytes: &[u8], repeat: bool) {
        let count = (bytes.len() / OCTWORD).min(room.saturating_sub(at));
        if count == 0 {
            return;
        }
        let needed = self.entries.len().max(at + count);
        self.entries.reserve_exact(room.max(needed) - self.entries.len());
        self.entries.resize(needed, Klm::default());
        for (slot, entry) in self.entries[at..].iter_mut().zip(bytes.chunks_exact(OCTWORD)) {
            *slot = Klm::read(entry);
        }
        self.index(repeat);
    }

    fn index(&mut self, repeat: bool) {
        self.ends.clear();
        self.ends.reserve_exact(self.entries.capacity());
        self.turn_ends.clear();
        let mut end = 0u64;
        while let Some(entry) = self.entries.get(self.ends.len()) {
            if !(repeat && entry.key == Reserved::Repeat.key()) {
                end = end.saturating_add(entry.len.into());
                self.ends.push(end);
                continue;
            }
            let (turns, count) = ((entry.va >> 32) as u32, entry.va as u16);
            end = end.saturating_add(u64::from(entry.len) * u64::from(turns));
            let head = self.ends.len();
            let last = (head + 1 + usize::from(count)).min(self.entries.len());
            self.ends.resize(last, end);
            self.turn_ends.reserve_exact(self.entries.capacity() - self.turn_ends.len());
            self.turn_ends.resize(head + 1, 0);
            let mut turn_end = 0;
            for entry in &self.entries[head + 1..last] {
                // At most 2^16 entries of less than 2^16 bytes.
                turn_end += entry.len & 0xffff;
                self.turn_ends.push(turn_end);
            }
        }
    }

    /// Where the byte `at` of the key is; `None` where the list says nothing.
    pub fn find(&self, at: u64) -> Option<Found> {
        let index = self.ends.partition_point(|end| *end <= at);
        let (entry, end) = (self.entries.get(index)?, *self.ends.get(index)?);
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end);
        let within = at - start;
        if self.turn_ends.len() <= index || entry.key != Reserved::Repeat.key() {
            let va = entry.va.checked_add(within);
            return Some(Found { key: entry.key, va, room: end - at });
        }
        // It ends after its start, so that a turn has bytes.
        let (turn, within) = (within / u64::from(entry.len), within % u64::from(entry.len));
        let count = usize::from(entry.va as u16);
        let first = index + 1;
        let turn_ends = self.turn_ends.get(first..(first + count).min(self.turn_ends.len()))?;
        let number = turn_ends.partition_point(|end| u64::from(*end) <= within);
        let stop = u64::from(*turn_ends.get(number)?).min(entry.len.into());
        let start = number.checked_sub(1).and_then(|before| turn_ends.get(before)).map_or(0, |end| u64::from(*end));
        let part = self.entries.get(first + number)?;
        // A turn is below 2^32 and a stride below 2^16.
        let va = part.va.checked_add(turn * u64::from(part.len >> 16) + (within - start));
        Some(Found { key: part.key, va, room: stop - within })
    }

    /// Entries of the list.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The translations of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translations {
    /// No list: PA, and lists that were never loaded.
    None,
    /// Pages with their rights in the low bits.
    Mtt(Table<u64>),
    /// Pieces of any length.
    Klm(KlmList),
    /// Pieces of equal length.
    Ksm(Table<Ksm>),
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
    /// Addresses as the device's data-direct function has them. There is no such function, so they lead nowhere.
    DataDirect,
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

/// Reads the page entries of CREATE_MKEY. Without `access` the low bits mean nothing and every page may be read and
/// written. Entries without any right are not present and may hold any address.
pub fn parse_mtt(bytes: &[u8], page_shift: u32, access: bool) -> Result<Vec<u64>, Misaligned> {
    let offset_mask = if page_shift >= 64 { u64::MAX } else { (1u64 << page_shift) - 1 };
    bytes
        .chunks_exact(8)
        .map(|entry| {
            let raw = u64::read(entry);
            let rights = if access { raw & (MTT_READ | MTT_WRITE) } else { MTT_READ | MTT_WRITE };
            let address = raw & !MTT_FLAGS;
            if rights != 0 && address & offset_mask != 0 {
                return Err(Misaligned { address });
            }
            Ok(address | rights)
        })
        .collect()
}

impl Translations {
    /// Reads the list of CREATE_MKEY for a key in `mode`.
    pub fn parse(
        mode: Mode,
        bytes: &[u8],
        page_shift: u32,
        access: bool,
        repeat: bool,
    ) -> Result<Translations, Misaligned> {
        if mode == Mode::Mtt && !bytes.is_empty() {
            return Ok(Translations::Mtt(parse_mtt(bytes, page_shift, access)?.into()));
        }
        let mut list = Translations::None;
        list.load(mode, 0, bytes.len() as u64 / OCTWORD as u64, bytes, repeat);
        Ok(list)
    }

    /// Overwrites the list of a key in `mode` from the octword `at` on; what is beyond `room` octwords is dropped. A
    /// list that is not the key's own stays.
    pub fn load(&mut self, mode: Mode, at: u64, room: u64, bytes: &[u8], repeat: bool) {
        if bytes.is_empty() {
            return;
        }
        if matches!(self, Translations::None) {
            *self = match mode {
                Mode::Mtt => Translations::Mtt(Table::default()),
                Mode::Klm => Translations::Klm(KlmList::default()),
                Mode::Ksm => Translations::Ksm(Table::default()),
                _ => return,
            };
        }
        let entries = |octwords: u64| usize::try_from(octwords * mode.entries_per_octword()).unwrap_or(usize::MAX);
        let (at, room) = (entries(at), entries(room));
        match self {
            Translations::Mtt(pages) => pages.load(at, room, bytes),
            Translations::Klm(list) => list.load(at, room, bytes, repeat),
            Translations::Ksm(list) => list.load(at, room, bytes),
            Translations::None
            | Translations::Umem { .. }
            | Translations::DeviceMemory { .. }
            | Translations::DataDirect => {}
        }
    }

    /// Bytes that a key in `mode` is charged for one octword of room: what this implementation takes for it at most.
    pub fn bytes_per_octword(mode: Mode) -> u64 {
        match mode {
            Mode::Klm => (size_of::<Klm>() + size_of::<u64>() + size_of::<u32>()) as u64,
            _ => OCTWORD as u64,
        }
    }

    /// The octword `index` of the list as a query returns it; 0 beyond its end.
    pub fn octword(&self, index: usize, access: bool) -> [u8; OCTWORD] {
        let mut out = [0; OCTWORD];
        match self {
            Translations::Mtt(pages) => {
                let mask = if access { u64::MAX } else { !(MTT_READ | MTT_WRITE) };
                for (half, slot) in out.chunks_exact_mut(8).enumerate() {
                    let page = pages.get(2 * index + half).unwrap_or_default();
                    slot.copy_from_slice(&(page & mask).to_be_bytes());
                }
            }
            Translations::Klm(list) => {
                let klm = list.entries.get(index).copied().unwrap_or_default();
                out[..4].copy_from_slice(&klm.len.to_be_bytes());
                out[4..8].copy_from_slice(&klm.key.to_be_bytes());
                out[8..].copy_from_slice(&klm.va.to_be_bytes());
            }
            Translations::Ksm(list) => {
                let ksm = list.get(index).unwrap_or_default();
                out[4..8].copy_from_slice(&ksm.key.to_be_bytes());
                out[8..].copy_from_slice(&ksm.va.to_be_bytes());
            }
            Translations::None
            | Translations::Umem { .. }
            | Translations::DeviceMemory { .. }
            | Translations::DataDirect => {}
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

    fn klm(list: &mut KlmList, at: usize, room: usize, entries: &[(u32, u32, u64)]) {
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|(len, key, va)| [&len.to_be_bytes()[..], &key.to_be_bytes(), &va.to_be_bytes()].concat())
            .collect();
        list.load(at, room, &bytes, true);
    }

    fn found(key: u32, va: u64, room: u64) -> Option<Found> {
        Some(Found { key, va: Some(va), room })
    }

    #[test]
    fn a_repeat_block_gives_its_entries_in_turn_each_at_its_own_stride() {
        let mut list = KlmList::default();
        // Two bytes before; three turns of 8 bytes every 10 and 4 bytes every 4; two bytes behind.
        let (first, second) = (10 << 16 | 8, 4 << 16 | 4);
        klm(
            &mut list,
            0,
            8,
            &[(2, 0x700, 0x10), (12, 0x400, 3 << 32 | 2), (first, 0x800, 0x100), (second, 0x900, 0x200), (2, 0x700, 0)],
        );
        assert_eq!(list.find(1), found(0x700, 0x11, 1));
        assert_eq!(list.find(2), found(0x800, 0x100, 8));
        assert_eq!(list.find(9), found(0x800, 0x107, 1));
        assert_eq!(list.find(10), found(0x900, 0x200, 4));
        assert_eq!(list.find(14), found(0x800, 0x10a, 8));
        assert_eq!(list.find(2 + 24 + 11), found(0x900, 0x20b, 1));
        assert_eq!(list.find(2 + 36), found(0x700, 0, 2));
        assert_eq!(list.find(2 + 38), None);
        // Without its head the block's entries are entries like others.
        klm(&mut list, 1, 8, &[(0, 0, 0)]);
        assert_eq!(list.find(2), found(0x800, 0x100, first.into()));
    }

    #[test]
    fn a_turn_is_as_long_as_its_head_says() {
        let mut list = KlmList::default();
        klm(&mut list, 0, 4, &[(10, 0x400, 2 << 32 | 1), (8 << 16 | 8, 0x800, 0)]);
        assert_eq!(list.find(7), found(0x800, 7, 1));
        assert_eq!((list.find(8), list.find(9)), (None, None), "no entry has these bytes");
        assert_eq!(list.find(10), found(0x800, 8, 8));
        klm(&mut list, 0, 4, &[(6, 0x400, 2 << 32 | 1)]);
        assert_eq!((list.find(0), list.find(6)), (found(0x800, 0, 6), found(0x800, 8, 6)), "the rest is out of reach");
        // No entries, more entries than there are, no turns, an end beyond 64 bits.
        klm(&mut list, 0, 4, &[(6, 0x400, 2 << 32)]);
        assert_eq!(list.find(0), None);
        klm(&mut list, 0, 4, &[(6, 0x400, 2 << 32 | 0xffff)]);
        assert_eq!((list.find(0), list.find(6)), (found(0x800, 0, 6), found(0x800, 8, 6)));
        klm(&mut list, 0, 4, &[(6, 0x400, 1), (5, 0x800, 0), (1, 0x900, 0)]);
        assert_eq!(list.find(0), found(0x900, 0, 1));
        klm(&mut list, 0, 4, &[(u32::MAX, 0x400, (u64::MAX << 32) | 1), (u32::MAX, 0x800, u64::MAX - 9)]);
        assert_eq!(list.find(9), found(0x800, u64::MAX, 0xffff - 9));
        assert_eq!(list.find(10), Some(Found { key: 0x800, va: None, room: 0xffff - 10 }));
        assert_eq!(list.find(u64::MAX), None);
    }

    #[test]
    fn the_key_of_repeat_blocks_is_one_like_others_where_there_are_none() {
        let mut list = KlmList::default();
        list.load(0, 1, &words(&[0x10_0000_0400, 1 << 32 | 1]), false);
        assert_eq!(list.find(3), found(0x400, (1 << 32 | 1) + 3, 13));
    }

    #[test]
    fn any_part_of_a_list_is_overwritten_and_nothing_beyond_its_room() {
        let mut pages = Table::<u64>::default();
        let room = 2 * PIECE + 3;
        pages.load(2 * PIECE + 1, room, &words(&[0x1003, 0x2003, 0x3003]));
        assert_eq!(pages.get(2 * PIECE), Some(0), "skipped in a piece that exists");
        assert_eq!([1, 2, 3].map(|i| pages.get(2 * PIECE + i)), [Some(0x1003), Some(0x2003), None]);
        assert_eq!((pages.get(0), pages.get(PIECE)), (None, None), "pieces that were skipped take no memory");
        pages.load(PIECE - 1, room, &words(&[0x4003, 0x5003]));
        pages.load(PIECE - 2, room, &words(&[0x6ffe]));
        assert_eq!([0, 1, 2, 3].map(|i| pages.get(PIECE - 2 + i)), [Some(0x6002), Some(0x4003), Some(0x5003), None]);
        pages.load(room, room, &words(&[1]));
        pages.load(usize::MAX, room, &words(&[1]));
        assert_eq!(pages.get(room), None);
        assert!(pages.pieces.iter().map(Vec::capacity).sum::<usize>() <= room);
        let long: Vec<u64> = (0..room as u64).map(|page| page << 12 | 3).collect();
        pages.load(0, room, &words(&long));
        assert_eq!(pages, Table::from(long));
    }

    #[test]
    fn a_list_takes_no_more_memory_than_its_key_is_charged_for() {
        for (mode, blocks) in [(Mode::Mtt, false), (Mode::Ksm, false), (Mode::Klm, false), (Mode::Klm, true)] {
            let mut list = Translations::None;
            let mut octwords = vec![0; 64 * OCTWORD];
            if blocks {
                octwords[4..8].copy_from_slice(&0x400u32.to_be_bytes());
                octwords[14..16].copy_from_slice(&9u16.to_be_bytes());
            }
            for at in [40, 0, 90] {
                list.load(mode, at, 100, &octwords, true);
            }
            let bytes = match &list {
                Translations::Mtt(pages) => pages.pieces.iter().map(|p| p.capacity() * 8).sum(),
                Translations::Ksm(list) => list.pieces.iter().map(|p| p.capacity() * 16).sum(),
                Translations::Klm(list) => {
                    assert_eq!(list.turn_ends.is_empty(), !blocks);
                    16 * list.entries.capacity() + 8 * list.ends.capacity() + 4 * list.turn_ends.capacity()
                }
                _ => 0,
            };
            assert!((1600..=100 * Translations::bytes_per_octword(mode) as usize).contains(&bytes), "{mode}: {bytes}");
        }
    }

    #[test]
    fn lists_read_back_as_they_were_written() {
        let klm = words(&[0x10_0000_0300, 0x1234, 0, 0, 0xffff_ffff_0000_0700, 0x9]);
        let list = Translations::parse(Mode::Klm, &klm, 0, false, true).expect("any list");
        let Translations::Klm(entries) = &list else { panic!("{list:?}") };
        assert_eq!(
            entries.entries,
            [
                Klm { len: 0x10, key: 0x300, va: 0x1234 },
                Klm { len: 0, key: 0, va: 0 },
                Klm { len: 0xffff_ffff, key: 0x700, va: 9 },
            ]
        );
        assert_eq!(entries.ends, [0x10, 0x10, 0x1_0000_000f]);
        for index in 0..3 {
            assert_eq!(list.octword(index, false), klm[16 * index..16 * index + 16]);
        }
        assert_eq!(list.octword(3, false), [0; 16]);
        let mtt = words(&[0x1000, 0x2000]);
        let list = Translations::parse(Mode::Mtt, &mtt, 12, false, true).expect("aligned");
        assert_eq!(list.octword(0, false), mtt[..]);
        assert_eq!(list.octword(0, true), words(&[0x1003, 0x2003])[..]);
        let ksm = words(&[0x300, 0x40]);
        assert_eq!(Translations::parse(Mode::Ksm, &ksm, 12, false, true).expect("any list").octword(0, false), ksm[..]);
    }
}
