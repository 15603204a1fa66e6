//! The row of entries itself: cutting, marking and joining them, and the sums that go with it.
//!
//! Not here: the meaning of the marks, and when they change ([`super`]).

use super::{Mark, Scoreboard, SentRange};
use crate::position::Span;

impl Scoreboard {
    /// Cuts the entry at `at` so that the part within `block` is an entry, and returns that entry's
    /// index; `None` if there is no room for more entries.
    pub(super) fn isolate(&mut self, at: usize, block: Span) -> Option<usize> {
        let span = self.entries[at].span;
        let cuts = usize::from(span.start < block.start) + usize::from(block.end < span.end);
        // A part that touches an entry reported before is joined with it, which frees one entry.
        let touches =
            at > 0 && span.start >= block.start && self.entries[at - 1].mark == Mark::Sacked;
        // An entry that cannot be cut would be marked beyond the block.
        let most = if cuts > usize::from(touches) { self.limit * 3 / 2 } else { self.limit * 2 };
        if self.entries.len() + cuts > most {
            return None;
        }
        if block.end < span.end {
            self.split(at, block.end);
        }
        if span.start < block.start {
            self.split(at, block.start);
            return Some(at + 1);
        }
        Some(at)
    }

    /// Limits the duplicates: bytes that are lost have not arrived.
    pub(super) fn limit_duplicates(&mut self) {
        self.duplicates = self.duplicates.min(self.outstanding() - self.lost);
    }

    pub(super) fn next_order(&mut self, span: Span) -> u64 {
        self.order += u64::from(span.start < self.sent_to);
        self.sent_to = span.end;
        self.order
    }

    pub(super) fn lose(&mut self, at: usize) {
        let start = self.entries[at].span.start;
        self.lost_from = if self.lost == 0 { start } else { self.lost_from.min(start) };
        self.mark(at, Mark::Lost);
    }

    pub(super) fn mark(&mut self, at: usize, mark: Mark) {
        let entry = self.entries[at];
        self.uncount(entry.mark, entry.span.len());
        self.entries[at].mark = mark;
        if let Some(sum) = self.sum(mark) {
            *sum += entry.span.len();
        }
    }

    pub(super) fn uncount(&mut self, mark: Mark, length: u64) {
        if let Some(sum) = self.sum(mark) {
            *sum -= length;
        }
    }

    pub(super) fn sum(&mut self, mark: Mark) -> Option<&mut u64> {
        match mark {
            Mark::Sent => None,
            Mark::Lost => Some(&mut self.lost),
            Mark::Resent => Some(&mut self.resent),
            Mark::Sacked => Some(&mut self.sacked),
        }
    }

    /// Splits the entry at `at`; the second part begins at `position`. Returns false if the memory
    /// is used up.
    pub(super) fn split(&mut self, at: usize, position: u64) -> bool {
        if self.entries.len() >= 2 * self.limit {
            return false;
        }
        let mut second = self.entries[at];
        second.span.start = position;
        self.entries[at].span.end = position;
        self.entries.insert(at + 1, second);
        true
    }

    /// Joins the entry at `at` with neighbours in the same state, and returns its index.
    pub(super) fn join(&mut self, at: usize) -> usize {
        if at + 1 < self.entries.len() {
            self.join_pair(at);
        }
        if at > 0 && self.join_pair(at - 1) { at - 1 } else { at }
    }

    pub(super) fn join_pair(&mut self, at: usize) -> bool {
        let (one, two) = (self.entries[at], self.entries[at + 1]);
        let alike = one.mark == two.mark && one.again == two.again;
        // The time of reported bytes does not matter any more. The time of the others is kept while
        // there is room.
        let timeless = one.mark == Mark::Sacked || self.entries.len() > self.limit;
        let same_time = (one.sent_first, one.sent_last, one.order)
            == (two.sent_first, two.sent_last, two.order);
        if !(alike && (timeless || same_time)) {
            return false;
        }
        self.entries[at] = SentRange {
            span: Span::new(one.span.start, two.span.end),
            sent_first: one.sent_first.min(two.sent_first),
            sent_last: one.sent_last.max(two.sent_last),
            order: one.order.max(two.order),
            ..one
        };
        self.entries.remove(at + 1);
        true
    }
}
