//! Joining: two offers have become one stream, and the session is put on it.
//!
//! The protocol thread does this. Not here: the offer (`offer`), and the switch to the ring
//! (`io::send`, `io::receive`). Read `docs/understand/streams.md`, "Moving out" (2, 3).

use crate::fds::entry::{FdEntry, mark};
use crate::fds::slot::SetNumber;
use crate::host::lock::lock;
use crate::moves::offer::Offer;
use crate::process::deferred::NotifyWhen;
use crate::process::engine::Engine;
use crate::process::library::{Library, OwnSession};
use crate::session::directions::{Receiver, RxPhase, TxPhase, switch};
use crate::session::identity::InboxPlace;
use crate::session::transport::Transport;
use crate::session::{Facts, Session};
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use sojourn_session::{JoinT, KindT, ProcessId, ReasonT, StreamNumber};
use sojourn_shm::Mapping;
use sojourn_shm::deadline::{now_ns, since};
use sojourn_stream::{Inbox, Layout, SlotNumber, Stream, Traffic};
use std::sync::Arc;

/// The parts that a join needs beside the offer.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) stream: Arc<Stream>,
    /// Where the peer posts to.
    pub(crate) place: InboxPlace,
    /// The number here of the peer's process; 0 if it has none.
    pub(crate) peer_pid: ProcessId,
}

/// Makes this side's view of a join's stream, in its region.
pub(crate) fn view(join: &JoinT, region: Mapping, peer_inbox: Arc<Inbox>) -> Result<Stream, Errno> {
    let layout = Layout::new(join.ring_bytes).ok_or(Errno::INVAL)?;
    let side = usize::from(join.side);
    Stream::new(region, layout, side, peer_inbox, SlotNumber(join.peer.slot)).ok_or(Errno::INVAL)
}

impl Library {
    /// Puts the offered session on its stream. Returns the session, or the reason why it stays in
    /// the kernel.
    pub(crate) fn join(
        &self,
        engine: &'static Engine,
        offer: &Offer,
        join: &JoinT,
        parts: &Parts,
    ) -> Result<&'static Session, ReasonT> {
        let _joining = lock(&engine.joining);
        let entry = self.may_settle(engine, offer)?;
        let taken = engine.pool.take().map_err(|_| ReasonT::Resources)?;
        let session = OwnSession { library: self, session: taken };
        self.settle_in(session, offer, join, parts);
        // `consent` and `switch` wait for the calls that sit in the kernel now.
        self.take_numbers(engine, offer, taken);
        // Before the peer may write to the ring; what the program changes from here on it reports.
        if !session.learn_signals(offer.fd) {
            self.keeps_for_signals(session, entry);
            return Ok(taken);
        }
        if !offer.numbers.iter().all(|fd| self.set_joined(*fd, taken)) {
            // The cause may pass: the set has as many inboxes as it can have, or the program has
            // just changed its registration.
            entry.was_refused();
            session.leave(ReasonT::Set, false);
            return Ok(taken);
        }
        match session.transport() {
            Transport::Local(_) => {
                session.consent(&parts.stream);
            }
            Transport::RemoteTcp(tcp) => {
                session.learn_keepalive(tcp);
                session.consent_to_carrier(&mut lock(&session.rx), &parts.stream);
            }
            Transport::Udp(_) => {
                session.consent_to_carrier(&mut lock(&session.rx), &parts.stream);
            }
        }
        Ok(taken)
    }

    /// Returns the entry of an offer that still holds, or the reason why it does not. The caller
    /// holds `joining`.
    pub(crate) fn may_settle(&self, engine: &Engine, offer: &Offer) -> Result<&FdEntry, ReasonT> {
        let entry = self.table.known(offer.fd).ok_or(ReasonT::Closed)?;
        let is_same = entry.version.load(Ordering::SeqCst) == offer.version;
        if !is_same || !entry.has(mark::OFFERED) || self.policy.is_forbidden() {
            return Err(ReasonT::Closed);
        }
        if entry.may_be_aliased() && offer.aliases != self.alias_epoch.load(Ordering::SeqCst) {
            // The program may have made one more number of the description, which the offer does
            // not list.
            return Err(ReasonT::Operation);
        }
        let is_since_fork = offer.epoch != self.fork_epoch.load(Ordering::SeqCst);
        if is_since_fork || self.comes_a_holder_of(&offer.numbers) {
            // A child may have the descriptor, too, and knows of no session.
            return Err(ReasonT::Fork);
        }
        if lock(&engine.rings).look_for_offer(|| self.has_ring_unseen()) {
            return Err(ReasonT::Ring);
        }
        if self.set_for_offer(&offer.numbers) != Some(SetNumber::of_offer(offer.what.set)) {
            return Err(ReasonT::Set);
        }
        if offer.numbers.iter().any(|fd| self.table.known(*fd).is_none_or(|e| e.has(mark::FIXED))) {
            return Err(ReasonT::Stdio);
        }
        Ok(entry)
    }

    /// Makes every call on the offer's numbers the session's from here on.
    pub(crate) fn take_numbers(&self, engine: &Engine, offer: &Offer, session: &Session) {
        for fd in &offer.numbers {
            if let Some(entry) = self.table.known(*fd) {
                entry.unmark(mark::OFFERED);
                entry.was_taken();
                // SYNC: before `users` is looked at; pairs with `Library::path`.
                entry.session.store(self.word_of(session.slot()), Ordering::SeqCst);
            }
        }
        engine.away.fetch_add(1, Ordering::SeqCst);
    }

    /// Sends home a session of which the program wants signals (`O_ASYNC`) that only the kernel
    /// can send; one with another host, or by the protocol server, for good.
    pub(crate) fn keeps_for_signals(&self, session: OwnSession<'_>, entry: &FdEntry) {
        if session.may_signal() {
            entry.keep_for_now(ReasonT::Operation);
        } else {
            entry.keep(ReasonT::Operation);
        }
        session.leave(ReasonT::Operation, false);
    }

    fn settle_in(&self, session: OwnSession<'_>, offer: &Offer, join: &JoinT, parts: &Parts) {
        session.settle_down(offer, join.is_carried);
        session.set_wait(self.policy.wait());
        if let Some(local) = session.local() {
            local.acknowledges.store(offer.kind == KindT::Tcp, Ordering::SeqCst);
            let watches = self.table.known(offer.fd).map(|entry| self.watches(offer.fd, entry));
            *lock(&local.progress) = watches.unwrap_or_default();
            parts.stream.set_near(near_part(offer.what.ring_bytes, parts.stream.out_bytes()));
        }
        *lock(&session.facts) = Facts {
            local: offer.local,
            place: Some(parts.place.clone()),
            set: SetNumber::of_offer(offer.what.set),
            peer_pid: parts.peer_pid,
            peer_has_ended: false,
            stream: StreamNumber(join.stream),
            epoch: offer.epoch,
            numbers: offer.numbers.clone(),
            token: None,
            joined_ns: now_ns(),
        };
        let mut tx = lock(&session.tx);
        let mut rx = lock(&session.rx);
        // A pipe's writer is side 0. It has nothing to read, and its reader has nothing to write.
        if parts.stream.out_bytes() > 0 {
            tx.stream = Some(Arc::clone(&parts.stream));
            tx.phase = TxPhase::Joined;
        }
        if parts.stream.in_bytes() > 0 {
            rx.stream = Some(Arc::clone(&parts.stream));
            rx.phase = RxPhase::Joined;
        }
        let only_sends = offer.kind == KindT::Pipe && parts.stream.in_bytes() == 0;
        session.only_sends.store(only_sends, Ordering::SeqCst);
    }

    /// Detaches a session that is home for good: its numbers are the kernel's again.
    pub(crate) fn detach(&self, session: &Session) {
        let Some(engine) = self.engine() else { return };
        session.end_use();
        let facts = core::mem::take(&mut *lock(&session.facts));
        let word = self.word_of(session.slot());
        for fd in &facts.numbers {
            if let Some(entry) = self.table.known(*fd) {
                let _ = entry.session.exchange(word, None);
                entry.restart_counts();
            }
            self.set_left(*fd, session);
        }
        *lock(&session.tx) = crate::session::directions::Sender::default();
        engine.away.fetch_sub(1, Ordering::SeqCst);
        engine.pool.give_back(session);
    }

    /// Reports to the server that the session was frozen for `reason`.
    pub(crate) fn count_return(
        &self,
        session: &Session,
        stream: &Arc<Stream>,
        reason: ReasonT,
        when: NotifyWhen,
    ) {
        let (local, joined_ns) = {
            let facts = lock(&session.facts);
            (facts.local, facts.joined_ns)
        };
        let Traffic { sent, received } = stream.totals();
        // Somebody who sends a session home by hand says nothing of its worth.
        if reason != ReasonT::User {
            let bytes = sent.saturating_add(received);
            self.policy.lifetimes.ended(now_ns(), since(joined_ns), bytes);
        }
        let stream = Arc::clone(stream);
        self.push_when(
            crate::process::engine::Job::Left { local, reason, sent, received, stream },
            when,
        );
    }
}

