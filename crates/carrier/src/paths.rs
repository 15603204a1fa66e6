//! The sockets that hear what routers say of the host's packets.
//!
//! Two raw sockets have a copy of the ICMP messages that matter, after the firewall's rules for
//! what comes in; they are there as long as a session is away. raw(7), RFC 3542. It takes
//! `CAP_NET_RAW`. Not here: what a message says and whether it is believed (`too_big`), who is told
//! (`routers`).

use crate::raw;
use crate::too_big::Notice;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, ipproto};
use sojourn_proto::time::Instant;
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
/// The sockets, while there are sessions.
#[derive(Default)]
pub(crate) struct Paths {
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) is_open: bool,
    /// When it is looked whether what was learnt is too old.
    pub(crate) look_at: Option<Instant>,
}

impl Paths {
    /// What routers have said since this was last asked, as far as it says something.
    pub(crate) fn heard(&self) -> Vec<Notice> {
        let heard = self.sockets.iter().flat_map(|socket| {
            let messages = core::iter::from_fn(move || next(socket));
            messages.take(AT_ONCE)
        });
        heard.flatten().collect()
    }
}

/// A socket for one version of IP.
pub(crate) fn open(is_v4: bool) -> Result<OwnedFd, Errno> {
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
