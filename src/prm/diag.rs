//! Resource dump, firmware tracer and core dump. Sources: `mlx5_ifc.h`; the tracer's events from the kernel's
//! `diag/fw_tracer.h`, the numbers of segments from mlx5ctl's menu of a ConnectX device and mstflint's `constants.py`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Access register `RESOURCE_DUMP`.
    pub struct ResourceDump = "resource_dump", 0x100 bytes {
        more_dump @ 0x0 : 1;
        inline_dump @ 0x1 : 1;
        seq_num @ 0xc : 4;
        segment_type @ 0x10 : 16;
        vhca_id @ 0x30 : 16;
        index1 @ 0x40 : 32;
        index2 @ 0x60 : 32;
        num_of_obj1 @ 0x80 : 16;
        num_of_obj2 @ 0x90 : 16;
        device_opaque @ 0xc0 : 64;
        mkey @ 0x100 : 32;
        size @ 0x120 : 32;
        address @ 0x140 : 64;
        inline_data @ 0x180 : [32; 52];
    }

    /// Head of every segment of a resource dump.
    pub struct ResourceDumpSegmentHeader = "resource_dump_segment_header", 0x4 bytes {
        length_dw @ 0x0 : 16;
        segment_type @ 0x10 : 16;
    }

    /// What a resource dump was asked for.
    pub struct ResourceDumpCommandSegment = "resource_dump_command_segment", 0x14 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
        segment_called @ 0x20 : 16;
        vhca_id @ 0x30 : 16;
        index1 @ 0x40 : 32;
        index2 @ 0x60 : 32;
        num_of_obj1 @ 0x80 : 16;
        num_of_obj2 @ 0x90 : 16;
    }

    /// Why there is nothing to dump.
    pub struct ResourceDumpErrorSegment = "resource_dump_error_segment", 0x30 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
        syndrome_id @ 0x30 : 16;
        error @ 0x80 : [32; 8];
    }

    /// What dumps.
    pub struct ResourceDumpInfoSegment = "resource_dump_info_segment", 0x10 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
        dump_version @ 0x38 : 8;
        hw_version @ 0x40 : 32;
        fw_version @ 0x60 : 32;
    }

    /// Head of the menu; its records follow.
    pub struct ResourceDumpMenuSegment = "resource_dump_menu_segment", 0x8 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
        num_of_records @ 0x30 : 16;
        record @ 0x40 : tail;
    }

    /// A dump that the menu offers.
    pub struct ResourceDumpMenuRecord = "resource_dump_menu_record", 0x34 bytes {
        num_of_obj2_supports_active @ 0x4 : 1;
        num_of_obj2_supports_all @ 0x5 : 1;
        must_have_num_of_obj2 @ 0x6 : 1;
        support_num_of_obj2 @ 0x7 : 1;
        num_of_obj1_supports_active @ 0x8 : 1;
        num_of_obj1_supports_all @ 0x9 : 1;
        must_have_num_of_obj1 @ 0xa : 1;
        support_num_of_obj1 @ 0xb : 1;
        must_have_index2 @ 0xc : 1;
        support_index2 @ 0xd : 1;
        must_have_index1 @ 0xe : 1;
        support_index1 @ 0xf : 1;
        segment_type @ 0x10 : 16;
        segment_name @ 0x20 : [32; 4];
        index1_name @ 0xa0 : [32; 4];
        index2_name @ 0x120 : [32; 4];
    }

    /// A resource, or an entry of one.
    pub struct ResourceDumpResourceSegment = "resource_dump_resource_segment", 0x10 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
        index1 @ 0x40 : 32;
        index2 @ 0x60 : 32;
        payload @ 0x80 : tail;
    }

    /// The end of a resource dump.
    pub struct ResourceDumpTerminateSegment = "resource_dump_terminate_segment", 0x4 bytes {
        segment_header @ 0x0 : ResourceDumpSegmentHeader;
    }

    /// Payload of `SX_SLICE`: what sends.
    pub struct SxSlice = "sx_slice", 0x28 bytes {
        link_up @ 0x1f : 1;
        send_queues @ 0x20 : 32;
        send_queues_waiting @ 0x40 : 32;
        queue_pairs @ 0x60 : 32;
        queue_pairs_waiting @ 0x80 : 32;
        errors @ 0xa0 : 32;
        frames @ 0xc0 : 64;
        octets @ 0x100 : 64;
    }

    /// Payload of `RX_SLICE`: what receives.
    pub struct RxSlice = "rx_slice", 0x28 bytes {
        frame_under_way @ 0x1f : 1;
        receive_queues @ 0x20 : 32;
        receive_queues_flushing @ 0x40 : 32;
        shared_receive_queues @ 0x60 : 32;
        discards @ 0x80 : 32;
        errors @ 0xa0 : 32;
        frames @ 0xc0 : 64;
        octets @ 0x100 : 64;
    }

    /// Where a part of the tracer's strings lies.
    pub struct MtrcStringDbParam = "mtrc_string_db_param", 0x8 bytes {
        string_db_base_address @ 0x0 : 32;
        string_db_size @ 0x28 : 24;
    }

    /// Access register `MTRC_CAP`.
    pub struct MtrcCap = "mtrc_cap", 0x80 bytes {
        trace_owner @ 0x0 : 1;
        trace_to_memory @ 0x1 : 1;
        trc_ver @ 0x6 : 2;
        num_string_db @ 0x1c : 4;
        first_string_trace @ 0x20 : 8;
        num_string_trace @ 0x28 : 8;
        log_max_trace_buffer_size @ 0x58 : 8;
        string_db_param @ 0x80 : [MtrcStringDbParam; 8];
    }

    /// Access register `MTRC_CONF`.
    pub struct MtrcConf = "mtrc_conf", 0x80 bytes {
        trace_mode @ 0x1c : 4;
        log_trace_buffer_size @ 0x38 : 8;
        trace_mkey @ 0x40 : 32;
    }

    /// Access register `MTRC_STDB`.
    pub struct MtrcStdb = "mtrc_stdb", 0x8 bytes {
        string_db_index @ 0x0 : 4;
        read_size @ 0x8 : 24;
        start_offset @ 0x20 : 32;
        string_db_data @ 0x40 : tail;
    }

    /// Access register `MTRC_CTRL`.
    pub struct MtrcCtrl = "mtrc_ctrl", 0x40 bytes {
        trace_status @ 0x0 : 2;
        arm_event @ 0x4 : 1;
        modify_field_select @ 0x10 : 16;
        current_timestamp52_32 @ 0x4b : 21;
        current_timestamp31_0 @ 0x60 : 32;
    }

    /// An event of the tracer that is a message or one of its parameters.
    pub struct TracerStringEvent = "tracer_string_event", 0x8 bytes {
        lost @ 0x0 : 1;
        timestamp @ 0x1 : 7;
        event_id @ 0x8 : 8;
        tmsn @ 0x10 : 13;
        tdsn @ 0x1d : 3;
        string_param @ 0x20 : 32;
    }

    /// An event of the tracer that dates those before it.
    pub struct TracerTimestampEvent = "tracer_timestamp_event", 0x8 bytes {
        timestamp7_0 @ 0x0 : 8;
        event_id @ 0x8 : 8;
        urts @ 0x10 : 3;
        timestamp52_40 @ 0x13 : 13;
        timestamp39_8 @ 0x20 : 32;
    }

    /// Access register `CORE_DUMP`.
    pub struct CoreDumpReg = "core_dump_reg", 0x40 bytes {
        core_dump_type @ 0x18 : 8;
        vhca_id @ 0x50 : 16;
        qpn @ 0x68 : 24;
    }
}

