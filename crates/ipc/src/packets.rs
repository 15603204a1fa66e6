//! The control packets of a server's clients: descriptors, grants, wake-ups.
//!
//! The control thread reads them when there are some, the server thread when it misses descriptors.
//! Not here: what a packet looks like; see `control`.

use crate::control::{self, Received, Topic};
use crate::grant::{Granted, REGISTERED_MAX};
use crate::link::ClientLink;
use crate::lock::lock;
use crate::reason::Reason;
use crate::thread::Note;
use rustix::fd::{AsFd, OwnedFd};
use sojourn_shm::{Access, Segment};
use std::sync::Arc;

/// Packets of one client that are read before others have their turn.
const PACKETS_AT_ONCE: u32 = 64;

impl ClientLink {
    /// The descriptors of request `seq`. The client sent them before it published the request, so
    /// they are here or in the socket.
    pub(crate) fn take_fds(&self, seq: u32) -> Option<Vec<OwnedFd>> {
        loop {
            if let Some(fds) = lock(&self.inbox).take(seq) {
                return Some(fds);
            }
            if !self.drain() {
                return lock(&self.inbox).take(seq);
            }
        }
    }

    /// Reads control packets of a client that are there, but not so many that others
    /// have to wait. Called by the control thread when there are some, and by the server thread
    /// when it misses descriptors. False when there were none.
    pub(crate) fn drain(&self) -> bool {
        // One thread at a time: what the other has read it has also put where it is looked for.
        let _turn = lock(&self.reading);
        (0..PACKETS_AT_ONCE).take_while(|_| self.drain_one()).count() > 0
    }

    /// Takes one packet; false when there is none or the client is let go.
    fn drain_one(&self) -> bool {
        let refuse = |reason| {
            self.end(reason);
            false
        };
        let (packet, fds, lost) = match self.socket.receive() {
            Received::Packet { packet, fds, lost, .. } => (packet, fds, lost),
            Received::Nonsense => return refuse(Reason::BadPacket),
            Received::Ended => return refuse(Reason::PeerDied),
            Received::Empty => return false,
        };
        if !self.count_packet() {
            return refuse(Reason::DoorbellFlood);
        }
        if lost {
            return refuse(Reason::NoResources);
        }
        match self.handle_packet(packet, fds) {
            Ok(()) => true,
            Err(reason) => refuse(reason),
        }
    }

    fn handle_packet(&self, packet: control::Packet, fds: Vec<OwnedFd>) -> Result<(), Reason> {
        match packet.topic {
            Topic::Wake if fds.is_empty() => {
                if self.cold.rang() {
                    self.thread.post(Note::Rang(self.id));
                }
                Ok(())
            }
            Topic::Descriptors => match self.put_fds(packet.id, fds) {
                true => Ok(()),
                false => Err(Reason::DescriptorFlood),
            },
            Topic::Register => self.register(packet, fds),
            Topic::Unregister => {
                lock(&self.grants).retain(|(id, _)| *id != packet.id);
                answer(self, packet.id, 0)
            }
            _ => Err(Reason::BadPacket),
        }
    }

    fn register(&self, packet: control::Packet, fds: Vec<OwnedFd>) -> Result<(), Reason> {
        let access = if packet.b == 1 { Access::ReadWrite } else { Access::Read };
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else { return Err(Reason::BadPacket) };
        let granted = usize::try_from(packet.a)
            .ok()
            .and_then(|len| Segment::accept(fd, len).ok())
            .and_then(|segment| segment.map(access).ok());
        let Some(mapping) = granted else {
            return answer(self, packet.id, Reason::BadGrant.code());
        };
        let mut grants = lock(&self.grants);
        let sum: u64 = grants.iter().map(|(_, grant)| grant.mapping.len() as u64).sum();
        let is_known = grants.iter().any(|(id, _)| *id == packet.id);
        if is_known || grants.len() >= REGISTERED_MAX || sum + packet.a > self.thread.grants_max {
            drop(grants);
            return answer(self, packet.id, Reason::NoResources.code());
        }
        grants.push((packet.id, Arc::new(Granted { mapping })));
        drop(grants);
        answer(self, packet.id, 0)
    }
}

/// Answers a registration. A client that does not read its answers loses its connection.
fn answer(link: &ClientLink, id: u32, code: u32) -> Result<(), Reason> {
    let mut packet = control::Packet::new(Topic::Done, id);
    packet.a = u64::from(code);
    control::send(link.socket.as_fd(), packet, &[]).map_err(|_| Reason::BadPacket)
}
