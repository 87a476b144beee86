//! Commands that succeed, where zeroes and existing objects alone would not: what a driver sends. They only save the
//! fuzzer the search for magic numbers; every command is fuzzed without them too.

use cx10::device::objects::Kind;
use cx10::prm::Opcode;

/// What stands behind the fixed input.
#[derive(Clone, Copy, Debug)]
pub enum Tail {
    /// Nothing.
    None,
    /// Page addresses with these low bits.
    Pages(u64),
    /// Numbers of objects of a kind, 32 bits each, with these upper bits.
    Numbers(Kind, u32),
    /// References to keys: length, key, address.
    Klms,
    /// Flow destinations: numbers of objects of a kind, 64 bits each, with this type.
    Destinations(Kind, u8),
}

/// A command as a driver sends it.
#[derive(Debug)]
pub struct Template {
    /// Its opcode.
    pub opcode: Opcode,
    /// Its modifier.
    pub op_mod: u16,
    /// Fields by path.
    pub fields: &'static [(&'static str, u64)],
    /// Its tail.
    pub tail: Tail,
}

const fn t(opcode: Opcode, fields: &'static [(&'static str, u64)], tail: Tail) -> Template {
    Template { opcode, op_mod: 0, fields, tail }
}

const WQ: Tail = Tail::Pages(0);

