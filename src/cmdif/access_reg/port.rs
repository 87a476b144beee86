//! Registers of the port: PTYS, PAOS, PMTU, PFCC, PPLM, PMLP, PDDR, PCAM (PRM "Port Access Registers"; kernel
//! `port.c`, `en/port.c`, `en_ethtool.c`).

use super::{Image, Register, refuse, registers, syn};
use crate::cmdif::Ctx;
use crate::cmdif::error::CmdError;
use crate::device::capabilities::GENERAL;
use crate::device::port::{AdminStatus, PORT_NUMBER};
use crate::prm::bits;
use crate::prm::commands::RegisterId;
use crate::prm::reg::{Lane2ModuleMapping, PaosReg, PcamReg, PddrReg, PfccReg, PmlpReg, PmtuReg, PplmReg, PtysReg};

pub(super) const REGISTERS: &[Register] = &[
    Register { id: RegisterId::PTYS, read: read_ptys, write: Some(write_ptys) },
    Register { id: RegisterId::PAOS, read: read_paos, write: Some(write_paos) },
    Register { id: RegisterId::PMTU, read: read_pmtu, write: Some(write_pmtu) },
    Register { id: RegisterId::PFCC, read: read_pfcc, write: Some(write_pfcc) },
    Register { id: RegisterId::PPLM, read: read_pplm, write: Some(write_pplm) },
    Register { id: RegisterId::PMLP, read: read_pmlp, write: None },
    Register { id: RegisterId::PDDR, read: read_pddr, write: None },
    Register { id: RegisterId::PCAM, read: read_pcam, write: None },
];

/// The module that the port's lanes belong to.
const MODULE: u32 = 0;

/// The register must name the one port that there is.
pub(super) fn own_port(local_port: u32) -> Result<(), CmdError> {
    if local_port == PORT_NUMBER { Ok(()) } else { Err(refuse(syn::NO_SUCH_PORT)) }
}

/// `ptys_reg.proto_mask`: Ethernet.
const PROTO_ETHERNET: u32 = 1 << 2;
/// `ptys_reg.an_status`: no link, or a link without a partner that negotiated.
const AN_UNAVAILABLE: u32 = 0;
const AN_LINK_UP: u32 = 3;
/// `ptys_reg.connector_type`: none; the port is not a cage.
const CONNECTOR_NONE: u32 = 1;

fn check_ptys(ptys: &PtysReg<&[u8]>) -> Result<(), CmdError> {
    own_port(ptys.local_port())?;
    if ptys.plane_ind() != 0 {
        return Err(refuse(syn::NO_SUCH_PLANE));
    }
    if ptys.proto_mask() != PROTO_ETHERNET {
        return Err(refuse(syn::PORT_PROTOCOL));
    }
    Ok(())
}

fn read_ptys(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    check_ptys(&PtysReg::new(data)?)?;
    let port = &ctx.hca.port;
    let mut out = PtysReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    out.set_proto_mask(PROTO_ETHERNET);
    out.set_an_disable_cap(1);
    out.set_an_disable_admin(u32::from(port.autoneg_disabled));
    out.set_an_status(if port.is_up() { AN_LINK_UP } else { AN_UNAVAILABLE });
    out.set_eth_proto_capability(port.capability().legacy);
    out.set_ext_eth_proto_capability(port.capability().extended);
    out.set_eth_proto_admin(port.allowed().legacy);
    out.set_ext_eth_proto_admin(port.allowed().extended);
    out.set_eth_proto_oper(port.operational().legacy);
    out.set_ext_eth_proto_oper(port.operational().extended);
    if let Some(link) = port.link() {
        out.set_data_rate_oper(link.mbps / 100);
        out.set_lane_rate_oper(link.mbps / link.lanes);
    }
    out.set_connector_type(CONNECTOR_NONE);
    Ok(out.into_inner())
}

