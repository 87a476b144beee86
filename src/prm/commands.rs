//! Which layouts belong to a command, a capability type and an access register: for the decoded trace, capability
//! profiles and overrides.

use super::opcode::Opcode;
use super::values::ObjType;
use super::{
    Layout, caps_flow, caps_general, caps_general2, caps_net, cmd, counters, cq, cqe, devx, diag, eq, eqe, flow,
    flow_match, hca, init_segment, mkey, pd, qos, qp, queue, reg, reg_counters, reg_device, srq, tir, vport, wqe,
};

/// Every declared layout, family by family.
pub fn all_layouts() -> impl Iterator<Item = &'static Layout> {
    [
        caps_flow::LAYOUTS,
        caps_general::LAYOUTS,
        caps_general2::LAYOUTS,
        caps_net::LAYOUTS,
        cmd::LAYOUTS,
        counters::LAYOUTS,
        cq::LAYOUTS,
        cqe::LAYOUTS,
        devx::LAYOUTS,
        diag::LAYOUTS,
        eq::LAYOUTS,
        eqe::LAYOUTS,
        flow::LAYOUTS,
        flow_match::LAYOUTS,
        hca::LAYOUTS,
        init_segment::LAYOUTS,
        mkey::LAYOUTS,
        pd::LAYOUTS,
        qos::LAYOUTS,
        qp::LAYOUTS,
        queue::LAYOUTS,
        reg::LAYOUTS,
        reg_counters::LAYOUTS,
        reg_device::LAYOUTS,
        srq::LAYOUTS,
        tir::LAYOUTS,
        vport::LAYOUTS,
        wqe::LAYOUTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Input and output layout of a command. `op_mod` is the 16-bit field at 0x30 of the input, which general object
/// commands use for the object type. `None` when the command is not declared; [`cmd::MboxIn`] and [`cmd::MboxOut`] fit
/// every command's header.
pub fn layouts(opcode: Opcode, op_mod: u16) -> Option<(&'static Layout, &'static Layout)> {
    if opcode == Opcode::CREATE_GENERAL_OBJECT && ObjType(op_mod) == ObjType::MATCH_DEFINER {
        return Some((flow::CreateMatchDefinerIn::LAYOUT, flow::CreateMatchDefinerOut::LAYOUT));
    }
    let i = COMMANDS.binary_search_by_key(&opcode, |c| c.0).ok()?;
    Some((COMMANDS[i].1, COMMANDS[i].2))
}

/// Short name and layout of a capability type (`op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP` shifted right by one). The
/// name is the one used in profiles: `caps.NAME.FIELD`. Types of reserved meaning have none. Source: kernel
/// `include/linux/mlx5/device.h`, `enum mlx5_cap_type`.
pub fn cap_layout(cap_type: u16) -> Option<(&'static str, &'static Layout)> {
    CAPS.iter().find(|c| c.0 == cap_type).map(|c| (c.1, c.2))
}

/// Capability type and layout of a short name.
pub fn cap_by_name(name: &str) -> Option<(u16, &'static Layout)> {
    CAPS.iter().find(|c| c.1 == name).map(|c| (c.0, c.2))
}

/// Every capability type: number, short name, layout.
pub static CAPS: &[(u16, &str, &Layout)] = &[
    (0x00, "general", caps_general::CmdHcaCap::LAYOUT),
    (0x01, "ethernet", caps_net::PerProtocolNetworkingOffloadCaps::LAYOUT),
    (0x02, "odp", caps_general2::OdpCap::LAYOUT),
    (0x03, "atomic", caps_general2::AtomicCaps::LAYOUT),
    (0x04, "roce", caps_net::RoceCap::LAYOUT),
    (0x05, "ipoib", caps_net::PerProtocolNetworkingOffloadCaps::LAYOUT),
    (0x06, "ipoib_enhanced", caps_net::PerProtocolNetworkingOffloadCaps::LAYOUT),
    (0x07, "flow_table", caps_flow::FlowTableNicCap::LAYOUT),
    (0x08, "esw_flow_table", caps_flow::FlowTableEswitchCap::LAYOUT),
    (0x09, "esw", caps_net::ESwitchCap::LAYOUT),
    (0x0c, "qos", caps_net::QosCap::LAYOUT),
    (0x0d, "debug", caps_general2::DebugCap::LAYOUT),
    (0x0f, "dev_mem", caps_general2::DeviceMemCap::LAYOUT),
    (0x11, "tls", caps_net::TlsCap::LAYOUT),
    (0x13, "vdpa", caps_general2::VirtioEmulationCap::LAYOUT),
    (0x14, "dev_event", caps_general2::DeviceEventCap::LAYOUT),
    (0x15, "ipsec", caps_net::IpsecCap::LAYOUT),
    (0x1a, "crypto", caps_net::CryptoCap::LAYOUT),
    (0x1d, "shampo", caps_net::ShampoCap::LAYOUT),
    (0x1e, "psp", caps_net::PspCap::LAYOUT),
    (0x1f, "macsec", caps_net::MacsecCap::LAYOUT),
    (0x20, "general_2", caps_general2::CmdHcaCap2::LAYOUT),
    (0x25, "port_selection", caps_general2::PortSelectionCap::LAYOUT),
    (0x26, "adv_virtualization", caps_general2::AdvVirtualizationCap::LAYOUT),
    (0x28, "adv_rdma", caps_general2::AdvRdmaCap::LAYOUT),
    (0x2a, "tlp_emulation", caps_general2::TlpDevEmuCapabilities::LAYOUT),
];

/// Layout of an access register's data.
pub fn register_layout(id: RegisterId) -> Option<&'static Layout> {
    REGISTERS.iter().find(|r| r.0 == id).map(|r| r.1)
}

