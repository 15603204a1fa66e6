//! The place of a server: its address, and the lock beside it that makes sure that there is one
//! server.
//!
//! Of two servers that begin at once, the second finds that the first answers, and ends. A client
//! that comes while a server ends starts the next one, which waits for the lock. Not here: the
//! directories (`sojourn_session::place`), the socket (`sojourn-ipc`).

use crate::log::{self, Level};
use crate::options::{Location, RunError};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use sojourn_ipc::{Address, ConnectError, ConnectOptions, Connection, Reason};
use sojourn_session::admin_connect_options;
use sojourn_session::place::Surroundings;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time for which a server waits for another one that ends, or has not begun to listen.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The time that a server has to greet. Where it takes longer it is there all the same.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A place that is this server's until the claim is dropped, and every duplicate of its lock.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The address as people read it.
    pub(crate) text: String,
    /// The socket, if that has a name in the file system.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) lock: Option<OwnedFd>,
}

/// A place that was asked for.
#[derive(Debug)]
pub(crate) enum Claimed {
    Ours(Claim, Address),
    /// Another server serves this address.
    Another(String),
}

/// Claims a place.
///
/// # Errors
/// [`RunError`].
pub(crate) fn claim(place: &Location) -> Result<Claimed, RunError> {
    if let Err(error) = std::fs::read_link("/proc/self") {
        log::say(
            Level::Warn,
            format_args!(
                "/proc: {error}: who else has a session open cannot be seen, so that inherited ones stay in the kernel; mount /proc"
            ),
        );
    }
    let around = Surroundings::of_this_process("");
    let text = match place {
        Location::User => around.prepare_own()?.to_string_lossy().into_owned(),
        Location::System => around.prepare_system()?.to_string_lossy().into_owned(),
        Location::At(text) => text.clone(),
    };
    let address = Address::parse(&text).map_err(|error| RunError::Address(text.clone(), error))?;
    let socket = match &address {
        Address::Path(path) => Some(path.clone()),
        _ => None,
    };
    let lock = match &socket {
        None => None,
        Some(path) => match lock(path)? {
            None => return Ok(Claimed::Another(text)),
            lock => lock,
        },
    };
    Ok(Claimed::Ours(Claim { text, socket, lock }, address))
}

impl Claim {
    /// Returns the address of the keeper of the server's sessions.
    pub(crate) fn keeper(&self) -> Option<PathBuf> {
        self.socket.as_deref().map(keeper_of)
    }
}

/// Returns the address of the keeper of a server's sessions, beside the server's own socket.
pub(crate) fn keeper_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".keeper");
    PathBuf::from(name)
}

/// Takes the lock of a place; `None` if another server answers there.
fn lock(path: &Path) -> Result<Option<OwnedFd>, RunError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let system = |error| RunError::System(name.clone(), error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, &name, flags, Mode::RUSR | Mode::WUSR).map_err(system)?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(system(error)),
        }
        if answers(path) {
            return Ok(None);
        }
        if begun.elapsed() > LOCK_WAIT {
            return Err(RunError::Locked(name));
        }
        // The holder is about to listen, or about to end.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if a server greets a client at that path, or will. One that is just being killed
/// still has its socket, and hangs up.
fn answers(path: &Path) -> bool {
    let options = ConnectOptions { timeout: ANSWER_LIMIT, ..admin_connect_options() };
    match Connection::connect(Address::Path(path.into()), &options) {
        Ok(_) | Err(ConnectError::TimedOut(_) | ConnectError::Protocol(_)) => true,
        Err(ConnectError::Refused(_, reason)) => reason != Reason::PeerDied,
        Err(_) => false,
    }
}
