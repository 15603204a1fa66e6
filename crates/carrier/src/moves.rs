//! The carrier's part in a move: what is handed in and what the server says, and what the steps
//! have in common.
//!
//! The steps: `out` and `home`; what is known of a session whose program is silent: `numbers`. Read
//! the head of `carrier` and `docs/understand/moves.md` first.

mod home;
mod numbers;
mod out;

pub(crate) use out::{RING_BYTES, grace};

use crate::carrier::{Carrier, Entry};
use crate::metastate::{Mac, Metastate, Way, WayError};
use crate::sessions::Handed;
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_session::{EventT, HopT};
use sojourn_wire::FlowKey;

/// How often a session that may not be taken out yet is looked at (microseconds), and for how long
/// at most.
pub(crate) const TAKE_EVERY_US: u64 = 200;
pub(crate) const TAKE_LIMIT_US: u64 = 2_000_000;

/// What a session's own packets say of themselves.
fn flow_of(key: &Key) -> Option<FlowKey> {
    Some(FlowKey { protocol: key.protocol(), source: key.local(), target: key.remote()? })
}

/// The way to a session's peer, if there is one now.
pub(crate) fn way_of(metastate: &mut Metastate, key: &Key) -> Option<Way> {
    metastate.way(&flow_of(key)?).ok()
}

/// Whether there is no route to a session's peer. The kernel would not take the session then: it
/// connects nothing that it has no route for.
pub(crate) fn is_cut(metastate: &mut Metastate, key: &Key) -> bool {
    let Some(flow) = flow_of(key) else { return false };
    let found = metastate.way(&flow);
    matches!(found, Err(WayError::System(_, Errno::NETUNREACH | Errno::HOSTUNREACH)))
}

impl Carrier {
    /// Sockets that are handed in, and what the server says of those that were.
    pub(crate) fn take_from_gate(&mut self) {
        self.gate.quiet();
        while let Some(handed) = self.gate.next() {
            match handed {
                Handed::Socket(socket) => {
                    // Its session may have been here before, and have been left while it was kept
                    // waiting: that comes first.
                    self.take_events();
                    self.offer(socket);
                }
                Handed::Registered { stream, pid } => self.registered(stream, pid),
                Handed::AllHome => self.all_home(),
                Handed::Back { token, has_ended, record } => {
                    self.given_back(token, has_ended, &record);
                }
                Handed::Late { token, packets } => self.say_late(token, &packets),
                Handed::AskWay { local, to } => self.tell_way(local, to),
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        loop {
            match self.sessions.next() {
                EventT::Case0 => return,
                EventT::Join(join) => self.joined(&join),
                EventT::Recall(recall) => self.recalled(&recall),
                EventT::Refused(refusal) => {
                    self.entries.remove(&refusal.local);
                }
                // To libraries only.
                EventT::Lend(_) | EventT::Rerouted(_) | EventT::Wanted(_) | EventT::Way(_) => {}
            }
        }
    }
}

/// A number that nobody can guess.
pub(crate) fn token() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// What of a way is in frames. `port`: the link address of the program's port, if it has one; a
/// port is Ethernet whatever the link is, and nobody looks at the target then.
pub(crate) fn hop_of(way: &Way, port: Option<Mac>) -> HopT {
    let link = way.link.or(port.map(|own| (own, own)));
    let (own, next) = link.unwrap_or_default();
    HopT { is_cut: false, has_addresses: link.is_some(), own, next, mtu: way.mtu }
}
