//! Going home: leaving the stream, and letting go of it when nothing is owed any more.
//!
//! Any thread of the process may send a session home, under both locks of the session. Not here:
//! freezing the stream (`freeze`), the bytes that the peer has not read (`flush`), and those that a
//! dead writer has left in a ring (`put_back`). Read `docs/understand/streams.md`, "Going home".

use crate::host::kernel;
use crate::host::lock::lock;
use crate::moves::flush::{Rest, ReturnTerms};
use crate::process::deferred::NotifyWhen;
use crate::process::library::{FoundSession, Library, OwnSession};
use crate::process::patience::{PASS_LIMIT, Waits};
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase, TxPhase};
use crate::session::identity::InboxPlace;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::io::Errno;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;
use sojourn_stream::Stream;

/// How long a close waits for the peer to put into the kernel what the program never read.
const UNREAD_LIMIT: Duration = Duration::from_millis(100);
/// How long a call that has found its peer's end may wait for it without sleeping: about what the
/// peer's system call takes, and less than a wake-up.
const END_LIMIT: Duration = Duration::from_micros(20);
/// How long a process that ends may take for its sessions, if kernels are full and peers do not
/// answer.
const EXIT_LIMIT: Duration = Duration::from_millis(300);
/// Pause between two looks after a peer that owes bytes, while a thread waits for them.
const OWED_SLICE: Duration = Duration::from_millis(20);

