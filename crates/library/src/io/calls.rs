//! The routing of data calls: to the kernel, with or without a count, or to the session.
//!
//! The shell asks before each data call and, if the kernel serves the call, reports the result. The
//! head of `fds::entry` says why things happen in this order. Not here: the calls of a session
//! (`receive`, `send`).

use crate::fds::entry::{CallCounts, Direction, FdEntry, mark};
use crate::io::call_flags::{Recv, Send};
use crate::io::datagrams::{Attempt, ReceiveOutcome, UdpSession};
use crate::io::from_kernel::FromKernel;
use crate::io::lend::{Amount, Lending};
use crate::process::library::{FoundSession, Library, OwnSession};
use crate::session::identity::Generation;
use crate::session::transport::{Transport, Udp};
use core::sync::atomic::Ordering;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use sojourn_shm::Deadline;
use std::net::SocketAddr;

/// The destination of a data call.
#[derive(Debug)]
pub enum Route<'a> {
    /// The kernel serves the call, and nothing is counted.
    Plain,
    /// The kernel serves the call; its result goes to [`Use::done`].
    Kernel(Use<'a>),
    /// The session serves the call, as a stream of bytes.
    Stream(Call<'a>),
    /// The session serves the call, as a UDP socket.
    Datagrams(DatagramCall<'a>),
}

/// A data call that the kernel serves, counted as such until this is dropped.
#[derive(Debug)]
pub struct Use<'a> {
    library: &'a Library,
    entry: &'a FdEntry,
    fd: i32,
    way: Direction,
}

impl Use<'_> {
    /// Reports the call's result: bytes, or a negative number. Counts them, and offers the
    /// descriptor if it has become hot.
    #[inline]
    pub fn done(self, result: isize) {
        if result > 0 {
            let CallCounts { calls, bytes } = self.entry.count(result as u64);
            // A session that is on its way out or home is not offered.
            let is_at_home = self.entry.session.load(Ordering::Relaxed).is_none();
            if is_at_home && self.library.policy.is_hot(calls, bytes) {
                self.library.became_hot(self.fd, self.entry);
            }
            // This thread may take numbers now: it is inside a call of the program's.
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

/// What the table said of a descriptor when its call began.
#[derive(Debug)]
struct Found<'a> {
    session: OwnSession<'a>,
    /// The slot's generation: the slot may have a new use by now.
    generation: Generation,
    entry: &'a FdEntry,
    /// The entry's version, for the same reason.
    version: u32,
}

impl Found<'_> {
    fn number_is_another(&self) -> bool {
        self.entry.version.load(Ordering::SeqCst) != self.version
    }
}

/// A data call that a session serves as a stream of bytes.
#[derive(Debug)]
pub struct Call<'a>(Found<'a>);

/// A data call that a session serves as a UDP socket.
#[derive(Debug)]
pub struct DatagramCall<'a> {
    found: Found<'a>,
    udp: &'a Udp,
}

impl DatagramCall<'_> {
    fn session(&self) -> UdpSession<'_> {
        let Found { session, generation, .. } = self.found;
        UdpSession { session, udp: self.udp, generation }
    }

    /// Receives a datagram into at most [`crate::PARTS_MAX`] slices. `None` means that the session
    /// has gone home: the caller asks for a new route. The caller keeps `attempt` until its call is
    /// over.
    pub fn receive(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        attempt: &mut Attempt,
    ) -> Option<Result<ReceiveOutcome, Errno>> {
        let session = self.session();
        match self.found.session.service.is_any() {
            true => session.receive_served(bufs, how, attempt),
            false => session.receive(bufs, how, attempt),
        }
    }

    /// Reports that the kernel had a datagram, or an error, when [`ReceiveOutcome::Kernel`] said to
    /// ask it.
    pub fn kernel_gave(&self) {
        self.found.session.kernel_gave();
    }

    /// Sends a datagram, or several of `segment` bytes each but the last; to the connected peer if
    /// there is no target. Returns the number of bytes. `None` means that the kernel serves this
    /// call.
    pub fn send(
        &self,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Option<Result<usize, Errno>> {
        let session = self.session();
        match self.found.session.service.is_any() {
            true => session.send_served(bufs, target, segment),
            false => session.send(bufs, target, segment).map(Ok),
        }
    }

    /// Returns true if the number was closed, or given to something else, since the call began:
    /// then the caller must not use it again.
    pub fn number_is_another(&self) -> bool {
        self.found.number_is_another()
    }
}