/// Layout of a `PPCNT` counter set by its `grp`. Source: kernel `include/linux/mlx5/device.h`, `MLX5_*_COUNTERS_GROUP`.
pub fn port_counter_set(grp: u32) -> Option<&'static Layout> {
    Some(match grp {
        0x00 => reg_counters::Eth8023CntrsGrpDataLayout::LAYOUT,
        0x01 => reg_counters::Eth2863CntrsGrpDataLayout::LAYOUT,
        0x02 => reg_counters::Eth2819CntrsGrpDataLayout::LAYOUT,
        0x03 => reg_counters::Eth3635CntrsGrpDataLayout::LAYOUT,
        0x05 => reg_counters::EthExtendedCntrsGrpDataLayout::LAYOUT,
        0x10 => reg_counters::EthPerPrioGrpDataLayout::LAYOUT,
        0x11 => reg_counters::EthPerTcPrioGrpDataLayout::LAYOUT,
        0x12 => reg_counters::PhysLayerCntrs::LAYOUT,
        0x13 => reg_counters::EthPerTcCongestPrioGrpDataLayout::LAYOUT,
        0x16 => reg_counters::PhysLayerStatisticalCntrs::LAYOUT,
        0x1a => reg_counters::PhysLayerRecoveryCntrs::LAYOUT,
        0x20 => reg_counters::IbPortCntrsGrpDataLayout::LAYOUT,
        0x21 => reg_counters::IbExtPortCntrsGrpDataLayout::LAYOUT,
        0x23 => reg_counters::RsHistogramCntrs::LAYOUT,
        _ => return None,
    })
}

super::codes::codes! {
    /// `register_id` of `ACCESS_REG`. Source: kernel `include/linux/mlx5/driver.h`.
    pub struct RegisterId(u16) {
        QPTS = 0x4002;
        QETCR = 0x4005;
        QTCT = 0x400a;
        QPDPM = 0x4013;
        QCAM = 0x4019;
        DCBX_PARAM = 0x4020;
        DCBX_APP = 0x4021;
        FPGA_CAP = 0x4022;
        FPGA_CTRL = 0x4023;
        FPGA_ACCESS_REG = 0x4024;
        CORE_DUMP = 0x402e;
        PCAP = 0x5001;
        PMLP = 0x5002;
        PMTU = 0x5003;
        PTYS = 0x5004;
        PAOS = 0x5006;
        PFCC = 0x5007;
        PPCNT = 0x5008;
        PUDE = 0x5009;
        PPTB = 0x500b;
        PBMC = 0x500c;
        PELC = 0x500e;
        PVLC = 0x500f;
        PMPE = 0x5010;
        PMAOS = 0x5012;
        PPLM = 0x5023;
        PDDR = 0x5031;
        PPHCR = 0x503e;
        PCMR = 0x5041;
        PCAM = 0x507f;
        NODE_DESC = 0x6001;
        HOST_ENDIANNESS = 0x7004;
        MTCAP = 0x9009;
        MTMP = 0x900a;
        MCIA = 0x9014;
        MNVDA = 0x9024;
        MFRL = 0x9028;
        MLCR = 0x902b;
        MRTC = 0x902d;
        MTRC_CAP = 0x9040;
        MTRC_CONF = 0x9041;
        MTRC_STDB = 0x9042;
        MTRC_CTRL = 0x9043;
        MPEIN = 0x9050;
        MPCNT = 0x9051;
        MTPPS = 0x9053;
        MTPPSE = 0x9054;
        MTUTC = 0x9055;
        MPEGC = 0x9056;
        MPIR = 0x9059;
        MCQS = 0x9060;
        MCQI = 0x9061;
        MCC = 0x9062;
        MCDA = 0x9063;
        MCAM = 0x907f;
        MSECQ = 0x9155;
        MSEES = 0x9156;
        MIRC = 0x9162;
        MTPTM = 0x9180;
        MTCTR = 0x9181;
        MRTCQ = 0x9182;
        SBPR = 0xb001;
        SBCM = 0xb002;
        SBCAM = 0xb01f;
        RESOURCE_DUMP = 0xc000;
        NIC_CAP = 0xc00d;
        DTOR = 0xc00e;
        VHCA_ICM_CTRL = 0xc010;
    }
}

