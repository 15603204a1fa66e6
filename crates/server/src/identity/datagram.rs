//! UDP sockets: the conditions under which their programs may carry them.
//!
//! They matter only if the server has a carrier. A UDP socket has no peer in the sense of streams:
//! the carrier takes the other side, whatever hosts the socket talks with. A socket is refused if
//! an option would make the kernel treat its plain datagrams in a way that the engine does not.
//! Options of errors, fragments or multicast do not matter: that traffic stays the kernel's. The
//! data that a program wants with each datagram (addresses, hops, times) comes from the library
//! (`sojourn_pump::ancillary`). Not here: the moves (`sojourn_carrier`). Read udp(7), ip(7),
//! ipv6(7).
//!
//! # Shared ports
//! `SO_REUSEADDR` and `SO_REUSEPORT` let several sockets have one port, and the kernel chooses
//! among them: a connected one first, then the one that came last, or one of a group by a hash of
//! the addresses and ports (`reuseport_select_sock`). A carried socket takes all datagrams of its
//! rule in the filter, so it must be the one that the kernel would choose.
//!
//! * With neither option no socket can join it.
//! * A connected socket is chosen before all that are not connected. So it must be the only one
//!   that is connected from that address to its peer. No program has a use for another that is
//!   connected so later.
//! * A socket that is not connected and has one of the options may be joined at any time, and
//!   nobody is told. It is refused, alone or not.

use super::accepted_values::{self, is_set};
use super::addresses::canonical;
use super::diag::Diag;
use crate::holders::Object;
use crate::key::Key;
use crate::registry::Identity;
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketAddrAny, sockopt};
use sojourn_options::Kind;
use sojourn_session::{Inode, KindT, ReasonT};
use sojourn_wire::SocketCookie;
use std::net::SocketAddr;

/// `SO_REUSEADDR`, `SO_REUSEPORT`.
const SHARES: [i32; 2] = [2, 15];

pub(super) fn identify(
    end: BorrowedFd<'_>,
    inode: Inode,
    diag: &mut Diag,
) -> Result<Identity, ReasonT> {
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
    if !accepted_values::all(end, Kind::Datagram, is_v6) || accepted_values::has_filter_program(end)
    {
        return Err(ReasonT::Option);
    }
    let cookie = sockopt::socket_cookie(end).map_err(|_| ReasonT::Resources)?;
    let cookie = SocketCookie(cookie);
    if is_shared(end, local, remote, cookie, diag)? {
        return Err(ReasonT::SharedPort);
    }
    let object = Object::Socket { inode };
    Ok(Identity { object, ..of_datagrams(cookie, local, remote) })
}

/// Returns the identity of a UDP socket.
#[must_use]
pub fn of_datagrams(
    cookie: SocketCookie,
    local: SocketAddr,
    remote: Option<SocketAddr>,
) -> Identity {
    Identity {
        key: Key::Socket { own: cookie, peer: SocketCookie::NONE },
        kind: KindT::Udp,
        from: local.to_string(),
        to: remote.map_or_else(|| "*".into(), |remote| remote.to_string()),
        holds: [0; 2],
        object: Object::Socket { inode: Inode::default() },
        pin: None,
    }
}

/// Returns true if the kernel may give the socket's datagrams to another socket: see the head of
/// this file.
fn is_shared(
    end: BorrowedFd<'_>,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    cookie: SocketCookie,
    diag: &mut Diag,
) -> Result<bool, ReasonT> {
    if !SHARES.iter().any(|name| is_set(end, libc::SOL_SOCKET, *name)) {
        return Ok(false);
    }
    let Some(remote) = remote else { return Ok(true) };
    diag.of(end)?.udp_is_shared(local, remote, cookie).map_err(|_| ReasonT::Resources)
}
