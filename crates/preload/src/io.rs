//! Reading and writing: `read`, `write` and their relatives.
//!
//! Not here: the common part of all data calls (`transfer`), calls with flags (`sockets`).

use crate::buffers::overflow;
use crate::flags::ReceiveFlags;
use crate::guard::kernel;
use crate::guard::{home, is_wide_open};
use crate::library::{Recv, Send, library};
use crate::next::{next, own};
use crate::prototypes::{VectorFn, WriteFn};
use crate::raw::Kernel;
use crate::trampoline::alias;
use crate::transfer::{Buffers, receive, send};
use core::ffi::{c_int, c_void};
use libc::iovec;

/// Returns true if the kernel surely serves calls on `fd`. Like `transfer::is_kernel_only`, but a
/// wrong "false" does no harm: the check takes a dozen instructions and no stack frame, so that
/// programs that only read and write files lose no time.
#[inline(always)]
pub(crate) fn is_surely_kernel_only(fd: c_int) -> bool {
    is_wide_open() && library().is_surely_kernel_only(fd)
}

type ReadFn = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type Vector2Fn = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, i64, c_int) -> isize;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn read(fd: c_int, at: *mut c_void, len: usize) -> isize {
    if is_surely_kernel_only(fd) {
        // SAFETY: the program's arguments, passed on unchanged.
        return unsafe { next!(c"read" as ReadFn)(fd, at, len) };
    }
    read_asking(fd, at, len)
}

/// Serves [`read`] for a descriptor that may have a session or be the library's own.
#[inline(never)]
fn read_asking(fd: c_int, at: *mut c_void, len: usize) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    read_by(fd, at, len, unsafe { kernel!(SYS_read, c"read" as ReadFn; fd, at, len) })
}

/// Serves [`read`]; `kernel` makes the kernel's call.
pub(crate) fn read_by(fd: c_int, at: *mut c_void, len: usize, kernel: impl Kernel) -> isize {
    receive(fd, ReceiveFlags { how: Recv::default(), given: None }, Buffers::one(at, len), kernel)
}

alias!(__read = read);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    room: usize,
) -> isize {
    if len > room {
        overflow();
    }
    let same = own!(read);
    // SAFETY: the same function, after the check of the buffer's length.
    unsafe { core::mem::transmute::<usize, ReadFn>(same)(fd, at, len) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn write(fd: c_int, at: *const c_void, len: usize) -> isize {
    if is_surely_kernel_only(fd) {
        // SAFETY: the program's arguments, passed on unchanged.
        return unsafe { next!(c"write" as WriteFn)(fd, at, len) };
    }
    write_asking(fd, at, len)
}

/// Serves [`write`] for a descriptor that may have a session or be the library's own.
#[inline(never)]
fn write_asking(fd: c_int, at: *const c_void, len: usize) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    write_by(fd, at, len, unsafe { kernel!(SYS_write, c"write" as WriteFn; fd, at, len) })
}

/// Serves [`write`]; `kernel` makes the kernel's call.
pub(crate) fn write_by(fd: c_int, at: *const c_void, len: usize, kernel: impl Kernel) -> isize {
    send(fd, Send::default(), None, Buffers::one(at, len), kernel)
}

alias!(__write = write);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn readv(fd: c_int, at: *const iovec, count: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_readv, c"readv" as VectorFn; fd, at, count) };
    readv_by(fd, at, count as usize, kernel)
}

/// Serves [`readv`]; `kernel` makes the kernel's call.
pub(crate) fn readv_by(fd: c_int, at: *const iovec, count: usize, kernel: impl Kernel) -> isize {
    receive(
        fd,
        ReceiveFlags { how: Recv::default(), given: None },
        Buffers::Many(at, count),
        kernel,
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn writev(fd: c_int, at: *const iovec, count: c_int) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe { kernel!(SYS_writev, c"writev" as VectorFn; fd, at, count) };
    writev_by(fd, at, count as usize, kernel)
}

/// Serves [`writev`]; `kernel` makes the kernel's call.
pub(crate) fn writev_by(fd: c_int, at: *const iovec, count: usize, kernel: impl Kernel) -> isize {
    send(fd, Send::default(), None, Buffers::Many(at, count), kernel)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = move || unsafe { next!(c"preadv2" as Vector2Fn)(fd, at, count, offset, flags) };
    preadv2_by(fd, at, count as usize, offset, flags, kernel)
}

/// Serves [`preadv2`]; `kernel` makes the kernel's call. Only an offset of -1, which means the
/// file's own position, concerns pipes and sockets (preadv2(2)).
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
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
    receive(fd, ReceiveFlags { how, given: None }, Buffers::Many(at, count), kernel)
}

alias!(preadv64v2 = preadv2);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = move || unsafe { next!(c"pwritev2" as Vector2Fn)(fd, at, count, offset, flags) };
    pwritev2_by(fd, at, count as usize, offset, flags, kernel)
}

/// Serves [`pwritev2`]; `kernel` makes the kernel's call. Only an offset of -1, which means the
/// file's own position, concerns pipes and sockets (pwritev2(2)).
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
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

alias!(pwritev64v2 = pwritev2);
