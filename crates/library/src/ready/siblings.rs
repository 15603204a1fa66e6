//! Whether the other threads of this process need the processor on which a waiter of a set spins.
//!
//! Not here: the spinning (`set_wait`), and its length (`sojourn_shm::wait`).
//!
//! # Theory of operation
//! A program may wait in one thread and work in others: the waiter hands each event on, and as
//! bytes come all the time its spins mostly succeed, but they take the processor from the threads
//! that do the work. So for a few spins the processor time of the whole process is compared with
//! the time of the spins. What exceeds it is the other threads'. If they and the peer's thread
//! leave no processor for the spinner, the waiters of the set sleep at once for a while.

/// Spins that are measured, one after the other, for an answer.
const MEASURED: u32 = 8;
/// Waits to which an answer applies.
const HOLDS: u32 = 256;
/// The part of a processor that the other threads may use beside a spinner: one of so many.
const PART: u64 = 4;

/// What is known of the other threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Siblings {
    /// Waits left to which the answer applies.
    holds: u32,
    are_busy: bool,
    measured: u32,
    spun_ns: u64,
    others_ns: u64,
}

impl Siblings {
    /// Begins a wait; returns true if the waiter must not spin.
    pub(crate) fn begin(&mut self) -> bool {
        self.holds = self.holds.saturating_sub(1);
        self.are_busy && self.holds > 0
    }

    /// Returns true if the spin that begins is measured.
    pub(crate) fn measures(&self) -> bool {
        self.holds == 0
    }

    /// Adds a spin of `spun_ns`, in which the process took `cpu_ns` of the time of `processors`.
    pub(crate) fn spun(&mut self, spun_ns: u64, cpu_ns: u64, processors: usize) {
        self.measured += 1;
        self.spun_ns = self.spun_ns.saturating_add(spun_ns);
        self.others_ns = self.others_ns.saturating_add(cpu_ns.saturating_sub(spun_ns));
        if self.measured < MEASURED {
            return;
        }
        // The spinner has one processor, and the peer's thread another one.
        let spare = processors.saturating_sub(2) as u64;
        let limit_ns = self.spun_ns.saturating_mul(spare) + self.spun_ns / PART;
        let are_busy = self.others_ns > limit_ns;
        *self = Self { are_busy, holds: HOLDS, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes waits until they have been measured; returns how many of the next did not spin.
    fn skipped(siblings: &mut Siblings, cpu_ns: u64, processors: usize) -> u32 {
        for _ in 0..MEASURED {
            assert!(!siblings.begin() && siblings.measures());
            siblings.spun(10_000, cpu_ns, processors);
        }
        assert!(!siblings.measures());
        (1..HOLDS).map(|_| u32::from(siblings.begin())).sum()
    }

    #[test]
    fn a_waiter_whose_siblings_work_does_not_spin_for_a_while() {
        let mut siblings = Siblings::default();
        assert_eq!(skipped(&mut siblings, 10_000, 2), 0, "nobody else runs");
        siblings = Siblings::default();
        assert_eq!(skipped(&mut siblings, 12_000, 2), 0, "hardly anybody");
        siblings = Siblings::default();
        assert_eq!(skipped(&mut siblings, 17_000, 2), HOLDS - 1);
        assert!(!siblings.begin() && siblings.measures(), "then it is looked at again");
        siblings = Siblings::default();
        assert_eq!(skipped(&mut siblings, 20_000, 4), 0, "there are processors for all");
        siblings = Siblings::default();
        assert_eq!(skipped(&mut siblings, 35_000, 4), HOLDS - 1);
    }

    #[test]
    fn a_spinner_that_did_not_run_all_the_time_proves_nothing() {
        assert_eq!(skipped(&mut Siblings::default(), 3_000, 2), 0);
        assert_eq!(skipped(&mut Siblings::default(), 0, 1), 0);
    }
}
