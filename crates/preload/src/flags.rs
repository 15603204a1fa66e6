//! Flags of socket calls that sessions serve. The kernel serves calls with any other flag.

use crate::library::Recv;
use core::ffi::c_int;

/// Flags of receiving calls that a session honours.
pub(crate) const RECV_SERVED: c_int = libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;

/// The flags of a receiving call.
#[derive(Clone, Copy)]
pub(crate) struct ReceiveFlags {
    /// What they ask for.
    pub(crate) how: Recv,
    /// The flags of `recv` and its relatives; `None` for `read` and its relatives.
    pub(crate) given: Option<c_int>,
}

impl ReceiveFlags {
    /// Returns the flags for the kernel.
    pub(crate) fn number(self) -> c_int {
        self.given.unwrap_or(0)
    }
}
