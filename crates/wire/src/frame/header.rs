//! The headers of a flow's frames, prepared once and written in front of each payload.
//!
//! The constant fields (addresses, ports, classes and the sums over them) are kept, so a frame
//! costs a copy and a few additions. Not here: the choice of a flow's next hop and fields, and
//! joining headers and payload, which an interface does by gathering.

use crate::checksum::{self, Sum};
use crate::ethernet::{self, EtherType};
use crate::ip::{Ecn, TrafficClass};
use crate::vnet::{self, SegmentKind, Segments};
use crate::{FlowKey, NoRoom, Protocol, ipv4, ipv6, tcp, udp};
use core::net::IpAddr;

/// The largest length of a frame's headers in bytes: tagged Ethernet, IPv6, TCP with all options.
pub const HEADERS_BYTES_MAX: usize = PREFIX_BYTES_MAX + tcp::HEADER_BYTES_MAX;

/// The largest length of link and IP header in bytes.
const PREFIX_BYTES_MAX: usize = ethernet::HEADER_BYTES_MAX + ipv6::HEADER_BYTES;

/// The fields of the IP header besides addresses and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// The differentiated services code point (six bits).
    pub dscp: u8,
    /// The initial hop limit.
    pub hop_limit: u8,
    /// The flow label (IPv6, 20 bits).
    pub flow_label: u32,
    /// True if routers must not fragment (IPv4).
    pub dont_fragment: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self { dscp: 0, hop_limit: 64, flow_label: 0, dont_fragment: true }
    }
}

/// The work that is left to the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Offload {
    /// No work: the frame is complete.
    #[default]
    Nothing,
    /// The transport checksum.
    Checksum,
    /// The transport checksum, and cutting into segments (datagrams) with the given number of
    /// payload bytes, if the payload is longer.
    Segments(u16),
}

/// The result of writing headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Emitted {
    /// Bytes of all headers.
    pub len: usize,
    /// The offload header that belongs to the frame.
    pub vnet: vnet::Header,
}

/// The headers of one flow in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Link and IP header, with zeros for lengths, identification, congestion bits and checksum.
    prefix: [u8; PREFIX_BYTES_MAX],
    link_len: usize,
    prefix_len: usize,
    flow: FlowKey,
    /// The sum over the IPv4 header in `prefix`.
    network_sum: Sum,
    /// The sum over the pseudo header without the length.
    pseudo_sum: Sum,
}

/// What differs from packet to packet of a flow, beside the transport header.
#[derive(Clone, Copy, Debug)]
pub struct PacketFields {
    /// The mark of explicit congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// IPv4's identification.
    pub identification: u16,
    /// The work that is left to the interface.
    pub offload: Offload,
}

impl Header {
    /// Prepares the headers of `flow`'s frames, from `flow.source` to `flow.target`, behind the
    /// link header `link` (whose ether type is not used) or none.
    ///
    /// # Errors
    /// [`NoRoom`] for addresses of different IP versions.
    pub fn new(
        link: Option<ethernet::Header>,
        flow: FlowKey,
        fields: Fields,
    ) -> Result<Self, NoRoom> {
        let mut prefix = [0; PREFIX_BYTES_MAX];
        let (source, target) = (flow.source.ip(), flow.target.ip());
        let ether_type = if source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let link = link.map(|link| ethernet::Header { ether_type, ..link });
        let link_len = link.map_or(Ok(0), |link| link.emit(&mut prefix))?;
        let network = prefix.get_mut(link_len..).ok_or(NoRoom)?;
        let network_len = emit_network(network, source, target, flow.protocol.number(), fields)?;
        let network_sum = checksum::sum(network.get(..network_len).ok_or(NoRoom)?);
        let pseudo_sum = checksum::pseudo(source, target, flow.protocol.number(), 0);
        let prefix_len = link_len + network_len;
        Ok(Self { prefix, link_len, prefix_len, flow, network_sum, pseudo_sum })
    }

    /// Returns the flow.
    pub const fn flow(&self) -> FlowKey {
        self.flow
    }

    /// Returns the length of link and IP header, which is the offset of the transport header.
    pub const fn transport_at(&self) -> usize {
        self.prefix_len
    }

    /// Writes all headers of a TCP segment whose payload is the parts of `payload` in order. The
    /// ports are the flow's, not `tcp`'s.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short, the packet too long, the options too many; or if the flow
    /// is not of TCP.
    pub fn emit_tcp(
        &self,
        tcp: &tcp::Header,
        payload: &[&[u8]],
        fields: PacketFields,
        out: &mut [u8],
    ) -> Result<Emitted, NoRoom> {
        let PacketFields { ecn, identification, offload } = fields;
        if self.flow.protocol != Protocol::Tcp {
            return Err(NoRoom);
        }
        let header = tcp::Header {
            source_port: self.flow.source.port(),
            target_port: self.flow.target.port(),
            ..*tcp
        };
        let (prefix, transport) = out.split_at_mut_checked(self.prefix_len).ok_or(NoRoom)?;
        let header_len = header.emit(transport)?;
        let transport = transport.get_mut(..header_len).ok_or(NoRoom)?;
        let transport_len = header_len + payload.iter().map(|part| part.len()).sum::<usize>();
        self.emit_prefix(prefix, transport_len, ecn, identification)?;
        let sum = self.transport_sum(transport, payload, transport_len, offload);
        tcp::write_checksum(transport, sum);
        let has_cwr = header.flags.contains(tcp::Flags::CWR);
        let kind = if self.flow.source.is_ipv4() { SegmentKind::TcpV4 } else { SegmentKind::TcpV6 };
        Ok(self.emitted(header_len, transport_len, offload, kind, has_cwr))
    }

