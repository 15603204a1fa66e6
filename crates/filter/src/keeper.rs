//! A process that holds a filter's descriptors, and those of its sessions, while no server runs, so
//! that sessions that are away continue until the next server comes.
//!
//! # Theory of operation
//! The server starts a process that runs [`keep`], over a pair of sockets (`SOCK_SEQPACKET`), and
//! sends it descriptors by name, and a pidfd for each program with sessions. When the server's end
//! closes, the keeper waits at a listening socket. The next server that connects gets all
//! descriptors and controls the keeper from then on. The keeper ends, and the filter with it, when
//! there is no server and there was no program, when no server has come shortly after the end of
//! the last program, or when no server has come within the time limit.
//!
//! A packet is one letter and a name, with some descriptors:
//!
//! | letter | to | |
//! |---|---|---|
//! | `H` | both | hold these descriptors by this name, in place of earlier ones of that name |
//! | `R` | keeper | release the descriptors or the program of this name |
//! | `P` | both | a program, by its pidfd |
//! | `E` | server | end of the list: everything has been sent |
//!
//! Every process that can connect to the listening socket can take the filter, so only the server's
//! user can access its file, and the keeper also refuses other users. The keeper trusts its server,
//! and no other process communicates with it. A packet whose descriptors do not all fit into the
//! receiver's table counts as if it held nothing. Not here: starting the process, and the meaning
//! of the names (`adopt`, and `sojourn_carrier`).

use crate::adopt::Holding;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
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
/// The largest numbers of bytes and of descriptors of a packet.
const PACKET_MAX: usize = 512;
const FDS_MAX: usize = 8;
/// The time limit for a server to take the descriptors.
const SEND_MAX: Duration = Duration::from_secs(5);
/// The time limit for a keeper to take a packet; after it the keeper counts as gone.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// One packet: its letter, its name, its descriptors.
struct Packet {
    letter: u8,
    name: String,
    fds: Vec<OwnedFd>,
    /// This process had no room for some of the descriptors (`MSG_CTRUNC`, recvmsg(2)). Those left
    /// cannot be told apart, so `fds` has none.
    is_cut: bool,
}

/// The time limits of a keeper without a server.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The limit while a program with sessions lives.
    pub with_programs: Duration,
    /// The limit after the last program has ended, in which a server can still finish its sessions.
    pub after_programs: Duration,
}

/// The contents of a keeper, for the next server.
#[derive(Debug, Default)]
pub struct Kept {
    /// Descriptors by name.
    pub held: Vec<KeptDescriptors>,
    /// Programs, alive or not.
    pub programs: Vec<Holding<OwnedFd>>,
}

/// The descriptors that a keeper holds by one name.
#[derive(Debug)]
pub struct KeptDescriptors {
    /// The name.
    pub name: String,
    /// The descriptors, in the order in which they came.
    pub fds: Vec<OwnedFd>,
}

/// A keeper that is to be started.
#[derive(Debug)]
pub struct NewKeeper {
    /// The server's side.
    pub keeper: Keeper,
    /// The socket with which the keeper's process must call [`keep`].
    pub control: OwnedFd,
}

/// A keeper that an earlier server has left.
#[derive(Debug)]
pub struct FoundKeeper {
    /// The server's side.
    pub keeper: Keeper,
    /// Its contents, for [`Filter::adopt`](crate::Filter::adopt).
    pub kept: Kept,
}

fn send(socket: BorrowedFd<'_>, letter: u8, name: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if name.len() >= PACKET_MAX || fds.len() > FDS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [IoSlice::new(std::slice::from_ref(&letter)), IoSlice::new(name.as_bytes())];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the next packet; `None` at the end.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = [0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let (len, is_cut) = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Err(Errno::CONNRESET) => (0, false),
        received => {
            let received = received?;
            (received.bytes, received.flags.contains(ReturnFlags::CTRUNC))
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            fds.extend(found);
        }
    }
    if is_cut {
        fds.clear();
    }
    let Some((letter, name)) = bytes[..len].split_first() else { return Ok(None) };
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(Some(Packet { letter: *letter, name, fds, is_cut }))
}

/// The server's side of a keeper.
#[derive(Debug)]
pub struct Keeper {
    control: OwnedFd,
}

