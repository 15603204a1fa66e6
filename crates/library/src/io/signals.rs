//! Signals for I/O (`O_ASYNC`, fcntl(2), signal(7)) of a session that is away: when one is due.
//!
//! The kernel sends them for what happens in its own socket or pipe, the ends of sessions among
//! that. What comes or goes through a ring asks for the attention of the protocol thread
//! (`sojourn_stream`, `attention`), which sends a signal as the kernel would. Whom it goes to is
//! the kernel's word, read anew each time. Not here: the sending (`control::protocol::signals`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::engine::Job;
use crate::process::library::OwnSession;
use crate::session::Session;
use crate::session::directions::{Sender, TxPhase};
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use sojourn_session::KindT;
use sojourn_shm::fasync::ASYNC;
use sojourn_stream::Stream;

/// The signals that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DueSignals {
    /// One for each arrival.
    pub(crate) input: u32,
    pub(crate) output: bool,
}

/// Returns true if a descriptor with these flags may be away.
///
/// With `O_ASYNC` these may not: a pipe's writing end, to which the kernel tells each read; a
/// socket on which calls wait, because the kernel sends no signal for what it hands to a call that
/// waits (`SOCK_WAKE_WAITD`, sock_wake_async); and a UDP socket.
pub(crate) fn may_be_away(flags: OFlags, kind: KindT) -> bool {
    !flags.contains(ASYNC)
        || match kind {
            KindT::Pipe => flags & OFlags::ACCMODE == OFlags::RDONLY,
            KindT::Tcp | KindT::Unix => flags.contains(OFlags::NONBLOCK),
            KindT::Udp => false,
        }
}

/// Returns the flags of `fd`; none if it is not open.
pub(crate) fn flags_of(fd: i32) -> OFlags {
    kernel::at(fd).and_then(rustix::fs::fcntl_getfl).unwrap_or(OFlags::empty())
}

impl OwnSession<'_> {
    /// Has a signal sent when there is room, because a call that does not wait has found too
    /// little. The caller holds no lock of the session.
    #[cold]
    pub(crate) fn await_room(self) {
        if !self.signals.is_on.load(Ordering::SeqCst) {
            return;
        }
        let mut has_room = false;
        {
            let tx = lock(&self.tx);
            self.signals.awaits_room.store(true, Ordering::SeqCst);
            match (&tx.stream, tx.phase) {
                (Some(stream), TxPhase::Ring) => {
                    stream.hear_of_room(self.room_wanted(stream));
                    has_room = self.has_room(stream);
                }
                // The end of the flush tells.
                (_, TxPhase::Flushing) => {}
                _ => self.tell_room(),
            }
        }
        if has_room && let Some(place) = self.place() {
            place.inbox.post_attention(place.slot);
        }
    }

    /// Ends the signals of a session whose last descriptor is about to be closed: what goes into
    /// the kernel on the way home is not news. Another process that has the descriptor keeps them.
    pub(crate) fn end_signals(self) {
        if !self.signals.is_on.load(Ordering::SeqCst)
            || lock(&self.facts).epoch != self.library.fork_epoch.load(Ordering::SeqCst)
        {
            return;
        }
        self.signals.awaits_room.store(false, Ordering::SeqCst);
        if let Ok(fd) = kernel::at(self.number()) {
            let _ = rustix::fs::fcntl_setfl(fd, flags_of(self.number()).difference(ASYNC));
        }
    }

    /// Has a signal sent if one about room is owed, because sends go to the kernel from now on,
    /// which knows of no send that found no room.
    pub(crate) fn tell_room(self) {
        if self.signals.awaits_room.swap(false, Ordering::SeqCst)
            && let Some(entry) = self.library.table.known(self.number())
        {
            let version = entry.version.load(Ordering::SeqCst);
            self.library.push(Job::RoomCame { fd: self.number(), version });
        }
    }
}

impl Session {
    /// Returns true if the library sends signals for a session of this kind: one within this host
    /// that is in this process.
    pub(crate) fn may_signal(&self) -> bool {
        self.local().is_some() && !self.service.is_any()
    }

    /// Learns whether the program wants signals. Returns false if then only the kernel can serve
    /// the session. The caller holds no lock of the session.
    pub(crate) fn learn_signals(&self, fd: i32) -> bool {
        let flags = flags_of(fd);
        let is_wanted = flags.contains(ASYNC);
        if is_wanted && !(self.may_signal() && may_be_away(flags, self.kind())) {
            return false;
        }
        let rx = lock(&self.rx);
        if self.signals.is_on.swap(is_wanted, Ordering::SeqCst) != is_wanted
            && let Some(stream) = &rx.stream
        {
            stream.hear_arrivals(is_wanted);
        }
        true
    }

    fn has_room(&self, stream: &Stream) -> bool {
        stream.room_in_all().is_ok_and(|room| room >= self.room_wanted(stream))
    }

    /// Takes the signals that are due.
    pub(crate) fn take_due_signals(&self) -> DueSignals {
        if !self.signals.is_on.load(Ordering::SeqCst) {
            return DueSignals::default();
        }
        let input = lock(&self.rx).stream.as_ref().map_or(0, |stream| stream.take_arrivals());
        let output =
            self.signals.awaits_room.load(Ordering::SeqCst) && self.takes_room(&lock(&self.tx));
        DueSignals { input, output }
    }

    /// Returns true if a signal about room is due, and takes it. Other phases than the ring's tell
    /// at their end.
    fn takes_room(&self, tx: &Sender) -> bool {
        let Some(stream) = tx.stream.as_ref().filter(|_| tx.phase == TxPhase::Ring) else {
            return false;
        };
        let has_room = self.has_room(stream);
        if has_room {
            stream.forget_room();
            self.signals.awaits_room.store(false, Ordering::SeqCst);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_signals_only_what_the_library_can_imitate_is_away() {
        let (reads, writes) = (OFlags::RDONLY | ASYNC, OFlags::WRONLY | ASYNC);
        let waits = OFlags::RDWR | ASYNC;
        assert!(may_be_away(reads, KindT::Pipe) && !may_be_away(writes, KindT::Pipe));
        for kind in [KindT::Tcp, KindT::Unix] {
            assert!(may_be_away(waits | OFlags::NONBLOCK, kind));
            assert!(!may_be_away(waits, kind));
        }
        assert!(!may_be_away(waits | OFlags::NONBLOCK, KindT::Udp));
        assert!(may_be_away(OFlags::RDWR, KindT::Udp) && may_be_away(OFlags::WRONLY, KindT::Pipe));
    }
}
