//! Connecting: the client's half of the greeting.
//!
//! The server's half is `greet`. All of the server's values are checked before use: sizes, the
//! layout, the seals of the region. Not here: calls (`connection`).

use crate::address::Address;
use crate::ancillary;
use crate::apart::Socket;
use crate::connection::{Connection, Parts};
use crate::control::{self, GREETING, Packet, Received, Topic, WHOLE};
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::{Layout, Region};
use crate::rt::ClientId;
use crate::rt::Reason;
use crate::shared::{EndpointId, Shared};
use crate::wait::{Policy, Wait};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Uid;
use rustix::time::Timespec;
use sojourn_shm::{Segment, SegmentError};
use std::sync::Arc;

/// The options of a client.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// The way of waiting.
    pub wait: Wait,
    /// Bytes of a message that travel in one piece; 0 for the server's offer, which is the largest
    /// value.
    pub area: u32,
    /// Calls outstanding at one time; 0 for the server's offer, which is the largest value.
    pub max_inflight: u32,
    /// Longest accepted answer (bytes).
    pub max_message: u64,
    /// The time limit for the server's answer to the greeting.
    pub timeout: Duration,
    /// Connect only to a server that runs as this user. Without this option, any process that binds
    /// an abstract name first can serve it.
    pub server_user: Option<Uid>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            wait: Wait::Adaptive,
            area: 0,
            max_inflight: 0,
            max_message: 16 << 20,
            timeout: Duration::from_secs(5),
            server_user: None,
        }
    }
}

/// The reason why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server serves that name.
    #[error("{0}: no endpoint there; is its server running?")]
    NotFound(String),
    /// The file's permissions forbid the connection.
    #[error("{0}: permission denied; the directory and the socket decide who may connect")]
    Permission(String),
    /// The server refuses the client.
    #[error("{0}: the server refuses: {1}")]
    Refused(String, Reason),
    /// The server runs as another user than [`ConnectOptions::server_user`].
    #[error("{0}: served by user {1}, not by {2}")]
    WrongServer(String, Uid, Uid),
    /// The server did not answer in time.
    #[error("{0}: the server did not answer in time; it may be stopped or have no thread")]
    TimedOut(String),
    /// The answer is not a valid one of this version.
    #[error("{0}: what answers there is not a Sojourn server of this version")]
    Protocol(String),
    /// The server's memory cannot be trusted.
    #[error("{0}: {1}")]
    Region(String, SegmentError),
    /// The kernel refused.
    #[error("{0}: cannot connect: {1}")]
    System(String, Errno),
}

impl Connection {
    /// Connects to an endpoint.
    ///
    /// # Errors
    /// [`ConnectError`] with the address and the reason.
    pub fn connect(address: Address, options: &ConnectOptions) -> Result<Self, ConnectError> {
        connect(address, options)
    }
}

/// Connects and greets.
fn connect(address: Address, options: &ConnectOptions) -> Result<Connection, ConnectError> {
    let name = address.to_string();
    let deadline = Deadline::after(options.timeout);
    let socket = open(address, &name, options.timeout)?;
    fault::point("client.connected");
    let system = |error| ConnectError::System(name.clone(), error);
    let server = ancillary::peer(socket.as_fd()).map_err(system)?;
    if let Some(wanted) = options.server_user
        && server.user() != wanted
    {
        return Err(ConnectError::WrongServer(name, server.user(), wanted));
    }
    let mut hello = Packet::new(Topic::Hello, 0);
    hello.a = GREETING;
    hello.b = u64::from(options.max_inflight) | u64::from(options.area) << 32;
    hello.c = options.max_message;
    control::send(socket.as_fd(), hello, &[]).map_err(system)?;
    fault::point("client.greeted");
    let Welcome { packet: welcome, region: fd } = await_welcome(&socket, &name, deadline)?;
    fault::point("client.welcomed");
    let layout =
        Layout { slots: (welcome.a >> 32) as u32, area: (welcome.b & (WHOLE - 1)) as usize };
    if !layout.is_sound() {
        return Err(ConnectError::Protocol(name));
    }
    let region = |error| ConnectError::Region(name.clone(), error);
    let segment = Segment::accept(fd, layout.len()).map_err(region)?;
    let id = ClientId { index: welcome.number, generation: welcome.a as u32 };
    let is_here = server.pid.cast_unsigned() == std::process::id();
    let space = is_here.then(|| Shared::in_this_space(EndpointId(welcome.d))).flatten();
    Ok(Connection::new(Parts {
        id,
        region: Arc::new(Region::open(&segment, layout).map_err(region)?),
        socket: Socket::Here(socket),
        policy: Policy::new(options.wait),
        request_max: welcome.c,
        wants_whole: welcome.b & WHOLE != 0,
        reply_max: options.max_message,
        space,
    }))
}

