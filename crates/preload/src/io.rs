//! Reading and writing: `read`, `write` and their relatives. What they have in common with other
//! data calls is `transfer`.

use crate::buffers::overflow;
use crate::guard::kernel;
use crate::guard::{home, is_wide_open};
use crate::library::{Recv, Send, library};
use crate::next::next;
use crate::raw::Kernel;
use crate::transfer::{Buffers, receive, send};
use core::ffi::{c_int, c_void};
use libc::iovec;

/// As `transfer::is_plain`, in a dozen instructions and without a frame, where a no is no harm:
/// programs that only read and write files are to notice nothing.
#[inline(always)]
fn is_surely_plain(fd: c_int) -> bool {
    is_wide_open() && library().is_surely_plain(fd)
}

type ReadFn = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type WriteFn = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
type VectorFn = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> isize;
type Vector2Fn = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, i64, c_int) -> isize;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, at: *mut c_void, len: usize) -> isize {
    if is_surely_plain(fd) {
        // SAFETY: passed on.
        return unsafe { next!(c"read" as ReadFn)(fd, at, len) };
    }
    read_asking(fd, at, len)
}

/// [`read`] of what may have a session, or be the library's own.
#[inline(never)]
fn read_asking(fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: passed on.
    read_by(fd, at, len, unsafe { kernel!(SYS_read, c"read" as ReadFn; fd, at, len) })
}

/// [`read`], with the kernel's call as it is made.
pub(crate) fn read_by(fd: c_int, at: *mut c_void, len: usize, kernel: impl Kernel) -> isize {
    receive(fd, Recv::default(), None, Buffers::one(at, len), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read(fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: the same function.
    unsafe { read(fd, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
) -> isize {
    if len > room {
        overflow();
    }
    // SAFETY: the same function.
    unsafe { read(fd, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, at: *const c_void, len: usize) -> isize {
    if is_surely_plain(fd) {
        // SAFETY: passed on.
        return unsafe { next!(c"write" as WriteFn)(fd, at, len) };
    }
    write_asking(fd, at, len)
}

/// [`write`] of what may have a session, or be the library's own.
#[inline(never)]
fn write_asking(fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: passed on.
    write_by(fd, at, len, unsafe { kernel!(SYS_write, c"write" as WriteFn; fd, at, len) })
}

/// [`write`], with the kernel's call as it is made.
pub(crate) fn write_by(fd: c_int, at: *const c_void, len: usize, kernel: impl Kernel) -> isize {
    send(fd, Send::default(), None, Buffers::one(at, len), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __write(fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: the same function.
    unsafe { write(fd, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, at: *const iovec, count: c_int) -> isize {
    // SAFETY: passed on.
    let kernel = unsafe { kernel!(SYS_readv, c"readv" as VectorFn; fd, at, count) };
    readv_by(fd, at, count as usize, kernel)
}

/// [`readv`], with the kernel's call as it is made.
pub(crate) fn readv_by(fd: c_int, at: *const iovec, count: usize, kernel: impl Kernel) -> isize {
    receive(fd, Recv::default(), None, Buffers::Many(at, count), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, at: *const iovec, count: c_int) -> isize {
    // SAFETY: passed on.
    let kernel = unsafe { kernel!(SYS_writev, c"writev" as VectorFn; fd, at, count) };
    writev_by(fd, at, count as usize, kernel)
}

/// [`writev`], with the kernel's call as it is made.
pub(crate) fn writev_by(fd: c_int, at: *const iovec, count: usize, kernel: impl Kernel) -> isize {
    send(fd, Send::default(), None, Buffers::Many(at, count), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: passed on.
    let kernel = move || unsafe { next!(c"preadv2" as Vector2Fn)(fd, at, count, offset, flags) };
    preadv2_by(fd, at, count as usize, offset, flags, kernel)
}

/// [`preadv2`], with the kernel's call as it is made.
pub(crate) fn preadv2_by(
    fd: c_int,
    at: *const iovec,
    count: usize,
    offset: i64,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    if offset != -1 {
        return kernel();
    }
    if flags & !libc::RWF_NOWAIT != 0 {
        home(fd, true);
        return kernel();
    }
    let how = Recv { dont_wait: flags & libc::RWF_NOWAIT != 0, ..Recv::default() };
    receive(fd, how, None, Buffers::Many(at, count), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the same function.
    unsafe { preadv2(fd, at, count, offset, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: passed on.
    let kernel = move || unsafe { next!(c"pwritev2" as Vector2Fn)(fd, at, count, offset, flags) };
    pwritev2_by(fd, at, count as usize, offset, flags, kernel)
}

/// [`pwritev2`], with the kernel's call as it is made.
pub(crate) fn pwritev2_by(
    fd: c_int,
    at: *const iovec,
    count: usize,
    offset: i64,
    flags: c_int,
    kernel: impl Kernel,
) -> isize {
    if offset != -1 {
        return kernel();
    }
    if flags & !libc::RWF_NOWAIT != 0 {
        home(fd, true);
        return kernel();
    }
    let how = Send { dont_wait: flags & libc::RWF_NOWAIT != 0 };
    send(fd, how, None, Buffers::Many(at, count), kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the same function.
    unsafe { pwritev2(fd, at, count, offset, flags) }
}
