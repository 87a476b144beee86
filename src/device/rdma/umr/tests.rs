//! Work requests as drivers write them, byte by byte.

mod model;

use super::*;
use crate::cmdif::error::objects;
use crate::dma::Bus;
use crate::mkey::context::{Rights, syn as context};
use crate::mkey::policy;
use crate::mkey::reserved::Reserved;
use crate::mkey::translate::{Piece, collect};
use crate::mkey::umr::syn;
use crate::prm::mkey::{CreateMkeyIn, CreateMkeyOut};
use crate::prm::opcode::Opcode;
use crate::prm::pd::AllocPdOut;
use crate::profile::Profile;
use crate::testing::Rig;

const PA: u32 = 0;
const MTT: u32 = 1;
const KLM: u32 = 2;
const KSM: u32 = 3;

/// The first byte of the flags.
const INLINE: u8 = 0x80;
const MUST_BE_USABLE: u8 = 0x40;
const MUST_BE_FREE: u8 = 0x20;
const OFFSET: u8 = 0x10;
const CHECK_QPN: u8 = 0x08;

/// What the kernel masks to enable a pooled key (`umr.c:mlx5r_umr_final_update_xlt`).
const ENABLE: MkeyMask = MkeyMask::KEY
    .union(MkeyMask::FREE)
    .union(MkeyMask::LR)
    .union(MkeyMask::LW)
    .union(MkeyMask::RR)
    .union(MkeyMask::RW)
    .union(MkeyMask::PD)
    .union(MkeyMask::LEN)
    .union(MkeyMask::PAGE_SIZE)
    .union(MkeyMask::START_ADDR);
/// What it masks for fast registration (`wr.c:frwr_mkey_mask`).
const REGISTER: MkeyMask = MkeyMask::LEN
    .union(MkeyMask::PAGE_SIZE)
    .union(MkeyMask::START_ADDR)
    .union(MkeyMask::EN_RINVAL)
    .union(MkeyMask::KEY)
    .union(MkeyMask::LR)
    .union(MkeyMask::LW)
    .union(MkeyMask::RR)
    .union(MkeyMask::RW)
    .union(MkeyMask::SMALL_FENCE)
    .union(MkeyMask::FREE);
/// What rdma-core masks to bind a window (`qp.c:set_umr_control_seg`).
const BIND: MkeyMask = MkeyMask::FREE
    .union(MkeyMask::KEY)
    .union(MkeyMask::LEN)
    .union(MkeyMask::START_ADDR)
    .union(MkeyMask::LW)
    .union(MkeyMask::RR)
    .union(MkeyMask::RW)
    .union(MkeyMask::A);

/// Where lists for pointers lie.
const LIST: u64 = 0x40_0000;
/// A queue pair of a user.
const QPN: u32 = 0x55;

/// A running function, a domain of the driver and its key on all memory.
struct Bench {
    rig: Rig,
    pd: u32,
    dma: u32,
}

/// Settings under which user regions are registered by UMR.
const EXECUTES: [&str; 2] =
    ["caps.general.umr_modify_entity_size_disabled=0", "caps.general.umr_modify_atomic_disabled=0"];

impl Bench {
    fn new(profile: &str, sets: &[&str]) -> Bench {
        let sets = [&EXECUTES[..], sets].concat();
        let mut rig = Rig::new(Profile::with(profile, &sets).expect("a legal profile"));
        rig.bring_up();
        let mut bench = Bench { rig, pd: 0, dma: 0 };
        bench.pd = bench.alloc_pd();
        let pd = bench.pd;
        bench.dma = bench.create(pd, PA, |mkc| mkc.set_length64(1));
        bench
    }

    fn alloc_pd(&mut self) -> u32 {
        AllocPdOut::new(self.rig.ok(&Rig::input(Opcode::ALLOC_PD.0, 0, 16), 16)).expect("16 bytes").pd()
    }

    fn free_pd(&mut self, pd: u32) -> u32 {
        let mut input = Rig::input(Opcode::DEALLOC_PD.0, 0, 16);
        input[8..12].copy_from_slice(&pd.to_be_bytes());
        self.rig.exec(&input, 16).syndrome()
    }

    /// A key of domain `pd` with local rights and, where the profile has it, relaxed ordering; the whole key.
    fn create(&mut self, pd: u32, mode: u32, edit: impl FnOnce(&mut Mkc<&mut [u8]>)) -> u32 {
        let mut input = CreateMkeyIn::zeroed();
        input.set_opcode(u32::from(Opcode::CREATE_MKEY.0));
        let mut mkc = input.memory_key_mkey_entry_mut();
        mkc.set_relaxed_ordering_write(1);
        mkc.set_lr(1);
        mkc.set_lw(1);
        mkc.set_qpn(0xff_ffff);
        mkc.set_pd(pd);
        mkc.set_access_mode_1_0(mode);
        edit(&mut mkc);
        let variant = mkc.mkey_7_0();
        let out = self.rig.ok(input.as_bytes(), 16);
        CreateMkeyOut::new(out).expect("16 bytes").mkey_index() << 8 | variant
    }

    /// A free key with room for `octwords`, as a pool has it.
    fn pooled(&mut self, pd: u32, mode: u32, octwords: u32, edit: impl FnOnce(&mut Mkc<&mut [u8]>)) -> u32 {
        self.create(pd, mode, |mkc| {
            mkc.set_free(1);
            mkc.set_umr_en(1);
            mkc.set_translations_octword_size(octwords);
            mkc.set_log_page_size(12);
            edit(mkc);
        })
    }

    /// A window as ibv_alloc_mw makes it.
    fn window(&mut self, pd: u32, two: bool) -> u32 {
        self.pooled(pd, KLM, 4, |mkc| {
            mkc.set_relaxed_ordering_write(0);
            mkc.set_lw(0);
            mkc.set_log_page_size(0);
            mkc.set_en_rinval(two.into());
        })
    }

