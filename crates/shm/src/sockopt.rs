//! Socket options by level and number, for those that have no safe wrapper or are chosen by a
//! program.
//!
//! Not here: the meaning of the options (`sojourn-options`).

use crate::descriptor::result;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Result;

/// Reads an option into `value`, as far as the kernel has bytes, and returns the length that the
/// kernel tells (bytes, for most options).
///
/// # Errors
/// Those of getsockopt(2).
pub fn option(socket: impl AsFd, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: `value` has `len` bytes, which is the most that the kernel writes.
    let status = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    result(status.into())?;
    Ok(len as usize)
}

/// Reads an option that is one number.
///
/// # Errors
/// Those of getsockopt(2).
pub fn option_number(socket: impl AsFd, level: i32, name: i32) -> Result<i32> {
    let mut value = [0; 4];
    option(socket, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// Sets an option.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel reads `value` and no further.
    let status = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::setsockopt(fd, level, name, value.as_ptr().cast(), len)
    };
    result(status.into())?;
    Ok(())
}

/// Returns the number of instructions of the socket's filter (`SO_GET_FILTER`); 0 without one.
///
/// # Errors
/// `EACCES` if the filter is an eBPF program (socket(7), `SO_ATTACH_BPF`), which the kernel does
/// not show; others of getsockopt(2).
pub fn filter_len(socket: impl AsFd) -> Result<usize> {
    option(socket, libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut [])
}

/// Returns true if the socket has an eBPF program as its filter.
pub fn has_hidden_filter(socket: impl AsFd) -> bool {
    filter_len(socket) == Err(rustix::io::Errno::ACCESS)
}

/// Returns true if the socket is in repair mode (`TCP_REPAIR`, as used by CRIU).
pub fn is_in_repair(socket: impl AsFd) -> bool {
    option_number(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR) == Ok(1)
}
