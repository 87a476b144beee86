//! A hostile poster of work requests that change memory keys: bodies that are almost right, on keys of every mode, by
//! queues with and without privileges; then accesses through what came of them.

use std::cell::RefCell;

use cx10::device::rdma::umr::Poster;
use cx10::mkey::translate::{Access, Request, resolve};
use cx10::prm::Opcode;
use cx10::prm::mkey::{CreateMkeyIn, CreateMkeyOut, Mkc};
use cx10::prm::pd::AllocPdOut;
use cx10::prm::values::MkeyMask;
use cx10::prm::wqe::UmrCtrlSeg;
use cx10::profile::Profile;
use cx10::testing::Rig;
use cx10::trace::Trace;

use crate::input::Input;
use crate::machine::Machine;

/// Most entries of one input.
const STEPS: usize = 48;
/// Pieces of an access that are looked at.
const PIECES: usize = 1 << 12;
/// Access modes of the keys: DMA addresses, pages, pieces, equal pieces; each has so many octwords of room.
const KEYS: [(u32, u32); 6] = [(0, 0), (1, 8), (1, 70_000), (2, 12), (2, 4), (3, 9)];

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Runs one input.
pub fn run(data: &[u8]) {
    MACHINE.with_borrow_mut(|machine| {
        let make = || {
            let sets = [
                "pages.boot=4",
                "pages.init=600",
                "caps.general.umr_modify_entity_size_disabled=0",
                "caps.general.umr_modify_atomic_disabled=0",
            ];
            Machine::with(Profile::with("connectx7", &sets).expect("a valid profile"), Trace::off())
        };
        let machine = machine.get_or_insert_with(make);
        machine.renew();
        drive(machine, &mut Input::new(data));
    });
}

fn drive(machine: &mut Machine, input: &mut Input<'_>) {
    machine.rig.bring_up();
    let pds = [0, 1].map(|_| {
        let out = machine.rig.ok(&Rig::input(Opcode::ALLOC_PD.0, 0, 16), 16);
        AllocPdOut::new(out).expect("16 bytes").pd()
    });
    let keys = KEYS.map(|(mode, octwords)| create(machine, pds[0], mode, octwords));
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let poster = poster(pds, input);
        let key = if input.one_in(16) { input.u32() } else { input.pick(&keys) };
        let body = body(machine, pds, &keys, input);
        let cost = machine.rig.function.hca().umr_cost(key, &body);
        assert!(cost >= body.len(), "an entry that costs nothing");
        if let Err(error) = machine.rig.function.execute_umr(&poster, key, &body) {
            assert!(error.vendor() != 0 && error.syndrome().0 != 0, "{error}");
        }
        access(machine, pds, input.pick(&keys), input);
        if input.one_in(8) {
            let key = input.pick(&keys) | u32::from(input.u8() % 2);
            // Nothing is pending in the device's order of accesses, so any bus will do for the drain.
            let bus = &mut cx10::dma::Bus::new(0);
            let _ = machine.rig.function.hca_mut().invalidate_remote(key, pds[0], poster.qpn, bus);
        }
    }
    machine.audit();
    machine.finish(true);
}

fn create(machine: &mut Machine, pd: u32, mode: u32, octwords: u32) -> u32 {
    let mut create = CreateMkeyIn::zeroed();
    create.set_opcode(u32::from(Opcode::CREATE_MKEY.0));
    let mut mkc = create.memory_key_mkey_entry_mut();
    mkc.set_access_mode_1_0(mode);
    mkc.set_umr_en(1);
    mkc.set_free((mode != 0).into());
    mkc.set_length64((mode == 0).into());
    mkc.set_lr(1);
    mkc.set_lw(1);
    mkc.set_rr(1);
    mkc.set_qpn(0xff_ffff);
    mkc.set_pd(pd);
    mkc.set_log_page_size(12);
    mkc.set_translations_octword_size(octwords);
    let out = machine.rig.ok(create.as_bytes(), 16);
    CreateMkeyOut::new(out).expect("16 bytes").mkey_index() << 8
}

fn poster(pds: [u32; 2], input: &mut Input<'_>) -> Poster {
    let choice = input.u8();
    Poster {
        qpn: u32::from(choice % 3),
        pd: pds[usize::from(choice >> 7)],
        uid: u16::from(choice >> 2 & 1),
        reserved_lkey: choice & 8 != 0,
        fast_register: choice & 0x10 != 0,
        registers: choice & 0x60 != 0,
    }
}