    /// A region of `len` bytes at `start` that lies at the DMA address `at`, with all rights.
    fn region(&mut self, pd: u32, start: u64, len: u64, at: u64) -> u32 {
        let octwords = len.div_ceil(4096).div_ceil(2) as u32 + 1;
        let key = self.pooled(pd, MTT, octwords, |_| {});
        let pages: Vec<u64> = (0..len.div_ceil(4096) + 1).map(|page| (at + 4096 * page) | 3).collect();
        let entry = self.pointer(MUST_BE_FREE | OFFSET, 0, &words(&pages), ENABLE | MkeyMask::A, |mkc| {
            all_rights(mkc);
            mkc.set_pd(pd);
            mkc.set_start_addr(start);
            mkc.set_len(len);
        });
        assert_eq!(self.post(&self.registrar(), key, &entry), Ok(()));
        key
    }

    /// The driver's queue for registration.
    fn registrar(&self) -> Poster {
        Poster { qpn: 0x44, pd: self.pd, uid: 0, reserved_lkey: true, fast_register: true, registers: true }
    }

    /// A list behind a pointer.
    fn pointer(
        &mut self,
        flags: u8,
        at: u64,
        list: &[u8],
        mask: MkeyMask,
        edit: impl FnOnce(&mut Mkc<Vec<u8>>),
    ) -> Vec<u8> {
        self.rig.write(LIST, list);
        let mut segment = DataSeg::zeroed();
        segment.set_byte_count(list.len() as u32);
        segment.set_lkey(self.dma);
        segment.set_addr(LIST);
        entry(flags, at, list.len() / OCTWORD, segment.as_bytes(), mask, edit)
    }

    fn post(&mut self, poster: &Poster, key: u32, entry: &[u8]) -> Result<(), UmrError> {
        let result = self.rig.function.execute_umr(poster, key, entry);
        self.rig.function.hca().audit().expect("references and memory agree");
        result
    }

    fn ask(&self, request: &Request) -> Result<Vec<Piece>, KeyError> {
        let hca = self.rig.function.hca();
        collect(&hca.objects, &hca.key_space, request, usize::MAX).map(|pieces| pieces.expect("no limit"))
    }

    /// Where `len` bytes at `va` of `key` lie for a queue of `pd`, if all of them lie in memory.
    fn places(&self, key: u32, pd: u32, access: Access, va: u64, len: u64) -> Result<Vec<(u64, u64)>, KeyError> {
        let pieces = self.ask(&Request { key, va, len, access, pd, qpn: QPN, reserved_lkey: false })?;
        let memory = |piece: Piece| match piece.place {
            Place::Memory(iova) => (iova.0, piece.len),
            place => panic!("{place:?}"),
        };
        Ok(pieces.into_iter().map(memory).collect())
    }

    fn context(&self, key: u32) -> KeyContext {
        self.rig.function.hca().objects.mkeys.get(key >> 8).expect("the key exists").object.context
    }
}

fn user(pd: u32, qpn: u32) -> Poster {
    Poster { qpn, pd, uid: 3, reserved_lkey: false, fast_register: false, registers: false }
}

/// A kernel protocol's queue.
fn protocol(pd: u32) -> Poster {
    Poster { qpn: 0x66, pd, uid: 0, reserved_lkey: true, fast_register: true, registers: false }
}

/// An entry's body: control, context, and `rest`.
fn entry(
    flags: u8,
    at: u64,
    octwords: usize,
    rest: &[u8],
    mask: MkeyMask,
    edit: impl FnOnce(&mut Mkc<Vec<u8>>),
) -> Vec<u8> {
    let mut control = UmrCtrlSeg::zeroed();
    control.as_bytes_mut()[0] = flags;
    control.set_xlt_octowords(octwords as u32);
    control.set_xlt_offset(at as u32 & 0xffff);
    control.set_xlt_offset_47_16((at >> 16) as u32);
    control.set_mkey_mask(mask.bits());
    let mut mkc = Mkc::zeroed();
    mkc.set_lr(1);
    mkc.set_qpn(0xff_ffff);
    mkc.set_log_page_size(12);
    edit(&mut mkc);
    [control.as_bytes(), mkc.as_bytes(), rest].concat()
}

fn inline(flags: u8, at: u64, list: &[u8], mask: MkeyMask, edit: impl FnOnce(&mut Mkc<Vec<u8>>)) -> Vec<u8> {
    entry(flags | INLINE, at, list.len() / OCTWORD, list, mask, edit)
}

fn words(list: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = list.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes
}

/// Lengths, keys, addresses.
fn klms(list: &[(u32, u32, u64)]) -> Vec<u8> {
    let words64: Vec<u64> =
        list.iter().flat_map(|(len, key, va)| [u64::from(*len) << 32 | u64::from(*key), *va]).collect();
    words(&words64)
}

fn all_rights<B: AsRef<[u8]> + AsMut<[u8]>>(mkc: &mut Mkc<B>) {
    mkc.set_lr(1);
    mkc.set_lw(1);
    mkc.set_rr(1);
    mkc.set_rw(1);
    mkc.set_a(1);
}

fn free(mkc: &mut Mkc<Vec<u8>>) {
    mkc.set_free(1);
}

/// What libmlx5 posts for a bind: `key_byte` is the window's new one.
fn bind(two: bool, key_byte: u32, region: u32, va: u64, len: u32) -> Vec<u8> {
    let (flags, mask) = if two { (MUST_BE_FREE, BIND | MkeyMask::QPN) } else { (0, BIND) };
    inline(flags | OFFSET, 0, &klms(&[(len, region, va)]), mask, |mkc| {
        mkc.set_lr(0);
        mkc.set_rr(1);
        mkc.set_rw(1);
        mkc.set_mkey_7_0(key_byte);
        mkc.set_qpn(if two { QPN } else { 0xff_ffff });
        mkc.set_start_addr(va);
        mkc.set_len(len.into());
    })
}

/// What it posts for IBV_WR_LOCAL_INV.
fn local_invalidate() -> Vec<u8> {
    inline(OFFSET | CHECK_QPN, 0, &[], MkeyMask::FREE | MkeyMask::KEY | MkeyMask::QPN, free)
}

use Access::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};

