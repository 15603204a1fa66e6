//! What a program asks of its session while it is carried here, and what it sets.
//!
//! The kernel's socket is silent meanwhile, so it is the engine that knows. Not here: who asks
//! (`sojourn_library`), what the kernel answers besides. Read `options` and `tcp_info`.

use super::Carried;
use crate::options;
use rustix::fd::BorrowedFd;
use sojourn_options::Change;
use sojourn_proto::record::TcpOptions;
use sojourn_proto::tcp::{Connection, TcpInfo};
use sojourn_proto::time::Instant;

/// What the engine answers of a session.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// `TCP_INFO`, and `TCP_MAXSEG` in it.
    pub info: TcpInfo,
    /// `TCP_QUICKACK`.
    pub quickack: bool,
}

impl Carried {
    /// What there is to know of it.
    pub fn known(&self, now: Instant) -> Known {
        let connection = self.connection();
        let mut info = connection.info(now);
        // What it has not taken over from the ring counts as written and not sent, as far as the
        // program knows.
        let waiting = u32::try_from(self.waiting()).unwrap_or(u32::MAX);
        info.notsent_bytes = info.notsent_bytes.saturating_add(waiting);
        Known { info, quickack: connection.quickack() }
    }

    /// Bytes that the program has written and that were never sent (`SIOCOUTQNSD`).
    pub fn unsent_bytes(&self) -> usize {
        self.connection().siocoutqnsd() + self.waiting()
    }

    /// Bytes that have arrived and for which there was no room in the ring.
    pub fn held_back(&self) -> usize {
        self.connection().siocinq()
    }

    /// The program has set an option: from now on it is obeyed. `socket` has it already; keepalive
    /// is what `keepalive` says, since the kernel's socket must not ask the peer anything
    /// meanwhile. False: the socket does not answer.
    pub fn set(
        &mut self,
        change: Change,
        socket: BorrowedFd<'_>,
        keepalive: bool,
        now: Instant,
    ) -> bool {
        if change == Change::Header {
            let ip = options::read_ip(socket, self.connection().local());
            self.set_ip(ip);
            return true;
        }
        let Ok(mut found) = options::read(socket) else { return false };
        found.keepalive = keepalive;
        apply(self.connection_mut(), change, &found, now);
        true
    }
}

fn apply(connection: &mut Connection, change: Change, found: &TcpOptions, now: Instant) {
    match change {
        Change::NoDelay => connection.set_nodelay(found.nodelay),
        Change::Cork => connection.set_cork(found.cork),
        Change::QuickAck => connection.set_quickack(found.quickack),
        Change::Keepalive => {
            let TcpOptions { keepalive_idle, keepalive_interval, keepalive_count, .. } = *found;
            let (idle, interval) = (keepalive_idle, keepalive_interval);
            connection.set_keepalive(now, found.keepalive, idle, interval, keepalive_count);
        }
        Change::UserTimeout => connection.set_user_timeout(found.user_timeout),
        Change::SendBuffer if found.sndbuf_locked => connection.set_sndbuf(found.sndbuf),
        Change::ReceiveBuffer if found.rcvbuf_locked => connection.set_rcvbuf(found.rcvbuf),
        Change::SendBuffer | Change::ReceiveBuffer => {}
        // Not the connection's alone.
        Change::Header => {}
    }
}
