//! What a queue pair's context may say, by the capabilities.

use super::super::Ctx;
use super::super::error::CmdError;
use super::{refuse, syn};
use crate::device::capabilities::{ATOMIC, GENERAL_2, ROCE};
use crate::device::qp::{Attributes, Service};
use crate::prm::qp::Qpc;
use crate::prm::values::{AtomicMode, PathMigration, QpMtu, QpRqType};

const QOS: u16 = 0xc;

/// Fields that ask for a feature: how to read them, and the general capability without which they must be 0. An empty
/// name stands for a feature that this device never has.
type Feature = (fn(&Qpc<Vec<u8>>) -> u32, &'static str);
const FEATURES: &[Feature] = &[
    (|c| c.wq_signature(), "wq_signature"),
    (|c| c.block_lb_mc(), "block_lb_mc"),
    (|c| c.drain_sigerr(), "drain_sigerr"),
    (|c| c.isolate_vl_tc(), "isolate_vl_tc_new"),
    (|c| c.req_e2e_credit_mode(), "qp_packet_based"),
    (|c| c.end_padding_mode(), "end_pad"),
    (|c| c.retry_mode(), "go_back_n"),
    (|c| c.cs_req() | c.cs_res(), "sctr_data_cqe"),
    (|c| c.cd_master() | c.cd_slave_send() | c.cd_slave_receive(), "cd"),
    (|c| c.deth_sqpn(), "set_deth_sqpn"),
    (|c| c.ulp_stateless_offload_mode(), "ipoib_basic_offloads"),
    (|c| c.lag_tx_port_affinity(), "lag_tx_port_affinity"),
    (|c| c.offload_type(), "rndv_offload_rc"),
    (|c| c.atomic_like_write_en(), ""),
    (|c| c.packet_pacing_rate_limit_index(), ""),
    (|c| c.log_num_dci_stream_channels() | c.log_num_dci_errored_streams(), "log_max_dci_stream_channels"),
];

/// The general capability that a service type needs.
fn capability(service: Service) -> Option<&'static str> {
    match service {
        Service::Rc => Some("rc"),
        Service::Uc => Some("uc"),
        Service::Ud => Some("ud"),
        Service::Xrc => Some("xrc"),
        Service::Qp0 | Service::Qp1 | Service::RawEthertype | Service::RegUmr => None,
    }
}

/// Checks the context of CREATE_QP, but for the numbers and addresses that it names.
pub(super) fn creation(ctx: &Ctx<'_>, service: Service, context: &Qpc<Vec<u8>>) -> Result<(), CmdError> {
    let cap = |name| ctx.hca.caps.general(name);
    if capability(service).is_some_and(|name| cap(name) == 0) {
        return refuse(syn::SERVICE_TYPE);
    }
    if service.special() && ctx.uid != 0 {
        return refuse(syn::SPECIAL);
    }
    if context.rlky() != 0 && ctx.uid != 0 {
        return refuse(syn::RESERVED_LKEY);
    }
    // Only the driver may speak for another queue pair.
    if context.deth_sqpn() != 0 && ctx.uid != 0 {
        return refuse(syn::SPECIAL);
    }
    if FEATURES.iter().any(|(field, name)| field(context) != 0 && (name.is_empty() || cap(name) == 0)) {
        return refuse(syn::FEATURE);
    }
    placement_order(ctx, service, context)?;
    migration(ctx, context.pm_state())?;
    // Free-running and default are the same here; real time needs the capability.
    const REAL_TIME: u32 = 2;
    if context.ts_format() >= REAL_TIME && ctx.hca.caps.get(ROCE, "qp_ts_format") == 0 {
        return refuse(syn::TIMESTAMP);
    }
    let rq_type = QpRqType(context.rq_type() as u8);
    match (service, rq_type) {
        (Service::Xrc, QpRqType::SRQ_RQ) => {}
        (Service::Xrc, _) => return refuse(syn::RQ_TYPE),
        (Service::RegUmr, QpRqType::ZERO_LEN_RQ) => {}
        (Service::RegUmr, _) => return refuse(syn::RQ_TYPE),
        (_, QpRqType::NON_ZERO_RQ | QpRqType::SRQ_RQ | QpRqType::ZERO_LEN_RQ) => {}
        _ => return refuse(syn::RQ_TYPE),
    }
    if context.no_sq() == 0 && u64::from(context.log_sq_size()) > cap("log_max_qp_sz") {
        return refuse(syn::TOO_LARGE);
    }
    if rq_type == QpRqType::NON_ZERO_RQ {
        if u64::from(context.log_rq_size()) > cap("log_max_qp_sz") {
            return refuse(syn::TOO_LARGE);
        }
        if 16 << context.log_rq_stride() > cap("max_wqe_sz_rq") {
            return refuse(syn::STRIDE);
        }
    }
    Ok(())
}

