//! TCP's options: maximum segment size (RFC 9293 section 3.7.1), window scale and timestamps (RFC
//! 7323), SACK (RFC 2018).
//!
//! [`OptionIter`] returns every option; [`Options`] is the value with the known ones. Not here: the
//! rules for sending options (`sojourn-proto`).

use super::seq::SeqNum;
use crate::{Malformed, NoRoom};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The largest length of options in bytes.
pub const OPTIONS_BYTES_MAX: usize = 40;
/// The largest number of SACK blocks in a segment; three if there are timestamps too.
pub const SACK_BLOCKS_MAX: usize = 4;

/// A range of bytes that was received: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SackBlock {
    /// The first byte.
    pub start: SeqNum,
    /// The byte after the last.
    pub end: SeqNum,
}

/// Up to four SACK blocks, in their order in the segment (RFC 2018 section 4: the first is the
/// latest news).
#[derive(Clone, Copy, Debug, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const NONE: Self =
        Self { blocks: [SackBlock { start: SeqNum(0), end: SeqNum(0) }; SACK_BLOCKS_MAX], len: 0 };

    /// Adds a block at the end; returns false if there are four already.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(free) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *free = block;
        self.len += 1;
        true
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Returns the number of blocks.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps only the first `len` blocks.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len.min(SACK_BLOCKS_MAX) as u8);
    }

    /// Reads the whole blocks of an option's bytes, at most four.
    fn parse(bytes: &[u8]) -> Self {
        let mut blocks = Self::NONE;
        for chunk in bytes.as_chunks::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *chunk;
            let start = SeqNum(u32::from_be_bytes([a, b, c, d]));
            blocks.push(SackBlock { start, end: SeqNum(u32::from_be_bytes([e, f, g, h])) });
        }
        blocks
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

/// The timestamps option (RFC 7323 section 3.2): opaque to its receiver but for their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// The sender's clock (TSval).
    pub value: u32,
    /// The receiver's clock as the sender saw it last (TSecr), significant with ACK.
    pub echo: u32,
}

/// One option of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'b> {
    /// One byte of padding between options.
    Nop,
    /// Maximum segment size in bytes.
    Mss(u16),
    /// Shift of the sender's window; more than 14 is to be taken as 14 (RFC 7323 section 2.3).
    WindowScale(u8),
    /// The sender understands SACK.
    SackPermitted,
    /// The ranges that the sender has received out of order.
    Sack(SackBlocks),
    /// Timestamps.
    Timestamps(Timestamps),
    /// Another option, or a known one of an impossible length: kind and contents.
    Other(u8, &'b [u8]),
}

/// The options of a segment, in order. The iterator ends after an `Err`, because the position of
/// the next option is unknown.
#[derive(Clone, Debug)]
pub struct OptionIter<'b> {
    rest: &'b [u8],
}

impl<'b> OptionIter<'b> {
    /// Creates an iterator over an option area.
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }
}

fn known(kind: u8, contents: &[u8]) -> TcpOption<'_> {
    match (kind, contents) {
        (MSS, &[a, b]) => TcpOption::Mss(u16::from_be_bytes([a, b])),
        (WINDOW_SCALE, &[shift]) => TcpOption::WindowScale(shift),
        (SACK_PERMITTED, []) => TcpOption::SackPermitted,
        (SACK, blocks) if !blocks.is_empty() && blocks.len() % 8 == 0 => {
            TcpOption::Sack(SackBlocks::parse(blocks))
        }
        (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps(Timestamps {
            value: u32::from_be_bytes([a, b, c, d]),
            echo: u32::from_be_bytes([e, f, g, h]),
        }),
        _ => TcpOption::Other(kind, contents),
    }
}

impl<'b> Iterator for OptionIter<'b> {
    type Item = Result<TcpOption<'b>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, rest) = self.rest.split_first()?;
        self.rest = &[];
        match kind {
            END => return None,
            NOP => {
                self.rest = rest;
                return Some(Ok(TcpOption::Nop));
            }
            _ => {}
        }
        let Some((&len, rest)) = rest.split_first() else { return Some(Err(Malformed::Options)) };
        let contents = usize::from(len).checked_sub(2).and_then(|len| rest.split_at_checked(len));
        let Some((contents, rest)) = contents else { return Some(Err(Malformed::Options)) };
        self.rest = rest;
        Some(Ok(known(kind, contents)))
    }
}

