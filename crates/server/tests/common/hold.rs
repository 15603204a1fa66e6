//! What a program does that holds locks of what it sends: descriptors beside packets that are no
//! greeting, many of them, and held ones among them.
//!
//! Not here: holding a lock (`sojourn_lab::hold`).

use super::Fake;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, sendmsg,
};
use std::io::IoSlice;

impl Fake {
    /// Connects, and sends so many packets that are no greeting, with descriptors beside each.
    fn send_packets(&self, count: u64, fds: &[BorrowedFd<'_>]) {
        let socket = self.connected();
        for _ in 0..count {
            send_beside(&socket, b"what is no greeting, and as long as one.", fds);
        }
        std::mem::forget(socket);
    }

    /// Sends a session's end beside bytes that are no greeting, several times, and closes it.
    pub(super) fn send_held(&mut self, local: u64) -> String {
        let end = self.ends.remove(&local).unwrap();
        self.send_packets(3, &[end.as_fd()]);
        // It waits where nobody else has it any more.
        std::thread::spawn(move || drop(end));
        "ok".into()
    }

    /// The same with more descriptors than the server has room for; the held one is among the last.
    pub(super) fn send_many_held(&mut self, local: u64) -> String {
        let end = self.ends.remove(&local).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut fds = [file.as_fd(); 64];
        fds[40..].fill(end.as_fd());
        self.send_packets(1, &fds);
        std::thread::spawn(move || drop(end));
        "ok".into()
    }

    /// So many connections with a packet each that is no greeting, and a descriptor beside it.
    pub(super) fn send_beside(&self, count: u64) -> String {
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..count {
            self.send_packets(1, &[file.as_fd()]);
        }
        "ok".into()
    }

    /// So many clients, each of which sends as many descriptors beforehand as it may and no call
    /// (packets of `sojourn_ipc`: a greeting, and descriptors).
    pub(super) fn hoard(&self, clients: u64) -> String {
        let packet = |topic: u32, id: u32, words: [u64; 4]| {
            let head = [topic, id].into_iter().flat_map(u32::to_ne_bytes);
            head.chain(words.into_iter().flat_map(u64::to_ne_bytes)).collect::<Vec<u8>>()
        };
        let file = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for _ in 0..clients {
            let socket = self.connected();
            let greeting = packet(1, 0, [0x534a_4950_4331_0001, 8 | 4096 << 32, 4096, 0]);
            let sent = rustix::net::send(&socket, &greeting, SendFlags::NOSIGNAL);
            if sent.is_err()
                || rustix::net::recv(&socket, &mut [0; 64], RecvFlags::empty()).is_err()
            {
                return "refused".into();
            }
            for batch in 0..16 {
                send_beside(&socket, &packet(5, 1000 + batch, [0; 4]), &[file.as_fd(); 16]);
            }
            std::mem::forget(socket);
        }
        "ok".into()
    }

    pub(super) fn connected(&self) -> OwnedFd {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = match self.server.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(&*self.server),
        };
        rustix::net::connect(&socket, &address.unwrap()).unwrap();
        socket
    }
}

/// Sends a packet with descriptors beside it. The server may have hung up already.
fn send_beside(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
