//! Out of the kernel: the session record of a socket, which stays as it is.
//!
//! # Theory of operation
//! The socket is not taken apart. At the moment of the move it has nothing that is not
//! acknowledged, so it has no timer that would send. From then on the packet filter keeps its
//! packets away, so it has nothing to answer. It goes on saying `ESTABLISHED`, with its peer's
//! name, to every question, and a poll of it shows no hang-up. On the way back `import` gives it
//! the numbers that have become true meanwhile.
//!
//! The bytes that the program has not read are copied into the record after the packets have been
//! turned away: by then no thread of the program reads in the kernel any more. They leave the
//! socket in a step of its own (`release`), once the record is where it cannot be lost: whatever
//! fails before that leaves the session in the kernel, whole. Not here: repair mode's calls
//! (`repair`). Read `docs/understand/moves.md` and the notes on each option in tcp(7).

use crate::raw::{self, SIOCINQ, SIOCOUTQ};
use crate::repair::{Queue, Repair, TCP_MAXSEG, TCP_TIMESTAMP, Windows};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny};
use sojourn_options::OptionName;
use sojourn_proto::record::{
    EcnRecord, Kind, SessionRecord, TcpCounters, TcpOptions, TcpRecord, TcpState, TcpTuning,
    TimestampUnit, TimestampsRecord,
};
use sojourn_proto::tcp::TcpInfo;
use sojourn_proto::time::Duration;
use sojourn_pump::{options, tcp_info};
use std::net::{IpAddr, SocketAddr};

/// `TCP_ESTABLISHED` (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
/// Room for bytes that arrive while the queue is read.
const PIECE: usize = 64 * 1024;
const SO_MEMINFO: OptionName = OptionName::new(libc::SOL_SOCKET, 55);

