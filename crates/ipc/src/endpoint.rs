//! An endpoint: the listening socket of a server, and the control thread that owns the sockets.
//!
//! The control thread accepts, greets, reads control packets and notices death, for all clients of
//! the endpoint; server threads never touch a socket while they wait. The control thread holds no
//! lock while it waits, and does not wait for single clients: a client that greets slowly, or not
//! at all, only occupies a place in [`Lobby`] until its time limit. Not here: the greeting
//! (`greet`), the name's file (`guard`).

use crate::address::Address;
use crate::fault;
use crate::greet::Lobby;
use crate::guard::{Guard, Turn};
use crate::link::ServerThread;
use crate::lock::lock;
use crate::options::ServerOptions;
use crate::proxy::Proxies;
use crate::server::Server;
use crate::shared::{Control, Offered, Shared, Watched};
use crate::wait::Policy;
use core::any::Any;
use core::sync::atomic::Ordering;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// The reason why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another endpoint is served at this address.
    #[error("{0}: an endpoint with this name is already being served")]
    InUse(String),
    /// Not a listening socket of the right type.
    #[error("{0}: not a listening socket of type SOCK_SEQPACKET; let the parent make it so")]
    NotAListener(String),
    /// The kernel refused.
    #[error("{0}: cannot listen: {1}")]
    System(String, Errno),
}

/// A socket that listens at an address and is not served yet: another process serves it, as an
/// endpoint at [`Address::Descriptor`]. Dropping it removes its name.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// The guard of the name's file, if the name has one.
    guard: Option<Guard>,
}

impl Listener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(address: Address) -> Result<Self, BindError> {
        let name = address.to_string();
        listen(address, &name)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A served address. Dropping an endpoint ends it: there are no new clients, and present clients
/// are disconnected with [`crate::Reason::Closed`].
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    _guard: Option<Guard>,
}

impl Endpoint {
    /// Creates an endpoint at `address` and starts its control thread. Clients are accepted at
    /// once, and served as soon as there is a [`Server`].
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(address: Address, options: ServerOptions) -> Result<Self, BindError> {
        let name = address.to_string();
        Self::make(Some(listen(address, &name)?), name, options, None)
    }

    /// Creates an endpoint that nobody can find: its clients come by [`Self::offer`] only.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn unnamed(options: ServerOptions) -> Result<Self, BindError> {
        Self::make(None, "an endpoint without a name".into(), options, None)
    }

    /// Creates an endpoint like [`Self::bind`], for a server that receives clients' descriptors
    /// through other processes.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_with(
        address: Address,
        options: ServerOptions,
        proxies: Arc<dyn Proxies>,
    ) -> Result<Self, BindError> {
        let name = address.to_string();
        Self::make(Some(listen(address, &name)?), name, options, Some(proxies))
    }

    fn make(
        listener: Option<Listener>,
        name: String,
        options: ServerOptions,
        proxies: Option<Arc<dyn Proxies>>,
    ) -> Result<Self, BindError> {
        let system = |error| BindError::System(name.clone(), error);
        let (listener, guard) = match listener {
            Some(Listener { socket, guard }) => (Some(socket), guard),
            None => (None, None),
        };
        let control = Control {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?,
            listener,
            signal: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .map_err(system)?,
            offered: Mutex::default(),
            proxies,
        };
        if let Some(listener) = control.listener() {
            control.watch(listener, Watched::Listener).map_err(system)?;
        }
        control.watch(&control.signal, Watched::Signal).map_err(system)?;
        let shared = Shared::new(options);
        let control = Arc::new(control);
        let lobby = Lobby::new(Arc::clone(&shared), Arc::clone(&control));
        let thread = std::thread::Builder::new()
            .name("sojourn-control".into())
            .spawn(move || lobby.run())
            .map_err(|_| system(Errno::AGAIN))?;
        Ok(Self { shared, control, thread: Some(thread), _guard: guard })
    }

    /// Creates a handle for one more server thread. A new client is given to the thread that has
    /// the fewest clients.
    pub fn server(&self) -> Server {
        let mailbox = Arc::new(ServerThread::new(self.shared.options.max_granted));
        lock(&self.shared.threads).push(Arc::clone(&mailbox));
        // Clients may have come before there was a thread to serve them.
        let _ = self.control.signal();
        Server::new(mailbox, Policy::new(self.shared.options.wait))
    }

    /// Returns the state that all threads share, for the C interface.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets the object that clients in this address space get from [`crate::Connection::local`],
    /// and that generated stubs call directly, by reference.
    pub fn set_local(&self, object: Arc<dyn Any + Send + Sync>) {
        *lock(&self.shared.local) = Some(object);
    }

    /// Returns a connected socket to this endpoint, to be passed to another process as a capability
    /// to call the endpoint. A client that connects over the socket is like any other.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn offer(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The holder of a socket pair's end is unknown, so the greeting's credentials identify the
        // client.
        rustix::net::sockopt::set_socket_passcred(&ours, true)?;
        lock(&self.control.offered).push(Offered::Pair(ours));
        self.control.signal()?;
        Ok(theirs)
    }

    /// Takes over a client's socket that another process has accepted (accept(2)) in this
    /// endpoint's place. The client's credentials are those that the kernel has for the socket.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn adopt(&self, accepted: OwnedFd) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&accepted, true)?;
        lock(&self.control.offered).push(Offered::Accepted(accepted));
        self.control.signal()
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

