//! A program's socket, as the carrier's own thread may have it: what can be asked of it here waits
//! for nobody.
//!
//! A program can hold its socket's lock for as long as it likes: it writes from a page that does
//! not come. Whoever then asks the kernel something for which it takes that lock waits, beyond
//! SIGKILL. The questions here are answered without the lock (Linux 6.18; the test asks each of
//! them of a socket that is held). All others are an assistant's work (`work`), and so is closing
//! the last descriptor, which waits for a socket that lingers (`SO_LINGER`, socket(7)).

use crate::export::has_received;
use crate::raw::{self, SIOCOUTQ, SIOCOUTQNSD};
use crate::repair::TCP_MAXSEG;
use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::Uid;
use sojourn_options::OptionName;
use sojourn_wire::SocketCookie;
use std::sync::Arc;
use std::sync::mpsc::Sender;

const SO_RCVLOWAT: OptionName = OptionName::new(libc::SOL_SOCKET, libc::SO_RCVLOWAT);

/// A socket of which the carrier has no more to do than to close it.
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) user: Uid,
}

/// A program's socket. Dropping this has an assistant close it.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    fd: Arc<OwnedFd>,
    user: Uid,
    /// `None`: this descriptor is not the last one, or its close is no concern of this thread's.
    unused: Option<Sender<Unused>>,
    /// The set that has the socket, see [`ProgramSocket::watch`].
    watched_by: Option<Arc<OwnedFd>>,
}

impl ProgramSocket {
    /// `user`: whose programs alone wait where the lock is held; `unused`: whoever has an assistant
    /// close it.
    pub(crate) fn new(fd: OwnedFd, user: Uid, unused: Sender<Unused>) -> Self {
        Self { fd: Arc::new(fd), user, unused: Some(unused), watched_by: None }
    }

    /// Gives the socket up, to whoever closes it.
    pub(crate) fn give_up(mut self) -> Unused {
        self.unused = None;
        self.unwatch();
        Unused { fd: Arc::clone(&self.fd), user: self.user }
    }

    pub(crate) fn user(&self) -> Uid {
        self.user
    }

    /// Returns the descriptor for a process or thread that does not wait, or may.
    pub(crate) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Has a set tell, with that number, when the socket may have been hung up, until the carrier
    /// gives it up.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(crate) fn watch(&mut self, set: &Arc<OwnedFd>, data: u64) -> Result<(), Errno> {
        if self.watched_by.is_none() {
            epoll::add(set, &*self.fd, EventData::new_u64(data), EventFlags::ET)?;
            self.watched_by = Some(Arc::clone(set));
        }
        Ok(())
    }

    /// The set would have the socket for as long as the program has it.
    fn unwatch(&mut self) {
        if let Some(set) = self.watched_by.take() {
            let _ = epoll::delete(set, &*self.fd);
        }
    }

    /// Returns true if the socket has no connection any more, or sends and receives no more: its
    /// addresses may be another socket's, or soon.
    pub(crate) fn is_hung_up(&self) -> bool {
        raw::polled(&*self.fd, PollFlags::empty()).contains(PollFlags::HUP)
    }

    /// Returns the socket's cookie (`SO_COOKIE`, socket(7)).
    pub(crate) fn cookie(&self) -> SocketCookie {
        sockopt::socket_cookie(&self.fd).map_or(SocketCookie::NONE, SocketCookie)
    }

    /// Returns the number of bytes that the peer has not acknowledged, sent or not.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub(crate) fn not_acknowledged(&self) -> Result<usize, Errno> {
        raw::queue_len(&self.fd, SIOCOUTQ)
    }

    /// Returns the number of bytes that are not sent yet.
    pub(crate) fn not_sent(&self) -> usize {
        raw::queue_len(&self.fd, SIOCOUTQNSD).unwrap_or(0)
    }

    /// Returns the bytes of a full segment, if they are known.
    pub(crate) fn segment(&self) -> Option<usize> {
        raw::number(&self.fd, TCP_MAXSEG).ok().and_then(|size| usize::try_from(size).ok())
    }

    /// Returns true if the program would be told that it can read. A program may have asked to be
    /// told of many bytes only (`SO_RCVLOWAT`).
    pub(crate) fn is_readable(&self) -> bool {
        raw::polled(&*self.fd, PollFlags::IN).contains(PollFlags::IN)
    }

    /// Returns true if what the socket has received takes memory, in order or beyond a gap.
    pub(crate) fn has_received(&self) -> bool {
        has_received(&self.fd)
    }

    /// Returns true if the socket holds bytes beyond a gap, as far as that shows without the lock;
    /// with it `export::has_gap` tells.
    pub(crate) fn seems_to_have_a_gap(&self) -> bool {
        let tells_of_each_byte = || raw::number(&self.fd, SO_RCVLOWAT).is_ok_and(|low| low <= 1);
        self.has_received() && !self.is_readable() && tells_of_each_byte()
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        self.unwatch();
        let Some(sender) = self.unused.take() else { return };
        let unused = Unused { fd: Arc::clone(&self.fd), user: self.user };
        if let Err(nobody) = sender.send(unused) {
            // The carrier is ending, and the end of its process closes what is left without
            // lingering.
            std::mem::forget(nobody.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_lab::hold;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_is_asked_here_does_not_wait_for_a_program_that_holds_the_lock() {
        let Some(faults) = hold::faults() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let held = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _peer = listener.accept().unwrap();
        assert!(hold::hold(faults, held.try_clone().unwrap().into()));
        let (done, heard) = channel();
        std::thread::spawn(move || {
            let (unused, closed) = channel();
            let mut socket = ProgramSocket::new(held.into(), Uid::ROOT, unused);
            let numbers = (socket.not_acknowledged(), socket.not_sent());
            let looks = [socket.is_readable(), socket.has_received(), socket.is_hung_up()];
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let is_watched = socket.watch(&Arc::new(set), 1);
            let has_gap = socket.seems_to_have_a_gap();
            let _ = socket.descriptor();
            let is_known = is_watched.is_ok()
                && socket.segment().is_some()
                && socket.cookie() != SocketCookie::NONE;
            drop(socket);
            let left: Option<Unused> = closed.try_recv().ok();
            let _ = done.send((numbers, looks, has_gap, is_known, left.is_some()));
            std::mem::forget(left);
        });
        // A thread that waits for the lock cannot be ended: the test would not end by itself
        // either.
        let answer = heard.recv_timeout(Duration::from_secs(10));
        assert_eq!(answer, Ok(((Ok(0), 0), [false; 3], false, true, true)), "it waits");
    }
}
