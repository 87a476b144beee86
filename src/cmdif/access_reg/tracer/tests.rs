use super::*;
use crate::cmdif::error::Syndrome;
use crate::device::tracer::PATIENCE_NS;
use crate::device::tracer::tests::Reader;
use crate::prm::event::EventType;
use crate::prm::mkey::{CreateMkeyIn, CreateMkeyOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::QpType;
use crate::profile::Profile;
use crate::testing::queues::QueueRig;
use crate::testing::{FREE, Rig};

/// The driver's ring: 64 pages.
const RING: u64 = FREE + 0x40_0000;
const LOG_PAGES: u32 = 6;
const RING_BYTES: usize = 4096 << LOG_PAGES;

/// The key that the kernel makes (`fw_tracer.c:mlx5_fw_tracer_create_mkey`).
fn key(rig: &mut QueueRig, lw: u32, pages: u32) -> u32 {
    key_with(rig, lw, pages, 0)
}

/// What kernels may make once they know of devices without order.
fn relaxed_key(rig: &mut QueueRig) -> u32 {
    key_with(rig, 1, 1 << LOG_PAGES, 1)
}

fn key_with(rig: &mut QueueRig, lw: u32, pages: u32, relaxed: u32) -> u32 {
    let pd = rig.pd();
    let mut input = CreateMkeyIn::with_tail(8 * pages as usize);
    input.set_opcode(Opcode::CREATE_MKEY.0.into());
    input.set_translations_octword_actual_size(pages / 2);
    for (i, entry) in input.klm_pas_mtt_mut().chunks_exact_mut(8).enumerate() {
        // As the kernel has them: without the rights of a page in the low bits, which PG_ACCESS would ask for.
        entry.copy_from_slice(&(RING + 4096 * i as u64).to_be_bytes());
    }
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_access_mode_1_0(1);
    mkc.set_lw(lw);
    mkc.set_lr(1);
    mkc.set_relaxed_ordering_write(relaxed);
    mkc.set_pd(pd);
    mkc.set_qpn(0xff_ffff);
    mkc.set_log_page_size(12);
    mkc.set_translations_octword_size(pages / 2);
    mkc.set_start_addr(RING);
    mkc.set_len(u64::from(pages) * 4096);
    CreateMkeyOut::new(rig.ok(input.as_bytes(), 16)).unwrap().mkey_index() << 8
}

fn rig_with(sets: &[&str]) -> QueueRig {
    let mut rig = QueueRig::with(Profile::with("connectx7", sets).expect("a legal profile"));
    rig.write(RING, &vec![0; RING_BYTES]);
    rig
}

fn write(rig: &mut QueueRig, id: RegisterId, image: &[u8]) -> Vec<u8> {
    rig.register_ok(id.0, false, image)
}

fn refused(rig: &mut QueueRig, id: RegisterId, image: &[u8]) -> (u8, u32) {
    let answer = rig.exec(&Rig::register(id.0, false, image), 16 + image.len());
    (answer.status(), answer.syndrome())
}

fn bad(syndrome: Syndrome) -> (u8, u32) {
    (Status::BAD_PARAM_ERR.0, syndrome.0)
}

fn cap(owner: u32) -> Vec<u8> {
    let mut cap = MtrcCap::zeroed();
    cap.set_trace_owner(owner);
    cap.into_inner()
}

fn conf(key: u32) -> Vec<u8> {
    let mut conf = MtrcConf::zeroed();
    conf.set_trace_mode(TO_MEMORY);
    conf.set_log_trace_buffer_size(LOG_PAGES);
    conf.set_trace_mkey(key);
    conf.into_inner()
}

fn ctrl(status: u32, arm: u32) -> Vec<u8> {
    let mut ctrl = MtrcCtrl::zeroed();
    ctrl.set_modify_field_select(SELECT_STATUS);
    ctrl.set_trace_status(status);
    ctrl.set_arm_event(arm);
    ctrl.into_inner()
}

/// The driver's way (`fw_tracer.c:mlx5_fw_tracer_start`); the key.
fn start(rig: &mut QueueRig) -> u32 {
    let key = key(rig, 1, 1 << LOG_PAGES);
    start_with(rig, key);
    key
}

fn start_with(rig: &mut QueueRig, key: u32) {
    let out = MtrcCap::new(write(rig, RegisterId::MTRC_CAP, &cap(1))).unwrap();
    assert_eq!((out.trace_owner(), out.trace_to_memory(), out.num_string_db()), (1, 1, 2));
    write(rig, RegisterId::MTRC_CONF, &conf(key));
    let out = MtrcCtrl::new(write(rig, RegisterId::MTRC_CTRL, &ctrl(1, 1))).unwrap();
    assert_eq!(out.trace_status(), 1);
}

/// Whether the driver was told of traces.
fn told(rig: &mut QueueRig) -> bool {
    std::iter::from_fn(|| rig.take_async_event()).any(|eqe| (eqe[1], eqe[3]) == (EventType::DEVICE_TRACER.0, 1))
}

#[test]
fn the_whole_string_database_can_be_read() {
    let mut rig = rig_with(&[]);
    let cap = MtrcCap::new(rig.register_ok(RegisterId::MTRC_CAP.0, true, &cap(0))).unwrap();
    for i in 0..cap.num_string_db() as usize {
        let param = cap.string_db_param(i).unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < param.string_db_size() as usize {
            let left = param.string_db_size() as usize - bytes.len();
            let mut stdb = MtrcStdb::with_tail(0x78);
            stdb.set_string_db_index(i as u32);
            stdb.set_start_offset(bytes.len() as u32);
            stdb.set_read_size(if left >= 256 { 256 } else { 64 });
            let size = stdb.read_size() as usize;
            let out = rig.ok(&Rig::register(RegisterId::MTRC_STDB.0, false, stdb.as_bytes()), 16 + 8 + size);
            bytes.extend_from_slice(&out[24..24 + size]);
        }
        assert_eq!(bytes, strings().sections[i].bytes);
        assert_eq!(param.string_db_base_address(), strings().sections[i].base);
    }
}

#[test]
fn commands_and_their_refusals_are_traced() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    told(&mut rig);
    let pd = rig.pd();
    let answer = rig.exec(&Rig::input(0xbad, 0, 16), 16);
    assert_eq!(answer.status(), Status::BAD_OP_ERR.0);
    let mut reader = Reader::default();
    assert!(reader.read(&rig.read(RING, RING_BYTES)).is_empty(), "the block is not full");
    rig.clock.advance(PATIENCE_NS);
    rig.settle();
    assert!(told(&mut rig));
    let messages = reader.read(&rig.read(RING, RING_BYTES));
    let formats: Vec<&str> = messages.iter().map(|m| m.format.split(' ').next().unwrap()).collect();
    assert_eq!(formats, ["ALLOC_PD", "opcode", "this"], "{messages:?}");
    assert_eq!(messages[1].params[0], 0xbad);
    assert!(pd > 0 && messages.iter().all(|m| m.source == FIRST_SOURCE));
}

