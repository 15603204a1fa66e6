//! Time stamps of data calls, while somebody wants the times of a session's layers.
//!
//! Without a wish a call costs one look at a word of the session's own memory. Only sessions whose
//! engine runs in this process have layers here. Not here: the engine's stamps
//! (`sojourn_pump::timing`), the sums (`sojourn_stream::Times`).

use crate::session::Session;
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use sojourn_pump::timing::now_ns;
use sojourn_stream::{Delivered, Layer, LayerTime, Stream};

/// The beginning of a timed call that receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedCall(u64);

impl Session {
    /// Notes the beginning of a call that sends, in the program's ring's memory.
    #[inline]
    pub(crate) fn note_call(&self, stream: &Stream) {
        if let Some(times) = stream.ledger().times() {
            times.called(now_ns());
        }
    }

    /// Returns the beginning of a call that receives, if it is to be timed.
    #[inline]
    pub(crate) fn begin_timed(&self) -> Option<TimedCall> {
        self.is_timed.load(Ordering::Relaxed).then(|| TimedCall(now_ns()))
    }

    /// Notes that calls are to be timed, if they are, and the time of this look at the ring.
    #[inline]
    pub(crate) fn note_look(&self, stream: &Stream) {
        let is_wanted = stream.ledger().times().is_some();
        if is_wanted || self.is_timed.load(Ordering::Relaxed) {
            self.is_timed.store(is_wanted, Ordering::Relaxed);
            self.looked_at.store(now_ns(), Ordering::Relaxed);
        }
    }

    /// Ends a timed call: adds the chain of the bytes that it has received.
    #[cold]
    pub(crate) fn end_timed(&self, begun: TimedCall, result: Option<&Result<usize, Errno>>) {
        let Some(stream) = self.stream() else { return };
        let Some(times) = stream.ledger().times() else { return };
        if !matches!(result, Some(Ok(1..))) {
            return;
        }
        let Some(Delivered { at_ns: delivered, arrived }) = times.take_delivered() else { return };
        let [queue, ip, protocol] = arrived;
        let looked = self.looked_at.load(Ordering::Relaxed);
        let Some([wake_up, in_socket, copy_out]) = divided(delivered, begun.0, looked, now_ns())
        else {
            return;
        };
        times.received(&[
            LayerTime { layer: Layer::Queue, ns: queue },
            LayerTime { layer: Layer::IpInput, ns: ip },
            LayerTime { layer: Layer::ProtocolInput, ns: protocol },
            LayerTime { layer: Layer::WakeUp, ns: wake_up },
            LayerTime { layer: Layer::InSocket, ns: in_socket },
            LayerTime { layer: Layer::CopyOutExit, ns: copy_out },
        ]);
    }
}

/// Divides the time from when bytes were there to the end of the call: the reader came to look,
/// the bytes waited for the call, the bytes were copied. `None` if that cannot be: another process
/// could write the first moment.
fn divided(delivered: u64, begun: u64, looked: u64, end: u64) -> Option<[u64; 3]> {
    let whole = end.checked_sub(delivered)?;
    if delivered <= begun {
        let in_socket = begun - delivered;
        return Some([0, in_socket, whole - in_socket]);
    }
    // A call that takes packets in itself looks at the ring before them, or not at all.
    let wake_up = looked.saturating_sub(delivered).min(whole);
    Some([wake_up, 0, whole - wake_up])
}

#[cfg(test)]
mod tests {
    use super::divided;

    #[test]
    fn the_parts_are_the_whole() {
        // There before the call; while it slept; taken in by the call itself; never.
        assert_eq!(divided(10, 30, 32, 40), Some([0, 20, 10]));
        assert_eq!(divided(10, 5, 32, 40), Some([22, 0, 8]));
        assert_eq!(divided(10, 5, 7, 40), Some([0, 0, 30]));
        assert_eq!(divided(50, 5, 7, 40), None);
    }
}
