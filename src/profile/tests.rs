//! Tests of the profiles: what the driver needs, and what the device promises.

use super::*;
use crate::config::{KeyKind, RawEncoding2, Strict};

const GENERAL: u16 = 0;
const FLOW_TABLE: u16 = 7;

fn c2c() -> Profile {
    Profile::default()
}

fn error(sets: &[&str]) -> String {
    Profile::with("connectx10-c2c", sets).unwrap_err().to_string()
}

#[test]
fn every_builtin_profile_loads_without_warnings() {
    for name in builtin::names() {
        let p = Profile::with(name, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(p.name, name);
        assert!(!p.description.is_empty());
        assert_eq!(p.warnings(), [""; 0], "{name}");
    }
}

#[test]
fn profiles_have_the_pci_ids_of_the_parts() {
    let id = |name| Profile::with(name, &[]).unwrap().pci.device_id;
    assert_eq!((id("connectx10-c2c"), id("connectx10"), id("connectx7")), (0x2101, 0x1027, 0x1021));
}

#[test]
fn profiles_have_distinct_addresses() {
    let mut seen = std::collections::BTreeSet::new();
    for name in builtin::names() {
        let p = Profile::with(name, &[]).unwrap();
        assert!(seen.insert(p.net.mac.0) && p.net.node_guid() != 0);
        assert_eq!(p.net.mac.0[0] & 3, 2, "{name}: unicast, locally administered");
    }
}

#[test]
fn the_default_profile_is_strict_and_says_so() {
    let p = c2c();
    assert_eq!(p.mkey.strict, Strict::Create);
    assert_eq!(p.mkey.exempt, []);
    assert_eq!(p.mkey.raw_encoding_2, RawEncoding2::Reject);
    assert!(!p.mkey.require_read);
    assert!(p.pci.relaxed_ordering);
    let bit = |name| p.cap(GENERAL, name);
    assert_eq!(bit("mkc_order_write_after_write_ro_only"), 1);
    assert_eq!(bit("mkc_order_read_after_write"), 1);
    assert_eq!(bit("relaxed_ordering_write"), 1);
    assert_eq!(bit("relaxed_ordering_read"), 1);
    assert_eq!(bit("relaxed_ordering_read_pci_enabled"), 1);
    assert_eq!(bit("relaxed_ordering_write_umr"), 0);
    assert_eq!(bit("relaxed_ordering_read_umr"), 0);
    assert_eq!(bit("qp_data_in_order"), 0);
}

#[test]
fn connectx7_grants_strong_keys_and_does_not_know_the_new_bits() {
    let p = Profile::with("connectx7", &[]).unwrap();
    assert_eq!(p.mkey.strict, Strict::Off);
    assert_eq!(p.cap(GENERAL, "mkc_order_write_after_write_ro_only"), 0);
    assert_eq!(p.cap(GENERAL, "mkc_order_read_after_write"), 0);
    assert_eq!(p.cap(GENERAL, "relaxed_ordering_write"), 1);
    assert_eq!(p.cap(GENERAL, "relaxed_ordering_write_umr"), 1);
    assert_eq!(p.cap(GENERAL, "relaxed_ordering_read_umr"), 1);
    assert_eq!(p.cap(GENERAL, "imaicl"), 1);
}

#[test]
fn ordering_bits_lie_where_drivers_look_for_them() {
    let p = c2c();
    let area = p.caps(GENERAL, CapMode::Cur).unwrap();
    let bit = |n: usize| area[n / 8] >> (7 - n % 8) & 1;
    for n in [0xe8, 0xe9, 0x32a, 0x3a8, 0x3a9] {
        assert_eq!(bit(n), 1, "bit {n:#x}");
    }
    assert_eq!((bit(0xd0), bit(0xd1)), (0, 0));
}

#[test]
fn an_override_reaches_current_and_maximal_area() {
    let p = Profile::with("connectx10-c2c", &["caps.general.log_max_qp=12", "mkey.strict=off"]).unwrap();
    assert_eq!(p.mkey.strict, Strict::Off);
    let field = |mode| p.caps(GENERAL, mode).unwrap()[0x13] & 0x1f;
    assert_eq!((field(CapMode::Cur), field(CapMode::Max)), (12, 12));
}

#[test]
fn the_maximum_differs_from_the_current_value_only_where_said() {
    let p = c2c();
    let layout = caps::layout(GENERAL).unwrap();
    let read = |mode, field: &str| layout.read(&p.caps(GENERAL, mode).unwrap()[..], field).unwrap();
    let differ: Vec<_> =
        caps::field_paths(layout).into_iter().filter(|f| read(CapMode::Cur, f) != read(CapMode::Max, f)).collect();
    assert_eq!(differ, ["release_all_pages", "cmdif_checksum"]);
    assert_eq!(read(CapMode::Max, "release_all_pages"), 1);
}

#[test]
fn a_type_that_no_key_names_is_not_advertised() {
    let p = c2c();
    for (number, advertised) in
        [(0, true), (1, true), (2, true), (3, true), (4, true), (7, true), (8, false), (0xf, true)]
    {
        assert_eq!(p.caps(number, CapMode::Cur).is_some(), advertised, "type {number:#x}");
    }
    assert_eq!(p.cap(8, "fdb_multi_path_to_table"), 0);
    assert_eq!(p.cap(0xffff, "x"), 0);
}

#[test]
fn unknown_and_unfit_capabilities_are_refused_with_the_nearest_name() {
    assert!(
        error(&["caps.general.relaxd_ordering_write=1"])
            .ends_with("did you mean `caps.general.relaxed_ordering_write`?")
    );
    assert!(error(&["caps.relaxed_ordering_write=1"]).ends_with("did you mean `caps.general.relaxed_ordering_write`?"));
    assert!(error(&["caps.genral.roce=1"]).ends_with("did you mean `caps.general.roce`?"));
    assert!(error(&["caps.genral.nothing=1"]).ends_with("did you mean `caps.general`?"));
    assert!(error(&["caps.ethernet.roce=1"]).ends_with("did you mean `caps.general.roce`?"));
    assert!(error(&["caps.general.roce=2"]).contains("2 does not fit in 1 bit, expected 0..0x1"));
    assert!(error(&["caps.general.roce=-1"]).contains("is not a number, expected 0..0x1"));
    assert!(error(&["caps.general.roce=maybe"]).contains("is not a number"));
    assert!(error(&["caps.flow_table.flow_table_properties_nic_receive=1"]).contains("is a structure"));
    assert!(
        error(&["caps.flow_table.ft_support=1"])
            .ends_with("did you mean `caps.flow_table.flow_table_properties_nic_receive.ft_support`?")
    );
    assert!(error(&["caps.general=1"]).contains("name a field"));
    assert!(error(&["caps=1"]).contains("is a section"));
    assert!(error(&["caps.general.pci_relaxed_ordered_read=1"]).contains("DPDK"));
}

#[test]
fn a_64_bit_capability_takes_all_its_values() {
    let p = Profile::with("connectx10-c2c", &["caps.general.general_obj_types=0xffffffffffffffff"]).unwrap();
    assert_eq!(p.cap(GENERAL, "general_obj_types"), u64::MAX);
    assert!(p.to_toml().contains("general_obj_types = \"0xffffffffffffffff\""));
}

#[test]
fn contradictions_are_refused() {
    assert!(error(&["caps.general.adv_rdma=1"]).contains("caps.adv_rdma"));
    assert!(error(&["caps.general.pcam_reg=0"]).contains("net.link_speed"));
    assert!(Profile::with("connectx10-c2c", &["caps.general.pcam_reg=0", "net.link_speed=100G"]).is_ok());
    assert!(error(&["caps.dev_mem.memic_bar_start_addr=0x1001"]).contains("4096"));
    assert!(error(&["caps.dev_mem.memic_bar_start_addr=0x2000"]).contains("beyond"));
    assert!(error(&["caps.dev_mem.memic_bar_start_addr=0xfffffffffffff000"]).contains("beyond"));
    assert!(error(&["caps.dev_mem.memic_bar_size=0x101000"]).contains("beyond"));
    assert!(error(&["caps.dev_mem.max_memic_size=0x101000"]).contains("max_memic_size"));
    assert!(error(&["caps.general.max_indirection=8"]).contains("at most"));
}

#[test]
fn keys_nest_as_deeply_as_a_translation_has_room_for() {
    assert_eq!(consistency::MAX_INDIRECTION, crate::mkey::translate::MAX_INDIRECTION);
}

#[test]
fn device_memory_lies_where_the_function_has_it() {
    use crate::device::memic;
    assert_eq!(consistency::MEMIC_WINDOW, memic::BAR_OFFSET..memic::BAR_OFFSET + memic::SIZE);
}

#[test]
fn surprising_combinations_are_warned_of() {
    let warnings = |sets: &[&str]| Profile::with("connectx10-c2c", sets).unwrap().warnings().join("\n");
    assert!(warnings(&["caps.general.mkc_order_write_after_write_ro_only=0"]).contains("not told"));
    assert!(warnings(&["mkey.strict=off"]).contains("nothing is refused"));
    assert!(warnings(&["caps.general.relaxed_ordering_write=0"]).contains("cannot ask"));
    let no_reads = ["mkey.require_read=1", "caps.general.relaxed_ordering_read=0", "pci.relaxed_ordering=0"];
    assert!(warnings(&no_reads).contains("relaxed reads"));
    assert!(warnings(&["mkey.require_read=1", "caps.general.relaxed_ordering_read=0"]).is_empty());
}

/// What kernel 7.3 needs to bind, as far as capabilities go; each line names the code that fails otherwise.
#[test]
fn every_profile_satisfies_the_driver() {
    for name in builtin::names() {
        let p = Profile::with(name, &[]).unwrap();
        let g = |f| p.cap(GENERAL, f);
        let rx = |f| p.cap(FLOW_TABLE, &format!("flow_table_properties_nic_receive.{f}"));
        assert_eq!((g("port_type"), g("num_ports")), (1, 1), "en_main.c, main.c");
        assert_eq!(g("xrc"), 1, "mlx5_ib main.c: device resources");
        assert_eq!(g("num_of_uars_per_page"), 1, "uar.c");
        assert!(g("max_wqe_sz_sq") >= 1024, "en/params.c");
        assert!(g("max_num_eqs") >= 64 && g("log_max_eq") > 0, "eq.c");
        assert!(rx("max_ft_level") > 59, "fs_core.c: anchor");
        assert!(rx("log_max_ft_size") >= 16, "fs_ft_pool.c");
        assert_eq!(g("fast_teardown") + g("force_teardown"), 2);
        assert_eq!(g("cmdif_checksum"), 0);
        assert_eq!(g("eswitch_manager") + g("vport_group_manager"), 0);
        assert_eq!(g("data_direct"), 0, "its first key is never relaxed and fatal");
        assert_eq!(g("dct"), 0);
        assert_eq!(p.cap(4, "l3_type"), 6, "IPv4 and IPv6");
        assert!(p.cap(1, "csum_cap") == 1 && p.cap(1, "vlan_cap") == 1 && p.cap(1, "max_lso_cap") > 0);
        assert!(p.pci.msix_vectors >= 2);
    }
}

#[test]
fn the_effective_configuration_reads_back_as_the_same_device() {
    let sets =
        ["mkey.exempt=memic,window", "pci.vpd_serial=\"a b\"", "caps.general.imaicl=0", "net.mac=02:00:00:00:00:09"];
    let p = Profile::with("connectx10", &sets).unwrap();
    assert_eq!(p.mkey.exempt, [KeyKind::Memic, KeyKind::Window]);
    let dir = std::env::temp_dir().join(format!("cx10-profile-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("effective.toml");
    std::fs::write(&path, p.to_toml()).unwrap();
    let back = layers::load(&Sources { profile: None, file: Some(path), sets: vec![] }).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(back.name, "connectx10");
    assert_eq!(back.to_json(true), p.to_json(true));
    for t in p.cap_types() {
        assert_eq!(back.caps(t, CapMode::Cur), p.caps(t, CapMode::Cur));
        assert_eq!(back.caps(t, CapMode::Max), p.caps(t, CapMode::Max));
    }
}

#[test]
fn the_effective_configuration_names_who_changed_a_line() {
    let text = Profile::with("connectx10-c2c", &["mkey.strict=off"]).unwrap().to_toml();
    assert!(text.contains("strict = \"off\"  # --set mkey.strict=off\n"), "{text}");
    assert_eq!(text.matches("--set").count(), 1);
    assert!(text.contains("device_id = 0x2101\n"));
}

#[test]
fn every_bit_that_makes_the_driver_ask_for_a_type_is_a_general_capability() {
    let layout = caps::layout(GENERAL).unwrap();
    for (bit, cap_type) in consistency::QUERIED {
        assert!(layout.find(bit).is_some_and(|(_, width)| width == 1), "{bit}");
        assert!(caps::type_name(*cap_type).is_some(), "{cap_type:#x}");
    }
}
