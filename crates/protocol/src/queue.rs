//! The calls that wait at a session: receivers, in the order in which they came, and waiters for
//! events; and the clients that watch for events. Pure.
//!
//! A receiver is answered at once with the bytes that are there, if none waits before it. A later
//! look ([`Queue::serve`]) answers all calls that can be answered, and returns the events for which
//! others still wait. Bytes may be looked at, and taken after the answer; of datagrams the next
//! look may find another one (they come by two queues, see `sojourn_library`), so each is taken
//! first, and kept if its receiver has gone. Not here: the lock around a queue and the sleep
//! (`session`, `watcher`), the socket (`calls`).

use crate::buffer::{Buffer, Envelope, FilledBuffer};
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
    /// Returns true if what is received is datagrams, each with its envelope.
    fn has_datagrams(&self) -> bool;
    /// Takes the bytes that are there, `room` at most, or one datagram; with `peek` they stay.
    ///
    /// # Errors
    /// Those of recv(2); `EAGAIN` if there are none.
    fn receive(&self, buffer: &mut Buffer, room: usize, peek: bool) -> Result<usize, Errno>;
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
    /// Answers the call: with the bytes, as many as it takes, and the envelope of a datagram.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more: the bytes are the next one's.
    fn answer(self, status: u32, data: &[u8], envelope: &Envelope) -> Result<(), Gone>;
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

/// A call that waits for events.
#[derive(Debug)]
struct Waiting<W> {
    client: ClientId,
    events: u32,
    waiter: W,
}

/// A client, and the events that it watches for, or that have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientEvents {
    pub(crate) client: ClientId,
    pub(crate) events: u32,
}

/// A datagram that was taken out for nobody.
#[derive(Debug)]
struct Unclaimed {
    bytes: Vec<u8>,
    envelope: Envelope,
}

/// A session's data, for those who wait.
pub(crate) struct Source<'a, D> {
    pub(crate) data: &'a D,
    /// Others may receive, too, so that no byte may go to a receiver that has gone.
    pub(crate) is_shared: bool,
}

impl<D> Clone for Source<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Source<'_, D> {}

/// The calls that wait at a session. Either no receiver waits, or the session had no bytes at the
/// last look.
#[derive(Debug)]
pub(crate) struct Queue<R, W> {
    receivers: VecDeque<R>,
    waiters: Vec<Waiting<W>>,
    /// The clients that watch, each once.
    watches: Vec<ClientEvents>,
    /// The first bytes of the session that have been answered with and are still to be taken: while
    /// a session moves they may not be there for a moment.
    answered: usize,
    /// A datagram whose receiver had gone: the next one's.
    unclaimed: Option<Unclaimed>,
}

impl<R: Receiver, W: Waiter> Queue<R, W> {
    pub(crate) fn new() -> Self {
        Self {
            receivers: VecDeque::new(),
            waiters: Vec::new(),
            watches: Vec::new(),
            answered: 0,
            unclaimed: None,
        }
    }

    /// Serves a receiver now, or has it wait. `buffer` has room for any receiver.
    pub(crate) fn receive(
        &mut self,
        receiver: R,
        how: ReceiveMode,
        source: Source<'_, impl Data>,
        buffer: &mut Buffer,
    ) {
        let must_queue = !self.receivers.is_empty() && !how.peeks;
        let left = match must_queue {
            true => Some(receiver),
            false => self.answer(receiver, how.peeks, source, buffer),
        };
        match left {
            Some(receiver) if how.may_wait => self.receivers.push_back(receiver),
            Some(receiver) => fail(receiver, Errno::AGAIN),
            None => {}
        }
    }

    /// Has a call wait for events, unless one holds already or it waits for nothing.
    pub(crate) fn wait(&mut self, client: ClientId, waiter: W, events: u32, data: &impl Data) {
        let ready = self.ready(data, if events == 0 { KNOWN } else { events & KNOWN | ALWAYS });
        match ready {
            0 if events != 0 => {
                self.waiters.push(Waiting { client, events: events & KNOWN | ALWAYS, waiter });
            }
            ready => waiter.answer(0, ready),
        }
    }

    /// Sets the events that a client watches for; 0 ends the watch.
    pub(crate) fn watch(&mut self, client: ClientId, events: u32) {
        self.watches.retain(|watch| watch.client != client);
        if events != 0 {
            self.watches.push(ClientEvents { client, events: events & KNOWN | ALWAYS });
        }
    }

    /// Answers those who wait, as far as they can be answered now, and adds to `rung` what clients
    /// have watched for. Returns the events for which somebody still waits or watches.
    pub(crate) fn serve(
        &mut self,
        source: Source<'_, impl Data>,
        buffer: &mut Buffer,
        rung: &mut Vec<ClientEvents>,
    ) -> u32 {
        self.serve_receivers(source, buffer);
        let wanted = self.waiters.iter().map(|call| call.events);
        let wanted = wanted.chain(self.watches.iter().map(|watch| watch.events));
        let wanted = wanted.fold(0, |all, events| all | events);
        let ready = if wanted == 0 { 0 } else { self.ready(source.data, wanted) };
        if ready != 0 {
            for call in self.waiters.extract_if(.., |call| call.events & ready != 0) {
                call.waiter.answer(0, call.events & ready);
            }
            let fired = self.watches.extract_if(.., |watch| watch.events & ready != 0);
            rung.extend(fired.map(|one| ClientEvents { events: one.events & ready, ..one }));
        }
        self.interest()
    }

