//! The few kernel calls that the library makes on the program's descriptors.
//!
//! All are made directly, never through the C library, so none comes back to the preload shim.
//! Bytes go through here only while a session is on its way out or home.

use core::time::Duration;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, sockopt};
use sojourn_session::KindT;
use sojourn_stream::Leftover;

/// One descriptor of a poll; as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollFd {
    /// The number; negative ones are skipped.
    pub fd: i32,
    /// What is asked.
    pub events: i16,
    /// What is so.
    pub revents: i16,
}

impl PollFd {
    /// One that is skipped.
    pub const NONE: Self = Self { fd: -1, events: 0, revents: 0 };

    pub(crate) fn asked(self) -> u32 {
        u32::from(self.events as u16)
    }
}

/// What is open at `fd`.
///
/// # Errors
/// `EBADF` for numbers that cannot be descriptors.
pub(crate) fn at(fd: i32) -> Result<BorrowedFd<'static>, Errno> {
    sojourn_shm::descriptor::of_program(fd).ok_or(Errno::BADF)
}

/// Reads from a pipe without waiting.
pub(crate) fn read_pipe(fd: i32, bufs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let fd = at(fd)?;
    match rustix::io::preadv2(fd, bufs, u64::MAX, ReadWriteFlags::NOWAIT) {
        // Kernels whose pipes do not know the flag: only this thread reads here, so what a poll
        // promises is still there for the read.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let found = poll(fd, PollFlags::IN)?;
            if found.is_empty() { Err(Errno::AGAIN) } else { rustix::io::readv(fd, bufs) }
        }
        other => other,
    }
}

/// Sends straight from a ring, without waiting and without a signal; to a pipe [`PAGE`] bytes at
/// most. In one call, so that a reader finds none or all of them where the kernel has room.
pub(crate) fn send_from(fd: i32, kind: KindT, bytes: Leftover<'_>) -> Result<usize, Errno> {
    if kind == KindT::Pipe {
        return sojourn_shm::descriptor::write_from(pipe_with_room(fd)?, bytes);
    }
    sojourn_shm::descriptor::send_from(at(fd)?, bytes)
}

/// Writes to a pipe without waiting, [`PAGE`] bytes at most.
pub(crate) fn write_pipe(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::io::write(pipe_with_room(fd)?, bytes)
}

/// `PIPE_BUF`, pipe(7): writes up to this size are not mixed with others, nor cut. No manual says
/// so of Unix sockets, but a kernel that takes a message into one buffer does not cut it, and
/// programs log through them with several threads.
pub(crate) const PIPE_BUF: usize = 4096;
/// A pipe that polls writable has room for as many bytes.
pub(crate) const PAGE: usize = 4096;

fn pipe_with_room(fd: i32) -> Result<BorrowedFd<'static>, Errno> {
    let fd = at(fd)?;
    let found = poll(fd, PollFlags::OUT)?;
    if found.contains(PollFlags::OUT) {
        return Ok(fd);
    }
    Err(if found.is_empty() { Errno::AGAIN } else { Errno::PIPE })
}

/// What every system allows a program to ask for (twice Linux's own `net.core.wmem_max`).
const BUFFER_ALLOWED: usize = 2 * 212_992;

/// Makes the kernel's buffer larger, if that may be, so that `more` bytes fit beside what it has.
/// Of a socket only if nobody uses it any more (`is_last`): that its buffer no longer adapts itself
/// would be noticed.
pub(crate) fn make_room(fd: i32, kind: KindT, more: usize, is_last: bool) {
    let Ok(fd) = at(fd) else { return };
    if kind == KindT::Pipe {
        let capacity = rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(0);
        // As slots: what is there may have filled each of them in part.
        let _ = rustix::pipe::fcntl_setpipe_size(fd, (capacity + more).next_power_of_two());
    } else if is_last {
        let size = sockopt::socket_send_buffer_size(fd).unwrap_or(0);
        // Bytes take up to twice their number; the kernel doubles what it is told, and takes what
        // it allows. One that has grown by itself can be larger than that, and would become
        // smaller.
        if size < BUFFER_ALLOWED {
            let _ = sockopt::set_socket_send_buffer_size(fd, size / 2 + more);
        }
    }
}

