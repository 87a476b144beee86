use super::super::error::{common, objects, pas};
use super::super::{buffer, mcg};
use super::syn;
use crate::cmdif::error::Syndrome;
use crate::prm::counters::AllocQCounterOut;
use crate::prm::qp::{AttachToMcgIn, CreateQpIn, Qpc};
use crate::prm::status::Status;
use crate::prm::values::QpType;
use crate::profile::Profile;
use crate::testing::queues::{QueueRig, fill_pas, number};
use crate::testing::{Answer, Rig};

const RST2INIT: u16 = 0x502;
const INIT2RTR: u16 = 0x503;
const RTR2RTS: u16 = 0x504;
const RTS2RTS: u16 = 0x505;
const SQERR2RTS: u16 = 0x506;
const TO_ERR: u16 = 0x507;
const TO_RST: u16 = 0x50a;
const SQD2RTS: u16 = 0x50c;
const INIT2INIT: u16 = 0x50e;

fn refused(answer: Answer, status: Status, syndrome: Syndrome) {
    assert_eq!((answer.delivery, answer.status(), Syndrome(answer.syndrome())), (0, status.0, syndrome));
}

fn step(rig: &mut QueueRig, opcode: u16, qpn: u32, mask: u32, fill: impl FnOnce(&mut Qpc<&mut [u8]>)) -> Answer {
    rig.exec(QueueRig::modify_qp_in(opcode, qpn, mask, fill).as_bytes(), 16)
}

fn query(rig: &mut QueueRig, qpn: u32) -> Qpc<Vec<u8>> {
    let out = rig.ok(&QueueRig::naming(0x50b, qpn), 0x118);
    Qpc::new(out[0x18..0x18 + Qpc::SIZE].to_vec()).expect("a context")
}

/// A rig with a protection domain and a completion queue.
fn rig() -> (QueueRig, u32, u32) {
    let mut rig = QueueRig::new();
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    (rig, pd, cqn)
}

fn to_init(rig: &mut QueueRig, qpn: u32) {
    let answer = step(rig, RST2INIT, qpn, 0, |c| {
        c.primary_address_path_mut().set_vhca_port_num(1);
        c.set_pm_state(3);
    });
    assert_eq!(answer.status(), 0);
}

fn to_rtr(rig: &mut QueueRig, qpn: u32) {
    let answer = step(rig, INIT2RTR, qpn, 0, |c| {
        c.set_mtu(3);
        c.set_log_msg_max(30);
    });
    assert_eq!(answer.status(), 0, "syndrome {:#x}", answer.syndrome());
}

fn to_rts(rig: &mut QueueRig, qpn: u32) {
    to_init(rig, qpn);
    to_rtr(rig, qpn);
    assert_eq!(step(rig, RTR2RTS, qpn, 0, |_| {}).status(), 0);
}

