//! The progress of the server's threads, which its watchdog looks at.
//!
//! Each thread on which others depend has a [`Beat`], and notes when it begins with a piece of work
//! and when it is done. Each piece takes microseconds, or a moment. A thread that takes seconds is
//! lost; from then on the service manager hears nothing more, so that it starts the server anew
//! (sd_notify(3), `WatchdogSec=`). Of a server of several processes the parent hears the beats of
//! all others (`apart`). Not here: the work of the threads, the messages (`notify`).

use crate::log::{self, Level};
use crate::notify::{notify, watchdog_interval};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The time after which a thread that has not finished its piece of work counts as lost (ms).
const LATE_MS: u64 = 10_000;

/// A thread that is watched.
#[derive(Debug)]
struct Watched {
    name: &'static str,
    /// [`Beat::since`].
    since: Arc<AtomicU64>,
}

/// The threads that the watchdog looks at.
#[derive(Clone, Debug)]
pub(crate) struct Beats {
    begun: Instant,
    all: Arc<Mutex<Vec<Watched>>>,
}

/// The beat of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    begun: Instant,
    /// The time at which the thread began with its work (ms, and one more); 0 while it waits for
    /// work.
    since: Arc<AtomicU64>,
}

/// A guard: while it is there its thread is at work.
#[derive(Debug)]
pub(crate) struct Busy<'b>(&'b Beat);

impl Beats {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), all: Arc::default() }
    }

    pub(crate) fn beat(&self, name: &'static str) -> Beat {
        let since = Arc::new(AtomicU64::new(0));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Watched { name, since: Arc::clone(&since) });
        Beat { begun: self.begun, since }
    }

    /// Returns the name of a thread that has been at one piece of work for too long.
    fn late(&self, now_ms: u64) -> Option<&'static str> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = |since: &AtomicU64| {
            let since = since.load(Ordering::Relaxed);
            since != 0 && now_ms.saturating_sub(since - 1) > LATE_MS
        };
        all.iter().find(|thread| is_late(&thread.since)).map(|thread| thread.name)
    }

    /// Returns the name of a thread that makes no progress now, if there is one.
    pub(crate) fn late_now(&self) -> Option<&'static str> {
        self.late(self.begun.elapsed().as_millis() as u64)
    }

    /// Tells the service manager that the server is ready, and from then on, at intervals, that it
    /// is well, as long as no thread is lost.
    pub(crate) fn watch(&self) {
        notify("READY=1");
        let Some(every) = watchdog_interval() else { return };
        let beats = self.clone();
        let watch = move || {
            let mut was_late = None;
            loop {
                let late = beats.late_now();
                match late {
                    None => notify("WATCHDOG=1"),
                    // Reported once, and not at every look.
                    Some(name) if was_late != late => {
                        log::say(Level::Error, format_args!("no progress: {name}"));
                    }
                    Some(_) => {}
                }
                was_late = late;
                std::thread::sleep(every);
            }
        };
        let _ = std::thread::Builder::new().name("sojourn-watchdog".into()).spawn(watch);
    }
}

impl Beat {
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.set(true);
        Busy(self)
    }

    /// Notes that the thread is at work from now on, or that it waits for work.
    pub(crate) fn set(&self, is_busy: bool) {
        let now_ms = self.begun.elapsed().as_millis() as u64;
        self.since.store(if is_busy { now_ms + 1 } else { 0 }, Ordering::Relaxed);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_come_back_is_late() {
        let beats = Beats::new();
        let [one, other] = ["one", "other"].map(|name| beats.beat(name));
        assert_eq!(beats.late(LATE_MS * 2), None, "both wait");
        drop(one.busy());
        let busy = other.busy();
        assert_eq!(beats.late(1), None);
        assert_eq!(beats.late(LATE_MS * 2), Some("other"));
        drop(busy);
        assert_eq!(beats.late(LATE_MS * 2), None);
    }
}
