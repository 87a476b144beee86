//! A hostile guest kernel and its VMM: registers, configuration space, resets of every kind, memory that comes and goes,
//! in any order and of any size.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use cx10::device::function::{BAR0_SIZE, ResetKind};
use cx10::dma::map::Rights;
use cx10::dma::{Iova, MemoryMap};
use cx10::testing::{FREE, RAM, Rig};

use cx10::trace::Trace;

use crate::input::Input;
use crate::machine::Machine;
use crate::mailbox::furnish;

const STEPS: usize = 64;

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

struct State {
    machine: Machine,
    /// Configuration space after a reset.
    power_on: Vec<u8>,
    /// Memory that may be mapped: fixed, and free to shrink.
    files: [OwnedFd; 2],
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    STATE.with_borrow_mut(|state| {
        let state = state.get_or_insert_with(|| {
            let mut machine = Machine::new(Trace::off());
            machine.rig.function.reset(ResetKind::Vmm);
            let power_on = config(&machine);
            let file = |sealed| cx10::sys::memfd("cx10-fuzz-map", 64 << 10, sealed).expect("a memfd");
            State { machine, power_on, files: [file(true), file(false)] }
        });
        let machine = &mut state.machine;
        machine.renew();
        let setup = input.u8();
        if setup & 1 != 0 {
            machine.rig.bring_up();
            if setup & 2 != 0 {
                furnish(machine);
            }
        }
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            step(machine, &state.files, input);
        }
        machine.settle();
        machine.audit();
        same_function(machine, &state.power_on);
        machine.rig.function.config_write(0x44, &[0, 0]);
        machine.rig.function.config_write(0x68, &[0x10, 0xa8]);
        assert_eq!(config(machine), state.power_on, "a function-level reset restores every register");
        assert_eq!(machine.rig.function.hca().census().len(), 0, "a reset leaves no object");
        machine.renew();
        machine.next_driver();
    });
}

fn config(machine: &Machine) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    machine.rig.function.config_read(0, &mut bytes);
    bytes
}

/// What no write may change: identity, the capability list, read-only registers; and reads agree whatever their size.
fn same_function(machine: &Machine, power_on: &[u8]) {
    let now = config(machine);
    for range in [0..4, 6..12, 0x2c..0x30, 0x34..0x35, 0x40..0x44, 0x48..0x4a, 0x60..0x68, 0x9c..0x9e, 0x150..0x15c] {
        let status = range.start == 6;
        assert!(status || now[range.clone()] == power_on[range.clone()], "read-only bytes {range:x?} changed");
    }
    for (at, byte) in now.iter().enumerate() {
        let mut one = [0];
        machine.rig.function.config_read(at as u64, &mut one);
        assert_eq!(one[0], *byte, "a byte read of {at:#x} differs");
    }
    let (mut at, mut steps) = (now[0x34], 0);
    while at != 0 {
        steps += 1;
        assert!(steps < 48, "the capability list does not end");
        at = now[usize::from(at) + 1];
    }
}

/// Offsets with a meaning, and their neighbours, and anything.
fn bar_offset(input: &mut Input<'_>) -> u64 {
    const SEGMENT: [u64; 9] = [0, 4, 0x10, 0x14, 0x18, 0x1fc, 0x200, 0x1000, 0x1010];
    const UAR: [u64; 7] = [0x20, 0x24, 0x40, 0x48, 0x800, 0x804, 0x900];
    let base = match input.u8() % 6 {
        0 | 1 => input.pick(&SEGMENT),
        2 | 3 => (16 + u64::from(input.u8() % 8)) << 12 | input.pick(&UAR),
        4 => (16 << 20) + u64::from(input.u32() % (2 << 20)),
        _ => match input.u8() % 3 {
            0 => u64::from(input.u32()) % BAR0_SIZE,
            1 => BAR0_SIZE - u64::from(input.u8()),
            _ => input.u64(),
        },
    };
    match input.u8() % 8 {
        0 => base.wrapping_add(u64::from(input.u8() % 8)),
        _ => base,
    }
}

