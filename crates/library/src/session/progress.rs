//! The decision whether a session on one host makes better progress in the kernel, from rates
//! measured there and away, one after the other.
//!
//! The code is pure: times and byte counts come in as arguments. Not here: the measuring, and the
//! moves that follow (`policy::measured`); the decision for remote sessions (`sojourn_pump::bulk`).
//!
//! # Theory of operation
//! Progress is bytes in both directions: where a program waits for answers, bytes come as fast as
//! answers do. Time is cut into slices; a rate is the **median** of the last few slices, and a
//! pause discards them. Only a session whose peer sleeps again and again is sampled at all: where
//! both ends are awake, shared memory is far ahead. After a while away without a pause
//! ([`TrialProgress`]) the session goes home for a **trial**, a fraction of a second, so that both
//! rates are of the same minute ([`TrialHistory`]). If the kernel was clearly faster the session
//! stays there, for a time that doubles with each such trial. If not, the session leaves, and the
//! next trial comes four times as late. So neither answer can flap, and trials cost less and less.

/// Length of a slice, and the length beyond which a slice had a pause in it (nanoseconds).
const SLICE_NS: u64 = 20_000_000;
const SLICE_MAX_NS: u64 = 60_000_000;
/// Slices that make a rate.
const SLICES: usize = 8;
/// Slices at the beginning that show the cost of the move, not the rate.
const SKIPPED: u32 = 1;
const SECOND_NS: u64 = 1_000_000_000;
/// Time away before the first trial, and the longest time before a later one.
const TRIAL_AFTER_NS: u64 = 2 * SECOND_NS;
const TRIAL_AFTER_MAX_NS: u64 = 3600 * SECOND_NS;
/// Time away before the trial of a session that was slower away in its last trial.
const AGAIN_AFTER_NS: u64 = SECOND_NS / 5;
/// The longest time that a trial may last.
const TRIAL_MAX_NS: u64 = SECOND_NS;
/// Time in the kernel after the first trial that the kernel won, and the longest such time.
const HOLD_FIRST_NS: u64 = 2 * SECOND_NS;
const HOLD_MAX_NS: u64 = 3600 * SECOND_NS;

/// Measures a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// The time and the byte count at which the current slice began.
    since: Option<(u64, u64)>,
    rates: [u64; SLICES],
    count: u32,
}

impl Meter {
    /// Counts that `total` bytes have gone through by now. Returns false if there was a pause,
    /// which discards all slices.
    fn count(&mut self, now_ns: u64, total: u64) -> bool {
        let Some((since, before)) = self.since else {
            self.since = Some((now_ns, total));
            return true;
        };
        let time = now_ns.saturating_sub(since);
        if time < SLICE_NS {
            return true;
        }
        if time > SLICE_MAX_NS {
            *self = Self { since: Some((now_ns, total)), ..Self::default() };
            return false;
        }
        self.since = Some((now_ns, total));
        self.count = self.count.saturating_add(1);
        if self.count > SKIPPED {
            let bytes = u128::from(total.saturating_sub(before)) * u128::from(SECOND_NS);
            let place = (self.count - SKIPPED - 1) as usize % SLICES;
            self.rates[place] = u64::try_from(bytes / u128::from(time)).unwrap_or(u64::MAX);
        }
        true
    }

    /// Returns the rate (bytes a second), once there are enough slices.
    fn rate(&self) -> Option<u64> {
        let mut rates = self.rates;
        rates.sort_unstable();
        let is_enough = self.count >= SLICES as u32 + SKIPPED;
        is_enough.then(|| rates[SLICES / 2 - 1].midpoint(rates[SLICES / 2]))
    }
}

/// Watches one session while it is away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrialProgress {
    /// 0: the session is not watched.
    trial_after_ns: u64,
    meter: Meter,
    /// The beginning of the time without a pause.
    steady_since: Option<u64>,
}

