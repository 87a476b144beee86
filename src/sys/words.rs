//! Copies in naturally aligned words, of which none is ever torn.

use super::BULK;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The largest naturally aligned power of two, at most eight, that fits at `addr` in `left` bytes.
pub(super) fn word_at(addr: usize, left: usize) -> usize {
    let align = 1 << (addr | 8).trailing_zeros();
    let fit = if left >= 8 { 8 } else { 1 << left.ilog2() };
    align.min(fit)
}

/// The largest naturally aligned power of two, at most eight, that ends at `end` and has at most `len` bytes; 0 if
/// `len` is.
pub(super) fn word_before(end: usize, len: usize) -> usize {
    if len == 0 { 0 } else { word_at(end, len) }
}

/// How `len` bytes from `at` on fall apart: what comes before the first address that is a multiple of eight, whole words,
/// and the rest.
#[inline]
pub(super) fn parts(at: *mut u8, len: usize) -> (usize, usize) {
    let head = (at as usize).wrapping_neg() % 8;
    let head = head.min(len);
    (head, (len - head) & !7)
}

/// Loads `dst.len()` bytes in naturally aligned words.
///
/// # Safety
/// `at` points to that many mapped bytes.
#[inline]
pub(super) unsafe fn load_words(at: *mut u8, dst: &mut [u8]) {
    if (at as usize | dst.len()) % 8 == 0 {
        for (i, word) in dst.chunks_exact_mut(8).enumerate() {
            // SAFETY: word `i` is mapped and aligned.
            let value = unsafe { AtomicU64::from_ptr(at.add(8 * i).cast()) }.load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        return;
    }
    let (head, body) = parts(at, dst.len());
    let (head, rest) = dst.split_at_mut(head);
    let (body, tail) = rest.split_at_mut(body);
    // SAFETY: the three parts follow each other and are mapped; the second begins at a multiple of eight.
    unsafe {
        load_odd(at, head);
        let at = at.add(head.len());
        for (i, word) in body.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&AtomicU64::from_ptr(at.add(8 * i).cast()).load(Ordering::Relaxed).to_ne_bytes());
        }
        load_odd(at.add(body.len()), tail);
    }
}

/// Loads fewer than eight bytes in naturally aligned words.
///
/// # Safety
/// As for [`load_words`].
#[inline]
pub(super) unsafe fn load_odd(at: *mut u8, dst: &mut [u8]) {
    let mut done = 0;
    while done < dst.len() {
        // SAFETY: `done < dst.len()` bytes are mapped from `at` on.
        let from = unsafe { at.add(done) };
        let step = word_at(from as usize, dst.len() - done);
        let to = &mut dst[done..done + step];
        // SAFETY: `word_at` chose a size that fits and to which `from` is aligned.
        unsafe {
            match step {
                4 => to.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                2 => to.copy_from_slice(&AtomicU16::from_ptr(from.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                _ => to[0] = AtomicU8::from_ptr(from).load(Ordering::Relaxed),
            }
        }
        done += step;
    }
}

/// Stores `src` in naturally aligned words, lowest address first.
///
/// # Safety
/// `at` points to `src.len()` bytes mapped for writing.
#[inline]
pub(super) unsafe fn store_words(at: *mut u8, src: &[u8]) {
    if (at as usize | src.len()) % 8 == 0 {
        for (i, word) in src.chunks_exact(8).enumerate() {
            // SAFETY: word `i` is mapped for writing and aligned.
            let to = unsafe { AtomicU64::from_ptr(at.add(8 * i).cast()) };
            to.store(u64::from_ne_bytes(array(word)), Ordering::Relaxed);
        }
        return;
    }
    let (head, body) = parts(at, src.len());
    let (head, rest) = src.split_at(head);
    let (body, tail) = rest.split_at(body);
    // SAFETY: the three parts follow each other and are mapped for writing; the second begins at a multiple of eight.
    unsafe {
        store_odd(at, head);
        let at = at.add(head.len());
        for (i, word) in body.chunks_exact(8).enumerate() {
            AtomicU64::from_ptr(at.add(8 * i).cast()).store(u64::from_ne_bytes(array(word)), Ordering::Relaxed);
        }
        store_odd(at.add(body.len()), tail);
    }
}

/// Stores `src`, and its last byte last: the naturally aligned word that ends with it is stored with release ordering
/// after all bytes before it.
///
/// # Safety
/// `at` points to `src.len()` bytes mapped for writing.
#[inline]
pub(super) unsafe fn store_release(at: *mut u8, src: &[u8]) {
    let tail = word_before(at as usize + src.len(), src.len());
    let (body, last) = src.split_at(src.len() - tail);
    // SAFETY: the caller's promise; `word_before` chose a size that fits and to which the address of the last word is
    // aligned.
    unsafe {
        if body.len() >= BULK {
            ptr::copy_nonoverlapping(body.as_ptr(), at, body.len());
        } else {
            store_words(at, body);
        }
        let at = at.add(body.len());
        match tail {
            8 => AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(array(last)), Ordering::Release),
            4 => AtomicU32::from_ptr(at.cast()).store(u32::from_ne_bytes(array(last)), Ordering::Release),
            2 => AtomicU16::from_ptr(at.cast()).store(u16::from_ne_bytes(array(last)), Ordering::Release),
            1 => AtomicU8::from_ptr(at).store(last[0], Ordering::Release),
            _ => {}
        }
    }
}

/// Stores fewer than eight bytes in naturally aligned words, lowest address first.
///
/// # Safety
/// As for [`store_words`].
#[inline]
pub(super) unsafe fn store_odd(at: *mut u8, src: &[u8]) {
    let mut done = 0;
    while done < src.len() {
        // SAFETY: `done < src.len()` bytes are mapped from `at` on.
        let to = unsafe { at.add(done) };
        let step = word_at(to as usize, src.len() - done);
        let from = &src[done..done + step];
        // SAFETY: `word_at` chose a size that fits and to which `to` is aligned.
        unsafe {
            match step {
                4 => AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes(array(from)), Ordering::Relaxed),
                2 => AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes(array(from)), Ordering::Relaxed),
                _ => AtomicU8::from_ptr(to).store(from[0], Ordering::Relaxed),
            }
        }
        done += step;
    }
}

pub(super) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}
