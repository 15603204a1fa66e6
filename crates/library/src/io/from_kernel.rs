//! The way in which a receiving call takes bytes from the kernel's socket while its session is on
//! the way out or home.
//!
//! The kernel gives a message's ancillary data (descriptors, credentials) to the call that takes
//! the message's first byte, and drops them if that call has no room for them (unix(7)). So the
//! library never takes a socket's bytes by a call of its own: it decides how many bytes the
//! program's call may have, and the shell takes them with the program's own control buffer. Not
//! here: the choice between kernel and ring (`io::receive`).

use crate::host::kernel;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};

/// Takes bytes from the kernel on behalf of one receiving call.
pub trait FromKernel {
    /// Receives from the socket `fd` into `bufs`, without waiting; with `peek` the bytes stay.
    ///
    /// # Errors
    /// Those of `recvmsg(2)`.
    fn take(&mut self, fd: i32, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Returns true if ancillary data came with the bytes, whether there was room for the data or
    /// not. The call ends with these bytes: the kernel never joins the bytes of two such messages
    /// in one call (`unix_stream_read_generic`).
    fn has_ended(&self) -> bool;
}

/// Takes bytes for a call without a control buffer, like `read(2)` and `recv(2)`. Ancillary data is
/// dropped, as the kernel would drop it.
#[derive(Debug, Default)]
pub struct BytesOnly {
    has_ended: bool,
}

impl FromKernel for BytesOnly {
    fn take(&mut self, fd: i32, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut flags = RecvFlags::DONTWAIT;
        flags.set(RecvFlags::PEEK, peek);
        let mut beside = RecvAncillaryBuffer::default();
        let got = rustix::net::recvmsg(kernel::at(fd)?, bufs, &mut beside, flags)?;
        self.has_ended |= got.flags.contains(ReturnFlags::CTRUNC);
        Ok(got.bytes)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
