//! Checks that the program's memory may be accessed: a bad pointer must give `EFAULT`, as from the
//! kernel, instead of a crash.
//!
//! Each range of pages is probed once, with `MADV_POPULATE_READ` or `MADV_POPULATE_WRITE`
//! (madvise(2)), and each thread remembers the ranges that it has probed (`validated`). The last
//! few ranges are in a list, in which any part of a range is found; many more are in a table by
//! first page, for servers with one buffer for each client. Ranges are forgotten when the program
//! unmaps or protects memory, maps something else over it, or makes a file shorter, which may be
//! mapped.
//!
//! Memory that the C library unmaps by itself (large blocks that are freed) is not noticed, so a
//! pointer into a block that was freed a moment ago can still crash here; nor is it noticed that
//! another process makes a mapped file shorter. Kernels without these advices are asked in other
//! ways.

use crate::code;
use crate::guard::kernel;
use crate::next::next;
use crate::raw::{self, Kernel};
use crate::tls;
pub(crate) use crate::validated::Access;
use crate::validated::{PAGE, Validated};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

/// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`, since Linux 5.14.
const POPULATE_READ: usize = 22;
const POPULATE_WRITE: usize = 23;

/// Counts events that may have made memory inaccessible.
static UNMAPPED: AtomicU32 = AtomicU32::new(0);

/// Returns how many of the `len` bytes at `at` may be accessed, counted from `at`.
#[inline]
pub(crate) fn accessible(at: usize, len: usize, access: Access) -> usize {
    let validated = &tls::here().validated;
    let end = at.saturating_add(len);
    if validated.has(UNMAPPED.load(Ordering::Relaxed), at, end, access) {
        return len;
    }
    if len == 0 { 0 } else { ask(validated, at, len, access) }
}

/// Returns a copy of a structure of the program's, aligned or not; `None` if its memory cannot be
/// read.
///
/// # Safety
/// `T` must be plain data. The program must leave the structure alone during the call, as for the
/// kernel.
#[inline]
pub(crate) unsafe fn structure<T: Copy>(at: *const T) -> Option<T> {
    let len = size_of::<T>();
    let is_readable = accessible(at as usize, len, Access::Read) == len;
    // SAFETY: readable; plain data by the caller's promise.
    is_readable.then(|| unsafe { at.read_unaligned() })
}

/// Returns `count` structures that lie one after another; `None` if they are not aligned or cannot
/// be read.
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

/// Returns true if a `T` at `at`, aligned or not, can be written.
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
    validated.note(unmapped, first, first + good * PAGE, access);
    len.min(first + good * PAGE - at)
}

/// Counts how many of `pages` pages from `first` are accessible, by halving: a failed madvise(2)
/// does not say at which page it stopped.
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
        // The kernel does not know the advice (before 5.14), or the mapping is a device's (`VM_IO`,
        // `VM_PFNMAP`), which the advice does not cover.
        libc::EINVAL | libc::ENOSYS | libc::EPERM => {
            (0..pages).all(|page| probe(first + page * PAGE, access))
        }
        _ => false,
    }
}

/// Probes one page without the advices: a read by process_vm_readv(2), a write by an atomic
/// operation that changes nothing.
fn probe(page: usize, access: Access) -> bool {
    match access {
        Access::Read => raw::read_memory(page, &mut [0]) == 1,
        Access::Write => {
            let word = 0u32;
            // `FUTEX_WAKE_OP` (futex(2)) adds 0 to the page's first word atomically, and wakes at
            // most a waiter, which then looks at its condition again.
            let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
            let add_nothing = (libc::FUTEX_OP_ADD as usize) << 28;
            let arguments = [(&raw const word) as usize, operation, 0, 0, page, add_nothing];
            // SAFETY: the operation leaves the page's contents as they are.
            unsafe { raw::call(libc::SYS_futex, arguments) >= 0 }
        }
    }
}

/// Ends the process as the C library does when a fortified call finds its buffer too small.
#[cold]
pub(crate) fn overflow() -> ! {
    // SAFETY: does not return.
    unsafe { next!(c"__chk_fail" as unsafe extern "C-unwind" fn() -> !)() }
}

/// Notes that memory may have become inaccessible: all threads forget the ranges that they have
/// probed.
#[inline]
pub(crate) fn forget() {
    UNMAPPED.fetch_add(1, Ordering::Relaxed);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn munmap(at: *mut c_void, len: usize) -> c_int {
    type Munmap = unsafe extern "C-unwind" fn(*mut c_void, usize) -> c_int;
    // SAFETY: the program's arguments, passed on unchanged.
    forgotten_by(unsafe { kernel!(SYS_munmap, c"munmap" as Munmap; at, len) }) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn mprotect(at: *mut c_void, len: usize, protection: c_int) -> c_int {
    type Mprotect = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int) -> c_int;
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_mprotect, c"mprotect" as Mprotect; at, len, protection) };
    mprotect_by(protection, kernel) as c_int
}

/// Serves [`mprotect`]; `kernel` makes the kernel's call.
pub(crate) fn mprotect_by(protection: c_int, kernel: impl Kernel) -> isize {
    // Only the loss of a right matters: with `PROT_WRITE` memory is readable and writable on
    // x86-64.
    let result = if protection & libc::PROT_WRITE == 0 { forgotten_by(kernel) } else { kernel() };
    if result == 0 && protection & libc::PROT_EXEC != 0 && code::is_rewritten() {
        code::came();
    }
    result
}

/// Notes a call of mmap(2): with `MAP_FIXED` it takes the place of what was mapped there.
#[inline]
pub(crate) fn mapped(flags: usize) {
    if flags & libc::MAP_FIXED as usize != 0 {
        forget();
    }
}

/// Serves a call after which memory may be inaccessible; `kernel` makes the kernel's call.
pub(crate) fn forgotten_by(kernel: impl Kernel) -> isize {
    forget();
    kernel()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn mremap(
    at: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new_at: *mut c_void,
) -> *mut c_void {
    type Mremap =
        unsafe extern "C-unwind" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
    // SAFETY: the program's arguments, passed on unchanged. `mremap` ignores the fifth if the flags
    // do not ask for it.
    let kernel =
        unsafe { kernel!(SYS_mremap, c"mremap" as Mremap; at, old_len, new_len, flags, new_at) };
    forgotten_by(kernel) as *mut c_void
}
