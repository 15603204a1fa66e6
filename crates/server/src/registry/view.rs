//! What administrators see, and what they may do.

use super::events::Event;
use super::{CARRIER, End, Maker, Process, Registry, State};
use sojourn_ipc::ClientId;
use sojourn_session::{ConnectionInfoT, HomeT, KindT, ReasonT, RefusedInfoT, SessionInfoT};
use std::ffi::CString;

impl Registry {
    /// All ends that user `uid` may see: its own, or all for root; in order of process and age.
    #[must_use]
    pub fn list(&self, uid: u32, now_ms: u64, maker: &dyn Maker) -> Vec<SessionInfoT> {
        let mut rows = Vec::new();
        let programs = self.processes.iter().filter(|(id, _)| **id != CARRIER).map(|(_, p)| p);
        for process in programs.filter(|p| uid == 0 || p.who.uid == uid) {
            rows.extend(process.ends.values().map(|end| self.row(process, end, now_ms, maker)));
        }
        rows.sort_by_key(|row| (row.pid, core::cmp::Reverse(row.age_ms), row.stream));
        rows
    }

    /// How the ends that are carried to other hosts are, as far as user `uid` may see them.
    #[must_use]
    pub fn connections(&self, uid: u32, maker: &dyn Maker) -> Vec<ConnectionInfoT> {
        let programs = self.processes.iter().filter(|(id, _)| **id != CARRIER).map(|(_, p)| p);
        let seen = programs.filter(|p| uid == 0 || p.who.uid == uid);
        let ends = seen.flat_map(|p| p.ends.values().map(|end| (p.who.pid, end)));
        let mut rows: Vec<_> =
            ends.filter_map(|(pid, end)| self.connection(pid, end, maker)).collect();
        rows.sort_by_key(|row| (row.pid, row.stream));
        rows
    }

    fn connection(&self, pid: u32, end: &End, maker: &dyn Maker) -> Option<ConnectionInfoT> {
        let State::Joined { stream, .. } = end.state else { return None };
        let region = &self.streams.get(&stream).filter(|_| end.identity.key.is_carried())?.region;
        if end.identity.kind == KindT::Udp {
            return None;
        }
        let told = maker.figures(region)?;
        Some(ConnectionInfoT {
            stream,
            pid,
            state: told.state.into(),
            mss: told.mss,
            snd_wnd: told.snd_wnd,
            rcv_wnd: told.rcv_wnd,
            cwnd: told.cwnd,
            ssthresh: told.ssthresh,
            srtt_us: told.srtt_us,
            rttvar_us: told.rttvar_us,
            unacked: told.unacked,
            retransmissions: told.retransmissions,
            loss_events: told.loss_events,
        })
    }

    /// Numbers of the programs that have said hello and that user `uid` may see.
    #[must_use]
    pub fn processes(&self, uid: u32) -> Vec<u32> {
        let all = self.processes.iter().filter(|(id, _)| **id != CARRIER);
        let seen = all.filter(|(_, process)| uid == 0 || process.who.uid == uid);
        seen.map(|(_, process)| process.who.pid).collect()
    }

    /// The refusals that are remembered, as far as user `uid` may see them; in order of process and age.
    #[must_use]
    pub fn refused(&self, uid: u32, now_ms: u64) -> Vec<RefusedInfoT> {
        let mut rows = Vec::new();
        for process in self.processes.values().filter(|p| uid == 0 || p.who.uid == uid) {
            rows.extend(process.refused.iter().map(|refused| RefusedInfoT {
                pid: process.who.pid,
                reason: refused.reason,
                inode: refused.inode,
                age_ms: now_ms.saturating_sub(refused.since_ms),
            }));
        }
        rows.sort_by_key(|row| (row.pid, core::cmp::Reverse(row.age_ms), row.inode));
        rows
    }

    fn row(&self, process: &Process, end: &End, now_ms: u64, maker: &dyn Maker) -> SessionInfoT {
        let age_ms = now_ms.saturating_sub(end.since_ms);
        let text = |text: &str| CString::new(text.replace('\0', "")).ok();
        let mut row = SessionInfoT {
            stream: 0,
            kind: end.identity.kind,
            home: HomeT::Kernel,
            reason: ReasonT::NoPeer,
            pid: process.who.pid,
            uid: process.who.uid,
            program: text(&process.who.program),
            from: text(&end.identity.from),
            to: text(&end.identity.to),
            peer_pid: 0,
            sent: 0,
            received: 0,
            datagrams_sent: 0,
            datagrams_received: 0,
            datagrams_dropped: 0,
            age_ms,
        };
        if let State::Joined { stream: number, side, .. } = end.state
            && let Some(stream) = self.streams.get(&number)
        {
            row.stream = number;
            row.home = HomeT::Library;
            row.reason = ReasonT::None;
            row.peer_pid = self.peer_of(stream, side).0;
            if stream.kind == KindT::Udp {
                let counts = maker.counts(&stream.region);
                (row.sent, row.received) = (counts.sent_bytes, counts.received_bytes);
                row.datagrams_sent = counts.sent;
                row.datagrams_received = counts.received;
                row.datagrams_dropped = counts.dropped;
            } else {
                let totals = maker.totals(&stream.region);
                (row.sent, row.received) = (totals[side as usize], totals[1 - side as usize]);
            }
        }
        row
    }

    /// Sends a stream home for a user. False: there is none of that number, or neither side is the user's.
    pub fn recall_for(&mut self, number: u64, uid: u32, now_ms: u64) -> bool {
        let Some(stream) = self.streams.get(&number) else { return false };
        if uid != 0 && !stream.users.contains(&uid) {
            return false;
        }
        self.recall(number, ReasonT::User, now_ms);
        true
    }

    /// Asks a process of that user's, or any for root, to offer what it has of a socket or pipe. False: there is none of that number.
    pub fn want(&mut self, pid: u32, inode: u64, uid: u32, now_ms: u64) -> bool {
        // Whom the number means is decided by the user who asks: only its own processes are looked at. A number that has come again wakes
        // the wrong one of these.
        let mut known = self.processes.iter_mut().filter(|(id, _)| **id != CARRIER);
        let Some((id, process)) =
            known.find(|(_, p)| p.who.pid == pid && pid != 0 && (uid == 0 || p.who.uid == uid))
        else {
            return false;
        };
        // What is remembered from now on is what came of it.
        process.forget_refusal(inode);
        let id = *id;
        self.push(id, Event::Wanted { inode }, now_ms);
        true
    }

    /// A process does not offer what was wanted.
    pub fn declined(&mut self, id: ClientId, inode: u64, reason: ReasonT, now_ms: u64) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.note_refusal(inode, reason, now_ms);
        }
    }

    /// Bytes through streams, those that have ended and those that live.
    #[must_use]
    pub fn bytes(&self, maker: &dyn Maker) -> u64 {
        let live = self.streams.values().flat_map(|stream| stream.totals(maker));
        live.fold(self.counters.bytes, u64::saturating_add)
    }
}
