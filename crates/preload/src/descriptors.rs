//! Descriptor numbers: closed, duplicated, made.
//!
//! The library has descriptors of its own in the same process. To the program they are not open.

use crate::errno;
use crate::gate::{from_inside, is_open, tell, within};
use crate::library::{Library, Origin};
use crate::next::next;
use crate::raw;
use core::ffi::{c_int, c_uint};
use rustix::io::Errno;

type OneFn = unsafe extern "C-unwind" fn(c_int) -> c_int;
type TwoFn = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
type ThreeFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type RangeFn = unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int;
type PipeFn = unsafe extern "C-unwind" fn(*mut c_int) -> c_int;
type Pipe2Fn = unsafe extern "C-unwind" fn(*mut c_int, c_int) -> c_int;

/// Tells of a descriptor just made; passes on what the call answered.
#[inline]
pub(crate) fn opened(fd: c_int, origin: Origin) -> c_int {
    if fd >= 0 {
        tell(|library| library.opened(fd, origin));
    }
    fd
}

/// Whether `fd` is the library's.
#[inline]
pub(crate) fn is_own(fd: c_int) -> bool {
    is_open() && within(|library| library.is_own(fd)) == Some(true)
}

/// `EBADF`.
pub(crate) fn not_open() -> c_int {
    errno::set(Errno::BADF);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if let Some(result) = from_inside(libc::SYS_close, [fd as usize, 0, 0]) {
        return result as c_int;
    }
    if is_open()
        && within(|library| {
            !library.is_own(fd) && {
                library.closing(fd);
                true
            }
        }) == Some(false)
    {
        return not_open();
    }
    // SAFETY: passed on.
    let result = unsafe { next!(c"close" as OneFn)(fd) };
    tell(Library::ended);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the same function.
    unsafe { close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: passed on.
    let kernel = |first, last| unsafe { next!(c"close_range" as RangeFn)(first, last, flags) };
    if !is_open() || first > last {
        return kernel(first, last);
    }
    let flags = flags as c_uint;
    if flags & libc::CLOSE_RANGE_UNSHARE != 0 {
        tell(|library| library.all_home(crate::library::ReasonT::Operation, true));
    }
    if flags & !(libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) == 0
        && flags & libc::CLOSE_RANGE_CLOEXEC == 0
    {
        tell(|library| library.closing_range(first, last));
    }
    let result = around_own(first, last, kernel);
    tell(Library::ended);
    result
}

/// Calls `range` for the numbers from `first` to `last` that are not the library's.
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

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0) as c_uint;
    if is_open() && within(|library| library.next_own(first)).flatten().is_some() {
        // SAFETY: as the C library does it.
        unsafe { close_range(first, c_uint::MAX, 0) };
        return;
    }
    tell(|library| library.closing_range(first, c_uint::MAX));
    // SAFETY: passed on.
    unsafe { next!(c"closefrom" as unsafe extern "C-unwind" fn(c_int))(first as c_int) }
    tell(Library::ended);
}

/// After `new` has become `old`'s duplicate; passes on what the call answered.
#[inline]
pub(crate) fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        tell(|library| library.duplicated(old, new));
    }
    new
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    if is_own(old) {
        return not_open();
    }
    // SAFETY: passed on.
    duplicated(old, unsafe { next!(c"dup" as OneFn)(old) })
}

/// Something else is put on `new`, if the kernel agrees: only then may the session there end.
fn replace(old: c_int, new: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if !is_open() {
        return kernel();
    }
    if is_own(old) || is_own(new) {
        // Ours have the highest numbers that there can be: to the program they are beyond the limit.
        return not_open();
    }
    if old != new && new >= 0 && raw::is_open(old) {
        tell(|library| library.replacing(new));
    }
    let result = kernel();
    tell(Library::ended);
    if result >= 0 && old != new { duplicated(old, new) } else { result }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: passed on.
    replace(old, new, || unsafe { next!(c"dup2" as TwoFn)(old, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the same function.
    unsafe { dup2(old, new) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { next!(c"dup3" as ThreeFn)(old, new, flags) };
    if flags & !libc::O_CLOEXEC != 0 {
        return kernel();
    }
    replace(old, new, kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: passed on.
    made(unsafe { next!(c"pipe" as PipeFn)(ends) }, ends)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pipe(ends: *mut c_int) -> c_int {
    // SAFETY: the same function.
    unsafe { pipe(ends) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: passed on.
    made(unsafe { next!(c"pipe2" as Pipe2Fn)(ends, flags) }, ends)
}

fn made(result: c_int, ends: *const c_int) -> c_int {
    if result == 0 {
        // SAFETY: the kernel has just written both.
        let (reader, writer) = unsafe { (*ends, *ends.add(1)) };
        opened(reader, Origin::Fresh);
        opened(writer, Origin::Fresh);
        tell(|library| library.pipe_made());
    }
    result
}
