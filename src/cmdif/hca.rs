//! ENABLE_HCA, DISABLE_HCA, INIT_HCA, TEARDOWN_HCA, interface steps, driver version (PRM "Initialization and
//! Teardown"; kernel `main.c:mlx5_function_setup`, `fw.c`).

use super::error::{CmdError, common, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::hca::{Phase, Transition};
use crate::dma::order::Scope;
use crate::prm::hca::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, QueryIssiOut, SetDriverVersionIn, SetIssiIn, TeardownHcaIn, TeardownHcaOut,
};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::values::TeardownProfile;

syndromes! {
    /// Checks of bring-up and teardown.
    pub mod syn = 0x0010_0000;
    1 BAD_ISSI "the interface step sequence id is not supported";
    2 BAD_PROFILE "the teardown profile is unknown or not advertised";
    3 NEEDS_PAGES "the pages that initialization needs were not given";
    4 SW_VHCA_ID "a software vhca id is set and the capability is not advertised";
}

/// Interface steps 0 and 1.
const SUPPORTED_ISSI: u32 = 0b11;

pub(super) const COMMANDS: &[Command] = &[
    Command { opcode: Opcode::ENABLE_HCA, phases: &[Phase::Disabled], user: false, run: enable_hca },
    Command { opcode: Opcode::DISABLE_HCA, phases: &[Phase::Enabled], user: false, run: disable_hca },
    Command { opcode: Opcode::QUERY_ISSI, phases: &[Phase::Enabled, Phase::Running], user: false, run: query_issi },
    Command { opcode: Opcode::SET_ISSI, phases: &[Phase::Enabled], user: false, run: set_issi },
    Command { opcode: Opcode::INIT_HCA, phases: &[Phase::Enabled], user: false, run: init_hca },
    Command::running(Opcode::TEARDOWN_HCA, teardown_hca),
    Command {
        opcode: Opcode::SET_DRIVER_VERSION,
        phases: &[Phase::Enabled, Phase::Running],
        user: false,
        run: set_driver_version,
    },
];

/// Only the function itself can be named: it has no embedded CPU and no virtual functions.
pub(super) fn own_function(function_id: u32, embedded_cpu: u32) -> Result<(), CmdError> {
    if function_id != 0 || embedded_cpu != 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, common::OTHER_FUNCTION));
    }
    Ok(())
}

fn step(ctx: &mut Ctx<'_>, transition: Transition) -> Result<(), CmdError> {
    if ctx.hca.step(transition) { Ok(()) } else { Err(CmdError::new(Status::BAD_SYS_STATE_ERR, common::WRONG_STATE)) }
}

fn enable_hca(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = EnableHcaIn::new(input)?;
    own_function(input.function_id(), input.embedded_cpu_function())?;
    step(ctx, Transition::Enable)?;
    done()
}

fn disable_hca(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = DisableHcaIn::new(input)?;
    own_function(input.function_id(), input.embedded_cpu_function())?;
    step(ctx, Transition::Disable)?;
    ctx.bus.drain(Scope::All);
    done()
}

fn query_issi(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    let mut out = QueryIssiOut::zeroed();
    out.set_current_issi(u32::from(ctx.hca.issi));
    out.set_supported_issi_dw0(SUPPORTED_ISSI);
    Ok(out.into_inner())
}

fn set_issi(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let issi = SetIssiIn::new(input)?.current_issi();
    if issi >= 32 || SUPPORTED_ISSI >> issi & 1 == 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::BAD_ISSI));
    }
    ctx.hca.issi = issi as u16;
    done()
}

fn init_hca(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = InitHcaIn::new(input)?;
    if ctx.hca.objects.pages.init_deficit() > 0 {
        return Err(CmdError::new(Status::BAD_SYS_STATE_ERR, syn::NEEDS_PAGES));
    }
    if input.sw_vhca_id() != 0 && ctx.hca.caps.get(crate::device::capabilities::GENERAL_2, "sw_vhca_id_valid") == 0 {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::SW_VHCA_ID));
    }
    step(ctx, Transition::Init)?;
    ctx.bus.begin_life();
    done()
}

fn teardown_hca(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let profile = TeardownProfile(TeardownHcaIn::new(input)?.profile() as u16);
    let advertised = match profile {
        TeardownProfile::GRACEFUL_CLOSE => true,
        TeardownProfile::FORCE_CLOSE => ctx.hca.caps.general("force_teardown") != 0,
        TeardownProfile::PREPARE_FAST_TEARDOWN => ctx.hca.caps.general("fast_teardown") != 0,
        _ => false,
    };
    if !advertised {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::BAD_PROFILE));
    }
    // Prepared for a fast teardown the function keeps its objects until the driver disables the interface.
    match profile {
        TeardownProfile::PREPARE_FAST_TEARDOWN => {}
        TeardownProfile::FORCE_CLOSE => step(ctx, Transition::ForceTeardown)?,
        _ => step(ctx, Transition::Teardown)?,
    }
    // Nothing lands after the driver was told that all is gone.
    ctx.bus.drain(Scope::All);
    let out = TeardownHcaOut::zeroed(); // state 0: success
    Ok(out.into_inner())
}

fn set_driver_version(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.hca.caps.general("driver_version") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    let input = SetDriverVersionIn::new(input)?;
    let text: Vec<u8> = input.driver_version().iter().copied().take_while(|b| *b != 0).collect();
    ctx.hca.driver_version = String::from_utf8_lossy(&text).escape_debug().to_string();
    log::info!(target: "cx10::hca", "driver: {}", ctx.hca.driver_version);
    done()
}
