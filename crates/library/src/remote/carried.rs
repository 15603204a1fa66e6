//! Sessions whose stream's other side is the server's carrier, as far as they differ from others.
//!
//! To data calls a carried session is a session like any other. The kernel's socket, however, is
//! not a second way for bytes: once both directions have switched, the carrier takes over the
//! kernel's state of the connection, and gives it back when the stream is frozen. So this process
//! does not use the socket in between. Not here: running the engine (`net`). Read
//! `docs/understand/moves.md`.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::remote::net::ReturningSession;
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::received::Received;
use crate::session::transport::Transport;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use sojourn_pump::now;
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;
use sojourn_stream::{Bell, Stream};

/// How long the carrier may take to put a session back. After that the session counts as lost, as
/// if the peer had reset it.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks whether a carrier, this one or the next, lives.
const RETURN_SLICE: Duration = Duration::from_millis(20);

impl Session {
    /// Consents to the carrier's ring, and gives the kernel up once the carrier uses the ring: from
    /// then on receives come from the ring only. The carrier takes bytes that are still in the
    /// kernel from there.
    pub(crate) fn consent_to_carrier(&self, rx: &mut Receiver, stream: &Stream) {
        if self.consent(stream) {
            stream.attention();
        }
        if rx.phase != RxPhase::Joined || !stream.has_consented() || !stream.peer_uses_ring() {
            return;
        }
        if let Transport::RemoteTcp(_) = self.transport() {
            // The carrier begins its ring only when nothing comes to the kernel's socket any more.
            // A poll may have reported the bytes that are still there, and the call that follows it
            // must not wait for the carrier to bring them: calls take them out of the kernel first.
            if kernel::input_queue(self.number()) > 0 {
                return;
            }
            // Some may have come since this look.
            rx.promised = kernel::input_queue(self.number());
        }
        rx.phase = RxPhase::Ring;
        stream.ledger().give_up_kernel();
        stream.attention();
    }

    /// Answers a receive that found the ring empty. Bytes that the kernel had when it was given up
    /// may have been reported to the program, so the answer is not "nothing" until the carrier has
    /// brought them.
    pub(crate) fn found_nothing(&self, rx: &mut Receiver, stream: &Stream) -> Received {
        if stream.totals().received > 0 {
            rx.promised = 0;
        }
        if rx.promised > 0 { Received::Owed } else { Received::Empty }
    }

    /// Returns true if the kernel's socket has nothing to say, because the session is away from it.
    /// On the way home the carrier disconnects the socket for a moment, which looks like a hang-up.
    pub(crate) fn is_deaf(&self) -> bool {
        let is_remote = || matches!(self.transport(), Transport::RemoteTcp(_));
        self.service.is_begun() || is_remote() && lock(&self.rx).phase == RxPhase::Ring
    }

    /// Hands over to a carrier that is ready: both directions switch as soon as no thread of this
    /// process sits in the kernel.
    pub(crate) fn hand_over(&self, stream: &Stream) {
        self.switch_now();
        let mut rx = lock(&self.rx);
        self.consent_to_carrier(&mut rx, stream);
        drop(rx);
        // The stream decides about room and bytes from now on, so sleepers look there.
        self.wake_own(stream);
    }

    /// Reacts to the loss of the server. A session that its carrier had not begun to take out is in
    /// the kernel, except for bytes that the program has written to the ring meanwhile. Only the
    /// next server may know of a session that was begun and not delegated.
    pub(crate) fn carrier_is_lost(&self) {
        let Some(stream) = self.stream().filter(|_| !self.is_delegated()) else { return };
        match self.transport() {
            Transport::Local(_) => return,
            Transport::RemoteTcp(_) => {
                stream.ledger().keep();
            }
            Transport::Udp(_) => {}
        }
        self.leave(ReasonT::ServerGone, false);
    }

    /// Waits until the carrier has put the session back, or there turns out to be nothing to put
    /// back. `parting`: the session's state, if it was here; it is given to this server, or to the
    /// next one if this one dies. Returns true if the kernel has had the session all the time.
    fn await_return(&self, stream: &Stream, parting: Option<&ReturningSession>) -> bool {
        let library = crate::process::library::library();
        let net = library.engine().zip(library.net());
        // The last return waited in vain for a server: this one does not wait as long again.
        let is_alone = net.is_some_and(|(_, net)| net.is_alone.load(Ordering::SeqCst));
        let limit = if is_alone { RETURN_SLICE } else { RETURN_LIMIT };
        let deadline = Deadline::after(limit);
        let is_decided = || stream.peer_flushed().is_some() || stream.ledger().is_lost();
        // The connection over which the session was given back.
        let mut given = None;
        while !is_decided() && !deadline.is_over() {
            match (parting, net) {
                (Some(parting), Some((_, net))) => {
                    let (token, has_ended) = (parting.token, parting.carried.has_ended());
                    let record = &parting.record;
                    given = net.server.give_back(library, given, token, has_ended, record);
                    // Packets that come for the session meanwhile are taken in now, so that this
                    // work is not left for afterwards.
                    while !is_decided() && net.with_pump(|pump| pump.turn(false, now())) {}
                }
                // The carrier is gone, had not taken the session out, and never will.
                _ if self.peer_process_is_gone() && stream.ledger().keep() => return true,
                // Another thread has decided that the kernel keeps the session.
                _ if stream.ledger().is_kept() => return true,
                _ => {}
            }
            let said = stream.announce_reader(Bell::OnFutex);
            if !is_decided() {
                stream.sleep_reader(said, Some(RETURN_SLICE), sojourn_shm::futex::wait);
            }
            stream.withdraw_reader();
        }
        if let (false, Some(_), Some((_, net))) = (is_decided(), parting, net) {
            net.is_alone.store(given.is_none(), Ordering::SeqCst);
        }
        false
    }

    /// Brings home a carried session whose stream is frozen: waits until the carrier has put it
    /// into the kernel, with all bytes that the program has written, and those that it has not
    /// read. Returns true if the kernel has had the session all the time, except for the bytes in
    /// the ring.
    pub(crate) fn return_carried(&self, rx: &mut Receiver, stream: &Stream) -> bool {
        if stream.ledger().is_kept() {
            return true;
        }
        let library = crate::process::library::library();
        // SYNC: the stream is frozen by now; pairs with `Net::begin`, also if there is no `Net`
        // yet.
        fence(Ordering::SeqCst);
        let net = library.engine().zip(library.net());
        let net = net.filter(|(_, net)| net.withdraw(self));
        let is_delegated = net.is_some();
        let parting = net.and_then(|(_, net)| net.part(self.slot()));
        if !is_delegated {
            stream.set_flushed(0);
            stream.attention();
        }
        // Nobody can put back a session that was here and whose state cannot be exported.
        if is_delegated == parting.is_some() && self.await_return(stream, parting.as_ref()) {
            return true;
        }
        let in_transit =
            net.zip(parting.as_ref()).and_then(|((_, net), parting)| net.in_transit(parting));
        // Nobody knows the state of the connection any more.
        if stream.peer_flushed().is_none() {
            rx.is_reset = true;
            stream.ledger().lose();
            if let (Some(parting), Some((_, net))) = (parting, net) {
                net.reset(parting);
            }
            // The socket's state is old: it would wait for ever for acknowledgements. Disconnected,
            // it refuses writes.
            if let Ok(fd) = kernel::at(self.number()) {
                let _ = rustix::net::connect_unspec(fd);
            }
        } else if let (Some(in_transit), Some(parting), Some((_, net))) = (in_transit, parting, net)
        {
            net.server.give_in_transit(parting.token, &in_transit);
        }
        false
    }
}
