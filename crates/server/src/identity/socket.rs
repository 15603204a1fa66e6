//! Sockets: their kind, their options, and their peers.
//!
//! Not here: UDP sockets (`datagram`), the questions to the kernel (`diag`).

use super::accepted_values;
use super::addresses::canonical;
use super::diag::{Diag, DiagError};
use crate::holders::Object;
use crate::key::Key;
use crate::registry::Identity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType};
use sojourn_options::Kind;
use sojourn_pump::tcp_info;
use sojourn_session::{Inode, KindT, ReasonT};
use sojourn_shm::sockopt::option;
use sojourn_wire::SocketCookie;
use std::net::SocketAddr;

/// `TCP_ESTABLISHED` (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;

pub(super) fn identify(
    end: BorrowedFd<'_>,
    inode: Inode,
    diag: &mut Diag,
) -> Result<Identity, ReasonT> {
    if sockopt::socket_type(end) == Ok(SocketType::DGRAM) {
        return super::datagram::identify(end, inode, diag);
    }
    if sockopt::socket_type(end) != Ok(SocketType::STREAM) {
        return Err(ReasonT::Kind);
    }
    let kind = match sockopt::socket_domain(end) {
        Ok(AddressFamily::UNIX) => KindT::Unix,
        Ok(AddressFamily::INET | AddressFamily::INET6)
            if sockopt::socket_protocol(end) == Ok(Some(rustix::net::ipproto::TCP)) =>
        {
            KindT::Tcp
        }
        _ => return Err(ReasonT::Kind),
    };
    if sockopt::socket_acceptconn(end).unwrap_or(true) {
        return Err(ReasonT::State);
    }
    let remote = rustix::net::getpeername(end).map_err(|_| ReasonT::State)?;
    let local = rustix::net::getsockname(end).map_err(|_| ReasonT::State)?;
    if !accepted_values::all(end, Kind::OneHost, false) {
        return Err(ReasonT::Option);
    }
    let cookie = sockopt::socket_cookie(end).map_err(|_| ReasonT::Resources)?;
    let cookie = SocketCookie(cookie);
    match kind {
        KindT::Unix if accepted_values::has_filter_program(end) => Err(ReasonT::Option),
        KindT::Unix => unix(end, SocketFacts { local, remote, inode, cookie }, diag),
        _ => tcp(end, SocketFacts { local, remote, inode, cookie }, diag),
    }
}

/// What the kernel says of any connected socket.
struct SocketFacts {
    local: SocketAddrAny,
    remote: Option<SocketAddrAny>,
    inode: Inode,
    cookie: SocketCookie,
}

fn tcp(
    end: BorrowedFd<'_>,
    SocketFacts { local, remote, inode, cookie }: SocketFacts,
    diag: &mut Diag,
) -> Result<Identity, ReasonT> {
    if tcp_info::of(end).map(|info| info.state) != Ok(ESTABLISHED) {
        return Err(ReasonT::State);
    }
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).map(canonical);
    let local = address(local).map_err(|_| ReasonT::Kind)?;
    let remote = address(remote.ok_or(ReasonT::State)?).map_err(|_| ReasonT::Kind)?;
    let peer = match diag.of(end)?.tcp_cookie(remote, local) {
        Ok(_) if accepted_values::has_filter_program(end) => return Err(ReasonT::Option),
        Ok(peer) => peer,
        // The carrier finds out later if the peer is on another host, and how that is reached.
        Err(DiagError::Absent) if diag.may_carry(end) && !remote.ip().is_loopback() => {
            let signed = || super::signed::is_signed(end, [local, remote], diag);
            match super::remote::can_obey(end).then(signed) {
                Some(Ok(false)) => SocketCookie::NONE,
                None | Some(Ok(true)) => return Err(ReasonT::Option),
                // The connection has ended meanwhile.
                Some(Err(DiagError::System)) => return Err(ReasonT::Resources),
                Some(Err(_)) => return Err(ReasonT::State),
            }
        }
        Err(DiagError::Absent) => return Err(ReasonT::NoPeer),
        Err(DiagError::NotConnected) => return Err(ReasonT::State),
        Err(DiagError::System) => return Err(ReasonT::Resources),
    };
    Ok(Identity {
        key: Key::Socket { own: cookie, peer },
        kind: KindT::Tcp,
        from: local.to_string(),
        to: remote.to_string(),
        holds: tcp_holds(end),
        object: Object::Socket { inode },
        pin: None,
    })
}

