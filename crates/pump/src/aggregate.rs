//! The decision whether a process's sessions with other hosts, taken together, make better progress
//! in the kernel, by measurement and without flapping.
//!
//! The code is pure: times and byte counts come in as arguments. Not here: bulk transfers, of which
//! each is judged by itself (`bulk`), and the moves that follow (`pump`, and the library's
//! `policy::aggregate`).
//!
//! # Theory of operation
//! Sessions that exchange questions and answers share the threads that serve them: each makes the
//! progress that its thread makes, whichever home it has. So their sum is measured, and they move
//! together. After a while away with few pauses all go home for a **trial** of about a second, so
//! that both rates are of the same minute. If the kernel was clearly faster, the sessions stay
//! there, for a time that is four times as long after each such trial. If not, they leave, and the
//! next trial comes four times as late. So trials cost less and less, and no answer can flap.
//!
//! A rate is the **median** of the last slices of a tenth of a second each. In the kernel it begins
//! anew with each session that comes home late, whose move it would contain.

use crate::bulk::{Verdict, rate};
use sojourn_proto::time::{Duration, Instant};

/// The length of a slice, and the length beyond which a slice had a pause in it.
const SLICE: Duration = Duration::from_millis(100);
const SLICE_MAX: Duration = Duration::from_millis(300);
/// Slices that make a rate.
const SLICES: usize = 8;
/// Time away before the first trial, and the longest time before a later one.
const TRIAL_AFTER: Duration = Duration::from_secs(2);
const TRIAL_AFTER_MAX: Duration = Duration::from_secs(3600);
/// The longest time that a trial may last once the last session is home: without a rate by then it
/// has shown nothing.
const TRIAL_MAX: Duration = Duration::from_secs(3);
/// Time in the kernel after the first trial that the kernel has won, and the longest such time.
const HOLD_FIRST: Duration = Duration::from_secs(8);
const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Sessions that go home in a time, and that time. While the carrier puts a session back, what it
/// exchanges stands still; if all of them went at once, each would wait for all others.
const RETURNS_AT_ONCE: u32 = 4;
const RETURNS_EVERY: Duration = Duration::from_millis(8);
/// The rate in the kernel, in hundredths of the rate away, from which the kernel has won.
const WIN: u64 = 108;

/// A measurement that sends a session home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// Its own: it is a bulk transfer.
    Own(Verdict),
    /// That of all sessions of the process together.
    Aggregate,
}

/// What a session in the kernel may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It may be offered.
    Leave,
    /// It stays, because it is being measured.
    Stay,
    /// It stays, because the kernel was faster.
    Slower,
}

/// Measures a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// Where the current slice began.
    since: Option<Instant>,
    bytes: u64,
    rates: [u64; SLICES],
    count: usize,
}

impl Meter {
    /// Counts `bytes` that have gone through since the last call. A pause discards all slices.
    fn count(&mut self, now: Instant, bytes: u64) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.bytes = self.bytes.saturating_add(bytes);
        let time = now.since(since);
        if time < SLICE {
            return;
        }
        if time > SLICE_MAX {
            *self = Self { since: Some(now), ..Self::default() };
            return;
        }
        self.rates[self.count % SLICES] = rate(self.bytes, time);
        self.count = self.count.wrapping_add(1);
        (self.since, self.bytes) = (Some(now), 0);
    }

    /// Returns the rate (bytes a second), once there are enough slices.
    fn median(&self) -> Option<u64> {
        let mut rates = self.rates;
        rates.sort_unstable();
        (self.count >= SLICES).then(|| rates[SLICES / 2 - 1].midpoint(rates[SLICES / 2]))
    }
}

/// Where the sessions are to be.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// They may be away. `since`: the time of the first bytes.
    Away { since: Option<Instant> },
    /// They are measured in the kernel, until then at most. `away`: the rate that they had.
    Trial { until: Instant, away: u64 },
    /// They stay in the kernel until then.
    Kernel { until: Instant },
}

/// Spreads the returns of many sessions over time.
#[derive(Clone, Copy, Debug, Default)]
struct Returns {
    since: Option<Instant>,
    count: u32,
}

