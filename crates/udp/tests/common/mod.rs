//! What the tests of this package share: a server as a process, and patience.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use sojourn_lab::net::Host;
use sojourn_udp::{Address, Deadline, Received, Socket, Wait};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take that should take no time.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The host's own address.
pub const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// Any port of all addresses.
pub const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// Ends the test's process if it has not ended by itself.
pub fn watchdog(seconds: u64) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        eprintln!("the watchdog bites after {seconds} s");
        std::process::abort();
    });
}

/// A host of its own for one test, which ends in time; `None`, and says so, where there can be
/// neither raw sockets nor network namespaces.
pub fn host() -> Option<Host> {
    if !sojourn_lab::net::is_possible() {
        eprintln!("skipped: takes root's rights and iproute2");
        return None;
    }
    watchdog(120);
    Some(Host::new().unwrap())
}

/// Two of them.
pub fn hosts() -> Option<(Host, Host)> {
    Some((host()?, Host::new().unwrap()))
}

/// A running `sojourn-udpd`, killed on drop.
pub struct Server {
    child: Child,
    pub path: PathBuf,
}

impl Server {
    /// On the host that this process is on, or on `host`.
    pub fn start(host: Option<&Host>, words: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-udp-{}-{number}", std::process::id());
        Self::start_at(std::env::temp_dir().join(name), host, words)
    }

    pub fn start_at(path: PathBuf, host: Option<&Host>, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-udpd"));
        command.arg("--address").arg(&path).args(words).stdout(Stdio::piped());
        if let Some(host) = host {
            host.place(&mut command);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("ready {}", path.display()));
        Self { child, path }
    }

    pub fn address(&self) -> Address {
        Address::parse(self.path.to_str().unwrap()).unwrap()
    }

    pub fn try_bind(&self, local: SocketAddrV4) -> Result<Socket, sojourn_udp::Error> {
        Socket::bind(self.address(), local, Wait::Adaptive)
    }

    pub fn bind(&self, local: SocketAddrV4) -> Socket {
        self.try_bind(local).unwrap()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Receives within patience.
pub fn receive(socket: &mut Socket, buffer: &mut [u8]) -> Received {
    socket.recv_from(buffer, Deadline::after(PATIENCE)).unwrap()
}

/// Tries until it is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Bytes that are nobody else's.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}
