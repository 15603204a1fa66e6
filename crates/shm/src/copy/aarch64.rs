//! Copies by the vectors that every 64-bit ARM processor has.
//!
//! Whole blocks go to aligned addresses of the target; the bytes at both ends are loaded before the
//! blocks and stored after them, and overlap them. Not here: the choice of the routine (`copy`).

use core::arch::asm;

/// A copy routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    /// Pairs of vectors of sixteen bytes.
    Neon,
}

impl Routine {
    /// All routines of this architecture.
    pub const ALL: [Self; 1] = [Self::Neon];

    /// Returns the best routine for this processor.
    #[inline(always)]
    pub fn here() -> Self {
        Self::Neon
    }

    /// Returns true if the processor supports the routine.
    pub fn is_there(self) -> bool {
        true
    }
}

/// Copies `len` bytes, at least [`super::BULK_MIN`].
///
/// # Safety
/// As for [`super::racy`].
#[inline(never)]
pub(super) unsafe fn bulk(source: *const u8, target: *mut u8, len: usize) {
    // The first vector ends at or behind the first aligned address of the target.
    let skip = 16 - (target as usize & 15);
    let last = len - 64;
    // SAFETY: loads within `len` bytes at `source`, stores within as many at `target`: the loop
    // ends when no whole block is left before the last four vectors.
    unsafe {
        asm!(
            "ldr q16, [{source}]",
            "ldp q20, q21, [{last_source}]",
            "ldp q22, q23, [{last_source}, #32]",
            "cmp {to}, {last_target}",
            "b.hs 3f",
            "2:",
            "ldp q0, q1, [{from}]",
            "ldp q2, q3, [{from}, #32]",
            "add {from}, {from}, #64",
            "stp q0, q1, [{to}]",
            "stp q2, q3, [{to}, #32]",
            "add {to}, {to}, #64",
            "cmp {to}, {last_target}",
            "b.lo 2b",
            "3:",
            "str q16, [{target}]",
            "stp q20, q21, [{last_target}]",
            "stp q22, q23, [{last_target}, #32]",
            source = in(reg) source,
            target = in(reg) target,
            last_source = in(reg) source.add(last),
            last_target = in(reg) target.add(last),
            from = inout(reg) source.add(skip) => _,
            to = inout(reg) target.add(skip) => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v16") _,
            out("v20") _, out("v21") _, out("v22") _, out("v23") _,
            options(nostack)
        );
    }
}

/// Copies like [`bulk`], since there is only one routine.
///
/// # Safety
/// As for [`super::racy`].
pub(super) unsafe fn bulk_by(_: Routine, source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { bulk(source, target, len) }
}

/// Copies 16 bytes or more, sixteen at a time; the last block may overlap the one before.
///
/// # Safety
/// As for [`super::racy`].
#[inline]
pub(super) unsafe fn blocks(source: *const u8, target: *mut u8, len: usize) {
    let last = len - 16;
    let mut at = 0;
    // SAFETY: at + 16 <= len, and last + 16 == len.
    unsafe {
        while at < last {
            block(source.add(at), target.add(at));
            at += 16;
        }
        block(source.add(last), target.add(last));
    }
}

/// # Safety
/// Sixteen bytes on either side, mapped; no alignment needed.
#[inline(always)]
unsafe fn block(source: *const u8, target: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ldr {block:q}, [{source}]",
            "str {block:q}, [{target}]",
            block = out(vreg) _,
            source = in(reg) source,
            target = in(reg) target,
            options(nostack, preserves_flags)
        );
    }
}

/// Prefetches the cache line of `line` for writing; affects only caches.
#[inline(always)]
pub(super) fn prefetch_for_writing(line: *mut u8) {
    // SAFETY: a prefetch does not fault, wherever it points.
    unsafe {
        asm!("prfm pstl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags));
    }
}
