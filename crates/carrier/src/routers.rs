//! What routers say of sessions that are away: their libraries are told how long packets may be.
//!
//! The kernel hears the same ICMP messages, but takes them for forged, since its sockets know
//! nothing of such sessions. What is said of datagrams the kernel judges: their sockets are there.
//! Only what their libraries know of next hops is then old, so they ask anew, and have the kernel
//! send until they are answered. Not here: hearing it (`paths`), what is believed (`too_big`). Read
//! `docs/understand/moves.md`, "The length of packets".

use crate::carrier::{Carrier, ROUTERS};
use crate::clock::later;
use crate::next_hop::hop_of;
use crate::paths;
use crate::session::{Delegated, Phase, Session};
use crate::too_big::{Notice, Verdict, judge};
use rustix::fd::AsFd;
use rustix::io::Errno;
use sojourn_proto::time::Instant;
use sojourn_pump::{now, position};

/// How often it is looked whether what was learnt is too old (microseconds).
const LOOK_EVERY_US: u64 = 60_000_000;

impl Carrier {
    /// Listens if there is a session that it could be about.
    pub(crate) fn listen(&mut self) {
        let is_wanted = !self.flows.is_empty();
        if core::mem::replace(&mut self.paths.is_open, is_wanted) == is_wanted {
            return;
        }
        self.paths.sockets.clear();
        for is_v4 in [true, false].into_iter().filter(|_| is_wanted) {
            let opened = paths::open(is_v4).and_then(|socket| {
                self.watch(socket.as_fd(), ROUTERS)?;
                Ok(socket)
            });
            match opened {
                Ok(socket) => self.paths.sockets.push(socket),
                // A host without this version of IP.
                Err(Errno::AFNOSUPPORT) => {}
                Err(error) => self.sessions.warn(format_args!("what routers say: {error}")),
            }
        }
    }

    /// Routers have said something.
    pub(crate) fn hear_routers(&mut self) {
        self.paths.heard().iter().for_each(|notice| self.heed(notice, now()));
    }

    fn heed(&mut self, notice: &Notice, at: Instant) {
        let Self { table, flows, sessions, .. } = self;
        let all = notice.unconnected();
        let found = flows.get(&notice.key).or_else(|| flows.get(&all?)).copied();
        let Some((local, session)) = found.and_then(|at| Some((at, table.get_mut(&at)?))) else {
            return;
        };
        let (key, delegated) = match session {
            Session { key, phase: Phase::Delegated(delegated) } => (key, delegated),
            Session { phase: Phase::UdpDelegated(_), .. } => return self.look_at_next_hop(local),
            _ => return,
        };
        let Some(under_way) = position::under_way(&delegated.stream.ledger().told()) else {
            return;
        };
        // One that was adopted and has not registered cannot be told; routers say it again.
        if !delegated.is_known || delegated.is_cut {
            return;
        }
        match judge(notice, key, under_way, delegated.next_hop.mtu) {
            Some(Verdict::Narrow(mtu)) => {
                delegated.path.learn(mtu, at);
                delegated.next_hop.mtu = mtu;
                sessions.reroute(local, hop_of(&delegated.next_hop, delegated.port));
            }
            Some(Verdict::Home) => delegated.call_home(),
            None => {}
        }
    }

    /// Asks again what is known of paths once it is old. When to look again.
    pub(crate) fn take_old_paths(&mut self, at: Instant) -> Option<Instant> {
        if self.flows.is_empty() {
            self.paths.look_at = None;
            return None;
        }
        let look_at = *self.paths.look_at.get_or_insert(later(at, LOOK_EVERY_US));
        if look_at > at {
            return Some(look_at);
        }
        self.paths.look_at = Some(later(at, LOOK_EVERY_US));
        for local in self.flows.values().copied().collect::<Vec<_>>() {
            if self.delegated_mut(local).is_some_and(|delegated| delegated.path.expires(at)) {
                self.look_at_next_hop(local);
            }
        }
        self.paths.look_at
    }

    fn delegated_mut(&mut self, local: u64) -> Option<&mut Delegated> {
        match &mut self.table.get_mut(&local)?.phase {
            Phase::Delegated(delegated) => Some(delegated),
            _ => None,
        }
    }
}
