//! The runtime side of a declared layout: its field table, and access by path.
//!
//! A path is PRM field names joined by dots, with `[i]` after an array: `memory_key_mkey_entry.relaxed_ordering_write`,
//! `event_bitmask[0]`. The decoded trace, capability overrides and the comparison with `mlx5_ifc.h` all use this table.

use super::bits;
use std::fmt::Write as _;

/// A structure of the PRM: its name, fixed size and fields in order of their offsets.
#[derive(Debug)]
pub struct Layout {
    /// Name in `mlx5_ifc.h`, without `mlx5_ifc_` and `_bits`, or the name that the module's head explains.
    pub name: &'static str,
    /// Fixed size in bits; a tail follows it.
    pub bits: u32,
    /// All declared fields. Reserved space is not declared.
    pub fields: &'static [Field],
}

/// One field of a [`Layout`].
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// PRM name.
    pub name: &'static str,
    /// Bit offset from the start of the structure; bit 0 is the top bit of the first byte.
    pub offset: u32,
    /// What is there.
    pub kind: Kind,
    /// Shares its bits with an earlier field (a union in the PRM).
    pub alias: bool,
    /// Where the field is documented when `mlx5_ifc.h` shows reserved space there.
    pub extra: Option<&'static str>,
}

/// What a [`Field`] holds.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// An unsigned number of at most 64 bits.
    Scalar {
        /// Bits.
        width: u32,
    },
    /// Bytes in memory order (addresses, strings, opaque areas).
    Bytes {
        /// Length in bytes.
        len: u32,
    },
    /// Another layout.
    Nested(&'static Layout),
    /// `count` numbers of `width` bits, packed.
    Scalars {
        /// Bits of one element.
        width: u32,
        /// Elements.
        count: u32,
    },
    /// `count` layouts, packed.
    Array {
        /// Layout of one element.
        element: &'static Layout,
        /// Elements.
        count: u32,
    },
    /// Everything from the field's offset to the end of the buffer.
    Tail,
}

impl Kind {
    /// Fixed size in bits; 0 for a tail.
    pub const fn bits(&self) -> u32 {
        match self {
            Kind::Scalar { width } => *width,
            Kind::Bytes { len } => *len * 8,
            Kind::Nested(l) => l.bits,
            Kind::Scalars { width, count } => *width * *count,
            Kind::Array { element, count } => element.bits * *count,
            Kind::Tail => 0,
        }
    }
}

/// A value that [`Layout::walk`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A scalar of this many bits.
    Number(u64),
    /// A byte array or tail.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// No bit is set.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Number(n) => *n == 0,
            Value::Bytes(b) => b.iter().all(|x| *x == 0),
        }
    }
}

/// A buffer is shorter than the fixed part of its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{layout} needs {need} bytes, {have} given")]
pub struct TooShort {
    /// PRM name of the layout.
    pub layout: &'static str,
    /// Bytes of the fixed part.
    pub need: usize,
    /// Bytes given.
    pub have: usize,
}

/// Access by path failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No such field, or the path ends at something that is not a number.
    #[error("{layout} has no number at {path:?}")]
    NoSuchField {
        /// PRM name of the layout.
        layout: &'static str,
        /// The path asked for.
        path: String,
    },
    /// The value needs more bits than the field has.
    #[error("{value:#x} does not fit in the {width} bits of {path:?}")]
    DoesNotFit {
        /// The path asked for.
        path: String,
        /// The value given.
        value: u64,
        /// Bits of the field.
        width: u32,
    },
    /// The buffer is shorter than the layout.
    #[error(transparent)]
    TooShort(#[from] TooShort),
}

impl Field {
    /// A field; a leading `r#` of `name` (a Rust keyword as PRM name) is dropped.
    pub const fn new(name: &'static str, offset: u32, kind: Kind) -> Self {
        Field { name: bare(name), offset, kind, alias: false, extra: None }
    }

    /// Marks a member of a union whose bits an earlier field has already.
    pub const fn alias(mut self) -> Self {
        self.alias = true;
        self
    }

    /// Marks a field that `mlx5_ifc.h` does not have, and names who documents it.
    pub const fn extra(mut self, source: &'static str) -> Self {
        self.extra = Some(source);
        self
    }