#[test]
fn a_user_region_is_taken_from_the_pool_used_and_put_back() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pool, user_pd) = (bench.pd, bench.alloc_pd());
    // Room for two pages; the driver pads the list to eight.
    let key = bench.pooled(pool, MTT, 1, |mkc| mkc.set_mkey_7_0(0x11));
    let registrar = bench.registrar();
    for round in 0..3 {
        let enable = bench.pointer(MUST_BE_FREE | OFFSET, 0, &words(&[0x10_0003, 0x30_0003]), ENABLE, |mkc| {
            mkc.set_lw(1);
            mkc.set_rr(1);
            mkc.set_pd(user_pd);
            mkc.set_start_addr(0x7000_0800);
            mkc.set_len(0x1800);
            mkc.set_mkey_7_0(0x12 + round);
        });
        assert_eq!(bench.post(&registrar, key, &enable), Ok(()), "the low byte of the key may be stale");
        let key = key & !0xff | (0x12 + round);
        let all = Ok(vec![(0x10_0800, 0x800), (0x30_0000, 0x1000)]);
        for access in [LocalRead, LocalWrite, RemoteRead] {
            assert_eq!(bench.places(key, user_pd, access, 0x7000_0800, 0x1800), all);
        }
        assert_eq!(bench.places(key, user_pd, RemoteWrite, 0x7000_0800, 8), Err(KeyError::Rights));
        assert_eq!(bench.places(key, pool, LocalRead, 0x7000_0800, 8), Err(KeyError::WrongPd));
        assert_eq!(bench.places(key ^ 1, user_pd, LocalRead, 0x7000_0800, 8), Err(KeyError::WrongVariant));
        assert_eq!(bench.free_pd(user_pd), objects::IN_USE.0, "the key is the domain's now");
        assert_eq!(bench.post(&registrar, key, &enable), Err(UmrError::NotFree));

        let revoke = inline(0, 0, &[], MkeyMask::PD | MkeyMask::FREE, |mkc| {
            mkc.set_free(1);
            mkc.set_pd(pool);
        });
        assert_eq!(bench.post(&registrar, key, &revoke), Ok(()));
        assert_eq!(bench.places(key, user_pd, LocalRead, 0x7000_0800, 8), Err(KeyError::Free));
        assert_eq!((bench.context(key).pd, bench.context(key).relaxed_write), (pool, true));
    }
    assert_eq!(bench.free_pd(user_pd), 0);
    let gone = inline(0, 0, &[], MkeyMask::PD, |mkc| mkc.set_pd(user_pd));
    assert_eq!(bench.post(&registrar, key, &gone), Err(UmrError::NoSuchPd));
    bench.rig.settle();
    let keys = bench.rig.function.summary().keys;
    assert_eq!((keys.created.get("free"), keys.enabled.get("mtt")), (Some(&1), Some(&1)), "one key, however often");
    assert_eq!((keys.relaxed, keys.strict_tolerated.len()), (2, 0));
}

#[test]
fn a_long_list_comes_in_chunks_and_its_parts_are_changed_while_the_key_is_used() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    // 80000 pages: a list of more than 2^15 octwords, in chunks as the kernel sends them, 1 MiB less 64 bytes.
    let pages = 80_000u64;
    let key = bench.pooled(pd, MTT, pages as u32 / 2, |_| {});
    let address = |page: u64| (page * 7 + 1) << 12;
    let list: Vec<u64> = (0..pages).map(|page| address(page) | 3).collect();
    let mut at = 0;
    for chunk in list.chunks((1 << 17) - 8) {
        let last = at + chunk.len() as u64 == pages;
        let mask = if last { ENABLE } else { MkeyMask::empty() };
        let chunk_entry = bench.pointer(MUST_BE_FREE | OFFSET, at / 2, &words(chunk), mask, |mkc| {
            mkc.set_lw(1);
            mkc.set_pd(pd);
            mkc.set_len(pages << 12);
        });
        assert_eq!(bench.places(key, pd, LocalRead, 0, 8), Err(KeyError::Free), "until the last chunk");
        assert_eq!(bench.post(&registrar, key, &chunk_entry), Ok(()));
        at += chunk.len() as u64;
    }
    for page in [0, 1, 32767, 32768, 65535, 65536, pages - 1] {
        assert_eq!(bench.places(key, pd, LocalRead, page << 12, 4096), Ok(vec![(address(page), 4096)]), "{page}");
    }
    // Eight pages are taken away, then some come back, read-only.
    let zap = bench.pointer(MUST_BE_USABLE | OFFSET, 20_000, &words(&[0; 8]), MkeyMask::empty(), |_| {});
    assert_eq!(bench.post(&registrar, key, &zap), Ok(()));
    for page in 39_999..40_009u64 {
        let there = !(40_000..40_008).contains(&page);
        let expected = if there { Ok(vec![(address(page), 8)]) } else { Err(KeyError::Absent) };
        assert_eq!(bench.places(key, pd, LocalRead, page << 12, 8), expected, "{page}");
    }
    let back = bench.pointer(MUST_BE_USABLE | OFFSET, 20_000, &words(&[0x9001]), MkeyMask::empty(), |_| {});
    assert_eq!(bench.post(&registrar, key, &back), Ok(()));
    assert_eq!(bench.places(key, pd, LocalRead, 40_000 << 12, 8), Ok(vec![(0x9000, 8)]));
    assert_eq!(bench.places(key, pd, LocalWrite, 40_000 << 12, 8), Err(KeyError::PageRights));
    // Beyond the room, by one padded unit and by far.
    for at in [40_000 - 3, 1 << 20, (1 << 48) - 1] {
        let beyond = bench.pointer(MUST_BE_USABLE | OFFSET, at, &words(&[3]), MkeyMask::empty(), |_| {});
        assert_eq!(bench.post(&registrar, key, &beyond), Err(UmrError::Room), "{at}");
    }
    let unused = bench.pooled(pd, MTT, 4, |_| {});
    assert_eq!(bench.post(&registrar, unused, &zap), Err(UmrError::IsFree));
}

