//! The flush: on the way home, the bytes that the peer has not read go from the ring to the kernel.
//!
//! Not here: freezing and letting go (`home`), and receiving flushed bytes (`residue`). Read
//! `docs/understand/streams.md`, "Going home", then `home`.
//!
//! # Theory of operation
//! Bytes for which the kernel has room go at once. If the kernel is full, this side tells the peer
//! how far it came and that the rest *follows*: the protocol thread goes on whenever there is room,
//! and the program's own writes wait meanwhile as they would for a full socket
//! ([`TxPhase::Flushing`]). So no call waits for a move that only the peer's program can complete
//! by reading, and the order is kept. Where this process will write no more, or another one will,
//! nothing can follow: the kernel's buffer is made larger. Where that is not possible, the rest
//! *stays* in the ring, and the peer's library takes it from there, if the peer has not passed its
//! end on; a peer on another host, which has none, hears of a reset.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::host::tcp_counts;
use crate::process::deferred::NotifyWhen;
use crate::process::engine::Job;
use crate::process::library::OwnSession;
use crate::process::patience::{ROOM_MOST, Waits};
use crate::process::stillness::Stillness;
use crate::session::directions::{Receiver, Sender, TxPhase, switch};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::io::Errno;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_shm::deadline::{now_ns, since};
use sojourn_stream::Stream;

/// How long a flush waits for a full kernel before the rest stays in the ring.
const STAY_LIMIT: Duration = Duration::from_millis(200);
/// The same for a session with another host, whose peer has no library that takes the rest: the
/// stillness after which the session is reset. All such waits together have a budget beside it, as
/// a peer may let its kernel take a byte now and then (`patience::ROOM_MOST`).
const REMOTE_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks whether such a peer has taken something.
const REMOTE_SLICE: Duration = Duration::from_millis(20);

/// The treatment of bytes for which the kernel has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They follow when there is room.
    Follows,
    /// They stay in the ring: another process may use the descriptor next.
    Stays,
    /// They stay in the ring, and nobody uses the descriptor any more.
    Ends,
}

impl Rest {
    /// Chooses by the reason for going home; `pass_on`: another process may use the descriptor
    /// next.
    pub(crate) fn of(reason: ReasonT, pass_on: bool) -> Self {
        match reason {
            ReasonT::Closed => Self::Ends,
            _ if pass_on => Self::Stays,
            _ => Self::Follows,
        }
    }
}

/// The terms on which a session goes home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnTerms {
    pub(crate) reason: ReasonT,
    pub(crate) rest: Rest,
    pub(crate) waits: Waits,
    /// When the peer is notified; a peer that owes bytes is notified at once.
    pub(crate) when: NotifyWhen,
}

/// The progress of a push into the kernel.
struct Pushed {
    /// Bytes of the leftover that are in the kernel.
    done: usize,
    /// The program must see a reset, because the peer ended with bytes unread. TCP calls that
    /// `EPIPE`, and tells the receiver nothing, if the peer's end came before the bytes
    /// (`tcp_reset` in `CLOSE_WAIT`).
    is_reset: bool,
    /// The kernel is full.
    is_short: bool,
}

