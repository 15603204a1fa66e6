//! Options of TCP sockets that the engine does not obey: a session with another host stays in the
//! kernel if its socket has one.
//!
//! Only options that can be read from a socket are checked here, also those that it has from its
//! listener. The program's library knows of the others, since it sees the calls that set them.
//! Options whose value alone decides are in the table of `sojourn_options` (`accepted_values`); the
//! options that the engine obeys are in `sojourn_pump::options`.

use super::accepted_values;
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, sockopt};
use sojourn_options::Kind;
use sojourn_pump::tcp_info;
use sojourn_shm::sockopt::option;

/// Settings of the system that give every socket a behaviour that the engine does not have (like
/// `TCP_NOTSENT_LOWAT` and `TCP_THIN_LINEAR_TIMEOUTS`, and looking for the path's MTU by trying),
/// and their values without it.
const USUAL: [(&str, &str); 3] = [
    ("tcp_notsent_lowat", "4294967295"),
    ("tcp_thin_linear_timeouts", "0"),
    ("tcp_mtu_probing", "0"),
];

/// Returns true if the engine can obey all options of the socket and the settings of the system.
pub(super) fn can_obey(end: BorrowedFd<'_>) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
    is_usual(read) && is_obeyed(end)
}

/// Returns true if the settings of the system are usual. A setting that this kernel does not have
/// asks for nothing.
fn is_usual(read: impl Fn(&str) -> Option<String>) -> bool {
    USUAL.iter().all(|(name, usual)| read(name).is_none_or(|text| text.trim() == *usual))
}

fn is_obeyed(end: BorrowedFd<'_>) -> bool {
    accepted_values::all(end, Kind::RemoteTcp, is_v6(end))
        && number(end, libc::SOL_SOCKET, libc::SO_PRIORITY) == priority_of(end)
        && runs_here(end)
        && !marks_congestion(end)
}

fn is_v6(end: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(end) == Ok(AddressFamily::INET6)
}

/// Returns true if explicit congestion notification was agreed (RFC 3168). The engine could do it,
/// but a socket that is put back into the kernel cannot be told.
fn marks_congestion(end: BorrowedFd<'_>) -> bool {
    tcp_info::of(end).is_ok_and(|info| info.options & tcp_info::ECN != 0)
}

/// Returns an option's value; 0 for an option that this kernel does not have.
fn number(end: BorrowedFd<'_>, level: i32, name: i32) -> i32 {
    let mut value = [0; 4];
    let is_known = option(end, level, name, &mut value).is_ok();
    if is_known { i32::from_ne_bytes(value) } else { 0 }
}

/// Returns the priority that the kernel gives to a socket's packets by `IP_TOS` (ip(7);
/// `rt_tos2priority` in the kernel's `net/route.h`). A program with this priority has set `IP_TOS`
/// and did not ask for a priority, so it does no harm that packets of the engine have none, and
/// that no queue of an interface treats them by it.
fn priority_of(end: BorrowedFd<'_>) -> i32 {
    const BY_TOS: [i32; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    let tos = sockopt::ip_tos(end).unwrap_or(0);
    BY_TOS[usize::from(tos >> 1 & 0xf)]
}

/// Returns true if the socket's congestion control is one of the engine's. The system's own choice
/// passes, too: for a program that has not chosen, the engine's nearest one will do.
fn runs_here(end: BorrowedFd<'_>) -> bool {
    let mut name = [0; 16];
    let Ok(len) = option(end, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name) else {
        return false;
    };
    let name = &name[..len.min(name.len())];
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name == b"cubic" || name == b"reno" {
        return true;
    }
    let usual = std::fs::read("/proc/sys/net/ipv4/tcp_congestion_control");
    usual.is_ok_and(|usual| usual.trim_ascii() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_shm::sockopt::set_option;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn is_obeyed_with(level: i32, name: i32, value: &[u8]) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(can_obey(client.as_fd()));
        set_option(&client, level, name, value).unwrap();
        can_obey(client.as_fd())
    }

    #[test]
    fn what_shows_in_packets_in_another_way_is_not_obeyed() {
        let one = 1i32.to_ne_bytes();
        for (level, name) in [
            (libc::SOL_SOCKET, libc::SO_DONTROUTE),
            (libc::SOL_SOCKET, libc::SO_PRIORITY),
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
            (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
            (libc::IPPROTO_IP, libc::IP_MINTTL),
            (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        ] {
            assert!(!is_obeyed_with(level, name, &one), "{level} {name}");
        }
    }

    #[test]
    fn what_the_system_gives_to_all_counts_as_their_own() {
        assert!(is_usual(|_| None));
        for (changed, usual) in USUAL {
            let of = |value: &'static str| {
                is_usual(|name| (name == changed).then(|| format!("{value}\n")))
            };
            assert!(of(usual) && !of("1"), "{changed}");
        }
    }

    #[test]
    fn what_a_listener_has_its_connections_have() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let accepted = || {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            can_obey(listener.accept().unwrap().0.as_fd())
        };
        assert!(accepted());
        let hops = 1i32.to_ne_bytes();
        set_option(&listener, libc::IPPROTO_IPV6, 73, &hops).unwrap();
        assert!(!accepted(), "IPV6_MINHOPCOUNT");
    }

    #[test]
    fn a_type_of_service_brings_its_priority() {
        for tos in [0x08i32, 0x10, 0x18, 0xb8] {
            assert!(is_obeyed_with(libc::IPPROTO_IP, libc::IP_TOS, &tos.to_ne_bytes()), "{tos}");
        }
        assert!(is_obeyed_with(libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno"));
    }
}
