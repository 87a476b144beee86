//! The function with its machine: memory, a driver's steps, and what must hold after any input.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cx10::device::hca::Phase;
use cx10::device::objects::{Kind, ObjRef};
use cx10::dma::map::Rights;
use cx10::dma::{Iova, MemoryMap};
use cx10::prm::{Opcode, bits};
use cx10::profile::{CapMode, Profile};
use cx10::testing::{Answer, FREE, Rig};
use cx10::trace::{Header, Options, Trace};

use crate::grammar::{self, Form, Leaf};
use crate::input::Input;
use crate::templates::{TEMPLATES, Tail, Template};

/// Buffers that commands name are the first page of a slot; the rest of the slot is nobody's.
pub const SLOT: u64 = 64 << 10;
/// Number of slots.
pub const SLOTS: u64 = 64;
const PAGE: u64 = 4096;
/// Memory that no input names.
const CANARY: u64 = 0x5ca1_ab1e_0000_0000;
const CANARY_SIZE: u64 = 8 * PAGE;
const CANARY_BYTE: u8 = 0xa5;
/// Values of outputs that are remembered.
const HISTORY: usize = 64;
/// The VMM waits while the function works; even on a busy machine no portion of work takes this long.
const PORTION_SECONDS: u64 = 3;

/// A rig that one input after the other is tried on.
pub struct Machine {
    /// The driver.
    pub rig: Rig,
    canary: MemoryMap,
    canary_fd: OwnedFd,
    history: Vec<u32>,
    last: Vec<(u16, Vec<u8>)>,
    used: u64,
    next_slot: u64,
    /// Basic blocks that were posted to queue pairs.
    pub posted: BTreeMap<u32, u16>,
    /// The input may have named memory between the buffers.
    anywhere: bool,
}

impl Machine {
    /// A machine with the default profile, but few pages, so that coming up is cheap.
    pub fn new(trace: Trace) -> Machine {
        let sets = ["pages.boot=4", "pages.init=60"];
        Machine::with(Profile::with("connectx10-c2c", &sets).expect("a valid profile"), trace)
    }

    /// A machine with another profile.
    pub fn with(profile: Profile, trace: Trace) -> Machine {
        let canary_fd = cx10::sys::memfd("cx10-canary", CANARY_SIZE, true).expect("a memfd");
        let mut canary = MemoryMap::new();
        canary.map(Iova(CANARY), CANARY_SIZE, Rights::ReadWrite, Some(canary_fd.as_fd()), 0).expect("fresh map");
        canary.write(Iova(CANARY), &[CANARY_BYTE; CANARY_SIZE as usize]).expect("mapped");
        let mut machine = Machine {
            rig: Rig::traced(profile, trace),
            canary,
            canary_fd,
            history: Vec::new(),
            last: Vec::new(),
            used: 0,
            next_slot: 0,
            posted: BTreeMap::new(),
            anywhere: false,
        };
        machine.rig.sign_mailboxes = true;
        machine.renew();
        machine
    }

    /// As new: nothing of the last input is left.
    pub fn renew(&mut self) {
        self.rig.renew();
        let map = self.rig.function.bus_mut().map_mut();
        map.map(Iova(CANARY), CANARY_SIZE, Rights::ReadWrite, Some(self.canary_fd.as_fd()), 0).expect("fresh map");
        self.history.clear();
        self.last.clear();
        self.posted.clear();
        (self.used, self.next_slot) = (0, 0);
        self.anywhere = false;
    }

    /// Every object that exists.
    pub fn live(&self) -> Vec<ObjRef> {
        let objects = &self.rig.function.hca().objects;
        let users = objects.uctxs.iter().map(|(uid, _)| uid as u16);
        let uids = [0, cx10::device::objects::SHARED_UID].into_iter().chain(users);
        uids.flat_map(|uid| objects.owned_by(uid)).collect()
    }

    /// The address of a slot's buffer.
    pub fn buffer(&mut self, slot: u64) -> u64 {
        let slot = slot % SLOTS;
        self.used |= 1 << slot;
        FREE + slot * SLOT
    }

    /// A command of which only the form is given.
    fn blank(&self, form: &Form) -> Vec<u8> {
        let mut blank = vec![0; form.len];
        blank[..2].copy_from_slice(&form.opcode.0.to_be_bytes());
        form.preset.iter().for_each(|(offset, width, value)| bits::set(&mut blank, *offset, *width, *value));
        blank
    }