/// In the order in which a driver could send them all.
pub static TEMPLATES: &[Template] = &[
    t(Opcode::ALLOC_UAR, &[], Tail::None),
    t(Opcode::ALLOC_PD, &[], Tail::None),
    t(Opcode::ALLOC_TRANSPORT_DOMAIN, &[], Tail::None),
    t(Opcode::ALLOC_XRCD, &[], Tail::None),
    t(
        Opcode::CREATE_EQ,
        &[("eq_context_entry.log_eq_size", 7), ("event_bitmask[0]", 0x18_183e), ("eq_context_entry.st", 9)],
        Tail::Pages(0),
    ),
    t(Opcode::CREATE_EQ, &[("eq_context_entry.log_eq_size", 7), ("eq_context_entry.intr", 1)], Tail::Pages(0)),
    t(Opcode::CREATE_CQ, &[("cq_context.log_cq_size", 4)], Tail::Pages(0)),
    t(Opcode::ALLOC_Q_COUNTER, &[], Tail::None),
    t(Opcode::ALLOC_FLOW_COUNTER, &[], Tail::None),
    t(Opcode::CREATE_UMEM, &[("umem.num_of_mtt", 4)], Tail::Pages(3)),
    t(
        Opcode::CREATE_MKEY,
        &[
            ("memory_key_mkey_entry.access_mode_1_0", 1),
            ("memory_key_mkey_entry.relaxed_ordering_write", 1),
            ("memory_key_mkey_entry.relaxed_ordering_read", 1),
            ("memory_key_mkey_entry.lr", 1),
            ("memory_key_mkey_entry.lw", 1),
            ("memory_key_mkey_entry.rr", 1),
            ("memory_key_mkey_entry.rw", 1),
            ("memory_key_mkey_entry.umr_en", 1),
            ("memory_key_mkey_entry.qpn", 0xff_ffff),
            ("memory_key_mkey_entry.len", 0x4000),
            ("memory_key_mkey_entry.log_page_size", 12),
            ("memory_key_mkey_entry.translations_octword_size", 4),
            ("translations_octword_actual_size", 4),
        ],
        Tail::Pages(0),
    ),
    t(
        Opcode::CREATE_MKEY,
        &[
            ("memory_key_mkey_entry.relaxed_ordering_write", 1),
            ("memory_key_mkey_entry.lr", 1),
            ("memory_key_mkey_entry.lw", 1),
            ("memory_key_mkey_entry.length64", 1),
            ("memory_key_mkey_entry.qpn", 0xff_ffff),
        ],
        Tail::None,
    ),
    t(
        Opcode::CREATE_MKEY,
        &[
            ("memory_key_mkey_entry.access_mode_1_0", 2),
            ("memory_key_mkey_entry.relaxed_ordering_write", 1),
            ("memory_key_mkey_entry.lr", 1),
            ("memory_key_mkey_entry.lw", 1),
            ("memory_key_mkey_entry.rr", 1),
            ("memory_key_mkey_entry.rw", 1),
            ("memory_key_mkey_entry.umr_en", 1),
            ("memory_key_mkey_entry.qpn", 0xff_ffff),
            ("memory_key_mkey_entry.len", 0x2000),
            ("memory_key_mkey_entry.translations_octword_size", 4),
            ("translations_octword_actual_size", 4),
        ],
        Tail::Klms,
    ),
    t(Opcode::CREATE_RMP, &[("ctx.state", 1), ("ctx.wq.log_wq_sz", 4), ("ctx.wq.log_wq_stride", 5)], WQ),
    t(
        Opcode::CREATE_XRC_SRQ,
        &[("xrc_srq_context_entry.log_xrc_srq_size", 4), ("xrc_srq_context_entry.log_rq_stride", 1)],
        WQ,
    ),
    t(Opcode::CREATE_SRQ, &[("srq_context_entry.log_srq_size", 4), ("srq_context_entry.log_rq_stride", 1)], WQ),
    t(
        Opcode::CREATE_QP,
        &[
            ("qpc.pm_state", 3),
            ("qpc.log_rq_size", 3),
            ("qpc.log_rq_stride", 2),
            ("qpc.log_sq_size", 4),
            ("qpc.rq_type", 0),
            ("qpc.srqn_rmpn_xrqn", 0),
            ("input_qpn", 0),
        ],
        Tail::Pages(0),
    ),
    t(Opcode::RST2INIT_QP, &[("qpc.pm_state", 3), ("qpc.primary_address_path.vhca_port_num", 1)], Tail::None),
    t(Opcode::INIT2RTR_QP, &[("qpc.mtu", 3), ("qpc.log_msg_max", 30)], Tail::None),
    t(Opcode::RTR2RTS_QP, &[], Tail::None),
    t(
        Opcode::CREATE_QP,
        &[
            ("qpc.st", 2),
            ("qpc.pm_state", 3),
            ("qpc.log_rq_size", 3),
            ("qpc.log_rq_stride", 2),
            ("qpc.log_sq_size", 4),
            ("qpc.srqn_rmpn_xrqn", 0),
            ("input_qpn", 0),
        ],
        Tail::Pages(0),
    ),
    t(Opcode::ATTACH_TO_MCG, &[("multicast_gid[0]", 0xff0e_0000), ("multicast_gid[3]", 1)], Tail::None),
    t(Opcode::CREATE_TIS, &[], Tail::None),
    t(
        Opcode::CREATE_SQ,
        &[
            ("ctx.tis_lst_sz", 1),
            ("ctx.flush_in_error_en", 1),
            ("ctx.wq.wq_type", 1),
            ("ctx.wq.log_wq_stride", 6),
            ("ctx.wq.log_wq_sz", 4),
        ],
        WQ,
    ),
    t(Opcode::MODIFY_SQ, &[("ctx.state", 1)], Tail::None),
    t(Opcode::CREATE_RQ, &[("ctx.wq.wq_type", 1), ("ctx.wq.log_wq_stride", 4), ("ctx.wq.log_wq_sz", 5)], WQ),
    t(Opcode::MODIFY_RQ, &[("ctx.state", 1)], Tail::None),
    t(
        Opcode::CREATE_RQT,
        &[("rqt_context.rqt_max_size", 4), ("rqt_context.rqt_actual_size", 1)],
        Tail::Numbers(Kind::Rq, 0),
    ),
    t(
        Opcode::CREATE_TIR,
        &[("ctx.disp_type", 1), ("ctx.rx_hash_fn", 2), ("ctx.rx_hash_field_selector_outer.selected_fields", 0xf)],
        Tail::None,
    ),
    t(Opcode::CREATE_FLOW_TABLE, &[("flow_table_context.log_size", 4)], Tail::None),
    t(Opcode::CREATE_FLOW_TABLE, &[("flow_table_context.log_size", 2), ("flow_table_context.level", 1)], Tail::None),
    t(
        Opcode::CREATE_FLOW_GROUP,
        &[("end_flow_index", 3), ("match_criteria_enable", 1), ("match_criteria.outer_headers.ethertype", 0xffff)],
        Tail::None,
    ),
    t(
        Opcode::SET_FLOW_TABLE_ENTRY,
        &[
            ("flow_context.action", 4),
            ("flow_context.destination_list_size", 1),
            ("flow_context.match_value.outer_headers.ethertype", 0x800),
        ],
        Tail::Destinations(Kind::Tir, 2),
    ),
    t(Opcode::SET_FLOW_TABLE_ROOT, &[], Tail::None),
    t(
        Opcode::ALLOC_MEMIC,
        &[("range_start_addr", 0x100_0000), ("range_size", 0x2000), ("memic_size", 0x100)],
        Tail::None,
    ),
    t(Opcode::MODIFY_RQT, &[("bitmask.rqn_list", 1), ("ctx.rqt_actual_size", 1)], Tail::Numbers(Kind::Rq, 0)),
    t(Opcode::CREATE_UCTX, &[("uctx.cap", 3)], Tail::None),
];
