//! The table of throughput over loss and round-trip time, for each congestion controller. The table
//! is a reviewed file, which every run must reproduce exactly.
//!
//! After an intended change, run with `SOJOURN_BLESS=1` and review the difference as a part of the
//! change.

use std::fmt::Write as _;
use std::path::Path;

use sojourn_proto::record::{ControllerKind, TcpRecord, TimestampUnit, TimestampsRecord};
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::Duration;

use crate::host::Program;
use crate::link::Conditions;
use crate::world::{BEGIN, Setup, World};

/// Bytes in a second: 100 Mbit/s.
const RATE: u64 = 12_500_000;
/// Bytes that may wait before the slow link.
const QUEUE: u64 = 256 << 10;
/// Bytes to be carried; a cell ends earlier if that takes too long.
const BYTES: u64 = 8_000_000;
const TIME: Duration = Duration::from_secs(20);
const ROUND_TRIPS_MS: [u64; 5] = [1, 10, 40, 100, 300];
/// Lost packets in a million.
const LOSSES: [u64; 5] = [0, 1_000, 10_000, 30_000, 100_000];

/// Returns a connection with windows large enough for the path.
pub(crate) fn record(controller: ControllerKind) -> TcpRecord {
    let mut tcp = TcpRecord {
        snd_una: 0xffff_0000,
        peer_mss: 1_460,
        advertised_mss: 1_460,
        path_mtu: 1_500,
        rcv_wscale: 8,
        rcv_wnd: 4 << 20,
        cwnd: 14_480,
        sack: true,
        timestamps: Some(TimestampsRecord {
            unit: TimestampUnit::Milliseconds,
            value: 77,
            recent: 0,
            recent_age: Duration::ZERO,
            recent_valid: true,
        }),
        ..TcpRecord::default()
    };
    tcp.options.controller = controller;
    tcp.options.nodelay = true;
    (tcp.options.rcvbuf, tcp.options.rcvbuf_locked) = (8 << 20, true);
    (tcp.options.sndbuf, tcp.options.sndbuf_locked) = (8 << 20, true);
    tcp
}

/// Returns one cell: megabits in a second, retransmitted bytes in thousandths, timeouts.
fn measure(controller: ControllerKind, round_trip_ms: u64, loss: u64) -> String {
    let mut there = Conditions::clean(Duration::from_micros(round_trip_ms * 500));
    (there.rate, there.queue, there.loss) = (RATE, QUEUE, loss);
    let back = Conditions { loss: 0, ..there };
    let setup = Setup {
        tcp: [record(controller), record(controller)],
        programs: [Program::bulk(BYTES), Program { closes: false, ..Program::bulk(0) }],
        limits: Limits::default(),
        conditions: [there, back],
        seed: 1_000 * round_trip_ms + loss,
    };
    let mut world = World::new(setup);
    world.run(BEGIN + TIME, |world| world.hosts[1].read == BYTES);
    let carried = world.hosts[1].read;
    let tenths = carried * 80 / world.elapsed().as_micros().max(1);
    let statistics = world.hosts[0].connection.recovery().statistics();
    let again = statistics.retransmitted_total * 1_000 / carried.max(1);
    format!("{}.{} ({again}, {})", tenths / 10, tenths % 10, statistics.timeouts_total)
}

fn table(controller: ControllerKind) -> String {
    let mut text = String::new();
    let name = format!("{controller:?}").to_lowercase();
    let _ = writeln!(
        text,
        "{name}: Mbit/s (bytes sent again in thousandths, timeouts); 100 Mbit/s, queue of 256 KiB"
    );
    let _ = write!(text, "{:>10}", "loss");
    for loss in LOSSES {
        let _ = write!(text, "{:>16}", format!("{}.{:02} %", loss / 10_000, loss / 100 % 100));
    }
    text.push('\n');
    for round_trip_ms in ROUND_TRIPS_MS {
        let _ = write!(text, "{:>10}", format!("{round_trip_ms} ms"));
        for loss in LOSSES {
            let _ = write!(text, "{:>16}", measure(controller, round_trip_ms, loss));
        }
        text.push('\n');
    }
    text
}

#[test]
fn throughput_is_as_reviewed() {
    let tables = [ControllerKind::Cubic, ControllerKind::Reno].map(table).join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/throughput.txt");
    if std::env::var_os("SOJOURN_BLESS").is_some() {
        std::fs::write(&path, &tables).expect("the file can be written");
    }
    let reviewed = std::fs::read_to_string(&path).expect("the reviewed file");
    assert!(reviewed == tables, "now:\n{tables}\nreviewed:\n{reviewed}");
}
