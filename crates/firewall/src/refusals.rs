//! Routes of this host that refuse packets (`blackhole`, `unreachable` and `prohibit` of
//! ip-route(8)).
//!
//! A session with a peer has the way that the kernel tells of that peer. A UDP socket without a
//! peer may send to anybody: a program that does not ask for the way could send through its port to
//! destinations that the host's routes refuse to all. So such a socket stays in the kernel. A route
//! to everything says nothing: either there is a better one, or there is no way out. Not here:
//! routing rules (`routing`).

use crate::netlink::{Question, dump_at_most};
use crate::session::{Family, Session};
use rustix::io::Errno;

/// `RTM_GETROUTE`.
const GET_ROUTE: u16 = 26;
/// Length of `struct rtmsg`, and the places of its length of the destination and its type.
const HEADER: usize = 12;
const DESTINATION_LEN: usize = 1;
const TYPE: usize = 7;
/// `RTN_BLACKHOLE`, `RTN_UNREACHABLE` and `RTN_PROHIBIT`.
const REFUSING: std::ops::RangeInclusive<u8> = 6..=8;
/// The most bytes of routes that are read of a family: some ten thousand. What more there are may
/// refuse anything.
const BYTES_MAX: usize = 1 << 20;
/// How often a dump is tried that changes meanwhile.
const TRIES: usize = 4;

/// The families (IPv4, IPv6) of which some route refuses packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals([bool; 2]);

impl Refusals {
    /// Reads the routes. Those of a family that cannot be read may refuse anything.
    pub(crate) fn read() -> Self {
        Self([libc::AF_INET, libc::AF_INET6].map(refuses))
    }

    /// Returns true if no route could concern any session.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns what could say something about the session's packets.
    pub(crate) fn concerning(self, session: &Session) -> Option<String> {
        let Self([v4, v6]) = self;
        let refuses = if session.family() == Family::V4 { v4 } else { v6 };
        let concerns = refuses && session.remote.is_none();
        concerns.then(|| "a route that refuses packets (ip route)".to_owned())
    }
}

fn refuses(family: i32) -> bool {
    let mut body = [0; HEADER];
    body[0] = family as u8;
    let question = Question { protocol: None, kind: GET_ROUTE, body: &body };
    for _ in 0..TRIES {
        let mut any = false;
        match dump_at_most(question, &mut { BYTES_MAX }, |route| any |= is_refusing(route.body)) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => return false,
            read => return any || read.is_err(),
        }
    }
    true
}

/// Returns true if the route refuses packets to some destinations. A malformed one may.
fn is_refusing(route: &[u8]) -> bool {
    let is_to_all = route.get(DESTINATION_LEN) == Some(&0);
    !is_to_all && route.get(TYPE).is_none_or(|kind| REFUSING.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_to_some_that_lead_nowhere_refuse() {
        let route = |bits: u8, kind: u8| {
            let mut bytes = [0; HEADER];
            (bytes[DESTINATION_LEN], bytes[TYPE]) = (bits, kind);
            bytes
        };
        let unicast = 1;
        assert!([6, 7, 8].iter().all(|kind| is_refusing(&route(32, *kind))));
        assert!(!is_refusing(&route(32, unicast)) && !is_refusing(&route(0, 7)));
        assert!(is_refusing(&[2]));
    }
}
