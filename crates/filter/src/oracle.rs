//! The filter's decisions in Rust: the required behaviour of the programs in `bpf`, for tests and
//! as an explanation.
//!
//! The code follows the rules in docs/understand/packet-path.md, not the C code, and needs no
//! kernel. `tests/agree.rs` compares both.

use crate::reason::Reason;
use crate::rule::{Key, OwnerId, Rule, Target, is_group};
use core::ops::ControlFlow;
use sojourn_wire::frame::LinkType;
use sojourn_wire::{MacAddress, Protocol};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const ETHERNET_LEN: usize = 14;
/// The least length of an Ethernet frame without its check sequence; shorter frames are padded.
const FRAME_MIN: usize = 60;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const EXTENSIONS_MAX: usize = 8;

/// The filter of one interface.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The kind of link header.
    pub link: LinkType,
    /// The interface's link-layer address; for [`LinkType::Raw`], the ports' address.
    pub mac: MacAddress,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The moved sessions.
    pub rules: BTreeMap<Key, Rule>,
}

/// A frame that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received<'f> {
    /// From the link header on.
    pub frame: &'f [u8],
    /// The VLAN tag that the device or the kernel has already taken out of the frame.
    pub tag: Option<u16>,
}

/// The decision of the interface's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// The packet goes on to other programs and the stack.
    Pass,
    /// The packet is dropped.
    Drop(Reason),
    /// The packet goes into the port with this interface.
    Port(u32),
}

/// A frame that a program sent into its port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'f> {
    /// From the link header on.
    pub frame: &'f [u8],
    /// True if a VLAN tag comes with the frame.
    pub tagged: bool,
    /// Bytes of payload of each segment into which the frame is to be cut, or zero.
    pub gso_size: u32,
    /// The end of the checksum field that the device writes, in bytes from the start of the frame.
    pub checksum_end: Option<usize>,
}

/// A received packet with the keys of its possible sessions.
struct Parsed {
    key: Key,
    from_anyone: Option<Key>,
    first_fragment: bool,
}

/// The rule for a received packet.
struct Matched {
    rule: Rule,
    first_fragment: bool,
}

impl Oracle {
    /// Decides about a frame on the interface, before the stack.
    pub fn ingress(&self, received: &Received<'_>) -> Ingress {
        let Some(Matched { rule, first_fragment }) = self.rule(received) else {
            return Ingress::Pass;
        };
        match rule.target {
            _ if first_fragment => Ingress::Drop(Reason::Fragmented),
            Target::Port { .. } if rule.is_held => Ingress::Drop(Reason::NotOwned),
            Target::Port { interface } => Ingress::Port(interface),
            Target::Direct | Target::Xsk => Ingress::Drop(Reason::TakenDirect),
        }
    }

    /// Returns the owner whose packet socket gets the frame.
    pub fn reader(&self, received: &Received<'_>) -> Option<OwnerId> {
        let Matched { rule, first_fragment } = self.rule(received)?;
        let tapped = matches!(rule.target, Target::Direct | Target::Xsk);
        (tapped && !first_fragment).then_some(rule.owner)
    }

    /// Returns the owner whose AF_XDP socket gets the frame, if it has one for the queue.
    pub fn xdp(&self, frame: &[u8]) -> Option<OwnerId> {
        let Matched { rule, first_fragment } = self.rule(&Received { frame, tag: None })?;
        (rule.target == Target::Xsk && !first_fragment).then_some(rule.owner)
    }

    fn rule(&self, received: &Received<'_>) -> Option<Matched> {
        let parsed = self.parse(received)?;
        let rule = self.rules.get(&parsed.key);
        let rule = rule.or_else(|| self.rules.get(&parsed.from_anyone?))?;
        Some(Matched { rule: *rule, first_fragment: parsed.first_fragment })
    }

