//! Results for pages: kernels as they are, and one that crashes and says whatever it likes.

use cx10::conform::keys::Key;
use cx10::conform::result::{Cell, Kernel, Row, Verdict};

/// Text that must never become more than text.
pub const HOSTILE: &str = "\"'><script>document.title='owned'</script><img src=http://elsewhere.example/pixel onerror=\"document.title='owned'\"></style></pre></title>&amp;\u{1b}[31m\u{202e}";
pub const OOPS: &str = "BUG: kernel NULL pointer dereference, address: 0000000000000010";
pub const REFUSED: &str = "34.030000 [0] CREATE_MKEY mkc.umr_en=1 mkc.lr=1 mkc.pd=0xb = BAD_PARAM_ERR (syndrome 0x230001: mkc.relaxed_ordering_write must be 1)";
const FLAGS: [&str; 14] = [
    "none",
    "RELAXED",
    "UNORDERED",
    "bit 21",
    "bit 22",
    "bit 23",
    "bit 24",
    "bit 25",
    "bit 26",
    "bit 27",
    "bit 28",
    "bit 29",
    "all optional",
    "unknown bit 15",
];
const POLICIES: [&str; 9] =
    ["in-order", "random", "lifo", "tail-first", "hold-one", "qp-skew", "read-early", "read-late", "pct(3)"];

fn cell(column: &str, outcome: &str, good: Option<bool>, detail: &str) -> Cell {
    Cell {
        column: column.into(),
        outcome: outcome.into(),
        good,
        detail: detail.into(),
        keys: Vec::new(),
        log: Vec::new(),
        trouble: String::new(),
    }
}

fn row(id: &str, title: &str, verdict: Verdict, says: &str, cells: Vec<Cell>) -> Row {
    Row { id: id.into(), title: title.into(), verdict, says: says.into(), cells }
}

fn key(guest: u32, time: f64, kind: &str, via: &str, index: u32) -> Key {
    let (kind, via, verdict) = (kind.into(), via.into(), "created".into());
    Key { time, guest, kind, via, verdict, index: Some(index), relaxed: true, relaxed_read: true, ..Key::default() }
}

fn refused(guest: u32, time: f64) -> Key {
    Key {
        verdict: "refused".into(),
        index: None,
        relaxed: false,
        relaxed_read: false,
        reason: "mkc.relaxed_ordering_write must be 1: this device keeps no order between writes".into(),
        path: "ibv_alloc_mw type 1 (IB/mr.c:mlx5_ib_alloc_mw)".into(),
        decoded: format!(
            "{time:.6}     key window by CREATE_MKEY refused: mkc.relaxed_ordering_write must be 1 (relaxed_ordering_write=0 access_mode=KLMS uid=0 pd=0xb) likely ibv_alloc_mw type 1 (IB/mr.c:mlx5_ib_alloc_mw)"
        ),
        command: REFUSED.into(),
        ..key(guest, time, "window", "CREATE_MKEY", 0)
    }
}

/// Every flag is tried; `rejects` are refused, wrongly but for the last.
fn flags(id: &str, title: &str, rejects: impl Fn(&str) -> bool) -> Row {
    let mut cells = Vec::new();
    for (at, column) in FLAGS.iter().enumerate() {
        let unknown = column.starts_with("unknown");
        let relaxed = ["RELAXED", "UNORDERED", "all optional"].contains(column);
        let mut tried = match (rejects(column), unknown) {
            (true, _) => cell(column, "EINVAL", Some(unknown), ""),
            (false, _) => cell(column, "ok", Some(!unknown), if relaxed { "relaxed" } else { "strong" }),
        };
        if tried.outcome == "ok" {
            let index = u32::try_from(at).unwrap();
            let made = key(1, 12.0 + 1.1 * at as f64, "free", "CREATE_MKEY", 0x20 + index);
            let enabled =
                Key { verdict: "enabled".into(), time: made.time + 0.002, ..key(1, 0.0, "mtt", "UMR", 0x20 + index) };
            tried.keys = [made, enabled].map(|key| Key { relaxed, relaxed_read: relaxed, ..key }).to_vec();
        }
        cells.push(tried);
    }
    let bad = cells.iter().any(|cell| cell.good == Some(false));
    let says = if bad {
        "rejects optional flags (EINVAL): UNORDERED, bits 21 to 29, all optional"
    } else {
        "optional flags are accepted; RELAXED reaches the key, UNORDERED is ignored"
    };
    row(&format!("flags/{id}"), title, if bad { Verdict::Finding } else { Verdict::Ready }, says, cells)
}

