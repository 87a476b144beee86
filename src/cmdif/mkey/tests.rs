//! Tests of the memory key commands, through the command queue.

mod refusals;

use super::*;
use crate::cmdif::error::objects;
use crate::prm::mkey::Mkc;
use crate::prm::pd::AllocPdOut;
use crate::profile::Profile;
use crate::testing::{Answer, Rig};

const BAD_PARAM: u8 = 3;
const BAD_RES: u8 = 5;

/// A running function and a protection domain.
fn up_with(profile: &str, sets: &[&str]) -> (Rig, u32) {
    let mut rig = Rig::new(Profile::with(profile, sets).expect("a legal profile"));
    rig.bring_up();
    let pd = AllocPdOut::new(rig.ok(&Rig::input(Opcode::ALLOC_PD.0, 0, 16), 16)).expect("16 bytes").pd();
    (rig, pd)
}

fn up() -> (Rig, u32) {
    up_with("connectx10-c2c", &[])
}

/// The command for a relaxed key on DMA addresses as kernel domains make it, changed by `edit`.
fn create(pd: u32, list: &[u64], edit: impl FnOnce(&mut CreateMkeyIn)) -> Vec<u8> {
    let mut input = CreateMkeyIn::with_tail(8 * list.len());
    input.set_opcode(u32::from(Opcode::CREATE_MKEY.0));
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_relaxed_ordering_write(1);
    mkc.set_relaxed_ordering_read(1);
    mkc.set_lr(1);
    mkc.set_lw(1);
    mkc.set_qpn(0xff_ffff);
    mkc.set_length64(1);
    mkc.set_pd(pd);
    for (slot, word) in input.klm_pas_mtt_mut().chunks_exact_mut(8).zip(list) {
        slot.copy_from_slice(&word.to_be_bytes());
    }
    edit(&mut input);
    input.into_inner()
}

/// The same as a region of two pages at address 0x10_0800.
fn region(pd: u32, edit: impl FnOnce(&mut CreateMkeyIn)) -> Vec<u8> {
    create(pd, &[0x10_0000, 0x20_0000], |input| {
        input.set_translations_octword_actual_size(1);
        let mut mkc = input.memory_key_mkey_entry_mut();
        mkc.set_access_mode_1_0(1);
        mkc.set_length64(0);
        mkc.set_umr_en(1);
        mkc.set_start_addr(0x7000_0800);
        mkc.set_len(0x1800);
        mkc.set_log_page_size(12);
        mkc.set_translations_octword_size(1);
        edit(input);
    })
}

fn mkc(input: &mut CreateMkeyIn) -> Mkc<&mut [u8]> {
    input.memory_key_mkey_entry_mut()
}

fn index(out: &[u8]) -> u32 {
    CreateMkeyOut::new(out).expect("16 bytes").mkey_index()
}

fn by_index(opcode: Opcode, index: u32) -> Vec<u8> {
    let mut input = Rig::input(opcode.0, 0, 16);
    input[8..12].copy_from_slice(&index.to_be_bytes());
    input
}

fn refused(answer: &Answer) -> (u8, u32) {
    assert_eq!(answer.delivery, 0);
    (answer.status(), answer.syndrome())
}

#[test]
fn a_key_is_created_queried_and_destroyed() {
    let (mut rig, pd) = up();
    let input = region(pd, |input| mkc(input).set_mkey_7_0(0xa5));
    let index = index(&rig.ok(&input, 16));
    assert!(index >= crate::mkey::reserved::FIRST_INDEX);
    let out = QueryMkeyOut::new(rig.ok(&by_index(Opcode::QUERY_MKEY, index), QueryMkeyOut::SIZE)).expect("whole");
    let written = CreateMkeyIn::new(&input[..]).expect("whole");
    assert_eq!(out.memory_key_mkey_entry().as_bytes(), written.memory_key_mkey_entry().as_bytes());
    assert_eq!(out.bsf0_klm0_pas_mtt0_1()[..], written.klm_pas_mtt()[..16]);
    rig.ok(&by_index(Opcode::DESTROY_MKEY, index), 16);
    let gone = (BAD_RES, objects::NO_SUCH_OBJECT.0);
    assert_eq!(refused(&rig.exec(&by_index(Opcode::DESTROY_MKEY, index), 16)), gone);
    assert_eq!(refused(&rig.exec(&by_index(Opcode::QUERY_MKEY, index), 16)), gone);
}