    /// A well-formed command as a careful driver would send it: objects that exist, buffers that exist, all else 0.
    pub fn careful(&mut self, form: &Form) -> Vec<u8> {
        let live = self.live();
        let mut input = self.blank(form);
        if let Some(cap_type) = form.capabilities {
            let caps = &self.rig.function.hca().caps;
            let area = caps.area(cap_type, CapMode::Cur).map(|area| area.to_vec()).unwrap_or_default();
            input.truncate(16);
            input.extend(area);
            input.resize(form.len, 0);
            return input;
        }
        for (i, leaf) in form.leaves.iter().enumerate() {
            if leaf.address {
                let at = self.buffer(SLOTS - 1 - i as u64 % 4);
                set(&mut input, leaf, at);
            } else if leaf.name == "local_port" {
                set(&mut input, leaf, 1);
            } else if leaf.width >= 8 && leaf.kinds != 0 && !leaf.rare {
                if let Some(object) = live.iter().rev().find(|object| leaf.may_name(object.kind)) {
                    set(&mut input, leaf, u64::from(object.id));
                }
            }
        }
        if form.tail {
            (0..8).for_each(|i| input.extend(self.buffer(i).to_be_bytes()));
        }
        input
    }

    /// A command as a driver sends it.
    pub fn template(&mut self, template: &Template) -> Option<(Vec<u8>, usize)> {
        let opcode = template.opcode;
        let form = grammar::form(opcode)?;
        let mut input = self.careful(form);
        input.truncate(form.len);
        input[6..8].copy_from_slice(&template.op_mod.to_be_bytes());
        for (path, value) in template.fields {
            let leaf = form.leaves.iter().find(|leaf| leaf.path == *path);
            let leaf = leaf.unwrap_or_else(|| panic!("{opcode} has no field {path}"));
            set(&mut input, leaf, *value);
        }
        let of_kind = |live: Vec<ObjRef>, wanted: Kind| -> Vec<u32> {
            live.into_iter().filter(|object| object.kind == wanted).map(|object| object.id).collect()
        };
        match template.tail {
            Tail::None => {}
            Tail::Pages(low) => {
                let first = self.next_slot;
                self.next_slot += 4;
                (0..8).for_each(|i| input.extend((self.buffer(first + i) | low).to_be_bytes()));
            }
            Tail::Numbers(kind, high) => {
                of_kind(self.live(), kind).iter().for_each(|id| input.extend((id | high).to_be_bytes()));
            }
            Tail::Klms => {
                let keys = of_kind(self.live(), Kind::Mkey);
                for i in 0..4 {
                    let key = keys.get(i % keys.len().max(1)).map_or(0, |key| key << 8);
                    let at = self.buffer(i as u64);
                    input.extend(0x800u32.to_be_bytes());
                    input.extend(key.to_be_bytes());
                    input.extend(at.to_be_bytes());
                }
            }
            Tail::Destinations(kind, high) => of_kind(self.live(), kind)
                .iter()
                .for_each(|id| input.extend((u64::from(high) << 56 | u64::from(*id) << 32).to_be_bytes())),
        }
        Some((input, form.out_len))
    }

    /// A command of some form: careful, the last of its kind that succeeded, or blank; then some fields changed.
    pub fn invent(&mut self, input: &mut Input<'_>) -> (Vec<u8>, usize) {
        let form = grammar::any(input);
        let style = input.u8();
        let last = self.last.iter().find(|(opcode, _)| *opcode == form.opcode.0).map(|(_, bytes)| bytes.clone());
        let mut bytes = match (style & 3, last) {
            (0, _) => self.blank(form),
            (1, Some(last)) => last,
            (3, _) => {
                let fitting: Vec<&Template> = TEMPLATES.iter().filter(|t| t.opcode == form.opcode).collect();
                match fitting.get(input.below(fitting.len())) {
                    Some(template) => self.template(template).map_or_else(Vec::new, |(bytes, _)| bytes),
                    None => self.careful(form),
                }
            }
            _ => self.careful(form),
        };
        let live = self.live();
        let changes = if form.leaves.is_empty() { 0 } else { usize::from(style >> 2 & 7) };
        for _ in 0..changes {
            let leaf = &form.leaves[input.below(form.leaves.len())];
            let value = self.value(leaf, &live, input);
            set(&mut bytes, leaf, value);
        }
        match style >> 5 {
            // A tail of another length, or of other bytes.
            1 => bytes.resize(input.below(1 << 13), 0),
            2 => bytes.extend((0..input.u8()).flat_map(|i| self.buffer(u64::from(i)).to_be_bytes())),
            3 => {
                bytes.truncate(form.len);
                let len = input.below(600);
                bytes.extend_from_slice(input.bytes(len));
            }
            4 => {
                let at = input.below(bytes.len());
                let len = input.below(64);
                let patch = input.bytes(len).iter();
                bytes[at..].iter_mut().zip(patch).for_each(|(to, from)| *to = *from);
            }
            _ => {}
        }
        let out = match input.u8() % 8 {
            6 => input.below(0x3000),
            7 => form.out_len + input.below(0x2000),
            _ => form.out_len.max(input.u8().into()),
        };
        (bytes, out)
    }

