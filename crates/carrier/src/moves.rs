//! The carrier's part in a move, step by step: offered, joined, taken out of the kernel and lent, given back, put back.
//!
//! Read the head of `carrier` and `docs/moves.md` first.

use crate::carrier::{Carrier, Entry, INBOX, Joined, Kept, Lent, Phase, Place, later};
use crate::datagrams;
use crate::export::{ExportError, addresses, export, has_gap, slipped};
use crate::import::{ImportError, Room, import};
use crate::keeping::Label;
use crate::links::{LinkError, Program, RING, Ticket};
use crate::metastate::{Mac, Metastate, Way, WayError};
use crate::raw::{self, SIOCINQ, SIOCOUTQ};
use crate::replay;
use crate::sessions::{Handed, Sessions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sojourn_filter::Key;
use sojourn_proto::record::{Kind, SessionRecord, TcpTuning};
use sojourn_pump::{now, position, unread, unsent};
use sojourn_session::{EventT, HopT, JoinT, LendT, OfferT, ReasonT, RecallT, RingT};
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, Stream};
use sojourn_wire::Protocol;

/// Ring bytes wanted for each direction.
pub(crate) const RING_BYTES: u32 = 256 * 1024;
/// How often a session that may not be taken out yet is looked at (microseconds), and for how long at most.
pub(crate) const TAKE_EVERY_US: u64 = 200;
pub(crate) const TAKE_LIMIT_US: u64 = 2_000_000;
/// After the filter has been told, a packet that has passed it may still be on its way through the kernel on another
/// processor: so long it takes at most (microseconds).
const GRACE_US: u64 = 50;
/// When it is looked whether a packet has slipped past the filter to the socket nevertheless (microseconds after the move); each look
/// is ten times as late as the one before.
const SLIP_FIRST_US: u64 = 1_000;
const SLIP_LAST_US: u64 = 1_000_000;
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

