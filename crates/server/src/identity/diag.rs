//! Questions to the kernel's `sock_diag` about the other end of a socket. See sock_diag(7).
//!
//! The kernel finds a TCP socket by its addresses at once, a Unix socket by its inode only by
//! walking through all of them (0.3 ms for 20 000). So when single questions have cost as much as a
//! question for all Unix sockets would, that question is asked, and the answers are kept. The peer
//! of a connected socket never changes, and cookies are never given out again, so kept answers
//! cannot become wrong.
//!
//! `sock_diag` answers for the network name space of the asking socket. An asker for another name
//! space is made by a thread that enters it, which the kernel allows to privileged servers. Not
//! here: the choice of the questions (`socket`, `datagram`).

use crate::raw;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};
use sojourn_session::{Inode, ReasonT};
use sojourn_wire::SocketCookie;
use sojourn_wire::netlink::{Attribute, HEADER_BYTES, RequestSeq, attributes, messages};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// `linux/netlink.h`, `linux/sock_diag.h`, `linux/unix_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const NO_COOKIE: [u8; 8] = [0xff; 8];
const UNIX_MSG: usize = 16;

/// `TCP_ESTABLISHED`, which Unix sockets use too.
const ESTABLISHED: u8 = 1;
/// `TCP_LISTEN`.
const LISTEN: u8 = 10;
/// The most answers that are kept between two questions for all sockets.
const KEPT_MAX: usize = 1 << 17;
/// The assumed cost of a question for all Unix sockets before it has been measured.
const DUMP_FIRST: Duration = Duration::from_millis(1);

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiagError {
    /// There is no such socket in this name space.
    Absent,
    /// The socket has no peer, or none that was accepted yet.
    NotConnected,
    /// The kernel gives no answer.
    System,
}

impl From<Errno> for DiagError {
    fn from(error: Errno) -> Self {
        if matches!(error, Errno::NOENT | Errno::STALE) { Self::Absent } else { Self::System }
    }
}

/// The other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnixPeer {
    pub(super) cookie: SocketCookie,
    pub(super) inode: Inode,
}

/// Asks in the name space of any socket.
#[derive(Debug)]
pub struct Diag {
    pub(super) own: Asker,
    /// The name space asked last, other than the server's own. It is let go of soon, because this
    /// keeps it alive.
    other: Option<Asker>,
    /// Connections with other hosts can be carried, in the server's own name space.
    carries: bool,
}

impl Diag {
    /// Makes the server's own asker. `carries`: the peer of a socket need not be on this host.
    ///
    /// # Errors
    /// The kernel's: without `sock_diag` no socket can be paired.
    pub fn new(carries: bool) -> Result<Self, Errno> {
        Ok(Self { own: Asker::new()?, other: None, carries })
    }

    /// Returns the asker for the name space of this socket.
    pub(super) fn of(&mut self, socket: BorrowedFd<'_>) -> Result<&mut Asker, ReasonT> {
        let space = raw::netns_cookie(socket).map_err(|_| ReasonT::Namespace)?;
        if space == self.own.space {
            return Ok(&mut self.own);
        }
        if self.other.as_ref().is_none_or(|other| other.space != space) {
            self.other = None;
            let asker = enter(socket).map_err(|_| ReasonT::Namespace)?;
            self.other = Some(asker).filter(|asker| asker.space == space);
        }
        self.other.as_mut().ok_or(ReasonT::Namespace)
    }

    /// Returns true if this socket's peer may be on another host.
    pub(super) fn may_carry(&self, socket: BorrowedFd<'_>) -> bool {
        self.carries && raw::netns_cookie(socket) == Ok(self.own.space)
    }

    /// Returns true if another name space is held.
    #[must_use]
    pub fn holds_other(&self) -> bool {
        self.other.is_some()
    }

    /// Lets go of the other name space.
    pub fn let_go(&mut self) {
        self.other = None;
    }
}

/// Makes an asker in the name space of `socket`, by a thread that goes there and ends.
fn enter(socket: BorrowedFd<'_>) -> Result<Asker, Errno> {
    let space = raw::netns_of(socket)?;
    let thread = std::thread::Builder::new().name("sojourn-netns".into());
    let made = thread.spawn(move || {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        use std::os::fd::AsFd;
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        Asker::new()
    });
    made.map_err(|_| Errno::AGAIN)?.join().unwrap_or(Err(Errno::IO))
}

/// A socket of `sock_diag`, and the answers that it has had.
#[derive(Debug)]
pub(super) struct Asker {
    socket: OwnedFd,
    /// Cookie of its name space.
    pub(super) space: u64,
    sequence: RequestSeq,
    /// Peers of Unix sockets by the sockets' cookies: those of the last question for all, and some
    /// since.
    peers: HashMap<SocketCookie, UnixPeer>,
    /// The time spent on single questions since then, and the time that a question for all takes.
    spent: Duration,
    dump_costs: Duration,
    buffer: Vec<u8>,
}

