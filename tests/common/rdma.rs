//! RDMA as a user-space driver does it, over a real socket: keys, completion queues, queue pairs, work requests,
//! doorbells. Strict: every completion is checked for its owner bit, opcode and queue.

use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use cx10::prm::cq::CreateCqIn;
use cx10::prm::cqe::{Cqe, ErrCqe};
use cx10::prm::mkey::CreateMkeyIn;
use cx10::prm::qp::{CreateQpIn, Qpc, Rst2initQpIn};
use cx10::prm::values::{CqeOpcode, WqeOpcode};
use cx10::prm::vport::SetRoceAddressIn;
use cx10::prm::wqe::{AtomicSeg, CtrlSeg, DataSeg, RaddrSeg};
use cx10::sys::{Mapping, Protection};
use cx10::transport::layout::region;

use super::driver::{Driver, Eq, input, naming, number, pas};

const PATIENCE: Duration = Duration::from_secs(20);
const PAGE: u64 = 4096;
/// Register of send doorbells that is used first.
const SEND_REGISTER: u64 = 0x800;
const CQ_REGISTER: u64 = 0x20;
/// Bytes of a basic block.
const BLOCK: usize = 64;
const UNIT: usize = 16;
/// Bytes of the longest send entry.
const LONGEST: usize = 1008;

/// A driver with what verbs need: a protection domain, an address, an event queue for completions.
pub struct Rdma {
    pub driver: Driver,
    /// The doorbell pages, if the device lets them be mapped, and where they begin.
    pages: Option<(Mapping, u64)>,
    pub pd: u32,
    /// Takes completion events; vector 1.
    pub comp: Eq,
    /// Takes asynchronous events; vector 0.
    pub events: Eq,
    mac: [u8; 6],
    gid: [u8; 16],
}

/// A registered range of memory.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Local and remote key.
    pub key: u32,
    /// Where the memory is; also its virtual address.
    pub at: u64,
    pub len: u64,
}

/// A completion queue.
pub struct Cq {
    pub cqn: u32,
    at: u64,
    record: u64,
    log_size: u32,
    ci: u32,
    arm_sn: u32,
}

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub opcode: CqeOpcode,
    pub qpn: u32,
    /// Index of the send entry, or counter of the receive entry.
    pub index: u16,
    pub bytes: u32,
    pub immediate: u32,
    pub solicited: bool,
    /// Of an error.
    pub syndrome: u8,
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// log2 of the basic blocks of the send queue.
    pub log_send: u32,
    /// log2 of the entries of the receive queue, of 64 bytes each.
    pub log_receive: u32,
    /// Its doorbell page; the driver's own by default.
    pub uar: Option<u32>,
    /// Its send register within the page.
    pub register: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { log_send: 6, log_receive: 6, uar: None, register: SEND_REGISTER }
    }
}

/// A queue pair of a reliable connection.
#[derive(Clone, Debug)]
pub struct Qp {
    pub qpn: u32,
    uar: u32,
    /// Its send register within the page.
    pub register: u64,
    record: u64,
    receive_at: u64,
    send_at: u64,
    shape: Shape,
    posted: u16,
    received: u16,
    /// The first eight bytes of the entry that was posted last.
    bell: [u8; 8],
}

impl Qp {
    /// Its doorbell page.
    pub fn uar(&self) -> u32 {
        self.uar
    }

    /// What its doorbell carries now.
    pub fn bell(&self) -> [u8; 8] {
        self.bell
    }
}

/// A work request to send.
#[derive(Clone, Copy)]
pub struct Request {
    bytes: [u8; LONGEST],
    len: usize,
    opcode: WqeOpcode,
}

impl Request {
    pub fn new(opcode: WqeOpcode) -> Request {
        Request { bytes: [0; LONGEST], len: UNIT, opcode }
    }

    fn control(&mut self) -> CtrlSeg<&mut [u8]> {
        CtrlSeg::new(&mut self.bytes[..UNIT]).expect("its size")
    }

    fn segment(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len().next_multiple_of(UNIT);
    }

    /// Asks for a completion.
    pub fn signaled(mut self) -> Request {
        self.control().set_ce(2);
        self
    }

    /// Asks the receiver for a solicited event.
    pub fn solicited(mut self) -> Request {
        self.control().set_se(1);
        self
    }

    /// Fence mode.
    pub fn fence(mut self, mode: u32) -> Request {
        self.control().set_fence(mode);
        self
    }

