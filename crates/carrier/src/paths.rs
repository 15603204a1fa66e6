//! The sockets that hear routers' messages about the host's packets.
//!
//! Two raw sockets get a copy of the ICMP messages that matter, behind the firewall's rules for
//! incoming packets. They are open as long as a TCP session is away. They take `CAP_NET_RAW`; read
//! raw(7) and RFC 3542. Not here: parsing and judging a message (`too_big`), and its consequences
//! (`routers`).

use crate::raw;
use crate::too_big::Notice;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, ipproto};
use sojourn_options::OptionName;
use sojourn_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// Options with bits for the types of messages that are *not* wanted (`linux/icmp.h`,
/// `linux/icmpv6.h`).
const ICMP_FILTER: OptionName = OptionName::new(libc::SOL_RAW, 1);
const ICMPV6_FILTER: OptionName = OptionName::new(libc::IPPROTO_ICMPV6, 1);
const UNREACHABLE: u32 = 3;
const PACKET_TOO_BIG: u32 = 2;

/// The longest message that is read (bytes), longer than what routers quote (RFC 1812 section
/// 4.3.2.3, RFC 4443 section 2.4). A longer one is cut, so that its checksum fails.
const MESSAGE_MAX: usize = 2048;
/// Messages read at a time: a flood of them must not keep the carrier from its work.
const AT_ONCE: usize = 64;
/// The sockets, while there are sessions.
#[derive(Default)]
pub(crate) struct Paths {
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) is_open: bool,
    /// The time of the next look for outdated knowledge.
    pub(crate) look_at: Option<Instant>,
}

impl Paths {
    /// Reads the waiting messages, and gives those that are notices.
    pub(crate) fn heard(&self) -> Vec<Notice> {
        let heard = self.sockets.iter().flat_map(|socket| {
            let messages = core::iter::from_fn(move || next(socket));
            messages.take(AT_ONCE)
        });
        heard.flatten().collect()
    }
}

/// Opens a socket for one version of IP.
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

/// Reads one message: `None` if none is left, `Some(None)` if it is no notice.
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
