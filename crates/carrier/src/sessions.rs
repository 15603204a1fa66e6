//! The session server as the carrier sees it, in the same process or in another one.
//!
//! To the server's registry the carrier is one more client, which offers the other end of what a
//! program offers. So joins, recalls and the ends of processes reach it as they reach libraries
//! (`idl/session.idl`). Not here: the server's commands to the carrier (`commands`).

use rustix::fd::{BorrowedFd, OwnedFd};
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{
    DelegateT, EventT, HopT, LocalNumber, OfferT, ReasonT, RouteT, StreamNumber,
};
use sojourn_stream::Traffic;
use sojourn_wire::SocketCookie;
use std::net::SocketAddr;
use std::sync::Arc;

/// The identity of a session of an earlier server.
#[derive(Clone, Copy, Debug)]
pub enum Adopted<'s> {
    /// A TCP session: what a [`Look`] has seen of its socket.
    Socket(&'s [u8]),
    /// A session of a UDP socket, which only its program has.
    Datagrams {
        /// The socket's cookie.
        cookie: SocketCookie,
        /// The address to which it is bound.
        local: SocketAddr,
        /// Its peer, if it is connected.
        remote: Option<SocketAddr>,
    },
}

/// Returns what a program gets for a packet socket.
pub type HandOver = Box<dyn Fn(OwnedFd) -> std::io::Result<OwnedFd> + Send>;

/// A look at a program's socket for the server, which may wait for as long as the program holds the
/// socket's lock. It gives what the server needs for the calls of [`Sessions`].
pub type Look = Box<dyn FnMut(BorrowedFd<'_>) -> Vec<u8>>;

/// Makes a look, in the thread that uses it: a thread with a descriptor table of its own.
pub type MakeLook = Arc<dyn Fn() -> Look + Send + Sync>;

/// The session server, as the carrier sees it. No call waits for a program.
pub trait Sessions: Send {
    /// Returns the way in which sockets are looked at.
    fn make_look(&self) -> MakeLook;
    /// Offers the other end of the socket that was seen. An event tells the outcome.
    fn offer(&self, seen: &[u8], what: &OfferT);
    /// Tells the program that has offered the socket that its session stays in the kernel, for that
    /// reason.
    fn decline(&self, seen: &[u8], reason: ReasonT);
    /// Returns the next event, or `EventT::None`.
    fn next(&self) -> EventT;
    /// Returns true if that process, as a join names it, has shown that it may have packets of the
    /// interface itself; otherwise it gets a port.
    fn may_have_packets(&self, process: &Descriptor) -> bool;
    /// Returns true if programs' packet sockets have mapped rings; without one every packet is a
    /// message.
    fn has_rings(&self) -> bool;
    /// Returns true if programs get AF_XDP sockets beside their packet sockets.
    fn has_xdp(&self) -> bool;
    /// Returns what becomes of a packet socket before a program gets it: the program may get a
    /// connection with a driver in its place.
    fn hand_over(&self) -> HandOver {
        Box::new(Ok)
    }
    /// Returns true if sessions that packet filters or IPsec policies of the host could concern
    /// stay in the kernel.
    fn respects_firewalls(&self) -> bool;
    /// Tells the server's watchdog that the carrier begins to work, or waits for something to do.
    fn at_work(&self, is_working: bool);
    /// Tells the administrator what went wrong.
    fn warn(&self, text: core::fmt::Arguments<'_>);
    /// Delegates the session to the library at the other side of its stream. The server fills in
    /// `local` of the terms.
    fn delegate(&self, local: LocalNumber, terms: DelegateT);
    /// Tells that library of another next hop.
    fn reroute(&self, local: LocalNumber, hop: HopT);
    /// Tells by which name a rule of the host goes that could say something about the packets of
    /// the session between these addresses.
    fn concerned(&self, local: SocketAddr, remote: Option<SocketAddr>, hook: &str);
    /// Tells the administrator something of interest.
    fn say(&self, text: core::fmt::Arguments<'_>);
    /// Registers a session of an earlier server, of which the carrier has this side: `region` is
    /// its stream's memory.
    fn adopt(
        &self,
        local: LocalNumber,
        what: Adopted<'_>,
        stream: StreamNumber,
        side: u8,
        region: Descriptor,
    );
    /// Tells that library how a UDP socket's session may send to an address. The server fills in
    /// `local` of the answer.
    fn tell_route(&self, local: LocalNumber, next_hop: RouteT);
    /// Reports that a session has left, as `session::left` of the interface does.
    fn left(&self, local: LocalNumber, reason: ReasonT, traffic: Traffic);
}
