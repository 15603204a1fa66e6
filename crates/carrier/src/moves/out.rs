//! Out of the kernel, step by step: offered, joined, quiet, taken out of the socket and delegated.
//!
//! Not here: reading the socket's state (`export`). Read the head of `carrier` and
//! `docs/understand/moves.md` first.

use crate::carrier::{Carrier, OpenedJoin};
use crate::clock::later;
use crate::datagrams;
use crate::export::{ExportError, addresses, export, has_filter, has_gap, release};
use crate::fd_name::Kept;
use crate::hasten::Hastening;
use crate::links::{Links, Ticket};
use crate::metastate::NextHop;
use crate::next_hop::{hop_of, next_hop_of};
use crate::quiesce::{RING_BYTES, TAKE_EVERY_US, TAKE_LIMIT_US, wait_for_softirqs};
use crate::raw::{self, SIOCOUTQ};
use crate::repair;
use crate::session::{
    Delegated, JoinedStream, Outcome, Phase, Redirection, Session, Waiting, token,
};
use crate::sockets::InterfaceError;
use crate::too_big::PathMtu;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use sojourn_filter::{Failed, Key};
use sojourn_proto::record::SessionRecord;
use sojourn_proto::time::Instant;
use sojourn_pump::now;
use sojourn_pump::sealed::pack;
use sojourn_session::{DelegateT, HomeT, JoinT, LocalNumber, OfferT, ReasonT, StreamNumber};
use sojourn_stream::Traffic;
use sojourn_wire::{Protocol, SocketCookie};

/// How long the program has to give up the kernel while its packets still come there
/// (microseconds), and while it has bytes to read there. After that nothing more comes, and the
/// record takes what the program has not read.
const ASK_LIMIT_US: u64 = 2_000;
/// How long a session may be deaf because its program does not give up the kernel (microseconds).
/// After that the kernel gets its packets again, until the program does.
const DEAF_LIMIT_US: u64 = 20_000;

/// The record of a socket, and the file with it.
struct SealedRecord {
    record: SessionRecord,
    sealed: OwnedFd,
}

impl Carrier {
    pub(super) fn offer(&mut self, socket: OwnedFd) {
        let local = self.next_local();
        let what = OfferT {
            local: local.0,
            set: 0,
            ring_bytes: RING_BYTES,
            is_sole: true,
            home: HomeT::Library,
        };
        if datagrams::is_of_datagrams(&socket) {
            return self.offer_datagrams(local, &what, socket);
        }
        let key = addresses(socket.as_fd())
            .ok()
            .and_then(|found| Key::new(Protocol::Tcp, found.local, Some(found.remote)).ok());
        let is_translated =
            |key| self.conntrack.as_mut().is_some_and(|known| known.standing(key).is_translated);
        if key.as_ref().is_some_and(is_translated) {
            return self.sessions.decline(socket.as_fd(), ReasonT::Translated);
        }
        if has_filter(socket.as_fd()) {
            return self.sessions.decline(socket.as_fd(), ReasonT::Option);
        }
        self.update_rules(now());
        let next_hop = key.as_ref().and_then(|key| next_hop_of(&mut self.metastate, key));
        if key
            .as_ref()
            .is_some_and(|key| next_hop.is_some() && self.is_filtered(key, next_hop.as_ref()))
        {
            return self.sessions.decline(socket.as_fd(), ReasonT::Firewall);
        }
        self.sessions.offer(socket.as_fd(), &what);
        match key {
            // An event tells the outcome.
            Some(key) if !self.is_leaving && next_hop.is_some() => {
                self.table.insert(local, Session { key, phase: Phase::Offered { socket } });
            }
            // The server tells the program.
            _ => self.sessions.left(local, ReasonT::NoPeer, Traffic::default()),
        }
    }

