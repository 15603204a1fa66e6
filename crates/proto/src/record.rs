//! A session record: the complete state of a session that changes its home, as a value and as
//! bytes.
//!
//! The old home makes the record (the server from a kernel socket, the engine from a connection),
//! and the new home imports it. A record is complete in itself: times in it are spans, not
//! instants, because the two homes need not share a clock. This file is the envelope; `record_tcp`
//! and `record_udp` are its contents, `record_codec` the encoding, `record_error` the errors. The
//! bytes are drawn in `docs/reference/session-record.md`.

use crate::record_codec::{Field, Output, Reader, record};
pub use crate::record_error::{RecordError, VERSION};
pub use crate::record_tcp::{
    CloseReason, CongestionName, ControllerKind, EcnRecord, OutOfOrder, TcpCounters, TcpOptions,
    TcpRecord, TcpState, TcpTuning, TimestampUnit, TimestampsRecord,
};
pub use crate::record_udp::{Datagram, UdpOptions, UdpRecord};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The first four bytes of every record.
pub const MAGIC: [u8; 4] = *b"SJSR";

/// Bytes in front of the body: magic, version, protocol, reserved, length, checksum.
pub const HEADER_LEN: usize = 20;

/// A session on its way from one home to another.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRecord {
    /// This end.
    pub local: SocketAddr,
    /// The other end, of the same family as `local`; `None` for a UDP socket that is not connected.
    pub remote: Option<SocketAddr>,
    /// The values for the IP headers of the session's packets.
    pub ip: IpOptions,
    /// The protocol's state.
    pub kind: Kind,
}

/// The protocol's part of a record.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "records are few and live shortly")]
pub enum Kind {
    /// A TCP connection.
    Tcp(TcpRecord),
    /// A UDP socket.
    Udp(UdpRecord),
}

record! {
    /// Socket options that show in the IP header (`ip(7)`, `ipv6(7)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IpOptions {
        /// `IP_TOS` or `IPV6_TCLASS`; TCP leaves the two ECN bits to its own use.
        pub traffic_class: u8,
        /// `IP_TTL` or `IPV6_UNICAST_HOPS` in effect.
        pub hop_limit: u8,
        /// True if IPv4 packets carry "don't fragment" (`IP_MTU_DISCOVER` other than
        /// `IP_PMTUDISC_DONT`).
        pub dont_fragment: bool,
        /// IPv6 flow label of outgoing packets, 20 bits.
        pub flow_label: u32,
        /// `SO_PRIORITY`, which selects the interface's queue.
        pub priority: u32,
    }
}

impl Default for IpOptions {
    fn default() -> IpOptions {
        IpOptions {
            traffic_class: 0,
            hop_limit: 64,
            dont_fragment: true,
            flow_label: 0,
            priority: 0,
        }
    }
}

