//! The residue: bytes that the peer owed when the stream was frozen, and how they are received,
//! from the ring while the peer has not begun its flush, or from the kernel.
//!
//! One exchange of one word decides between the two (`sojourn_stream::Stream::begin_flush`,
//! `take_unflushed`). So a call that finds bytes owed need not wait for a peer that does not run:
//! the call takes them itself, and the peer flushes the rest when it runs. Not here: waiting for
//! the kernel to have all of it before another process uses the descriptor (`home`). Read
//! `io::receive` and `docs/understand/streams.md`, "Going home", first.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::host::tcp_counts;
use crate::io::from_kernel::FromKernel;
use crate::process::library::OwnSession;
use crate::session::Session;
use crate::session::directions::{Receiver, Residue, RxPhase};
use crate::session::peeked::PEEKED_MAX;
use crate::session::received::{ReceiveTerms, Received};
use core::time::Duration;
use rustix::io::{Errno, IoSliceMut};
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;
use sojourn_stream::{Bell, Stream};

/// How long any call lets the peer's flush go on without a sleep: longer than the peer's system
/// call takes, which sends what a ring holds and wakes a thread.
const FLUSH_SPIN: Duration = Duration::from_micros(100);
/// How long a call that may wait sleeps after that, in case the peer's turn on the processor has
/// ended. A stopped peer is waited for no longer.
const FLUSH_WAIT: Duration = Duration::from_millis(100);

/// What the peer owes when it is the ring that is read.
#[derive(Clone, Copy, Debug)]
struct RestInRing {
    /// Bytes that the peer owed when the stream was frozen.
    owed: usize,
    /// The peer may still flush them.
    may_flush: bool,
}

/// The places of the bytes that the peer owes.
#[derive(Clone, Copy, Debug)]
struct OwedPlace<'s> {
    stream: &'s Stream,
    /// Bytes that the peer owed when the stream was frozen.
    owed: usize,
    /// Bytes of them that its flush, which is over, has brought into the kernel.
    flushed: Option<usize>,
    /// Bytes of them that come through the kernel.
    from_kernel: usize,
    /// All of them are in the ring: the peer has not begun its flush.
    is_in_ring: bool,
}

impl<'s> OwedPlace<'s> {
    fn new(stream: &'s Stream, owed: usize, flushed: Option<usize>) -> Self {
        let is_in_ring = flushed.is_none() && !stream.peer_flushes();
        Self { stream, owed, flushed, from_kernel: flushed.unwrap_or(owed).min(owed), is_in_ring }
    }

    /// Returns the number of owed bytes that are to be received from the kernel.
    fn still_in_kernel(&self, residue: &Residue) -> usize {
        if self.is_in_ring { 0 } else { self.from_kernel.saturating_sub(residue.since_freeze) }
    }
}

impl OwnSession<'_> {
    /// Waits for news of the peer's flush; returns false if there is none in time. In the middle
    /// of a flush the bytes, or some of them, are readable neither in the ring nor in the kernel.
    pub(crate) fn wait_for_flush(self, may_wait: bool) -> bool {
        let Some(stream) = self.stream() else { return false };
        let seen = match lock(&self.rx).phase {
            RxPhase::Residue(residue) => Some(residue.seen_news),
            _ => None,
        };
        let has_news = || match seen {
            Some(seen) => stream.flush_news() != seen,
            // No flush has begun: the carrier brings bytes that the kernel had, to the ring.
            None => stream.may_read(),
        };
        let (begun, until) = (now_ns(), self.library.patience.until(FLUSH_SPIN));
        while !has_news() && !until.is_over() {
            core::hint::spin_loop();
        }
        self.library.patience.waited_since(begun);
        if may_wait {
            sleep_until(&stream, has_news, Deadline::after(FLUSH_WAIT));
        } else if stream.peer_flushing().is_none() {
            // A poll may have reported bytes that are in neither place now, and the program would
            // take `EAGAIN` for a fault. A peer that has said how far it came has filled the
            // kernel: then nothing is hidden.
            let (begun, limit) = (now_ns(), self.pass_limit());
            sleep_until(&stream, has_news, self.library.patience.until(limit));
            self.library.patience.waited_since(begun);
        }
        has_news()
    }
}

