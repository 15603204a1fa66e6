//! Times of the layers that a session's bytes pass in its program: words of the ledger, written
//! while somebody wants them.
//!
//! The session server writes the wish, for `sojourn time`. Without a wish each layer's border costs
//! one look at a word. A message is a **chain**: its times go to the sums only once all of them are
//! known, so that rows add up. The sums are for people only:
//! the program may write anything there. Not here: where borders are (`sojourn-pump`, the library).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of layers.
pub const LAYERS: usize = 10;

/// A layer of the engine in the program; `sojourn-time` has what the words mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Layer {
    /// From the call that sends to the engine's turn: the copy into the ring.
    EntryCopyIn,
    /// TCP makes a segment.
    ProtocolOutput,
    /// Its headers and its checksum.
    IpOutput,
    /// The packet interface takes it; the kernel's part for packet sockets.
    LinkOutput,
    /// From the kernel's copy to the engine's look.
    Queue,
    /// Headers are read, the session is found.
    IpInput,
    /// TCP, and the copy to the ring or to the call's buffer.
    ProtocolInput,
    /// Until the reader looks.
    WakeUp,
    /// The bytes wait for the program's call.
    InSocket,
    /// The copy from the ring, the end of the call.
    CopyOutExit,
}

/// The part of a chain that is known before the reader has its bytes: queue, IP, TCP.
pub type Arrived = [u64; 3];

/// The words. Any bytes are valid ones.
#[repr(C)]
#[derive(Debug)]
pub struct Times {
    /// The time of a call that sends and has not been followed yet (ns); 0: none.
    called: AtomicU64,
    /// The time at which bytes were put where the reader finds them (ns); 0: it has found them.
    delivered: AtomicU64,
    arrived: [AtomicU64; 3],
    sums: [AtomicU64; LAYERS],
    /// Chains, out and in.
    counts: [AtomicU64; 2],
}

/// Sums and counts, as they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerTimes {
    /// Nanoseconds, by [`Layer`].
    pub sums: [u64; LAYERS],
    /// Messages sent that were followed to the packet interface.
    pub sent: u64,
    /// Messages received that were followed to the end of a call.
    pub received: u64,
}

/// The time that a message has spent in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerTime {
    /// The layer.
    pub layer: Layer,
    /// Nanoseconds.
    pub ns: u64,
}

/// Bytes that are where the reader finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Since when they are there.
    pub at_ns: u64,
    /// The moments before that.
    pub arrived: Arrived,
}

impl Times {
    pub(crate) const fn new() -> Self {
        Self {
            called: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            arrived: [const { AtomicU64::new(0) }; 3],
            sums: [const { AtomicU64::new(0) }; LAYERS],
            counts: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Notes the beginning of a call that sends.
    pub fn called(&self, at_ns: u64) {
        self.called.store(at_ns, Ordering::Relaxed);
    }

    /// Takes the beginning of the last call, if it was not followed yet.
    pub fn take_called(&self) -> Option<u64> {
        Some(self.called.swap(0, Ordering::Relaxed)).filter(|at| *at != 0)
    }

    /// Notes that bytes are where the reader finds them. Of several packets before it looks the
    /// first counts.
    pub fn delivered(&self, at_ns: u64, before: Arrived) {
        if self.delivered.load(Ordering::Relaxed) == 0 {
            for (place, ns) in self.arrived.iter().zip(before) {
                place.store(ns, Ordering::Relaxed);
            }
            // SYNC: release; pairs with the acquire in `take_delivered`.
            self.delivered.store(at_ns, Ordering::Release);
        }
    }

    /// Takes the note of bytes that have been read now.
    pub fn take_delivered(&self) -> Option<Delivered> {
        // SYNC: acquire; pairs with the release in `delivered`.
        let at = self.delivered.swap(0, Ordering::Acquire);
        let arrived = || core::array::from_fn(|at| self.arrived[at].load(Ordering::Relaxed));
        (at != 0).then(|| Delivered { at_ns: at, arrived: arrived() })
    }

    /// Adds a whole chain of a message sent.
    pub fn sent(&self, times: &[LayerTime]) {
        self.add(0, times);
    }

    /// Adds a whole chain of a message received.
    pub fn received(&self, times: &[LayerTime]) {
        self.add(1, times);
    }

    fn add(&self, way: usize, times: &[LayerTime]) {
        for LayerTime { layer, ns } in times {
            self.sums[*layer as usize].fetch_add(*ns, Ordering::Relaxed);
        }
        self.counts[way].fetch_add(1, Ordering::Relaxed);
    }
}

impl LayerTimes {
    /// Reads sums and counts from a copy of the words' bytes. Returns `None` if the copy is too
    /// short.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            Some(u64::from_ne_bytes(bytes.get(at..at + size_of::<u64>())?.try_into().ok()?))
        };
        let counts = core::mem::offset_of!(Times, counts);
        let (sent, received) = (word(counts)?, word(counts + size_of::<u64>())?);
        let mut times = Self { sent, received, ..Self::default() };
        for (at, sum) in times.sums.iter_mut().enumerate() {
            *sum = word(core::mem::offset_of!(Times, sums) + at * size_of::<u64>())?;
        }
        Some(times)
    }
}

/// A wish, as it stands in the ledger: the second of the monotonic clock at which it ends.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct TimingRequest(AtomicU32);

impl TimingRequest {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Ends a wish whose time is over, or whose time cannot be: nobody wishes for more than a
    /// minute.
    pub(crate) fn expire(&self, now_s: u64) {
        let until = u64::from(self.0.load(Ordering::Relaxed));
        if until != 0 && (now_s > until || until > now_s + 60) {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(layer: Layer, ns: u64) -> LayerTime {
        LayerTime { layer, ns }
    }

    #[test]
    fn chains_are_added_whole_and_read_from_a_copy() {
        let times = Times::new();
        times.sent(&[time(Layer::EntryCopyIn, 5), time(Layer::LinkOutput, 7)]);
        times.received(&[time(Layer::Queue, 3)]);
        times.received(&[time(Layer::Queue, 4)]);
        // SAFETY: the words are atomic integers, all of whose bytes may be read.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const times).cast::<u8>(), size_of::<Times>())
        };
        let read = LayerTimes::from_bytes(bytes).unwrap();
        assert_eq!((read.sent, read.received), (1, 2));
        assert_eq!(read.sums[Layer::EntryCopyIn as usize], 5);
        assert_eq!(read.sums[Layer::Queue as usize], 7);
        assert_eq!(LayerTimes::from_bytes(&bytes[8..]), None);
    }

    #[test]
    fn of_packets_before_a_look_the_first_counts() {
        let times = Times::new();
        assert_eq!(times.take_delivered(), None);
        times.delivered(10, [1, 2, 3]);
        times.delivered(20, [4, 5, 6]);
        assert_eq!(times.take_delivered(), Some(Delivered { at_ns: 10, arrived: [1, 2, 3] }));
        assert_eq!(times.take_delivered(), None);
        times.called(7);
        assert_eq!((times.take_called(), times.take_called()), (Some(7), None));
    }

    #[test]
    fn a_wish_ends_with_its_time_and_so_does_one_that_cannot_be() {
        let wish = TimingRequest::new();
        for (until, now, stays) in [(0, 5, false), (9, 5, true), (9, 10, false), (500, 5, false)] {
            wish.0.store(until, Ordering::Relaxed);
            wish.expire(now);
            assert_eq!(wish.is_there(), stays, "{until} {now}");
        }
    }
}
