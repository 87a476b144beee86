//! A hostile VMM on the socket: messages, sensible and not, with any descriptors, cut into any pieces.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use cx10::device::hca::Phase;
use cx10::engine::Device;
use cx10::sys;
use cx10::transport::message::{HEADER_SIZE, MAX_DATA, flag};
use cx10::transport::server::{NEGOTIATION_NS, Server};

use cx10::trace::Trace;

use crate::input::Input;
use crate::machine::Machine;
use crate::mailbox::furnish;

const STEPS: usize = 48;
/// The longest reply: a region read of the most bytes.
const LONGEST_REPLY: usize = HEADER_SIZE + 16 + MAX_DATA;
const VERSION: &[u8] = b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576}}\0";

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

struct State {
    machine: Machine,
    /// What a client may pass.
    fds: Vec<OwnedFd>,
    open: Option<usize>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    STATE.with_borrow_mut(|state| {
        let state =
            state.get_or_insert_with(|| State { machine: Machine::new(Trace::off()), fds: descriptors(), open: None });
        serve(&mut state.machine, &state.fds, input);
        let open = open_descriptors();
        let before = *state.open.get_or_insert(open);
        assert_eq!(open, before, "descriptors are kept");
    });
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn descriptors() -> Vec<OwnedFd> {
    let null = File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
    let (socket, _) = UnixStream::pair().expect("a socket pair");
    vec![
        sys::memfd("cx10-fuzz-fixed", 1 << 20, true).expect("a memfd"),
        sys::memfd("cx10-fuzz-loose", 1 << 20, false).expect("a memfd"),
        sys::eventfd(true).expect("an eventfd"),
        sys::eventfd(false).expect("an eventfd"),
        null.into(),
        socket.into(),
    ]
}

fn serve(machine: &mut Machine, fds: &[OwnedFd], input: &mut Input<'_>) {
    machine.renew();
    let setup = input.u8();
    if setup & 1 != 0 {
        machine.rig.bring_up();
        if setup & 2 != 0 {
            furnish(machine);
        }
    }
    if setup & 4 != 0 {
        // A VMM starts with no memory mapped.
        machine.rig.function.bus_mut().map_mut().unmap_all();
    }
    let layout = machine.rig.function.layout();
    let mut server = Server::detached(layout);
    let (client, stream) = UnixStream::pair().expect("a socket pair");
    client.set_nonblocking(true).expect("a socket");
    stream.set_nonblocking(true).expect("a socket");
    server.attach(stream, 0);
    let mut peer = Peer { stream: client, replies: Vec::new(), id: 0 };
    let negotiated = setup & 8 == 0;
    if negotiated {
        let mut hello = header(0, 1, HEADER_SIZE + VERSION.len(), 0);
        hello.extend_from_slice(VERSION);
        peer.send(&hello, &[]);
    }
    let mut gone = false;
    for now in 0..STEPS as u64 {
        if input.is_empty() || gone {
            break;
        }
        step(&mut peer, machine, fds, input);
        gone = pump(&mut server, machine, &mut peer, now);
    }
    // The file may have been made shorter.
    let loose = File::from(fds[1].try_clone().expect("a descriptor"));
    loose.set_len(1 << 20).expect("an unsealed memfd");
    if !negotiated && !gone && server.deadline().is_some() {
        assert!(server.on_deadline(NEGOTIATION_NS).is_some(), "a client that does not negotiate has to go");
    }
    server.disconnect(&mut machine.rig.function);
    let function = &mut machine.rig.function;
    assert!(function.bus_mut().map().is_empty(), "maps outlive their client");
    let irq = function.irq();
    assert!((0..irq.count()).all(|vector| !irq.connected(vector)), "eventfds outlive their client");
    assert_eq!((function.hca().phase(), function.hca().census().len()), (Phase::Disabled, 0));
    machine.renew();
    machine.next_driver();
}

/// Lets server and device do what there is to do; whether the client is gone.
fn pump(server: &mut Server, machine: &mut Machine, peer: &mut Peer, now: u64) -> bool {
    for _ in 0..10_000 {
        let progress = server.on_ready(&mut machine.rig.function, now);
        let work = Device::run(&mut machine.rig.function, now);
        peer.receive();
        if progress.gone.is_some() {
            return true;
        }
        if !progress.more && progress.handled == 0 && !work.more && !server.wants_write() {
            return false;
        }
    }
    panic!("the server never becomes idle");
}

struct Peer {
    stream: UnixStream,
    replies: Vec<u8>,
    id: u16,
}

impl Peer {
    /// Sends, as far as there is room.
    fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = sys::send(self.stream.as_fd(), bytes, fds);
    }

