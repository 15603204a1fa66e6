//! The result of a look at an end that a library offers, and its way from a proxy to the server.
//!
//! The server reads this from a process of its own, a proxy or the carrier: it checks that the
//! bytes make sense, and believes of them what that process may say (`service`). Not here: looking
//! (`identity`), the proxy (`proxy`), asking it (`inspections`).

use crate::holders::Object;
use crate::identity::{self, Diag};
use crate::key::Key;
use crate::registry::Identity;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::sockopt;
use sojourn_carrier::MakeLook;
use sojourn_session::{Inode, KindT, ReasonT};
use sojourn_wire::SocketCookie;
use std::sync::Arc;

/// The result of a look at an end.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// Its identity, or the reason why it cannot move.
    pub(crate) seen: Result<Identity, ReasonT>,
    /// The inode of the socket or pipe; 0 for anything else.
    pub(crate) inode: Inode,
    /// The object shows that its program may have packets.
    pub(crate) is_packets: bool,
    /// The part that the server keeps: of a socket whose peer is on another host the socket itself,
    /// for the carrier; of a pipe its name, which is neither reader nor writer.
    pub(crate) kept: Option<OwnedFd>,
    /// To be closed when the answer is given: closing a packet socket takes the kernel a while.
    _slow: Option<OwnedFd>,
}

/// The most bytes of an answer: two names of sockets beside numbers.
pub(crate) const INSPECTED_MAX: usize = 1024;
const NAME_MAX: usize = 400;

impl Inspected {
    /// Looks at an end, and closes it except for the part that is kept.
    pub(crate) fn at(end: OwnedFd, diag: &mut Diag) -> Self {
        let seen = identity::identify(end.as_fd(), diag);
        let inode = identity::inode(end.as_fd());
        let is_packets = identity::is_packets(end.as_fd(), diag);
        let is_carried = seen.as_ref().is_ok_and(|seen| seen.key.is_carried());
        let is_pipe = seen.as_ref().is_ok_and(|seen| matches!(seen.key, Key::Pipe { .. }));
        let (kept, slow) = match (is_carried, is_packets) {
            (true, _) => (Some(end), None),
            (_, true) => (None, Some(end)),
            _ if is_pipe => (name(&end), None),
            _ => (None, None),
        };
        Self { seen, inode, is_packets, kept, _slow: slow }
    }

    /// Looks at an end like [`Inspected::at`], in a thread that must not wait. The last close of a
    /// socket that lingers waits for its data (`SO_LINGER`, socket(7)), and the program may have
    /// left that close to this process: so a thread of its own makes it.
    pub(crate) fn at_once(end: OwnedFd, diag: &mut Diag) -> Self {
        let lingers = sockopt::socket_linger(&end).is_ok_and(|limit| limit.is_some());
        let last = if lingers { end.try_clone().ok() } else { None };
        let inspected = Self::at(end, diag);
        last.into_iter().for_each(close_aside);
        inspected
    }

    /// Looks at an end that the caller keeps.
    pub(crate) fn beside(end: BorrowedFd<'_>, diag: &mut Diag) -> Self {
        let seen = identity::identify(end, diag);
        Self { inode: identity::inode(end), ..Self::known(seen) }
    }

    /// Returns the carrier's look at sockets, for a thread with a descriptor table of its own: what
    /// [`Inspected::beside`] sees, encoded.
    pub(crate) fn make_look() -> MakeLook {
        Arc::new(|| {
            let mut diag = None;
            Box::new(move |end| {
                if diag.is_none() {
                    diag = Diag::new(true).ok();
                }
                let refused = || Self::refused(ReasonT::Resources);
                diag.as_mut().map_or_else(refused, |diag| Self::beside(end, diag)).to_bytes()
            })
        })
    }

    /// Returns the result for an end whose identity is known.
    pub(crate) fn known(seen: Result<Identity, ReasonT>) -> Self {
        Self { seen, inode: Inode::default(), is_packets: false, kept: None, _slow: None }
    }

    /// Returns the result for an end that was not looked at.
    pub(crate) fn refused(reason: ReasonT) -> Self {
        Self::known(Err(reason))
    }

