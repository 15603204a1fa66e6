//! Flags of socket calls that sessions serve. The kernel serves calls with any other flag.

use core::ffi::c_int;

/// Flags of receiving calls that a session honours.
pub(crate) const RECV_SERVED: c_int = libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;
