//! Out of the kernel: what a session record says of a socket that stays as it is.
//!
//! # Theory of operation
//! The socket is not taken apart. At the moment of the move it has nothing that is not acknowledged, so it has no timer
//! that would send; from then on the packet filter keeps its packets away, so it has nothing to answer. It goes
//! on saying `ESTABLISHED`, with its peer's name, to everybody who asks, and nobody who polls it sees a hang-up. On the
//! way back `import` gives it the numbers that have become true meanwhile.
//!
//! What the program has not read is read here, after the packets have been turned away: by then nobody of the
//! program reads in the kernel any more. Read `docs/moves.md` and the notes on each option in tcp(7).

use crate::raw::{self, SIOCINQ, SIOCOUTQ};
use crate::repair::{Info, Queue, Repair, TCP_MAXSEG, TCP_TIMESTAMP, Windows};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, sockopt};
use sojourn_proto::record::{
    EcnRecord, IpOptions, Kind, SessionRecord, TcpCounters, TcpOptions, TcpRecord, TcpState,
    TcpTuning, TimestampUnit, TimestampsRecord,
};
use sojourn_proto::time::Duration;
use std::net::{IpAddr, SocketAddr};

/// `TCP_ESTABLISHED` (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
/// Bytes read at once.
const PIECE: usize = 64 * 1024;
const SO_MEMINFO: (i32, i32) = (libc::SOL_SOCKET, 55);

/// Why a session stays in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// Bytes are on their way: it may be tried again a moment later.
    #[error("bytes are on their way ({0}); try again later")]
    Busy(&'static str),
    /// It is not established.
    #[error("the connection is not established")]
    State,
    /// The kernel will not say or do something.
    #[error("{0}: {1}")]
    System(&'static str, Errno),
}

fn step(name: &'static str) -> impl Fn(Errno) -> ExportError {
    move |error| ExportError::System(name, error)
}

pub(crate) const KEEPALIVE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);

/// Makes the record of an established socket with an empty send queue. Its packets must be turned away from the kernel
/// already. Bytes that the program has not read are in the record, and no longer in the socket; it sends no keepalive probes any more.
///
/// # Errors
/// [`ExportError`]; the socket is then as it was, but for bytes that were read, which `unread` has.
pub fn export(
    socket: BorrowedFd<'_>,
    tuning: &TcpTuning,
    unread: &mut Vec<u8>,
) -> Result<SessionRecord, ExportError> {
    let (local, remote) = addresses(socket)?;
    let info = Info::of(socket).map_err(step("TCP_INFO"))?;
    if info.state() != ESTABLISHED {
        return Err(ExportError::State);
    }
    if raw::queue_len(socket, SIOCOUTQ).map_err(step("SIOCOUTQ"))? > 0 {
        return Err(ExportError::Busy("not acknowledged yet"));
    }
    // What fails, fails before anything is taken out.
    Numbers::of(socket, &info)?;
    drain(socket, unread)?;
    let numbers = loop {
        let numbers = Numbers::of(socket, &info)?;
        // What slipped past the filter while it was being put up has moved the number on, before or after we looked at it.
        let before = unread.len();
        drain(socket, unread)?;
        if unread.len() == before {
            break numbers;
        }
    };
    let record = record_of(&numbers, &info, options(socket)?, tuning);
    let ip = ip_options(socket, local);
    if record.options.keepalive {
        // The kernel would ask the peer, be deaf for its answers, and reset the connection.
        raw::set_number(socket, KEEPALIVE, 0).map_err(step("SO_KEEPALIVE"))?;
    }
    Ok(SessionRecord { local, remote: Some(remote), ip, kind: Kind::Tcp(record) })
}

/// What is only told in repair mode.
struct Numbers {
    snd_nxt: u32,
    rcv_nxt: u32,
    windows: Windows,
    timestamps: Option<TimestampsRecord>,
    peer_mss: u16,
}

