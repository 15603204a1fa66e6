//! The calls that wait at a session: receivers, in the order in which they came, and waiters for
//! events; and the clients that watch for events. Pure.
//!
//! A receiver is answered at once with the bytes that are there, if none waits before it. A later
//! look ([`Queue::serve`]) answers all calls that can be answered, and returns the events for which
//! others still wait. Not here: the lock around a queue and the sleep (`session`, `watcher`),
//! the socket (`calls`).

use rustix::io::Errno;
use sojourn_ipc::{ClientId, Gone};
use sojourn_session::protocol::server::{
    ANSWER_FIRST, DONT_WAIT, FAILED, HUNG_UP, PEEK, PEER_DONE, READABLE, WRITABLE,
};
use std::collections::VecDeque;

/// Events that are always waited for, as by poll(2).
const ALWAYS: u32 = FAILED | HUNG_UP;
/// Events that can be waited for.
const KNOWN: u32 = READABLE | WRITABLE | PEER_DONE | ALWAYS;

/// The data of a session. Nothing of it waits.
pub(crate) trait Data {
    /// Takes the bytes that are there, as many as fit; with `peek` they stay.
    ///
    /// # Errors
    /// Those of recv(2); `EAGAIN` if there are none.
    fn receive(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno>;
    /// Tells which of the events hold.
    fn ready(&self, events: u32) -> u32;
}

/// A call that waits for bytes.
pub(crate) trait Receiver {
    /// Returns the most bytes that it takes.
    fn size(&self) -> usize;
    /// Returns the connection that it came by.
    fn client(&self) -> ClientId;
    /// Returns true if the bytes are to be taken only after the answer.
    fn is_answered_first(&self) -> bool;
    /// Answers the call.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more: the bytes are the next one's.
    fn answer(self, status: u32, data: &[u8]) -> Result<(), Gone>;
}

/// A call that waits for events.
pub(crate) trait Waiter {
    /// Answers the call. A caller that has gone needs no answer.
    fn answer(self, status: u32, ready: u32);
}

/// The mode of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveMode {
    peeks: bool,
    may_wait: bool,
    pub(crate) is_answered_first: bool,
}

impl ReceiveMode {
    /// Reads the flags of `receive`; unknown ones are ignored.
    pub(crate) fn of(flags: u32) -> Self {
        // A receiver that peeks and waits would be served again and again by one and the same byte.
        let peeks = flags & PEEK != 0;
        let may_wait = !peeks && flags & DONT_WAIT == 0;
        Self { peeks, may_wait, is_answered_first: flags & ANSWER_FIRST != 0 }
    }
}

/// The calls that wait at a session. Either no receiver waits, or the session had no bytes at the
/// last look.
#[derive(Debug)]
pub(crate) struct Queue<R, W> {
    receivers: VecDeque<R>,
    waiters: Vec<(u32, W)>,
    /// The clients that watch, each once, and the events that each watches for.
    watches: Vec<(ClientId, u32)>,
    /// The first bytes of the session that have been answered with and are still to be taken: while
    /// a session moves they may not be there for a moment.
    answered: usize,
}

impl<R: Receiver, W: Waiter> Queue<R, W> {
    pub(crate) fn new() -> Self {
        Self { receivers: VecDeque::new(), waiters: Vec::new(), watches: Vec::new(), answered: 0 }
    }

    /// Serves a receiver now, or has it wait. `is_shared`: others may receive, too, so that no byte
    /// may go to a receiver that has gone. `buffer` has room for any receiver.
    pub(crate) fn receive(
        &mut self,
        receiver: R,
        how: ReceiveMode,
        (data, is_shared): (&impl Data, bool),
        buffer: &mut [u8],
    ) {
        let must_queue = !self.receivers.is_empty() && !how.peeks;
        let again = Err(Errno::AGAIN);
        let len = receiver.size().min(buffer.len());
        let keeps = is_shared || receiver.is_answered_first();
        let found = if must_queue {
            again
        } else {
            self.look(data, &mut buffer[..len], keeps || how.peeks)
        };
        match found {
            Err(Errno::AGAIN) if how.may_wait => self.receivers.push_back(receiver),
            Ok(count) => {
                let is_taken = receiver.answer(0, &buffer[..count]).is_ok();
                if is_taken && keeps && !how.peeks {
                    self.answered = count;
                    self.settle(data, buffer);
                }
            }
            Err(error) => ignore(receiver.answer(number(error), &[])),
        }
    }

    /// Has a call wait for events, unless one holds already or it waits for nothing.
    pub(crate) fn wait(&mut self, waiter: W, events: u32, data: &impl Data) {
        let ready = data.ready(if events == 0 { KNOWN } else { events & KNOWN | ALWAYS });
        match ready {
            0 if events != 0 => self.waiters.push((events & KNOWN | ALWAYS, waiter)),
            ready => waiter.answer(0, ready),
        }
    }

