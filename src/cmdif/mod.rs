//! The command interface: doorbell to status.
//!
//! [`queue`] and [`mailbox`] move bytes; [`run`] decodes the header, checks what every command must satisfy, and
//! calls the handler that the opcode's family declares in its `COMMANDS`. Commands run one at a time in slot order
//! within a doorbell, and complete in that order.

pub mod error;
pub mod mailbox;
pub mod queue;

pub mod access_reg;
mod adapter;
mod buffer;
mod counters;
mod cq;
mod devx;
mod eq;
#[cfg(test)]
mod ethernet_tests;
mod flow;
mod flow_entry;
#[cfg(test)]
mod flow_tests;
mod hca;
mod hca_cap;
mod mcg;
mod memic;
mod mkey;
mod odp;
mod pages;
mod pd;
mod qp;
#[cfg(test)]
mod receive_tests;
mod roce;
mod rq;
mod rqt;
#[cfg(test)]
mod send_tests;
mod sq;
mod srq;
mod tir;
mod tis;
mod uar;
mod vport;
mod wq;

use self::error::{CmdError, Syndrome, common};
use crate::device::hca::{Hca, Phase};
use crate::dma::Bus;
use crate::prm::cmd::MboxIn;
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

/// What a handler answers: the output as its layout has it, with status and syndrome 0.
pub type Reply = Result<Vec<u8>, CmdError>;

/// Everything that a handler may touch.
pub struct Ctx<'a> {
    /// The opcode.
    pub opcode: Opcode,
    /// The opcode modifier.
    pub op_mod: u16,
    /// The user context on whose behalf the command is; 0 is the driver.
    pub uid: u16,
    /// All state behind commands.
    pub hca: &'a mut Hca,
    /// Guest memory.
    pub bus: &'a mut Bus,
    /// Device time in nanoseconds.
    pub now: u64,
}

