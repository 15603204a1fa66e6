//! `poll(2)` and its variants, over kernel descriptors and sessions.
//!
//! The rings are looked at here. The kernel's `ppoll` looks at all other descriptors, and at what
//! the kernel knows of sessions. Not here: sleeping (`poll_sleep`). Read
//! `docs/understand/streams.md`, "Waiting".

use crate::fds::entry::Direction;
use crate::host::Interrupt;
use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::host::lock::lock;
use crate::io::sleep::Waited;
use crate::process::library::{Library, OwnSession};
use crate::ready::poll_sleep::Polling;
use crate::ready::poll_sleep::Slept;
use crate::ready::set_call::deadline;
use crate::ready::set_readiness::ReadinessSource;
use crate::session::Session;
use crate::session::directions::{RxPhase, TxPhase};
use crate::session::transport::Transport;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::io::Errno;
use sojourn_session::KindT;
use sojourn_stream::Stream;

/// Entries of a call that need no memory from the heap.
const FEW: usize = 32;

impl Library {
    /// Serves `poll(2)`; returns how many of `fds` have events. Without a timeout it waits for
    /// ever. `mask`: the signals blocked meanwhile, one bit each.
    ///
    /// # Errors
    /// Those of `ppoll(2)`.
    pub fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let mut sessions = 0;
        for polled in fds.iter() {
            let Some(entry) = self.table.known(polled.fd) else { continue };
            if entry.epoll.load(Ordering::Relaxed).is_some() {
                self.set_shared(polled.fd);
            }
            // The owner of an ancestor's session would not report readiness to this process.
            self.recall_foreign(polled.fd);
            sessions += usize::from(entry.session.load(Ordering::SeqCst).is_some());
        }
        if sessions == 0
            && let Some(result) = self.poll_kernel(fds, timeout, mask)
        {
            return result;
        }
        let mut polling =
            Polling { library: self, fds, deadline: deadline(timeout), mask, must_ask: false };
        if let Some(found) = polling.one_alone() {
            return found;
        }
        polling.run()
    }

    /// Leaves the call to the kernel. The call is counted, so that no session consents while it
    /// sits there. `None` means that a session has joined before that.
    fn poll_kernel(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        let host = self.host();
        if timeout == Some(Duration::ZERO) {
            return Some(host.poll(fds, timeout, mask));
        }
        let result = if self.count_polled(fds, true) {
            None
        } else {
            host.wait_begins();
            let result = host.poll(fds, timeout, mask);
            host.wait_ends();
            Some(result)
        };
        self.count_polled(fds, false);
        result
    }

    /// Counts the descriptors of a call as in use, or no longer; see the head of `fds::entry`.
    /// Returns true if one of them has a session.
    pub(crate) fn count_polled(&self, fds: &[PollFd], is_entry: bool) -> bool {
        let mut has_session = false;
        for polled in fds {
            let Some(entry) = self.table.known(polled.fd) else { continue };
            let way = way(polled.asked());
            if is_entry {
                entry.enter(way)
            } else {
                entry.leave(way)
            }
            // SYNC: after `users`; pairs with the joiner's store of the session.
            has_session |= entry.session.load(Ordering::SeqCst).is_some();
        }
        has_session
    }
}

