//! The protocol thread's part in a join and its end: what a session needs beside itself, and until when.
//!
//! Inboxes, the peer's process, the kernel's descriptor. The server counts in the same way who has which descriptors
//! (`idl/session.idl`, `inbox_t`). Not here: what joining means for the session (`crate::join`).

use super::{FLUSH, INBOX, Joined, OwnInbox, PEER, Peer, SESSION, Thread};
use crate::join::{self, Parts};
use crate::kernel;
use crate::offer::Offer;
use crate::session::lock;
use core::sync::atomic::Ordering;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::AsFd;
use rustix::io::Errno;
use sojourn_ipc::rt;
use sojourn_session::{InboxT, JoinT, ReasonT};
use sojourn_shm::{Access, Segment, fault};
use sojourn_stream::Inbox;
use std::collections::HashMap;
use std::sync::Arc;

impl Thread {
    pub(super) fn join(&mut self, join: &JoinT) {
        fault::point("library.join");
        let Some(offer) = self.offers.remove(&join.local) else {
            self.tell_left(join.local, ReasonT::Closed, 0, 0);
            return;
        };
        if let Err(reason) = self.try_join(&offer, join) {
            self.decline(&offer);
            self.tell_left(join.local, reason, 0, 0);
            self.release(join.own.id, join.peer.id, join.peer_pid);
        }
    }

    fn try_join(&mut self, offer: &Offer, join: &JoinT) -> Result<(), ReasonT> {
        let own_inbox = self.own_inbox(&join.own)?;
        let peer_inbox = self.peer_inbox(&join.peer)?;
        let stream = join::map(join, peer_inbox).map_err(|_| ReasonT::Resources)?;
        // For a session that is going to be carried by this process itself.
        let other = join
            .is_carried
            .then(|| stream.other_side(Arc::clone(&own_inbox), join.own.slot))
            .flatten();
        let parts = Parts { stream: Arc::new(stream), own_inbox, own_slot: join.own.slot };
        if !join.is_carried {
            self.watch_peer(join)?;
        }
        let session = self.library.join(self.engine, offer, join, &parts)?;
        if let Some(inbox) = self.own_inboxes.get_mut(&join.own.id) {
            inbox.slots.insert(join.own.slot, session.slot());
            inbox.uses += 1;
        }
        if let Some((_, uses)) = self.peer_inboxes.get_mut(&join.peer.id) {
            *uses += 1;
        }
        if let Some(peer) = self.peers.get_mut(&join.peer_pid) {
            peer.sessions += 1;
        }
        let joined = Joined {
            offer: offer.clone(),
            slot: session.slot(),
            stream: join.stream,
            other,
            side: join.side,
            own_inbox: join.own.id,
            own_slot: join.own.slot,
            peer_inbox: join.peer.id,
            peer_pid: join.peer_pid,
        };
        self.joined.insert(offer.local, joined);
        lock(&self.engine.rings).again();
        self.watch_descriptor(offer.fd, session.slot());
        // What stirred before it was watched is looked at once.
        session.kernel_stirred();
        fault::point("library.joined");
        Ok(())
    }

    /// Goes on with a session's flush whenever there is room.
    pub(super) fn follow(&self, slot: u32) {
        let Some(session) = self.engine.pool.session(slot) else { return };
        if !session.is_flushing.load(Ordering::SeqCst) {
            return;
        }
        let data = EventData::new_u64(FLUSH | u64::from(slot));
        if let Ok(fd) = kernel::at(session.number()) {
            let _ = epoll::add(&self.set, fd, data, EventFlags::OUT | EventFlags::ET);
        }
        // There may have been room before that.
        session.room_came();
    }

    fn watch_descriptor(&self, fd: i32, slot: u32) {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(SESSION | u64::from(slot));
        if let Ok(fd) = kernel::at(fd)
            && epoll::add(&self.set, fd, data, flags) == Err(Errno::EXIST)
        {
            let _ = epoll::modify(&self.set, fd, data, flags);
        }
    }

    fn own_inbox(&mut self, inbox: &InboxT) -> Result<Arc<Inbox>, ReasonT> {
        if let Some(known) = self.own_inboxes.get(&inbox.id) {
            return Ok(Arc::clone(&known.inbox));
        }
        let opened = Arc::new(self.open_inbox(inbox).ok_or(ReasonT::Resources)?);
        self.inboxes_seen += 1;
        let number = self.inboxes_seen;
        let data = EventData::new_u64(INBOX | number);
        epoll::add(&self.set, opened.attention_fd(), data, EventFlags::IN)
            .map_err(|_| ReasonT::Resources)?;
        let known = OwnInbox { number, inbox: Arc::clone(&opened), slots: HashMap::new(), uses: 0 };
        self.own_inboxes.insert(inbox.id, known);
        Ok(opened)
    }

