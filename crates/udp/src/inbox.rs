//! A port's inbox: receivers that wait for a datagram, or datagrams that wait for a receiver. Pure.
//!
//! A datagram that is waited for is answered with at once, from where it lies. One that is not goes
//! into the queue with the memory it lies in, and its bringer goes on with memory that was spare:
//! so it is copied once in either case, into the message of whoever takes it. Nothing is allocated
//! but at the beginning. Not here: the lock around it; see `port`.

use crate::packet::PACKET_MAX;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use sojourn_ipc::Gone;
use std::collections::VecDeque;

/// Datagrams that wait at most; what comes then is lost, as a datagram may be.
pub(crate) const QUEUE_MAX: usize = 32;

/// Somebody who waits for a datagram.
pub(crate) trait Receiver {
    /// Hands it over, or the error number `status`.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more: the datagram is the next one's.
    fn answer(self, status: u32, from: SocketAddrV4, data: &[u8]) -> Result<(), Gone>;
}

/// A datagram, in memory that any would fit in.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddrV4,
    /// The packet, and whatever was there before behind it.
    pub(crate) bytes: Box<[u8]>,
    /// Where in it the payload is.
    pub(crate) payload: Range<usize>,
}

impl Datagram {
    /// None yet.
    pub(crate) fn empty() -> Self {
        Self { from: NOBODY, bytes: vec![0; PACKET_MAX].into(), payload: 0..0 }
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.get(self.payload.clone()).unwrap_or_default()
    }

    fn copy(&mut self, from: SocketAddrV4, data: &[u8]) {
        let len = data.len().min(self.bytes.len());
        self.bytes[..len].copy_from_slice(&data[..len]);
        (self.from, self.payload) = (from, 0..len);
    }
}

/// Where an error comes from.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// An inbox. Either nobody waits or the queue is empty.
#[derive(Debug)]
pub(crate) struct Inbox<R> {
    waiting: VecDeque<R>,
    queue: VecDeque<Datagram>,
    spare: Vec<Datagram>,
    /// What something that was sent ran into, until it is told.
    error: Option<u32>,
}

impl<R: Receiver> Inbox<R> {
    /// An empty one; `waiting_max` receivers wait at a time.
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(waiting_max),
            queue: VecDeque::with_capacity(QUEUE_MAX),
            spare: (0..QUEUE_MAX).map(|_| Datagram::empty()).collect(),
            error: None,
        }
    }

    /// A datagram from the network, in `datagram`: what is there afterwards is free for the next.
    pub(crate) fn arrive(&mut self, datagram: &mut Datagram) {
        if !self.answer(0, datagram.from, datagram.data())
            && let Some(spare) = self.spare.pop()
        {
            self.queue.push_back(core::mem::replace(datagram, spare));
        }
    }

    /// A datagram that somebody here sent.
    pub(crate) fn arrive_from_here(&mut self, from: SocketAddrV4, data: &[u8]) {
        if !self.answer(0, from, data)
            && let Some(mut spare) = self.spare.pop()
        {
            spare.copy(from, data);
            self.queue.push_back(spare);
        }
    }

    /// Something that was sent ran into error `status`.
    pub(crate) fn fail(&mut self, status: u32) {
        if !self.answer(status, NOBODY, &[]) {
            self.error = Some(status);
        }
    }

    /// Answers the first who still waits; `false` if nobody does.
    fn answer(&mut self, status: u32, from: SocketAddrV4, data: &[u8]) -> bool {
        while let Some(receiver) = self.waiting.pop_front() {
            if receiver.answer(status, from, data).is_ok() {
                return true;
            }
        }
        false
    }

    /// A receiver: is answered at once if there is something for it.
    pub(crate) fn receive(&mut self, receiver: R) {
        if let Some(status) = self.error {
            if receiver.answer(status, NOBODY, &[]).is_ok() {
                self.error = None;
            }
        } else if let Some(first) = self.queue.front() {
            if receiver.answer(0, first.from, first.data()).is_ok() {
                self.spare.extend(self.queue.pop_front());
            }
        } else {
            self.waiting.push_back(receiver);
        }
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
