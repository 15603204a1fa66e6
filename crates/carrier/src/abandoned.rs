//! Connections that nobody can put back, because there is no server any more and their keeper ends:
//! their peers hear of the end, also those that have nothing to say.
//!
//! # Theory of operation
//! The kernel's state of such a connection is as old as its move. A reset from it would have an old
//! sequence number, and the peer would drop it. So the socket is disconnected, and sends a SYN from
//! the same address to the peer: which does not open a connection there, but is answered with the
//! numbers of the one that the peer has (RFC 9293 section 3.10.7.4, "fourth"). Nobody here expects
//! that answer, so the kernel answers it with a reset in whose number the peer recognises its own:
//! as after a crash of this host (section 3.5.1). If the peer has no such connection any more but
//! listens there, its SYN is answered with a reset, too, as a rule before it has accepted anything.
//! A process without any right can do all of this, except from the port of an accepted connection
//! below 1024. A socket that was being put back is in repair mode, which that process cannot leave:
//! another one sends the SYN in its place, from the addresses of the record.
//!
//! Not here: sessions that can still be put back (`moves`), and the keeper (`keeping`).

use crate::raw;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};
use sojourn_proto::record::SessionRecord;
use sojourn_pump::sealed;
use sojourn_shm::sockopt::is_in_repair;

/// Ends the connection of a session whose socket, and perhaps its record, are among these
/// descriptors. Its packets come to the kernel.
pub(crate) fn end(held: Vec<OwnedFd>) {
    let Some(socket) = held.iter().find(|fd| is_tcp(fd)) else { return };
    // A socket that is not connected refuses this.
    if !is_in_repair(socket) && end_by(socket).is_ok() {
        return;
    }
    let Some(record) = held.iter().find_map(|fd| sealed::open(fd).ok()) else { return };
    // Closed in repair mode it says nothing, and its addresses are free.
    drop(held);
    let _ = end_anew(&record);
}

fn is_tcp(fd: &OwnedFd) -> bool {
    sockopt::socket_protocol(fd) == Ok(Some(ipproto::TCP))
}

/// Ends the connection of a socket by that socket.
fn end_by(fd: &OwnedFd) -> Result<(), Errno> {
    let local = rustix::net::getsockname(fd)?;
    let remote = rustix::net::getpeername(fd)?.ok_or(Errno::NOTCONN)?;
    raw::disconnect(fd)?;
    let flags = rustix::fs::fcntl_getfl(fd)?;
    ask(fd, &local, &remote)?;
    // If the program lives it has the socket as well.
    rustix::fs::fcntl_setfl(fd, flags)
}

/// Ends the connection of a record by another socket.
fn end_anew(record: &SessionRecord) -> Result<(), Errno> {
    let (local, remote) = (record.local, record.remote.ok_or(Errno::NOTCONN)?);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    ask(&fd, &local.into(), &remote.into())
}

/// Sends a SYN, and does not wait for the answer.
fn ask(fd: &OwnedFd, local: &SocketAddrAny, remote: &SocketAddrAny) -> Result<(), Errno> {
    sockopt::set_socket_reuseaddr(fd, true)?;
    match rustix::net::bind(fd, local) {
        // The socket has kept a port that the program itself has bound.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    let _ = rustix::net::connect(fd, remote);
    // At once: the answer need not find the socket.
    raw::disconnect(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::Repair;
    use rustix::fd::AsFd;
    use sojourn_lab::net::{Host, is_possible};
    use sojourn_proto::record::{Kind, TcpTuning};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// The peer has more of the connection than the kernel's socket knows of, as it has of a
    /// session that was away.
    fn hears(back: u32, is_begun: bool) {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut peer = listener.accept().unwrap().0;
            peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut record = crate::export(own.as_fd(), &TcpTuning::default()).unwrap();
            let Kind::Tcp(tcp) = &mut record.kind else { panic!("{record:?}") };
            for number in [&mut tcp.snd_una, &mut tcp.snd_nxt] {
                *number = number.wrapping_sub(back);
            }
            crate::import(&record, own.as_fd(), || {}).unwrap();
            let file = sealed::pack(&record).unwrap();
            if is_begun {
                // Who puts the session back dies in the middle.
                core::mem::forget(Repair::begin(own.as_fd()).unwrap());
                raw::disconnect(&own).unwrap();
            }
            end(vec![file, own.into()]);
            let heard = peer.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(heard, Err(std::io::ErrorKind::ConnectionReset), "{address} {back}");
        }
    }

    #[test]
    fn a_peer_that_waits_hears_of_it() {
        let held = rustix::thread::capabilities(None).unwrap().effective;
        if !held.contains(rustix::thread::CapabilitySet::NET_ADMIN) || !is_possible() {
            eprintln!("skipped: repair mode needs CAP_NET_ADMIN");
            return;
        }
        let host = Host::new().unwrap();
        // The last step of `import` asks the peer, and it answers twice a second at most.
        host.set("ipv4/tcp_invalid_ratelimit", "0").unwrap();
        for is_begun in [false, true] {
            let backs = [0, 1000, 1 << 30, 3 << 30];
            host.enter(|| backs.into_iter().for_each(|back| hears(back, is_begun))).unwrap();
        }
    }
}
