//! Addresses of sockets in the one form in which they are compared and shown.
//!
//! Not here: the sockets (`socket`, `datagram`).

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Returns the address with an IPv4 address that is mapped into IPv6 (RFC 4291, section 2.5.5.2) as
/// IPv4, and without a flow label.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) => {
            SocketAddr::V6(SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()))
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}
