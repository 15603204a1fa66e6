//! The data in a segment, and the FIN: RFC 9293, 3.10.7.4, seventh and eighth.
//!
//! Bytes are copied once, into the receive ring, or not at all if the embedder takes them directly.
//! Not here: the ranges beyond gaps ([`crate::reassembly`]).

use super::connection::Connection;
use super::disposition::Disposition;
use super::input::Incoming;
use crate::position::Span;
use crate::reassembly::Inserted;
use crate::record::TcpState;
use crate::time::Instant;
use sojourn_wire::tcp::Flags;

impl Connection {
    /// Processes the data and the FIN of an acceptable segment.
    pub(super) fn take_data(&mut self, now: Instant, segment: &Incoming<'_>) -> Disposition {
        if segment.end == segment.start {
            return Disposition::Acknowledgement;
        }
        self.take_marks(segment);
        if segment.end <= self.rcv.nxt {
            return self.answer_duplicate(now, segment);
        }
        if self.rcv.fin_taken() {
            return Disposition::AfterFin;
        }
        let edge = self.rcv.window.edge.max(self.rcv.nxt);
        if segment.start >= edge && segment.data_end > segment.start {
            self.acks.enter_quick(self.rcv.window.wnd, 16);
            self.acks.send_now();
            return Disposition::ClosedWindow;
        }
        let end = self.note_fin(segment, edge);
        let span = Span::new(segment.start, end);
        let fresh = segment.start.max(self.rcv.nxt);
        if fresh < end {
            let lends = self.may_lend
                && end == segment.data_end
                && fresh == self.rcv.nxt
                && self.rcv.readable().is_empty()
                && self.rcv.assembler.is_empty();
            if lends {
                self.rcv.lent = Some(Span::new(fresh, end));
            } else {
                let from = (fresh - segment.start) as usize;
                self.rcv.ring.write(fresh, &segment.payload[from..(end - segment.start) as usize]);
            }
        }
        let had_gaps = !self.rcv.assembler.is_empty();
        if fresh < end {
            return match self.rcv.assembler.insert(self.rcv.nxt, span) {
                Inserted::Advanced(nxt) => self.advance_receiving(now, segment, nxt, had_gaps),
                other => {
                    self.rcv.lent = None;
                    self.answer_disorder(other)
                }
            };
        }
        // The segment has only a FIN, which is next or lies beyond a gap.
        self.advance_receiving(now, segment, self.rcv.nxt, had_gaps)
    }

    /// Processes congestion marks and CWR (RFC 3168, 6.1.3): from a mark on, acknowledgements carry
    /// ECE until CWR comes.
    fn take_marks(&mut self, segment: &Incoming<'_>) {
        if !self.ecn.negotiated {
            return;
        }
        if segment.has(Flags::CWR) {
            self.ecn.echo = false;
            // The sender's window may be down to a single segment, so the acknowledgement must not
            // be delayed.
            self.acks.send_now();
        }
        if segment.congestion {
            if !self.ecn.echo {
                self.acks.enter_quick(self.rcv.window.wnd, 2);
            }
            self.ecn.echo = true;
        }
    }

    /// Answers a segment whose data had all arrived before: this end's acknowledgement was lost, or
    /// the network duplicated the segment.
    fn answer_duplicate(&mut self, now: Instant, segment: &Incoming<'_>) -> Disposition {
        self.note_duplicate(segment);
        self.acks.enter_quick(self.rcv.window.wnd, 16);
        self.acks.send_now();
        if self.state == TcpState::TimeWait && segment.has(Flags::FIN) {
            self.enter_time_wait(now);
        }
        Disposition::Duplicate
    }

