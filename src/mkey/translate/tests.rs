//! The walk against a reference that looks at one byte at a time and knows nothing of pieces.

use proptest::prelude::*;

use super::*;
use crate::config::KeyKind;
use crate::device::page_list::PageList;
use crate::device::pages::{Demand, Pages};
use crate::mkey::list::{Ksm, OCTWORD};
use crate::mkey::policy::Grant;
use crate::prm::mkey::Mkc;

const PD: u32 = 7;
const ANY: Rights = Rights::all();

/// Keys made by hand.
struct World {
    objects: Objects,
    space: KeySpace,
}

impl World {
    fn new() -> World {
        let mut pages = Pages::new(Demand { boot: 0, init: 0 });
        let lent: Vec<u64> = (1..4096).map(|page| page * 4096).collect();
        pages.give(&lent).expect("fresh pages");
        let space = KeySpace { null: true, dump_fill: true, max_indirection: 4, ..KeySpace::default() };
        World { objects: Objects::new(pages, |_| u32::MAX), space }
    }

    /// A key of `mode` that starts at `start` and has `len` bytes.
    fn key(&mut self, mode: u32, start: u64, len: u64, shift: u32, list: Translations) -> u32 {
        self.key_with(mode, start, len, shift, list, |_| {})
    }

    fn key_with(
        &mut self,
        mode: u32,
        start: u64,
        len: u64,
        shift: u32,
        list: Translations,
        edit: impl FnOnce(&mut KeyContext),
    ) -> u32 {
        let mut mkc = Mkc::zeroed();
        mkc.set_access_mode_4_2(mode >> 2);
        mkc.set_access_mode_1_0(mode & 3);
        mkc.set_start_addr(start);
        mkc.set_len(len);
        mkc.set_log_page_size(shift);
        mkc.set_qpn(ANY_QPN);
        mkc.set_pd(PD);
        mkc.set_mkey_7_0(0x5a);
        let mut context = KeyContext::read(&mkc);
        context.rights = ANY;
        edit(&mut context);
        let grant = Grant { relaxed: context.relaxed_write, withdrawn_encoding: false, undecided: false };
        let key = MemoryKey::new(KeyKind::Mtt, context, list, grant);
        self.objects.create(0, key, &[]).expect("room for keys") << 8 | 0x5a
    }

    /// Where a request lies, whichever the key.
    fn ask(&self, request: &Request) -> Result<Vec<Piece>, KeyError> {
        let pieces = collect(&self.objects, &self.space, request, usize::MAX)?.expect("no limit");
        Ok(pieces.into_iter().map(|piece| Piece { key: 0, ..piece }).collect())
    }
}

/// A piece without the key that it lies in.
fn anywhere(piece: Result<Piece, KeyError>) -> Result<Piece, KeyError> {
    piece.map(|piece| Piece { key: 0, ..piece })
}

fn request(key: u32, va: u64, len: u64) -> Request {
    Request { key, va, len, access: Access::LocalRead, pd: PD, qpn: 1, reserved_lkey: false }
}

const PA: u32 = 0;
const MTT: u32 = 1;
const KLM: u32 = 2;
const KSM: u32 = 3;
const MEMIC: u32 = 5;

fn memory(at: u64, len: u64) -> Piece {
    Piece { place: Place::Memory(Iova(at)), len, order: KeyOrder::default(), key: 0 }
}

#[test]
fn pages_are_found_from_any_start_and_never_beyond_the_key() {
    let mut world = World::new();
    let pages = Translations::Mtt(vec![0x9000 | 3, 0x4000 | 3, 0xf000 | 3].into());
    let key = world.key(MTT, 0x1_0800, 0x2000, 12, pages);
    assert_eq!(world.ask(&request(key, 0x1_0800, 0x800)), Ok(vec![memory(0x9800, 0x800)]));
    let whole = vec![memory(0x9800, 0x800), memory(0x4000, 0x1000), memory(0xf000, 0x800)];
    assert_eq!(world.ask(&request(key, 0x1_0800, 0x2000)), Ok(whole));
    for (va, len) in [(0x1_07ff, 1), (0x1_0800, 0x2001), (0x1_2800, 1), (0, u64::MAX), (u64::MAX, 1)] {
        assert_eq!(world.ask(&request(key, va, len)), Err(KeyError::Bounds), "{va:#x} {len:#x}");
    }
}

