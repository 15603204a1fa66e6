//! Copies by the vectors that an x86-64 processor has.
//!
//! Whole blocks of longer copies go to aligned addresses of the target; the bytes at both ends are
//! loaded before the blocks and stored after them, and overlap them. A load may have to wait for an
//! earlier store whose address has the same lower twelve bits (4K aliasing). Therefore copies of
//! some KiB run from the end to the beginning if the target lies a little ahead of the source
//! within a page; long copies, for which caches fetch ahead, are not affected. Non-temporal stores
//! are not used: they copy uncached bytes half as fast again, but the next reader of the copy waits
//! for memory, which costs more. Not here: the choice between routines for short and long copies
//! (`copy`), and which vectors there are (`routine`).

mod routine;

use core::arch::asm;

pub use routine::Routine;

/// The distance of the target ahead of the source, within a page, below which a copy runs
/// backwards.
const AHEAD: usize = 256;
/// The length above which copies always run forwards.
const BACKWARD_MAX: usize = 8192;
/// The length up to which copies do not align the target, because aligning costs more than it
/// saves.
const SHORT_MAX: usize = 768;

/// Returns true if the loads of a forward copy would wait for the stores of the block before.
fn is_ahead(source: *const u8, target: *mut u8) -> bool {
    let ahead = (target as usize).wrapping_sub(source as usize) & 0xFFF;
    ahead != 0 && ahead < AHEAD
}

/// Copies `len` bytes, at least [`super::BULK_MIN`], with the best routine.
///
/// # Safety
/// As for [`super::racy`].
#[inline(never)]
pub(super) unsafe fn bulk(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract; the processor has the way that was found.
    unsafe {
        match Routine::known() {
            Some(routine) => bulk_by(routine, source, target, len),
            None => first_bulk(source, target, len),
        }
    }
}

/// Copies like [`bulk`] when the routine is not known yet. It is a separate function so that
/// [`bulk`] saves no registers.
#[cold]
#[inline(never)]
unsafe fn first_bulk(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract; the processor has the way that was found.
    unsafe { bulk_by(Routine::here(), source, target, len) }
}

/// Copies `len` bytes, at least [`super::BULK_MIN`], with `routine`.
///
/// # Safety
/// As for [`super::racy`]; the processor must have `routine`.
#[inline]
pub(super) unsafe fn bulk_by(routine: Routine, source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract; `len` is at least four vectors of any size.
    unsafe {
        if len <= SHORT_MAX {
            return match routine {
                Routine::Avx2 => avx2_short(source, target, len),
                Routine::Avx512 => avx512_short(source, target, len),
                Routine::Sse2 => sse2_short(source, target, len),
            };
        }
        let is_backward = len <= BACKWARD_MAX && is_ahead(source, target);
        match (routine, is_backward) {
            (Routine::Avx2, false) => avx2_forward(source, target, len),
            (Routine::Avx2, true) => avx2_backward(source, target, len),
            (Routine::Avx512, false) => avx512_forward(source, target, len),
            (Routine::Avx512, true) => avx512_backward(source, target, len),
            (Routine::Sse2, false) => sse2_forward(source, target, len),
            (Routine::Sse2, true) => sse2_backward(source, target, len),
        }
    }
}