    /// Immediate data, or the key to invalidate.
    pub fn immediate(mut self, value: u32) -> Request {
        self.control().set_imm(value);
        self
    }

    /// The remote address.
    pub fn remote(mut self, key: Key, offset: u64) -> Request {
        let mut segment = RaddrSeg::zeroed();
        segment.set_raddr(key.at + offset);
        segment.set_rkey(key.key);
        self.segment(segment.as_bytes());
        self
    }

    /// Operands of an atomic operation.
    pub fn operands(mut self, swap_add: u64, compare: u64) -> Request {
        let mut segment = AtomicSeg::zeroed();
        segment.set_swap_add(swap_add);
        segment.set_compare(compare);
        self.segment(segment.as_bytes());
        self
    }

    /// A piece of local memory. A piece of no bytes is left out, as drivers do: its count would stand for 2^31.
    pub fn data(mut self, key: Key, offset: u64, len: u32) -> Request {
        if len > 0 {
            self.segment(&data_segment(key, offset, len));
        }
        self
    }

    /// Inline data.
    pub fn inline(mut self, data: &[u8]) -> Request {
        let head = (1u32 << 31 | data.len() as u32).to_be_bytes();
        self.segment(&[&head, data].concat());
        self
    }

    /// As a send queue holds it.
    fn finish(&mut self, qpn: u32, index: u16) -> &[u8] {
        let (opcode, units) = (u32::from(self.opcode.0), (self.len / UNIT) as u32);
        let mut control = self.control();
        control.set_opcode(opcode);
        control.set_wqe_index(index.into());
        control.set_qpn(qpn);
        control.set_ds(units);
        &self.bytes[..self.len]
    }
}

fn data_segment(key: Key, offset: u64, len: u32) -> [u8; UNIT] {
    let mut segment = DataSeg::new([0; UNIT]).expect("its size");
    segment.set_byte_count(len);
    segment.set_lkey(key.key);
    segment.set_addr(key.at + offset);
    segment.into_inner()
}

impl Rdma {
    /// Attaches to a device and brings it up, as far as verbs need it.
    pub fn attach(socket: &Path) -> Rdma {
        let mut driver = Driver::attach(socket);
        driver.init_hca();
        Rdma::bring_up(driver)
    }

    /// The same with a driver whose HCA is initialized.
    pub fn bring_up(mut driver: Driver) -> Rdma {
        let info = driver.client.region_info(region::BAR0).expect("region info");
        let pages = info.fd.zip(info.areas.first().copied()).map(|(fd, (offset, size))| {
            use std::os::fd::AsFd;
            let file_offset = info.offset + offset;
            let mapping = Mapping::new(fd.as_fd(), file_offset, size, Protection::ReadWrite).expect("map doorbells");
            (mapping, offset)
        });
        let (events, _) = driver.load();
        let comp = driver.create_eq(0xffff, 1, 0, 10);
        let vport = driver.ok(&input(0x754, 0, 16), 0x110);
        let mac: [u8; 6] = vport[0x10 + 0xf6..0x10 + 0xfc].try_into().unwrap();
        let mut roce = input(0x755, 0, 0x200);
        roce[15] = 2; // roce_en is selected
        roce[0x103] = 1;
        driver.ok(&roce, 16);
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        let mut set = SetRoceAddressIn::zeroed();
        set.set_opcode(0x761);
        let mut address = set.roce_address_mut();
        address.set_source_l3_address(&gid);
        address.set_roce_version(2);
        address.set_source_mac_47_32(u16::from_be_bytes([mac[0], mac[1]]).into());
        address.set_source_mac_31_0(u32::from_be_bytes(mac[2..].try_into().unwrap()));
        driver.ok(set.as_bytes(), 16);
        let pd = number(&driver.ok(&input(0x800, 0, 16), 16));
        Rdma { driver, pages, pd, comp, events, mac, gid }
    }

    /// Whether doorbells go to memory.
    pub fn mapped(&self) -> bool {
        self.pages.is_some()
    }

    /// Guest memory.
    pub fn ram(&self) -> &Mapping {
        self.driver.ram.memory()
    }

    /// Allocates a doorbell page.
    pub fn alloc_uar(&mut self) -> u32 {
        number(&self.driver.ok(&input(0x802, 0, 16), 16))
    }

