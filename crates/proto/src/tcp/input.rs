//! Processing of an arriving segment: the checks of RFC 9293, 3.10.7.4 in their order, with
//! challenge acknowledgements (RFC 5961) and PAWS (RFC 7323, 5).
//!
//! Segments that pass go on to `input_ack` and `input_data`. The order of the checks and the limits
//! of answers are Linux's (`tcp_validate_incoming`).

use super::connection::Connection;
use super::disposition::Disposition;
use crate::position::{self, Span};
use crate::record::{CloseReason, TcpState};
use crate::time::Instant;
use sojourn_wire::tcp::{Flags, Header};

/// A segment, or several segments merged into one by receive offload. The checksum must have been
/// verified.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The header. Merged segments have the first one's header with the last one's acknowledgement
    /// and flags.
    pub header: &'a Header,
    /// The payload.
    pub payload: &'a [u8],
    /// Bytes of payload of each merged segment but the last; 0 for a single segment.
    pub segment_size: u16,
    /// The IP header was marked "congestion experienced" (RFC 3168, 5).
    pub congestion: bool,
}

impl<'a> Arrival<'a> {
    /// Creates a single segment without a congestion mark.
    pub fn new(header: &'a Header, payload: &'a [u8]) -> Arrival<'a> {
        Arrival { header, payload, segment_size: 0, congestion: false }
    }
}

/// A segment in positions of the receiving direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) header: &'a Header,
    pub(super) payload: &'a [u8],
    pub(super) congestion: bool,
    /// Size of the segments on the wire.
    pub(super) segment: u32,
    /// The position at which the segment begins.
    pub(super) start: u64,
    /// The position at which the data ends.
    pub(super) data_end: u64,
    /// The position at which the segment ends, including SYN and FIN.
    pub(super) end: u64,
}

impl Incoming<'_> {
    pub(super) fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }
}

/// The outcome of [`Connection::on_segment_lent`].
#[derive(Clone, Copy, Debug)]
pub struct LentSegment<'a> {
    /// What became of the segment.
    pub disposition: Disposition,
    /// The new part of the payload, if it was not copied.
    pub lent: Option<&'a [u8]>,
}

impl Connection {
    /// Processes a segment of this connection. The caller has found the connection by the segment's
    /// ports and addresses.
    ///
    /// The returned disposition is also counted; see [`Connection::tally`]. Call
    /// [`Connection::poll_transmit`] afterwards, since an answer may be due.
    pub fn on_segment(&mut self, now: Instant, arrival: &Arrival<'_>) -> Disposition {
        let disposition = self.dispose(now, arrival);
        self.tally.add(disposition);
        disposition
    }

