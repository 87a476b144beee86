//! Values of fields in contexts and commands. Sources: `mlx5_ifc.h`, and kernel `include/linux/mlx5/qp.h`, `cq.h`,
//! `device.h`, `fs.h` where a type says so. Names are without their `MLX5_` prefix.

super::codes::codes! {
    /// `qpc.state`. Source: `qp.h`, which names 5 and 7 after what the driver does with them.
    pub struct QpState(u8) {
        RST = 0;
        INIT = 1;
        RTR = 2;
        RTS = 3;
        SQER = 4;
        SQD = 5;
        ERR = 6;
        SQ_DRAINING = 7;
        SUSPENDED = 9;
    }

    /// `qpc.st`: service type of a QP. Source: `qp.h`.
    pub struct QpType(u8) {
        RC = 0x0;
        UC = 0x1;
        UD = 0x2;
        XRC = 0x3;
        MLX = 0x4;
        DCI = 0x5;
        DCT = 0x6;
        QP0 = 0x7;
        QP1 = 0x8;
        RAW_ETHERTYPE = 0x9;
        RAW_IPV6 = 0xa;
        SNIFFER = 0xb;
        REG_UMR = 0xc;
        PTP_1588 = 0xd;
        SYNC_UMR = 0xe;
    }

    /// `qpc.pm_state`: path migration.
    pub struct PathMigration(u8) {
        ARMED = 0;
        REARM = 1;
        MIGRATED = 3;
    }

    /// `qpc.rq_type`. Source: `qp.h`.
    pub struct QpRqType(u8) {
        NON_ZERO_RQ = 0;
        SRQ_RQ = 1;
        CRQ_RQ = 2;
        ZERO_LEN_RQ = 3;
    }

    /// `qpc.mtu`.
    pub struct QpMtu(u8) {
        MTU_256 = 1, "256_BYTES";
        MTU_512 = 2, "512_BYTES";
        MTU_1K = 3, "1K_BYTES";
        MTU_2K = 4, "2K_BYTES";
        MTU_4K = 5, "4K_BYTES";
        RAW_ETHERNET_QP = 7;
    }

    /// `qpc.atomic_mode`.
    pub struct AtomicMode(u8) {
        IB_SPEC = 1;
        ONLY_8B = 2;
        UP_TO_8B = 3;
        UP_TO_16B = 4;
        UP_TO_32B = 5;
        UP_TO_64B = 6;
        UP_TO_128B = 7;
        UP_TO_256B = 8;
    }

    /// `mkc.access_mode_4_2` and `access_mode_1_0` joined.
    pub struct AccessMode(u8) {
        PA = 0;
        MTT = 1;
        KLMS = 2;
        KSM = 3;
        SW_ICM = 4;
        MEMIC = 5;
        CROSSING = 6;
    }

    /// `eqc.status`.
    pub struct EqStatus(u8) {
        OK = 0x0;
        EQ_WRITE_FAILURE = 0xa;
    }

    /// `eqc.st`.
    pub struct EqState(u8) {
        ARMED = 0x9;
        FIRED = 0xa;
    }

    /// `cqc.status`.
    pub struct CqStatus(u8) {
        OK = 0x0;
        CQ_OVERFLOW = 0x9;
        CQ_WRITE_FAIL = 0xa;
    }

    /// `cqc.st`.
    pub struct CqState(u8) {
        SOLICITED_NOTIFICATION_REQUEST_ARMED = 0x6;
        NOTIFICATION_REQUEST_ARMED = 0x9;
        FIRED = 0xa;
    }

    /// `cqc.cqe_sz`. Source: `cq.h` and rdma-core `providers/mlx5` for the padded form.
    pub struct CqeSize(u8) {
        SIZE_64 = 0, "64_BYTES";
        SIZE_128 = 1, "128_BYTES";
        SIZE_128_PAD = 2, "128_BYTES_PAD";
    }

    /// `sqc.state`, `rqc.state` and the state arguments of their modify commands.
    pub struct WqState(u8) {
        RST = 0;
        RDY = 1;
        ERR = 3;
    }

    /// `rmpc.state`.
    pub struct RmpState(u8) {
        RDY = 1;
        ERR = 3;
    }

    /// `srqc.state` and `xrc_srqc.state`.
    pub struct SrqState(u8) {
        GOOD = 0;
        ERROR = 1;
    }

    /// `wq.wq_type`.
    pub struct WqType(u8) {
        LINKED_LIST = 0;
        CYCLIC = 1;
        LINKED_LIST_STRIDING_RQ = 2;
        CYCLIC_STRIDING_RQ = 3;
    }

    /// `tirc.disp_type`.
    pub struct TirDispType(u8) {
        DIRECT = 0;
        INDIRECT = 1;
    }

    /// `tirc.rx_hash_fn`.
    pub struct RxHashFn(u8) {
        NONE = 0;
        INVERTED_XOR8 = 1;
        TOEPLITZ = 2;
    }

    /// `table_type` of the flow table commands. Source: `fs.h`.
    pub struct FlowTableType(u8) {
        NIC_RX = 0x0;
        NIC_TX = 0x1;
        ESW_EGRESS_ACL = 0x2;
        ESW_INGRESS_ACL = 0x3;
        FDB = 0x4;
        SNIFFER_RX = 0x5;
        SNIFFER_TX = 0x6;
        RDMA_RX = 0x7;
        RDMA_TX = 0x8;
        PORT_SEL = 0x9;
        FDB_RX = 0xa;
        FDB_TX = 0xb;
        RDMA_TRANSPORT_RX = 0xd;
        RDMA_TRANSPORT_TX = 0xe;
    }

    /// `destination_type` of a flow entry's destination.
    pub struct FlowDestType(u8) {
        VPORT = 0x0;
        FLOW_TABLE = 0x1;
        TIR = 0x2;
        VHCA_RX = 0x4;
        FLOW_SAMPLER = 0x6;
        UPLINK = 0x8;
        TABLE_TYPE = 0xa;
    }

    /// `flow_table_context.table_miss_action`.
    pub struct TableMissAction(u8) {
        DEF = 0;
        FWD = 1;
        SWITCH_DOMAIN = 2;
    }

    /// `op_mod` of `MANAGE_PAGES`. Source: `pagealloc.c`.
    pub struct ManagePages(u16) {
        CANT_GIVE = 0;
        GIVE = 1;
        TAKE = 2;
    }

    /// `op_mod` of `QUERY_PAGES`. Source: `pagealloc.c`.
    pub struct QueryPages(u16) {
        BOOT_PAGES = 1;
        INIT_PAGES = 2;
        REGULAR_PAGES = 3;
    }

    /// `op_mod` of `ACCESS_REG`.
    pub struct AccessReg(u16) {
        WRITE = 0;
        READ = 1;
    }

    /// `profile` of `TEARDOWN_HCA`.
    pub struct TeardownProfile(u16) {
        GRACEFUL_CLOSE = 0;
        FORCE_CLOSE = 1;
        PREPARE_FAST_TEARDOWN = 2;
    }

    /// `allowed_list_type` of the NIC vport context commands. Source: `device.h`.
    pub struct VportListType(u8) {
        UC = 0;
        MC = 1;
        VLAN = 2;
    }

    /// `op_mod` of `QUERY_VPORT_STATE` and `MODIFY_VPORT_STATE`.
    pub struct VportStateOpMod(u16) {
        VNIC_VPORT = 0;
        ESW_VPORT = 1;
        UPLINK = 2;
    }

    /// `admin_state` of a vport. Source: `device.h`.
    pub struct VportAdminState(u8) {
        DOWN = 0;
        UP = 1;
        AUTO = 2;
    }

    /// `op_mod` of `MODIFY_CQ`. Source: `cq.h`.
    pub struct ModifyCq(u16) {
        MODIFY = 0;
        RESIZE = 1;
    }

    /// `cmd_hca_cap.port_type`.
    pub struct PortType(u8) {
        IB = 0;
        ETH = 1;
    }

    /// `obj_type` of general objects and of events that belong to an object.
    pub struct ObjType(u16) {
        SW_ICM = 0x8;
        GENEVE_TLV_OPT = 0xb;
        ENCRYPTION_KEY = 0xc;
        VIRTIO_NET_Q = 0xd;
        IPSEC = 0x13;
        MATCH_DEFINER = 0x18;
        VIRTIO_Q_COUNTERS = 0x1c;
        SAMPLER = 0x20;
        HEADER_MODIFY_ARGUMENT = 0x23;
        FLOW_METER_ASO = 0x24;
        MACSEC = 0x27;
        STC = 0x40;
        RTC = 0x41;
        STE = 0x42;
        MODIFY_HDR_PATTERN = 0x43;
        PAGE_TRACK = 0x46;
        INT_KEK = 0x47;
        RDMA_CTRL = 0x53;
        PCIE_CONG_EVENT = 0x58;
        MKEY = 0xff01;
        QP = 0xff02;
        PSV = 0xff03;
        RMP = 0xff04;
        XRC_SRQ = 0xff05;
        RQ = 0xff06;
        SQ = 0xff07;
        TIR = 0xff08;
        TIS = 0xff09;
        DCT = 0xff0a;
        XRQ = 0xff0b;
        RQT = 0xff0e;
        FLOW_COUNTER = 0xff0f;
        CQ = 0xff10;
        FT_ALIAS = 0xff15;
    }

    /// Opcode of a send work queue entry. Source: `device.h`.
    pub struct WqeOpcode(u8) {
        NOP = 0x00;
        SEND_INVAL = 0x01;
        RDMA_WRITE = 0x08;
        RDMA_WRITE_IMM = 0x09;
        SEND = 0x0a;
        SEND_IMM = 0x0b;
        LSO = 0x0e;
        RDMA_READ = 0x10;
        ATOMIC_CS = 0x11;
        ATOMIC_FA = 0x12;
        ATOMIC_MASKED_CS = 0x14;
        ATOMIC_MASKED_FA = 0x15;
        BIND_MW = 0x18;
        CONFIG_CMD = 0x1f;
        SET_PSV = 0x20;
        GET_PSV = 0x21;
        CHECK_PSV = 0x22;
        DUMP = 0x23;
        UMR = 0x25;
        RGET_PSV = 0x26;
        RCHECK_PSV = 0x27;
        ENHANCED_MPSW = 0x29;
        FLOW_TBL_ACCESS = 0x2c;
        ACCESS_ASO = 0x2d;
    }

    /// `opcode` of a completion queue entry. Source: `cq.h`.
    pub struct CqeOpcode(u8) {
        REQ = 0;
        RESP_WR_IMM = 1;
        RESP_SEND = 2;
        RESP_SEND_IMM = 3;
        RESP_SEND_INV = 4;
        RESIZE_CQ = 5;
        SIG_ERR = 12;
        REQ_ERR = 13;
        RESP_ERR = 14;
        INVALID = 15;
    }

    /// `syndrome` of an error completion. Source: `cq.h`.
    pub struct CqeSyndrome(u8) {
        LOCAL_LENGTH_ERR = 0x01;
        LOCAL_QP_OP_ERR = 0x02;
        LOCAL_PROT_ERR = 0x04;
        WR_FLUSH_ERR = 0x05;
        MW_BIND_ERR = 0x06;
        BAD_RESP_ERR = 0x10;
        LOCAL_ACCESS_ERR = 0x11;
        REMOTE_INVAL_REQ_ERR = 0x12;
        REMOTE_ACCESS_ERR = 0x13;
        REMOTE_OP_ERR = 0x14;
        TRANSPORT_RETRY_EXC_ERR = 0x15;
        RNR_RETRY_EXC_ERR = 0x16;
        REMOTE_ABORTED_ERR = 0x22;
    }

    /// Fence in `fm_ce_se` of a control segment. Source: `qp.h`.
    pub struct Fence(u8) {
        NONE = 0;
        INITIATOR_SMALL = 1;
        FENCE = 2;
        STRONG_ORDERING = 3;
        SMALL_AND_FENCE = 4;
    }
}