impl Numbers {
    fn of(socket: BorrowedFd<'_>, info: &Info) -> Result<Self, ExportError> {
        let repair = Repair::begin(socket).map_err(step("TCP_REPAIR"))?;
        let snd_nxt = repair.sequence(Queue::Send).map_err(step("TCP_QUEUE_SEQ"))?;
        let rcv_nxt = repair.sequence(Queue::Receive).map_err(step("TCP_QUEUE_SEQ"))?;
        repair.select(Queue::None).map_err(step("TCP_REPAIR_QUEUE"))?;
        let windows = Windows::of(socket).map_err(step("TCP_REPAIR_WINDOW"))?;
        let timestamps = timestamps(socket, info)?;
        let peer_mss = raw::number(socket, TCP_MAXSEG).map_err(step("TCP_MAXSEG"))?;
        repair.end(false).map_err(step("TCP_REPAIR"))?;
        let peer_mss = u16::try_from(peer_mss).unwrap_or(u16::MAX);
        Ok(Self { snd_nxt, rcv_nxt, windows, timestamps, peer_mss })
    }
}

/// The offsets are those of `struct tcp_info`.
fn record_of(numbers: &Numbers, info: &Info, options: TcpOptions, tuning: &TcpTuning) -> TcpRecord {
    let Numbers { snd_nxt, rcv_nxt, windows, timestamps, peer_mss } = *numbers;
    let snd_mss = info.word(16);
    let threshold = info.word(76);
    TcpRecord {
        state: TcpState::Established,
        closed: None,
        receive_shutdown: false,
        ack_pending: true,
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
        advertised_mss: u16::try_from(info.word(84)).unwrap_or(u16::MAX),
        user_mss: 0,
        path_mtu: info.word(60),
        window_scaling: info.options() & Info::WSCALE != 0,
        snd_wscale: info.scales().0,
        rcv_wscale: info.scales().1,
        sack: info.options() & Info::SACK != 0,
        timestamps,
        ecn: EcnRecord { negotiated: info.options() & Info::ECN != 0, ..EcnRecord::default() },
        srtt: us(info.word(68)),
        rttvar: us(info.word(72)),
        min_rtt: us(info.word(148)),
        cwnd: info.word(80).saturating_mul(snd_mss).max(1),
        // The kernel's "none" is the largest signed number.
        ssthresh: if threshold >= i32::MAX as u32 {
            u32::MAX
        } else {
            threshold.saturating_mul(snd_mss)
        },
        w_max: 0,
        reordering: info.word(88),
        backoff: 0,
        probes: 0,
        idle: Duration::from_millis(u64::from(info.word(56))),
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

/// Both ends; an IPv4 address inside an IPv6 one as what goes over the wire.
pub(crate) fn addresses(socket: BorrowedFd<'_>) -> Result<(SocketAddr, SocketAddr), ExportError> {
    let canonical = |any: SocketAddrAny| {
        let address = SocketAddr::try_from(any).map_err(step("address"))?;
        Ok::<_, ExportError>(match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
            IpAddr::V6(_) => address,
        })
    };
    let local = rustix::net::getsockname(socket).map_err(step("getsockname"))?;
    let remote = rustix::net::getpeername(socket).map_err(|_| ExportError::State)?;
    Ok((canonical(local)?, canonical(remote.ok_or(ExportError::State)?)?))
}

/// Takes what the program has not read.
fn drain(socket: BorrowedFd<'_>, unread: &mut Vec<u8>) -> Result<(), ExportError> {
    while raw::queue_len(socket, SIOCINQ).map_err(step("SIOCINQ"))? > 0 {
        let end = unread.len();
        unread.resize(end + PIECE, 0);
        let got = rustix::net::recv(socket, &mut unread[end..], RecvFlags::DONTWAIT);
        unread.truncate(end + got.map_or(0, |(len, _)| len));
        match got {
            Ok((0, _)) | Err(Errno::AGAIN) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ExportError::System("recv", error)),
        }
    }
    Ok(())
}

/// Whether the socket holds bytes beyond a gap, as far as can be told: there is nothing to read, and memory is in use.
/// They would be lost by an export, and the peer might take long to send them again.
pub(crate) fn has_gap(socket: BorrowedFd<'_>) -> bool {
    let mut words = [0; 4];
    // The first of them is SK_MEMINFO_RMEM_ALLOC.
    raw::queue_len(socket, SIOCINQ) == Ok(0)
        && raw::getsockopt(socket, SO_MEMINFO, &mut words).is_ok()
        && u32::from_ne_bytes(words) > 0
}

