//! A small mlx5 driver: what a kernel does from probe to remove, over a real socket, against registers and memory only.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use cx10::prm::eq::CreateEqIn;
use cx10::prm::hca::{ManagePagesIn, QueryPagesOut};
use cx10::transport::layout::region;

use super::client::Client;
use super::guest::{Event, Ram};

const PATIENCE: Duration = Duration::from_secs(20);
const RAM: u64 = 256 << 20;
const QUEUE: u64 = 0x1000;
const IN_BOXES: u64 = 0x10_0000;
const OUT_BOXES: u64 = 0x80_0000;
const BOX: u64 = 1024;
/// Memory for queues.
const FREE: u64 = 0x100_0000;
/// Memory for the firmware.
const PAGES: u64 = 0x200_0000;
/// Memory for data.
const DATA: u64 = 0x400_0000;
/// The slot for MANAGE_PAGES.
const PAGE_SLOT: u32 = 31;

/// What a command returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub delivery: u8,
    pub output: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> u8 {
        self.output[0]
    }

    pub fn syndrome(&self) -> u32 {
        u32::from_be_bytes(self.output[4..8].try_into().unwrap())
    }
}

/// An event queue as the driver holds it.
#[derive(Debug, Default)]
pub struct Eq {
    pub eqn: u32,
    at: u64,
    log_size: u32,
    next: u32,
}

/// A driver and the machine around it.
pub struct Driver {
    pub client: Client,
    pub ram: Ram,
    vectors: Vec<Event>,
    uar: u32,
    commands: Option<Eq>,
    token: u8,
    free: u64,
    /// Doorbell records left in a page of them.
    records: std::ops::Range<u64>,
    data: u64,
    next_page: u64,
    given: BTreeSet<u64>,
    /// Pages given and taken back so far.
    pub pages: (u64, u64),
}

/// A command input of `len` bytes with opcode and modifier set.
pub fn input(opcode: u16, op_mod: u16, len: usize) -> Vec<u8> {
    let mut input = vec![0; len];
    input[..2].copy_from_slice(&opcode.to_be_bytes());
    input[6..8].copy_from_slice(&op_mod.to_be_bytes());
    input
}

/// The same with a number at bytes 8..12, where most commands name their object.
pub fn naming(opcode: u16, number: u32) -> Vec<u8> {
    let mut input = input(opcode, 0, 16);
    input[8..12].copy_from_slice(&number.to_be_bytes());
    input
}

/// The 24-bit number at bytes 9..12 of an output.
pub fn number(output: &[u8]) -> u32 {
    u32::from_be_bytes([0, output[9], output[10], output[11]])
}

impl Driver {
    /// Attaches to the device: memory, bus mastering, vectors.
    pub fn attach(socket: &Path) -> Driver {
        let mut client = Client::negotiated(socket);
        let ram = Ram::new(RAM);
        client.map(0, &ram).expect("map guest memory");
        let vectors: Vec<Event> = (0..4).map(|_| Event::new()).collect();
        for (vector, event) in vectors.iter().enumerate() {
            client.connect_msix(vector as u32, event).expect("connect a vector");
        }
        let mut driver = Driver {
            client,
            ram,
            vectors,
            uar: 0,
            commands: None,
            token: 0,
            free: FREE,
            records: 0..0,
            data: DATA,
            next_page: PAGES,
            given: BTreeSet::new(),
            pages: (0, 0),
        };
        driver.enable();
        driver
    }

    /// Memory space, bus mastering and the command queue's address: what probe does first, and again after a reset.
    pub fn enable(&mut self) {
        self.client.config_write(4, 2, 6);
        let end = Instant::now() + PATIENCE;
        while self.register(0x1fc) >> 31 != 0 {
            assert!(Instant::now() < end, "the device stays initializing");
        }
        assert_eq!(self.register(0x4) >> 16, 5, "command interface revision");
        assert_eq!(self.register(0x14) & 0xff, 0x56, "log_sz 5, log_stride 6");
        self.set_register(0x10, 0);
        self.set_register(0x14, QUEUE as u32);
        self.commands = None;
    }

    /// What a driver forgets with a reset: the firmware's pages are its own again.
    pub fn forget(&mut self) {
        self.given.clear();
        self.next_page = PAGES;
        self.commands = None;
        self.free = FREE;
        self.records = 0..0;
        self.data = DATA;
    }