fn len(input: &mut Input<'_>) -> usize {
    match input.u8() % 8 {
        0 => 1,
        1 => 2,
        2..=4 => 4,
        5 => 8,
        6 => 64,
        _ => input.below(512),
    }
}

fn data(input: &mut Input<'_>, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    data.iter_mut().zip(input.bytes(len)).for_each(|(to, from)| *to = *from);
    data
}

fn step(machine: &mut Machine, files: &[OwnedFd; 2], input: &mut Input<'_>) {
    match input.u8() % 16 {
        0..=3 => {
            let (at, len) = (bar_offset(input), len(input));
            let data = data(input, len);
            machine.rig.function.bar_write(at, &data);
        }
        4 => {
            let (at, len) = (bar_offset(input), len(input));
            let mut data = vec![0xee; len];
            machine.rig.function.bar_read(at, &mut data);
        }
        5..=7 => {
            const REGISTERS: [u64; 14] =
                [4, 6, 0xc, 0x10, 0x14, 0x3c, 0x44, 0x4a, 0x4c, 0x68, 0x70, 0x9e, 0x104, 0x114];
            let at = match input.u8() % 4 {
                0 => u64::from(input.u16()),
                1 => input.u64(),
                _ => input.pick(&REGISTERS),
            };
            let len = len(input);
            let data = data(input, len);
            machine.rig.function.config_write(at, &data);
        }
        8 => {
            let at = u64::from(input.u16());
            let mut data = vec![0; len(input)];
            machine.rig.function.config_read(at, &mut data);
        }
        9 => {
            let kinds = [ResetKind::Vmm, ResetKind::FunctionLevel, ResetKind::Software];
            machine.rig.function.reset(input.pick(&kinds));
        }
        10 => drop(machine.portion()),
        11 => machine.rig.clock.advance(input.u64() >> (input.u8() % 64)),
        12 | 13 => map(machine.rig.function.bus_mut().map_mut(), files, input),
        14 => {
            // A command, wherever the queue is just now.
            let (bytes, out) = machine.invent(input);
            machine.rig.post(0, &bytes, out);
            machine.rig.function.bar_write(0x18, &1u32.to_be_bytes());
        }
        _ => {
            machine.rig.forget_pages();
            machine.rig.enable();
            if input.one_in(4) {
                machine.settle();
                machine.rig.write(0x1000, &[0; 64]);
                machine.rig.post(0, &Rig::input(0x104, 0, 16), 16);
                machine.rig.function.bar_write(0x18, &1u32.to_be_bytes());
            }
        }
    }
}

/// Maps and unmaps, sensible and not.
fn map(map: &mut MemoryMap, files: &[OwnedFd; 2], input: &mut Input<'_>) {
    let address = match input.u8() % 4 {
        0 => 0,
        1 => FREE + u64::from(input.u8()) * 4096,
        2 => RAM + u64::from(input.u8()) * 4096,
        _ => input.u64(),
    };
    let size = match input.u8() % 4 {
        0 => RAM,
        1 => u64::from(input.u8()) * 4096,
        2 => 4096,
        _ => input.u64(),
    };
    let how = input.u8();
    if how & 1 == 0 {
        let flags = u32::from(how >> 1 & 7);
        let _ = map.unmap_request(if how & 0xf0 == 0 { flags } else { 0 }, address, size);
        return;
    }
    let rights = [Rights::Read, Rights::Write, Rights::ReadWrite][usize::from(how >> 1) % 3];
    let file = match how >> 4 & 3 {
        0 => None,
        n => Some(files[usize::from(n) & 1].as_fd()),
    };
    let offset = if input.one_in(4) { input.u64() } else { u64::from(input.u8() % 16) * 4096 };
    let before = map.len();
    match map.map(Iova(address), size, rights, file, offset) {
        Ok(()) => assert_eq!(map.len(), before + 1),
        Err(_) => assert_eq!(map.len(), before),
    }
    let maps: Vec<_> = map.iter().collect();
    for pair in maps.windows(2) {
        assert!(pair[0].iova.0 + (pair[0].size - 1) < pair[1].iova.0, "maps overlap");
    }
}
