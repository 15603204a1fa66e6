//! One carried session: a stream on one side, a protocol connection on the other, and bytes between them.
//!
//! Does no more than that: it never waits, knows no clock and no other session. When it begins and ends is `carrier`'s
//! to say; what goes out is handed to the interface that it is given. Read `docs/moves.md`.

use crate::export::has_gap;
use crate::import::{ImportError, import};
use crate::metastate::Way;
use crate::raw::{self, SIOCOUTQ};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_netif::{Interface, Outgoing, SendError};
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_proto::tcp::{Arrival, Connection, Disposition, Limits, ReceiveEnd, Transmit};
use sojourn_proto::time::Instant;
use sojourn_stream::{Bell, Stop, Stream};
use sojourn_wire::ethernet;
use sojourn_wire::frame::{self, Fields, Frame, HEADERS_BYTES_MAX, Header, Offload};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::Flags;
use sojourn_wire::{FlowKey, MacAddress, Protocol};
use std::io::{IoSlice, IoSliceMut};

/// Bytes read from a stream at once.
const PIECE: usize = 64 * 1024;

/// Why a session goes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The program's side has frozen the stream, or broken its rules.
    Program,
    /// The peer closes or resets: what that means to the program the kernel knows best.
    Peer,
    /// The connection gave up.
    TimedOut,
    /// Urgent data, or a segment that only the kernel understands.
    Unusual,
}

/// A session between its program and the network.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) socket: OwnedFd,
    pub(crate) stream: Stream,
    connection: Connection,
    header: Header,
    /// Read from the socket at the move, and not in the stream yet, from this byte on.
    unread: Vec<u8>,
    unread_at: usize,
    identification: u16,
    /// There is no route for the moment: what is sent is lost, as the kernel's would be.
    is_cut: bool,
    scratch: Vec<u8>,
}

/// Whether nothing is on its way in the kernel: the program sends no more through it, the peer has acknowledged everything,
/// and there is no gap in what it has sent.
pub(crate) fn is_quiet(stream: &Stream, socket: &OwnedFd) -> bool {
    stream.peer_rings() && raw::queue_len(socket, SIOCOUTQ) == Ok(0) && !has_gap(socket.as_fd())
}

/// The headers of a session's frames along a way.
fn header_for(connection: &Connection, way: &Way) -> Option<Header> {
    let link = way.link.map(|(own, next)| {
        let ether_type = ethernet::EtherType::IPV4;
        ethernet::Header::new(MacAddress(own), MacAddress(next), ether_type)
    });
    let (source, target, ip) = (connection.local(), connection.remote(), connection.ip());
    let flow = FlowKey { protocol: Protocol::Tcp, source, target };
    let fields = Fields {
        dscp: ip.traffic_class >> 2,
        hop_limit: ip.hop_limit,
        flow_label: ip.flow_label,
        dont_fragment: ip.dont_fragment,
    };
    Header::new(link, flow, fields).ok()
}

impl Carried {
    /// Goes on with the session that the record describes. `None`: the engine does not take it.
    pub(crate) fn new(
        socket: OwnedFd,
        stream: Stream,
        record: &SessionRecord,
        unread: Vec<u8>,
        (way, limits): (&Way, &Limits),
        now: Instant,
    ) -> Option<Self> {
        let mut connection = Connection::import(record, limits, now).ok()?;
        let header = header_for(&connection, way)?;
        connection.set_path_mtu(now, way.mtu, false);
        Some(Self {
            socket,
            stream,
            connection,
            header,
            unread,
            unread_at: 0,
            identification: 0,
            is_cut: false,
            scratch: vec![0; PIECE],
        })
    }

    /// A frame of this session has arrived.
    pub(crate) fn arrived(
        &mut self,
        frame: &Frame<'_>,
        segment_size: u16,
        now: Instant,
    ) -> Result<(), Ending> {
        let Some(segment) = frame.segment() else { return Ok(()) };
        let mut header = segment.header();
        // What ends a connection the kernel is to hear itself: the peer says it again.
        let ends = header.flags.contains(Flags::FIN) || header.flags.contains(Flags::RST);
        if header.flags.contains(Flags::RST) {
            return Err(Ending::Peer);
        }
        header.flags.set(Flags::FIN, false);
        let congestion = frame.traffic_class.ecn() == Ecn::Congestion;
        let payload = segment.payload();
        let arrival = Arrival { header: &header, payload, segment_size, congestion };
        let disposition = self.connection.on_segment(now, &arrival);
        match disposition {
            Disposition::Urgent => Err(Ending::Unusual),
            _ if ends => Err(Ending::Peer),
            _ => Ok(()),
        }
    }

