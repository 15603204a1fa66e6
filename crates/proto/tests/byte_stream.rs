//! The basic property of a byte stream: the other end reads exactly the written bytes, in order and
//! once, on any link.
//!
//! The test has two connections; a link that loses, duplicates, delays and reorders segments by a
//! seed; programs that write and read in pieces; moves (export and import) in the middle; and bytes
//! kept by the connection or by its embedder. Not here: throughput and fairness (`simulation`).

use proptest::prelude::*;
use sojourn_proto::record::*;
use sojourn_proto::tcp::{Arrival, Connection, Limits, ReceiveEnd};
use sojourn_proto::time::{Duration, Instant};
use sojourn_wire::tcp::{Flags, Header};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A sequence of numbers determined by a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.roll(1_000) < per_mille
    }
}

#[derive(Clone, Copy, Debug)]
struct Weather {
    seed: u64,
    loss: u64,
    doubling: u64,
    jitter_us: u64,
    delay_us: u64,
    moves: u64,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    mss: u16,
    sack: bool,
    stamps: Option<bool>,
    scale: u8,
    rcvbuf: u32,
    sndbuf: u32,
    nodelay: bool,
    reno: bool,
    gso: bool,
    ecn: bool,
    starts: (u32, u32),
    bytes: [usize; 2],
    /// The embedder keeps written bytes and takes arriving bytes directly.
    embeds: [bool; 2],
}

struct Packet {
    header: Header,
    payload: Vec<u8>,
    segment_size: u16,
    congestion: bool,
}

struct End {
    connection: Connection,
    limits: Limits,
    embeds: bool,
    is_shut: bool,
    /// Sequence number of the first byte.
    start: u32,
    to_write: usize,
    written: usize,
    read: usize,
    finished: bool,
}

impl End {
    /// Returns the number of bytes that the other end has acknowledged.
    fn acknowledged(&self) -> usize {
        let outq = self.connection.siocoutq();
        self.written - outq.saturating_sub(usize::from(self.is_shut && outq > 0))
    }

    /// Returns the payload that an embedder finds for a transmit.
    fn find(&self, index: usize, offset: u64, length: usize, seq: u32) -> Vec<u8> {
        if length == 0 {
            return Vec::new();
        }
        let from = self.acknowledged() + offset as usize;
        assert!(from + length <= self.written, "no such bytes");
        assert_eq!(seq, self.start.wrapping_add(from as u32), "another place");
        (from..from + length).map(|place| byte(index, place)).collect()
    }

    /// Hands a segment to the connection, and reads a part of the lent payload at once.
    fn take(&mut self, index: usize, now: Instant, arrival: &Arrival<'_>, part: u64) {
        if !self.embeds {
            self.connection.on_segment(now, arrival);
            return;
        }
        let lent = self.connection.on_segment_lent(now, arrival).lent;
        let Some(bytes) = lent else { return };
        let read = (part % (bytes.len() as u64 + 1)) as usize;
        for (offset, got) in bytes[..read].iter().enumerate() {
            assert_eq!(*got, byte(1 - index, self.read + offset), "lent {}", self.read + offset);
        }
        self.connection.settle(bytes, read);
        self.read += read;
    }

    fn has_nothing_to_do(&self) -> bool {
        let closed = self.written == self.to_write && !self.connection.can_send();
        let full = self.written < self.to_write && self.connection.send_room() == 0;
        let read = self.connection.siocinq() == 0
            && (self.finished || self.connection.receive_end() == ReceiveEnd::Open);
        (closed || full) && read
    }
}

