//! A process that has what one user's programs send: it receives their descriptors, and looks what
//! they are.
//!
//! # Theory of operation
//! A question to a kernel object waits for whoever holds the object's lock, and a program can hold
//! the lock of a pipe or of a TCP socket for ever: it writes from a page that never comes
//! (userfaultfd(2), a file system in user space). Closing the last descriptor of such a pipe waits
//! as well, and so does closing a file of such a file system. Nothing ends that wait, not even
//! `SIGKILL`. So no descriptor that a client may have chosen comes into the server's table. One
//! proxy for each user receives them ([`sojourn_ipc::proxy`]), keeps sockets and pipes, and hands
//! the server **tickets** in their place: one end of a socket pair, over which the server asks what
//! the thing is (`looks`). Event descriptors and memory go to the server themselves: the kernel
//! makes nobody wait for these.
//!
//! The first thread waits for nothing but the server. Looking and closing is done by a few others,
//! each of which may be lost. When all are, the process ends, as far as it can, and the server
//! starts another for that user, but not very often.
//!
//! Not here: when a proxy is started and given up (`proxies`), what is seen of an end (`identity`).

mod pool;

use crate::looked::Looked;
use crate::notifier::{is_event, name_of};
use pool::{Job, Pool};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketFlags,
    SocketType, recvmsg, shutdown, socketpair,
};
use sojourn_ipc::proxy::forward;
use sojourn_session::ReasonT;
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;

/// What this program is run with to be a proxy; the server's end is standard input. [`CARRIES`] may
/// follow.
pub const ARGUMENT: &str = "--proxy";
/// There is a carrier: a socket's peer may be on another host.
pub const CARRIES: &str = "carries";

/// The server's word that a client's socket and its line follow.
pub(crate) const CLIENT: u8 = b'C';
/// Bytes of the largest memory that goes to the server: a session's record
/// (`sojourn_pump::sealed`).
const MEMORY_MAX: u64 = 96 << 20;
const CONTROL: u64 = u64::MAX;
const EVENTS: usize = 64;
/// How often it is looked whether all threads are lost.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What the process waits for, beside its control socket.
#[derive(Debug)]
enum Watched {
    /// A client's socket, and the line over which the server asks for what comes there.
    Line { client: OwnedFd, line: OwnedFd },
    /// Something that a client sent, and our end of its ticket.
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

/// What the process does that was run with [`ARGUMENT`].
///
/// # Errors
/// The kernel's, before it has begun.
pub fn run(carries: bool) -> std::io::Result<()> {
    // Not to be interrupted with its server, nor to keep a file system busy.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"sojourn-proxy");
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
    let pool = Pool::new(carries);
    let mut proxy = Proxy { control: Some(control), set, watched: HashMap::new(), last: 0, pool };
    proxy.serve();
    drop(proxy);
    // At once: threads that are lost, and what they have, are not waited for.
    std::process::exit(0)
}

impl Drop for Proxy {
    /// Says that it ends: as long as a thread is lost, nothing that this process has is closed by
    /// its end.
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
        // Closing it is what cannot be waited for.
        std::mem::forget(std::mem::take(&mut self.watched));
    }
}

impl Proxy {
    fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_over() {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An error leaves it empty.
            let limit = (!self.pool.is_idle()).then_some(&LOOK_EVERY);
            let _ = epoll::wait(&self.set, spare, limit);
            for event in &events {
                match event.data.u64() {
                    CONTROL => self.told(),
                    key => self.serve_readable(key),
                }
            }
        }
    }

    /// The server wants no more of it and all clients have gone, or it can do nothing any more.
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

    /// Lets go of something without waiting for it.
    fn close(&mut self, what: Watched) {
        // The line or the ticket is ours and the server's, and closes at once.
        match what {
            Watched::Line { client, line } => {
                let _ = epoll::delete(&self.set, &line);
                // The client is to know, whenever it is closed.
                let _ = shutdown(&client, Shutdown::Both);
                self.pool.give(Job::Close(client));
            }
            Watched::Ticket { held, ticket } => {
                let _ = epoll::delete(&self.set, &ticket);
                held.into_iter().for_each(|held| self.pool.give(Job::Close(held)));
            }
        }
    }

    /// Something came from the server, or it has gone.
    fn told(&mut self) {
        let Some(control) = &self.control else { return };
        match receive(control.as_fd()) {
            Ok(Some((CLIENT, fds))) => {
                if let Ok([client, line]) = <[OwnedFd; 2]>::try_from(fds) {
                    self.watch(Watched::Line { client, line });
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.control = None,
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
                    None if is_asked => pool::answer(&ticket, &Looked::refused(ReasonT::Kind)),
                    held => held.into_iter().for_each(|held| self.pool.give(Job::Close(held))),
                }
            }
        }
    }

    /// What the server gets in place of something that a client sent.
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

/// A socket, or a pipe without a name: `/proc` calls files by their paths, which begin with a
/// slash.
fn is_end(fd: BorrowedFd<'_>) -> bool {
    let prefixes: [&[u8]; 2] = [b"socket:[", b"pipe:["];
    name_of(fd).is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// A file in memory that nobody can change any more, and not so large that letting it go takes
/// long. No others than files in memory have seals (fcntl(2)), and neither question waits for
/// anybody.
fn is_memory(fd: BorrowedFd<'_>) -> bool {
    let fixed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(fixed))
        && fstat(fd).is_ok_and(|found| u64::try_from(found.st_size).is_ok_and(|n| n <= MEMORY_MAX))
}

/// A message of the server's and its descriptors; `None` at the end.
fn receive(control: BorrowedFd<'_>) -> Result<Option<(u8, Vec<OwnedFd>)>, Errno> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)?;
    let mut fds = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            fds.extend(found);
        }
    }
    Ok((got.bytes == 1).then_some((byte[0], fds)))
}
