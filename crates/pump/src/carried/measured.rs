//! What a carried session tells, a tenth of a second apart: its figures, for people, and its
//! progress, for the question whether it does better in the kernel.
//!
//! Not here: the answers (`bulk`, `aggregate`).

use super::Carried;
use crate::aggregate::Measurement;
use crate::bulk::Judge;
use crate::figures::Figures;
use sojourn_proto::time::Instant;

impl Carried {
    /// Sets the judge of the question whether the session does better in the kernel; without this
    /// call there is none.
    pub fn watch_bulk(&mut self, judge: Judge) {
        self.judge = judge;
    }

    /// Returns the measurement for which the session is to go home, if it is.
    pub fn sent_home_by(&self) -> Option<Measurement> {
        self.sent_home_by
    }

    /// Writes the figures to the ledger, and takes a sample for the judge; a while has passed.
    pub(super) fn on_beat(&mut self, now: Instant) {
        let figures = Figures::of(&self.connection, now);
        self.stream.ledger().publish_figures(&figures.words());
        self.stream.ledger().expire_times(now.as_micros() / 1_000_000);
        // The peer's window or the program, not the congestion window, may be the limit: such a
        // slice says nothing about this home.
        let (mss, under_way) = (figures.mss, figures.unacked.saturating_mul(figures.mss));
        let peer_has_room = figures.snd_wnd.saturating_sub(under_way) >= mss;
        let has_more = peer_has_room && self.unsent_bytes() > 0;
        let verdict = self.judge.sample(now, self.connection.bytes_moved(), has_more);
        self.sent_home_by = verdict.map(Measurement::Own);
    }

    /// Takes the bytes of questions and answers that the last beat has found; mostly 0.
    #[inline]
    pub(crate) fn take_exchanged(&mut self) -> u64 {
        self.judge.take_exchanged()
    }

    /// Notes that the session goes home with all others of its process.
    pub(crate) fn go_with_all(&mut self) {
        self.sent_home_by = Some(Measurement::Aggregate);
    }
}
