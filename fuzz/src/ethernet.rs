//! A hostile driver and hostile peers at the Ethernet queues: flow tables of any shape, receive entries of any segments,
//! frames from the wire and from a send queue, while queues and interfaces change and go.
//!
//! The way of a frame is compared with a plain search through all entries; what lands outside of the receive buffers is
//! found by [`Machine::finish`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use cx10::device::objects::Objects;
use cx10::device::steering::packet::{MATCH_WORDS, describe};
use cx10::device::steering::walk::Verdict;
use cx10::device::steering::{Destination, FlowEntry, FlowTable, MATCH_BYTES};
use cx10::prm::Opcode;
use cx10::prm::cq::CreateCqIn;
use cx10::prm::eq::CreateEqIn;
use cx10::prm::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFteIn, ModifyFlowTableIn, SetFlowTableRootIn, SetFteIn,
};
use cx10::prm::flow_match::FteMatchParam;
use cx10::prm::mkey::CreateMkeyIn;
use cx10::prm::queue::{CreateRqIn, CreateSqIn, ModifyRqIn, ModifySqIn};
use cx10::prm::tir::{CreateRqtIn, CreateTirIn, CreateTisIn, ModifyTirIn};
use cx10::prm::values::{FlowAction, FlowDestType, FlowTableType, WqState, WqeOpcode};
use cx10::prm::wqe::{CtrlSeg, DataSeg, EthSeg};
use cx10::profile::Profile;
use cx10::trace::Trace;
use cx10::wire::Link;
use cx10::wire::layers::layers;

use crate::input::Input;
use crate::machine::Machine;
use crate::work::frame;

/// Most steps of one input.
const STEPS: usize = 64;
/// Receive queues, tables, and pages of the one key.
const QUEUES: usize = 3;
const TABLES: usize = 4;
const PAGES: u64 = 4;
/// Where the key begins, and how long it is: not to the end of its last page.
const VA: u64 = 0x1_0000;
const KEY_BYTES: u64 = PAGES * 4096 - 100;
/// log2 of the entries of a receive ring and of the bytes of one.
const LOG_RING: u32 = 3;
const LOG_STRIDE: u32 = 6;
/// Slots of the machine's memory.
const CQ: u64 = 0;
const RECORDS: u64 = 1;
const EQ: u64 = 2;
const SQ: u64 = 3;
const DATA: u64 = 4;
const RINGS: u64 = 8;
const BUFFERS: u64 = 16;

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Frames that come in.
#[derive(Clone, Debug, Default)]
struct Wire(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl Link for Wire {
    fn carrier(&self) -> bool {
        true
    }

    fn transmit(&mut self, frame: &[u8]) {
        assert!(frame.len() >= 60, "a short frame on the wire");
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let next = self.0.borrow_mut().pop_front();
        next.map(|next| *frame = next).is_some()
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    MACHINE.with_borrow_mut(|machine| {
        let make = || {
            let sets = ["pages.boot=4", "pages.init=200"];
            Machine::with(Profile::with("connectx7", &sets).expect("a valid profile"), Trace::off())
        };
        let machine = machine.get_or_insert_with(make);
        machine.renew();
        let input = &mut Input::new(data);
        let mut net = Net::new(machine, input.u8());
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            net.step(input);
        }
        net.machine.rig.function.hca_mut().link = Box::new(cx10::wire::NotConnected);
        net.machine.finish(true);
    });
}

/// The driver's objects.
struct Net<'a> {
    machine: &'a mut Machine,
    wire: Wire,
    uar: u32,
    key: u32,
    rqs: [u32; QUEUES],
    posted: [u32; QUEUES],
    sqn: u32,
    sent: u16,
    tirs: Vec<u32>,
    tables: [u32; TABLES],
    groups: Vec<(u32, u32)>,
    counter: u32,
}

fn number(out: &[u8]) -> u32 {
    u32::from_be_bytes([0, out[9], out[10], out[11]])
}

