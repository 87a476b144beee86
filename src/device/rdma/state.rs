//! What a queue pair knows while it runs: its settings, the requester's side and the responder's.

use std::collections::VecDeque;

use super::entry::SendEntry;
use super::memory::Who;
use super::packet::{Address, Operation, PSN_MASK, Remote, Transport, psn_add, psn_diff};
use super::receive::ReceiveEntry;
use super::responder::Refusal;
use crate::device::qp::Service;
use crate::dma::{Fence, Horizon};
use crate::prm::qp::Qpc;
use crate::prm::values::{AtomicMode, CqeSyndrome, QpMtu, QpRqType, WqeOpcode};

/// What a context says, in the form in which every packet needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Protection domain.
    pub pd: u32,
    /// `rlky`.
    pub reserved_lkey: bool,
    /// `fre`.
    pub fast_register: bool,
    /// User index of completions.
    pub user_index: u32,
    /// Completion queue of sends.
    pub cqn_send: u32,
    /// Completion queue of receives.
    pub cqn_receive: u32,
    /// Q counter set; 0 for none.
    pub counter_set: u32,
    /// Bytes of payload in a packet.
    pub mtu: u32,
    /// Its logarithm: every packet counts in packets, and a division takes as long as a look-up.
    pub log_mtu: u32,
    /// Bytes of the longest message.
    pub longest: u64,
    /// The peer.
    pub remote_qpn: u32,
    /// GID index of the source address.
    pub gid_index: u32,
    /// The path to the peer, without the source address.
    pub path: Address,
    /// Retries after timeouts and sequence errors.
    pub retries: u8,
    /// Retries when the receiver is not ready; 7 never gives up.
    pub rnr_retries: u8,
    /// Nanoseconds to wait for an acknowledgement; 0 waits for ever.
    pub ack_timeout: u64,
    /// Logarithm of the number of packets after which an acknowledgement is asked for.
    pub log_ack_every: u32,
    /// Code of the time that senders wait when no receive entry is posted.
    pub min_rnr: u8,
    /// READs and atomics that may be under way to the peer.
    pub reads_out: usize,
    /// READs and atomics that the peer may have under way.
    pub reads_in: usize,
    /// What the peer may do.
    pub remote_read: bool,
    /// What the peer may do.
    pub remote_write: bool,
    /// What the peer may do.
    pub remote_atomic: bool,
    /// `atomic_mode` is one of the extended ones, which know masks.
    pub masked_atomics: bool,
    /// Queue key.
    pub q_key: u32,
    /// Source queue pair that datagrams name instead of its own number.
    pub deth_source: u32,
    /// Shared receive queue.
    pub shared: Option<u32>,
    /// Whether it has a receive ring of its own.
    pub own_ring: bool,
    /// XRC domain.
    pub xrcd: u32,
    /// Multicasts of its own are not received by it.
    pub block_multicast_loopback: bool,
    /// First sequence numbers.
    pub send_psn: u32,
    /// First sequence number to receive.
    pub receive_psn: u32,
}

