//! Processes: their coming, and their end, which is that of what they hold.
//!
//! Not here: what is known of one (`process`).

use super::delivery::Event;
use super::end::{End, Identity, State};
use super::process::{Process, Refused, Role, Who};
use super::{CARRIER, CallError, Maker, Registry};
use crate::key::Key;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::ReasonT;
use std::collections::{HashMap, VecDeque};

/// Descriptors that are kept for a process: its socket and the line to its proxy, the process, its
/// doorbell.
const OF_PROCESS: usize = 4;
/// For an inbox: memory and two events.
pub(super) const OF_INBOX: usize = 3;
/// For a stream, of each of its users: its region.
pub(super) const OF_STREAM: usize = 1;

impl Registry {
    /// The process runs as another user now than when it connected.
    pub fn has_become(&mut self, process: ClientId, uid: u32) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.who.uid = uid;
        }
    }

    /// A process says hello.
    ///
    /// # Errors
    /// [`CallError::Argument`]: it has already.
    pub fn hello(&mut self, process: ClientId, who: Who) -> Result<(), CallError> {
        if self.processes.contains_key(&process) {
            return Err(CallError::Argument);
        }
        if process != CARRIER {
            if !self.descriptors.may_take(who.uid, OF_PROCESS) {
                return Err(CallError::Quota);
            }
            self.descriptors.take(who.uid, OF_PROCESS);
        }
        let fresh = Process {
            who,
            ends: HashMap::new(),
            events: VecDeque::new(),
            is_rung: false,
            inboxes_known: HashMap::new(),
            has_packets: false,
            refused: VecDeque::new(),
        };
        self.processes.insert(process, fresh);
        Ok(())
    }

    /// Remembers why something of a process stays in the kernel.
    pub(super) fn note_refusal(
        &mut self,
        process: ClientId,
        inode: u64,
        reason: ReasonT,
        since_ms: u64,
    ) {
        let serial = self.fresh();
        if let Some(process) = self.processes.get_mut(&process).filter(|_| inode != 0) {
            process.note_refusal(Refused { inode, reason, since_ms, serial, rates: [0; 2] });
        }
    }

    /// The carrier does not want to be this other end of what a program has offered.
    pub fn decline_carried(&mut self, other: &Identity, reason: ReasonT, now_ms: u64) {
        self.drop_mirror(other.key, reason, now_ms);
    }

    /// An offer for which there is no other end any more is refused: a carrier's is for one
    /// program's only.
    pub(super) fn drop_mirror(&mut self, of: Key, reason: ReasonT, now_ms: u64) {
        if let Some(&(process, local)) = self.keys.get(&of.mirror())
            && of.is_carried()
            && self.end(process, local).is_some_and(End::is_offered)
        {
            let end = self.take_end(process, local);
            self.counters.refusals += 1;
            if let Some(end) = end {
                self.note_refusal(process, end.inode, reason, now_ms);
            }
            self.push(process, Event::Refused { local, reason }, now_ms);
        }
    }

    /// Who a process is.
    #[must_use]
    pub fn who(&self, process: ClientId) -> Option<&Who> {
        Some(&self.processes.get(&process)?.who)
    }

    /// A process has shown that it may have packets.
    pub fn show_packets(&mut self, process: ClientId) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.has_packets = true;
        }
    }

    /// Whether whoever has this process descriptor, of this registry, has shown that it may have
    /// packets.
    #[must_use]
    pub fn has_packets(&self, of: &Descriptor) -> bool {
        let mut shown = self.processes.values().filter(|process| process.has_packets);
        !of.is_none() && shown.any(|process| process.who.process == *of)
    }

    /// A session is home, or an offer is taken back. What is not known is passed over: the server
    /// may have refused it meanwhile. `sent` counts where the region does not: for streams that
    /// were adopted.
    pub fn left(
        &mut self,
        process: ClientId,
        local: u64,
        reason: ReasonT,
        sent: u64,
        now_ms: u64,
        maker: &dyn Maker,
    ) {
        let Some(end) = self.take_end(process, local) else { return };
        if reason != ReasonT::Closed {
            // It lives on in the kernel, for that reason.
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
        if is_known {
            self.forget_inboxes(process, stream, side);
        }
        self.leave_stream(stream, side, ReasonT::PeerLeft, now_ms, maker);
    }

    /// A process has ended, or is dropped.
    pub fn gone(&mut self, process: ClientId, now_ms: u64, maker: &dyn Maker) {
        let Some(gone) = self.processes.remove(&process) else { return };
        self.to_ring.retain(|id| *id != process);
        self.to_drop.retain(|id| *id != process);
        if process != CARRIER {
            self.descriptors.give_back(gone.who.uid, OF_PROCESS);
            self.ends.give_back(gone.who.uid, gone.ends.len());
        }
        for end in gone.ends.into_values() {
            self.keys.remove(&end.identity.key);
            if let State::Joined { stream, side, .. } = end.state {
                self.counters.returns[ReasonT::Closed as usize] += 1;
                self.leave_stream(stream, side, ReasonT::PeerDied, now_ms, maker);
            } else {
                self.drop_mirror(end.identity.key, ReasonT::PeerDied, now_ms);
            }
        }
    }

    /// The process has told `left` of one more session, at that side of `stream`: it named both
    /// inboxes.
    fn forget_inboxes(&mut self, process: ClientId, stream: u64, side: u8) {
        let Some(stream) = self.streams.get(&stream) else { return };
        let Some(process) = self.processes.get_mut(&process) else { return };
        for (at, place) in stream.places.into_iter().enumerate() {
            let Some((inbox, _)) = place else { continue };
            let key = (inbox, Role::of(at == usize::from(side)));
            if let Some(count) = process.inboxes_known.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    process.inboxes_known.remove(&key);
                }
            }
        }
    }

    /// One side of a stream has left: the other is told `why`, or the stream is over.
    fn leave_stream(
        &mut self,
        number: u64,
        side: u8,
        why: ReasonT,
        now_ms: u64,
        maker: &dyn Maker,
    ) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.sides[side as usize & 1] = None;
        let other = stream.sides[1 - (side as usize & 1)];
        let Some((process, local)) = other else {
            self.end_stream(number, now_ms, maker);
            return;
        };
        let state = self.end(process, local).map(|end| end.state);
        if let Some(State::Joined { is_known: true, .. }) = state {
            self.push(process, Event::Recall { local, stream: number, reason: why }, now_ms);
            return;
        }
        // The other has not collected its join yet, and now never will.
        self.take_end(process, local);
        self.counters.refusals += 1;
        self.push(process, Event::Refused { local, reason: why }, now_ms);
        self.end_stream(number, now_ms, maker);
    }

    fn end_stream(&mut self, number: u64, now_ms: u64, maker: &dyn Maker) {
        let Some(stream) = self.streams.remove(&number) else { return };
        let most = stream.bytes_max(now_ms);
        for bytes in stream.totals(maker) {
            self.counters.bytes = self.counters.bytes.saturating_add(bytes.min(most));
        }
        let is_made_here = stream.places != [None; 2];
        for (inbox, slot) in stream.places.into_iter().flatten() {
            self.free_slot(inbox, slot);
        }
        self.count_users(stream.users, false);
        if is_made_here {
            each_once(stream.users).for_each(|user| self.descriptors.give_back(user, OF_STREAM));
        }
    }

    pub(super) fn free_slot(&mut self, inbox: u64, slot: u32) {
        if let Some(user) = self.inboxes.free(inbox, slot) {
            self.descriptors.give_back(user, OF_INBOX);
        }
    }

    /// Each user counts once for a stream.
    pub(super) fn count_users(&mut self, users: [u32; 2], is_more: bool) {
        for user in each_once(users) {
            let count = self.users.entry(user).or_default();
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.users.remove(&user);
            }
        }
    }
}

/// The users of a stream, once if they are one.
pub(super) fn each_once(users: [u32; 2]) -> impl Iterator<Item = u32> {
    let count = if users[0] == users[1] { 1 } else { 2 };
    users.into_iter().take(count)
}
