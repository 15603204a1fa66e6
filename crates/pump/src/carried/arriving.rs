//! What a session does with a segment that has arrived: past the engine, and into the stream or to
//! the call that waits for it.
//!
//! Read the head of `round` first, which says who names places for payload and why.

use super::{Carried, Ending};
use crate::placement::{Marks, Placement, Sizes};
use sojourn_proto::tcp::{Arrival, Connection, Disposition};
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;
use sojourn_wire::frame::Frame;
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{Flags, Header};
use std::io::IoSlice;

/// With one of these a segment is more than data.
const UNUSUAL: Flags = Flags::FIN.union(Flags::SYN).union(Flags::RST).union(Flags::URG);

impl Carried {
    /// A frame of this session has arrived.
    pub(crate) fn arrived(
        &mut self,
        frame: &Frame<'_>,
        segment_size: u16,
        placement: Option<&mut Placement<'_>>,
        now: Instant,
    ) -> Result<(), Ending> {
        let Some(segment) = frame.segment() else { return Ok(()) };
        let mut header = segment.header();
        // What ends a connection the kernel is to hear itself: it is told again once the session is
        // home.
        if header.flags.contains(Flags::RST) && self.connection.is_reset_by(header.seq) {
            return Err(Ending::Peer);
        }
        let has_fin = header.flags.contains(Flags::FIN);
        header.flags.set(Flags::FIN, false);
        let congestion = frame.traffic_class.ecn() == Ecn::Congestion;
        let payload = segment.payload();
        let arrival = Arrival { header: &header, payload, segment_size, congestion };
        let (disposition, lent) = self.connection.on_segment_lent(now, &arrival);
        if let Some(bytes) = lent {
            let done = self.hand_over(bytes, placement);
            self.connection.settle(bytes, done);
        }
        let end = header.seq.0.wrapping_add(payload.len() as u32);
        match disposition {
            Disposition::Urgent => Err(Ending::Unusual),
            _ if has_fin && !disposition.is_refused() && self.ends_at(end, now) => {
                Err(Ending::Peer)
            }
            _ => Ok(()),
        }
    }

    /// A FIN stands there: whether that is in the window. Notes whether it is right behind the last
    /// byte.
    fn ends_at(&mut self, end: u32, now: Instant) -> bool {
        let position = self.connection.position(now);
        self.has_ended = end == position.rcv_nxt;
        end.wrapping_sub(position.rcv_nxt) <= position.rcv_wnd
    }

    /// Copies what comes next to the call that waits, and then into the ring. What there is no room
    /// for, `deliver` brings.
    fn hand_over(&self, bytes: &[u8], placement: Option<&mut Placement<'_>>) -> usize {
        let mut done = 0;
        if let Some(placement) = placement.filter(|_| self.may_place()) {
            let room = placement.rest();
            done = sojourn_shm::copy::slice(bytes, room);
            placement.advance(done);
        }
        if done < bytes.len() {
            done += self.stream.write(&[IoSlice::new(&bytes[done..])], 0).unwrap_or(0);
        }
        done
    }

    /// Nothing that came before is left in the ring, and the session is not on its way home.
    fn may_place(&self) -> bool {
        !self.stream.is_frozen() && self.stream.pending() == 0
    }

    /// Where the `len` bytes of a segment belong that has not been copied out of the kernel yet,
    /// and how many of them are for whom. `None`: it is not what comes next, or there is no room.
    pub(crate) fn place<'a>(
        &'a mut self,
        header: &Header,
        len: usize,
        placement: Option<&'a mut Placement<'_>>,
    ) -> Option<([&'a mut [u8]; 3], Sizes)> {
        let is_plain = !header.flags.intersects(UNUSUAL);
        if !is_plain || !self.connection.is_next(header.seq, len) || self.stream.is_frozen() {
            return None;
        }
        let room = placement.filter(|_| self.may_place()).map_or(&mut [][..], Placement::rest);
        let placed = room.len().min(len);
        let [second, third] = vacant(&self.stream, len - placed)?;
        let sizes = [placed, second.len(), third.len()];
        Some(([&mut room[..placed], second, third], sizes))
    }

    /// The segment for which there was a place is there, and `sizes` of it.
    pub(crate) fn placed(
        &mut self,
        header: &Header,
        marks: Marks,
        sizes: Sizes,
        mut placement: Option<&mut Placement<'_>>,
        now: Instant,
    ) {
        let Self { stream, connection, .. } = self;
        let Marks { segment_size, congestion } = marks;
        let last = sizes.iter().rposition(|size| *size > 0);
        let pushes = header.flags.contains(Flags::PSH);
        let mut header = *header;
        // To the engine each part is a segment of its own.
        for (number, size) in sizes.into_iter().enumerate().filter(|(_, size)| *size > 0) {
            header.flags.set(Flags::PSH, pushes && Some(number) == last);
            let mut offer = |payload: &[u8], take: &dyn Fn() -> bool| {
                let arrival = Arrival { header: &header, payload, segment_size, congestion };
                take_lent(connection, &arrival, take, now)
            };
            let is_taken = match (number, &mut placement) {
                (0, None) => false,
                (0, Some(placement)) => {
                    let is_taken = offer(&placement.rest()[..size], &|| true);
                    placement.advance(if is_taken { size } else { 0 });
                    is_taken
                }
                _ => vacant(stream, size).is_some_and(|[payload, _]| {
                    offer(payload, &|| stream.publish_filled(size).is_ok())
                }),
            };
            if !is_taken {
                // As if it had been lost on the way.
                return;
            }
            header.seq.0 = header.seq.0.wrapping_add(size as u32);
        }
    }
}

/// Gives the engine a segment whose payload lies where it belongs already; `take` says whether it
/// may be used there. Whether it was.
fn take_lent(
    connection: &mut Connection,
    arrival: &Arrival<'_>,
    take: &dyn Fn() -> bool,
    now: Instant,
) -> bool {
    let (_, lent) = connection.on_segment_lent(now, arrival);
    let Some(bytes) = lent else { return false };
    let is_taken = bytes.len() == arrival.payload.len() && take();
    connection.settle(bytes, if is_taken { bytes.len() } else { 0 });
    is_taken
}

/// Room for `len` bytes in the ring.
#[expect(
    clippy::mut_from_ref,
    reason = "the bytes are not the stream's own, but of the ring's one writer"
)]
fn vacant(stream: &Stream, len: usize) -> Option<[&mut [u8]; 2]> {
    if len == 0 {
        return Some([&mut [], &mut []]);
    }
    let spans = stream.vacant(len).ok()?;
    // SAFETY: the ring's writer is the pump, whose lock the caller holds; nobody reads there before
    // it is published.
    let parts = spans.map(|span| span.map_or(&mut [][..], |span| unsafe { span.as_mut_slice() }));
    (parts[0].len() + parts[1].len() == len).then_some(parts)
}
