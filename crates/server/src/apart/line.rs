//! The lines between the server's processes: unnamed pairs of sockets, and messages of one byte
//! with descriptors beside it.
//!
//! Nobody waits to send: a line that is full counts as broken. Not here: the meaning of the bytes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sojourn_ipc::ancillary::{self, Arrived};
use std::time::Duration;

/// To a child: what belongs to it is beside this byte.
pub(super) const BELONGINGS: u8 = b'B';
/// To the front: end, because a signal or an administrator asks for it.
pub(super) const STOP: u8 = b'S';
/// From a child: it is ready.
pub(super) const READY: u8 = b'R';
/// From a child: all of its threads make progress.
pub(super) const BEAT: u8 = b'T';
/// On a line for new processes: start one with the descriptors beside this byte.
pub(super) const SPAWN: u8 = b'P';
/// The answer: the process is beside it, or nothing.
pub(super) const SPAWNED: u8 = b'A';

/// What a line has to say.
#[derive(Debug)]
pub(super) enum LineMessage {
    /// A message.
    Told(u8, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Ended,
}

/// Makes a line; returns its ends.
pub(super) fn pair() -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(<[OwnedFd; 2]>::from)
}

/// Sends a message.
pub(super) fn tell(line: impl AsFd, byte: u8, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    ancillary::send(line, &[IoSlice::new(&[byte])], fds)
}

/// Receives a message without waiting. Anything but one byte is the end: this process started the
/// other one, or was started by it, and nobody else has the line.
pub(super) fn hear(line: impl AsFd) -> LineMessage {
    let mut bytes = [0; 2];
    match ancillary::receive(line.as_fd(), &mut bytes) {
        Ok(Arrived { len: 1, fds, .. }) => LineMessage::Told(bytes[0], fds),
        Err(Errno::AGAIN | Errno::INTR) => LineMessage::Nothing,
        _ => LineMessage::Ended,
    }
}

/// Waits until the line has something to say, or the time is up.
pub(super) fn wait(line: impl AsFd, limit: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let _ = poll(&mut [PollFd::new(&line, PollFlags::IN)], Some(&limit));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SendFlags;

    #[test]
    fn messages_come_with_what_is_beside_them_and_the_end_is_one() {
        let [ours, theirs] = pair().unwrap();
        assert!(matches!(hear(&ours), LineMessage::Nothing));
        tell(&theirs, BEAT, &[ours.as_fd(), theirs.as_fd()]).unwrap();
        tell(&theirs, READY, &[]).unwrap();
        assert!(matches!(hear(&ours), LineMessage::Told(BEAT, fds) if fds.len() == 2));
        assert!(matches!(hear(&ours), LineMessage::Told(READY, fds) if fds.is_empty()));
        rustix::net::send(&theirs, b"two", SendFlags::empty()).unwrap();
        assert!(matches!(hear(&ours), LineMessage::Ended), "not one byte");
        drop(theirs);
        assert!(matches!(hear(&ours), LineMessage::Ended));
    }
}
