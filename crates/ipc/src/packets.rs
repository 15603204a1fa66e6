//! The control packets of a server's clients: descriptors, grants, wake-ups.
//!
//! The control thread reads the packets when a socket is readable, the server thread when it misses
//! descriptors. Not here: the format of packets (`control`).

use crate::control::{self, Received, Topic};
use crate::grant::{Granted, REGISTERED_MAX};
use crate::layout::Seq;
use crate::link::{ClientLink, RegisteredGrant};
use crate::lock::lock;
use crate::rt::GrantId;
use crate::rt::Reason;
use crate::shares::Share;
use crate::thread::Note;
use rustix::fd::{AsFd, OwnedFd};
use sojourn_shm::{Access, Segment};
use std::sync::Arc;

/// The number of packets of one client read before other clients have their turn.
const PACKETS_AT_ONCE: u32 = 64;

impl ClientLink {
    /// Takes the descriptors of request `seq`. The client sent them before it published the
    /// request, so they are in the inbox or in the socket.
    pub(crate) fn take_fds(&self, seq: Seq) -> Option<Vec<OwnedFd>> {
        loop {
            if let Some(fds) = lock(&self.inbox).take(seq) {
                return Some(fds);
            }
            if !self.drain() {
                return lock(&self.inbox).take(seq);
            }
        }
    }

    /// Reads a limited number of waiting control packets of a client. The control thread calls this
    /// when the socket is readable, and the server thread when it misses descriptors. Returns false
    /// if there were none.
    pub(crate) fn drain(&self) -> bool {
        // One thread reads at a time, so that packets read by another thread have also been put
        // away when this one looks for them.
        let _turn = lock(&self.reading);
        (0..PACKETS_AT_ONCE).take_while(|_| self.drain_one()).count() > 0
    }

    /// Takes one packet; returns false if there is none or the client is disconnected.
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
            Topic::Descriptors => match self.put_fds(Seq(packet.number), fds) {
                true => Ok(()),
                false => Err(Reason::DescriptorFlood),
            },
            Topic::Register => self.register(packet, fds),
            Topic::Unregister => {
                lock(&self.grants).retain(|grant| grant.id.0 != packet.number);
                answer(self, packet.number, 0)
            }
            _ => Err(Reason::BadPacket),
        }
    }

    fn register(&self, packet: control::Packet, fds: Vec<OwnedFd>) -> Result<(), Reason> {
        let access = if packet.b == 1 { Access::ReadWrite } else { Access::Read };
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else { return Err(Reason::BadPacket) };
        let segment = usize::try_from(packet.a).ok().and_then(|len| Segment::accept(fd, len).ok());
        let Some(segment) = segment else {
            return answer(self, packet.number, Reason::BadGrant.code());
        };
        // Packets are read by one thread at a time, so no other grant comes in between.
        let Some(share) = self.grant_share(GrantId(packet.number), packet.a) else {
            return answer(self, packet.number, Reason::NoResources.code());
        };
        let Ok(mapping) = segment.map(access) else {
            return answer(self, packet.number, Reason::BadGrant.code());
        };
        let granted = Arc::new(Granted { mapping, _share: share });
        lock(&self.grants).push(RegisteredGrant { id: GrantId(packet.number), granted });
        answer(self, packet.number, 0)
    }

    /// Counts a grant of this number and length, if the client may have one more.
    fn grant_share(&self, id: GrantId, len: u64) -> Option<Share> {
        let grants = lock(&self.grants);
        let sum: u64 = grants.iter().map(|grant| grant.granted.mapping.len() as u64).sum();
        let is_known = grants.iter().any(|grant| grant.id == id);
        let is_much = sum.saturating_add(len) > self.thread.grants_max;
        if is_known || is_much || grants.len() >= REGISTERED_MAX {
            return None;
        }
        self.budget.grants.take(self.credentials.user(), 1)
    }
}

/// Answers a registration. A client that does not read its answers loses its connection.
fn answer(link: &ClientLink, number: u32, code: u32) -> Result<(), Reason> {
    let mut packet = control::Packet::new(Topic::Done, number);
    packet.a = u64::from(code);
    control::send(link.socket.as_fd(), packet, &[]).map_err(|_| Reason::BadPacket)
}