#[test]
fn the_driver_is_told_once_each_time_that_it_asks() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    let mut reader = Reader::default();
    for _ in 0..100 {
        rig.pd();
    }
    assert!(told(&mut rig));
    let first = reader.read(&rig.read(RING, RING_BYTES));
    assert!(!first.is_empty());
    for _ in 0..100 {
        rig.pd();
    }
    assert!(!told(&mut rig), "it has not asked");
    write(&mut rig, RegisterId::MTRC_CTRL, &{
        let mut arm = MtrcCtrl::zeroed();
        arm.set_arm_event(1);
        arm.into_inner()
    });
    assert!(told(&mut rig), "there are blocks already");
    let second = reader.read(&rig.read(RING, RING_BYTES));
    // A command and its three parameters: seven have room in a block.
    assert_eq!(first.len() + second.len(), 200 / 7 * 7, "all but what waits for its block");
}

#[test]
fn the_ring_wraps_around() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    let mut reader = Reader::default();
    let mut count = 0;
    for _ in 0..8000 {
        rig.pd();
        count += reader.read(&rig.read(RING, RING_BYTES)).len();
    }
    assert!(count > 7990 && count <= 8000, "{count}");
}

#[test]
fn a_core_dump_is_in_the_ring_when_its_command_is_answered() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    write(&mut rig, RegisterId::CORE_DUMP, &CoreDumpReg::zeroed().into_inner());
    let messages = Reader::default().read(&rig.read(RING, RING_BYTES));
    let dump: Vec<_> = messages.iter().filter(|m| m.source == FIRST_SOURCE + 3).collect();
    assert!(dump[0].format.starts_with("core dump:") && dump.last().unwrap().format == "core dump ends");
    let qp = dump.iter().find(|m| m.format.starts_with("QP ")).expect("the queue pair");
    assert_eq!((qp.params[0], qp.params[1], qp.params[4]), (qpn, 0, pd));
    let counts = dump.iter().find(|m| m.format.starts_with("EQs ")).expect("the counts");
    assert_eq!(counts.params[1..3], [1, 1]);
    assert!(dump.iter().any(|m| m.format.starts_with("CQ ") && m.params[0] == cqn && m.params[3] == 16));
}

