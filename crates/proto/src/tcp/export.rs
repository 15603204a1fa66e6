//! The conversion of a connection to a session record. Not here: the reverse (`import`).

use super::connection::Connection;
use crate::position::Span;
use crate::record::{EcnRecord, Kind, OutOfOrder, SessionRecord, TcpRecord};
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

impl Connection {
    /// Returns the session's record for its next home. The connection accepts and sends no more
    /// segments from then on.
    ///
    /// Returns `None` if the record was taken before, because a session has one home. Allocates the
    /// queues' copies; it is not on the data path.
    pub fn export(&mut self, now: Instant) -> Option<SessionRecord> {
        if self.exported {
            return None;
        }
        let record = self.snapshot(now);
        self.exported = true;
        self.timers.clear();
        Some(record)
    }

    /// Returns a record without queues that has only the fields that change with each segment:
    /// sequence numbers, windows, timestamps. Together with an earlier record and the bytes, such a
    /// record gives the connection's state. Does not allocate.
    pub fn position(&self, now: Instant) -> TcpRecord {
        let mut tcp = self.sequence_numbers();
        tcp.timestamps = self.stamps.map(|stamps| stamps.export(now));
        tcp
    }

    /// Returns the record that [`Connection::export`] would return, while the session stays here.
    pub fn snapshot(&self, now: Instant) -> SessionRecord {
        let mut tcp = self.sequence_numbers();
        self.describe(&mut tcp, now);
        tcp.receive_queue = self.rcv.ring.slices(self.rcv.readable()).concat();
        tcp.send_queue = self.unacknowledged().concat();
        tcp.out_of_order = self.out_of_order();
        SessionRecord {
            local: self.local,
            remote: Some(self.remote),
            ip: self.ip,
            kind: Kind::Tcp(tcp),
        }
    }

    fn sequence_numbers(&self) -> TcpRecord {
        let (snd, rcv) = (&self.snd, &self.rcv);
        TcpRecord {
            state: self.state,
            closed: self.closed,
            receive_shutdown: rcv.shutdown,
            ack_pending: self.acks.is_scheduled(),
            snd_una: snd.una as u32,
            snd_nxt: snd.nxt as u32,
            snd_wnd: window_field(snd.wnd),
            snd_wl1: snd.wl1 as u32,
            snd_wl2: snd.wl2 as u32,
            max_window: window_field(snd.max_window),
            rcv_nxt: rcv.nxt as u32,
            rcv_wnd: window_field(rcv.window.wnd),
            rcv_wup: rcv.window.wup as u32,
            ..TcpRecord::default()
        }
    }

    fn describe(&self, tcp: &mut TcpRecord, now: Instant) {
        let (recovery, rtt) = (&self.recovery, self.recovery.rtt());
        tcp.peer_mss = self.sizes.peer_mss;
        tcp.advertised_mss = self.sizes.advertised_mss;
        tcp.user_mss = self.sizes.user_mss;
        tcp.path_mtu = self.sizes.path_mtu;
        tcp.window_scaling = self.window_scaling;
        tcp.snd_wscale = self.snd.scale;
        tcp.rcv_wscale = self.rcv.window.scale;
        tcp.sack = self.sack;
        tcp.timestamps = self.stamps.map(|stamps| stamps.export(now));
        tcp.ecn = EcnRecord { reduced: self.owes_cwr(), ..self.ecn };
        tcp.srtt = rtt.srtt().unwrap_or(Duration::ZERO);
        tcp.rttvar = rtt.rttvar();
        tcp.min_rtt = rtt.min().unwrap_or(Duration::ZERO);
        tcp.cwnd = u32::try_from(recovery.cwnd()).unwrap_or(u32::MAX).max(1);
        tcp.ssthresh = u32::try_from(recovery.ssthresh()).unwrap_or(u32::MAX);
        tcp.w_max = u32::try_from(recovery.w_max()).unwrap_or(u32::MAX);
        let overtaken = u32::from(recovery.statistics().reordering_seen);
        tcp.reordering = self.tuning.reordering.saturating_add(overtaken);
        tcp.backoff = u8::try_from(rtt.backoff()).unwrap_or(u8::MAX);
        tcp.probes = self.timers.probes;
        tcp.idle = now.since(self.heard_at);
        tcp.stalled = self.stalled_since().map_or(Duration::ZERO, |since| now.since(since));
        tcp.options = self.options;
        tcp.tuning = self.tuning;
        tcp.counters = self.totals();
    }

    /// Returns the bytes beyond gaps. A FIN beyond a gap is left out: the peer sends it again.
    fn out_of_order(&self) -> Vec<OutOfOrder> {
        let item = |span: Span| OutOfOrder {
            sequence: span.start as u32,
            bytes: self.rcv.ring.slices(span).concat(),
        };
        self.rcv.assembler.spans().map(item).collect()
    }
}

/// Returns a window as a field of a record.
fn window_field(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
