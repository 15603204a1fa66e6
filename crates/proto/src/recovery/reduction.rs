//! The record of a window reduction that may turn out to be needless.
//!
//! Not here: the decision to take a reduction back (`undo`). The fields are Linux's `undo_marker`
//! and `undo_retrans`.

use crate::position::Span;

/// A reduction until it is complete or taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    /// The first unacknowledged position when the reduction was made.
    marker: u64,
    /// Bytes retransmitted since then and not reported as duplicates; `None` before the first
    /// retransmission.
    again: Option<u64>,
}

impl Undo {
    pub(super) fn begin(una: u64, resent: u64) -> Undo {
        Undo { marker: una, again: (resent > 0).then_some(resent) }
    }

    pub(super) fn on_again(&mut self, bytes: u64) {
        self.again = Some(self.again.unwrap_or(0) + bytes);
    }

    pub(super) fn on_duplicate(&mut self, block: Span) {
        if block.end > self.marker
            && let Some(again) = &mut self.again
        {
            *again = again.saturating_sub(block.len());
        }
    }

    pub(super) fn all_were_duplicates(self) -> bool {
        self.again == Some(0)
    }
}
