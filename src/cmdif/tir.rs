//! CREATE_TIR, MODIFY_TIR, QUERY_TIR, DESTROY_TIR (PRM "Transport Interface Receive Commands"; kernel
//! `transobj.c`, `en/tir.c`, `infiniband/hw/mlx5/qp.c`).

use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done};
use crate::device::capabilities::ETHERNET;
use crate::device::objects::{Kind, ObjRef};
use crate::device::rq::Tir;
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;
use crate::prm::tir::{
    CreateTirIn, CreateTirOut, DestroyTirIn, ModifyTirBitmask, ModifyTirIn, QueryTirIn, QueryTirOut, Tirc,
};
use crate::prm::values::{RxHashFn, TirDispType};

syndromes! {
    /// Checks of transport interfaces for receiving.
    pub mod syn = 0x0038_0000;
    1 DISPATCH "disp_type is reserved";
    2 HASH_FUNCTION "rx_hash_fn is reserved, or none for an indirect interface";
    3 HASH_FIELDS "the hash field selector has bits without meaning";
    4 PACKET_MERGE "merging of received packets is not advertised";
    5 TLS "TLS offload is not advertised";
    6 TUNNEL "no offload of tunnelled packets is advertised";
    7 INNER_HASH "a hash over inner headers needs tunneled_offload_en";
    8 LOOPBACK "self_lb_en_modifiable is not advertised";
    9 UNKNOWN_FIELD "the bitmask has bits without meaning";
}

/// Source and destination address, source and destination port, IPsec SPI.
const HASH_FIELDS: u32 = 0x1f;

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_TIR, create_tir),
    Command::user(Opcode::MODIFY_TIR, modify_tir),
    Command::user(Opcode::QUERY_TIR, query_tir),
    Command::user(Opcode::DESTROY_TIR, destroy_tir),
];

fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

/// The receive hash of a context: function and fields. Direct interfaces may have one; it is only reported.
fn check_hash(context: &Tirc<&[u8]>, indirect: bool, tunneled: bool) -> Result<(), CmdError> {
    match RxHashFn(context.rx_hash_fn() as u8) {
        RxHashFn::NONE if !indirect => {}
        RxHashFn::INVERTED_XOR8 | RxHashFn::TOEPLITZ => {}
        _ => return Err(refuse(syn::HASH_FUNCTION)),
    }
    let (outer, inner) = (context.rx_hash_field_selector_outer(), context.rx_hash_field_selector_inner());
    if (outer.selected_fields() | inner.selected_fields()) & !HASH_FIELDS != 0 {
        return Err(refuse(syn::HASH_FIELDS));
    }
    if inner.selected_fields() != 0 && !tunneled {
        return Err(refuse(syn::INNER_HASH));
    }
    Ok(())
}

fn check_merge(ctx: &Ctx<'_>, context: &Tirc<&[u8]>) -> Result<(), CmdError> {
    if context.packet_merge_mask() != 0 && ctx.hca.caps.get(ETHERNET, "lro_cap") == 0 {
        return Err(refuse(syn::PACKET_MERGE));
    }
    Ok(())
}

fn check_tunnel(ctx: &Ctx<'_>, tunneled: bool) -> Result<(), CmdError> {
    let offloads = ["tunnel_stateless_gre", "tunnel_stateless_vxlan", "tunnel_stateless_geneve_rx"];
    if tunneled && offloads.iter().all(|field| ctx.hca.caps.get(ETHERNET, field) == 0) {
        return Err(refuse(syn::TUNNEL));
    }
    Ok(())
}

