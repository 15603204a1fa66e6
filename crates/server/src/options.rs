//! The options of a server process, and the reasons why there is none.
//!
//! Not here: the command line (`flags`), the processes (`run`, `apart`).

use crate::network::Network;
use crate::service::{Rules, StartError};
use rustix::io::Errno;
use sojourn_confine::ConfineError;
use sojourn_ipc::BindError;
use sojourn_session::place::PlaceError;
use std::path::PathBuf;
use std::time::Duration;

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The user's own place.
    User,
    /// The system's place.
    System,
    /// An address, as `sojourn_ipc::Address::parse` reads it.
    At(String),
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The place.
    pub place: Location,
    /// The server ends when it has had no clients for so long.
    pub idle_exit: Option<Duration>,
    /// Sessions with other hosts are carried, too, in this process's network namespace.
    pub network: Option<Network>,
    /// Programs send the short frames of such sessions by AF_XDP sockets.
    pub has_xdp: bool,
    /// Sessions stay in the kernel if a packet filter or an IPsec policy of the host could concern
    /// their packets.
    pub respects_firewalls: bool,
    /// The rules for its clients.
    pub rules: Rules,
    /// A server for everybody is several processes (`apart`), all of this very program. Without
    /// them it is one process, which a client can hold up.
    pub is_apart: bool,
}

impl Options {
    /// Returns the options of a server at that address, for programs of this host, in one process,
    /// until it is told to end: for tests, whose programs cannot be other processes of a server.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self {
            place: Location::At(address.into()),
            idle_exit: None,
            network: None,
            has_xdp: false,
            respects_firewalls: true,
            rules: Rules::default(),
            is_apart: false,
        }
    }
}

/// The outcome of [`crate::run::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has served, and ended because nobody was left or because it was told to.
    Served,
    /// Another server serves that place.
    Another,
}

/// The reason why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The place cannot be used.
    #[error(transparent)]
    Location(#[from] PlaceError),
    /// The address cannot be used.
    #[error("{0}: {1}")]
    Address(String, sojourn_ipc::AddressError),
    /// Another process has the lock.
    #[error("{0}: another server holds this lock, but does not answer; look who that is")]
    Locked(PathBuf),
    /// The kernel refused.
    #[error("{0}: {1}")]
    System(PathBuf, Errno),
    /// Capabilities that the server does not need could not be given up.
    #[error("capabilities cannot be given up: {0}")]
    Privileges(Errno),
    /// A process of the server's cannot be confined to its system calls.
    #[error(transparent)]
    Confined(#[from] ConfineError),
    /// A process of the server's cannot begin, or ends again and again.
    #[error("{0}")]
    Process(String),
    /// The socket cannot be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A part of the server cannot begin.
    #[error(transparent)]
    Start(#[from] StartError),
}
