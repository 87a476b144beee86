//! Tests of the Ethernet queue objects together: they refer to each other, so that one set-up serves all.

use super::error::{Syndrome, objects};
use super::{rq, rqt, sq, tir, tis, wq};
use crate::device::objects::Kind;
use crate::prm::cq::{CreateCqIn, CreateCqOut};
use crate::prm::opcode::Opcode;
use crate::prm::queue::*;
use crate::prm::status::Status;
use crate::prm::tir::*;
use crate::prm::values::WqState;
use crate::profile::Profile;
use crate::testing::{Answer, FREE, Rig};

pub(super) const CQ_BUFFER: u64 = FREE + 0x20_0000;
const CQ_RECORD: u64 = FREE + 0x21_0000;
pub(super) const WQ_BUFFER: u64 = FREE + 0x22_0000;
pub(super) const WQ_RECORD: u64 = FREE + 0x23_0000;

/// A driver with the objects that queues need.
pub(super) struct Net {
    pub rig: Rig,
    pub pd: u32,
    pub td: u32,
    pub uar: u32,
    pub cqn: u32,
}

pub(super) fn number(out: &[u8]) -> u32 {
    u32::from_be_bytes([0, out[9], out[10], out[11]])
}

fn refused(answer: &Answer, status: Status, syndrome: Syndrome) {
    assert_eq!((answer.status(), answer.syndrome()), (status.0, syndrome.0));
}

fn bad_param(answer: &Answer, syndrome: Syndrome) {
    refused(answer, Status::BAD_PARAM_ERR, syndrome);
}

impl Net {
    pub fn new(sets: &[&str]) -> Net {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig.event_queue(0);
        let mut alloc = |opcode: Opcode| number(&rig.ok(&Rig::input(opcode.0, 0, 16), 16));
        let (pd, td, uar) = (alloc(Opcode::ALLOC_PD), alloc(Opcode::ALLOC_TRANSPORT_DOMAIN), alloc(Opcode::ALLOC_UAR));
        let mut input = CreateCqIn::with_tail(8);
        input.set_opcode(Opcode::CREATE_CQ.0.into());
        let mut context = input.cq_context_mut();
        context.set_log_cq_size(6);
        context.set_uar_page(uar);
        context.set_c_eqn_or_apu_element(1);
        context.set_dbr_addr(CQ_RECORD);
        input.pas_mut().copy_from_slice(&CQ_BUFFER.to_be_bytes());
        let cqn = CreateCqOut::new(rig.ok(input.as_bytes(), 16)).unwrap().cqn();
        Net { rig, pd, td, uar, cqn }
    }

    pub fn call(&mut self, opcode: Opcode, mut input: Vec<u8>, outlen: usize) -> Answer {
        input[..2].copy_from_slice(&opcode.0.to_be_bytes());
        self.rig.exec(&input, outlen)
    }

    pub fn must(&mut self, opcode: Opcode, input: Vec<u8>, outlen: usize) -> Vec<u8> {
        let answer = self.call(opcode, input, outlen);
        assert_eq!(answer.status(), 0, "{opcode}: syndrome {:#x}", answer.syndrome());
        answer.output
    }

    /// Runs a command that only names an object.
    pub fn name(&mut self, opcode: Opcode, id: u32) -> Answer {
        let mut input = Rig::input(opcode.0, 0, 16);
        input[8..12].copy_from_slice(&id.to_be_bytes());
        self.rig.exec(&input, 16 + 0x200)
    }

    pub fn destroy(&mut self, opcode: Opcode, id: u32) {
        let answer = self.name(opcode, id);
        assert_eq!(answer.status(), 0, "{opcode}: syndrome {:#x}", answer.syndrome());
    }

    pub fn rq(&self) -> CreateRqIn<Vec<u8>> {
        let mut input = CreateRqIn::with_tail(8);
        let mut context = input.ctx_mut();
        context.set_cqn(self.cqn);
        context.set_user_index(0x123);
        let mut wq = context.wq_mut();
        wq.set_wq_type(1);
        wq.set_pd(self.pd);
        wq.set_log_wq_stride(4);
        wq.set_log_wq_sz(5);
        wq.set_dbr_addr(WQ_RECORD);
        wq.pas_mut().copy_from_slice(&WQ_BUFFER.to_be_bytes());
        input
    }

