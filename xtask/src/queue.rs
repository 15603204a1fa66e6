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
    /// Unfinished tests by the program's name; more than any number until it has told.
    running: BTreeMap<String, usize>,
}

impl Programs {
    fn unfinished(&self) -> usize {
        self.running.values().fold(0, |sum, tests| sum.saturating_add(*tests))
    }
}

impl Queue {
    pub(crate) fn new(waiting: VecDeque<TestProgram>, beside: usize) -> Self {
        let programs = Mutex::new(Programs { waiting, running: BTreeMap::new() });
        Self { programs, changed: Condvar::new(), beside }
    }

    fn lock(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most `beside` tests of the running programs are unfinished, and takes the
    /// next program, which counts as running from then on. Returns `None` when none waits.
    pub(crate) fn take(&self) -> Option<TestProgram> {
        let is_busy =
            |all: &mut Programs| !all.waiting.is_empty() && all.unfinished() > self.beside;
        let all = self.changed.wait_while(self.lock(), is_busy);
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        let program = all.waiting.pop_front()?;
        all.running.insert(program.name.clone(), usize::MAX);
        Some(program)
    }

    /// Notes how many tests of a running program are unfinished.
    pub(crate) fn note(&self, name: &str, unfinished: usize) {
        self.lock().running.insert(name.into(), unfinished);
        self.changed.notify_all();
    }

    /// Notes that a program has ended.
    pub(crate) fn ended(&self, name: &str) {
        self.lock().running.remove(name);
        self.changed.notify_all();
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
        assert_eq!(queue.take().expect("the first").name, "x/one");
        let (sender, taken) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(program) = queue.take() {
                    sender.send(program.name).expect("the test waits for it");
                }
                drop(sender);
            });
            queue.note("x/one", 2);
            assert!(taken.recv_timeout(Duration::from_millis(50)).is_err());
            queue.note("x/one", 1);
            assert_eq!(taken.recv().expect("beside one test"), "x/two");
            // It has not told yet how many tests it has.
            queue.ended("x/one");
            assert!(taken.recv_timeout(Duration::from_millis(50)).is_err());
            queue.ended("x/two");
            assert_eq!(taken.recv().expect("the last"), "x/three");
            assert!(taken.recv().is_err());
        });
    }

    #[test]
    fn where_any_number_may_run_nobody_waits() {
        let programs = ["x/one", "x/two"].map(|name| TestProgram::named(name, "true"));
        let queue = Queue::new(programs.into(), usize::MAX);
        assert!(queue.take().is_some() && queue.take().is_some() && queue.take().is_none());
    }
}
