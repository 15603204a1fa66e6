//! The process: one server for each place, its beginning and its end.
//!
//! A lock beside the socket makes it one: of two that begin at once, the second finds the first
//! answering and leaves. One that is started on demand ends when it has had no clients for a while;
//! a client that comes just then is cut off and starts the next one, which waits for the lock. Not
//! here: what clients ask (`service`).

use crate::carried;
use crate::log::{self, Level};
use crate::network::Network;
use crate::privileges::{self, Work};
use crate::proxies::Proxies;
use crate::service::{Rules, Sojournd, StartError, Stop};
use crate::signals;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use sojourn_ipc::rt::{self, Arrival, Served, Service};
use sojourn_ipc::{Address, BindError, Deadline, Endpoint, Reason, Server, ServerOptions, Wait};
use sojourn_session::place::{PlaceError, Surroundings};
use sojourn_session::{AdminService, CarryService, SessionService};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a server is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The user's own.
    User,
    /// The system's.
    System,
    /// As `sojourn_ipc::Address::parse` reads it.
    At(String),
}

/// How a server is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub place: Location,
    /// It ends when it has had no clients for so long.
    pub idle_exit: Option<Duration>,
    /// Sessions with other hosts are carried, too, in this process's network namespace.
    pub network: Option<Network>,
    /// Those stay in the kernel about whose packets a packet filter or an IPsec policy of the host
    /// could say something.
    pub respects_firewalls: bool,
    /// Whom and what it serves.
    pub rules: Rules,
    /// What clients send is received and looked at by processes of their own: this very program,
    /// run with [`crate::proxy::ARGUMENT`]. Without them a client can hold the server up.
    pub proxies: bool,
}

impl Options {
    /// A server at that address, for programs of this host, until it is told to end, which is all
    /// in one process: for tests, whose programs are no proxies.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self {
            place: Location::At(address.into()),
            idle_exit: None,
            network: None,
            respects_firewalls: true,
            rules: Rules::default(),
            proxies: false,
        }
    }
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has served, and ended because nobody was left or because it was told to.
    Served,
    /// Another one serves that place.
    Another,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The place cannot be used.
    #[error(transparent)]
    Location(#[from] PlaceError),
    /// The address cannot be used.
    #[error("{0}: {1}")]
    Address(String, sojourn_ipc::AddressError),
    /// The lock cannot be had.
    #[error("{0}: another server holds this lock, but does not answer; look who that is")]
    Locked(PathBuf),
    /// The kernel refused.
    #[error("{0}: {1}")]
    System(PathBuf, Errno),
    /// Rights that are not needed could not be given up.
    #[error("capabilities cannot be given up: {0}")]
    Privileges(Errno),
    /// Nobody can connect.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A part is missing.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// How long one waits for a server that ends, or has not begun to listen.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long a server waits for its first client, at least.
const FIRST_CLIENT: Duration = Duration::from_secs(30);
const TICK_MS: u64 = 1000;
/// How long a server that ends waits for its sessions to be home, and how often it looks.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);
const LEAVE_EVERY: Duration = Duration::from_millis(5);

/// Serves until there is nothing left to do. `ready` is called once when clients can connect.
///
/// # Errors
/// [`RunError`].
pub fn run(options: &Options, ready: impl FnOnce(&str)) -> Result<Outcome, RunError> {
    raise_limit();
    if let Err(error) = std::fs::read_link("/proc/self") {
        log::say(
            Level::Warn,
            format_args!(
                "/proc: {error}: who else has a session open cannot be seen, so that inherited ones stay in the kernel; mount /proc"
            ),
        );
    }
    let around = Surroundings::of_this_process("");
    let text = match &options.place {
        Location::User => around.prepare_own()?.to_string_lossy().into_owned(),
        Location::System => around.prepare_system()?.to_string_lossy().into_owned(),
        Location::At(text) => text.clone(),
    };
    let is_roots = around.user == 0;
    let is_public = options.rules.is_public && is_roots;
    let address = Address::parse(&text).map_err(|error| RunError::Address(text.clone(), error))?;
    let lock = match &address {
        Address::Path(path) => match lock(path)? {
            Some(lock) => Some(lock),
            None => return Ok(another(&text, ready)),
        },
        _ => None,
    };
    let socket = match &address {
        Address::Path(path) => Some(path.as_path()),
        _ => None,
    };
    // Before there are threads: each has its own.
    signals::block();
    let work = Work { is_roots, network: options.network.is_some(), socket };
    privileges::keep_only(&work).map_err(RunError::Privileges)?;
    let proxies = (options.proxies && is_public).then(|| Arc::new(Proxies::default()));
    let asks_for_packets = options.network.is_some_and(|network| network != Network::Ports);
    let rules = Rules { is_public, asks_for_packets, ..options.rules };
    let served = match &proxies {
        Some(proxies) => Sojournd::with_proxies(Arc::clone(proxies), rules)?,
        // Of its own user's programs each may end it anyhow.
        None => Sojournd::alone(rules)?,
    };
    let keeper = socket.map(keeper_of);
    // Who may connect is decided by the socket's mode, and once more by whoever says hello.
    let mask = if is_public { Mode::empty() } else { Mode::RWXG | Mode::RWXO };
    let before = umask(mask);
    let endpoint = match proxies {
        Some(proxies) => Endpoint::bind_with(address, server_options(), proxies),
        None => Endpoint::bind(address, server_options()),
    };
    umask(before);
    let endpoint = match endpoint {
        Err(BindError::InUse(_)) if lock.is_none() => return Ok(another(&text, ready)),
        endpoint => endpoint?,
    };
    // Only once nothing is in the way of serving: what a keeper holds is taken over, and a server
    // that ends then would take it along. Who connects meanwhile waits.
    let respects_firewalls = options.respects_firewalls;
    if let Some(network) = options.network
        && let Err(missing) = carried::start(&served, network, respects_firewalls, keeper)
    {
        log::say(
            Level::Error,
            format_args!("sessions with other hosts stay in the kernel: {missing}"),
        );
    }
    let mut server = endpoint.server();
    signals::heed(&served, &text);
    log::say(Level::Info, format_args!("serving {text}"));
    ready(&text);
    served.beats().watch();
    serve(&mut server, &served, options.idle_exit);
    log::say(Level::Info, format_args!("no longer serving {text}"));
    // The name goes before the lock, so that the next server finds it free.
    drop(endpoint);
    drop(lock);
    Ok(Outcome::Served)
}

/// Where the keeper of a server's sessions listens, by the server's own socket.
fn keeper_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".keeper");
    PathBuf::from(name)
}