#[test]
fn pages_that_follow_each_other_are_one_piece_up_to_the_first_that_does_not() {
    let mut world = World::new();
    let list = [0x9000 | 3, 0xa000 | 3, 0xb000 | 1, 0xc000 | 3, 0xe000 | 3, 0xf000, 0x1_0000 | 3];
    let key = world.key(MTT, 0, 7 << 12, 12, Translations::Mtt(list.to_vec().into()));
    assert_eq!(world.ask(&request(key, 0x800, 0x4000)), Ok(vec![memory(0x9800, 0x3800), memory(0xe000, 0x800)]));
    assert_eq!(world.ask(&request(key, 0x800, 0x801)), Ok(vec![memory(0x9800, 0x801)]));
    let write = |va, len| Request { access: Access::LocalWrite, ..request(key, va, len) };
    assert_eq!(world.ask(&write(0x800, 0x1800)), Ok(vec![memory(0x9800, 0x1800)]));
    assert_eq!(world.ask(&write(0x800, 0x1801)), Err(KeyError::PageRights));
    assert_eq!(world.ask(&request(key, 0x4000, 0x1001)), Err(KeyError::Absent));
    let mut walk = resolve(&world.objects, &world.space, &write(0, 0x3000)).unwrap().map(anywhere);
    assert_eq!([walk.next(), walk.next()], [Some(Ok(memory(0x9000, 0x2000))), Some(Err(KeyError::PageRights))]);
    let top = world.key(MTT, 0, 2 << 12, 12, Translations::Mtt(vec![!0xfff | 3, 3].into()));
    assert_eq!(world.ask(&request(top, 0, 0x2000)), Ok(vec![memory(!0xfff, 0x1000), memory(0, 0x1000)]));
}

#[test]
fn a_key_of_all_addresses_has_no_end_but_the_last_address() {
    let mut world = World::new();
    let key = world.key_with(PA, 0, 0, 0, Translations::None, |c| c.length64 = true);
    assert_eq!(world.ask(&request(key, u64::MAX, 1)), Ok(vec![memory(u64::MAX, 1)]));
    assert_eq!(world.ask(&request(key, u64::MAX, 2)), Err(KeyError::Bounds));
    assert_eq!(world.ask(&request(key, 0, u64::MAX)), Ok(vec![memory(0, u64::MAX)]));
}

#[test]
fn a_key_is_refused_to_the_wrong_user_in_the_order_of_the_checks() {
    let mut world = World::new();
    let key = world.key_with(PA, 0, 0x1000, 0, Translations::None, |c| c.qpn = 9);
    let right = Request { qpn: 9, ..request(key, 0, 8) };
    assert!(world.ask(&right).is_ok());
    let refused = [
        (Request { key: key ^ 1, ..right }, KeyError::WrongVariant),
        (Request { key: key + 0x100, ..right }, KeyError::NoSuchKey),
        (Request { key: 0, ..right }, KeyError::NoSuchKey),
        (Request { pd: PD + 1, ..right }, KeyError::WrongPd),
        (Request { qpn: 8, ..right }, KeyError::WrongQp),
        (Request { len: 0x1001, ..right }, KeyError::Bounds),
    ];
    for (request, error) in refused {
        assert_eq!(world.ask(&request), Err(error));
    }
    let free = world.key_with(PA, 0, 0x1000, 0, Translations::None, |c| c.free = true);
    assert_eq!(world.ask(&request(free, 0, 8)), Err(KeyError::Free));
}

#[test]
fn every_access_needs_its_own_right() {
    let cases = [
        (Access::LocalRead, Rights::LOCAL_READ),
        (Access::LocalWrite, Rights::LOCAL_WRITE),
        (Access::RemoteRead, Rights::REMOTE_READ),
        (Access::RemoteWrite, Rights::REMOTE_WRITE),
        (Access::RemoteAtomic, Rights::ATOMIC),
    ];
    for (access, right) in cases {
        let mut world = World::new();
        let with = world.key_with(PA, 0, 64, 0, Translations::None, |c| c.rights = right);
        let without = world.key_with(PA, 0, 64, 0, Translations::None, |c| c.rights = ANY - right);
        assert!(world.ask(&Request { access, ..request(with, 0, 8) }).is_ok(), "{access:?}");
        assert_eq!(world.ask(&Request { access, ..request(without, 0, 8) }), Err(KeyError::Rights), "{access:?}");
    }
}

