//! An endpoint: where a server is found, and the control thread that keeps its sockets.
//!
//! The control thread accepts, greets, reads control packets and notices death, for all clients of
//! the endpoint; server threads never touch a socket while they wait. It holds no lock while it
//! waits and waits for nobody: a client that greets slowly, or not at all, only occupies a place in
//! [`Lobby`] until its time is up. Not here: the greeting (`greet`), the name's file (`guard`).

use crate::address::Address;
use crate::fault;
use crate::greet::Lobby;
use crate::guard::{Guard, Turn};
use crate::link::{Link, lock};
use crate::proxy::Proxies;
use crate::rt::ClientId;
use crate::server::Server;
use crate::thread::ServerThread;
use crate::wait::{Policy, Wait};
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// What [`EventData`] says for the listener and for the closing of the endpoint; clients have the
/// rest: index and generation for links, places in the lobby above `LOBBY`.
pub(crate) const LISTENER: u64 = u64::MAX;
pub(crate) const SIGNAL: u64 = u64::MAX - 1;
pub(crate) const LOBBY: u64 = 1 << 63;

/// What a server wants and allows.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// How its threads wait.
    pub wait: Wait,
    /// Bytes of a message that travel in one piece, for each of a client's slots.
    pub area: u64,
    /// Longest request taken (bytes).
    pub max_message: u64,
    /// Calls a client may have outstanding, rounded up to a power of two; at most 64.
    pub max_inflight: u32,
    /// Clients at one time.
    pub max_clients: u32,
    /// Clients at one time that run as the same user; 0: half of what others leave of `max_clients`
    /// for every user but the one that the server runs as, who may have all. More are refused with
    /// [`crate::Reason::TooManyOfUser`]. Users whom the server's user name space does not know
    /// count as one (`/proc/sys/kernel/overflowuid`).
    pub clients_per_user_max: u32,
    /// Bytes of memory that one client may register as grants.
    pub max_granted: u64,
    /// String items of a request that fits its area stay in the region, where the client can change
    /// them at any moment: [`crate::Request::item_span`]. What is larger is copied as ever.
    pub items_in_place: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            wait: Wait::Adaptive,
            area: 64 << 10,
            max_message: 16 << 20,
            max_inflight: 8,
            max_clients: 4096,
            clients_per_user_max: 0,
            max_granted: 256 << 20,
            items_in_place: false,
        }
    }
}

impl ServerOptions {
    /// Whether user `uid` has as many clients as it may have, where it has `theirs` and there are
    /// `all`. Where nothing else is said, each user but the server's own leaves as many places to
    /// the others as it has, so that however many take what they can, some are left.
    pub(crate) fn is_full_for(&self, uid: u32, own: u32, (theirs, all): (usize, usize)) -> bool {
        let left = (self.max_clients as usize).saturating_sub(all + 1);
        let takes_too_much =
            self.clients_per_user_max == 0 && uid != own && theirs > 0 && theirs + 1 > left;
        theirs >= self.clients_of(uid, own) || takes_too_much
    }

    /// Clients that user `uid` may have, of a server that runs as `own`.
    pub(crate) fn clients_of(&self, uid: u32, own: u32) -> usize {
        match self.clients_per_user_max {
            0 if uid == own => usize::MAX,
            0 => (self.max_clients as usize / 2).max(1),
            max => max as usize,
        }
    }
}

/// An endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error("{0}: an endpoint with this name is already being served")]
    InUse(String),
    /// Not a listening socket of the right type.
    #[error("{0}: not a listening socket of type SOCK_SEQPACKET; let the parent make it so")]
    NotAListener(String),
    /// The kernel refused.
    #[error("{0}: cannot listen: {1}")]
    System(String, Errno),
}

