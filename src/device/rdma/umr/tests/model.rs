//! Random work requests on real keys, against a model that keeps every key as a flat table of octwords and finds each
//! byte by counting through it. Then any bytes at all.

use proptest::prelude::*;

use super::*;

/// Octwords of every key but that on all memory.
const ROOM: usize = 8;

/// A key of the model.
#[derive(Clone, Debug)]
struct Flat {
    mode: u32,
    free: bool,
    variant: u8,
    rights: Rights,
    start: u64,
    len: u64,
    shift: u32,
    table: [[u8; OCTWORD]; ROOM],
}

/// A work request as the strategy makes it.
#[derive(Clone, Debug)]
struct Op {
    key: usize,
    pointer: bool,
    demand: u8,
    at: usize,
    list: Vec<[u8; OCTWORD]>,
    mask: MkeyMask,
    free: bool,
    variant: u8,
    rights: Rights,
    start: u64,
    len: u64,
    shift: u32,
}

/// The keys that lists lead to: indices are the same in every run.
const KEYS: usize = 3;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn octword(high: u64, low: u64) -> [u8; OCTWORD] {
    let mut bytes = [0; OCTWORD];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    bytes
}

/// The model's answer for one byte.
fn byte(
    keys: &[Flat; KEYS],
    indices: &[u32; KEYS],
    dma: u32,
    key: u32,
    va: u64,
    access: Access,
    depth: u32,
) -> Result<u64, KeyError> {
    let write = access == LocalWrite;
    if key == dma {
        return Ok(va);
    }
    let at = indices.iter().position(|index| *index == key >> 8).ok_or(KeyError::NoSuchKey)?;
    let flat = &keys[at];
    if flat.variant != key as u8 {
        return Err(KeyError::WrongVariant);
    }
    if flat.free {
        return Err(KeyError::Free);
    }
    if !flat.rights.contains(if write { Rights::LOCAL_WRITE } else { Rights::LOCAL_READ }) {
        return Err(KeyError::Rights);
    }
    if va < flat.start || va - flat.start >= flat.len {
        return Err(KeyError::Bounds);
    }
    if flat.mode != MTT && depth == 0 {
        return Err(KeyError::TooDeep);
    }
    let size = 1u64 << flat.shift;
    let slot = (va / size - flat.start / size) as usize;
    let child = |key, va| byte(keys, indices, dma, key, va, access, depth - 1);
    match flat.mode {
        MTT => {
            let octword = flat.table.get(slot / 2).ok_or(KeyError::NotPresent)?;
            let entry = number(&octword[slot % 2 * 8..][..8]);
            match (entry & 3, write) {
                (0, _) => Err(KeyError::Absent),
                (1, true) | (2, false) => Err(KeyError::PageRights),
                _ => Ok((entry & !0xfff) / size * size + va % size),
            }
        }
        KSM => {
            let entry = flat.table.get(slot).copied().unwrap_or_default();
            if entry == [0; OCTWORD] {
                return Err(KeyError::NotPresent);
            }
            child(number(&entry[4..8]) as u32, number(&entry[8..]) + va % size)
        }
        _ => {
            let mut left = va - flat.start;
            let mut next = 0;
            while let Some(entry) = flat.table.get(next) {
                next += 1;
                let (len, key, at) = (number(&entry[..4]), number(&entry[4..8]) as u32, number(&entry[8..]));
                if key != 0x400 {
                    if left < len {
                        return child(key, at + left);
                    }
                    left -= len;
                    continue;
                }
                let (turns, count) = (number(&entry[8..12]), number(&entry[14..]) as usize);
                let block = &flat.table[next..(next + count).min(ROOM)];
                for turn in 0..turns {
                    let mut turn_left = len;
                    for entry in block {
                        let (stride, len) = (number(&entry[..2]), number(&entry[2..4]).min(turn_left));
                        if left < len {
                            return child(number(&entry[4..8]) as u32, number(&entry[8..]) + turn * stride + left);
                        }
                        (left, turn_left) = (left - len, turn_left - len);
                    }
                    if left < turn_left {
                        return Err(KeyError::NotPresent);
                    }
                    left -= turn_left;
                }
                next += block.len();
            }
            Err(KeyError::NotPresent)
        }
    }
}

