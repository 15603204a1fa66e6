//! All epoll sets of the process: which descriptor is a set, which set contains which descriptors,
//! and which sets may carry sessions.
//!
//! The shell and the rest of the library call this file. Not here: one set (`set`), waiting on it
//! (`set_wait`), what it asks of the process (`source`), and changes of its members (`members`).
//!
//! A table entry names its sets by words that contain the process's generation, as for sessions. So
//! after `fork` every existing set is the parent's, although nothing was changed.

use crate::fds::entry::{FdEntry, mark};
use crate::fds::pool::SlotPool;
use crate::fds::slot::{SetNumber, Slot, SlotWord};
use crate::host::epoll::{EpollEvent, Interest, control, op};
use crate::host::kernel;
use crate::process::engine::Engine;
use crate::process::library::{Library, PerProcess};
use crate::ready::pollers::Pollers;
use crate::ready::set::{Changed, Set};
use crate::ready::set_call::Call;
use crate::ready::set_call::deadline;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::io::{Errno, FdFlags};
use sojourn_session::ReasonT;

mod members;
mod source;

/// The sets that contain a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOf {
    /// No set contains it.
    None,
    /// This set alone contains it, counted from 1.
    One(SetNumber),
    /// A set contains it that must first learn how the program uses it: the caller asks again when
    /// the descriptor is hot again.
    NotYet,
    /// Several sets contain it, or one that cannot carry sessions.
    Unfit,
}

/// The epoll sets of one process.
#[derive(Debug)]
pub(crate) struct Sets {
    pool: SlotPool<PooledSet, 16>,
    /// The program closed a registered number while another number kept its description open, and
    /// with it the registration (epoll(7), "Questions and answers").
    has_left_behind: AtomicBool,
    pub(crate) pollers: Pollers,
}

static SETS: PerProcess<Sets> = PerProcess::new();

#[derive(Debug, Default)]
struct PooledSet {
    set: Set,
    /// The set's descriptor has been duplicated, passed on, polled or put into another set, or a
    /// child uses it: the set cannot carry sessions.
    is_shared: AtomicBool,
}

/// A descriptor, seen as an epoll set.
enum SetAt<'a> {
    /// Not a set, or one made past the library.
    Unknown,
    /// A set of this process, and its word.
    Own(SlotWord, &'a PooledSet),
    /// A set of an ancestor.
    Foreign(&'a FdEntry),
}

/// A set of this process.
#[derive(Clone, Copy)]
struct OwnSet {
    number: SetNumber,
    pooled: &'static PooledSet,
}

impl Sets {
    fn new() -> Box<Self> {
        Box::new(Self {
            pool: SlotPool::new(),
            has_left_behind: AtomicBool::new(false),
            pollers: Pollers::default(),
        })
    }
}

impl PooledSet {
    fn is_fit(&self) -> bool {
        !self.is_shared.load(Ordering::SeqCst)
    }
}

/// The calls of the shell.
impl Library {
    /// Reports that the program has made the set `epfd`.
    pub fn epoll_made(&self, epfd: i32) {
        let (Some(entry), Some(sets)) = (self.table.entry(epfd), self.sets_or_new()) else {
            return;
        };
        let Some(slot) = sets.pool.take(|_| PooledSet::default()) else { return };
        let Some(pooled) = sets.pool.get(slot) else { return };
        pooled.set.open(epfd);
        // The slot may have been another set's.
        pooled.is_shared.store(false, Ordering::SeqCst);
        entry.epoll.store(self.word_of(slot), Ordering::SeqCst);
    }

    /// Serves `epoll_ctl(2)`; `event` is `None` if the program gave a null pointer.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn epoll_ctl(
        &self,
        epfd: i32,
        op: i32,
        fd: i32,
        event: Option<&EpollEvent>,
    ) -> Result<(), Errno> {
        let interest = match (op, event) {
            (op::DEL, _) => Interest::default(),
            (_, None) => return Err(Errno::FAULT),
            (_, Some(event)) => {
                Interest { events: { event.flags }.bits(), data: { event.data }.u64() }
            }
        };
        // Bad descriptors count before a bad operation, as in the kernel (`do_epoll_ctl`).
        if !(op::ADD..=op::MOD).contains(&op) {
            for fd in [epfd, fd] {
                rustix::io::fcntl_getfd(kernel::at(fd)?)?;
            }
            return Err(Errno::INVAL);
        }
        let (word, pooled) = match self.set_at(epfd) {
            SetAt::Own(word, pooled) => (word, pooled),
            unknown => return self.change_unknown(&unknown, epfd, op, fd, interest),
        };
        let changed = pooled.set.change(self, epfd, op, fd, interest)?;
        match op {
            op::ADD => self.added(word, pooled, fd),
            op::DEL => self.deleted(word, fd),
            _ => {}
        }
        if changed == Changed::Collides {
            self.share(pooled);
        }
        Ok(())
    }

    /// Serves `epoll_wait(2)` and its variants. Without a timeout it waits for ever. `mask`: the
    /// signals blocked meanwhile, one bit each.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub fn epoll_wait(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let host = self.host();
        let pooled = match self.set_at(epfd) {
            SetAt::Own(_, pooled) => pooled,
            unknown => {
                self.make_known(&unknown);
                host.wait_begins();
                let result = host.epoll_wait(epfd, events, timeout, mask);
                host.wait_ends();
                return result;
            }
        };
        let deadline = deadline(timeout);
        let wait = &|| self.policy.wait();
        let source = self;
        pooled.set.wait(&mut Call { host, source, epfd, events, timeout, deadline, mask, wait })
    }
}

