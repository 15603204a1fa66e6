//! The structure of a connection, with its plain getters.
//!
//! Not here: the processing of segments and timers (`input`, `output`, `timeouts`), and the
//! program's calls (`program`). Read the module's head first.

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

/// The memory that the embedder grants to a connection, and the size of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size of the send ring in bytes; the ring is the next power of two, and larger if
    /// a record brings more.
    pub send_ring_max: u64,
    /// If not 0, there is no send ring: the embedder keeps written bytes until they are
    /// acknowledged, at most so many. See [`Connection::send_elsewhere`].
    pub send_elsewhere: u64,
    /// The largest size of the receive ring in bytes; larger if a record brings more.
    pub receive_ring_max: u64,
    /// The largest payload of a [`super::Transmit`], at most 65 535 less headers. Below two
    /// segments, no segmentation offload is used.
    pub gso_max_bytes: u32,
    /// The largest number of segments in a [`super::Transmit`].
    pub gso_max_segments: u32,
    /// The largest number of ranges kept beyond gaps in the received stream.
    pub gaps_max: usize,
    /// The number of entries of the scoreboard of sent bytes.
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

/// The end of the received stream, for a program that has read everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveEnd {
    /// The stream has not ended.
    Open,
    /// The peer closed its direction, or the program shut down receiving: reads return 0.
    Finished,
    /// The connection failed: the next read returns the error.
    Failed(CloseReason),
}

/// The sending direction.
#[derive(Debug)]
pub(super) struct Sending {
    /// First position not acknowledged.
    pub(super) una: u64,
    /// Next position to send.
    pub(super) nxt: u64,
    /// The position after the last byte that the program has written.
    pub(super) end: u64,
    /// The program has closed this direction: a FIN follows `end`, at that position.
    pub(super) fin: bool,
    /// The peer's window in bytes from `una`.
    pub(super) wnd: u64,
    /// Receive position of the segment that last set `wnd`.
    pub(super) wl1: u64,
    /// Acknowledgement of the segment that last set `wnd`.
    pub(super) wl2: u64,
    pub(super) max_window: u64,
    pub(super) scale: u8,
    /// The written bytes; `None` if the embedder keeps them.
    pub(super) ring: Option<Ring>,
    /// The size of the memory for written bytes.
    pub(super) capacity: u64,
    /// The number of unacknowledged bytes that the program may write.
    pub(super) limit: u64,
    /// End of the last segment that was not full, for Nagle's rule (Minshall's variant).
    pub(super) small_end: u64,
    /// The program announced more data (`MSG_MORE`): the last segment waits until it is full.
    pub(super) more: bool,
}

impl Sending {
    /// Returns true if this end's FIN was sent.
    pub(super) fn fin_sent(&self) -> bool {
        self.nxt > self.end
    }

    /// Returns true if this end's FIN was acknowledged.
    pub(super) fn fin_acknowledged(&self) -> bool {
        self.una > self.end
    }

    /// Returns the number of bytes not sent yet.
    pub(super) fn unsent(&self) -> u64 {
        self.end.saturating_sub(self.nxt)
    }

    /// Returns true if data or a FIN waits to be sent for the first time.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent() > 0 || (self.fin && !self.fin_sent())
    }

    /// Returns the right edge of the peer's window.
    pub(super) fn window_end(&self) -> u64 {
        self.una + self.wnd
    }

    /// Returns the bytes of `span`; nothing if the embedder keeps them.
    pub(super) fn slices(&self, span: Span) -> [&[u8]; 2] {
        self.ring.as_ref().map_or([&[], &[]], |ring| ring.slices(span))
    }

    /// Returns the number of bytes written and not acknowledged.
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
    /// The position of the peer's FIN, if it has arrived.
    pub(super) fin: Option<u64>,
    pub(super) window: ReceiveWindow,
    pub(super) ring: Ring,
    /// The last bytes of the stream, which the caller of [`Connection::on_segment_lent`] has and
    /// the ring does not have yet.
    pub(super) lent: Option<Span>,
    pub(super) assembler: Assembler,
    /// The program has shut down receiving.
    pub(super) shutdown: bool,
}

impl Receiving {
    /// Returns true if the peer's FIN was received in order.
    pub(super) fn fin_taken(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Returns the span of bytes that can be read.
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
    /// Payload of a full segment, with all options deducted except SACK.
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
    /// The time of the peer's last acceptable segment.
    pub(super) heard_at: Instant,
    /// The time when data was last sent.
    pub(super) sent_at: Option<Instant>,
    /// The caller can take payload directly; see `on_segment_lent`.
    pub(super) may_lend: bool,
}

impl Connection {
    /// Returns the endpoint of this end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the endpoint of the other end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the values for the IP headers of the connection's segments.
    pub fn ip(&self) -> IpOptions {
        self.ip
    }

    /// Returns the state.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Returns the reason why the connection failed, if it did.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.closed
    }

    /// Returns the counts of segments by disposition.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the options in effect.
    pub fn options(&self) -> &TcpOptions {
        &self.options
    }

    /// Returns the settings of the system.
    pub fn tuning(&self) -> &TcpTuning {
        &self.tuning
    }

    /// Returns the loss recovery of the sending side, for inspection.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the payload of a full segment (`TCP_MAXSEG` as `getsockopt` gives it).
    pub fn mss(&self) -> u32 {
        self.sizes.mss
    }

    /// Returns the retransmission timeout without doubling.
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
