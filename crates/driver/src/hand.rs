//! Handing a client to a driver's process, with the packet socket that it gets.
//!
//! Not here: the process (`process`).

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sojourn_ipc::ancillary;

/// The program's name.
pub const PROGRAM: &str = "sojourn-driver";

/// Returns a pair of sockets: over the first, clients are handed to a driver that has the second as
/// its standard input.
///
/// # Errors
/// Those of socketpair(2).
pub fn control() -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(<[OwnedFd; 2]>::from)
}

/// Hands over a bound packet socket, which the driver serves to one client. Returns that client's
/// end of its connection.
///
/// # Errors
/// Those of socketpair(2) and sendmsg(2); `EPIPE` if the driver has ended.
pub fn hand(control: impl AsFd, packets: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (client, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    ancillary::send(control, &[IoSlice::new(&[0])], &[packets.as_fd(), theirs.as_fd()])?;
    Ok(client)
}