impl Call<'_> {
    /// Returns true if socket calls are allowed: the descriptor is not a pipe.
    #[inline]
    pub fn is_socket(&self) -> bool {
        self.0.session.kind() != sojourn_session::KindT::Pipe
    }

    /// Returns true if the number was closed, or given to something else, since the call began:
    /// then the caller must not use it again.
    pub fn number_is_another(&self) -> bool {
        self.0.number_is_another()
    }

    /// Receives; `kernel` takes bytes that are still in the kernel. `None` means that the session
    /// has gone home: the caller asks for a new route.
    #[inline]
    pub fn recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        kernel: &mut dyn FromKernel,
    ) -> Option<Result<usize, Errno>> {
        let Found { session, generation, .. } = self.0;
        let begun = session.begin_timed();
        let result = match session.service.is_any() {
            true => session.recv_served(generation, bufs, how),
            false => session.recv(generation, bufs, how, kernel),
        };
        if let Some(begun) = begun {
            session.end_timed(begun, result.as_ref());
        }
        result
    }

    /// Sends. `None` means that the kernel serves this call: the session has gone home, or this
    /// direction has not switched to the ring yet.
    #[inline]
    pub fn send(&self, bufs: &[IoSlice<'_>], how: Send) -> Option<Result<usize, Errno>> {
        let Found { session, generation, .. } = self.0;
        match session.service.is_any() {
            true => session.send_served(generation, bufs, how),
            false => session.send(generation, bufs, how),
        }
    }

    /// Lends bytes that have arrived, and waits for them.
    pub fn loan(&self, amount: Amount, until: Deadline) -> Lending {
        self.0.session.loan(self.0.generation, amount, until)
    }

    /// Lends room for bytes to be sent, and waits for it.
    pub fn reserve(&self, amount: Amount, until: Deadline) -> Lending {
        self.0.session.reserve(self.0.generation, amount, until)
    }

    /// Sends from a file, at `offset` or at the file's own position, and advances whichever was
    /// used. `None` means the same as for [`Call::send`].
    pub fn send_file(
        &self,
        file: BorrowedFd<'_>,
        offset: Option<&mut u64>,
        count: usize,
    ) -> Option<Result<usize, Errno>> {
        self.0.session.send_file(self.0.generation, file, offset, count)
    }
}

impl Library {
    /// Routes a receiving call.
    #[inline]
    pub fn reading(&self, fd: i32) -> Route<'_> {
        self.path(fd, Direction::Read)
    }

    /// Routes a sending call.
    #[inline]
    pub fn writing(&self, fd: i32) -> Route<'_> {
        self.path(fd, Direction::Write)
    }

    #[inline]
    fn path(&self, fd: i32, way: Direction) -> Route<'_> {
        let Some(entry) = self.table.entry(fd) else { return Route::Plain };
        if entry.session.load(Ordering::Relaxed).is_none() {
            if entry.has(mark::FIXED) {
                if entry.has(mark::UNTOLD) {
                    self.count_kept(fd, entry);
                }
                return Route::Plain;
            }
            entry.enter(way);
            // SYNC: after `users`, before the call; pairs with the joining thread's store of the
            // session.
            if entry.session.load(Ordering::SeqCst).is_none() {
                return Route::Kernel(Use { library: self, entry, fd, way });
            }
            entry.leave(way);
        }
        self.session_path(fd, entry, way)
    }

    #[inline]
    fn session_path<'a>(&'a self, fd: i32, entry: &'a FdEntry, way: Direction) -> Route<'a> {
        let version = entry.version.load(Ordering::Relaxed);
        let Some(FoundSession { session, generation }) = self.own_session(entry) else {
            return self.path_of_child(fd, entry, way);
        };
        if session.service.is_pending() && session.stays_in_kernel(entry, way) {
            return Route::Kernel(Use { library: self, entry, fd, way });
        }
        // Only the sending direction is still away (it is flushing): the kernel serves receives.
        if way == Direction::Read && session.receives_at_home() {
            entry.enter(way);
            return Route::Kernel(Use { library: self, entry, fd, way });
        }
        if way == Direction::Write && !session.sends() && !session.send_has_reset() {
            // This direction has not switched yet. The call is counted, so that no other thread
            // switches while it sits in the kernel.
            entry.enter(way);
            if session.kernel_may_send() {
                return Route::Kernel(Use { library: self, entry, fd, way });
            }
            entry.leave(way);
        }
        let found = Found { session, generation, entry, version };
        match session.session.transport() {
            Transport::Udp(udp) => Route::Datagrams(DatagramCall { found, udp }),
            Transport::Local(_) | Transport::RemoteTcp(_) => Route::Stream(Call(found)),
        }
    }

    /// Routes a call on a session that belongs to an ancestor: this process is a `fork` child. Of
    /// one that the protocol server serves it takes a part of its own; another one goes home.
    #[cold]
    fn path_of_child<'a>(&'a self, fd: i32, entry: &'a FdEntry, way: Direction) -> Route<'a> {
        if self.shares_service(fd, entry) && self.own_session(entry).is_some() {
            return self.session_path(fd, entry, way);
        }
        self.recall_from_parent(fd, entry);
        Route::Plain
    }
}
