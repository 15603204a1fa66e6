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
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, Weak};

/// The [`EventData`] of the listener and of the signal. Clients have the other values: index and
/// generation for links, places in the lobby above `LOBBY`.
pub(crate) const LISTENER: u64 = u64::MAX;
pub(crate) const SIGNAL: u64 = u64::MAX - 1;
pub(crate) const LOBBY: u64 = 1 << 63;

/// The state that the control thread, the server threads and clients in this address space share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    /// A number that no other endpoint of this process has had, for clients that look it up in
    /// `SPACE`.
    pub(crate) id: u64,
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
static SPACE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    /// Creates the state of an endpoint with a new number.
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let shared = Arc::new(Self {
            options,
            id: fresh_id(),
            threads: Mutex::default(),
            links: Mutex::default(),
            budget: Budget::new(),
            local: Mutex::default(),
            is_closing: AtomicBool::new(false),
        });
        let mut space = lock(&SPACE);
        space.retain(|shared| shared.strong_count() > 0);
        space.push(Arc::downgrade(&shared));
        drop(space);
        shared
    }

    /// Returns the endpoint `id`, if it is in this address space.
    pub(crate) fn in_this_space(id: u64) -> Option<Arc<Self>> {
        lock(&SPACE).iter().filter_map(Weak::upgrade).find(|shared| shared.id == id)
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
    pub(crate) fn watch(&self, fd: impl AsFd, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, EventData::new_u64(key), flags)
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

fn fresh_id() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => crate::deadline::now_ns() ^ u64::from(std::process::id()) << 32,
    }
}