/// A kernel as most are: some findings, hundreds of keys.
pub fn plain(name: &str, release: &str) -> Kernel {
    let unknown = |column: &str| column.starts_with("unknown");
    let optional = |column: &str| !["none", "RELAXED"].contains(&column);
    let mut window = cell("provoked", "EINVAL", Some(false), "");
    window.keys = (0..3).map(|number| refused(2, 34.0 + 0.5 * f64::from(number))).collect();
    window.log = vec!["mlx5_core 0000:01:00.0: mlx5_cmd_out_err:822:(pid 173): CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x230001), err(-22)".into()];
    let mut netdev = cell("provoked", "ok", Some(true), "");
    netdev.keys = vec![key(2, 8.25, "pa", "CREATE_MKEY", 0x14)];
    let storage = POLICIES.iter().zip(3..).map(|(policy, guest)| {
        let mut tried = cell(policy, "ok", Some(true), "16777216 bytes compared");
        let pool =
            (0..128).map(|number| key(guest, 21.0 + f64::from(number) / 1000.0, "free", "CREATE_MKEY", 0x100 + number));
        let used = (0..200).map(|number| Key {
            verdict: "enabled".into(),
            ..key(guest, 22.0 + f64::from(number) / 20.0, "mtt", "UMR", 0x100 + number % 128)
        });
        tried.keys = pool.chain(used).collect();
        tried
    });
    let rows = vec![
        flags("reg_mr_write", "reg_mr, write command", unknown),
        flags("dmabuf_mr", "reg_dmabuf_mr, ioctl", optional),
        row("internal/netdev", "netdev (mlx5e)", Verdict::Ready, "1 keys, all relaxed", vec![netdev]),
        row(
            "internal/mw_type_1",
            "memory window, type 1",
            Verdict::Finding,
            "3 of 3 keys refused; without it: ibv_alloc_mw",
            vec![window],
        ),
        row(
            "internal/vdpa",
            "vDPA (mlx5_vdpa)",
            Verdict::Absent,
            "the driver makes it on a virtual function or a subfunction only, which the device has not",
            vec![],
        ),
        row(
            "protocols/nvme",
            "NVMe over RDMA",
            Verdict::Ready,
            "data survives 9 of 9 policies; 2952 fast-registration keys, all relaxed",
            storage.collect(),
        ),
    ];
    let mut guests = vec!["mkey.strict=off".to_owned(), String::new()];
    guests.extend(POLICIES.map(|policy| {
        format!("order.policy={policy} order.seed=1 order.check=true order.max_delay=2000 order.hold=2000")
    }));
    Kernel { name: name.into(), release: release.into(), guests, rows }
}

/// A tree that crashes, and says whatever it likes.
pub fn broken() -> Kernel {
    let long = "0123456789abcdef".repeat(400);
    let mut crash = cell(
        "random",
        "crash",
        Some(false),
        "QEMU ended (signal 6)\nthe guest's last lines:\nKernel panic - not syncing: Fatal exception",
    );
    crash.trouble = OOPS.into();
    crash.log = vec![
        OOPS.into(),
        "#PF: supervisor read access in kernel mode".into(),
        "Oops: 0000 [#1] PREEMPT SMP NOPTI".into(),
    ];
    crash.log.extend((0..60).map(|number| format!(" ? mlx5_ib_reg_user_mr+{number:#x}/0x260 [mlx5_ib]")));
    crash.log.extend([long.clone(), HOSTILE.into()]);
    crash.keys = vec![Key {
        kind: HOSTILE.into(),
        via: HOSTILE.into(),
        reason: HOSTILE.into(),
        decoded: HOSTILE.into(),
        command: long.clone(),
        ..refused(2, 3.5)
    }];
    let said = format!("{HOSTILE}\n{long}");
    let mut told = cell(HOSTILE, HOSTILE, Some(false), &said);
    told.trouble = format!("WARNING: {HOSTILE}");
    let mut lost = cell("in-order", "crash", Some(false), "no answer for 180 s");
    lost.keys = vec![key(1, 9.0, "free", "CREATE_MKEY", 1)];
    let rows = vec![
        flags("reg_mr_write", "reg_mr, write command", |_| false),
        row("flags/dmabuf_mr", "reg_dmabuf_mr, ioctl", Verdict::Crash, &format!("with random: {OOPS}"), vec![crash]),
        row("protocols/nvme", "NVMe over RDMA", Verdict::Crash, "in-order: no answer for 180 s", vec![lost]),
        row(&format!("protocols/{HOSTILE}"), HOSTILE, Verdict::Finding, &said, vec![told]),
        row(&format!("protocols/{HOSTILE}/x"), &long, Verdict::Absent, &said, vec![]),
    ];
    Kernel { name: "/src/linux".into(), release: format!("7.4.0-rc1{HOSTILE}"), guests: vec![HOSTILE.into()], rows }
}
