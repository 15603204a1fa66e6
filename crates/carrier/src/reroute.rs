//! Sessions that are away, when the kernel knows other next hops: their libraries are told, or give
//! them back.
//!
//! Not here: what the kernel says (`metastate`), what routers say (`routers`).

use crate::carrier::Carrier;
use crate::next_hop::{hop_of, is_cut, next_hop_of};
use crate::session::{Phase, Session};
use sojourn_session::HopT;

impl Carrier {
    /// The kernel knows other next hops.
    pub(crate) fn changed(&mut self) {
        if !self.metastate.has_changed() {
            return;
        }
        self.links.refresh();
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            self.look_at_next_hop(local);
        }
    }

    /// A session may have another next hop now.
    pub(crate) fn look_at_next_hop(&mut self, local: u64) {
        let Self { table, metastate, sessions, .. } = self;
        let Some(session) = table.get_mut(&local) else { return };
        let (key, delegated) = match session {
            Session { key, phase: Phase::Delegated(delegated) } => (key, delegated),
            Session { phase: Phase::UdpDelegated(udp), .. } => {
                // Its library asks for each next hop anew.
                return sessions.reroute(local, hop_of(&udp.next_hop, udp.kept.label.port));
            }
            _ => return,
        };
        if !delegated.is_known {
            return;
        }
        if is_cut(metastate, key) {
            delegated.is_cut = true;
            let hop = HopT { is_cut: true, ..hop_of(&delegated.next_hop, delegated.port) };
            return sessions.reroute(local, hop);
        }
        let mut next_hop = next_hop_of(metastate, key);
        if let Some(next_hop) = &mut next_hop {
            next_hop.mtu = delegated.path.narrowed(next_hop.mtu);
        }
        match next_hop {
            Some(next_hop) if next_hop == delegated.next_hop && !delegated.is_cut => {}
            Some(next_hop) if delegated.next_hop.interface == next_hop.interface => {
                delegated.is_cut = false;
                sessions.reroute(local, hop_of(&next_hop, delegated.port));
                delegated.next_hop = next_hop;
            }
            // By another interface, or not at all for the moment: the kernel knows what to do.
            _ => delegated.call_home(),
        }
    }
}
