//! Copies between private memory and memory that a peer may be writing at the same time.
//!
//! Such a copy is a data race by intent: the bytes may be any mixture of old and new, and whoever
//! copies checks the private copy. Rust's memory model has no word for it, so the bytes are moved by
//! volatile accesses or by assembly, which the compiler cannot assume anything about: it can neither
//! invent a second load nor turn the copy into a reference. Not here: bounds; see [`crate::Span`].

/// From this many bytes on the processor's own string instruction is the fastest.
#[cfg(target_arch = "x86_64")]
const STRING_MOVE_MIN: usize = 1024;

/// Copies `len` bytes from `source` to `target`, either of which a peer may be writing.
///
/// # Safety
/// Both ranges must be mapped, `target` writable, and they must not overlap.
#[inline]
pub unsafe fn racy(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if len >= STRING_MOVE_MIN {
            // SAFETY: the caller's contract.
            return unsafe { string_move(source, target, len) };
        }
        if len >= 16 {
            // SAFETY: the caller's contract; at least 16 bytes, as the callee wants.
            return unsafe { vector_move(source, target, len) };
        }
    }
    // SAFETY: the caller's contract.
    unsafe { word_move(source, target, len) }
}

/// As [`racy`], to memory that another processor has read or written last: the cache lines are asked for
/// a little ahead of the copy, for writing. Between processors that saves a twentieth; to memory that
/// is in this processor's caches it costs a tenth.
///
/// # Safety
/// As for [`racy`].
#[inline]
pub unsafe fn racy_to_far(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        const AHEAD: usize = 2048;
        let mut at = 0;
        while at < len {
            let part = AHEAD.min(len - at);
            // The first part is asked for as well: it is then under way as a whole.
            let from = if at == 0 { 0 } else { at + AHEAD };
            for line in (from..(at + 2 * AHEAD).min(len)).step_by(64) {
                // SAFETY: within the target; a prefetch has no effect but on caches, and where the
                // processor does not know it, none at all.
                unsafe {
                    core::arch::asm!(
                        "prefetchw [{line}]",
                        line = in(reg) target.add(line),
                        options(nostack, preserves_flags)
                    );
                }
            }
            // SAFETY: the caller's contract; at + part <= len.
            unsafe { racy(source.add(at), target.add(at), part) };
            at += part;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's contract.
    unsafe {
        racy(source, target, len);
    }
}

/// `rep movsb`: one instruction, any length and alignment.
#[cfg(target_arch = "x86_64")]
unsafe fn string_move(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: reads `len` bytes at `source` and writes as many at `target`, mapped as the caller
    // promises; the direction flag is clear by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Sixteen bytes at a time, the last ones overlapping. `len` is at least 16.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn vector_move(source: *const u8, target: *mut u8, len: usize) {
    let last = len - 16;
    let mut at = 0;
    while at < last {
        // SAFETY: at + 16 <= len.
        unsafe { vector_one(source.add(at), target.add(at)) };
        at += 16;
    }
    // SAFETY: last + 16 == len.
    unsafe { vector_one(source.add(last), target.add(last)) };
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn vector_one(source: *const u8, target: *mut u8) {
    // SAFETY: sixteen bytes on either side, mapped as the caller promises; no alignment needed.
    unsafe {
        core::arch::asm!(
            "movdqu {block}, [{source}]",
            "movdqu [{target}], {block}",
            block = out(xmm_reg) _,
            source = in(reg) source,
            target = in(reg) target,
            options(nostack, preserves_flags)
        );
    }
}

/// Words where both sides are aligned, bytes otherwise.
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
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_copies_exactly() {
        let source: Vec<u8> = (0..9000u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let lens = (0..300).chain([511, 512, 1023, 1024, 1025, 2047, 4096, 8192]);
        for len in lens {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 5), (8, 16)] {
                let mut target = vec![0xAA_u8; len + 64];
                // SAFETY: both vectors are longer than offset + len.
                unsafe { racy(source.as_ptr().add(from), target.as_mut_ptr().add(to), len) };
                assert_eq!(&target[to..to + len], &source[from..from + len], "len {len}");
                target[to..to + len].fill(0xAA);
                // SAFETY: as above.
                unsafe { racy_to_far(source.as_ptr().add(from), target.as_mut_ptr().add(to), len) };
                assert_eq!(&target[to..to + len], &source[from..from + len], "len {len}, far");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|b| *b == 0xAA));
            }
        }
    }
}