impl Polling<'_> {
    /// Serves a call for one descriptor and one direction, by the session's own bell. `None` means
    /// that the call is not that simple.
    fn one_alone(&mut self) -> Option<Result<usize, Errno>> {
        let [polled] = &mut *self.fds else { return None };
        let is_simple = matches!(polled.asked(), bit::IN | bit::OUT) && self.mask.is_none();
        let library = self.library;
        let session = library.session_of(polled.fd).filter(|_| is_simple)?;
        let is_input = polled.asked() == bit::IN;
        library.turn_net();
        let mut says = || {
            let ready = session.ready(polled.asked());
            let is_ready = if is_input { ready.input } else { ready.output == Some(true) };
            polled.revents = if is_ready { polled.events } else { 0 };
            is_ready
        };
        if says() {
            return Some(Ok(1));
        }
        // The general way serves descriptors about which the kernel decides or has reported an
        // event.
        if self.deadline.is_over()
            || session.rx_kernel_event.load(Ordering::Relaxed)
            || (!is_input && session.kernel_decides_room())
        {
            return None;
        }
        let waited = if is_input {
            session.wait_for_bytes(self.deadline)
        } else {
            let room = session.stream().map_or(1, |stream| session.room_wanted(&stream));
            session.wait_writable(self.deadline, room, room)
        };
        match waited {
            // signal(7): `poll` is never restarted, with SA_RESTART or without.
            Waited::Interrupted | Waited::Restart => Some(Err(Errno::INTR)),
            _ => says().then_some(Ok(1)),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let mut stack = [PollFd::NONE; FEW];
        let mut heap = Vec::new();
        // The kernel is asked about the inboxes and the thread's own event as well.
        let len = self.fds.len() + crate::ready::poll_sleep::EXTRA;
        let kernel = if len <= FEW {
            &mut stack[..len]
        } else {
            heap.resize(len, PollFd::NONE);
            &mut heap[..]
        };
        loop {
            self.library.turn_net();
            let found = self.gather(&mut kernel[..])?;
            if found > 0 {
                return Ok(found);
            }
            if self.deadline.is_over() {
                return self.last_look(&mut kernel[..]);
            }
            match self.pause(&mut kernel[..])? {
                Slept::Look => {}
                Slept::Interrupted => {
                    let found = self.gather(&mut kernel[..])?;
                    return if found > 0 { Ok(found) } else { Err(Errno::INTR) };
                }
            }
        }
    }

    /// Counts the ready descriptors, if the rings know all about them: every descriptor is a
    /// session whose bytes go through rings, and the protocol thread has seen no event of the
    /// kernel's. At most the kernel has an event of this moment, which the next call finds. `None`
    /// means that the kernel has to be asked, also where nothing was found and the call must not
    /// wait.
    fn rings_alone(&mut self) -> Option<usize> {
        let mut found = 0;
        for polled in &mut *self.fds {
            polled.revents = 0;
            if polled.fd >= 0 {
                let session = self.library.session_of(polled.fd)?;
                let events = session.ring_knows(polled.asked())? & polled.asked();
                polled.revents = events as i16;
                found += usize::from(events != 0);
            }
        }
        (found > 0 || !self.deadline.is_over()).then_some(found)
    }

    /// Looks at all descriptors, without waiting.
    fn gather(&mut self, kernel: &mut [PollFd]) -> Result<usize, Errno> {
        if !core::mem::take(&mut self.must_ask)
            && let Some(found) = self.rings_alone()
        {
            return Ok(found);
        }
        let len = self.fds.len();
        for polled in &*self.fds {
            if let Some(session) = self.library.session_of(polled.fd) {
                follow_peer(session);
            }
        }
        self.fill(kernel);
        self.look_at_rings();
        self.library.host().poll(&mut kernel[..len], Some(Duration::ZERO), None)?;
        Ok(self.merge(&kernel[..len]))
    }

    /// Looks once more when the time is over: with a mask, a signal that it lets through ends the
    /// call even so.
    fn last_look(&mut self, kernel: &mut [PollFd]) -> Result<usize, Errno> {
        if self.mask.is_none() {
            return Ok(0);
        }
        let len = self.fds.len();
        self.fill(kernel);
        self.look_at_rings();
        self.library.host().poll(&mut kernel[..len], Some(Duration::ZERO), self.mask)?;
        Ok(self.merge(&kernel[..len]))
    }

    /// Fills in the kernel's question about a sleep. Of what the session knows already, only what
    /// the program asks for may end the sleep: bytes that stay in the kernel would end each at
    /// once.
    pub(crate) fn fill_for_sleep(&self, kernel: &mut [PollFd]) {
        self.fill(kernel);
        for (asked, polled) in kernel.iter_mut().zip(&*self.fds) {
            let Some(session) = self.library.session_of(polled.fd) else { continue };
            let knows = |event: &AtomicBool| event.load(Ordering::SeqCst);
            if knows(&session.rx_kernel_event) && knows(&session.tx_kernel_event) {
                asked.events &= polled.events;
            }
        }
    }

    /// Fills in the kernel's question.
    pub(crate) fn fill(&self, kernel: &mut [PollFd]) {
        for (asked, polled) in kernel.iter_mut().zip(&*self.fds) {
            *asked = PollFd { revents: 0, ..*polled };
            let Some(session) = self.library.session_of(polled.fd) else { continue };
            // A deaf socket has nothing to say while the session is away.
            if session.is_deaf() {
                asked.fd = -1;
                continue;
            }
            // The peer's end must be found whether the program asked for it or not.
            let mut events = polled.asked() | bit::RDHUP | bit::IN;
            if events & bit::OUTPUT != 0 && !session.kernel_decides_room() {
                events &= !bit::OUTPUT;
            }
            asked.events = events as i16;
        }
    }

    /// Notes the events of rings before the kernel is asked: an event that comes into a ring during
    /// the kernel's call may be younger than one that the call had passed already.
    pub(crate) fn look_at_rings(&mut self) {
        for polled in &mut *self.fds {
            polled.revents = ring_says(self.library, polled) as i16;
        }
    }

    /// Joins the kernel's events and those of the rings. Returns the number of descriptors with
    /// events.
    pub(crate) fn merge(&mut self, kernel: &[PollFd]) -> usize {
        let mut found = 0;
        for (said, polled) in kernel.iter().zip(&mut *self.fds) {
            let mut events = u32::from(said.revents as u16);
            if let Some(session) = self.library.session_of(polled.fd) {
                if session.is_deaf() {
                    events = 0;
                }
                events |=
                    pass_on_event(session, polled.fd, events) | u32::from(polled.revents as u16);
                // The kernel was not asked for room while bytes of the ring still go to it. Where
                // TCP has ended both ways it reports room (`tcp_poll`, net/ipv4/tcp.c).
                if events & bit::HUP != 0 && session.kind() == KindT::Tcp {
                    events |= session.room_events();
                }
            }
            // The kernel was asked for more events than the program asks for.
            events &= polled.asked() | bit::ALWAYS | bit::NVAL;
            polled.revents = events as i16;
            found += usize::from(events != 0);
        }
        found
    }

    /// Returns true if a ring has an event that is asked for.
    pub(crate) fn ring_has(&self) -> bool {
        let asked = |polled: &PollFd| polled.asked() | bit::ALWAYS;
        self.fds.iter().any(|polled| ring_says(self.library, polled) & asked(polled) != 0)
    }

    /// Returns true if a handler that ran since the pause began ends the call. With a mask only the
    /// kernel knows which handlers ran.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.mask.is_none() && self.library.host().interrupt() != Interrupt::None
    }
}