impl Keeper {
    /// Creates both sides of a keeper.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create() -> io::Result<NewKeeper> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (control, keepers) = rustix::net::socketpair(family, kind, flags, None)?;
        set_socket_timeout(&control, Timeout::Send, Some(HOLD_MAX))?;
        Ok(NewKeeper { keeper: Self { control }, control: keepers })
    }

    /// Connects to the keeper that an earlier server left at `path`.
    ///
    /// # Errors
    /// `ENOENT` or `ECONNREFUSED` if there is no keeper; `EPIPE` if it is ending; `EPERM` if it is
    /// another user's.
    pub fn find(path: &Path) -> io::Result<FoundKeeper> {
        let control = unix_socket()?;
        rustix::net::connect(&control, &SocketAddrUnix::new(path)?)?;
        if !is_own(&control) {
            return Err(Errno::PERM.into());
        }
        set_socket_timeout(&control, Timeout::Send, Some(HOLD_MAX))?;
        set_socket_timeout(&control, Timeout::Recv, Some(SEND_MAX))?;
        let keeper = Self { control };
        let (mut kept, mut cut) = (Kept::default(), Vec::new());
        loop {
            let mut packet = receive(keeper.control.as_fd())?.ok_or(io::ErrorKind::BrokenPipe)?;
            match (packet.letter, packet.fds.pop()) {
                // The others are there all the same.
                (PROGRAM | HOLD, None) if packet.is_cut => cut.push(packet.name),
                (PROGRAM, Some(program)) => {
                    kept.programs.push(Holding { name: packet.name, fd: program })
                }
                (HOLD, Some(last)) => {
                    packet.fds.push(last);
                    kept.held.push(KeptDescriptors { name: packet.name, fds: packet.fds });
                }
                (END, _) => {
                    cut.iter().try_for_each(|name| keeper.release(name))?;
                    return Ok(FoundKeeper { keeper, kept });
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Makes the keeper hold duplicates of up to eight descriptors, in place of those that had the
    /// name before.
    ///
    /// # Errors
    /// `EPIPE` if the keeper has ended: sessions would not survive this server.
    pub fn hold(&self, name: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.control.as_fd(), HOLD, name, fds)
    }

    /// Makes the keeper close the descriptors with a name, and forget the program with it.
    ///
    /// # Errors
    /// As [`Keeper::hold`].
    pub fn release(&self, name: &str) -> io::Result<()> {
        send(self.control.as_fd(), RELEASE, name, &[])
    }

    /// Returns true if the keeper has ended. The keeper sends nothing on its own, so any event
    /// means its end.
    pub fn has_ended(&self) -> bool {
        let mut set = [PollFd::new(&self.control, PollFlags::IN | PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut set, Some(&at_once)), Ok(0) | Err(Errno::INTR))
    }

    /// Registers a program with sessions by a pidfd (pidfd_open(2)).
    ///
    /// # Errors
    /// As [`Keeper::hold`].
    pub fn watch(&self, name: &str, program: BorrowedFd<'_>) -> io::Result<()> {
        send(self.control.as_fd(), PROGRAM, name, &[program])
    }
}

/// Returns true if the process at the other end runs as this user or as root.
fn is_own(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    // The process number is not checked, because a process of another pid name space has number 0
    // here.
    sojourn_ipc::peer(socket.as_fd()).is_ok_and(|peer| peer.uid == own || peer.uid == 0)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Creates the socket at which a keeper waits for its next server. Only this user can access its
/// file.
///
/// # Errors
/// `EADDRINUSE` if there is a file.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // No process can connect before listen(2), so changing the mode after bind(2) is safe.
    rustix::fs::chmod(path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// The contents of a keeper.
struct Held {
    control: Option<OwnedFd>,
    fds: BTreeMap<String, Vec<OwnedFd>>,
    programs: BTreeMap<String, Program>,
}

/// A program with sessions. A program that has ended is kept for the next server.
struct Program {
    process: OwnedFd,
    has_ended: bool,
}

/// An event for which a keeper waits.
enum Event {
    Packet,
    Server,
    End(String),
}

/// Runs the keeper. Returns when nothing needs to be kept any more, with the remaining descriptors.
///
/// # Errors
/// The kernel's error if waiting fails.
pub fn keep(
    control: OwnedFd,
    listener: &OwnedFd,
    patience: Patience,
) -> io::Result<BTreeMap<String, Vec<OwnedFd>>> {
    let mut held = Held { control: Some(control), fds: BTreeMap::new(), programs: BTreeMap::new() };
    // The times since which there is no server and no program.
    let (mut alone, mut idle) = (None, None);
    loop {
        let now = Instant::now();
        if held.control.is_some() {
            (alone, idle) = (None, None);
        } else if held.programs.is_empty() {
            return Ok(held.fds);
        } else {
            alone = alone.or(Some(now));
            let is_over = held.programs.values().all(|program| program.has_ended);
            idle = is_over.then_some(idle.unwrap_or(now));
        }
        let ends = [
            alone.and_then(|since: Instant| since.checked_add(patience.with_programs)),
            idle.and_then(|since: Instant| since.checked_add(patience.after_programs)),
        ];
        match held.wait(listener.as_fd(), ends.into_iter().flatten().min())? {
            None => return Ok(held.fds),
            Some(Event::Packet) => held.take_packet(),
            Some(Event::Server) => held.take_server(listener),
            Some(Event::End(program)) => {
                if let Some(program) = held.programs.get_mut(&program) {
                    program.has_ended = true;
                }
            }
        }
    }
}

impl Held {
    /// Waits for the next event; `None` if the deadline has passed.
    fn wait(
        &self,
        listener: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Event>> {
        let alive = || self.programs.iter().filter(|(_, program)| !program.has_ended);
        let mut waits = vec![PollFd::from_borrowed_fd(listener, PollFlags::IN)];
        waits.extend(alive().map(|(_, program)| PollFd::new(&program.process, PollFlags::IN)));
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
        // A server's last packets are handled before its end, and both before the next server.
        if self.control.is_some() && ready(waits.len() - 1) {
            return Ok(Some(Event::Packet));
        }
        let ended = (1..).zip(alive()).find(|(at, _)| ready(*at));
        Ok(Some(ended.map_or(Event::Server, |(_, (name, _))| Event::End(name.clone()))))
    }

    fn take_packet(&mut self) {
        let packet = self.control.as_ref().and_then(|control| receive(control.as_fd()).ok()?);
        let Some(Packet { letter, name, mut fds, is_cut }) = packet else {
            self.control = None;
            return;
        };
        // The next server's connection needs room, too.
        let is_cut = is_cut || fds.last().is_some_and(|last| last.try_clone().is_err());
        match letter {
            // What was held by that name before is not what the server has now.
            HOLD if is_cut => drop(self.fds.remove(&name)),
            HOLD => drop(self.fds.insert(name, fds)),
            PROGRAM if !is_cut => {
                if let Some(process) = fds.pop() {
                    self.programs.insert(name, Program { process, has_ended: false });
                }
            }
            RELEASE => {
                self.fds.remove(&name);
                self.programs.remove(&name);
            }
            // An unknown letter, perhaps of a later version, is ignored.
            _ => {}
        }
    }

    /// Accepts a connecting server, also in the place of one that was killed and that the kernel
    /// does not let go of. Only the server that has the place connects, and what the one before it
    /// has said is heard first (`wait`). Other users are refused.
    fn take_server(&mut self, listener: &OwnedFd) {
        // The client may have gone again.
        let Ok(server) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) else { return };
        if is_own(&server)
            && self.tell(&server).is_ok()
            && let Some(earlier) = self.control.replace(server)
        {
            // Whoever has it as well, and lives after all, hears of that.
            let _ = rustix::net::shutdown(&earlier, Shutdown::Both);
        }
    }

    fn tell(&self, server: &OwnedFd) -> io::Result<()> {
        set_socket_timeout(server, Timeout::Send, Some(SEND_MAX))?;
        for (name, program) in &self.programs {
            send(server.as_fd(), PROGRAM, name, &[program.process.as_fd()])?;
        }
        for (name, fds) in &self.fds {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            send(server.as_fd(), HOLD, name, &fds)?;
        }
        send(server.as_fd(), END, "", &[])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::process::{Command, Stdio};

    /// Set in the process that looks from a process name space of its own.
    const ROLE: &str = "SOJOURN_KEEPER_LOOKS";

    #[test]
    fn who_has_no_number_here_is_known_by_its_user() {
        if std::env::var_os(ROLE).is_some() {
            let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            assert_eq!(sojourn_ipc::peer(socket.as_fd()).unwrap().pid, 0, "it can be seen");
            assert!(is_own(&socket));
            return;
        }
        let (own, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        assert!(is_own(&own));
        let name = "keeper::tests::who_has_no_number_here_is_known_by_its_user";
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe().unwrap());
        inside.args(["--exact", name]).env(ROLE, "1").stdin(Stdio::from(own));
        let said = inside.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        if text.contains("unshare failed") {
            eprintln!("skipped: {text}");
            return;
        }
        assert!(said.status.success(), "{text}{}", String::from_utf8_lossy(&said.stdout));
    }
}