impl OwnSession<'_> {
    /// Sends the session home. With `pass_on` another holder may use the descriptor next: then this
    /// returns when the kernel has what the peer had sent, or as much of it as there is room for.
    pub(crate) fn leave(self, reason: ReasonT, pass_on: bool) {
        // The peer, or the kernel, has woken the protocol thread as well. So this call, which was
        // only the first to find the freeze and may be about to hear of the end, wakes nobody.
        let is_told = reason == ReasonT::PeerLeft && self.local().is_some();
        let stream = if is_told { self.stream() } else { None };
        let (fd, kind) = (self.number(), self.kind());
        self.leave_within(ReturnTerms {
            reason,
            rest: Rest::of(reason, pass_on),
            waits: match pass_on {
                true => Waits::until(self.library.patience.until(PASS_LIMIT)),
                false => Waits::NOT,
            },
            when: if is_told { NotifyWhen::Deferred } else { NotifyWhen::Now },
        });
        if let Some(stream) = stream.filter(|stream| stream.peer_ends()) {
            await_end(fd, kind, stream.peer_cpu_writing());
        }
    }

    /// Sends the session home at the server's wish. The server takes a process for dead when it no
    /// longer hears of it, but such a process may have lost only the server: then the peer still
    /// puts owed bytes into the kernel, and reads there what it has not read. If the process has
    /// ended, the process table or the kernel's descriptor says so.
    pub(crate) fn recalled(self, reason: ReasonT) {
        let is_doubtful = reason == ReasonT::PeerDied && self.local().is_some();
        let lives = is_doubtful && !self.peer_process_is_gone() && !self.kernel_has_ended();
        let reason = if lives { ReasonT::PeerLeft } else { reason };
        let (rest, waits) = (Rest::of(reason, false), Waits::NOT);
        self.leave_within(ReturnTerms { reason, rest, waits, when: NotifyWhen::Now });
    }

    /// Sends the session home on these terms.
    pub(crate) fn leave_within(self, terms: ReturnTerms) {
        self.library.with_stack(|| self.leave_here(&terms));
    }

    fn leave_here(self, terms: &ReturnTerms) {
        if self.service.is_any() {
            return self.leave_service();
        }
        // Read first: as soon as the session is frozen another thread may detach it, after which
        // nobody knows any more where its polls sleep.
        let place = self.place();
        let stream = {
            let mut tx = lock(&self.tx);
            let mut rx = lock(&self.rx);
            let Some(stream) = tx.stream.clone().or_else(|| rx.stream.clone()) else { return };
            if terms.rest == Rest::Stays {
                // Somebody else takes bytes out of the kernel next, uncounted, so that nobody knows
                // any more which bytes the peeked ones are.
                rx.peeked.forget();
            }
            if tx.phase != TxPhase::Home
                || !matches!(rx.phase, RxPhase::Residue(_) | RxPhase::Reset)
            {
                self.freeze(&mut tx, &mut rx, &stream, terms);
            }
            stream
        };
        // Sleepers of this process look again, and find the kernel.
        wake_sleepers(&stream, place);
        self.settle();
        self.await_rest(&stream, terms.waits.peer);
    }

    /// Waits until the kernel has what the peer had sent, or as much of it as there is room for.
    pub(crate) fn await_rest(self, stream: &Stream, until: Deadline) {
        if !until.is_over() {
            self.attend_other_end();
        }
        self.await_residue(stream, until);
        self.put_back_rest(stream);
        self.settle();
    }

    /// Lets go of a session that `finish` has ended. Of one that is still owed bytes, the kernel
    /// tells room once the sending direction has ended. The caller holds no lock of the session:
    /// the locks of epoll sets come first.
    pub(crate) fn settle(self) {
        // SYNC: full order with `end_sending`: the direction that is over last comes here after
        // that.
        if !self.is_flushing.load(Ordering::SeqCst) && self.is_over.swap(false, Ordering::SeqCst) {
            self.library.detach(&self);
        } else if self.has_ended_sending.swap(false, Ordering::SeqCst) {
            self.library.set_asks_for_room(&self);
        }
    }

    /// Waits until the peer has put the owed bytes into the kernel, or as many as there is room
    /// for, or has died.
    fn await_residue(self, stream: &Stream, deadline: Deadline) {
        let begun = now_ns();
        let has_said = || stream.peer_flushed().is_some() || stream.peer_flushing().is_some();
        while self.is_owed(stream) && !has_said() && !deadline.is_over() && !self.peer_is_dead() {
            let said = stream.announce_reader(sojourn_stream::Bell::OnFutex);
            if !has_said() {
                stream.sleep_reader(said, Some(OWED_SLICE), sojourn_shm::futex::wait);
            }
            stream.withdraw_reader();
        }
        self.library.patience.waited_since(begun);
    }

    /// Follows the peer, which asked for attention: it has frozen the stream, or has flushed what
    /// it owed.
    pub(crate) fn attend(self) {
        let Some(stream) = self.stream() else { return };
        if !stream.is_frozen() {
            if self.local().is_none() {
                self.hand_over(&stream);
            }
            return;
        }
        self.leave(ReasonT::PeerLeft, false);
        self.is_owed(&stream);
        self.settle();
    }

    /// Ends the protocol thread's watch on the descriptor.
    pub(crate) fn unwatch(self) {
        if let Some(kit) = self.library.engine().and_then(|engine| engine.own.kit())
            && let Ok(fd) = kernel::at(self.number())
        {
            let _ = rustix::event::epoll::delete(&kit.watched, fd);
        }
    }

    /// Goes home before the last descriptor is closed. Unread bytes make the kernel's close a
    /// reset, as they would without the library. Notifications are deferred ([`Library::ended`]).
    pub(crate) fn close(self) {
        if self.service.is_any() {
            return self.close_service();
        }
        self.end_signals();
        let unread = self.input_queue();
        let stream = self.stream();
        if let Some(stream) = &stream {
            stream.will_end();
        }
        // First, because it wakes the peer's calls.
        self.leave_within(ReturnTerms {
            reason: ReasonT::Closed,
            rest: Rest::Ends,
            waits: Waits::NOT,
            when: NotifyWhen::Deferred,
        });
        // This thread does it: if the protocol thread were in a call on the descriptor, the
        // connection would not have ended when the program's close returns.
        self.unwatch();
        if unread > 0
            && self.kind() == KindT::Unix
            && let Some(stream) = stream
        {
            // A Unix socket is closed with the unread bytes in its queue, so that the peer sees a
            // reset (`unix_release_sock`).
            self.await_residue(&stream, self.library.patience.until(UNREAD_LIMIT));
        }
        if unread > 0
            && self.kind() == KindT::Tcp
            && let Ok(fd) = kernel::at(self.number())
        {
            // A linger time of zero makes the close of a TCP socket a reset (`tcp_disconnect` in
            // `__tcp_close`), as RFC 9293 section 3.6.1 asks for where bytes are unread.
            let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        }
        {
            let mut rx = lock(&self.rx);
            if rx.phase != RxPhase::Home {
                rx.is_reset = false;
                self.finish(&mut rx);
            }
        }
        self.settle();
    }
}

