//! The driver of this process's sessions with other hosts: how sessions come, who turns the pump,
//! how sessions go.
//!
//! # Who turns the pump
//! Every thread that has reason to turns the pump, under one lock: a call that has written, for its
//! own session; a call that finds nothing or waits, for all sessions, since it waits for packets;
//! and a thread that sleeps for packets and timers, for all that no call waits for. A call that
//! finds the pump being turned leaves a mark, and the turning thread looks again. The lock is this
//! process's alone, and no thread sleeps under it.
//!
//! The session server delegates a session with a record of its connection's state. Any thread gives
//! the session back, with another record, over a connection of its own. Not here: sleeping for
//! packets (`watch`), opening packet interfaces (`links`), and the pump (`sojourn_pump`). Read
//! `docs/understand/moves.md`.

pub(crate) mod datagrams;
mod links;
mod sessions;
mod thread;

use crate::fds::slot::Slot;
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::{Library, OwnSession, PerProcess, library};
use crate::process::thresholds::measures_pace;
use crate::remote::carry_server::CarryConnection;
use crate::remote::delegation::{Delegation, LinkSockets};
use crate::remote::watch::Watch;
use crate::session::Session;
use crate::session::transport::Transport;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use sojourn_proto::record::SessionRecord;
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::Instant;
use sojourn_pump::{Carried, InTransit, LinkAddresses, LinkHop, LinkId, Pump, now};
use sojourn_session::{DelegateT, DelegationToken, HopT};
use sojourn_shm::MovableFd;
use sojourn_stream::Stream;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Events taken at once.
const EVENTS: usize = 16;
/// Period of the thread's looks while the pump is turned, and how late a timer may be
/// (microseconds). Every message sets timers and removes them again, and the thread must not wake
/// up for each.
const SLACK_US: u64 = 2_000;
/// The time of a timer that is not set.
const NEVER: u64 = u64::MAX;

/// The subjects of events in the thread's set.
const WAKE: u64 = 0;
const PACKETS: u64 = 1;
const TICK: u64 = 2;

/// The driver of one process.
#[derive(Debug)]
pub(crate) struct Net {
    pump: Mutex<Pump>,
    /// The number of sessions whose engine runs here.
    count: AtomicU32,
    /// Sessions to be served that were marked while another thread turned the pump.
    marked: Mutex<Vec<Slot>>,
    has_marked: AtomicBool,
    pub(crate) watch: Watch,
    /// Wakes the thread.
    wake: MovableFd,
    /// The time of the thread's next look, if nothing wakes it (microseconds).
    looks_at: AtomicU64,
    /// A call has turned the pump since the thread looked last.
    was_turned: AtomicBool,
    /// For each session's slot what the server has delegated it by.
    delegated: Mutex<HashMap<Slot, Delegated>>,
    /// The numbers of what interfaces have beside the descriptors that they are waited for with, by
    /// the numbers of these: connections with drivers, and AF_XDP sockets.
    beside: Mutex<HashMap<i32, i32>>,
    /// The connection over which sessions are given back.
    pub(crate) server: CarryConnection,
    has_thread: AtomicBool,
}

/// The driver, made for the first such session; `None` if no descriptors were left for it.
static NETS: PerProcess<Option<Net>> = PerProcess::new();

/// The server's name of a delegated session, and the session's interface.
#[derive(Debug)]
struct Delegated {
    token: DelegationToken,
    link: LinkId,
}

impl Delegated {
    fn of(terms: &DelegateT) -> Self {
        Self { token: DelegationToken(terms.token), link: LinkId(terms.link) }
    }
}

/// A session that is on its way home.
pub(crate) struct ReturningSession {
    pub(crate) token: DelegationToken,
    link: LinkId,
    pub(crate) carried: Carried,
    pub(crate) record: SessionRecord,
}

/// Returns the part of a next hop that is in frames.
fn hop_of(told: &HopT) -> LinkHop {
    let link = told.has_addresses.then_some(LinkAddresses { own: told.own, next: told.next });
    LinkHop { link, mtu: told.mtu, is_cut: told.is_cut }
}

/// Wakes the threads of this process, which are to end, if there are any. [`Engine::add_waker`]
/// takes it as a callback without arguments.
fn wake_threads() {
    if let Some(net) = library().net() {
        net.wake();
        net.server.end();
    }
}

