//! The receive window: the bytes that the peer may send, and the growth of the buffer with the
//! bytes that the program reads.
//!
//! The announced right edge is never taken back (RFC 9293, 3.8.6; RFC 7323, 2.4) and never advanced
//! by small steps (silly-window avoidance, RFC 9293, 3.8.6.2.2). Growth follows Linux's dynamic
//! right-sizing (`tcp_rcv_space_adjust`): the buffer holds twice what the program read in the last
//! round trip. Not here: the bytes (`ring`), and the ranges that have arrived (`reassembly`).

use crate::record::{TcpOptions, TcpRecord, TcpTuning};
use crate::time::{Duration, Instant};

/// Segments for which there is always room in a growing buffer (Linux: 16).
const HEADROOM_SEGMENTS: u64 = 16;

/// The window towards the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// The next expected position when the window was last announced.
    pub(super) wup: u64,
    /// The announced window, in bytes from `wup`.
    pub(super) wnd: u64,
    /// The farthest right edge that was ever announced; bytes before it are accepted.
    pub(super) edge: u64,
    /// The shift of the announced window.
    pub(super) scale: u8,
    /// The number of bytes that the buffer may hold now.
    limit: u64,
    /// Bytes that the buffer may ever hold.
    limit_max: u64,
    grows: bool,
    /// `TCP_WINDOW_CLAMP`, or no bound.
    clamp: u64,
    /// Bytes read since `measured_at`.
    copied: u64,
    /// The largest number of bytes read in a round trip.
    space: u64,
    measured_at: Instant,
    /// The round-trip time as measured by the receiver.
    rtt: Option<Duration>,
    /// Without timestamps: a window of data, which takes a round trip (`tcp_rcv_rtt_measure`).
    round: Option<DataRound>,
}

/// A window of data that is under way.
#[derive(Clone, Copy, Debug)]
struct DataRound {
    /// The position behind it.
    end: u64,
    begun: Instant,
}

/// Returns the payload that fits a socket's buffer: Linux charges the memory of packets, which is
/// about twice their payload.
pub(super) fn payload_room(buffer: u32) -> u64 {
    u64::from(buffer) / 2
}

impl ReceiveWindow {
    /// Creates the window from a record. `capacity_max` is the limit of the receive ring in bytes.
    pub(super) fn import(
        record: &TcpRecord,
        nxt: u64,
        capacity_max: u64,
        now: Instant,
    ) -> ReceiveWindow {
        let wup = nxt - u64::from(record.rcv_nxt.wrapping_sub(record.rcv_wup));
        let edge = (wup + u64::from(record.rcv_wnd)).max(nxt);
        let queued = record.receive_queue.len() as u64;
        // The ring must also hold the bytes that rounding up may add to the window.
        let capacity_max = capacity_max.saturating_sub(1 << record.rcv_wscale);
        let (options, tuning) = (&record.options, &record.tuning);
        let grows = tuning.moderate_rcvbuf && !options.rcvbuf_locked;
        let least = (edge - nxt + queued).max(2 * u64::from(record.advertised_mss));
        let limit = payload_room(options.rcvbuf).min(capacity_max).max(least);
        let most = if grows { payload_room(tuning.rmem_max) } else { limit };
        let mut window = ReceiveWindow {
            wup,
            wnd: u64::from(record.rcv_wnd),
            edge,
            scale: record.rcv_wscale,
            limit,
            limit_max: most.min(capacity_max).max(limit),
            grows,
            clamp: u64::MAX,
            copied: 0,
            // Ten segments, as in Linux (`tcp_init_buffer_space`). With the whole window, a sender
            // that fills it would never look faster.
            space: (edge - nxt).min(10 * u64::from(record.advertised_mss)).max(1),
            measured_at: now,
            rtt: None,
            round: None,
        };
        window.set_clamp(options);
        window.make_room(u64::from(options.rcvlowat));
        window
    }