    pub fn create_rq(&mut self) -> u32 {
        let input = self.rq().into_inner();
        number(&self.must(Opcode::CREATE_RQ, input, 16))
    }

    pub fn create_tis(&mut self) -> u32 {
        let mut input = CreateTisIn::zeroed();
        input.ctx_mut().set_transport_domain(self.td);
        input.ctx_mut().set_prio(2);
        number(&self.must(Opcode::CREATE_TIS, input.into_inner(), 16))
    }

    pub fn sq(&self, tisn: u32) -> CreateSqIn<Vec<u8>> {
        let mut input = CreateSqIn::with_tail(8);
        let mut context = input.ctx_mut();
        context.set_cqn(self.cqn);
        context.set_tis_lst_sz(1);
        context.set_tis_num_0(tisn);
        context.set_flush_in_error_en(1);
        let mut wq = context.wq_mut();
        wq.set_wq_type(1);
        wq.set_pd(self.pd);
        wq.set_uar_page(self.uar);
        wq.set_log_wq_stride(6);
        wq.set_log_wq_sz(4);
        wq.set_dbr_addr(WQ_RECORD);
        wq.pas_mut().copy_from_slice(&WQ_BUFFER.to_be_bytes());
        input
    }

    pub fn rqt(max: u32, queues: &[u32]) -> CreateRqtIn<Vec<u8>> {
        let mut input = CreateRqtIn::with_tail(4 * queues.len());
        let mut context = input.rqt_context_mut();
        context.set_rqt_max_size(max);
        context.set_rqt_actual_size(queues.len() as u32);
        for (slot, queue) in context.rq_num_mut().chunks_mut(4).zip(queues) {
            slot.copy_from_slice(&queue.to_be_bytes());
        }
        input
    }

    pub fn tir(&self, rqtn: u32) -> CreateTirIn<Vec<u8>> {
        let mut input = CreateTirIn::zeroed();
        let mut context = input.ctx_mut();
        context.set_disp_type(1);
        context.set_indirect_table(rqtn);
        context.set_rx_hash_fn(2);
        context.set_transport_domain(self.td);
        context.rx_hash_field_selector_outer_mut().set_selected_fields(0xf);
        input
    }

    pub fn modify_rq(&mut self, rqn: u32, from: WqState, to: WqState, mask: u64, vsd: u32, counter: u32) -> Answer {
        let mut input = ModifyRqIn::zeroed();
        input.set_rqn(rqn);
        input.set_rq_state(from.0.into());
        input.set_modify_bitmask(mask);
        let mut context = input.ctx_mut();
        context.set_state(to.0.into());
        context.set_vsd(vsd);
        context.set_counter_set_id(counter);
        self.call(Opcode::MODIFY_RQ, input.into_inner(), 16)
    }

    pub fn modify_sq(&mut self, sqn: u32, from: WqState, to: WqState, mask: u64) -> Answer {
        let mut input = ModifySqIn::zeroed();
        input.set_sqn(sqn);
        input.set_sq_state(from.0.into());
        input.set_modify_bitmask(mask);
        input.ctx_mut().set_state(to.0.into());
        self.call(Opcode::MODIFY_SQ, input.into_inner(), 16)
    }

    fn query_rq(&mut self, rqn: u32) -> QueryRqOut<Vec<u8>> {
        QueryRqOut::new(self.name(Opcode::QUERY_RQ, rqn).output).unwrap()
    }

    pub fn query_sq(&mut self, sqn: u32) -> QuerySqOut<Vec<u8>> {
        QuerySqOut::new(self.name(Opcode::QUERY_SQ, sqn).output).unwrap()
    }
}

const DESTROYS: [Opcode; 5] =
    [Opcode::DESTROY_TIS, Opcode::DESTROY_TIR, Opcode::DESTROY_RQT, Opcode::DESTROY_RQ, Opcode::DESTROY_SQ];

