//! Numbers for holdings of a filter that are made more than once.
//!
//! Not here: the names (`adopt`).

/// The numbers in the names of what a filter closes and makes anew while it exists: its hooks and
/// its group. With a name of its own each is released, and the next one held, by a keeper that goes
/// by names.
#[derive(Debug, Default)]
pub(crate) struct HoldingNumbers {
    last: u32,
    pub(crate) hook: u32,
    pub(crate) xdp: u32,
    pub(crate) group: u32,
}

impl HoldingNumbers {
    /// Returns a number that no earlier holding had.
    pub(crate) fn fresh(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// Notes the number of a holding that was taken over.
    pub(crate) fn adopted(&mut self, number: u32) -> u32 {
        self.last = self.last.max(number);
        number
    }
}
