//! A hostile driver at the command interface: well-formed commands with odd values, sequences that reuse the numbers it
//! got, raw entries and mailbox chains, doorbells, commands cut short by resets.

use std::cell::RefCell;

use cx10::device::hca::Phase;
use cx10::device::objects::Kind;
use cx10::prm::Opcode;
use cx10::testing::{FREE, Rig};
use cx10::trace::Trace;

use crate::grammar;
use crate::input::Input;
use crate::machine::{Machine, SLOT, SLOTS, Shared, set, trace_to};
use crate::templates::TEMPLATES;
use crate::work;

/// Most steps of one input.
const STEPS: usize = 40;

thread_local! {
    static MACHINES: RefCell<Option<[Machine; 2]>> = const { RefCell::new(None) };
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let setup = data.first().copied().unwrap_or(0);
    if setup >= 0xfc {
        return twice(data);
    }
    MACHINES.with_borrow_mut(|machines| {
        let make = || [Machine::new(Trace::off()), Machine::new(trace_to(std::io::sink()))];
        // Writing a trace takes longer than the work itself, so few inputs do.
        let machine = &mut machines.get_or_insert_with(make)[usize::from(setup >> 5 == 7)];
        machine.renew();
        drive(machine, data);
    });
}

/// The function is deterministic: the same input has the same trace, to the byte.
fn twice(data: &[u8]) {
    let run = || {
        let shared = Shared::default();
        drive(&mut Machine::new(trace_to(shared.clone())), data);
        shared.take()
    };
    let (first, second) = (run(), run());
    if first != second {
        let at = first.iter().zip(&second).position(|(a, b)| a != b).unwrap_or(0);
        let around = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[at.saturating_sub(400)..]).chars().take(800).collect::<String>()
        };
        panic!("the same input has another trace:\n{}\n-----\n{}", around(&first), around(&second));
    }
}

fn drive(machine: &mut Machine, data: &[u8]) {
    let input = &mut Input::new(data);
    let setup = input.u8();
    start(machine, setup);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(machine, input);
    }
    machine.finish(setup & 0x10 != 0);
}

/// How far up the driver has come when it turns hostile.
fn start(machine: &mut Machine, setup: u8) {
    let rig = &mut machine.rig;
    let old = setup & 8 != 0;
    let level = (setup & 7).min(3);
    match (level, old) {
        (0, _) => return,
        (1, _) => {
            rig.ok(&Rig::input(0x104, 0, 16), 16);
            if old {
                rig.give_pages(1);
                rig.give_pages(2);
            }
        }
        (_, false) => rig.bring_up(),
        (_, true) => {
            // Interface step 0, as a driver that knows no other.
            rig.ok(&Rig::input(0x104, 0, 16), 16);
            rig.give_pages(1);
            rig.give_pages(2);
            rig.ok(&Rig::input(0x102, 0, 32), 16);
        }
    }
    if level == 3 {
        furnish(machine);
    }
}

/// Creates one of everything, as far as the device implements it. What it refuses is missing, which is no failure here.
pub fn furnish(machine: &mut Machine) {
    for template in TEMPLATES {
        if let Some((bytes, out)) = machine.template(template) {
            machine.command(&bytes, out);
        }
    }
}

fn step(machine: &mut Machine, input: &mut Input<'_>) {
    match input.u8() % 32 {
        0..=11 => {
            let (bytes, out) = machine.invent(input);
            machine.command(&bytes, out);
        }
        12 => raw_command(machine, input),
        13 => raw_entry(machine, input),
        14 => poke(machine, input),
        15 | 16 => doorbell(machine, input),
        17 | 18 => batch(machine, input),
        19 => {
            machine.rig.clock.advance(input.u64() >> (input.u8() % 64));
            machine.settle();
        }
        20 => upheaval(machine, input),
        21 | 22 => again(machine, input),
        _ => work::post(machine, input),
    }
}

/// Any opcode with any body.
fn raw_command(machine: &mut Machine, input: &mut Input<'_>) {
    let opcode = match input.u8() % 4 {
        0 => Opcode(input.u16()),
        _ => grammar::any(input).opcode,
    };
    let len = input.below(0x1000);
    let mut bytes = opcode.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(input.bytes(len));
    bytes.resize(len.max(8), 0);
    let out = input.below(0x1000).max(8);
    machine.command(&bytes, out);
}

/// Any entry, with or without a valid signature.
fn raw_entry(machine: &mut Machine, input: &mut Input<'_>) {
    let how = input.u8();
    let mut entry = [0; 64];
    entry.iter_mut().zip(input.bytes(64)).for_each(|(to, from)| *to = *from);
    if how & 1 != 0 {
        entry[0] = 7;
        entry[0x3f] = 1;
        // Mailboxes where `poke` leaves some.
        entry[8..16].copy_from_slice(&(FREE + u64::from(how >> 4) * SLOT).to_be_bytes());
        entry[0x30..0x38].copy_from_slice(&(FREE + u64::from(how & 0xf) * SLOT).to_be_bytes());
    }
    if how & 2 != 0 {
        entry[4..6].fill(0);
        entry[0x38..0x3a].fill(0);
    }
    machine.note(&entry);
    let slot = u64::from(how >> 3);
    if how & 4 == 0 {
        machine.rig.write_entry(slot, entry);
    } else {
        machine.rig.write(0x1000 + slot * 64, &entry);
    }
    machine.ring(1 << slot);
}

