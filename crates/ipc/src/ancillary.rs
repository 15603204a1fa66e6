//! Messages over Unix sockets with descriptors beside them (`SCM_RIGHTS`, unix(7)), for every part
//! of Sojourn whose processes hand descriptors to each other. A connection's packets are some of
//! them.
//!
//! Receiving does not use rustix, because its type for credentials cannot hold process 0, which the
//! kernel reports for a sender in an invisible pid name space (pid_namespaces(7)); reading such
//! credentials into the type would be undefined behaviour. The system calls are made directly,
//! because a program may have replaced the C library's functions. Not here: the meaning of a packet
//! (`control`).

use crate::rt::{Credentials, FDS_MAX};
use core::ffi::{c_int, c_long};
use core::mem::{MaybeUninit, offset_of};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The size of a buffer for one packet's descriptors and credentials, in words, to which headers
/// are aligned.
const WORDS: usize = words(FDS_MAX);
/// The most descriptors that the kernel passes beside one packet (`SCM_MAX_FD`, unix(7)).
const KERNEL_FDS_MAX: usize = 253;
/// Bytes of a header in front of its payload (`CMSG_LEN(0)`).
const HEADER: usize = size_of::<libc::cmsghdr>().next_multiple_of(8);

/// `CMSG_SPACE`.
const fn space(len: usize) -> usize {
    HEADER + len.next_multiple_of(8)
}

/// The size of a buffer for so many descriptors, and credentials, in words.
const fn words(fds: usize) -> usize {
    (space(fds * 4) + space(size_of::<libc::ucred>())) / 8
}

/// A received packet.
#[derive(Debug)]
pub struct Arrived {
    /// Bytes written to the buffer; 0 if the peer has closed its end.
    pub len: usize,
    /// The descriptors beside the packet, which close on exec.
    pub fds: Vec<OwnedFd>,
    /// True if the kernel could not deliver all control messages (`MSG_CTRUNC`).
    pub lost: bool,
    /// The sender's credentials, if the socket has `SO_PASSCRED`. Process 0 is an invisible one.
    pub sender: Option<Credentials>,
}

/// Sends one packet, and duplicates of descriptors beside it, without waiting and without
/// `SIGPIPE`.
///
/// # Errors
/// Those of sendmsg(2); `ETOOMANYREFS` for more than [`FDS_MAX`] descriptors.
pub fn send(socket: impl AsFd, parts: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, parts, &mut ancillary, flags).map(drop)
}

/// Receives one packet without waiting: with all of its descriptors or, where there are more than
/// [`FDS_MAX`] or this process has no room for some, with none. Those left could not be told apart.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Arrived, Errno> {
    let mut arrived = receive_into(socket, bytes, &mut [0; WORDS])?;
    if arrived.lost {
        arrived.fds.clear();
    }
    Ok(arrived)
}

/// Receives one packet without waiting, with every descriptor beside it, however many. The kernel
/// closes those that have no room, in the calling thread: closing may wait for ever, so a thread
/// that must not wait needs room for all.
///
/// # Errors
/// Those of recvmsg(2).
pub(crate) fn receive_all(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Arrived, Errno> {
    receive_into(socket, bytes, &mut [0; words(KERNEL_FDS_MAX)])
}

fn receive_into(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    control: &mut [u64],
) -> Result<Arrived, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let RawPacket { len, control_len, lost } = receive_raw(socket, bytes, control, flags)?;
    let used = control_len.div_ceil(8).min(control.len());
    let ControlData { fds, sender } = parse(crate::message::bytes_of(&control[..used]));
    // SAFETY: the kernel has just installed these for us, and told nobody else.
    let fds = fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    Ok(Arrived { len, fds, lost, sender })
}

/// Returns true if the next packet has descriptors. They are neither received nor dropped.
pub(crate) fn has_beside(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    // Without room for control messages the kernel sets `MSG_CTRUNC` (recvmsg(2)) and installs no
    // descriptors.
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    Ok(receive_raw(socket, &mut [0], &mut [], flags)?.lost)
}

/// A packet as recvmsg(2) tells of it.
struct RawPacket {
    /// Bytes received.
    len: usize,
    /// Bytes of control messages.
    control_len: usize,
    /// There were more control messages than had room.
    lost: bool,
}

