use super::*;
use crate::prm::diag::{RxSlice, SxSlice};
use crate::prm::mkey::{CreateMkeyIn, CreateMkeyOut, QueryMkeyOut};
use crate::prm::opcode::Opcode;
use crate::prm::qp::QueryQpOut;
use crate::prm::status::Status;
use crate::prm::values::QpType;
use crate::profile::Profile;
use crate::testing::FREE;
use crate::testing::queues::QueueRig;
use std::collections::BTreeMap;

/// Where dumps are written to.
const BUFFER: u64 = FREE + 0x40_0000;
const PAGE: u32 = 4096;

/// The key that the kernel makes for dumps (`rsc_dump.c:mlx5_rsc_dump_create_mkey`).
fn key(rig: &mut QueueRig, edit: fn(&mut CreateMkeyIn)) -> u32 {
    let pd = rig.pd();
    let mut input = CreateMkeyIn::zeroed();
    input.set_opcode(Opcode::CREATE_MKEY.0.into());
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_lw(1);
    mkc.set_lr(1);
    mkc.set_pd(pd);
    mkc.set_length64(1);
    mkc.set_qpn(0xff_ffff);
    edit(&mut input);
    CreateMkeyOut::new(rig.ok(input.as_bytes(), 16)).unwrap().mkey_index() << 8
}

fn rig() -> (QueueRig, u32) {
    let mut rig = QueueRig::with(Profile::with("connectx7", &[]).expect("a legal profile"));
    let key = key(&mut rig, |_| {});
    (rig, key)
}

fn request(segment: DumpSegment, index1: u32, key: u32) -> ResourceDump<Vec<u8>> {
    let mut dump = ResourceDump::zeroed();
    dump.set_segment_type(segment.0.into());
    dump.set_index1(index1);
    dump.set_num_of_obj1(1);
    dump.set_mkey(key);
    dump.set_size(PAGE);
    dump.set_address(BUFFER);
    dump
}

fn access(rig: &mut QueueRig, request: &ResourceDump<Vec<u8>>) -> ResourceDump<Vec<u8>> {
    ResourceDump::new(rig.register_ok(RegisterId::RESOURCE_DUMP.0, false, request.as_bytes())).unwrap()
}

/// A whole dump, and in how many parts it came.
fn dump(rig: &mut QueueRig, mut request: ResourceDump<Vec<u8>>) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    for parts in 1..100_000 {
        let before = request.seq_num();
        request = access(rig, &request);
        assert_eq!(request.seq_num(), (before + 1) & 0xf);
        if request.inline_dump() != 0 {
            let inline = &request.as_bytes()[ResourceDump::SIZE - INLINE..];
            bytes.extend_from_slice(&inline[..request.size() as usize]);
        } else {
            bytes.extend(rig.read(BUFFER, request.size() as usize));
            request.set_size(PAGE);
        }
        if request.more_dump() == 0 {
            return (bytes, parts);
        }
    }
    panic!("the dump has no end");
}

/// The segments of a dump; the first two are checked and left out.
fn segments(bytes: &[u8]) -> Vec<(DumpSegment, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = ResourceDumpSegmentHeader::new(rest).unwrap();
        let (segment, behind) = rest.split_at(header.length_dw() as usize * 4);
        found.push((DumpSegment(header.segment_type() as u16), segment.to_vec()));
        rest = behind;
    }
    let kinds: Vec<_> = found.iter().take(2).map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [DumpSegment::INFO, DumpSegment::COMMAND]);
    assert_eq!(found.last().unwrap().0, DumpSegment::TERMINATE);
    found.drain(2..found.len()).take_while(|(kind, _)| *kind != DumpSegment::TERMINATE).collect()
}

/// What a dump of one resource has of it.
fn payload(rig: &mut QueueRig, request: ResourceDump<Vec<u8>>) -> Vec<u8> {
    let segment = request.segment_type();
    let (bytes, _) = dump(rig, request);
    let found = segments(&bytes);
    assert_eq!(found.len(), 1);
    assert_eq!(u32::from(found[0].0.0), segment);
    found[0].1[ResourceDumpResourceSegment::SIZE..].to_vec()
}

fn refused(rig: &mut QueueRig, edit: impl FnOnce(&mut ResourceDump<Vec<u8>>), key: u32) -> (u8, u32) {
    let mut dump = request(DumpSegment::FULL_CQC, 1, key);
    edit(&mut dump);
    let answer = rig.exec(&crate::testing::Rig::register(RegisterId::RESOURCE_DUMP.0, false, dump.as_bytes()), 272);
    (answer.status(), answer.syndrome())
}

