//! Back into the kernel: a session record becomes the state of the socket from which the session
//! was taken.
//!
//! The socket is disconnected in repair mode, which is silent and stops its timers. It is given the
//! record's numbers, and connected again, which is silent, too. Its file, and with it every `dup`
//! and epoll registration, is the same. For some ten microseconds a poll may see a hang-up. Not
//! here: repair mode's calls (`repair`), and bytes beyond gaps (`replay`). Read
//! `docs/understand/moves.md` for the order of steps.

use crate::export::{ExportError, KEEPALIVE, addresses};
use crate::raw;
use crate::repair::{Queue, Repair, TCP_REPAIR_OPTIONS, TCP_TIMESTAMP, Windows};
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrAny, sockopt};
use sojourn_options::OptionName;
use sojourn_proto::record::{Kind, SessionRecord, TcpOptions, TcpRecord, TcpState, TimestampUnit};
use sojourn_shm::sockopt::is_in_repair;
use sojourn_wire::tcp::SeqNum;
use std::net::SocketAddr;

/// Bytes given to the kernel at once: each piece becomes one buffer in its memory.
const PIECE: usize = 64 * 1024;
/// Options in `TCP_REPAIR_OPTIONS`.
const MSS: u32 = 2;
const WINDOW: u32 = 3;
const SACK_PERMITTED: u32 = 4;
const TIMESTAMPS: u32 = 8;

/// The reason why a record was not put into the socket. The socket is then closed, as far as the
/// peer is concerned: the caller resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The kernel can only be given established connections.
    #[error("the kernel takes back established connections only")]
    State,
    /// The record is of another session than the socket was, or the program has connected the
    /// socket elsewhere in the middle.
    #[error("the record is of another session")]
    OtherSession,
    /// The kernel refuses something.
    #[error("{0}: {1}")]
    System(&'static str, Errno),
}

fn step(name: &'static str) -> impl Fn(Errno) -> ImportError {
    move |error| ImportError::System(name, error)
}

/// Puts the record into the socket, except for bytes beyond gaps, which the kernel does not take
/// like that: see `replay`. `hear` is called when the socket has everything and before it says
/// anything: from then on its packets must reach it, or it misses the answer.
///
/// # Errors
/// [`ImportError`]; `State` and `OtherSession` before anything was changed.
pub fn import(
    record: &SessionRecord,
    socket: BorrowedFd<'_>,
    hear: impl FnOnce(),
) -> Result<(), ImportError> {
    let Kind::Tcp(tcp) = &record.kind else { return Err(ImportError::State) };
    if tcp.state != TcpState::Established {
        return Err(ImportError::State);
    }
    let SocketAddresses { local, remote } = socket_addresses(record, socket)?;
    let put = put(tcp, socket, &local, &remote, hear);
    if is_elsewhere(socket, &remote) {
        // In repair mode connect(2) needs no answer from the other side, and the program has the
        // socket as well: a connection that it has made meanwhile is none.
        let _ = raw::disconnect(socket);
        return Err(ImportError::OtherSession);
    }
    put
}

/// Goes on with a socket that has everything of the record except the bytes that had not been sent,
/// or the last of them: who began to put the session back has died. The session's packets reach the
/// socket, which may be used already, or may still be in repair mode.
///
/// # Errors
/// [`ImportError`].
pub fn finish(record: &SessionRecord, socket: BorrowedFd<'_>) -> Result<(), ImportError> {
    let Kind::Tcp(tcp) = &record.kind else { return Err(ImportError::State) };
    if let Err(error) = socket_addresses(record, socket) {
        // An error that waits in the socket tells the program how the connection has ended.
        return if has_error(socket) { Ok(()) } else { Err(error) };
    }
    let repair = Repair::begin(socket).map_err(step("TCP_REPAIR"))?;
    let end = repair.sequence(Queue::Send).map_err(step("TCP_QUEUE_SEQ"))?;
    repair.select(Queue::None).map_err(step("TCP_REPAIR_QUEUE"))?;
    let written = end.ahead_of(SeqNum(tcp.snd_una));
    let missing = usize::try_from(written).ok().and_then(|at| tcp.send_queue.get(at..));
    let missing = missing.unwrap_or_default();
    let room = Room::recorded(socket, &tcp.options);
    room.make(0, tcp.send_queue.len());
    begin_to_speak(tcp, socket, repair, missing)
}

/// Returns true if an error waits in the socket for its next call.
fn has_error(socket: BorrowedFd<'_>) -> bool {
    raw::polled(socket, PollFlags::empty()).contains(PollFlags::ERR)
}

/// The addresses of a socket in its own forms: an IPv4 session may be in an IPv6 socket.
struct SocketAddresses {
    local: SocketAddrAny,
    remote: SocketAddrAny,
}

