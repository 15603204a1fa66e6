//! How a receiving call takes bytes out of the kernel's socket while its session is on the way out
//! or home.
//!
//! What a message carries beside its bytes (descriptors, credentials) the kernel gives to the call
//! that takes the first of them, or throws away if that call has no room for it. So the library
//! never takes a socket's bytes with a call of its own: it says how many the program's call may
//! have, and whoever made that call takes them with the program's own control buffer. Not here: the
//! decision where bytes come from (`receive`).

use crate::host::kernel;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};

/// The kernel's part of one receiving call.
pub trait FromKernel {
    /// Receives from the socket `fd` into `bufs`, without waiting; `peek`: as `MSG_PEEK`.
    ///
    /// # Errors
    /// The kernel's.
    fn take(&mut self, fd: i32, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Whether something came beside the bytes, for which there was room or not: the call ends with
    /// them, as in the kernel, which never puts bytes of two such messages together.
    fn has_ended(&self) -> bool;
}

/// For a call without a control buffer, like `read` and `recv`: what comes beside the bytes is
/// thrown away, as the kernel would.
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
