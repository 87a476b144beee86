//! A driver in process, for tests, fuzz targets and benches: guest memory, the command queue, and the steps that
//! bring the function up. It knows the device only through its registers and memory, as a real driver does.

pub mod queues;
pub mod rdma;

use std::os::fd::{AsFd, OwnedFd};

use crate::device::Function;
use crate::device::clock::{Clock, ManualClock};
use crate::device::function::ResetKind;
use crate::dma::map::Rights;
use crate::dma::{Iova, MemoryMap};
use crate::prm::eq::CreateEqIn;
use crate::prm::hca::{ManagePagesIn, QueryPagesOut};
use crate::profile::Profile;
use crate::trace::Trace;

/// Bytes of guest memory.
pub const RAM: u64 = 64 << 20;
const QUEUE: u64 = 0x1000;
const IN_BOXES: u64 = 0x10_0000;
const OUT_BOXES: u64 = 0x80_0000;
/// Where memory that tests may use freely begins.
pub const FREE: u64 = 0x100_0000;
const PAGES: u64 = 0x200_0000;
const BOX: u64 = 1024;

/// A function with guest memory and a command queue.
pub struct Rig {
    /// The device.
    pub function: Function,
    /// The device's clock.
    pub clock: ManualClock,
    /// Whether [`Rig::post`] signs mailboxes, as a driver does once `cmdif_checksum` is enabled.
    pub sign_mailboxes: bool,
    ram: MemoryMap,
    memfd: OwnedFd,
    token: u8,
    given: u64,
}

/// What a command returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Delivery status.
    pub delivery: u8,
    /// The whole output.
    pub output: Vec<u8>,
}

impl Answer {
    /// Command status.
    pub fn status(&self) -> u8 {
        self.output[0]
    }

    /// Syndrome.
    pub fn syndrome(&self) -> u32 {
        u32::from_be_bytes([self.output[4], self.output[5], self.output[6], self.output[7]])
    }
}

impl Rig {
    /// A powered-on function with memory enabled, bus mastering on and the command queue set.
    pub fn new(profile: Profile) -> Rig {
        Rig::traced(profile, Trace::off())
    }

    /// The same with a trace.
    pub fn traced(profile: Profile, trace: Trace) -> Rig {
        let clock = ManualClock::default();
        let function = Function::new(profile, Box::new(clock.clone()), trace);
        let memfd = ram();
        let mut rig = Rig { function, clock, sign_mailboxes: false, ram: MemoryMap::new(), memfd, token: 0, given: 0 };
        rig.plug_memory();
        rig.function.vmm_attached();
        rig.enable();
        rig
    }

    /// Starts over as a new machine would: fresh memory, the function reset. Cheaper than a new rig; only the
    /// function's summary and clock go on.
    pub fn renew(&mut self) {
        self.memfd = ram();
        self.plug_memory();
        self.function.reset(ResetKind::Vmm);
        (self.token, self.given) = (0, 0);
        self.enable();
    }

    /// Maps a part of the memory for the device again that was unmapped.
    pub fn plug(&mut self, at: u64, len: u64) {
        let map = self.function.bus_mut().map_mut();
        map.map(Iova(at), len, Rights::ReadWrite, Some(self.memfd.as_fd()), at).expect("it is not mapped");
    }

    /// Maps the memory, and nothing else, for the driver and for the device.
    fn plug_memory(&mut self) {
        for map in [&mut self.ram, self.function.bus_mut().map_mut()] {
            map.unmap_all();
            map.map(Iova(0), RAM, Rights::ReadWrite, Some(self.memfd.as_fd()), 0).expect("fresh map");
        }
    }

    /// Enables memory and bus mastering and sets the command queue, as the driver's probe does.
    pub fn enable(&mut self) {
        self.function.config_write(4, &[6, 0]);
        self.function.bar_write(0x10, &0u32.to_be_bytes());
        self.function.bar_write(0x14, &(QUEUE as u32).to_be_bytes());
    }

    /// Forgets which pages were given, as a driver does after a reset.
    pub fn forget_pages(&mut self) {
        self.given = 0;
    }

