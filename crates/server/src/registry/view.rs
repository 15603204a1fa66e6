//! The administrators' view of the registry, and their few orders.
//!
//! Not here: their interface (`service::admin`).

use super::delivery::{Event, Page};
use super::end::{End, State};
use super::process::Process;
use super::refusals::Refused;
use super::{CARRIER, Registry, SharedMemory};
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_session::{
    ConnectionInfoT, HomeT, Inode, KindT, ProcessId, ReasonT, RefusedInfoT, SessionInfoT,
    StreamNumber,
};
use sojourn_stream::LayerTimes;
use std::ffi::CString;

/// Rows of one page.
const PAGE: usize = 2048;
/// The most events that a process may have waiting and still be asked for something.
const WANTED_MAX: usize = 1024;

/// An item of a list.
struct Listed<T> {
    /// Its place in the list.
    serial: u64,
    item: T,
}

/// Returns the items behind `after` that come first, in order.
fn page<T>(items: impl Iterator<Item = Listed<T>>, after: u64) -> Page<T> {
    let mut items: Vec<_> = items.filter(|one| one.serial > after).collect();
    let is_more = items.len() > PAGE;
    if is_more {
        items.select_nth_unstable_by_key(PAGE, |one| one.serial);
        items.truncate(PAGE);
    }
    items.sort_unstable_by_key(|one| one.serial);
    let last = items.last().map_or(0, |one| one.serial);
    let rows = items.into_iter().map(|one| one.item).collect();
    Page { rows, last: if is_more { last } else { 0 } }
}

impl Registry {
    /// Returns the ends that user `uid` may see (its own, or all for root) behind `after`.
    #[must_use]
    pub fn list(
        &self,
        uid: Uid,
        after: u64,
        now_ms: u64,
        memory: &dyn SharedMemory,
    ) -> Page<SessionInfoT> {
        let ends = self.seen_by(uid).flat_map(|process| {
            let ends = process.ends.values();
            ends.map(move |end| Listed { serial: end.serial, item: (process, end) })
        });
        page(ends, after).filter_map(|(process, end)| Some(self.row(process, end, now_ms, memory)))
    }

    /// Returns the state of the ends that are carried to other hosts, in pages like [`Self::list`].
    #[must_use]
    pub fn connections(
        &self,
        uid: Uid,
        after: u64,
        memory: &dyn SharedMemory,
    ) -> Page<ConnectionInfoT> {
        let ends = self.seen_by(uid).flat_map(|process| {
            let carried = process.ends.values().filter(|end| end.identity.key.is_carried());
            carried.map(move |end| Listed { serial: end.serial, item: (process.info.pid, end) })
        });
        page(ends, after).filter_map(|(pid, end)| self.connection(pid, end, memory))
    }

    fn seen_by(&self, uid: Uid) -> impl Iterator<Item = &Process> {
        let programs = self.processes.iter().filter(|(id, _)| **id != CARRIER).map(|(_, p)| p);
        programs.filter(move |process| uid.is_root() || process.info.uid == uid)
    }

    fn connection(
        &self,
        pid: ProcessId,
        end: &End,
        memory: &dyn SharedMemory,
    ) -> Option<ConnectionInfoT> {
        let State::Joined { stream, .. } = end.state else { return None };
        let region = &self.streams.get(&stream).filter(|_| end.identity.key.is_carried())?.region;
        if end.identity.kind == KindT::Udp {
            return None;
        }
        let figures = memory.figures(region)?;
        Some(ConnectionInfoT {
            stream: stream.0,
            pid: pid.0,
            state: figures.state.into(),
            mss: figures.mss,
            snd_wnd: figures.snd_wnd,
            rcv_wnd: figures.rcv_wnd,
            cwnd: figures.cwnd,
            ssthresh: figures.ssthresh,
            srtt_us: figures.srtt_us,
            rttvar_us: figures.rttvar_us,
            unacked: figures.unacked,
            retransmissions: figures.retransmissions,
            loss_events: figures.loss_events,
        })
    }

    /// Returns the numbers of the programs that have said hello and that user `uid` may see, in
    /// pages like [`Self::list`]. A program that the server cannot see is on no page.
    #[must_use]
    pub fn processes(&self, uid: Uid, after: u64) -> Page<ProcessId> {
        let numbers = self.seen_by(uid).map(|process| process.info.pid);
        page(numbers.map(|pid| Listed { serial: pid.0.into(), item: pid }), after)
    }

