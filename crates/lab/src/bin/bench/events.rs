//! Waiting for many descriptors: epoll(7), and eventfd(2) for threads that wake each other.
//!
//! All calls are the C library's, because an ordinary program makes no other ones. Not here: what
//! is done with a descriptor that is ready.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

const EVENTS: usize = 256;

/// Readable, as epoll(7) has it.
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32;
/// Writable.
pub(crate) const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// Each change is reported once.
pub(crate) const EDGE_TRIGGERED: u32 = libc::EPOLLET as u32;

/// An epoll instance.
pub(crate) struct Set(OwnedFd);

impl Set {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: a plain call.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call has just made the descriptor, for nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor, which is waited for until it is readable.
    pub(crate) fn add(&self, fd: RawFd, mark: usize) -> Result<()> {
        self.add_for(fd, mark, READABLE)
    }

    /// Adds a descriptor, which is waited for as `events` says.
    pub(crate) fn add_for(&self, fd: RawFd, mark: usize, events: u32) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, mark, events)
    }

    /// Changes what a descriptor is waited for.
    pub(crate) fn change(&self, fd: RawFd, mark: usize, events: u32) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, mark, events)
    }

    /// Removes a descriptor.
    pub(crate) fn remove(&self, fd: RawFd) -> Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, mark: usize, events: u32) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: mark as u64 };
        let set = self.0.as_raw_fd();
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(set, operation, fd, &raw mut event) }).map(drop)
    }

    /// Waits for descriptors; fills in their marks and returns their number.
    pub(crate) fn wait(&self, limit_ms: i32, events: &mut [libc::epoll_event]) -> Result<usize> {
        let (set, room) = (self.0.as_raw_fd(), events.len() as i32);
        // SAFETY: `events` has `room` entries.
        let found = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), room, limit_ms) };
        check(found).map(|count| count as usize)
    }
}

/// Returns the result of a call of the C library.
pub(crate) fn check(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn no_events() -> Vec<libc::epoll_event> {
    vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS]
}

/// Waits until `fd` is readable; returns false if that took longer than `limit`.
pub(crate) fn is_readable_within(fd: RawFd, limit: Duration) -> Result<bool> {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `one` lives through the call.
    let found = unsafe { libc::poll(&raw mut one, 1, limit.as_millis() as i32) };
    check(found).map(|count| count > 0)
}

/// An event counter (eventfd(2)).
pub(crate) struct Counter(OwnedFd);

impl Counter {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: a plain call.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the call has just made the descriptor, for nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes whoever waits for the counter.
    pub(crate) fn add_one(&self) -> Result<()> {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer has as many bytes as the call is told.
        let done = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        if done == 8 { Ok(()) } else { Err(Error::last_os_error()) }
    }

    /// Sets the counter to zero; returns false if it was zero.
    pub(crate) fn take(&self) -> Result<bool> {
        let mut count = [0; 8];
        // SAFETY: the buffer has as many bytes as the call is told.
        let got = unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
        match Error::last_os_error() {
            _ if got == 8 => Ok(true),
            error if error.kind() == ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }
}
