//! Back into the kernel: the state of a session, as its library or else the ledger and the rings
//! give it, goes into its socket.
//!
//! Not here: the socket's calls (`import`), and the requests for a return (`home`, `attend`). Read
//! the head of `carrier` and `docs/understand/moves.md` first.

use super::numbers::{add_unexported, last_known};
use super::out::restore_packets;
use crate::carrier::Carrier;
use crate::datagrams;
use crate::import::{ImportError, Room, import};
use crate::replay;
use crate::session::{Delegated, FinalState, Phase, Session};
use crate::unfiltered;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sojourn_filter::Key;
use sojourn_proto::record::Kind;
use sojourn_pump::{now, unsent};
use sojourn_session::{LocalNumber, ReasonT};
use sojourn_stream::{Stream, Traffic};
use sojourn_wire::{FlowKey, Protocol};

/// How long the kernel may take to accept the bytes that a program has written.
const FLUSH_LIMIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

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
        let ends = session.ends().cloned();
        let reason = session.called_home_for().unwrap_or(ReasonT::PeerLeft);
        let Session { key, phase } = session;
        let traffic = match phase {
            Phase::Offered { .. } | Phase::UdpOffered(_) => Traffic::default(),
            Phase::Waiting(mut waiting) => {
                restore_packets(&mut self.links, &key, &mut waiting);
                give_up(&waiting.socket, &waiting.stream);
                Traffic::default()
            }
            Phase::Delegated(delegated) => self.put_back(&key, &delegated, known),
            Phase::UdpWaiting(waiting) => {
                datagrams::let_go(&waiting.stream);
                Traffic::default()
            }
            Phase::UdpDelegated(delegated) => self.end_datagrams(&delegated),
        };
        self.sessions.left(local, reason, traffic);
        if let Some(ends) = ends {
            self.slots.remove(&ends.own);
            self.peer_inboxes.close(ends.peer.inbox);
            if let Some(inbox) = self.inboxes.close(ends.own.inbox) {
                let _ = rustix::event::epoll::delete(&self.set, inbox.attention_fd());
            }
        }
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

    /// Puts a session back into its socket. Returns what the program has sent and received while it
    /// was away.
    fn put_back(&mut self, key: &Key, delegated: &Delegated, known: Option<FinalState>) -> Traffic {
        self.tokens.remove(&delegated.token);
        self.flows.remove(key);
        // The keeper's duplicate goes first: the program's close has to be the last.
        self.links.keeping.release(&delegated.kept.fd_name);
        let stream = &delegated.stream;
        stream.freeze();
        if stream.ledger().is_lost() {
            // The program has waited for the carrier in vain, and has taken the session for reset.
            self.links.give_back(delegated.next_hop.interface, delegated.link, key);
            self.stop_reports(&delegated.socket);
            return Traffic::default();
        }
        let unknown = || FinalState { record: last_known(delegated), has_ended: false };
        let FinalState { mut record, has_ended } = known.unwrap_or_else(unknown);
        self.turn_deaf(key, delegated);
        let has_ended = add_unexported(&mut record, delegated) || has_ended;
        let (mut links, mut unfiltered) = (Some(&mut self.links), self.unfiltered.as_mut());
        let mut hear = || {
            if let Some(links) = links.take() {
                links.give_back(delegated.next_hop.interface, delegated.link, key);
                unfiltered::hear(unfiltered.take(), key, &delegated.socket);
            }
        };
        let imported = import(&record, delegated.socket.as_fd(), &mut hear);
        // The packets are the kernel's in any case.
        hear();
        if let (Ok(()), Kind::Tcp(tcp)) = (&imported, &record.kind) {
            // If this fails the peer repeats the segments.
            let _ = replay::rest(&record, tcp, has_ended);
            if let Some(remote) = key.remote() {
                let (protocol, source) = (Protocol::Tcp, key.local());
                self.returned.add(
                    delegated.token,
                    FlowKey { protocol, source, target: remote },
                    now(),
                );
            }
        }
        self.tell_outcome(key, stream, imported);
        let Traffic { sent: received, received: sent } = stream.published_totals();
        Traffic { sent, received }
    }
}

/// Gives up a session that was never taken out: bytes that the program has written to the stream go
/// into the kernel. The kernel is given room for all of them, so that this does not wait for a peer
/// that takes nothing at the moment.
fn give_up(socket: &OwnedFd, stream: &Stream) {
    stream.freeze();
    if !stream.ledger().close() && stream.ledger().is_kept() {
        // The program's side has lost the carrier, and does this itself.
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
            // A broken connection takes no more bytes, and its error tells the program so.
            Err(_) => done = left.len(),
        }
    }
    // If some bytes remain the program's side takes the session for reset.
    match done == left.len() {
        true => stream.set_flushed(0),
        false => stream.ledger().lose(),
    }
    stream.attention();
    stream.notify_peer();
}