    fn peer_inbox(&mut self, inbox: &InboxT) -> Result<Arc<Inbox>, ReasonT> {
        if let Some((known, _)) = self.peer_inboxes.get(&inbox.id) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(self.open_inbox(inbox).ok_or(ReasonT::Resources)?);
        self.peer_inboxes.insert(inbox.id, (Arc::clone(&opened), 0));
        Ok(opened)
    }

    fn open_inbox(&self, inbox: &InboxT) -> Option<Inbox> {
        let own = |fd: &rt::Descriptor| fd.clone().into_owned().ok().flatten();
        let segment = Segment::accept(own(&inbox.memory)?, Inbox::LEN).ok()?;
        let mapping = segment.map(Access::ReadWrite).ok()?;
        let ready = self.engine.keep(own(&inbox.ready)?);
        let attention = self.engine.keep(own(&inbox.attention)?);
        Inbox::new(mapping, ready, attention)
    }

    fn watch_peer(&mut self, join: &JoinT) -> Result<(), ReasonT> {
        if self.peers.contains_key(&join.peer_pid) {
            return Ok(());
        }
        let process =
            join.peer_process.clone().into_owned().ok().flatten().ok_or(ReasonT::Resources)?;
        let process = self.engine.keep(process);
        let data = EventData::new_u64(PEER | u64::from(join.peer_pid));
        epoll::add(&self.set, &process, data, EventFlags::IN).map_err(|_| ReasonT::Resources)?;
        self.peers.insert(join.peer_pid, Peer { process, sessions: 0 });
        Ok(())
    }

    /// A session's descriptor is the kernel's alone again, and its slot in the inbox may soon be another's.
    pub(super) fn unwatch(&mut self, local: u64, reason: ReasonT) {
        let Some(joined) = self.joined.get(&local) else { return };
        // Before a close that has been done: see `Session::close`.
        if reason != ReasonT::Closed
            && let Ok(fd) = kernel::at(joined.offer.fd)
        {
            let _ = epoll::delete(&self.set, fd);
        }
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own_inbox) {
            inbox.slots.remove(&joined.own_slot);
        }
    }

    /// The server knows that a session has gone home: what only it needed is let go of.
    pub(super) fn forget(&mut self, local: u64) {
        let Some(joined) = self.joined.remove(&local) else { return };
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own_inbox) {
            inbox.uses -= 1;
        }
        if let Some((_, uses)) = self.peer_inboxes.get_mut(&joined.peer_inbox) {
            *uses -= 1;
        }
        if let Some(peer) = self.peers.get_mut(&joined.peer_pid) {
            peer.sessions -= 1;
        }
        self.release(joined.own_inbox, joined.peer_inbox, joined.peer_pid);
    }

    /// Lets go of those that no session needs. The server counts in the same way, and gives others next time.
    fn release(&mut self, own_inbox: u64, peer_inbox: u64, peer_pid: u32) {
        if self.own_inboxes.get(&own_inbox).is_some_and(|inbox| inbox.uses == 0)
            && let Some(OwnInbox { inbox, .. }) = self.own_inboxes.remove(&own_inbox)
        {
            let _ = epoll::delete(&self.set, inbox.attention_fd());
            self.engine.release(inbox.ready_fd());
            self.engine.release(inbox.attention_fd());
        }
        if self.peer_inboxes.get(&peer_inbox).is_some_and(|(_, uses)| *uses == 0)
            && let Some((inbox, _)) = self.peer_inboxes.remove(&peer_inbox)
        {
            self.engine.release(inbox.ready_fd());
            self.engine.release(inbox.attention_fd());
        }
        if self.peers.get(&peer_pid).is_some_and(|peer| peer.sessions == 0)
            && let Some(peer) = self.peers.remove(&peer_pid)
        {
            // Closing does not take it out: the server has the same open file. And it would be in the way when
            // the peer comes again under this number.
            let _ = epoll::delete(&self.set, &peer.process);
            self.engine.release(peer.process.as_fd());
        }
    }
}
