//! Whether the program's memory may be touched: a bad pointer must be `EFAULT`, as from the kernel,
//! not a crash.
//!
//! Pages are asked for with `madvise`, once: each thread remembers the ranges it found, the last
//! few in a list, which finds any part of them, and many in a table by their first page, for
//! servers with a buffer for each client. Ranges are forgotten when the program unmaps or protects
//! anything; what the C library unmaps behind our back (large blocks that are freed) is not seen,
//! so a pointer into a block freed a moment ago can still crash here. A kernel that does not know
//! these advices is asked in other ways.

use crate::next::kernel;
use crate::raw::{self, Kernel};
use crate::tls;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

const PAGE: usize = 4096;
const RANGES: usize = 4;
/// Sets of the table, as a power of two, and ranges in each.
const SETS_LOG2: u32 = 6;
const WAYS: usize = 2;
/// Linux 5.14.
const POPULATE_READ: usize = 22;
const POPULATE_WRITE: usize = 23;

/// What is to be done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Some pages that may be touched.
#[derive(Default)]
struct Range {
    start: AtomicUsize,
    /// 0: nothing. Whole pages, so the lowest bit is free to say that they can be written.
    end: AtomicUsize,
}

const WRITABLE: usize = 1;

impl Range {
    #[inline(always)]
    fn has(&self, at: usize, end: usize, access: Access) -> bool {
        let own = self.end.load(Ordering::Relaxed);
        self.start.load(Ordering::Relaxed) <= at
            && end <= own & !WRITABLE
            && (access == Access::Read || own & WRITABLE != 0)
    }

    fn set(&self, start: usize, end: usize) {
        // A handler that looks meanwhile finds nothing.
        self.end.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.start.store(start, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// What a thread has found out.
pub(crate) struct Validated {
    ranges: [Range; RANGES],
    table: [[Range; WAYS]; 1 << SETS_LOG2],
    replace: AtomicU32,
    /// `UNMAPPED` when the ranges were noted.
    unmapped: AtomicU32,
}

impl Default for Validated {
    fn default() -> Self {
        Self {
            ranges: Default::default(),
            table: core::array::from_fn(|_| Default::default()),
            replace: AtomicU32::new(0),
            unmapped: AtomicU32::new(0),
        }
    }
}

/// The set of the table for a range that begins at `at`. Folded, so that buffers at regular
/// distances spread.
#[inline(always)]
fn set_of(at: usize) -> usize {
    let page = at / PAGE;
    (page ^ page >> SETS_LOG2 ^ page >> (2 * SETS_LOG2)) & ((1 << SETS_LOG2) - 1)
}

/// Counts what may have made memory inaccessible.
static UNMAPPED: AtomicU32 = AtomicU32::new(0);

/// How many of `len` bytes at `at` may be touched, from the start.
#[inline]
pub(crate) fn accessible(at: usize, len: usize, access: Access) -> usize {
    let validated = &tls::here().validated;
    let end = at.saturating_add(len);
    if validated.unmapped.load(Ordering::Relaxed) == UNMAPPED.load(Ordering::Relaxed) {
        let mut known = validated.ranges.iter().chain(&validated.table[set_of(at)]);
        if known.any(|range| range.has(at, end, access)) {
            return len;
        }
    }
    if len == 0 { 0 } else { ask(validated, at, len, access) }
}

/// A copy of a structure of the program's, aligned or not; or nothing if its memory cannot be read.
///
/// # Safety
/// `T` must be plain data. The program must leave it alone meanwhile, as for the kernel.
#[inline]
pub(crate) unsafe fn structure<T: Copy>(at: *const T) -> Option<T> {
    let len = size_of::<T>();
    let is_readable = accessible(at as usize, len, Access::Read) == len;
    // SAFETY: readable; plain data by the caller's promise.
    is_readable.then(|| unsafe { at.read_unaligned() })
}

/// References to `count` of them, one after another and aligned.
///
/// # Safety
/// As [`structure`].
#[inline]
pub(crate) unsafe fn structures<'a, T>(at: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let len = size_of::<T>().checked_mul(count)?;
    let is_sound = (at as usize).is_multiple_of(align_of::<T>())
        && accessible(at as usize, len, Access::Read) == len;
    // SAFETY: aligned and readable; plain data by the caller's promise.
    is_sound.then(|| unsafe { core::slice::from_raw_parts(at, count) })
}

/// Whether `T` at `at`, aligned or not, can be written.
#[inline]
pub(crate) fn is_writable<T>(at: *mut T) -> bool {
    accessible(at as usize, size_of::<T>(), Access::Write) == size_of::<T>()
}

#[cold]
#[inline(never)]
fn ask(validated: &Validated, at: usize, len: usize, access: Access) -> usize {
    let unmapped = UNMAPPED.load(Ordering::Relaxed);
    let first = at & !(PAGE - 1);
    let Some(end) = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE)) else {
        return 0;
    };
    let pages = (end - first) / PAGE;
    let good = good_pages(first, pages, access);
    if good == 0 {
        return 0;
    }
    note(validated, unmapped, first, first + good * PAGE, access);
    len.min(first + good * PAGE - at)
}

