//! Command queue and mailboxes. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Physical address of a 4 KiB page.
    pub struct CmdPas = "cmd_pas", 0x8 bytes {
        pa_h @ 0x0 : 32;
        pa_l @ 0x20 : 20;
    }

    /// Command queue entry.
    pub struct CmdQueueEntry = "cmd_queue_entry", 0x40 bytes {
        r#type @ 0x0 : 8;
        input_length @ 0x20 : 32;
        input_mailbox_pointer_63_32 @ 0x40 : 32;
        input_mailbox_pointer_31_9 @ 0x60 : 23;
        command_input_inline_data @ 0x80 : [u8; 16];
        command_output_inline_data @ 0x100 : [u8; 16];
        output_mailbox_pointer_63_32 @ 0x180 : 32;
        output_mailbox_pointer_31_9 @ 0x1a0 : 23;
        output_length @ 0x1c0 : 32;
        token @ 0x1e0 : 8;
        signature @ 0x1e8 : 8;
        status @ 0x1f8 : 7;
        ownership @ 0x1ff : 1;
    }

    /// Command mailbox block.
    pub struct CmdIfBox = "cmd_if_box", 0x240 bytes {
        mailbox_data @ 0x0 : [u8; 0x200];
        next_pointer_63_32 @ 0x1180 : 32;
        next_pointer_31_10 @ 0x11a0 : 22;
        block_number @ 0x11c0 : 32;
        token @ 0x11e8 : 8;
        ctrl_signature @ 0x11f0 : 8;
        signature @ 0x11f8 : 8;
    }

    /// Header that every command output starts with.
    pub struct MboxOut = "mbox_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Header that every command input starts with.
    pub struct MboxIn = "mbox_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }
}