#[test]
fn the_kernel_finds_its_segments_in_the_menu() {
    let (mut rig, key) = rig();
    let (bytes, parts) = dump(&mut rig, request(DumpSegment::MENU, 0, key));
    assert_eq!(parts, 1, "one page has room for it");
    let found = segments(&bytes);
    let menu = ResourceDumpMenuSegment::new(&found[0].1[..]).unwrap();
    let records = menu.record().chunks_exact(ResourceDumpMenuRecord::SIZE);
    assert_eq!((records.len(), menu.num_of_records() as usize), (MENU.len(), MENU.len()));
    // As the kernel reads them: records at 44 bytes, each 52 bytes, a name that ends with a zero.
    let name = |record: &[u8]| String::from_utf8(record[4..20].iter().copied().take_while(|b| *b != 0).collect());
    let numbers: BTreeMap<String, u16> = bytes[44..]
        .chunks_exact(52)
        .take(MENU.len())
        .map(|record| (name(record).unwrap(), u16::from_be_bytes([record[2], record[3]])))
        .collect();
    for used in ["FULL_QPC", "SND_BUFF", "RCV_BUFF", "SX_SLICE_ALL", "RX_SLICE_ALL", "PRM_QUERY_QP", "PRM_QUERY_MKEY"] {
        assert_ne!(numbers[used], 0, "{used}");
    }
    assert_eq!(numbers["SND_BUFF"], 0x1001);
    let send = ResourceDumpMenuRecord::new(&menu.record()[4 * 52..5 * 52]).unwrap();
    assert_eq!((send.support_index2(), send.num_of_obj2_supports_all(), send.num_of_obj1_supports_all()), (1, 1, 0));
    assert_eq!(send.index2_name(0), Some(u32::from_be_bytes(*b"WQEB")));
}

#[test]
fn the_head_says_what_dumps_and_what_was_asked_for() {
    let (mut rig, key) = rig();
    let (bytes, _) = dump(&mut rig, request(DumpSegment::SX_SLICE_ALL, 0, key));
    let info = ResourceDumpInfoSegment::new(&bytes[..16]).unwrap();
    assert_eq!((info.hw_version() >> 16, info.fw_version() >> 24, info.dump_version()), (0x1021, 28, 1));
    let command = ResourceDumpCommandSegment::new(&bytes[16..36]).unwrap();
    assert_eq!((command.segment_called(), command.vhca_id(), command.num_of_obj1()), (0x3001, 1, 1));
}

#[test]
fn contexts_are_what_the_query_commands_return() {
    let (mut rig, key) = rig();
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    let queried = |rig: &mut QueueRig, opcode: Opcode, number, len| rig.ok(&QueueRig::naming(opcode.0, number), len);
    let out = queried(&mut rig, Opcode::QUERY_QP, qpn, QueryQpOut::SIZE);
    assert_eq!(payload(&mut rig, request(DumpSegment::PRM_QUERY_QP, qpn, key)), out);
    let qpc = QueryQpOut::new(&out[..]).unwrap().qpc().as_bytes().to_vec();
    assert_eq!(payload(&mut rig, request(DumpSegment::FULL_QPC, qpn, key)), qpc);
    assert_eq!(QueryQpOut::new(&out[..]).unwrap().qpc().pd(), pd);
    let out = queried(&mut rig, Opcode::QUERY_MKEY, key >> 8, QueryMkeyOut::SIZE);
    assert_eq!(payload(&mut rig, request(DumpSegment::PRM_QUERY_MKEY, key >> 8, key)), out);
    assert_eq!(QueryMkeyOut::new(&out[..]).unwrap().memory_key_mkey_entry().lw(), 1);
    let out = queried(&mut rig, Opcode::QUERY_CQ, cqn, 0x110);
    assert_eq!(payload(&mut rig, request(DumpSegment::FULL_CQC, cqn, key)), out[0x10..0x50]);
    let eqn = rig.function.hca().objects.eqs.iter().next().unwrap().0;
    let eqc = rig.function.hca().objects.eqs.get(eqn).unwrap().object.queried();
    assert_eq!(payload(&mut rig, request(DumpSegment::FULL_EQC, eqn, key)), eqc.as_bytes());
    assert_eq!(payload(&mut rig, request(DumpSegment::QUERY_VNIC_ENV, 0, key)).len(), 0x210);
}

