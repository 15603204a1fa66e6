//! Copying from descriptor to descriptor: `sendfile`, `splice` and relatives.
//!
//! A session can send a regular file's bytes. All other calls are for the kernel, with the sessions
//! at home.

use crate::buffers;
use crate::errno;
use crate::guard::home;
use crate::guard::kernel;
use crate::guard::within;
use crate::library::{Call, Route};
use crate::raw::{self, Kernel};
use crate::trampoline::alias;
use crate::transfer::{counted, receive_route, send_by_kernel, send_route};
use crate::vectors::TRANSFER_MAX;
use core::ffi::{c_int, c_uint};
use libc::{iovec, off64_t};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

type SendFileFn = unsafe extern "C-unwind" fn(c_int, c_int, *mut off64_t, usize) -> isize;
type SpliceFn =
    unsafe extern "C-unwind" fn(c_int, *mut off64_t, c_int, *mut off64_t, usize, c_uint) -> isize;
type TeeFn = unsafe extern "C-unwind" fn(c_int, c_int, usize, c_uint) -> isize;
type VmSpliceFn = unsafe extern "C-unwind" fn(c_int, *const iovec, usize, c_uint) -> isize;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_sendfile, c"sendfile" as SendFileFn; out, file, offset, count) };
    sendfile_by(out, file, offset, count, kernel)
}

/// Serves [`sendfile`]; `kernel` makes the kernel's call.
pub(crate) fn sendfile_by(
    out: c_int,
    file: c_int,
    offset: *mut off64_t,
    count: usize,
    kernel: impl Kernel,
) -> isize {
    // The kernel has rules of its own for other sources (sendfile(2)): it refuses most, and takes
    // from some only what is there. If one is a session, it finds its bytes in the kernel.
    if let Route::Stream(_) | Route::Datagrams(_) = receive_route(file) {
        home(file, true);
    }
    loop {
        match send_route(out) {
            Route::Plain => return kernel(),
            Route::Kernel(usage) => return counted(usage, kernel),
            Route::Datagrams(_) => return kernel(),
            Route::Stream(call) => {
                if !is_readable_file(file) {
                    return send_by_kernel(out, false, kernel);
                }
                // The kernel refuses these, also a count that is negative as `ssize_t`.
                let is_refused = file < 0 || isize::try_from(count).is_err();
                if is_refused || (!offset.is_null() && !buffers::is_writable(offset)) {
                    return kernel();
                }
                // SAFETY: null, or writable, as checked above, and so readable.
                let start = (!offset.is_null()).then(|| unsafe { offset.read_unaligned() });
                if start.is_some_and(|start| start < 0) {
                    return kernel();
                }
                if let Some(FileSent { result, end }) =
                    send_file_on(&call, file, start, count.min(TRANSFER_MAX))
                {
                    if let (Some(end), false) = (end, offset.is_null()) {
                        // SAFETY: writable, as checked above.
                        unsafe { offset.write_unaligned(end) };
                    }
                    return errno::count(result);
                }
            }
        }
    }
}

/// Returns true if `file` is a regular file of which any bytes can be read to any memory.
fn is_readable_file(file: c_int) -> bool {
    const ELSEWHERE: c_int = libc::O_DIRECT | libc::O_PATH;
    let arguments = [file as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: reads flags.
    let flags = unsafe { raw::call(libc::SYS_fcntl, arguments) } as c_int;
    let is_regular = raw::mode(file as usize) & libc::S_IFMT == libc::S_IFREG;
    is_regular && flags >= 0 && flags & ELSEWHERE == 0
}

/// The outcome of sending a part of a file.
struct FileSent {
    /// The bytes sent.
    result: Result<usize, Errno>,
    /// The offset behind them, if the call has one.
    end: Option<off64_t>,
}

#[inline(never)]
fn send_file_on(
    call: &Call<'static>,
    file: c_int,
    start: Option<off64_t>,
    count: usize,
) -> Option<FileSent> {
    let mut at = start.map(|start| start as u64);
    let result = within(|_| {
        // SAFETY: the number is not negative; the kernel finds out if it is open.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        call.send_file(file, at.as_mut(), count)
    })??;
    Some(FileSent { result, end: at.map(|at| at as off64_t) })
}

alias!(sendfile64 = sendfile);

/// Serves a call on a descriptor that stays in the kernel from now on.
pub(crate) fn home_by(fd: c_int, kernel: impl Kernel) -> isize {
    home(fd, true);
    kernel()
}

/// Serves a call on two descriptors that stay in the kernel from now on.
pub(crate) fn both_home_by(from: c_int, to: c_int, kernel: impl Kernel) -> isize {
    home(from, true);
    home_by(to, kernel)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel = unsafe {
        kernel!(SYS_splice, c"splice" as SpliceFn; from, from_offset, to, to_offset, len, flags)
    };
    both_home_by(from, to, kernel)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn tee(from: c_int, to: c_int, len: usize, flags: c_uint) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    both_home_by(from, to, unsafe { kernel!(SYS_tee, c"tee" as TeeFn; from, to, len, flags) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn vmsplice(
    fd: c_int,
    at: *const iovec,
    count: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: the program's arguments, passed on unchanged.
    home_by(fd, unsafe { kernel!(SYS_vmsplice, c"vmsplice" as VmSpliceFn; fd, at, count, flags) })
}
