//! Operations on descriptor numbers of the program in whose process this code runs.
//!
//! A library that serves a program's calls gets plain numbers and must use them as the kernel
//! would: the file that is open there now, or `EBADF`. Not here: descriptors that the library owns
//! ([`crate::MovableFd`]).

use rustix::fd::BorrowedFd;
use rustix::io::IoSlice;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` is the same number (`linux/sockios.h`).
const TIOCOUTQ: Opcode = 0x5411;

/// Returns the descriptor that the program has open at `number`; `None` for negative numbers.
/// Nothing keeps the descriptor open: the program may close it at any time, and a call with it then
/// fails with `EBADF`, as for any caller.
#[inline]
pub fn of_program(number: i32) -> Option<BorrowedFd<'static>> {
    if number < 0 {
        return None;
    }
    // SAFETY: not -1, as checked. The program may close the number; no memory depends on it.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Returns the number of bytes written to a TCP socket that the peer has not acknowledged:
/// `SIOCOUTQ`, tcp(7).
///
/// # Errors
/// Those of ioctl(2).
pub fn output_queue(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    // SAFETY: `SIOCOUTQ` writes one `int`.
    let len = unsafe { ioctl(fd, Getter::<{ TIOCOUTQ }, i32>::new())? };
    Ok(u64::try_from(len).unwrap_or(0))
}

/// Returns the result of a call of the C library's, which leaves the error in `errno`.
pub(crate) fn result(status: i64) -> rustix::io::Result<i64> {
    if status < 0 {
        let error = std::io::Error::last_os_error();
        return Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO));
    }
    Ok(status)
}

/// Reads from a file straight into shared memory, at `offset` or at the file's position. Returns
/// the number of bytes read.
///
/// # Errors
/// Those of pread(2).
pub fn read_into(
    file: BorrowedFd<'_>,
    offset: Option<u64>,
    target: crate::Span<'_>,
) -> rustix::io::Result<usize> {
    // SAFETY: the span is `len` bytes of a mapping; nobody in this process holds references into
    // it, and that others see or change the bytes meanwhile is what shared memory is.
    let buf = unsafe {
        core::slice::from_raw_parts_mut(
            target.as_ptr().cast::<core::mem::MaybeUninit<u8>>(),
            target.len(),
        )
    };
    let read = match offset {
        Some(offset) => rustix::io::pread(file, buf, offset)?.0.len(),
        None => rustix::io::read(file, buf)?.0.len(),
    };
    Ok(read)
}

/// Sends all parts straight from shared memory, without waiting and without `SIGPIPE`. Returns the
/// number of bytes sent.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send_from<const PARTS: usize>(
    socket: BorrowedFd<'_>,
    source: [Option<crate::Span<'_>>; PARTS],
) -> rustix::io::Result<usize> {
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let mut ancillary = rustix::net::SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, &source.map(as_slice), &mut ancillary, flags)
}

/// Writes all parts straight from shared memory. Returns the number of bytes written.
///
/// # Errors
/// Those of writev(2).
pub fn write_from<const PARTS: usize>(
    file: BorrowedFd<'_>,
    source: [Option<crate::Span<'_>>; PARTS],
) -> rustix::io::Result<usize> {
    rustix::io::writev(file, &source.map(as_slice))
}

/// Returns a slice of the bytes for a system call that reads them.
fn as_slice<'a>(span: Option<crate::Span<'a>>) -> IoSlice<'a> {
    // SAFETY: as in `read_into`; the slice goes to the kernel, nothing here looks at its bytes.
    let bytes =
        |span: crate::Span<'a>| unsafe { core::slice::from_raw_parts(span.as_ptr(), span.len()) };
    IoSlice::new(span.map_or(&[], bytes))
}
