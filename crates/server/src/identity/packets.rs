//! Packet sockets, with which a program shows that it may have packets.
//!
//! A program with a packet socket that is bound to nothing can bind it to any interface of its name
//! space, and needs no right for that (packet(7)). So it may as well be given one that is bound. A
//! socket that is bound, or has a filter that cannot be taken away, can do less: it shows nothing.
//! Not here: the packet sockets that programs are given (`sojourn_carrier`).

use super::diag::Diag;
use crate::raw;
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sojourn_shm::sockopt::option;

/// `SO_LOCK_FILTER` (`asm-generic/socket.h`).
const SO_LOCK_FILTER: i32 = 44;

/// Returns true for a packet socket of the server's network name space that can be bound to any
/// interface.
pub fn is_packets(end: BorrowedFd<'_>, diag: &Diag) -> bool {
    let mut locked = [0; 4];
    sockopt::socket_domain(end) == Ok(AddressFamily::PACKET)
        && sockopt::socket_type(end) == Ok(SocketType::RAW)
        && raw::netns_cookie(end) == Ok(diag.own.space)
        && option(end, libc::SOL_SOCKET, SO_LOCK_FILTER, &mut locked).is_ok()
        && locked == [0; 4]
        && raw::is_unbound_packets(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::net::SocketFlags;
    use sojourn_shm::sockopt::set_option;

    fn packets(kind: SocketType) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::PACKET, kind, flags, None).ok()
    }

    fn shows(socket: &impl AsFd) -> bool {
        is_packets(socket.as_fd(), &Diag::new(false).unwrap())
    }

    #[test]
    fn only_what_can_be_bound_to_anything_shows_a_right() {
        assert!(!shows(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap()));
        let Some(unbound) = packets(SocketType::RAW) else {
            eprintln!("skipped: no packet sockets here");
            return;
        };
        assert!(shows(&unbound));
        assert!(!shows(&packets(SocketType::DGRAM).unwrap()));
        set_option(&unbound, libc::SOL_SOCKET, SO_LOCK_FILTER, &1i32.to_ne_bytes()).unwrap();
        assert!(!shows(&unbound), "its filter cannot be taken away");
        let bound = packets(SocketType::RAW).unwrap();
        raw::bind_packets(&bound).unwrap();
        assert!(!shows(&bound));
    }

    #[test]
    fn another_name_space_s_shows_nothing() {
        let other = std::thread::spawn(|| {
            raw::new_netns().ok()?;
            packets(SocketType::RAW)
        });
        match other.join().unwrap() {
            Some(other) => assert!(!shows(&other)),
            None => eprintln!("skipped: no name spaces here"),
        }
    }
}
