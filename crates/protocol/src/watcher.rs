//! The watcher: a thread that sleeps for the sessions at which somebody waits.
//!
//! It sleeps in an epoll set of the protocol library's, as a program would: the library tells there
//! of sessions in every home, and a thread that sleeps there sleeps on the packet sockets as well.
//! Sessions are told of when something happens to them (`EPOLLET`), and stay armed for what
//! somebody waited for last: most who wait once wait again. A session at which nobody waits any
//! more is told of once, and then disarmed. (`EPOLLONESHOT` would not do: the library moves a
//! session in such a registration only once that is changed, and a session that always has
//! something never is.)
//!
//! A socket may be called ready for ever while nobody at it can be answered: its error queue is not
//! empty, or its bytes lie before `SO_PEEK_OFF`. So a session that was told of in vain is armed
//! again only after a pause. Not here: the answers, and the length of pauses (`session`).

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use sojourn_library::{EpollEvent, library};
use std::collections::BTreeMap;
use std::time::Instant;

/// Events taken at once.
const EVENTS: usize = 64;
/// Operations of epoll_ctl(2).
const ADD: i32 = 1;
const DELETE: i32 = 2;
const MODIFY: i32 = 3;

/// The set of a watcher, and the names of sessions in it.
#[derive(Debug)]
pub(crate) struct Watcher {
    set: OwnedFd,
    last: AtomicU64,
}

impl Watcher {
    /// Makes the set.
    ///
    /// # Errors
    /// Those of epoll_create1(2).
    pub(crate) fn new() -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        library().epoll_made(set.as_raw_fd());
        Ok(Self { set, last: AtomicU64::new(0) })
    }

    /// Returns a name that no other session has had.
    pub(crate) fn fresh(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes in a session. It is not looked at before it is armed.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(crate) fn add(&self, fd: i32, key: u64) -> Result<(), Errno> {
        self.control(ADD, fd, key, 0)
    }

    /// Has the session told of when one of these events happens, and now if one holds; 0: not any
    /// more.
    pub(crate) fn arm(&self, fd: i32, key: u64, events: u32) {
        // The session is in the set, and changing it takes no memory.
        let _ = self.control(MODIFY, fd, key, events);
    }

    /// Takes a session out.
    pub(crate) fn remove(&self, fd: i32) {
        let _ = library().epoll_ctl(self.set.as_raw_fd(), DELETE, fd, None);
    }

    fn control(&self, op: i32, fd: i32, key: u64, events: u32) -> Result<(), Errno> {
        let flags = EventFlags::from_bits_retain(events) | EventFlags::ET;
        let event = EpollEvent { flags, data: EventData::new_u64(key) };
        library().epoll_ctl(self.set.as_raw_fd(), op, fd, Some(&event))
    }

    /// Waits, and hands over the names of sessions that have something, for ever. `found` returns a
    /// pause if the session is to be armed after that time; then `rearm` gets its name.
    pub(crate) fn watch(
        &self,
        mut found: impl FnMut(u64) -> Option<Duration>,
        mut rearm: impl FnMut(u64),
    ) {
        let nothing = EpollEvent { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [nothing; EVENTS];
        let mut pauses = Pauses::default();
        loop {
            let limit = pauses.left(Instant::now());
            // An error leaves nothing; EINTR is the only one of a set that is open.
            let count = library().epoll_wait(self.set.as_raw_fd(), &mut events, limit, None);
            for event in &events[..count.unwrap_or(0)] {
                let key = event.data.u64();
                if let Some(pause) = found(key) {
                    pauses.add(key, Instant::now() + pause);
                }
            }
            pauses.take_over(Instant::now()).into_iter().for_each(&mut rearm);
        }
    }
}

/// The sessions that are to be armed later, by their names, and when.
#[derive(Debug, Default)]
struct Pauses(BTreeMap<u64, Instant>);

impl Pauses {
    /// Begins a pause, unless the session has one.
    fn add(&mut self, key: u64, until: Instant) {
        self.0.entry(key).or_insert(until);
    }

    /// Returns how long the next pause takes; `None` if there is none.
    fn left(&self, now: Instant) -> Option<Duration> {
        self.0.values().min().map(|until| until.saturating_duration_since(now))
    }

    /// Takes the sessions whose pauses are over.
    fn take_over(&mut self, now: Instant) -> Vec<u64> {
        self.0.extract_if(.., |_, until| *until <= now).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_has_begun_is_not_put_off_and_ends_once() {
        let mut pauses = Pauses::default();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        assert_eq!(pauses.left(begun), None);
        pauses.add(7, at(5));
        pauses.add(8, at(3));
        pauses.add(7, at(9));
        assert_eq!(pauses.left(begun), Some(Duration::from_millis(3)));
        assert!(pauses.take_over(at(2)).is_empty());
        assert_eq!(pauses.take_over(at(5)), [7, 8]);
        assert!(pauses.left(at(6)).is_none() && pauses.take_over(at(9)).is_empty());
    }
}
