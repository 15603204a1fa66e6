//! UDP sockets: which ones their programs may carry.
//!
//! Only where the server has a carrier. A socket has no peer in the sense of streams: whoever it talks with, the carrier
//! takes the other side. What would have the kernel treat its plain datagrams in a way that the engine does not is refused. Options
//! that say something of errors, fragments or multicast do not matter: those stay the kernel's. udp(7), ip(7), ipv6(7).

use super::Seen;
use super::diag::Diag;
use super::socket::{canonical, has_any_of_kernels_own};
use crate::holders::Object;
use crate::raw;
use crate::registry::{Identity, Key};
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketAddrAny, sockopt};
use sojourn_session::{KindT, ReasonT};
use std::net::SocketAddr;

/// Options at the socket level that must be 0: a socket that shares its port must have that decided by the kernel, and marks, times and
/// routes are the kernel's. From `asm-generic/socket.h`.
const OF_SOCKET: [i32; 7] = [
    2,  // SO_REUSEADDR
    15, // SO_REUSEPORT
    5,  // SO_DONTROUTE
    36, // SO_MARK
    46, // SO_BUSY_POLL: whoever sets it wants the kernel to look at the device
    61, // SO_TXTIME
    60, // SO_ZEROCOPY
];
/// `SO_BINDTODEVICE`.
const SO_BINDTODEVICE: i32 = 25;
/// The same of `IPPROTO_UDP`, `linux/udp.h`.
const OF_UDP: [i32; 4] = [
    1,   // UDP_CORK
    100, // UDP_ENCAP
    101, // UDP_NO_CHECK6_TX
    102, // UDP_NO_CHECK6_RX
];
/// The same of `IPPROTO_IP`, `linux/in.h`: what is to be told with each datagram, and what changes headers and routes.
const OF_IP: [i32; 11] = [
    6,  // IP_RECVOPTS
    7,  // IP_RETOPTS
    8,  // IP_PKTINFO
    12, // IP_RECVTTL
    13, // IP_RECVTOS
    18, // IP_PASSSEC
    19, // IP_TRANSPARENT
    20, // IP_ORIGDSTADDR
    23, // IP_CHECKSUM
    25, // IP_RECVFRAGSIZE
    50, // IP_UNICAST_IF
];
/// The same, where any value that is not empty counts.
const IP_OPTIONS: i32 = 4;
/// `IP_MINTTL`, `IPV6_MINHOPCOUNT`.
const IP_MINTTL: i32 = 21;
const IPV6_MINHOPCOUNT: i32 = 73;
/// The same of `IPPROTO_IPV6`, `linux/in6.h`, with those of RFC 2292.
const OF_IPV6: [i32; 18] = [
    2,  // IPV6_2292PKTINFO
    3,  // IPV6_2292HOPOPTS
    4,  // IPV6_2292DSTOPTS
    5,  // IPV6_2292RTHDR
    8,  // IPV6_2292HOPLIMIT
    11, // IPV6_FLOWINFO
    33, // IPV6_FLOWINFO_SEND
    49, // IPV6_RECVPKTINFO
    51, // IPV6_RECVHOPLIMIT
    53, // IPV6_RECVHOPOPTS
    56, // IPV6_RECVRTHDR
    58, // IPV6_RECVDSTOPTS
    60, // IPV6_RECVPATHMTU
    66, // IPV6_RECVTCLASS
    74, // IPV6_ORIGDSTADDR
    75, // IPV6_TRANSPARENT
    76, // IPV6_UNICAST_IF
    77, // IPV6_RECVFRAGSIZE
];
/// Options of headers that are added to what is sent: any that is not empty counts.
const HEADERS_OF_IPV6: [i32; 4] = [
    54, // IPV6_HOPOPTS
    55, // IPV6_RTHDRDSTOPTS
    57, // IPV6_RTHDR
    59, // IPV6_DSTOPTS
];

pub(super) fn look(end: BorrowedFd<'_>, inode: u64, diag: &mut Diag) -> Result<Seen, ReasonT> {
    let is_udp = sockopt::socket_protocol(end) == Ok(Some(rustix::net::ipproto::UDP));
    let is_v6 = match sockopt::socket_domain(end) {
        Ok(AddressFamily::INET) if is_udp => false,
        Ok(AddressFamily::INET6) if is_udp => true,
        _ => return Err(ReasonT::Kind),
    };
    if !diag.may_carry(end) {
        return Err(ReasonT::Kind);
    }
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).map(canonical);
    let local = rustix::net::getsockname(end).map_err(|_| ReasonT::State)?;
    let local = address(local).map_err(|_| ReasonT::Kind)?;
    let remote = rustix::net::getpeername(end).ok().flatten().and_then(|any| address(any).ok());
    if local.port() == 0 {
        return Err(ReasonT::State);
    }
    let is_here = |ip: std::net::IpAddr| ip.is_loopback() || ip.is_multicast();
    if is_here(local.ip()) || remote.is_some_and(|remote| is_here(remote.ip())) {
        return Err(ReasonT::NoPeer);
    }
    if has_any_of_kernels_own(end) || has_any(end, is_v6) {
        return Err(ReasonT::Option);
    }
    let cookie = sockopt::socket_cookie(end).map_err(|_| ReasonT::Resources)?;
    Ok(Seen {
        identity: Identity {
            key: Key::Socket { own: cookie, peer: 0 },
            kind: KindT::Udp,
            from: local.to_string(),
            to: remote.map_or_else(|| "*".into(), |remote| remote.to_string()),
            ring_max: u32::MAX,
        },
        object: Object::Socket { inode },
    })
}

/// Whether an option is set that is the kernel's to honour.
fn has_any(end: BorrowedFd<'_>, is_v6: bool) -> bool {
    let is_set = |level, name| {
        let mut value = [0; 4];
        raw::getsockopt(end, level, name, &mut value).is_ok() && value != [0; 4]
    };
    let is_long = |level, name| {
        let mut value = [0; 64];
        raw::getsockopt(end, level, name, &mut value).is_ok_and(|len| len > 0)
    };
    let any = |level, names: &[i32]| names.iter().any(|name| is_set(level, *name));
    let of_v6 = || {
        any(libc::IPPROTO_IPV6, &OF_IPV6)
            || is_set(libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT)
            || HEADERS_OF_IPV6.iter().any(|name| is_long(libc::IPPROTO_IPV6, *name))
    };
    any(libc::SOL_SOCKET, &OF_SOCKET)
        || is_long(libc::SOL_SOCKET, SO_BINDTODEVICE)
        || any(libc::IPPROTO_UDP, &OF_UDP)
        || any(libc::IPPROTO_IP, &OF_IP)
        || is_set(libc::IPPROTO_IP, IP_MINTTL)
        || is_long(libc::IPPROTO_IP, IP_OPTIONS)
        || (is_v6 && of_v6())
}
