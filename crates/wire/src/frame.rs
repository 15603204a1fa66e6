//! Whole frames: from the link header to the transport's payload in one pass ([`parse`]), and
//! headers in front of a payload ([`Header`]).
//!
//! Not here: the contents of other frames than TCP and UDP (`arp`, `icmp`), and offload headers,
//! which precede frames (`vnet`).

mod header;

pub use header::{Emitted, Fields, HEADERS_BYTES_MAX, Header, Offload, PacketFields};

use crate::ethernet::{self, EtherType};
use crate::ip::TrafficClass;
use crate::{FlowKey, Malformed, Protocol, checksum, ipv4, ipv6, tcp, udp};
use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::ops::Range;

/// The kind of header before the IP header on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// No header, as on tun devices and WireGuard.
    Raw,
}

/// The transport header and payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'b> {
    /// A TCP segment.
    Tcp(tcp::Segment<'b>),
    /// A UDP datagram.
    Udp(udp::Datagram<'b>),
}

/// A frame with a whole TCP segment or UDP datagram. Offsets count from the frame's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    bytes: &'b [u8],
    /// The key of the frame's flow.
    pub key: FlowKey,
    /// The link header, if there is one.
    pub ethernet: Option<ethernet::Header>,
    /// Differentiated services and congestion bits.
    pub traffic_class: TrafficClass,
    /// The hop limit.
    pub hop_limit: u8,
    /// Transport header and payload.
    pub transport: Transport<'b>,
    /// The offset of the IP header.
    pub network_at: usize,
    /// The offset of the transport header.
    pub transport_at: usize,
    /// The offset of the payload.
    pub payload_at: usize,
    /// The end of the payload. Bytes behind it are padding.
    pub end: usize,
}

impl<'b> Frame<'b> {
    /// Returns the payload.
    pub const fn payload(&self) -> &'b [u8] {
        match &self.transport {
            Transport::Tcp(segment) => segment.payload(),
            Transport::Udp(datagram) => datagram.payload(),
        }
    }

    /// Returns the range of the payload.
    pub const fn payload_range(&self) -> Range<usize> {
        self.payload_at..self.end
    }

    /// Returns the TCP segment, if the frame has one.
    pub const fn segment(&self) -> Option<tcp::Segment<'b>> {
        match self.transport {
            Transport::Tcp(segment) => Some(segment),
            Transport::Udp(_) => None,
        }
    }

    /// Returns the UDP datagram, if the frame has one.
    pub const fn datagram(&self) -> Option<udp::Datagram<'b>> {
        match self.transport {
            Transport::Tcp(_) => None,
            Transport::Udp(datagram) => Some(datagram),
        }
    }

    /// Returns true if the transport checksum is right. Needed only if the offload header asks for
    /// it (`vnet::Header::must_verify`).
    ///
    /// A UDP datagram without checksum is right over IPv4 (RFC 768) and wrong over IPv6 (RFC 8200
    /// section 8.1).
    pub fn checksum_is_right(&self) -> bool {
        if let Transport::Udp(datagram) = &self.transport
            && datagram.checksum() == 0
        {
            return self.key.source.is_ipv4();
        }
        let Some(covered) = self.bytes.get(self.transport_at..self.end) else { return false };
        let (source, target) = (self.key.source.ip(), self.key.target.ip());
        let number = self.key.protocol.number();
        let mut sum = checksum::pseudo(source, target, number, covered.len() as u32);
        sum.add(covered);
        sum.is_valid()
    }
}

/// The fields of an IP header of either version.
struct Network<'b> {
    source: IpAddr,
    target: IpAddr,
    traffic_class: TrafficClass,
    hop_limit: u8,
    protocol: u8,
    header_len: usize,
    payload: &'b [u8],
}

impl<'b> Network<'b> {
    #[inline]
    fn v4(bytes: &'b [u8], missing: usize) -> Result<Self, Malformed> {
        let packet = ipv4::Packet::starting(bytes, missing)?;
        if !packet.checksum_is_right() {
            return Err(Malformed::Checksum);
        }
        if packet.is_fragment() {
            return Err(Malformed::Fragment);
        }
        Ok(Self {
            source: packet.source().into(),
            target: packet.target().into(),
            traffic_class: packet.traffic_class(),
            hop_limit: packet.ttl(),
            protocol: packet.protocol(),
            header_len: packet.header_len(),
            payload: packet.payload(),
        })
    }

