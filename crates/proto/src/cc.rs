//! Congestion control: how many bytes may be in the network.
//!
//! [`Window`] is what all algorithms move: the congestion window and the slow start threshold.
//! [`Controller`] is the algorithm: [`cubic`] or [`reno`], each with [`hystart`] in its first slow
//! start. [`usage`] tells whether the window is used at all, without which it must not grow. Not
//! here: what happens inside a recovery ([`crate::prr`]), what is lost ([`crate::rack`]). All sizes
//! are bytes; algorithms that their RFCs give in segments are scaled by the segment size.

pub mod cubic;
pub mod hystart;
pub mod reno;
pub mod usage;

use crate::time::{Duration, Instant};
use cubic::Cubic;
use hystart::HyStart;
use reno::Reno;

/// Which congestion controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno's window rules (RFC 5681).
    Reno,
}

/// The window and its threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The congestion window.
    pub cwnd: u64,
    /// Below it, slow start; `u64::MAX` until the first congestion.
    pub ssthresh: u64,
    /// A full segment's payload.
    pub mss: u64,
    /// The window never exceeds this.
    pub max: u64,
}

impl Window {
    /// Whether the window doubles in a round trip.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// The least value of the threshold (RFC 5681, equation 4).
    pub fn least(&self) -> u64 {
        2 * self.mss
    }

    /// Grows by `bytes` while below the threshold, and gives what is left of them at the threshold.
    pub fn slow_start(&mut self, bytes: u64) -> u64 {
        let grown = self.cwnd.saturating_add(bytes).min(self.ssthresh).min(self.max);
        let used = grown.saturating_sub(self.cwnd);
        self.cwnd = self.cwnd.max(grown);
        if self.in_slow_start() { 0 } else { bytes.saturating_sub(used) }
    }

    /// Sets the window, within its limit.
    pub fn set(&mut self, cwnd: u64) {
        self.cwnd = cwnd.min(self.max).max(self.mss);
    }
}

/// What an acknowledgement tells the controller.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Now.
    pub now: Instant,
    /// Bytes newly known to have arrived.
    pub bytes: u64,
    /// The round-trip time of the latest of them, if it is known.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The first unacknowledged position.
    pub una: u64,
    /// The next position to send.
    pub nxt: u64,
    /// Whether the window was what limited the sender ([`usage`]); otherwise it does not grow.
    pub limited: bool,
}

/// Why the window is to be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost.
    Loss,
    /// A segment was marked (RFC 3168; treated as a loss is).
    Mark,
    /// A retransmission timeout.
    Timeout,
}

/// The algorithm and what it remembers.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Cubic(Cubic),
    Reno(Reno),
}

/// A congestion controller.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    algorithm: Algorithm,
    hystart: HyStart,
    /// As it was before the last reduction.
    saved: Option<(Window, Algorithm)>,
}

impl Controller {
    /// A controller that begins with `window`, and with what CUBIC remembered as `W_max` (0 if
    /// nothing).
    pub fn new(kind: Kind, window: &Window, w_max: u64) -> Controller {
        let algorithm = match kind {
            Kind::Cubic => Algorithm::Cubic(Cubic::new(window, w_max)),
            Kind::Reno => Algorithm::Reno(Reno::default()),
        };
        Controller { algorithm, hystart: HyStart::new(window.ssthresh == u64::MAX), saved: None }
    }

    /// Which one it is.
    pub fn kind(&self) -> Kind {
        match self.algorithm {
            Algorithm::Cubic(_) => Kind::Cubic,
            Algorithm::Reno(_) => Kind::Reno,
        }
    }

    /// CUBIC's `W_max` in bytes; 0 if there is none.
    pub fn w_max(&self) -> u64 {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.remembered(),
            Algorithm::Reno(_) => 0,
        }
    }

    /// Lets the window grow after an acknowledgement outside of recovery.
    pub fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        let share = self.hystart.on_ack(window, acked);
        if !acked.limited {
            return;
        }
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = window.slow_start(bytes / share);
        }
        if bytes == 0 {
            return;
        }
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.avoid(window, acked, bytes),
            Algorithm::Reno(reno) => reno.avoid(window, bytes),
        }
    }

    /// Lowers the threshold because of congestion; what happens to the window until it reaches the
    /// threshold is the caller's. Remembers how things were, unless this is a further timeout of
    /// the same recovery (`again`).
    pub fn on_congestion(&mut self, window: &mut Window, signal: Signal, again: bool) {
        if !again || self.saved.is_none() {
            self.saved = Some((*window, self.algorithm));
        }
        self.hystart.stop();
        let ssthresh = match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.on_congestion(window, signal),
            Algorithm::Reno(_) => window.cwnd / 2,
        };
        window.ssthresh = ssthresh.max(window.least());
    }

    /// The last reduction stays, whatever turns out about it (Linux forgets `prior_ssthresh`).
    pub fn confirm(&mut self) {
        self.saved = None;
    }

    /// The last reduction was needless: the window is at least what it was (RFC 9438, 4.9; Linux's
    /// `tcp_undo_cwnd_reduction`). Gives whether it could be taken back.
    pub fn undo(&mut self, window: &mut Window) -> bool {
        let Some((old, algorithm)) = self.saved.take() else { return false };
        window.set(window.cwnd.max(old.cwnd));
        window.ssthresh = window.ssthresh.max(old.ssthresh);
        self.algorithm = algorithm;
        true
    }

    /// Nothing was in the network for `idle`: time stands still for what grows with time (RFC 9438,
    /// 5.8).
    pub fn on_idle(&mut self, idle: Duration) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_idle(idle);
        }
    }
}

#[cfg(test)]
mod tests;
