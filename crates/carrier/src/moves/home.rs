//! Who asks for a session's return: the server, its library, or the end of everything.
//!
//! Not here: the return itself (`end`). Read the head of `carrier` and `docs/understand/moves.md`
//! first.

use crate::carrier::Carrier;
use crate::replay::Raw;
use crate::session::{Known, Phase};
use rustix::fd::OwnedFd;
use sojourn_pump::{in_transit, now};
use sojourn_session::{ReasonT, RecallT};

impl Carrier {
    /// The server wants a session home, or its program has left it or died.
    pub(super) fn recalled(&mut self, recall: &RecallT) {
        let is_over = matches!(recall.reason, ReasonT::PeerLeft | ReasonT::PeerDied);
        match self.table.get(&recall.local).map(|session| &session.phase) {
            // Only the library knows where it stands.
            Some(Phase::Delegated(delegated)) if !is_over => {
                delegated.call_home();
                self.attend(recall.local);
            }
            // So does the library itself, if the server knows it.
            Some(Phase::UdpDelegated(delegated)) if !is_over => {
                if !delegated.is_known {
                    delegated.call_home();
                    self.attend(recall.local);
                }
            }
            _ => self.end(recall.local),
        }
    }

    /// The server ends, and leaves no session behind if it can.
    pub(super) fn all_home(&mut self) {
        self.is_leaving = true;
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            match self.table.get(&local).map(|session| &session.phase) {
                Some(Phase::Delegated(delegated)) => delegated.call_home(),
                Some(Phase::UdpDelegated(delegated)) => delegated.call_home(),
                Some(Phase::UdpWaiting(_)) => self.end(local),
                Some(Phase::Offered { .. }) => {
                    self.table.remove(&local);
                    self.sessions.left(local, ReasonT::NoPeer, 0, 0);
                }
                Some(Phase::Waiting(_) | Phase::UdpOffered(_)) | None => {}
            }
            self.attend(local);
        }
    }

    /// A library has given a session back.
    pub(crate) fn given_back(&mut self, token: u64, has_ended: bool, sealed: &OwnedFd) {
        let Some(local) = self.tokens.get(&token).copied() else { return };
        let Some(session) = self.table.get(&local) else { return };
        if let Phase::UdpDelegated(delegated) = &session.phase {
            return self.datagrams_back(&session.key, delegated, sealed);
        }
        let known = match sojourn_pump::sealed::open(sealed) {
            Ok(record) => Some(Known { record, has_ended }),
            Err(error) => {
                let key = session.key;
                self.sessions.warn(format_args!("{key:?}: what its program knows: {error}"));
                None
            }
        };
        self.end_with(local, known);
    }

    /// What came for a session while it was on its way home, and its library had.
    pub(super) fn say_in_transit(&mut self, token: u64, file: &OwnedFd) {
        let Some(flow) = self.returned.take(token, now()) else { return };
        let Ok(kernel) = Raw::open(flow.source) else { return };
        // What is lost the peer repeats.
        in_transit::each_in(file, &flow, |packet| {
            let _ = kernel.say(packet);
        });
    }
}
