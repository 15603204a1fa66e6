//! `poll(2)` and its like, over kernel descriptors and sessions.
//!
//! Sessions are looked at here, everything else and what the kernel knows of sessions by the
//! kernel's `ppoll`. Read `docs/understand/streams.md`, "Waiting". Sleeping is `poll_sleep`.

use crate::fds::table::Direction;
use crate::host::Interrupt;
use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::host::lock::lock;
use crate::io::placement::Room;
use crate::io::sleep::Waited;
use crate::process::library::Library;
use crate::process::library::library;
use crate::ready::poll_sleep::Polling;
use crate::ready::poll_sleep::Slept;
use crate::ready::set_call::deadline;
use crate::ready::set_look::Look;
use crate::session::Session;
use crate::session::directions::{RxPhase, TxPhase};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::io::Errno;
use sojourn_stream::Stream;

/// Entries of a call for which no memory is asked for.
const FEW: usize = 32;

impl Library {
    /// `poll(2)`: how many of `fds` have something. No timeout: for ever. `mask`: signals blocked
    /// meanwhile, a bit each.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let mut sessions = 0;
        for polled in fds.iter() {
            let Some(entry) = self.table.known(polled.fd) else { continue };
            if entry.epoll.load(Ordering::Relaxed) != 0 {
                self.set_shared(polled.fd);
            }
            // Nobody rings a child for what is its parent's.
            self.recall_foreign(polled.fd);
            sessions += usize::from(entry.session.load(Ordering::SeqCst) != 0);
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

    /// Leaves all to the kernel. The calls are counted, so that no session consents while they sit
    /// there; `None`: one has joined before that.
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

    /// Counts the descriptors of a call as in use, or no more; see the head of `table`. Whether one
    /// has a session.
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
            has_session |= entry.session.load(Ordering::SeqCst) != 0;
        }
        has_session
    }
}

impl Polling<'_> {
    /// One descriptor, one direction: the session's own bell. `None`: not that simple.
    fn one_alone(&mut self) -> Option<Result<usize, Errno>> {
        let [polled] = &mut *self.fds else { return None };
        let is_simple = matches!(polled.asked(), bit::IN | bit::OUT) && self.mask.is_none();
        let library = self.library;
        let session = library.session_of(polled.fd).filter(|_| is_simple)?;
        let is_input = polled.asked() == bit::IN;
        library.turn_net();
        let mut says = || {
            let ready = session.ready();
            let is_ready = if is_input { ready.input } else { ready.output == Some(true) };
            polled.revents = if is_ready { polled.events } else { 0 };
            is_ready
        };
        if says() {
            return Some(Ok(1));
        }
        // What the kernel decides, and what it has reported an event on, is not this simple.
        if self.deadline.is_over()
            || session.rx_kernel_event.load(Ordering::Relaxed)
            || (!is_input && session.ready().output.is_none())
        {
            return None;
        }
        let waited = if is_input {
            session.wait_readable(self.deadline, &Room::none())
        } else {
            let room = session.stream().map_or(1, |stream| session.room_wanted(&stream));
            session.wait_writable(self.deadline, room, room)
        };
        match waited {
            // Whether the handler wants calls restarted or not: signal(7).
            Waited::Interrupted | Waited::Restart => Some(Err(Errno::INTR)),
            _ => says().then_some(Ok(1)),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let mut stack = [PollFd::NONE; FEW];
        let mut heap = Vec::new();
        // Beside the program's: the inboxes, and the thread's own event.
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

    /// What there is, if the rings know all of it: every descriptor is a session whose bytes go
    /// through them, and the protocol thread has seen no event of the kernel's. The kernel then
    /// has at most what came this moment, which is found in the next call; only where nothing was
    /// found, and nothing will be waited for, it is asked for that.
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

    /// Looks at everything, without waiting.
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

    /// With a mask, a signal that it lets through ends the call even if the time is over.
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

    /// What the kernel is to be asked.
    pub(crate) fn fill(&self, kernel: &mut [PollFd]) {
        for (asked, polled) in kernel.iter_mut().zip(&*self.fds) {
            *asked = PollFd { revents: 0, ..*polled };
            let Some(session) = self.library.session_of(polled.fd) else { continue };
            if session.is_deaf() {
                asked.fd = -1;
                continue;
            }
            // Whoever looks for the end must find it, asked for or not.
            let mut events = polled.asked() | bit::RDHUP | bit::IN;
            if session.ready().output.is_some() {
                events &= !bit::OUTPUT;
            }
            asked.events = events as i16;
        }
    }

    /// What rings say before the kernel is asked: what comes into one meanwhile may have come after
    /// something that the kernel was not asked about any more.
    pub(crate) fn look_at_rings(&mut self) {
        for polled in &mut *self.fds {
            polled.revents = self.library.session_of(polled.fd).map_or(0, ring_says) as i16;
        }
    }

    /// Puts together what the kernel says and the rings have said. How many descriptors have
    /// something.
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
            }
            // Also of one that has gone home since the kernel was asked: it was asked for more than
            // the program asks for.
            events &= polled.asked() | bit::ALWAYS | bit::NVAL;
            polled.revents = events as i16;
            found += usize::from(events != 0);
        }
        found
    }

    /// Whether a ring has something that is asked for.
    pub(crate) fn ring_has(&self) -> bool {
        self.fds.iter().any(|polled| {
            self.library
                .session_of(polled.fd)
                .is_some_and(|session| ring_says(session) & (polled.asked() | bit::ALWAYS) != 0)
        })
    }

    /// Whether a handler that ran since the pause began ends the call. With a mask only the kernel
    /// knows.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.mask.is_none() && self.library.host().interrupt() != Interrupt::None
    }
}