/// Any bytes in guest memory, or a mailbox there.
fn poke(machine: &mut Machine, input: &mut Input<'_>) {
    let at = machine.buffer(u64::from(input.u8()));
    if input.one_in(2) {
        let mut block = [0; 576];
        let next = FREE + u64::from(input.u8()) % SLOTS * SLOT;
        block[0x230..0x238].copy_from_slice(&next.to_be_bytes());
        block[0x23b] = input.u8();
        block[0x23d] = input.u8();
        block.iter_mut().zip(input.bytes(64)).for_each(|(to, from)| *to = *from);
        machine.rig.write(at, &block);
        machine.note(&block);
    } else {
        let offset = u64::from(input.u8()) * 8;
        let len = input.below(256);
        let bytes = input.bytes(len);
        machine.rig.write(at + offset, bytes);
        machine.note(bytes);
    }
}

/// A doorbell of an object that exists, or any write to a UAR page.
fn doorbell(machine: &mut Machine, input: &mut Input<'_>) {
    let live = machine.live();
    let some = |input: &mut Input<'_>, kind: Kind| {
        let ids: Vec<u32> = live.iter().filter(|object| object.kind == kind).map(|object| object.id).collect();
        if ids.is_empty() { 0 } else { ids[input.below(ids.len())] }
    };
    let page = u64::from(some(input, Kind::Uar));
    let count = input.u32();
    let (offset, word) = match input.u8() % 5 {
        0 => (0x40, u64::from(some(input, Kind::Eq) << 24 | count & 0xff_ffff) << 32),
        1 => (0x48, u64::from(some(input, Kind::Eq) << 24 | count & 0xff_ffff) << 32),
        2 => (0x20, u64::from(count) << 32 | u64::from(some(input, Kind::Cq))),
        3 => (0x800, u64::from(count) << 32 | u64::from(some(input, Kind::Qp)) << 8),
        _ => (u64::from(input.u16()) & 0xfff, input.u64()),
    };
    let bytes = word.to_be_bytes();
    let at = page << 12 | offset;
    match input.u8() % 4 {
        0 => machine.rig.function.bar_write(at, &bytes[..4]),
        1 => {
            machine.rig.function.bar_write(at, &bytes[..4]);
            machine.rig.function.bar_write(at + 4, &bytes[4..]);
        }
        2 => {
            let mut burst = [0; 64];
            burst.iter_mut().zip(input.bytes(64)).for_each(|(to, from)| *to = *from);
            burst[..8].copy_from_slice(&bytes);
            machine.note(&burst);
            machine.rig.function.bar_write(at, &burst);
        }
        _ => machine.rig.function.bar_write(at, &bytes),
    }
    machine.settle();
}

/// Several commands at once, of which not all may be done when something else happens. They share their mailboxes, as a
/// confused driver's would.
fn batch(machine: &mut Machine, input: &mut Input<'_>) {
    let mut slots = 0;
    for _ in 0..input.u8() % 8 {
        let slot = u64::from(input.u8() % 32);
        let (bytes, out) = machine.invent(input);
        machine.note(&bytes);
        machine.rig.post(slot, &bytes, out);
        slots |= 1 << slot;
    }
    machine.rig.function.bar_write(0x18, &u32::to_be_bytes(slots));
    for _ in 0..input.u8() % 3 {
        machine.portion();
    }
    if input.one_in(2) {
        step(machine, input);
    }
    machine.settle();
}

/// A reset of some kind, or the interface switched off, and the driver's next start.
fn upheaval(machine: &mut Machine, input: &mut Input<'_>) {
    machine.audit();
    let what = input.u8();
    match what % 4 {
        0 => machine.function_level_reset(),
        1 => {
            // The interface field; 7 is the software reset.
            machine.rig.function.bar_write(0x14, &(0x1000u32 | u32::from(what >> 2 & 7) << 8).to_be_bytes());
            if what & 0x20 != 0 {
                machine.settle();
            }
            machine.rig.forget_pages();
            machine.rig.enable();
        }
        2 => {
            // Bus mastering off for a while.
            machine.rig.function.config_write(4, &[2, 0]);
            machine.rig.function.bar_write(0x18, &input.u32().to_be_bytes());
            machine.settle();
            machine.rig.function.config_write(4, &[6, 0]);
        }
        _ => {
            // Sleep: neither registers nor memory.
            machine.rig.function.config_write(0x44, &[3, 0]);
            machine.rig.function.bar_write(0x18, &[0xff; 4]);
            machine.settle();
            machine.rig.function.config_write(0x44, &[0, 0]);
        }
    }
    let phase = machine.rig.function.hca().phase();
    if what & 0x40 != 0 && phase == Phase::Disabled && machine.answers() {
        machine.rig.bring_up();
        furnish(machine);
    }
}

/// Destroys or queries what exists, in one order or the other, by the commands that name one object.
fn again(machine: &mut Machine, input: &mut Input<'_>) {
    let how = input.u8();
    let mut live = machine.live();
    if how & 0x40 != 0 {
        // About the reverse of the order in which they can be created.
        live.reverse();
    }
    for object in live.iter().skip(usize::from(how % 16)).take(8) {
        for form in grammar::forms() {
            let name = form.opcode.to_string();
            let ends = ["DESTROY_", "DEALLOC_"].iter().any(|verb| name.starts_with(verb));
            let leaf = form.leaves.iter().find(|leaf| leaf.width >= 8 && leaf.may_name(object.kind));
            if let (true, Some(leaf)) = (name.starts_with("QUERY_") || ends && how & 0x80 != 0, leaf) {
                let mut bytes = machine.careful(form);
                set(&mut bytes, leaf, u64::from(object.id));
                machine.command(&bytes, form.out_len);
            }
        }
    }
}
