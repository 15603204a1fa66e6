//! The interface `session`: arguments are checked and looked at here, decided in the registry.
//!
//! One lock guards everything; it is held for microseconds, by the serving thread, by the scanner
//! and by the one that hears what proxies have seen; nothing is done under it that anybody could
//! make wait. Not here: the process and its end (`run`), what administrators ask (`admin`),
//! sessions with other hosts (`carry`).

mod admin;
mod carry;
mod ends;
mod peers;

use crate::beat::Beats;
use crate::errand::{self, Errands};
use crate::identity::Diag;
use crate::log::{self, Level};
use crate::looked::Looked;
use crate::looks::Looks;
use crate::memory::{Memory, RESERVE, SLOTS};
use crate::pins::Pins;
use crate::proxies::Proxies;
use crate::registry::{
    CallError, Carried, Delivery, InboxOut, JoinOut, Limits, Registry, Who, Wish,
};
use crate::scanner::{self, Job};
use ends::Looker;
use peers::has_ended;
use rustix::io::Errno;
use rustix::process::Pid;
use sojourn_carrier::{Door, Handed};
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::{Caller, Descriptor, Fault};
use sojourn_session::{
    ENDS_MAX, EventT, FAULT_ARGUMENT, FAULT_NO_HELLO, FAULT_NOT_ALLOWED, FAULT_RESOURCES, InboxT,
    JoinT, OfferT, PROGRAM_MAX, ReasonT, RecallT, RefusalT, SessionAdoptDeferredReply,
    SessionOfferDeferredReply, SessionServer, SessionShowPacketsDeferredReply, WantedT, WhereT,
};
use sojourn_shm::fault::point;
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// Ends that all programs together may have with the server: half a kilobyte each.
const ALL_ENDS: usize = 4 * ENDS_MAX as usize;

/// What an administrator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// Nothing.
    Not,
    /// To end when no process is known any more.
    WhenEmpty,
    /// To end now.
    Now,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    errands: Errands,
}

/// The server object.
#[derive(Debug)]
pub struct Sojournd {
    state: Mutex<State>,
    looker: Looker,
    pins: Pins,
    /// For looks at what the carrier has, which is the only one that waits for them.
    carriers_diag: Mutex<Diag>,
    me: Weak<Self>,
    beats: Beats,
    begun: Instant,
    jobs: Mutex<Sender<Job>>,
    own_user: u32,
    /// Everybody may use it.
    is_public: bool,
    /// [`Rules::asks_for_packets`].
    asks_for_packets: bool,
    /// The processes that clients connected as, until they say hello.
    peers: Mutex<HashMap<ClientId, Result<OwnedFd, Errno>>>,
    stop: AtomicU8,
    /// Where sockets go whose peers are on other hosts, if there is a carrier.
    door: OnceLock<Mutex<Door>>,
}

/// The server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No `sock_diag`.
    #[error(
        "the kernel does not tell who is at the other end of a socket (sock_diag, CONFIG_UNIX_DIAG, CONFIG_INET_DIAG): {0}"
    )]
    Diag(rustix::io::Errno),
    /// No inotify.
    #[error("the kernel does not tell pipes apart (inotify): {0}")]
    Pins(Errno),
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

fn fault(code: i32) -> Fault {
    Fault(code as u32)
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoHello => fault(FAULT_NO_HELLO),
            CallError::Quota => fault(FAULT_RESOURCES),
            CallError::Argument => fault(FAULT_ARGUMENT),
        }
    }
}

/// How a server is started, beside where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Everybody may use it. Only root's can be so, and only if it is started so.
    pub is_public: bool,
    /// [`Limits::joins_within`].
    pub joins_within: bool,
    /// Programs that show a packet socket get one that is bound to an interface.
    pub asks_for_packets: bool,
}

