//! The plan for a UDP socket's session: its addresses, its interface, and the keys of its rules in
//! the filter.
//!
//! Not here: making the plan from the socket's state (`datagrams`).

use crate::fd_name::OfDatagrams;
use crate::metastate::NextHop;
use rustix::fd::BorrowedFd;
use rustix::net::{SocketAddrAny, sockopt};
use sojourn_filter::Key;
use sojourn_proto::record::{IpOptions, Kind, SessionRecord, UdpOptions, UdpRecord};
use sojourn_pump::options;
use sojourn_wire::{Protocol, SocketCookie};
use std::net::{IpAddr, SocketAddr};

/// The state of a socket, for which the kernel may take its lock.
#[derive(Clone, Debug)]
pub(crate) struct UdpFacts {
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) cookie: SocketCookie,
    /// The socket is not connected, and takes datagrams of both families.
    pub(crate) is_both: bool,
    options: UdpOptions,
    ip: IpOptions,
}

impl UdpFacts {
    /// Returns the socket's record, with an empty queue. `interface`: the number of its own.
    pub(crate) fn record(&self, interface: u32) -> SessionRecord {
        let (local, remote) = (self.local, self.remote);
        let udp = UdpRecord { options: self.options, interface, receive_queue: Vec::new() };
        SessionRecord { local, remote, ip: self.ip, kind: Kind::Udp(udp) }
    }
}

/// Reads the state of a socket.
pub(crate) fn facts_of(socket: BorrowedFd<'_>) -> Option<UdpFacts> {
    let local = canonical(rustix::net::getsockname(socket).ok()?)?;
    let remote = rustix::net::getpeername(socket).ok().flatten().and_then(canonical);
    let takes_both = local.is_ipv6() && !sockopt::ipv6_v6only(socket).unwrap_or(true);
    Some(UdpFacts {
        local,
        remote,
        cookie: SocketCookie(sockopt::socket_cookie(socket).ok()?),
        is_both: remote.is_none() && takes_both,
        options: options::read_udp(socket),
        ip: options::read_ip(socket, local),
    })
}

/// Returns an address with IPv4-mapped IPv6 addresses as IPv4, and without flow label.
fn canonical(any: SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(any).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

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