#[test]
fn all_objects_of_a_kind_are_dumped_in_as_many_parts_as_it_takes() {
    let (mut rig, key) = rig();
    let cqns: Vec<u32> = (0..100).map(|_| rig.create_cq(4)).collect();
    let mut all = request(DumpSegment::FULL_CQC, 0, key);
    all.set_num_of_obj1(ALL);
    let (bytes, parts) = dump(&mut rig, all);
    let found: Vec<u32> = segments(&bytes)
        .iter()
        .map(|(_, segment)| ResourceDumpResourceSegment::new(&segment[..]).unwrap().index1())
        .collect();
    assert!(cqns.iter().all(|cqn| found.contains(cqn)) && found.is_sorted(), "{found:?}");
    assert_eq!(parts, bytes.len().div_ceil(PAGE as usize));
    let mut some = request(DumpSegment::FULL_CQC, cqns[10], key);
    some.set_num_of_obj1(3);
    let (bytes, _) = dump(&mut rig, some);
    let found = segments(&bytes);
    let first = ResourceDumpResourceSegment::new(&found[0].1[..]).unwrap().index1();
    assert_eq!((found.len(), first), (3, cqns[10]));
}

#[test]
fn the_entries_of_rings_are_those_in_memory() {
    let (mut rig, key) = rig();
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    let qpn = rig.create_qp(QpType::RC, pd, cqn);
    let qp = &rig.function.hca().objects.qps.get(qpn).unwrap().object;
    let (geometry, at) = (qp.geometry(), qp.buffer.locate(0).unwrap().0.0);
    let blocks = geometry.sq_bytes / 64;
    let pattern: Vec<u8> = (0..geometry.bytes()).map(|i| (i / 16) as u8).collect();
    rig.write(at, &pattern);
    let mut all = request(DumpSegment::SND_BUFF, qpn, key);
    all.set_num_of_obj2(ALL);
    let (bytes, _) = dump(&mut rig, all);
    let found = segments(&bytes);
    assert_eq!(found.len() as u64, blocks);
    let dumped: Vec<u8> = found.iter().flat_map(|(_, segment)| segment[16..].to_vec()).collect();
    assert_eq!(dumped, pattern[geometry.rq_bytes as usize..]);
    let mut one = request(DumpSegment::RCV_BUFF, qpn, key);
    one.set_index2(3);
    assert_eq!(payload(&mut rig, one), pattern[48..64]);
    let mut two = request(DumpSegment::SND_BUFF, qpn, key);
    two.set_index2(1);
    two.set_num_of_obj2(2);
    let (bytes, _) = dump(&mut rig, two);
    let index2 = |segment: &[u8]| ResourceDumpResourceSegment::new(segment).unwrap().index2();
    assert_eq!(segments(&bytes).iter().map(|(_, s)| index2(s)).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_resource_that_does_not_exist_is_an_error_segment() {
    let (mut rig, key) = rig();
    let qpn = 0x3f_0000;
    for segment in [DumpSegment::FULL_QPC, DumpSegment::SND_BUFF, DumpSegment::PRM_QUERY_QP, DumpSegment::FULL_SRQC] {
        let (bytes, _) = dump(&mut rig, request(segment, qpn, key));
        let found = segments(&bytes);
        let error = ResourceDumpErrorSegment::new(&found[0].1[..]).unwrap();
        assert_eq!((found[0].0, error.syndrome_id()), (DumpSegment::ERROR, syn::NOTHING_TO_DUMP.0 & 0xffff));
        assert_eq!(&error.as_bytes()[16..31], b"no such object\0");
    }
    let cqn = rig.create_cq(4);
    let mut beyond = request(DumpSegment::CQ_BUFF, cqn, key);
    beyond.set_index2(16);
    let (bytes, _) = dump(&mut rig, beyond);
    assert_eq!(segments(&bytes)[0].0, DumpSegment::ERROR);
}

#[test]
fn slices_count_what_there_is() {
    let (mut rig, key) = rig();
    let (pd, cqn) = (rig.pd(), rig.create_cq(4));
    rig.create_qp(QpType::RC, pd, cqn);
    rig.create_rmp(pd);
    rig.function.hca_mut().port.counters.transmitted(&[0; 60]);
    rig.function.hca_mut().port.counters.received(&[0xff; 600]);
    let slice = SxSlice::new(payload(&mut rig, request(DumpSegment::SX_SLICE_ALL, 0, key))).unwrap();
    assert_eq!((slice.queue_pairs(), slice.send_queues(), slice.frames(), slice.octets()), (1, 0, 1, 64));
    let slice = RxSlice::new(payload(&mut rig, request(DumpSegment::RX_SLICE, 0, key))).unwrap();
    assert_eq!((slice.shared_receive_queues(), slice.frames(), slice.octets()), (1, 1, 604));
    let (bytes, _) = dump(&mut rig, request(DumpSegment::RX_SLICE, 1, key));
    assert_eq!(segments(&bytes)[0].0, DumpSegment::ERROR);
}

#[test]
fn a_dump_fits_into_the_register_too() {
    let (mut rig, key) = rig();
    let cqn = rig.create_cq(4);
    let (expected, _) = dump(&mut rig, request(DumpSegment::PRM_QUERY_CQ, cqn, key));
    let mut inline = request(DumpSegment::PRM_QUERY_CQ, cqn, 0);
    inline.set_inline_dump(1);
    let (bytes, parts) = dump(&mut rig, inline);
    assert!(parts > 1);
    assert_eq!(bytes, expected);
}

#[test]
fn a_resource_that_goes_away_ends_the_dump() {
    let (mut rig, key) = rig();
    let cqn = rig.create_cq(8);
    let mut all = request(DumpSegment::CQ_BUFF, cqn, key);
    all.set_num_of_obj2(ALL);
    let mut next = access(&mut rig, &all);
    assert_eq!(next.more_dump(), 1);
    rig.ok(&QueueRig::naming(Opcode::DESTROY_CQ.0, cqn), 16);
    next.set_size(PAGE);
    let out = access(&mut rig, &next);
    let bytes = rig.read(BUFFER, out.size() as usize);
    let header = ResourceDumpSegmentHeader::new(&bytes[..]).unwrap();
    assert_eq!((out.more_dump(), header.segment_type()), (0, u32::from(DumpSegment::ERROR.0)));
}

#[test]
fn what_no_dump_can_be_made_of_is_refused() {
    let (mut rig, key) = rig();
    let bad = Status::BAD_PARAM_ERR.0;
    type Edit = fn(&mut ResourceDump<Vec<u8>>);
    let edits: [(Edit, Syndrome); 10] = [
        (|d| d.set_vhca_id(2), syn::DUMP_FUNCTION),
        (|d| d.set_segment_type(2), syn::DUMP_TYPE),
        (|d| d.set_segment_type(0xfffa), syn::DUMP_TYPE),
        (|d| d.set_index1(1 << 24), syn::DUMP_INDEX),
        (|d| d.set_index2(u32::MAX), syn::DUMP_INDEX),
        (|d| d.set_seq_num(1), syn::DUMP_SEQUENCE),
        (|d| d.set_device_opaque(1), syn::DUMP_SEQUENCE),
        (|d| d.set_size(3), syn::DUMP_SIZE),
        (|d| d.set_address(u64::MAX - 3), syn::DUMP_KEY),
        (|d| d.set_mkey(0x7700), syn::DUMP_KEY),
    ];
    for (edit, syndrome) in edits {
        assert_eq!(refused(&mut rig, edit, key), (bad, syndrome.0), "{syndrome:?}");
    }
    let count = |d: &mut ResourceDump<Vec<u8>>| {
        d.set_segment_type(DumpSegment::CQ_BUFF.0.into());
        d.set_num_of_obj1(2);
    };
    assert_eq!(refused(&mut rig, count, key), (bad, syn::DUMP_COUNT.0));
    let readable = self::key(&mut rig, |input| input.memory_key_mkey_entry_mut().set_lw(0));
    assert_eq!(refused(&mut rig, |_| {}, readable), (bad, syn::DUMP_KEY.0));
    let off = Profile::with("connectx7", &["caps.debug.resource_dump=0"]).unwrap();
    let mut without = QueueRig::with(off);
    assert_eq!(refused(&mut without, |_| {}, key), (bad, syn::UNKNOWN_REGISTER.0));
}

#[test]
fn a_forged_cursor_is_no_way_out() {
    let (mut rig, key) = rig();
    let cqn = rig.create_cq(4);
    let mut state = 1u64;
    for segment in MENU.iter().map(|offer| offer.segment).chain([DumpSegment::MENU]) {
        for _ in 0..200 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut dump = request(segment, cqn, key);
            let cursor = Cursor::decode(state | 1 << 63).unwrap();
            dump.set_device_opaque(state | 1 << 63);
            dump.set_seq_num(cursor.sequence);
            let _ = rig.exec(&crate::testing::Rig::register(RegisterId::RESOURCE_DUMP.0, false, dump.as_bytes()), 272);
        }
    }
    assert!(rig.function.summary().internal_failures.is_empty());
}

#[test]
fn a_cursor_survives_its_encoding() {
    let cursor = Cursor { stage: Stage::Body, skip: 0xab, id: 0xab_cdef, entry: 0x40_0001, sequence: 0xd };
    assert_eq!(Cursor::decode(cursor.encode()), Some(cursor));
    assert_eq!(Cursor::decode(0), None);
}
