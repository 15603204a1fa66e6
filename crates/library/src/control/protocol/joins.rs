//! The protocol thread's part in a join and its end: the inboxes, the peer's process and the
//! kernel's descriptor that a session needs beside itself.
//!
//! The server counts in the same way which process has which descriptors (`idl/session.idl`,
//! `inbox_t`). Not here: the join of the session itself (`crate::moves::join`).

use super::allowance::Allowance;
use super::events::{FLUSH, SESSION};
use super::joined::Joined;
use super::outside::{OwnInboxMemory, PreparedJoin, address_space};
use super::thread::{OwnInbox, PeerInbox, Thread};
use crate::fds::slot::Slot;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::moves::join::{self, Parts};
use crate::moves::offer::Offer;
use crate::session::identity::InboxPlace;
use core::sync::atomic::Ordering;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sojourn_session::{
    InboxNumber, InboxSlot, JoinT, LocalNumber, ProcessId, ReasonT, StreamNumber,
};
use sojourn_shm::{Mapping, MovableFd, fault};
use sojourn_stream::{Inbox, SlotNumber};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Event descriptors of inboxes that a join has brought, in the program's table.
type Events = std::vec::IntoIter<MovableFd>;

impl Thread {
    /// Joins, or tells the server why not. `placed`: the event descriptors of the inboxes.
    pub(super) fn join(&mut self, prepared: PreparedJoin, placed: Option<Vec<MovableFd>>) {
        fault::point("library.join");
        let PreparedJoin { join, region, own, peer, peer_pid, .. } = prepared;
        // The inboxes are kept first, and whatever becomes of the session: the server sends each of
        // them only once.
        let mut events = placed.unwrap_or_default().into_iter();
        let (own_slot, peer_inbox) = (own_of(&join), InboxNumber(join.peer.id));
        self.keep_own_inbox(own_slot.inbox, own, &mut events);
        self.keep_peer_inbox(peer_inbox, peer, &mut events);
        let has_region = region.is_some();
        // Of the carrier the server's number will do: nothing rests on it alone.
        let peer_pid = peer_pid.or(join.is_carried.then_some(ProcessId(join.peer_pid)));
        let tried = match (self.offers.remove(&LocalNumber(join.local)), peer_pid) {
            (None, _) => Err(ReasonT::Closed),
            (_, None) => Err(ReasonT::Resources),
            (Some(offer), Some(peer_pid)) => {
                self.try_join(&offer, &join, region, peer_pid).inspect_err(|_| self.decline(&offer))
            }
        };
        if let Err(reason) = tried {
            if has_region {
                self.gives_addresses_back(address_space(join.ring_bytes));
            }
            self.tell_left(LocalNumber(join.local), reason, 0, 0);
            self.release(own_slot.inbox, peer_inbox, ProcessId(join.peer_pid));
        }
        if let Some(number) = self.own_inboxes.get(&own_slot.inbox).map(|inbox| inbox.number) {
            self.attend(number);
        }
    }

    /// Counts a session that has joined as a user of both inboxes and of its peer's process.
    fn hold_inboxes(&mut self, join: &JoinT, slot: Slot) {
        if let Some(inbox) = self.own_inboxes.get_mut(&own_of(join).inbox) {
            inbox.slots.insert(SlotNumber(join.own.slot), slot);
            inbox.uses += 1;
            inbox.allowance.joined();
        }
        if let Some(inbox) = self.peer_inboxes.get_mut(&InboxNumber(join.peer.id)) {
            inbox.uses += 1;
        }
        if !join.is_carried {
            *self.peers.entry(ProcessId(join.peer_pid)).or_default() += 1;
        }
    }

