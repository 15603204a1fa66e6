//! Sessions with made-up rates, on made-up time: where they end up, and how often they move.

use super::*;

/// Noise from -1 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }
}

/// Rates in the kernel and away (bytes a second), and how much each step differs; the processor
/// time of a second there, in parts of the second.
#[derive(Clone, Copy)]
struct World {
    kernel: f64,
    away: f64,
    noise: f64,
    seed: u64,
    kernel_cpu: f64,
    away_cpu: f64,
    /// Bytes a second in the calls before the move.
    before: u64,
}

impl Default for World {
    fn default() -> Self {
        let (kernel, away, noise, seed) = (1e6, 1e6, 0.0, 3);
        Self { kernel, away, noise, seed, kernel_cpu: 0.5, away_cpu: 0.5, before: 0 }
    }
}

/// A clock of processor time that says nothing.
fn silent() -> u64 {
    0
}

#[derive(Debug, Default, PartialEq)]
struct Story {
    trials: u32,
    slower: u32,
    /// Of the time.
    in_kernel: f64,
    bytes: f64,
}

/// A sample each five milliseconds, as sleepers are woken or calls counted.
const STEP_NS: u64 = 5_000_000;

fn play(world: &World, seconds: u64) -> Story {
    let (mut noise, mut past, mut story) =
        (Noise(world.seed), TrialHistory::new(), Story::default());
    let mut away = Some(past.away().after(world.before));
    let mut cpu_ns = 0;
    let steps = seconds * SECOND_NS / STEP_NS;
    let mut total = 0;
    for step in 0..steps {
        let now_ns = SECOND_NS + step * STEP_NS;
        let rate = if away.is_some() { world.away } else { world.kernel };
        let bytes = (rate * (1.0 + world.noise * noise.next()) / 200.0) as u64;
        story.bytes += bytes as f64;
        total += bytes;
        let share = if away.is_some() { world.away_cpu } else { world.kernel_cpu };
        cpu_ns += (share * STEP_NS as f64 * (1.0 + world.noise * noise.next())) as u64;
        match &mut away {
            Some(watch) => {
                if let Sample::TrialDue(rate) = watch.sample(now_ns, total, || cpu_ns) {
                    story.trials += 1;
                    past.goes_home(now_ns, rate);
                    away = None;
                }
            }
            None => {
                story.in_kernel += 1.0 / steps as f64;
                match past.count(now_ns, bytes, || cpu_ns) {
                    Next::Stay => {}
                    Next::Slower => story.slower += 1,
                    Next::Leave => (away, total) = (Some(past.away()), 0),
                }
            }
        }
    }
    story
}

const HOUR: u64 = 3600;

#[test]
fn equal_rates_stay_away_but_for_a_few_short_trials() {
    // With more noise a trial may be wrong, which costs a session that does as well in the kernel
    // nothing.
    for (rate, noise, most) in [(1e5, 0.0, 0), (1e6, 0.1, 0), (5e9, 0.3, 3)] {
        for seed in 0..5 {
            let world = World { kernel: rate, away: rate, noise, seed, ..World::default() };
            let story = play(&world, HOUR);
            assert!(story.slower <= most, "{rate}, {noise}, seed {seed}: {story:?}");
            assert!(story.trials <= if most == 0 { 9 } else { 40 }, "{story:?}");
            assert!(story.in_kernel < 0.004, "{story:?}");
        }
    }
}

#[test]
fn what_is_faster_away_stays_away() {
    let story = play(&World { away: 1.2e6, noise: 0.3, ..World::default() }, HOUR);
    assert_eq!(story.slower, 0);
    assert!(story.in_kernel < 0.001, "{story:?}");
}

#[test]
fn what_is_slower_away_goes_home_and_comes_back_less_and_less() {
    for (share, noise) in [(0.85, 0.1), (0.6, 0.3), (0.1, 0.3)] {
        let (kernel, away) = (1e7, 1e7 * share);
        let story = play(&World { kernel, away, noise, seed: 5, ..World::default() }, HOUR);
        assert_eq!(story.trials, story.slower, "{share}: {story:?}");
        assert!((5..=12).contains(&story.slower), "{share}: {story:?}");
        assert!(story.in_kernel > 0.99, "{share}: {story:?}");
    }
}

#[test]
fn a_small_difference_takes_some_trials_and_then_counts() {
    for seed in 0..5 {
        let world = World { away: 0.94e6, noise: 0.1, seed, ..World::default() };
        let story = play(&world, HOUR);
        assert!(story.in_kernel > 0.97, "{story:?}");
        assert!(story.slower < story.trials && story.trials <= 100, "{story:?}");
    }
    // Of less than that nobody can be sure.
    let story = play(&World { away: 0.99e6, noise: 0.1, ..World::default() }, HOUR);
    assert_eq!(story.slower, 0);
}

