//! The administrators' view of the registry, and their few orders.
//!
//! Not here: their interface (`service::admin`).

use super::delivery::Event;
use super::end::{End, State};
use super::process::{Process, Refused};
use super::{CARRIER, Registry, SharedMemory};
use sojourn_ipc::ClientId;
use sojourn_session::{
    ConnectionInfoT, HomeT, KindT, ReasonT, RefusedInfoT, SessionInfoT, StreamNumber,
};
use sojourn_stream::LayerTimes;
use std::ffi::CString;

/// Rows of one page.
const PAGE: usize = 2048;
/// The most events that a process may have waiting and still be asked for something.
const WANTED_MAX: usize = 1024;

/// Returns the items behind `after` that come first, in order; and the last one's number if there
/// are more, else 0.
fn page<T>(items: impl Iterator<Item = (u64, T)>, after: u64) -> (Vec<T>, u64) {
    let mut items: Vec<_> = items.filter(|(serial, _)| *serial > after).collect();
    let is_more = items.len() > PAGE;
    if is_more {
        items.select_nth_unstable_by_key(PAGE, |(serial, _)| *serial);
        items.truncate(PAGE);
    }
    items.sort_unstable_by_key(|(serial, _)| *serial);
    let last = items.last().map_or(0, |(serial, _)| *serial);
    (items.into_iter().map(|(_, item)| item).collect(), if is_more { last } else { 0 })
}

impl Registry {
    /// Returns the ends that user `uid` may see (its own, or all for root) behind `after`, as many
    /// as go on a page, and the number behind which the next page begins; 0 if there is none.
    #[must_use]
    pub fn list(
        &self,
        (uid, after): (u32, u64),
        now_ms: u64,
        memory: &dyn SharedMemory,
    ) -> (Vec<SessionInfoT>, u64) {
        let ends = self.seen_by(uid).flat_map(|process| {
            let ends = process.ends.values();
            ends.map(move |end| (end.serial, (process, end)))
        });
        let (ends, last) = page(ends, after);
        (
            ends.into_iter().map(|(process, end)| self.row(process, end, now_ms, memory)).collect(),
            last,
        )
    }

    /// Returns the state of the ends that are carried to other hosts, in pages like [`Self::list`].
    #[must_use]
    pub fn connections(
        &self,
        (uid, after): (u32, u64),
        memory: &dyn SharedMemory,
    ) -> (Vec<ConnectionInfoT>, u64) {
        let ends = self.seen_by(uid).flat_map(|process| {
            let carried = process.ends.values().filter(|end| end.identity.key.is_carried());
            carried.map(move |end| (end.serial, (process.info.pid, end)))
        });
        let (ends, last) = page(ends, after);
        (
            ends.into_iter().filter_map(|(pid, end)| self.connection(pid, end, memory)).collect(),
            last,
        )
    }

    fn seen_by(&self, uid: u32) -> impl Iterator<Item = &Process> {
        let programs = self.processes.iter().filter(|(id, _)| **id != CARRIER).map(|(_, p)| p);
        programs.filter(move |process| uid == 0 || process.info.uid == uid)
    }

    fn connection(
        &self,
        pid: u32,
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
            pid,
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
    /// pages like [`Self::list`]. A program that the server cannot see has the number 0, and is on
    /// no page.
    #[must_use]
    pub fn processes(&self, (uid, after): (u32, u64)) -> (Vec<u32>, u64) {
        let numbers = self.seen_by(uid).map(|process| process.info.pid);
        page(numbers.map(|pid| (u64::from(pid), pid)), after)
    }

    /// Returns the refusals that are remembered, as far as user `uid` may see them, in pages like
    /// [`Self::list`].
    #[must_use]
    pub fn refused(&self, (uid, after): (u32, u64), now_ms: u64) -> (Vec<RefusedInfoT>, u64) {
        let refusals = self.seen_by(uid).flat_map(|process| {
            let refused = process.refused.iter();
            refused.map(move |refused| (refused.serial, (process.info.pid, refused)))
        });
        let (refusals, last) = page(refusals, after);
        let row = |(pid, refused): (u32, &Refused)| RefusedInfoT {
            pid,
            reason: refused.reason,
            inode: refused.inode,
            age_ms: now_ms.saturating_sub(refused.since_ms),
            in_kernel: refused.rates[0],
            away: refused.rates[1],
        };
        (refusals.into_iter().map(row).collect(), last)
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
            reason: process.refusal(end.inode).unwrap_or(ReasonT::NoPeer),
            pid: process.info.pid,
            uid: process.info.uid,
            program: text(&process.info.program),
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
            row.stream = number.0;
            row.home = match process.is_protocol_server {
                true => HomeT::Server,
                false => HomeT::Library,
            };
            row.reason = ReasonT::None;
            row.peer_pid = self.peer_of(stream, side).0;
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
    pub fn recall_for(&mut self, number: StreamNumber, uid: u32, now_ms: u64) -> bool {
        let Some(stream) = self.streams.get(&number) else { return false };
        if uid != 0 && !stream.users.contains(&uid) {
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
        uid: u32,
        until_s: u32,
        memory: &dyn SharedMemory,
    ) -> Option<LayerTimes> {
        let stream = self.streams.get(&number)?;
        let is_allowed = uid == 0 || stream.users.contains(&uid);
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
        pid: u32,
        (inode, home): (u64, HomeT),
        uid: u32,
        now_ms: u64,
    ) -> bool {
        // Only processes of the asking user are looked at, so a process number that has come again
        // wakes at worst another process of the same user.
        let mut known = self.processes.iter_mut().filter(|(id, _)| **id != CARRIER);
        let Some((id, process)) =
            known.find(|(_, p)| p.info.pid == pid && pid != 0 && (uid == 0 || p.info.uid == uid))
        else {
            return false;
        };
        if process.events.len() >= WANTED_MAX {
            // The process does not collect earlier wishes.
            return false;
        }
        // A refusal that is remembered from now on answers this wish.
        process.forget_refusal(inode);
        let id = *id;
        self.push(id, Event::Wanted { inode, home }, now_ms);
        true
    }

    /// Notes that a process does not offer the wanted ends. `rates` are bytes a second in the
    /// kernel and away, if those are the reason.
    pub fn declined(
        &mut self,
        id: ClientId,
        inode: u64,
        (reason, rates): (ReasonT, [u64; 2]),
        now_ms: u64,
    ) {
        self.note_refusal(id, inode, reason, now_ms);
        if let Some(process) = self.processes.get_mut(&id) {
            process.note_rates(inode, rates);
        }
    }

    /// Returns the bytes through streams, those that have ended and those that live.
    #[must_use]
    pub fn bytes(&self, memory: &dyn SharedMemory) -> u64 {
        let live = self.streams.values().flat_map(|stream| stream.totals(memory));
        live.fold(self.counters.bytes, u64::saturating_add)
    }
}
