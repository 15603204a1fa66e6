//! Sending on a session: to the kernel until the switch, then to the ring.
//!
//! Read `docs/understand/streams.md`, "Moving out" (4). One thread at a time is here for a session,
//! by its lock; no wait happens under it.

use crate::fds::table::Direction;
use crate::host::kernel;
use crate::host::kernel::PIPE_BUF;
use crate::host::lock::lock;
use crate::io::call_flags::Send;
use crate::io::sleep::Waited;
use crate::policy::measured::RINGS;
use crate::process::library::library;
use crate::session::Session;
use crate::session::directions::{RxPhase, Sender, TxPhase, switch};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice};
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::{Deadline, Span};
use sojourn_stream::Stop;

/// How long a call that may wait leaves it at the ring's near part, in all, when the reader does
/// not keep up: going on in the far part costs both sides the processor's cache.
const PATIENCE: Duration = Duration::from_millis(1);

/// One call's waits for room.
struct ForRoom {
    may_wait: bool,
    /// The next time the ring is full it goes on in the far part.
    turns: bool,
    /// The end of the call's patience with the near part, once it has begun.
    patience: Option<Deadline>,
    /// When the call's time is over, once it has begun to wait.
    deadline: Option<Deadline>,
}

impl ForRoom {
    fn new(may_wait: bool) -> Self {
        Self { may_wait, turns: !may_wait, patience: None, deadline: None }
    }
}

enum Sent {
    Done(Result<usize, Errno>),
    /// No room.
    Full,
    Leave(ReasonT),
    /// The kernel serves this call: home, or not switched yet.
    Kernel,
}

impl Session {
    /// Sends. `None`: the kernel serves this call.
    pub(crate) fn send(
        &self,
        generation: u32,
        bufs: &[IoSlice<'_>],
        how: Send,
    ) -> Option<Result<usize, Errno>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let may_wait = !how.dont_wait && !self.is_nonblocking.load(Ordering::Relaxed);
        let at_least = self.atomic_len(wanted);
        let (mut sent, mut room) = (0, ForRoom::new(may_wait));
        loop {
            let result = match self.send_step(generation, bufs, sent, at_least) {
                Sent::Kernel => {
                    self.settle();
                    // Part of the bytes went the other way: the rest follows through the kernel at
                    // the next call.
                    return (sent > 0).then_some(Ok(sent));
                }
                Sent::Leave(reason) => {
                    self.leave(reason, false);
                    continue;
                }
                Sent::Done(Ok(len)) => {
                    sent += len;
                    self.have_sent();
                    if sent < wanted && !may_wait && !self.turn(generation) && !self.is_leaving() {
                        library().set_full(self);
                        return Some(Ok(sent));
                    }
                    if sent >= wanted {
                        if self.is_due.load(Ordering::Relaxed) {
                            self.is_due.store(false, Ordering::Relaxed);
                            self.measure(generation);
                        }
                        return Some(Ok(sent));
                    }
                    continue;
                }
                Sent::Done(Err(error)) => Err(error),
                Sent::Full => {
                    match self.wait_for_room(generation, &mut room, at_least, wanted - sent) {
                        Waited::Look => continue,
                        // As in the kernel: what has gone is told rather than the call restarted.
                        Waited::Restart if sent == 0 => continue,
                        Waited::TimedOut => Err(Errno::AGAIN),
                        Waited::Interrupted | Waited::Restart => Err(Errno::INTR),
                    }
                }
            };
            return Some(if sent > 0 { Ok(sent) } else { result });
        }
    }

    /// The ring is full: waits until it is to be looked at again, or says why the call ends.
    /// `at_least` bytes must go in one piece, of `left`.
    #[cold]
    fn wait_for_room(
        &self,
        generation: u32,
        room: &mut ForRoom,
        at_least: usize,
        left: usize,
    ) -> Waited {
        if room.turns && self.turn(generation) {
            return Waited::Look;
        }
        if !room.may_wait {
            library().set_full(self);
            return Waited::TimedOut;
        }
        let limit = self.send_timeout.load(Ordering::Relaxed);
        let mut until = *room.deadline.get_or_insert_with(|| Deadline::from_limit(limit));
        if !room.turns {
            until = until.min(*room.patience.get_or_insert_with(|| Deadline::after(PATIENCE)));
        }
        let waited = self.wait_writable(until, at_least, left);
        if !room.turns && waited != Waited::Look {
            room.turns = true;
            // Whatever has ended the wait: in the kernel there would have been none.
            if self.turn(generation) || waited == Waited::TimedOut {
                return Waited::Look;
            }
        }
        waited
    }

