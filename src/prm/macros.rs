//! The `layout!` macro: declares PRM structures, typed access and the runtime table from one list of fields.
//!
//! ```
//! cx10::prm::layout! {
//!     /// A made-up structure.
//!     pub struct Demo = "demo", 0x20 bytes {
//!         opcode @ 0x0 : 16;                  // bit offset : bits
//!         r#type @ 0x10 : 8;                  // PRM name is a Rust keyword
//!         port_guid @ 0x20 : 64;
//!         mac @ 0x60 : [u8; 6];               // bytes in memory order
//!         bitmask @ 0xa0 : [32; 2];           // array of numbers
//!         low @ 0xa0 : 32, alias;             // union with an earlier field
//!         spare @ 0xe0 : 1, extra "vendor";   // not in mlx5_ifc.h
//!         pas @ 0x100 : tail;                 // everything from there on
//!     }
//! }
//! let mut d = Demo::with_tail(8);
//! d.set_opcode(0x500);
//! d.set_type(7);
//! assert_eq!((d.opcode(), d.r#type(), d.pas().len()), (0x500, 7, 8));
//! assert_eq!(Demo::LAYOUT.find("type"), Some((0x10, 8)));
//! ```
//!
//! Access made for a field, by its kind:
//!
//! | declaration | getter | setter |
//! |---|---|---|
//! | `16` | `f() -> u32` | `set_f(u32)` |
//! | `33`..`64` (decimal) | `f() -> u64` | `set_f(u64)` |
//! | `Mkc` | `f() -> Mkc<&[u8]>` | `f_mut() -> Mkc<&mut [u8]>` |
//! | `[u8; 16]` | `f() -> &[u8; 16]` | `set_f(&[u8; 16])`, `f_mut() -> &mut [u8]` |
//! | `[64; 4]` | `f(i) -> Option<u64>` | `set_f(i, u64)`, out of range does nothing |
//! | `[Dest; 4]` | `f(i) -> Option<Dest<&[u8]>>` | `f_mut(i) -> Option<Dest<&mut [u8]>>` |
//! | `tail` | `f() -> &[u8]` | `f_mut() -> &mut [u8]` |
//!
//! `#![list = NAME]` before the first structure collects all that follow in a list of that name.
//!
//! Overlap is refused while compiling:
//!
//! ```compile_fail
//! cx10::prm::layout! {
//!     /// Two fields share a bit.
//!     pub struct Overlap = "overlap", 4 bytes { a @ 0x0 : 16; b @ 0xf : 1; }
//! }
//! ```
//!
//! So are overrun, numbers that straddle dwords, and an alias that aliases nothing:
//!
//! ```compile_fail
//! cx10::prm::layout! {
//!     /// The field ends after the structure.
//!     pub struct Overrun = "overrun", 4 bytes { a @ 0x10 : 8; b @ 0x20 : 1; }
//! }
//! ```
//! ```compile_fail
//! cx10::prm::layout! {
//!     /// A 16-bit number in two dwords.
//!     pub struct Straddle = "straddle", 8 bytes { a @ 0x18 : 16; }
//! }
//! ```
//! ```compile_fail
//! cx10::prm::layout! {
//!     /// Nothing to share bits with.
//!     pub struct Alias = "alias", 8 bytes { a @ 0x0 : 16; b @ 0x10 : 16, alias; }
//! }
//! ```

use super::Layout;

