//! Sessions whose stream's other side is the server's carrier, as far as they differ from others.
//!
//! To data calls a carried session is a session like any other. The kernel's socket, however, is
//! not a second way for bytes: once both directions have switched, the carrier takes over the
//! kernel's state of the connection, and gives it back when the stream is frozen. So this process
//! does not use the socket in between. Not here: running the engine (`net`). Read
//! `docs/understand/moves.md`.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::OwnSession;
use crate::process::stillness::Stillness;
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::net::ReturningSession;
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::received::Received;
use crate::session::transport::Transport;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use sojourn_pump::now;
use sojourn_session::ReasonT;
use sojourn_shm::deadline::{now_ns, since};
use sojourn_stream::{Bell, Stream};

/// The stillness after which the session counts as lost, as if the peer had reset it: where no
/// server has it, which includes the start of the next one.
const ALONE_LIMIT: Duration = Duration::from_secs(5);
/// The same where a living server has it. A carrier that stands still is replaced sooner: it beats
/// for ten seconds more, and the server's parent waits 30 for the next beat (`sojourn-server`,
/// `apart::generation`).
const SILENT_LIMIT: Duration = Duration::from_secs(90);
/// Pause between two looks whether a carrier, this one or the next, lives.
pub(crate) const RETURN_SLICE: Duration = Duration::from_millis(20);

/// Turns of the pump between two looks.
const TURNS_MAX: usize = 64;

/// Sleeps until the carrier says something, one look long.
pub(crate) fn await_word(stream: &Stream, still: &mut Stillness, is_decided: impl Fn() -> bool) {
    let begun = now_ns();
    let said = stream.announce_reader(Bell::OnFutex);
    if !is_decided() {
        stream.sleep_reader(said, Some(RETURN_SLICE), sojourn_shm::futex::wait);
    }
    stream.withdraw_reader();
    still.looked(since(begun));
}

impl OwnSession<'_> {
    /// Consents to the carrier's ring, and gives the kernel up once the carrier uses the ring: from
    /// then on receives come from the ring only. The carrier takes bytes that are still in the
    /// kernel from there.
    pub(crate) fn consent_to_carrier(self, rx: &mut Receiver, stream: &Stream) {
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

    /// Hands over to a carrier that is ready: both directions switch as soon as no thread of this
    /// process sits in the kernel.
    pub(crate) fn hand_over(self, stream: &Stream) {
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
    pub(crate) fn carrier_is_lost(self) {
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
    fn await_return(self, stream: &Stream, parting: Option<&ReturningSession>) -> bool {
        let library = self.library;
        let net = library.engine().zip(library.net());
        let is_decided = || stream.peer_flushed().is_some() || stream.ledger().is_lost();
        // The connection over which the session was given back.
        let (mut given, mut still) = (None, library.returns.begin());
        while !is_decided() {
            match (parting, net) {
                (Some(parting), Some((_, net))) => {
                    let (token, has_ended) = (parting.token, parting.carried.has_ended());
                    let record = &parting.record;
                    let begun = now_ns();
                    given = net.server.give_back(library, given, token, has_ended, record);
                    still.called(since(begun), ANSWER_LIMIT);
                    // Packets that come for the session meanwhile are taken in now, so that this
                    // work is not left for afterwards; not as long as other hosts send some.
                    let turn = || net.with_pump(library, |pump| pump.turn(false, now()));
                    let _ = (0..TURNS_MAX).all(|_| !is_decided() && turn());
                }
                // The carrier is gone, had not taken the session out, and never will.
                _ if self.peer_process_is_gone() && stream.ledger().keep() => return true,
                // Another thread has decided that the kernel keeps the session.
                _ if stream.ledger().is_kept() => return true,
                _ => {}
            }
            await_word(stream, &mut still, is_decided);
            let limit = if given.is_some() { SILENT_LIMIT } else { ALONE_LIMIT };
            if still.spent() >= limit {
                break;
            }
        }
        library.returns.end(still, is_decided());
        // A carrier that lives and stands still has not begun with the session, and never will now.
        !is_decided() && parting.is_none() && stream.ledger().keep()
    }

    /// Brings home a carried session whose stream is frozen: waits until the carrier has put it
    /// into the kernel, with all bytes that the program has written, and those that it has not
    /// read. Returns true if the kernel has had the session all the time, except for the bytes in
    /// the ring.
    pub(crate) fn return_carried(self, rx: &mut Receiver, stream: &Stream) -> bool {
        if stream.ledger().is_kept() {
            return true;
        }
        let library = self.library;
        // SYNC: the stream is frozen by now; pairs with `Net::begin`, also if there is no `Net`
        // yet.
        fence(Ordering::SeqCst);
        let net = library.engine().zip(library.net());
        let net = net.filter(|(_, net)| net.withdraw(&self));
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
        let in_transit = net
            .zip(parting.as_ref())
            .and_then(|((_, net), parting)| net.in_transit(library, parting));
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

impl Session {
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
}
