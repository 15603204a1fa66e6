//! A server thread: receives the requests of its clients and answers them.
//!
//! # Theory of operation
//! A thread looks at its lanes in turn. Lanes are *hot* (looked at, and armed with a futex when the
//! thread sleeps) or *cold* (asleep on the control socket: a client with a request sends a packet,
//! and the control thread posts a note). A lane without requests for a while becomes cold, so the
//! cost of a round and of a sleep depends on the number of active clients, not of connected ones.
//! Not here: reading a request (`lane`), answering (`reply`), accepting clients (`endpoint`).

use crate::deadline::Deadline;
use crate::fault;
use crate::grant::Granted;
use crate::lane::{Lane, LaneEvent};
use crate::layout::{BY_REFERENCE, Seq};
use crate::link::{ClientLink, RegisteredGrant, ServerThread};
use crate::lock::lock;
use crate::message::Incoming;
use crate::reply::ReplyToken;
use crate::rt::Reason;
use crate::rt::{Badge, ClientId, Credentials};
use crate::thread::Note;
use crate::wait::{Policy, Spun};
use core::sync::atomic::{AtomicUsize, Ordering};
use sojourn_shm::futex::{self, WAIT_ANY_MAX, WaitSet};
use std::sync::Arc;

pub(crate) mod event;
pub(crate) mod request;
mod sleeping;

/// The number of sleeps of the thread after which a lane without requests becomes cold.
const IDLE_MAX: u32 = 16;
/// The largest number of hot lanes; the thread waits on one more word for notes.
const HOT_MAX: usize = WAIT_ANY_MAX - 1;
/// The number of looks at a client's region after its death: more than the requests that it can
/// have left there.
const LAST_WORDS_MAX: u32 = 2 * crate::layout::INFLIGHT_MAX;
/// The number of pieces of one client's messages taken before other clients have their turn.
const PIECES_MAX: u32 = 8;
/// The number of needless wake-ups in a row after which a client is disconnected.
const FALSE_RINGS_MAX: u32 = 1000;

/// The result of a look, without a borrow of the thread.
#[derive(Clone, Copy, Debug)]
enum Found {
    Message(u32),
    Notify(ClientId, Badge, u64),
    Connected(ClientId, Credentials),
    Gone(ClientId, Badge, Reason),
}

/// A server thread's handle. One thread uses it; it may be moved to that thread.
#[derive(Debug)]
pub struct Server {
    mailbox: Arc<ServerThread>,
    /// The lanes by client index.
    lanes: Vec<Option<Box<Lane>>>,
    /// Indices of hot lanes.
    hot: Vec<u32>,
    /// The position in `hot` at which the next round begins.
    turn: usize,
    pub(crate) incoming: Incoming,
    kept: Vec<Arc<Granted>>,
    waits: WaitSet,
    /// True if the kernel can wait on several futexes at once.
    can_wait_any: bool,
    policy: Policy,
    /// The processor on which the last client was seen.
    peer_cpu: u16,
    /// The lane of the present message, if its items lie in the region.
    held: Option<u32>,
    /// The lane of the present message, if it is a call whose token was not taken.
    unclaimed: Option<u32>,
    /// The lane of the present message, if it is a call that was left to the C interface and refers
    /// to the caller's own memory.
    loan: Option<u32>,
}

impl Server {
    pub(crate) fn new(mailbox: Arc<ServerThread>, policy: Policy) -> Self {
        Self {
            mailbox,
            lanes: Vec::new(),
            hot: Vec::with_capacity(HOT_MAX),
            turn: 0,
            incoming: Incoming::new(),
            kept: Vec::new(),
            waits: WaitSet::new(),
            can_wait_any: futex::can_wait_any() && !fault::is_without("futex_waitv"),
            policy,
            peer_cpu: 0,
            held: None,
            unclaimed: None,
            loan: None,
        }
    }

    /// Gives back the slot of the present message, whose items in the region are not read any more.
    #[inline(never)]
    fn release(&mut self, index: u32) {
        self.incoming.forget_items();
        if let Some(Some(lane)) = self.lanes.get_mut(index as usize) {
            lane.release();
        }
    }

    /// Answers the previous call, whose token was not taken, with a fault, so that its caller does
    /// not wait for ever.
    #[inline(never)]
    fn drop_unclaimed(&mut self, index: u32) {
        if let Some(Some(lane)) = self.lanes.get_mut(index as usize) {
            let header = self.incoming.header;
            if header.flags & BY_REFERENCE != 0 {
                lane.link.return_loan();
            }
            drop(ReplyToken::new(lane.lend(), header.line, header.seq));
        }
    }

