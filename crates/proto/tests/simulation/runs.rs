//! Many short sessions, each with a path, programs, options and moves determined by its seed. In
//! each of them every byte arrives, in order and once, and both ends close.
//!
//! `SOJOURN_SIMULATION_RUNS` sets the number of runs, `SOJOURN_SIMULATION_SEED` the first seed
//! (usually with one run).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sojourn_proto::record::{
    ControllerKind, EcnRecord, TcpRecord, TimestampUnit, TimestampsRecord,
};
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::{Duration, Instant};

use crate::host::Program;
use crate::link::Conditions;
use crate::random::Random;
use crate::world::{BEGIN, Setup, World};

const RUNS: u64 = 2_000;
/// Virtual time within which even the worst path carries what a run sends.
const PATIENCE: Duration = Duration::from_secs(40_000);

fn conditions(random: &mut Random) -> Conditions {
    let delay = random.pick(&[20, 500, 5_000, 50_000, 250_000]);
    let jitter = random.pick(&[0, 0, 0, delay / 10, delay]);
    // Up to a fifth of the packets is lost; more, and a connection may rightly be given up.
    let loss = random.pick(&[0, 0, 1_000, 20_000, 100_000, 200_000]);
    let rate = random.pick(&[0, 0, 30_000, 1_000_000, 100_000_000]);
    Conditions {
        delay: Duration::from_micros(delay),
        jitter: Duration::from_micros(jitter),
        loss,
        burst: if loss > 0 { random.pick(&[0, 0, 500_000]) } else { 0 },
        duplication: random.pick(&[0, 0, 0, 10_000, 200_000]),
        corruption: random.pick(&[0, 0, 0, 1_000, 50_000]),
        reordering: random.pick(&[0, 0, 5_000, 100_000]),
        rate,
        queue: random.pick(&[8_000, 64_000, 1 << 30]),
        marks: random.chance(500_000),
        mtu: 1_500,
    }
}

fn program(random: &mut Random) -> Program {
    let to_write = random.pick(&[0, 1, 1_448, 20_000, 200_000]);
    let to_write = if to_write > 1 { random.between(1, to_write) } else { to_write };
    // Slow programs get few bytes, because more would only take longer.
    let slow = to_write < 5_000;
    Program {
        to_write,
        write_size: random.pick(if slow { &[1, 100, 1_000] } else { &[500, 5_000, 65_536] }),
        write_pause: Duration::from_micros(random.pick(&[0, 0, 10, 1_000, 50_000])),
        read_size: random.pick(&[500, 4_096, 65_536]),
        read_pause: Duration::from_micros(random.pick(&[0, 0, 0, 100, 20_000])),
        closes: true,
    }
}

struct Common {
    sack: bool,
    stamps: Option<TimestampUnit>,
    ecn: bool,
    mss: u16,
}

