//! The mailbox of a server thread.
//!
//! The control thread and holders of tokens post notes; the server thread takes them between two
//! looks at its lanes. `L` is the type of a client's state, `crate::link::ClientLink`. Not here:
//! the lanes (`server`), and the control packets of clients (`packets`).

use crate::lock::lock;
use crate::rt::ClientId;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use sojourn_shm::futex;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A note for a server thread.
#[derive(Debug)]
pub(crate) enum Note<L> {
    /// A client was given to this thread.
    Joined(Arc<L>),
    /// A client has a request, and its lane was cold.
    Rang(ClientId),
    /// A client is gone; its link says why.
    Ended(ClientId),
}

/// The mailbox of one server thread.
#[derive(Debug)]
pub(crate) struct Mailbox<L> {
    notes: Mutex<VecDeque<Note<L>>>,
    /// True if `notes` is not empty; read on every round.
    pub(crate) has_notes: AtomicBool,
    /// The count of posts, which is the futex on which the thread sleeps, besides its lanes' bells.
    pub(crate) poke: AtomicU32,
    /// Clients given to this thread.
    pub(crate) clients: AtomicUsize,
    /// The thread takes no more clients.
    pub(crate) is_closed: AtomicBool,
    /// Bytes of grants a client may register.
    pub(crate) grants_max: u64,
    /// The processor on which the thread was last seen, in the form of headers.
    cpu: AtomicU32,
}

impl<L> Mailbox<L> {
    pub(crate) fn new(grants_max: u64) -> Self {
        Self {
            notes: Mutex::default(),
            has_notes: AtomicBool::new(false),
            poke: AtomicU32::new(0),
            clients: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            grants_max,
            cpu: AtomicU32::new(0),
        }
    }

    /// The processor on which the thread was last seen, in the form of headers.
    #[inline]
    pub(crate) fn cpu(&self) -> u16 {
        self.cpu.load(Ordering::Relaxed) as u16
    }

    #[inline]
    pub(crate) fn set_cpu(&self, cpu: u16) {
        self.cpu.store(u32::from(cpu), Ordering::Relaxed);
    }

    /// Posts a note and wakes the thread.
    pub(crate) fn post(&self, note: Note<L>) {
        self.post_if(note, || true);
    }

    /// Posts a note if `is_first` agrees, and returns its answer. Whoever sees what `is_first` has
    /// changed posts behind this note: a client's number is free from then on, and the thread must
    /// hear of the old client's end before it hears of the next client with that number.
    pub(crate) fn post_if(&self, note: Note<L>, is_first: impl FnOnce() -> bool) -> bool {
        let mut notes = lock(&self.notes);
        if !is_first() {
            return false;
        }
        notes.push_back(note);
        drop(notes);
        // SYNC: release; pairs with the acquire loads in `server` and `server::sleeping`.
        self.has_notes.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
        true
    }

    /// Posts a note before all others.
    pub(crate) fn post_first(&self, note: Note<L>) {
        let mut notes = lock(&self.notes);
        notes.push_front(note);
        self.has_notes.store(true, Ordering::Release);
    }

    /// Stops taking clients and wakes the thread.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
    }

    /// Takes the next note.
    pub(crate) fn take(&self) -> Option<Note<L>> {
        let mut notes = lock(&self.notes);
        let note = notes.pop_front();
        if notes.is_empty() {
            self.has_notes.store(false, Ordering::Relaxed);
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_seen_to_have_ended_is_told_of_before_the_next_one() {
        const ROUNDS: u32 = 20_000;
        let mailbox = Mailbox::<()>::new(0);
        let ended = AtomicU32::new(0);
        let id = |generation| ClientId { index: 0, generation };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    // The control thread: the number is free, and goes to the next client.
                    while ended.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    mailbox.post(Note::Rang(id(round)));
                }
            });
            for round in 1..=ROUNDS {
                assert!(mailbox.post_if(Note::Ended(id(round)), || {
                    ended.store(round, Ordering::Release);
                    true
                }));
                let first = mailbox.take();
                assert!(matches!(first, Some(Note::Ended(one)) if one == id(round)), "{first:?}");
                while mailbox.take().is_none() {
                    std::thread::yield_now();
                }
            }
        });
        assert!(!mailbox.post_if(Note::Ended(id(1)), || false));
        assert!(mailbox.take().is_none());
    }
}
