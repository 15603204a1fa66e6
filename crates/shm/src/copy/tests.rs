//! Every routine at every alignment, between pages that must not be touched.

use super::*;

const PAGE: usize = 4096;

/// Some pages, with an inaccessible page at either end.
struct Guarded {
    start: *mut u8,
    len: usize,
}

impl Guarded {
    fn new(pages: usize) -> Self {
        let whole = (pages + 2) * PAGE;
        // SAFETY: new memory, of which the first and the last page are taken away.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(core::ptr::null_mut(), whole, all, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let start = start.cast::<u8>();
            assert_eq!(libc::mprotect(start.cast(), PAGE, libc::PROT_NONE), 0);
            let end = start.add(whole - PAGE);
            assert_eq!(libc::mprotect(end.cast(), PAGE, libc::PROT_NONE), 0);
            start.add(PAGE)
        };
        Self { start, len: pages * PAGE }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped as long as `self`, borrowed with it.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: what `new` has mapped.
        unsafe { libc::munmap(self.start.sub(PAGE).cast(), self.len + 2 * PAGE) };
    }
}

type Copy = fn(*const u8, *mut u8, usize);

/// Copies `len` bytes from `from` to `to` and checks every byte of the target.
fn try_one(source: &mut Guarded, target: &mut Guarded, copy: Copy, at: (usize, usize, usize)) {
    const UNTOUCHED: u8 = 0xAA;
    let (from, to, len) = at;
    let around = to.saturating_sub(80)..(to + len + 80).min(target.len);
    target.bytes()[around.clone()].fill(UNTOUCHED);
    copy(source.start.wrapping_add(from), target.start.wrapping_add(to), len);
    let (source, target) = (source.bytes(), target.bytes());
    assert!(target[to..to + len] == source[from..from + len], "{at:?}");
    let beside = target[around.start..to].iter().chain(&target[to + len..around.end]);
    assert!(beside.copied().all(|byte| byte == UNTOUCHED), "beside {at:?}");
}

fn try_all(copy: Copy, lens: impl Iterator<Item = usize>) {
    let mut source = Guarded::new(5);
    let mut target = Guarded::new(5);
    for (at, byte) in source.bytes().iter_mut().enumerate() {
        *byte = (at * 7 + at / 251) as u8 & 0x7F;
    }
    let end = source.len;
    for len in lens {
        let last = end - len;
        // The copies begin at the first byte and end at the last one: an access beyond them faults.
        for at in [(0, 0), (last, last), (0, last), (last, 0)] {
            try_one(&mut source, &mut target, copy, (at.0, at.1, len));
        }
        for off in [1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65] {
            for other in [0, 1, 8, 16, 24, 40] {
                try_one(&mut source, &mut target, copy, (off, other, len));
                try_one(&mut source, &mut target, copy, (other, off, len));
                try_one(&mut source, &mut target, copy, (last - off, last - other, len));
            }
        }
    }
}

/// Returns every short length, and those around the limits at which the routine changes.
fn lens() -> impl Iterator<Item = usize> {
    let around = [512, 1024, 2048, 4096, 8192, 12_288];
    (0..600).chain(around.into_iter().flat_map(|len| len - 2..len + 3))
}

#[test]
fn every_length_and_alignment_copies_exactly() {
    // SAFETY: `try_one` gives ranges within mappings that do not overlap.
    try_all(|source, target, len| unsafe { racy(source, target, len) }, lens());
    // SAFETY: `try_one` gives ranges within mappings that do not overlap.
    try_all(|source, target, len| unsafe { racy_to_far(source, target, len) }, lens());
}

#[test]
fn every_way_of_this_processor_copies_exactly() {
    // One function for each routine, because a function pointer cannot carry the routine.
    #[cfg(target_arch = "x86_64")]
    let ways: [(Routine, Copy); 3] = [
        // SAFETY: as in the test above; only ways that are there are called.
        (Routine::Sse2, |s, t, len| unsafe { racy_by(Routine::Sse2, s, t, len) }),
        // SAFETY: only ways that are there are called, on ranges that do not overlap.
        (Routine::Avx2, |s, t, len| unsafe { racy_by(Routine::Avx2, s, t, len) }),
        // SAFETY: only ways that are there are called, on ranges that do not overlap.
        (Routine::Avx512, |s, t, len| unsafe { racy_by(Routine::Avx512, s, t, len) }),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let ways: [(Routine, Copy); 1] =
        // SAFETY: as in the test above.
        [(Routine::here(), |s, t, len| unsafe { racy_by(Routine::here(), s, t, len) })];
    for (routine, copy) in ways {
        if routine.is_there() {
            try_all(copy, lens().filter(|len| *len >= BULK_MIN));
        }
    }
}

#[test]
fn slices_copy_the_shorter_length() {
    let mut target = [9; 5];
    assert_eq!(slice(&[1, 2, 3], &mut target), 3);
    assert_eq!(target, [1, 2, 3, 9, 9]);
    assert_eq!(slice(&[4; 9], &mut target), 5);
    assert_eq!(target, [4; 5]);
}

/// Values that the compiler keeps in vector registers across a copy survive it.
#[test]
fn vectors_of_the_caller_survive() {
    let source = vec![3_u8; 4096];
    let mut target = vec![0_u8; 4096];
    let mut sums = [[1.5_f64; 4]; 4];
    for round in 0..100 {
        for row in &mut sums {
            for (column, sum) in row.iter_mut().enumerate() {
                *sum += f64::from(round) * column as f64;
            }
        }
        slice(core::hint::black_box(&source[..1000 + round as usize]), &mut target);
    }
    assert!(sums.iter().all(|row| *row == [1.5, 4951.5, 9901.5, 14_851.5]));
}
