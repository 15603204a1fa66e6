//! A segment's control bits (RFC 9293 section 3.1, RFC 3168 section 6.1). Read `segment` for their
//! position.

use bitflags::bitflags;

bitflags! {
    /// Control bits. The four reserved bits before them are ignored and sent as zero (RFC 9293
    /// section 3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronize sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push.
        const PSH = 0x08;
        /// The acknowledgment field is significant.
        const ACK = 0x10;
        /// The urgent pointer is significant.
        const URG = 0x20;
        /// ECN echo.
        const ECE = 0x40;
        /// Congestion window reduced.
        const CWR = 0x80;
    }
}

impl Flags {
    /// Returns the number of sequence numbers that SYN and FIN take (RFC 9293 section 3.4).
    pub const fn sequence_len(self) -> u32 {
        (self.bits() & 1) as u32 + (self.bits() >> 1 & 1) as u32
    }
}
