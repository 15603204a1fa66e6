//! The check whether a payload can be sent past the kernel, and its headers' values.

use super::socket::Socket;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use sojourn_wire::udp::Header;

/// The largest number of datagrams of one send with `UDP_SEGMENT` (Linux's `UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 128;
const HEADER_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The reason why a datagram must go through the kernel's socket, which also reports any error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPath {
    /// There is no target.
    NoTarget,
    /// The target is of another family than the socket, or an IPv4 address in IPv6 form.
    Family,
    /// The target has no port.
    NoPort,
    /// The target is multicast, broadcast, or the unspecified address.
    NotUnicast,
    /// The datagram exceeds the path MTU: the kernel fragments or refuses it.
    TooLong,
    /// The send would make too many segments.
    TooManySegments,
    /// The session was exported.
    Exported,
}

/// The values for sending a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The target.
    pub target: SocketAddr,
    /// The UDP header of each datagram. Its length field is computed from the payload or the
    /// segment.
    pub header: Header,
    /// Bytes of payload in each datagram but the last, if the payload is to be cut into several; 0
    /// for one datagram.
    pub segment_size: u16,
    /// True if a checksum is to be written. (With IPv6 that is always so.)
    pub checksum: bool,
}

impl Socket {
    /// Returns the values for sending `length` bytes to `target`, or to the connected peer if
    /// `target` is `None`. `gso_size` comes from the call's control message; without one the
    /// socket's option applies. The datagrams count as sent.
    ///
    /// # Errors
    /// [`KernelPath`] if the kernel's socket has to send the datagram.
    pub fn prepare(
        &mut self,
        target: Option<SocketAddr>,
        length: usize,
        gso_size: Option<u16>,
    ) -> Result<Outgoing, KernelPath> {
        if self.exported {
            return Err(KernelPath::Exported);
        }
        let target = target.or(self.peer).ok_or(KernelPath::NoTarget)?;
        check_target(self.local, target)?;
        let size = usize::from(gso_size.unwrap_or(self.options.gso_size));
        let cut = size > 0 && size < length;
        let ip = if target.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        let largest = if cut { size } else { length };
        if ip + HEADER_BYTES + largest > self.options.path_mtu as usize || length > 65_535 {
            return Err(KernelPath::TooLong);
        }
        let count = if cut { length.div_ceil(size) } else { 1 };
        if count > SEGMENTS_MAX {
            return Err(KernelPath::TooManySegments);
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

fn check_target(local: SocketAddr, target: SocketAddr) -> Result<(), KernelPath> {
    // A socket of both families is bound to the unspecified IPv6 address (ipv6(7)).
    let is_both = local.is_ipv6() && local.ip().is_unspecified();
    if target.is_ipv4() != local.is_ipv4() && !is_both {
        return Err(KernelPath::Family);
    }
    if target.port() == 0 {
        return Err(KernelPath::NoPort);
    }
    match target.ip() {
        IpAddr::V4(ip) if ip.is_multicast() || ip == Ipv4Addr::BROADCAST || ip.is_unspecified() => {
            Err(KernelPath::NotUnicast)
        }
        IpAddr::V6(ip) if ip.is_multicast() || ip.is_unspecified() => Err(KernelPath::NotUnicast),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Err(KernelPath::Family),
        _ => Ok(()),
    }
}