    /// Returns the end of the data that can be accepted, which the window's edge and the FIN limit.
    /// Notes the position of a FIN, even beyond a gap.
    fn note_fin(&mut self, segment: &Incoming<'_>, edge: u64) -> u64 {
        let end = segment.data_end.min(edge);
        if segment.has(Flags::FIN) && end == segment.data_end && self.rcv.fin.is_none() {
            // A FIN before bytes that have already arrived contradicts them and is ignored.
            if self.rcv.assembler.highest().is_none_or(|highest| highest <= end) {
                self.rcv.fin = Some(end);
            }
        }
        self.rcv.fin.map_or(end, |fin| end.min(fin))
    }

    /// Acknowledges a segment beyond a gap at once (RFC 5681, 4.2). Without SACK each segment gets
    /// its own acknowledgement, because the peer counts duplicates (RFC 6582).
    fn answer_disorder(&mut self, inserted: Inserted) -> Disposition {
        self.counters.rcv_ooopack += 1;
        if self.sack {
            self.acks.send_now()
        } else {
            self.acks.owe_one()
        }
        match inserted {
            Inserted::Kept | Inserted::Advanced(_) => Disposition::OutOfOrder,
            Inserted::Duplicate => Disposition::Duplicate,
            Inserted::Full => Disposition::NoRoom,
        }
    }

    /// Advances the stream to `nxt` and schedules an acknowledgement.
    fn advance_receiving(
        &mut self,
        now: Instant,
        segment: &Incoming<'_>,
        nxt: u64,
        had_gaps: bool,
    ) -> Disposition {
        if nxt == self.rcv.nxt && self.rcv.fin != Some(nxt) {
            return self.answer_disorder(Inserted::Kept);
        }
        self.counters.bytes_received += nxt - self.rcv.nxt;
        self.rcv.nxt = nxt;
        self.grow_buffer(now, segment);
        let pushed = segment.has(Flags::PSH);
        let rto = self.rto_base();
        self.acks.on_data(now, segment.segment, pushed, rto, self.rcv.window.wnd);
        if self.rcv.fin == Some(nxt) {
            self.take_fin(now);
        }
        self.schedule_ack(now, had_gaps);
        Disposition::Data
    }

    fn grow_buffer(&mut self, now: Instant, segment: &Incoming<'_>) {
        match (&self.stamps, segment.header.options.timestamps) {
            (Some(stamps), Some(option)) if segment.segment >= self.acks.segment() => {
                if let Some(sent) = stamps.echo_time(now, option.echo) {
                    self.rcv.window.on_rtt(now.since(sent));
                }
            }
            (None, _) => self.rcv.window.on_advance(now, self.rcv.nxt),
            _ => {}
        }
        self.rcv.window.adjust(now, u32::from(self.sizes.advertised_mss));
    }

    /// Processes the peer's FIN, which is in order now (RFC 9293, 3.10.7.4, eighth).
    fn take_fin(&mut self, now: Instant) {
        self.rcv.nxt += 1;
        self.rcv.assembler.clear();
        match self.state {
            TcpState::Established => {
                self.state = TcpState::CloseWait;
                // As in Linux, the program's own FIN may carry the acknowledgement.
                self.acks.set_quick(false);
            }
            TcpState::FinWait1 => {
                self.state = TcpState::Closing;
                self.acks.send_now();
            }
            TcpState::FinWait2 => {
                self.enter_time_wait(now);
                self.acks.send_now();
            }
            _ => {}
        }
    }

    /// Sends the acknowledgement now or later (`__tcp_ack_snd_check`). It is sent at once after
    /// more than a segment if the window can move along, in quick mode, and if there were gaps (RFC
    /// 5681, 4.2).
    fn schedule_ack(&mut self, now: Instant, had_gaps: bool) {
        let unacknowledged = self.rcv.nxt - self.rcv.window.wup;
        let window_moves = self.rcv.readable().len() < u64::from(self.options.rcvlowat)
            || self.choose_window() >= self.rcv.window.wnd;
        let much = unacknowledged > u64::from(self.acks.segment()) && window_moves;
        if much || self.acks.in_quick() || had_gaps {
            self.acks.send_now();
        } else {
            self.acks.delay(now, self.recovery.rtt().srtt());
        }
    }
}
