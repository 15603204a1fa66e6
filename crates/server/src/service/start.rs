//! The beginning of a server: its limits, its threads.
//!
//! Not here: the process (`run`), the carrier (`carried`).

use super::inspector::Inspector;
use super::opens;
use super::{Rules, Sojournd, StartError, State, Stop};
use crate::beat::Beats;
use crate::concerned::Concerned;
use crate::identity::Diag;
use crate::inspections::Inspections;
use crate::memory::{RESERVE, SLOTS};
use crate::notifier::Notifier;
use crate::pins::Pins;
use crate::prober::Prober;
use crate::proxies::Proxies;
use crate::registry::{Limits, Registry};
use crate::scanner;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Uid;
use sojourn_session::ENDS_MAX;
use std::sync::atomic::AtomicU8;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

/// Ends that all programs together may have with the server: half a kilobyte each.
const ALL_ENDS: usize = 4 * ENDS_MAX as usize;
/// Sessions with other hosts that all programs together may have: each is a mapping of the
/// carrier's, and a process has 65,530 by default (`vm.max_map_count`).
const CARRIED_MAX: usize = 48 << 10;

impl Sojournd {
    /// Makes a server without clients, and its scanner. It looks itself at clients' objects.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new() -> Result<Arc<Self>, StartError> {
        let is_public = rustix::process::geteuid().is_root();
        Self::alone(Rules { is_public, ..Rules::default() })
    }

    /// Makes a server like [`Sojournd::new`], with other rules.
    pub(crate) fn alone(rules: Rules) -> Result<Arc<Self>, StartError> {
        let diag = Diag::new(rules.carries).map_err(StartError::Diag)?;
        let prober = Prober::Here(Pins::new().map_err(StartError::Pins)?, rules.fifos);
        let inspector = Inspector::Here(Box::new(Mutex::new(diag)));
        Self::with(inspector, prober, Beats::new(), rules)
    }

    /// Makes a server whose proxies look at clients' objects, and whose prober at other processes.
    pub(crate) fn with_others(
        proxies: Arc<Proxies>,
        prober: Prober,
        beats: Beats,
        rules: Rules,
    ) -> Result<Arc<Self>, StartError> {
        let inspections = Inspections::start(beats.beat("answers")).map_err(StartError::Thread)?;
        Self::with(Inspector::Apart { proxies, inspections }, prober, beats, rules)
    }

    fn with(
        inspector: Inspector,
        prober: Prober,
        beats: Beats,
        rules: Rules,
    ) -> Result<Arc<Self>, StartError> {
        let own_user = rules.own_user.unwrap_or_else(rustix::process::geteuid);
        let state = State {
            registry: Registry::new(limits(&rules, own_user), seed()),
            notifier: Notifier::new(own_user, rules.is_public),
            concerned: Concerned::default(),
        };
        let (sender, jobs) = channel();
        let scanners = prober.clone();
        let beat = beats.beat("scanner");
        let Life { lives: life, end } = life().map_err(StartError::Thread)?;
        let (watching, opens_beat) = (prober.clone(), beats.beat("opens"));
        let server = Arc::new_cyclic(|me| Self {
            state: Mutex::new(state),
            inspector,
            prober,
            me: Weak::clone(me),
            beats,
            begun: Instant::now(),
            jobs: Mutex::new(sender),
            own_user,
            unmapped: rules.unmapped,
            is_public: rules.is_public,
            asks_for_packets: rules.asks_for_packets,
            peers: Mutex::default(),
            lists: Mutex::default(),
            stop: AtomicU8::new(Stop::Not as u8),
            commands: OnceLock::new(),
            protocols: OnceLock::new(),
            _life: life,
        });
        let weak = Arc::downgrade(&server);
        spawn("sojourn-scanner", move || scanner::work(&jobs, &weak, &scanners, &beat))?;
        let weak = Arc::downgrade(&server);
        spawn("sojourn-opens", move || opens::work(&weak, &watching, &end, &opens_beat))?;
        Ok(server)
    }
}

/// Two descriptors that are made once for a server.
struct Life {
    /// Stands for the server's life.
    lives: OwnedFd,
    /// Shows its end.
    end: OwnedFd,
}

fn life() -> std::io::Result<Life> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (lives, end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(Life { lives, end })
}

/// Returns what programs may have of a server with these rules.
fn limits(rules: &Rules, own_user: Uid) -> Limits {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| files as usize);
    Limits {
        ends: ENDS_MAX as usize,
        all_ends: ALL_ENDS,
        descriptors: files.saturating_sub(RESERVE as usize),
        watches: rules.watches.unwrap_or(usize::MAX),
        carried: CARRIED_MAX,
        own_user,
        slots: SLOTS,
        serves_everybody: rules.is_public,
        joins_within: rules.joins_within,
    }
}

/// Returns a number that keeps the numbers of different servers apart, for which without randomness
/// the clock is enough.
fn seed() -> u32 {
    let mut seed = [0; 4];
    let is_random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    if is_random == Ok(4) { u32::from_ne_bytes(seed) } else { sojourn_ipc::now_ns() as u32 }
}

/// Runs one of the server's threads.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(StartError::Thread)
}