/// Declares PRM structures; see the [module documentation](crate::prm::macros).
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_layout {
    (#![list = $all:ident] $(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident = $prm:literal, $size:literal bytes $body:tt
    )*) => {
        /// Every layout declared here.
        pub static $all: &[&$crate::prm::Layout] = &[$($name::<::std::vec::Vec<u8>>::LAYOUT),*];
        $crate::__prm_layout! { $( $(#[$meta])* $vis struct $name = $prm, $size bytes $body )* }
    };
    ( $(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident = $prm:literal, $size:literal bytes {
            $( $field:ident @ $off:tt : $kind:tt $(, $mark:ident $($src:literal)?)* ; )*
        }
    )*) => {
    $(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $name<B = ::std::vec::Vec<u8>>(B);

        const _: () = $name::<::std::vec::Vec<u8>>::LAYOUT.check();

        #[allow(dead_code, reason = "layouts are declared whole; a program uses what it needs")]
        impl $name<::std::vec::Vec<u8>> {
            /// Bytes of the fixed part.
            pub const SIZE: usize = $size;
            /// Field table.
            pub const LAYOUT: &'static $crate::prm::Layout = &$crate::prm::Layout {
                name: $prm,
                bits: $size * 8,
                fields: &[$(
                    $crate::prm::Field::new(stringify!($field), $off, $crate::__prm_kind!($kind))
                        $(.$mark($($src)?))*
                ),*],
            };
            /// An owned structure with every bit 0 and no tail.
            pub fn zeroed() -> Self {
                Self(vec![0; $size])
            }
            /// An owned structure with every bit 0 and `tail` bytes after the fixed part.
            pub fn with_tail(tail: usize) -> Self {
                Self(vec![0; $size + tail])
            }
        }

        #[allow(missing_docs, reason = "the PRM defines fields; the table above has name, offset and width")]
        #[allow(dead_code, reason = "layouts are declared whole; a program uses the fields it needs")]
        #[allow(clippy::len_without_is_empty, reason = "a field may be called len")]
        #[allow(non_snake_case, reason = "names are the PRM's")]
        impl<B: AsRef<[u8]>> $name<B> {
            /// Takes a buffer that holds at least the fixed part.
            #[inline]
            pub fn new(bytes: B) -> Result<Self, $crate::prm::TooShort> {
                let have = bytes.as_ref().len();
                if have < $size {
                    return Err($crate::prm::TooShort { layout: $prm, need: $size, have });
                }
                Ok(Self(bytes))
            }
            /// Takes a buffer of which the caller knows the length; fields beyond its end read as 0.
            #[inline]
            pub(crate) fn wrap(bytes: B) -> Self {
                Self(bytes)
            }
            /// The whole buffer, tail included.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_ref()
            }
            /// Gives the buffer back.
            #[inline]
            pub fn into_inner(self) -> B {
                self.0
            }
            $( $crate::__prm_get! { $name $field $off $kind } )*
        }

        $crate::prm::macros::paste! {
            #[allow(missing_docs, reason = "the PRM defines fields; the table above has name, offset and width")]
            #[allow(dead_code, reason = "layouts are declared whole; a program uses the fields it needs")]
            #[allow(non_snake_case, reason = "names are the PRM's")]
            impl<B: AsRef<[u8]> + AsMut<[u8]>> $name<B> {
                /// The whole buffer, tail included.
                #[inline]
                pub fn as_bytes_mut(&mut self) -> &mut [u8] {
                    self.0.as_mut()
                }
                $( $crate::__prm_set! { $name [<set_ $field>] [<$field _mut>] $off $kind } )*
            }
        }

        impl<B: AsRef<[u8]>> ::std::fmt::Debug for $name<B> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $name::<::std::vec::Vec<u8>>::LAYOUT.format(self.0.as_ref(), f)
            }
        }
    )* };
}

/// The runtime kind of a declared field.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_kind {
    (tail) => {
        $crate::prm::Kind::Tail
    };
    ([u8; $n:tt]) => {
        $crate::prm::Kind::Bytes { len: $n }
    };
    ([$w:literal; $n:tt]) => {
        $crate::prm::Kind::Scalars { width: $w, count: $n }
    };
    ([$t:ident; $n:tt]) => {
        $crate::prm::Kind::Array { element: $t::<::std::vec::Vec<u8>>::LAYOUT, count: $n }
    };
    ($t:ident) => {
        $crate::prm::Kind::Nested($t::<::std::vec::Vec<u8>>::LAYOUT)
    };
    ($w:literal) => {
        $crate::prm::Kind::Scalar { width: $w }
    };
}