/// The reason why a session stays in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// Bytes are on their way; the caller may try again a moment later.
    #[error("bytes are on their way ({0}); try again later")]
    Busy(&'static str),
    /// The connection is not established, or is one that the engine does not take.
    #[error("the connection is not established, or has too large windows")]
    State,
    /// The kernel refuses something.
    #[error("{0}: {1}")]
    System(&'static str, Errno),
}

fn step(name: &'static str) -> impl Fn(Errno) -> ExportError {
    move |error| ExportError::System(name, error)
}

pub(crate) const KEEPALIVE: OptionName = OptionName::new(libc::SOL_SOCKET, libc::SO_KEEPALIVE);

/// Makes the record of an established socket with an empty send queue, with the bytes that the
/// program has not read. The session's packets must be turned away from the kernel already. The
/// socket stays as it is until [`release`].
///
/// # Errors
/// [`ExportError`].
pub fn export(socket: BorrowedFd<'_>, tuning: &TcpTuning) -> Result<SessionRecord, ExportError> {
    let Addresses { local, remote } = addresses(socket)?;
    let info = tcp_info::of(socket).map_err(step("TCP_INFO"))?;
    if info.state != ESTABLISHED {
        return Err(ExportError::State);
    }
    if raw::queue_len(socket, SIOCOUTQ).map_err(step("SIOCOUTQ"))? > 0 {
        return Err(ExportError::Busy("not acknowledged yet"));
    }
    let (numbers, unread) = loop {
        let numbers = Numbers::of(socket, &info)?;
        let unread = peek(socket)?;
        // A segment that slipped past the filter moves the number on, before or after the look at
        // the queue.
        if Numbers::received(socket)? == numbers.rcv_nxt {
            break (numbers, unread);
        }
    };
    let options = options::read(socket).map_err(step("options"))?;
    let mut record = record_of(&numbers, &info, options, tuning);
    record.receive_queue = unread;
    let ip = options::read_ip(socket, local);
    Ok(SessionRecord { local, remote: Some(remote), ip, kind: Kind::Tcp(record) })
}

/// Returns true if the socket has something that [`release`] takes out of it.
pub(crate) fn needs_release(record: &SessionRecord) -> bool {
    let Kind::Tcp(tcp) = &record.kind else { return false };
    tcp.options.keepalive || !tcp.receive_queue.is_empty()
}

/// Takes out of the socket what [`export`] has put into the record: the bytes that the program has
/// not read, and the kernel's keepalive probes. Returns true if the record has changed by that: the
/// kernel may tell the peer of the room that it has now (`tcp_cleanup_rbuf`), and bytes that
/// somebody has read since the export leave the record.
///
/// # Errors
/// The kernel's; the socket then has all its bytes.
pub fn release(socket: BorrowedFd<'_>, record: &mut SessionRecord) -> Result<bool, ExportError> {
    let Kind::Tcp(tcp) = &mut record.kind else { return Ok(false) };
    if tcp.options.keepalive {
        // The kernel would probe the peer, be deaf to its answers, and reset the connection.
        raw::set_number(socket, KEEPALIVE, 0).map_err(step("SO_KEEPALIVE"))?;
    }
    if tcp.receive_queue.is_empty() {
        return Ok(false);
    }
    let discarded = raw::discard(socket, tcp.receive_queue.len());
    // A read takes the oldest bytes, so the discarded ones are the last.
    tcp.receive_queue.drain(..tcp.receive_queue.len() - discarded);
    // From here on the record has what the socket has not: nothing fails any more.
    if let Ok(repair) = Repair::begin(socket) {
        if let Ok(Windows { rcv_wnd, rcv_wup, .. }) = Windows::of(socket) {
            (tcp.rcv_wnd, tcp.rcv_wup) = (rcv_wnd, rcv_wup);
        }
        drop(repair);
    }
    Ok(true)
}

/// The lead of the engine's timestamp clock over the kernel's. The engine's clock stands still
/// until it has the record, while the kernel's goes on, and the kernel may still send a delayed
/// acknowledgement (`TCP_DELACK_MAX`: 200 ms). A peer drops a segment with an older timestamp than
/// that (RFC 7323, 5: PAWS) until a retransmission time-out; it accepts every newer one.
const TIMESTAMP_MARGIN: Duration = Duration::from_secs(1);

/// The numbers that the kernel tells only in repair mode.
pub(crate) struct Numbers {
    snd_nxt: u32,
    rcv_nxt: u32,
    windows: Windows,
    timestamps: Option<TimestampsRecord>,
    peer_mss: u16,
}

impl Numbers {
    fn of(socket: BorrowedFd<'_>, info: &TcpInfo) -> Result<Self, ExportError> {
        let repair = Repair::begin(socket).map_err(step("TCP_REPAIR"))?;
        let snd_nxt = repair.sequence(Queue::Send).map_err(step("TCP_QUEUE_SEQ"))?.0;
        let rcv_nxt = repair.sequence(Queue::Receive).map_err(step("TCP_QUEUE_SEQ"))?.0;
        repair.select(Queue::None).map_err(step("TCP_REPAIR_QUEUE"))?;
        let windows = Windows::of(socket).map_err(step("TCP_REPAIR_WINDOW"))?;
        let timestamps = timestamps(socket, info)?;
        let peer_mss = raw::number(socket, TCP_MAXSEG).map_err(step("TCP_MAXSEG"))?;
        repair.end(false).map_err(step("TCP_REPAIR"))?;
        let peer_mss = u16::try_from(peer_mss).unwrap_or(u16::MAX);
        Ok(Self { snd_nxt, rcv_nxt, windows, timestamps, peer_mss })
    }

    /// Returns `rcv_nxt` alone.
    pub(crate) fn received(socket: BorrowedFd<'_>) -> Result<u32, ExportError> {
        let repair = Repair::begin(socket).map_err(step("TCP_REPAIR"))?;
        let rcv_nxt = repair.sequence(Queue::Receive).map_err(step("TCP_QUEUE_SEQ"))?.0;
        repair.select(Queue::None).map_err(step("TCP_REPAIR_QUEUE"))?;
        repair.end(false).map_err(step("TCP_REPAIR"))?;
        Ok(rcv_nxt)
    }
}

fn record_of(
    numbers: &Numbers,
    info: &TcpInfo,
    options: TcpOptions,
    tuning: &TcpTuning,
) -> TcpRecord {
    let Numbers { snd_nxt, rcv_nxt, windows, timestamps, peer_mss } = *numbers;
    let (snd_mss, threshold) = (info.snd_mss, info.snd_ssthresh);
    TcpRecord {
        state: TcpState::Established,
        closed: None,
        receive_shutdown: false,
        // The kernel does not tell if it owes one.
        ack_pending: true,
        // Nothing is under way: the send queue is empty.
        snd_una: snd_nxt,
        snd_nxt,
        snd_wnd: windows.snd_wnd,
        snd_wl1: windows.snd_wl1,
        snd_wl2: snd_nxt,
        max_window: windows.max_window,
        rcv_nxt,
        rcv_wnd: windows.rcv_wnd,
        rcv_wup: windows.rcv_wup,
        peer_mss,
        advertised_mss: u16::try_from(info.advmss).unwrap_or(u16::MAX),
        user_mss: 0,
        path_mtu: info.pmtu,
        window_scaling: info.options & tcp_info::WINDOW_SCALE != 0,
        snd_wscale: info.snd_wscale,
        rcv_wscale: info.rcv_wscale,
        sack: info.options & tcp_info::SACK != 0,
        timestamps,
        ecn: EcnRecord { negotiated: info.options & tcp_info::ECN != 0, ..EcnRecord::default() },
        srtt: us(info.rtt),
        rttvar: us(info.rttvar),
        min_rtt: us(info.min_rtt),
        cwnd: info.snd_cwnd.saturating_mul(snd_mss).max(1),
        // The kernel's "none" is the largest signed number.
        ssthresh: if threshold >= i32::MAX as u32 {
            u32::MAX
        } else {
            threshold.saturating_mul(snd_mss)
        },
        w_max: 0,
        reordering: info.reordering,
        backoff: 0,
        probes: 0,
        idle: Duration::from_millis(u64::from(info.last_ack_recv)),
        stalled: Duration::ZERO,
        options,
        tuning: *tuning,
        counters: counters(info),
        receive_queue: Vec::new(),
        out_of_order: Vec::new(),
        send_queue: Vec::new(),
    }
}

fn us(value: u32) -> Duration {
    Duration::from_micros(u64::from(value))
}

/// The addresses of both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// Returns both ends' addresses as they are on the wire: IPv4-mapped ones as IPv4.
pub(crate) fn addresses(socket: BorrowedFd<'_>) -> Result<Addresses, ExportError> {
    let canonical = |any: SocketAddrAny| {
        let address = SocketAddr::try_from(any).map_err(step("address"))?;
        Ok::<_, ExportError>(match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
            IpAddr::V6(_) => address,
        })
    };
    let local = rustix::net::getsockname(socket).map_err(step("getsockname"))?;
    let remote = rustix::net::getpeername(socket).map_err(|_| ExportError::State)?;
    let remote = remote.ok_or(ExportError::State)?;
    Ok(Addresses { local: canonical(local)?, remote: canonical(remote)? })
}

