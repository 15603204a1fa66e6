//! Pairs of sockets, for the tests of both ends of a move.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns false, and says so, if this process may not use repair mode.
pub(crate) fn may_repair() -> bool {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    let may = held.contains(rustix::thread::CapabilitySet::NET_ADMIN);
    if !may {
        eprintln!("skipped: taking connections out of sockets needs CAP_NET_ADMIN");
    }
    may
}

/// Returns both ends of a connection.
pub(crate) fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    for end in [&one, &other] {
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        end.set_nodelay(true).unwrap();
    }
    (one, other)
}
