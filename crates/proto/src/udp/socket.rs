//! A UDP session: import, export, options, and the queue of received datagrams.
//!
//! Not here: sending (`send`).

use super::queue::{DatagramSource, Envelope, Queue, Received, WaitingDatagram};
use crate::record::{Datagram, IpOptions, Kind, RecordError, SessionRecord, UdpOptions, UdpRecord};
use core::net::SocketAddr;

/// Memory that the embedding grants to a socket.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of payload that may wait; at least one datagram of the largest size is granted.
    pub receive_bytes_max: usize,
    /// Datagrams that may wait.
    pub datagrams_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { receive_bytes_max: 1 << 20, datagrams_max: 2_048 }
    }
}

/// The outcome for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Disposition {
    /// The datagram waits to be read.
    Queued,
    /// The socket is connected to another peer than the sender.
    FromOther,
    /// The buffer is full (`UdpRcvbufErrors`).
    Full,
    /// The session was exported.
    Exported,
}

/// The number of datagrams by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams that were queued.
    pub queued: u64,
    /// Bytes of payload in queued datagrams.
    pub queued_bytes: u64,
    /// Datagrams that were not the connected peer's.
    pub from_others: u64,
    /// Datagrams that found no room.
    pub full: u64,
    /// Datagrams sent, counted after segmentation.
    pub sent: u64,
}

/// A UDP session.
#[derive(Debug)]
pub struct Socket {
    pub(super) local: SocketAddr,
    pub(super) peer: Option<SocketAddr>,
    ip: IpOptions,
    pub(super) options: UdpOptions,
    interface: u32,
    queue: Queue,
    pub(super) tally: Tally,
    pub(super) exported: bool,
}

/// The reason why a record cannot become a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The record contradicts itself.
    Record(RecordError),
    /// The record is not a UDP session's.
    NotUdp,
    /// The record's queued datagrams do not fit the granted memory.
    TooMuch,
}

impl Socket {
    /// Takes over the session that `record` describes, and allocates all memory that it will use.
    ///
    /// # Errors
    /// [`ImportError`] if the record cannot become a socket. The record is not changed, so the
    /// caller can move the session to another home.
    pub fn import(record: &SessionRecord, limits: &Limits) -> Result<Socket, ImportError> {
        record.check().map_err(ImportError::Record)?;
        let Kind::Udp(udp) = &record.kind else { return Err(ImportError::NotUdp) };
        let mut queue = Queue::new(limits.receive_bytes_max, limits.datagrams_max);
        queue.set_limit(udp.options.rcvbuf);
        for datagram in &udp.receive_queue {
            let envelope = Envelope {
                target: datagram.target,
                traffic_class: datagram.traffic_class,
                hop_limit: datagram.hop_limit,
                time_ns: 0,
            };
            let about = DatagramSource { source: datagram.source, envelope: &envelope };
            if !queue.push_imported(about, &datagram.payload, datagram.segment_size) {
                return Err(ImportError::TooMuch);
            }
        }
        Ok(Socket {
            local: record.local,
            peer: record.remote,
            ip: record.ip,
            options: udp.options,
            interface: udp.interface,
            queue,
            tally: Tally::default(),
            exported: false,
        })
    }

    /// Returns the session's record for its next home; `None` if it was taken before. The socket
    /// accepts and sends no more datagrams from then on.
    pub fn export(&mut self) -> Option<SessionRecord> {
        if self.exported {
            return None;
        }
        self.exported = true;
        let waiting = self.queue.iter().map(|WaitingDatagram { entry, payload }| Datagram {
            source: entry.source,
            target: entry.envelope.target,
            traffic_class: entry.envelope.traffic_class,
            hop_limit: entry.envelope.hop_limit,
            segment_size: entry.segment_size,
            payload: payload.concat(),
        });
        let Self { options, interface, .. } = *self;
        let udp = UdpRecord { options, interface, receive_queue: waiting.collect() };
        Some(SessionRecord {
            local: self.local,
            remote: self.peer,
            ip: self.ip,
            kind: Kind::Udp(udp),
        })
    }

