//! What a UDP socket's session is to have: its addresses, its interface, what the filter is to turn
//! away from the kernel.
//!
//! Not here: finding it out from a socket (`datagrams`).

use crate::label::OfDatagrams;
use crate::metastate::NextHop;
use sojourn_filter::Key;
use sojourn_proto::record::SessionRecord;
use sojourn_wire::Protocol;
use std::net::{IpAddr, SocketAddr};

/// What a session is to have.
#[derive(Clone, Debug)]
pub(crate) struct UdpPlan {
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    /// The interface; of its link addresses and packet size nothing is used.
    pub(crate) next_hop: NextHop,
    /// What the filter is to turn away from the kernel.
    pub(crate) keys: Vec<Key>,
    /// Where the socket stands; nobody has sent to it by this way yet.
    pub(crate) record: SessionRecord,
    /// The socket's, for ever.
    pub(crate) cookie: u64,
    /// An unconnected socket of both families.
    pub(crate) is_both: bool,
}

impl UdpPlan {
    /// That of a session of an earlier server; `ruled`: what the filter has for its program.
    pub(crate) fn adopted(
        record: SessionRecord,
        next_hop: NextHop,
        of_it: &OfDatagrams,
        ruled: &[Key],
    ) -> Self {
        let (local, remote) = (record.local, record.remote);
        let OfDatagrams { cookie, is_both, .. } = *of_it;
        let is_its = |key: &&Key| {
            key.protocol() == Protocol::Udp
                && key.local().port() == local.port()
                && key.remote() == remote
                && is_its(local.ip(), is_both, key.local().ip())
        };
        let keys = ruled.iter().filter(is_its).copied().collect();
        Self { local, remote, next_hop, keys, record, cookie, is_both }
    }
}

/// Whether a socket that is bound there has what comes for this address of the host's.
pub(crate) fn is_its(bound: IpAddr, is_both: bool, ip: IpAddr) -> bool {
    match bound.is_unspecified() {
        true => ip.is_ipv4() == bound.is_ipv4() || is_both,
        false => ip == bound,
    }
}
