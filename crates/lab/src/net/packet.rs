//! A packet socket for a link's relay (packet(7)), with one frame per call; and the switch that
//! turns an interface's offloads off.
//!
//! Not here: any interpretation of a frame.

#![allow(unsafe_code, reason = "packet sockets and ethtool have no safe interface")]

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const RECEIVE_BYTES: c_int = 16 << 20;
/// From `linux/if_packet.h`: the socket does not receive frames that this host sends.
const PACKET_IGNORE_OUTGOING: c_int = 23;
/// From `linux/ethtool.h`: transmit checksums. Segmentation offload needs them, so switching them
/// off switches both off.
const ETHTOOL_STXCSUM: u32 = 0x17;

/// The `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// A socket that receives every frame which arrives at one interface, and sends there.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    let value = (&raw const value).cast::<c_void>();
    // SAFETY: the value lives through the call and has the length that the call is told.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl PacketSocket {
    /// Opens a socket on the interface of this name in the thread's network namespace.
    pub(super) fn open(interface: &str) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0: the socket receives nothing before it is bound to the interface.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BYTES)?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface);
        let index = index.with_context(|| format!("no interface {interface}"))?;
        let mut address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address lives through the call and has the length that the call is told.
        let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw mut address).cast(), len) };
        if done != 0 {
            return Err(io::Error::last_os_error()).context("cannot bind a packet socket");
        }
        Ok(Self(socket))
    }

    /// Receives the next frame, if there is one; returns its length.
    pub(super) fn receive(&self, into: &mut [u8]) -> Option<usize> {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&self.0, into, flags).ok().map(|(len, _)| len)
    }

    /// Sends a frame. Returns true if the interface took it.
    pub(super) fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::DONTWAIT).is_ok()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes the kernel send whole packets with complete checksums through the interface of this name
/// in the thread's namespace.
pub(super) fn offloads_off(interface: &str) -> Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let mut value = EthtoolValue { command: ETHTOOL_STXCSUM, data: 0 };
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let (name, end) = (interface.as_bytes(), request.ifr_name.len() - 1);
    for (place, byte) in request.ifr_name[..end].iter_mut().zip(name) {
        // Signed or not, by the architecture.
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request and the value that it points to have the kernel's types and live through
    // the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).with_context(|| format!("offloads of {interface}")),
    }
}
