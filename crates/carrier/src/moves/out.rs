//! Out of the kernel, step by step: offered, joined, quiet, taken out of the socket and lent.
//!
//! What the socket says of its connection: `export`. Read the head of `carrier` and
//! `docs/understand/moves.md` first.

use super::{Carrier, Entry, TAKE_EVERY_US, TAKE_LIMIT_US, hop_of, token, way_of};
use crate::carrier::{INBOX, Joined, Kept, Lent, Phase, Place, Turned, Waiting, later};
use crate::datagrams;
use crate::export::{ExportError, addresses, export, has_gap};
use crate::keeping::Label;
use crate::links::{LinkError, Links, Program, Ticket};
use crate::metastate::Way;
use crate::raw::{self, SIOCINQ, SIOCOUTQ};
use crate::sessions::Sessions;
use crate::too_big::Path;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_proto::record::{Kind, SessionRecord, TcpTuning};
use sojourn_pump::now;
use sojourn_session::{JoinT, LendT, OfferT, ReasonT};
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, Stream};
use sojourn_wire::Protocol;

/// Ring bytes wanted for each direction: as many as the program wants.
pub(crate) const RING_BYTES: u32 = u32::MAX;
/// After the filter has been told, a packet that has passed it may still be on its way through the
/// kernel on another processor: so long it takes at most (microseconds).
const GRACE_US: u64 = 50;
/// How long a session may be deaf because its program does not give up the kernel (microseconds);
/// then it has it again, and is turned to when it does.
const DEAF_LIMIT_US: u64 = 20_000;
/// When it is looked whether a packet has slipped past the filter to the socket nevertheless
/// (microseconds after the move); each look is ten times as late as the one before.
const SLIP_FIRST_US: u64 = 1_000;
const SLIP_LAST_US: u64 = 1_000_000;

impl Carrier {
    pub(super) fn offer(&mut self, socket: OwnedFd) {
        self.last_local += 1;
        let local = self.last_local;
        if datagrams::is_of_datagrams(&socket) {
            return self.offer_datagrams(local, socket);
        }
        let what = OfferT { local, set: 0, ring_bytes: RING_BYTES, is_sole: true };
        let key = addresses(socket.as_fd())
            .ok()
            .and_then(|(own, peer)| Key::new(Protocol::Tcp, own, Some(peer)).ok());
        let is_translated =
            |key| self.conntrack.as_mut().is_some_and(|known| known.standing(key).is_translated);
        if key.as_ref().is_some_and(is_translated) {
            return self.sessions.decline(socket.as_fd(), ReasonT::Translated);
        }
        self.update_rules(now());
        let way = key.as_ref().and_then(|key| way_of(&mut self.metastate, key));
        if key.as_ref().is_some_and(|key| way.is_some() && self.is_filtered(key, way.as_ref())) {
            return self.sessions.decline(socket.as_fd(), ReasonT::Firewall);
        }
        self.sessions.offer(socket.as_fd(), &what);
        match key {
            // An event says what came of it.
            Some(key) if !self.is_leaving && way.is_some() => {
                self.entries.insert(local, Entry::offered(key, socket));
            }
            // The program is told so.
            _ => self.sessions.left(local, ReasonT::NoPeer, 0, 0),
        }
    }

