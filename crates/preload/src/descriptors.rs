//! Descriptor numbers: closing, duplicating, making.
//!
//! The library has descriptors of its own in the same process. For the program they are not open.
//! Not here: `fcntl` (`control`), sockets (`connections`), files (`reopen`).

use crate::errno;
use crate::guard::kernel;
use crate::guard::{is_initialized, is_open, tell, tell_if_initialized, within};
use crate::library::{Library, Origin, numbers};
use crate::next::next;
use crate::raw::{self, Kernel};
use crate::trampoline::alias;
use core::ffi::{c_int, c_uint};
use rustix::io::Errno;

type OneFn = unsafe extern "C-unwind" fn(c_int) -> c_int;
type TwoFn = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
type ThreeFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type RangeFn = unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int;
type PipeFn = unsafe extern "C-unwind" fn(*mut c_int) -> c_int;
type Pipe2Fn = unsafe extern "C-unwind" fn(*mut c_int, c_int) -> c_int;

/// Tells the library about a descriptor that was just made. Returns `fd`.
#[inline]
pub(crate) fn opened(fd: c_int, origin: Origin) -> c_int {
    // A library that is not initialized knows no number, and takes all for such.
    if fd >= 0 && (origin != Origin::Unknown || is_initialized()) {
        tell(|library| library.opened(fd, origin));
    }
    fd
}

/// Makes a call that makes or names numbers and does not wait in the kernel.
///
/// A library that is not initialized has no descriptor of its own.
/// During the call, no other thread makes a descriptor of the library's own where the call could
/// meet it. There is no guard value to drop, because a thread that is cancelled inside the call
/// must have nothing to clean up.
#[inline]
pub(crate) fn numbering(kernel: impl Kernel) -> isize {
    if !is_initialized() || !is_open() {
        return kernel();
    }
    numbers::begin();
    let result = kernel();
    numbers::end();
    if result < 0 && gives_back() { kernel() } else { result }
}

/// Returns true if a call has failed because the process has too many descriptors, and the library
/// has closed some of its own.
#[cold]
fn gives_back() -> bool {
    errno::value() == libc::EMFILE && within(Library::gives_numbers_back) == Some(true)
}

/// Makes a call as [`numbering`] does, for calls that take their number first and may then wait in
/// the kernel.
#[inline]
pub(crate) fn numbering_first(kernel: impl Kernel) -> isize {
    if !is_initialized() || !is_open() {
        return kernel();
    }
    numbers::pass();
    let result = kernel();
    if result < 0 && gives_back() { kernel() } else { result }
}

/// Makes a call as [`numbering_first`] does, for calls that return a stream or null.
#[inline]
pub(crate) fn numbering_stream<T>(kernel: impl Fn() -> *mut T) -> *mut T {
    if !is_initialized() || !is_open() {
        return kernel();
    }
    numbers::pass();
    let result = kernel();
    if result.is_null() && gives_back() { kernel() } else { result }
}

/// Returns true if `fd` is the library's own.
#[inline]
pub(crate) fn is_own(fd: c_int) -> bool {
    is_initialized() && is_open() && within(|library| library.is_own(fd)) == Some(true)
}

/// Sets `EBADF` and returns -1.
pub(crate) fn not_open() -> c_int {
    errno::set(Errno::BADF);
    -1
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    close_by(fd, unsafe { kernel!(SYS_close, c"close" as OneFn; fd) }) as c_int
}

/// Serves [`close`]; `kernel` makes the kernel's call.
pub(crate) fn close_by(fd: c_int, kernel: impl Kernel) -> isize {
    if is_initialized()
        && is_open()
        && within(|library| {
            !library.is_own(fd) && {
                library.closing(fd);
                true
            }
        }) == Some(false)
    {
        return not_open() as isize;
    }
    let result = numbering(kernel);
    tell_if_initialized(Library::ended);
    result
}

alias!(__close = close);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    close_range_by(first, last, flags, |first, last| {
        // SAFETY: closes a part of the range that the program names.
        unsafe { next!(c"close_range" as RangeFn)(first, last, flags) }
    })
}

