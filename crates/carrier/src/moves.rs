//! The carrier's part in a move, step by step: offered, joined, taken out of the kernel, put back.
//!
//! Read the head of `carrier` and `docs/moves.md` first.

use crate::carried::{Carried, Ending, is_quiet};
use crate::carrier::{Carrier, Entry, INBOX, LINK, Phase, Place, later};
use crate::export::{ExportError, addresses, export};
use crate::metastate::{Metastate, Way, WayError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sojourn_filter::Key;
use sojourn_proto::time::Instant;
use sojourn_session::{EventT, JoinT, OfferT, ReasonT};
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, Stream};
use sojourn_wire::{FlowKey, Protocol};

/// Ring bytes wanted for each direction.
const RING_BYTES: u32 = 256 * 1024;
/// How often a session that may not be taken out yet is looked at (microseconds), and for how long at most.
const TAKE_EVERY_US: u64 = 200;
const TAKE_LIMIT_US: u64 = 2_000_000;
/// After the filter has been told, a packet that has passed it may still be on its way through the kernel on another
/// processor: so long it takes at most (microseconds).
const GRACE_US: u64 = 50;
/// How long the kernel may take to accept what a program has written.
const FLUSH_LIMIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The way to a session's peer, if there is one now.
pub(crate) fn way_of(metastate: &mut Metastate, key: &Key) -> Option<Way> {
    metastate.way(key.local().ip(), key.remote()?.ip()).ok()
}

/// Whether there is no route to a session's peer. The kernel would not take the session then: it connects nothing that it has
/// no route for.
pub(crate) fn is_cut(metastate: &mut Metastate, key: &Key) -> bool {
    let Some(peer) = key.remote() else { return false };
    let found = metastate.way(key.local().ip(), peer.ip());
    matches!(found, Err(WayError::System(_, Errno::NETUNREACH | Errno::HOSTUNREACH)))
}

fn flow_of(key: &Key) -> Option<FlowKey> {
    Some(FlowKey { protocol: Protocol::Tcp, source: key.local(), target: key.remote()? })
}

impl Carrier {
    /// Sockets that are handed in, and what the server says of those that were.
    pub(crate) fn take_from_gate(&mut self) {
        self.gate.quiet();
        while let Some(socket) = self.gate.next() {
            self.offer(socket);
        }
        loop {
            match self.sessions.next() {
                EventT::Case0 => return,
                EventT::Join(join) => self.joined(&join),
                EventT::Recall(recall) => self.endings.push((recall.local, Ending::Program)),
                EventT::Refused(refusal) => {
                    self.entries.remove(&refusal.local);
                }
            }
        }
    }

    fn offer(&mut self, socket: OwnedFd) {
        self.last_local += 1;
        let local = self.last_local;
        let what = OfferT { local, set: 0, ring_bytes: RING_BYTES, is_sole: true };
        let key = addresses(socket.as_fd())
            .ok()
            .and_then(|(own, peer)| Key::new(Protocol::Tcp, own, Some(peer)).ok());
        self.sessions.offer(socket.as_fd(), &what);
        match key {
            // An event says what came of it.
            Some(key) if way_of(&mut self.metastate, &key).is_some() => {
                self.entries.insert(local, Entry::offered(key, socket));
            }
            // The program is told so.
            _ => self.sessions.left(local, ReasonT::NoPeer, 0, 0),
        }
    }

    fn joined(&mut self, join: &JoinT) {
        let local = join.local;
        let opened = self.open(join);
        let Some(entry) = self.entries.get_mut(&local) else {
            self.sessions.left(local, ReasonT::Closed, 0, 0);
            return;
        };
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let (Some((stream, place)), Phase::Offered { socket }) = (opened, phase) else {
            self.entries.remove(&local);
            self.sessions.left(local, ReasonT::Resources, 0, 0);
            return;
        };
        // The program's side may send this way, and then says so. It receives from the kernel for the time being: that the
        // peer acknowledges what was sent takes a round trip or more.
        stream.consent();
        stream.attention();
        let since = crate::carrier::now();
        entry.place = Some(place);
        entry.phase = Phase::Waiting { socket, stream: Box::new(stream), since };
        self.slots.insert((place.own_inbox, place.own_slot), local);
        self.dirty.push(local);
    }

    fn open(&mut self, join: &JoinT) -> Option<(Stream, Place)> {
        let (own, is_new) = self.inboxes.open(&join.own)?;
        if is_new {
            self.watch(own.attention_fd(), INBOX).ok()?;
            self.watch(own.ready_fd(), INBOX).ok()?;
        }
        let (peer, _) = self.peer_inboxes.open(&join.peer)?;
        let layout = Layout::new(join.ring_bytes)?;
        let region = rustix::io::fcntl_dupfd_cloexec(join.region.as_fd()?, 0).ok()?;
        let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
        let stream = Stream::new(mapping, layout, usize::from(join.side), peer, join.peer.slot)?;
        let place =
            Place { own_inbox: join.own.id, own_slot: join.own.slot, peer_inbox: join.peer.id };
        Some((stream, place))
    }

