//! The options of a socket: do they have the values with which its session can move?
//!
//! They are looked at on each socket itself, since a socket that was accepted has them from its
//! listener. The table of `sojourn_options` has the options and values. Not here: options for which
//! a value is not enough (`remote`, `datagram`).

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use sojourn_options::{AcceptedValue, Kind, SocketOption};
use sojourn_shm::sockopt;

/// Returns true if all options that keep sessions of that kind in the kernel have their accepted
/// values. Those of IPv6 are looked at if `is_v6`.
pub(super) fn all(end: BorrowedFd<'_>, kind: Kind, is_v6: bool) -> bool {
    let mut options = sojourn_options::keeping(kind);
    options.all(|option| (option.level == libc::IPPROTO_IPV6 && !is_v6) || is(end, option))
}

/// Returns true if an option has its accepted value, or does not exist here.
fn is(end: BorrowedFd<'_>, option: &SocketOption) -> bool {
    let (level, number) = (option.level, option.number);
    let get = |value: &mut [u8]| sockopt::option(end, level, number, value);
    let mut value = [0; 4];
    let is_accepted = match option.accepted {
        AcceptedValue::Rule(_) => return true,
        AcceptedValue::Empty => get(&mut [0; 64]).map(|len| len == 0),
        // Asked with no room, the kernel answers the number of the filter's instructions
        // (SO_GET_FILTER). It does not show eBPF programs: see `has_filter_program`.
        AcceptedValue::NoFilter => match get(&mut []) {
            Err(Errno::ACCESS) => Ok(true),
            count => count.map(|count| count == 0),
        },
        AcceptedValue::ZeroOrOne => {
            get(&mut value).map(|_| matches!(i32::from_ne_bytes(value), 0 | 1))
        }
        AcceptedValue::Number(number) => {
            get(&mut value).map(|_| i32::from_ne_bytes(value) == number)
        }
    };
    match is_accepted {
        Ok(is_accepted) => is_accepted,
        Err(error) if level == libc::SOL_SOCKET => {
            matches!(error, Errno::NOPROTOOPT | Errno::OPNOTSUPP)
        }
        // Protocols have more than one error for an option that they do not know.
        Err(_) => true,
    }
}

/// Returns true if an eBPF program filters the socket. The carrier gives one to the socket of a
/// session that is away, which is shown again to the next server. A program's own keeps the session
/// in the kernel; of sessions with other hosts only the carrier knows whose it is.
pub(super) fn has_filter_program(end: BorrowedFd<'_>) -> bool {
    let filter = sockopt::option(end, libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut []);
    filter == Err(Errno::ACCESS)
}

/// Returns true if an option is not 0.
pub(super) fn is_set(end: BorrowedFd<'_>, level: i32, name: i32) -> bool {
    let mut value = [0; 4];
    sockopt::option(end, level, name, &mut value).is_ok() && value != [0; 4]
}
