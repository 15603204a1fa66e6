//! The sockets by which a program has the packets of an interface: on the interface itself, or at
//! the far end of a port.
//!
//! Not here: who gets them, and for how long (`links`); their filters (`sojourn_filter`).

use crate::metastate::Mac;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_filter::{
    AttachError, Filter, FlowError, NewOwner, OwnerError, OwnerId, Port, xdp_socket,
};
use sojourn_netif::{OpenError, PacketOptions, Ring, RingLayout, packet};
use sojourn_session::RingT;
use std::io;

/// The reason why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterfaceError {
    #[error(transparent)]
    Filter(#[from] AttachError),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error("a packet socket: {0}")]
    Socket(#[from] OpenError),
    #[error("a port takes no datagrams without checksum")]
    NoChecksum,
    #[error("no descriptors left")]
    Descriptors,
    #[error("sojourn-driver: {0}")]
    Driver(io::Error),
}

/// The ring of a program's packet socket: frames that fit its slots are seen without a system call.
/// Segments that offloads make do not fit, and are read from the socket.
const RING: RingLayout = RingLayout { slot_len: 2048, slots: 512 };

/// The sockets of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketKinds {
    /// The ring of a packet socket, if it has one.
    ring: Option<RingLayout>,
    /// A program also gets an AF_XDP socket.
    has_xdp: bool,
}

impl SocketKinds {
    pub(crate) fn new(has_rings: bool, has_xdp: bool) -> Self {
        Self { ring: has_rings.then_some(RING), has_xdp }
    }

    /// Returns the layout of the ring of programs' packet sockets, as programs are told.
    pub(crate) fn ring_told(self) -> RingT {
        let none = RingLayout { slot_len: 0, slots: 0 };
        let RingLayout { slot_len, slots } = self.ring.unwrap_or(none);
        RingT { slot_len, slots }
    }
}

/// The parts of an owner.
pub(crate) struct Made {
    pub(crate) id: OwnerId,
    pub(crate) socket: OwnedFd,
    /// An AF_XDP socket, if the program gets one and it can be had.
    pub(crate) xdp: Option<OwnedFd>,
    /// The link address from which a port's frames are sent.
    pub(crate) port: Option<Mac>,
}

fn set_up(socket: BorrowedFd<'_>, ring: Option<RingLayout>) -> Result<(), OpenError> {
    packet::configure(socket, &PacketOptions::default())?;
    ring.map_or(Ok(()), |ring| Ring::prepare(socket, ring))
}

/// Makes the sockets of a program on the interface itself.
pub(crate) fn direct(filter: &mut Filter, kinds: SocketKinds) -> Result<Made, InterfaceError> {
    let prepare = |socket: BorrowedFd<'_>| set_up(socket, kinds.ring).map_err(io::Error::other);
    let NewOwner { owner: id, socket } = filter.add_owner(prepare)?;
    // A kernel without such sockets does without.
    let xdp = kinds.has_xdp.then(|| xdp_socket().ok()).flatten();
    Ok(Made { id, socket, xdp, port: None })
}

/// Makes a program's port, with its sockets.
pub(crate) fn port(filter: &mut Filter, kinds: SocketKinds) -> Result<Made, InterfaceError> {
    let Port { owner: id, descriptor: socket, xdp, mac, .. } = filter.open_port(kinds.has_xdp)?;
    if let Err(error) = set_up(socket.as_fd(), kinds.ring) {
        let _ = filter.remove_owner(id);
        return Err(error.into());
    }
    Ok(Made { id, socket, xdp, port: Some(mac.0) })
}