/// Returns the addresses of the record's socket.
///
/// # Errors
/// [`ImportError`]: the socket is another session's, or none's.
fn socket_addresses(
    record: &SessionRecord,
    socket: BorrowedFd<'_>,
) -> Result<SocketAddresses, ImportError> {
    let expected_remote = record.remote.ok_or(ImportError::OtherSession)?;
    let found = match addresses(socket) {
        Ok(found) => found,
        // Who began to put the session back has disconnected the socket, and has died.
        Err(_) if is_in_repair(socket) => {
            let is_v6 = sockopt::socket_domain(socket) == Ok(AddressFamily::INET6);
            let form = |address| SocketAddrAny::from(if is_v6 { mapped(address) } else { address });
            return Ok(SocketAddresses {
                local: form(record.local),
                remote: form(expected_remote),
            });
        }
        Err(ExportError::System(name, error)) => return Err(ImportError::System(name, error)),
        Err(_) => return Err(ImportError::OtherSession),
    };
    if found.remote != expected_remote || found.local != record.local {
        return Err(ImportError::OtherSession);
    }
    let local = rustix::net::getsockname(socket).map_err(step("getsockname"))?;
    let remote = rustix::net::getpeername(socket).map_err(step("getpeername"))?;
    Ok(SocketAddresses { local, remote: remote.ok_or(ImportError::OtherSession)? })
}

/// Returns an IPv4 address as an IPv6 socket has it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) => address,
    }
}

/// Returns true if the socket is connected to another peer than before.
fn is_elsewhere(socket: BorrowedFd<'_>, remote: &SocketAddrAny) -> bool {
    matches!(rustix::net::getpeername(socket), Ok(Some(now)) if now != *remote)
}

fn put(
    tcp: &TcpRecord,
    socket: BorrowedFd<'_>,
    local: &SocketAddrAny,
    remote: &SocketAddrAny,
    hear: impl FnOnce(),
) -> Result<(), ImportError> {
    // Somebody has begun this, and has died.
    let is_begun = is_in_repair(socket);
    let room = if is_begun { Room::recorded(socket, &tcp.options) } else { Room::of(socket) };
    let repair = Repair::begin(socket).map_err(step("TCP_REPAIR"))?;
    rebuild(tcp, socket, &repair, local, remote)?;
    let (sent, unsent) = tcp.send_queue.split_at(tcp.sent());
    sync_segment_size(socket);
    room.make(tcp.receive_queue.len(), tcp.send_queue.len());
    fill(socket, &repair, Queue::Receive, &tcp.receive_queue)?;
    fill(socket, &repair, Queue::Send, sent)?;
    repair.select(Queue::None).map_err(step("TCP_REPAIR_QUEUE"))?;
    windows(tcp).set(socket).map_err(step("TCP_REPAIR_WINDOW"))?;
    hear();
    if is_elsewhere(socket, remote) {
        // The socket has been silent so far. The caller checks once more after the mode is left,
        // because the program may connect in between.
        let _ = raw::disconnect(socket);
        return Err(ImportError::OtherSession);
    }
    begin_to_speak(tcp, socket, repair, unsent)
}

/// Leaves repair mode, and gives the kernel the bytes that were not sent.
fn begin_to_speak(
    tcp: &TcpRecord,
    socket: BorrowedFd<'_>,
    repair: Repair<'_>,
    unsent: &[u8],
) -> Result<(), ImportError> {
    // A window probe acknowledges what the peer has sent, and makes the peer tell its state: it may
    // be waiting for a window, or may have closed meanwhile. Data would do the same, but Nagle's
    // algorithm or a closed window may keep it back, and the kernel has no timer for an
    // acknowledgement that the engine has left to it: the peer would repeat its segment.
    repair.end(true).map_err(step("TCP_REPAIR"))?;
    if tcp.options.keepalive {
        raw::set_number(socket, KEEPALIVE, 1).map_err(step("SO_KEEPALIVE"))?;
    }
    write_all(socket, unsent).map_err(step("send queue"))
}

/// Makes the kernel compute the segment size again. It has done so in connect(2), before it was
/// told the peer's size and the options. It repeats that (`tcp_sync_mss`) when a socket is told
/// that it has no IP options. A socket that has some is left alone.
fn sync_segment_size(socket: BorrowedFd<'_>) {
    const NONE: [OptionName; 2] = [
        OptionName::new(libc::IPPROTO_IP, libc::IP_OPTIONS),
        OptionName::new(libc::IPPROTO_IPV6, 57),
    ];
    for option in NONE {
        if raw::getsockopt(socket, option, &mut [0; 40]) == Ok(0) {
            let _ = raw::setsockopt(socket, option, &[]);
        }
    }
}

