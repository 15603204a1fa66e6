//! Streams that an earlier server has made.
//!
//! Their sides have region and inboxes already; the server only learns their processes, so that it
//! can show and recall them. A stream to another host has the carrier's side first, which the
//! carrier has from an earlier server, with its region. A library's word for a stream's number
//! proves nothing, but it can do no harm either: both sides must hold the ends of one and the same
//! connection. Not here: streams that this server makes (`pairing`).

use super::end::{EndId, Identity, State};
use super::{CARRIER, CallError, OfferArguments, Registry, Stream, StreamSide};
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{KindT, StreamNumber};

impl Registry {
    /// Adopts a joined session. Returns false if it contradicts the registry's knowledge.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn adopt(
        &mut self,
        process: ClientId,
        identity: Identity,
        arguments: OfferArguments,
        part: StreamSide,
        now_ms: u64,
    ) -> Result<bool, CallError> {
        let StreamSide { stream: number, side } = part;
        let id = EndId { process, local: arguments.local };
        let entry = self.processes.get(&process).ok_or(CallError::NoHello)?;
        if side > 1 || entry.ends.contains_key(&arguments.local) {
            return Err(CallError::Argument);
        }
        let uid = entry.info.uid;
        let is_full = !self.may_have_end(process, identity.key);
        let is_wrong_side = identity.kind == KindT::Pipe
            && matches!(identity.key, super::Key::Pipe { writes, .. } if writes != (side == 0));
        if is_full || is_wrong_side || self.keys.contains_key(&identity.key) {
            return Ok(false);
        }
        match self.streams.get(&number) {
            None => self.adopt_first(&identity, uid, number, now_ms),
            Some(stream) => {
                if !self.fits(stream, id, &identity, side) {
                    return Ok(false);
                }
                self.adopt_second(uid, number, side);
            }
        }
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.sides[side as usize] = Some(id);
        }
        let state = State::Joined { stream: number, side, is_known: true };
        self.insert(process, identity, arguments, state, now_ms);
        Ok(true)
    }

    /// Sets the memory of an adopted stream, if that is known: then its bytes are counted there.
    pub fn set_region(&mut self, number: StreamNumber, region: Descriptor) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.region = region;
        }
    }

    /// Returns true if there is such a stream.
    #[must_use]
    pub fn has_stream(&self, number: StreamNumber) -> bool {
        self.streams.contains_key(&number)
    }

    fn adopt_first(&mut self, identity: &Identity, uid: Uid, number: StreamNumber, now_ms: u64) {
        let stream = Stream {
            kind: identity.kind,
            ring_bytes: [0; 2],
            region: Descriptor::NONE,
            sides: [None; 2],
            places: [None; 2],
            users: [uid; 2],
            since_ms: now_ms,
            is_recalled: false,
        };
        self.streams.insert(number, stream);
        self.count_users([uid; 2], true);
    }

    fn adopt_second(&mut self, uid: Uid, number: StreamNumber, side: u8) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let before = stream.users;
        stream.users[side as usize] = uid;
        // The carrier acts for the user at the other side, so both sides are that user's.
        if stream.sides[1 - side as usize].is_some_and(|end| end.process == CARRIER) {
            stream.users = [uid; 2];
        }
        let after = stream.users;
        self.count_users(before, false);
        self.count_users(after, true);
    }

    /// Returns true if an end is the missing side of an adopted stream.
    fn fits(&self, stream: &Stream, own: EndId, identity: &Identity, side: u8) -> bool {
        let is_adopted = stream.places == [None; 2];
        let Some(other) = stream.sides[1 - side as usize] else { return false };
        let is_mirror =
            self.end(other).is_some_and(|end| end.identity.key == identity.key.mirror());
        is_adopted
            && stream.sides[side as usize].is_none()
            && is_mirror
            && self.may_join([own, other]).is_ok()
    }
}
