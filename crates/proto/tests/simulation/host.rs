//! One end: a connection, and a program that writes and reads bytes of a known pattern in pieces.

use std::net::SocketAddr;

use sojourn_proto::record::{IpOptions, Kind, SessionRecord, TcpRecord};
use sojourn_proto::tcp::{Arrival, Connection, Limits, ReceiveEnd, Transmit};
use sojourn_proto::time::{Duration, Instant};
use sojourn_wire::checksum;
use sojourn_wire::tcp::{Flags, Segment, SeqNum, write_checksum};

use crate::link::Frame;

/// TCP's number in IP headers.
const TCP: u8 = 6;
/// The length after which the pattern repeats: a prime, so that no buffer has the same length.
const PATTERN: u64 = 65_521;

/// Returns the byte at `place` of the stream of the end `sender`.
pub(crate) fn pattern(sender: usize, place: u64) -> u8 {
    let place = place % PATTERN;
    ((place * 0x9e37 + (place >> 8) + sender as u64 * 0x55) >> 3) as u8
}

/// The behaviour of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Total bytes to write.
    pub(crate) to_write: u64,
    /// Largest size of one write.
    pub(crate) write_size: u64,
    /// Pause between two writes.
    pub(crate) write_pause: Duration,
    /// Largest size of one read.
    pub(crate) read_size: usize,
    /// Pause between two reads.
    pub(crate) read_pause: Duration,
    /// True if the program closes its direction after the last byte.
    pub(crate) closes: bool,
}

impl Program {
    /// Creates a program that writes `bytes` and reads as fast as possible.
    pub(crate) fn bulk(bytes: u64) -> Program {
        Program {
            to_write: bytes,
            write_size: 1 << 16,
            write_pause: Duration::ZERO,
            read_size: 1 << 16,
            read_pause: Duration::ZERO,
            closes: true,
        }
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct Host {
    /// 0 or 1.
    pub(crate) index: usize,
    /// The end's connection.
    pub(crate) connection: Connection,
    /// The end's program.
    pub(crate) program: Program,
    /// Bytes written so far.
    pub(crate) written: u64,
    /// Bytes read so far, all of them checked.
    pub(crate) read: u64,
    /// The end of the other's stream was read.
    pub(crate) finished: bool,
    /// Frames dropped because of their checksum.
    pub(crate) damaged: u64,
    limits: Limits,
    next_write: Instant,
    next_read: Instant,
    closed: bool,
    buffer: Vec<u8>,
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, index as u8 + 1], 1_000 + index as u16))
}

/// Returns the record of a new session of the end `index` with the other end.
pub(crate) fn session(index: usize, tcp: TcpRecord) -> SessionRecord {
    SessionRecord {
        local: address(index),
        remote: Some(address(1 - index)),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    }
}

impl Host {
    /// Creates an end that begins with `tcp`.
    pub(crate) fn new(
        index: usize,
        tcp: TcpRecord,
        program: Program,
        limits: Limits,
        now: Instant,
    ) -> Host {
        let connection = Connection::import(&session(index, tcp), &limits, now);
        Host {
            index,
            connection: connection.expect("the record is a possible one"),
            program,
            written: 0,
            read: 0,
            finished: false,
            damaged: 0,
            limits,
            next_write: now,
            next_read: now,
            closed: false,
            buffer: vec![0; 1 << 16],
        }
    }

    /// Moves the session into a new connection, by the record's bytes.
    pub(crate) fn move_session(&mut self, now: Instant) {
        let record = self.connection.export(now).expect("one home");
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let decoded = SessionRecord::decode(&bytes).expect("our own record");
        assert_eq!(decoded, record, "a record is the same after its bytes");
        self.connection = Connection::import(&decoded, &self.limits, now).expect("our own record");
    }

