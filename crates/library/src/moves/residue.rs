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
use crate::session::received::{Look, Received};
use core::time::Duration;
use rustix::io::{Errno, IoSliceMut};
use sojourn_shm::deadline::now_ns;
use sojourn_stream::{Bell, Stream};

/// How long a call that must not wait lets the peer's flush go on: longer than a system call that
/// sends what a ring holds, and wakes somebody, takes.
const FLUSH_LIMIT: Duration = Duration::from_micros(100);
/// The same of a call that may wait, for a peer whose turn on the processor has ended. One that has
/// been stopped is waited for no longer.
const FLUSH_WAIT: Duration = Duration::from_millis(100);

impl Session {
    /// Lets a flush of the peer's that has begun come to the kernel. Between the two the bytes,
    /// which are readable, are nowhere to be read, or some of them are.
    pub(crate) fn let_flush(&self, may_wait: bool) {
        let Some(stream) = self.stream() else { return };
        let seen = lock(&self.rx).seen_news;
        let has_news = || stream.flush_news() != seen;
        let (begun, until) = (now_ns(), library().patience.until(FLUSH_LIMIT));
        while !has_news() && !until.is_over() {
            core::hint::spin_loop();
        }
        library().patience.waited_since(begun);
        if may_wait && !has_news() {
            let said = stream.announce_reader(Bell::OnFutex);
            if !has_news() {
                stream.sleep_reader(said, Some(FLUSH_WAIT));
            }
            stream.withdraw_reader();
        }
    }

    /// Whether a read may take what the kernel has of the bytes owed: a record that the peer wrote
    /// at once is not cut because its two halves come to the kernel one after the other. `wanted`:
    /// bytes that the kernel has by the end of the flush.
    fn is_whole(&self, stream: &Stream, wanted: usize) -> bool {
        // A peer that has not said how far it came is in its first call, or between two. One that
        // has gives more when there is room, which takes a read where more is wanted.
        stream.peer_flushing().is_some()
            && (wanted > kernel::PIPE_BUF || kernel::input_queue(self.number()) >= wanted)
    }

    /// Frozen, and the peer owes bytes: from the kernel as many as it has flushed, then what it
    /// could not flush from the ring, then the kernel for good.
    pub(crate) fn look_for_rest(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        look: Look,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        let peek = look.peek;
        let Ok(owed) = stream.peer_leftover() else {
            self.finish(rx);
            return Received::Home;
        };
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Received::Done(Ok(0));
        }
        // Before the kernel is looked at.
        rx.seen_news = stream.flush_news();
        let flushed = flushed(stream, rx);
        // Where all of it is in the kernel, in order, nothing is left to be counted either.
        if rx.since_freeze >= owed || (flushed == Some(owed) && rx.peeked.is_empty()) {
            self.finish(rx);
            return Received::Home;
        }
        if rx.is_unsure {
            match self.queued_before(stream) {
                // Nothing has been read from the kernel since the freeze.
                Some(before) => rx.before_owed = before,
                // What a peer that has died has flushed, the kernel's end will tell.
                None if self.peer_is_dead() => {}
                None => return Received::Owed,
            }
            rx.is_unsure = false;
        }
        let has_begun = stream.peer_flushes();
        let from_kernel = flushed.unwrap_or(owed).min(owed);
        // Bytes owed that come through the kernel.
        let owed_there = match flushed {
            None if !has_begun => 0,
            _ => from_kernel.saturating_sub(rx.since_freeze),
        };
        if rx.before_owed + owed_there == 0 {
            return self.rest_from_ring(rx, stream, bufs, peek, (owed, flushed.is_none()));
        }
        let wanted = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let wanted = wanted.min(rx.before_owed + owed_there);
        let may_cut = look.may_cut || flushed.is_some() || wanted <= rx.before_owed;
        if !may_cut && !self.is_whole(stream, wanted) {
            return Received::Owed;
        }
        match self.receive_some(bufs, wanted, peek, kernel) {
            Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) if flushed.is_none() => {
                // It died before it was done: the ring has what the kernel has not.
                (rx.flushed, rx.before_owed) = (Some(rx.since_freeze), 0);
                self.rest_from_ring(rx, stream, bufs, peek, (owed, false))
            }
            Ok(len) => {
                if !rx.peeked.is_empty() {
                    rx.peeked.settle(bufs, len, peek);
                }
                if !peek {
                    let before = len.min(rx.before_owed);
                    rx.before_owed -= before;
                    rx.since_freeze += len - before;
                }
                let is_cut = flushed.is_some_and(|flushed| flushed < owed);
                match is_cut && !peek && rx.before_owed == 0 && rx.since_freeze == from_kernel {
                    true => Received::Part(len),
                    false => Received::Done(Ok(len)),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Owed,
            Err(error) => Received::Done(Err(error)),
        }
    }

    /// Bytes in the kernel that are nothing of what the peer owes: all of them, before it flushes.
    /// `None`: it is in the middle of that, and will say how far it came.
    pub(crate) fn queued_before(&self, stream: &Stream) -> Option<usize> {
        let news = stream.flush_news();
        let said = stream.peer_flushed().or_else(|| stream.peer_flushing());
        let said = said.or_else(|| (!stream.peer_flushes()).then_some(0))?;
        let queued = kernel::input_queue(self.number());
        // What it has put there between two looks would be counted on one side only.
        (stream.flush_news() == news).then(|| queued.saturating_sub(said))
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
