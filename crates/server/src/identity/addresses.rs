//! Addresses of sockets in the one form in which they are compared and shown.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// IPv4 addresses mapped into IPv6 as IPv4; without flow labels.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) => {
            SocketAddr::V6(SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()))
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}
