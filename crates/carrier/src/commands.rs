//! The command channel from the session server's threads to the carrier.
//!
//! The carrier sees it as [`Commands`]: the channel itself if it is a thread of the same process,
//! otherwise what the server's process passes on. It takes one command of each user in turn: a
//! command may take it a while, and nobody waits for all that another user has sent.
//!
//! Not here: the carrier's calls to the server (`sessions`), the way from one process to the other
//! (`sojourn-server`, `apart`).

use crate::turns::Turns;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Uid, getrlimit};
use sojourn_ipc::shares::{Share, Shares};
use sojourn_session::{DelegationToken, LocalNumber, ProcessId, StreamNumber};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A command for the carrier.
#[derive(Debug)]
pub enum Command {
    /// Take out the session of this socket.
    Socket(Offered),
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
    /// way home: `carry::give_in_transit` of the interface.
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

/// A socket that a program has offered.
#[derive(Debug)]
pub struct Offered {
    /// A duplicate from the program.
    pub socket: OwnedFd,
    /// The program's user, who alone waits where the program holds the socket's lock.
    pub user: Uid,
}

/// The most commands of programs that wait for the carrier: their descriptors are the server's
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

/// Commands that wait. Those of one user, and those of the server itself, stay in order.
#[derive(Debug, Default)]
struct Queue {
    waiting: Turns<Option<Uid>, Waiting>,
    /// One side of the channel has gone.
    is_closed: bool,
}

/// One side's hold on the queue.
#[derive(Debug)]
struct Side(Arc<Mutex<Queue>>);

impl Side {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.lock().is_closed = true;
    }
}

/// The sending side of the channel, for any thread.
#[derive(Debug)]
pub struct CommandSender {
    commands: Side,
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
    commands: Side,
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
    let queue = Arc::new(Mutex::new(Queue::default()));
    let [commands, taken] = [Arc::clone(&queue), queue].map(Side);
    let count = Arc::new(AtomicUsize::new(0));
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let shares = Shares::new((files / WAITING_PART).clamp(WAITING_MIN, WAITING_MAX) as usize);
    let sender = CommandSender { commands, bell, count: Arc::clone(&count), shares };
    let receiver = CommandReceiver { commands: taken, bell: other, count, is_closed: false };
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
        let user = share.as_ref().map(Share::user);
        let mut commands = self.commands.lock();
        let is_taken = !commands.is_closed;
        if is_taken {
            commands.waiting.push(user, Waiting { command, _share: share });
        }
        drop(commands);
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

impl Drop for CommandReceiver {
    fn drop(&mut self) {
        // What waits is let go of now, not with the other side; closing may take a while.
        let mut commands = self.commands.lock();
        commands.is_closed = true;
        let left = std::mem::take(&mut commands.waiting);
        drop(commands);
        drop(left);
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
        let mut commands = self.commands.lock();
        let next = commands.waiting.pop(|_| true);
        self.is_closed |= next.is_none() && commands.is_closed;
        drop(commands);
        Some(next?.command)
    }

    fn tell_count(&mut self, sessions: usize) {
        self.count.store(sessions, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_session::StreamNumber;

    fn told(stream: u64) -> Command {
        Command::Registered { stream: StreamNumber(stream), pid: ProcessId(1) }
    }

    fn all(receiver: &mut CommandReceiver) -> Vec<u64> {
        let number = |command| match command {
            Command::Registered { stream, .. } => stream.0,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| receiver.next()).map(number).collect()
    }

    #[test]
    fn nobody_waits_for_all_that_another_user_has_sent() {
        let CommandChannel { sender, mut receiver } = command_channel().unwrap();
        let send = |user: Option<u32>, stream| {
            let share = user.map(|user| sender.share(Uid::from_raw(user)).unwrap());
            assert!(sender.send(told(stream), share));
        };
        (1..=5).for_each(|stream| send(Some(1000), stream));
        (11..=12).for_each(|stream| send(Some(1001), stream));
        send(None, 21);
        assert_eq!(all(&mut receiver), [1, 11, 21, 2, 12, 3, 4, 5]);
        send(Some(1000), 6);
        assert_eq!(all(&mut receiver), [6]);
        let queue = receiver.commands.lock();
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn each_side_notices_the_end_of_the_other() {
        let CommandChannel { sender, mut receiver } = command_channel().unwrap();
        assert!(sender.send(told(1), None));
        drop(sender);
        assert_eq!(all(&mut receiver), [1], "what was sent comes all the same");
        assert!(receiver.is_closed());
        let CommandChannel { sender, receiver } = command_channel().unwrap();
        let user = Uid::from_raw(1000);
        assert!(sender.send(told(1), sender.share(user)) && !receiver.is_closed());
        drop(receiver);
        assert!(!sender.send(told(1), None));
        assert!(sender.commands.lock().waiting.is_empty(), "nothing is kept for nobody");
    }
}
