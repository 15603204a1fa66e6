//! What a Rust program sends with: [`Sender`], and the space that it lends.
//!
//! Not here: where the space is (`outgoing`).

use crate::error::Error;
use crate::outgoing::Outgoing;
use crate::piece::{self, Piece};
use sojourn_shm::Deadline;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The sending side of a stream. Everything that is sent goes through one sender: while space is
/// reserved, nothing else can be sent to the stream.
#[derive(Debug)]
pub struct Sender<F> {
    fd: F,
    outgoing: Outgoing,
}

impl<F: AsFd> Sender<F> {
    /// Sends to a stream socket, or to a pipe.
    ///
    /// # Errors
    /// `EPROTOTYPE` for a socket that is no stream, and those of getsockopt(2).
    pub fn new(fd: F) -> Result<Self, Error> {
        let outgoing = Outgoing::new(fd.as_fd().as_raw_fd())?;
        Ok(Self { fd, outgoing })
    }

    /// Waits until there is space for at least `at_least` bytes, and lends space for `max` at most.
    /// Bytes of earlier commits that are still pending are sent first.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Interrupted`], those of send(2) for bytes that were pending.
    pub fn reserve(
        &mut self,
        at_least: usize,
        max: usize,
        until: Deadline,
    ) -> Result<Reservation<'_>, Error> {
        let fd = self.fd.as_fd().as_raw_fd();
        let len = self.outgoing.reserve(fd, at_least, max, until)?;
        Ok(Reservation { outgoing: &mut self.outgoing, fd, len, filled: 0 })
    }

    /// Sends what is committed and still pending.
    ///
    /// # Errors
    /// As for [`Sender::reserve`].
    pub fn flush(&mut self, until: Deadline) -> Result<(), Error> {
        self.outgoing.flush(self.fd.as_fd().as_raw_fd(), until)
    }

    /// Returns the number of bytes that are committed and still pending: those of a commit whose
    /// deadline has passed.
    pub fn pending(&self) -> usize {
        self.outgoing.pending()
    }

    /// Returns the descriptor, for `epoll` and options.
    pub fn get_ref(&self) -> &F {
        &self.fd
    }
}

/// Space for bytes to be sent. A reservation that is dropped sends nothing.
#[derive(Debug)]
pub struct Reservation<'s> {
    outgoing: &'s mut Outgoing,
    fd: i32,
    len: usize,
    filled: usize,
}

impl Reservation<'_> {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false always, since there is space for a byte at least.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the space where it lies, in order.
    pub fn pieces(&mut self) -> [Piece<'_>; 2] {
        // SAFETY: mapped until the commit, which ends this borrow.
        self.outgoing.pieces().map(|raw| unsafe { Piece::new(raw) })
    }

    /// Copies `bytes` to the space from its byte `at` on; returns the number for which there is
    /// space.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> usize {
        piece::copy_from(&self.pieces(), at, bytes)
    }

    /// Returns the number of bytes that [`io::Write`] has put.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Sends the first `len` bytes, and gives up the rest.
    ///
    /// # Errors
    /// [`Error::TimedOut`] and [`Error::Interrupted`]: the bytes are committed, and some are still
    /// pending ([`Sender::flush`]). Those of send(2); `EINVAL` for more bytes than there are.
    pub fn commit(self, len: usize, until: Deadline) -> Result<(), Error> {
        self.outgoing.commit(self.fd, len, until)
    }

    /// Sends the bytes that [`io::Write`] has put.
    ///
    /// # Errors
    /// As for [`Reservation::commit`].
    pub fn commit_filled(self, until: Deadline) -> Result<(), Error> {
        let filled = self.filled;
        self.commit(filled, until)
    }
}

impl io::Write for Reservation<'_> {
    /// Puts bytes behind those put before; there is no space for more than were reserved.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let put = self.put(self.filled, bytes);
        self.filled += put;
        Ok(put)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.outgoing.cancel();
    }
}