impl Settings {
    /// What `context` says.
    pub fn of<B: AsRef<[u8]>>(context: &Qpc<B>) -> Settings {
        const FASTEST: u64 = 4096;
        let path = context.primary_address_path();
        let log_mtu = match QpMtu(context.mtu() as u8) {
            QpMtu(code @ 1..=5) => 7 + u32::from(code),
            _ => 12,
        };
        let mut mac = [0; 6];
        mac[..2].copy_from_slice(&(path.rmac_47_32() as u16).to_be_bytes());
        mac[2..].copy_from_slice(&path.rmac_31_0().to_be_bytes());
        let rq_type = QpRqType(context.rq_type() as u8);
        Settings {
            pd: context.pd(),
            reserved_lkey: context.rlky() != 0,
            fast_register: context.fre() != 0,
            user_index: context.user_index(),
            cqn_send: context.cqn_snd(),
            cqn_receive: context.cqn_rcv(),
            counter_set: context.counter_set_id(),
            mtu: 1 << log_mtu,
            log_mtu,
            longest: 1 << context.log_msg_max().min(30),
            remote_qpn: context.remote_qpn(),
            gid_index: path.src_addr_index(),
            path: Address {
                dest: *path.rgid_rip(),
                dest_mac: mac,
                traffic_class: path.tclass() as u8,
                hop_limit: path.hop_limit() as u8,
                flow_label: path.flow_label(),
                udp_source: path.udp_sport() as u16,
                ..Address::default()
            },
            retries: context.retry_count() as u8,
            rnr_retries: context.rnr_retry() as u8,
            ack_timeout: match path.ack_timeout() {
                0 => 0,
                exponent => FASTEST << exponent,
            },
            log_ack_every: context.log_ack_req_freq(),
            min_rnr: context.min_rnr_nak() as u8,
            reads_out: 1 << context.log_sra_max(),
            reads_in: 1 << context.log_rra_max(),
            remote_read: context.rre() != 0,
            remote_write: context.rwe() != 0,
            remote_atomic: context.rae() != 0,
            masked_atomics: context.atomic_mode() > u32::from(AtomicMode::IB_SPEC.0),
            q_key: context.q_key(),
            deth_source: context.deth_sqpn(),
            shared: (rq_type == QpRqType::SRQ_RQ).then(|| context.srqn_rmpn_xrqn()),
            own_ring: rq_type == QpRqType::NON_ZERO_RQ,
            xrcd: context.xrcd(),
            block_multicast_loopback: context.block_lb_mc() != 0,
            send_psn: context.next_send_psn() & PSN_MASK,
            receive_psn: context.next_rcv_psn() & PSN_MASK,
        }
    }

    /// Packets of a message of `len` bytes.
    #[inline]
    pub fn packets(&self, len: u32) -> u32 {
        ((len >> self.log_mtu) + u32::from(len & ((1 << self.log_mtu) - 1) != 0)).max(1)
    }

    /// The queue pair as one who looks memory up.
    pub fn who(&self, qpn: u32) -> Who {
        Who { pd: self.pd, qpn, reserved_lkey: self.reserved_lkey }
    }
}

/// The transport that a service type uses between queue pairs.
pub fn transport(service: Service) -> Option<Transport> {
    match service {
        Service::Rc => Some(Transport::Rc),
        Service::Uc => Some(Transport::Uc),
        Service::Xrc => Some(Transport::Xrc),
        Service::Ud | Service::Qp0 | Service::Qp1 => Some(Transport::Ud),
        Service::RawEthertype | Service::RegUmr => None,
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `syndrome`.
    pub syndrome: CqeSyndrome,
    /// `vendor_err_synd`.
    pub vendor: u8,
}

/// A send entry that was started and is not completed.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Index of its first basic block.
    pub index: u16,
    /// Opcode.
    pub opcode: WqeOpcode,
    /// When to complete.
    pub ce: u8,
    /// First sequence number; that of the next message if it takes none.
    pub first: u32,
    /// Sequence numbers that it takes.
    pub packets: u32,
    /// Bytes of the message.
    pub len: u32,
    /// Bytes of a READ that have come.
    pub received: u32,
    /// A READ whose target asks later small fences to wait for it.
    pub small_fence: bool,
    /// It failed; this is said when all before it are complete.
    pub failure: Option<Failure>,
}

impl Started {
    /// The sequence number behind its last one.
    pub fn end(&self) -> u32 {
        psn_add(self.first, self.packets)
    }

    /// Whether its responses carry data.
    pub fn responds(&self) -> bool {
        use WqeOpcode as O;
        matches!(self.opcode, O::RDMA_READ | O::ATOMIC_CS | O::ATOMIC_FA | O::ATOMIC_MASKED_CS | O::ATOMIC_MASKED_FA)
            && self.packets > 0
    }
}

