//! The queue of test programs: the next one begins when those before it leave processors idle.
//!
//! A program with few tests ends with one test that others have no use for waiting on; so has every
//! program a last test. Each program tells how many of its tests have not ended (`test_programs`).
//! Not here: what is run in which order (`again`).

use crate::test_programs::TestProgram;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Programs that wait, and those that run.
pub(crate) struct Queue {
    programs: Mutex<Programs>,
    /// Told of every change of what runs.
    changed: Condvar,
    /// The most unfinished tests beside which a program begins.
    beside: usize,
}

struct Programs {
    waiting: VecDeque<TestProgram>,
    /// Programs taken so far.
    taken: u64,
    /// Unfinished tests of each running program, by the number of programs taken before it; more
    /// than any number until it has told.
    running: BTreeMap<u64, usize>,
}

impl Programs {
    fn unfinished(&self) -> usize {
        self.running.values().fold(0, |sum, tests| sum.saturating_add(*tests))
    }
}

impl Queue {
    pub(crate) fn new(waiting: VecDeque<TestProgram>, beside: usize) -> Self {
        let programs = Mutex::new(Programs { waiting, taken: 0, running: BTreeMap::new() });
        Self { programs, changed: Condvar::new(), beside }
    }

    fn lock(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most `beside` tests of the running programs are unfinished, and takes the
    /// next program. Returns `None` when none waits.
    pub(crate) fn take(&self) -> Option<Running<'_>> {
        let is_busy =
            |all: &mut Programs| !all.waiting.is_empty() && all.unfinished() > self.beside;
        let all = self.changed.wait_while(self.lock(), is_busy);
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        let program = all.waiting.pop_front()?;
        let number = all.taken;
        all.taken += 1;
        all.running.insert(number, usize::MAX);
        Some(Running { program, tests: Unfinished { queue: self, number } })
    }
}

/// A program that was taken.
pub(crate) struct Running<'q> {
    pub(crate) program: TestProgram,
    pub(crate) tests: Unfinished<'q>,
}

/// The tests of a running program. It counts as running until this is dropped, also by a panic.
pub(crate) struct Unfinished<'q> {
    queue: &'q Queue,
    number: u64,
}

impl Unfinished<'_> {
    /// Notes how many there are.
    pub(crate) fn note(&self, unfinished: usize) {
        self.queue.lock().running.insert(self.number, unfinished);
        self.queue.changed.notify_all();
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.queue.lock().running.remove(&self.number);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_program_begins_beside_the_last_test_of_another() {
        let programs = ["x/one", "x/two", "x/three"].map(|name| TestProgram::named(name, "true"));
        let queue = Queue::new(programs.into(), 1);
        let one = queue.take().expect("the first");
        assert_eq!(one.program.name, "x/one");
        let (sender, taken) = channel();
        let none =
            |reason| assert!(taken.recv_timeout(Duration::from_millis(50)).is_err(), "{reason}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(running) = queue.take() {
                    sender.send(running).expect("the test waits for it");
                }
                drop(sender);
            });
            one.tests.note(2);
            none("two tests are left");
            one.tests.note(1);
            let two = taken.recv().expect("beside one test");
            assert_eq!(two.program.name, "x/two");
            drop(one);
            none("the second has not told how many tests it has");
            drop(two);
            assert_eq!(taken.recv().expect("the last").program.name, "x/three");
            assert!(taken.recv().is_err());
        });
    }

    #[test]
    fn a_worker_that_panics_keeps_nobody_waiting() {
        let programs = ["x/one", "x/two"].map(|name| TestProgram::named(name, "true"));
        let queue = Queue::new(programs.into(), 1);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| queue.take().map(|_running| panic!("on purpose")));
            assert!(worker.join().is_err());
        });
        assert_eq!(queue.take().expect("nothing runs").program.name, "x/two");
    }

    #[test]
    fn where_any_number_may_run_nobody_waits() {
        let programs = ["x/one", "x/two"].map(|name| TestProgram::named(name, "true"));
        let queue = Queue::new(programs.into(), usize::MAX);
        assert!(queue.take().is_some() && queue.take().is_some() && queue.take().is_none());
    }
}
