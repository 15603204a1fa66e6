//! The decision whether a bulk transfer with another host does better in the kernel, by measurement
//! and without flapping.
//!
//! The code is pure: times and byte counts come in as arguments. Not here: the measuring, and the
//! moves that follow (`carried`, and the library's `policy::bulk`).
//!
//! # Theory of operation
//! Time is cut into slices of a tenth of a second. A slice is one of **bulk** if the session moved
//! at least [`FLOOR`], or had more to send than its own windows allowed. In the kernel the mean of
//! several such slices is the session's **baseline** ([`Kernel`]). Away, ten bulk slices in a row
//! that are each clearly slower than the baseline make a verdict ([`Judge`]): noise does not make
//! ten in a row, and a pause starts the count again. A session that has gone home for that is not
//! offered again for a while, which doubles each time ([`History`]); meanwhile its baseline is
//! measured again.
//!
//! A fast transfer is away long before it could be measured in the kernel. So a transfer that has
//! lasted for a while without a baseline goes home once, for a **trial** of about a second.

use sojourn_proto::time::{Duration, Instant};

/// The rate (bytes a second) below which nothing counts as bulk.
pub const FLOOR: u64 = 1 << 20;
/// The length of a slice in the kernel, and the length beyond which a slice had a pause in it.
const SLICE: Duration = Duration::from_millis(100);
const SLICE_MAX: Duration = Duration::from_millis(300);
/// Slices that make a baseline.
const ENOUGH: u32 = 8;
/// Clearly slower slices in a row that make a verdict.
const SLOWER: u32 = 10;
/// The length of bulk without a baseline after which there is a trial, and the longest trial.
const TRIAL_AFTER: Duration = Duration::from_secs(5);
const TRIAL_MAX: Duration = Duration::from_secs(3);
/// How long a session that does better in the kernel stays there at first, and at most.
const HOLD_FIRST: Duration = Duration::from_secs(2);
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// The reason why a session is to go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session does better in the kernel.
    Slower,
    /// The session is to be measured in the kernel.
    Trial,
}

/// Returns the rate (bytes a second); 0 if no time has passed.
pub(crate) fn rate(bytes: u64, time: Duration) -> u64 {
    bytes.saturating_mul(1_000_000).checked_div(time.as_micros()).unwrap_or(0)
}

/// Measures a session's bulk rate in the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel {
    since: Option<Instant>,
    bytes: u64,
    mean: u64,
    slices: u32,
}

impl Kernel {
    /// Counts `bytes` that have gone through the kernel since the last call.
    pub fn count(&mut self, now: Instant, bytes: u64) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.bytes += bytes;
        let time = now.since(since);
        if time < SLICE {
            return;
        }
        let rate = rate(self.bytes, time);
        // A slice with a pause in it, or of less than bulk, says nothing of the kernel's rate.
        if time <= SLICE_MAX && rate >= FLOOR {
            // The first sixteen slices make a plain mean, later ones a sliding one.
            let weight = u64::from(self.slices.min(15)) + 1;
            self.mean = self.mean / weight * (weight - 1) + rate / weight;
            self.slices += 1;
        }
        (self.since, self.bytes) = (Some(now), 0);
    }

    /// Returns the baseline (bytes a second), if there were enough slices.
    pub fn baseline(&self) -> Option<u64> {
        (self.slices >= ENOUGH).then_some(self.mean)
    }
}

/// A sample of a session.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    /// Bytes until then.
    total: u64,
}

/// Watches a session that is away.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    baseline: Option<u64>,
    /// `None` means that there are no trials.
    trial_after: Option<Duration>,
    last: Option<Sample>,
    slower: u32,
    bulk_since: Option<Instant>,
    /// Bytes of the last slice, if it was not one of bulk, until they are taken.
    exchanged: u64,
}

impl Judge {
    /// A judge that never has a verdict.
    pub const NONE: Self = Self {
        baseline: None,
        trial_after: None,
        last: None,
        slower: 0,
        bulk_since: None,
        exchanged: 0,
    };

