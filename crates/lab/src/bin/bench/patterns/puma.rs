//! A web server of the Ruby kind (Puma 5.6 with nio4r): a few threads that answer, of which one at
//! a time computes, and a reactor thread that waits for all other connections.
//!
//! What its clients meet: an answer comes in two writes with some computing between them, held
//! together by TCP_CORK (tcp(7)); the thread that has answered waits for the next question itself,
//! by `poll`, and hands the connection to the reactor if others wait for a thread. Requests and
//! answers are those of `many`.

use super::{Queue, lock};
use crate::events::{Counter, Set, check, is_readable_within, no_events};
use sojourn_lab::measuring::flow::cpu_ns;
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Threads that answer.
const THREADS: usize = 4;
const MESSAGE: usize = 64;
/// Bytes of an answer's first write.
const HEAD: usize = 48;
/// Computing before and between both writes: about a tenth of what an empty application takes.
const COMPUTING: Duration = Duration::from_micros(8);
/// Time for which a thread waits for the next question of the connection that it has answered.
/// Puma waits a hundred times as long; clients that stop asking would hold up all others so long
/// at the end of a measurement.
const KEPT: Duration = Duration::from_millis(2);
/// Answers of a connection, one after the other, from which on others come first.
const FAST_ANSWERS: u32 = 10;
/// Mark of the counter in the reactor's set.
const WAKE_UP: usize = usize::MAX;

/// The call by which the reactor waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selector {
    Epoll,
    Select,
}

struct Server {
    /// Connections with a question.
    ready: Queue<TcpStream>,
    /// Connections on their way to the reactor, and its wake-up.
    parked: Queue<TcpStream>,
    wake_up: Counter,
    /// The interpreter's lock, without which nothing is computed.
    interpreter: Mutex<()>,
    selector: Selector,
}

/// Serves all clients, for ever.
pub(crate) fn serve(address: &str, selector: Selector) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    let server = Arc::new(Server {
        ready: Queue::new(),
        parked: Queue::new(),
        wake_up: Counter::new()?,
        interpreter: Mutex::new(()),
        selector,
    });
    let reactor = Arc::clone(&server);
    std::thread::spawn(move || reactor.react());
    for _ in 0..THREADS {
        let server = Arc::clone(&server);
        std::thread::spawn(move || {
            loop {
                let stream = server.ready.take();
                // A connection that fails is closed.
                let _ = server.answer_all(stream);
            }
        });
    }
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        server.park(stream)?;
    }
    Ok(())
}

impl Server {
    /// Answers questions of one connection, until others wait for the thread or none comes.
    fn answer_all(&self, mut stream: TcpStream) -> Result<()> {
        let mut answered = 0;
        loop {
            let mut message = [0; MESSAGE];
            match stream.read(&mut message) {
                Ok(0) => return Ok(()),
                Ok(_) => self.answer(&mut stream, &mut message)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            answered += 1;
            let is_fast = answered < FAST_ANSWERS || self.ready.is_empty();
            if !is_fast || !is_readable_within(stream.as_raw_fd(), KEPT)? {
                return self.park(stream);
            }
        }
    }

    fn answer(&self, stream: &mut TcpStream, message: &mut [u8; MESSAGE]) -> Result<()> {
        if message[0] == 1 {
            message[1..9].copy_from_slice(&cpu_ns().to_le_bytes());
        }
        cork(stream, true)?;
        self.compute();
        stream.write_all(&message[..HEAD])?;
        self.compute();
        stream.write_all(&message[HEAD..])?;
        cork(stream, false)
    }

    fn compute(&self) {
        let _interpreter = lock(&self.interpreter);
        let end = Instant::now() + COMPUTING;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    /// Hands a connection to the reactor.
    fn park(&self, stream: TcpStream) -> Result<()> {
        self.parked.push(stream);
        self.wake_up.add_one()
    }

    /// Waits for all connections that no thread waits for.
    fn react(&self) -> Result<()> {
        let set = Set::new()?;
        set.add(self.wake_up.fd(), WAKE_UP)?;
        let mut connections: HashMap<RawFd, TcpStream> = HashMap::new();
        let mut events = no_events();
        loop {
            let ready: Vec<usize> = match self.selector {
                Selector::Epoll => match set.wait(-1, &mut events) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    count => events[..count?].iter().map(|event| event.u64 as usize).collect(),
                },
                Selector::Select => select(self.wake_up.fd(), connections.keys())?,
            };
            for mark in ready {
                if mark == WAKE_UP {
                    self.wake_up.take()?;
                } else if let Some(stream) = connections.remove(&(mark as RawFd)) {
                    if self.selector == Selector::Epoll {
                        set.remove(stream.as_raw_fd())?;
                    }
                    self.ready.push(stream);
                }
            }
            while let Some(stream) = self.parked.try_take() {
                let fd = stream.as_raw_fd();
                if self.selector == Selector::Epoll {
                    set.add(fd, fd as usize)?;
                }
                connections.insert(fd, stream);
            }
        }
    }
}

/// Holds small writes together, or sends what was held.
fn cork(stream: &TcpStream, is_on: bool) -> Result<()> {
    let value = libc::c_int::from(is_on);
    // SAFETY: the value has as many bytes as the call is told.
    check(unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CORK,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Waits by select(2); returns the numbers of readable descriptors, as the marks of the set are.
fn select<'a>(wake_up: RawFd, fds: impl Iterator<Item = &'a RawFd>) -> Result<Vec<usize>> {
    let all: Vec<RawFd> = fds.copied().chain([wake_up]).collect();
    let highest = all.iter().copied().max().unwrap_or(0);
    if highest >= libc::FD_SETSIZE as RawFd {
        return Err(Error::other("more descriptors than select(2) knows"));
    }
    // SAFETY: the set is plain bits, and all numbers are below its size.
    let (found, set) = unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        for fd in &all {
            libc::FD_SET(*fd, &raw mut set);
        }
        let none = std::ptr::null_mut();
        (libc::select(highest + 1, &raw mut set, none, none, std::ptr::null_mut()), set)
    };
    match check(found) {
        Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Vec::new()),
        other => other?,
    };
    // SAFETY: the set is plain bits, and all numbers are below its size.
    let is_ready = |fd: &RawFd| unsafe { libc::FD_ISSET(*fd, &raw const set) };
    let mark = |fd: RawFd| if fd == wake_up { WAKE_UP } else { fd as usize };
    Ok(all.into_iter().filter(is_ready).map(mark).collect())
}
