//! One carried session: a stream on one side, a protocol connection on the other, and the movement
//! of bytes between them.
//!
//! A session never waits, and knows no clock and no other session. Outgoing frames go to the
//! interface that the caller passes. Bytes that the program has written stay in its ring until the
//! peer has acknowledged them, so they survive the process. Not here: arriving segments
//! (`arriving`), the program's options (`options`), and whether the session does better in the
//! kernel (`measured`). Read `docs/understand/moves.md`.

mod arriving;
mod measured;
pub(crate) mod options;

use crate::aggregate::Measurement;
use crate::bulk::Judge;
use crate::figures::{Beat, Figures};
use crate::link_hop::{LinkHop, header_for};
use crate::position;
use crate::room::has_room;
use crate::timing::OutgoingMessage;
use sojourn_netif::{Interface, Outgoing, SendError};
use sojourn_proto::record::{IpOptions, Kind, SessionRecord};
use sojourn_proto::tcp::{Connection, Limits, ReceiveEnd, Transmit};
use sojourn_proto::time::Instant;
use sojourn_stream::{Stop, Stream};
use sojourn_wire::frame::{HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::ip::Ecn;
use sojourn_wire::{FlowKey, Protocol};
use std::io::IoSlice;

/// Bytes under way from which on the end of a write, if it is less than a segment, may wait a
/// moment for more.
const BULK: usize = 32 * 1024;

/// The reason why a session cannot stay here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The program's side has frozen the stream, or has broken its rules.
    Program,
    /// The peer closes or resets the connection: the kernel knows best what that means to the
    /// program.
    Peer,
    /// The connection has timed out.
    TimedOut,
    /// There is urgent data, or a segment that only the kernel understands.
    Unusual,
    /// The session does better in the kernel, or is to be measured there.
    Bulk,
}

/// A session between its program and the network.
#[derive(Debug)]
pub struct Carried {
    stream: Stream,
    connection: Connection,
    header: Header,
    hop: LinkHop,
    /// Bytes of the program's ring that the connection knows of and the peer has not acknowledged.
    handed: usize,
    /// A round that was allowed to left something to be sent in a moment.
    is_postponed: bool,
    identification: u16,
    /// The peer's FIN has come right behind the last byte.
    has_ended: bool,
    beat: Beat,
    judge: Judge,
    sent_home_by: Option<Measurement>,
    /// A message whose first segment the packet interface has, while times are wanted.
    leaving: Option<OutgoingMessage>,
}

/// Returns addresses and ports of the frames that a connection sends.
fn flow_of(connection: &Connection) -> FlowKey {
    let (source, target) = (connection.local(), connection.remote());
    FlowKey { protocol: Protocol::Tcp, source, target }
}

impl Carried {
    /// Goes on with the session that the record describes; its send queue must be empty. `None`
    /// means that the engine does not take the session, or has no memory for it.
    pub fn new(
        stream: Stream,
        record: &SessionRecord,
        hop: &LinkHop,
        limits: &Limits,
        now: Instant,
    ) -> Option<Self> {
        let limits = Limits { send_elsewhere: stream.in_bytes().into(), ..*limits };
        let mut connection = imported(record, &limits, now)?;
        if connection.siocoutq() > 0 {
            return None;
        }
        let header = header_for(flow_of(&connection), connection.ip(), hop)?;
        connection.set_path_mtu(now, hop.mtu, false);
        // The ledger says nothing before the session is claimed: until then the record counts.
        let (handed, identification, has_ended) = (0, 0, false);
        let hop = *hop;
        let (beat, is_postponed) = (Beat::default(), false);
        stream.ledger().publish_figures(&Figures::of(&connection, now).words());
        Some(Self {
            stream,
            connection,
            header,
            hop,
            handed,
            is_postponed,
            identification,
            has_ended,
            beat,
            judge: Judge::NONE,
            sent_home_by: None,
            leaving: None,
        })
    }

