//! Receiving clients' descriptors in another process.
//!
//! # Theory of operation
//! A descriptor that a client sends can refer to any file: a file of a file system in user space,
//! whose closing waits for that file system, or a pipe whose closing waits for a lock that the
//! client holds. Nothing can end such a wait, so a process that has such a descriptor in its table
//! may be impossible to end. A server that cannot afford that has [`Proxies`]: each client's socket
//! is shared with an expendable process, which receives the packets that have descriptors
//! ([`forward`]). The proxy sends such a packet over the **line** between both, with replacements
//! for the descriptors.
//!
//! Only these two processes read the client's socket, and the server asks only when it has seen a
//! packet with descriptors. So the proxy answers at once; if it does not, the server counts it as
//! lost, for all clients whose sockets it shares ([`ProxyState`]): the server waits for each proxy
//! once, not once for each of a user's clients. While the proxy shares the socket, the server's
//! close is never the last one, so the descriptors that remain in the queue are closed by the
//! proxy, too.
//!
//! Not here: the processes, and the replacements of descriptors (`sojourn-server`); packets
//! (`control`).

use crate::ancillary::{self, Arrived};
use crate::control::{self, PACKET_LEN, Received};
use crate::rt::FDS_MAX;
use core::fmt::Debug;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendFlags, Shutdown, shutdown};
use rustix::process::Uid;
use std::sync::Arc;

/// The processes that receive descriptors for an endpoint.
pub trait Proxies: Send + Sync + Debug {
    /// Shares the socket of a client that runs as `user`, and returns the socket with the
    /// server's end of the line. On `None` there is no proxy for that user, and the client is not
    /// served.
    fn share(&self, socket: OwnedFd, user: Uid) -> Option<ClientSocket>;
}

/// The time limit for a proxy's answer in seconds.
const ANSWER_S: i64 = 2;
/// The length of a proxy's answer: the outcome, a flag for lost descriptors, and the packet.
const ANSWER_LEN: usize = 2 + PACKET_LEN + 1;
const PACKET: u8 = 0;
const EMPTY: u8 = 1;
const ENDED: u8 = 2;

/// The state of a proxy: it answers, or has failed to. Shared by all clients whose sockets it has.
#[derive(Clone, Debug, Default)]
pub struct ProxyState {
    is_lost: Arc<AtomicBool>,
}

impl ProxyState {
    /// Returns true if the proxy has not answered a question in time. It is asked nothing more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns true if a client's socket is still shared with the proxy.
    #[must_use]
    pub fn has_clients(&self) -> bool {
        // Each of their lines has a clone.
        Arc::strong_count(&self.is_lost) > 1
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }
}

/// The server's end of a line, and the state of the proxy at the other end.
#[derive(Debug)]
struct Line {
    fd: OwnedFd,
    proxy: ProxyState,
}

/// A client's socket with the line to its proxy, if it has one.
#[derive(Debug)]
pub struct ClientSocket {
    // The socket is dropped before the line: when the line ends, the proxy closes its copy, which
    // is then the last one.
    socket: OwnedFd,
    line: Option<Line>,
}

