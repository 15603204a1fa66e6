//! Listens to what routers say of sessions that are away, and tells their libraries how long
//! packets may be.
//!
//! The kernel hears the same ICMP messages, but takes them for forged, since its sockets know
//! nothing of such sessions. Two raw sockets have a copy of those that matter, after the firewall's
//! rules for what comes in; they are there as long as a session is away. raw(7), RFC 3542. It takes
//! `CAP_NET_RAW`.
//!
//! What is said of datagrams the kernel judges: their sockets are there. Only what their libraries
//! know of ways is then old, so they ask anew, and have the kernel send until they are answered.
//! Not here: what is believed (`too_big`). Read `docs/understand/moves.md`, "The length of
//! packets".

use crate::carrier::{Carrier, Entry, Lent, Phase, later};
use crate::moves::hop_of;
use crate::raw;
use crate::too_big::{Notice, Verdict, judge};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, ipproto};
use sojourn_proto::time::Instant;
use sojourn_pump::{now, position};
use std::net::{IpAddr, SocketAddr};

/// `linux/icmp.h`, `linux/icmpv6.h`: bits of what is *not* wanted.
const ICMP_FILTER: (i32, i32) = (libc::SOL_RAW, 1);
const ICMPV6_FILTER: (i32, i32) = (libc::IPPROTO_ICMPV6, 1);
const UNREACHABLE: u32 = 3;
const PACKET_TOO_BIG: u32 = 2;

/// Longer than what routers quote (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4). Of longer ones
/// the checksum is wrong.
const MESSAGE_MAX: usize = 2048;
/// So many are read at a time: whoever sends more of them is not to keep the carrier from its work.
const AT_ONCE: usize = 64;
/// How often it is looked whether what was learnt is too old (microseconds).
const LOOK_EVERY_US: u64 = 60_000_000;

/// The sockets, while there are sessions.
#[derive(Default)]
pub(crate) struct Paths {
    sockets: Vec<OwnedFd>,
    is_open: bool,
    look_at: Option<Instant>,
}

fn open(is_v4: bool) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, protocol) = match is_v4 {
        true => (AddressFamily::INET, ipproto::ICMP),
        false => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol))?;
    match is_v4 {
        true => raw::setsockopt(&socket, ICMP_FILTER, &(!(1_u32 << UNREACHABLE)).to_ne_bytes())?,
        false => {
            let mut unwanted = [0xff; 32];
            unwanted[..4].copy_from_slice(&(!(1_u32 << PACKET_TOO_BIG)).to_ne_bytes());
            raw::setsockopt(&socket, ICMPV6_FILTER, &unwanted)?;
        }
    }
    Ok(socket)
}

/// What one message says; `None` once there is none left. In it: `None` for what says nothing.
fn next(socket: &OwnedFd) -> Option<Option<Notice>> {
    let mut bytes = [0; MESSAGE_MAX];
    let (len, from) = loop {
        match rustix::net::recvfrom(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((len, _, from)) => break (len, from),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    };
    let message = bytes.get(..len).unwrap_or_default();
    Some(match from.and_then(address)? {
        IpAddr::V4(_) => Notice::read_v4(message),
        IpAddr::V6(router) => Notice::read_v6(message, router),
    })
}

fn address(any: SocketAddrAny) -> Option<IpAddr> {
    SocketAddr::try_from(any).ok().map(|address| address.ip())
}

impl Carrier {
    /// Listens if there is a session that it could be about.
    pub(crate) fn listen(&mut self) {
        let is_wanted = !self.flows.is_empty();
        if core::mem::replace(&mut self.paths.is_open, is_wanted) == is_wanted {
            return;
        }
        self.paths.sockets.clear();
        for is_v4 in [true, false].into_iter().filter(|_| is_wanted) {
            let opened = open(is_v4).and_then(|socket| {
                self.watch(socket.as_fd(), crate::carrier::ROUTERS)?;
                Ok(socket)
            });
            match opened {
                Ok(socket) => self.paths.sockets.push(socket),
                // A host without this version of IP.
                Err(Errno::AFNOSUPPORT) => {}
                Err(error) => self.sessions.warn(format_args!("what routers say: {error}")),
            }
        }
    }

    /// Routers have said something.
    pub(crate) fn hear_routers(&mut self) {
        let heard = self.paths.sockets.iter().flat_map(|socket| {
            let messages = core::iter::from_fn(move || next(socket));
            messages.take(AT_ONCE)
        });
        let notices: Vec<Notice> = heard.flatten().collect();
        notices.iter().for_each(|notice| self.heed(notice, now()));
    }

    fn heed(&mut self, notice: &Notice, at: Instant) {
        let Self { entries, flows, sessions, .. } = self;
        let all = notice.unconnected();
        let found = flows.get(&notice.key).or_else(|| flows.get(&all?)).copied();
        let Some((local, entry)) = found.and_then(|at| Some((at, entries.get_mut(&at)?))) else {
            return;
        };
        let (key, lent) = match entry {
            Entry { key, phase: Phase::Lent(lent), .. } => (key, lent),
            Entry { phase: Phase::Datagrams(_), .. } => return self.look_at_way(local),
            _ => return,
        };
        let Some(under_way) = position::under_way(&lent.stream.ledger().told()) else { return };
        // One that was adopted and has not registered cannot be told; routers say it again.
        if !lent.is_known || lent.is_cut {
            return;
        }
        match judge(notice, key, under_way, lent.way.mtu) {
            Some(Verdict::Narrow(mtu)) => {
                lent.path.learn(mtu, at);
                lent.way.mtu = mtu;
                sessions.reroute(local, hop_of(&lent.way, lent.port));
            }
            Some(Verdict::Home) => lent.call_home(),
            None => {}
        }
    }

    /// Asks again what is known of paths once it is old. When to look again.
    pub(crate) fn take_old_paths(&mut self, at: Instant) -> Option<Instant> {
        if self.flows.is_empty() {
            self.paths.look_at = None;
            return None;
        }
        let look_at = *self.paths.look_at.get_or_insert(later(at, LOOK_EVERY_US));
        if look_at > at {
            return Some(look_at);
        }
        self.paths.look_at = Some(later(at, LOOK_EVERY_US));
        for local in self.flows.values().copied().collect::<Vec<_>>() {
            if self.lent_mut(local).is_some_and(|lent| lent.path.expires(at)) {
                self.look_at_way(local);
            }
        }
        self.paths.look_at
    }

    fn lent_mut(&mut self, local: u64) -> Option<&mut Lent> {
        match &mut self.entries.get_mut(&local)?.phase {
            Phase::Lent(lent) => Some(lent),
            _ => None,
        }
    }
}