/// What the control thread, the server threads and clients in this address space share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    /// Names this endpoint among all there ever were, for clients that look for it in `SPACE`.
    pub(crate) id: u64,
    pub(crate) threads: Mutex<Vec<Arc<ServerThread>>>,
    pub(crate) links: Mutex<Vec<Slot>>,
    local: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    is_closing: AtomicBool,
}

/// A place for a client: which use of the index comes next, and who has it.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) link: Option<Arc<Link>>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint").field("id", &self.id).field("options", &self.options).finish()
    }
}

/// The endpoints of this address space.
static SPACE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    /// The endpoint `id`, if it lives in this address space.
    pub(crate) fn in_this_space(id: u64) -> Option<Arc<Self>> {
        lock(&SPACE).iter().filter_map(Weak::upgrade).find(|shared| shared.id == id)
    }

    pub(crate) fn link(&self, id: ClientId) -> Option<Arc<Link>> {
        let links = lock(&self.links);
        let link = links.get(id.index as usize)?.link.as_ref()?;
        (link.id == id).then(|| Arc::clone(link))
    }

    pub(crate) fn local_object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.local).clone()
    }
}

/// A served name. Dropping it ends it: no new clients; those there are told
/// [`crate::Reason::Closed`].
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    _guard: Option<Guard>,
}

/// What the control thread waits on.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) epoll: OwnedFd,
    listener: OwnedFd,
    /// Says that `is_closing`, the list of threads or `offered` has changed.
    signal: OwnedFd,
    /// Sockets made by [`Endpoint::offer`], for the control thread.
    offered: Mutex<Vec<OwnedFd>>,
    /// Who shares the sockets of clients that connect.
    pub(crate) proxies: Option<Arc<dyn Proxies>>,
}

impl Endpoint {
    /// Makes an endpoint at `address` and starts its control thread. Clients are taken at once, and
    /// served as soon as there is a [`Server`].
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(address: Address, options: ServerOptions) -> Result<Self, BindError> {
        Self::make(address, options, None)
    }

    /// As [`Self::bind`], for a server that receives descriptors of clients by other processes.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_with(
        address: Address,
        options: ServerOptions,
        proxies: Arc<dyn Proxies>,
    ) -> Result<Self, BindError> {
        Self::make(address, options, Some(proxies))
    }

    fn make(
        address: Address,
        options: ServerOptions,
        proxies: Option<Arc<dyn Proxies>>,
    ) -> Result<Self, BindError> {
        let name = address.to_string();
        let system = |error| BindError::System(name.clone(), error);
        let (listener, guard) = listen(address, &name)?;
        let control = Control {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?,
            listener,
            signal: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .map_err(system)?,
            offered: Mutex::default(),
            proxies,
        };
        control.watch(&control.listener, LISTENER).map_err(system)?;
        control.watch(&control.signal, SIGNAL).map_err(system)?;
        let shared = Arc::new(Shared {
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
        let control = Arc::new(control);
        let lobby = Lobby::new(Arc::clone(&shared), Arc::clone(&control));
        let thread = std::thread::Builder::new()
            .name("sojourn-control".into())
            .spawn(move || lobby.run())
            .map_err(|_| system(Errno::AGAIN))?;
        Ok(Self { shared, control, thread: Some(thread), _guard: guard })
    }

    /// A handle for one more server thread. Clients are given to the thread that has the fewest.
    pub fn server(&self) -> Server {
        let mailbox = Arc::new(ServerThread::new(self.shared.options.max_granted));
        lock(&self.shared.threads).push(Arc::clone(&mailbox));
        // Clients that came before there was anybody to serve them.
        let _ = self.control.signal();
        Server::new(mailbox, Policy::new(self.shared.options.wait))
    }

    /// What threads and control thread share, for the C interface.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What clients in this address space find with [`crate::Connection::local`]: the object that
    /// generated stubs call directly, by reference.
    pub fn set_local(&self, object: Arc<dyn Any + Send + Sync>) {
        *lock(&self.shared.local) = Some(object);
    }

    /// A connected socket to this endpoint, to be handed to somebody as a descriptor: the
    /// capability to call it. What connects over it is a client like any other.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn offer(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Nobody connected: who has it is told with the greeting.
        rustix::net::sockopt::set_socket_passcred(&ours, true)?;
        lock(&self.control.offered).push(ours);
        self.control.signal()?;
        Ok(theirs)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        let _ = self.control.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Control {
    pub(crate) fn watch(&self, fd: impl AsFd, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, fd, EventData::new_u64(key), flags)
    }
}

fn fresh_id() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => crate::deadline::now_ns() ^ u64::from(std::process::id()) << 32,
    }
}