fn another(text: &str, ready: impl FnOnce(&str)) -> Outcome {
    log::say(Level::Info, format_args!("{text} is already being served"));
    ready(text);
    Outcome::Another
}

fn server_options() -> ServerOptions {
    ServerOptions {
        // Nothing here is worth a processor.
        wait: Wait::Park,
        area: 16 << 10,
        max_message: 64 << 10,
        ..ServerOptions::default()
    }
}

/// As many descriptors as we may have: streams cost one each.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        log::say(Level::Warn, format_args!("cannot raise the limit of open files"));
    }
}

/// The lock of a place, or `None` if another server answers there.
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
        // Its holder is about to listen, or about to end.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn answers(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else { return false };
    // A full queue is an answer too.
    matches!(rustix::net::connect(&socket, &address), Ok(()) | Err(Errno::AGAIN))
}

/// When a server that is started on demand has done its work.
#[derive(Debug)]
struct Idle {
    limit: Option<Duration>,
    clients: usize,
    since: Instant,
    had_any: bool,
}

impl Idle {
    fn left(&self) -> Option<Duration> {
        if self.clients > 0 {
            return None;
        }
        let limit = self.limit?;
        let limit = if self.had_any { limit } else { limit.max(FIRST_CLIENT) };
        Some(limit.saturating_sub(self.since.elapsed()))
    }

    fn came(&mut self) {
        self.clients += 1;
        self.had_any = true;
    }

    fn went(&mut self) {
        self.clients = self.clients.saturating_sub(1);
        self.since = Instant::now();
    }
}

fn serve(server: &mut Server, served: &Arc<Sojournd>, limit: Option<Duration>) {
    let mut router = rt::Router::<Server>::new();
    let session = SessionService::<Sojournd>::new(Arc::clone(served));
    let admin = AdminService::<Sojournd>::new(Arc::clone(served));
    let carry = CarryService::<Sojournd>::new(Arc::clone(served));
    // Three small interfaces: their operations can be numbered.
    let _ = router.add(session);
    let _ = router.add(admin);
    let _ = router.add(carry);
    let mut idle = Idle { limit, clients: 0, since: Instant::now(), had_any: false };
    let mut reply = None;
    let mut ticked = Instant::now();
    let mut is_ticking = false;
    let mut leaving = None;
    let beat = served.beats().beat("serving");
    loop {
        let deadline = match leaving {
            None => deadline(&idle, is_ticking),
            Some(_) => Deadline::after(LEAVE_EVERY),
        };
        let Ok(arrival) = rt::ServerTransport::next(server, reply.take(), deadline) else { return };
        let _busy = beat.busy();
        match arrival {
            Arrival::Call(request) => match rt::answer(&mut router, false, request) {
                Served::Reply(ready) => reply = Some(ready),
                Served::Done => {}
                Served::Violation(client, error) => expel(server, client, error),
            },
            Arrival::Send(request) => {
                if let Served::Violation(client, error) = rt::answer(&mut router, true, request) {
                    expel(server, client, error);
                }
            }
            Arrival::Connected(client, credentials) => {
                idle.came();
                served.came(client, server.process(client));
                router.connected(client, credentials);
            }
            Arrival::Gone(client) => {
                router.gone(client);
                idle.went();
            }
            _ => {}
        }
        if ticked.elapsed() >= Duration::from_millis(TICK_MS) {
            ticked = Instant::now();
            let (late, again) = served.tick();
            late.into_iter().for_each(|client| server.expel(client, Reason::NoResources));
            is_ticking = again;
        } else {
            is_ticking = true;
        }
        let is_over = match served.stop_wanted() {
            Stop::Not => false,
            Stop::WhenEmpty => served.is_empty(),
            Stop::Now => true,
        };
        if leaving.is_none() && (is_over || idle.left() == Some(Duration::ZERO)) {
            served.leave_all();
            leaving = Some(Instant::now());
        }
        if leaving.is_some_and(|since| !served.carries() || since.elapsed() > LEAVE_LIMIT) {
            if let Some(ready) = reply {
                let _ = rt::Ready::send(ready);
            }
            return;
        }
    }
}

fn deadline(idle: &Idle, is_ticking: bool) -> Deadline {
    let tick = is_ticking.then_some(Duration::from_millis(TICK_MS));
    match tick.into_iter().chain(idle.left()).min() {
        Some(left) => Deadline::after(left),
        None => Deadline::NEVER,
    }
}

fn expel(server: &mut Server, client: sojourn_ipc::ClientId, error: rt::DecodeError) {
    log::say(Level::Warn, format_args!("client {} broke the interface: {error}", client.index));
    server.expel(client, Reason::BadMessage);
}
