//! The few kernel calls that the library makes on the program's descriptors.
//!
//! All are system calls made past the C library, so none comes back to the preload shim. Bytes go
//! through these functions only while a session moves out or goes home. Not here: data calls that
//! the kernel serves as the program made them (`io::from_kernel`).

use core::time::Duration;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, sockopt};
use sojourn_session::KindT;
use sojourn_shm::sockopt::{has_hidden_filter, is_in_repair};
use sojourn_stream::Leftover;

/// One descriptor of a `poll(2)`, laid out as `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollFd {
    /// The number; `poll(2)` skips negative ones.
    pub fd: i32,
    /// The events asked for.
    pub events: i16,
    /// The events found.
    pub revents: i16,
}

impl PollFd {
    /// An entry that `poll(2)` skips.
    pub const NONE: Self = Self { fd: -1, events: 0, revents: 0 };

    pub(crate) fn asked(self) -> u32 {
        u32::from(self.events as u16)
    }
}

/// Borrows the descriptor at the number `fd`, open or not.
///
/// # Errors
/// `EBADF` for numbers that cannot be descriptors.
pub(crate) fn at(fd: i32) -> Result<BorrowedFd<'static>, Errno> {
    sojourn_shm::descriptor::of_program(fd).ok_or(Errno::BADF)
}

/// Reads from a pipe without waiting, whatever `O_NONBLOCK` says.
pub(crate) fn read_pipe(fd: i32, bufs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let fd = at(fd)?;
    match rustix::io::preadv2(fd, bufs, u64::MAX, ReadWriteFlags::NOWAIT) {
        // The kernel's pipes do not know RWF_NOWAIT. Only this thread reads here, so the bytes that
        // a poll finds are still there for the read.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let found = poll(fd, PollFlags::IN)?;
            if found.is_empty() { Err(Errno::AGAIN) } else { rustix::io::readv(fd, bufs) }
        }
        other => other,
    }
}

/// Sends straight from a ring, without waiting; to a pipe [`PAGE`] bytes at most, with `SIGPIPE` if
/// nobody reads it (`Library::without_sigpipe`). One call sends all, so that a reader finds none or
/// all of the bytes where the kernel has room for them.
pub(crate) fn send_from(fd: i32, kind: KindT, bytes: Leftover<'_>) -> Result<usize, Errno> {
    if kind == KindT::Pipe {
        return sojourn_shm::descriptor::write_from(pipe_with_room(fd)?, bytes);
    }
    sojourn_shm::descriptor::send_from(at(fd)?, bytes)
}

/// Writes to a pipe without waiting, [`PAGE`] bytes at most, with `SIGPIPE` if nobody reads it.
pub(crate) fn write_pipe(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::io::write(pipe_with_room(fd)?, bytes)
}

/// `PIPE_BUF`, pipe(7): writes up to this size are neither cut nor mixed with others. No manual
/// promises that of Unix sockets, but the kernel puts a message that fits one buffer there as a
/// whole, and programs log through Unix sockets from several threads.
pub(crate) const PIPE_BUF: usize = 4096;
/// Room (bytes) that a pipe has at least when it polls writable.
pub(crate) const PAGE: usize = 4096;

fn pipe_with_room(fd: i32) -> Result<BorrowedFd<'static>, Errno> {
    let fd = at(fd)?;
    let found = poll(fd, PollFlags::OUT)?;
    // A pipe without readers has room, too.
    if found.contains(PollFlags::ERR) {
        return Err(Errno::PIPE);
    }
    if found.contains(PollFlags::OUT) { Ok(fd) } else { Err(Errno::AGAIN) }
}

/// Send buffer (bytes) that every system allows a program to ask for: twice Linux's default
/// `net.core.wmem_max`.
const BUFFER_ALLOWED: usize = 2 * 212_992;

/// Enlarges the kernel's buffer, if that is allowed, so that `more` bytes fit beside its content. A
/// socket's buffer is enlarged only if nobody uses the socket any more (`is_last`): setting
/// `SO_SNDBUF` ends the kernel's own adaptation of the size, which the program would notice.
pub(crate) fn make_room(fd: i32, kind: KindT, more: usize, is_last: bool) {
    let Ok(fd) = at(fd) else { return };
    if kind == KindT::Pipe {
        let capacity = rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(0);
        // A pipe holds slots of a page, and bytes already there may fill each slot only in part: so
        // all of the old capacity counts as taken.
        let _ = rustix::pipe::fcntl_setpipe_size(fd, (capacity + more).next_power_of_two());
    } else if is_last {
        let size = sockopt::socket_send_buffer_size(fd).unwrap_or(0);
        // The kernel doubles the value that it is given (socket(7)), because bytes take up to twice
        // their number, and caps it at wmem_max. A buffer that has grown by itself may be beyond
        // that cap, and would shrink.
        if size < BUFFER_ALLOWED {
            let _ = sockopt::set_socket_send_buffer_size(fd, size / 2 + more);
        }
    }
}