/// `SO_BUF_LOCK` (`asm-generic/socket.h`): the buffers whose size the program has set.
const SO_BUF_LOCK: i32 = 72;
const SEND_IS_SET: i32 = 1;
const RECEIVE_IS_SET: i32 = 2;
/// The size to which a receive buffer grows by itself if both ends are on one host, as measured
/// (bytes).
const GROWS_TO: usize = 2 << 20;
/// The size to which a send buffer grows, if the system does not say (bytes).
const SEND_GROWS_TO: usize = 4 << 20;
/// The bytes by which a buffer may be exceeded: the kernel takes a segment as long as there is any
/// room.
const SEGMENT: usize = 64 << 10;

/// Returns the bytes that the kernel holds of a TCP connection: in the send buffer of the one end
/// and in the receive buffer of the other, which grow by themselves.
fn tcp_holds(end: BorrowedFd<'_>) -> [u32; 2] {
    let mut set = [0; 4];
    let set =
        option(end, libc::SOL_SOCKET, SO_BUF_LOCK, &mut set).map_or(0, |_| i32::from_ne_bytes(set));
    let send = sockopt::socket_send_buffer_size(end).unwrap_or(0);
    let receive = sockopt::socket_recv_buffer_size(end).unwrap_or(0);
    let grown = |size: usize, by_itself: usize, is_set: bool| {
        if is_set { size + SEGMENT } else { size.max(by_itself) }
    };
    let send = grown(send, send_grows_to(), set & SEND_IS_SET != 0);
    let receive = grown(receive, GROWS_TO, set & RECEIVE_IS_SET != 0);
    [send, receive].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Returns the last of the three numbers of `net.ipv4.tcp_wmem` (tcp(7)).
fn send_grows_to() -> usize {
    let wmem = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok();
    let most = wmem.and_then(|sizes| sizes.split_whitespace().nth(2)?.parse().ok());
    most.unwrap_or(SEND_GROWS_TO)
}

fn unix(
    end: BorrowedFd<'_>,
    SocketFacts { local, remote, inode, cookie }: SocketFacts,
    diag: &mut Diag,
) -> Result<Identity, ReasonT> {
    // One of the two sides has closed its half.
    let mut set = [PollFd::new(&end, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_whole = poll(&mut set, Some(&now)).is_ok()
        && !set[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR);
    if !is_whole {
        return Err(ReasonT::State);
    }
    let send = sockopt::socket_send_buffer_size(end).map_err(|_| ReasonT::Resources)?;
    // The kernel takes a message as long as there is any room, in pieces of half the buffer, but of
    // no more than 48 KiB.
    let holds = [u32::try_from(send + (send / 2).min(48 << 10)).unwrap_or(u32::MAX), 0];
    let peer = diag.of(end)?.unix_peer(inode, cookie).map_err(|error| match error {
        DiagError::Absent => ReasonT::Namespace,
        DiagError::NotConnected => ReasonT::State,
        DiagError::System => ReasonT::Resources,
    })?;
    Ok(Identity {
        key: Key::Socket { own: cookie, peer: peer.cookie },
        kind: KindT::Unix,
        from: unix_name(Some(local), inode),
        to: unix_name(remote, peer.inode),
        holds,
        object: Object::Socket { inode },
        pin: None,
    })
}

fn unix_name(address: Option<SocketAddrAny>, inode: Inode) -> String {
    let address = address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    let path = address.as_ref().and_then(|address| address.path());
    let name = address.as_ref().and_then(|address| address.abstract_name());
    // An address without a name looks like an empty abstract one.
    let name = name.filter(|name| !name.is_empty());
    match (path, name) {
        (Some(path), _) => path.to_string_lossy().into_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => format!("socket:[{inode}]"),
    }
}