fn note(validated: &Validated, unmapped: u32, start: usize, end: usize, access: Access) {
    if validated.unmapped.load(Ordering::Relaxed) != unmapped {
        for range in validated.ranges.iter().chain(validated.table.iter().flatten()) {
            range.end.store(0, Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        validated.unmapped.store(unmapped, Ordering::Relaxed);
    }
    let turn = validated.replace.load(Ordering::Relaxed);
    validated.replace.store(turn.wrapping_add(1), Ordering::Relaxed);
    let end = if access == Access::Write { end | WRITABLE } else { end };
    validated.ranges[turn as usize % RANGES].set(start, end);
    let set = &validated.table[set_of(start)];
    // One that begins at the same place was too short, or not writable; else a vacant one, else
    // any.
    let vacant = || set.iter().position(|range| range.end.load(Ordering::Relaxed) == 0);
    let same = set.iter().position(|range| range.start.load(Ordering::Relaxed) == start);
    let way = same.or_else(vacant).unwrap_or((turn as usize / RANGES) % WAYS);
    set[way].set(start, end);
}

/// How many of `pages` from `first` are good, by halving: the kernel does not say where it stopped.
fn good_pages(first: usize, pages: usize, access: Access) -> usize {
    if are_good(first, pages, access) {
        return pages;
    }
    let (mut good, mut bad) = (0, pages);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if are_good(first + good * PAGE, middle - good, access) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

fn are_good(first: usize, pages: usize, access: Access) -> bool {
    let advice = if access == Access::Write { POPULATE_WRITE } else { POPULATE_READ };
    // SAFETY: makes pages present, changes no contents.
    let result = unsafe { raw::call(libc::SYS_madvise, [first, pages * PAGE, advice, 0, 0, 0]) };
    match -result as i32 {
        0 => true,
        // Unknown advice, or memory of a device.
        libc::EINVAL | libc::ENOSYS | libc::EPERM => {
            (0..pages).all(|page| probe(first + page * PAGE, access))
        }
        _ => false,
    }
}

/// One page, on kernels that know no better.
fn probe(page: usize, access: Access) -> bool {
    match access {
        Access::Read => {
            let mut byte = 0u8;
            let here = [(&raw mut byte) as usize, 1];
            let there = [page, 1];
            let arguments = [
                raw::process_number() as usize,
                here.as_ptr() as usize,
                1,
                there.as_ptr() as usize,
                1,
                0,
            ];
            // SAFETY: reads one byte into `byte`, or fails.
            unsafe { raw::call(libc::SYS_process_vm_readv, arguments) == 1 }
        }
        Access::Write => {
            let word = 0u32;
            // Adds 0 to the page's first word, atomically, and wakes at most a waiter who then
            // looks again.
            let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
            let add_nothing = (libc::FUTEX_OP_ADD as usize) << 28;
            let arguments = [(&raw const word) as usize, operation, 0, 0, page, add_nothing];
            // SAFETY: changes nothing.
            unsafe { raw::call(libc::SYS_futex, arguments) >= 0 }
        }
    }
}

/// Memory may have become inaccessible.
#[inline]
fn forget() {
    UNMAPPED.fetch_add(1, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munmap(at: *mut c_void, len: usize) -> c_int {
    type Munmap = unsafe extern "C-unwind" fn(*mut c_void, usize) -> c_int;
    // SAFETY: passed on.
    forgotten_by(unsafe { kernel!(SYS_munmap, c"munmap" as Munmap; at, len) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mprotect(at: *mut c_void, len: usize, protection: c_int) -> c_int {
    type Mprotect = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int) -> c_int;
    // SAFETY: passed on.
    let kernel = unsafe { kernel!(SYS_mprotect, c"mprotect" as Mprotect; at, len, protection) };
    mprotect_by(protection, kernel) as c_int
}

/// [`mprotect`], with the kernel's call as it is made.
pub(crate) fn mprotect_by(protection: c_int, kernel: impl Kernel) -> isize {
    if protection & libc::PROT_WRITE == 0 { forgotten_by(kernel) } else { kernel() }
}

/// Calls after which memory may be inaccessible, with the kernel's call as it is made.
pub(crate) fn forgotten_by(kernel: impl Kernel) -> isize {
    forget();
    kernel()
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mremap(
    at: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new_at: *mut c_void,
) -> *mut c_void {
    type Mremap =
        unsafe extern "C-unwind" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
    // SAFETY: passed on; an argument too many is ignored.
    let kernel =
        unsafe { kernel!(SYS_mremap, c"mremap" as Mremap; at, old_len, new_len, flags, new_at) };
    forgotten_by(kernel) as *mut c_void
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_for_each_of_many_clients_is_remembered() {
        for stride in [4, 5, 16, 17] {
            let validated = Validated::default();
            let place = |n: usize| (1 << 40) + n * stride * PAGE;
            for n in 0..60 {
                note(&validated, 0, place(n), place(n) + 4 * PAGE, Access::Write);
            }
            let is_known = |n: &usize| {
                let at = place(*n) + 100;
                validated.table[set_of(at)].iter().any(|r| r.has(at, at + 5000, Access::Write))
            };
            let known = (0..60).filter(is_known).count();
            assert!(known >= 48, "{known} of 60 at a distance of {stride} pages");
        }
    }

    #[test]
    fn what_may_only_be_read_is_not_said_to_be_writable() {
        let validated = Validated::default();
        note(&validated, 0, PAGE, 3 * PAGE, Access::Read);
        let has = |at, end, access| {
            validated
                .ranges
                .iter()
                .chain(&validated.table[set_of(at)])
                .any(|r| r.has(at, end, access))
        };
        assert!(has(PAGE, 3 * PAGE, Access::Read) && !has(PAGE, 3 * PAGE, Access::Write));
        assert!(!has(PAGE, 3 * PAGE + 1, Access::Read));
        note(&validated, 0, PAGE, 3 * PAGE, Access::Write);
        assert!(has(PAGE, 3 * PAGE, Access::Write));
        // Something was unmapped since.
        note(&validated, 1, 8 * PAGE, 9 * PAGE, Access::Read);
        assert!(!has(PAGE, 3 * PAGE, Access::Read));
    }
}
