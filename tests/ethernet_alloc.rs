//! Ethernet queues do not touch the heap: not for a send entry, not for a frame, however many queues get it.

use std::alloc::System;
use std::cell::RefCell;
use std::rc::Rc;

use cap::Cap;
use cx10::prm::Opcode;
use cx10::prm::flow::{CreateFlowGroupIn, CreateFlowTableIn, SetFlowTableRootIn, SetFteIn};
use cx10::prm::mkey::CreateMkeyIn;
use cx10::prm::queue::{CreateRqIn, CreateSqIn, ModifyRqIn, ModifySqIn};
use cx10::prm::tir::{CreateRqtIn, CreateTirIn, CreateTisIn};
use cx10::prm::values::{FlowAction, FlowDestType, WqState, WqeOpcode};
use cx10::prm::wqe::{CtrlSeg, DataSeg, EthSeg};
use cx10::profile::Profile;
use cx10::testing::queues::{QueueRig, number};
use cx10::wire::Link;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const QUEUES: usize = 3;
/// log2 of the entries of a ring.
const LOG_RING: u32 = 6;
const BLOCK: usize = 64;

/// A peer that brings one frame again and again, and drops what it gets.
#[derive(Clone, Debug)]
struct Peer {
    frame: Rc<[u8]>,
    left: Rc<RefCell<u32>>,
}

impl Link for Peer {
    fn carrier(&self) -> bool {
        true
    }

    fn transmit(&mut self, _frame: &[u8]) {}

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let mut left = self.left.borrow_mut();
        let some = *left > 0;
        if some {
            *left -= 1;
            frame.clear();
            frame.extend_from_slice(&self.frame);
        }
        some
    }
}

/// A send queue whose frames, and those of a peer, go to all of some receive queues.
struct Net {
    rig: QueueRig,
    peer: Peer,
    key: u32,
    sqn: u32,
    sq: (u64, u64),
    sent: u16,
    rqs: [(u64, u64); QUEUES],
    posted: [u32; QUEUES],
    buffer: u64,
}

impl Net {
    fn make(rig: &mut QueueRig, opcode: Opcode, mut input: Vec<u8>) -> u32 {
        input[..2].copy_from_slice(&opcode.0.to_be_bytes());
        number(&rig.ok(&input, 16))
    }

