//! Arriving segments of a session: through the engine, and into the stream or the buffer of the
//! call that waits for them.
//!
//! Not here: the choice of a place for payload that is still in the kernel (`round`, whose head is
//! to be read first).

use super::{Carried, Ending};
use crate::placement::{Marks, Placement, Places, Sizes};
use sojourn_proto::tcp::{Arrival, Connection, Disposition, LentSegment};
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;
use sojourn_wire::frame::Frame;
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{Flags, Header};
use std::io::IoSlice;

/// A segment with one of these flags is more than data.
const UNUSUAL: Flags = Flags::FIN.union(Flags::SYN).union(Flags::RST).union(Flags::URG);

impl Carried {
    /// Takes in a frame of this session.
    ///
    /// # Errors
    /// The reason, if the session has to go home.
    pub(crate) fn arrived(
        &mut self,
        frame: &Frame<'_>,
        segment_size: u16,
        placement: Option<&mut Placement<'_>>,
        now: Instant,
    ) -> Result<(), Ending> {
        let Some(segment) = frame.segment() else { return Ok(()) };
        let mut header = segment.header();
        // The kernel itself has to hear of a reset, because it knows best what the reset means to
        // the program: `Round::accept` keeps the segment, and the kernel gets it once the session
        // is home.
        if header.flags.contains(Flags::RST) && self.connection.is_reset_by(header.seq) {
            return Err(Ending::Peer);
        }
        // The engine never sees a FIN: the kernel gets it once the session is home.
        let has_fin = header.flags.contains(Flags::FIN);
        header.flags.set(Flags::FIN, false);
        let congestion = frame.traffic_class.ecn() == Ecn::Congestion;
        let payload = segment.payload();
        let arrival = Arrival { header: &header, payload, segment_size, congestion };
        let LentSegment { disposition, lent } = self.connection.on_segment_lent(now, &arrival);
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

    /// Returns true if a FIN at `end` is in the receive window (RFC 9293 section 3.10.7.4, first
    /// check). Notes whether it is right behind the last byte.
    fn ends_at(&mut self, end: u32, now: Instant) -> bool {
        let position = self.connection.position(now);
        self.has_ended = end == position.rcv_nxt;
        end.wrapping_sub(position.rcv_nxt) <= position.rcv_wnd
    }

    /// Copies the next bytes to the call that waits, then into the ring. `deliver` brings those for
    /// which there is no room now.
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

    /// Returns true if the ring holds no older bytes, and the session is not on its way home.
    fn may_place(&self) -> bool {
        !self.stream.is_frozen() && self.stream.pending() == 0
    }

    /// Returns the places of the `len` payload bytes of a segment that is still in the kernel.
    /// `None` means that the segment is not the next one, or that there is
    /// no room.
    pub(crate) fn place<'a>(
        &'a mut self,
        header: &Header,
        len: usize,
        placement: Option<&'a mut Placement<'_>>,
    ) -> Option<Places<'a>> {
        let is_plain = !header.flags.intersects(UNUSUAL);
        if !is_plain || !self.connection.is_next(header.seq, len) || self.stream.is_frozen() {
            return None;
        }
        let room = placement.filter(|_| self.may_place()).map_or(&mut [][..], Placement::rest);
        let placed = room.len().min(len);
        let [second, third] = vacant(&self.stream, len - placed)?;
        let sizes = [placed, second.len(), third.len()];
        Some(Places { parts: [&mut room[..placed], second, third], sizes })
    }

    /// Takes in the segment for which [`Carried::place`] has given places; `sizes` bytes of it are
    /// there.
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
                // The segment then counts as lost on the way, and the peer sends it again.
                return;
            }
            header.seq.0 = header.seq.0.wrapping_add(size as u32);
        }
    }
}

/// Gives the engine a segment whose payload is in its final place already; `take` accepts the
/// payload there. Returns true if it was accepted.
fn take_lent(
    connection: &mut Connection,
    arrival: &Arrival<'_>,
    take: &dyn Fn() -> bool,
    now: Instant,
) -> bool {
    let lent = connection.on_segment_lent(now, arrival).lent;
    let Some(bytes) = lent else { return false };
    let is_taken = bytes.len() == arrival.payload.len() && take();
    connection.settle(bytes, if is_taken { bytes.len() } else { 0 });
    is_taken
}

/// Returns room for `len` bytes in the ring.
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
