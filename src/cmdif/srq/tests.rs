use super::super::buffer;
use super::super::error::{common, objects, pas};
use super::syn;
use crate::cmdif::error::Syndrome;
use crate::prm::srq::{CreateRmpIn, CreateSrqIn, CreateXrcSrqIn, ModifyRmpIn, Rmpc, Srqc, XrcSrqc};
use crate::prm::status::Status;
use crate::profile::Profile;
use crate::testing::queues::{QueueRig, fill_pas, number};
use crate::testing::{Answer, Rig};

fn refused(answer: Answer, status: Status, syndrome: Syndrome) {
    assert_eq!((answer.delivery, answer.status(), answer.syndrome()), (0, status.0, syndrome.0));
}

fn modify_rmp(rig: &mut QueueRig, rmpn: u32, state: (u32, u32), lwm: Option<u32>) -> Answer {
    let mut input = ModifyRmpIn::zeroed();
    input.set_opcode(0x90d);
    input.set_rmpn(rmpn);
    input.set_rmp_state(state.0);
    input.ctx_mut().set_state(state.1);
    if let Some(lwm) = lwm {
        input.bitmask_mut().set_lwm(1);
        input.ctx_mut().wq_mut().set_lwm(lwm);
    }
    rig.exec(input.as_bytes(), 16)
}

fn query_rmp(rig: &mut QueueRig, rmpn: u32) -> Rmpc<Vec<u8>> {
    let out = rig.ok(&QueueRig::naming(0x90f, rmpn), 0x110);
    Rmpc::new(out[0x20..].to_vec()).expect("a context")
}

fn query_xrc_srq(rig: &mut QueueRig, srqn: u32) -> XrcSrqc<Vec<u8>> {
    let out = rig.ok(&QueueRig::naming(0x707, srqn), 0x118);
    XrcSrqc::new(out[0x10..0x50].to_vec()).expect("a context")
}

fn arm_xrc_srq(rig: &mut QueueRig, srqn: u32, lwm: u16) -> Answer {
    let mut input = QueueRig::naming(0x708, srqn);
    input[7] = 1;
    input[14..16].copy_from_slice(&lwm.to_be_bytes());
    rig.exec(&input, 16)
}

/// The number of a shared receive queue whose limit event was delivered.
fn limit_event(rig: &mut QueueRig) -> Option<u32> {
    let eqe = rig.take_async_event()?;
    assert_eq!(eqe[1], 0x14);
    Some(u32::from_be_bytes([0, eqe[0x39], eqe[0x3a], eqe[0x3b]]))
}

