//! The sending side of a stream: space lent from the ring, or from a private buffer.
//!
//! Not here: the types that Rust programs use (`sender`).

use crate::descriptor::Kind;
use crate::error::Error;
use crate::lender::{self, OnLoan, STORE_BYTES, until_ns};
use core::ffi::c_int;
use sojourn_lending::{self as table, Lent, RawPiece, Table};
use sojourn_shm::Deadline;

/// The sending side.
#[derive(Debug)]
pub(crate) struct Outgoing {
    kind: Kind,
    table: Option<&'static Table>,
    store: Vec<u8>,
    on_loan: OnLoan,
    /// Bytes of `out` that are committed and have to go by the descriptor, and those of them that
    /// have gone. A program that has reserved has committed nothing (0).
    committed: usize,
    sent: usize,
}

// SAFETY: pointers are to memory of `store`, or of a ring that the lender keeps mapped.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(crate) fn new(fd: c_int) -> Result<Self, Error> {
        let (kind, table) = (Kind::of(fd)?, lender::find());
        Ok(Self { kind, table, store: Vec::new(), on_loan: OnLoan::Nothing, committed: 0, sent: 0 })
    }

    /// Lends space: at least `at_least` bytes. Sends first what is committed. A reservation before
    /// is cancelled.
    pub(crate) fn reserve(
        &mut self,
        fd: c_int,
        at_least: usize,
        max: usize,
        until: Deadline,
    ) -> Result<usize, Error> {
        self.flush(fd, until)?;
        self.end();
        let at_least = at_least.max(1);
        let max = max.max(at_least);
        if let Some(table) = self.table {
            let mut lent = Lent::NONE;
            let until = until_ns(until);
            // SAFETY: room for the answer.
            match unsafe { (table.reserve)(fd, at_least, max, until, &raw mut lent) } {
                table::LENT => self.on_loan = OnLoan::Ring(lent),
                table::TIMED_OUT => return Err(Error::TimedOut),
                table::INTERRUPTED => return Err(Error::Interrupted),
                _ => {}
            }
        }
        if matches!(self.on_loan, OnLoan::Nothing) {
            let len = max.min(at_least.max(STORE_BYTES));
            if self.store.len() < len {
                self.store.resize(len, 0);
            }
            self.on_loan = OnLoan::Store(len);
        }
        let [first, second] = self.pieces();
        Ok(first.len + second.len)
    }

    /// Returns the lent space in order.
    pub(crate) fn pieces(&mut self) -> [RawPiece; 2] {
        match &self.on_loan {
            OnLoan::Nothing => [RawPiece::NONE; 2],
            OnLoan::Ring(lent) => lent.pieces,
            OnLoan::Store(len) => {
                [RawPiece { at: self.store.as_mut_ptr(), len: *len }, RawPiece::NONE]
            }
        }
    }

    /// Commits the first `len` bytes of the lent space, and waits until they are on their way.
    pub(crate) fn commit(&mut self, fd: c_int, len: usize, until: Deadline) -> Result<(), Error> {
        let [first, second] = self.pieces();
        if len > first.len + second.len || self.committed > 0 {
            return Err(Error::System(libc::EINVAL));
        }
        if len == 0 {
            self.end();
            return Ok(());
        }
        if let (OnLoan::Ring(lent), Some(table)) = (&mut self.on_loan, self.table) {
            // SAFETY: lent by this table and not ended yet.
            if unsafe { (table.commit)(&raw mut *lent, len) } == table::LENT {
                self.on_loan = OnLoan::Nothing;
                return Ok(());
            }
        }
        (self.committed, self.sent) = (len, 0);
        self.flush(fd, until)
    }

    /// Sends what is committed.
    pub(crate) fn flush(&mut self, fd: c_int, until: Deadline) -> Result<(), Error> {
        while self.sent < self.committed {
            let [first, second] = self.pieces();
            let (piece, skip) = match self.sent < first.len {
                true => (first, self.sent),
                false => (second, self.sent - first.len),
            };
            let len = (piece.len - skip).min(self.committed - self.sent);
            // SAFETY: `skip` is less than the piece's length.
            let rest = RawPiece { at: unsafe { piece.at.add(skip) }, len };
            match self.kind.send(fd, rest, until) {
                Ok(sent) => self.sent += sent,
                Err(Error::System(number)) => {
                    // Nobody will take these bytes any more.
                    self.end();
                    return Err(Error::System(number));
                }
                Err(error) => return Err(error),
            }
        }
        if self.committed > 0 {
            self.end();
        }
        Ok(())
    }

    /// Returns the number of committed bytes that are not sent yet.
    pub(crate) fn pending(&self) -> usize {
        self.committed - self.sent
    }

    /// Cancels the reservation, if there is one: nothing of it is sent.
    pub(crate) fn cancel(&mut self) {
        if self.committed == 0 {
            self.end();
        }
    }

    /// Ends the lending, whatever was committed.
    fn end(&mut self) {
        (self.committed, self.sent) = (0, 0);
        if let (OnLoan::Ring(mut lent), Some(table)) =
            (core::mem::replace(&mut self.on_loan, OnLoan::Nothing), self.table)
        {
            // SAFETY: lent by this table and not ended yet.
            unsafe { (table.forget)(&raw mut lent) };
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.end();
    }
}
