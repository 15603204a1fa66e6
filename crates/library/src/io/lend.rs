//! Memory of a session's ring that is lent to the program: bytes that have arrived, and space for
//! bytes to be sent.
//!
//! The program uses lent memory without any lock, for as long as it likes. Meanwhile the direction
//! is its own: other calls find the ring empty, or full. The positions of the ring move only when
//! memory is given back, or committed; so the peer sees what was committed and nothing else, and
//! overwrites nothing that is lent. Not here: the table by which the program gets here
//! (`sojourn-preload`, `lend`); sessions with other hosts, whose engine lends nothing.
//!
//! # A session that goes home
//! Nothing waits for what is lent. The memory stays mapped until the program gives it back
//! (`Lent::stream`). Space lies behind the ring's last byte, so a freeze does not touch it: a
//! commit says that the bytes have to go by the kernel. Lent bytes count as unread, so they come
//! once more, through the kernel or as owed bytes: giving them back says that, too. Both is decided
//! by the ring's own words, by one exchange.

use crate::fds::slot::{ProcessNumber, Slot};
use crate::host::lock::lock;
use crate::io::placement::Room;
use crate::io::send::ForRoom;
use crate::io::sleep::Waited;
use crate::policy::measured::RINGS;
use crate::process::library::{Library, OwnSession};
use crate::session::Session;
use crate::session::directions::{RxPhase, TxPhase};
use crate::session::identity::Generation;
use crate::session::transport::Local;
use core::sync::atomic::Ordering;
use sojourn_shm::Deadline;
use sojourn_stream::{InPlace, Stop, Stream};
use std::sync::Arc;

/// Memory that is lent. It ends with [`Lent::give_back`], [`Lent::commit`] or [`Lent::forget`].
#[derive(Debug)]
pub struct Lent {
    /// Keeps the memory mapped.
    stream: Arc<Stream>,
    /// The session, and its slot's use, to which the memory belongs.
    slot: Slot,
    generation: Generation,
    /// The process: a child of `fork` does not have the memory.
    process: ProcessNumber,
    len: u32,
}

/// The amount of memory that a call wants.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Fewer bytes than this are of no use; 1 at least.
    pub at_least: usize,
    /// More bytes than this are not wanted.
    pub max: usize,
}

/// Bytes that follow one another in lent memory.
#[derive(Clone, Copy, Debug)]
pub struct LentPiece {
    /// The first byte.
    pub at: *mut u8,
    /// The number of bytes.
    pub len: usize,
}

/// The result of a call that lends.
#[derive(Debug)]
pub enum Lending {
    /// Memory, in order; the second piece may be empty.
    Lent(Lent, [LentPiece; 2]),
    /// The session has nothing to lend: the caller makes an ordinary call.
    Elsewhere,
    /// The time is over.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

enum Step {
    Lent(Lent, [LentPiece; 2]),
    Elsewhere,
    /// There is nothing, or no room, yet.
    Wait,
}

impl OwnSession<'_> {
    /// Lends bytes that have arrived in the ring.
    pub(crate) fn loan(self, generation: Generation, amount: Amount, until: Deadline) -> Lending {
        let mut is_last = false;
        loop {
            match self.loan_step(generation, amount) {
                Step::Lent(lent, pieces) => return Lending::Lent(lent, pieces),
                Step::Elsewhere => return Lending::Elsewhere,
                Step::Wait if is_last || until == Deadline::NOW => return Lending::TimedOut,
                Step::Wait => {}
            }
            match self.wait_readable(until, &Room::none()) {
                Waited::Look => is_last = until.is_over(),
                Waited::TimedOut => is_last = true,
                Waited::Restart => {}
                Waited::Interrupted => return Lending::Interrupted,
            }
        }
    }

    fn loan_step(self, generation: Generation, amount: Amount) -> Step {
        let rx = lock(&self.rx);
        // What the program has peeked at, and what comes in packets, is not lent.
        let Some(local) = self.local() else { return Step::Elsewhere };
        let is_elsewhere = !self.is_still(generation)
            || rx.phase != RxPhase::Ring
            || local.is_lent.load(Ordering::Relaxed)
            || !rx.peeked.is_empty();
        let Some(stream) = rx.stream.as_ref().filter(|_| !is_elsewhere) else {
            return Step::Elsewhere;
        };
        self.note_look(stream);
        match stream.there(amount.max) {
            Ok(there) if there >= amount.at_least => {
                let place = stream.there_at(there.min(amount.max));
                let step = self.lent(stream, generation, place, amount.at_least);
                local.is_lent.store(matches!(step, Step::Lent(..)), Ordering::Relaxed);
                step
            }
            // An event of the kernel may be the end: an ordinary call finds out.
            Ok(0) if !self.rx_kernel_event.load(Ordering::Relaxed) => Step::Wait,
            Ok(_) | Err(_) => Step::Elsewhere,
        }
    }

    /// Lends space in the ring.
    pub(crate) fn reserve(
        self,
        generation: Generation,
        amount: Amount,
        until: Deadline,
    ) -> Lending {
        let mut room = ForRoom::until(until);
        loop {
            match self.reserve_step(generation, amount) {
                Step::Lent(lent, pieces) => return Lending::Lent(lent, pieces),
                Step::Elsewhere => return Lending::Elsewhere,
                Step::Wait => {}
            }
            match self.wait_for_room(generation, &mut room, amount.at_least, amount.max) {
                Waited::Look | Waited::Restart => {}
                Waited::TimedOut => return Lending::TimedOut,
                Waited::Interrupted => return Lending::Interrupted,
            }
        }
    }

