//! Figures of a carried session, for people: its windows, its round-trip time and its losses.
//!
//! The pump writes them to the ledger, a tenth of a second apart at most while something moves, and
//! not in each round. The reader (the session server, for `sojourn ss`) trusts them no more than
//! the program's process, which may write anything there. Not here: the state that another process
//! needs to go on after a death (`position`).

use sojourn_proto::tcp::Connection;
use sojourn_proto::time::{Duration, Instant};
use sojourn_stream::FIGURES_WORDS;

/// The time between two writes.
pub(crate) const BEAT: Duration = Duration::from_millis(100);

/// The figures of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// `TcpState`'s number, which is Linux's.
    pub state: u8,
    /// Payload of a full segment (bytes).
    pub mss: u32,
    /// The peer's window (bytes).
    pub snd_wnd: u32,
    /// This end's window (bytes).
    pub rcv_wnd: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments; Linux's "none" is the largest signed number.
    pub ssthresh: u32,
    /// Smoothed round-trip time (µs).
    pub srtt_us: u32,
    /// Its mean deviation (µs).
    pub rttvar_us: u32,
    /// Segments under way.
    pub unacked: u32,
    /// Segments sent again, over the session's life.
    pub retransmissions: u32,
    /// Losses detected since the session is away: fast recoveries and time-outs.
    pub loss_events: u32,
}

impl Figures {
    /// Takes the figures of a connection.
    pub fn of(connection: &Connection, now: Instant) -> Self {
        let info = connection.info(now);
        let statistics = connection.recovery().statistics();
        let events = statistics.recoveries_total + statistics.timeouts_total;
        Self {
            state: info.state,
            mss: info.snd_mss,
            snd_wnd: info.snd_wnd,
            rcv_wnd: info.rcv_wnd,
            cwnd: info.snd_cwnd,
            ssthresh: info.snd_ssthresh,
            srtt_us: info.rtt,
            rttvar_us: info.rttvar,
            unacked: info.unacked,
            retransmissions: info.total_retrans,
            loss_events: u32::try_from(events).unwrap_or(u32::MAX),
        }
    }

    /// Encodes the figures as words of the ledger.
    pub fn words(&self) -> [u32; FIGURES_WORDS] {
        let fields = [
            1,
            u32::from(self.state),
            self.mss,
            self.snd_wnd,
            self.rcv_wnd,
            self.cwnd,
            self.ssthresh,
            self.srtt_us,
            self.rttvar_us,
            self.unacked,
            self.retransmissions,
            self.loss_events,
        ];
        let mut words = [0; FIGURES_WORDS];
        words[..fields.len()].copy_from_slice(&fields);
        words
    }

    /// Decodes the figures from words of a ledger; `None` if none were written yet.
    pub fn from_words(words: &[u32; FIGURES_WORDS]) -> Option<Self> {
        (words[0] != 0).then(|| Self {
            state: u8::try_from(words[1]).unwrap_or(0),
            mss: words[2],
            snd_wnd: words[3],
            rcv_wnd: words[4],
            cwnd: words[5],
            ssthresh: words[6],
            srtt_us: words[7],
            rttvar_us: words[8],
            unacked: words[9],
            retransmissions: words[10],
            loss_events: words[11],
        })
    }
}

/// The times of the writes: a while after something has happened, so that an idle session costs
/// nothing and the last write shows how it came to rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beat {
    due: Option<Instant>,
}

impl Beat {
    /// Notes that something has happened, or that time has passed. Returns true if a write is due.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        match self.due {
            None => {
                self.due = Some(now + BEAT);
                false
            }
            Some(due) if now < due => false,
            Some(_) => {
                self.due = None;
                true
            }
        }
    }

    /// Returns the time of the next write.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_comes_back() {
        let figures = Figures {
            state: 1,
            mss: 2,
            snd_wnd: 3,
            rcv_wnd: 4,
            cwnd: 5,
            ssthresh: 6,
            srtt_us: 7,
            rttvar_us: 8,
            unacked: 9,
            retransmissions: 10,
            loss_events: 11,
        };
        assert_eq!(Figures::from_words(&figures.words()), Some(figures));
        assert_eq!(Figures::from_words(&[0; FIGURES_WORDS]), None);
        // Whatever is written there.
        assert!(Figures::from_words(&[u32::MAX; FIGURES_WORDS]).is_some());
    }

    #[test]
    fn a_busy_session_is_told_of_ten_times_a_second_and_an_idle_one_not_at_all() {
        let mut beat = Beat::default();
        let at = |us| Instant::from_micros(us);
        let beats = (0..1_000_000).step_by(500).filter(|us| beat.is_due(at(*us))).count();
        assert!((9..=10).contains(&beats), "{beats}");
        // It comes to rest: once more, and then never.
        let last = beat.next().unwrap();
        assert!(beat.is_due(last));
        assert_eq!(beat.next(), None);
    }
}
