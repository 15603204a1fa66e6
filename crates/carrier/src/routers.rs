//! Routers' messages about sessions that are away: their libraries are told how long packets may
//! be.
//!
//! The kernel hears the same ICMP messages, but takes them for forged, since its sockets know
//! nothing of such sessions. The kernel does judge messages about datagrams, because UDP sockets
//! stay in it. Then only the library's knowledge of next hops is outdated: the library asks anew,
//! and has the kernel send until it gets an answer. Not here: hearing (`paths`), judging
//! (`too_big`). Read `docs/understand/moves.md`, "The length of packets".

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
use sojourn_session::{LocalNumber, ReasonT};

/// Pause between two looks for outdated knowledge (microseconds).
const LOOK_EVERY_US: u64 = 60_000_000;

impl Carrier {
    /// Listens while there is a session that messages could concern.
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
                // The host does not have this version of IP.
                Err(Errno::AFNOSUPPORT) => {}
                Err(error) => self.sessions.warn(format_args!("what routers say: {error}")),
            }
        }
    }

    /// Heeds the messages of routers that have arrived.
    pub(crate) fn read_router_messages(&mut self) {
        self.paths.heard().iter().for_each(|notice| self.apply_notice(notice, now()));
    }

    fn apply_notice(&mut self, notice: &Notice, at: Instant) {
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
        let Some(under_way) = position::under_way(&delegated.stream.ledger().published()) else {
            return;
        };
        // An adopted session that has not registered cannot be told. Routers repeat their messages.
        if !delegated.is_known || delegated.is_cut {
            return;
        }
        match judge(notice, key, under_way, delegated.next_hop.mtu) {
            Some(Verdict::Narrow(mtu)) => {
                delegated.path.learn(mtu, at);
                delegated.next_hop.mtu = mtu;
                sessions.reroute(local, hop_of(&delegated.next_hop, delegated.port));
            }
            Some(Verdict::Home) => self.send_home(local, ReasonT::Route),
            None => {}
        }
    }

    /// Asks the kernel again about paths once the knowledge of them is old. Returns the time of the
    /// next look.
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

    fn delegated_mut(&mut self, local: LocalNumber) -> Option<&mut Delegated> {
        match &mut self.table.get_mut(&local)?.phase {
            Phase::Delegated(delegated) => Some(delegated),
            _ => None,
        }
    }
}