fn ring_says(library: &Library, polled: &PollFd) -> u32 {
    let Some(session) = library.session_of(polled.fd) else { return 0 };
    let ready = session.ready(polled.asked());
    let input = if ready.input { bit::INPUT } else { 0 };
    let output = if ready.output == Some(true) { session.room_events() } else { 0 };
    let error = if ready.error { bit::ERR } else { 0 };
    if ready.is_home { 0 } else { input | output | error | ready.others }
}

impl Session {
    /// Returns the events of a poll for `asked`, if the rings know them all.
    fn ring_knows(&self, asked: u32) -> Option<u32> {
        if self.rx_kernel_event.load(Ordering::SeqCst)
            || self.tx_kernel_event.load(Ordering::SeqCst)
            || asked & !(bit::INPUT | bit::OUTPUT | bit::RDHUP) != 0
        {
            return None;
        }
        if let Transport::Udp(_) = self.transport() {
            // Only the kernel knows the room in the socket's send buffer.
            let knows = asked & bit::OUTPUT == 0;
            let has = || self.has_datagram(&lock(&self.rx));
            let events = || if has() { bit::INPUT } else { 0 };
            return (knows && self.is_delegated()).then(events);
        }
        let mut events = 0;
        {
            let rx = lock(&self.rx);
            let stream = rx.stream.as_ref().filter(|stream| !stream.is_frozen())?;
            if asked & bit::INPUT != 0 {
                if rx.phase != RxPhase::Ring {
                    return None;
                }
                events |= if stream.available().ok()? > 0 { bit::INPUT } else { 0 };
            }
        }
        if asked & bit::OUTPUT != 0 {
            let tx = lock(&self.tx);
            let stream = tx.stream.as_ref().filter(|_| tx.phase == TxPhase::Ring)?;
            let has_room = stream.room_in_all().ok()? >= self.room_wanted(stream);
            events |= if has_room { self.room_events() } else { 0 };
        }
        Some(events)
    }
}

/// Sends the session home if the peer has frozen the stream, so that the kernel knows all. Hands
/// over to a carrier that waits for that, because nobody can while this call sits in the kernel.
fn follow_peer(session: OwnSession<'_>) {
    let phase = lock(&session.rx).phase;
    if !matches!(phase, RxPhase::Joined | RxPhase::Ring) {
        return;
    }
    let waits = |stream: &Stream| {
        phase == RxPhase::Joined && session.local().is_none() && stream.peer_uses_ring()
    };
    if session.stream().is_some_and(|stream| stream.is_frozen() || waits(&stream)) {
        session.attend();
    }
}

/// Passes the kernel's events on to the session's own calls, which look at the kernel only then.
/// Returns the events that hold by now.
fn pass_on_event(session: OwnSession<'_>, fd: i32, said: u32) -> u32 {
    let seen = bit::IN | bit::RDHUP | bit::ALWAYS;
    if said & seen != 0 {
        let knows = |event: &AtomicBool| event.load(Ordering::SeqCst);
        if !knows(&session.rx_kernel_event) || !knows(&session.tx_kernel_event) {
            session.kernel_event();
        }
        return said;
    }
    // The reported event is over, unless a new one came during the look.
    if session.rx_kernel_event.swap(false, Ordering::SeqCst) {
        let now = session.library.kernel(fd, seen);
        if now & seen != 0 {
            session.kernel_event();
            return now;
        }
    }
    0
}

/// Returns the direction that a poll for `events` waits for.
fn way(events: u32) -> Direction {
    if events & bit::OUTPUT != 0 && events & bit::INPUT == 0 {
        Direction::Write
    } else {
        Direction::Read
    }
}