    #[inline]
    fn v6(bytes: &'b [u8], missing: usize) -> Result<Self, Malformed> {
        let packet = ipv6::Packet::starting(bytes, missing)?;
        let upper = packet.upper()?;
        if upper.is_fragment {
            return Err(Malformed::Fragment);
        }
        Ok(Self {
            source: packet.source().into(),
            target: packet.target().into(),
            traffic_class: packet.traffic_class(),
            hop_limit: packet.hop_limit(),
            protocol: upper.protocol,
            header_len: ipv6::HEADER_BYTES + upper.extensions_len,
            payload: upper.payload,
        })
    }
}

/// Returns an endpoint in the form of keys: without flow label and scope.
pub(crate) const fn endpoint(address: IpAddr, port: u16) -> SocketAddr {
    match address {
        IpAddr::V4(address) => SocketAddr::V4(SocketAddrV4::new(address, port)),
        IpAddr::V6(address) => SocketAddr::V6(SocketAddrV6::new(address, port, 0, 0)),
    }
}

/// Reads a frame from its first byte to the transport's payload. Lengths, the IPv4 header's
/// checksum and the headers' structure are checked, the transport checksum is not
/// ([`Frame::checksum_is_right`]).
///
/// # Errors
/// [`Malformed`] if the frame is damaged, or is valid but not a whole TCP or UDP packet
/// ([`Malformed::is_foreign`]).
#[inline]
pub fn parse(bytes: &[u8], link: LinkType) -> Result<Frame<'_>, Malformed> {
    parse_start(bytes, link, 0)
}

/// What the link header says, and the packet behind it.
struct LinkLayer<'b> {
    /// `None` on a link without headers.
    ethernet: Option<ethernet::Header>,
    packet: &'b [u8],
    ether_type: EtherType,
}

impl<'b> LinkLayer<'b> {
    #[inline]
    fn parse(bytes: &'b [u8], link: LinkType) -> Result<Self, Malformed> {
        let raw = |ether_type| Self { ethernet: None, packet: bytes, ether_type };
        match link {
            LinkType::Ethernet => {
                let ethernet::Parsed { header, payload } = ethernet::Header::parse(bytes)?;
                let ether_type = header.ether_type;
                Ok(Self { ethernet: Some(header), packet: payload, ether_type })
            }
            LinkType::Raw => match bytes.first().ok_or(Malformed::Short)? >> 4 {
                4 => Ok(raw(EtherType::IPV4)),
                6 => Ok(raw(EtherType::IPV6)),
                _ => Err(Malformed::Version),
            },
        }
    }
}

/// Reads the beginning of a frame like [`parse`]. `bytes` have all headers, and `missing` bytes of
/// a TCP segment's payload follow them. The result's payload is the part in `bytes`.
///
/// # Errors
/// As for [`parse`]; and if the packet does not end exactly `missing` bytes later, as in a frame
/// with padding.
pub fn parse_start(bytes: &[u8], link: LinkType, missing: usize) -> Result<Frame<'_>, Malformed> {
    let LinkLayer { ethernet, packet, ether_type } = LinkLayer::parse(bytes, link)?;
    let network = match ether_type {
        EtherType::IPV4 => Network::v4(packet, missing)?,
        EtherType::IPV6 => Network::v6(packet, missing)?,
        _ => return Err(Malformed::NotInternet),
    };
    let protocol = Protocol::from_number(network.protocol).ok_or(Malformed::NotTransport)?;
    let (transport, header_len, ports) = match protocol {
        Protocol::Tcp => {
            let segment = tcp::Segment::new(network.payload)?;
            let ports = (segment.source_port(), segment.target_port());
            (Transport::Tcp(segment), segment.header_len(), ports)
        }
        Protocol::Udp => {
            let datagram = udp::Datagram::new(network.payload)?;
            let ports = (datagram.source_port(), datagram.target_port());
            (Transport::Udp(datagram), udp::HEADER_BYTES, ports)
        }
    };
    let key = FlowKey {
        protocol,
        source: endpoint(network.source, ports.0),
        target: endpoint(network.target, ports.1),
    };
    let network_at = bytes.len() - packet.len();
    let transport_at = network_at + network.header_len;
    let payload_at = transport_at + header_len;
    let mut frame = Frame {
        bytes,
        key,
        ethernet,
        traffic_class: network.traffic_class,
        hop_limit: network.hop_limit,
        transport,
        network_at,
        transport_at,
        payload_at,
        end: payload_at,
    };
    frame.end += frame.payload().len();
    Ok(frame)
}
