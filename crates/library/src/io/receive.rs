//! Receiving on a session: from the kernel while bytes still come that way, then from the ring.
//!
//! One thread at a time looks for a session, under the lock of its receiving direction; no thread
//! waits under that lock. Not here: bytes that a peer owes after a freeze (`moves::residue`), and
//! the looks that differ where the peer is on another host (`io::receive_remote`). Read
//! `docs/understand/streams.md`, "Moving out" (4, 5) and "Going home".

use crate::fds::entry::Direction;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::io::call_flags::Recv;
use crate::io::from_kernel::{FromKernel, PARTS_MAX};
use crate::io::placement::Room;
use crate::io::sleep::Waited;
use crate::process::library::OwnSession;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::identity::Generation;
use crate::session::received::{ReceiveTerms, Received};
use crate::session::transport::Transport;
use core::sync::atomic::Ordering;
use rustix::io::{Errno, IoSliceMut};
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_stream::{Stop, Stream};

/// News of the peer's flush that a call awaits: it has begun, is under way, is over.
const FLUSHES_MAX: u32 = 3;

/// Returns the error that ends a receive after a wait; `None` to look again. `has_some`: the call
/// has received bytes. `is_last`: the time was over before the last look.
pub(crate) fn after_wait(
    waited: Waited,
    has_some: bool,
    until: Deadline,
    is_last: &mut bool,
) -> Option<Errno> {
    match waited {
        // When the time is over there is one more look, whatever ended the wait.
        Waited::Look if !*is_last => {
            *is_last = until.is_over();
            None
        }
        // signal(7): a call that has transferred bytes returns their number, and is not restarted.
        Waited::Restart if !has_some => None,
        Waited::TimedOut | Waited::Look => Some(Errno::AGAIN),
        Waited::Interrupted | Waited::Restart => Some(Errno::INTR),
    }
}

/// The time limit of a receive that waits (`SO_RCVTIMEO`).
#[derive(Default)]
struct ReceiveLimit {
    /// The end of the wait, from the first one on.
    until: Option<Deadline>,
    /// The time was over before the last look.
    is_last: bool,
}

/// A ring had nothing to read.
pub(super) struct NothingRead {
    pub(super) stop: Stop,
    /// The kernel had reported an event before the look.
    had_event: bool,
}

impl NothingRead {
    /// Returns what follows where the ring is not just empty.
    pub(super) fn leave(&self) -> Received {
        match self.stop {
            Stop::Frozen => Received::Leave(ReasonT::PeerLeft),
            _ => Received::Leave(ReasonT::Violation),
        }
    }
}

