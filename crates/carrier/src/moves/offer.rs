//! The first step: a socket that a program has offered is looked at, and its other end is offered.
//!
//! Not here: what the look sees (`work`), the steps that follow (`out`).

use crate::carrier::{Carrier, NewSocket};
use crate::commands::Offered;
use crate::next_hop::next_hop_of;
use crate::quiesce::RING_BYTES;
use crate::session::{Phase, Session};
use crate::work::{Facts, Inspected, Work};
use sojourn_filter::Key;
use sojourn_pump::now;
use sojourn_session::{HomeT, LocalNumber, OfferT, ReasonT};
use sojourn_stream::Traffic;
use sojourn_wire::Protocol;

impl Carrier {
    /// Has an assistant look at a socket that a program has offered.
    pub(super) fn offer(&mut self, Offered { socket, user }: Offered) {
        let local = self.next_local();
        let socket = self.assistants.socket(socket, user);
        // Without a share the session stays in the kernel.
        if let Some(share) = self.assistants.share(user) {
            self.assistants.give(local, &socket, Work::Inspect, Vec::new());
            self.new.insert(local, NewSocket { socket, _share: share });
        }
    }

    /// Offers the other end of a socket that an assistant has looked at; `None`: it has not.
    pub(super) fn inspected(&mut self, local: LocalNumber, inspected: Option<Inspected>) {
        let Some(NewSocket { socket, .. }) = self.new.remove(&local) else { return };
        let Some(Inspected { seen, facts }) = inspected else { return };
        let what = OfferT {
            local: local.0,
            set: 0,
            ring_bytes: RING_BYTES,
            is_sole: true,
            home: HomeT::Library,
        };
        let (addresses, has_filter) = match facts {
            Facts::Udp(facts) => {
                // The carrier's duplicate would keep the port after the program has closed the
                // socket.
                drop(socket);
                return self.offer_datagrams(local, &what, &seen, facts);
            }
            Facts::Tcp { addresses, has_filter } => (addresses, has_filter),
        };
        let key = addresses
            .and_then(|found| Key::new(Protocol::Tcp, found.local, Some(found.remote)).ok());
        let is_translated =
            |key| self.conntrack.as_mut().is_some_and(|known| known.standing(key).is_translated);
        if key.as_ref().is_some_and(is_translated) {
            return self.sessions.decline(&seen, ReasonT::Translated);
        }
        if has_filter {
            return self.sessions.decline(&seen, ReasonT::Option);
        }
        self.update_rules(now());
        let next_hop = key.as_ref().and_then(|key| next_hop_of(&mut self.metastate, key));
        if key
            .as_ref()
            .is_some_and(|key| next_hop.is_some() && self.is_filtered(key, next_hop.as_ref()))
        {
            return self.sessions.decline(&seen, ReasonT::Firewall);
        }
        self.sessions.offer(&seen, &what);
        match key {
            // An event tells the outcome.
            Some(key) if !self.is_leaving && next_hop.is_some() => {
                self.table.insert(local, Session { key, phase: Phase::Offered { socket } });
            }
            // The server tells the program.
            _ => self.sessions.left(local, ReasonT::NoPeer, Traffic::default()),
        }
    }
}
