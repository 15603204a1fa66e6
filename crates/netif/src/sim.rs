//! A link in memory between two interfaces, with a clock that the caller moves.
//!
//! The same calls at the same times give the same frames at the same times. A direction has a queue
//! that drops frames that do not fit, then a rate, then a latency. Not here: other faults
//! (`fault`), and segmentation: long frames arrive as they were sent, as between two virtual
//! machines on one host. There is no descriptor to wait for: use [`Endpoint::next_arrival_ns`].

use crate::interface::{
    FRAME_BYTES_MAX, Interface, LinkError, Outgoing, Properties, Received, SendError, Statistics,
};
use rustix::fd::BorrowedFd;
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::{self, EtherType};
use sojourn_wire::frame::LinkType;
use sojourn_wire::vnet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest number of frames on their way in one direction, at any rate.
const FLIGHTS_MAX: usize = 1 << 16;

/// The properties of a link. Both directions are equal until [`Endpoint::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// The kind of link header.
    pub link: LinkType,
    /// Time from the last bit sent to the last bit received, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes per second; `None` if frames take no time.
    pub rate: Option<u64>,
    /// Bytes that may wait for the link, including the frame that is being sent; frames beyond that
    /// are dropped. Without a rate nothing waits.
    pub queue_bytes: usize,
    /// Longest IP packet with several segments; 0 if such packets are refused.
    pub gso_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: 1500,
            link: LinkType::Ethernet,
            latency_ns: 0,
            rate: None,
            queue_bytes: 1 << 20,
            gso_max: 65_535,
        }
    }
}

/// The clock of a link: nanoseconds from 0, which the holder of the clock advances.
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Returns the current time.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the time by `by_ns`.
    pub fn advance(&self, by_ns: u64) {
        self.0.fetch_add(by_ns, Ordering::Relaxed);
    }

    /// Advances the time to `time_ns`; a time in the past changes nothing.
    pub fn advance_to(&self, time_ns: u64) {
        self.0.fetch_max(time_ns, Ordering::Relaxed);
    }
}

/// A frame on its way.
#[derive(Debug)]
struct Flight {
    arrival_ns: u64,
    vnet: vnet::Header,
    bytes: Vec<u8>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    options: Options,
    flights: VecDeque<Flight>,
    /// Buffers of frames that have arrived.
    spare: Vec<Vec<u8>>,
    /// The time at which the last bit sent so far has left.
    idle_ns: u64,
}

/// One end of a link.
#[derive(Debug)]
pub struct Endpoint {
    out: Arc<Mutex<Lane>>,
    back: Arc<Mutex<Lane>>,
    clock: Clock,
    properties: Properties,
    counts: Statistics,
    dropped: u64,
}

/// A simulated link.
#[derive(Debug)]
pub struct Link {
    /// One end.
    pub near: Endpoint,
    /// The other end.
    pub far: Endpoint,
    /// The clock of both; at 0 to begin with.
    pub clock: Clock,
}

/// Creates a link.
pub fn pair(options: &Options) -> Link {
    let clock = Clock(Arc::new(AtomicU64::new(0)));
    let lane = || {
        let flights = VecDeque::new();
        Arc::new(Mutex::new(Lane { options: *options, flights, spare: Vec::new(), idle_ns: 0 }))
    };
    let (there, back) = (lane(), lane());
    let end = |out: &Arc<Mutex<Lane>>, back: &Arc<Mutex<Lane>>, last: u8| Endpoint {
        out: Arc::clone(out),
        back: Arc::clone(back),
        clock: clock.clone(),
        properties: properties(options, last),
        counts: Statistics::default(),
        dropped: 0,
    };
    Link { near: end(&there, &back, 1), far: end(&back, &there, 2), clock: clock.clone() }
}

/// Returns an end's properties; its address is a locally administered one.
fn properties(options: &Options, last: u8) -> Properties {
    let address = MacAddress([2, 0, 0, 0, 0, last]);
    Properties {
        index: 0,
        mtu: options.mtu,
        link: options.link,
        address: (options.link == LinkType::Ethernet).then_some(address),
        checksum_offload: true,
        gso_max: options.gso_max,
    }
}

