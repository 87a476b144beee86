//! Queue pairs that work on memory whose pages come and go, by a driver that answers page faults as it likes; and what a
//! driver learns of the device beside that: dumps of resources, the firmware tracer, device memory.

use cx10::device::function::ResetKind;
use cx10::device::memic::{BAR_OFFSET, SIZE};
use cx10::dma::order::Scope;
use cx10::mkey::list::Translations;
use cx10::mkey::reserved::Reserved;
use cx10::prm::Opcode;
use cx10::prm::commands::RegisterId;
use cx10::prm::diag::{CoreDumpReg, DumpSegment, MtrcCap, MtrcConf, MtrcCtrl, MtrcStdb, ResourceDump};
use cx10::prm::eqe::{MemoryPageFault, RdmaPageFault, WqePageFault};
use cx10::prm::mkey::PageFaultResumeIn;
use cx10::prm::pd::{AllocMemicIn, ModifyMemicIn};
use cx10::prm::values::{QpType, WqeOpcode};
use cx10::profile::Profile;
use cx10::testing::queues::{Eq, QueueRig};
use cx10::testing::rdma::{Link, Qp, RdmaRig, data, inline, remote};
use cx10::testing::{FREE, Rig};

use crate::input::Input;

/// Most steps of one input.
const STEPS: usize = 120;
const PAGE: u64 = 4096;
const PAGES: u64 = 8;
/// The address of the first byte in a region's key.
const VA: u64 = 0x7000_0000;
const PAGE_FAULT: u8 = 0xc;
/// Memory that is always there.
const PLAIN: u64 = FREE + 0x180_0000;

/// What can be dumped.
const SEGMENTS: [DumpSegment; 17] = [
    DumpSegment::MENU,
    DumpSegment::FULL_SRQC,
    DumpSegment::FULL_CQC,
    DumpSegment::FULL_EQC,
    DumpSegment::FULL_QPC,
    DumpSegment::SND_BUFF,
    DumpSegment::RCV_BUFF,
    DumpSegment::SRQ_BUFF,
    DumpSegment::CQ_BUFF,
    DumpSegment::EQ_BUFF,
    DumpSegment::SX_SLICE,
    DumpSegment::RX_SLICE,
    DumpSegment::MKEY_CONTEXT,
    DumpSegment::PRM_QUERY_QP,
    DumpSegment::PRM_QUERY_CQ,
    DumpSegment::PRM_QUERY_MKEY,
    DumpSegment::QUERY_VNIC_ENV,
];

#[derive(Clone, Copy)]
struct Region {
    key: u32,
    frames: u64,
}

/// A fault that the driver was told of: kind, queue, token.
type Told = (u32, u32, u32);

struct World {
    rig: RdmaRig,
    memory_scheme: bool,
    eq: Eq,
    qps: Vec<Qp>,
    regions: Vec<Region>,
    /// Every key that entries name.
    keys: Vec<u32>,
    told: Vec<Told>,
    dump: Vec<u8>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    let setup = input.u8();
    let mut world = World::new(setup);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(input);
        world.check();
    }
    world.finish(setup);
    drop(world);
    crate::assert_nothing_kept();
}

impl World {
    fn new(setup: u8) -> World {
        let memory_scheme = setup & 1 != 0;
        let mut sets = vec![
            "firmware.tracer=true",
            "caps.general.debug=1",
            "caps.debug.resource_dump=1",
            "caps.debug.core_dump_general=1",
        ];
        if memory_scheme {
            sets.push("caps.odp.mem_page_fault=1");
        }
        if setup & 2 != 0 {
            sets.extend(["order.policy=random", "order.check=true"]);
        }
        if setup & 4 != 0 {
            sets.push("wire.fault=[\"drop:every=11\", \"duplicate:every=17\", \"delay:us=30,every=13\"]");
        }
        let mut rig = RdmaRig::with(Profile::with("connectx10-c2c", &sets).expect("a valid profile"));
        let eq = rig.create_eq(2, 1 << PAGE_FAULT, 2 + u32::from(setup >> 6));
        let mut world = World {
            rig,
            memory_scheme,
            eq,
            qps: Vec::new(),
            regions: Vec::new(),
            keys: Vec::new(),
            told: Vec::new(),
            dump: Vec::new(),
        };
        for _ in 0..2 {
            let region = world.region();
            world.regions.push(region);
        }
        for service in [QpType::RC, QpType::RC, QpType::UD] {
            let (a, b) = world.rig.pair(service, Link::default());
            world.qps.extend([a, b]);
        }
        world.name_keys();
        world
    }

