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
//! rates are of the same minute ([`TrialHistory`]). The while is short if the session made better
//! progress in the calls before its move.
//!
//! If the kernel was clearly faster the session stays there, for a time that doubles with each such
//! trial. If not, the session leaves, and the next trial comes four times as late. A small
//! difference may be chance: then further trials follow soon, and the mean of up to four decides,
//! by a margin that falls with the root of their number, as chance does. So no answer can flap, and
//! trials cost less and less.
//!
//! A program that paces itself makes the same progress anywhere. There the **processor time** of
//! the process for each byte decides, if it is much more away. To ask for it takes a system call,
//! so it comes in as a function, which is called where a slice begins. A session whose peer is
//! woken a few times a second only goes home without a trial.

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
/// Samples of which each took at least so long, one after the other, show that a session is used
/// seldom (nanoseconds).
const SELDOM_NS: u64 = 64_000_000;
const SELDOM_SAMPLES: u32 = 2;
/// The longest time that a trial may last.
const TRIAL_MAX_NS: u64 = SECOND_NS;
/// Time in the kernel after the first trial that the kernel won, and the longest such time.
const HOLD_FIRST_NS: u64 = 2 * SECOND_NS;
const HOLD_MAX_NS: u64 = 3600 * SECOND_NS;

/// Time away before a trial of a session that made better progress before it moved, or whose last
/// trial left doubt.
const DOUBT_AFTER_NS: u64 = SECOND_NS / 4;
/// The lead of the kernel, in thousandths of the rate away, from which the mean of one trial, of
/// two, three, and four is a win.
const WINS: [u64; 4] = [1100, 1080, 1065, 1055];
/// The lead from which further trials follow.
const DOUBT: u64 = 1030;
/// The kernel makes as good progress from here on, for the comparison of processor times.
const EVEN: u64 = 970;

/// What goes through in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) bytes: u64,
    /// Processor time of the process, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

impl Rate {
    fn of(count: u64, time_ns: u64) -> u64 {
        let count = u128::from(count) * u128::from(SECOND_NS);
        u64::try_from(count / u128::from(time_ns.max(1))).unwrap_or(u64::MAX)
    }

    /// Returns this rate in thousandths of `other`.
    fn in_thousandths_of(self, other: Self) -> u64 {
        let share = u128::from(self.bytes) * 1000 / u128::from(other.bytes.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns true if each byte takes more than one and a half times the processor time that it
    /// takes at the rate `other`.
    fn is_dearer_than(self, other: Self) -> bool {
        let cost = |own: Self, bytes: u64| u128::from(own.cpu_ns) * u128::from(bytes);
        other.cpu_ns > 0 && cost(self, other.bytes) / 3 > cost(other, self.bytes) / 2
    }
}

/// The beginning of a slice.
#[derive(Clone, Copy, Debug)]
struct SliceStart {
    now_ns: u64,
    /// Processor time of the process.
    cpu_ns: u64,
    /// Bytes that had gone through.
    bytes: u64,
}

/// Measures a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// Where the current slice began.
    since: Option<SliceStart>,
    rates: [Rate; SLICES],
    count: u32,
}

impl Meter {
    /// Counts that `total` bytes have gone through by now. Returns false if there was a pause,
    /// which discards all slices.
    fn count(&mut self, now_ns: u64, total: u64, cpu_ns: impl FnOnce() -> u64) -> bool {
        let Some(since) = self.since else {
            self.since = Some(SliceStart { now_ns, cpu_ns: cpu_ns(), bytes: total });
            return true;
        };
        let time = now_ns.saturating_sub(since.now_ns);
        if time < SLICE_NS {
            return true;
        }
        let start = SliceStart { now_ns, cpu_ns: cpu_ns(), bytes: total };
        if time > SLICE_MAX_NS {
            *self = Self { since: Some(start), ..Self::default() };
            return false;
        }
        self.since = Some(start);
        self.count = self.count.saturating_add(1);
        if self.count > SKIPPED {
            let place = (self.count - SKIPPED - 1) as usize % SLICES;
            self.rates[place] = Rate {
                bytes: Rate::of(total.saturating_sub(since.bytes), time),
                cpu_ns: Rate::of(start.cpu_ns.saturating_sub(since.cpu_ns), time),
            };
        }
        true
    }

    /// Returns the rate, once there are enough slices.
    fn rate(&self) -> Option<Rate> {
        let median = |of: fn(&Rate) -> u64| {
            let mut rates = self.rates.each_ref().map(of);
            rates.sort_unstable();
            rates[SLICES / 2 - 1].midpoint(rates[SLICES / 2])
        };
        let is_enough = self.count >= SLICES as u32 + SKIPPED;
        is_enough.then(|| Rate { bytes: median(|r| r.bytes), cpu_ns: median(|r| r.cpu_ns) })
    }
}

/// Watches one session while it is away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrialProgress {
    /// 0: the session is not watched.
    trial_after_ns: u64,
    /// Bytes a second in the calls before the move; 0: not known.
    before: u64,
    meter: Meter,
    /// The beginning of the time without a pause.
    steady_since: Option<u64>,
    /// The time of the last sample, and how many samples to the last one came late.
    sampled_ns: Option<u64>,
    late: u32,
}

/// What a sample of a session that is away has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// The session stays away.
    Away,
    /// A trial is due; the rate away.
    TrialDue(Rate),
    /// The session is used seldom.
    Seldom,
}