    /// Returns addresses and ports of the frames that the session sends.
    pub fn flow(&self) -> FlowKey {
        flow_of(&self.connection)
    }

    /// Returns the stream, seen from this side.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Counts bytes of the program's ring that the connection has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.stream.available().unwrap_or(0).saturating_sub(self.handed)
    }

    /// Changes the options that go into the IP headers of the session's packets.
    pub(crate) fn set_ip(&mut self, ip: IpOptions) {
        self.connection.set_ip(ip);
        if let Some(header) = header_for(self.flow(), self.connection.ip(), &self.hop) {
            self.header = header;
        }
    }

    /// Returns true if the peer's FIN has come right behind the last byte; the record of
    /// [`Carried::leave`] does not contain it.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Runs the timers that have expired.
    pub(crate) fn timeout(&mut self, now: Instant) {
        self.connection.on_timeout(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        [self.connection.next_timeout(), self.beat.next()].into_iter().flatten().min()
    }

    /// Takes over a new way. If it takes only shorter packets, those under way may have been too
    /// long, and are sent again in shorter ones: either a router has dropped some of them (RFC
    /// 1191, RFC 8201), or an interface has changed, and then sending them again costs little.
    pub(crate) fn rerouted(&mut self, hop: &LinkHop, now: Instant) {
        let too_big = !hop.is_cut && hop.mtu < self.hop.mtu;
        self.hop = *hop;
        if let Some(header) = header_for(self.flow(), self.connection.ip(), hop) {
            self.header = header;
        }
        self.connection.set_path_mtu(now, hop.mtu, too_big);
    }

    /// Moves bytes in both directions, and sends what is due. `may_wait`: another round follows in
    /// a moment, and may do better with a part of it ([`Carried::is_postponed`]).
    pub(crate) fn pump(
        &mut self,
        out: &mut dyn Interface,
        may_wait: bool,
        now: Instant,
    ) -> Result<(), Ending> {
        if self.stream.is_frozen() {
            return Err(Ending::Program);
        }
        // First, so that the segments which are sent below tell the peer of the room.
        self.deliver()?;
        self.collect(may_wait)?;
        if !self.transmit(out, may_wait, now)? {
            self.publish(now);
        }
        if self.beat.is_due(now) {
            self.on_beat(now);
        }
        if self.sent_home_by.is_some() {
            return Err(Ending::Bulk);
        }
        match self.connection.receive_end() {
            ReceiveEnd::Open => Ok(()),
            ReceiveEnd::Finished => Err(Ending::Peer),
            ReceiveEnd::Failed(_) => Err(Ending::TimedOut),
        }
    }

    /// Returns true if another round is needed soon.
    pub(crate) fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// Freezes the stream, because the session cannot stay here: the program's library sends it
    /// home.
    pub(crate) fn give_up(&self) {
        self.stream.freeze();
        self.stream.attention();
        self.stream.notify_peer();
    }

    /// Writes the connection's state to the ledger, for the server if this process dies.
    fn publish(&self, now: Instant) {
        let words = position::words(&self.connection.position(now));
        self.stream.ledger().publish(&words);
    }

    /// Moves received bytes from the connection to the stream.
    fn deliver(&mut self) -> Result<(), Ending> {
        loop {
            let parts = self.connection.readable();
            if parts.iter().all(|part| part.is_empty()) {
                return Ok(());
            }
            match self.stream.write(&parts.map(IoSlice::new), 0) {
                Ok(done) => self.connection.consume(done),
                Err(Stop::Full) => {
                    // The wish is announced before the second look: otherwise room made in between
                    // would not be reported.
                    self.stream.ledger().want_room();
                    if self.stream.room() == Ok(0) {
                        return Ok(());
                    }
                }
                Err(_) => return Err(Ending::Program),
            }
        }
    }

    /// Tells the connection of bytes that the program has written. They stay in the ring until the
    /// peer has acknowledged them.
    fn collect(&mut self, may_wait: bool) -> Result<(), Ending> {
        let stop = |_| Ending::Program;
        let acknowledged = self.handed.saturating_sub(self.connection.siocoutq());
        if acknowledged > 0 {
            self.stream.release(acknowledged).map_err(stop)?;
            self.handed -= acknowledged;
        }
        let written = match self.stream.available() {
            Ok(available) => available.saturating_sub(self.handed),
            // The program's side has not switched to the ring yet.
            Err(Stop::NotOnRing) => 0,
            Err(_) => return Err(Ending::Program),
        };
        // A writer of much writes again soon. Then the end of this write lies in the middle of a
        // segment, and needs none of its own.
        let under_way = self.connection.siocoutq() - self.connection.siocoutqnsd();
        let waits = may_wait && under_way >= BULK;
        self.handed += self.connection.send_elsewhere(written, waits);
        self.is_postponed = waits && self.connection.siocoutqnsd() > 0;
        Ok(())
    }

    /// Sends the segments that are due. Returns true if there were any: then the ledger is up to
    /// date.
    fn transmit(
        &mut self,
        out: &mut dyn Interface,
        may_wait: bool,
        now: Instant,
    ) -> Result<bool, Ending> {
        let mut is_told = false;
        let mut leaving = OutgoingMessage::begin(&self.stream);
        let offloads = out.properties().checksum_offload;
        let mut bytes = [0; HEADERS_BYTES_MAX];
        loop {
            let next = if may_wait {
                self.connection.poll_transmit_data(now)
            } else {
                self.connection.poll_transmit(now)
            };
            let Some(transmit) = next else { break };
            if let Some(leaving) = leaving.as_mut().filter(|_| transmit.length > 0) {
                leaving.made();
            }
            // Without a route frames are lost, as the kernel's would be.
            if self.hop.is_cut {
                continue;
            }
            let payload = payload_of(&self.stream, &transmit)?;
            self.identification = self.identification.wrapping_add(1);
            let offload = offload_of(&transmit, offloads);
            let ecn = if transmit.ect { Ecn::Capable0 } else { Ecn::NotCapable };
            let identification = self.identification;
            let fields = PacketFields { ecn, identification, offload };
            let emitted = self.header.emit_tcp(&transmit.header, &payload, fields, &mut bytes);
            let Ok(emitted) = emitted else { continue };
            if let Some(leaving) = &mut leaving {
                leaving.headed();
            }
            let [first, second] = payload;
            let frame =
                Outgoing { vnet: emitted.vnet, parts: [&bytes[..emitted.len], first, second] };
            // The ledger is written before the peer can know: a process that is killed in between
            // has sent nothing that the ledger does not show.
            self.publish(now);
            is_told = true;
            // A frame that finds no room is lost like one on the way, and is sent again.
            if out.send(&frame) == Err(SendError::Full) {
                let _ = out.flush();
                let _ = out.send(&frame);
            }
        }
        self.is_postponed |= may_wait && self.connection.is_ack_due();
        self.leaving = leaving.filter(OutgoingMessage::is_sent);
        Ok(is_told)
    }

    /// Sends an acknowledgement that is owed. Until the session has been put back nobody else
    /// would, and the peer repeats after a time-out what nobody has acknowledged.
    pub(crate) fn acknowledge(&mut self, out: &mut dyn Interface, now: Instant) {
        let offloads = out.properties().checksum_offload;
        let Some(transmit) = self.connection.poll_transmit_ack(now).filter(|_| !self.hop.is_cut)
        else {
            return;
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        self.identification = self.identification.wrapping_add(1);
        let (offload, identification) = (offload_of(&transmit, offloads), self.identification);
        let fields = PacketFields { ecn: Ecn::NotCapable, identification, offload };
        let emitted = self.header.emit_tcp(&transmit.header, &[&[], &[]], fields, &mut bytes);
        let Ok(emitted) = emitted else { return };
        let parts = [&bytes[..emitted.len], &[], &[]];
        self.publish(now);
        let _ = out.send(&Outgoing { vnet: emitted.vnet, parts });
        let _ = out.flush();
    }

    /// Returns true if a message is timed whose segment the packet interface has.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.leaving.is_some()
    }

    /// The packet interface was flushed.
    #[cold]
    pub(crate) fn flushed(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            leaving.finish(&self.stream);
        }
    }

    /// Resets the connection, as well as that can be done, for a session that has left with this
    /// record and that nobody can go on with.
    pub(crate) fn reset(&mut self, record: &SessionRecord, out: &mut dyn Interface, now: Instant) {
        if let Some(connection) = imported(record, &Limits::default(), now) {
            self.connection = connection;
            self.connection.abort();
            // A segment without payload takes nothing from the stream, which is frozen.
            let _ = self.transmit(out, false, now);
            let _ = out.flush();
        }
    }

    /// Makes the record with which the frozen session goes on in its socket. The receive queue has
    /// the bytes that the program has not read, then those that it was never shown. The send queue
    /// has the bytes that are not acknowledged, then those that were never sent.
    ///
    /// `None`: the record was made before, or there is no memory for the queues.
    pub fn leave(&mut self, now: Instant) -> Option<SessionRecord> {
        self.stream.freeze();
        if !has_room(self.queue_copies()) {
            return None;
        }
        let mut record = self.connection.export(now)?;
        if let Kind::Tcp(tcp) = &mut record.kind {
            let unread = unread(&self.stream);
            tcp.receive_queue.splice(0..0, unread);
            // The ring may still have bytes that were acknowledged last.
            let acknowledged = self.handed.saturating_sub(self.connection.siocoutq());
            tcp.send_queue = unsent(&self.stream, acknowledged);
        }
        Some(record)
    }

    /// Returns how many bytes the queues of a record take while it is made.
    fn queue_copies(&self) -> usize {
        let connection = &self.connection;
        let queued = connection.siocinq() + connection.out_of_order_bytes() + connection.siocoutq();
        let in_rings =
            self.stream.own_leftover().unwrap_or(0) + self.stream.peer_leftover().unwrap_or(0);
        // A queue is copied once more where another is put before it.
        2 * (queued + in_rings)
    }
}

