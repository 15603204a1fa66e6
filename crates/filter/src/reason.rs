//! The reasons by which the programs count packets. The order is that of `enum reason` in
//! `bpf/filter/maps.h`.

use core::fmt;

/// The outcome for a packet of a moved session, or for a packet that came out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Reason {
    /// Received: kept from the stack, because its owner's packet socket got the packet.
    TakenDirect,
    /// Received: went into a port.
    TakenPort,
    /// Received: went to an AF_XDP socket.
    TakenXsk,
    /// Received and dropped: a fragment of a TCP segment of a moved session.
    Fragmented,
    /// Received: came to another owner's packet socket, and arrives anew. A few packets do after
    /// members of the group changed places.
    Misdirected,
    /// Sent through a port.
    Sent,
    /// Refused from a port: neither IPv4 nor IPv6, or with a VLAN tag.
    NotIp,
    /// Refused from a port: the source is not the interface's link-layer address.
    WrongSourceMac,
    /// Refused from a port: the target is a group.
    GroupTarget,
    /// Refused from a port: headers that are incomplete or contradict each other.
    Malformed,
    /// Refused from a port: IPv4 options or IPv6 extension headers.
    Extended,
    /// Refused from a port: a fragment.
    SentFragment,
    /// Refused from a port: neither TCP nor UDP.
    OtherProtocol,
    /// Refused from a port: not a session of this port. Either way: a session that is held.
    NotOwned,
    /// Refused from a port: longer than the interface's MTU.
    TooLong,
    /// Refused from a port: the checksum is not left to the device, or would be written over bytes
    /// that were checked.
    Checksum,
}

impl Reason {
    /// All reasons in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::TakenDirect,
        Self::TakenPort,
        Self::TakenXsk,
        Self::Fragmented,
        Self::Misdirected,
        Self::Sent,
        Self::NotIp,
        Self::WrongSourceMac,
        Self::GroupTarget,
        Self::Malformed,
        Self::Extended,
        Self::SentFragment,
        Self::OtherProtocol,
        Self::NotOwned,
        Self::TooLong,
        Self::Checksum,
    ];

    /// Returns a few words, for statistics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TakenDirect => "received direct",
            Self::TakenPort => "received through a port",
            Self::TakenXsk => "received by AF_XDP",
            Self::Fragmented => "received in fragments",
            Self::Misdirected => "misdirected",
            Self::Sent => "sent through a port",
            Self::NotIp => "refused: not IP",
            Self::WrongSourceMac => "refused: wrong source address of the link",
            Self::GroupTarget => "refused: to a group",
            Self::Malformed => "refused: malformed",
            Self::Extended => "refused: options or extension headers",
            Self::SentFragment => "refused: fragment",
            Self::OtherProtocol => "refused: other protocol",
            Self::NotOwned => "refused: not its session",
            Self::TooLong => "refused: too long",
            Self::Checksum => "refused: checksum not left to the device",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Packets by reason, since the filter was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Reason::ALL.len()]);

impl Counts {
    /// Returns the number of packets with a reason.
    pub const fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    pub(crate) const fn set(&mut self, reason: Reason, packets: u64) {
        self.0[reason as usize] = packets;
    }

    /// Returns the number of packets that programs tried to send and that were refused, for all
    /// reasons.
    pub fn refused(&self) -> u64 {
        self.0[Reason::NotIp as usize..].iter().sum()
    }
}
