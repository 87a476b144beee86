//! Event data that `mlx5_ifc.h` lacks or has in an older form. Source: kernel `include/linux/mlx5/device.h`
//! (`mlx5_eqe_*`); the page request's flags from `core/pagealloc.c`. The other event data is in [`super::eq`].
//!
//! Event data is the 28 bytes of `event_data` in [`super::eq::Eqe`].

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Event data of `PAGE_REQUEST`.
    pub struct PageRequest = "eqe_page_req", 0x1c bytes {
        embedded_cpu_function @ 0x0 : 1;
        release_all_pages @ 0x1 : 1;
        function_id @ 0x10 : 16;
        num_pages @ 0x20 : 32;
    }

    /// Event data of `PAGE_FAULT`, subtype `WQE`.
    pub struct WqePageFault = "eqe_page_fault_wqe", 0x1c bytes {
        bytes_committed @ 0x0 : 32;
        wqe_index @ 0x30 : 16;
        packet_length @ 0x50 : 16;
        token @ 0x60 : 32;
        page_fault_type @ 0xc5 : 3;
        wq_number @ 0xc8 : 24;
    }

    /// Event data of `PAGE_FAULT`, subtype `RDMA`.
    pub struct RdmaPageFault = "eqe_page_fault_rdma", 0x1c bytes {
        bytes_committed @ 0x0 : 32;
        r_key @ 0x20 : 32;
        packet_length @ 0x50 : 16;
        rdma_op_len @ 0x60 : 32;
        rdma_va @ 0x80 : 64;
        page_fault_type @ 0xc5 : 3;
        token @ 0xc8 : 24;
    }

    /// Event data of `PAGE_FAULT`, subtype `MEMORY`.
    pub struct MemoryPageFault = "eqe_page_fault_memory", 0x1c bytes {
        last @ 0x0 : 1;
        post_demand_fault_pages @ 0x10 : 16;
        pre_demand_fault_pages @ 0x20 : 16;
        token_47_32 @ 0x30 : 16;
        token_31_0 @ 0x40 : 32;
        demand_fault_pages @ 0x60 : 20;
        mkey @ 0x80 : 32;
        va @ 0xa0 : 64;
    }

    /// Event data of `NIC_VPORT_CHANGE`.
    pub struct VportChange = "eqe_vport_change", 0x1c bytes {
        vport_num @ 0x10 : 16;
    }

    /// Event data of `PORT_MODULE_EVENT`.
    pub struct PortModule = "eqe_port_module", 0x1c bytes {
        module @ 0x8 : 8;
        module_status @ 0x1c : 4;
        error_type @ 0x34 : 4;
    }

    /// Event data of `TEMP_WARN_EVENT`.
    pub struct TempWarning = "eqe_temp_warning", 0x1c bytes {
        sensor_warning_msb @ 0x0 : 64;
        sensor_warning_lsb @ 0x40 : 64;
    }

    /// Event data of `PPS_EVENT`.
    pub struct Pps = "eqe_pps", 0x1c bytes {
        pin @ 0x18 : 8;
        time_stamp @ 0x40 : 64;
        time_sec @ 0x40 : 32, alias;
        time_nsec @ 0x60 : 32, alias;
    }

    /// Event data of `XRQ_ERROR`.
    pub struct XrqErr = "eqe_xrq_err", 0x1c bytes {
        r#type @ 0xa0 : 8;
        xrqn @ 0xa8 : 24;
    }

    /// Event data of `GENERAL_EVENT`, subtype `PCI_SYNC_FOR_FW_UPDATE_EVENT`.
    pub struct SyncFwUpdate = "eqe_sync_fw_update", 0x1c bytes {
        sync_rst_state @ 0x1c : 4;
    }

    /// Event data of `VHCA_STATE_CHANGE`.
    pub struct VhcaState = "eqe_vhca_state", 0x1c bytes {
        ec_function @ 0x0 : 16;
        function_id @ 0x10 : 16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte offsets of the kernel's structures.
    #[test]
    fn fields_are_where_the_driver_reads_them() {
        for (layout, path, byte) in [
            (PageRequest::LAYOUT, "function_id", 2),
            (PageRequest::LAYOUT, "num_pages", 4),
            (WqePageFault::LAYOUT, "wqe_index", 6),
            (WqePageFault::LAYOUT, "packet_length", 10),
            (WqePageFault::LAYOUT, "token", 12),
            (WqePageFault::LAYOUT, "wq_number", 25),
            (RdmaPageFault::LAYOUT, "packet_length", 10),
            (RdmaPageFault::LAYOUT, "rdma_op_len", 12),
            (RdmaPageFault::LAYOUT, "rdma_va", 16),
            (RdmaPageFault::LAYOUT, "token", 25),
            (MemoryPageFault::LAYOUT, "token_47_32", 6),
            (MemoryPageFault::LAYOUT, "token_31_0", 8),
            (MemoryPageFault::LAYOUT, "demand_fault_pages", 12),
            (MemoryPageFault::LAYOUT, "va", 20),
            (VportChange::LAYOUT, "vport_num", 2),
            (PortModule::LAYOUT, "module", 1),
            (PortModule::LAYOUT, "module_status", 3),
            (PortModule::LAYOUT, "error_type", 6),
            (XrqErr::LAYOUT, "type", 20),
            (SyncFwUpdate::LAYOUT, "sync_rst_state", 3),
        ] {
            let (offset, _) = layout.find(path).expect(path);
            assert_eq!(offset / 8, byte, "{} {path}", layout.name);
        }
    }
}