#[test]
fn where_the_pace_is_the_programs_its_processor_time_decides() {
    let of = |away_cpu| World { noise: 0.1, kernel_cpu: 0.2, away_cpu, ..World::default() };
    let story = play(&of(0.34), HOUR);
    assert!(story.in_kernel > 0.99 && story.slower <= 12, "{story:?}");
    let story = play(&of(0.27), HOUR);
    assert_eq!(story.slower, 0, "less than one and a half times: {story:?}");
    let story = play(&World { away: 1.2e6, ..of(0.7) }, HOUR);
    assert_eq!(story.slower, 0, "more progress is worth it: {story:?}");
    let story = play(&World { kernel_cpu: 0.0, ..of(0.0) }, HOUR);
    assert_eq!(story.slower, 0, "a clock that says nothing");
}

#[test]
fn what_made_better_progress_before_its_move_is_tried_soon() {
    let world =
        World { kernel: 1e7, away: 5e6, noise: 0.1, before: 10_000_000, ..World::default() };
    let story = play(&world, 2);
    assert!(story.slower == 1 && story.in_kernel > 0.8, "{story:?}");
    // Such a beginning proves nothing: the trial does.
    let story = play(&World { away: 9.9e6, ..world }, HOUR);
    assert!(story.slower == 0 && story.trials <= 12, "{story:?}");
    let story = play(&World { away: 2e7, ..world }, 2);
    assert_eq!(story.trials, 0, "{story:?}");
}

#[test]
fn within_twenty_seconds_most_of_what_the_kernel_would_have_done_is_done() {
    let world = World { kernel: 1e7, away: 5e6, noise: 0.1, seed: 7, ..World::default() };
    let story = play(&world, 20);
    assert!(story.bytes > 0.9 * 20.0 * world.kernel, "{story:?}");
    let world = World { away: 3e7, noise: 0.1, seed: 7, ..World::default() };
    let story = play(&world, 20);
    assert!(story.bytes > 0.95 * 20.0 * world.away, "{story:?}");
}

#[test]
fn sessions_with_pauses_are_never_tried() {
    let mut away = TrialHistory::new().away();
    let mut total = 0;
    for burst in 0..1000u64 {
        for step in 0..30 {
            total += 1000;
            let now_ns = burst * SECOND_NS + step * STEP_NS;
            assert_eq!(away.sample(now_ns, total, silent), Sample::Away);
        }
    }
}

#[test]
fn a_trial_that_finds_nothing_to_measure_ends_and_the_next_is_later() {
    let mut past = TrialHistory::new();
    past.goes_home(SECOND_NS, Rate { bytes: 1000, cpu_ns: 0 });
    assert_eq!(past.count(SECOND_NS + TRIAL_MAX_NS - 1, 10, silent), Next::Stay);
    assert_eq!(past.count(SECOND_NS + TRIAL_MAX_NS, 10, silent), Next::Leave);
    assert_eq!(past.away().trial_after_ns, 4 * TRIAL_AFTER_NS);
    assert_eq!(past.count(SECOND_NS + TRIAL_MAX_NS, 10, silent), Next::Leave, "until it has left");
}

#[test]
fn one_that_is_not_watched_is_never_tried() {
    let mut away = TrialProgress::default();
    assert!(
        (0..100_000).all(|step| away.sample(step * STEP_NS, step << 10, silent) == Sample::Away)
    );
    assert!((0..100).all(|step| away.sample(step * SECOND_NS, 0, silent) == Sample::Away));
}

#[test]
fn one_that_is_used_seldom_goes_home_without_a_trial() {
    let samples = |step_ns| {
        let mut away = TrialHistory::new().away();
        (0..10).map(move |step| away.sample(step * step_ns, 64 * step, silent)).collect::<Vec<_>>()
    };
    assert_eq!(samples(SELDOM_NS)[..3], [Sample::Away, Sample::Away, Sample::Seldom]);
    // Just fast enough, for as long as it likes.
    assert_eq!(samples(SELDOM_NS - 1), [Sample::Away; 10]);
    // A pause is no pace.
    let mut away = TrialHistory::new().away();
    let times = (0..100).map(|burst| burst * SECOND_NS).flat_map(|from| [from, from + STEP_NS]);
    assert!(times.into_iter().all(|now_ns| away.sample(now_ns, 0, silent) == Sample::Away));
}
