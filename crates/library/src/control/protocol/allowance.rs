//! The looks that an inbox has left, for peers that ask for attention. Pure.
//!
//! A peer can ask without end and for nothing, and each look takes two threads of this process. So
//! an inbox has an allowance of looks, of which each session that joins brings some and each
//! stretch of time one more. Without any left the inbox is not listened to for a while. Not here:
//! the looks (`attention`).

use core::time::Duration;
use std::time::Instant;

/// Looks of an inbox, and of each of its sessions: to move and go home takes about ten.
const LOOKS: u32 = 64;
const LOOKS_OF_SESSION: u32 = 16;
/// The time in which one more look comes.
const LOOK_COMES: Duration = Duration::from_millis(16);
/// How long an inbox without looks is not listened to.
const PAUSE: Duration = Duration::from_millis(100);

/// The looks that an inbox has left.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    counted: Instant,
    /// The end of the time in which the inbox is not listened to.
    pub(super) unheard_until: Option<Instant>,
}

impl Allowance {
    pub(super) fn new(at: Instant) -> Self {
        Self { left: LOOKS, counted: at, unheard_until: None }
    }

    /// Adds the looks of a session that has joined.
    pub(super) fn joined(&mut self) {
        self.left = self.left.saturating_add(LOOKS_OF_SESSION);
    }

    /// Takes a look off, for an inbox with so many sessions. Returns false if the inbox is not to
    /// be listened to from now on.
    pub(super) fn take(&mut self, at: Instant, sessions: usize) -> bool {
        let came = at.saturating_duration_since(self.counted).as_millis() / LOOK_COMES.as_millis();
        if came > 0 {
            self.counted = at;
        }
        let of_sessions =
            LOOKS_OF_SESSION.saturating_mul(u32::try_from(sessions).unwrap_or(u32::MAX));
        let came = u32::try_from(came).unwrap_or(u32::MAX);
        let left = self.left.saturating_add(came).min(LOOKS.saturating_add(of_sessions));
        self.left = left.saturating_sub(1);
        if self.left == 0 {
            self.unheard_until = Some(at + PAUSE);
        }
        self.left > 0
    }

    /// Returns true, once, if the inbox is to be listened to again.
    pub(super) fn is_over(&mut self, at: Instant) -> bool {
        self.unheard_until.take_if(|until| *until <= at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(20);

    /// Has so many looks, one each `step`, and listens again as soon as it may. Returns their
    /// number in a second, and whether there was a pause.
    fn looks(
        allowance: &mut Allowance,
        from: Instant,
        step: Duration,
        sessions: usize,
    ) -> (u32, bool) {
        let (mut count, mut paused, mut is_heard) = (0, false, true);
        let mut at = from;
        while at < from + Duration::from_secs(1) {
            at += step;
            is_heard |= allowance.is_over(at);
            if is_heard {
                count += 1;
                is_heard = allowance.take(at, sessions);
                paused |= !is_heard;
            }
        }
        (count, paused)
    }

    #[test]
    fn who_asks_without_end_is_looked_after_now_and_then() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        allowance.joined();
        let (first, _) = looks(&mut allowance, begin, STEP, 1);
        assert!(first <= LOOKS + LOOKS_OF_SESSION + 64, "{first}");
        let (next, paused) = looks(&mut allowance, begin + Duration::from_secs(1), STEP, 1);
        assert!(paused && (10..=64).contains(&next), "{next}");
    }

    #[test]
    fn who_asks_for_what_there_is_waits_for_nothing() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        // A thousand sessions move and go home, one after the other in a second.
        for session in 0..1000u32 {
            allowance.joined();
            let at = begin + Duration::from_millis(session.into());
            assert!((0..10).all(|_| allowance.take(at, 1)), "{session}");
        }
        // Or all at once.
        (0..1000).for_each(|_| allowance.joined());
        let at = begin + Duration::from_secs(2);
        assert!((0..10_000).all(|_| allowance.take(at, 1000)));
        // What they have not needed is gone with them.
        assert!((0..LOOKS).any(|_| !allowance.take(at, 0)));
        // Fifty a second are always there.
        let later = begin + Duration::from_secs(10);
        let (count, paused) = looks(&mut allowance, later, Duration::from_millis(20), 0);
        assert!(!paused && count >= 50);
    }
}
