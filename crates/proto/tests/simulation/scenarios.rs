//! Single cases in which a certain event must happen or must not happen.

use sojourn_proto::record::ControllerKind;
use sojourn_proto::recovery::Statistics;
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::{Duration, Instant};

use crate::host::Program;
use crate::link::Conditions;
use crate::throughput::record;
use crate::world::{BEGIN, Setup, World};

const BYTES: u64 = 3_000_000;

fn setup(conditions: Conditions) -> Setup {
    Setup {
        tcp: [record(ControllerKind::Cubic), record(ControllerKind::Cubic)],
        programs: [Program::bulk(BYTES), Program::bulk(0)],
        limits: Limits::default(),
        conditions: [conditions, Conditions { loss: 0, ..conditions }],
        seed: 7,
    }
}

/// Runs to the end and returns the sender's statistics and the elapsed time.
fn complete(world: &mut World) -> (Statistics, Duration) {
    assert!(world.run(BEGIN + Duration::from_secs(600), World::is_over), "{world:?}");
    (world.hosts[0].connection.recovery().statistics(), world.elapsed())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_path_without_fault_sees_nothing_twice() {
    let mut world = World::new(setup(Conditions { rate: 12_500_000, ..Conditions::clean(ms(10)) }));
    let (statistics, _) = complete(&mut world);
    assert_eq!(statistics.retransmitted_total, 0);
    assert_eq!(statistics.recoveries_total, 0);
}

#[test]
fn hystart_ends_slow_start_before_a_large_queue_overflows() {
    // The queue holds twelve times the bytes of the path, so slow start would double until the
    // queue overflows.
    let conditions = Conditions { rate: 2_500_000, queue: 3_000_000, ..Conditions::clean(ms(50)) };
    let mut setup = setup(conditions);
    setup.programs[0].to_write = 4 * BYTES;
    let mut world = World::new(setup);
    let (statistics, _) = complete(&mut world);
    assert_eq!(statistics.retransmitted_total, 0, "{statistics:?}");
    let ssthresh = world.hosts[0].connection.recovery().ssthresh();
    assert!((250_000..3_250_000).contains(&ssthresh), "{ssthresh}");
}

#[test]
fn a_hundred_gaps_in_a_crowded_scoreboard_cost_nothing_twice() {
    // More packets are under way than the scoreboard has entries when the queue overflows.
    let conditions = Conditions { rate: 2_500_000, queue: 2_000_000, ..Conditions::clean(ms(50)) };
    let mut setup = setup(conditions);
    setup.programs[0].to_write = 4 * BYTES;
    setup.limits.scoreboard_entries = 512;
    let mut world = World::new(setup);
    let (statistics, _) = complete(&mut world);
    assert!(world.links[0].events.overflowed > 100, "{:?}", world.links[0].events);
    assert_eq!((statistics.duplicates_total, statistics.timeouts_total), (0, 0), "{statistics:?}");
}

#[test]
fn lost_packets_cost_themselves_and_no_timeout() {
    for doomed in [vec![3], vec![50], vec![500], vec![20, 21, 22], vec![40, 42, 44, 46, 48, 50]] {
        let mut world = World::new(setup(Conditions::clean(ms(20))));
        world.links[0].doomed.clone_from(&doomed);
        let (statistics, _) = complete(&mut world);
        assert_eq!(world.links[0].events.lost, doomed.len() as u64);
        assert_eq!(statistics.timeouts_total, 0, "{doomed:?}: {statistics:?}");
        assert_eq!(statistics.recoveries_total, 1, "{doomed:?}: {statistics:?}");
        let bytes = 1_448 * doomed.len() as u64;
        assert_eq!(statistics.retransmitted_total, bytes, "{doomed:?}: {statistics:?}");
    }
}

#[test]
fn the_lost_tail_is_found_by_a_probe() {
    let mut setup = setup(Conditions::clean(ms(20)));
    setup.programs[0].to_write = 10 * 1_448;
    let mut world = World::new(setup);
    world.links[0].doomed = vec![8, 9];
    let (statistics, elapsed) = complete(&mut world);
    assert_eq!(statistics.timeouts_total, 0, "{statistics:?}");
    assert!(statistics.probes_total > 0);
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
}

#[test]
fn reordering_alone_hardly_slows_the_stream_down() {
    let conditions =
        Conditions { reordering: 20_000, rate: 12_500_000, ..Conditions::clean(ms(20)) };
    let mut world = World::new(setup(conditions));
    let (statistics, elapsed) = complete(&mut world);
    assert!(statistics.reordering_seen);
    assert_eq!(statistics.timeouts_total, 0);
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?} {statistics:?}");
}

