//! The tail loss probe (RFC 8985, section 7): when the last segments of a burst stay
//! unacknowledged, a probe segment is sent early, so that its acknowledgement shows a loss before
//! the retransmission timer expires.
//!
//! Not here: the timer and the probe's transmission ([`crate::recovery`]).

use crate::time::Duration;

/// The longest delay of an acknowledgement that Linux assumes for a lone segment (`TCP_RTO_MIN`;
/// `tcp_schedule_loss_probe`).
const DELAYED_ACK_MAX: Duration = Duration::from_millis(200);
/// The delay added for more than one segment, for the granularity of timers (Linux:
/// `TCP_TIMEOUT_MIN`).
const SLACK: Duration = Duration::from_millis(2);

/// Returns the time to wait for an acknowledgement before a probe is sent (section 7.2). `lone` is
/// true if no more than one segment is outstanding.
pub fn timeout(srtt: Option<Duration>, lone: bool) -> Duration {
    match srtt {
        Some(srtt) if lone => srtt.times(2) + DELAYED_ACK_MAX,
        Some(srtt) => srtt.times(2) + SLACK,
        None => Duration::from_secs(1),
    }
}

/// A probe that was sent and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    /// The next position to send when the probe had been sent (`TLP.end_seq`).
    end: u64,
    /// True if the probe was a retransmission, which may have repaired a loss unnoticed
    /// (`TLP.is_retrans`).
    again: bool,
}

/// The state of probing.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailLossProbe {
    sent: Option<Probe>,
}

/// The conclusion from an acknowledgement about the probe (section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No conclusion yet, or no probe was sent.
    None,
    /// The segment had arrived before, or the probe was new data: nothing was lost.
    Needless,
    /// The probe itself filled the gap: there was a loss, and the window has to be reduced for it.
    Repaired,
}

impl TailLossProbe {
    /// Returns true if a probe is not answered yet; no second probe is sent meanwhile.
    pub fn is_pending(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns true if a D-SACK block that ends at `end` answers the probe, and so says nothing
    /// about reordering.
    pub fn ends_at(&self, end: u64) -> bool {
        self.sent.is_some_and(|probe| probe.end == end)
    }

    /// Notes that a probe was sent; `nxt` is the next position to send now.
    pub fn on_sent(&mut self, nxt: u64, again: bool) {
        self.sent = Some(Probe { end: nxt, again });
    }

    /// Forgets the probe, because recovery began or the retransmission timer expired.
    pub fn forget(&mut self) {
        self.sent = None;
    }

    /// Processes an acknowledgement. `dsack` is true if its D-SACK block answers the probe. `plain`
    /// is true for a pure duplicate, without SACK block, data or change of the window.
    pub fn on_ack(&mut self, una: u64, dsack: bool, plain: bool) -> Answer {
        let Some(probe) = self.sent else { return Answer::None };
        if una < probe.end {
            return Answer::None;
        }
        if !probe.again || dsack {
            self.sent = None;
            return Answer::Needless;
        }
        if una > probe.end {
            self.sent = None;
            return Answer::Repaired;
        }
        // An acknowledgement of exactly the probe's end may answer the original or the probe. A
        // second one shows that both arrived.
        if plain {
            self.sent = None;
            return Answer::Needless;
        }
        Answer::None
    }
}

#[cfg(test)]
#[path = "tlp_tests.rs"]
mod tests;
