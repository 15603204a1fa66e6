//! The construction of a planned segment: header, options, window, and the location of the payload.
//!
//! Not here: the choice and the time of a segment (`output`). Every segment carries the latest
//! acknowledgement and window; the peer ignores those of a probe.

use super::connection::Connection;
use crate::position::Span;
use crate::time::Instant;
use sojourn_wire::tcp::{
    Flags, Header, Options, SACK_BLOCKS_MAX, SackBlock, SackBlocks, SeqNum, Timestamps,
};

/// A frame to be sent. Its addresses are the connection's.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The header of the first segment.
    pub header: Header,
    /// The payload in two parts, because the send ring may wrap. Empty if the embedder keeps the
    /// written bytes.
    pub payload: [&'a [u8]; 2],
    /// The payload's offset in bytes from the first unacknowledged byte.
    pub offset: u64,
    /// The payload's length in bytes.
    pub length: usize,
    /// Bytes of payload per segment if the payload is to be cut into several segments; 0 for one
    /// segment. FIN and PSH belong to the last.
    pub segment_size: u16,
    /// True if the IP header must have ECT(0), so that routers may mark congestion (RFC 3168,
    /// 6.1.1).
    pub ect: bool,
}

impl Transmit<'_> {
    /// Bytes of payload.
    pub fn payload_len(&self) -> usize {
        self.length
    }

    /// How many segments it becomes.
    pub fn segments(&self) -> usize {
        match usize::from(self.segment_size) {
            0 => 1,
            size => self.payload_len().div_ceil(size),
        }
    }
}

/// The plan of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The data of the segment, without a FIN.
    pub(super) span: Span,
    pub(super) flags: Flags,
    /// Size of the segments into which the frame is cut; 0 for a single segment.
    pub(super) segment_size: u32,
    /// The segment is ECN-capable.
    pub(super) ect: bool,
}

impl Connection {
    /// Builds a planned segment. `output` has already changed the sending state; the state of
    /// acknowledgements and of the receive window changes here.
    pub(super) fn build(&mut self, now: Instant, plan: &Plan) -> Transmit<'_> {
        let mut options = Options::NONE;
        options.timestamps = self
            .stamps
            .as_ref()
            .map(|stamps| Timestamps { value: stamps.value(now), echo: stamps.recent() });
        self.add_sack(&mut options);
        let mut flags = plan.flags;
        let mut window = 0;
        if flags.contains(Flags::ACK) {
            flags.set(Flags::ECE, self.ecn.echo);
            let (chosen, read) = (self.choose_window(), self.rcv.read);
            let capacity = self.rcv.ring.capacity();
            window = self.rcv.window.tell(self.rcv.nxt, chosen, read, capacity);
            // A probe lies before the peer's window. The peer drops such a segment before it
            // processes the acknowledgement (RFC 9293, 3.10.7.4, first), so the acknowledgement
            // stays owed.
            if plan.span.start >= self.snd.una {
                self.acks.on_sent(plan.span.is_empty() && !flags.contains(Flags::FIN));
            }
        }
        let header = Header {
            source_port: self.local.port(),
            target_port: self.remote.port(),
            seq: SeqNum(plan.span.start as u32),
            ack: SeqNum(self.rcv.nxt as u32),
            flags,
            window,
            urgent: 0,
            options,
        };
        let segment_size = plan.segment_size as u16;
        let transmit = Transmit {
            header,
            payload: self.snd.slices(plan.span),
            offset: plan.span.start.saturating_sub(self.snd.una),
            length: plan.span.len() as usize,
            segment_size,
            ect: plan.ect,
        };
        self.counters.segs_out += transmit.segments() as u64;
        transmit
    }

    /// Adds the blocks received beyond gaps and a D-SACK block (RFC 2018, 4; RFC 2883, 4).
    fn add_sack(&mut self, options: &mut Options) {
        if !self.has_sack_blocks() {
            return;
        }
        let mut blocks = [Span::default(); SACK_BLOCKS_MAX];
        let room = options.sack_room().min(SACK_BLOCKS_MAX);
        let count = self.rcv.assembler.sack_blocks(self.rcv.nxt, &mut blocks[..room]);
        options.sack = SackBlocks::NONE;
        for block in &blocks[..count] {
            let (start, end) = (SeqNum(block.start as u32), SeqNum(block.end as u32));
            options.sack.push(SackBlock { start, end });
        }
    }

    /// Returns true if the next segment carries SACK blocks.
    fn has_sack_blocks(&self) -> bool {
        let assembler = &self.rcv.assembler;
        self.sack && (!assembler.is_empty() || assembler.duplicate_is_owed())
    }

    /// Returns the bytes that SACK blocks take from the payload of the next segment.
    pub(super) fn sack_bytes(&self) -> u32 {
        if !self.has_sack_blocks() {
            return 0;
        }
        let assembler = &self.rcv.assembler;
        let room = if self.stamps.is_some() { 3 } else { SACK_BLOCKS_MAX };
        // A D-SACK block may be followed by the range that contains it, which `len` counts already.
        let blocks = assembler.len() + usize::from(assembler.duplicate_is_owed());
        4 + 8 * blocks.min(room) as u32
    }
}
