//! Sessions of a server before this one: taken over from its keeper, or brought to an end.
//!
//! # Theory of operation
//! What the keeper holds comes from a server, not from a program: socket, region, record (sealed), inbox, numbers. Even so each session is
//! looked at: the socket must be of the record's addresses, and the filter must have a rule for it that names the owner in its label.
//! Then the session is as it was, and its library, which has gone on all the time, may give it back by its token. A library that registers its side
//! (`session::adopt` of the interface) is told of other ways from then on.
//!
//! A session that its library had not taken up when the server died goes home at once; one whose program has died meanwhile, too, with what its
//! rings hold. What the filter has beyond that is nobody's, and becomes the kernel's. Not here: the keeper (`keeping`). Read `docs/moves.md`.

use crate::carrier::{Carrier, Entry, Kept, Lent, PROGRAM, Phase, Place, later};
use crate::export::addresses;
use crate::keeping::{Label, Left};
use crate::metastate::Way;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_filter::Key;
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::record::SessionRecord;
use sojourn_pump::{now, parcel};
use sojourn_session::InboxT;
use sojourn_shm::{Access, Segment};
use sojourn_stream::{Layout, Stream};
use sojourn_wire::Protocol;
use std::collections::{HashMap, HashSet};

/// A library that sends a session home waits so long for a server (microseconds), and a little.
const HOME_LIMIT_US: u64 = 7_000_000;

/// Why a session is not adopted.
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
}

/// A session as the keeper has it.
struct Found {
    socket: OwnedFd,
    record: SessionRecord,
    key: Key,
    region: Descriptor,
    inbox: [Descriptor; 3],
}

/// Reads what there is of a session; the order is that of `Kept::fds`.
fn found(fds: Vec<OwnedFd>) -> Result<Found, AdoptError> {
    let fds = <[OwnedFd; 6]>::try_from(fds).map_err(|_| AdoptError::Incomplete)?;
    let [socket, file, region, memory, ready, attention] = fds;
    let record = parcel::open(&file).map_err(|_| AdoptError::Incomplete)?;
    let remote = record.remote.ok_or(AdoptError::OtherSession)?;
    // One that its program has taken for reset, or that was being put back, has no addresses any more: those of the record say whose rule
    // there is, and nothing is put into it.
    if addresses(socket.as_fd()).is_ok_and(|found| found != (record.local, remote)) {
        return Err(AdoptError::OtherSession);
    }
    let key = Key::new(Protocol::Tcp, record.local, Some(remote));
    let key = key.map_err(|_| AdoptError::OtherSession)?;
    let inbox = [memory, ready, attention].map(Descriptor::from);
    Ok(Found { socket, record, key, region: region.into(), inbox })
}

/// Whether a process has ended; one that the keeper does not know has.
fn has_ended(program: Option<&OwnedFd>) -> bool {
    let Some(program) = program else { return true };
    let mut set = [PollFd::new(program, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut set, Some(&at_once)), Ok(0))
}

