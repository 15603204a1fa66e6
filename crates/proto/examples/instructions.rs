//! A count of the engine's instructions for a packet: two connections hand their packets to each
//! other under valgrind, so that the figures are the same on a busy machine and in every run. The
//! figures are no measure of time and do not include interfaces, checksums or formats.
//!
//! `cargo run --release -p sojourn-proto --example instructions` runs itself under `valgrind
//! --tool=callgrind`, each case with a number of packets and with twice as many, and prints the
//! difference for one packet. With a case and a number as arguments the example only runs the
//! packets, for profilers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Command;

use sojourn_proto::record::{
    IpOptions, Kind, SessionRecord, TcpRecord, TimestampUnit, TimestampsRecord,
};
use sojourn_proto::tcp::{Arrival, Connection, Limits};
use sojourn_proto::time::{Duration, Instant};
use sojourn_wire::tcp::Header;

/// The number of packets of the first run of a case; the second run has twice as many.
const PACKETS: u64 = 4_000;
/// The time from one packet to the next.
const STEP: Duration = Duration::from_micros(10);

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    what: &'static str,
    /// Bytes of one write, and segments in a packet.
    bytes: usize,
    segments: u32,
    /// The number of packets of which one is lost; 0 for no loss.
    loss: u64,
    /// The other end answers each message with one of the same size.
    answers: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "bulk",
        what: "a stream, a segment of 1448 bytes in a packet",
        bytes: 1_448,
        segments: 1,
        loss: 0,
        answers: false,
    },
    Case {
        name: "offload",
        what: "a stream, 44 segments in a packet (segmentation and receive offload)",
        bytes: 44 * 1_448,
        segments: 44,
        loss: 0,
        answers: false,
    },
    Case {
        name: "small",
        what: "a stream of messages of 64 bytes, a packet each",
        bytes: 64,
        segments: 1,
        loss: 0,
        answers: false,
    },
    Case {
        name: "answers",
        what: "messages of 64 bytes, each answered by one",
        bytes: 64,
        segments: 1,
        loss: 0,
        answers: true,
    },
    Case {
        name: "loss",
        what: "a stream, one packet of a hundred lost",
        bytes: 1_448,
        segments: 1,
        loss: 100,
        answers: false,
    },
];

struct Packet {
    header: Header,
    payload: Vec<u8>,
    segment_size: u16,
}

fn connect(end: usize, segments: u32, now: Instant) -> Connection {
    let address = |end: usize| SocketAddr::from(([192, 0, 2, 1 + end as u8], 1_000));
    let starts = [1_000, 5_000];
    let (ours, theirs) = (starts[end], starts[1 - end]);
    let mut tcp = TcpRecord {
        snd_una: ours,
        snd_nxt: ours,
        snd_wl1: theirs,
        snd_wl2: ours,
        rcv_nxt: theirs,
        rcv_wup: theirs,
        rcv_wnd: 1 << 20,
        snd_wnd: 1 << 20,
        max_window: 1 << 20,
        peer_mss: 1_460,
        advertised_mss: 1_460,
        window_scaling: true,
        snd_wscale: 7,
        rcv_wscale: 7,
        cwnd: 500_000,
        sack: true,
        timestamps: Some(TimestampsRecord {
            unit: TimestampUnit::Milliseconds,
            value: 1,
            recent: 1,
            recent_age: Duration::ZERO,
            recent_valid: true,
        }),
        ..TcpRecord::default()
    };
    tcp.options.nodelay = true;
    (tcp.options.sndbuf, tcp.options.rcvbuf) = (4 << 20, 4 << 20);
    (tcp.options.sndbuf_locked, tcp.options.rcvbuf_locked) = (true, true);
    let record = SessionRecord {
        local: address(end),
        remote: Some(address(1 - end)),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    };
    let limits = Limits { gso_max_segments: segments, ..Limits::default() };
    Connection::import(&record, &limits, now).expect("the record is a possible one")
}