/// Enlarges the socket's buffers for the bytes that are put back: both queues may hold more than
/// the kernel would have taken by itself. Dropping this restores the sizes, and the marks whether
/// the program has set them.
pub(crate) struct Room<'s> {
    socket: BorrowedFd<'s>,
    sizes: [i32; 2],
    locks: Option<i32>,
}

const SO_BUF_LOCK: OptionName = OptionName::new(libc::SOL_SOCKET, 72);
/// The bits of its value.
const SNDBUF_LOCK: i32 = 1;
const RCVBUF_LOCK: i32 = 2;
const SIZES: [(i32, i32); 2] = [(libc::SO_RCVBUF, 33), (libc::SO_SNDBUF, 32)];

impl<'s> Room<'s> {
    /// Makes room for `bytes` more than the socket would take to send now, whatever it holds
    /// already.
    pub(crate) fn to_send(socket: BorrowedFd<'s>, bytes: usize) -> Self {
        let room = Self::of(socket);
        room.make(0, bytes + usize::try_from(room.sizes[1]).unwrap_or(0) / 2);
        room
    }

    /// Returns the room that a socket has.
    fn of(socket: BorrowedFd<'s>) -> Self {
        let size = |name| raw::number(socket, OptionName::new(libc::SOL_SOCKET, name)).unwrap_or(0);
        let locks = raw::number(socket, SO_BUF_LOCK).ok();
        Self { socket, sizes: SIZES.map(|(name, _)| size(name)), locks }
    }

    /// Returns the room that a socket had: who began to put its session back, and has died, has
    /// enlarged it.
    fn recorded(socket: BorrowedFd<'s>, options: &TcpOptions) -> Self {
        let TcpOptions { rcvbuf, sndbuf, rcvbuf_locked, sndbuf_locked, .. } = *options;
        let sizes = [rcvbuf, sndbuf].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
        let locks = i32::from(sndbuf_locked) * SNDBUF_LOCK + i32::from(rcvbuf_locked) * RCVBUF_LOCK;
        Self { socket, sizes, locks: Some(locks) }
    }

