//! Ethernet's link header, with 802.1Q tags: up to two, the outer one possibly of type 802.1ad.
//!
//! Not here: frame check sequences, which packet interfaces do not show, and 802.3 length fields,
//! which IP does not use. Read `frame`.

use crate::octets::{array_at, u16_at};
use crate::{Malformed, NoRoom};
use core::fmt;

/// Bytes of the header without tags.
pub const HEADER_BYTES: usize = 14;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 4;
/// The largest length of the header in bytes.
pub const HEADER_BYTES_MAX: usize = HEADER_BYTES + 2 * TAG_BYTES;

/// A link-layer address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true for a group address, including the broadcast address.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The type of the payload of a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// RFC 894.
    pub const IPV4: Self = Self(0x0800);
    /// RFC 826.
    pub const ARP: Self = Self(0x0806);
    /// An 802.1Q tag.
    pub const VLAN: Self = Self(0x8100);
    /// RFC 2464.
    pub const IPV6: Self = Self(0x86dd);
    /// An 802.1ad service tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
}

/// The contents of an 802.1Q tag: priority (3 bits), drop eligible (1), VLAN identifier (12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub ether_type: EtherType,
    /// Priority, drop eligible and identifier as they are in the tag.
    pub control: u16,
}

impl VlanTag {
    /// Creates a tag of VLAN `id` with priority 0.
    pub const fn new(id: u16) -> Self {
        Self { ether_type: EtherType::VLAN, control: id & 0x0fff }
    }

    /// Returns the VLAN identifier; 0 means that the tag carries only a priority.
    pub const fn id(self) -> u16 {
        self.control & 0x0fff
    }

    /// Returns the priority.
    pub const fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }
}

/// A frame taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<'b> {
    /// The link header.
    pub header: Header,
    /// The bytes after the header.
    pub payload: &'b [u8],
}

/// A link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The receiver.
    pub target: MacAddress,
    /// The sender.
    pub source: MacAddress,
    /// The tags, outermost first.
    pub tags: [Option<VlanTag>; 2],
    /// The type of the payload.
    pub ether_type: EtherType,
}

impl Header {
    /// Creates a header without tags.
    pub const fn new(source: MacAddress, target: MacAddress, ether_type: EtherType) -> Self {
        Self { target, source, tags: [None, None], ether_type }
    }

    /// Reads the header of a frame. A third tag is left as the type of the payload.
    ///
    /// # Errors
    /// [`Malformed::Short`].
    pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Malformed> {
        let (fixed, mut payload) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        let mut header = Self {
            target: MacAddress(array_at::<0, 6, HEADER_BYTES>(fixed)),
            source: MacAddress(array_at::<6, 6, HEADER_BYTES>(fixed)),
            tags: [None, None],
            ether_type: EtherType(u16_at::<12, HEADER_BYTES>(fixed)),
        };
        for place in &mut header.tags {
            if !matches!(header.ether_type, EtherType::VLAN | EtherType::SERVICE_VLAN) {
                break;
            }
            let (tag, after) = payload.split_first_chunk::<TAG_BYTES>().ok_or(Malformed::Short)?;
            let control = u16_at::<0, TAG_BYTES>(tag);
            *place = Some(VlanTag { ether_type: header.ether_type, control });
            header.ether_type = EtherType(u16_at::<2, TAG_BYTES>(tag));
            payload = after;
        }
        Ok(Parsed { header, payload })
    }

    /// Returns the length of the header in bytes, including tags.
    pub fn len(&self) -> usize {
        HEADER_BYTES + TAG_BYTES * self.tags.iter().flatten().count()
    }

    /// Returns false always, since there is a fixed part.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header; returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let len = self.len();
        let out = out.get_mut(..len).ok_or(NoRoom)?;
        let (addresses, types) = out.split_at_mut(12);
        addresses[..6].copy_from_slice(&self.target.0);
        addresses[6..].copy_from_slice(&self.source.0);
        let words = self.tags.iter().flatten().flat_map(|tag| [tag.ether_type.0, tag.control]);
        let words = words.chain([self.ether_type.0]);
        for (place, word) in types.as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        Ok(len)
    }
}