impl Sojournd {
    /// A server that knows nobody, and its scanner. It looks itself at what is sent.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new() -> Result<Arc<Self>, StartError> {
        let is_public = rustix::process::geteuid().is_root();
        Self::alone(Rules { is_public, ..Rules::default() })
    }

    /// The same by other rules.
    pub(crate) fn alone(rules: Rules) -> Result<Arc<Self>, StartError> {
        let diag = Diag::new().map_err(StartError::Diag)?;
        Self::with(Looker::Here(Box::new(Mutex::new(diag))), Beats::new(), rules)
    }

    /// The same with proxies that look.
    pub(crate) fn with_proxies(
        proxies: Arc<Proxies>,
        rules: Rules,
    ) -> Result<Arc<Self>, StartError> {
        let beats = Beats::new();
        let looks = Looks::start(beats.beat("answers")).map_err(StartError::Thread)?;
        Self::with(Looker::Apart { proxies, looks }, beats, rules)
    }

    fn with(looker: Looker, beats: Beats, rules: Rules) -> Result<Arc<Self>, StartError> {
        let user = rustix::process::geteuid();
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |files| files as usize);
        let limits = Limits {
            ends: ENDS_MAX as usize,
            all_ends: ALL_ENDS,
            descriptors: files.saturating_sub(RESERVE as usize),
            own_user: user.as_raw(),
            slots: SLOTS,
            serves_everybody: rules.is_public,
            joins_within: rules.joins_within,
        };
        let mut seed = [0; 4];
        // Without randomness the clock does: the seed only keeps numbers of different servers
        // apart.
        let is_random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let clock = sojourn_ipc::now_ns() as u32;
        let seed = if is_random == Ok(4) { u32::from_ne_bytes(seed) } else { clock };
        let state = State { registry: Registry::new(limits, seed), errands: Errands::new() };
        let (sender, jobs) = scanner::queue();
        let diag = Diag::new().map_err(StartError::Diag)?;
        let pins = Pins::new().map_err(StartError::Pins)?;
        let beat = beats.beat("scanner");
        let server = Arc::new_cyclic(|me| Self {
            state: Mutex::new(state),
            looker,
            pins,
            carriers_diag: Mutex::new(diag),
            me: Weak::clone(me),
            beats,
            begun: Instant::now(),
            jobs: Mutex::new(sender),
            own_user: user.as_raw(),
            is_public: rules.is_public,
            asks_for_packets: rules.asks_for_packets,
            peers: Mutex::default(),
            stop: AtomicU8::new(Stop::Not as u8),
            door: OnceLock::new(),
        });
        let weak = Arc::downgrade(&server);
        std::thread::Builder::new()
            .name("sojourn-scanner".into())
            .spawn(move || scanner::work(&jobs, &weak, &beat))
            .map_err(StartError::Thread)?;
        Ok(server)
    }

    /// Whether that user's programs may use it.
    fn serves(&self, uid: u32) -> bool {
        self.is_public || uid == 0 || uid == self.own_user
    }

    /// To end now, as a signal says.
    pub(crate) fn stop_now(&self) {
        self.stop.fetch_max(Stop::Now as u8, Ordering::Relaxed);
    }

    /// The threads that the watchdog looks at.
    pub(crate) fn beats(&self) -> &Beats {
        &self.beats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What an administrator asked for.
    pub fn stop_wanted(&self) -> Stop {
        match self.stop.load(Ordering::Relaxed) {
            1 => Stop::WhenEmpty,
            2 => Stop::Now,
            _ => Stop::Not,
        }
    }

    /// Whether no process is known.
    pub fn is_empty(&self) -> bool {
        self.lock().registry.counters().1 == 0
    }

    /// What is to be done now and then: answers the clients that are to be disconnected because
    /// they do not collect their events, and whether it is to be called again in a second even if
    /// nothing else happens.
    pub fn tick(&self) -> (Vec<ClientId>, bool) {
        let mut state = self.lock();
        let State { registry, errands } = &mut *state;
        let now_ms = self.now_ms();
        let late = registry.take_late(now_ms);
        for id in &late {
            registry.gone(*id, now_ms, &Memory);
            log::say(Level::Warn, format_args!("client {} does not collect its events", id.index));
        }
        errands.keep(|user| registry.has_user(user));
        let are_ending = match &self.looker {
            Looker::Apart { proxies, .. } => proxies.keep(|user| registry.has_user(user)),
            Looker::Here(_) => false,
        };
        Self::ring(registry, errands);
        (late, are_ending || registry.has_events())
    }

    fn ring(registry: &mut Registry, errands: &mut Errands) {
        for id in registry.take_rings() {
            if let Some(who) = registry.who(id) {
                errands.ring(who.uid, who.doorbell.clone());
            }
        }
    }

    /// The scanner has counted.
    pub(crate) fn counted(&self, jobs: &[Job], verdicts: &[Result<(), ReasonT>]) {
        let mut state = self.lock();
        let State { registry, errands } = &mut *state;
        registry.count_scan();
        let now_ms = self.now_ms();
        for (job, verdict) in jobs.iter().zip(verdicts) {
            // The look was for a process number: it was this process's only if that is still there.
            let process = registry.who(job.process).map(|who| who.process.clone());
            let is_there = process.is_none_or(|it| it.as_fd().is_some_and(|fd| !has_ended(fd)));
            let verdict = if is_there { *verdict } else { Err(ReasonT::Closed) };
            registry.counted(job.process, job.local, job.number, verdict, now_ms, &mut Memory);
        }
        Self::ring(registry, errands);
        let jobs = Self::jobs(registry);
        drop(state);
        self.count(jobs);
    }
}

