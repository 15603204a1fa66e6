//! How a server begins: its limits, its threads.
//!
//! Not here: the process (`run`), the carrier (`carried`).

use super::looker::Looker;
use super::{Rules, Sojournd, StartError, State, Stop};
use crate::beat::Beats;
use crate::identity::Diag;
use crate::jobs;
use crate::looks::Looks;
use crate::memory::{RESERVE, SLOTS};
use crate::notifier::Notifier;
use crate::pins::Pins;
use crate::proxies::Proxies;
use crate::registry::{Limits, Registry};
use crate::scanner;
use sojourn_session::ENDS_MAX;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

/// Ends that all programs together may have with the server: half a kilobyte each.
const ALL_ENDS: usize = 4 * ENDS_MAX as usize;

impl Sojournd {
    /// A server that knows nobody, and its scanner. It looks itself at what is sent.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new() -> Result<Arc<Self>, StartError> {
        let is_public = rustix::process::geteuid().is_root();
        Self::alone(Rules { is_public, ..Rules::default() })
    }

    /// The same by other rules.
    pub(crate) fn alone(rules: Rules) -> Result<Arc<Self>, StartError> {
        let diag = Diag::new().map_err(StartError::Diag)?;
        Self::with(Looker::Here(Box::new(Mutex::new(diag))), Beats::new(), rules)
    }

    /// The same with proxies that look.
    pub(crate) fn with_proxies(
        proxies: Arc<Proxies>,
        rules: Rules,
    ) -> Result<Arc<Self>, StartError> {
        let beats = Beats::new();
        let looks = Looks::start(beats.beat("answers")).map_err(StartError::Thread)?;
        Self::with(Looker::Apart { proxies, looks }, beats, rules)
    }

    fn with(looker: Looker, beats: Beats, rules: Rules) -> Result<Arc<Self>, StartError> {
        let user = rustix::process::geteuid();
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |files| files as usize);
        let limits = Limits {
            ends: ENDS_MAX as usize,
            all_ends: ALL_ENDS,
            descriptors: files.saturating_sub(RESERVE as usize),
            own_user: user.as_raw(),
            slots: SLOTS,
            serves_everybody: rules.is_public,
            joins_within: rules.joins_within,
        };
        let mut seed = [0; 4];
        // Without randomness the clock does: the seed only keeps numbers of different servers
        // apart.
        let is_random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let clock = sojourn_ipc::now_ns() as u32;
        let seed = if is_random == Ok(4) { u32::from_ne_bytes(seed) } else { clock };
        let state = State { registry: Registry::new(limits, seed), notifier: Notifier::new() };
        let (sender, jobs) = jobs::queue();
        let diag = Diag::new().map_err(StartError::Diag)?;
        let pins = Pins::new().map_err(StartError::Pins)?;
        let beat = beats.beat("scanner");
        let server = Arc::new_cyclic(|me| Self {
            state: Mutex::new(state),
            looker,
            pins,
            carriers_diag: Mutex::new(diag),
            me: Weak::clone(me),
            beats,
            begun: Instant::now(),
            jobs: Mutex::new(sender),
            own_user: user.as_raw(),
            is_public: rules.is_public,
            asks_for_packets: rules.asks_for_packets,
            peers: Mutex::default(),
            stop: AtomicU8::new(Stop::Not as u8),
            commands: OnceLock::new(),
        });
        let weak = Arc::downgrade(&server);
        std::thread::Builder::new()
            .name("sojourn-scanner".into())
            .spawn(move || scanner::work(&jobs, &weak, &beat))
            .map_err(StartError::Thread)?;
        Ok(server)
    }
}
