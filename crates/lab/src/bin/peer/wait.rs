//! Calls that wait for two descriptors: poll(2), select(2), epoll(7).

use std::io::{Error, ErrorKind, Result};
use std::os::fd::RawFd;

/// Milliseconds without any event after which a transfer has failed.
const LIMIT_MS: i32 = 30_000;

/// A call that waits.
#[derive(Debug)]
pub(crate) enum WaitCall {
    Poll,
    Select,
    Epoll { set: RawFd, is_edge: bool },
}

/// One of the two descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) fd: RawFd,
    /// False if nothing of it is waited for now.
    pub(crate) is_wanted: bool,
}

/// The descriptors that are ready.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

impl Found {
    pub(crate) fn or(self, other: Self) -> Self {
        Self { input: self.input || other.input, output: self.output || other.output }
    }
}

impl WaitCall {
    /// Returns true if only changes are told.
    pub(crate) fn is_edge(&self) -> bool {
        matches!(self, Self::Epoll { is_edge: true, .. })
    }

    pub(crate) fn new(name: &str, input: RawFd, output: RawFd) -> Result<Self> {
        match name {
            "poll" => Ok(Self::Poll),
            "select" => Ok(Self::Select),
            "epoll" | "epollet" => {
                // SAFETY: a plain call.
                let set = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
                let way = Self::Epoll { set, is_edge: name == "epollet" };
                way.add(input, output)?;
                Ok(way)
            }
            other => Err(Error::other(format!("no such way to wait: {other}"))),
        }
    }

    fn add(&self, input: RawFd, output: RawFd) -> Result<()> {
        let Self::Epoll { set, is_edge } = *self else { return Ok(()) };
        let edge = if is_edge { libc::EPOLLET as u32 } else { 0 };
        let both = (libc::EPOLLIN | libc::EPOLLOUT) as u32;
        if input == output {
            return control(
                set,
                libc::EPOLL_CTL_ADD,
                input,
                if is_edge { both | edge } else { libc::EPOLLIN as u32 },
            );
        }
        control(set, libc::EPOLL_CTL_ADD, input, libc::EPOLLIN as u32 | edge)?;
        control(
            set,
            libc::EPOLL_CTL_ADD,
            output,
            if is_edge { libc::EPOLLOUT as u32 | edge } else { 0 },
        )
    }

    /// Waits for input and for room. Where only edges are told, and one of those that are wanted is
    /// ready already, it looks and does not wait.
    pub(crate) fn wait(&self, input: Awaited, output: Awaited, ready: Found) -> Result<Found> {
        let is_ready = input.is_wanted && ready.input || output.is_wanted && ready.output;
        let limit_ms = if self.is_edge() && is_ready { 0 } else { LIMIT_MS };
        loop {
            let found = match self {
                Self::Poll => poll(input, output),
                Self::Select => select(input, output),
                Self::Epoll { set, is_edge } => epoll(*set, *is_edge, input, output, limit_ms),
            };
            // A process that was stopped and continued gets EINTR from these calls (signal(7)).
            let is_interrupted = |error: &Error| error.kind() == ErrorKind::Interrupted;
            if !found.as_ref().is_err_and(is_interrupted) {
                return found;
            }
        }
    }
}

fn check(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Returns the number of ready descriptors; an error if none was ready within the time limit.
fn some(result: i32) -> Result<i32> {
    match check(result)? {
        0 => Err(Error::new(ErrorKind::TimedOut, "nothing happened for thirty seconds")),
        count => Ok(count),
    }
}

fn control(set: RawFd, op: i32, fd: RawFd, events: u32) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: fd as u64 };
    // SAFETY: `event` lives through the call.
    check(unsafe { libc::epoll_ctl(set, op, fd, &raw mut event) }).map(drop)
}

fn poll(input: Awaited, output: Awaited) -> Result<Found> {
    let wanted = |is_wanted: bool, events| if is_wanted { events } else { 0 };
    let mut fds = [
        libc::pollfd { fd: input.fd, events: wanted(input.is_wanted, libc::POLLIN), revents: 0 },
        libc::pollfd { fd: output.fd, events: wanted(output.is_wanted, libc::POLLOUT), revents: 0 },
    ];
    // SAFETY: `fds` has two entries.
    some(unsafe { libc::poll(fds.as_mut_ptr(), 2, LIMIT_MS) })?;
    Ok(Found { input: fds[0].revents != 0, output: fds[1].revents != 0 })
}

fn select(input: Awaited, output: Awaited) -> Result<Found> {
    // SAFETY: the sets are plain bits, and this program's descriptor numbers are below FD_SETSIZE.
    unsafe {
        let (mut readable, mut writable): (libc::fd_set, libc::fd_set) = std::mem::zeroed();
        if input.is_wanted {
            libc::FD_SET(input.fd, &raw mut readable);
        }
        if output.is_wanted {
            libc::FD_SET(output.fd, &raw mut writable);
        }
        let mut limit = libc::timeval { tv_sec: i64::from(LIMIT_MS / 1000), tv_usec: 0 };
        let highest = input.fd.max(output.fd) + 1;
        some(libc::select(
            highest,
            &raw mut readable,
            &raw mut writable,
            std::ptr::null_mut(),
            &raw mut limit,
        ))?;
        Ok(Found {
            input: libc::FD_ISSET(input.fd, &raw const readable),
            output: libc::FD_ISSET(output.fd, &raw const writable),
        })
    }
}

fn epoll(
    set: RawFd,
    is_edge: bool,
    input: Awaited,
    output: Awaited,
    limit_ms: i32,
) -> Result<Found> {
    if !is_edge {
        let out = if output.is_wanted { libc::EPOLLOUT as u32 } else { 0 };
        let into = if input.is_wanted { libc::EPOLLIN as u32 } else { 0 };
        if input.fd == output.fd {
            control(set, libc::EPOLL_CTL_MOD, input.fd, into | out)?;
        } else {
            control(set, libc::EPOLL_CTL_MOD, input.fd, into)?;
            // Fails for a pipe whose output has ended: its close has taken it out of the set
            // (epoll(7)).
            let _ = control(set, libc::EPOLL_CTL_MOD, output.fd, out);
        }
    }
    let mut events: [libc::epoll_event; 4] = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: `events` has four entries.
    let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 4, limit_ms) };
    let count = if limit_ms == 0 { check(count)? } else { some(count)? };
    let mut found = Found::default();
    for event in &events[..count as usize] {
        let (fd, what) = (event.u64 as RawFd, event.events);
        let hung = what & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
        found.input |= fd == input.fd && (hung || what & libc::EPOLLIN as u32 != 0);
        found.output |= fd == output.fd && (hung || what & libc::EPOLLOUT as u32 != 0);
    }
    Ok(found)
}