#[test]
fn a_protection_domain_cannot_be_freed_under_a_key() {
    let (mut rig, pd) = up();
    let index = index(&rig.ok(&create(pd, &[], |_| {}), 16));
    let mut dealloc = Rig::input(Opcode::DEALLOC_PD.0, 0, 16);
    dealloc[8..12].copy_from_slice(&pd.to_be_bytes());
    assert_eq!(refused(&rig.exec(&dealloc, 16)), (9, objects::IN_USE.0));
    rig.ok(&by_index(Opcode::DESTROY_MKEY, index), 16);
    rig.ok(&dealloc, 16);
    let missing = rig.exec(&create(pd, &[], |_| {}), 16);
    assert_eq!(refused(&missing), (BAD_RES, objects::NO_SUCH_DEPENDENCY.0));
}

/// A memory window as ibv_alloc_mw asks for it.
fn window(pd: u32) -> Vec<u8> {
    create(pd, &[], |input| {
        let mut mkc = mkc(input);
        mkc.set_relaxed_ordering_write(0);
        mkc.set_relaxed_ordering_read(0);
        mkc.set_lw(0);
        mkc.set_length64(0);
        mkc.set_free(1);
        mkc.set_umr_en(1);
        mkc.set_access_mode_1_0(2);
        mkc.set_translations_octword_size(4);
    })
}

#[test]
fn a_window_is_refused_with_a_reason_by_the_strict_profile_and_granted_by_connectx7() {
    let (mut rig, pd) = up();
    for _ in 0..2 {
        assert_eq!(refused(&rig.exec(&window(pd), 16)), (BAD_PARAM, policy::syn::STRONG_WRITE.0));
    }
    let summary = rig.function.summary();
    let [refusal] = &summary.keys.refused[..] else { panic!("{:?}", summary.keys.refused) };
    assert_eq!((refusal.kind.as_str(), refusal.via.as_str(), refusal.count), ("window", "CREATE_MKEY", 2));
    assert_eq!((refusal.field.as_str(), refusal.value, refusal.ordering), ("relaxed_ordering_write", 0, true));
    assert_eq!((refusal.access.as_str(), refusal.pd, refusal.uid), ("lr", pd, 0));
    assert_eq!(refusal.driver_path, "ibv_alloc_mw type 1 (IB/mr.c:mlx5_ib_alloc_mw)");
    assert_eq!(summary.verdict(), crate::trace::Verdict::ContractViolation);

    // Where a UMR may yet make it relaxed it is counted as tolerated when it is bound, elsewhere at once.
    for (by_umr, tolerated) in [("1", None), ("0", Some(&1))] {
        let (mut rig, pd) = up_with("connectx7", &[&format!("caps.general.relaxed_ordering_write_umr={by_umr}")]);
        rig.ok(&window(pd), 16);
        let summary = rig.function.summary();
        assert_eq!(
            (summary.keys.created.get("window"), summary.keys.strict_tolerated.get("window")),
            (Some(&1), tolerated)
        );
        assert_eq!(summary.verdict(), crate::trace::Verdict::Clean);
    }
}

#[test]
fn an_exempt_kind_is_granted_and_counted_as_tolerated() {
    let (mut rig, pd) = up_with("connectx10-c2c", &["mkey.exempt=window"]);
    rig.ok(&window(pd), 16);
    assert_eq!(rig.function.summary().keys.strict_tolerated.get("window"), Some(&1));
    let strong = rig.exec(&create(pd, &[], |input| mkc(input).set_relaxed_ordering_write(0)), 16);
    assert_eq!(refused(&strong), (BAD_PARAM, policy::syn::STRONG_WRITE.0));
}

#[test]
fn relaxed_reads_follow_the_pcie_enable_bit_when_only_that_allows_them() {
    let (mut rig, pd) = up_with("connectx10-c2c", &["caps.general.relaxed_ordering_read=0"]);
    rig.ok(&create(pd, &[], |_| {}), 16);
    // Device Control of the PCIe capability: clear everything.
    rig.function.config_write(crate::device::config_space::at::DEVCTL as u64, &[0, 0]);
    let answer = rig.exec(&create(pd, &[], |_| {}), 16);
    assert_eq!(refused(&answer), (BAD_PARAM, policy::syn::READ_NOT_CAPABLE.0));
    rig.ok(&create(pd, &[], |input| mkc(input).set_relaxed_ordering_read(0)), 16);
}

