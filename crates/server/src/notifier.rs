//! Ringing the doorbells of clients, which decide whether that can block.
//!
//! A client can fill the counter of its event descriptor and make it block at any moment. A client
//! of the server's own user gains nothing by that. For each other user a thread rings, so that a
//! user can only hold up itself; that wait ends when the server does. Other objects of clients
//! never come here: see `proxy`. Not here: the choice of the clients to ring (`registry`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::Uid;
use sojourn_ipc::rt::Descriptor;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The most bells of one user that may wait to be rung. A user with more is stuck, and has enough
/// to hear.
const WAITING_MAX: usize = 1024;

/// Returns true for an event descriptor.
pub(crate) fn is_event(fd: impl AsFd) -> bool {
    name_of(fd.as_fd()).is_some_and(|name| name == b"anon_inode:[eventfd]")
}

/// Returns the name of a descriptor's object in `/proc`. Never waits, whatever the object is.
pub(crate) fn name_of(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(name.into_bytes())
}

/// The thread of one user. It ends when this is dropped and its work is done.
#[derive(Debug)]
struct Worker {
    bells: Sender<Descriptor>,
    waiting: Arc<AtomicUsize>,
}

impl Worker {
    fn new() -> Self {
        let (bells, queue) = channel::<Descriptor>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&waiting);
        // If there is no thread, sending fails, and the next bell tries to make one.
        let _ = std::thread::Builder::new().name("sojourn-notify".into()).spawn(move || {
            for bell in queue {
                ring(&bell);
                count.fetch_sub(1, Ordering::Relaxed);
            }
        });
        Self { bells, waiting }
    }
}

/// Rings clients at once, or lets the user's thread ring them.
#[derive(Debug)]
pub(crate) struct Notifier {
    own_user: Uid,
    workers: HashMap<Uid, Worker>,
}

impl Notifier {
    pub(crate) fn new(own_user: Uid) -> Self {
        Self { own_user, workers: HashMap::new() }
    }

    fn trusts(&self, user: Uid) -> bool {
        user == self.own_user || user.is_root()
    }

    /// Rings the bell of a process of that user.
    pub(crate) fn ring(&mut self, user: Uid, bell: Descriptor) {
        if self.trusts(user) {
            ring(&bell);
        } else {
            self.give(user, bell);
        }
    }

    fn give(&mut self, user: Uid, bell: Descriptor) {
        let worker = self.workers.entry(user).or_insert_with(Worker::new);
        if worker.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return;
        }
        worker.waiting.fetch_add(1, Ordering::Relaxed);
        if worker.bells.send(bell).is_err() {
            self.workers.remove(&user);
        }
    }

    /// Ends the threads of users that have no clients any more.
    pub(crate) fn keep(&mut self, has_clients: impl Fn(Uid) -> bool) {
        self.workers.retain(|user, worker| {
            has_clients(*user) || worker.waiting.load(Ordering::Relaxed) > 0
        });
    }
}

fn ring(bell: &Descriptor) {
    let Some(fd) = bell.as_fd() else { return };
    // A full counter rings already.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut set = [PollFd::new(&fd, PollFlags::OUT)];
    if !matches!(poll(&mut set, Some(&now)), Ok(1)) {
        return;
    }
    while rustix::io::write(fd, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    #[test]
    fn only_event_descriptors_are_bells() {
        assert!(is_event(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        assert!(!is_event(std::fs::File::open("/dev/null").unwrap()));
        assert!(!is_event(TcpListener::bind("127.0.0.1:0").unwrap()));
    }

    #[test]
    fn a_full_counter_does_not_block_the_ringer() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let bell = Descriptor::from(bell);
        let mut notifier = Notifier::new(rustix::process::geteuid());
        notifier.ring(notifier.own_user, bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }

    #[test]
    fn other_users_are_notified_by_threads_of_their_own() {
        let bell = Descriptor::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut notifier = Notifier { own_user: Uid::from_raw(4711), workers: HashMap::new() };
        notifier.ring(Uid::from_raw(4712), bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        let begun = Instant::now();
        while !notifier.workers.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            notifier.keep(|_| false);
        }
    }
}
