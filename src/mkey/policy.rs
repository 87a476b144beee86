//! The ordering policy for memory keys, in one place: wherever a key can come into being, [`judge`] decides whether its
//! ordering attributes are granted.
//!
//! A device whose fabric keeps no order between writes cannot honour a key that asks for order, and refuses it instead
//! of breaking a promise (capability `mkc_order_write_after_write_ro_only`; DPDK commit 5003eaab7e). Which kinds of
//! keys are refused when is configuration, because no specification says it: section `[mkey]`.
//!
//! Attributes that the capabilities do not announce are refused in any case, strict or not.

use super::context::{Defect, KeyContext};
use crate::cmdif::error::{Syndrome, syndromes};
use crate::config::{KeyKind, MkeyConfig, RawEncoding2, Strict};
use crate::device::capabilities::Capabilities;

syndromes! {
    /// Checks of a key's ordering attributes.
    pub mod syn = 0x0023_0000;
    1 STRONG_WRITE "mkc.relaxed_ordering_write must be 1: this device keeps no order between writes";
    2 STRONG_READ "mkc.relaxed_ordering_read must be 1: mkey.require_read is set";
    3 WRITE_NOT_CAPABLE "mkc.relaxed_ordering_write is set and relaxed_ordering_write is not advertised";
    4 READ_NOT_CAPABLE "mkc.relaxed_ordering_read is set and neither relaxed_ordering_read is advertised nor relaxed_ordering_read_pci_enabled with the PCIe enable bit set";
    5 RAW_NOT_CAPABLE "mkc.order_read_after_write is not 0 and mkc_order_read_after_write is not advertised";
    6 RAW_RESERVED "mkc.order_read_after_write = 3 is reserved";
    7 RAW_WITHDRAWN "mkc.order_read_after_write = 2 is the withdrawn encoding of relaxed";
    8 UMR_WRITE_NOT_CAPABLE "the UMR changes relaxed_ordering_write and relaxed_ordering_write_umr is not advertised";
    9 UMR_READ_NOT_CAPABLE "the UMR changes relaxed_ordering_read and relaxed_ordering_read_umr is not advertised";
}

/// How a key would come into being or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// CREATE_MKEY.
    CreateMkey,
    /// A UMR after which the key is usable and before which it was free.
    UmrEnable,
    /// Any other UMR.
    UmrModify,
}

impl Origin {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Origin::CreateMkey => "CREATE_MKEY",
            Origin::UmrEnable | Origin::UmrModify => "UMR",
        }
    }
}

/// What the capabilities in force say about ordering attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderingCaps {
    /// `relaxed_ordering_write`.
    pub write: bool,
    /// `relaxed_ordering_read`, or `relaxed_ordering_read_pci_enabled` while PCIe relaxed ordering is enabled.
    pub read: bool,
    /// `relaxed_ordering_write_umr`.
    pub write_umr: bool,
    /// `relaxed_ordering_read_umr`.
    pub read_umr: bool,
    /// `mkc_order_read_after_write`.
    pub read_after_write: bool,
}

impl OrderingCaps {
    /// The capabilities in force; `pci_enabled` is "Enable Relaxed Ordering" of PCIe Device Control.
    pub fn new(caps: &Capabilities, pci_enabled: bool) -> OrderingCaps {
        let cap = |field| caps.general(field) != 0;
        OrderingCaps {
            write: cap("relaxed_ordering_write"),
            read: cap("relaxed_ordering_read") || (pci_enabled && cap("relaxed_ordering_read_pci_enabled")),
            write_umr: cap("relaxed_ordering_write_umr"),
            read_umr: cap("relaxed_ordering_read_umr"),
            read_after_write: cap("mkc_order_read_after_write"),
        }
    }
}

/// The rules in force.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Section `[mkey]`.
    pub config: &'a MkeyConfig,
    /// Capabilities.
    pub caps: OrderingCaps,
}

/// A granted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whether it asks for relaxed writes.
    pub relaxed: bool,
    /// Whether it uses the withdrawn encoding of `order_read_after_write` and the configuration wants to know.
    pub withdrawn_encoding: bool,
    /// Whether the key is free and a UMR may yet change its write ordering.
    pub undecided: bool,
}

/// A refused key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Field, value and check.
    pub defect: Defect,
    /// Whether the key asks for order that the device does not keep; otherwise for something it does not know.
    pub ordering: bool,
}

fn refuse<T>(field: &'static str, value: u64, syndrome: Syndrome, ordering: bool) -> Result<T, Violation> {
    Err(Violation { defect: Defect { field, value, syndrome }, ordering })
}

