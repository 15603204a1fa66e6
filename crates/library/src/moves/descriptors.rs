//! Changes of descriptor numbers: opened, duplicated, replaced, closed, passed on, with new flags
//! or options.
//!
//! The shell reports them around the kernel's calls. Not here: going home (`home`). Read
//! `docs/understand/streams.md`, "Going home".

use crate::fds::entry::{Direction, FdEntry, mark};
use crate::host::kernel;
use crate::host::lock::lock;
use crate::io::signals::flags_of;
use crate::moves::flush::Rest;
use crate::process::deferred::NotifyWhen;
use crate::process::engine::{Engine, Job};
use crate::process::library::{FoundSession, Library, OwnSession};
use crate::session::Session;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fs::FileType;
use rustix::net::sockopt;
use sojourn_session::{Inode, KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;

/// How long a close waits for the server to close its duplicate, and the pause between two looks. A
/// living server needs some ten microseconds.
const OFFERED_LIMIT: Duration = Duration::from_millis(20);
const OFFERED_SLICE: Duration = Duration::from_micros(20);

/// The origin of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This process has just made it: nobody else has it.
    Fresh,
    /// Received, inherited, or unknown.
    Unknown,
}

/// The options whose change matters to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_RCVTIMEO`, `SO_SNDTIMEO`, `TCP_USER_TIMEOUT`.
    Timeouts,
    /// An option that a stream cannot honour: the session goes home for good.
    Binding,
    /// An option that UDP sockets obey while they are away; it has been set.
    OfDatagrams,
    /// Any other, which does not concern a stream.
    Other,
}

impl Library {
    /// Reports that the program has opened `fd`.
    pub fn opened(&self, fd: i32, origin: Origin) {
        let Some(entry) = self.table.entry(fd) else { return };
        if entry.session.load(Ordering::SeqCst).is_some() {
            // The old descriptor was closed past the library.
            self.lost(fd, entry);
        }
        let marks = if origin == Origin::Fresh { mark::BORN_HERE } else { 0 };
        entry.reset(marks, self.fork_epoch.load(Ordering::SeqCst));
    }

    /// Reports that the program is about to close `fd`. The shell calls [`Library::ended`] after
    /// the close.
    pub fn closing(&self, fd: i32) {
        self.host().number_closing(fd);
        let Some(entry) = self.table.known(fd) else { return };
        self.descriptor_closed(fd, true);
        if entry.session.load(Ordering::SeqCst).is_none() && !entry.has(mark::OFFERED) {
            entry.reset(0, 0);
            return;
        }
        // This comes first: threads that the following wakes must not take the number's next
        // meaning for the descriptor that they were waiting for.
        entry.version.fetch_add(1, Ordering::SeqCst);
        self.unjoin(fd, entry);
        entry.reset(0, 0);
    }

    /// Reports that the program is about to close every number from `first` to `last`, except the
    /// library's own. The shell calls [`Library::ended`] after that.
    pub fn closing_range(&self, first: u32, last: u32) {
        for fd in self.table.known_within(first, last) {
            if !self.is_own(fd) {
                self.closing(fd);
            }
        }
    }

    /// Returns the first of the library's own numbers from `from` on.
    pub fn next_own(&self, from: u32) -> Option<u32> {
        let own = self.engine().and_then(|engine| engine.own.next(from));
        let inherited = self.inherited_doorbells().filter_map(|fd| u32::try_from(fd).ok());
        inherited.filter(|fd| *fd >= from).chain(own).min()
    }

    /// Returns true if a wait for `fd` must be made through the library: the descriptor has a
    /// session, or may get one meanwhile.
    pub fn concerns(&self, fd: i32) -> bool {
        self.table.known(fd).is_some_and(|entry| {
            entry.session.load(Ordering::SeqCst).is_some()
                || !entry.has(mark::FIXED)
                || entry.epoll.load(Ordering::SeqCst).is_some()
        })
    }

