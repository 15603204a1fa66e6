//! Which vectors an x86-64 processor has, and which of them are worth using for copies.
//!
//! Not here: the copies (`x86_64`).

use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering};

/// A copy routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Routine {
    /// Sixteen bytes at a time, on every processor of this architecture.
    Sse2 = 1,
    /// Thirty-two bytes at a time.
    Avx2,
    /// Sixty-four bytes at a time.
    Avx512,
}

/// The routine that [`Routine::here`] has found; 0 before the first call.
static HERE: AtomicU8 = AtomicU8::new(0);

impl Routine {
    /// All routines of this architecture.
    pub const ALL: [Self; 3] = [Self::Sse2, Self::Avx2, Self::Avx512];

    /// Returns the best routine for this processor.
    pub fn here() -> Self {
        Self::known().unwrap_or_else(Self::find)
    }

    /// Returns the best routine if it has been found already.
    #[inline(always)]
    pub(super) fn known() -> Option<Self> {
        match HERE.load(Ordering::Relaxed) {
            1 => Some(Self::Sse2),
            2 => Some(Self::Avx2),
            3 => Some(Self::Avx512),
            _ => None,
        }
    }

    /// Returns true if the processor and the operating system support the routine.
    pub fn is_there(self) -> bool {
        match self {
            Self::Sse2 => true,
            Self::Avx2 => Found::here().has_avx2,
            Self::Avx512 => Found::here().has_avx512,
        }
    }

    /// Finds the best routine by `cpuid`: once per process, because the instruction takes
    /// microseconds in a virtual machine.
    #[cold]
    #[inline(never)]
    pub(super) fn find() -> Self {
        let routine = Found::here().best();
        HERE.store(routine as u8, Ordering::Relaxed);
        routine
    }
}

/// The processor's features for copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    has_avx2: bool,
    has_avx512: bool,
    /// Loads and stores of 64 bytes are one step each, and do not slow the processor down.
    likes_avx512: bool,
}

impl Found {
    fn here() -> Self {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        /// OSXSAVE and AVX.
        const AVX: u32 = 1 << 27 | 1 << 28;
        /// Bits of XCR0: the system saves XMM and YMM registers; `ZMM` adds the mask and ZMM
        /// registers.
        const YMM: u64 = 0b110;
        const ZMM: u64 = 0b1110_0110;
        let first = __cpuid(0);
        let basic = __cpuid(1);
        if first.eax < 7 || basic.ecx & AVX != AVX {
            return Self::default();
        }
        let kept = enabled_state();
        let more = __cpuid_count(7, 0);
        let has_avx2 = kept & YMM == YMM && more.ebx & 1 << 5 != 0;
        let has_avx512 = has_avx2 && kept & ZMM == ZMM && more.ebx & 1 << 16 != 0;
        Self { has_avx2, has_avx512, likes_avx512: likes_avx512(first.ebx, basic.eax, more.edx) }
    }

    fn best(self) -> Routine {
        match self {
            Self { has_avx512: true, likes_avx512: true, .. } => Routine::Avx512,
            Self { has_avx2: true, .. } => Routine::Avx2,
            _ => Routine::Sse2,
        }
    }
}

/// Returns true if vectors of 64 bytes pay, by EBX of leaf 0 (the maker), the signature of leaf 1
/// and EDX of leaf 7. Zen 4 splits such accesses in two, and unaligned ones are slower than those
/// of 32 bytes. Intel's processors before Ice Lake, which brought short string moves (FSRM), lower
/// their clock for them.
fn likes_avx512(maker: u32, signature: u32, more: u32) -> bool {
    const AMD: u32 = u32::from_le_bytes(*b"Auth");
    const INTEL: u32 = u32::from_le_bytes(*b"Genu");
    const FSRM: u32 = 1 << 4;
    /// Zen 5.
    const FAMILY_MIN: u32 = 0x1A;
    let base = signature >> 8 & 0xF;
    let family = if base == 0xF { base + (signature >> 20 & 0xFF) } else { base };
    match maker {
        AMD => family >= FAMILY_MIN,
        INTEL => more & FSRM != 0,
        _ => false,
    }
}

/// Returns XCR0: the register sets that the system saves for each thread. OSXSAVE must be set.
fn enabled_state() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction is there, as the caller has seen; it reads a register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_goes_by_what_the_processor_says() {
        let has = |has_avx2, has_avx512, likes_avx512| {
            Found { has_avx2, has_avx512, likes_avx512 }.best()
        };
        assert_eq!(has(false, false, false), Routine::Sse2);
        assert_eq!(has(true, false, true), Routine::Avx2, "the system does not keep the registers");
        assert_eq!(has(true, true, false), Routine::Avx2);
        assert_eq!(has(true, true, true), Routine::Avx512);
        assert!(Routine::here().is_there());
        assert_eq!(Routine::Avx2.is_there(), std::arch::is_x86_feature_detected!("avx2"));
        assert_eq!(Routine::Avx512.is_there(), std::arch::is_x86_feature_detected!("avx512f"));
    }

    #[test]
    fn long_vectors_pay_from_certain_models_on() {
        let amd = u32::from_le_bytes(*b"Auth");
        let intel = u32::from_le_bytes(*b"Genu");
        assert!(!likes_avx512(amd, 0x00A1_0F11, 1 << 4), "Zen 4");
        assert!(likes_avx512(amd, 0x00B0_0F21, 1 << 4), "Zen 5");
        assert!(likes_avx512(intel, 0x0006_06A6, 1 << 4), "Ice Lake");
        assert!(!likes_avx512(intel, 0x0005_0657, 0), "Cascade Lake");
        assert!(!likes_avx512(0, 0, !0), "nothing is known of it");
    }
}
