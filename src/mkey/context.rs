//! The memory key context, read completely (PRM "Memory Key Context"; kernel `mlx5_ifc_mkc_bits`).
//!
//! [`KeyContext::read`] takes any 64 bytes; [`KeyContext::check`] names the first field that asks for something this
//! device does not have. Every declared field is used by the model or refused there; bits that no field declares must
//! be 0. Two fields mean nothing on their own and are kept as written: the steering tag and processing hint of a key
//! without `pcie_tph_en`.

use bitflags::bitflags;

use crate::cmdif::error::{Syndrome, syndromes};
use crate::config::KeyKind;
use crate::dma::KeyOrder;
use crate::prm::bits;
use crate::prm::layout::Kind;
use crate::prm::mkey::Mkc;
use crate::prm::values::AccessMode;

/// Bytes of the context.
pub const SIZE: usize = 0x40;

/// `qpn` of a key that any queue may use.
pub const ANY_QPN: u32 = 0xff_ffff;

/// Smallest page of an MTT key, log2.
pub const MIN_PAGE_SHIFT: u32 = 12;
/// Largest page or entity, log2.
pub const MAX_PAGE_SHIFT: u32 = 62;

syndromes! {
    /// Checks of a memory key context.
    pub mod syn = 0x0020_0000;
    1 RESERVED_BIT "a bit of the key context that has no meaning is set";
    2 UNKNOWN_MODE "mkc.access_mode is not a known mode";
    3 SW_ICM "keys on steering memory (SW_ICM) are not supported";
    4 CROSSING "keys of another function (CROSSING) are not supported";
    5 CROSSING_TARGET "mkc.crossing_target_vhca_id belongs to CROSSING keys only";
    6 TRANSLATION_MODE "mkc.ma_translation_mode: address translation services are not advertised";
    7 INTEGRITY "mkc.bsf_en, bsf_octword_size and expected_sigerr_count: integrity offload is not advertised";
    8 SYNC_UMR "mkc.sync_umr is not supported";
    9 TPH "mkc.pcie_tph_en: processing hints are not advertised";
    10 RANGE "mkc.start_addr plus len goes beyond 64 bits";
    11 PAGE_SIZE "mkc.log_page_size is below 4 KiB or beyond 62 bits";
    12 FIXED_SIZE "KSM keys need the capability fixed_buffer_size";
    13 LENGTH64 "mkc.length64 makes no sense on a MEMIC key";
    14 TOO_LONG "mkc.len is beyond log_max_mrw_sz";
    15 KLM_LIST "the list is longer than log_max_klm_list_size allows";
    16 CAPACITY "mkc.translations_octword_size cannot hold the translations of mkc.len";
    17 NO_LIST_IN_MODE "mkc.translations_octword_size must be 0 in this access mode";
}

/// `access_mode`: how an address of the key becomes an address of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Addresses are DMA addresses.
    Pa,
    /// A list of equal pages.
    Mtt,
    /// A list of pieces of other keys, each with its length.
    Klm,
    /// A list of equal pieces of other keys.
    Ksm,
    /// Steering memory.
    SwIcm,
    /// Device memory.
    Memic,
    /// Another function's key.
    Crossing,
    /// No known mode.
    Other(u8),
}

impl Mode {
    fn read(value: u8) -> Mode {
        match AccessMode(value) {
            AccessMode::PA => Mode::Pa,
            AccessMode::MTT => Mode::Mtt,
            AccessMode::KLMS => Mode::Klm,
            AccessMode::KSM => Mode::Ksm,
            AccessMode::SW_ICM => Mode::SwIcm,
            AccessMode::MEMIC => Mode::Memic,
            AccessMode::CROSSING => Mode::Crossing,
            AccessMode(other) => Mode::Other(other),
        }
    }

