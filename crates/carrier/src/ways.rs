//! The way of one session: what the kernel says of it, and how its library is told.
//!
//! Not here: asking the kernel (`metastate`), which sessions are told when (`reroute`).

use crate::metastate::{Mac, Metastate, Way, WayError};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_session::HopT;
use sojourn_wire::FlowKey;

/// What a session's own packets say of themselves.
fn flow_of(key: &Key) -> Option<FlowKey> {
    Some(FlowKey { protocol: key.protocol(), source: key.local(), target: key.remote()? })
}

/// The way to a session's peer, if there is one now.
pub(crate) fn way_of(metastate: &mut Metastate, key: &Key) -> Option<Way> {
    metastate.way(&flow_of(key)?).ok()
}

/// Whether there is no route to a session's peer. The kernel would not take the session then: it
/// connects nothing that it has no route for.
pub(crate) fn is_cut(metastate: &mut Metastate, key: &Key) -> bool {
    let Some(flow) = flow_of(key) else { return false };
    let found = metastate.way(&flow);
    matches!(found, Err(WayError::System(_, Errno::NETUNREACH | Errno::HOSTUNREACH)))
}

/// What of a way is in frames. `port`: the link address of the program's port, if it has one; a
/// port is Ethernet whatever the link is, and nobody looks at the target then.
pub(crate) fn hop_of(way: &Way, port: Option<Mac>) -> HopT {
    let link = way.link.or(port.map(|own| (own, own)));
    let (own, next) = link.unwrap_or_default();
    HopT { is_cut: false, has_addresses: link.is_some(), own, next, mtu: way.mtu }
}
