//! Receiving what the peer owed when the stream was frozen: from the ring, while the peer has not
//! begun to put it into the kernel, or from the kernel.
//!
//! One exchange of one word decides between the two (`sojourn_stream::Stream::begin_flush`,
//! `take_unflushed`), so a call that finds bytes owed need not wait for a peer that does not run:
//! it takes them itself, and the peer puts the rest into the kernel when it gets to it. Read
//! `receive` and `docs/understand/streams.md`, "Going home", first. Not here: waiting for the
//! kernel to have all of it before somebody else uses the descriptor (`home`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::io::from_kernel::FromKernel;
use crate::process::library::library;
use crate::session::Session;
use crate::session::directions::Receiver;
use crate::session::owed::flushed;
use crate::session::peeked::PEEKED_MAX;
use crate::session::received::Received;
use core::time::Duration;
use rustix::io::{Errno, IoSliceMut};
use sojourn_shm::deadline::now_ns;
use sojourn_stream::Stream;

/// How long a call that must not wait lets the peer's flush go on: longer than a system call that
/// sends what a ring holds, and wakes somebody, takes.
const FLUSH_LIMIT: Duration = Duration::from_micros(100);

impl Session {
    /// Lets a flush of the peer's that has begun come to the kernel. Between the two the bytes,
    /// which are readable, are nowhere to be read.
    pub(crate) fn spin_for_flush(&self) {
        let Some(stream) = self.stream() else { return };
        let seen = lock(&self.rx).seen_news;
        let (begun, until) = (now_ns(), library().patience.until(FLUSH_LIMIT));
        while stream.flush_news() == seen && !until.is_over() {
            core::hint::spin_loop();
        }
        library().patience.waited_since(begun);
    }

    /// Frozen, and the peer owes bytes: from the kernel as many as it has flushed, then what it
    /// could not flush from the ring, then the kernel for good.
    pub(crate) fn look_for_rest(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let Ok(owed) = stream.peer_leftover() else {
            self.finish(rx);
            return Received::Home;
        };
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Received::Done(Ok(0));
        }
        // Before the kernel is looked at.
        rx.seen_news = stream.flush_news();
        let flushing = stream.peer_flushing();
        let flushed = flushed(stream, rx);
        // Where all of it is in the kernel, in order, nothing is left to be counted either.
        if rx.since_freeze >= owed || (flushed == Some(owed) && rx.peeked.is_empty()) {
            self.finish(rx);
            return Received::Home;
        }
        let queued = if rx.is_unsure { kernel::input_queue(self.number()) } else { 0 };
        // What was in the kernel before that is nothing of what is owed.
        let has_begun = stream.peer_flushes();
        if rx.is_unsure {
            let said = flushed.or(flushing).or((!has_begun).then_some(0));
            match said {
                // Nothing has been read from the kernel since, nor written there but this.
                Some(0) if !has_begun => rx.before_owed = queued,
                Some(said) => {
                    rx.before_owed = kernel::input_queue(self.number()).saturating_sub(said)
                }
                // What a peer that has died has flushed, the kernel's end will tell.
                None if self.peer_is_dead() => {}
                None => return Received::Owed,
            }
            rx.is_unsure = false;
        }
        if rx.before_owed > 0
            && let Ok(len @ 1..) = self.receive_some(bufs, rx.before_owed, peek, kernel)
        {
            rx.before_owed -= if peek { 0 } else { len };
            return Received::Done(Ok(len));
        }
        let from_kernel = flushed.unwrap_or(owed).min(owed);
        if (flushed.is_none() && !has_begun) || rx.since_freeze >= from_kernel {
            return self.rest_from_ring(rx, stream, bufs, peek, (owed, flushed.is_none()));
        }
        let len = from_kernel - rx.since_freeze;
        match self.receive_some(bufs, len, peek, kernel) {
            Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) if flushed.is_none() => {
                // It died before it was done: the ring has what the kernel has not.
                rx.flushed = Some(rx.since_freeze);
                self.rest_from_ring(rx, stream, bufs, peek, (owed, false))
            }
            Ok(len) => {
                if !rx.peeked.is_empty() {
                    rx.peeked.settle(bufs, len, peek);
                }
                rx.since_freeze += if peek { 0 } else { len };
                Received::Done(Ok(len))
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Owed,
            Err(error) => Received::Done(Err(error)),
        }
    }

    /// What is owed and is not in the kernel. If the peer may still put it there, it is told how
    /// much of it need not come that way any more.
    fn rest_from_ring(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        (owed, may_flush): (usize, bool),
    ) -> Received {
        let (mut done, from) = (0, rx.since_freeze);
        let most = if peek { PEEKED_MAX } else { usize::MAX };
        for buf in bufs.iter_mut() {
            let len = buf.len().min(most - done);
            done += stream.copy_unflushed(from + done, &mut buf[..len]);
        }
        // As it was before the copy: meanwhile the peer may have put all of it into the kernel.
        let takes = !peek && may_flush;
        if takes && !stream.take_unflushed(from, done) {
            if stream.peer_flushes() {
                return Received::Owed;
            }
            // Whatever it has written there instead: it is not relied on any more.
            rx.flushed = Some(from);
        }
        if (peek || !rx.peeked.is_empty()) && !rx.peeked.settle(bufs, done, peek) {
            return Received::Done(Err(Errno::NOBUFS));
        }
        if !peek {
            rx.since_freeze += done;
            if rx.since_freeze >= owed {
                self.finish(rx);
            }
        }
        Received::Done(Ok(done))
    }
}
