//! The queue of datagrams that wait to be read: their bytes are in one ring, their other values in
//! a list of entries. The memory is allocated once.

use crate::position::Span;
use crate::ring::Ring;
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};

/// The bytes charged for a datagram beside its payload, so that many small datagrams fill a buffer
/// as in Linux.
const OVERHEAD: u64 = 512;
/// The largest payload.
const PAYLOAD_MAX: usize = 65_535;

/// A datagram that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedDatagram {
    pub(super) source: SocketAddr,
    pub(super) envelope: Envelope,
    pub(super) segment_size: u16,
    span: Span,
}

/// The values that came with a datagram beside its sender and payload, for control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The local address to which the datagram was sent.
    pub target: IpAddr,
    /// Differentiated services and congestion bits.
    pub traffic_class: u8,
    /// The hop limit of the IP header.
    pub hop_limit: u8,
    /// The time of arrival in nanoseconds since 1970; 0 if it is not known.
    pub time_ns: u64,
}

/// A datagram that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub source: SocketAddr,
    /// The other values that came with the datagram.
    pub envelope: Envelope,
    /// The datagram's length, which recv(2) returns with `MSG_TRUNC`.
    pub len: usize,
    /// Bytes that were copied. If they are fewer than `len`, the rest is lost (`MSG_TRUNC` in the
    /// flags).
    pub copied: usize,
    /// Size of each merged datagram, for the control message of `UDP_GRO`; 0 for a single one.
    pub segment_size: u16,
}

/// A datagram's sender and the values that came with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramSource<'a> {
    pub(super) source: SocketAddr,
    pub(super) envelope: &'a Envelope,
}

/// A datagram that waits, with its payload.
pub(super) struct WaitingDatagram<'a> {
    pub(super) entry: &'a QueuedDatagram,
    pub(super) payload: [&'a [u8]; 2],
}

#[derive(Debug)]
pub(super) struct Queue {
    ring: Ring,
    entries: VecDeque<QueuedDatagram>,
    entries_max: usize,
    next: u64,
    /// The limit by `SO_RCVBUF`, overhead included.
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

    /// Appends a datagram and returns true, or returns false if there is no room. An empty queue
    /// always has room.
    pub(super) fn push(
        &mut self,
        about: DatagramSource<'_>,
        payload: &[u8],
        segment_size: u16,
    ) -> bool {
        let allowed = self.entries.is_empty() || self.charged + OVERHEAD <= self.limit;
        allowed && self.push_imported(about, payload, segment_size)
    }

    /// Appends a datagram that another home had accepted, so only memory limits it, not
    /// `SO_RCVBUF`. Returns false if there is no room.
    pub(super) fn push_imported(
        &mut self,
        DatagramSource { source, envelope }: DatagramSource<'_>,
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

    pub(super) fn iter(&self) -> impl Iterator<Item = WaitingDatagram<'_>> {
        let payload = |entry: &QueuedDatagram| self.ring.slices(entry.span);
        self.entries.iter().map(move |entry| WaitingDatagram { entry, payload: payload(entry) })
    }
}
