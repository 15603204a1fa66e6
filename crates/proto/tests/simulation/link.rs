//! One direction of a path: rate, queue, delay, and what goes wrong on it, all as a seed says. It
//! carries the bytes of TCP segments.
//!
//! Not here: IP headers, whose length is only counted.

use std::collections::BTreeMap;

use sojourn_proto::time::{Duration, Instant};

use crate::random::Random;

/// Bytes of an IPv4 header.
pub(crate) const IP_HEADER: u64 = 20;

/// What a link is like. Chances are in millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// How long every packet takes.
    pub(crate) delay: Duration,
    /// Up to this much is added to the delay of each packet alone, so that packets overtake each
    /// other.
    pub(crate) jitter: Duration,
    /// How many packets are lost.
    pub(crate) loss: u64,
    /// After a lost packet the next is lost as well with this chance.
    pub(crate) burst: u64,
    /// How many arrive twice.
    pub(crate) duplication: u64,
    /// In how many a bit is flipped.
    pub(crate) corruption: u64,
    /// How many are held back for another delay.
    pub(crate) reordering: u64,
    /// Bytes in a second; 0: no bound.
    pub(crate) rate: u64,
    /// Bytes that may wait for the rate; what does not fit is lost.
    pub(crate) queue: u64,
    /// Whether packets that find the queue half full are marked instead (ECN).
    pub(crate) marks: bool,
    /// Largest IP packet; larger ones are lost and the sender is told.
    pub(crate) mtu: u64,
}

impl Conditions {
    /// A path without a fault.
    pub(crate) fn clean(delay: Duration) -> Conditions {
        Conditions {
            delay,
            jitter: Duration::ZERO,
            loss: 0,
            burst: 0,
            duplication: 0,
            corruption: 0,
            reordering: 0,
            rate: 0,
            queue: u64::MAX,
            marks: false,
            mtu: 1_500,
        }
    }
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The segment with its checksum.
    pub(crate) bytes: Vec<u8>,
    /// May be marked (ECT).
    pub(crate) ect: bool,
    /// Was marked (CE).
    pub(crate) marked: bool,
}

/// What happened on the link so far, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    /// Carried to the end.
    pub(crate) carried: u64,
    /// Lost by chance.
    pub(crate) lost: u64,
    /// Lost at the queue.
    pub(crate) overflowed: u64,
    /// Too big.
    pub(crate) too_big: u64,
}

/// One direction of a path.
#[derive(Debug)]
pub(crate) struct Link {
    /// How it is now; may change at any time.
    pub(crate) conditions: Conditions,
    /// What happened so far.
    pub(crate) events: Events,
    /// Packets that are lost for certain, by their number, counted from 0 on.
    pub(crate) doomed: Vec<u64>,
    offered: u64,
    random: Random,
    /// Nanoseconds at which the rate lets the next packet go.
    free_at_ns: u64,
    last_lost: bool,
    flying: BTreeMap<(Instant, u64), Frame>,
    count: u64,
}

impl Link {
    /// A link whose chances fall as `seed` says.
    pub(crate) fn new(conditions: Conditions, seed: u64) -> Link {
        Link {
            conditions,
            events: Events::default(),
            doomed: Vec::new(),
            offered: 0,
            random: Random::new(seed),
            free_at_ns: 0,
            last_lost: false,
            flying: BTreeMap::new(),
            count: 0,
        }
    }

    /// Puts a frame on the link. Gives the largest packet that the link takes if this one is
    /// larger.
    pub(crate) fn send(&mut self, now: Instant, mut frame: Frame) -> Option<u64> {
        let size = frame.bytes.len() as u64 + IP_HEADER;
        if size > self.conditions.mtu {
            self.events.too_big += 1;
            return Some(self.conditions.mtu);
        }
        let chance = if self.last_lost { self.conditions.burst } else { 0 };
        let doomed = self.doomed.contains(&self.offered);
        self.offered += 1;
        self.last_lost = self.random.chance(self.conditions.loss.max(chance)) || doomed;
        if self.last_lost {
            self.events.lost += 1;
            return None;
        }
        let Some(departure) = self.enqueue(now, size, &mut frame) else {
            self.events.overflowed += 1;
            return None;
        };
        if self.random.chance(self.conditions.corruption) {
            let bit = self.random.below(frame.bytes.len() as u64 * 8);
            frame.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        if self.random.chance(self.conditions.duplication) {
            self.fly(departure, frame.clone());
        }
        self.fly(departure, frame);
        None
    }

    /// Nothing leaves a link with a rate for `time`; it waits, and is not lost if the queue has
    /// room.
    pub(crate) fn pause(&mut self, now: Instant, time: Duration) {
        let now_ns = now.as_micros() * 1_000;
        self.free_at_ns = self.free_at_ns.max(now_ns) + time.as_micros() * 1_000;
    }

    /// When the rate lets a packet go, if there is room to wait for it.
    fn enqueue(&mut self, now: Instant, size: u64, frame: &mut Frame) -> Option<Instant> {
        if self.conditions.rate == 0 {
            return Some(now);
        }
        let now_ns = now.as_micros() * 1_000;
        let begin = self.free_at_ns.max(now_ns);
        let waiting = u128::from(begin - now_ns) * u128::from(self.conditions.rate) / 1_000_000_000;
        if waiting as u64 + size > self.conditions.queue {
            return None;
        }
        if self.conditions.marks && frame.ect && waiting as u64 > self.conditions.queue / 2 {
            frame.marked = true;
        }
        self.free_at_ns = begin + size * 1_000_000_000 / self.conditions.rate;
        Some(Instant::from_micros(self.free_at_ns.div_ceil(1_000)))
    }

    fn fly(&mut self, departure: Instant, frame: Frame) {
        let mut delay = self.conditions.delay.as_micros();
        if self.random.chance(self.conditions.reordering) {
            delay *= 2;
        }
        delay += self.random.below(self.conditions.jitter.as_micros() + 1);
        self.count += 1;
        self.flying.insert((departure + Duration::from_micros(delay), self.count), frame);
    }

    /// When the next frame arrives.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// A frame that has arrived by now.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Frame> {
        if self.next_arrival()? > now {
            return None;
        }
        self.events.carried += 1;
        self.flying.pop_first().map(|(_, frame)| frame)
    }
}
