//! The flags of the program's data calls that matter to sessions.
//!
//! Not here: the routing of the calls (`io::calls`).

use crate::session::received::ReceiveTerms;

/// The flags of a receiving call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recv {
    /// `MSG_PEEK`.
    pub peek: bool,
    /// `MSG_WAITALL`.
    pub wait_all: bool,
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
    /// `MSG_TRUNC`: the result is the whole length of the datagram.
    pub whole_len: bool,
}

impl Recv {
    /// Returns the terms of one look of the call. `may_cut`: the call has waited for owed bytes
    /// already.
    pub(crate) fn look(self, may_cut: bool) -> ReceiveTerms {
        ReceiveTerms { peek: self.peek, may_cut }
    }
}

/// The flags of a sending call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Send {
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
}