/// The sending side.
#[derive(Debug, Default)]
pub struct Requester {
    /// Index of the next entry to start.
    pub next: u16,
    /// What the doorbell record said last.
    pub posted: u16,
    /// The sequence number that the next message starts with.
    pub psn: u32,
    /// The oldest sequence number that is not acknowledged.
    pub unacked: u32,
    /// Entries under way, oldest first.
    pub started: VecDeque<Started>,
    /// Which of them is being sent; as many as there are if all are sent.
    pub cursor: usize,
    /// Bytes of that one that are sent.
    pub offset: u32,
    /// The entry that is being sent.
    pub entry: Option<Box<SendEntry>>,
    /// Whether `entry` is the entry at this index.
    pub loaded: Option<u16>,
    /// Its data is in so many parts that packets travel alone.
    pub scattered: bool,
    /// The entry whose responses come in.
    pub reading: Option<Box<SendEntry>>,
    /// Whether `reading` is the entry at this index.
    pub reading_loaded: Option<u16>,
    /// READs and atomics under way.
    pub reads: usize,
    /// READs under way that small fences wait for.
    pub small_fences: usize,
    /// Retries left.
    pub retries: u8,
    /// The oldest sequence number when a loss was found and everything from there on sent again. What was sent before
    /// that still tells of the same loss.
    pub went_back: Option<u32>,
    /// Retries left when the receiver is not ready.
    pub rnr_retries: u8,
    /// When the receiver may be ready again.
    pub rnr_until: Option<u64>,
    /// When something was acknowledged last, or sent after all was.
    pub progress_at: u64,
    /// After an error that the driver let it go on from: entries before this index were posted before and are flushed.
    pub flush_until: Option<u16>,
    /// No entry starts any more: one failed.
    pub stopped: bool,
    /// Furthest sequence number sent, for acknowledgements of what was never sent.
    pub sent: u32,
    /// What the peer had done when it acknowledged last; completions wait until that is visible.
    pub acknowledged: Option<Horizon>,
    /// The same at the last entry with strong ordering; what was sent since waits for it.
    pub fenced: Option<Horizon>,
    /// It waits for a page.
    pub stall: Option<Stall>,
}

/// A requester that waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// First sequence number of the entry that needs the page.
    pub first: u32,
    /// Responses were dropped meanwhile: everything is asked for again.
    pub resend: bool,
    /// The page does not come.
    pub failed: bool,
}

/// A responder that waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderStall {
    /// The request that comes next needs the page; else the answer that goes out next does.
    pub request: bool,
    /// The other one of these met a page since; it is tried again when this one is.
    pub both: bool,
    /// What becomes of it if the page does not come.
    pub refusal: Refusal,
}

impl ResponderStall {
    /// Whether the request that comes next waits.
    pub fn holds_requests(self) -> bool {
        self.request || self.both
    }

    /// Whether the answer that goes out next waits.
    pub fn holds_answers(self) -> bool {
        !self.request || self.both
    }
}

impl Requester {
    /// Whether packets wait for acknowledgement.
    pub fn waits(&self) -> bool {
        psn_diff(self.sent, self.unacked) > 0
    }

    /// Goes back to `psn`, which is in an entry that was started; answers whether there is one.
    pub fn go_back(&mut self, psn: u32, mtu: u32) -> bool {
        for (at, started) in self.started.iter().enumerate() {
            let ahead = psn_diff(psn, started.first);
            if ahead >= 0 && (ahead as u32) < started.packets {
                self.cursor = at;
                self.offset = if started.responds() { started.received } else { (ahead as u32).saturating_mul(mtu) };
                return true;
            }
        }
        false
    }
}

/// A request that comes in more than one packet.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Whether it is a SEND; else an RDMA WRITE.
    pub send: bool,
    /// Bytes that have come.
    pub offset: u32,
    /// Where a WRITE goes.
    pub remote: Remote,
    /// First sequence number.
    pub first: u32,
}

