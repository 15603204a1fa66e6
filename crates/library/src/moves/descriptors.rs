//! What becomes of descriptor numbers: opened, duplicated, replaced, closed, changed, passed on.
//!
//! The shell tells, around the kernel's calls. Read `docs/understand/streams.md`, "Going home".

use crate::fds::table::{Direction, FdEntry, mark};
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::deferred::Telling;
use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use crate::process::library::library;
use crate::session::Session;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fs::FileType;
use rustix::net::sockopt;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;

/// How long a close waits for the server to let go of its duplicate, and how often it looks. A
/// server that lives needs some ten microseconds.
const OFFERED_LIMIT: Duration = Duration::from_millis(20);
const OFFERED_SLICE: Duration = Duration::from_micros(20);

/// Where a descriptor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Made by this process just now: nobody else has it.
    Fresh,
    /// Received, inherited, or not known.
    Unknown,
}

/// Options whose change the library must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_RCVTIMEO`, `SO_SNDTIMEO`.
    Timeouts,
    /// One that a stream cannot honour: the session goes home and stays.
    Binding,
    /// One that UDP sockets obey while they are away; it has been set.
    OfDatagrams,
    /// Any other: a stream does not mind.
    Other,
}

impl Library {
    /// The program opened `fd`.
    pub fn opened(&self, fd: i32, origin: Origin) {
        let Some(entry) = self.table.entry(fd) else { return };
        if entry.session.load(Ordering::SeqCst) != 0 {
            // It was closed by a way that we did not see.
            self.lost(fd, entry);
        }
        let marks = if origin == Origin::Fresh { mark::BORN_HERE } else { 0 };
        entry.reset(marks, self.fork_epoch.load(Ordering::SeqCst));
    }

    /// Before the program closes `fd`. [`Library::ended`] comes after that.
    pub fn closing(&self, fd: i32) {
        self.host().number_closing(fd);
        let Some(entry) = self.table.known(fd) else { return };
        self.descriptor_closed(fd, true);
        if entry.session.load(Ordering::SeqCst) == 0 && !entry.has(mark::OFFERED) {
            entry.reset(0, 0);
            return;
        }
        // First: threads that this wakes must not take what the number becomes for what they were
        // waiting for.
        entry.version.fetch_add(1, Ordering::SeqCst);
        self.unjoin(fd, entry);
        entry.reset(0, 0);
    }

    /// Before the program closes every number from `first` to `last`; the library's own are left
    /// out. [`Library::ended`] comes after that.
    pub fn closing_range(&self, first: u32, last: u32) {
        for fd in self.table.known_within(first, last) {
            if !self.is_own(fd) {
                self.closing(fd);
            }
        }
    }

    /// The first of the library's own numbers from `from` on.
    pub fn next_own(&self, from: u32) -> Option<u32> {
        let own = self.engine().and_then(|engine| engine.own.next(from));
        let inherited = self.inherited_doorbells().filter_map(|fd| u32::try_from(fd).ok());
        inherited.filter(|fd| *fd >= from).chain(own).min()
    }

    /// Whether a wait for `fd` must be known here: it has a session, or may come to have one
    /// meanwhile.
    pub fn concerns(&self, fd: i32) -> bool {
        self.table.known(fd).is_some_and(|entry| {
            entry.session.load(Ordering::SeqCst) != 0
                || !entry.has(mark::FIXED)
                || entry.epoll.load(Ordering::SeqCst) != 0
        })
    }

    /// Whether data calls on `fd` are the kernel's for good, so that nobody need be asked. Cannot
    /// fail.
    #[inline]
    pub fn is_plain(&self, fd: i32) -> bool {
        let Some(entry) = self.table.known(fd) else { return fd < 0 };
        // Where nothing moves any more, nobody counts.
        let is_fixed = entry.is_settled() || self.policy.is_forbidden();
        is_fixed && entry.session.load(Ordering::Relaxed) == 0
    }

    /// Whether [`Library::is_plain`], where a no is no harm: for good, and without a look at
    /// settings.
    #[inline(always)]
    pub fn is_surely_plain(&self, fd: i32) -> bool {
        self.table
            .known(fd)
            .is_some_and(|entry| entry.is_settled() && entry.session.load(Ordering::Relaxed) == 0)
    }

    /// Before something else is put on `fd` (dup2, dup3): as a close, with [`Library::ended`] after
    /// it.
    pub fn replacing(&self, fd: i32) {
        self.closing(fd);
    }

