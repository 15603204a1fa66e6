//! What the server has said of a session when it joined the session's two ends.
//!
//! Not here: the session (`session`, `waiting`).

use crate::fd_name::FdName;
use crate::links::Ticket;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{DelegationToken, InboxSlot, ProcessId, StreamNumber};

/// The parts of a join that only the next server may need.
#[derive(Clone)]
pub(crate) struct JoinedStream {
    pub(crate) stream: StreamNumber,
    pub(crate) side: u8,
    pub(crate) ring_bytes: [u32; 2],
    pub(crate) region: Descriptor,
}

impl JoinedStream {
    /// Names a session that is delegated by this ticket, for the keeper. `datagrams` is not set.
    pub(crate) fn fd_name(
        &self,
        token: DelegationToken,
        ends: &JoinedEnds,
        ticket: &Ticket,
        interface: u32,
    ) -> FdName {
        FdName {
            token,
            stream: self.stream,
            side: self.side,
            ring_bytes: self.ring_bytes,
            peer: ends.peer,
            pid: ends.peer_pid,
            interface,
            owner: ticket.owner,
            link: ticket.link,
            port: ticket.port,
            datagrams: None,
        }
    }
}

/// The two ends that a join has named: where each is told of the other, and the peer's process.
#[derive(Clone)]
pub(crate) struct JoinedEnds {
    pub(crate) own: InboxSlot,
    pub(crate) peer: InboxSlot,
    pub(crate) peer_pid: ProcessId,
    pub(crate) peer_process: Descriptor,
}
