//! The common part of both versions of IP: protocol numbers, the traffic class, congestion marks.
//!
//! Not here: the headers (`ipv4`, `ipv6`).

/// Numbers of payloads and of IPv6 extension headers.
pub mod number {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Nothing follows (RFC 8200 section 4.7).
    pub const NONE: u8 = 59;
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION: u8 = 60;
}

/// The congestion bits of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport is not ECN-capable.
    #[default]
    NotCapable = 0,
    /// The transport is ECN-capable, ECT(1).
    Capable1 = 1,
    /// The transport is ECN-capable, ECT(0).
    Capable0 = 2,
    /// A router has experienced congestion, CE.
    Congestion = 3,
}

/// The byte that is IPv4's type of service and IPv6's traffic class: differentiated services
/// (RFC 2474) and ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Creates the byte from a differentiated services code point (six bits) and congestion bits.
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        Self(dscp << 2 | ecn as u8)
    }

    /// Returns the differentiated services code point.
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// Returns the congestion bits.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Congestion,
        }
    }
}
