//! A process that takes the descriptors which one user's programs send, and looks at them.
//!
//! # Theory of operation
//! A question to a kernel object waits for the holder of the object's lock, and a program can hold
//! the lock of a pipe or of a TCP socket for ever: it writes from a page that never comes
//! (userfaultfd(2), a file system in user space). Closing the last descriptor of such a pipe waits
//! as well, and so does closing a file of such a file system. Nothing ends that wait, not even
//! `SIGKILL`. So no descriptor that a client may have chosen comes into the server's table. One
//! proxy for each user receives them ([`sojourn_ipc::proxy`]), keeps sockets and pipes, and hands
//! the server **tickets** in their place: one end of a socket pair, over which the server asks for
//! a look at the object (`inspections`). Event descriptors and memory go to the server themselves:
//! the kernel makes nobody wait for these.
//!
//! The first thread waits for nothing but the server. A few other threads look and close, and each
//! of them may be lost. When all are lost, the process ends, as far as it can, and the server
//! starts another for that user, but not very often.
//!
//! Not here: starting and giving up proxies (`proxies`), the look at an end (`identity`).

mod pool;

use crate::identity::is_fifo;
use crate::inspected::Inspected;
use crate::notifier::{is_event, name_of};
use pool::{Job, Pool};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{SealFlags, Stat, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, shutdown, socketpair,
};
use sojourn_ipc::ancillary;
use sojourn_ipc::proxy::forward;
use sojourn_session::ReasonT;
use std::collections::HashMap;

/// The argument that makes this program a proxy; the server's end is standard input. [`CARRIES`]
/// may follow.
pub const ARGUMENT: &str = "--proxy";
/// There is a carrier: a socket's peer may be on another host.
pub const CARRIES: &str = "carries";

/// The server's message that a client's socket and its line follow.
pub(crate) const CLIENT: u8 = b'C';
/// Bytes of the largest memory that goes to the server: a session's record
/// (`sojourn_pump::sealed`).
const MEMORY_MAX: u64 = 96 << 20;
/// Bytes by which memory may be rounded up: to two large pages.
const MEMORY_ROUNDING: u64 = 4 << 20;
/// Bytes of a block of stat(2).
const BLOCK: u64 = 512;
const CONTROL: u64 = u64::MAX;
const EVENTS: usize = 64;
/// The interval at which the first thread looks whether all others are lost.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A descriptor for which the process waits, beside its control socket.
#[derive(Debug)]
enum Watched {
    /// A client's socket, and the line over which the server asks for the client's messages.
    Line { client: OwnedFd, line: OwnedFd },
    /// An object that a client sent, and the proxy's end of its ticket.
    Ticket { held: Option<OwnedFd>, ticket: OwnedFd },
}

#[derive(Debug)]
struct Proxy {
    control: Option<OwnedFd>,
    set: OwnedFd,
    watched: HashMap<u64, Watched>,
    last: u64,
    pool: Pool,
}

/// Runs a proxy: the program was started with [`ARGUMENT`]. Does not return after it has begun.
///
/// # Errors
/// The kernel's, before it has begun.
pub fn run(carries: bool) -> std::io::Result<()> {
    // A Ctrl-C for the process group of the server must not end the proxy, and its working
    // directory must not keep a file system from being unmounted.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"sojourn-proxy");
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut proxy = Proxy::new(control, Pool::new(carries))?;
    proxy.serve();
    drop(proxy);
    // `exit_group(2)` ends at once, without waiting for lost threads and their objects.
    std::process::exit(0)
}

impl Drop for Proxy {
    /// Shuts down all sockets, so that their peers notice the end: as long as a thread is lost, the
    /// end of this process closes no descriptor.
    fn drop(&mut self) {
        let of = |what: &Watched| match what {
            Watched::Line { client, line } => {
                let _ = shutdown(client, Shutdown::Both);
                let _ = shutdown(line, Shutdown::Both);
            }
            Watched::Ticket { ticket, .. } => drop(shutdown(ticket, Shutdown::Both)),
        };
        self.watched.values().for_each(of);
        if let Some(control) = &self.control {
            let _ = shutdown(control, Shutdown::Both);
        }
        // Closing the clients' objects could wait for ever, see the head of this file.
        std::mem::forget(std::mem::take(&mut self.watched));
    }
}