#[test]
fn page_rights_count_for_what_is_done_to_the_page() {
    let mut world = World::new();
    let pages = Translations::Mtt(vec![0x1000 | 1, 0x2000 | 2, 0x3000, 0x4000 | 3].into());
    let key = world.key(MTT, 0, 0x4000, 12, pages);
    let ask = |va, access| world.ask(&Request { access, ..request(key, va, 8) }).err();
    use Access::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};
    for (access, errors) in [
        (LocalRead, [None, Some(KeyError::PageRights), Some(KeyError::Absent), None]),
        (RemoteRead, [None, Some(KeyError::PageRights), Some(KeyError::Absent), None]),
        (LocalWrite, [Some(KeyError::PageRights), None, Some(KeyError::Absent), None]),
        (RemoteWrite, [Some(KeyError::PageRights), None, Some(KeyError::Absent), None]),
        (RemoteAtomic, [Some(KeyError::PageRights), Some(KeyError::PageRights), Some(KeyError::Absent), None]),
    ] {
        for (page, error) in errors.into_iter().enumerate() {
            assert_eq!(ask(page as u64 * 0x1000, access), error, "{access:?} page {page}");
        }
    }
}

#[test]
fn an_error_in_the_middle_comes_after_the_pieces_before_it() {
    let mut world = World::new();
    let key = world.key(MTT, 0, 0x3000, 12, Translations::Mtt(vec![0x1000 | 3, 0, 0x3000 | 3].into()));
    let walk = resolve(&world.objects, &world.space, &request(key, 0x800, 0x2000)).expect("inside the key");
    let all: Vec<_> = walk.map(anywhere).collect();
    assert_eq!(all, [Ok(memory(0x1800, 0x800)), Err(KeyError::Absent)]);
}

#[test]
fn no_bytes_need_no_key() {
    let world = World::new();
    assert_eq!(world.ask(&request(0xdead_beef, u64::MAX, 0)), Ok(vec![]));
}

#[test]
fn a_window_needs_its_parents_local_rights_and_its_own_remote_ones() {
    let mut world = World::new();
    let read_only = world.key_with(PA, 0, 0x1000, 0, Translations::None, |c| c.rights = Rights::LOCAL_READ);
    let list = |key| klm_list([(0x100, key, 0x40)]);
    let window = world.key_with(KLM, 0x5000, 0x100, 0, list(read_only), |c| {
        c.rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    });
    let ask = |access| world.ask(&Request { access, ..request(window, 0x5010, 16) });
    assert_eq!(ask(Access::RemoteRead), Ok(vec![memory(0x50, 16)]));
    assert_eq!(ask(Access::RemoteWrite), Err(KeyError::Rights));
    assert_eq!(ask(Access::LocalRead), Err(KeyError::Rights));
}

#[test]
fn a_piece_list_is_crossed_from_entry_to_entry_and_padding_is_passed_over() {
    let mut world = World::new();
    let low = world.key(PA, 0, 0x1000, 0, Translations::None);
    let high = world.key(PA, 0x8000, 0x1000, 0, Translations::None);
    let list = [(0x10, low, 0x100), (0, 0, 0), (8, high, 0x8200), (0, 0, 0), (8, low, 0x300), (0, 0, 0)];
    let key = world.key(KLM, 0x40, 0x30, 0, klm_list(list));
    let whole = vec![memory(0x100, 0x10), memory(0x8200, 8), memory(0x300, 8)];
    assert_eq!(world.ask(&request(key, 0x40, 0x20)), Ok(whole));
    assert_eq!(world.ask(&request(key, 0x50, 1)), Ok(vec![memory(0x8200, 1)]));
    assert_eq!(world.ask(&request(key, 0x5f, 1)), Ok(vec![memory(0x307, 1)]));
    assert_eq!(world.ask(&request(key, 0x5f, 2)), Err(KeyError::NotPresent), "the key is longer than its list");
}

