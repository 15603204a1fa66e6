//! The carrier: its sessions, and the state that all of them share.
//!
//! # Theory of operation
//! A session comes as a duplicate of its socket (`commands`). The carrier offers the socket's other
//! end, and the server joins that with the program's offer. The carrier then waits until the
//! program's side has given up the kernel in both directions and nothing is on its way. It turns
//! the packets away from the kernel, reads the connection's state out of the socket, and delegates
//! the session to the program's library, which runs an engine of its own. The library gives the
//! session back when it goes home, for whatever reason. If the library's process dies, the session
//! goes on from the ledger and the rings.
//!
//! No packet and no byte of a session passes here. The thread sleeps until something happens, and
//! waits for no program: what the kernel may make it wait for is an assistant's work, from which
//! that comes back or not. Not here: the thread (`run`), the steps (`moves`), the state of one
//! session (`session`), the assistants (`assistants`). Read `docs/understand/moves.md`.

use crate::admission::Admission;
use crate::assistants::Assistants;
use crate::commands::Commands;
use crate::conntrack::Conntrack;
use crate::fragments::Fragments;
use crate::inboxes::{Inboxes, OpenedInbox};
use crate::incoming::Taken;
use crate::joined::JoinedEnds;
use crate::links::{Links, Program};
use crate::metastate::Metastate;
use crate::paths::Paths;
use crate::program_socket::ProgramSocket;
use crate::returned::Returned;
use crate::rules::Rules;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::timers::Timers;
use crate::tuning::Tuning;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::{Key, Unfiltered};
use sojourn_ipc::shares::Share;
use sojourn_session::{DelegationToken, InboxNumber, InboxSlot, JoinT, LocalNumber, ProcessId};
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, SlotNumber, Stream};
use std::collections::HashMap;
use std::sync::Arc;

/// The subjects of events.
pub(crate) const COMMANDS: u64 = 0;
pub(crate) const INBOX: u64 = 1;
pub(crate) const CHANGES: u64 = 2;
pub(crate) const ROUTERS: u64 = 3;
pub(crate) const RULES: u64 = 4;
pub(crate) const UNFILTERED: u64 = 5;
pub(crate) const ASSISTANTS: u64 = 6;
/// A program of an earlier server's session; its process number is in the lower half.
pub(crate) const PROGRAM: u64 = 1 << 32;
/// The socket of a session that is away or on its way out; the session's number is in the other
/// bits.
pub(crate) const SOCKET: u64 = 1 << 63;

/// The carrier.
pub struct Carrier {
    pub(crate) sessions: Box<dyn Sessions>,
    pub(crate) commands: Box<dyn Commands>,
    pub(crate) set: Arc<OwnedFd>,
    pub(crate) metastate: Metastate,
    /// `None` if this kernel has no connection tracking.
    pub(crate) conntrack: Option<Conntrack>,
    /// The rules of packet filters and IPsec; `None` if the server ignores them.
    pub(crate) rules: Option<Rules>,
    pub(crate) links: Links,
    /// The programs for what comes past the filter, once a session has been joined.
    pub(crate) unfiltered: Option<Unfiltered>,
    /// Who works on programs' sockets.
    pub(crate) assistants: Assistants,
    /// Sockets that assistants look at, by the carrier's numbers of their sessions.
    pub(crate) new: HashMap<LocalNumber, NewSocket>,
    /// The sessions, by the carrier's numbers.
    pub(crate) table: HashMap<LocalNumber, Session>,
    pub(crate) tuning: Tuning,
    /// The order in which joined sessions move out.
    pub(crate) admission: Admission,
    /// Delegated sessions, by token.
    pub(crate) tokens: HashMap<DelegationToken, LocalNumber>,
    /// Delegated sessions, by the addresses in their packets.
    pub(crate) flows: HashMap<Key, LocalNumber>,
    pub(crate) paths: Paths,
    /// Sessions of which fragments have come.
    pub(crate) fragments: Fragments,
    /// Sessions that were put back a moment ago.
    pub(crate) returned: Returned,
    /// Joined sessions, by inbox and slot.
    pub(crate) slots: HashMap<InboxSlot, LocalNumber>,
    pub(crate) inboxes: Inboxes,
    pub(crate) peer_inboxes: Inboxes,
    /// The times at which sessions are attended to again.
    pub(crate) timers: Timers,
    pub(crate) last_local: LocalNumber,
    /// Programs of sessions of an earlier server, by their process numbers.
    pub(crate) programs: HashMap<ProcessId, OwnedFd>,
    /// The server is about to end.
    pub(crate) is_leaving: bool,
    /// Commands and events that were taken and are not handled yet.
    pub(crate) taken: Taken,
    /// There may be more commands and events, for which no bell will ring.
    pub(crate) has_more: bool,
}

/// A socket that a program has offered, and that counts among its user's.
pub(crate) struct NewSocket {
    pub(crate) socket: ProgramSocket,
    pub(crate) _share: Share,
}

/// A join whose memory is mapped.
pub(crate) struct OpenedJoin {
    pub(crate) stream: Stream,
    pub(crate) ends: JoinedEnds,
}

impl Carrier {
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.set, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Returns a number for a session that is new to the carrier.
    pub(crate) fn next_local(&mut self) -> LocalNumber {
        self.last_local.0 += 1;
        self.last_local
    }

    /// Opens the region and the inboxes of a join; `None` if they cannot be used.
    pub(crate) fn open(&mut self, join: &JoinT) -> Option<OpenedJoin> {
        let OpenedInbox { inbox: own, is_new } = self.inboxes.open(&join.own)?;
        if is_new {
            self.watch(own.attention_fd(), INBOX).ok()?;
        }
        let peer = self.peer_inboxes.open(&join.peer)?.inbox;
        let layout = Layout::new(join.ring_bytes)?;
        let region = rustix::io::fcntl_dupfd_cloexec(join.region.as_fd()?, 0).ok()?;
        let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
        let stream = Stream::observer(
            mapping,
            layout,
            usize::from(join.side),
            peer,
            SlotNumber(join.peer.slot),
        )?;
        let ends = JoinedEnds {
            own: InboxSlot { inbox: InboxNumber(join.own.id), slot: join.own.slot },
            peer: InboxSlot { inbox: InboxNumber(join.peer.id), slot: join.peer.slot },
            peer_pid: ProcessId(join.peer_pid),
            peer_process: join.peer_process.clone(),
        };
        Some(OpenedJoin { stream, ends })
    }

    /// Returns the program at the other side of a stream.
    pub(crate) fn program_at(&self, ends: &JoinedEnds) -> Program {
        let may_have_packets = self.sessions.may_have_packets(&ends.peer_process);
        Program { process: ends.peer_process.clone(), may_have_packets }
    }
}
