//! An interface that loses, duplicates, reorders and damages frames at configured rates, and the
//! same frames for the same seed.
//!
//! Not here: rate and latency (`sim`). Damage is one flipped bit, as on a wire: after the checksum
//! was computed and before it is verified. So a damaged frame has a complete checksum and no mark
//! that it was verified. An outgoing frame of several segments is lost instead of damaged: its
//! segments and their checksums are made later, and the receiver would have dropped the damaged
//! one.

use crate::interface::{FRAME_BYTES_MAX, Interface, LinkError, Outgoing, Received, SendError};
use crate::partial::complete_checksum;
use crate::pass_on::pass_on;
use crate::random::Random;
use sojourn_wire::ethernet;
use sojourn_wire::ethernet::VlanTag;
use sojourn_wire::frame::LinkType;
use sojourn_wire::vnet::{self, Checksum};

/// The largest number of frames held back at once in one direction; further frames pass.
const HELD_MAX: usize = 8;

/// The rates of faults, in frames of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Lost.
    pub loss: u32,
    /// Arriving twice.
    pub duplication: u32,
    /// Held back until some others have passed it: up to [`FaultOptions::span`].
    pub reordering: u32,
    /// Damaged by one bit, behind the link header.
    pub corruption: u32,
}

/// The settings of a fault injector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The rates for received frames.
    pub receive: Rates,
    /// The rates for sent frames.
    pub send: Rates,
    /// The largest number of frames that overtake one that is held back; at least one does, if one
    /// comes.
    pub span: usize,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self { seed: 1, receive: Rates::default(), send: Rates::default(), span: 3 }
    }
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames that came to the injector.
    pub frames: u64,
    /// Lost.
    pub lost: u64,
    /// Passed on twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Damaged, or lost instead.
    pub corrupted: u64,
}

/// The decision about a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    is_lost: bool,
    is_twice: bool,
    is_damaged: bool,
    /// The number of frames that must pass first; 0 if the frame is not held back.
    behind: usize,
}

/// One direction.
#[derive(Debug)]
struct Side {
    rates: Rates,
    span: usize,
    random: Random,
    held: Vec<Held>,
    spare: Vec<Held>,
    scratch: Vec<u8>,
    counts: FaultCounts,
}

/// A frame that waits for others to pass.
#[derive(Debug)]
struct Held {
    /// The number of frames that must still pass.
    behind: usize,
    vnet: vnet::Header,
    tag: Option<VlanTag>,
    time_ns: Option<u64>,
    bytes: Vec<u8>,
}

impl Side {
    fn new(rates: Rates, span: usize, seed: u64) -> Self {
        Self {
            rates,
            span: span.max(1),
            random: Random::new(seed),
            held: Vec::with_capacity(HELD_MAX),
            spare: Vec::with_capacity(HELD_MAX),
            scratch: Vec::with_capacity(FRAME_BYTES_MAX),
            counts: FaultCounts::default(),
        }
    }

    /// Decides about a frame. Every frame takes the same number of random numbers, so that a change
    /// of one rate does not change the effects of another.
    fn fate(&mut self) -> Fate {
        self.counts.frames += 1;
        let Rates { loss, duplication, reordering, corruption } = self.rates;
        let is_lost = self.random.happens(loss);
        let is_twice = self.random.happens(duplication);
        let is_late = self.random.happens(reordering);
        let is_damaged = self.random.happens(corruption);
        let behind = 1 + self.random.below(self.span);
        if is_lost {
            self.counts.lost += 1;
            return Fate { is_lost, ..Fate::default() };
        }
        let is_late = is_late && self.held.len() < HELD_MAX;
        self.counts.duplicated += u64::from(is_twice);
        self.counts.reordered += u64::from(is_late);
        self.counts.corrupted += u64::from(is_damaged);
        Fate { is_lost, is_twice, is_damaged, behind: if is_late { behind } else { 0 } }
    }

