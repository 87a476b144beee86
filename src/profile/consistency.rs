//! Checks across keys: combinations that cannot work are errors, surprising ones are warnings.

use super::{CapMode, Profile, caps};
use crate::config::{PortSpeed, Strict, order};

const GENERAL: u16 = 0;
const DEVICE_MEMORY: u16 = 0xf;

/// Where BAR0 has device memory.
pub(super) const MEMIC_WINDOW: std::ops::Range<u64> = 0x100_0000..0x110_0000;

/// Levels of indirect keys that a translation has room for.
pub(super) const MAX_INDIRECTION: u32 = 7;

/// General capability bits that make the driver query a type, and the type. A refused query fails the probe
/// (kernel `fw.c:mlx5_query_hca_caps`).
pub(super) static QUERIED: &[(&str, u16)] = &[
    ("eth_net_offloads", 0x1),
    ("pg", 0x2),
    ("atomic", 0x3),
    ("roce", 0x4),
    ("ipoib_enhanced_offloads", 0x6),
    ("ipoib_enhanced_offloads", 0x7),
    ("nic_flow_table", 0x7),
    ("eswitch_manager", 0x8),
    ("eswitch_manager", 0x9),
    ("qos", 0xc),
    ("debug", 0xd),
    ("device_memory", DEVICE_MEMORY),
    ("tls_tx", 0x11),
    ("tls_rx", 0x11),
    ("event_cap", 0x14),
    ("ipsec_offload", 0x15),
    ("crypto", 0x1a),
    ("shampo", 0x1d),
    ("psp", 0x1e),
    ("hca_cap_2", 0x20),
    ("port_selection_cap", 0x25),
    ("adv_virtualization", 0x26),
    ("adv_rdma", 0x28),
    ("tlp_device_emulation_manager", 0x2a),
];

/// Combinations that cannot work.
pub fn check(p: &Profile) -> Result<(), String> {
    for (bit, cap_type) in QUERIED {
        if p.cap(GENERAL, bit) != 0 && p.caps(*cap_type, CapMode::Cur).is_none() {
            let name = caps::type_name(*cap_type).unwrap_or("?");
            return Err(format!(
                "caps.general.{bit} is set but nothing is set in caps.{name}: the driver asks for that capability type next \
                 and gives up when it is refused"
            ));
        }
    }
    if p.net.link_speed > PortSpeed::G100 && p.cap(GENERAL, "pcam_reg") == 0 {
        return Err("net.link_speed above 100G can only be named with the extended fields that caps.general.pcam_reg \
                    announces"
            .into());
    }
    if p.cap(GENERAL, "max_indirection") > MAX_INDIRECTION.into() {
        return Err(format!("caps.general.max_indirection must be {MAX_INDIRECTION} at most"));
    }
    if p.cap(DEVICE_MEMORY, "memic") != 0 {
        let start = p.cap(DEVICE_MEMORY, "memic_bar_start_addr");
        let size = p.cap(DEVICE_MEMORY, "memic_bar_size");
        if start % 4096 != 0 || size % 4096 != 0 || size == 0 {
            return Err("caps.dev_mem: memic_bar_start_addr and memic_bar_size must be multiples of 4096".into());
        }
        if start < MEMIC_WINDOW.start || size > MEMIC_WINDOW.end - start.min(MEMIC_WINDOW.end) {
            return Err(format!(
                "caps.dev_mem: memic_bar_start_addr = {start:#x} and memic_bar_size = {size:#x} reach beyond the \
                 device memory in BAR0, {:#x}..{:#x}",
                MEMIC_WINDOW.start, MEMIC_WINDOW.end
            ));
        }
        if p.cap(DEVICE_MEMORY, "max_memic_size") > size {
            return Err("caps.dev_mem: max_memic_size is larger than memic_bar_size".into());
        }
    }
    Ok(())
}

/// Allowed but surprising combinations.
pub fn warnings(p: &Profile) -> Vec<String> {
    let mut list = order::warnings(&p.order);
    let strict = p.mkey.strict != Strict::Off;
    let told = p.cap(GENERAL, "mkc_order_write_after_write_ro_only") != 0;
    if strict && !told {
        list.push(
            "keys are judged strictly, but mkc_order_write_after_write_ro_only is 0: drivers that know the bit are not told"
                .into(),
        );
    }
    if !strict && told {
        list.push("mkc_order_write_after_write_ro_only is 1, but mkey.strict is off: nothing is refused".into());
    }
    if strict && p.cap(GENERAL, "relaxed_ordering_write") == 0 {
        list.push(
            "relaxed_ordering_write is not advertised, so that a driver cannot ask for what mkey.strict requires"
                .into(),
        );
    }
    let reads = p.cap(GENERAL, "relaxed_ordering_read") != 0
        || (p.cap(GENERAL, "relaxed_ordering_read_pci_enabled") != 0 && p.pci.relaxed_ordering);
    if strict && p.mkey.require_read && !reads {
        list.push("mkey.require_read is set, but no capability lets a driver ask for relaxed reads".into());
    }
    if strict && p.cap(GENERAL, "qp_data_in_order") != 0 {
        list.push("qp_data_in_order licenses polling on data, which an unordered device cannot promise".into());
    }
    list
}