    /// The PRM's number.
    pub fn value(self) -> u8 {
        match self {
            Mode::Pa => AccessMode::PA.0,
            Mode::Mtt => AccessMode::MTT.0,
            Mode::Klm => AccessMode::KLMS.0,
            Mode::Ksm => AccessMode::KSM.0,
            Mode::SwIcm => AccessMode::SW_ICM.0,
            Mode::Memic => AccessMode::MEMIC.0,
            Mode::Crossing => AccessMode::CROSSING.0,
            Mode::Other(value) => value,
        }
    }

    /// Whether the key leads to other keys.
    pub fn is_indirect(self) -> bool {
        matches!(self, Mode::Klm | Mode::Ksm)
    }

    /// Entries of the translation list in one octword (16 bytes); 0 where the mode has no list.
    pub fn entries_per_octword(self) -> u64 {
        match self {
            Mode::Mtt => 2,
            Mode::Klm | Mode::Ksm => 1,
            _ => 0,
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        AccessMode(self.value()).fmt(f)
    }
}

bitflags! {
    /// What a key allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Rights: u8 {
        /// `lr`: gather for sending.
        const LOCAL_READ = 1 << 0;
        /// `lw`: scatter of received and returned data.
        const LOCAL_WRITE = 1 << 1;
        /// `rr`: RDMA READ by a peer.
        const REMOTE_READ = 1 << 2;
        /// `rw`: RDMA WRITE by a peer.
        const REMOTE_WRITE = 1 << 3;
        /// `a`: atomic operations by a peer.
        const ATOMIC = 1 << 4;
    }
}

impl Rights {
    /// The PRM's short names, as in `lr lw`.
    pub fn names(self) -> String {
        let names = [
            (Rights::LOCAL_READ, "lr"),
            (Rights::LOCAL_WRITE, "lw"),
            (Rights::REMOTE_READ, "rr"),
            (Rights::REMOTE_WRITE, "rw"),
            (Rights::ATOMIC, "a"),
        ];
        let list: Vec<&str> = names.iter().filter(|(right, _)| self.contains(*right)).map(|(_, name)| *name).collect();
        list.join(" ")
    }
}

/// A field of the context that made the device refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The field's PRM name.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// Which check.
    pub syndrome: Syndrome,
}

/// A memory key context.
#[derive(Clone, Copy, Debug)]
pub struct KeyContext {
    raw: Mkc<[u8; SIZE]>,
    /// `free`: not usable until a UMR enables it.
    pub free: bool,
    /// `access_mode`.
    pub mode: Mode,
    /// `relaxed_ordering_write`.
    pub relaxed_write: bool,
    /// `relaxed_ordering_read`.
    pub relaxed_read: bool,
    /// `order_read_after_write` as written.
    pub order_read_after_write: u8,
    /// `small_fence_on_rdma_read_response`.
    pub small_fence: bool,
    /// `umr_en`: UMR may change the key.
    pub umr_en: bool,
    /// `lr`, `lw`, `rr`, `rw`, `a`.
    pub rights: Rights,
    /// `qpn`: the only queue that may use the key, or [`ANY_QPN`].
    pub qpn: u32,
    /// `mkey_7_0`: the low byte of the key.
    pub variant: u8,
    /// `length64`: the key covers all 64 bits.
    pub length64: bool,
    /// `en_rinval`: a peer may invalidate the key.
    pub en_rinval: bool,
    /// `pd`.
    pub pd: u32,
    /// `start_addr`.
    pub start_addr: u64,
    /// `len`; means nothing with `length64`.
    pub len: u64,
    /// `translations_octword_size`: room for translations in units of 16 bytes.
    pub octwords: u32,
    /// `log_page_size`.
    pub log_page_size: u32,
}

