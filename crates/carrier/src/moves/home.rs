//! The requests for a session's return: from the server, from its library, or at the end of the
//! server.
//!
//! Not here: the return itself (`end`). Read the head of `carrier` and `docs/understand/moves.md`
//! first.

use crate::carrier::Carrier;
use crate::replay::Raw;
use crate::session::{FinalState, Phase};
use rustix::fd::OwnedFd;
use sojourn_pump::{in_transit, now};
use sojourn_session::{DelegationToken, LocalNumber, ReasonT, RecallT};
use sojourn_stream::Traffic;

impl Carrier {
    /// Handles a recall: the server wants a session home, or its program has left it or has died.
    pub(super) fn recalled(&mut self, recall: &RecallT) {
        let is_over = matches!(recall.reason, ReasonT::PeerLeft | ReasonT::PeerDied);
        let local = LocalNumber(recall.local);
        match self.table.get(&local).map(|session| &session.phase) {
            // Only the library knows the state of the session.
            Some(Phase::Delegated(delegated)) if !is_over => {
                delegated.call_home(recall.reason);
                self.attend(local);
            }
            // The same holds here, but a library that the server knows hears of the recall itself.
            Some(Phase::UdpDelegated(delegated)) if !is_over => {
                if !delegated.is_known {
                    delegated.call_home(recall.reason);
                    self.attend(local);
                }
            }
            Some(Phase::Working(_)) if !is_over => self.send_home(local, recall.reason),
            _ => self.end(local),
        }
    }

    /// Sends all sessions home, because the server ends and leaves none behind if it can.
    pub(super) fn all_home(&mut self) {
        self.is_leaving = true;
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            match self.table.get(&local).map(|session| &session.phase) {
                Some(Phase::Delegated(delegated)) => delegated.call_home(ReasonT::ServerGone),
                Some(Phase::UdpDelegated(delegated)) => delegated.call_home(ReasonT::ServerGone),
                Some(Phase::UdpWaiting(_)) => self.end(local),
                Some(Phase::Offered { .. }) => {
                    self.table.remove(&local);
                    self.sessions.left(local, ReasonT::NoPeer, Traffic::default());
                }
                Some(Phase::Working(_)) => self.send_home(local, ReasonT::ServerGone),
                Some(Phase::Queued(_) | Phase::Waiting(_) | Phase::UdpOffered(_)) | None => {}
            }
            self.attend(local);
        }
    }

    /// Takes back a session that its library gives back.
    pub(crate) fn given_back(&mut self, token: DelegationToken, has_ended: bool, sealed: &OwnedFd) {
        let Some(local) = self.tokens.get(&token).copied() else { return };
        let Some(session) = self.table.get(&local) else { return };
        if let Phase::UdpDelegated(delegated) = &session.phase {
            return self.datagrams_back(&session.key, delegated, sealed);
        }
        let known = match sojourn_pump::sealed::open(sealed) {
            Ok(record) => Some(FinalState { record, has_ended }),
            Err(error) => {
                let key = session.key;
                self.sessions.warn(format_args!("{key:?}: what its program knows: {error}"));
                None
            }
        };
        self.end_with(local, known);
    }

    /// Gives the kernel the segments that came for a session while it was on its way home.
    pub(super) fn say_in_transit(&mut self, token: DelegationToken, file: &OwnedFd) {
        let Some(flow) = self.returned.take(token, now()) else { return };
        let Ok(kernel) = Raw::open(flow.source) else { return };
        // The peer repeats a segment that is lost.
        in_transit::each_in(file, &flow, |packet| {
            let _ = kernel.say(packet);
        });
    }
}
