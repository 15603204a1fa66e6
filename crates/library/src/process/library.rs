//! The library of a process: the state that all of the library shares, and, for each process in a
//! line of descent by `fork`, the state of its own.
//!
//! Not here: the operations; each folder of the library adds its own methods. Read `fds::entry`,
//! `session` and `process::engine` next.

use crate::fds::entry::FdEntry;
use crate::fds::slot::{ProcessNumber, Slot, SlotWord};
use crate::fds::table::Table;
use crate::host::environment::{Kept, counts};
use crate::host::{Host, Plain};
use crate::process::engine::Engine;
use crate::process::patience::{PASS_LIMIT, Patience, ROOM_MOST};
use crate::process::stillness::ReturnStillness;
use crate::process::thresholds::Policy;
use crate::session::Session;
use crate::session::identity::Generation;
use core::ffi::CStr;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use once_cell::race::OnceBox;
use rustix::io::Errno;
use std::sync::OnceLock;

/// Processes in one line of descent by `fork` alone that can have sessions away; in later ones all
/// stays in the kernel.
const GENERATIONS: usize = 32;

/// The library of this process.
#[derive(Debug)]
pub struct Library {
    pub(crate) table: Table,
    pub(crate) policy: Policy,
    pub(crate) patience: Patience,
    /// The same for rooms in the kernel without which sessions with other hosts are lost.
    pub(crate) room_patience: Patience,
    pub(crate) returns: ReturnStillness,
    // FORK: set at the start, and filled with nothing that takes time.
    host: OnceLock<&'static dyn Host>,
    engines: PerProcess<Engine>,
    generation: AtomicU32,
    /// Counts forks and the like: a descriptor made before the last one may have a second holder.
    pub(crate) fork_epoch: AtomicU32,
    /// Counts the children that are being made now ([`Library::child_begins`]), for each kind of
    /// [`Inherited`](crate::moves::fork::Inherited).
    pub(crate) children_coming: [AtomicU32; 2],
    /// Counts duplications of descriptions that may have had several numbers before: an offer made
    /// earlier may not know all numbers.
    pub(crate) alias_epoch: AtomicU32,
    /// See [`Library::may_outlive_first`].
    pub(crate) outlives_first: AtomicBool,
    /// See [`Library::has_pipes`].
    pub(crate) has_pipes: AtomicBool,
}

/// State that `fork` must not copy half done: each generation has its own, made on first use. If
/// several make it at a time, such as a thread and the signal handler that interrupts it, the first
/// one counts.
#[derive(Debug)]
pub(crate) struct PerProcess<T>([OnceBox<T>; GENERATIONS]);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { OnceBox::new() }; GENERATIONS])
    }

    /// Returns this process's; `None` if it has none yet, or can have none.
    #[inline]
    pub(crate) fn of(&self, library: &Library) -> Option<&T> {
        self.0.get(library.generation.load(Ordering::Relaxed) as usize)?.get()
    }

    /// Returns this process's, made if need be, on a stack that is large enough for that.
    pub(crate) fn of_or(&self, library: &Library, make: impl FnOnce() -> Box<T>) -> Option<&T> {
        let place = self.0.get(library.generation.load(Ordering::Relaxed) as usize)?;
        match place.get() {
            Some(made) => Some(made),
            None => Some(library.with_stack(|| place.get_or_init(make))),
        }
    }

    /// Iterates over those of the first generations that exist.
    fn first(&self, generations: u32) -> impl Iterator<Item = &T> {
        self.0.iter().take(generations as usize).filter_map(OnceBox::get)
    }
}

static LIBRARY: Library = Library::new();

/// Forgets one of the library's own descriptors, which is about to be closed. The descriptor calls
/// this when it is dropped, wherever that is.
fn forget_own(number: i32) {
    if let Some(engine) = library().engine() {
        engine.own.forget(number);
    }
}

/// Returns the library of this process.
#[inline]
pub fn library() -> &'static Library {
    &LIBRARY
}

/// A session of this process, with the library whose session it is. What a session does beyond its
/// own state, such as going home, are methods of this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSession<'a> {
    pub(crate) library: &'a Library,
    pub(crate) session: &'a Session,
}

impl Deref for OwnSession<'_> {
    type Target = Session;

    #[inline]
    fn deref(&self) -> &Session {
        self.session
    }
}

/// A session, and the use of its slot that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundSession<'a> {
    pub(crate) session: OwnSession<'a>,
    pub(crate) generation: Generation,
}

/// A slot of an ancestor's: of its sessions, or of its epoll sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AncestorSlot {
    pub(crate) process: ProcessNumber,
    pub(crate) slot: Slot,
}

impl Library {
    pub(crate) const fn new() -> Self {
        Self {
            table: Table::new(),
            policy: Policy::new(),
            patience: Patience::new(PASS_LIMIT),
            room_patience: Patience::new(ROOM_MOST),
            returns: ReturnStillness::new(),
            host: OnceLock::new(),
            engines: PerProcess::new(),
            generation: AtomicU32::new(0),
            fork_epoch: AtomicU32::new(0),
            children_coming: [const { AtomicU32::new(0) }; 2],
            alias_epoch: AtomicU32::new(0),
            outlives_first: AtomicBool::new(false),
            has_pipes: AtomicBool::new(false),
        }
    }

    /// Sets the shell; once, before any other call.
    pub fn set_host(&self, host: &'static dyn Host) {
        // A second shell is ignored: the first may be in use.
        let _ = self.host.set(host);
    }

