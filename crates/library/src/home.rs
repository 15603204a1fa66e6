//! Going home: freezing the stream, giving the kernel what the peer has not read, and letting go.
//!
//! Read `docs/streams.md`, "Going home". Any thread of the process may do it, under both locks of the session.

use crate::kernel;
use crate::session::{Receiver, RxPhase, Sender, Session, TxPhase, lock, switch};
use crate::{Library, library};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::io::Errno;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_stream::Stream;

/// Bytes copied at once on the way home.
const PIECE: usize = 16 * 1024;
/// How long a full kernel buffer is waited for before the rest stays in the ring, where the peer's library finds it.
const FLUSH_LIMIT: Duration = Duration::from_millis(200);
/// How long a close waits for the peer to hand over what was never read.
const UNREAD_LIMIT: Duration = Duration::from_millis(100);
/// How often a peer that owes bytes is looked after, while somebody waits for them.
const OWED_SLICE: Duration = Duration::from_millis(20);

impl Session {
    /// Sends the session home. With `pass_on` it returns when the kernel has everything the peer had sent, or the peer
    /// is gone: another holder may then use the descriptor.
    pub(crate) fn leave(&self, reason: ReasonT, pass_on: bool) {
        let stream = {
            let mut tx = lock(&self.tx);
            let mut rx = lock(&self.rx);
            let Some(stream) = tx.stream.clone().or_else(|| rx.stream.clone()) else { return };
            if tx.phase != TxPhase::Home || !matches!(rx.phase, RxPhase::Residue | RxPhase::Reset) {
                self.freeze(&mut tx, &mut rx, &stream, reason);
            }
            stream
        };
        // Sleepers of this process look again and find the kernel.
        self.wake_own(&stream);
        self.settle();
        if pass_on {
            self.await_residue(&stream, Deadline::NEVER);
        }
    }

    fn freeze(&self, tx: &mut Sender, rx: &mut Receiver, stream: &Stream, reason: ReasonT) {
        let was_frozen = stream.is_frozen();
        stream.freeze();
        if tx.stream.is_some() {
            let died = !was_frozen && reason == ReasonT::PeerDied;
            let (flushed, is_reset) = self.flush(stream, died);
            stream.set_flushed(flushed);
            rx.is_reset |= is_reset;
        }
        stream.attention();
        stream.ring_peer();
        tx.phase = TxPhase::Home;
        tx.stream = None;
        self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
        library().count_return(self, stream, reason);
        let owed = rx.stream.as_ref().map_or(0, |stream| stream.peer_leftover().unwrap_or(0));
        if owed == 0 {
            self.finish(rx);
        } else if rx.phase != RxPhase::Residue {
            rx.phase = RxPhase::Residue;
            rx.since_freeze = 0;
            rx.peer_is_dead = !was_frozen && reason == ReasonT::PeerDied;
        }
    }