/// The options that Sojourn knows, as a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size in bytes (in SYNs).
    pub mss: Option<u16>,
    /// Shift of the sender's window (in SYNs), as sent: more than 14 is to be taken as 14.
    pub window_scale: Option<u8>,
    /// The sender understands SACK (in SYNs).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// The ranges that the sender has received out of order.
    pub sack: SackBlocks,
}

impl Options {
    /// No options.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::NONE,
    };

    /// Reads the known options in `bytes`. As in Linux (`tcp_parse_options`), unknown options are
    /// skipped, a damaged one ends the list, and the last of two of one kind counts: options never
    /// make a segment invalid.
    pub fn parse(bytes: &[u8]) -> Self {
        // Nearly every segment of an established connection has exactly these options (RFC 7323,
        // appendix A).
        if let [NOP, NOP, TIMESTAMPS, 10, rest @ ..] = bytes
            && let &[a, b, c, d, e, f, g, h] = rest
        {
            let value = u32::from_be_bytes([a, b, c, d]);
            let echo = u32::from_be_bytes([e, f, g, h]);
            return Self { timestamps: Some(Timestamps { value, echo }), ..Self::NONE };
        }
        let mut found = Self::NONE;
        for option in OptionIter::new(bytes).map_while(Result::ok) {
            match option {
                TcpOption::Mss(mss) => found.mss = Some(mss),
                TcpOption::WindowScale(shift) => found.window_scale = Some(shift),
                TcpOption::SackPermitted => found.sack_permitted = true,
                TcpOption::Sack(blocks) => found.sack = blocks,
                TcpOption::Timestamps(timestamps) => found.timestamps = Some(timestamps),
                TcpOption::Nop | TcpOption::Other(..) => {}
            }
        }
        found
    }

    /// Returns the length of the options in bytes, padded to whole words. More than 40 cannot be
    /// sent.
    pub const fn len(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        // The SACK-permitted option takes the place of the padding before timestamps.
        match (self.sack_permitted, self.timestamps.is_some()) {
            (_, true) => len += 12,
            (true, false) => len += 4,
            (false, false) => {}
        }
        if !self.sack.is_empty() {
            len += 4 + 8 * self.sack.len();
        }
        len
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of SACK blocks that fit beside the other options.
    pub const fn sack_room(&self) -> usize {
        let others = Self { sack: SackBlocks::NONE, ..*self }.len();
        let room = OPTIONS_BYTES_MAX.saturating_sub(others + 4) / 8;
        if room < SACK_BLOCKS_MAX { room } else { SACK_BLOCKS_MAX }
    }

    /// Writes the options in the order of Linux (`tcp_options_write`); returns the number of bytes,
    /// a multiple of four.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or the options take more than 40 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let len = self.len();
        if len == 0 {
            return Ok(0);
        }
        if len > OPTIONS_BYTES_MAX {
            return Err(NoRoom);
        }
        let mut writer = Writer { out: out.get_mut(..len).ok_or(NoRoom)?, at: 0 };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            writer.put([MSS, 4, a, b]);
        }
        let before = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
        if let Some(Timestamps { value, echo }) = self.timestamps {
            writer.put([before[0], before[1], TIMESTAMPS, 10]);
            writer.put(value.to_be_bytes());
            writer.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            writer.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            writer.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            writer.put([NOP, NOP, SACK, 2 + 8 * self.sack.len]);
            for block in self.sack.as_slice() {
                writer.put(block.start.0.to_be_bytes());
                writer.put(block.end.0.to_be_bytes());
            }
        }
        Ok(len)
    }
}

/// A writer of words into a slice of the length of `Options::len`.
struct Writer<'b> {
    out: &'b mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, word: [u8; 4]) {
        if let Some(place) = self.out.get_mut(self.at..self.at + 4) {
            place.copy_from_slice(&word);
        }
        self.at += 4;
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