    fn parse(&self, received: &Received<'_>) -> Option<Parsed> {
        if received.tag.is_some_and(|tag| tag & 0xfff != 0) {
            return None;
        }
        let (mut kind, mut packet) = match self.link {
            LinkType::Raw => match received.frame.first()? >> 4 {
                4 => (IPV4, received.frame),
                6 => (IPV6, received.frame),
                _ => return None,
            },
            LinkType::Ethernet => {
                let (header, packet) = received.frame.split_at_checked(ETHERNET_LEN)?;
                if header[..6] != self.mac.0 {
                    return None;
                }
                (u16::from_be_bytes([header[12], header[13]]), packet)
            }
        };
        if kind == VLAN || kind == SERVICE_VLAN {
            let (tag, rest) = packet.split_at_checked(4)?;
            if u16::from_be_bytes([tag[0], tag[1]]) & 0xfff != 0 {
                return None;
            }
            (kind, packet) = (u16::from_be_bytes([tag[2], tag[3]]), rest);
        }
        match kind {
            IPV4 => parse_ipv4(packet),
            IPV6 => parse_ipv6(packet),
            _ => None,
        }
    }

    /// Decides about a frame from the port whose server's side is `interface`: returns
    /// [`Reason::Sent`], or the reason of the refusal.
    pub fn outgoing(&self, interface: u32, outgoing: &Outgoing<'_>) -> Reason {
        match self.check(interface, outgoing) {
            ControlFlow::Break(reason) => reason,
            ControlFlow::Continue(()) => Reason::Sent,
        }
    }

    fn check(&self, interface: u32, outgoing: &Outgoing<'_>) -> ControlFlow<Reason> {
        let frame = outgoing.frame;
        let Some((ethernet, packet)) = frame.split_at_checked(ETHERNET_LEN) else {
            return ControlFlow::Break(Reason::Malformed);
        };
        let kind = u16::from_be_bytes([ethernet[12], ethernet[13]]);
        refuse(outgoing.tagged || (kind != IPV4 && kind != IPV6), Reason::NotIp)?;
        refuse(ethernet[6..12] != self.mac.0, Reason::WrongSourceMac)?;
        refuse(ethernet[0] & 1 != 0, Reason::GroupTarget)?;
        let header = if kind == IPV4 { check_ipv4(packet) } else { check_ipv6(packet) }?;
        let Transport { len: transport_len, checksum } = check_transport(frame, packet, &header)?;
        let sent = match outgoing.gso_size {
            0 => header.total as u64,
            size => (header.len + transport_len) as u64 + u64::from(size),
        };
        refuse(sent > u64::from(self.mtu), Reason::TooLong)?;
        let transport = &packet[header.len..];
        let port = |at| u16::from_be_bytes([transport[at], transport[at + 1]]);
        let local = SocketAddr::new(header.source, port(0));
        let remote = SocketAddr::new(header.target, port(2));
        let owned = Protocol::from_number(header.protocol).is_some_and(|protocol| {
            let to = |remote| self.rules.get(&Key::new(protocol, local, remote).ok()?);
            let rule = to(Some(remote)).or_else(|| to(None)).filter(|rule| !rule.is_held);
            rule.map(|rule| rule.target) == Some(Target::Port { interface })
        });
        refuse(!owned, Reason::NotOwned)?;
        let checksum_end = ETHERNET_LEN + header.len + checksum + 2;
        refuse(outgoing.checksum_end.is_none_or(|end| end < checksum_end), Reason::Checksum)
    }
}

fn refuse(is_wrong: bool, reason: Reason) -> ControlFlow<Reason> {
    if is_wrong { ControlFlow::Break(reason) } else { ControlFlow::Continue(()) }
}

/// Reads the ports, and returns the session that they name. Every fragment of a datagram belongs to
/// the kernel.
fn parse_ports(
    protocol: u8,
    Addresses { source, target }: Addresses,
    transport: &[u8],
    first_fragment: bool,
) -> Option<Parsed> {
    let protocol = Protocol::from_number(protocol)?;
    if first_fragment && protocol == Protocol::Udp {
        return None;
    }
    let ports = transport.get(..4)?;
    let local = SocketAddr::new(target, u16::from_be_bytes([ports[2], ports[3]]));
    let remote = SocketAddr::new(source, u16::from_be_bytes([ports[0], ports[1]]));
    let from_anyone = Key::new(protocol, local, None).ok();
    // A packet with an impossible peer can still reach a socket that receives from any peer.
    let key = Key::new(protocol, local, Some(remote)).ok().or(from_anyone)?;
    Some(Parsed { key, from_anyone, first_fragment })
}