    /// `new` has become a duplicate of `old`.
    pub fn duplicated(&self, old: i32, new: i32) {
        let (Some(from), Some(to)) = (self.table.known(old), self.table.entry(new)) else { return };
        if old == new {
            return;
        }
        self.take_back(old, from);
        // One number of two can be forgotten by a close that we do not see: both are looked at
        // closely before either moves, and what has moved goes home.
        self.go_home(old, ReasonT::Operation, false);
        self.set_shared(old);
        from.mark(mark::ALIASED);
        let kept = from.marks.load(Ordering::Relaxed) & !(mark::OFFERED | mark::SETS);
        to.reset(kept, from.epoch.load(Ordering::Relaxed));
        to.keep_as(from);
    }

    /// The process has made a pipe, or has one that is worth moving.
    pub fn pipe_made(&self) {
        self.has_pipes.store(true, Ordering::Relaxed);
    }

    /// Whether it may have pipes that matter: it has made some, or offered some.
    #[inline]
    pub fn has_pipes(&self) -> bool {
        self.has_pipes.load(Ordering::Relaxed)
    }

    /// The program has opened `new` by a name. Whether it is an end of a pipe that the process has
    /// under other numbers, too (/proc has names for them). Those are treated as its duplicates:
    /// the kernel's descriptions are two, but the bytes are the same.
    pub fn opened_by_name(&self, new: i32) -> bool {
        let Some(pipe) = pipe_at(new) else { return false };
        let is_same = |fd: &i32| *fd != new && pipe_at(*fd) == Some(pipe);
        let others: Vec<i32> = self.table.known_within(0, u32::MAX).filter(is_same).collect();
        for fd in &others {
            self.duplicated(*fd, new);
        }
        !others.is_empty()
    }

    /// Takes back an offer: what it said of the descriptor's holders and numbers is true no more.
    /// If it was made under another number, it comes to nothing when it is answered.
    fn take_back(&self, fd: i32, entry: &FdEntry) {
        let Some(engine) = self.engine() else { return };
        let _joining = lock(&engine.joining);
        if entry.may_be_aliased() {
            self.alias_epoch.fetch_add(1, Ordering::SeqCst);
        }
        if entry.has(mark::OFFERED) {
            entry.unmark(mark::OFFERED);
            library().push(Job::Withdraw { fd });
        }
    }

    /// `fd` is about to be given to somebody else.
    pub fn passing(&self, fd: i32) {
        if let Some(entry) = self.table.known(fd) {
            self.take_back(fd, entry);
        }
        self.go_home(fd, ReasonT::Passed, false);
        self.set_shared(fd);
        if let Some(entry) = self.table.entry(fd) {
            entry.mark(mark::PASSED);
        }
    }

    /// Whether `fd` is the library's own: to the program it is not open.
    #[inline]
    pub fn is_own(&self, fd: i32) -> bool {
        self.engine().is_some_and(|engine| engine.own.owns(fd))
            || self.inherited_doorbells().any(|bell| bell == fd)
    }

    /// If the session of `fd` is that of a process we were `fork`ed from, it goes home: that
    /// process knows nothing of what we change, and nobody tells us of what comes.
    pub fn recall_foreign(&self, fd: i32) {
        if let Some(entry) = self.table.known(fd)
            && entry.session.load(Ordering::Relaxed) != 0
        {
            self.recall_from_parent(entry);
        }
    }

    /// The flags of `fd` have changed.
    pub fn flags_changed(&self, fd: i32) {
        if let Some(session) = self.session_of(fd) {
            session.learn_flags(fd);
        } else {
            self.recall_foreign(fd);
        }
    }

    /// An option of `fd` has been set.
    pub fn option_changed(&self, fd: i32, option: SocketOption) {
        match option {
            SocketOption::Timeouts => {
                if let Some(session) = self.session_of(fd) {
                    session.learn_timeouts(fd);
                } else {
                    self.recall_foreign(fd);
                }
            }
            SocketOption::Binding => self.go_home(fd, ReasonT::Option, true),
            SocketOption::OfDatagrams => {
                // One that is offered is looked at when it begins to be carried.
                if let Some(session) = self.session_of(fd) {
                    session.options_changed();
                } else {
                    self.recall_foreign(fd);
                }
            }
            SocketOption::Other => {
                let Some(entry) = self.table.known(fd) else { return };
                let is_away = entry.session.load(Ordering::SeqCst) != 0;
                // What a UDP socket's were was looked at when it was offered.
                if (is_away || entry.has(mark::OFFERED))
                    && crate::process::thresholds::kind_of(fd) == Some(KindT::Udp)
                {
                    self.take_back(fd, entry);
                    self.go_home(fd, ReasonT::Option, false);
                }
            }
        }
    }

    /// Bytes that `FIONREAD` must count beside the kernel's.
    pub fn input_queue(&self, fd: i32) -> Option<usize> {
        self.session_of(fd).map(Session::input_queue)
    }

    /// Bytes of the datagram that `FIONREAD` must tell of in place of the kernel's.
    pub fn next_datagram(&self, fd: i32) -> Option<usize> {
        self.session_of(fd).filter(|session| session.is_datagram())?.next_datagram()
    }

