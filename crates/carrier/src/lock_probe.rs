//! Whether a program lets go of its socket's lock now.
//!
//! A program that writes to its socket from a page that does not come holds the socket's lock, and
//! whoever asks the kernel something about that socket waits, beyond SIGKILL. The carrier before
//! this one may have ended so. So the carrier has another thread ask first about each socket that
//! it inherits, and does without those that do not answer. Such a thread is left behind: it has a
//! descriptor table of its own, so that what the process has is closed when the process ends.
//!
//! An answer holds for its moment only: a program that takes the lock later holds up the carrier,
//! which is replaced then (`sojourn-server`, `apart`). Not here: the adoption (`adopt`).

use crate::raw;
use crate::repair::TCP_INFO;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sojourn_ipc::ancillary;
use sojourn_shm::aside::keep_only;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The looks for all sockets together that do not answer. Not the clock counts them: where the
/// machine stands still, or lets neither thread run, an honest program's session would be lost.
const LOOKS: u32 = 400;
/// The length of one look.
const LOOK: Duration = Duration::from_millis(20);
/// How long a thread may take to begin.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Asks about sockets, one after the other.
#[derive(Debug)]
pub(crate) struct LockProbe {
    /// The line to the thread that asks, if there is one that does not wait.
    line: Option<OwnedFd>,
    /// No such thread is to be had.
    is_alone: bool,
    /// What is left of the looks for sockets that do not answer.
    left: u32,
}

impl LockProbe {
    pub(crate) fn new() -> Self {
        Self { line: None, is_alone: false, left: LOOKS }
    }

    /// Returns true if the kernel answers questions about this socket. Where nobody can ask, it
    /// counts as if it did.
    pub(crate) fn is_free(&mut self, socket: BorrowedFd<'_>) -> bool {
        if self.is_alone {
            return true;
        }
        let Ok(line) = self.line.take().map_or_else(start, Ok) else {
            self.is_alone = true;
            return true;
        };
        if ancillary::send(&line, &[IoSlice::new(&[0])], &[socket]).is_err() {
            return true;
        }
        // Many sockets that do not answer have fewer looks each.
        let looks = (self.left / 4).max(1);
        let is_free = (0..looks).any(|_| is_readable(&line, LOOK));
        if is_free {
            let _ = ancillary::receive(line.as_fd(), &mut [0]);
            self.line = Some(line);
        } else {
            self.left = self.left.saturating_sub(looks);
        }
        is_free
    }
}

/// Starts a thread; returns the line to it, whose end is the thread's end.
fn start() -> Result<OwnedFd, Errno> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let (line, theirs) = socketpair(family, SocketType::SEQPACKET, flags, None)?;
    let number = theirs.as_raw_fd();
    let (ready, is_ready) = channel();
    let serve = move || {
        if let Ok(own) = keep_only(number)
            && ready.send(()).is_ok()
        {
            serve(&own);
        }
    };
    let thread = std::thread::Builder::new().name("sojourn-lock".into()).spawn(serve);
    thread.map_err(|_| Errno::AGAIN)?;
    // The thread has a copy of the other end by then, or has ended without one.
    is_ready.recv_timeout(START_LIMIT).map_err(|_| Errno::AGAIN)?;
    drop(theirs);
    Ok(line)
}

/// Asks about each socket that comes, until the line ends.
fn serve(line: &OwnedFd) {
    while poll(&mut [PollFd::new(line, PollFlags::IN)], None).is_ok() {
        match ancillary::receive(line.as_fd(), &mut [0]) {
            Ok(arrived) if arrived.len > 0 => {
                // What it says is of no interest; the kernel takes the lock to say it.
                for socket in &arrived.fds {
                    let _ = raw::getsockopt(socket, TCP_INFO, &mut [0; 8]);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => continue,
            _ => return,
        }
        if ancillary::send(line, &[IoSlice::new(&[0])], &[]).is_err() {
            return;
        }
    }
}

fn is_readable(line: &OwnedFd, limit: Duration) -> bool {
    let Ok(limit) = Timespec::try_from(limit) else { return false };
    poll(&mut [PollFd::new(line, PollFlags::IN)], Some(&limit)) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_lab::hold;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    fn connection() -> [OwnedFd; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [one.into(), listener.accept().unwrap().0.into()]
    }

    /// The number of descriptors of this process.
    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn who_holds_a_lock_is_found_out_and_holds_up_no_questions_about_others() {
        let [free, other] = connection();
        let mut probe = LockProbe::new();
        assert!(probe.is_free(free.as_fd()) && probe.is_free(other.as_fd()));
        let Some(faults) = hold::faults() else { return };
        let [held, _peer] = connection();
        assert!(hold::hold(faults, held.try_clone().unwrap()));
        let begun = Instant::now();
        // A question of this thread would wait until the process ends.
        for _ in 0..20 {
            assert!(!probe.is_free(held.as_fd()));
            assert!(probe.is_free(free.as_fd()), "the next thread asks");
        }
        assert!(begun.elapsed() < 3 * LOOKS * LOOK, "{:?}", begun.elapsed());
    }

    #[test]
    fn questions_leave_no_descriptors_behind() {
        let [free, _other] = connection();
        let before = descriptors();
        for _ in 0..10 {
            assert!(LockProbe::new().is_free(free.as_fd()));
        }
        // Other tests run at the same time.
        assert!(descriptors() < before + 30, "{before}");
    }
}