fn byte(end: usize, place: usize) -> u8 {
    ((place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (end as u8 * 0x5a)
}

fn record(setting: &Setting, end: usize) -> SessionRecord {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let addresses = [address("192.0.2.1:1000"), address("192.0.2.2:2000")];
    let (ours, theirs) =
        if end == 0 { setting.starts } else { (setting.starts.1, setting.starts.0) };
    let window =
        (setting.rcvbuf / 2).min(65_535 << setting.scale) >> setting.scale << setting.scale;
    let mut tcp = TcpRecord {
        snd_una: ours,
        snd_nxt: ours,
        snd_wl1: theirs,
        snd_wl2: ours,
        rcv_nxt: theirs,
        rcv_wup: theirs,
        snd_wnd: window,
        max_window: window,
        rcv_wnd: window,
        peer_mss: setting.mss,
        advertised_mss: setting.mss,
        window_scaling: true,
        snd_wscale: setting.scale,
        rcv_wscale: setting.scale,
        sack: setting.sack,
        ecn: EcnRecord { negotiated: setting.ecn, ..EcnRecord::default() },
        cwnd: 10 * u32::from(setting.mss),
        ..TcpRecord::default()
    };
    tcp.timestamps = setting.stamps.map(|micro| TimestampsRecord {
        unit: if micro { TimestampUnit::Microseconds } else { TimestampUnit::Milliseconds },
        value: u32::MAX - 1_000,
        recent: u32::MAX - 1_000,
        recent_age: Duration::ZERO,
        recent_valid: true,
    });
    tcp.options.rcvbuf = setting.rcvbuf;
    tcp.options.sndbuf = setting.sndbuf;
    tcp.options.nodelay = setting.nodelay;
    if setting.reno {
        tcp.options.controller = ControllerKind::Reno;
    }
    // The link may be so bad that Linux would give up.
    tcp.tuning.retries2 = 1_000;
    tcp.tuning.rmem_max = 400_000;
    tcp.tuning.wmem_max = 400_000;
    SessionRecord {
        local: addresses[end],
        remote: Some(addresses[1 - end]),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    }
}

struct World {
    ends: [End; 2],
    /// Packets by the time of arrival, a number that keeps them apart, and the end that they go to.
    link: BTreeMap<(Instant, u64), (usize, Packet)>,
    count: u64,
    now: Instant,
    dice: Dice,
    weather: Weather,
    moved: u32,
}

impl World {
    fn new(setting: &Setting, weather: Weather) -> World {
        let segments = if setting.gso { 64 } else { 1 };
        let limits = Limits { gso_max_segments: segments, gaps_max: 8, ..Limits::default() };
        let now = Instant::ZERO + Duration::from_secs(100);
        let end = |index: usize| {
            let record = record(setting, index);
            let embeds = setting.embeds[index];
            let limits = Limits { send_elsewhere: if embeds { 50_000 } else { 0 }, ..limits };
            End {
                connection: Connection::import(&record, &limits, now).expect("imports"),
                limits,
                embeds,
                is_shut: false,
                start: if index == 0 { setting.starts.0 } else { setting.starts.1 },
                to_write: setting.bytes[index],
                written: 0,
                read: 0,
                finished: false,
            }
        };
        World {
            ends: [end(0), end(1)],
            link: BTreeMap::new(),
            count: 0,
            now,
            dice: Dice(weather.seed | 1),
            weather,
            moved: 0,
        }
    }

    /// Cuts frames as segmentation offload does, and puts the segments on the link.
    fn transmit(&mut self, from: usize) {
        for _ in 0..100_000 {
            let Some(transmit) = self.ends[from].connection.poll_transmit(self.now) else { return };
            let (header, size) = (transmit.header, usize::from(transmit.segment_size));
            let (ect, offset, length) = (transmit.ect, transmit.offset, transmit.length);
            let mut payload = transmit.payload.concat();
            if self.ends[from].embeds {
                assert!(payload.is_empty(), "it has them not");
                payload = self.ends[from].find(from, offset, length, header.seq.0);
            }
            assert_eq!(payload.len(), length);
            assert!(size == 0 || payload.len() > size, "no need to cut");
            let size = if size == 0 { payload.len().max(1) } else { size };
            let pieces: Vec<&[u8]> =
                if payload.is_empty() { vec![&[]] } else { payload.chunks(size).collect() };
            let last = pieces.len() - 1;
            for (index, piece) in pieces.into_iter().enumerate() {
                let mut header = header;
                header.seq += (index * size) as u32;
                if index < last {
                    header.flags -= Flags::FIN | Flags::PSH;
                }
                self.put(1 - from, header, piece, ect);
            }
        }
        panic!("the output does not end");
    }

    fn put(&mut self, to: usize, header: Header, payload: &[u8], ect: bool) {
        let copies = if self.dice.chance(self.weather.loss) {
            0
        } else {
            1 + u64::from(self.dice.chance(self.weather.doubling))
        };
        for _ in 0..copies {
            let late = self.dice.roll(self.weather.jitter_us + 1);
            let at = self.now + Duration::from_micros(self.weather.delay_us + late);
            self.count += 1;
            let packet = Packet {
                header,
                payload: payload.to_vec(),
                segment_size: 0,
                congestion: ect && self.dice.chance(20),
            };
            self.link.insert((at, self.count), (to, packet));
        }
    }

    /// Returns the next packet, merged with later ones as receive offload does.
    fn next_packet(&mut self) -> Option<(usize, Packet)> {
        let ((at, _), (to, mut packet)) = self.link.pop_first()?;
        self.now = self.now.max(at);
        while let Some(entry) = self.link.first_entry() {
            let ((_, (next_to, next)), size) = ((entry.key(), entry.get()), packet.payload.len());
            let follows = next.header.seq == packet.header.seq + size as u32;
            let alike = next.header.flags == packet.header.flags - Flags::PSH
                && next.header.options == packet.header.options
                && next.header.ack == packet.header.ack
                && next.congestion == packet.congestion;
            let whole = packet.segment_size == 0 || size % usize::from(packet.segment_size) == 0;
            let fits = size > 0
                && !next.payload.is_empty()
                && size + next.payload.len() < 60_000
                && whole
                && (packet.segment_size == 0
                    || next.payload.len() <= usize::from(packet.segment_size));
            if *next_to != to || !follows || !alike || !fits || next.payload.len() > size {
                break;
            }
            let (_, next) = entry.remove();
            if packet.segment_size == 0 {
                packet.segment_size = size as u16;
            }
            packet.payload.extend_from_slice(&next.payload);
        }
        Some((to, packet))
    }

    /// Runs the program, which acts at random.
    fn run_program(&mut self, index: usize) {
        let end = &mut self.ends[index];
        let wanted = (self.dice.roll(9_000) as usize).min(end.to_write - end.written);
        let bytes: Vec<u8> =
            (end.written..end.written + wanted).map(|place| byte(index, place)).collect();
        let more = self.dice.chance(100);
        end.written += match end.embeds {
            true => end.connection.send_elsewhere(bytes.len(), more),
            false => end.connection.send(&[&bytes], more),
        };
        if end.written == end.to_write && end.connection.can_send() && self.dice.chance(300) {
            end.connection.shutdown_send();
            end.is_shut = true;
        }
        let mut buffer = vec![0; self.dice.roll(20_000) as usize];
        let count = end.connection.recv(&mut [&mut buffer]);
        for (offset, got) in buffer[..count].iter().enumerate() {
            assert_eq!(*got, byte(1 - index, end.read + offset), "byte {}", end.read + offset);
        }
        end.read += count;
        if end.connection.siocinq() == 0 && end.connection.receive_end() == ReceiveEnd::Finished {
            end.finished = true;
        }
    }

    fn maybe_move(&mut self, index: usize) {
        // A move restarts timers, so a session that never stops moving never sees a timeout.
        if self.moved == 15 || !self.dice.chance(self.weather.moves) {
            return;
        }
        self.moved += 1;
        let end = &mut self.ends[index];
        let from = end.acknowledged();
        let mut record = end.connection.export(self.now).expect("one home");
        if let (Kind::Tcp(tcp), true) = (&mut record.kind, end.embeds) {
            tcp.send_queue = (from..end.written).map(|place| byte(index, place)).collect();
        }
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(SessionRecord::decode(&bytes).as_ref(), Ok(&record));
        end.connection = Connection::import(&record, &end.limits, self.now).expect("imports");
    }

    fn step(&mut self) {
        let timeout = |end: &End| end.connection.next_timeout();
        let timer = self.ends.iter().filter_map(timeout).min();
        let arrival = self.link.first_key_value().map(|((at, _), _)| *at);
        let idle = self.ends.iter().all(End::has_nothing_to_do);
        let pause = if idle { 600_000_000 } else { 3_000 };
        let program = self.now + Duration::from_micros(self.dice.roll(pause));
        if arrival.is_some_and(|at| at <= program && timer.is_none_or(|timer| at <= timer)) {
            if let Some((to, packet)) = self.next_packet() {
                let arrival = Arrival {
                    header: &packet.header,
                    payload: &packet.payload,
                    segment_size: packet.segment_size,
                    congestion: packet.congestion,
                };
                let part = self.dice.roll(1 << 20);
                self.ends[to].take(to, self.now, &arrival, part);
                self.transmit(to);
            }
            return;
        }
        if let Some(timer) = timer
            && timer <= program
        {
            self.now = self.now.max(timer);
            for index in 0..2 {
                self.ends[index].connection.on_timeout(self.now);
                self.transmit(index);
            }
            return;
        }
        self.now = program;
        let index = self.dice.roll(2) as usize;
        self.run_program(index);
        self.maybe_move(index);
        self.transmit(index);
    }

    fn done(&self) -> bool {
        self.ends.iter().all(|end| end.finished && end.written == end.to_write)
    }
}

fn transfer(setting: &Setting, weather: Weather) {
    let mut world = World::new(setting, weather);
    let limit = world.now + Duration::from_secs(100_000);
    let mut steps = 0;
    while !world.done() {
        world.step();
        steps += 1;
        let ends = &world.ends;
        assert!(
            world.now < limit && steps < 300_000,
            "no progress after {steps} steps: read {} and {}\n{:?}\n{:?}",
            ends[0].read,
            ends[1].read,
            ends[0].connection.info(world.now),
            ends[1].connection.info(world.now),
        );
        for end in &world.ends {
            assert_eq!(end.connection.close_reason(), None);
        }
    }
    assert_eq!(world.ends[0].read, setting.bytes[1]);
    assert_eq!(world.ends[1].read, setting.bytes[0]);
}

prop_compose! {
    fn any_setting()(
        mss in prop::sample::select(vec![100u16, 536, 1_448, 9_000]),
        (sack, nodelay, reno, gso, ecn) in any::<(bool, bool, bool, bool, bool)>(),
        stamps in any::<Option<bool>>(),
        scale in prop::sample::select(vec![0u8, 1, 4, 7, 14]),
        rcvbuf in 5_000u32..300_000,
        sndbuf in 5_000u32..300_000,
        starts in any::<(u32, u32)>(),
        near_wrap in any::<bool>(),
        embeds in any::<[bool; 2]>(),
        bytes in (0usize..80_000, 0usize..20_000),
    ) -> Setting {
        let starts = if near_wrap { (u32::MAX - starts.0 % 50_000, u32::MAX - 3) } else { starts };
        let bytes = [bytes.0, bytes.1];
        Setting {
            mss, sack, stamps, scale, rcvbuf, sndbuf, nodelay, reno, gso, ecn, starts, bytes, embeds,
        }
    }
}

prop_compose! {
    fn any_weather()(
        seed in any::<u64>(),
        loss in prop::sample::select(vec![0u64, 10, 50, 150]),
        doubling in prop::sample::select(vec![0u64, 20, 200]),
        jitter_us in prop::sample::select(vec![0u64, 500, 20_000]),
        delay_us in prop::sample::select(vec![5u64, 1_000, 50_000]),
        moves in prop::sample::select(vec![0u64, 0, 5, 50]),
    ) -> Weather {
        Weather { seed, loss, doubling, jitter_us, delay_us, moves }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(setting in any_setting(), weather in any_weather()) {
        transfer(&setting, weather);
    }
}

#[test]
fn a_fair_day() {
    let setting = Setting {
        mss: 1_448,
        sack: true,
        stamps: Some(false),
        scale: 7,
        rcvbuf: 131_072,
        sndbuf: 87_040,
        nodelay: true,
        reno: false,
        gso: true,
        ecn: false,
        starts: (7, 9),
        bytes: [500_000, 20_000],
        embeds: [true, false],
    };
    let weather = Weather { seed: 9, loss: 0, doubling: 0, jitter_us: 0, delay_us: 100, moves: 0 };
    transfer(&setting, weather);
    transfer(&setting, Weather { loss: 30, ..weather });
    transfer(&setting, Weather { moves: 20, ..weather });
}
