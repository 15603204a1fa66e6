//! Entry points for fuzzing: arbitrary bytes decide the actions of a peer, a program, time and the
//! server on a connection.
//!
//! The invariants: no panic and no endless output; bytes read are the bytes sent to that position
//! of the stream; bytes transmitted are the bytes written; outstanding bytes have a timer. Debug
//! and fuzzing builds only; not a part of the interface of this crate. Used by `tests/fuzz_run.rs`
//! (deterministic, in every test run) and `fuzz/fuzz_targets/proto_*.rs`.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::record::{
    ControllerKind, EcnRecord, HEADER_LEN, IpOptions, Kind, MAGIC, SessionRecord, TcpRecord,
    TcpState, TimestampUnit, TimestampsRecord, VERSION, checksum,
};
use crate::tcp::{Arrival, Connection, Limits};
use crate::time::{Duration, Instant};
use sojourn_wire::tcp::{Flags, HEADER_BYTES_MAX, Header, SackBlock, SeqNum, Timestamps};

/// The number of transmits in a row that counts as endless output.
const OUTPUT_MAX: usize = 10_000;
/// The longest payload of an invented segment.
const PAYLOAD_MAX: usize = 1_536;

/// The fuzzer's input, taken piece by piece; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns a distance in either direction that is mostly small.
    fn distance(&mut self) -> u32 {
        match self.byte() {
            kind @ 0..=127 => u32::from(kind).wrapping_mul(8),
            kind @ 128..=159 => u32::from(kind - 128).wrapping_neg(),
            160..=239 => u32::from(self.word()),
            240..=251 => u32::from(self.word()).wrapping_neg(),
            _ => u32::from(self.word()) << 16 | u32::from(self.word()),
        }
    }
}

/// Returns the byte with a given sequence number, in the peer's stream or in this end's.
fn pattern(sequence: u32, ours: bool) -> u8 {
    (sequence.wrapping_mul(0x9e37_79b9) >> 24) as u8 ^ if ours { 0x5a } else { 0 }
}

/// A connection under attack.
struct Target {
    connection: Connection,
    limits: Limits,
    now: Instant,
    /// Sequence numbers of the next byte to be written and to be read.
    write: u32,
    read: u32,
    peer_stamp: u32,
}

fn established(bytes: &mut Bytes<'_>) -> TcpRecord {
    let choice = bytes.word();
    let bit = |number: u32| choice >> number & 1 == 1;
    let (una, nxt) = (u32::MAX - u32::from(bytes.byte()) * 16, u32::from(bytes.byte()) << 24);
    let mut tcp = TcpRecord {
        snd_una: una,
        snd_nxt: una,
        snd_wl1: nxt,
        snd_wl2: una,
        rcv_nxt: nxt,
        rcv_wup: nxt,
        rcv_wnd: 8_192,
        snd_wnd: 8_192,
        max_window: 8_192,
        peer_mss: if bit(0) { 1_460 } else { 200 },
        advertised_mss: if bit(0) { 1_460 } else { 200 },
        sack: bit(1),
        ecn: EcnRecord { negotiated: bit(2), ..EcnRecord::default() },
        timestamps: bit(3).then_some(TimestampsRecord {
            unit: if bit(4) { TimestampUnit::Microseconds } else { TimestampUnit::Milliseconds },
            value: u32::MAX - 5,
            recent: 1_000,
            recent_age: Duration::ZERO,
            recent_valid: true,
        }),
        cwnd: 4_000,
        ..TcpRecord::default()
    };
    tcp.options.nodelay = bit(5);
    tcp.options.keepalive = bit(6);
    tcp.options.controller = if bit(7) { ControllerKind::Reno } else { ControllerKind::Cubic };
    tcp.options.user_timeout = Duration::from_secs(if bit(8) { 30 } else { 0 });
    tcp.tuning.pacing = bit(9);
    (tcp.tuning.rmem_max, tcp.tuning.wmem_max) = (65_536, 65_536);
    (tcp.options.rcvbuf, tcp.options.sndbuf) = (16_384, 16_384);
    tcp
}

