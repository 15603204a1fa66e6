//! The queues of messages to processes.
//!
//! Apart from wishes of administrators an end has at most one join and one recall or refusal
//! queued, so a queue is bounded by the number of ends that the process may offer; a process that
//! offers and never collects is dropped ([`Registry::take_unresponsive`]). A message that has
//! become stale in the queue (its session was left meanwhile) is passed over when its turn comes.
//! Not here: the messages (`delivery`).

use super::delivery::{CarrierMessage, Delivery, Event, InboxOut, JoinOut};
use super::end::{EndId, State};
use super::process::{KnownInbox, QueuedEvent, Role};
use super::{CARRIER, CallError, EVENTS_MAX, Registry, Stream};
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{InboxSlot, LocalNumber, ProcessId, StreamNumber};

/// The process at the other side of a stream; without a number if there is none.
pub(super) struct PeerProcess {
    pub(super) pid: ProcessId,
    pub(super) process: Descriptor,
}

impl Registry {
    /// Queues an event, and has its process rung unless it is rung already. A process whose queue
    /// is full is dropped.
    pub(super) fn push(&mut self, id: ClientId, event: Event, now_ms: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.events.len() >= EVENTS_MAX {
            self.to_drop.push(id);
            return;
        }
        process.events.push_back(QueuedEvent { event, at_ms: now_ms });
        if !process.is_rung {
            process.is_rung = true;
            self.to_ring.push(id);
        }
    }

    /// Queues a message of the carrier to the other side of its session `local`.
    pub fn tell_carried(&mut self, local: LocalNumber, mut what: CarrierMessage, now_ms: u64) {
        let Some(State::Joined { stream, side, .. }) =
            self.end(EndId { process: CARRIER, local }).map(|end| end.state)
        else {
            return;
        };
        let sides = self.streams.get(&stream).map(|stream| stream.sides);
        let Some(EndId { process, local }) = sides.and_then(|sides| sides[1 - side as usize])
        else {
            return;
        };
        match &mut what {
            CarrierMessage::Delegate(terms) => terms.local = local.0,
            CarrierMessage::Reroute(rerouted) => rerouted.local = local.0,
            CarrierMessage::Route(route) => route.local = local.0,
        }
        self.push(process, Event::CarrierMessage { local, stream, what: Box::new(what) }, now_ms);
    }

    /// Returns the carrier's number for the session of an end, if the carrier is at the other side.
    pub fn of_carrier(&self, id: EndId) -> Option<LocalNumber> {
        let State::Joined { stream, side, .. } = self.end(id)?.state else {
            return None;
        };
        let other = self.streams.get(&stream)?.sides[1 - usize::from(side & 1)]?;
        (other.process == CARRIER).then_some(other.local)
    }

    /// Takes the next event of a process.
    ///
    /// # Errors
    /// [`CallError::NoHello`].
    pub fn next(&mut self, id: ClientId) -> Result<Option<Delivery>, CallError> {
        let process = self.processes.get_mut(&id).ok_or(CallError::NoHello)?;
        while let Some(QueuedEvent { event, .. }) = process.events.pop_front() {
            let state = |local| process.ends.get(&local).map(|end| end.state);
            match event {
                Event::Refused { local, reason } => {
                    return Ok(Some(Delivery::Refused { local, reason }));
                }
                Event::Wanted { inode, home } => {
                    return Ok(Some(Delivery::Wanted { inode, home }));
                }
                Event::CarrierMessage { local, stream, what } => match state(local) {
                    // The number may belong to a later session by now: the stream tells them apart.
                    Some(State::Joined { stream: now, .. }) if now == stream => {
                        return Ok(Some(Delivery::CarrierMessage(what)));
                    }
                    _ => {}
                },
                Event::Recall { local, stream, reason } => match state(local) {
                    Some(State::Joined { stream: now, .. }) if now == stream => {
                        return Ok(Some(Delivery::Recall { local, reason }));
                    }
                    _ => {}
                },
                Event::Join { local, stream } => match state(local) {
                    Some(State::Joined { stream: now, side, is_known: false }) if now == stream => {
                        return Ok(self.deliver_join(EndId { process: id, local }, stream, side));
                    }
                    _ => {}
                },
            }
        }
        // The process has seen the end of its queue: the next event rings again.
        process.is_rung = false;
        Ok(None)
    }

    fn deliver_join(&mut self, id: EndId, number: StreamNumber, side: u8) -> Option<Delivery> {
        let EndId { process, local } = id;
        let end = self.end_mut(id)?;
        end.state = State::Joined { stream: number, side, is_known: true };
        let is_carried = end.identity.key.is_carried();
        let stream = self.streams.get(&number)?;
        let own = stream.places[side as usize];
        let peer = stream.places[1 - side as usize];
        let PeerProcess { pid: peer_pid, process: peer_process } = self.peer_of(stream, side);
        let join = JoinOut {
            local,
            stream: number,
            side,
            kind: stream.kind,
            is_carried,
            ring_bytes: stream.ring_bytes,
            region: stream.region.clone(),
            own: InboxOut::default(),
            peer: InboxOut::default(),
            peer_pid,
            peer_process,
        };
        let own = self.inbox_for(process, own, Role::Own);
        let peer = self.inbox_for(process, peer, Role::Peer);
        Some(Delivery::Join(Box::new(JoinOut { own, peer, ..join })))
    }

    pub(super) fn peer_of(&self, stream: &Stream, side: u8) -> PeerProcess {
        let peer =
            stream.sides[1 - side as usize].and_then(|peer| self.processes.get(&peer.process));
        match peer {
            Some(peer) => PeerProcess { pid: peer.info.pid, process: peer.info.process.clone() },
            None => PeerProcess { pid: ProcessId::NONE, process: Descriptor::NONE },
        }
    }

    /// Describes a place to a process, with descriptors if this is the only join that the process
    /// knows there in that role.
    fn inbox_for(&mut self, id: ClientId, place: Option<InboxSlot>, role: Role) -> InboxOut {
        let Some(InboxSlot { inbox: number, slot }) = place else { return InboxOut::default() };
        let known = self
            .processes
            .get_mut(&id)
            .map(|process| process.inboxes_known.entry(KnownInbox { number, role }).or_default());
        let is_new = known.is_none_or(|count| {
            *count += 1;
            *count == 1
        });
        let descriptors = match self.inboxes.get(number) {
            Some(inbox) if is_new => match role {
                Role::Own => inbox.descriptors.owner.clone(),
                Role::Peer => inbox.descriptors.peer.clone(),
            },
            _ => Default::default(),
        };
        InboxOut { id: number, slot, descriptors }
    }
}
