//! The command channel from the session server's threads to the carrier.
//!
//! The carrier sees it as [`Commands`]: the channel itself if it is a thread of the same process,
//! otherwise what the server's process passes on. Not here: the carrier's calls to the server
//! (`sessions`), the way from one process to the other (`sojourn-server`, `apart`).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Uid, getrlimit};
use sojourn_ipc::shares::{Share, Shares};
use sojourn_session::{DelegationToken, LocalNumber, ProcessId, StreamNumber};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A command for the carrier.
#[derive(Debug)]
pub enum Command {
    /// Take out the session of this socket, a duplicate from the program.
    Socket(OwnedFd),
    /// A library has registered its side of the adopted session with this stream.
    Registered {
        /// The stream's number.
        stream: StreamNumber,
        /// The library's process.
        pid: ProcessId,
    },
    /// The server ends: send all sessions home, and take no new one.
    AllHome,
    /// A library gives back the session of that token: `carry::give_back` of the interface.
    Back {
        /// Names the session.
        token: DelegationToken,
        /// The peer's FIN has come right behind the record's last byte.
        has_ended: bool,
        /// A file with the session's record.
        record: OwnedFd,
    },
    /// A library hands over segments that came for the session of that token while it was on its
    /// way home: `carry::give_late` of the interface.
    InTransit {
        /// Names the session.
        token: DelegationToken,
        /// A file with packets (`sojourn_pump::in_transit`).
        packets: OwnedFd,
    },
    /// The library of a UDP socket's session wants to send to an address: `session::ask_route` of
    /// the interface.
    AskRoute {
        /// The carrier's number of the session.
        local: LocalNumber,
        /// The address.
        to: IpAddr,
    },
}

/// The most commands of programs that wait for the carrier. It may stand still for as long as a
/// program holds the lock of its socket, and the descriptors of commands are the server's
/// meanwhile. It is a part of the descriptors that the server may have.
const WAITING_PART: u64 = 8;
const WAITING_MIN: u64 = 64;
const WAITING_MAX: u64 = 16 << 10;

/// A command that waits.
#[derive(Debug)]
struct Waiting {
    command: Command,
    /// Of the user whose program has brought it.
    _share: Option<Share>,
}

/// The sending side of the channel, for any thread.
#[derive(Debug)]
pub struct CommandSender {
    commands: Sender<Waiting>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
    shares: Arc<Shares>,
}

/// The receiving side, as the carrier sees it.
pub trait Commands: Send {
    /// Returns the bell, which is readable when there is a command or an event.
    fn bell(&self) -> BorrowedFd<'_>;
    /// Clears the bell; called before the look at commands, so that nothing later is missed.
    fn quiet(&self);
    /// Returns the next command.
    fn next(&mut self) -> Option<Command>;
    /// Sets the count to the number of sessions. A command that comes just now may be left out for
    /// a moment.
    fn tell_count(&mut self, sessions: usize);
    /// Returns true if there will be no command any more: the server is gone.
    fn is_closed(&self) -> bool;
}

/// The receiving side of the channel.
#[derive(Debug)]
pub struct CommandReceiver {
    commands: Receiver<Waiting>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
    is_closed: bool,
}

/// Both ends of a channel.
#[derive(Debug)]
pub struct CommandChannel {
    /// The server's end.
    pub sender: CommandSender,
    /// The carrier's end.
    pub receiver: CommandReceiver,
}

/// Makes a channel; the server also rings its bell for events.
///
/// # Errors
/// No descriptors left.
pub fn command_channel() -> Result<CommandChannel, Errno> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let bell = rustix::event::eventfd(0, flags)?;
    let other = rustix::io::fcntl_dupfd_cloexec(&bell, 0)?;
    let (commands, queue) = channel();
    let count = Arc::new(AtomicUsize::new(0));
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let shares = Shares::new((files / WAITING_PART).clamp(WAITING_MIN, WAITING_MAX) as usize);
    let sender = CommandSender { commands, bell, count: Arc::clone(&count), shares };
    let receiver = CommandReceiver { commands: queue, bell: other, count, is_closed: false };
    Ok(CommandChannel { sender, receiver })
}

impl CommandSender {
    /// Counts one more command of a user's. `None` if so many of the user's wait already that it
    /// would leave fewer for others.
    #[must_use]
    pub fn share(&self, user: Uid) -> Option<Share> {
        self.shares.take(user, 1)
    }

    /// Sends a command, which counts in `share` until the carrier takes it; the server's own have
    /// none. Returns false if there is no carrier any more.
    pub fn send(&self, command: Command, share: Option<Share>) -> bool {
        // The command counts until the carrier has looked at it: see `CommandReceiver::tell_count`.
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_taken = self.commands.send(Waiting { command, _share: share }).is_ok();
        // A full counter rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        is_taken
    }

    /// Counts the carrier's sessions, and the commands that it has not looked at yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns the bell, which is rung for events.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Commands for CommandReceiver {
    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn next(&mut self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok(waiting) => Some(waiting.command),
            Err(error) => {
                self.is_closed |= error == TryRecvError::Disconnected;
                None
            }
        }
    }

    fn tell_count(&mut self, sessions: usize) {
        self.count.store(sessions, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