/// Reads an IPv4 packet (RFC 791, section 3.1).
fn parse_ipv4(packet: &[u8]) -> Option<Parsed> {
    let header = packet.get(..20)?;
    let header_len = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || header_len < 20 {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & 0x1fff != 0 {
        return None;
    }
    let transport = packet.get(header_len..)?;
    parse_ports(header[9], ipv4_addresses(header), transport, fragment & 0x2000 != 0)
}

/// Reads an IPv6 packet (RFC 8200, sections 3 and 4).
fn parse_ipv6(packet: &[u8]) -> Option<Parsed> {
    let (header, mut rest) = packet.split_at_checked(40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let addresses = ipv6_addresses(header);
    let (mut next, mut first_fragment) = (header[6], false);
    for nth in 0..EXTENSIONS_MAX {
        let len = match next {
            6 | 17 => break,
            HOP_BY_HOP if nth == 0 => (usize::from(*rest.get(1)?) + 1) * 8,
            DESTINATION => (usize::from(*rest.get(1)?) + 1) * 8,
            FRAGMENT if !first_fragment => {
                let offset = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
                if offset & 0xfff8 != 0 {
                    return None;
                }
                first_fragment = true;
                8
            }
            _ => return None,
        };
        next = rest[0];
        rest = rest.get(len..)?;
    }
    parse_ports(next, addresses, rest, first_fragment)
}

/// The addresses of a packet.
#[derive(Clone, Copy)]
struct Addresses {
    source: IpAddr,
    target: IpAddr,
}

fn ipv4_addresses(header: &[u8]) -> Addresses {
    let at = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    Addresses { source: at(12).into(), target: at(16).into() }
}

fn ipv6_addresses(header: &[u8]) -> Addresses {
    let at = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Addresses { source: at(8), target: at(24) }
}

/// The IP header of a frame from a port.
struct Header {
    protocol: u8,
    source: IpAddr,
    target: IpAddr,
    /// Bytes of the header.
    len: usize,
    /// Length of the packet in bytes, from the header.
    total: usize,
}

fn check_ipv4(packet: &[u8]) -> ControlFlow<Reason, Header> {
    let Some(header) = packet.get(..20).filter(|header| header[0] >> 4 == 4) else {
        return ControlFlow::Break(Reason::Malformed);
    };
    refuse(header[0] != 0x45, Reason::Extended)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    refuse(fragment & 0x3fff != 0, Reason::SentFragment)?;
    let Addresses { source, target } = ipv4_addresses(header);
    refuse(is_group(target), Reason::GroupTarget)?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    ControlFlow::Continue(Header { protocol: header[9], source, target, len: 20, total })
}

fn check_ipv6(packet: &[u8]) -> ControlFlow<Reason, Header> {
    let Some(header) = packet.get(..40).filter(|header| header[0] >> 4 == 6) else {
        return ControlFlow::Break(Reason::Malformed);
    };
    refuse(header[6] == FRAGMENT, Reason::SentFragment)?;
    refuse(matches!(header[6], HOP_BY_HOP | DESTINATION | ROUTING), Reason::Extended)?;
    let Addresses { source, target } = ipv6_addresses(header);
    refuse(is_group(target), Reason::GroupTarget)?;
    let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    ControlFlow::Continue(Header { protocol: header[6], source, target, len: 40, total })
}

/// The transport header of a frame from a port.
struct Transport {
    /// Bytes of the header.
    len: usize,
    /// The checksum's offset in it.
    checksum: usize,
}

fn check_transport(frame: &[u8], packet: &[u8], header: &Header) -> ControlFlow<Reason, Transport> {
    let (len_min, checksum) = match Protocol::from_number(header.protocol) {
        Some(Protocol::Tcp) => (20, 16),
        Some(Protocol::Udp) => (8, 6),
        None => return ControlFlow::Break(Reason::OtherProtocol),
    };
    refuse(header.total < header.len + len_min, Reason::Malformed)?;
    let padded = header.total != packet.len();
    refuse(header.total > packet.len() || (padded && frame.len() > FRAME_MIN), Reason::Malformed)?;
    if len_min == 8 {
        return ControlFlow::Continue(Transport { len: len_min, checksum });
    }
    let len = usize::from(packet[header.len + 12] >> 4) * 4;
    refuse(len < len_min || header.total < header.len + len, Reason::Malformed)?;
    ControlFlow::Continue(Transport { len, checksum })
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
