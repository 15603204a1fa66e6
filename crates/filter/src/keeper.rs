//! A process that holds a filter's descriptors while no server runs, so that sessions that are away go on until the next one comes.
//!
//! # Theory of operation
//! The server starts a process that runs [`keep`], over a pair of sockets (`SOCK_SEQPACKET`), and tells it what to hold: descriptors by
//! name, and a pidfd for each program with sessions. When the server's end closes, the keeper waits at a listening socket. The
//! next server that connects gets everything and is the one that is listened to from then on. The keeper ends, and with it the filter,
//! when there is no server and no program any more, or when none has come for the time that it was given.
//!
//! A packet is one letter and a name, with at most one descriptor:
//!
//! | letter | to | |
//! |---|---|---|
//! | `H` | both | hold this by this name, in place of what had it before |
//! | `R` | keeper | release what has this name |
//! | `P` | keeper | a program, by its pidfd: its name is held until it ends |
//! | `E` | server | that was everything |
//!
//! Whoever can connect to the listening socket can take the filter: its file must be for the server's user alone. The keeper trusts its
//! server, and nothing else speaks to it. Not here: starting the process, and what the names mean (`adopt`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

const HOLD: u8 = b'H';
const RELEASE: u8 = b'R';
const PROGRAM: u8 = b'P';
const END: u8 = b'E';
/// Bytes of a packet, at most.
const PACKET_MAX: usize = 256;
/// A server that does not take what it asked for is not waited for longer.
const SEND_MAX: Duration = Duration::from_secs(5);

/// One packet: its letter, its name, its descriptor.
struct Packet {
    letter: u8,
    name: String,
    fd: Option<OwnedFd>,
}

fn send(
    socket: BorrowedFd<'_>,
    letter: u8,
    name: &str,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let fds: Vec<_> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(std::slice::from_ref(&letter)), IoSlice::new(name.as_bytes())];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next packet; `None` at the end.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = [0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Err(Errno::CONNRESET) => 0,
        received => received?.bytes,
    };
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    let Some((letter, name)) = bytes[..len].split_first() else { return Ok(None) };
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(Some(Packet { letter: *letter, name, fd }))
}

/// The server's side: the keeper that holds for it.
#[derive(Debug)]
pub struct Keeper {
    control: OwnedFd,
}

