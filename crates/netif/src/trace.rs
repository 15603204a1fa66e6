//! An interface that keeps its last frames as typed events in a bounded buffer.
//!
//! Not here: printing, and whole frames (`capture`). An event keeps the start of a frame, enough
//! for all headers of a TCP segment. New events replace the oldest ones; nothing is allocated after
//! the start.

use crate::interface::{Interface, LinkError, Outgoing, Received, SendError};
use crate::pass_on::pass_on;
use sojourn_wire::vnet;

/// Bytes of a frame's start that an event keeps.
pub const HEAD_BYTES: usize = 96;

/// The direction of a frame, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// The outcome for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The frame was received, or accepted for sending.
    Passed,
    /// The frame was not sent.
    Refused(SendError),
}

/// A frame that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counts events from 0.
    pub number: u64,
    /// The frame's own time if it has one, otherwise the clock's, in nanoseconds.
    pub time_ns: u64,
    /// The direction.
    pub direction: Direction,
    /// The outcome.
    pub outcome: Outcome,
    /// The frame's offload header.
    pub vnet: vnet::Header,
    /// The length of the frame.
    pub len: usize,
    head: [u8; HEAD_BYTES],
}

impl Event {
    /// Returns the start of the frame: [`HEAD_BYTES`], or all of it.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.len.min(HEAD_BYTES)]
    }
}

/// An interface with its last events.
#[derive(Debug)]
pub struct Trace<I, C> {
    inner: I,
    clock: C,
    events: Vec<Event>,
    capacity: usize,
    count: u64,
}

impl<I: Interface, C: FnMut() -> u64> Trace<I, C> {
    /// Keeps the last `capacity` events, at least one. `clock` gives the time of frames that have
    /// none, in nanoseconds.
    pub fn new(inner: I, capacity: usize, clock: C) -> Self {
        let capacity = capacity.max(1);
        Self { inner, clock, events: Vec::with_capacity(capacity), capacity, count: 0 }
    }

    /// Returns the kept events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let is_full = self.events.len() == self.capacity;
        let oldest = if is_full { self.count as usize % self.capacity } else { 0 };
        let (newer, older) = self.events.split_at(oldest);
        older.iter().chain(newer)
    }

    /// Returns the number of events since the start, including those that are not kept any more.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the inner interface.
    pub const fn inner(&mut self) -> &mut I {
        &mut self.inner
    }
}

/// Adds an event, which replaces the oldest one once the buffer is full.
fn note(events: &mut Vec<Event>, capacity: usize, count: &mut u64, mut event: Event) {
    event.number = *count;
    if events.len() < capacity {
        events.push(event);
    } else {
        events[*count as usize % capacity] = event;
    }
    *count += 1;
}

fn head_of<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let bytes = parts.into_iter().flatten();
    for (place, byte) in head.iter_mut().zip(bytes) {
        *place = *byte;
    }
    head
}

impl<I: Interface, C: FnMut() -> u64> Interface for Trace<I, C> {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let Self { inner, clock, events, capacity, count } = self;
        inner.receive(budget, &mut |received| {
            let event = Event {
                number: 0,
                time_ns: received.time_ns.unwrap_or_else(&mut *clock),
                direction: Direction::In,
                outcome: Outcome::Passed,
                vnet: received.vnet,
                len: received.frame.len(),
                head: head_of([received.frame]),
            };
            note(events, *capacity, count, event);
            accept(received);
        })
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        let result = self.inner.send(frame);
        let event = Event {
            number: 0,
            time_ns: (self.clock)(),
            direction: Direction::Out,
            outcome: result.map_or_else(Outcome::Refused, |()| Outcome::Passed),
            vnet: frame.vnet,
            len: frame.len(),
            head: head_of(frame.parts),
        };
        note(&mut self.events, self.capacity, &mut self.count, event);
        result
    }

    pass_on!(self.inner: flush, wait_fd, take_error, properties, refresh, statistics);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;

    #[test]
    fn the_last_events_are_remembered_in_order() {
        let sim::Link { near, mut far, clock } = sim::pair(&sim::Options::default());
        let mut time = 100;
        let mut trace = Trace::new(near, 3, || {
            time += 1;
            time
        });
        for n in 0..4u8 {
            trace
                .send(&Outgoing { parts: [&[n; 20], &[n; 100], &[]], ..Outgoing::default() })
                .unwrap();
        }
        far.send(&Outgoing::plain(&[9; 60])).unwrap();
        clock.advance(7_000_000);
        assert_eq!(trace.receive(9, &mut |_| ()), Ok(1));
        let too_long = vec![0; 70_000];
        assert_eq!(trace.send(&Outgoing::plain(&too_long)), Err(SendError::TooLong));
        assert_eq!(trace.count(), 6);
        let events: Vec<_> = trace.events().copied().collect();
        assert_eq!(events.iter().map(|event| event.number).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(events[0].head(), [3; HEAD_BYTES]);
        assert_eq!((events[0].len, events[0].time_ns), (120, 104));
        assert_eq!((events[1].direction, events[1].head()), (Direction::In, &[9; 60][..]));
        // No latency was asked for: it arrived when it was sent.
        assert_eq!(events[1].time_ns, 0);
        assert_eq!(events[2].outcome, Outcome::Refused(SendError::TooLong));
    }
}
