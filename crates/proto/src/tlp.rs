//! The tail loss probe (RFC 8985, section 7): when the last segments of a burst stay
//! unacknowledged, one is sent again early, so that the answer to it shows what is missing before
//! the retransmission timer runs out.
//!
//! Not here: the timer and the probe's transmission ([`crate::recovery`]).

use crate::time::Duration;

/// Most that a receiver may delay an acknowledgement, as Linux assumes it for a lone segment
/// (`TCP_RTO_MIN`).
const DELAYED_ACK_MAX: Duration = Duration::from_millis(200);
/// Added otherwise, for the granularity of timers (Linux: `TCP_TIMEOUT_MIN`).
const SLACK: Duration = Duration::from_millis(2);

/// How long to wait for an acknowledgement before probing (section 7.2). `lone`: no more than one
/// segment is outstanding.
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
    /// What was the next position to send after it.
    end: u64,
    /// Whether it repeated a segment, so that the answer may hide that one was lost.
    again: bool,
}

/// The state of probing.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailLossProbe {
    sent: Option<Probe>,
}

/// What an acknowledgement says of the probe (section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or there was none.
    None,
    /// The segment had arrived before, or the probe was new data: nothing was lost.
    Needless,
    /// The probe itself filled the gap: there was a loss, and the window has to be reduced for it.
    Repaired,
}

impl TailLossProbe {
    /// Whether a probe was sent that is not answered yet: no second one meanwhile.
    pub fn is_pending(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether a D-SACK block that ends here is about the probe, not about reordering.
    pub fn ends_at(&self, end: u64) -> bool {
        self.sent.is_some_and(|probe| probe.end == end)
    }

    /// A probe was sent; `nxt` is the next position to send now.
    pub fn on_sent(&mut self, nxt: u64, again: bool) {
        self.sent = Some(Probe { end: nxt, again });
    }

    /// Recovery began, or a timeout: the probe does not matter any more.
    pub fn forget(&mut self) {
        self.sent = None;
    }

    /// An acknowledgement came. `dsack`: it has a D-SACK block. `plain`: it is a pure duplicate,
    /// without SACK block, data or change of the window.
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
        // Exactly the probe's end: the acknowledgement of the segment itself or of the probe; a
        // second one tells.
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
