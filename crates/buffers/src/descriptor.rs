//! The calls of a program on its descriptor, with deadlines.
//!
//! The C library's functions, which the preload library takes: system calls would go past it. Not
//! here: the buffers.

use crate::error::Error;
use core::ffi::{c_int, c_void};
use core::time::Duration;
use sojourn_lending::RawPiece;
use sojourn_shm::Deadline;

/// The bytes of which a write to a pipe that has any room does not wait (`PIPE_BUF`).
const WHOLE: usize = 4096;

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stream socket: each call says whether it waits.
    Socket,
    /// A pipe, or another descriptor with `read` and `write`.
    Other,
}

impl Kind {
    /// Finds the kind.
    ///
    /// # Errors
    /// `EPROTOTYPE` for a socket that is no stream, and those of getsockopt(2).
    pub(crate) fn of(fd: c_int) -> Result<Self, Error> {
        let mut kind: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        let at = (&raw mut kind).cast::<c_void>();
        // SAFETY: a number and its length, both valid during the call.
        match unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, at, &raw mut len) } {
            0 if kind == libc::SOCK_STREAM => Ok(Self::Socket),
            0 => Err(Error::System(libc::EPROTOTYPE)),
            _ if Error::last() == Error::System(libc::ENOTSOCK) => Ok(Self::Other),
            _ => Err(Error::last()),
        }
    }

    /// Receives at least one byte, or none at the end. Waits until the deadline.
    pub(crate) fn receive(
        self,
        fd: c_int,
        buf: &mut [u8],
        until: Deadline,
    ) -> Result<usize, Error> {
        let flags = if until == Deadline::NEVER { 0 } else { libc::MSG_DONTWAIT };
        let at = buf.as_mut_ptr().cast::<c_void>();
        loop {
            if self == Self::Other && flags != 0 {
                wait(fd, libc::POLLIN, until)?;
            }
            let got = match self {
                // SAFETY: memory of `buf`, which the call writes.
                Self::Socket => unsafe { libc::recv(fd, at, buf.len(), flags) },
                // SAFETY: memory of `buf`, which the call writes.
                Self::Other => unsafe { libc::read(fd, at, buf.len()) },
            };
            match usize::try_from(got) {
                Ok(got) => return Ok(got),
                Err(_) => wait_after(Error::last(), fd, libc::POLLIN, until)?,
            }
        }
    }

    /// Sends at least one byte of the memory, which may be a ring's. Waits until the deadline.
    pub(crate) fn send(self, fd: c_int, from: RawPiece, until: Deadline) -> Result<usize, Error> {
        let waits = if until == Deadline::NEVER { 0 } else { libc::MSG_DONTWAIT };
        let at = from.at.cast::<c_void>().cast_const();
        loop {
            let len = match self {
                Self::Other if waits != 0 => {
                    wait(fd, libc::POLLOUT, until)?;
                    from.len.min(WHOLE)
                }
                _ => from.len,
            };
            let sent = match self {
                // SAFETY: mapped memory, which the call reads.
                Self::Socket => unsafe { libc::send(fd, at, len, waits | libc::MSG_NOSIGNAL) },
                // SAFETY: mapped memory, which the call reads.
                Self::Other => unsafe { libc::write(fd, at, len) },
            };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => wait_after(Error::last(), fd, libc::POLLOUT, until)?,
            }
        }
    }
}

/// Waits after a call that has failed, if it has failed for want of bytes or room.
fn wait_after(error: Error, fd: c_int, event: i16, until: Deadline) -> Result<(), Error> {
    if error == Error::TimedOut { wait(fd, event, until) } else { Err(error) }
}

/// Waits for the event, an error or the end.
fn wait(fd: c_int, event: i16, until: Deadline) -> Result<(), Error> {
    let mut polled = libc::pollfd { fd, events: event, revents: 0 };
    let left = until.left().map(timespec);
    let left = left.as_ref().map_or(core::ptr::null(), |left| left);
    // SAFETY: one descriptor and a time, both valid during the call; no signal mask.
    match unsafe { libc::ppoll(&raw mut polled, 1, left, core::ptr::null()) } {
        0 => Err(Error::TimedOut),
        1.. => Ok(()),
        _ => Err(Error::last()),
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    }
}