    /// Reads replies and checks their form.
    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = self.stream.read(&mut bytes) {
            self.replies.extend_from_slice(&bytes[..n]);
        }
        let word =
            |bytes: &[u8], at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        while self.replies.len() >= HEADER_SIZE {
            let (size, flags, error) =
                (word(&self.replies, 4) as usize, word(&self.replies, 8), word(&self.replies, 12));
            assert!((HEADER_SIZE..=LONGEST_REPLY).contains(&size), "a reply of {size} bytes");
            assert_eq!(flags & !flag::ERROR, flag::REPLY, "flags {flags:#x}");
            let failed = flags & flag::ERROR != 0;
            assert_eq!(failed, error != 0, "an error has an errno");
            assert!(!failed || size == HEADER_SIZE, "an error with a payload");
            if self.replies.len() < size {
                break;
            }
            self.replies.drain(..size);
        }
    }
}

fn header(id: u16, command: u16, size: usize, flags: u32) -> Vec<u8> {
    let mut bytes = id.to_ne_bytes().to_vec();
    bytes.extend(command.to_ne_bytes());
    bytes.extend((size as u32).to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn step(peer: &mut Peer, machine: &mut Machine, fds: &[OwnedFd], input: &mut Input<'_>) {
    let how = input.u8();
    let mut bytes = match how % 8 {
        0 => {
            let len = input.below(512);
            input.bytes(len).to_vec()
        }
        1 => {
            // A guest at work, while its VMM misbehaves.
            let (command, out) = machine.invent(input);
            machine.rig.post(0, &command, out);
            message(peer, 10, 0, &region_access(0x18, 0, 4, &[0, 0, 0, 1]))
        }
        2 => {
            let loose = File::from(fds[1].try_clone().expect("a descriptor"));
            loose.set_len(u64::from(input.u8() % 8) * 4096 * 32).expect("an unsealed memfd");
            return;
        }
        _ => any_message(peer, input),
    };
    if how & 0x80 != 0 {
        // Damage.
        let at = input.below(bytes.len());
        let patch = input.bytes(8).iter();
        bytes[at..].iter_mut().zip(patch).for_each(|(to, from)| *to = *from);
    }
    let count = match how >> 3 & 7 {
        0..=2 => 0,
        3..=5 => 1,
        6 => usize::from(input.u8() % 4),
        _ => usize::from(input.u8() % 20),
    };
    let chosen: Vec<BorrowedFd<'_>> = (0..count).map(|_| fds[input.below(fds.len())].as_fd()).collect();
    if how & 0x40 != 0 {
        let (first, second) = bytes.split_at(input.below(bytes.len()));
        let late = input.one_in(2);
        peer.send(first, if late { &[] } else { &chosen });
        peer.send(second, if late { &chosen } else { &[] });
    } else {
        peer.send(&bytes, &chosen);
    }
}

fn message(peer: &mut Peer, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    peer.id = peer.id.wrapping_add(1);
    let mut bytes = header(peer.id, command, HEADER_SIZE + payload.len(), flags);
    bytes.extend_from_slice(payload);
    bytes
}

fn region_access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let mut payload = offset.to_ne_bytes().to_vec();
    payload.extend(region.to_ne_bytes());
    payload.extend(count.to_ne_bytes());
    payload.extend_from_slice(data);
    payload
}

/// A message whose fields are mostly plausible.
fn any_message(peer: &mut Peer, input: &mut Input<'_>) -> Vec<u8> {
    let command = u16::from(input.u8() % 20);
    let flags = match input.u8() % 8 {
        0 | 1 => flag::NO_REPLY,
        2 => input.u32(),
        _ => 0,
    };
    let mut payload = Vec::new();
    let number = |input: &mut Input<'_>, plain: &[u64]| match input.u8() % 4 {
        0 => input.u64(),
        _ => input.pick(plain),
    };
    const PAGES: [u64; 7] = [0, 0x1000, 0x2000, 0x10_0000, 0x100_0000, 0x4000_0000, 0xffff_ffff_ffff_f000];
    let argsz = |input: &mut Input<'_>, size: u32| if input.one_in(8) { input.u32() } else { size };
    match command {
        1 => {
            let text: &[u8] = match input.u8() % 3 {
                0 => VERSION,
                1 => b"\0\0\0\0{}\0",
                _ => {
                    let len = input.below(300);
                    input.bytes(len)
                }
            };
            payload.extend_from_slice(text);
        }
        2 => {
            payload.extend(argsz(input, 32).to_ne_bytes());
            payload.extend((number(input, &[1, 2, 3]) as u32).to_ne_bytes());
            (0..3).for_each(|_| payload.extend(number(input, &PAGES).to_ne_bytes()));
        }
        3 => {
            payload.extend(argsz(input, 24).to_ne_bytes());
            payload.extend((number(input, &[0, 0, 2]) as u32).to_ne_bytes());
            (0..2).for_each(|_| payload.extend(number(input, &PAGES).to_ne_bytes()));
        }
        4..=7 => {
            payload.extend(argsz(input, 64).to_ne_bytes());
            payload.extend([0; 4]);
            payload.extend((number(input, &[0, 2, 7, 8]) as u32).to_ne_bytes());
            payload.resize(if command == 5 { 32 } else { 16 }, 0);
        }
        8 => {
            payload.extend(argsz(input, 20).to_ne_bytes());
            payload.extend((number(input, &[0x21, 0x24, 0x22, 0x0c, 0x11]) as u32).to_ne_bytes());
            payload.extend((number(input, &[2, 2, 2, 0, 3]) as u32).to_ne_bytes());
            payload.extend((number(input, &[0, 1, 31]) as u32).to_ne_bytes());
            payload.extend((number(input, &[0, 1, 2, 64]) as u32).to_ne_bytes());
            let len = input.below(8);
            payload.extend_from_slice(input.bytes(len));
        }
        9 | 10 | 15 => {
            if command == 15 {
                payload.extend(number(input, &[1, 2, 3]).to_ne_bytes());
            }
            for _ in 0..if command == 15 { input.u8() % 5 } else { 1 } {
                let offset =
                    number(input, &[0, 4, 0x10, 0x14, 0x18, 0x44, 0x68, 0x1000, 0x1_0040, 0x1_0800, 0x100_0000]);
                let region = number(input, &[0, 0, 7, 1, 9]) as u32;
                let len = input.pick(&[1, 2, 4, 4, 8, 64, 512]);
                let mut data = vec![0; len];
                data.iter_mut().zip(input.bytes(len)).for_each(|(to, from)| *to = *from);
                let count = if input.one_in(8) { input.u32() } else { len as u32 };
                if command == 9 {
                    data.clear();
                }
                if command == 15 {
                    data.resize(8, 0);
                }
                payload.extend(region_access(offset, region, count, &data));
            }
        }
        _ => {
            let len = input.below(64);
            payload.extend_from_slice(input.bytes(len));
        }
    }
    message(peer, command, flags, &payload)
}
