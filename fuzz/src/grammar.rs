//! What a well-formed command looks like, from the PRM tables: which opcodes the device implements, the fields of their
//! inputs, and what kind of thing a field names. Nothing here is a list of commands; a new command family is fuzzed as
//! soon as it is registered.

use std::sync::OnceLock;

use cx10::cmdif;
use cx10::device::objects::Kind as ObjectKind;
use cx10::prm::commands::layouts;
use cx10::prm::{Kind, Layout, Opcode};

/// Elements of an array field that are addressed one by one.
const ELEMENTS: u32 = 4;

/// A number somewhere in a command's input.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// PRM name of the field itself.
    pub name: &'static str,
    /// Names of all structures on the way and of the field.
    pub path: String,
    /// Bit offset in the input.
    pub offset: u32,
    /// Bits.
    pub width: u32,
    /// Which kinds of objects it may name, bit n for kind n.
    pub kinds: u64,
    /// It holds a guest address.
    pub address: bool,
    /// A driver leaves it alone unless it means it.
    pub rare: bool,
    /// It makes pages larger than 4 KiB.
    pub enlarges: bool,
}

impl Leaf {
    fn new(name: &'static str, path: String, offset: u32, width: u32) -> Leaf {
        let kind_named = |kind: &&ObjectKind| width >= 4 && names(name, &format!("{kind:?}").to_lowercase());
        let kinds = ObjectKind::ALL.iter().filter(kind_named).fold(0, |set, kind| set | 1 << *kind as u32);
        Leaf {
            name,
            kinds,
            address: width == 64 && ["addr", "pas", "va", "dbr"].iter().any(|part| name.contains(part)),
            rare: is_rare(name) || path.starts_with("match_") || path.contains(".match_"),
            enlarges: ["page_size", "pg_sz", "entity_size"].iter().any(|part| name.contains(part)),
            path,
            offset,
            width,
        }
    }

    /// Whether it may hold the number of an object of `kind`.
    pub fn may_name(&self, kind: ObjectKind) -> bool {
        self.kinds >> kind as u32 & 1 != 0
    }
}

/// One form of a command.
#[derive(Debug)]
pub struct Form {
    /// Its opcode.
    pub opcode: Opcode,
    /// Its modifier, where that decides the layout.
    pub op_mod: u16,
    /// Bytes of the fixed input.
    pub len: usize,
    /// Whether a tail follows.
    pub tail: bool,
    /// Bytes of the fixed output.
    pub out_len: usize,
    /// The numbers of its input but for the opcode.
    pub leaves: Vec<Leaf>,
    /// Where the number of a created object stands in the output, if the layout tells.
    pub out: Option<&'static Layout>,
}

impl Form {
    fn new(opcode: Opcode, op_mod: u16) -> Form {
        let found = layouts(opcode, op_mod);
        let (input, out) = (found.map(|l| l.0), found.map(|l| l.1));
        let mut leaves = Vec::new();
        if let Some(layout) = input {
            collect(layout, 0, "", &mut leaves);
        }
        leaves.retain(|leaf| leaf.offset >= 16);
        Form {
            opcode,
            op_mod,
            len: input.map_or(16, Layout::bytes).max(16),
            tail: input.is_none_or(Layout::has_tail),
            out_len: out.map_or(16, Layout::bytes).max(16),
            leaves,
            out,
        }
    }
}

fn collect(layout: &'static Layout, base: u32, prefix: &str, leaves: &mut Vec<Leaf>) {
    for field in layout.fields {
        let at = base + field.offset;
        let path = format!("{prefix}{}", field.name);
        let mut add = |path: String, offset, width| {
            leaves.push(Leaf::new(field.name, path, offset, width));
        };
        match field.kind {
            Kind::Scalar { width } => add(path, at, width),
            Kind::Scalars { width, count } => {
                (0..count.min(ELEMENTS)).for_each(|i| add(format!("{path}[{i}]"), at + i * width, width));
            }
            Kind::Bytes { len } => {
                (0..(len / 4).min(ELEMENTS)).for_each(|i| add(format!("{path}[{i}]"), at + i * 32, 32))
            }
            Kind::Nested(inner) => collect(inner, at, &format!("{path}."), leaves),
            Kind::Array { element, count } => {
                (0..count.min(ELEMENTS))
                    .for_each(|i| collect(element, at + i * element.bits, &format!("{path}[{i}]."), leaves));
            }
            Kind::Tail => {}
        }
    }
}

/// Every form of every implemented command.
pub fn forms() -> &'static [Form] {
    static FORMS: OnceLock<Vec<Form>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let mut forms = Vec::new();
        for opcode in cmdif::implemented() {
            let plain = Form::new(opcode, 0);
            // General objects have a layout for each type, chosen by the modifier.
            let mut known = vec![(plain.len, plain.out_len)];
            forms.push(plain);
            for op_mod in 1..=0x40 {
                let form = Form::new(opcode, op_mod);
                if !known.contains(&(form.len, form.out_len)) {
                    known.push((form.len, form.out_len));
                    forms.push(form);
                }
            }
        }
        assert!(forms.len() >= 10, "the device implements next to nothing");
        forms
    })
}

/// The form of a command that has only one.
pub fn form(opcode: Opcode) -> Option<&'static Form> {
    forms().iter().find(|form| form.opcode == opcode)
}

/// Whether a field of this name may hold the number of an object of `kind` (the name of the kind, lower case).
fn names(field: &str, kind: &str) -> bool {
    // Kinds that PRM field names call something else.
    const OTHER: &[(&str, &str)] = &[
        ("td", "transport_domain"),
        ("transportdomain", "transport_domain"),
        ("transportdomain", "td"),
        ("flowtable", "table_id"),
        ("flowtable", "destination_id"),
        ("flowtable", "table_miss_id"),
        ("flowgroup", "group_id"),
        ("flowcounter", "flow_counter_id"),
        ("qcounter", "counter_set_id"),
        ("counterset", "counter_set_id"),
        ("tir", "destination_id"),
        ("uctx", "uid"),
        ("xrcsrq", "xrc_srqn"),
        ("rqtable", "rqtn"),
        ("rqtable", "indirect_table"),
        ("flowentry", "flow_index"),
        ("xrcd", "xrc"),
        ("reformat", "packet_reformat_id"),
        ("packetreformat", "packet_reformat_id"),
        ("modifyheader", "modify_header_id"),
    ];
    let mut words = field.split('_');
    words.any(|word| word.starts_with(kind)) || OTHER.iter().any(|(k, f)| *k == kind && field.starts_with(f))
}

/// Whether a field names something that a driver leaves alone unless it means it.
fn is_rare(field: &str) -> bool {
    ["op_mod", "uid", "underlay_qpn", "ts_cqe_to_dest_cqn", "hairpin"].iter().any(|name| field.starts_with(name))
}
