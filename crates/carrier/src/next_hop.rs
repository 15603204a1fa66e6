//! The next hop of one session: what the kernel says of it, and how its library is told.
//!
//! Not here: asking the kernel (`metastate`), which sessions are told when (`reroute`).

use crate::metastate::{Mac, Metastate, NextHop, NextHopError};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_session::HopT;
use sojourn_wire::FlowKey;

/// What a session's own packets say of themselves.
fn flow_of(key: &Key) -> Option<FlowKey> {
    Some(FlowKey { protocol: key.protocol(), source: key.local(), target: key.remote()? })
}

/// The next hop towards a session's peer, if there is one now.
pub(crate) fn next_hop_of(metastate: &mut Metastate, key: &Key) -> Option<NextHop> {
    metastate.next_hop(&flow_of(key)?).ok()
}

/// Whether there is no route to a session's peer. The kernel would not take the session then: it
/// connects nothing that it has no route for.
pub(crate) fn is_cut(metastate: &mut Metastate, key: &Key) -> bool {
    let Some(flow) = flow_of(key) else { return false };
    let found = metastate.next_hop(&flow);
    matches!(found, Err(NextHopError::System(_, Errno::NETUNREACH | Errno::HOSTUNREACH)))
}

/// What of a next hop is in frames. `port`: the link address of the program's port, if it has one;
/// a port is Ethernet whatever the link is, and nobody looks at the target then.
pub(crate) fn hop_of(next_hop: &NextHop, port: Option<Mac>) -> HopT {
    let link = next_hop.link.or(port.map(|own| (own, own)));
    let (own, next) = link.unwrap_or_default();
    HopT { is_cut: false, has_addresses: link.is_some(), own, next, mtu: next_hop.mtu }
}
