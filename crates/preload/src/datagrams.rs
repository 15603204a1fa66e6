//! Calls on UDP sockets whose datagrams arrive partly at the library: addresses, control data, and
//! one datagram for each call.
//!
//! Datagrams from the library are answered here as the kernel would answer them. For the other
//! datagrams the kernel is asked without waiting, with the program's own pointers. Not here: the
//! order in which both sources are asked (`sojourn_library`). Read udp(7), recvmsg(2) and
//! sendmsg(2) first.

use crate::buffers::{self, Access, accessible};
use crate::errno;
use crate::flags::{RECV_SERVED, ReceiveFlags};
use crate::guard::{home, is_open, within};
use crate::library::{
    Attempt, Datagram, DatagramAncillary, DatagramCall, PARTS_MAX, ReceiveOutcome, Recv, Told,
};
use crate::process::was_cancelled;
use crate::raw;
use crate::vectors::{self, IOV_MAX};
use core::ffi::c_int;
use libc::{cmsghdr, iovec, msghdr};
use rustix::io::Errno;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The size of the longest UDP packet; no payload is longer.
const PAYLOAD_MAX: usize = 65_535;
/// `UDP_SEGMENT` of linux/udp.h.
const UDP_SEGMENT: c_int = 103;
/// Flags of sending calls that the library serves.
const SEND_SERVED: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM | libc::MSG_EOR;

/// Returns true if calls on `fd` are served by this file.
pub(crate) fn is_concerned(fd: c_int) -> bool {
    is_open() && within(|library| library.is_datagram(fd)) == Some(true)
}

/// Returns a message header with buffers only.
pub(crate) fn header_of(buffers: &[iovec]) -> msghdr {
    // SAFETY: zeroes are an empty header.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = buffers.as_ptr().cast_mut();
    header.msg_iovlen = buffers.len();
    header
}

