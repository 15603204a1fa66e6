//! The server's messages to a process: as they stand in a queue, and as the process gets them.
//!
//! Not here: the queues (`events`).

use sojourn_ipc::rt::Descriptor;
use sojourn_session::{
    DelegateT, HomeT, InboxNumber, Inode, KindT, LocalNumber, ProcessId, ReasonT, RerouteT, RouteT,
    StreamNumber,
};

/// An event in a queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    Join { local: LocalNumber, stream: StreamNumber },
    Recall { local: LocalNumber, stream: StreamNumber, reason: ReasonT },
    Refused { local: LocalNumber, reason: ReasonT },
    CarrierMessage { local: LocalNumber, stream: StreamNumber, what: Box<CarrierMessage> },
    Wanted { inode: Inode, home: HomeT },
}

/// A message of the carrier to the library at the other side of a stream; `local` is filled in on
/// the way.
#[derive(Clone, Debug, PartialEq)]
pub enum CarrierMessage {
    /// The library carries the session from now on.
    Delegate(DelegateT),
    /// The route to the session's peer has changed.
    Reroute(RerouteT),
    /// The terms on which a UDP socket's session may send to an address.
    Route(RouteT),
}

/// An event as its process gets it.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// Two offers are one stream.
    Join(Box<JoinOut>),
    /// A session is to go home.
    Recall {
        /// The library's number.
        local: LocalNumber,
        /// The reason.
        reason: ReasonT,
    },
    /// An offer is refused.
    Refused {
        /// The library's number.
        local: LocalNumber,
        /// The reason.
        reason: ReasonT,
    },
    /// A message of the carrier.
    CarrierMessage(Box<CarrierMessage>),
    /// The process is to bring its ends of that socket or pipe to that home.
    Wanted {
        /// The inode of the socket or pipe.
        inode: Inode,
        /// Where it is to be.
        home: HomeT,
    },
}

/// A join as its process gets it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of `join_t` in idl/session.idl")]
pub struct JoinOut {
    pub local: LocalNumber,
    pub stream: StreamNumber,
    pub side: u8,
    pub kind: KindT,
    pub is_carried: bool,
    pub ring_bytes: [u32; 2],
    pub region: Descriptor,
    pub own: InboxOut,
    pub peer: InboxOut,
    pub peer_pid: ProcessId,
    pub peer_process: Descriptor,
}

/// One side's place in an inbox; descriptors (memory, ready, attention) only if the process does
/// not have them yet.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of `inbox_t` in idl/session.idl")]
pub struct InboxOut {
    pub id: InboxNumber,
    pub slot: u32,
    pub descriptors: [Descriptor; 3],
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows, as many as go on a page.
    pub rows: Vec<T>,
    /// The number behind which the next page begins; 0 if there is none.
    pub last: u64,
}

impl<T> Page<T> {
    pub(super) fn filter_map<R>(self, row: impl FnMut(T) -> Option<R>) -> Page<R> {
        Page { rows: self.rows.into_iter().filter_map(row).collect(), last: self.last }
    }
}
