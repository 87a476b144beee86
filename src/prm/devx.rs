//! User contexts, user memory and general objects. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Creation parameters in a general object's header.
    pub struct GeneralObjCreateParam = "general_obj_create_param", 0x4 bytes {
        alias_object @ 0x0 : 1;
        log_obj_range @ 0x3 : 5;
    }

    /// Query parameters in a general object's header.
    pub struct GeneralObjQueryParam = "general_obj_query_param", 0x4 bytes {
        alias_object @ 0x0 : 1;
        obj_offset @ 0x1 : 31;
    }

    /// Union `op_param` of `general_obj_in_cmd_hdr`.
    pub struct GeneralObjInCmdHdrOpParam = "general_obj_in_cmd_hdr.op_param", 0x4 bytes {
        create @ 0x0 : GeneralObjCreateParam;
        query @ 0x0 : GeneralObjQueryParam, alias;
    }

    /// Header of a general object command's input.
    pub struct GeneralObjInCmdHdr = "general_obj_in_cmd_hdr", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        vhca_tunnel_id @ 0x20 : 16;
        obj_type @ 0x30 : 16;
        obj_id @ 0x40 : 32;
        op_param @ 0x60 : GeneralObjInCmdHdrOpParam;
    }

    /// Header of a general object command's output.
    pub struct GeneralObjOutCmdHdr = "general_obj_out_cmd_hdr", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        obj_id @ 0x40 : 32;
    }

    /// User memory region.
    pub struct Umem = "umem", 0x20 bytes {
        ats @ 0x80 : 1;
        log_page_size @ 0x9b : 5;
        page_offset @ 0xa0 : 32;
        num_of_mtt @ 0xc0 : 64;
        mtt @ 0x100 : tail;
    }

    /// User context.
    pub struct Uctx = "uctx", 0x30 bytes {
        cap @ 0x0 : 32;
    }

    /// Input of `CREATE_UMEM`.
    pub struct CreateUmemIn = "create_umem_in", 0x30 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        umem @ 0x80 : Umem;
    }

    /// Output of `CREATE_UMEM`.
    pub struct CreateUmemOut = "create_umem_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        umem_id @ 0x48 : 24;
    }

    /// Input of `DESTROY_UMEM`.
    pub struct DestroyUmemIn = "destroy_umem_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        umem_id @ 0x48 : 24;
    }

    /// Output of `DESTROY_UMEM`.
    pub struct DestroyUmemOut = "destroy_umem_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `CREATE_UCTX`.
    pub struct CreateUctxIn = "create_uctx_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        uctx @ 0x80 : Uctx;
    }

    /// Output of `CREATE_UCTX`.
    pub struct CreateUctxOut = "create_uctx_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        uid @ 0x50 : 16;
    }

    /// Input of `DESTROY_UCTX`.
    pub struct DestroyUctxIn = "destroy_uctx_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        uid @ 0x50 : 16;
    }

    /// Output of `DESTROY_UCTX`.
    pub struct DestroyUctxOut = "destroy_uctx_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }
}
