//! Datagrams that wait to be read: their bytes in one ring, a line of entries beside it. Made once;
//! nothing here allocates after that.

use crate::position::Span;
use crate::ring::Ring;
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};

/// What a waiting datagram takes beside its bytes, so that many small ones fill a buffer as they do
/// in Linux.
const OVERHEAD: u64 = 512;
/// The largest payload.
const PAYLOAD_MAX: usize = 65_535;

/// One that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedDatagram {
    pub(super) source: SocketAddr,
    pub(super) envelope: Envelope,
    pub(super) segment_size: u16,
    span: Span,
}

/// What came with a datagram beside its sender and its bytes, which a program may want to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The address that it was sent to.
    pub target: IpAddr,
    /// Differentiated services and congestion bits.
    pub traffic_class: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// When it came, in nanoseconds since 1970; 0 if that is not known.
    pub time_ns: u64,
}

/// A datagram that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: SocketAddr,
    /// What came with it.
    pub envelope: Envelope,
    /// Its length (what `MSG_TRUNC` asks for).
    pub len: usize,
    /// Bytes that were copied; where that is less, a part is lost (`MSG_TRUNC` in the flags).
    pub copied: usize,
    /// Size of each merged datagram, for the control message of `UDP_GRO`; 0 for a single one.
    pub segment_size: u16,
}

/// Who sent a datagram, and what came with it.
pub(super) type About<'a> = (SocketAddr, &'a Envelope);

#[derive(Debug)]
pub(super) struct Queue {
    ring: Ring,
    entries: VecDeque<QueuedDatagram>,
    entries_max: usize,
    next: u64,
    /// What `SO_RCVBUF` allows, overhead included.
    limit: u64,
    charged: u64,
}

impl Queue {
    pub(super) fn new(bytes: usize, entries_max: usize) -> Queue {
        let entries_max = entries_max.max(1);
        Queue {
            ring: Ring::new(bytes.max(PAYLOAD_MAX), 0),
            entries: VecDeque::with_capacity(entries_max),
            entries_max,
            next: 0,
            limit: u64::MAX,
            charged: 0,
        }
    }

    pub(super) fn set_limit(&mut self, bytes: u32) {
        self.limit = u64::from(bytes);
    }

    /// Whether there was room. One that waits alone always has.
    pub(super) fn push(&mut self, about: About<'_>, payload: &[u8], segment_size: u16) -> bool {
        let allowed = self.entries.is_empty() || self.charged + OVERHEAD <= self.limit;
        allowed && self.push_imported(about, payload, segment_size)
    }

    /// The same, bounded by memory only: what another home had accepted is not refused.
    pub(super) fn push_imported(
        &mut self,
        (source, envelope): About<'_>,
        payload: &[u8],
        segment_size: u16,
    ) -> bool {
        let length = payload.len() as u64;
        let oldest = self.entries.front().map_or(self.next, |entry| entry.span.start);
        if self.entries.len() == self.entries_max
            || self.next + length - oldest > self.ring.capacity()
        {
            return false;
        }
        let span = Span::new(self.next, self.next + length);
        self.ring.write(span.start, payload);
        self.next = span.end;
        self.charged += length + OVERHEAD;
        self.entries.push_back(QueuedDatagram { source, envelope: *envelope, segment_size, span });
        true
    }

    pub(super) fn next_len(&self) -> Option<usize> {
        self.entries.front().map(|entry| entry.span.len() as usize)
    }

    pub(super) fn peek(&self, parts: &mut [&mut [u8]]) -> Option<Received> {
        let entry = self.entries.front()?;
        let mut rest = entry.span;
        for part in parts {
            let taken = rest.first(part.len() as u64);
            let [front, back] = self.ring.slices(taken);
            part[..front.len()].copy_from_slice(front);
            part[front.len()..front.len() + back.len()].copy_from_slice(back);
            rest.start = taken.end;
        }
        let len = entry.span.len() as usize;
        let copied = len - rest.len() as usize;
        let QueuedDatagram { source, envelope, segment_size, .. } = *entry;
        Some(Received { source, envelope, len, copied, segment_size })
    }

    pub(super) fn pop(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.charged -= entry.span.len() + OVERHEAD;
        if self.entries.is_empty() {
            self.ring.rewind(self.next);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&QueuedDatagram, [&[u8]; 2])> {
        self.entries.iter().map(|entry| (entry, self.ring.slices(entry.span)))
    }
}