/// The integer type of a width. Widths above 32 are written in decimal so that they can be told apart here.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_int {
    (33) => {
        u64
    };
    (34) => {
        u64
    };
    (35) => {
        u64
    };
    (36) => {
        u64
    };
    (37) => {
        u64
    };
    (38) => {
        u64
    };
    (39) => {
        u64
    };
    (40) => {
        u64
    };
    (41) => {
        u64
    };
    (42) => {
        u64
    };
    (43) => {
        u64
    };
    (44) => {
        u64
    };
    (45) => {
        u64
    };
    (46) => {
        u64
    };
    (47) => {
        u64
    };
    (48) => {
        u64
    };
    (49) => {
        u64
    };
    (50) => {
        u64
    };
    (51) => {
        u64
    };
    (52) => {
        u64
    };
    (53) => {
        u64
    };
    (54) => {
        u64
    };
    (55) => {
        u64
    };
    (56) => {
        u64
    };
    (57) => {
        u64
    };
    (58) => {
        u64
    };
    (59) => {
        u64
    };
    (60) => {
        u64
    };
    (61) => {
        u64
    };
    (62) => {
        u64
    };
    (63) => {
        u64
    };
    (64) => {
        u64
    };
    ($w:literal) => {
        u32
    };
}

/// The getter of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_get {
    ($name:ident $f:ident $off:tt tail) => {
        #[inline]
        pub fn $f(&self) -> &[u8] {
            self.0.as_ref().get($off / 8..).unwrap_or(&[])
        }
    };
    ($name:ident $f:ident $off:tt [u8; $n:tt]) => {
        #[inline]
        pub fn $f(&self) -> &[u8; $n] {
            self.0.as_ref().get($off / 8..).and_then(|b| b.first_chunk()).unwrap_or(&[0; $n])
        }
    };
    ($name:ident $f:ident $off:tt [$w:tt; $n:tt]) => {
        $crate::__prm_get_array! { $f $off $w $n }
    };
    ($name:ident $f:ident $off:tt $t:ident) => {
        #[inline]
        pub fn $f(&self) -> $t<&[u8]> {
            const PART: $crate::prm::macros::Part = $crate::prm::macros::Part::new(
                $off,
                $t::<::std::vec::Vec<u8>>::LAYOUT,
                $name::<::std::vec::Vec<u8>>::SIZE,
            );
            $t::wrap(PART.of(self.0.as_ref()))
        }
    };
    ($name:ident $f:ident $off:tt $w:tt) => {
        #[inline]
        pub fn $f(&self) -> $crate::__prm_int!($w) {
            $crate::prm::bits::get(self.0.as_ref(), $off, $w) as _
        }
    };
}

/// The getter of an array.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_get_array {
    ($f:ident $off:tt $t:ident $n:tt) => {
        #[inline]
        pub fn $f(&self, index: usize) -> Option<$t<&[u8]>> {
            const PART: $crate::prm::macros::Part =
                $crate::prm::macros::Part::element($off, $t::<::std::vec::Vec<u8>>::LAYOUT);
            (index < $n).then(|| $t::wrap(PART.at(index).of(self.0.as_ref())))
        }
    };
    ($f:ident $off:tt $w:tt $n:tt) => {
        #[inline]
        pub fn $f(&self, index: usize) -> Option<$crate::__prm_int!($w)> {
            (index < $n).then(|| $crate::prm::bits::get(self.0.as_ref(), $off + index as u32 * $w, $w) as _)
        }
    };
}

