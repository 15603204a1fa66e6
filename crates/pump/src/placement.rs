//! Where the payload of a segment goes, and what is to be known of it beside its header.
//!
//! Who names places, and why: the head of `round`.

/// A call that takes bytes of one session, and where it wants them. Whoever makes one sees to it
/// that nobody else reads of that session's stream while it is in use, and that nothing is there to
/// be read when it is made.
#[derive(Debug)]
pub struct Placement<'b> {
    pub(crate) number: u32,
    room: &'b mut [u8],
    done: usize,
    /// Bytes of the last segment that came.
    last: usize,
}

impl<'b> Placement<'b> {
    /// Of the session with that number.
    pub fn new(number: u32, room: &'b mut [u8]) -> Self {
        Self { number, room, done: 0, last: 0 }
    }

    /// Bytes that are there now.
    pub fn done(&self) -> usize {
        self.done
    }

    /// What there is room for.
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        &mut self.room[self.done..]
    }

    /// The next segment may be longer than what is left of the room, if it is like the last.
    pub(crate) fn has_little_room(&self) -> bool {
        self.room.len() - self.done < self.last
    }

    /// So many more bytes are there.
    pub(crate) fn advance(&mut self, len: usize) {
        self.done += len;
        self.last = len;
    }
}

/// Parts of a segment's payload, in order: for the call that waits, and up to the end and from the
/// beginning of the ring.
pub(crate) type Sizes = [usize; 3];

/// What is to be known of a segment beside its header and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Of the segments that it was merged of; 0: it is one.
    pub(crate) segment_size: u16,
    /// A router has marked it.
    pub(crate) congestion: bool,
}
