//! Sessions with other hosts that this process carries: how they come, who turns the pump, how they
//! go.
//!
//! # Who turns the pump
//! Whoever has reason to, under one lock: a call that has written, for its own session; a call that
//! finds nothing or waits, for all, as it is packets that it waits for; and a thread that sleeps
//! for packets and timers, for what nobody waits for. A call that finds the pump being turned
//! leaves word, and whoever turns it looks again. The lock is this process's alone, and nobody
//! sleeps under it. Who sleeps for packets: `watch`.
//!
//! A session is delegated by the session server, with a record of where its connection stands, and
//! given back with another one on a connection of its own, by any thread. Read
//! `docs/understand/moves.md`. What the pump is: `sojourn_pump`.

pub(crate) mod datagrams;
mod sessions;
mod thread;

use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::library;
use crate::process::library::{Library, PerProcess};
use crate::process::room::has_room;
use crate::remote::carry_server::Connected;
use crate::remote::delegation::Delegation;
use crate::remote::watch::Watch;
use crate::session::Session;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use sojourn_netif::{Interface, Message, Ring, RingLayout};
use sojourn_proto::record::SessionRecord;
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::Instant;
use sojourn_pump::{Carried, InTransit, LinkHop, LinkId, Pump, now, sealed};
use sojourn_session::{HopT, LendT, RingT};
use sojourn_shm::Held;
use sojourn_stream::Stream;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Events taken at once.
const EVENTS: usize = 16;
/// While the pump is turned the thread looks so often (microseconds), and a timer may be so late:
/// every message sets timers and takes them away again, and the thread is not to be woken for each.
const SLACK_US: u64 = 2_000;
/// No time at which anything is due.
const NEVER: u64 = u64::MAX;

/// What an event of the thread's set is about.
const WAKE: u64 = 0;
const PACKETS: u64 = 1;
const TICK: u64 = 2;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Net {
    pump: Mutex<Pump>,
    /// Sessions that are carried here.
    count: AtomicU32,
    /// Sessions to be served that were marked while somebody turned the pump.
    marked: Mutex<Vec<u32>>,
    has_marked: AtomicBool,
    pub(crate) watch: Watch,
    /// Wakes the thread.
    wake: Held,
    /// When the thread looks next by itself, whatever happens (microseconds).
    looks_at: AtomicU64,
    /// The pump was turned since it looked last.
    was_turned: AtomicBool,
    /// What the server knows the sessions by, and their links, by their slots.
    tokens: Mutex<HashMap<u32, (u64, LinkId)>>,
    /// See `carried`.
    pub(crate) server: Mutex<Option<Connected>>,
    /// Made so far.
    pub(crate) connections: AtomicU64,
    /// A session has waited for a server in vain; the next ones need not.
    pub(crate) is_alone: AtomicBool,
    has_thread: AtomicBool,
}

/// Once there are such sessions. `None`: there are no descriptors left for it.
static NETS: PerProcess<Option<Net>> = PerProcess::new();

/// A session that is on its way home.
pub(crate) struct Parting {
    pub(crate) token: u64,
    link: LinkId,
    pub(crate) carried: Carried,
    record: SessionRecord,
    /// The same record.
    pub(crate) file: OwnedFd,
}

/// What of a way is in frames.
fn hop_of(told: &HopT) -> LinkHop {
    let link = told.has_addresses.then_some((told.own, told.next));
    LinkHop { link, mtu: told.mtu, is_cut: told.is_cut }
}

/// Wakes the thread of this process, if there is one.
fn wake_thread() {
    if let Some(net) = library().net() {
        net.wake();
    }
}

