//! ARP for IPv4 over Ethernet (RFC 826). IPv6 has neighbour discovery, which stays in the kernel.
//!
//! Sojourn resolves no addresses itself; this file is for simulated hosts and for reading captures.

use crate::octets::{array_at, put, u16_at};
use crate::{MacAddress, Malformed, NoRoom};
use core::net::Ipv4Addr;

/// Bytes of a message.
pub const BYTES: usize = 28;

/// The operation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks for the link address of the target address.
    Request,
    /// Answers with the sender's link address.
    Reply,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The operation.
    pub operation: Operation,
    /// The sender's link address.
    pub source_mac: MacAddress,
    /// The sender's address.
    pub source: Ipv4Addr,
    /// The receiver's link address; zero in requests.
    pub target_mac: MacAddress,
    /// The address asked for, or the receiver's.
    pub target: Ipv4Addr,
}

/// Hardware type Ethernet, protocol type IPv4, lengths 6 and 4.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];

impl Message {
    /// Reads the payload of a frame with ether type ARP.
    ///
    /// # Errors
    /// [`Malformed::Short`]; [`Malformed::NotInternet`] for other address kinds or operations.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes = bytes.first_chunk::<BYTES>().ok_or(Malformed::Short)?;
        let operation = match u16_at::<6, BYTES>(bytes) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Malformed::NotInternet),
        };
        if array_at::<0, 6, BYTES>(bytes) != KINDS {
            return Err(Malformed::NotInternet);
        }
        Ok(Self {
            operation,
            source_mac: MacAddress(array_at::<8, 6, BYTES>(bytes)),
            source: Ipv4Addr::from(array_at::<14, 4, BYTES>(bytes)),
            target_mac: MacAddress(array_at::<18, 6, BYTES>(bytes)),
            target: Ipv4Addr::from(array_at::<24, 4, BYTES>(bytes)),
        })
    }

    /// Writes the message; returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = out.first_chunk_mut::<BYTES>().ok_or(NoRoom)?;
        let operation = match self.operation {
            Operation::Request => [0, 1],
            Operation::Reply => [0, 2],
        };
        put::<0, 6, BYTES>(out, KINDS);
        put::<6, 2, BYTES>(out, operation);
        put::<8, 6, BYTES>(out, self.source_mac.0);
        put::<14, 4, BYTES>(out, self.source.octets());
        put::<18, 6, BYTES>(out, self.target_mac.0);
        put::<24, 4, BYTES>(out, self.target.octets());
        Ok(BYTES)
    }
}