    /// Writes all headers of a UDP datagram whose payload is the parts of `payload` in order.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or the packet too long; or if the flow is not of UDP.
    pub fn emit_udp(
        &self,
        payload: &[&[u8]],
        fields: PacketFields,
        out: &mut [u8],
    ) -> Result<Emitted, NoRoom> {
        let PacketFields { ecn, identification, offload } = fields;
        if self.flow.protocol != Protocol::Udp {
            return Err(NoRoom);
        }
        let header = udp::Header {
            source_port: self.flow.source.port(),
            target_port: self.flow.target.port(),
        };
        let payload_len = payload.iter().map(|part| part.len()).sum::<usize>();
        let transport_len = udp::HEADER_BYTES + payload_len;
        let (prefix, transport) = out.split_at_mut_checked(self.prefix_len).ok_or(NoRoom)?;
        let header_len = header.emit(payload_len, transport)?;
        let transport = transport.get_mut(..header_len).ok_or(NoRoom)?;
        self.emit_prefix(prefix, transport_len, ecn, identification)?;
        let sum = self.transport_sum(transport, payload, transport_len, offload);
        // A partial sum is not yet a checksum: the interface that completes it replaces a zero (RFC
        // 768).
        let is_whole = offload == Offload::Nothing;
        udp::write_checksum(transport, if is_whole { udp::as_sent(sum) } else { sum });
        Ok(self.emitted(header_len, transport_len, offload, SegmentKind::Udp, false))
    }

    /// Writes link and IP header.
    fn emit_prefix(
        &self,
        out: &mut [u8],
        transport_len: usize,
        ecn: Ecn,
        identification: u16,
    ) -> Result<(), NoRoom> {
        out.copy_from_slice(self.prefix.get(..self.prefix_len).ok_or(NoRoom)?);
        let network = out.get_mut(self.link_len..).ok_or(NoRoom)?;
        if let Some(header) = network.first_chunk_mut::<{ ipv6::HEADER_BYTES }>() {
            let len = u16::try_from(transport_len).map_err(|_| NoRoom)?;
            header[1] |= (ecn as u8) << 4;
            [header[4], header[5]] = len.to_be_bytes();
        } else if let Some(header) = network.first_chunk_mut::<{ ipv4::HEADER_BYTES }>() {
            let total = ipv4::HEADER_BYTES + transport_len;
            let total = u16::try_from(total).map_err(|_| NoRoom)?;
            let mut sum = self.network_sum;
            sum.add_word(u16::from(ecn as u8));
            sum.add_word(total);
            sum.add_word(identification);
            header[1] |= ecn as u8;
            [header[2], header[3]] = total.to_be_bytes();
            [header[4], header[5]] = identification.to_be_bytes();
            [header[10], header[11]] = sum.finish().to_be_bytes();
        }
        Ok(())
    }

    /// Returns the value of the checksum field: the checksum, or the pseudo header's sum, from
    /// which the interface continues.
    fn transport_sum(
        &self,
        header: &[u8],
        payload: &[&[u8]],
        transport_len: usize,
        offload: Offload,
    ) -> u16 {
        let mut sum = self.pseudo_sum;
        sum.add_word(transport_len as u16);
        if offload != Offload::Nothing {
            return sum.value();
        }
        sum.add(header);
        for part in payload {
            sum.add(part);
        }
        sum.finish()
    }

    fn emitted(
        &self,
        header_len: usize,
        transport_len: usize,
        offload: Offload,
        kind: SegmentKind,
        has_cwr: bool,
    ) -> Emitted {
        let len = self.prefix_len + header_len;
        let segments = match offload {
            Offload::Segments(size) if transport_len - header_len > usize::from(size) => {
                Some(Segments { kind, size, has_cwr })
            }
            _ => None,
        };
        let offset = match self.flow.protocol {
            Protocol::Tcp => tcp::CHECKSUM_OFFSET,
            Protocol::Udp => udp::CHECKSUM_OFFSET,
        };
        let checksum = match offload {
            Offload::Nothing => vnet::Checksum::Unknown,
            _ => vnet::Checksum::Partial { start: self.prefix_len as u16, offset },
        };
        let header_len = if offload == Offload::Nothing { 0 } else { len as u16 };
        Emitted { len, vnet: vnet::Header { checksum, segments, header_len } }
    }
}

/// Writes an IP header with zeros for the fields that change from frame to frame; returns its
/// length in bytes.
fn emit_network(
    out: &mut [u8],
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    fields: Fields,
) -> Result<usize, NoRoom> {
    let traffic_class = TrafficClass::new(fields.dscp, Ecn::NotCapable);
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let header = ipv4::Header {
                traffic_class,
                identification: 0,
                dont_fragment: fields.dont_fragment,
                ttl: fields.hop_limit,
                protocol,
                source,
                target,
            };
            let len = header.emit(0, out)?;
            let changing = out.first_chunk_mut::<{ ipv4::HEADER_BYTES }>().ok_or(NoRoom)?;
            [changing[2], changing[3], changing[10], changing[11]] = [0; 4];
            Ok(len)
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let header = ipv6::Header {
                traffic_class,
                flow_label: fields.flow_label,
                next_header: protocol,
                hop_limit: fields.hop_limit,
                source,
                target,
            };
            header.emit(0, out)
        }
        _ => Err(NoRoom),
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
