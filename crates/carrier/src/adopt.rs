//! Sessions of the server before this one: adopted from its keeper, or brought to an end.
//!
//! # Theory of operation
//! The keeper's holdings come from a server, not from a program: socket, region, record (sealed),
//! inbox, numbers. Even so each session is checked: the socket must have the record's addresses,
//! and the filter must have a rule for it that names the owner in its name. Then the session is as
//! it was, and its library, which has gone on all the time, may give it back by its token. Sockets
//! are looked at by assistants, all at once; one that does not answer meanwhile, because its
//! program holds its lock, is left alone. A library that registers its side (`session::adopt` of
//! the interface) is told of other next hops from then on.
//!
//! A session that its library had not claimed when the server died goes home at once. So does a
//! session whose program has died meanwhile, with the bytes that its rings hold. Other rules of the
//! filter are nobody's, and their packets become the kernel's. Not here: TCP's own part
//! (`streams`), the keeper (`keeping`). Read `docs/understand/moves.md`.

mod streams;

use crate::carrier::{Carrier, INBOX, PROGRAM};
use crate::clock::later;
use crate::fd_name::{FdName, Kept};
use crate::inboxes::OpenedInbox;
use crate::joined::JoinedEnds;
use crate::keeping::{InheritedSession, InheritedState};
use crate::metastate::NextHop;
use crate::plan::UdpPlan;
use crate::replay;
use crate::session::{Phase, Session, UdpDelegated};
use crate::sessions::Adopted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_filter::Key;
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::record::SessionRecord;
use sojourn_pump::{now, sealed};
use sojourn_session::{InboxSlot, InboxT, LocalNumber, ProcessId, ReasonT, StreamNumber};
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, SlotNumber, Stream};
use sojourn_wire::Protocol;
use std::collections::{HashMap, HashSet};

/// How long a session on its way home is waited for (microseconds): a library waits a little less
/// for a server.
const HOME_LIMIT_US: u64 = 7_000_000;

/// The reason why a session is not adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum AdoptError {
    #[error("the keeper has not everything of it")]
    Incomplete,
    #[error("its record is not of its socket")]
    OtherSession,
    #[error("the packet filter says otherwise")]
    Rule,
    #[error("its memory cannot be used")]
    Memory,
    #[error("its program holds the lock of its socket")]
    Held,
}

/// The holdings of a UDP socket's session at the keeper.
struct FoundDatagrams {
    record: SessionRecord,
    region: Descriptor,
    inbox: [Descriptor; 3],
    /// The inbox of the carrier before this one.
    own: [Descriptor; 3],
}

fn found_datagrams(fds: Vec<OwnedFd>) -> Result<FoundDatagrams, AdoptError> {
    let fds = <[OwnedFd; 8]>::try_from(fds).map_err(|_| AdoptError::Incomplete)?;
    let [file, region, memory, ready, attention, own_memory, own_ready, own_attention] = fds;
    let record = sealed::open(&file).map_err(|_| AdoptError::Incomplete)?;
    let inbox = [memory, ready, attention].map(Descriptor::from);
    let own = [own_memory, own_ready, own_attention].map(Descriptor::from);
    Ok(FoundDatagrams { record, region: region.into(), inbox, own })
}

/// Returns true if a process has ended; one that the keeper does not know counts as ended.
fn has_ended(program: Option<&OwnedFd>) -> bool {
    let Some(program) = program else { return true };
    let mut set = [PollFd::new(program, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut set, Some(&at_once)), Ok(0))
}