    /// Returns true if the kernel serves data calls on `fd` for good, so that the library need not
    /// be asked.
    #[inline]
    pub fn is_kernel_only(&self, fd: i32) -> bool {
        let Some(entry) = self.table.known(fd) else { return fd < 0 };
        // Where nothing moves any more, no calls are counted.
        let is_fixed = entry.is_settled() || self.policy.is_forbidden();
        is_fixed && entry.session.load(Ordering::Relaxed).is_none()
    }

    /// Returns true if [`Library::is_kernel_only`] would, from the entry alone: false is always
    /// safe.
    #[inline(always)]
    pub fn is_surely_kernel_only(&self, fd: i32) -> bool {
        self.table.known(fd).is_some_and(|entry| {
            entry.is_settled() && entry.session.load(Ordering::Relaxed).is_none()
        })
    }

    /// Returns the address of the entry of number 0, for callers that read what
    /// [`Library::is_surely_kernel_only`] does ([`FdEntry::LAYOUT`]); null if there is none yet.
    pub fn first_entry(&self) -> *const FdEntry {
        self.table.first().map_or(core::ptr::null(), core::ptr::from_ref)
    }

    /// Reports that something else is about to be put on `fd` (`dup2(2)`, `dup3(2)`), which closes
    /// it. The shell calls [`Library::ended`] after that.
    pub fn replacing(&self, fd: i32) {
        self.closing(fd);
    }

    /// Reports that `new` has become a duplicate of `old`.
    pub fn duplicated(&self, old: i32, new: i32) {
        let (Some(from), Some(to)) = (self.table.known(old), self.table.entry(new)) else { return };
        if old == new {
            return;
        }
        self.take_back(old, from);
        // One of the two numbers can be closed past the library. So before either moves all numbers
        // are looked for, and a session that is away goes home. On one host, bytes for which the
        // kernel has no room follow: the peer may have passed its end on, and takes nothing from
        // the ring then.
        let is_local = |found: &FoundSession<'_>| found.session.local().is_some();
        let follows = self.own_session(from).as_ref().is_some_and(is_local);
        let rest = if follows { Rest::Follows } else { Rest::of(ReasonT::Operation, true) };
        self.send_home(old, ReasonT::Operation, rest);
        self.set_shared(old);
        from.mark(mark::ALIASED);
        let kept = from.marks.load(Ordering::Relaxed) & !(mark::OFFERED | mark::SETS);
        to.reset(kept, from.epoch.load(Ordering::Relaxed));
        to.keep_as(from);
        if follows {
            self.share_way_home(from, to, old, new);
        }
    }

    /// Makes a duplicate a number of the session that is on its way home, so that its calls, too,
    /// wait for bytes that are to follow, and find those that the peer owes.
    fn share_way_home(&self, from: &FdEntry, to: &FdEntry, old: i32, new: i32) {
        let Some(FoundSession { session, .. }) = self.own_session(from) else { return };
        let mut facts = lock(&session.facts);
        // A session that is home for good meanwhile has given up its numbers, under this lock.
        if facts.numbers.contains(&old) && !facts.numbers.contains(&new) {
            facts.numbers.push(new);
            to.session.store(self.word_of(session.slot()), Ordering::SeqCst);
        }
    }

    /// Notes that the process has made a pipe, or has one that is worth moving.
    pub fn pipe_made(&self) {
        self.has_pipes.store(true, Ordering::Relaxed);
    }

    /// Returns true if the process has made a pipe, or has offered one.
    #[inline]
    pub fn has_pipes(&self) -> bool {
        self.has_pipes.load(Ordering::Relaxed)
    }

    /// Reports that the program has opened `new` by a name. Returns true if that is an end of a
    /// pipe which the process has under other numbers, too (/proc has names for pipes). Those are
    /// treated as duplicates of `new`: the kernel's descriptions differ, but the bytes are the
    /// same.
    pub fn opened_by_name(&self, new: i32) -> bool {
        let Some(pipe) = pipe_at(new) else { return false };
        let is_same = |fd: &i32| *fd != new && pipe_at(*fd) == Some(pipe);
        let others: Vec<i32> = self.table.known_within(0, u32::MAX).filter(is_same).collect();
        for fd in &others {
            self.duplicated(*fd, new);
        }
        !others.is_empty()
    }