    /// Registers new memory of `len` bytes, in pages of 4 KiB, for every access, without any order.
    pub fn register(&mut self, len: u64) -> Key {
        let at = self.driver.data(len);
        self.register_at(at, len)
    }

    /// Registers memory that is there already.
    pub fn register_at(&mut self, at: u64, len: u64) -> Key {
        let pages = (at % PAGE + len).div_ceil(PAGE);
        // Two translations are one octoword.
        let octowords = pages.div_ceil(2);
        let mut create = CreateMkeyIn::with_tail(16 * octowords as usize);
        create.set_opcode(0x200);
        create.set_translations_octword_actual_size(octowords as u32);
        let mut context = create.memory_key_mkey_entry_mut();
        context.set_access_mode_1_0(1);
        for set in [mkc::set_lr, mkc::set_lw, mkc::set_rr, mkc::set_rw, mkc::set_a] {
            set(&mut context);
        }
        context.set_relaxed_ordering_write(1);
        context.set_relaxed_ordering_read(1);
        context.set_qpn(0xff_ffff);
        context.set_mkey_7_0(0x5a);
        context.set_pd(self.pd);
        context.set_start_addr(at);
        context.set_len(len);
        context.set_translations_octword_size(octowords as u32);
        context.set_log_page_size(12);
        pas(&mut create.klm_pas_mtt_mut()[..8 * pages as usize], at - at % PAGE);
        let index = number(&self.driver.ok(create.as_bytes(), 16));
        Key { key: index << 8 | 0x5a, at, len }
    }

    pub fn deregister(&mut self, key: Key) {
        self.driver.ok(&naming(0x202, key.key >> 8), 16);
    }

    /// A completion queue of `1 << log_size` entries whose requests for events go through `uar`.
    pub fn create_cq_on(&mut self, log_size: u32, uar: u32) -> Cq {
        let bytes = 64u64 << log_size;
        let (at, record) = (self.driver.memory(bytes, 0xff), self.driver.record());
        let mut create = CreateCqIn::with_tail(8 * bytes.div_ceil(PAGE) as usize);
        create.set_opcode(0x400);
        let mut context = create.cq_context_mut();
        context.set_log_cq_size(log_size);
        context.set_uar_page(uar);
        context.set_c_eqn_or_apu_element(self.comp.eqn);
        context.set_dbr_addr(record);
        pas(create.pas_mut(), at);
        let cqn = number(&self.driver.ok(create.as_bytes(), 16));
        Cq { cqn, at, record, log_size, ci: 0, arm_sn: 0 }
    }

    pub fn create_cq(&mut self, log_size: u32) -> Cq {
        let uar = self.driver.uar();
        self.create_cq_on(log_size, uar)
    }

    /// A queue pair in reset.
    pub fn create_qp(&mut self, shape: Shape, send: &Cq, receive: &Cq) -> Qp {
        let (receive_bytes, send_bytes) = (64u64 << shape.log_receive, 64u64 << shape.log_send);
        let bytes = receive_bytes + send_bytes;
        let (at, record) = (self.driver.memory(bytes, 0), self.driver.record());
        let uar = shape.uar.unwrap_or(self.driver.uar());
        let mut create = CreateQpIn::with_tail(8 * bytes.div_ceil(PAGE) as usize);
        create.set_opcode(0x500);
        let mut context = create.qpc_mut();
        context.set_pm_state(3);
        context.set_pd(self.pd);
        context.set_log_rq_size(shape.log_receive);
        context.set_log_rq_stride(2);
        context.set_log_sq_size(shape.log_send);
        context.set_uar_page(uar);
        context.set_cqn_snd(send.cqn);
        context.set_cqn_rcv(receive.cqn);
        context.set_dbr_addr(record);
        pas(create.pas_mut(), at);
        let qpn = number(&self.driver.ok(create.as_bytes(), 16));
        Qp {
            qpn,
            uar,
            register: shape.register,
            record,
            receive_at: at,
            send_at: at + receive_bytes,
            shape,
            posted: 0,
            received: 0,
            bell: [0; 8],
        }
    }

    /// Moves a queue pair with one command.
    pub fn modify(&mut self, opcode: u16, qpn: u32, fill: impl FnOnce(&mut Qpc<&mut [u8]>)) {
        let mut modify = Rst2initQpIn::zeroed();
        modify.set_opcode(opcode.into());
        modify.set_qpn(qpn);
        fill(&mut modify.qpc_mut());
        self.driver.ok(modify.as_bytes(), 16);
    }

