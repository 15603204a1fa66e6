//! A port's inbox: receivers that wait for a datagram, or datagrams that wait for a receiver. Pure.
//!
//! A datagram with a waiting receiver is copied into the receiver's message at once. Another one
//! goes into the queue together with its memory, and the thread that brought it continues with
//! spare memory. So every datagram is copied once, into the message of its receiver. Memory is
//! allocated only at the beginning. Not here: the lock around an inbox (`port`).

use crate::packet::PACKET_MAX;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use sojourn_ipc::Gone;
use std::collections::VecDeque;

/// Largest number of datagrams that wait; those that come then are lost.
pub(crate) const QUEUE_MAX: usize = 32;

/// A receiver that waits for a datagram.
pub(crate) trait Receiver {
    /// Hands the receiver a datagram, or the error number `status`.
    ///
    /// # Errors
    /// [`Gone`] if the receiver waits no more: the datagram is then the next receiver's.
    fn answer(self, status: u32, from: SocketAddrV4, data: &[u8]) -> Result<(), Gone>;
}

/// A datagram, in memory that any datagram fits in.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddrV4,
    /// The packet, and behind it the rest of an earlier one.
    pub(crate) bytes: Box<[u8]>,
    /// The range of the payload in `bytes`.
    pub(crate) payload: Range<usize>,
}

impl Datagram {
    /// Makes the memory, without a datagram.
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

/// The sender of an error.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// An inbox. Either no receiver waits or the queue is empty.
#[derive(Debug)]
pub(crate) struct Inbox<R> {
    waiting: VecDeque<R>,
    queue: VecDeque<Datagram>,
    spare: Vec<Datagram>,
    /// The error of an earlier datagram, until a receiver gets it.
    error: Option<u32>,
}

impl<R: Receiver> Inbox<R> {
    /// Makes an empty inbox; at most `waiting_max` receivers wait at a time.
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(waiting_max),
            queue: VecDeque::with_capacity(QUEUE_MAX),
            spare: (0..QUEUE_MAX).map(|_| Datagram::empty()).collect(),
            error: None,
        }
    }

    /// Takes a datagram from the network. Leaves memory for the next one in `datagram`.
    pub(crate) fn arrive(&mut self, datagram: &mut Datagram) {
        if !self.answer(0, datagram.from, datagram.data())
            && let Some(spare) = self.spare.pop()
        {
            self.queue.push_back(core::mem::replace(datagram, spare));
        }
    }

    /// Takes a datagram that another client of this server sent.
    pub(crate) fn arrive_from_here(&mut self, from: SocketAddrV4, data: &[u8]) {
        if !self.answer(0, from, data)
            && let Some(mut spare) = self.spare.pop()
        {
            spare.copy(from, data);
            self.queue.push_back(spare);
        }
    }

    /// Takes the error `status` of an earlier datagram.
    pub(crate) fn fail(&mut self, status: u32) {
        if !self.answer(status, NOBODY, &[]) {
            self.error = Some(status);
        }
    }

    /// Answers the first receiver that still waits; returns `false` if there is none.
    fn answer(&mut self, status: u32, from: SocketAddrV4, data: &[u8]) -> bool {
        while let Some(receiver) = self.waiting.pop_front() {
            if receiver.answer(status, from, data).is_ok() {
                return true;
            }
        }
        false
    }

    /// Takes a receiver; answers it at once if a datagram or an error waits.
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
