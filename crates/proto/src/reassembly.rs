//! Which bytes beyond the next expected one have arrived: the ranges of the receive ring that are
//! already filled, and the SACK blocks that tell the peer of them.
//!
//! Not here: the bytes (the connection copies each segment to its place in the receive ring before
//! or after asking) and the window (the caller passes only what lies within it). Read
//! [`crate::position`] first.
//!
//! The number of ranges is fixed when the assembler is made. A segment that would need one more is
//! refused and comes again later; a segment that joins ranges or extends one is always taken. So a
//! peer that sends every second byte costs a bounded amount of memory, and of time.

use alloc::vec::Vec;

use crate::position::Span;

/// Most SACK blocks that one segment can carry: three beside timestamps, four without (RFC 2018,
/// 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The next expected position is now this one: the bytes before it can be read.
    Advanced(u64),
    /// The bytes are kept for later; a gap is before them.
    Kept,
    /// All of the bytes were here before. A duplicate acknowledgement with a D-SACK block is owed
    /// (RFC 2883).
    Duplicate,
    /// There is no room for another range: the bytes are as good as lost, and must not be counted
    /// as here.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    span: Span,
    /// When it last grew, counted in segments, so that the latest is reported first (RFC 2018, 4).
    touched: u64,
}

/// The ranges beyond the next expected position: disjoint, not even touching, in order.
#[derive(Debug)]
pub struct Assembler {
    ranges: Vec<Range>,
    capacity: usize,
    count: u64,
    duplicate: Option<Span>,
}

impl Assembler {
    /// An assembler that keeps up to `capacity` ranges (at least one). This allocates; nothing
    /// after it does.
    pub fn new(capacity: usize) -> Assembler {
        let capacity = capacity.max(1);
        Assembler { ranges: Vec::with_capacity(capacity), capacity, count: 0, duplicate: None }
    }

    /// Whether nothing waits behind a gap.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges wait.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes that wait behind a gap.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.span.len()).sum()
    }

    /// The ranges that wait, in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.ranges.iter().map(|range| range.span)
    }

    /// The end of the highest range: nothing beyond it has arrived.
    pub fn highest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.span.end)
    }

    /// Forgets everything: what waited has to be sent again (the receiver may do this, RFC 2018,
    /// 8).
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.duplicate = None;
    }

    /// Takes note of a segment's bytes, `next` being the next expected position and `segment` what
    /// of the segment lies inside the window, not cut at `next`. Any part that was here before is
    /// remembered for the D-SACK block of the next acknowledgement.
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

    /// Writes the blocks that an acknowledgement of `next` should carry, and gives their number: a
    /// D-SACK block first if one is owed (RFC 2883, 4; told once), then the range that grew last,
    /// then the others, the latest before the earlier (RFC 2018, 4).
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
        let told = written;
        let mut before = u64::MAX;
        while written < blocks.len() {
            let latest = self
                .ranges
                .iter()
                .filter(|range| range.touched < before)
                .max_by_key(|range| range.touched);
            let Some(range) = latest else { break };
            before = range.touched;
            if !blocks[..told].contains(&range.span) {
                blocks[written] = range.span;
                written += 1;
            }
        }
        written
    }

    /// Whether the next acknowledgement has a D-SACK block to tell.
    pub fn duplicate_is_owed(&self) -> bool {
        self.duplicate.is_some()
    }

    /// The part of `segment` that was here before: what is below `next`, or else the first part of
    /// a waiting range.
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

    /// The stream now reaches `end`; whatever range that meets is part of it.
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
