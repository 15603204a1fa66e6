//! Offers, refusals, and the joining of two ends to a stream.
//!
//! Not here: the end of a stream (`processes`), streams of an earlier server (`adopt`).

use super::delivery::Event;
use super::end::{End, EndId, Identity, State};
use super::inbox::InboxOwner;
use super::processes::{OF_STREAM, each_once, of_inbox};
use super::{
    CARRIER, CallError, OfferArguments, Offered, RING_MAX, RING_MIN, RING_MOST, Registry,
    SharedMemory, Stream, ToCount,
};
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_session::{HomeT, InboxNumber, InboxSlot, KindT, ReasonT, StreamNumber};

/// The factor by which the rings of a session with another host are larger: bytes on their way that
/// are not acknowledged yet lie in them, too.
const REMOTE_FACTOR: u32 = 4;

impl Registry {
    /// Offers an end of a process, which the server has looked at: `seen` is its identity, or the
    /// reason why it cannot move.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn offer(
        &mut self,
        process: ClientId,
        seen: Result<Identity, ReasonT>,
        arguments: OfferArguments,
        now_ms: u64,
        memory: &mut dyn SharedMemory,
    ) -> Result<Offered, CallError> {
        let entry = self.processes.get(&process).ok_or(CallError::NoHello)?;
        if entry.ends.contains_key(&arguments.local) {
            return Err(CallError::Argument);
        }
        self.counters.offers += 1;
        let id = EndId { process, local: arguments.local };
        let key = seen.as_ref().ok().map(|identity| identity.key);
        let taken = seen.and_then(|seen| match self.may_have_end(process, seen.key) {
            true => self.unshared(process, seen, now_ms),
            false => Err(ReasonT::Quota),
        });
        let identity = match taken {
            Ok(identity) => identity,
            Err(reason) => {
                self.note_refusal(process, arguments.inode, reason, now_ms);
                self.refuse(id, reason, now_ms);
                if let Some(key) = key.filter(|_| process == CARRIER) {
                    // Only the carrier could offer the other end: its program is told, and may try
                    // again.
                    self.drop_mirror(key, reason, now_ms);
                }
                return Ok(Offered::Decided);
            }
        };
        let state = if arguments.is_sole { State::Waiting } else { State::Counting(self.fresh()) };
        self.insert(process, identity, arguments, state, now_ms);
        if let State::Counting(number) = state {
            return Ok(Offered::Count(number));
        }
        Ok(self.pair(id, now_ms, memory))
    }

    pub(super) fn insert(
        &mut self,
        process: ClientId,
        identity: Identity,
        arguments: OfferArguments,
        state: State,
        since_ms: u64,
    ) {
        let serial = self.fresh();
        let Some(owner) = self.processes.get_mut(&process) else { return };
        let (user, key) = (owner.info.uid, identity.key);
        self.keys.insert(key, EndId { process, local: arguments.local });
        let OfferArguments { ring_bytes, set, inode, home, .. } = arguments;
        if let State::Joined { .. } = state {
            owner.refused.forget(inode);
        }
        // The sessions of a protocol server itself leave the kernel for its own process.
        let is_for_protocol_server = home == HomeT::Server
            && matches!(identity.kind, KindT::Tcp | KindT::Udp)
            && identity.key.is_carried()
            && !owner.is_protocol_server;
        let is_counted = false;
        let end = End {
            identity,
            ring_bytes,
            set,
            is_for_protocol_server,
            inode,
            serial,
            since_ms,
            is_counted,
            state,
        };
        owner.ends.insert(arguments.local, end);
        self.count_end(process, user, key, true);
    }

    /// Refuses an end that is offered already, or joined: it has several holders, so neither offer
    /// stands, and a stream comes home.
    fn unshared(
        &mut self,
        process: ClientId,
        identity: Identity,
        now_ms: u64,
    ) -> Result<Identity, ReasonT> {
        let Some(&other) = self.keys.get(&identity.key) else { return Ok(identity) };
        if other.process != process {
            self.has_others(other, now_ms);
        }
        Err(ReasonT::SeveralHolders)
    }

    /// Refuses an end that is offered, or has its stream come home: it has several holders.
    fn has_others(&mut self, id: EndId, now_ms: u64) {
        match self.end(id).map(|end| end.state) {
            Some(State::Joined { stream, .. }) => {
                self.recall(stream, ReasonT::SeveralHolders, now_ms);
            }
            Some(_) => self.refuse(id, ReasonT::SeveralHolders, now_ms),
            None => {}
        }
    }

    /// Returns true if one of the two ends of a session is joined.
    #[must_use]
    pub fn is_away(&self, key: &super::Key) -> bool {
        let is_joined = |key| {
            let found = self.keys.get(&key).and_then(|id| self.end(*id));
            found.is_some_and(|end| !end.is_offered())
        };
        is_joined(*key) || is_joined(key.mirror())
    }

    /// Somebody has opened the pipe of that number once more. A new offer will be counted anew.
    pub fn opened(&mut self, object: u64, now_ms: u64) {
        for writes in [false, true] {
            let key = super::Key::Pipe { object, writes };
            if let Some(&id) = self.keys.get(&key) {
                self.has_others(id, now_ms);
            }
        }
    }

    /// Somebody may have opened any pipe once more.
    pub fn any_opened(&mut self, now_ms: u64) {
        let object = |key: &super::Key| match *key {
            super::Key::Pipe { object, .. } => Some(object),
            super::Key::Socket { .. } => None,
        };
        let objects: Vec<u64> = self.keys.keys().filter_map(object).collect();
        objects.into_iter().for_each(|object| self.opened(object, now_ms));
    }

    /// Takes the result of counting an end's holders, under the number that [`Registry::offer`]
    /// gave.
    pub fn counted(
        &mut self,
        counted: ToCount,
        verdict: Result<(), ReasonT>,
        now_ms: u64,
        memory: &mut dyn SharedMemory,
    ) {
        let ToCount { end: id, number } = counted;
        match self.end_mut(id) {
            // Any other state belongs to a later offer, or the offer was taken back or refused
            // meanwhile.
            Some(end) if end.state == State::Counting(number) => {
                end.state = State::Waiting;
                end.is_counted = true;
            }
            _ => return,
        }
        match verdict {
            Ok(()) => {
                self.pair(id, now_ms, memory);
            }
            Err(reason) => self.refuse(id, reason, now_ms),
        }
    }

    pub(super) fn refuse(&mut self, id: EndId, reason: ReasonT, now_ms: u64) {
        let EndId { process, local } = id;
        let end = self.take_end(id);
        if let Some(end) = &end {
            self.note_refusal(process, end.inode, reason, now_ms);
        }
        self.counters.refusals += 1;
        self.push(process, Event::Refused { local, reason }, now_ms);
        if let Some(end) = end.filter(End::is_offered) {
            self.drop_mirror(end.identity.key, reason, now_ms);
        }
    }

    /// Asks both sides of a stream to go home, once.
    pub(super) fn recall(&mut self, number: StreamNumber, reason: ReasonT, now_ms: u64) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if core::mem::replace(&mut stream.is_recalled, true) {
            return;
        }
        for EndId { process, local } in stream.sides.into_iter().flatten() {
            self.push(process, Event::Recall { local, stream: number, reason }, now_ms);
        }
    }

    /// Joins an end that waits with its mirror image, if that waits too.
    fn pair(&mut self, own: EndId, now_ms: u64, memory: &mut dyn SharedMemory) -> Offered {
        self.forget_local_refusal(own);
        let Some(end) = self.end(own) else { return Offered::Decided };
        let Some(&other) = self.keys.get(&end.identity.key.mirror()) else {
            if own.process == CARRIER {
                // The program has taken its offer back. If the carrier's offer stayed, the carrier
                // would keep the connection, and the program could not close it.
                self.refuse(own, ReasonT::PeerLeft, now_ms);
                return Offered::Decided;
            }
            return Offered::Waits;
        };
        if self.end(other).is_none_or(|end| end.state != State::Waiting) {
            return Offered::Waits;
        }
        if self.count_believed([own, other]) {
            return Offered::Waits;
        }
        let Some(end) = self.end(own) else { return Offered::Decided };
        // Side 0 of a pipe writes; of two sockets the one that was offered first is side 0.
        let is_reader = matches!(end.identity.key, super::Key::Pipe { writes: false, .. });
        let is_pipe = end.identity.kind == KindT::Pipe;
        let sides = if is_pipe && !is_reader { [own, other] } else { [other, own] };
        let is_for_protocol_server =
            |id: &EndId| self.end(*id).is_some_and(|end| end.is_for_protocol_server);
        let joined = match sides.iter().any(is_for_protocol_server) {
            true => Err(ReasonT::ProtocolServer),
            false => self.join(sides, now_ms, memory),
        };
        if let Err(reason) = joined {
            for id in sides {
                self.refuse(id, reason, now_ms);
            }
        }
        Offered::Decided
    }

    /// Forgets the last refusal of an end whose only obstacle is that its peer has not come. Until
    /// the carrier has looked at a session with another host, the last refusal still holds.
    fn forget_local_refusal(&mut self, id: EndId) {
        let Some(owner) = self.processes.get_mut(&id.process) else { return };
        let end = owner.ends.get(&id.local).filter(|end| !end.identity.key.is_carried());
        if let Some(inode) = end.map(|end| end.inode) {
            owner.refused.forget(inode);
        }
    }

    /// Has those of two ends counted for which only the library says that no other process holds
    /// them. Returns true if the join must wait for that.
    ///
    /// Between users that word is not enough. A liar would be joined with the end of another user's
    /// session, while that user's bytes also come from, or go to, a process that holds the liar's
    /// end rightfully, in the kernel. Within one user, who has both ends, a lie does no harm that
    /// the user could not do anyway; root is believed.
    fn count_believed(&mut self, sides: [EndId; 2]) -> bool {
        let uids =
            sides.map(|end| self.processes.get(&end.process).map_or(Uid::ROOT, |one| one.info.uid));
        let is_theirs = uids[0] != uids[1] && self.limits.serves_everybody;
        if !is_theirs || sides.iter().any(|end| end.process == CARRIER) {
            return false;
        }
        let mut must_wait = false;
        for (id, uid) in sides.into_iter().zip(uids) {
            let is_counted = self.end(id).is_none_or(|end| end.is_counted);
            if is_counted || uid.is_root() {
                continue;
            }
            let number = self.fresh();
            if let Some(end) = self.end_mut(id) {
                end.state = State::Counting(number);
                self.to_count.push(ToCount { end: id, number });
                must_wait = true;
            }
        }
        must_wait
    }

    fn join(
        &mut self,
        sides: [EndId; 2],
        now_ms: u64,
        memory: &mut dyn SharedMemory,
    ) -> Result<(), ReasonT> {
        let users = self.may_join(sides)?;
        let kind = self.end(sides[0]).ok_or(ReasonT::Option)?.identity.kind;
        let ring_bytes = self.ring_sizes(sides).ok_or(ReasonT::Option)?;
        let region = memory.region(ring_bytes).ok_or(ReasonT::Resources)?;
        let ringers = [0, 1].map(|side| self.ringer(sides[side], users[side]));
        let first = self.place(sides[0], ringers[1], memory).ok_or(ReasonT::Resources)?;
        let Some(second) = self.place(sides[1], ringers[0], memory) else {
            self.free_slot(first);
            return Err(ReasonT::Resources);
        };
        let number = StreamNumber(self.fresh());
        let stream = Stream {
            kind,
            ring_bytes,
            region,
            sides: sides.map(Some),
            places: [Some(first), Some(second)],
            users,
            since_ms: now_ms,
            is_recalled: false,
        };
        self.streams.insert(number, stream);
        self.count_users(users, true);
        each_once(users).for_each(|user| self.descriptors.take(user, OF_STREAM));
        self.counters.joins += 1;
        for (side, id) in sides.into_iter().enumerate() {
            let EndId { process, local } = id;
            if let Some(end) = self.end_mut(id) {
                end.state = State::Joined { stream: number, side: side as u8, is_known: false };
                end.since_ms = now_ms;
                let inode = end.inode;
                if let Some(owner) = self.processes.get_mut(&process) {
                    owner.refused.forget(inode);
                }
            }
            self.push(process, Event::Join { local, stream: number }, now_ms);
        }
        Ok(())
    }

    /// Returns the users of two processes that may share memory, or the reason why they may not.
    pub(super) fn may_join(&self, sides: [EndId; 2]) -> Result<[Uid; 2], ReasonT> {
        let info = |end: EndId| self.processes.get(&end.process).map(|process| &process.info);
        let (Some(a), Some(b)) = (info(sides[0]), info(sides[1])) else {
            return Err(ReasonT::PeerDied);
        };
        // Two clients with the same process number may be different processes, if the number has
        // come again: then the rule keeps only these two apart.
        let is_within = sides[0].process == sides[1].process || a.pid == b.pid;
        if is_within && !self.limits.joins_within {
            return Err(ReasonT::SameProcess);
        }
        // The carrier acts for the user at the other side, so both sides are that user's.
        let users = match sides.map(|end| end.process == CARRIER) {
            [true, _] => [b.uid; 2],
            [_, true] => [a.uid; 2],
            _ => [a.uid, b.uid],
        };
        if users[0] != users[1] && !self.limits.serves_everybody {
            return Err(ReasonT::OtherUser);
        }
        // The most descriptors that the join may take: those if neither side has an inbox for it
        // yet.
        let is_apart = users[0] != users[1];
        let inboxes = if is_apart { 1 } else { 2 };
        let most = OF_STREAM + inboxes * of_inbox(is_apart);
        let is_beyond = |user: &Uid| !self.descriptors.may_take(*user, most);
        if users.iter().any(is_beyond) { Err(ReasonT::Quota) } else { Ok(users) }
    }

    /// Returns the sizes of the rings: those of the smaller wanted size, but large enough that a
    /// writer is never held up where the kernel would have taken its bytes.
    fn ring_sizes(&self, sides: [EndId; 2]) -> Option<[u32; 2]> {
        let ends = [self.end(sides[0])?, self.end(sides[1])?];
        let is_remote = ends.iter().any(|end| end.identity.key.is_carried());
        let factor = if is_remote { REMOTE_FACTOR } else { 1 };
        let wanted = ends[0].ring_bytes.min(ends[1].ring_bytes).saturating_mul(factor);
        let wanted = 1 << wanted.clamp(RING_MIN, RING_MAX).ilog2();
        let ring = |side: usize| {
            let [sent, received] = [ends[side], ends[1 - side]].map(|end| end.identity.holds);
            if is_remote { wanted } else { ring_bytes(wanted, sent[0].saturating_add(received[1])) }
        };
        let kind = ends[0].identity.kind;
        let back = if kind == KindT::Pipe { 0 } else { ring(1) };
        Some([ring(0), back])
    }

    /// Returns the user whose processes ring for an end of that user's. Everybody's carrier rings
    /// for programs of all users, none of which may hold it up.
    fn ringer(&self, id: EndId, user: Uid) -> Uid {
        let is_everybodys = id.process == CARRIER && self.limits.serves_everybody;
        if is_everybodys { self.limits.own_user } else { user }
    }

    fn place(
        &mut self,
        id: EndId,
        peers_user: Uid,
        memory: &mut dyn SharedMemory,
    ) -> Option<InboxSlot> {
        let user = self.processes.get(&id.process)?.info.uid;
        let owner = InboxOwner { process: id.process, user, set: self.end(id)?.set, peers_user };
        if let Some(place) = self.inboxes.place(owner) {
            return Some(place);
        }
        let is_apart = user != peers_user;
        let descriptors = memory.inbox(is_apart)?;
        let number = InboxNumber(self.fresh());
        self.inboxes.add(owner, number, descriptors);
        self.descriptors.take(user, of_inbox(is_apart));
        self.inboxes.place(owner)
    }
}

