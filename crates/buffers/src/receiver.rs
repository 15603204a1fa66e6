//! What a Rust program receives with: [`Receiver`], and the bytes that it lends.
//!
//! Not here: where the bytes are (`incoming`).

use crate::error::Error;
use crate::incoming::Incoming;
use crate::piece::{self, Piece};
use sojourn_shm::Deadline;
use std::os::fd::{AsFd, AsRawFd};

/// The receiving side of a stream.
///
/// A receiver may hold bytes that it has taken from the descriptor and that the program has not
/// used up. So everything that is received comes through one receiver, and a program waits for the
/// descriptor (`epoll`) only after [`Receiver::loan`] has returned [`Error::TimedOut`].
#[derive(Debug)]
pub struct Receiver<F> {
    fd: F,
    incoming: Incoming,
}

impl<F: AsFd> Receiver<F> {
    /// Receives from a stream socket, or from a pipe.
    ///
    /// # Errors
    /// `EPROTOTYPE` for a socket that is no stream, and those of getsockopt(2).
    pub fn new(fd: F) -> Result<Self, Error> {
        let incoming = Incoming::new(fd.as_fd().as_raw_fd())?;
        Ok(Self { fd, incoming })
    }

    /// Waits for at least `at_least` bytes, and lends `max` of those that have arrived at most. A
    /// loan has fewer than `at_least` bytes only if no more will come.
    ///
    /// # Errors
    /// [`Error::TimedOut`] and [`Error::Interrupted`]: what has arrived is kept. Those of recv(2).
    pub fn loan(
        &mut self,
        at_least: usize,
        max: usize,
        until: Deadline,
    ) -> Result<Loan<'_>, Error> {
        let fd = self.fd.as_fd().as_raw_fd();
        let len = self.incoming.lend(fd, at_least, max, until)?;
        Ok(Loan { incoming: &mut self.incoming, len })
    }

    /// Does the same, and copies the bytes to private memory if they are not there yet: nobody can
    /// change them after this.
    ///
    /// # Errors
    /// As for [`Receiver::loan`].
    pub fn loan_copied(
        &mut self,
        at_least: usize,
        max: usize,
        until: Deadline,
    ) -> Result<Copied<'_>, Error> {
        let fd = self.fd.as_fd().as_raw_fd();
        let len = self.incoming.lend(fd, at_least, max, until)?;
        self.incoming.copy();
        Ok(Copied { loan: Loan { incoming: &mut self.incoming, len } })
    }

    /// Returns the descriptor, for `epoll` and options.
    pub fn get_ref(&self) -> &F {
        &self.fd
    }
}

/// Bytes that have arrived, lent to the program. A loan that is dropped gives all of them back
/// unused: the next one begins with the same byte.
#[derive(Debug)]
pub struct Loan<'r> {
    incoming: &'r mut Incoming,
    len: usize,
}

impl Loan<'_> {
    /// Returns the number of bytes; 0: the stream has ended.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the stream has ended.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes where they lie, in order.
    pub fn pieces(&self) -> [Piece<'_>; 2] {
        // SAFETY: mapped until they are given back, which ends this borrow.
        self.incoming.pieces().map(|raw| unsafe { Piece::new(raw) })
    }

    /// Copies bytes from byte `from` on to `target`; returns their number.
    pub fn copy_to(&self, from: usize, target: &mut [u8]) -> usize {
        piece::copy_to(&self.pieces(), from, target)
    }

    /// Returns the place of the first such byte from byte `from` on.
    pub fn find(&self, byte: u8, from: usize) -> Option<usize> {
        piece::find(&self.pieces(), byte, from)
    }

    /// Gives all bytes back, the first `len` of them used up.
    pub fn give_back(self, len: usize) {
        self.incoming.give_back(len);
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.incoming.give_back(0);
    }
}

/// Bytes that have arrived, in private memory.
#[derive(Debug)]
pub struct Copied<'r> {
    loan: Loan<'r>,
}

impl Copied<'_> {
    /// Gives all bytes back, the first `len` of them used up.
    pub fn give_back(self, len: usize) {
        self.loan.give_back(len);
    }
}

impl core::ops::Deref for Copied<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.loan.incoming.copied()
    }
}
