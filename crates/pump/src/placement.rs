//! The places for a segment's payload, and the facts about a segment beside its header.
//!
//! Not here: the choice of places (the head of `round`).

use crate::session_number::SessionNumber;

/// The buffer of a call that takes bytes of one session. While it is in use nobody else may read of
/// that session's stream, and when it is made the stream must be empty; the maker sees to both.
#[derive(Debug)]
pub struct Placement<'b> {
    pub(crate) number: SessionNumber,
    room: &'b mut [u8],
    done: usize,
    /// Bytes of the last segment placed.
    last: usize,
}

impl<'b> Placement<'b> {
    /// Makes the placement for the session with that number.
    pub fn new(number: SessionNumber, room: &'b mut [u8]) -> Self {
        Self { number, room, done: 0, last: 0 }
    }

    /// Counts the bytes placed so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the room that is left.
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        &mut self.room[self.done..]
    }

    /// Returns true if a segment like the last one would not fit.
    pub(crate) fn has_little_room(&self) -> bool {
        self.room.len() - self.done < self.last
    }

    /// Notes that `len` more bytes were placed.
    pub(crate) fn advance(&mut self, len: usize) {
        self.done += len;
        self.last = len;
    }
}

/// The sizes of a payload's parts, in order: for the call that waits, up to the end of the ring,
/// and from its beginning.
pub(crate) type Sizes = [usize; 3];

/// The places of a segment's payload.
pub(crate) struct Places<'a> {
    pub(crate) parts: [&'a mut [u8]; 3],
    /// The size of each part.
    pub(crate) sizes: Sizes,
}

/// The facts about a segment that are neither in its header nor in its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The size of the segments from which it was merged (GRO); 0 if it is one segment.
    pub(crate) segment_size: u16,
    /// A router has marked it for congestion (RFC 3168, CE).
    pub(crate) congestion: bool,
}