    /// Returns the refusals that are remembered, as far as user `uid` may see them, in pages like
    /// [`Self::list`].
    #[must_use]
    pub fn refused(&self, uid: Uid, after: u64, now_ms: u64) -> Page<RefusedInfoT> {
        let refusals = self.seen_by(uid).flat_map(|process| {
            let refused = process.refused.iter();
            let listed = move |refused: &'_ Refused| Listed {
                serial: refused.serial,
                item: (process.info.pid, *refused),
            };
            refused.map(listed)
        });
        let row = |(pid, refused): (ProcessId, Refused)| RefusedInfoT {
            pid: pid.0,
            reason: refused.reason,
            inode: refused.inode.0,
            age_ms: now_ms.saturating_sub(refused.since_ms),
            in_kernel: refused.rates[0],
            away: refused.rates[1],
        };
        page(refusals, after).filter_map(|refused| Some(row(refused)))
    }

    fn row(
        &self,
        process: &Process,
        end: &End,
        now_ms: u64,
        memory: &dyn SharedMemory,
    ) -> SessionInfoT {
        let age_ms = now_ms.saturating_sub(end.since_ms);
        let text = |text: &str| CString::new(text.replace('\0', "")).ok();
        let mut row = SessionInfoT {
            stream: 0,
            kind: end.identity.kind,
            home: HomeT::Kernel,
            reason: process.refused.reason(end.inode).unwrap_or(ReasonT::NoPeer),
            pid: process.info.pid.0,
            uid: process.info.uid.as_raw(),
            program: text(&process.info.program),
            from: text(&end.identity.from),
            to: text(&end.identity.to),
            peer_pid: 0,
            has_counts: false,
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
            row.stream = number.0;
            row.home = match process.is_protocol_server {
                true => HomeT::Server,
                false => HomeT::Library,
            };
            row.reason = ReasonT::None;
            row.peer_pid = self.peer_of(stream, side).pid.0;
            row.has_counts = !stream.region.is_none();
            if stream.kind == KindT::Udp {
                let counts = memory.counts(&stream.region);
                (row.sent, row.received) = (counts.sent_bytes, counts.received_bytes);
                row.datagrams_sent = counts.sent;
                row.datagrams_received = counts.received;
                row.datagrams_dropped = counts.dropped;
            } else {
                let totals = memory.totals(&stream.region);
                (row.sent, row.received) = (totals[side as usize], totals[1 - side as usize]);
            }
        }
        row
    }

    /// Sends a stream home for a user. Returns false if there is none of that number, or neither
    /// side is the user's.
    pub fn recall_for(&mut self, number: StreamNumber, uid: Uid, now_ms: u64) -> bool {
        let Some(stream) = self.streams.get(&number) else { return false };
        if !uid.is_root() && !stream.users.contains(&uid) {
            return false;
        }
        self.recall(number, ReasonT::User, now_ms);
        true
    }

    /// Has a user's TCP session with another host timed until that second of the monotonic clock,
    /// and returns the times of its layers so far. `None` if there is no such session, or it is
    /// another user's.
    #[must_use]
    pub fn times(
        &self,
        number: StreamNumber,
        uid: Uid,
        until_s: u32,
        memory: &dyn SharedMemory,
    ) -> Option<LayerTimes> {
        let stream = self.streams.get(&number)?;
        let is_allowed = uid.is_root() || stream.users.contains(&uid);
        let mut ends = stream.sides.iter().flatten().filter_map(|id| self.end(*id));
        let is_carried =
            ends.any(|end| end.identity.key.is_carried() && end.identity.kind == KindT::Tcp);
        if !is_allowed || !is_carried {
            return None;
        }
        memory.times(&stream.region, until_s)
    }

    /// Asks a process of that user (any, for root) to bring its ends of a socket or pipe to a home.
    /// Returns false if there is no such process.
    pub fn request_move(
        &mut self,
        pid: ProcessId,
        inode: Inode,
        home: HomeT,
        uid: Uid,
        now_ms: u64,
    ) -> bool {
        // Only processes of the asking user are looked at, so a process number that has come again
        // wakes at worst another process of the same user.
        let mut known = self.processes.iter_mut().filter(|(id, _)| **id != CARRIER);
        let Some((id, process)) = known.find(|(_, p)| {
            p.info.pid == pid && pid != ProcessId::NONE && (uid.is_root() || p.info.uid == uid)
        }) else {
            return false;
        };
        if process.events.len() >= WANTED_MAX {
            // The process does not collect earlier wishes.
            return false;
        }
        // A refusal that is remembered from now on answers this wish.
        process.refused.forget(inode);
        let id = *id;
        self.push(id, Event::Wanted { inode, home }, now_ms);
        true
    }

    /// Notes that a process does not offer the wanted ends. `rates` are bytes a second in the
    /// kernel and away, if those are the reason.
    pub fn declined(
        &mut self,
        id: ClientId,
        inode: Inode,
        reason: ReasonT,
        rates: [u64; 2],
        now_ms: u64,
    ) {
        self.note_refusal(id, inode, reason, now_ms);
        if let Some(process) = self.processes.get_mut(&id) {
            process.refused.note_rates(inode, rates);
        }
    }

    /// Returns the bytes through streams, those that have ended and those that live.
    #[must_use]
    pub fn bytes(&self, memory: &dyn SharedMemory) -> u64 {
        let live = self.streams.values().flat_map(|stream| stream.totals(memory));
        live.fold(self.counters.bytes, u64::saturating_add)
    }
}