    /// Makes room. Where the kernel refuses, its own limits hold.
    fn make(&self, receive: usize, send: usize) {
        // The kernel counts its own memory, about twice the bytes, and doubles the value that it is
        // given (socket(7)).
        let wanted = [receive, send].map(|bytes| i32::try_from(bytes + PIECE).unwrap_or(i32::MAX));
        for ((_, force), (size, wanted)) in
            SIZES.into_iter().zip(self.sizes.into_iter().zip(wanted))
        {
            if wanted > size / 2 {
                let name = OptionName::new(libc::SOL_SOCKET, force);
                let _ = raw::set_number(self.socket, name, wanted);
            }
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        for ((name, force), size) in SIZES.into_iter().zip(self.sizes) {
            if raw::number(self.socket, OptionName::new(libc::SOL_SOCKET, name)) != Ok(size) {
                let _ = raw::set_number(
                    self.socket,
                    OptionName::new(libc::SOL_SOCKET, force),
                    size / 2,
                );
            }
        }
        if let Some(locks) = self.locks {
            let _ = raw::set_number(self.socket, SO_BUF_LOCK, locks);
        }
    }
}

/// Disconnects, sets the numbers, connects, and sets the options that the connection began with.
fn rebuild(
    tcp: &TcpRecord,
    socket: BorrowedFd<'_>,
    repair: &Repair<'_>,
    local: &SocketAddrAny,
    remote: &SocketAddrAny,
) -> Result<(), ImportError> {
    raw::disconnect(socket).map_err(step("disconnect"))?;
    // The disconnection leaves an error in the socket, which the program must not see.
    let _ = sockopt::socket_error(socket);
    match rustix::net::bind(socket, local) {
        // The socket has kept a port that the program itself has bound.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(ImportError::System("bind", error)),
    }
    // Filling the receive queue moves the kernel's number on to `rcv_nxt`.
    let rcv_start = tcp.rcv_nxt.wrapping_sub(tcp.receive_queue.len() as u32);
    repair.set_sequence(Queue::Receive, SeqNum(rcv_start)).map_err(step("TCP_QUEUE_SEQ"))?;
    repair.set_sequence(Queue::Send, SeqNum(tcp.snd_una)).map_err(step("TCP_QUEUE_SEQ"))?;
    rustix::net::connect(socket, remote).map_err(step("connect"))?;
    let mut options: Vec<u32> = vec![MSS, u32::from(tcp.peer_mss)];
    if tcp.window_scaling {
        options.extend([WINDOW, u32::from(tcp.snd_wscale) | u32::from(tcp.rcv_wscale) << 16]);
    }
    if tcp.sack {
        options.extend([SACK_PERMITTED, 0]);
    }
    if tcp.timestamps.is_some() {
        options.extend([TIMESTAMPS, 0]);
    }
    let bytes: Vec<u8> = options.into_iter().flat_map(u32::to_ne_bytes).collect();
    raw::setsockopt(socket, TCP_REPAIR_OPTIONS, &bytes).map_err(step("TCP_REPAIR_OPTIONS"))?;
    if let Some(timestamps) = tcp.timestamps {
        // The lowest bit tells the unit of the clock.
        let is_us = timestamps.unit == TimestampUnit::Microseconds;
        let value = timestamps.value & !1 | u32::from(is_us);
        raw::set_number(socket, TCP_TIMESTAMP, value.cast_signed())
            .map_err(step("TCP_TIMESTAMP"))?;
    }
    Ok(())
}

/// Fills a queue, in pieces that halve when there is no memory for one so large.
fn fill(
    socket: BorrowedFd<'_>,
    repair: &Repair<'_>,
    queue: Queue,
    bytes: &[u8],
) -> Result<(), ImportError> {
    repair.select(queue).map_err(step("TCP_REPAIR_QUEUE"))?;
    write_all(socket, bytes).map_err(step("queue"))
}

fn write_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    let mut piece = PIECE;
    while !bytes.is_empty() {
        let len = piece.min(bytes.len());
        match rustix::net::send(socket, &bytes[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(done) => bytes = &bytes[done..],
            Err(Errno::NOMEM) if piece > 1024 => piece /= 2,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adapts the record's windows so that the kernel takes them (`tcp_repair_set_window`): the largest
/// window is not smaller than the present one, the peer's window was told within ours, and ours was
/// told at a byte that has arrived. The right edge of our window stays, as the peer was promised
/// it.
fn windows(tcp: &TcpRecord) -> Windows {
    let is_after = |one: u32, other: u32| other.wrapping_sub(one).cast_signed() < 0;
    let rcv_nxt = tcp.rcv_nxt;
    let (rcv_wup, rcv_wnd) = match is_after(tcp.rcv_wup, rcv_nxt) {
        false => (tcp.rcv_wup, tcp.rcv_wnd),
        true => (rcv_nxt, tcp.rcv_wnd.saturating_add(tcp.rcv_wup.wrapping_sub(rcv_nxt))),
    };
    let is_far = is_after(tcp.snd_wl1, rcv_nxt.wrapping_add(rcv_wnd));
    Windows {
        snd_wl1: if is_far { rcv_nxt } else { tcp.snd_wl1 },
        snd_wnd: tcp.snd_wnd,
        max_window: tcp.max_window.max(tcp.snd_wnd),
        rcv_wnd,
        rcv_wup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel asks before it takes windows (`net/ipv4/tcp.c`).
    fn takes(windows: &Windows, rcv_nxt: u32) -> bool {
        let after = |one: u32, other: u32| other.wrapping_sub(one).cast_signed() < 0;
        windows.max_window >= windows.snd_wnd
            && !after(windows.snd_wl1, rcv_nxt.wrapping_add(windows.rcv_wnd))
            && !after(windows.rcv_wup, rcv_nxt)
    }

    fn record(rcv_nxt: u32) -> TcpRecord {
        TcpRecord {
            rcv_nxt,
            rcv_wup: rcv_nxt.wrapping_sub(10),
            rcv_wnd: 1000,
            snd_wl1: rcv_nxt.wrapping_add(900),
            snd_wnd: 500,
            max_window: 700,
            ..TcpRecord::default()
        }
    }

    #[test]
    fn windows_that_can_be_stay_as_they_are() {
        for rcv_nxt in [0, 5, 1 << 31, u32::MAX] {
            let tcp = record(rcv_nxt);
            let found = windows(&tcp);
            assert!(takes(&found, rcv_nxt));
            let same = (tcp.snd_wl1, tcp.snd_wnd, tcp.max_window, tcp.rcv_wnd, tcp.rcv_wup);
            let Windows { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = found;
            assert_eq!((snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup), same);
        }
    }

    #[test]
    fn windows_that_cannot_be_are_made_such_that_the_kernel_takes_them() {
        for rcv_nxt in [0, 5, 1 << 31, u32::MAX] {
            let wider = TcpRecord { max_window: 499, ..record(rcv_nxt) };
            let ahead = TcpRecord { snd_wl1: rcv_nxt.wrapping_add(1001), ..record(rcv_nxt) };
            let early = TcpRecord { rcv_wup: rcv_nxt.wrapping_add(3), ..record(rcv_nxt) };
            for tcp in [&wider, &ahead, &early] {
                assert!(takes(&windows(tcp), rcv_nxt), "{:?}", windows(tcp));
            }
            let found = windows(&early);
            let end = |wup: u32, wnd: u32| wup.wrapping_add(wnd);
            assert_eq!(end(found.rcv_wup, found.rcv_wnd), end(early.rcv_wup, early.rcv_wnd));
        }
    }
}
