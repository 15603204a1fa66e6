//! Back into the kernel: the state of a session, as its library or else the ledger and the rings
//! give it, goes into its socket.
//!
//! Not here: the socket's calls (`work`, `import`), and the requests for a return (`home`,
//! `attend`). Read the head of `carrier` and `docs/understand/moves.md` first.

use super::numbers::last_known;
use super::out::restore_packets;
use crate::carrier::Carrier;
use crate::datagrams;
use crate::import::ImportError;
use crate::joined::JoinedEnds;
use crate::session::{Delegated, FinalState, Leaving, Phase, Session, SocketContent, Way};
use crate::waiting::Waiting;
use crate::work::{Done, GiveUp, PutBack, Work};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_proto::record::{Kind, TcpTuning};
use sojourn_pump::{now, unsent};
use sojourn_session::{LocalNumber, ReasonT};
use sojourn_stream::{Stream, Traffic};
use sojourn_wire::{FlowKey, Protocol};

impl Carrier {
    /// Makes the session the kernel's again, in whatever phase it is.
    pub(crate) fn end(&mut self, local: LocalNumber) {
        self.end_with(local, None);
    }

    /// Does so with its library's knowledge.
    pub(super) fn end_with(&mut self, local: LocalNumber, known: Option<FinalState>) {
        self.timers.set(local, None);
        if let Some(session) = self.table.remove(&local) {
            self.end_taken(local, session, known);
        }
    }

    /// Does so for a session that is not in the table any more.
    pub(super) fn end_taken(
        &mut self,
        local: LocalNumber,
        session: Session,
        known: Option<FinalState>,
    ) {
        self.timers.set(local, None);
        let Session { key, phase } = session;
        let (phase, traffic) = match phase {
            Phase::Offered { .. } | Phase::UdpOffered(_) => (phase, Traffic::default()),
            Phase::Queued(queued) => {
                // As one that has just begun, of which nothing is to be undone.
                let waiting = Box::new(queued.into_waiting(now(), TcpTuning::default()));
                let session = Session { key, phase: Phase::Waiting(waiting) };
                return self.end_taken(local, session, known);
            }
            Phase::Waiting(mut waiting) => {
                let probes = restore_packets(&mut self.links, &key, &mut waiting);
                let Waiting { socket, stream, ends, reports, .. } = *waiting;
                let left = give_up(&stream);
                let is_over = !probes && !reports && left.is_empty();
                let leaving = Leaving { stream, ends, way: Way::GivenUp };
                if is_over {
                    return self.left(local, key, leaving, Done::GivenUp { is_whole: true });
                }
                let work = Work::GiveUp(GiveUp { probes, reports, left });
                return self.last_work(local, key, leaving, socket, work);
            }
            Phase::Delegated(delegated) => return self.put_back(local, key, delegated, known),
            Phase::Working(mut working) => {
                working.asked.end = true;
                let phase = Phase::Working(working);
                return drop(self.table.insert(local, Session { key, phase }));
            }
            Phase::UdpWaiting(waiting) => {
                datagrams::let_go(&waiting.stream);
                (Phase::UdpWaiting(waiting), Traffic::default())
            }
            Phase::UdpDelegated(delegated) => {
                let traffic = self.end_datagrams(&delegated);
                (Phase::UdpDelegated(delegated), traffic)
            }
        };
        let session = Session { key, phase };
        let reason = session.called_home_for();
        self.forget(local, session.ends(), reason, traffic);
    }

    /// Forgets a session that is the kernel's.
    fn forget(
        &mut self,
        local: LocalNumber,
        ends: Option<&JoinedEnds>,
        reason: Option<ReasonT>,
        traffic: Traffic,
    ) {
        self.sessions.left(local, reason.unwrap_or(ReasonT::PeerLeft), traffic);
        if let Some(ends) = ends {
            self.slots.remove(&ends.own);
            self.peer_inboxes.close(ends.peer.inbox);
            if let Some(inbox) = self.inboxes.close(ends.own.inbox) {
                let _ = rustix::event::epoll::delete(&self.set, inbox.attention_fd());
            }
        }
    }

