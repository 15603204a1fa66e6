//! Processes: their coming, and their end, which is the end of everything they hold.
//!
//! Not here: the knowledge about one (`process`).

use super::delivery::Event;
use super::end::{End, EndId, Identity, State};
use super::inbox::UserPair;
use super::process::{KnownInbox, Process, ProcessInfo, Program, Role};
use super::refusals::{OF_PROCESS_MAX, OF_PROCESS_MIN, OF_USER_MAX, Refusals, Refused};
use super::{CARRIER, CallError, Registry, SharedMemory};
use crate::key::Key;
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{InboxSlot, Inode, ReasonT, StreamNumber};
use std::collections::{HashMap, VecDeque};

/// Descriptors that are kept for a process: its socket and the line to its proxy, the process, its
/// doorbell.
const OF_PROCESS: usize = 4;
/// Descriptors of an inbox: memory and two events.
const OF_INBOX: usize = 3;
/// Further ones of an owner of another user than its peers: two sets (`SharedMemory::inbox`).
const OF_INBOX_APART: usize = 2;
/// Descriptors of a stream that count for each of its users: its region.
pub(super) const OF_STREAM: usize = 1;

/// Returns the number of descriptors of an inbox.
pub(super) fn of_inbox(is_apart: bool) -> usize {
    if is_apart { OF_INBOX + OF_INBOX_APART } else { OF_INBOX }
}

impl Registry {
    /// Sets the user of a process that runs as another user now than when it connected. What it has
    /// counts for that user from now on; its streams count for the user as whom they were made.
    pub fn has_become(&mut self, process: ClientId, uid: Uid) {
        let Some(known) = self.processes.get_mut(&process) else { return };
        let before = core::mem::replace(&mut known.info.uid, uid);
        let keys = || known.ends.values().map(|end| end.identity.key);
        let pipes = keys().filter(|key| key.is_pipe()).count();
        let carried = keys().filter(|key| key.is_carried()).count();
        for (shares, count) in [
            (&mut self.descriptors, OF_PROCESS),
            (&mut self.ends, known.ends.len()),
            (&mut self.pipes, pipes),
            (&mut self.carried, carried),
        ] {
            shares.give_back(before, count);
            shares.take(uid, count);
        }
    }

    /// Takes in a process that says hello.
    ///
    /// # Errors
    /// [`CallError::Argument`]: it has said so already. [`CallError::Quota`]: its user has too
    /// many.
    pub fn hello(&mut self, process: ClientId, info: ProcessInfo) -> Result<(), CallError> {
        if self.processes.contains_key(&process) {
            return Err(CallError::Argument);
        }
        if process != CARRIER {
            if !self.descriptors.may_take(info.uid, OF_PROCESS) {
                return Err(CallError::Quota);
            }
            self.descriptors.take(info.uid, OF_PROCESS);
        }
        let fresh = Process {
            info,
            ends: HashMap::new(),
            events: VecDeque::new(),
            is_rung: false,
            inboxes_known: HashMap::new(),
            has_packets: false,
            is_protocol_server: false,
            refused: Refusals::default(),
        };
        self.processes.insert(process, fresh);
        Ok(())
    }

    /// Remembers the reason why an end of a process stays in the kernel.
    pub(super) fn note_refusal(
        &mut self,
        process: ClientId,
        inode: Inode,
        reason: ReasonT,
        since_ms: u64,
    ) {
        let serial = self.fresh();
        let most = self.refusals_most(process);
        if let Some(process) =
            self.processes.get_mut(&process).filter(|_| inode != Inode::default())
        {
            let refused = Refused { inode, reason, since_ms, serial, rates: [0; 2] };
            process.refused.note(refused, most);
        }
    }

    /// Returns how many refusals may be remembered of a process, one more among them.
    fn refusals_most(&self, process: ClientId) -> usize {
        let Some(own) = self.processes.get(&process) else { return OF_PROCESS_MIN };
        if own.refused.len() < OF_PROCESS_MIN {
            return OF_PROCESS_MIN;
        }
        let of_user = self.processes.values().filter(|other| other.info.uid == own.info.uid);
        let total: usize = of_user.map(|other| other.refused.len()).sum();
        if total < OF_USER_MAX { OF_PROCESS_MAX } else { own.refused.len() }
    }

    /// Refuses the program's offer whose other end the carrier does not want to be.
    pub fn decline_carried(&mut self, other: &Identity, reason: ReasonT, now_ms: u64) {
        self.drop_mirror(other.key, reason, now_ms);
    }

    /// Refuses the offer that waits for the mirrored end, if that end can never come: an offer of
    /// the carrier is for one program's end only.
    pub(super) fn drop_mirror(&mut self, of: Key, reason: ReasonT, now_ms: u64) {
        if let Some(&id) = self.keys.get(&of.mirror())
            && of.is_carried()
            && self.end(id).is_some_and(End::is_offered)
        {
            let EndId { process, local } = id;
            let end = self.take_end(id);
            self.counters.refusals += 1;
            if let Some(end) = end {
                self.note_refusal(process, end.inode, reason, now_ms);
            }
            self.push(process, Event::Refused { local, reason }, now_ms);
        }
    }

    /// Returns the credentials of a process.
    #[must_use]
    pub fn info(&self, process: ClientId) -> Option<&ProcessInfo> {
        Some(&self.processes.get(&process)?.info)
    }