bitflags::bitflags! {
    /// `opt_param_mask` of the QP modify commands. Source: `qp.h`, `MLX5_QP_OPTPAR_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct QpOptPar: u32 {
        /// Alternate path.
        const ALT_ADDR_PATH = 1 << 0;
        /// Remote read enable.
        const RRE = 1 << 1;
        /// Remote atomic enable.
        const RAE = 1 << 2;
        /// Remote write enable.
        const RWE = 1 << 3;
        /// Partition key index.
        const PKEY_INDEX = 1 << 4;
        /// Queue key.
        const Q_KEY = 1 << 5;
        /// Minimum RNR NAK timer.
        const RNR_TIMEOUT = 1 << 6;
        /// Primary path.
        const PRIMARY_ADDR_PATH = 1 << 7;
        /// Outstanding reads and atomics as initiator.
        const SRA_MAX = 1 << 8;
        /// Outstanding reads and atomics as target.
        const RRA_MAX = 1 << 9;
        /// Path migration state.
        const PM_STATE = 1 << 10;
        /// Transport retries.
        const RETRY_COUNT = 1 << 12;
        /// RNR retries.
        const RNR_RETRY = 1 << 13;
        /// Local ACK timeout.
        const ACK_TIMEOUT = 1 << 14;
        /// Transmit port affinity in a bond.
        const LAG_TX_AFF = 1 << 15;
        /// Primary port.
        const PRI_PORT = 1 << 16;
        /// Shared receive queue.
        const SRQN = 1 << 18;
        /// Receive CQ.
        const CQN_RCV = 1 << 19;
        /// DC handshake.
        const DC_HS = 1 << 20;
        /// DC access key.
        const DC_KEY = 1 << 21;
        /// Packet pacing index.
        const PP_INDEX = 1 << 22;
        /// Counter set.
        const COUNTER_SET_ID = 1 << 25;
    }

    /// `mkey_mask` of a UMR control segment: which context fields the request changes. Source: `device.h`,
    /// `MLX5_MKEY_MASK_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MkeyMask: u64 {
        /// Length.
        const LEN = 1 << 0;
        /// Page size, low five bits.
        const PAGE_SIZE = 1 << 1;
        /// Start address.
        const START_ADDR = 1 << 6;
        /// Protection domain.
        const PD = 1 << 7;
        /// Remote invalidation.
        const EN_RINVAL = 1 << 8;
        /// Signature errors.
        const EN_SIGERR = 1 << 9;
        /// Signature descriptors.
        const BSF_EN = 1 << 12;
        /// Variant byte of the key.
        const KEY = 1 << 13;
        /// Queue pair that may use the key.
        const QPN = 1 << 14;
        /// Local read.
        const LR = 1 << 17;
        /// Local write.
        const LW = 1 << 18;
        /// Remote read.
        const RR = 1 << 19;
        /// Remote write.
        const RW = 1 << 20;
        /// Remote atomic.
        const A = 1 << 21;
        /// Small fence on an RDMA read response.
        const SMALL_FENCE = 1 << 23;
        /// Relaxed write ordering.
        const RELAXED_ORDERING_WRITE = 1 << 25;
        /// Free state.
        const FREE = 1 << 29;
        /// Page size, sixth bit.
        const PAGE_SIZE_5 = 1 << 42;
        /// Relaxed read ordering.
        const RELAXED_ORDERING_READ = 1 << 47;
    }

    /// `flow_context.action`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FlowAction: u16 {
        /// Let the packet go on.
        const ALLOW = 0x1;
        /// Drop the packet.
        const DROP = 0x2;
        /// Forward to the destination list.
        const FWD_DEST = 0x4;
        /// Count in the counter list.
        const COUNT = 0x8;
        /// Encapsulate or reformat.
        const PACKET_REFORMAT = 0x10;
        /// Decapsulate.
        const DECAP = 0x20;
        /// Modify the header.
        const MOD_HDR = 0x40;
        /// Remove the VLAN tag.
        const VLAN_POP = 0x80;
        /// Add a VLAN tag.
        const VLAN_PUSH = 0x100;
        /// Remove the second VLAN tag.
        const VLAN_POP_2 = 0x400;
        /// Add a second VLAN tag.
        const VLAN_PUSH_2 = 0x800;
        /// Decrypt.
        const CRYPTO_DECRYPT = 0x1000;
        /// Encrypt.
        const CRYPTO_ENCRYPT = 0x2000;
        /// Execute an ASO.
        const EXECUTE_ASO = 0x4000;
    }

    /// `match_criteria_enable` of a flow group. Source: `device.h`, `MLX5_MATCH_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MatchCriteria: u8 {
        /// Outer headers.
        const OUTER_HEADERS = 1 << 0;
        /// Miscellaneous parameters.
        const MISC_PARAMETERS = 1 << 1;
        /// Inner headers.
        const INNER_HEADERS = 1 << 2;
        /// Second miscellaneous set.
        const MISC_PARAMETERS_2 = 1 << 3;
        /// Third miscellaneous set.
        const MISC_PARAMETERS_3 = 1 << 4;
        /// Fourth miscellaneous set.
        const MISC_PARAMETERS_4 = 1 << 5;
        /// Fifth miscellaneous set.
        const MISC_PARAMETERS_5 = 1 << 6;
        /// Sixth miscellaneous set.
        const MISC_PARAMETERS_6 = 1 << 7;
    }

    /// `uctx.cap` and `cmd_hca_cap.uctx_cap`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct UctxCap: u32 {
        /// Raw Ethernet transmission.
        const RAW_TX = 1 << 0;
        /// Internal device resources.
        const INTERNAL_DEV_RES = 1 << 1;
        /// RDMA control.
        const RDMA_CTRL = 1 << 3;
        /// RDMA control over other functions.
        const RDMA_CTRL_OTHER_VHCA = 1 << 4;
    }
}