impl From<OwnedFd> for ClientSocket {
    /// Creates a socket without a proxy, whose descriptors this process receives.
    fn from(socket: OwnedFd) -> Self {
        Self { socket, line: None }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // The proxy's copy keeps the socket open a little longer.
        if self.line.is_some() {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}

impl ClientSocket {
    /// Creates a socket that is shared with the process at the other end of the line.
    #[must_use]
    pub fn new(socket: OwnedFd, line: OwnedFd, proxy: ProxyState) -> Self {
        Self { socket, line: Some(Line { fd: line, proxy }) }
    }

    /// Receives one packet without waiting for the client.
    pub(crate) fn receive(&self) -> Received {
        let mut bytes = [0; PACKET_LEN + 1];
        let arrived = self.receive_bytes(&mut bytes);
        control::read(arrived, &bytes)
    }

    fn receive_bytes(&self, bytes: &mut [u8; PACKET_LEN + 1]) -> Result<Arrived, Errno> {
        match &self.line {
            Some(line) if ancillary::has_beside(self.socket.as_fd())? => ask(line, bytes),
            _ => ancillary::receive(self.socket.as_fd(), bytes),
        }
    }
}

/// Asks the proxy for the next packet.
fn ask(line: &Line, bytes: &mut [u8; PACKET_LEN + 1]) -> Result<Arrived, Errno> {
    if line.proxy.is_lost() {
        return Err(Errno::TIMEDOUT);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(&line.fd, &[0], flags)?;
    let limit = Timespec { tv_sec: ANSWER_S, tv_nsec: 0 };
    let mut set = [PollFd::new(&line.fd, PollFlags::IN)];
    loop {
        match poll(&mut set, Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(0) => {
                line.proxy.lose();
                return Err(Errno::TIMEDOUT);
            }
            Ok(_) => break,
            Err(error) => return Err(error),
        }
    }
    let mut answer = [0; ANSWER_LEN];
    let arrived = ancillary::receive(line.fd.as_fd(), &mut answer)?;
    let len = arrived.len.checked_sub(2).ok_or(Errno::PIPE)?;
    match answer[0] {
        PACKET => {}
        EMPTY => return Err(Errno::AGAIN),
        _ => return Err(Errno::PIPE),
    }
    bytes[..len].copy_from_slice(&answer[2..2 + len]);
    let lost = arrived.lost || answer[1] != 0;
    Ok(Arrived { len, fds: arrived.fds, lost, sender: None })
}

/// Serves one question in the proxy: receives it from the line, receives one packet from the
/// client, and answers. `replace` is called for each descriptor, and the first [`FDS_MAX`] results
/// are sent to the server. No descriptor of the client's is closed here. Returns false if the
/// server has ended the line.
pub fn forward(
    client: BorrowedFd<'_>,
    line: BorrowedFd<'_>,
    mut replace: impl FnMut(OwnedFd) -> Option<OwnedFd>,
) -> bool {
    let mut question = [0; 1];
    match ancillary::receive(line, &mut question) {
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Ok(arrived) if arrived.len == 1 => {}
        _ => return false,
    }
    let mut answer = [0; ANSWER_LEN];
    let (len, fds) = match ancillary::receive_all(client, &mut answer[2..]) {
        Ok(arrived) => {
            let count = arrived.fds.len();
            let mut fds: Vec<OwnedFd> = arrived.fds.into_iter().filter_map(&mut replace).collect();
            fds.truncate(FDS_MAX);
            answer[1] = u8::from(arrived.lost || fds.len() < count);
            (arrived.len, fds)
        }
        Err(Errno::AGAIN | Errno::INTR) => {
            answer[0] = EMPTY;
            (0, Vec::new())
        }
        Err(_) => {
            answer[0] = ENDED;
            (0, Vec::new())
        }
    };
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    ancillary::send(line, &[IoSlice::new(&answer[..2 + len])], &fds).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Packet, Topic};
    use core::mem::MaybeUninit;
    use rustix::net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags,
        SocketType, sendmsg, socketpair,
    };

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn what_is_beside_a_packet_goes_by_the_proxy_and_nothing_else() {
        let (client, server) = pair();
        let (ours, theirs) = pair();
        let shared = server.try_clone().unwrap();
        let server = ClientSocket::new(server, ours, ProxyState::default());
        assert!(matches!(server.receive(), Received::Empty));
        control::send(client.as_fd(), Packet::new(Topic::Wake, 1), &[]).unwrap();
        assert!(matches!(server.receive(), Received::Packet { .. }));
        let two = [client.as_fd(), client.as_fd()];
        control::send(client.as_fd(), Packet::new(Topic::Descriptors, 2), &two).unwrap();
        let mut seen = 0;
        let proxy = std::thread::spawn(move || {
            while forward(shared.as_fd(), theirs.as_fd(), |_| {
                seen += 1;
                std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
            }) {
                let _ = poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None);
            }
            seen
        });
        let Received::Packet { packet, fds, lost, .. } = server.receive() else {
            panic!("no packet");
        };
        assert_eq!((packet.number, fds.len(), lost), (2, 2, false));
        assert!(fds.iter().all(|fd| rustix::net::sockopt::socket_type(fd).is_err()));
        drop(server);
        assert_eq!(proxy.join().unwrap(), 2);
        assert!(matches!(control::receive(client.as_fd()), Received::Ended));
    }

    #[test]
    fn a_proxy_that_has_gone_is_the_clients_end() {
        let (client, server) = pair();
        let (ours, theirs) = pair();
        let server = ClientSocket::new(server, ours, ProxyState::default());
        drop(theirs);
        let packet = Packet::new(Topic::Descriptors, 2);
        control::send(client.as_fd(), packet, &[client.as_fd()]).unwrap();
        assert!(matches!(server.receive(), Received::Ended));
    }
    #[test]
    fn a_proxy_that_does_not_answer_is_waited_for_once() {
        let proxy = ProxyState::default();
        let mut asked = [(); 3].map(|()| {
            let ((client, server), (ours, theirs)) = (pair(), pair());
            let packet = Packet::new(Topic::Descriptors, 2);
            control::send(client.as_fd(), packet, &[client.as_fd()]).unwrap();
            let server = ClientSocket::new(server, ours, proxy.clone());
            assert!(matches!(server.receive(), Received::Ended));
            let question = rustix::net::recv(&theirs, &mut [0; 1], RecvFlags::DONTWAIT);
            (client, question.is_ok())
        });
        assert!(proxy.is_lost());
        assert_eq!(asked.each_mut().map(|(_, is_asked)| *is_asked), [true, false, false]);
    }

    /// What the kernel has no room for it would close in this thread, which may wait for ever.
    #[test]
    fn each_descriptor_of_a_packet_is_received_and_replaced() {
        let (client, server) = pair();
        let (ours, theirs) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = [file.as_fd(); 200];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
        let flags = SendFlags::DONTWAIT;
        sendmsg(&client, &[IoSlice::new(&[0; PACKET_LEN])], &mut beside, flags).unwrap();
        rustix::net::send(&ours, &[0], flags).unwrap();
        let mut replaced = Vec::new();
        assert!(forward(server.as_fd(), theirs.as_fd(), |fd| {
            let copy = fd.try_clone().ok();
            replaced.push(fd);
            copy
        }));
        assert_eq!(replaced.len(), many.len());
        let mut answer = [0; ANSWER_LEN];
        let arrived = ancillary::receive(ours.as_fd(), &mut answer).unwrap();
        assert_eq!(
            (arrived.len, arrived.fds.len(), arrived.lost),
            (2 + PACKET_LEN, FDS_MAX, false)
        );
        assert_eq!((answer[0], answer[1]), (PACKET, 1));
    }
}
