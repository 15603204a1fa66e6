//! What was sent, when, and what is known to have become of it: the memory of loss recovery.
//!
//! Not here: the bytes themselves, and any judgement about loss; [`crate::rack`] judges, this file
//! keeps the marks and the sums. Read [`crate::position`] first.
//!
//! # Theory of operation
//! What is outstanding is a row of entries without gaps, from the first unacknowledged position to
//! the next one to send. An entry is a range of bytes with one mark and one time of sending;
//! neighbours that are alike are one entry, so a burst of segments costs one, and so does a run of
//! bytes that were reported by SACK. The row's memory is allocated once. When it is nearly used up,
//! neighbours with the same mark become one even if they were sent at different times, and the
//! entry keeps the first and the last time: whoever judges takes the one that makes him wait. When
//! even that does not help, a SACK block counts only as far as it fits, which RFC 2018 (8) allows,
//! since SACK only advises.

mod row;

use alloc::collections::VecDeque;

use crate::position::Span;
use crate::time::Instant;

/// What is known of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Sent, and nothing heard.
    Sent,
    /// Deemed lost, and not sent again since.
    Lost,
    /// Sent again, and nothing heard.
    Resent,
    /// Reported by SACK.
    Sacked,
}

/// A range of outstanding bytes that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRange {
    /// The bytes.
    pub span: Span,
    /// When the first of them was sent last.
    pub sent_first: Instant,
    /// When the last of them was sent last.
    pub sent_last: Instant,
    /// Which of several things sent at that time went first: it counts how often sending went back
    /// to an earlier position.
    pub order: u64,
    /// What is known.
    pub mark: Mark,
    /// Whether any were ever sent twice: then an acknowledgement does not say which time it is for
    /// (Karn).
    pub again: bool,
}

/// Bytes that are newly known to have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The entry, or the part of it, as it was before.
    pub entry: SentRange,
    /// Whether SACK told, not the acknowledgement number.
    pub selective: bool,
    /// Whether something that was sent after it had been reported before.
    pub late: bool,
}

/// What to do with an entry that [`Scoreboard::judge`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is lost.
    Lost,
    /// It may yet arrive.
    Wait,
    /// It may yet arrive, and so may all that was sent later than it.
    Later,
}

/// The row of outstanding entries and the sums over their marks, in bytes.
#[derive(Debug)]
pub struct Scoreboard {
    entries: VecDeque<SentRange>,
    /// Above this many entries neighbours are joined more readily, and SACK may not split any more.
    /// The memory is for twice as many, so that sending again, which makes one more entry of a lost
    /// one at most, always finds room.
    limit: usize,
    una: u64,
    nxt: u64,
    sacked: u64,
    lost: u64,
    resent: u64,
    /// Duplicate acknowledgements in bytes, when there is no SACK.
    duplicates: u64,
    /// The end of the highest entry that was ever reported, or `una`.
    fack: u64,
    /// No entry before this position is lost.
    lost_from: u64,
    /// No entry from this position on was ever sent twice.
    again_to: u64,
    /// How often sending went back to an earlier position, and where the last transmission ended.
    order: u64,
    sent_to: u64,
}

impl Scoreboard {
    /// Nothing outstanding; the next position to send is `nxt`. Allocates memory for twice `limit`
    /// entries, and never again.
    pub fn new(nxt: u64, limit: usize) -> Scoreboard {
        let limit = limit.max(8);
        Scoreboard {
            entries: VecDeque::with_capacity(2 * limit),
            limit,
            una: nxt,
            nxt,
            sacked: 0,
            lost: 0,
            resent: 0,
            duplicates: 0,
            fack: nxt,
            lost_from: nxt,
            again_to: nxt,
            order: 0,
            sent_to: nxt,
        }
    }

    /// The first unacknowledged position.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The next position to send for the first time.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Bytes sent and not acknowledged by number.
    pub fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Bytes reported by SACK, or by duplicate acknowledgements where there is no SACK.
    pub fn sacked(&self) -> u64 {
        self.sacked + self.duplicates
    }

    /// Bytes deemed lost and not sent again since.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes sent again and not heard of since.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Bytes believed to be in the network (`pipe` of RFC 6675).
    pub fn in_flight(&self) -> u64 {
        self.outstanding().saturating_sub(self.sacked + self.lost + self.duplicates)
    }

