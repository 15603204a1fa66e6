//! The copy routines: the project's own, and plain loops over the instructions of the processor.
//! The plain loops share no code with the project's own routine.
#![allow(unsafe_code, reason = "vector moves and raw copies have no other way")]

/// One copy routine.
#[derive(Clone, Copy)]
pub(crate) struct Routine {
    pub(crate) name: &'static str,
    /// Copies from the first address to the second; the third argument is the number of bytes. Both
    /// ranges are mapped and do not overlap.
    pub(crate) copy: unsafe fn(*const u8, *mut u8, usize),
    /// True for the project's own routine.
    pub(crate) is_ours: bool,
    /// True for a routine whose stores bypass the caches. Such a routine is fast only if the
    /// copy is not read soon.
    pub(crate) bypasses_caches: bool,
}

const OURS: Routine =
    Routine { name: "ours", copy: sojourn_shm::copy::racy, is_ours: true, bypasses_caches: false };

const fn rival(name: &'static str, copy: unsafe fn(*const u8, *mut u8, usize)) -> Routine {
    Routine { name, copy, is_ours: false, bypasses_caches: false }
}

/// Returns every routine that this processor can run.
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

/// Calls the C library's `memcpy`.
unsafe fn memcpy(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the contract of `Routine::copy`, which the caller keeps.
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

    /// Copies with the string instruction `rep movsb`.
    pub(super) unsafe fn string(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: the contract of `Routine::copy`; the System V ABI has the direction flag clear at
        // each call.
        unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rsi") source => _,
                inout("rdi") target => _, options(nostack, preserves_flags));
        }
    }

    /// Defines a routine that copies four vectors at a time, then single vectors, then bytes.
    macro_rules! vectors {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $store:ident) => {
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(source: *const u8, target: *mut u8, len: usize) {
                const VECTOR: usize = size_of::<$vector>();
                let mut at = 0;
                // SAFETY: the contract of `Routine::copy`; `at` stays within `len`.
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

    /// Copies with non-temporal stores, which need aligned targets: the first bytes go singly.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn non_temporal(source: *const u8, target: *mut u8, len: usize) {
        let mut at = target.align_offset(32).min(len);
        // SAFETY: the contract of `Routine::copy`; `at` stays within `len`, and the stores are
        // aligned.
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
            // SAFETY: the contract of `Routine::copy`. The accesses are volatile, so that the
            // compiler does not turn this loop into a call of memcpy.
            unsafe { target.add(at).write_volatile(source.add(at).read_volatile()) };
        }
    }
}
