//! The protocol library: a program's sessions, their moves and their readiness.
//!
//! It lives in the program and serves its calls; the shell around it (`sojourn-preload`) turns C
//! calls into these and tells it about signals ([`Host`]). What is here: the descriptor table,
//! where a data call goes, moving out and going home, waiting for one and for many, `fork`. What is
//! not: C, `errno`, packets. Read `docs/streams.md` first, then `table`, `session`, `engine`.

mod asks;
mod bulk;
mod calls;
mod carried;
mod datagrams;
mod descriptors;
mod ended;
mod engine;
mod environment;
mod flush;
#[cfg(test)]
mod flush_tests;
mod fork;
mod from_kernel;
#[cfg(test)]
mod from_kernel_tests;
mod home;
mod host;
#[cfg(test)]
mod hostile_tests;
mod hot;
mod join;
mod kept;
mod kernel;
mod landing;
mod late;
#[cfg(test)]
mod late_tests;
mod look;
mod measured;
#[cfg(test)]
mod measured_tests;
mod net;
pub mod numbers;
mod offer;
mod own;
mod patience;
mod peeked;
mod poll;
mod poll_sleep;
#[cfg(test)]
mod poll_tests;
mod prepare;
mod progress;
mod protocol;
mod put_back;
mod readiness;
#[cfg(test)]
mod recall_tests;
mod receive;
mod remembered;
mod residue;
mod rings;
mod search;
mod send;
#[cfg(test)]
mod send_tests;
mod session;
#[cfg(test)]
mod session_fakes;
mod set;
mod set_entry;
#[cfg(test)]
mod set_fakes;
mod set_member;
mod set_order;
#[cfg(test)]
mod set_order_tests;
mod set_ready;
#[cfg(test)]
mod set_ready_tests;
mod set_round;
mod set_state;
#[cfg(test)]
mod set_tests;
mod set_wait;
mod sets;
#[cfg(test)]
mod sets_tests;
mod sleep;
mod strangers;
mod table;
mod together;
mod wanted;
mod watch;
mod within;

pub use asks::{Answer, Queue, Set};
pub use calls::{Call, Path, Recv, Send, Use};
pub use datagrams::{Attempt, Datagram, Got, PARTS_MAX};
pub use descriptors::{Origin, SocketOption};
pub use from_kernel::{BytesOnly, FromKernel};
pub use host::{Host, Interrupt, Plain};
pub use poll::PollFd;
pub use session::Session;
pub use set::EpollEvent;
pub use table::Entry;

pub use sojourn_pump::ancillary;
pub use sojourn_pump::options::Change;
pub use sojourn_pump::tcp_info;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use engine::Engine;
use std::sync::OnceLock;

/// Processes in one line of descent by `fork` alone that can have sessions; in later ones all stays
/// in the kernel.
const GENERATIONS: usize = 32;
/// Bits of a table entry's session word that say which slot; the others say whose.
const SLOT_BITS: u32 = 20;

/// The library of this process.
#[derive(Debug)]
pub struct Library {
    pub(crate) table: table::Table,
    pub(crate) policy: hot::Policy,
    pub(crate) patience: patience::Patience,
    host: OnceLock<&'static dyn Host>,
    /// What `fork` must not copy half-done is made anew in each process: one engine for each
    /// generation.
    engines: [OnceLock<Box<Engine>>; GENERATIONS],
    /// The same for epoll sets, which many more programs have.
    sets: [OnceLock<Box<sets::Sets>>; GENERATIONS],
    generation: AtomicU32,
    /// Counts `fork`s and the like: what was made before the last one may have a second holder.
    pub(crate) fork_epoch: AtomicU32,
    /// Counts duplicates of descriptions that may have had several numbers before: an offer made
    /// earlier may not know all.
    pub(crate) alias_epoch: AtomicU32,
    /// See [`Library::may_outlive_first`].
    outlives_first: AtomicBool,
    /// See [`Library::has_pipes`].
    has_pipes: AtomicBool,
}

static LIBRARY: Library = Library::new();

/// The library of this process.
#[inline]
pub fn library() -> &'static Library {
    &LIBRARY
}

impl Library {
    const fn new() -> Self {
        Self {
            table: table::Table::new(),
            policy: hot::Policy::new(),
            patience: patience::Patience::new(),
            host: OnceLock::new(),
            engines: [const { OnceLock::new() }; GENERATIONS],
            sets: [const { OnceLock::new() }; GENERATIONS],
            generation: AtomicU32::new(0),
            fork_epoch: AtomicU32::new(0),
            alias_epoch: AtomicU32::new(0),
            outlives_first: AtomicBool::new(false),
            has_pipes: AtomicBool::new(false),
        }
    }

    /// Says who the shell is; once, before anything else.
    pub fn set_host(&self, host: &'static dyn Host) {
        // A second one changes nothing: the first may be in use.
        let _ = self.host.set(host);
    }

    /// The program's descriptors are none of the library's business: it opens nothing among them
    /// but what `own` says.
    pub fn opens_nothing(&self) {
        sojourn_shm::wait::read_load_from(None);
    }