    /// Encodes the result for its way to the server; [`Self::kept`] goes beside it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.inode.0.to_ne_bytes().to_vec();
        bytes.push(u8::from(self.is_packets));
        let seen = match &self.seen {
            Ok(seen) => seen,
            Err(reason) => {
                bytes.extend([0, *reason as u8]);
                return bytes;
            }
        };
        let Identity { key, kind, from, to, holds, object: held, .. } = seen;
        bytes.extend([1, *kind as u8]);
        let (what, words) = match *key {
            Key::Socket { own, peer } => (0, [own.0, peer.0]),
            Key::Pipe { object, writes } => {
                let first = if matches!(held, Object::Fifo { .. }) { 3 } else { 1 };
                (first + u8::from(writes), [object, 0])
            }
        };
        bytes.push(what);
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        holds.iter().for_each(|held| bytes.extend(held.to_ne_bytes()));
        for text in [from, to] {
            // Cut between characters, because the reader takes nothing but UTF-8.
            let mut len = text.len().min(NAME_MAX);
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            bytes.extend((len as u16).to_ne_bytes());
            bytes.extend(&text.as_bytes()[..len]);
        }
        bytes
    }

    /// Decodes a result; `None` if the bytes make no sense.
    pub(crate) fn read(bytes: &[u8], kept: Option<OwnedFd>) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (inode, is_packets) = (Inode(rest.number()?), rest.byte()? != 0);
        if rest.byte()? == 0 {
            let reason = ReasonT::try_from(i32::from(rest.byte()?)).ok()?;
            let seen = Err(reason);
            return Some(Self { seen, inode, is_packets, kept: None, _slow: None });
        }
        let kind = KindT::try_from(i32::from(rest.byte()?)).ok()?;
        let (what, words) = (rest.byte()?, [rest.number()?, rest.number()?]);
        let (key, object) = match what {
            0 => (
                Key::Socket { own: SocketCookie(words[0]), peer: SocketCookie(words[1]) },
                Object::Socket { inode },
            ),
            1 | 2 => {
                let writes = what == 2;
                (Key::Pipe { object: words[0], writes }, Object::Pipe { inode, writes })
            }
            3 | 4 => {
                let writes = what == 4;
                (Key::Pipe { object: words[0], writes }, Object::Fifo { inode, writes })
            }
            _ => return None,
        };
        let holds = [rest.half()?, rest.half()?];
        let (from, to) = (rest.text()?, rest.text()?);
        let seen = Ok(Identity { key, kind, from, to, holds, object, pin: None });
        Some(Self { seen, inode, is_packets, kept, _slow: None })
    }
}

/// The part of an end that the server has until it passes it on. Dropping this does not wait for a
/// socket that lingers: its program may have left the last close to the server.
pub(crate) struct Kept(pub(crate) Option<OwnedFd>);

impl Drop for Kept {
    fn drop(&mut self) {
        let socket = self.0.take().filter(|end| sockopt::socket_type(end).is_ok());
        socket.into_iter().for_each(close_aside);
    }
}

/// Has a thread of its own make a close that may wait.
fn close_aside(socket: OwnedFd) {
    let closing = std::thread::Builder::new().name("sojourn-close".into());
    // Without a thread the socket is closed here.
    let _ = closing.spawn(move || drop(socket));
}

/// Opens a descriptor that only names the object of `end`: see open(2), `O_PATH`.
fn name(end: &OwnedFd) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The bytes that have not been read yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let len = self.take().map(u16::from_ne_bytes)?;
        let (text, rest) = self.0.split_at_checked(usize::from(len))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Returns a socket whose closing waits for ten seconds, and its peer, which does not read.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(10))).unwrap();
        (socket.into(), peer)
    }

    #[test]
    fn a_socket_that_lingers_does_not_hold_the_server_up() {
        let mut diag = Diag::new(false).unwrap();
        let (socket, _peer) = lingering();
        let begun = Instant::now();
        let inspected = Inspected::at_once(socket, &mut diag);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_ne!(inspected.inode, Inode::default());
    }

    /// The server has the socket of a session with another host until the carrier has it, or until
    /// it refuses the session.
    #[test]
    fn a_socket_that_is_not_passed_on_does_not_hold_the_server_up_either() {
        let (socket, _peer) = lingering();
        let begun = Instant::now();
        drop(Kept(Some(socket)));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_was_seen_travels() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut diag = Diag::new(false).unwrap();
        for end in [OwnedFd::from(reader), writer.into(), socket.into()] {
            let inspected = Inspected::at(end, &mut diag);
            let bytes = inspected.to_bytes();
            assert!(bytes.len() <= INSPECTED_MAX);
            let read = Inspected::read(&bytes, None).unwrap();
            assert_eq!(read.inode, inspected.inode);
            assert_eq!(format!("{:?}", read.seen), format!("{:?}", inspected.seen));
            assert!((0..bytes.len()).all(|len| Inspected::read(&bytes[..len], None).is_none()));
        }
        let refused = Inspected::refused(ReasonT::Option).to_bytes();
        let read = Inspected::read(&refused, None).unwrap();
        assert!(matches!(read.seen, Err(ReasonT::Option)));
    }
}
