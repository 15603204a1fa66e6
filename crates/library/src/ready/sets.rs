//! All epoll sets of the process: which descriptor is a set, which set contains which descriptors,
//! and which sets may carry sessions.
//!
//! The shell and the rest of the library call this file. Not here: one set (`set`), waiting on it
//! (`set_wait`), and changes of a set's members (`members`).
//!
//! A table entry names its sets by words that contain the process's generation, as for sessions. So
//! after `fork` every existing set is the parent's, although nothing was changed.

use crate::fds::table::{FdEntry, mark};
use crate::host::epoll::{EpollEvent, control, op};
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::{Library, PerProcess};
use crate::ready::pollers::Pollers;
use crate::ready::set::{Changed, Set};
use crate::ready::set_call::Call;
use crate::ready::set_call::deadline;
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use crate::session::Session;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::io::{Errno, FdFlags};
use sojourn_session::ReasonT;
use std::sync::{Mutex, OnceLock};

mod members;

/// The sets that contain a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOf {
    /// No set contains it.
    None,
    /// This set alone contains it, counted from 1.
    One(u32),
    /// A set contains it that must first learn how the program uses it: the caller asks again when
    /// the descriptor is hot again.
    NotYet,
    /// Several sets contain it, or one that cannot carry sessions.
    Unfit,
}

/// The epoll sets of one process.
#[derive(Debug)]
pub(crate) struct Sets {
    chunks: [OnceLock<Box<[Slot]>>; Sets::CHUNKS],
    free: Mutex<Free>,
    /// The program closed a registered number while another number kept its description open, and
    /// with it the registration (epoll(7), "Questions and answers").
    has_left_behind: AtomicBool,
    pub(crate) pollers: Pollers,
}

static SETS: PerProcess<Box<Sets>> = PerProcess::new();

#[derive(Debug, Default)]
struct Slot {
    set: Set,
    /// The set's descriptor has been duplicated, passed on, polled or put into another set, or a
    /// child uses it: the set cannot carry sessions.
    is_shared: AtomicBool,
}

#[derive(Debug, Default)]
struct Free {
    slots: Vec<u32>,
    made: u32,
}