    /// Reads guest memory.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read(Iova(at), &mut bytes).expect("inside guest memory");
        bytes
    }

    /// Writes guest memory.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.ram.write(Iova(at), bytes).expect("inside guest memory");
    }

    /// Reads a BAR 0 dword.
    pub fn bar(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.function.bar_read(offset, &mut bytes);
        u32::from_be_bytes(bytes)
    }

    /// Builds the entry and mailboxes of a command in `slot`, without ringing.
    pub fn post(&mut self, slot: u64, input: &[u8], outlen: usize) {
        self.token = self.token.wrapping_add(1).max(1);
        let token = self.token;
        let boxes = |len: usize| len.saturating_sub(16).div_ceil(512) as u64;
        for (base, count, data) in
            [(IN_BOXES, boxes(input.len()), input.get(16..).unwrap_or_default()), (OUT_BOXES, boxes(outlen), &[])]
        {
            for i in 0..count {
                let mut block = vec![0; 576];
                let chunk = data.chunks(512).nth(i as usize).unwrap_or_default();
                block[..chunk.len()].copy_from_slice(chunk);
                let next = if i + 1 < count { base + (i + 1) * BOX } else { 0 };
                block[0x230..0x238].copy_from_slice(&next.to_be_bytes());
                block[0x238..0x23c].copy_from_slice(&(i as u32).to_be_bytes());
                block[0x23d] = token;
                if self.sign_mailboxes {
                    block[0x23e] = !xor(&block[0x200..0x23e]);
                    block[0x23f] = !xor(&block[..0x23f]);
                }
                self.write(base + i * BOX, &block);
            }
        }
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        if input.len() > 16 {
            entry[8..16].copy_from_slice(&IN_BOXES.to_be_bytes());
        }
        let inline = input.len().min(16);
        entry[0x10..0x10 + inline].copy_from_slice(&input[..inline]);
        if outlen > 16 {
            entry[0x30..0x38].copy_from_slice(&OUT_BOXES.to_be_bytes());
        }
        entry[0x38..0x3c].copy_from_slice(&(outlen as u32).to_be_bytes());
        entry[0x3c] = token;
        entry[0x3f] = 1;
        self.write_entry(slot, entry);
    }

    /// Writes a raw entry, signed, into `slot`.
    pub fn write_entry(&mut self, slot: u64, mut entry: [u8; 64]) {
        entry[0x3d] = 0;
        entry[0x3d] = !xor(&entry);
        self.write(QUEUE + slot * 64, &entry);
    }

    /// The raw entry in `slot`.
    pub fn entry(&self, slot: u64) -> Vec<u8> {
        self.read(QUEUE + slot * 64, 64)
    }

    /// Rings the command doorbell and lets the device work until it has nothing left to do.
    pub fn ring(&mut self, slots: u32) {
        self.function.bar_write(0x18, &slots.to_be_bytes());
        self.settle();
    }

    /// Lets the device work until it has nothing left to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.function.work().more {
                return;
            }
        }
        panic!("the device never becomes idle");
    }

    /// Lets a microsecond pass; whether memory accesses are still pending.
    pub fn tick(&mut self) -> bool {
        self.clock.advance(1000);
        self.settle();
        self.function.bus_mut().next_due().is_some()
    }

    /// Lets time pass until no memory access is pending.
    pub fn land(&mut self) {
        while let Some(at) = self.function.bus_mut().next_due() {
            self.clock.advance(at.saturating_sub(self.clock.now()));
            self.settle();
        }
    }

    /// Runs a command and returns its answer. If the device wants pages for it, it gets none.
    pub fn exec(&mut self, input: &[u8], outlen: usize) -> Answer {
        self.post(0, input, outlen);
        self.ring(1);
        self.land();
        if self.entry(0)[0x3f] & 1 != 0 {
            const LAST: u64 = 31;
            self.post(LAST, &Rig::input(0x108, 0, 16), 16);
            self.ring(1 << LAST);
            self.land();
        }
        let entry = self.entry(0);
        assert_eq!(entry[0x3f] & 1, 0, "the device answers every command");
        let mut output = entry[0x20..0x30].to_vec();
        for i in 0..outlen.saturating_sub(16).div_ceil(512) as u64 {
            output.extend(self.read(OUT_BOXES + i * BOX, 512));
        }
        output.truncate(outlen.max(16));
        Answer { delivery: entry[0x3f] >> 1, output }
    }

    /// Runs a command that must succeed and returns its output.
    pub fn ok(&mut self, input: &[u8], outlen: usize) -> Vec<u8> {
        let answer = self.exec(input, outlen);
        assert_eq!((answer.delivery, answer.status()), (0, 0), "syndrome {:#x}", answer.syndrome());
        answer.output
    }

    /// A command input of `len` bytes with opcode and modifier set.
    pub fn input(opcode: u16, op_mod: u16, len: usize) -> Vec<u8> {
        let mut input = vec![0; len];
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        input[6..8].copy_from_slice(&op_mod.to_be_bytes());
        input
    }

    /// An ACCESS_REG input that reads or writes `register` with `image`.
    pub fn register(register: u16, read: bool, image: &[u8]) -> Vec<u8> {
        let mut input = Rig::input(0x805, u16::from(read), 16);
        input[10..12].copy_from_slice(&register.to_be_bytes());
        input.extend(image);
        input
    }

    /// Accesses a register, which must succeed, and returns its image.
    pub fn register_ok(&mut self, register: u16, read: bool, image: &[u8]) -> Vec<u8> {
        self.ok(&Rig::register(register, read, image), 16 + image.len()).split_off(16)
    }

    /// Creates an unarmed event queue of 64 entries for the events in `mask` and returns where its entries are;
    /// entries that the device did not write are all ones.
    pub fn event_queue(&mut self, mask: u64) -> u64 {
        const BUFFER: u64 = FREE + 0x10_0000;
        self.write(BUFFER, &[0xff; 4096]);
        let uar = self.ok(&Rig::input(0x802, 0, 16), 16);
        let mut input = CreateEqIn::with_tail(8);
        input.set_opcode(0x301);
        let mut context = input.eq_context_entry_mut();
        context.set_log_eq_size(6);
        context.set_uar_page(u32::from_be_bytes([0, uar[9], uar[10], uar[11]]));
        input.set_event_bitmask(0, mask);
        input.pas_mut().copy_from_slice(&BUFFER.to_be_bytes());
        self.ok(input.as_bytes(), 16);
        BUFFER
    }

    /// Gives what QUERY_PAGES with `op_mod` asks for.
    pub fn give_pages(&mut self, op_mod: u16) {
        let out = self.ok(&Rig::input(0x107, op_mod, 16), 16);
        let wanted = QueryPagesOut::new(&out[..]).expect("16 bytes").num_pages() as i32;
        for count in chunks(u64::try_from(wanted).unwrap_or(0), 512) {
            let mut input = ManagePagesIn::with_tail(8 * count as usize);
            input.set_opcode(0x108);
            input.set_op_mod(1);
            input.set_input_num_entries(count as u32);
            for slot in input.pas_mut().chunks_exact_mut(8) {
                // Addresses repeat the same few megabytes of memory only when a test asks for more than fits.
                slot.copy_from_slice(&(PAGES + self.given * 4096).to_be_bytes());
                self.given += 1;
            }
            self.ok(input.as_bytes(), 16);
        }
    }

    /// From ENABLE_HCA to INIT_HCA.
    pub fn bring_up(&mut self) {
        self.ok(&Rig::input(0x104, 0, 16), 16);
        let mut issi = Rig::input(0x10b, 0, 16);
        issi[11] = 1;
        self.ok(&issi, 16);
        self.give_pages(1);
        self.give_pages(2);
        self.ok(&Rig::input(0x102, 0, 32), 16);
    }

    /// From TEARDOWN_HCA to DISABLE_HCA; returns how many pages came back.
    pub fn tear_down(&mut self) -> u64 {
        self.ok(&Rig::input(0x103, 0, 16), 16);
        let returned = self.take_pages();
        self.ok(&Rig::input(0x105, 0, 16), 16);
        returned
    }

    /// Takes back as many pages as the device returns.
    pub fn take_pages(&mut self) -> u64 {
        let mut returned = 0;
        loop {
            let mut take = Rig::input(0x108, 2, 16);
            take[12..16].copy_from_slice(&512u32.to_be_bytes());
            let out = self.ok(&take, 16 + 512 * 8);
            let count = u64::from(u32::from_be_bytes([out[8], out[9], out[10], out[11]]));
            if count == 0 {
                break;
            }
            returned += count;
        }
        self.given = 0;
        returned
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

fn ram() -> OwnedFd {
    crate::sys::memfd("cx10-test-ram", RAM, true).expect("a memfd")
}

fn chunks(total: u64, size: u64) -> impl Iterator<Item = u64> {
    (0..total.div_ceil(size)).map(move |i| size.min(total - i * size))
}