/// Serves [`close_range`]; `kernel` makes the kernel's call.
pub(crate) fn close_range_by(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    kernel: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    const KNOWN: c_uint = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    let flags = flags as c_uint;
    // The kernel refuses these calls (close_range(2)), and nothing changes.
    if !is_initialized() || !is_open() || first > last || flags & !KNOWN != 0 {
        return kernel(first, last);
    }
    if flags & libc::CLOSE_RANGE_UNSHARE != 0 {
        tell(|library| {
            library.all_home(crate::library::ReasonT::Operation, true);
            // The library's threads would keep the old descriptor table, and with it the
            // descriptors that the program closes in its new one.
            library.end_threads();
        });
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 {
        tell(|library| library.closing_range(first, last));
    }
    let kernel = |first, last| numbering(|| kernel(first, last) as isize) as c_int;
    let result = around_own(first, last, kernel);
    tell(Library::ended);
    result
}

/// Calls `range` for the numbers from `first` to `last`, except the library's own.
fn around_own(first: c_uint, last: c_uint, range: impl Fn(c_uint, c_uint) -> c_int) -> c_int {
    let mut first = first;
    loop {
        let own = within(|library| library.next_own(first)).flatten().filter(|own| *own <= last);
        let Some(own) = own else { return range(first, last) };
        if own > first && range(first, own - 1) != 0 {
            return -1;
        }
        if own == last {
            return 0;
        }
        first = own + 1;
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0) as c_uint;
    let has_own = || within(|library| library.next_own(first)).flatten().is_some();
    if is_initialized() && is_open() && has_own() {
        // SAFETY: closes descriptors, as the C library's `closefrom` does.
        unsafe { close_range(first, c_uint::MAX, 0) };
        return;
    }
    tell_if_initialized(|library| library.closing_range(first, c_uint::MAX));
    // SAFETY: the program's number, or 0 for a negative one, as in the C library.
    unsafe { next!(c"closefrom" as unsafe extern "C-unwind" fn(c_int))(first as c_int) }
    tell_if_initialized(Library::ended);
}

/// Tells the library that `new` is now a duplicate of `old`, unless the call failed. Returns `new`.
#[inline]
pub(crate) fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        tell_if_initialized(|library| library.duplicated(old, new));
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    dup_by(old, unsafe { kernel!(SYS_dup, c"dup" as OneFn; old) }) as c_int
}

/// Serves [`dup`]; `kernel` makes the kernel's call.
pub(crate) fn dup_by(old: c_int, kernel: impl Kernel) -> isize {
    let new = if is_own(old) { not_open() } else { duplicated(old, numbering(kernel) as c_int) };
    new as isize
}

/// Replaces `new` by a duplicate of `old`. The session at `new` ends only if `old` is open:
/// otherwise the kernel refuses the call.
pub(crate) fn replace(old: c_int, new: c_int, kernel: impl Kernel) -> isize {
    if !is_initialized() || !is_open() {
        return kernel();
    }
    if is_own(old) {
        return not_open() as isize;
    }
    if is_own(new) && raw::is_open(old) {
        tell(|library| library.vacate(new));
    }
    if old != new && new >= 0 && raw::is_open(old) {
        tell(|library| library.replacing(new));
    }
    let result = numbering(kernel);
    tell(Library::ended);
    if result >= 0 && old != new { duplicated(old, new) as isize } else { result }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    replace(old, new, unsafe { kernel!(older SYS_dup2, c"dup2" as TwoFn; old, new) }) as c_int
}

alias!(__dup2 = dup2);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_dup3, c"dup3" as ThreeFn; old, new, flags) };
    dup3_by(old, new, flags, kernel) as c_int
}

/// Serves [`dup3`]; `kernel` makes the kernel's call.
pub(crate) fn dup3_by(old: c_int, new: c_int, flags: c_int, kernel: impl Kernel) -> isize {
    if flags & !libc::O_CLOEXEC != 0 {
        return kernel();
    }
    replace(old, new, kernel)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    pipe_by(ends, unsafe { kernel!(older SYS_pipe, c"pipe" as PipeFn; ends) }) as c_int
}

alias!(__pipe = pipe);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    pipe_by(ends, unsafe { kernel!(SYS_pipe2, c"pipe2" as Pipe2Fn; ends, flags) }) as c_int
}

/// Serves [`pipe`] and [`pipe2`]; `kernel` makes the kernel's call.
pub(crate) fn pipe_by(ends: *const c_int, kernel: impl Kernel) -> isize {
    let result = numbering(kernel);
    if result == 0 {
        // SAFETY: the kernel has just written both numbers.
        let [reader, writer] = unsafe { ends.cast::<[c_int; 2]>().read_unaligned() };
        opened(reader, Origin::Fresh);
        opened(writer, Origin::Fresh);
        tell(|library| library.pipe_made());
    }
    result
}
