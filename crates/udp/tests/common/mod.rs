//! The common parts of this package's tests: a server as a process, and waiting with a limit.

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

/// Longest time of any step that should take almost none.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Any port of the host's loopback address.
pub const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// Any port of all addresses.
pub const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// Ends the test's process if it has not ended after `seconds`.
pub fn watchdog(seconds: u64) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        eprintln!("the watchdog bites after {seconds} s");
        std::process::abort();
    });
}

/// Makes a host for one test, with a watchdog; returns `None`, and prints the reason, where raw
/// sockets or network namespaces are not allowed.
pub fn host() -> Option<Host> {
    if !sojourn_lab::net::is_possible() {
        eprintln!("skipped: takes root's rights and iproute2");
        return None;
    }
    watchdog(120);
    Some(Host::new().unwrap())
}

/// Makes two hosts for one test.
pub fn hosts() -> Option<(Host, Host)> {
    Some((host()?, Host::new().unwrap()))
}

/// A running `sojourn-udpd`, killed on drop.
pub struct Server {
    child: Child,
    pub path: PathBuf,
}

impl Server {
    /// Starts a server on the host of this process, or on `host`.
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

    /// Lets the server have no more than so many descriptors.
    pub fn limit_descriptors(&self, most: u64) {
        let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(most) };
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    }

    /// Kills the server with SIGKILL.
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

/// Receives a datagram; fails after `PATIENCE`.
pub fn receive(socket: &mut Socket, buffer: &mut [u8]) -> Received {
    socket.recv_from(buffer, Deadline::after(PATIENCE)).unwrap()
}

/// Waits until `is_so` returns true; fails after `PATIENCE`.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Returns bytes that differ by position and by `seed`.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}
