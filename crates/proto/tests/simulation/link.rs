//! One direction of a path: rate, queue, delay and faults, determined by a seed. The link carries
//! the bytes of TCP segments.
//!
//! Not here: IP headers, whose length is only counted.

use std::collections::BTreeMap;

use sojourn_proto::time::{Duration, Instant};

use crate::random::Random;

/// Bytes of an IPv4 header.
pub(crate) const IP_HEADER: u64 = 20;

/// The properties of a link. Chances are in millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// The delay of every packet.
    pub(crate) delay: Duration,
    /// The largest random addition to a packet's delay, so that packets overtake each other.
    pub(crate) jitter: Duration,
    /// The chance that a packet is lost.
    pub(crate) loss: u64,
    /// The chance that the packet after a lost one is lost as well.
    pub(crate) burst: u64,
    /// The chance that a packet arrives twice.
    pub(crate) duplication: u64,
    /// The chance that a bit is flipped.
    pub(crate) corruption: u64,
    /// The chance that a packet is held back for another delay.
    pub(crate) reordering: u64,
    /// Bytes in a second; 0 for no limit.
    pub(crate) rate: u64,
    /// Bytes that may wait because of the rate; packets that do not fit are lost.
    pub(crate) queue: u64,
    /// True if packets that find the queue half full are marked (ECN).
    pub(crate) marks: bool,
    /// Largest IP packet; larger packets are lost and the sender is informed.
    pub(crate) mtu: u64,
}

impl Conditions {
    /// Returns the properties of a path without faults.
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

/// A segment on the link.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The segment with its checksum.
    pub(crate) bytes: Vec<u8>,
    /// May be marked (ECT).
    pub(crate) ect: bool,
    /// Was marked (CE).
    pub(crate) marked: bool,
}

/// Counters of the link, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    /// Delivered packets.
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
    /// The current properties, which may change at any time.
    pub(crate) conditions: Conditions,
    /// The counters so far.
    pub(crate) events: Events,
    /// The numbers of packets that are always lost, counted from 0.
    pub(crate) doomed: Vec<u64>,
    offered: u64,
    random: Random,
    /// The time in nanoseconds at which the rate allows the next packet.
    free_at_ns: u64,
    last_lost: bool,
    flying: BTreeMap<(Instant, u64), Frame>,
    count: u64,
}

impl Link {
    /// Creates a link whose random choices are determined by `seed`.
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

    /// Puts a frame on the link. Returns the link's MTU if the packet is larger.
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

    /// Stops a link with a rate for `time`; packets wait, and are not lost if the queue has room.
    pub(crate) fn pause(&mut self, now: Instant, time: Duration) {
        let now_ns = now.as_micros() * 1_000;
        self.free_at_ns = self.free_at_ns.max(now_ns) + time.as_micros() * 1_000;
    }

    /// Returns the time at which the rate allows a packet, if there is room for it to wait.
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

    /// Returns the time of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// Returns a frame that has arrived by `now`.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Frame> {
        if self.next_arrival()? > now {
            return None;
        }
        self.events.carried += 1;
        self.flying.pop_first().map(|(_, frame)| frame)
    }
}
