//! Segments that reach the kernel past the packet filter while their session is away: by an
//! interface that has no filter, because a route has changed, or because the peer's packets come by
//! another way than this host's go.
//!
//! Not here: the programs (`sojourn_filter::Unfiltered`), the bytes that the kernel has received so
//! (`moves::numbers`), the sockets' filters (`work`), and the return (`moves::end`). Read
//! `docs/understand/moves.md`, "Past the filter", first.

use crate::carrier::{Carrier, UNFILTERED};
use crate::session::{Delegated, Phase};
use sojourn_filter::{Key, Unfiltered};
use sojourn_pump::position;
use sojourn_session::ReasonT;
use sojourn_wire::SocketCookie;
use sojourn_wire::tcp::SeqNum;
use std::collections::HashMap;

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

    /// Has segments of the session dropped that meet no connection, if some may come past the
    /// filter: they would be answered with resets while its socket is disconnected. Returns true if
    /// some may come.
    pub(crate) fn begin_absence(&mut self, key: &Key, delegated: &Delegated) -> bool {
        let is_bypassed = is_bypassed(delegated);
        if let Some(unfiltered) = self.unfiltered.as_mut().filter(|_| is_bypassed) {
            let _ = unfiltered.begin_absence(key);
        }
        is_bypassed
    }

    /// Ends that.
    pub(crate) fn end_absence(&mut self, key: &Key) {
        if let Some(unfiltered) = &mut self.unfiltered {
            unfiltered.end_absence(key);
        }
    }
}

/// Returns true if segments of the session may come past the filter.
fn is_bypassed(delegated: &Delegated) -> bool {
    let is_rerouted = delegated.stream.ledger().reason() == ReasonT::Route as u32;
    is_rerouted || delegated.socket.has_received()
}

/// Returns true if a segment is in the session's window, or the kernel has taken bytes in order.
/// Anybody who knows the four numbers of a connection can send a segment that is not.
fn is_its_own(delegated: &Delegated, sequence: SeqNum) -> bool {
    let next = position::received_up_to(&delegated.stream.ledger().published());
    let window = delegated.kept.fd_name.ring_bytes.into_iter().max().unwrap_or(0);
    delegated.socket.is_readable() || next.is_none_or(|next| sequence.is_in(SeqNum(next), window))
}
