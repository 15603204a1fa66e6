//! Tests of programs with packet sockets on the interface, between two hosts, with the kernel's TCP
//! and UDP on the far side.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Host, attached, filter, receive, receive_with, two_hosts, wait_for};
use rustix::fd::{AsFd, AsRawFd};
use sojourn_filter::{Key, Method, NewOwner, Options, Reason};
use sojourn_wire::Protocol;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

/// Connects the second host to the first, on which this runs. Returns the first host's end, and the
/// second's.
fn connection(two: &Host, address: &'static str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let local = listener.local_addr().unwrap();
    let far = two.run(move || TcpStream::connect(local).unwrap());
    (listener.accept().unwrap().0, far)
}

fn key_of(stream: &TcpStream) -> Key {
    let remote = stream.peer_addr().unwrap();
    Key::new(Protocol::Tcp, stream.local_addr().unwrap(), Some(remote)).unwrap()
}

/// Returns the number of bytes that the peer has not acknowledged (tcp(7), `SIOCOUTQ`).
fn unacknowledged(stream: &TcpStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: the kernel writes an int, for which there is room.
    #[allow(unsafe_code, reason = "a request that rustix does not have")]
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0);
    bytes
}

fn moves_and_returns(address: &'static str, method: Method) {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options { method, ..Options::default() }) else { return };
        let (mut local, mut far) = connection(&two, address);
        let (mut untouched, mut far_untouched) = connection(&two, address);
        let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
        let other = filter.add_owner(|_| Ok(())).unwrap().socket;
        assert_eq!(attached(), [""; 0], "nothing is attached without a session");
        let key = key_of(&local);
        filter.add_flow(key, owner).unwrap();

        far.write_all(b"to the owner").unwrap();
        receive_with(&socket, b"to the owner");
        // The far kernel retransmits, because nothing answers here.
        receive_with(&socket, b"to the owner");
        receive_with(&socket, b"to the owner");
        assert_eq!(unacknowledged(&far), 12);
        local.set_nonblocking(true).unwrap();
        assert_eq!(local.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);

        far_untouched.write_all(b"to the kernel").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(untouched.read(&mut buffer).unwrap(), 13);
        wait_for("acknowledgement", || (unacknowledged(&far_untouched) == 0).then_some(()));
        assert_eq!(receive(&other), None, "another owner sees nothing");
        let counts = filter.counts().unwrap();
        assert!(counts.of(Reason::TakenDirect) >= 3);
        assert_eq!(counts.of(Reason::Misdirected), 0);
        assert_eq!(receive(&socket).filter(|frame| common::has(frame, b"to the kernel")), None);

        filter.remove_flow(&key).unwrap();
        assert_eq!(attached(), [""; 0], "the last session's removal detaches");
        let len = wait_for("data in the kernel", || local.read(&mut buffer).ok());
        assert_eq!(&buffer[..len], b"to the owner");
        wait_for("acknowledgement", || (unacknowledged(&far) == 0).then_some(()));
    });
}

#[test]
fn a_session_moves_and_returns() {
    moves_and_returns("10.0.0.1:0", Method::Automatic);
}

#[test]
fn a_session_of_ipv6_moves_and_returns() {
    moves_and_returns("[fd00::1]:0", Method::Automatic);
}

#[test]
fn a_session_moves_and_returns_without_links() {
    moves_and_returns("10.0.0.1:0", Method::Classic);
}

#[test]
fn nobody_changes_an_owners_filter() {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let socket = filter.add_owner(|_| Ok(())).unwrap().socket;
        let fd = socket.as_fd().as_raw_fd();
        let detach = |level, name: i32, value: i32| {
            let at = (&raw const value).cast();
            // SAFETY: the kernel reads an int.
            #[allow(unsafe_code, reason = "options that rustix does not have")]
            let result = unsafe { libc::setsockopt(fd, level, name, at, 4) };
            (result, std::io::Error::last_os_error().raw_os_error())
        };
        let refused = (-1, Some(libc::EPERM));
        assert_eq!(detach(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0), refused);
        assert_eq!(detach(libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 0), refused);
        // PACKET_FANOUT_DATA would replace the program of the group, through any member.
        assert_eq!(detach(libc::SOL_PACKET, 22, 0), refused);
    });
}

/// Makes the first fragment of a TCP segment, as a router between the hosts could send it.
fn first_fragment(key: &Key) -> Vec<u8> {
    let (local, remote) = (key.local(), key.remote().unwrap());
    let (IpAddr::V4(to), IpAddr::V4(from)) = (local.ip(), remote.ip()) else { unreachable!() };
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 44, 0, 1, 0x20, 0, 64, 6, 0, 0]);
    bytes.extend([from.octets(), to.octets()].concat());
    let words = bytes[14..].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum = words.sum::<u32>();
    bytes[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    bytes.extend([remote.port().to_be_bytes(), local.port().to_be_bytes()].concat());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0, b'f', b'f', b'f', b'f']);
    bytes
}

#[test]
fn a_fragment_is_noted() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let (local, _far) = connection(&two, "10.0.0.1:0");
        let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
        let key = key_of(&local);
        filter.add_flow(key, owner).unwrap();
        assert!(!filter.rule(&key).unwrap().fragment_seen);
        assert!(filter.take_fragmented().unwrap().is_empty());
        let (away, here) = (sojourn_filter::away().unwrap(), filter.interface().index);
        assert_eq!(away.iter().map(|one| (one.index, one.key)).collect::<Vec<_>>(), [(here, key)]);
        let fragment = first_fragment(&key);
        let again = fragment.clone();
        two.run(move || common::send_frame("eth0", &fragment));
        wait_for("note", || filter.rule(&key).unwrap().fragment_seen.then_some(()));
        let noted = |filter: &mut sojourn_filter::Filter| {
            let taken = filter.take_fragmented().unwrap();
            (!taken.is_empty()).then_some(taken)
        };
        assert_eq!(wait_for("session with a note", || noted(&mut filter)), [key]);
        assert_eq!(filter.counts().unwrap().of(Reason::Fragmented), 1);
        assert_eq!(noted(&mut filter), None, "noted once for each fragment");
        two.run(move || common::send_frame("eth0", &again));
        assert_eq!(wait_for("session with a note", || noted(&mut filter)), [key]);
        assert_eq!(receive(&socket), None);
        filter.remove_flow(&key).unwrap();
        assert!(sojourn_filter::away().unwrap().is_empty());
    });
}
