//! Ends: the server's view of each, and its state.
//!
//! Not here: the decisions about them (`pairing`).

use crate::holders::Object;
use crate::key::Key;
use crate::pins::Pin;
use sojourn_ipc::ClientId;
use sojourn_session::{Inode, KindT, LocalNumber, StreamNumber};
use std::sync::Arc;

/// The server's view of an end.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The kernel object, and which of its ends this is.
    pub key: Key,
    /// Its kind.
    pub kind: KindT,
    /// This end's address, for people.
    pub from: String,
    /// The other end's.
    pub to: String,
    /// Bytes that the kernel holds without the reader's help: first of the direction that is
    /// written here, then of the one that is read here.
    pub holds: [u32; 2],
    /// The object by which its holders are found.
    pub object: Object,
    /// The object that keeps a pipe's key its own.
    pub pin: Option<Arc<Pin>>,
}

impl Identity {
    /// Returns the view of the same connection from its other end.
    #[must_use]
    pub fn mirrored(self) -> Self {
        Self { key: self.key.mirror(), from: self.to, to: self.from, ..self }
    }
}

/// An offered or joined session of one process.
#[derive(Debug)]
pub(super) struct End {
    pub(super) identity: Identity,
    pub(super) ring_bytes: u32,
    pub(super) set: u32,
    /// Its library hands it to the protocol server once it could leave the kernel.
    pub(super) is_for_protocol_server: bool,
    pub(super) inode: Inode,
    /// Its place in lists.
    pub(super) serial: u64,
    pub(super) since_ms: u64,
    /// The server has found that no other process holds it. If false, only its library has said so.
    pub(super) is_counted: bool,
    pub(super) state: State,
}

impl End {
    pub(super) fn is_offered(&self) -> bool {
        !matches!(self.state, State::Joined { .. })
    }
}

/// An end of a session: a process, and that process's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndId {
    /// The process, or the carrier.
    pub process: ClientId,
    /// The process's own number.
    pub local: LocalNumber,
}

/// One side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSide {
    /// The stream's number.
    pub stream: StreamNumber,
    /// 0 or 1.
    pub side: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its holders are being counted, under this number.
    Counting(u64),
    /// It waits for its mirror image.
    Waiting,
    /// One side of a stream; `is_known`: the process has collected the join.
    Joined { stream: StreamNumber, side: u8, is_known: bool },
}