/// Two ends and the packets between them. A packet's memory is reused, so that the allocator is not
/// counted.
struct Pair {
    ends: [Connection; 2],
    spare: Vec<Packet>,
    under_way: VecDeque<(usize, Packet)>,
    now: Instant,
    sent: u64,
    loss: u64,
    buffer: Vec<u8>,
}

impl Pair {
    fn new(case: Case) -> Pair {
        let now = Instant::from_millis(1_000);
        Pair {
            ends: [connect(0, case.segments, now), connect(1, case.segments, now)],
            spare: Vec::new(),
            under_way: VecDeque::new(),
            now,
            sent: 0,
            loss: case.loss,
            buffer: vec![7; 1 << 16],
        }
    }

    fn transmit(&mut self, end: usize) {
        while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
            let mut packet = self.spare.pop().unwrap_or_else(|| Packet {
                header: transmit.header,
                payload: Vec::with_capacity(1 << 16),
                segment_size: 0,
            });
            packet.header = transmit.header;
            packet.segment_size = transmit.segment_size;
            packet.payload.clear();
            transmit.payload.iter().for_each(|part| packet.payload.extend_from_slice(part));
            self.sent += u64::from(!packet.payload.is_empty());
            if self.loss > 0 && end == 0 && self.sent.is_multiple_of(self.loss) {
                self.spare.push(packet);
            } else {
                self.under_way.push_back((1 - end, packet));
            }
        }
    }

    fn deliver(&mut self) {
        let Some((end, packet)) = self.under_way.pop_front() else { return };
        self.now += STEP;
        let arrival = Arrival {
            segment_size: packet.segment_size,
            ..Arrival::new(&packet.header, &packet.payload)
        };
        self.ends[end].on_segment(self.now, &arrival);
        self.spare.push(packet);
        self.transmit(end);
    }

    fn expire(&mut self) {
        for end in 0..2 {
            if self.ends[end].next_timeout().is_some_and(|at| at <= self.now) {
                self.ends[end].on_timeout(self.now);
                self.transmit(end);
            }
        }
    }

    fn write(&mut self, end: usize, bytes: usize) {
        if self.ends[end].send_room() >= bytes {
            self.ends[end].send(&[&self.buffer[..bytes]], false);
            self.transmit(end);
        }
    }

    /// Reads all bytes and returns their number.
    fn read(&mut self, end: usize) -> usize {
        let count = self.ends[end].recv(&mut [&mut self.buffer]);
        self.transmit(end);
        count
    }
}

fn run(case: Case, packets: u64) {
    let mut pair = Pair::new(case);
    let mut owed = 0;
    pair.write(0, case.bytes);
    while pair.sent < packets {
        if !case.answers && pair.under_way.len() < 20 {
            pair.write(0, case.bytes);
        }
        if pair.under_way.is_empty() {
            pair.now += Duration::from_millis(1);
        }
        pair.deliver();
        pair.expire();
        for end in 0..2 {
            owed += pair.read(end);
            if case.answers && owed >= case.bytes {
                owed = 0;
                pair.write(end, case.bytes);
            }
        }
    }
}

/// Returns the instructions of a whole run, as counted by valgrind.
fn count(case: Case, packets: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        // String instructions would count as an instruction for every byte, so the C library is
        // told not to copy with them.
        .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1000000000")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([case.name, &packets.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("valgrind says nothing of instructions:\n{text}"))
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, packets] = &arguments[..] {
        let case = CASES.into_iter().find(|case| case.name == *name).ok_or("no such case")?;
        run(case, packets.parse().map_err(|_| "not a number")?);
        return Ok(());
    }
    println!(
        "{:>8}  instructions for a packet with payload: both ends, acknowledgements, four copies",
        "case"
    );
    for case in CASES {
        let (once, twice) = (count(case, PACKETS)?, count(case, 2 * PACKETS)?);
        println!("{:>8}  {:>6}  {}", case.name, (twice - once) / PACKETS, case.what);
    }
    Ok(())
}
