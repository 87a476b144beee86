//! Judges what a user-mode memory registration (UMR) would make of a key (PRM "UMR WQE", `mkey_mask`; kernel
//! `include/linux/mlx5/device.h`, `mlx5_ib umr.c`).
//!
//! [`judge`] is the whole decision about the context; flags, lists, who may change which key, and completion are the
//! work queue's business ([`crate::device::rdma::umr`]).
//! Fields of the segment that the mask leaves out are ignored: the kernel fills the ordering bits of every segment,
//! masked or not.

use super::MemoryKey;
use super::context::{Defect, KeyContext, Rights};
use super::limits::Limits;
use super::list::Translations;
use super::policy::{self, Grant, Origin, Rules, Violation};
use crate::cmdif::error::{Syndrome, syndromes};
use crate::config::KeyKind;
use crate::device::capabilities::{Capabilities, GENERAL_2};
use crate::prm::values::MkeyMask;

syndromes! {
    /// Checks of a UMR's key context.
    pub mod syn = 0x0025_0000;
    1 NOT_ENABLED "the UMR names a key without umr_en";
    2 UNKNOWN_MASK "the UMR's mkey_mask has a bit without meaning";
    3 INTEGRITY "the UMR's mkey_mask names integrity fields, which are not advertised";
    4 ENTITY_SIZE "the UMR changes log_page_size and umr_modify_entity_size_disabled is set";
    5 ATOMIC "the UMR changes the atomic right and umr_modify_atomic_disabled is set";
    6 ENTITY_SIZE_5 "the UMR changes bit 5 of log_page_size and umr_log_entity_size_5 is not advertised";
    7 FIXED_RANGE "the UMR changes the range or the page size of a key on user memory or device memory";
}

/// What the capabilities forbid a UMR to change, apart from ordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UmrCaps {
    /// `umr_modify_entity_size_disabled`.
    pub entity_size_disabled: bool,
    /// `umr_modify_atomic_disabled`.
    pub atomic_disabled: bool,
    /// `umr_log_entity_size_5`.
    pub entity_size_5: bool,
    /// `umr_indirect_mkey_disabled`: lists of other keys stay as CREATE_MKEY made them.
    pub indirect_disabled: bool,
    /// `umr_extended_translation_offset`: lists of more than 2^16 octwords.
    pub extended_offset: bool,
}

impl UmrCaps {
    /// The capabilities in force.
    pub fn new(caps: &Capabilities) -> UmrCaps {
        let cap = |field| caps.general(field) != 0;
        UmrCaps {
            entity_size_disabled: cap("umr_modify_entity_size_disabled"),
            atomic_disabled: cap("umr_modify_atomic_disabled"),
            entity_size_5: caps.get(GENERAL_2, "umr_log_entity_size_5") != 0,
            indirect_disabled: cap("umr_indirect_mkey_disabled"),
            extended_offset: cap("umr_extended_translation_offset"),
        }
    }
}

/// What a UMR would make of a key.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The context afterwards.
    pub context: KeyContext,
    /// The kind that the key has then, for the policy: a window stays one when it is bound.
    pub kind: KeyKind,
    /// Whether the key becomes usable by it.
    pub origin: Origin,
}

/// What a UMR with `mask` and the context segment `wanted` makes of `key`, if it may.
pub fn change(key: &MemoryKey, mask: u64, wanted: &KeyContext) -> Change {
    let context = merge(&key.context, MkeyMask::from_bits_truncate(mask), wanted);
    let kind = if key.kind == KeyKind::Window { KeyKind::Window } else { context.kind() };
    let origin = if key.context.free && !context.free { Origin::UmrEnable } else { Origin::UmrModify };
    Change { context, kind, origin }
}