fn session(tcp: TcpRecord) -> SessionRecord {
    SessionRecord {
        local: SocketAddr::from(([192, 0, 2, 1], 1)),
        remote: Some(SocketAddr::from(([192, 0, 2, 2], 2))),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    }
}

/// A sequence of events on one connection: segments that are nearly right, time, calls, moves.
pub fn segments(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let tcp = established(&mut bytes);
    let limits = Limits {
        gaps_max: 4,
        scoreboard_entries: 8,
        gso_max_segments: 1 + u32::from(bytes.byte() % 8),
        ..Limits::default()
    };
    let (write, read) = (tcp.snd_nxt, tcp.rcv_nxt);
    let now = Instant::from_millis(50_000);
    let Ok(connection) = Connection::import(&session(tcp), &limits, now) else { return };
    let mut target = Target { connection, limits, now, write, read, peer_stamp: 1_000 };
    while !bytes.0.is_empty() {
        target.event(&mut bytes);
        target.output();
    }
}

impl Target {
    fn event(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..=6 => self.segment(bytes),
            7 => self.wait(Duration::from_micros(u64::from(bytes.word()) * 100)),
            8 | 9 => self.expire(),
            10 => self.write(usize::from(bytes.byte()) * 16),
            11 => self.read(usize::from(bytes.byte()) * 16),
            12 => self.move_session(),
            13 => self.connection.set_path_mtu(self.now, u32::from(bytes.word()), true),
            14 => self.set_option(bytes),
            _ => match bytes.byte() {
                0..=9 => self.connection.shutdown_send(),
                10 => self.connection.abort(),
                11 => self.connection.shutdown_receive(),
                _ => self.write(1),
            },
        }
    }

    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let choice = bytes.byte();
        let TcpState::Closed = self.connection.state() else {
            let next = self.read.wrapping_add(self.connection.siocinq() as u32);
            let seq = if choice & 1 == 0 { next } else { next.wrapping_add(bytes.distance()) };
            let una = self.write.wrapping_sub(self.connection.siocoutq() as u32);
            let ack = una.wrapping_add(bytes.distance());
            let mut header = Header { seq: SeqNum(seq), ack: SeqNum(ack), ..Header::default() };
            header.flags =
                if choice & 2 == 0 { Flags::ACK } else { Flags::from_bits_retain(bytes.byte()) };
            header.window = if choice & 4 == 0 { 8_192 } else { bytes.word() };
            if choice & 8 != 0 {
                self.peer_stamp = self.peer_stamp.wrapping_add(bytes.distance());
                let echo = u32::from(bytes.byte()).wrapping_neg();
                header.options.timestamps = Some(Timestamps { value: self.peer_stamp, echo });
            }
            for _ in 0..choice >> 6 {
                let start = una.wrapping_add(bytes.distance());
                let end = start.wrapping_add(u32::from(bytes.word()));
                header.options.sack.push(SackBlock { start: SeqNum(start), end: SeqNum(end) });
            }
            self.deliver(&header, choice, bytes);
            return;
        };
    }

    fn deliver(&mut self, header: &Header, choice: u8, bytes: &mut Bytes<'_>) {
        let length = if choice & 16 == 0 { 0 } else { usize::from(bytes.byte()) * 6 };
        let mut payload = [0; PAYLOAD_MAX];
        for (place, byte) in payload[..length].iter_mut().enumerate() {
            *byte = pattern(header.seq.0.wrapping_add(place as u32), false);
        }
        let arrival =
            Arrival { congestion: choice & 32 != 0, ..Arrival::new(header, &payload[..length]) };
        self.connection.on_segment(self.now, &arrival);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.connection.on_timeout(self.now);
    }

    fn expire(&mut self) {
        if let Some(at) = self.connection.next_timeout() {
            self.now = self.now.max(at);
            self.connection.on_timeout(self.now);
        }
    }

    fn write(&mut self, count: usize) {
        let start = self.write;
        let bytes: Vec<u8> =
            (0..count).map(|place| pattern(start.wrapping_add(place as u32), true)).collect();
        let taken = self.connection.send(&[&bytes], count % 5 == 4);
        self.write = start.wrapping_add(taken as u32);
    }

    fn read(&mut self, count: usize) {
        let mut buffer = vec![0; count];
        let count = self.connection.recv(&mut [&mut buffer]);
        for byte in &buffer[..count] {
            assert_eq!(*byte, pattern(self.read, false), "another byte than was sent");
            self.read = self.read.wrapping_add(1);
        }
    }

    fn move_session(&mut self) {
        let Some(record) = self.connection.export(self.now) else { return };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(SessionRecord::decode(&bytes).as_ref(), Ok(&record));
        match Connection::import(&record, &self.limits, self.now) {
            Ok(connection) => self.connection = connection,
            Err(error) => panic!("what was exported is not imported: {error}"),
        }
    }

    fn set_option(&mut self, bytes: &mut Bytes<'_>) {
        let value = bytes.byte();
        match value & 7 {
            0 => self.connection.set_nodelay(value & 8 != 0),
            1 => self.connection.set_cork(value & 8 != 0),
            2 => self.connection.set_quickack(value & 8 != 0),
            3 => self.connection.set_rcvbuf(u32::from(value) * 64),
            4 => self.connection.set_sndbuf(u32::from(value) * 64),
            _ => self.connection.set_path_mtu(self.now, u32::from(value) * 8, value & 8 != 0),
        }
    }

    /// Takes all segments that are to be sent and checks them.
    fn output(&mut self) {
        let mut count = 0;
        while let Some(transmit) = self.connection.poll_transmit(self.now) {
            count += 1;
            assert!(count < OUTPUT_MAX, "the output does not end");
            let mut header = [0; HEADER_BYTES_MAX];
            assert!(transmit.header.emit(&mut header).is_ok(), "the options fit");
            let size = usize::from(transmit.segment_size);
            assert!(size == 0 || transmit.payload_len() > size, "no need to cut");
            for (place, byte) in transmit.payload.concat().into_iter().enumerate() {
                let sequence = transmit.header.seq.0.wrapping_add(place as u32);
                assert_eq!(byte, pattern(sequence, true), "another byte than was written");
            }
        }
        let board = self.connection.recovery().scoreboard();
        let outstanding = board.outstanding();
        assert!(board.sacked() + board.lost() <= outstanding);
        let silent = self.connection.next_timeout().is_none();
        if self.connection.state() != TcpState::Closed {
            assert!(outstanding == 0 || !silent, "outstanding, and nothing wakes it up");
        }
    }
}

