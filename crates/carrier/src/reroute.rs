//! Sessions that are away, when the kernel knows other ways: their libraries are told, or give them
//! back.
//!
//! Not here: what the kernel says (`metastate`), what routers say (`routers`).

use crate::carrier::Carrier;
use crate::session::{Phase, Session};
use crate::ways::{hop_of, is_cut, way_of};
use sojourn_session::HopT;

impl Carrier {
    /// The kernel knows other ways.
    pub(crate) fn changed(&mut self) {
        if !self.metastate.has_changed() {
            return;
        }
        self.links.refresh();
        for local in self.table.keys().copied().collect::<Vec<_>>() {
            self.look_at_way(local);
        }
    }

    /// A session may have another way now.
    pub(crate) fn look_at_way(&mut self, local: u64) {
        let Self { table, metastate, sessions, .. } = self;
        let Some(session) = table.get_mut(&local) else { return };
        let (key, delegated) = match session {
            Session { key, phase: Phase::Delegated(delegated) } => (key, delegated),
            Session { phase: Phase::UdpDelegated(udp), .. } => {
                // Its library asks for each way anew.
                return sessions.reroute(local, hop_of(&udp.way, udp.kept.label.port));
            }
            _ => return,
        };
        if !delegated.is_known {
            return;
        }
        if is_cut(metastate, key) {
            delegated.is_cut = true;
            let hop = HopT { is_cut: true, ..hop_of(&delegated.way, delegated.port) };
            return sessions.reroute(local, hop);
        }
        let mut way = way_of(metastate, key);
        if let Some(way) = &mut way {
            way.mtu = delegated.path.narrowed(way.mtu);
        }
        match way {
            Some(way) if way == delegated.way && !delegated.is_cut => {}
            Some(way) if delegated.way.interface == way.interface => {
                delegated.is_cut = false;
                sessions.reroute(local, hop_of(&way, delegated.port));
                delegated.way = way;
            }
            // By another interface, or not at all for the moment: the kernel knows what to do.
            _ => delegated.call_home(),
        }
    }
}
