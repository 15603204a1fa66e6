//! How long a wait has lasted in which nobody has done anything.
//!
//! A session whose wait ends in vain is lost, so the clock alone does not end such a wait: a
//! program that the machine hardly lets run would give up what the other side has done meanwhile,
//! or does as slowly. It ends when the waiter has looked often enough and nothing was done. A look
//! counts for about as long as it was meant to take, however late the waiter ran again. Pure: the
//! time comes in. Not here: the waits (`remote::carried`, `io::datagrams`, `moves::flush`), and
//! waits that may end in vain (`patience`).

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// How much of one look counts at most.
const LOOK_MOST: Duration = Duration::from_millis(40);

/// The time without anything done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stillness(Duration);

impl Stillness {
    /// Returns the time without anything done.
    pub(crate) fn spent(self) -> Duration {
        self.0
    }

    /// Counts a look that found nothing. `took` goes from its begin to the waiter's next turn.
    pub(crate) fn looked(&mut self, took: Duration) {
        self.0 = self.0.saturating_add(took.min(LOOK_MOST));
    }

    /// Counts a call to the other side, which has `limit` for its answer: whole if it was held up
    /// for so long, and else as a look, because the waiter itself may have run late.
    pub(crate) fn called(&mut self, took: Duration, limit: Duration) {
        let counts = if took < limit { took.min(LOOK_MOST) } else { took };
        self.0 = self.0.saturating_add(counts);
    }

    /// Notes that something was done.
    pub(crate) fn moved(&mut self) {
        *self = Self::default();
    }
}

/// What one return that came to its end takes off the stillness of all.
const CREDIT: Duration = Duration::from_secs(1);

/// The stillness of all returns from other hosts of this process: where nobody has answered one of
/// them, the next ones do not wait as long again. So all together wait no longer than one, but for
/// a second for each that somebody did answer.
#[derive(Debug)]
pub(crate) struct ReturnStillness(AtomicU64);

impl ReturnStillness {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the stillness in which a return begins.
    pub(crate) fn begin(&self) -> Stillness {
        Stillness(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }

    /// Notes the end of a return. The store may lose another thread's: threads that wait at the
    /// same time wait for the same.
    pub(crate) fn end(&self, still: Stillness, is_answered: bool) {
        let credit = if is_answered { CREDIT } else { Duration::ZERO };
        let left = still.spent().saturating_sub(credit);
        self.0.store(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Notes that there is another server, for which returns may wait again.
    pub(crate) fn meet_server(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(20);

    #[test]
    fn a_waiter_that_runs_late_looks_as_often_as_another() {
        let (mut prompt, mut late) = (Stillness::default(), Stillness::default());
        (0..100).for_each(|_| prompt.looked(SLICE));
        assert_eq!(prompt.spent(), Duration::from_secs(2));
        // It got a turn every three seconds.
        (0..40).for_each(|_| late.looked(Duration::from_secs(3)));
        assert!(late.spent() < prompt.spent());
        (0..10).for_each(|_| late.looked(Duration::from_secs(3)));
        assert_eq!(late.spent(), prompt.spent(), "but there is an end");
    }

    #[test]
    fn what_the_other_side_holds_up_counts_whole() {
        let (mut still, limit) = (Stillness::default(), Duration::from_secs(2));
        still.called(limit, limit);
        assert_eq!(still.spent(), limit);
        still.called(limit / 2, limit);
        assert_eq!(still.spent(), limit + LOOK_MOST);
        still.moved();
        assert_eq!(still.spent(), Duration::ZERO);
    }

    #[test]
    fn many_returns_that_nobody_answers_wait_no_longer_than_one() {
        let (returns, limit) = (ReturnStillness::new(), Duration::from_secs(5));
        let wait = |answered_after: Option<usize>| {
            let (mut still, mut looks) = (returns.begin(), 0);
            let is_answered = loop {
                still.looked(SLICE);
                looks += 1;
                if answered_after.is_some_and(|after| looks >= after) || still.spent() >= limit {
                    break answered_after.is_some();
                }
            };
            returns.end(still, is_answered);
            looks
        };
        assert_eq!([(); 4].map(|()| wait(None)), [250, 1, 1, 1]);
        returns.meet_server();
        assert_eq!(wait(None), 250);
        // A server that answers, but not soon, holds up each return for a second at most.
        assert_eq!([(); 3].map(|()| wait(Some(1000))), [1, 49, 50]);
        // Those that are answered soon take the wait for the first of them off again.
        assert_eq!([(); 6].map(|()| wait(Some(1))), [1; 6]);
        assert_eq!(wait(None), 250);
    }
}
