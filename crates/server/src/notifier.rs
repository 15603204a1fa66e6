//! Ringing the doorbells of clients, which decide whether that can block.
//!
//! A client can fill the counter of its event descriptor and make it block at any moment. A client
//! of the server's own user gains nothing by that. For each other user a thread rings, so that a
//! user can only hold up itself; that wait ends when the server does. Root's bells
//! are no exception: a client may have given up root's rights since it gave its bell. For root
//! several threads ring, so that few of root's clients wait for such a one.
//!
//! Other objects of clients never come here: see `proxy`. Not here: the choice of the clients to
//! ring (`registry`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The most bells of one user that may wait to be rung. A user with more is stuck, and has enough
/// to hear.
const WAITING_MAX: usize = 1024;
/// Threads for root's clients, at most.
const ROOTS_LANES: u32 = 32;

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

/// The clients whose bells one thread rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lane {
    user: Uid,
    /// Which of the user's lanes.
    number: u32,
}

impl Lane {
    fn of(user: Uid, client: ClientId) -> Self {
        let number = if user.is_root() { client.index % ROOTS_LANES } else { 0 };
        Self { user, number }
    }
}

/// The thread of one lane. It ends when this is dropped and its work is done.
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

/// Rings clients at once, or lets a thread ring them.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// The user whose clients are rung at once.
    trusted: Option<Uid>,
    workers: HashMap<Lane, Worker>,
}

impl Notifier {
    /// Makes a notifier of a server of that user's, or of everybody's.
    pub(crate) fn new(own_user: Uid, is_public: bool) -> Self {
        let trusted = (!is_public && !own_user.is_root()).then_some(own_user);
        Self { trusted, workers: HashMap::new() }
    }

    /// Rings the bell of a client, which is that user's.
    pub(crate) fn ring(&mut self, user: Uid, client: ClientId, bell: Descriptor) {
        if self.trusted == Some(user) {
            ring(&bell);
        } else {
            self.give(Lane::of(user, client), bell);
        }
    }

    fn give(&mut self, lane: Lane, bell: Descriptor) {
        let worker = self.workers.entry(lane).or_insert_with(Worker::new);
        if worker.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return;
        }
        worker.waiting.fetch_add(1, Ordering::Relaxed);
        if worker.bells.send(bell).is_err() {
            self.workers.remove(&lane);
        }
    }

    /// Ends the threads of users that have no clients any more.
    pub(crate) fn keep(&mut self, has_clients: impl Fn(Uid) -> bool) {
        self.workers.retain(|lane, worker| {
            has_clients(lane.user) || worker.waiting.load(Ordering::Relaxed) > 0
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
        let user = Uid::from_raw(4711);
        Notifier::new(user, false).ring(user, client(1), bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }

    fn client(index: u32) -> ClientId {
        ClientId { index, generation: 1 }
    }

    /// The process that connected as root may be anybody's by now.
    #[test]
    fn a_bell_that_root_gave_holds_up_neither_the_server_nor_others_of_roots() {
        let mut notifier = Notifier::new(Uid::ROOT, false);
        let bells = [1, 2].map(|_| Descriptor::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let lanes = [1, 2].map(|index| Lane::of(Uid::ROOT, client(index)));
        assert_ne!(lanes[0], lanes[1]);
        // A thread that is held up by its first bell.
        let (stuck, _nobody_takes) = channel::<Descriptor>();
        let waiting = Arc::new(AtomicUsize::new(1));
        notifier.workers.insert(lanes[0], Worker { bells: stuck, waiting });
        for (bell, index) in bells.iter().zip([1, 2]) {
            notifier.ring(Uid::ROOT, client(index), bell.clone());
        }
        let mut count = [0; 8];
        rustix::io::read(bells[1].as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        let fd = bells[0].as_fd().unwrap();
        let mut set = [PollFd::new(&fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut set, Some(&now)), Ok(0), "the server rings nobody's itself");
    }

    #[test]
    fn other_users_are_notified_by_threads_of_their_own() {
        let bell = Descriptor::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut notifier = Notifier::new(Uid::from_raw(4711), false);
        notifier.ring(Uid::from_raw(4712), client(1), bell.clone());
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
