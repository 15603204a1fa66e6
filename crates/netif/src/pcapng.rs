//! A writer of pcapng, the format of captures that tcpdump and Wireshark read.
//!
//! `draft-ietf-opsawg-pcapng`: a section header, an interface description per interface, an
//! enhanced packet block per frame, with times in nanoseconds that the caller gives, the direction
//! marked and perhaps a comment; at the end an interface's statistics. Not here: the source of the
//! frames (`capture`), reading, other blocks. All numbers are little-endian.

use crate::trace::Direction;
use sojourn_wire::frame::LinkType;
use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const COMMENT: u16 = 1;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
/// The largest length of a comment in bytes; longer comments are cut.
const COMMENT_MAX: usize = 1024;

/// An enhanced packet block without its data: head, fixed fields, the flags option, the end of
/// options, the length again.
const PACKET_FIXED: usize = 8 + 20 + 8 + 4 + 4;

/// A writer of one section. It makes many small writes to `out`, which should be buffered.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    interfaces: u32,
}

/// An interface of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId(u32);

impl<W: Write> Writer<W> {
    /// Writes the section header; `application` is the name of the writing program.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, application: &str) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0; the section's length, which is not known beforehand, is given as
        // unspecified.
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, SECTION_APPLICATION, application.as_bytes());
        option(&mut body, OPTION_END, &[]);
        block(&mut out, SECTION_HEADER, &body)?;
        Ok(Self { out, interfaces: 0 })
    }

    /// Describes an interface and returns its identifier for packets.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn interface(&mut self, name: &str, link: LinkType) -> io::Result<InterfaceId> {
        // LINKTYPE_ETHERNET, LINKTYPE_RAW of the registry.
        let kind: u16 = match link {
            LinkType::Ethernet => 1,
            LinkType::Raw => 101,
        };
        let mut body = Vec::new();
        body.extend(kind.to_le_bytes());
        body.extend([0; 2]);
        // A snap length of 0 means no limit.
        body.extend(0u32.to_le_bytes());
        option(&mut body, INTERFACE_NAME, name.as_bytes());
        // Times count in 10 to the power of minus 9 seconds.
        option(&mut body, INTERFACE_RESOLUTION, &[9]);
        option(&mut body, OPTION_END, &[]);
        block(&mut self.out, INTERFACE_DESCRIPTION, &body)?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1))
    }

    /// Writes a frame, given in parts, that went in `direction` at `time_ns`, nanoseconds
    /// since 1970.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn packet(
        &mut self,
        interface: InterfaceId,
        time_ns: u64,
        direction: Direction,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        self.packet_with(interface, time_ns, direction, parts, "")
    }

    /// Writes a frame like [`Writer::packet`], with a comment (`opt_comment`) of at most 1024
    /// bytes; an empty comment is omitted.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn packet_with(
        &mut self,
        interface: InterfaceId,
        time_ns: u64,
        direction: Direction,
        parts: &[&[u8]],
        comment: &str,
    ) -> io::Result<()> {
        let comment = &comment.as_bytes()[..comment.floor_char_boundary(COMMENT_MAX)];
        let commented =
            if comment.is_empty() { 0 } else { 4 + comment.len() + padding(comment.len()) };
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let pad = padding(len);
        let total = ((PACKET_FIXED + len + pad + commented) as u32).to_le_bytes();
        let len = (len as u32).to_le_bytes();
        let [high, low] = halves(time_ns);
        let words =
            [ENHANCED_PACKET.to_le_bytes(), total, interface.0.to_le_bytes(), high, low, len, len];
        self.out.write_all(words.as_flattened())?;
        for part in parts {
            self.out.write_all(part)?;
        }
        self.out.write_all(&[0; 3][..pad])?;
        if !comment.is_empty() {
            let head = u32::from(COMMENT) | (comment.len() as u32) << 16;
            self.out.write_all(&head.to_le_bytes())?;
            self.out.write_all(comment)?;
            self.out.write_all(&[0; 3][..padding(comment.len())])?;
        }
        let flags: u32 = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        let option = u32::from(PACKET_FLAGS) | 4 << 16;
        let end = u32::from(OPTION_END);
        let words = [option.to_le_bytes(), flags.to_le_bytes(), end.to_le_bytes(), total];
        self.out.write_all(words.as_flattened())
    }

    /// Writes the counters of an interface up to `time_ns`: the frames that arrived at the capture,
    /// and those of them that were lost because the capture was too slow.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn statistics(
        &mut self,
        interface: InterfaceId,
        time_ns: u64,
        received: u64,
        dropped: u64,
    ) -> io::Result<()> {
        let [high, low] = halves(time_ns);
        let mut body = [interface.0.to_le_bytes(), high, low].concat();
        option(&mut body, STATISTICS_RECEIVED, &received.to_le_bytes());
        option(&mut body, STATISTICS_DROPPED, &dropped.to_le_bytes());
        option(&mut body, OPTION_END, &[]);
        block(&mut self.out, INTERFACE_STATISTICS, &body)
    }

    /// Flushes `out`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns `out`.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Returns the number of padding bytes to a whole word of four bytes.