impl KeyContext {
    /// Reads a context without judging it.
    pub fn read<B: AsRef<[u8]>>(mkc: &Mkc<B>) -> KeyContext {
        let mut bytes = [0; SIZE];
        for (to, from) in bytes.iter_mut().zip(mkc.as_bytes()) {
            *to = *from;
        }
        let raw = Mkc::wrap(bytes);
        let rights = [
            (raw.lr(), Rights::LOCAL_READ),
            (raw.lw(), Rights::LOCAL_WRITE),
            (raw.rr(), Rights::REMOTE_READ),
            (raw.rw(), Rights::REMOTE_WRITE),
            (raw.a(), Rights::ATOMIC),
        ];
        KeyContext {
            free: raw.free() != 0,
            mode: Mode::read((raw.access_mode_4_2() << 2 | raw.access_mode_1_0()) as u8),
            relaxed_write: raw.relaxed_ordering_write() != 0,
            relaxed_read: raw.relaxed_ordering_read() != 0,
            order_read_after_write: raw.order_read_after_write() as u8,
            small_fence: raw.small_fence_on_rdma_read_response() != 0,
            umr_en: raw.umr_en() != 0,
            rights: rights.iter().filter(|(bit, _)| *bit != 0).map(|(_, right)| *right).collect(),
            qpn: raw.qpn(),
            variant: raw.mkey_7_0() as u8,
            length64: raw.length64() != 0,
            en_rinval: raw.en_rinval() != 0,
            pd: raw.pd(),
            start_addr: raw.start_addr(),
            len: raw.len(),
            octwords: raw.translations_octword_size(),
            log_page_size: raw.log_page_size(),
            raw,
        }
    }

    /// The context as a query command returns it: what was written, with the live values.
    pub fn to_mkc(&self) -> Mkc<[u8; SIZE]> {
        let mut mkc = self.raw;
        let right = |right| u32::from(self.rights.contains(right));
        mkc.set_free(self.free.into());
        mkc.set_access_mode_4_2(u32::from(self.mode.value() >> 2));
        mkc.set_access_mode_1_0(u32::from(self.mode.value() & 3));
        mkc.set_relaxed_ordering_write(self.relaxed_write.into());
        mkc.set_relaxed_ordering_read(self.relaxed_read.into());
        mkc.set_order_read_after_write(self.order_read_after_write.into());
        mkc.set_small_fence_on_rdma_read_response(self.small_fence.into());
        mkc.set_umr_en(self.umr_en.into());
        mkc.set_lr(right(Rights::LOCAL_READ));
        mkc.set_lw(right(Rights::LOCAL_WRITE));
        mkc.set_rr(right(Rights::REMOTE_READ));
        mkc.set_rw(right(Rights::REMOTE_WRITE));
        mkc.set_a(right(Rights::ATOMIC));
        mkc.set_qpn(self.qpn);
        mkc.set_mkey_7_0(self.variant.into());
        mkc.set_length64(self.length64.into());
        mkc.set_en_rinval(self.en_rinval.into());
        mkc.set_pd(self.pd);
        mkc.set_start_addr(self.start_addr);
        mkc.set_len(self.len);
        mkc.set_translations_octword_size(self.octwords);
        mkc.set_log_page_size(self.log_page_size);
        mkc
    }

    /// The kind that the ordering policy tells apart; the first that applies.
    pub fn kind(&self) -> KeyKind {
        match self.mode {
            // With umr_en it is a region whose end a work request left open (kernel `umr.c:mlx5r_umr_final_update_xlt`).
            Mode::Mtt if self.length64 && !self.umr_en => KeyKind::Null,
            Mode::Klm if self.free && self.umr_en && self.rights == Rights::LOCAL_READ => KeyKind::Window,
            Mode::Memic => KeyKind::Memic,
            Mode::SwIcm => KeyKind::SwIcm,
            Mode::Crossing => KeyKind::Crossing,
            _ if self.free => KeyKind::Free,
            Mode::Klm | Mode::Ksm => KeyKind::Indirect,
            Mode::Mtt => KeyKind::Mtt,
            Mode::Pa | Mode::Other(_) => KeyKind::Pa,
        }
    }

    /// The ordering attributes that accesses through the key carry.
    pub fn order(&self) -> KeyOrder {
        KeyOrder {
            relaxed_write: self.relaxed_write,
            relaxed_read: self.relaxed_read,
            relaxed_read_after_write: self.order_read_after_write != 0,
        }
    }

