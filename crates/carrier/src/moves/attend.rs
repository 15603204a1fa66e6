//! A session to which something may have happened: which step is its next one.
//!
//! Read the head of `session`.

use crate::carrier::Carrier;
use crate::clock::later;
use crate::session::{Outcome, Phase, Session};
use sojourn_pump::now;

/// How often it is looked at a session that was adopted on its way home (microseconds).
const HOME_EVERY_US: u64 = 500_000;

impl Carrier {
    /// Something may have happened to a session.
    pub(crate) fn attend(&mut self, local: u64) {
        let Some(Session { key, phase }) = self.table.remove(&local) else { return };
        let outcome = match phase {
            Phase::Offered { .. } | Phase::UdpOffered(_) => Outcome::Stay(phase),
            Phase::Waiting(waiting) => self.step_out(local, &key, waiting),
            Phase::Delegated(delegated) if delegated.stream.is_frozen() => {
                let ledger = delegated.stream.ledger();
                // Before the library has taken it up: it never will. Or it has waited for us in
                // vain.
                if ledger.revoke() || ledger.is_lost() {
                    Outcome::End(Phase::Delegated(delegated))
                } else if let Some(limit) = delegated.home_by {
                    let at = now();
                    let phase = Phase::Delegated(delegated);
                    match limit <= at {
                        true => Outcome::End(phase),
                        false => Outcome::Look(phase, Some(later(at, HOME_EVERY_US))),
                    }
                } else {
                    // The library gives it back.
                    Self::look_for_slipped(delegated)
                }
            }
            Phase::Delegated(delegated) => Self::look_for_slipped(delegated),
            Phase::UdpWaiting(waiting) => self.step_out_datagrams(local, &key, waiting),
            Phase::UdpDelegated(delegated) => self.attend_datagrams(delegated),
        };
        let phase = match outcome {
            Outcome::Stay(phase) => phase,
            Outcome::Look(phase, when) => {
                self.timers.set(local, when);
                phase
            }
            Outcome::End(phase) => return self.end_taken(local, Session { key, phase }, None),
        };
        self.table.insert(local, Session { key, phase });
    }
}
