//! The shortening of a move's wait for the peer's acknowledgement.
//!
//! Not here: the wait (`moves::out`), and the state that is waited for (`export`). Read
//! `docs/understand/moves.md`, "Out", first.
//!
//! # Theory of operation
//! A session is taken out of its socket when the peer has acknowledged everything, and what the
//! program writes meanwhile waits in its ring. Two timers could make that wait long. Nagle's
//! algorithm (RFC 9293 section 3.7.4) keeps a last small segment back until everything before it is
//! acknowledged, as does `TCP_CORK` (200 ms); and the peer delays its acknowledgement of a lone
//! segment (40 ms), in the hope of an answer that carries it. So the small segment is pushed, and
//! once all is sent the peer is asked: a segment without data from before its window makes it
//! acknowledge at once (RFC 9293 section 3.10.7.4, "first"). Linux answers such a segment twice a
//! second at most (`tcp_invalid_ratelimit`), so it is asked once.

use crate::clock::later;
use crate::program_socket::ProgramSocket;
use crate::repair;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use sojourn_proto::time::Instant;

/// How long the peer has for an acknowledgement of its own accord, once all is sent (microseconds).
const ASK_AFTER_US: u64 = 1_000;

/// The steps that were made for one session.
#[derive(Debug, Default)]
pub(crate) struct Hastening {
    has_pushed: bool,
    /// The time at which all bytes were found sent.
    sent_at: Option<Instant>,
    has_asked: bool,
}

impl Hastening {
    /// Looks at a socket to which the program writes no more, and returns the step that is due at
    /// `at`.
    pub(crate) fn step(&mut self, socket: &ProgramSocket, at: Instant) -> Option<Nudge> {
        let unsent = socket.not_sent();
        if unsent > 0 {
            self.sent_at = None;
            let is_short = || socket.segment().is_some_and(|segment| unsent < segment);
            let pushes = !self.has_pushed && is_short();
            self.has_pushed |= pushes;
            return pushes.then_some(Nudge::Push);
        }
        let sent_at = *self.sent_at.get_or_insert(at);
        let is_waiting = socket.not_acknowledged().is_ok_and(|len| len > 0);
        let asks = is_waiting && !self.has_asked && at >= later(sent_at, ASK_AFTER_US);
        self.has_asked |= asks;
        asks.then_some(Nudge::Ask)
    }
}

/// A step that shortens the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// Send a segment that is kept back to be filled.
    Push,
    /// Ask the peer for an acknowledgement.
    Ask,
}

impl Nudge {
    /// Makes the step. Errors change nothing: the wait is longer then.
    pub(crate) fn give(self, socket: BorrowedFd<'_>) {
        let _ = match self {
            Self::Push => push(socket),
            Self::Ask => repair::probe(socket),
        };
    }
}

/// Sends a segment that is kept back to be filled. Setting `TCP_NODELAY` does that, even under
/// `TCP_CORK` (`__tcp_sock_set_nodelay`); the program's own setting stays.
fn push(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    if sockopt::tcp_nodelay(socket)? {
        // Only a cork keeps it back, which a further setting pushes as well.
        return sockopt::set_tcp_nodelay(socket, true);
    }
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_nodelay(socket, false)
}

#[cfg(test)]
#[path = "hasten_tests.rs"]
mod tests;
