//! What can change while a connection runs: the program's options, and the path.
//!
//! Each setter is the socket option that it names (`tcp(7)`, `socket(7)`); what the kernel's socket
//! was told as well is the embedding's concern. After each, ask [`Connection::poll_transmit`].

use super::connection::{Connection, Sizes};
use super::window::payload_room;
use crate::record::TcpTuning;
use crate::time::{Duration, Instant};

/// IP and TCP headers without options.
const HEADERS_V4: u32 = 40;
const HEADERS_V6: u32 = 60;
/// The timestamps option with its padding.
const TIMESTAMPS_BYTES: u32 = 12;
/// Payload that every path takes (RFC 9293, 3.7.1, less options).
const MSS_MIN: u32 = 24;

/// Payload of a full segment (RFC 9293, 3.7.1; RFC 6691): what path and peer take, less the options
/// that every segment carries.
pub(super) fn mss(sizes: &Sizes, ipv4: bool, timestamps: bool, tuning: &TcpTuning) -> u32 {
    let headers = if ipv4 { HEADERS_V4 } else { HEADERS_V6 };
    let path = sizes.path_mtu.saturating_sub(headers);
    let mut mss = path.min(u32::from(sizes.peer_mss)).max(tuning.min_snd_mss.min(536));
    if sizes.user_mss > 0 {
        mss = mss.min(u32::from(sizes.user_mss));
    }
    let options = if timestamps { TIMESTAMPS_BYTES } else { 0 };
    mss.saturating_sub(options).max(MSS_MIN)
}

impl Connection {
    /// `TCP_NODELAY`: small segments do not wait for acknowledgements.
    pub fn set_nodelay(&mut self, on: bool) {
        self.options.nodelay = on;
        // As in Linux, it also sends what waits.
        self.timers.force |= on;
    }

    /// `TCP_CORK`: segments wait to be full, 200 ms at most. Off sends what waits.
    pub fn set_cork(&mut self, on: bool) {
        self.options.cork = on;
        self.timers.force |= !on;
    }

    /// `TCP_QUICKACK`: on acknowledges at once what is owed, and the next segments; off delays.
    pub fn set_quickack(&mut self, on: bool) {
        self.acks.set_quick(on);
    }

    /// `TCP_QUICKACK` as `getsockopt` gives it.
    pub fn quickack(&self) -> bool {
        !self.acks.in_pingpong()
    }

    /// `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`. Times of zero are taken as a
    /// microsecond.
    pub fn set_keepalive(
        &mut self,
        now: Instant,
        on: bool,
        idle: Duration,
        interval: Duration,
        count: u8,
    ) {
        let least = Duration::from_micros(1);
        self.options.keepalive = on;
        self.options.keepalive_idle = idle.max(least);
        self.options.keepalive_interval = interval.max(least);
        self.options.keepalive_count = count;
        self.set_keepalive_timer(now);
    }

    /// `TCP_USER_TIMEOUT` (RFC 5482); zero for the system's way.
    pub fn set_user_timeout(&mut self, timeout: Duration) {
        self.options.user_timeout = timeout;
    }

    /// `SO_RCVBUF`: `bytes` as `getsockopt` will give it, which is twice what was set. From now on
    /// it does not grow by itself. The ring was made at import: what it cannot hold is not granted.
    pub fn set_rcvbuf(&mut self, bytes: u32) {
        self.options.rcvbuf = bytes;
        self.options.rcvbuf_locked = true;
        self.update_receive_buffer();
    }

    fn update_receive_buffer(&mut self) {
        let capacity = self.rcv.ring.capacity();
        self.rcv.window.set_buffer(&self.options, &self.tuning, capacity);
    }

    /// `SO_SNDBUF`, likewise.
    pub fn set_sndbuf(&mut self, bytes: u32) {
        self.options.sndbuf = bytes;
        self.options.sndbuf_locked = true;
        if self.snd.ring.is_some() {
            self.snd.limit = payload_room(bytes).clamp(1, self.snd.capacity);
        }
    }

    /// What goes into the IP headers has changed (`IP_TOS`, `IP_TTL`, `SO_PRIORITY`, ...).
    pub fn set_ip(&mut self, ip: crate::record::IpOptions) {
        self.ip = ip;
    }

    /// The path takes packets of `mtu` bytes now. `too_big`: a packet was too big (RFC 1191, RFC
    /// 8201), so that what is under way is lost and sent again in smaller pieces, without blame on
    /// congestion.
    pub fn set_path_mtu(&mut self, now: Instant, mtu: u32, too_big: bool) {
        let least = if self.local.is_ipv4() { 68 } else { 1_280 };
        self.sizes.path_mtu = mtu.max(least);
        self.update_mss(now, too_big);
    }

    fn update_mss(&mut self, now: Instant, too_big: bool) {
        let (ipv4, stamps) = (self.local.is_ipv4(), self.stamps.is_some());
        let mss = mss(&self.sizes, ipv4, stamps, &self.tuning);
        if mss != self.sizes.mss {
            let too_big = too_big && mss < self.sizes.mss;
            self.sizes.mss = mss;
            self.recovery.set_mss(now, mss, too_big);
        }
    }
}