    /// Withdraws an offer: its statements about the descriptor's holders and numbers no longer
    /// hold. An offer made under another number of the description fails when it is answered.
    fn take_back(&self, fd: i32, entry: &FdEntry) {
        let Some(engine) = self.engine() else { return };
        let _joining = lock(&engine.joining);
        if entry.may_be_aliased() {
            self.alias_epoch.fetch_add(1, Ordering::SeqCst);
        }
        if entry.has(mark::OFFERED) {
            entry.unmark(mark::OFFERED);
            self.push(Job::Withdraw { fd });
        }
    }

    /// Reports that `fd` is about to be passed to another process.
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

    /// Returns true if `fd` is the library's own: to the program it is not open.
    #[inline]
    pub fn is_own(&self, fd: i32) -> bool {
        self.engine().is_some_and(|engine| engine.own.owns(fd))
            || self.inherited_doorbells().any(|bell| bell == fd)
    }

    /// Sends the session of `fd` home if it is an ancestor's: that process does not learn of this
    /// process's changes, and would not report readiness to it.
    pub fn recall_foreign(&self, fd: i32) {
        if let Some(entry) = self.table.known(fd)
            && entry.session.load(Ordering::Relaxed).is_some()
            && !self.shares_service(fd, entry)
        {
            self.recall_from_parent(fd, entry);
        }
    }

    /// Reports that the flags of `fd` have changed.
    pub fn flags_changed(&self, fd: i32) {
        if let Some(session) = self.session_of(fd) {
            session.learn_flags(fd);
            if session.has_other_flags() {
                // Two descriptions of one end, of which only this one has changed.
                self.go_home(fd, ReasonT::Operation, false);
            } else if !session.learn_signals(fd) {
                self.go_home(fd, ReasonT::Operation, false);
            }
        } else {
            self.recall_foreign(fd);
        }
    }