impl OwnSession<'_> {
    /// Receives. `None` means that the session is home and that the kernel serves this call.
    pub(crate) fn recv(
        self,
        generation: Generation,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        kernel: &mut dyn FromKernel,
    ) -> Option<Result<usize, Errno>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let may_wait = self.may_wait(how.dont_wait);
        let mut limit = ReceiveLimit::default();
        let (mut got, mut placed) = (0, 0);
        let (mut has_turned, mut flushes_awaited) = (false, 0);
        loop {
            let step = match core::mem::take(&mut placed) {
                0 => self.receive_step(
                    generation,
                    bufs,
                    got,
                    how.look(flushes_awaited >= FLUSHES_MAX),
                    kernel,
                ),
                len => Received::Done(Ok(len)),
            };
            let result = match step {
                // Packets that have arrived count as received, so they are taken in before the call
                // says that there is nothing.
                Received::Empty if !has_turned && self.is_delegated() => {
                    has_turned = true;
                    placed = self.turn_for(&Room::of(generation, bufs, got, how));
                    continue;
                }
                // Bytes already in the program's buffer cannot be given back; the next call gets
                // the kernel's.
                Received::Home => {
                    self.settle();
                    return (got > 0).then_some(Ok(got));
                }
                Received::Leave(reason) => {
                    self.leave(reason, false);
                    continue;
                }
                Received::Part(len) if got + len >= wanted => return Some(Ok(got + len)),
                Received::Part(len) => {
                    got += len;
                    continue;
                }
                Received::Done(Ok(0)) if wanted > 0 => return Some(Ok(got)),
                Received::Done(Ok(len)) => {
                    got += len;
                    let is_over = got >= wanted || how.peek || !how.wait_all;
                    if is_over || kernel.has_ended() || self.is_at_mark() {
                        self.settle_if_over();
                        return Some(Ok(got));
                    }
                    continue;
                }
                Received::Done(Err(error)) => {
                    // The error was the session's last answer; sleepers of this process wait for
                    // the kernel now.
                    self.settle();
                    Err(error)
                }
                // A poll may have reported the owed bytes, so the call that follows must find them,
                // and find them in one piece.
                Received::Owed if self.await_flush(may_wait, &mut flushes_awaited) => continue,
                // Another thread may have taken what was behind a part.
                Received::Empty | Received::Owed
                    if !may_wait || (got > 0 && (how.dont_wait || !how.wait_all)) =>
                {
                    Err(Errno::AGAIN)
                }
                Received::Empty | Received::Owed => {
                    let room = Room::of(generation, bufs, got, how);
                    match self.wait_to_receive(&room, got > 0, &mut limit) {
                        Ok(0) if !self.library.host().can_write(bufs) => Err(Errno::FAULT),
                        Ok(len) => {
                            placed = len;
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            return Some(if got > 0 { Ok(got) } else { result });
        }
    }

    /// Settles the session if it has ended with the bytes just received. That is rare, and the flag
    /// is cheaper to read than `settle` is to call.
    #[inline]
    fn settle_if_over(self) {
        if self.is_over.load(Ordering::Relaxed) {
            self.settle();
        }
    }

    /// Returns true if the kernel has given all up to a byte that is out of band, where it ends a
    /// call. The ring has no such bytes.
    fn is_at_mark(self) -> bool {
        self.kind() != KindT::Pipe
            && lock(&self.rx).phase != RxPhase::Ring
            && kernel::has_urgent(self.number())
    }

    /// Waits until there is something to look for. Returns the number of bytes that are in the
    /// call's room meanwhile. `has_some`: the call has received bytes before.
    fn wait_to_receive(
        self,
        room: &Room<'_>,
        has_some: bool,
        limit: &mut ReceiveLimit,
    ) -> Result<usize, Errno> {
        let timeout = || Deadline::from_limit(self.receive_timeout.load(Ordering::Relaxed));
        let until = *limit.until.get_or_insert_with(timeout);
        let waited = self.wait_readable(until, room);
        match (room.done(), after_wait(waited, has_some, until, &mut limit.is_last)) {
            (0, Some(error)) => Err(error),
            (placed, _) => Ok(placed),
        }
    }

    /// Waits for news of the peer's flush, of which `awaited` have come; returns false if the call
    /// has waited long enough.
    fn await_flush(self, may_wait: bool, awaited: &mut u32) -> bool {
        if *awaited >= FLUSHES_MAX {
            return false;
        }
        *awaited = if self.wait_for_flush(may_wait) { *awaited + 1 } else { FLUSHES_MAX };
        true
    }

    /// Looks once, into the buffers beyond their first `skip` bytes.
    fn receive_step(
        self,
        generation: Generation,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        look: ReceiveTerms,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let mut rx = lock(&self.rx);
        if !self.is_still(generation) {
            return Received::Home;
        }
        if skip == 0 {
            return self.look(&mut rx, bufs, look, kernel);
        }
        // What `MSG_WAITALL` waits for, and what follows a part.
        let mut rest: [_; PARTS_MAX] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut count, mut before) = (0, 0);
        for buf in bufs.iter_mut() {
            let done = skip.saturating_sub(before).min(buf.len());
            before += buf.len();
            if done < buf.len() && count < PARTS_MAX {
                rest[count] = IoSliceMut::new(&mut buf[done..]);
                count += 1;
            }
        }
        match count {
            0 => Received::Done(Ok(0)),
            _ => self.look(&mut rx, &mut rest[..count], look, kernel),
        }
    }

    #[inline]
    fn look(
        self,
        rx: &mut Receiver,
        bufs: &mut [IoSliceMut<'_>],
        look: ReceiveTerms,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        if rx.phase == RxPhase::Ring {
            match self.read_ring(rx, bufs, look.peek) {
                Ok(step) => return step,
                Err(Stop::Empty)
                    if rx.promised == 0 && !self.rx_kernel_event.load(Ordering::Relaxed) =>
                {
                    return Received::Empty;
                }
                Err(_) => {}
            }
        }
        self.look_further(rx, bufs, look, kernel)
    }

    /// Reads from the ring.
    #[inline]
    pub(super) fn read_ring(
        self,
        rx: &mut Receiver,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Stop> {
        let Some(stream) = &rx.stream else { return Ok(Received::Home) };
        self.note_look(stream);
        let Some(local) = self.local() else {
            let len = stream.read(bufs, peek)?;
            self.have_delivered(stream);
            return Ok(Received::Done(Ok(len)));
        };
        if local.has_lent(stream) {
            return Ok(Received::Empty);
        }
        let len = stream.read(bufs, peek)?;
        if (peek || !rx.peeked.is_empty()) && !rx.peeked.settle(bufs, len, peek) {
            // More bytes are peeked at than can be kept; at home the kernel keeps them.
            return Ok(Received::Leave(ReasonT::Operation));
        }
        Ok(Received::Done(Ok(len)))
    }

    #[cold]
    #[inline(never)]
    fn look_further(
        self,
        rx: &mut Receiver,
        bufs: &mut [IoSliceMut<'_>],
        look: ReceiveTerms,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let Some(stream) = rx.stream.clone() else { return Received::Home };
        match (rx.phase, self.transport()) {
            (RxPhase::Home, _) => Received::Home,
            (RxPhase::Joined, Transport::Local(_)) => {
                self.look_in_kernel_first(rx, &stream, bufs, look.peek, kernel)
            }
            (RxPhase::Ring, Transport::Local(_)) => self.look_at_ring(rx, &stream, bufs, look.peek),
            (RxPhase::Joined, _) => self.look_while_leaving(rx, &stream, bufs, look.peek, kernel),
            (RxPhase::Ring, _) => self.look_at_remote_ring(rx, &stream, bufs, look.peek),
            (RxPhase::Residue(_), _) => self.look_for_rest(rx, &stream, bufs, look, kernel),
            (RxPhase::Reset, _) => {
                // The kernel reports an error only after the bytes that came before it
                // (`tcp_recvmsg_locked`).
                if let Ok(len @ 1..) = self.receive_some(bufs, usize::MAX, look.peek, kernel) {
                    return Received::Done(Ok(len));
                }
                rx.is_reset = false;
                self.finish(rx);
                Received::Done(Err(Errno::CONNRESET))
            }
        }
    }

    /// Looks while the direction is joined: the kernel's bytes come before those of the ring.
    fn look_in_kernel_first(
        self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        if stream.is_frozen() {
            return Received::Leave(ReasonT::PeerLeft);
        }
        self.consent(stream);
        // The order matters: if the peer uses the ring *before* this look at the kernel, the kernel
        // holds all that it will ever hold.
        let uses_ring = stream.peer_uses_ring();
        let found = self.receive_at_kernel(bufs, peek, kernel);
        match found {
            // The kernel's last bytes: those of the ring belong to the same call, as they would in
            // the kernel.
            Ok(len @ 1..)
                if uses_ring
                    && len < bufs.iter().map(|buf| buf.len()).sum()
                    && !kernel.has_ended()
                    && stream.available().is_ok_and(|more| more > 0)
                    // The kernel has ended the call at such a byte; another would go past it.
                    && !crate::host::kernel::has_urgent(self.number()) =>
            {
                // A peek leaves the kernel's bytes where they are; only at home can it see both.
                if peek { Received::Leave(ReasonT::Operation) } else { Received::Part(len) }
            }
            Err(Errno::AGAIN) if uses_ring => {
                rx.phase = RxPhase::Ring;
                self.look_at_ring(rx, stream, bufs, peek)
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Empty,
            // The end, or an error, of a peer that had switched to its ring: the ring's bytes come
            // first.
            Ok(0) | Err(_) if uses_ring && stream.available().is_ok_and(|len| len > 0) => {
                rx.phase = RxPhase::Ring;
                rx.is_reset = found == Err(Errno::CONNRESET);
                self.note_kernel_event();
                self.look_at_ring(rx, stream, bufs, peek)
            }
            // An end without a freeze: the peer died. The bytes that it left unread in our ring
            // decide between an end and a reset.
            Ok(0) if bufs.iter().any(|buf| !buf.is_empty()) && !stream.is_frozen() => {
                Received::Leave(ReasonT::PeerDied)
            }
            other => Received::Done(other),
        }
    }

    /// Consents to the ring, once no thread of this process sits in the kernel for this session.
    /// Returns true if that is news.
    pub(crate) fn consent(self, stream: &Stream) -> bool {
        let consents = !stream.has_consented() && self.users(Direction::Read) == 0;
        if consents {
            stream.consent();
        }
        consents
    }

    /// Reads the ring. A kernel event is forgotten only if there is nothing: otherwise the next
    /// look finds it.
    #[inline]
    pub(super) fn read_ring_first(
        self,
        rx: &mut Receiver,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, NothingRead> {
        // Cleared before the look, so that an event during it is found by the next look.
        let had_event = self.rx_kernel_event.swap(false, Ordering::SeqCst);
        let read = self.read_ring(rx, bufs, peek).map_err(|stop| NothingRead { stop, had_event });
        if read.is_ok() && had_event {
            self.note_kernel_event();
        }
        read
    }

    /// Looks at the ring; when it is empty and the kernel has reported an event, asks the kernel
    /// why.
    fn look_at_ring(
        self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Received {
        match self.read_ring_first(rx, bufs, peek) {
            Ok(step) => return step,
            Err(NothingRead { stop: Stop::Empty, had_event: true }) => {}
            Err(NothingRead { stop: Stop::Empty, .. }) => return Received::Empty,
            Err(nothing) => return nothing.leave(),
        }
        let mut byte = [0];
        let peeked = &mut [IoSliceMut::new(&mut byte)];
        // The look must not take the error away: the call that follows at home returns it.
        let has_error = kernel::has_error(self.number());
        let found =
            if has_error { Ok(0) } else { kernel::peek(self.number(), self.kind(), peeked) };
        match found {
            Err(Errno::AGAIN | Errno::INTR) => Received::Empty,
            // The peer may have written these bytes before the end that the kernel has just
            // reported.
            _ if stream.available().is_ok_and(|len| len > 0) => {
                self.note_kernel_event();
                self.read_ring(rx, bufs, peek).unwrap_or(Received::Empty)
            }
            // The peer has ended, or has died.
            Ok(0) | Err(_) => {
                // Peeking has taken the error out of the socket, so the library has to return it.
                rx.is_reset |= found == Err(Errno::CONNRESET);
                Received::Leave(ReasonT::PeerDied)
            }
            // Bytes in the kernel while the peer uses the ring are another holder's: no stream any
            // more.
            Ok(_) => Received::Leave(ReasonT::SeveralHolders),
        }
    }
}