impl SessionServer for Sojournd {
    fn hello(
        &self,
        caller: &Caller,
        program: &CStr,
        doorbell: Option<OwnedFd>,
    ) -> Result<bool, Fault> {
        let uid = caller.credentials.uid;
        if !self.serves(uid) {
            return Err(fault(FAULT_NOT_ALLOWED));
        }
        let doorbell = doorbell.ok_or(fault(FAULT_ARGUMENT))?;
        if !errand::is_event(&doorbell) {
            return Err(fault(FAULT_ARGUMENT));
        }
        let pid = u32::try_from(caller.credentials.pid).unwrap_or(0);
        let process = match Pid::from_raw(caller.credentials.pid) {
            Some(pid) => self.process(caller.client, pid)?.into(),
            None => Descriptor::NONE,
        };
        let mut program = program.to_string_lossy().into_owned();
        while program.len() > PROGRAM_MAX as usize {
            program.pop();
        }
        log::say(Level::Debug, format_args!("{pid} is {program}"));
        let who = Who { pid, uid, program, process, doorbell: doorbell.into() };
        self.lock().registry.hello(caller.client, who)?;
        Ok(self.asks_for_packets)
    }

    fn offer(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        what: OfferT,
        reply: SessionOfferDeferredReply,
    ) {
        let is_known = self.lock().registry.who(caller.client).is_some();
        let Some(end) = end.filter(|_| is_known) else {
            let code = if is_known { FAULT_ARGUMENT } else { FAULT_NO_HELLO };
            let _ = reply.fault(fault(code));
            return;
        };
        point("sojournd.offer");
        let caller = *caller;
        self.look(end, move |server, looked| {
            // Without an answer it is the program that holds what it has offered.
            let Some(looked) = looked else {
                let _ = reply.fault(fault(FAULT_RESOURCES));
                return;
            };
            let offered = server.offered(&caller, looked, &what);
            point("sojournd.offered");
            // Nobody waits any more, if it fails.
            let _ = match offered {
                Ok(is_waiting) => reply.send(is_waiting),
                Err(error) => reply.fault(error.into()),
            };
        });
    }