super::codes::codes! {
    /// `segment_type` of a resource dump. The names are those of the menu, which the kernel looks them up by
    /// (`diag/rsc_dump.c`).
    pub struct DumpSegment(u16) {
        MKEY_CONTEXT = 0x21;
        FULL_QPC = 0x1000;
        SND_BUFF = 0x1001;
        RCV_BUFF = 0x1002;
        FULL_SRQC = 0x1100;
        SRQ_BUFF = 0x1101;
        FULL_CQC = 0x1200;
        CQ_BUFF = 0x1201;
        FULL_EQC = 0x1300;
        EQ_BUFF = 0x1301;
        RX_SLICE = 0x2000;
        RX_SLICE_ALL = 0x2001;
        SX_SLICE = 0x3000;
        SX_SLICE_ALL = 0x3001;
        PRM_QUERY_QP = 0x4000;
        QUERY_VNIC_ENV = 0x4008;
        PRM_QUERY_CQ = 0x4020;
        PRM_QUERY_MKEY = 0x4030;
        COMMAND = 0xfffa;
        TERMINATE = 0xfffb;
        ERROR = 0xfffc;
        INFO = 0xfffe;
        MENU = 0xffff;
    }

    /// Subtype of `DEVICE_TRACER`. Source: kernel `include/linux/mlx5/device.h`.
    pub struct TracerEvent(u8) {
        OWNERSHIP_CHANGE = 0;
        TRACES_AVAILABLE = 1;
        STRINGS_DB_UPDATE = 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of the kernel's own structures (`diag/fw_tracer.h`).
    #[test]
    fn tracer_events_are_as_the_driver_takes_them_apart() {
        for (layout, path, place) in [
            (TracerStringEvent::LAYOUT, "lost", (0, 1)),
            (TracerStringEvent::LAYOUT, "timestamp", (1, 7)),
            (TracerStringEvent::LAYOUT, "event_id", (8, 8)),
            (TracerStringEvent::LAYOUT, "tmsn", (16, 13)),
            (TracerStringEvent::LAYOUT, "tdsn", (29, 3)),
            (TracerStringEvent::LAYOUT, "string_param", (32, 32)),
            (TracerTimestampEvent::LAYOUT, "timestamp7_0", (0, 8)),
            (TracerTimestampEvent::LAYOUT, "event_id", (8, 8)),
            (TracerTimestampEvent::LAYOUT, "urts", (16, 3)),
            (TracerTimestampEvent::LAYOUT, "timestamp52_40", (19, 13)),
            (TracerTimestampEvent::LAYOUT, "timestamp39_8", (32, 32)),
        ] {
            assert_eq!(layout.find(path), Some(place), "{} {path}", layout.name);
        }
    }
}
