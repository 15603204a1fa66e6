//! The conversion of a session record to a connection. Not here: the reverse (`export`), and the
//! record ([`crate::record`]).

use super::acks::Acks;
use super::connection::{Connection, Limits, Receiving, Sending, Sizes};
use super::disposition::Tally;
use super::settings;
use super::timers::Timers;
use super::timestamps::Stamps;
use super::window::{ReceiveWindow, payload_room};
use crate::cc;
use crate::position::{self, Span};
use crate::reassembly::Assembler;
use crate::record::{ControllerKind, Kind, RecordError, SessionRecord, TcpRecord, TcpState};
use crate::recovery::{Config, Recovery, Start};
use crate::ring::Ring;
use crate::time::{Duration, Instant};
use core::fmt;

/// The reason why a record cannot become a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The record contradicts itself.
    Record(RecordError),
    /// The record is not a TCP session's.
    NotTcp,
    /// The record's windows need more memory than a connection may have (128 MiB).
    TooMuch,
}

/// The most that a record may have of received bytes, and of the window for more. With what an
/// embedder's rings hold beside it (16 MiB at most), a record that is made of it later is not too
/// large to be read.
const RECEIVED_MAX: u64 = 32 << 20;

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Record(error) => error.fmt(f),
            ImportError::TooMuch => f.write_str("the record's windows are too large"),
            ImportError::NotTcp => f.write_str("the record is not a TCP session's"),
        }
    }
}

impl core::error::Error for ImportError {}

impl Connection {
    /// Returns how many bytes the rings of an import take at most, for embedders whose allocations
    /// may fail; 0 for a record that is not a TCP session's.
    pub fn ring_bytes(record: &SessionRecord, limits: &Limits) -> usize {
        let Kind::Tcp(tcp) = &record.kind else { return 0 };
        let received = u64::from(tcp.rcv_wnd) + tcp.receive_queue.len() as u64;
        let receive = limits.receive_ring_max.max(received).next_power_of_two();
        let send = limits.send_ring_max.max(tcp.send_queue.len() as u64).next_power_of_two();
        (if limits.send_elsewhere == 0 { receive + send } else { receive }) as usize
    }

    /// Checks that an import takes the record, whatever the limits are.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn check_import(record: &SessionRecord) -> Result<(), ImportError> {
        record.check().map_err(ImportError::Record)?;
        let Kind::Tcp(tcp) = &record.kind else { return Err(ImportError::NotTcp) };
        if u64::from(tcp.rcv_wnd) + tcp.receive_queue.len() as u64 > RECEIVED_MAX {
            return Err(ImportError::TooMuch);
        }
        Ok(())
    }

    /// Takes over the session that `record` describes, and allocates all memory that it will use.
    ///
    /// Bytes that were sent and not acknowledged count as sent now. An owed acknowledgement is sent
    /// with the first output.
    ///
    /// # Errors
    /// [`ImportError`] if the record contradicts itself or is another protocol's. The record is not
    /// changed, so the caller can move the session to another home.
    pub fn import(
        record: &SessionRecord,
        limits: &Limits,
        now: Instant,
    ) -> Result<Connection, ImportError> {
        Self::check_import(record)?;
        let (Kind::Tcp(tcp), Some(remote)) = (&record.kind, record.remote) else {
            return Err(ImportError::NotTcp);
        };
        let stamps = tcp.timestamps.map(|stamps| Stamps::import(&stamps, now));
        let sizes = segment_sizes(tcp, record.local.is_ipv4(), stamps.is_some());
        let rcv = receiving(tcp, limits, now);
        let snd = sending(tcp, limits, rcv.nxt);
        let config = recovery_config(tcp, limits, &sizes, stamps.as_ref(), &snd);
        let recovery = Recovery::new(config, recovery_start(tcp, &snd), now);
        let mut connection = Connection {
            local: record.local,
            remote,
            ip: record.ip,
            state: tcp.state,
            closed: tcp.closed,
            exported: false,
            snd,
            rcv,
            recovery,
            acks: Acks::new(&tcp.options, &tcp.tuning, sizes.advertised_mss),
            timers: Timers::default(),
            stamps,
            window_scaling: tcp.window_scaling,
            sack: tcp.sack,
            ecn: tcp.ecn,
            sizes,
            options: tcp.options,
            tuning: tcp.tuning,
            limits: *limits,
            counters: tcp.counters.plausible(),
            tally: Tally::default(),
            reset_due: false,
            heard_at: now - tcp.idle,
            sent_at: None,
            may_lend: false,
        };
        connection.start_timers(tcp, now);
        if tcp.ack_pending {
            connection.acks.send_now();
        }
        Ok(connection)
    }
}

fn segment_sizes(tcp: &TcpRecord, is_ipv4: bool, has_timestamps: bool) -> Sizes {
    let mut sizes = Sizes {
        peer_mss: tcp.peer_mss,
        advertised_mss: tcp.advertised_mss.max(48),
        user_mss: tcp.user_mss,
        path_mtu: tcp.path_mtu,
        mss: 0,
    };
    sizes.mss = settings::mss(&sizes, is_ipv4, has_timestamps, &tcp.tuning);
    sizes
}

