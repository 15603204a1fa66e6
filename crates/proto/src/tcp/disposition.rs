//! The outcomes of arriving segments with their counts: the answer to "why was the segment
//! dropped?".
//!
//! Linux has `SKB_DROP_REASON_*` and the counters of `nstat` for that. Not here: the decisions
//! (`input`).

/// The outcome for a segment that was given to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Disposition {
    /// Accepted: in-order data, or a FIN.
    Data,
    /// Accepted: an acknowledgement without data.
    Acknowledgement,
    /// Accepted and kept: data beyond a gap.
    OutOfOrder,
    /// All of the data had arrived before; answered at once, with D-SACK if that is on (RFC 2883).
    Duplicate,
    /// The segment reset the connection (RFC 9293, 3.10.7.4, second; RFC 5961, 3).
    Reset,
    /// A pure duplicate acknowledgement in disorder with an old timestamp: ignored, see
    /// `timestamps`.
    OldTimestamp,
    /// The segment lies before the window (RFC 9293, 3.10.7.4, first).
    BeforeWindow,
    /// The segment begins beyond the window.
    BeyondWindow,
    /// Data while the window is closed.
    ClosedWindow,
    /// RST inside the window, not at its front: challenged (RFC 5961, 3.2).
    ResetNotExact,
    /// RST outside the window: dropped without an answer.
    ResetOutside,
    /// SYN on a connection: challenged (RFC 5961, 4.2).
    Syn,
    /// Neither ACK, RST nor SYN: ignored (RFC 9293, 3.10.7.4, fifth).
    NoAck,
    /// The segment acknowledges bytes that were never sent: challenged (RFC 5961, 5.2).
    AcksUnsent,
    /// The segment's acknowledgement number is older than the largest window: challenged (RFC 5961,
    /// 5.2).
    AcksAncient,
    /// There was no room for one more range; the peer sends the segment again.
    NoRoom,
    /// Data after the peer's FIN.
    AfterFin,
    /// Urgent data: not accepted, so that the peer sends it again to the session's next home.
    Urgent,
    /// The connection is closed.
    Closed,
    /// The connection was exported: its segments belong to another home.
    Exported,
}

impl Disposition {
    /// All values in the order of their numbers.
    pub const ALL: [Disposition; 20] = [
        Disposition::Data,
        Disposition::Acknowledgement,
        Disposition::OutOfOrder,
        Disposition::Duplicate,
        Disposition::Reset,
        Disposition::OldTimestamp,
        Disposition::BeforeWindow,
        Disposition::BeyondWindow,
        Disposition::ClosedWindow,
        Disposition::ResetNotExact,
        Disposition::ResetOutside,
        Disposition::Syn,
        Disposition::NoAck,
        Disposition::AcksUnsent,
        Disposition::AcksAncient,
        Disposition::NoRoom,
        Disposition::AfterFin,
        Disposition::Urgent,
        Disposition::Closed,
        Disposition::Exported,
    ];

    /// Returns true if the segment's contents must be ignored: the segment is forged or from
    /// another time. A segment before the window is not refused, since it may still have a FIN at
    /// its end.
    pub const fn is_refused(self) -> bool {
        matches!(
            self,
            Disposition::OldTimestamp
                | Disposition::BeyondWindow
                | Disposition::Syn
                | Disposition::NoAck
                | Disposition::AcksUnsent
                | Disposition::AcksAncient
        )
    }
}

/// The number of segments of each disposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; Disposition::ALL.len()],
}

impl Tally {
    /// Returns the number of segments with `disposition`.
    pub fn count(&self, disposition: Disposition) -> u64 {
        self.counts[disposition as usize]
    }

    /// Returns the dispositions that some segments had.
    pub fn dispositions(&self) -> impl Iterator<Item = Disposition> + '_ {
        Disposition::ALL.into_iter().filter(|disposition| self.count(*disposition) > 0)
    }

    pub(super) fn add(&mut self, disposition: Disposition) {
        self.counts[disposition as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disposition_has_its_own_count() {
        let mut tally = Tally::default();
        for (index, disposition) in Disposition::ALL.into_iter().enumerate() {
            assert_eq!(disposition as usize, index);
            for _ in 0..=index {
                tally.add(disposition);
            }
        }
        for (index, disposition) in tally.dispositions().enumerate() {
            let count = tally.count(disposition);
            assert_eq!((disposition as usize, count as usize), (index, index + 1));
        }
    }
}
