//! UDP sockets: which ones their programs may carry.
//!
//! Only where the server has a carrier. A socket has no peer in the sense of streams: whoever it
//! talks with, the carrier takes the other side. What would have the kernel treat its plain
//! datagrams in a way that the engine does not is refused. Options that say something of errors,
//! fragments or multicast do not matter: those stay the kernel's; and what is to be told with each
//! datagram (addresses, hops, times) the library tells (`sojourn_pump::ancillary`). udp(7), ip(7),
//! ipv6(7).
//!
//! # Shared ports
//! `SO_REUSEADDR` and `SO_REUSEPORT` let several sockets have one port, and the kernel chooses
//! among them: by who is connected, then by who came last, or by turns. A carried socket takes what
//! its rule in the filter says, so it must be the one that the kernel would choose. Without either
//! option nobody can join it. Connected it is chosen before any that is not, so it must only be the
//! only one that is connected from there to its peer; another that comes to be so later is none
//! that a program has use for. Not connected and with one of the options set, it may be joined at
//! any time, of which nobody is told: it is refused, alone or not.

use super::diag::Diag;
use super::headers::{self, is_long, is_set};
use super::socket::{canonical, has_any_of_kernels_own};
use crate::holders::Object;
use crate::registry::{Identity, Key};
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketAddrAny, sockopt};
use sojourn_session::{KindT, ReasonT};
use std::net::SocketAddr;

/// Options at the socket level that are obeyed here and not on streams: `SO_TIMESTAMP` and
/// `SO_TIMESTAMPNS`, old and new.
const TIMES: [i32; 4] = [29, 35, 63, 64];
/// `SO_REUSEADDR`, `SO_REUSEPORT`.
const SHARES: [i32; 2] = [2, 15];
/// Options at the socket level that must be 0: marks, times of sending and routes are the kernel's.
/// From `asm-generic/socket.h`.
const OF_SOCKET: [i32; 7] = [
    5,  // SO_DONTROUTE
    36, // SO_MARK
    46, // SO_BUSY_POLL: whoever sets it wants the kernel to look at the device
    61, // SO_TXTIME
    60, // SO_ZEROCOPY
    75, // SO_RCVMARK
    82, // SO_RCVPRIORITY
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
pub(super) fn look(end: BorrowedFd<'_>, inode: u64, diag: &mut Diag) -> Result<Identity, ReasonT> {
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
    if has_any_of_kernels_own(end, &TIMES) || has_any(end, is_v6) {
        return Err(ReasonT::Option);
    }
    let cookie = sockopt::socket_cookie(end).map_err(|_| ReasonT::Resources)?;
    if is_shared(end, (local, remote), cookie, diag)? {
        return Err(ReasonT::SharedPort);
    }
    let object = Object::Socket { inode };
    Ok(Identity { object, ..of_datagrams(cookie, local, remote) })
}

/// What a UDP socket is known by.
#[must_use]
pub fn of_datagrams(cookie: u64, local: SocketAddr, remote: Option<SocketAddr>) -> Identity {
    Identity {
        key: Key::Socket { own: cookie, peer: 0 },
        kind: KindT::Udp,
        from: local.to_string(),
        to: remote.map_or_else(|| "*".into(), |remote| remote.to_string()),
        holds: [0; 2],
        object: Object::Socket { inode: 0 },
        pin: None,
    }
}

/// Whether the kernel may give its datagrams to another socket. See the head of this file.
fn is_shared(
    end: BorrowedFd<'_>,
    (local, remote): (SocketAddr, Option<SocketAddr>),
    cookie: u64,
    diag: &mut Diag,
) -> Result<bool, ReasonT> {
    if !SHARES.iter().any(|name| is_set(end, libc::SOL_SOCKET, *name)) {
        return Ok(false);
    }
    let Some(remote) = remote else { return Ok(true) };
    diag.of(end)?.udp_is_shared(local, remote, cookie).map_err(|_| ReasonT::Resources)
}

/// Whether an option is set that is the kernel's to honour.
fn has_any(end: BorrowedFd<'_>, is_v6: bool) -> bool {
    let any = |level, names: &[i32]| names.iter().any(|name| is_set(end, level, *name));
    any(libc::SOL_SOCKET, &OF_SOCKET)
        || is_long(end, libc::SOL_SOCKET, SO_BINDTODEVICE)
        || any(libc::IPPROTO_UDP, &OF_UDP)
        || headers::are_changed(end, is_v6)
}
