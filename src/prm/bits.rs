//! Bit access to big-endian dword structures, as `mlx5_ifc.h` counts bits: bit 0 is the most significant bit of the
//! first byte.
//!
//! Reads past the end of the buffer give 0 and writes past the end do nothing. The layout types check their length once
//! when they are made, so this only matters for a buffer whose `AsRef` changes its mind.

/// All-ones mask of `width` bits, `width` at most 64.
pub const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Reads `width` (at most 64) bits that lie in at most two consecutive dwords.
#[inline]
pub fn get(bytes: &[u8], offset: u32, width: u32) -> u64 {
    if offset % 32 + width <= 32 {
        let dword = load32(bytes, offset / 32);
        (u64::from(dword) >> (32 - offset % 32 - width)) & mask(width)
    } else {
        let pair = (u64::from(load32(bytes, offset / 32)) << 32) | u64::from(load32(bytes, offset / 32 + 1));
        (pair >> (64 - offset % 32 - width)) & mask(width)
    }
}

/// Writes `width` (at most 64) bits that lie in at most two consecutive dwords; bits of `value` beyond `width` are lost.
#[inline]
pub fn set(bytes: &mut [u8], offset: u32, width: u32, value: u64) {
    debug_assert!(value & !mask(width) == 0, "value {value:#x} does not fit in {width} bits");
    let value = value & mask(width);
    let dword = offset / 32;
    if offset % 32 + width <= 32 {
        let shift = 32 - offset % 32 - width;
        let old = load32(bytes, dword);
        // Both are below 2^32: width and shift together are at most 32.
        let keep = old & !((mask(width) << shift) as u32);
        store32(bytes, dword, keep | (value << shift) as u32);
    } else {
        let shift = 64 - offset % 32 - width;
        let old = (u64::from(load32(bytes, dword)) << 32) | u64::from(load32(bytes, dword + 1));
        let new = (old & !(mask(width) << shift)) | (value << shift);
        store32(bytes, dword, (new >> 32) as u32);
        store32(bytes, dword + 1, new as u32);
    }
}

#[inline]
fn load32(bytes: &[u8], index: u32) -> u32 {
    bytes.get(index as usize * 4..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_be_bytes(*b))
}

#[inline]
fn store32(bytes: &mut [u8], index: u32, value: u32) {
    if let Some(b) = bytes.get_mut(index as usize * 4..).and_then(|b| b.first_chunk_mut::<4>()) {
        *b = value.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_zero_is_the_top_bit_of_the_first_byte() {
        let b = [0x80, 0, 0, 1, 0x12, 0x34, 0x56, 0x78];
        assert_eq!(get(&b, 0, 1), 1);
        assert_eq!(get(&b, 31, 1), 1);
        assert_eq!(get(&b, 0x20, 16), 0x1234);
        assert_eq!(get(&b, 0x24, 8), 0x23);
        assert_eq!(get(&b, 0, 64), 0x8000_0001_1234_5678);
        assert_eq!(get(&b, 24, 40), 0x01_1234_5678);
    }

    #[test]
    fn a_write_leaves_its_neighbours_alone() {
        for width in 1..=32u32 {
            for start in 0..=(32 - width) {
                let mut b = [0xa5u8; 12];
                set(&mut b, 32 + start, width, 0x5a5a_5a5a & mask(width));
                assert_eq!(get(&b, 32 + start, width), 0x5a5a_5a5a & mask(width));
                let mut rest = b;
                set(&mut rest, 32 + start, width, get(&[0xa5; 12], 32 + start, width));
                assert_eq!(rest, [0xa5; 12], "width {width} start {start}");
            }
        }
        let mut b = [0xff; 16];
        set(&mut b, 48, 48, 0);
        assert_eq!(b, [255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    }

    #[test]
    fn beyond_the_end_reads_zero_and_writes_nothing() {
        let mut b = [0xff; 6];
        assert_eq!(get(&b, 32, 8), 0);
        set(&mut b, 32, 8, 1);
        assert_eq!(b, [0xff; 6]);
        assert_eq!(get(&b, u32::MAX - 31, 32), 0);
    }
}
