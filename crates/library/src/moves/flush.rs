//! Giving the kernel what the peer has not read, on the way home.
//!
//! Read `docs/understand/streams.md`, "Going home", then `home`.
//!
//! # Theory of operation
//! What fits goes at once. If the kernel is full the peer is told how far we came and that the rest
//! *follows*: the protocol thread goes on whenever there is room, and the program's own writes wait
//! meanwhile as they would for a full socket ([`TxPhase::Flushing`]). So nobody waits for what
//! moves only when the peer's program reads, and the order is kept. Where this process will write
//! no more, or somebody else will, nothing can follow: the kernel's buffer is made larger. Where it
//! cannot be, the rest *stays* in the ring, and the peer's library takes it from there.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::engine::Job;
use crate::process::library::library;
use crate::session::Session;
use crate::session::directions::{Receiver, Sender, TxPhase, switch};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::io::Errno;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;
use sojourn_stream::Stream;

/// How long a full kernel buffer is waited for before the rest stays in the ring.
const STAY_LIMIT: Duration = Duration::from_millis(200);

/// What becomes of the bytes for which the kernel has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They follow as there is room.
    Follows,
    /// They stay in the ring: somebody else may use the descriptor next.
    Stays,
    /// The same, and nobody uses it any more.
    Ends,
}

impl Rest {
    /// After going home for `reason`; `pass_on`: somebody else may use the descriptor next.
    pub(crate) fn of(reason: ReasonT, pass_on: bool) -> Self {
        match reason {
            ReasonT::Closed => Self::Ends,
            _ if pass_on => Self::Stays,
            _ => Self::Follows,
        }
    }
}

/// How far a push came.
struct Pushed {
    /// Bytes of the leftover in the kernel.
    done: usize,
    /// We must say that the peer ended with bytes unread.
    is_reset: bool,
    /// The kernel is full.
    is_short: bool,
}

impl Session {
    /// Writes to the kernel what the peer has not read, and ends the sending direction, at once or
    /// when the rest has followed. `peer_died`: before the freeze. A full kernel is waited for
    /// until then at most.
    pub(crate) fn flush(
        &self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Stream,
        peer_died: bool,
        (rest, until): (Rest, Deadline),
    ) {
        let owed = stream.own_leftover().unwrap_or(0);
        let is_socket = self.kind() != KindT::Pipe;
        if tx.phase != TxPhase::Flushing && !peer_died {
            tx.flushed = stream.begin_flush();
        }
        if owed > 0 && peer_died {
            // Of the bytes in the ring the kernel knew nothing. (A pipe says nothing of the kind.)
            rx.is_reset |= is_socket && !kernel::has_error(self.number());
            stream.set_flushed(tx.flushed);
            return self.end_sending(tx);
        }
        let mut pushed = self.push_leftover(stream, tx.flushed, owed, Deadline::NOW);
        if pushed.is_short && rest != Rest::Follows {
            kernel::make_room(self.number(), self.kind(), owed - pushed.done, rest == Rest::Ends);
            let deadline = library().patience.until(STAY_LIMIT).min(until);
            let begun = now_ns();
            pushed = self.push_leftover(stream, pushed.done, owed, deadline);
            library().patience.waited_since(begun);
        }
        tx.flushed = pushed.done;
        rx.is_reset |= pushed.is_reset && rx.stream.is_some();
        if pushed.is_short && rest == Rest::Follows {
            stream.set_flushing(pushed.done);
            tx.phase = TxPhase::Flushing;
            self.is_flushing.store(true, Ordering::SeqCst);
        } else {
            stream.set_flushed(pushed.done);
            self.end_sending(tx);
        }
    }

    /// The sending direction is the kernel's.
    pub(crate) fn end_sending(&self, tx: &mut Sender) {
        tx.phase = TxPhase::Home;
        tx.stream = None;
        tx.flushed = 0;
        self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
        self.is_flushing.store(false, Ordering::SeqCst);
    }

    /// Goes on where a flush was cut short. Whether there is nothing to go on with any more; then
    /// `settle` is due.
    pub(crate) fn flush_on(&self, tx: &mut Sender) -> bool {
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

    /// The protocol thread's: there may be room.
    pub(crate) fn room_came(&self) {
        let is_over = self.flush_on(&mut lock(&self.tx));
        if is_over {
            self.settle();
        }
    }

    /// From the leftover's byte `done` on.
    fn push_leftover(
        &self,
        stream: &Stream,
        mut done: usize,
        owed: usize,
        deadline: Deadline,
    ) -> Pushed {
        let is_socket = self.kind() != KindT::Pipe;
        let (mut is_reset, mut is_short) = (false, false);
        while done < owed {
            // Sending would take an error away that is the program's to see.
            if is_socket && kernel::has_error(self.number()) {
                break;
            }
            // The kernel does not take as much in many small pieces as in a few large ones.
            let most = if is_socket { usize::MAX } else { kernel::PAGE };
            let parts = stream.own_leftover_at(done, most);
            match kernel::send_from(self.number(), self.kind(), parts) {
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
                Err(error) => {
                    let is_ours = self.kind() == KindT::Unix || error == Errno::CONNRESET;
                    is_reset = is_socket && is_ours;
                    break;
                }
            }
        }
        Pushed { done, is_reset, is_short }
    }

    /// Has the protocol thread go on with the flush.
    pub(crate) fn let_follow(&self) {
        library().push(Job::Flush { slot: self.slot() });
    }
}
