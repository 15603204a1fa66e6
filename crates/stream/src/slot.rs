//! The name of a slot within its inbox.
//!
//! Not here: the bitmaps and times, where a slot is a position (`bits`, `arrivals`). Read `inbox`
//! first.

/// The number of a slot in its inbox. It comes from the server's process or is a bit that a peer
/// has set; one that the inbox does not have ([`crate::Inbox::SLOTS`]) names nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(pub u32);

impl SlotNumber {
    /// Returns the number as an index into a list of an inbox's slots.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