/// Defines short copies, and both directions of longer ones, for vectors of one size. `$at` are the
/// offsets of a block's vectors, `$load` is the instruction that loads and stores, `$reg` the
/// registers' prefix, followed by the four registers of the block, the four of the far end and the
/// one of the near end; `$end` comes last. Registers are named explicitly, so that no caller has to
/// be compiled for vectors of that size.
macro_rules! moves {
    (
        $short:ident, $forward:ident, $backward:ident, $bytes:literal, [$one:literal, $two:literal, $three:literal],
        $load:literal, $reg:literal,
        [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal, $g:literal, $h:literal, $i:literal],
        $end:literal, $clobbers:tt
    ) => {
        /// # Safety
        /// As for [`super::racy`]; at least four vectors; the processor must have them.
        #[inline(never)]
        unsafe fn $short(source: *const u8, target: *mut u8, len: usize) {
            let last = len - 4 * $bytes;
            // SAFETY: loads within `len` bytes at `source`, stores within as many at `target`: the
            // loop ends when no whole block is left before the last four vectors.
            unsafe {
                moves!(@asm $clobbers
                    "cmp {to}, {last_target}",
                    "jae 3f",
                    "2:",
                    concat!($load, " ", $reg, $a, ", [{from}]"),
                    concat!($load, " ", $reg, $b, ", [{from} + ", $one, "]"),
                    concat!($load, " ", $reg, $c, ", [{from} + ", $two, "]"),
                    concat!($load, " ", $reg, $d, ", [{from} + ", $three, "]"),
                    concat!("add {from}, 4*", $bytes),
                    concat!($load, " [{to}], ", $reg, $a),
                    concat!($load, " [{to} + ", $one, "], ", $reg, $b),
                    concat!($load, " [{to} + ", $two, "], ", $reg, $c),
                    concat!($load, " [{to} + ", $three, "], ", $reg, $d),
                    concat!("add {to}, 4*", $bytes),
                    "cmp {to}, {last_target}",
                    "jb 2b",
                    "3:",
                    concat!($load, " ", $reg, $e, ", [{last_source}]"),
                    concat!($load, " ", $reg, $f, ", [{last_source} + ", $one, "]"),
                    concat!($load, " ", $reg, $g, ", [{last_source} + ", $two, "]"),
                    concat!($load, " ", $reg, $h, ", [{last_source} + ", $three, "]"),
                    concat!($load, " [{last_target}], ", $reg, $e),
                    concat!($load, " [{last_target} + ", $one, "], ", $reg, $f),
                    concat!($load, " [{last_target} + ", $two, "], ", $reg, $g),
                    concat!($load, " [{last_target} + ", $three, "], ", $reg, $h),
                    $end;
                    last_source = in(reg) source.add(last),
                    last_target = in(reg) target.add(last),
                    from = inout(reg) source => _,
                    to = inout(reg) target => _
                );
            }
        }

        /// # Safety
        /// As for [`super::racy`]; at least four vectors; the processor must have them.
        #[inline(never)]
        unsafe fn $forward(source: *const u8, target: *mut u8, len: usize) {
            // The first vector ends at or behind the first aligned address of the target.
            let skip = $bytes - (target as usize & ($bytes - 1));
            let last = len - 4 * $bytes;
            // SAFETY: loads within `len` bytes at `source`, stores within as many at `target`: the
            // loop ends when no whole block is left before the last four vectors.
            unsafe {
                moves!(@asm $clobbers
                    concat!($load, " ", $reg, $i, ", [{source}]"),
                    concat!($load, " ", $reg, $e, ", [{last_source}]"),
                    concat!($load, " ", $reg, $f, ", [{last_source} + ", $one, "]"),
                    concat!($load, " ", $reg, $g, ", [{last_source} + ", $two, "]"),
                    concat!($load, " ", $reg, $h, ", [{last_source} + ", $three, "]"),
                    "cmp {to}, {last_target}",
                    "jae 3f",
                    ".p2align 5",
                    "2:",
                    concat!($load, " ", $reg, $a, ", [{from}]"),
                    concat!($load, " ", $reg, $b, ", [{from} + ", $one, "]"),
                    concat!($load, " ", $reg, $c, ", [{from} + ", $two, "]"),
                    concat!($load, " ", $reg, $d, ", [{from} + ", $three, "]"),
                    concat!("add {from}, 4*", $bytes),
                    concat!($load, " [{to}], ", $reg, $a),
                    concat!($load, " [{to} + ", $one, "], ", $reg, $b),
                    concat!($load, " [{to} + ", $two, "], ", $reg, $c),
                    concat!($load, " [{to} + ", $three, "], ", $reg, $d),
                    concat!("add {to}, 4*", $bytes),
                    "cmp {to}, {last_target}",
                    "jb 2b",
                    "3:",
                    concat!($load, " [{target}], ", $reg, $i),
                    concat!($load, " [{last_target}], ", $reg, $e),
                    concat!($load, " [{last_target} + ", $one, "], ", $reg, $f),
                    concat!($load, " [{last_target} + ", $two, "], ", $reg, $g),
                    concat!($load, " [{last_target} + ", $three, "], ", $reg, $h),
                    $end;
                    source = in(reg) source,
                    target = in(reg) target,
                    last_source = in(reg) source.add(last),
                    last_target = in(reg) target.add(last),
                    from = inout(reg) source.add(skip) => _,
                    to = inout(reg) target.add(skip) => _
                );
            }
        }

        /// # Safety
        /// As for [`super::racy`]; at least four vectors; the processor must have them.
        #[inline(never)]
        unsafe fn $backward(source: *const u8, target: *mut u8, len: usize) {
            let last = len - $bytes;
            // The blocks end at the last aligned address of the target, which is within the last
            // vector.
            let end = len - (target.wrapping_add(len) as usize & ($bytes - 1));
            // SAFETY: loads within `len` bytes at `source`, stores within as many at `target`: the
            // loop ends when no whole block is left behind the first four vectors.
            unsafe {
                moves!(@asm $clobbers
                    concat!($load, " ", $reg, $e, ", [{source}]"),
                    concat!($load, " ", $reg, $f, ", [{source} + ", $one, "]"),
                    concat!($load, " ", $reg, $g, ", [{source} + ", $two, "]"),
                    concat!($load, " ", $reg, $h, ", [{source} + ", $three, "]"),
                    concat!($load, " ", $reg, $i, ", [{last_source}]"),
                    "cmp {to}, {first_end}",
                    "jbe 3f",
                    ".p2align 5",
                    "2:",
                    concat!("sub {from}, 4*", $bytes),
                    concat!($load, " ", $reg, $d, ", [{from} + ", $three, "]"),
                    concat!($load, " ", $reg, $c, ", [{from} + ", $two, "]"),
                    concat!($load, " ", $reg, $b, ", [{from} + ", $one, "]"),
                    concat!($load, " ", $reg, $a, ", [{from}]"),
                    concat!("sub {to}, 4*", $bytes),
                    concat!($load, " [{to} + ", $three, "], ", $reg, $d),
                    concat!($load, " [{to} + ", $two, "], ", $reg, $c),
                    concat!($load, " [{to} + ", $one, "], ", $reg, $b),
                    concat!($load, " [{to}], ", $reg, $a),
                    "cmp {to}, {first_end}",
                    "ja 2b",
                    "3:",
                    concat!($load, " [{target}], ", $reg, $e),
                    concat!($load, " [{target} + ", $one, "], ", $reg, $f),
                    concat!($load, " [{target} + ", $two, "], ", $reg, $g),
                    concat!($load, " [{target} + ", $three, "], ", $reg, $h),
                    concat!($load, " [{last_target}], ", $reg, $i),
                    $end;
                    source = in(reg) source,
                    target = in(reg) target,
                    last_source = in(reg) source.add(last),
                    last_target = in(reg) target.add(last),
                    first_end = in(reg) target.add(4 * $bytes),
                    from = inout(reg) source.add(end) => _,
                    to = inout(reg) target.add(end) => _
                );
            }
        }
    };
    // The sixteen YMM registers, whose upper halves `vzeroupper` clears.
    (@asm lower $($line:expr),* $(,)?; $($operand:tt)*) => {
        asm!($($line,)* $($operand)*,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack))
    };
    // Nine registers above the first sixteen, which SSE cannot address: no `vzeroupper` is needed
    // after their use.
    (@asm upper $($line:expr),* $(,)?; $($operand:tt)*) => {
        asm!($($line,)* $($operand)*,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _,
            out("zmm21") _, out("zmm22") _, out("zmm23") _, out("zmm24") _,
            options(nostack))
    };
}

