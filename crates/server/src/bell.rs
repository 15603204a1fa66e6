//! Ringing the doorbells of libraries.
//!
//! A doorbell is an event descriptor that the client made, so the client decides whether writing to it can block: it
//! can fill the counter and let it block at any moment. One of the server's own user gains nothing by that. The
//! bells of other users are rung by a thread for each user, so that a user can keep only its own bells silent.
//! Not here: who is to be rung (`registry`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use sojourn_ipc::rt::Descriptor;
use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

/// Bells of one user that may wait to be rung; more than there can be clients of one user.
const WAITING_MAX: usize = 8192;

/// Whether a descriptor is an event descriptor.
pub(crate) fn is_event(fd: impl AsFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// Rings bells.
#[derive(Debug)]
pub(crate) struct Ringer {
    own_user: u32,
    /// By user. A thread ends when its sender does.
    others: HashMap<u32, SyncSender<Descriptor>>,
}

impl Ringer {
    pub(crate) fn new() -> Self {
        let own_user = rustix::process::geteuid().as_raw();
        Self { own_user, others: HashMap::new() }
    }

    /// Rings the bell of a process of that user.
    pub(crate) fn ring(&mut self, user: u32, bell: Descriptor) {
        if user == self.own_user || user == 0 {
            ring(&bell);
            return;
        }
        let sender = self.others.entry(user).or_insert_with(|| {
            let (sender, bells) = sync_channel::<Descriptor>(WAITING_MAX);
            // Without the thread sending fails, and the bells of that user are silent until one can be made.
            let _ = std::thread::Builder::new()
                .name("sojourn-bell".into())
                .spawn(move || bells.iter().for_each(|bell| ring(&bell)));
            sender
        });
        if let Err(TrySendError::Disconnected(_)) = sender.try_send(bell) {
            self.others.remove(&user);
        }
    }

    /// Lets the threads of users go that have no clients any more.
    pub(crate) fn keep(&mut self, has_clients: impl Fn(u32) -> bool) {
        self.others.retain(|user, _| has_clients(*user));
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

    #[test]
    fn only_event_descriptors_are_bells() {
        assert!(is_event(eventfd(0, EventfdFlags::empty()).unwrap()));
        assert!(!is_event(rustix::pipe::pipe().unwrap().1));
        assert!(!is_event(std::fs::File::open("/dev/null").unwrap()));
    }

    #[test]
    fn a_full_counter_does_not_block_the_ringer() {
        let bell = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let bell = Descriptor::from(bell);
        let user = rustix::process::geteuid().as_raw();
        Ringer::new().ring(user, bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }

    #[test]
    fn bells_of_other_users_are_rung_by_their_threads() {
        let bell = Descriptor::from(eventfd(0, EventfdFlags::empty()).unwrap());
        let mut ringer = Ringer { own_user: 4711, others: HashMap::new() };
        ringer.ring(4712, bell.clone());
        let mut count = [0; 8];
        rustix::io::read(bell.as_fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        ringer.keep(|_| false);
        assert!(ringer.others.is_empty());
    }
}
