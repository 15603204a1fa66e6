//! What the carrier and the session server say to each other; both are in one process.
//!
//! To the server's registry the carrier is one more client, which offers the other end of what a
//! program offers. So joins, recalls and the ends of processes come to it as they come to libraries
//! (`idl/session.idl`).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{EventT, HopT, LendT, OfferT, ReasonT, WayT};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// What a session of an earlier server is known by.
#[derive(Clone, Copy, Debug)]
pub enum Adopted<'s> {
    /// TCP: its socket.
    Socket(BorrowedFd<'s>),
    /// A UDP socket, which only its program has.
    Datagrams {
        /// The socket's cookie.
        cookie: u64,
        /// Where it is bound.
        local: SocketAddr,
        /// Its peer, if it is connected.
        remote: Option<SocketAddr>,
    },
}

/// The session server, as the carrier sees it. No call waits.
pub trait Sessions: Send {
    /// Offers the other end of `end`'s connection. An event says what comes of it.
    fn offer(&self, end: BorrowedFd<'_>, what: &OfferT);
    /// The program that has offered it is told that its session stays in the kernel, for that
    /// reason.
    fn decline(&self, end: BorrowedFd<'_>, reason: ReasonT);
    /// The next event, or `EventT::None`.
    fn next(&self) -> EventT;
    /// Whether that process, as a join names it, has shown that it may have packets of the
    /// interface itself; otherwise it gets a port.
    fn may_have_packets(&self, process: &Descriptor) -> bool;
    /// Whether programs' packet sockets have mapped rings. Without, every packet is a message.
    fn has_rings(&self) -> bool;
    /// Whether sessions stay in the kernel about which packet filters or IPsec policies of the host
    /// could say something.
    fn respects_firewalls(&self) -> bool;
    /// The carrier is at work from now on, or waits for something to do: for the server's watchdog.
    fn at_work(&self, is_working: bool);
    /// Tells the administrator what went wrong.
    fn warn(&self, text: core::fmt::Arguments<'_>);
    /// Lends the session to the library at the other side of its stream; `local` of what is lent is
    /// filled in.
    fn lend(&self, local: u64, lent: LendT);
    /// Tells that library of another way.
    fn reroute(&self, local: u64, hop: HopT);
    /// Tells the administrator what he may want to know.
    fn say(&self, text: core::fmt::Arguments<'_>);
    /// A session of an earlier server, of which the carrier has this side: `region` is its stream's
    /// memory.
    fn adopt(&self, local: u64, what: Adopted<'_>, stream: u64, side: u8, region: Descriptor);
    /// Tells that library how a UDP socket's session may send somewhere; `local` of it is filled
    /// in.
    fn tell_way(&self, local: u64, way: WayT);
    /// As in the interface.
    fn left(&self, local: u64, reason: ReasonT, sent: u64, received: u64);
}

/// What is handed to the carrier.
#[derive(Debug)]
pub enum Handed {
    /// A duplicate of the socket of a program that wants its session carried.
    Socket(OwnedFd),
    /// A library has registered its side of the adopted session that is this stream.
    Registered {
        /// The stream's number.
        stream: u64,
        /// The library's process.
        pid: u32,
    },
    /// The server ends: all sessions go home, and none is taken any more.
    AllHome,
    /// The record of the session of that token, from its library: `carry::give_back` of the
    /// interface.
    Back {
        /// Names the session.
        token: u64,
        /// The peer's FIN has come right behind the record's last byte.
        has_ended: bool,
        /// A file with its record.
        record: OwnedFd,
    },
    /// What came for the session of that token while it was on its way home, from its library:
    /// `carry::give_late` of the interface.
    InTransit {
        /// Names the session.
        token: u64,
        /// A file with packets (`sojourn_pump::in_transit`).
        packets: OwnedFd,
    },
    /// The library at the other side of a UDP socket's session wants to send there:
    /// `session::ask_way` of the interface.
    AskWay {
        /// The carrier's number of it.
        local: u64,
        /// Where it wants to send.
        to: IpAddr,
    },
}

/// Hands things to the carrier, from any thread.
#[derive(Debug)]
pub struct Door {
    things: Sender<Handed>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
}

/// The carrier's side of a [`Door`].
#[derive(Debug)]
pub struct Gate {
    things: Receiver<Handed>,
    bell: OwnedFd,
    count: Arc<AtomicUsize>,
    is_closed: bool,
}

/// A door; its bell is also what the server rings for events.
///
/// # Errors
/// No descriptors left.
pub fn door() -> Result<(Door, Gate), Errno> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let bell = rustix::event::eventfd(0, flags)?;
    let other = rustix::io::fcntl_dupfd_cloexec(&bell, 0)?;
    let (sender, receiver) = channel();
    let count = Arc::new(AtomicUsize::new(0));
    let door = Door { things: sender, bell, count: Arc::clone(&count) };
    Ok((door, Gate { things: receiver, bell: other, count, is_closed: false }))
}

impl Door {
    /// False: there is no carrier any more.
    pub fn hand(&self, what: Handed) -> bool {
        // Until the carrier has looked, and counted: see `Gate::tell_count`.
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_taken = self.things.send(what).is_ok();
        // A full counter rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        is_taken
    }

    /// Sessions that the carrier has, and things that it has not looked at yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// What is rung for events.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Gate {
    /// Readable when there is something handed in, or an event.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// To be called before looking, so that nothing that comes later is missed.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The next thing.
    pub(crate) fn next(&mut self) -> Option<Handed> {
        match self.things.try_recv() {
            Ok(thing) => Some(thing),
            Err(error) => {
                self.is_closed |= error == TryRecvError::Disconnected;
                None
            }
        }
    }

    /// Tells how many sessions there are. Something that is handed in just now may be left out for
    /// a moment.
    pub(crate) fn tell_count(&self, sessions: usize) {
        self.count.store(sessions, Ordering::SeqCst);
    }

    /// Nobody will hand in anything any more: the server is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}