#[test]
fn a_queue_pair_reads_back_as_it_was_created() {
    let (mut rig, pd, cqn) = rig();
    let (mut input, at, record) = rig.create_qp_in(QpType::RC, pd, cqn);
    input.qpc_mut().set_user_index(0xabcdef);
    input.qpc_mut().set_fre(1);
    input.qpc_mut().set_rlky(1);
    let qpn = number(&rig.ok(input.as_bytes(), 16));
    assert!(qpn > 1);
    rig.write(record, &[0, 0, 0, 5, 0, 0, 0, 7]);
    let out = rig.ok(&QueueRig::naming(0x50b, qpn), 0x118);
    let context = Qpc::new(&out[0x18..]).expect("a context");
    assert_eq!((context.state(), context.st(), context.pd()), (0, 0, pd));
    assert_eq!((context.user_index(), context.fre(), context.rlky(), context.dbr_addr()), (0xabcdef, 1, 1, record));
    assert_eq!((context.sw_rq_counter(), context.sw_sq_wqebb_counter()), (0, 0), "reset accepts nothing");
    assert_eq!(out[0x110..0x118], at.to_be_bytes());
    to_init(&mut rig, qpn);
    let context = query(&mut rig, qpn);
    assert_eq!((context.state(), context.sw_rq_counter(), context.sw_sq_wqebb_counter()), (1, 5, 7));
    rig.ok(&QueueRig::naming(0x501, qpn), 16);
    refused(rig.exec(&QueueRig::naming(0x501, qpn), 16), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    refused(rig.exec(&QueueRig::naming(0x50b, qpn), 0x118), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    let mut extended = QueueRig::naming(0x50b, qpn);
    extended[8] |= 0x80;
    refused(rig.exec(&extended, 0x118), Status::BAD_PARAM_ERR, syn::EXTENSION);
}

#[test]
fn what_a_queue_pair_uses_is_not_destroyed() {
    let (mut rig, pd, cqn) = rig();
    let other = rig.create_cq(4);
    let (mut input, ..) = rig.create_qp_in(QpType::RC, pd, cqn);
    input.qpc_mut().set_cqn_rcv(other);
    let qpn = number(&rig.ok(input.as_bytes(), 16));
    let used = [(0x801, pd), (0x401, cqn), (0x401, other), (0x803, rig.uar)];
    for (opcode, id) in used {
        refused(rig.exec(&QueueRig::naming(opcode, id), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    }
    rig.ok(&QueueRig::naming(0x501, qpn), 16);
    for (opcode, id) in &used[..3] {
        rig.ok(&QueueRig::naming(*opcode, *id), 16);
    }
}

#[test]
fn every_state_may_be_destroyed() {
    let (mut rig, pd, cqn) = rig();
    for steps in 0..5 {
        let qpn = rig.create_qp(QpType::RC, pd, cqn);
        if steps > 0 {
            to_init(&mut rig, qpn);
        }
        if steps > 1 {
            to_rtr(&mut rig, qpn);
        }
        if steps > 2 {
            assert_eq!(step(&mut rig, RTR2RTS, qpn, 0, |_| {}).status(), 0);
        }
        if steps > 3 {
            rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
        }
        assert_eq!(query(&mut rig, qpn).state(), [0, 1, 2, 3, 6][steps]);
        rig.ok(&QueueRig::naming(0x501, qpn), 16);
    }
    assert_eq!(rig.function.hca().objects.qps.len(), 0);
}

#[test]
fn commands_start_from_their_state_only() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    let wrong = |rig: &mut QueueRig, opcodes: &[u16]| {
        for opcode in opcodes {
            let answer = step(rig, *opcode, qpn, 0, |_| {});
            assert_eq!((answer.status(), Syndrome(answer.syndrome())), (0x10, syn::STATE), "{opcode:#x}");
        }
    };
    wrong(&mut rig, &[INIT2INIT, INIT2RTR, RTR2RTS, RTS2RTS, SQERR2RTS, SQD2RTS]);
    to_init(&mut rig, qpn);
    wrong(&mut rig, &[RST2INIT, RTR2RTS, RTS2RTS, SQERR2RTS, SQD2RTS]);
    to_rtr(&mut rig, qpn);
    wrong(&mut rig, &[RST2INIT, INIT2INIT, INIT2RTR, RTS2RTS, SQERR2RTS, SQD2RTS]);
    rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
    rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
    wrong(&mut rig, &[RST2INIT, INIT2INIT, INIT2RTR, RTR2RTS, RTS2RTS, SQERR2RTS, SQD2RTS]);
    rig.ok(&QueueRig::naming(TO_RST, qpn), 16);
    to_init(&mut rig, qpn);
    refused(step(&mut rig, RST2INIT, 0xff_ffff, 0, |_| {}), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
}

#[test]
fn contexts_that_the_device_cannot_serve_are_refused() {
    type Change = fn(&mut CreateQpIn);
    let bad = Status::BAD_PARAM_ERR;
    let missing = (Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    let cases: &[(&str, Change, Status, Syndrome)] = &[
        ("dci", |i| i.qpc_mut().set_st(5), bad, syn::SERVICE_TYPE),
        ("dct", |i| i.qpc_mut().set_st(6), bad, syn::SERVICE_TYPE),
        ("st", |i| i.qpc_mut().set_st(0xff), bad, syn::SERVICE_TYPE),
        ("number", |i| i.set_input_qpn(5), bad, syn::INPUT_QPN),
        ("mask", |i| i.set_opt_param_mask(1), bad, syn::CREATE_MASK),
        ("extension", |i| i.set_qpc_ext(1), bad, syn::EXTENSION),
        ("ece", |i| i.set_ece(1), bad, syn::ECE),
        ("signature", |i| i.qpc_mut().set_wq_signature(1), bad, syn::FEATURE),
        ("scatter", |i| i.qpc_mut().set_cs_res(1), bad, syn::FEATURE),
        ("cross channel", |i| i.qpc_mut().set_cd_master(1), bad, syn::FEATURE),
        ("atomic-like", |i| i.qpc_mut().set_atomic_like_write_en(1), bad, syn::FEATURE),
        ("pacing", |i| i.qpc_mut().set_packet_pacing_rate_limit_index(1), bad, syn::FEATURE),
        ("offload", |i| i.qpc_mut().set_offload_type(1), bad, syn::FEATURE),
        ("ordering", |i| i.qpc_mut().set_dp_ordering_1(1), bad, syn::PLACEMENT_ORDER),
        ("forced", |i| i.qpc_mut().set_dp_ordering_force(1), bad, syn::PLACEMENT_ORDER),
        ("migration", |i| i.qpc_mut().set_pm_state(1), bad, syn::MIGRATION),
        ("timestamp", |i| i.qpc_mut().set_ts_format(2), bad, syn::TIMESTAMP),
        ("collapsed rq", |i| i.qpc_mut().set_rq_type(2), bad, syn::RQ_TYPE),
        ("rq type", |i| i.qpc_mut().set_rq_type(7), bad, syn::RQ_TYPE),
        ("stride", |i| i.qpc_mut().set_log_rq_stride(6), bad, syn::STRIDE),
        (
            "tiny rq",
            |i| {
                i.qpc_mut().set_log_rq_size(0);
                i.qpc_mut().set_log_rq_stride(0);
            },
            bad,
            syn::GEOMETRY,
        ),
        ("sq beyond the pages", |i| i.qpc_mut().set_log_sq_size(6), bad, pas::TOO_FEW),
        ("rq beyond the pages", |i| i.qpc_mut().set_log_rq_size(15), bad, pas::TOO_FEW),
        ("offset", |i| i.qpc_mut().set_page_offset(63), bad, pas::TOO_FEW),
        ("record", |i| i.qpc_mut().set_dbr_addr(12), bad, buffer::syn::RECORD_MISALIGNED),
        ("pd", |i| i.qpc_mut().set_pd(0xff_ffff), missing.0, missing.1),
        ("no pd", |i| i.qpc_mut().set_pd(0), missing.0, missing.1),
        ("send cq", |i| i.qpc_mut().set_cqn_snd(99), missing.0, missing.1),
        ("receive cq", |i| i.qpc_mut().set_cqn_rcv(99), missing.0, missing.1),
        ("uar", |i| i.qpc_mut().set_uar_page(3), missing.0, missing.1),
        ("counters", |i| i.qpc_mut().set_counter_set_id(77), missing.0, missing.1),
        (
            "srq",
            |i| {
                i.qpc_mut().set_rq_type(1);
                i.qpc_mut().set_srqn_rmpn_xrqn(9);
            },
            missing.0,
            missing.1,
        ),
        ("umem", |i| i.set_wq_umem_valid(1), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT),
        ("record umem", |i| i.qpc_mut().set_dbr_umem_valid(1), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT),
    ];
    let (mut rig, pd, cqn) = rig();
    for (name, change, status, syndrome) in cases {
        let (mut input, ..) = rig.create_qp_in(QpType::RC, pd, cqn);
        change(&mut input);
        let answer = rig.exec(input.as_bytes(), 16);
        assert_eq!((answer.status(), Syndrome(answer.syndrome())), (status.0, *syndrome), "{name}");
    }
    rig.ok(&QueueRig::naming(0x801, pd), 16);
    refused(rig.exec(&Rig::input(0x500, 0, 0x100), 16), Status::BAD_INP_LEN_ERR, common::INPUT_TOO_SHORT);
    let sets = ["caps.general.rc=0"];
    let mut rig = QueueRig::with(Profile::with("connectx10-c2c", &sets).expect("a profile"));
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    let (input, ..) = rig.create_qp_in(QpType::RC, pd, cqn);
    refused(rig.exec(input.as_bytes(), 16), bad, syn::SERVICE_TYPE);
}

#[test]
fn the_driver_s_own_queue_pairs_are_granted() {
    let (mut rig, pd, cqn) = rig();
    let xrcd = rig.xrcd();
    let xrc_srqn = rig.create_xrc_srq(pd, xrcd, cqn);
    // Memory registration: no domain, no receive queue.
    let (mut input, ..) = rig.create_qp_in(QpType::REG_UMR, 0, cqn);
    input.qpc_mut().set_rq_type(3);
    input.qpc_mut().set_latency_sensitive(1);
    input.qpc_mut().set_rlky(1);
    let umr = number(&rig.ok(input.as_bytes(), 16));
    let init = |rig: &mut QueueRig, pd| step(rig, RST2INIT, umr, 0, |c| c.set_pd(pd));
    let missing = init(&mut rig, 0xff_ffff);
    refused(missing, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    assert_eq!(init(&mut rig, pd).status(), 0);
    assert_eq!(query(&mut rig, umr).pd(), pd, "it gets its domain when it is initialized");
    let rtr = step(&mut rig, INIT2RTR, umr, 0, |c| {
        c.set_mtu(5);
        c.set_log_msg_max(12);
    });
    assert_eq!(rtr.status(), 0);
    assert_eq!(step(&mut rig, RTR2RTS, umr, 0, |_| {}).status(), 0);
    // QP1, once.
    let (mut input, ..) = rig.create_qp_in(QpType::QP1, pd, cqn);
    let gsi = number(&rig.ok(input.as_bytes(), 16));
    refused(rig.exec(input.as_bytes(), 16), Status::LIM_ERR, syn::ONE_PER_PORT);
    let init = step(&mut rig, RST2INIT, gsi, 0, |c| {
        c.set_q_key(0x8001_0000);
        c.primary_address_path_mut().set_vhca_port_num(1);
    });
    assert_eq!((init.status(), query(&mut rig, gsi).q_key()), (0, 0x8001_0000));
    rig.ok(&QueueRig::naming(0x501, gsi), 16);
    rig.ok(input.as_bytes(), 16);
    // XRC target: no queues, no UAR, no record.
    input = CreateQpIn::zeroed();
    input.set_opcode(0x500);
    let mut context = input.qpc_mut();
    context.set_st(3);
    context.set_pm_state(3);
    context.set_pd(pd);
    context.set_rq_type(1);
    context.set_no_sq(1);
    context.set_cqn_rcv(cqn);
    context.set_cqn_snd(cqn);
    context.set_srqn_rmpn_xrqn(xrc_srqn);
    context.set_xrcd(xrcd);
    let target = number(&rig.ok(input.as_bytes(), 16));
    refused(rig.exec(&QueueRig::naming(0x706, xrc_srqn), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    rig.ok(&QueueRig::naming(TO_ERR, target), 16);
    assert_eq!(rig.take_async_event(), None);
    input.qpc_mut().set_rq_type(3);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_PARAM_ERR, syn::RQ_TYPE);
    input.qpc_mut().set_rq_type(1);
    input.qpc_mut().set_xrcd(xrcd + 1);
    refused(rig.exec(input.as_bytes(), 16), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
}

#[test]
fn mandatory_attributes_are_taken_and_others_are_not() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    let everything = |c: &mut Qpc<&mut [u8]>| {
        let mut path = c.primary_address_path_mut();
        path.set_vhca_port_num(1);
        path.set_pkey_index(3);
        path.set_ack_timeout(14);
        path.set_src_addr_index(5);
        path.set_hop_limit(64);
        path.set_rmac_31_0(0x1234_5678);
        path.set_udp_sport(0xdcba);
        c.set_pm_state(3);
        c.set_rre(1);
        c.set_rwe(1);
        c.set_rae(1);
        c.set_atomic_mode(1);
        c.set_q_key(0x1111);
        c.set_mtu(5);
        c.set_log_msg_max(30);
        c.set_remote_qpn(0x456);
        c.set_next_rcv_psn(0x777);
        c.set_next_send_psn(0x888);
        c.set_log_rra_max(2);
        c.set_log_sra_max(3);
        c.set_min_rnr_nak(12);
        c.set_retry_count(7);
        c.set_rnr_retry(6);
        c.set_log_ack_req_freq(8);
        c.set_log_sq_size(15);
        c.set_pd(0x123456);
        c.set_cqn_snd(0x123456);
    };
    assert_eq!(step(&mut rig, RST2INIT, qpn, 0, everything).status(), 0);
    let c = query(&mut rig, qpn);
    assert_eq!((c.rre(), c.rwe(), c.rae(), c.atomic_mode()), (1, 1, 1, 1));
    assert_eq!((c.primary_address_path().pkey_index(), c.primary_address_path().vhca_port_num()), (3, 1));
    assert_eq!((c.q_key(), c.mtu(), c.primary_address_path().src_addr_index()), (0, 0, 0), "not of RST2INIT");
    assert_eq!((c.log_sq_size(), c.pd(), c.cqn_snd()), (4, pd, cqn), "structure is CREATE_QP's");

    let answer = step(&mut rig, INIT2RTR, qpn, 0, |c| {
        everything(c);
        c.set_rre(0);
        c.primary_address_path_mut().set_pkey_index(9);
    });
    assert_eq!(answer.status(), 0);
    let c = query(&mut rig, qpn);
    let path = c.primary_address_path();
    assert_eq!((c.mtu(), c.log_msg_max(), c.remote_qpn(), c.next_rcv_psn()), (5, 30, 0x456, 0x777));
    assert_eq!((c.log_rra_max(), c.min_rnr_nak(), c.rre()), (2, 12, 1), "rre is optional here");
    assert_eq!((path.src_addr_index(), path.hop_limit(), path.rmac_31_0()), (5, 64, 0x1234_5678));
    assert_eq!((path.pkey_index(), path.ack_timeout(), path.udp_sport()), (3, 0, 0xdcba));
    assert_eq!((c.next_send_psn(), c.retry_count()), (0, 0));

    let answer = step(&mut rig, RTR2RTS, qpn, 0, |c| {
        c.set_next_send_psn(0x888);
        c.set_log_sra_max(3);
        c.set_retry_count(7);
        c.set_rnr_retry(6);
        c.set_log_ack_req_freq(8);
        c.primary_address_path_mut().set_ack_timeout(14);
    });
    assert_eq!(answer.status(), 0);
    let c = query(&mut rig, qpn);
    let path = c.primary_address_path();
    assert_eq!((c.next_send_psn(), c.log_sra_max(), c.retry_count(), c.rnr_retry()), (0x888, 3, 7, 6));
    assert_eq!((c.log_ack_req_freq(), path.ack_timeout()), (8, 14));
    assert_eq!((path.rmac_31_0(), path.src_addr_index(), path.pkey_index()), (0x1234_5678, 5, 3), "the path stays");
    assert_eq!((c.mtu(), c.remote_qpn(), c.rre()), (5, 0x456, 1));

    rig.ok(&QueueRig::naming(TO_RST, qpn), 16);
    let c = query(&mut rig, qpn);
    assert_eq!((c.state(), c.mtu(), c.next_send_psn(), c.rre()), (0, 0, 0, 0), "as after creation");
    assert_eq!((c.pd(), c.log_sq_size()), (pd, 4));
}

#[test]
fn optional_attributes_follow_the_mask_exactly() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    to_rts(&mut rig, qpn);
    let fill = |c: &mut Qpc<&mut [u8]>| {
        c.set_rre(1);
        c.set_rwe(1);
        c.set_rae(1);
        c.set_atomic_mode(1);
        c.set_min_rnr_nak(31);
    };
    assert_eq!(step(&mut rig, RTS2RTS, qpn, 0, fill).status(), 0);
    let c = query(&mut rig, qpn);
    assert_eq!((c.rre(), c.rwe(), c.rae(), c.min_rnr_nak()), (0, 0, 0, 0));
    assert_eq!(step(&mut rig, RTS2RTS, qpn, 1 << 1, fill).status(), 0);
    let c = query(&mut rig, qpn);
    assert_eq!((c.rre(), c.rwe(), c.rae(), c.min_rnr_nak()), (1, 0, 0, 0));
    assert_eq!(step(&mut rig, RTS2RTS, qpn, 1 << 2 | 1 << 6, fill).status(), 0);
    let c = query(&mut rig, qpn);
    assert_eq!((c.rre(), c.rwe(), c.rae(), c.atomic_mode(), c.min_rnr_nak()), (1, 0, 1, 1, 31));
    refused(step(&mut rig, RTS2RTS, qpn, 1 << 31, fill), Status::BAD_PARAM_ERR, syn::UNKNOWN_OPTION);
    refused(step(&mut rig, RTS2RTS, qpn, 1 << 11, fill), Status::BAD_PARAM_ERR, syn::UNKNOWN_OPTION);
    refused(step(&mut rig, RTS2RTS, qpn, 1 << 5, fill), Status::BAD_PARAM_ERR, syn::OPTION);
    refused(step(&mut rig, RTS2RTS, qpn, 1 << 18, fill), Status::BAD_PARAM_ERR, syn::OPTION);
    refused(step(&mut rig, RTS2RTS, qpn, 1 << 0, fill), Status::BAD_PARAM_ERR, syn::MIGRATION);
    assert_eq!(query(&mut rig, qpn).state(), 3, "a refused command changes nothing");
}

#[test]
fn attributes_beyond_the_capabilities_are_refused() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    let bad = Status::BAD_PARAM_ERR;
    type Fill = fn(&mut Qpc<&mut [u8]>);
    let init: &[(Fill, Syndrome)] = &[
        (|c| c.primary_address_path_mut().set_vhca_port_num(2), syn::PORT),
        (|c| c.primary_address_path_mut().set_pkey_index(128), syn::PKEY),
        (|c| c.set_pm_state(2), syn::MIGRATION),
        (|c| c.set_rae(1), syn::ATOMIC_MODE),
        (
            |c| {
                c.set_rae(1);
                c.set_atomic_mode(8);
            },
            syn::ATOMIC_MODE,
        ),
    ];
    for (fill, syndrome) in init {
        refused(step(&mut rig, RST2INIT, qpn, 0, fill), bad, *syndrome);
    }
    refused(step(&mut rig, RST2INIT, qpn, 1, |_| {}), bad, syn::OPTION);
    let counters = |c: &mut Qpc<&mut [u8]>| c.set_counter_set_id(200);
    refused(step(&mut rig, RST2INIT, qpn, 0, counters), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    assert_eq!(query(&mut rig, qpn).state(), 0);
    to_init(&mut rig, qpn);
    let rtr: &[(Fill, Syndrome)] = &[
        (|c| c.set_mtu(0), syn::MTU),
        (|c| c.set_mtu(6), syn::MTU),
        (|c| c.set_mtu(7), syn::MTU),
        (|c| c.set_log_msg_max(31), syn::MESSAGE_SIZE),
        (|c| c.set_log_rra_max(5), syn::READS),
        (|c| c.primary_address_path_mut().set_src_addr_index(128), syn::GID_INDEX),
        (|c| c.set_dp_ordering_1(1), syn::PLACEMENT_ORDER),
        (|c| c.set_dp_ordering_force(1), syn::PLACEMENT_ORDER),
    ];
    for (fill, syndrome) in rtr {
        let answer = step(&mut rig, INIT2RTR, qpn, 0, |c| {
            c.set_mtu(1);
            fill(c);
        });
        refused(answer, bad, *syndrome);
    }
    let mut input = QueueRig::modify_qp_in(INIT2RTR, qpn, 0, |c| c.set_mtu(1));
    input.set_ece(1);
    refused(rig.exec(input.as_bytes(), 16), bad, syn::ECE);
    to_rtr(&mut rig, qpn);
    refused(step(&mut rig, RTR2RTS, qpn, 0, |c| c.set_log_sra_max(7)), bad, syn::READS);
    assert_eq!(query(&mut rig, qpn).state(), 2);
}

#[test]
fn a_counter_set_is_held_while_it_is_set() {
    let (mut rig, pd, cqn) = rig();
    let out = AllocQCounterOut::new(rig.ok(&Rig::input(0x771, 0, 16), 16)).expect("16 bytes");
    let set = out.counter_set_id();
    let qpn = rig.create_qp(QpType::UD, pd, cqn);
    assert_eq!(step(&mut rig, RST2INIT, qpn, 0, |c| c.set_counter_set_id(set)).status(), 0);
    let mut free = Rig::input(0x772, 0, 16);
    free[11] = set as u8;
    refused(rig.exec(&free, 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    rig.ok(&QueueRig::naming(TO_RST, qpn), 16);
    rig.ok(&free, 16);
}

#[test]
fn a_datagram_queue_pair_changes_its_receive_side() {
    let (mut rig, pd, cqn) = rig();
    let (first, second, other) = (rig.create_rmp(pd), rig.create_rmp(pd), rig.create_cq(4));
    let (mut input, ..) = rig.create_qp_in(QpType::UD, pd, cqn);
    input.qpc_mut().set_rq_type(1);
    input.qpc_mut().set_srqn_rmpn_xrqn(first);
    let qpn = number(&rig.ok(input.as_bytes(), 16));
    to_rts(&mut rig, qpn);
    let answer = step(&mut rig, RTS2RTS, qpn, 1 << 18 | 1 << 19, |c| {
        c.set_srqn_rmpn_xrqn(second);
        c.set_cqn_rcv(other);
    });
    assert_eq!(answer.status(), 0);
    rig.ok(&QueueRig::naming(0x90e, first), 16);
    refused(rig.exec(&QueueRig::naming(0x90e, second), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(rig.exec(&QueueRig::naming(0x401, other), 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    let answer = step(&mut rig, RTS2RTS, qpn, 1 << 18, |c| c.set_srqn_rmpn_xrqn(first));
    refused(answer, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    assert_eq!(query(&mut rig, qpn).srqn_rmpn_xrqn(), second);
    let plain = rig.create_qp(QpType::UD, pd, cqn);
    to_rts(&mut rig, plain);
    let answer = step(&mut rig, RTS2RTS, plain, 1 << 18, |c| c.set_srqn_rmpn_xrqn(second));
    refused(answer, Status::BAD_PARAM_ERR, syn::NO_SRQ);
}

#[test]
fn the_last_entry_of_a_shared_queue_is_said_once() {
    let (mut rig, pd, cqn) = rig();
    let rmpn = rig.create_rmp(pd);
    let (mut input, ..) = rig.create_qp_in(QpType::RC, pd, cqn);
    input.qpc_mut().set_rq_type(1);
    input.qpc_mut().set_srqn_rmpn_xrqn(rmpn);
    let qpn = number(&rig.ok(input.as_bytes(), 16));
    rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
    assert_eq!(rig.take_async_event(), None, "a queue pair in reset took nothing");
    rig.ok(&QueueRig::naming(TO_RST, qpn), 16);
    to_init(&mut rig, qpn);
    rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
    let eqe = rig.take_async_event().expect("an event");
    assert_eq!((eqe[1], eqe[0x34], &eqe[0x38..0x3c]), (0x13, 0, &qpn.to_be_bytes()[..]));
    rig.ok(&QueueRig::naming(TO_ERR, qpn), 16);
    assert_eq!(rig.take_async_event(), None);
}

fn mcg(rig: &mut QueueRig, opcode: u16, qpn: u32, gid: [u8; 16]) -> Answer {
    let mut input = AttachToMcgIn::zeroed();
    input.set_opcode(u32::from(opcode));
    input.set_qpn(qpn);
    input.set_multicast_gid(&gid);
    rig.exec(input.as_bytes(), 16)
}

#[test]
fn datagram_queue_pairs_join_groups_and_leave_them_before_they_go() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::UD, pd, cqn);
    let connected = rig.create_qp(QpType::RC, pd, cqn);
    let group = [0xff; 16];
    refused(mcg(&mut rig, 0x806, qpn, [0xfe; 16]), Status::BAD_PARAM_ERR, mcg::syn::NOT_MULTICAST);
    refused(mcg(&mut rig, 0x806, connected, group), Status::BAD_PARAM_ERR, mcg::syn::NOT_DATAGRAM);
    refused(mcg(&mut rig, 0x806, 0x7f_ffff, group), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    refused(mcg(&mut rig, 0x807, qpn, group), Status::BAD_RES_STATE_ERR, mcg::syn::NOT_ATTACHED);
    assert_eq!(mcg(&mut rig, 0x806, qpn, group).status(), 0);
    refused(mcg(&mut rig, 0x806, qpn, group), Status::BAD_RES_STATE_ERR, mcg::syn::ATTACHED);
    assert_eq!(rig.function.hca().multicast.members(&group).collect::<Vec<_>>(), [qpn]);
    refused(rig.exec(&QueueRig::naming(0x501, qpn), 16), Status::BAD_RES_STATE_ERR, syn::ATTACHED);
    assert_eq!(mcg(&mut rig, 0x807, qpn, group).status(), 0);
    rig.ok(&QueueRig::naming(0x501, qpn), 16);
    assert!(rig.function.hca().multicast.is_empty());
}

#[test]
fn a_user_context_has_its_own_queues_in_its_own_memory() {
    let mut rig = QueueRig::new();
    let uid = rig.create_uctx();
    let with_uid = |mut input: Vec<u8>, uid: u16| {
        input[2..4].copy_from_slice(&uid.to_be_bytes());
        input
    };
    let create = |rig: &mut QueueRig, opcode: u16| number(&rig.ok(&with_uid(Rig::input(opcode, 0, 16), uid), 16));
    let (pd, uar) = (create(&mut rig, 0x800), create(&mut rig, 0x802));
    let (umem, at) = rig.create_umem(uid, 0x3000);
    let (mut cq, ..) = rig.create_cq_in(4);
    cq.set_uid(u32::from(uid));
    cq.set_cq_umem_valid(1);
    cq.set_cq_umem_id(umem);
    cq.set_cq_umem_offset(0x400);
    let mut context = cq.cq_context_mut();
    context.set_uar_page(uar);
    context.set_dbr_umem_valid(1);
    context.set_dbr_umem_id(umem);
    context.set_dbr_addr(0x2000);
    // The event queue is the driver's, and not shared.
    refused(rig.exec(cq.as_bytes(), 16), Status::BAD_RES_ERR, objects::DEPENDENCY_NOT_OWNED);
    let mut shared = crate::prm::eq::CreateEqIn::with_tail(8);
    shared.set_opcode(0x301);
    shared.set_uid(0xffff);
    shared.eq_context_entry_mut().set_uar_page(rig.uar);
    let memory = rig.memory(64);
    fill_pas(shared.pas_mut(), memory);
    let eqn = u32::from(rig.ok(shared.as_bytes(), 16)[11]);
    cq.cq_context_mut().set_c_eqn_or_apu_element(eqn);
    let cqn = number(&rig.ok(cq.as_bytes(), 16));
    rig.function.complete(cqn, &[0; 64]);
    assert_eq!(rig.read(at + 0x43f, 1), [0], "the first entry is in the user's memory");
    cq.set_cq_umem_offset(0x2fc0);
    refused(rig.exec(cq.as_bytes(), 16), Status::BAD_PARAM_ERR, pas::TOO_FEW);

    let (mut qp, ..) = rig.create_qp_in(QpType::RC, pd, cqn);
    qp.set_uid(u32::from(uid));
    qp.set_wq_umem_valid(1);
    qp.set_wq_umem_id(umem);
    qp.set_wq_umem_offset(0x1000);
    let mut context = qp.qpc_mut();
    context.set_uar_page(uar);
    context.set_dbr_umem_valid(1);
    context.set_dbr_umem_id(umem);
    context.set_dbr_addr(0x2008);
    let qpn = number(&rig.ok(qp.as_bytes(), 16));
    let entry = rig.function.hca().objects.qps.get(qpn).expect("it exists");
    assert_eq!(entry.object.record, Some(crate::dma::Iova(at + 0x2008)));
    assert_eq!(entry.object.buffer.locate(512), Some((crate::dma::Iova(at + 0x1200), 1024)));
    let destroy_umem = with_uid(QueueRig::naming(0xa0a, umem), uid);
    refused(rig.exec(&destroy_umem, 16), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    for (change, syndrome) in [(QpType::QP1, syn::SPECIAL), (QpType::REG_UMR, syn::SPECIAL)] {
        let mut special = qp.clone();
        special.qpc_mut().set_st(u32::from(change.0));
        refused(rig.exec(special.as_bytes(), 16), Status::BAD_PARAM_ERR, syndrome);
    }
    let mut privileged = qp.clone();
    privileged.qpc_mut().set_rlky(1);
    refused(rig.exec(privileged.as_bytes(), 16), Status::BAD_PARAM_ERR, syn::RESERVED_LKEY);
    let stranger = rig.create_uctx();
    let theft = with_uid(QueueRig::naming(0x501, qpn), stranger);
    refused(rig.exec(&theft, 16), Status::BAD_RES_ERR, objects::NOT_OWNER);
    let theft = with_uid(QueueRig::modify_qp_in(RST2INIT, qpn, 0, |_| {}).into_inner(), stranger);
    refused(rig.exec(&theft, 16), Status::BAD_RES_ERR, objects::NOT_OWNER);
    for input in [QueueRig::naming(0x501, qpn), QueueRig::naming(0x401, cqn), QueueRig::naming(0xa0a, umem)] {
        rig.ok(&with_uid(input, uid), 16);
    }
}

#[test]
fn teardown_forgets_queues_and_groups() {
    let (mut rig, pd, cqn) = rig();
    let qpn = rig.create_qp(QpType::UD, pd, cqn);
    assert_eq!(mcg(&mut rig, 0x806, qpn, [0xff; 16]).status(), 0);
    rig.arm_cq(cqn, 0, false);
    rig.function.complete(cqn, &[0; 64]);
    rig.ok(&Rig::input(0x103, 0, 16), 16);
    assert!(rig.function.hca().census().is_empty() && rig.function.hca().multicast.is_empty());
    assert!(!rig.function.work().more);
}

#[test]
fn memberships_are_bounded_by_the_memory_that_the_driver_lent() {
    let mut rig = QueueRig::with(Profile::with("connectx10-c2c", &["pages.init=64"]).expect("a legal profile"));
    let (pd, cqn) = (rig.pd(), rig.create_cq(2));
    let qpn = rig.create_qp(QpType::UD, pd, cqn);
    let before = rig.function.hca().objects.pages.used();
    let mut gid = [0xff; 16];
    let made = (0u32..100_000).take_while(|i| {
        gid[12..].copy_from_slice(&i.to_be_bytes());
        mcg(&mut rig, 0x806, qpn, gid).status() == 0
    });
    let made = made.count() as u32;
    assert!((100..50_000).contains(&made), "{made} memberships in 64 pages");
    for i in 0..made {
        gid[12..].copy_from_slice(&i.to_be_bytes());
        assert_eq!(mcg(&mut rig, 0x807, qpn, gid).status(), 0);
    }
    assert_eq!(rig.function.hca().objects.pages.used(), before);
    assert_eq!(mcg(&mut rig, 0x806, qpn, gid).status(), 0);
    rig.tear_down();
    assert_eq!(rig.function.hca().objects.pages.used(), 0);
}
