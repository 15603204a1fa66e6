//! From a packet's addresses to the session that it is for, in constant time whatever the number of
//! sessions.
//!
//! Not here: the sessions; a slot is a number that the embedding gave. Which program a packet
//! belongs to was decided before (`filter`).
//!
//! TCP and connected UDP sessions are found by protocol and both endpoints. An unconnected UDP
//! socket is registered with its local endpoint only, with or without an address, and is asked for
//! last.

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use hashbrown::HashMap;
use sojourn_wire::{FlowKey, Protocol};

/// Which session: a number that means something to the embedding.
pub type Slot = u32;

/// Addresses and ports packed into words, so that hashing and comparing are short. Flow label and
/// scope of IPv6 are left out: a packet does not have them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key([u64; 5]);

fn words(ip: IpAddr) -> [u64; 2] {
    let bits = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

impl Key {
    fn new(protocol: Protocol, remote: Option<SocketAddr>, local: SocketAddr) -> Key {
        let remote_ip = remote.map_or([0, 0], |remote| words(remote.ip()));
        let remote_port = remote.map_or(0, |remote| remote.port());
        let [a, b] = remote_ip;
        let [c, d] = words(local.ip());
        let ports = u64::from(remote_port) << 16 | u64::from(local.port());
        let kind = u64::from(protocol.number()) << 8 | u64::from(remote.is_some());
        Key([a, b, c, d, kind << 32 | ports])
    }
}

/// The table of sessions.
#[derive(Debug)]
pub struct Demux {
    slots: HashMap<Key, Slot, SeedableRandomState>,
    /// Unconnected sockets; without any, nobody looks for them.
    unconnected: usize,
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x?}", self.0)
    }
}

impl Demux {
    /// A table with room for `sessions`; more may be added, which then allocates. `seed` is random
    /// and secret, so that nobody outside can choose addresses that are slow to find.
    pub fn new(sessions: usize, seed: u64) -> Demux {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        Demux { slots: HashMap::with_capacity_and_hasher(sessions, hasher), unconnected: 0 }
    }

    /// Adds a session: its own endpoint and, if it is connected, the peer's. Gives the slot that
    /// was registered for the same before.
    pub fn insert(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        slot: Slot,
    ) -> Option<Slot> {
        let before = self.slots.insert(Key::new(protocol, remote, local), slot);
        self.unconnected += usize::from(remote.is_none() && before.is_none());
        before
    }

    /// Removes a session. Gives its slot.
    pub fn remove(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Option<Slot> {
        let slot = self.slots.remove(&Key::new(protocol, remote, local))?;
        self.unconnected -= usize::from(remote.is_none());
        Some(slot)
    }

    /// The session that a packet is for: the connected one, else the socket at its target address,
    /// else the one at its port.
    pub fn find(&self, flow: &FlowKey) -> Option<Slot> {
        let found = self.slots.get(&Key::new(flow.protocol, Some(flow.source), flow.target));
        if found.is_some() || self.unconnected == 0 {
            return found.copied();
        }
        let any = match flow.target.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let at = |ip: IpAddr| {
            let local = SocketAddr::new(ip, flow.target.port());
            self.slots.get(&Key::new(flow.protocol, None, local)).copied()
        };
        // An IPv6 socket without an address takes IPv4 packets too, unless it was registered as
        // IPv4.
        let both = || at(IpAddr::V6(Ipv6Addr::UNSPECIFIED)).filter(|_| any.is_ipv4());
        at(flow.target.ip()).or_else(|| at(any)).or_else(both)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A hash of the flow that depends on the seed, for whoever spreads flows over queues.
    pub fn hash(&self, flow: &FlowKey) -> u64 {
        self.slots.hasher().hash_one(Key::new(flow.protocol, Some(flow.source), flow.target))
    }
}

#[cfg(test)]
#[path = "demux_tests.rs"]
mod tests;
