//! The adoption of TCP sessions.
//!
//! Not here: the order of an adoption, and UDP sockets' sessions (`adopt`).

use super::{AdoptError, stream_of};
use crate::assistants::{Heard, What};
use crate::carrier::{Carrier, SOCKET};
use crate::export::Addresses;
use crate::fd_name::{FdName, Kept};
use crate::joined::JoinedEnds;
use crate::keeping::InheritedSession;
use crate::metastate::NextHop;
use crate::program_socket::ProgramSocket;
use crate::session::{Delegated, Phase, Session, SocketContent};
use crate::sessions::Adopted;
use crate::too_big::PathMtu;
use crate::work::{Done, Inherited, Work};
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::process::Uid;
use sojourn_filter::Key;
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::record::{IpOptions, Kind, SessionRecord, TcpRecord};
use sojourn_pump::now;
use sojourn_pump::sealed::{self, SealedError};
use sojourn_session::{InboxSlot, InboxT, LocalNumber};
use sojourn_stream::Stream;
use sojourn_wire::Protocol;
use std::collections::HashMap;
use std::sync::Arc;

/// The looks for all sockets together that do not answer. Not the clock counts them: where the
/// machine stands still, or lets no thread run, an honest program's session would be lost.
const LOOKS: u32 = 75;
/// The length of one look.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A session's holdings at the keeper.
struct KeptSession {
    fd_name: FdName,
    socket: ProgramSocket,
    /// `None`: the server before this one died before its file was sealed.
    record: Option<SessionRecord>,
    region: Descriptor,
    inbox: [Descriptor; 3],
}

impl Carrier {
    /// Adopts TCP sessions. Their sockets are looked at by assistants.
    pub(super) fn adopt_streams(&mut self, sessions: Vec<InheritedSession>) -> Vec<LocalNumber> {
        let mut asked = HashMap::new();
        let mut adopted = Vec::new();
        for InheritedSession { fd_name, fds } in sessions {
            let local = self.next_local();
            match self.found(fd_name, fds) {
                Ok(kept) => {
                    let reporter = self.unfiltered.as_ref().map(|it| Arc::clone(it.reporter()));
                    let work = Work::Adopt(kept.record.as_ref().and_then(addresses_of));
                    let beside = reporter.into_iter().collect();
                    self.assistants.give(local, &kept.socket, work, beside);
                    asked.insert(local, kept);
                }
                Err(error) => adopted.extend(self.tell_adopted(&fd_name, Err(error))),
            }
        }
        let mut looks = 0;
        while !asked.is_empty() && looks < LOOKS {
            self.assistants.tidy(now());
            let heard = self.assistants.wait(LOOK);
            looks += u32::from(heard.is_empty());
            for Heard { local, what } in heard {
                let (Some(kept), What::Finished(finished)) = (asked.remove(&local), what) else {
                    continue;
                };
                let fd_name = kept.fd_name;
                let result = match finished.done {
                    Done::Adopted(Some(seen)) => self.adopt_one(local, kept, &seen),
                    _ => Err(AdoptError::OtherSession),
                };
                adopted.extend(self.tell_adopted(&fd_name, result));
            }
        }
        for (_, kept) in asked {
            let fd_name = kept.fd_name;
            adopted.extend(self.tell_adopted(&fd_name, Err(AdoptError::Held)));
        }
        adopted
    }

    /// Reads the holdings of a session, in the order of `Kept::fds`.
    fn found(&self, fd_name: FdName, fds: Vec<OwnedFd>) -> Result<KeptSession, AdoptError> {
        let fds = <[OwnedFd; 6]>::try_from(fds).map_err(|_| AdoptError::Incomplete)?;
        let [socket, file, region, memory, ready, attention] = fds;
        // The kernel does not ask the socket's lock for this.
        let owner = rustix::fs::fstat(&socket).map_err(|_| AdoptError::Incomplete)?.st_uid;
        let socket = self.assistants.socket(socket, Uid::from_raw(owner));
        let record = match sealed::open(&file) {
            Ok(record) => Some(record),
            Err(SealedError::NotSealed) => None,
            Err(_) => return Err(AdoptError::Incomplete),
        };
        let inbox = [memory, ready, attention].map(Descriptor::from);
        Ok(KeptSession { fd_name, socket, record, region: region.into(), inbox })
    }