/// The questions and reports of the rest of the library.
impl Library {
    /// Tells which sets contain `fd`.
    pub(crate) fn set_of(&self, fd: i32) -> SetOf {
        let Some(entry) = self.table.known(fd) else { return SetOf::None };
        let word = entry.set.load(Ordering::SeqCst);
        if entry.has(mark::SETS) {
            return SetOf::Unfit;
        }
        let Some(word) = word else {
            let last = entry.last_set.load(Ordering::SeqCst);
            let left = self.sets().is_some_and(|sets| sets.has_left_behind.load(Ordering::SeqCst));
            return match last.and_then(|word| self.own_set(word)) {
                // The description may still be registered under a number that was closed.
                _ if left && entry.has(mark::ALIASED) => SetOf::Unfit,
                // The program has taken the descriptor out, most likely for a moment only: programs
                // put it back.
                Some(OwnSet { number, pooled })
                    if pooled.is_fit() && pooled.set.number().is_some() =>
                {
                    SetOf::One(number)
                }
                _ => SetOf::None,
            };
        };
        match self.own_set(word) {
            Some(OwnSet { number, pooled }) if pooled.is_fit() => {
                if pooled.set.watch(fd) {
                    SetOf::One(number)
                } else {
                    SetOf::NotYet
                }
            }
            _ => SetOf::Unfit,
        }
    }

    /// Notes that `fd` has been duplicated, passed on or polled: if it is a set, no session can be
    /// in it any more.
    pub(crate) fn set_shared(&self, fd: i32) {
        match self.set_at(fd) {
            SetAt::Own(_, pooled) => self.share(pooled),
            other => self.make_known(&other),
        }
    }

    /// Returns true if there are sets that sessions can be in and that a child would inherit.
    pub(crate) fn has_sets(&self) -> bool {
        let is_usable = |pooled: &PooledSet| pooled.is_fit() && pooled.set.number().is_some();
        self.sets().is_some_and(|sets| sets.pool.all().any(is_usable))
    }

    /// Leaves the set in that slot to the kernel, because a child uses it or is about to.
    pub(crate) fn set_used_by_child(&self, slot: Slot) {
        if let Some(pooled) = self.sets().and_then(|sets| sets.pool.get(slot)) {
            self.share(pooled);
        }
    }

    /// Leaves all sets to the kernel.
    pub(crate) fn give_up_sets(&self) {
        if let Some(sets) = self.sets() {
            sets.pool
                .all()
                .filter(|pooled| pooled.set.number().is_some())
                .for_each(|pooled| self.share(pooled));
        }
    }

    /// Prepares the sets inherited from an ancestor for `exec` in a child: the new program will use
    /// those that stay open.
    pub(crate) fn inherited_sets_before_exec(&self) {
        let all: Vec<i32> = self.table.with_sets().collect();
        for epfd in all {
            let set = self.set_at(epfd);
            let flags = kernel::at(epfd).and_then(rustix::io::fcntl_getfd);
            let is_kept = flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
            if is_kept && matches!(set, SetAt::Foreign(_)) {
                self.make_known(&set);
            }
        }
    }

