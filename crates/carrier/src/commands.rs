//! The command channel: what the session server's threads tell the carrier, which is a thread of
//! the same process.
//!
//! Not here: what the carrier asks the server (`sessions`).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// What the carrier is to do.
#[derive(Debug)]
pub enum Command {
    /// A duplicate of the socket of a program that wants its session carried.
    Socket(OwnedFd),
    /// A library has registered its side of the adopted session that is this stream.
    Registered {
        /// The stream's number.
        stream: u64,
        /// The library's process.
        pid: u32,
    },
    /// The server ends: all sessions go home, and none is taken any more.
    AllHome,
    /// The record of the session of that token, from its library: `carry::give_back` of the
    /// interface.
    Back {
        /// Names the session.
        token: u64,
        /// The peer's FIN has come right behind the record's last byte.
        has_ended: bool,
        /// A file with its record.
        record: OwnedFd,
    },
    /// What came for the session of that token while it was on its way home, from its library:
    /// `carry::give_late` of the interface.
    InTransit {
        /// Names the session.
        token: u64,
        /// A file with packets (`sojourn_pump::in_transit`).
        packets: OwnedFd,
    },
    /// The library at the other side of a UDP socket's session wants to send there:
    /// `session::ask_way` of the interface.
    AskWay {
        /// The carrier's number of it.
        local: u64,
        /// Where it wants to send.
        to: IpAddr,
    },
}

/// Gives the carrier commands, from any thread.
#[derive(Debug)]
pub struct CommandSender {
    commands: Sender<Command>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
}

/// The carrier's side of a [`CommandSender`].
#[derive(Debug)]
pub struct CommandReceiver {
    commands: Receiver<Command>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
    is_closed: bool,
}

/// A channel; its bell is also what the server rings for events.
///
/// # Errors
/// No descriptors left.
pub fn command_channel() -> Result<(CommandSender, CommandReceiver), Errno> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let bell = rustix::event::eventfd(0, flags)?;
    let other = rustix::io::fcntl_dupfd_cloexec(&bell, 0)?;
    let (commands, queue) = channel();
    let count = Arc::new(AtomicUsize::new(0));
    let sender = CommandSender { commands, bell, count: Arc::clone(&count) };
    Ok((sender, CommandReceiver { commands: queue, bell: other, count, is_closed: false }))
}

impl CommandSender {
    /// False: there is no carrier any more.
    pub fn send(&self, command: Command) -> bool {
        // Until the carrier has looked, and counted: see `CommandReceiver::tell_count`.
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_taken = self.commands.send(command).is_ok();
        // A full counter rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        is_taken
    }

    /// Sessions that the carrier has, and commands that it has not looked at yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// What is rung for events.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl CommandReceiver {
    /// Readable when there is a command, or an event.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// To be called before looking, so that nothing that comes later is missed.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The next command.
    pub(crate) fn next(&mut self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(error) => {
                self.is_closed |= error == TryRecvError::Disconnected;
                None
            }
        }
    }

    /// Tells how many sessions there are. A command that comes just now may be left out for a
    /// moment.
    pub(crate) fn tell_count(&self, sessions: usize) {
        self.count.store(sessions, Ordering::SeqCst);
    }

    /// There will be no command any more: the server is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}
