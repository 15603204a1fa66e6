//! The functions of an object that is in memory, by its table for unwinding (`.eh_frame_hdr`, Linux
//! Standard Base): where a function begins, an instruction begins.
//!
//! Segments that are executable may hold data, too, in which the bytes of a system call mean
//! nothing. So a call counts as one if decoding from its function's beginning comes to it, or if an
//! instruction just before it loads the number of a system call. Not here: how candidates are found
//! (`sites`).
//!
//! Nothing in the table is trusted: what contradicts itself is not found.

use crate::sites::Call;
use iced_x86::{Code, Decoder, DecoderOptions};

/// The longest function that is decoded (bytes).
pub const FUNCTION_MAX: u64 = 1 << 20;
/// Bytes of a function's entry (FDE) that are needed.
pub const ENTRY: usize = 16;
/// The largest number that a move before a call may load for the call to be one without a function.
const NUMBER_MAX: u32 = 1023;

/// A function: its first address, and the address behind its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The first address.
    pub start: u64,
    /// The address behind the last instruction.
    pub end: u64,
}

/// The table of an object.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The address of the table.
    address: u64,
    /// Pairs of distances from the address: of the function, and of its entry.
    pairs: &'a [u8],
}

impl<'a> Table<'a> {
    /// Reads the head of the table whose bytes are at `address`. `None` if it has another form than
    /// linkers give it: distances of four bytes, sorted.
    #[must_use]
    pub fn read(address: u64, bytes: &'a [u8]) -> Option<Self> {
        /// Version 1; the encodings `pcrel | sdata4`, `udata4` and `datarel | sdata4`.
        const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let count = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize;
        let pairs = bytes.get(12..12 + count.checked_mul(8)?)?;
        (bytes.starts_with(&HEAD) && count > 0).then_some(Self { address, pairs })
    }

    fn count(&self) -> usize {
        self.pairs.len() / 8
    }

    /// Returns the addresses of a function and of its entry.
    fn pair(&self, index: usize) -> Option<[u64; 2]> {
        let pair: &[u8; 8] = self.pairs.get(8 * index..)?.first_chunk()?;
        let [a, b, c, d, e, f, g, h] = *pair;
        let at = |distance: [u8; 4]| {
            self.address.wrapping_add_signed(i32::from_le_bytes(distance).into())
        };
        Some([at([a, b, c, d]), at([e, f, g, h])])
    }

    /// Returns true if the address is between the first function and the beginning of the last one.
    /// Bytes outside of that range are mostly no code: headers, symbols, constants.
    #[must_use]
    pub fn spans(&self, at: u64) -> bool {
        let first = self.pair(0).map_or(u64::MAX, |[start, _]| start);
        let last = self.pair(self.count() - 1).map_or(0, |[start, _]| start);
        (first..last.saturating_add(FUNCTION_MAX)).contains(&at)
    }

    /// Returns the function with the address, as far as the table alone tells. `entry` reads bytes
    /// of an entry at an address.
    pub fn function(
        &self,
        at: u64,
        entry: impl FnOnce(u64) -> Option<[u8; ENTRY]>,
    ) -> Option<Function> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.pair(middle)?[0] <= at { low = middle + 1 } else { high = middle }
        }
        let [start, place] = self.pair(low.checked_sub(1)?)?;
        let bytes = entry(place)?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        // The entry holds its function's address as a distance from itself, in the usual encoding:
        // if not, it is not understood.
        let own = (place + 8).wrapping_add_signed(i32::from_le_bytes(word(8)).into());
        let end = start.checked_add(u32::from_le_bytes(word(12)).into())?;
        (own == start && at < end && end - start <= FUNCTION_MAX).then_some(Function { start, end })
    }
}

/// What the bytes of a system call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A system call.
    Call,
    /// A part of another instruction, or no code at all.
    Other,
    /// Nobody knows.
    Doubtful,
}

/// Tells what a candidate in no known function is.
#[must_use]
pub fn without_function(call: &Call) -> Verdict {
    match call.number {
        Some(1..=NUMBER_MAX) if call.is_certain => Verdict::Call,
        _ => Verdict::Doubtful,
    }
}

/// Tells what a candidate at `at` is, by the bytes of its function, which begins at `start`.
#[must_use]
pub fn within_function(at: u64, start: u64, bytes: &[u8]) -> Verdict {
    for one in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
        if one.is_invalid() {
            // Data between instructions: from here on anything may be anything.
            return Verdict::Doubtful;
        }
        if one.ip() == at {
            let is_call = one.code() == Code::Syscall && one.len() == 2;
            return if is_call { Verdict::Call } else { Verdict::Other };
        }
        if one.next_ip() > at {
            return Verdict::Other;
        }
    }
    Verdict::Doubtful
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const TABLE: u64 = 0x1000;

    /// A table of functions at these distances, with an entry at `0x800 + 16 * index` for each.
    fn table(functions: &[i32]) -> Vec<u8> {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
        bytes.extend((functions.len() as u32).to_le_bytes());
        for (index, function) in (0i32..).zip(functions) {
            bytes.extend(function.to_le_bytes());
            bytes.extend((0x800 + 16 * index).to_le_bytes());
        }
        bytes
    }

    fn entry(place: u64, start: u64, len: u32) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let distance = start.wrapping_sub(place + 8) as u32;
        bytes[8..12].copy_from_slice(&distance.to_le_bytes());
        bytes[12..].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    #[test]
    fn functions_are_found_with_their_ends() {
        let bytes = table(&[-0x800, -0x700, 0x100]);
        let table = Table::read(TABLE, &bytes).unwrap();
        let starts = [0x800, 0x900, 0x1100];
        let find = |at| {
            let read = |place: u64| {
                Some(entry(place, starts[((place - TABLE - 0x800) / 16) as usize], 0x80))
            };
            table.function(at, read)
        };
        assert_eq!(find(0x7ff), None);
        assert_eq!(find(0x800), Some(Function { start: 0x800, end: 0x880 }));
        assert_eq!(find(0x880), None);
        assert_eq!(find(0x93f).unwrap().start, 0x900);
        assert_eq!(find(0x1100).unwrap().start, 0x1100);
        assert!(table.spans(0x800) && !table.spans(0x7ff) && !table.spans(0x20_0000));
        // An entry of another function.
        assert_eq!(table.function(0x800, |place| Some(entry(place, 0x801, 9))), None);
        assert!(Table::read(TABLE, &bytes[..20]).is_none());
    }

    #[test]
    fn a_call_is_one_if_its_function_comes_to_it() {
        // nop; mov ecx, 0x050f; syscall; ret
        let code = b"\x90\xb9\x0f\x05\0\0\x0f\x05\xc3";
        let verdict = |at: u64| within_function(0x100 + at, 0x100, code);
        assert_eq!(
            [verdict(2), verdict(6), verdict(8)],
            [Verdict::Other, Verdict::Call, Verdict::Other]
        );
        assert_eq!(verdict(20), Verdict::Doubtful);
        assert_eq!(
            within_function(0x106, 0x100, b"\x06\x90\x90\x90\x90\x90\x0f\x05"),
            Verdict::Doubtful
        );
        let call = Call { at: 1, number: Some(232), is_certain: true };
        assert_eq!(without_function(&call), Verdict::Call);
        assert_eq!(without_function(&Call { number: Some(0), ..call }), Verdict::Doubtful);
        assert_eq!(without_function(&Call { number: None, ..call }), Verdict::Doubtful);
    }
}