impl OwnSession<'_> {
    /// Writes to the kernel what the peer has not read, and ends the sending direction, at once or
    /// when the rest has followed. `peer_died`: the peer died before the freeze.
    pub(crate) fn flush(
        self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Stream,
        peer_died: bool,
        terms: &ReturnTerms,
    ) {
        let rest = terms.rest;
        let owed = stream.own_leftover().unwrap_or(0);
        let is_socket = self.kind() != KindT::Pipe;
        if tx.phase != TxPhase::Flushing && !peer_died {
            self.note_sent(stream, owed);
            tx.flushed = stream.begin_flush();
        }
        if owed > 0 && peer_died {
            // The kernel knows nothing of bytes in the ring, so the library has to report that they
            // were lost. (A pipe reports nothing of the kind.)
            if is_socket && !kernel::has_error(self.number()) {
                rx.is_reset = true;
                // TCP's answer to these bytes is a reset, after which no send succeeds.
                self.push_leftover(stream, tx.flushed, owed, Deadline::NOW);
            }
            stream.set_flushed(tx.flushed);
            return self.end_sending(tx);
        }
        let mut pushed = self.push_leftover(stream, tx.flushed, owed, Deadline::NOW);
        if pushed.is_short && rest != Rest::Follows {
            pushed = self.push_with_room(stream, pushed.done, owed, terms);
        }
        tx.flushed = pushed.done;
        rx.is_reset |= pushed.is_reset && rx.stream.is_some();
        if pushed.is_short && rest == Rest::Follows {
            stream.set_flushing(pushed.done);
            tx.phase = TxPhase::Flushing;
            self.is_flushing.store(true, Ordering::SeqCst);
        } else {
            if pushed.is_short && self.local().is_none() {
                self.abort(rx);
            }
            stream.set_flushed(pushed.done);
            self.end_sending(tx);
        }
    }

    /// Has the peer tell flushed bytes from those that its kernel had before. Of TCP's, part can be
    /// on its way when it looks; of the other kinds all have arrived.
    fn note_sent(self, stream: &Stream, owed: usize) {
        if owed > 0
            && self.kind() == KindT::Tcp
            && self.local().is_some()
            && let Some(sent) = tcp_counts::sent_in_all(self.number())
        {
            stream.note_sent(sent);
        }
    }

    /// Writes to the kernel from the leftover's byte `done` on, when nothing can follow later:
    /// waits for room, and makes some.
    fn push_with_room(
        self,
        stream: &Stream,
        done: usize,
        owed: usize,
        terms: &ReturnTerms,
    ) -> Pushed {
        let is_remote = self.local().is_none();
        let is_last = terms.rest == Rest::Ends || is_remote;
        kernel::make_room(self.number(), self.kind(), owed - done, is_last);
        if is_remote {
            return self.push_to_other_host(stream, done, owed);
        }
        let deadline = self.library.patience.until(STAY_LIMIT).min(terms.waits.room);
        let begun = now_ns();
        let pushed = self.push_leftover(stream, done, owed, deadline);
        self.library.patience.waited_since(begun);
        if !pushed.is_short || is_last {
            return pushed;
        }
        // A peer that has passed its end on, or will, takes nothing from the ring for the next
        // holder: a buffer that no longer adapts itself is less than lost bytes.
        kernel::make_room(self.number(), self.kind(), owed - pushed.done, true);
        self.push_leftover(stream, pushed.done, owed, Deadline::NOW)
    }

    /// Does so for a session with another host, which is lost where the wait is in vain. So it
    /// lasts as long as the peer takes something, and no terms of the return make it shorter.
    fn push_to_other_host(self, stream: &Stream, done: usize, owed: usize) -> Pushed {
        let (begun, most) = (now_ns(), self.library.room_patience.until(ROOM_MOST));
        // The kernel has room for more only when the peer has taken a good part of what it has.
        let taken = |done: usize| {
            let waiting = kernel::at(self.number()).and_then(kernel::unsent).unwrap_or(0);
            (done as u64).wrapping_sub(waiting) as i64
        };
        let (mut still, mut is_reset) = (Stillness::default(), false);
        let mut looked = begun;
        let mut pushed = self.push_leftover(stream, done, owed, Deadline::NOW);
        let mut before = taken(pushed.done);
        while pushed.is_short && still.spent() < REMOTE_LIMIT && !most.is_over() {
            is_reset |= pushed.is_reset;
            let until = Deadline::after(REMOTE_SLICE);
            pushed = self.push_leftover(stream, pushed.done, owed, until);
            still.looked(since(looked));
            looked = now_ns();
            let after = taken(pushed.done);
            if core::mem::replace(&mut before, after) < after {
                still.moved();
            }
        }
        self.library.room_patience.waited_since(begun);
        Pushed { is_reset: is_reset | pushed.is_reset, ..pushed }
    }

    /// Resets the connection with another host whose bytes nobody can send any more: no library
    /// takes the rest from the ring there, and an end without them would pass for the right one.
    fn abort(self, rx: &mut Receiver) {
        rx.is_reset = true;
        if let Ok(fd) = kernel::at(self.number()) {
            let _ = rustix::net::connect_unspec(fd);
        }
    }

    /// Ends the sending direction: sends go to the kernel. `settle` is due after that.
    pub(crate) fn end_sending(self, tx: &mut Sender) {
        tx.phase = TxPhase::Home;
        tx.stream = None;
        tx.flushed = 0;
        self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
        self.is_flushing.store(false, Ordering::SeqCst);
        self.has_ended_sending.store(true, Ordering::SeqCst);
        self.tell_room();
    }

    /// Goes on with a flush that was cut short. Returns true if nothing is left of it; then
    /// `settle` is due.
    pub(crate) fn flush_on(self, tx: &mut Sender) -> bool {
        let Some(stream) = tx.stream.clone().filter(|_| tx.phase == TxPhase::Flushing) else {
            return true;
        };
        let owed = stream.own_leftover().unwrap_or(0);
        let pushed = self.push_leftover(&stream, tx.flushed, owed, Deadline::NOW);
        if pushed.is_short {
            if pushed.done > tx.flushed {
                tx.flushed = pushed.done;
                stream.set_flushing(pushed.done);
                stream.notify_peer();
            }
            return false;
        }
        stream.set_flushed(pushed.done);
        stream.attention();
        stream.notify_peer();
        self.unwatch();
        self.end_sending(tx);
        self.wake_own(&stream);
        true
    }

    /// Goes on with a flush because the kernel may have room; called by the protocol thread.
    pub(crate) fn room_came(self) {
        let is_over = self.flush_on(&mut lock(&self.tx));
        if is_over {
            self.settle();
        }
    }

    /// Writes to the kernel from the leftover's byte `done` on.
    fn push_leftover(
        self,
        stream: &Stream,
        mut done: usize,
        owed: usize,
        deadline: Deadline,
    ) -> Pushed {
        let is_socket = self.kind() != KindT::Pipe;
        let (mut is_reset, mut is_short) = (false, false);
        let before = done;
        // Bytes that come after the peer's end are answered by a reset that the kernel calls
        // `EPIPE` and tells no receiver. Any other error it tells itself.
        let has_ended = is_socket && kernel::has_ended(self.number());
        while done < owed {
            // Sending would take away an error that the program has to see (`sock_error`).
            if is_socket && kernel::has_error(self.number()) {
                break;
            }
            // A socket takes more bytes in a few large pieces than in many small ones: the kernel
            // charges each buffer's overhead to the socket, too. A pipe that polls writable has
            // room for a page.
            let most = if is_socket { usize::MAX } else { kernel::PAGE };
            let parts = stream.own_leftover_at(done, most);
            let send = || kernel::send_from(self.number(), self.kind(), parts);
            match if is_socket { send() } else { self.library.without_sigpipe(send) } {
                Ok(0) => break,
                Ok(sent) => done += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !deadline.is_over() => {
                    let Ok(fd) = kernel::at(self.number()) else { break };
                    let _ = kernel::wait(fd, PollFlags::OUT, deadline.left());
                }
                Err(Errno::AGAIN) => {
                    is_short = true;
                    break;
                }
                // The peer has ended with bytes unread, and this call has used up the kernel's
                // report of that: the library has to repeat it.
                Err(error) => {
                    let is_ours = self.kind() == KindT::Unix || error == Errno::CONNRESET;
                    is_reset = is_socket && is_ours;
                    break;
                }
            }
        }
        is_reset |= has_ended && done > before && kernel::take_error(self.number());
        Pushed { done, is_reset, is_short }
    }

    /// Has the protocol thread go on with the flush.
    pub(crate) fn continue_in_protocol_thread(self) {
        self.library.push(Job::Flush { slot: self.slot() });
    }
}