#[test]
fn events_and_refused_work_requests_are_traced() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    rig.function.hca_mut().change_link(|hca| hca.port.set_carrier(false));
    rig.function.hca_mut().tracer.key_refused(crate::mkey::policy::syn::STRONG_WRITE.0);
    write(&mut rig, RegisterId::CORE_DUMP, &CoreDumpReg::zeroed().into_inner());
    let messages = Reader::default().read(&rig.read(RING, RING_BYTES));
    let key = messages.iter().position(|m| m.source == FIRST_SOURCE + 2).expect("the key");
    assert_eq!(messages[key].params, [0x23_0001]);
    assert!(messages[key + 1].format.contains("keeps no order"));
    let event = messages.iter().find(|m| m.source == FIRST_SOURCE + 1);
    assert_eq!(event.map(|m| m.format.starts_with("event ")), Some(true), "{messages:?}");
}

#[test]
fn a_key_that_goes_away_ends_the_trace_and_nothing_else() {
    let mut rig = rig_with(&[]);
    let key = start(&mut rig);
    rig.ok(&QueueRig::naming(Opcode::DESTROY_MKEY.0, key >> 8), 16);
    for _ in 0..100 {
        rig.pd();
    }
    let out = MtrcCtrl::new(rig.register_ok(RegisterId::MTRC_CTRL.0, true, &ctrl(0, 0))).unwrap();
    assert_eq!(out.trace_status(), 0);
    assert!(rig.function.summary().internal_failures.is_empty());
}

#[test]
fn the_tracer_is_taken_over_before_it_is_used() {
    let mut rig = rig_with(&[]);
    let key = key(&mut rig, 1, 1 << LOG_PAGES);
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CONF, &conf(key)), bad(syn::TRACER_OWNER));
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CTRL, &ctrl(1, 0)), bad(syn::TRACER_OWNER));
    write(&mut rig, RegisterId::MTRC_CAP, &cap(1));
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CTRL, &ctrl(1, 0)), bad(syn::TRACE_STATUS));
    write(&mut rig, RegisterId::MTRC_CONF, &conf(key));
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CTRL, &ctrl(2, 0)), bad(syn::TRACE_STATUS));
    write(&mut rig, RegisterId::MTRC_CTRL, &ctrl(1, 0));
    write(&mut rig, RegisterId::MTRC_CAP, &cap(0));
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CTRL, &ctrl(1, 0)), bad(syn::TRACER_OWNER));
    let out = MtrcConf::new(rig.register_ok(RegisterId::MTRC_CONF.0, true, &conf(0))).unwrap();
    assert_eq!(out.trace_mkey(), 0, "released, it forgets the ring");
}

