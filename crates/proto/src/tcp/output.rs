//! The choice of the next segment: a reset, a probe, lost bytes, new data, or an acknowledgement,
//! in this order.
//!
//! Here are the peer's window, Nagle's rule (RFC 9293, 3.7.4), silly-window avoidance (RFC 9293,
//! 3.8.6.2.1), and the size of the frames for segmentation offload. Not here: the congestion window
//! (`recovery`), and the segment's bytes (`segment`).

use super::connection::Connection;
use super::segment::{Plan, Transmit};
use crate::position::Span;
use crate::record::TcpState;
use crate::recovery::{State, Stopped, Transmission};
use crate::time::{Duration, Instant};
use core::mem;
use sojourn_wire::tcp::Flags;

/// The window above which a segment is at most half of the window (Linux's
/// `tcp_bound_to_half_wnd`).
const SMALL_WINDOW: u64 = 536;
/// A sender defers only within this time after its last segment.
const DEFER_MAX: Duration = Duration::from_millis(1);
/// The smallest segment, so that the connection makes progress with any window of the peer.
const SEGMENT_MIN: u64 = 8;

/// How much new data may be sent (bytes).
struct Room {
    /// By congestion control.
    budget: u64,
    /// By the peer's window.
    window: u64,
    /// In one plan.
    burst: u64,
    /// In one segment.
    mss: u64,
    /// Something is to be sent in any case.
    forced: bool,
}