    /// Returns the time of this end's next timer or program action.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let writes = self.wants_to_write() && self.connection.send_room() > 0;
        let closes = self.is_to_close();
        let reads = self.connection.siocinq() > 0 || self.sees_end();
        [
            self.connection.next_timeout(),
            (writes || closes).then_some(self.next_write),
            (reads && !self.finished).then_some(self.next_read),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn is_to_close(&self) -> bool {
        self.program.closes && !self.closed && self.written == self.program.to_write
    }

    fn wants_to_write(&self) -> bool {
        self.connection.can_send() && self.written < self.program.to_write
    }

    fn sees_end(&self) -> bool {
        self.connection.siocinq() == 0 && self.connection.receive_end() == ReceiveEnd::Finished
    }

    /// Handles timers and lets the program act.
    pub(crate) fn act(&mut self, now: Instant) {
        if self.connection.next_timeout().is_some_and(|at| at <= now) {
            self.connection.on_timeout(now);
        }
        if self.next_write <= now {
            self.write(now);
        }
        if self.next_read <= now {
            self.read(now);
        }
    }

    fn write(&mut self, now: Instant) {
        self.write_pieces(now);
        if self.is_to_close() {
            self.connection.shutdown_send();
            self.closed = true;
        }
    }

    fn write_pieces(&mut self, now: Instant) {
        while self.wants_to_write() {
            let left = self.program.to_write - self.written;
            let room = self.connection.send_room() as u64;
            let size = self.program.write_size.min(left).min(room).min(self.buffer.len() as u64);
            if size == 0 {
                return;
            }
            let (index, written) = (self.index, self.written);
            for (place, byte) in self.buffer[..size as usize].iter_mut().enumerate() {
                *byte = pattern(index, written + place as u64);
            }
            let taken = self.connection.send(&[&self.buffer[..size as usize]], false);
            assert_eq!(taken as u64, size, "there was room");
            self.written += size;
            if !self.program.write_pause.is_zero() {
                self.next_write = now + self.program.write_pause;
                return;
            }
        }
    }

    fn read(&mut self, now: Instant) {
        loop {
            let size = self.program.read_size.min(self.buffer.len());
            let count = self.connection.recv(&mut [&mut self.buffer[..size]]);
            for (place, byte) in self.buffer[..count].iter().enumerate() {
                let place = self.read + place as u64;
                assert_eq!(*byte, pattern(1 - self.index, place), "byte {place} is another");
            }
            self.read += count as u64;
            if self.sees_end() {
                self.finished = true;
            }
            if count == 0 {
                return;
            }
            if !self.program.read_pause.is_zero() {
                self.next_read = now + self.program.read_pause;
                return;
            }
        }
    }

    /// Receives a frame from the link.
    pub(crate) fn receive(&mut self, now: Instant, frame: &Frame) {
        let mut sum = pseudo(1 - self.index, frame.bytes.len());
        sum.add(&frame.bytes);
        if !sum.is_valid() {
            self.damaged += 1;
            return;
        }
        let segment = Segment::new(&frame.bytes).expect("the checksum is right");
        let header = segment.header();
        let arrival =
            Arrival { congestion: frame.marked, ..Arrival::new(&header, segment.payload()) };
        self.connection.on_segment(now, &arrival);
    }

    /// Appends the segments that are to be sent now to `frames`.
    pub(crate) fn transmit(&mut self, now: Instant, frames: &mut Vec<Frame>) {
        while let Some(transmit) = self.connection.poll_transmit(now) {
            cut(self.index, &transmit, frames);
        }
    }
}

fn pseudo(sender: usize, length: usize) -> checksum::Sum {
    let (source, target) = (address(sender).ip(), address(1 - sender).ip());
    checksum::pseudo(source, target, TCP, length as u32)
}

/// Cuts a frame into segments as an interface does: sequence numbers advance, FIN and PSH are the
/// last segment's, CWR is the first's.
fn cut(sender: usize, transmit: &Transmit<'_>, frames: &mut Vec<Frame>) {
    let payload = transmit.payload.concat();
    let size = match usize::from(transmit.segment_size) {
        0 => payload.len().max(1),
        size => size,
    };
    let count = payload.len().div_ceil(size).max(1);
    for index in 0..count {
        let part = &payload[index * size..payload.len().min((index + 1) * size)];
        let mut header = transmit.header;
        header.seq = SeqNum(header.seq.0.wrapping_add((index * size) as u32));
        if index + 1 < count {
            header.flags.remove(Flags::FIN | Flags::PSH);
        }
        if index > 0 {
            header.flags.remove(Flags::CWR);
        }
        let mut bytes = vec![0; header.len()];
        header.emit(&mut bytes).expect("there is room");
        bytes.extend_from_slice(part);
        let mut sum = pseudo(sender, bytes.len());
        sum.add(&bytes);
        assert!(write_checksum(&mut bytes, sum.finish()));
        frames.push(Frame { bytes, ect: transmit.ect, marked: false });
    }
}