    fn new(frame: &[u8]) -> Net {
        let mut rig = QueueRig::with(Profile::with("connectx7", &[]).unwrap());
        let peer = Peer { frame: frame.into(), left: Rc::new(RefCell::new(0)) };
        rig.function.hca_mut().link = Box::new(peer.clone());
        let pd = rig.pd();
        let [td, other] = [(); 2].map(|()| Net::make(&mut rig, Opcode::ALLOC_TRANSPORT_DOMAIN, vec![0; 16]));
        let cqns = [(); 2].map(|()| {
            let (mut input, ..) = rig.create_cq_in(8);
            // Nobody takes the completions.
            input.cq_context_mut().set_oi(1);
            number(&rig.ok(input.as_bytes(), 16))
        });
        let mut key = CreateMkeyIn::zeroed();
        let mut context = key.memory_key_mkey_entry_mut();
        context.set_lr(1);
        context.set_lw(1);
        context.set_length64(1);
        context.set_qpn(0xff_ffff);
        context.set_pd(pd);
        let key = Net::make(&mut rig, Opcode::CREATE_MKEY, key.into_inner()) << 8;
        let mut rqs = [(0, 0); QUEUES];
        let rqns = [0, 1, 2].map(|i| {
            rqs[i] = (rig.memory(4096), rig.memory(8));
            let mut input = CreateRqIn::with_tail(8);
            input.ctx_mut().set_cqn(cqns[0]);
            let mut context = input.ctx_mut();
            let mut wq = context.wq_mut();
            wq.set_wq_type(1);
            wq.set_pd(pd);
            wq.set_log_wq_sz(LOG_RING);
            wq.set_log_wq_stride(6);
            wq.set_dbr_addr(rqs[i].1);
            wq.pas_mut().copy_from_slice(&rqs[i].0.to_be_bytes());
            let rqn = Net::make(&mut rig, Opcode::CREATE_RQ, input.into_inner());
            let mut input = ModifyRqIn::zeroed();
            input.set_rqn(rqn);
            input.ctx_mut().set_state(WqState::RDY.0.into());
            Net::make(&mut rig, Opcode::MODIFY_RQ, input.into_inner());
            rqn
        });
        let mut tis = CreateTisIn::zeroed();
        tis.ctx_mut().set_transport_domain(other);
        let tisn = Net::make(&mut rig, Opcode::CREATE_TIS, tis.into_inner());
        let sq = (rig.memory(4096), rig.memory(8));
        let mut input = CreateSqIn::with_tail(8);
        input.ctx_mut().set_cqn(cqns[1]);
        input.ctx_mut().set_tis_lst_sz(1);
        input.ctx_mut().set_tis_num_0(tisn);
        let uar = rig.uar;
        let mut context = input.ctx_mut();
        let mut wq = context.wq_mut();
        wq.set_wq_type(1);
        wq.set_pd(pd);
        wq.set_uar_page(uar);
        wq.set_log_wq_sz(LOG_RING);
        wq.set_log_wq_stride(6);
        wq.set_dbr_addr(sq.1);
        wq.pas_mut().copy_from_slice(&sq.0.to_be_bytes());
        let sqn = Net::make(&mut rig, Opcode::CREATE_SQ, input.into_inner());
        let mut input = ModifySqIn::zeroed();
        input.set_sqn(sqn);
        input.ctx_mut().set_state(WqState::RDY.0.into());
        Net::make(&mut rig, Opcode::MODIFY_SQ, input.into_inner());
        let mut rqt = CreateRqtIn::with_tail(8);
        rqt.rqt_context_mut().set_rqt_max_size(2);
        rqt.rqt_context_mut().set_rqt_actual_size(2);
        for (slot, rqn) in rqt.rqt_context_mut().rq_num_mut().chunks_exact_mut(4).zip(rqns) {
            slot.copy_from_slice(&rqn.to_be_bytes());
        }
        let rqtn = Net::make(&mut rig, Opcode::CREATE_RQT, rqt.into_inner());
        let tirns = [0, 1, 2].map(|i| {
            let mut tir = CreateTirIn::zeroed();
            let mut context = tir.ctx_mut();
            context.set_transport_domain(td);
            context.set_inline_rqn(rqns[i]);
            if i == 0 {
                context.set_disp_type(1);
                context.set_indirect_table(rqtn);
                context.set_rx_hash_fn(2);
                context.rx_hash_field_selector_outer_mut().set_selected_fields(0xf);
            }
            Net::make(&mut rig, Opcode::CREATE_TIR, tir.into_inner())
        });
        Net::steer(&mut rig, &tirns);
        let buffer = rig.memory(64 << 10);
        rig.write(buffer, frame);
        Net { rig, peer, key, sqn, sq, sent: 0, rqs, posted: [0; QUEUES], buffer }
    }

    /// A table of the receiving side that gives every frame to all interfaces, and one of the sending side.
    fn steer(rig: &mut QueueRig, tirns: &[u32]) {
        for table_type in [0, 1] {
            let mut table = CreateFlowTableIn::zeroed();
            table.set_table_type(table_type);
            table.flow_table_context_mut().set_log_size(2);
            let table_id = Net::make(rig, Opcode::CREATE_FLOW_TABLE, table.into_inner());
            let mut root = SetFlowTableRootIn::zeroed();
            root.set_table_type(table_type);
            root.set_table_id(table_id);
            Net::make(rig, Opcode::SET_FLOW_TABLE_ROOT, root.into_inner());
            let mut group = CreateFlowGroupIn::zeroed();
            group.set_table_type(table_type);
            group.set_table_id(table_id);
            group.set_match_criteria_enable(1);
            group.match_criteria_mut().outer_headers_mut().set_ethertype(0xffff);
            let group_id = Net::make(rig, Opcode::CREATE_FLOW_GROUP, group.into_inner());
            let tirns = if table_type == 0 { tirns } else { &[] };
            let mut set = SetFteIn::with_tail(8 * tirns.len());
            set.set_table_type(table_type);
            set.set_table_id(table_id);
            let mut context = set.flow_context_mut();
            context.set_group_id(group_id);
            context.match_value_mut().outer_headers_mut().set_ethertype(0x0800);
            let action = if table_type == 0 { FlowAction::FWD_DEST } else { FlowAction::ALLOW };
            context.set_action(action.bits().into());
            context.set_destination_list_size(tirns.len() as u32);
            for (slot, tirn) in context.destination_mut().chunks_exact_mut(8).zip(tirns) {
                slot[..4].copy_from_slice(&(u32::from(FlowDestType::TIR.0) << 24 | tirn).to_be_bytes());
            }
            Net::make(rig, Opcode::SET_FLOW_TABLE_ENTRY, set.into_inner());
        }
    }