/// Whether the kernel has an error for the next call to say. Looking does not take it away.
pub(crate) fn has_error(fd: i32) -> bool {
    says_unasked(fd, PollFlags::ERR)
}

/// Whether nobody has the other end any more, as far as the kernel knows.
pub(crate) fn has_hung_up(fd: i32) -> bool {
    says_unasked(fd, PollFlags::HUP)
}

fn says_unasked(fd: i32, what: PollFlags) -> bool {
    at(fd).and_then(|fd| poll(fd, PollFlags::empty())).is_ok_and(|found| found.contains(what))
}

/// What the kernel says of `fd` now.
pub(crate) fn poll(fd: BorrowedFd<'_>, wanted: PollFlags) -> Result<PollFlags, Errno> {
    wait(fd, wanted, Some(core::time::Duration::ZERO))
}

/// Waits in the kernel for `wanted`.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    wanted: PollFlags,
    limit: Option<core::time::Duration>,
) -> Result<PollFlags, Errno> {
    let limit = limit.and_then(|limit| limit.try_into().ok());
    let mut fds = [rustix::event::PollFd::new(&fd, wanted)];
    rustix::event::poll(&mut fds, limit.as_ref())?;
    Ok(fds[0].revents())
}

/// Whether everything sent has reached the peer's receive queue. A TCP segment is acknowledged when
/// it is there; the other kinds put bytes there before the call returns.
pub(crate) fn has_arrived(fd: i32, kind: KindT) -> bool {
    kind != KindT::Tcp || at(fd).is_ok_and(|fd| matches!(unsent(fd), Ok(0)))
}

/// Acknowledges what has come over a TCP connection, for which the kernel waits up to 40 ms: it
/// hopes for an answer that takes the acknowledgement along. What the program set (`TCP_QUICKACK`)
/// stays so.
pub(crate) fn acknowledge(fd: i32) {
    let Ok(fd) = at(fd) else { return };
    let is_interactive = sockopt::tcp_quickack(fd) == Ok(false);
    let _ = sockopt::set_tcp_quickack(fd, true);
    if is_interactive {
        let _ = sockopt::set_tcp_quickack(fd, false);
    }
}

/// `FIONREAD`: bytes that can be received.
pub(crate) fn input_queue(fd: i32) -> usize {
    let found = at(fd).and_then(rustix::io::ioctl_fionread);
    found.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

/// `SIOCOUTQ`.
fn unsent(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    sojourn_shm::descriptor::output_queue(fd)
}

/// Looks at one byte without taking it, or for what the kernel says instead. A pipe cannot be
/// peeked at: `Ok(1)` says that it has bytes.
pub(crate) fn peek(fd: i32, kind: KindT, byte: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    if kind != KindT::Pipe {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let mut beside = RecvAncillaryBuffer::default();
        return rustix::net::recvmsg(at(fd)?, byte, &mut beside, flags).map(|got| got.bytes);
    }
    let found = poll(at(fd)?, PollFlags::IN)?;
    if found.contains(PollFlags::IN) {
        Ok(1)
    } else if found.is_empty() {
        Err(Errno::AGAIN)
    } else {
        Ok(0)
    }
}

/// What to poll for to learn that nobody reads any more.
pub(crate) fn hang_up(kind: KindT) -> PollFlags {
    match kind {
        // A peer that only shuts down its sending side has gone home before: this is its end.
        KindT::Tcp | KindT::Unix => PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR,
        KindT::Pipe | KindT::Udp => PollFlags::ERR,
    }
}

/// `ppoll(2)`, of any number of descriptors.
pub(crate) fn poll_all(fds: &mut [PollFd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let mut asked = Vec::with_capacity(fds.len());
    for polled in fds.iter_mut() {
        polled.revents = 0;
        if let Ok(fd) = at(polled.fd) {
            let events = PollFlags::from_bits_retain(polled.events as u16);
            asked.push(rustix::event::PollFd::from_borrowed_fd(fd, events));
        }
    }
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    let found = rustix::event::poll(&mut asked, timeout.as_ref())?;
    for (polled, said) in fds.iter_mut().filter(|polled| polled.fd >= 0).zip(&asked) {
        polled.revents = said.revents().bits() as i16;
    }
    Ok(found)
}
