//! The scoreboard of outstanding bytes: when they were sent, and which of them are known to have
//! arrived, are deemed lost or were sent again.
//!
//! Not here: the bytes themselves, and the detection of loss; [`crate::rack`] judges, this file
//! keeps the marks and the sums. Read [`crate::position`] first.
//!
//! # Theory of operation
//! The outstanding bytes are a row of entries without gaps, from the first unacknowledged position
//! to the next one to send. An entry is a range of bytes with one mark and one time of sending;
//! equal neighbours are merged, so a burst of segments costs one entry, and so does a run of bytes
//! that SACK reported. The row's memory is allocated once. When the memory is nearly used up,
//! neighbours with the same mark are merged even if they were sent at different times, and the
//! entry keeps the first and the last time; RACK uses the one that makes it wait longer. When
//! merging does not free an entry, a SACK block counts only as far as it fits. RFC 2018 (8) allows
//! that, since SACK is advisory.

mod row;

use alloc::collections::VecDeque;

use crate::position::Span;
use crate::time::Instant;

/// The state of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Sent, without any report since.
    Sent,
    /// Deemed lost, and not sent again since.
    Lost,
    /// Sent again, without any report since.
    Resent,
    /// Reported by SACK.
    Sacked,
}

/// A range of outstanding bytes in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRange {
    /// The bytes.
    pub span: Span,
    /// The earliest time of the bytes' last transmissions.
    pub sent_first: Instant,
    /// The latest time of the bytes' last transmissions.
    pub sent_last: Instant,
    /// The order among transmissions at the same time: the number of times that sending had gone
    /// back to an earlier position.
    pub order: u64,
    /// The state of the bytes.
    pub mark: Mark,
    /// True if any of the bytes were ever retransmitted. An acknowledgement then does not tell
    /// which transmission it answers (Karn).
    pub again: bool,
}

/// Bytes that are newly known to have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The entry, or the delivered part of it, as it was before the acknowledgement.
    pub entry: SentRange,
    /// True if SACK reported the bytes, false if the acknowledgement number did.
    pub selective: bool,
    /// True if bytes at a higher position had been reported before.
    pub below_fack: bool,
}

/// The judgement of an entry in [`Scoreboard::judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The entry is lost.
    Lost,
    /// The entry may yet arrive.
    Wait,
    /// The entry may yet arrive, and so may all entries sent later.
    Later,
}

/// The row of outstanding entries and the sums over their marks, in bytes.
#[derive(Debug)]
pub struct Scoreboard {
    entries: VecDeque<SentRange>,
    /// The number of entries above which neighbours with different times are joined. Up to one and
    /// a half times as many, SACK may split entries. The memory is for twice as many, so that a
    /// retransmission, which makes at most one more entry, always finds room.
    limit: usize,
    una: u64,
    nxt: u64,
    sacked: u64,
    lost: u64,
    resent: u64,
    /// Duplicate acknowledgements in bytes, on a connection without SACK.
    duplicates: u64,
    /// The end of the highest entry that SACK ever reported, or `una`.
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
    /// Creates an empty scoreboard; the next position to send is `nxt`. Allocates memory for twice
    /// `limit` entries; later calls do not allocate.
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

    /// Returns the first unacknowledged position.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// Returns the next position to send for the first time.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns the bytes sent and not acknowledged by number.
    pub fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Returns the bytes reported by SACK, or by duplicate acknowledgements without SACK.
    pub fn sacked(&self) -> u64 {
        self.sacked + self.duplicates
    }

    /// Returns the bytes deemed lost and not sent again since.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the bytes sent again and not reported since.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Returns the bytes estimated to be in the network (`pipe` of RFC 6675).
    pub fn in_flight(&self) -> u64 {
        self.outstanding().saturating_sub(self.sacked + self.lost + self.duplicates)
    }

    /// Returns the end of the highest bytes that SACK reported.
    pub fn fack(&self) -> u64 {
        self.fack
    }

    /// Returns the end of the highest bytes that were ever retransmitted, or the first
    /// unacknowledged position if that is higher.
    pub fn again_to(&self) -> u64 {
        self.again_to
    }