/// A KLM list of lengths, keys and addresses.
fn klm_list(entries: impl IntoIterator<Item = (u32, u32, u64)>) -> Translations {
    let octword =
        |(len, key, va): (u32, u32, u64)| [&len.to_be_bytes()[..], &key.to_be_bytes(), &va.to_be_bytes()].concat();
    let bytes: Vec<u8> = entries.into_iter().flat_map(octword).collect();
    Translations::parse(Mode::Klm, &bytes, 0, false, true).expect("any list")
}

#[test]
fn indirect_keys_nest_as_deep_as_advertised_and_loops_end_there() {
    let mut world = World::new();
    let mut key = world.key(PA, 0, 0x1000, 0, Translations::None);
    for level in 1..=5 {
        key = world.key(KLM, 0, 0x1000, 0, klm_list([(0x1000, key, 0)]));
        let expected = if level <= 4 { Ok(vec![memory(8, 8)]) } else { Err(KeyError::TooDeep) };
        assert_eq!(world.ask(&request(key, 8, 8)), expected, "{level} levels");
    }
    // The next key will have this index.
    let own = ((key >> 8) + 1) << 8 | 0x5a;
    let looped = world.key(KSM, 0, 0x1000, 12, Translations::Ksm(vec![Ksm { key: own, va: 0 }].into()));
    assert_eq!(looped, own);
    assert_eq!(world.ask(&request(looped, 0, 8)), Err(KeyError::TooDeep));
}

#[test]
fn children_in_another_domain_are_out_of_reach() {
    let mut world = World::new();
    let foreign = world.key_with(PA, 0, 0x1000, 0, Translations::None, |c| c.pd = PD + 1);
    let list = klm_list([(0x1000, foreign, 0)]);
    let key = world.key(KLM, 0, 0x1000, 0, list);
    assert_eq!(world.ask(&request(key, 0, 8)), Err(KeyError::WrongPd));
}

#[test]
fn the_null_key_takes_everything_and_the_reserved_lkey_is_for_some_queues() {
    let mut world = World::new();
    let null = Reserved::Null.key();
    let nowhere = |len| Piece { place: Place::Nowhere, len, order: KeyOrder::default(), key: 0 };
    assert_eq!(world.ask(&request(null, 0x1234, 99)), Ok(vec![nowhere(99)]));
    let list = Translations::Ksm(vec![Ksm { key: null, va: 0 }; 2].into());
    let key = world.key(KSM, 0, 0x2000, 12, list);
    assert_eq!(world.ask(&request(key, 0xff0, 32)), Ok(vec![nowhere(16), nowhere(16)]));
    let lkey = request(Reserved::Lkey.key(), 0x1234, 8);
    assert_eq!(world.ask(&lkey), Err(KeyError::NoSuchKey));
    assert_eq!(world.ask(&Request { reserved_lkey: true, ..lkey }), Ok(vec![memory(0x1234, 8)]));
    let wraps = Request { reserved_lkey: true, va: u64::MAX, ..lkey };
    assert_eq!(world.ask(&wraps), Err(KeyError::Bounds));
    assert_eq!(world.ask(&request(Reserved::TerminateScatterList.key(), 0, 8)), Err(KeyError::NoSuchKey));
    world.space.null = false;
    assert_eq!(world.ask(&request(null, 0, 8)), Err(KeyError::NoSuchKey));
}

#[test]
fn device_memory_keys_count_from_zero() {
    let mut world = World::new();
    let key = world.key(MEMIC, 0x100_0040, 0x80, 0, Translations::DeviceMemory { start: 0x40 });
    let piece = Piece { place: Place::Device(0x50), len: 0x70, order: KeyOrder::default(), key: 0 };
    assert_eq!(world.ask(&request(key, 0x10, 0x70)), Ok(vec![piece]));
    assert_eq!(world.ask(&request(key, 0x10, 0x71)), Err(KeyError::Bounds));
}

#[test]
fn keys_of_the_data_direct_function_lead_nowhere() {
    let mut world = World::new();
    let key = world.key_with(0, 0, 0, 0, Translations::DataDirect, |context| context.length64 = true);
    assert_eq!(world.ask(&request(key, 0x1000, 8)), Err(KeyError::NotPresent));
}

