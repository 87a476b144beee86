//! ALLOC_PD, ALLOC_TRANSPORT_DOMAIN, ALLOC_XRCD and their counterparts, QUERY_SPECIAL_CONTEXTS (PRM "Protection
//! Domain", "Special Contexts"; kernel `pd.c`, `transobj.c`, `mlx5_ib main.c:mlx5_ib_cap_init`).

use super::error::{CmdError, common};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::pd::{ProtectionDomain, TransportDomain, XrcDomain};
use crate::mkey::reserved::Reserved;
use crate::prm::mkey::QuerySpecialContextsOut;
use crate::prm::opcode::Opcode;
use crate::prm::pd::{
    AllocPdOut, AllocTransportDomainOut, AllocXrcdOut, DeallocPdIn, DeallocTransportDomainIn, DeallocXrcdIn,
};
use crate::prm::status::Status;

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::ALLOC_PD, alloc_pd),
    Command::user(Opcode::DEALLOC_PD, dealloc_pd),
    Command::user(Opcode::ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain),
    Command::user(Opcode::DEALLOC_TRANSPORT_DOMAIN, dealloc_transport_domain),
    Command::user(Opcode::ALLOC_XRCD, alloc_xrcd),
    Command::user(Opcode::DEALLOC_XRCD, dealloc_xrcd),
    Command::user(Opcode::QUERY_SPECIAL_CONTEXTS, query_special_contexts),
];

fn no_op_mod(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.op_mod == 0 { Ok(()) } else { Err(unknown_op_mod()) }
}

fn alloc_pd(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    no_op_mod(ctx)?;
    let mut out = AllocPdOut::zeroed();
    out.set_pd(ctx.hca.objects.create(ctx.uid, ProtectionDomain, &[])?);
    Ok(out.into_inner())
}

fn dealloc_pd(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    no_op_mod(ctx)?;
    ctx.hca.objects.destroy::<ProtectionDomain>(ctx.uid, DeallocPdIn::new(input)?.pd())?;
    done()
}

fn alloc_transport_domain(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    no_op_mod(ctx)?;
    let mut out = AllocTransportDomainOut::zeroed();
    out.set_transport_domain(ctx.hca.objects.create(ctx.uid, TransportDomain, &[])?);
    Ok(out.into_inner())
}

fn dealloc_transport_domain(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    no_op_mod(ctx)?;
    let number = DeallocTransportDomainIn::new(input)?.transport_domain();
    ctx.hca.objects.destroy::<TransportDomain>(ctx.uid, number)?;
    done()
}

fn xrc(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    no_op_mod(ctx)?;
    if ctx.hca.caps.general("xrc") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    Ok(())
}

fn alloc_xrcd(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    xrc(ctx)?;
    let mut out = AllocXrcdOut::zeroed();
    out.set_xrcd(ctx.hca.objects.create(ctx.uid, XrcDomain, &[])?);
    Ok(out.into_inner())
}

fn dealloc_xrcd(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    xrc(ctx)?;
    ctx.hca.objects.destroy::<XrcDomain>(ctx.uid, DeallocXrcdIn::new(input)?.xrcd())?;
    done()
}

/// The reserved keys that the capabilities announce; a field without its capability reads 0.
fn query_special_contexts(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    no_op_mod(ctx)?;
    let key = |reserved: Reserved| if reserved.exists(&ctx.hca.caps) { reserved.key() } else { 0 };
    let mut out = QuerySpecialContextsOut::zeroed();
    out.set_resd_lkey(key(Reserved::Lkey));
    out.set_null_mkey(key(Reserved::Null));
    out.set_dump_fill_mkey(key(Reserved::DumpFill));
    out.set_terminate_scatter_list_mkey(key(Reserved::TerminateScatterList));
    out.set_repeated_mkey(key(Reserved::Repeat));
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdif::error::objects;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn up(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    fn number(out: &[u8]) -> u32 {
        u32::from_be_bytes([0, out[9], out[10], out[11]])
    }

    fn with_number(opcode: Opcode, number: u32) -> Vec<u8> {
        let mut input = Rig::input(opcode.0, 0, 16);
        input[8..12].copy_from_slice(&number.to_be_bytes());
        input
    }

    const PAIRS: [(Opcode, Opcode); 3] = [
        (Opcode::ALLOC_PD, Opcode::DEALLOC_PD),
        (Opcode::ALLOC_TRANSPORT_DOMAIN, Opcode::DEALLOC_TRANSPORT_DOMAIN),
        (Opcode::ALLOC_XRCD, Opcode::DEALLOC_XRCD),
    ];

    #[test]
    fn domains_are_allocated_and_freed_once() {
        let mut rig = up(&[]);
        for (alloc, dealloc) in PAIRS {
            let first = number(&rig.ok(&Rig::input(alloc.0, 0, 16), 16));
            let second = number(&rig.ok(&Rig::input(alloc.0, 0, 16), 16));
            assert!(first != 0 && second != 0 && first != second);
            rig.ok(&with_number(dealloc, first), 16);
            let answer = rig.exec(&with_number(dealloc, first), 16);
            assert_eq!((answer.status(), answer.syndrome()), (5, objects::NO_SUCH_OBJECT.0), "{dealloc}");
            let answer = rig.exec(&with_number(dealloc, 0xff_ffff), 16);
            assert_eq!((answer.status(), answer.syndrome()), (5, objects::NO_SUCH_OBJECT.0), "{dealloc}");
            rig.ok(&with_number(dealloc, second), 16);
        }
        assert!(rig.function.hca().census().is_empty());
    }

    #[test]
    fn an_unknown_modifier_is_refused() {
        let mut rig = up(&[]);
        for opcode in PAIRS.iter().flat_map(|(a, d)| [*a, *d]).chain([Opcode::QUERY_SPECIAL_CONTEXTS]) {
            let answer = rig.exec(&Rig::input(opcode.0, 1, 16), 16);
            assert_eq!((answer.status(), answer.syndrome()), (3, common::UNKNOWN_OP_MOD.0), "{opcode}");
        }
    }

    #[test]
    fn xrc_domains_need_the_capability() {
        let mut rig = up(&["caps.general.xrc=0"]);
        let answer = rig.exec(&Rig::input(Opcode::ALLOC_XRCD.0, 0, 16), 16);
        assert_eq!((answer.status(), answer.syndrome()), (2, common::NOT_CAPABLE.0));
    }

    #[test]
    fn special_contexts_follow_the_capabilities() {
        let query = |rig: &mut Rig| {
            let out = rig.ok(&Rig::input(Opcode::QUERY_SPECIAL_CONTEXTS.0, 0, 16), 32);
            [8, 12, 16, 20, 24].map(|at| u32::from_be_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]))
        };
        let [dump_fill, lkey, null, terminate, repeated] = query(&mut up(&[]));
        assert_eq!([dump_fill, lkey, null, terminate, repeated], [0x500, 0x200, 0x300, 0x100, 0]);
        let none =
            ["caps.general.null_mkey=0", "caps.general.dump_fill_mkey=0", "caps.general.terminate_scatter_list_mkey=0"];
        assert_eq!(query(&mut up(&none)), [0, 0x200, 0, 0, 0]);
        assert_eq!(query(&mut up(&["caps.general.repeated_mkey=1"]))[4], 0x400);
    }
}
