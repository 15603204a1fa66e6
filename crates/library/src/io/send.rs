//! Sending on a session: to the kernel until the switch, then to the ring.
//!
//! One thread at a time sends for a session, under the lock of its sending direction; no thread
//! waits under that lock. Not here: going on with a flush (`moves::flush`). Read
//! `docs/understand/streams.md`, "Moving out" (4).

use crate::fds::entry::Direction;
use crate::host::kernel::{self, PIPE_BUF};
use crate::host::lock::lock;
use crate::io::call_flags::Send;
use crate::io::sleep::Waited;
use crate::policy::measured::RINGS;
use crate::process::library::OwnSession;
use crate::session::directions::{RxPhase, Sender, TxPhase, switch};
use crate::session::identity::Generation;
use crate::session::transport::Local;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice};
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::{Deadline, Span};
use sojourn_stream::Stop;

/// How long a call that may wait stays with the ring's near part, in all, when the reader does not
/// keep up: the far part costs both sides the processor's cache.
const PATIENCE: Duration = Duration::from_millis(1);

/// Buffers of a continued call that go into one write, as many as the shell passes at once.
const PARTS: usize = 16;

/// The state of one call's waits for room.
pub(in crate::io) struct ForRoom {
    may_wait: bool,
    /// The call goes on in the far part the next time the near part is full.
    turns: bool,
    /// The end of the call's patience with the near part, once it has had to wait.
    patience: Option<Deadline>,
    /// The end of the call's time (`SO_SNDTIMEO`), once it has had to wait.
    deadline: Option<Deadline>,
}

impl ForRoom {
    fn new(may_wait: bool) -> Self {
        Self { may_wait, turns: !may_wait, patience: None, deadline: None }
    }

    /// Of a call with a time limit of its own.
    pub(in crate::io) fn until(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline), ..Self::new(deadline != Deadline::NOW) }
    }
}

enum Sent {
    Done(Result<usize, Errno>),
    /// There is no room.
    Full,
    /// The session has to go home first.
    Leave(ReasonT),
    /// The kernel serves this call: the session is home, or has not switched to the ring yet.
    Kernel,
}

