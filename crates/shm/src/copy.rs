//! Copies between private memory and memory that a peer may be writing at the same time.
//!
//! Such a copy is an intended data race: the bytes may be any mixture of old and new, and the
//! caller checks the private copy. Rust's memory model does not define such races, so the bytes are
//! moved by volatile accesses or by assembly, about which the compiler cannot assume anything: it
//! can neither invent a second load nor turn the copy into a reference. A byte near an end may be
//! loaded twice.
//!
//! Private memory is copied by the same code ([`slice()`]): the C library's `memcpy` and the
//! processor's string instruction (`rep movsb`) are up to thirty times slower than vector moves on
//! some processors where the target lies a few bytes ahead of the source within a page. The size of
//! the vectors is chosen once per process ([`Routine`]). `cargo xtask bench copies` measures each
//! routine. Not here: bounds; see [`crate::Span`].

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use portable as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub use processor::Routine;

/// The length from which a copy uses the processor's best routine; below it the choice of a routine
/// costs more than the routine saves.
const BULK_MIN: usize = 256;

/// Copies `len` bytes from `source` to `target`, either of which a peer may be writing.
///
/// # Safety
/// Both ranges must be mapped, `target` writable, and they must not overlap.
#[inline]
pub unsafe fn racy(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract; the lengths are what each callee wants.
    unsafe {
        match len {
            BULK_MIN.. => processor::bulk(source, target, len),
            16.. => processor::blocks(source, target, len),
            _ => few(source, target, len),
        }
    }
}

/// Copies like [`racy`] to memory that another processor accessed last: the target's cache lines
/// are prefetched for writing a little ahead of the copy. Between processors that saves a twentieth
/// of the time; if the target is in this processor's caches it costs a tenth.
///
/// # Safety
/// As for [`racy`].
#[inline]
pub unsafe fn racy_to_far(source: *const u8, target: *mut u8, len: usize) {
    const AHEAD: usize = 2048;
    let mut at = 0;
    while at < len {
        let part = AHEAD.min(len - at);
        // The first part is prefetched too, so that its lines arrive together.
        let from = if at == 0 { 0 } else { at + AHEAD };
        for line in (from..(at + 2 * AHEAD).min(len)).step_by(64) {
            // SAFETY: within the target.
            processor::prefetch_for_writing(unsafe { target.add(line) });
        }
        // SAFETY: the caller's contract; at + part <= len.
        unsafe { racy(source.add(at), target.add(at), part) };
        at += part;
    }
}

/// Copies the first bytes of `source` to `target`, both private memory, and returns their number:
/// the shorter length.
#[inline]
pub fn slice(source: &[u8], target: &mut [u8]) -> usize {
    let len = source.len().min(target.len());
    // SAFETY: both have `len` bytes; a mutable slice overlaps nothing.
    unsafe { racy(source.as_ptr(), target.as_mut_ptr(), len) };
    len
}

/// Copies with a given routine, for tests and benchmarks.
///
/// # Safety
/// As for [`racy`]; the processor must have `routine` ([`Routine::is_there`]).
#[doc(hidden)]
pub unsafe fn racy_by(routine: Routine, source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if len < BULK_MIN {
            racy(source, target, len);
        } else {
            processor::bulk_by(routine, source, target, len);
        }
    }
}

/// Copies fewer than 16 bytes: by the processor's routine for words if there is one, else by
/// aligned words or bytes.
#[inline]
unsafe fn few(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= 4 {
        // SAFETY: the caller's contract; 4 to 15 bytes.
        return unsafe { processor::words(source, target, len) };
    }
    // SAFETY: the caller's contract.
    unsafe { word_move(source, target, len) }
}

/// Copies on any processor: by words if both sides are aligned, by bytes otherwise.
unsafe fn word_move(source: *const u8, target: *mut u8, len: usize) {
    let mut at = 0;
    if (source as usize | target as usize) & 7 == 0 {
        while at + 8 <= len {
            // SAFETY: at + 8 <= len, both aligned to 8.
            unsafe {
                let word = source.add(at).cast::<u64>().read_volatile();
                target.add(at).cast::<u64>().write_volatile(word);
            }
            at += 8;
        }
    }
    while at < len {
        // SAFETY: at < len.
        unsafe { target.add(at).write_volatile(source.add(at).read_volatile()) };
        at += 1;
    }
}

#[cfg(test)]
#[path = "copy/tests.rs"]
mod tests;
