//! The protocol thread's own state.
//!
//! Not here: what it does (`super`).

use super::living::Living;
use super::outside::{Outside, Word};
use crate::control::search::Search;
use crate::fds::own::Kit;
use crate::moves::offer::Offer;
use crate::process::engine::Engine;
use crate::process::library::Library;
use sojourn_ipc::Deadline;
use sojourn_shm::aside::Aside;
use sojourn_stream::{Inbox, Stream};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// An inbox of this process's.
pub(super) struct OwnInbox {
    /// Its number in the thread's set: those of the server are too large to stand beside what an
    /// event is about.
    pub(super) number: u64,
    pub(super) inbox: Arc<Inbox>,
    /// Slot in the inbox → slot of the session.
    pub(super) slots: HashMap<u32, u32>,
    /// Sessions that have it, as far as the server knows.
    pub(super) uses: usize,
}

/// The thread's own state.
pub(super) struct Thread {
    pub(super) library: &'static Library,
    pub(super) engine: &'static Engine,
    pub(super) kit: &'static Kit,
    pub(super) aside: Aside<Outside>,
    /// This thread's number: it has the program's table.
    pub(super) tid: i32,
    pub(super) has_client: bool,
    /// What the server has said, in turn: a join waits for descriptors.
    pub(super) words: VecDeque<Word>,
    /// Since when the first of them is waited for.
    pub(super) placing: Option<Deadline>,
    pub(super) search: Search,
    pub(super) living: Living,
    /// Since when there is a client.
    pub(super) served_since: Instant,
    /// By the library's own name of a session.
    pub(super) offers: HashMap<u64, Offer>,
    pub(super) joined: HashMap<u64, Joined>,
    pub(super) own_inboxes: HashMap<u64, OwnInbox>,
    pub(super) peer_inboxes: HashMap<u64, (Arc<Inbox>, usize)>,
    /// Sessions with each peer's process.
    pub(super) peers: HashMap<u32, usize>,
}

/// A session that has joined.
pub(super) struct Joined {
    pub(super) offer: Offer,
    pub(super) slot: u32,
    pub(super) stream: u64,
    /// The other side of a stream to another host, until this process carries it.
    pub(super) other: Option<Stream>,
    pub(super) side: u8,
    pub(super) own_inbox: u64,
    pub(super) own_slot: u32,
    pub(super) peer_inbox: u64,
    pub(super) peer_pid: u32,
    /// Bytes of address space that its stream takes.
    pub(super) addresses: u64,
}