impl Returns {
    /// Returns true if one more session may go home now.
    fn admit(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.since(since) >= RETURNS_EVERY) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= RETURNS_AT_ONCE
    }
}

/// Measures the sessions of a process together.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate {
    home: Home,
    meter: Meter,
    returns: Returns,
    trial_after: Duration,
    hold: Duration,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self {
            home: Home::Away { since: None },
            meter: Meter::default(),
            returns: Returns::default(),
            trial_after: TRIAL_AFTER,
            hold: HOLD_FIRST,
        }
    }
}

impl Aggregate {
    /// Returns true if sessions are to be in the kernel for now.
    pub fn keeps_home(&self) -> bool {
        !matches!(self.home, Home::Away { .. })
    }

    /// Counts `bytes` that a session has exchanged while it was away. Returns true if it is to go
    /// home.
    pub fn count_away(&mut self, now: Instant, bytes: u64) -> bool {
        let Home::Away { since } = &mut self.home else {
            // The session comes home late, and the slices so far contain its move.
            self.meter = Meter::default();
            if let Home::Trial { until, .. } = &mut self.home {
                *until = now + TRIAL_MAX;
            }
            return self.returns.admit(now);
        };
        let since = *since.get_or_insert(now);
        self.meter.count(now, bytes);
        let is_due = now.since(since) >= self.trial_after;
        match self.meter.median().filter(|away| is_due && *away > 0) {
            Some(away) => {
                self.home = Home::Trial { until: now + TRIAL_MAX, away };
                self.meter = Meter::default();
                self.returns.admit(now)
            }
            None => false,
        }
    }

    /// Counts `bytes` that a session has exchanged in the kernel since it was counted last; returns
    /// what it may do.
    pub fn count_kernel(&mut self, now: Instant, bytes: u64) -> Next {
        match self.home {
            Home::Away { .. } => Next::Leave,
            Home::Kernel { until } if now < until => Next::Slower,
            // The kernel has won the last trial, so the next one comes as soon as the first did.
            Home::Kernel { .. } => self.leave(TRIAL_AFTER),
            Home::Trial { until, away } => {
                self.meter.count(now, bytes);
                match self.meter.median() {
                    Some(kernel) if kernel / WIN >= away / 100 => {
                        self.home = Home::Kernel { until: now + self.hold };
                        self.hold = self.hold.times(4).min(HOLD_MAX);
                        Next::Slower
                    }
                    None if now < until => Next::Stay,
                    // The kernel was not clearly faster, or has shown nothing in time.
                    _ => self.leave(self.trial_after.times(4).min(TRIAL_AFTER_MAX)),
                }
            }
        }
    }