/// Returns true if the kernel has an error for the next call. The look does not clear it.
pub(crate) fn has_error(fd: i32) -> bool {
    says_unasked(fd, PollFlags::ERR)
}

/// Takes the error that the kernel has for the next call. Returns false if there was none.
pub(crate) fn take_error(fd: i32) -> bool {
    at(fd).and_then(sockopt::socket_error).is_ok_and(|error| error.is_err())
}

/// Returns true if the other end is closed, as far as the kernel knows.
pub(crate) fn has_hung_up(fd: i32) -> bool {
    says_unasked(fd, PollFlags::HUP)
}

/// Returns true if the other end of a socket sends no more, as far as the kernel knows.
pub(crate) fn has_ended(fd: i32) -> bool {
    at(fd).and_then(|fd| poll(fd, PollFlags::RDHUP)).is_ok_and(|found| !found.is_empty())
}

/// Returns true if the carrier has the session of a TCP socket, or is putting it back. While it is
/// away the socket has a filter of the carrier's, an eBPF program, which the kernel does not show
/// (`EACCES`). At last the socket is in repair mode, in which the kernel refuses receives and
/// keeps what is sent.
pub(crate) fn is_with_carrier(fd: i32) -> bool {
    let Ok(socket) = at(fd) else { return false };
    sockopt::socket_protocol(socket) == Ok(Some(rustix::net::ipproto::TCP))
        && (has_hidden_filter(socket) || is_in_repair(socket))
}

/// Returns true if a socket has a byte that was sent out of band.
pub(crate) fn has_urgent(fd: i32) -> bool {
    at(fd).and_then(|fd| poll(fd, PollFlags::PRI)).is_ok_and(|found| found.contains(PollFlags::PRI))
}

fn says_unasked(fd: i32, what: PollFlags) -> bool {
    at(fd).and_then(|fd| poll(fd, PollFlags::empty())).is_ok_and(|found| found.contains(what))
}

/// Tells which of `wanted` hold for `fd` now.
pub(crate) fn poll(fd: BorrowedFd<'_>, wanted: PollFlags) -> Result<PollFlags, Errno> {
    wait(fd, wanted, Some(core::time::Duration::ZERO))
}

/// Waits in the kernel until one of `wanted` holds, or until `limit` has passed.
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

/// Returns true if all bytes sent have reached the peer's receive queue. A TCP segment is
/// acknowledged when it is there (`SIOCOUTQ`); the other kinds put bytes there before the call
/// returns.
pub(crate) fn has_arrived(fd: i32, kind: KindT) -> bool {
    kind != KindT::Tcp || at(fd).is_ok_and(|fd| matches!(unsent(fd), Ok(0)))
}

/// Makes the kernel acknowledge at once what has come over a TCP connection. Otherwise it delays
/// the acknowledgement by up to 40 ms, for an answer that takes it along. The program's setting of
/// `TCP_QUICKACK` is restored.
pub(crate) fn acknowledge(fd: i32) {
    let Ok(fd) = at(fd) else { return };
    let is_interactive = sockopt::tcp_quickack(fd) == Ok(false);
    let _ = sockopt::set_tcp_quickack(fd, true);
    if is_interactive {
        let _ = sockopt::set_tcp_quickack(fd, false);
    }
}

/// Counts the bytes that can be received (`FIONREAD`).
pub(crate) fn input_queue(fd: i32) -> usize {
    let found = at(fd).and_then(rustix::io::ioctl_fionread);
    found.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

/// Counts the bytes that the peer has not acknowledged (`SIOCOUTQ`).
pub(crate) fn unsent(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    sojourn_shm::descriptor::output_queue(fd)
}

/// Looks at one byte without taking it, and returns what a receive would: `Ok(0)` is the end of
/// file. A pipe cannot be peeked at: for it `Ok(1)` only says that it has bytes.
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

/// Returns the poll events by which the kernel reports that nobody reads any more.
pub(crate) fn hang_up(kind: KindT) -> PollFlags {
    match kind {
        // A peer that shuts down only its sending side has gone home before it did: while the
        // session is away RDHUP is the peer's end.
        KindT::Tcp | KindT::Unix => PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR,
        KindT::Pipe | KindT::Udp => PollFlags::ERR,
    }
}

/// Calls `ppoll(2)` with any number of descriptors.
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
