//! Sessions whose packets stop although they are away: the library that should give a session back
//! does not, or there is no route.
//!
//! Only the library knows the state of a session, so the carrier waits for it. But a program that
//! is hostile never answers, and would go on sending past the rules for which it was called home.
//! So after a while no packet of the session passes its port any more, in either direction. To a
//! program that was only stopped this is a link that has failed for a while: once it answers, the
//! session goes home with all that it has acknowledged, and the peer repeats the rest. Without a
//! route the same happens at once, and ends with the next route.
//!
//! A program that has shown a packet socket of its own has no port, and needs none to send. Not
//! here: the return (`end`), next hops (`reroute`).

use crate::carrier::Carrier;
use crate::clock::later;
use crate::next_hop::is_cut;
use crate::session::{Delegated, Outcome, Phase, Session};
use sojourn_filter::Key;
use sojourn_pump::now;
use sojourn_session::LocalNumber;

/// How long a library may take to give a session back, before its packets stop (microseconds).
const RETURN_LIMIT_US: u64 = 1_000_000;

impl Carrier {
    /// Returns what is next for a session that its library is about to give back.
    pub(super) fn await_return(&mut self, key: &Key, mut delegated: Box<Delegated>) -> Outcome {
        let at = now();
        let limit = later(*delegated.frozen_at.get_or_insert(at), RETURN_LIMIT_US);
        let is_late = at >= limit;
        if is_late {
            self.links.hold(delegated.next_hop.interface, key, true);
        }
        Outcome::Look(Phase::Delegated(delegated), (!is_late).then_some(limit))
    }

    /// Stops the packets of a session that has lost its route, or lets them go again. They stay
    /// where they are while it is called home.
    pub(crate) fn cut(&mut self, local: LocalNumber, is_cut: bool) {
        let Some(Session { key, phase: Phase::Delegated(delegated) }) = self.table.get(&local)
        else {
            return;
        };
        if !delegated.stream.is_frozen() {
            self.links.hold(delegated.next_hop.interface, key, is_cut);
        }
    }

    /// Does so with the datagrams of a session that has a peer. What those without one may do is
    /// decided before they leave (`sojourn_firewall`).
    pub(crate) fn cut_datagrams(&mut self, local: LocalNumber) {
        let Self { table, links, metastate, .. } = self;
        let Some(Session { phase: Phase::UdpDelegated(udp), .. }) = table.get(&local) else {
            return;
        };
        for key in &udp.keys {
            links.hold(udp.next_hop.interface, key, is_cut(metastate, key));
        }
    }
}
