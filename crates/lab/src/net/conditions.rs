//! The effect of a link on frames, as a model without I/O: frames and times go in, frames come out
//! when they are due.
//!
//! Not here: the sockets and the thread (`relay`). All random numbers come from one seed.

use sojourn_wire::ethernet::{self, EtherType};
use sojourn_wire::{Ecn, checksum, ipv4, ipv6};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The conditions of one direction of a link. Probabilities are from 0 to 1. The default leaves
/// frames as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a frame, behind the Ethernet header, is changed.
    pub corrupt: f64,
    /// Probability that a frame is marked as having met congestion, if its sender takes part in
    /// congestion notification (ECN, RFC 3168). Other frames are not marked.
    pub mark: f64,
    /// Probability that a frame is overtaken by frames that follow within
    /// [`Conditions::reorder_by`].
    pub reorder: f64,
    /// Additional delay of a frame that is overtaken.
    pub reorder_by: Duration,
    /// Time that a frame takes from end to end.
    pub delay: Duration,
    /// Largest random addition to the delay; it does not reorder frames.
    pub jitter: Duration,
    /// Bits per second; `None` for no limit.
    pub rate: Option<u64>,
    /// Largest number of bytes that wait because of the rate; frames beyond it are lost.
    pub queue_bytes: usize,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            mark: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(2),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue_bytes: 256 << 10,
        }
    }
}

/// Counters of one direction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were sent into the link.
    pub offered: u64,
    /// Frames (and copies) that left the link.
    pub delivered: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames with a changed bit.
    pub corrupted: u64,
    /// Frames marked as having met congestion.
    pub marked: u64,
    /// Frames that were delayed for others to overtake.
    pub reordered: u64,
    /// Frames for which the queue had no room.
    pub overflowed: u64,
    /// Frames that the far interface did not take.
    pub refused: u64,
}

/// A generator of random numbers that are the same in every run (splitmix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number from 0 up to, but not including, 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }
}

/// Marks an Ethernet frame as having met congestion, if its sender takes part (RFC 3168, section
/// 5). Returns true if the frame was marked.
fn mark(frame: &mut [u8]) -> bool {
    let Ok(ethernet::Parsed { header, payload: packet }) = ethernet::Header::parse(frame) else {
        return false;
    };
    let ether_type = header.ether_type;
    let at = frame.len() - packet.len();
    let class = match ether_type {
        EtherType::IPV4 => ipv4::Packet::new(packet).map(|packet| packet.traffic_class()),
        EtherType::IPV6 => ipv6::Packet::new(packet).map(|packet| packet.traffic_class()),
        _ => return false,
    };
    if !class.is_ok_and(|class| matches!(class.ecn(), Ecn::Capable0 | Ecn::Capable1)) {
        return false;
    }
    let Some(header) = frame.get_mut(at..).and_then(|packet| packet.first_chunk_mut::<20>()) else {
        return false;
    };
    if ether_type == EtherType::IPV6 {
        header[1] |= 0x30;
        return true;
    }
    let old = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= 3;
    let new = u16::from_be_bytes([header[0], header[1]]);
    let sum = checksum::update(u16::from_be_bytes([header[10], header[11]]), old, new);
    [header[10], header[11]] = sum.to_be_bytes();
    true
}

/// A frame in flight, ordered by arrival; of two that arrive at one time, the older comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FrameInFlight {
    due: Instant,
    order: u64,
    bytes: Vec<u8>,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Channel {
    random: Random,
    on_their_way: BinaryHeap<Reverse<FrameInFlight>>,
    order: u64,
    /// Time at which the sender has sent everything; `None` before the first frame.
    line_free: Option<Instant>,
    /// Arrival of the last frame that was not overtaken: no later frame arrives before.
    last_due: Option<Instant>,
    pub(super) counts: Counts,
}

impl Channel {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            on_their_way: BinaryHeap::new(),
            order: 0,
            line_free: None,
            last_due: None,
            counts: Counts::default(),
        }
    }

    /// Takes a frame that is sent at `now`, and decides its fate.
    pub(super) fn offer(&mut self, now: Instant, frame: &[u8], conditions: &Conditions) {
        self.counts.offered += 1;
        if self.random.happens(conditions.loss) {
            self.counts.lost += 1;
            return;
        }
        let mut bytes = frame.to_vec();
        if self.random.happens(conditions.mark) && mark(&mut bytes) {
            self.counts.marked += 1;
        }
        if self.random.happens(conditions.corrupt) {
            self.corrupt(&mut bytes);
        }
        if self.random.happens(conditions.duplicate) {
            self.counts.duplicated += 1;
            self.enqueue(now, bytes.clone(), conditions);
        }
        self.enqueue(now, bytes, conditions);
    }

    fn corrupt(&mut self, bytes: &mut [u8]) {
        let Some(bits) = bytes.len().checked_sub(14).filter(|len| *len > 0).map(|len| len * 8)
        else {
            return;
        };
        let bit = 14 * 8 + self.random.next() as usize % bits;
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.counts.corrupted += 1;
    }

    fn enqueue(&mut self, now: Instant, bytes: Vec<u8>, conditions: &Conditions) {
        let Some(sent) = self.through_the_queue(now, bytes.len(), conditions) else {
            self.counts.overflowed += 1;
            return;
        };
        let mut due = sent + conditions.delay + conditions.jitter.mul_f64(self.random.fraction());
        due = due.max(self.last_due.unwrap_or(due));
        if self.random.happens(conditions.reorder) {
            self.counts.reordered += 1;
            due += conditions.reorder_by;
        } else {
            self.last_due = Some(due);
        }
        self.order += 1;
        self.on_their_way.push(Reverse(FrameInFlight { due, order: self.order, bytes }));
    }

    /// Returns the time at which the frame's last bit is sent; `None` if the queue is full.
    fn through_the_queue(
        &mut self,
        now: Instant,
        len: usize,
        conditions: &Conditions,
    ) -> Option<Instant> {
        let Some(rate) = conditions.rate else { return Some(now) };
        let starts = self.line_free.unwrap_or(now).max(now);
        let waiting_bytes = (starts - now).as_secs_f64() * rate as f64 / 8.0;
        if waiting_bytes + len as f64 > conditions.queue_bytes as f64 && starts > now {
            return None;
        }
        let ends = starts + Duration::from_secs_f64(len as f64 * 8.0 / rate.max(1) as f64);
        self.line_free = Some(ends);
        Some(ends)
    }

    /// Returns the next frame that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_due()? > now {
            return None;
        }
        self.on_their_way.pop().map(|Reverse(frame)| frame.bytes)
    }

    /// Returns the arrival time of the next frame.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.on_their_way.peek().map(|Reverse(frame)| frame.due)
    }
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