/// Returns the buffers of a message; `None` if the kernel would refuse them or they have more parts
/// than the library takes.
fn buffers_of(header: &msghdr) -> Option<&[iovec]> {
    let count = header.msg_iovlen;
    if count > IOV_MAX {
        return None;
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    let all = unsafe { buffers::structures(header.msg_iov.cast_const(), count) }?;
    vectors::total(all)?;
    (all.iter().filter(|one| one.iov_len > 0).count() <= PARTS_MAX).then_some(all)
}

/// Receives a datagram. `header` is the library's copy of the program's header, and is filled in.
/// Returns the result of the call; `None` if the session is home, or goes home now, and the caller
/// must ask for the route again.
pub(crate) fn receive(
    fd: c_int,
    call: &DatagramCall<'static>,
    header: &mut msghdr,
    flags: ReceiveFlags,
    attempt: &mut Attempt,
) -> Option<isize> {
    loop {
        let got = buffers_of(header).and_then(|buffers| {
            vectors::datagram_room(buffers, PAYLOAD_MAX, |slices| {
                within(|_| call.receive(slices, flags.how, attempt)).flatten()
            })
        });
        let Some(got) = got else {
            // The kernel decides when a bad buffer matters.
            home(fd, false);
            return None;
        };
        match got? {
            Ok(ReceiveOutcome::Here(datagram)) => {
                return Some(answer(header, &datagram, attempt, flags));
            }
            Ok(ReceiveOutcome::Kernel { is_last }) => {
                let got = ask_kernel(fd, header, flags.number());
                if got != -(libc::EAGAIN as isize) {
                    within(|_| call.kernel_gave());
                } else if !is_last {
                    continue;
                }
                return Some(errno::kernel(got));
            }
            // The call is made again: after a cancellation its session is in the kernel, where the
            // cancelled thread ends.
            Err(Errno::INTR) if was_cancelled() => return None,
            Err(error) => return Some(errno::count(Err(error))),
        }
    }
}

/// Makes the kernel's `recvmsg` without waiting. Returns the number of bytes, or a negative error
/// number.
fn ask_kernel(fd: c_int, header: &mut msghdr, flags: c_int) -> isize {
    let flags = flags | libc::MSG_DONTWAIT;
    let arguments = [fd as usize, core::ptr::from_mut(header) as usize, flags as usize, 0, 0, 0];
    // SAFETY: the header is local to this library; the kernel checks the program's pointers in it.
    unsafe { raw::call(libc::SYS_recvmsg, arguments) }
}

/// Fills in the sender's address, the flags and the control data. Returns the length that the call
/// returns.
fn answer(
    header: &mut msghdr,
    datagram: &Datagram,
    attempt: &Attempt,
    flags: ReceiveFlags,
) -> isize {
    let is_cut = datagram.copied < datagram.len;
    header.msg_flags = flags.number() & libc::MSG_CMSG_CLOEXEC;
    header.msg_flags |= if is_cut { libc::MSG_TRUNC } else { 0 };
    let room = core::mem::replace(&mut header.msg_controllen, 0);
    if datagram.told.is_any() {
        answer_control(header, room, &datagram.told, attempt);
    }
    if !header.msg_name.is_null() {
        let SocketName { bytes: name, len } = name_of(&datagram.source);
        let copied = len.min(header.msg_namelen as usize);
        if accessible(header.msg_name as usize, copied, Access::Write) < copied {
            return errno::count(Err(Errno::FAULT));
        }
        // SAFETY: `copied` bytes are writable, as checked above; the name has at least as many.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), header.msg_name.cast(), copied) };
        header.msg_namelen = len as libc::socklen_t;
    }
    (if flags.how.whole_len { datagram.len } else { datagram.copied }) as isize
}

/// Writes the control messages that the program has asked for, as far as there is room.
fn answer_control(header: &mut msghdr, room: usize, told: &Told, attempt: &Attempt) {
    let start = header.msg_control.cast::<u8>();
    let room = if start.is_null() { 0 } else { room.min(DatagramAncillary::LEN_MAX) };
    // The kernel leaves control messages out if their memory is not accessible.
    if room > 0 && accessible(start as usize, room, Access::Write) < room {
        return;
    }
    let written = told.write(attempt.messages(), room, |at, part| {
        // SAFETY: within `room` bytes, which are writable, as checked above.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), start.add(at), part.len()) };
    });
    header.msg_flags |= if written.is_cut { libc::MSG_CTRUNC } else { 0 };
    header.msg_controllen = written.len;
}

/// An address in C's form.
struct SocketName {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

/// Returns an address in C's form.
fn name_of(source: &SocketAddr) -> SocketName {
    let mut name = [0; size_of::<libc::sockaddr_in6>()];
    name[2..4].copy_from_slice(&source.port().to_be_bytes());
    match source {
        SocketAddr::V4(v4) => {
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&v4.ip().octets());
            SocketName { bytes: name, len: size_of::<libc::sockaddr_in>() }
        }
        SocketAddr::V6(v6) => {
            name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name[8..24].copy_from_slice(&v6.ip().octets());
            SocketName { bytes: name, len: name.len() }
        }
    }
}

/// Returns the target of a message; `Err` if only the kernel understands it, or if the kernel
/// refuses it.
fn target_of(header: &msghdr) -> Result<Option<SocketAddr>, ()> {
    let len = header.msg_namelen as usize;
    if header.msg_name.is_null() || len == 0 {
        return Ok(None);
    }
    let len = len.min(size_of::<libc::sockaddr_in6>());
    if len < size_of::<libc::sockaddr_in>()
        || accessible(header.msg_name as usize, len, Access::Read) < len
    {
        return Err(());
    }
    let mut name = [0u8; size_of::<libc::sockaddr_in6>()];
    // SAFETY: `len` bytes are readable, as checked above; `name` has at least as many.
    unsafe { core::ptr::copy_nonoverlapping(header.msg_name.cast(), name.as_mut_ptr(), len) };
    let word = |at: usize| u32::from_ne_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]);
    let port = u16::from_be_bytes([name[2], name[3]]);
    match c_int::from(u16::from_ne_bytes([name[0], name[1]])) {
        libc::AF_INET => Ok(Some(SocketAddr::new(Ipv4Addr::from(word(4).to_be()).into(), port))),
        libc::AF_INET6 if len == name.len() => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&name[8..24]);
            let ip = Ipv6Addr::from(octets);
            Ok(Some(SocketAddrV6::new(ip, port, word(4), word(24)).into()))
        }
        _ => Err(()),
    }
}