    fn try_join(
        &mut self,
        offer: &Offer,
        join: &JoinT,
        region: Option<Mapping>,
        peer_pid: ProcessId,
    ) -> Result<(), ReasonT> {
        let (own_slot, peer_inbox) = (own_of(join), InboxNumber(join.peer.id));
        let own = self.own_inboxes.get(&own_slot.inbox).ok_or(ReasonT::Resources)?;
        let own_inbox = Arc::clone(&own.inbox);
        let peer = self.peer_inboxes.get(&peer_inbox).ok_or(ReasonT::Resources)?;
        let region = region.ok_or(ReasonT::Resources)?;
        // An inbox in both roles shows that both ends are this process's. Where the two ends have
        // different inboxes, the second of the two joins sees it.
        if [own_slot.inbox, peer_inbox]
            .iter()
            .any(|id| self.own_inboxes.contains_key(id) && self.peer_inboxes.contains_key(id))
        {
            self.engine.has_within.store(true, Ordering::SeqCst);
        }
        let stream =
            join::view(join, region, Arc::clone(&peer.inbox)).map_err(|_| ReasonT::Resources)?;
        // Of a session with another host this process is both sides.
        let is_shared = own_inbox.is_apart() && !join.is_carried;
        let stream = if is_shared { stream.keeping_memory() } else { stream };
        let slot = SlotNumber(own_slot.slot);
        // This process itself will run the engine of a session with another host, on the stream's
        // other side.
        let other =
            join.is_carried.then(|| stream.other_side(Arc::clone(&own_inbox), slot)).flatten();
        let place = InboxPlace { inbox: own_inbox, slot };
        let parts = Parts { stream: Arc::new(stream), place, peer_pid };
        let session = self.library.join(self.engine, offer, join, &parts)?;
        self.hold_inboxes(join, session.slot());
        let joined = Joined {
            offer: offer.clone(),
            slot: session.slot(),
            stream: StreamNumber(join.stream),
            other,
            side: join.side,
            own: own_slot,
            peer_inbox,
            peer_pid: ProcessId(join.peer_pid),
            addresses: address_space(join.ring_bytes),
        };
        self.joined.insert(offer.local, joined);
        lock(&self.engine.rings).again();
        self.watch_descriptor(offer.fd, session.slot());
        // Events from before the watch are looked at once.
        session.kernel_event();
        fault::point("library.joined");
        Ok(())
    }

    /// Returns true if sessions of this process are away from the kernel.
    pub(super) fn has_sessions(&self) -> bool {
        !self.joined.is_empty() || !self.serving.slots.is_empty()
    }

    /// Sends all sessions home because of a ring that the shell cannot see into. Peers are not
    /// waited for: the bytes that the ring's submissions wait for come when the peers have left.
    pub(super) fn leave_for_rings(&self) {
        let joined = self.joined.values().map(|joined| joined.slot);
        for slot in joined.chain(self.serving.slots.iter().copied()) {
            if let Some(session) = self.library.session_in(slot) {
                session.leave(ReasonT::Ring, false);
            }
        }
    }

    fn gives_addresses_back(&self, len: u64) {
        self.engine.mapped.fetch_sub(len, Ordering::Relaxed);
    }

    /// Goes on with a session's flush whenever the kernel has room.
    pub(super) fn follow(&self, slot: Slot) {
        let Some(session) = self.library.session_in(slot) else { return };
        if !session.is_flushing.load(Ordering::SeqCst) {
            return;
        }
        let data = EventData::new_u64(FLUSH | slot.event_subject());
        if let Ok(fd) = kernel::at(session.number()) {
            let _ = epoll::add(&self.kit.watched, fd, data, EventFlags::OUT | EventFlags::ET);
        }
        // Room from before the watch would not be reported.
        session.room_came();
    }

    fn watch_descriptor(&self, fd: i32, slot: Slot) {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(SESSION | slot.event_subject());
        if let Ok(fd) = kernel::at(fd)
            && epoll::add(&self.kit.watched, fd, data, flags) == Err(Errno::EXIST)
        {
            let _ = epoll::modify(&self.kit.watched, fd, data, flags);
        }
    }