/// Returns true if the program has a filter on the socket: instructions, whose number the kernel
/// answers, or an eBPF program, which it does not show.
pub(crate) fn has_filter(socket: BorrowedFd<'_>) -> bool {
    sojourn_shm::sockopt::filter_len(socket) != Ok(0)
}

/// Copies the bytes that the program has not read; they stay in the socket.
pub(crate) fn peek(socket: BorrowedFd<'_>) -> Result<Vec<u8>, ExportError> {
    let waiting = raw::queue_len(socket, SIOCINQ).map_err(step("SIOCINQ"))?;
    if waiting == 0 {
        return Ok(Vec::new());
    }
    let mut unread = vec![0; waiting + PIECE];
    loop {
        match rustix::net::recv(socket, &mut unread, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((len, _)) => {
                unread.truncate(len);
                return Ok(unread);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Vec::new()),
            Err(error) => return Err(ExportError::System("recv", error)),
        }
    }
}

/// Returns true if the socket holds bytes beyond a gap, as far as that shows: there is nothing to
/// read, and memory is in use. An export would lose them, and the peer might take long to send them
/// again.
pub(crate) fn has_gap(socket: BorrowedFd<'_>) -> bool {
    raw::queue_len(socket, SIOCINQ) == Ok(0) && has_received(socket)
}

