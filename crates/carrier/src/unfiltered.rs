//! Segments that reach the kernel past the packet filter while their session is away: by an
//! interface that has no filter, because a route has changed, or because the peer's packets come by
//! another way than this host's go.
//!
//! Not here: the programs (`sojourn_filter::Unfiltered`), the bytes that the kernel has received so
//! (`moves::numbers`), and the return (`moves::end`). Read `docs/understand/moves.md`, "Past the
//! filter", first.

use crate::carrier::{Carrier, UNFILTERED};
use crate::quiesce::wait_for_softirqs;
use crate::raw::{self, SIOCINQ};
use crate::session::{Delegated, Phase};
use rustix::fd::OwnedFd;
use sojourn_filter::{Failed, Key, Unfiltered};
use sojourn_pump::position;
use sojourn_session::ReasonT;
use sojourn_wire::SocketCookie;
use sojourn_wire::tcp::SeqNum;
use std::collections::HashMap;
use std::io;

/// Arrivals that are read at once. The next event brings more.
const ARRIVALS_MAX: usize = 1024;

impl Carrier {
    /// Loads the programs, once, before a session waits for them.
    pub(crate) fn load_unfiltered(&mut self) {
        if self.unfiltered.is_some() {
            return;
        }
        match Unfiltered::load() {
            Ok(unfiltered) => {
                if self.watch(unfiltered.arrivals_fd(), UNFILTERED).is_ok() {
                    self.unfiltered = Some(unfiltered);
                }
            }
            // The session shows this as its own failure.
            Err(error) => self.sessions.warn(format_args!("no session can be taken out: {error}")),
        }
    }

    /// Has segments of a session reported that reach its socket from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn report_unfiltered(&self, socket: &OwnedFd) -> Result<(), Failed> {
        let unloaded = || Failed {
            step: "reporting what comes past the filter",
            source: io::ErrorKind::NotFound.into(),
        };
        self.unfiltered.as_ref().ok_or_else(unloaded)?.report(socket)
    }

    /// Ends the reports.
    pub(crate) fn stop_reports(&self, socket: &OwnedFd) {
        if let Some(unfiltered) = &self.unfiltered {
            unfiltered.release(socket);
        }
    }

    /// Sends sessions home whose segments come past the filter.
    pub(crate) fn read_arrivals(&mut self) {
        let Some(unfiltered) = &mut self.unfiltered else { return };
        let arrivals = std::iter::from_fn(|| unfiltered.take_arrival()).take(ARRIVALS_MAX);
        let latest: HashMap<SocketCookie, SeqNum> =
            arrivals.map(|arrival| (arrival.cookie, arrival.sequence)).collect();
        let mut bypassed = Vec::new();
        for (local, session) in &self.table {
            if let Phase::Delegated(delegated) = &session.phase
                && let Some(sequence) = latest.get(&delegated.cookie)
                && is_its_own(delegated, *sequence)
            {
                delegated.call_home(ReasonT::Route);
                bypassed.push(*local);
            }
        }
        bypassed.into_iter().for_each(|local| self.attend(local));
    }

    /// Has the session's socket drop what reaches it, until [`hear`]. A byte that the
    /// kernel acknowledged after the late bytes were read would be lost: the peer does not send it
    /// again.
    pub(crate) fn turn_deaf(&mut self, key: &Key, delegated: &Delegated) {
        let is_bypassed = is_bypassed(delegated);
        let Some(unfiltered) = &mut self.unfiltered else { return };
        // An established socket takes the lock for the option, so what waited for the lock is in
        // the socket's queue now.
        let _ = unfiltered.drop_all(&delegated.socket);
        if is_bypassed {
            // Without that, a segment which meets no socket is answered with a reset.
            let _ = unfiltered.begin_absence(key);
            wait_for_softirqs();
        }
    }
}

/// Ends what [`Carrier::turn_deaf`] has begun.
pub(crate) fn hear(unfiltered: Option<&mut Unfiltered>, key: &Key, socket: &OwnedFd) {
    if let Some(unfiltered) = unfiltered {
        unfiltered.release(socket);
        unfiltered.end_absence(key);
    }
}

/// Returns true if segments of the session may come past the filter.
fn is_bypassed(delegated: &Delegated) -> bool {
    let is_rerouted = delegated.stream.ledger().reason() == ReasonT::Route as u32;
    is_rerouted || has_received(delegated)
}

/// Returns true if the kernel has taken bytes in order.
fn has_received(delegated: &Delegated) -> bool {
    raw::queue_len(&delegated.socket, SIOCINQ).is_ok_and(|len| len > 0)
}

/// Returns true if a segment is in the session's window. Anybody who knows the four numbers of a
/// connection can send a segment that is not.
fn is_its_own(delegated: &Delegated, sequence: SeqNum) -> bool {
    let next = position::received_up_to(&delegated.stream.ledger().published());
    let window = delegated.kept.fd_name.ring_bytes.into_iter().max().unwrap_or(0);
    has_received(delegated) || next.is_none_or(|next| sequence.is_in(SeqNum(next), window))
}
