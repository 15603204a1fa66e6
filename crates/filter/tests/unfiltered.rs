//! Tests of what comes past the packet filter, between two hosts without one.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Host, two_hosts};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sojourn_filter::{Key, Unfiltered, attach_program, detach_program};
use sojourn_wire::Protocol;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Time in which an answer comes, if one is to come: much less than a SYN's retransmission takes.
const ANSWER: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(10);

fn programs() -> Option<Unfiltered> {
    match Unfiltered::load() {
        Ok(programs) => Some(programs),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn what_reaches_a_socket_is_reported_dropped_and_then_taken() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut programs) = programs() else { return };
        let listener = TcpListener::bind("10.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut far = two.run(move || TcpStream::connect(address).unwrap());
        let mut local = listener.accept().unwrap().0;
        attach_program(&local, programs.reporter().as_fd()).unwrap();
        far.write_all(b"reported").unwrap();
        let mut heard = [0; 8];
        local.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"reported");
        let arrival = programs.take_arrival().unwrap();
        assert_eq!(arrival.cookie.0, sockopt::socket_cookie(&local).unwrap());

        attach_program(&local, programs.silencer().as_fd()).unwrap();
        while programs.take_arrival().is_some() {}
        far.write_all(b"dropped").unwrap();
        local.set_read_timeout(Some(ANSWER)).unwrap();
        assert_eq!(local.read(&mut heard).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(programs.take_arrival().is_none());

        detach_program(&local);
        local.set_read_timeout(Some(LIMIT)).unwrap();
        let mut heard = [0; 7];
        local.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"dropped", "the peer has sent it again");
        assert!(programs.take_arrival().is_none());
    });
}

/// Returns a socket of the second host with an address of its own.
fn bound(two: &Host, address: &'static str) -> OwnedFd {
    two.run(move || {
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        socket
    })
}

/// Waits until a connection is there or is refused.
fn is_answered(socket: &OwnedFd, limit: Duration) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut polled, Some(&limit.try_into().unwrap())).unwrap() > 0
}

#[test]
fn a_segment_that_meets_no_connection_is_dropped_for_a_while() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut programs) = programs() else { return };
        for (here, there) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            // Nobody listens there any more.
            let address = TcpListener::bind(SocketAddr::new(here.parse().unwrap(), 0))
                .unwrap()
                .local_addr()
                .unwrap();
            let [socket, other] = [bound(&two, there), bound(&two, there)];
            let remote = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
            let key = Key::new(Protocol::Tcp, address, Some(remote)).unwrap();
            programs.begin_absence(&key).unwrap();
            for socket in [&socket, &other] {
                assert_eq!(rustix::net::connect(socket, &address), Err(Errno::INPROGRESS));
            }
            assert!(is_answered(&other, LIMIT), "{here}: of another session");
            assert!(!is_answered(&socket, ANSWER), "{here}");
            programs.end_absence(&key);
            assert!(is_answered(&socket, LIMIT), "{here}: the SYN is sent again");
            for socket in [socket, other] {
                assert_eq!(sockopt::socket_error(&socket), Ok(Err(Errno::CONNREFUSED)));
            }
        }
    });
}