#[test]
fn the_withdrawn_encoding_is_reported_where_the_configuration_says_so() {
    let set_two = |input: &mut CreateMkeyIn| mkc(input).set_order_read_after_write(2);
    let (mut rig, pd) = up();
    let answer = rig.exec(&create(pd, &[], set_two), 16);
    assert_eq!(refused(&answer), (BAD_PARAM, policy::syn::RAW_WITHDRAWN.0));
    let (mut rig, pd) = up_with("connectx10-c2c", &["mkey.raw_encoding_2=report"]);
    rig.ok(&create(pd, &[], set_two), 16);
    assert_eq!(rig.function.summary().violations.get("order_read_after_write = 2"), Some(&1));
}

#[test]
fn keys_are_counted_through_destruction_and_reset() {
    let (mut rig, pd) = up();
    let index = index(&rig.ok(&create(pd, &[], |_| {}), 16));
    rig.ok(&create(pd, &[], |_| {}), 16);
    rig.ok(&by_index(Opcode::DESTROY_MKEY, index), 16);
    assert_eq!(rig.function.summary().keys.destroyed, 1);
    rig.function.reset(crate::device::function::ResetKind::Vmm);
    let keys = rig.function.summary().keys;
    assert_eq!((keys.created.get("pa"), keys.relaxed, keys.destroyed), (Some(&2), 2, 2));
}

/// A user context that owns a domain and a region of two pages with the given rights.
fn user(rig: &mut Rig, rights: u64) -> (u16, u32, u32) {
    let mut uctx = Rig::input(Opcode::CREATE_UCTX.0, 0, 64);
    uctx[16..20].copy_from_slice(&3u32.to_be_bytes());
    let out = rig.ok(&uctx, 16);
    let uid = u16::from_be_bytes([out[10], out[11]]);
    let mut pd = Rig::input(Opcode::ALLOC_PD.0, 0, 16);
    pd[2..4].copy_from_slice(&uid.to_be_bytes());
    let pd = AllocPdOut::new(rig.ok(&pd, 16)).expect("16 bytes").pd();
    let mut umem = crate::prm::devx::CreateUmemIn::with_tail(16);
    umem.set_opcode(u32::from(Opcode::CREATE_UMEM.0));
    umem.set_uid(u32::from(uid));
    umem.umem_mut().set_num_of_mtt(2);
    umem.umem_mut().set_page_offset(0x800);
    for (slot, page) in umem.umem_mut().mtt_mut().chunks_exact_mut(8).zip([0x10_0000, 0x30_0000]) {
        slot.copy_from_slice(&(page | rights).to_be_bytes());
    }
    let out = rig.ok(umem.as_bytes(), 16);
    (uid, pd, crate::prm::devx::CreateUmemOut::new(out).expect("16 bytes").umem_id())
}

/// A key on all of a user memory region.
fn on_umem(uid: u16, pd: u32, umem: u32, edit: impl FnOnce(&mut CreateMkeyIn)) -> Vec<u8> {
    region(pd, |input| {
        input.set_uid(u32::from(uid));
        input.set_mkey_umem_valid(1);
        input.set_mkey_umem_id(umem);
        edit(input);
    })
}

#[test]
fn a_key_takes_its_pages_from_user_memory_and_keeps_it_alive() {
    let (mut rig, _) = up();
    let (uid, pd, umem) = user(&mut rig, 3);
    let index = index(&rig.ok(&on_umem(uid, pd, umem, |_| {}), 16));
    let mut destroy_umem = Rig::input(Opcode::DESTROY_UMEM.0, 0, 16);
    destroy_umem[2..4].copy_from_slice(&uid.to_be_bytes());
    destroy_umem[8..12].copy_from_slice(&umem.to_be_bytes());
    assert_eq!(refused(&rig.exec(&destroy_umem, 16)), (9, objects::IN_USE.0));
    let mut destroy = by_index(Opcode::DESTROY_MKEY, index);
    destroy[2..4].copy_from_slice(&uid.to_be_bytes());
    rig.ok(&destroy, 16);
    rig.ok(&destroy_umem, 16);
}

