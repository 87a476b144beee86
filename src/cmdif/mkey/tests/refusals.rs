//! Every access mode with every combination of the ordering bits, on every profile, against the table that the guest
//! test reads too (`tests/data/mkey_refusals.json`).

use serde_json::Value;

use super::*;
use crate::cmdif::error::meaning;
use crate::config::KeyKind;

const TABLE: &str = include_str!("../../../../tests/data/mkey_refusals.json");
/// The axes in the order in which cases are counted.
const AXES: [&str; 7] = [
    "profile",
    "via",
    "access_mode",
    "free",
    "relaxed_ordering_write",
    "relaxed_ordering_read",
    "order_read_after_write",
];

/// One case: a value for each axis.
type Case = [Value; 7];

fn number(case: &Case, axis: usize) -> u32 {
    case[axis].as_u64().expect("a number") as u32
}

fn table() -> Value {
    serde_json::from_str(TABLE).expect("the table is JSON")
}

fn cases(table: &Value) -> Vec<Case> {
    let mut cases: Vec<Vec<Value>> = vec![vec![]];
    for axis in AXES {
        let values = table["axes"][axis].as_array().expect("a list of values");
        cases = cases
            .iter()
            .flat_map(|case| values.iter().map(|value| [&case[..], std::slice::from_ref(value)].concat()))
            .collect();
    }
    cases.into_iter().map(|case| case.try_into().expect("one value for each axis")).collect()
}

fn syndrome_of(rule: &Value) -> u32 {
    let text = rule["syndrome"].as_str().and_then(|text| text.strip_prefix("0x")).expect("hex");
    u32::from_str_radix(text, 16).expect("hex")
}

/// The rule that answers a case: its number, the status and the syndrome.
fn expected(table: &Value, case: &Case) -> (usize, u8, u32) {
    let rules = table["rules"].as_array().expect("a list of rules");
    let matches = |rule: &Value| {
        let conditions = rule["if"].as_object().expect("conditions");
        conditions.iter().all(|(axis, values)| {
            let at = AXES.iter().position(|name| name == axis).expect("a condition names an axis");
            values.as_array().expect("a list of values").contains(&case[at])
        })
    };
    let number = rules.iter().position(matches).expect("the last rule matches everything");
    let rule = &rules[number];
    (number, rule["status"].as_u64().expect("a status") as u8, syndrome_of(rule))
}

/// A function and what keys need: for the driver a domain, for a user context a domain and a region.
struct Bench {
    rig: Rig,
    driver_pd: u32,
    user: (u16, u32, u32),
}

impl Bench {
    fn new(profile: &str, sets: &[&str]) -> Bench {
        let (mut rig, driver_pd) = up_with(profile, sets);
        let mut alloc = crate::prm::pd::AllocMemicIn::zeroed();
        alloc.set_opcode(u32::from(Opcode::ALLOC_MEMIC.0));
        alloc.set_range_start_addr(BAR_OFFSET);
        alloc.set_range_size(0x2000);
        alloc.set_memic_size(0x2000);
        rig.ok(alloc.as_bytes(), 16);
        let user = user(&mut rig, 3);
        Bench { rig, driver_pd, user }
    }

    fn input(&self, case: &Case) -> Vec<u8> {
        let devx = case[1] == "devx";
        let mode = number(case, 2);
        let (uid, pd, umem) = if devx { self.user } else { (0, self.driver_pd, 0) };
        region(pd, |input| {
            let indirect = mode == 2 || mode == 3;
            input.set_uid(u32::from(uid));
            input.set_translations_octword_actual_size((!devx && mode == 1).into());
            if devx && !indirect {
                input.set_mkey_umem_valid(1);
                input.set_mkey_umem_id(umem);
            }
            let mut mkc = mkc(input);
            mkc.set_access_mode_4_2(mode >> 2);
            mkc.set_access_mode_1_0(mode & 3);
            mkc.set_free(number(case, 3));
            mkc.set_umr_en(number(case, 3));
            mkc.set_relaxed_ordering_write(number(case, 4));
            mkc.set_relaxed_ordering_read(number(case, 5));
            mkc.set_order_read_after_write(number(case, 6));
            mkc.set_translations_octword_size(if mode == 1 || indirect { 4 } else { 0 });
            if mode == 5 {
                mkc.set_start_addr(BAR_OFFSET);
            }
        })
    }
}

#[test]
fn every_mode_and_combination_of_ordering_bits_is_answered_as_the_table_says() {
    let table = table();
    let mut used = std::collections::BTreeSet::new();
    let mut bench: Option<(Value, Bench)> = None;
    let (mut count, mut refused) = (0, 0);
    for case in cases(&table) {
        let same = bench.take().filter(|(profile, _)| *profile == case[0]);
        let (profile, mut on) =
            same.unwrap_or_else(|| (case[0].clone(), Bench::new(case[0].as_str().expect("a profile"), &[])));
        let (rule, status, syndrome) = expected(&table, &case);
        let answer = on.rig.exec(&on.input(&case), 16);
        assert_eq!((answer.status(), answer.syndrome()), (status, syndrome), "{case:?}, rule {rule}");
        if status == 0 {
            let mut destroy = by_index(Opcode::DESTROY_MKEY, index(&answer.output));
            let uid = if case[1] == "devx" { on.user.0 } else { 0 };
            destroy[2..4].copy_from_slice(&uid.to_be_bytes());
            on.rig.ok(&destroy, 16);
        }
        (count, refused) = (count + 1, refused + u32::from(status != 0));
        used.insert(rule);
        bench = Some((profile, on));
    }
    assert_eq!(count, 3 * 2 * 8 * 2 * 2 * 2 * 4);
    assert!(refused > count / 2 && refused < count, "{refused} of {count} refused");
    assert_eq!(used.len(), table["rules"].as_array().map_or(0, Vec::len), "a rule that no case meets: {used:?}");
}

#[test]
fn the_table_explains_its_syndromes_as_the_device_does() {
    for rule in table()["rules"].as_array().expect("a list of rules") {
        assert_eq!(rule["meaning"], meaning(syndrome_of(rule)).unwrap_or_default(), "{rule}");
    }
}

#[test]
fn every_kind_can_be_exempt_and_then_only_that_kind_passes() {
    let table = table();
    for exempt in [KeyKind::Memic, KeyKind::Free, KeyKind::Indirect, KeyKind::Mtt, KeyKind::Pa] {
        let setting = format!("mkey.exempt={}", exempt.name());
        let mut bench = Bench::new("connectx10-c2c", &[&setting]);
        let strong = |case: &Case| {
            case[0] == "connectx10-c2c"
                && case[1] == "driver"
                && (4..=6).all(|axis| number(case, axis) == 0)
                && [0, 1, 2, 3, 5].contains(&number(case, 2))
        };
        for case in cases(&table).into_iter().filter(strong) {
            let input = bench.input(&case);
            let kind = KeyContext::read(&CreateMkeyIn::new(&input[..]).expect("whole").memory_key_mkey_entry()).kind();
            let answer = bench.rig.exec(&input, 16);
            let expected = if kind == exempt { (0, 0) } else { (BAD_PARAM, policy::syn::STRONG_WRITE.0) };
            assert_eq!((answer.status(), answer.syndrome()), expected, "{exempt:?}: {kind:?}");
        }
    }
}
