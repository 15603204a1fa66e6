//! The socket of a connection, where it belongs: with the connection, or apart from it.
//!
//! A library inside a program may have sockets only in a descriptor table that the program's
//! threads do not share (`sojourn_shm::aside`). Calls that carry no descriptors need the region
//! alone, except for two things: to wake a server whose lane is cold takes a packet, and the end
//! of the server shows on the socket. For a connection that has parted from its socket
//! ([`crate::Connection::part_from_socket`]) others do both: [`ApartSocket`] sends the packet,
//! [`Ending`] tells of the end. Not here: the wait (`connection::waiting`).

use crate::control::{self, Packet, Topic};
use crate::layout::Region;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_shm::{AtomicU32, futex, park};
use std::sync::Arc;

/// Has the packet sent that wakes a cold server. It may be called under any lock of the caller's.
pub type WakeServer = Box<dyn Fn() + Send + Sync>;

/// The place of a connection's socket.
pub(crate) enum Socket {
    /// The socket is in the descriptor table of the thread that uses the connection.
    Here(OwnedFd),
    /// The socket is elsewhere.
    Apart(Apart),
}

pub(crate) struct Apart {
    wake: WakeServer,
    is_over: Arc<AtomicBool>,
}

impl core::fmt::Debug for Socket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Here(socket) => f.debug_tuple("Here").field(socket).finish(),
            Self::Apart(apart) => f.debug_tuple("Apart").field(&apart.is_over).finish(),
        }
    }
}

impl Socket {
    /// Returns the socket, if it is here.
    #[inline]
    pub(crate) fn here(&self) -> Option<&OwnedFd> {
        match self {
            Self::Here(socket) => Some(socket),
            Self::Apart(_) => None,
        }
    }

    /// Returns true if the socket is apart and its holder has told of the end of the connection.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Here(_) => false,
            // SYNC: acquire; pairs with the release store in `Ending::end`.
            Self::Apart(apart) => apart.is_over.load(Ordering::Acquire),
        }
    }

    /// Gives up the socket, see [`crate::Connection::part_from_socket`].
    pub(crate) fn part(&mut self, region: &Arc<Region>, wake: WakeServer) -> Option<Parted> {
        self.here()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let apart = Self::Apart(Apart { wake, is_over: Arc::clone(&is_over) });
        match core::mem::replace(self, apart) {
            Self::Here(socket) => {
                let ending = Ending { region: Arc::clone(region), is_over };
                Some(Parted { socket: ApartSocket(socket), ending })
            }
            Self::Apart(_) => None,
        }
    }

    /// Wakes the peer after a publication, if its bell says that it sleeps.
    #[inline(always)]
    pub(crate) fn ring(&self, bell: &AtomicU32) {
        match self {
            Self::Here(socket) => control::ring(bell, socket),
            Self::Apart(apart) => match park::ring(bell) {
                park::AWAKE => {}
                park::ON_FUTEX => futex::wake(bell),
                _ => (apart.wake)(),
            },
        }
    }
}

/// What others need in the place of a connection that has parted from its socket.
#[derive(Debug)]
pub struct Parted {
    /// The socket.
    pub socket: ApartSocket,
    /// Tells the connection of its end.
    pub ending: Ending,
}

/// The socket of a connection that has parted from it. The connection lasts as long as this.
#[derive(Debug)]
pub struct ApartSocket(OwnedFd);

impl ApartSocket {
    /// Sends the packet that wakes a cold server. Never waits.
    pub fn wake_server(&self) {
        // If the socket is full, a packet in it already wakes the server.
        let _ = control::send(self.0.as_fd(), Packet::new(Topic::Wake, 0), &[]);
    }
}

impl AsFd for ApartSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells a connection that has parted from its socket of its end.
#[derive(Clone, Debug)]
pub struct Ending {
    region: Arc<Region>,
    is_over: Arc<AtomicBool>,
}

impl Ending {
    /// Ends the connection: its calls end with `Disconnected`, after answers that had been
    /// published. Wakes its thread, if that sleeps.
    pub fn end(&self) {
        // SYNC: release; pairs with the acquire load in `Socket::is_over`. The ring's fence comes
        // after the store; pairs with the look after the announcement in `Connection::park`.
        self.is_over.store(true, Ordering::Release);
        let bell = self.region.client_bell();
        if park::ring(bell) != park::AWAKE {
            futex::wake(bell);
        }
    }
}