/// Judges a change of `key` by a UMR with `mask`.
pub fn judge(
    key: &MemoryKey,
    mask: u64,
    change: &Change,
    rules: &Rules<'_>,
    caps: &UmrCaps,
    limits: &Limits,
) -> Result<Grant, Violation> {
    let refuse = |field, value, syndrome: Syndrome| {
        Err(Violation { defect: Defect { field, value, syndrome }, ordering: false })
    };
    if !key.context.umr_en {
        return refuse("umr_en", 0, syn::NOT_ENABLED);
    }
    let Some(fields) = MkeyMask::from_bits(mask) else {
        return refuse("mkey_mask", mask, syn::UNKNOWN_MASK);
    };
    let page_size = MkeyMask::PAGE_SIZE | MkeyMask::PAGE_SIZE_5;
    let range = page_size | MkeyMask::LEN | MkeyMask::START_ADDR;
    let elsewhere = matches!(key.list, Translations::Umem { .. } | Translations::DeviceMemory { .. });
    let forbidden = [
        (MkeyMask::EN_SIGERR | MkeyMask::BSF_EN, true, syn::INTEGRITY),
        (page_size, caps.entity_size_disabled, syn::ENTITY_SIZE),
        (MkeyMask::PAGE_SIZE_5, !caps.entity_size_5, syn::ENTITY_SIZE_5),
        (MkeyMask::A, caps.atomic_disabled, syn::ATOMIC),
        (MkeyMask::RELAXED_ORDERING_WRITE, !rules.caps.write_umr, policy::syn::UMR_WRITE_NOT_CAPABLE),
        (MkeyMask::RELAXED_ORDERING_READ, !rules.caps.read_umr, policy::syn::UMR_READ_NOT_CAPABLE),
        (range, elsewhere, syn::FIXED_RANGE),
    ];
    if let Some((.., syndrome)) = forbidden.iter().find(|(bits, forbids, _)| *forbids && fields.intersects(*bits)) {
        return refuse("mkey_mask", mask, *syndrome);
    }
    let other = |defect| Violation { defect, ordering: false };
    let context = &change.context;
    context.check_live().map_err(other)?;
    limits.check(context, matches!(key.list, Translations::Umem { .. })).map_err(other)?;
    policy::judge(context, change.kind, rules)
}