    /// The end of the highest bytes that were reported.
    pub fn fack(&self) -> u64 {
        self.fack
    }

    /// The end of the highest bytes that were ever sent twice, or the first unacknowledged
    /// position.
    pub fn again_to(&self) -> u64 {
        self.again_to
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, for tests and for looking at them.
    pub fn entries(&self) -> impl Iterator<Item = &SentRange> {
        self.entries.iter()
    }

    /// The first outstanding entry.
    pub fn head(&self) -> Option<&SentRange> {
        self.entries.front()
    }

    /// The last outstanding entry.
    pub fn tail(&self) -> Option<&SentRange> {
        self.entries.back()
    }

    /// Whether new data can be noted. If not, acknowledgements will make room.
    pub fn has_room(&self) -> bool {
        self.entries.len() < self.limit
            || self.entries.back().is_some_and(|entry| entry.mark == Mark::Sent)
    }

    /// `length` bytes count as sent, once or more often, nobody knows when: an imported session's.
    pub fn restore(&mut self, now: Instant, length: u64) {
        self.push(now, length);
        if let Some(last) = self.entries.back_mut() {
            last.again = true;
        }
        self.again_to = self.nxt;
    }

    /// `length` bytes were sent for the first time.
    pub fn push(&mut self, now: Instant, length: u64) {
        if length == 0 {
            return;
        }
        let span = Span::new(self.nxt, self.nxt + length);
        self.nxt = span.end;
        let order = self.next_order(span);
        let crowded = self.entries.len() >= self.limit;
        if let Some(last) = self.entries.back_mut()
            && last.mark == Mark::Sent
            && !last.again
            && (crowded || (last.sent_first == now && last.sent_last == now && last.order == order))
        {
            last.span.end = span.end;
            (last.sent_last, last.order) = (now, order);
            return;
        }
        self.entries.push_back(SentRange {
            span,
            sent_first: now,
            sent_last: now,
            order,
            mark: Mark::Sent,
            again: false,
        });
    }

    /// All before `una` has arrived. Calls `delivered` for every entry, or part of one, of which
    /// that is news.
    pub fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(&Delivery)) {
        let una = una.min(self.nxt);
        while let Some(&entry) = self.entries.front() {
            let part = Span::new(entry.span.start, entry.span.end.min(una));
            if part.is_empty() {
                break;
            }
            self.uncount(entry.mark, part.len());
            if entry.mark != Mark::Sacked {
                let late = part.end < self.fack;
                let entry = SentRange { span: part, ..entry };
                delivered(&Delivery { entry, selective: false, late });
            }
            if part.end == entry.span.end {
                self.entries.pop_front();
            } else if let Some(front) = self.entries.front_mut() {
                front.span.start = una;
            }
        }
        self.una = self.una.max(una);
        self.fack = self.fack.max(self.una);
        self.lost_from = self.lost_from.max(self.una);
        self.again_to = self.again_to.max(self.una);
    }

    /// The peer reports `block`; what of it is not outstanding does not count. `fack` is what
    /// [`Scoreboard::fack`] was before the acknowledgement that carries the block. Calls
    /// `delivered` as [`Scoreboard::acknowledge`] does.
    pub fn sack(&mut self, block: Span, fack: u64, mut delivered: impl FnMut(&Delivery)) {
        let block = block.common(Span::new(self.una, self.nxt));
        if block.is_empty() {
            return;
        }
        let mut at = self.entries.partition_point(|entry| entry.span.end <= block.start);
        while at < self.entries.len() && self.entries[at].span.start < block.end {
            if self.entries[at].mark == Mark::Sacked {
                at += 1;
                continue;
            }
            let Some(chosen) = self.isolate(at, block) else {
                at += 1;
                continue;
            };
            let entry = self.entries[chosen];
            delivered(&Delivery { entry, selective: true, late: entry.span.end < fack });
            self.fack = self.fack.max(entry.span.end);
            self.mark(chosen, Mark::Sacked);
            at = self.join(chosen) + 1;
        }
    }

