//! A program's questions about its session while it is carried here, and the options that it sets.
//!
//! The kernel's socket is silent meanwhile, so the engine answers. Not here: the program's calls
//! (`sojourn_library`), and the kernel's part of the answers. Read `crate::options` and
//! `crate::tcp_info`.

use super::Carried;
use crate::options;
use rustix::fd::BorrowedFd;
use sojourn_options::Change;
use sojourn_proto::record::TcpOptions;
use sojourn_proto::tcp::{Connection, TcpInfo};
use sojourn_proto::time::Instant;

/// The engine's answers about a session.
#[derive(Clone, Copy, Debug)]
pub struct EngineState {
    /// `TCP_INFO`, which contains `TCP_MAXSEG`.
    pub info: TcpInfo,
    /// `TCP_QUICKACK`.
    pub quickack: bool,
}

impl Carried {
    /// Returns the answers.
    pub fn known(&self, now: Instant) -> EngineState {
        let connection = self.connection();
        let mut info = connection.info(now);
        // Bytes that the engine has not taken from the ring count as written and not sent: the
        // program knows no ring.
        let waiting = u32::try_from(self.waiting()).unwrap_or(u32::MAX);
        info.notsent_bytes = info.notsent_bytes.saturating_add(waiting);
        EngineState { info, quickack: connection.quickack() }
    }

    /// Counts the bytes that the program has written and that were never sent (`SIOCOUTQNSD`).
    pub fn unsent_bytes(&self) -> usize {
        self.connection().siocoutqnsd() + self.waiting()
    }

    /// Counts the bytes that have arrived and for which the ring had no room.
    pub fn held_back(&self) -> usize {
        self.connection().siocinq()
    }

    /// Obeys an option that the program has set, which `socket` has already. Keepalive is as
    /// `keepalive` says, since the kernel's socket must not probe the peer meanwhile. Returns false
    /// if the socket cannot be asked.
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
        // A size that the program has not set is the kernel's, whose sizes grow by themselves.
        Change::SendBuffer | Change::ReceiveBuffer => {}
        // `Carried::set` has done this: the frame's header changes as well.
        Change::Header => {}
    }
}