    /// Further flags that are set, for reports.
    pub fn flags(&self) -> String {
        let names = [
            (self.free, "free"),
            (self.umr_en, "umr_en"),
            (self.length64, "length64"),
            (self.en_rinval, "en_rinval"),
            (self.relaxed_write, "relaxed_ordering_write"),
            (self.relaxed_read, "relaxed_ordering_read"),
            (self.small_fence, "small_fence_on_rdma_read_response"),
        ];
        let list: Vec<&str> = names.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        list.join(" ")
    }

    /// How many translation entries the key has room for.
    pub fn room(&self) -> u64 {
        u64::from(self.octwords) * self.mode.entries_per_octword()
    }

    /// How many entries of `1 << log_page_size` bytes the range of the key touches; `None` where that is not a number.
    pub fn entries_needed(&self) -> Option<u64> {
        let shift = self.log_page_size;
        if shift > MAX_PAGE_SHIFT {
            return None;
        }
        if self.length64 {
            return Some(1 << (64 - shift).min(63));
        }
        let Some(last) = self.len.checked_sub(1) else { return Some(0) };
        let last = self.start_addr.checked_add(last)?;
        (last >> shift).checked_sub(self.start_addr >> shift)?.checked_add(1)
    }

    /// Names the first field that asks for what this device does not have, whatever its capabilities.
    pub fn check(&self) -> Result<(), Defect> {
        self.check_written()?;
        self.check_live()?;
        if self.mode.entries_per_octword() == 0 && self.octwords != 0 {
            let value = self.octwords.into();
            return Err(Defect { field: "translations_octword_size", value, syndrome: syn::NO_LIST_IN_MODE });
        }
        Ok(())
    }

    /// The part of [`KeyContext::check`] that cannot change during the life of a key.
    fn check_written(&self) -> Result<(), Defect> {
        let raw = &self.raw;
        if let Some(bit) = reserved_bit(raw.as_bytes()) {
            return Err(Defect { field: "reserved", value: u64::from(bit), syndrome: syn::RESERVED_BIT });
        }
        let mode = |syndrome| Defect { field: "access_mode", value: self.mode.value().into(), syndrome };
        match self.mode {
            Mode::Other(_) => return Err(mode(syn::UNKNOWN_MODE)),
            Mode::SwIcm => return Err(mode(syn::SW_ICM)),
            Mode::Crossing => return Err(mode(syn::CROSSING)),
            Mode::Pa | Mode::Mtt | Mode::Klm | Mode::Ksm | Mode::Memic => {}
        }
        let absent = [
            ("crossing_target_vhca_id", raw.crossing_target_vhca_id(), syn::CROSSING_TARGET),
            ("ma_translation_mode", raw.ma_translation_mode(), syn::TRANSLATION_MODE),
            ("bsf_en", raw.bsf_en(), syn::INTEGRITY),
            ("bsf_octword_size", raw.bsf_octword_size(), syn::INTEGRITY),
            ("expected_sigerr_count", raw.expected_sigerr_count(), syn::INTEGRITY),
            ("sync_umr", raw.sync_umr(), syn::SYNC_UMR),
            ("pcie_tph_en", raw.pcie_tph_en(), syn::TPH),
        ];
        if let Some((field, value, syndrome)) = absent.into_iter().find(|(_, value, _)| *value != 0) {
            return Err(Defect { field, value: value.into(), syndrome });
        }
        Ok(())
    }

    /// The part of [`KeyContext::check`] that a UMR can change.
    pub fn check_live(&self) -> Result<(), Defect> {
        if self.mode == Mode::Memic && self.length64 {
            return Err(Defect { field: "length64", value: 1, syndrome: syn::LENGTH64 });
        }
        if !self.length64 && self.len > 0 && self.start_addr.checked_add(self.len - 1).is_none() {
            return Err(Defect { field: "len", value: self.len, syndrome: syn::RANGE });
        }
        Ok(())
    }
}

