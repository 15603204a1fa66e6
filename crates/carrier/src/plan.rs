//! The plan for a UDP socket's session: its addresses, its interface, and the keys of its rules in
//! the filter.
//!
//! Not here: making the plan from a socket (`datagrams`).

use crate::fd_name::OfDatagrams;
use crate::metastate::NextHop;
use sojourn_filter::Key;
use sojourn_proto::record::SessionRecord;
use sojourn_wire::{Protocol, SocketCookie};
use std::net::{IpAddr, SocketAddr};

/// The plan for one session.
#[derive(Clone, Debug)]
pub(crate) struct UdpPlan {
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    /// The interface; its link addresses and packet size are not used.
    pub(crate) next_hop: NextHop,
    /// The keys of the datagrams that the filter is to turn away from the kernel.
    pub(crate) keys: Vec<Key>,
    /// The socket's state, with an empty queue.
    pub(crate) record: SessionRecord,
    /// The socket's cookie, which is never given out again (`SO_COOKIE`, socket(7)).
    pub(crate) cookie: SocketCookie,
    /// The socket is not connected, and takes datagrams of both families.
    pub(crate) is_both: bool,
}

impl UdpPlan {
    /// Makes the plan of a session of an earlier server; `ruled`: the keys that the filter has for
    /// its program.
    pub(crate) fn adopted(
        record: SessionRecord,
        next_hop: NextHop,
        of_it: &OfDatagrams,
        ruled: &[Key],
    ) -> Self {
        let (local, remote) = (record.local, record.remote);
        let OfDatagrams { cookie, is_both, .. } = *of_it;
        let receives_for = |key: &&Key| {
            key.protocol() == Protocol::Udp
                && key.local().port() == local.port()
                && key.remote() == remote
                && receives_for(local.ip(), is_both, key.local().ip())
        };
        let keys = ruled.iter().filter(receives_for).copied().collect();
        Self { local, remote, next_hop, keys, record, cookie, is_both }
    }
}

/// Returns true if a socket that is bound to `bound` gets datagrams for the host's address `ip`.
pub(crate) fn receives_for(bound: IpAddr, is_both: bool, ip: IpAddr) -> bool {
    match bound.is_unspecified() {
        true => ip.is_ipv4() == bound.is_ipv4() || is_both,
        false => ip == bound,
    }
}