    /// From reset to sending, connected to `remote` of this function. `mtu` is the code of the path MTU, 5 for 4096.
    pub fn connect(&mut self, qp: &mut Qp, remote: u32, mtu: u32) {
        let (mac, gid) = (self.mac, self.gid);
        (qp.posted, qp.received) = (0, 0);
        self.ram().write_u64(qp.record, 0).expect("inside memory");
        self.modify(0x502, qp.qpn, |context| {
            context.set_pm_state(3);
            context.set_rre(1);
            context.set_rwe(1);
            context.set_rae(1);
            context.set_atomic_mode(1);
            context.primary_address_path_mut().set_vhca_port_num(1);
        });
        self.modify(0x503, qp.qpn, |context| {
            context.set_mtu(mtu);
            context.set_log_msg_max(30);
            context.set_remote_qpn(remote);
            context.set_min_rnr_nak(1);
            context.set_log_rra_max(4);
            let mut path = context.primary_address_path_mut();
            path.set_vhca_port_num(1);
            path.set_rgid_rip(&gid);
            path.set_rmac_47_32(u16::from_be_bytes([mac[0], mac[1]]).into());
            path.set_rmac_31_0(u32::from_be_bytes(mac[2..].try_into().unwrap()));
            path.set_hop_limit(64);
            path.set_udp_sport(0xc000);
        });
        self.modify(0x504, qp.qpn, |context| {
            context.set_retry_count(7);
            context.set_rnr_retry(7);
            context.set_log_sra_max(4);
            context.set_log_ack_req_freq(8);
            context.primary_address_path_mut().set_ack_timeout(14);
        });
    }

    /// Two queue pairs that are connected to each other.
    pub fn pair(&mut self, shape: Shape, cqs: [&Cq; 2], mtu: u32) -> [Qp; 2] {
        let mut qps = cqs.map(|cq| self.create_qp(shape, cq, cq));
        let [a, b] = [qps[0].qpn, qps[1].qpn];
        self.connect(&mut qps[0], b, mtu);
        self.connect(&mut qps[1], a, mtu);
        qps
    }

    /// Puts a request into the send queue, without ringing; returns its index.
    pub fn post(&self, qp: &mut Qp, mut request: Request) -> u16 {
        let index = qp.posted;
        let bytes = request.finish(qp.qpn, index);
        let ring = 64u64 << qp.shape.log_send;
        for (block, at) in bytes.chunks(BLOCK).zip(u64::from(index)..) {
            let at = at * BLOCK as u64 % ring;
            self.ram().write(qp.send_at + at, block).expect("inside memory");
        }
        qp.bell.copy_from_slice(&bytes[..8]);
        qp.posted = index.wrapping_add(bytes.len().div_ceil(BLOCK) as u16);
        index
    }

    /// Tells the device what was posted: the record, then the register.
    pub fn ring(&mut self, qp: &Qp) {
        self.record_sends(qp);
        self.store(qp.uar, qp.register, qp.bell);
    }

    /// Only the record.
    pub fn record_sends(&self, qp: &Qp) {
        fence(Ordering::Release);
        self.ram().write_u32(qp.record + 4, u32::from(qp.posted).to_be()).expect("inside memory");
    }

    /// An eight-byte store to a doorbell page, to memory if it can be mapped.
    pub fn store(&mut self, uar: u32, register: u64, bytes: [u8; 8]) {
        let at = u64::from(uar) * PAGE + register;
        match &self.pages {
            Some((pages, start)) => {
                pages.store_release_u64(at - start, u64::from_ne_bytes(bytes)).expect("inside the pages")
            }
            None => self.driver.client.post_write(region::BAR0, at, &bytes),
        }
    }

    /// The same as a message, as a VMM sends what it did not map.
    pub fn store_by_message(&mut self, uar: u32, register: u64, bytes: [u8; 8]) {
        self.driver.client.post_write(region::BAR0, u64::from(uar) * PAGE + register, &bytes);
    }

    /// A burst of 64 bytes, as write-combining does it.
    pub fn burst(&mut self, qp: &Qp, entry: &[u8; 64]) {
        self.record_sends(qp);
        for (word, at) in entry.chunks_exact(8).zip((qp.register..).step_by(8)) {
            self.store(qp.uar, at, word.try_into().unwrap());
        }
    }

    /// Posts and rings.
    pub fn send(&mut self, qp: &mut Qp, request: Request) -> u16 {
        let index = self.post(qp, request);
        self.ring(qp);
        index
    }

