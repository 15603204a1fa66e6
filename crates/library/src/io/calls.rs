//! Where a data call goes: to the kernel, counted, or to the session.
//!
//! The shell asks before each data call and, for the kernel, reports the result. Read the head of
//! `table` for the order of things.

use crate::fds::table::{Direction, FdEntry, mark};
use crate::io::call_flags::{Recv, Send};
use crate::io::datagrams::{Attempt, Got};
use crate::io::from_kernel::FromKernel;
use crate::process::library::Library;
use crate::session::Session;
use core::sync::atomic::Ordering;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use std::net::SocketAddr;

/// Where a call goes.
#[derive(Debug)]
pub enum Route<'a> {
    /// To the kernel, and nobody wants to know.
    Plain,
    /// To the kernel; report the result to [`Use::done`].
    Kernel(Use<'a>),
    /// To the session.
    Session(Call<'a>),
}

/// A call in the kernel.
#[derive(Debug)]
pub struct Use<'a> {
    library: &'a Library,
    entry: &'a FdEntry,
    fd: i32,
    way: Direction,
}

impl Use<'_> {
    /// The call returned `result`: bytes, or negative.
    #[inline]
    pub fn done(self, result: isize) {
        if result > 0 {
            let (calls, bytes) = self.entry.count(result as u64);
            // On its way home, or out: not now.
            let is_at_home = self.entry.session.load(Ordering::Relaxed) == 0;
            if is_at_home && self.library.policy.is_hot(calls, bytes) {
                self.library.became_hot(self.fd, self.entry);
            }
            if let Some(engine) = self.library.engine()
                && engine.own.is_wanted()
            {
                engine.own.take_wanted();
            }
        }
    }
}

impl Drop for Use<'_> {
    #[inline]
    fn drop(&mut self) {
        self.entry.leave(self.way);
    }
}

/// A call on a session.
#[derive(Debug)]
pub struct Call<'a> {
    session: &'a Session,
    /// The slot's when the table was looked at: it may be in use for something else by now.
    generation: u32,
    entry: &'a FdEntry,
    /// The entry's, likewise.
    version: u32,
}

impl Call<'_> {
    /// Not a pipe: socket calls are allowed.
    #[inline]
    pub fn is_socket(&self) -> bool {
        self.session.kind() != sojourn_session::KindT::Pipe
    }

    /// A UDP socket: it has calls of its own.
    #[inline]
    pub fn is_datagram(&self) -> bool {
        self.session.is_datagram()
    }

    /// Receives a datagram into at most [`crate::PARTS_MAX`] slices. `None`: the session has gone
    /// home; ask again where to go. The caller keeps the attempt until the call is over.
    pub fn receive_datagram(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        attempt: &mut Attempt,
    ) -> Option<Result<Got, Errno>> {
        self.session.receive_datagram(self.generation, bufs, how, attempt)
    }

    /// The kernel had a datagram, or an error, when [`Got::Kernel`] said to ask it.
    pub fn kernel_gave(&self) {
        self.session.kernel_gave();
    }

    /// Sends a datagram, or several of `segment` bytes each but the last; to the connected peer if
    /// no target is given. How many bytes. `None`: the kernel serves this call.
    pub fn send_datagram(
        &self,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Option<usize> {
        self.session.send_datagram(self.generation, bufs, target, segment)
    }

    /// Whether the number was closed, or given to something else, since the call began: then
    /// nothing more may be done with it.
    pub fn number_is_another(&self) -> bool {
        self.entry.version.load(Ordering::SeqCst) != self.version
    }

    /// Receives; `kernel` takes what is in the kernel still. `None`: the session has gone home; ask
    /// again where to go.
    #[inline]
    pub fn recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        kernel: &mut dyn FromKernel,
    ) -> Option<Result<usize, Errno>> {
        self.session.recv(self.generation, bufs, how, kernel)
    }

    /// Sends. `None` as above, or not yet away in this direction: the kernel serves this call.
    #[inline]
    pub fn send(&self, bufs: &[IoSlice<'_>], how: Send) -> Option<Result<usize, Errno>> {
        self.session.send(self.generation, bufs, how)
    }

    /// Sends from a file, at `offset` or where the file stands; moves whichever it is. `None` as
    /// above.
    pub fn send_file(
        &self,
        file: BorrowedFd<'_>,
        offset: Option<&mut u64>,
        count: usize,
    ) -> Option<Result<usize, Errno>> {
        self.session.send_file(self.generation, file, offset, count)
    }
}

impl Library {
    /// Where a receiving call goes.
    #[inline]
    pub fn reading(&self, fd: i32) -> Route<'_> {
        self.path(fd, Direction::Read)
    }

    /// Where a sending call goes.
    #[inline]
    pub fn writing(&self, fd: i32) -> Route<'_> {
        self.path(fd, Direction::Write)
    }

    #[inline]
    fn path(&self, fd: i32, way: Direction) -> Route<'_> {
        let Some(entry) = self.table.entry(fd) else { return Route::Plain };
        if entry.session.load(Ordering::Relaxed) == 0 {
            if entry.has(mark::FIXED) {
                if entry.has(mark::UNTOLD) {
                    self.count_kept(fd, entry);
                }
                return Route::Plain;
            }
            entry.enter(way);
            // SYNC: after `users`, before the call; pairs with the joiner's store of the session.
            if entry.session.load(Ordering::SeqCst) == 0 {
                return Route::Kernel(Use { library: self, entry, fd, way });
            }
            entry.leave(way);
        }
        self.session_path(fd, entry, way)
    }

    #[inline]
    fn session_path<'a>(&'a self, fd: i32, entry: &'a FdEntry, way: Direction) -> Route<'a> {
        let version = entry.version.load(Ordering::Relaxed);
        let Some((session, generation)) = self.own_session(entry) else {
            return self.path_after_recall(entry);
        };
        if way == Direction::Read && session.receives_at_home() {
            entry.enter(way);
            return Route::Kernel(Use { library: self, entry, fd, way });
        }
        if way == Direction::Write && !session.sends() {
            // Not switched yet: as before, and counted, so that nobody switches meanwhile.
            entry.enter(way);
            if session.kernel_may_send() {
                return Route::Kernel(Use { library: self, entry, fd, way });
            }
            entry.leave(way);
        }
        Route::Session(Call { session, generation, entry, version })
    }

    /// The session is another process's: a `fork` has brought us here.
    #[cold]
    fn path_after_recall(&self, entry: &FdEntry) -> Route<'_> {
        self.recall_from_parent(entry);
        Route::Plain
    }
}
