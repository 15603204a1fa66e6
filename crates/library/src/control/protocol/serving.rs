//! The protocol thread's part in sessions that the protocol server serves: they are put on the way
//! to it, the server's bell is heard, and those whose server is gone are followed home.
//!
//! Not here: the calls to the server (`crate::remote::protocol_server`), the steps of one session
//! (`crate::moves::service`). Read `docs/understand/protocol-server.md` first.

use super::events::SERVED;
use super::thread::Thread;
use crate::fds::slot::{SetNumber, Slot};
use crate::host::kernel;
use crate::moves::offer::Offer;
use crate::process::library::OwnSession;
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::protocol_server::ProtocolServer;
use crate::session::Session;
use crate::session::service::ServicePart;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use sojourn_ipc::Deadline;
use sojourn_session::ReasonT;
use sojourn_session::protocol::client::TokenT;
use sojourn_shm::{Mapping, fault};
use sojourn_stream::Inbox;
use std::sync::Arc;
use std::time::Instant;

/// How long the kernel may take to have a lost session again; after that the program goes on with
/// the socket as it is.
const LOST_LIMIT: Duration = Duration::from_secs(5);

impl Thread {
    /// Puts a session on the way to the protocol server, which the session server has refused to
    /// have carried by this process.
    pub(super) fn serve_elsewhere(&mut self, offer: &Offer) {
        fault::point("library.serve");
        if self.hand_over(offer).is_none() {
            self.decline(offer);
        }
    }

    /// Returns the protocol server, connected.
    fn protocol_server(&mut self) -> Option<&'static ProtocolServer> {
        self.forget_served();
        let (library, engine) = (self.library, self.engine);
        // The thread for the calls is started on the second thread, whose table it shares.
        let connect = |set| {
            let server = library.start_protocol_server(engine)?;
            server.connect(set, SERVED).ok().map(|()| server)
        };
        self.aside.call(|outside| connect(outside.set_number())).flatten()
    }

    /// Takes part in the session of `fd`, which an ancestor has.
    pub(super) fn share(&mut self, fd: i32, version: u32, token: TokenT) {
        let Some(server) = self.protocol_server() else { return };
        let Some(inbox) = self.inbox_of(SetNumber::NONE) else { return };
        let Ok(number) = server.attach(token) else { return };
        let (library, engine) = (self.library, self.engine);
        match library.begin_sharing(engine, fd, version, inbox, ServicePart { number, token }) {
            Some(session) => self.serving.slots.push(session.slot()),
            // The program has closed it.
            None => drop(server.close(number)),
        }
    }

    fn hand_over(&mut self, offer: &Offer) -> Option<()> {
        let (library, engine) = (self.library, self.engine);
        let server = self.protocol_server()?;
        let inbox = self.inbox_of(SetNumber::of_offer(offer.what.set))?;
        let end = kernel::at(offer.fd).ok()?;
        let passed = self.engine.own.pass(end).ok();
        let mut slot_of = None;
        let aside = &mut self.aside;
        let keep = |slot| {
            slot_of = Some(slot);
            passed.and_then(|()| {
                aside.call(|outside| outside.take_passed().map(|end| server.keep(slot, end)))
            });
        };
        let session = library.await_service(engine, offer, inbox, keep);
        if session.is_err() && passed.is_some() && slot_of.is_none() {
            self.aside.call(|outside| drop(outside.take_passed()));
        }
        self.serving.slots.push(session.ok()?.slot());
        Some(())
    }

    fn inbox_of(&mut self, set: SetNumber) -> Option<Arc<Inbox>> {
        if let Some(known) = self.serving.inboxes.get(&set) {
            return Some(Arc::clone(known));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = || self.engine.own.make(true, || eventfd(0, flags)).ok();
        let (ready, attention) = (event()?, event()?);
        let memory = Mapping::private(Inbox::LEN).ok()?;
        let inbox = Arc::new(Inbox::new(memory, ready, attention)?);
        self.serving.inboxes.insert(set, Arc::clone(&inbox));
        Some(inbox)
    }

    fn served(&self) -> impl Iterator<Item = OwnSession<'static>> {
        let library = self.library;
        self.serving.slots.iter().filter_map(|slot| library.session_in(*slot))
    }

    /// Forgets the sessions that are home.
    fn forget_served(&mut self) {
        let pool = &self.engine.pool;
        let is_served = |slot: &Slot| pool.session(*slot).is_some_and(|one| one.service.is_any());
        self.serving.slots.retain(is_served);
        self.serving.slots.sort_unstable();
        self.serving.slots.dedup();
        self.serving.inboxes.retain(|_, inbox| Arc::strong_count(inbox) > 1);
    }

    /// Hears the protocol server's bell.
    pub(super) fn hear_protocol_server(&mut self) {
        let Some(server) = self.library.protocol_server() else { return };
        let Ok(told) = server.collect() else { return self.lose_protocol_server() };
        for session in self.served() {
            if session.service.number().is_some_and(|number| told.contains(&number)) {
                session.told_by_service();
            }
        }
    }

    /// Notes that the protocol server is gone. The sessions that it served are on their way into
    /// the kernel by the session server's hand.
    pub(super) fn lose_protocol_server(&mut self) {
        self.serving.lost_since.get_or_insert_with(Instant::now);
        for session in self.served().filter(|session| session.service.is_begun()) {
            session.service.is_lost.store(true, Ordering::SeqCst);
        }
        self.look_after_lost();
    }

    /// Ends the service of lost sessions that the kernel has again.
    pub(super) fn look_after_lost(&mut self) {
        let Some(since) = self.serving.lost_since else { return };
        let is_lost = |session: &OwnSession<'_>| {
            session.service.is_begun() && session.service.is_lost.load(Ordering::SeqCst)
        };
        let lost: Vec<OwnSession<'_>> = self.served().filter(is_lost).collect();
        if !self.has_client && !lost.is_empty() {
            self.connect();
        }
        let mut is_any_away = false;
        for session in lost {
            if since.elapsed() < LOST_LIMIT && self.is_away(&session) {
                is_any_away = true;
            } else {
                session.end_lost_service();
            }
        }
        if !is_any_away {
            self.serving.lost_since = None;
        }
    }

    /// Asks the session server if a session is away from the kernel. One that cannot be asked may
    /// have it still.
    fn is_away(&mut self, session: &Session) -> bool {
        let Ok(end) = kernel::at(session.number()) else { return false };
        let deadline = Deadline::after(ANSWER_LIMIT);
        let told = self.with_descriptor(end, |outside| {
            let end = outside.take_passed()?;
            let client = outside.client.as_mut()?;
            client.with_deadline(deadline).is_away(Some(end.as_fd())).ok()
        });
        told.flatten().unwrap_or(true)
    }

    /// Looks at a session of which the server has said that it does not serve it any more.
    pub(super) fn follow_service(&self, slot: Slot) {
        if let Some(session) = self.library.session_in(slot)
            && let Some(number) = session.service.number()
            && let Some(server) = self.library.protocol_server()
            && server.ready(number).is_err()
        {
            session.leave(ReasonT::PeerLeft, false);
        }
    }
}
