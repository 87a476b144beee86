//! Commands that bring the function up and down, pages, and capability queries. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Identity of the adapter.
    pub struct QueryAdapterParamBlock = "query_adapter_param_block", 0x100 bytes {
        ieee_vendor_id @ 0xc8 : 24;
        vsd_vendor_id @ 0xf0 : 16;
        vsd @ 0x100 : [u8; 0xd0];
        vsd_contd_psid @ 0x780 : [u8; 16];
    }

    /// Output of `TEARDOWN_HCA`.
    pub struct TeardownHcaOut = "teardown_hca_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        state @ 0x7f : 1;
    }

    /// Input of `TEARDOWN_HCA`.
    pub struct TeardownHcaIn = "teardown_hca_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        profile @ 0x50 : 16;
    }

    /// Output of `SET_MAD_DEMUX`.
    pub struct SetMadDemuxOut = "set_mad_demux_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_MAD_DEMUX`.
    pub struct SetMadDemuxIn = "set_mad_demux_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        demux_mode @ 0x66 : 2;
    }

    /// Output of `SET_ISSI`.
    pub struct SetIssiOut = "set_issi_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_ISSI`.
    pub struct SetIssiIn = "set_issi_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        current_issi @ 0x50 : 16;
    }

    /// Output of `SET_HCA_CAP`.
    pub struct SetHcaCapOut = "set_hca_cap_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_HCA_CAP`.
    pub struct SetHcaCapIn = "set_hca_cap_in", 0x1010 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_function @ 0x40 : 1;
        ec_vf_function @ 0x41 : 1;
        function_id_type @ 0x43 : 1;
        function_id @ 0x50 : 16;
        capability @ 0x80 : [u8; 4096];
    }

    /// Input of `QUERY_VUID`.
    pub struct QueryVuidIn = "query_vuid_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        query_vfs_vuid @ 0x60 : 1;
        data_direct @ 0x61 : 1;
        vhca_id @ 0x70 : 16;
    }

    /// Output of `QUERY_VUID`.
    pub struct QueryVuidOut = "query_vuid_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        num_of_entries @ 0x1f0 : 16;
        vuid @ 0x200 : tail;
    }

    /// Output of `QUERY_PAGES`.
    pub struct QueryPagesOut = "query_pages_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        embedded_cpu_function @ 0x40 : 1;
        function_id @ 0x50 : 16;
        num_pages @ 0x60 : 32;
    }

    /// Input of `QUERY_PAGES`.
    pub struct QueryPagesIn = "query_pages_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        embedded_cpu_function @ 0x40 : 1;
        function_id @ 0x50 : 16;
    }

    /// Output of `QUERY_MAD_DEMUX`.
    pub struct QueryMadDemuxOut = "query_mad_demux_out", 0x14 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        mad_dumux_parameters_block @ 0x80 : 32;
    }

    /// Input of `QUERY_MAD_DEMUX`.
    pub struct QueryMadDemuxIn = "query_mad_demux_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `QUERY_ISSI`.
    pub struct QueryIssiOut = "query_issi_out", 0x70 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        current_issi @ 0x50 : 16;
        supported_issi_dw0 @ 0x360 : 32;
    }

    /// Input of `QUERY_ISSI`.
    pub struct QueryIssiIn = "query_issi_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `SET_DRIVER_VERSION`.
    pub struct SetDriverVersionOut = "set_driver_version_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_DRIVER_VERSION`.
    pub struct SetDriverVersionIn = "set_driver_version_in", 0x50 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        driver_version @ 0x80 : [u8; 0x40];
    }

    /// Output of `QUERY_HCA_CAP`.
    pub struct QueryHcaCapOut = "query_hca_cap_out", 0x1010 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        capability @ 0x80 : [u8; 4096];
    }

    /// Input of `QUERY_HCA_CAP`.
    pub struct QueryHcaCapIn = "query_hca_cap_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_function @ 0x40 : 1;
        ec_vf_function @ 0x41 : 1;
        function_id_type @ 0x43 : 1;
        function_id @ 0x50 : 16;
    }

    /// Output of `QUERY_ADAPTER`.
    pub struct QueryAdapterOut = "query_adapter_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        query_adapter_struct @ 0x80 : QueryAdapterParamBlock;
    }

    /// Input of `QUERY_ADAPTER`.
    pub struct QueryAdapterIn = "query_adapter_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `NOP`.
    pub struct NopOut = "nop_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `NOP`.
    pub struct NopIn = "nop_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `MANAGE_PAGES`.
    pub struct ManagePagesOut = "manage_pages_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        output_num_entries @ 0x40 : 32;
        pas @ 0x80 : tail;
    }

    /// Input of `MANAGE_PAGES`.
    pub struct ManagePagesIn = "manage_pages_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        embedded_cpu_function @ 0x40 : 1;
        function_id @ 0x50 : 16;
        input_num_entries @ 0x60 : 32;
        pas @ 0x80 : tail;
    }

    /// Output of `MAD_IFC`.
    pub struct MadIfcOut = "mad_ifc_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        response_mad_packet @ 0x80 : [u8; 0x100];
    }

    /// Input of `MAD_IFC`.
    pub struct MadIfcIn = "mad_ifc_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        remote_lid @ 0x40 : 16;
        plane_index @ 0x50 : 8;
        port @ 0x58 : 8;
        mad @ 0x80 : [u8; 0x100];
    }

    /// Output of `INIT_HCA`.
    pub struct InitHcaOut = "init_hca_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `INIT_HCA`.
    pub struct InitHcaIn = "init_hca_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        sw_vhca_id @ 0x62 : 14;
        sw_owner_id @ 0x80 : [32; 4];
    }

    /// Output of `ENABLE_HCA`.
    pub struct EnableHcaOut = "enable_hca_out", 0xc bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ENABLE_HCA`.
    pub struct EnableHcaIn = "enable_hca_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        embedded_cpu_function @ 0x40 : 1;
        function_id_type @ 0x43 : 1;
        function_id @ 0x50 : 16;
    }

    /// Output of `DISABLE_HCA`.
    pub struct DisableHcaOut = "disable_hca_out", 0xc bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DISABLE_HCA`.
    pub struct DisableHcaIn = "disable_hca_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        embedded_cpu_function @ 0x40 : 1;
        function_id_type @ 0x43 : 1;
        function_id @ 0x50 : 16;
    }

    /// Output of `CONFIG_INT_MODERATION`.
    pub struct ConfigIntModerationOut = "config_int_moderation_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        min_delay @ 0x44 : 12;
        int_vector @ 0x50 : 16;
    }

    /// Input of `CONFIG_INT_MODERATION`.
    pub struct ConfigIntModerationIn = "config_int_moderation_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        min_delay @ 0x44 : 12;
        int_vector @ 0x50 : 16;
    }

    /// Input of `SET_NODE`.
    pub struct SetNodeIn = "set_node_in", 0x40 bytes {
        node_description @ 0x0 : [u8; 0x40];
    }

    /// Output of `QUERY_WOL_ROL`.
    pub struct QueryWolRolOut = "query_wol_rol_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rol_mode @ 0x50 : 8;
        wol_mode @ 0x58 : 8;
    }

    /// Input of `QUERY_WOL_ROL`.
    pub struct QueryWolRolIn = "query_wol_rol_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `SET_WOL_ROL`.
    pub struct SetWolRolOut = "set_wol_rol_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_WOL_ROL`.
    pub struct SetWolRolIn = "set_wol_rol_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        rol_mode_valid @ 0x40 : 1;
        wol_mode_valid @ 0x41 : 1;
        rol_mode @ 0x50 : 8;
        wol_mode @ 0x58 : 8;
    }
}
