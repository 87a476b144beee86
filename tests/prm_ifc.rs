//! Compares every declared layout and opcode with `mlx5_ifc.h` of Debian's packaged kernel headers.
//!
//! The header is `$CX10_IFC_HEADER`, or the copy in the cache that `scripts/fetch-ifc` puts there; the test calls the
//! script when there is none, and fails when it cannot be had.

use cx10::prm::commands::all_layouts;
use cx10::prm::{Kind, Layout, Opcode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Layouts that `mlx5_ifc.h` does not have. Their modules assert byte offsets against the header they name.
const NOT_IN_IFC: &[(&str, &str)] = &[
    ("health_buffer", "linux/mlx5/device.h; ifc has an older form"),
    ("init_seg", "linux/mlx5/device.h; ifc's initial_seg is an older form"),
    ("cqe64", "linux/mlx5/device.h"),
    ("err_cqe", "linux/mlx5/device.h"),
    ("sig_err_cqe", "linux/mlx5/device.h"),
    ("mini_cqe8", "linux/mlx5/device.h"),
    ("eqe_page_req", "linux/mlx5/device.h; ifc's pages_req_event lacks the flags"),
    ("eqe_page_fault_wqe", "linux/mlx5/device.h"),
    ("eqe_page_fault_rdma", "linux/mlx5/device.h"),
    ("eqe_page_fault_memory", "linux/mlx5/device.h"),
    ("eqe_vport_change", "linux/mlx5/device.h"),
    ("eqe_port_module", "linux/mlx5/device.h"),
    ("eqe_temp_warning", "linux/mlx5/device.h"),
    ("eqe_pps", "linux/mlx5/device.h"),
    ("eqe_xrq_err", "linux/mlx5/device.h"),
    ("eqe_sync_fw_update", "linux/mlx5/device.h"),
    ("eqe_vhca_state", "linux/mlx5/device.h"),
    ("wqe_ctrl_seg", "linux/mlx5/qp.h"),
    ("wqe_raddr_seg", "linux/mlx5/qp.h"),
    ("wqe_atomic_seg", "linux/mlx5/qp.h"),
    ("wqe_masked_atomic_seg", "linux/mlx5/qp.h"),
    ("wqe_data_seg", "linux/mlx5/qp.h"),
    ("wqe_inline_seg", "linux/mlx5/qp.h"),
    ("wqe_xrc_seg", "linux/mlx5/qp.h"),
    ("av", "linux/mlx5/qp.h"),
    ("base_av", "linux/mlx5/qp.h"),
    ("wqe_eth_seg", "linux/mlx5/qp.h"),
    ("wqe_umr_ctrl_seg", "linux/mlx5/qp.h"),
    ("seg_set_psv", "linux/mlx5/qp.h"),
    ("mtt_entry", "linux/mlx5/qp.h"),
    ("klm", "linux/mlx5/qp.h"),
    ("ksm", "linux/mlx5/qp.h"),
    ("stride_block_entry", "linux/mlx5/qp.h"),
    ("stride_block_ctrl_seg", "linux/mlx5/qp.h"),
    ("wqe_srq_next_seg", "linux/mlx5/device.h"),
    ("send_doorbell", "linux/mlx5/qp.h, the control segment's head"),
    ("cq_doorbell", "linux/mlx5/cq.h"),
    ("eq_doorbell", "mlx5/core/lib/eq.h"),
    ("qp_doorbell_record", "linux/mlx5/qp.h"),
    ("cq_doorbell_record", "linux/mlx5/cq.h"),
    ("mbox_in", "mlx5/core/cmd.c"),
    ("mbox_out", "mlx5/core/cmd.c"),
    ("node_desc", "infiniband/hw/mlx5/main.c"),
    ("sx_slice", "this device's own"),
    ("rx_slice", "this device's own"),
    ("tracer_string_event", "mlx5/core/diag/fw_tracer.h"),
    ("tracer_timestamp_event", "mlx5/core/diag/fw_tracer.h"),
];

/// Fields of the header that are wide reserved masks under a name of their own.
const NOT_DECLARED: &[&str] = &[
    "qcam_access_reg_cap_mask.qcam_access_reg_cap_mask_127_to_20",
    "qcam_qos_feature_cap_mask.qcam_qos_feature_cap_mask_127_to_5",
];

#[test]
fn every_declared_field_is_where_mlx5_ifc_has_it() {
    let differences = compare(&Ifc::parse(&header()));
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_comparison_sees_moved_renamed_resized_retyped_and_new_fields() {
    let text = header();
    let mkey_entry = "struct mlx5_ifc_mkc_bits memory_key_mkey_entry;";
    for (from, to, expected) in [
        ("u8         umr_en[0x1];", "u8 x[0x1]; u8 umr_en[0x1];", "mkc.umr_en is at 0x10, 0x11 in the header"),
        ("u8         umr_en[0x1];", "u8 umr_on[0x1];", "mkc.umr_en is not in the header"),
        ("u8         length64[0x1];", "u8 length64[0x2];", "mkc.length64 is Scalar { width: 1 }, in the header"),
        (
            mkey_entry,
            "struct mlx5_ifc_cqc_bits memory_key_mkey_entry;",
            "create_mkey_in.memory_key_mkey_entry is Nested",
        ),
        (
            "struct mlx5_ifc_mkc_bits {\n\tu8         reserved_at_0[0x1];",
            "struct mlx5_ifc_mkc_bits {\n\tu8 fresh[0x1];",
            "mkc.fresh at 0x0 is in the header",
        ),
        ("struct mlx5_ifc_cqc_bits {", "struct mlx5_ifc_cqd_bits {", "cqc is not in the header"),
    ] {
        assert!(text.contains(from), "the header no longer has {from:?}");
        let changed = Ifc { types: Ifc::parse(&text.replace(from, to)).types };
        let found = if to.contains("cqd") { compare_names(&changed) } else { compare(&changed) };
        assert!(found.iter().any(|d| d.starts_with(expected)), "{expected:?} not in {found:?}");
    }
}

#[test]
fn every_opcode_has_the_headers_number() {
    let mut header_ops = BTreeMap::new();
    for line in header().lines() {
        let line = line.trim();
        let Some(rest) = line.strip_prefix("MLX5_CMD_OPCODE_").or_else(|| line.strip_prefix("MLX5_CMD_OP_")) else {
            continue;
        };
        let Some((name, value)) = rest.split_once('=') else { continue };
        let name = name.trim();
        // Bounds of the range of general object commands, and an op_mod under an opcode's prefix.
        if !["GENERAL_START", "GENERAL_END", "MOD_UPDATE_HEADER_MODIFY_ARGUMENT"].contains(&name) {
            let value = number(value.trim().trim_end_matches(',')).expect("an opcode is a number");
            header_ops.insert(name.to_owned(), value);
        }
    }
    let ours: BTreeMap<_, _> = Opcode::ALL.iter().map(|(o, n)| ((*n).to_owned(), u32::from(o.0))).collect();
    assert_eq!(ours, header_ops);
}

/// The declared layouts that the header should have.
fn comparable() -> impl Iterator<Item = &'static Layout> {
    all_layouts().filter(|l| !NOT_IN_IFC.iter().any(|(n, _)| *n == l.name))
}

/// Declared layouts that the header lacks, and exceptions without a layout.
fn compare_names(ifc: &Ifc) -> Vec<String> {
    let unknown = comparable().filter(|l| ifc.find(l.name).is_none());
    let mut found: Vec<_> = unknown.map(|l| format!("{} is not in the header", l.name)).collect();
    for (name, _) in NOT_IN_IFC {
        if all_layouts().all(|l| l.name != *name) {
            found.push(format!("{name} is listed as not in the header, and not declared either"));
        }
    }
    found
}

/// Every difference between the declared layouts and the header.
fn compare(ifc: &Ifc) -> Vec<String> {
    let mut found = compare_names(ifc);
    let declared: BTreeSet<_> = all_layouts().map(|l| l.name).collect();
    for layout in comparable() {
        if let Some(body) = ifc.find(layout.name) {
            compare_layout(ifc, layout, body, &declared, &mut found);
        }
    }
    found
}

fn compare_layout(ifc: &Ifc, layout: &Layout, body: &Body, declared: &BTreeSet<&str>, found: &mut Vec<String>) {
    let mut fields = Vec::new();
    ifc.flatten(body, 0, &mut fields);
    let bits = ifc.body_bits(body);
    if bits != layout.bits {
        found.push(format!("{} has {:#x} bits, {:#x} in the header", layout.name, layout.bits, bits));
    }
    for field in layout.fields {
        let path = format!("{}.{}", layout.name, field.name);
        if field.extra.is_some() {
            let taken = fields.iter().find(|f| {
                f.name == field.name || !f.reserved() && f.offset < field.end() && field.offset < f.offset + f.bits
            });
            if let Some(taken) = taken {
                found.push(format!("{path} is extra, but the header has {} there", taken.name));
            }
            continue;
        }
        let Some(f) = fields.iter().find(|f| f.name == field.name) else {
            found.push(format!("{path} is not in the header"));
            continue;
        };
        if f.offset != field.offset {
            found.push(format!("{path} is at {:#x}, {:#x} in the header", field.offset, f.offset));
        }
        let first = f.dims.first().copied();
        let same = match field.kind {
            Kind::Scalar { width } => *f.ty == Type::Bits && f.bits == width,
            Kind::Bytes { len } => f.bits == len * 8,
            Kind::Nested(l) => {
                f.bits == l.bits
                    && declared.contains(l.name)
                    && match f.ty {
                        Type::Named(n) => n == l.name,
                        Type::Inline(_) => l.name == path,
                        Type::Bits => false,
                    }
            }
            Kind::Scalars { width, count } => f.bits == width * count && first == Some(count),
            Kind::Array { element, count } => {
                *f.ty == Type::Named(element.name.to_owned())
                    && first == Some(count)
                    && f.bits == element.bits * count
                    && declared.contains(element.name)
            }
            Kind::Tail => f.bits == 0,
        };
        if !same {
            let ours = match field.kind {
                Kind::Nested(l) => format!("Nested {}", l.name),
                Kind::Array { element, count } => format!("Array of {count} {}", element.name),
                kind => format!("{kind:?}"),
            };
            found.push(format!("{path} is {ours}, in the header {}{:?} of {:#x} bits", f.ty.name(), f.dims, f.bits));
        }
    }
    for f in fields.iter().filter(|f| !f.reserved()) {
        let path = format!("{}.{}", layout.name, f.name);
        if layout.field(&f.name).is_none() && !NOT_DECLARED.contains(&path.as_str()) {
            found.push(format!("{path} at {:#x} is in the header, and not declared", f.offset));
        }
    }
}

fn header() -> String {
    if let Ok(path) = std::env::var("CX10_IFC_HEADER") {
        return std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("CX10_IFC_HEADER={path}: {e}"));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/fetch-ifc");
    let run = Command::new(&script).output().unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    assert!(
        run.status.success(),
        "cannot get mlx5_ifc.h; give its path in CX10_IFC_HEADER, or make this work: {}\n{}",
        script.display(),
        String::from_utf8_lossy(&run.stderr)
    );
    let path = String::from_utf8(run.stdout).expect("a path");
    std::fs::read_to_string(path.trim()).unwrap_or_else(|e| panic!("{}: {e}", path.trim()))
}

/// The structures of the header.
struct Ifc {
    types: BTreeMap<String, Body>,
}

#[derive(Debug, PartialEq)]
struct Body {
    union: bool,
    members: Vec<Member>,
}

#[derive(Debug, PartialEq)]
struct Member {
    name: String,
    ty: Type,
    /// Array sizes; 0 for a flexible one.
    dims: Vec<u32>,
}

#[derive(Debug, PartialEq)]
enum Type {
    Bits,
    Named(String),
    Inline(Body),
}

impl Type {
    fn name(&self) -> &str {
        match self {
            Type::Bits => "u8",
            Type::Named(n) => n,
            Type::Inline(_) => "inline",
        }
    }
}

/// A member with its place, members of unnamed structures and unions included.
struct Placed<'a> {
    name: String,
    offset: u32,
    bits: u32,
    ty: &'a Type,
    dims: &'a [u32],
}

