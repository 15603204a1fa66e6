//! The settings that can change while a connection runs: the program's options, and the path MTU.
//!
//! Each setter is the socket option that it names (`tcp(7)`, `socket(7)`). Not here: the option of
//! the kernel's socket, which the embedder sets. After each setter, call
//! [`Connection::poll_transmit`].

use super::connection::{Connection, Sizes};
use super::window::payload_room;
use crate::record::TcpTuning;
use crate::time::{Duration, Instant};

/// IP and TCP headers without options.
const HEADERS_V4: u32 = 40;
const HEADERS_V6: u32 = 60;
/// The timestamps option with its padding.
const TIMESTAMPS_BYTES: u32 = 12;
/// The smallest payload of a full segment (RFC 9293, 3.7.1, less options).
const MSS_MIN: u32 = 24;

/// Returns the payload of a full segment (RFC 9293, 3.7.1; RFC 6691): the smaller of the path's and
/// the peer's limit, less the options that every segment carries.
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
    /// Sets `TCP_NODELAY`: small segments do not wait for acknowledgements.
    pub fn set_nodelay(&mut self, on: bool) {
        self.options.nodelay = on;
        // As in Linux, setting the option also sends the waiting bytes (tcp(7)).
        self.timers.force |= on;
    }

    /// Sets `TCP_CORK`: segments wait until they are full, at most 200 ms. Off sends the waiting
    /// bytes.
    pub fn set_cork(&mut self, on: bool) {
        self.options.cork = on;
        self.timers.force |= !on;
    }

    /// Sets `TCP_QUICKACK`: on sends an owed acknowledgement and the next ones at once; off delays
    /// them.
    pub fn set_quickack(&mut self, on: bool) {
        self.acks.set_quick(on);
    }

    /// Returns `TCP_QUICKACK` as `getsockopt` gives it.
    pub fn quickack(&self) -> bool {
        !self.acks.in_pingpong()
    }

    /// Sets `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`. A time of zero
    /// counts as a microsecond.
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

    /// Sets `TCP_USER_TIMEOUT` (RFC 5482); zero for the system's default behaviour.
    pub fn set_user_timeout(&mut self, timeout: Duration) {
        self.options.user_timeout = timeout;
    }

    /// Sets `SO_RCVBUF` to `bytes` as `getsockopt` will give it, which is twice the value of
    /// `setsockopt`. The buffer then does not grow by itself. Bytes beyond the ring, whose size is
    /// fixed at import, are not granted.
    pub fn set_rcvbuf(&mut self, bytes: u32) {
        self.options.rcvbuf = bytes;
        self.options.rcvbuf_locked = true;
        self.update_receive_buffer();
    }

    fn update_receive_buffer(&mut self) {
        let capacity = self.rcv.ring.capacity();
        self.rcv.window.set_buffer(&self.options, &self.tuning, capacity);
    }

    /// Sets `SO_SNDBUF`, like [`Connection::set_rcvbuf`].
    pub fn set_sndbuf(&mut self, bytes: u32) {
        self.options.sndbuf = bytes;
        self.options.sndbuf_locked = true;
        if self.snd.ring.is_some() {
            self.snd.limit = payload_room(bytes).clamp(1, self.snd.capacity);
        }
    }

    /// Sets the values for the IP headers (`IP_TOS`, `IP_TTL`, `SO_PRIORITY`, ...).
    pub fn set_ip(&mut self, ip: crate::record::IpOptions) {
        self.ip = ip;
    }

    /// Sets the path MTU in bytes. `too_big` is true if a router reported a packet as too big (RFC
    /// 1191, RFC 8201): the outstanding bytes then count as lost and are sent again in smaller
    /// segments, without a reduction of the congestion window.
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
