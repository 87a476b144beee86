//! ACCESS_REG: configuration and status registers behind the command interface (PRM "Access Registers"; kernel
//! `port.c:mlx5_access_reg`).
//!
//! A register is an image of fixed size. Reading takes the image with its selector fields set and returns it filled;
//! writing applies it and returns the register as it is then. A register that the device does not have is refused
//! with BAD_PARAM, as firmware does; the driver prints it and goes on where the register is optional to it.

mod counters;
mod device;
mod firmware;
mod port;
mod resource_dump;
mod tracer;

use super::error::{CmdError, syndromes};
use super::{Command, Ctx, Reply, unknown_op_mod};
use crate::device::hca::Phase;
use crate::prm::commands::RegisterId;
use crate::prm::opcode::Opcode;
use crate::prm::reg::{AccessRegisterIn, AccessRegisterOut};
use crate::prm::status::Status;
use crate::prm::values::AccessReg;

syndromes! {
    /// Checks of access registers.
    pub mod syn = 0x0030_0000;
    1 UNKNOWN_REGISTER "the device does not have the access register";
    2 READ_ONLY "the access register cannot be written";
    3 NO_SUCH_PORT "the register names a local port that does not exist";
    4 NO_SUCH_PLANE "the port has no planes";
    5 PORT_PROTOCOL "proto_mask asks for a protocol other than Ethernet";
    6 LINK_MODES "the link modes are empty or not in the port's capability";
    7 ADMIN_STATUS "the administrative status is reserved";
    8 MTU "the MTU is 0 or beyond the port's maximum";
    9 COUNTER_GROUP "the port has no such counter group";
    10 PRIORITY "the priority or traffic class does not exist";
    11 FEC_MODE "the FEC mode is not in the capability of its speed";
    12 BIG_ENDIAN_HOST "hosts of big-endian byte order are not supported";
    13 NO_SUCH_MODULE "the port has no such module";
    14 DIAGNOSTIC_PAGE "the diagnostic page or group does not exist";
    15 FLOW_CONTROL "the flow control field is not supported";
    16 NO_SUCH_GROUP "the register has no such feature or register group";
    17 EVENT_MODE "the event generation mode is reserved";
    18 COMPONENT "the firmware has no such component";
    19 INFORMATION "there is no such information about the component, or not at that offset";
    20 WRITE_ONLY "the access register can only be written";
    21 DUMP_FUNCTION "the dump is of another function, and there is none";
    22 DUMP_TYPE "the menu of dumps does not have the segment type";
    23 DUMP_INDEX "an index of the dump is beyond every object";
    24 DUMP_COUNT "num_of_obj1 asks for more than one where the menu offers one";
    25 DUMP_SEQUENCE "device_opaque and seq_num are not those of the last part of the dump";
    26 DUMP_SIZE "the dump has no room for a dword";
    27 DUMP_KEY "the dump cannot be written through the memory key";
    28 NOTHING_TO_DUMP "no such object";
    29 NO_SUCH_ENTRY "no such entry";
    30 UNREADABLE "the entry cannot be read";
    31 TRACER_OWNER "the tracer is not the driver's";
    32 TRACE_MODE "trace_mode is not that of traces to memory";
    33 TRACE_BUFFER "the buffer is larger than log_max_trace_buffer_size, or than what its key allows to write";
    34 TRACE_STATUS "trace_status is reserved, or there is no buffer";
    35 STRING_DB "the string database has no such part";
    36 CORE_DUMP_TYPE "core dumps of that type are not advertised";
    37 NOT_TRACING "the tracer does not run, or cannot write its ring: the core dump has nowhere to go";
}

/// A register's image after the access.
type Image = Result<Vec<u8>, CmdError>;

/// An access register.
struct Register {
    id: RegisterId,
    read: fn(&mut Ctx<'_>, &[u8]) -> Image,
    write: Option<fn(&mut Ctx<'_>, &[u8]) -> Image>,
}

/// The registers of every family.
static REGISTERS: &[&[Register]] = &[
    port::REGISTERS,
    counters::REGISTERS,
    device::REGISTERS,
    firmware::REGISTERS,
    resource_dump::REGISTERS,
    tracer::REGISTERS,
];

pub(super) const COMMANDS: &[Command] =
    &[Command { opcode: Opcode::ACCESS_REG, phases: &[Phase::Enabled, Phase::Running], user: false, run: access_reg }];

fn refuse(syndrome: super::error::Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

fn registers() -> impl Iterator<Item = &'static Register> {
    REGISTERS.iter().copied().flatten()
}

fn access_reg(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = AccessRegisterIn::new(input)?;
    let id = RegisterId(input.register_id() as u16);
    let register = registers().find(|register| register.id == id).ok_or(refuse(syn::UNKNOWN_REGISTER))?;
    let image = match AccessReg(ctx.op_mod) {
        AccessReg::READ => (register.read)(ctx, input.register_data())?,
        AccessReg::WRITE => {
            let write = register.write.ok_or(refuse(syn::READ_ONLY))?;
            write(ctx, input.register_data())?
        }
        _ => return Err(unknown_op_mod()),
    };
    let mut out = AccessRegisterOut::with_tail(image.len());
    out.register_data_mut().copy_from_slice(&image);
    Ok(out.into_inner())
}

/// Whether a command is about the tracer, which does not trace itself.
pub fn is_of_tracer(input: &[u8]) -> bool {
    let Ok(input) = AccessRegisterIn::new(input) else { return false };
    let id = RegisterId(input.register_id() as u16);
    input.opcode() == u32::from(Opcode::ACCESS_REG.0) && tracer::REGISTERS.iter().any(|register| register.id == id)
}

/// The register that a refused ACCESS_REG named, for the report.
pub fn register_name(input: &[u8]) -> String {
    AccessRegisterIn::new(input).map_or_else(|_| "none".into(), |i| RegisterId(i.register_id() as u16).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::Rig;

    #[test]
    fn no_register_is_declared_twice() {
        let mut ids: Vec<u16> = registers().map(|register| register.id.0).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn a_register_that_does_not_exist_is_refused_and_reported() {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        for _ in 0..2 {
            let answer = rig.exec(&Rig::register(RegisterId::DTOR.0, true, &[0; 64]), 80);
            assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syn::UNKNOWN_REGISTER.0));
        }
        assert_eq!(rig.function.summary().unimplemented.registers["DTOR"], 2);
    }

    #[test]
    fn a_read_only_register_cannot_be_written() {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        let answer = rig.exec(&Rig::register(RegisterId::PPCNT.0, false, &[0; 256]), 272);
        assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syn::READ_ONLY.0));
    }

    #[test]
    fn an_image_shorter_than_the_register_is_refused() {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        let answer = rig.exec(&Rig::register(RegisterId::PTYS.0, true, &[0; 60]), 80);
        assert_eq!(answer.status(), Status::BAD_INP_LEN_ERR.0);
    }

    #[test]
    fn an_unknown_modifier_is_refused() {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        let mut input = Rig::register(RegisterId::PTYS.0, true, &[0; 64]);
        input[7] = 2;
        assert_eq!(rig.exec(&input, 80).status(), Status::BAD_PARAM_ERR.0);
    }
}