/// Judges a key of `kind` whose context is or will be `context`.
pub fn judge(context: &KeyContext, kind: KeyKind, rules: &Rules<'_>) -> Result<Grant, Violation> {
    let caps = rules.caps;
    if context.relaxed_write && !caps.write {
        return refuse("relaxed_ordering_write", 1, syn::WRITE_NOT_CAPABLE, false);
    }
    if context.relaxed_read && !caps.read {
        return refuse("relaxed_ordering_read", 1, syn::READ_NOT_CAPABLE, false);
    }
    let withdrawn_encoding = read_after_write(context.order_read_after_write, rules)?;
    let config = rules.config;
    if !context.relaxed_write && is_judged(context, kind, config, caps.write_umr) {
        return refuse("relaxed_ordering_write", 0, syn::STRONG_WRITE, true);
    }
    if config.require_read && !context.relaxed_read && is_judged(context, kind, config, caps.read_umr) {
        return refuse("relaxed_ordering_read", 0, syn::STRONG_READ, true);
    }
    let undecided = context.free && context.umr_en && caps.write_umr;
    Ok(Grant { relaxed: context.relaxed_write, withdrawn_encoding, undecided })
}

/// Judges the encoding of `order_read_after_write`; true if it is granted but to be reported.
fn read_after_write(value: u8, rules: &Rules<'_>) -> Result<bool, Violation> {
    let refuse = |syndrome| refuse("order_read_after_write", value.into(), syndrome, false);
    match (value, rules.config.raw_encoding_2) {
        (0, _) => Ok(false),
        _ if !rules.caps.read_after_write => refuse(syn::RAW_NOT_CAPABLE),
        (1, _) | (2, RawEncoding2::Accept) => Ok(false),
        (2, RawEncoding2::Report) => Ok(true),
        (2, RawEncoding2::Reject) => refuse(syn::RAW_WITHDRAWN),
        _ => refuse(syn::RAW_RESERVED),
    }
}

