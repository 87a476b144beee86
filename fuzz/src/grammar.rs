//! What a well-formed command looks like, from the PRM tables: which opcodes the device implements, the fields of their
//! inputs, and what kind of thing a field names. Nothing here is a list of commands; a new command family is fuzzed as
//! soon as it is registered.

use std::ops::Range;
use std::sync::OnceLock;

use cx10::cmdif;
use cx10::device::objects::Kind as ObjectKind;
use cx10::prm::commands::{REGISTERS, RegisterId, layouts};
use cx10::prm::{Kind, Layout, Opcode};
use cx10::profile::caps::{AREA, TYPES};

use crate::input::Input;

/// Elements of an array field that are addressed one by one.
const ELEMENTS: u32 = 4;

/// Where the modifier and the register of ACCESS_REG stand, in bits, and inner structures, in bytes.
const OP_MOD: u32 = 0x30;
const REGISTER_ID: u32 = 0x50;
const INNER: u32 = 0x10;

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
        let called = |names: fn(&str, &str) -> bool| {
            let fits = |kind: &&(ObjectKind, String)| width >= 4 && names(name, &kind.1);
            kind_names().iter().filter(fits).fold(0, |set, (kind, _)| set | 1 << *kind as u32)
        };
        // `rqtn` names a table of receive queues, though it begins as `rqn` does.
        let kinds = match called(otherwise_names) {
            0 => called(names),
            special => special,
        };
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
    /// Bytes of the fixed input.
    pub len: usize,
    /// Whether a tail follows.
    pub tail: bool,
    /// Bytes of the fixed output.
    pub out_len: usize,
    /// The numbers of its input but for the opcode.
    pub leaves: Vec<Leaf>,
    /// What the input holds to be of this form: bit offset, width, value.
    pub preset: Vec<(u32, u32, u64)>,
    /// The capability area that the input ends with.
    pub capabilities: Option<u16>,
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
            len: input.map_or(16, Layout::bytes).max(16),
            tail: input.is_none_or(Layout::has_tail),
            out_len: out.map_or(16, Layout::bytes).max(16),
            leaves,
            preset: if op_mod == 0 { Vec::new() } else { vec![(OP_MOD, 16, op_mod.into())] },
            capabilities: None,
        }
    }

    /// ACCESS_REG of one register.
    fn register(id: RegisterId, layout: &'static Layout) -> Form {
        let mut form = Form::new(Opcode::ACCESS_REG, 0);
        form.preset.push((REGISTER_ID, 16, id.0.into()));
        collect(layout, 8 * INNER, "", &mut form.leaves);
        let bytes = INNER as usize + layout.bytes();
        Form { len: bytes, out_len: bytes, tail: false, ..form }
    }

    /// QUERY_HCA_CAP or SET_HCA_CAP of one type.
    fn capability(opcode: Opcode, cap_type: u16, layout: &'static Layout) -> Form {
        let mut form = Form::new(opcode, 0);
        form.preset.push((OP_MOD, 16, u64::from(cap_type << 1)));
        form.tail = false;
        if opcode == Opcode::QUERY_HCA_CAP {
            return Form { out_len: INNER as usize + AREA, ..form };
        }
        form.leaves.retain(|leaf| leaf.offset < 8 * INNER);
        collect(layout, 8 * INNER, "", &mut form.leaves);
        Form { len: INNER as usize + AREA, capabilities: Some(cap_type), ..form }
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

/// Every form of every implemented command, those of one command together.
pub fn forms() -> &'static [Form] {
    &table().0
}

/// One form, each command being as likely as any other, however many forms it has.
pub fn any(input: &mut Input<'_>) -> &'static Form {
    let (forms, commands) = table();
    let range = &commands[input.below(commands.len())];
    &forms[range.start + input.below(range.len())]
}

fn table() -> &'static (Vec<Form>, Vec<Range<usize>>) {
    static TABLE: OnceLock<(Vec<Form>, Vec<Range<usize>>)> = OnceLock::new();
    TABLE.get_or_init(|| {
        let (mut forms, mut commands) = (Vec::new(), Vec::new());
        for opcode in cmdif::implemented() {
            let start = forms.len();
            match opcode {
                Opcode::ACCESS_REG => {
                    forms.extend(REGISTERS.iter().map(|(id, layout)| Form::register(*id, layout)));
                }
                Opcode::QUERY_HCA_CAP | Opcode::SET_HCA_CAP => {
                    forms.extend(TYPES.iter().map(|(number, _, layout)| Form::capability(opcode, *number, layout)));
                }
                _ => general(opcode, &mut forms),
            }
            commands.push(start..forms.len());
        }
        assert!(commands.len() >= 10, "the device implements next to nothing");
        (forms, commands)
    })
}

/// General object commands have a layout for each type, chosen by the modifier; others have one.
fn general(opcode: Opcode, forms: &mut Vec<Form>) {
    let plain = Form::new(opcode, 0);
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

/// The form of a command that has only one.
pub fn form(opcode: Opcode) -> Option<&'static Form> {
    forms().iter().find(|form| form.opcode == opcode)
}

/// Every kind of object with its name in lower case.
fn kind_names() -> &'static [(ObjectKind, String)] {
    static NAMES: OnceLock<Vec<(ObjectKind, String)>> = OnceLock::new();
    NAMES.get_or_init(|| ObjectKind::ALL.iter().map(|kind| (*kind, format!("{kind:?}").to_lowercase())).collect())
}

/// Whether a field of this name may hold the number of an object of `kind` (the name of the kind, lower case).
fn names(field: &str, kind: &str) -> bool {
    field.split('_').any(|word| word.starts_with(kind))
}

/// The same for kinds that PRM field names call something else.
fn otherwise_names(field: &str, kind: &str) -> bool {
    const OTHER: &[(&str, &str)] = &[
        ("transportdomain", "transport_domain"),
        ("transportdomain", "td"),
        ("flowtable", "table_id"),
        ("flowtable", "destination_id"),
        ("flowtable", "table_miss_id"),
        ("flowgroup", "group_id"),
        ("flowcounter", "flow_counter_id"),
        ("qcounter", "counter_set_id"),
        ("tir", "destination_id"),
        ("uctx", "uid"),
        ("xrcd", "xrcd"),
        ("xrcsrq", "xrc_srqn"),
        ("xrcsrq", "srqn"),
        ("srq", "srqn"),
        ("rmp", "srqn_rmpn"),
        ("rqtable", "rqtn"),
        ("rqtable", "indirect_table"),
        ("packetreformat", "packet_reformat_id"),
        ("modifyheader", "modify_header_id"),
    ];
    OTHER.iter().any(|(k, f)| *k == kind && field.starts_with(f))
}

/// Whether a field names something that a driver leaves alone unless it means it.
fn is_rare(field: &str) -> bool {
    ["op_mod", "uid", "mkey_7_0", "underlay_qpn", "ts_cqe_to_dest_cqn", "hairpin"]
        .iter()
        .any(|name| field.starts_with(name))
}