    pub(super) fn joined(&mut self, join: &JoinT) {
        let local = LocalNumber(join.local);
        let opened = self.open(join);
        let Some(Session { key, phase }) = self.table.remove(&local) else {
            self.sessions.left(local, ReasonT::Closed, Traffic::default());
            return;
        };
        let joined = JoinedStream {
            stream: StreamNumber(join.stream),
            side: join.side,
            ring_bytes: join.ring_bytes,
            region: join.region.clone(),
        };
        let place = opened.as_ref().map(|opened| opened.ends.own);
        let phase = match (opened, phase) {
            (Some(opened), Phase::Offered { socket }) => self.begin(&key, socket, joined, opened),
            (Some(opened), Phase::UdpOffered(plan)) => Self::begin_datagrams(*plan, joined, opened),
            _ => return self.sessions.left(local, ReasonT::Resources, Traffic::default()),
        };
        self.slots.extend(place.map(|place| (place, local)));
        self.table.insert(local, Session { key, phase });
        self.timers.set(local, Some(now()));
    }

    /// Begins with a session that is joined.
    fn begin(
        &mut self,
        key: &Key,
        socket: OwnedFd,
        joined: JoinedStream,
        OpenedJoin { stream, ends }: OpenedJoin,
    ) -> Phase {
        // Filter and socket are made now, while the program still has the kernel in both
        // directions. A failure shows again later, and is reported then.
        if let Some(next_hop) = next_hop_of(&mut self.metastate, key) {
            let program = self.program_at(&ends);
            let _ = self.links.prepare(&next_hop, program);
        }
        self.load_unfiltered();
        // The program's side may send to its ring from now on, and then says so. For the time being
        // it receives from the kernel: the acknowledgement of the bytes sent takes a round trip or
        // more.
        stream.consent();
        stream.attention();
        let since = now();
        // Reading the settings takes a while, and nothing waits for the session yet.
        let tuning = crate::tuning::read();
        let waiting = Waiting {
            socket,
            stream,
            joined,
            ends,
            since,
            tuning,
            asked_at: None,
            turned: None,
            was_deaf: false,
            asked_to_switch: false,
            hastening: Hastening::default(),
        };
        Phase::Waiting(Box::new(waiting))
    }

    /// Takes a session a step further out of the kernel, if the conditions hold.
    pub(super) fn step_out(
        &mut self,
        local: LocalNumber,
        key: &Key,
        mut waiting: Box<Waiting>,
    ) -> Outcome {
        let at = now();
        let stream = &waiting.stream;
        // This server ends, or the program's side has called the session home, or the program has
        // not been quiet for long enough to take it out.
        if self.is_leaving || stream.is_frozen() || at >= later(waiting.since, TAKE_LIMIT_US) {
            return Outcome::End(Phase::Waiting(waiting));
        }
        if stream.peer_uses_ring() {
            waiting.hastening.step(&waiting.socket, at);
        } else if stream.has_consent() && !waiting.asked_to_switch {
            // The program may write seldom, so it switches without a write now that its reader has
            // left the kernel.
            waiting.asked_to_switch = true;
            stream.attention();
        }
        let again = Some(later(at, TAKE_EVERY_US));
        let Some(step) = transition(&waiting, at) else {
            return Outcome::Look(Phase::Waiting(waiting), again);
        };
        if step == Transition::Ask {
            ask(&mut waiting, at);
            return Outcome::Look(Phase::Waiting(waiting), again);
        }
        let Some(next_hop) = next_hop_of(&mut self.metastate, key) else {
            return Outcome::End(Phase::Waiting(waiting));
        };
        let done = match step {
            Transition::Ask => Ok(()),
            Transition::Turn => self.turn_if_quiet(key, next_hop, &mut waiting),
            Transition::TurnBack => {
                restore_packets(&mut self.links, key, &mut waiting);
                waiting.was_deaf = true;
                Ok(())
            }
            Transition::Take => match self.take(key, next_hop, &mut waiting) {
                Ok(taken) => {
                    let delegated = self.delegate(local, key, *waiting, taken);
                    return Outcome::Look(Phase::Delegated(Box::new(delegated)), None);
                }
                Err(error) => Err(error),
            },
        };
        let phase = Phase::Waiting(waiting);
        match done {
            Ok(()) | Err(TakeError::Export(ExportError::Busy(_))) => Outcome::Look(phase, again),
            // The program has kept the session, having lost the carrier; or the connection was
            // closed meanwhile, and the kernel knows best what that means to the program.
            Err(TakeError::Kept | TakeError::Export(ExportError::State)) => Outcome::End(phase),
            Err(error) => {
                self.sessions.warn(format_args!("{key:?}: not taken out: {error}"));
                Outcome::End(phase)
            }
        }
    }

