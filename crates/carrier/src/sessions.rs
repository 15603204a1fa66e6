//! The session server as the carrier sees it; both are in one process.
//!
//! To the server's registry the carrier is one more client, which offers the other end of what a
//! program offers. So joins, recalls and the ends of processes come to it as they come to libraries
//! (`idl/session.idl`). Not here: what the server tells the carrier (`commands`).

use rustix::fd::BorrowedFd;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{EventT, HopT, LendT, OfferT, ReasonT, WayT};
use std::net::SocketAddr;

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
    /// Delegates the session to the library at the other side of its stream; `local` of what is
    /// delegated is filled in.
    fn delegate(&self, local: u64, terms: LendT);
    /// Tells that library of another next hop.
    fn reroute(&self, local: u64, hop: HopT);
    /// Tells the administrator what he may want to know.
    fn say(&self, text: core::fmt::Arguments<'_>);
    /// A session of an earlier server, of which the carrier has this side: `region` is its stream's
    /// memory.
    fn adopt(&self, local: u64, what: Adopted<'_>, stream: u64, side: u8, region: Descriptor);
    /// Tells that library how a UDP socket's session may send somewhere; `local` of it is filled
    /// in.
    fn tell_way(&self, local: u64, next_hop: WayT);
    /// As in the interface.
    fn left(&self, local: u64, reason: ReasonT, sent: u64, received: u64);
}
