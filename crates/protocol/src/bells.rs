//! The bells of clients: the watched events that have happened, and the socket by which a client
//! hears of them.
//!
//! A bell is one end of a socket pair of this process's, so that ringing never waits: the client
//! has only the other end. Not here: the list of watches (`queue`).

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use sojourn_ipc::ClientId;
use sojourn_session::protocol::server::{READY_MAX, ReadyT};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Bell {
    own: OwnedFd,
    /// Events by the client's number of the session.
    ready: BTreeMap<u32, u32>,
    /// It was rung, and nothing was collected since.
    is_rung: bool,
}

impl Bell {
    fn ring(&mut self) {
        if !self.is_rung && !self.ready.is_empty() {
            self.is_rung = true;
            // A full socket is readable already, and a client that has closed its end hears
            // nothing.
            let _ = send(&self.own, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// The bells.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<HashMap<ClientId, Bell>>);

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Bell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the client's bell, and returns the client's end.
    ///
    /// # Errors
    /// `EEXIST`: it has one. Those of socketpair(2).
    pub(crate) fn make(&self, client: ClientId) -> Result<OwnedFd, Errno> {
        let mut bells = self.lock();
        if bells.contains_key(&client) {
            return Err(Errno::EXIST);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bells.insert(client, Bell { own, ready: BTreeMap::new(), is_rung: false });
        Ok(theirs)
    }

    /// Returns true if the client has a bell.
    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.lock().contains_key(&client)
    }

    /// Notes events of a session, and rings.
    pub(crate) fn ring(&self, client: ClientId, session: u32, events: u32) {
        if let Some(bell) = self.lock().get_mut(&client) {
            *bell.ready.entry(session).or_default() |= events;
            bell.ring();
        }
    }

    /// Forgets the noted events of a session.
    pub(crate) fn forget(&self, client: ClientId, session: u32) {
        if let Some(bell) = self.lock().get_mut(&client) {
            bell.ready.remove(&session);
        }
    }

    /// Takes the noted events that one answer has room for. The bell rings again for the rest.
    pub(crate) fn collect(&self, client: ClientId) -> Vec<ReadyT> {
        let mut bells = self.lock();
        let Some(bell) = bells.get_mut(&client) else { return Vec::new() };
        let first = bell.ready.iter().take(READY_MAX as usize);
        let first: Vec<ReadyT> =
            first.map(|(session, events)| ReadyT { session: *session, events: *events }).collect();
        for ready in &first {
            bell.ready.remove(&ready.session);
        }
        bell.is_rung = false;
        bell.ring();
        first
    }

    /// Drops the client's bell.
    pub(crate) fn gone(&self, client: ClientId) {
        self.lock().remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const ONE: ClientId = ClientId { index: 1, generation: 1 };

    fn rings(bell: &OwnedFd) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).unwrap() > 0;
        if found {
            rustix::io::read(bell, &mut [0; 64]).unwrap();
        }
        found
    }

    #[test]
    fn a_bell_rings_once_until_it_is_answered_and_tells_all() {
        let bells = Bells::default();
        bells.ring(ONE, 7, 1);
        let bell = bells.make(ONE).unwrap();
        assert_eq!(bells.make(ONE).unwrap_err(), Errno::EXIST);
        assert!(!rings(&bell) && bells.collect(ONE).is_empty(), "from before the bell");
        bells.ring(ONE, 7, 1);
        bells.ring(ONE, 7, 4);
        assert!(rings(&bell) && !rings(&bell));
        bells.ring(ONE, 3, 1);
        assert!(!rings(&bell), "not collected yet");
        let both = [ReadyT { session: 3, events: 1 }, ReadyT { session: 7, events: 5 }];
        assert_eq!(bells.collect(ONE), both);
        assert!(!rings(&bell) && bells.collect(ONE).is_empty());
        bells.ring(ONE, 9, 1);
        bells.forget(ONE, 9);
        assert!(rings(&bell) && bells.collect(ONE).is_empty(), "closed meanwhile");
    }

    #[test]
    fn what_one_answer_has_no_room_for_is_rung_for_again() {
        let bells = Bells::default();
        let bell = bells.make(ONE).unwrap();
        (1..=READY_MAX + 1).for_each(|session| bells.ring(ONE, session, 1));
        assert!(rings(&bell));
        assert_eq!(bells.collect(ONE).len(), READY_MAX as usize);
        assert!(rings(&bell));
        assert_eq!(bells.collect(ONE).len(), 1);
        assert!(!rings(&bell));
    }

    #[test]
    fn a_client_that_never_reads_its_bell_stops_nobody() {
        let bells = Bells::default();
        let _bell = bells.make(ONE).unwrap();
        for _ in 0..100_000 {
            bells.ring(ONE, 1, 1);
            bells.collect(ONE);
        }
        bells.ring(ONE, 1, 1);
        assert_eq!(bells.collect(ONE).len(), 1);
        bells.gone(ONE);
        bells.ring(ONE, 1, 1);
        assert!(!bells.has(ONE) && bells.collect(ONE).is_empty());
    }
}