/// Whether an attribute is due to be judged. `by_umr`: a UMR may change it, so that it says nothing as long as the key
/// is free; the driver makes its pools without the attribute then (kernel `mr.c:mlx5r_create_mkeys`).
fn is_judged(context: &KeyContext, kind: KeyKind, config: &MkeyConfig, by_umr: bool) -> bool {
    let due = match config.strict {
        Strict::Off => false,
        Strict::Create => !(context.free && context.umr_en && by_umr),
        Strict::Enable => !context.free,
    };
    due && !config.is_exempt(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::mkey::Mkc;

    const ALL_CAPS: OrderingCaps =
        OrderingCaps { write: true, read: true, write_umr: true, read_umr: true, read_after_write: true };

    fn context(write: u32, read: u32, raw: u32, free: u32) -> KeyContext {
        let mut mkc = Mkc::zeroed();
        mkc.set_relaxed_ordering_write(write);
        mkc.set_relaxed_ordering_read(read);
        mkc.set_order_read_after_write(raw);
        mkc.set_free(free);
        mkc.set_access_mode_1_0(1);
        KeyContext::read(&mkc)
    }

    fn config(strict: Strict) -> MkeyConfig {
        MkeyConfig { strict, exempt: vec![], require_read: false, raw_encoding_2: RawEncoding2::Reject }
    }

    fn verdict(context: &KeyContext, config: &MkeyConfig, caps: OrderingCaps) -> Result<Grant, Syndrome> {
        judge(context, context.kind(), &Rules { config, caps }).map_err(|violation| violation.defect.syndrome)
    }

    const STRONG: Result<Grant, Syndrome> = Ok(Grant { relaxed: false, withdrawn_encoding: false, undecided: false });
    const RELAXED: Result<Grant, Syndrome> = Ok(Grant { relaxed: true, withdrawn_encoding: false, undecided: false });

    #[test]
    fn strictness_decides_when_a_strong_key_is_refused() {
        let refused = Err(syn::STRONG_WRITE);
        for (strict, free, usable) in
            [(Strict::Off, STRONG, STRONG), (Strict::Create, refused, refused), (Strict::Enable, STRONG, refused)]
        {
            let config = config(strict);
            assert_eq!(verdict(&context(0, 0, 0, 1), &config, ALL_CAPS), free, "{strict:?} free");
            assert_eq!(verdict(&context(0, 0, 0, 0), &config, ALL_CAPS), usable, "{strict:?} usable");
            assert_eq!(verdict(&context(1, 0, 0, 0), &config, ALL_CAPS), RELAXED, "{strict:?} relaxed");
        }
    }

    #[test]
    fn a_free_key_whose_ordering_a_umr_may_change_is_judged_when_it_is_enabled() {
        let mut pooled = context(0, 0, 0, 1);
        pooled.umr_en = true;
        let mut config = config(Strict::Create);
        config.require_read = true;
        let caps = |write_umr, read_umr| OrderingCaps { write_umr, read_umr, ..ALL_CAPS };
        assert_eq!(verdict(&pooled, &config, caps(false, true)), Err(syn::STRONG_WRITE));
        assert_eq!(verdict(&pooled, &config, caps(true, false)), Err(syn::STRONG_READ));
        let undecided = Ok(Grant { relaxed: false, withdrawn_encoding: false, undecided: true });
        assert_eq!(verdict(&pooled, &config, caps(true, true)), undecided);
        pooled.umr_en = false;
        assert_eq!(verdict(&pooled, &config, caps(true, true)), Err(syn::STRONG_WRITE));
        (pooled.umr_en, pooled.free) = (true, false);
        assert_eq!(verdict(&pooled, &config, caps(true, true)), Err(syn::STRONG_WRITE));
        pooled.relaxed_write = true;
        assert_eq!(verdict(&pooled, &config, caps(true, true)), Err(syn::STRONG_READ));
        pooled.relaxed_read = true;
        assert_eq!(verdict(&pooled, &config, caps(true, true)), RELAXED);
    }

    #[test]
    fn every_kind_is_judged_unless_it_is_exempt() {
        let strong = context(0, 0, 0, 0);
        for kind in KeyKind::ALL {
            let mut config = config(Strict::Create);
            let violation = judge(&strong, kind, &Rules { config: &config, caps: ALL_CAPS }).unwrap_err();
            assert_eq!((violation.defect.syndrome, violation.ordering), (syn::STRONG_WRITE, true), "{kind:?}");
            config.exempt = vec![kind];
            assert!(judge(&strong, kind, &Rules { config: &config, caps: ALL_CAPS }).is_ok(), "{kind:?}");
        }
    }

    #[test]
    fn relaxed_reads_are_required_only_on_request() {
        let mut config = config(Strict::Create);
        assert_eq!(verdict(&context(1, 0, 0, 0), &config, ALL_CAPS), RELAXED);
        config.require_read = true;
        assert_eq!(verdict(&context(1, 0, 0, 0), &config, ALL_CAPS), Err(syn::STRONG_READ));
        assert_eq!(verdict(&context(1, 1, 0, 0), &config, ALL_CAPS), RELAXED);
        config.strict = Strict::Off;
        assert_eq!(verdict(&context(1, 0, 0, 0), &config, ALL_CAPS), RELAXED);
    }

    #[test]
    fn attributes_without_their_capability_are_refused_even_when_nothing_is_strict() {
        let config = config(Strict::Off);
        let without = |edit: fn(&mut OrderingCaps)| {
            let mut caps = ALL_CAPS;
            edit(&mut caps);
            caps
        };
        let cases = [
            (context(1, 0, 0, 0), without(|c| c.write = false), syn::WRITE_NOT_CAPABLE),
            (context(0, 1, 0, 0), without(|c| c.read = false), syn::READ_NOT_CAPABLE),
            (context(0, 0, 1, 0), without(|c| c.read_after_write = false), syn::RAW_NOT_CAPABLE),
            (context(0, 0, 2, 0), without(|c| c.read_after_write = false), syn::RAW_NOT_CAPABLE),
            (context(0, 0, 3, 0), without(|c| c.read_after_write = false), syn::RAW_NOT_CAPABLE),
        ];
        for (context, caps, syndrome) in cases {
            assert_eq!(verdict(&context, &config, caps), Err(syndrome));
            assert_eq!(verdict(&self::context(0, 0, 0, 0), &config, caps), STRONG);
        }
    }

    #[test]
    fn the_withdrawn_encoding_is_a_matter_of_configuration_and_the_reserved_one_is_not() {
        let mut config = config(Strict::Create);
        for (knob, expected) in [
            (RawEncoding2::Reject, Err(syn::RAW_WITHDRAWN)),
            (RawEncoding2::Accept, RELAXED),
            (RawEncoding2::Report, Ok(Grant { relaxed: true, withdrawn_encoding: true, undecided: false })),
        ] {
            config.raw_encoding_2 = knob;
            assert_eq!(verdict(&context(1, 0, 2, 0), &config, ALL_CAPS), expected, "{knob:?}");
            assert_eq!(verdict(&context(1, 0, 0, 0), &config, ALL_CAPS), RELAXED);
            assert_eq!(verdict(&context(1, 0, 1, 0), &config, ALL_CAPS), RELAXED);
            assert_eq!(verdict(&context(1, 0, 3, 0), &config, ALL_CAPS), Err(syn::RAW_RESERVED));
        }
    }

    #[test]
    fn relaxed_reads_depend_on_the_pcie_bit_only_where_nothing_else_allows_them() {
        let caps = |sets: &[&str], pci| {
            let profile = crate::profile::Profile::with("connectx10-c2c", sets).expect("a legal profile");
            OrderingCaps::new(&Capabilities::new(&profile), pci).read
        };
        let gated = "caps.general.relaxed_ordering_read=0";
        assert!(caps(&[], false));
        assert!(caps(&[gated], true));
        assert!(!caps(&[gated], false));
        assert!(!caps(&[gated, "caps.general.relaxed_ordering_read_pci_enabled=0"], true));
    }
}