impl Proxy {
    fn new(control: OwnedFd, pool: Pool) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        Ok(Self { control: Some(control), set, watched: HashMap::new(), last: 0, pool })
    }

    fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_over() {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An error leaves `events` empty.
            let limit = (!self.pool.is_idle()).then_some(&LOOK_EVERY);
            let _ = epoll::wait(&self.set, spare, limit);
            for event in &events {
                match event.data.u64() {
                    CONTROL => self.receive_control(),
                    key => self.serve_readable(key),
                }
            }
        }
    }

    /// Returns true if the server wants no more of the proxy and all clients have gone, or if all
    /// threads are lost.
    fn is_over(&mut self) -> bool {
        let is_idle = self.control.is_none() && self.watched.is_empty() && self.pool.is_idle();
        is_idle || self.pool.is_lost()
    }

    fn watch(&mut self, what: Watched) {
        self.last += 1;
        let fd = match &what {
            Watched::Line { line, .. } => line,
            Watched::Ticket { ticket, .. } => ticket,
        };
        if epoll::add(&self.set, fd, EventData::new_u64(self.last), EventFlags::IN).is_ok() {
            self.watched.insert(self.last, what);
        } else {
            self.close(what);
        }
    }

    /// Lets go of an object without waiting for it.
    fn close(&mut self, what: Watched) {
        // Only proxy and server have the line or the ticket, so closing it does not wait.
        match what {
            Watched::Line { client, line } => {
                let _ = epoll::delete(&self.set, &line);
                // The client notices now, whenever a thread of the pool comes to close the socket.
                let _ = shutdown(&client, Shutdown::Both);
                self.pool.give(Job::Close(client));
            }
            Watched::Ticket { held, ticket } => {
                let _ = epoll::delete(&self.set, &ticket);
                held.into_iter().for_each(|held| self.pool.give(Job::Close(held)));
            }
        }
    }

    /// Receives a message of the server, or notices that it has gone.
    fn receive_control(&mut self) {
        let Some(control) = &self.control else { return };
        match receive(control.as_fd()) {
            Ok(Some(ControlMessage { kind: CLIENT, fds })) => {
                if let Ok([client, line]) = <[OwnedFd; 2]>::try_from(fds) {
                    self.watch(Watched::Line { client, line });
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.lose_control(),
        }
    }

    /// Goes on with the clients that are there. The set keeps a socket as long as one of its
    /// descriptors is open (epoll(7), question 6), and standard input is another one: the end would
    /// be reported for ever.
    fn lose_control(&mut self) {
        if let Some(control) = self.control.take() {
            let _ = epoll::delete(&self.set, &control);
        }
    }

    fn serve_readable(&mut self, key: u64) {
        match self.watched.remove(&key) {
            None => {}
            Some(Watched::Line { client, line }) => {
                let is_there = forward(client.as_fd(), line.as_fd(), |fd| self.replace(fd));
                let what = Watched::Line { client, line };
                if is_there {
                    self.watched.insert(key, what);
                } else {
                    self.close(what);
                }
            }
            Some(Watched::Ticket { held, ticket }) => {
                let _ = epoll::delete(&self.set, &ticket);
                let flags = RecvFlags::DONTWAIT;
                let is_asked = matches!(rustix::net::recv(&ticket, &mut [0; 1], flags), Ok((1, _)));
                match held {
                    Some(held) if is_asked => self.pool.give(Job::Look(held, ticket)),
                    None if is_asked => pool::answer(&ticket, &Inspected::refused(ReasonT::Kind)),
                    held => held.into_iter().for_each(|held| self.pool.give(Job::Close(held))),
                }
            }
        }
    }

    /// Returns the descriptor that the server gets in place of the one that a client sent.
    fn replace(&mut self, fd: OwnedFd) -> Option<OwnedFd> {
        if is_event(&fd) || is_memory(fd.as_fd()) {
            return Some(fd);
        }
        let held = if is_end(fd.as_fd()) {
            Some(fd)
        } else {
            self.pool.give(Job::Close(fd));
            None
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let Ok((ticket, theirs)) = pair else {
            held.into_iter().for_each(|held| self.pool.give(Job::Close(held)));
            return None;
        };
        self.watch(Watched::Ticket { held, ticket });
        Some(theirs)
    }
}

/// Returns true for a socket or a pipe. `/proc` calls files, and pipes with a name, by their paths,
/// which begin with a slash.
fn is_end(fd: BorrowedFd<'_>) -> bool {
    let prefixes: [&[u8]; 2] = [b"socket:[", b"pipe:["];
    name_of(fd).is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        || is_fifo(fd)
}

/// Returns true for a file in memory that nobody can change any more, and that is small enough to
/// be released quickly. Only files in memory have seals (fcntl(2)), and neither question waits for
/// anybody. A file can have more memory than its length shows (fallocate(2),
/// `FALLOC_FL_KEEP_SIZE`), so that what it has is counted.
fn is_memory(fd: BorrowedFd<'_>) -> bool {
    let fixed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let is_small = |found: Stat| {
        let held = u64::try_from(found.st_blocks).map_or(u64::MAX, |n| n.saturating_mul(BLOCK));
        u64::try_from(found.st_size).is_ok_and(|n| n <= MEMORY_MAX)
            && held <= MEMORY_MAX + MEMORY_ROUNDING
    };
    fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(fixed)) && fstat(fd).is_ok_and(is_small)
}

/// A message of the server.
struct ControlMessage {
    kind: u8,
    fds: Vec<OwnedFd>,
}

/// Receives a message of the server; `None` at the end.
fn receive(control: BorrowedFd<'_>) -> Result<Option<ControlMessage>, Errno> {
    let mut byte = [0; 1];
    let arrived = ancillary::receive(control, &mut byte)?;
    Ok((arrived.len == 1).then_some(ControlMessage { kind: byte[0], fds: arrived.fds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy's own descriptor of the control socket is a duplicate of its standard input.
    #[test]
    fn the_end_of_the_server_is_heard_once() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (servers, standard_input) = pair.unwrap();
        let control = standard_input.try_clone().unwrap();
        let mut proxy = Proxy::new(control, Pool::new(false)).unwrap();
        let reported = |proxy: &Proxy| {
            let mut events = Vec::with_capacity(EVENTS);
            let spare = rustix::buffer::spare_capacity(&mut events);
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&proxy.set, spare, Some(&now)).unwrap()
        };
        assert_eq!(reported(&proxy), 0);
        drop(servers);
        assert_eq!(reported(&proxy), 1);
        proxy.receive_control();
        assert!(proxy.control.is_none());
        assert_eq!(reported(&proxy), 0, "the first thread would never sleep again");
    }

    #[test]
    fn memory_counts_as_much_as_it_takes_to_release() {
        use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, memfd_create};
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        let sealed = |beyond: u64| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("test", flags).unwrap();
            rustix::io::write(&file, b"a record").unwrap();
            fallocate(&file, FallocateFlags::KEEP_SIZE, 0, beyond).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            is_memory(file.as_fd())
        };
        assert!(sealed(4096));
        assert!(!sealed(MEMORY_MAX + 2 * MEMORY_ROUNDING), "beyond the end of the file");
    }
}