    /// Takes the bytes of the last slice, both ways; 0 if it was bulk, or they were taken.
    pub fn take_exchanged(&mut self) -> u64 {
        core::mem::take(&mut self.exchanged)
    }

    /// Takes a sample, about a tenth of a second after the last one. `total`: bytes so far, both
    /// ways. `has_more`: the session had more to send than its own windows allowed, with room at
    /// the peer.
    pub fn sample(&mut self, now: Instant, total: u64, has_more: bool) -> Option<Verdict> {
        let Sample { at: then, total: before } = self.last.replace(Sample { at: now, total })?;
        let time = now.since(then);
        let moved = total.saturating_sub(before);
        let rate = rate(moved, time);
        let is_bulk = rate >= FLOOR || has_more;
        self.exchanged = if is_bulk { 0 } else { moved };
        if time > SLICE_MAX || !is_bulk {
            (self.slower, self.bulk_since) = (0, None);
            return None;
        }
        match self.baseline {
            Some(baseline) => {
                // Slower by a tenth or more (dividing first avoids an overflow).
                let is_slower = rate / 9 < baseline / 10;
                self.slower = if is_slower { self.slower + 1 } else { 0 };
                (self.slower >= SLOWER).then_some(Verdict::Slower)
            }
            None => {
                let since = *self.bulk_since.get_or_insert(then);
                let is_due = self.trial_after.is_some_and(|after| now.since(since) >= after);
                // Below the floor the kernel would not get a baseline either (`Kernel::count`).
                (is_due && rate >= FLOOR).then_some(Verdict::Trial)
            }
        }
    }
}

/// The state of a session's measurements, kept between its moves.
#[derive(Clone, Copy, Debug)]
pub struct History {
    kernel: Kernel,
    /// The session is not offered before `until`; `hold` is the length of the next stay.
    until: Instant,
    hold: Duration,
    is_trial: bool,
    trial_after: Duration,
}

impl Default for History {
    fn default() -> Self {
        Self {
            kernel: Kernel::default(),
            until: Instant::from_micros(0),
            hold: HOLD_FIRST,
            is_trial: false,
            trial_after: TRIAL_AFTER,
        }
    }
}

impl History {
    /// Notes that the session goes home for `verdict`.
    pub fn goes_home(&mut self, now: Instant, verdict: Verdict) {
        // The session's stay in the kernel measures the baseline again: the old one may not hold
        // any more.
        self.kernel = Kernel::default();
        match verdict {
            Verdict::Trial => {
                self.until = now + TRIAL_MAX;
                self.trial_after = self.trial_after.times(2);
            }
            Verdict::Slower => {
                self.until = now + self.hold;
                self.hold = self.hold.times(2).min(HOLD_MAX);
            }
        }
        self.is_trial = verdict == Verdict::Trial;
    }

    /// Counts `bytes` that have gone through the kernel since the last call. Returns true if the
    /// session may be offered.
    pub fn count(&mut self, now: Instant, bytes: u64) -> bool {
        self.kernel.count(now, bytes);
        // A trial ends as soon as it has its result; the stay that follows a verdict does not.
        let is_tried = self.is_trial && self.kernel.baseline().is_some();
        is_tried || now >= self.until
    }

    /// Makes the judge for the time away that begins now.
    pub fn judge(&self) -> Judge {
        let (baseline, trial_after) = (self.kernel.baseline(), Some(self.trial_after));
        Judge { baseline, trial_after, ..Judge::NONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise from -1 to 1.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0
        }
    }

    /// Rates in the kernel and away (bytes a second), and how much each tenth of a second differs.
    struct World {
        kernel: f64,
        away: f64,
        noise: f64,
        seed: u64,
    }

