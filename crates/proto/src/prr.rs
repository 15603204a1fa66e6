//! Proportional rate reduction (RFC 6937): the bytes to send for each acknowledgement of a
//! recovery, so that the bytes in the network reach the slow start threshold when the recovery
//! ends.
//!
//! Not here: the threshold itself ([`crate::cc`]), and the choice of the segments
//! ([`crate::scoreboard`]). As in Linux and in RFC 9937 the slow start bound applies only while
//! acknowledgements make progress without new losses; otherwise the conservative bound.

/// The sums of one recovery, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// Bytes that were outstanding when the recovery began (`RecoverFS`), at least 1.
    flight: u64,
    /// Bytes known to have arrived since then.
    delivered: u64,
    /// Bytes sent since then.
    out: u64,
}

impl Prr {
    /// Begins a recovery with `flight` bytes outstanding.
    pub fn begin(flight: u64) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Counts `bytes` sent, new or retransmitted.
    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// Processes an acknowledgement of `delivered` bytes, after which `in_flight` bytes are
    /// estimated to be in the network, and returns the bytes that may be sent now. `progress` is
    /// true if the acknowledgement number rose and no further loss was found.
    pub fn on_ack(
        &mut self,
        delivered: u64,
        in_flight: u64,
        ssthresh: u64,
        mss: u64,
        progress: bool,
    ) -> u64 {
        self.delivered += delivered;
        let allowed = if in_flight > ssthresh {
            // Proportional part: of RecoverFS bytes delivered, ssthresh bytes are sent.
            let share = u128::from(self.delivered) * u128::from(ssthresh);
            let share = share.div_ceil(u128::from(self.flight));
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            // The conservative bound sends as much as was delivered; with progress the slow start
            // bound adds a segment (RFC 6937, 3; RFC 9937 for the choice).
            let bound = self.delivered.saturating_sub(self.out);
            let bound = if progress { bound.max(delivered) + mss } else { bound };
            bound.min(ssthresh - in_flight)
        };
        // The first retransmission of a recovery is always allowed.
        if self.out == 0 { allowed.max(mss) } else { allowed }
    }
}

#[cfg(test)]
#[path = "prr_tests.rs"]
mod tests;
