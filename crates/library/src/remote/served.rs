//! Sessions that the protocol server serves, as far as they differ from others: readiness, the
//! hand-over, and what becomes of one whose server is gone.
//!
//! A session is *pending* first: its calls are the kernel's still, until none sits there; the call
//! that finds that hands the socket over. From then on all calls are calls to the server, whichever
//! home the session has there, until it is *released* to the kernel. Not here: the connection
//! (`protocol_server`), data calls (`io::served`), going home (`moves::service`). Read
//! `docs/understand/protocol-server.md` first.

use crate::fds::entry::{Direction, FdEntry};
use crate::host::epoll::bit;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::engine::Job;
use crate::process::library::OwnSession;
use crate::remote::channel::Failure;
use crate::remote::protocol_server::ProtocolServer;
use crate::session::identity::{Generation, InboxPlace};
use crate::session::service::ServiceNumber;
use crate::session::{Ready, Session};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::Errno;
use sojourn_session::protocol::client::{FAILED, HUNG_UP, PEER_DONE, READABLE, WRITABLE};
use sojourn_shm::{Deadline, futex};

/// How long the kernel may take to have a session back whose protocol server is gone. After that
/// the program goes on with the socket as it is.
const LOST_LIMIT: Duration = Duration::from_secs(10);
const LOST_SLICE: Duration = Duration::from_millis(20);

/// The result of a call for a session.
pub(crate) enum Asked<R> {
    Answer(R),
    Refused(Errno),
    /// The session is not served any more: the caller looks for a new route.
    Home,
    /// The same, and nobody knows if the call was done.
    Unknown,
}

