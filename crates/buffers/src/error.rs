//! The reasons why a call fails.
//!
//! Not here: the end of the peer, which is no error (a loan without bytes).

use core::ffi::c_int;

/// The reason why a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The deadline has passed. Bytes that were committed stay committed, and bytes that arrived
    /// are lent by a later call.
    #[error("the time is over")]
    TimedOut,
    /// A signal handler has run during the wait.
    #[error("a signal has interrupted the call")]
    Interrupted,
    /// The system call on the descriptor has failed with this `errno`.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    System(c_int),
}

impl Error {
    /// Returns the `errno` of the calling thread's last system call as an error.
    pub(crate) fn last() -> Self {
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => Self::TimedOut,
            Some(libc::EINTR) => Self::Interrupted,
            other => Self::System(other.unwrap_or(libc::EIO)),
        }
    }

    /// Returns the `errno` that stands for the error in C.
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::TimedOut => libc::EAGAIN,
            Self::Interrupted => libc::EINTR,
            Self::System(number) => number,
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::TimedOut => std::io::ErrorKind::TimedOut.into(),
            other => Self::from_raw_os_error(other.number()),
        }
    }
}