    /// A big-endian register of BAR 0.
    pub fn register(&mut self, offset: u64) -> u32 {
        self.client.bar_read32(offset).swap_bytes()
    }

    /// Writes a big-endian register of BAR 0.
    pub fn set_register(&mut self, offset: u64, value: u32) {
        self.client.post_write(region::BAR0, offset, &value.to_be_bytes());
    }

    /// Memory for a queue, page aligned, filled with `fill`.
    pub fn memory(&mut self, bytes: u64, fill: u8) -> u64 {
        let at = self.free;
        self.free += bytes.div_ceil(4096) * 4096;
        assert!(self.free <= PAGES, "the driver's memory is used up");
        self.ram.write(at, &vec![fill; bytes as usize]);
        at
    }

    /// Memory for a doorbell record, zeroed. Each has a cache line of its own.
    pub fn record(&mut self) -> u64 {
        if self.records.is_empty() {
            let at = self.memory(4096, 0);
            self.records = at..at + 4096;
        }
        let at = self.records.start;
        self.records.start += 64;
        at
    }

    /// Memory for data, page aligned.
    pub fn data(&mut self, bytes: u64) -> u64 {
        let at = self.data;
        self.data += bytes.div_ceil(4096) * 4096;
        assert!(self.data <= RAM, "the driver's memory is used up");
        at
    }

