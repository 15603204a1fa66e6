//! Whether and how a payload leaves past the kernel.

use super::socket::Socket;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use sojourn_wire::udp::Header;

/// Most datagrams that one send with `UDP_SEGMENT` may make (Linux's `UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 128;
const HEADER_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// Why a datagram goes through the kernel's socket, which also gives whatever error there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detour {
    /// There is no target.
    NoTarget,
    /// The target is of another family than the socket, or an IPv4 address in IPv6 form.
    Family,
    /// The target has no port.
    NoPort,
    /// Multicast, broadcast, or no address at all.
    NotUnicast,
    /// Larger than the path takes: it is to be cut into fragments, or refused.
    TooLong,
    /// More segments than one send may make.
    TooManySegments,
    /// The session was exported.
    Exported,
}

/// How a payload leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub target: SocketAddr,
    /// The UDP header of each datagram; its length is that of the payload or of the segment.
    pub header: Header,
    /// Bytes of payload in each datagram but the last, if it is to be cut into several; 0 if it is
    /// one.
    pub segment_size: u16,
    /// Whether a checksum is to be written. (With IPv6 it always is.)
    pub checksum: bool,
}

impl Socket {
    /// How `length` bytes to `target` leave; to the connected peer if none is given. `gso_size`: of
    /// this call's control message, if it had one, else the socket's option counts. The datagrams
    /// count as sent.
    ///
    /// # Errors
    /// [`Detour`]: the kernel's socket has to send it.
    pub fn prepare(
        &mut self,
        target: Option<SocketAddr>,
        length: usize,
        gso_size: Option<u16>,
    ) -> Result<Outgoing, Detour> {
        if self.exported {
            return Err(Detour::Exported);
        }
        let target = target.or(self.peer).ok_or(Detour::NoTarget)?;
        check_target(self.local, target)?;
        let size = usize::from(gso_size.unwrap_or(self.options.gso_size));
        let cut = size > 0 && size < length;
        let ip = if target.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        let largest = if cut { size } else { length };
        if ip + HEADER_BYTES + largest > self.options.path_mtu as usize || length > 65_535 {
            return Err(Detour::TooLong);
        }
        let count = if cut { length.div_ceil(size) } else { 1 };
        if count > SEGMENTS_MAX {
            return Err(Detour::TooManySegments);
        }
        self.tally.sent += count as u64;
        Ok(Outgoing {
            target,
            header: Header { source_port: self.local.port(), target_port: target.port() },
            segment_size: if cut { size as u16 } else { 0 },
            checksum: !(self.options.no_checksum && target.is_ipv4()),
        })
    }
}

fn check_target(local: SocketAddr, target: SocketAddr) -> Result<(), Detour> {
    // A socket of both families is bound to the IPv6 address that is none.
    let is_both = local.is_ipv6() && local.ip().is_unspecified();
    if target.is_ipv4() != local.is_ipv4() && !is_both {
        return Err(Detour::Family);
    }
    if target.port() == 0 {
        return Err(Detour::NoPort);
    }
    match target.ip() {
        IpAddr::V4(ip) if ip.is_multicast() || ip == Ipv4Addr::BROADCAST || ip.is_unspecified() => {
            Err(Detour::NotUnicast)
        }
        IpAddr::V6(ip) if ip.is_multicast() || ip.is_unspecified() => Err(Detour::NotUnicast),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Err(Detour::Family),
        _ => Ok(()),
    }
}
