//! Plain values: types of which every bit pattern is valid and which have no padding.
//!
//! Only these are moved as memory. Not here: booleans and enumerations, which are checked.

use sojourn_shm::copy::{racy, slice};

mod sealed {
    pub trait Sealed {}
}

/// A type whose memory and wire bytes are the same thing.
///
/// # Safety
/// Every bit pattern is a valid value and there is no padding. Sealed: numbers and arrays of them.
pub unsafe trait Pod:
    Copy + Default + PartialEq + Send + Sync + sealed::Sealed + 'static
{
    /// Nothing but zero bits.
    const ZERO: Self;
}

macro_rules! pods {
    ($($t:ty = $zero:expr),*) => {$(
        impl sealed::Sealed for $t {}
        // SAFETY: a number: no padding, every bit pattern valid.
        unsafe impl Pod for $t {
            const ZERO: Self = $zero;
        }
    )*};
}

pods!(u8 = 0, i8 = 0, u16 = 0, i16 = 0, u32 = 0, i32 = 0, u64 = 0, i64 = 0, f32 = 0.0, f64 = 0.0);

/// Returns the bytes of plain values.
#[inline]
#[must_use]
pub fn bytes_of<T: Pod>(values: &[T]) -> &[u8] {
    // SAFETY: Pod has no padding, so every byte is initialised; same extent, alignment 1.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the bytes of plain values, to be overwritten.
#[inline]
pub(super) fn bytes_of_mut<T: Pod>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: Pod has no padding, same extent, alignment 1; any bytes written make valid values.
    unsafe { core::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Returns the value at byte `at`; `None` if the bytes end before.
#[inline]
#[must_use]
pub(super) fn load<T: Pod>(bytes: &[u8], at: usize) -> Option<T> {
    let part = bytes.get(at..)?.get(..size_of::<T>())?;
    // SAFETY: the slice has the size of T, every bit pattern is a T, unaligned read.
    Some(unsafe { part.as_ptr().cast::<T>().read_unaligned() })
}

/// Returns `bytes` seen as values, if they are aligned and there is a whole number of them.
#[inline]
#[must_use]
pub(super) fn cast<T: Pod>(bytes: &[u8]) -> Option<&[T]> {
    let start = bytes.as_ptr().cast::<T>();
    if !start.is_aligned() || !bytes.len().is_multiple_of(size_of::<T>()) {
        return None;
    }
    // SAFETY: aligned, as many values as there are bytes for, every bit pattern is a T.
    Some(unsafe { core::slice::from_raw_parts(start, bytes.len() / size_of::<T>()) })
}

/// Copies `bytes` into new values; bytes after the last whole value are left out.
#[must_use]
pub(super) fn to_vec<T: Pod>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len() / size_of::<T>();
    let mut values = Vec::<T>::with_capacity(count);
    // SAFETY: capacity for `count` values; all their bytes are written before the length is set.
    unsafe {
        let target = values.as_mut_ptr().cast::<u8>();
        racy(bytes.as_ptr(), target, count * size_of::<T>());
        values.set_len(count);
    }
    values
}

/// Appends `values`: `Vec::extend_from_slice`, with our own copy.
pub fn extend<T: Pod>(target: &mut Vec<T>, values: &[T]) {
    target.reserve(values.len());
    let filled = target.len();
    // SAFETY: room for as many more, all of whose bytes are written before the length is set; what
    // a vector owns overlaps no other reference.
    unsafe {
        let bytes = bytes_of(values);
        racy(bytes.as_ptr(), target.as_mut_ptr().add(filled).cast(), bytes.len());
        target.set_len(filled + values.len());
    }
}

/// Overwrites the first of `target` with `values`, as many as both have: `copy_from_slice`, with
/// our own copy.
pub fn overwrite<T: Pod>(target: &mut [T], values: &[T]) {
    slice(bytes_of(values), bytes_of_mut(target));
}

/// Returns two 32-bit words in the order of memory, as one.
#[inline(always)]
#[must_use]
pub const fn pair(first: u32, second: u32) -> u64 {
    if cfg!(target_endian = "big") {
        (first as u64) << 32 | second as u64
    } else {
        first as u64 | (second as u64) << 32
    }
}

/// Two 32-bit words, the one at the lower address first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words(pub u32, pub u32);

/// Returns the words of [`pair`].
#[inline(always)]
#[must_use]
pub const fn split(both: u64) -> Words {
    let (low, high) = (both as u32, (both >> 32) as u32);
    if cfg!(target_endian = "big") { Words(high, low) } else { Words(low, high) }
}