#[test]
fn keys_on_user_memory_stay_inside_it_and_within_its_rights() {
    let (mut rig, _) = up();
    let (uid, pd, umem) = user(&mut rig, 1);
    let mut check = |edit: fn(&mut CreateMkeyIn), expected: (u8, Syndrome)| {
        let answer = rig.exec(&on_umem(uid, pd, umem, edit), 16);
        assert_eq!(refused(&answer), (expected.0, expected.1.0));
    };
    check(|_| {}, (BAD_PARAM, syn::UMEM_RIGHTS));
    check(|i| mkc(i).set_len(0x1801), (BAD_PARAM, syn::UMEM_RANGE));
    check(|i| mkc(i).set_length64(1), (BAD_PARAM, syn::UMEM_RANGE));
    check(|i| i.set_mkey_umem_offset(1), (BAD_PARAM, syn::UMEM_RANGE));
    check(|i| i.set_mkey_umem_offset(u64::MAX), (BAD_PARAM, syn::UMEM_RANGE));
    check(|i| i.set_mkey_umem_id(0xff_ffff), (BAD_RES, objects::NO_SUCH_DEPENDENCY));
    check(|i| i.set_mkey_umem_id(0xffff_ffff), (BAD_RES, objects::NO_SUCH_DEPENDENCY));
    check(
        |i| {
            mkc(i).set_access_mode_1_0(2);
            mkc(i).set_lw(0);
        },
        (BAD_PARAM, syn::UMEM_MODE),
    );
    // What UCX sends: neither page size nor list sizes.
    let input = on_umem(uid, pd, umem, |i| {
        mkc(i).set_lw(0);
        mkc(i).set_log_page_size(0);
        mkc(i).set_translations_octword_size(0);
    });
    rig.ok(&input, 16);
}

#[test]
fn a_user_context_cannot_reach_dma_addresses_nor_foreign_objects() {
    let (mut rig, kernel_pd) = up();
    let (uid, pd, _) = user(&mut rig, 3);
    let (other, other_pd, other_umem) = user(&mut rig, 3);
    let direct = create(pd, &[], |i| i.set_uid(u32::from(uid)));
    assert_eq!(refused(&rig.exec(&direct, 16)), (BAD_PARAM, syn::PRIVILEGED_MODE.0));
    for (uid, pd, umem) in [(uid, pd, other_umem), (other, kernel_pd, other_umem), (uid, other_pd, other_umem)] {
        let answer = rig.exec(&on_umem(uid, pd, umem, |_| {}), 16);
        assert_eq!(refused(&answer), (BAD_RES, objects::DEPENDENCY_NOT_OWNED.0));
    }
    let key = index(&rig.ok(&on_umem(other, other_pd, other_umem, |_| {}), 16));
    let mut query = by_index(Opcode::QUERY_MKEY, key);
    query[2..4].copy_from_slice(&uid.to_be_bytes());
    assert_eq!(refused(&rig.exec(&query, 304)), (BAD_RES, objects::NOT_OWNER.0));
}

#[test]
fn a_device_memory_key_lies_in_one_allocation_and_holds_it() {
    let (mut rig, pd) = up();
    let mut alloc = crate::prm::pd::AllocMemicIn::zeroed();
    alloc.set_opcode(u32::from(Opcode::ALLOC_MEMIC.0));
    alloc.set_range_start_addr(BAR_OFFSET);
    alloc.set_range_size(4096);
    alloc.set_memic_size(128);
    rig.ok(alloc.as_bytes(), 16);
    let key = |start: u64, len: u64, octwords: u32| {
        create(pd, &[0, 0], |input| {
            input.set_translations_octword_actual_size(octwords);
            let mut mkc = mkc(input);
            mkc.set_access_mode_4_2(1);
            mkc.set_access_mode_1_0(1);
            mkc.set_length64(0);
            mkc.set_start_addr(start);
            mkc.set_len(len);
        })
    };
    for (start, len) in [(BAR_OFFSET + 1, 128), (BAR_OFFSET, 129), (BAR_OFFSET + 128, 0), (0, 64), (u64::MAX, 1)] {
        let answer = rig.exec(&key(start, len, 0), 16);
        assert_eq!(refused(&answer), (BAD_PARAM, syn::MEMIC_RANGE.0), "{start:#x} {len:#x}");
    }
    assert_eq!(refused(&rig.exec(&key(BAR_OFFSET, 64, 1), 16)), (BAD_PARAM, syn::LIST_IN_MODE.0));
    let empty = index(&rig.ok(&key(BAR_OFFSET, 0, 0), 16));
    rig.ok(&by_index(Opcode::DESTROY_MKEY, empty), 16);
    let index = index(&rig.ok(&key(BAR_OFFSET + 64, 64, 0), 16));
    let mut dealloc = crate::prm::pd::DeallocMemicIn::zeroed();
    dealloc.set_opcode(u32::from(Opcode::DEALLOC_MEMIC.0));
    dealloc.set_memic_start_addr(BAR_OFFSET);
    dealloc.set_memic_size(128);
    assert_eq!(refused(&rig.exec(dealloc.as_bytes(), 16)), (9, objects::IN_USE.0));
    rig.ok(&by_index(Opcode::DESTROY_MKEY, index), 16);
    rig.ok(dealloc.as_bytes(), 16);
}