/// `current` with the fields of `mask` from `wanted`.
fn merge(current: &KeyContext, mask: MkeyMask, wanted: &KeyContext) -> KeyContext {
    const LOW_BITS: u32 = 0x1f;
    let mut merged = *current;
    let takes = |bit| mask.contains(bit);
    if takes(MkeyMask::LEN) {
        merged.len = wanted.len;
        merged.length64 = wanted.length64;
    }
    if takes(MkeyMask::PAGE_SIZE) {
        merged.log_page_size = merged.log_page_size & !LOW_BITS | wanted.log_page_size & LOW_BITS;
    }
    if takes(MkeyMask::PAGE_SIZE_5) {
        merged.log_page_size = merged.log_page_size & LOW_BITS | wanted.log_page_size & !LOW_BITS;
    }
    if takes(MkeyMask::START_ADDR) {
        merged.start_addr = wanted.start_addr;
    }
    if takes(MkeyMask::PD) {
        merged.pd = wanted.pd;
    }
    if takes(MkeyMask::EN_RINVAL) {
        merged.en_rinval = wanted.en_rinval;
    }
    if takes(MkeyMask::KEY) {
        merged.variant = wanted.variant;
    }
    if takes(MkeyMask::QPN) {
        merged.qpn = wanted.qpn;
    }
    let rights = [
        (MkeyMask::LR, Rights::LOCAL_READ),
        (MkeyMask::LW, Rights::LOCAL_WRITE),
        (MkeyMask::RR, Rights::REMOTE_READ),
        (MkeyMask::RW, Rights::REMOTE_WRITE),
        (MkeyMask::A, Rights::ATOMIC),
    ];
    for (_, right) in rights.into_iter().filter(|(bit, _)| takes(*bit)) {
        merged.rights.set(right, wanted.rights.contains(right));
    }
    if takes(MkeyMask::SMALL_FENCE) {
        merged.small_fence = wanted.small_fence;
    }
    if takes(MkeyMask::RELAXED_ORDERING_WRITE) {
        merged.relaxed_write = wanted.relaxed_write;
    }
    if takes(MkeyMask::FREE) {
        merged.free = wanted.free;
    }
    if takes(MkeyMask::RELAXED_ORDERING_READ) {
        merged.relaxed_read = wanted.relaxed_read;
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MkeyConfig, RawEncoding2, Strict};
    use crate::mkey::policy::OrderingCaps;
    use crate::prm::mkey::Mkc;

    const CAPS: OrderingCaps =
        OrderingCaps { write: true, read: true, write_umr: true, read_umr: true, read_after_write: true };
    /// What the kernel masks when it enables a pooled key (mlx5_ib umr.c).
    const ENABLE: MkeyMask = MkeyMask::LEN
        .union(MkeyMask::PAGE_SIZE)
        .union(MkeyMask::START_ADDR)
        .union(MkeyMask::PD)
        .union(MkeyMask::KEY)
        .union(MkeyMask::LR)
        .union(MkeyMask::LW)
        .union(MkeyMask::FREE);

    fn pooled(mode: u32, edit: impl FnOnce(&mut Mkc)) -> MemoryKey {
        let mut mkc = Mkc::zeroed();
        mkc.set_free(1);
        mkc.set_umr_en(1);
        mkc.set_lr(1);
        mkc.set_access_mode_1_0(mode);
        mkc.set_pd(1);
        mkc.set_qpn(0xff_ffff);
        mkc.set_log_page_size(12);
        edit(&mut mkc);
        let context = KeyContext::read(&mkc);
        let grant = Grant { relaxed: context.relaxed_write, withdrawn_encoding: false, undecided: true };
        MemoryKey::new(context.kind(), context, Translations::None, grant)
    }

    fn segment(edit: impl FnOnce(&mut Mkc)) -> KeyContext {
        let mut mkc = Mkc::zeroed();
        mkc.set_lr(1);
        mkc.set_lw(1);
        mkc.set_pd(7);
        mkc.set_start_addr(0x1000);
        mkc.set_len(0x2000);
        mkc.set_log_page_size(13);
        mkc.set_mkey_7_0(0x42);
        edit(&mut mkc);
        KeyContext::read(&mkc)
    }

    fn ask(
        key: &MemoryKey,
        mask: MkeyMask,
        wanted: &KeyContext,
        strict: Strict,
        caps: OrderingCaps,
    ) -> Result<(Change, Grant), (Origin, Syndrome)> {
        let config = MkeyConfig { strict, exempt: vec![], require_read: false, raw_encoding_2: RawEncoding2::Reject };
        let change = change(key, mask.bits(), wanted);
        let umr = UmrCaps { entity_size_5: true, ..UmrCaps::default() };
        judge(key, mask.bits(), &change, &Rules { config: &config, caps }, &umr, &Limits::default())
            .map(|grant| (change, grant))
            .map_err(|violation| (change.origin, violation.defect.syndrome))
    }

    #[test]
    fn only_masked_fields_change() {
        let key = pooled(1, |m| m.set_relaxed_ordering_write(1));
        let (change, grant) = ask(&key, ENABLE, &segment(|_| {}), Strict::Create, CAPS).expect("a relaxed key");
        let after = change.context;
        assert_eq!((change.origin, grant.relaxed), (Origin::UmrEnable, true));
        assert_eq!((after.free, after.pd, after.start_addr, after.len), (false, 7, 0x1000, 0x2000));
        assert_eq!((after.log_page_size, after.variant, after.qpn), (13, 0x42, 0xff_ffff));
        assert_eq!(after.rights, Rights::LOCAL_READ | Rights::LOCAL_WRITE);
        assert!(after.relaxed_write && after.umr_en, "not in the mask");
    }

    #[test]
    fn each_bit_of_the_mask_moves_its_field_and_no_other() {
        let key = pooled(1, |m| m.set_relaxed_ordering_read(0));
        let wanted = segment(|m| {
            m.set_free(0);
            m.set_rr(1);
            m.set_rw(1);
            m.set_a(1);
            m.set_lr(0);
            m.set_en_rinval(1);
            m.set_qpn(0x123);
            m.set_small_fence_on_rdma_read_response(1);
            m.set_relaxed_ordering_write(1);
            m.set_relaxed_ordering_read(1);
            m.set_log_page_size(0x2d);
        });
        let before = key.context.to_mkc();
        for bit in MkeyMask::all() - MkeyMask::EN_SIGERR - MkeyMask::BSF_EN {
            let after = merge(&key.context, bit, &wanted).to_mkc();
            let changed: Vec<&str> = Mkc::LAYOUT
                .fields
                .iter()
                .filter(|f| Mkc::LAYOUT.read(before.as_bytes(), f.name) != Mkc::LAYOUT.read(after.as_bytes(), f.name))
                .map(|f| f.name)
                .collect();
            let expected: &[&str] = match bit {
                MkeyMask::LEN => &["len"],
                MkeyMask::PAGE_SIZE | MkeyMask::PAGE_SIZE_5 => &["log_page_size"],
                MkeyMask::START_ADDR => &["start_addr"],
                MkeyMask::PD => &["pd"],
                MkeyMask::EN_RINVAL => &["en_rinval"],
                MkeyMask::KEY => &["mkey_7_0"],
                MkeyMask::QPN => &["qpn"],
                MkeyMask::LR => &["lr"],
                MkeyMask::LW => &["lw"],
                MkeyMask::RR => &["rr"],
                MkeyMask::RW => &["rw"],
                MkeyMask::A => &["a"],
                MkeyMask::SMALL_FENCE => &["small_fence_on_rdma_read_response"],
                MkeyMask::RELAXED_ORDERING_WRITE => &["relaxed_ordering_write"],
                MkeyMask::FREE => &["free"],
                MkeyMask::RELAXED_ORDERING_READ => &["relaxed_ordering_read"],
                other => panic!("{other:?}"),
            };
            assert_eq!(changed, expected, "{bit:?}");
        }
        let size = |mask| merge(&key.context, mask, &wanted).log_page_size;
        assert_eq!((size(MkeyMask::PAGE_SIZE), size(MkeyMask::PAGE_SIZE_5)), (0x0d, 0x2c));
    }

    #[test]
    fn a_strong_pooled_key_is_refused_when_it_is_enabled() {
        for (strict, expected) in [
            (Strict::Off, None),
            (Strict::Create, Some((Origin::UmrEnable, policy::syn::STRONG_WRITE))),
            (Strict::Enable, Some((Origin::UmrEnable, policy::syn::STRONG_WRITE))),
        ] {
            let key = pooled(1, |_| {});
            assert_eq!(ask(&key, ENABLE, &segment(|_| {}), strict, CAPS).err(), expected, "{strict:?}");
            // The bits of an unmasked field do not help.
            let relaxed = segment(|m| m.set_relaxed_ordering_write(1));
            assert_eq!(ask(&key, ENABLE, &relaxed, strict, CAPS).err(), expected, "{strict:?}");
            let mask = ENABLE | MkeyMask::RELAXED_ORDERING_WRITE;
            assert!(ask(&key, mask, &relaxed, strict, CAPS).is_ok(), "{strict:?}");
        }
    }

    #[test]
    fn a_relaxed_key_cannot_be_made_strong() {
        let key = pooled(1, |m| {
            m.set_relaxed_ordering_write(1);
            m.set_free(0);
        });
        let answer = ask(&key, MkeyMask::RELAXED_ORDERING_WRITE, &segment(|_| {}), Strict::Enable, CAPS);
        assert_eq!(answer.unwrap_err(), (Origin::UmrModify, policy::syn::STRONG_WRITE));
    }

    #[test]
    fn revoking_a_key_keeps_its_ordering_and_is_not_judged_as_enabling() {
        let key = pooled(1, |m| {
            m.set_relaxed_ordering_write(1);
            m.set_free(0);
        });
        let revoke = segment(|m| m.set_free(1));
        let revoked = ask(&key, MkeyMask::FREE | MkeyMask::PD, &revoke, Strict::Create, CAPS);
        let (change, _) = revoked.expect("a relaxed key");
        assert!(change.context.free && change.context.relaxed_write);
        assert_eq!(change.origin, Origin::UmrModify);
        // Under `enable` even a strong key may be freed.
        let strong = pooled(1, |m| m.set_free(0));
        assert!(ask(&strong, MkeyMask::FREE, &revoke, Strict::Enable, CAPS).is_ok());
    }

    #[test]
    fn a_bound_window_is_still_judged_as_a_window() {
        let window = pooled(2, |_| {});
        assert_eq!(window.kind, KeyKind::Window);
        let config = |exempt| MkeyConfig {
            strict: Strict::Enable,
            exempt,
            require_read: false,
            raw_encoding_2: RawEncoding2::Reject,
        };
        let bind = |exempt| {
            let config = config(exempt);
            let mask = (MkeyMask::FREE | MkeyMask::LEN | MkeyMask::RR).bits();
            let change = change(&window, mask, &segment(|m| m.set_rr(1)));
            let rules = Rules { config: &config, caps: CAPS };
            judge(&window, mask, &change, &rules, &UmrCaps::default(), &Limits::default())
                .map(|_| change.context.free)
                .map_err(|violation| (violation.defect.syndrome, violation.ordering))
        };
        assert_eq!(bind(vec![]), Err((policy::syn::STRONG_WRITE, true)));
        assert_eq!(bind(vec![KeyKind::Window]), Ok(false));
        assert_eq!(bind(vec![KeyKind::Indirect]), Err((policy::syn::STRONG_WRITE, true)));
    }

    #[test]
    fn masks_need_their_capabilities() {
        let key = pooled(1, |m| m.set_relaxed_ordering_write(1));
        let none = OrderingCaps { write_umr: false, read_umr: false, ..CAPS };
        let refused = |mask: u64, umr: UmrCaps| {
            let config = MkeyConfig {
                strict: Strict::Off,
                exempt: vec![],
                require_read: false,
                raw_encoding_2: RawEncoding2::Reject,
            };
            let change = change(&key, mask, &segment(|_| {}));
            judge(&key, mask, &change, &Rules { config: &config, caps: none }, &umr, &Limits::default())
                .map(|_| ())
                .map_err(|violation| violation.defect.syndrome)
        };
        let all = UmrCaps { entity_size_disabled: true, atomic_disabled: true, ..UmrCaps::default() };
        let free = UmrCaps::default();
        assert_eq!(refused(MkeyMask::RELAXED_ORDERING_WRITE.bits(), free), Err(policy::syn::UMR_WRITE_NOT_CAPABLE));
        assert_eq!(refused(MkeyMask::RELAXED_ORDERING_READ.bits(), free), Err(policy::syn::UMR_READ_NOT_CAPABLE));
        assert_eq!(refused(MkeyMask::PAGE_SIZE_5.bits(), all), Err(syn::ENTITY_SIZE));
        assert_eq!(refused(MkeyMask::PAGE_SIZE.bits(), free), Ok(()));
        assert_eq!(refused(MkeyMask::PAGE_SIZE_5.bits(), free), Err(syn::ENTITY_SIZE_5));
        assert_eq!(refused(MkeyMask::A.bits(), all), Err(syn::ATOMIC));
        assert_eq!(refused(MkeyMask::A.bits(), free), Ok(()));
        assert_eq!(refused(MkeyMask::BSF_EN.bits(), free), Err(syn::INTEGRITY));
        assert_eq!(refused(1 << 2, free), Err(syn::UNKNOWN_MASK));
        assert_eq!(refused(u64::MAX, free), Err(syn::UNKNOWN_MASK));
        let mut fixed = key.clone();
        fixed.context.umr_en = false;
        assert_eq!(
            ask(&fixed, MkeyMask::FREE, &segment(|_| {}), Strict::Off, CAPS).unwrap_err(),
            (Origin::UmrEnable, syn::NOT_ENABLED)
        );
    }

    #[test]
    fn a_umr_cannot_give_a_key_a_range_that_wraps() {
        let key = pooled(1, |m| m.set_relaxed_ordering_write(1));
        let wraps = segment(|m| m.set_start_addr(u64::MAX));
        let answer = ask(&key, ENABLE, &wraps, Strict::Off, CAPS);
        assert_eq!(answer.unwrap_err(), (Origin::UmrEnable, crate::mkey::context::syn::RANGE));
    }
}