    fn reserve_step(self, generation: Generation, amount: Amount) -> Step {
        let mut tx = lock(&self.tx);
        let Some(local) = self.local() else { return Step::Elsewhere };
        let is_elsewhere = !self.is_still(generation)
            || local.is_reserved.load(Ordering::Relaxed)
            || (tx.phase != TxPhase::Ring && !self.switch(&mut tx))
            || self.tx_kernel_event.load(Ordering::Relaxed) && self.peer_is_gone();
        let Some(stream) = tx.stream.as_ref().filter(|_| !is_elsewhere) else {
            return Step::Elsewhere;
        };
        self.note_writers_cpu(stream);
        self.acknowledge(local);
        match stream.reserve(amount.at_least, amount.max) {
            Ok(len) => {
                let place = stream.reserved_at(len);
                let step = self.lent(stream, generation, place, amount.at_least);
                local.is_reserved.store(matches!(step, Step::Lent(..)), Ordering::Relaxed);
                step
            }
            Err(Stop::Full) => Step::Wait,
            // A message that is longer than the ring goes in pieces, by an ordinary call.
            Err(_) => Step::Elsewhere,
        }
    }

    /// Makes the step that lends this memory, if it is at least so many bytes.
    fn lent(
        self,
        stream: &Arc<Stream>,
        generation: Generation,
        place: InPlace<'_>,
        least: usize,
    ) -> Step {
        let none = LentPiece { at: core::ptr::null_mut(), len: 0 };
        let piece = |span: sojourn_shm::Span<'_>| LentPiece { at: span.as_ptr(), len: span.len() };
        let pieces = place.map(|span| span.map_or(none, piece));
        let len = pieces[0].len + pieces[1].len;
        if len < least {
            return Step::Elsewhere;
        }
        let lent = Lent {
            stream: Arc::clone(stream),
            slot: self.slot(),
            generation,
            process: self.library.process_number(),
            len: u32::try_from(len).unwrap_or(u32::MAX),
        };
        Step::Lent(lent, pieces)
    }
}

impl Lent {
    /// Gives lent bytes back, of which the first `len` are used up. Returns false if these will be
    /// received once more.
    pub fn give_back(self, library: &Library, len: usize) -> bool {
        let used = self.session(library).is_some_and(|session| {
            let rx = lock(&session.rx);
            let Some(local) = self.lender(&session, rx.stream.as_ref()) else { return false };
            local.is_lent.store(false, Ordering::Relaxed);
            rx.phase == RxPhase::Ring
                && (len == 0 || self.stream.use_up(len.min(self.len as usize)).is_ok())
        });
        self.end(library);
        used || len == 0
    }

    /// Sends the first `len` bytes of lent space. Returns the space if they have to go by an
    /// ordinary call.
    pub fn commit(self, library: &Library, len: usize) -> Option<Self> {
        let is_sent = self.session(library).is_some_and(|session| {
            let tx = lock(&session.tx);
            let Some(local) = self.lender(&session, tx.stream.as_ref()) else { return false };
            if tx.phase != TxPhase::Ring {
                return false;
            }
            session.note_call(&self.stream);
            if self.stream.publish_filled(len.min(self.len as usize)).is_err() {
                return false;
            }
            local.is_reserved.store(false, Ordering::Relaxed);
            if self.stream.has_rung(RINGS) {
                local.is_due.store(true, Ordering::Relaxed);
            }
            true
        });
        if !is_sent {
            self.open(library);
            return Some(self);
        }
        if let Some(session) = self.session(library)
            && session.local().is_some_and(|local| local.is_due.swap(false, Ordering::Relaxed))
        {
            session.measure(self.generation);
        }
        self.end(library);
        None
    }

    /// Ends the lending of space, of which nothing is sent.
    pub fn forget(self, library: &Library) {
        self.open(library);
        self.end(library);
    }

    /// Lets other calls of the process send again.
    fn open(&self, library: &Library) {
        if let Some(session) = self.session(library) {
            let tx = lock(&session.tx);
            if let Some(local) = self.lender(&session, tx.stream.as_ref()) {
                local.is_reserved.store(false, Ordering::Relaxed);
            }
        }
    }

    fn session<'a>(&self, library: &'a Library) -> Option<OwnSession<'a>> {
        let is_here = library.process_number() == self.process;
        library.session_in(self.slot).filter(|_| is_here)
    }

    /// Returns the session's state, if the session is the one that has lent the memory, on the same
    /// stream.
    fn lender<'s>(&self, session: &'s Session, stream: Option<&Arc<Stream>>) -> Option<&'s Local> {
        let is_it = session.is_still(self.generation)
            && stream.is_some_and(|stream| Arc::ptr_eq(stream, &self.stream));
        session.local().filter(|_| is_it)
    }

    fn end(self, library: &Library) {
        // A child of `fork` has not the mapping, so it must not take it down: there may be
        // something else at its place.
        if library.process_number() != self.process {
            core::mem::forget(self.stream);
        }
    }
}