/// What the model makes of a work request: whether it takes effect.
fn apply(flat: &mut Flat, op: &Op) -> bool {
    let takes = |bit: MkeyMask| op.mask.contains(bit);
    let mut after = flat.clone();
    if (op.demand == MUST_BE_FREE && !flat.free) || (op.demand == MUST_BE_USABLE && flat.free) {
        return false;
    }
    if !op.list.is_empty() && op.at + op.list.len() > ROOM {
        return false;
    }
    for (slot, octword) in after.table.iter_mut().skip(op.at).zip(&op.list) {
        *slot = *octword;
    }
    if takes(MkeyMask::FREE) {
        after.free = op.free;
    }
    if takes(MkeyMask::KEY) {
        after.variant = op.variant;
    }
    if takes(MkeyMask::LEN) {
        after.len = op.len;
    }
    if takes(MkeyMask::START_ADDR) {
        after.start = op.start;
    }
    if takes(MkeyMask::PAGE_SIZE) {
        after.shift = op.shift;
    }
    for (bit, right) in [(MkeyMask::LR, Rights::LOCAL_READ), (MkeyMask::LW, Rights::LOCAL_WRITE)] {
        if takes(bit) {
            after.rights.set(right, op.rights.contains(right));
        }
    }
    if after.len > 0 && after.start.checked_add(after.len - 1).is_none() {
        return false;
    }
    let small = after.mode == MTT && after.shift < 12;
    if small && !(after.free && after.shift == 0) {
        return false;
    }
    *flat = after;
    true
}

/// A child: mostly one that is there, by its number, at an address that it has.
fn child() -> impl Strategy<Value = (usize, u32, u64)> {
    (0usize..KEYS + 2, prop_oneof![9 => Just(0u32), 1 => 0u32..3], 0u64..0x2100)
}

/// A list for each kind of key; children are put in when their numbers are known.
#[derive(Clone, Debug)]
enum Part {
    Pages(u64, u64),
    Piece(u32, (usize, u32, u64)),
    Head(u32, u32, u16),
}

fn part(key: usize) -> BoxedStrategy<Part> {
    let page = || (0u64..32, prop_oneof![6 => Just(3u64), 1 => 0u64..4]).prop_map(|(page, rights)| page << 12 | rights);
    match key {
        0 => (page(), page()).prop_map(|(a, b)| Part::Pages(a, b)).boxed(),
        1 => prop_oneof![
            4 => (prop_oneof![0u32..0x40, (0u32..0x20, 0u32..0x10).prop_map(|(s, l)| s << 16 | l)], child())
                .prop_map(|(len, child)| Part::Piece(len, child)),
            1 => (0u32..0x30, 0u32..4, 0u16..4).prop_map(|(len, turns, count)| Part::Head(len, turns, count)),
        ]
        .boxed(),
        _ => child().prop_map(|child| Part::Piece(0, child)).boxed(),
    }
}

fn op(parts: impl Fn(Part) -> [u8; OCTWORD] + Clone + 'static) -> impl Strategy<Value = Op> {
    let mask = prop_oneof![
        3 => Just(ENABLE & !MkeyMask::PD),
        1 => Just(MkeyMask::FREE),
        2 => any::<[bool; 7]>().prop_map(|bits| {
            use MkeyMask as M;
            let all = [M::FREE, M::KEY, M::LEN, M::START_ADDR, M::PAGE_SIZE, M::LR, M::LW];
            all.into_iter().zip(bits).filter(|(_, set)| *set).map(|(bit, _)| bit).collect()
        }),
    ];
    (0usize..KEYS).prop_flat_map(move |key| {
        let parts = parts.clone();
        let shift = if key == 0 { 11u32..15 } else { 3u32..13 };
        let list = prop::collection::vec(part(key).prop_map(parts), 0..6);
        let start = prop_oneof![9 => 0u64..0x1800, 1 => Just(u64::MAX - 8)];
        (
            (Just(key), any::<bool>(), prop_oneof![3 => Just(0u8), 1 => Just(MUST_BE_FREE), 1 => Just(MUST_BE_USABLE)]),
            (prop_oneof![4 => 0usize..3, 1 => 0usize..10], list, mask.clone()),
            (prop_oneof![5 => Just(false), 1 => Just(true)], prop_oneof![9 => Just(0u8), 1 => 0u8..3]),
            (prop_oneof![6 => Just(3u8), 1 => 0u8..4], start, 0u64..0x4000, shift),
        )
            .prop_map(
                |((key, pointer, demand), (at, list, mask), (free, variant), (rights, start, len, shift))| Op {
                    key,
                    pointer,
                    demand,
                    at,
                    list,
                    mask,
                    free,
                    variant,
                    rights: Rights::from_bits_truncate(rights),
                    start,
                    len,
                    shift,
                },
            )
    })
}

/// The bench, its keys, and the model of them as they are made. Numbers are the same each time, so that a strategy can
/// name them.
fn world() -> (Bench, [u32; KEYS], [Flat; KEYS]) {
    let mut bench = Bench::new("connectx7", &[]);
    let pd = bench.pd;
    let modes = [MTT, KLM, KSM];
    let keys = modes.map(|mode| bench.pooled(pd, mode, ROOM as u32, |mkc| mkc.set_rr(1)));
    let flats = modes.map(|mode| Flat {
        mode,
        free: true,
        variant: 0,
        rights: Rights::LOCAL_READ | Rights::LOCAL_WRITE,
        start: 0,
        len: 0,
        shift: 12,
        table: [[0; OCTWORD]; ROOM],
    });
    (bench, keys, flats)
}

