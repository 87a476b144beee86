//! Capability areas by PRM name: which types exist, how `caps.TYPE.FIELD` is checked, and how the 4096-byte areas of
//! QUERY_HCA_CAP are built.
//!
//! Types and their numbers: kernel `mlx5_cap_type` (`include/linux/mlx5/device.h`). Field names, offsets and widths come from
//! the layouts in [`crate::prm`].

use crate::config::keys::{nearest, parse_bool, parse_int};
pub use crate::prm::commands::CAPS as TYPES;
use crate::prm::commands::{cap_by_name, cap_layout};
use crate::prm::{Kind, Layout, PathError};
use toml::Value;

/// Bytes of one capability area.
pub const AREA: usize = 4096;

/// Name of a type, if it is one of [`TYPES`].
pub fn type_name(cap_type: u16) -> Option<&'static str> {
    cap_layout(cap_type).map(|(name, _)| name)
}

/// Number of a type.
pub fn type_number(name: &str) -> Option<u16> {
    cap_by_name(name).map(|(number, _)| number)
}

/// Layout of a type.
pub fn layout(cap_type: u16) -> Option<&'static Layout> {
    cap_layout(cap_type).map(|(_, layout)| layout)
}

/// True if the key is a capability (`caps.…` or `caps_max.…`).
pub fn is_cap_path(path: &str) -> bool {
    path.starts_with("caps.") || path.starts_with("caps_max.")
}

/// True if the path may be a TOML table on the way to a capability.
pub fn is_section(path: &str) -> bool {
    match split(path) {
        None => path == "caps" || path == "caps_max",
        Some((_, name, field)) => {
            let Some(layout) = type_number(name).and_then(layout) else { return false };
            field.is_none_or(|f| matches!(layout.locate(f), Some((_, Kind::Nested(_)))))
        }
    }
}

/// `caps.general.log_max_qp` → (`caps`, `general`, `log_max_qp`).
pub fn split(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let (root, rest) = path.split_once('.')?;
    if root != "caps" && root != "caps_max" {
        return None;
    }
    Some(match rest.split_once('.') {
        Some((name, field)) => (root, name, Some(field)),
        None => (root, rest, None),
    })
}

/// The value of `--set caps.…=TEXT`.
pub fn from_text(text: &str) -> Value {
    if let Some(v) = parse_int(text) {
        Value::Integer(v)
    } else if let Some(b) = parse_bool(text) {
        Value::Boolean(b)
    } else {
        Value::String(text.trim_matches('"').to_string())
    }
}

/// Checks that the path names a field and that the value fits. Returns the value as a number, or as a `0x…` text where TOML
/// numbers end.
pub fn check(path: &str, value: &Value) -> Result<Value, String> {
    let Some((root, name, field)) = split(path) else { return Err(format!("unknown key `{path}`")) };
    let Some(cap_type) = type_number(name) else {
        if let Some(at) = path_of_field(path.rsplit('.').next().unwrap_or(path)) {
            return Err(format!("no capability type `{name}`; did you mean `{at}`?"));
        }
        let names = TYPES.iter().map(|(_, n, _)| *n);
        return Err(match nearest(name, names.clone()) {
            Some(near) => format!("no capability type `{name}`; did you mean `{root}.{near}`?"),
            None => format!("no capability type `{name}`; types are {}", names.collect::<Vec<_>>().join(", ")),
        });
    };
    let Some(field) = field else { return Err(format!("`{path}` is a section; name a field, as in `{path}.FIELD`")) };
    let Some(layout) = layout(cap_type) else { return Err(format!("unknown key `{path}`")) };
    match layout.locate(field) {
        Some((_, Kind::Scalar { width })) => {
            let number = to_number(value)
                .ok_or_else(|| format!("`{path}`: {value} is not a number, expected {}", range(width)))?;
            if width < 64 && number >> width != 0 {
                return Err(format!(
                    "`{path}`: {value} does not fit in {width} bit{}, expected {}",
                    plural(width),
                    range(width)
                ));
            }
            Ok(from_number(number))
        }
        Some((_, Kind::Nested(inner))) => {
            let fields: Vec<_> = inner.fields.iter().take(4).map(|f| f.name).collect();
            Err(format!("`{path}` is a structure; set its fields: {}, …", fields.join(", ")))
        }
        Some((_, Kind::Array { count, .. } | Kind::Scalars { count, .. })) => {
            Err(format!("`{path}` has {count} elements; set one of them, as in \"{path}[0]\""))
        }
        Some((_, Kind::Bytes { .. } | Kind::Tail)) => Err(format!("`{path}` is not a number and cannot be set")),
        None => Err(unknown_field(root, name, field, layout)),
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn range(width: u32) -> String {
    format!("0..{:#x}", u64::MAX >> (64 - width))
}

/// A number, a truth value, or a `0x…` text.
fn to_number(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(v) => u64::try_from(*v).ok(),
        Value::Boolean(b) => Some(u64::from(*b)),
        Value::String(s) => u64::from_str_radix(s.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}

fn from_number(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::String(format!("{number:#x}")), Value::Integer)
}

/// Names under which other projects know a field.
static OTHER_NAMES: &[(&str, &str)] = &[
    ("pci_relaxed_ordered_read", "relaxed_ordering_read"),
    ("mkey_order_write_after_write_ro_only", "mkc_order_write_after_write_ro_only"),
    ("mkey_order_read_after_write", "mkc_order_read_after_write"),
];

fn unknown_field(root: &str, name: &str, field: &str, layout: &'static Layout) -> String {
    let what = format!("no field `{field}` in capability type `{name}`");
    if let Some((_, prm)) = OTHER_NAMES.iter().find(|(other, _)| *other == field) {
        return format!("{what}; that name is DPDK's, the PRM name is `{root}.{name}.{prm}`");
    }
    let paths = field_paths(layout);
    // A field of an inner structure is found by its own name too.
    let last = field.rsplit('.').next().unwrap_or(field);
    if let Some(inner) = paths.iter().find(|p| p.rsplit('.').next() == Some(last)) {
        return format!("{what}; did you mean `{root}.{name}.{inner}`?");
    }
    if let Some(at) = path_of_field(last) {
        return format!("{what}; did you mean `{at}`?");
    }
    match nearest(field, paths.iter().map(String::as_str)) {
        Some(near) => format!("{what}; did you mean `{root}.{name}.{near}`?"),
        None => format!("{what}; `cx10 profile fields {name}` lists its fields"),
    }
}

/// All settable fields of a layout, by path.
pub fn field_paths(layout: &Layout) -> Vec<String> {
    let mut paths = Vec::new();
    layout.walk(&[0; AREA], |path, value| {
        if matches!(value, crate::prm::Value::Number(_)) {
            paths.push(path.to_string());
        }
    });
    paths
}

/// Full key of a field that is named without its type, if a type has it.
pub fn path_of_field(field: &str) -> Option<String> {
    TYPES.iter().find_map(|(_, name, layout)| {
        layout.field(field).filter(|f| matches!(f.kind, Kind::Scalar { .. }))?;
        Some(format!("caps.{name}.{field}"))
    })
}

/// Writes a checked value into an area.
pub fn write(area: &mut [u8; AREA], layout: &Layout, field: &str, value: &Value) -> Result<(), PathError> {
    layout.write(area, field, to_number(value).unwrap_or(0))
}