fn migration<T: Into<u32>>(ctx: &Ctx<'_>, pm_state: T) -> Result<(), CmdError> {
    match PathMigration(pm_state.into() as u8) {
        // Armed without an alternate path never migrates.
        PathMigration::ARMED | PathMigration::MIGRATED => Ok(()),
        PathMigration::REARM if ctx.hca.caps.general("apm") != 0 => Ok(()),
        _ => refuse(syn::MIGRATION),
    }
}

fn placement_order<B: AsRef<[u8]>>(ctx: &Ctx<'_>, service: Service, context: &Qpc<B>) -> Result<(), CmdError> {
    let name = match service {
        Service::Rc => "dp_ordering_ooo_all_rc",
        Service::Uc => "dp_ordering_ooo_all_uc",
        Service::Ud => "dp_ordering_ooo_all_ud",
        Service::Xrc => "dp_ordering_ooo_all_xrc",
        _ => "",
    };
    let allowed = !name.is_empty() && ctx.hca.caps.general(name) != 0;
    let forced = ctx.hca.caps.get(GENERAL_2, "dp_ordering_force") != 0;
    if context.dp_ordering_1() != 0 && !allowed || context.dp_ordering_force() != 0 && !forced {
        return refuse(syn::PLACEMENT_ORDER);
    }
    Ok(())
}

/// Checks the attributes that a command takes from its input.
pub(super) fn attributes(
    ctx: &Ctx<'_>,
    service: Service,
    taken: Attributes,
    wanted: &Qpc<&[u8]>,
) -> Result<(), CmdError> {
    use Attributes as A;
    let cap = |name| ctx.hca.caps.general(name);
    let has = |attribute| taken.intersects(attribute);
    let path = wanted.primary_address_path();
    if has(A::PORT | A::PATH) && u64::from(path.vhca_port_num()) > cap("num_ports") {
        return refuse(syn::PORT);
    }
    if has(A::PKEY) && u64::from(path.pkey_index()) >= 128 << cap("pkey_table_size") {
        return refuse(syn::PKEY);
    }
    if has(A::PATH) && u64::from(path.src_addr_index()) >= ctx.hca.caps.get(ROCE, "roce_address_table_size") {
        return refuse(syn::GID_INDEX);
    }
    if has(A::MESSAGE) {
        let mtu = QpMtu(wanted.mtu() as u8);
        let raw = service == Service::RawEthertype && mtu == QpMtu::RAW_ETHERNET_QP;
        if !raw && !(QpMtu::MTU_256.0..=QpMtu::MTU_4K.0).contains(&mtu.0) {
            return refuse(syn::MTU);
        }
        if u64::from(wanted.log_msg_max()) > cap("log_max_msg") {
            return refuse(syn::MESSAGE_SIZE);
        }
    }
    if has(A::RESPONDER_READS) && u64::from(wanted.log_rra_max()) > cap("log_max_ra_res_qp") {
        return refuse(syn::READS);
    }
    if has(A::REQUESTER_READS) && u64::from(wanted.log_sra_max()) > cap("log_max_ra_req_qp") {
        return refuse(syn::READS);
    }
    if has(A::REMOTE_ATOMIC) && wanted.rae() != 0 && !atomic_mode_granted(ctx, AtomicMode(wanted.atomic_mode() as u8)) {
        return refuse(syn::ATOMIC_MODE);
    }
    if has(A::MIGRATION) {
        migration(ctx, wanted.pm_state())?;
    }
    if has(A::ALTERNATE_PATH) && cap("apm") == 0 {
        return refuse(syn::MIGRATION);
    }
    if has(A::PLACEMENT_ORDER) {
        placement_order(ctx, service, wanted)?;
    }
    if has(A::LAG_AFFINITY) && cap("init2_lag_tx_port_affinity") == 0 {
        return refuse(syn::FEATURE);
    }
    if has(A::RATE_LIMIT) && ctx.hca.caps.get(QOS, "packet_pacing") == 0 {
        return refuse(syn::FEATURE);
    }
    Ok(())
}

/// The modes follow from the operations: the IB ones need compare-and-swap and fetch-and-add, the others their
/// extended forms.
fn atomic_mode_granted(ctx: &Ctx<'_>, mode: AtomicMode) -> bool {
    const IB: u64 = 0b0011;
    const EXTENDED: u64 = 0b1100;
    let operations = ctx.hca.caps.get(ATOMIC, "atomic_operations");
    let sizes = ctx.hca.caps.get(ATOMIC, "atomic_size_qp");
    if ctx.hca.caps.general("atomic") == 0 {
        return false;
    }
    match mode {
        AtomicMode::IB_SPEC => operations & IB == IB,
        AtomicMode::ONLY_8B | AtomicMode::UP_TO_8B => operations & EXTENDED != 0 && sizes & 8 != 0,
        AtomicMode(mode) if (AtomicMode::UP_TO_16B.0..=AtomicMode::UP_TO_256B.0).contains(&mode) => {
            operations & EXTENDED != 0 && sizes >> mode & 1 != 0
        }
        _ => false,
    }
}