impl Connection {
    /// Returns the next frame to be sent now, if there is one. A returned frame counts as sent.
    /// After the last, [`Connection::next_timeout`] gives the latest time of the next call.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let plan = self.plan(now).or_else(|| self.acknowledgement())?;
        Some(self.build(now, &plan))
    }

    /// Returns the next frame like [`Connection::poll_transmit`], except for a pure
    /// acknowledgement, because the embedder expects that data will carry the acknowledgement soon.
    /// The embedder must call [`Connection::poll_transmit`] later while [`Connection::is_ack_due`].
    pub fn poll_transmit_data(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let plan = self.plan(now)?;
        Some(self.build(now, &plan))
    }

    /// Returns an owed acknowledgement as a frame, even if it could wait for data to carry it: for
    /// an embedder that will not ask for frames for a while. A returned frame counts as sent.
    pub fn poll_transmit_ack(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let is_owed = !self.exported && self.state != TcpState::Closed && self.acks.is_scheduled();
        let plan = is_owed.then(|| self.bare(self.acceptable_seq(), Flags::ACK))?;
        Some(self.build(now, &plan))
    }

    /// Returns true if an acknowledgement is to be sent now.
    pub fn is_ack_due(&self) -> bool {
        !self.exported && self.state != TcpState::Closed && self.acks.is_due()
    }

    fn acknowledgement(&self) -> Option<Plan> {
        self.is_ack_due().then(|| self.bare(self.acceptable_seq(), Flags::ACK))
    }

    /// Plans the next segment, except a pure acknowledgement.
    fn plan(&mut self, now: Instant) -> Option<Plan> {
        if self.exported {
            return None;
        }
        if mem::take(&mut self.reset_due) {
            return Some(self.bare(self.acceptable_seq(), Flags::RST | Flags::ACK));
        }
        if self.state == TcpState::Closed {
            return None;
        }
        if mem::take(&mut self.timers.probe_due) {
            // The probe has an acknowledged sequence number, which every peer answers (RFC 9293,
            // 3.8.4).
            return Some(self.bare(self.snd.una - 1, Flags::ACK));
        }
        if let Some(plan) = self.again(now).or_else(|| self.tail_probe(now)) {
            return Some(plan);
        }
        match self.fresh(now) {
            Ok(plan) => return Some(plan),
            Err(stopped) => self.recovery.on_output_done(now, stopped),
        }
        self.watch_unsent(now);
        None
    }

    /// Plans a segment without payload.
    fn bare(&self, seq: u64, flags: Flags) -> Plan {
        Plan { span: Span::new(seq, seq), flags, segment_size: 0, ect: false }
    }

    /// Returns the sequence number of a segment without payload: `SND.NXT`, or the window's edge if
    /// the peer has shrunk its window (`tcp_acceptable_seq`).
    fn acceptable_seq(&self) -> u64 {
        let (nxt, edge) = (self.snd.nxt, self.snd.window_end());
        let rounding = 1 << self.rcv.window.scale;
        if edge >= nxt || nxt - edge < rounding { nxt } else { edge }
    }

    /// Returns the payload of a full segment that is sent now, with its SACK option deducted.
    pub(super) fn mss_now(&self) -> u64 {
        let mss = u64::from(self.sizes.mss.saturating_sub(self.sack_bytes()));
        let window = self.snd.max_window;
        let most = if window > SMALL_WINDOW { window / 2 } else { window };
        mss.min(most.max(SEGMENT_MIN)).max(SEGMENT_MIN)
    }

    /// Returns the largest payload of one frame: whole segments.
    fn burst(&self, mss: u64) -> u64 {
        let segments = u64::from(self.limits.gso_max_bytes) / mss;
        mss * segments.min(u64::from(self.limits.gso_max_segments)).max(1)
    }

    /// Plans a retransmission of lost bytes.
    fn again(&mut self, now: Instant) -> Option<Plan> {
        let span = self.recovery.retransmission(now)?;
        self.resend(now, span)
    }

    /// Plans a retransmission of the first part of `span` inside the peer's window. The first
    /// unacknowledged segment is sent even outside the window, so that a window that was taken back
    /// does not stop the connection (RFC 9293, 3.8.6).
    fn resend(&mut self, now: Instant, span: Span) -> Option<Plan> {
        let mss = self.mss_now();
        let edge = self.snd.window_end();
        if span.start >= edge && span.start != self.snd.una {
            return None;
        }
        let most = if edge > span.start { edge - span.start } else { mss };
        let data = Span::new(span.start, span.end.min(self.snd.end));
        let data = data.first(most.min(self.burst(mss)));
        let fin = span.end > self.snd.end && data.end >= self.snd.end;
        if data.is_empty() && !fin {
            return None;
        }
        let data = Span::new(span.start, data.end.max(span.start));
        Some(self.carry(now, data, fin, Transmission::Again, mss))
    }

    /// Plans a tail loss probe (RFC 8985, 7.3): a new segment if there is one and the peer's window
    /// has room, otherwise the last segment again.
    fn tail_probe(&mut self, now: Instant) -> Option<Plan> {
        let span = self.recovery.probe()?;
        let mss = self.mss_now();
        let room = self.snd.window_end().saturating_sub(self.snd.nxt);
        let fresh = self.snd.unsent().min(mss);
        if fresh > 0 && fresh <= room {
            let data = Span::new(self.snd.nxt, self.snd.nxt + fresh);
            let fin = self.fin_follows(data.end, room - fresh);
            return Some(self.carry(now, data, fin, Transmission::New, mss));
        }
        let skipped = span.len().saturating_sub(mss);
        self.resend(now, Span::new(span.start + skipped, span.end))
    }

    /// Returns true if the FIN is sent with data that ends at `end`, with `room` left in the peer's
    /// window.
    fn fin_follows(&self, end: u64, room: u64) -> bool {
        self.snd.fin && end == self.snd.end && room > 0
    }

    /// Plans new data, or returns the reason why none can be sent.
    fn fresh(&mut self, now: Instant) -> Result<Plan, Stopped> {
        let forced = mem::take(&mut self.timers.force);
        if !self.snd.has_unsent() {
            return Err(Stopped::Application);
        }
        let mss = self.mss_now();
        let window = self.snd.window_end().saturating_sub(self.snd.nxt);
        let unsent = self.snd.unsent();
        if unsent == 0 {
            // Only the peer's window holds a FIN back, not congestion control.
            return if window == 0 { Err(Stopped::Peer) } else { Ok(self.last(now, mss)) };
        }
        let budget = self.recovery.budget(now);
        let burst = if self.owes_cwr() { mss } else { self.burst(mss) };
        let length = self.whole_segments(now, &Room { budget, window, burst, mss, forced })?;
        let data = Span::new(self.snd.nxt, self.snd.nxt + length);
        let fin = self.fin_follows(data.end, window - length);
        Ok(self.carry(now, data, fin, Transmission::New, mss))
    }

    /// Returns true if the next new data must carry CWR, because the window was reduced (RFC 3168,
    /// 6.1.2).
    pub(super) fn owes_cwr(&self) -> bool {
        self.ecn.negotiated && self.recovery.cwr_due()
    }

    /// Plans a FIN without data.
    fn last(&mut self, now: Instant, mss: u64) -> Plan {
        let nxt = self.snd.nxt;
        self.carry(now, Span::new(nxt, nxt), true, Transmission::New, mss)
    }

    /// Returns the number of bytes to send: full segments, and a last smaller one unless Nagle's
    /// rule, cork or silly-window avoidance holds it.
    fn whole_segments(&self, now: Instant, room: &Room) -> Result<u64, Stopped> {
        let Room { budget, window, burst, mss, forced } = *room;
        let unsent = self.snd.unsent();
        let allowed = budget.min(window);
        let length = unsent.min(burst).min(allowed);
        let rest = length % mss;
        let stopped = if window < budget { Stopped::Peer } else { Stopped::Window };
        if length == unsent {
            let held = rest > 0 && !forced && self.holds_small();
            let length = if held { length - rest } else { length };
            return if length > 0 { Ok(length) } else { Err(Stopped::Application) };
        }
        if length == allowed && self.waits_for_more(now, allowed, burst) {
            return Err(stopped);
        }
        match length - rest {
            0 if forced && length > 0 => Ok(length),
            0 => Err(stopped),
            whole => Ok(whole),
        }
    }

    /// Returns true if a segment that is not full must wait. By Nagle's rule in Minshall's variant
    /// (`tcp_minshall_check`) it waits while another small segment is not acknowledged; with
    /// `TCP_CORK` or `MSG_MORE` it waits until it is full or the persist timer expires.
    fn holds_small(&self) -> bool {
        if self.snd.fin {
            return false;
        }
        if self.options.cork || self.snd.more {
            return true;
        }
        !self.options.nodelay && self.snd.small_end > self.snd.una
    }

    /// Returns true if it is better to wait for an acknowledgement and then send a larger burst
    /// (`tcp_tso_should_defer`): little is allowed now, a segment was sent just before, and the
    /// acknowledgement that allows more is near.
    fn waits_for_more(&self, now: Instant, allowed: u64, burst: u64) -> bool {
        let divisor = u64::from(self.tuning.tso_win_divisor);
        let paced = self.tuning.pacing || self.options.max_pacing_rate != u64::MAX;
        let head = self.recovery.scoreboard().head();
        let (Some(head), Some(srtt)) = (head, self.recovery.rtt().srtt()) else { return false };
        if divisor == 0 || paced || allowed >= burst || self.recovery.state() != State::Open {
            return false;
        }
        let recent = self.sent_at.is_some_and(|at| now.since(at) <= DEFER_MAX);
        let near = now.since(head.sent_last) >= srtt.divided_by(2);
        recent && near && allowed < self.recovery.cwnd().min(self.snd.wnd) / divisor
    }

    /// Notes that `data`, and a FIN after it if `fin`, is being sent, and returns its plan.
    fn carry(&mut self, now: Instant, data: Span, fin: bool, what: Transmission, mss: u64) -> Plan {
        let whole = Span::new(data.start, data.end + u64::from(fin));
        self.recovery.on_transmit(now, whole, what);
        let length = data.len();
        let segments = length.div_ceil(mss);
        self.counters.bytes_sent += length;
        self.counters.data_segs_out += segments;
        let mut flags = Flags::ACK;
        flags.set(Flags::FIN, fin);
        flags.set(Flags::PSH, length > 0 && data.end == self.snd.end);
        match what {
            Transmission::New => {
                self.snd.nxt = whole.end;
                if !length.is_multiple_of(mss) {
                    self.snd.small_end = data.end;
                }
                flags.set(Flags::CWR, length > 0 && self.owes_cwr() && self.recovery.take_cwr());
            }
            Transmission::Again => {
                self.counters.bytes_retrans += length;
                self.counters.total_retrans += segments.max(1);
            }
        }
        if length > 0 {
            self.acks.on_data_sent(now);
            self.sent_at = Some(now);
        }
        Plan {
            span: data,
            flags,
            segment_size: if length > mss { mss as u32 } else { 0 },
            // Retransmissions and segments without data must not be ECN-capable (RFC 3168, 6.1.4
            // and 6.1.5).
            ect: self.ecn.negotiated && what == Transmission::New && length > 0,
        }
    }
}
