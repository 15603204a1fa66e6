//! The network of one port: a raw socket of IPv4 (raw(7)), with a filter for the port, that the
//! port's receiving thread reads.
//!
//! The kernel does the work below UDP: routes, neighbours, fragments in both directions, firewalls.
//! One of the kernel's own UDP sockets is bound to the port and drops every packet. It reserves the
//! port, and keeps the kernel from answering packets with ICMP errors (port unreachable). Not here:
//! headers and checksums (`packet`).

use crate::packet;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{Error, ErrorKind, IoSlice, Read as _, Result};
use std::net::Shutdown;

/// The sockets of a port.
#[derive(Debug)]
pub(crate) struct Network {
    raw: Socket,
    local: SocketAddrV4,
    is_closed: AtomicBool,
    _reserved: Socket,
}

impl Network {
    /// Takes the port of `local`, or a free one for port 0. If `spins`, `receive` never sleeps.
    pub(crate) fn open(local: SocketAddrV4, spins: bool) -> Result<Self> {
        let reserved = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        reserved.attach_filter(&packet::nothing())?;
        reserved.bind(&local.into())?;
        let local = reserved.local_addr()?.as_socket_ipv4().ok_or(ErrorKind::Unsupported)?;
        // The kernel also binds to a group's address, and to a network's, where it connects nobody.
        let is_any = local.ip().is_unspecified();
        if local.ip().is_multicast() || !is_any && source(local).is_err() {
            return Err(Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        raw.attach_filter(&packet::rule(local.port()))?;
        if !local.ip().is_unspecified() {
            raw.bind(&SocketAddrV4::new(*local.ip(), 0).into())?;
        }
        raw.set_nonblocking(spins)?;
        Ok(Self { raw, local, is_closed: AtomicBool::new(false), _reserved: reserved })
    }

    pub(crate) fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Sends a datagram; never waits.
    pub(crate) fn send(&self, to: SocketAddrV4, data: &[u8]) -> Result<()> {
        let own = Some(*self.local.ip()).filter(|own| !own.is_unspecified());
        let from = SocketAddrV4::new(own.map_or_else(|| source(to), Ok)?, self.local.port());
        let head = packet::head(from, to, data).ok_or(Error::from_raw_os_error(libc::EMSGSIZE))?;
        let target = SockAddr::from(SocketAddrV4::new(*to.ip(), 0));
        let parts = [IoSlice::new(&head), IoSlice::new(data)];
        match self.raw.send_to_vectored_with_flags(&parts, &target, libc::MSG_DONTWAIT) {
            // The socket's buffer is full: the datagram is lost.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Waits for a packet for this port; returns its length, with the IPv4 header. `None` once
    /// closed.
    pub(crate) fn receive(&self, packet: &mut [u8]) -> Option<usize> {
        while !self.is_closed.load(Ordering::Relaxed) {
            match (&self.raw).read(packet) {
                Ok(len) if len > 0 => return Some(len),
                // `close` wakes a read, which then returns 0.
                Ok(_) => {}
                // Nothing yet, in a spinning thread; or an error of a packet sent earlier.
                Err(_) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Makes the receiving thread end.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Fails with ENOTCONN, as the socket has no peer, but wakes its readers all the same.
        let _ = self.raw.shutdown(Shutdown::Both);
    }
}

/// Returns the address that the kernel sends from, which the checksum covers.
fn source(to: SocketAddrV4) -> Result<Ipv4Addr> {
    let probe = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    probe.connect(&to.into())?;
    Ok(*probe.local_addr()?.as_socket_ipv4().ok_or(ErrorKind::Unsupported)?.ip())
}