    fn region(&mut self) -> Region {
        let frames = self.rig.memory(PAGES * PAGE);
        let key = self.rig.create_listed_key(&[0; 8 * PAGES as usize], |mkc| {
            mkc.set_access_mode_1_0(1);
            mkc.set_translations_octword_size(PAGES as u32 / 2);
            mkc.set_log_page_size(12);
            mkc.set_start_addr(VA);
            mkc.set_len(PAGES * PAGE);
        });
        Region { key, frames }
    }

    /// Keys that lead to the regions, directly and by lists of equal and of unequal pieces.
    fn name_keys(&mut self) {
        let regions = self.regions.clone();
        let equal: Vec<u8> = [Reserved::Null.key(), regions[0].key, regions[1].key, 0]
            .iter()
            .flat_map(|key| [&u64::from(*key).to_be_bytes()[..], &VA.to_be_bytes()].concat())
            .collect();
        let equal = self.rig.create_listed_key(&equal, |mkc| {
            mkc.set_access_mode_1_0(3);
            mkc.set_translations_octword_size(4);
            mkc.set_log_page_size(15);
            mkc.set_len(4 * PAGES * PAGE);
        });
        let plain = self.rig.key;
        let pieces: Vec<u8> = (0..64u32)
            .flat_map(|i| {
                let (key, va) =
                    if i % 3 == 0 { (plain, PLAIN) } else { (regions[i as usize % 2].key, VA + u64::from(i) * 500) };
                [&(1 + i % 70).to_be_bytes()[..], &key.to_be_bytes(), &va.to_be_bytes()].concat()
            })
            .collect();
        let unequal = self.rig.create_listed_key(&pieces, |mkc| {
            mkc.set_access_mode_1_0(2);
            mkc.set_translations_octword_size(64);
            mkc.set_len((0..64u64).map(|i| 1 + i % 70).sum());
        });
        self.keys = vec![plain, regions[0].key, regions[1].key, equal, unequal, Reserved::Null.key()];
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 24 {
            0..=7 => self.post(input),
            8..=10 => self.pages(input),
            11..=14 => self.resume(input),
            15 => {
                let time = input.pick(&[1000, 1_000_000, 100_000_000, 10_000_000_000]);
                self.rig.pass(time);
            }
            16 => self.end(input),
            17 => {
                self.listen();
                self.rig.ok(&QueueRig::naming(0x302, self.eq.eqn), 16);
                if input.one_in(2) {
                    self.rig.settle();
                }
                self.eq = self.rig.create_eq(2, 1 << PAGE_FAULT, 1 + u32::from(input.u8() % 4));
            }
            18 => {
                let at = input.below(2);
                self.rig.destroy_key(self.regions[at].key);
                self.regions[at] = self.region();
                self.name_keys();
            }
            19 | 20 => self.dump(input),
            21 | 22 => self.trace(input),
            _ => self.device_memory(input),
        }
        self.rig.settle();
    }

    fn post(&mut self, input: &mut Input<'_>) {
        use WqeOpcode as O;
        let at = input.below(self.qps.len());
        for _ in 0..1 + input.u8() % 3 {
            let opcode = input.pick(&[
                O::SEND,
                O::SEND_IMM,
                O::RDMA_WRITE,
                O::RDMA_WRITE_IMM,
                O::RDMA_READ,
                O::ATOMIC_FA,
                O::ATOMIC_CS,
                O::NOP,
            ]);
            let mut segments = Vec::new();
            if matches!(opcode, O::RDMA_WRITE | O::RDMA_WRITE_IMM | O::RDMA_READ | O::ATOMIC_FA | O::ATOMIC_CS) {
                let (key, va) = self.place(input);
                segments.extend(remote(va & !7, key));
            }
            if matches!(opcode, O::ATOMIC_FA | O::ATOMIC_CS) {
                segments.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
                let (key, va) = self.place(input);
                segments.extend(data(8, key, va));
            } else if opcode != O::NOP {
                segments.extend(self.list(input));
            }
            if input.one_in(3) {
                let list = self.list(input);
                self.rig.post_receive(&mut self.qps[at ^ 1], &list[..list.len().min(48)]);
            }
            let fence = u32::from(input.u8());
            self.rig.post_send(&mut self.qps[at], opcode, &segments, |ctrl| {
                ctrl.set_fence(if fence > 4 { 0 } else { fence });
            });
        }
        self.rig.ring_send(&self.qps[at]);
    }

