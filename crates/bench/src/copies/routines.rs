//! Ways to copy: ours, and plain loops of what a processor has. Nothing here knows how ours goes.
#![allow(unsafe_code, reason = "vector moves and raw copies have no other way")]

/// One way to copy.
#[derive(Clone, Copy)]
pub(crate) struct Routine {
    pub(crate) name: &'static str,
    /// From, to, and how many bytes: both mapped, without overlap.
    pub(crate) copy: unsafe fn(*const u8, *mut u8, usize),
    /// Ours.
    pub(crate) is_ours: bool,
    /// It leaves nothing in the caches: good only for who does not look at the copy.
    pub(crate) bypasses_caches: bool,
}

const OURS: Routine =
    Routine { name: "ours", copy: sojourn_shm::copy::racy, is_ours: true, bypasses_caches: false };

const fn rival(name: &'static str, copy: unsafe fn(*const u8, *mut u8, usize)) -> Routine {
    Routine { name, copy, is_ours: false, bypasses_caches: false }
}

/// Every way that this processor has.
pub(crate) fn all() -> Vec<Routine> {
    let mut ways = vec![rival("memcpy", memcpy)];
    #[cfg(target_arch = "x86_64")]
    {
        ways.extend([rival("rep movsb", x86_64::string), rival("SSE2", x86_64::sse2)]);
        if is_x86_feature_detected!("avx2") {
            ways.push(rival("AVX2", x86_64::avx2));
        }
        if is_x86_feature_detected!("avx512f") {
            ways.push(rival("AVX-512", x86_64::avx512));
        }
        if is_x86_feature_detected!("avx2") {
            ways.push(Routine {
                bypasses_caches: true,
                ..rival("non-temporal", x86_64::non_temporal)
            });
        }
    }
    ways.push(OURS);
    ways
}

/// The C library's.
unsafe fn memcpy(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { libc::memcpy(target.cast(), source.cast(), len) };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_sfence, _mm_storeu_si128,
        _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm512_loadu_si512,
        _mm512_storeu_si512,
    };

    /// The processor's own string instruction.
    pub(super) unsafe fn string(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: the caller's contract; the direction flag is clear by the calling convention.
        unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rsi") source => _,
                inout("rdi") target => _, options(nostack, preserves_flags));
        }
    }

    /// A loop of four vectors, then single ones, then bytes.
    macro_rules! vectors {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $store:ident) => {
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(source: *const u8, target: *mut u8, len: usize) {
                const VECTOR: usize = size_of::<$vector>();
                let mut at = 0;
                // SAFETY: the caller's contract; `at` stays within `len`.
                unsafe {
                    while at + 4 * VECTOR <= len {
                        let from = source.add(at).cast::<$vector>();
                        let to = target.add(at).cast::<$vector>();
                        let four = [0, 1, 2, 3].map(|n| $load(from.add(n)));
                        for (n, vector) in four.into_iter().enumerate() {
                            $store(to.add(n), vector);
                        }
                        at += 4 * VECTOR;
                    }
                    while at + VECTOR <= len {
                        $store(target.add(at).cast(), $load(source.add(at).cast()));
                        at += VECTOR;
                    }
                    bytes(source.add(at), target.add(at), len - at);
                }
            }
        };
    }

    vectors!(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_storeu_si128);
    vectors!(avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_storeu_si256);
    vectors!(avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512);

    /// Past the caches, to aligned places.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn non_temporal(source: *const u8, target: *mut u8, len: usize) {
        let mut at = target.align_offset(32).min(len);
        // SAFETY: the caller's contract; `at` stays within `len`, and the stores are aligned.
        unsafe {
            bytes(source, target, at);
            while at + 32 <= len {
                let vector = _mm256_loadu_si256(source.add(at).cast());
                _mm256_stream_si256(target.add(at).cast(), vector);
                at += 32;
            }
            bytes(source.add(at), target.add(at), len - at);
        }
        _mm_sfence();
    }

    #[inline(always)]
    unsafe fn bytes(source: *const u8, target: *mut u8, len: usize) {
        for at in 0..len {
            // SAFETY: the caller's contract. Volatile, so that this does not become a call of
            // memcpy.
            unsafe { target.add(at).write_volatile(source.add(at).read_volatile()) };
        }
    }
}