/// Returns the value of a `UDP_SEGMENT` control message (udp(7)); `Err` if there is any other
/// control message, or an invalid one: those are for the kernel.
fn segment_of(header: &msghdr) -> Result<Option<u16>, ()> {
    const DATA_AT: usize = size_of::<cmsghdr>();
    const LEN: usize = DATA_AT + size_of::<u16>();
    let len = header.msg_controllen;
    if header.msg_control.is_null() || len == 0 {
        return Ok(None);
    }
    let start = header.msg_control as usize;
    if !(LEN..=LEN.next_multiple_of(size_of::<usize>())).contains(&len)
        || accessible(start, LEN, Access::Read) < LEN
    {
        return Err(());
    }
    // SAFETY: `LEN` bytes are readable, as checked above.
    let (head, size) = unsafe {
        let size = (start + DATA_AT) as *const u16;
        ((start as *const cmsghdr).read_unaligned(), size.read_unaligned())
    };
    let is_it =
        head.cmsg_level == libc::SOL_UDP && head.cmsg_type == UDP_SEGMENT && head.cmsg_len == LEN;
    if is_it && size > 0 { Ok(Some(size)) } else { Err(()) }
}

/// Sends a datagram through its session. Returns the result of the call; `None` if the kernel is to
/// serve it.
pub(crate) fn send(
    fd: c_int,
    call: &DatagramCall<'static>,
    header: &msghdr,
    flags: c_int,
) -> Option<isize> {
    if flags & libc::MSG_MORE != 0 {
        // `MSG_MORE` begins a datagram that later calls continue.
        home(fd, true);
        return None;
    }
    if flags & !SEND_SERVED != 0 {
        return None;
    }
    let buffers = buffers_of(header)?;
    // The kernel refuses such a datagram with `EMSGSIZE` (send(2)).
    if vectors::total(buffers)? > PAYLOAD_MAX {
        return None;
    }
    let (target, segment) = (target_of(header).ok()?, segment_of(header).ok()?);
    let sent = vectors::datagram(buffers, PAYLOAD_MAX, |slices| {
        within(|_| call.send(slices, target, segment)).flatten()
    });
    sent?.map(errno::count)
}

/// Translates the flags of a receiving call on a UDP socket whose datagrams arrive partly at the
/// library. Returns `None` for calls that only the kernel serves, such as reads of the error queue.
pub(crate) fn recv_flags(flags: c_int) -> Option<Recv> {
    let whole_len = flags & libc::MSG_TRUNC != 0;
    let served = RECV_SERVED | libc::MSG_TRUNC;
    (flags & !served == 0).then_some(Recv {
        peek: flags & libc::MSG_PEEK != 0,
        wait_all: false,
        dont_wait: flags & libc::MSG_DONTWAIT != 0,
        whole_len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_the_c_library_has_them() {
        for text in ["192.0.2.1:7000", "[2001:db8::1]:53"] {
            let address: SocketAddr = text.parse().unwrap();
            let SocketName { bytes: mut name, len } = name_of(&address);
            let mut header = header_of(&[]);
            assert_eq!(target_of(&header), Ok(None));
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_namelen = len as u32;
            assert_eq!(target_of(&header), Ok(Some(address)));
            header.msg_namelen = 7;
            assert_eq!(target_of(&header), Err(()));
        }
    }

    #[test]
    fn one_control_message_is_understood() {
        let mut control = [0u64; 3];
        let mut header = header_of(&[]);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = 24;
        let head = |kind| cmsghdr { cmsg_len: 18, cmsg_level: libc::SOL_UDP, cmsg_type: kind };
        // SAFETY: within `control`.
        unsafe {
            header.msg_control.cast::<cmsghdr>().write(head(UDP_SEGMENT));
            header.msg_control.cast::<u16>().add(8).write(1200);
        }
        assert_eq!(segment_of(&header), Ok(Some(1200)));
        // SAFETY: within `control`.
        unsafe { header.msg_control.cast::<cmsghdr>().write(head(UDP_SEGMENT + 1)) };
        assert_eq!(segment_of(&header), Err(()));
        header.msg_controllen = 0;
        assert_eq!(segment_of(&header), Ok(None));
    }
}