    /// Returns the size of a ring for this window in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.limit_max + (1 << self.scale)
    }

    fn set_clamp(&mut self, options: &TcpOptions) {
        self.clamp = if options.window_clamp == 0 { u64::MAX } else { options.window_clamp.into() };
    }

    /// Applies a change of the buffer's size or the clamp. `capacity` is the size of the ring.
    pub(super) fn set_buffer(&mut self, options: &TcpOptions, tuning: &TcpTuning, capacity: u64) {
        self.grows = tuning.moderate_rcvbuf && !options.rcvbuf_locked;
        self.set_clamp(options);
        let room = capacity.saturating_sub(1 << self.scale);
        self.limit = payload_room(options.rcvbuf).min(room);
        self.limit_max = if self.grows { room } else { self.limit };
    }

    /// Lets the buffer hold at least `bytes`, up to its largest size.
    pub(super) fn make_room(&mut self, bytes: u64) {
        self.limit = self.limit.max(bytes.min(self.limit_max));
    }

    /// The number of bytes that the buffer may hold now.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the rest of the announced window after the next expected position `nxt`
    /// (`tcp_receive_window`).
    pub(super) fn left(&self, nxt: u64) -> u64 {
        (self.wup + self.wnd).saturating_sub(nxt)
    }

    /// Returns the window that could be announced now (`__tcp_select_window`). `unread` are the
    /// bytes in order that wait for the program, `segment` is the size of the peer's segments.
    pub(super) fn choose(&self, nxt: u64, unread: u64, segment: u32) -> u64 {
        let left = self.left(nxt);
        let full = self.limit.min(self.clamp);
        let free = self.limit.saturating_sub(unread).min(full);
        let segment = u64::from(segment).min(full);
        if free < full / 16 || free < segment {
            return left;
        }
        let unit = 1 << self.scale;
        let mut chosen = if self.scale > 0 {
            // Rounded up as in Linux, so that a small room under a large scale is not announced as
            // 0; the ring has space for that.
            free.next_multiple_of(unit)
        } else if left + segment <= free || left > free {
            free - free % segment.max(1)
        } else {
            left
        };
        if self.scale == 0 {
            chosen = chosen.min(65_535);
        }
        chosen.min(65_535 << self.scale).max(left)
    }

    /// Notes the window that is being announced and returns the header's window field. `read` is
    /// the first position of the ring in use, `capacity` the ring's size.
    pub(super) fn tell(&mut self, nxt: u64, chosen: u64, read: u64, capacity: u64) -> u16 {
        let unit = 1u64 << self.scale;
        // Rounding up keeps the announced edge, unless the ring could not hold the bytes.
        let up = chosen.div_ceil(unit);
        let field = if nxt + up * unit <= read + capacity { up } else { chosen / unit };
        let field = field.min(65_535) as u16;
        self.wup = nxt;
        self.wnd = u64::from(field) * unit;
        self.edge = self.edge.max(nxt + self.wnd);
        field
    }

    /// Notes that the program read `count` bytes.
    pub(super) fn on_read(&mut self, count: u64) {
        self.copied += count;
    }

    /// Processes a round-trip time measured by the receiver from a timestamp's echo on full
    /// segments. The estimate falls at once and rises slowly.
    pub(super) fn on_rtt(&mut self, sample: Duration) {
        let sample = sample.max(Duration::from_micros(1));
        self.rtt = Some(match self.rtt {
            None => sample,
            Some(old) if sample < old => sample,
            Some(old) => old.times(7).divided_by(8) + sample.divided_by(8),
        });
    }

    /// Measures a round trip by a window of data, without timestamps. Called when `nxt` has
    /// advanced.
    pub(super) fn on_advance(&mut self, now: Instant, nxt: u64) {
        match self.round {
            Some(round) if nxt < round.end => return,
            Some(round) => self.on_rtt(now.since(round.begun)),
            None => {}
        }
        self.round = Some(DataRound { end: nxt + self.wnd.max(1), begun: now });
    }

    /// Lets the buffer grow to twice the bytes that the program read, once in a round trip.
    pub(super) fn adjust(&mut self, now: Instant, segment: u32) {
        let Some(rtt) = self.rtt else { return };
        if now.since(self.measured_at) < rtt {
            return;
        }
        let copied = core::mem::take(&mut self.copied);
        self.measured_at = now;
        if copied <= self.space {
            return;
        }
        if self.grows {
            // Twice the bytes read, and more if the bytes read have grown: the sender may be
            // doubling its window.
            let base = 2 * copied + HEADROOM_SEGMENTS * u64::from(segment);
            let more = base.saturating_mul(2 * (copied - self.space)) / self.space.max(1);
            self.limit = self.limit.max(base.saturating_add(more).min(self.limit_max));
        }
        self.space = copied;
    }

    /// Returns `tcpi_rcv_rtt`.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns `tcpi_rcv_space`.
    pub(super) fn space(&self) -> u64 {
        self.space
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