/// Calls recvmsg(2).
fn receive_raw(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    control: &mut [u64],
    flags: i32,
) -> Result<RawPacket, Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is an empty message header.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(control) as _;
    }
    // SAFETY: the header names one buffer for bytes and one for control messages, or none, both
    // ours, of the lengths it says, both untouched until the call returns.
    let got = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            c_long::from(socket.as_raw_fd()),
            &raw mut message,
            c_long::from(flags),
        )
    };
    Ok(RawPacket {
        len: usize::try_from(got).map_err(|_| last_error())?,
        control_len: message.msg_controllen as _,
        lost: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Returns the credentials of the peer that connected, or, for a client's socket, of the listener,
/// from the kernel's record of the socket (`SO_PEERCRED`, unix(7)). The process is 0 if it has no
/// number in this pid name space, as for a side-car in a container. (rustix, as of version 1.1,
/// treats that as a failure of the call.)
///
/// # Errors
/// The kernel's error if `socket` is not a Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` has `len` bytes, and any bytes are a valid value of it.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            c_long::from(socket.as_raw_fd()),
            c_long::from(libc::SOL_SOCKET),
            c_long::from(libc::SO_PEERCRED),
            &raw mut who,
            &raw mut len,
        )
    };
    match failed {
        0 => Ok(Credentials { pid: who.pid, uid: who.uid, gid: who.gid }),
        _ => Err(last_error()),
    }
}

/// Returns a pidfd (pidfd_open(2)) of the process that connected, even if its number has been
/// reused. Needs Linux 6.5.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const SO_PEERPIDFD: c_int = 77;
    let mut fd: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: `fd` has `len` bytes, and the kernel writes a descriptor that it has made for us.
    unsafe {
        let failed = libc::syscall(
            libc::SYS_getsockopt,
            c_long::from(socket.as_raw_fd()),
            c_long::from(libc::SOL_SOCKET),
            c_long::from(SO_PEERPIDFD),
            &raw mut fd,
            &raw mut len,
        );
        if failed == 0 { Ok(OwnedFd::from_raw_fd(fd)) } else { Err(last_error()) }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// The contents of a packet's control messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct ControlData {
    fds: Vec<RawFd>,
    sender: Option<Credentials>,
}

/// Reads a sequence of control messages (cmsg(3)).
fn parse(mut control: &[u8]) -> ControlData {
    let ControlData { mut fds, mut sender } = ControlData::default();
    while control.len() >= HEADER {
        let number = |bytes: &[u8], at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|word| word.try_into().ok())
                .map_or(0, c_int::from_ne_bytes)
        };
        let len =
            control[offset_of!(libc::cmsghdr, cmsg_len)..].first_chunk::<{ size_of::<usize>() }>();
        let len = len.map_or(0, |len| usize::from_ne_bytes(*len));
        let Some(payload) = control.get(HEADER..len) else { break };
        let level = number(control, offset_of!(libc::cmsghdr, cmsg_level));
        match (level, number(control, offset_of!(libc::cmsghdr, cmsg_type))) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                fds.extend(payload.chunks_exact(4).map(|fd| number(fd, 0)));
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if payload.len() >= 12 => {
                let [pid, uid, gid] = [0, 4, 8].map(|at| number(payload, at));
                let (uid, gid) = (uid.cast_unsigned(), gid.cast_unsigned());
                sender = Some(Credentials { pid, uid, gid });
            }
            _ => {}
        }
        control = control.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    ControlData { fds, sender }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: c_int, numbers: &[c_int]) -> Vec<u8> {
        let payload: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut bytes = (HEADER + payload.len()).to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn descriptors_and_a_sender_nobody_sees_are_told_apart() {
        let rights = part(libc::SCM_RIGHTS, &[7, 8, 9]);
        let who = part(libc::SCM_CREDENTIALS, &[0, 1000, -1]);
        for control in [[rights.clone(), who.clone()].concat(), [who, rights].concat()] {
            let ControlData { fds, sender } = parse(&control);
            assert_eq!(fds, [7, 8, 9]);
            assert_eq!(sender, Some(Credentials { pid: 0, uid: 1000, gid: u32::MAX }));
        }
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_left_out() {
        let mut control = part(libc::SCM_RIGHTS + 77, &[1]);
        control.extend(part(libc::SCM_CREDENTIALS, &[1, 2]));
        control.extend(part(libc::SCM_RIGHTS, &[5]));
        let whole = control.len();
        assert_eq!(parse(&control), ControlData { fds: vec![5], sender: None });
        control.truncate(whole - 8);
        assert_eq!(parse(&control), ControlData::default());
        assert_eq!(parse(&[0; 64]), ControlData::default());
        assert_eq!(parse(&[]), ControlData::default());
    }

    #[test]
    fn descriptors_come_whole_or_not_at_all() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        for count in [FDS_MAX, FDS_MAX + 1, 2 * FDS_MAX, 3 * FDS_MAX] {
            let fds = vec![ours.as_fd(); count];
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(&theirs, &[IoSlice::new(b"x")], &mut beside, SendFlags::empty()).unwrap();
            let arrived = receive(ours.as_fd(), &mut [0; 2]).unwrap();
            // The room for credentials is one for descriptors where there are none.
            assert!(arrived.lost == (count >= 2 * FDS_MAX) && arrived.len == 1, "{count}");
            assert_eq!(arrived.fds.len(), if arrived.lost { 0 } else { count });
        }
    }
}