    /// Keeps a reference for the lane's next token.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, link: Arc<ClientLink>) {
        if let Some(Some(lane)) = self.lanes.get_mut(link.id.index as usize)
            && lane.spare.is_none()
            && Arc::ptr_eq(&lane.link, &link)
        {
            lane.spare = Some(link);
        }
    }

    /// Returns true if the endpoint is closed, all its clients are gone and their end was reported.
    fn is_over(&self) -> bool {
        self.mailbox.is_closed.load(Ordering::Acquire)
            && !self.mailbox.has_notes.load(Ordering::Acquire)
            && self.lanes.iter().all(Option::is_none)
    }

    /// Looks at the notes and at every hot lane once, beginning after the lane that was served
    /// last.
    #[inline]
    fn round(&mut self) -> Option<Found> {
        if self.mailbox.has_notes.load(Ordering::Acquire)
            && let Some(found) = self.take_note()
        {
            return Some(found);
        }
        for _ in 0..self.hot.len() {
            self.turn = if self.turn + 1 < self.hot.len() { self.turn + 1 } else { 0 };
            let index = self.hot[self.turn];
            if let Some(found) = self.poll(index) {
                return Some(found);
            }
        }
        None
    }

    /// Looks at one lane as long as it has pieces of a message, up to the first complete message.
    #[inline]
    fn poll(&mut self, index: u32) -> Option<Found> {
        let lane = self.lanes.get_mut(index as usize)?.as_mut()?;
        for _ in 0..PIECES_MAX {
            match lane.poll(&mut self.incoming) {
                Ok(LaneEvent::Message) => {
                    fault::point("server.taken");
                    self.peer_cpu = lane.cpu;
                    if self.incoming.has_items_in_place() {
                        self.held = Some(index);
                    }
                    let header = self.incoming.header;
                    let has_extras = (header.fds | header.grants) != 0;
                    let is_whole = !has_extras || self.take_extras(index);
                    if !is_whole {
                        self.abandon_loan(index);
                        return None;
                    }
                    return Some(Found::Message(index));
                }
                Ok(LaneEvent::Progress) => {}
                Ok(LaneEvent::Nothing) => return lane.take_bits(),
                Err(reason) => {
                    self.expel_lane(index, reason);
                    return None;
                }
            }
        }
        None
    }

    #[cold]
    fn abandon_loan(&self, index: u32) {
        if self.incoming.header.flags & BY_REFERENCE != 0
            && let Some(Some(lane)) = self.lanes.get(index as usize)
        {
            lane.link.return_loan();
        }
    }

    fn expel_lane(&mut self, index: u32, reason: Reason) {
        if let Some(Some(lane)) = self.lanes.get(index as usize) {
            lane.link.end(reason);
        }
        self.hot.retain(|hot| *hot != index);
    }

    /// Adds descriptors and grants to the present message.
    #[inline(never)]
    fn take_extras(&mut self, index: u32) -> bool {
        let Some(Some(lane)) = self.lanes.get(index as usize) else { return false };
        let header = self.incoming.header;
        fault::point("server.extras");
        if header.fds > 0 {
            let fds = lane.link.take_fds(header.seq).filter(|fds| fds.len() == header.fds as usize);
            let Some(fds) = fds else {
                self.expel_lane(index, Reason::MissingDescriptors);
                return false;
            };
            for fd in fds {
                // The list has room for as many descriptors as a header can announce.
                let _ = self.incoming.fds.push(fd);
            }
        }
        if header.grants > 0 && !self.resolve_grants(index) {
            self.expel_lane(index, Reason::BadGrant);
            return false;
        }
        true
    }

    fn resolve_grants(&mut self, index: u32) -> bool {
        let Some(Some(lane)) = self.lanes.get(index as usize) else { return false };
        self.kept.clear();
        let grants = lock(&lane.link.grants);
        for number in 0..self.incoming.header.grants as usize {
            let reference = self.incoming.grant_refs()[number];
            let registered = grants.iter().find(|grant| grant.id == reference.id);
            let Some(RegisteredGrant { granted, .. }) = registered else { return false };
            let Some(span) = granted.resolve(reference) else { return false };
            // SAFETY: `kept` holds the mapping until the next message with grants is resolved, and
            // every message empties the list of grants first.
            unsafe { self.incoming.push_grant(span) };
            self.kept.push(Arc::clone(granted));
        }
        true
    }

    #[inline(never)]
    fn take_note(&mut self) -> Option<Found> {
        loop {
            match self.mailbox.take() {
                None => return None,
                Some(Note::Joined(link)) => {
                    let (id, credentials) = (link.id, link.credentials);
                    let index = id.index as usize;
                    if self.lanes.len() <= index {
                        self.lanes.resize_with(index + 1, || None);
                    }
                    if link.ended().is_some() {
                        // The client ended before its lane existed, so the note of its end was
                        // ignored.
                        self.mailbox.post_first(Note::Ended(id));
                    }
                    self.lanes[index] = Some(Box::new(Lane::new(link)));
                    self.warm(id.index);
                    return Some(Found::Connected(id, credentials));
                }
                Some(Note::Rang(id)) if self.lane(id).is_some() => self.warm(id.index),
                Some(Note::Rang(_)) => {}
                Some(Note::Ended(id)) => {
                    if let Some(found) = self.ended(id) {
                        return Some(found);
                    }
                }
            }
        }
    }

    /// Handles the end of a client. The requests that it published before are served first.
    fn ended(&mut self, id: ClientId) -> Option<Found> {
        let reason = self.lane(id)?.link.ended()?;
        if reason == Reason::PeerDied && self.has_last_words(id.index) {
            // The note comes first in the queue, because a later note may be about another client
            // with the same index.
            self.mailbox.post_first(Note::Ended(id));
            return self.poll(id.index);
        }
        let lane = self.lanes.get_mut(id.index as usize)?.take()?;
        self.hot.retain(|hot| *hot != id.index);
        self.mailbox.clients.fetch_sub(1, Ordering::Relaxed);
        Some(Found::Gone(id, lane.link.badge(), reason))
    }

    /// Returns true if a client that has gone left a request. The number of looks is limited,
    /// because other processes than the dead one may write the region.
    fn has_last_words(&mut self, index: u32) -> bool {
        let Some(Some(lane)) = self.lanes.get_mut(index as usize) else { return false };
        lane.last_words += 1;
        lane.last_words <= LAST_WORDS_MAX && lane.has_something()
    }

    /// Notes that the present message's memory is not read any more.
    #[cold]
    pub(crate) fn return_loan(&mut self) {
        if let Some(index) = self.loan.take()
            && let Some(Some(lane)) = self.lanes.get(index as usize)
        {
            lane.link.return_loan();
        }
    }

    /// Returns true if the present message is call `seq` of that client and refers to the caller's
    /// own memory.
    #[inline]
    pub(crate) fn is_on_loan(&self, client: ClientId, seq: Seq) -> bool {
        self.loan == Some(client.index) && self.incoming.header.seq == seq
    }

    /// Returns a reference to the link of a client of this thread.
    #[inline]
    pub(crate) fn lend(&mut self, id: ClientId) -> Option<Arc<ClientLink>> {
        let lane = self.lanes.get_mut(id.index as usize)?.as_deref_mut()?;
        (lane.link.id == id).then(|| lane.lend())
    }

    fn lane(&self, id: ClientId) -> Option<&Lane> {
        let lane = self.lanes.get(id.index as usize)?.as_deref()?;
        (lane.link.id == id).then_some(lane)
    }

    fn spin(&mut self, deadline: Deadline) -> Spun {
        let Self { mailbox, lanes, hot, policy, peer_cpu, .. } = self;
        let has_something =
            |index: &u32| lanes[*index as usize].as_ref().is_some_and(|lane| lane.has_something());
        policy.spin(*peer_cpu, deadline, || {
            mailbox.has_notes.load(Ordering::Relaxed) || hot.iter().any(has_something)
        })
    }

    /// Gives a client a badge, which comes with each of its requests from then on. Returns false if
    /// the client is not one of this thread any more.
    pub fn set_badge(&mut self, client: ClientId, badge: Badge) -> bool {
        self.lane(client).is_some_and(|lane| {
            lane.link.badge.store(badge.0, Ordering::Relaxed);
            true
        })
    }

    /// Returns the credentials of a client of this thread.
    pub fn credentials(&self, client: ClientId) -> Option<Credentials> {
        self.lane(client).map(|lane| lane.link.credentials)
    }

    /// Sets notification bits for a client; bits set several times arrive once. Never waits.
    /// Returns false if the client is not one of this thread any more.
    pub fn notify(&self, client: ClientId, bits: u64) -> bool {
        self.lane(client).is_some_and(|lane| {
            lane.link.notify(bits);
            true
        })
    }

    /// Disconnects a client of this thread and sends it the reason. `Event::Gone` follows.
    pub fn expel(&mut self, client: ClientId, reason: Reason) {
        if self.lane(client).is_some() {
            self.expel_lane(client.index, reason);
        }
    }

    /// Returns the number of this thread's clients, including those that have not been announced
    /// yet.
    pub fn clients(&self) -> usize {
        let clients: &AtomicUsize = &self.mailbox.clients;
        clients.load(Ordering::Relaxed)
    }
}

impl Lane {
    /// Takes the notification bits, if there are any.
    #[inline]
    fn take_bits(&mut self) -> Option<Found> {
        if self.link.region.to_server().load(Ordering::Relaxed) == 0 {
            return None;
        }
        // SYNC: acquire; pairs with the release in the client's `notify`.
        let bits = self.link.region.to_server().swap(0, Ordering::Acquire);
        self.false_rings = 0;
        self.idle = 0;
        self.link.reset_packet_count();
        let badge = self.link.badge();
        (bits != 0).then_some(Found::Notify(self.link.id, badge, bits))
    }
}

impl Server {
    /// Returns the clients that this thread serves, for the C interface.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Arc<ClientLink>> {
        self.lanes.iter().flatten().map(|lane| &lane.link)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mailbox.is_closed.store(true, Ordering::Release);
        if let Some(index) = self.unclaimed.take() {
            self.abandon_loan(index);
        }
        self.return_loan();
        for lane in self.lanes.iter().flatten() {
            lane.link.end(Reason::Closed);
        }
        // Clients that were given to this thread and not seen yet.
        while let Some(note) = self.mailbox.take() {
            if let Note::Joined(link) = note {
                link.end(Reason::Closed);
            }
        }
    }
}
