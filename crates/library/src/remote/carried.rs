//! Sessions whose other side is the server's carrier: what is different for them.
//!
//! To data calls a carried session is a session as any other. The kernel's socket, however, is not
//! a second way for bytes: once both directions have switched, the carrier takes over what the
//! kernel knew of the connection, and gives it back when the stream is frozen. So nobody here uses
//! the socket in between. Read `docs/understand/moves.md`.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::Library;
use crate::remote::carry_server::{ANSWER_LIMIT, Connected, open_carry_client};
use crate::remote::net::{Net, Parting};
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::received::Received;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use rustix::fd::AsFd;
use sojourn_pump::{InTransit, now};
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;
use sojourn_stream::{Bell, Stream};

/// How long the carrier may take to put a session back. Then it counts as lost, as if the peer had
/// reset it.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether the carrier lives, or another one.
const RETURN_SLICE: Duration = Duration::from_millis(20);
impl Session {
    pub(crate) fn is_carried(&self) -> bool {
        self.is_carried.load(Ordering::Relaxed)
    }

    /// Receives from the ring only from now on: what is in the kernel the carrier will take from
    /// there.
    pub(crate) fn give_up_kernel(&self, rx: &mut Receiver, stream: &Stream) {
        if rx.phase == RxPhase::Joined {
            rx.phase = RxPhase::Ring;
            rx.promised = if self.is_datagram() { 0 } else { kernel::input_queue(self.number()) };
            rx.is_promised = rx.promised > 0;
            stream.ledger().give_up_kernel();
            stream.attention();
        }
    }

    /// A session's ring is empty. What the kernel had when it was given up may have been reported,
    /// so it is not "nothing" until the carrier has brought it.
    pub(crate) fn found_nothing(&self, rx: &mut Receiver, stream: &Stream) -> Received {
        rx.is_promised &= stream.totals().1 == 0;
        if rx.is_promised { Received::Owed } else { Received::Empty }
    }

    /// The kernel's socket has nothing to say: the session is away from it, and on the way home it
    /// is disconnected for a moment, which looks like a hang-up.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_carried() && !self.is_datagram() && lock(&self.rx).phase == RxPhase::Ring
    }

    /// The carrier is ready: both directions switch as soon as no thread sits in the kernel.
    pub(crate) fn hand_over(&self, stream: &Stream) {
        self.switch_now();
        let mut rx = lock(&self.rx);
        if rx.phase == RxPhase::Joined {
            self.try_consent(&mut rx, stream);
        }
        drop(rx);
        // What the kernel has said of room and bytes has become the stream's to say: whoever sleeps
        // looks there.
        self.wake_own(stream);
    }

    /// The server is gone. What its carrier had not begun to take out of the kernel is in the
    /// kernel, but for what the program has written to the ring meanwhile. What it had begun with,
    /// and not delegated, only the next one may know.
    pub(crate) fn carrier_is_lost(&self) {
        if self.is_carried()
            && !self.is_delegated()
            && let Some(stream) = self.stream()
        {
            if !self.is_datagram() {
                stream.ledger().keep();
            }
            self.leave(ReasonT::ServerGone, false);
        }
    }

    /// Waits until the carrier has put the session back, or it turns out that there is nothing to
    /// put back. `parting`: where the session stands, if that is known here; it is given to this
    /// server, or to the next one if this dies. Whether this process has kept it.
    fn await_return(&self, stream: &Stream, parting: Option<&Parting>) -> bool {
        let library = crate::process::library::library();
        let net = library.engine().zip(library.net());
        // If there was no server for so long before, none is waited for again.
        let is_alone = net.is_some_and(|(_, net)| net.is_alone.load(Ordering::SeqCst));
        let limit = if is_alone { RETURN_SLICE } else { RETURN_LIMIT };
        let deadline = Deadline::after(limit);
        let is_decided = || stream.peer_flushed().is_some() || stream.ledger().is_lost();
        let mut given = Given::default();
        while !is_decided() && !deadline.is_over() {
            match (parting, net) {
                (Some(parting), Some((_, net))) => {
                    net.give_back(library, parting, &mut given);
                    // What comes for it meanwhile is kept: work that would have to be done
                    // afterwards.
                    while !is_decided() && net.with_pump(|pump| pump.turn(false, now())) {}
                }
                // The carrier has not taken it out, and never will.
                _ if self.peer_process_is_gone() && stream.ledger().keep() => return true,
                // Another thread has found that out.
                _ if stream.ledger().is_kept() => return true,
                _ => {}
            }
            let said = stream.announce_reader(Bell::OnFutex);
            if !is_decided() {
                stream.sleep_reader(said, Some(RETURN_SLICE));
            }
            stream.withdraw_reader();
        }
        if let (false, Some(_), Some((_, net))) = (is_decided(), parting, net) {
            net.is_alone.store(!given.is_given(), Ordering::SeqCst);
        }
        false
    }

    /// The stream is frozen: waits until the carrier has put the session into the kernel, with all
    /// that the program has written and not read. It reads what is left in our ring itself. True:
    /// the kernel has had it all the time, but for what is in the ring.
    pub(crate) fn return_carried(
        &self,
        rx: &mut Receiver,
        stream: &Stream,
        reason: ReasonT,
    ) -> bool {
        if self.is_datagram() {
            self.return_datagrams(rx, stream, reason);
            return false;
        }
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
        // If it was carried and what it was cannot be told, nobody can put it back.
        if is_delegated == parting.is_some() && self.await_return(stream, parting.as_ref()) {
            return true;
        }
        let in_transit =
            net.zip(parting.as_ref()).and_then(|((_, net), parting)| net.in_transit(parting));
        // Neither the kernel nor anybody else knows where the connection stands.
        if stream.peer_flushed().is_none() {
            rx.is_reset = true;
            stream.ledger().lose();
            if let (Some(parting), Some((_, net))) = (parting, net) {
                net.reset(parting);
            }
            // Its socket would wait for ever for answers to what it said long ago: closed, it
            // refuses writes, and tells the peer.
            if let Ok(fd) = kernel::at(self.number()) {
                let _ = rustix::net::connect_unspec(fd);
            }
        } else if let (Some(in_transit), Some(parting), Some((_, net))) = (in_transit, parting, net)
        {
            net.give_in_transit(&parting, &in_transit);
        }
        false
    }
}