    fn value(&mut self, leaf: &Leaf, live: &[ObjRef], input: &mut Input<'_>) -> u64 {
        let choice = input.u8();
        match choice % 4 {
            0 if leaf.width >= 4 => {
                let fitting: Vec<u32> =
                    live.iter().filter(|object| leaf.may_name(object.kind)).map(|object| object.id).collect();
                match (fitting.is_empty(), live.is_empty()) {
                    (false, _) => u64::from(fitting[input.below(fitting.len())]),
                    (true, false) => u64::from(live[input.below(live.len())].id),
                    _ => input.number(leaf.width),
                }
            }
            1 if leaf.width >= 32 => self.buffer(u64::from(input.u8())) + u64::from(choice >> 2) * 64,
            1 if leaf.width >= 8 && !self.history.is_empty() => {
                u64::from(self.history[input.below(self.history.len())])
            }
            _ => input.number(leaf.width),
        }
    }

    /// Runs a command. The device answers every command while its interface is in use.
    pub fn command(&mut self, bytes: &[u8], out: usize) -> Option<Answer> {
        self.note(bytes);
        if !self.answers() {
            self.rig.post(0, bytes, out);
            self.ring(1);
            return None;
        }
        let started = Instant::now();
        let answer = self.rig.exec(bytes, out);
        assert!(started.elapsed().as_secs() < PORTION_SECONDS, "a command takes {:?}", started.elapsed());
        if answer.delivery == 0 && answer.status() == 0 {
            self.learn(bytes, &answer);
        }
        if std::env::var_os("CX10_LOG").is_some() {
            let opcode = Opcode(u16::from_be_bytes([bytes[0], bytes[1]]));
            let (delivery, status, syndrome) = (answer.delivery, answer.status(), answer.syndrome());
            eprintln!("{opcode} {bytes:02x?} out={out:#x}: {delivery:#x} {status:#x} {syndrome:#x}");
        }
        Some(answer)
    }

    fn learn(&mut self, bytes: &[u8], answer: &Answer) {
        let opcode = u16::from_be_bytes([bytes[0], bytes[1]]);
        match self.last.iter_mut().find(|(op, _)| *op == opcode) {
            Some((_, last)) => last.clone_from(&bytes.to_vec()),
            None => self.last.push((opcode, bytes.to_vec())),
        }
        for word in answer.output.get(8..16).unwrap_or_default().chunks_exact(4) {
            let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            for value in [word, word & 0xff_ffff] {
                if value != 0 && !self.history.contains(&value) && self.history.len() < HISTORY {
                    self.history.push(value);
                }
            }
        }
    }

    /// Watches what addresses an input names.
    pub fn note(&mut self, bytes: &[u8]) {
        let between = |word: u32| {
            let at = u64::from(word);
            (FREE..FREE + SLOTS * SLOT).contains(&at) && at % SLOT >= PAGE - 0x200
        };
        let words = bytes.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
        if words.clone().any(between) || words.clone().any(|word| u64::from(word) == CANARY >> 32) {
            self.anywhere = true;
        }
        // A key on physical addresses, or pages that are larger than a slot's buffer, may cover anything.
        let Some(opcode) = bytes.first_chunk().map(|b| Opcode(u16::from_be_bytes(*b))) else { return };
        let Some(form) = grammar::form(opcode) else { return };
        if opcode == Opcode::CREATE_MKEY
            || form.leaves.iter().filter(|leaf| leaf.enlarges).any(|leaf| get(bytes, leaf) != 0)
        {
            self.anywhere = true;
        }
    }