#[test]
fn buffers_and_parts_that_make_no_sense_are_refused() {
    let mut rig = rig_with(&[]);
    let (short, read_only) = (key(&mut rig, 1, 2), key(&mut rig, 0, 1 << LOG_PAGES));
    write(&mut rig, RegisterId::MTRC_CAP, &cap(1));
    for key in [short, read_only, 0, 0x00ff_ff00, u32::MAX, read_only | 1] {
        assert_eq!(refused(&mut rig, RegisterId::MTRC_CONF, &conf(key)), bad(syn::TRACE_BUFFER), "{key:#x}");
    }
    let mut mode = MtrcConf::new(conf(short)).unwrap();
    mode.set_trace_mode(2);
    assert_eq!(refused(&mut rig, RegisterId::MTRC_CONF, mode.as_bytes()), bad(syn::TRACE_MODE));
    for (index, from, len) in [(2, 0, 64), (0, u32::MAX, 64), (0, 0, 0xff_ffff), (15, 0, 0)] {
        let mut stdb = MtrcStdb::with_tail(0x78);
        stdb.set_string_db_index(index);
        stdb.set_start_offset(from);
        stdb.set_read_size(len);
        assert_eq!(refused(&mut rig, RegisterId::MTRC_STDB, stdb.as_bytes()), bad(syn::STRING_DB));
    }
    let mut dump = CoreDumpReg::zeroed();
    dump.set_core_dump_type(1);
    assert_eq!(refused(&mut rig, RegisterId::CORE_DUMP, dump.as_bytes()), bad(syn::CORE_DUMP_TYPE));
    let mut without = rig_with(&["firmware.tracer=false", "caps.debug.core_dump_general=0"]);
    for id in [RegisterId::MTRC_CAP, RegisterId::MTRC_CONF, RegisterId::MTRC_CTRL, RegisterId::CORE_DUMP] {
        assert_eq!(refused(&mut without, id, &[0; 128]), bad(syn::UNKNOWN_REGISTER));
    }
}

/// The driver takes a block when its timestamp is new, whatever made it look: the rest of it has to be there, through a
/// relaxed key, too.
#[test]
fn a_block_is_whole_when_its_timestamp_is_seen() {
    for policy in ["random", "tail-first", "lifo", "hold-one"] {
        let order = format!("order.policy={policy}");
        let profile = Profile::with("connectx10-c2c", &["firmware.tracer=true", &order]).expect("a legal profile");
        let mut rig = QueueRig::with(profile);
        rig.write(RING, &vec![0; RING_BYTES]);
        let relaxed = relaxed_key(&mut rig);
        start_with(&mut rig, relaxed);
        let (mut reader, mut count) = (Reader::default(), 0);
        for _ in 0..100 {
            rig.post(0, &Rig::input(0x800, 0, 16), 16);
            rig.ring(1);
            while rig.tick() {
                count += reader.read(&rig.read(RING, RING_BYTES)).len();
            }
        }
        assert!(count >= 90, "{policy}: {count} messages");
        assert!(
            !rig.function.summary().order.expect("an engine").overtaken.is_empty(),
            "{policy}: nothing was reordered"
        );
    }
}

#[test]
fn an_event_of_traces_waits_for_room() {
    let mut rig = rig_with(&[]);
    start(&mut rig);
    told(&mut rig);
    for _ in 0..10_000 {
        let hca = rig.function.hca_mut();
        hca.raise(crate::device::hca::Event { event_type: 0xff, sub_type: 0, data: [0; 28], eqn: None });
    }
    rig.settle();
    assert!(told(&mut rig), "the driver asked to be told");
}

