//! Registering memory by work requests does not touch the heap once a key has had its list: pools and fast registration
//! do it all the time.

use std::alloc::System;

use cap::Cap;
use cx10::device::rdma::umr::Poster;
use cx10::prm::Opcode;
use cx10::prm::mkey::{CreateMkeyIn, CreateMkeyOut, Mkc};
use cx10::prm::pd::AllocPdOut;
use cx10::prm::values::MkeyMask;
use cx10::prm::wqe::{DataSeg, UmrCtrlSeg};
use cx10::profile::Profile;
use cx10::testing::Rig;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const LIST: u64 = 0x40_0000;

fn alloc_pd(rig: &mut Rig) -> u32 {
    AllocPdOut::new(rig.ok(&Rig::input(Opcode::ALLOC_PD.0, 0, 16), 16)).expect("16 bytes").pd()
}

fn create(rig: &mut Rig, pd: u32, mode: u32, octwords: u32) -> u32 {
    let mut input = CreateMkeyIn::zeroed();
    input.set_opcode(u32::from(Opcode::CREATE_MKEY.0));
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_relaxed_ordering_write(1);
    mkc.set_access_mode_1_0(mode);
    mkc.set_free((mode != 0).into());
    mkc.set_umr_en((mode != 0).into());
    mkc.set_length64((mode == 0).into());
    mkc.set_lr(1);
    mkc.set_qpn(0xff_ffff);
    mkc.set_pd(pd);
    mkc.set_log_page_size(12);
    mkc.set_translations_octword_size(octwords);
    CreateMkeyOut::new(rig.ok(input.as_bytes(), 16)).expect("16 bytes").mkey_index() << 8
}

/// A work request's body: the mask, whether the key is free afterwards, its domain, and a list behind a pointer.
fn body(mask: MkeyMask, free: bool, pd: u32, octwords: u32, dma: u32) -> Vec<u8> {
    let mut control = UmrCtrlSeg::zeroed();
    control.set_xlt_octowords(octwords);
    control.set_mkey_mask(mask.bits());
    let mut mkc = Mkc::zeroed();
    mkc.set_free(free.into());
    mkc.set_lr(1);
    mkc.set_pd(pd);
    mkc.set_len(0x1000);
    mkc.set_qpn(0xff_ffff);
    let mut segment = DataSeg::zeroed();
    segment.set_byte_count(16 * octwords);
    segment.set_lkey(dma);
    segment.set_addr(LIST);
    [control.as_bytes(), mkc.as_bytes(), segment.as_bytes()].concat()
}

fn keys_are_enabled_and_revoked_without_allocating() {
    let mut rig = Rig::new(Profile::default());
    rig.bring_up();
    let (pool, user) = (alloc_pd(&mut rig), alloc_pd(&mut rig));
    let dma = create(&mut rig, pool, 0, 0);
    // As KLMs: repeat blocks of one entry each, with room for the longest list.
    let octwords = (0..u32::from(u16::MAX)).flat_map(|i| [8, if i % 2 == 0 { 0x400 } else { dma }, 1, 1]);
    let list: Vec<u8> = octwords.flat_map(u32::to_be_bytes).collect();
    rig.write(LIST, &list);
    let poster = Poster { qpn: 0x44, pd: pool, uid: 0, reserved_lkey: false, fast_register: true, registers: true };
    let mask = MkeyMask::FREE | MkeyMask::PD | MkeyMask::LEN | MkeyMask::LR;
    for (mode, room) in [(1, 8), (1, 0xffff), (2, 8), (2, 0xffff), (3, 8), (3, 0xffff)] {
        let key = create(&mut rig, pool, mode, room);
        let entries = [body(mask, false, user, room, dma), body(MkeyMask::FREE | MkeyMask::PD, true, pool, 0, dma)];
        for round in 0..20 {
            for entry in &entries {
                let before = HEAP.total_allocated();
                let result = rig.function.execute_umr(&poster, key, entry);
                let allocated = HEAP.total_allocated() - before;
                assert_eq!(result, Ok(()));
                assert!(round == 0 || allocated == 0, "{allocated} bytes allocated, mode {mode}, {room} octwords");
            }
            rig.settle();
        }
    }
}

fn main() {
    keys_are_enabled_and_revoked_without_allocating();
    println!("keys_are_enabled_and_revoked_without_allocating ... ok");
}