    fn leave(&mut self, trial_after: Duration) -> Next {
        self.home = Home::Away { since: None };
        self.meter = Meter::default();
        self.trial_after = trial_after;
        Next::Leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates in the kernel and away (bytes a second) of a number of sessions together, each of
    /// which is counted once in so many steps of 20 ms.
    struct World {
        kernel: u64,
        away: u64,
        sessions: u64,
        steps: u64,
    }

    /// The share of time in the kernel, and how often the sessions came home.
    struct Played {
        in_kernel: f64,
        returns: u32,
    }

    /// Plays for ten minutes.
    fn play(world: &World) -> Played {
        let (seconds, mut aggregate) = (600, Aggregate::default());
        let mut away = vec![true; usize::try_from(world.sessions).unwrap()];
        let (mut in_kernel, mut returns, mut noise) = (0u64, 0, 1u64);
        for step in 0..seconds * 50 {
            let now = Instant::from_micros(1_000_000 + step * 20_000);
            in_kernel += away.iter().filter(|is_away| !**is_away).count() as u64;
            for is_away in
                away.iter_mut().skip((step % world.steps) as usize).step_by(world.steps as usize)
            {
                // Up to a tenth less or more.
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let rate = if *is_away { world.away } else { world.kernel };
                let bytes = rate * world.steps / 50 / world.sessions;
                let bytes = bytes * (90 + (noise >> 33) % 21) / 100;
                if *is_away {
                    if aggregate.count_away(now, bytes) {
                        *is_away = false;
                        returns += 1;
                    }
                } else if aggregate.count_kernel(now, bytes) == Next::Leave {
                    *is_away = true;
                }
            }
        }
        let in_kernel = in_kernel as f64 / (seconds * 50 * world.sessions) as f64;
        Played { in_kernel, returns: returns / u32::try_from(world.sessions).unwrap() }
    }

    #[test]
    fn sessions_that_are_slower_away_are_nearly_always_in_the_kernel() {
        for sessions in [1, 50, 300] {
            let world = World { kernel: 5_000_000, away: 4_000_000, sessions, steps: 3 };
            let played = play(&world);
            assert!(played.in_kernel > 0.97, "{sessions}: {}", played.in_kernel);
            assert!(played.returns <= 7, "{sessions}: {}", played.returns);
        }
    }

    #[test]
    fn sessions_that_are_as_fast_away_are_nearly_never_in_the_kernel() {
        for kernel in [2_000_000, 4_000_000, 4_100_000] {
            let world = World { kernel, away: 4_000_000, sessions: 50, steps: 3 };
            let played = play(&world);
            assert!(played.in_kernel < 0.01, "{kernel}: {}", played.in_kernel);
            assert!(played.returns <= 7, "{kernel}: {}", played.returns);
        }
    }

    #[test]
    fn sessions_with_pauses_are_never_measured() {
        let world = World { kernel: 5_000_000, away: 1_000_000, sessions: 1, steps: 20 };
        assert_eq!(play(&world).returns, 0);
    }

    #[test]
    fn a_trial_that_shows_nothing_ends() {
        let mut aggregate = Aggregate::default();
        let at = |ms: u64| Instant::from_micros(1_000_000 + ms * 1000);
        let due = (0..).map(|nth| nth * 50).find(|ms| aggregate.count_away(at(*ms), 100)).unwrap();
        assert!((2_000..2_200).contains(&due), "{due}");
        assert!(aggregate.keeps_home());
        // Nothing is exchanged for a while, so there is no rate.
        assert_eq!(aggregate.count_kernel(at(due + 10), 100), Next::Stay);
        assert_eq!(aggregate.count_kernel(at(due + 3_100), 100), Next::Leave);
        assert!(!aggregate.keeps_home());
        // A second trial comes later.
        let start = due + 3_200;
        let again = (0..).map(|nth| start + nth * 50).find(|ms| aggregate.count_away(at(*ms), 100));
        assert!(again.unwrap() - start >= 8_000);
    }

    #[test]
    fn a_few_sessions_go_home_at_once_and_all_do_in_the_end() {
        let mut aggregate = Aggregate::default();
        let at = |ms: u64| Instant::from_micros(1_000_000 + ms * 1000);
        let due = (0..).map(|nth| nth * 50).find(|ms| aggregate.count_away(at(*ms), 100)).unwrap();
        let mut away = 999;
        for ms in due..due + 4_000 {
            let going = (0..away).filter(|_| aggregate.count_away(at(ms), 100)).count();
            assert!(going <= 4, "{going} at {ms}");
            away -= going;
        }
        assert_eq!(away, 0);
        // The trial begins with the last one.
        for ms in (due + 4_000..due + 4_700).step_by(50) {
            assert_eq!(aggregate.count_kernel(at(ms), 100), Next::Stay, "{ms}");
        }
    }

    #[test]
    fn a_session_that_comes_home_late_begins_the_measuring_anew() {
        let mut aggregate = Aggregate::default();
        let at = |ms: u64| Instant::from_micros(1_000_000 + ms * 1000);
        let due = (0..).map(|nth| nth * 50).find(|ms| aggregate.count_away(at(*ms), 100)).unwrap();
        let mut next = |ms, is_late| {
            if is_late {
                assert!(aggregate.count_away(at(ms), 100), "it goes home, too");
            }
            aggregate.count_kernel(at(ms), 200)
        };
        for ms in (due + 50..due + 1_500).step_by(50) {
            assert_eq!(next(ms, (ms - due) % 500 == 0), Next::Stay, "{ms}");
        }
        let rest: Vec<Next> =
            (due + 1_500..due + 2_900).step_by(50).map(|ms| next(ms, false)).collect();
        assert_eq!(rest.last(), Some(&Next::Slower));
    }
}
