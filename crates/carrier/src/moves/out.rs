//! Out of the kernel, step by step: quiet, taken out of the socket and delegated.
//!
//! Not here: offers (`offer`), joins and their order (`join`), reading the socket's state (`work`,
//! `export`). Read the head of `carrier` and `docs/understand/moves.md` first.

use crate::carrier::Carrier;
use crate::clock::later;
use crate::export::{ExportError, needs_release};
use crate::fd_name::Kept;
use crate::hasten::Nudge;
use crate::links::{Links, Ticket};
use crate::metastate::NextHop;
use crate::next_hop::{hop_of, next_hop_of};
use crate::quiesce::{TAKE_EVERY_US, TAKE_LIMIT_US, wait_for_softirqs};
use crate::session::{Delegated, Export, Outcome, Parked, Phase, Session, SocketContent, token};
use crate::sockets::InterfaceError;
use crate::too_big::PathMtu;
use crate::waiting::{Redirection, Waiting};
use crate::work::{Done, Finished, TakeOutError, Work};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::{Failed, Key};
use sojourn_proto::record::SessionRecord;
use sojourn_proto::time::Instant;
use sojourn_pump::{now, sealed};
use sojourn_session::{DelegateT, LocalNumber};
use std::sync::Arc;

/// How long the program has to give up the kernel while its packets still come there
/// (microseconds), and while it has bytes to read there. After that nothing more comes, and the
/// record takes what the program has not read.
const ASK_LIMIT_US: u64 = 2_000;
/// How long a session may be deaf because its program does not give up the kernel (microseconds).
/// After that the kernel gets its packets again, until the program does.
const DEAF_LIMIT_US: u64 = 20_000;

