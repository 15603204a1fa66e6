//! Connections with the session server: sockets for the protocol thread, and the connection that
//! sessions are given back over, by any thread.
//!
//! Not here: what is said over them (`protocol`, `carried`).

use crate::host::environment::Kept;
use crate::process::library::Library;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline};
use sojourn_session::place::Surroundings;
use sojourn_session::{CarryClient, carry_connect_options};

/// How long the server may take to take a session back.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// A connection for sessions that are given back: for any thread.
pub(crate) fn open_carry_client(library: &Library) -> Option<CarryClient<Connection>> {
    let socket = open_socket(library)?;
    let connection = open_connection(socket, carry_connect_options())?;
    CarryClient::bind_by(connection, Deadline::after(ANSWER_LIMIT)).ok()
}

pub(crate) fn open_connection(socket: OwnedFd, mut options: ConnectOptions) -> Option<Connection> {
    options.wait = sojourn_ipc::Wait::Park;
    options.timeout = ANSWER_LIMIT;
    Connection::connect(Address::Descriptor(socket), &options).ok()
}

/// A socket that is connected to the server.
pub(crate) fn open_socket(library: &Library) -> Option<OwnedFd> {
    let policy = &library.policy;
    let mut around = Surroundings::of_this_process(&policy.config().server);
    if let Some(runtime) = policy.environment.get().and_then(Kept::runtime) {
        around.runtime = Some(runtime);
    }
    let place = around.for_client().ok()?;
    let address = Address::parse(&place).ok()?.socket_address()?;
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

/// A connection to the server that sessions are given back to.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: CarryClient<Connection>,
    /// Of those that this process has made.
    pub(crate) number: u64,
}

impl Connected {
    /// Whether its server has it still.
    pub(crate) fn is_alive(&mut self) -> bool {
        let socket = self.client.transport().socket();
        let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut set, Some(&at_once)), Ok(count) if count > 0)
    }
}