/// Listens at `address`, which errors call `name`.
fn listen(address: Address, name: &str) -> Result<Listener, BindError> {
    let system = |error| BindError::System(name.into(), error);
    let socket_address = address.socket_address();
    let path = match address {
        Address::Descriptor(fd) => return listen_on(fd, name),
        Address::Path(path) => Some(path),
        Address::Abstract(_) => None,
    };
    let path = path.as_deref();
    let socket_address = socket_address.ok_or_else(|| system(Errno::NAMETOOLONG))?;
    // The turn is held until the guard knows the file; otherwise the guard of an earlier endpoint
    // could remove this one's file.
    let _turn = path.map(Turn::take);
    let socket = bind(path, &socket_address, name)?;
    fault::point("server.bound");
    // Listen at once, because a bound socket that does not listen looks like a dead endpoint's.
    rustix::net::listen(&socket, BACKLOG).map_err(system)?;
    fault::point("server.listening");
    Ok(Listener { socket, guard: path.map(Guard::new) })
}

/// Takes over a socket that listens already.
fn listen_on(socket: OwnedFd, name: &str) -> Result<Listener, BindError> {
    let is_listener = rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or(false)
        && rustix::net::sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET);
    if !is_listener {
        return Err(BindError::NotAListener(name.into()));
    }
    let made = rustix::io::ioctl_fionbio(&socket, true);
    made.map_err(|error| BindError::System(name.into(), error))?;
    Ok(Listener { socket, guard: None })
}

/// Returns a socket bound to an address, whose file is `path` if it has one. The file of a dead
/// endpoint is replaced.
fn bind(path: Option<&Path>, address: &SocketAddrUnix, name: &str) -> Result<OwnedFd, BindError> {
    let system = |error| BindError::System(name.into(), error);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = make().map_err(system)?;
    let mut bound = rustix::net::bind(&socket, address);
    if bound == Err(Errno::ADDRINUSE)
        && let Some(path) = path.filter(|path| is_socket(path))
        && rustix::net::connect(make().map_err(system)?, address) == Err(Errno::CONNREFUSED)
    {
        // The file's endpoint and guard are dead, so the file can be removed.
        let _ = std::fs::remove_file(path);
        bound = rustix::net::bind(&socket, address);
    }
    match bound {
        Ok(()) => Ok(socket),
        Err(Errno::ADDRINUSE) => Err(BindError::InUse(name.into())),
        Err(error) => Err(system(error)),
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
