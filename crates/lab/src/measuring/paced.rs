//! Question and answer at a pace: a given number of calls per second, each timed alone. The
//! processor time of the pauses between the calls does not count.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use super::client::Client;
use super::{Histogram, Options};
use serde_json::{Value, json};
use std::io::Result;
use std::time::{Duration, Instant};

/// Shortest pause that is slept. A shorter pause polls the clock, as a sleep would take longer.
const SLEEP_MIN: Duration = Duration::from_micros(200);
/// Number of calls at the pace before the measurement, in which the adaptive parts (the library's
/// spinning, the kernel's timers) settle; and the longest time for them.
const SETTLE_CALLS: u64 = 300;
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Smallest number of calls of a measurement, however long they take: fewer give no median.
const CALLS_MIN: u64 = 8;

/// Returns the processor time of this thread so far.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The times at which calls are due.
struct Pace {
    next: Instant,
    interval: Duration,
    /// Processor time of the pauses so far.
    paused_ns: u64,
}

impl Pace {
    fn pause(&mut self) {
        let start = thread_ns();
        // A late call does not make the next ones earlier: the pace is a limit.
        self.next = (self.next + self.interval).max(Instant::now());
        let left = self.next.saturating_duration_since(Instant::now());
        if left > SLEEP_MIN {
            std::thread::sleep(left - SLEEP_MIN / 2);
        }
        while Instant::now() < self.next {
            std::hint::spin_loop();
        }
        self.paused_ns += thread_ns() - start;
    }
}

pub(super) fn ping(client: &mut Client, options: &Options, calls_a_second: u64) -> Result<Value> {
    let interval = Duration::from_secs(1) / u32::try_from(calls_a_second).unwrap_or(u32::MAX);
    let mut pace = Pace { next: Instant::now(), interval, paused_ns: 0 };
    let settled = Instant::now() + SETTLE_TIME;
    for _ in 0..SETTLE_CALLS {
        pace.pause();
        client.call()?;
        if Instant::now() > settled {
            break;
        }
    }
    let mut histogram = Histogram::new();
    options.begin()?;
    let cpu = client.cpu_ns()?;
    pace.paused_ns = 0;
    let start = Instant::now();
    let mut ops = 0;
    while start.elapsed() < options.time || ops < CALLS_MIN {
        pace.pause();
        let asked = Instant::now();
        client.call()?;
        histogram.note(asked.elapsed().as_nanos() as u64, 1);
        ops += 1;
    }
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = (client.cpu_ns()? - cpu).saturating_sub(pace.paused_ns);
    Ok(json!({ "operations": ops, "ns": ns, "cpu_ns": cpu, "histogram": histogram.pairs() }))
}