fn open(address: Address, name: &str, timeout: Duration) -> Result<OwnedFd, ConnectError> {
    let system = |error| ConnectError::System(name.into(), error);
    let socket_address = address.socket_address();
    if let Address::Descriptor(fd) = address {
        return match sockopt::socket_type(&fd) {
            Ok(SocketType::SEQPACKET) => Ok(fd),
            _ => Err(ConnectError::Protocol(name.into())),
        };
    }
    let Some(socket_address) = socket_address else { return Err(system(Errno::NAMETOOLONG)) };
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(system)?;
    // Only connect(2) can block on this socket, while the listener's backlog is full.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout)).map_err(system)?;
    match rustix::net::connect(&socket, &socket_address) {
        Ok(()) => Ok(socket),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(ConnectError::NotFound(name.into())),
        Err(Errno::ACCESS | Errno::PERM) => Err(ConnectError::Permission(name.into())),
        Err(Errno::AGAIN) => Err(ConnectError::TimedOut(name.into())),
        Err(Errno::PROTOTYPE) => Err(ConnectError::Protocol(name.into())),
        Err(error) => Err(system(error)),
    }
}

/// The server's answer to a greeting.
struct Welcome {
    packet: Packet,
    /// The descriptor of the region.
    region: OwnedFd,
}

fn await_welcome(
    socket: &OwnedFd,
    name: &str,
    deadline: Deadline,
) -> Result<Welcome, ConnectError> {
    loop {
        if !readable(socket, deadline) {
            return Err(ConnectError::TimedOut(name.into()));
        }
        return match control::receive(socket.as_fd()) {
            Received::Empty => continue,
            Received::Packet { lost: true, .. } => {
                Err(ConnectError::System(name.into(), Errno::MFILE))
            }
            Received::Packet { packet, mut fds, .. } => match (packet.topic, fds.pop()) {
                (Topic::Welcome, Some(region)) if fds.is_empty() => Ok(Welcome { packet, region }),
                (Topic::Refused, None) => {
                    Err(ConnectError::Refused(name.into(), Reason::from_code(packet.number)))
                }
                _ => Err(ConnectError::Protocol(name.into())),
            },
            Received::Ended => Err(ConnectError::Refused(name.into(), Reason::PeerDied)),
            Received::Nonsense => Err(ConnectError::Protocol(name.into())),
        };
    }
}

/// Waits until the socket is readable or hung up. Returns false if the deadline passed first.
pub(crate) fn readable(socket: &OwnedFd, deadline: Deadline) -> bool {
    wait_for(socket, PollFlags::IN, deadline)
}

/// Waits for `flags` of poll(2). Returns false if the deadline passed first.
pub(crate) fn wait_for(socket: &OwnedFd, flags: PollFlags, deadline: Deadline) -> bool {
    let timeout = deadline.left().map(|left| Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let mut set = [PollFd::new(socket, flags | PollFlags::RDHUP)];
    match poll(&mut set, timeout.as_ref()) {
        Ok(0) => false,
        Ok(_) => true,
        // The poll was interrupted; the caller checks again in any case.
        Err(_) => !deadline.is_over(),
    }
}