    /// Processes a datagram for this socket, whose checksum must have been verified. `segment_size`
    /// is the size of each of several merged datagrams but the last, which may be shorter; 0 for a
    /// single one. Merged datagrams are split unless the program takes them merged (`UDP_GRO`).
    pub fn on_datagram(
        &mut self,
        source: SocketAddr,
        envelope: &Envelope,
        payload: &[u8],
        segment_size: u16,
    ) -> Disposition {
        if self.exported {
            return Disposition::Exported;
        }
        if self.peer.is_some_and(|peer| !same_endpoint(peer, source)) {
            self.tally.from_others += 1;
            return Disposition::FromOther;
        }
        let size = usize::from(segment_size);
        let merged = size > 0 && size < payload.len();
        let before = self.tally.full;
        let about = DatagramSource { source, envelope };
        if merged && !self.options.gro {
            payload.chunks(size).for_each(|part| self.push(about, part, 0));
        } else {
            self.push(about, payload, if merged { segment_size } else { 0 });
        }
        if self.tally.full > before { Disposition::Full } else { Disposition::Queued }
    }

    fn push(&mut self, about: DatagramSource<'_>, payload: &[u8], segment_size: u16) {
        if self.queue.push(about, payload, segment_size) {
            let size = usize::from(segment_size);
            self.tally.queued += if size > 0 { payload.len().div_ceil(size) as u64 } else { 1 };
            self.tally.queued_bytes += payload.len() as u64;
        } else {
            self.tally.full += 1;
        }
    }

    /// Copies the oldest datagram into the slices and removes it. Bytes that do not fit are lost,
    /// as with the kernel's UDP; [`Received`] has both lengths.
    pub fn recv(&mut self, parts: &mut [&mut [u8]]) -> Option<Received> {
        let received = self.queue.peek(parts)?;
        self.queue.pop();
        Some(received)
    }

    /// Copies the oldest datagram into the slices without removing it (`MSG_PEEK`).
    pub fn peek(&self, parts: &mut [&mut [u8]]) -> Option<Received> {
        self.queue.peek(parts)
    }

    /// Returns the length of the oldest datagram (`SIOCINQ`); 0 also if there is none.
    pub fn siocinq(&self) -> usize {
        self.queue.next_len().unwrap_or(0)
    }

    /// Returns true if a datagram waits.
    pub fn is_readable(&self) -> bool {
        self.queue.next_len().is_some()
    }

    /// Returns the endpoint of this end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the peer to which the socket is connected, if it is.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the values for the IP headers.
    pub fn ip(&self) -> IpOptions {
        self.ip
    }

    /// Returns the options in effect.
    pub fn options(&self) -> &UdpOptions {
        &self.options
    }

    /// Returns the index of the interface by which datagrams arrive; 0 if it is not known.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Returns the counters.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Applies `connect`: from now on only `peer`'s datagrams are accepted; `None` dissolves the
    /// connection. Waiting datagrams remain, as in Linux.
    pub fn connect(&mut self, local: SocketAddr, peer: Option<SocketAddr>) {
        self.local = local;
        self.peer = peer;
    }

    /// Sets `UDP_SEGMENT`; 0 is off.
    pub fn set_gso_size(&mut self, bytes: u16) {
        self.options.gso_size = bytes;
    }

    /// Sets `UDP_GRO`.
    pub fn set_gro(&mut self, on: bool) {
        self.options.gro = on;
    }

    /// Sets `SO_RCVBUF` to the value that `getsockopt` will give.
    pub fn set_rcvbuf(&mut self, bytes: u32) {
        self.options.rcvbuf = bytes;
        self.queue.set_limit(bytes);
    }

    /// Sets the values for the IP headers.
    pub fn set_ip(&mut self, ip: IpOptions) {
        self.ip = ip;
    }

    /// Sets the path MTU in bytes.
    pub fn set_path_mtu(&mut self, mtu: u32) {
        self.options.path_mtu = mtu;
    }
}

/// Compares address and port only, because packets do not carry flow label and scope.
fn same_endpoint(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip() == other.ip()
}