    /// Processes a segment like [`Connection::on_segment`], but does not copy the payload if all
    /// earlier bytes have been read. In that case the new part of the payload is returned, and the
    /// caller must call [`Connection::settle`] with the number of bytes that were read before it
    /// calls any other method.
    pub fn on_segment_lent<'a>(&mut self, now: Instant, arrival: &Arrival<'a>) -> LentSegment<'a> {
        self.may_lend = true;
        let disposition = self.on_segment(now, arrival);
        self.may_lend = false;
        let from = self.rcv.lent.map(|span| arrival.payload.len() - span.len() as usize);
        let lent = from.and_then(|from| arrival.payload.get(from..));
        LentSegment { disposition, lent }
    }

    fn dispose(&mut self, now: Instant, arrival: &Arrival<'_>) -> Disposition {
        if self.exported {
            return Disposition::Exported;
        }
        if self.state == TcpState::Closed {
            return Disposition::Closed;
        }
        let segment = self.incoming(arrival);
        self.count_arrival(&segment);
        if let Some(refused) = self.refuse(now, &segment) {
            return refused;
        }
        if self.is_urgent_segment(&segment) {
            return Disposition::Urgent;
        }
        if let Some(refused) = self.take_acknowledgement(now, &segment) {
            return refused;
        }
        self.update_recent(now, &segment);
        self.heard_at = now;
        self.after_acknowledgement(now);
        if self.state == TcpState::Closed {
            return Disposition::Acknowledgement;
        }
        self.take_data(now, &segment)
    }

    fn incoming<'a>(&self, arrival: &Arrival<'a>) -> Incoming<'a> {
        let header = arrival.header;
        let start = position::near(self.rcv.nxt, header.seq.0);
        let data_end = start + arrival.payload.len() as u64;
        let merged = u32::from(arrival.segment_size);
        Incoming {
            header,
            payload: arrival.payload,
            congestion: arrival.congestion,
            segment: if merged > 0 { merged } else { arrival.payload.len() as u32 },
            start,
            data_end,
            end: data_end + u64::from(header.flags.sequence_len()),
        }
    }

    fn count_arrival(&mut self, segment: &Incoming<'_>) {
        let length = segment.payload.len() as u64;
        let count = length.div_ceil(u64::from(segment.segment.max(1))).max(1);
        self.counters.segs_in += count;
        if length > 0 {
            self.counters.data_segs_in += count;
        }
    }

    /// Returns a disposition if the segment fails one of the first checks of RFC 9293, 3.10.7.4:
    /// timestamp, sequence number, RST, SYN, ACK.
    fn refuse(&mut self, now: Instant, segment: &Incoming<'_>) -> Option<Disposition> {
        let reset = segment.has(Flags::RST);
        if !reset && self.is_old_duplicate(now, segment) {
            self.answer_unacceptable(now, segment);
            return Some(Disposition::OldTimestamp);
        }
        if reset && self.resets_before_fin(segment) {
            return Some(self.end_by_reset());
        }
        if let Some(outside) = self.outside(segment) {
            if reset {
                return Some(Disposition::ResetOutside);
            }
            if segment.has(Flags::SYN) {
                self.challenge(now);
                return Some(Disposition::Syn);
            }
            self.answer_unacceptable(now, segment);
            return Some(outside);
        }
        if reset {
            return Some(self.take_reset(now, segment));
        }
        if segment.has(Flags::SYN) {
            self.challenge(now);
            return Some(Disposition::Syn);
        }
        (!segment.has(Flags::ACK)).then_some(Disposition::NoAck)
    }

    /// Returns true if PAWS rejects the segment (RFC 7323, 5.3, R1). A segment without the option
    /// passes, as in Linux, because middleboxes may strip options.
    fn is_old_duplicate(&self, now: Instant, segment: &Incoming<'_>) -> bool {
        let (Some(stamps), Some(option)) = (&self.stamps, segment.header.options.timestamps) else {
            return false;
        };
        stamps.is_old(now, option.value)
            && !self.is_disordered_ack(segment, stamps.behind(option.value))
    }

    /// Returns true for a pure duplicate acknowledgement that others have overtaken in the network
    /// (Linux's `tcp_disordered_ack`). It does no harm and may indicate a loss.
    fn is_disordered_ack(&self, segment: &Incoming<'_>, behind: i32) -> bool {
        let tick = self.stamps.map_or(1, |stamps| stamps.tick().as_micros());
        let window = u64::from(segment.header.window) << self.snd.scale;
        segment.has(Flags::ACK)
            && segment.start == segment.end
            && segment.start == self.rcv.nxt
            && segment.header.ack.0 == self.snd.una as u32
            && window == self.snd.wnd
            && behind.unsigned_abs() as u64 * tick <= self.rto_base().as_micros()
    }

    /// Returns a disposition if the segment lies outside the receive window (RFC 9293, 3.10.7.4,
    /// first; Linux's `tcp_sequence`).
    fn outside(&self, segment: &Incoming<'_>) -> Option<Disposition> {
        if segment.end < self.rcv.window.wup {
            return Some(Disposition::BeforeWindow);
        }
        (segment.start > self.rcv.window.edge.max(self.rcv.nxt))
            .then_some(Disposition::BeyondWindow)
    }

    /// Answers a segment that is not acceptable with an acknowledgement (RFC 9293, 3.10.7.4), and
    /// duplicate data with D-SACK. Answers to segments without data are rate-limited, so that two
    /// ends cannot answer each other for ever (`tcp_oow_rate_limited`).
    fn answer_unacceptable(&mut self, now: Instant, segment: &Incoming<'_>) {
        if segment.start < segment.data_end {
            self.note_duplicate(segment);
            self.acks.enter_quick(self.rcv.window.wnd, 16);
            self.acks.send_now();
        } else if self.timers.answers.allows(now, self.tuning.invalid_ratelimit) {
            self.acks.send_now();
        }
    }

    /// Notes data before the window in the assembler, for D-SACK.
    pub(super) fn note_duplicate(&mut self, segment: &Incoming<'_>) {
        let end = segment.data_end.min(self.rcv.nxt);
        if self.sack && self.tuning.dsack && segment.start < end {
            self.rcv.assembler.insert(self.rcv.nxt, Span::new(segment.start, end));
        }
    }

    /// Processes a RST inside the window (RFC 5961, 3.2): only the exact sequence number resets.
    /// Any other is challenged; a peer that really reset then sends RST with the exact number.
    fn take_reset(&mut self, now: Instant, segment: &Incoming<'_>) -> Disposition {
        if segment.start != self.rcv.nxt {
            self.challenge(now);
            return Disposition::ResetNotExact;
        }
        self.end_by_reset()
    }

    /// Returns true for a RST with the sequence number of the peer's FIN, as some systems send it
    /// (Linux's `tcp_reset_check`).
    fn resets_before_fin(&self, segment: &Incoming<'_>) -> bool {
        let waits =
            matches!(self.state, TcpState::CloseWait | TcpState::LastAck | TcpState::Closing);
        waits && segment.start + 1 == self.rcv.nxt
    }

    fn end_by_reset(&mut self) -> Disposition {
        match self.state {
            TcpState::TimeWait if self.tuning.rfc1337 => return Disposition::ResetOutside,
            // Both directions were closed in order, so the reset loses no data and is no error.
            TcpState::TimeWait | TcpState::LastAck | TcpState::Closing => self.close(None),
            TcpState::CloseWait => self.close(Some(CloseReason::BrokenPipe)),
            _ => self.close(Some(CloseReason::Reset)),
        }
        Disposition::Reset
    }

    /// Sends a challenge acknowledgement, within its rate limits (RFC 5961, 3, 4, 5 and 7).
    pub(super) fn challenge(&mut self, now: Instant) {
        let (interval, limit) = (self.tuning.invalid_ratelimit, self.tuning.challenge_ack_limit);
        if self.timers.answers.allows_challenge(now, interval, limit) {
            self.acks.send_now();
        }
    }

    /// Updates `TS.Recent` from a segment that begins at or before the last acknowledgement sent
    /// (RFC 7323, 4.3).
    fn update_recent(&mut self, now: Instant, segment: &Incoming<'_>) {
        if let (Some(stamps), Some(option)) = (&mut self.stamps, segment.header.options.timestamps)
            && segment.start <= self.rcv.window.wup
        {
            stamps.update(now, option.value);
        }
    }

    /// Returns true if the segment announces urgent data that has not arrived yet (RFC 9293,
    /// 3.8.5).
    fn is_urgent_segment(&self, segment: &Incoming<'_>) -> bool {
        let pointer = u64::from(segment.header.urgent);
        segment.has(Flags::URG) && pointer > 0 && segment.start + pointer > self.rcv.nxt
    }
}
