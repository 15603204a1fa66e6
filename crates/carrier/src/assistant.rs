//! A thread that works on programs' sockets, and may never come back from one.
//!
//! It has a descriptor table of its own, so that it keeps nothing of the process open once it
//! hangs: what it needs comes beside its work (`SCM_RIGHTS`, unix(7)). Work and results themselves
//! go through memory. On the line between the two threads each message is one byte:
//!
//! | byte | to | |
//! |---|---|---|
//! | `W` | assistant | there is work, with its descriptors |
//! | `B` | carrier | the assistant has begun, and has a table of its own |
//! | `H` | both | the session's packets are to reach its socket; answered with the same |
//! | `D` | carrier | the work is done |
//! | `C` | assistant | the carrier has closed its own descriptor of a socket that is to be closed |
//!
//! The end of the line is the end of either. Not here: the work (`work`), the choice of an
//! assistant (`assistants`).

use crate::sessions::{Look, MakeLook};
use crate::work::{Done, Finished, Tools, Work, act};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sojourn_ipc::ancillary::{self, Arrived};
use sojourn_shm::aside::keep_only;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const WORK: u8 = b'W';
const BEGUN: u8 = b'B';
const HEAR: u8 = b'H';
const DONE: u8 = b'D';
const CLOSED: u8 = b'C';

/// Bytes of an assistant's stack.
const STACK: usize = 512 << 10;

/// What the two threads hand each other.
#[derive(Debug, Default)]
struct Desk {
    work: Mutex<Option<Work>>,
    done: Mutex<Option<Done>>,
}

fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The carrier's side of an assistant.
#[derive(Debug)]
pub(crate) struct Assistant {
    line: OwnedFd,
    desk: Arc<Desk>,
    /// The other end of the line, until the thread has its own copy.
    theirs: Option<OwnedFd>,
    thread: JoinHandle<()>,
}

/// What an assistant says.
pub(crate) enum Said {
    /// The session's packets are to reach its socket; the assistant waits for the answer.
    Hear,
    Finished(Finished),
    /// The assistant has ended, and its work with it.
    Ended,
}

impl Assistant {
    /// Starts a thread. Nobody waits until it has begun.
    ///
    /// # Errors
    /// No room for a thread, or for a descriptor.
    pub(crate) fn start(make_look: MakeLook) -> Result<Self, Errno> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (line, theirs) = socketpair(family, SocketType::SEQPACKET, flags, None)?;
        let (number, desk) = (theirs.as_raw_fd(), Arc::new(Desk::default()));
        let shared = Arc::clone(&desk);
        let serve = move || {
            if let Ok(line) = keep_only(number) {
                serve(&line, &shared, &make_look);
            }
        };
        let thread = std::thread::Builder::new().name("sojourn-assist".into()).stack_size(STACK);
        let thread = thread.spawn(serve).map_err(|_| Errno::AGAIN)?;
        Ok(Self { line, desk, theirs: Some(theirs), thread })
    }

    /// Returns true if the thread has ended. One that could not begin does not say so.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Hands over a piece of work.
    ///
    /// # Errors
    /// The work; it was not handed over.
    pub(crate) fn give(&self, work: Work, fds: &[BorrowedFd<'_>]) -> Result<(), Work> {
        *lock(&self.desk.work) = Some(work);
        let sent = ancillary::send(&self.line, &[IoSlice::new(&[WORK])], fds);
        match sent {
            Ok(()) => Ok(()),
            Err(_) => lock(&self.desk.work).take().map_or(Ok(()), Err),
        }
    }

    /// Answers [`Said::Hear`].
    pub(crate) fn answer(&self) {
        let _ = ancillary::send(&self.line, &[IoSlice::new(&[HEAR])], &[]);
    }

    /// Lets the assistant close a socket of which this thread has no descriptor any more.
    pub(crate) fn let_close(&self) {
        let _ = ancillary::send(&self.line, &[IoSlice::new(&[CLOSED])], &[]);
    }

    /// Takes what the assistant has said; `None` if there is nothing more.
    pub(crate) fn take_said(&mut self) -> Option<Said> {
        loop {
            let mut byte = [0];
            match ancillary::receive(self.line.as_fd(), &mut byte) {
                Ok(Arrived { len: 0, .. }) => return Some(Said::Ended),
                Ok(mut arrived) => match byte[0] {
                    BEGUN => self.theirs = None,
                    HEAR => return Some(Said::Hear),
                    _ => {
                        let done = lock(&self.desk.done).take().unwrap_or(Done::Lost);
                        return Some(Said::Finished(Finished { done, file: arrived.fds.pop() }));
                    }
                },
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => return Some(Said::Ended),
            }
        }
    }
}

impl Drop for Assistant {
    /// A thread that has not begun yet still looks for that number, which must not be another
    /// file's.
    fn drop(&mut self) {
        std::mem::forget(self.theirs.take());
    }
}

impl AsFd for Assistant {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Does what work comes, until the line ends.
fn serve(fd: &OwnedFd, desk: &Desk, make_look: &MakeLook) {
    let mut line = Line { fd, is_last: false };
    let mut look: Option<Look> = None;
    line.say(BEGUN);
    while let Some(arrived) = line.wait_for(WORK) {
        let mut fds = arrived.fds.into_iter();
        let (Some(work), Some(socket)) = (lock(&desk.work).take(), fds.next()) else { return };
        let closes = work.closes();
        let look = look.get_or_insert_with(|| make_look());
        let mut hear = || {
            line.say(HEAR);
            // Without an answer the carrier is gone.
            let _ = line.wait_for(HEAR);
        };
        let tools = Tools { look, hear: &mut hear };
        let Finished { done, file } = act(work, socket.as_fd(), fds.collect(), tools);
        if closes && !line.is_last && line.wait_for(CLOSED).is_none() {
            return;
        }
        line.is_last = false;
        drop(socket);
        *lock(&desk.done) = Some(done);
        let beside: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        if ancillary::send(fd, &[IoSlice::new(&[DONE])], &beside).is_err() {
            return;
        }
    }
}

/// The assistant's end of the line.
struct Line<'l> {
    fd: &'l OwnedFd,
    /// The carrier has closed its descriptor of the socket.
    is_last: bool,
}

impl Line<'_> {
    fn say(&self, byte: u8) {
        let _ = ancillary::send(self.fd, &[IoSlice::new(&[byte])], &[]);
    }

    /// Waits for that message; `None` at the end of the line.
    fn wait_for(&mut self, wanted: u8) -> Option<Arrived> {
        loop {
            match poll(&mut [PollFd::new(self.fd, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
            let mut byte = [0];
            match ancillary::receive(self.fd.as_fd(), &mut byte) {
                Ok(arrived) if arrived.len > 0 => {
                    self.is_last |= byte[0] == CLOSED;
                    if byte[0] == wanted {
                        return Some(arrived);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                _ => return None,
            }
        }
    }
}