#[test]
fn a_pool_reads_back_with_its_live_counters() {
    let mut rig = QueueRig::new();
    let pd = rig.pd();
    let (input, record) = rig.create_rmp_in(pd, 4);
    let rmpn = number(&rig.ok(input.as_bytes(), 16));
    rig.write(record, &9u32.to_be_bytes());
    let context = query_rmp(&mut rig, rmpn);
    let wq = context.wq();
    assert_eq!((context.state(), wq.pd(), wq.log_wq_sz(), wq.log_wq_stride()), (1, pd, 4, 5));
    assert_eq!((wq.dbr_addr(), wq.sw_counter(), wq.hw_counter(), wq.lwm()), (record, 9, 0, 0));
    refused(rig.exec(&QueueRig::naming(0x801, pd), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    rig.ok(&QueueRig::naming(0x90e, rmpn), 16);
    refused(rig.exec(&QueueRig::naming(0x90e, rmpn), 16), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    refused(rig.exec(&QueueRig::naming(0x90f, rmpn), 0x110), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    rig.ok(&QueueRig::naming(0x801, pd), 16);
}

#[test]
fn pools_that_the_device_cannot_serve_are_refused() {
    type Change = fn(&mut CreateRmpIn);
    let cases: &[(Change, Syndrome)] = &[
        (|i| i.ctx_mut().set_state(0), syn::STATE),
        (|i| i.ctx_mut().set_state(3), syn::STATE),
        (|i| i.ctx_mut().set_basic_cyclic_rcv_wqe(1), syn::CYCLIC),
        (|i| i.ctx_mut().wq_mut().set_wq_type(1), syn::WQ_TYPE),
        (|i| i.ctx_mut().wq_mut().set_wq_type(2), syn::WQ_TYPE),
        (|i| i.ctx_mut().wq_mut().set_log_wq_sz(17), syn::TOO_LARGE),
        (|i| i.ctx_mut().wq_mut().set_log_wq_sz(31), syn::TOO_LARGE),
        (|i| i.ctx_mut().wq_mut().set_log_wq_stride(4), syn::STRIDE),
        (|i| i.ctx_mut().wq_mut().set_log_wq_stride(10), syn::STRIDE),
        (|i| i.ctx_mut().wq_mut().set_wq_signature(1), syn::SIGNATURE),
        (|i| i.ctx_mut().wq_mut().set_lwm(17), syn::LIMIT),
        (|i| i.ctx_mut().wq_mut().set_dbr_addr(0x1004), buffer::syn::RECORD_MISALIGNED),
        (|i| i.ctx_mut().wq_mut().set_log_wq_sz(8), pas::TOO_FEW),
        (|i| i.ctx_mut().wq_mut().pas_mut()[6] = 0, pas::MISALIGNED),
    ];
    let mut rig = QueueRig::new();
    let pd = rig.pd();
    for (n, (change, syndrome)) in cases.iter().enumerate() {
        let (mut input, _) = rig.create_rmp_in(pd, 4);
        if *syndrome == pas::MISALIGNED {
            input.ctx_mut().wq_mut().set_log_wq_pg_sz(20);
        } else {
            change(&mut input);
        }
        let answer = rig.exec(input.as_bytes(), 16);
        assert_eq!((answer.status(), Syndrome(answer.syndrome())), (Status::BAD_PARAM_ERR.0, *syndrome), "case {n}");
    }
    let (input, _) = rig.create_rmp_in(pd + 1, 4);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    let (mut input, _) = rig.create_rmp_in(pd, 4);
    input.ctx_mut().wq_mut().set_wq_umem_valid(1);
    input.ctx_mut().wq_mut().set_wq_umem_id(0x1234);
    assert_eq!(rig.exec(input.as_bytes(), 16).status(), Status::BAD_RES_ERR.0);
    assert_eq!(rig.function.hca().objects.rmps.len(), 0);
}

#[test]
fn a_limit_is_armed_once_and_fires_when_too_few_entries_wait() {
    let mut rig = QueueRig::new();
    let pd = rig.pd();
    let (input, record) = rig.create_rmp_in(pd, 4);
    let rmpn = number(&rig.ok(input.as_bytes(), 16));
    rig.write(record, &10u32.to_be_bytes());
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 1), Some(7)).status(), 0);
    assert_eq!(limit_event(&mut rig), None);
    assert_eq!(query_rmp(&mut rig, rmpn).wq().lwm(), 7);
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 1), Some(11)).status(), 0);
    assert_eq!(limit_event(&mut rig), Some(rmpn));
    assert_eq!(query_rmp(&mut rig, rmpn).wq().lwm(), 0, "fired and disarmed");
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 1), Some(10)).status(), 0);
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 1), None).status(), 0);
    assert_eq!(query_rmp(&mut rig, rmpn).wq().lwm(), 10, "not selected, not changed");
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 1), Some(0)).status(), 0);
    assert_eq!((query_rmp(&mut rig, rmpn).wq().lwm(), limit_event(&mut rig)), (0, None));
    refused(modify_rmp(&mut rig, rmpn, (1, 1), Some(17)), Status::BAD_PARAM_ERR, syn::LIMIT);
}

