//! Options of sockets that change their packets' headers or ways, or bound what they take, below
//! TCP and UDP: the kernel's to honour.
//!
//! Looked at on each socket itself, since one that was accepted has them from its listener. ip(7),
//! ipv6(7). Not here: options of the transport (`afar`, `datagram`).

use crate::raw;
use rustix::fd::BorrowedFd;

/// Options of `IPPROTO_IP` that must be 0, `linux/in.h`: what is to be told with each packet and is
/// not here, and what changes headers and routes.
const OF_IP: [i32; 8] = [
    6,  // IP_RECVOPTS
    7,  // IP_RETOPTS
    18, // IP_PASSSEC
    19, // IP_TRANSPARENT
    20, // IP_ORIGDSTADDR
    23, // IP_CHECKSUM
    25, // IP_RECVFRAGSIZE
    50, // IP_UNICAST_IF
];
/// Any value that is not empty counts.
const IP_OPTIONS: i32 = 4;
/// `IP_MINTTL`, `IPV6_MINHOPCOUNT`.
const IP_MINTTL: i32 = 21;
const IPV6_MINHOPCOUNT: i32 = 73;
/// As above, of `IPPROTO_IPV6`, `linux/in6.h`, with those of RFC 2292.
const OF_IPV6: [i32; 15] = [
    2,  // IPV6_2292PKTINFO
    3,  // IPV6_2292HOPOPTS
    4,  // IPV6_2292DSTOPTS
    5,  // IPV6_2292RTHDR
    8,  // IPV6_2292HOPLIMIT
    11, // IPV6_FLOWINFO
    33, // IPV6_FLOWINFO_SEND
    53, // IPV6_RECVHOPOPTS
    56, // IPV6_RECVRTHDR
    58, // IPV6_RECVDSTOPTS
    60, // IPV6_RECVPATHMTU
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

/// Whether an option is not 0.
pub(super) fn is_set(end: BorrowedFd<'_>, level: i32, name: i32) -> bool {
    let mut value = [0; 4];
    raw::getsockopt(end, level, name, &mut value).is_ok() && value != [0; 4]
}

/// Whether an option's value is not empty.
pub(super) fn is_long(end: BorrowedFd<'_>, level: i32, name: i32) -> bool {
    let mut value = [0; 64];
    raw::getsockopt(end, level, name, &mut value).is_ok_and(|len| len > 0)
}

/// Whether one of these options is set.
pub(super) fn are_changed(end: BorrowedFd<'_>, is_v6: bool) -> bool {
    let any = |level, names: &[i32]| names.iter().any(|name| is_set(end, level, *name));
    let of_v6 = || {
        any(libc::IPPROTO_IPV6, &OF_IPV6)
            || is_set(end, libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT)
            || HEADERS_OF_IPV6.iter().any(|name| is_long(end, libc::IPPROTO_IPV6, *name))
    };
    any(libc::IPPROTO_IP, &OF_IP)
        || is_set(end, libc::IPPROTO_IP, IP_MINTTL)
        || is_long(end, libc::IPPROTO_IP, IP_OPTIONS)
        || (is_v6 && of_v6())
}
