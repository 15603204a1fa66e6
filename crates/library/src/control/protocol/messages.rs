//! The server's messages to the protocol thread, taken in turn.
//!
//! A join or a delegation brings descriptors that the program's threads need. They wait in the
//! bell's socket until a thread may take them into the program's table (`crate::fds::own`), and all
//! later messages wait for that. Not here: the needs of joins (`super::joins`).

use super::joined::Joined;
use super::outside::ServerMessage;
use super::thread::Thread;
use crate::process::engine::Job;
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::delegation::{Delegation, LinkSockets};
use crate::remote::net::Net;
use core::time::Duration;
use sojourn_session::{EventT, Inode, KindT, LocalNumber, ReasonT, RecallT};
use sojourn_shm::{Deadline, MovableFd};
use sojourn_stream::Stream;
use std::collections::VecDeque;

/// How long the program's one thread has to make a call in which it takes waiting descriptors. As a
/// rule it makes calls all the time, because sessions that move are busy. A thread that sleeps is
/// not likely to open something just when this thread takes them instead.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often the thread looks whether the server has delegated a session that it has begun to
/// carry.
const LENT_SLICE: Duration = Duration::from_micros(100);
/// Pause before the next attempt, if calls of the program were under way.
const AGAIN: Duration = Duration::from_millis(5);

impl Thread {
    /// Receives the server's messages, and acts on those that need not wait.
    pub(super) fn take_events(&mut self) {
        while self.has_client {
            let mapped = &self.engine.mapped;
            match self.aside.call(move |outside| outside.next(mapped)) {
                Some(ServerMessage::Nothing) => break,
                Some(ServerMessage::Gone) | None => self.lose_server(),
                Some(message) => self.server_messages.push_back(message),
            }
        }
        self.take_messages();
    }

    /// Acts on the messages in turn, until one has to wait.
    pub(super) fn take_messages(&mut self) {
        while let Some(message) = self.server_messages.front() {
            let (passed, may_wait) = match message {
                ServerMessage::Join(prepared) => (prepared.passed, true),
                ServerMessage::Delegate(delegation) => (delegation.passed, false),
                _ => (0, false),
            };
            let mut placed = Some(Vec::new());
            if passed > 0 {
                match self.placed(may_wait) {
                    Some(taken) => placed = taken,
                    None => return,
                }
            }
            if let Some(message) = self.server_messages.pop_front() {
                self.handle_message(message, placed);
            }
        }
    }

    /// Returns the first message's descriptors, in the program's table; `None` while they are
    /// waited for.
    fn placed(&mut self, may_wait: bool) -> Option<Option<Vec<MovableFd>>> {
        let own = &self.engine.own;
        let is_late = match self.placing {
            Some(deadline) => deadline.is_over(),
            None if may_wait && self.engine.is_single_threaded() => {
                own.want();
                self.placing = Some(Deadline::after(PATIENCE));
                false
            }
            None => true,
        };
        let taken = own.taken(is_late);
        if taken.is_some() {
            self.placing = None;
        } else if is_late {
            self.placing = Some(Deadline::after(AGAIN));
        }
        taken
    }

    /// Waits for the delegation of a UDP socket that goes home and that the server may have begun
    /// to carry: its datagrams are in the packet socket, and nobody else takes them from there.
    pub(super) fn await_delegation(&mut self, local: LocalNumber) {
        let deadline = Deadline::after(ANSWER_LIMIT);
        let is_kept = |other: &Stream| other.ledger().keep() || other.ledger().is_kept();
        while self.has_client
            && let Some(Joined { other: Some(other), offer, .. }) = self.joined.get(&local)
            && offer.kind == KindT::Udp
            && !is_kept(other)
            && !deadline.is_over()
        {
            // The carrier delegates before it revokes and says that it has flushed. What it says
            // is in memory, but a delegation comes by the server, and perhaps later.
            let is_told = other.has_flushed() && !other.ledger().is_revoked();
            self.take_events();
            if is_told && !has_delegation(&self.server_messages, local) {
                return;
            }
            std::thread::sleep(LENT_SLICE);
        }
    }

