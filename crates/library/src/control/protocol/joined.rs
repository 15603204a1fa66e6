//! The protocol thread's record of a session that is away from the kernel.
//!
//! Not here: the session itself (`crate::session`), and the making and the end of records
//! (`super::joins`).

use crate::fds::slot::Slot;
use crate::moves::offer::Offer;
use sojourn_session::{InboxNumber, InboxSlot, ProcessId, StreamNumber};
use sojourn_stream::Stream;

/// A session that has joined.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) offer: Offer,
    pub(super) slot: Slot,
    pub(super) stream: StreamNumber,
    /// The other side of a stream to another host, until this process runs its engine.
    pub(super) other: Option<Stream>,
    pub(super) side: u8,
    pub(super) own: InboxSlot,
    pub(super) peer_inbox: InboxNumber,
    pub(super) peer_pid: ProcessId,
    /// Bytes of address space that the stream takes.
    pub(super) addresses: u64,
}