/// Returns true if what the socket has received takes memory, in order or beyond a gap.
pub(crate) fn has_received(socket: impl AsFd) -> bool {
    let mut words = [0; 4];
    // The first word is SK_MEMINFO_RMEM_ALLOC.
    raw::getsockopt(socket, SO_MEMINFO, &mut words).is_ok() && u32::from_ne_bytes(words) > 0
}

fn timestamps(
    socket: BorrowedFd<'_>,
    info: &TcpInfo,
) -> Result<Option<TimestampsRecord>, ExportError> {
    if info.options & tcp_info::TIMESTAMPS == 0 {
        return Ok(None);
    }
    let value = raw::number(socket, TCP_TIMESTAMP).map_err(step("TCP_TIMESTAMP"))?.cast_unsigned();
    let is_us = info.options & tcp_info::MICROSECONDS != 0;
    let (unit, margin) = if is_us {
        (TimestampUnit::Microseconds, TIMESTAMP_MARGIN.as_micros())
    } else {
        (TimestampUnit::Milliseconds, TIMESTAMP_MARGIN.as_millis())
    };
    // The kernel does not tell the peer's last value; the first segment will. The lowest bit of its
    // own tells the unit.
    Ok(Some(TimestampsRecord {
        unit,
        value: value.wrapping_add(margin as u32) & !1,
        recent: 0,
        recent_age: Duration::ZERO,
        recent_valid: false,
    }))
}

fn counters(info: &TcpInfo) -> TcpCounters {
    TcpCounters {
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        bytes_sent: info.bytes_sent,
        bytes_retrans: info.bytes_retrans,
        segs_out: info.segs_out.into(),
        segs_in: info.segs_in.into(),
        data_segs_in: info.data_segs_in.into(),
        data_segs_out: info.data_segs_out.into(),
        delivered: info.delivered.into(),
        delivered_ce: info.delivered_ce.into(),
        dsack_dups: info.dsack_dups.into(),
        reord_seen: info.reord_seen.into(),
        rcv_ooopack: info.rcv_ooopack.into(),
        total_retrans: info.total_retrans.into(),
        total_rto: info.total_rto.into(),
        total_rto_recoveries: info.total_rto_recoveries.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_says_nothing_newer_after_an_export_than_the_engine_will() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = tcp_info::of(near.as_fd()).unwrap();
        let exported = timestamps(near.as_fd(), &info).unwrap().expect("on by default").value;
        // Longer than an acknowledgement is delayed.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let later = raw::number(near.as_fd(), TCP_TIMESTAMP).unwrap().cast_unsigned();
        let lead = exported.wrapping_sub(later).cast_signed();
        assert!(lead > 0, "the peer would drop the engine's first segment: {lead}");
    }

    #[test]
    fn a_programs_own_filter_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!has_filter(socket.as_fd()));
        // Lets everything pass: return 0xffff.
        let filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0xffff };
        let program = [1u64.to_ne_bytes(), (&raw const filter as u64).to_ne_bytes()].concat();
        let option = OptionName::new(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        raw::setsockopt(&socket, option, &program).unwrap();
        assert!(has_filter(socket.as_fd()));
    }
}