/// The setter of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_set {
    ($name:ident $set:ident $m:ident $off:tt tail) => {
        #[inline]
        pub fn $m(&mut self) -> &mut [u8] {
            self.0.as_mut().get_mut($off / 8..).unwrap_or(&mut [])
        }
    };
    ($name:ident $set:ident $m:ident $off:tt [u8; $n:tt]) => {
        #[inline]
        pub fn $m(&mut self) -> &mut [u8] {
            self.0.as_mut().get_mut($off / 8..$off / 8 + $n).unwrap_or(&mut [])
        }
        #[inline]
        pub fn $set(&mut self, value: &[u8; $n]) {
            if let Some(b) = self.0.as_mut().get_mut($off / 8..).and_then(|b| b.first_chunk_mut()) {
                *b = *value;
            }
        }
    };
    ($name:ident $set:ident $m:ident $off:tt [$w:tt; $n:tt]) => {
        $crate::__prm_set_array! { $set $m $off $w $n }
    };
    ($name:ident $set:ident $m:ident $off:tt $t:ident) => {
        #[inline]
        pub fn $m(&mut self) -> $t<&mut [u8]> {
            const PART: $crate::prm::macros::Part = $crate::prm::macros::Part::new(
                $off,
                $t::<::std::vec::Vec<u8>>::LAYOUT,
                $name::<::std::vec::Vec<u8>>::SIZE,
            );
            $t::wrap(PART.of_mut(self.0.as_mut()))
        }
    };
    ($name:ident $set:ident $m:ident $off:tt $w:tt) => {
        #[inline]
        pub fn $set(&mut self, value: $crate::__prm_int!($w)) {
            $crate::prm::bits::set(self.0.as_mut(), $off, $w, value as u64);
        }
    };
}

/// The setter of an array.
#[doc(hidden)]
#[macro_export]
macro_rules! __prm_set_array {
    ($set:ident $m:ident $off:tt $t:ident $n:tt) => {
        #[inline]
        pub fn $m(&mut self, index: usize) -> Option<$t<&mut [u8]>> {
            const PART: $crate::prm::macros::Part =
                $crate::prm::macros::Part::element($off, $t::<::std::vec::Vec<u8>>::LAYOUT);
            (index < $n).then(|| $t::wrap(PART.at(index).of_mut(self.0.as_mut())))
        }
    };
    ($set:ident $m:ident $off:tt $w:tt $n:tt) => {
        #[inline]
        pub fn $set(&mut self, index: usize, value: $crate::__prm_int!($w)) {
            if index < $n {
                $crate::prm::bits::set(self.0.as_mut(), $off + index as u32 * $w, $w, value as u64);
            }
        }
    };
}

/// The part of a buffer that holds a nested layout.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Part {
    start: usize,
    size: usize,
    tail: bool,
}

impl Part {
    /// The nested layout at a bit offset of a structure of `outer` bytes. When it is last and has a tail, it reaches to
    /// the end of the buffer.
    pub const fn new(offset: usize, nested: &Layout, outer: usize) -> Self {
        let size = nested.bytes();
        Part { start: offset / 8, size, tail: nested.has_tail() && offset / 8 + size == outer }
    }

    /// The first element of an array of layouts at a bit offset.
    pub const fn element(offset: usize, nested: &Layout) -> Self {
        Part { start: offset / 8, size: nested.bytes(), tail: false }
    }

    /// The element `index` places further.
    #[inline]
    pub fn at(self, index: usize) -> Self {
        Part { start: self.start + index * self.size, ..self }
    }

    /// The part of `bytes`.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        let rest = bytes.get(self.start..).unwrap_or(&[]);
        if self.tail { rest } else { rest.get(..self.size).unwrap_or(rest) }
    }

    /// The part of `bytes`, for writing.
    #[inline]
    pub fn of_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        let rest = bytes.get_mut(self.start..).unwrap_or(&mut []);
        let end = if self.tail { rest.len() } else { self.size.min(rest.len()) };
        &mut rest[..end]
    }
}

#[doc(hidden)]
pub use pastey::paste;

#[doc(inline)]
pub use crate::__prm_layout as layout;

#[cfg(test)]
mod tests {
    use super::super::{PathError, Value};

    crate::prm::layout! {
        /// Element.
        pub struct Inner = "inner", 8 bytes {
            valid @ 0x0 : 1;
            id @ 0x8 : 24;
            r#type @ 0x20 : 32;
            list @ 0x40 : tail;
        }
        /// Everything the macro can declare.
        pub struct Outer = "outer", 0x50 bytes {
            opcode @ 0x0 : 16;
            key @ 0x20 : 64;
            gid @ 0x60 : [u8; 16];
            gid_low @ 0xc0 : 32, alias;
            mask @ 0xe0 : [64; 2];
            nibbles @ 0x160 : [4; 8];
            items @ 0x180 : [Inner; 2];
            secret @ 0x200 : 2, extra "nobody";
            last @ 0x240 : Inner;
        }
    }