    fn place(&mut self, input: &mut Input<'_>) -> (u32, u64) {
        let key = input.pick(&self.keys);
        let at = u64::from(input.u16());
        let va = if key == self.rig.key {
            PLAIN + at
        } else if self.regions.iter().any(|region| region.key == key) {
            VA + at % (PAGES * PAGE)
        } else {
            at
        };
        (if input.one_in(64) { input.u32() } else { key }, va)
    }

    fn list(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        if input.one_in(8) {
            return inline(input.bytes(24));
        }
        let mut list = Vec::new();
        for _ in 0..1 + input.u8() % 3 {
            let (key, va) = self.place(input);
            let len = match input.u8() % 8 {
                0 => input.u32() >> 1,
                1 => u32::from(input.u16()) << 3,
                2 | 3 => u32::from(input.u16()) % 9000,
                _ => 1 + u32::from(input.u8()),
            };
            list.extend(data(len, key, va));
        }
        list
    }

    fn pages(&mut self, input: &mut Input<'_>) {
        let region = self.regions[input.below(2)];
        let from = u64::from(input.u8()) % PAGES;
        let to = (from + 1 + u64::from(input.u8()) % PAGES).min(PAGES);
        let rights = input.pick(&[0, 1, 2, 3, 3]);
        self.rig.function.bus_mut().drain(Scope::Key(region.key >> 8));
        let Some(entry) = self.rig.function.hca_mut().objects.mkeys.get_mut(region.key >> 8) else { return };
        let Translations::Mtt(table) = &mut entry.object.list else { panic!("a region has pages") };
        for page in from..to {
            let bits = if rights == 0 { 0 } else { (region.frames + PAGE * page) | rights };
            table.load(page as usize, PAGES as usize, &bits.to_be_bytes());
        }
    }

    fn listen(&mut self) {
        loop {
            self.rig.settle();
            self.rig.land();
            let mut eq = self.eq.clone();
            let event = self.rig.take_event(&mut eq);
            self.eq = eq;
            let Some(event) = event else { return };
            let eq = self.eq.clone();
            self.rig.arm_eq(&eq);
            assert_eq!(event[1], PAGE_FAULT);
            let data = &event[0x20..0x3c];
            let told = match event[3] {
                0 => {
                    let event = WqePageFault::new(data).expect("28 bytes");
                    (event.page_fault_type(), event.wq_number(), event.token())
                }
                1 => {
                    let event = RdmaPageFault::new(data).expect("28 bytes");
                    (event.page_fault_type(), event.token(), event.token())
                }
                _ => (0, 0, MemoryPageFault::new(data).expect("28 bytes").token_31_0()),
            };
            self.told.push(told);
        }
    }

    fn resume(&mut self, input: &mut Input<'_>) {
        self.listen();
        let how = input.u8();
        let told = match self.told.len() {
            _ if how > 0xf0 => (input.u32(), input.u32(), input.u32()),
            0 => (u32::from(how & 7), u32::from(how >> 3), u32::from(how)),
            len if how & 1 == 0 => self.told.swap_remove(input.below(len)),
            len => self.told[input.below(len)],
        };
        self.answer(told, how & 0x70 == 0x70);
    }