    /// Sets the events that a client watches for; 0 ends the watch.
    pub(crate) fn watch(&mut self, client: ClientId, events: u32) {
        self.watches.retain(|(watching, _)| *watching != client);
        if events != 0 {
            self.watches.push((client, events & KNOWN | ALWAYS));
        }
    }

    /// Answers those who wait, as far as they can be answered now, and adds to `rung` what clients
    /// have watched for. Returns the events for which somebody still waits or watches.
    pub(crate) fn serve(
        &mut self,
        (data, is_shared): (&impl Data, bool),
        buffer: &mut [u8],
        rung: &mut Vec<(ClientId, u32)>,
    ) -> u32 {
        self.serve_receivers(data, is_shared, buffer);
        let wanted = self.waiters.iter().map(|(events, _)| events);
        let wanted = wanted.chain(self.watches.iter().map(|(_, events)| events));
        let wanted = wanted.fold(0, |all, events| all | events);
        let ready = if wanted == 0 { 0 } else { data.ready(wanted) };
        if ready != 0 {
            for (events, waiter) in self.waiters.extract_if(.., |(events, _)| *events & ready != 0)
            {
                waiter.answer(0, events & ready);
            }
            let fired = self.watches.extract_if(.., |(_, events)| *events & ready != 0);
            rung.extend(fired.map(|(client, events)| (client, events & ready)));
        }
        self.interest()
    }

    /// Receives bytes that nobody has been answered with.
    fn look(&mut self, data: &impl Data, buffer: &mut [u8], keeps: bool) -> Result<usize, Errno> {
        // Bytes that are still to be taken hide those behind them.
        if !self.settle(data, buffer) {
            return Err(Errno::AGAIN);
        }
        data.receive(buffer, keeps)
    }

    /// Takes the bytes that have been answered with. Returns false if some are not there yet.
    pub(crate) fn settle(&mut self, data: &impl Data, buffer: &mut [u8]) -> bool {
        while self.answered > 0 && !buffer.is_empty() {
            let len = self.answered.min(buffer.len());
            match data.receive(&mut buffer[..len], false) {
                Err(Errno::AGAIN) => return false,
                Ok(taken) if taken > 0 => self.answered -= taken,
                // The session has ended, and has no bytes any more.
                _ => self.answered = 0,
            }
        }
        self.answered == 0
    }

    fn serve_receivers(&mut self, data: &impl Data, is_shared: bool, buffer: &mut [u8]) {
        while let Some(first) = self.receivers.pop_front() {
            let len = first.size().min(buffer.len());
            let keeps = is_shared || first.is_answered_first();
            match self.look(data, &mut buffer[..len], keeps) {
                Err(Errno::AGAIN) => return self.receivers.push_front(first),
                Ok(count) => {
                    if first.answer(0, &buffer[..count]).is_ok() && keeps {
                        self.answered = count;
                        self.settle(data, buffer);
                    }
                }
                Err(error) => ignore(first.answer(number(error), &[])),
            }
        }
    }

    /// Ends the calls of a client that wait for bytes.
    pub(crate) fn cancel(&mut self, client: ClientId) {
        let all = core::mem::take(&mut self.receivers).into_iter();
        let (theirs, others): (VecDeque<R>, _) =
            all.partition(|receiver| receiver.client() == client);
        self.receivers = others;
        for receiver in theirs {
            ignore(receiver.answer(number(Errno::INTR), &[]));
        }
    }

    /// Returns the events for which somebody waits or watches.
    pub(crate) fn interest(&self) -> u32 {
        let receiving = if self.receivers.is_empty() { 0 } else { READABLE };
        let waiting = self.waiters.iter().map(|(events, _)| events);
        let watching = self.watches.iter().map(|(_, events)| events);
        waiting.chain(watching).fold(receiving, |all, events| all | events)
    }

    /// Answers all that wait with an error; watches end with `FAILED`.
    pub(crate) fn end(&mut self, status: Errno, rung: &mut Vec<(ClientId, u32)>) {
        for receiver in self.receivers.drain(..) {
            ignore(receiver.answer(number(status), &[]));
        }
        for (_, waiter) in self.waiters.drain(..) {
            waiter.answer(number(status), 0);
        }
        rung.extend(self.watches.drain(..).map(|(client, _)| (client, FAILED)));
    }
}

/// Ignores that no caller waits any more: a client that has gone needs no answer.
pub(crate) fn ignore(_: Result<(), Gone>) {}

/// Returns an error's number as statuses have it.
pub(crate) fn number(error: Errno) -> u32 {
    error.raw_os_error().cast_unsigned()
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
