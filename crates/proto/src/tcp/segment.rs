//! How a segment that was decided on is put together: header, options, window, and where its
//! payload lies.
//!
//! What is sent and when is `output`'s to decide. Every segment that is built tells the newest
//! acknowledgement and window; of those of a probe the peer hears nothing.

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
    /// The payload, in up to two parts. Empty if the embedding keeps what was written.
    pub payload: [&'a [u8]; 2],
    /// Where it begins: bytes from the first one on that was not acknowledged.
    pub offset: u64,
    /// Its length in bytes.
    pub length: usize,
    /// Bytes of payload per segment if the payload is to be cut into several; 0 if it is one
    /// segment. FIN and PSH belong to the last.
    pub segment_size: u16,
    /// The IP header is to say that congestion may be marked (ECT(0), RFC 3168, 6.1.1).
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

/// What a segment is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What of the stream it carries, without a FIN.
    pub(super) span: Span,
    pub(super) flags: Flags,
    /// Size of the segments that it is cut into; 0 for a single one.
    pub(super) segment_size: u32,
    /// It may be marked.
    pub(super) ect: bool,
}

impl Connection {
    /// Builds what was planned. State has been changed for it before, but for acknowledgement and
    /// window, which change here.
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
            // A probe lies before what the peer expects: it drops that before it looks for an
            // acknowledgement (RFC 9293, 3.10.7.4, first).
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

    /// What is here beyond a gap, and what came twice (RFC 2018, 4; RFC 2883, 4).
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

    /// Whether the next segment carries SACK blocks.
    fn has_sack_blocks(&self) -> bool {
        let assembler = &self.rcv.assembler;
        self.sack && (!assembler.is_empty() || assembler.duplicate_is_owed())
    }

    /// Bytes that SACK blocks take from the payload of the next segment.
    pub(super) fn sack_bytes(&self) -> u32 {
        if !self.has_sack_blocks() {
            return 0;
        }
        let assembler = &self.rcv.assembler;
        let room = if self.stamps.is_some() { 3 } else { SACK_BLOCKS_MAX };
        // A duplicate may be followed by the range that it lies in, which is counted already.
        let blocks = assembler.len() + usize::from(assembler.duplicate_is_owed());
        4 + 8 * blocks.min(room) as u32
    }
}