    /// Fills the receive rings.
    fn post_receives(&mut self) {
        let mut segment = DataSeg::zeroed();
        segment.set_byte_count(16384);
        segment.set_lkey(self.key);
        segment.set_addr(self.buffer + 0x4000);
        let mut entry = segment.into_inner();
        entry.resize(BLOCK, 0);
        for (queue, (ring, record)) in self.rqs.into_iter().enumerate() {
            for i in 0..1 << LOG_RING {
                self.rig.write(ring + i * BLOCK as u64, &entry);
            }
            let executed = self.consumed(queue);
            self.posted[queue] = executed.wrapping_add(1 << LOG_RING);
            self.rig.write(record, &self.posted[queue].to_be_bytes());
        }
    }

    fn consumed(&self, queue: usize) -> u32 {
        let objects = &self.rig.function.hca().objects;
        objects.rqs.iter().nth(queue).map_or(0, |(_, entry)| entry.object.consumed.into())
    }

    /// Posts a send entry and rings for it.
    fn post(&mut self, opcode: WqeOpcode, headers: usize, len: usize, frame: &[u8]) {
        let mut eth = EthSeg::zeroed();
        eth.set_mss(100);
        eth.set_l3_csum(1);
        eth.set_l4_csum(1);
        eth.set_inline_hdr_sz(headers as u32);
        let mut body = eth.into_inner();
        body.truncate(14);
        body.extend(&frame[..headers]);
        body.resize(body.len().next_multiple_of(16), 0);
        let mut segment = DataSeg::zeroed();
        segment.set_byte_count((len - headers) as u32);
        segment.set_lkey(self.key);
        segment.set_addr(self.buffer + headers as u64);
        body.extend(segment.into_inner());
        let mut ctrl = CtrlSeg::zeroed();
        ctrl.set_opcode(opcode.0.into());
        ctrl.set_qpn(self.sqn);
        ctrl.set_ce(2);
        ctrl.set_ds(1 + body.len() as u32 / 16);
        let mut entry = ctrl.into_inner();
        entry.extend(body);
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        for block in entry.chunks(BLOCK) {
            self.rig.write(self.sq.0 + u64::from(self.sent % (1 << LOG_RING)) * BLOCK as u64, block);
            self.sent = self.sent.wrapping_add(1);
        }
        self.rig.write(self.sq.1 + 4, &u32::from(self.sent).to_be_bytes());
        let mut doorbell = [0; 8];
        doorbell[4..].copy_from_slice(&(self.sqn << 8).to_be_bytes());
        let at = u64::from(self.rig.uar) << 12 | 0x800;
        self.rig.function.bar_write(at, &doorbell);
    }

    /// Bytes that the device allocates while it works.
    fn settle(&mut self) -> usize {
        let before = HEAP.total_allocated();
        self.rig.settle();
        HEAP.total_allocated() - before
    }
}

/// A TCP packet over IPv4 to a group, 1500 bytes.
fn packet() -> Vec<u8> {
    let mut frame = vec![1, 0, 0x5e, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 5, 206, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
    frame.resize(1500, 7);
    frame
}

#[test]
fn frames_do_not_allocate() {
    let frame = packet();
    let mut net = Net::new(&frame);
    for round in 0..20 {
        net.post_receives();
        *net.peer.left.borrow_mut() = 4;
        let received = net.settle();
        net.post(WqeOpcode::SEND, 0, 1500, &frame);
        net.post(WqeOpcode::NOP, 0, 100, &frame);
        net.post(WqeOpcode::SEND, 14, 60, &frame);
        let sent = net.settle();
        net.post(WqeOpcode::LSO, 54, 1500, &frame);
        let large = net.settle();
        // The first round takes the memory that all others use again.
        if round > 0 {
            assert_eq!((received, sent, large), (0, 0, 0), "bytes allocated in round {round}");
        }
        // Four frames from the wire, two that were sent, fifteen packets of the large one: to all three queues, of which
        // the hash gives the first interface's to one of two.
        let left: u32 = (0..QUEUES).map(|queue| net.posted[queue] - net.consumed(queue)).sum();
        assert_eq!(left, 3 * (1 << LOG_RING) - 3 * (4 + 2 + 15), "round {round}");
    }
}