/// The driver makes its keys for data direct as soon as it sees the capability, a strong one first
/// (kernel `mlx5_ib main.c:mlx5_ib_create_data_direct_resources`).
#[test]
fn data_direct_keys_are_judged_and_lead_nowhere() {
    let sets = ["caps.general.data_direct=1"];
    let mut rig = Rig::new(Profile::with("connectx10-c2c", &sets).expect("a legal profile"));
    rig.bring_up();
    let pd = AllocPdOut::new(rig.ok(&Rig::input(Opcode::ALLOC_PD.0, 0, 16), 16)).expect("16 bytes").pd();
    let key = |relaxed: u32, mode: u32| {
        let mut input = CreateMkeyIn::zeroed();
        input.set_opcode(Opcode::CREATE_MKEY.0.into());
        input.set_data_direct(1);
        let mut mkc = input.memory_key_mkey_entry_mut();
        mkc.set_lw(1);
        mkc.set_lr(1);
        mkc.set_pd(pd);
        mkc.set_length64(1);
        mkc.set_qpn(0xff_ffff);
        mkc.set_access_mode_1_0(mode);
        mkc.set_relaxed_ordering_write(relaxed);
        input.into_inner()
    };
    assert_eq!(refused(&rig.exec(&key(0, 0), 16)), (BAD_PARAM, crate::mkey::policy::syn::STRONG_WRITE.0));
    assert_eq!(refused(&rig.exec(&key(1, 1), 16)), (BAD_PARAM, syn::DATA_DIRECT_MODE.0));
    let index = CreateMkeyOut::new(rig.ok(&key(1, 0), 16)).expect("16 bytes").mkey_index();
    let list = &rig.function.hca().objects.mkeys.get(index).expect("created above").object.list;
    assert_eq!(*list, Translations::DataDirect);
}

