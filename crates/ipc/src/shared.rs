//! What the control thread, the server threads and clients in this address space share of an
//! endpoint, and what the control thread waits on.
//!
//! Not here: making an endpoint (`endpoint`), and what the control thread does (`greet`).

use crate::link::{ClientLink, ServerThread};
use crate::lock::lock;
use crate::options::ServerOptions;
use crate::proxy::Proxies;
use crate::rt::ClientId;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, Weak};

/// What [`EventData`] says for the listener and for the closing of the endpoint; clients have the
/// rest: index and generation for links, places in the lobby above `LOBBY`.
pub(crate) const LISTENER: u64 = u64::MAX;
pub(crate) const SIGNAL: u64 = u64::MAX - 1;
pub(crate) const LOBBY: u64 = 1 << 63;

/// What the control thread, the server threads and clients in this address space share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    /// Names this endpoint among all there ever were, for clients that look for it in `SPACE`.
    pub(crate) id: u64,
    pub(crate) threads: Mutex<Vec<Arc<ServerThread>>>,
    pub(crate) links: Mutex<Vec<Slot>>,
    pub(crate) local: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    pub(crate) is_closing: AtomicBool,
}

/// A place for a client: which use of the index comes next, and who has it.
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
    /// An endpoint of this address space, with a number that no other has.
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let shared = Arc::new(Self {
            options,
            id: fresh_id(),
            threads: Mutex::default(),
            links: Mutex::default(),
            local: Mutex::default(),
            is_closing: AtomicBool::new(false),
        });
        let mut space = lock(&SPACE);
        space.retain(|shared| shared.strong_count() > 0);
        space.push(Arc::downgrade(&shared));
        drop(space);
        shared
    }

    /// The endpoint `id`, if it lives in this address space.
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
    /// Whether the endpoint has been dropped.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}

/// What the control thread waits on.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) epoll: OwnedFd,
    pub(crate) listener: OwnedFd,
    /// Says that `is_closing`, the list of threads or `offered` has changed.
    pub(crate) signal: OwnedFd,
    /// Sockets made by `Endpoint::offer`, for the control thread.
    pub(crate) offered: Mutex<Vec<OwnedFd>>,
    /// Who shares the sockets of clients that connect.
    pub(crate) proxies: Option<Arc<dyn Proxies>>,
}

impl Control {
    pub(crate) fn watch(&self, fd: impl AsFd, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, EventData::new_u64(key), flags)
    }
}

impl Control {
    /// The listener, for the control thread.
    pub(crate) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Swallows the signal that something changed.
    pub(crate) fn clear_signal(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.signal, &mut count);
    }

    pub(crate) fn signal(&self) -> Result<(), Errno> {
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).map(drop)
    }

    /// Sockets that were offered since the last call.
    pub(crate) fn take_offered(&self) -> Vec<OwnedFd> {
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