impl Keeper {
    /// A keeper to be, and the socket that the process which is to be it calls [`keep`] with.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (control, keepers) = rustix::net::socketpair(family, kind, flags, None)?;
        Ok((Self { control }, keepers))
    }

    /// The keeper that an earlier server left at this path, and everything it holds, for [`Filter::adopt`](crate::Filter::adopt).
    ///
    /// # Errors
    /// `ENOENT` or `ECONNREFUSED` if there is none; `EPIPE` if it still has a server.
    pub fn find(path: &Path) -> io::Result<(Self, Vec<(String, OwnedFd)>)> {
        let control = unix_socket()?;
        rustix::net::connect(&control, &SocketAddrUnix::new(path)?)?;
        let mut held = Vec::new();
        loop {
            let packet = receive(control.as_fd())?.ok_or(io::ErrorKind::BrokenPipe)?;
            match (packet.letter, packet.fd) {
                (HOLD, Some(fd)) => held.push((packet.name, fd)),
                (END, _) => return Ok((Self { control }, held)),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Holds a duplicate of the descriptor from now on, in place of what had the name before.
    ///
    /// # Errors
    /// `EPIPE` if the keeper has ended: sessions would not survive this server.
    pub fn hold(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        send(self.control.as_fd(), HOLD, name, Some(fd))
    }

    /// Closes what has the name.
    ///
    /// # Errors
    /// As [`Keeper::hold`].
    pub fn release(&self, name: &str) -> io::Result<()> {
        send(self.control.as_fd(), RELEASE, name, None)
    }

    /// Tells of a program with sessions, by a pidfd (pidfd_open(2)). When it ends what has this name is closed, for one.
    ///
    /// # Errors
    /// As [`Keeper::hold`].
    pub fn watch(&self, name: &str, program: BorrowedFd<'_>) -> io::Result<()> {
        send(self.control.as_fd(), PROGRAM, name, Some(program))
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// The socket at which a keeper waits for its next server. The file is made here, for this user alone.
///
/// # Errors
/// `EADDRINUSE` if there is a file.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before it listens.
    rustix::fs::chmod(path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// What a keeper holds.
struct Held {
    control: Option<OwnedFd>,
    fds: BTreeMap<String, OwnedFd>,
    programs: BTreeMap<String, OwnedFd>,
}

/// Something that a keeper waits for.
enum Event {
    Packet,
    Server,
    End(String),
}

/// Is the keeper: returns when there is nothing to be kept any more, and closes everything. `patience` is how long it waits for a server
/// while programs live.
///
/// # Errors
/// The kernel's, when waiting fails.
pub fn keep(control: OwnedFd, listener: &OwnedFd, patience: Duration) -> io::Result<()> {
    let mut held = Held { control: Some(control), fds: BTreeMap::new(), programs: BTreeMap::new() };
    let mut deadline = None;
    loop {
        if held.control.is_some() {
            deadline = None;
        } else if held.programs.is_empty() {
            return Ok(());
        } else if deadline.is_none() {
            deadline = Instant::now().checked_add(patience);
        }
        match held.wait(listener.as_fd(), deadline)? {
            None => return Ok(()),
            Some(Event::Packet) => held.take_packet(),
            Some(Event::Server) => held.take_server(listener)?,
            Some(Event::End(program)) => {
                held.programs.remove(&program);
                held.fds.remove(&program);
            }
        }
    }
}

impl Held {
    /// The next event; `None` when the deadline has passed.
    fn wait(
        &self,
        listener: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Event>> {
        let mut waits = vec![PollFd::from_borrowed_fd(listener, PollFlags::IN)];
        waits.extend(self.programs.values().map(|program| PollFd::new(program, PollFlags::IN)));
        waits.extend(self.control.iter().map(|control| PollFd::new(control, PollFlags::IN)));
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut waits, left.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ready = |at: usize| waits.get(at).is_some_and(|wait| !wait.revents().is_empty());
        // A server's last words come before its end, and both before the next server.
        if self.control.is_some() && ready(waits.len() - 1) {
            return Ok(Some(Event::Packet));
        }
        let ended = (1..).zip(self.programs.keys()).find(|(at, _)| ready(*at));
        Ok(Some(ended.map_or(Event::Server, |(_, name)| Event::End(name.clone()))))
    }

    fn take_packet(&mut self) {
        let packet = self.control.as_ref().and_then(|control| receive(control.as_fd()).ok()?);
        let Some(Packet { letter, name, fd }) = packet else {
            self.control = None;
            return;
        };
        match (letter, fd) {
            (HOLD, Some(fd)) => drop(self.fds.insert(name, fd)),
            (PROGRAM, Some(fd)) => drop(self.programs.insert(name, fd)),
            (RELEASE, _) => drop(self.fds.remove(&name)),
            // Of a later version, perhaps.
            _ => {}
        }
    }

    /// A server that connects while there is one is turned away.
    fn take_server(&mut self, listener: &OwnedFd) -> io::Result<()> {
        let server = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
        if self.control.is_none() && self.tell(&server).is_ok() {
            self.control = Some(server);
        }
        Ok(())
    }

    fn tell(&self, server: &OwnedFd) -> io::Result<()> {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        set_socket_timeout(server, Timeout::Send, Some(SEND_MAX))?;
        for (name, fd) in &self.fds {
            send(server.as_fd(), HOLD, name, Some(fd.as_fd()))?;
        }
        send(server.as_fd(), END, "", None)
    }
}