    /// Prepares this process's sets for `exec`, `posix_spawn` and the like: those that stay open
    /// carry no sessions.
    pub(crate) fn sets_before_exec(&self) {
        let Some(sets) = self.sets() else { return };
        for pooled in sets.pool.all().filter(|pooled| !pooled.is_shared.load(Ordering::SeqCst)) {
            let Some(epfd) = pooled.set.number() else { continue };
            let flags = kernel::at(epfd).and_then(rustix::io::fcntl_getfd);
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                self.share(pooled);
            }
        }
    }
}

impl Library {
    /// Returns the epoll sets of this process, if it has any.
    fn sets(&self) -> Option<&'static Sets> {
        SETS.of(self)
    }

    /// Returns the epoll sets of this process, made if need be.
    fn sets_or_new(&self) -> Option<&'static Sets> {
        SETS.of_or(self, Sets::new)
    }

    /// Returns the threads of this process that sleep in polls.
    pub(crate) fn pollers(&self) -> Option<&Pollers> {
        Some(&self.sets_or_new()?.pollers)
    }

    fn own_set(&self, word: SlotWord) -> Option<OwnSet> {
        let slot = self.own_slot(word)?;
        Some(OwnSet { number: SetNumber::of_slot(slot), pooled: self.sets()?.pool.get(slot)? })
    }

    /// Returns true if the descriptor is a set that the library, here or in an ancestor, saw made.
    pub(crate) fn knows_set(&self, fd: i32) -> bool {
        !matches!(self.set_at(fd), SetAt::Unknown)
    }

    fn set_at(&self, epfd: i32) -> SetAt<'_> {
        let Some(entry) = self.table.known(epfd) else { return SetAt::Unknown };
        let Some(word) = entry.epoll.load(Ordering::SeqCst) else { return SetAt::Unknown };
        self.own_set(word).map_or(SetAt::Foreign(entry), |own| SetAt::Own(word, own.pooled))
    }

    /// Prepares for the first use of an ancestor's set here: the ancestor leaves it to the kernel,
    /// and this process's sessions in it come home.
    fn make_known(&self, set: &SetAt<'_>) {
        let SetAt::Foreign(of) = set else { return };
        let Some(word) = of.epoll.swap(None, Ordering::SeqCst) else { return };
        self.take_set_from_parent(word);
        let numbers: Vec<i32> = self.table.with_sessions().collect();
        for fd in numbers {
            if let Some(entry) = self.table.known(fd)
                && [&entry.set, &entry.last_set]
                    .iter()
                    .any(|of| of.load(Ordering::SeqCst) == Some(word))
            {
                entry.mark(mark::SETS);
                self.go_home(fd, ReasonT::Fork, true);
            }
        }
    }

    fn change_unknown(
        &self,
        set: &SetAt<'_>,
        epfd: i32,
        op: i32,
        fd: i32,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.make_known(set);
        let result = control(epfd, op, fd, interest);
        self.missed_change(epfd);
        result?;
        if op == op::ADD {
            self.unfit(fd);
            self.set_shared(fd);
        }
        Ok(())
    }

    fn share(&self, pooled: &PooledSet) {
        if !pooled.is_shared.swap(true, Ordering::SeqCst) {
            for fd in pooled.set.make_unfit() {
                self.unfit(fd);
                // This includes a session whose peer still owes it bytes: the kernel reports them
                // when they come.
                pooled.set.leave(fd);
            }
            pooled.set.let_inboxes_go();
        }
    }

    fn close_set(&self, entry: &FdEntry, word: SlotWord, pooled: &PooledSet) {
        let Some(sets) = self.sets() else { return };
        if self.engine().is_some_and(Engine::has_children) {
            // A child may go on with the set, and has to find there what the program registered.
            self.share(pooled);
        }
        entry.epoll.store(None, Ordering::SeqCst);
        for fd in pooled.set.close() {
            self.deleted(word, fd);
            if let Some(entry) = self.table.known(fd) {
                let _ = entry.last_set.exchange(Some(word), None);
            }
        }
        if let Some(slot) = self.own_slot(word) {
            sets.pool.give_back(slot);
        }
    }
}
