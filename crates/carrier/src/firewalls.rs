//! Sessions that a packet filter, an IPsec policy or an eBPF program of a control group of this
//! host could concern: they stay in the kernel, and go home when the rules become such.
//!
//! Not here: reading rules (`sojourn_firewall`), and their state (`rules`).

use crate::carrier::Carrier;
use crate::clock::later;
use crate::metastate::NextHop;
use crate::next_hop::next_hop_of;
use crate::session::Phase;
use sojourn_filter::Key;
use sojourn_firewall::{Interface, RESURVEY_US, Session};
use sojourn_proto::time::Instant;
use sojourn_session::{LocalNumber, ReasonT};
use sojourn_stream::Traffic;
use sojourn_wire::Protocol;

impl Carrier {
    /// Returns true if a rule of the host could concern the session's packets, which go by
    /// `next_hop`.
    pub(crate) fn is_filtered(&mut self, key: &Key, next_hop: Option<&NextHop>) -> bool {
        let Self { rules: Some(rules), conntrack, sessions, .. } = self else { return false };
        // Asking the connection tracking takes system calls, and only rules make use of its answer.
        let has_rules = !rules.firewall.has_no_rules();
        let is_established = has_rules
            && key.protocol() == Protocol::Tcp
            && conntrack.as_mut().is_some_and(|known| known.standing(key).is_established);
        let session = Session {
            protocol: key.protocol(),
            local: key.local(),
            remote: key.remote(),
            interface: next_hop.map(|next_hop| Interface {
                index: next_hop.interface,
                name: next_hop.name.clone(),
            }),
            is_established,
        };
        let by_rule = if has_rules { rules.firewall.rule_concerning(&session) } else { None };
        let by_program = || rules.firewall.program_concerning(&session);
        let Some(hook) = by_rule.or_else(by_program) else { return false };
        sessions.concerned(session.local, session.remote, &hook);
        if rules.told.as_ref() != Some(&hook) {
            sessions.say(format_args!(
                "{key:?}: stays in the kernel for {hook}; --firewall=ignore carries such sessions past it"
            ));
            rules.told = Some(hook);
        }
        true
    }

    /// Reads the rules again if they have changed, and sends home the sessions that they concern
    /// now.
    pub(crate) fn look_at_rules(&mut self) {
        if self.rules.as_mut().is_some_and(|rules| rules.firewall.refresh()) {
            self.rules_changed();
        }
    }

    /// Does the same for rules whose changes nobody reports, if a survey is due.
    fn resurvey_rules(&mut self, at: Instant) {
        let due = self.rules.as_mut().filter(|rules| at >= rules.next_survey);
        let Some(rules) = due else { return };
        rules.next_survey = later(at, RESURVEY_US);
        if rules.firewall.resurvey() {
            self.rules_changed();
        }
    }

    /// Surveys the rules while there are sessions that they could concern. Returns the time of the
    /// next survey.
    pub(crate) fn survey_rules(&mut self, at: Instant) -> Option<Instant> {
        if self.table.is_empty() {
            return None;
        }
        self.resurvey_rules(at);
        self.rules.as_ref().map(|rules| rules.next_survey)
    }

    /// Brings the rules up to date for an offer: they are never older than the offer, or than the
    /// last survey.
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
    pub(crate) fn judge(&mut self, local: LocalNumber) {
        let Some(session) = self.table.get_mut(&local) else { return };
        if let Phase::Working(working) = &mut session.phase {
            return working.asked.review = true;
        }
        let (keys, planned) = (session.keys(), session.plan().map(|plan| plan.next_hop.clone()));
        let is_filtered = keys.iter().any(|key| {
            let next_hop = planned.clone().or_else(|| next_hop_of(&mut self.metastate, key));
            self.is_filtered(key, next_hop.as_ref())
        });
        if is_filtered {
            self.send_home(local, ReasonT::Firewall);
        }
    }

    /// Sends a session home for `reason`. An offered session is declined, and one on its way out
    /// ends.
    pub(crate) fn send_home(&mut self, local: LocalNumber, reason: ReasonT) {
        let Some(session) = self.table.get_mut(&local) else { return };
        match &mut session.phase {
            Phase::Working(working) => return working.asked.home = Some(reason),
            Phase::Delegated(delegated) => delegated.call_home(reason),
            Phase::UdpDelegated(delegated) => delegated.call_home(reason),
            Phase::Queued(_) | Phase::Waiting(_) | Phase::UdpWaiting(_) => {
                if let Some(stream) = session.stream() {
                    stream.ledger().publish_reason(reason as u32);
                }
                return self.end(local);
            }
            Phase::Offered { .. } | Phase::UdpOffered(_) => {
                self.table.remove(&local);
                return self.sessions.left(local, reason, Traffic::default());
            }
        }
        self.attend(local);
    }
}