#[test]
fn a_kernel_protocol_registers_and_invalidates() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pd, dma) = (bench.pd, bench.dma);
    let key = bench.pooled(pd, MTT, 4, |_| {});
    let queue = protocol(pd);
    let register = |bench: &mut Bench, flags, key_byte: u32, at: u64| {
        // One page; what follows is whatever the ring held before.
        let list = [&(at | 3).to_be_bytes()[..], &[0xff; 56]].concat();
        let entry = inline(flags, 0, &list, REGISTER, |mkc| {
            mkc.set_lw(1);
            mkc.set_rr(1);
            mkc.set_rw(1);
            mkc.set_umr_en(1);
            mkc.set_en_rinval(1);
            mkc.set_access_mode_1_0(1);
            mkc.set_mkey_7_0(key_byte);
            mkc.set_start_addr(0xffff_8880_0000_0100);
            mkc.set_len(0x200);
        });
        bench.post(&queue, key, &entry)
    };
    assert_eq!(register(&mut bench, MUST_BE_FREE, 1, 0x5000), Ok(()));
    assert_eq!(register(&mut bench, MUST_BE_FREE, 2, 0x6000), Err(UmrError::NotFree));
    assert_eq!(bench.places(key | 1, pd, RemoteWrite, 0xffff_8880_0000_0100, 0x200), Ok(vec![(0x5100, 0x200)]));
    assert_eq!(bench.places(key | 1, pd, RemoteWrite, 0xffff_8880_0000_00ff, 1), Err(KeyError::Bounds));
    assert!(bench.context(key).en_rinval && !bench.context(key).small_fence);

    let invalidate = inline(0, 0, &[], MkeyMask::FREE, free);
    assert_eq!(bench.post(&queue, key | 1, &invalidate), Ok(()));
    assert_eq!(bench.places(key | 1, pd, RemoteWrite, 0xffff_8880_0000_0100, 1), Err(KeyError::Free));
    assert_eq!(register(&mut bench, 0, 2, 0x6000), Ok(()));
    assert_eq!(bench.places(key | 1, pd, RemoteRead, 0xffff_8880_0000_0100, 1), Err(KeyError::WrongVariant));
    assert_eq!(bench.places(key | 2, pd, RemoteRead, 0xffff_8880_0000_0100, 1), Ok(vec![(0x6100, 1)]));
    assert_eq!(bench.rig.function.hca_mut().invalidate_remote(key | 2, pd, 0x66, &mut Bus::new(0)), Ok(()));
    assert_eq!(bench.places(key | 2, pd, RemoteRead, 0xffff_8880_0000_0100, 1), Err(KeyError::Free));

    // Pieces with gaps (IB_MR_TYPE_SG_GAPS).
    let gaps = bench.pooled(pd, KLM, 4, |_| {});
    let list = klms(&[(0x10, dma, 0x5000), (8, dma, 0x9008)]);
    let entry = inline(MUST_BE_FREE, 0, &list, REGISTER, |mkc| {
        mkc.set_rr(1);
        mkc.set_len(0x18);
    });
    assert_eq!(bench.post(&queue, gaps, &entry), Ok(()));
    assert_eq!(bench.places(gaps, pd, RemoteRead, 8, 0x10), Ok(vec![(0x5008, 8), (0x9008, 8)]));
    bench.rig.settle();
    assert_eq!(bench.rig.function.summary().keys.enabled.values().sum::<u64>(), 2);
}

#[test]
fn a_window_of_type_1_is_bound_bound_again_and_unbound() {
    let mut bench = Bench::new("connectx7", &[]);
    let pd = bench.pd;
    let region = bench.region(pd, 0x1_0000, 0x3000, 0x80_0000);
    let window = bench.window(pd, false);
    let queue = user(pd, QPN);
    assert_eq!(bench.places(window, pd, RemoteRead, 0x1_0100, 8), Err(KeyError::Free));
    assert_eq!(bench.post(&queue, window, &bind(false, 7, region, 0x1_0ff0, 0x20)), Ok(()));
    let bound = window | 7;
    let both = Ok(vec![(0x80_0ff0, 0x20)]);
    assert_eq!(bench.places(bound, pd, RemoteWrite, 0x1_0ff0, 0x20), both);
    assert_eq!(bench.places(bound, pd, RemoteWrite, 0x1_0ff0, 0x21), Err(KeyError::Bounds));
    assert_eq!(bench.places(bound, pd, RemoteAtomic, 0x1_0ff0, 8), Err(KeyError::Rights));
    assert_eq!(bench.places(bound, pd + 1, RemoteWrite, 0x1_0ff0, 8), Err(KeyError::WrongPd));
    assert_eq!(bench.post(&user(pd, QPN + 1), bound, &bind(false, 8, region, 0x1_2000, 0x40)), Ok(()), "any queue");
    assert_eq!(bench.places(window | 8, pd, RemoteRead, 0x1_2000, 0x40), Ok(vec![(0x80_2000, 0x40)]));
    assert_eq!(bench.places(window | 8, pd, RemoteRead, 0x1_0ff0, 8), Err(KeyError::Bounds));

    let unbind = inline(OFFSET, 0, &[], MkeyMask::FREE | MkeyMask::KEY, |mkc| {
        mkc.set_free(1);
        mkc.set_mkey_7_0(9);
    });
    assert_eq!(bench.post(&queue, window | 8, &unbind), Ok(()));
    assert_eq!(bench.places(window | 9, pd, RemoteRead, 0x1_2000, 8), Err(KeyError::Free));
    assert_eq!(
        bench.rig.function.hca_mut().invalidate_remote(window | 9, pd, QPN, &mut Bus::new(0)),
        Err(KeyError::Free)
    );
    // The region goes away under a bound window.
    assert_eq!(bench.post(&queue, window, &bind(false, 7, region, 0x1_0ff0, 0x20)), Ok(()));
    let revoke = inline(0, 0, &[], MkeyMask::FREE, free);
    assert_eq!(bench.post(&bench.registrar(), region, &revoke), Ok(()));
    assert_eq!(bench.places(bound, pd, RemoteWrite, 0x1_0ff0, 8), Err(KeyError::Free));
}