impl Carrier {
    /// Takes a session a step further out of the kernel, if the conditions hold.
    pub(super) fn step_out(&mut self, key: &Key, mut waiting: Box<Waiting>) -> Outcome {
        let at = now();
        let is_late = at >= later(waiting.since, TAKE_LIMIT_US);
        // This server ends, or the program's side has called the session home, or the program has
        // not been quiet for long enough to take it out.
        if self.is_leaving || waiting.stream.is_frozen() || is_late {
            return Outcome::End(Phase::Waiting(waiting));
        }
        if waiting.stream.peer_uses_ring() {
            if let Some(nudge) = waiting.hastening.step(&waiting.socket, at) {
                return Outcome::Work(Parked::Nudged(waiting), Work::Nudge(nudge));
            }
        } else if waiting.stream.has_consent() && !waiting.asked_to_switch {
            // The program may write seldom, so it switches without a write now that its reader has
            // left the kernel.
            waiting.asked_to_switch = true;
            waiting.stream.attention();
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
            Transition::Ask => Ok(Turned::Away),
            Transition::Turn => self.turn_if_quiet(key, next_hop, &mut waiting),
            Transition::TurnBack => {
                restore_packets(&mut self.links, key, &mut waiting);
                waiting.was_deaf = true;
                Ok(Turned::Back)
            }
            Transition::Take => match self.begin_taking(key, next_hop, &mut waiting) {
                Ok(Some(export)) => {
                    let work = Work::Take(Box::new(waiting.tuning));
                    return Outcome::Work(Parked::TakenOut(waiting, Box::new(export)), work);
                }
                Ok(None) => Ok(Turned::Back),
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(Turned::Away) => Outcome::Look(Phase::Waiting(waiting), again),
            Ok(Turned::Back) => ask_peer(waiting),
            Err(error) => {
                self.complain(key, &error);
                Outcome::End(Phase::Waiting(waiting))
            }
        }
    }

    /// Tells the administrator why a session was not taken out, where that is of interest.
    fn complain(&self, key: &Key, error: &TakeError) {
        // The program has kept the session, having lost the carrier; or the connection was closed
        // meanwhile, and the kernel knows best what that means to the program.
        if !matches!(error, TakeError::Kept | TakeError::Export(ExportError::State)) {
            self.sessions.warn(format_args!("{key:?}: not taken out: {error}"));
        }
    }

    /// Turns the packets away from the kernel, so that the program's side, which was asked to give
    /// up the kernel, finds an end to what is there.
    fn turn_if_quiet(
        &mut self,
        key: &Key,
        next_hop: NextHop,
        waiting: &mut Waiting,
    ) -> Result<Turned, TakeError> {
        waiting.turned = Some(self.turn(key, next_hop, waiting)?);
        // A program that does not read what it has may not do so before it has sent something.
        waiting.stream.ledger().urge();
        if waiting.socket.is_hung_up() {
            // The packets are another socket's, or nobody's.
            restore_packets(&mut self.links, key, waiting);
            return Err(TakeError::Export(ExportError::State));
        }
        // Packets on their way past the filter may have left a gap, which nothing would fill any
        // more.
        let is_quiet = is_quiet(waiting);
        if !is_quiet {
            restore_packets(&mut self.links, key, waiting);
        }
        waiting.stream.attention();
        Ok(if is_quiet { Turned::Away } else { Turned::Back })
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

    /// Turns the session's packets away, if they are not, has the keeper hold the session, and
    /// takes it in the ledger: its state can be read out of the socket. `None`: the packets are
    /// the kernel's again.
    fn begin_taking(
        &mut self,
        key: &Key,
        next_hop: NextHop,
        waiting: &mut Waiting,
    ) -> Result<Option<Export>, TakeError> {
        match &waiting.turned {
            // The packets are turned away on an interface that is no longer the right one.
            Some(turned) if turned.next_hop.interface != next_hop.interface => {
                restore_packets(&mut self.links, key, waiting);
                return Ok(None);
            }
            Some(_) => {}
            None => {
                if self.turn_if_quiet(key, next_hop.clone(), waiting)? == Turned::Back {
                    return Ok(None);
                }
            }
        }
        let Some(Redirection { ticket, .. }) = &waiting.turned else { return Ok(None) };
        let Waiting { socket, joined, ends, .. } = &*waiting;
        let file = sealed::empty().map_err(TakeError::Seal)?;
        // Nothing may fail any more once the socket has been read.
        let sealed = rustix::io::fcntl_dupfd_cloexec(&file, 0).map_err(TakeError::Seal)?;
        let fd_name = joined.fd_name(token(), ends, ticket, next_hop.interface);
        let inbox = self.peer_inboxes.descriptors(ends.peer.inbox).unwrap_or_default();
        let kept = Kept { fd_name, region: joined.region.clone(), inbox, own: None };
        let (process, socket) = (ends.peer_process.as_fd(), socket.descriptor().as_fd());
        self.links.keeping.hold(&kept, process, Some(socket), file.as_fd());
        // If this process dies before this mark, the program goes on with the socket as it is;
        // after it, the next server knows what to do from the file that the keeper has.
        if !waiting.stream.ledger().take() {
            self.links.keeping.release(&kept.fd_name);
            return Err(TakeError::Kept);
        }
        Ok(Some(Export { next_hop, file: Arc::new(file), sealed, kept }))
    }

    /// Goes on with a session whose state an assistant has read, or has not.
    pub(super) fn taken_out(
        &mut self,
        local: LocalNumber,
        key: Key,
        mut waiting: Box<Waiting>,
        export: Box<Export>,
        done: Done,
    ) {
        match record_of(done) {
            Ok(record) if needs_release(&record) => {
                waiting.reports = true;
                let work = Work::Release(record);
                self.work(local, key, Parked::Released(waiting, export), work);
            }
            Ok(record) => {
                waiting.reports = true;
                self.delegate(local, key, waiting, *export, TakenOut { record, file: None });
            }
            Err(error) => self.put_down(local, key, waiting, &export.kept, error),
        }
    }

    /// Goes on with a session out of whose socket an assistant has taken what the record has, or
    /// has not.
    pub(super) fn released(
        &mut self,
        local: LocalNumber,
        key: Key,
        waiting: Box<Waiting>,
        export: Box<Export>,
        Finished { done, file }: Finished,
    ) {
        match record_of(done) {
            Ok(record) => self.delegate(local, key, waiting, *export, TakenOut { record, file }),
            Err(error) => self.put_down(local, key, waiting, &export.kept, error),
        }
    }

    /// Goes on with a session that was not taken out, and is to be tried again or given up.
    fn put_down(
        &mut self,
        local: LocalNumber,
        key: Key,
        mut waiting: Box<Waiting>,
        kept: &Kept,
        error: TakeError,
    ) {
        waiting.stream.ledger().put_down();
        self.links.keeping.release(&kept.fd_name);
        if matches!(error, TakeError::Export(ExportError::Busy(_))) {
            restore_packets(&mut self.links, &key, &mut waiting);
            return self.work(local, key, Parked::Nudged(waiting), Work::Nudge(Nudge::Ask));
        }
        self.complain(&key, &error);
        self.end_taken(local, Session { key, phase: Phase::Waiting(waiting) }, None);
    }

    /// Delegates the session that was taken out to the program.
    fn delegate(
        &mut self,
        local: LocalNumber,
        key: Key,
        mut waiting: Box<Waiting>,
        Export { next_hop, sealed, kept, .. }: Export,
        TakenOut { record, file: changed }: TakenOut,
    ) {
        let Some(Redirection { ticket, .. }) = waiting.turned.take() else {
            return self.put_down(local, key, waiting, &kept, TakeError::NoAnswer);
        };
        let Self { links, sessions, tokens, flows, .. } = self;
        let Waiting { socket, stream, ends, .. } = *waiting;
        let Ticket { link, socket: packets, port, .. } = ticket;
        let token = kept.fd_name.token;
        tokens.insert(token, local);
        flows.insert(key, local);
        let what = DelegateT {
            local: 0,
            token: token.0,
            hop: hop_of(&next_hop, port),
            link: link.0,
            packets: packets.into(),
            ring: links.ring(),
            xdp: links.take_xdp(next_hop.interface, link),
            record: changed.unwrap_or(sealed).into(),
        };
        sessions.delegate(local, what);
        let delegated = Delegated {
            cookie: socket.cookie(),
            socket,
            stream,
            ends,
            record: *record,
            token,
            next_hop,
            path: PathMtu::new(now()),
            link,
            port,
            is_cut: false,
            frozen_at: None,
            kept,
            is_known: true,
            home_by: None,
            content: SocketContent::Old,
        };
        self.table.insert(local, Session { key, phase: Phase::Delegated(Box::new(delegated)) });
        self.timers.set(local, None);
    }
}

/// The state of a session that is out of its socket.
struct TakenOut {
    record: Box<SessionRecord>,
    /// A file with the record, if that has changed since the keeper's was sealed.
    file: Option<OwnedFd>,
}

/// Returns the record of an assistant's answer.
fn record_of(done: Done) -> Result<Box<SessionRecord>, TakeError> {
    match done {
        Done::Taken(taken) => taken.map_err(TakeError::from),
        _ => Err(TakeError::NoAnswer),
    }
}

/// The reason why a session was not taken out.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeError {
    #[error(transparent)]
    Link(#[from] InterfaceError),
    #[error(transparent)]
    Unfiltered(Failed),
    #[error(transparent)]
    Export(ExportError),
    #[error("the record cannot be passed on: {0}")]
    Seal(Errno),
    #[error("the program has kept it")]
    Kept,
    #[error("the thread that read it has ended")]
    NoAnswer,
}

impl From<TakeOutError> for TakeError {
    fn from(error: TakeOutError) -> Self {
        match error {
            TakeOutError::Unfiltered(error) => Self::Unfiltered(error),
            TakeOutError::Export(error) => Self::Export(error),
            TakeOutError::Seal(error) => Self::Seal(error),
        }
    }
}

/// Where a session's packets go after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turned {
    Away,
    /// To the kernel again, so that the peer is to be asked.
    Back,
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

/// Gives the session's packets back to the kernel, if they were turned away. Returns true if they
/// were: a segment that has come meanwhile is lost, and a peer sends a reset once, so that a
/// program that only receives would never hear of it. So the peer has to be asked with a window
/// probe, which a connection that is no more answers with another reset.
pub(super) fn restore_packets(links: &mut Links, key: &Key, waiting: &mut Waiting) -> bool {
    let turned = waiting.turned.take();
    if let Some(Redirection { ticket, next_hop, .. }) = &turned {
        links.give_back(next_hop.interface, ticket.link, key);
    }
    turned.is_some()
}

/// Has the peer asked what it has, before the session goes on.
fn ask_peer(waiting: Box<Waiting>) -> Outcome {
    Outcome::Work(Parked::Nudged(waiting), Work::Nudge(Nudge::Ask))
}

/// Returns true if nothing is on its way in the kernel: the program sends no more through it, the
/// peer has acknowledged everything, and there is no gap in the peer's bytes.
fn is_quiet(Waiting { stream, socket, .. }: &Waiting) -> bool {
    stream.peer_uses_ring() && socket.not_acknowledged() == Ok(0) && !socket.seems_to_have_a_gap()
}
