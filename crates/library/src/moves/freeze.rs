//! Freezing the stream of a session that goes home, with a peer on this host or with the carrier.
//!
//! Not here: who freezes, and what is left to do then (`home`); the flush (`flush`); how a remote
//! session comes back (`remote::carried`, `io::datagrams`). Read `docs/understand/streams.md`,
//! "Going home", then `home`.

use crate::host::kernel;
use crate::moves::flush::ReturnTerms;
use crate::process::deferred::NotifyWhen;
use crate::process::library::{Library, OwnSession};
use crate::session::directions::{Receiver, Residue, RxPhase, Sender, TxPhase};
use crate::session::transport::Transport;
use sojourn_session::ReasonT;
use sojourn_stream::Stream;
use std::sync::Arc;

impl OwnSession<'_> {
    /// Freezes the stream, and gives the kernel what is the kernel's. The caller holds both locks.
    pub(super) fn freeze(
        self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Arc<Stream>,
        terms: &ReturnTerms,
    ) {
        match self.transport() {
            Transport::Local(_) => self.freeze_local(tx, rx, stream, terms),
            Transport::RemoteTcp(_) | Transport::Udp(_) => {
                let reason = self.reason_for(terms.reason, stream);
                self.freeze_remote(tx, rx, stream, &ReturnTerms { reason, ..*terms });
            }
        }
    }

    /// Freezes the stream with a peer on this host: either side gives the kernel what the other one
    /// has not read.
    fn freeze_local(
        self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Arc<Stream>,
        terms: &ReturnTerms,
    ) {
        let reason = terms.reason;
        // If the stream is not frozen yet nobody has flushed, so these bytes are older than the
        // ring's.
        let queued = match rx.phase {
            RxPhase::Joined if stream.peer_uses_ring() => kernel::input_queue(self.number()),
            _ => 0,
        };
        let was_frozen = stream.is_frozen();
        let was_flushing = tx.phase == TxPhase::Flushing;
        stream.freeze();
        if reason == ReasonT::PeerLeft && !was_flushing {
            // The peer may be about to end the connection. This thread goes on to hear of that from
            // the kernel, which is not to wake the protocol thread for it first.
            self.unwatch();
        }
        self.flush_frozen(tx, rx, stream, was_frozen, terms);
        let owed = owed_by_peer(rx);
        // A peer that froze the stream itself, and to which nothing is owed, needs no notification.
        if !was_frozen || stream.own_leftover() != Ok(0) || owed > 0 {
            let waits = was_frozen || owed > 0;
            tell_peer(self.library, stream, if waits { NotifyWhen::Now } else { terms.when });
        }
        if !was_flushing {
            self.report_return(tx, stream, terms);
        }
        if owed == 0 {
            self.finish(rx);
        } else if !matches!(rx.phase, RxPhase::Residue(_)) {
            // Part of the queued bytes may be flushed ones; how many is known once the peer has
            // said how far it came.
            let before =
                if was_frozen && queued > 0 { self.queued_before(stream) } else { Some(queued) };
            // A peer that died before the freeze has flushed nothing, and never will. A peer that
            // breaks the rules is not relied on.
            let is_dead = !was_frozen && reason == ReasonT::PeerDied;
            rx.phase = RxPhase::Residue(Residue {
                since_freeze: 0,
                before_owed: before.unwrap_or(queued),
                is_unsure: before.is_none(),
                seen_news: stream.flush_news(),
                flushed: (is_dead || reason == ReasonT::Violation).then_some(0),
            });
        }
    }

    /// Freezes the stream with the carrier, or with the engine in this process, and returns when
    /// the kernel has the session.
    fn freeze_remote(
        self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Arc<Stream>,
        terms: &ReturnTerms,
    ) {
        let was_frozen = stream.is_frozen();
        let was_flushing = tx.phase == TxPhase::Flushing;
        stream.freeze();
        // The carrier has nothing of a session that had not given up the kernel in either
        // direction, and need not even be there.
        let is_away = tx.phase == TxPhase::Ring || rx.phase == RxPhase::Ring;
        let was_kernels = match self.transport() {
            // A flush that was cut short goes on: the carrier never had the session.
            _ if was_flushing => true,
            _ if !is_away => false,
            Transport::Udp(_) => {
                self.return_datagrams(rx, stream, terms.reason);
                false
            }
            Transport::Local(_) | Transport::RemoteTcp(_) => self.return_carried(rx, stream),
        };
        if was_kernels {
            self.flush_frozen(tx, rx, stream, was_frozen, terms);
        } else {
            self.end_sending(tx);
        }
        let waits = was_frozen || owed_by_peer(rx) > 0;
        tell_peer(self.library, stream, if waits { NotifyWhen::Now } else { terms.when });
        if !was_flushing {
            self.report_return(tx, stream, terms);
        }
        self.finish(rx);
    }

    /// Reports the return to the server, and has the protocol thread go on with a flush that was
    /// cut short. The receiving direction is not finished yet: after that another thread may detach
    /// the session.
    fn report_return(self, tx: &Sender, stream: &Arc<Stream>, terms: &ReturnTerms) {
        self.library.count_return(&self, stream, terms.reason, terms.when);
        if tx.phase == TxPhase::Flushing {
            self.continue_in_protocol_thread();
        }
    }

    /// Gives the kernel the bytes of the frozen stream that the peer has not read.
    fn flush_frozen(
        self,
        tx: &mut Sender,
        rx: &mut Receiver,
        stream: &Stream,
        was_frozen: bool,
        terms: &ReturnTerms,
    ) {
        if tx.stream.is_none() {
            return self.end_sending(tx);
        }
        // The death counts only if the kernel confirms it: another process can hold the dead one's
        // end, and reads from the kernel.
        let died = !was_frozen && terms.reason == ReasonT::PeerDied && self.kernel_has_ended();
        self.flush(tx, rx, stream, died, terms);
    }
}

/// Counts the bytes that the peer of a frozen stream owes.
fn owed_by_peer(rx: &Receiver) -> usize {
    rx.stream.as_ref().map_or(0, |stream| stream.peer_leftover().unwrap_or(0))
}

fn tell_peer(library: &Library, stream: &Arc<Stream>, when: NotifyWhen) {
    if let Some(engine) = library.engine() {
        engine.tell_peer(stream, when);
    }
}