#[test]
fn contexts_that_the_device_cannot_have_are_refused_each_by_its_own_check() {
    let (mut rig, pd) = up();
    let mut check = |edit: fn(&mut CreateMkeyIn), syndrome: Syndrome| {
        let answer = rig.exec(&region(pd, edit), 16);
        assert_eq!(refused(&answer), (BAD_PARAM, syndrome.0), "{:?}", syndrome);
    };
    check(|i| i.set_data_direct(1), syn::DATA_DIRECT);
    check(|i| mkc(i).as_bytes_mut()[0] |= 0x80, context::RESERVED_BIT);
    check(|i| mkc(i).as_bytes_mut()[0x3f] |= 1, context::RESERVED_BIT);
    check(|i| mkc(i).set_access_mode_4_2(7), context::UNKNOWN_MODE);
    check(
        |i| {
            mkc(i).set_access_mode_4_2(1);
            mkc(i).set_access_mode_1_0(0);
        },
        context::SW_ICM,
    );
    check(
        |i| {
            mkc(i).set_access_mode_4_2(1);
            mkc(i).set_access_mode_1_0(2);
        },
        context::CROSSING,
    );
    check(
        |i| {
            mkc(i).set_access_mode_4_2(1);
            mkc(i).set_length64(1);
        },
        context::LENGTH64,
    );
    check(|i| mkc(i).set_access_mode_4_2(1), context::NO_LIST_IN_MODE);
    check(|i| mkc(i).set_crossing_target_vhca_id(1), context::CROSSING_TARGET);
    check(|i| mkc(i).set_ma_translation_mode(1), context::TRANSLATION_MODE);
    check(|i| mkc(i).set_bsf_en(1), context::INTEGRITY);
    check(|i| mkc(i).set_bsf_octword_size(4), context::INTEGRITY);
    check(|i| mkc(i).set_expected_sigerr_count(1), context::INTEGRITY);
    check(|i| mkc(i).set_sync_umr(1), context::SYNC_UMR);
    check(|i| mkc(i).set_pcie_tph_en(1), context::TPH);
    check(|i| mkc(i).set_start_addr(u64::MAX), context::RANGE);
    check(|i| mkc(i).set_len(u64::MAX), context::RANGE);
    check(|i| mkc(i).set_log_page_size(11), context::PAGE_SIZE);
    check(|i| mkc(i).set_log_page_size(0), context::PAGE_SIZE);
    check(|i| mkc(i).set_log_page_size(63), context::PAGE_SIZE);
    check(|i| mkc(i).set_len(0x1801), context::CAPACITY);
    check(|i| mkc(i).set_length64(1), context::CAPACITY);
    check(|i| i.set_translations_octword_actual_size(2), syn::LIST_TOO_LONG);
    check(|i| i.set_translations_octword_actual_size(u32::MAX), syn::LIST_TOO_LONG);
    check(
        |i| {
            mkc(i).set_translations_octword_size(u32::MAX);
            i.set_translations_octword_actual_size(u32::MAX);
        },
        syn::LIST_MISSING,
    );
    check(
        |i| {
            mkc(i).set_log_page_size(13);
            i.klm_pas_mtt_mut()[6] = 0x10;
        },
        syn::MISALIGNED,
    );
    let (mut rig, pd) =
        up_with("connectx10-c2c", &["caps.general.fixed_buffer_size=0", "caps.general.log_max_mrw_sz=12"]);
    let mut check = |edit: fn(&mut CreateMkeyIn), syndrome: Syndrome| {
        let answer = rig.exec(&region(pd, edit), 16);
        assert_eq!(refused(&answer), (BAD_PARAM, syndrome.0), "{:?}", syndrome);
    };
    check(|i| mkc(i).set_access_mode_1_0(3), context::FIXED_SIZE);
    check(|i| mkc(i).set_len(0x1001), context::TOO_LONG);
    check(
        |i| {
            mkc(i).set_access_mode_1_0(2);
            mkc(i).set_translations_octword_size((1 << 16) + 1);
        },
        context::KLM_LIST,
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]

    /// Whatever is in the command, it is answered; what is granted can be queried and destroyed.
    #[test]
    fn no_input_makes_the_device_fail(
        changes in proptest::collection::vec((8usize..CreateMkeyIn::SIZE + 16, 0u8..), 1..64),
        cut in 0usize..64,
    ) {
        let (mut rig, pd) = up_with("connectx7", &[]);
        // Growing sets of changes: early ones often leave a legal key.
        let mut input = region(pd, |_| {});
        for (at, value) in changes {
            input[at] = value;
            let answer = rig.exec(&input[..input.len() - cut], 16);
            assert_eq!(answer.delivery, 0);
            if answer.status() == 0 {
                let index = index(&answer.output);
                rig.ok(&by_index(Opcode::QUERY_MKEY, index), QueryMkeyOut::SIZE);
                rig.ok(&by_index(Opcode::DESTROY_MKEY, index), 16);
            }
        }
        assert!(rig.function.summary().internal_failures.is_empty());
    }
}

#[test]
fn room_for_more_translations_than_the_lent_pages_hold_is_refused() {
    let (mut rig, pd) = up();
    let huge = create(pd, &[], |input| {
        let mut mkc = mkc(input);
        mkc.set_free(1);
        mkc.set_umr_en(1);
        mkc.set_access_mode_1_0(1);
        mkc.set_length64(0);
        mkc.set_translations_octword_size(u32::MAX);
    });
    assert_eq!(refused(&rig.exec(&huge, 16)), (8, crate::cmdif::error::common::NO_ICM_PAGES.0));
    rig.ok(&create(pd, &[], |_| {}), 16);
}