impl<'a> Net<'a> {
    fn new(machine: &'a mut Machine, setup: u8) -> Net<'a> {
        machine.rig.bring_up();
        let wire = Wire::default();
        machine.rig.function.hca_mut().link = Box::new(wire.clone());
        let mut make = |opcode: Opcode, mut input: Vec<u8>| {
            input[..2].copy_from_slice(&opcode.0.to_be_bytes());
            number(&machine.rig.ok(&input, 16))
        };
        let [pd, td, uar, counter] =
            [Opcode::ALLOC_PD, Opcode::ALLOC_TRANSPORT_DOMAIN, Opcode::ALLOC_UAR, Opcode::ALLOC_FLOW_COUNTER]
                .map(|opcode| make(opcode, vec![0; 16]));
        let q_counter = u32::from(make(Opcode::ALLOC_Q_COUNTER, vec![0; 16]) as u8);
        let slot = |slot: u64| cx10::testing::FREE + slot * crate::machine::SLOT;
        let mut eq = CreateEqIn::with_tail(8);
        eq.eq_context_entry_mut().set_log_eq_size(6);
        eq.eq_context_entry_mut().set_uar_page(uar);
        eq.pas_mut().copy_from_slice(&slot(EQ).to_be_bytes());
        make(Opcode::CREATE_EQ, eq.into_inner());
        let mut cq = CreateCqIn::with_tail(8);
        let mut context = cq.cq_context_mut();
        context.set_log_cq_size(6);
        // Half of the inputs overrun it.
        context.set_oi(u32::from(setup & 1));
        context.set_uar_page(uar);
        context.set_c_eqn_or_apu_element(1);
        context.set_dbr_addr(slot(RECORDS));
        cq.pas_mut().copy_from_slice(&slot(CQ).to_be_bytes());
        let cqn = make(Opcode::CREATE_CQ, cq.into_inner());
        let mut key = CreateMkeyIn::with_tail(8 * PAGES as usize);
        let mut context = key.memory_key_mkey_entry_mut();
        context.set_access_mode_1_0(1);
        context.set_lr(1);
        context.set_lw(1);
        context.set_qpn(0xff_ffff);
        context.set_pd(pd);
        context.set_start_addr(VA);
        context.set_len(KEY_BYTES);
        context.set_log_page_size(12);
        context.set_translations_octword_size(PAGES.div_ceil(2) as u32);
        key.set_translations_octword_actual_size(PAGES.div_ceil(2) as u32);
        for (i, entry) in key.klm_pas_mtt_mut().chunks_exact_mut(8).enumerate() {
            entry.copy_from_slice(&slot(BUFFERS + i as u64).to_be_bytes());
        }
        let key = make(Opcode::CREATE_MKEY, key.into_inner()) << 8;
        let rqs = [0, 1, 2].map(|i| {
            let mut rq = CreateRqIn::with_tail(8);
            let mut context = rq.ctx_mut();
            context.set_cqn(cqn);
            context.set_vsd(u32::from(i == 0));
            context.set_flush_in_error_en(u32::from(i != 2));
            context.set_counter_set_id(q_counter);
            let mut wq = context.wq_mut();
            wq.set_wq_type(1);
            wq.set_pd(pd);
            wq.set_log_wq_sz(LOG_RING);
            wq.set_log_wq_stride(LOG_STRIDE);
            wq.set_dbr_addr(slot(RECORDS) + 64 * (i + 1));
            wq.pas_mut().copy_from_slice(&slot(RINGS + i).to_be_bytes());
            make(Opcode::CREATE_RQ, rq.into_inner())
        });
        let mut tis = CreateTisIn::zeroed();
        tis.ctx_mut().set_transport_domain(td);
        let tisn = make(Opcode::CREATE_TIS, tis.into_inner());
        let mut sq = CreateSqIn::with_tail(8);
        let mut context = sq.ctx_mut();
        context.set_cqn(cqn);
        context.set_rlky(1);
        context.set_tis_lst_sz(1);
        context.set_tis_num_0(tisn);
        let mut wq = context.wq_mut();
        wq.set_wq_type(1);
        wq.set_pd(pd);
        wq.set_uar_page(uar);
        wq.set_log_wq_sz(4);
        wq.set_log_wq_stride(6);
        wq.set_dbr_addr(slot(RECORDS) + 0x800);
        wq.pas_mut().copy_from_slice(&slot(SQ).to_be_bytes());
        let sqn = make(Opcode::CREATE_SQ, sq.into_inner());
        let mut rqt = CreateRqtIn::with_tail(16);
        rqt.rqt_context_mut().set_rqt_max_size(4);
        rqt.rqt_context_mut().set_rqt_actual_size(4);
        for (i, entry) in rqt.rqt_context_mut().rq_num_mut().chunks_exact_mut(4).enumerate() {
            entry.copy_from_slice(&rqs[i % QUEUES].to_be_bytes());
        }
        let rqtn = make(Opcode::CREATE_RQT, rqt.into_inner());
        let tirs = (0..4)
            .map(|i| {
                let mut tir = CreateTirIn::zeroed();
                let mut context = tir.ctx_mut();
                context.set_transport_domain(if i & 1 == 0 { td } else { 0 });
                context.set_self_lb_block(i);
                if i == 3 {
                    context.set_disp_type(1);
                    context.set_indirect_table(rqtn);
                    context.set_rx_hash_fn(1 + u32::from(setup >> 1 & 1));
                    context.set_rx_hash_symmetric(u32::from(setup >> 2 & 1));
                    context.rx_hash_field_selector_outer_mut().set_selected_fields(0x1f);
                } else {
                    context.set_inline_rqn(rqs[i as usize]);
                }
                make(Opcode::CREATE_TIR, tir.into_inner())
            })
            .collect();
        let tables = [0, 1, 2, 3].map(|i| {
            let mut table = CreateFlowTableIn::zeroed();
            table.flow_table_context_mut().set_level(10 * (i + 1));
            table.flow_table_context_mut().set_log_size(4);
            make(Opcode::CREATE_FLOW_TABLE, table.into_inner())
        });
        let mut root = SetFlowTableRootIn::zeroed();
        root.set_table_id(tables[0]);
        make(Opcode::SET_FLOW_TABLE_ROOT, root.into_inner());
        (0..BUFFERS + PAGES).for_each(|i| {
            machine.buffer(i);
        });
        let groups = Vec::new();
        let mut net =
            Net { machine, wire, uar, key, rqs, posted: [0; QUEUES], sqn, sent: 0, tirs, tables, groups, counter };
        (0..QUEUES).for_each(|queue| net.modify_rq(queue, WqState::RST, WqState::RDY));
        net.modify_sq(WqState::RST, WqState::RDY);
        if setup & 8 == 0 {
            net.furnish();
        }
        net
    }

    /// Every frame has a way, and entries that take it.
    fn furnish(&mut self) {
        for (i, table) in self.tables.into_iter().enumerate() {
            let mut group = CreateFlowGroupIn::zeroed();
            group.set_table_id(table);
            group.set_start_flow_index(14);
            group.set_end_flow_index(15);
            let Some(id) = self.call(Opcode::CREATE_FLOW_GROUP, group.into_inner()) else { continue };
            let next = self.tables.get(i + 1).map(|next| (FlowDestType::FLOW_TABLE, *next));
            let to: Vec<_> = [(FlowDestType::TIR, self.tirs[i])].into_iter().chain(next).collect();
            let mut set = SetFteIn::with_tail(8 * to.len());
            set.set_table_id(table);
            set.set_flow_index(15);
            let mut context = set.flow_context_mut();
            context.set_group_id(id);
            context.set_action(FlowAction::FWD_DEST.bits().into());
            context.set_destination_list_size(to.len() as u32);
            for (slot, (kind, id)) in context.destination_mut().chunks_exact_mut(8).zip(to) {
                slot[..4].copy_from_slice(&(u32::from(kind.0) << 24 | id).to_be_bytes());
            }
            self.call(Opcode::SET_FLOW_TABLE_ENTRY, set.into_inner());
        }
        for queue in 0..QUEUES {
            for i in 0..4 {
                let mut segment = DataSeg::zeroed();
                segment.set_byte_count(4096);
                segment.set_lkey(self.key);
                segment.set_addr(VA + 2000 * i);
                self.post_entry(queue, segment.as_bytes());
            }
            self.say_posted(queue, self.posted[queue]);
        }
    }

    fn post_entry(&mut self, queue: usize, entry: &[u8]) {
        let ring = cx10::testing::FREE + (RINGS + queue as u64) * crate::machine::SLOT;
        let at = u64::from(self.posted[queue]) % (1 << LOG_RING) << LOG_STRIDE;
        let mut bytes = entry.to_vec();
        bytes.resize(1 << LOG_STRIDE, 0);
        self.machine.rig.write(ring + at, &bytes);
        self.posted[queue] += 1;
    }

    fn say_posted(&mut self, queue: usize, count: u32) {
        let record = cx10::testing::FREE + RECORDS * crate::machine::SLOT + 64 * (queue as u64 + 1);
        self.machine.rig.write(record, &count.to_be_bytes());
    }

    /// Runs a command, whether the device grants it or not.
    fn call(&mut self, opcode: Opcode, mut input: Vec<u8>) -> Option<u32> {
        input[..2].copy_from_slice(&opcode.0.to_be_bytes());
        let answer = self.machine.rig.exec(&input, 16);
        (answer.status() == 0).then(|| number(&answer.output))
    }

    fn modify_rq(&mut self, queue: usize, from: WqState, to: WqState) {
        let mut input = ModifyRqIn::zeroed();
        input.set_rqn(self.rqs[queue]);
        input.set_rq_state(from.0.into());
        input.ctx_mut().set_state(to.0.into());
        if self.call(Opcode::MODIFY_RQ, input.into_inner()).is_some() && to == WqState::RST {
            self.posted[queue] = 0;
        }
    }

    fn modify_sq(&mut self, from: WqState, to: WqState) {
        let mut input = ModifySqIn::zeroed();
        input.set_sqn(self.sqn);
        input.set_sq_state(from.0.into());
        input.ctx_mut().set_state(to.0.into());
        if self.call(Opcode::MODIFY_SQ, input.into_inner()).is_some() && to == WqState::RST {
            self.sent = 0;
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 16 {
            0..=2 => self.post(input),
            3..=5 => self.bring(input),
            6 | 7 => self.send(input),
            8 | 9 => self.entry(input),
            10 => self.group(input),
            11 => {
                let mut delete = DeleteFteIn::zeroed();
                delete.set_table_id(input.pick(&self.tables));
                delete.set_flow_index(input.u8().into());
                self.call(Opcode::DELETE_FLOW_TABLE_ENTRY, delete.into_inner());
            }
            12 => {
                let states = [WqState::RST, WqState::RDY, WqState::ERR];
                let queue = input.below(QUEUES);
                let from = self.machine.rig.function.hca().objects.rqs.get(self.rqs[queue]).map(|e| e.object.state);
                self.modify_rq(queue, from.unwrap_or(WqState::RST), input.pick(&states));
                let from = self.machine.rig.function.hca().objects.sqs.get(self.sqn).map(|e| e.object.state);
                if input.one_in(2) {
                    self.modify_sq(from.unwrap_or(WqState::RST), input.pick(&states));
                }
            }
            13 => {
                let mut modify = ModifyFlowTableIn::zeroed();
                modify.set_table_id(input.pick(&self.tables));
                modify.set_modify_field_select(1);
                let mut context = modify.flow_table_context_mut();
                context.set_table_miss_action(u32::from(input.u8() % 3));
                context.set_table_miss_id(input.pick(&self.tables));
                self.call(Opcode::MODIFY_FLOW_TABLE, modify.into_inner());
            }
            14 => {
                let mut modify = ModifyTirIn::zeroed();
                modify.set_tirn(input.pick(&self.tirs));
                modify.as_bytes_mut()[0x17] = input.u8();
                let mut context = modify.ctx_mut();
                context.set_self_lb_block(u32::from(input.u8() % 4));
                context.set_rx_hash_fn(u32::from(input.u8() % 4));
                context.rx_hash_field_selector_outer_mut().set_selected_fields(input.u8().into());
                context.rx_hash_field_selector_outer_mut().set_l3_prot_type(u32::from(input.u8() % 2));
                self.call(Opcode::MODIFY_TIR, modify.into_inner());
            }
            _ => {
                let hca = self.machine.rig.function.hca_mut();
                match input.u8() % 4 {
                    0 => {
                        hca.port.set_mtu(input.u16());
                    }
                    1 => hca.vport.context.set_disable_mc_local_lb(u32::from(input.u8() % 2)),
                    2 => hca.change_link(|hca| hca.port.set_carrier(true)),
                    _ => {
                        // A consumer that keeps up, or does not.
                        let consumed = input.u32() & 0xff;
                        self.machine
                            .rig
                            .write(cx10::testing::FREE + RECORDS * crate::machine::SLOT, &consumed.to_be_bytes());
                    }
                }
            }
        }
        self.machine.audit();
    }

    /// Posts a receive entry, and says how many there are.
    fn post(&mut self, input: &mut Input<'_>) {
        let queue = input.below(QUEUES);
        let mut entry = Vec::new();
        for _ in 0..4 {
            let shape = input.u8();
            let mut segment = DataSeg::zeroed();
            segment.set_inline(u32::from(shape & 1));
            segment.set_byte_count(match shape >> 1 & 3 {
                0 => input.u8().into(),
                1 => u32::from(input.u16()),
                2 => 2048,
                _ => input.u32() >> 1,
            });
            segment.set_lkey(match shape >> 3 & 7 {
                0 => 0x100,
                1 => 0x300,
                2 => input.u32(),
                _ => self.key,
            });
            segment.set_addr(match shape >> 6 {
                0 => input.u64(),
                1 => VA + KEY_BYTES - u64::from(input.u8()),
                _ => VA + u64::from(input.u16()) % KEY_BYTES,
            });
            if shape >> 3 & 7 == 0 {
                segment.set_byte_count(0);
            }
            entry.extend(segment.into_inner());
        }
        self.post_entry(queue, &entry);
        let count = if input.one_in(32) { input.u32() } else { self.posted[queue] };
        self.say_posted(queue, count);
    }

    /// A frame of one of the kinds that the tables know, or of any.
    fn frame(&self, input: &mut Input<'_>) -> Vec<u8> {
        let len = match input.u8() % 4 {
            0 => usize::from(input.u16()) % 10_000,
            1 => usize::from(input.u8()),
            _ => 60 + usize::from(input.u8()),
        };
        let mut bytes = frame(len, input);
        let own = self.machine.rig.function.hca().vport.mac();
        if let Some(to) = bytes.first_chunk_mut::<6>() {
            *to = match input.u8() % 4 {
                0 => own,
                1 => [0xff; 6],
                2 => [1, 0, 0x5e, 0, 0, 1],
                _ => *to,
            };
        }
        if input.one_in(4) && bytes.len() > 12 {
            bytes.splice(12..12, input.pick(&[[0x81, 0, 0x20, 5], [0x88, 0xa8, 0, 7]]));
        }
        bytes
    }

    fn bring(&mut self, input: &mut Input<'_>) {
        for _ in 0..1 + input.u8() % 4 {
            let frame = self.frame(input);
            self.compare(&frame);
            self.wire.0.borrow_mut().push_back(frame);
        }
        // Commands may come between the portions.
        if input.one_in(4) {
            self.machine.portion();
        } else {
            self.machine.settle();
        }
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let frame = self.frame(input);
        let data = cx10::testing::FREE + DATA * crate::machine::SLOT;
        let len = frame.len().min(4096);
        self.machine.rig.write(data, &frame[..len]);
        let large = input.one_in(3);
        let headers = if large { len.min(54) } else { 0 };
        let mut body = EthSeg::zeroed();
        body.set_mss(u32::from(input.u8()) + 32);
        body.set_inline_hdr_sz(headers as u32);
        let mut body = body.into_inner();
        body.truncate(14);
        body.extend(&frame[..headers]);
        body.resize(body.len().next_multiple_of(16), 0);
        if len > headers {
            let mut segment = DataSeg::zeroed();
            segment.set_byte_count((len - headers) as u32);
            segment.set_lkey(0x200);
            segment.set_addr(data + headers as u64);
            body.extend(segment.into_inner());
        }
        let mut ctrl = CtrlSeg::zeroed();
        ctrl.set_opcode(if large { WqeOpcode::LSO.0 } else { WqeOpcode::SEND.0 }.into());
        ctrl.set_qpn(self.sqn);
        ctrl.set_wqe_index(self.sent.into());
        ctrl.set_ce(u32::from(input.u8() & 2));
        ctrl.set_ds(1 + body.len() as u32 / 16);
        let mut entry = ctrl.into_inner();
        entry.extend(body);
        entry.resize(entry.len().next_multiple_of(64), 0);
        let ring = cx10::testing::FREE + SQ * crate::machine::SLOT;
        for block in entry.chunks(64) {
            self.machine.rig.write(ring + u64::from(self.sent % 16) * 64, block);
            self.sent = self.sent.wrapping_add(1);
        }
        let record = cx10::testing::FREE + RECORDS * crate::machine::SLOT + 0x804;
        self.machine.rig.write(record, &u32::from(self.sent).to_be_bytes());
        let mut doorbell = [0; 8];
        doorbell[4..].copy_from_slice(&(self.sqn << 8 | 1).to_be_bytes());
        self.machine.rig.function.bar_write(u64::from(self.uar) << 12 | 0x800, &doorbell);
        if input.one_in(4) {
            self.machine.portion();
        } else {
            self.machine.settle();
        }
    }

    fn group(&mut self, input: &mut Input<'_>) {
        let mut group = CreateFlowGroupIn::zeroed();
        let table = input.pick(&self.tables);
        let first = input.u8() % 16;
        group.set_table_id(table);
        group.set_start_flow_index(first.into());
        group.set_end_flow_index(u32::from(first) + u32::from(input.u8() % 4));
        let fields = input.u8();
        group.set_match_criteria_enable(u32::from(fields != 0));
        let mut mask = group.match_criteria_mut();
        let mut outer = mask.outer_headers_mut();
        if fields & 1 != 0 {
            outer.set_ethertype(0xffff);
        }
        if fields & 2 != 0 {
            outer.set_dmac_47_16(0xff00_0000);
        }
        if fields & 4 != 0 {
            outer.set_ip_version(0xf);
        }
        if fields & 8 != 0 {
            outer.set_ip_protocol(input.u8().into());
        }
        if fields & 0x10 != 0 {
            outer.set_cvlan_tag(1);
            outer.set_first_vid(u32::from(input.u16() & 0xfff));
        }
        if fields & 0x20 != 0 {
            outer.set_tcp_dport(0xffff);
        }
        if fields & 0x40 != 0 {
            outer.set_frag(1);
        }
        if let Some(id) = self.call(Opcode::CREATE_FLOW_GROUP, group.into_inner()) {
            self.groups.push((table, id));
        }
    }

    /// An entry for frames like one that is made up here.
    fn entry(&mut self, input: &mut Input<'_>) {
        if self.groups.is_empty() {
            return self.group(input);
        }
        let (table, id) = self.groups[input.below(self.groups.len())];
        let like = self.frame(input);
        let mut words = [0; MATCH_WORDS];
        describe(&like, &layers(&like, false), &mut words);
        let count = 1 + input.below(4);
        let mut set = SetFteIn::with_tail(8 * count + 8);
        set.set_table_id(table);
        let mut context = set.flow_context_mut();
        context.set_group_id(id);
        context.set_flow_tag(u32::from(input.u8() % 2) * 7);
        let objects = &self.machine.rig.function.hca().objects;
        let Some(group) = objects.flow_groups.get(id).map(|entry| &entry.object) else { return };
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let masked: Vec<u8> = value.iter().zip(&group.criteria[..]).map(|(value, mask)| value & mask).collect();
        context.match_value_mut().as_bytes_mut().copy_from_slice(&masked);
        let index = group.first + u32::from(input.u8() % 4);
        let mut action = input.pick(&[FlowAction::DROP, FlowAction::ALLOW, FlowAction::FWD_DEST, FlowAction::FWD_DEST]);
        let lists = if action == FlowAction::FWD_DEST { count } else { 0 };
        context.set_destination_list_size(lists as u32);
        for slot in context.destination_mut().chunks_exact_mut(8).take(lists) {
            let (kind, id) = if input.one_in(2) {
                (FlowDestType::FLOW_TABLE, input.pick(&self.tables))
            } else {
                (FlowDestType::TIR, input.pick(&self.tirs))
            };
            slot[..4].copy_from_slice(&(u32::from(kind.0) << 24 | id).to_be_bytes());
        }
        if input.one_in(4) {
            action |= FlowAction::COUNT;
            context.set_flow_counter_list_size(1);
            context.destination_mut()[8 * lists..][..4].copy_from_slice(&self.counter.to_be_bytes());
        }
        context.set_action(action.bits().into());
        set.set_flow_index(index);
        self.call(Opcode::SET_FLOW_TABLE_ENTRY, set.into_inner());
    }

    /// Compares the way of a frame with that of a plain search.
    fn compare(&self, frame: &[u8]) {
        let hca = self.machine.rig.function.hca();
        let mut words = [0; MATCH_WORDS];
        describe(frame, &layers(frame, false), &mut words);
        let root = hca.roots.get(FlowTableType::NIC_RX);
        let mut verdict = Verdict::default();
        verdict.walk(&hca.objects, root, &words);
        assert!(!verdict.cut, "four tables are not many");
        let mut expected = Expected::default();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        if let Some(root) = root {
            expected.search(&hca.objects, root, 0, &bytes);
        }
        let mut targets: Vec<(u32, u32)> = verdict.targets.iter().map(|target| (target.tirn, target.tag)).collect();
        let mut counters = verdict.counters.clone();
        targets.sort_unstable();
        counters.sort_unstable();
        expected.targets.sort_unstable();
        expected.counters.sort_unstable();
        assert_eq!((targets, counters, verdict.passed), (expected.targets, expected.counters, expected.passed));
    }
}

/// Where a frame should go.
#[derive(Default)]
struct Expected {
    targets: Vec<(u32, u32)>,
    counters: Vec<u32>,
    passed: bool,
}

impl Expected {
    fn search(&mut self, objects: &Objects, table_id: u32, tag: u32, packet: &[u8]) {
        let table = &objects.flow_tables.get(table_id).expect("tables are not destroyed").object;
        let matching = table.entries.values().map(|id| &objects.flow_entries.get(*id).expect("it exists").object);
        let Some(entry) = matching.into_iter().find(|entry| matches(objects, entry, packet)) else {
            match FlowTable::miss_table(&table.context) {
                Some(next) => self.search(objects, next, tag, packet),
                None => self.passed = true,
            }
            return;
        };
        let tag = if entry.context.flow_tag() != 0 { entry.context.flow_tag() } else { tag };
        self.counters.extend(&entry.counters);
        let action = FlowAction::from_bits_retain(entry.context.action() as u16);
        if action.contains(FlowAction::FWD_DEST) {
            for destination in &entry.destinations {
                match destination {
                    Destination::Tir(tirn) => self.targets.push((*tirn, tag)),
                    Destination::Table(next) => self.search(objects, *next, tag, packet),
                }
            }
        } else {
            self.passed |= !action.contains(FlowAction::DROP);
        }
    }
}

fn matches(objects: &Objects, entry: &FlowEntry, packet: &[u8]) -> bool {
    let group = &objects.flow_groups.get(entry.context.group_id()).expect("it exists").object;
    let value: FteMatchParam<&[u8]> = entry.context.match_value();
    let value = value.as_bytes();
    (0..MATCH_BYTES).all(|i| packet[i] & group.criteria[i] == value[i] & group.criteria[i])
}
