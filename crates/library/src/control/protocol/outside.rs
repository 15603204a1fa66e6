//! The protocol thread's descriptors outside the program's table: the connection with the server,
//! the descriptors received through it, and the set that is slept in.
//!
//! A second thread, with a table of its own (`sojourn_shm::aside`), holds them and does what the
//! protocol thread asks for. No answer contains a descriptor: memory is mapped here, and
//! descriptors for the program's threads go through the bell's socket (`crate::fds::own`). Not
//! here: the messages to the server, and the reactions to its events (`super`).

use super::events::{BELL, DOORBELL, EVENTS, INBOX, PEER, SERVER, WATCHED};
use super::joined::Joined;
use super::living::watch_thread;
use super::numbers::number_here;
use crate::fds::own::{receive_descriptors, send_descriptors};
use crate::host::descriptors::{Direct, OpenDescriptors};
use crate::host::{Host, OwnCalls};
use crate::io::signals::DueSignals;
use crate::remote::carry_server::{ANSWER_LIMIT, open_connection};
use crate::remote::delegation::Delegation;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use sojourn_ipc::{Connection, Deadline, rt};
use sojourn_pump::has_room;
use sojourn_session::{
    DelegateT, EventT, InboxT, JoinT, ProcessId, SessionClient, session_connect_options,
};
use sojourn_shm::aside::{Aside, keep_only};
use sojourn_shm::fasync::{Event, Owner, Sender};
use sojourn_shm::{Access, Mapping, Segment};
use sojourn_stream::{Inbox, Layout};
use std::collections::HashMap;

/// Streams take at most one part in so many of a limited address space, all together.
const ADDRESSES_PART: u64 = 4;
/// Copies of a session's queues in memory while its record is taken over: the file's bytes, the
/// decoded queues, and the connection's.
const RECORD_COPIES: usize = 3;

/// The second thread's state.
#[derive(Debug)]
pub(crate) struct Outside {
    set: OwnedFd,
    /// The other end of the bell.
    far: OwnedFd,
    /// The event descriptor that the server rings.
    doorbell: OwnedFd,
    pub(super) client: Option<SessionClient<Connection>>,
    /// The processes of peers, by the server's numbers.
    peers: HashMap<ProcessId, Peer>,
    /// Attention events of inboxes, by the number that their events carry.
    attention: HashMap<u64, OwnedFd>,
    inboxes_seen: u64,
    /// Sends signals for I/O, once there was one to send.
    pub(super) signals: Option<Sender>,
    /// A thread of the program's that is watched.
    living: Option<OwnedFd>,
    /// The bell was read for something else while it rang: the next wait must not sleep before a
    /// look at the jobs.
    is_rung: bool,
}

/// The process of a peer, and its number here.
#[derive(Debug)]
struct Peer {
    process: OwnedFd,
    number: ProcessId,
}

/// Signals to send for one descriptor of the program's.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalOrder {
    pub(super) owner: Owner,
    pub(super) fd: i32,
    pub(super) due: DueSignals,
}

/// One message of the server.
#[derive(Debug)]
pub(super) enum ServerMessage {
    /// There is no message.
    Nothing,
    /// The server is gone.
    Gone,
    Join(Box<PreparedJoin>),
    Delegate(Box<Delegation>),
    /// A message without descriptors.
    Event(EventT),
    /// Not a message: the needs of a session that the server knows to be home end in its turn.
    Forget(Box<Joined>),
}

/// A join whose descriptors have been dealt with.
#[derive(Debug)]
pub(super) struct PreparedJoin {
    pub(super) join: JoinT,
    pub(super) region: Option<Mapping>,
    pub(super) own: Option<OwnInboxMemory>,
    pub(super) peer: Option<Mapping>,
    /// The number here of the peer's process, if that is watched.
    pub(super) peer_pid: Option<ProcessId>,
    /// Descriptors of the join in the bell's socket.
    pub(super) passed: usize,
}

/// The memory of an inbox of this process that a join has brought.
#[derive(Debug)]
pub(super) struct OwnInboxMemory {
    pub(super) memory: Mapping,
    /// The number that the inbox's events carry.
    pub(super) number: u64,
}

/// An inbox as a join has brought it.
struct BroughtInbox {
    memory: Mapping,
    /// The event descriptors of its waiters.
    ready: OwnedFd,
    /// The event descriptor of the protocol thread.
    attention: OwnedFd,
}