    fn keep_own_inbox(
        &mut self,
        id: InboxNumber,
        memory: Option<OwnInboxMemory>,
        events: &mut Events,
    ) {
        let Some(OwnInboxMemory { memory, number }) = memory else { return };
        match self.view_own(memory, events) {
            Some(inbox) => {
                let known = OwnInbox {
                    number,
                    inbox: Arc::new(inbox),
                    slots: HashMap::new(),
                    uses: 0,
                    allowance: Allowance::new(Instant::now()),
                };
                self.own_inboxes.insert(id, known);
            }
            None => drop(self.aside.call(|outside| outside.forget_inbox(number))),
        }
    }

    /// Opens an inbox of this process's own. Where its peers are another user's it needs one more
    /// descriptor to post by.
    fn view_own(&self, memory: Mapping, events: &mut Events) -> Option<Inbox> {
        let inbox = view(memory, events)?;
        if !inbox.is_apart() {
            return Some(inbox);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = self.engine.own.make(true, || eventfd(1, flags)).ok()?;
        inbox.posts_by(waker).ok()
    }

    fn keep_peer_inbox(&mut self, id: InboxNumber, memory: Option<Mapping>, events: &mut Events) {
        if let Some(inbox) = memory.and_then(|memory| view(memory, events)) {
            self.peer_inboxes.insert(id, PeerInbox { inbox: Arc::new(inbox), uses: 0 });
        }
    }

    /// Takes out a session that has gone home: a server that is found from now on does not hear
    /// of it. Ends the watch on its descriptor, which is the kernel's alone again, and forgets its
    /// slot in the inbox, which may soon be another's.
    pub(super) fn unwatch(&mut self, local: LocalNumber, reason: ReasonT) -> Option<Joined> {
        let joined = self.joined.remove(&local)?;
        // A close has done this already, before the kernel's: see `OwnSession::close`.
        if reason != ReasonT::Closed
            && let Ok(fd) = kernel::at(joined.offer.fd)
        {
            let _ = epoll::delete(&self.kit.watched, fd);
        }
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own.inbox) {
            inbox.slots.remove(&SlotNumber(joined.own.slot));
        }
        Some(joined)
    }

    /// Lets go of the needs of a session that has gone home, once the server knows that.
    pub(super) fn forget(&mut self, joined: &Joined) {
        self.gives_addresses_back(joined.addresses);
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own.inbox) {
            inbox.uses -= 1;
        }
        if let Some(inbox) = self.peer_inboxes.get_mut(&joined.peer_inbox) {
            inbox.uses -= 1;
        }
        if let Some(sessions) = self.peers.get_mut(&joined.peer_pid) {
            *sessions = sessions.saturating_sub(1);
        }
        self.release(joined.own.inbox, joined.peer_inbox, joined.peer_pid);
    }

    /// Lets go of inboxes and processes that no session needs. The server counts in the same way,
    /// and sends them anew when a session needs them again.
    fn release(&mut self, own_inbox: InboxNumber, peer_inbox: InboxNumber, peer_pid: ProcessId) {
        if self.own_inboxes.get(&own_inbox).is_some_and(|inbox| inbox.uses == 0)
            && let Some(OwnInbox { number, .. }) = self.own_inboxes.remove(&own_inbox)
        {
            self.aside.call(|outside| outside.forget_inbox(number));
        }
        if self.peer_inboxes.get(&peer_inbox).is_some_and(|inbox| inbox.uses == 0) {
            self.peer_inboxes.remove(&peer_inbox);
        }
        if self.peers.get(&peer_pid).is_none_or(|sessions| *sessions == 0) {
            self.peers.remove(&peer_pid);
            self.aside.call(|outside| outside.forget_peer(peer_pid));
        }
    }
}

/// Returns where the peer of a join posts for this process.
fn own_of(join: &JoinT) -> InboxSlot {
    InboxSlot { inbox: InboxNumber(join.own.id), slot: join.own.slot }
}

/// Opens an inbox that a join has brought, if its two event descriptors could be taken.
fn view(memory: Mapping, events: &mut Events) -> Option<Inbox> {
    let (ready, attention) = (events.next()?, events.next()?);
    Inbox::new(memory, ready, attention)
}
