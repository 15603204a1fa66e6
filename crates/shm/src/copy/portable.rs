//! Copies on processors that we have no vector moves for: by words. Read `copy` first.

/// How a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    /// Words.
    Words,
}

impl Routine {
    /// Every way, on any processor of this architecture.
    pub const ALL: [Self; 1] = [Self::Words];

    /// The best way here.
    pub fn here() -> Self {
        Self::Words
    }

    /// Whether the processor can.
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

/// Nothing: there is no instruction for it that every processor knows.
pub(super) fn prefetch_for_writing(_: *mut u8) {}