    /// Stops the use of the file that says how busy the machine is: the library must open nothing
    /// among the program's descriptors but what `fds::own` says.
    pub fn stop_opening_files(&self) {
        sojourn_shm::wait::read_load_from(None);
    }

    /// Hands over the program's environment, `NAME=VALUE` each, as it is when the program starts.
    /// Called once, before the program runs. Without this call the library reads the environment as
    /// it is at the first data call.
    pub fn keep_environment<'a>(&self, variables: impl Iterator<Item = &'a [u8]>) {
        // A second environment is ignored: the configuration may have been read.
        let _ = self.policy.environment.set(Kept::of(variables));
    }

    /// Returns true for a variable (`NAME=VALUE`) that [`Library::keep_environment`] keeps.
    #[inline(always)]
    pub fn is_configured_by(variable: &[u8]) -> bool {
        counts(variable)
    }

    /// Iterates over the variables kept by [`Library::keep_environment`], `NAME=VALUE` each.
    pub fn kept_environment(&self) -> impl Iterator<Item = &CStr> {
        self.policy.environment.get().into_iter().flat_map(Kept::variables)
    }

    pub(crate) fn host(&self) -> &'static dyn Host {
        *self.host.get_or_init(|| &Plain)
    }

    /// Runs `work`, which may need more stack than the program's thread has: see
    /// [`Host::on_own_stack`].
    pub(crate) fn with_stack<R>(&self, work: impl FnOnce() -> R) -> R {
        let (mut work, mut answer) = (Some(work), None);
        self.host().on_own_stack(&mut || answer = work.take().map(|work| work()));
        let Some(answer) = answer else { unreachable!("the host does what it is asked to do") };
        answer
    }

    /// Writes to a pipe for the library. Where nobody reads it any more, the program, which does
    /// not write now, gets no signal.
    pub(crate) fn without_sigpipe(
        &self,
        write: impl Fn() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut result = Ok(0);
        self.host().without_sigpipe(&mut || {
            result = write();
            result == Err(Errno::PIPE)
        });
        result
    }

    /// Returns the engine of this process; `None` if it has none yet, or can have none.
    #[inline]
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engines.of(self)
    }

    /// Returns the engine of this process, made if need be; `None` beyond the last generation.
    pub(crate) fn engine_or_new(&self) -> Option<&Engine> {
        self.engines.of_or(self, || Engine::new(forget_own))
    }

    /// Returns the slot that a word names, if it is one of this process's.
    #[inline]
    pub(crate) fn own_slot(&self, word: SlotWord) -> Option<Slot> {
        (word.process() == self.process_number()).then_some(word.slot())
    }

    /// Makes the word of a slot of this process.
    pub(crate) fn word_of(&self, slot: Slot) -> Option<SlotWord> {
        SlotWord::new(self.process_number(), slot)
    }

    /// Returns the session of an entry, if it is this process's.
    #[inline]
    pub(crate) fn own_session(&self, entry: &FdEntry) -> Option<FoundSession<'_>> {
        let word = entry.session.load(Ordering::SeqCst)?;
        let session = self.session_in(self.own_slot(word)?)?;
        let generation = session.generation();
        // An unchanged word means that generation and session belong together.
        (entry.session.load(Ordering::SeqCst) == Some(word))
            .then_some(FoundSession { session, generation })
    }

    /// Returns the session in a slot of this process.
    #[inline]
    pub(crate) fn session_in(&self, slot: Slot) -> Option<OwnSession<'_>> {
        let session = self.engine()?.pool.session(slot)?;
        Some(OwnSession { library: self, session })
    }

    /// Returns the session of a descriptor, if it has one that is this process's.
    pub(crate) fn session_of(&self, fd: i32) -> Option<OwnSession<'_>> {
        let entry = self.table.known(fd)?;
        entry.session.load(Ordering::Relaxed)?;
        self.own_session(entry).map(|found| found.session)
    }

    /// Returns the slot of an entry's session that belongs to an ancestor.
    pub(crate) fn foreign_session(&self, entry: &FdEntry) -> Option<AncestorSlot> {
        self.foreign_slot(entry.session.load(Ordering::SeqCst)?)
    }

    /// Does the same for the word of a session or of a set.
    pub(crate) fn foreign_slot(&self, word: SlotWord) -> Option<AncestorSlot> {
        let is_own = word.process() == self.process_number();
        (!is_own).then_some(AncestorSlot { process: word.process(), slot: word.slot() })
    }

    /// Returns the engine of an ancestor, as it was when that process forked.
    pub(crate) fn engine_of(&self, process: ProcessNumber) -> Option<&Engine> {
        self.engines.0.get(process.index())?.get()
    }

    /// Iterates over the doorbells of the ancestors that may still have something to ask for.
    pub(crate) fn inherited_doorbells(&self) -> impl Iterator<Item = i32> {
        let ancestors = self.engines.first(self.generation.load(Ordering::Relaxed));
        ancestors
            .filter(|engine| engine.has_children())
            .filter_map(|engine| engine.own.bell_number())
    }

    /// Iterates over the engines of this process and of its ancestors.
    pub(crate) fn all_engines(&self) -> impl Iterator<Item = &Engine> {
        let count = self.generation.load(Ordering::Relaxed) + 1;
        self.engines.first(count)
    }

    /// Returns a number that differs between this process and those that it has made by `fork`.
    #[inline]
    pub(crate) fn process_number(&self) -> ProcessNumber {
        ProcessNumber(self.generation.load(Ordering::Relaxed))
    }

    pub(crate) fn next_generation(&self) {
        self.policy.forget_hot();
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}