#[test]
fn a_key_on_user_memory_finds_the_regions_pages() {
    let mut world = World::new();
    let pas: Vec<u8> = [0x9000u64, 0x4000].iter().flat_map(|page| page.to_be_bytes()).collect();
    let pages = PageList::parse(&pas, 12, 0x100, 0x1f00).expect("a legal list");
    let umem = world.objects.create(0, Umem::new(pages, true, true), &[]).expect("room");
    let key = world.key(MTT, 0x7000, 0x1000, 0, Translations::Umem { umem, offset: 0x80 });
    let expected = vec![memory(0x9180, 0xe80), memory(0x4000, 0x180)];
    assert_eq!(world.ask(&request(key, 0x7000, 0x1000)), Ok(expected));
}

#[test]
fn pieces_carry_the_ordering_of_the_key_they_lie_in() {
    let mut world = World::new();
    let leaf = world.key_with(PA, 0, 0x1000, 0, Translations::None, |c| {
        c.relaxed_write = true;
        c.order_read_after_write = 1;
    });
    let key = world.key(KLM, 0, 0x1000, 0, klm_list([(0x1000, leaf, 0)]));
    let pieces = world.ask(&request(key, 0, 8)).expect("inside");
    let order = KeyOrder { relaxed_write: true, relaxed_read: false, relaxed_read_after_write: true };
    assert_eq!(pieces[0].order, order);
}

#[test]
fn a_collected_request_has_at_most_so_many_pieces() {
    let mut world = World::new();
    let key = world.key(MTT, 0, 0x3000, 12, Translations::Mtt(vec![0x1000 | 3, 0x5000 | 3, 0x3000 | 3].into()));
    let collect = |max| collect(&world.objects, &world.space, &request(key, 0, 0x3000), max);
    assert_eq!(collect(2), Ok(None));
    assert_eq!(collect(3).map(|pieces| pieces.map(|p| p.len())), Ok(Some(3)));
}

/// One byte, by linear search and recursion.
fn byte(world: &World, key: u32, va: u64, depth: u32) -> Result<u64, KeyError> {
    let entry = world.objects.mkeys.get(key >> 8).ok_or(KeyError::NoSuchKey)?;
    let MemoryKey { context, list, .. } = &entry.object;
    if u32::from(context.variant) != key & 0xff {
        return Err(KeyError::WrongVariant);
    }
    if context.pd != PD {
        return Err(KeyError::WrongPd);
    }
    if !context.rights.contains(Rights::LOCAL_READ) {
        return Err(KeyError::Rights);
    }
    let (start, end) = (u128::from(context.start_addr), u128::from(context.start_addr) + u128::from(context.len));
    if !(start..end).contains(&u128::from(va)) {
        return Err(KeyError::Bounds);
    }
    if context.mode.is_indirect() && depth == 0 {
        return Err(KeyError::TooDeep);
    }
    let size = 1u128 << context.log_page_size;
    let slot = (u128::from(va) / size - start / size) as usize;
    let within = (u128::from(va) % size) as u64;
    match list {
        Translations::Mtt(pages) => match pages.get(slot) {
            Some(page) if page & 1 != 0 => Ok((page & !0xfff) / size as u64 * size as u64 + within),
            Some(page) if page & 2 != 0 => Err(KeyError::PageRights),
            Some(_) => Err(KeyError::Absent),
            None => Err(KeyError::NotPresent),
        },
        Translations::Ksm(list) => {
            let ksm = list.get(slot).ok_or(KeyError::NotPresent)?;
            byte(world, ksm.key, ksm.va + within, depth - 1)
        }
        Translations::Klm(_) => {
            let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
            let octwords: Vec<[u8; OCTWORD]> = (0..context.octwords).map(|i| list.octword(i as usize, true)).collect();
            let mut pieces: Vec<(u64, u32, u64)> = Vec::new();
            let mut entries = octwords.iter();
            while let Some(entry) = entries.next() {
                let (len, key, child) = (number(&entry[..4]), number(&entry[4..8]) as u32, number(&entry[8..]));
                if key != 0x400 {
                    pieces.push((len, key, child));
                    continue;
                }
                let (turns, count) = (number(&entry[8..12]), number(&entry[14..]));
                let block: Vec<_> = entries.by_ref().take(count as usize).collect();
                for turn in 0..turns {
                    let mut left = len;
                    for entry in &block {
                        let (stride, len) = (number(&entry[..2]), number(&entry[2..4]).min(left));
                        pieces.push((len, number(&entry[4..8]) as u32, number(&entry[8..]) + turn * stride));
                        left -= len;
                    }
                    // Bytes that no entry has.
                    pieces.push((left, u32::MAX, 0));
                }
            }
            let mut at = va - context.start_addr;
            for (len, key, child) in pieces {
                if at < len {
                    return if key == u32::MAX {
                        Err(KeyError::NotPresent)
                    } else {
                        byte(world, key, child + at, depth - 1)
                    };
                }
                at -= len;
            }
            Err(KeyError::NotPresent)
        }
        _ => Ok(va),
    }
}

