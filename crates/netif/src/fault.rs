//! An interface that loses, duplicates, reorders and damages frames: as often as it was told, and
//! the same ones for the same seed.
//!
//! Not here: rate and latency (`sim`). Damage is what a wire does: one bit, after the checksum was
//! made and before it is looked at. So a damaged frame carries a whole checksum and no mark that it
//! is right. A frame of several segments of which one would be damaged on the way out is lost
//! instead: what is cut and summed later cannot be damaged here, and its receiver would have thrown
//! it away.

use crate::interface::{
    FRAME_BYTES_MAX, Interface, LinkError, Outgoing, Properties, Received, SendError, Statistics,
};
use crate::random::Random;
use crate::xdp::complete_checksum;
use rustix::fd::BorrowedFd;
use sojourn_wire::ethernet;
use sojourn_wire::ethernet::VlanTag;
use sojourn_wire::frame::LinkType;
use sojourn_wire::vnet::{self, Checksum};

/// Frames that are held back at once at most, in one direction; others pass.
const HELD_MAX: usize = 8;

/// How often what happens, in frames of a million.
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

/// What a fault injector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// Where the random numbers begin.
    pub seed: u64,
    /// For what is received.
    pub receive: Rates,
    /// For what is sent.
    pub send: Rates,
    /// How many frames overtake one that is held back, at most; at least one does, if one comes.
    pub span: usize,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self { seed: 1, receive: Rates::default(), send: Rates::default(), span: 3 }
    }
}

/// What happened to the frames of one direction.
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

/// What is decided about a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    is_lost: bool,
    is_twice: bool,
    is_damaged: bool,
    /// Frames that pass it first; 0: it is not held back.
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
    /// How many more.
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

    /// Always as many random numbers per frame, so that one rate does not change what another one
    /// does.
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

    /// Copies a frame and damages it. The offload header that it has afterwards.
    fn damage(&mut self, parts: &[&[u8]], vnet: vnet::Header, link: LinkType) -> vnet::Header {
        self.scratch.clear();
        for part in parts {
            self.scratch.extend_from_slice(part);
        }
        // One that does not make sense is damaged enough.
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

    /// One frame has passed: those whose time has come, one at a time.
    fn pass_one(&mut self) {
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
    }

    /// The first that nothing holds back any more, or of all if `all`.
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
    /// Faults around `inner`.
    pub fn new(inner: I, options: &FaultOptions) -> Self {
        let receive = Side::new(options.receive, options.span, options.seed);
        let send = Side::new(options.send, options.span, !options.seed);
        Self { inner, receive, send }
    }

    /// What happened to received frames, and to sent ones.
    pub const fn counts(&self) -> (FaultCounts, FaultCounts) {
        (self.receive.counts, self.send.counts)
    }

    /// The interface within.
    pub const fn inner(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Sends what nothing holds back any more, or all. What the interface has no room for is lost,
    /// as on a wire.
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
    /// One frame, received: how many frames it made for `accept`.
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

    /// Hands over what nothing holds back any more, or all.
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
    /// The budget counts frames of the interface within: duplicates and frames that were held back
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
            // Nobody comes to overtake them.
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
            // The copy is one that nobody knows of: its loss is none.
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

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn take_error(&mut self) -> Option<LinkError> {
        self.inner.take_error()
    }

    fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    fn refresh(&mut self) -> Result<(), LinkError> {
        self.inner.refresh()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