fn ring_says(session: &Session) -> u32 {
    let ready = session.ready();
    let input = if ready.input { bit::INPUT } else { 0 };
    let output = if ready.output == Some(true) { bit::OUT | bit::WRNORM } else { 0 };
    let error = if ready.error { bit::ERR } else { 0 };
    if ready.is_home { 0 } else { input | output | error }
}

impl Session {
    /// The events of a poll for `asked`, if the rings know them all.
    fn ring_knows(&self, asked: u32) -> Option<u32> {
        if self.rx_kernel_event.load(Ordering::SeqCst)
            || self.tx_kernel_event.load(Ordering::SeqCst)
            || asked & !(bit::INPUT | bit::OUTPUT | bit::RDHUP) != 0
        {
            return None;
        }
        if self.is_datagram() {
            // Of room the kernel knows.
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
            events |= if has_room { bit::OUT | bit::WRNORM } else { 0 };
        }
        Some(events)
    }
}

/// Goes home if the peer has: then the kernel knows what there is. Hands over to a carrier that
/// waits for that: while this call sits in the kernel nobody can.
fn follow_peer(session: &Session) {
    let phase = lock(&session.rx).phase;
    if !matches!(phase, RxPhase::Joined | RxPhase::Ring) {
        return;
    }
    let waits = |stream: &Stream| {
        phase == RxPhase::Joined && session.is_carried() && stream.peer_uses_ring()
    };
    if session.stream().is_some_and(|stream| stream.is_frozen() || waits(&stream)) {
        session.attend();
    }
}

/// Lets the session's own calls know what the kernel said; they look there only then. What it says
/// by now.
fn pass_on_event(session: &Session, fd: i32, said: u32) -> u32 {
    let seen = bit::IN | bit::RDHUP | bit::ALWAYS;
    if said & seen != 0 {
        let knows = |event: &AtomicBool| event.load(Ordering::SeqCst);
        if !knows(&session.rx_kernel_event) || !knows(&session.tx_kernel_event) {
            session.kernel_event();
        }
        return said;
    }
    // What it said once is over; unless that was while we looked.
    if session.rx_kernel_event.swap(false, Ordering::SeqCst) {
        let now = library().kernel(fd, seen);
        if now & seen != 0 {
            session.kernel_event();
            return now;
        }
    }
    0
}

/// The direction that a poll for `events` waits for.
fn way(events: u32) -> Direction {
    if events & bit::OUTPUT != 0 && events & bit::INPUT == 0 {
        Direction::Write
    } else {
        Direction::Read
    }
}