    /// Goes on with a session whose socket has all that the carrier could put there.
    pub(super) fn left(&mut self, local: LocalNumber, key: Key, leaving: Leaving, done: Done) {
        let Leaving { stream, ends, way } = leaving;
        let mut traffic = Traffic::default();
        match way {
            Way::Lost => {}
            // A program's side that has lost the carrier does this itself.
            Way::GivenUp if stream.ledger().is_kept() => {}
            Way::GivenUp => {
                // If some bytes remain the program's side takes the session for reset.
                match done {
                    Done::GivenUp { is_whole: true } => stream.set_flushed(0),
                    _ => stream.ledger().lose(),
                }
                stream.attention();
                stream.notify_peer();
            }
            Way::PutBack { fd_name, .. } => {
                // The keeper has had the session so far, so that the next server goes on if this
                // one dies. Its duplicate goes before the program is told, whose close has to be
                // the last.
                self.links.keeping.release(&fd_name);
                let imported = match done {
                    Done::PutBack(imported) => imported,
                    _ => Err(ImportError::State),
                };
                if let (Ok(()), Some(target)) = (&imported, key.remote()) {
                    let flow = FlowKey { protocol: Protocol::Tcp, source: key.local(), target };
                    self.returned.add(fd_name.token, flow, now());
                }
                self.tell_outcome(&key, &stream, imported);
                let Traffic { sent: received, received: sent } = stream.published_totals();
                traffic = Traffic { sent, received };
            }
        }
        let reason = ReasonT::from_number(stream.ledger().reason());
        self.forget(local, Some(&ends), reason, traffic);
    }

    /// Tells the program's side whether it may go on with its socket.
    fn tell_outcome(&self, key: &Key, stream: &Stream, imported: Result<(), ImportError>) {
        match imported {
            Ok(()) => stream.set_flushed(stream.own_leftover().unwrap_or(0)),
            // The program's side takes the session for reset.
            Err(error) => {
                stream.ledger().lose();
                // With these errors the peer itself has ended the connection.
                if !matches!(error, ImportError::System(_, Errno::CONNRESET | Errno::PIPE)) {
                    self.sessions.warn(format_args!("{:?}: not put back: {error}", key));
                }
            }
        }
        stream.attention();
        stream.notify_peer();
    }

    /// Has an assistant put a session back into its socket.
    fn put_back(
        &mut self,
        local: LocalNumber,
        key: Key,
        delegated: Box<Delegated>,
        known: Option<FinalState>,
    ) {
        self.tokens.remove(&delegated.token);
        self.flows.remove(&key);
        delegated.stream.freeze();
        let is_whole = delegated.content == SocketContent::Whole;
        let taken_at = match &delegated.record.kind {
            Kind::Tcp(tcp) if !is_whole && !delegated.stream.ledger().is_lost() => tcp.rcv_nxt,
            _ => return self.leave_socket(local, key, *delegated),
        };
        let unknown = || FinalState { record: last_known(&delegated), has_ended: false };
        let FinalState { record, has_ended } = known.unwrap_or_else(unknown);
        let is_rebuilt = delegated.content == SocketContent::Rebuilt;
        let is_bypassed = !is_rebuilt && self.begin_absence(&key, &delegated);
        let Delegated { socket, stream, ends, kept, next_hop, link, .. } = *delegated;
        let (fd_name, interface) = (kept.fd_name, next_hop.interface);
        let way = Way::PutBack { fd_name, interface, link, is_heard: is_rebuilt };
        let state = PutBack { record, has_ended, taken_at, is_bypassed, is_rebuilt, key };
        let work = Work::PutBack(Box::new(state));
        self.last_work(local, key, Leaving { stream, ends, way }, socket, work);
    }

    /// Lets go of a session whose socket stays as it is: the socket has everything, or the program
    /// has waited for the carrier in vain, and has taken the session for reset.
    fn leave_socket(&mut self, local: LocalNumber, key: Key, delegated: Delegated) {
        let Delegated { socket, stream, ends, kept, next_hop, link, content, .. } = delegated;
        self.links.keeping.release(&kept.fd_name);
        if content != SocketContent::Rebuilt {
            self.links.give_back(next_hop.interface, link, &key);
        }
        let (way, work) = if stream.ledger().is_lost() {
            (Way::Lost, Work::StopReports)
        } else {
            let left = give_up(&stream);
            (Way::GivenUp, Work::GiveUp(GiveUp { probes: true, reports: true, left }))
        };
        self.last_work(local, key, Leaving { stream, ends, way }, socket, work);
    }
}

/// Gives up a session that was never taken out. Returns the bytes that the program has written to
/// the stream, and that have to go into the kernel.
fn give_up(stream: &Stream) -> Vec<u8> {
    stream.freeze();
    // A program's side that has lost the carrier does this itself.
    match !stream.ledger().close() && stream.ledger().is_kept() {
        true => Vec::new(),
        false => unsent(stream, 0),
    }
}
