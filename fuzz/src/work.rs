//! A hostile driver at its queues: work queue entries of plausible segments, doorbell records and doorbells.

use cx10::device::objects::Kind;
use cx10::device::page_list::PageList;
use cx10::device::rq::ReceiveMemory;

use crate::input::Input;
use crate::machine::Machine;
use crate::wqe;

/// Bytes of a unit, in which entries are measured, and of a basic block, in which send queues are.
const UNIT: usize = 16;
const BLOCK: usize = 64;

/// Where an entry goes.
struct Place {
    number: u32,
    uar: u32,
    buffer: PageList,
    /// Where the ring begins in the buffer, how many blocks it has, and at which of them the device is.
    start: u64,
    blocks: u64,
    next: u16,
    record: u64,
}

/// Posts some entries to a queue that exists, and rings for it.
pub fn post(machine: &mut Machine, input: &mut Input<'_>) {
    let queues: Vec<_> =
        machine.live().into_iter().filter(|o| matches!(o.kind, Kind::Sq | Kind::Qp | Kind::Rq)).collect();
    if queues.is_empty() {
        return;
    }
    let chosen = queues[input.below(queues.len())];
    match chosen.kind {
        Kind::Rq => receive(machine, chosen.id, input),
        _ => send(machine, chosen.id, chosen.kind == Kind::Sq, input),
    }
    machine.settle();
}

fn place(machine: &Machine, number: u32, ethernet: bool) -> Option<Place> {
    let objects = &machine.rig.function.hca().objects;
    if ethernet {
        let sq = &objects.sqs.get(number)?.object;
        let (uar, record) = (sq.uar(), sq.wq.record.0);
        let (buffer, next) = (sq.wq.buffer.clone(), sq.executed);
        return Some(Place { number, uar, buffer, start: 0, blocks: 1 << sq.wq.log_size, next, record });
    }
    let qp = &objects.qps.get(number)?.object;
    let context = &qp.context;
    let receive = qp.geometry().rq_bytes;
    let next = machine.posted.get(&number).copied().unwrap_or(0);
    let (uar, blocks) = (context.uar_page(), 1 << context.log_sq_size());
    Some(Place { number, uar, buffer: qp.buffer.clone(), start: receive, blocks, next, record: qp.record?.0 })
}

fn send(machine: &mut Machine, number: u32, ethernet: bool, input: &mut Input<'_>) {
    let Some(mut place) = place(machine, number, ethernet) else { return };
    let mut last = [0; 8];
    for _ in 0..1 + input.u8() % 4 {
        let entry = entry(machine, place.number, place.next, ethernet, input);
        machine.note(&entry);
        last.copy_from_slice(&entry[..8]);
        for block in entry.chunks(BLOCK) {
            let at = place.start + u64::from(place.next) % place.blocks * BLOCK as u64;
            if let Some(at) = place.buffer.entry(at, BLOCK as u64) {
                write(machine, at.0, block);
            }
            place.next = place.next.wrapping_add(1);
        }
    }
    machine.posted.insert(number, place.next);
    let counter = match input.u8() % 8 {
        7 => input.u32(),
        6 => u32::from(place.next) + u32::from(input.u8()),
        _ => u32::from(place.next),
    };
    write(machine, place.record.wrapping_add(4), &counter.to_be_bytes());
    let offset = u64::from(place.uar) << 12 | 0x800;
    machine.rig.function.bar_write(offset, &last);
}

fn receive(machine: &mut Machine, number: u32, input: &mut Input<'_>) {
    let queue = machine.rig.function.hca().objects.rqs.get(number);
    let Some(ReceiveMemory::Inline(wq)) = queue.map(|entry| entry.object.memory.clone()) else { return };
    let count = input.u8() % 8;
    for i in 0..u16::from(count) {
        let mut entry = vec![0; (1 << wq.log_stride).min(256)];
        let unit = unit(machine, 0, input);
        entry.iter_mut().zip(unit).for_each(|(to, from)| *to = from);
        machine.note(&entry);
        if let Some((at, _)) = wq.buffer.locate(wq.offset(i)) {
            write(machine, at.0, &entry);
        }
    }
    let counter = if input.one_in(8) { input.u32() } else { count.into() };
    write(machine, wq.record.0, &counter.to_be_bytes());
}

/// Writes where there is memory; a queue may stand anywhere.
fn write(machine: &mut Machine, at: u64, bytes: &[u8]) {
    if at < cx10::testing::RAM - BLOCK as u64 * 8 {
        machine.rig.write(at, bytes);
    }
}