/// The listening socket for `address`, and the guard of its file.
fn listen(address: Address, name: &str) -> Result<(OwnedFd, Option<Guard>), BindError> {
    let system = |error| BindError::System(name.into(), error);
    let socket_address = address.socket_address();
    match (address, socket_address) {
        (Address::Descriptor(fd), _) => {
            let is_listener = rustix::net::sockopt::socket_acceptconn(&fd).unwrap_or(false)
                && rustix::net::sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET);
            if !is_listener {
                return Err(BindError::NotAListener(name.into()));
            }
            rustix::io::ioctl_fionbio(&fd, true).map_err(system)?;
            Ok((fd, None))
        }
        (_, None) => Err(system(Errno::NAMETOOLONG)),
        (address, Some(socket_address)) => {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let make = || {
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            };
            let socket = make().map_err(system)?;
            // Until the guard knows the file: what guards of others remove meanwhile would be ours.
            let _turn = match &address {
                Address::Path(path) => Some(Turn::take(path)),
                _ => None,
            };
            let mut bound = rustix::net::bind(&socket, &socket_address);
            if bound == Err(Errno::ADDRINUSE)
                && let Address::Path(path) = &address
                && is_socket(path)
                && rustix::net::connect(make().map_err(system)?, &socket_address)
                    == Err(Errno::CONNREFUSED)
            {
                // Its endpoint is dead and so was its guard: nobody listens, so nobody misses it.
                let _ = std::fs::remove_file(path);
                bound = rustix::net::bind(&socket, &socket_address);
            }
            match bound {
                Ok(()) => {}
                Err(Errno::ADDRINUSE) => return Err(BindError::InUse(name.into())),
                Err(error) => return Err(system(error)),
            }
            fault::point("server.bound");
            // At once: to others a bound socket that does not listen looks like a dead one's.
            rustix::net::listen(&socket, BACKLOG).map_err(system)?;
            fault::point("server.listening");
            let guard = match &address {
                Address::Path(path) => Some(Guard::new(path)),
                _ => None,
            };
            Ok((socket, guard))
        }
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
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

    fn signal(&self) -> Result<(), Errno> {
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).map(drop)
    }

    /// Sockets that were offered since the last call.
    pub(crate) fn take_offered(&self) -> Vec<OwnedFd> {
        core::mem::take(&mut lock(&self.offered))
    }
}

impl Shared {
    /// Whether the endpoint has been dropped.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_may_have_so_many_clients() {
        let of = |max_clients, clients_per_user_max| {
            let options =
                ServerOptions { max_clients, clients_per_user_max, ..ServerOptions::default() };
            (options.clients_of(7, 7), options.clients_of(8, 7))
        };
        assert_eq!(of(4096, 0), (usize::MAX, 2048));
        assert_eq!(of(1, 0), (usize::MAX, 1));
        let options = ServerOptions { max_clients: 100, ..ServerOptions::default() };
        let is_full = |theirs, all| options.is_full_for(8, 7, (theirs, all));
        assert!(!is_full(49, 49) && is_full(50, 50));
        assert!(!is_full(24, 74) && is_full(25, 75), "another has fifty");
        assert!(!is_full(0, 99), "one more");
        assert_eq!(of(100, 3), (3, 3));
    }
}