    fn answer(&mut self, (kind, queue, token): Told, error: bool) {
        let mut resume = PageFaultResumeIn::zeroed();
        resume.set_opcode(Opcode::PAGE_FAULT_RESUME.0.into());
        let mut info = resume.page_fault_info_mut();
        if self.memory_scheme {
            let mut info = info.mem_page_fault_info_mut();
            info.set_fault_token_31_0(token);
            info.set_error(error.into());
        } else {
            let mut info = info.trans_page_fault_info_mut();
            info.set_page_fault_type(kind & 7);
            info.set_wq_number(queue & 0xff_ffff);
            info.set_fault_token(token & 0xff_ffff);
            info.set_error(error.into());
        }
        self.rig.exec(resume.as_bytes(), 16);
    }

    /// A pair ends, by error, by reset or for good, and may begin anew.
    fn end(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.qps.len()) & !1;
        let how = input.u8();
        let service = if at == 4 { QpType::UD } else { QpType::RC };
        if how & 3 == 0 {
            self.rig.exec(&QueueRig::naming(0x507, self.qps[at].qpn), 16);
            return;
        }
        for qp in &self.qps[at..at + 2] {
            self.rig.ok(&QueueRig::naming(if how & 3 == 1 { 0x501 } else { 0x50a }, qp.qpn), 16);
        }
        if how & 3 == 1 {
            let (a, b) = self.rig.pair(service, Link::default());
            (self.qps[at], self.qps[at + 1]) = (a, b);
            return;
        }
        for side in [at, at + 1] {
            let qp = &mut self.qps[side];
            (qp.sent, qp.received) = (0, 0);
            let (record, qpn) = (qp.record, qp.qpn);
            self.rig.write(record, &[0; 8]);
            let peer = self.qps[side ^ 1].qpn;
            self.rig.connect(qpn, peer, Link::default());
        }
    }

    fn register(&mut self, id: RegisterId, image: &[u8]) -> Vec<u8> {
        self.rig.exec(&Rig::register(id.0, false, image), 16 + image.len()).output
    }

    fn dump(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let mut dump = ResourceDump::zeroed();
        if how & 1 != 0 && !self.dump.is_empty() {
            dump = ResourceDump::new(self.dump.clone()).expect("a whole register");
        } else {
            let segment = input.pick(&SEGMENTS).0;
            dump.set_segment_type(u32::from(if input.one_in(16) { input.u16() } else { segment }));
            dump.set_index1(if how & 2 != 0 { self.qps[input.below(6)].qpn } else { input.number(24) as u32 });
            dump.set_index2(input.number(16) as u32);
            dump.set_num_of_obj1(input.pick(&[0, 1, 1, 2, 0xffff]));
            dump.set_num_of_obj2(input.pick(&[0, 1, 1, 2, 0xffff]));
        }
        dump.set_inline_dump(u32::from(how >> 2 & 1));
        dump.set_mkey(input.pick(&self.keys));
        dump.set_address(if how & 8 != 0 { VA } else { PLAIN });
        dump.set_size(if how & 0x10 != 0 { 4096 } else { input.number(32) as u32 });
        if how > 0xe8 {
            dump.set_device_opaque(1 << 63 | input.u64());
            dump.set_seq_num(u32::from(input.u8() % 16));
        }
        let out = self.register(RegisterId::RESOURCE_DUMP, dump.as_bytes());
        if out[0] == 0 {
            self.dump = out[16..].to_vec();
        }
    }

    fn trace(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        match how % 6 {
            0 => {
                let mut cap = MtrcCap::zeroed();
                cap.set_trace_owner(u32::from(how < 0xe0));
                self.register(RegisterId::MTRC_CAP, cap.as_bytes());
            }
            1 | 2 => {
                let mut conf = MtrcConf::zeroed();
                conf.set_trace_mode(1);
                conf.set_log_trace_buffer_size(u32::from(input.u8() % 12));
                conf.set_trace_mkey(input.pick(&self.keys));
                self.register(RegisterId::MTRC_CONF, conf.as_bytes());
            }
            3 => {
                let mut ctrl = MtrcCtrl::zeroed();
                ctrl.set_modify_field_select(1);
                ctrl.set_trace_status(u32::from(how < 0xf0));
                ctrl.set_arm_event(u32::from(how >> 4 & 1));
                self.register(RegisterId::MTRC_CTRL, ctrl.as_bytes());
            }
            4 => {
                let mut part = MtrcStdb::with_tail(64);
                part.set_string_db_index(u32::from(how >> 4));
                part.set_start_offset(input.number(32) as u32);
                part.set_read_size(input.number(24) as u32);
                self.register(RegisterId::MTRC_STDB, part.as_bytes());
            }
            _ => {
                let dump = CoreDumpReg::zeroed();
                self.register(RegisterId::CORE_DUMP, dump.as_bytes());
            }
        }
    }

    fn device_memory(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        // A few pages, which are the memory itself or show it for an operation.
        let page = BAR_OFFSET + u64::from(input.u8() % 4) * 4096;
        let at = page + SIZE * u64::from(how >> 5 & 3) + u64::from(input.u8());
        match how % 5 {
            0 => {
                let mut alloc = AllocMemicIn::zeroed();
                alloc.set_opcode(Opcode::ALLOC_MEMIC.0.into());
                alloc.set_range_start_addr(page);
                alloc.set_range_size(4096 << (how >> 5));
                alloc.set_memic_size(64 * u32::from(input.u8()));
                alloc.set_log_memic_addr_alignment(u32::from(how >> 5));
                self.rig.exec(alloc.as_bytes(), 16);
            }
            1 => {
                let mut modify = ModifyMemicIn::zeroed();
                modify.set_opcode(Opcode::MODIFY_MEMIC.0.into());
                modify.set_op_mod(u32::from(how >> 7));
                modify.set_memic_operation_type(u32::from(how >> 5 & 1));
                modify.set_memic_start_addr(page);
                self.rig.exec(modify.as_bytes(), 64);
            }
            2 => {
                let create = memory_key(self.rig.pd, page);
                let key = self.rig.exec(&create, 16);
                if key.status() == 0 {
                    self.keys.push(u32::from_be_bytes([0, key.output[9], key.output[10], key.output[11]]) << 8);
                }
            }
            3 => {
                let bytes = input.bytes(1 + usize::from(how >> 7) * 7);
                self.rig.function.bar_write(at, bytes);
            }
            _ => self.rig.function.bar_read(at, &mut [0; 9][..1 + usize::from(how >> 7) * 7]),
        }
    }

    fn check(&mut self) {
        self.rig.settle();
        let hca = self.rig.function.hca();
        let faults = hca.objects.qps.iter().flat_map(|(_, entry)| entry.object.flow.faults).filter(|token| *token != 0);
        assert_eq!(faults.count(), hca.paging.pending(), "a fault of nobody, or two of one side");
        hca.audit().expect("accounts agree");
    }

    /// With all pages there and all faults answered the device is at rest; after a reset nothing is left.
    fn finish(&mut self, setup: u8) {
        if setup & 8 != 0 {
            for _ in 0..40 {
                self.listen();
                for told in std::mem::take(&mut self.told) {
                    self.answer(told, true);
                }
                self.rig.pass(100_000_000);
                self.check();
            }
            assert_eq!(self.rig.function.hca().paging.pending(), 0, "a fault that nobody was told of");
        }
        let summary = self.rig.function.summary();
        assert!(summary.internal_failures.is_empty(), "{:?}", summary.internal_failures);
        let legal = summary.order.and_then(|order| order.check).is_none_or(|check| check.legal);
        assert!(legal, "an order that is not allowed");
        self.rig.function.reset(ResetKind::FunctionLevel);
        self.check();
        assert!(self.rig.function.hca().census().is_empty());
        assert_eq!(self.rig.function.hca().paging.pending(), 0);
    }
}

/// CREATE_MKEY of a key on device memory.
fn memory_key(pd: u32, start: u64) -> Vec<u8> {
    let mut input = cx10::prm::mkey::CreateMkeyIn::zeroed();
    input.set_opcode(Opcode::CREATE_MKEY.0.into());
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_access_mode_1_0(5 & 3);
    mkc.set_access_mode_4_2(5 >> 2);
    mkc.set_relaxed_ordering_write(1);
    mkc.set_lr(1);
    mkc.set_lw(1);
    mkc.set_rr(1);
    mkc.set_rw(1);
    mkc.set_pd(pd);
    mkc.set_qpn(0xff_ffff);
    mkc.set_start_addr(start);
    mkc.set_len(64);
    input.into_inner()
}
