//! How a program's call behaves, as its flags say.
//!
//! Not here: where it goes (`calls`).

use crate::session::received::Look;

/// How a receiving call behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recv {
    /// `MSG_PEEK`.
    pub peek: bool,
    /// `MSG_WAITALL`.
    pub wait_all: bool,
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
    /// `MSG_TRUNC`: of a datagram the whole length is the answer.
    pub whole_len: bool,
}

impl Recv {
    /// One look of the call. `may_cut`: it has waited for what is owed.
    pub(crate) fn look(self, may_cut: bool) -> Look {
        Look { peek: self.peek, may_cut }
    }
}

/// How a sending call behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Send {
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
}