    /// `span` was sent again. What of it was reported meanwhile keeps its mark.
    pub fn resend(&mut self, now: Instant, span: Span) {
        let span = span.common(Span::new(self.una, self.nxt));
        if span.is_empty() {
            return;
        }
        self.again_to = self.again_to.max(span.end);
        let order = self.next_order(span);
        let mut at = self.entries.partition_point(|entry| entry.span.end <= span.start);
        while at < self.entries.len() && self.entries[at].span.start < span.end {
            if self.entries[at].mark == Mark::Sacked {
                at += 1;
                continue;
            }
            if self.entries[at].span.end > span.end {
                self.split(at, span.end);
            }
            if self.entries[at].span.start < span.start {
                at += usize::from(self.split(at, span.start));
            }
            self.mark(at, Mark::Resent);
            let entry = &mut self.entries[at];
            (entry.sent_first, entry.sent_last, entry.again) = (now, now, true);
            entry.order = order;
            at = self.join(at) + 1;
        }
        if self.lost_from >= span.start {
            self.lost_from = self.lost_from.max(span.end);
        }
    }

    /// The first bytes that are lost and were not sent again: `length` of them at most.
    pub fn next_lost(&self, length: u64) -> Option<Span> {
        if self.lost == 0 {
            return None;
        }
        let from = self.entries.partition_point(|entry| entry.span.end <= self.lost_from);
        let entry = self.entries.range(from..).find(|entry| entry.mark == Mark::Lost)?;
        Some(entry.span.first(length))
    }

    /// Shows every entry that is in the network to `verdict`, in order of position, and marks those
    /// lost that it condemns. Stops at the first one that may yet arrive from where on all was sent
    /// in order. Gives the bytes newly lost.
    pub fn judge(&mut self, mut verdict: impl FnMut(&SentRange) -> Verdict) -> u64 {
        let before = self.lost;
        let mut at = 0;
        while at < self.entries.len() {
            let entry = &self.entries[at];
            if matches!(entry.mark, Mark::Sent | Mark::Resent) {
                match verdict(entry) {
                    Verdict::Lost => {
                        self.lose(at);
                        at = self.join(at);
                    }
                    Verdict::Later if entry.span.start >= self.again_to => break,
                    Verdict::Wait | Verdict::Later => {}
                }
            }
            at += 1;
        }
        self.limit_duplicates();
        self.lost - before
    }

    /// Marks the first `length` bytes lost, unless they were sent again already (NewReno, where
    /// there is no SACK).
    pub fn lose_head(&mut self, length: u64) -> u64 {
        let Some(&head) = self.entries.front() else { return 0 };
        if head.mark != Mark::Sent {
            return 0;
        }
        if head.span.len() > length {
            self.split(0, head.span.start + length);
        }
        self.lose(0);
        self.limit_duplicates();
        self.entries[0].span.len()
    }

    /// Takes all marks of loss away: nothing was lost after all.
    pub fn absolve(&mut self) {
        for at in 0..self.entries.len() {
            if self.entries[at].mark == Mark::Lost {
                let mark = if self.entries[at].again { Mark::Resent } else { Mark::Sent };
                self.mark(at, mark);
            }
        }
        self.lost_from = self.nxt;
    }

    /// The peer threw away what it had reported (RFC 2018, 8): all that was reported counts as sent
    /// only.
    pub fn renege(&mut self) {
        for at in 0..self.entries.len() {
            if self.entries[at].mark == Mark::Sacked {
                let mark = if self.entries[at].again { Mark::Resent } else { Mark::Sent };
                self.mark(at, mark);
            }
        }
        self.duplicates = 0;
        self.fack = self.una;
    }

    /// One more duplicate acknowledgement on a connection without SACK: a segment of `mss` bytes
    /// left the network.
    pub fn add_duplicate(&mut self, mss: u64) {
        // At least one segment is missing, or there would be no duplicates.
        let missing = (self.lost + self.resent).max(mss);
        let most = self.outstanding().saturating_sub(missing);
        self.duplicates = (self.duplicates + mss).min(most);
    }

    /// Forgets the duplicate acknowledgements.
    pub fn clear_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// `advanced` bytes were acknowledged on a connection without SACK: one segment filled the gap,
    /// the others had been counted as duplicates.
    pub fn remove_duplicates(&mut self, advanced: u64, mss: u64) {
        self.duplicates = self.duplicates.saturating_sub(advanced.saturating_sub(mss));
        self.limit_duplicates();
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
