//! Statuses of the interface: error numbers of Linux for the errors of a packet interface.
//!
//! Not here: other values of the interface (`stubs`).

use rustix::io::Errno;
use sojourn_netif::{LinkError, SendError};

/// Returns the status of a send.
#[cfg(feature = "server")]
pub(crate) fn of_send(sent: Result<(), SendError>) -> u32 {
    let errno = match sent {
        Ok(()) => return 0,
        Err(SendError::Full) => Errno::AGAIN,
        Err(SendError::Dropped) => Errno::NOBUFS,
        Err(SendError::TooLong) => Errno::MSGSIZE,
        Err(SendError::NoOffload) => Errno::OPNOTSUPP,
        Err(SendError::Invalid) => Errno::INVAL,
        Err(SendError::Link(error)) => return of_link(error),
    };
    number(errno)
}

/// Returns the status of a link's error.
#[cfg(feature = "server")]
pub(crate) fn of_link(error: LinkError) -> u32 {
    number(match error {
        LinkError::Down => Errno::NETDOWN,
        LinkError::Gone => Errno::NODEV,
        LinkError::Failed(errno) => errno,
    })
}

/// Returns an error number as a status.
#[cfg(feature = "server")]
pub(crate) fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// Returns the result of a send with that status.
pub(crate) fn to_sent(status: u32) -> Result<(), SendError> {
    match errno_of(status) {
        None => Ok(()),
        Some(Errno::OPNOTSUPP) => Err(SendError::NoOffload),
        Some(errno) => Err(errno.into()),
    }
}

/// Returns the result of another call with that status.
pub(crate) fn to_link(status: u32) -> Result<(), LinkError> {
    errno_of(status).map_or(Ok(()), |errno| Err(errno.into()))
}

/// Returns the error number of a status; a number that Linux does not have is an I/O error.
pub(crate) fn errno_of(status: u32) -> Option<Errno> {
    const ERRNO_MAX: u32 = 4095;
    match status {
        0 => None,
        1..=ERRNO_MAX => Some(Errno::from_raw_os_error(status.cast_signed())),
        _ => Some(Errno::IO),
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn every_result_of_a_send_arrives_as_it_was() {
        let results = [
            Ok(()),
            Err(SendError::Full),
            Err(SendError::Dropped),
            Err(SendError::TooLong),
            Err(SendError::NoOffload),
            Err(SendError::Invalid),
            Err(SendError::Link(LinkError::Down)),
            Err(SendError::Link(LinkError::Gone)),
            Err(SendError::Link(LinkError::Failed(Errno::IO))),
        ];
        for sent in results {
            assert_eq!(to_sent(of_send(sent)), sent);
        }
        assert_eq!(to_link(of_link(LinkError::Down)), Err(LinkError::Down));
    }

    #[test]
    fn any_status_of_a_hostile_driver_is_an_error() {
        for status in [1, 4095, 4096, u32::MAX, 1 << 31] {
            assert!(to_sent(status).is_err() && to_link(status).is_err(), "{status}");
        }
    }
}