/// The body of an entry: control, context, and a list or a pointer to one.
pub fn body(machine: &mut Machine, pds: [u32; 2], keys: &[u32], input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.u8();
    let octwords = if shape & 7 == 7 { input.u16() } else { u16::from(shape & 7) };
    let mut control = UmrCtrlSeg::zeroed();
    control.set_inline(u32::from(shape >> 3 & 1));
    control.set_check_free(if shape & 0x10 != 0 { u32::from(input.u8()) % 4 } else { 0 });
    control.set_translation_offset_en(u32::from(shape & 0xe0 != 0));
    control.set_check_qpn(u32::from(shape & 0xe0 == 0xe0));
    control.set_xlt_octowords(octwords.into());
    if shape & 0xc0 == 0xc0 {
        control.set_xlt_offset(u32::from(input.u16()));
        control.set_xlt_offset_47_16(if input.one_in(4) { input.u32() } else { u32::from(input.u8() % 2) });
    }
    let usual = MkeyMask::FREE | MkeyMask::LEN | MkeyMask::START_ADDR | MkeyMask::LR | MkeyMask::LW;
    let every = MkeyMask::all();
    control.set_mkey_mask(match input.u8() % 8 {
        0 => 0,
        1 => input.u64(),
        2 => input.u64() & every.bits(),
        3 => (usual | MkeyMask::PAGE_SIZE | MkeyMask::KEY).bits(),
        4 => MkeyMask::FREE.bits(),
        5 => (usual | MkeyMask::PD | MkeyMask::QPN | MkeyMask::RELAXED_ORDERING_WRITE).bits(),
        _ => usual.bits(),
    });
    let mut mkc = Mkc::zeroed();
    mkc.set_free(input.one_in(6).into());
    mkc.set_lr(1);
    mkc.set_lw(u32::from(!input.one_in(6)));
    mkc.set_qpn(if input.one_in(6) { u32::from(input.u8() % 3) } else { 0xff_ffff });
    mkc.set_mkey_7_0(u32::from(input.u8() % 2));
    mkc.set_pd(if input.one_in(6) { input.u32() & 0xff_ffff } else { pds[usize::from(input.u8() % 2)] });
    mkc.set_start_addr(if input.one_in(6) { input.u64() } else { u64::from(input.u16()) });
    mkc.set_len(if input.one_in(6) { input.u64() } else { u64::from(input.u16()) });
    mkc.set_length64(input.one_in(16).into());
    mkc.set_log_page_size(if input.one_in(4) { u32::from(input.u8() % 64) } else { 12 });
    let mut body = [control.as_bytes(), mkc.as_bytes()].concat();
    if shape & 8 == 0 && octwords > 0 {
        let at = machine.buffer(u64::from(input.u8()));
        let list = list(keys, octwords.min(256), input);
        machine.rig.write(at, &list);
        let key = if input.one_in(4) { 0x200 } else { keys.first().copied().unwrap_or(0) };
        let len = if input.one_in(16) { input.u32() } else { u32::from(octwords) * 16 };
        body.extend(len.to_be_bytes());
        body.extend(key.to_be_bytes());
        body.extend(at.to_be_bytes());
    } else {
        body.extend(list(keys, octwords.min(56), input));
    }
    if input.one_in(12) {
        let at = input.below(body.len());
        body[at] = input.u8();
    }
    if input.one_in(12) {
        body.truncate(input.below(body.len()));
    }
    body
}

/// A list that means something in one mode or another: pages, pieces, repeat blocks.
fn list(keys: &[u32], octwords: u16, input: &mut Input<'_>) -> Vec<u8> {
    let mut list = Vec::new();
    let style = input.u8();
    for i in 0..octwords {
        // Long lists repeat what little the input says.
        let choice = if i < 16 { input.u8() } else { style };
        let key = keys.get(usize::from(choice >> 3) % keys.len().max(1)).copied().unwrap_or(0);
        let (len, key, va): (u32, u32, u64) = match choice % 6 {
            0 => (0, 0x1000 * u32::from(choice) | 3, 0x2000 | u64::from(choice % 4)),
            1 => (u32::from(choice), key, u64::from(choice) << 4),
            2 => (u32::from(input.u8()), 0x400, u64::from(input.u8()) << 32 | u64::from(choice >> 4)),
            3 => (u32::from(choice) << 16 | u32::from(choice >> 2), key, 8),
            4 => (input.u32(), key | u32::from(choice >> 7), input.u64()),
            _ => (0, 0, 0),
        };
        list.extend(len.to_be_bytes());
        list.extend(key.to_be_bytes());
        list.extend(va.to_be_bytes());
    }
    list
}

/// Follows an access as far as it goes, within bounds.
fn access(machine: &Machine, pds: [u32; 2], key: u32, input: &mut Input<'_>) {
    let hca = machine.rig.function.hca();
    let Some(context) = hca.objects.mkeys.get(key >> 8).map(|entry| entry.object.context) else { return };
    let choice = input.u8();
    let request = Request {
        key: key | u32::from(context.variant),
        va: if choice & 1 == 0 { context.start_addr.wrapping_add(u64::from(choice >> 4)) } else { input.u64() },
        len: if choice & 2 == 0 { u64::from(input.u16()) } else { input.u64() },
        access: [Access::LocalRead, Access::LocalWrite][usize::from(choice >> 2 & 1)],
        pd: if choice & 8 == 0 { context.pd } else { pds[1] },
        qpn: u32::from(choice % 3),
        reserved_lkey: choice & 0x80 != 0,
    };
    let Ok(walk) = resolve(&hca.objects, &hca.key_space, &request) else { return };
    let mut left = request.len;
    for piece in walk.take(PIECES) {
        let Ok(piece) = piece else { break };
        assert!(piece.len > 0 && piece.len <= left, "{piece:?} of {left:#x}");
        left -= piece.len;
    }
}
