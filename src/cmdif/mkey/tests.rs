//! Tests of the memory key commands, through the command queue.

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

    let (mut rig, pd) = up_with("connectx7", &[]);
    rig.ok(&window(pd), 16);
    let summary = rig.function.summary();
    assert_eq!(summary.keys.strict_tolerated.get("window"), Some(&1));
    assert_eq!(summary.verdict(), crate::trace::Verdict::Clean);
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