/// A descriptor, seen as an epoll set.
enum SetAt<'a> {
    /// Not a set, or one made past the library.
    Unknown,
    /// A set of this process: its word and its slot.
    Own(u32, &'a Slot),
    /// A set of an ancestor.
    Foreign(&'a FdEntry),
}

impl Sets {
    const CHUNK: usize = 16;
    const CHUNKS: usize = 1024;

    fn new() -> Box<Self> {
        Box::new(Self {
            chunks: [const { OnceLock::new() }; Self::CHUNKS],
            free: Mutex::default(),
            has_left_behind: AtomicBool::new(false),
            pollers: Pollers::default(),
        })
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let index = index as usize;
        self.chunks.get(index / Self::CHUNK)?.get()?.get(index % Self::CHUNK)
    }

    fn take(&self) -> Option<(u32, &Slot)> {
        let mut free = lock(&self.free);
        let index = free.slots.pop().unwrap_or(free.made);
        let chunk = self.chunks.get(index as usize / Self::CHUNK)?;
        chunk.get_or_init(|| (0..Self::CHUNK).map(|_| Slot::default()).collect());
        free.made = free.made.max(index + 1);
        Some((index, self.slot(index)?))
    }

    fn give_back(&self, index: u32) {
        lock(&self.free).slots.push(index);
    }

    fn all(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }
}

impl Slot {
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
        let Some((index, slot)) = sets.take() else { return };
        slot.set.open(epfd);
        // The slot may have been another set's.
        slot.is_shared.store(false, Ordering::SeqCst);
        entry.epoll.store(self.session_word(index), Ordering::SeqCst);
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
        let form = match (op, event) {
            (op::DEL, _) => (0, 0),
            (_, None) => return Err(Errno::FAULT),
            (_, Some(event)) => ({ event.flags }.bits(), { event.data }.u64()),
        };
        // Bad descriptors count before a bad operation, as in the kernel (`do_epoll_ctl`).
        if !(op::ADD..=op::MOD).contains(&op) {
            for fd in [epfd, fd] {
                rustix::io::fcntl_getfd(kernel::at(fd)?)?;
            }
            return Err(Errno::INVAL);
        }
        let (word, slot) = match self.set_at(epfd) {
            SetAt::Own(word, slot) => (word, slot),
            unknown => return self.change_unknown(&unknown, epfd, op, fd, form),
        };
        let changed = slot.set.change(self, epfd, op, fd, form)?;
        match op {
            op::ADD => self.added(word, slot, fd),
            op::DEL => self.deleted(word, fd),
            _ => {}
        }
        if changed == Changed::Collides {
            self.share(slot);
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
        let slot = match self.set_at(epfd) {
            SetAt::Own(_, slot) => slot,
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
        slot.set.wait(&mut Call { host, source, epfd, events, timeout, deadline, mask, wait })
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
        if word == 0 {
            let left = self.sets().is_some_and(|sets| sets.has_left_behind.load(Ordering::SeqCst));
            return match self.own_set(entry.last_set.load(Ordering::SeqCst)) {
                // The description may still be registered under a number that was closed.
                _ if left && entry.has(mark::ALIASED) => SetOf::Unfit,
                // The program has taken the descriptor out, most likely for a moment only: programs
                // put it back.
                Some((index, slot)) if slot.is_fit() && slot.set.number().is_some() => {
                    SetOf::One(index + 1)
                }
                _ => SetOf::None,
            };
        }
        match self.own_set(word) {
            Some((index, slot)) if slot.is_fit() => {
                if slot.set.watch(fd) {
                    SetOf::One(index + 1)
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
            SetAt::Own(_, slot) => self.share(slot),
            other => self.make_known(&other),
        }
    }

    /// Returns true if there are sets that sessions can be in and that a child would inherit.
    pub(crate) fn has_sets(&self) -> bool {
        let is_usable = |slot: &Slot| slot.is_fit() && slot.set.number().is_some();
        self.sets().is_some_and(|sets| sets.all().any(is_usable))
    }

    /// Leaves the set of that index to the kernel, because a child uses it or is about to.
    pub(crate) fn set_used_by_child(&self, index: u32) {
        if let Some(slot) = self.sets().and_then(|sets| sets.slot(index)) {
            self.share(slot);
        }
    }

    /// Leaves all sets to the kernel.
    pub(crate) fn give_up_sets(&self) {
        if let Some(sets) = self.sets() {
            sets.all().filter(|slot| slot.set.number().is_some()).for_each(|slot| self.share(slot));
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
        for slot in sets.all().filter(|slot| !slot.is_shared.load(Ordering::SeqCst)) {
            let Some(epfd) = slot.set.number() else { continue };
            let flags = kernel::at(epfd).and_then(rustix::io::fcntl_getfd);
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                self.share(slot);
            }
        }
    }
}

impl Library {
    /// Returns the epoll sets of this process, if it has any.
    fn sets(&self) -> Option<&'static Sets> {
        SETS.of(self).map(|sets| &**sets)
    }

    /// Returns the epoll sets of this process, made if need be.
    fn sets_or_new(&self) -> Option<&'static Sets> {
        SETS.of_or(self, Sets::new).map(|sets| &**sets)
    }

    /// Returns the threads of this process that sleep in polls.
    pub(crate) fn pollers(&self) -> Option<&Pollers> {
        Some(&self.sets_or_new()?.pollers)
    }

    fn own_set(&self, word: u32) -> Option<(u32, &Slot)> {
        let index = self.own_index(word)?;
        Some((index, self.sets()?.slot(index)?))
    }

    /// Returns true if the descriptor is a set that the library, here or in an ancestor, saw made.
    pub(crate) fn knows_set(&self, fd: i32) -> bool {
        !matches!(self.set_at(fd), SetAt::Unknown)
    }

    fn set_at(&self, epfd: i32) -> SetAt<'_> {
        let Some(entry) = self.table.known(epfd) else { return SetAt::Unknown };
        let word = entry.epoll.load(Ordering::SeqCst);
        if word == 0 {
            return SetAt::Unknown;
        }
        self.own_set(word).map_or(SetAt::Foreign(entry), |(_, slot)| SetAt::Own(word, slot))
    }

    /// Prepares for the first use of an ancestor's set here: the ancestor leaves it to the kernel,
    /// and this process's sessions in it come home.
    fn make_known(&self, set: &SetAt<'_>) {
        let SetAt::Foreign(of) = set else { return };
        let word = of.epoll.swap(0, Ordering::SeqCst);
        self.take_set_from_parent(word);
        let numbers: Vec<i32> = self.table.with_sessions().map(|(fd, _)| fd).collect();
        for fd in numbers {
            if let Some(entry) = self.table.known(fd)
                && [&entry.set, &entry.last_set].iter().any(|of| of.load(Ordering::SeqCst) == word)
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
        form: (u32, u64),
    ) -> Result<(), Errno> {
        self.make_known(set);
        let result = control(epfd, op, fd, form);
        self.missed_change(epfd);
        result?;
        if op == op::ADD {
            self.unfit(fd);
            self.set_shared(fd);
        }
        Ok(())
    }

    fn share(&self, slot: &Slot) {
        if !slot.is_shared.swap(true, Ordering::SeqCst) {
            for fd in slot.set.make_unfit() {
                self.unfit(fd);
                // This includes a session whose peer still owes it bytes: the kernel reports them
                // when they come.
                slot.set.leave(fd);
            }
            slot.set.let_inboxes_go();
        }
    }

    fn close_set(&self, entry: &FdEntry, word: u32, slot: &Slot) {
        let Some(sets) = self.sets() else { return };
        if self.engine().is_some_and(Engine::has_children) {
            // A child may go on with the set, and has to find there what the program registered.
            self.share(slot);
        }
        entry.epoll.store(0, Ordering::SeqCst);
        for fd in slot.set.close() {
            self.deleted(word, fd);
            if let Some(entry) = self.table.known(fd) {
                let _ =
                    entry.last_set.compare_exchange(word, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
        if let Some(index) = self.own_index(word) {
            sets.give_back(index);
        }
    }
}

impl ReadinessSource for Library {
    fn turn(&self) {
        self.turn_net();
    }

    fn begin_sleep(&self) -> bool {
        self.net().is_some_and(|net| net.begin_sleep(true))
    }

    fn end_sleep(&self, watches: bool) {
        if let Some(net) = self.net() {
            net.watch.end_sleep(watches);
        }
    }

    fn ring(&self, fd: i32) -> RingReadiness {
        let gone = RingReadiness { is_home: true, is_in_kernel: true, ..RingReadiness::default() };
        self.session_of(fd).map_or(gone, |session| {
            let ready = session.ready();
            RingReadiness {
                input: ready.input,
                output: ready.output,
                error: ready.error,
                is_home: ready.is_home,
                is_in_kernel: ready.is_in_kernel,
                others: ready.others,
            }
        })
    }

    fn arm(&self, fd: i32, input: bool, output: bool) {
        if let Some(session) = self.session_of(fd) {
            session.arm(input, output);
        }
    }

    fn kernel(&self, fd: i32, events: u32) -> u32 {
        if self.session_of(fd).is_some_and(Session::is_deaf) {
            return 0;
        }
        let wanted = PollFlags::from_bits_retain(events as u16);
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, wanted));
        found.map_or(0, |found| u32::from(found.bits()))
    }

    fn note_kernel_event(&self, fd: i32) {
        if let Some(session) = self.session_of(fd) {
            session.note_kernel_event();
        }
    }
}