fn record(random: &mut Random, common: &Common) -> TcpRecord {
    let buffer = random.pick(&[4_096u32, 20_000, 131_072, 1 << 20]);
    // A scale must leave windows that can be announced.
    let scale = random.pick(&[0, 3, 7, 14]);
    let scale = if buffer >> scale < 16 { 0 } else { scale };
    let window = (buffer / 2).min(65_535 << scale) >> scale << scale;
    let mut tcp = TcpRecord {
        snd_una: random.pick(&[random.clone().next() as u32, u32::MAX - 1_000, 0x7fff_ff00, 0]),
        peer_mss: common.mss,
        advertised_mss: common.mss,
        path_mtu: 1_500,
        window_scaling: true,
        rcv_wscale: scale as u8,
        rcv_wnd: window,
        cwnd: u32::from(common.mss) * 10,
        sack: common.sack,
        ecn: EcnRecord { negotiated: common.ecn, ..EcnRecord::default() },
        timestamps: common.stamps.map(|unit| TimestampsRecord {
            unit,
            value: random.pick(&[5, u32::MAX - 3_000, 0x8000_0000]),
            recent: 0,
            recent_age: Duration::ZERO,
            recent_valid: true,
        }),
        ..TcpRecord::default()
    };
    tcp.options.rcvbuf = buffer;
    tcp.options.rcvbuf_locked = random.chance(300_000);
    tcp.options.sndbuf = random.pick(&[8_192, 87_040, 1 << 20]);
    tcp.options.sndbuf_locked = random.chance(300_000);
    tcp.options.nodelay = random.chance(500_000);
    tcp.options.cork = random.chance(50_000);
    tcp.options.quickack = random.chance(500_000);
    tcp.options.controller = random.pick(&[ControllerKind::Cubic, ControllerKind::Reno]);
    tcp.tuning.pacing = random.chance(250_000);
    tcp.tuning.early_retrans = random.pick(&[0, 3, 3]);
    tcp.tuning.frto = random.chance(750_000);
    // Enough retries that no connection is given up by bad luck.
    tcp.tuning.retries2 = 60;
    tcp.tuning.rto_max = Duration::from_secs(10);
    (tcp.tuning.rmem_max, tcp.tuning.wmem_max) = (1 << 20, 1 << 20);
    tcp
}

fn setup(random: &mut Random, seed: u64) -> Setup {
    let common = Common {
        sack: random.chance(800_000),
        stamps: random.pick(&[
            None,
            Some(TimestampUnit::Milliseconds),
            Some(TimestampUnit::Milliseconds),
            Some(TimestampUnit::Microseconds),
        ]),
        ecn: random.chance(300_000),
        mss: random.pick(&[100, 536, 1_460, 1_460]),
    };
    let limits = Limits {
        gso_max_segments: random.pick(&[1, 4, 64]),
        gaps_max: random.pick(&[1, 8, 128]),
        scoreboard_entries: random.pick(&[8, 512]),
        ..Limits::default()
    };
    Setup {
        tcp: [record(random, &common), record(random, &common)],
        programs: [program(random), program(random)],
        limits,
        conditions: [conditions(random), conditions(random)],
        seed,
    }
}

/// Chooses the times at which sessions move and the path narrows.
fn incidents(random: &mut Random, world: &mut World) {
    let within = random.pick(&[10_000, 1_000_000, 20_000_000]);
    let at = |random: &mut Random| BEGIN + Duration::from_micros(random.below(within));
    for _ in 0..random.pick(&[0, 0, 1, 6]) {
        let event: (Instant, usize) = (at(random), random.below(2) as usize);
        world.moves.push(event);
    }
    world.moves.sort();
    let mut mtu = 1_500;
    for _ in 0..random.pick(&[0, 0, 0, 1, 2]) {
        mtu = random.between(576, mtu);
        world.narrowings.push((at(random), mtu));
    }
    world.narrowings.sort_by_key(|event| event.0);
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(setup(&mut random, seed));
    incidents(&mut random, &mut world);
    let over = world.run(BEGIN + PATIENCE, World::is_over);
    let [first, second] = &world.hosts;
    assert!(
        over,
        "not over after {} s: read {} of {} and {} of {}, states {:?} and {:?}, {:?} and {:?}\n{:?}\n{:?}",
        world.elapsed().as_micros() / 1_000_000,
        first.read,
        second.program.to_write,
        second.read,
        first.program.to_write,
        first.connection.state(),
        second.connection.state(),
        first.connection.close_reason(),
        second.connection.close_reason(),
        first.connection.recovery().statistics(),
        second.connection.recovery().statistics(),
    );
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_byte_arrives_whatever_the_path_is() {
    let first = number("SOJOURN_SIMULATION_SEED").unwrap_or(1);
    let runs = number("SOJOURN_SIMULATION_RUNS").unwrap_or(RUNS);
    for seed in first..first + runs {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("failed with SOJOURN_SIMULATION_SEED={seed} SOJOURN_SIMULATION_RUNS=1");
            resume_unwind(cause);
        }
    }
}