    /// Turns the packets away from the kernel, so that the program's side, which was asked to give
    /// up the kernel, finds an end to what is there.
    fn turn_if_quiet(
        &mut self,
        key: &Key,
        next_hop: NextHop,
        waiting: &mut Waiting,
    ) -> Result<(), TakeError> {
        waiting.turned = Some(self.turn(key, next_hop, waiting)?);
        // A program that does not read what it has may not do so before it has sent something.
        waiting.stream.ledger().urge();
        // Packets on their way past the filter may have left a gap, which nothing would fill any
        // more.
        if !is_quiet(waiting) {
            restore_packets(&mut self.links, key, waiting);
        }
        waiting.stream.attention();
        Ok(())
    }

    /// Turns the session's packets away from the kernel.
    fn turn(
        &mut self,
        key: &Key,
        next_hop: NextHop,
        waiting: &Waiting,
    ) -> Result<Redirection, TakeError> {
        let program = self.program_at(&waiting.ends);
        self.conntrack.iter_mut().for_each(|known| known.accept_any_sequence(key));
        let ticket = self.links.take(&next_hop, program, *key)?;
        let turned = Redirection { ticket, next_hop, since: now() };
        wait_for_softirqs();
        self.links.settle(turned.next_hop.interface, key);
        Ok(turned)
    }

    /// Reads the connection's state out of the socket. After a failure the session's packets are
    /// the kernel's again.
    fn take(
        &mut self,
        key: &Key,
        next_hop: NextHop,
        waiting: &mut Waiting,
    ) -> Result<ExportedSession, TakeError> {
        // The packets may be turned away on an interface that is no longer the right one.
        if waiting
            .turned
            .as_ref()
            .is_some_and(|turned| turned.next_hop.interface != next_hop.interface)
        {
            restore_packets(&mut self.links, key, waiting);
        }
        if waiting.turned.is_none() {
            self.turn_if_quiet(key, next_hop.clone(), waiting)?;
        }
        let Some(turned) = waiting.turned.take() else {
            return Err(TakeError::Export(ExportError::Busy("packets are on their way")));
        };
        // If this process dies before this mark, the program goes on with the socket as it is.
        let taken = match waiting.stream.ledger().take() {
            false => Err(TakeError::Kept),
            true => self.read_out(waiting),
        };
        match taken {
            Ok(SealedRecord { record, sealed }) => {
                Ok(ExportedSession { ticket: turned.ticket, next_hop, record, sealed })
            }
            Err(error) => {
                waiting.stream.ledger().put_down();
                waiting.turned = Some(turned);
                restore_packets(&mut self.links, key, waiting);
                Err(error)
            }
        }
    }

    /// Reads the record of the socket, with the bytes that the program has not read, and makes a
    /// file of it. The socket loses its bytes when the file is there: whatever fails before that
    /// harms nothing.
    fn read_out(&self, waiting: &Waiting) -> Result<SealedRecord, TakeError> {
        let socket = waiting.socket.as_fd();
        // A segment that reaches the socket later is not in the record.
        self.report_unfiltered(&waiting.socket)?;
        let read = || {
            let mut record = export(socket, &waiting.tuning)?;
            let sealed = pack(&record).map_err(TakeError::Seal)?;
            // Without another file the engine knows a little less of the window that the peer was
            // told.
            let sealed = match release(socket, &mut record)? {
                true => pack(&record).unwrap_or(sealed),
                false => sealed,
            };
            Ok(SealedRecord { record, sealed })
        };
        read().inspect_err(|_| self.stop_reports(&waiting.socket))
    }

