//! The timing of acknowledgements: delayed and quick acknowledgements as in Linux
//! (`tcp_event_data_recv`, `__tcp_ack_snd_check`, `tcp_send_delayed_ack`; RFC 9293, 3.8.6.3; RFC
//! 5681, 4.2).
//!
//! A session begins by acknowledging at once, so that the peer's congestion window can open. It
//! measures the time between segments, and delays acknowledgements when the program answers soon
//! enough for the answer to carry them. Not here: the contents of an acknowledgement (`segment`).

use crate::record::{TcpOptions, TcpTuning};
use crate::time::{Duration, Instant};

/// The largest number of immediate acknowledgements in a row (`TCP_MAX_QUICKACKS`).
const QUICK_MAX: u32 = 16;
/// The peer's segment size until a segment was seen (RFC 9293, 3.7.1).
const SEGMENT_DEFAULT: u32 = 536;

/// The state of acknowledging.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acks {
    /// Received bytes are not acknowledged yet.
    scheduled: bool,
    /// The next output sends the acknowledgement, even before `deadline`.
    now: bool,
    /// Acknowledgements owed one by one: duplicates that a peer without SACK counts (RFC 5681,
    /// 3.2).
    owed: u32,
    /// The latest time for the acknowledgement.
    deadline: Option<Instant>,
    /// The number of further acknowledgements that are sent at once (Linux's `icsk_ack.quick`).
    quick: u32,
    /// Answers in a row (`pingpong`); at the threshold the session counts as interactive.
    pingpong: u8,
    threshold: u8,
    /// The expected time between segments (`ato`); zero before the first.
    interval: Duration,
    last_data: Option<Instant>,
    /// The largest segment seen lately (`rcv_mss`).
    segment: u32,
    /// The segment size announced to the peer, the upper limit of `segment`.
    segment_max: u32,
    pushed: bool,
    delay_min: Duration,
    delay_max: Duration,
}

impl Acks {
    pub(super) fn new(options: &TcpOptions, tuning: &TcpTuning, advertised_mss: u16) -> Acks {
        let threshold = tuning.pingpong_thresh.max(1);
        Acks {
            scheduled: false,
            now: false,
            owed: 0,
            deadline: None,
            quick: 0,
            pingpong: if options.quickack { 0 } else { threshold },
            threshold,
            interval: Duration::ZERO,
            last_data: None,
            segment: SEGMENT_DEFAULT.min(u32::from(advertised_mss)),
            segment_max: u32::from(advertised_mss),
            pushed: false,
            delay_min: tuning.delayed_ack_min,
            delay_max: tuning.delayed_ack_max,
        }
    }

    /// Returns true if an acknowledgement is owed, at once or later.
    pub(super) fn is_scheduled(&self) -> bool {
        self.scheduled || self.owed > 0
    }

    /// Returns true if the next output must send an acknowledgement.
    pub(super) fn is_due(&self) -> bool {
        self.now || self.owed > 0
    }