impl TrialProgress {
    /// Takes a sample, after some more wake-ups of the peer: `total` bytes have gone both ways by
    /// now.
    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        total: u64,
        cpu_ns: impl FnOnce() -> u64,
    ) -> Sample {
        if self.trial_after_ns == 0 {
            return Sample::Away;
        }
        let before_ns = self.sampled_ns.replace(now_ns).unwrap_or(now_ns);
        let is_late = now_ns.saturating_sub(before_ns) >= SELDOM_NS;
        self.late = if is_late { self.late + 1 } else { 0 };
        if self.late >= SELDOM_SAMPLES {
            return Sample::Seldom;
        }
        self.due(now_ns, total, cpu_ns).map_or(Sample::Away, Sample::TrialDue)
    }

    /// Returns the rate away if a trial is due.
    fn due(&mut self, now_ns: u64, total: u64, cpu_ns: impl FnOnce() -> u64) -> Option<Rate> {
        if !self.meter.count(now_ns, total, cpu_ns) {
            self.steady_since = None;
        }
        let since = *self.steady_since.get_or_insert(now_ns);
        let steady_ns = now_ns.saturating_sub(since);
        let rate = self.meter.rate()?;
        let was_faster = self.before / 11 > rate.bytes / 10;
        let after_ns =
            if was_faster { self.trial_after_ns.min(DOUBT_AFTER_NS) } else { self.trial_after_ns };
        (steady_ns >= after_ns).then_some(rate)
    }

    /// Adds the rate (bytes a second) of the calls before the session's first move.
    pub(crate) fn after(self, before: u64) -> Self {
        Self { before, ..self }
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
    /// The rates away before the trial, and in the kernel during the trial.
    away: Rate,
    kernel: Option<Rate>,
    /// The kernel's leads (thousandths) in the trials since the last clear answer, and the trials'
    /// number.
    leads: u64,
    trials: usize,
    trial_after_ns: u64,
    /// Time away before the trial that follows a clear answer for being away.
    later_ns: u64,
    hold_ns: u64,
}

impl TrialHistory {
    /// Makes the state of a session that has had no trial.
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Hold { until_ns: 0 },
            total: 0,
            meter: Meter::default(),
            away: Rate::default(),
            kernel: None,
            leads: 0,
            trials: 0,
            trial_after_ns: TRIAL_AFTER_NS,
            later_ns: TRIAL_AFTER_NS,
            hold_ns: HOLD_FIRST_NS,
        }
    }

    /// Begins a trial: the session goes home, and has had the rate `away`.
    pub(crate) fn goes_home(&mut self, now_ns: u64, away: Rate) {
        self.stage = Stage::Trial { began_ns: now_ns };
        (self.total, self.meter, self.away, self.kernel) = (0, Meter::default(), away, None);
    }

    /// Counts `bytes` that have gone through the kernel since the last call; tells what follows.
    pub(crate) fn count(&mut self, now_ns: u64, bytes: u64, cpu_ns: impl FnOnce() -> u64) -> Next {
        let began_ns = match self.stage {
            Stage::Hold { until_ns } if now_ns < until_ns => return Next::Stay,
            Stage::Hold { .. } => return Next::Leave,
            Stage::Trial { began_ns } => began_ns,
        };
        self.total += bytes;
        self.meter.count(now_ns, self.total, cpu_ns);
        self.kernel = self.meter.rate();
        match self.kernel {
            Some(kernel) => self.decide(now_ns, kernel),
            // A trial that never gathers enough slices (the program pauses) ends undecided after a
            // second.
            None if now_ns.saturating_sub(began_ns) < TRIAL_MAX_NS => Next::Stay,
            None => self.leave(),
        }
    }

    fn decide(&mut self, now_ns: u64, kernel: Rate) -> Next {
        let lead = kernel.in_thousandths_of(self.away);
        self.leads = self.leads.saturating_add(lead);
        self.trials += 1;
        let mean = self.leads / self.trials as u64;
        let is_cheaper = lead >= EVEN && self.away.is_dearer_than(kernel);
        if mean >= WINS[self.trials - 1] || is_cheaper {
            (self.leads, self.trials) = (0, 0);
            self.stage = Stage::Hold { until_ns: now_ns + self.hold_ns };
            self.hold_ns = (self.hold_ns * 2).min(HOLD_MAX_NS);
            self.trial_after_ns = AGAIN_AFTER_NS;
            self.later_ns = AGAIN_AFTER_NS;
            return Next::Slower;
        }
        if mean >= DOUBT && self.trials < WINS.len() {
            self.stage = Stage::Hold { until_ns: 0 };
            self.trial_after_ns = DOUBT_AFTER_NS;
            return Next::Leave;
        }
        // One such answer after many others may be chance, too.
        self.hold_ns = (self.hold_ns / 4).max(HOLD_FIRST_NS);
        self.leave()
    }

    /// Ends a trial without a win of the kernel's.
    fn leave(&mut self) -> Next {
        (self.leads, self.trials) = (0, 0);
        self.stage = Stage::Hold { until_ns: 0 };
        self.later_ns = (self.later_ns * 4).clamp(TRIAL_AFTER_NS, TRIAL_AFTER_MAX_NS);
        self.trial_after_ns = self.later_ns;
        Next::Leave
    }

    /// Returns the rates of the last trial.
    pub(crate) fn figures(&self) -> TrialRates {
        TrialRates { in_kernel: self.kernel.unwrap_or_default().bytes, away: self.away.bytes }
    }

    /// Makes the watcher for the time away that begins now.
    pub(crate) fn away(&self) -> TrialProgress {
        TrialProgress { trial_after_ns: self.trial_after_ns, ..TrialProgress::default() }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
