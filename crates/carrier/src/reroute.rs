//! Sessions that are away when the kernel's next hops change: their libraries are told, or give
//! them back.
//!
//! Not here: the kernel's answers (`metastate`), and routers' messages (`routers`).

use crate::carrier::Carrier;
use crate::next_hop::{hop_of, is_cut, next_hop_of};
use crate::session::{Phase, Session};
use sojourn_session::{HopT, LocalNumber, ReasonT};

impl Carrier {
    /// Looks at all next hops again, if the kernel has reported a change.
    pub(crate) fn changed(&mut self) {
        if !self.metastate.has_changed() {
            return;
        }
        self.links.refresh();
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            self.look_at_next_hop(local);
        }
    }

    /// Looks at the next hop of a session again, and tells its library if it has changed.
    pub(crate) fn look_at_next_hop(&mut self, local: LocalNumber) {
        let Self { table, metastate, sessions, .. } = self;
        let Some(session) = table.get_mut(&local) else { return };
        let (key, delegated) = match session {
            Session { key, phase: Phase::Delegated(delegated) } => (key, delegated),
            Session { phase: Phase::UdpDelegated(udp), .. } => {
                // The library asks for each next hop anew.
                sessions.reroute(local, hop_of(&udp.next_hop, udp.kept.fd_name.port));
                return self.cut_datagrams(local);
            }
            Session { phase: Phase::Working(working), .. } => return working.asked.review = true,
            _ => return,
        };
        if !delegated.is_known {
            return;
        }
        if is_cut(metastate, key) {
            delegated.is_cut = true;
            let hop = HopT { is_cut: true, ..hop_of(&delegated.next_hop, delegated.port) };
            sessions.reroute(local, hop);
            return self.cut(local, true);
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
                self.cut(local, false);
            }
            // The way now leads by another interface, or is not known for the moment: the kernel
            // copes with that.
            _ => self.send_home(local, ReasonT::Route),
        }
    }
}