/// Every access register whose data is declared.
pub static REGISTERS: &[(RegisterId, &Layout)] = &[
    (RegisterId::QPTS, reg_device::QptsReg::LAYOUT),
    (RegisterId::QETCR, reg_device::QetcReg::LAYOUT),
    (RegisterId::QTCT, reg_device::QtctReg::LAYOUT),
    (RegisterId::QPDPM, reg_device::QpdpmReg::LAYOUT),
    (RegisterId::QCAM, reg_device::QcamReg::LAYOUT),
    (RegisterId::DCBX_PARAM, reg_device::DcbxParam::LAYOUT),
    (RegisterId::PCAP, reg::PcapReg::LAYOUT),
    (RegisterId::PMLP, reg::PmlpReg::LAYOUT),
    (RegisterId::PMTU, reg::PmtuReg::LAYOUT),
    (RegisterId::PTYS, reg::PtysReg::LAYOUT),
    (RegisterId::PAOS, reg::PaosReg::LAYOUT),
    (RegisterId::PFCC, reg::PfccReg::LAYOUT),
    (RegisterId::PPCNT, reg::PpcntReg::LAYOUT),
    (RegisterId::PPTB, reg::PptbReg::LAYOUT),
    (RegisterId::PBMC, reg::PbmcReg::LAYOUT),
    (RegisterId::PMAOS, reg::PmaosReg::LAYOUT),
    (RegisterId::PPLM, reg::PplmReg::LAYOUT),
    (RegisterId::PDDR, reg::PddrReg::LAYOUT),
    (RegisterId::PPHCR, reg::PphcrReg::LAYOUT),
    (RegisterId::PCMR, reg::PcmrReg::LAYOUT),
    (RegisterId::PCAM, reg::PcamReg::LAYOUT),
    (RegisterId::NODE_DESC, reg_device::NodeDesc::LAYOUT),
    (RegisterId::HOST_ENDIANNESS, reg_device::RegisterHostEndianness::LAYOUT),
    (RegisterId::MTCAP, reg_device::MtcapReg::LAYOUT),
    (RegisterId::MTMP, reg_device::MtmpReg::LAYOUT),
    (RegisterId::MCIA, reg_device::MciaReg::LAYOUT),
    (RegisterId::MRTC, reg_device::MrtcReg::LAYOUT),
    (RegisterId::MPCNT, reg_device::MpcntReg::LAYOUT),
    (RegisterId::MCQS, reg_device::McqsReg::LAYOUT),
    (RegisterId::MCQI, reg_device::McqiReg::LAYOUT),
    (RegisterId::MCAM, reg_device::McamReg::LAYOUT),
    (RegisterId::SBPR, reg_device::SbprReg::LAYOUT),
    (RegisterId::SBCM, reg_device::SbcmReg::LAYOUT),
    (RegisterId::SBCAM, reg_device::SbcamReg::LAYOUT),
    (RegisterId::DTOR, reg_device::DtorReg::LAYOUT),
    (RegisterId::CORE_DUMP, diag::CoreDumpReg::LAYOUT),
    (RegisterId::MTRC_CAP, diag::MtrcCap::LAYOUT),
    (RegisterId::MTRC_CONF, diag::MtrcConf::LAYOUT),
    (RegisterId::MTRC_STDB, diag::MtrcStdb::LAYOUT),
    (RegisterId::MTRC_CTRL, diag::MtrcCtrl::LAYOUT),
    (RegisterId::RESOURCE_DUMP, diag::ResourceDump::LAYOUT),
];