moves!(
    sse2_short,
    sse2_forward,
    sse2_backward,
    16,
    ["16", "32", "48"],
    "movdqu",
    "xmm",
    ["0", "1", "2", "3", "4", "5", "6", "7", "8"],
    "",
    lower
);
moves!(
    avx2_short,
    avx2_forward,
    avx2_backward,
    32,
    ["32", "64", "96"],
    "vmovdqu",
    "ymm",
    ["0", "1", "2", "3", "4", "5", "6", "7", "8"],
    "vzeroupper",
    lower
);
moves!(
    avx512_short,
    avx512_forward,
    avx512_backward,
    64,
    ["64", "128", "192"],
    "vmovdqu64",
    "zmm",
    ["16", "17", "18", "19", "20", "21", "22", "23", "24"],
    "",
    upper
);

/// Copies 16 to 255 bytes by blocks that overlap in the middle; choosing a routine would cost more
/// than it saves.
///
/// # Safety
/// As for [`super::racy`].
#[inline]
pub(super) unsafe fn blocks(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: each block lies within `len` bytes, and together they are all of them.
    unsafe {
        if len <= 32 {
            two_blocks(source, target, len - 16);
        } else if len <= 64 {
            two_blocks(source, target, 16);
            two_blocks(source.add(len - 32), target.add(len - 32), 16);
        } else {
            four_blocks(source, target);
            if len > 128 {
                four_blocks(source.add(64), target.add(64));
                four_blocks(source.add(len - 128), target.add(len - 128));
            }
            four_blocks(source.add(len - 64), target.add(len - 64));
        }
    }
}