/// The kernel's answer for a Unix socket.
#[derive(Clone, Copy, Debug)]
struct UnixSocket {
    state: u8,
    inode: Inode,
    cookie: SocketCookie,
    peer: Inode,
}

impl Asker {
    fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(netlink::SOCK_DIAG),
        )?;
        let _ = sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
        let space = raw::netns_cookie(&socket)?;
        Ok(Self {
            socket,
            space,
            sequence: RequestSeq::default(),
            peers: HashMap::new(),
            spent: Duration::ZERO,
            dump_costs: DUMP_FIRST,
            buffer: vec![0; 64 << 10],
        })
    }

    /// Returns the cookie of the established connection from `local` to `remote`, seen from that
    /// end.
    pub(super) fn tcp_cookie(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<SocketCookie, DiagError> {
        let mut answer = Err(DiagError::Absent);
        self.tcp([local, remote], 0, |message| {
            // inet_diag_msg: state at 1, the cookie after the addresses.
            let state = message.get(1).copied();
            let cookie = message.get(44..52).and_then(|bytes| bytes.try_into().ok());
            answer = match (state, cookie) {
                (Some(ESTABLISHED), Some(cookie)) => Ok(SocketCookie(u64::from_ne_bytes(cookie))),
                // The kernel also finds a listener that would take such a connection.
                (Some(LISTEN), _) => Err(DiagError::Absent),
                (Some(_), _) => Err(DiagError::NotConnected),
                _ => Err(DiagError::System),
            };
        })?;
        answer
    }

    /// Asks for a connection, with some parts (bits of `INET_DIAG_*`); `each` gets the answer.
    pub(super) fn tcp(
        &mut self,
        [local, remote]: [SocketAddr; 2],
        wanted: u8,
        each: impl FnMut(&[u8]),
    ) -> Result<(), DiagError> {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut body = inet_request(family, libc::IPPROTO_TCP, local, remote);
        body[2] = wanted;
        self.ask(&body, 0, each)
    }

    /// Returns true if another UDP socket than that of this cookie is connected from `local` to
    /// `remote`.
    pub(super) fn udp_is_shared(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        cookie: SocketCookie,
    ) -> Result<bool, DiagError> {
        let mut is_shared = false;
        for family in [libc::AF_INET, libc::AF_INET6] {
            // In a question for all sockets only the ports count.
            let body = inet_request(family, libc::IPPROTO_UDP, local, remote);
            self.ask(&body, NLM_F_DUMP, |message| {
                let found = inet_socket(message);
                is_shared |= found
                    .is_some_and(|other| other.cookie != cookie && other.ends == [local, remote]);
            })?;
        }
        Ok(is_shared)
    }

    /// Returns the peer of the connected Unix socket with this inode and cookie.
    pub(super) fn unix_peer(
        &mut self,
        inode: Inode,
        cookie: SocketCookie,
    ) -> Result<UnixPeer, DiagError> {
        if let Some(peer) = self.peers.get(&cookie) {
            return Ok(*peer);
        }
        if self.spent >= self.dump_costs {
            self.learn_all()?;
            return self.peers.get(&cookie).copied().ok_or(DiagError::NotConnected);
        }
        let begun = Instant::now();
        let found = self.unix_peer_alone(inode, cookie);
        self.spent += begun.elapsed();
        if let Ok(peer) = found {
            // The other end will be offered next, and then need not be asked for.
            if self.peers.len() >= KEPT_MAX {
                self.peers.clear();
            }
            self.peers.insert(peer.cookie, UnixPeer { cookie, inode });
        }
        found
    }

    fn unix_peer_alone(
        &mut self,
        inode: Inode,
        cookie: SocketCookie,
    ) -> Result<UnixPeer, DiagError> {
        let own = self.unix_socket(inode, cookie.0.to_ne_bytes())?;
        if own.state != ESTABLISHED || own.peer == Inode::default() {
            return Err(DiagError::NotConnected);
        }
        let peer = self.unix_socket(own.peer, NO_COOKIE)?;
        if peer.peer != inode {
            return Err(DiagError::NotConnected);
        }
        Ok(UnixPeer { cookie: peer.cookie, inode: peer.inode })
    }

    fn unix_socket(&mut self, inode: Inode, cookie: [u8; 8]) -> Result<UnixSocket, DiagError> {
        let mut found = None;
        self.ask(&unix_request(inode, cookie), 0, |message| found = unix_answer(message))?;
        found.filter(|found| found.inode == inode).ok_or(DiagError::System)
    }

    /// Asks for all Unix sockets and keeps the peer of each.
    fn learn_all(&mut self) -> Result<(), DiagError> {
        let begun = Instant::now();
        let mut all: HashMap<Inode, UnixSocket> = HashMap::new();
        self.ask(&unix_request(Inode::default(), NO_COOKIE), NLM_F_DUMP, |message| {
            if let Some(socket) = unix_answer(message).filter(|s| s.state == ESTABLISHED) {
                all.insert(socket.inode, socket);
            }
        })?;
        self.peers.clear();
        for socket in all.values() {
            // Inode 0 belongs to sockets that are not accepted yet, and there may be several of
            // them.
            let peer = all.get(&socket.peer).filter(|peer| peer.inode != Inode::default());
            if let Some(peer) = peer.filter(|peer| peer.peer == socket.inode) {
                let peer = UnixPeer { cookie: peer.cookie, inode: peer.inode };
                self.peers.insert(socket.cookie, peer);
            }
        }
        self.spent = Duration::ZERO;
        self.dump_costs = begun.elapsed().max(DUMP_FIRST);
        Ok(())
    }

    /// Sends a request and calls `each` with each message of the answer.
    fn ask(
        &mut self,
        body: &[u8],
        flags: u16,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), DiagError> {
        self.sequence = self.sequence.next();
        let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
        request.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend(self.sequence.0.to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        loop {
            // The kernel answers within `send`, so the answer is there; a long answer goes on with
            // each `recv`.
            let (len, _) =
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            for message in messages(&self.buffer[..len.min(self.buffer.len())]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return Err(error_of(message.body)),
                    _ => each(message.body),
                }
                if flags & NLM_F_DUMP == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// Encodes a `struct inet_diag_req_v2`: a question for a socket with these ends.
fn inet_request(family: i32, protocol: i32, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut body = vec![family as u8, protocol as u8, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(remote.port().to_be_bytes());
    for address in [local, remote] {
        body.extend(match address.ip() {
            IpAddr::V4(ip) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&ip.octets());
                bytes
            }
            IpAddr::V6(ip) => ip.octets(),
        });
    }
    let interface = if let SocketAddr::V6(v6) = local { v6.scope_id() } else { 0 };
    body.extend(interface.to_ne_bytes());
    body.extend(NO_COOKIE);
    body
}

/// A socket, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InetSocket {
    cookie: SocketCookie,
    /// Both addresses, its own first; mapped IPv4 addresses are IPv4.
    ends: [SocketAddr; 2],
}

/// Decodes a `struct inet_diag_msg`.
fn inet_socket(message: &[u8]) -> Option<InetSocket> {
    let is_v4 = i32::from(*message.first()?) == libc::AF_INET;
    let end = |port_at: usize, at: usize| {
        let port = u16::from_be_bytes(message.get(port_at..port_at + 2)?.try_into().ok()?);
        let bytes: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        let ip = match (is_v4, bytes) {
            (true, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
            (false, bytes) => IpAddr::from(bytes).to_canonical(),
        };
        Some(SocketAddr::new(ip, port))
    };
    let cookie = SocketCookie(u64::from_ne_bytes(message.get(44..52)?.try_into().ok()?));
    Some(InetSocket { cookie, ends: [end(4, 8)?, end(6, 24)?] })
}

fn error_of(body: &[u8]) -> DiagError {
    match word(body, 0) {
        Some(code @ 0xffff_f001..) => Errno::from_raw_os_error((code as i32).wrapping_neg()).into(),
        _ => DiagError::System,
    }
}

fn unix_request(inode: Inode, cookie: [u8; 8]) -> Vec<u8> {
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    // The kernel numbers sockets with 32 bits (`get_next_ino`).
    body.extend((inode.0 as u32).to_ne_bytes());
    body.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    body.extend(cookie);
    body
}

fn unix_answer(message: &[u8]) -> Option<UnixSocket> {
    let cookie = SocketCookie(u64::from_ne_bytes(message.get(8..16)?.try_into().ok()?));
    let inode_at = |bytes, at| Some(Inode(word(bytes, at)?.into()));
    let (state, inode) = (*message.get(2)?, inode_at(message, 4)?);
    let mut socket = UnixSocket { state, inode, cookie, peer: Inode::default() };
    for Attribute { kind, value } in attributes(&message[UNIX_MSG..]) {
        if kind == UNIX_DIAG_PEER {
            socket.peer = inode_at(value, 0)?;
        }
    }
    Some(socket)
}

/// Decodes bytes as an answer of `sock_diag`, for fuzzing: there must be no panic, and an end.
#[cfg(any(debug_assertions, fuzzing))]
pub fn fuzz_answers(bytes: &[u8]) {
    for message in messages(bytes) {
        let _ = (message.kind, message.sequence, error_of(message.body));
        let _ = (inet_socket(message.body), unix_answer(message.body));
        let _ = super::keys::tells_of_keys(message.body);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
