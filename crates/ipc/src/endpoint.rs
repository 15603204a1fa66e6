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
use crate::link::ServerThread;
use crate::lock::lock;
use crate::options::ServerOptions;
use crate::proxy::Proxies;
use crate::server::Server;
use crate::shared::{Control, LISTENER, SIGNAL, Shared};
use crate::wait::Policy;
use core::any::Any;
use core::sync::atomic::Ordering;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
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

/// A served name. Dropping it ends it: no new clients; those there are told
/// [`crate::Reason::Closed`].
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    _guard: Option<Guard>,
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
        let shared = Shared::new(options);
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