#[test]
fn a_pause_of_the_path_is_a_spurious_timeout_and_is_undone() {
    let mut world = World::new(setup(Conditions { rate: 2_500_000, ..Conditions::clean(ms(20)) }));
    let limit = BEGIN + Duration::from_secs(600);
    world.run(limit, |world| world.elapsed() >= ms(400));
    let now = world.now;
    world.links[0].pause(now, ms(1_000));
    let (statistics, _) = complete(&mut world);
    assert!(statistics.timeouts_total > 0 && statistics.undone_total > 0, "{statistics:?}");
    assert!(statistics.retransmitted_total < 20 * 1_448, "{statistics:?}");
}

#[test]
fn a_path_that_narrows_twice_carries_on() {
    let mut world = World::new(setup(Conditions { rate: 12_500_000, ..Conditions::clean(ms(10)) }));
    let at = |time: u64| -> Instant { BEGIN + ms(time) };
    world.narrowings = vec![(at(60), 1_400), (at(120), 700)];
    let (statistics, elapsed) = complete(&mut world);
    assert_eq!(statistics.timeouts_total, 0, "{statistics:?}");
    assert!(world.links[0].events.too_big > 0);
    assert_eq!(world.hosts[0].connection.recovery().ssthresh(), u64::MAX, "nobody is to blame");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}

#[test]
fn a_moving_session_loses_little_time() {
    let conditions = Conditions { rate: 12_500_000, ..Conditions::clean(ms(5)) };
    let (_, still) = complete(&mut World::new(setup(conditions)));
    let mut world = World::new(setup(conditions));
    world.moves = (1..40).map(|index| (BEGIN + ms(index * 7), (index % 2) as usize)).collect();
    let (statistics, moving) = complete(&mut world);
    assert!(moving < still + ms(100), "{still:?} and with moves {moving:?}");
    assert_eq!(statistics.timeouts_total, 0);
}

#[test]
fn congestion_marks_spare_the_losses() {
    let conditions =
        Conditions { rate: 2_500_000, queue: 100_000, marks: true, ..Conditions::clean(ms(20)) };
    let mut marked = setup(conditions);
    marked.tcp.iter_mut().for_each(|tcp| tcp.ecn.negotiated = true);
    marked.programs[0].to_write = 3 * BYTES;
    let mut plain = setup(conditions);
    plain.programs[0].to_write = 3 * BYTES;
    let (with, _) = complete(&mut World::new(marked));
    let (without, _) = complete(&mut World::new(plain));
    assert!(with.retransmitted_total < without.retransmitted_total / 2, "{with:?} {without:?}");
}

#[test]
fn a_reader_that_sleeps_closes_the_window_and_opens_it_again() {
    let mut setup = setup(Conditions::clean(ms(5)));
    setup.programs[0].to_write = 300_000;
    setup.programs[1].read_size = 30_000;
    setup.programs[1].read_pause = ms(700);
    setup.tcp[1].options.rcvbuf = 60_000;
    setup.tcp[1].rcv_wnd = 30_000 >> 8 << 8;
    let mut world = World::new(setup);
    let (statistics, elapsed) = complete(&mut world);
    assert_eq!(statistics.timeouts_total, 0, "a closed window is no loss");
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
}

/// A record may hold any counters: the largest values must neither stop a session nor wrap.
#[test]
fn absurd_counters_do_no_harm() {
    let mut setup = setup(Conditions::clean(ms(5)));
    setup.programs[0].to_write = 50_000;
    setup.tcp[0].counters.bytes_sent = u64::MAX;
    setup.tcp[1].counters.segs_in = u64::MAX - 3;
    let mut world = World::new(setup);
    complete(&mut world);
    let info = world.hosts[0].connection.info(world.now);
    assert_eq!(info.bytes_sent, 50_000);
}

#[test]
fn a_fast_short_path_is_filled() {
    // 10 Gbit/s and 50 microseconds: round-trip times of a few ticks of the clock.
    let conditions = Conditions {
        rate: 1_250_000_000,
        queue: 1 << 20,
        ..Conditions::clean(Duration::from_micros(25))
    };
    let mut setup = setup(conditions);
    setup.programs[0].to_write = 10 * BYTES;
    let mut world = World::new(setup);
    let (statistics, elapsed) = complete(&mut world);
    let share = 10 * BYTES * 1_000 / (1_250 * elapsed.as_micros());
    assert!(share > 900, "{share} thousandths of the rate, {statistics:?}");
    assert_eq!(statistics.timeouts_total, 0);
}

#[test]
fn two_streams_against_each_other_fill_both_directions() {
    let mut setup =
        setup(Conditions { rate: 1_250_000, queue: 64 << 10, ..Conditions::clean(ms(15)) });
    setup.programs[1].to_write = BYTES;
    let mut world = World::new(setup);
    let (_, elapsed) = complete(&mut world);
    let share = BYTES * 1_000 * 1_000 / 1_250_000 * 1_000 / elapsed.as_micros();
    // Acknowledgements wait behind data and come in bursts.
    assert!(share > 780, "{share} thousandths of the rate");
    let again = |end: usize| world.hosts[end].connection.recovery().statistics();
    assert_eq!(again(0).timeouts_total + again(1).timeouts_total, 0);
}
