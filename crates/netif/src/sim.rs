//! A link in memory between two interfaces, with a clock that the caller moves.
//!
//! The same calls at the same times give the same frames at the same times. A direction has a rate,
//! a queue before it that drops what does not fit, and a latency behind it. Not here: damage of any
//! other kind (`fault`), cutting of long frames into segments: they arrive as they were sent, like
//! between two virtual machines on one host. No descriptor to wait for: ask
//! [`Endpoint::next_arrival_ns`].

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

/// Frames on their way in one direction at most, whatever the rate.
const FLIGHTS_MAX: usize = 1 << 16;

/// What a link is like. Both directions are alike until [`Endpoint::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// What frames begin with.
    pub link: LinkType,
    /// Time from the last bit sent to the last bit received, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes per second; `None`: frames take no time.
    pub rate: Option<u64>,
    /// Bytes that may wait for the link, the frame that is being sent included; more is dropped.
    /// Without a rate nothing waits.
    pub queue_bytes: usize,
    /// Longest IP packet with several segments in it; 0: none are taken.
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

/// The time of a link: nanoseconds from 0, moved by whoever has it.
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves the time on.
    pub fn advance(&self, by_ns: u64) {
        self.0.fetch_add(by_ns, Ordering::Relaxed);
    }

    /// Moves the time on to `time_ns`; a time that has passed changes nothing.
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
    /// When the last bit of what was sent so far has left.
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

/// The two ends of a new link, and its clock, which stands at 0.
pub fn pair(options: &Options) -> (Endpoint, Endpoint, Clock) {
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
    (end(&there, &back, 1), end(&back, &there, 2), clock.clone())
}

/// Addresses are of the kind that is given locally.
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

/// A panic elsewhere leaves nothing half done: the lane is changed in one step.
fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// When the next frame arrives here, if one is on its way.
    pub fn next_arrival_ns(&self) -> Option<u64> {
        lock(&self.back).flights.front().map(|flight| flight.arrival_ns)
    }

    /// Makes what is sent from here from now on go over a link of these `options`. What is on its
    /// way is not overtaken.
    pub fn change(&mut self, options: &Options) {
        self.properties.mtu = options.mtu;
        self.properties.gso_max = options.gso_max;
        lock(&self.out).options = Options { link: self.properties.link, ..*options };
    }

    /// Frames sent from here that the queue dropped.
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

/// Bytes before the IP header.
fn link_header_len(frame: &[u8], link: LinkType) -> usize {
    match link {
        LinkType::Raw => 0,
        LinkType::Ethernet => ethernet::Header::parse(frame)
            .ok()
            .filter(|(header, _)| header.ether_type != EtherType::VLAN)
            .map_or(ethernet::HEADER_BYTES, |(header, _)| header.len()),
    }
}

impl Lane {
    /// When a frame that is given to the lane now arrives; `None` if the queue has no room for it.
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
        // A link that became shorter does not let frames overtake.
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
            // Not held during the callback, which may send from the other end.
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
            // A queue on the way: nobody is told.
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
