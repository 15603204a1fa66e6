//! The next hop of one session: the kernel's answer, and its form for the library.
//!
//! Not here: asking the kernel (`metastate`), and the times at which libraries are told
//! (`reroute`).

use crate::metastate::{Mac, Metastate, NextHop, NextHopError};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_pump::LinkAddresses;
use sojourn_session::HopT;
use sojourn_wire::FlowKey;

/// Returns addresses and ports of a session's own packets.
fn flow_of(key: &Key) -> Option<FlowKey> {
    Some(FlowKey { protocol: key.protocol(), source: key.local(), target: key.remote()? })
}

/// Returns the next hop towards a session's peer, if there is one now.
pub(crate) fn next_hop_of(metastate: &mut Metastate, key: &Key) -> Option<NextHop> {
    metastate.next_hop(&flow_of(key)?).ok()
}

/// Returns true if there is no route to a session's peer, or one that refuses packets. The session
/// stays away then: the kernel does not connect a socket without a route.
pub(crate) fn is_cut(metastate: &mut Metastate, key: &Key) -> bool {
    let Some(flow) = flow_of(key) else { return false };
    let found = metastate.next_hop(&flow);
    // The last two are those of `prohibit` and `blackhole` (ip-route(8)).
    matches!(
        found,
        Err(NextHopError::System(
            "route",
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL
        ))
    )
}

/// Returns the part of a next hop that is in frames. `port`: the link address of the program's
/// port, if it has one. A port is Ethernet whatever the link is, and its target address is not
/// looked at.
pub(crate) fn hop_of(next_hop: &NextHop, port: Option<Mac>) -> HopT {
    let link = next_hop.link.or(port.map(|own| LinkAddresses { own, next: own }));
    let LinkAddresses { own, next } = link.unwrap_or_default();
    HopT { is_cut: false, has_addresses: link.is_some(), own, next, mtu: next_hop.mtu }
}
