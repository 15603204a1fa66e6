//! The way in which a receiving call takes bytes from the kernel's socket while its session is on
//! the way out or home.
//!
//! The kernel gives a message's ancillary data (descriptors, credentials) to the call that takes
//! the message's first byte, and drops them if that call has no room for them (unix(7)). So the
//! library never takes a socket's bytes by a call of its own: it decides how many bytes the
//! program's call may have, and the shell takes them with the program's own control buffer. Not
//! here: the choice between kernel and ring (`io::receive`).

use crate::host::kernel;
use crate::session::Session;
use core::sync::atomic::Ordering;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};
use sojourn_session::KindT;

/// Buffers that one look fills, as many as the shell passes at once.
pub(super) const PARTS_MAX: usize = 16;

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

impl Session {
    /// Receives from the kernel. The event flag stays set until the kernel has been found empty:
    /// the kernel reports an arrival once, and says nothing of bytes that a call has left there,
    /// for which other threads may be waiting.
    pub(super) fn receive_at_kernel(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Result<usize, Errno> {
        loop {
            let found = self.take(bufs, peek, kernel);
            if found != Err(Errno::AGAIN) {
                self.rx_kernel_event.store(true, Ordering::SeqCst);
                return found;
            }
            // An event came between the look and this line. Another look finds its bytes, and arms
            // the report of later ones.
            if !self.rx_kernel_event.swap(false, Ordering::SeqCst) {
                return found;
            }
        }
    }

    /// Receives at most `max` bytes from the kernel, into the first buffers that have room.
    pub(crate) fn receive_some(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        max: usize,
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Result<usize, Errno> {
        let mut parts: [_; PARTS_MAX] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut count, mut left) = (0, max);
        let wanted = bufs.iter_mut().filter(|buf| !buf.is_empty());
        for (part, buf) in parts.iter_mut().zip(wanted) {
            let len = buf.len().min(left);
            if len == 0 {
                break;
            }
            *part = IoSliceMut::new(&mut buf[..len]);
            (count, left) = (count + 1, left - len);
        }
        if count == 0 {
            return Ok(0);
        }
        self.rx_kernel_event.store(false, Ordering::SeqCst);
        self.take(&mut parts[..count], peek, kernel)
    }

    /// Takes bytes from the kernel, without waiting.
    fn take(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Result<usize, Errno> {
        match self.kind() {
            KindT::Pipe => kernel::read_pipe(self.number(), bufs),
            _ => kernel.take(self.number(), bufs, peek),
        }
    }
}