    /// Builds a command in `slot`, without ringing.
    pub fn post(&mut self, slot: u32, input: &[u8], outlen: usize) {
        self.token = self.token.wrapping_add(1).max(1);
        let (slot, token) = (u64::from(slot), self.token);
        let boxes = |len: usize| len.saturating_sub(16).div_ceil(512) as u64;
        let chains =
            [(IN_BOXES, boxes(input.len()), input.get(16..).unwrap_or_default()), (OUT_BOXES, boxes(outlen), &[])];
        for (base, count, data) in chains {
            // Each slot has its own mailboxes, except that one long command may be under way at a time.
            let base = if count <= 8 { base + slot * 8 * BOX } else { base + 0x4_0000 };
            for i in 0..count {
                let mut block = vec![0; 576];
                let chunk = data.chunks(512).nth(i as usize).unwrap_or_default();
                block[..chunk.len()].copy_from_slice(chunk);
                let next = if i + 1 < count { base + (i + 1) * BOX } else { 0 };
                block[0x230..0x238].copy_from_slice(&next.to_be_bytes());
                block[0x238..0x23c].copy_from_slice(&(i as u32).to_be_bytes());
                block[0x23d] = token;
                self.ram.write(base + i * BOX, &block);
            }
        }
        let pointer = |base: u64, len: usize| match boxes(len) {
            0 => 0,
            1..=8 => base + slot * 8 * BOX,
            _ => base + 0x4_0000,
        };
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&pointer(IN_BOXES, input.len()).to_be_bytes());
        let inline = input.len().min(16);
        entry[0x10..0x10 + inline].copy_from_slice(&input[..inline]);
        entry[0x30..0x38].copy_from_slice(&pointer(OUT_BOXES, outlen).to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(outlen as u32).to_be_bytes());
        entry[0x3c] = token;
        entry[0x3f] = 1;
        entry[0x3d] = !entry.iter().fold(0, |sum, byte| sum ^ byte);
        self.ram.write(QUEUE + slot * 64, &entry);
    }

    /// Rings the command doorbell.
    pub fn ring(&mut self, slots: u32) {
        self.set_register(0x18, slots);
    }

    /// Whether the device has handed the entry of `slot` back.
    pub fn answered(&mut self, slot: u32) -> bool {
        self.ram.memory().load_acquire_u8(QUEUE + u64::from(slot) * 64 + 0x3f).expect("inside memory") & 1 == 0
    }

    /// Waits for the answer of `slot`: by event once the command event queue exists, by polling before.
    pub fn wait(&mut self, slot: u32, outlen: usize) -> Answer {
        let end = Instant::now() + PATIENCE;
        if let Some(mut eq) = self.commands.take() {
            let mut done = 0;
            while done & 1 << slot == 0 {
                assert!(Instant::now() < end, "no event for slot {slot}");
                match self.take_event(&mut eq) {
                    Some(eqe) => {
                        assert_eq!(eqe[1], 0x0a, "a command event");
                        done |= u32::from_be_bytes(eqe[0x20..0x24].try_into().unwrap());
                    }
                    None => {
                        self.arm(&eq);
                        self.vectors[0].wait(Duration::from_millis(50));
                    }
                }
            }
            self.commands = Some(eq);
            assert!(self.answered(slot), "an event before the answer");
        } else {
            while !self.answered(slot) {
                assert!(Instant::now() < end, "slot {slot} is never answered");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        let entry = self.ram.read(QUEUE + u64::from(slot) * 64, 64);
        let mut output = entry[0x20..0x30].to_vec();
        let boxes = outlen.saturating_sub(16).div_ceil(512) as u64;
        let base = if boxes <= 8 { OUT_BOXES + u64::from(slot) * 8 * BOX } else { OUT_BOXES + 0x4_0000 };
        for i in 0..boxes {
            output.extend(self.ram.read(base + i * BOX, 512));
        }
        output.truncate(outlen.max(16));
        Answer { delivery: entry[0x3f] >> 1, output }
    }

    /// Runs a command.
    pub fn exec(&mut self, input: &[u8], outlen: usize) -> Answer {
        let slot = if input[..2] == [0x01, 0x08] { PAGE_SLOT } else { u32::from(self.token) % PAGE_SLOT };
        self.post(slot, input, outlen);
        self.ring(1 << slot);
        self.wait(slot, outlen)
    }

    /// Runs a command that must succeed.
    pub fn ok(&mut self, input: &[u8], outlen: usize) -> Vec<u8> {
        let answer = self.exec(input, outlen);
        let opcode = u16::from_be_bytes([input[0], input[1]]);
        assert_eq!((answer.delivery, answer.status()), (0, 0), "{opcode:#x}: syndrome {:#x}", answer.syndrome());
        answer.output
    }

    /// Gives what QUERY_PAGES with `op_mod` asks for.
    pub fn give_pages(&mut self, op_mod: u16) {
        let out = self.ok(&input(0x107, op_mod, 16), 16);
        let wanted = QueryPagesOut::new(&out[..]).unwrap().num_pages() as i32;
        let mut left = usize::try_from(wanted).expect("more pages wanted");
        while left > 0 {
            let count = left.min(512);
            let mut give = ManagePagesIn::with_tail(8 * count);
            give.set_opcode(0x108);
            give.set_op_mod(1);
            give.set_input_num_entries(count as u32);
            for slot in give.pas_mut().chunks_exact_mut(8) {
                slot.copy_from_slice(&self.next_page.to_be_bytes());
                assert!(self.given.insert(self.next_page));
                self.next_page += 4096;
            }
            self.ok(give.as_bytes(), 16);
            self.pages.0 += count as u64;
            left -= count;
        }
    }

    /// Takes pages back until there are no more.
    pub fn reclaim_pages(&mut self) {
        loop {
            let mut take = input(0x108, 2, 16);
            take[12..16].copy_from_slice(&512u32.to_be_bytes());
            let out = self.ok(&take, 16 + 512 * 8);
            let count = u32::from_be_bytes(out[8..12].try_into().unwrap());
            if count == 0 {
                return;
            }
            for entry in out[16..].chunks_exact(8).take(count as usize) {
                let page = u64::from_be_bytes(entry.try_into().unwrap());
                assert!(self.given.remove(&page), "{page:#x} was not given, or was returned before");
                self.pages.1 += 1;
            }
        }
    }

    /// Pages that the firmware holds.
    pub fn lent(&self) -> usize {
        self.given.len()
    }

    /// Creates an event queue.
    pub fn create_eq(&mut self, uid: u16, vector: u32, events: u64, log_size: u32) -> Eq {
        let at = self.memory(64 << log_size, 0xff);
        let pages = (64u64 << log_size).div_ceil(4096);
        let mut create = CreateEqIn::with_tail(8 * pages as usize);
        create.set_opcode(0x301);
        create.set_uid(u32::from(uid));
        create.set_event_bitmask(0, events);
        let mut context = create.eq_context_entry_mut();
        context.set_log_eq_size(log_size);
        context.set_intr(vector);
        context.set_uar_page(self.uar);
        pas(create.pas_mut(), at);
        let out = self.ok(create.as_bytes(), 16);
        let eq = Eq { eqn: u32::from(out[11]), at, log_size, next: 0 };
        self.arm(&eq);
        eq
    }

    /// Arms an event queue at what was taken from it.
    pub fn arm(&mut self, eq: &Eq) {
        let offset = u64::from(self.uar) * 4096 + 0x40;
        self.set_register(offset, eq.eqn << 24 | eq.next & 0xff_ffff);
    }

    /// Takes the next event, if it is there.
    pub fn take_event(&mut self, eq: &mut Eq) -> Option<Vec<u8>> {
        let at = eq.at + 64 * u64::from(eq.next & ((1 << eq.log_size) - 1));
        let owner = self.ram.memory().load_acquire_u8(at + 63).expect("inside memory") & 1;
        if u32::from(owner) != eq.next >> eq.log_size & 1 {
            return None;
        }
        eq.next += 1;
        Some(self.ram.read(at, 64))
    }

    /// Waits for the interrupt of `vector` and takes the event behind it.
    pub fn wait_event(&mut self, vector: usize, eq: &mut Eq) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            // An interrupt may be left over from an event that was taken already.
            self.vectors[vector].wait(PATIENCE).expect("an interrupt");
            if let Some(eqe) = self.take_event(eq) {
                self.arm(eq);
                return eqe;
            }
            assert!(Instant::now() < end, "interrupts without events");
            self.arm(eq);
        }
    }

    /// The UAR page of the driver's own queues.
    pub fn uar(&self) -> u32 {
        self.uar
    }

    /// From ENABLE_HCA to the end of INIT_HCA, with what the driver sends in between.
    pub fn init_hca(&mut self) {
        self.ok(&input(0x104, 0, 16), 16);
        let out = self.ok(&input(0x10a, 0, 16), 0x70);
        assert_eq!(out[0x6f] & 3, 3, "interface steps 0 and 1");
        self.ok(&naming(0x10b, 1), 16);
        self.give_pages(1);
        // Host endianness.
        let mut access = input(0x805, 0, 0x20);
        access[8..12].copy_from_slice(&0x7004u32.to_be_bytes());
        self.ok(&access, 0x20);
        for cap_type in [0u16, 3, 4, 0x20] {
            let known = self.exec(&input(0x100, cap_type << 1 | 1, 16), 0x1010);
            if known.status() != 0 {
                continue; // not advertised, and then nobody asks
            }
            self.ok(&input(0x100, cap_type << 1, 16), 0x1010);
            let mut set = input(0x109, cap_type << 1, 0x1010);
            if cap_type == 3 {
                set[0x18] = 0x40; // zeroes but for the endianness mode
            } else {
                set[16..].copy_from_slice(&known.output[16..]);
            }
            self.ok(&set, 16);
        }
        self.give_pages(2);
        self.ok(&input(0x102, 0, 0x20), 16);
        for cap_type in [0u16, 1, 3, 4, 7, 0xf] {
            self.ok(&input(0x100, cap_type << 1 | 1, 16), 0x1010);
        }
        self.ok(&input(0x101, 0, 16), 0x110);
    }

    /// The UAR page and the event queues of the core driver: commands, asynchronous events, page requests. From here
    /// on commands are answered by event. Returns the last two.
    pub fn load(&mut self) -> (Eq, Eq) {
        self.uar = number(&self.ok(&input(0x802, 0, 16), 16));
        let commands = self.create_eq(0, 0, 1 << 0x0a, 8);
        self.commands = Some(commands);
        let asynchronous = self.create_eq(0, 0, 0x1f_02be, 8);
        let pages = self.create_eq(0, 0, 1 << 0x0b, 8);
        (asynchronous, pages)
    }

    /// Undoes [`Driver::load`].
    pub fn unload(&mut self, (asynchronous, pages): (Eq, Eq)) {
        self.ok(&naming(0x302, pages.eqn), 16);
        self.ok(&naming(0x302, asynchronous.eqn), 16);
        // Back to polling before the command event queue goes.
        let commands = self.commands.take().expect("loaded");
        self.ok(&naming(0x302, commands.eqn), 16);
        let uar = self.uar;
        self.ok(&naming(0x803, uar), 16);
    }

    /// TEARDOWN_HCA, the return of every page, DISABLE_HCA.
    pub fn tear_down(&mut self) {
        self.ok(&input(0x103, 0, 16), 16);
        self.reclaim_pages();
        self.ok(&input(0x105, 0, 16), 16);
    }
}

/// Fills a page list with the pages from `at` on.
pub fn pas(list: &mut [u8], at: u64) {
    for (i, entry) in list.chunks_exact_mut(8).enumerate() {
        entry.copy_from_slice(&(at + 4096 * i as u64).to_be_bytes());
    }
}