    /// Adopts a TCP session of whose socket an assistant has seen so much.
    fn adopt_one(
        &mut self,
        local: LocalNumber,
        kept: KeptSession,
        inherited: &Inherited,
    ) -> Result<LocalNumber, AdoptError> {
        let KeptSession { fd_name, mut socket, record, region, inbox } = kept;
        let is_read = record.is_some();
        let record = record.or_else(|| inherited.addresses.map(unread_record));
        let record = record.ok_or(AdoptError::OtherSession)?;
        let key = Key::new(Protocol::Tcp, record.local, record.remote);
        let key = key.map_err(|_| AdoptError::OtherSession)?;
        let [memory, ready, attention] = inbox.clone();
        let InboxSlot { inbox: number, slot } = fd_name.peer;
        let named = InboxT { id: number.0, slot, memory, ready, attention };
        let peer = self.peer_inboxes.open(&named).ok_or(AdoptError::Memory)?.inbox;
        let stream = stream_of(&fd_name, &region, peer).ok_or(AdoptError::Memory);
        // A socket that is put back has no connection meanwhile.
        let is_watched = stream.as_ref().is_ok_and(|stream| {
            stream.is_frozen() || socket.watch(&self.set, SOCKET | local.0).is_ok()
        });
        let is_ruled = is_watched && self.links.adopt_session(&fd_name, &key);
        // On the way home the rule goes when the socket has everything.
        let is_rebuilt = !is_ruled
            && is_read
            && stream.as_ref().is_ok_and(Stream::is_frozen)
            && self.links.is_without_rule(&fd_name, &key);
        let content = match (is_read, is_rebuilt) {
            (false, _) => SocketContent::Whole,
            (true, true) => SocketContent::Rebuilt,
            (true, false) => SocketContent::Old,
        };
        let name = self.links.name_of(fd_name.interface).map(str::to_owned);
        let (Ok(stream), true, Some(name)) = (stream, is_ruled || is_rebuilt, name) else {
            self.peer_inboxes.close(number);
            return Err(if is_ruled { AdoptError::Memory } else { AdoptError::Rule });
        };
        if !stream.is_frozen() {
            // The server before this one may have found no route.
            self.links.hold(fd_name.interface, &key, false);
        }
        let cookie = socket.cookie();
        let what = Adopted::Socket(&inherited.seen);
        self.sessions.adopt(local, what, fd_name.stream, fd_name.side, region.clone());
        // The next hop that the library was told last is not known: it is told anew when it
        // registers.
        let next_hop = NextHop { interface: fd_name.interface, name, link: None, mtu: 0 };
        let delegated = Delegated {
            socket,
            stream,
            ends: JoinedEnds {
                own: InboxSlot::default(),
                peer: fd_name.peer,
                peer_pid: fd_name.pid,
                peer_process: Descriptor::NONE,
            },
            record,
            token: fd_name.token,
            next_hop,
            path: PathMtu::new(now()),
            link: fd_name.link,
            port: fd_name.port,
            is_cut: true,
            frozen_at: None,
            cookie,
            kept: Kept { fd_name, region, inbox, own: None },
            is_known: false,
            home_by: None,
            content,
        };
        let phase = Phase::Delegated(Box::new(delegated));
        self.table.insert(local, Session { key, phase });
        self.tokens.insert(fd_name.token, local);
        self.flows.insert(key, local);
        Ok(local)
    }
}

/// Returns the addresses of a record.
fn addresses_of(record: &SessionRecord) -> Option<Addresses> {
    Some(Addresses { local: record.local, remote: record.remote? })
}

/// Returns a record in place of one that was not read out of its socket: its addresses are all that
/// is known of it.
fn unread_record(Addresses { local, remote }: Addresses) -> SessionRecord {
    let kind = Kind::Tcp(TcpRecord::default());
    SessionRecord { local, remote: Some(remote), ip: IpOptions::default(), kind }
}