/// # Safety
/// Sixteen bytes at the beginning and at `other`, on either side, mapped; no alignment needed.
#[inline(always)]
unsafe fn two_blocks(source: *const u8, target: *mut u8, other: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "movdqu {one}, [{source}]",
            "movdqu {two}, [{source} + {other}]",
            "movdqu [{target}], {one}",
            "movdqu [{target} + {other}], {two}",
            one = out(xmm_reg) _,
            two = out(xmm_reg) _,
            source = in(reg) source,
            target = in(reg) target,
            other = in(reg) other,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// Sixty-four bytes on either side, mapped; no alignment needed.
#[inline(always)]
unsafe fn four_blocks(source: *const u8, target: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "movdqu {one}, [{source}]",
            "movdqu {two}, [{source} + 16]",
            "movdqu {three}, [{source} + 32]",
            "movdqu {four}, [{source} + 48]",
            "movdqu [{target}], {one}",
            "movdqu [{target} + 16], {two}",
            "movdqu [{target} + 32], {three}",
            "movdqu [{target} + 48], {four}",
            one = out(xmm_reg) _,
            two = out(xmm_reg) _,
            three = out(xmm_reg) _,
            four = out(xmm_reg) _,
            source = in(reg) source,
            target = in(reg) target,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies 4 to 15 bytes as two words, which may overlap.
///
/// # Safety
/// As for [`super::racy`].
#[inline]
pub(super) unsafe fn words(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract; either pair of words lies within `len` bytes.
    unsafe {
        if len >= 8 {
            asm!(
                "mov {one}, [{source}]",
                "mov {two}, [{source} + {len} - 8]",
                "mov [{target}], {one}",
                "mov [{target} + {len} - 8], {two}",
                one = out(reg) _,
                two = out(reg) _,
                source = in(reg) source,
                target = in(reg) target,
                len = in(reg) len,
                options(nostack, preserves_flags)
            );
        } else {
            asm!(
                "mov {one:e}, [{source}]",
                "mov {two:e}, [{source} + {len} - 4]",
                "mov [{target}], {one:e}",
                "mov [{target} + {len} - 4], {two:e}",
                one = out(reg) _,
                two = out(reg) _,
                source = in(reg) source,
                target = in(reg) target,
                len = in(reg) len,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Prefetches the cache line of `line` for writing (`prefetchw`). Affects only caches, and nothing
/// on processors without the instruction.
#[inline(always)]
pub(super) fn prefetch_for_writing(line: *mut u8) {
    // SAFETY: a prefetch does not fault, wherever it points.
    unsafe {
        asm!("prefetchw [{line}]", line = in(reg) line, options(nostack, preserves_flags));
    }
}
