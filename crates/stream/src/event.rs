//! An event of an inbox: a descriptor that is readable while its owner is to be woken.
//!
//! Between processes of one user it is an event descriptor (eventfd(2)) that all of them have.
//! Whoever has one can have others wait: it takes `O_NONBLOCK` away and fills the counter. So an
//! owner of another user than its peers does not have that descriptor. It has an epoll set, in
//! which the session server has put the event, edge-triggered (epoll(7)): the set is readable from
//! a write to the event on until the owner takes what it reports. Nobody reads the event itself,
//! and its counter is never full. Neither side can hold up the other. The owner rings by a
//! descriptor of its own in the set. Not here: when somebody is woken ([`crate::Inbox`]).

use core::mem::MaybeUninit;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use sojourn_shm::MovableFd;
use std::sync::Arc;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Events taken at once from a set, which has two descriptors.
const TAKEN: usize = 8;
/// The tries to ring by a descriptor whose number may change meanwhile.
const TRIES: usize = 3;

/// What the descriptor is.
#[derive(Debug)]
enum Kind {
    /// An event descriptor.
    Counter,
    /// An epoll set, and the descriptor by which its owner rings.
    Watch(Option<Arc<MovableFd>>),
}

/// An event, as one process has it.
#[derive(Debug)]
pub(crate) struct Event {
    fd: MovableFd,
    kind: Kind,
}

impl Event {
    pub(crate) fn new(fd: MovableFd, is_set: bool) -> Self {
        Self { fd, kind: if is_set { Kind::Watch(None) } else { Kind::Counter } }
    }

    /// Returns true if `fd` is an epoll set. `other` is a descriptor that is not in it.
    pub(crate) fn is_set(fd: &MovableFd, other: &MovableFd) -> bool {
        epoll::delete(fd, other) == Err(Errno::NOENT)
    }

    pub(crate) fn is_watch(&self) -> bool {
        matches!(self.kind, Kind::Watch(_))
    }

    /// Has the owner of a set ring by `waker`, which is always readable.
    pub(crate) fn ring_by(&mut self, waker: Arc<MovableFd>) -> Result<(), Errno> {
        if let Kind::Watch(by) = &mut self.kind {
            // Without events until it is to ring.
            epoll::add(&self.fd, &*waker, EventData::new_u64(1), EventFlags::ONESHOT)?;
            *by = Some(waker);
        }
        Ok(())
    }

    /// Makes the event readable.
    pub(crate) fn ring(&self) {
        match &self.kind {
            // A full counter is readable anyhow.
            Kind::Counter => drop(rustix::io::write(&self.fd, &1u64.to_ne_bytes())),
            Kind::Watch(by) => by.iter().for_each(|waker| ring_set(&self.fd, waker)),
        }
    }

    /// Makes the event not readable, without waiting.
    pub(crate) fn clear(&self) {
        match self.kind {
            Kind::Counter => drain(&self.fd),
            Kind::Watch(_) => {
                let mut taken = [MaybeUninit::uninit(); TAKEN];
                let _ = epoll::wait(&self.fd, &mut taken, Some(&NOW));
            }
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has a set report `waker` once. The set knows a descriptor by its number, too, which may have
/// changed ([`MovableFd`]).
fn ring_set(set: &MovableFd, waker: &MovableFd) {
    let (once, data) = (EventFlags::IN | EventFlags::ONESHOT, EventData::new_u64(1));
    for _ in 0..TRIES {
        if epoll::modify(set, waker, data, once) != Err(Errno::NOENT)
            || epoll::add(set, waker, data, once) != Err(Errno::EXIST)
        {
            return;
        }
    }
}

/// Empties an event descriptor without blocking: everybody who has it can change its flag
/// `O_NONBLOCK`.
fn drain(event: &MovableFd) {
    let mut count = [0; 8];
    let buf = &mut [IoSliceMut::new(&mut count)];
    let done = rustix::io::preadv2(event, buf, u64::MAX, ReadWriteFlags::NOWAIT);
    // The kernel's events do not know RWF_NOWAIT. Only the owner reads, so a count that a poll
    // finds is still there.
    if matches!(done, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL))
        && poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&NOW)) == Ok(1)
    {
        let _ = rustix::io::read(event, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_waker_whose_number_has_changed_rings_all_the_same() {
        let waker = MovableFd::from(eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        let (place, before) = (waker.place(), rustix::io::dup(&waker).unwrap());
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut event = Event::new(set.into(), true);
        event.ring_by(Arc::new(waker)).unwrap();
        let is_readable =
            |event: &Event| poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&NOW)) == Ok(1);
        assert!(!is_readable(&event));
        for _ in 0..2 {
            for _ in 0..2 {
                event.ring();
                assert!(is_readable(&event));
                event.clear();
                assert!(!is_readable(&event));
            }
            place.move_to(Some(rustix::io::dup(&before).unwrap()));
        }
    }
}