    /// Posts a receive entry of these pieces.
    pub fn receive(&self, qp: &mut Qp, pieces: &[(Key, u64, u32)]) {
        let slot = u64::from(qp.received) & ((1 << qp.shape.log_receive) - 1);
        let mut entry = [0; BLOCK];
        let segments = entry.chunks_exact_mut(UNIT);
        for (segment, i) in segments.zip(0..) {
            let piece = pieces.get(i).map(|(key, offset, len)| data_segment(*key, *offset, *len));
            // The key that ends a list.
            segment.copy_from_slice(&piece.unwrap_or(data_segment(Key { key: 0x100, at: 0, len: 0 }, 0, 0)));
        }
        self.ram().write(qp.receive_at + slot * BLOCK as u64, &entry).expect("inside memory");
        qp.received = qp.received.wrapping_add(1);
        fence(Ordering::Release);
        self.ram().write_u32(qp.record, u32::from(qp.received).to_be()).expect("inside memory");
    }

    /// Takes the next completion, if it is there.
    #[inline]
    pub fn poll(&self, cq: &mut Cq) -> Option<Done> {
        let at = cq.at + 64 * u64::from(cq.ci & ((1 << cq.log_size) - 1));
        let last = self.ram().load_acquire_u8(at + 63).expect("inside memory");
        if u32::from(last & 1) != cq.ci >> cq.log_size & 1 || last >> 4 == 0xf {
            return None;
        }
        let mut bytes = [0; 64];
        self.ram().read(at, &mut bytes).expect("inside memory");
        cq.ci = cq.ci.wrapping_add(1) & 0xff_ffff;
        self.ram().write_u32(cq.record, cq.ci.to_be()).expect("inside memory");
        let cqe = Cqe::new(&bytes[..]).expect("its size");
        let opcode = CqeOpcode(cqe.opcode() as u8);
        let error = [CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR].contains(&opcode);
        Some(Done {
            opcode,
            qpn: cqe.qpn(),
            index: cqe.wqe_counter() as u16,
            bytes: cqe.byte_cnt(),
            immediate: cqe.immediate(),
            solicited: last & 2 != 0,
            syndrome: if error { ErrCqe::new(&bytes[..]).expect("its size").syndrome() as u8 } else { 0 },
        })
    }

    /// Waits for the next completion.
    pub fn wait(&self, cq: &mut Cq) -> Done {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.poll(cq) {
                return done;
            }
            assert!(Instant::now() < end, "cqn {:#x}: no completion", cq.cqn);
            std::thread::yield_now();
        }
    }

    /// Waits for the completion of a send that must have succeeded.
    pub fn wait_sent(&self, cq: &mut Cq, qp: &Qp, index: u16) {
        let done = self.wait(cq);
        assert_eq!((done.opcode, done.qpn, done.index), (CqeOpcode::REQ, qp.qpn, index), "{done:?}");
    }

    /// Asks for an event when a completion comes that was not taken.
    pub fn arm(&mut self, cq: &Cq, uar: u32) {
        let word = (cq.arm_sn & 3) << 28 | cq.ci;
        self.ram().write_u32(cq.record + 4, word.to_be()).expect("inside memory");
        fence(Ordering::Release);
        let bytes: Vec<u8> = [word.to_be_bytes(), cq.cqn.to_be_bytes()].concat();
        self.store(uar, CQ_REGISTER, bytes.try_into().unwrap());
    }

    /// Waits for a completion event and takes it; the queue that it is about.
    pub fn wait_completion_event(&mut self) -> u32 {
        let mut eq = std::mem::take(&mut self.comp);
        let eqe = self.driver.wait_event(1, &mut eq);
        self.comp = eq;
        assert_eq!(eqe[1], 0, "a completion event");
        u32::from_be_bytes([0, eqe[0x39], eqe[0x3a], eqe[0x3b]])
    }
}

impl Cq {
    /// An event of the queue was taken.
    pub fn notified(&mut self) {
        self.arm_sn += 1;
    }
}

/// Setters of rights, to be called alike.
mod mkc {
    use cx10::prm::mkey::Mkc;

    macro_rules! set {
        ($($name:ident)*) => {
            $(pub fn $name(context: &mut Mkc<&mut [u8]>) {
                context.$name(1);
            })*
        };
    }
    set!(set_lr set_lw set_rr set_rw set_a);
}