    /// First bit after the field.
    pub const fn end(&self) -> u32 {
        self.offset + self.kind.bits()
    }
}

const fn bare(name: &'static str) -> &'static str {
    let bytes = name.as_bytes();
    if bytes.len() > 2 && bytes[0] == b'r' && bytes[1] == b'#' {
        if let Ok(name) = std::str::from_utf8(bytes.split_at(2).1) {
            return name;
        }
    }
    name
}

impl Layout {
    /// Size of the fixed part in bytes.
    pub const fn bytes(&self) -> usize {
        (self.bits / 8) as usize
    }

    /// The last field is a tail, directly or in the nested layout that ends this one.
    pub const fn has_tail(&self) -> bool {
        let mut i = 0;
        while i < self.fields.len() {
            match self.fields[i].kind {
                Kind::Tail => return true,
                Kind::Nested(l) if self.fields[i].end() == self.bits && l.has_tail() => {
                    return true;
                }
                _ => {}
            }
            i += 1;
        }
        false
    }

    /// Panics (at compile time, from the declaring macro) when the declaration is not sound.
    pub const fn check(&self) {
        assert!(self.bits % 32 == 0, "a layout is a whole number of dwords");
        let mut end = 0;
        let mut i = 0;
        while i < self.fields.len() {
            let f = &self.fields[i];
            if f.alias {
                let tail = matches!(f.kind, Kind::Tail) && f.offset == end;
                assert!(f.offset < end || tail, "an alias shares no bit with an earlier field");
            } else {
                assert!(f.offset >= end, "fields overlap or are not in order of their offsets");
            }
            if f.end() > end {
                end = f.end();
            }
            assert!(f.end() <= self.bits, "a field reaches beyond the layout");
            match f.kind {
                Kind::Scalar { width } => check_scalar(f.offset, width),
                Kind::Scalars { width, count } => {
                    let mut n = 0;
                    while n < count {
                        check_scalar(f.offset + n * width, width);
                        n += 1;
                    }
                }
                Kind::Bytes { .. } => assert!(f.offset % 8 == 0, "bytes start at a byte"),
                Kind::Nested(_) | Kind::Array { .. } => {
                    assert!(f.offset % 32 == 0, "a nested layout starts at a dword")
                }
                Kind::Tail => {
                    assert!(f.offset % 8 == 0, "a tail starts at a byte");
                    assert!(f.alias || i + 1 == self.fields.len() || self.fields[i + 1].alias, "a tail is last");
                }
            }
            i += 1;
        }
    }

    /// The field of that name in this layout itself.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// Bit offset and kind of what a path names, with array elements resolved.
    pub fn locate(&self, path: &str) -> Option<(u32, Kind)> {
        let (head, rest) = match path.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (path, None),
        };
        let (name, index) = match head.strip_suffix(']').and_then(|h| h.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<u32>().ok()?)),
            None => (head, None),
        };
        let f = self.field(name)?;
        let (offset, kind) = match (f.kind, index) {
            (Kind::Scalars { width, count }, Some(i)) if i < count => (f.offset + i * width, Kind::Scalar { width }),
            (Kind::Array { element, count }, Some(i)) if i < count => {
                (f.offset + i * element.bits, Kind::Nested(element))
            }
            (kind, None) => (f.offset, kind),
            _ => return None,
        };
        match (rest, kind) {
            (None, kind) => Some((offset, kind)),
            (Some(rest), Kind::Nested(l)) => l.locate(rest).map(|(o, k)| (offset + o, k)),
            _ => None,
        }
    }

    /// Bit offset and width of the number that a path names.
    pub fn find(&self, path: &str) -> Option<(u32, u32)> {
        match self.locate(path)? {
            (offset, Kind::Scalar { width }) => Some((offset, width)),
            _ => None,
        }
    }

    fn number(&self, bytes: &[u8], path: &str) -> Result<(u32, u32), PathError> {
        if bytes.len() < self.bytes() {
            return Err(TooShort { layout: self.name, need: self.bytes(), have: bytes.len() }.into());
        }
        self.find(path).ok_or_else(|| PathError::NoSuchField { layout: self.name, path: path.to_owned() })
    }

    /// Reads the number that a path names.
    pub fn read(&self, bytes: &[u8], path: &str) -> Result<u64, PathError> {
        let (offset, width) = self.number(bytes, path)?;
        Ok(bits::get(bytes, offset, width))
    }

    /// Writes the number that a path names; a value that does not fit is refused.
    pub fn write(&self, bytes: &mut [u8], path: &str, value: u64) -> Result<(), PathError> {
        let (offset, width) = self.number(bytes, path)?;
        if value & !bits::mask(width) != 0 {
            return Err(PathError::DoesNotFit { path: path.to_owned(), value, width });
        }
        bits::set(bytes, offset, width, value);
        Ok(())
    }

    /// Calls `f` with the path and value of every number, byte array and tail, in order. Stops at the end of `bytes`:
    /// fields that do not lie in the buffer completely are left out. Aliases are visited too.
    pub fn walk<'a>(&self, bytes: &'a [u8], mut f: impl FnMut(&str, Value<'a>)) {
        let mut path = String::new();
        self.walk_at(bytes, &mut path, &mut f);
    }

    fn walk_at<'a>(&self, bytes: &'a [u8], path: &mut String, f: &mut dyn FnMut(&str, Value<'a>)) {
        let mark = path.len();
        for field in self.fields {
            path.truncate(mark);
            if mark != 0 {
                path.push('.');
            }
            path.push_str(field.name);
            let named = path.len();
            let start = (field.offset / 8) as usize;
            let whole = bytes.len() as u64 * 8;
            let holds = |offset: u32, width: u32| u64::from(offset) + u64::from(width) <= whole;
            match field.kind {
                Kind::Scalar { width } if holds(field.offset, width) => {
                    f(path, Value::Number(bits::get(bytes, field.offset, width)));
                }
                Kind::Bytes { len } => {
                    if let Some(b) = bytes.get(start..start + len as usize) {
                        f(path, Value::Bytes(b));
                    }
                }
                Kind::Nested(l) => l.walk_at(part(bytes, start, l, field.end() == self.bits), path, f),
                Kind::Scalars { width, count } => {
                    for i in 0..count {
                        let offset = field.offset + i * width;
                        if !holds(offset, width) {
                            break;
                        }
                        path.truncate(named);
                        let _ = write!(path, "[{i}]");
                        f(path, Value::Number(bits::get(bytes, offset, width)));
                    }
                }
                Kind::Array { element, count } => {
                    for i in 0..count {
                        path.truncate(named);
                        let _ = write!(path, "[{i}]");
                        element.walk_at(part(bytes, start + i as usize * element.bytes(), element, false), path, f);
                    }
                }
                Kind::Tail => {
                    if let Some(b) = bytes.get(start..).filter(|b| !b.is_empty()) {
                        f(path, Value::Bytes(b));
                    }
                }
                Kind::Scalar { .. } => {}
            }
        }
        path.truncate(mark);
    }

    /// Writes `field=value` for every field that is not zero.
    pub fn format(&self, bytes: &[u8], out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let mut result = write!(out, "{}", self.name);
        self.walk(bytes, |path, value| {
            if result.is_err() || value.is_zero() {
                return;
            }
            result = match value {
                Value::Number(n) => write!(out, " {path}={n:#x}"),
                Value::Bytes(b) => {
                    let shown = b.iter().take(32).fold(String::new(), |mut s, x| {
                        let _ = write!(s, "{x:02x}");
                        s
                    });
                    write!(out, " {path}={shown}{}", if b.len() > 32 { "…" } else { "" })
                }
            };
        });
        result
    }
}

/// The part of `bytes` that a nested layout sees: its fixed size, or to the end when its tail may follow.
fn part<'a>(bytes: &'a [u8], start: usize, layout: &Layout, last: bool) -> &'a [u8] {
    let rest = bytes.get(start..).unwrap_or(&[]);
    if last && layout.has_tail() { rest } else { rest.get(..layout.bytes()).unwrap_or(rest) }
}

const fn check_scalar(offset: u32, width: u32) {
    assert!(width >= 1 && width <= 64, "a number has 1 to 64 bits");
    if width <= 32 {
        assert!(offset % 32 + width <= 32, "a number of up to 32 bits lies in one dword");
    } else {
        assert!(offset % 32 + width <= 64, "a number of more than 32 bits lies in two dwords");
    }
}