    /// Writes to the kernel what the peer has not read. Bytes written, and whether we must say that the
    /// peer ended with bytes unread: of those in the ring the kernel knew nothing. (A pipe says nothing of the kind.)
    fn flush(&self, stream: &Stream, peer_died: bool) -> (usize, bool) {
        let Ok(owed) = stream.own_leftover() else { return (0, false) };
        let is_socket = self.kind() != KindT::Pipe;
        if owed > 0 && peer_died {
            return (0, is_socket && !kernel::has_error(self.number()));
        }
        let deadline = Deadline::after(FLUSH_LIMIT);
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < owed {
            // Sending would take an error away that is the program's to see.
            if is_socket && kernel::has_error(self.number()) {
                return (done, false);
            }
            let len = stream.copy_own_leftover(done, &mut piece);
            match kernel::send(self.number(), self.kind(), &piece[..len]) {
                Ok(sent) => done += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !deadline.is_over() => {
                    let Ok(fd) = kernel::at(self.number()) else { break };
                    let _ = kernel::wait(fd, PollFlags::OUT, deadline.left());
                }
                // It reads nothing: it can take the rest from the ring.
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    let is_ours = self.kind() == KindT::Unix || error == Errno::CONNRESET;
                    return (done, is_socket && is_ours);
                }
            }
        }
        (done, false)
    }

    /// Nothing is owed any more: the descriptor is an ordinary one again.
    pub(crate) fn finish(&self, rx: &mut Receiver) {
        if rx.is_reset {
            rx.phase = RxPhase::Reset;
            return;
        }
        rx.phase = RxPhase::Home;
        rx.stream = None;
        rx.since_freeze = 0;
        rx.peer_is_dead = false;
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Lets go of what `finish` has ended. Not under the session's locks: sets have locks of their own, which
    /// come first.
    pub(crate) fn settle(&self) {
        if self.is_over.swap(false, Ordering::SeqCst) {
            library().detach(self);
        }
    }

    /// Waits until the peer has given the kernel what it owes, or has gone.
    fn await_residue(&self, stream: &Stream, deadline: Deadline) {
        while self.is_owed(stream) && !deadline.is_over() && !self.peer_process_is_gone() {
            let said = stream.announce_reader(sojourn_stream::Bell::OnFutex);
            if stream.peer_flushed().is_none() {
                stream.sleep_reader(said, Some(OWED_SLICE));
            }
            stream.withdraw_reader();
        }
        self.settle();
    }

    /// Whether the peer still owes bytes. Ends the residue if not.
    fn is_owed(&self, stream: &Stream) -> bool {
        let mut rx = lock(&self.rx);
        if rx.phase != RxPhase::Residue {
            return false;
        }
        let owed = stream.peer_leftover().unwrap_or(0);
        let is_owed = stream.peer_flushed().is_none_or(|flushed| flushed < owed);
        if !is_owed {
            self.finish(&mut rx);
        }
        is_owed
    }

    fn peer_process_is_gone(&self) -> bool {
        let pid = lock(&self.facts).peer_pid;
        let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return false;
        };
        rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
    }

    /// Wakes this process's own sleepers on the session.
    pub(crate) fn wake_own(&self, stream: &Stream) {
        let by_inbox = stream.wake_reader() | stream.wake_writer();
        if by_inbox && let Some((inbox, slot)) = self.place() {
            inbox.post_own(slot);
        }
    }

    /// The kernel's descriptor stirred, as the protocol thread sees it.
    pub(crate) fn kernel_stirred(&self) {
        self.stirred();
        if let Some(stream) = self.stream() {
            self.wake_own(&stream);
        }
    }

    /// The peer asked for attention: it has frozen the stream, or flushed what it owed.
    pub(crate) fn attend(&self) {
        let Some(stream) = self.stream() else { return };
        if !stream.is_frozen() {
            return;
        }
        self.leave(ReasonT::PeerLeft, false);
        self.is_owed(&stream);
        self.settle();
    }

    /// Before the last descriptor is closed. Unread bytes make the kernel's close a reset, as they would
    /// have there.
    pub(crate) fn close(&self) {
        let unread = self.input_queue();
        let stream = self.stream();
        // By this thread: were the protocol thread in a call on the descriptor, the end would not be over when the
        // program's close returns.
        if let Some(engine) = library().engine()
            && let (Ok(set), Ok(fd)) =
                (kernel::at(engine.watched.load(Ordering::SeqCst)), kernel::at(self.number()))
        {
            let _ = rustix::event::epoll::delete(set, fd);
        }
        self.leave(ReasonT::Closed, false);
        if unread > 0
            && self.kind() == KindT::Unix
            && let Some(stream) = stream
        {
            // With the bytes in its queue the kernel does at the close what it always does.
            self.await_residue(&stream, Deadline::after(UNREAD_LIMIT));
        }
        if unread > 0
            && self.kind() == KindT::Tcp
            && let Ok(fd) = kernel::at(self.number())
        {
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

impl Library {
    /// Sends the session of `fd` home; with `stay` it does not move again.
    pub fn go_home(&self, fd: i32, reason: ReasonT, stay: bool) {
        let Some(entry) = self.table.known(fd) else { return };
        if stay {
            entry.mark(crate::table::mark::FIXED);
        }
        entry.cool();
        if entry.session.load(Ordering::SeqCst) == 0 {
            return;
        }
        match self.own_session(entry) {
            Some((session, _)) => session.leave(reason, true),
            None => self.recall_from_parent(entry),
        }
    }

    /// Sends every session home; with `forbid` none moves again in this process.
    pub fn all_home(&self, reason: ReasonT, forbid: bool) {
        if forbid {
            self.policy.forbid();
        }
        let all: Vec<i32> = self.table.with_sessions().map(|(fd, _)| fd).collect();
        for fd in all {
            self.go_home(fd, reason, false);
        }
    }
}