/// Opens a packet socket that shows the server that this program may have packets. Without the
/// right (capabilities(7)) nothing is tried: a refused attempt may be audited against the program.
fn unbound_packets() -> Option<OwnedFd> {
    const NET_RAW: u64 = 1 << 13;
    // The first thread's capabilities count: this thread may have kept rights that the program has
    // given up.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(held.trim(), 16).ok()?;
    if held & NET_RAW == 0 {
        return None;
    }
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).ok()
}

impl Outside {
    /// Makes the state, on the thread that is to have it. `far`: the bell's other end.
    pub(super) fn new(far: i32) -> Option<Self> {
        let far = keep_only(far).ok()?;
        sojourn_shm::wait::learn_machine();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let doorbell = eventfd(0, flags).ok()?;
        epoll::add(&set, &doorbell, EventData::new_u64(DOORBELL), EventFlags::IN).ok()?;
        epoll::add(&set, &far, EventData::new_u64(BELL), EventFlags::IN).ok()?;
        Some(Self {
            set,
            far,
            doorbell,
            client: None,
            peers: HashMap::new(),
            attention: HashMap::new(),
            inboxes_seen: 0,
            signals: None,
            living: None,
            is_rung: false,
        })
    }

    /// Sleeps; returns the subjects of the events.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> Vec<u64> {
        let limit = if core::mem::take(&mut self.is_rung) { Some(Duration::ZERO) } else { limit };
        let limit = limit.and_then(|limit| limit.try_into().ok());
        let mut events = Vec::<epoll::Event>::with_capacity(EVENTS);
        // An interrupted wait has no events.
        let _ = epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), limit.as_ref());
        let words: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        for word in &words {
            match *word {
                BELL => while receive_descriptors(self.far.as_fd()).is_ok() {},
                DOORBELL => drop(rustix::io::read(&self.doorbell, &mut [0; 8])),
                _ => {}
            }
        }
        words
    }

    /// Returns the number of the set that is slept in, in this thread's table.
    pub(super) fn set_number(&self) -> i32 {
        self.set.as_raw_fd()
    }

    /// Sends signals.
    pub(super) fn signal(&mut self, order: &SignalOrder) -> Result<(), Errno> {
        let SignalOrder { owner, fd, due } = *order;
        let sender = match &mut self.signals {
            Some(sender) => sender,
            none => none.insert(Sender::new()?),
        };
        if due.input > 0 {
            sender.send(owner, fd, Event::Input, due.input)?;
        }
        if due.output { sender.send(owner, fd, Event::Output, 1) } else { Ok(()) }
    }

    /// Watches that thread's end from now on, instead of another one's.
    pub(super) fn watch_thread(&mut self, tid: Pid) -> Result<(), Errno> {
        self.living = None;
        self.living = Some(watch_thread(self.set.as_fd(), tid)?);
        Ok(())
    }

    /// Watches the program's set of sessions' descriptors, which was sent through the bell.
    pub(super) fn watch_set(&mut self) -> bool {
        let data = EventData::new_u64(WATCHED);
        self.take_passed()
            .is_some_and(|set| epoll::add(&self.set, set, data, EventFlags::IN).is_ok())
    }

    /// Receives the descriptor that [`crate::fds::own::OwnDescriptors::pass`] has sent.
    pub(super) fn take_passed(&mut self) -> Option<OwnedFd> {
        loop {
            let mut received = receive_descriptors(self.far.as_fd()).ok()?;
            if received.sent > 0 {
                return received.fds.pop();
            }
            self.is_rung = true;
        }
    }

    /// Makes room in the bell's socket.
    pub(super) fn empty_bell(&mut self) {
        while receive_descriptors(self.far.as_fd()).is_ok() {}
        self.is_rung = true;
    }

    /// Greets the server at the other end of `socket`.
    pub(super) fn greet(&mut self, socket: OwnedFd) -> Option<()> {
        let data = EventData::new_u64(SERVER);
        epoll::add(&self.set, &socket, data, EventFlags::RDHUP | EventFlags::ET).ok()?;
        let connection = open_connection(socket, session_connect_options())?;
        let deadline = || Deadline::after(ANSWER_LIMIT);
        let mut client = SessionClient::bind_by(connection, deadline()).ok()?;
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let program = std::ffi::CString::new(program.trim_end()).unwrap_or_default();
        let doorbell = Some(self.doorbell.as_fd());
        let asks_for_packets = client.with_deadline(deadline()).hello(&program, doorbell).ok()?;
        // Only where it is of use: closing a packet socket waits for an RCU grace period
        // (`packet_release`, `synchronize_net`), seconds on a busy machine.
        if asks_for_packets && let Some(packets) = unbound_packets() {
            client.with_deadline(deadline()).show_packets(Some(packets.as_fd())).ok()?;
        }
        self.client = Some(client);
        Some(())
    }

    /// Asks for the server's next message. `mapped`: see [`crate::process::engine::Engine`]; a join
    /// adds its stream to it.
    pub(super) fn next(&mut self, mapped: &AtomicU64) -> ServerMessage {
        let Some(client) = &mut self.client else { return ServerMessage::Nothing };
        match client.with_deadline(Deadline::after(ANSWER_LIMIT)).next() {
            Ok(EventT::None) => ServerMessage::Nothing,
            Ok(EventT::Join(join)) => ServerMessage::Join(Box::new(self.bring(join, mapped))),
            Ok(EventT::Delegate(terms)) => {
                ServerMessage::Delegate(Box::new(self.open_delegation(terms)))
            }
            Ok(other) => ServerMessage::Event(other),
            Err(_) => ServerMessage::Gone,
        }
    }

    fn bring(&mut self, mut join: JoinT, mapped: &AtomicU64) -> PreparedJoin {
        // Every descriptor is taken out of the join, whatever becomes of it: the answer must not
        // contain one of this table.
        let region = take(&mut join.region);
        let region = Layout::new(join.ring_bytes)
            .filter(|layout| leaves_addresses(layout.len(), mapped.load(Ordering::Relaxed)))
            .filter(|_| has_room(0))
            .and_then(|layout| map(region?, layout.len()));
        let len = region.as_ref().map_or(0, |_| address_space(join.ring_bytes));
        mapped.fetch_add(len, Ordering::Relaxed);
        let peer_pid = self.watch_peer(&mut join);
        let own = open_inbox(&mut join.own);
        let peer = open_inbox(&mut join.peer);
        let brought = [&own, &peer].into_iter().flatten();
        let events = brought.flat_map(|inbox| [&inbox.ready, &inbox.attention]);
        let passed = self.pass_on(&events.map(|fd| fd.as_fd()).collect::<Vec<_>>());
        let own = own.and_then(|BroughtInbox { memory, attention, .. }| {
            self.inboxes_seen += 1;
            let number = self.inboxes_seen;
            self.watch_inbox(number, &attention).ok()?;
            self.attention.insert(number, attention);
            Some(OwnInboxMemory { memory, number })
        });
        let peer = peer.map(|inbox| inbox.memory);
        PreparedJoin { join, region, own, peer, peer_pid, passed }
    }

    fn open_delegation(&self, mut terms: DelegateT) -> Delegation {
        let record = take(&mut terms.record)
            .filter(|file| has_room(RECORD_COPIES * len_of(file)))
            .and_then(|file| sojourn_pump::sealed::open(file).ok());
        // In the order of `LinkSockets::of`.
        let sockets = [take(&mut terms.packets), take(&mut terms.xdp)];
        let sockets: Vec<_> = sockets.iter().map_while(|fd| Some(fd.as_ref()?.as_fd())).collect();
        let passed = self.pass_on(&sockets);
        Delegation { terms, record, passed }
    }

    /// Puts descriptors into the bell's socket, for the program's table. Returns their number.
    fn pass_on(&self, fds: &[BorrowedFd<'_>]) -> usize {
        let is_sent = !fds.is_empty() && send_descriptors(self.far.as_fd(), fds).is_ok();
        if is_sent { fds.len() } else { 0 }
    }

    /// Watches the peer's process; returns its number here.
    fn watch_peer(&mut self, join: &mut JoinT) -> Option<ProcessId> {
        let peer_pid = ProcessId(join.peer_pid);
        let process = take(&mut join.peer_process);
        if let Some(known) = self.peers.get(&peer_pid) {
            return Some(known.number);
        }
        let data = EventData::new_u64(PEER | u64::from(peer_pid.0));
        let process = process.filter(|process| {
            !join.is_carried && epoll::add(&self.set, process, data, EventFlags::IN).is_ok()
        })?;
        let number = number_here(&process);
        self.peers.insert(peer_pid, Peer { process, number });
        Some(number)
    }

    /// Ends the watch on a process with which no session is left.
    pub(super) fn forget_peer(&mut self, pid: ProcessId) {
        if let Some(Peer { process, .. }) = self.peers.remove(&pid) {
            // Closing does not remove the registration (epoll(7)): the server has the same open
            // file. A peer that comes again under this number could not be added then.
            let _ = epoll::delete(&self.set, &process);
        }
    }

    /// Stops watching a process whose end has been reported, so that it is not reported again.
    pub(super) fn peer_died(&mut self, pid: ProcessId) {
        if let Some(Peer { process, .. }) = self.peers.get(&pid) {
            let _ = epoll::delete(&self.set, process);
        }
    }

    fn watch_inbox(&self, number: u64, attention: &OwnedFd) -> Result<(), Errno> {
        let data = EventData::new_u64(INBOX | number);
        // Once for each request: the first ones may come before the join, which may have to wait,
        // and is what attends to them.
        epoll::add(&self.set, attention, data, EventFlags::IN | EventFlags::ET)
    }

    /// Does not listen to an inbox until [`Outside::hear_inbox`].
    pub(super) fn ignore_inbox(&self, number: u64) {
        if let Some(attention) = self.attention.get(&number) {
            let _ = epoll::delete(&self.set, attention);
        }
    }

    /// Listens to an inbox again.
    pub(super) fn hear_inbox(&self, number: u64) {
        if let Some(attention) = self.attention.get(&number) {
            let _ = self.watch_inbox(number, attention);
        }
    }

    /// Ends the watch on an inbox that no session uses.
    pub(super) fn forget_inbox(&mut self, number: u64) {
        if let Some(attention) = self.attention.remove(&number) {
            let _ = epoll::delete(&self.set, &attention);
        }
    }
}