/// Locks a lane. A poisoned lock is used, because a panic cannot leave a lane half changed.
fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Returns the time of the next arrival at this end, if a frame is on its way.
    pub fn next_arrival_ns(&self) -> Option<u64> {
        lock(&self.back).flights.front().map(|flight| flight.arrival_ns)
    }

    /// Changes the properties of the direction from this end for frames sent from now on. Earlier
    /// frames are not overtaken.
    pub fn change(&mut self, options: &Options) {
        self.properties.mtu = options.mtu;
        self.properties.gso_max = options.gso_max;
        lock(&self.out).options = Options { link: self.properties.link, ..*options };
    }

    /// Returns the number of frames sent from this end that the queue dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn check(&self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let limit = match frame.vnet.segments {
            None => self.properties.mtu,
            Some(_) if self.properties.gso_max == 0 => return Err(SendError::NoOffload),
            Some(_) => self.properties.gso_max,
        };
        let header = link_header_len(frame.parts[0], self.properties.link);
        if frame.len() > limit.saturating_add(header) {
            return Err(SendError::TooLong);
        }
        if frame.is_empty() { Err(SendError::Invalid) } else { Ok(()) }
    }
}

/// Returns the number of bytes before the IP header.
fn link_header_len(frame: &[u8], link: LinkType) -> usize {
    match link {
        LinkType::Raw => 0,
        LinkType::Ethernet => ethernet::Header::parse(frame)
            .ok()
            .filter(|frame| frame.header.ether_type != EtherType::VLAN)
            .map_or(ethernet::HEADER_BYTES, |frame| frame.header.len()),
    }
}

impl Lane {
    /// Returns the arrival time of a frame sent now; `None` if the queue has no room for it.
    fn admit(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        if self.flights.len() >= FLIGHTS_MAX {
            return None;
        }
        let start_ns = self.idle_ns.max(now_ns);
        if let Some(rate) = self.options.rate {
            let rate = u128::from(rate.max(1));
            let waiting = u128::from(start_ns - now_ns) * rate / 1_000_000_000;
            if waiting + len as u128 > self.options.queue_bytes as u128 {
                return None;
            }
            let takes_ns = (len as u128 * 1_000_000_000).div_ceil(rate);
            self.idle_ns = start_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        } else {
            self.idle_ns = start_ns;
        }
        let arrival_ns = self.idle_ns.saturating_add(self.options.latency_ns);
        // On a link whose latency was reduced, frames do not overtake earlier ones.
        Some(self.flights.back().map_or(arrival_ns, |last| last.arrival_ns.max(arrival_ns)))
    }
}

impl Interface for Endpoint {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let now_ns = self.clock.now_ns();
        let mut count = 0;
        while count < budget {
            // The lock is not held during the callback, which may send from the other end.
            let mut lane = lock(&self.back);
            if lane.flights.front().is_none_or(|flight| flight.arrival_ns > now_ns) {
                break;
            }
            let Some(flight) = lane.flights.pop_front() else { break };
            drop(lane);
            let time_ns = Some(flight.arrival_ns);
            accept(Received { vnet: flight.vnet, frame: &flight.bytes, tag: None, time_ns });
            lock(&self.back).spare.push(flight.bytes);
            count += 1;
        }
        self.counts.received += count as u64;
        Ok(count)
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        self.check(frame)?;
        let mut lane = lock(&self.out);
        self.counts.sent += 1;
        let Some(arrival_ns) = lane.admit(self.clock.now_ns(), frame.len()) else {
            // The queue is in the network, so the sender does not learn of the drop.
            self.dropped += 1;
            return Ok(());
        };
        let mut bytes = lane.spare.pop().unwrap_or_default();
        bytes.clear();
        for part in frame.parts {
            bytes.extend_from_slice(part);
        }
        lane.flights.push_back(Flight { arrival_ns, vnet: frame.vnet, bytes });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn statistics(&mut self) -> Statistics {
        self.counts
    }
}

#[cfg(test)]
#[path = "sim_tests.rs"]
mod tests;
