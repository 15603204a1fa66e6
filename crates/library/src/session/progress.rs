//! Whether a session on one host gets on better in the kernel: decided by measuring it there and
//! away, one after the other.
//!
//! Pure: time and bytes come in as arguments. Who measures, and what is done with the answer, is in
//! `measured`; the same question for sessions with other hosts is `sojourn_pump::bulk`'s.
//!
//! # Theory of operation
//! What gets on is bytes, both ways: where a program waits for answers, they come as fast as
//! answers do. Time is cut into slices; a rate is the **median** of the last few, and a pause
//! begins anew. Only a session whose peer sleeps again and again is asked about at all: where both
//! ends are met awake, shared memory is far ahead. After it has been so for a while away ([`Away`])
//! it goes home for a **trial**, a fraction of a second, so that both rates are of the same minute
//! ([`Past`]). If the kernel was clearly faster it stays there, for a time that doubles with each
//! such trial; if not it leaves, and the next trial comes four times as late. So neither answer can
//! flap, and trials cost less and less.

/// A slice lasts so long; one that lasts longer than the second had a pause in it (nanoseconds).
const SLICE_NS: u64 = 20_000_000;
const SLICE_MAX_NS: u64 = 60_000_000;
/// Slices that make a rate.
const SLICES: usize = 8;
/// Slices at the beginning that are the move's.
const SKIPPED: u32 = 1;
const SECOND_NS: u64 = 1_000_000_000;
/// How long a session is watched away before its first trial, and at most before a later one.
const TRIAL_AFTER_NS: u64 = 2 * SECOND_NS;
const TRIAL_AFTER_MAX_NS: u64 = 3600 * SECOND_NS;
/// The same for one that was slower away the last time.
const AGAIN_AFTER_NS: u64 = SECOND_NS / 5;
/// How long a trial may last.
const TRIAL_MAX_NS: u64 = SECOND_NS;
/// How long a session that does better in the kernel stays there at first, and at most.
const HOLD_FIRST_NS: u64 = 2 * SECOND_NS;
const HOLD_MAX_NS: u64 = 3600 * SECOND_NS;

/// Measures a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// When the slice began, and with how many bytes.
    since: Option<(u64, u64)>,
    rates: [u64; SLICES],
    count: u32,
}

impl Meter {
    /// `total` bytes have gone through by now. Whether there was no pause.
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

    /// Bytes a second, once enough was measured.
    fn rate(&self) -> Option<u64> {
        let mut rates = self.rates;
        rates.sort_unstable();
        let is_enough = self.count >= SLICES as u32 + SKIPPED;
        is_enough.then(|| rates[SLICES / 2 - 1].midpoint(rates[SLICES / 2]))
    }
}

/// Watches a session that is away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Away {
    /// 0: it is not watched.
    trial_after_ns: u64,
    meter: Meter,
    steady_since: Option<u64>,
}

impl Away {
    /// The peer has been woken some times more, and `total` bytes have gone both ways by now. The
    /// rate, if there is to be a trial.
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

/// What becomes of a session that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It stays for now.
    Stay,
    /// As [`Next::Stay`]: it has just been found to do better there.
    Slower,
    /// It may be offered.
    Leave,
}

/// What a trial has found: bytes a second, both ways; 0: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) in_kernel: u64,
    pub(crate) away: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Trial { began_ns: u64 },
    Hold { until_ns: u64 },
}

/// What is remembered of a session between its moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    stage: Stage,
    /// Bytes in the kernel since the trial began.
    total: u64,
    meter: Meter,
    /// Bytes a second, away before the trial and in the kernel during it.
    away: u64,
    kernel: Option<u64>,
    trial_after_ns: u64,
    hold_ns: u64,
}

impl Past {
    /// Of a session that has none.
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

    /// It goes home for a trial; that was its rate.
    pub(crate) fn goes_home(&mut self, now_ns: u64, away: u64) {
        self.stage = Stage::Trial { began_ns: now_ns };
        (self.total, self.meter, self.away, self.kernel) = (0, Meter::default(), away, None);
    }

    /// So many bytes more have gone through the kernel by now.
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
            Some(kernel) if self.away / 9 < kernel / 10 => {
                self.stage = Stage::Hold { until_ns: now_ns + self.hold_ns };
                self.hold_ns = (self.hold_ns * 2).min(HOLD_MAX_NS);
                self.trial_after_ns = AGAIN_AFTER_NS;
                Next::Slower
            }
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

    /// What its last trial has found.
    pub(crate) fn figures(&self) -> Figures {
        Figures { in_kernel: self.kernel.unwrap_or(0), away: self.away }
    }

    /// It is away from now on.
    pub(crate) fn away(&self) -> Away {
        Away { trial_after_ns: self.trial_after_ns, ..Away::default() }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