fn take(fd: &mut rt::Descriptor) -> Option<OwnedFd> {
    core::mem::replace(fd, rt::Descriptor::NONE).into_owned().ok().flatten()
}

/// Returns the length of a file; 0 if it is unknown.
fn len_of(file: &OwnedFd) -> usize {
    let len = rustix::fs::fstat(file).ok().and_then(|stat| usize::try_from(stat.st_size).ok());
    len.filter(|len| *len <= usize::MAX / RECORD_COPIES).unwrap_or_default()
}

/// Returns true if a program with a limited address space keeps most of it, with a stream of `len`
/// bytes beside those that take `mapped`.
fn leaves_addresses(len: usize, mapped: u64) -> bool {
    let allowed = rustix::process::getrlimit(rustix::process::Resource::As).current;
    allowed.is_none_or(|allowed| mapped.saturating_add(len as u64) <= allowed / ADDRESSES_PART)
}

/// Returns the bytes of address space that a stream with such rings takes.
pub(super) fn address_space(ring_bytes: [u32; 2]) -> u64 {
    Layout::new(ring_bytes).map_or(0, |layout| layout.len() as u64)
}

fn map(fd: OwnedFd, len: usize) -> Option<Mapping> {
    Segment::accept(fd, len).ok()?.map(Access::ReadWrite).ok()
}