/// Whom a session was given back to.
#[derive(Debug, Default)]
struct Given {
    /// Which connection that was.
    by: Option<u64>,
}

impl Given {
    fn is_given(&self) -> bool {
        self.by.is_some()
    }
}

impl Net {
    /// Whether sessions can be given back: there is a server, and a connection to it.
    pub(crate) fn has_server(&self, library: &Library) -> bool {
        self.connected(library, &mut lock(&self.server))
    }

    /// Sees to it that there is a connection to a server that lives.
    fn connected(&self, library: &Library, server: &mut Option<Connected>) -> bool {
        if server.as_mut().is_some_and(|server| !server.is_alive()) {
            *server = None;
        }
        if server.is_none() {
            self.connections.fetch_add(1, Ordering::Relaxed);
            let number = self.connections.load(Ordering::Relaxed);
            let client = open_carry_client(library);
            *server = client.map(|client| Connected { client, number });
        }
        server.is_some()
    }

    /// Gives the session to the server, unless the one that is there has it already.
    fn give_back(&self, library: &Library, parting: &Parting, given: &mut Given) {
        let mut server = lock(&self.server);
        if !self.connected(library, &mut server) {
            given.by = None;
            return;
        }
        let Some(Connected { client, number }) = &mut *server else { return };
        if given.by == Some(*number) {
            return;
        }
        let (token, has_ended) = (parting.token, parting.carried.has_ended());
        let deadline = sojourn_ipc::Deadline::after(ANSWER_LIMIT);
        let file = Some(parting.file.as_fd());
        let is_given = client.with_deadline(deadline).give_back(token, has_ended, file).is_ok();
        given.by = is_given.then_some(*number);
        if !is_given {
            *server = None;
        }
    }

    /// The server that has put the session back says to the kernel what came meanwhile. If there is
    /// none, or it is another one, the peer repeats it.
    fn give_in_transit(&self, parting: &Parting, in_transit: &InTransit) {
        let mut server = lock(&self.server);
        let Ok(file) = in_transit.pack() else { return };
        let Some(Connected { client, .. }) = &mut *server else { return };
        let deadline = sojourn_ipc::Deadline::after(ANSWER_LIMIT);
        let told = client.with_deadline(deadline).give_late(parting.token, Some(file.as_fd()));
        if told.is_err() {
            *server = None;
        }
    }
}