/// The numbers of the keys and of the key on all memory.
fn numbers() -> ([u32; KEYS], u32) {
    let (bench, keys, _) = world();
    (keys.map(|key| key >> 8), bench.dma)
}

fn parts() -> impl Fn(Part) -> [u8; OCTWORD] + Clone {
    let (indices, dma) = numbers();
    move |part| {
        let key = |(child, variant, _): (usize, u32, u64)| match indices.get(child) {
            Some(index) => index << 8 | variant,
            None => dma,
        };
        match part {
            Part::Pages(a, b) => octword(a, b),
            Part::Piece(len, child) => octword(u64::from(len) << 32 | u64::from(key(child)), child.2),
            Part::Head(len, turns, count) => {
                octword(u64::from(len) << 32 | 0x400, u64::from(turns) << 32 | u64::from(count))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_work_requests_every_byte_is_where_the_model_has_it(
        ops in prop::collection::vec(op(parts()), 1..24),
        probes in prop::collection::vec((0usize..KEYS, 0u64..0x4000), 24),
    ) {
        let (mut bench, keys, mut model) = world();
        let (pd, indices, dma) = (bench.pd, keys.map(|key| key >> 8), bench.dma);
        for op in &ops {
            let list: Vec<u8> = op.list.concat();
            let fill = |mkc: &mut Mkc<Vec<u8>>| {
                mkc.set_free(op.free.into());
                mkc.set_mkey_7_0(op.variant.into());
                mkc.set_lr(op.rights.contains(Rights::LOCAL_READ).into());
                mkc.set_lw(op.rights.contains(Rights::LOCAL_WRITE).into());
                mkc.set_start_addr(op.start);
                mkc.set_len(op.len);
                mkc.set_log_page_size(op.shift);
            };
            let entry = if op.pointer && !list.is_empty() {
                bench.pointer(op.demand | OFFSET, op.at as u64, &list, op.mask, fill)
            } else {
                inline(op.demand | OFFSET, op.at as u64, &list, op.mask, fill)
            };
            let result = bench.post(&bench.registrar(), keys[op.key], &entry);
            prop_assert_eq!(result.is_ok(), apply(&mut model[op.key], op), "{:?}: {:?}", op, result);
        }
        for (which, at) in probes {
            let va = model[which].start.wrapping_add(at % (model[which].len + 2)).wrapping_sub(1);
            let key = indices[which] << 8 | u32::from(model[which].variant);
            for access in [LocalRead, LocalWrite] {
                let found = bench.places(key, pd, access, va, 1).map(|places| places[0].0);
                prop_assert_eq!(found, byte(&model, &indices, dma, key, va, access, 4), "{:#x} at {:#x}", key, va);
            }
        }
        prop_assert!(bench.rig.function.summary().internal_failures.is_empty());
    }

    #[test]
    fn no_entry_makes_the_device_fail(
        bodies in prop::collection::vec(
            (0usize..7, prop::collection::vec(any::<u8>(), 112..400), prop::collection::vec(any::<bool>(), 12), any::<u8>()),
            1..16,
        ),
    ) {
        let (mut bench, keys, _) = world();
        let posters = [bench.registrar(), protocol(bench.pd), user(bench.pd, QPN)];
        for (which, mut body, tame, flags) in bodies {
            // Bytes that are almost always fatal are taken back most of the time.
            let at = [1, 2, 3, 5, 6, 7, 8, 9, 0x10, 0x11, 0x12, 0x13];
            for (at, tame) in at.into_iter().zip(tame) {
                body[at] = if tame { 0 } else { body[at] };
            }
            body[0] = flags & 0xf8;
            body[4] = 0;
            let key = keys.get(which % 4).copied().unwrap_or(bench.dma);
            let poster = posters[which % 3];
            let cost = bench.rig.function.hca().umr_cost(key, &body);
            prop_assert!(cost >= body.len());
            let result = bench.post(&poster, key, &body);
            if let Err(error) = result {
                prop_assert!(error.vendor() >= 0x40 && !error.to_string().is_empty());
            }
            let _ = bench.ask(&Request {
                key: key & !0xff | u32::from(bench.context(key).variant),
                va: bench.context(key).start_addr,
                len: 64,
                access: LocalRead,
                pd: bench.context(key).pd,
                qpn: QPN,
                reserved_lkey: false,
            });
            let _ = bench.rig.function.hca_mut().invalidate_remote(key, bench.pd, QPN, &mut Bus::new(0));
        }
        prop_assert!(bench.rig.function.summary().internal_failures.is_empty());
    }
}