    /// Plays that long: returns by reason (slower, trial), and the share of time in the kernel.
    fn play(world: &World, seconds: u64) -> (u32, u32, f64) {
        let (mut noise, mut history) = (Noise(world.seed), History::default());
        let mut judge = Some(history.judge());
        let (mut slower, mut trials, mut in_kernel, mut total) = (0, 0, 0, 0u64);
        for slice in 0..seconds * 10 {
            let now = Instant::from_micros(1_000_000 + slice * 100_000);
            let rate = if judge.is_some() { world.away } else { world.kernel };
            let bytes = (rate * (1.0 + world.noise * noise.next()) / 10.0) as u64;
            total += bytes;
            match &mut judge {
                Some(away) => {
                    if let Some(verdict) = away.sample(now, total, true) {
                        slower += u32::from(verdict == Verdict::Slower);
                        trials += u32::from(verdict == Verdict::Trial);
                        history.goes_home(now, verdict);
                        judge = None;
                    }
                }
                None => {
                    in_kernel += 1;
                    if history.count(now, bytes) {
                        judge = Some(history.judge());
                    }
                }
            }
        }
        (slower, trials, f64::from(in_kernel) / (seconds * 10) as f64)
    }

    const HOUR: u64 = 3600;

    #[test]
    fn equal_rates_stay_after_one_trial() {
        for rate in [2e6, 1e8, 5e9] {
            let world = World { kernel: rate, away: rate, noise: 0.0, seed: 1 };
            let (slower, trials, in_kernel) = play(&world, HOUR);
            assert_eq!((slower, trials), (0, 1), "{rate}");
            assert!(in_kernel < 0.001, "{in_kernel}");
        }
    }

    #[test]
    fn noise_of_a_tenth_moves_nothing() {
        for seed in 0..40 {
            let world = World { kernel: 1e8, away: 1e8, noise: 0.1, seed };
            let (slower, trials, _) = play(&world, HOUR);
            assert_eq!((slower, trials), (0, 1), "seed {seed}");
        }
    }

    #[test]
    fn what_is_faster_away_stays_away() {
        let world = World { kernel: 1e8, away: 1.5e8, noise: 0.1, seed: 3 };
        assert_eq!(play(&world, HOUR).0, 0);
    }

    #[test]
    fn what_is_slower_away_goes_home_and_comes_back_less_and_less() {
        for (share, noise) in [(0.8, 0.1), (0.5, 0.1), (0.1, 0.3)] {
            let world = World { kernel: 1e8, away: 1e8 * share, noise, seed: 5 };
            let (slower, trials, in_kernel) = play(&world, HOUR);
            assert!((5..=12).contains(&slower), "{share}: {slower}");
            assert_eq!(trials, 1);
            assert!(in_kernel > 0.97, "{share}: {in_kernel}");
        }
    }

    #[test]
    fn a_stall_with_more_to_send_is_slower() {
        let judge = Judge { baseline: Some(1 << 27), ..Judge::NONE };
        let play = |has_more| {
            let mut judge = judge;
            (0..30).any(|slice| {
                let now = Instant::from_micros(slice * 100_000);
                judge.sample(now, 1000 * slice, has_more) == Some(Verdict::Slower)
            })
        };
        assert!(play(true) && !play(false));
    }

    #[test]
    fn pauses_begin_anew() {
        let mut judge = Judge { baseline: Some(1 << 27), ..Judge::NONE };
        let mut total = 0;
        for round in 0..100u64 {
            for slice in 0..9 {
                total += 1 << 20;
                let now = Instant::from_micros(round * 5_000_000 + slice * 100_000);
                assert_eq!(judge.sample(now, total, true), None);
            }
        }
    }

    #[test]
    fn a_trial_without_bulk_ends_and_the_next_is_later() {
        let mut history = History::default();
        let start = Instant::from_micros(1_000_000);
        history.goes_home(start, Verdict::Trial);
        assert!(!history.count(start + Duration::from_secs(1), 10));
        assert!(history.count(start + Duration::from_secs(4), 10));
        assert_eq!(history.judge().trial_after, Some(TRIAL_AFTER.times(2)));
        assert_eq!(history.judge().baseline, None);
    }

    #[test]
    fn one_that_is_switched_off_never_judges() {
        let mut judge = Judge::NONE;
        for slice in 0..10_000 {
            let now = Instant::from_micros(slice * 100_000);
            assert_eq!(judge.sample(now, slice << 24, true), None);
        }
    }
}