    /// Whether `fd` is a UDP socket.
    pub fn is_udp(&self, fd: i32) -> bool {
        crate::process::thresholds::kind_of(fd) == Some(KindT::Udp)
    }

    /// Whether `fd` is a UDP socket that is not the kernel's alone.
    pub fn is_datagram(&self, fd: i32) -> bool {
        self.session_of(fd).is_some_and(Session::is_datagram)
    }

    /// Bytes that `SIOCOUTQ` must count beside the kernel's.
    pub fn output_queue(&self, fd: i32) -> Option<usize> {
        self.session_of(fd).map(Session::output_queue)
    }

    /// Ends what a number has to do with a session: its close or its offer.
    fn unjoin(&self, fd: i32, entry: &FdEntry) {
        let Some(engine) = self.engine() else { return };
        let _joining = lock(&engine.joining);
        if entry.has(mark::OFFERED) {
            entry.unmark(mark::OFFERED);
            self.push_when(Job::Withdraw { fd }, Telling::Deferred);
            if engine.offering.load(Ordering::SeqCst) == fd {
                self.end_offered(engine, fd, entry);
            }
        }
        let Some((session, _)) = self.own_session(entry) else {
            // Another process's, or none: only the number goes.
            entry.session.store(0, Ordering::SeqCst);
            return;
        };
        let is_last = {
            let mut facts = lock(&session.facts);
            facts.numbers.retain(|number| *number != fd);
            if let Some(other) = facts.numbers.first() {
                session.fd.store(*other, Ordering::SeqCst);
            }
            facts.numbers.is_empty()
        };
        if is_last {
            session.close();
        }
        entry.session.store(0, Ordering::SeqCst);
    }

    /// The server has a duplicate of `fd` at this moment, so that the program's close is not the
    /// end yet. If it would be but for that, and would be an orderly one, the peer is told so now.
    /// Where that is not known the server's answer is waited for, with which its duplicate is
    /// closed.
    fn end_offered(&self, engine: &Engine, fd: i32, entry: &FdEntry) {
        let is_sole = self.is_sole(entry) && !entry.may_be_aliased();
        let is_stream =
            matches!(crate::process::thresholds::kind_of(fd), Some(KindT::Tcp | KindT::Unix));
        if is_sole
            && is_stream
            && kernel::input_queue(fd) == 0
            && let Ok(end) = kernel::at(fd)
            && sockopt::socket_linger(end).is_ok_and(|linger| linger.is_none())
        {
            let _ = rustix::net::shutdown(end, rustix::net::Shutdown::Both);
            return;
        }
        let deadline = Deadline::after(OFFERED_LIMIT);
        while engine.offering.load(Ordering::SeqCst) == fd && !deadline.is_over() {
            std::thread::sleep(OFFERED_SLICE);
        }
    }

    /// The descriptor has gone without our seeing it: the kernel has told the peer already.
    fn lost(&self, fd: i32, entry: &FdEntry) {
        if let Some((session, _)) = self.own_session(entry) {
            session.abandon();
        }
        entry.session.store(0, Ordering::SeqCst);
        self.descriptor_closed(fd, false);
    }
}

/// Which pipe is open at `fd`, if one is.
fn pipe_at(fd: i32) -> Option<(u64, u64)> {
    let found = rustix::fs::fstat(crate::host::kernel::at(fd).ok()?).ok()?;
    let is_pipe = FileType::from_raw_mode(found.st_mode) == FileType::Fifo;
    is_pipe.then_some((found.st_dev, found.st_ino))
}

impl Session {
    /// Calls of this process sitting in the kernel on any of its numbers.
    pub(crate) fn users(&self, way: Direction) -> u32 {
        let facts = lock(&self.facts);
        let table = &library().table;
        facts.numbers.iter().filter_map(|fd| table.known(*fd)).map(|entry| entry.users(way)).sum()
    }

    pub(crate) fn learn_flags(&self, fd: i32) {
        let flags = crate::host::kernel::at(fd).and_then(rustix::fs::fcntl_getfl);
        let is_set = flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK));
        self.is_nonblocking.store(is_set, Ordering::SeqCst);
    }

    pub(crate) fn learn_timeouts(&self, fd: i32) {
        let timeout = |which| {
            let fd = sojourn_shm::descriptor::of_program(fd)?;
            let found = sockopt::socket_timeout(fd, which).ok()??;
            u64::try_from(found.as_nanos()).ok()
        };
        let is_socket = self.kind() != KindT::Pipe;
        let of = |which| if is_socket { timeout(which).unwrap_or(0) } else { 0 };
        self.receive_timeout.store(of(sockopt::Timeout::Recv), Ordering::SeqCst);
        self.send_timeout.store(of(sockopt::Timeout::Send), Ordering::SeqCst);
    }
}
