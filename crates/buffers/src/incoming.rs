//! The receiving side of a stream: bytes lent from the ring, or from a private buffer.
//!
//! The private buffer is used while the ring cannot lend: the session is in the kernel, or the
//! program wants more bytes in one loan than the ring has yet. Bytes in it come before those in the
//! ring. Not here: the types that Rust programs use (`receiver`).

use crate::descriptor::Kind;
use crate::error::Error;
use crate::lender::{self, OnLoan, STORE_BYTES, until_ns};
use crate::piece::{self, Piece};
use core::ffi::c_int;
use sojourn_lending::{self as table, Lent, RawPiece, Table};
use sojourn_shm::Deadline;

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Incoming {
    kind: Kind,
    table: Option<&'static Table>,
    /// Received bytes are those from `from` to `to`.
    store: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes that the program has used up in a ring that froze before they were given back: they
    /// will be received once more, and are thrown away.
    again: usize,
    on_loan: OnLoan,
    /// A copy of the bytes that are lent from the ring, for a loan that wants one.
    copy: Vec<u8>,
}

// SAFETY: pointers are to memory of `store`, or of a ring that the lender keeps mapped.
unsafe impl Send for Incoming {}

impl Incoming {
    pub(crate) fn new(fd: c_int) -> Result<Self, Error> {
        let (kind, table) = (Kind::of(fd)?, lender::find());
        let (store, copy) = (Vec::new(), Vec::new());
        Ok(Self { kind, table, store, from: 0, to: 0, again: 0, on_loan: OnLoan::Nothing, copy })
    }

    /// Lends bytes: at least `at_least`, or fewer at the end. Ends the loan before.
    pub(crate) fn lend(
        &mut self,
        fd: c_int,
        at_least: usize,
        max: usize,
        until: Deadline,
    ) -> Result<usize, Error> {
        self.give_back(0);
        let at_least = at_least.max(1);
        let max = max.max(at_least);
        if self.from == self.to
            && self.again == 0
            && let Some(table) = self.table
            && let Some(len) = self.lend_ring(table, fd, until, at_least, max)?
        {
            return Ok(len);
        }
        self.fill(fd, at_least, until)?;
        let len = (self.to - self.from).min(max);
        self.on_loan = OnLoan::Store(len);
        Ok(len)
    }

    /// Returns the lent bytes in order.
    pub(crate) fn pieces(&self) -> [RawPiece; 2] {
        match &self.on_loan {
            OnLoan::Nothing => [RawPiece::NONE; 2],
            OnLoan::Ring(lent) => lent.pieces,
            OnLoan::Store(len) => {
                let bytes = &self.store[self.from..self.from + len];
                // The buffer is private, so nobody else writes to it.
                [RawPiece { at: bytes.as_ptr().cast_mut(), len: *len }, RawPiece::NONE]
            }
        }
    }

    /// Copies the lent bytes to private memory, if they are not there.
    pub(crate) fn copy(&mut self) {
        let OnLoan::Ring(lent) = &self.on_loan else { return };
        // SAFETY: lent, and so mapped; the pieces end with this call.
        let pieces = lent.pieces.map(|raw| unsafe { Piece::new(raw) });
        let len = pieces[0].len() + pieces[1].len();
        if self.copy.len() < len {
            self.copy.resize(len, 0);
        }
        piece::copy_to(&pieces, 0, &mut self.copy[..len]);
    }

    /// Returns the lent bytes in private memory, after [`Incoming::copy`].
    pub(crate) fn copied(&self) -> &[u8] {
        match &self.on_loan {
            OnLoan::Nothing => &[],
            OnLoan::Store(len) => &self.store[self.from..self.from + len],
            OnLoan::Ring(lent) => &self.copy[..lent.pieces[0].len + lent.pieces[1].len],
        }
    }

    /// Takes the lent bytes back; the first `len` are used up.
    pub(crate) fn give_back(&mut self, len: usize) {
        match core::mem::replace(&mut self.on_loan, OnLoan::Nothing) {
            OnLoan::Nothing => {}
            OnLoan::Store(lent) => self.from += len.min(lent),
            OnLoan::Ring(mut lent) => {
                let len = len.min(lent.pieces[0].len + lent.pieces[1].len);
                let back = self.table.map_or(table::LENT, |table| {
                    // SAFETY: lent by this table and not ended yet.
                    unsafe { (table.give_back)(&raw mut lent, len) }
                });
                if back != table::LENT {
                    self.again += len;
                }
            }
        }
    }

    fn lend_ring(
        &mut self,
        table: &Table,
        fd: c_int,
        until: Deadline,
        at_least: usize,
        max: usize,
    ) -> Result<Option<usize>, Error> {
        let mut lent = Lent::NONE;
        let until = until_ns(until);
        // SAFETY: room for the answer.
        match unsafe { (table.loan)(fd, at_least, max, until, &raw mut lent) } {
            table::LENT => {
                let len = lent.pieces[0].len + lent.pieces[1].len;
                self.on_loan = OnLoan::Ring(lent);
                Ok(Some(len))
            }
            table::TIMED_OUT => Err(Error::TimedOut),
            table::INTERRUPTED => Err(Error::Interrupted),
            _ => Ok(None),
        }
    }

    /// Receives into the private buffer until `at_least` bytes are there, or the stream ends.
    fn fill(&mut self, fd: c_int, at_least: usize, until: Deadline) -> Result<(), Error> {
        self.make_room(at_least);
        while self.again > 0 {
            let part = self.again.min(self.store.len());
            match self.kind.receive(fd, &mut self.store[..part], until)? {
                0 => return Ok(()),
                got => self.again -= got,
            }
        }
        while self.to - self.from < at_least {
            let there = self.to - self.from;
            // No more than is missing, if the ring has the rest: later bytes are lent from there.
            let end = match self.table {
                Some(_) if there > 0 => self.to + (at_least - there),
                _ => self.store.len(),
            };
            match self.kind.receive(fd, &mut self.store[self.to..end], until)? {
                0 => return Ok(()),
                got => self.to += got,
            }
        }
        Ok(())
    }

    /// Makes room for `at_least` bytes, those that are there among them.
    fn make_room(&mut self, at_least: usize) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        if self.store.len() - self.from < at_least {
            self.store.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.store.len() < at_least.max(STORE_BYTES) {
            self.store.resize(at_least.max(STORE_BYTES), 0);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.give_back(0);
    }
}