    /// Delegates the session that was taken out to the program.
    fn delegate(
        &mut self,
        local: LocalNumber,
        key: &Key,
        waiting: Waiting,
        taken: ExportedSession,
    ) -> Delegated {
        let Self { links, sessions, tokens, flows, peer_inboxes, .. } = self;
        let Waiting { socket, stream, joined, ends, .. } = waiting;
        let ExportedSession { ticket, next_hop, record, sealed } = taken;
        let token = token();
        let fd_name = joined.fd_name(token, &ends, &ticket, next_hop.interface);
        let Ticket { link, socket: packets, port, .. } = ticket;
        let inbox = peer_inboxes.descriptors(ends.peer.inbox).unwrap_or_default();
        let kept = Kept { fd_name, region: joined.region, inbox, own: None };
        links.keeping.hold(&kept, ends.peer_process.as_fd(), Some(&socket), sealed.as_fd());
        tokens.insert(token, local);
        flows.insert(*key, local);
        let (hop, ring) = (hop_of(&next_hop, port), links.ring());
        let (packets, sealed) = (packets.into(), sealed.into());
        let xdp = links.take_xdp(next_hop.interface, link);
        let cookie = sockopt::socket_cookie(&socket).map_or(SocketCookie::NONE, SocketCookie);
        sessions.delegate(
            local,
            DelegateT {
                local: 0,
                token: token.0,
                hop,
                link: link.0,
                packets,
                ring,
                xdp,
                record: sealed,
            },
        );
        Delegated {
            socket,
            stream,
            ends,
            record,
            token,
            next_hop,
            path: PathMtu::new(now()),
            link,
            port,
            is_cut: false,
            frozen_at: None,
            cookie,
            kept,
            is_known: true,
            home_by: None,
        }
    }
}

/// A session that is out of its socket: the way of its packets, and its state.
struct ExportedSession {
    ticket: Ticket,
    next_hop: NextHop,
    record: SessionRecord,
    /// A file with the record.
    sealed: OwnedFd,
}

/// The reason why a session was not taken out.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error(transparent)]
    Link(#[from] InterfaceError),
    #[error(transparent)]
    Unfiltered(#[from] Failed),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("the record cannot be passed on: {0}")]
    Seal(Errno),
    #[error("the program has kept it")]
    Kept,
}

/// The next step of a session on its way out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transition {
    Ask,
    Turn,
    TurnBack,
    Take,
}

/// Chooses the next step; `None` if nothing can be done yet.
fn transition(waiting: &Waiting, at: Instant) -> Option<Transition> {
    let Waiting { stream, turned, asked_at, was_deaf, .. } = waiting;
    if stream.ledger().has_given_up() {
        // Once the packets are turned away nothing can be on its way any more: see `turn`.
        return (turned.is_some() || is_quiet(waiting)).then_some(Transition::Take);
    }
    if let Some(turned) = turned {
        let is_deaf_for_long = at >= later(turned.since, DEAF_LIMIT_US);
        return is_deaf_for_long.then_some(Transition::TurnBack);
    }
    // A program that did not answer in time while its packets were turned away is not made deaf
    // once more (`was_deaf`).
    let step = match asked_at {
        None if stream.has_consent() => Transition::Ask,
        Some(asked) if !was_deaf && at >= later(*asked, ASK_LIMIT_US) => Transition::Turn,
        _ => return None,
    };
    is_quiet(waiting).then_some(step)
}

/// Has the program's side give up the kernel as soon as it finds nothing there. Bytes that come
/// after that are exported with the socket's state, so the packets need not be turned away yet:
/// nobody hears them from then on until the program has answered.
fn ask(waiting: &mut Waiting, at: Instant) {
    waiting.asked_at = Some(at);
    waiting.stream.use_ring();
    waiting.stream.attention();
}

/// Gives the session's packets back to the kernel, if they were turned away. A segment that has
/// come meanwhile is lost, and a peer sends a reset once: a program that only receives would never
/// hear of it. So the peer is asked with a window probe, which a connection that is no more answers
/// with another reset.
pub(super) fn restore_packets(links: &mut Links, key: &Key, waiting: &mut Waiting) {
    if let Some(Redirection { ticket, next_hop, .. }) = waiting.turned.take() {
        links.give_back(next_hop.interface, ticket.link, key);
        // A socket that is not connected any more refuses this, and has been told.
        let _ = repair::probe(waiting.socket.as_fd());
    }
}

/// Returns true if nothing is on its way in the kernel: the program sends no more through it, the
/// peer has acknowledged everything, and there is no gap in the peer's bytes.
fn is_quiet(Waiting { stream, socket, .. }: &Waiting) -> bool {
    stream.peer_uses_ring() && raw::queue_len(socket, SIOCOUTQ) == Ok(0) && !has_gap(socket.as_fd())
}