impl OwnSession<'_> {
    /// Counts a call on a pending session as the kernel's, and returns true; or hands the session
    /// over, if no call sits in the kernel.
    pub(crate) fn stays_in_kernel(self, entry: &FdEntry, way: Direction) -> bool {
        let is_over = {
            let _tx = lock(&self.tx);
            if !self.service.is_pending() {
                return false;
            }
            // SYNC: `users` after the store of the session in the table; pairs with
            // `Library::path`.
            if self.users(Direction::Read) + self.users(Direction::Write) > 0 {
                entry.enter(way);
                return true;
            }
            let opened = self.library.protocol_server().map(|server| server.open(self.slot()));
            match opened {
                Some(Ok(part)) => {
                    lock(&self.facts).token = Some(part.token);
                    self.service.begin(part.number);
                    false
                }
                _ => true,
            }
        };
        if is_over {
            // It stays in the kernel, and is offered again when it has been hot for longer.
            entry.was_refused();
            self.end_service();
        }
        false
    }

    /// Asks the server about the session, of which the caller has seen this generation. The caller
    /// holds no lock of a set.
    pub(crate) fn ask_service<R>(
        self,
        generation: Generation,
        ask: impl FnOnce(&ProtocolServer, ServiceNumber) -> Result<R, Failure>,
    ) -> Asked<R> {
        let Some(number) = self.service.number() else { return Asked::Home };
        if self.generation() != generation {
            return Asked::Home;
        }
        // Read before the call: the answer to it says nothing of a later receipt.
        let receipt = self.service.receipt();
        let asked =
            self.library.protocol_server().map_or(Err(Failure::Gone), |server| ask(server, number));
        if matches!(asked, Ok(_) | Err(Failure::Refused(_))) {
            self.service.confirm(receipt);
        }
        match asked {
            Ok(answer) => Asked::Answer(answer),
            // Another holder has released the session, or this one is about to.
            Err(Failure::Refused(Errno::STALE | Errno::BADF)) => {
                self.release(number);
                Asked::Home
            }
            Err(Failure::Refused(error)) => Asked::Refused(error),
            Err(Failure::Gone) => match self.await_kernel() {
                true => Asked::Home,
                false => Asked::Unknown,
            },
            Err(Failure::Unanswered) => {
                self.await_kernel();
                Asked::Unknown
            }
        }
    }

    /// Releases the session to the kernel, and returns when that has it.
    pub(crate) fn release(self, number: ServiceNumber) {
        let released = self.library.protocol_server().map(|server| server.release(number));
        match released {
            None | Some(Err(Failure::Gone | Failure::Unanswered)) => {
                self.await_kernel();
            }
            // Refused: the server does not have it any more.
            Some(_) if self.service.number() == Some(number) => self.end_service(),
            Some(_) => {}
        }
    }

    /// Notes that the server is gone: the protocol thread ends the service when the kernel has the
    /// session again. Waits for that, unless this is a thread of the library's own. Returns false
    /// if the connection was ended for what is not known, see [`OwnSession::end_lost_service`].
    fn await_kernel(self) -> bool {
        self.service.is_lost.store(true, Ordering::SeqCst);
        self.library.push(Job::ServiceLost);
        let tid = rustix::thread::gettid();
        if self.library.engine().is_none_or(|engine| engine.is_own_thread(tid)) {
            return true;
        }
        let deadline = Deadline::after(LOST_LIMIT);
        while self.service.is_begun() && !deadline.is_over() {
            let said = self.service.news().load(Ordering::SeqCst);
            if self.service.is_begun() {
                futex::wait(self.service.news(), said, Some(LOST_SLICE));
            }
        }
        self.end_lost_service()
    }

    /// Ends the service of a session whose server is gone. Returns false if the connection is ended
    /// with it: the server may have gone between an answer and the taking of its bytes, and they
    /// would come twice.
    pub(crate) fn end_lost_service(self) -> bool {
        let is_confirmed = self.service.forget_receipt();
        if !is_confirmed {
            self.is_cut();
        }
        self.end_service();
        is_confirmed
    }

    /// Ends the service: the session is the kernel's. The caller holds no lock of the session or of
    /// a set.
    pub(crate) fn end_service(self) {
        // Read first: once the session is detached nobody knows where its polls sleep.
        let place = self.place();
        if self.service.end() {
            self.is_over.store(true, Ordering::SeqCst);
            self.settle();
            // A poll or set may sleep for what only the server would have told, output above all.
            place.iter().for_each(InboxPlace::post);
        }
    }

    /// Returns the events that hold. Locks of sets may be held, so a session that is not served any
    /// more is left to the protocol thread.
    fn events_by_service(self) -> Option<u32> {
        let number = self.service.number()?;
        let server = self.library.protocol_server()?;
        match server.ready(number) {
            Ok(events) => Some(events),
            Err(failure) => {
                self.leave_service_to_thread(failure);
                None
            }
        }
    }

    fn leave_service_to_thread(self, failure: Failure) {
        if matches!(failure, Failure::Gone | Failure::Unanswered) {
            self.service.is_lost.store(true, Ordering::SeqCst);
            self.library.push(Job::ServiceLost);
        } else {
            self.library.push(Job::ServiceEnded { slot: self.slot() });
        }
    }

    /// Tells what is known of readiness for the events `wanted`: what the server says of a session
    /// that it serves, or what [`Session::ready_by_rings`] does.
    pub(crate) fn ready(self, wanted: u32) -> Ready {
        match self.service.is_any() {
            true => self.ready_by_service(),
            false => self.ready_by_rings(wanted),
        }
    }

    /// Returns true if the kernel decides whether there is room, as [`OwnSession::ready`] says it:
    /// who asks the kernel for less, because this is false, must hear of room from the ring.
    pub(crate) fn kernel_decides_room(self) -> bool {
        self.ready(bit::OUTPUT).output.is_none()
    }

    /// Asks for posts to the inbox. The caller looks at [`OwnSession::ready`] again before it
    /// sleeps.
    pub(crate) fn arm(self, input: bool, output: bool) {
        match self.service.is_any() {
            true => self.arm_by_service(input, output),
            false => self.arm_by_rings(input, output),
        }
    }

    /// Counts the bytes that `FIONREAD` must add to the kernel's count.
    pub(crate) fn input_queue(self) -> usize {
        match self.service.is_any() {
            true => self.input_by_service(),
            false => self.input_in_rings(),
        }
    }

    fn ready_by_service(self) -> Ready {
        let none = Ready {
            input: false,
            output: None,
            error: false,
            is_home: false,
            is_in_kernel: true,
            others: 0,
        };
        if self.service.is_pending() {
            return none;
        }
        let events = self.events_by_service().unwrap_or(0);
        let has = |bits: u32| events & bits != 0;
        let others = [(PEER_DONE, bit::RDHUP), (HUNG_UP, bit::HUP)];
        let others = others.into_iter().filter(|(event, _)| has(*event));
        Ready {
            // The kernel, too, tells of an error at a UDP socket without input (`datagram_poll`).
            input: has(READABLE | PEER_DONE) || !self.is_udp() && has(HUNG_UP | FAILED),
            output: Some(has(WRITABLE | HUNG_UP | FAILED)),
            error: has(FAILED),
            is_in_kernel: false,
            others: others.fold(0, |all, (_, event)| all | event),
            ..none
        }
    }

    /// Has the server ring for what does not hold yet; see [`OwnSession::arm`]. It would ring at
    /// once for what does, which an edge-triggered registration would take for one more edge.
    fn arm_by_service(self, input: bool, output: bool) {
        if self.service.is_begun() {
            let events = self.events_by_service().unwrap_or(0);
            let has = |bits: u32| events & (bits | PEER_DONE | HUNG_UP | FAILED) != 0;
            self.watch_by_service(input && !has(READABLE), output && !has(WRITABLE));
        }
    }

    /// Has the server ring for the next input, if a set has to hear of it: a call has found no more
    /// bytes, or less than it wanted.
    pub(crate) fn arm_for_set(self) {
        if !self.set().is_none() {
            self.watch_by_service(true, false);
        }
    }

    /// Has the server ring for input or output, now if it is there.
    pub(crate) fn watch_by_service(self, input: bool, output: bool) {
        let wanted = if input { READABLE | PEER_DONE } else { 0 };
        let wanted = wanted | if output { WRITABLE } else { 0 };
        let Some(number) = self.service.number().filter(|_| wanted != 0) else { return };
        // SYNC: before the call; pairs with `told_by_service`, which clears the word before it
        // tells.
        let armed = self.service.armed.fetch_or(wanted, Ordering::SeqCst);
        if armed & wanted == wanted {
            return;
        }
        let Some(server) = self.library.protocol_server() else { return };
        if let Err(failure) = server.watch(number, &self.service.armed) {
            self.leave_service_to_thread(failure);
        }
    }

    /// Counts the bytes that `FIONREAD` must add to the kernel's, as far as one call tells.
    fn input_by_service(self) -> usize {
        // FIONREAD of a UDP socket is the length of the next datagram.
        let number = self.service.number().filter(|_| !self.is_udp());
        let Some(number) = number else { return 0 };
        let queued = self.library.protocol_server().map(|server| server.queued(number));
        let queued = queued.and_then(Result::ok).unwrap_or(0);
        // While the session is in the kernel the server looks at the same bytes.
        queued.saturating_sub(kernel::input_queue(self.number()))
    }
}

impl Session {
    /// Ends the connection, of whose bytes nobody knows which have been sent or received: it would
    /// go on with some missing, or there twice. Returns the call's error.
    #[cold]
    pub(crate) fn is_cut(&self) -> Errno {
        if let Ok(fd) = kernel::at(self.number()) {
            let _ = rustix::net::connect_unspec(fd);
        }
        Errno::CONNRESET
    }

    /// Notes that the server has rung for the session: nothing is watched for any more.
    pub(crate) fn told_by_service(&self) {
        self.service.armed.store(0, Ordering::SeqCst);
        self.service.tell();
        if let Some(place) = self.place() {
            place.post();
        }
    }
}