fn padding(len: usize) -> usize {
    len.next_multiple_of(4) - len
}

/// Returns a time in the form of blocks: the more significant half first.
fn halves(time_ns: u64) -> [[u8; 4]; 2] {
    [((time_ns >> 32) as u32).to_le_bytes(), (time_ns as u32).to_le_bytes()]
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A value longer than an option can be is cut; names and applications are never that long.
    let value = &value[..value.len().min(usize::from(u16::MAX) & !3)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes a block; the length of `body` must be a multiple of four.
fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = (12 + body.len() as u32).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total)?;
    out.write_all(body)?;
    out.write_all(&total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each block, byte by byte.
    #[test]
    fn golden_bytes() {
        let mut writer = Writer::new(Vec::new(), "app").unwrap();
        let first = writer.interface("veth0", LinkType::Ethernet).unwrap();
        let second = writer.interface("tun0", LinkType::Raw).unwrap();
        assert_ne!(first, second);
        let time_ns = 0x0102_0304_0506_0708;
        writer.packet(first, time_ns, Direction::In, &[b"abc", b"", b"de"]).unwrap();
        writer.packet(second, 9, Direction::Out, &[b"wxyz"]).unwrap();
        let bytes = writer.into_inner();
        #[rustfmt::skip]
        let golden: &[u8] = &[
            // Section header: type, length, byte order, version, length of the section, the
            // application, end, length.
            0x0a, 0x0d, 0x0d, 0x0a, 40, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            4, 0, 3, 0, b'a', b'p', b'p', 0, 0, 0, 0, 0, 40, 0, 0, 0,
            // Interface: type, length, Ethernet, no limit, name, resolution, end, length.
            1, 0, 0, 0, 44, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 5, 0, b'v', b'e', b't', b'h', b'0', 0, 0, 0,
            9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0,
            // Interface: type, length, raw IP, no limit, name, resolution, end, length.
            1, 0, 0, 0, 40, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 4, 0, b't', b'u', b'n', b'0', 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0,
            // Packet: type, length, interface, time (high, low), lengths, data, flags inbound, end,
            // length.
            6, 0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 5, 0, 0, 0, 5, 0, 0, 0,
            b'a', b'b', b'c', b'd', b'e', 0, 0, 0, 2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0,
            // Packet: the same fields, flags outbound; its data needs no padding.
            6, 0, 0, 0, 48, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0,
            b'w', b'x', b'y', b'z', 2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0,
        ];
        assert_eq!(bytes, golden);
    }

    #[test]
    fn golden_bytes_of_comments_and_statistics() {
        let mut writer = Writer { out: Vec::new(), interfaces: 1 };
        writer.packet_with(InterfaceId(0), 7, Direction::In, &[b"abcd"], "redis").unwrap();
        writer.statistics(InterfaceId(0), 8, 3, 1).unwrap();
        #[rustfmt::skip]
        let golden: &[u8] = &[
            // Packet: type, length, interface, time, lengths, data, comment, flags inbound, end,
            // length.
            6, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0,
            b'a', b'b', b'c', b'd', 1, 0, 5, 0, b'r', b'e', b'd', b'i', b's', 0, 0, 0,
            2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0,
            // Statistics: type, length, interface, time, received, dropped, end, length.
            5, 0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0,
            4, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0,
        ];
        assert_eq!(writer.into_inner(), golden);
    }

    #[test]
    fn every_block_ends_with_its_length_whatever_the_frame() {
        for len in 0..70usize {
            let mut writer = Writer::new(Vec::new(), "").unwrap();
            let id = writer.interface("", LinkType::Raw).unwrap();
            let frame = vec![7; len];
            let comment = "é".repeat(len * 10);
            writer.packet_with(id, 0, Direction::Out, &[&frame], &comment).unwrap();
            let bytes = writer.into_inner();
            let word =
                |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n])) as usize;
            let mut at = 0;
            let mut blocks = 0;
            while at < bytes.len() {
                let total = word(at + 4);
                assert_eq!(total % 4, 0);
                assert_eq!(word(at + total - 4), total);
                at += total;
                blocks += 1;
            }
            assert_eq!((blocks, at), (3, bytes.len()), "frame of {len}");
        }
    }
}
