//! Proportional rate reduction (RFC 6937): how much to send for each acknowledgement of a recovery,
//! so that at its end as much is in the network as the congestion controller allows.
//!
//! Not here: the threshold itself ([`crate::cc`]) and what to send. As in Linux and in RFC 9937 the
//! slow start bound applies only while acknowledgements make progress without new losses; otherwise
//! the conservative bound.

/// The sums of one recovery, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// What was outstanding when the recovery began (`RecoverFS`), at least 1.
    flight: u64,
    /// Bytes known to have arrived since then.
    delivered: u64,
    /// Bytes sent since then.
    out: u64,
}

impl Prr {
    /// A recovery begins with `flight` bytes outstanding.
    pub fn begin(flight: u64) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Bytes were sent, new ones or lost ones.
    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// An acknowledgement told of `delivered` bytes; `in_flight` is the estimate after it.
    /// `progress`: the acknowledgement number rose and nothing new is lost. Gives the bytes that
    /// may be sent now.
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
            // Proportional: out of RecoverFS bytes, ssthresh bytes go.
            let share = u128::from(self.delivered) * u128::from(ssthresh);
            let share = share.div_ceil(u128::from(self.flight));
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            let bound = self.delivered.saturating_sub(self.out);
            let bound = if progress { bound.max(delivered) + mss } else { bound };
            bound.min(ssthresh - in_flight)
        };
        // The first retransmission of a recovery always goes.
        if self.out == 0 { allowed.max(mss) } else { allowed }
    }
}

#[cfg(test)]
#[path = "prr_tests.rs"]
mod tests;
