//! Timeouts of a connection: the earliest timer, and the actions when timers expire.
//!
//! Not here: retransmission, tail loss probe, reordering and pacing (`recovery`), the delayed
//! acknowledgement (`acks`), and the state of the other timers (`timers`). The rules are RFC
//! 9293's, the numbers Linux's (`tcp_timer.c`).

use super::connection::Connection;
use crate::record::{CloseReason, TcpRecord, TcpState};
use crate::recovery::Expired;
use crate::time::{Duration, Instant};

impl Connection {
    /// Returns the time of the next call of [`Connection::on_timeout`]. The time may change with
    /// every other call.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.exported || self.state == TcpState::Closed {
            return None;
        }
        let times = [
            self.acks.deadline(),
            self.timers.persist,
            self.timers.keepalive,
            self.timers.time_wait,
            self.recovery.next_timeout(),
            self.user_deadline(),
        ];
        times.into_iter().flatten().min()
    }

    /// Handles the timers that have expired. May be called at any time. Call
    /// [`Connection::poll_transmit`] afterwards.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.exported || self.state == TcpState::Closed {
            return;
        }
        if self.timers.time_wait.is_some_and(|at| at <= now) {
            self.close(None);
            return;
        }
        let rto = self.rto_base();
        self.acks.on_timeout(now, rto);
        if let Some(Expired::Retransmission(count)) = self.recovery.on_timeout(now) {
            self.on_retransmission_timeout(now, count);
        }
        if self.user_deadline().is_some_and(|at| at <= now) {
            self.close(Some(CloseReason::TimedOut));
        }
        if self.timers.persist.is_some_and(|at| at <= now) {
            self.on_persist(now);
        }
        if self.timers.keepalive.is_some_and(|at| at <= now) {
            self.on_keepalive(now);
        }
    }

    /// Gives the connection up after retransmitting for too long (RFC 9293, 3.8.3). Linux measures
    /// time instead of counting timeouts, because their lengths differ (`retransmits_timed_out`).
    fn on_retransmission_timeout(&mut self, now: Instant, count: u32) {
        self.counters.total_rto += 1;
        self.counters.total_rto_recoveries += u64::from(count == 1);
        let since = *self.timers.silent_since.get_or_insert(now);
        if self.options.user_timeout.is_zero() && now.since(since) >= self.patience() {
            self.close(Some(CloseReason::TimedOut));
        }
    }

    /// Returns the duration of `retries2` timeouts, beginning with the least one (Linux's
    /// `tcp_model_timeout`).
    fn patience(&self) -> Duration {
        let (least, most) = (self.tuning.rto_min, self.tuning.rto_max);
        let doublings = (most.as_micros() / least.as_micros().max(1)).max(1).ilog2();
        let count = self.tuning.retries2;
        let rising = (2u64 << count.min(doublings)) - 1;
        least.times(rising) + most.times(u64::from(count.saturating_sub(doublings)))
    }

    /// Returns the time at which `TCP_USER_TIMEOUT` (RFC 5482) ends the connection, if data waits
    /// for an answer.
    fn user_deadline(&self) -> Option<Instant> {
        let timeout = self.options.user_timeout;
        self.stalled_since().filter(|_| !timeout.is_zero()).map(|since| since + timeout)
    }

    /// Notes that the peer has answered. While the peer's window is shut, an answer does not
    /// restart `TCP_USER_TIMEOUT` (`tcp_ack_probe`).
    pub(super) fn on_answer(&mut self) {
        self.timers.probes = 0;
        let next = self.snd.unsent().clamp(1, self.mss_now());
        if self.snd.window_end() >= self.snd.nxt + next {
            self.timers.probing_since = None;
        }
    }

    /// Returns true if data waits for an answer; keepalive probes are not needed then.
    fn is_stalled(&self) -> bool {
        self.snd.una < self.snd.nxt || self.snd.has_unsent()
    }

    /// Returns the time since which data has been unanswered, or held back by a shut window.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        self.timers.silent_since.or(self.timers.probing_since)
    }

    fn on_persist(&mut self, now: Instant) {
        self.timers.persist = None;
        if self.snd.una < self.snd.nxt || !self.snd.has_unsent() {
            return;
        }
        if self.snd.window_end() > self.snd.nxt {
            // The window is open, so Nagle's rule or cork held the data: it has waited long enough.
            self.timers.force = true;
            return;
        }
        if u32::from(self.timers.probes) >= self.tuning.retries2 {
            self.close(Some(CloseReason::TimedOut));
            return;
        }
        self.timers.probing_since.get_or_insert(now);
        self.send_probe();
        if self.timers.persist_backoff < self.tuning.retries2 {
            self.timers.persist_backoff += 1;
        }
    }

    fn send_probe(&mut self) {
        self.timers.probe_due = true;
        self.timers.probes = self.timers.probes.saturating_add(1);
    }

    /// Sets the persist timer at the end of the output if data waits and no outstanding segment
    /// will bring an answer (`tcp_check_probe_timer`).
    pub(super) fn watch_unsent(&mut self, now: Instant) {
        if self.snd.una < self.snd.nxt || !self.snd.has_unsent() {
            self.timers.persist = None;
            self.timers.persist_backoff = 0;
            self.timers.probing_since = None;
        } else if self.timers.persist.is_none() {
            let base = self.rto_base().max(self.tuning.rto_min);
            let wait = base.times(1 << self.timers.persist_backoff.min(32));
            self.timers.persist = Some(now + wait.min(self.tuning.rto_max));
        }
    }

    /// Handles the keepalive timer (RFC 9293, 3.8.4; Linux's `tcp_keepalive_timer`).
    fn on_keepalive(&mut self, now: Instant) {
        let options = &self.options;
        let idle = now.since(self.heard_at);
        let wait = if self.is_stalled() {
            options.keepalive_idle
        } else if idle < options.keepalive_idle {
            options.keepalive_idle.saturating_sub(idle)
        } else if self.keepalive_is_over(idle) {
            self.reset_due = true;
            self.close(Some(CloseReason::TimedOut));
            return;
        } else {
            let interval = options.keepalive_interval;
            self.send_probe();
            interval
        };
        self.timers.keepalive = Some(now + wait);
    }

    fn keepalive_is_over(&self, idle: Duration) -> bool {
        if self.options.user_timeout.is_zero() {
            return self.timers.probes >= self.options.keepalive_count.max(1);
        }
        self.timers.probes > 0 && idle >= self.options.user_timeout
    }

    /// Starts the timers from a record.
    pub(super) fn start_timers(&mut self, tcp: &TcpRecord, now: Instant) {
        self.timers.probes = tcp.probes;
        match self.state {
            TcpState::Closed => return,
            TcpState::TimeWait => self.timers.time_wait = Some(now + self.tuning.time_wait),
            _ => self.set_keepalive_timer(now),
        }
        if !tcp.stalled.is_zero() {
            let since = Some(now - tcp.stalled);
            if self.snd.una == self.snd.nxt {
                self.timers.probing_since = since;
            } else {
                self.timers.silent_since = since;
            }
        }
    }

    /// Sets the keepalive timer after a change of the option or an import.
    pub(super) fn set_keepalive_timer(&mut self, now: Instant) {
        let running = !matches!(self.state, TcpState::Closed | TcpState::TimeWait);
        self.timers.keepalive = (self.options.keepalive && running).then(|| {
            let idle = now.since(self.heard_at);
            now + self.options.keepalive_idle.saturating_sub(idle)
        });
    }
}