    /// Hands over the program's environment, `NAME=VALUE` each, as it is at the start: once, before
    /// the program runs. Without it the environment counts as it is when the first data call is
    /// made.
    pub fn keep_environment<'a>(&self, variables: impl Iterator<Item = &'a [u8]>) {
        // A second one changes nothing.
        let _ = self.policy.environment.set(environment::Kept::of(variables));
    }

    pub(crate) fn host(&self) -> &'static dyn Host {
        *self.host.get_or_init(|| &Plain)
    }

    /// Does what may need more stack than the program's thread has: see [`Host::on_own_stack`].
    pub(crate) fn with_stack<R>(&self, work: impl FnOnce() -> R) -> R {
        let (mut work, mut answer) = (Some(work), None);
        self.host().on_own_stack(&mut || answer = work.take().map(|work| work()));
        let Some(answer) = answer else { unreachable!("the host does what it is asked to do") };
        answer
    }

    /// The engine of this process; `None` if it has none yet, or can have none.
    #[inline]
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engines
            .get(self.generation.load(Ordering::Relaxed) as usize)?
            .get()
            .map(|engine| &**engine)
    }

    /// As [`Library::engine`], made if need be.
    pub(crate) fn engine_or_new(&self) -> Option<&Engine> {
        let place = self.engines.get(self.generation.load(Ordering::Relaxed) as usize)?;
        match place.get() {
            Some(engine) => Some(engine),
            None => Some(self.with_stack(|| place.get_or_init(Engine::new))),
        }
    }

    /// The epoll sets of this process, if it has any.
    pub(crate) fn sets(&self) -> Option<&sets::Sets> {
        self.sets.get(self.generation.load(Ordering::Relaxed) as usize)?.get().map(|sets| &**sets)
    }

    /// As [`Library::sets`], made if need be.
    pub(crate) fn sets_or_new(&self) -> Option<&sets::Sets> {
        let place = self.sets.get(self.generation.load(Ordering::Relaxed) as usize)?;
        match place.get() {
            Some(sets) => Some(sets),
            None => Some(self.with_stack(|| place.get_or_init(sets::Sets::new))),
        }
    }

    /// Which slot a word of a table entry names, if it is this process's.
    pub(crate) fn own_index(&self, word: u32) -> Option<u32> {
        let word = word.checked_sub(1)?;
        let is_own = word >> SLOT_BITS == self.generation.load(Ordering::Relaxed);
        is_own.then_some(word & ((1 << SLOT_BITS) - 1))
    }

    /// The word of a table entry for a session of this process.
    pub(crate) fn session_word(&self, slot: u32) -> u32 {
        (self.generation.load(Ordering::Relaxed) << SLOT_BITS) + slot + 1
    }

    /// The session of an entry and the generation of its slot, if it is this process's.
    #[inline]
    pub(crate) fn own_session(&self, entry: &Entry) -> Option<(&Session, u32)> {
        let word = entry.session.load(Ordering::SeqCst);
        let slot = word.wrapping_sub(1) & ((1 << SLOT_BITS) - 1);
        if word == 0 || word.wrapping_sub(1) >> SLOT_BITS != self.generation.load(Ordering::Relaxed)
        {
            return None;
        }
        let session = self.engine()?.pool.session(slot)?;
        let generation = session.generation.load(Ordering::SeqCst);
        // Still the same? Then generation and session belong together.
        (entry.session.load(Ordering::SeqCst) == word).then_some((session, generation))
    }

    /// The session of a descriptor, if it has one that is this process's.
    pub(crate) fn session_of(&self, fd: i32) -> Option<&Session> {
        let entry = self.table.known(fd)?;
        if entry.session.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.own_session(entry).map(|(session, _)| session)
    }

    /// Where an entry's session belongs to another process: which generation, which slot.
    pub(crate) fn foreign_session(&self, entry: &Entry) -> Option<(u32, u32)> {
        self.foreign_index(entry.session.load(Ordering::SeqCst))
    }

    /// The same for any such word.
    pub(crate) fn foreign_index(&self, word: u32) -> Option<(u32, u32)> {
        let word = word.checked_sub(1)?;
        let (generation, slot) = (word >> SLOT_BITS, word & ((1 << SLOT_BITS) - 1));
        (generation != self.generation.load(Ordering::Relaxed)).then_some((generation, slot))
    }

    /// The engine of an ancestor, as it was when it `fork`ed.
    pub(crate) fn engine_of(&self, generation: u32) -> Option<&Engine> {
        self.engines.get(generation as usize)?.get().map(|engine| &**engine)
    }

    /// Numbers of the doorbells of those whose children we are, as long as there may be something
    /// to ask them for.
    pub(crate) fn inherited_doorbells(&self) -> impl Iterator<Item = i32> {
        let generations = self.generation.load(Ordering::Relaxed) as usize;
        let ancestors = self.engines.iter().take(generations).filter_map(|engine| engine.get());
        ancestors.filter(|engine| engine.has_heirs()).filter_map(|engine| engine.own.bell_number())
    }

    /// The engines of this process and of those whose child it is.
    pub(crate) fn all_engines(&self) -> impl Iterator<Item = &Engine> {
        let count = self.generation.load(Ordering::Relaxed) as usize + 1;
        self.engines.iter().take(count).filter_map(|engine| engine.get()).map(|engine| &**engine)
    }

    pub(crate) fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}
