//! What a server thread can be told from elsewhere, and the control packets of its clients.
//!
//! The control thread and holders of tokens post notes; the server thread takes them between two
//! looks at its lanes. Not here: the lanes; see `server`.

use crate::control::{self, Received, Topic};
use crate::grant::{Granted, REGISTERED_MAX};
use crate::link::{Link, lock};
use crate::reason::Reason;
use crate::rt::ClientId;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_shm::{Access, Segment, futex};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Packets of one client that are read before others have their turn.
const PACKETS_AT_ONCE: u32 = 64;

/// Something for a server thread to know.
#[derive(Debug)]
pub(crate) enum Note {
    /// A client was given to this thread.
    Joined(Arc<Link>),
    /// A client has something, and its lane was asleep.
    Rang(ClientId),
    /// A client is gone; [`Link::ended`] says why.
    Ended(ClientId),
}

/// The mailbox of one server thread.
#[derive(Debug, Default)]
pub(crate) struct ServerThread {
    notes: Mutex<VecDeque<Note>>,
    /// Whether `notes` has any; read on every round.
    pub(crate) has_notes: AtomicBool,
    /// Counts posts; the futex on which the thread sleeps, besides its lanes' bells.
    pub(crate) poke: AtomicU32,
    /// Clients given to this thread.
    pub(crate) clients: AtomicUsize,
    /// The thread takes no more clients.
    pub(crate) is_closed: AtomicBool,
    /// Bytes of grants a client may register.
    pub(crate) grants_max: u64,
    /// The processor the thread was last seen on, as in headers.
    cpu: AtomicU32,
}

impl ServerThread {
    pub(crate) fn new(grants_max: u64) -> Self {
        Self { grants_max, ..Self::default() }
    }

    /// The processor the thread was last seen on, as in headers.
    #[inline]
    pub(crate) fn cpu(&self) -> u16 {
        self.cpu.load(Ordering::Relaxed) as u16
    }

    #[inline]
    pub(crate) fn set_cpu(&self, cpu: u16) {
        self.cpu.store(u32::from(cpu), Ordering::Relaxed);
    }

    /// Posts a note and wakes the thread.
    pub(crate) fn post(&self, note: Note) {
        lock(&self.notes).push_back(note);
        // SYNC: release; pairs with the acquire swap in `take`.
        self.has_notes.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
    }

    /// Posts a note that comes before all others.
    pub(crate) fn post_first(&self, note: Note) {
        let mut notes = lock(&self.notes);
        notes.push_front(note);
        self.has_notes.store(true, Ordering::Release);
    }

    /// Takes no more clients, and lets the thread notice.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.poke.fetch_add(1, Ordering::Release);
        futex::wake(&self.poke);
    }

    /// The next note.
    pub(crate) fn take(&self) -> Option<Note> {
        let mut notes = lock(&self.notes);
        let note = notes.pop_front();
        if notes.is_empty() {
            self.has_notes.store(false, Ordering::Relaxed);
        }
        note
    }

    /// Reads control packets of a client of this thread that are there, but not so many that others
    /// have to wait. Called by the control thread when there are some, and by the server thread
    /// when it misses descriptors. False when there were none.
    pub(crate) fn drain(&self, link: &Link) -> bool {
        // One thread at a time: what the other has read it has also put where it is looked for.
        let _turn = lock(&link.reading);
        (0..PACKETS_AT_ONCE).take_while(|_| self.drain_one(link)).count() > 0
    }

    /// Takes one packet; false when there is none or the client is let go.
    fn drain_one(&self, link: &Link) -> bool {
        let refuse = |reason| {
            link.end(reason);
            false
        };
        let (packet, fds, lost) = match control::receive_from(&link.socket) {
            Received::Packet { packet, fds, lost, .. } => (packet, fds, lost),
            Received::Nonsense => return refuse(Reason::BadPacket),
            Received::Ended => return refuse(Reason::PeerDied),
            Received::Empty => return false,
        };
        if !link.count_packet() {
            return refuse(Reason::DoorbellFlood);
        }
        if lost {
            return refuse(Reason::NoResources);
        }
        match self.handle(link, packet, fds) {
            Ok(()) => true,
            Err(reason) => refuse(reason),
        }
    }

    fn handle(
        &self,
        link: &Link,
        packet: control::Packet,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Reason> {
        match packet.topic {
            Topic::Wake if fds.is_empty() => {
                if link.cold.rang() {
                    self.post(Note::Rang(link.id));
                }
                Ok(())
            }
            Topic::Descriptors => match link.put_fds(packet.id, fds) {
                true => Ok(()),
                false => Err(Reason::DescriptorFlood),
            },
            Topic::Register => self.register(link, packet, fds),
            Topic::Unregister => {
                lock(&link.grants).retain(|(id, _)| *id != packet.id);
                answer(link, packet.id, 0)
            }
            _ => Err(Reason::BadPacket),
        }
    }

    fn register(
        &self,
        link: &Link,
        packet: control::Packet,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Reason> {
        let access = if packet.b == 1 { Access::ReadWrite } else { Access::Read };
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else { return Err(Reason::BadPacket) };
        let granted = usize::try_from(packet.a)
            .ok()
            .and_then(|len| Segment::accept(fd, len).ok())
            .and_then(|segment| segment.map(access).ok());
        let Some(mapping) = granted else {
            return answer(link, packet.id, Reason::BadGrant.code());
        };
        let mut grants = lock(&link.grants);
        let sum: u64 = grants.iter().map(|(_, grant)| grant.mapping.len() as u64).sum();
        let is_known = grants.iter().any(|(id, _)| *id == packet.id);
        if is_known || grants.len() >= REGISTERED_MAX || sum + packet.a > self.grants_max {
            drop(grants);
            return answer(link, packet.id, Reason::NoResources.code());
        }
        grants.push((packet.id, Arc::new(Granted { mapping })));
        drop(grants);
        answer(link, packet.id, 0)
    }
}

/// Answers a registration. A client that does not read its answers loses its connection.
fn answer(link: &Link, id: u32, code: u32) -> Result<(), Reason> {
    let mut packet = control::Packet::new(Topic::Done, id);
    packet.a = u64::from(code);
    control::send(link.socket.as_fd(), packet, &[]).map_err(|_| Reason::BadPacket)
}