fn write_ptys(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let ptys = PtysReg::new(data)?;
    check_ptys(&ptys)?;
    let extended = ptys.ext_eth_proto_admin();
    let allowed = if extended != 0 {
        ctx.hca.port.allow(true, extended)
    } else {
        ctx.hca.port.allow(false, ptys.eth_proto_admin())
    };
    if !allowed {
        return Err(refuse(syn::LINK_MODES));
    }
    ctx.hca.port.autoneg_disabled = ptys.an_disable_admin() != 0;
    read_ptys(ctx, data)
}

/// `paos_reg.oper_status`.
const OPER_UP: u32 = 1;
const OPER_DOWN: u32 = 2;
/// Greatest `paos_reg.e`: single event.
const EVENT_SINGLE: u32 = 2;

fn read_paos(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let paos = PaosReg::new(data)?;
    own_port(paos.local_port())?;
    let mut out = PaosReg::zeroed();
    out.set_swid(paos.swid());
    out.set_local_port(PORT_NUMBER);
    out.set_admin_status(ctx.hca.port.admin() as u32);
    out.set_oper_status(if ctx.hca.port.is_up() { OPER_UP } else { OPER_DOWN });
    out.set_e(ctx.hca.port.event_mode);
    Ok(out.into_inner())
}

fn write_paos(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let paos = PaosReg::new(data)?;
    own_port(paos.local_port())?;
    let admin = AdminStatus::from_number(paos.admin_status());
    if paos.ase() != 0 && admin.is_none() {
        return Err(refuse(syn::ADMIN_STATUS));
    }
    if paos.ee() != 0 {
        if paos.e() > EVENT_SINGLE {
            return Err(refuse(syn::EVENT_MODE));
        }
        ctx.hca.port.event_mode = paos.e();
    }
    if let (Some(admin), true) = (admin, paos.ase() != 0) {
        ctx.hca.change_link(|hca| hca.port.set_admin(admin));
    }
    read_paos(ctx, data)
}

fn read_pmtu(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own_port(PmtuReg::new(data)?.local_port())?;
    let mut out = PmtuReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    out.set_max_mtu(ctx.hca.port.max_mtu().into());
    out.set_admin_mtu(ctx.hca.port.mtu().into());
    out.set_oper_mtu(ctx.hca.port.mtu().into());
    Ok(out.into_inner())
}

fn write_pmtu(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let pmtu = PmtuReg::new(data)?;
    own_port(pmtu.local_port())?;
    if !ctx.hca.port.set_mtu(pmtu.admin_mtu() as u16) {
        return Err(refuse(syn::MTU));
    }
    read_pmtu(ctx, data)
}

fn read_pfcc(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own_port(PfccReg::new(data)?.local_port())?;
    let flow = ctx.hca.port.flow_control;
    let mut out = PfccReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    out.set_pptx(flow.pause_tx.into());
    out.set_pprx(flow.pause_rx.into());
    // What is in force: there is no partner to negotiate with.
    out.set_aptx(flow.pause_tx.into());
    out.set_aprx(flow.pause_rx.into());
    out.set_pfctx(flow.pfc_tx.into());
    out.set_pfcrx(flow.pfc_rx.into());
    Ok(out.into_inner())
}

fn write_pfcc(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let pfcc = PfccReg::new(data)?;
    own_port(pfcc.local_port())?;
    // Pause negotiation, stall watermarks and cable lengths belong to features that PCAM does not name.
    if pfcc.critical_stall_mask() != 0 || pfcc.minor_stall_mask() != 0 || pfcc.cable_length_mask() != 0 {
        return Err(refuse(syn::FLOW_CONTROL));
    }
    if pfcc.ppan() != 0 && pfcc.ppan_mask_n() == 0 {
        return Err(refuse(syn::FLOW_CONTROL));
    }
    let flow = &mut ctx.hca.port.flow_control;
    // A set "_n" mask leaves the field alone.
    if pfcc.pptx_mask_n() == 0 {
        flow.pause_tx = pfcc.pptx() != 0;
    }
    if pfcc.pprx_mask_n() == 0 {
        flow.pause_rx = pfcc.pprx() != 0;
    }
    let masked = |old: u8, mask: u32, new: u32| old & !(mask as u8) | (new & mask) as u8;
    flow.pfc_tx = masked(flow.pfc_tx, pfcc.prio_mask_tx(), pfcc.pfctx());
    flow.pfc_rx = masked(flow.pfc_rx, pfcc.prio_mask_rx(), pfcc.pfcrx());
    read_pfcc(ctx, data)
}