/// Uses the bytes as the body of a session record with a correct header. A record that is decoded
/// must encode to the same bytes, and a connection imported from it must be usable.
pub fn record(bytes: &[u8]) {
    let Some((&protocol, body)) = bytes.split_first() else { return };
    let mut whole = Vec::from(MAGIC);
    whole.extend_from_slice(&VERSION.to_le_bytes());
    whole.extend_from_slice(&[protocol, 0]);
    whole.extend_from_slice(&((HEADER_LEN + body.len()) as u32).to_le_bytes());
    whole.extend_from_slice(&checksum(body).to_le_bytes());
    whole.extend_from_slice(body);
    let Ok(record) = SessionRecord::decode(&whole) else { return };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, whole);
    let Kind::Tcp(tcp) = &record.kind else { return };
    // Windows of a gigabyte are possible but would cost as much memory, so they are skipped.
    if tcp.rcv_wnd > 1 << 20 || tcp.rcv_nxt.wrapping_sub(tcp.rcv_wup) > 1 << 20 {
        return;
    }
    let now = Instant::from_millis(1 << 40);
    let limits = Limits::default();
    let Ok(mut connection) = Connection::import(&record, &limits, now) else { return };
    let mut at = now;
    for _ in 0..20 {
        for _ in 0..OUTPUT_MAX {
            if connection.poll_transmit(at).is_none() {
                break;
            }
        }
        let Some(next) = connection.next_timeout() else { break };
        at = at.max(next);
        connection.on_timeout(at);
    }
    let exported = connection.export(at).map(|record| record.check());
    assert_eq!(exported, Some(Ok(())));
}