impl Net {
    /// The process's, with its thread. `None`: there are no descriptors or threads left.
    pub(crate) fn start(
        library: &'static Library,
        engine: &'static Engine,
    ) -> Option<&'static Self> {
        let made = NETS.of_or(library, || {
            let set = engine.own.make(true, || epoll::create(epoll::CreateFlags::CLOEXEC)).ok()?;
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let wake = engine.own.make(true, || eventfd(0, flags)).ok()?;
            epoll::add(&set, &wake, EventData::new_u64(WAKE), EventFlags::IN).ok()?;
            let watch = Watch::new(engine, set, PACKETS, TICK).ok()?;
            Some(Self {
                pump: Mutex::default(),
                count: AtomicU32::new(0),
                marked: Mutex::default(),
                has_marked: AtomicBool::new(false),
                watch,
                wake,
                looks_at: AtomicU64::new(NEVER),
                was_turned: AtomicBool::new(false),
                tokens: Mutex::default(),
                server: Mutex::new(None),
                connections: AtomicU64::new(0),
                is_alone: AtomicBool::new(false),
                has_thread: AtomicBool::new(false),
            })
        })?;
        let net = made.as_ref()?;
        if !net.has_thread.swap(true, Ordering::SeqCst) {
            if !engine.spawn(library.host(), "sojourn-net", move || net.serve()) {
                net.has_thread.store(false, Ordering::SeqCst);
                return None;
            }
            engine.add_waker(wake_thread);
        }
        Some(net)
    }

    /// Carries the session from now on. `other`: the side of its stream that the server had. False:
    /// it is not carried; the server finds that out when the session leaves.
    pub(crate) fn begin(
        &self,
        engine: &Engine,
        session: &Session,
        other: Stream,
        (delegation, packets): (&Delegation, Option<Held>),
    ) -> bool {
        let (Some(record), terms) = (&delegation.record, &delegation.terms) else { return false };
        if !has_room(0) {
            return false;
        }
        // The server has begun the ring; this view of it was made before that.
        other.use_ring();
        let mut pump = lock(&self.pump);
        if !self.has_link(&mut pump, terms, packets) {
            return false;
        }
        let hop = hop_of(&terms.hop);
        let Some(mut carried) = Carried::new(other, record, &hop, &Limits::default(), now()) else {
            return false;
        };
        carried.watch_bulk(session.judge(engine));
        // SYNC: under the pump's lock, before this is claimed; pairs with `withdraw`: who has
        // frozen the stream takes that lock next, and either finds the session delegated, or it is
        // not claimed here any more, and the carrier puts it back.
        fence(Ordering::SeqCst);
        if !carried.stream().claim() {
            return false;
        }
        lock(&self.tokens).insert(session.slot(), (terms.token, terms.link));
        pump.insert(session.slot(), terms.link, carried, now());
        self.count.fetch_add(1, Ordering::SeqCst);
        crate::process::library::library().set_hears_packets(session, self.watch.packets());
        session.is_delegated.store(true, Ordering::SeqCst);
        session.take_new_options(&mut pump);
        self.serve_and_leave(pump);
        true
    }

    /// Whether the pump has the interface that the session was delegated with, by now.
    fn has_link(&self, pump: &mut Pump, terms: &LendT, packets: Option<Held>) -> bool {
        if pump.has_link(terms.link) {
            return true;
        }
        let opened = packets.and_then(|packets| self.open_link(terms.ring, packets));
        opened.map(|packets| pump.add_link(terms.link, packets, now())).is_some()
    }

    fn open_link(&self, ring: RingT, socket: Held) -> Option<Box<dyn Interface + Send>> {
        let RingT { slot_len, slots } = ring;
        let socket = socket.into_owned();
        let packets: Box<dyn Interface + Send> = match slots {
            0 => Box::new(Message::from_descriptor(socket).ok()?),
            _ => Box::new(Ring::map(socket, RingLayout { slot_len, slots }).ok()?),
        };
        self.watch.add(packets.wait_fd()?).ok()?;
        Some(packets)
    }

    /// Does something with the pump, and sees to it that nothing is forgotten then.
    pub(crate) fn with_pump<R>(&self, work: impl FnOnce(&mut Pump) -> R) -> R {
        crate::process::library::library().with_stack(|| {
            let mut pump = lock(&self.pump);
            let answer = work(&mut pump);
            self.leave(pump);
            answer
        })
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // Full means that it is awake anyhow.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The way to a session's peer has changed.
    pub(crate) fn reroute(&self, slot: u32, hop: &HopT) {
        let mut pump = lock(&self.pump);
        pump.reroute(slot, &hop_of(hop), now());
        pump.forget_ways(slot);
        self.serve_and_leave(pump);
    }

    /// The stream is frozen: whether the session was carried here; it is not begun any more (see
    /// [`Net::begin`]).
    pub(crate) fn withdraw(&self, session: &Session) -> bool {
        let _pump = lock(&self.pump);
        session.is_delegated.swap(false, Ordering::SeqCst)
    }

    /// What has come for a session since it went, whose packets are the kernel's again.
    pub(crate) fn in_transit(&self, parting: &Parting) -> Option<InTransit> {
        self.with_pump(|pump| pump.take_in_transit(&parting.carried.flow(), now()))
    }

    /// The frozen session goes home: what is to be given back. `None`: it was not carried here, or
    /// there are no descriptors left.
    pub(crate) fn part(&self, slot: u32) -> Option<Parting> {
        let mut carried = lock(&self.pump).remove(slot, now())?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        let (token, link) = lock(&self.tokens).remove(&slot)?;
        let record = carried.leave(now())?;
        let file = sealed::pack(&record).ok()?;
        Some(Parting { token, link, carried, record, file })
    }

    /// Nobody takes the session: its peer is told that it is over.
    pub(crate) fn reset(&self, mut parting: Parting) {
        let Parting { link, carried, record, .. } = &mut parting;
        lock(&self.pump).reset(*link, carried, record, now());
    }

    /// Something has happened to a session on this side: it is served, by whoever turns the pump.
    pub(crate) fn serve_one(&self, slot: u32) {
        crate::process::library::library().with_stack(|| self.serve_one_here(slot));
    }

    fn serve_one_here(&self, slot: u32) {
        if let Ok(mut pump) = self.pump.try_lock() {
            pump.mark(slot);
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

    /// Takes what has arrived, for all sessions. Whether anything has; false as well if somebody
    /// else does just now.
    #[inline]
    pub(crate) fn turn(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.turn_now(Pump::turn) == Some(true)
    }

    /// A call is about to sleep: as [`Watch::begin_sleep`], and nothing that can be done now is
    /// left for later.
    pub(crate) fn begin_sleep(&self, may_watch: bool) -> bool {
        let watches = self.watch.begin_sleep(may_watch);
        crate::process::library::library().with_stack(|| {
            if let Ok(mut pump) = self.pump.try_lock() {
                pump.turn(false, now());
                self.leave(pump);
            }
        });
        watches
    }

    /// Turns the pump in the way that `turn` says, unless somebody does just now or there is
    /// nothing to do.
    #[inline]
    pub(crate) fn turn_now<R>(
        &self,
        turn: impl FnOnce(&mut Pump, bool, Instant) -> R,
    ) -> Option<R> {
        let mut pump = self.pump.try_lock().ok()?;
        if pump.is_quiet() {
            drop(pump);
            self.serve_marked();
            return None;
        }
        // What a packet may need, which is much at times.
        Some(crate::process::library::library().with_stack(move || {
            let mut pump = pump;
            let at = now();
            self.watch.looked(at.as_micros());
            let answer = turn(&mut pump, self.watch.looks_again(), at);
            self.leave(pump);
            answer
        }))
    }

    fn serve_and_leave<'a>(&'a self, mut pump: MutexGuard<'a, Pump>) {
        pump.serve(self.watch.looks_again(), now());
        self.leave(pump);
    }

    /// Lets go of the pump, having seen to it that nothing is forgotten.
    fn leave<'a>(&'a self, mut pump: MutexGuard<'a, Pump>) {
        loop {
            let next = pump.next_timeout().map_or(NEVER, Instant::as_micros);
            // Set under the lock by the thread that is meant.
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

    /// The lock was let go of, and nothing was done under it.
    #[inline]
    fn serve_marked(&self) {
        // SYNC: as in `leave`.
        fence(Ordering::SeqCst);
        if self.has_marked.load(Ordering::SeqCst) {
            crate::process::library::library().with_stack(|| {
                if let Some(pump) = self.take_marked() {
                    self.leave(pump);
                }
            });
        }
    }

    /// Serves what was marked while somebody else turned the pump, if nobody does now.
    fn take_marked(&self) -> Option<MutexGuard<'_, Pump>> {
        if !self.has_marked.load(Ordering::SeqCst) {
            return None;
        }
        let mut pump = self.pump.try_lock().ok()?;
        self.has_marked.store(false, Ordering::SeqCst);
        for slot in core::mem::take(&mut *lock(&self.marked)) {
            pump.mark(slot);
        }
        pump.serve(false, now());
        Some(pump)
    }
}

impl Library {
    /// What carries this process's sessions with other hosts, if it has any.
    #[inline]
    pub(crate) fn net(&self) -> Option<&Net> {
        NETS.of(self)?.as_ref()
    }

    /// Takes packets that have arrived, if this process carries sessions. Whether there were any.
    #[inline]
    pub(crate) fn turn_net(&self) -> bool {
        self.net().is_some_and(Net::turn)
    }
}
