//! Event types and subtypes of event queue entries. Source: kernel `include/linux/mlx5/device.h`, `MLX5_EVENT_*`.

super::codes::codes! {
    /// `event_type` of an event queue entry, and bit number in `event_bitmask`.
    pub struct EventType(u8) {
        COMP = 0x00;
        PATH_MIG = 0x01;
        COMM_EST = 0x02;
        SQ_DRAINED = 0x03;
        CQ_ERROR = 0x04;
        WQ_CATAS_ERROR = 0x05;
        PATH_MIG_FAILED = 0x07;
        INTERNAL_ERROR = 0x08;
        PORT_CHANGE = 0x09;
        CMD = 0x0a;
        PAGE_REQUEST = 0x0b;
        PAGE_FAULT = 0x0c;
        NIC_VPORT_CHANGE = 0x0d;
        ESW_FUNCTIONS_CHANGED = 0x0e;
        VHCA_STATE_CHANGE = 0x0f;
        WQ_INVAL_REQ_ERROR = 0x10;
        WQ_ACCESS_ERROR = 0x11;
        SRQ_CATAS_ERROR = 0x12;
        SRQ_LAST_WQE = 0x13;
        SRQ_RQ_LIMIT = 0x14;
        GPIO_EVENT = 0x15;
        PORT_MODULE_EVENT = 0x16;
        TEMP_WARN_EVENT = 0x17;
        XRQ_ERROR = 0x18;
        REMOTE_CONFIG = 0x19;
        DB_BF_CONGESTION = 0x1a;
        STALL_EVENT = 0x1b;
        DCT_DRAINED = 0x1c;
        DCT_KEY_VIOLATION = 0x1d;
        FPGA_ERROR = 0x20;
        FPGA_QP_ERROR = 0x21;
        GENERAL_EVENT = 0x22;
        MONITOR_COUNTER = 0x24;
        PPS_EVENT = 0x25;
        DEVICE_TRACER = 0x26;
        OBJECT_CHANGE = 0x27;
    }

    /// Subtype of `PORT_CHANGE`.
    pub struct PortChange(u8) {
        DOWN = 1;
        ACTIVE = 4;
        INITIALIZED = 5;
        LID = 6;
        PKEY = 7;
        GUID = 8;
        CLIENT_REREG = 9;
    }

    /// Subtype of `GENERAL_EVENT`.
    pub struct GeneralEvent(u8) {
        DELAY_DROP_TIMEOUT = 0x1;
        PCI_POWER_CHANGE_EVENT = 0x5;
        FW_LIVE_PATCH_EVENT = 0x7;
        PCI_SYNC_FOR_FW_UPDATE_EVENT = 0x8;
    }

    /// Subtype of `PAGE_FAULT`. Source: kernel `drivers/infiniband/hw/mlx5/odp.c`.
    pub struct PageFault(u8) {
        WQE = 0;
        RDMA = 1;
        MEMORY = 2;
    }

    /// `type` in the event data of a queue: which number space `qpn_rqn_sqn` is in.
    pub struct EventQueueType(u8) {
        QP = 0;
        RQ = 1;
        SQ = 2;
        DCT = 6;
    }
}