impl OwnSession<'_> {
    /// Sends. `None` means that the kernel serves this call.
    pub(crate) fn send(
        self,
        generation: Generation,
        bufs: &[IoSlice<'_>],
        how: Send,
    ) -> Option<Result<usize, Errno>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let may_wait = self.may_wait(how.dont_wait);
        let at_least = self.atomic_len(wanted);
        let local = self.local();
        let (mut sent, mut room) = (0, ForRoom::new(may_wait));
        loop {
            let result = match self.send_step(generation, bufs, sent, at_least, local) {
                Sent::Kernel => return self.go_on_in_kernel(generation, sent),
                Sent::Leave(reason) => {
                    self.leave(reason, false);
                    continue;
                }
                Sent::Done(Ok(len)) => {
                    sent += len;
                    if local.is_none() {
                        self.have_sent();
                    }
                    if sent < wanted && !may_wait && !self.turn(generation) && !self.is_leaving() {
                        if !self.leave_to_be_timed() {
                            self.library.set_full(&self);
                            self.await_room();
                        }
                        return Some(Ok(sent));
                    }
                    if sent >= wanted {
                        self.measure_if_due(generation, local);
                        return Some(Ok(sent));
                    }
                    continue;
                }
                Sent::Done(Err(error)) => Err(error),
                Sent::Full => {
                    match self.wait_for_room(generation, &mut room, at_least, wanted - sent) {
                        Waited::TimedOut => Err(Errno::AGAIN),
                        _ if !self.library.host().can_read(bufs) => Err(Errno::FAULT),
                        Waited::Look => continue,
                        // signal(7): a call that has transferred bytes returns their number, and is
                        // not restarted.
                        Waited::Restart if sent == 0 => continue,
                        Waited::Interrupted | Waited::Restart => Err(Errno::INTR),
                    }
                }
            };
            return Some(if sent > 0 { Ok(sent) } else { result });
        }
    }

    /// Has the session measured against the kernel if that is due. `local`: the state of a session
    /// of one host.
    fn measure_if_due(self, generation: Generation, local: Option<&Local>) {
        if let Some(local) = local
            && local.is_due.load(Ordering::Relaxed)
        {
            local.is_due.store(false, Ordering::Relaxed);
            self.measure(generation);
        }
    }

    /// Ends a call that has sent `sent` bytes. Returns their number, and the program's next call
    /// sends the rest through the kernel; `None` means that the kernel serves this call.
    #[cold]
    fn go_on_in_kernel(self, generation: Generation, sent: usize) -> Option<Result<usize, Errno>> {
        let is_reset = sent == 0 && self.send_is_reset(generation);
        self.settle();
        if is_reset {
            return Some(Err(Errno::CONNRESET));
        }
        (sent > 0).then_some(Ok(sent))
    }

    /// Waits for room after the ring was full; `Look` means that the caller tries again, the others
    /// end its call. Of `left` bytes the next `at_least` must go in one piece.
    #[cold]
    pub(in crate::io) fn wait_for_room(
        self,
        generation: Generation,
        room: &mut ForRoom,
        at_least: usize,
        left: usize,
    ) -> Waited {
        if room.turns && self.turn(generation) {
            return Waited::Look;
        }
        if (room.turns || !room.may_wait) && self.leave_to_be_timed() {
            return Waited::Look;
        }
        if !room.may_wait {
            self.library.set_full(&self);
            self.await_room();
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
            // The far part has room now. The wait that a handler interrupted would not have taken
            // place in the kernel, so the handler does not end the call.
            if self.turn(generation) || waited == Waited::TimedOut {
                return Waited::Look;
            }
        }
        waited
    }

    /// Returns true if a freeze, not want of room, has cut a write short: the rest goes to the
    /// kernel.
    #[cold]
    pub(in crate::io) fn is_leaving(self) -> bool {
        self.stream().is_some_and(|stream| stream.is_frozen())
    }

    /// Counts the bytes that must go in one piece.
    fn atomic_len(self, wanted: usize) -> usize {
        let is_whole = matches!(self.kind(), KindT::Pipe | KindT::Unix) && wanted <= PIPE_BUF;
        if is_whole { wanted } else { 0 }
    }

    /// Goes on in the ring's far part; returns false if there is none or it is in use already.
    #[cold]
    fn turn(self, generation: Generation) -> bool {
        let tx = lock(&self.tx);
        self.is_still(generation)
            && tx.phase == TxPhase::Ring
            && self.local().is_some_and(|local| !local.is_reserved.load(Ordering::Relaxed))
            && tx.stream.as_ref().is_some_and(|stream| stream.turn())
    }

    fn send_step(
        self,
        generation: Generation,
        bufs: &[IoSlice<'_>],
        skip: usize,
        at_least: usize,
        local: Option<&Local>,
    ) -> Sent {
        let mut tx = lock(&self.tx);
        if !self.is_still(generation) {
            return Sent::Kernel;
        }
        if skip == 0 {
            return self.put(&mut tx, bufs, at_least, local);
        }
        // The rest of the buffers goes in few writes: each would wake the peer.
        let (mut rest, mut count, mut before) = ([IoSlice::new(&[]); PARTS], 0, 0);
        for buf in bufs {
            let done = skip.saturating_sub(before).min(buf.len());
            before += buf.len();
            if done < buf.len() && count < PARTS {
                rest[count] = IoSlice::new(&buf[done..]);
                count += 1;
            }
        }
        if count == 0 { Sent::Done(Ok(0)) } else { self.put(&mut tx, &rest[..count], 0, local) }
    }

    #[inline]
    fn put(
        self,
        tx: &mut Sender,
        bufs: &[IoSlice<'_>],
        at_least: usize,
        local: Option<&Local>,
    ) -> Sent {
        if tx.phase == TxPhase::Flushing {
            return self.after_flush(tx);
        }
        if tx.phase != TxPhase::Ring && !self.switch(tx) {
            return Sent::Kernel;
        }
        let Some(stream) = &tx.stream else { return Sent::Kernel };
        // After an event of the kernel the peer may have gone. Then the kernel knows best what a
        // send returns.
        if self.tx_kernel_event.load(Ordering::Relaxed) && self.peer_is_gone() {
            return Sent::Leave(ReasonT::PeerDied);
        }
        self.note_writers_cpu(stream);
        self.note_call(stream);
        if let Some(local) = local {
            self.acknowledge(local);
            if local.has_reserved(stream) {
                return Sent::Full;
            }
        }
        match stream.write(bufs, at_least) {
            Ok(len) => {
                if let Some(local) = local.filter(|_| stream.has_rung(RINGS)) {
                    local.is_due.store(true, Ordering::Relaxed);
                }
                Sent::Done(Ok(len))
            }
            Err(Stop::Full) => Sent::Full,
            Err(Stop::Frozen) => Sent::Leave(ReasonT::PeerLeft),
            Err(Stop::Violation) => Sent::Leave(ReasonT::Violation),
            Err(Stop::Empty | Stop::NotOnRing | Stop::NotFrozen) => Sent::Kernel,
        }
    }

    /// Has the kernel acknowledge received bytes at once, as long as they come through the kernel.
    #[inline]
    pub(in crate::io) fn acknowledge(self, local: &Local) {
        if local.acknowledges.load(Ordering::Relaxed) {
            self.acknowledge_now(local);
        }
    }

    /// Acknowledges. While received bytes still come through the kernel and the answers go to the
    /// ring, no answer takes acknowledgements along. Without them the peer cannot switch, and
    /// Nagle's algorithm (RFC 9293 section 3.7.4) holds its next small segment back until the
    /// delayed acknowledgement, 40 ms later.
    #[cold]
    fn acknowledge_now(self, local: &Local) {
        if lock(&self.rx).phase == RxPhase::Joined {
            kernel::acknowledge(self.number());
        } else {
            local.acknowledges.store(false, Ordering::Relaxed);
        }
    }

    /// Goes on with a flush: the bytes sent before a return go first.
    #[cold]
    fn after_flush(self, tx: &mut Sender) -> Sent {
        // The event has become an error of the socket, which the flush leaves in place, or has
        // passed.
        self.tx_kernel_event.store(false, Ordering::SeqCst);
        if self.flush_on(tx) { Sent::Kernel } else { Sent::Full }
    }

    /// Returns true if sends go to the ring, and switches to it if that is possible now. The caller
    /// does not hold the lock.
    #[inline]
    pub(crate) fn sends(self) -> bool {
        self.tx_state.load(Ordering::Relaxed) == switch::RING || self.switch(&mut lock(&self.tx))
    }

    /// Returns true if the kernel's call may be made; called after
    /// [`crate::fds::entry::FdEntry::enter`].
    #[inline]
    pub(crate) fn kernel_may_send(self) -> bool {
        // SYNC: after `users`; pairs with the store in `switch`.
        self.tx_state.load(Ordering::SeqCst) == switch::KERNEL
    }

    /// Switches to the ring, if the conditions hold now; see the head of the file.
    #[cold]
    pub(in crate::io) fn switch(self, tx: &mut Sender) -> bool {
        let Some(stream) = &tx.stream else { return false };
        // The reader has not consented, or the session is on its way home.
        if tx.phase != TxPhase::Joined || stream.is_frozen() || !stream.has_consent() {
            return tx.phase == TxPhase::Ring;
        }
        let is_local = self.local().is_some();
        // What is written waits in the ring until the carrier has the session, which it gets from
        // a reader that is not in the kernel. One that sits there may wait for the answer to it.
        if !is_local && !stream.has_consented() {
            return false;
        }
        // SYNC: before `users` is looked at; pairs with the load in `kernel_may_send`.
        self.tx_state.store(switch::UNDER_WAY, Ordering::SeqCst);
        // The carrier waits for the acknowledgement of bytes on their way to another host.
        let has_arrived = !is_local || kernel::has_arrived(self.number(), self.kind());
        if self.users(Direction::Write) > 0 || !has_arrived {
            self.tx_state.store(switch::KERNEL, Ordering::SeqCst);
            return false;
        }
        stream.use_ring();
        tx.phase = TxPhase::Ring;
        self.tx_state.store(switch::RING, Ordering::SeqCst);
        if !is_local {
            stream.attention();
        }
        true
    }

    /// Switches without a write, for sessions that write seldom.
    pub(crate) fn switch_now(self) {
        self.switch(&mut lock(&self.tx));
    }

    /// Returns true if the kernel says that nobody will read any more.
    pub(in crate::io) fn peer_is_gone(self) -> bool {
        // Cleared before the look, so that an event during it is found by the next look.
        self.tx_kernel_event.store(false, Ordering::SeqCst);
        if self.local().is_none() {
            // The session is away from its socket, and the carrier hears of the socket's end.
            return false;
        }
        let Ok(fd) = kernel::at(self.number()) else { return true };
        let wanted = kernel::hang_up(self.kind());
        kernel::poll(fd, wanted).map_or(true, |found| found.intersects(wanted))
    }

    /// Sends from a file, straight into the ring. `None` means that the kernel serves this call.
    pub(crate) fn send_file(
        self,
        generation: Generation,
        file: BorrowedFd<'_>,
        offset: Option<&mut u64>,
        count: usize,
    ) -> Option<Result<usize, Errno>> {
        if self.service.is_any() {
            // The kernel sends files best.
            self.leave(ReasonT::Operation, false);
            return None;
        }
        let may_wait = self.may_wait(false);
        let local = self.local();
        let mut at = offset;
        let (mut sent, mut room) = (0, ForRoom::new(may_wait));
        while sent < count {
            let result =
                match self.file_step(generation, file, at.as_deref().copied(), count - sent) {
                    Sent::Kernel => return self.go_on_in_kernel(generation, sent),
                    Sent::Done(Ok(0)) => break,
                    Sent::Leave(reason) => {
                        self.leave(reason, false);
                        continue;
                    }
                    Sent::Done(Ok(len)) => {
                        sent += len;
                        if local.is_none() {
                            self.have_sent();
                        }
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
        self,
        generation: Generation,
        file: BorrowedFd<'_>,
        at: Option<u64>,
        max: usize,
    ) -> Sent {
        let mut tx = lock(&self.tx);
        let is_other = !self.is_still(generation);
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
        let local = self.local().inspect(|local| self.acknowledge(local));
        if local.is_some_and(|local| local.has_reserved(stream)) {
            return Sent::Full;
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
