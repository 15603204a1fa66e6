//! The waiting of a `poll(2)` for several descriptors, sessions among them.
//!
//! Not here: readiness (`poll`, which is to be read first).
//!
//! # Theory of operation
//! Sessions in no epoll set share inboxes, one for each user of peers. A thread that polls arms its
//! sessions, announces itself on their inboxes, looks again, and sleeps in the kernel's `ppoll` on
//! the inboxes' event descriptors, too. Several threads can sleep so, each for sessions of its own,
//! and one event wakes all that are still asleep. The first thread awake takes the bits and clears
//! the event, which hides it from the others. So it *nudges* those that wait for one of the bits,
//! each by an event descriptor of its own. A bit stands for every 64th slot: a needless nudge costs
//! one look.

use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::host::lock::lock;
use crate::io::sleep::Waited;
use crate::process::library::{Library, OwnSession};
use crate::ready::pollers::{Pollers, interest_in};
use crate::ready::set_call::ASK_INTERVAL_NS;
use crate::session::directions::RxPhase;
use crate::session::identity::InboxPlace;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::EventfdFlags;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use sojourn_session::ReasonT;
use sojourn_shm::deadline::now_ns;
use sojourn_shm::futex::Woken;
use sojourn_shm::wait::{Policy, Spun};
use sojourn_shm::{Deadline, MovableFd};
use sojourn_stream::Inbox;
use std::sync::Arc;

/// Inboxes, that is users of peers, that one call can sleep for.
const INBOXES_MAX: usize = 8;
/// Descriptors that the kernel is asked about beside the program's: the inboxes, the thread's own
/// event, and the packet sockets.
pub(crate) const EXTRA: usize = INBOXES_MAX + 2;
/// Looks at the rings between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// One poll of the program's.
pub(crate) struct Polling<'a> {
    pub(crate) library: &'a Library,
    pub(crate) fds: &'a mut [PollFd],
    pub(crate) deadline: Deadline,
    pub(crate) mask: Option<u64>,
    /// The kernel has reported something during the sleep, so the next look must ask it.
    pub(crate) must_ask: bool,
}

/// The outcome of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// There may be something: look again.
    Look,
    /// A signal handler ran.
    Interrupted,
}

/// The places to which the peers of a call's sessions post.
#[derive(Default)]
pub(crate) struct Places {
    inboxes: Vec<Arc<Inbox>>,
    interest: u64,
    /// Sessions whose peers post elsewhere: to a set's inbox, or to one inbox too many.
    elsewhere: Vec<i32>,
    /// The engine of one of the sessions runs in this process, so its bytes come in packets.
    has_delegated: bool,
}