fn create_tir(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = CreateTirIn::new(input)?;
    let context = input.ctx();
    let target = match TirDispType(context.disp_type() as u8) {
        TirDispType::DIRECT => ObjRef { kind: Kind::Rq, id: context.inline_rqn() },
        TirDispType::INDIRECT => ObjRef { kind: Kind::RqTable, id: context.indirect_table() },
        _ => return Err(refuse(syn::DISPATCH)),
    };
    if context.tls_en() != 0 {
        return Err(refuse(syn::TLS));
    }
    let tunneled = context.tunneled_offload_en() != 0;
    check_tunnel(ctx, tunneled)?;
    check_merge(ctx, &context)?;
    check_hash(&context, target.kind == Kind::RqTable, tunneled)?;
    // Domain 0 is the one of whoever allocates none.
    let domain = Some(ObjRef { kind: Kind::TransportDomain, id: context.transport_domain() });
    let deps: Vec<ObjRef> = [target].into_iter().chain(domain.filter(|domain| domain.id != 0)).collect();
    let tir = Tir { context: Tirc::new(context.as_bytes().to_vec())? };
    let tirn = ctx.hca.objects.create(ctx.uid, tir, &deps)?;
    let mut out = CreateTirOut::zeroed();
    out.set_tirn(tirn);
    Ok(out.into_inner())
}

fn modify_tir(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = ModifyTirIn::new(input)?;
    let mask = input.bitmask();
    let known = ModifyTirBitmask::LAYOUT.fields.iter().fold(0, |known, f| known | 1u64 << (63 - f.offset));
    if u64::from_be_bytes(*mask.as_bytes().first_chunk().unwrap_or(&[0; 8])) & !known != 0 {
        return Err(refuse(syn::UNKNOWN_FIELD));
    }
    let wanted = input.ctx();
    let tir = ctx.hca.objects.get::<Tir>(ctx.uid, input.tirn())?;
    if mask.packet_merge() != 0 {
        check_merge(ctx, &wanted)?;
    }
    if mask.hash() != 0 {
        let indirect = TirDispType(tir.context.disp_type() as u8) == TirDispType::INDIRECT;
        check_hash(&wanted, indirect, tir.context.tunneled_offload_en() != 0)?;
    }
    if mask.self_lb_en() != 0 && ctx.hca.caps.get(ETHERNET, "self_lb_en_modifiable") == 0 {
        return Err(refuse(syn::LOOPBACK));
    }
    let context = &mut ctx.hca.objects.get_mut::<Tir>(ctx.uid, input.tirn())?.context;
    if mask.packet_merge() != 0 {
        context.set_packet_merge_mask(wanted.packet_merge_mask());
        context.set_lro_max_ip_payload_size(wanted.lro_max_ip_payload_size());
        context.set_lro_timeout_period_usecs(wanted.lro_timeout_period_usecs());
    }
    if mask.hash() != 0 {
        context.set_rx_hash_fn(wanted.rx_hash_fn());
        context.set_rx_hash_symmetric(wanted.rx_hash_symmetric());
        for word in 0..10 {
            context.set_rx_hash_toeplitz_key(word, wanted.rx_hash_toeplitz_key(word).unwrap_or(0));
        }
        let (outer, inner) = (wanted.rx_hash_field_selector_outer(), wanted.rx_hash_field_selector_inner());
        context.rx_hash_field_selector_outer_mut().as_bytes_mut().copy_from_slice(outer.as_bytes());
        context.rx_hash_field_selector_inner_mut().as_bytes_mut().copy_from_slice(inner.as_bytes());
    }
    if mask.self_lb_en() != 0 {
        context.set_self_lb_block(wanted.self_lb_block());
    }
    done()
}

fn query_tir(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let tirn = QueryTirIn::new(input)?.tirn();
    let tir = ctx.hca.objects.get::<Tir>(ctx.uid, tirn)?;
    let mut out = QueryTirOut::zeroed();
    out.tir_context_mut().as_bytes_mut().copy_from_slice(tir.context.as_bytes());
    Ok(out.into_inner())
}

fn destroy_tir(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let tirn = DestroyTirIn::new(input)?.tirn();
    ctx.hca.objects.destroy::<Tir>(ctx.uid, tirn)?;
    done()
}