    /// Whether the device answers commands: its interface is in use, and it is not in internal error.
    pub fn answers(&mut self) -> bool {
        self.rig.bar(0x14) >> 8 & 7 == 0 && !self.rig.function.hca().internal_error()
    }

    /// Rings the command doorbell for several slots and waits until the device is idle.
    pub fn ring(&mut self, slots: u32) {
        self.rig.function.bar_write(0x18, &slots.to_be_bytes());
        self.settle();
    }

    /// Lets the device work until it is idle, which it must become.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.portion() {
                return;
            }
        }
        panic!("the device never becomes idle");
    }

    /// One portion of work; whether there is more.
    pub fn portion(&mut self) -> bool {
        let started = Instant::now();
        let more = self.rig.function.work().more;
        assert!(started.elapsed().as_secs() < PORTION_SECONDS, "a portion of work takes {:?}", started.elapsed());
        more
    }

    /// Resets the function as a guest does through its PCI Express capability, and finds its command queue again.
    pub fn function_level_reset(&mut self) {
        self.rig.function.config_write(0x68, &[0x10, 0xa8]);
        self.rig.forget_pages();
        self.rig.enable();
    }

    /// What must hold after every input: memory that nobody named is unchanged, everything can be taken down, and the
    /// next driver finds a working function.
    pub fn finish(&mut self, graceful: bool) {
        self.settle();
        self.check_memory();
        self.audit();
        if graceful && self.answers() {
            self.take_down(self.rig.function.hca().phase());
        }
        self.function_level_reset();
        assert_eq!(self.rig.function.hca().census().len(), 0, "a reset leaves no object");
        self.next_driver();
    }

    fn take_down(&mut self, phase: Phase) {
        if phase == Phase::Disabled {
            return;
        }
        let lent = self.rig.function.hca().objects.pages.counters().lent;
        if phase == Phase::Running {
            self.rig.ok(&Rig::input(0x103, 0, 16), 16);
        }
        assert_eq!(self.rig.take_pages(), lent, "every page comes back");
        self.rig.ok(&Rig::input(0x105, 0, 16), 16);
        assert_eq!(self.rig.function.hca().census().len(), 0, "a teardown leaves no object");
    }

    /// Goes all the way up and down.
    pub fn next_driver(&mut self) {
        self.rig.bring_up();
        let lent = self.rig.function.hca().objects.pages.counters().lent;
        assert_eq!(self.rig.tear_down(), lent, "every page comes back to the next driver");
        assert_eq!(self.rig.function.hca().census().len(), 0);
        crate::assert_nothing_kept();
    }

    /// Reference counts and charges agree with the objects.
    pub fn audit(&self) {
        assert_eq!(self.rig.function.hca().audit(), Ok(()));
    }

    fn check_memory(&self) {
        if self.anywhere {
            return;
        }
        let mut bytes = [0; CANARY_SIZE as usize];
        self.canary.read(Iova(CANARY), &mut bytes).expect("mapped");
        assert!(bytes.iter().all(|b| *b == CANARY_BYTE), "the device wrote where no input pointed");
        for slot in (0..SLOTS).filter(|slot| self.used >> slot & 1 != 0) {
            for at in [FREE + slot * SLOT + PAGE, FREE + slot * SLOT + SLOT - PAGE] {
                assert!(
                    self.rig.read(at, PAGE as usize).iter().all(|b| *b == 0),
                    "the device wrote outside of a buffer, at {at:#x}"
                );
            }
        }
    }
}

/// Memory that a trace is written to and that can be read meanwhile.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// What was written since the last call.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

/// A trace into a writer.
pub fn trace_to(writer: impl Write + Send + 'static) -> Trace {
    let meaning = cx10::cmdif::error::meaning;
    Trace::to_writer(Box::new(writer), "memory", &Header::default(), Options { full: true }, meaning)
        .expect("memory and sinks take everything")
}

/// Writes a number into a command, as far as it is there.
pub fn set(bytes: &mut [u8], leaf: &Leaf, value: u64) {
    if (leaf.offset + leaf.width).div_ceil(8) as usize <= bytes.len() {
        let mask = u64::MAX >> (64 - leaf.width);
        bits::set(bytes, leaf.offset, leaf.width, value & mask);
    }
}

fn get(bytes: &[u8], leaf: &Leaf) -> u64 {
    if (leaf.offset + leaf.width).div_ceil(8) as usize <= bytes.len() {
        bits::get(bytes, leaf.offset, leaf.width)
    } else {
        0
    }
}
