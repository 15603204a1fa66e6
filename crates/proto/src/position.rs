//! Positions in a byte stream, which do not wrap, and spans between two positions.
//!
//! A position is a `u64` whose low 32 bits are the sequence number on the wire. A SYN or a FIN
//! takes one position, as it takes one sequence number. The engine's state is in positions, so that
//! "before" is `<`, a ring buffer's index is a mask, and no comparison can be wrong by a wrap; only
//! the code that reads or writes segments converts. Not here: sequence numbers as packets have them
//! (`sojourn_wire::tcp::SeqNum`).

/// Returns the first position of a stream of which only a sequence number is known. The position is
/// so far from 0 that a step back by the largest distance of two sequence numbers (2^31) stays
/// above 0.
pub const fn start(sequence: u32) -> u64 {
    (1 << 32) | sequence as u64
}

/// Returns the position nearest to `reference` whose low 32 bits are `sequence`: at most 2^31 bytes
/// away (RFC 9293, 3.4).
pub const fn near(reference: u64, sequence: u32) -> u64 {
    let distance = sequence.wrapping_sub(reference as u32).cast_signed();
    reference.saturating_add_signed(distance as i64)
}

/// The positions from `start` up to, but without, `end`. A span is empty if `end` is not after
/// `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first position.
    pub start: u64,
    /// The position after the last.
    pub end: u64,
}

impl Span {
    /// Creates the span from `start` up to `end`.
    pub const fn new(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    /// Returns the number of positions.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns true if the span has no positions.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns true if all of `other` lies within this span.
    pub const fn covers(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns the positions that both spans have.
    pub fn common(self, other: Span) -> Span {
        Span { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Returns the first `length` positions, or all if there are fewer.
    pub fn first(self, length: u64) -> Span {
        Span { start: self.start, end: self.end.min(self.start.saturating_add(length)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_is_the_low_half_of_a_position() {
        assert_eq!(start(7) as u32, 7);
        assert_eq!(near(start(u32::MAX), 3), start(u32::MAX) + 4);
        assert_eq!(near(start(3), u32::MAX), start(3) - 4);
        assert_eq!(near(start(0), 1 << 30), start(0) + (1 << 30));
    }

    #[test]
    fn spans_meet_where_both_are() {
        let span = Span::new(10, 20);
        assert_eq!(span.common(Span::new(15, 30)), Span::new(15, 20));
        assert!(span.common(Span::new(20, 30)).is_empty());
        assert_eq!(span.first(3).len(), 3);
        assert_eq!(span.first(99), span);
        assert!(span.covers(Span::new(10, 20)) && !span.covers(Span::new(9, 12)));
    }
}
