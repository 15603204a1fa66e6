//! The server object, which all threads of the server share.
//!
//! One lock guards everything. The serving thread, the scanner, and the thread that hears the
//! results of proxies hold it for microseconds; nothing is done under it that anybody could delay.
//! Not here: its beginning (`start`), the calls of programs' libraries (`session`, `ends`), those
//! of administrators (`admin`), sessions with other hosts (`carry`), the process and its end
//! (`run`).

mod admin;
mod allowance;
pub(crate) mod carry;
mod ends;
mod inspector;
mod opens;
mod peers;
mod session;
mod start;

use crate::beat::Beats;
use crate::concerned::Concerned;
use crate::holders::FifoHolders;
use crate::jobs::Job;
use crate::log::{self, Level};
use crate::memory::Memory;
use crate::notifier::Notifier;
use crate::prober::Prober;
use crate::protocols::Protocols;
use crate::registry::{CallError, Registry};
use allowance::Allowance;
use inspector::Inspector;
use rustix::io::Errno;
use rustix::process::Uid;
use sojourn_carrier::CommandSender;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Fault;
use sojourn_session::{FAULT_ARGUMENT, FAULT_NO_HELLO, FAULT_RESOURCES};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// An administrator's request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// Nothing.
    Not,
    /// The server ends when no process is known any more.
    WhenEmpty,
    /// The server ends now.
    Now,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    notifier: Notifier,
    concerned: Concerned,
}

/// The server object.
#[derive(Debug)]
pub struct Sojournd {
    state: Mutex<State>,
    inspector: Inspector,
    prober: Prober,
    me: Weak<Self>,
    beats: Beats,
    begun: Instant,
    jobs: Mutex<Sender<Job>>,
    own_user: Uid,
    /// [`Rules::unmapped`].
    unmapped: Option<Uid>,
    /// Every user may use the server.
    is_public: bool,
    /// [`Rules::asks_for_packets`].
    asks_for_packets: bool,
    /// The processes behind connected clients, until they say hello.
    peers: Mutex<HashMap<ClientId, Result<OwnedFd, Errno>>>,
    /// The time that administrators' lists have taken.
    lists: Mutex<Allowance>,
    stop: AtomicU8,
    /// The way to the carrier for sockets whose peers are on other hosts, if there is a carrier.
    commands: OnceLock<Mutex<CommandSender>>,
    /// The protocol servers, if there are any.
    protocols: OnceLock<Arc<Protocols>>,
    /// Ends with the server; the thread that hears of opened pipes has the other end.
    _life: OwnedFd,
}

/// The server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no `sock_diag`.
    #[error(
        "the kernel does not tell who is at the other end of a socket (sock_diag, CONFIG_UNIX_DIAG, CONFIG_INET_DIAG): {0}"
    )]
    Diag(rustix::io::Errno),
    /// There is no inotify.
    #[error("the kernel does not tell pipes apart (inotify): {0}")]
    Pins(Errno),
    /// There is no room for a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

fn fault(code: i32) -> Fault {
    Fault(code as u32)
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoHello => fault(FAULT_NO_HELLO),
            CallError::Quota => fault(FAULT_RESOURCES),
            CallError::Argument => fault(FAULT_ARGUMENT),
        }
    }
}

/// The rules of a server, beside its address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Every user may use the server. Only root's server can be public, and only if it is started
    /// so.
    pub is_public: bool,
    /// [`crate::registry::Limits::joins_within`].
    pub joins_within: bool,
    /// Those who may hold an end of a FIFO unseen.
    pub fifos: FifoHolders,
    /// Programs that show a packet socket get one that is bound to an interface.
    pub asks_for_packets: bool,
    /// Sockets whose peers are on other hosts go to the carrier.
    pub carries: bool,
    /// The user whose server it is; `None` is the user of the process.
    pub own_user: Option<Uid>,
    /// The number that all users have whom this user name space cannot tell apart: nobody is served
    /// by it. `None`: each user has its own.
    pub unmapped: Option<Uid>,
    /// [`crate::registry::Limits::watches`]; `None`: the kernel does not tell.
    pub watches: Option<usize>,
}

/// What follows from the work that is due now and then.
pub struct Ticked {
    /// The clients that are to be disconnected because they do not collect their events.
    pub unresponsive: Vec<ClientId>,
    /// There is work in a second even if nothing else happens.
    pub again: bool,
}

impl Sojournd {
    /// Sets the protocol servers: these are known by their processes from now on.
    pub(crate) fn set_protocols(&self, protocols: Arc<Protocols>) {
        let _ = self.protocols.set(protocols);
    }

    /// Returns true if that user's programs may use the server.
    pub(crate) fn serves(&self, uid: Uid) -> bool {
        Some(uid) != self.unmapped && (self.is_public || self.is_owner(uid))
    }

    /// Returns true if it is that user's server, or the user is root.
    fn is_owner(&self, uid: Uid) -> bool {
        uid.is_root() || uid == self.own_user && Some(uid) != self.unmapped
    }

    /// Makes the server end now, because of a signal.
    pub(crate) fn stop_now(&self) {
        self.stop.fetch_max(Stop::Now as u8, Ordering::Relaxed);
    }

    /// Returns the beats of the threads that the watchdog looks at.
    pub(crate) fn beats(&self) -> &Beats {
        &self.beats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the administrator's last request.
    pub fn stop_wanted(&self) -> Stop {
        match self.stop.load(Ordering::Relaxed) {
            1 => Stop::WhenEmpty,
            2 => Stop::Now,
            _ => Stop::Not,
        }
    }

    /// Returns true if no process is known.
    pub fn is_empty(&self) -> bool {
        self.lock().registry.process_count() == 0
    }

    /// Does the work that is due now and then.
    pub fn tick(&self) -> Ticked {
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        let now_ms = self.now_ms();
        let unresponsive = registry.take_unresponsive(now_ms);
        for id in &unresponsive {
            registry.gone(*id, now_ms, &Memory);
            log::say(Level::Warn, format_args!("client {} does not collect its events", id.index));
        }
        notifier.keep(|user| registry.has_user(user));
        let are_ending = match &self.inspector {
            Inspector::Apart { proxies, .. } => proxies.keep(),
            Inspector::Here(_) => false,
        };
        Self::ring(registry, notifier);
        Ticked { unresponsive, again: are_ending || registry.has_events() }
    }

    fn ring(registry: &mut Registry, notifier: &mut Notifier) {
        for id in registry.take_rings() {
            if let Some(info) = registry.info(id) {
                notifier.ring(info.uid, id, info.doorbell.clone());
            }
        }
    }
}
