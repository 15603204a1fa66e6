//! System calls on sockets for which there is no safe wrapper: options by number, queue lengths,
//! disconnecting; and polls that do not wait.
//!
//! Not here: repair mode's calls (`repair`).
#![allow(unsafe_code, reason = "system calls that rustix does not have")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use sojourn_options::OptionName;
use sojourn_shm::sockopt;

/// Request for the bytes that were received and not read (`linux/sockios.h`).
pub(crate) const SIOCINQ: libc::c_ulong = 0x541B;
/// Request for the bytes that are not acknowledged, sent or not.
pub(crate) const SIOCOUTQ: libc::c_ulong = 0x5411;
/// Request for the bytes that are not sent yet.
pub(crate) const SIOCOUTQNSD: libc::c_ulong = 0x894B;

fn answer(status: libc::c_int) -> Result<libc::c_int, Errno> {
    if status >= 0 {
        return Ok(status);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns what a poll says of a descriptor at once, of `asked` and of what nobody asks for.
pub(crate) fn polled(fd: impl AsFd, asked: PollFlags) -> PollFlags {
    let mut set = [PollFd::new(&fd, asked)];
    match poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(1) => set[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// Reads an option: fills `value` as far as the kernel has bytes, and returns their number.
///
/// # Errors
/// Those of getsockopt(2).
pub(crate) fn getsockopt(
    fd: impl AsFd,
    option: OptionName,
    value: &mut [u8],
) -> Result<usize, Errno> {
    sockopt::option(fd, option.level, option.number, value)
}

/// Sets an option.
///
/// # Errors
/// Those of setsockopt(2).
pub(crate) fn setsockopt(fd: impl AsFd, option: OptionName, value: &[u8]) -> Result<(), Errno> {
    sockopt::set_option(fd, option.level, option.number, value)
}

/// Reads an option that is one number.
///
/// # Errors
/// Those of getsockopt(2).
pub(crate) fn number(fd: impl AsFd, option: OptionName) -> Result<i32, Errno> {
    sockopt::option_number(fd, option.level, option.number)
}

/// Sets an option that is one number.
///
/// # Errors
/// Those of setsockopt(2).
pub(crate) fn set_number(fd: impl AsFd, option: OptionName, value: i32) -> Result<(), Errno> {
    setsockopt(fd, option, &value.to_ne_bytes())
}

/// Returns the length of a queue: [`SIOCINQ`], [`SIOCOUTQ`] or [`SIOCOUTQNSD`].
///
/// # Errors
/// Those of ioctl(2).
pub(crate) fn queue_len(fd: impl AsFd, queue: libc::c_ulong) -> Result<usize, Errno> {
    let mut len: libc::c_int = 0;
    // SAFETY: both requests write one number.
    answer(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), queue, &raw mut len) })?;
    Ok(len.max(0) as usize)
}

/// Removes bytes from a TCP socket's receive queue without copying them (`MSG_TRUNC`, tcp(7)).
/// Returns how many; fewer than `len` if the queue has not as many.
pub(crate) fn discard(fd: impl AsFd, len: usize) -> usize {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    let mut done = 0;
    while done < len {
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: with `MSG_TRUNC` TCP writes nothing to the buffer.
        let got = unsafe { libc::recv(fd, core::ptr::null_mut(), len - done, flags) };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => break,
        }
    }
    done
}

/// Undoes a connection, by connect(2) with `AF_UNSPEC`.
///
/// # Errors
/// Those of connect(2).
pub(crate) fn disconnect(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: zeroes are an address, of no family.
    let address: libc::sockaddr = unsafe { core::mem::zeroed() };
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`.
    answer(unsafe { libc::connect(fd.as_fd().as_raw_fd(), &raw const address, len) })?;
    Ok(())
}
