//! The protocol thread's own state.
//!
//! Not here: the thread's work (`super`).

use super::allowance::Allowance;
use super::joined::Joined;
use super::living::ThreadWatch;
use super::outside::{Outside, ServerMessage, SignalOrder};
use crate::control::search::Search;
use crate::fds::own::ProtocolDescriptors;
use crate::fds::slot::{SetNumber, Slot};
use crate::moves::offer::Offer;
use crate::process::engine::Engine;
use crate::process::library::Library;
use core::time::Duration;
use rustix::process::Pid;
use sojourn_ipc::Deadline;
use sojourn_session::{InboxNumber, LocalNumber, ProcessId};
use sojourn_shm::aside::Aside;
use sojourn_stream::{Inbox, SlotNumber};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Pause between two looks whether the kernel has a session again.
const LOST_SLICE: Duration = Duration::from_millis(2);

/// An inbox of this process.
pub(super) struct OwnInbox {
    /// The inbox's number in the thread's set: the server's numbers are too large to stand beside
    /// an event's subject.
    pub(super) number: u64,
    pub(super) inbox: Arc<Inbox>,
    /// Slot in the inbox → slot of the session.
    pub(super) slots: HashMap<SlotNumber, Slot>,
    /// Sessions that use the inbox, as the server counts them.
    pub(super) uses: usize,
    pub(super) allowance: Allowance,
}

/// An inbox of another process.
pub(super) struct PeerInbox {
    pub(super) inbox: Arc<Inbox>,
    /// Sessions that use the inbox, as the server counts them.
    pub(super) uses: usize,
}

/// The thread's own state.
pub(super) struct Thread {
    pub(super) library: &'static Library,
    pub(super) engine: &'static Engine,
    pub(super) kit: &'static ProtocolDescriptors,
    pub(super) aside: Aside<Outside>,
    /// This thread's id: it has the program's table.
    pub(super) tid: Pid,
    pub(super) has_client: bool,
    /// The server's messages, in turn: a join waits for its descriptors.
    pub(super) server_messages: VecDeque<ServerMessage>,
    /// The end of the wait for the first message's descriptors.
    pub(super) placing: Option<Deadline>,
    pub(super) search: Search,
    pub(super) living: ThreadWatch,
    /// The time of the next look at corks; `None` while no socket is corked.
    pub(super) corks_at: Option<Instant>,
    /// Signals for I/O that the second thread is to send.
    pub(super) signals: Vec<SignalOrder>,
    /// The time of the greeting of the current server.
    pub(super) served_since: Instant,
    /// To be called with the first hot session.
    pub(super) when_hot: Option<extern "C" fn()>,
    /// Offers, by the library's own number of the session.
    pub(super) offers: HashMap<LocalNumber, Offer>,
    pub(super) joined: HashMap<LocalNumber, Joined>,
    pub(super) own_inboxes: HashMap<InboxNumber, OwnInbox>,
    pub(super) peer_inboxes: HashMap<InboxNumber, PeerInbox>,
    pub(super) serving: Serving,
    /// For each peer's process the number of sessions with it.
    pub(super) peers: HashMap<ProcessId, usize>,
}

/// The sessions of this process that the protocol server serves, or is about to.
#[derive(Default)]
pub(super) struct Serving {
    /// Their slots.
    pub(super) slots: Vec<Slot>,
    /// Where their events are posted, for each set of the program's and for those in no set. A
    /// session's slot in its inbox is its slot in the pool.
    pub(super) inboxes: HashMap<SetNumber, Arc<Inbox>>,
    /// Since when sessions have had no server.
    pub(super) lost_since: Option<Instant>,
}

impl Serving {
    /// Returns the time after which the lost sessions are to be looked after.
    pub(super) fn sleeps_for(&self) -> Option<Duration> {
        self.lost_since.map(|_| LOST_SLICE)
    }
}
