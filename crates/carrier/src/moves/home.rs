//! Back into the kernel, step by step: called home, given back by the library, put into the socket.
//!
//! What becomes of the socket: `import`. Read the head of `carrier` and `docs/understand/moves.md`
//! first.

use super::numbers::{add_slipped, last_known};
use super::out::turn_back;
use super::{Carrier, Entry};
use crate::carrier::{Lent, Phase};
use crate::datagrams;
use crate::import::{ImportError, Room, import};
use crate::replay::{self, Raw};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_pump::{late, now, unsent};
use sojourn_session::{ReasonT, RecallT};
use sojourn_stream::Stream;
use sojourn_wire::{FlowKey, Protocol};

/// How long the kernel may take to accept what a program has written.
const FLUSH_LIMIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

impl Carrier {
    /// The server wants a session home, or its program has left it or died.
    pub(super) fn recalled(&mut self, recall: &RecallT) {
        let is_over = matches!(recall.reason, ReasonT::PeerLeft | ReasonT::PeerDied);
        match self.entries.get(&recall.local).map(|entry| &entry.phase) {
            // Only the library knows where it stands.
            Some(Phase::Lent(lent)) if !is_over => {
                lent.call_home();
                self.attend(recall.local);
            }
            // So does the library itself, if the server knows it.
            Some(Phase::Datagrams(lodger)) if !is_over => {
                if !lodger.is_known {
                    lodger.call_home();
                    self.attend(recall.local);
                }
            }
            _ => self.end(recall.local),
        }
    }

    /// The server ends, and leaves no session behind if it can.
    pub(super) fn all_home(&mut self) {
        self.is_leaving = true;
        for local in self.entries.keys().copied().collect::<Vec<_>>() {
            match self.entries.get(&local).map(|entry| &entry.phase) {
                Some(Phase::Lent(lent)) => lent.call_home(),
                Some(Phase::Datagrams(lodger)) => lodger.call_home(),
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

    /// What came for a session while it was on its way home, and its library had.
    pub(super) fn say_late(&mut self, token: u64, file: &OwnedFd) {
        let Some(flow) = self.returned.take(token, now()) else { return };
        let Ok(kernel) = Raw::open(flow.source) else { return };
        // What is lost the peer repeats.
        late::each_in(file, &flow, |packet| {
            let _ = kernel.say(packet);
        });
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
            Phase::Waiting(mut waiting) => {
                turn_back(&mut self.links, &entry.key, &mut waiting);
                give_up(&waiting.socket, &waiting.stream);
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
        self.flows.remove(&entry.key);
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
        if let (Ok(()), Kind::Tcp(tcp)) = (&imported, &record.kind) {
            // The peer repeats it if this fails.
            let _ = replay::rest(&record, tcp, has_ended);
            if let Some(remote) = entry.key.remote() {
                let (protocol, source) = (Protocol::Tcp, entry.key.local());
                self.returned.add(lent.token, FlowKey { protocol, source, target: remote }, now());
            }
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

/// A session that was never taken out: what the program has written to the stream meanwhile goes
/// into the kernel. It is given room for all of it: if the peer takes nothing at the moment, nobody
/// waits for that here.
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