/// A command as its family declares it.
pub struct Command {
    /// Its opcode.
    pub opcode: Opcode,
    /// In which phases of the HCA it is allowed.
    pub phases: &'static [Phase],
    /// Whether a user context may issue it.
    pub user: bool,
    /// Its handler.
    pub run: fn(&mut Ctx<'_>, &[u8]) -> Reply,
}

impl Command {
    /// A command of a running HCA.
    pub const fn running(opcode: Opcode, run: fn(&mut Ctx<'_>, &[u8]) -> Reply) -> Command {
        Command { opcode, phases: &[Phase::Running], user: false, run }
    }

    /// A command of a running HCA that user contexts may issue too.
    pub const fn user(opcode: Opcode, run: fn(&mut Ctx<'_>, &[u8]) -> Reply) -> Command {
        Command { opcode, phases: &[Phase::Running], user: true, run }
    }
}

/// The commands of every family.
static FAMILIES: &[&[Command]] = &[
    access_reg::COMMANDS,
    vport::COMMANDS,
    roce::COMMANDS,
    counters::COMMANDS,
    flow::COMMANDS,
    flow_entry::COMMANDS,
    tis::COMMANDS,
    tir::COMMANDS,
    rqt::COMMANDS,
    rq::COMMANDS,
    sq::COMMANDS,
    hca::COMMANDS,
    hca_cap::COMMANDS,
    pages::COMMANDS,
    adapter::COMMANDS,
    uar::COMMANDS,
    eq::COMMANDS,
    cq::COMMANDS,
    srq::COMMANDS,
    qp::COMMANDS,
    mcg::COMMANDS,
    pd::COMMANDS,
    mkey::COMMANDS,
    memic::COMMANDS,
    odp::COMMANDS,
    devx::COMMANDS,
];

/// The syndromes of every family.
pub(crate) static SYNDROME_TABLES: &[&[(Syndrome, &str)]] = &[
    error::common::TABLE,
    error::objects::TABLE,
    error::pas::TABLE,
    error::pages::TABLE,
    hca::syn::TABLE,
    hca_cap::syn::TABLE,
    eq::syn::TABLE,
    access_reg::syn::TABLE,
    buffer::syn::TABLE,
    cq::syn::TABLE,
    srq::syn::TABLE,
    qp::syn::TABLE,
    mcg::syn::TABLE,
    mkey::syn::TABLE,
    memic::syn::TABLE,
    odp::syn::TABLE,
    devx::syn::TABLE,
    crate::mkey::context::syn::TABLE,
    crate::mkey::policy::syn::TABLE,
    crate::mkey::umr::syn::TABLE,
    vport::syn::TABLE,
    roce::syn::TABLE,
    counters::syn::TABLE,
    flow::syn::TABLE,
    wq::syn::TABLE,
    tis::syn::TABLE,
    tir::syn::TABLE,
    rqt::syn::TABLE,
    rq::syn::TABLE,
    sq::syn::TABLE,
];

fn find(opcode: Opcode) -> Option<&'static Command> {
    FAMILIES.iter().copied().flatten().find(|command| command.opcode == opcode)
}

/// Every opcode that the device implements, family by family.
pub fn implemented() -> impl Iterator<Item = Opcode> {
    FAMILIES.iter().copied().flatten().map(|command| command.opcode)
}

/// Whether the device implements `opcode`.
pub fn implements(opcode: Opcode) -> bool {
    find(opcode).is_some()
}

/// The header of a command, for the trace: opcode, modifier and uid.
pub fn header(input: &[u8]) -> (Opcode, u16, u16) {
    match MboxIn::new(input) {
        Ok(header) => (Opcode(header.opcode() as u16), header.op_mod() as u16, header.uid() as u16),
        Err(_) => (Opcode(0), 0, 0),
    }
}

/// Runs the command in `input` and returns its whole output, status and syndrome included.
pub fn run(hca: &mut Hca, bus: &mut Bus, now: u64, input: &[u8]) -> (Vec<u8>, Result<(), CmdError>) {
    let (opcode, op_mod, uid) = header(input);
    let mut ctx = Ctx { opcode, op_mod, uid, hca, bus, now };
    match admit(&ctx, input).and_then(|command| (command.run)(&mut ctx, input)) {
        Ok(output) => {
            debug_assert!(output.len() >= 8 && output[0] == 0, "{opcode}: a successful output has status 0");
            (output, Ok(()))
        }
        Err(error) => {
            let mut output = vec![0; 16];
            output[0] = error.status.0;
            output[4..8].copy_from_slice(&error.syndrome.0.to_be_bytes());
            (output, Err(error))
        }
    }
}

/// What a query command answers about the object `number`, to the device itself.
fn query(ctx: &mut Ctx<'_>, opcode: Opcode, number: u32) -> Reply {
    const INPUT: usize = 64;
    let command = find(opcode).ok_or(CmdError::new(Status::BAD_OP_ERR, common::UNKNOWN_OPCODE))?;
    let mut input = [0; INPUT];
    input[..2].copy_from_slice(&opcode.0.to_be_bytes());
    input[8..12].copy_from_slice(&number.to_be_bytes());
    let Ctx { hca, bus, now, .. } = ctx;
    (command.run)(&mut Ctx { opcode, op_mod: 0, uid: 0, hca, bus, now: *now }, &input)
}

/// What every command must satisfy before its handler sees it.
fn admit(ctx: &Ctx<'_>, input: &[u8]) -> Result<&'static Command, CmdError> {
    MboxIn::new(input)?;
    let Some(command) = find(ctx.opcode) else {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::UNKNOWN_OPCODE));
    };
    if ctx.hca.internal_error() {
        return Err(CmdError::new(Status::INT_ERR, common::INTERNAL_ERROR));
    }
    if !command.phases.contains(&ctx.hca.phase()) {
        return Err(CmdError::new(Status::BAD_SYS_STATE_ERR, common::WRONG_STATE));
    }
    if ctx.uid != 0 && ctx.uid != crate::device::objects::SHARED_UID {
        if !ctx.hca.user_context_exists(ctx.uid) {
            return Err(CmdError::new(Status::BAD_PARAM_ERR, common::UNKNOWN_UID));
        }
        if !command.user {
            return Err(CmdError::new(Status::BAD_OP_ERR, common::PRIVILEGED));
        }
    }
    Ok(command)
}

/// An output that carries nothing but success.
pub(crate) fn done() -> Reply {
    Ok(vec![0; 16])
}

/// A refusal for a modifier that the opcode does not have.
pub(crate) fn unknown_op_mod() -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, common::UNKNOWN_OP_MOD)
}

#[cfg(test)]
mod tests;
