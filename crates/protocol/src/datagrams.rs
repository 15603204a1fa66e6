//! Datagrams of a handed-over UDP socket: sending and receiving as the protocol library serves
//! them, and what comes with each.
//!
//! A UDP socket that is away has two queues, the library's and the kernel's, and a datagram that
//! cannot go past the kernel goes through the socket: see `sojourn_library`, `io::datagrams`. None
//! of these calls waits. Not here: bytes of TCP sessions, and going home (`calls`); who is answered
//! with a datagram (`queue`).
#![allow(unsafe_code, reason = "control messages as bytes, which no safe wrapper has")]

use crate::buffer::{Buffer, BufferRoom, CONTROL_LEN};
use crate::calls::{Socket, counted};
use core::mem::MaybeUninit;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::SendFlags;
use sojourn_library::{Attempt, ReceiveOutcome, Recv, Route, library};
use sojourn_session::protocol::server::AddressT;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

impl Socket {
    /// Sends a datagram, or several of `segment` bytes each but the last; to the connected peer if
    /// there is no target.
    ///
    /// # Errors
    /// Those of sendto(2). `EOPNOTSUPP`: the kernel would have to cut several, for which only the
    /// caller's own socket can be used.
    pub(crate) fn send_to(
        &self,
        data: &[u8],
        to: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Result<(), Errno> {
        let kernel = || match (to, segment) {
            (_, Some(_)) => Err(Errno::OPNOTSUPP),
            (Some(to), None) => rustix::net::sendto(self.fd()?, data, flags(), &to),
            (None, None) => rustix::net::send(self.fd()?, data, flags()),
        };
        let sent = match library().writing(self.number()) {
            Route::Plain => kernel(),
            Route::Kernel(using) => {
                let sent = kernel();
                using.done(counted(sent));
                sent
            }
            Route::Datagrams(call) => match call.send(&[IoSlice::new(data)], to, segment) {
                Some(sent) => sent,
                None => kernel(),
            },
            // Only a UDP socket sends datagrams.
            Route::Stream(_) => Err(Errno::PROTONOSUPPORT),
        };
        sent.map(drop)
    }

    /// Receives a datagram; with `peek` it stays. Returns the number of bytes.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub(crate) fn receive_datagram(&self, buffer: &mut Buffer, peek: bool) -> Result<usize, Errno> {
        let how = Recv { peek, dont_wait: true, ..Recv::default() };
        let mut attempt = Attempt::default();
        loop {
            let call = match library().reading(self.number()) {
                Route::Plain => return by_kernel(self.fd()?, buffer, peek),
                Route::Kernel(using) => {
                    let got = by_kernel(self.fd()?, buffer, peek);
                    using.done(counted(got));
                    return got;
                }
                Route::Datagrams(call) => call,
                // Only a UDP socket receives datagrams.
                Route::Stream(_) => return Err(Errno::PROTONOSUPPORT),
            };
            let BufferRoom { bytes, envelope } = buffer.room(usize::MAX);
            let bufs = &mut [IoSliceMut::new(bytes)];
            match call.receive(bufs, how, &mut attempt) {
                // It has gone home meanwhile.
                None => {}
                Some(Err(error)) => return Err(error),
                Some(Ok(ReceiveOutcome::Here(datagram))) => {
                    envelope.from = AddressT::from(Some(datagram.source));
                    envelope.whole = datagram.len as u32;
                    envelope.control_len = datagram
                        .told
                        .write(attempt.messages(), CONTROL_LEN, |at, part| {
                            envelope.control[at..at + part.len()].copy_from_slice(part);
                        })
                        .len;
                    return Ok(datagram.copied);
                }
                Some(Ok(ReceiveOutcome::Kernel { is_last })) => {
                    match by_kernel(self.fd()?, buffer, peek) {
                        Err(Errno::AGAIN) if !is_last => {}
                        Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                        got => {
                            call.kernel_gave();
                            return got;
                        }
                    }
                }
            }
        }
    }
}

fn flags() -> SendFlags {
    SendFlags::DONTWAIT | SendFlags::NOSIGNAL
}

/// Receives from the kernel's queue.
fn by_kernel(fd: BorrowedFd<'_>, buffer: &mut Buffer, peek: bool) -> Result<usize, Errno> {
    let BufferRoom { bytes, envelope } = buffer.room(usize::MAX);
    let mut name = MaybeUninit::<libc::sockaddr_in6>::zeroed();
    let mut parts = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: zeroes are an empty header.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of_val(&name) as libc::socklen_t;
    header.msg_iov = &raw mut parts;
    header.msg_iovlen = 1;
    header.msg_control = envelope.control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LEN;
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC | if peek { libc::MSG_PEEK } else { 0 };
    // SAFETY: the header names memory of this function's and of its caller's, by its length.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    let Ok(whole) = usize::try_from(got) else {
        let error = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(error.unwrap_or(libc::EIO)));
    };
    // SAFETY: all zeroes are an address, and so is what the kernel has written.
    let source = address_of(&unsafe { name.assume_init() });
    envelope.from = AddressT::from(source);
    envelope.whole = u32::try_from(whole).unwrap_or(u32::MAX);
    envelope.control_len = header.msg_controllen.min(CONTROL_LEN);
    Ok(whole.min(bytes.len()))
}

/// Returns the address of either family; `None` if it is of neither.
fn address_of(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    let port = u16::from_be(name.sin6_port);
    match i32::from(name.sin6_family) {
        // `struct sockaddr_in` has the address where the other one has the flow.
        libc::AF_INET => {
            let ip = Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), port))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::FilledBuffer;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_datagram_of_the_kernels_has_its_sender_and_its_length() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(to) = UdpSocket::bind((host, 0)) else { continue };
            let from = UdpSocket::bind((host, 0)).unwrap();
            from.send_to(b"datagram", to.local_addr().unwrap()).unwrap();
            let mut buffer = Buffer::new(4);
            for peek in [true, false] {
                assert_eq!(by_kernel(to.as_fd(), &mut buffer, peek), Ok(4));
                let FilledBuffer { bytes, envelope } = buffer.filled(4);
                assert_eq!((bytes, envelope.whole), (&b"data"[..], 8));
                assert_eq!(envelope.from.socket_addr(), Ok(from.local_addr().ok()));
            }
            assert_eq!(by_kernel(to.as_fd(), &mut buffer, false), Err(Errno::AGAIN));
        }
    }
}