    fn handle_message(&mut self, message: ServerMessage, placed: Option<Vec<MovableFd>>) {
        match message {
            ServerMessage::Join(prepared) => self.join(*prepared, placed),
            ServerMessage::Delegate(delegation) => {
                self.carry(&delegation, placed.and_then(LinkSockets::of))
            }
            ServerMessage::Event(event) => self.do_event(event),
            ServerMessage::Forget(joined) => self.forget(&joined),
            ServerMessage::Nothing | ServerMessage::Gone => {}
        }
    }

    fn do_event(&mut self, event: EventT) {
        let library = self.library;
        match event {
            EventT::Recall(RecallT { local, reason }) => {
                if let Some(session) = self.session(LocalNumber(local)) {
                    session.recalled(reason);
                }
            }
            // The job comes after the returns that were left before it, so that these are forgotten
            // first.
            EventT::Wanted(wanted) => {
                self.engine
                    .push(library, Job::Wanted { inode: Inode(wanted.inode), home: wanted.home });
            }
            EventT::Rerouted(rerouted) => {
                if let Some((session, net)) =
                    self.session(LocalNumber(rerouted.local)).zip(library.net())
                {
                    net.reroute(session.slot(), &rerouted.hop);
                }
            }
            EventT::Route(route) => {
                if let Some((session, net)) =
                    self.session(LocalNumber(route.local)).zip(library.net())
                {
                    net.set_route(session.slot(), &route);
                }
            }
            EventT::Refused(refusal) => {
                if let Some(offer) = self.offers.remove(&LocalNumber(refusal.local)) {
                    match refusal.reason {
                        ReasonT::ProtocolServer => return self.serve_elsewhere(&offer),
                        ReasonT::Kind => self.fix(&offer),
                        _ => {}
                    }
                    self.decline(&offer);
                }
            }
            EventT::None | EventT::Join(_) | EventT::Delegate(_) => {}
        }
    }

    /// Begins to run the engine of a delegated session.
    fn carry(&mut self, delegation: &Delegation, sockets: Option<LinkSockets>) {
        let local = LocalNumber(delegation.terms.local);
        let Some(session) = self.session(local) else { return };
        let joined = self.joined.get_mut(&local);
        let other = joined.and_then(|Joined { other, .. }| other.take());
        // Without a connection for the way home the session is not begun.
        let net =
            Net::start(self.library, self.engine).filter(|net| net.server.is_there(self.library));
        let begins = net.zip(other).is_some_and(|(net, other)| match session.kind() {
            KindT::Udp => net.begin_datagrams(self.engine, session, other, delegation, sockets),
            _ => net.begin(self.engine, session, other, delegation, sockets),
        });
        // The thread that froze the stream before this may not have found the session here.
        let is_called_home = session.stream().is_some_and(|stream| stream.is_frozen());
        if !begins || is_called_home {
            session.leave(ReasonT::Resources, false);
        }
    }
}

/// Returns true if a session's delegation has come and waits for numbers for its descriptors.
fn has_delegation(messages: &VecDeque<ServerMessage>, local: LocalNumber) -> bool {
    messages
        .iter()
        .any(|message| matches!(message, ServerMessage::Delegate(it) if it.terms.local == local.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_ipc::rt::Descriptor;
    use sojourn_session::{DelegateT, HopT, RingT};

    fn delegation(local: LocalNumber) -> ServerMessage {
        let hop = HopT { is_cut: false, has_addresses: false, own: [0; 6], next: [0; 6], mtu: 0 };
        let ring = RingT { slot_len: 0, slots: 0 };
        let [packets, xdp, record] = [const { Descriptor::NONE }; 3];
        let terms =
            DelegateT { local: local.0, token: 1, hop, link: 1, packets, ring, xdp, record };
        ServerMessage::Delegate(Box::new(Delegation { terms, record: None, passed: 1 }))
    }

    /// The datagrams of a session that has been called home meanwhile are in its packet socket.
    #[test]
    fn a_delegation_that_waits_for_numbers_is_waited_for() {
        let recall = EventT::Recall(RecallT { local: 3, reason: ReasonT::User });
        let mut messages = VecDeque::from([ServerMessage::Event(recall)]);
        assert!(!has_delegation(&messages, LocalNumber(3)));
        messages.extend([delegation(LocalNumber(2)), delegation(LocalNumber(3))]);
        assert!(
            has_delegation(&messages, LocalNumber(3)) && !has_delegation(&messages, LocalNumber(1))
        );
    }
}