/// An entry of a random KLM list: its length and child, or a repeat block with its turns and length of a turn.
#[derive(Clone, Debug)]
enum Part {
    Child(u64, usize, u64),
    Block { turns: u32, turn: u32, entries: Vec<(u32, u32, usize, u64)> },
}

/// A key of the random world, before its children have numbers.
#[derive(Clone, Debug)]
enum Plan {
    Pa { start: u64, len: u64 },
    Mtt { start: u64, len: u64, pages: Vec<u64> },
    Klm { start: u64, len: u64, list: Vec<Part> },
    Ksm { start: u64, len: u64, shift: u32, list: Vec<(usize, u64)> },
}

fn leaf() -> impl Strategy<Value = Plan> {
    let rights = prop_oneof![9 => Just(3u64), 1 => 0u64..4];
    prop_oneof![
        (0u64..8, 0x300u64..0x800).prop_map(|(start, len)| Plan::Pa { start, len }),
        (0u64..8, 0x300u64..0x3000, prop::collection::vec((0u64..64, rights), 1..4)).prop_map(|(start, len, pages)| {
            let pages = pages.into_iter().map(|(page, rights)| page << 12 | rights).collect();
            Plan::Mtt { start, len, pages }
        }),
    ]
}

/// Mostly children that can be reached: among the first keys, which are leaves, at addresses that they have.
fn child() -> impl Strategy<Value = (usize, u64)> {
    (prop_oneof![4 => 0usize..2, 1 => 0usize..16], prop_oneof![9 => 8u64..0x200, 1 => 0u64..0x3000])
}

fn part() -> impl Strategy<Value = Part> {
    let entry = (0u32..0x20, 0u32..0x10, child()).prop_map(|(stride, len, (key, va))| (stride, len, key, va));
    prop_oneof![
        3 => (0u64..0x60, child()).prop_map(|(len, (key, va))| Part::Child(len, key, va)),
        1 => (0u32..5, 0u32..0x30, prop::collection::vec(entry, 0..5))
            .prop_map(|(turns, turn, entries)| Part::Block { turns, turn, entries }),
    ]
}

fn indirect() -> impl Strategy<Value = Plan> {
    prop_oneof![
        (0u64..0x40, 0x40u64..0x200, prop::collection::vec(part(), 1..8)).prop_map(|(start, len, list)| Plan::Klm {
            start,
            len,
            list
        }),
        (0u64..0x40, 0x40u64..0x200, 3u32..8, prop::collection::vec(child(), 1..8))
            .prop_map(|(start, len, shift, list)| Plan::Ksm { start, len, shift, list }),
    ]
}