impl Session {
    /// Ends the receiving direction, to which nothing is owed any more: the descriptor is an
    /// ordinary one again. A reset that the program must see keeps the session until it is
    /// reported.
    pub(crate) fn finish(&self, rx: &mut Receiver) {
        if rx.is_reset {
            rx.phase = RxPhase::Reset;
            return;
        }
        rx.phase = RxPhase::Home;
        rx.stream = None;
        rx.peeked.forget();
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Returns true if the peer still owes bytes; ends the residue if not.
    fn is_owed(&self, stream: &Stream) -> bool {
        let mut rx = lock(&self.rx);
        let RxPhase::Residue(residue) = rx.phase else { return false };
        let owed = stream.peer_leftover().unwrap_or(0);
        let is_owed = residue.flushed(stream).is_none_or(|flushed| flushed < owed);
        // Peeked bytes must be laid over the kernel's, which only the residue does.
        if !is_owed && rx.peeked.is_empty() {
            self.finish(&mut rx);
        }
        is_owed
    }

    /// Returns true if nobody is left to put the owed bytes into the kernel. A process that has
    /// ended may still have its number, as a zombie: then the kernel's hang-up tells.
    pub(crate) fn peer_is_dead(&self) -> bool {
        self.peer_process_is_gone() || kernel::has_hung_up(self.number())
    }

    /// Returns true if the kernel says that nobody will read what is sent.
    pub(super) fn kernel_has_ended(&self) -> bool {
        let wanted = kernel::hang_up(self.kind());
        let found = kernel::at(self.number()).and_then(|fd| kernel::poll(fd, wanted));
        // A pipe's reading end shows the end of its writers as a hang-up.
        found.map_or(true, |found| found.intersects(wanted | rustix::event::PollFlags::HUP))
    }

    pub(crate) fn peer_process_is_gone(&self) -> bool {
        let (pid, has_ended) = {
            let facts = lock(&self.facts);
            (facts.peer_pid, facts.peer_has_ended)
        };
        if has_ended {
            return true;
        }
        let Some(pid) = pid.seen() else {
            return false;
        };
        rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
    }

    /// Wakes this process's own threads that sleep for the session.
    pub(crate) fn wake_own(&self, stream: &Stream) {
        wake_sleepers(stream, self.place());
    }

    /// Notes an event that the kernel reported on the descriptor, and wakes sleepers.
    pub(crate) fn kernel_event(&self) {
        self.note_kernel_event();
        if let Some(stream) = self.stream() {
            self.wake_own(&stream);
        }
    }
}

/// Wakes this process's own threads that sleep for a session: on its bells, or at its place in an
/// inbox.
fn wake_sleepers(stream: &Stream, place: Option<InboxPlace>) {
    let by_inbox = stream.wake_reader() | stream.wake_writer();
    if by_inbox && let Some(place) = place {
        place.post();
    }
}

/// Gives the kernel a moment to hear of the end of a peer on processor `peer_cpu` that has gone
/// home for it. The caller has been woken for that end: if it went to sleep in the kernel now, it
/// would have to be woken once more, which takes longer than the peer's system call.
fn await_end(fd: i32, kind: KindT, peer_cpu: u16) {
    // The peer makes its call when this thread sleeps.
    if peer_cpu == sojourn_shm::wait::cpu() {
        return;
    }
    let ended = kernel::hang_up(kind) | PollFlags::HUP;
    let deadline = Deadline::after(END_LIMIT);
    while !deadline.is_over() {
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, ended));
        if found.is_ok_and(|found| !found.intersects(ended)) {
            core::hint::spin_loop();
        } else {
            return;
        }
    }
}

impl Library {
    /// Sends the session of `fd` home; with `stay` it does not move again.
    pub fn go_home(&self, fd: i32, reason: ReasonT, stay: bool) {
        let Some(entry) = self.table.known(fd) else { return };
        if stay {
            self.keep_in_kernel(fd, entry, reason, NotifyWhen::Now);
        }
        self.send_home(fd, reason, Rest::of(reason, true));
    }

    /// Sends the session of `fd` home and waits for what its peer owes.
    pub(crate) fn send_home(&self, fd: i32, reason: ReasonT, rest: Rest) {
        let Some(entry) = self.table.known(fd) else { return };
        entry.restart_counts();
        if entry.session.load(Ordering::SeqCst).is_none() {
            return;
        }
        match self.own_session(entry) {
            Some(FoundSession { session, .. }) => {
                session.leave_within(ReturnTerms {
                    reason,
                    rest,
                    waits: Waits::until(self.patience.until(session.pass_limit())),
                    when: NotifyWhen::Now,
                });
            }
            None => self.recall_from_parent(fd, entry),
        }
    }

