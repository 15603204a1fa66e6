//! The Internet checksum (RFC 1071): whole, in parts, partial for an interface that completes it,
//! and incremental (RFC 1624).
//!
//! Not here: the position of a header's checksum (each format's file), and the decision to verify
//! it (`vnet`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A ones' complement sum under computation: bytes are added in order, in parts of any length.
///
/// The sum of a packet with a right checksum in it, [`Sum::value`], is `0xffff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The sum in the machine's byte order, of which it is independent (RFC 1071, section 2(B)), so
    /// that loads need no swap.
    total: u64,
    /// True after an odd number of bytes: the next part's bytes then fall into the other halves of
    /// their words.
    is_odd: bool,
}

const fn fold(mut total: u64) -> u16 {
    total = (total & 0xffff_ffff) + (total >> 32);
    total = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    total as u16
}

/// Returns the sum of one part in the machine's byte order; a last odd byte counts as if a zero
/// followed.
fn sum_native(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut lanes = [0_u64; 16];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<4>();
    // No carry is lost below 2³² words, more than a packet can have.
    let mut total: u64 = if blocks.is_empty() { 0 } else { lanes.iter().sum() };
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_ne_bytes(last))
}

impl Sum {
    /// Creates a sum of no bytes.
    pub const fn new() -> Self {
        Self { total: 0, is_odd: false }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let part = fold(sum_native(bytes));
        self.total += u64::from(if self.is_odd { part.swap_bytes() } else { part });
        self.is_odd ^= !bytes.len().is_multiple_of(2);
    }

    /// Adds a word in the host's byte order; must be called after an even number of bytes.
    pub const fn add_word(&mut self, word: u16) {
        self.total += word.to_be() as u64;
    }

    /// Returns the folded sum, not complemented: the value of a *partial* checksum field, and
    /// `0xffff` for an undamaged packet.
    pub const fn value(self) -> u16 {
        u16::from_be(fold(self.total))
    }

    /// Returns the checksum to write into the field, which must have been zero or left out while
    /// adding.
    pub const fn finish(self) -> u16 {
        !self.value()
    }

    /// Returns true if the added bytes, including their checksum, are undamaged.
    pub const fn is_valid(self) -> bool {
        self.value() == 0xffff
    }
}

/// Returns the sum of an array of whole words: for headers, whose length is known at compile time.
pub(crate) fn sum_array<const N: usize>(bytes: &[u8; N]) -> Sum {
    const { assert!(N.is_multiple_of(4)) }
    let words = bytes.as_chunks::<4>().0.iter();
    Sum { total: words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum(), is_odd: false }
}

/// Returns the sum of `bytes`.
pub fn sum(bytes: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum
}

/// Returns the sum of the IPv4 pseudo header (RFC 9293 section 3.1, RFC 768): `len` bytes of
/// transport header and payload.
pub fn pseudo_v4(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, len: u16) -> Sum {
    let mut sum = Sum::new();
    sum.add(&source.octets());
    sum.add(&target.octets());
    sum.add_word(u16::from(protocol));
    sum.add_word(len);
    sum
}

/// Returns the sum of the IPv6 pseudo header (RFC 8200 section 8.1): `len` bytes of transport
/// header and payload.
pub fn pseudo_v6(source: Ipv6Addr, target: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add(&source.octets());
    sum.add(&target.octets());
    sum.add(&len.to_be_bytes());
    sum.add_word(u16::from(protocol));
    sum
}

/// Returns the sum of the pseudo header of either version. The addresses must be of one version;
/// otherwise the sum is wrong.
pub fn pseudo(source: IpAddr, target: IpAddr, protocol: u8, len: u32) -> Sum {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => pseudo_v4(source, target, protocol, len as u16),
        (IpAddr::V6(source), IpAddr::V6(target)) => pseudo_v6(source, target, protocol, len),
        (IpAddr::V4(source), IpAddr::V6(target)) => {
            pseudo_v6(source.to_ipv6_mapped(), target, protocol, len)
        }
        (IpAddr::V6(source), IpAddr::V4(target)) => {
            pseudo_v6(source, target.to_ipv6_mapped(), protocol, len)
        }
    }
}

/// Returns the checksum after one of the covered words changed from `old` to `new` (RFC 1624,
/// equation 3).
///
/// The result equals a full sum, except if all covered bytes are zero afterwards, which no packet
/// with a header has.
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
