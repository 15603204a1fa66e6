//! Whether the server's threads make progress: what its watchdog looks at.
//!
//! Each thread that others depend on has a [`Beat`] and says when it begins with something and when
//! it is done. Every such thing takes microseconds, or a moment. One that takes seconds is a thread
//! that is lost, and then the service manager is told nothing more, so that it starts the server
//! anew (sd_notify(3), `WatchdogSec=`). Not here: what the threads do.

use crate::log::{self, Level};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than this nothing takes that is done at once (ms).
const LATE_MS: u64 = 10_000;

/// A thread's name, and [`Beat::since`].
type Watched = (&'static str, Arc<AtomicU64>);

/// The threads that are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Beats {
    begun: Instant,
    all: Arc<Mutex<Vec<Watched>>>,
}

/// One thread's.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    begun: Instant,
    /// When it began with what it is doing (ms, and one more); 0 when it waits for something to do.
    since: Arc<AtomicU64>,
}

/// While this is there its thread is at work.
#[derive(Debug)]
pub(crate) struct Busy<'b>(&'b Beat);

impl Beats {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), all: Arc::default() }
    }

    pub(crate) fn beat(&self, name: &'static str) -> Beat {
        let since = Arc::new(AtomicU64::new(0));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((name, Arc::clone(&since)));
        Beat { begun: self.begun, since }
    }

    /// A thread that has been at one thing for too long.
    fn late(&self, now_ms: u64) -> Option<&'static str> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = |since: &AtomicU64| {
            let since = since.load(Ordering::Relaxed);
            since != 0 && now_ms.saturating_sub(since - 1) > LATE_MS
        };
        all.iter().find(|(_, since)| is_late(since)).map(|(name, _)| *name)
    }

    /// Tells the service manager that the server is ready, and from then on that all is well as
    /// long as it is.
    pub(crate) fn watch(&self) {
        notify("READY=1");
        let Some(every) = wanted() else { return };
        let beats = self.clone();
        let watch = move || {
            let mut was_late = None;
            loop {
                let late = beats.late(beats.begun.elapsed().as_millis() as u64);
                match late {
                    None => notify("WATCHDOG=1"),
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

    /// Its thread is at work from now on, or waits for something to do.
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

/// How often the service manager wants to hear of this process: half of what it allows.
fn wanted() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let limit = number("WATCHDOG_USEC").filter(|limit| is_ours && *limit > 0)?;
    Some(Duration::from_micros(limit / 2))
}

/// Says something to the service manager, if there is one: sd_notify(3).
fn notify(text: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let place = place.as_encoded_bytes();
    let address = match place.split_first() {
        Some((b'@', name)) => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(place),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    if let (Ok(address), Ok(socket)) = (address, socket) {
        let _ = rustix::net::sendto(&socket, text.as_bytes(), SendFlags::NOSIGNAL, &address);
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