/// Every declared command in order of opcodes: input, output.
#[rustfmt::skip]
pub static COMMANDS: &[(Opcode, &Layout, &Layout)] = &[
    (Opcode::QUERY_HCA_CAP, hca::QueryHcaCapIn::LAYOUT, hca::QueryHcaCapOut::LAYOUT),
    (Opcode::QUERY_ADAPTER, hca::QueryAdapterIn::LAYOUT, hca::QueryAdapterOut::LAYOUT),
    (Opcode::INIT_HCA, hca::InitHcaIn::LAYOUT, hca::InitHcaOut::LAYOUT),
    (Opcode::TEARDOWN_HCA, hca::TeardownHcaIn::LAYOUT, hca::TeardownHcaOut::LAYOUT),
    (Opcode::ENABLE_HCA, hca::EnableHcaIn::LAYOUT, hca::EnableHcaOut::LAYOUT),
    (Opcode::DISABLE_HCA, hca::DisableHcaIn::LAYOUT, hca::DisableHcaOut::LAYOUT),
    (Opcode::QUERY_PAGES, hca::QueryPagesIn::LAYOUT, hca::QueryPagesOut::LAYOUT),
    (Opcode::MANAGE_PAGES, hca::ManagePagesIn::LAYOUT, hca::ManagePagesOut::LAYOUT),
    (Opcode::SET_HCA_CAP, hca::SetHcaCapIn::LAYOUT, hca::SetHcaCapOut::LAYOUT),
    (Opcode::QUERY_ISSI, hca::QueryIssiIn::LAYOUT, hca::QueryIssiOut::LAYOUT),
    (Opcode::SET_ISSI, hca::SetIssiIn::LAYOUT, hca::SetIssiOut::LAYOUT),
    (Opcode::SET_DRIVER_VERSION, hca::SetDriverVersionIn::LAYOUT, hca::SetDriverVersionOut::LAYOUT),
    (Opcode::CREATE_MKEY, mkey::CreateMkeyIn::LAYOUT, mkey::CreateMkeyOut::LAYOUT),
    (Opcode::QUERY_MKEY, mkey::QueryMkeyIn::LAYOUT, mkey::QueryMkeyOut::LAYOUT),
    (Opcode::DESTROY_MKEY, mkey::DestroyMkeyIn::LAYOUT, mkey::DestroyMkeyOut::LAYOUT),
    (Opcode::QUERY_SPECIAL_CONTEXTS, mkey::QuerySpecialContextsIn::LAYOUT, mkey::QuerySpecialContextsOut::LAYOUT),
    (Opcode::PAGE_FAULT_RESUME, mkey::PageFaultResumeIn::LAYOUT, mkey::PageFaultResumeOut::LAYOUT),
    (Opcode::ALLOC_MEMIC, pd::AllocMemicIn::LAYOUT, pd::AllocMemicOut::LAYOUT),
    (Opcode::DEALLOC_MEMIC, pd::DeallocMemicIn::LAYOUT, pd::DeallocMemicOut::LAYOUT),
    (Opcode::MODIFY_MEMIC, pd::ModifyMemicIn::LAYOUT, pd::ModifyMemicOut::LAYOUT),
    (Opcode::CREATE_EQ, eq::CreateEqIn::LAYOUT, eq::CreateEqOut::LAYOUT),
    (Opcode::DESTROY_EQ, eq::DestroyEqIn::LAYOUT, eq::DestroyEqOut::LAYOUT),
    (Opcode::QUERY_EQ, eq::QueryEqIn::LAYOUT, eq::QueryEqOut::LAYOUT),
    (Opcode::CREATE_CQ, cq::CreateCqIn::LAYOUT, cq::CreateCqOut::LAYOUT),
    (Opcode::DESTROY_CQ, cq::DestroyCqIn::LAYOUT, cq::DestroyCqOut::LAYOUT),
    (Opcode::QUERY_CQ, cq::QueryCqIn::LAYOUT, cq::QueryCqOut::LAYOUT),
    (Opcode::MODIFY_CQ, cq::ModifyCqIn::LAYOUT, cq::ModifyCqOut::LAYOUT),
    (Opcode::CREATE_QP, qp::CreateQpIn::LAYOUT, qp::CreateQpOut::LAYOUT),
    (Opcode::DESTROY_QP, qp::DestroyQpIn::LAYOUT, qp::DestroyQpOut::LAYOUT),
    (Opcode::RST2INIT_QP, qp::Rst2initQpIn::LAYOUT, qp::Rst2initQpOut::LAYOUT),
    (Opcode::INIT2RTR_QP, qp::Init2rtrQpIn::LAYOUT, qp::Init2rtrQpOut::LAYOUT),
    (Opcode::RTR2RTS_QP, qp::Rtr2rtsQpIn::LAYOUT, qp::Rtr2rtsQpOut::LAYOUT),
    (Opcode::RTS2RTS_QP, qp::Rts2rtsQpIn::LAYOUT, qp::Rts2rtsQpOut::LAYOUT),
    (Opcode::SQERR2RTS_QP, qp::Sqerr2rtsQpIn::LAYOUT, qp::Sqerr2rtsQpOut::LAYOUT),
    (Opcode::QP_2ERR, qp::Qp2errIn::LAYOUT, qp::Qp2errOut::LAYOUT),
    (Opcode::QP_2RST, qp::Qp2rstIn::LAYOUT, qp::Qp2rstOut::LAYOUT),
    (Opcode::QUERY_QP, qp::QueryQpIn::LAYOUT, qp::QueryQpOut::LAYOUT),
    (Opcode::SQD_RTS_QP, qp::Sqd2rtsQpIn::LAYOUT, qp::Sqd2rtsQpOut::LAYOUT),
    (Opcode::MAD_IFC, hca::MadIfcIn::LAYOUT, hca::MadIfcOut::LAYOUT),
    (Opcode::INIT2INIT_QP, qp::Init2initQpIn::LAYOUT, qp::Init2initQpOut::LAYOUT),
    (Opcode::CREATE_PSV, mkey::CreatePsvIn::LAYOUT, mkey::CreatePsvOut::LAYOUT),
    (Opcode::DESTROY_PSV, mkey::DestroyPsvIn::LAYOUT, mkey::DestroyPsvOut::LAYOUT),
    (Opcode::CREATE_SRQ, srq::CreateSrqIn::LAYOUT, srq::CreateSrqOut::LAYOUT),
    (Opcode::DESTROY_SRQ, srq::DestroySrqIn::LAYOUT, srq::DestroySrqOut::LAYOUT),
    (Opcode::QUERY_SRQ, srq::QuerySrqIn::LAYOUT, srq::QuerySrqOut::LAYOUT),
    (Opcode::ARM_RQ, srq::ArmRqIn::LAYOUT, srq::ArmRqOut::LAYOUT),
    (Opcode::CREATE_XRC_SRQ, srq::CreateXrcSrqIn::LAYOUT, srq::CreateXrcSrqOut::LAYOUT),
    (Opcode::DESTROY_XRC_SRQ, srq::DestroyXrcSrqIn::LAYOUT, srq::DestroyXrcSrqOut::LAYOUT),
    (Opcode::QUERY_XRC_SRQ, srq::QueryXrcSrqIn::LAYOUT, srq::QueryXrcSrqOut::LAYOUT),
    (Opcode::ARM_XRC_SRQ, srq::ArmXrcSrqIn::LAYOUT, srq::ArmXrcSrqOut::LAYOUT),
    (Opcode::CREATE_DCT, qp::CreateDctIn::LAYOUT, qp::CreateDctOut::LAYOUT),
    (Opcode::DESTROY_DCT, qp::DestroyDctIn::LAYOUT, qp::DestroyDctOut::LAYOUT),
    (Opcode::DRAIN_DCT, qp::DrainDctIn::LAYOUT, qp::DrainDctOut::LAYOUT),
    (Opcode::QUERY_DCT, qp::QueryDctIn::LAYOUT, qp::QueryDctOut::LAYOUT),
    (Opcode::ARM_DCT_FOR_KEY_VIOLATION, qp::ArmDctIn::LAYOUT, qp::ArmDctOut::LAYOUT),
    (Opcode::CREATE_XRQ, srq::CreateXrqIn::LAYOUT, srq::CreateXrqOut::LAYOUT),
    (Opcode::DESTROY_XRQ, srq::DestroyXrqIn::LAYOUT, srq::DestroyXrqOut::LAYOUT),
    (Opcode::QUERY_XRQ, srq::QueryXrqIn::LAYOUT, srq::QueryXrqOut::LAYOUT),
    (Opcode::ARM_XRQ, srq::ArmXrqIn::LAYOUT, srq::ArmXrqOut::LAYOUT),
    (Opcode::CREATE_ESW_VPORT, vport::CreateEswVportIn::LAYOUT, vport::CreateEswVportOut::LAYOUT),
    (Opcode::DESTROY_ESW_VPORT, vport::DestroyEswVportIn::LAYOUT, vport::DestroyEswVportOut::LAYOUT),
    (Opcode::QUERY_VPORT_STATE, vport::QueryVportStateIn::LAYOUT, vport::QueryVportStateOut::LAYOUT),
    (Opcode::MODIFY_VPORT_STATE, vport::ModifyVportStateIn::LAYOUT, vport::ModifyVportStateOut::LAYOUT),
    (Opcode::QUERY_ESW_VPORT_CONTEXT, vport::QueryEswVportContextIn::LAYOUT, vport::QueryEswVportContextOut::LAYOUT),
    (Opcode::MODIFY_ESW_VPORT_CONTEXT, vport::ModifyEswVportContextIn::LAYOUT, vport::ModifyEswVportContextOut::LAYOUT),
    (Opcode::QUERY_NIC_VPORT_CONTEXT, vport::QueryNicVportContextIn::LAYOUT, vport::QueryNicVportContextOut::LAYOUT),
    (Opcode::MODIFY_NIC_VPORT_CONTEXT, vport::ModifyNicVportContextIn::LAYOUT, vport::ModifyNicVportContextOut::LAYOUT),
    (Opcode::QUERY_ROCE_ADDRESS, vport::QueryRoceAddressIn::LAYOUT, vport::QueryRoceAddressOut::LAYOUT),
    (Opcode::SET_ROCE_ADDRESS, vport::SetRoceAddressIn::LAYOUT, vport::SetRoceAddressOut::LAYOUT),
    (Opcode::QUERY_HCA_VPORT_CONTEXT, vport::QueryHcaVportContextIn::LAYOUT, vport::QueryHcaVportContextOut::LAYOUT),
    (Opcode::MODIFY_HCA_VPORT_CONTEXT, vport::ModifyHcaVportContextIn::LAYOUT, vport::ModifyHcaVportContextOut::LAYOUT),
    (Opcode::QUERY_HCA_VPORT_GID, vport::QueryHcaVportGidIn::LAYOUT, vport::QueryHcaVportGidOut::LAYOUT),
    (Opcode::QUERY_HCA_VPORT_PKEY, vport::QueryHcaVportPkeyIn::LAYOUT, vport::QueryHcaVportPkeyOut::LAYOUT),
    (Opcode::QUERY_VNIC_ENV, counters::QueryVnicEnvIn::LAYOUT, counters::QueryVnicEnvOut::LAYOUT),
    (Opcode::QUERY_VPORT_COUNTER, counters::QueryVportCounterIn::LAYOUT, counters::QueryVportCounterOut::LAYOUT),
    (Opcode::ALLOC_Q_COUNTER, counters::AllocQCounterIn::LAYOUT, counters::AllocQCounterOut::LAYOUT),
    (Opcode::DEALLOC_Q_COUNTER, counters::DeallocQCounterIn::LAYOUT, counters::DeallocQCounterOut::LAYOUT),
    (Opcode::QUERY_Q_COUNTER, counters::QueryQCounterIn::LAYOUT, counters::QueryQCounterOut::LAYOUT),
    (Opcode::SET_PP_RATE_LIMIT, qos::SetPpRateLimitIn::LAYOUT, qos::SetPpRateLimitOut::LAYOUT),
    (Opcode::CREATE_SCHEDULING_ELEMENT, qos::CreateSchedulingElementIn::LAYOUT, qos::CreateSchedulingElementOut::LAYOUT),
    (Opcode::DESTROY_SCHEDULING_ELEMENT, qos::DestroySchedulingElementIn::LAYOUT, qos::DestroySchedulingElementOut::LAYOUT),
    (Opcode::QUERY_SCHEDULING_ELEMENT, qos::QuerySchedulingElementIn::LAYOUT, qos::QuerySchedulingElementOut::LAYOUT),
    (Opcode::MODIFY_SCHEDULING_ELEMENT, qos::ModifySchedulingElementIn::LAYOUT, qos::ModifySchedulingElementOut::LAYOUT),
    (Opcode::ALLOC_PD, pd::AllocPdIn::LAYOUT, pd::AllocPdOut::LAYOUT),
    (Opcode::DEALLOC_PD, pd::DeallocPdIn::LAYOUT, pd::DeallocPdOut::LAYOUT),
    (Opcode::ALLOC_UAR, pd::AllocUarIn::LAYOUT, pd::AllocUarOut::LAYOUT),
    (Opcode::DEALLOC_UAR, pd::DeallocUarIn::LAYOUT, pd::DeallocUarOut::LAYOUT),
    (Opcode::CONFIG_INT_MODERATION, hca::ConfigIntModerationIn::LAYOUT, hca::ConfigIntModerationOut::LAYOUT),
    (Opcode::ACCESS_REG, reg::AccessRegisterIn::LAYOUT, reg::AccessRegisterOut::LAYOUT),
    (Opcode::ATTACH_TO_MCG, qp::AttachToMcgIn::LAYOUT, qp::AttachToMcgOut::LAYOUT),
    (Opcode::DETACH_FROM_MCG, qp::DetachFromMcgIn::LAYOUT, qp::DetachFromMcgOut::LAYOUT),
    (Opcode::QUERY_MAD_DEMUX, hca::QueryMadDemuxIn::LAYOUT, hca::QueryMadDemuxOut::LAYOUT),
    (Opcode::SET_MAD_DEMUX, hca::SetMadDemuxIn::LAYOUT, hca::SetMadDemuxOut::LAYOUT),
    (Opcode::NOP, hca::NopIn::LAYOUT, hca::NopOut::LAYOUT),
    (Opcode::ALLOC_XRCD, pd::AllocXrcdIn::LAYOUT, pd::AllocXrcdOut::LAYOUT),
    (Opcode::DEALLOC_XRCD, pd::DeallocXrcdIn::LAYOUT, pd::DeallocXrcdOut::LAYOUT),
    (Opcode::ALLOC_TRANSPORT_DOMAIN, pd::AllocTransportDomainIn::LAYOUT, pd::AllocTransportDomainOut::LAYOUT),
    (Opcode::DEALLOC_TRANSPORT_DOMAIN, pd::DeallocTransportDomainIn::LAYOUT, pd::DeallocTransportDomainOut::LAYOUT),
    (Opcode::ADD_VXLAN_UDP_DPORT, vport::AddVxlanUdpDportIn::LAYOUT, vport::AddVxlanUdpDportOut::LAYOUT),
    (Opcode::DELETE_VXLAN_UDP_DPORT, vport::DeleteVxlanUdpDportIn::LAYOUT, vport::DeleteVxlanUdpDportOut::LAYOUT),
    (Opcode::SET_L2_TABLE_ENTRY, vport::SetL2TableEntryIn::LAYOUT, vport::SetL2TableEntryOut::LAYOUT),
    (Opcode::QUERY_L2_TABLE_ENTRY, vport::QueryL2TableEntryIn::LAYOUT, vport::QueryL2TableEntryOut::LAYOUT),
    (Opcode::DELETE_L2_TABLE_ENTRY, vport::DeleteL2TableEntryIn::LAYOUT, vport::DeleteL2TableEntryOut::LAYOUT),
    (Opcode::SET_WOL_ROL, hca::SetWolRolIn::LAYOUT, hca::SetWolRolOut::LAYOUT),
    (Opcode::QUERY_WOL_ROL, hca::QueryWolRolIn::LAYOUT, hca::QueryWolRolOut::LAYOUT),
    (Opcode::CREATE_LAG, qos::CreateLagIn::LAYOUT, qos::CreateLagOut::LAYOUT),
    (Opcode::MODIFY_LAG, qos::ModifyLagIn::LAYOUT, qos::ModifyLagOut::LAYOUT),
    (Opcode::QUERY_LAG, qos::QueryLagIn::LAYOUT, qos::QueryLagOut::LAYOUT),
    (Opcode::DESTROY_LAG, qos::DestroyLagIn::LAYOUT, qos::DestroyLagOut::LAYOUT),
    (Opcode::CREATE_VPORT_LAG, qos::CreateVportLagIn::LAYOUT, qos::CreateVportLagOut::LAYOUT),
    (Opcode::DESTROY_VPORT_LAG, qos::DestroyVportLagIn::LAYOUT, qos::DestroyVportLagOut::LAYOUT),
    (Opcode::CREATE_TIR, tir::CreateTirIn::LAYOUT, tir::CreateTirOut::LAYOUT),
    (Opcode::MODIFY_TIR, tir::ModifyTirIn::LAYOUT, tir::ModifyTirOut::LAYOUT),
    (Opcode::DESTROY_TIR, tir::DestroyTirIn::LAYOUT, tir::DestroyTirOut::LAYOUT),
    (Opcode::QUERY_TIR, tir::QueryTirIn::LAYOUT, tir::QueryTirOut::LAYOUT),
    (Opcode::CREATE_SQ, queue::CreateSqIn::LAYOUT, queue::CreateSqOut::LAYOUT),
    (Opcode::MODIFY_SQ, queue::ModifySqIn::LAYOUT, queue::ModifySqOut::LAYOUT),
    (Opcode::DESTROY_SQ, queue::DestroySqIn::LAYOUT, queue::DestroySqOut::LAYOUT),
    (Opcode::QUERY_SQ, queue::QuerySqIn::LAYOUT, queue::QuerySqOut::LAYOUT),
    (Opcode::CREATE_RQ, queue::CreateRqIn::LAYOUT, queue::CreateRqOut::LAYOUT),
    (Opcode::MODIFY_RQ, queue::ModifyRqIn::LAYOUT, queue::ModifyRqOut::LAYOUT),
    (Opcode::DESTROY_RQ, queue::DestroyRqIn::LAYOUT, queue::DestroyRqOut::LAYOUT),
    (Opcode::QUERY_RQ, queue::QueryRqIn::LAYOUT, queue::QueryRqOut::LAYOUT),
    (Opcode::CREATE_RMP, srq::CreateRmpIn::LAYOUT, srq::CreateRmpOut::LAYOUT),
    (Opcode::MODIFY_RMP, srq::ModifyRmpIn::LAYOUT, srq::ModifyRmpOut::LAYOUT),
    (Opcode::DESTROY_RMP, srq::DestroyRmpIn::LAYOUT, srq::DestroyRmpOut::LAYOUT),
    (Opcode::QUERY_RMP, srq::QueryRmpIn::LAYOUT, srq::QueryRmpOut::LAYOUT),
    (Opcode::SET_DELAY_DROP_PARAMS, queue::SetDelayDropParamsIn::LAYOUT, queue::SetDelayDropParamsOut::LAYOUT),
    (Opcode::CREATE_TIS, tir::CreateTisIn::LAYOUT, tir::CreateTisOut::LAYOUT),
    (Opcode::MODIFY_TIS, tir::ModifyTisIn::LAYOUT, tir::ModifyTisOut::LAYOUT),
    (Opcode::DESTROY_TIS, tir::DestroyTisIn::LAYOUT, tir::DestroyTisOut::LAYOUT),
    (Opcode::QUERY_TIS, tir::QueryTisIn::LAYOUT, tir::QueryTisOut::LAYOUT),
    (Opcode::CREATE_RQT, tir::CreateRqtIn::LAYOUT, tir::CreateRqtOut::LAYOUT),
    (Opcode::MODIFY_RQT, tir::ModifyRqtIn::LAYOUT, tir::ModifyRqtOut::LAYOUT),
    (Opcode::DESTROY_RQT, tir::DestroyRqtIn::LAYOUT, tir::DestroyRqtOut::LAYOUT),
    (Opcode::QUERY_RQT, tir::QueryRqtIn::LAYOUT, tir::QueryRqtOut::LAYOUT),
    (Opcode::SET_FLOW_TABLE_ROOT, flow::SetFlowTableRootIn::LAYOUT, flow::SetFlowTableRootOut::LAYOUT),
    (Opcode::CREATE_FLOW_TABLE, flow::CreateFlowTableIn::LAYOUT, flow::CreateFlowTableOut::LAYOUT),
    (Opcode::DESTROY_FLOW_TABLE, flow::DestroyFlowTableIn::LAYOUT, flow::DestroyFlowTableOut::LAYOUT),
    (Opcode::QUERY_FLOW_TABLE, flow::QueryFlowTableIn::LAYOUT, flow::QueryFlowTableOut::LAYOUT),
    (Opcode::CREATE_FLOW_GROUP, flow::CreateFlowGroupIn::LAYOUT, flow::CreateFlowGroupOut::LAYOUT),
    (Opcode::DESTROY_FLOW_GROUP, flow::DestroyFlowGroupIn::LAYOUT, flow::DestroyFlowGroupOut::LAYOUT),
    (Opcode::QUERY_FLOW_GROUP, flow::QueryFlowGroupIn::LAYOUT, flow::QueryFlowGroupOut::LAYOUT),
    (Opcode::SET_FLOW_TABLE_ENTRY, flow::SetFteIn::LAYOUT, flow::SetFteOut::LAYOUT),
    (Opcode::QUERY_FLOW_TABLE_ENTRY, flow::QueryFteIn::LAYOUT, flow::QueryFteOut::LAYOUT),
    (Opcode::DELETE_FLOW_TABLE_ENTRY, flow::DeleteFteIn::LAYOUT, flow::DeleteFteOut::LAYOUT),
    (Opcode::ALLOC_FLOW_COUNTER, counters::AllocFlowCounterIn::LAYOUT, counters::AllocFlowCounterOut::LAYOUT),
    (Opcode::DEALLOC_FLOW_COUNTER, counters::DeallocFlowCounterIn::LAYOUT, counters::DeallocFlowCounterOut::LAYOUT),
    (Opcode::QUERY_FLOW_COUNTER, counters::QueryFlowCounterIn::LAYOUT, counters::QueryFlowCounterOut::LAYOUT),
    (Opcode::MODIFY_FLOW_TABLE, flow::ModifyFlowTableIn::LAYOUT, flow::ModifyFlowTableOut::LAYOUT),
    (Opcode::ALLOC_PACKET_REFORMAT_CONTEXT, flow::AllocPacketReformatContextIn::LAYOUT, flow::AllocPacketReformatContextOut::LAYOUT),
    (Opcode::DEALLOC_PACKET_REFORMAT_CONTEXT, flow::DeallocPacketReformatContextIn::LAYOUT, flow::DeallocPacketReformatContextOut::LAYOUT),
    (Opcode::QUERY_PACKET_REFORMAT_CONTEXT, flow::QueryPacketReformatContextIn::LAYOUT, flow::QueryPacketReformatContextOut::LAYOUT),
    (Opcode::ALLOC_MODIFY_HEADER_CONTEXT, flow::AllocModifyHeaderContextIn::LAYOUT, flow::AllocModifyHeaderContextOut::LAYOUT),
    (Opcode::DEALLOC_MODIFY_HEADER_CONTEXT, flow::DeallocModifyHeaderContextIn::LAYOUT, flow::DeallocModifyHeaderContextOut::LAYOUT),
    (Opcode::QUERY_MODIFY_HEADER_CONTEXT, flow::QueryModifyHeaderContextIn::LAYOUT, cmd::MboxOut::LAYOUT),
    (Opcode::CREATE_GENERAL_OBJECT, devx::GeneralObjInCmdHdr::LAYOUT, devx::GeneralObjOutCmdHdr::LAYOUT),
    (Opcode::MODIFY_GENERAL_OBJECT, devx::GeneralObjInCmdHdr::LAYOUT, devx::GeneralObjOutCmdHdr::LAYOUT),
    (Opcode::QUERY_GENERAL_OBJECT, devx::GeneralObjInCmdHdr::LAYOUT, devx::GeneralObjOutCmdHdr::LAYOUT),
    (Opcode::DESTROY_GENERAL_OBJECT, devx::GeneralObjInCmdHdr::LAYOUT, devx::GeneralObjOutCmdHdr::LAYOUT),
    (Opcode::CREATE_UCTX, devx::CreateUctxIn::LAYOUT, devx::CreateUctxOut::LAYOUT),
    (Opcode::DESTROY_UCTX, devx::DestroyUctxIn::LAYOUT, devx::DestroyUctxOut::LAYOUT),
    (Opcode::CREATE_UMEM, devx::CreateUmemIn::LAYOUT, devx::CreateUmemOut::LAYOUT),
    (Opcode::DESTROY_UMEM, devx::DestroyUmemIn::LAYOUT, devx::DestroyUmemOut::LAYOUT),
    (Opcode::SYNC_STEERING, flow::SyncSteeringIn::LAYOUT, flow::SyncSteeringOut::LAYOUT),
    (Opcode::QUERY_VUID, hca::QueryVuidIn::LAYOUT, hca::QueryVuidOut::LAYOUT),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn commands_are_in_order_and_have_the_common_header() {
        assert!(COMMANDS.windows(2).all(|w| w[0].0 < w[1].0));
        for (opcode, input, output) in COMMANDS {
            let name = opcode.name().expect("a listed opcode has a name");
            assert_eq!(input.find("opcode"), Some((0, 16)), "{name}");
            if *opcode == Opcode::QUERY_SCHEDULING_ELEMENT {
                // mlx5_ifc.h gives this output the head of an input; the bits are those of status and syndrome.
                continue;
            }
            assert_eq!(output.find("status"), Some((0, 8)), "{name}");
            assert_eq!(output.find("syndrome"), Some((0x20, 32)), "{name}");
        }
    }

    #[test]
    fn every_declared_command_input_is_in_the_table() {
        let listed: BTreeSet<_> = COMMANDS.iter().map(|c| c.1.name).collect();
        let headers = ["mbox_in", "create_match_definer_in"];
        for l in all_layouts() {
            if l.name.ends_with("_in") && l.find("opcode") == Some((0, 16)) && !headers.contains(&l.name) {
                assert!(listed.contains(l.name), "{} is in no command", l.name);
            }
        }
    }

    #[test]
    fn lookups_find_the_right_layout() {
        let (i, o) = layouts(Opcode::CREATE_MKEY, 0).unwrap();
        assert_eq!((i.name, o.name), ("create_mkey_in", "create_mkey_out"));
        let (i, _) = layouts(Opcode::CREATE_GENERAL_OBJECT, ObjType::MATCH_DEFINER.0).unwrap();
        assert_eq!(i.name, "create_match_definer_in");
        assert!(layouts(Opcode(0xfff), 0).is_none());
        assert_eq!(cap_layout(0x20).unwrap().0, "general_2");
        assert_eq!(cap_by_name("general").unwrap().1.find("log_max_qp"), Some((0x9b, 5)));
        assert!(cap_layout(0xe).is_none());
        assert_eq!(register_layout(RegisterId::PTYS).unwrap().name, "ptys_reg");
    }

    #[test]
    fn every_capability_fits_the_capability_area() {
        for (_, name, l) in CAPS {
            assert!(l.bytes() <= 4096, "{name}");
        }
    }

    #[test]
    fn layout_names_are_unique() {
        let mut seen = BTreeSet::new();
        for l in all_layouts() {
            assert!(seen.insert(l.name), "{} is declared twice", l.name);
        }
        assert!(seen.len() > 500);
    }
}
