//! What the server does to objects that clients made, where the client decides whether it can block.
//!
//! * Ringing a doorbell: the client can fill the counter of its event descriptor and let it block at any moment.
//! * Closing what it sent: closing a TCP socket that lingers waits for its data, a file of a file system in user space
//!   waits for that, and a Unix socket may have such things in its queue.
//!
//! A client of the server's own user gains nothing by that, so for it only the one case is heeded that an honest
//! program can cause: lingering. For other users a thread for each user does these errands, so that a user can
//! only hold up itself. Not here: who is to be rung (`registry`); descriptors in messages that break the interface,
//! which `sojourn-ipc` closes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use sojourn_ipc::rt::Descriptor;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Errands of one user that may wait; with more the user is stuck.
const WAITING_MAX: usize = 1024;

/// Whether a descriptor is an event descriptor.
pub(crate) fn is_event(fd: impl AsFd) -> bool {
    name_of(fd.as_fd()).is_some_and(|name| name == b"anon_inode:[eventfd]")
}

/// What `/proc` calls the object of a descriptor. Never waits, whatever it is.
pub(crate) fn name_of(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(name.into_bytes())
}

#[derive(Debug)]
enum Errand {
    Ring(Descriptor),
    Close(OwnedFd),
}

impl Errand {
    fn run(self) {
        match self {
            Self::Ring(bell) => ring(&bell),
            Self::Close(end) => drop(end),
        }
    }
}

/// The thread of one user. It ends when this is dropped and its work is done.
#[derive(Debug)]
struct Worker {
    errands: Sender<Errand>,
    waiting: Arc<AtomicUsize>,
}

impl Worker {
    fn new() -> Self {
        let (errands, queue) = channel::<Errand>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&waiting);
        // Without the thread sending fails, and the next errand tries to make one.
        let _ = std::thread::Builder::new().name("sojourn-errands".into()).spawn(move || {
            for errand in queue {
                errand.run();
                count.fetch_sub(1, Ordering::Relaxed);
            }
        });
        Self { errands, waiting }
    }
}

/// Does errands at once or lets the user's thread do them.
#[derive(Debug)]
pub(crate) struct Errands {
    own_user: u32,
    workers: HashMap<u32, Worker>,
}

impl Errands {
    pub(crate) fn new() -> Self {
        let own_user = rustix::process::geteuid().as_raw();
        Self { own_user, workers: HashMap::new() }
    }

    fn trusts(&self, user: u32) -> bool {
        user == self.own_user || user == 0
    }

    /// Rings the bell of a process of that user.
    pub(crate) fn ring(&mut self, user: u32, bell: Descriptor) {
        if self.trusts(user) {
            ring(&bell);
        } else {
            self.give(user, Errand::Ring(bell));
        }
    }

    /// Closes what a process of that user sent.
    pub(crate) fn close(&mut self, user: u32, end: OwnedFd) {
        if closes_at_once(end.as_fd(), self.trusts(user)) {
            drop(end);
        } else {
            self.give(user, Errand::Close(end));
        }
    }

    /// Whether a user's errands have piled up: it holds its own thread up.
    pub(crate) fn is_stuck(&self, user: u32) -> bool {
        let worker = self.workers.get(&user);
        worker.is_some_and(|worker| worker.waiting.load(Ordering::Relaxed) >= WAITING_MAX)
    }

    fn give(&mut self, user: u32, errand: Errand) {
        let worker = self.workers.entry(user).or_insert_with(Worker::new);
        worker.waiting.fetch_add(1, Ordering::Relaxed);
        if worker.errands.send(errand).is_err() {
            self.workers.remove(&user);
        }
    }

    /// Lets the threads of users go that have no clients any more.
    pub(crate) fn keep(&mut self, has_clients: impl Fn(u32) -> bool) {
        self.workers.retain(|user, worker| {
            has_clients(*user) || worker.waiting.load(Ordering::Relaxed) > 0
        });
    }
}

/// Whether closing surely does not wait.
fn closes_at_once(end: BorrowedFd<'_>, is_trusted: bool) -> bool {
    match sockopt::socket_domain(end) {
        Ok(AddressFamily::UNIX) => is_trusted,
        Ok(_) => is_trusted && sockopt::socket_linger(end) == Ok(None),
        // No socket; a pipe without a name has nothing that could wait.
        Err(_) => name_of(end).is_some_and(|name| name.starts_with(b"pipe:[")),
    }
}

fn ring(bell: &Descriptor) {
    let Some(fd) = bell.as_fd() else { return };
    // A counter that is full rings already.
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
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
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
        let mut errands = Errands::new();
        errands.ring(errands.own_user, bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }

    #[test]
    fn errands_of_other_users_are_done_by_their_threads() {
        let bell = Descriptor::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut errands = Errands { own_user: 4711, workers: HashMap::new() };
        errands.ring(4712, bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        let begun = Instant::now();
        while !errands.workers.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            errands.keep(|_| false);
        }
    }

    /// A socket whose closing waits a second: it lingers, and its peer does not read.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(1))).unwrap();
        (socket.into(), peer)
    }

    #[test]
    fn a_socket_that_lingers_does_not_hold_the_server_up() {
        let (socket, _peer) = lingering();
        let mut errands = Errands::new();
        let begun = Instant::now();
        errands.close(errands.own_user, socket);
        assert!(begun.elapsed() < Duration::from_millis(500));
        assert!(!errands.workers.is_empty());
        // That it would have waited: the thread does.
        let worker = errands.workers.values().next().unwrap();
        while worker.waiting.load(Ordering::Relaxed) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(begun.elapsed() > Duration::from_millis(500));
    }
}