/// The first bit that is set and that no field of the layout declares.
fn reserved_bit(bytes: &[u8]) -> Option<u32> {
    let mut rest = bytes.to_vec();
    for field in Mkc::LAYOUT.fields {
        if let Kind::Scalar { width } = field.kind {
            bits::set(&mut rest, field.offset, width, 0);
        }
    }
    let byte = rest.iter().position(|byte| *byte != 0)?;
    Some(byte as u32 * 8 + rest[byte].leading_zeros())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_context_reads_back_as_it_was_written(bytes in prop::array::uniform32(any::<[u8; 2]>())) {
            let bytes = bytes.concat();
            let mkc = Mkc::new(bytes.clone()).expect("64 bytes");
            prop_assert_eq!(KeyContext::read(&mkc).to_mkc().into_inner().to_vec(), bytes);
        }

        #[test]
        fn the_first_reserved_bit_is_found(bit in 0u32..512) {
            let mut bytes = vec![0; SIZE];
            bits::set(&mut bytes, bit, 1, 1);
            let declared = Mkc::LAYOUT.fields.iter().any(|field| match field.kind {
                Kind::Scalar { width } => (field.offset..field.offset + width).contains(&bit),
                _ => false,
            });
            prop_assert_eq!(reserved_bit(&bytes), (!declared).then_some(bit));
        }
    }

    fn context(edit: impl FnOnce(&mut Mkc)) -> KeyContext {
        let mut mkc = Mkc::zeroed();
        mkc.set_lr(1);
        edit(&mut mkc);
        KeyContext::read(&mkc)
    }

    #[test]
    fn a_key_is_of_the_first_kind_that_applies() {
        let with = |mode: u32, free, length64, lw, umr_en| {
            context(|m| {
                m.set_access_mode_4_2(mode >> 2);
                m.set_access_mode_1_0(mode & 3);
                m.set_free(free);
                m.set_umr_en(umr_en);
                m.set_length64(length64);
                m.set_lw(lw);
            })
            .kind()
        };
        let kind = |mode, free, length64, lw| with(mode, free, length64, lw, 1);
        let cases = [
            (with(1, 0, 1, 1, 0), KeyKind::Null),
            (with(1, 1, 1, 1, 0), KeyKind::Null),
            (kind(1, 0, 1, 1), KeyKind::Mtt),
            (kind(1, 1, 1, 1), KeyKind::Free),
            (kind(2, 1, 0, 0), KeyKind::Window),
            (kind(2, 1, 0, 1), KeyKind::Free),
            (kind(2, 0, 0, 0), KeyKind::Indirect),
            (kind(3, 1, 0, 0), KeyKind::Free),
            (kind(3, 0, 0, 0), KeyKind::Indirect),
            (kind(4, 1, 0, 0), KeyKind::SwIcm),
            (kind(5, 1, 0, 0), KeyKind::Memic),
            (kind(6, 1, 0, 0), KeyKind::Crossing),
            (kind(1, 1, 0, 1), KeyKind::Free),
            (kind(1, 0, 0, 1), KeyKind::Mtt),
            (kind(0, 1, 1, 1), KeyKind::Free),
            (kind(0, 0, 1, 1), KeyKind::Pa),
        ];
        for (i, (kind, expected)) in cases.into_iter().enumerate() {
            assert_eq!(kind, expected, "case {i}");
        }
    }

    #[test]
    fn a_range_needs_an_entry_for_each_page_that_it_touches() {
        let needed = |start, len, shift| {
            context(|m| {
                m.set_start_addr(start);
                m.set_len(len);
                m.set_log_page_size(shift);
            })
            .entries_needed()
        };
        assert_eq!(needed(0x1800, 0, 12), Some(0));
        assert_eq!(needed(0x1800, 0x800, 12), Some(1));
        assert_eq!(needed(0x1800, 0x801, 12), Some(2));
        assert_eq!(needed(u64::MAX, 1, 12), Some(1));
        assert_eq!(needed(u64::MAX, 2, 12), None);
        assert_eq!(needed(0, u64::MAX, 62), Some(4));
        assert_eq!(needed(0, 1, 63), None);
        let all = context(|m| {
            m.set_length64(1);
            m.set_log_page_size(61);
        });
        assert_eq!(all.entries_needed(), Some(8));
    }
}