    pub(super) fn joined(&mut self, join: &JoinT) {
        let local = join.local;
        let opened = self.open(join);
        let Some(entry) = self.entries.get_mut(&local) else {
            self.sessions.left(local, ReasonT::Closed, 0, 0);
            return;
        };
        let joined = Joined {
            stream: join.stream,
            side: join.side,
            ring_bytes: join.ring_bytes,
            region: join.region.clone(),
        };
        if entry.plan.is_some() {
            return self.joined_datagrams(local, opened, joined);
        }
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let (Some((stream, place)), Phase::Offered { socket }) = (opened, phase) else {
            self.entries.remove(&local);
            self.sessions.left(local, ReasonT::Resources, 0, 0);
            return;
        };
        // While the program still has the kernel for both directions. If it fails now it fails
        // later, and is told then.
        if let Some(way) = way_of(&mut self.metastate, &entry.key) {
            let _ = self.links.prepare(&way, program_at(&*self.sessions, &place));
        }
        // The program's side may send this way, and then says so. It receives from the kernel for
        // the time being: that the peer acknowledges what was sent takes a round trip or more.
        stream.consent();
        stream.attention();
        let since = now();
        // Now, since the session does not wait for it yet.
        let tuning = crate::tuning::read();
        let waiting = Waiting { socket, stream, joined, since, tuning, turned: None };
        entry.phase = Phase::Waiting(Box::new(waiting));
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
        let stream = Stream::told(mapping, layout, usize::from(join.side), peer, join.peer.slot)?;
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

    /// Takes the session a step further out of the kernel, if that may be now.
    pub(crate) fn try_take(&mut self, local: u64) {
        let Some(Entry { phase: Phase::Waiting(waiting), key, .. }) = self.entries.get(&local)
        else {
            return;
        };
        let at = now();
        let Waiting { stream, turned, .. } = &**waiting;
        if self.is_leaving || stream.is_frozen() || at >= later(waiting.since, TAKE_LIMIT_US) {
            return self.end(local);
        }
        let is_deaf_for_long =
            turned.as_ref().is_some_and(|turned| at >= later(turned.since, DEAF_LIMIT_US));
        let may_begin = stream.has_consent() && !stream.is_ringing();
        let step = match stream.ledger().has_given_up() {
            true if turned.is_some() || is_quiet(waiting) => Step::Take,
            false if is_deaf_for_long => Step::TurnBack,
            false if may_begin && is_quiet(waiting) => Step::Turn,
            _ => return self.look_at(local, Some(later(at, TAKE_EVERY_US))),
        };
        let Some(way) = way_of(&mut self.metastate, key) else { return self.end(local) };
        let done = match step {
            Step::Turn => self.turn_and_ask(local, way),
            Step::TurnBack => self.turn_back(local),
            Step::Take => self.take(local, way),
        };
        match done {
            Ok(()) => {
                let after = if matches!(step, Step::Take) { SLIP_FIRST_US } else { TAKE_EVERY_US };
                self.look_at(local, Some(later(at, after)));
            }
            Err(TakeError::Export(ExportError::Busy(_))) => {
                self.look_at(local, Some(later(at, TAKE_EVERY_US)));
            }
            // Its program has kept it, having lost us; or it was closed meanwhile: what that means
            // to the program the kernel knows best.
            Err(TakeError::Kept | TakeError::Export(ExportError::State)) => self.end(local),
            Err(error) => {
                if let Some(entry) = self.entries.get(&local) {
                    self.sessions.warn(format_args!("{:?}: not taken out: {error}", entry.key));
                }
                self.end(local);
            }
        }
    }

    /// From now on nothing comes to the kernel; so the program's side, which receives from there
    /// for the time being, may give that up when it has read what is there.
    fn turn_and_ask(&mut self, local: u64, way: Way) -> Result<(), TakeError> {
        self.turn(local, way)?;
        let Some(Entry { key, phase: Phase::Waiting(waiting), .. }) = self.entries.get_mut(&local)
        else {
            return Ok(());
        };
        // What was on its way past the filter may have left a gap, which nothing would fill any
        // more.
        if !is_quiet(waiting) {
            turn_back(&mut self.links, key, waiting);
            return Ok(());
        }
        waiting.stream.start_ring();
        waiting.stream.attention();
        Ok(())
    }

    /// Turns the session's packets away from the kernel.
    fn turn(&mut self, local: u64, way: Way) -> Result<(), TakeError> {
        let Some(program) = self.entries.get(&local).and_then(|entry| self.program_of(entry))
        else {
            return Ok(());
        };
        let Self { entries, links, conntrack, .. } = self;
        let Some(Entry { key, phase: Phase::Waiting(waiting), .. }) = entries.get_mut(&local)
        else {
            return Ok(());
        };
        conntrack.iter_mut().for_each(|known| known.let_be(key));
        let ticket = links.take(&way, program, *key)?;
        waiting.turned = Some(Turned { ticket, way, since: now() });
        grace();
        Ok(())
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

    fn turn_back(&mut self, local: u64) -> Result<(), TakeError> {
        if let Some(Entry { key, phase: Phase::Waiting(waiting), .. }) =
            self.entries.get_mut(&local)
        {
            turn_back(&mut self.links, key, waiting);
        }
        Ok(())
    }

    fn take(&mut self, local: u64, way: Way) -> Result<(), TakeError> {
        let Some(Entry { key, phase: Phase::Waiting(waiting), .. }) = self.entries.get_mut(&local)
        else {
            return Ok(());
        };
        // Another interface's meanwhile.
        if waiting.turned.as_ref().is_some_and(|turned| turned.way.interface != way.interface) {
            turn_back(&mut self.links, key, waiting);
        }
        if waiting.turned.is_none() {
            self.turn(local, way.clone())?;
        }
        let Some(Entry { key, phase: Phase::Waiting(waiting), .. }) = self.entries.get_mut(&local)
        else {
            return Ok(());
        };
        // If this process dies before that the program goes on with the socket as it is.
        let taken = match waiting.stream.ledger().take() {
            false => Err(TakeError::Kept),
            true => read_out(&waiting.socket, &waiting.tuning).and_then(|record| {
                let parcel = sojourn_pump::parcel::pack(&record).map_err(TakeError::Parcel)?;
                Ok((record, parcel))
            }),
        };
        match taken {
            Ok((record, parcel)) => self.lend(local, way, record, parcel),
            Err(error) => {
                waiting.stream.ledger().put_down();
                turn_back(&mut self.links, key, waiting);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives the program what was taken out. `parcel`: the record.
    fn lend(&mut self, local: u64, way: Way, record: SessionRecord, parcel: OwnedFd) {
        let Self { entries, links, sessions, tokens, flows, peer_inboxes, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return };
        let Some(Place { peer_pid, peer_inbox, peer_slot, peer_process, .. }) = entry.place.clone()
        else {
            return;
        };
        let phase = core::mem::replace(&mut entry.phase, Phase::Between);
        let Phase::Waiting(waiting) = phase else { return };
        let Waiting { socket, stream, joined, turned, .. } = *waiting;
        let Some(Turned { ticket, .. }) = turned else { return };
        let Ticket { number: link, owner, socket: packets, port } = ticket;
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
            datagrams: None,
        };
        let inbox = peer_inboxes.descriptors(peer_inbox).unwrap_or_default();
        let kept = Kept { label, region: joined.region, inbox, own: None };
        links.keeping.hold(&kept, peer_process.as_fd(), Some(&socket), parcel.as_fd());
        let hop = hop_of(&way, port);
        let lent = Lent {
            socket,
            stream,
            record,
            token,
            way,
            path: Path::new(now()),
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
        flows.insert(entry.key, local);
        let (packets, record) = (packets.into(), parcel.into());
        let ring = links.ring();
        sessions.lend(local, LendT { local: 0, token, hop, link, packets, ring, record });
    }
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

/// What is to be done next.
#[derive(Clone, Copy)]
enum Step {
    Turn,
    TurnBack,
    Take,
}

/// The session's packets come to the kernel again, if they did not.
pub(super) fn turn_back(links: &mut Links, key: &Key, waiting: &mut Waiting) {
    if let Some(Turned { ticket, way, .. }) = waiting.turned.take() {
        links.give_back(way.interface, ticket.number, key);
    }
}

/// Whether nothing is on its way in the kernel: the program sends no more through it, the peer has
/// acknowledged everything, and there is no gap in what it has sent.
fn is_quiet(Waiting { stream, socket, .. }: &Waiting) -> bool {
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

/// The program at the other side of a stream.
fn program_at(sessions: &dyn Sessions, place: &Place) -> Program {
    let may_have_packets = sessions.may_have_packets(&place.peer_process);
    Program { process: place.peer_process.clone(), may_have_packets }
}

/// Lets packets that have passed the filter already come to rest. The kernel takes a packet from
/// there to its socket without giving the processor to a thread; so once this thread has run on
/// every processor, none is on its way any more.
pub(crate) fn grace() {
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