    /// Returns true if nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries in order of position, for tests and inspection.
    pub fn entries(&self) -> impl Iterator<Item = &SentRange> {
        self.entries.iter()
    }

    /// Returns the first outstanding entry.
    pub fn head(&self) -> Option<&SentRange> {
        self.entries.front()
    }

    /// Returns the last outstanding entry.
    pub fn tail(&self) -> Option<&SentRange> {
        self.entries.back()
    }

    /// Returns true if there is room to note new data. If not, later acknowledgements make room.
    pub fn has_room(&self) -> bool {
        self.entries.len() < self.limit
            || self.entries.back().is_some_and(|entry| entry.mark == Mark::Sent)
    }

    /// Notes `length` bytes of an imported session as sent now, and possibly more than once, since
    /// the record does not tell.
    pub fn restore(&mut self, now: Instant, length: u64) {
        self.push(now, length);
        if let Some(last) = self.entries.back_mut() {
            last.again = true;
        }
        self.again_to = self.nxt;
    }

    /// Notes that `length` bytes were sent for the first time.
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

    /// Processes the acknowledgement number: all bytes before `una` have arrived. Calls `delivered`
    /// for every entry, or part of one, that was not reported before.
    pub fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(&Delivery)) {
        let una = una.min(self.nxt);
        while let Some(&entry) = self.entries.front() {
            let part = Span::new(entry.span.start, entry.span.end.min(una));
            if part.is_empty() {
                break;
            }
            self.uncount(entry.mark, part.len());
            if entry.mark != Mark::Sacked {
                let below_fack = part.end < self.fack;
                let entry = SentRange { span: part, ..entry };
                delivered(&Delivery { entry, selective: false, below_fack });
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

    /// Processes a SACK block; the part of `block` that is not outstanding does not count. `fack`
    /// is the value of [`Scoreboard::fack`] before the acknowledgement that carries the block.
    /// Calls `delivered` as [`Scoreboard::acknowledge`] does.
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
            delivered(&Delivery { entry, selective: true, below_fack: entry.span.end < fack });
            self.fack = self.fack.max(entry.span.end);
            self.mark(chosen, Mark::Sacked);
            at = self.join(chosen) + 1;
        }
    }

    /// Notes that `span` was sent again. The parts that SACK reported meanwhile keep their mark.
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

    /// Returns the first lost bytes that were not sent again, at most `length` of them.
    pub fn next_lost(&self, length: u64) -> Option<Span> {
        if self.lost == 0 {
            return None;
        }
        let from = self.entries.partition_point(|entry| entry.span.end <= self.lost_from);
        let entry = self.entries.range(from..).find(|entry| entry.mark == Mark::Lost)?;
        Some(entry.span.first(length))
    }

    /// Calls `verdict` for every entry in the network, in order of position, and marks the lost
    /// entries. Stops at the first [`Verdict::Later`] beyond all retransmissions, because from
    /// there on positions were sent in order. Returns the bytes newly lost.
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

    /// Marks the first `length` bytes lost, unless they were sent again already (NewReno, without
    /// SACK). Returns the length of the first entry.
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

    /// Clears all marks of loss, because nothing was lost after all.
    pub fn clear_losses(&mut self) {
        for at in 0..self.entries.len() {
            if self.entries[at].mark == Mark::Lost {
                let mark = if self.entries[at].again { Mark::Resent } else { Mark::Sent };
                self.mark(at, mark);
            }
        }
        self.lost_from = self.nxt;
    }

    /// Clears all marks of SACK reports, because the peer reneged: it discarded bytes that it had
    /// reported (RFC 2018, 8).
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

    /// Counts a duplicate acknowledgement on a connection without SACK: a segment of `mss` bytes
    /// left the network (Linux's `tcp_add_reno_sack`).
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

    /// Takes duplicates away after `advanced` bytes were acknowledged on a connection without SACK:
    /// one segment filled the gap, and the others had been counted as duplicates (Linux's
    /// `tcp_remove_reno_sacks`).
    pub fn remove_duplicates(&mut self, advanced: u64, mss: u64) {
        self.duplicates = self.duplicates.saturating_sub(advanced.saturating_sub(mss));
        self.limit_duplicates();
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