fn build(plans: &[Plan], spoilt: &[usize]) -> (World, Vec<u32>) {
    let mut world = World::new();
    let mut keys: Vec<u32> = Vec::new();
    for (i, plan) in plans.iter().enumerate() {
        let child = |n: usize| keys.get(n % (keys.len() + 1)).copied().unwrap_or(0x99_9900);
        let spoil = |context: &mut KeyContext| {
            if spoilt.contains(&i) {
                context.rights = Rights::LOCAL_WRITE;
            }
        };
        let key = match plan {
            Plan::Pa { start, len } => world.key_with(PA, *start, *len, 0, Translations::None, spoil),
            Plan::Mtt { start, len, pages } => {
                world.key_with(MTT, *start, *len, 12, Translations::Mtt(pages.clone().into()), spoil)
            }
            Plan::Klm { start, len, list } => {
                let list: Vec<(u32, u32, u64)> = list
                    .iter()
                    .flat_map(|part| match part {
                        Part::Child(len, key, va) => vec![(*len as u32, child(*key), *va)],
                        Part::Block { turns, turn, entries } => {
                            let head = (*turn, 0x400, u64::from(*turns) << 32 | entries.len() as u64);
                            let entries = entries.iter().map(|(s, len, key, va)| (s << 16 | len, child(*key), *va));
                            std::iter::once(head).chain(entries).collect()
                        }
                    })
                    .collect();
                world.key_with(KLM, *start, *len, 0, klm_list(list.iter().copied()), |context| {
                    context.octwords = list.len() as u32;
                    spoil(context);
                })
            }
            Plan::Ksm { start, len, shift, list } => {
                let list: Vec<Ksm> = list.iter().map(|(key, va)| Ksm { key: child(*key), va: *va }).collect();
                world.key_with(KSM, *start, *len, *shift, Translations::Ksm(list.into()), spoil)
            }
        };
        keys.push(key);
    }
    (world, keys)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_finds_what_a_search_byte_by_byte_finds(
        leaves in prop::collection::vec(leaf(), 2..5),
        tables in prop::collection::vec(indirect(), 1..7),
        spoilt in prop::collection::vec(0usize..11, 0..2),
        which in 0usize..11,
        (va, len) in (0u64..0x80, 1u64..0x180),
    ) {
        let plans: Vec<Plan> = leaves.into_iter().chain(tables).collect();
        let (world, keys) = build(&plans, &spoilt);
        let key = keys[which % keys.len()];
        let mut expected = (0..len).map(|i| byte(&world, key, va + i, world.space.max_indirection));
        match resolve(&world.objects, &world.space, &request(key, va, len)) {
            // The top key is judged as a whole, whatever byte fails first.
            Err(KeyError::Bounds) => {
                prop_assert!(expected.any(|byte| byte == Err(KeyError::Bounds)));
            }
            Err(error) => prop_assert_eq!(expected.next(), Some(Err(error))),
            Ok(walk) => {
                for piece in walk {
                    match piece {
                        Ok(Piece { place: Place::Memory(iova), len, .. }) => {
                            prop_assert!(len > 0);
                            for i in 0..len {
                                prop_assert_eq!(expected.next(), Some(Ok(iova.0 + i)));
                            }
                        }
                        Ok(piece) => prop_assert!(false, "{:?}", piece),
                        // A child is judged for all that is asked of it: the failing byte may come later in the piece.
                        Err(KeyError::Bounds) => {
                            prop_assert!(expected.any(|byte| byte == Err(KeyError::Bounds)));
                            return Ok(());
                        }
                        Err(error) => {
                            prop_assert_eq!(expected.next(), Some(Err(error)));
                            return Ok(());
                        }
                    }
                }
                prop_assert_eq!(expected.next(), None);
            }
        }
    }

    #[test]
    fn no_request_makes_the_walk_panic_or_run_long(
        leaves in prop::collection::vec(leaf(), 2..4),
        tables in prop::collection::vec(indirect(), 1..7),
        which in 0usize..10,
        va in prop_oneof![any::<u64>(), 0u64..0x400],
        len in prop_oneof![any::<u64>(), 0u64..0x400],
    ) {
        let plans: Vec<Plan> = leaves.into_iter().chain(tables).collect();
        let (world, keys) = build(&plans, &[]);
        let request = request(keys[which % keys.len()], va, len);
        if let Ok(walk) = resolve(&world.objects, &world.space, &request) {
            prop_assert!(walk.count() <= 0x2000);
        }
    }
}

#[test]
fn a_piece_names_the_key_that_it_lies_in_not_the_one_that_leads_there() {
    let mut world = World::new();
    let page = |at: u64| Translations::Mtt(vec![at | 3].into());
    let leaf = world.key(MTT, 0, 0x1000, 12, page(0x5000));
    let list = Translations::Ksm(vec![Ksm { key: leaf, va: 0 }].into());
    let indirect = world.key(KSM, 0, 0x1000, 12, list);
    for key in [leaf, indirect] {
        let pieces = collect(&world.objects, &world.space, &request(key, 8, 8), 1).unwrap().unwrap();
        assert_eq!(pieces.iter().map(|piece| piece.key).collect::<Vec<_>>(), [leaf >> 8]);
    }
}
