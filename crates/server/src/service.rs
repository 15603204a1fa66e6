//! The server object: what all its threads share.
//!
//! One lock guards everything; it is held for microseconds, by the serving thread, by the scanner
//! and by the one that hears what proxies have seen; nothing is done under it that anybody could
//! make wait. Not here: its beginning (`start`), what programs' libraries say (`session`, `ends`),
//! what administrators ask (`admin`), sessions with other hosts (`carry`), the process and its end
//! (`run`).

mod admin;
mod carry;
mod ends;
mod looker;
mod peers;
mod session;
mod start;

use crate::beat::Beats;
use crate::identity::Diag;
use crate::jobs::Job;
use crate::log::{self, Level};
use crate::memory::Memory;
use crate::notifier::Notifier;
use crate::pins::Pins;
use crate::registry::{CallError, Registry};
use looker::Looker;
use rustix::io::Errno;
use sojourn_carrier::CommandSender;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Fault;
use sojourn_session::{FAULT_ARGUMENT, FAULT_NO_HELLO, FAULT_RESOURCES};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// What an administrator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// Nothing.
    Not,
    /// To end when no process is known any more.
    WhenEmpty,
    /// To end now.
    Now,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    notifier: Notifier,
}

/// The server object.
#[derive(Debug)]
pub struct Sojournd {
    state: Mutex<State>,
    looker: Looker,
    pins: Pins,
    /// For looks at what the carrier has, which is the only one that waits for them.
    carriers_diag: Mutex<Diag>,
    me: Weak<Self>,
    beats: Beats,
    begun: Instant,
    jobs: Mutex<Sender<Job>>,
    own_user: u32,
    /// Everybody may use it.
    is_public: bool,
    /// [`Rules::asks_for_packets`].
    asks_for_packets: bool,
    /// The processes that clients connected as, until they say hello.
    peers: Mutex<HashMap<ClientId, Result<OwnedFd, Errno>>>,
    stop: AtomicU8,
    /// Where sockets go whose peers are on other hosts, if there is a carrier.
    commands: OnceLock<Mutex<CommandSender>>,
}

/// The server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No `sock_diag`.
    #[error(
        "the kernel does not tell who is at the other end of a socket (sock_diag, CONFIG_UNIX_DIAG, CONFIG_INET_DIAG): {0}"
    )]
    Diag(rustix::io::Errno),
    /// No inotify.
    #[error("the kernel does not tell pipes apart (inotify): {0}")]
    Pins(Errno),
    /// No thread.
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

/// How a server is started, beside where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Everybody may use it. Only root's can be so, and only if it is started so.
    pub is_public: bool,
    /// [`crate::registry::Limits::joins_within`].
    pub joins_within: bool,
    /// Programs that show a packet socket get one that is bound to an interface.
    pub asks_for_packets: bool,
}

impl Sojournd {
    /// Whether that user's programs may use it.
    fn serves(&self, uid: u32) -> bool {
        self.is_public || uid == 0 || uid == self.own_user
    }

    /// To end now, as a signal says.
    pub(crate) fn stop_now(&self) {
        self.stop.fetch_max(Stop::Now as u8, Ordering::Relaxed);
    }

    /// The threads that the watchdog looks at.
    pub(crate) fn beats(&self) -> &Beats {
        &self.beats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What an administrator asked for.
    pub fn stop_wanted(&self) -> Stop {
        match self.stop.load(Ordering::Relaxed) {
            1 => Stop::WhenEmpty,
            2 => Stop::Now,
            _ => Stop::Not,
        }
    }

    /// Whether no process is known.
    pub fn is_empty(&self) -> bool {
        self.lock().registry.counters().1 == 0
    }

    /// What is to be done now and then: answers the clients that are to be disconnected because
    /// they do not collect their events, and whether it is to be called again in a second even if
    /// nothing else happens.
    pub fn tick(&self) -> (Vec<ClientId>, bool) {
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        let now_ms = self.now_ms();
        let late = registry.take_late(now_ms);
        for id in &late {
            registry.gone(*id, now_ms, &Memory);
            log::say(Level::Warn, format_args!("client {} does not collect its events", id.index));
        }
        notifier.keep(|user| registry.has_user(user));
        let are_ending = match &self.looker {
            Looker::Apart { proxies, .. } => proxies.keep(|user| registry.has_user(user)),
            Looker::Here(_) => false,
        };
        Self::ring(registry, notifier);
        (late, are_ending || registry.has_events())
    }

    fn ring(registry: &mut Registry, notifier: &mut Notifier) {
        for id in registry.take_rings() {
            if let Some(who) = registry.who(id) {
                notifier.ring(who.uid, who.doorbell.clone());
            }
        }
    }
}
