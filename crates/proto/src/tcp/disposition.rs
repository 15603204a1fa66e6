//! What became of a segment, and how often: the answer to "why was it dropped".
//!
//! Linux's names for the same are `SKB_DROP_REASON_*` and the counters of `nstat`. Not here: the
//! decisions; they are `input`'s.

/// What became of a segment that was given to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Disposition {
    /// Taken: in-order data, or a FIN.
    Data,
    /// Taken: an acknowledgement without data.
    Acknowledgement,
    /// Taken and kept: data beyond a gap.
    OutOfOrder,
    /// All of its data was here already; answered at once, with D-SACK if that is on (RFC 2883).
    Duplicate,
    /// The connection was reset by it (RFC 9293, 3.10.7.4, second; RFC 5961, 3).
    Reset,
    /// A pure duplicate acknowledgement in disorder with an old timestamp: ignored, see
    /// `timestamps`.
    OldTimestamp,
    /// All of it lies before the window (RFC 9293, 3.10.7.4, first).
    BeforeWindow,
    /// It begins beyond the window.
    BeyondWindow,
    /// Data while the window is closed.
    ClosedWindow,
    /// RST inside the window, not at its front: challenged (RFC 5961, 3.2).
    ResetNotExact,
    /// RST outside the window: nothing is answered.
    ResetOutside,
    /// SYN on a connection: challenged (RFC 5961, 4.2).
    Syn,
    /// Neither ACK, RST nor SYN: ignored (RFC 9293, 3.10.7.4, fifth).
    NoAck,
    /// It acknowledges what was never sent: challenged (RFC 5961, 5.2).
    AcksUnsent,
    /// It acknowledges what was acknowledged more than a window ago: challenged (RFC 5961, 5.2).
    AcksAncient,
    /// There was no room to note one more gap; it comes again.
    NoRoom,
    /// Data after the peer's FIN.
    AfterFin,
    /// Urgent data: not taken, so that it comes again to whoever the session moves to.
    Urgent,
    /// The connection is closed.
    Closed,
    /// The connection was exported: its segments belong elsewhere.
    Exported,
}

impl Disposition {
    /// Every value, in the order of the numbers.
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

    /// Whether the segment was not worth a look at what it carries: not the peer's, or of another
    /// time. What lies before the window may still have a FIN at its front.
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

/// How many segments met each disposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; Disposition::ALL.len()],
}

impl Tally {
    /// How many segments met `disposition`.
    pub fn count(&self, disposition: Disposition) -> u64 {
        self.counts[disposition as usize]
    }

    /// All counts that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Disposition, u64)> + '_ {
        let all = Disposition::ALL.into_iter().zip(self.counts);
        all.filter(|(_, count)| *count > 0)
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
        for (index, (disposition, count)) in tally.iter().enumerate() {
            assert_eq!((disposition as usize, count as usize), (index, index + 1));
        }
    }
}
