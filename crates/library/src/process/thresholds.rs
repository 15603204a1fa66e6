//! The thresholds of the policy, the configuration behind them, and the descriptors that it
//! excludes.
//!
//! The configuration is read when the first data call is counted, not before: most programs never
//! come that far. Not here: what follows when a descriptor reaches a threshold (`policy::hot`).

use crate::host::environment::Kept;
use crate::process::lifetimes::Lifetimes;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use once_cell::race::OnceBox;
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use sojourn_session::config::{Addresses, NamedValue, Ports, Programs, Spin};
use sojourn_session::{Config, KindT};
use sojourn_shm::wait::Wait;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

/// The thresholds, and the configuration behind them.
#[derive(Debug)]
pub(crate) struct Policy {
    after_calls: AtomicU32,
    after_bytes: AtomicU64,
    is_forbidden: AtomicBool,
    /// How often sessions of this process have become hot that nothing but the lack of a protocol
    /// thread keeps from being offered.
    hot_times: AtomicU32,
    pub(crate) lifetimes: Lifetimes,
    config: OnceBox<Config>,
    /// The source of the configuration, unaffected by the program's later changes of its
    /// environment.
    // FORK: set at the start.
    pub(crate) environment: OnceLock<Kept>,
}

impl Policy {
    pub(crate) const fn new() -> Self {
        Self {
            // The first counted call thus reaches `became_hot`, which reads the configuration.
            after_calls: AtomicU32::new(1),
            after_bytes: AtomicU64::new(u64::MAX),
            is_forbidden: AtomicBool::new(false),
            hot_times: AtomicU32::new(0),
            lifetimes: Lifetimes::new(),
            config: OnceBox::new(),
            environment: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn is_hot(&self, calls: u32, bytes: u64) -> bool {
        calls >= self.after_calls.load(Ordering::Relaxed)
            || bytes >= self.after_bytes.load(Ordering::Relaxed)
    }

    /// Counts that a session has become hot in a process without a protocol thread; returns how
    /// often that has happened.
    pub(crate) fn became_hot(&self) -> u32 {
        self.hot_times.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Begins the count of [`Policy::became_hot`] anew, in a `fork` child, which has no thread yet.
    pub(crate) fn forget_hot(&self) {
        self.hot_times.store(0, Ordering::Relaxed);
    }

    /// Forbids all moves in this process from now on.
    pub(crate) fn forbid(&self) {
        self.is_forbidden.store(true, Ordering::SeqCst);
        self.after_calls.store(u32::MAX, Ordering::Relaxed);
        self.after_bytes.store(u64::MAX, Ordering::Relaxed);
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.is_forbidden.load(Ordering::SeqCst)
    }

    pub(crate) fn config(&self) -> &Config {
        self.config.get_or_init(|| {
            // Values that cannot be parsed are ignored: `sojourn run` has checked those that it
            // sets, and others are no reason to end the program.
            let config = match self.environment.get() {
                // The live environment may be changing now, in another thread or in the code that a
                // handler interrupted.
                Some(kept) => Config::from_env(kept.named_values()),
                None => {
                    let variables: Vec<_> = std::env::vars_os().collect();
                    Config::from_env(
                        variables.iter().map(|(name, value)| NamedValue { name, value }),
                    )
                }
            };
            if !allows_this_program(&config) {
                self.forbid();
            }
            if !self.is_forbidden() {
                self.after_calls.store(config.move_after_calls.max(1), Ordering::Relaxed);
                self.after_bytes.store(config.move_after_bytes.max(1), Ordering::Relaxed);
            }
            Box::new(config)
        })
    }

    /// Returns true if the configuration has been read.
    pub(crate) fn is_configured(&self) -> bool {
        self.config.get().is_some()
    }

    /// Returns the way in which waiting threads wait.
    pub(crate) fn wait(&self) -> Wait {
        let config = self.config();
        match config.spin {
            Spin::Adaptive => Wait::Adaptive,
            Spin::Never => Wait::Park,
            Spin::Always if config.spin_budget_us == 0 => Wait::Spin(None),
            Spin::Always => {
                Wait::Spin(Some(Duration::from_micros(u64::from(config.spin_budget_us))))
            }
        }
    }
}

/// Returns true if the thresholds are the default ones. Others are taken at their word.
pub(crate) fn is_usual(config: &Config) -> bool {
    let usual = Config::default();
    (config.move_after_calls, config.move_after_bytes)
        == (usual.move_after_calls, usual.move_after_bytes)
}

/// Returns true if sessions whose calls are far apart are left to the kernel. Awake threads gain at
/// any pace (`spin = always`), and other thresholds than the default ones are taken at their word.
pub(crate) fn measures_pace(config: &Config) -> bool {
    config.measure_bulk && config.spin != Spin::Always && is_usual(config)
}

/// Returns true if the configuration lets this program's sessions move. A program has several
/// names: that of its file, that of the link it was started by (`redis-server` is a link to
/// `redis-check-rdb`), and the one that `ps` and `sojourn ss` show. A match with any of them
/// counts. A program whose names cannot be read is not excluded.
fn allows_this_program(config: &Config) -> bool {
    if config.programs == Programs::default() {
        return true;
    }
    let file =
        std::fs::read_link("/proc/thread-self/exe").map(|path| path.to_string_lossy().into_owned());
    // The first argument. Not by `std::env`, whose own constructor the preload library leaves out.
    let link = std::fs::read("/proc/thread-self/cmdline").map(|words| {
        let name = words.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    });
    let shown = std::fs::read_to_string("/proc/self/comm").map(|name| name.trim_end().to_owned());
    let names: Vec<String> = [file.ok(), link.ok(), shown.ok()].into_iter().flatten().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.is_empty() || config.programs.allow(&names)
}

/// Returns true if the configuration lets the descriptor `fd`, of that kind, move.
pub(crate) fn allows(config: &Config, fd: i32, kind: KindT) -> bool {
    if !config.allows(kind) {
        return false;
    }
    let is_any = config.ports == Ports::default() && config.addresses == Addresses::default();
    if !matches!(kind, KindT::Tcp | KindT::Udp) || is_any {
        return true;
    }
    let Some(fd) = sojourn_shm::descriptor::of_program(fd) else { return false };
    let local = rustix::net::getsockname(fd).ok().and_then(|any| SocketAddr::try_from(any).ok());
    let remote = rustix::net::getpeername(fd).ok().flatten();
    let remote = remote.and_then(|any| SocketAddr::try_from(any).ok());
    // A TCP socket without a peer cannot move yet; a UDP socket need not be connected.
    let has_ends = remote.is_some() || kind == KindT::Udp;
    local.is_some_and(|local| has_ends && config.allows_between(local, remote))
}

/// Returns true if a socket is bound to, or connected with, a loopback address, or is connected
/// with its own address.
pub(crate) fn is_for_this_host(fd: i32) -> bool {
    let Some(fd) = sojourn_shm::descriptor::of_program(fd) else { return true };
    let address = |any: rustix::net::SocketAddrAny| {
        SocketAddr::try_from(any).map(|at| at.ip().to_canonical()).ok()
    };
    let Ok(own) = rustix::net::getsockname(fd).map(address) else { return true };
    let peer = rustix::net::getpeername(fd).ok().flatten().and_then(address);
    let is_loopback = |ip: Option<IpAddr>| ip.is_some_and(|ip| ip.is_loopback());
    is_loopback(own) || is_loopback(peer) || (own.is_some() && own == peer)
}

/// Returns the kind of a descriptor, if it is one that can move. The server looks closer.
pub(crate) fn kind_of(fd: i32) -> Option<KindT> {
    let fd = sojourn_shm::descriptor::of_program(fd)?;
    match FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode) {
        FileType::Fifo => Some(KindT::Pipe),
        FileType::Socket => {
            let socket_type = sockopt::socket_type(fd).ok()?;
            if socket_type == SocketType::DGRAM {
                let is_udp = sockopt::socket_protocol(fd).ok()? == Some(ipproto::UDP);
                return is_udp.then_some(KindT::Udp);
            }
            if socket_type != SocketType::STREAM {
                return None;
            }
            match sockopt::socket_domain(fd).ok()? {
                AddressFamily::INET | AddressFamily::INET6 => Some(KindT::Tcp),
                AddressFamily::UNIX => Some(KindT::Unix),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{OsStr, OsString};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn config(name: &str, value: &str) -> Config {
        let name = OsString::from(format!("SOJOURN_{name}"));
        Config::from_env([NamedValue { name: &name, value: OsStr::new(value) }])
    }

    #[test]
    fn ports_and_addresses_are_left_out_as_configured() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            for end in [&client, &server] {
                let allows = |name, value: String| {
                    allows(&config(name, &value), end.as_raw_fd(), KindT::Tcp)
                };
                assert!(allows("PORTS", port.to_string()));
                assert!(!allows("PORTS", format!("!{port}")));
                assert!(allows("ADDRESSES", "127.0.0.0/8,::1".into()));
                assert!(!allows("ADDRESSES", "!127.0.0.0/8,!::1".into()));
                assert!(!allows("ADDRESSES", "10.0.0.0/8".into()));
                assert!(!allows("TCP", "off".into()));
                assert!(allows("UNIX", "off".into()));
            }
        }
        let (end, _other) = UnixStream::pair().unwrap();
        let allows = |value| allows(&config("PORTS", value), end.as_raw_fd(), KindT::Unix);
        assert!(allows("80"));
    }

    #[test]
    fn programs_are_left_out_as_configured() {
        let name = std::env::current_exe().unwrap();
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        assert!(allows_this_program(&Config::default()));
        assert!(allows_this_program(&config("PROGRAMS", &name)));
        assert!(!allows_this_program(&config("PROGRAMS", &format!("!{name}"))));
        assert!(!allows_this_program(&config("PROGRAMS", "another")));
        let shown = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(allows_this_program(&config("PROGRAMS", shown.trim_end())));
        assert!(!allows_this_program(&config("PROGRAMS", &format!("!{}", shown.trim_end()))));
    }
}
