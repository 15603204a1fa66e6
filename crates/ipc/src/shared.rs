//! The state of an endpoint that the control thread, the server threads and clients in this address
//! space share, and the objects on which the control thread waits.
//!
//! Not here: making an endpoint (`endpoint`), and the control thread's work (`greet`).

use crate::link::{ClientLink, ServerThread};
use crate::lock::lock;
use crate::options::ServerOptions;
use crate::proxy::Proxies;
use crate::rt::ClientId;
use crate::shares::Budget;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// A number that no other endpoint of this process has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointId(pub u64);

impl EndpointId {
    fn fresh() -> Self {
        let mut bytes = [0; 8];
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => Self(u64::from_ne_bytes(bytes)),
            _ => Self(crate::deadline::now_ns() ^ u64::from(std::process::id()) << 32),
        }
    }
}

/// A client that has not greeted yet. Numbers are used again after 2^62 others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct GuestId(u64);

impl GuestId {
    const MAX: u64 = (1 << 62) - 1;

    /// Returns the number of the guest that comes next.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & Self::MAX)
    }
}

/// An object on which the control thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Listener,
    Signal,
    /// The socket of a client that has not greeted yet.
    Guest(GuestId),
    /// The socket of a client with a link.
    Client(ClientId),
}

impl Watched {
    const LISTENER: u64 = u64::MAX;
    const SIGNAL: u64 = u64::MAX - 1;
    /// Set in the words of guests; generations of clients stay below it.
    const GUEST: u64 = 1 << 63;

    /// Returns the word by which the epoll set names the object.
    fn word(self) -> u64 {
        match self {
            Self::Listener => Self::LISTENER,
            Self::Signal => Self::SIGNAL,
            Self::Guest(guest) => Self::GUEST | guest.0,
            Self::Client(id) => u64::from(id.index) | u64::from(id.generation) << 32,
        }
    }

    /// Returns the object that an event of the epoll set names.
    pub(crate) fn of(event: Event) -> Self {
        match event.data.u64() {
            Self::LISTENER => Self::Listener,
            Self::SIGNAL => Self::Signal,
            word if word & Self::GUEST != 0 => Self::Guest(GuestId(word & GuestId::MAX)),
            word => Self::Client(ClientId { index: word as u32, generation: (word >> 32) as u32 }),
        }
    }
}

/// The state that the control thread, the server threads and clients in this address space share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    /// For clients that look the endpoint up in `SPACE`.
    pub(crate) id: EndpointId,
    pub(crate) threads: Mutex<Vec<Arc<ServerThread>>>,
    pub(crate) links: Mutex<Vec<Slot>>,
    pub(crate) budget: Budget,
    pub(crate) local: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    pub(crate) is_closing: AtomicBool,
}

/// A place for a client: the generation of its index, and the client's link.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) link: Option<Arc<ClientLink>>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint").field("id", &self.id).field("options", &self.options).finish()
    }
}

/// The endpoints of this address space.
// FORK: readers among the parent's other threads do not keep a child from reading, and programs
// that make endpoints do so before they make children.
static SPACE: RwLock<Vec<Weak<Shared>>> = RwLock::new(Vec::new());

impl Shared {
    /// Creates the state of an endpoint with a new number.
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let shared = Arc::new(Self {
            options,
            id: EndpointId::fresh(),
            threads: Mutex::default(),
            links: Mutex::default(),
            budget: Budget::new(),
            local: Mutex::default(),
            is_closing: AtomicBool::new(false),
        });
        let mut space = SPACE.write().unwrap_or_else(PoisonError::into_inner);
        space.retain(|shared| shared.strong_count() > 0);
        space.push(Arc::downgrade(&shared));
        drop(space);
        shared
    }

    /// Returns the endpoint `id`, if it is in this address space.
    pub(crate) fn in_this_space(id: EndpointId) -> Option<Arc<Self>> {
        let space = SPACE.read().unwrap_or_else(PoisonError::into_inner);
        space.iter().filter_map(Weak::upgrade).find(|shared| shared.id == id)
    }

    pub(crate) fn link(&self, id: ClientId) -> Option<Arc<ClientLink>> {
        let links = lock(&self.links);
        let link = links.get(id.index as usize)?.link.as_ref()?;
        (link.id == id).then(|| Arc::clone(link))
    }

    pub(crate) fn local_object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.local).clone()
    }
}

impl Shared {
    /// Returns true if the endpoint has been dropped.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}

/// A socket that did not come by the listener.
#[derive(Debug)]
pub(crate) enum Offered {
    /// Made by `Endpoint::offer`.
    Pair(OwnedFd),
    /// Accepted by another process, see `Endpoint::adopt`.
    Accepted(OwnedFd),
}

/// The objects on which the control thread waits.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) epoll: OwnedFd,
    /// `None`: clients come by `Endpoint::offer` only.
    pub(crate) listener: Option<OwnedFd>,
    /// Signals that `is_closing`, the list of threads or `offered` has changed.
    pub(crate) signal: OwnedFd,
    /// Sockets that did not come by the listener, for the control thread.
    pub(crate) offered: Mutex<Vec<Offered>>,
    /// The proxies that share the sockets of connecting clients.
    pub(crate) proxies: Option<Arc<dyn Proxies>>,
}

impl Control {
    /// Adds an object to the epoll set.
    pub(crate) fn watch(&self, fd: impl AsFd, watched: Watched) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, EventData::new_u64(watched.word()), flags)
    }
}

impl Control {
    /// Returns the listener, for the control thread, if the endpoint has an address.
    pub(crate) fn listener(&self) -> Option<&OwnedFd> {
        self.listener.as_ref()
    }

    /// Clears the signal.
    pub(crate) fn clear_signal(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.signal, &mut count);
    }

    pub(crate) fn signal(&self) -> Result<(), Errno> {
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).map(drop)
    }

    /// Takes the sockets that were offered since the last call.
    pub(crate) fn take_offered(&self) -> Vec<Offered> {
        core::mem::take(&mut lock(&self.offered))
    }
}
