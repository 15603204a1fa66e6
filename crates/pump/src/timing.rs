//! Time stamps of the engine's layers, while somebody wants them: the way of one message.
//!
//! Without a wish there is no clock read, and each border costs a branch that always goes one way.
//! Not here: the sums (`sojourn_stream::Times`), the reader's side (the library's `io::timed`).

use sojourn_stream::{Layer, LayerTime, Stream};

/// Returns `CLOCK_MONOTONIC` in nanoseconds, never 0.
#[cold]
pub fn now_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic).max(1)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A message on its way out: where its first segment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingMessage {
    called: u64,
    turned: u64,
    made: u64,
    headed: u64,
}

impl OutgoingMessage {
    /// Begins with the call that was noted last, if times are wanted and one was.
    #[inline]
    pub(crate) fn begin(stream: &Stream) -> Option<Self> {
        let called = stream.ledger().times()?.take_called()?;
        Some(Self { called, turned: now_ns(), made: 0, headed: 0 })
    }

    /// The protocol has made a segment.
    #[inline]
    pub(crate) fn made(&mut self) {
        if self.made == 0 {
            self.made = now_ns();
        }
    }

    /// The segment has its headers.
    #[inline]
    pub(crate) fn headed(&mut self) {
        if self.headed == 0 && self.made != 0 {
            self.headed = now_ns();
        }
    }

    /// Returns true if a segment has gone to the packet interface.
    pub(crate) fn is_sent(&self) -> bool {
        self.headed != 0
    }

    /// The packet interface has done its part: adds the chain.
    #[cold]
    pub(crate) fn finish(self, stream: &Stream) {
        let Some(times) = stream.ledger().times() else { return };
        let Some(rows) = spans(
            [self.called, self.turned, self.made, self.headed, now_ns()],
            [Layer::EntryCopyIn, Layer::ProtocolOutput, Layer::IpOutput, Layer::LinkOutput],
        ) else {
            return;
        };
        times.sent(&rows);
    }
}

/// The spans between moments; `None` if they are not in order (the first one lies where another
/// process could write).
fn spans(moments: [u64; 5], layers: [Layer; 4]) -> Option<[LayerTime; 4]> {
    let mut rows = layers.map(|layer| LayerTime { layer, ns: 0 });
    for (row, pair) in rows.iter_mut().zip(moments.windows(2)) {
        row.ns = pair[1].checked_sub(pair[0])?;
    }
    Some(rows)
}

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingPacket {
    /// The engine's look.
    begun: u64,
    /// How long the packet waited for that.
    queued: u64,
    parsed: u64,
}

impl IncomingPacket {
    /// The engine looks at a packet that the kernel stamped at `time_ns` of the real-time clock.
    #[cold]
    pub(crate) fn begin(time_ns: Option<u64>) -> Self {
        let real = clock_ns(rustix::time::ClockId::Realtime);
        // That clock may have been set in between.
        let queued = time_ns.and_then(|then| real.checked_sub(then)).unwrap_or(0);
        Self { begun: now_ns(), queued, parsed: 0 }
    }

    /// Headers are read, and the session is found.
    #[inline]
    pub(crate) fn parsed(&mut self) {
        self.parsed = now_ns();
    }

    /// The bytes are where the reader finds them.
    #[cold]
    pub(crate) fn finish(self, stream: &Stream) {
        let Some(times) = stream.ledger().times() else { return };
        let done = now_ns();
        times.delivered(done, [self.queued, self.parsed - self.begun, done - self.parsed]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: [Layer; 4] =
        [Layer::EntryCopyIn, Layer::ProtocolOutput, Layer::IpOutput, Layer::LinkOutput];

    #[test]
    fn spans_are_between_moments_in_order() {
        let rows = spans([10, 15, 15, 18, 30], LAYERS).unwrap();
        assert_eq!(rows.map(|row| row.ns), [5, 0, 3, 12]);
        assert_eq!(spans([20, 15, 16, 18, 30], LAYERS), None);
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_wait() {
        assert_eq!(IncomingPacket::begin(Some(u64::MAX)).queued, 0);
        assert_eq!(IncomingPacket::begin(None).queued, 0);
    }
}
