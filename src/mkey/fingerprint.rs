//! Which code made a key request, told from the request: the drivers' key-making sites differ in access mode, rights
//! and flags (kernel 7.3, `drivers/infiniband/hw/mlx5` as IB and `drivers/net/ethernet/mellanox/mlx5/core` as CORE).
//!
//! A guess for people who look for the code, never an input to a decision. Sites that make the same request share an
//! entry.

use super::context::{KeyContext, Mode, Rights};
use crate::config::KeyKind;

/// What a site's requests look like.
struct Site {
    path: &'static str,
    user: bool,
    modes: &'static [Mode],
    matches: fn(&KeyContext) -> bool,
}

const LOCAL: Rights = Rights::LOCAL_READ.union(Rights::LOCAL_WRITE);

/// The first entry that matches is the answer.
static SITES: &[Site] = &[
    Site {
        path: "DEVX: window or indirect key (mlx5dv_create_mkey, mlx5dv_devx_obj_create)",
        user: true,
        modes: &[Mode::Klm, Mode::Ksm],
        matches: |_| true,
    },
    Site {
        path: "DEVX: key on user memory (mlx5dv_devx_obj_create with a umem)",
        user: true,
        modes: &[Mode::Mtt],
        matches: |_| true,
    },
    Site { path: "DEVX (mlx5dv_devx_obj_create)", user: true, modes: &[], matches: |_| true },
    Site {
        path: "ibv_alloc_mw type 2 (IB/mr.c:mlx5_ib_alloc_mw)",
        user: false,
        modes: &[Mode::Klm],
        matches: |c| is_window(c) && c.en_rinval,
    },
    Site {
        path: "ibv_alloc_mw type 1 (IB/mr.c:mlx5_ib_alloc_mw)",
        user: false,
        modes: &[Mode::Klm],
        matches: is_window,
    },
    Site {
        path: "device memory region, ibv_reg_dm_mr (IB/mr.c:mlx5_ib_get_dm_mr)",
        user: false,
        modes: &[Mode::Memic],
        matches: |_| true,
    },
    Site {
        path: "software steering memory (CORE/steering/sws/dr_icm_pool.c) or ibv_reg_dm_mr on it",
        user: false,
        modes: &[Mode::SwIcm],
        matches: |_| true,
    },
    Site {
        path: "data-direct dma-buf region (IB/mr.c:reg_create_crossing_vhca_mr)",
        user: false,
        modes: &[Mode::Crossing],
        matches: |_| true,
    },
    Site {
        path: "null key of implicit on-demand paging (IB/odp.c:alloc_implicit_mr_null_mkey)",
        user: false,
        modes: &[Mode::Mtt],
        matches: |c| c.length64 && !c.umr_en,
    },
    Site {
        path: "user region without IBV_ACCESS_RELAXED_ORDERING (IB/mr.c:reg_create)",
        user: false,
        modes: &[Mode::Mtt],
        matches: |c| !c.free && c.umr_en,
    },
    Site {
        path: "firmware tracer (CORE/diag/fw_tracer.c:mlx5_fw_tracer_create_mkey)",
        user: false,
        modes: &[Mode::Mtt],
        matches: |c| !c.free && !c.umr_en && c.rights == LOCAL && c.start_addr != 0,
    },
    Site {
        path: "header buffer of hardware GRO (CORE/en_main.c:mlx5e_create_rq_hd_mkey)",
        user: false,
        modes: &[Mode::Mtt],
        matches: |c| !c.free && !c.umr_en && c.rights == LOCAL,
    },
    Site {
        path: "striding receive queue (CORE/en_main.c:mlx5e_create_umr_mkey)",
        user: false,
        modes: &[Mode::Mtt, Mode::Klm, Mode::Ksm],
        matches: |c| c.free && c.umr_en && c.rights == LOCAL && c.len != 0,
    },
    Site {
        path: "pool for user regions without IBV_ACCESS_RELAXED_ORDERING (IB/mr.c:mlx5r_create_mkeys); in Linux 6.12 the \
               driver's key cache, which it fills when it loads (IB/mr.c:mlx5_mkey_cache_init)",
        user: false,
        modes: &[Mode::Mtt, Mode::Ksm],
        matches: |c| c.free && c.umr_en && !c.relaxed_write,
    },
    Site {
        path: "fast registration by a kernel protocol (IB/mr.c:_mlx5_alloc_mkey_descs)",
        user: false,
        modes: &[Mode::Mtt, Mode::Klm],
        matches: |c| c.free && c.umr_en,
    },
    Site {
        path: "data direct (IB/main.c:mlx5_ib_create_data_direct_resources) or software steering \
               (CORE/steering/sws/dr_send.c:dr_create_mkey)",
        user: false,
        modes: &[Mode::Pa],
        matches: |c| c.length64 && c.rights == Rights::all(),
    },
    Site {
        path: "kernel protection domain (IB/mr.c:mlx5_ib_get_dma_mr) or netdev (CORE/en_common.c:mlx5e_create_mkey)",
        user: false,
        modes: &[Mode::Pa],
        matches: |c| c.length64 && (c.relaxed_write || c.relaxed_read),
    },
    Site {
        path: "resource dump (CORE/diag/rsc_dump.c:mlx5_rsc_dump_create_mkey); \
               CORE/fpga/conn.c and vDPA ask for the same",
        user: false,
        modes: &[Mode::Pa],
        matches: |c| c.length64 && c.rights == LOCAL,
    },
];

