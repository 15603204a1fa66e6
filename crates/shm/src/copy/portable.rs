//! Copies by words, for processors without a vector routine here. Read `copy` first.

/// A copy routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    /// Words.
    Words,
}

impl Routine {
    /// All routines of this architecture.
    pub const ALL: [Self; 1] = [Self::Words];

    /// Returns the best routine for this processor.
    pub fn here() -> Self {
        Self::Words
    }

    /// Returns true if the processor supports the routine.
    pub fn is_there(self) -> bool {
        true
    }
}

/// # Safety
/// As for [`super::racy`].
pub(super) unsafe fn bulk(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { super::word_move(source, target, len) }
}

/// # Safety
/// As for [`super::racy`].
pub(super) unsafe fn bulk_by(_: Routine, source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { super::word_move(source, target, len) }
}

/// # Safety
/// As for [`super::racy`].
pub(super) unsafe fn blocks(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { super::word_move(source, target, len) }
}

/// Does nothing: there is no portable prefetch instruction.
pub(super) fn prefetch_for_writing(_: *mut u8) {}