impl Placed<'_> {
    fn reserved(&self) -> bool {
        // One field of the header is misspelt.
        self.name.starts_with("reserved") || self.name.starts_with("resereved") || self.name.starts_with("rsvd")
    }
}

impl Ifc {
    fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut types = BTreeMap::new();
        let mut p = Parser { tokens: &tokens, at: 0, computed: false };
        while p.at < tokens.len() {
            let union = tokens[p.at] == "union";
            let opens = tokens.get(p.at + 2).is_some_and(|t| *t == "{");
            if (union || tokens[p.at] == "struct") && opens {
                let name = short(tokens[p.at + 1]).to_owned();
                p.at += 3;
                p.computed = false;
                let body = p.body(union);
                // Left out when a size is not a plain number; no declared layout has that.
                if !p.computed {
                    types.entry(name).or_insert(body);
                }
            } else {
                p.at += 1;
            }
        }
        Ifc { types }
    }

    /// A structure by name, or the inline structure of a member as `structure.member`.
    fn find(&self, name: &str) -> Option<&Body> {
        let Some((outer, member)) = name.split_once('.') else { return self.types.get(name) };
        self.types.get(outer)?.members.iter().find(|m| m.name == member).and_then(|m| match &m.ty {
            Type::Inline(body) => Some(body),
            _ => None,
        })
    }

    fn body_bits(&self, body: &Body) -> u32 {
        let sizes = body.members.iter().map(|m| self.member_bits(m));
        if body.union { sizes.max().unwrap_or(0) } else { sizes.sum() }
    }

    fn member_bits(&self, m: &Member) -> u32 {
        let one = match &m.ty {
            Type::Bits => 1,
            // A structure of another header; no declared layout has one.
            Type::Named(n) => self.types.get(n).map_or(0, |body| self.body_bits(body)),
            Type::Inline(b) => self.body_bits(b),
        };
        m.dims.iter().fold(one, |bits, n| bits * n)
    }

    fn flatten<'a>(&'a self, body: &'a Body, base: u32, out: &mut Vec<Placed<'a>>) {
        let mut offset = base;
        for m in &body.members {
            let bits = self.member_bits(m);
            match &m.ty {
                Type::Inline(inner) if m.name.is_empty() => self.flatten(inner, offset, out),
                ty => out.push(Placed { name: m.name.clone(), offset, bits, ty, dims: &m.dims }),
            }
            if !body.union {
                offset += bits;
            }
        }
    }
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    at: usize,
    /// The structure has an array whose size is an expression.
    computed: bool,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> &'a str {
        let t = self.tokens.get(self.at).copied().expect("the header ends inside a structure");
        self.at += 1;
        t
    }

    fn expect(&mut self, token: &str) {
        let got = self.next();
        assert_eq!(got, token, "near {:?}", &self.tokens[self.at.saturating_sub(6)..self.at]);
    }

    /// Members up to the closing brace.
    fn body(&mut self, union: bool) -> Body {
        let mut members = Vec::new();
        loop {
            match self.next() {
                "}" => return Body { union, members },
                "u8" => {
                    let name = self.next().to_owned();
                    let dims = self.dims();
                    members.push(Member { name, ty: Type::Bits, dims });
                }
                // A flexible array inside a union or alone in a structure.
                "DECLARE_FLEX_ARRAY" => {
                    self.expect("(");
                    let ty = match self.next() {
                        "u8" => Type::Bits,
                        _ => Type::Named(short(self.next()).to_owned()),
                    };
                    self.expect(",");
                    let name = self.next().to_owned();
                    self.expect(")");
                    self.expect(";");
                    members.push(Member { name, ty, dims: vec![0] });
                }
                kind @ ("struct" | "union") => {
                    let ty = match self.next() {
                        "{" => Type::Inline(self.body(kind == "union")),
                        name => Type::Named(short(name).to_owned()),
                    };
                    let name = match self.tokens[self.at] {
                        ";" | "[" => String::new(),
                        _ => self.next().to_owned(),
                    };
                    let dims = self.dims();
                    members.push(Member { name, ty, dims });
                }
                other => panic!("unexpected {other:?} near {:?}", &self.tokens[self.at.saturating_sub(6)..self.at]),
            }
        }
    }

    /// Array sizes and the semicolon.
    fn dims(&mut self) -> Vec<u32> {
        let mut dims = Vec::new();
        loop {
            match self.next() {
                ";" => return dims,
                "[" => match self.next() {
                    "]" => dims.push(0),
                    size => {
                        self.computed |= number(size).is_none();
                        dims.push(number(size).unwrap_or(0));
                        self.expect("]");
                    }
                },
                other => panic!("unexpected {other:?} after a member"),
            }
        }
    }
}

/// `mlx5_ifc_NAME_bits` without the affixes.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("mlx5_ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name)
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Words and punctuation, without comments and preprocessor lines.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    let mut line_start = true;
    while let Some(c) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, r)| r);
        } else if line_start && c == '#' {
            // To the end of the line, and of its continuations.
            loop {
                let (line, r) = rest.split_once('\n').unwrap_or((rest, ""));
                rest = r;
                if !line.ends_with('\\') {
                    break;
                }
            }
        } else if c.is_alphanumeric() || c == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            out.push(&rest[..end]);
            rest = &rest[end..];
            line_start = false;
        } else {
            if !c.is_whitespace() {
                out.push(&rest[..c.len_utf8()]);
                line_start = false;
            } else if c == '\n' {
                line_start = true;
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}
