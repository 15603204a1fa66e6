//! Shared by the tests of this package: a `sojourn-protocol` whose session server the test plays,
//! and patience. There is no carrier, so sessions stay in the kernel; `tests/system` has the
//! others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use sojourn_protocol::{Address, Client, Deadline, Wait};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that should take no time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Within patience.
pub fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// Ends the test's process if it has not ended by itself.
pub fn watchdog(seconds: u64) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        eprintln!("the watchdog bites after {seconds} s");
        std::process::abort();
    });
}

/// A running `sojourn-protocol`, killed on drop.
pub struct Server {
    pub child: Child,
    control: OwnedFd,
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

impl Server {
    pub fn start() -> Self {
        watchdog(120);
        let (control, theirs) = pair();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-protocol"));
        command.env_clear().env("SOJOURN_SERVER", "/nowhere/server");
        command.env("SOJOURN_MOVE_AFTER_CALLS", "1").stdin(Stdio::from(theirs));
        Self { child: command.spawn().unwrap(), control }
    }

    /// Hands over an accepted connection, as the session server does.
    pub fn hand(&self, accepted: &OwnedFd) -> Result<(), Errno> {
        let fds = [accepted.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
        let flags = SendFlags::NOSIGNAL;
        sendmsg(&self.control, &[IoSlice::new(&[0])], &mut beside, flags).map(drop)
    }

    /// A socket that is connected to the server.
    pub fn socket(&self) -> OwnedFd {
        let (own, accepted) = pair();
        self.hand(&accepted).unwrap();
        own
    }

    pub fn client(&self) -> Client {
        Client::connect(Address::Descriptor(self.socket()), Wait::Adaptive).unwrap()
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
    }
}

/// The two ends of a TCP connection.
pub fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    for end in [&one, &other] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (one, other)
}

/// Two UDP sockets, connected to each other.
pub fn datagrams() -> (UdpSocket, UdpSocket) {
    let [one, other] = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    one.set_read_timeout(Some(PATIENCE)).unwrap();
    (one, other)
}

/// Tries until it is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes in which each place shows.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}
