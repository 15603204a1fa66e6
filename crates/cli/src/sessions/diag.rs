//! The peers of Unix sockets, from the kernel's `sock_diag`; `/proc` does not have them.
//!
//! One request lists all Unix sockets of this process's network name space. See sock_diag(7).

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use sojourn_session::Inode;
use sojourn_wire::netlink::{HEADER_BYTES, Message, find, messages};
use std::collections::HashMap;
use std::time::Duration;

/// `linux/netlink.h`, `linux/sock_diag.h`, `linux/unix_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const UDIAG_SHOW_PEER: u32 = 0x4;
const UNIX_DIAG_PEER: u16 = 2;
const AF_UNIX: u8 = 1;
/// Length of `struct unix_diag_msg`.
const MESSAGE: usize = 16;
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Returns the inode of the peer of each connected Unix socket, by the socket's inode.
pub(super) fn peers() -> Result<HashMap<Inode, Inode>, Errno> {
    let socket = ask()?;
    let mut peers = HashMap::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (_, len) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if read(buffer.get(..len).unwrap_or_default(), &mut peers)? {
            return Ok(peers);
        }
    }
}

/// Checks that the kernel supports the request.
pub(crate) fn works() -> Result<(), Errno> {
    peers().map(|_| ())
}

fn ask() -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))?;
    // nlmsghdr, then unix_diag_req.
    let mut request = Vec::with_capacity(HEADER_BYTES + 24);
    request.extend((HEADER_BYTES as u32 + 24).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([AF_UNIX, 0, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(0u32.to_ne_bytes());
    request.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    request.extend([0; 8]);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    Ok(socket)
}

/// Reads the messages of one datagram. Returns true after the last message of the answer.
fn read(bytes: &[u8], peers: &mut HashMap<Inode, Inode>) -> Result<bool, Errno> {
    for Message { kind, body, .. } in messages(bytes) {
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(body, 0).unwrap_or(0).cast_signed().wrapping_neg();
                let is_one = (1..4096).contains(&code);
                return Err(if is_one { Errno::from_raw_os_error(code) } else { Errno::BADMSG });
            }
            SOCK_DIAG_BY_FAMILY => {
                // `struct unix_diag_msg`: the inode is at 4; attributes follow.
                if let (Some(inode), Some(peer)) = (inode_at(body, 4), peer_of(body)) {
                    peers.insert(inode, peer);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(any(debug_assertions, fuzzing))]
/// Parses a datagram, for fuzzing.
pub(super) fn fuzz_answer(bytes: &[u8]) {
    let _ = read(bytes, &mut HashMap::new());
}

fn peer_of(body: &[u8]) -> Option<Inode> {
    inode_at(find(body.get(MESSAGE..)?, UNIX_DIAG_PEER)?, 0)
}

fn inode_at(bytes: &[u8], at: usize) -> Option<Inode> {
    Some(Inode(u32_at(bytes, at)?.into()))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixStream;

    fn inode(socket: &UnixStream) -> Inode {
        let fd = std::os::fd::AsRawFd::as_raw_fd(socket);
        Inode(std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino())
    }

    #[test]
    fn both_ends_name_each_other() {
        let (a, b) = UnixStream::pair().unwrap();
        let peers = peers().unwrap();
        assert_eq!(peers.get(&inode(&a)), Some(&inode(&b)));
        assert_eq!(peers.get(&inode(&b)), Some(&inode(&a)));
    }

    #[test]
    fn damaged_answers_are_harmless() {
        let mut bytes: Vec<u8> = (0..64u8).collect();
        for at in 0..bytes.len() {
            for byte in [0, 1, 20, 0xff] {
                let before = std::mem::replace(&mut bytes[at], byte);
                let _ = read(&bytes, &mut HashMap::new());
                let _ = read(&bytes[..at], &mut HashMap::new());
                bytes[at] = before;
            }
        }
    }
}
