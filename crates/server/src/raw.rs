//! The system calls for which there is no safe wrapper: about the network name space of a socket,
//! and packet sockets.
//!
//! Not here: signal masks (`signals`), socket options by number (`sojourn_shm::sockopt`).
#![allow(unsafe_code, reason = "system calls that rustix does not have")]

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use sojourn_shm::sockopt::option;

/// `linux/sockios.h`.
const SIOCGSKNS: libc::c_ulong = 0x894C;
/// `asm-generic/socket.h`, since Linux 5.14.
const SO_NETNS_COOKIE: i32 = 71;

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Returns the number of a socket's network name space, which the kernel never gives out twice.
///
/// # Errors
/// The kernel's.
pub(crate) fn netns_cookie(fd: impl AsFd) -> Result<u64, Errno> {
    let mut value = [0; 8];
    match option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut value)? {
        8 => Ok(u64::from_ne_bytes(value)),
        _ => Err(Errno::NOPROTOOPT),
    }
}

/// Returns true if a packet socket is bound to no protocol and no interface (packet(7)).
pub(crate) fn is_unbound_packets(fd: impl AsFd) -> bool {
    // SAFETY: zeroes are a valid address, and the kernel writes `len` bytes of it at most.
    unsafe {
        let mut place: libc::sockaddr_ll = core::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let fd = fd.as_fd().as_raw_fd();
        libc::getsockname(fd, (&raw mut place).cast(), &raw mut len) == 0
            && i32::from(place.sll_family) == libc::AF_PACKET
            && place.sll_protocol == 0
            && place.sll_ifindex == 0
    }
}

/// Opens the network name space of a socket, to be entered.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_NET_ADMIN` there.
pub(crate) fn netns_of(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    // SAFETY: this request takes no argument; it answers a new descriptor.
    unsafe {
        let fd = libc::ioctl(fd.as_fd().as_raw_fd(), SIOCGSKNS);
        if fd < 0 { Err(last_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Binds a packet socket to the first interface, which is always there, for tests.
#[cfg(test)]
pub(crate) fn bind_packets(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: zeroes are a valid address, and the kernel reads no more than it.
    let status = unsafe {
        let mut place: libc::sockaddr_ll = core::mem::zeroed();
        place.sll_family = libc::AF_PACKET as u16;
        place.sll_ifindex = 1;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(fd.as_fd().as_raw_fd(), (&raw const place).cast(), len)
    };
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// Puts the calling thread into a new network name space, for tests.
#[cfg(test)]
pub(crate) fn new_netns() -> Result<(), Errno> {
    // SAFETY: only this thread's name space changes; no memory is touched.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Gives the calling thread mounts of its own, with a new file system of that kind at `folder`, for
/// tests.
#[cfg(test)]
pub(crate) fn new_mount(kind: &core::ffi::CStr, folder: &core::ffi::CStr) -> Result<(), Errno> {
    let (kind, folder, none) = (kind.as_ptr(), folder.as_ptr(), core::ptr::null());
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: only this thread's mounts change; the strings live until the calls return.
    let is_there = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
            && libc::mount(kind, folder, kind, 0, none.cast()) == 0
    };
    if is_there { Ok(()) } else { Err(last_error()) }
}