impl Polling<'_> {
    /// Spins as far as that pays, then sleeps.
    pub(crate) fn pause(&mut self, kernel: &mut [PollFd]) -> Result<Slept, Errno> {
        if let Some(slept) = self.sleep_alone() {
            return Ok(slept);
        }
        if self.mask.is_none() && self.ring_is_asked() {
            let host = self.library.host();
            host.wait_begins();
            let has_something = self.spin(kernel);
            let is_interrupted = self.is_interrupted();
            host.wait_ends();
            if is_interrupted {
                return Ok(Slept::Interrupted);
            }
            if has_something {
                return Ok(Slept::Look);
            }
        }
        let places = self.counted_places();
        if !places.elsewhere.is_empty() {
            self.library.count_polled(self.fds, false);
            for fd in places.elsewhere {
                self.library.go_home_for_set(fd);
            }
            return Ok(Slept::Look);
        }
        let slept = self.sleep(&places, kernel);
        self.library.count_polled(self.fds, false);
        slept
    }

    /// Sleeps on the bell of the session, if the call is for the bytes of one that is away. It does
    /// not matter then where the peers post: a program's thread may poll a session that its reactor
    /// has taken out of an epoll set for a while, and whose peers post to that set. `None` means
    /// that the kernel, or the way home, has a part in what the call waits for.
    fn sleep_alone(&self) -> Option<Slept> {
        let [polled] = &*self.fds else { return None };
        let is_simple = polled.asked() == bit::IN && self.mask.is_none();
        let session = self.library.session_of(polled.fd).filter(|_| is_simple)?;
        let phase = lock(&session.rx).phase;
        if !matches!(phase, RxPhase::Joined | RxPhase::Ring)
            || session.rx_kernel_event.load(Ordering::Relaxed)
            || session.local().is_none()
        {
            return None;
        }
        Some(match session.wait_for_bytes(self.deadline) {
            Waited::Look | Waited::TimedOut => Slept::Look,
            // signal(7): `poll` is never restarted.
            Waited::Interrupted | Waited::Restart => Slept::Interrupted,
        })
    }

    /// Counts the call as in the kernel, and then finds the places. A thread that joins a session
    /// later finds this call, and puts off its consent: the peer would post to a place at which
    /// this call does not sleep.
    pub(crate) fn counted_places(&self) -> Places {
        self.library.count_polled(self.fds, true);
        self.places()
    }

    fn ring_is_asked(&self) -> bool {
        self.fds.iter().any(|polled| self.library.session_of(polled.fd).is_some())
    }

    /// Spins; returns true if the caller should look again now.
    fn spin(&mut self, kernel: &mut [PollFd]) -> bool {
        let Some(pollers) = self.library.pollers() else { return false };
        let spare = pollers.spare_policy();
        let mut policy =
            spare.unwrap_or_else(|| Policy::for_other_processes(self.library.policy.wait()));
        let (mut looks, mut next_ns) = (0u32, now_ns() + ASK_INTERVAL_NS);
        let len = self.fds.len();
        let spun = policy.spin(0, self.deadline, || {
            self.library.turn_net();
            if self.ring_has() || self.is_interrupted() {
                return true;
            }
            looks = looks.wrapping_add(1);
            if looks % LOOKS_PER_CLOCK != 0 || now_ns() < next_ns {
                return false;
            }
            next_ns = now_ns() + ASK_INTERVAL_NS;
            self.fill(kernel);
            // The rings do not tell of other descriptors, so the kernel is asked now and then.
            let said = self.library.host().poll(&mut kernel[..len], Some(Duration::ZERO), None);
            self.must_ask |= said.is_ok_and(|_| self.has_asked(&kernel[..len]));
            self.must_ask
        });
        let parks = policy.parks();
        pollers.keep_policy(policy);
        spun == Spun::Ready || !parks
    }

    /// Returns true if the kernel reported something that the program asked for.
    fn has_asked(&self, kernel: &[PollFd]) -> bool {
        let counts = bit::ALWAYS | bit::NVAL;
        kernel
            .iter()
            .zip(&*self.fds)
            .any(|(said, polled)| u32::from(said.revents as u16) & (polled.asked() | counts) != 0)
    }

    fn places(&self) -> Places {
        let mut places = Places::default();
        for polled in &*self.fds {
            let Some(session) = self.library.session_of(polled.fd) else { continue };
            let set = lock(&session.facts).set;
            let Some(InboxPlace { inbox, slot }) = session.place().filter(|_| set.is_none()) else {
                places.elsewhere.push(polled.fd);
                continue;
            };
            places.interest |= interest_in(slot);
            places.has_delegated |= session.is_delegated();
            if places.inboxes.iter().any(|known| Arc::ptr_eq(known, &inbox)) {
                continue;
            }
            if places.inboxes.len() == INBOXES_MAX {
                places.elsewhere.push(polled.fd);
            } else {
                places.inboxes.push(inbox);
            }
        }
        places
    }

    fn sleep(&mut self, places: &Places, kernel: &mut [PollFd]) -> Result<Slept, Errno> {
        let Some(pollers) = self.library.pollers() else { return Err(Errno::NOMEM) };
        let Ok(event) = self.library.poll_event(pollers) else {
            // No number is left for the event.
            self.leave_to_kernel();
            return Ok(Slept::Look);
        };
        let number = event.number();
        pollers.sleeps(places.interest, event);
        places.inboxes.iter().for_each(|inbox| inbox.announce());
        for polled in &*self.fds {
            if let Some(session) = self.library.session_of(polled.fd) {
                let asked = polled.asked();
                session.arm(asked & bit::INPUT != 0, asked & bit::OUTPUT != 0);
            }
        }
        let host = self.library.host();
        let net = self.library.net().filter(|_| places.has_delegated);
        host.wait_begins();
        let watches = net.map(|net| net.begin_sleep(self.library, true));
        let is_over = self.ring_has() || self.is_interrupted();
        let packets = net.zip(watches).filter(|(_, watches)| *watches);
        let extra = [number, packets.map_or(-1, |(net, _)| net.watch.packets())];
        let slept = if is_over { Ok(0) } else { self.sleep_in_kernel(places, extra, kernel) };
        if let Some((net, watches)) = net.zip(watches) {
            net.watch.end_sleep(watches);
        }
        let len = self.fds.len();
        self.must_ask |= !is_over && self.has_asked(&kernel[..len]);
        let is_interrupted = self.is_interrupted();
        host.wait_ends();
        places.inboxes.iter().for_each(|inbox| inbox.withdraw());
        let extra = if is_over { &[][..] } else { &kernel[self.fds.len()..] };
        pollers.woke(&places.inboxes, number, extra);
        match slept {
            // `poll` is never restarted (signal(7)), so both kinds of handlers end it.
            Err(Errno::INTR) => Ok(Slept::Interrupted),
            // `ppoll` refuses more descriptors than the process may have open (EINVAL, poll(2)),
            // and some of these are not the program's.
            Err(Errno::INVAL) => {
                self.leave_to_kernel();
                Ok(Slept::Look)
            }
            Err(error) => Err(error),
            Ok(_) if is_interrupted => Ok(Slept::Interrupted),
            Ok(_) => Ok(Slept::Look),
        }
    }

    /// Sends the call's sessions home where the library lacks a descriptor, so that the kernel can
    /// serve the call and the program does not notice.
    fn leave_to_kernel(&self) {
        for polled in &*self.fds {
            self.library.go_home(polled.fd, ReasonT::Resources, false);
        }
    }

    fn sleep_in_kernel(
        &mut self,
        places: &Places,
        others: [i32; 2],
        kernel: &mut [PollFd],
    ) -> Result<usize, Errno> {
        self.fill_for_sleep(kernel);
        let extra = &mut kernel[self.fds.len()..];
        extra.fill(PollFd::NONE);
        let numbers = places.inboxes.iter().map(|inbox| inbox.ready_fd().as_raw_fd());
        for (asked, fd) in extra.iter_mut().zip(numbers.chain(others)) {
            *asked = PollFd { fd, events: bit::IN as i16, revents: 0 };
        }
        self.library.host().poll(kernel, self.deadline.left(), self.mask)
    }
}

