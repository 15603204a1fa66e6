//! The carrier: which sessions there are, when each is taken out of the kernel and delegated to its
//! program, and put back.
//!
//! # Theory of operation
//! A session comes as a duplicate of its socket (`commands`). The carrier offers its other end, and
//! the server joins it with the program's. It then waits until the program's side has given up the
//! kernel in both directions and nothing is on its way, turns the packets away from the kernel,
//! reads out of the socket where the connection stands, and delegates the session to the program's
//! library, which carries it with an engine of its own. The library gives it back when it goes
//! home, for whatever reason; if its process dies, the session goes on from what the ledger and the
//! rings tell.
//!
//! No packet and no byte of a session passes here. Its thread sleeps until something happens. Not
//! here: the thread (`run`), the steps (`moves`), what is known of one session (`session`). Read
//! `docs/understand/moves.md`.

use crate::commands::CommandReceiver;
use crate::conntrack::Conntrack;
use crate::fragments::Fragments;
use crate::inboxes::Inboxes;
use crate::links::{Links, Program};
use crate::metastate::Metastate;
use crate::paths::Paths;
use crate::returned::Returned;
use crate::rules::Rules;
use crate::session::{JoinedEnds, Session};
use crate::sessions::Sessions;
use crate::timers::Timers;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_session::JoinT;
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, Stream};
use std::collections::HashMap;

/// What an event is about.
pub(crate) const COMMANDS: u64 = 0;
pub(crate) const INBOX: u64 = 1;
pub(crate) const CHANGES: u64 = 2;
pub(crate) const ROUTERS: u64 = 3;
pub(crate) const RULES: u64 = 4;
/// A program of an earlier server's session; its number is in the lower half.
pub(crate) const PROGRAM: u64 = 1 << 32;

/// The carrier.
pub struct Carrier {
    pub(crate) sessions: Box<dyn Sessions>,
    pub(crate) commands: CommandReceiver,
    pub(crate) set: OwnedFd,
    pub(crate) metastate: Metastate,
    /// If this kernel has one.
    pub(crate) conntrack: Option<Conntrack>,
    /// Of packet filters and IPsec; `None`: they are ignored.
    pub(crate) rules: Option<Rules>,
    pub(crate) links: Links,
    /// By the number that the carrier gave.
    pub(crate) table: HashMap<u64, Session>,
    /// Those that are delegated, by token.
    pub(crate) tokens: HashMap<u64, u64>,
    /// Those that are delegated, by what is in their packets.
    pub(crate) flows: HashMap<Key, u64>,
    pub(crate) paths: Paths,
    /// Those of which fragments have come.
    pub(crate) fragments: Fragments,
    /// Those that were put back a moment ago.
    pub(crate) returned: Returned,
    /// Those that are joined, by inbox and slot.
    pub(crate) slots: HashMap<(u64, u32), u64>,
    pub(crate) inboxes: Inboxes,
    pub(crate) peer_inboxes: Inboxes,
    /// When each is to be looked at again.
    pub(crate) timers: Timers,
    pub(crate) last_local: u64,
    /// Programs of sessions of an earlier server, by their numbers.
    pub(crate) programs: HashMap<u32, OwnedFd>,
    /// The server ends.
    pub(crate) is_leaving: bool,
}

impl Carrier {
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.set, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Opens what a join has named; `None` if it cannot be used.
    pub(crate) fn open(&mut self, join: &JoinT) -> Option<(Stream, JoinedEnds)> {
        let (own, is_new) = self.inboxes.open(&join.own)?;
        if is_new {
            self.watch(own.attention_fd(), INBOX).ok()?;
        }
        let (peer, _) = self.peer_inboxes.open(&join.peer)?;
        let layout = Layout::new(join.ring_bytes)?;
        let region = rustix::io::fcntl_dupfd_cloexec(join.region.as_fd()?, 0).ok()?;
        let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
        let stream = Stream::told(mapping, layout, usize::from(join.side), peer, join.peer.slot)?;
        let ends = JoinedEnds {
            own_inbox: join.own.id,
            own_slot: join.own.slot,
            peer_inbox: join.peer.id,
            peer_slot: join.peer.slot,
            peer_pid: join.peer_pid,
            peer_process: join.peer_process.clone(),
        };
        Some((stream, ends))
    }

    /// The program at the other side of a stream.
    pub(crate) fn program_at(&self, ends: &JoinedEnds) -> Program {
        let may_have_packets = self.sessions.may_have_packets(&ends.peer_process);
        Program { process: ends.peer_process.clone(), may_have_packets }
    }
}
