//! The structure of a connection, and what can be asked of it.
//!
//! What it does is in `input`, `output` and `timeouts`; what a program does with it in `program`.
//! Read the module's head first.

use super::acks::Acks;
use super::disposition::Tally;
use super::timers::Timers;
use super::timestamps::Stamps;
use super::window::ReceiveWindow;
use crate::position::Span;
use crate::reassembly::Assembler;
use crate::record::{
    CloseReason, EcnRecord, IpOptions, TcpCounters, TcpOptions, TcpState, TcpTuning,
};
use crate::recovery::Recovery;
use crate::ring::Ring;
use crate::time::{Duration, Instant};
use core::net::SocketAddr;

/// What the embedding grants to a connection: memory, and how large a frame it can send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of the send ring; the ring is the next power of two, and larger if a record
    /// brings more.
    pub send_ring_max: u64,
    /// Not 0: the embedding itself keeps what was written until it is acknowledged, so many bytes
    /// at most, and there is no send ring. See [`Connection::send_elsewhere`].
    pub send_elsewhere: u64,
    /// Most bytes of the receive ring, likewise.
    pub receive_ring_max: u64,
    /// Most bytes of payload in one [`super::Transmit`]; below two segments, no segmentation is
    /// asked for. At most 65 535 less headers.
    pub gso_max_bytes: u32,
    /// Most segments in one transmit.
    pub gso_max_segments: u32,
    /// How many gaps in the received stream are remembered.
    pub gaps_max: usize,
    /// How many spans the record of what was sent has.
    pub scoreboard_entries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            send_ring_max: 4 << 20,
            send_elsewhere: 0,
            receive_ring_max: 4 << 20,
            gso_max_bytes: 65_160,
            gso_max_segments: 64,
            gaps_max: 512,
            scoreboard_entries: 1_024,
        }
    }
}

/// How the received stream ends, for a program that has read everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveEnd {
    /// It has not ended.
    Open,
    /// The peer closed its direction, or the program shut down receiving: reading gives 0.
    Finished,
    /// The connection failed: reading gives the error once.
    Failed(CloseReason),
}

/// The sending direction.
#[derive(Debug)]
pub(super) struct Sending {
    /// First position not acknowledged.
    pub(super) una: u64,
    /// Next position to send.
    pub(super) nxt: u64,
    /// End of what the program has written.
    pub(super) end: u64,
    /// The program has closed this direction: a FIN follows `end`, at that position.
    pub(super) fin: bool,
    /// The peer's window in bytes from `una`.
    pub(super) wnd: u64,
    /// Receive position of the segment that last set it.
    pub(super) wl1: u64,
    /// The acknowledgement that last set it.
    pub(super) wl2: u64,
    pub(super) max_window: u64,
    pub(super) scale: u8,
    /// None: the embedding has the bytes.
    pub(super) ring: Option<Ring>,
    /// Bytes that there is memory for.
    pub(super) capacity: u64,
    /// Bytes that the program may have in it.
    pub(super) limit: u64,
    /// End of the last segment that was not full, for Nagle's rule (Minshall's variant).
    pub(super) small_end: u64,
    /// The program says that more comes at once (`MSG_MORE`): the last segment waits to be full.
    pub(super) more: bool,
}

impl Sending {
    /// Whether our FIN was sent.
    pub(super) fn fin_sent(&self) -> bool {
        self.nxt > self.end
    }

    /// Whether our FIN was acknowledged.
    pub(super) fn fin_acknowledged(&self) -> bool {
        self.una > self.end
    }

    /// Bytes not sent yet.
    pub(super) fn unsent(&self) -> u64 {
        self.end.saturating_sub(self.nxt)
    }