/// An answer that waits for those before it.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Acknowledge.
    Ack {
        /// Sequence number.
        psn: u32,
        /// AETH.
        aeth: u32,
    },
    /// Send the data of a READ.
    Read {
        /// What to send.
        remote: Remote,
        /// Protection domain of its key.
        pd: u32,
        /// Bytes that are sent.
        offset: u32,
        /// Sequence number of the response with byte 0.
        psn: u32,
        /// Message sequence number.
        msn: u32,
        /// It was answered before.
        again: bool,
        /// Fence of the request.
        fence: Fence,
    },
    /// Refuse a request for good.
    Refuse {
        /// Its sequence number.
        psn: u32,
        /// Why.
        refusal: Refusal,
    },
    /// Do an atomic operation and send the original value.
    Atomic {
        /// Sequence number.
        psn: u32,
        /// Message sequence number.
        msn: u32,
        /// It was answered before.
        again: bool,
    },
}

impl Job {
    /// Whether it is one of the READs and atomics of which the peer may have so many under way.
    pub fn is_new(&self) -> bool {
        matches!(self, Job::Read { again: false, .. } | Job::Atomic { again: false, .. })
    }

    /// The same, counted as `other` is.
    pub fn counted_as(self, other: &Job) -> Job {
        let again = !other.is_new();
        match self {
            Job::Read { remote, pd, offset, psn, msn, fence, .. } => {
                Job::Read { remote, pd, offset, psn, msn, again, fence }
            }
            Job::Atomic { psn, msn, .. } => Job::Atomic { psn, msn, again },
            other => other,
        }
    }
}

/// A READ or atomic that may be asked for again.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// First sequence number.
    pub first: u32,
    /// Sequence numbers that it takes.
    pub packets: u32,
    /// What it does.
    pub operation: Operation,
    /// Where.
    pub remote: Remote,
    /// Protection domain of its key.
    pub pd: u32,
    /// Operands of an atomic operation.
    pub operands: super::packet::Operands,
    /// Fence of the request.
    pub fence: Fence,
    /// The value before an atomic operation, once it is done.
    pub original: Option<u64>,
    /// Message sequence number.
    pub msn: u32,
}

/// The receiving side.
#[derive(Debug, Default)]
pub struct Responder {
    /// The sequence number that comes next.
    pub expected: u32,
    /// Messages that were received.
    pub msn: u32,
    /// A sequence error was answered; the next ones are dropped.
    pub nak_sent: bool,
    /// A request is going to be refused for good; those behind it are dropped.
    pub refusing: bool,
    /// A request of which more is to come.
    pub message: Option<Incoming>,
    /// The receive entry in use.
    pub entry: Option<Box<ReceiveEntry>>,
    /// Whether `entry` is taken and not completed.
    pub taken: bool,
    /// Receive entries taken from the queue pair's own ring.
    pub consumed: u16,
    /// What the doorbell record of the ring said last.
    pub posted: u16,
    /// The data of the first one is in so many parts that packets travel alone.
    pub scattered: bool,
    /// Answers that wait.
    pub jobs: VecDeque<Job>,
    /// READs and atomics that may be asked for again, oldest first.
    pub resources: VecDeque<Resource>,
    /// Something valid was received.
    pub established: bool,
    /// What the requests that come now wait for.
    pub after: Option<Horizon>,
    /// It waits for a page.
    pub stall: Option<ResponderStall>,
}

/// Everything that a queue pair knows while it runs.
#[derive(Debug, Default)]
pub struct Flow {
    /// From the context.
    pub settings: Settings,
    /// The sending side.
    pub requester: Requester,
    /// The receiving side.
    pub responder: Responder,
    /// It waits for its turn.
    pub scheduled: bool,
    /// When it wants a turn by itself.
    pub timer: Option<u64>,
    /// Its ring, record or completion queue cannot be used: nothing is done any more.
    pub dead: bool,
    /// In error, the driver is to learn that no entry of a shared receive queue is in use any more.
    pub last_entry_due: bool,
    /// How often its receive ring was looked at in error.
    pub looked: u32,
    /// Tokens of the page faults that the driver has not answered, of the requester and of the responder; 0 for none.
    pub faults: [u32; 2],
}

impl Flow {
    /// Forgets everything but the settings, as a reset does.
    pub fn reset(&mut self) {
        let settings = self.settings;
        *self = Flow { settings, scheduled: self.scheduled, timer: self.timer, ..Flow::default() };
    }
}