#[test]
fn a_pool_changes_state_only_as_the_prm_has_it() {
    let mut rig = QueueRig::new();
    let pd = rig.pd();
    let rmpn = rig.create_rmp(pd);
    refused(modify_rmp(&mut rig, rmpn, (3, 3), None), Status::BAD_RES_STATE_ERR, syn::WRONG_STATE);
    refused(modify_rmp(&mut rig, rmpn, (1, 0), None), Status::BAD_PARAM_ERR, syn::STATE);
    assert_eq!(modify_rmp(&mut rig, rmpn, (1, 3), None).status(), 0);
    assert_eq!(query_rmp(&mut rig, rmpn).state(), 3);
    refused(modify_rmp(&mut rig, rmpn, (3, 1), None), Status::BAD_PARAM_ERR, syn::STATE);
    assert_eq!(modify_rmp(&mut rig, rmpn, (3, 3), None).status(), 0);
    let mut input = ModifyRmpIn::zeroed();
    input.set_opcode(0x90d);
    input.set_rmpn(rmpn);
    input.set_rmp_state(3);
    input.ctx_mut().set_state(3);
    input.as_bytes_mut()[0x10] = 0x80;
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_PARAM_ERR, syn::UNKNOWN_FIELD);
}

#[test]
fn an_xrc_queue_holds_its_domain_its_completion_queue_and_its_protection_domain() {
    let mut rig = QueueRig::new();
    let (pd, xrcd, cqn) = (rig.pd(), rig.xrcd(), rig.create_cq(3));
    let (mut input, record) = rig.create_xrc_srq_in(pd, xrcd, cqn);
    input.xrc_srq_context_entry_mut().set_user_index_equal_xrc_srqn(1);
    let srqn = number(&rig.ok(input.as_bytes(), 16));
    rig.write(record, &5u32.to_be_bytes());
    let context = query_xrc_srq(&mut rig, srqn);
    assert_eq!((context.pd(), context.xrcd(), context.cqn(), context.user_index()), (pd, xrcd, cqn, srqn));
    assert_eq!((context.wqe_cnt(), context.lwm(), context.state()), (5, 0, 0));
    for (opcode, id) in [(0x801, pd), (0x80f, xrcd), (0x401, cqn)] {
        refused(rig.exec(&QueueRig::naming(opcode, id), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    }
    assert_eq!(arm_xrc_srq(&mut rig, srqn, 5).status(), 0);
    assert_eq!((limit_event(&mut rig), query_xrc_srq(&mut rig, srqn).lwm()), (None, 5));
    assert_eq!(arm_xrc_srq(&mut rig, srqn, 6).status(), 0);
    assert_eq!((limit_event(&mut rig), query_xrc_srq(&mut rig, srqn).lwm()), (Some(srqn), 0));
    refused(arm_xrc_srq(&mut rig, srqn, 17), Status::BAD_PARAM_ERR, syn::LIMIT);
    refused(rig.exec(&QueueRig::naming(0x708, srqn), 16), Status::BAD_PARAM_ERR, common::UNKNOWN_OP_MOD);
    for (opcode, id) in [(0x706, srqn), (0x801, pd), (0x80f, xrcd), (0x401, cqn)] {
        rig.ok(&QueueRig::naming(opcode, id), 16);
    }
}

#[test]
fn xrc_queues_that_the_device_cannot_serve_are_refused() {
    type Change = fn(&mut CreateXrcSrqIn);
    let cases: &[(Change, Status, Syndrome)] = &[
        (|i| i.set_xrc_srq_umem_valid(1), Status::BAD_PARAM_ERR, syn::USER_MEMORY),
        (|i| i.xrc_srq_context_entry_mut().set_dbr_umem_valid(1), Status::BAD_PARAM_ERR, syn::USER_MEMORY),
        (|i| i.xrc_srq_context_entry_mut().set_log_rq_stride(0), Status::BAD_PARAM_ERR, syn::STRIDE),
        (|i| i.xrc_srq_context_entry_mut().set_log_rq_stride(6), Status::BAD_PARAM_ERR, syn::STRIDE),
        (|i| i.xrc_srq_context_entry_mut().set_wq_signature(1), Status::BAD_PARAM_ERR, syn::SIGNATURE),
        (|i| i.xrc_srq_context_entry_mut().set_cont_srq(1), Status::BAD_PARAM_ERR, syn::CONTINUOUS),
        (|i| i.xrc_srq_context_entry_mut().set_basic_cyclic_rcv_wqe(1), Status::BAD_PARAM_ERR, syn::CYCLIC),
        (|i| i.xrc_srq_context_entry_mut().set_log_page_size(63), Status::BAD_PARAM_ERR, pas::PAGE_SIZE),
        (|i| i.xrc_srq_context_entry_mut().set_xrcd(99), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
        (|i| i.xrc_srq_context_entry_mut().set_cqn(99), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
        (|i| i.xrc_srq_context_entry_mut().set_pd(0), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY),
    ];
    let mut rig = QueueRig::new();
    let (pd, xrcd, cqn) = (rig.pd(), rig.xrcd(), rig.create_cq(3));
    for (n, (change, status, syndrome)) in cases.iter().enumerate() {
        let (mut input, _) = rig.create_xrc_srq_in(pd, xrcd, cqn);
        change(&mut input);
        let answer = rig.exec(input.as_bytes(), 16);
        assert_eq!((answer.status(), Syndrome(answer.syndrome())), (status.0, *syndrome), "case {n}");
    }
    // Nothing of the refused ones holds anything.
    for (opcode, id) in [(0x801, pd), (0x80f, xrcd), (0x401, cqn)] {
        rig.ok(&QueueRig::naming(opcode, id), 16);
    }
    let mut rig = QueueRig::with(Profile::with("connectx10-c2c", &["caps.general.xrc=0"]).expect("a profile"));
    refused(rig.exec(&Rig::input(0x705, 0, 0x118), 16), Status::BAD_OP_ERR, syn::NOT_CAPABLE);
}

#[test]
fn the_numbers_of_all_shared_receive_queues_differ() {
    let mut rig = QueueRig::new();
    let (pd, xrcd, cqn) = (rig.pd(), rig.xrcd(), rig.create_cq(3));
    let numbers = [rig.create_rmp(pd), rig.create_xrc_srq(pd, xrcd, cqn), rig.create_rmp(pd)];
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
    refused(rig.exec(&QueueRig::naming(0x706, numbers[0]), 16), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
}

#[test]
fn the_old_commands_belong_to_interface_step_0() {
    let mut rig = QueueRig::new();
    let pd = rig.pd();
    let (at, record) = (rig.memory(512), rig.memory(8));
    let mut input = CreateSrqIn::with_tail(8);
    input.set_opcode(0x700);
    let mut context = input.srq_context_entry_mut();
    context.set_log_srq_size(4);
    context.set_log_rq_stride(1);
    context.set_pd(pd);
    context.set_dbr_addr(record);
    fill_pas(input.pas_mut(), at);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_OP_ERR, syn::INTERFACE_STEP);

    rig.tear_down();
    rig.forget_pages();
    rig.ok(&Rig::input(0x104, 0, 16), 16);
    rig.give_pages(1);
    rig.give_pages(2);
    rig.ok(&Rig::input(0x102, 0, 32), 16);
    let pd = rig.pd();
    input.srq_context_entry_mut().set_pd(pd);
    let srqn = number(&rig.ok(input.as_bytes(), 16));
    rig.write(record, &3u32.to_be_bytes());
    let mut arm = QueueRig::naming(0x703, srqn);
    arm[7] = 1;
    arm[15] = 2;
    rig.ok(&arm, 16);
    let out = rig.ok(&QueueRig::naming(0x702, srqn), 0x118);
    let context = Srqc::new(&out[0x10..0x50]).expect("a context");
    assert_eq!((context.lwm(), context.wqe_cnt(), context.pd(), context.state()), (2, 3, pd, 0));
    assert_eq!(out[0x110..], at.to_be_bytes());
    arm[7] = 2;
    refused(rig.exec(&arm, 16), Status::BAD_PARAM_ERR, common::UNKNOWN_OP_MOD);
    rig.ok(&QueueRig::naming(0x701, srqn), 16);
}

#[test]
fn tag_matching_queues_are_not_served() {
    let mut rig = QueueRig::new();
    for opcode in [0x717u16, 0x718, 0x719, 0x71a, 0x710, 0x711] {
        let answer = rig.exec(&Rig::input(opcode, 0, 0x150), 16);
        refused(answer, Status::BAD_OP_ERR, common::UNKNOWN_OPCODE);
    }
}