impl Net {
    /// Returns the process's driver, made with its thread if need be. `None` if no descriptors or
    /// threads are left.
    pub(crate) fn start(
        library: &'static Library,
        engine: &'static Engine,
    ) -> Option<&'static Self> {
        let make = || -> Option<Self> {
            let set = engine.own.make(true, || epoll::create(epoll::CreateFlags::CLOEXEC)).ok()?;
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let wake = engine.own.make(true, || eventfd(0, flags)).ok()?;
            epoll::add(&set, &wake, EventData::new_u64(WAKE), EventFlags::IN).ok()?;
            let server = CarryConnection::start(library, engine, wake.number())?;
            let watch = Watch::new(engine, set, PACKETS, TICK).ok()?;
            let mut pump = Pump::default();
            if measures_pace(library.policy.config()) {
                pump.measure_together();
            }
            Some(Self {
                pump: Mutex::new(pump),
                count: AtomicU32::new(0),
                marked: Mutex::default(),
                has_marked: AtomicBool::new(false),
                watch,
                wake,
                looks_at: AtomicU64::new(NEVER),
                was_turned: AtomicBool::new(false),
                delegated: Mutex::default(),
                beside: Mutex::default(),
                server,
                has_thread: AtomicBool::new(false),
            })
        };
        let net = NETS.of_or(library, || Box::new(make()))?.as_ref()?;
        if !net.has_thread.swap(true, Ordering::SeqCst) {
            if !engine.spawn(library.host(), "sojourn-net", move || net.serve(engine)) {
                net.has_thread.store(false, Ordering::SeqCst);
                return None;
            }
            engine.add_waker(wake_threads);
        }
        Some(net)
    }

    /// Runs the session's engine from now on. `other`: the side of the stream that the server had.
    /// Returns false if that is impossible; the server learns of it when the session leaves.
    pub(crate) fn begin(
        &self,
        engine: &Engine,
        session: OwnSession<'_>,
        other: Stream,
        delegation: &Delegation,
        sockets: Option<LinkSockets>,
    ) -> bool {
        let (Some(record), terms) = (&delegation.record, &delegation.terms) else { return false };
        // The server has begun the ring; this view of the stream is older than that.
        other.use_ring();
        let mut pump = lock(&self.pump);
        if !self.has_link(engine, &mut pump, terms, sockets) {
            return false;
        }
        let hop = hop_of(&terms.hop);
        let Some(mut carried) = Carried::new(other, record, &hop, &Limits::default(), now()) else {
            return false;
        };
        carried.watch_bulk(session.judge(engine));
        // SYNC: under the pump's lock, before the claim; pairs with `withdraw`: a thread that has
        // frozen the stream takes the pump's lock next. It either finds the session delegated, or
        // the claim fails here and the carrier puts the session back.
        fence(Ordering::SeqCst);
        if !carried.stream().claim() {
            return false;
        }
        lock(&self.delegated).insert(session.slot(), Delegated::of(terms));
        pump.insert(session.pump_number(), LinkId(terms.link), carried, now());
        self.count.fetch_add(1, Ordering::SeqCst);
        session.library.set_hears_packets(&session, self.watch.packets());
        session.is_delegated.store(true, Ordering::SeqCst);
        if let Transport::RemoteTcp(tcp) = session.transport() {
            session.take_new_options(tcp, &mut pump);
        }
        self.serve_and_leave(pump);
        true
    }

    /// Does `work` with the pump, and then serves sessions marked meanwhile.
    pub(crate) fn with_pump<R>(&self, library: &Library, work: impl FnOnce(&mut Pump) -> R) -> R {
        library.with_stack(|| {
            let mut pump = lock(&self.pump);
            let answer = work(&mut pump);
            self.leave(pump);
            answer
        })
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // The counter is full only if the thread is awake anyhow.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes over a new way to a session's peer.
    pub(crate) fn reroute(&self, slot: Slot, hop: &HopT) {
        let mut pump = lock(&self.pump);
        pump.reroute(slot.into(), &hop_of(hop), now());
        pump.forget_routes(slot.into());
        self.serve_and_leave(pump);
    }

    /// Withdraws a session whose stream is frozen, so that it is not begun any more (see
    /// [`Net::begin`]). Returns true if its engine ran here.
    pub(crate) fn withdraw(&self, session: &Session) -> bool {
        let _pump = lock(&self.pump);
        session.is_delegated.swap(false, Ordering::SeqCst)
    }

    /// Takes the segments that have come for a session since it left the pump; its packets are the
    /// kernel's again.
    pub(crate) fn in_transit(
        &self,
        library: &Library,
        parting: &ReturningSession,
    ) -> Option<InTransit> {
        self.with_pump(library, |pump| pump.take_in_transit(&parting.carried.flow(), now()))
    }

    /// Takes a frozen session out of the pump, for the way home. `None` if it was not here.
    pub(crate) fn part(&self, slot: Slot) -> Option<ReturningSession> {
        let mut carried = lock(&self.pump).remove(slot.into(), now())?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        let Delegated { token, link } = lock(&self.delegated).remove(&slot)?;
        let record = carried.leave(now())?;
        Some(ReturningSession { token, link, carried, record })
    }

    /// Resets a session that nobody takes back: its peer is told that the connection is over.
    pub(crate) fn reset(&self, mut parting: ReturningSession) {
        let ReturningSession { link, carried, record, .. } = &mut parting;
        lock(&self.pump).reset(*link, carried, record, now());
    }

    /// Serves a session to which something has happened on this side; the thread that turns the
    /// pump does it, if another one does.
    pub(crate) fn serve_one(&self, library: &Library, slot: Slot) {
        library.with_stack(|| self.serve_one_here(slot));
    }

    fn serve_one_here(&self, slot: Slot) {
        if let Ok(mut pump) = self.pump.try_lock() {
            pump.mark(slot.into());
            return self.serve_and_leave(pump);
        }
        lock(&self.marked).push(slot);
        // SYNC: before the lock is tried again; pairs with `leave`, which lets go of the lock and
        // then looks here.
        self.has_marked.store(true, Ordering::SeqCst);
        if let Some(pump) = self.take_marked() {
            self.leave(pump);
        }
    }

    /// Takes in arrived packets, for all sessions. Returns true if there were any; false as well if
    /// another thread turns the pump just now.
    #[inline]
    pub(crate) fn turn(&self, library: &Library) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.turn_now(library, Pump::turn) == Some(true)
    }

    /// Prepares the sleep of a call, as [`Watch::begin_sleep`] does, and does now what the pump
    /// might have left for later.
    pub(crate) fn begin_sleep(&self, library: &Library, may_watch: bool) -> bool {
        let watches = self.watch.begin_sleep(may_watch);
        library.with_stack(|| {
            if let Ok(mut pump) = self.pump.try_lock() {
                pump.turn(false, now());
                self.leave(pump);
            }
        });
        watches
    }

    /// Turns the pump by `turn`, unless another thread does just now or there is nothing to do.
    #[inline]
    pub(crate) fn turn_now<R>(
        &self,
        library: &Library,
        turn: impl FnOnce(&mut Pump, bool, Instant) -> R,
    ) -> Option<R> {
        let mut pump = self.pump.try_lock().ok()?;
        if pump.is_quiet() {
            drop(pump);
            self.serve_marked(library);
            return None;
        }
        // A packet's way through the engine may need much stack.
        Some(library.with_stack(move || {
            let mut pump = pump;
            let at = now();
            self.watch.looked(at.as_micros());
            let answer = turn(&mut pump, self.watch.will_look_again(), at);
            self.leave(pump);
            answer
        }))
    }

    fn serve_and_leave<'a>(&'a self, mut pump: MutexGuard<'a, Pump>) {
        pump.serve(self.watch.will_look_again(), now());
        self.leave(pump);
    }

    /// Lets go of the pump, and serves sessions marked meanwhile.
    fn leave<'a>(&'a self, mut pump: MutexGuard<'a, Pump>) {
        loop {
            let next = pump.next_timeout().map_or(NEVER, Instant::as_micros);
            // The thread itself stores `looks_at`, under this lock.
            let is_early = next.saturating_add(SLACK_US) < self.looks_at.load(Ordering::Relaxed);
            if !self.was_turned.load(Ordering::Relaxed) {
                self.was_turned.store(true, Ordering::Relaxed);
            }
            drop(pump);
            if is_early {
                self.wake();
            }
            // SYNC: after the lock was let go of; pairs with the store in `serve_one`.
            fence(Ordering::SeqCst);
            match self.take_marked() {
                Some(more) => pump = more,
                None => return,
            }
        }
    }

    /// Serves sessions marked while this thread held the lock and did nothing under it.
    #[inline]
    fn serve_marked(&self, library: &Library) {
        // SYNC: after the lock was let go of; pairs with the store in `serve_one`.
        fence(Ordering::SeqCst);
        if self.has_marked.load(Ordering::SeqCst) {
            library.with_stack(|| {
                if let Some(pump) = self.take_marked() {
                    self.leave(pump);
                }
            });
        }
    }

    /// Serves the sessions marked while another thread turned the pump, unless one does now.
    fn take_marked(&self) -> Option<MutexGuard<'_, Pump>> {
        if !self.has_marked.load(Ordering::SeqCst) {
            return None;
        }
        let mut pump = self.pump.try_lock().ok()?;
        self.has_marked.store(false, Ordering::SeqCst);
        for slot in core::mem::take(&mut *lock(&self.marked)) {
            pump.mark(slot.into());
        }
        pump.serve(false, now());
        Some(pump)
    }
}

impl Library {
    /// Returns the driver of this process's sessions with other hosts, if there is one.
    #[inline]
    pub(crate) fn net(&self) -> Option<&Net> {
        NETS.of(self)?.as_ref()
    }

    /// Takes in arrived packets, if there is a driver. Returns true if there were any.
    #[inline]
    pub(crate) fn turn_net(&self) -> bool {
        self.net().is_some_and(|net| net.turn(self))
    }
}
