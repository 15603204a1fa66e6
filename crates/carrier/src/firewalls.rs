//! Sessions about which a packet filter or an IPsec policy of this host could say something: they
//! stay in the kernel, and go home when the rules become such.
//!
//! Not here: what rules say (`sojourn_firewall`), what is remembered of them (`rules`).

use crate::carrier::Carrier;
use crate::clock::later;
use crate::metastate::NextHop;
use crate::next_hop::next_hop_of;
use crate::session::Phase;
use sojourn_filter::Key;
use sojourn_firewall::{Interface, RESURVEY_US, Session};
use sojourn_proto::time::Instant;
use sojourn_session::ReasonT;
use sojourn_wire::Protocol;

impl Carrier {
    /// Whether something of the host could speak about the session's packets, which go by
    /// `next_hop`.
    pub(crate) fn is_filtered(&mut self, key: &Key, next_hop: Option<&NextHop>) -> bool {
        let Self { rules: Some(rules), conntrack, sessions, .. } = self else { return false };
        // Before the connection tracking is asked, which takes system calls.
        if rules.firewall.says_nothing() {
            return false;
        }
        let mut is_established =
            || conntrack.as_mut().is_some_and(|known| known.standing(key).is_established);
        let session = Session {
            protocol: key.protocol(),
            local: key.local(),
            remote: key.remote(),
            interface: next_hop.map(|next_hop| Interface {
                index: next_hop.interface,
                name: next_hop.name.clone(),
            }),
            is_established: key.protocol() == Protocol::Tcp && is_established(),
        };
        let Some(hook) = rules.firewall.concerning(&session) else { return false };
        if rules.told.as_ref() != Some(&hook) {
            sessions.say(format_args!(
                "{key:?}: stays in the kernel for {hook}; --firewall=ignore carries such sessions past it"
            ));
            rules.told = Some(hook);
        }
        true
    }

    /// Reads the rules again if they have changed, and sends those home that they concern now.
    pub(crate) fn look_at_rules(&mut self) {
        if self.rules.as_mut().is_some_and(|rules| rules.firewall.refresh()) {
            self.rules_changed();
        }
    }

    /// The same for rules of whose changes nobody tells, if it is time.
    fn resurvey_rules(&mut self, at: Instant) {
        let due = self.rules.as_mut().filter(|rules| at >= rules.next_survey);
        let Some(rules) = due else { return };
        rules.next_survey = later(at, RESURVEY_US);
        if rules.firewall.resurvey() {
            self.rules_changed();
        }
    }

    /// The same while there are sessions that they could concern. When to look again.
    pub(crate) fn survey_rules(&mut self, at: Instant) -> Option<Instant> {
        if self.table.is_empty() {
            return None;
        }
        self.resurvey_rules(at);
        self.rules.as_ref().map(|rules| rules.next_survey)
    }

    /// What an offer is judged by is never older than the offer, or than the last survey.
    pub(crate) fn update_rules(&mut self, at: Instant) {
        self.look_at_rules();
        self.resurvey_rules(at);
    }

    fn rules_changed(&mut self) {
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            self.judge(local);
        }
    }

    /// Sends a session home if the rules concern it.
    pub(crate) fn judge(&mut self, local: u64) {
        let Some(session) = self.table.get(&local) else { return };
        let (keys, planned) = (session.keys(), session.plan().map(|plan| plan.next_hop.clone()));
        let is_filtered = keys.iter().any(|key| {
            let next_hop = planned.clone().or_else(|| next_hop_of(&mut self.metastate, key));
            self.is_filtered(key, next_hop.as_ref())
        });
        if is_filtered {
            self.send_home(local, ReasonT::Firewall);
        }
    }

    /// Whoever has the session is to let go of it; one that is not away yet is left alone.
    pub(crate) fn send_home(&mut self, local: u64, reason: ReasonT) {
        match self.table.get(&local).map(|session| &session.phase) {
            Some(Phase::Delegated(delegated)) => delegated.call_home(),
            Some(Phase::UdpDelegated(delegated)) => delegated.call_home(),
            Some(Phase::UdpWaiting(_) | Phase::Waiting(_)) => return self.end(local),
            Some(Phase::Offered { .. } | Phase::UdpOffered(_)) => {
                self.table.remove(&local);
                return self.sessions.left(local, reason, 0, 0);
            }
            None => {}
        }
        self.attend(local);
    }
}