#[test]
fn numbers_that_do_not_exist_are_refused_everywhere() {
    let mut net = Net::new(&[]);
    let queries = [Opcode::QUERY_TIS, Opcode::QUERY_TIR, Opcode::QUERY_RQT, Opcode::QUERY_RQ, Opcode::QUERY_SQ];
    for opcode in DESTROYS.into_iter().chain(queries) {
        for id in [0, 1, 0x40_0000, 0x80_0000, 0xff_ffff] {
            refused(&net.name(opcode, id), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
        }
    }
}

#[test]
fn an_interface_holds_its_table_which_holds_its_queues_which_hold_their_completions() {
    let mut net = Net::new(&[]);
    let (a, b) = (net.create_rq(), net.create_rq());
    let rqtn = number(&net.must(Opcode::CREATE_RQT, Net::rqt(4, &[a, b]).into_inner(), 16));
    let input = net.tir(rqtn).into_inner();
    let tirn = number(&net.must(Opcode::CREATE_TIR, input, 16));
    let in_use = |net: &mut Net, opcode, id| {
        refused(&net.name(opcode, id), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    };
    let (cqn, pd, td) = (net.cqn, net.pd, net.td);
    in_use(&mut net, Opcode::DESTROY_RQT, rqtn);
    in_use(&mut net, Opcode::DESTROY_RQ, a);
    in_use(&mut net, Opcode::DESTROY_CQ, cqn);
    in_use(&mut net, Opcode::DEALLOC_PD, pd);
    in_use(&mut net, Opcode::DEALLOC_TRANSPORT_DOMAIN, td);
    net.destroy(Opcode::DESTROY_TIR, tirn);
    refused(&net.name(Opcode::DESTROY_TIR, tirn), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    net.destroy(Opcode::DESTROY_RQT, rqtn);
    net.destroy(Opcode::DESTROY_RQ, a);
    in_use(&mut net, Opcode::DESTROY_CQ, cqn);
    net.destroy(Opcode::DESTROY_RQ, b);
    net.destroy(Opcode::DESTROY_CQ, cqn);
    net.destroy(Opcode::DEALLOC_TRANSPORT_DOMAIN, td);
}

#[test]
fn a_table_points_at_other_queues_after_a_modify() {
    let mut net = Net::new(&[]);
    let (drop, a, b) = (net.create_rq(), net.create_rq(), net.create_rq());
    let rqtn = number(&net.must(Opcode::CREATE_RQT, Net::rqt(4, &[drop]).into_inner(), 16));
    let modify = |queues: &[u32], mask: u64| {
        let mut input = ModifyRqtIn::with_tail(4 * queues.len());
        input.set_rqtn(rqtn);
        input.as_bytes_mut()[0x10..0x18].copy_from_slice(&mask.to_be_bytes());
        let mut context = input.ctx_mut();
        context.set_rqt_actual_size(queues.len() as u32);
        for (slot, queue) in context.rq_num_mut().chunks_mut(4).zip(queues) {
            slot.copy_from_slice(&queue.to_be_bytes());
        }
        input.into_inner()
    };
    net.must(Opcode::MODIFY_RQT, modify(&[a, b, a, b], 1), 16);
    let out = QueryRqtOut::new(net.name(Opcode::QUERY_RQT, rqtn).output).unwrap();
    assert_eq!((out.rqt_context().rqt_max_size(), out.rqt_context().rqt_actual_size()), (4, 4));
    let list: Vec<u32> =
        out.rqt_context().rq_num()[..16].chunks(4).map(|e| u32::from_be_bytes(e.try_into().unwrap())).collect();
    assert_eq!(list, [a, b, a, b]);
    net.destroy(Opcode::DESTROY_RQ, drop);
    refused(&net.name(Opcode::DESTROY_RQ, a), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    refused(&net.call(Opcode::MODIFY_RQT, modify(&[a, drop], 1), 16), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    net.must(Opcode::MODIFY_RQT, modify(&[b; 2], 1), 16);
    net.destroy(Opcode::DESTROY_RQ, a);
    bad_param(&net.call(Opcode::MODIFY_RQT, modify(&[b; 8], 1), 16), rqt::syn::ACTUAL_SIZE);
    bad_param(&net.call(Opcode::MODIFY_RQT, modify(&[b; 3], 1), 16), rqt::syn::ACTUAL_SIZE);
    bad_param(&net.call(Opcode::MODIFY_RQT, modify(&[b], 2), 16), rqt::syn::UNKNOWN_FIELD);
    net.must(Opcode::MODIFY_RQT, modify(&[], 0), 16);
}

#[test]
fn a_table_must_fit_its_capability_and_its_input() {
    let mut net = Net::new(&["caps.general.log_max_rqt_size=3"]);
    let queue = net.create_rq();
    let create = |net: &mut Net, input: CreateRqtIn<Vec<u8>>| net.call(Opcode::CREATE_RQT, input.into_inner(), 16);
    bad_param(&create(&mut net, Net::rqt(0, &[queue])), rqt::syn::MAX_SIZE);
    bad_param(&create(&mut net, Net::rqt(9, &[queue])), rqt::syn::MAX_SIZE);
    bad_param(&create(&mut net, Net::rqt(8, &[])), rqt::syn::ACTUAL_SIZE);
    let mut short = Net::rqt(8, &[queue]);
    short.rqt_context_mut().set_rqt_actual_size(8);
    refused(&create(&mut net, short), Status::BAD_INP_LEN_ERR, rqt::syn::TRUNCATED);
    let mut other = Net::rqt(8, &[queue]);
    other.rqt_context_mut().set_rq_vhca_id_format(1);
    bad_param(&create(&mut net, other), rqt::syn::OTHER_VHCA);
    let mut virtio = Net::rqt(8, &[queue]);
    virtio.rqt_context_mut().set_list_q_type(1);
    bad_param(&create(&mut net, virtio), rqt::syn::QUEUE_TYPE);
    assert_eq!(create(&mut net, Net::rqt(8, &[queue; 8])).status(), 0);
}

#[test]
fn queues_walk_through_their_states() {
    let mut net = Net::new(&[]);
    let rqn = net.create_rq();
    let tisn = net.create_tis();
    let input = net.sq(tisn).into_inner();
    let sqn = number(&net.must(Opcode::CREATE_SQ, input, 16));
    for (from, to) in [(0, 1), (1, 1), (1, 3), (3, 0), (0, 3), (3, 3), (3, 0), (0, 1), (1, 0), (0, 0)] {
        let (from, to) = (WqState(from), WqState(to));
        assert_eq!(net.modify_rq(rqn, from, to, 0, 0, 0).status(), 0, "{from} {to}");
        assert_eq!(net.modify_sq(sqn, from, to, 0).status(), 0, "{from} {to}");
        assert_eq!(net.query_rq(rqn).rq_context().state(), u32::from(to.0));
        assert_eq!(net.query_sq(sqn).sq_context().state(), u32::from(to.0));
    }
    for (from, to, syndrome) in [
        (WqState::RDY, WqState::ERR, wq::syn::WRONG_STATE),
        (WqState::ERR, WqState::RST, wq::syn::WRONG_STATE),
        (WqState::RST, WqState(2), wq::syn::TRANSITION),
        (WqState::RST, WqState(15), wq::syn::TRANSITION),
    ] {
        refused(&net.modify_rq(rqn, from, to, 0, 0, 0), Status::BAD_RES_STATE_ERR, syndrome);
        refused(&net.modify_sq(sqn, from, to, 0), Status::BAD_RES_STATE_ERR, syndrome);
    }
    net.modify_sq(sqn, WqState::RST, WqState::ERR, 0);
    refused(&net.modify_sq(sqn, WqState::ERR, WqState::RDY, 0), Status::BAD_RES_STATE_ERR, wq::syn::TRANSITION);
}

#[test]
fn a_queue_is_returned_as_it_was_created() {
    let mut net = Net::new(&[]);
    let rqn = net.create_rq();
    net.rig.write(WQ_RECORD, &[0, 0, 0, 7, 0, 0, 0, 9]);
    let out = net.query_rq(rqn);
    let context = out.rq_context();
    assert_eq!((context.user_index(), context.cqn(), context.wq().pd()), (0x123, net.cqn, net.pd));
    assert_eq!((context.wq().sw_counter(), context.wq().hw_counter()), (7, 0));
    assert_eq!(context.wq().pas()[..8], WQ_BUFFER.to_be_bytes());
    let tisn = net.create_tis();
    let input = net.sq(tisn).into_inner();
    let sqn = number(&net.must(Opcode::CREATE_SQ, input, 16));
    let out = net.query_sq(sqn);
    let context = out.sq_context();
    assert_eq!((context.tis_num_0(), context.wq().uar_page(), context.wq().sw_counter()), (tisn, net.uar, 9));
    assert_eq!(context.wq().pas()[..8], WQ_BUFFER.to_be_bytes());
    assert!(sqn >= 0x80_0000 && rqn >= 0x40_0000, "queue pairs have the numbers below");
}

#[test]
fn what_a_receive_queue_asks_for_must_be_advertised() {
    let mut net = Net::new(&[]);
    type Edit = fn(&mut Rqc<&mut [u8]>);
    let cases: [(Edit, Syndrome); 17] = [
        (|c| c.set_state(1), wq::syn::STATE),
        (|c| c.set_hairpin(1), wq::syn::HAIRPIN),
        (|c| c.set_delay_drop_en(1), rq::syn::DELAY_DROP),
        (|c| c.set_scatter_fcs(1), rq::syn::FCS),
        (|c| c.set_ts_format(2), wq::syn::TIMESTAMP_FORMAT),
        (|c| c.set_ts_format(3), wq::syn::TIMESTAMP_FORMAT),
        (|c| c.set_mem_rq_type(2), rq::syn::MEMORY_TYPE),
        (|c| c.wq_mut().set_wq_type(0), wq::syn::TYPE),
        (|c| c.wq_mut().set_wq_type(3), wq::syn::STRIDING),
        (|c| c.wq_mut().set_wq_signature(1), wq::syn::SIGNATURE),
        (|c| c.wq_mut().set_shampo_enable(1), wq::syn::SHAMPO),
        (|c| c.wq_mut().set_lwm(1), wq::syn::WATERMARK),
        (|c| c.wq_mut().set_end_padding_mode(2), wq::syn::END_PADDING),
        (|c| c.wq_mut().set_log_wq_stride(3), wq::syn::STRIDE),
        (|c| c.wq_mut().set_log_wq_stride(15), wq::syn::STRIDE),
        (|c| c.wq_mut().set_log_wq_sz(31), wq::syn::SIZE),
        (|c| c.wq_mut().set_log_wq_sz(10), super::error::pas::TOO_FEW),
    ];
    for (edit, syndrome) in cases {
        let mut input = net.rq();
        edit(&mut input.ctx_mut());
        bad_param(&net.call(Opcode::CREATE_RQ, input.into_inner(), 16), syndrome);
    }
    let mut input = net.rq();
    input.ctx_mut().wq_mut().set_dbr_addr(WQ_RECORD + 4);
    bad_param(&net.call(Opcode::CREATE_RQ, input.into_inner(), 16), super::buffer::syn::RECORD_MISALIGNED);
    let missing: [Edit; 4] = [
        |c| c.set_cqn(0xff_ffff),
        |c| c.wq_mut().set_pd(0xff_ffff),
        |c| c.set_counter_set_id(9),
        |c| {
            c.set_mem_rq_type(1);
            c.set_rmpn(1);
        },
    ];
    for edit in missing {
        let mut input = net.rq();
        edit(&mut input.ctx_mut());
        let answer = net.call(Opcode::CREATE_RQ, input.into_inner(), 16);
        refused(&answer, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    }
    assert_eq!(net.rig.function.hca().census().get(&Kind::Rq), None);
    // The driver's queue that only drops has no protection domain.
    let mut input = net.rq();
    input.ctx_mut().wq_mut().set_pd(0);
    net.must(Opcode::CREATE_RQ, input.into_inner(), 16);
}

#[test]
fn what_a_send_queue_asks_for_must_be_advertised() {
    let mut net = Net::new(&[]);
    let tisn = net.create_tis();
    type Edit = fn(&mut Sqc<&mut [u8]>);
    let cases: [(Edit, Syndrome); 15] = [
        (|c| c.set_state(1), wq::syn::STATE),
        (|c| c.set_hairpin(1), wq::syn::HAIRPIN),
        (|c| c.set_non_wire(1), sq::syn::NON_WIRE),
        (|c| c.set_cd_master(1), sq::syn::CROSS_CHANNEL),
        (|c| c.set_allow_multi_pkt_send_wqe(1), sq::syn::MULTI_PACKET),
        (|c| c.set_reg_umr(1), sq::syn::UMR),
        (|c| c.set_allow_swp(1), sq::syn::SW_PARSER),
        (|c| c.set_min_wqe_inline_mode(5), sq::syn::INLINE_MODE),
        (|c| c.set_packet_pacing_rate_limit_index(1), sq::syn::RATE_LIMIT),
        (|c| c.set_qos_queue_group_id(1), sq::syn::RATE_LIMIT),
        (|c| c.set_ts_cqe_to_dest_cqn(1), sq::syn::TIMESTAMP_CQ),
        (|c| c.set_tis_lst_sz(2), sq::syn::TIS_LIST),
        (|c| c.set_ts_format(2), wq::syn::TIMESTAMP_FORMAT),
        (|c| c.wq_mut().set_log_wq_stride(5), wq::syn::STRIDE),
        (|c| c.wq_mut().set_log_wq_stride(7), sq::syn::STRIDE),
    ];
    for (edit, syndrome) in cases {
        let mut input = net.sq(tisn);
        edit(&mut input.ctx_mut());
        bad_param(&net.call(Opcode::CREATE_SQ, input.into_inner(), 16), syndrome);
    }
    let missing: [Edit; 4] = [
        |c| c.set_cqn(0),
        |c| c.wq_mut().set_pd(0),
        |c| c.wq_mut().set_uar_page(0xfff),
        |c| c.set_tis_num_0(0xff_ffff),
    ];
    for edit in missing {
        let mut input = net.sq(tisn);
        edit(&mut input.ctx_mut());
        let answer = net.call(Opcode::CREATE_SQ, input.into_inner(), 16);
        refused(&answer, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    }
    // A queue for the driver's own operations has no interface.
    let mut input = net.sq(0);
    input.ctx_mut().set_tis_lst_sz(0);
    let sqn = number(&net.must(Opcode::CREATE_SQ, input.into_inner(), 16));
    bad_param(&net.modify_sq(sqn, WqState::RST, WqState::RDY, 1), sq::syn::UNKNOWN_FIELD);
}

#[test]
fn a_receive_queue_changes_what_the_mask_names_and_holds_its_counters() {
    let mut net = Net::new(&[]);
    let rqn = net.create_rq();
    let counter = u32::from(net.must(Opcode::ALLOC_Q_COUNTER, vec![0; 16], 16)[11]);
    assert_eq!(net.modify_rq(rqn, WqState::RST, WqState::RDY, 0, 1, counter).status(), 0);
    let vsd_and_counter = |net: &mut Net| {
        let out = net.query_rq(rqn);
        (out.rq_context().vsd(), out.rq_context().counter_set_id())
    };
    assert_eq!(vsd_and_counter(&mut net), (0, 0));
    assert_eq!(net.modify_rq(rqn, WqState::RDY, WqState::RDY, 1 << 1 | 1 << 3, 1, counter).status(), 0);
    assert_eq!(vsd_and_counter(&mut net), (1, counter));
    refused(&net.name(Opcode::DEALLOC_Q_COUNTER, counter), Status::BAD_RES_STATE_ERR, objects::IN_USE);
    let answer = net.modify_rq(rqn, WqState::RDY, WqState::ERR, 1 << 1 | 1 << 3, 0, counter + 1);
    refused(&answer, Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    assert_eq!(vsd_and_counter(&mut net), (1, counter), "a refusal changes nothing");
    assert_eq!(net.query_rq(rqn).rq_context().state(), 1);
    for mask in [1, 1 << 4, 1 << 63] {
        bad_param(&net.modify_rq(rqn, WqState::RDY, WqState::RDY, mask, 0, 0), rq::syn::UNKNOWN_FIELD);
    }
    assert_eq!(net.modify_rq(rqn, WqState::RDY, WqState::RDY, 1 << 3, 0, 0).status(), 0);
    net.destroy(Opcode::DEALLOC_Q_COUNTER, counter);
}

#[test]
fn transport_interfaces_refuse_what_is_not_advertised() {
    let mut net = Net::new(&[]);
    type Edit = fn(&mut Tirc<&mut [u8]>);
    let rqn = net.create_rq();
    let rqtn = number(&net.must(Opcode::CREATE_RQT, Net::rqt(1, &[rqn]).into_inner(), 16));
    let cases: [(Edit, Syndrome); 8] = [
        (|c| c.set_disp_type(2), tir::syn::DISPATCH),
        (|c| c.set_rx_hash_fn(0), tir::syn::HASH_FUNCTION),
        (|c| c.set_rx_hash_fn(3), tir::syn::HASH_FUNCTION),
        (|c| c.rx_hash_field_selector_outer_mut().set_selected_fields(0x20), tir::syn::HASH_FIELDS),
        (|c| c.rx_hash_field_selector_inner_mut().set_selected_fields(1), tir::syn::INNER_HASH),
        (|c| c.set_packet_merge_mask(1), tir::syn::PACKET_MERGE),
        (|c| c.set_tls_en(1), tir::syn::TLS),
        (|c| c.set_tunneled_offload_en(1), tir::syn::TUNNEL),
    ];
    for (edit, syndrome) in cases {
        let mut input = net.tir(rqtn);
        edit(&mut input.ctx_mut());
        bad_param(&net.call(Opcode::CREATE_TIR, input.into_inner(), 16), syndrome);
    }
    for (edit, syndrome) in [
        ((|c| c.set_tls_en(1)) as fn(&mut Tisc<&mut [u8]>), tis::syn::TLS),
        (|c| c.set_lag_tx_port_affinity(1), tis::syn::LAG),
        (|c| c.set_underlay_qpn(1), tis::syn::UNDERLAY),
    ] {
        let mut input = CreateTisIn::zeroed();
        input.ctx_mut().set_transport_domain(net.td);
        edit(&mut input.ctx_mut());
        bad_param(&net.call(Opcode::CREATE_TIS, input.into_inner(), 16), syndrome);
    }
    // Domain 0 needs no allocation, any other does.
    net.must(Opcode::CREATE_TIS, CreateTisIn::zeroed().into_inner(), 16);
    let mut input = CreateTisIn::zeroed();
    input.ctx_mut().set_transport_domain(net.td + 1);
    refused(&net.call(Opcode::CREATE_TIS, input.into_inner(), 16), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    let mut input = net.tir(rqtn);
    input.ctx_mut().set_transport_domain(net.td + 1);
    refused(&net.call(Opcode::CREATE_TIR, input.into_inner(), 16), Status::BAD_RES_ERR, objects::NO_SUCH_DEPENDENCY);
    let mut input = net.tir(rqtn);
    input.ctx_mut().set_transport_domain(0);
    net.must(Opcode::CREATE_TIR, input.into_inner(), 16);
}

#[test]
fn an_interface_changes_only_what_the_mask_names() {
    let mut net = Net::new(&[]);
    let rqn = net.create_rq();
    let mut input = net.tir(0);
    let mut context = input.ctx_mut();
    context.set_disp_type(0);
    context.set_indirect_table(0);
    context.set_inline_rqn(rqn);
    context.set_rx_hash_fn(0);
    let tirn = number(&net.must(Opcode::CREATE_TIR, input.into_inner(), 16));
    let modify = |mask: u64| {
        let mut input = ModifyTirIn::zeroed();
        input.set_tirn(tirn);
        input.as_bytes_mut()[0x10..0x18].copy_from_slice(&mask.to_be_bytes());
        let mut context = input.ctx_mut();
        context.set_self_lb_block(3);
        context.set_rx_hash_fn(2);
        context.set_rx_hash_toeplitz_key(9, 0xabcd);
        context.rx_hash_field_selector_outer_mut().set_selected_fields(3);
        input.into_inner()
    };
    let state = |net: &mut Net| {
        let out = QueryTirOut::new(net.name(Opcode::QUERY_TIR, tirn).output).unwrap();
        let context = out.tir_context();
        let selected = context.rx_hash_field_selector_outer().selected_fields();
        (context.self_lb_block(), context.rx_hash_fn(), context.rx_hash_toeplitz_key(9).unwrap(), selected)
    };
    net.must(Opcode::MODIFY_TIR, modify(0), 16);
    assert_eq!(state(&mut net), (0, 0, 0, 0xf));
    net.must(Opcode::MODIFY_TIR, modify(1 << 4), 16);
    assert_eq!(state(&mut net), (3, 0, 0, 0xf));
    net.must(Opcode::MODIFY_TIR, modify(1 << 2 | 1), 16);
    assert_eq!(state(&mut net), (3, 2, 0xabcd, 3));
    bad_param(&net.call(Opcode::MODIFY_TIR, modify(1 << 1), 16), tir::syn::UNKNOWN_FIELD);

    let tisn = net.create_tis();
    let modify = |mask: u64| {
        let mut input = ModifyTisIn::zeroed();
        input.set_tisn(tisn);
        input.as_bytes_mut()[0x10..0x18].copy_from_slice(&mask.to_be_bytes());
        input.ctx_mut().set_prio(6);
        input.into_inner()
    };
    let prio = |net: &mut Net| QueryTisOut::new(net.name(Opcode::QUERY_TIS, tisn).output).unwrap().tis_context().prio();
    net.must(Opcode::MODIFY_TIS, modify(0), 16);
    assert_eq!(prio(&mut net), 2);
    net.must(Opcode::MODIFY_TIS, modify(1), 16);
    assert_eq!(prio(&mut net), 6);
    bad_param(&net.call(Opcode::MODIFY_TIS, modify(2), 16), tis::syn::LAG);
    bad_param(&net.call(Opcode::MODIFY_TIS, modify(8), 16), tis::syn::UNKNOWN_FIELD);
}

#[test]
fn teardown_gives_every_page_back_with_queues_alive() {
    let mut net = Net::new(&[]);
    net.create_rq();
    net.create_tis();
    let lent = net.rig.function.hca().objects.pages.counters().lent;
    assert_eq!(net.rig.tear_down(), lent);
    assert!(net.rig.function.hca().census().is_empty());
}

#[test]
fn a_user_context_cannot_have_the_reserved_lkey() {
    let mut net = Net::new(&[]);
    let out = net.must(Opcode::CREATE_UCTX, Rig::input(0, 0, 0x40), 16);
    let uid = u32::from(u16::from_be_bytes([out[10], out[11]]));
    let tisn = net.create_tis();
    let mut input = net.sq(tisn);
    input.ctx_mut().set_rlky(1);
    net.must(Opcode::CREATE_SQ, input.as_bytes().to_vec(), 16);
    input.set_uid(uid);
    bad_param(&net.call(Opcode::CREATE_SQ, input.into_inner(), 16), wq::syn::RESERVED_LKEY);
    let mut input = net.rq();
    input.ctx_mut().set_rlky(1);
    net.must(Opcode::CREATE_RQ, input.as_bytes().to_vec(), 16);
    input.set_uid(uid);
    bad_param(&net.call(Opcode::CREATE_RQ, input.into_inner(), 16), wq::syn::RESERVED_LKEY);
}