    /// Copies a frame to `scratch`, damages the copy and returns its offload header.
    fn damage(&mut self, parts: &[&[u8]], vnet: vnet::Header, link: LinkType) -> vnet::Header {
        self.scratch.clear();
        for part in parts {
            self.scratch.extend_from_slice(part);
        }
        // A partial checksum that lies outside the frame stays as it is, since the frame is damaged
        // already.
        complete_checksum(&mut self.scratch, vnet.checksum);
        let header = if link == LinkType::Ethernet { ethernet::HEADER_BYTES } else { 0 };
        let bits = self.scratch.len().saturating_sub(header) * 8;
        let bit = self.random.below(bits);
        if let Some(byte) = self.scratch.get_mut(header + bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        vnet::Header { checksum: Checksum::Unknown, ..vnet }
    }

    fn hold(&mut self, behind: usize, parts: &[&[u8]], received: Received<'_>) {
        let Received { vnet, tag, time_ns, .. } = received;
        let mut held = self.spare.pop().unwrap_or(Held {
            behind,
            vnet,
            tag,
            time_ns,
            bytes: Vec::with_capacity(2048),
        });
        held.bytes.clear();
        for part in parts {
            held.bytes.extend_from_slice(part);
        }
        (held.behind, held.vnet, held.tag, held.time_ns) = (behind, vnet, tag, time_ns);
        self.held.push(held);
    }

    /// Notes that one frame has passed those that are held back.
    fn pass_one(&mut self) {
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
    }

    /// Removes the first frame that need not wait any more, or the first of all if `all`.
    fn due(&mut self, all: bool) -> Option<Held> {
        let at = self.held.iter().position(|held| all || held.behind == 0)?;
        Some(self.held.remove(at))
    }
}

/// An interface with faults.
#[derive(Debug)]
pub struct Fault<I> {
    inner: I,
    receive: Side,
    send: Side,
}

impl<I: Interface> Fault<I> {
    /// Creates an injector around `inner`.
    pub fn new(inner: I, options: &FaultOptions) -> Self {
        let receive = Side::new(options.receive, options.span, options.seed);
        let send = Side::new(options.send, options.span, !options.seed);
        Self { inner, receive, send }
    }

    /// Returns the counters of received frames.
    pub const fn received_counts(&self) -> FaultCounts {
        self.receive.counts
    }

    /// Returns the counters of sent frames.
    pub const fn sent_counts(&self) -> FaultCounts {
        self.send.counts
    }

    /// Returns the inner interface.
    pub const fn inner(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Sends the frames that need not wait any more, or all. Frames for which the interface has no
    /// room are lost, as on a wire.
    fn send_held(&mut self, all: bool) {
        while let Some(held) = self.send.due(all) {
            let frame = Outgoing { vnet: held.vnet, parts: [&held.bytes, &[], &[]] };
            if self.inner.send(&frame).is_err() {
                self.send.counts.lost += 1;
            }
            self.send.spare.push(held);
        }
    }
}

impl Side {
    /// Processes a received frame and returns the number of frames handed to `accept`.
    fn received(
        &mut self,
        received: Received<'_>,
        link: LinkType,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let fate = self.fate();
        if fate.is_lost {
            return 0;
        }
        let mut vnet = received.vnet;
        if fate.is_damaged {
            vnet = self.damage(&[received.frame], vnet, link);
        }
        let scratch = core::mem::take(&mut self.scratch);
        let frame = if fate.is_damaged { &scratch[..] } else { received.frame };
        let received = Received { vnet, frame, ..received };
        let mut count = 0;
        if fate.behind > 0 {
            self.hold(fate.behind, &[frame], received);
        } else {
            accept(received);
            self.pass_one();
            count += 1;
        }
        if fate.is_twice {
            accept(received);
            count += 1;
        }
        self.scratch = scratch;
        count + self.release(false, accept)
    }

    /// Hands over the frames that need not wait any more, or all, and returns their number.
    fn release(&mut self, all: bool, accept: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut count = 0;
        while let Some(held) = self.due(all) {
            let Held { vnet, tag, time_ns, .. } = held;
            accept(Received { vnet, frame: &held.bytes, tag, time_ns });
            self.spare.push(held);
            count += 1;
        }
        count
    }
}

impl<I: Interface> Interface for Fault<I> {
    /// The budget counts frames of the inner interface; duplicates and frames that were held back
    /// come on top.
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let Self { inner, receive, .. } = self;
        let link = inner.properties().link;
        let mut count = 0;
        let taken = inner.receive(budget, &mut |received| {
            count += receive.received(received, link, accept);
        })?;
        if taken == 0 {
            // No frame comes that could overtake those held back, so they are released.
            count += receive.release(true, accept);
        }
        Ok(count)
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        let mut fate = self.send.fate();
        if fate.is_damaged && frame.vnet.segments.is_some() {
            fate.is_lost = true;
        }
        if fate.is_lost {
            return Ok(());
        }
        let mut vnet = frame.vnet;
        if fate.is_damaged {
            let link = self.inner.properties().link;
            vnet = self.send.damage(&frame.parts, vnet, link);
        }
        let scratch = core::mem::take(&mut self.send.scratch);
        let parts = if fate.is_damaged { [&scratch[..], &[], &[]] } else { frame.parts };
        let mut result = Ok(());
        if fate.behind > 0 {
            let about = Received { vnet, frame: &[], tag: None, time_ns: None };
            self.send.hold(fate.behind, &parts, about);
        } else {
            result = self.inner.send(&Outgoing { vnet, parts });
            self.send.pass_one();
        }
        if fate.is_twice && result.is_ok() {
            // The sender does not know of the duplicate, so its loss is not reported.
            let _ = self.inner.send(&Outgoing { vnet, parts });
        }
        self.send.scratch = scratch;
        self.send_held(false);
        result
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.send_held(true);
        self.inner.flush()
    }

    pass_on!(self.inner: wait_fd, take_error, properties, refresh, statistics);
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