    #[test]
    fn every_kind_of_field_is_read_back_as_written() {
        let mut o = Outer::with_tail(4);
        o.set_opcode(0xabcd);
        o.set_key(0x0123_4567_89ab_cdef);
        o.set_gid(&[7; 16]);
        o.set_mask(1, 5);
        o.set_mask(2, 5);
        o.set_nibbles(7, 0xf);
        o.items_mut(1).unwrap().set_id(0x123456);
        o.set_secret(2);
        o.last_mut().set_type(9);
        o.last_mut().list_mut().copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(o.opcode(), 0xabcd);
        assert_eq!(o.key(), 0x0123_4567_89ab_cdef);
        assert_eq!((o.gid(), o.gid_low()), (&[7; 16], 0x0707_0707));
        assert_eq!((o.mask(0), o.mask(1), o.mask(2)), (Some(0), Some(5), None));
        assert_eq!((o.nibbles(6), o.nibbles(7)), (Some(0), Some(15)));
        assert_eq!(o.items(1).unwrap().id(), 0x123456);
        assert!(o.items(2).is_none());
        assert_eq!(o.items(1).unwrap().as_bytes().len(), 8, "an element ends at its size");
        assert_eq!((o.secret(), o.last().r#type(), o.last().list()), (2, 9, &[1, 2, 3, 4][..]));
        assert_eq!(&o.as_bytes()[..12], &[0xab, 0xcd, 0, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    }

    #[test]
    fn a_short_buffer_is_refused_and_a_long_one_kept() {
        let e = Outer::new(&[0u8; 0x4f][..]).unwrap_err();
        assert_eq!((e.layout, e.need, e.have), ("outer", 0x50, 0x4f));
        assert_eq!(Outer::new(vec![0; 0x60]).unwrap().into_inner().len(), 0x60);
    }

    #[test]
    fn paths_reach_nested_fields_and_array_elements() {
        let l = Outer::LAYOUT;
        assert_eq!(l.find("opcode"), Some((0, 16)));
        assert_eq!(l.find("items[1].type"), Some((0x180 + 0x40 + 0x20, 32)));
        assert_eq!(l.find("mask[1]"), Some((0x120, 64)));
        assert_eq!(l.find("last.valid"), Some((0x240, 1)));
        for bad in ["", "items", "items[2].id", "items.id", "mask[x]", "opcode.x", "opcode[0]", "last", "gid", "r#type"]
        {
            assert_eq!(l.find(bad), None, "{bad}");
        }
        let mut b = [0; 0x50];
        l.write(&mut b, "items[0].id", 0xfff).unwrap();
        assert_eq!(l.read(&b, "items[0].id"), Ok(0xfff));
        assert!(matches!(l.write(&mut b, "secret", 4), Err(PathError::DoesNotFit { width: 2, value: 4, .. })));
        assert!(matches!(l.read(&b, "sekret"), Err(PathError::NoSuchField { .. })));
        assert!(matches!(l.read(&b[1..], "secret"), Err(PathError::TooShort(_))));
    }

    #[test]
    fn a_walk_visits_every_field_and_stops_at_the_end_of_the_buffer() {
        let mut o = Outer::with_tail(2);
        o.last_mut().set_id(3);
        let mut seen = Vec::new();
        Outer::LAYOUT.walk(o.as_bytes(), |p, v| seen.push((p.to_owned(), v)));
        assert_eq!(seen.len(), 1 + 1 + 1 + 1 + 2 + 8 + 2 * 3 + 1 + 4);
        assert!(seen.contains(&("last.id".into(), Value::Number(3))));
        assert!(seen.contains(&("last.list".into(), Value::Bytes(&[0, 0]))));
        let mut count = 0;
        Outer::LAYOUT.walk(&[0; 14], |_, _| count += 1);
        assert_eq!(count, 2, "opcode and key");
        assert_eq!(format!("{o:?}"), "outer last.id=0x3");
    }
}