    /// Returns the time at which the delayed acknowledgement is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.scheduled && !self.now { self.deadline } else { None }
    }

    /// Returns true if the program usually answers the data that it receives
    /// (`inet_csk_in_pingpong_mode`).
    pub(super) fn in_pingpong(&self) -> bool {
        self.pingpong >= self.threshold
    }

    /// Returns the size of the peer's segments as seen so far.
    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// Returns `tcpi_ato`.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the time of the last data.
    pub(super) fn last_data(&self) -> Option<Instant> {
        self.last_data
    }

    /// Notes that data was received in order, in segments of `segment` bytes
    /// (`tcp_event_data_recv`).
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        segment: u32,
        pushed: bool,
        rto: Duration,
        window: u64,
    ) {
        self.scheduled = true;
        self.measure(segment, pushed);
        let half = self.delay_min.divided_by(2);
        match self.last_data {
            None => {
                self.raise_quick(window, QUICK_MAX);
                self.interval = self.delay_min;
            }
            Some(last) => {
                let gap = now.since(last);
                if gap <= half {
                    self.interval = self.interval.divided_by(2) + half;
                } else if gap < self.interval {
                    self.interval = (self.interval.divided_by(2) + gap).min(rto);
                } else if gap > rto {
                    // A new burst: the peer's window may have shrunk meanwhile.
                    self.raise_quick(window, QUICK_MAX);
                }
            }
        }
        self.last_data = Some(now);
    }

    /// Updates the peer's segment size from a segment's size (`tcp_measure_rcv_mss`).
    fn measure(&mut self, segment: u32, pushed: bool) {
        if segment >= self.segment {
            self.segment = segment.min(self.segment_max);
        }
        self.pushed |= pushed;
    }

    /// Raises the number of immediate acknowledgements to the segments in half the window, at most
    /// to `limit` (`tcp_incr_quickack`).
    fn raise_quick(&mut self, window: u64, limit: u32) {
        let halves = window / (2 * u64::from(self.segment.max(1)));
        let count = halves.clamp(2, u64::from(limit)) as u32;
        self.quick = self.quick.max(count);
    }

    /// Acknowledges the next segments at once (`tcp_enter_quickack_mode`), because of an unusual
    /// segment.
    pub(super) fn enter_quick(&mut self, window: u64, limit: u32) {
        self.raise_quick(window, limit);
        self.pingpong = 0;
        self.interval = self.delay_min;
    }

    /// Returns true if the next acknowledgement is sent at once.
    pub(super) fn in_quick(&self) -> bool {
        self.quick > 0 && !self.in_pingpong()
    }

    /// Owes an acknowledgement that the next output sends.
    pub(super) fn send_now(&mut self) {
        self.scheduled = true;
        self.now = true;
    }

    /// Owes one more separate acknowledgement.
    pub(super) fn owe_one(&mut self) {
        self.scheduled = true;
        self.owed = self.owed.saturating_add(1);
    }

    /// Owes an acknowledgement that may wait for data to carry it.
    pub(super) fn delay(&mut self, now: Instant, srtt: Option<Duration>) {
        let mut wait = self.interval;
        if wait > self.delay_min {
            let most = Duration::from_millis(500);
            let most = if self.in_pingpong() || self.pushed { self.delay_max } else { most };
            let most = srtt.map_or(most, |srtt| most.min(srtt.max(self.delay_min)));
            wait = wait.min(most);
        }
        let wait = wait.min(self.delay_max);
        let due = now + wait;
        match self.deadline {
            // The earlier deadline is near, so waiting for it gains little
            // (`tcp_send_delayed_ack`).
            Some(deadline) if deadline <= now + wait.divided_by(4) => self.now = true,
            Some(deadline) if deadline <= due => {}
            _ => self.deadline = Some(due),
        }
    }

    /// Makes the delayed acknowledgement due when its deadline has passed
    /// (`tcp_delack_timer_handler`).
    pub(super) fn on_timeout(&mut self, now: Instant, rto: Duration) {
        if self.deadline.is_none_or(|deadline| deadline > now) || !self.scheduled {
            return;
        }
        self.deadline = None;
        if self.in_pingpong() {
            // The program did not answer in time.
            self.pingpong = 0;
            self.interval = self.delay_min;
        } else {
            self.interval = self.interval.times(2).min(rto);
        }
        self.now = true;
    }

    /// Notes that a segment with an acknowledgement was sent. `pure` is true if it had no data.
    pub(super) fn on_sent(&mut self, pure: bool) {
        if self.scheduled {
            self.quick = self.quick.saturating_sub(1);
            if self.quick == 0 && self.interval.is_zero() {
                self.interval = self.delay_min;
            }
        }
        self.owed = if pure { self.owed.saturating_sub(1) } else { 0 };
        self.scheduled = self.owed > 0;
        self.now = false;
        self.deadline = None;
        self.pushed = false;
    }

    /// Notes that data was sent. Data sent soon after data came counts as an answer of the program
    /// (`tcp_event_data_sent`).
    pub(super) fn on_data_sent(&mut self, now: Instant) {
        if let Some(last) = self.last_data
            && now.since(last) < self.interval
        {
            self.pingpong = self.pingpong.saturating_add(1).min(self.threshold);
        }
    }

    /// Notes that the program read, and sends an acknowledgement if more than a segment is
    /// unacknowledged or a pushed burst was read completely (`tcp_cleanup_rbuf`).
    pub(super) fn on_read(&mut self, unacknowledged: u64, emptied: bool) {
        let much = unacknowledged > u64::from(self.segment);
        if self.scheduled && (much || (emptied && self.pushed && !self.in_pingpong())) {
            self.now = true;
        }
    }

    /// Sets `TCP_QUICKACK`: on sends an owed acknowledgement at once and leaves the interactive
    /// mode, off enters that mode.
    pub(super) fn set_quick(&mut self, on: bool) {
        self.pingpong = if on { 0 } else { self.threshold };
        if on && self.scheduled {
            self.now = true;
        }
    }
}