/// FEC modes as PPLM numbers them (kernel `en/port.h`).
const FEC_NONE: u16 = 1 << 0;
const FEC_FIRECODE: u16 = 1 << 1;
const FEC_RS_528: u16 = 1 << 2;
const FEC_RS_544: u16 = 1 << 7;

/// Speed and lanes, the fields of PPLM for it, what it can do, and what it does by itself.
struct Fec {
    mbps: u32,
    lanes: u32,
    cap: &'static str,
    admin: &'static str,
    modes: u16,
    automatic: u16,
}

const fn fec(mbps: u32, lanes: u32, cap: &'static str, admin: &'static str, modes: u16, automatic: u16) -> Fec {
    Fec { mbps, lanes, cap, admin, modes, automatic }
}

/// By lane speed: FEC is optional up to 10 Gb/s, fire code or RS(528,514) up to 25 Gb/s, RS(544,514) beyond
/// (IEEE 802.3 clauses 74, 91, 119, 134).
static FEC: &[Fec] = &[
    fec(10_000, 1, "fec_override_cap_10g_40g", "fec_override_admin_10g_40g", FEC_NONE | FEC_FIRECODE, FEC_NONE),
    fec(40_000, 4, "fec_override_cap_10g_40g", "fec_override_admin_10g_40g", FEC_NONE | FEC_FIRECODE, FEC_NONE),
    fec(25_000, 1, "fec_override_cap_25g", "fec_override_admin_25g", FEC_NONE | FEC_FIRECODE | FEC_RS_528, FEC_RS_528),
    fec(50_000, 2, "fec_override_cap_50g", "fec_override_admin_50g", FEC_NONE | FEC_FIRECODE | FEC_RS_528, FEC_RS_528),
    fec(100_000, 4, "fec_override_cap_100g", "fec_override_admin_100g", FEC_NONE | FEC_RS_528, FEC_RS_528),
    fec(50_000, 1, "fec_override_cap_50g_1x", "fec_override_admin_50g_1x", FEC_RS_544, FEC_RS_544),
    fec(100_000, 2, "fec_override_cap_100g_2x", "fec_override_admin_100g_2x", FEC_RS_544, FEC_RS_544),
    fec(200_000, 4, "fec_override_cap_200g_4x", "fec_override_admin_200g_4x", FEC_RS_544, FEC_RS_544),
    fec(100_000, 1, "fec_override_cap_100g_1x", "fec_override_admin_100g_1x", FEC_RS_544, FEC_RS_544),
    fec(200_000, 2, "fec_override_cap_200g_2x", "fec_override_admin_200g_2x", FEC_RS_544, FEC_RS_544),
    fec(400_000, 4, "fec_override_cap_400g_4x", "fec_override_admin_400g_4x", FEC_RS_544, FEC_RS_544),
    fec(200_000, 1, "fec_override_cap_200g_1x", "fec_override_admin_200g_1x", FEC_RS_544, FEC_RS_544),
    fec(400_000, 2, "fec_override_cap_400g_2x", "fec_override_admin_400g_2x", FEC_RS_544, FEC_RS_544),
    fec(800_000, 4, "fec_override_cap_800g_4x", "fec_override_admin_800g_4x", FEC_RS_544, FEC_RS_544),
];