fn is_window(c: &KeyContext) -> bool {
    c.free && c.umr_en && c.rights == Rights::LOCAL_READ && c.start_addr == 0 && c.len == 0 && !c.relaxed_write
}

/// The likely place in the driver; empty if no place known makes such requests.
pub fn driver_path(context: &KeyContext, uid: u16) -> &'static str {
    SITES
        .iter()
        .filter(|site| site.user == (uid != 0) && (site.modes.is_empty() || site.modes.contains(&context.mode)))
        .find(|site| (site.matches)(context))
        .map_or("", |site| site.path)
}

/// The likely source of a UMR by a queue of user context `uid` that leaves a key of `kind` with `context`.
pub fn work_request_path(context: &KeyContext, kind: KeyKind, uid: u16) -> &'static str {
    match (kind, context.mode) {
        (KeyKind::Window, _) => {
            "ibv_bind_mw or IBV_WR_BIND_MW (rdma-core providers/mlx5/qp.c:set_bind_wr), or an mlx5dv key \
             (mlx5_send_wr_mkey_configure)"
        }
        (_, Mode::Mtt | Mode::Ksm) if uid == 0 => {
            "user region without IBV_ACCESS_RELAXED_ORDERING, enabled or registered again by UMR \
             (IB/umr.c:mlx5r_umr_set_access_flags)"
        }
        (_, Mode::Klm) if uid == 0 => "fast registration by a kernel protocol (IB/wr.c:set_reg_wr)",
        (_, Mode::Klm | Mode::Ksm) => "mlx5dv key (rdma-core providers/mlx5/qp.c:mlx5_send_wr_mkey_configure)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::mkey::Mkc;

    fn path(uid: u16, edit: impl FnOnce(&mut Mkc)) -> &'static str {
        let mut mkc = Mkc::zeroed();
        mkc.set_lr(1);
        edit(&mut mkc);
        driver_path(&KeyContext::read(&mkc), uid)
    }

    fn window(mkc: &mut Mkc) {
        mkc.set_free(1);
        mkc.set_umr_en(1);
        mkc.set_access_mode_1_0(2);
        mkc.set_translations_octword_size(4);
    }

    #[test]
    fn the_sites_that_never_ask_for_relaxed_ordering_are_told_apart() {
        assert!(path(0, window).starts_with("ibv_alloc_mw type 1"));
        assert!(
            path(0, |m| {
                window(m);
                m.set_en_rinval(1);
            })
            .starts_with("ibv_alloc_mw type 2")
        );
        assert!(path(9, window).starts_with("DEVX: window"));
        assert!(
            path(0, |m| {
                m.set_access_mode_4_2(1);
                m.set_access_mode_1_0(1);
            })
            .starts_with("device memory region")
        );
        assert!(
            path(0, |m| {
                m.set_access_mode_1_0(1);
                m.set_length64(1);
                m.set_log_page_size(61);
            })
            .starts_with("null key")
        );
        assert!(
            path(0, |m| {
                m.set_access_mode_1_0(1);
                m.set_umr_en(1);
                m.set_lw(1);
                m.set_len(4096);
            })
            .starts_with("user region without IBV_ACCESS_RELAXED_ORDERING")
        );
        let dump = |m: &mut Mkc| {
            m.set_lw(1);
            m.set_length64(1);
        };
        assert!(path(0, dump).starts_with("resource dump"));
        assert!(
            path(0, |m| {
                m.set_access_mode_1_0(1);
                m.set_lw(1);
                m.set_start_addr(0x1000);
                m.set_len(0x1000);
            })
            .starts_with("firmware tracer")
        );
    }

    /// Linux 6.12 `IB/mr.c:set_cache_mkc`; a pool of Linux 7.3 makes the same.
    #[test]
    fn a_key_of_the_drivers_cache_is_recognised() {
        let cached = |m: &mut Mkc| {
            m.set_free(1);
            m.set_umr_en(1);
            m.set_access_mode_1_0(1);
            m.set_qpn(0xff_ffff);
            m.set_translations_octword_size(2 << 15);
            m.set_log_page_size(12);
        };
        assert!(path(0, cached).contains("mlx5_mkey_cache_init"));
        // One that asks for relaxed ordering is no more likely a region of user space than one of a kernel protocol.
        let relaxed = path(0, |m| {
            cached(m);
            m.set_relaxed_ordering_write(1);
        });
        assert!(!relaxed.contains("mlx5_mkey_cache_init"), "{relaxed}");
    }

    #[test]
    fn an_unknown_request_gets_no_guess() {
        assert_eq!(path(0, |m| m.set_rr(1)), "");
    }
}