impl TrialProgress {
    /// Takes a sample: `total` bytes have gone both ways by now. Returns the rate away if a trial
    /// is due.
    pub(crate) fn sample(&mut self, now_ns: u64, total: u64) -> Option<u64> {
        if self.trial_after_ns == 0 {
            return None;
        }
        if !self.meter.count(now_ns, total) {
            self.steady_since = None;
        }
        let since = *self.steady_since.get_or_insert(now_ns);
        let is_due = now_ns.saturating_sub(since) >= self.trial_after_ns;
        self.meter.rate().filter(|_| is_due)
    }
}

/// What follows a sample in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The session stays in the kernel for now.
    Stay,
    /// The session stays: this sample ended a trial that the kernel won.
    Slower,
    /// The session may be offered again.
    Leave,
}

/// The two rates of a trial, in bytes a second of both directions; 0: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrialRates {
    pub(crate) in_kernel: u64,
    pub(crate) away: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Trial { began_ns: u64 },
    Hold { until_ns: u64 },
}

/// The state of a session's trials, kept in the process between its moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialHistory {
    stage: Stage,
    /// Bytes through the kernel since the trial began.
    total: u64,
    meter: Meter,
    /// Rates in bytes a second: away before the trial, and in the kernel during the trial.
    away: u64,
    kernel: Option<u64>,
    trial_after_ns: u64,
    hold_ns: u64,
}

impl TrialHistory {
    /// Makes the state of a session that has had no trial.
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Hold { until_ns: 0 },
            total: 0,
            meter: Meter::default(),
            away: 0,
            kernel: None,
            trial_after_ns: TRIAL_AFTER_NS,
            hold_ns: HOLD_FIRST_NS,
        }
    }

    /// Begins a trial: the session goes home, and has had the rate `away`.
    pub(crate) fn goes_home(&mut self, now_ns: u64, away: u64) {
        self.stage = Stage::Trial { began_ns: now_ns };
        (self.total, self.meter, self.away, self.kernel) = (0, Meter::default(), away, None);
    }

    /// Counts `bytes` that have gone through the kernel since the last call; tells what follows.
    pub(crate) fn count(&mut self, now_ns: u64, bytes: u64) -> Next {
        let began_ns = match self.stage {
            Stage::Hold { until_ns } if now_ns < until_ns => return Next::Stay,
            Stage::Hold { .. } => return Next::Leave,
            Stage::Trial { began_ns } => began_ns,
        };
        self.total += bytes;
        self.meter.count(now_ns, self.total);
        self.kernel = self.meter.rate();
        match self.kernel {
            // The kernel was faster by a tenth or more (dividing first avoids an overflow).
            Some(kernel) if self.away / 9 < kernel / 10 => {
                self.stage = Stage::Hold { until_ns: now_ns + self.hold_ns };
                self.hold_ns = (self.hold_ns * 2).min(HOLD_MAX_NS);
                self.trial_after_ns = AGAIN_AFTER_NS;
                Next::Slower
            }
            // A trial that never gathers enough slices (the program pauses) ends undecided after a
            // second.
            None if now_ns.saturating_sub(began_ns) < TRIAL_MAX_NS => Next::Stay,
            _ => {
                self.stage = Stage::Hold { until_ns: 0 };
                if self.kernel.is_some() {
                    self.hold_ns = HOLD_FIRST_NS;
                }
                let later_ns = self.trial_after_ns * 4;
                self.trial_after_ns = later_ns.clamp(TRIAL_AFTER_NS, TRIAL_AFTER_MAX_NS);
                Next::Leave
            }
        }
    }

    /// Returns the rates of the last trial.
    pub(crate) fn figures(&self) -> TrialRates {
        TrialRates { in_kernel: self.kernel.unwrap_or(0), away: self.away }
    }

    /// Makes the watcher for the time away that begins now.
    pub(crate) fn away(&self) -> TrialProgress {
        TrialProgress { trial_after_ns: self.trial_after_ns, ..TrialProgress::default() }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