#[test]
fn a_window_of_type_2_is_bound_to_its_queue_and_invalidated_there_or_by_the_peer() {
    let mut bench = Bench::new("connectx7", &[]);
    let pd = bench.pd;
    let region = bench.region(pd, 0x1_0000, 0x3000, 0x80_0000);
    let window = bench.window(pd, true);
    let queue = user(pd, QPN);
    assert_eq!(bench.post(&queue, window, &bind(true, 7, region, 0x1_0000, 0x40)), Ok(()));
    let bound = window | 7;
    let request = Request { key: bound, va: 0x1_0000, len: 8, access: RemoteWrite, pd, qpn: QPN, reserved_lkey: false };
    assert!(bench.ask(&request).is_ok());
    assert_eq!(bench.ask(&Request { qpn: QPN + 1, ..request }), Err(KeyError::WrongQp));
    assert_eq!(bench.post(&queue, bound, &bind(true, 8, region, 0x1_0000, 0x40)), Err(UmrError::NotFree));
    assert_eq!(bench.post(&user(pd, QPN + 1), bound, &local_invalidate()), Err(UmrError::WrongQp));
    assert_eq!(bench.post(&queue, bound, &local_invalidate()), Ok(()));
    assert_eq!(bench.ask(&request), Err(KeyError::WrongVariant), "the invalidation clears the byte");
    assert_eq!((bench.context(bound).qpn, bench.context(bound).free), (ANY_QPN, true));

    assert_eq!(bench.post(&queue, window, &bind(true, 9, region, 0x1_0000, 0x40)), Ok(()));
    let rkey = window | 9;
    let hca = bench.rig.function.hca_mut();
    for (rkey, pd, qpn, error) in [
        (rkey ^ 1, pd, QPN, KeyError::WrongVariant),
        (rkey + 0x100, pd, QPN, KeyError::NoSuchKey),
        (Reserved::Null.key(), pd, QPN, KeyError::NoSuchKey),
        (rkey, pd + 1, QPN, KeyError::WrongPd),
        (rkey, pd, QPN + 1, KeyError::WrongQp),
        (region, pd, QPN, KeyError::Rights),
    ] {
        assert_eq!(hca.invalidate_remote(rkey, pd, qpn, &mut Bus::new(0)), Err(error));
    }
    assert_eq!(hca.invalidate_remote(rkey, pd, QPN, &mut Bus::new(0)), Ok(()));
    assert_eq!(hca.invalidate_remote(rkey, pd, QPN, &mut Bus::new(0)), Err(KeyError::Free));
    assert_eq!(bench.ask(&Request { key: rkey, ..request }), Err(KeyError::Free));
    assert_eq!(bench.post(&queue, window, &bind(true, 10, region, 0x1_0000, 0x40)), Ok(()), "and bound again");
}

#[test]
fn an_mlx5dv_key_takes_lists_and_interleaved_layouts() {
    let mut bench = Bench::new("connectx7", &[]);
    let pd = bench.pd;
    let region = bench.region(pd, 0x1_0000, 0x1000, 0x80_0000);
    // Three entries, rounded to four.
    let key = bench.pooled(pd, KLM, 4, |mkc| mkc.set_lw(0));
    let queue = user(pd, QPN);
    let mask =
        MkeyMask::FREE | MkeyMask::KEY | MkeyMask::LEN | MkeyMask::LW | MkeyMask::RR | MkeyMask::RW | MkeyMask::A;
    let layout = |list: &[(u32, u32, u64)], len: u64| {
        inline(0, 0, &klms(list), mask, |mkc| {
            mkc.set_lr(0);
            mkc.set_lw(1);
            mkc.set_len(len);
        })
    };
    let entry = layout(&[(8, region, 0x1_0000), (8, region, 0x1_0040)], 16);
    assert_eq!(bench.post(&queue, key, &entry), Ok(()));
    assert_eq!(bench.places(key, pd, LocalWrite, 0, 16), Ok(vec![(0x80_0000, 8), (0x80_0040, 8)]));
    // Three turns of eight bytes each of two entries, two bytes skipped.
    let stride = 10 << 16 | 8;
    let entry = layout(&[(16, 0x400, 3 << 32 | 2), (stride, region, 0x1_0000), (stride, region, 0x1_0040)], 48);
    assert_eq!(bench.post(&queue, key, &entry), Ok(()));
    let expected = [0, 0x40, 10, 0x4a, 20, 0x54].map(|at| (0x80_0000 + at, 8)).to_vec();
    assert_eq!(bench.places(key, pd, LocalRead, 0, 48), Ok(expected));
    assert_eq!(bench.places(key, pd, LocalWrite, 12, 6), Ok(vec![(0x80_0044, 4), (0x80_000a, 2)]));
    assert_eq!(bench.post(&queue, key, &local_invalidate()), Ok(()), "a key of any queue is this one's too");
    assert_eq!(bench.places(key, pd, LocalRead, 0, 8), Err(KeyError::Free));
    let too_many = layout(&[(8, region, 0x1_0000); 5], 40);
    assert_eq!(bench.post(&queue, key, &too_many), Err(UmrError::Room));

    let mut bench = Bench::new("connectx7", &["caps.general.repeated_block_disabled=1"]);
    let pd = bench.pd;
    let key = bench.pooled(pd, KLM, 4, |_| {});
    assert_eq!(bench.post(&user(pd, QPN), key, &entry), Ok(()));
    assert_eq!(bench.places(key, pd, LocalRead, 0, 8), Err(KeyError::NoSuchKey));
}