    /// Notes that a process has shown that it may have packets.
    pub fn show_packets(&mut self, process: ClientId) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.has_packets = true;
        }
    }

    /// Notes that a process is a protocol server: a process of the session server's own, which may
    /// have packets.
    pub fn is_protocol_server(&mut self, process: ClientId) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.is_protocol_server = true;
            process.has_packets = true;
        }
    }

    /// Returns the process of this process descriptor, which is one of this registry's.
    #[must_use]
    pub fn program(&self, of: &Descriptor) -> Option<Program> {
        let mut all = self.processes.iter().filter(|_| !of.is_none());
        let (id, process) = all.find(|(_, process)| process.info.process == *of)?;
        Some(Program { client: *id, has_packets: process.has_packets })
    }

    /// Takes note that a session is home, or that an offer is taken back. An unknown number is
    /// passed over: the server may have refused the offer meanwhile. `sent` counts for streams that
    /// were adopted, whose bytes the region does not show.
    pub fn left(
        &mut self,
        id: EndId,
        reason: ReasonT,
        sent: u64,
        now_ms: u64,
        memory: &dyn SharedMemory,
    ) {
        let process = id.process;
        let Some(end) = self.take_end(id) else { return };
        if reason != ReasonT::Closed {
            // The end lives on in the kernel, for that reason.
            self.note_refusal(process, end.inode, reason, now_ms);
        }
        let State::Joined { stream, side, is_known } = end.state else {
            self.drop_mirror(end.identity.key, reason, now_ms);
            return;
        };
        self.counters.returns[reason as usize % ReasonT::COUNT] += 1;
        if let Some(stream) = self.streams.get(&stream).filter(|stream| stream.region.is_none()) {
            let bytes = sent.min(stream.bytes_max(now_ms));
            self.counters.bytes = self.counters.bytes.saturating_add(bytes);
        }
        // A join that the process has not collected has not named any inbox to it.
        if is_known {
            self.forget_inboxes(process, stream, side);
        }
        self.leave_stream(stream, side, ReasonT::PeerLeft, now_ms, memory);
    }

    /// Forgets a process that has ended, or is dropped.
    pub fn gone(&mut self, process: ClientId, now_ms: u64, memory: &dyn SharedMemory) {
        let Some(gone) = self.processes.remove(&process) else { return };
        self.to_ring.retain(|id| *id != process);
        self.to_drop.retain(|id| *id != process);
        if process != CARRIER {
            self.descriptors.give_back(gone.info.uid, OF_PROCESS);
        }
        for end in gone.ends.into_values() {
            self.count_end(process, gone.info.uid, end.identity.key, false);
            self.keys.remove(&end.identity.key);
            if let State::Joined { stream, side, .. } = end.state {
                self.counters.returns[ReasonT::Closed as usize] += 1;
                self.leave_stream(stream, side, ReasonT::PeerDied, now_ms, memory);
            } else {
                self.drop_mirror(end.identity.key, ReasonT::PeerDied, now_ms);
            }
        }
    }

    /// Forgets that the process knows the inboxes of one more session, which it has left, at that
    /// side of `stream`.
    fn forget_inboxes(&mut self, process: ClientId, stream: StreamNumber, side: u8) {
        let Some(stream) = self.streams.get(&stream) else { return };
        let Some(process) = self.processes.get_mut(&process) else { return };
        for (at, place) in stream.places.into_iter().enumerate() {
            let Some(InboxSlot { inbox: number, .. }) = place else { continue };
            let key = KnownInbox { number, role: Role::of(at == usize::from(side)) };
            if let Some(count) = process.inboxes_known.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    process.inboxes_known.remove(&key);
                }
            }
        }
    }

    /// Takes one side off a stream: the other side is told `why`, or the stream is over.
    fn leave_stream(
        &mut self,
        number: StreamNumber,
        side: u8,
        why: ReasonT,
        now_ms: u64,
        memory: &dyn SharedMemory,
    ) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.sides[side as usize & 1] = None;
        let other = stream.sides[1 - (side as usize & 1)];
        let Some(other) = other else {
            self.end_stream(number, now_ms, memory);
            return;
        };
        let EndId { process, local } = other;
        let state = self.end(other).map(|end| end.state);
        if let Some(State::Joined { is_known: true, .. }) = state {
            self.push(process, Event::Recall { local, stream: number, reason: why }, now_ms);
            return;
        }
        // The other side has not collected its join yet, and now never will.
        self.take_end(other);
        self.counters.refusals += 1;
        self.push(process, Event::Refused { local, reason: why }, now_ms);
        self.end_stream(number, now_ms, memory);
    }

    fn end_stream(&mut self, number: StreamNumber, now_ms: u64, memory: &dyn SharedMemory) {
        let Some(stream) = self.streams.remove(&number) else { return };
        let most = stream.bytes_max(now_ms);
        for bytes in stream.totals(memory) {
            self.counters.bytes = self.counters.bytes.saturating_add(bytes.min(most));
        }
        let is_made_here = stream.places != [None; 2];
        for place in stream.places.into_iter().flatten() {
            self.free_slot(place);
        }
        self.count_users(stream.users, false);
        // Only streams that this server has made count among their users' descriptors.
        if is_made_here {
            each_once(stream.users).for_each(|user| self.descriptors.give_back(user, OF_STREAM));
        }
    }

    pub(super) fn free_slot(&mut self, place: InboxSlot) {
        if let Some(UserPair { user, peers }) = self.inboxes.free(place) {
            self.descriptors.give_back(user, of_inbox(user != peers));
        }
    }

    /// Counts a stream for its users, or takes it off. Each user counts once for a stream.
    pub(super) fn count_users(&mut self, users: [Uid; 2], is_more: bool) {
        for user in each_once(users) {
            let count = self.users.entry(user).or_default();
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.users.remove(&user);
            }
        }
    }
}

/// Returns the users of a stream, once if both sides have the same.
pub(super) fn each_once(users: [Uid; 2]) -> impl Iterator<Item = Uid> {
    let count = if users[0] == users[1] { 1 } else { 2 };
    users.into_iter().take(count)
}