#[test]
fn a_core_dump_that_goes_nowhere_is_refused() {
    let mut rig = rig_with(&[]);
    let dump = CoreDumpReg::zeroed().into_inner();
    assert_eq!(refused(&mut rig, RegisterId::CORE_DUMP, &dump), bad(syn::NOT_TRACING));
    let key = start(&mut rig);
    rig.ok(&QueueRig::naming(Opcode::DESTROY_MKEY.0, key >> 8), 16);
    assert_eq!(refused(&mut rig, RegisterId::CORE_DUMP, &dump), bad(syn::NOT_TRACING));
}

/// A ring behind a list of keys: what the event tells of is in another key than the one that is named.
#[test]
fn traces_are_there_before_their_event_whatever_key_leads_to_them() {
    for policy in ["lifo", "tail-first", "random"] {
        let order = format!("order.policy={policy}");
        let profile = Profile::with("connectx10-c2c", &["firmware.tracer=true", &order]).expect("a legal profile");
        let mut rig = QueueRig::with(profile);
        rig.write(RING, &vec![0; RING_BYTES]);
        let child = relaxed_key(&mut rig);
        let pd = rig.function.hca().objects.mkeys.get(child >> 8).expect("a key").object.context.pd;
        let mut input = CreateMkeyIn::with_tail(16);
        input.set_opcode(Opcode::CREATE_MKEY.0.into());
        input.set_translations_octword_actual_size(1);
        input.klm_pas_mtt_mut()[4..8].copy_from_slice(&child.to_be_bytes());
        input.klm_pas_mtt_mut()[8..].copy_from_slice(&RING.to_be_bytes());
        let mut mkc = input.memory_key_mkey_entry_mut();
        mkc.set_access_mode_1_0(3);
        mkc.set_lw(1);
        mkc.set_lr(1);
        mkc.set_relaxed_ordering_write(1);
        mkc.set_pd(pd);
        mkc.set_qpn(0xff_ffff);
        mkc.set_log_page_size(12 + LOG_PAGES);
        mkc.set_translations_octword_size(1);
        mkc.set_len(RING_BYTES as u64);
        let parent = CreateMkeyOut::new(rig.ok(input.as_bytes(), 16)).unwrap().mkey_index() << 8;
        start_with(&mut rig, parent);
        rig.post(0, &Rig::input(0x800, 0, 16), 16);
        rig.ring(1);
        while rig.tick() {}
        rig.clock.advance(PATIENCE_NS);
        let mut seen = told(&mut rig);
        while !seen {
            assert!(rig.tick(), "{policy}: no event");
            seen = told(&mut rig);
        }
        let messages = Reader::default().read(&rig.read(RING, RING_BYTES));
        assert!(!messages.is_empty(), "{policy}: the event came first");
    }
}

/// The strict device judges the kernel's key as any other, and says so in the trace that there is not.
#[test]
fn a_strict_device_refuses_the_keys_that_the_kernel_makes() {
    let sets = ["firmware.tracer=true", "caps.general.debug=1", "caps.debug.resource_dump=1"];
    let mut rig = QueueRig::with(Profile::with("connectx10-c2c", &sets).expect("a legal profile"));
    let pd = rig.pd();
    let mut input = CreateMkeyIn::zeroed();
    input.set_opcode(Opcode::CREATE_MKEY.0.into());
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_lw(1);
    mkc.set_lr(1);
    mkc.set_pd(pd);
    mkc.set_length64(1);
    mkc.set_qpn(0xff_ffff);
    let answer = rig.exec(input.as_bytes(), 16);
    assert_eq!((answer.status(), answer.syndrome()), bad(crate::mkey::policy::syn::STRONG_WRITE));
    let refused = rig.function.summary().keys.refused;
    assert!(refused[0].driver_path.starts_with("resource dump"), "{refused:?}");
}