#[test]
fn a_user_changes_only_keys_of_its_domain_that_lead_to_other_keys() {
    let mut bench = Bench::new("connectx7", &[]);
    let (pd, other) = (bench.pd, bench.alloc_pd());
    let region = bench.region(pd, 0, 0x1000, 0x80_0000);
    let indirect = bench.pooled(pd, KLM, 4, |_| {});
    let fixed = bench.pooled(pd, KLM, 4, |mkc| mkc.set_umr_en(0));
    let pieces = bench.pooled(pd, KSM, 4, |_| {});
    let queue = user(pd, QPN);
    let list = klms(&[(8, region, 0)]);
    let rights = inline(0, 0, &[], MkeyMask::RW, all_rights);
    let pages = inline(0, 0, &words(&[3]), MkeyMask::empty(), |_| {});
    let keys = inline(0, 0, &list, MkeyMask::FREE, |_| {});
    let moved = inline(0, 0, &[], MkeyMask::PD, |mkc| mkc.set_pd(other));
    let stays = inline(0, 0, &[], MkeyMask::PD, |mkc| mkc.set_pd(pd));
    let liar = Poster { fast_register: true, registers: true, reserved_lkey: true, ..queue };
    for poster in [queue, liar] {
        for (key, entry, expected) in [
            (region, &rights, Err(UmrError::NotAllowed)),
            (region, &pages, Err(UmrError::NotAllowed)),
            (indirect, &moved, Err(UmrError::NotAllowed)),
            (indirect, &stays, Ok(())),
            (indirect, &keys, Ok(())),
            (pieces, &keys, Ok(())),
            (fixed, &keys, Err(UmrError::Refused(syn::NOT_ENABLED))),
            (0xff_ff00, &keys, Err(UmrError::NoSuchKey)),
            (Reserved::Null.key(), &keys, Err(UmrError::NoSuchKey)),
        ] {
            assert_eq!(bench.post(&poster, key, entry), expected, "{key:#x}");
            assert!(bench.post(&Poster { pd: other, ..poster }, key, entry).is_err(), "{key:#x}");
        }
    }
    assert_eq!(bench.post(&user(other, QPN), indirect, &keys), Err(UmrError::WrongPd));
    let kernel = protocol(pd);
    assert_eq!(bench.post(&kernel, region, &rights), Ok(()));
    assert_eq!(bench.post(&kernel, region, &moved), Err(UmrError::NotAllowed));
    assert_eq!(bench.post(&protocol(other), region, &rights), Err(UmrError::WrongPd));
    assert_eq!(bench.post(&Poster { pd: other, ..bench.registrar() }, region, &moved), Ok(()));
    assert_eq!(bench.context(region).pd, other);
    let plain = Poster { fast_register: false, ..protocol(pd) };
    assert_eq!(bench.post(&plain, bench.dma, &rights), Err(UmrError::NotAllowed));
}

#[test]
fn an_entry_that_cannot_be_read_as_one_changes_nothing() {
    let mut bench = Bench::new("connectx10-c2c", &["caps.general.umr_extended_translation_offset=0"]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.pooled(pd, MTT, 8, |_| {});
    let good = inline(OFFSET, 0, &words(&[0x1003]), ENABLE, |mkc| {
        mkc.set_pd(pd);
        mkc.set_len(0x1000);
    });
    let pointer = bench.pointer(OFFSET, 0, &words(&[0x1003]), ENABLE, |mkc| mkc.set_pd(pd));
    let edited = |entry: &[u8], edit: &dyn Fn(&mut [u8])| {
        let mut entry = entry.to_vec();
        edit(&mut entry);
        entry
    };
    let (list, data) = (good.len() - 64, pointer.len() - 16);
    for (bad, error) in [
        (vec![], UmrError::Size),
        (good[..0x2f].to_vec(), UmrError::Size),
        (good[..0x6f].to_vec(), UmrError::Size),
        (good[..list].to_vec(), UmrError::Size),
        (good[..list + 63].to_vec(), UmrError::Size),
        (pointer[..data].to_vec(), UmrError::Size),
        (pointer[..data + 15].to_vec(), UmrError::Size),
        (edited(&pointer, &|e| e[data + 3] = 63), UmrError::Size),
        (edited(&pointer, &|e| e[data] = 0x80), UmrError::Flags),
        (edited(&good, &|e| e[0] |= 1), UmrError::Flags),
        (edited(&good, &|e| e[0] |= 4), UmrError::Flags),
        (edited(&good, &|e| e[0] |= MUST_BE_FREE | MUST_BE_USABLE), UmrError::Flags),
        (edited(&good, &|e| e[0x13] = 1), UmrError::Offset),
        (edited(&good, &|e| (e[0], e[7]) = (INLINE, 4)), UmrError::Integrity),
    ] {
        assert_eq!(bench.post(&registrar, key, &bad), Err(error));
        assert_eq!(error.syndrome(), CqeSyndrome::LOCAL_QP_OP_ERR);
        assert!(bench.context(key).free, "{error}");
    }
    assert_eq!(bench.post(&registrar, key, &edited(&pointer, &|e| e[data..data + 4].fill(0))), Ok(()), "2^31 bytes");
    assert_eq!(bench.places(key, pd, LocalRead, 0, 8), Err(KeyError::Bounds), "its length is 0");
    assert_eq!(bench.post(&registrar, key, &good), Ok(()));
    assert_eq!(bench.places(key, pd, LocalRead, 0, 8), Ok(vec![(0x1000, 8)]));
}

#[test]
fn a_list_that_cannot_be_read_leaves_the_key_as_it_was() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.region(pd, 0, 0x2000, 0x80_0000);
    let small = bench.region(pd, LIST, 0x40, LIST);
    let mut ask = |lkey: u32, va: u64, poster: Poster| {
        let mut entry = bench.pointer(OFFSET, 0, &words(&[0; 8]), MkeyMask::LEN, |mkc| mkc.set_len(0x1000));
        let data = entry.len() - 16;
        entry[data + 4..data + 8].copy_from_slice(&lkey.to_be_bytes());
        entry[data + 8..].copy_from_slice(&va.to_be_bytes());
        let result = bench.post(&poster, key, &entry);
        let same = bench.places(key, pd, LocalRead, 0, 0x2000) == Ok(vec![(0x80_0000, 0x2000)]);
        assert_eq!(same, result.is_err(), "{result:?}");
        result
    };
    let dma = small - 0x200;
    assert_eq!(ask(0xdead_be00, LIST, registrar), Err(UmrError::ListKey(KeyError::NoSuchKey)));
    assert_eq!(ask(small, LIST + 1, registrar), Err(UmrError::ListKey(KeyError::Bounds)));
    assert_eq!(ask(dma, 1 << 60, registrar), Err(UmrError::ListMemory));
    let reserved = Reserved::Lkey.key();
    let without = Poster { reserved_lkey: false, ..registrar };
    assert_eq!(ask(reserved, LIST, without), Err(UmrError::ListKey(KeyError::NoSuchKey)));
    assert_eq!(UmrError::ListMemory.syndrome(), CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!(ask(reserved, LIST, registrar), Ok(()), "as the kernel reads its lists, whatever umr_ptr_rlky says");
}

#[test]
fn keys_without_a_list_of_their_own_take_none() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let pa = bench.create(pd, PA, |mkc| mkc.set_umr_en(1));
    let list = inline(0, 0, &words(&[3]), MkeyMask::empty(), |_| {});
    assert_eq!(bench.post(&registrar, pa, &list), Err(UmrError::NoList));
    let longer = inline(0, 0, &[], MkeyMask::LEN | MkeyMask::START_ADDR, |mkc| {
        mkc.set_len(0x40);
        mkc.set_start_addr(0x9000);
    });
    assert_eq!(bench.post(&registrar, pa, &longer), Ok(()));
    assert_eq!(bench.places(pa, pd, LocalRead, 0x9000, 0x40), Ok(vec![(0x9000, 0x40)]));

    let mut alloc = crate::prm::pd::AllocMemicIn::zeroed();
    alloc.set_opcode(u32::from(Opcode::ALLOC_MEMIC.0));
    alloc.set_range_start_addr(crate::device::memic::BAR_OFFSET);
    alloc.set_range_size(4096);
    alloc.set_memic_size(64);
    bench.rig.ok(alloc.as_bytes(), 16);
    let memic = bench.create(pd, PA, |mkc| {
        mkc.set_access_mode_4_2(1);
        mkc.set_access_mode_1_0(1);
        mkc.set_umr_en(1);
        mkc.set_start_addr(crate::device::memic::BAR_OFFSET);
        mkc.set_len(64);
    });
    assert_eq!(bench.post(&registrar, memic, &list), Err(UmrError::NoList));
    assert_eq!(bench.post(&registrar, memic, &longer), Err(UmrError::Refused(syn::FIXED_RANGE)));

    let mut bench = Bench::new("connectx10-c2c", &["caps.general.umr_indirect_mkey_disabled=1"]);
    let key = bench.pooled(bench.pd, KLM, 4, |_| {});
    assert_eq!(bench.post(&bench.registrar(), key, &list), Err(UmrError::NoList));
}