    /// Tells which of the events hold.
    fn ready(&self, data: &impl Data, events: u32) -> u32 {
        let unclaimed = if self.unclaimed.is_some() { READABLE & events } else { 0 };
        data.ready(events) | unclaimed
    }

    /// Receives what nobody has been answered with.
    fn look(
        &mut self,
        data: &impl Data,
        buffer: &mut Buffer,
        room: usize,
        keeps: bool,
    ) -> Result<usize, Errno> {
        // Bytes that are still to be taken hide those behind them.
        if !self.settle(data, buffer) {
            return Err(Errno::AGAIN);
        }
        let Some(Unclaimed { bytes, envelope }) = &self.unclaimed else {
            return data.receive(buffer, room, keeps);
        };
        let len = buffer.fill(bytes, envelope);
        if !keeps {
            self.unclaimed = None;
        }
        Ok(len)
    }

    /// Takes the bytes that have been answered with. Returns false if some are not there yet.
    pub(crate) fn settle(&mut self, data: &impl Data, buffer: &mut Buffer) -> bool {
        while self.answered > 0 {
            match data.receive(buffer, self.answered, false) {
                Err(Errno::AGAIN) => return false,
                Ok(taken) if taken > 0 => self.answered = self.answered.saturating_sub(taken),
                // The session has ended, and has no bytes any more.
                _ => self.answered = 0,
            }
        }
        true
    }

    /// Answers a receiver with what is there. Returns it if there is nothing.
    fn answer(
        &mut self,
        receiver: R,
        peeks: bool,
        source: Source<'_, impl Data>,
        buffer: &mut Buffer,
    ) -> Option<R> {
        let Source { data, is_shared } = source;
        let has_datagrams = data.has_datagrams();
        let answers_first = !has_datagrams && (is_shared || receiver.is_answered_first());
        let keeps = peeks || answers_first;
        match self.look(data, buffer, receiver.size(), keeps) {
            Err(Errno::AGAIN) => return Some(receiver),
            Err(error) => fail(receiver, error),
            Ok(count) => {
                let FilledBuffer { bytes, envelope } = buffer.filled(count);
                let is_answered = receiver.answer(0, bytes, envelope).is_ok();
                if is_answered && answers_first && !peeks {
                    self.answered = count;
                    self.settle(data, buffer);
                } else if !is_answered && has_datagrams && !peeks {
                    self.unclaimed = Some(Unclaimed { bytes: bytes.to_vec(), envelope: *envelope });
                }
            }
        }
        None
    }

    fn serve_receivers(&mut self, source: Source<'_, impl Data>, buffer: &mut Buffer) {
        while let Some(first) = self.receivers.pop_front() {
            if let Some(left) = self.answer(first, false, source, buffer) {
                return self.receivers.push_front(left);
            }
        }
    }

    /// Ends the calls of a client that wait for bytes.
    pub(crate) fn cancel(&mut self, client: ClientId) {
        let all = core::mem::take(&mut self.receivers).into_iter();
        let (theirs, others): (VecDeque<R>, _) =
            all.partition(|receiver| receiver.client() == client);
        self.receivers = others;
        theirs.into_iter().for_each(|receiver| fail(receiver, Errno::INTR));
    }

    /// Ends all calls and watches of clients that have no part in the session any more. Others may
    /// have theirs for long, and calls of those who come and go would become ever more.
    pub(crate) fn leave(&mut self, clients: &[ClientId]) {
        let all = core::mem::take(&mut self.receivers).into_iter();
        let (theirs, others): (VecDeque<R>, _) =
            all.partition(|receiver| clients.contains(&receiver.client()));
        self.receivers = others;
        theirs.into_iter().for_each(|receiver| fail(receiver, Errno::BADF));
        for call in self.waiters.extract_if(.., |call| clients.contains(&call.client)) {
            call.waiter.answer(number(Errno::BADF), 0);
        }
        self.watches.retain(|watch| !clients.contains(&watch.client));
    }

    /// Returns the events for which somebody waits or watches.
    pub(crate) fn interest(&self) -> u32 {
        let receiving = if self.receivers.is_empty() { 0 } else { READABLE };
        let waiting = self.waiters.iter().map(|call| call.events);
        let watching = self.watches.iter().map(|watch| watch.events);
        waiting.chain(watching).fold(receiving, |all, events| all | events)
    }

    /// Counts the calls that wait, and the watches.
    pub(crate) fn len(&self) -> usize {
        self.receivers.len() + self.waiters.len() + self.watches.len()
    }

    /// Answers all that wait with an error; watches end with `FAILED`.
    pub(crate) fn end(&mut self, status: Errno, rung: &mut Vec<ClientEvents>) {
        self.receivers.drain(..).for_each(|receiver| fail(receiver, status));
        for call in self.waiters.drain(..) {
            call.waiter.answer(number(status), 0);
        }
        let all = self.watches.drain(..);
        rung.extend(all.map(|watch| ClientEvents { events: FAILED, ..watch }));
    }
}

/// Answers a receiver with an error.
fn fail(receiver: impl Receiver, error: Errno) {
    ignore(receiver.answer(number(error), &[], &Envelope::NONE));
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