/// What the socket has received since it was exported: a packet had passed the filter before that, and came to the socket after. The
/// peer will not send it again, as the kernel has acknowledged it.
pub(crate) fn slipped(socket: impl AsFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = drain(socket.as_fd(), &mut bytes);
    bytes
}

fn timestamps(
    socket: BorrowedFd<'_>,
    info: &Info,
) -> Result<Option<TimestampsRecord>, ExportError> {
    if info.options() & Info::TIMESTAMPS == 0 {
        return Ok(None);
    }
    let value = raw::number(socket, TCP_TIMESTAMP).map_err(step("TCP_TIMESTAMP"))?.cast_unsigned();
    let is_us = info.options() & Info::USEC_TS != 0;
    let unit = if is_us { TimestampUnit::Microseconds } else { TimestampUnit::Milliseconds };
    // What the peer said last the kernel does not tell; the first segment that comes will.
    Ok(Some(TimestampsRecord {
        unit,
        value: value & !1,
        recent: 0,
        recent_age: Duration::ZERO,
        recent_valid: false,
    }))
}

fn options(socket: BorrowedFd<'_>) -> Result<TcpOptions, ExportError> {
    let tcp = |name| raw::number(socket, (libc::IPPROTO_TCP, name)).map_err(step("TCP option"));
    let level = |name| raw::number(socket, (libc::SOL_SOCKET, name)).map_err(step("SO option"));
    let count = |value: i32| u64::try_from(value).unwrap_or(0);
    let mut congestion = [0; 16];
    raw::getsockopt(socket, (libc::IPPROTO_TCP, libc::TCP_CONGESTION), &mut congestion)
        .map_err(step("TCP_CONGESTION"))?;
    Ok(TcpOptions {
        nodelay: tcp(libc::TCP_NODELAY)? != 0,
        cork: tcp(libc::TCP_CORK)? != 0,
        quickack: tcp(libc::TCP_QUICKACK)? != 0,
        keepalive: level(libc::SO_KEEPALIVE)? != 0,
        keepalive_idle: Duration::from_secs(count(tcp(libc::TCP_KEEPIDLE)?)),
        keepalive_interval: Duration::from_secs(count(tcp(libc::TCP_KEEPINTVL)?)),
        keepalive_count: u8::try_from(tcp(libc::TCP_KEEPCNT)?).unwrap_or(u8::MAX),
        user_timeout: Duration::from_millis(count(tcp(libc::TCP_USER_TIMEOUT)?)),
        sndbuf: level(libc::SO_SNDBUF)?.cast_unsigned(),
        rcvbuf: level(libc::SO_RCVBUF)?.cast_unsigned(),
        congestion,
        ..TcpOptions::default()
    })
}

pub(crate) fn ip_options(socket: BorrowedFd<'_>, local: SocketAddr) -> IpOptions {
    let mut options = IpOptions::default();
    let (class, ttl) = if local.is_ipv4() {
        (sockopt::ip_tos(socket).ok(), sockopt::ip_ttl(socket).ok())
    } else {
        let hops = sockopt::ipv6_unicast_hops(socket).ok().map(u32::from);
        (sockopt::ipv6_tclass(socket).ok().and_then(|class| u8::try_from(class).ok()), hops)
    };
    options.traffic_class = class.unwrap_or(0);
    options.hop_limit =
        ttl.and_then(|ttl| u8::try_from(ttl).ok()).filter(|ttl| *ttl > 0).unwrap_or(64);
    options
}

fn counters(info: &Info) -> TcpCounters {
    let word = |at| u64::from(info.word(at));
    TcpCounters {
        bytes_acked: info.long(120),
        bytes_received: info.long(128),
        segs_out: word(136),
        segs_in: word(140),
        data_segs_in: word(152),
        data_segs_out: word(156),
        delivered: word(192),
        delivered_ce: word(196),
        bytes_sent: info.long(200),
        bytes_retrans: info.long(208),
        dsack_dups: word(216),
        reord_seen: word(220),
        rcv_ooopack: word(224),
        total_retrans: word(100),
        ..TcpCounters::default()
    }
}