impl Carrier {
    /// Takes over what an earlier server has left, if there was one.
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
        let Left { links, sessions, programs } = left;
        for (index, holdings) in links {
            if let Err(error) = self.links.adopt(index, holdings) {
                self.sessions.warn(format_args!("the filter of interface {index}: {error}"));
                self.links.keeping.forget_link(index);
            }
        }
        let count = sessions.len();
        let mut adopted = Vec::new();
        for (label, fds) in sessions {
            match self.adopt_one(&label, fds) {
                Ok(local) => adopted.push(local),
                Err(error) => {
                    self.links.keeping.release(&label);
                    self.sessions.warn(format_args!(
                        "stream {} of process {} is lost: {error}",
                        label.stream, label.pid
                    ));
                }
            }
        }
        let keys: HashSet<Key> = self.entries.values().map(|entry| entry.key).collect();
        for stray in self.links.drop_strays(&|key| keys.contains(key)) {
            self.sessions.warn(format_args!("{stray} was nobody's: it is the kernel's again"));
        }
        let taken = adopted.len();
        self.sessions
            .say(format_args!("{taken} of an earlier server's {count} sessions are adopted"));
        self.settle_adopted(&adopted, &programs);
        self.watch_programs(programs);
    }

    fn adopt_one(&mut self, label: &Label, fds: Vec<OwnedFd>) -> Result<u64, AdoptError> {
        let Found { socket, record, key, region, inbox } = found(fds)?;
        let [memory, ready, attention] = inbox.clone();
        let (id, slot) = (label.peer_inbox, label.peer_slot);
        let named = InboxT { id, slot, memory, ready, attention };
        let (peer, _) = self.peer_inboxes.open(&named).ok_or(AdoptError::Memory)?;
        let stream = stream_of(label, &region, peer).ok_or(AdoptError::Memory);
        let is_ruled = stream.is_ok() && self.links.adopt_session(label, &key);
        let name = self.links.name_of(label.interface).map(str::to_owned);
        let (Ok(stream), true, Some(name)) = (stream, is_ruled, name) else {
            self.peer_inboxes.close(id);
            return Err(if is_ruled { AdoptError::Memory } else { AdoptError::Rule });
        };
        self.last_local += 1;
        let local = self.last_local;
        self.sessions.adopt(local, socket.as_fd(), label.stream, label.side, region.clone());
        // What its library was told last is not known: it is told anew when it registers.
        let way = Way { interface: label.interface, name, link: None, mtu: 0 };
        let lent = Lent {
            socket,
            stream,
            record,
            token: label.token,
            way,
            link: label.link,
            port: label.port,
            is_cut: true,
            next_look_us: u64::MAX,
            kept: Kept { label: *label, region, inbox },
            is_known: false,
            home_by: None,
        };
        let place = Place {
            own_inbox: 0,
            own_slot: 0,
            peer_inbox: id,
            peer_slot: slot,
            peer_pid: label.pid,
            peer_process: Descriptor::NONE,
        };
        let entry = Entry::adopted(key, lent, place);
        self.entries.insert(local, entry);
        self.tokens.insert(label.token, local);
        Ok(local)
    }

    /// Sends home what is not carried by a living program.
    fn settle_adopted(&mut self, adopted: &[u64], programs: &HashMap<u32, OwnedFd>) {
        for local in adopted.iter().copied() {
            let Some(Entry { key, phase: Phase::Lent(lent), .. }) = self.entries.get_mut(&local)
            else {
                continue;
            };
            let is_dead = has_ended(programs.get(&lent.kept.label.pid));
            if is_dead {
                self.sessions.say(format_args!(
                    "{key}: its program has ended while there was no server: the kernel ends it"
                ));
            }
            let ledger = lent.stream.ledger();
            if is_dead || ledger.revoke() || !ledger.is_claimed() {
                self.end(local);
                continue;
            }
            if lent.stream.is_frozen() {
                // Its library is about to give it back, or has given up.
                lent.home_by = Some(later(now(), HOME_LIMIT_US));
            }
            self.attend(local);
        }
    }

    /// Their ends are to be seen also where the server never hears of them.
    fn watch_programs(&mut self, programs: HashMap<u32, OwnedFd>) {
        for (pid, program) in programs {
            let is_of =
                |entry: &Entry| entry.place.as_ref().is_some_and(|place| place.peer_pid == pid);
            if self.entries.values().any(is_of)
                && self.watch(program.as_fd(), PROGRAM | u64::from(pid)).is_ok()
            {
                self.programs.insert(pid, program);
            }
        }
    }

    /// A program with adopted sessions has ended.
    pub(crate) fn program_ended(&mut self, pid: u32) {
        if let Some(program) = self.programs.remove(&pid) {
            let _ = rustix::event::epoll::delete(&self.set, &program);
        }
        let is_its =
            |entry: &Entry| matches!(&entry.phase, Phase::Lent(lent) if lent.kept.label.pid == pid);
        let its = self.entries.iter().filter(|(_, entry)| is_its(entry));
        its.map(|(local, _)| *local).collect::<Vec<_>>().into_iter().for_each(|l| self.end(l));
    }

    /// A library has registered its side of an adopted session.
    pub(crate) fn registered(&mut self, stream: u64, pid: u32) {
        let is_it = |entry: &Entry| matches!(&entry.phase, Phase::Lent(lent) if lent.kept.label.stream == stream);
        let Some((&local, entry)) = self.entries.iter_mut().find(|(_, entry)| is_it(entry)) else {
            return;
        };
        let Phase::Lent(lent) = &mut entry.phase else { return };
        if lent.kept.label.pid != pid {
            self.sessions.warn(format_args!("{}: process {pid} claims to carry it", entry.key));
            return lent.call_home();
        }
        lent.is_known = true;
        self.look_at_way(local);
    }

    /// The keeper has gone, and what it held: another one is told everything.
    pub(crate) fn keep_anew(&mut self) {
        self.sessions
            .warn(format_args!("the keeper of sessions has ended: another one is started"));
        self.links.keep_anew();
        for entry in self.entries.values() {
            if let Phase::Lent(lent) = &entry.phase
                && let Ok(record) = parcel::pack(&lent.record)
            {
                self.links.keeping.hold(&lent.kept, &lent.socket, record.as_fd());
            }
        }
    }
}

fn stream_of(
    label: &Label,
    region: &Descriptor,
    peer: std::sync::Arc<sojourn_stream::Inbox>,
) -> Option<Stream> {
    let layout = Layout::new(label.ring_bytes)?;
    let region = rustix::io::fcntl_dupfd_cloexec(region.as_fd()?, 0).ok()?;
    let mapping = Segment::accept(region, layout.len()).ok()?.map(Access::ReadWrite).ok()?;
    Stream::new(mapping, layout, usize::from(label.side), peer, label.peer_slot)
}
