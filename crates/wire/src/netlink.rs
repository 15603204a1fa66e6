//! Netlink messages and their attributes, as the kernel sends them (netlink(7), `struct nlmsghdr`,
//! `struct nlattr`).
//!
//! Only the framing, in the host's byte order. A walk goes up to the first message or attribute
//! that is malformed, so it ends whatever the lengths say. Not here: the meaning of messages, which
//! the crates that ask the kernel know.

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;
/// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`, which say how an attribute's value is encoded.
const FLAGS: u16 = 0xc000;

/// The number of a request (`nlmsg_seq`), which the answers to it repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSeq(pub u32);

impl RequestSeq {
    /// Returns the number of the request after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`: the number of the request that it answers.
    pub sequence: RequestSeq,
    /// The bytes after the header.
    pub body: &'b [u8],
}

/// Returns the messages of a datagram.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    core::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let message = Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: RequestSeq(u32::from_ne_bytes([s0, s1, s2, s3])),
            body: bytes.get(HEADER_BYTES..len)?,
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'b> {
    /// `nla_type`, without the flags of the value's encoding.
    pub kind: u16,
    /// The bytes after the header.
    pub value: &'b [u8],
}

/// Returns the attributes in `bytes`.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    core::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind: u16::from_ne_bytes([k0, k1]) & !FLAGS, value })
    })
}

/// Returns the value of the first attribute of a kind.
#[must_use]
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|one| one.kind == kind).map(|one| one.value)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(7u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn messages_come_with_their_bodies_without_the_padding() {
        let bytes = [message(20, 1, b"abc"), message(3, 2, b"")].concat();
        let all: Vec<_> = messages(&bytes).collect();
        let first = Message { kind: 20, flags: 7, sequence: RequestSeq(1), body: b"abc" };
        assert_eq!(all, [first, Message { kind: 3, flags: 7, sequence: RequestSeq(2), body: b"" }]);
    }

    #[test]
    fn attributes_come_without_the_flags_of_their_encoding() {
        let bytes = [attribute(0x8003, b"ab"), attribute(5, b"")].concat();
        let all: Vec<_> = attributes(&bytes).collect();
        let first = Attribute { kind: 3, value: b"ab" };
        assert_eq!(all, [first, Attribute { kind: 5, value: b"" }]);
        assert_eq!(find(&bytes, 3), Some(&b"ab"[..]));
        assert_eq!(find(&bytes, 4), None);
    }

    #[test]
    fn a_walk_ends_at_what_is_malformed() {
        for len in [0u16, 3, 9, u16::MAX] {
            let bytes = [&attribute(1, b"x")[..], &len.to_ne_bytes(), &[2, 0, 0, 0]].concat();
            assert_eq!(attributes(&bytes).count(), 1, "{len}");
        }
        for len in [0u32, 15, 21, u32::MAX] {
            let bytes = [&message(1, 1, b"x")[..], &len.to_ne_bytes(), &[0; 16]].concat();
            assert_eq!(messages(&bytes).count(), 1, "{len}");
        }
        let whole = [message(1, 1, b"abcd"), message(2, 2, b"ef")].concat();
        assert!((0..20).all(|len| messages(&whole[..len]).count() == 0));
    }
}
