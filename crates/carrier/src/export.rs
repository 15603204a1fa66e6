//! Out of the kernel: what a session record says of a socket that stays as it is.
//!
//! # Theory of operation
//! The socket is not taken apart. At the moment of the move it has nothing that is not
//! acknowledged, so it has no timer that would send; from then on the packet filter keeps its
//! packets away, so it has nothing to answer. It goes on saying `ESTABLISHED`, with its peer's
//! name, to everybody who asks, and nobody who polls it sees a hang-up. On the way back `import`
//! gives it the numbers that have become true meanwhile.
//!
//! What the program has not read is read here, after the packets have been turned away: by then
//! nobody of the program reads in the kernel any more. Read `docs/understand/moves.md` and the
//! notes on each option in tcp(7).

use crate::raw::{self, SIOCINQ, SIOCOUTQ};
use crate::repair::{Queue, Repair, TCP_INFO, TCP_MAXSEG, TCP_TIMESTAMP, Windows};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny};
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

/// Makes the record of an established socket with an empty send queue. Its packets must be turned
/// away from the kernel already. Bytes that the program has not read are in the record, and no
/// longer in the socket; it sends no keepalive probes any more.
///
/// # Errors
/// [`ExportError`]; the socket is then as it was, but for bytes that were read, which `unread` has.
pub fn export(
    socket: BorrowedFd<'_>,
    tuning: &TcpTuning,
    unread: &mut Vec<u8>,
) -> Result<SessionRecord, ExportError> {
    let (local, remote) = addresses(socket)?;
    let info = info_of(socket).map_err(step("TCP_INFO"))?;
    if info.state != ESTABLISHED {
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
        // What slipped past the filter while it was being put up has moved the number on, before or
        // after we looked at it.
        let before = unread.len();
        drain(socket, unread)?;
        if unread.len() == before {
            break numbers;
        }
    };
    let options = options::read(socket).map_err(step("options"))?;
    let record = record_of(&numbers, &info, options, tuning);
    let ip = options::read_ip(socket, local);
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
    fn of(socket: BorrowedFd<'_>, info: &TcpInfo) -> Result<Self, ExportError> {
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

fn info_of(socket: BorrowedFd<'_>) -> Result<TcpInfo, Errno> {
    let mut bytes = [0; tcp_info::LEN];
    raw::getsockopt(socket, TCP_INFO, &mut bytes)?;
    Ok(tcp_info::read(&bytes))
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

/// Whether the socket holds bytes beyond a gap, as far as can be told: there is nothing to read,
/// and memory is in use. They would be lost by an export, and the peer might take long to send them
/// again.
pub(crate) fn has_gap(socket: BorrowedFd<'_>) -> bool {
    let mut words = [0; 4];
    // The first of them is SK_MEMINFO_RMEM_ALLOC.
    raw::queue_len(socket, SIOCINQ) == Ok(0)
        && raw::getsockopt(socket, SO_MEMINFO, &mut words).is_ok()
        && u32::from_ne_bytes(words) > 0
}

/// What the socket has received since it was exported: a packet had passed the filter before that,
/// and came to the socket after. The peer will not send it again, as the kernel has acknowledged
/// it.
pub(crate) fn slipped(socket: impl AsFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = drain(socket.as_fd(), &mut bytes);
    bytes
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