/// Returns the bytes of a ring of `all` bytes that are used while its reader keeps up: this
/// process's wish. The larger rest of a ring is for the bytes that the kernel would have taken.
fn near_part(wanted: u32, all: u32) -> u32 {
    if wanted >= all { all } else { (1 << wanted.max(1).ilog2()).min(all / 4) }
}

impl OwnSession<'_> {
    /// Sets the state that every session has that leaves the kernel.
    pub(crate) fn settle_down(self, offer: &Offer, is_carried: bool) {
        self.kind.store(offer.kind as u32, Ordering::SeqCst);
        if offer.kind == KindT::Udp
            && let Some(engine) = self.library.engine()
        {
            engine.has_datagrams.store(true, Ordering::SeqCst);
        }
        self.fd.store(offer.fd, Ordering::SeqCst);
        let flags = [
            &self.rx_kernel_event,
            &self.tx_kernel_event,
            &self.is_over,
            &self.is_flushing,
            &self.has_ended_sending,
            &self.only_sends,
            &self.is_delegated,
        ];
        flags.into_iter().for_each(|flag| flag.store(false, Ordering::SeqCst));
        self.transports.begin(offer.kind, is_carried);
        self.signals.reset();
        self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
        self.learn_flags(offer.fd);
        self.learn_timeouts(offer.fd);
        *lock(&self.rx) = Receiver::default();
    }

    /// Gives up a session whose descriptor was closed past the library. The peer finds the unread
    /// bytes in the ring.
    pub(crate) fn abandon(self) {
        if self.service.is_any() {
            return self.close_service();
        }
        if let Some(stream) = self.stream() {
            stream.freeze();
            let mut tx = lock(&self.tx);
            let mut rx = lock(&self.rx);
            let was_flushing = tx.phase == TxPhase::Flushing;
            self.end_sending(&mut tx);
            if !was_flushing {
                self.library.count_return(&self, &stream, ReasonT::Closed, NotifyWhen::Now);
            }
            self.finish(&mut rx);
        }
        lock(&self.facts).numbers.clear();
        self.settle();
    }
}
