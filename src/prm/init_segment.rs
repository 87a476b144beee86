//! The initialization segment at the start of BAR0. Source: kernel `include/linux/mlx5/device.h` (`mlx5_init_seg`,
//! `health_buffer`); the subfields of its words from `mlx5_ifc.h` (`initial_seg`), `mlx5/core/health.c`, `fw_reset.c` and
//! `lib/tout.c`. `mlx5_ifc.h` has an older form without the timer and with other places for the health counter, so
//! these two are not compared with it.

use super::reg_device::DefaultTimeout;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Health buffer: why the firmware asserted, if it did.
    pub struct HealthBuffer = "health_buffer", 0x40 bytes {
        assert_var @ 0x0 : [32; 6];
        assert_exit_ptr @ 0x100 : 32;
        assert_callra @ 0x120 : 32;
        time @ 0x160 : 32;
        fw_ver @ 0x180 : 32;
        hw_id @ 0x1a0 : 32;
        rfr @ 0x1c0 : 1;
        crr @ 0x1c1 : 1;
        severity_valid @ 0x1c4 : 1;
        severity @ 0x1c5 : 3;
        irisc_index @ 0x1e0 : 8;
        synd @ 0x1e8 : 8;
        ext_synd @ 0x1f0 : 16;
    }

    /// Initialization segment.
    pub struct InitSegment = "init_seg", 0x2010 bytes {
        fw_rev_minor @ 0x0 : 16;
        fw_rev_major @ 0x10 : 16;
        cmd_interface_rev @ 0x20 : 16;
        fw_rev_subminor @ 0x30 : 16;
        cmdq_phy_addr_63_32 @ 0x80 : 32;
        cmdq_phy_addr_31_12 @ 0xa0 : 20;
        nic_interface @ 0xb5 : 3;
        log_cmdq_size @ 0xb8 : 4;
        log_cmdq_stride @ 0xbc : 4;
        command_doorbell_vector @ 0xc0 : 32;
        initializing @ 0xfe0 : 1;
        fw_reset_supported @ 0xfe1 : 1;
        nic_interface_supported @ 0xfe5 : 3;
        embedded_cpu @ 0xfe8 : 1;
        fw_reset_ack @ 0xfe9 : 1;
        pci_reset_state @ 0xff0 : 4;
        health_buffer @ 0x1000 : HealthBuffer;
        cmd_exec_to @ 0x7fc0 : DefaultTimeout;
        cmd_q_init_to @ 0x7fe0 : DefaultTimeout;
        internal_timer_h @ 0x8000 : 32;
        internal_timer_l @ 0x8020 : 32;
        health_counter @ 0x8080 : 32;
        real_time_h @ 0x8200 : 32;
        real_time_l @ 0x8220 : 32;
        ieee1588_clk @ 0x10000 : 64;
        ieee1588_clk_type @ 0x10040 : 32;
        clr_intx @ 0x10060 : 32;
    }
}

#[cfg(test)]
mod tests {
    use super::InitSegment;

    /// Byte offsets of `struct mlx5_init_seg`.
    #[test]
    fn words_are_where_the_driver_reads_them() {
        for (path, byte) in [
            ("fw_rev_minor", 0x0),
            ("cmd_interface_rev", 0x4),
            ("cmdq_phy_addr_63_32", 0x10),
            ("cmdq_phy_addr_31_12", 0x14),
            ("command_doorbell_vector", 0x18),
            ("initializing", 0x1fc),
            ("health_buffer.assert_var[0]", 0x200),
            ("health_buffer.fw_ver", 0x230),
            ("health_buffer.rfr", 0x238),
            ("health_buffer.irisc_index", 0x23c),
            ("health_buffer.synd", 0x23d),
            ("cmd_exec_to.to_multiplier", 0xff8),
            ("cmd_q_init_to.to_multiplier", 0xffc),
            ("internal_timer_h", 0x1000),
            ("health_counter", 0x1010),
            ("real_time_h", 0x1040),
            ("ieee1588_clk", 0x2000),
            ("clr_intx", 0x200c),
        ] {
            let (offset, _) = InitSegment::LAYOUT.find(path).expect(path);
            assert_eq!(offset / 8, byte, "{path}");
        }
    }
}
