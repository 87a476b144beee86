//! Protection domains, transport domains, UARs, XRC domains, device memory. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Output of `DEALLOC_XRCD`.
    pub struct DeallocXrcdOut = "dealloc_xrcd_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_XRCD`.
    pub struct DeallocXrcdIn = "dealloc_xrcd_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        xrcd @ 0x48 : 24;
    }

    /// Output of `DEALLOC_UAR`.
    pub struct DeallocUarOut = "dealloc_uar_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_UAR`.
    pub struct DeallocUarIn = "dealloc_uar_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        uar @ 0x48 : 24;
    }

    /// Output of `DEALLOC_TRANSPORT_DOMAIN`.
    pub struct DeallocTransportDomainOut = "dealloc_transport_domain_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_TRANSPORT_DOMAIN`.
    pub struct DeallocTransportDomainIn = "dealloc_transport_domain_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        transport_domain @ 0x48 : 24;
    }

    /// Output of `DEALLOC_PD`.
    pub struct DeallocPdOut = "dealloc_pd_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_PD`.
    pub struct DeallocPdIn = "dealloc_pd_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        pd @ 0x48 : 24;
    }

    /// Output of `ALLOC_XRCD`.
    pub struct AllocXrcdOut = "alloc_xrcd_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        xrcd @ 0x48 : 24;
    }

    /// Input of `ALLOC_XRCD`.
    pub struct AllocXrcdIn = "alloc_xrcd_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `ALLOC_UAR`.
    pub struct AllocUarOut = "alloc_uar_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        uar @ 0x48 : 24;
    }

    /// Input of `ALLOC_UAR`.
    pub struct AllocUarIn = "alloc_uar_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `ALLOC_TRANSPORT_DOMAIN`.
    pub struct AllocTransportDomainOut = "alloc_transport_domain_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        transport_domain @ 0x48 : 24;
    }

    /// Input of `ALLOC_TRANSPORT_DOMAIN`.
    pub struct AllocTransportDomainIn = "alloc_transport_domain_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `ALLOC_PD`.
    pub struct AllocPdOut = "alloc_pd_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        pd @ 0x48 : 24;
    }

    /// Input of `ALLOC_PD`.
    pub struct AllocPdIn = "alloc_pd_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Input of `MODIFY_MEMIC`.
    pub struct ModifyMemicIn = "modify_memic_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        memic_operation_type @ 0x78 : 8;
        memic_start_addr @ 0x80 : 64;
    }

    /// Output of `MODIFY_MEMIC`.
    pub struct ModifyMemicOut = "modify_memic_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        memic_operation_addr @ 0x80 : 64;
    }

    /// Input of `ALLOC_MEMIC`.
    pub struct AllocMemicIn = "alloc_memic_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        log_memic_addr_alignment @ 0x78 : 8;
        range_start_addr @ 0x80 : 64;
        range_size @ 0xc0 : 32;
        memic_size @ 0xe0 : 32;
    }

    /// Output of `ALLOC_MEMIC`.
    pub struct AllocMemicOut = "alloc_memic_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        memic_start_addr @ 0x40 : 64;
    }

    /// Input of `DEALLOC_MEMIC`.
    pub struct DeallocMemicIn = "dealloc_memic_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        memic_start_addr @ 0x80 : 64;
        memic_size @ 0xc0 : 32;
    }

    /// Output of `DEALLOC_MEMIC`.
    pub struct DeallocMemicOut = "dealloc_memic_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }
}