    /// Reports that an option of `fd` has been set.
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
                // For an offered socket the options are read when its session begins to be carried.
                if let Some(session) = self.session_of(fd) {
                    match session.service.is_any() {
                        // The protocol server's library reads them when it offers the socket.
                        true => self.go_home(fd, ReasonT::Option, false),
                        false => session.options_changed(),
                    }
                } else {
                    self.recall_foreign(fd);
                }
            }
            SocketOption::Other => {
                let Some(entry) = self.table.known(fd) else { return };
                // The kernel is asked for the kind only where no session knows it: programs set
                // options of TCP for each answer (`TCP_CORK`).
                let is_udp = match self.session_of(fd) {
                    Some(session) => session.is_udp(),
                    None => {
                        let is_away = entry.session.load(Ordering::SeqCst).is_some();
                        (is_away || entry.has(mark::OFFERED)) && self.is_udp(fd)
                    }
                };
                // The server read a UDP socket's options when it was offered, and they may bind it
                // to the kernel now: it is offered anew.
                if is_udp {
                    self.take_back(fd, entry);
                    self.go_home(fd, ReasonT::Option, false);
                }
            }
        }
    }

    /// Counts the bytes that `FIONREAD` must add to the kernel's count, for which `ask_kernel`
    /// asks, perhaps several times. `None`: none is to be added, and the kernel was not asked.
    pub fn input_queue(&self, fd: i32, ask_kernel: impl FnMut()) -> Option<usize> {
        Some(self.session_of(fd)?.queued_beside(ask_kernel))
    }

    /// Returns the length (bytes) that `FIONREAD` must return instead of the kernel's: that of the
    /// next datagram.
    pub fn next_datagram(&self, fd: i32) -> Option<usize> {
        self.session_of(fd)?.next_datagram()
    }

    /// Returns true if `fd` is a UDP socket.
    pub fn is_udp(&self, fd: i32) -> bool {
        crate::process::thresholds::kind_of(fd) == Some(KindT::Udp)
    }

    /// Returns true if `fd` is a UDP socket that is away.
    pub fn is_datagram(&self, fd: i32) -> bool {
        self.session_of(fd).is_some_and(|session| session.is_udp())
    }

    /// Counts the bytes that `SIOCOUTQ` must add to the kernel's count.
    pub fn output_queue(&self, fd: i32) -> Option<usize> {
        self.session_of(fd).map(|session| session.output_queue())
    }

    /// Ends a number's part in a session or an offer.
    fn unjoin(&self, fd: i32, entry: &FdEntry) {
        let Some(engine) = self.engine() else { return };
        let _joining = lock(&engine.joining);
        if entry.has(mark::OFFERED) {
            entry.unmark(mark::OFFERED);
            // An offer costs about what a move does.
            self.policy.lifetimes.ended(now_ns(), Duration::ZERO, 0);
            self.push_when(Job::Withdraw { fd }, NotifyWhen::Deferred);
            if engine.offering.load(Ordering::SeqCst) == fd {
                self.end_offered(engine, fd, entry);
            }
        }
        let Some(FoundSession { session, .. }) = self.own_session(entry) else {
            // The session is another process's, or there is none: only the number is cleared.
            entry.session.store(None, Ordering::SeqCst);
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
        entry.session.store(None, Ordering::SeqCst);
    }

    /// Makes a close of `fd` effective although the server has a duplicate at this moment. If the
    /// close would end the connection in an orderly way, the socket is shut down now. If that is
    /// not known, this waits for the server's answer, before which the server closes its duplicate.
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

    /// Ends the session of a descriptor that was closed past the library: the kernel has told the
    /// peer already.
    fn lost(&self, fd: i32, entry: &FdEntry) {
        if let Some(FoundSession { session, .. }) = self.own_session(entry) {
            session.abandon();
        }
        entry.session.store(None, Ordering::SeqCst);
        self.descriptor_closed(fd, false);
    }
}

/// The inode of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PipeInode {
    device: u64,
    inode: Inode,
}

/// Returns the inode of the pipe at `fd`, if it is one.
fn pipe_at(fd: i32) -> Option<PipeInode> {
    let found = rustix::fs::fstat(crate::host::kernel::at(fd).ok()?).ok()?;
    let is_pipe = FileType::from_raw_mode(found.st_mode) == FileType::Fifo;
    is_pipe.then_some(PipeInode { device: found.st_dev, inode: Inode(found.st_ino) })
}

impl OwnSession<'_> {
    /// Counts the calls of this process that sit in the kernel on any of the session's numbers.
    pub(crate) fn users(self, way: Direction) -> u32 {
        let facts = lock(&self.facts);
        let table = &self.library.table;
        facts.numbers.iter().filter_map(|fd| table.known(*fd)).map(|entry| entry.users(way)).sum()
    }
}

impl Session {
    pub(crate) fn learn_flags(&self, fd: i32) {
        let is_set = flags_of(fd).contains(rustix::fs::OFlags::NONBLOCK);
        self.is_nonblocking.store(is_set, Ordering::SeqCst);
    }

    /// Returns true if calls on one of the session's numbers wait where those on another do not.
    fn has_other_flags(&self) -> bool {
        let waits = |fd: &i32| {
            let flags = crate::host::kernel::at(*fd).and_then(rustix::fs::fcntl_getfl);
            flags.is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
        };
        let facts = lock(&self.facts);
        let [first, others @ ..] = &*facts.numbers else { return false };
        !others.is_empty() && others.iter().any(|other| waits(other) != waits(first))
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
        let user_timeout = || sockopt::tcp_user_timeout(crate::host::kernel::at(fd).ok()?).ok();
        let is_set = self.kind() == KindT::Tcp && user_timeout().is_some_and(|ms| ms != 0);
        self.has_user_timeout.store(is_set, Ordering::SeqCst);
    }
}