    fn next(&self, caller: &Caller) -> Result<EventT, Fault> {
        Ok(match self.lock().registry.next(caller.client)? {
            None => EventT::Case0,
            Some(Delivery::Join(join)) => {
                point("sojournd.join");
                EventT::Join(join_of(*join))
            }
            Some(Delivery::Recall { local, reason }) => {
                point("sojournd.recall");
                EventT::Recall(RecallT { local, reason })
            }
            Some(Delivery::Refused { local, reason }) => {
                EventT::Refused(RefusalT { local, reason })
            }
            Some(Delivery::Wanted { inode }) => EventT::Wanted(WantedT { inode }),
            Some(Delivery::Carried(what)) => match *what {
                Carried::Lend(lent) => EventT::Lend(lent),
                Carried::Reroute(rerouted) => EventT::Rerouted(rerouted),
                Carried::Way(way) => EventT::Way(way),
            },
        })
    }

    fn left(&self, caller: &Caller, local: u64, reason: ReasonT, sent: u64, _received: u64) {
        point("sojournd.left");
        let mut state = self.lock();
        let State { registry, errands } = &mut *state;
        registry.left(caller.client, local, reason, sent, self.now_ms(), &Memory);
        Self::ring(registry, errands);
    }

    fn ask_way(&self, caller: &Caller, place: &WhereT) {
        let local = self.lock().registry.of_carrier(caller.client, place.local);
        if let Some(local) = local {
            let to = std::net::Ipv6Addr::from(place.to).to_canonical();
            self.hand(Handed::AskWay { local, to });
        }
    }

    fn adopt(
        &self,
        caller: &Caller,
        end: Option<OwnedFd>,
        what: OfferT,
        stream: u64,
        side: u8,
        reply: SessionAdoptDeferredReply,
    ) {
        let Some(end) = end else {
            let _ = reply.fault(fault(FAULT_ARGUMENT));
            return;
        };
        let caller = *caller;
        self.look(end, move |server, looked| {
            let looked = looked.unwrap_or_else(|| Looked::refused(ReasonT::Resources));
            let _ = match server.adopted(&caller, looked, &what, (stream, side)) {
                Ok(is_adopted) => reply.send(is_adopted),
                Err(error) => reply.fault(error.into()),
            };
        });
    }

    fn declined(&self, caller: &Caller, inode: u64, reason: ReasonT, in_kernel: u64, away: u64) {
        let rates = [in_kernel, away];
        self.lock().registry.declined(caller.client, inode, (reason, rates), self.now_ms());
    }

    fn show_packets(
        &self,
        caller: &Caller,
        packets: Option<OwnedFd>,
        reply: SessionShowPacketsDeferredReply,
    ) {
        let Some(packets) = packets else {
            let _ = reply.fault(fault(FAULT_ARGUMENT));
            return;
        };
        let client = caller.client;
        self.look(packets, move |server, looked| {
            let is_shown = looked.is_some_and(|looked| looked.is_packets);
            if is_shown {
                server.lock().registry.show_packets(client);
            }
            let _ = reply.send(is_shown);
        });
    }

    fn client_gone(&self, client: ClientId) {
        self.lock_peers().remove(&client);
        let mut state = self.lock();
        let State { registry, errands } = &mut *state;
        registry.gone(client, self.now_ms(), &Memory);
        Self::ring(registry, errands);
    }
}

fn wish_of(what: &OfferT, inode: u64) -> Wish {
    let OfferT { local, set, ring_bytes, is_sole } = *what;
    Wish { local, set, ring_bytes, is_sole, inode }
}

fn join_of(join: JoinOut) -> JoinT {
    let inbox = |inbox: InboxOut| {
        let [memory, ready, attention] = inbox.descriptors;
        InboxT { id: inbox.id, slot: inbox.slot, memory, ready, attention }
    };
    JoinT {
        local: join.local,
        stream: join.stream,
        side: join.side,
        kind: join.kind,
        is_carried: join.is_carried,
        ring_bytes: join.ring_bytes,
        region: join.region,
        own: inbox(join.own),
        peer: inbox(join.peer),
        peer_pid: join.peer_pid,
        peer_process: join.peer_process,
    }
}