/// Opens an inbox's memory and events, if the join has brought them.
fn open_inbox(inbox: &mut InboxT) -> Option<BroughtInbox> {
    let (ready, attention) = (take(&mut inbox.ready), take(&mut inbox.attention));
    let memory = map(take(&mut inbox.memory)?, Inbox::LEN)?;
    Some(BroughtInbox { memory, ready: ready?, attention: attention? })
}

/// Looks at the program's descriptors for the protocol thread: the second thread reads the /proc
/// files of the thread with that id, which has the program's table.
pub(super) struct ProgramDescriptors<'a>(pub(super) &'a mut Aside<Outside>, pub(super) Pid);

impl OpenDescriptors for ProgramDescriptors<'_> {
    fn numbers(&mut self) -> Vec<i32> {
        let mut direct = Direct { tid: self.1 };
        self.0.call(move |_| direct.numbers()).unwrap_or_default()
    }

    fn sets(&mut self) -> Vec<i32> {
        let mut direct = Direct { tid: self.1 };
        self.0.call(move |_| direct.sets()).unwrap_or_default()
    }

    fn info(&mut self, fd: i32) -> String {
        let mut direct = Direct { tid: self.1 };
        self.0.call(move |_| direct.info(fd)).unwrap_or_default()
    }

    fn own_calls(&mut self, host: &dyn Host, numbers: &[i32]) -> OwnCalls {
        self.0.call(move |_| host.own_calls(numbers)).unwrap_or(OwnCalls::UnderWay)
    }
}

/// Takes the events of the program's set of sessions' descriptors.
///
/// # Errors
/// Those of `epoll_wait(2)`: the program has closed the set, a number that is not its own.
pub(super) fn take_watched(
    set: BorrowedFd<'_>,
    events: &mut Vec<epoll::Event>,
) -> Result<(), Errno> {
    events.clear();
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    match epoll::wait(set, rustix::buffer::spare_capacity(events), Some(&at_once)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}
