//! Command statuses. Sources: kernel `include/linux/mlx5/device.h` (`MLX5_CMD_STAT_*`) and `mlx5/core/cmd.c`
//! (`MLX5_CMD_DELIVERY_STAT_*`).

super::codes::codes! {
    /// Output status of a command that was delivered.
    pub struct Status(u8) {
        OK = 0x0;
        INT_ERR = 0x1;
        BAD_OP_ERR = 0x2;
        BAD_PARAM_ERR = 0x3;
        BAD_SYS_STATE_ERR = 0x4;
        BAD_RES_ERR = 0x5;
        RES_BUSY = 0x6;
        NOT_READY = 0x7;
        LIM_ERR = 0x8;
        BAD_RES_STATE_ERR = 0x9;
        IX_ERR = 0xa;
        NO_RES_ERR = 0xf;
        BAD_QP_STATE_ERR = 0x10;
        BAD_PKT_ERR = 0x30;
        BAD_SIZE_OUTS_CQES_ERR = 0x40;
        BAD_INP_LEN_ERR = 0x50;
        BAD_OUTP_LEN_ERR = 0x51;
    }

    /// Delivery status of a command queue entry: whether the command reached its handler.
    pub struct Delivery(u8) {
        OK = 0x0;
        SIGNAT_ERR = 0x1;
        TOK_ERR = 0x2;
        BAD_BLK_NUM_ERR = 0x3;
        OUT_PTR_ALIGN_ERR = 0x4;
        IN_PTR_ALIGN_ERR = 0x5;
        FW_ERR = 0x6;
        IN_LENGTH_ERR = 0x7;
        OUT_LENGTH_ERR = 0x8;
        RES_FLD_NOT_CLR_ERR = 0x9;
        CMD_DESCR_ERR = 0x10;
    }
}