impl SessionRecord {
    /// Appends the record's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_to(&mut |piece| out.extend_from_slice(piece));
    }

    /// Passes the record's bytes on, piece by piece: a queue is one piece, which is not copied.
    pub fn encode_to(&self, out: &mut dyn FnMut(&[u8])) {
        // The header tells the body's length and checksum, so the body is gone through twice.
        let mut sum = Checksum::default();
        self.put_body(&mut |piece| sum.add(piece));
        let protocol: u8 = match self.kind {
            Kind::Tcp(_) => 6,
            Kind::Udp(_) => 17,
        };
        out(&MAGIC);
        VERSION.put(out);
        protocol.put(out);
        0u8.put(out);
        (HEADER_LEN as u32 + sum.len as u32).put(out);
        sum.finish().put(out);
        self.put_body(out);
    }

    fn put_body(&self, out: &mut Output<'_>) {
        self.local.put(out);
        self.remote.put(out);
        self.ip.put(out);
        match &self.kind {
            Kind::Tcp(tcp) => tcp.put(out),
            Kind::Udp(udp) => udp.put(out),
        }
    }

    /// Reads a record that takes up all of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are not a usable record of this version. A record that is
    /// returned has passed [`SessionRecord::check`].
    pub fn decode(bytes: &[u8]) -> Result<SessionRecord, RecordError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 4] = reader.array()?;
        if magic != MAGIC {
            return Err(RecordError::NotARecord);
        }
        let version = u16::take(&mut reader)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let (protocol, reserved) = (u8::take(&mut reader)?, u8::take(&mut reader)?);
        let (length, sum) = (u32::take(&mut reader)? as usize, u64::take(&mut reader)?);
        if length > bytes.len() {
            return Err(RecordError::Truncated);
        }
        if length < bytes.len() {
            return Err(RecordError::Excess);
        }
        if checksum(&bytes[HEADER_LEN..]) != sum {
            return Err(RecordError::Damaged);
        }
        if reserved != 0 {
            return Err(RecordError::Value("a reserved byte is not 0"));
        }
        let local = SocketAddr::take(&mut reader)?;
        let remote = Field::take(&mut reader)?;
        let ip = IpOptions::take(&mut reader)?;
        let kind = match protocol {
            6 => Kind::Tcp(TcpRecord::take(&mut reader)?),
            17 => Kind::Udp(UdpRecord::take(&mut reader)?),
            _ => return Err(RecordError::Value("the protocol is neither TCP (6) nor UDP (17)")),
        };
        reader.finish()?;
        let record = SessionRecord { local, remote, ip, kind };
        record.check()?;
        Ok(record)
    }

    /// Checks that the fields do not contradict each other. `decode` and every import call this.
    ///
    /// # Errors
    /// [`RecordError::Value`] or [`RecordError::Inconsistent`] with the first contradiction found.
    pub fn check(&self) -> Result<(), RecordError> {
        if self.remote.is_some_and(|remote| remote.is_ipv4() != self.local.is_ipv4()) {
            return Err(RecordError::Inconsistent("the two endpoints are of different families"));
        }
        if self.ip.hop_limit == 0 {
            return Err(RecordError::Value("the hop limit is 0"));
        }
        if self.ip.flow_label >> 20 != 0 {
            return Err(RecordError::Value("the flow label has more than 20 bits"));
        }
        match &self.kind {
            Kind::Tcp(tcp) => {
                if self.remote.is_none() {
                    return Err(RecordError::Inconsistent(
                        "a TCP session without a remote endpoint",
                    ));
                }
                tcp.check(self.local.is_ipv4())
            }
            Kind::Udp(udp) => udp.check(),
        }
    }
}

/// A checksum that detects accidents, not attacks: FNV-1a over little-endian words of eight bytes
/// (the last padded with zeros), with a rotation so that high bits matter too, and over the length.
/// Fast enough for megabytes of queued data within a move.
struct Checksum {
    sum: u64,
    /// The bytes of the word that is not whole yet, and their number.
    part: [u8; 8],
    held: usize,
    len: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { sum: 0xcbf2_9ce4_8422_2325, part: [0; 8], held: 0, len: 0 }
    }
}

impl Checksum {
    fn word(&mut self, word: u64) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        self.sum = (self.sum ^ word).wrapping_mul(PRIME).rotate_left(23);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        // First what completes the word that was begun.
        let more = if self.held > 0 { bytes.len().min(8 - self.held) } else { 0 };
        let (front, bytes) = bytes.split_at(more);
        self.part[self.held..self.held + more].copy_from_slice(front);
        self.held += more;
        if self.held == 8 {
            self.word(u64::from_le_bytes(self.part));
            self.held = 0;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.part[..rest.len()].copy_from_slice(rest);
            self.held = rest.len();
        }
    }

    fn finish(mut self) -> u64 {
        self.part[self.held..].fill(0);
        self.word(u64::from_le_bytes(self.part));
        self.word(self.len);
        self.sum
    }
}

/// Returns the checksum of a body.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish()
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
