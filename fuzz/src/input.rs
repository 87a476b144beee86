//! Reading choices from the bytes of an input. What is not there reads as 0, so that every prefix of an input is an
//! input, and a short one says little.

use arbitrary::Unstructured;

/// The bytes of an input.
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input(Unstructured::new(data))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0 | 1 => 0,
            2..=256 => usize::from(self.u8()) % end,
            _ => usize::from(self.u16()) % end,
        }
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True with a chance of one in `n`.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.u8() % n == n - 1
    }

    /// Up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.len())).unwrap_or_default()
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// A number of at most `width` bits: small, a power of two, all ones, or anything.
    pub fn number(&mut self, width: u32) -> u64 {
        let mask = u64::MAX >> (64 - width.clamp(1, 64));
        let value = match self.u8() % 8 {
            0 => 1,
            1 => mask,
            2 => mask - 1,
            3 => 1 << (self.u8() % 64),
            4 => u64::from(self.u8() % 32),
            5 => u64::from(self.u16()),
            6 => u64::from(self.u32()),
            _ => self.u64(),
        };
        value & mask
    }
}
