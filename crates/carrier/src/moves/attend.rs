//! The choice of the next step for a session to which something may have happened.
//!
//! Not here: the steps (`out`, `end`). Read the head of `session`.

use crate::carrier::Carrier;
use crate::clock::later;
use crate::session::{Outcome, Phase, Session};
use sojourn_pump::now;
use sojourn_session::LocalNumber;

/// Pause between two looks at a session that was adopted on its way home (microseconds).
const HOME_EVERY_US: u64 = 500_000;

impl Carrier {
    /// Takes a session a step further, because something may have happened to it.
    pub(crate) fn attend(&mut self, local: LocalNumber) {
        let Some(Session { key, phase }) = self.table.remove(&local) else { return };
        let outcome = match phase {
            // This server ends, or the program's side has called the session home.
            Phase::Queued(queued) if self.is_leaving || queued.stream.is_frozen() => {
                Outcome::End(Phase::Queued(queued))
            }
            Phase::Waiting(waiting) => self.step_out(&key, waiting),
            Phase::Delegated(delegated) if delegated.stream.is_frozen() => {
                let ledger = delegated.stream.ledger();
                // A library that has not claimed the session by now never will. Or it has waited
                // for the carrier in vain, and has reported the session as reset.
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
                    self.await_return(&key, delegated)
                }
            }
            Phase::Offered { .. }
            | Phase::Queued(_)
            | Phase::Delegated(_)
            | Phase::UdpOffered(_) => Outcome::Stay(phase),
            Phase::Working(mut working) => {
                working.asked.attention = true;
                Outcome::Stay(Phase::Working(working))
            }
            Phase::UdpWaiting(waiting) => self.step_out_datagrams(local, &key, waiting),
            Phase::UdpDelegated(delegated) => self.attend_datagrams(delegated),
        };
        let phase = match outcome {
            Outcome::Stay(phase) => phase,
            Outcome::Look(phase, when) => {
                self.timers.set(local, when);
                phase
            }
            Outcome::Work(parked, work) => return self.work(local, key, parked, work),
            Outcome::End(phase) => return self.end_taken(local, Session { key, phase }, None),
        };
        self.table.insert(local, Session { key, phase });
    }
}