fn receiving(tcp: &TcpRecord, limits: &Limits, now: Instant) -> Receiving {
    let nxt = position::start(tcp.rcv_nxt);
    let peer_closed = tcp.state.peer_closed();
    let end = nxt - u64::from(peer_closed);
    let read = end - tcp.receive_queue.len() as u64;
    let window = ReceiveWindow::import(tcp, nxt, limits.receive_ring_max, now);
    let needed = (window.edge - read).max(window.capacity());
    let mut ring = Ring::new(needed as usize, read);
    ring.write(read, &tcp.receive_queue);
    let mut assembler = Assembler::new(limits.gaps_max);
    let room = Span::new(nxt, read + ring.capacity());
    for block in &tcp.out_of_order {
        let start = position::near(nxt, block.sequence);
        let span = Span::new(start, start + block.bytes.len() as u64);
        if room.covers(span) {
            ring.write(start, &block.bytes);
            assembler.insert(nxt, span);
        }
    }
    Receiving {
        read,
        nxt,
        fin: peer_closed.then_some(end),
        window,
        ring,
        lent: None,
        assembler,
        shutdown: tcp.receive_shutdown,
    }
}

fn sending(tcp: &TcpRecord, limits: &Limits, rcv_nxt: u64) -> Sending {
    let una = position::start(tcp.snd_una);
    let nxt = una + u64::from(tcp.snd_nxt.wrapping_sub(tcp.snd_una));
    // An acknowledged FIN has the position just before `una`, so the data ends one position
    // earlier.
    let fin_acknowledged = matches!(tcp.state, TcpState::FinWait2 | TcpState::TimeWait);
    let end = una + tcp.send_queue.len() as u64 - u64::from(fin_acknowledged);
    let options = &tcp.options;
    let base = payload_room(options.sndbuf).max(u64::from(tcp.peer_mss));
    let most =
        if options.sndbuf_locked { base } else { payload_room(tcp.tuning.wmem_max).max(base) };
    let capacity = most.min(limits.send_ring_max).max(tcp.send_queue.len() as u64);
    let elsewhere = limits.send_elsewhere;
    let ring = (elsewhere == 0).then(|| {
        let mut ring = Ring::new(capacity as usize, una);
        ring.write(una, &tcp.send_queue);
        ring
    });
    let capacity = ring.as_ref().map_or(elsewhere, Ring::capacity);
    Sending {
        una,
        nxt,
        end,
        fin: tcp.state.locally_closed() && tcp.state != TcpState::Closed,
        wnd: u64::from(tcp.snd_wnd),
        wl1: position::near(rcv_nxt, tcp.snd_wl1),
        wl2: position::near(una, tcp.snd_wl2).min(una),
        max_window: u64::from(tcp.max_window.max(tcp.snd_wnd)),
        scale: tcp.snd_wscale,
        limit: if ring.is_some() { base.min(capacity) } else { capacity },
        ring,
        capacity,
        small_end: una,
        more: false,
    }
}

fn recovery_config(
    tcp: &TcpRecord,
    limits: &Limits,
    sizes: &Sizes,
    stamps: Option<&Stamps>,
    snd: &Sending,
) -> Config {
    let (options, tuning) = (&tcp.options, &tcp.tuning);
    Config {
        mss: sizes.mss,
        sack: tcp.sack,
        timestamp_unit: stamps.map(Stamps::tick),
        controller: match options.controller {
            ControllerKind::Reno => cc::Kind::Reno,
            ControllerKind::Cubic => cc::Kind::Cubic,
        },
        pacing: tuning.pacing,
        pacing_rate_max: (options.max_pacing_rate != u64::MAX).then_some(options.max_pacing_rate),
        rto_min: tuning.rto_min,
        rto_max: tuning.rto_max,
        initial_window: 10 * u64::from(sizes.mss),
        window_max: snd.capacity,
        slow_start_after_idle: tuning.slow_start_after_idle,
        tail_loss_probe: tuning.early_retrans >= 3,
        frto: tuning.frto,
        scoreboard_entries: limits.scoreboard_entries,
    }
}

fn recovery_start(tcp: &TcpRecord, snd: &Sending) -> Start {
    let measured = |time: Duration| (!time.is_zero()).then_some(time);
    let ssthresh = if tcp.ssthresh == u32::MAX { u64::MAX } else { u64::from(tcp.ssthresh) };
    Start {
        una: snd.una,
        nxt: snd.nxt,
        cwnd: u64::from(tcp.cwnd),
        ssthresh,
        srtt: measured(tcp.srtt),
        rttvar: tcp.rttvar,
        min_rtt: measured(tcp.min_rtt),
        w_max: u64::from(tcp.w_max),
        reordering_seen: tcp.reordering > tcp.tuning.reordering,
        cwr_due: tcp.ecn.reduced,
    }
}