    /// Sends the session of `fd` home for a message with ancillary data. Bytes for which the kernel
    /// has no room follow, and the next sender waits for them. A session that goes home for this
    /// again and again moves less and less often.
    pub fn go_home_with_control(&self, fd: i32) {
        let Some(entry) = self.table.known(fd) else { return };
        entry.restart_counts();
        if entry.session.load(Ordering::SeqCst).is_none() {
            return;
        }
        match self.own_session(entry) {
            Some(FoundSession { session, .. }) => {
                if session.stream().is_some_and(|stream| !stream.is_frozen()) {
                    entry.postpone_offer();
                }
                session.leave(ReasonT::Operation, false);
            }
            None => self.recall_from_parent(fd, entry),
        }
    }

    /// Sends the session of `fd` home for good, before the kernel shuts down its sending direction
    /// and, if `receives`, the receiving one. The shell calls [`Library::ended`] after that.
    pub fn shutting(&self, fd: i32, receives: bool) {
        let Some(entry) = self.table.known(fd) else { return };
        let when = NotifyWhen::Deferred;
        self.keep_in_kernel(fd, entry, ReasonT::State, when);
        entry.restart_counts();
        if entry.session.load(Ordering::SeqCst).is_none() {
            return;
        }
        match self.own_session(entry) {
            // Nothing can follow once the direction is shut down. Owed bytes are waited for only
            // where the receiving direction ends: else they come as ever.
            Some(FoundSession { session, .. }) => {
                if let Some(stream) = session.stream() {
                    stream.will_end();
                }
                let mut waits = Waits::NOT;
                if receives || session.local().is_none() {
                    waits.peer = self.patience.until(session.pass_limit());
                }
                let (reason, rest) = (ReasonT::State, Rest::Stays);
                session.leave_within(ReturnTerms { reason, rest, waits, when });
            }
            None => self.recall_from_parent(fd, entry),
        }
    }

    /// Sends this process's sessions home before it ends of its own will. What its peers have not
    /// read, and what they have sent to it, is in the kernel then, as far as there is room, where
    /// the next holder of the descriptors finds it. (A process that is killed leaves those bytes in
    /// the rings, to the peers' libraries.) The carrier does the same for sessions with other
    /// hosts, but for datagrams: those that have come here a child may be waiting for.
    pub fn before_exit(&self) {
        let Some(engine) = self.engine().filter(|engine| engine.away.load(Ordering::SeqCst) > 0)
        else {
            return;
        };
        self.policy.forbid();
        if engine.has_children() && engine.has_datagrams.load(Ordering::SeqCst) {
            let fds = self.table.with_sessions();
            // Those of the protocol server a child has there, or gets from the kernel after the
            // server's close.
            let is_here = |session: OwnSession<'_>| session.is_udp() && !session.service.is_any();
            let udp = fds.filter(|fd| self.session_of(*fd).is_some_and(is_here));
            self.go_home_together(&udp.collect::<Vec<_>>(), ReasonT::Fork);
            self.await_datagrams();
        }
        let fds = self.table.with_sessions();
        let is_wanted =
            |session: OwnSession<'_>| session.local().is_some() || session.service.is_any();
        let fds = fds.filter(|fd| self.session_of(*fd).is_some_and(is_wanted));
        // A peer to which nothing is owed hears of the end from the kernel, which is about to
        // notify all.
        let until = Deadline::after(EXIT_LIMIT);
        self.home_together(&fds.collect::<Vec<_>>(), until, |session| {
            session.leave_within(ReturnTerms {
                reason: ReasonT::Closed,
                rest: Rest::of(ReasonT::Closed, true),
                waits: Waits { room: until, ..Waits::NOT },
                when: NotifyWhen::Deferred,
            });
        });
    }

    /// Sends every session home; with `forbid` none moves again in this process.
    pub fn all_home(&self, reason: ReasonT, forbid: bool) {
        if forbid {
            self.policy.forbid();
        }
        let all: Vec<i32> = self.table.with_sessions().collect();
        self.go_home_together(&all, reason);
        if forbid {
            // The program may wait past the library from now on, and must not find there what only
            // the library understands.
            self.give_up_sets();
        }
    }
}