/// A control segment and what may follow it, in whole units.
fn entry(machine: &mut Machine, number: u32, index: u16, ethernet: bool, input: &mut Input<'_>) -> Vec<u8> {
    const OPCODES: [u8; 16] = [0, 0xa, 0xa, 0xe, 8, 9, 0xb, 0x10, 0x11, 0x12, 0x14, 0x15, 0x18, 0x25, 0x1f, 0xf];
    let mut body = Vec::new();
    if ethernet {
        // The Ethernet segment, with the headers of a frame inline.
        let headers = input.pick(&[18u16, 14, 0, 54, 42, 60, 0xffff]);
        let mut segment = [0u8; 14];
        segment[4] = input.u8() & 0xf0;
        segment[8..10].copy_from_slice(&(32u16 << (input.u8() % 12)).to_be_bytes());
        segment[12..14].copy_from_slice(&headers.to_be_bytes());
        body.extend(segment);
        body.extend(frame(headers.min(100).into(), input));
        body.resize(body.len().next_multiple_of(UNIT), 0);
    }
    let registers = !ethernet && input.one_in(8);
    let keys: Vec<u32> = machine.live().iter().filter(|o| o.kind == Kind::Mkey).map(|o| o.id << 8).collect();
    if registers {
        let pds: Vec<u32> = machine.live().iter().filter(|o| o.kind == Kind::Pd).map(|o| o.id).collect();
        let pd = |i: usize| pds.get(i % pds.len().max(1)).copied().unwrap_or(0);
        body = wqe::body(machine, [pd(0), pd(1)], &keys, input);
        body.resize(body.len().next_multiple_of(UNIT), 0);
    }
    for i in 0..if registers { 0 } else { input.u8() % 6 } {
        body.extend(unit(machine, i, input));
    }
    let ds = match input.u8() % 8 {
        7 => input.u8(),
        _ => (1 + body.len() / UNIT).min(63) as u8,
    };
    let opcode = match input.u8() {
        _ if registers => 0x25,
        255 => input.u8(),
        choice => OPCODES[usize::from(choice) % OPCODES.len()],
    };
    let qpn = if input.one_in(16) { input.u32() } else { number };
    let mut entry = vec![if input.one_in(16) { input.u8() } else { 0 }];
    entry.extend(index.to_be_bytes());
    entry.push(opcode);
    entry.extend((qpn << 8 | u32::from(ds)).to_be_bytes());
    entry.extend([0, 0, 0, input.u8()]);
    let key = keys.get(usize::from(input.u8()) % keys.len().max(1)).copied().filter(|_| registers);
    entry.extend(key.unwrap_or_else(|| input.u32()).to_be_bytes());
    entry.extend(body);
    entry
}

/// The beginning of a TCP or UDP frame over IPv4 or IPv6, or of anything.
pub fn frame(len: usize, input: &mut Input<'_>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
    match input.u8() % 4 {
        0 => frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]),
        1 => frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]),
        2 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend([0xfe; 32]);
        }
        _ => {}
    }
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10]);
    let patch = input.u8();
    if patch & 1 != 0 {
        let at = usize::from(patch >> 1) % frame.len();
        frame[at] = input.u8();
    }
    frame.resize(len, 0);
    frame
}

/// One unit: a data segment, a remote address, an inline segment, or anything.
fn unit(machine: &mut Machine, index: u8, input: &mut Input<'_>) -> Vec<u8> {
    let keys: Vec<u32> = machine.live().iter().filter(|o| o.kind == Kind::Mkey).map(|o| o.id).collect();
    let key = |input: &mut Input<'_>| match (keys.is_empty(), input.u8() % 8) {
        (true, _) | (_, 7) => input.u32(),
        _ => keys[input.below(keys.len())] << 8,
    };
    let address = |machine: &mut Machine, input: &mut Input<'_>| match input.u8() % 4 {
        0 => u64::from(input.u16()),
        1 => input.u64(),
        _ => machine.buffer(u64::from(input.u8())),
    };
    let mut unit = Vec::new();
    match input.u8() % 5 {
        0 | 1 => {
            let len = match input.u8() % 4 {
                0 => input.u32(),
                1 => u32::from(input.u16()),
                _ => u32::from(input.u8()),
            };
            unit.extend(len.to_be_bytes());
            unit.extend(key(input).to_be_bytes());
            unit.extend(address(machine, input).to_be_bytes());
        }
        2 => {
            unit.extend(address(machine, input).to_be_bytes());
            unit.extend(key(input).to_be_bytes());
            unit.extend([0; 4]);
        }
        3 => {
            let len = if index == 0 { input.u8() } else { input.u8() % 13 };
            unit.extend((1 << 31 | u32::from(len)).to_be_bytes());
            unit.extend_from_slice(input.bytes(12));
        }
        _ => unit.extend_from_slice(input.bytes(16)),
    }
    unit.resize(UNIT, 0);
    unit
}
