//! Command mailboxes: the chains of 512-byte blocks behind a command entry (PRM "Command Mailbox"; kernel
//! `cmd.c`, `struct mlx5_cmd_prot_block`).
//!
//! A chain ends where the command's length ends; what follows in a longer chain is stale and not looked at.

use crate::dma::{Bus, Iova, Load, LoadClass, Store, StoreClass, Stream};
use crate::prm::cmd::CmdIfBox;
use crate::prm::status::Delivery;

/// Data bytes of one block.
pub const DATA: usize = 512;
/// Bytes of one block that are in use.
const BLOCK: usize = 576;
/// Where the two signatures of a block are: its last bytes.
const SIGNATURES: usize = BLOCK - 2;
/// Alignment that the pointers to blocks must have.
const ALIGN: u64 = 1024;
/// Bytes of input and output that stand in the command entry itself.
pub const INLINE: usize = 16;

/// How a chain of blocks is checked.
#[derive(Clone, Copy, Debug)]
pub struct Checks {
    /// The command's token, in every block.
    pub token: u8,
    /// Whether block signatures are in force (`cmdif_checksum` enabled by SET_HCA_CAP).
    pub signatures: bool,
}

/// Which way a chain goes; decides the delivery status of its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Input,
    Output,
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

fn next_pointer(block: &CmdIfBox<[u8; BLOCK]>) -> u64 {
    u64::from(block.next_pointer_63_32()) << 32 | u64::from(block.next_pointer_31_10()) << 10
}

fn read_block(
    bus: &mut Bus,
    at: u64,
    number: usize,
    checks: Checks,
    direction: Direction,
) -> Result<CmdIfBox<[u8; BLOCK]>, Delivery> {
    let (alignment, length) = match direction {
        Direction::Input => (Delivery::IN_PTR_ALIGN_ERR, Delivery::IN_LENGTH_ERR),
        Direction::Output => (Delivery::OUT_PTR_ALIGN_ERR, Delivery::OUT_LENGTH_ERR),
    };
    if at == 0 {
        return Err(length); // the chain ends before the command does
    }
    if at % ALIGN != 0 {
        return Err(alignment);
    }
    let mut bytes = [0; BLOCK];
    bus.load(Load::device(LoadClass::CmdIn, Stream::Command), Iova(at), &mut bytes).map_err(|_| alignment)?;
    let signed = checks.signatures && direction == Direction::Input;
    if signed && (xor(&bytes[DATA..BLOCK - 1]) != 0xff || xor(&bytes) != 0xff) {
        return Err(Delivery::SIGNAT_ERR);
    }
    let block = CmdIfBox::new(bytes).map_err(|_| length)?;
    if block.token() != u32::from(checks.token) {
        return Err(Delivery::TOK_ERR);
    }
    // The number also catches chains that loop.
    if block.block_number() as usize != number {
        return Err(Delivery::BAD_BLK_NUM_ERR);
    }
    Ok(block)
}

/// Appends the input beyond the inline part to `input` until it holds `len` bytes.
pub fn gather(bus: &mut Bus, first: u64, len: usize, checks: Checks, input: &mut Vec<u8>) -> Result<(), Delivery> {
    let mut at = first;
    let mut number = 0;
    while input.len() < len {
        let block = read_block(bus, at, number, checks, Direction::Input)?;
        let take = (len - input.len()).min(DATA);
        input.extend_from_slice(&block.as_bytes()[..take]);
        at = next_pointer(&block);
        number += 1;
    }
    Ok(())
}

/// The output blocks of a command, found and checked before the command runs, so that a command whose answer has
/// nowhere to go has no effect.
#[derive(Debug, Default)]
pub struct OutputChain {
    blocks: Vec<Iova>,
}

impl OutputChain {
    /// Follows the chain for an output of `len` bytes, inline part included.
    pub fn follow(bus: &mut Bus, first: u64, len: usize, checks: Checks) -> Result<OutputChain, Delivery> {
        let mut chain = OutputChain::default();
        let mut at = first;
        for number in 0..len.saturating_sub(INLINE).div_ceil(DATA) {
            let block = read_block(bus, at, number, checks, Direction::Output)?;
            chain.blocks.push(Iova(at));
            at = next_pointer(&block);
        }
        Ok(chain)
    }

    /// Stores the output beyond the inline part; `output` is as long as the chain was followed for.
    pub fn store(&self, bus: &mut Bus, output: &[u8], checks: Checks) -> Result<(), Delivery> {
        let beyond = output.get(INLINE..).unwrap_or_default();
        let class = Store::device(StoreClass::CmdOut, Stream::Command);
        for (at, data) in self.blocks.iter().zip(beyond.chunks(DATA)) {
            let fault = |_| Delivery::OUT_PTR_ALIGN_ERR;
            let signatures = if checks.signatures { Some(signatures(bus, *at, data)?) } else { None };
            bus.store(class, *at, data).map_err(fault)?;
            if let Some(signatures) = signatures {
                let tail = at.checked_add(SIGNATURES as u64).ok_or(Delivery::OUT_PTR_ALIGN_ERR)?;
                bus.store(class, tail, &signatures).map_err(fault)?;
            }
        }
        Ok(())
    }
}

/// The signatures of the output block at `at` once it holds `data`: of its control part, and of all of it.
fn signatures(bus: &mut Bus, at: Iova, data: &[u8]) -> Result<[u8; 2], Delivery> {
    let mut bytes = [0; BLOCK];
    let fault = |_| Delivery::OUT_PTR_ALIGN_ERR;
    bus.load(Load::device(LoadClass::CmdIn, Stream::Command), at, &mut bytes).map_err(fault)?;
    bytes[..data.len()].copy_from_slice(data);
    bytes[SIGNATURES] = !xor(&bytes[DATA..SIGNATURES]);
    let control = bytes[SIGNATURES];
    Ok([control, !xor(&bytes[..BLOCK - 1])])
}
