//! To the protocol server and back: a session's numbers are put on the way to it, and go home from
//! it.
//!
//! Not here: the hand-over itself, which a data call does (`remote::served`), and the protocol
//! thread's part (`control::protocol::serving`). Read `docs/understand/protocol-server.md` first.

use crate::fds::entry::{FdEntry, mark};
use crate::fds::slot::{SetNumber, Slot};
use crate::host::lock::lock;
use crate::moves::offer::Offer;
use crate::process::engine::{Engine, Job};
use crate::process::library::{AncestorSlot, Library, OwnSession};
use crate::process::thresholds::kind_of;
use crate::session::directions::switch;
use crate::session::identity::InboxPlace;
use crate::session::service::ServicePart;
use crate::session::{Facts, Session};
use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_session::{HomeT, LocalNumber, OfferT, ReasonT};
use sojourn_stream::{Inbox, SlotNumber};
use std::sync::Arc;

/// How long a `fork` child waits until it has its part; after that the session goes home.
const SHARE_LIMIT: Duration = Duration::from_secs(2);

impl Library {
    /// Puts the offered session on the way to the protocol server; it is pending from now on.
    /// `keep` is called with its slot before any call is the session's. `inbox`: where its events
    /// are posted, in that slot, too.
    pub(crate) fn await_service(
        &self,
        engine: &'static Engine,
        offer: &Offer,
        inbox: Arc<Inbox>,
        keep: impl FnOnce(Slot),
    ) -> Result<&'static Session, ReasonT> {
        let _joining = lock(&engine.joining);
        let entry = self.may_settle(engine, offer)?;
        let taken = engine.pool.take().map_err(|_| ReasonT::Resources)?;
        let session = OwnSession { library: self, session: taken };
        keep(session.slot());
        self.settle_for_service(session, offer, inbox);
        session.service.awaits();
        self.take_numbers(engine, offer, taken);
        if !session.learn_signals(offer.fd) {
            self.keeps_for_signals(session, entry);
            return Ok(taken);
        }
        if !offer.numbers.iter().all(|fd| self.set_joined(*fd, taken)) {
            entry.was_refused();
            session.leave(ReasonT::Set, false);
        }
        Ok(taken)
    }

    fn settle_for_service(&self, session: OwnSession<'_>, offer: &Offer, inbox: Arc<Inbox>) {
        session.settle_down(offer, false);
        // Sends are asked for their route like receives.
        session.tx_state.store(switch::RING, Ordering::SeqCst);
        session.set_wait(self.policy.wait());
        *lock(&session.facts) = Facts {
            local: offer.local,
            place: Some(InboxPlace { inbox, slot: SlotNumber(session.slot().number()) }),
            set: SetNumber::of_offer(offer.what.set),
            numbers: offer.numbers.clone(),
            ..Facts::default()
        };
    }

    /// Takes part in the session of `fd`, which is an ancestor's, if the protocol server serves it.
    /// Returns false if that is impossible: then the session goes home.
    pub(crate) fn shares_service(&self, fd: i32, entry: &FdEntry) -> bool {
        let is_in_sets = [&entry.set, &entry.last_set].iter().any(|set| {
            // The sets of a `fork` child are the kernel's alone.
            set.load(Ordering::SeqCst).is_some()
        });
        if is_in_sets || entry.has(mark::SETS) || entry.may_be_aliased() {
            return false;
        }
        let Some(session) = self.session_of_ancestor(entry) else { return false };
        // The memory is a copy: another thread may have held the lock when the parent forked.
        let token = session.facts.try_lock().ok().and_then(|facts| facts.token);
        let Some(token) = token.filter(|_| session.service.is_begun()) else { return false };
        if self.policy.is_forbidden() || self.host().in_handler() {
            return false;
        }
        let version = entry.version.load(Ordering::SeqCst);
        self.push(Job::Share { fd, version, token });
        if let Some(engine) = self.engine() {
            engine.await_jobs(SHARE_LIMIT);
        }
        self.own_session(entry).is_some()
    }

    fn session_of_ancestor(&self, entry: &FdEntry) -> Option<&Session> {
        let AncestorSlot { process, slot } = self.foreign_session(entry)?;
        self.engine_of(process)?.pool.session(slot)
    }

    /// Makes the session of `fd`, an ancestor's, this process's, under the number that the protocol
    /// server has given it. Returns `None` if the number means something else by now.
    pub(crate) fn begin_sharing(
        &self,
        engine: &'static Engine,
        fd: i32,
        version: u32,
        inbox: Arc<Inbox>,
        part: ServicePart,
    ) -> Option<&'static Session> {
        let _joining = lock(&engine.joining);
        let entry = self.table.known(fd)?;
        let is_same = entry.version.load(Ordering::SeqCst) == version;
        self.session_of_ancestor(entry).filter(|_| is_same)?;
        let session = engine.pool.take().ok()?;
        let own = OwnSession { library: self, session };
        let what = OfferT { local: 0, set: 0, ring_bytes: 0, is_sole: false, home: HomeT::Server };
        let (epoch, aliases, numbers) = (0, 0, vec![fd]);
        let kind = kind_of(fd)?;
        let offer = Offer {
            local: LocalNumber::default(),
            fd,
            version,
            epoch,
            aliases,
            kind,
            numbers,
            what,
        };
        self.settle_for_service(own, &offer, inbox);
        lock(&session.facts).token = Some(part.token);
        session.service.begin(part.number);
        self.take_numbers(engine, &offer, session);
        Some(session)
    }
}

impl OwnSession<'_> {
    /// Sends a session home that is the protocol server's, or about to be. Returns when the kernel
    /// has it.
    pub(crate) fn leave_service(self) {
        if let Some(number) = self.service.number() {
            return self.release(number);
        }
        let is_pending = {
            // The call that hands the session over holds this.
            let _tx = lock(&self.tx);
            self.service.is_pending()
        };
        if !is_pending {
            // It has been handed over meanwhile, or is home.
            return self.service.number().map_or((), |number| self.release(number));
        }
        if let Some(server) = self.library.protocol_server() {
            server.forget(self.slot());
        }
        self.end_service();
    }

    /// Gives up this process's part in the session, before its last descriptor is closed. Unread
    /// bytes are in the kernel then, as without the library, if nobody else has the session.
    pub(crate) fn close_service(self) {
        match (self.service.number(), self.library.protocol_server()) {
            (Some(number), Some(server)) => {
                // A server that is gone has no part to give up.
                let _ = server.close(number);
                self.end_service();
            }
            _ => self.leave_service(),
        }
    }
}