    /// Takes the session out of the kernel, if that may be now.
    pub(crate) fn try_take(&mut self, local: u64, at: Instant) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        let Phase::Waiting { socket, stream, since } = &entry.phase else { return };
        if stream.is_frozen() || at >= later(*since, TAKE_LIMIT_US) {
            return self.end(local, at);
        }
        if !is_quiet(stream, socket) {
            return self.set_timer(local, Some(later(at, TAKE_EVERY_US)));
        }
        let is_ready = stream.is_ringing() && stream.has_consent();
        let Some(way) = way_of(&mut self.metastate, &entry.key) else {
            return self.end(local, at);
        };
        if is_ready {
            return self.take(local, way);
        }
        // Before the program's side gives up the kernel: it takes a while.
        if self.open_link(&way).is_err() {
            return self.end(local, at);
        }
        let Some(Entry { phase: Phase::Waiting { stream, .. }, .. }) = self.entries.get(&local)
        else {
            return;
        };
        if !stream.is_ringing() {
            stream.start_ring();
            stream.attention();
        }
        self.set_timer(local, Some(later(at, TAKE_EVERY_US)));
    }

    /// Has that interface watched.
    fn open_link(&mut self, way: &Way) -> Result<(), ()> {
        let Self { links, set, sessions, .. } = self;
        let opened = links.open(way).map_err(|error| {
            sessions.warn(format_args!("{}: {error}", way.name));
        });
        let (link, is_new) = opened?;
        if let Some(fd) = link.packets.wait_fd().filter(|_| is_new) {
            use rustix::event::epoll::{self, EventData, EventFlags};
            let _ = epoll::add(&*set, fd, EventData::new_u64(LINK), EventFlags::IN);
        }
        Ok(())
    }

    fn take(&mut self, local: u64, way: Way) {
        // Before the packets are turned away: it takes a while.
        let tuning = crate::tuning::read();
        // By the way that is known now: it may be another one than a moment ago.
        let is_open = self.open_link(&way).is_ok();
        let Self { entries, links, flows, limits, dirty, endings, sessions, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return };
        let link = links.link(way.interface).filter(|_| is_open);
        let Some(link) = link.and_then(|link| link.take(entry.key).is_ok().then_some(link)) else {
            endings.push((local, Ending::Unusual));
            return;
        };
        grace();
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let Phase::Waiting { socket, stream, since } = phase else { return };
        let mut unread = Vec::new();
        let at = crate::carrier::now();
        let record = match export(socket.as_fd(), &tuning, &mut unread) {
            Ok(record) => record,
            Err(error) => {
                link.give_back(&entry.key);
                entry.phase = Phase::Waiting { socket, stream, since };
                match error {
                    ExportError::Busy(_) => dirty.push(local),
                    // Closed meanwhile: what that means to the program the kernel knows best.
                    ExportError::State => endings.push((local, Ending::Peer)),
                    ExportError::System(..) => {
                        sessions.warn(format_args!("{:?}: not taken out: {error}", entry.key));
                        endings.push((local, Ending::Unusual));
                    }
                }
                return;
            }
        };
        let carried = Carried::new(socket, *stream, &record, unread, (&way, limits), at);
        let Some(carried) = carried else {
            sessions.warn(format_args!("{:?}: not taken by the engine", entry.key));
            link.give_back(&entry.key);
            return;
        };
        entry.phase = Phase::Away(Box::new(carried));
        entry.way = Some(way);
        if let Some(flow) = flow_of(&entry.key) {
            flows.insert(flow, local);
        }
        dirty.push(local);
    }

    /// The session is the kernel's again, wherever it was.
    pub(crate) fn end(&mut self, local: u64, at: Instant) {
        self.set_timer(local, None);
        let Some(mut entry) = self.entries.remove(&local) else { return };
        let (sent, received) = match core::mem::replace(&mut entry.phase, Phase::Between) {
            Phase::Offered { .. } | Phase::Between => (0, 0),
            Phase::Waiting { socket, stream, .. } => {
                give_up(&socket, &stream);
                (0, 0)
            }
            Phase::Away(carried) => self.put_back(&entry, *carried, at),
        };
        self.sessions.left(local, ReasonT::PeerLeft, sent, received);
        if let Some(place) = entry.place {
            self.slots.remove(&(place.own_inbox, place.own_slot));
            self.peer_inboxes.close(place.peer_inbox);
            if let Some(inbox) = self.inboxes.close(place.own_inbox) {
                let _ = rustix::event::epoll::delete(&self.set, inbox.attention_fd());
                let _ = rustix::event::epoll::delete(&self.set, inbox.ready_fd());
            }
        }
    }

    fn put_back(&mut self, entry: &Entry, mut carried: Carried, at: Instant) -> (u64, u64) {
        let totals = carried.go_home(at);
        if let Some(flow) = flow_of(&entry.key) {
            self.flows.remove(&flow);
        }
        let interface = entry.way.as_ref().map_or(0, |way| way.interface);
        if let Some(link) = self.links.link(interface) {
            link.give_back(&entry.key);
        }
        match totals {
            Ok(totals) => {
                carried.tell_program();
                totals
            }
            // The program's side finds nothing flushed, and takes the session for reset.
            Err(error) => {
                self.sessions.warn(format_args!("{:?}: not put back: {error}", entry.key));
                (0, 0)
            }
        }
    }
}

/// A session that was never taken out: what the program has written to the stream meanwhile goes into the kernel.
fn give_up(socket: &OwnedFd, stream: &Stream) {
    stream.freeze();
    let mut piece = [0; 16 * 1024];
    let mut done = 0;
    loop {
        let len = stream.copy_unflushed(done, &mut piece);
        if len == 0 {
            break;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &piece[..len], flags) {
            Ok(sent) => done += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut set = [PollFd::new(socket, PollFlags::OUT)];
                if !matches!(poll(&mut set, Some(&FLUSH_LIMIT)), Ok(1)) {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    stream.set_flushed(0);
    stream.attention();
    stream.ring_peer();
}

/// Lets packets that have passed the filter already come to rest.
fn grace() {
    let until = later(crate::carrier::now(), GRACE_US);
    while crate::carrier::now() < until {
        core::hint::spin_loop();
    }
}