#[test]
fn the_page_size_is_changed_under_its_capabilities_and_sizes() {
    let mut bench = Bench::new("connectx10-c2c", &[]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.region(pd, 0, 0x2000, 0x80_0000);
    let size = |shift: u32, mask: MkeyMask| inline(0, 0, &[], mask, |mkc| mkc.set_log_page_size(shift));
    assert_eq!(bench.post(&registrar, key, &size(13, MkeyMask::PAGE_SIZE)), Ok(()));
    assert_eq!(bench.places(key, pd, LocalRead, 0, 0x2000), Ok(vec![(0x80_0000, 0x2000)]));
    let small = bench.post(&registrar, key, &size(11, MkeyMask::PAGE_SIZE));
    assert_eq!(small, Err(UmrError::Refused(context::PAGE_SIZE)));
    let fifth = bench.post(&registrar, key, &size(32, MkeyMask::PAGE_SIZE_5));
    assert_eq!(fifth, Err(UmrError::Refused(syn::ENTITY_SIZE_5)));
    // An address that does not fit the page size begins where a page does.
    let list = inline(0, 0, &words(&[0x1003, 0x5003]), MkeyMask::empty(), |_| {});
    assert_eq!(bench.post(&registrar, key, &list), Ok(()));
    assert_eq!(bench.places(key, pd, LocalRead, 0x1ff8, 8), Ok(vec![(0x1ff8, 8)]));

    let sets = ["caps.general.umr_modify_entity_size_disabled=1"];
    let mut bench = Bench::new("connectx10-c2c", &sets);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.pooled(pd, MTT, 4, |_| {});
    let refused = bench.post(&registrar, key, &size(13, MkeyMask::PAGE_SIZE));
    assert_eq!(refused, Err(UmrError::Refused(syn::ENTITY_SIZE)));
    assert_eq!(refused.unwrap_err().syndrome(), CqeSyndrome::MW_BIND_ERR);
    assert_eq!(refused.unwrap_err().to_string(), crate::cmdif::error::meaning(syn::ENTITY_SIZE.0).expect("a text"));
}

/// What the driver makes of `relaxed_ordering_*_umr` = 1: pools without the attribute, masked when they are enabled.
const BY_UMR: [&str; 2] = ["caps.general.relaxed_ordering_write_umr=1", "caps.general.relaxed_ordering_read_umr=1"];

#[test]
fn a_key_that_a_umr_would_enable_without_relaxed_ordering_is_refused_with_a_report() {
    let mut bench = Bench::new("connectx10-c2c", &BY_UMR);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.pooled(pd, MTT, 4, |mkc| mkc.set_relaxed_ordering_write(0));
    let mask = ENABLE | MkeyMask::RELAXED_ORDERING_WRITE | MkeyMask::RELAXED_ORDERING_READ;
    let enable = |relaxed: u32, mask: MkeyMask| {
        inline(MUST_BE_FREE, 0, &words(&[0x1003]), mask, |mkc| {
            mkc.set_pd(pd);
            mkc.set_lw(1);
            mkc.set_start_addr(0x7000);
            mkc.set_len(0x800);
            mkc.set_relaxed_ordering_write(relaxed);
            mkc.set_relaxed_ordering_read(relaxed);
        })
    };
    for entry in [enable(0, mask), enable(1, ENABLE)] {
        let refused = bench.post(&registrar, key, &entry);
        assert_eq!(refused, Err(UmrError::Refused(policy::syn::STRONG_WRITE)));
        assert!(bench.context(key).free);
    }
    bench.rig.settle();
    let summary = bench.rig.function.summary();
    let [refusal] = &summary.keys.refused[..] else { panic!("{:?}", summary.keys.refused) };
    assert_eq!((refusal.kind.as_str(), refusal.via.as_str(), refusal.count, refusal.ordering), ("mtt", "UMR", 2, true));
    assert_eq!((refusal.field.as_str(), refusal.value, refusal.pd), ("relaxed_ordering_write", 0, pd));
    assert_eq!((refusal.start_addr, refusal.length, refusal.access.as_str()), (0x7000, 0x800, "lr lw"));
    assert!(refusal.driver_path.starts_with("user region without IBV_ACCESS_RELAXED_ORDERING"), "{refusal:?}");
    assert_eq!(summary.verdict(), crate::trace::Verdict::ContractViolation);

    assert_eq!(bench.post(&registrar, key, &enable(1, mask)), Ok(()));
    assert!(bench.context(key).relaxed_write && bench.context(key).relaxed_read);
    let strong = inline(MUST_BE_USABLE, 0, &[], MkeyMask::RELAXED_ORDERING_WRITE, |_| {});
    assert_eq!(bench.post(&registrar, key, &strong), Err(UmrError::Refused(policy::syn::STRONG_WRITE)));
    bench.rig.settle();
    let keys = bench.rig.function.summary().keys;
    assert_eq!((keys.enabled.get("mtt"), keys.relaxed, keys.strict_tolerated.len()), (Some(&1), 2, 0));
}

#[test]
fn ordering_that_a_umr_decides_is_counted_when_it_does() {
    let mut bench = Bench::new("connectx7", &BY_UMR);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.pooled(pd, MTT, 4, |mkc| mkc.set_relaxed_ordering_write(0));
    let mask = ENABLE | MkeyMask::RELAXED_ORDERING_WRITE;
    let mut count = |relaxed: u32| {
        let enable = inline(MUST_BE_FREE, 0, &words(&[0x1003]), mask, |mkc| {
            mkc.set_pd(pd);
            mkc.set_relaxed_ordering_write(relaxed);
        });
        assert_eq!(bench.post(&registrar, key, &enable), Ok(()));
        assert_eq!(bench.post(&registrar, key, &inline(0, 0, &[], MkeyMask::FREE, free)), Ok(()));
        bench.rig.settle();
        let keys = bench.rig.function.summary().keys;
        (keys.enabled.get("mtt").copied(), keys.relaxed, keys.strict_tolerated.get("mtt").copied())
    };
    assert_eq!(count(0), (Some(1), 1, Some(1)));
    assert_eq!(count(0), (Some(1), 1, Some(1)));
    assert_eq!(count(1), (Some(1), 2, Some(1)));
    assert_eq!(count(1), (Some(1), 2, Some(1)));
}

#[test]
fn a_window_is_judged_as_one_when_it_is_bound() {
    let mut bench = Bench::new("connectx10-c2c", &["mkey.strict=enable"]);
    let pd = bench.pd;
    let region = bench.region(pd, 0x1_0000, 0x1000, 0x80_0000);
    let window = bench.window(pd, false);
    let bound = bench.post(&user(pd, QPN), window, &bind(false, 7, region, 0x1_0000, 8));
    assert_eq!(bound, Err(UmrError::Refused(policy::syn::STRONG_WRITE)));
    bench.rig.settle();
    let keys = bench.rig.function.summary().keys;
    assert_eq!(
        (keys.refused[0].kind.as_str(), keys.refused[0].via.as_str(), keys.refused[0].uid),
        ("window", "UMR", 3)
    );
    assert!(keys.refused[0].driver_path.starts_with("ibv_bind_mw"), "{:?}", keys.refused[0]);
    let mut bench = Bench::new("connectx10-c2c", &["mkey.strict=enable", "mkey.exempt=window"]);
    let pd = bench.pd;
    let region = bench.region(pd, 0x1_0000, 0x1000, 0x80_0000);
    let window = bench.window(pd, false);
    assert_eq!(bench.post(&user(pd, QPN), window, &bind(false, 7, region, 0x1_0000, 8)), Ok(()));
}

#[test]
fn every_error_has_a_number_and_a_status_of_its_own() {
    let all = [
        UmrError::Size,
        UmrError::Flags,
        UmrError::Integrity,
        UmrError::Offset,
        UmrError::NoSuchKey,
        UmrError::WrongPd,
        UmrError::WrongQp,
        UmrError::IsFree,
        UmrError::NotFree,
        UmrError::NotAllowed,
        UmrError::Refused(syn::ATOMIC),
        UmrError::NoList,
        UmrError::Room,
        UmrError::NoSuchPd,
        UmrError::ListKey(KeyError::Free),
        UmrError::ListMemory,
    ];
    let numbers: std::collections::BTreeSet<u8> = all.map(UmrError::vendor).into();
    assert_eq!(numbers.len(), all.len());
    let with = |syndrome| all.iter().filter(|error| error.syndrome() == syndrome).count();
    assert_eq!(
        [CqeSyndrome::LOCAL_QP_OP_ERR, CqeSyndrome::LOCAL_PROT_ERR, CqeSyndrome::MW_BIND_ERR].map(with),
        [4, 2, 10]
    );
}

#[test]
fn the_cost_of_an_entry_grows_with_what_it_writes() {
    let mut bench = Bench::new("connectx7", &[]);
    let (pd, registrar) = (bench.pd, bench.registrar());
    let key = bench.pooled(pd, KLM, 1 << 12, |_| {});
    let short = inline(0, 0, &klms(&[(8, 0x700, 0)]), MkeyMask::empty(), |_| {});
    let before = bench.rig.function.hca().umr_cost(key, &short);
    assert_eq!(before, short.len() + 64);
    let long = bench.pointer(0, 0, &vec![0; 16 << 12], MkeyMask::empty(), |_| {});
    assert_eq!(bench.rig.function.hca().umr_cost(key, &long), long.len() + (16 << 12));
    assert_eq!(bench.post(&registrar, key, &long), Ok(()));
    assert_eq!(bench.rig.function.hca().umr_cost(key, &short), before + (8 << 12), "running lengths");
    assert_eq!(bench.rig.function.hca().umr_cost(key, &[]), 0);
}
