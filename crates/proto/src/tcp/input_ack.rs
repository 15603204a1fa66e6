//! The acknowledgement in a segment: RFC 9293, 3.10.7.4, fifth; RFC 5961, 5. Not here: loss and
//! congestion (`recovery`).

use super::connection::Connection;
use super::disposition::Disposition;
use super::input::Incoming;
use crate::position::{self, Span};
use crate::record::TcpState;
use crate::recovery::Ack;
use crate::time::Instant;
use sojourn_wire::tcp::{Flags, SACK_BLOCKS_MAX};

impl Connection {
    /// Processes the acknowledgement. Returns a disposition if the rest of the segment must be
    /// ignored.
    pub(super) fn take_acknowledgement(
        &mut self,
        now: Instant,
        segment: &Incoming<'_>,
    ) -> Option<Disposition> {
        let seg_ack = position::near(self.snd.una, segment.header.ack.0);
        if seg_ack > self.snd.nxt {
            self.challenge(now);
            return Some(Disposition::AcksUnsent);
        }
        if seg_ack + self.snd.max_window.max(1) < self.snd.una {
            self.challenge(now);
            return Some(Disposition::AcksAncient);
        }
        // An acknowledgement that was overtaken does not move `una`, but its SACK blocks may be
        // news.
        let is_old = seg_ack < self.snd.una;
        let window_changed = !is_old && self.update_window(segment, seg_ack);
        self.inform_recovery(now, segment, seg_ack.max(self.snd.una), window_changed);
        self.on_answer();
        None
    }

    fn inform_recovery(
        &mut self,
        now: Instant,
        segment: &Incoming<'_>,
        una: u64,
        window_changed: bool,
    ) {
        let mut blocks = [Span::default(); SACK_BLOCKS_MAX];
        let count = self.sack_blocks(segment, &mut blocks);
        let option = segment.header.options.timestamps;
        let stamped = self.stamps.as_ref().zip(option);
        self.recovery.on_ack(
            now,
            &Ack {
                una,
                sack: &blocks[..count],
                echo: stamped.and_then(|(stamps, option)| stamps.echo_time(now, option.echo)),
                ece: self.ecn.negotiated && segment.has(Flags::ECE),
                carries_data: segment.end > segment.start,
                window_changed,
            },
        );
        if una > self.snd.una {
            self.advance(una);
        }
    }

    /// Writes the SACK blocks as positions and returns their number; 0 if SACK was not agreed.
    fn sack_blocks(&self, segment: &Incoming<'_>, blocks: &mut [Span; SACK_BLOCKS_MAX]) -> usize {
        if !self.sack {
            return 0;
        }
        let received = segment.header.options.sack.as_slice();
        for (block, sack) in blocks.iter_mut().zip(received) {
            let start = position::near(self.snd.una, sack.start.0);
            *block = Span::new(start, position::near(start, sack.end.0));
        }
        received.len().min(SACK_BLOCKS_MAX)
    }

    /// Advances `snd.una` to `una`, frees the acknowledged bytes, and lets the send buffer grow.
    fn advance(&mut self, una: u64) {
        let (before, end) = (self.snd.una, self.snd.end);
        self.timers.silent_since = None;
        self.counters.bytes_acked += una.min(end) - before.min(end);
        // Each acknowledgement announces the window anew, so the window is not reduced here.
        self.snd.una = una;
        self.snd.small_end = self.snd.small_end.max(una);
        let Some(ring) = &mut self.snd.ring else { return };
        if una >= end {
            ring.rewind(end);
        }
        if !self.options.sndbuf_locked {
            // Twice the congestion window (`tcp_sndbuf_expand`): one window in flight, one to
            // follow it.
            let wanted = self.recovery.cwnd().saturating_mul(2);
            self.snd.limit = self.snd.limit.max(wanted.min(self.snd.capacity));
        }
    }

    /// Updates the peer's window (RFC 9293, 3.10.7.4, fifth; Linux's `tcp_may_update_window`):
    /// newer segments set the window, and an equally new segment sets it if that opens or closes
    /// the window. Returns true if the window changed.
    fn update_window(&mut self, segment: &Incoming<'_>, seg_ack: u64) -> bool {
        let snd = &mut self.snd;
        let window = u64::from(segment.header.window) << snd.scale;
        let newer = seg_ack > snd.una
            || segment.start > snd.wl1
            || (segment.start == snd.wl1 && (window > snd.wnd || window == 0));
        if !newer {
            return false;
        }
        let changed = window != snd.wnd;
        snd.wl1 = segment.start;
        snd.wl2 = seg_ack;
        snd.wnd = window;
        snd.max_window = snd.max_window.max(window);
        changed
    }

    /// Changes the state if this end's FIN is acknowledged (RFC 9293, 3.10.7.4, fifth).
    pub(super) fn after_acknowledgement(&mut self, now: Instant) {
        if !self.snd.fin_acknowledged() {
            return;
        }
        match self.state {
            TcpState::FinWait1 => self.state = TcpState::FinWait2,
            TcpState::Closing => self.enter_time_wait(now),
            TcpState::LastAck => self.close(None),
            _ => {}
        }
    }

    /// Enters or restarts TIME-WAIT (RFC 9293, 3.6.1), which lasts one minute in Linux.
    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.state = TcpState::TimeWait;
        self.timers.clear();
        self.timers.time_wait = Some(now + self.tuning.time_wait);
    }
}