impl Session {
    /// Returns true if a read may take owed bytes that are in the kernel now: a record that the
    /// peer wrote at once must not be cut because its halves reach the kernel one after the other.
    /// `wanted`: bytes that the kernel has by the end of the flush.
    fn is_whole(&self, stream: &Stream, wanted: usize) -> bool {
        // A peer that has not said how far it came is in its first system call, or between two. A
        // peer that has said so gives more when there is room, and a large read has to make that
        // room.
        stream.peer_flushing().is_some()
            && (wanted > kernel::PIPE_BUF || kernel::input_queue(self.number()) >= wanted)
    }

    /// Looks for owed bytes: those that the peer has flushed come from the kernel, then those that
    /// it could not flush from the ring, then all bytes from the kernel for good.
    pub(crate) fn look_for_rest(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        look: ReceiveTerms,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let peek = look.peek;
        let Receiver { phase: RxPhase::Residue(residue), peeked, .. } = rx else {
            return Received::Home;
        };
        let Ok(owed) = stream.peer_leftover() else {
            self.finish(rx);
            return Received::Home;
        };
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Received::Done(Ok(0));
        }
        // Before the look at the kernel, so that news during it is noticed.
        residue.seen_news = stream.flush_news();
        let flushed = residue.flushed(stream);
        // Where all owed bytes are in the kernel, in order, there is nothing to count any more
        // either.
        if residue.since_freeze >= owed || (flushed == Some(owed) && peeked.is_empty()) {
            self.finish(rx);
            return Received::Home;
        }
        if residue.is_unsure && !self.count_queued_before(residue, stream) {
            return Received::Owed;
        }
        // After the count: where the peer has not begun now, the count has nothing of a flush.
        let place = OwedPlace::new(stream, owed, flushed);
        if residue.before_owed + place.still_in_kernel(residue) == 0 {
            let rest = RestInRing { owed, may_flush: flushed.is_none() };
            return self.rest_from_ring(rx, stream, bufs, peek, rest);
        }
        self.rest_from_kernel(rx, place, bufs, look, kernel)
    }

    /// Receives from the kernel what is there before the owed bytes and of them.
    fn rest_from_kernel(
        &self,
        rx: &mut Receiver,
        place: OwedPlace<'_>,
        bufs: &mut [IoSliceMut<'_>],
        look: ReceiveTerms,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let (stream, peek) = (place.stream, look.peek);
        let Receiver { phase: RxPhase::Residue(residue), peeked, .. } = rx else {
            return Received::Home;
        };
        let room = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let is_in_both = room > residue.before_owed && place.is_in_ring;
        if is_in_both && peek && !look.may_cut {
            // Only in the kernel can a peek see what is there and what comes behind it.
            return Received::Owed;
        }
        // Where the flush has brought all, what the peer wrote since comes behind it in the kernel:
        // only what was peeked at is still to be laid over the first bytes.
        let wanted = match place.flushed == Some(place.owed) {
            true => room,
            false => room.min(residue.before_owed + place.still_in_kernel(residue)),
        };
        let may_cut = look.may_cut || place.flushed.is_some() || wanted <= residue.before_owed;
        if !may_cut && !self.is_whole(stream, wanted) {
            return Received::Owed;
        }
        match self.receive_some(bufs, wanted, peek, kernel) {
            Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) if place.flushed.is_none() => {
                // The peer died before its flush was done: the ring has the bytes that the kernel
                // has not.
                (residue.flushed, residue.before_owed) = (Some(residue.since_freeze), 0);
                let rest = RestInRing { owed: place.owed, may_flush: false };
                self.rest_from_ring(rx, stream, bufs, peek, rest)
            }
            Ok(len) => {
                if !peeked.is_empty() {
                    peeked.settle(bufs, len, peek);
                }
                if !peek {
                    residue.consume(len);
                }
                // The rest is in the ring: in all if the peer has not begun.
                let is_cut = match place.flushed {
                    Some(flushed) => {
                        flushed < place.owed && residue.since_freeze == place.from_kernel
                    }
                    None => is_in_both,
                };
                let is_part = is_cut && !peek && residue.before_owed == 0 && !kernel.has_ended();
                if is_part { Received::Part(len) } else { Received::Done(Ok(len)) }
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Owed,
            Err(error) => Received::Done(Err(error)),
        }
    }

    /// Makes `before_owed` exact. Returns false while the peer is in its flush.
    fn count_queued_before(&self, residue: &mut Residue, stream: &Stream) -> bool {
        match self.queued_before(stream) {
            // All bytes in the kernel count: none has been read since the freeze.
            Some(before) => residue.before_owed = before,
            // The peer died and cannot say how far its flush came; the kernel's end of file will
            // tell.
            None if self.peer_is_dead() => {}
            None => return false,
        }
        residue.is_unsure = false;
        true
    }

    /// Counts the bytes in the kernel that are older than the owed ones: all, before the peer
    /// flushes. `None` means that the peer is in its flush, and will say how far it came.
    pub(crate) fn queued_before(&self, stream: &Stream) -> Option<usize> {
        if let Some(sent) = stream.sent_before_flush() {
            return tcp_counts::queued_of_first(self.number(), sent);
        }
        let news = stream.flush_news();
        let said = stream.peer_flushed().or_else(|| stream.peer_flushing());
        let said = said.or_else(|| (!stream.peer_flushes()).then_some(0))?;
        let queued = kernel::input_queue(self.number());
        // If the peer flushed between the two looks, the same bytes would count on one side only.
        (stream.flush_news() == news).then(|| queued.saturating_sub(said))
    }

    /// Receives owed bytes that are not in the kernel. If the peer may still flush them, it is told
    /// how many no longer have to come that way.
    fn rest_from_ring(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        rest: RestInRing,
    ) -> Received {
        let Receiver { phase: RxPhase::Residue(residue), peeked, .. } = rx else {
            return Received::Home;
        };
        let (mut done, from) = (0, residue.since_freeze);
        let most = if peek { PEEKED_MAX } else { usize::MAX };
        for buf in bufs.iter_mut() {
            let len = buf.len().min(most - done);
            done += stream.copy_unflushed(from + done, &mut buf[..len]);
        }
        // The claim comes after the copy, and fails if the peer has begun its flush meanwhile.
        let takes = !peek && rest.may_flush;
        if takes && !stream.take_unflushed(from, done) {
            if stream.peer_flushes() {
                return Received::Owed;
            }
            // The word is neither the peer's nor this side's: the peer breaks the rules, and is not
            // relied on.
            residue.flushed = Some(from);
        }
        if (peek || !peeked.is_empty()) && !peeked.settle(bufs, done, peek) {
            return Received::Done(Err(Errno::NOBUFS));
        }
        if !peek {
            residue.since_freeze += done;
            if residue.since_freeze >= rest.owed {
                self.finish(rx);
            }
        }
        Received::Done(Ok(done))
    }
}

/// Sleeps until there is news, for the peer's next words to this side.
fn sleep_until(stream: &Stream, has_news: impl Fn() -> bool, until: Deadline) {
    while !has_news() && !until.is_over() {
        let said = stream.announce_reader(Bell::OnFutex);
        if !has_news() {
            stream.sleep_reader(said, until.left(), sojourn_shm::futex::wait);
        }
        stream.withdraw_reader();
    }
}
