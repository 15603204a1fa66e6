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

use super::addresses::canonical;
use super::diag::Diag;
use super::usual::{self, is_set};
use crate::holders::Object;
use crate::key::Key;
use crate::registry::Identity;
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketAddrAny, sockopt};
use sojourn_options::Kind;
use sojourn_session::{KindT, ReasonT};
use std::net::SocketAddr;

/// `SO_REUSEADDR`, `SO_REUSEPORT`.
const SHARES: [i32; 2] = [2, 15];

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
    if !usual::all(end, Kind::Datagram, is_v6) {
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
