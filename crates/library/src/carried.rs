//! Sessions whose other side is the server's carrier: what is different for them.
//!
//! To data calls a carried session is a session as any other. The kernel's socket, however, is not a second way for
//! bytes: once both directions have switched, the carrier takes over what the kernel knew of the connection, and gives
//! it back when the stream is frozen. So nobody here uses the socket in between. Read `docs/moves.md`.

use crate::kernel;
use crate::receive::Step;
use crate::session::{Receiver, RxPhase, Session, lock};
use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;
use sojourn_stream::{Bell, Stream};

/// How long the carrier may take to put a session back. Then it counts as lost, as if the peer had reset it.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether the carrier lives.
const RETURN_SLICE: Duration = Duration::from_millis(20);

impl Session {
    pub(crate) fn is_carried(&self) -> bool {
        self.is_carried.load(Ordering::Relaxed)
    }

    /// Receives from the ring only from now on: what is in the kernel the carrier will take from there.
    pub(crate) fn give_up_kernel(&self, rx: &mut Receiver) {
        if rx.phase == RxPhase::Joined {
            rx.phase = RxPhase::Ring;
            rx.promised = if self.is_datagram() { 0 } else { kernel::input_queue(self.number()) };
            rx.is_promised = rx.promised > 0;
        }
    }

    /// A session's ring is empty. What the kernel had when it was given up may have been reported, so it is not "nothing"
    /// until the carrier has brought it.
    pub(crate) fn found_nothing(&self, rx: &mut Receiver, stream: &Stream) -> Step {
        rx.is_promised &= stream.totals().1 == 0;
        if rx.is_promised { Step::Owed } else { Step::Empty }
    }

    /// The kernel's socket has nothing to say: the session is away from it, and on the way home it is disconnected for a moment,
    /// which looks like a hang-up.
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
        // What the kernel has said of room and bytes has become the stream's to say: whoever sleeps looks there.
        self.wake_own(stream);
    }

    /// Says to the carrier that the stream is frozen, and where the session stands if that is known here. False: there is no carrier any more.
    fn tell_carrier(&self, stream: &Stream) -> bool {
        // SYNC: the stream is frozen by now; pairs with the store in `Net::begin`.
        if self.is_lent.swap(false, Ordering::SeqCst) {
            let library = crate::library();
            return library.net().is_some_and(|net| net.give_back(self.slot()));
        }
        stream.set_flushed(0);
        stream.attention();
        true
    }

    fn await_return(&self, stream: &Stream) {
        let deadline = Deadline::after(RETURN_LIMIT);
        let is_decided = || stream.peer_flushed().is_some() || stream.ledger().is_lost();
        while !is_decided() && !deadline.is_over() && !self.peer_process_is_gone() {
            let said = stream.announce_reader(Bell::OnFutex);
            if !is_decided() {
                stream.sleep_reader(said, Some(RETURN_SLICE));
            }
            stream.withdraw_reader();
        }
    }

    /// The stream is frozen: waits until the carrier has put the session into the kernel, with all that the program has
    /// written and not read. It reads what is left in our ring itself.
    pub(crate) fn return_carried(&self, rx: &mut Receiver, stream: &Stream, reason: ReasonT) {
        if self.is_datagram() {
            return self.return_datagrams(rx, stream, reason);
        }
        if self.tell_carrier(stream) && reason != ReasonT::PeerDied {
            self.await_return(stream);
        }
        // Neither the kernel nor anybody else knows where the connection stands.
        if stream.peer_flushed().is_none() {
            rx.is_reset = true;
            // Its socket would wait for ever for answers to what it said long ago: closed, it refuses writes, and tells the peer.
            if let Ok(fd) = kernel::at(self.number()) {
                let _ = rustix::net::connect_unspec(fd);
            }
        }
    }
}
