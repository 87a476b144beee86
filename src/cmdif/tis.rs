//! CREATE_TIS, MODIFY_TIS, QUERY_TIS, DESTROY_TIS (PRM "Transport Interface Send Commands"; kernel `transobj.c`,
//! `en_common.c:mlx5e_create_tises`).

use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::objects::{Kind, ObjRef};
use crate::device::sq::Tis;
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::tir::{
    CreateTisIn, CreateTisOut, DestroyTisIn, ModifyTisBitmask, ModifyTisIn, QueryTisIn, QueryTisOut, Tisc,
};

syndromes! {
    /// Checks of transport interfaces for sending.
    pub mod syn = 0x0037_0000;
    1 TLS "TLS offload is not advertised";
    2 LAG "transmit port affinity needs lag_tx_port_affinity, which is not advertised";
    3 UNDERLAY "underlay queue pairs belong to IPoIB, which is not advertised";
    4 UNKNOWN_FIELD "the bitmask has bits without meaning";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_TIS, create_tis),
    Command::user(Opcode::MODIFY_TIS, modify_tis),
    Command::user(Opcode::QUERY_TIS, query_tis),
    Command::user(Opcode::DESTROY_TIS, destroy_tis),
];

fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

fn create_tis(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateTisIn::new(input)?;
    let context = input.ctx();
    if context.tls_en() != 0 {
        return Err(refuse(syn::TLS));
    }
    let affinity = context.lag_tx_port_affinity() != 0 || context.strict_lag_tx_port_affinity() != 0;
    if affinity && ctx.hca.caps.general("lag_tx_port_affinity") == 0 {
        return Err(refuse(syn::LAG));
    }
    if context.underlay_qpn() != 0 {
        return Err(refuse(syn::UNDERLAY));
    }
    let optional = [(Kind::TransportDomain, context.transport_domain()), (Kind::Pd, context.pd())];
    let deps: Vec<ObjRef> =
        optional.into_iter().filter(|(_, id)| *id != 0).map(|(kind, id)| ObjRef { kind, id }).collect();
    let tis = Tis { context: Tisc::new(context.as_bytes().to_vec())? };
    let tisn = ctx.hca.objects.create(ctx.uid, tis, &deps)?;
    let mut out = CreateTisOut::zeroed();
    out.set_tisn(tisn);
    Ok(out.into_inner())
}

fn modify_tis(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyTisIn::new(input)?;
    let mask = input.bitmask();
    let known = ModifyTisBitmask::LAYOUT.fields.iter().fold(0, |known, f| known | 1u64 << (63 - f.offset));
    if u64::from_be_bytes(*mask.as_bytes().first_chunk().unwrap_or(&[0; 8])) & !known != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let affinity = mask.lag_tx_port_affinity() != 0 || mask.strict_lag_tx_port_affinity() != 0;
    if affinity && ctx.hca.caps.general("lag_tx_port_affinity") == 0 {
        return Err(refuse(syn::LAG));
    }
    let wanted = input.ctx();
    let tis = ctx.hca.objects.get_mut::<Tis>(ctx.uid, input.tisn())?;
    if mask.prio() != 0 {
        tis.context.set_prio(wanted.prio());
    }
    if mask.lag_tx_port_affinity() != 0 {
        tis.context.set_lag_tx_port_affinity(wanted.lag_tx_port_affinity());
    }
    if mask.strict_lag_tx_port_affinity() != 0 {
        tis.context.set_strict_lag_tx_port_affinity(wanted.strict_lag_tx_port_affinity());
    }
    done()
}

fn query_tis(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let tisn = QueryTisIn::new(input)?.tisn();
    let tis = ctx.hca.objects.get::<Tis>(ctx.uid, tisn)?;
    let mut out = QueryTisOut::zeroed();
    out.tis_context_mut().as_bytes_mut().copy_from_slice(tis.context.as_bytes());
    Ok(out.into_inner())
}

fn destroy_tis(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let tisn = DestroyTisIn::new(input)?.tisn();
    ctx.hca.objects.destroy::<Tis>(ctx.uid, tisn)?;
    done()
}
