//! Capabilities are promises: a feature that a profile advertises has its commands, and a command whose feature is not
//! advertised is not needed. The table is what the kernel and rdma-core send once they see the capability.

use cx10::cmdif;
use cx10::prm::Opcode;
use cx10::profile::{Profile, builtin};

/// Capability type, field, and the commands that it promises.
static PROMISES: &[(u16, &str, &[Opcode])] = &[
    (
        0,
        "num_ports",
        &[
            Opcode::ENABLE_HCA,
            Opcode::DISABLE_HCA,
            Opcode::QUERY_ISSI,
            Opcode::SET_ISSI,
            Opcode::QUERY_PAGES,
            Opcode::MANAGE_PAGES,
            Opcode::QUERY_HCA_CAP,
            Opcode::SET_HCA_CAP,
            Opcode::INIT_HCA,
            Opcode::TEARDOWN_HCA,
            Opcode::QUERY_ADAPTER,
            Opcode::ACCESS_REG,
            Opcode::ALLOC_UAR,
            Opcode::DEALLOC_UAR,
            Opcode::QUERY_NIC_VPORT_CONTEXT,
            Opcode::MODIFY_NIC_VPORT_CONTEXT,
            Opcode::QUERY_VPORT_STATE,
            Opcode::MODIFY_VPORT_STATE,
        ],
    ),
    (0, "log_max_eq", &[Opcode::CREATE_EQ, Opcode::DESTROY_EQ, Opcode::QUERY_EQ]),
    (0, "log_max_cq", &[Opcode::CREATE_CQ, Opcode::DESTROY_CQ, Opcode::QUERY_CQ]),
    (0, "cq_moderation", &[Opcode::MODIFY_CQ]),
    (0, "cq_resize", &[Opcode::MODIFY_CQ]),
    (0, "log_max_mkey", &[Opcode::CREATE_MKEY, Opcode::QUERY_MKEY, Opcode::DESTROY_MKEY]),
    (0, "null_mkey", &[Opcode::QUERY_SPECIAL_CONTEXTS]),
    (0, "terminate_scatter_list_mkey", &[Opcode::QUERY_SPECIAL_CONTEXTS]),
    (0, "dump_fill_mkey", &[Opcode::QUERY_SPECIAL_CONTEXTS]),
    (0, "device_memory", &[Opcode::ALLOC_MEMIC, Opcode::DEALLOC_MEMIC]),
    (0x20, "query_vuid", &[Opcode::QUERY_VUID]),
    (0xf, "memic_operations", &[Opcode::MODIFY_MEMIC]),
    (0, "log_max_pd", &[Opcode::ALLOC_PD, Opcode::DEALLOC_PD]),
    (0, "log_max_transport_domain", &[Opcode::ALLOC_TRANSPORT_DOMAIN, Opcode::DEALLOC_TRANSPORT_DOMAIN]),
    (0, "log_max_uctx", &[Opcode::CREATE_UCTX, Opcode::DESTROY_UCTX]),
    (0, "log_max_umem", &[Opcode::CREATE_UMEM, Opcode::DESTROY_UMEM]),
    (
        0,
        "log_max_qp",
        &[
            Opcode::CREATE_QP,
            Opcode::DESTROY_QP,
            Opcode::RST2INIT_QP,
            Opcode::INIT2INIT_QP,
            Opcode::INIT2RTR_QP,
            Opcode::RTR2RTS_QP,
            Opcode::RTS2RTS_QP,
            Opcode::SQERR2RTS_QP,
            Opcode::QP_2ERR,
            Opcode::QP_2RST,
            Opcode::QUERY_QP,
        ],
    ),
    (
        0,
        "log_max_srq",
        &[
            Opcode::CREATE_SRQ,
            Opcode::DESTROY_SRQ,
            Opcode::QUERY_SRQ,
            Opcode::ARM_RQ,
            Opcode::CREATE_RMP,
            Opcode::MODIFY_RMP,
            Opcode::DESTROY_RMP,
            Opcode::QUERY_RMP,
        ],
    ),
    (
        0,
        "xrc",
        &[
            Opcode::ALLOC_XRCD,
            Opcode::DEALLOC_XRCD,
            Opcode::CREATE_XRC_SRQ,
            Opcode::DESTROY_XRC_SRQ,
            Opcode::QUERY_XRC_SRQ,
            Opcode::ARM_XRC_SRQ,
        ],
    ),
    (0, "log_max_mcg", &[Opcode::ATTACH_TO_MCG, Opcode::DETACH_FROM_MCG]),
    (0, "max_qp_cnt", &[Opcode::ALLOC_Q_COUNTER, Opcode::DEALLOC_Q_COUNTER, Opcode::QUERY_Q_COUNTER]),
    (0, "vport_counters", &[Opcode::QUERY_VPORT_COUNTER]),
    (0, "driver_version", &[Opcode::SET_DRIVER_VERSION]),
    (0, "roce", &[Opcode::SET_ROCE_ADDRESS, Opcode::QUERY_ROCE_ADDRESS]),
    (0, "log_max_rq", &[Opcode::CREATE_RQ, Opcode::MODIFY_RQ, Opcode::DESTROY_RQ, Opcode::QUERY_RQ]),
    (0, "log_max_sq", &[Opcode::CREATE_SQ, Opcode::MODIFY_SQ, Opcode::DESTROY_SQ, Opcode::QUERY_SQ]),
    (0, "log_max_tis", &[Opcode::CREATE_TIS, Opcode::MODIFY_TIS, Opcode::DESTROY_TIS, Opcode::QUERY_TIS]),
    (0, "log_max_tir", &[Opcode::CREATE_TIR, Opcode::MODIFY_TIR, Opcode::DESTROY_TIR, Opcode::QUERY_TIR]),
    (0, "log_max_rqt", &[Opcode::CREATE_RQT, Opcode::MODIFY_RQT, Opcode::DESTROY_RQT, Opcode::QUERY_RQT]),
    (
        0,
        "nic_flow_table",
        &[
            Opcode::CREATE_FLOW_TABLE,
            Opcode::DESTROY_FLOW_TABLE,
            Opcode::MODIFY_FLOW_TABLE,
            Opcode::SET_FLOW_TABLE_ROOT,
            Opcode::CREATE_FLOW_GROUP,
            Opcode::DESTROY_FLOW_GROUP,
            Opcode::SET_FLOW_TABLE_ENTRY,
            Opcode::DELETE_FLOW_TABLE_ENTRY,
        ],
    ),
    (
        7,
        "flow_table_properties_nic_receive.flow_counter",
        &[Opcode::ALLOC_FLOW_COUNTER, Opcode::DEALLOC_FLOW_COUNTER, Opcode::QUERY_FLOW_COUNTER],
    ),
    (0, "dct", &[Opcode::CREATE_DCT]),
    (0, "tag_matching", &[Opcode::CREATE_XRQ]),
    (0, "qos", &[Opcode::CREATE_SCHEDULING_ELEMENT]),
    (0, "pg", &[Opcode::PAGE_FAULT_RESUME]),
    (0, "sigerr_cqe", &[Opcode::CREATE_PSV]),
    (0, "cc_query_allowed", &[Opcode::QUERY_CONG_STATUS]),
    (0, "eswitch_manager", &[Opcode::QUERY_ESW_VPORT_CONTEXT]),
    (0, "vport_group_manager", &[Opcode::QUERY_ESW_FUNCTIONS]),
    (0, "migration", &[Opcode::SUSPEND_VHCA]),
    (0, "sf", &[Opcode::ALLOC_SF]),
    (7, "log_max_packet_reformat_context", &[Opcode::ALLOC_PACKET_REFORMAT_CONTEXT]),
    (7, "flow_table_properties_nic_receive.max_modify_header_actions", &[Opcode::ALLOC_MODIFY_HEADER_CONTEXT]),
];

/// The promises of a profile that the device does not keep.
fn broken(name: &str, sets: &[&str]) -> Vec<String> {
    let profile = Profile::with(name, sets).unwrap();
    let advertised = PROMISES.iter().filter(|(cap_type, field, _)| profile.cap(*cap_type, field) != 0);
    advertised
        .flat_map(|(_, field, opcodes)| opcodes.iter().map(move |opcode| (field, opcode)))
        .filter(|(_, opcode)| !cmdif::implements(**opcode))
        .map(|(field, opcode)| format!("{name}: {field} promises {opcode}"))
        .collect()
}

#[test]
fn what_a_profile_advertises_is_implemented() {
    let broken: Vec<String> = builtin::names().flat_map(|name| broken(name, &[])).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_promise_that_is_not_kept_is_noticed() {
    assert_eq!(broken("connectx10-c2c", &["caps.general.dct=1"]), ["connectx10-c2c: dct promises CREATE_DCT"]);
}

#[test]
fn every_promise_names_a_field() {
    for (cap_type, field, _) in PROMISES {
        let layout = cx10::profile::caps::layout(*cap_type).unwrap();
        assert!(layout.find(field).is_some(), "{field}");
    }
}
