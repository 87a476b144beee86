//! The command queue: entries, ownership, signatures and delivery status (PRM "Command Interface"; kernel
//! `cmd.c`, `struct mlx5_cmd_layout`).

use super::mailbox::{Checks, INLINE, OutputChain, gather};
use crate::device::init_segment::LOG_CMDQ_STRIDE;
use crate::dma::{Bus, Iova, Load, LoadClass, Store, StoreClass, Stream, Wait};
use crate::log_limit::limited;
use crate::prm::cmd::CmdQueueEntry;
use crate::prm::status::Delivery;

/// Bytes of an entry.
const ENTRY: usize = 1 << LOG_CMDQ_STRIDE;
const TYPE_PCI: u32 = 0x7;
const OWNER_HW: u8 = 1;
/// The longest input or output that is accepted. A registration of 4 GiB in 4 KiB pages needs 8 MiB.
pub const MAX_LEN: u32 = 16 << 20;
/// The shortest input that still names its opcode and modifier, and the shortest output that holds a syndrome.
const MIN_LEN: u32 = 8;

/// Offset of the inline input.
const IN: usize = 0x10;
/// Offsets of the parts of an entry that the device writes.
const OUT: usize = 0x20;
const STATUS_OWN: usize = 0x3f;

/// A command taken from the queue.
#[derive(Debug)]
pub struct Request {
    /// Its slot.
    pub slot: u8,
    /// Its token.
    pub token: u8,
    /// The whole input.
    pub input: Vec<u8>,
    /// How much output the driver has room for.
    pub outlen: usize,
    entry: CmdQueueEntry<[u8; ENTRY]>,
    at: Iova,
    output: OutputChain,
    checks: Checks,
}

/// What a slot held.
#[derive(Debug)]
pub enum Fetched {
    /// A command to run.
    Command(Box<Request>),
    /// A command that could not be delivered; its entry tells the driver so already.
    Undelivered {
        /// Its slot.
        slot: u8,
        /// Why.
        status: Delivery,
    },
    /// Nothing: software owns the entry.
    Nothing,
    /// The entry cannot be read.
    Unreachable,
}

fn pointer(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low) << 9
}

fn signature(entry: &[u8]) -> u8 {
    !entry.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Fetches the command in `slot` of the queue at `queue`.
pub fn fetch(bus: &mut Bus, queue: Iova, slot: u8, block_signatures: bool) -> Fetched {
    let Some(at) = queue.checked_add(u64::from(slot) << LOG_CMDQ_STRIDE) else {
        return Fetched::Unreachable;
    };
    let mut bytes = [0; ENTRY];
    let load = Load::device(LoadClass::CmdIn, Stream::Command);
    if bus.load(load, at, &mut bytes).is_err() {
        return Fetched::Unreachable;
    }
    if bytes[STATUS_OWN] & OWNER_HW == 0 {
        limited!(warn, target: "cx10::cmd", "slot {slot}: doorbell for an entry that software owns");
        return Fetched::Nothing;
    }
    let signed = signature(&bytes) == 0;
    let Ok(entry) = CmdQueueEntry::new(bytes) else {
        return Fetched::Nothing;
    };
    match receive(bus, &entry, signed, block_signatures) {
        Ok(Received { input, output, checks }) => Fetched::Command(Box::new(Request {
            slot,
            token: checks.token,
            outlen: entry.output_length() as usize,
            input,
            entry,
            at,
            output,
            checks,
        })),
        Err(status) => {
            limited!(warn, target: "cx10::cmd", "slot {slot}: not delivered: {status}");
            finish(bus, entry, at, status);
            Fetched::Undelivered { slot, status }
        }
    }
}

struct Received {
    input: Vec<u8>,
    output: OutputChain,
    checks: Checks,
}

fn receive(
    bus: &mut Bus,
    entry: &CmdQueueEntry<[u8; ENTRY]>,
    signed: bool,
    block_signatures: bool,
) -> Result<Received, Delivery> {
    if !signed {
        return Err(Delivery::SIGNAT_ERR);
    }
    if entry.r#type() != TYPE_PCI {
        return Err(Delivery::CMD_DESCR_ERR);
    }
    if !(MIN_LEN..=MAX_LEN).contains(&entry.input_length()) {
        return Err(Delivery::IN_LENGTH_ERR);
    }
    if !(MIN_LEN..=MAX_LEN).contains(&entry.output_length()) {
        return Err(Delivery::OUT_LENGTH_ERR);
    }
    let token = entry.token() as u8;
    let checks = Checks { token, signatures: block_signatures };
    let (inlen, outlen) = (entry.input_length() as usize, entry.output_length() as usize);
    let mut input = entry.as_bytes()[IN..IN + inlen.min(INLINE)].to_vec();
    let in_ptr = pointer(entry.input_mailbox_pointer_63_32(), entry.input_mailbox_pointer_31_9());
    gather(bus, in_ptr, inlen, checks, &mut input)?;
    let out_ptr = pointer(entry.output_mailbox_pointer_63_32(), entry.output_mailbox_pointer_31_9());
    let output = OutputChain::follow(bus, out_ptr, outlen, checks)?;
    Ok(Received { input, output, checks })
}

impl Request {
    /// Answers the command: output first, ownership last. Output that the driver has no room for is cut, room
    /// that the output does not fill is zeroed.
    pub fn complete(mut self, bus: &mut Bus, mut output: Vec<u8>) -> Delivery {
        output.resize(self.outlen, 0);
        let status = match self.output.store(bus, &output, self.checks) {
            Ok(()) => Delivery::OK,
            Err(status) => status,
        };
        for (to, from) in self.entry.command_output_inline_data_mut().iter_mut().zip(&output) {
            *to = *from;
        }
        finish(bus, self.entry, self.at, status);
        status
    }
}

impl Request {
    /// Hands the command back unanswered: the device failed.
    pub fn fail(self, bus: &mut Bus) -> Delivery {
        finish(bus, self.entry, self.at, Delivery::FW_ERR);
        Delivery::FW_ERR
    }
}

/// Hands the entry back to software with a delivery status.
fn finish(bus: &mut Bus, mut entry: CmdQueueEntry<[u8; ENTRY]>, at: Iova, status: Delivery) {
    entry.set_status(u32::from(status.0));
    entry.set_ownership(0);
    entry.set_signature(0);
    let signature = signature(entry.as_bytes());
    entry.set_signature(u32::from(signature));
    let bytes = entry.into_inner();
    let Some(part) = at.checked_add(OUT as u64) else { return };
    // The mailboxes come first, the ownership byte last.
    let wait = Wait { after: bus.horizon(Stream::Command), ..Wait::default() };
    let store = Store { wait, ..Store::device(StoreClass::CmdStatus, Stream::Command) };
    // A queue that cannot be written cannot be told so; the driver's own timeout finds it.
    let _ = bus.store(store, part, &bytes[OUT..=STATUS_OWN]);
}
