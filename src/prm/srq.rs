//! Shared receive queues: SRQ, XRC SRQ, XRQ, RMP. Source of every layout: `mlx5_ifc.h`.

use super::qp::TagMatchingTopologyContext;
use super::queue::Wq;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// XRC shared receive queue context.
    pub struct XrcSrqc = "xrc_srqc", 0x40 bytes {
        state @ 0x0 : 4;
        log_xrc_srq_size @ 0x4 : 4;
        wq_signature @ 0x20 : 1;
        cont_srq @ 0x21 : 1;
        rlky @ 0x23 : 1;
        basic_cyclic_rcv_wqe @ 0x24 : 1;
        log_rq_stride @ 0x25 : 3;
        xrcd @ 0x28 : 24;
        page_offset @ 0x40 : 6;
        dbr_umem_valid @ 0x47 : 1;
        cqn @ 0x48 : 24;
        user_index_equal_xrc_srqn @ 0x80 : 1;
        log_page_size @ 0x82 : 6;
        user_index @ 0x88 : 24;
        pd @ 0xc8 : 24;
        lwm @ 0xe0 : 16;
        wqe_cnt @ 0xf0 : 16;
        db_record_addr_h @ 0x140 : 32;
        db_record_addr_l @ 0x160 : 30;
    }

    /// Shared receive queue context.
    pub struct Srqc = "srqc", 0x40 bytes {
        state @ 0x0 : 4;
        log_srq_size @ 0x4 : 4;
        wq_signature @ 0x20 : 1;
        cont_srq @ 0x21 : 1;
        rlky @ 0x23 : 1;
        log_rq_stride @ 0x25 : 3;
        xrcd @ 0x28 : 24;
        page_offset @ 0x40 : 6;
        cqn @ 0x48 : 24;
        log_page_size @ 0x82 : 6;
        pd @ 0xc8 : 24;
        lwm @ 0xe0 : 16;
        wqe_cnt @ 0xf0 : 16;
        dbr_addr @ 0x140 : 64;
    }

    /// Receive memory pool context.
    pub struct Rmpc = "rmpc", 0xf0 bytes {
        state @ 0x8 : 4;
        basic_cyclic_rcv_wqe @ 0x20 : 1;
        wq @ 0x180 : Wq;
    }

    /// Receive queue with offloads context.
    pub struct Xrqc = "xrqc", 0x140 bytes {
        state @ 0x0 : 4;
        rlkey @ 0x4 : 1;
        topology @ 0x14 : 4;
        offload @ 0x1c : 4;
        user_index @ 0x28 : 24;
        cqn @ 0x48 : 24;
        tag_matching_topology_context @ 0x100 : TagMatchingTopologyContext;
        wq @ 0x400 : Wq;
    }

    /// Output of `QUERY_XRQ`.
    pub struct QueryXrqOut = "query_xrq_out", 0x150 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        xrq_context @ 0x80 : Xrqc;
    }

    /// Input of `QUERY_XRQ`.
    pub struct QueryXrqIn = "query_xrq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        xrqn @ 0x48 : 24;
    }

    /// Output of `QUERY_XRC_SRQ`.
    pub struct QueryXrcSrqOut = "query_xrc_srq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        xrc_srq_context_entry @ 0x80 : XrcSrqc;
        pas @ 0x880 : tail;
    }

    /// Input of `QUERY_XRC_SRQ`.
    pub struct QueryXrcSrqIn = "query_xrc_srq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        xrc_srqn @ 0x48 : 24;
    }

    /// Output of `QUERY_SRQ`.
    pub struct QuerySrqOut = "query_srq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        srq_context_entry @ 0x80 : Srqc;
        pas @ 0x880 : tail;
    }

    /// Input of `QUERY_SRQ`.
    pub struct QuerySrqIn = "query_srq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        srqn @ 0x48 : 24;
    }

    /// Output of `QUERY_RMP`.
    pub struct QueryRmpOut = "query_rmp_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rmp_context @ 0x100 : Rmpc;
    }

    /// Input of `QUERY_RMP`.
    pub struct QueryRmpIn = "query_rmp_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        rmpn @ 0x48 : 24;
    }

    /// Output of `MODIFY_RMP`.
    pub struct ModifyRmpOut = "modify_rmp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Which fields `MODIFY_RMP` changes.
    pub struct RmpBitmask = "rmp_bitmask", 0x8 bytes {
        lwm @ 0x3f : 1;
    }

    /// Input of `MODIFY_RMP`.
    pub struct ModifyRmpIn = "modify_rmp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rmp_state @ 0x40 : 4;
        rmpn @ 0x48 : 24;
        bitmask @ 0x80 : RmpBitmask;
        ctx @ 0x100 : Rmpc;
    }

    /// Output of `DESTROY_XRQ`.
    pub struct DestroyXrqOut = "destroy_xrq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_XRQ`.
    pub struct DestroyXrqIn = "destroy_xrq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrqn @ 0x48 : 24;
    }

    /// Output of `DESTROY_XRC_SRQ`.
    pub struct DestroyXrcSrqOut = "destroy_xrc_srq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_XRC_SRQ`.
    pub struct DestroyXrcSrqIn = "destroy_xrc_srq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrc_srqn @ 0x48 : 24;
    }

    /// Output of `DESTROY_SRQ`.
    pub struct DestroySrqOut = "destroy_srq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_SRQ`.
    pub struct DestroySrqIn = "destroy_srq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        srqn @ 0x48 : 24;
    }

    /// Output of `DESTROY_RMP`.
    pub struct DestroyRmpOut = "destroy_rmp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_RMP`.
    pub struct DestroyRmpIn = "destroy_rmp_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rmpn @ 0x48 : 24;
    }

    /// Output of `CREATE_XRQ`.
    pub struct CreateXrqOut = "create_xrq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        xrqn @ 0x48 : 24;
    }

    /// Input of `CREATE_XRQ`.
    pub struct CreateXrqIn = "create_xrq_in", 0x150 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrq_context @ 0x80 : Xrqc;
    }

    /// Output of `CREATE_XRC_SRQ`.
    pub struct CreateXrcSrqOut = "create_xrc_srq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        xrc_srqn @ 0x48 : 24;
    }

    /// Input of `CREATE_XRC_SRQ`.
    pub struct CreateXrcSrqIn = "create_xrc_srq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrc_srq_context_entry @ 0x80 : XrcSrqc;
        xrc_srq_umem_valid @ 0x2e0 : 1;
        pas @ 0x880 : tail;
    }

    /// Output of `CREATE_SRQ`.
    pub struct CreateSrqOut = "create_srq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        srqn @ 0x48 : 24;
    }

    /// Input of `CREATE_SRQ`.
    pub struct CreateSrqIn = "create_srq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        srq_context_entry @ 0x80 : Srqc;
        pas @ 0x880 : tail;
    }

    /// Output of `CREATE_RMP`.
    pub struct CreateRmpOut = "create_rmp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rmpn @ 0x48 : 24;
    }

    /// Input of `CREATE_RMP`.
    pub struct CreateRmpIn = "create_rmp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x100 : Rmpc;
    }

    /// Output of `ARM_XRQ`.
    pub struct ArmXrqOut = "arm_xrq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ARM_XRQ`.
    pub struct ArmXrqIn = "arm_xrq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        xrqn @ 0x48 : 24;
        lwm @ 0x70 : 16;
    }

    /// Output of `ARM_XRC_SRQ`.
    pub struct ArmXrcSrqOut = "arm_xrc_srq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ARM_XRC_SRQ`.
    pub struct ArmXrcSrqIn = "arm_xrc_srq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrc_srqn @ 0x48 : 24;
        lwm @ 0x70 : 16;
    }

    /// Output of `ARM_RQ`.
    pub struct ArmRqOut = "arm_rq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ARM_RQ`.
    pub struct ArmRqIn = "arm_rq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        srq_number @ 0x48 : 24;
        lwm @ 0x70 : 16;
    }
}