    /// Whether it was not want of room that has ended a write: the rest goes into the kernel.
    #[cold]
    fn is_leaving(&self) -> bool {
        self.stream().is_some_and(|stream| stream.is_frozen())
    }

    /// Bytes that must go in one piece.
    fn atomic_len(&self, wanted: usize) -> usize {
        let is_whole = matches!(self.kind(), KindT::Pipe | KindT::Unix) && wanted <= PIPE_BUF;
        if is_whole { wanted } else { 0 }
    }

    /// Goes on in the ring's far part, if it has one and that is not in use yet.
    #[cold]
    fn turn(&self, generation: u32) -> bool {
        let tx = lock(&self.tx);
        self.generation.load(Ordering::Relaxed) == generation
            && tx.phase == TxPhase::Ring
            && !self.is_carried()
            && tx.stream.as_ref().is_some_and(|stream| stream.turn())
    }

    fn send_step(
        &self,
        generation: u32,
        bufs: &[IoSlice<'_>],
        skip: usize,
        at_least: usize,
    ) -> Sent {
        let mut tx = lock(&self.tx);
        if self.generation.load(Ordering::Relaxed) != generation {
            return Sent::Kernel;
        }
        if skip == 0 {
            return self.put(&mut tx, bufs, at_least);
        }
        let mut before = 0;
        for buf in bufs {
            if skip < before + buf.len() {
                return self.put(&mut tx, &[IoSlice::new(&buf[skip - before..])], 0);
            }
            before += buf.len();
        }
        Sent::Done(Ok(0))
    }

    #[inline]
    fn put(&self, tx: &mut Sender, bufs: &[IoSlice<'_>], at_least: usize) -> Sent {
        if tx.phase == TxPhase::Flushing {
            return self.after_flush(tx);
        }
        if tx.phase != TxPhase::Ring && !self.switch(tx) {
            return Sent::Kernel;
        }
        let Some(stream) = &tx.stream else { return Sent::Kernel };
        // The kernel had an event: the peer may have gone. What a send then means the kernel knows
        // best.
        if self.tx_kernel_event.load(Ordering::Relaxed) && self.peer_is_gone() {
            return Sent::Leave(ReasonT::PeerDied);
        }
        self.note_writers_cpu(stream);
        if self.acknowledges.load(Ordering::Relaxed) {
            self.acknowledge();
        }
        match stream.write(bufs, at_least) {
            Ok(len) => {
                if stream.has_rung(RINGS) {
                    self.is_due.store(true, Ordering::Relaxed);
                }
                Sent::Done(Ok(len))
            }
            Err(Stop::Full) => Sent::Full,
            Err(Stop::Frozen) => Sent::Leave(ReasonT::PeerLeft),
            Err(Stop::Violation) => Sent::Leave(ReasonT::Violation),
            Err(Stop::Empty | Stop::NotOnRing | Stop::NotFrozen) => Sent::Kernel,
        }
    }

    /// While bytes still come through the kernel and our answers go to the ring, no answer takes
    /// acknowledgements along. Without one the peer cannot switch, and Nagle's algorithm holds its
    /// next small segment back until the kernel is tired of waiting (40 ms).
    #[cold]
    fn acknowledge(&self) {
        if lock(&self.rx).phase == RxPhase::Joined {
            kernel::acknowledge(self.number());
        } else {
            self.acknowledges.store(false, Ordering::Relaxed);
        }
    }

    /// What was sent before a return goes first.
    #[cold]
    fn after_flush(&self, tx: &mut Sender) -> Sent {
        // What the event was is an error by now, or nothing.
        self.tx_kernel_event.store(false, Ordering::SeqCst);
        if self.flush_on(tx) { Sent::Kernel } else { Sent::Full }
    }

    /// Whether sends go to the ring, by now at least. Not under the lock.
    #[inline]
    pub(crate) fn sends(&self) -> bool {
        self.tx_state.load(Ordering::Relaxed) == switch::RING || self.switch(&mut lock(&self.tx))
    }

    /// After [`crate::fds::table::FdEntry::enter`]: whether the kernel call may be made.
    #[inline]
    pub(crate) fn kernel_may_send(&self) -> bool {
        // SYNC: after `users`; pairs with the store in `switch`.
        self.tx_state.load(Ordering::SeqCst) == switch::KERNEL
    }

    /// Switches to the ring, if that may be now.
    #[cold]
    fn switch(&self, tx: &mut Sender) -> bool {
        let Some(stream) = &tx.stream else { return false };
        if tx.phase != TxPhase::Joined || stream.is_frozen() || !stream.has_consent() {
            return tx.phase == TxPhase::Ring;
        }
        // SYNC: before `users` is looked at; pairs with the load in `kernel_may_send`.
        self.tx_state.store(switch::UNDER_WAY, Ordering::SeqCst);
        // What is on its way to another host the carrier waits for.
        let has_arrived = self.is_carried() || kernel::has_arrived(self.number(), self.kind());
        if self.users(Direction::Write) > 0 || !has_arrived {
            self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
            return false;
        }
        stream.use_ring();
        tx.phase = TxPhase::Ring;
        self.tx_state.store(switch::RING, Ordering::SeqCst);
        if self.is_carried() {
            stream.attention();
        }
        true
    }

    /// For sessions that write seldom: switches without a write.
    pub(crate) fn switch_now(&self) {
        self.switch(&mut lock(&self.tx));
    }

    /// Whether the kernel says that nobody will read any more.
    fn peer_is_gone(&self) -> bool {
        // Cleared before looking, so that an event meanwhile is looked at next time.
        self.tx_kernel_event.store(false, Ordering::SeqCst);
        if self.is_carried() {
            // It is away from its socket, of which the carrier is told.
            return false;
        }
        let Ok(fd) = kernel::at(self.number()) else { return true };
        let wanted = kernel::hang_up(self.kind());
        kernel::poll(fd, wanted).map_or(true, |found| found.intersects(wanted))
    }

    /// Sends from a file, straight into the ring. `None`: the kernel serves this call.
    pub(crate) fn send_file(
        &self,
        generation: u32,
        file: BorrowedFd<'_>,
        offset: Option<&mut u64>,
        count: usize,
    ) -> Option<Result<usize, Errno>> {
        let may_wait = !self.is_nonblocking.load(Ordering::Relaxed);
        let mut at = offset;
        let (mut sent, mut room) = (0, ForRoom::new(may_wait));
        while sent < count {
            let result =
                match self.file_step(generation, file, at.as_deref().copied(), count - sent) {
                    Sent::Kernel => {
                        self.settle();
                        return (sent > 0).then_some(Ok(sent));
                    }
                    Sent::Done(Ok(0)) => break,
                    Sent::Leave(reason) => {
                        self.leave(reason, false);
                        continue;
                    }
                    Sent::Done(Ok(len)) => {
                        sent += len;
                        self.have_sent();
                        if let Some(at) = at.as_deref_mut() {
                            *at += len as u64;
                        }
                        continue;
                    }
                    Sent::Done(Err(error)) => Err(error),
                    Sent::Full => {
                        match self.wait_for_room(generation, &mut room, 1, count - sent) {
                            Waited::Look => continue,
                            Waited::Restart if sent == 0 => continue,
                            Waited::TimedOut => Err(Errno::AGAIN),
                            Waited::Interrupted | Waited::Restart => Err(Errno::INTR),
                        }
                    }
                };
            return Some(if sent > 0 { Ok(sent) } else { result });
        }
        Some(Ok(sent))
    }

    fn file_step(
        &self,
        generation: u32,
        file: BorrowedFd<'_>,
        at: Option<u64>,
        max: usize,
    ) -> Sent {
        let mut tx = lock(&self.tx);
        let is_other = self.generation.load(Ordering::Relaxed) != generation;
        if tx.phase == TxPhase::Flushing && !is_other {
            return self.after_flush(&mut tx);
        }
        if is_other || (tx.phase != TxPhase::Ring && !self.switch(&mut tx)) {
            return Sent::Kernel;
        }
        let Some(stream) = &tx.stream else { return Sent::Kernel };
        if self.tx_kernel_event.load(Ordering::Relaxed) && self.peer_is_gone() {
            return Sent::Leave(ReasonT::PeerDied);
        }
        if self.acknowledges.load(Ordering::Relaxed) {
            self.acknowledge();
        }
        let read = |span: Span<'_>| sojourn_shm::descriptor::read_into(file, at, span);
        match stream.write_with(max, read) {
            Ok(result) => Sent::Done(result),
            Err(Stop::Full) => Sent::Full,
            Err(Stop::Frozen) => Sent::Leave(ReasonT::PeerLeft),
            Err(_) => Sent::Leave(ReasonT::Violation),
        }
    }
}