/// A sleep on an inbox and on the packets of other hosts.
struct PacketSleep<'a> {
    /// The events that the program waits for.
    asked: u32,
    /// The epoll descriptor of the packet sockets.
    packets: i32,
    place: InboxPlace,
    limit: Option<Duration>,
    ready: &'a dyn Fn() -> bool,
}

impl OwnSession<'_> {
    /// Sleeps until a packet arrives or a peer posts for the session: then the call may look again.
    /// If another thread watches for packets, or if the peers post to a set of the program's, it
    /// sleeps as `sleep` says.
    pub(crate) fn sleep_for_packets(
        self,
        asked: u32,
        limit: Option<Duration>,
        ready: &dyn Fn() -> bool,
        sleep: &dyn Fn() -> Woken,
    ) -> Woken {
        let library = self.library;
        let (Some(net), Some(pollers)) = (library.net(), library.pollers()) else { return sleep() };
        let place = self.place().filter(|_| self.set().is_none());
        let watches = net.begin_sleep(library, place.is_some());
        let event = place
            .filter(|_| watches)
            .and_then(|place| Some((place, library.poll_event(pollers).ok()?)));
        let woken = match event {
            Some((place, event)) => {
                let packets = net.watch.packets();
                let sleep = PacketSleep { asked, packets, place, limit, ready };
                self.sleep_on_inbox(pollers, event, sleep)
            }
            // Packets that came before the other thread began to watch may still wait.
            None if watches || ready() => Woken::Look,
            None => sleep(),
        };
        net.watch.end_sleep(watches);
        woken
    }

    /// Sleeps on an inbox and on the packets of other hosts.
    fn sleep_on_inbox(self, pollers: &Pollers, event: MovableFd, sleep: PacketSleep<'_>) -> Woken {
        let PacketSleep { asked, packets, place, limit, ready } = sleep;
        let InboxPlace { inbox, slot } = place;
        let number = event.number();
        pollers.sleeps(interest_in(slot), event);
        inbox.announce();
        self.arm(asked & bit::INPUT != 0, asked & bit::OUTPUT != 0);
        let on = |fd| PollFd { fd, events: bit::IN as i16, revents: 0 };
        let mut set = [on(inbox.ready_fd().as_raw_fd()), on(number), on(packets)];
        let host = self.library.host();
        let slept = if ready() { Ok(1) } else { host.poll(&mut set, limit, None) };
        inbox.withdraw();
        pollers.woke(&[inbox], number, &set[..2]);
        if slept == Ok(0) { Woken::TimedOut } else { Woken::Look }
    }
}

impl Library {
    fn poll_event(&self, pollers: &Pollers) -> Result<MovableFd, Errno> {
        if let Some(event) = pollers.spare_event() {
            return Ok(event);
        }
        let engine = self.engine_or_new().ok_or(Errno::NOMEM)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        engine.own.make(false, || rustix::event::eventfd(0, flags))
    }
}