/// Imports a record, if there is memory for the rings.
fn imported(record: &SessionRecord, limits: &Limits, now: Instant) -> Option<Connection> {
    let is_there = has_room(Connection::ring_bytes(record, limits));
    is_there.then(|| Connection::import(record, limits, now).ok())?
}

/// Copies the bytes that the program has not read, of a frozen stream of which this is the carrying
/// side.
pub fn unread(stream: &Stream) -> Vec<u8> {
    let len = stream.own_leftover().unwrap_or(0);
    copied(len, &|skip, buf| stream.copy_own_leftover(skip, buf))
}

/// Copies the bytes that the program has written, from byte `skip` of its ring on.
pub fn unsent(stream: &Stream, skip: usize) -> Vec<u8> {
    let len = stream.peer_leftover().unwrap_or(0).saturating_sub(skip);
    copied(len, &|done, buf| stream.copy_unflushed(skip + done, buf))
}

fn copied(len: usize, copy: &dyn Fn(usize, &mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match copy(done, &mut bytes[done..]) {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    bytes
}

/// Returns the payload of a segment, where the program has written it: in up to two parts.
fn payload_of<'s>(stream: &'s Stream, transmit: &Transmit<'_>) -> Result<[&'s [u8]; 2], Ending> {
    if transmit.length == 0 {
        return Ok([&[][..]; 2]);
    }
    let offset = usize::try_from(transmit.offset).unwrap_or(usize::MAX);
    // SAFETY: the writer is this process's own library, or its session server, which only reads.
    unsafe { stream.ahead(offset, transmit.length) }.map_err(|_| Ending::Program)
}

fn offload_of(transmit: &Transmit<'_>, has_offloads: bool) -> Offload {
    match transmit.segment_size {
        _ if !has_offloads => Offload::Nothing,
        0 => Offload::Checksum,
        size => Offload::Segments(size),
    }
}