impl Carrier {
    /// Sockets that are handed in, and what the server says of those that were.
    pub(crate) fn take_from_gate(&mut self) {
        self.gate.quiet();
        while let Some(handed) = self.gate.next() {
            match handed {
                Handed::Socket(socket) => {
                    // Its session may have been here before, and have been left while it was kept waiting: that comes first.
                    self.take_events();
                    self.offer(socket);
                }
                Handed::Registered { stream, pid } => self.registered(stream, pid),
                Handed::AllHome => self.all_home(),
                Handed::Back { token, has_ended, record } => {
                    self.given_back(token, has_ended, &record);
                }
                Handed::AskWay { local, to } => self.tell_way(local, to),
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        loop {
            match self.sessions.next() {
                EventT::Case0 => return,
                EventT::Join(join) => self.joined(&join),
                EventT::Recall(recall) => self.recalled(&recall),
                EventT::Refused(refusal) => {
                    self.entries.remove(&refusal.local);
                }
                // To libraries only.
                EventT::Lend(_) | EventT::Rerouted(_) | EventT::Wanted(_) | EventT::Way(_) => {}
            }
        }
    }

    /// The server wants a session home, or its program has left it or died.
    fn recalled(&mut self, recall: &RecallT) {
        let is_over = matches!(recall.reason, ReasonT::PeerLeft | ReasonT::PeerDied);
        match self.entries.get(&recall.local).map(|entry| &entry.phase) {
            // Only the library knows where it stands.
            Some(Phase::Lent(lent)) if !is_over => {
                lent.call_home();
                self.attend(recall.local);
            }
            // So does the library itself.
            Some(Phase::Datagrams(_)) if !is_over => {}
            _ => self.end(recall.local),
        }
    }

    /// The server ends, and leaves no session behind if it can.
    fn all_home(&mut self) {
        self.is_leaving = true;
        for local in self.entries.keys().copied().collect::<Vec<_>>() {
            match self.entries.get(&local).map(|entry| &entry.phase) {
                Some(Phase::Lent(lent)) => lent.call_home(),
                Some(Phase::Datagrams(lodger)) => {
                    lodger.stream.freeze();
                    lodger.stream.attention();
                    lodger.stream.ring_peer();
                }
                Some(Phase::Expected { .. }) => self.end(local),
                Some(Phase::Offered { .. }) => {
                    self.entries.remove(&local);
                    self.sessions.left(local, ReasonT::NoPeer, 0, 0);
                }
                _ => {}
            }
            self.attend(local);
        }
    }

    fn offer(&mut self, socket: OwnedFd) {
        self.last_local += 1;
        let local = self.last_local;
        if datagrams::is_of_datagrams(&socket) {
            return self.offer_datagrams(local, socket);
        }
        let what = OfferT { local, set: 0, ring_bytes: RING_BYTES, is_sole: true };
        let key = addresses(socket.as_fd())
            .ok()
            .and_then(|(own, peer)| Key::new(Protocol::Tcp, own, Some(peer)).ok());
        self.sessions.offer(socket.as_fd(), &what);
        match key {
            // An event says what came of it.
            Some(key) if !self.is_leaving && way_of(&mut self.metastate, &key).is_some() => {
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
        if entry.plan.is_some() {
            return self.joined_datagrams(local, opened);
        }
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let (Some((stream, place)), Phase::Offered { socket }) = (opened, phase) else {
            self.entries.remove(&local);
            self.sessions.left(local, ReasonT::Resources, 0, 0);
            return;
        };
        // While the program still has the kernel for both directions. If it fails now it fails later, and is told then.
        if let Some(way) = way_of(&mut self.metastate, &entry.key) {
            let _ = self.links.prepare(&way, program_at(&*self.sessions, &place));
        }
        // The program's side may send this way, and then says so. It receives from the kernel for the time being: that the
        // peer acknowledges what was sent takes a round trip or more.
        stream.consent();
        stream.attention();
        let since = now();
        let joined = Joined {
            stream: join.stream,
            side: join.side,
            ring_bytes: join.ring_bytes,
            region: join.region.clone(),
        };
        entry.phase = Phase::Waiting { socket, stream: Box::new(stream), joined, since };
        self.slots.insert((place.own_inbox, place.own_slot), local);
        entry.place = Some(place);
        self.look_at(local, Some(since));
    }

    pub(crate) fn open(&mut self, join: &JoinT) -> Option<(Stream, Place)> {
        let (own, is_new) = self.inboxes.open(&join.own)?;
        if is_new {
            self.watch(own.attention_fd(), INBOX).ok()?;
        }
        let (peer, _) = self.peer_inboxes.open(&join.peer)?;
        let layout = Layout::new(join.ring_bytes)?;
        let region = rustix::io::fcntl_dupfd_cloexec(join.region.as_fd()?, 0).ok()?;
        let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
        let stream = Stream::new(mapping, layout, usize::from(join.side), peer, join.peer.slot)?;
        let place = Place {
            own_inbox: join.own.id,
            own_slot: join.own.slot,
            peer_inbox: join.peer.id,
            peer_slot: join.peer.slot,
            peer_pid: join.peer_pid,
            peer_process: join.peer_process.clone(),
        };
        Some((stream, place))
    }

    /// Takes the session out of the kernel, if that may be now.
    pub(crate) fn try_take(&mut self, local: u64) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        let Phase::Waiting { socket, stream, since, .. } = &entry.phase else { return };
        let at = now();
        if self.is_leaving || stream.is_frozen() || at >= later(*since, TAKE_LIMIT_US) {
            return self.end(local);
        }
        if !is_quiet(stream, socket) {
            return self.look_at(local, Some(later(at, TAKE_EVERY_US)));
        }
        let is_ready = stream.is_ringing() && stream.has_consent();
        let way = way_of(&mut self.metastate, &entry.key);
        if !is_ready && let Some(way) = &way {
            return self.ask_for_the_rest(local, way);
        }
        let lent = way.map(|way| self.take(local, way));
        match lent {
            Some(Ok(())) => self.look_at(local, Some(later(at, SLIP_FIRST_US))),
            Some(Err(TakeError::Export(ExportError::Busy(_)))) => {
                self.look_at(local, Some(later(at, TAKE_EVERY_US)));
            }
            // Its program has kept it, having lost us.
            Some(Err(TakeError::Kept)) => self.end(local),
            // Closed meanwhile: what that means to the program the kernel knows best.
            Some(Err(TakeError::Export(ExportError::State))) => self.end(local),
            Some(Err(error)) => {
                if let Some(entry) = self.entries.get(&local) {
                    self.sessions.warn(format_args!("{:?}: not taken out: {error}", entry.key));
                }
                self.end(local);
            }
            None => self.end(local),
        }
    }

    /// The program's side receives from the kernel for the time being; now it may give that up, too.
    fn ask_for_the_rest(&mut self, local: u64, way: &Way) {
        // Before it does: it takes a while.
        let Some(entry) = self.entries.get(&local) else { return };
        let prepared = self.program_of(entry).map(|program| self.links.prepare(way, program));
        if let Some(Err(error)) = prepared {
            self.sessions.warn(format_args!("{}: {error}", way.name));
            return self.end(local);
        }
        if let Phase::Waiting { stream, .. } = &entry.phase
            && !stream.is_ringing()
        {
            stream.start_ring();
            stream.attention();
        }
        self.look_at(local, Some(later(now(), TAKE_EVERY_US)));
    }

    pub(crate) fn program_of(&self, entry: &Entry) -> Option<Program> {
        entry.place.as_ref().map(|place| program_at(&*self.sessions, place))
    }

    /// Sends a session home that the kernel has received something of after it was taken out.
    pub(crate) fn look_for_slipped(&mut self, local: u64) {
        let Some(Entry { phase: Phase::Lent(lent), .. }) = self.entries.get_mut(&local) else {
            return;
        };
        if raw::queue_len(&lent.socket, SIOCINQ).is_ok_and(|len| len > 0) {
            lent.call_home();
        } else if lent.next_look_us <= SLIP_LAST_US {
            let when = later(now(), lent.next_look_us);
            lent.next_look_us *= 10;
            self.look_at(local, Some(when));
        }
    }

    fn take(&mut self, local: u64, way: Way) -> Result<(), TakeError> {
        // Before the packets are turned away: it takes a while.
        let tuning = crate::tuning::read();
        let Some(program) = self.entries.get(&local).and_then(|entry| self.program_of(entry))
        else {
            return Ok(());
        };
        let Self { entries, links, sessions, tokens, peer_inboxes, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return Ok(()) };
        let Some(Place { peer_pid, peer_inbox, peer_slot, .. }) = entry.place else {
            return Ok(());
        };
        let Phase::Waiting { socket, stream, joined, .. } = &entry.phase else { return Ok(()) };
        let Ticket { number: link, owner, socket: packets, port } =
            links.take(&way, program, entry.key)?;
        grace();
        // If this process dies before that the program goes on with the socket as it is.
        let taken = match stream.ledger().take() {
            false => Err(TakeError::Kept),
            true => read_out(socket, &tuning).and_then(|record| {
                let parcel = sojourn_pump::parcel::pack(&record).map_err(TakeError::Parcel)?;
                Ok((record, parcel))
            }),
        };
        let (record, parcel) = taken.inspect_err(|_| {
            links.give_back(way.interface, link, &entry.key);
            stream.ledger().put_down();
        })?;
        let token = token();
        let label = Label {
            token,
            stream: joined.stream,
            side: joined.side,
            ring_bytes: joined.ring_bytes,
            peer_inbox,
            peer_slot,
            pid: peer_pid,
            interface: way.interface,
            owner: owner.0,
            link,
            port,
        };
        let inbox = peer_inboxes.descriptors(peer_inbox).unwrap_or_default();
        let kept = Kept { label, region: joined.region.clone(), inbox };
        links.keeping.hold(&kept, socket, parcel.as_fd());
        let hop = hop_of(&way, port);
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let Phase::Waiting { socket, stream, .. } = phase else { return Ok(()) };
        let lent = Lent {
            socket,
            stream: *stream,
            record,
            token,
            way,
            link,
            port,
            is_cut: false,
            next_look_us: SLIP_FIRST_US * 10,
            kept,
            is_known: true,
            home_by: None,
        };
        entry.phase = Phase::Lent(Box::new(lent));
        tokens.insert(token, local);
        let (packets, record) = (packets.into(), parcel.into());
        let ring = RingT { slot_len: RING.slot_len, slots: RING.slots };
        sessions.lend(local, LendT { local: 0, token, hop, link, packets, ring, record });
        Ok(())
    }

    /// A library has given a session back.
    pub(crate) fn given_back(&mut self, token: u64, has_ended: bool, parcel: &OwnedFd) {
        let Some(local) = self.tokens.get(&token).copied() else { return };
        if self.entries.get(&local).is_some_and(|entry| entry.plan.is_some()) {
            return self.datagrams_back(local, parcel);
        }
        let record = sojourn_pump::parcel::open(parcel);
        if let Err(error) = &record
            && let Some(entry) = self.entries.get(&local)
        {
            self.sessions.warn(format_args!("{:?}: what its program knows: {error}", entry.key));
        }
        self.end_with(local, record.ok().map(|record| Known { record, has_ended }));
    }

    /// The session is the kernel's again, wherever it was.
    pub(crate) fn end(&mut self, local: u64) {
        self.end_with(local, None);
    }

    fn end_with(&mut self, local: u64, known: Option<Known>) {
        self.look_at(local, None);
        let Some(mut entry) = self.entries.remove(&local) else { return };
        let (sent, received) = match core::mem::replace(&mut entry.phase, Phase::Between) {
            Phase::Offered { .. } | Phase::Between => (0, 0),
            Phase::Waiting { socket, stream, .. } => {
                give_up(&socket, &stream);
                (0, 0)
            }
            Phase::Lent(lent) => self.put_back(&entry, &lent, known),
            Phase::Expected { stream, .. } => {
                datagrams::let_go(&stream);
                (0, 0)
            }
            Phase::Datagrams(lodger) => self.end_datagrams(*lodger),
        };
        self.sessions.left(local, ReasonT::PeerLeft, sent, received);
        if let Some(place) = entry.place {
            self.slots.remove(&(place.own_inbox, place.own_slot));
            self.peer_inboxes.close(place.peer_inbox);
            if let Some(inbox) = self.inboxes.close(place.own_inbox) {
                let _ = rustix::event::epoll::delete(&self.set, inbox.attention_fd());
            }
        }
    }

    /// Bytes sent and received by the program while it was away.
    fn put_back(&mut self, entry: &Entry, lent: &Lent, known: Option<Known>) -> (u64, u64) {
        self.tokens.remove(&lent.token);
        // Before the program closes it: it is to be the last that has it.
        self.links.keeping.release(&lent.kept.label);
        let stream = &lent.stream;
        stream.freeze();
        if stream.ledger().is_lost() {
            // Its program has waited for us in vain, and taken it for reset.
            self.links.give_back(lent.way.interface, lent.link, &entry.key);
            return (0, 0);
        }
        let unknown = || Known { record: last_known(lent), has_ended: false };
        let Known { mut record, has_ended } = known.unwrap_or_else(unknown);
        add_slipped(&mut record, lent);
        let mut links = Some(&mut self.links);
        let mut hear = || {
            if let Some(links) = links.take() {
                links.give_back(lent.way.interface, lent.link, &entry.key);
            }
        };
        let imported = import(&record, lent.socket.as_fd(), &mut hear);
        // Whatever came of it.
        hear();
        if let (Ok(()), Kind::Tcp(tcp), true) = (&imported, &record.kind, has_ended) {
            // The peer repeats it if this fails.
            let _ = replay::fin(&record, tcp);
        }
        match imported {
            // The program's side may go on with it.
            Ok(()) => stream.set_flushed(stream.own_leftover().unwrap_or(0)),
            // It takes the session for reset.
            Err(error) => {
                stream.ledger().lose();
                // Of these the peer has told us.
                if !matches!(error, ImportError::System(_, Errno::CONNRESET | Errno::PIPE)) {
                    self.sessions.warn(format_args!("{:?}: not put back: {error}", entry.key));
                }
            }
        }
        stream.attention();
        stream.ring_peer();
        let (received, sent) = stream.totals_told();
        (sent, received)
    }
}

/// What a library knew of a session that it gives back.
struct Known {
    record: SessionRecord,
    /// The peer's FIN has come right behind the last byte.
    has_ended: bool,
}

/// Why a session was not taken out.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("the record cannot be passed on: {0}")]
    Parcel(Errno),
    #[error("the program has kept it")]
    Kept,
}

/// Whether nothing is on its way in the kernel: the program sends no more through it, the peer has acknowledged everything,
/// and there is no gap in what it has sent.
fn is_quiet(stream: &Stream, socket: &OwnedFd) -> bool {
    stream.peer_rings() && raw::queue_len(socket, SIOCOUTQ) == Ok(0) && !has_gap(socket.as_fd())
}

/// The record of the socket, with what the program has not read.
fn read_out(socket: &OwnedFd, tuning: &TcpTuning) -> Result<SessionRecord, TakeError> {
    let mut unread = Vec::new();
    let mut record = export(socket.as_fd(), tuning, &mut unread)?;
    if let Kind::Tcp(tcp) = &mut record.kind {
        tcp.receive_queue = unread;
    }
    Ok(record)
}

/// Adds what the kernel has received and acknowledged after the session was taken out (see `export::slipped`).
fn add_slipped(record: &mut SessionRecord, lent: &Lent) {
    let bytes = slipped(&lent.socket);
    let (Kind::Tcp(tcp), Kind::Tcp(base)) = (&mut record.kind, &lent.record.kind) else { return };
    let known = tcp.rcv_nxt.wrapping_sub(base.rcv_nxt) as usize;
    if let Some(missing) = bytes.get(known..) {
        tcp.receive_queue.extend(missing);
        tcp.rcv_nxt = tcp.rcv_nxt.wrapping_add(missing.len() as u32);
    }
}

/// Where a session stands whose program cannot say so any more: as it was lent, if nobody has carried it; else as the ledger tells,
/// with what is in the rings.
fn last_known(lent: &Lent) -> SessionRecord {
    let mut record = lent.record.clone();
    let Kind::Tcp(tcp) = &mut record.kind else { return record };
    let Lent { stream, .. } = lent;
    let first = tcp.snd_una.wrapping_add(stream.read_so_far().unwrap_or(0) as u32);
    let mut skip = 0;
    let is_told = position::apply(&stream.ledger().told(), tcp);
    if is_told {
        tcp.receive_queue = unread(stream);
        (tcp.snd_una, skip) = oldest(tcp.snd_una, first);
    }
    tcp.send_queue = unsent(stream, skip);
    let sent = tcp.snd_nxt.wrapping_sub(tcp.snd_una) as usize;
    // What it has sent after it told us last may be any of this. A kernel that has not sent what the peer acknowledges would not listen to
    // the peer any more.
    if is_told || sent > tcp.send_queue.len() {
        tcp.snd_nxt = tcp.snd_una.wrapping_add(tcp.send_queue.len() as u32);
    }
    record
}

/// The oldest byte that its peer may not have, by what the program has told and by where its ring begins, and how much of the ring is before it. What
/// was acknowledged last may be in the ring still; or it has left the ring, and the program died before it told.
fn oldest(told: u32, ring: u32) -> (u32, usize) {
    let before = told.wrapping_sub(ring);
    if before.cast_signed() < 0 { (ring, 0) } else { (told, before as usize) }
}

/// The program at the other side of a stream.
fn program_at(sessions: &dyn Sessions, place: &Place) -> Program {
    let may_have_packets = sessions.may_have_packets(place.peer_pid);
    Program { process: place.peer_process.clone(), may_have_packets }
}

/// A number that nobody can guess.
pub(crate) fn token() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// What of a way is in frames. `port`: the link address of the program's port, if it has one; a port is Ethernet whatever the link
/// is, and nobody looks at the target then.
pub(crate) fn hop_of(way: &Way, port: Option<Mac>) -> HopT {
    let link = way.link.or(port.map(|own| (own, own)));
    let (own, next) = link.unwrap_or_default();
    HopT { is_cut: false, has_addresses: link.is_some(), own, next, mtu: way.mtu }
}

/// A session that was never taken out: what the program has written to the stream meanwhile goes into the kernel. It is given room for
/// all of it: if the peer takes nothing at the moment, nobody waits for that here.
fn give_up(socket: &OwnedFd, stream: &Stream) {
    stream.freeze();
    if !stream.ledger().close() && stream.ledger().is_kept() {
        // It has lost us, and does this itself.
        return;
    }
    let left = unsent(stream, 0);
    let _room = Room::to_send(socket.as_fd(), left.len());
    let mut done = 0;
    while done < left.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &left[done..], flags) {
            Ok(sent) => done += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut set = [PollFd::new(socket, PollFlags::OUT)];
                if !matches!(poll(&mut set, Some(&FLUSH_LIMIT)), Ok(1)) {
                    break;
                }
            }
            // What a broken connection takes no more the program need not know to be lost.
            Err(_) => done = left.len(),
        }
    }
    // If not all of it went the program's side takes the session for reset.
    match done == left.len() {
        true => stream.set_flushed(0),
        false => stream.ledger().lose(),
    }
    stream.attention();
    stream.ring_peer();
}

/// Lets packets that have passed the filter already come to rest. The kernel takes a packet from there to its socket without giving
/// the processor to a thread; so once this thread has run on every processor, none is on its way any more.
fn grace() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let until = later(now(), GRACE_US);
    if let Ok(usual) = sched_getaffinity(None) {
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| usual.is_set(*cpu)) {
            let mut one = CpuSet::new();
            one.set(cpu);
            let _ = sched_setaffinity(None, &one);
        }
        let _ = sched_setaffinity(None, &usual);
    }
    // Processors that this thread may not run on.
    while now() < until {
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_out_of_the_ring_before_or_after_it_is_told() {
        assert_eq!(oldest(1000, 1000), (1000, 0));
        assert_eq!(oldest(1300, 1000), (1300, 300));
        assert_eq!(oldest(1000, 1300), (1300, 0), "told too late");
        assert_eq!(oldest(u32::MAX, 4), (4, 0));
        assert_eq!(oldest(4, u32::MAX), (4, 5));
    }
}