    /// Time has come for a timer.
    pub(crate) fn timeout(&mut self, now: Instant) {
        self.connection.on_timeout(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.connection.next_timeout()
    }

    /// There is no way any more.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The way has changed, or is there again.
    pub(crate) fn rerouted(&mut self, way: &Way, now: Instant) {
        self.is_cut = false;
        if let Some(header) = header_for(&self.connection, way) {
            self.header = header;
        }
        self.connection.set_path_mtu(now, way.mtu, false);
    }

    /// Moves what can be moved, in both directions, and sends what is to be sent.
    pub(crate) fn pump(&mut self, out: &mut dyn Interface, now: Instant) -> Result<(), Ending> {
        if self.stream.is_frozen() {
            return Err(Ending::Program);
        }
        self.deliver()?;
        loop {
            let got = self.collect()?;
            self.transmit(out, now);
            if !got {
                break;
            }
        }
        match self.connection.receive_end() {
            ReceiveEnd::Open => Ok(()),
            ReceiveEnd::Finished => Err(Ending::Peer),
            ReceiveEnd::Failed(_) => Err(Ending::TimedOut),
        }
    }

    /// From the connection into the stream.
    fn deliver(&mut self) -> Result<(), Ending> {
        loop {
            let held = &self.unread[self.unread_at..];
            let [first, second] = self.connection.readable();
            let from_kernel = !held.is_empty();
            let parts = if from_kernel { [held, &[]] } else { [first, second] };
            if parts.iter().all(|part| part.is_empty()) {
                return Ok(());
            }
            match self.stream.write(&parts.map(IoSlice::new), 0) {
                Ok(done) if from_kernel => self.unread_at += done,
                Ok(done) => self.connection.consume(done),
                Err(Stop::Full) => {
                    self.stream.announce_writer(Bell::OnInbox, 1);
                    if self.stream.room() == Ok(0) {
                        return Ok(());
                    }
                }
                Err(_) => return Err(Ending::Program),
            }
        }
    }

    /// From the stream into the connection. Whether there may be more.
    fn collect(&mut self) -> Result<bool, Ending> {
        let room = self.connection.send_room().min(PIECE);
        if room == 0 {
            // An acknowledgement will bring us back.
            return Ok(false);
        }
        let piece = &mut self.scratch[..room];
        match self.stream.read(&mut [IoSliceMut::new(piece)], false) {
            Ok(got) => {
                let more = self.stream.available().is_ok_and(|len| len > 0);
                self.connection.send(&[&self.scratch[..got]], more);
                Ok(true)
            }
            Err(Stop::Empty) => {
                self.stream.announce_reader(Bell::OnInbox);
                Ok(self.stream.available().is_ok_and(|len| len > 0))
            }
            Err(_) => Err(Ending::Program),
        }
    }

    fn transmit(&mut self, out: &mut dyn Interface, now: Instant) {
        let offloads = out.properties().checksum_offload;
        let mut bytes = [0; HEADERS_BYTES_MAX];
        while let Some(transmit) = self.connection.poll_transmit(now) {
            if self.is_cut {
                continue;
            }
            self.identification = self.identification.wrapping_add(1);
            let offload = offload_of(&transmit, offloads);
            let ecn = if transmit.ect { Ecn::Capable0 } else { Ecn::NotCapable };
            let number = self.identification;
            let emitted = self.header.emit_tcp(
                &transmit.header,
                &transmit.payload,
                ecn,
                number,
                offload,
                &mut bytes,
            );
            let Ok(emitted) = emitted else { continue };
            let [first, second] = transmit.payload;
            let frame =
                Outgoing { vnet: emitted.vnet, parts: [&bytes[..emitted.len], first, second] };
            // What is not taken is as good as lost on the way, and sent again.
            if out.send(&frame) == Err(SendError::Full) {
                let _ = out.flush();
                let _ = out.send(&frame);
            }
        }
    }

    /// Puts the session into its socket again: bytes that the program has not read before, and those it has written and
    /// that are not acknowledged. Bytes sent and received by the program through the stream.
    pub(crate) fn go_home(&mut self, now: Instant) -> Result<(u64, u64), ImportError> {
        self.stream.freeze();
        let own = self.stream.own_leftover().unwrap_or(0);
        let peers = self.stream.peer_leftover().unwrap_or(0);
        let copied = |len: usize, copy: &dyn Fn(usize, &mut [u8]) -> usize| {
            let mut bytes = vec![0; len];
            let mut done = 0;
            while done < len {
                match copy(done, &mut bytes[done..]) {
                    0 => break,
                    more => done += more,
                }
            }
            bytes
        };
        let unread = copied(own, &|skip, buf| self.stream.copy_own_leftover(skip, buf));
        let unsent = copied(peers, &|skip, buf| self.stream.copy_unflushed(skip, buf));
        // It goes home once.
        let mut record = self.connection.export(now).ok_or(ImportError::State)?;
        if let Kind::Tcp(tcp) = &mut record.kind {
            let held = &self.unread[self.unread_at..];
            tcp.receive_queue = [&unread[..], held, &tcp.receive_queue[..]].concat();
            tcp.send_queue.extend(unsent);
            tcp.out_of_order.clear();
        }
        import(&record, self.socket.as_fd())?;
        let (sent, received) = self.stream.totals();
        Ok((received, sent))
    }

    /// The kernel has the session: the program's side may go on with it.
    pub(crate) fn tell_program(&self) {
        self.stream.set_flushed(self.stream.own_leftover().unwrap_or(0));
        self.stream.attention();
        self.stream.ring_peer();
    }
}

fn offload_of(transmit: &Transmit<'_>, has_offloads: bool) -> Offload {
    match transmit.segment_size {
        _ if !has_offloads => Offload::Nothing,
        0 => Offload::Checksum,
        size => Offload::Segments(size),
    }
}

/// The frame that was received, if it is one of a session's.
pub(crate) fn parse<'f>(
    received: &sojourn_netif::Received<'f>,
    link: frame::Link,
) -> Option<Frame<'f>> {
    let frame = frame::parse(received.frame, link).ok()?;
    let is_right = !received.vnet.must_verify() || frame.checksum_is_right();
    is_right.then_some(frame)
}
