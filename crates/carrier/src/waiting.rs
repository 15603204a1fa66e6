//! A session on its way out of the kernel: in line, and moving.
//!
//! Not here: the other phases (`session`), the order (`admission`), the steps (`moves`).

use crate::hasten::Hastening;
use crate::joined::{JoinedEnds, JoinedStream};
use crate::links::Ticket;
use crate::metastate::NextHop;
use crate::program_socket::ProgramSocket;
use sojourn_proto::record::TcpTuning;
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;

/// A session that is joined, and both of whose directions go through the kernel.
pub(crate) struct Queued {
    pub(crate) socket: ProgramSocket,
    pub(crate) stream: Stream,
    pub(crate) joined: JoinedStream,
    pub(crate) ends: JoinedEnds,
}

impl Queued {
    /// Returns the session as one that begins to move out. `tuning`: as in [`Waiting`].
    pub(crate) fn into_waiting(self, since: Instant, tuning: TcpTuning) -> Waiting {
        let Self { socket, stream, joined, ends } = self;
        Waiting {
            socket,
            stream,
            joined,
            ends,
            since,
            tuning,
            asked_at: None,
            turned: None,
            reports: false,
            was_deaf: false,
            asked_to_switch: false,
            hastening: Hastening::default(),
        }
    }
}

/// A session on its way out.
pub(crate) struct Waiting {
    pub(crate) socket: ProgramSocket,
    pub(crate) stream: Stream,
    pub(crate) joined: JoinedStream,
    pub(crate) ends: JoinedEnds,
    pub(crate) since: Instant,
    /// Settings that will be in the record.
    pub(crate) tuning: TcpTuning,
    /// The time at which the program was asked to give up the kernel.
    pub(crate) asked_at: Option<Instant>,
    /// The turning of the session's packets away from the kernel, if that has happened.
    pub(crate) turned: Option<Redirection>,
    /// The socket reports segments.
    pub(crate) reports: bool,
    /// The packets were given back because the program did not give up the kernel.
    pub(crate) was_deaf: bool,
    /// The program's writer was asked to switch without a write.
    pub(crate) asked_to_switch: bool,
    pub(crate) hastening: Hastening,
}

/// The turning of a session's packets away from the kernel: to which program, and when.
pub(crate) struct Redirection {
    pub(crate) ticket: Ticket,
    pub(crate) next_hop: NextHop,
    pub(crate) since: Instant,
}