/// Returns the size of a ring for a writer whose path in the kernel holds `held` bytes, if `wanted`
/// (a power of two) is wanted.
///
/// Where the kernel holds little, the ring is not much larger: programs choose small buffers to be
/// held up early. Where the kernel holds more than the wanted size, the ring has room for all of it
/// beside the part that is used while the reader keeps up. Each side uses at most a quarter of such
/// a ring for that part.
fn ring_bytes(wanted: u32, held: u32) -> u32 {
    let held = held.clamp(RING_MIN, RING_MOST);
    let near = wanted.min((2 * held).next_power_of_two());
    if near >= held {
        return near;
    }
    (near + held).max(held / 3 * 4).next_power_of_two().min(RING_MOST)
}

#[cfg(test)]
mod sizes {
    use super::ring_bytes;

    #[test]
    fn a_ring_holds_what_the_kernel_held() {
        assert_eq!(ring_bytes(128 << 10, 64 << 10), 128 << 10, "a pipe");
        assert_eq!(ring_bytes(128 << 10, 4096), 8192, "a small pipe");
        assert_eq!(ring_bytes(128 << 10, 1 << 20), 2 << 20, "a large pipe");
        assert_eq!(ring_bytes(128 << 10, 256 << 10), 512 << 10, "a Unix socket");
        assert_eq!(ring_bytes(256 << 10, 6 << 20), 8 << 20, "TCP");
        assert_eq!(ring_bytes(16 << 20, 6 << 20), 16 << 20, "who wants more has it");
        assert_eq!(ring_bytes(4096, u32::MAX), 64 << 20);
        for wanted in [4096, 128 << 10, 1 << 20, 16 << 20] {
            for held in (1..44 << 20).step_by(123_457) {
                let all = ring_bytes(wanted, held);
                let near = if wanted >= all { all } else { wanted.min(all / 4) };
                assert!(all == near || all - near >= held, "{wanted} {held}: {near} of {all}");
                assert!(near == all || near >= 4096 && all - all / 4 >= held);
            }
        }
    }
}