impl Carrier {
    /// Adopts the sessions that an earlier server has left, if there was one.
    pub(crate) fn adopt_all(&mut self) {
        let left = match self.links.keeping.take_over() {
            Ok(Some(left)) => left,
            Ok(None) => return,
            Err(error) => {
                let text =
                    format_args!("an earlier server's sessions cannot be taken over: {error}");
                return self.sessions.warn(text);
            }
        };
        let InheritedState { links, sessions, programs } = left;
        for (index, holdings) in links {
            if let Err(error) = self.links.adopt(index, holdings) {
                self.sessions.warn(format_args!("the filter of interface {index}: {error}"));
                self.links.keeping.forget_link(index);
            }
        }
        let count = sessions.len();
        if count > 0 {
            self.load_unfiltered();
        }
        let (datagrams, streams): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|one| one.fd_name.datagrams.is_some());
        let mut adopted = self.adopt_streams(streams);
        for InheritedSession { fd_name, fds } in datagrams {
            let result = self.adopt_datagrams(&fd_name, fds);
            adopted.extend(self.tell_adopted(&fd_name, result));
        }
        self.drop_unclaimed_rules();
        let taken = adopted.len();
        self.sessions
            .say(format_args!("{taken} of an earlier server's {count} sessions are adopted"));
        self.settle_adopted(&adopted, &programs);
        self.watch_programs(programs);
    }

    /// Says so and lets go of a session that is not adopted.
    fn tell_adopted(
        &mut self,
        fd_name: &FdName,
        adopted: Result<LocalNumber, AdoptError>,
    ) -> Option<LocalNumber> {
        if let Err(error) = &adopted {
            self.links.keeping.release(fd_name);
            self.sessions.warn(format_args!(
                "stream {} of process {} is lost: {error}",
                fd_name.stream, fd_name.pid
            ));
        }
        adopted.ok()
    }

    /// Removes the filter's rules for sessions that were not adopted.
    fn drop_unclaimed_rules(&mut self) {
        let keys: HashSet<Key> = self.table.values().flat_map(Session::keys).collect();
        for unclaimed in self.links.drop_unclaimed(&|key| keys.contains(key)) {
            self.sessions.warn(format_args!("{unclaimed} was nobody's: it is the kernel's again"));
            // The server before this one died before it had taken the session out. A reset that has
            // come since then is lost.
            if unclaimed.protocol() == Protocol::Tcp {
                let _ = replay::ask_peer(&unclaimed);
            }
        }
    }

    /// Adopts the session of a UDP socket, which only its program has.
    fn adopt_datagrams(
        &mut self,
        fd_name: &FdName,
        fds: Vec<OwnedFd>,
    ) -> Result<LocalNumber, AdoptError> {
        let of_it = &fd_name.datagrams.ok_or(AdoptError::Incomplete)?;
        let FoundDatagrams { record, region, inbox, own } = found_datagrams(fds)?;
        let name = self.links.name_of(fd_name.interface).ok_or(AdoptError::Rule)?.to_owned();
        let next_hop = NextHop { interface: fd_name.interface, name, link: None, mtu: 0 };
        let plan = UdpPlan::adopted(record, next_hop.clone(), of_it, &self.links.keys_of(fd_name));
        let key = *plan.keys.first().ok_or(AdoptError::Rule)?;
        let ends = JoinedEnds {
            own: of_it.own,
            peer: fd_name.peer,
            peer_pid: fd_name.pid,
            peer_process: Descriptor::NONE,
        };
        let stream = self.inboxes_of(&ends, &inbox, &own).ok_or(AdoptError::Memory)?;
        let stream = stream_of(fd_name, &region, stream);
        let is_ruled = plan.keys.iter().all(|key| self.links.adopt_session(fd_name, key));
        let (Some(stream), true) = (stream, is_ruled) else {
            self.inboxes.close(ends.own.inbox);
            self.peer_inboxes.close(ends.peer.inbox);
            return Err(if is_ruled { AdoptError::Memory } else { AdoptError::Rule });
        };
        let local = self.next_local();
        let (bound, remote) = (plan.local, plan.remote);
        let what = Adopted::Datagrams { cookie: of_it.cookie, local: bound, remote };
        self.sessions.adopt(local, what, fd_name.stream, fd_name.side, region.clone());
        self.slots.insert(ends.own, local);
        self.flows.extend(plan.keys.iter().map(|key| (*key, local)));
        let delegated = UdpDelegated {
            stream,
            ends,
            next_hop,
            keys: plan.keys.clone(),
            plan,
            kept: Kept { fd_name: *fd_name, region, inbox, own: Some(own) },
            is_known: false,
            frozen_at: None,
            is_told: false,
            home_by: None,
        };
        let phase = Phase::UdpDelegated(Box::new(delegated));
        self.table.insert(local, Session { key, phase });
        self.tokens.insert(fd_name.token, local);
        Ok(local)
    }

    /// Opens the inboxes of an earlier server's session; returns the program's.
    fn inboxes_of(
        &mut self,
        ends: &JoinedEnds,
        inbox: &[Descriptor; 3],
        own: &[Descriptor; 3],
    ) -> Option<std::sync::Arc<sojourn_stream::Inbox>> {
        let named = |at: InboxSlot, of_it: &[Descriptor; 3]| {
            let [memory, ready, attention] = of_it.clone();
            InboxT { id: at.inbox.0, slot: at.slot, memory, ready, attention }
        };
        let OpenedInbox { inbox: own, is_new } = self.inboxes.open(&named(ends.own, own))?;
        if is_new {
            // The requests to the carrier before this one are dropped: all sessions are attended to
            // anyhow.
            own.take_attention(&mut |_| {});
            let _ = self.watch(own.attention_fd(), INBOX);
        }
        let peer = self.peer_inboxes.open(&named(ends.peer, inbox));
        if peer.is_none() {
            self.inboxes.close(ends.own.inbox);
        }
        peer.map(|peer| peer.inbox)
    }

    /// Sends home the sessions that no living program carries.
    fn settle_adopted(&mut self, adopted: &[LocalNumber], programs: &HashMap<ProcessId, OwnedFd>) {
        for local in adopted.iter().copied() {
            let Some(session) = self.table.get_mut(&local) else { continue };
            let (stream, kept, home_by) = match &mut session.phase {
                Phase::Delegated(one) => (&one.stream, &one.kept, &mut one.home_by),
                Phase::UdpDelegated(one) => (&one.stream, &one.kept, &mut one.home_by),
                _ => continue,
            };
            let is_dead = has_ended(programs.get(&kept.fd_name.pid));
            if is_dead {
                self.sessions.say(format_args!(
                    "{}: its program has ended while there was no server: the kernel ends it",
                    session.key
                ));
            }
            let ledger = stream.ledger();
            if is_dead || ledger.revoke() || !ledger.is_claimed() {
                self.end(local);
                continue;
            }
            if stream.is_frozen() {
                // The library is about to give the session back, or has given up.
                *home_by = Some(later(now(), HOME_LIMIT_US));
            }
            self.attend(local);
        }
    }

    /// Watches the programs of adopted sessions: the server may never hear of them.
    fn watch_programs(&mut self, programs: HashMap<ProcessId, OwnedFd>) {
        for (pid, program) in programs {
            if self.table.values().any(|session| session.is_adopted_from(pid))
                && self.watch(program.as_fd(), PROGRAM | u64::from(pid.0)).is_ok()
            {
                self.programs.insert(pid, program);
            }
        }
    }

    /// Ends the sessions of a program with adopted sessions that has ended.
    pub(crate) fn program_ended(&mut self, pid: ProcessId) {
        if let Some(program) = self.programs.remove(&pid) {
            let _ = rustix::event::epoll::delete(&self.set, &program);
        }
        let its = self.table.iter().filter(|(_, session)| session.is_adopted_from(pid));
        its.map(|(local, _)| *local).collect::<Vec<_>>().into_iter().for_each(|l| self.end(l));
    }

    /// Notes that a library has registered its side of an adopted session. The library has shown
    /// the session's own socket to the server. The process number only tells the program that
    /// carries the session from another one that has the socket as well, and decides which of them
    /// has to give it back. Who has the number of a program that has ended is told nothing by that:
    /// the end of that program, seen by its descriptor, ends the session.
    pub(crate) fn registered(&mut self, stream: StreamNumber, pid: ProcessId) {
        let is_it =
            |session: &Session| session.kept().is_some_and(|kept| kept.fd_name.stream == stream);
        let mut all = self.table.iter_mut();
        let Some((&local, session)) = all.find(|(_, session)| is_it(session)) else {
            return;
        };
        let receives_for = session.kept().is_some_and(|kept| kept.fd_name.pid == pid);
        if !receives_for {
            self.sessions.warn(format_args!("{}: process {pid} claims to carry it", session.key));
        }
        match &mut session.phase {
            Phase::Delegated(delegated) if receives_for => delegated.is_known = true,
            Phase::Delegated(delegated) => delegated.call_home(ReasonT::SeveralHolders),
            Phase::UdpDelegated(delegated) if receives_for => delegated.is_known = true,
            Phase::UdpDelegated(delegated) => delegated.call_home(ReasonT::SeveralHolders),
            _ => {}
        }
        match receives_for {
            true => {
                self.look_at_next_hop(local);
                // The rules may have changed while there was no server.
                self.judge(local);
            }
            false => self.attend(local),
        }
    }

    /// Starts another keeper after the loss of one, and tells it everything.
    pub(crate) fn keep_anew(&mut self) {
        self.sessions
            .warn(format_args!("the keeper of sessions has ended: another one is started"));
        self.links.keep_anew();
        for session in self.table.values() {
            let (record, socket) = match &session.phase {
                Phase::Delegated(delegated) => {
                    (&delegated.record, Some(delegated.socket.descriptor().as_fd()))
                }
                Phase::UdpDelegated(delegated) => (&delegated.plan.record, None),
                _ => continue,
            };
            if let (Some(kept), Ok(record)) = (session.kept(), sealed::pack(record)) {
                let joined = session.ends().and_then(|ends| ends.peer_process.as_fd());
                // The program of an adopted session is known from the earlier keeper.
                let adopted = self.programs.get(&kept.fd_name.pid).map(AsFd::as_fd);
                self.links.keeping.hold(kept, joined.or(adopted), socket, record.as_fd());
            }
        }
    }
}

fn stream_of(
    fd_name: &FdName,
    region: &Descriptor,
    peer: std::sync::Arc<sojourn_stream::Inbox>,
) -> Option<Stream> {
    let layout = Layout::new(fd_name.ring_bytes)?;
    let region = rustix::io::fcntl_dupfd_cloexec(region.as_fd()?, 0).ok()?;
    let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
    Stream::observer(
        mapping,
        layout,
        usize::from(fd_name.side),
        peer,
        SlotNumber(fd_name.peer.slot),
    )
}