    /// Whether anything at all waits to be sent for the first time.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent() > 0 || (self.fin && !self.fin_sent())
    }

    /// The right edge of the peer's window.
    pub(super) fn window_end(&self) -> u64 {
        self.una + self.wnd
    }

    /// What is kept here of `span`.
    pub(super) fn slices(&self, span: Span) -> [&[u8]; 2] {
        self.ring.as_ref().map_or([&[], &[]], |ring| ring.slices(span))
    }

    /// Bytes written and not acknowledged.
    pub(super) fn queued(&self) -> u64 {
        self.end.saturating_sub(self.una)
    }
}

/// The receiving direction.
#[derive(Debug)]
pub(super) struct Receiving {
    /// First position that the program has not read.
    pub(super) read: u64,
    /// Next position expected.
    pub(super) nxt: u64,
    /// Where the peer's FIN is, if it has come.
    pub(super) fin: Option<u64>,
    pub(super) window: ReceiveWindow,
    pub(super) ring: Ring,
    /// What of the stream's end the caller of [`Connection::on_segment_lent`] has and the ring has
    /// not.
    pub(super) lent: Option<Span>,
    pub(super) assembler: Assembler,
    /// The program reads no more.
    pub(super) shutdown: bool,
}

impl Receiving {
    /// Whether the peer's FIN was taken.
    pub(super) fn fin_taken(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// The bytes that can be read.
    pub(super) fn readable(&self) -> Span {
        Span::new(self.read, self.nxt - u64::from(self.fin_taken()))
    }
}

/// Segment sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) peer_mss: u16,
    pub(super) advertised_mss: u16,
    pub(super) user_mss: u16,
    pub(super) path_mtu: u32,
    /// Payload of a full segment, options but SACK deducted.
    pub(super) mss: u32,
}

/// An established connection, or one that is closing.
#[derive(Debug)]
pub struct Connection {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) ip: IpOptions,
    pub(super) state: TcpState,
    pub(super) closed: Option<CloseReason>,
    pub(super) exported: bool,
    pub(super) snd: Sending,
    pub(super) rcv: Receiving,
    pub(super) recovery: Recovery,
    pub(super) acks: Acks,
    pub(super) timers: Timers,
    pub(super) stamps: Option<Stamps>,
    pub(super) window_scaling: bool,
    pub(super) sack: bool,
    pub(super) ecn: EcnRecord,
    pub(super) sizes: Sizes,
    pub(super) options: TcpOptions,
    pub(super) tuning: TcpTuning,
    pub(super) limits: Limits,
    pub(super) counters: TcpCounters,
    pub(super) tally: Tally,
    /// A segment with RST is to be sent.
    pub(super) reset_due: bool,
    /// When a segment of the peer last came, and when it last acknowledged.
    pub(super) heard_at: Instant,
    /// When data was last sent.
    pub(super) sent_at: Option<Instant>,
    /// The caller takes payload as it comes, see `on_segment_lent`.
    pub(super) may_lend: bool,
}

impl Connection {
    /// This end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The other end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// What goes into the IP headers of its segments.
    pub fn ip(&self) -> IpOptions {
        self.ip
    }

    /// The state.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Why the connection ended, if it failed.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.closed
    }

    /// What became of the segments so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The options now in effect.
    pub fn options(&self) -> &TcpOptions {
        &self.options
    }

    /// The settings of the system.
    pub fn tuning(&self) -> &TcpTuning {
        &self.tuning
    }

    /// The judge of the sending side, to look at.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Payload of a full segment now (`TCP_MAXSEG` as `getsockopt` gives it).
    pub fn mss(&self) -> u32 {
        self.sizes.mss
    }

    /// The retransmission timeout as it was measured, not doubled.
    pub(super) fn rto_base(&self) -> Duration {
        self.recovery.rtt().base()
    }

    /// Ends the connection for `reason`. Bytes received so far can still be read.
    pub(super) fn close(&mut self, reason: Option<CloseReason>) {
        self.state = TcpState::Closed;
        self.closed = reason;
        self.timers.clear();
    }
}