/// Fastest speed of the port in Mb/s.
fn port_mbps(ctx: &Ctx<'_>) -> u32 {
    ctx.hca.profile.net.link_speed.mbps()
}

fn put(image: &mut PplmReg<Vec<u8>>, field: &str, value: u16) {
    let written = PplmReg::LAYOUT.write(image.as_bytes_mut(), field, value.into());
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Bytes of PPLM before the modes of 200 Gb/s per lane were added; drivers of that time send no more.
const PPLM_SHORT: usize = 0x50;

/// The image of PPLM that a driver of any age sent; fields that it does not know are 0.
fn pplm_image(data: &[u8]) -> Result<PplmReg<Vec<u8>>, CmdError> {
    let mut image = data.to_vec();
    if data.len() >= PPLM_SHORT {
        image.resize(PplmReg::SIZE.max(data.len()), 0);
    }
    Ok(PplmReg::new(image)?)
}

fn read_pplm(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own_port(pplm_image(data)?.local_port())?;
    let mut out = PplmReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    for entry in FEC.iter().filter(|entry| entry.mbps <= port_mbps(ctx)) {
        put(&mut out, entry.cap, entry.modes);
        put(&mut out, entry.admin, ctx.hca.port.fec.get(entry.admin).copied().unwrap_or(0));
    }
    if let Some(link) = ctx.hca.port.link() {
        let entry = FEC.iter().find(|entry| (entry.mbps, entry.lanes) == (link.mbps, link.lanes));
        let active = entry
            .map(|entry| ctx.hca.port.fec.get(entry.admin).copied().unwrap_or(entry.automatic))
            .unwrap_or(FEC_NONE);
        out.set_fec_mode_active(active.into());
    }
    Ok(out.into_inner())
}

fn write_pplm(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let pplm = pplm_image(data)?;
    own_port(pplm.local_port())?;
    let mut wanted = std::collections::BTreeMap::new();
    for entry in FEC {
        let mode = PplmReg::LAYOUT.read(pplm.as_bytes(), entry.admin).unwrap_or(0) as u16;
        let possible = if entry.mbps <= port_mbps(ctx) { entry.modes } else { 0 };
        if mode & !possible != 0 || mode.count_ones() > 1 {
            return Err(refuse(syn::FEC_MODE));
        }
        if mode != 0 {
            wanted.insert(entry.admin, mode);
        }
    }
    ctx.hca.port.fec = wanted;
    read_pplm(ctx, data)
}

fn read_pmlp(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own_port(PmlpReg::new(data)?.local_port())?;
    let mut out = PmlpReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    out.set_width(ctx.hca.port.lanes());
    let mapping = |lane: u32| {
        if lane >= ctx.hca.port.lanes() {
            return 0;
        }
        let mut mapping = Lane2ModuleMapping::zeroed();
        mapping.set_rx_lane(lane);
        mapping.set_tx_lane(lane);
        mapping.set_module(MODULE);
        bits::get(mapping.as_bytes(), 0, 32) as u32
    };
    out.set_lane0_module_mapping(mapping(0));
    out.set_lane1_module_mapping(mapping(1));
    out.set_lane2_module_mapping(mapping(2));
    out.set_lane3_module_mapping(mapping(3));
    Ok(out.into_inner())
}

/// `pddr_reg.page_select`: why the link is down.
const PDDR_TROUBLESHOOTING: u32 = 1;
/// `group_opcode`: monitor opcodes.
const PDDR_MONITOR: u32 = 0;
/// Monitor opcodes (kernel `en_ethtool.c:mlx5e_link_ext_state_opcode_map` has those of failures).
const MONITOR_NO_ISSUE: u32 = 0;
const MONITOR_CLOSED_BY_COMMAND: u32 = 1;
const MONITOR_NO_PARTNER: u32 = 2;

fn read_pddr(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let pddr = PddrReg::new(data)?;
    own_port(pddr.local_port())?;
    let group = pddr.page_data().pddr_troubleshooting_page().group_opcode();
    if pddr.page_select() != PDDR_TROUBLESHOOTING || group != PDDR_MONITOR || pddr.pnat() != 0 {
        return Err(refuse(syn::DIAGNOSTIC_PAGE));
    }
    let port = &ctx.hca.port;
    let opcode = if port.is_up() {
        MONITOR_NO_ISSUE
    } else if port.admin() == AdminStatus::Down {
        MONITOR_CLOSED_BY_COMMAND
    } else {
        MONITOR_NO_PARTNER
    };
    let mut out = PddrReg::zeroed();
    out.set_local_port(PORT_NUMBER);
    out.set_page_select(PDDR_TROUBLESHOOTING);
    out.page_data_mut()
        .pddr_troubleshooting_page_mut()
        .status_opcode_mut()
        .pddr_monitor_opcode_mut()
        .set_monitor_opcode(opcode);
    Ok(out.into_inner())
}

/// First and last register that PCAM describes.
const PCAM_REGISTERS: std::ops::RangeInclusive<u16> = 0x5000..=0x507f;

fn read_pcam(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    if ctx.hca.caps.get(GENERAL, "pcam_reg") == 0 {
        return Err(refuse(syn::UNKNOWN_REGISTER));
    }
    let pcam = PcamReg::new(data)?;
    if pcam.feature_group() != 0 || pcam.access_reg_group() != 0 {
        return Err(refuse(syn::NO_SUCH_GROUP));
    }
    let mut out = PcamReg::zeroed();
    {
        let mut mask = out.port_access_reg_cap_mask_mut();
        for register in registers().filter(|register| PCAM_REGISTERS.contains(&register.id.0)) {
            // Bit n of the 128-bit mask stands for register 0x5000 + n; bit 0 comes last.
            let bit = u32::from(register.id.0 - PCAM_REGISTERS.start());
            bits::set(mask.as_bytes_mut(), 127 - bit, 1, 1);
        }
    }
    {
        let mut mask = out.feature_cap_mask_mut();
        let mut features = mask.enhanced_features_mut();
        features.set_ptys_extended_ethernet(1);
        features.set_ptys_connector_type(1);
        features.set_fec_50G_per_lane_in_pplm(1);
        features.set_fec_100G_per_lane_in_pplm(1);
        features.set_fec_200G_per_lane_in_pplm(1);
        features.set_ppcnt_statistical_group(1);
        features.set_pfcc_mask(1);
    }
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdif::error::Syndrome;
    use crate::prm::event::{EventType, PortChange};
    use crate::prm::status::Status;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    fn refused(rig: &mut Rig, id: RegisterId, read: bool, image: &[u8], syndrome: Syndrome) {
        let answer = rig.exec(&Rig::register(id.0, read, image), 16 + image.len());
        assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syndrome.0));
    }

    fn ptys() -> PtysReg<Vec<u8>> {
        let mut ptys = PtysReg::zeroed();
        ptys.set_local_port(1);
        ptys.set_proto_mask(PROTO_ETHERNET);
        ptys
    }

    #[test]
    fn ptys_names_the_speed_of_the_profile() {
        for (speed, legacy, extended) in [("25G", 1 << 27, 1 << 6), ("100G", 1 << 20, 1 << 9), ("800G", 0, 1 << 20)] {
            let mut rig = rig(&["caps.general.pcam_reg=1", &format!("net.link_speed={speed}")]);
            let out = PtysReg::new(rig.register_ok(RegisterId::PTYS.0, true, ptys().as_bytes())).unwrap();
            assert_eq!((out.eth_proto_oper(), out.ext_eth_proto_oper()), (legacy, extended), "{speed}");
            assert_eq!(out.ext_eth_proto_capability() & extended, extended);
            assert_eq!((out.local_port(), out.an_status()), (1, AN_LINK_UP));
        }
        let mut rig = rig(&["caps.general.pcam_reg=0", "net.link_speed=100G"]);
        let out = PtysReg::new(rig.register_ok(RegisterId::PTYS.0, true, ptys().as_bytes())).unwrap();
        assert_eq!((out.eth_proto_oper(), out.ext_eth_proto_capability()), (1 << 20, 0));
    }

    #[test]
    fn ptys_refuses_other_ports_planes_protocols_and_modes() {
        let mut rig = rig(&[]);
        let mut wrong = ptys();
        wrong.set_local_port(2);
        refused(&mut rig, RegisterId::PTYS, true, wrong.as_bytes(), syn::NO_SUCH_PORT);
        let mut wrong = ptys();
        wrong.set_plane_ind(1);
        refused(&mut rig, RegisterId::PTYS, true, wrong.as_bytes(), syn::NO_SUCH_PLANE);
        let mut wrong = ptys();
        wrong.set_proto_mask(1);
        refused(&mut rig, RegisterId::PTYS, true, wrong.as_bytes(), syn::PORT_PROTOCOL);
        refused(&mut rig, RegisterId::PTYS, false, ptys().as_bytes(), syn::LINK_MODES);
        let mut wrong = ptys();
        wrong.set_eth_proto_admin(u32::MAX);
        refused(&mut rig, RegisterId::PTYS, false, wrong.as_bytes(), syn::LINK_MODES);
    }

    #[test]
    fn a_new_speed_comes_with_the_next_link() {
        let mut rig = rig(&[]);
        let mut write = ptys();
        write.set_eth_proto_admin(1 << 28);
        write.set_an_disable_admin(1);
        let out = PtysReg::new(rig.register_ok(RegisterId::PTYS.0, false, write.as_bytes())).unwrap();
        assert_eq!((out.eth_proto_admin(), out.an_disable_admin()), (1 << 28, 1));
        assert_ne!(out.eth_proto_oper(), 1 << 28);
        set_admin(&mut rig, AdminStatus::Down);
        set_admin(&mut rig, AdminStatus::Up);
        let out = PtysReg::new(rig.register_ok(RegisterId::PTYS.0, true, ptys().as_bytes())).unwrap();
        assert_eq!((out.eth_proto_oper(), out.data_rate_oper()), (1 << 28, 250));
    }

    fn set_admin(rig: &mut Rig, status: AdminStatus) -> PaosReg<Vec<u8>> {
        let mut paos = PaosReg::zeroed();
        paos.set_local_port(1);
        paos.set_ase(1);
        paos.set_admin_status(status as u32);
        PaosReg::new(rig.register_ok(RegisterId::PAOS.0, false, paos.as_bytes())).unwrap()
    }

    #[test]
    fn closing_and_opening_the_port_raises_events() {
        let mut rig = rig(&[]);
        let buffer = rig.event_queue(1 << EventType::PORT_CHANGE.0);
        let out = set_admin(&mut rig, AdminStatus::Down);
        assert_eq!((out.admin_status(), out.oper_status()), (2, OPER_DOWN));
        let out = set_admin(&mut rig, AdminStatus::Up);
        assert_eq!((out.admin_status(), out.oper_status()), (1, OPER_UP));
        set_admin(&mut rig, AdminStatus::Up);
        for (slot, sub_type) in [(0, PortChange::DOWN), (1, PortChange::ACTIVE)] {
            let eqe = rig.read(buffer + slot * 64, 64);
            assert_eq!((eqe[1], eqe[3]), (EventType::PORT_CHANGE.0, sub_type.0));
            assert_eq!(eqe[0x28] >> 4, 1, "port number");
        }
        assert_eq!(rig.read(buffer + 2 * 64, 64)[0x3f], 0xff, "no event without a change");
    }

    #[test]
    fn paos_changes_only_what_its_enable_bits_name() {
        let mut rig = rig(&[]);
        let mut paos = PaosReg::zeroed();
        paos.set_local_port(1);
        paos.set_admin_status(2);
        let out = PaosReg::new(rig.register_ok(RegisterId::PAOS.0, false, paos.as_bytes())).unwrap();
        assert_eq!(out.admin_status(), 1, "ase is clear");
        paos.set_ase(1);
        paos.set_admin_status(7);
        refused(&mut rig, RegisterId::PAOS, false, paos.as_bytes(), syn::ADMIN_STATUS);
        paos.set_ase(0);
        paos.set_ee(1);
        paos.set_e(3);
        refused(&mut rig, RegisterId::PAOS, false, paos.as_bytes(), syn::EVENT_MODE);
        paos.set_e(0);
        let out = PaosReg::new(rig.register_ok(RegisterId::PAOS.0, false, paos.as_bytes())).unwrap();
        assert_eq!(out.e(), 0);
    }

    #[test]
    fn the_port_mtu_can_be_set_up_to_its_maximum() {
        let mut rig = rig(&["net.max_mtu=9978"]);
        let mut pmtu = PmtuReg::zeroed();
        pmtu.set_local_port(1);
        pmtu.set_admin_mtu(9978);
        let out = PmtuReg::new(rig.register_ok(RegisterId::PMTU.0, false, pmtu.as_bytes())).unwrap();
        assert_eq!((out.max_mtu(), out.admin_mtu(), out.oper_mtu()), (9978, 9978, 9978));
        pmtu.set_admin_mtu(9979);
        refused(&mut rig, RegisterId::PMTU, false, pmtu.as_bytes(), syn::MTU);
        pmtu.set_admin_mtu(0);
        refused(&mut rig, RegisterId::PMTU, false, pmtu.as_bytes(), syn::MTU);
        pmtu.set_local_port(0xff);
        refused(&mut rig, RegisterId::PMTU, true, pmtu.as_bytes(), syn::NO_SUCH_PORT);
    }

    #[test]
    fn flow_control_masks_are_honoured() {
        let mut rig = rig(&[]);
        let mut pfcc = PfccReg::zeroed();
        pfcc.set_local_port(1);
        pfcc.set_pptx(1);
        pfcc.set_pprx(1);
        let out = PfccReg::new(rig.register_ok(RegisterId::PFCC.0, false, pfcc.as_bytes())).unwrap();
        assert_eq!((out.pptx(), out.pprx(), out.pfctx()), (1, 1, 0));
        let mut pfcc = PfccReg::zeroed();
        pfcc.set_local_port(1);
        pfcc.set_pptx_mask_n(1);
        pfcc.set_prio_mask_tx(0x0f);
        pfcc.set_pfctx(0xff);
        let out = PfccReg::new(rig.register_ok(RegisterId::PFCC.0, false, pfcc.as_bytes())).unwrap();
        assert_eq!((out.pptx(), out.pprx(), out.pfctx(), out.pfcrx()), (1, 0, 0x0f, 0));
        pfcc.set_critical_stall_mask(1);
        refused(&mut rig, RegisterId::PFCC, false, pfcc.as_bytes(), syn::FLOW_CONTROL);
    }

    #[test]
    fn fec_modes_outside_the_capability_are_refused() {
        let mut rig = rig(&["net.link_speed=100G"]);
        let mut pplm = PplmReg::zeroed();
        pplm.set_local_port(1);
        let out = PplmReg::new(rig.register_ok(RegisterId::PPLM.0, true, pplm.as_bytes())).unwrap();
        assert_eq!(out.fec_override_cap_100g(), u32::from(FEC_NONE | FEC_RS_528));
        assert_eq!((out.fec_override_cap_400g_4x(), out.fec_override_admin_100g()), (0, 0));
        assert_eq!(out.fec_mode_active(), u32::from(FEC_RS_528));
        pplm.set_fec_override_admin_100g(FEC_NONE.into());
        let out = PplmReg::new(rig.register_ok(RegisterId::PPLM.0, false, pplm.as_bytes())).unwrap();
        assert_eq!((out.fec_override_admin_100g(), out.fec_mode_active()), (1, 1));
        pplm.set_fec_override_admin_100g((FEC_NONE | FEC_RS_528).into());
        refused(&mut rig, RegisterId::PPLM, false, pplm.as_bytes(), syn::FEC_MODE);
        let short = rig.register_ok(RegisterId::PPLM.0, true, &[0, 1].repeat(PPLM_SHORT / 2)[..PPLM_SHORT]);
        assert_eq!(short.len(), PPLM_SHORT);
        assert_eq!(
            rig.exec(&Rig::register(RegisterId::PPLM.0, true, &[0; 0x4f]), 96).status(),
            Status::BAD_INP_LEN_ERR.0
        );
        pplm.set_fec_override_admin_100g(0);
        pplm.set_fec_override_admin_400g_4x(FEC_RS_544.into());
        refused(&mut rig, RegisterId::PPLM, false, pplm.as_bytes(), syn::FEC_MODE);
    }

    #[test]
    fn the_lanes_belong_to_module_0() {
        let mut rig = rig(&[]);
        let mut pmlp = PmlpReg::zeroed();
        pmlp.set_local_port(1);
        let out = PmlpReg::new(rig.register_ok(RegisterId::PMLP.0, true, pmlp.as_bytes())).unwrap();
        assert_eq!((out.width(), out.lane0_module_mapping(), out.lane3_module_mapping()), (4, 0, 0x0303_0000));
    }

    #[test]
    fn a_closed_port_is_diagnosed_as_closed() {
        let mut rig = rig(&[]);
        let mut pddr = PddrReg::zeroed();
        pddr.set_local_port(1);
        pddr.set_page_select(PDDR_TROUBLESHOOTING);
        let opcode = |rig: &mut Rig, pddr: &PddrReg<Vec<u8>>| {
            let out = PddrReg::new(rig.register_ok(RegisterId::PDDR.0, true, pddr.as_bytes())).unwrap();
            out.page_data().pddr_troubleshooting_page().status_opcode().pddr_monitor_opcode().monitor_opcode()
        };
        assert_eq!(opcode(&mut rig, &pddr), MONITOR_NO_ISSUE);
        set_admin(&mut rig, AdminStatus::Down);
        assert_eq!(opcode(&mut rig, &pddr), MONITOR_CLOSED_BY_COMMAND);
        pddr.set_page_select(3);
        refused(&mut rig, RegisterId::PDDR, true, pddr.as_bytes(), syn::DIAGNOSTIC_PAGE);
    }

    #[test]
    fn pcam_names_exactly_the_registers_that_exist() {
        let mut without = rig(&["caps.general.pcam_reg=0", "net.link_speed=100G"]);
        refused(&mut without, RegisterId::PCAM, true, &[0; 80], syn::UNKNOWN_REGISTER);
        let mut rig = rig(&["caps.general.pcam_reg=1"]);
        let out = PcamReg::new(rig.register_ok(RegisterId::PCAM.0, true, &[0; 80])).unwrap();
        let mask = out.port_access_reg_cap_mask();
        let regs = mask.regs_5000_to_507f();
        assert_eq!((regs.ppcnt(), regs.pplm(), regs.pbmc(), regs.pptb(), regs.pphcr()), (1, 1, 0, 0, 0));
        assert_eq!(out.feature_cap_mask().enhanced_features().ptys_extended_ethernet(), 1);
        let mut other = PcamReg::zeroed();
        other.set_feature_group(1);
        refused(&mut rig, RegisterId::PCAM, true, other.as_bytes(), syn::NO_SUCH_GROUP);
    }
}
