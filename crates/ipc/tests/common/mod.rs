//! What the tests share: a server within the process or in another, calls with a time limit, the
//! watchdog of every test that could hang, a raw client.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod child;
pub mod raw;
pub mod service;
pub mod watchdog;

use child::Process;
use rustix::fd::AsFd;
use sojourn_ipc::{
    Address, CallError, ConnectOptions, Connection, Deadline, Endpoint, ServerOptions, Wait,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use watchdog::{name, watchdog};

pub fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

pub fn soon(ms: u64) -> Deadline {
    Deadline::after(Duration::from_millis(ms))
}

/// Looks again and again until `done`, for 20 seconds at most.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A path in the directory of temporary files that nobody uses.
pub fn path() -> std::path::PathBuf {
    std::env::temp_dir().join(name())
}

pub fn call(connection: &mut Connection, op: u16, body: &[u8]) -> Result<Vec<u8>, CallError> {
    call_until(connection, op, body, limit())
}

pub fn call_until(
    connection: &mut Connection,
    op: u16,
    body: &[u8],
    deadline: Deadline,
) -> Result<Vec<u8>, CallError> {
    let mut draft = connection.start(op, body.len());
    draft.encoder().put_bytes(body)?;
    Ok(draft.call(deadline)?.body().to_vec())
}

/// An answer of 64-bit numbers.
pub fn ask(connection: &mut Connection, op: u16, body: &[u8]) -> Result<Vec<u64>, CallError> {
    let body = call(connection, op, body)?;
    Ok(body.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect())
}

pub fn call_with_items(
    connection: &mut Connection,
    body: &[u8],
    items: &[&[u8]],
) -> Result<(Vec<u8>, Vec<Vec<u8>>), CallError> {
    let mut draft = connection.start(service::ECHO, body.len());
    draft.encoder().put_bytes(body)?;
    for item in items {
        draft.encoder().put_item(item)?;
    }
    let reply = draft.call(limit())?;
    let back = (0..).map_while(|index| reply.item(index)).collect();
    Ok((reply.body().to_vec(), back))
}

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Threads of this process, called by reference where that is possible.
    Within,
    /// A process of its own.
    Across,
}

pub struct Echo {
    pub name: String,
    endpoint: Option<Endpoint>,
    threads: Vec<JoinHandle<()>>,
    pub process: Option<Process>,
}

impl Echo {
    pub fn start(home: Home) -> Self {
        Self::start_with(home, 1, ServerOptions::default())
    }

    pub fn start_with(home: Home, threads: usize, options: ServerOptions) -> Self {
        let name = name();
        match home {
            Home::Across => Self::start_at(&format!("@{name}"), threads, options),
            Home::Within => {
                let endpoint = Endpoint::bind(Address::abstract_name(&name), options).unwrap();
                let threads = (0..threads)
                    .map(|_| {
                        let server = endpoint.server();
                        std::thread::spawn(move || service::serve(server))
                    })
                    .collect();
                let name = format!("@{name}");
                Self { name, endpoint: Some(endpoint), threads, process: None }
            }
        }
    }

    /// A server process at `address`.
    pub fn start_at(address: &str, threads: usize, options: ServerOptions) -> Self {
        let threads = threads.to_string();
        let options = service::words(&options);
        let mut words = vec![address, &threads];
        words.extend(options.iter().map(String::as_str));
        let mut process = Process::start("serve", &words);
        process.hear("ready").expect("the server starts");
        Self { name: address.into(), endpoint: None, threads: vec![], process: Some(process) }
    }

    pub fn address(&self) -> Address {
        Address::parse(&self.name).unwrap()
    }

    pub fn connect(&self) -> Connection {
        self.connect_with(Default::default())
    }

    pub fn connect_with(&self, options: ConnectOptions) -> Connection {
        Connection::connect(self.address(), &options).unwrap()
    }

    pub fn connect_waiting(&self, wait: Wait) -> Connection {
        self.connect_with(ConnectOptions { wait, ..Default::default() })
    }

    pub fn close(&mut self) {
        drop(self.endpoint.take());
        if let Some(process) = &mut self.process {
            assert!(process.end(), "the server ends well");
        }
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.endpoint.take());
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Whether something came from the socket, or its end, before the time was up.
pub fn is_readable(fd: impl AsFd, ms: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let timeout = rustix::time::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// A listening socket at `path` that has no guard.
pub fn raw_listener(path: &std::path::Path) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 100).unwrap();
    socket
}

/// As daemons do that want no zombies.
pub fn ignore_children() {
    #![allow(unsafe_code, reason = "signal dispositions have no safe interface")]
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}
