//! The ways in which some real programs use their connections, as traces of system calls show them,
//! in as little code as shows them: threads, wake-ups between threads, and sizes of calls.
//!
//! Not here: what the programs compute, and their formats. The clients of `puma` are those of
//! `many`.

pub(crate) mod grpc;
pub(crate) mod puma;
pub(crate) mod zeromq;

use serde_json::{Value, json};
use sojourn_lab::measuring::{Histogram, Options};
use std::collections::VecDeque;
use std::io::Result;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Measures calls one after the other; after the warm-up each is timed alone.
fn measure(options: &Options, mut call: impl FnMut() -> Result<()>) -> Result<Value> {
    let end = Instant::now() + options.warm;
    let mut calls = 0;
    while calls < options.warm_calls || Instant::now() < end {
        call()?;
        calls += 1;
    }
    options.begin()?;
    let (mut histogram, mut operations) = (Histogram::new(), 0u64);
    let start = Instant::now();
    let mut last = start;
    while operations == 0 || last.duration_since(start) < options.time {
        call()?;
        let now = Instant::now();
        histogram.note(now.duration_since(last).as_nanos() as u64, 1);
        (last, operations) = (now, operations + 1);
    }
    let ns = last.duration_since(start).as_nanos() as u64;
    Ok(json!({ "operations": operations, "ns": ns, "histogram": histogram.pairs() }))
}

/// Locks; what a thread that panicked has left behind is good enough for a benchmark.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue from which threads take, in their turn.
struct Queue<T> {
    waiting: Mutex<VecDeque<T>>,
    is_filled: Condvar,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { waiting: Mutex::new(VecDeque::new()), is_filled: Condvar::new() }
    }

    fn push(&self, item: T) {
        lock(&self.waiting).push_back(item);
        self.is_filled.notify_one();
    }

    fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    fn try_take(&self) -> Option<T> {
        lock(&self.waiting).pop_front()
    }

    /// Waits for an item.
    fn take(&self) -> T {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(item) = waiting.pop_front() {
                return item;
            }
            waiting = self.is_filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
