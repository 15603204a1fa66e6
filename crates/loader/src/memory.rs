//! The guest's memory: its break (brk(2)), which is not the host's, and code that is mapped later.

use crate::guest::{BREAK, call, guest};
use crate::{raw, rewriting};
use core::ops::Range;
use core::sync::atomic::Ordering;

const PAGE: usize = 4096;

fn page_up(at: usize) -> usize {
    at.next_multiple_of(PAGE)
}

/// Serves brk(2): sets the break if `wanted` is within its bounds. Returns the break afterwards.
pub(crate) fn set_break(wanted: usize) -> isize {
    let Range { start: lowest, end: highest } = guest().breaks;
    loop {
        let now = BREAK.load(Ordering::Relaxed);
        if !(lowest..=highest).contains(&wanted) {
            return now as isize;
        }
        let (from, to) = (page_up(now), page_up(wanted));
        if to > from && !grow(from, to - from) {
            return now as isize;
        }
        let swap = BREAK.compare_exchange(now, wanted, Ordering::Relaxed, Ordering::Relaxed);
        if swap.is_err() {
            continue;
        }
        if to < from {
            give_back(to, from - to);
        }
        return wanted as isize;
    }
}

/// Serves brk(2) without the library: the break can only grow.
pub(crate) fn grow_break(wanted: usize) -> isize {
    let now = BREAK.load(Ordering::Relaxed);
    if wanted < now { now as isize } else { set_break(wanted) }
}

/// Maps memory for the break; does nothing if a mapping is in the way, as the kernel.
fn grow(at: usize, len: usize) -> bool {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: `MAP_FIXED_NOREPLACE` maps only where nothing is mapped.
    let result =
        unsafe { raw::call(libc::SYS_mmap, [at, len, access, flags as usize, usize::MAX, 0]) };
    result == at as isize
}

/// Returns memory of the break.
fn give_back(at: usize, len: usize) {
    // SAFETY: a part of the guest's break. The call through the library makes it forget that this
    // memory is accessible.
    unsafe { call(libc::SYS_mprotect, &[at, len, libc::PROT_NONE as usize, 0, 0, 0]) };
    // SAFETY: a part of the guest's break.
    unsafe { raw::call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
}

const CODE: usize = libc::PROT_EXEC as usize;
const WRITABLE: usize = libc::PROT_WRITE as usize;

/// Serves mmap(2). Code of a file is rewritten before the guest uses it.
#[inline(never)]
pub(crate) fn map(arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call.
    let at = unsafe { call(libc::SYS_mmap, arguments) };
    let [_, _, protection, flags, ..] = *arguments;
    let is_file = flags & libc::MAP_ANONYMOUS as usize == 0;
    if at > 0 && is_file && protection & (CODE | WRITABLE) == CODE {
        rewriting::rewrite_mapped(at as usize, arguments);
    }
    at
}

/// Serves mprotect(2) through the library, which must know about memory that becomes inaccessible.
/// The call itself is unchanged.
pub(crate) fn protect(arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call.
    unsafe { call(libc::SYS_mprotect, arguments) }
}
