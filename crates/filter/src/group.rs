//! The packet sockets of programs that take packets from the interface itself: one fanout group, so
//! that the kernel has one hook for any number of programs.
//!
//! Member 0 is the sink, a socket that accepts nothing and gets every frame that is not a moved
//! session's. The eBPF program `sojourn_select` chooses the member for a frame, and each member's
//! own locked filter, `sojourn_owned`, rejects other members' frames. Frames that this host sends
//! never arrive (packet(7), `PACKET_FANOUT`).

use crate::error::Failed;
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;

const FANOUT: i32 = 18;
const FANOUT_DATA: i32 = 22;
const IGNORE_OUTGOING: i32 = 23;
const BY_PROGRAM: u32 = 7;
const FLAG_UNIQUE_ID: u32 = 0x2000;
const FLAG_IGNORE_OUTGOING: u32 = 0x4000;
const EVERYTHING: u16 = 3;
/// The largest number of members: the sink and programs. The map of owners has as many places.
pub(crate) const MEMBERS_MAX: u32 = 4096;

/// Creates a packet socket that receives nothing yet.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Creates a packet socket on a port's end, at which only the program's frames arrive.
pub(crate) fn port_socket(interface: u32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    sys::set_option(&socket, libc::SOL_PACKET, IGNORE_OUTGOING, &1_i32)?;
    sys::bind_packet(&socket, interface, EVERYTHING)?;
    Ok(socket)
}

/// Creates an AF_XDP socket that is bound to nothing: its holder can send any frame on any
/// interface of the calling thread's network name space.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` if it has no such sockets.
pub fn xdp_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?)
}

/// The number of a fanout group in its network namespace (packet(7)).
#[derive(Clone, Copy)]
struct FanoutId(u32);

/// The group, held by its sink.
pub(crate) struct Group {
    sink: OwnedFd,
    id: FanoutId,
    interface: u32,
}

impl Group {
    /// Creates a group that has only the sink.
    pub(crate) fn new(
        interface: u32,
        select: BorrowedFd<'_>,
        nothing: BorrowedFd<'_>,
    ) -> Result<Self, Failed> {
        let sink = member(interface, nothing, |_| Ok(()))?;
        let step = "making the fanout group";
        let flags = BY_PROGRAM | FLAG_UNIQUE_ID | FLAG_IGNORE_OUTGOING;
        sys::set_option(&sink, libc::SOL_PACKET, FANOUT, &[flags << 16, MEMBERS_MAX])
            .map_err(Failed::at(step))?;
        sys::set_option(&sink, libc::SOL_PACKET, FANOUT_DATA, &select.as_raw_fd())
            .map_err(Failed::at(step))?;
        lock(&sink)?;
        Self::adopt(interface, sink)
    }

    /// Returns the group of a sink.
    pub(crate) fn adopt(interface: u32, sink: OwnedFd) -> Result<Self, Failed> {
        let value = sys::option(&sink, libc::SOL_PACKET, FANOUT);
        let id = value.map_err(Failed::at("finding the fanout group"))? as u32 & 0xffff;
        let id = FanoutId(id);
        Ok(Self { sink, id, interface })
    }

    /// Adds a member. `prepare` may set options that must be set before a socket receives: headers,
    /// rings.
    pub(crate) fn join(
        &self,
        filter: BorrowedFd<'_>,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<OwnedFd, Failed> {
        let socket = member(self.interface, filter, prepare)?;
        let value = [self.id.0 | (BY_PROGRAM | FLAG_IGNORE_OUTGOING) << 16, MEMBERS_MAX];
        sys::set_option(&socket, libc::SOL_PACKET, FANOUT, &value)
            .map_err(Failed::at("joining the fanout group"))?;
        lock(&socket)?;
        Ok(socket)
    }

    pub(crate) fn sink(&self) -> BorrowedFd<'_> {
        self.sink.as_fd()
    }

    /// Returns true if the interface went down since the last call: the members then came back in
    /// the order in which they were made.
    pub(crate) fn take_error(&self) -> bool {
        sys::option(&self.sink, libc::SOL_SOCKET, libc::SO_ERROR).is_ok_and(|error| error != 0)
    }
}

/// Creates a packet socket with a filter on the interface. The filter is attached before the socket
/// is bound, so that no frame of another owner is ever queued.
fn member(
    interface: u32,
    filter: BorrowedFd<'_>,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> Result<OwnedFd, Failed> {
    let socket = socket().map_err(Failed::at("making a packet socket"))?;
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &filter.as_raw_fd())
        .map_err(Failed::at("attaching a packet socket's filter"))?;
    prepare(socket.as_fd()).map_err(Failed::at("preparing a packet socket"))?;
    sys::bind_packet(&socket, interface, EVERYTHING)
        .map_err(Failed::at("binding a packet socket"))?;
    Ok(socket)
}

/// Locks the socket's filter, and through this socket also the group's program, against changes
/// (`SO_LOCK_FILTER`).
fn lock(socket: &OwnedFd) -> Result<(), Failed> {
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1_i32)
        .map_err(Failed::at("locking a packet socket's filter"))
}
