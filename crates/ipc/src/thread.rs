//! What a server thread can be told from elsewhere.
//!
//! The control thread and holders of tokens post notes; the server thread takes them between two
//! looks at its lanes. `L` is what there is of a client, `crate::link::ClientLink`. Not here: the
//! lanes (`server`), and the control packets of clients (`packets`).

use crate::lock::lock;
use crate::rt::ClientId;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use sojourn_shm::futex;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Something for a server thread to know.
#[derive(Debug)]
pub(crate) enum Note<L> {
    /// A client was given to this thread.
    Joined(Arc<L>),
    /// A client has something, and its lane was asleep.
    Rang(ClientId),
    /// A client is gone; its link says why.
    Ended(ClientId),
}

/// The mailbox of one server thread.
#[derive(Debug)]
pub(crate) struct Mailbox<L> {
    notes: Mutex<VecDeque<Note<L>>>,
    /// Whether `notes` has any; read on every round.
    pub(crate) has_notes: AtomicBool,
    /// Counts posts; the futex on which the thread sleeps, besides its lanes' bells.
    pub(crate) poke: AtomicU32,
    /// Clients given to this thread.
    pub(crate) clients: AtomicUsize,
    /// The thread takes no more clients.
    pub(crate) is_closed: AtomicBool,
    /// Bytes of grants a client may register.
    pub(crate) grants_max: u64,
    /// The processor the thread was last seen on, as in headers.
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

    /// The processor the thread was last seen on, as in headers.
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
        lock(&self.notes).push_back(note);
        // SYNC: release; pairs with the acquire swap in `take`.
        self.has_notes.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
    }

    /// Posts a note that comes before all others.
    pub(crate) fn post_first(&self, note: Note<L>) {
        let mut notes = lock(&self.notes);
        notes.push_front(note);
        self.has_notes.store(true, Ordering::Release);
    }

    /// Takes no more clients, and lets the thread notice.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
    }

    /// The next note.
    pub(crate) fn take(&self) -> Option<Note<L>> {
        let mut notes = lock(&self.notes);
        let note = notes.pop_front();
        if notes.is_empty() {
            self.has_notes.store(false, Ordering::Relaxed);
        }
        note
    }
}
