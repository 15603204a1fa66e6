//! The ranges of received bytes beyond the next expected position, and the SACK blocks that report
//! them to the peer.
//!
//! Not here: the bytes (the connection copies each segment into the receive ring itself) and the
//! window (the caller passes only bytes within it). Read [`crate::position`] first.
//!
//! The number of ranges is fixed when the assembler is created. A segment that would need one more
//! range is refused, and the peer retransmits it later; a segment that joins ranges or extends a
//! range is always taken. So a peer that sends every second byte costs bounded memory and time.

use alloc::vec::Vec;

use crate::position::Span;

/// Most SACK blocks that one segment can carry: three beside timestamps, four without (RFC 2018,
/// 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// The outcome for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The new next expected position: the bytes before it can be read.
    Advanced(u64),
    /// The bytes are kept for later; a gap is before them.
    Kept,
    /// All of the bytes had arrived before. A duplicate acknowledgement with a D-SACK block is owed
    /// (RFC 2883).
    Duplicate,
    /// There is no room for another range. The caller must treat the bytes as lost.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    span: Span,
    /// The number of the segment that last extended the range: the latest range is reported first
    /// (RFC 2018, 4).
    touched: u64,
}

/// The ranges beyond the next expected position: disjoint, not adjacent, in order.
#[derive(Debug)]
pub struct Assembler {
    ranges: Vec<Range>,
    capacity: usize,
    count: u64,
    duplicate: Option<Span>,
}

impl Assembler {
    /// Creates an assembler for up to `capacity` ranges (at least one). Later calls do not
    /// allocate.
    pub fn new(capacity: usize) -> Assembler {
        let capacity = capacity.max(1);
        Assembler { ranges: Vec::with_capacity(capacity), capacity, count: 0, duplicate: None }
    }

    /// Returns true if no bytes wait behind a gap.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of bytes that wait behind a gap.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.span.len()).sum()
    }

    /// Returns the ranges in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.ranges.iter().map(|range| range.span)
    }

    /// Returns the end of the highest range: nothing beyond it has arrived.
    pub fn highest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.span.end)
    }

    /// Drops all ranges; the peer has to send their bytes again. RFC 2018, 8 allows a receiver to
    /// do so.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.duplicate = None;
    }

    /// Notes the arrival of a segment. `next` is the next expected position, and `segment` the part
    /// of the segment inside the window, not cut at `next`. A part that had arrived before is kept
    /// for the D-SACK block of the next acknowledgement.
    pub fn insert(&mut self, next: u64, segment: Span) -> Inserted {
        self.note_duplicate(next, segment);
        let fresh = Span::new(segment.start.max(next), segment.end);
        if fresh.is_empty() {
            return Inserted::Duplicate;
        }
        if fresh.start == next {
            return Inserted::Advanced(self.advance(fresh.end));
        }
        // The ranges [first, last) overlap or touch the segment.
        let first = self.ranges.partition_point(|range| range.span.end < fresh.start);
        let last =
            first + self.ranges[first..].partition_point(|range| range.span.start <= fresh.end);
        let touched = self.count + 1;
        if first == last {
            if self.ranges.len() == self.capacity {
                return Inserted::Full;
            }
            self.count = touched;
            self.ranges.insert(first, Range { span: fresh, touched });
            return Inserted::Kept;
        }
        self.count = touched;
        let known = self.ranges[first].span.covers(fresh);
        let start = fresh.start.min(self.ranges[first].span.start);
        let end = fresh.end.max(self.ranges[last - 1].span.end);
        self.ranges[first] = Range { span: Span::new(start, end), touched };
        self.ranges.drain(first + 1..last);
        if known { Inserted::Duplicate } else { Inserted::Kept }
    }

    /// Writes the SACK blocks for an acknowledgement of `next` and returns their number: first a
    /// D-SACK block if one is owed (RFC 2883, 4; reported once), then the ranges in the order of
    /// their last growth, the latest first (RFC 2018, 4).
    pub fn sack_blocks(&mut self, next: u64, blocks: &mut [Span]) -> usize {
        let mut written = 0;
        if let Some(duplicate) = self.duplicate.take()
            && !blocks.is_empty()
        {
            blocks[0] = duplicate;
            written = 1;
            // A duplicate inside a waiting range is followed by that range (RFC 2883, 4, rule 4).
            if duplicate.start >= next
                && blocks.len() > 1
                && let Some(range) = self.ranges.iter().find(|range| range.span.covers(duplicate))
            {
                blocks[1] = range.span;
                written = 2;
            }
        }
        let first = written;
        let mut before = u64::MAX;
        while written < blocks.len() {
            let latest = self
                .ranges
                .iter()
                .filter(|range| range.touched < before)
                .max_by_key(|range| range.touched);
            let Some(range) = latest else { break };
            before = range.touched;
            if !blocks[..first].contains(&range.span) {
                blocks[written] = range.span;
                written += 1;
            }
        }
        written
    }

    /// Returns true if the next acknowledgement owes a D-SACK block.
    pub fn duplicate_is_owed(&self) -> bool {
        self.duplicate.is_some()
    }

    /// Keeps the part of `segment` that had arrived before: the part below `next`, or else the part
    /// in the first waiting range that the segment meets.
    fn note_duplicate(&mut self, next: u64, segment: Span) {
        let below = Span::new(segment.start, segment.end.min(next));
        if !below.is_empty() {
            self.duplicate = Some(below);
            return;
        }
        let at = self.ranges.partition_point(|range| range.span.end <= segment.start);
        if let Some(range) = self.ranges.get(at) {
            let common = range.span.common(segment);
            if !common.is_empty() {
                self.duplicate = Some(common);
            }
        }
    }

    /// Advances the next expected position to `end`, and beyond the ranges that `end` reaches.
    /// Returns the new position.
    fn advance(&mut self, mut end: u64) -> u64 {
        let passed = self.ranges.partition_point(|range| range.span.start <= end);
        if let Some(range) = passed.checked_sub(1).and_then(|last| self.ranges.get(last)) {
            end = end.max(range.span.end);
        }
        self.ranges.drain(..passed);
        end
    }
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
