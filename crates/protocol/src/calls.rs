//! A handed-over socket, and the calls on it as the protocol library serves them: none of them
//! waits for the peer or for a program.
//!
//! This is the shell around the library, as the preload library is one for programs: it asks before
//! each call which home serves it. Going home may wait for the session server (`Library::go_home`),
//! so the calls that send a session home are made on the thread for slow work. Not here: that
//! thread (`slow`), datagrams (`datagrams`), options (`options`). Read the head of
//! `sojourn_library` first.

use crate::buffer::Buffer;
use crate::queue::Data;
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketType, ipproto, sockopt};
use sojourn_library::{BytesOnly, Origin, PollFd, Recv, Route, Send, library};
use sojourn_session::ReasonT;
use sojourn_session::protocol::server::{FAILED, HUNG_UP};
use std::time::Instant;

/// How long a session may take to be the kernel's, and the pause between two looks.
const HOME_LIMIT: Duration = Duration::from_secs(5);
const HOME_EVERY: Duration = Duration::from_millis(1);

/// A socket that a program has handed over.
#[derive(Debug)]
pub(crate) struct Socket {
    /// `None` only while this is dropped.
    end: Option<OwnedFd>,
    number: i32,
    kind: Kind,
}

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
}

/// Returns the kind of a socket that can be handed over: a connected TCP socket, or a UDP socket.
///
/// # Errors
/// `ENOTSOCK`, `EPROTONOSUPPORT`, `ENOTCONN`.
pub(crate) fn kind_of(end: BorrowedFd<'_>) -> Result<Kind, Errno> {
    match (sockopt::socket_type(end)?, sockopt::socket_protocol(end)?) {
        (SocketType::STREAM, Some(ipproto::TCP)) => match rustix::net::getpeername(end)? {
            Some(_) => Ok(Kind::Tcp),
            None => Err(Errno::NOTCONN),
        },
        (SocketType::DGRAM, Some(ipproto::UDP)) => Ok(Kind::Udp),
        _ => Err(Errno::PROTONOSUPPORT),
    }
}

impl Socket {
    /// Takes over a socket. `is_sole`: nobody else uses it.
    pub(crate) fn new(end: OwnedFd, kind: Kind, is_sole: bool) -> Self {
        let number = end.as_raw_fd();
        library().opened(number, if is_sole { Origin::Fresh } else { Origin::Unknown });
        Self { end: Some(end), number, kind }
    }

    /// Returns the kind of the socket.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the descriptor's number, by which the library knows it.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.end.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// Sends as many bytes as there is room for.
    ///
    /// # Errors
    /// Those of send(2).
    pub(crate) fn send(&self, data: &[u8]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match library().writing(self.number) {
                // The server's sessions are no UDP sockets.
                Route::Plain | Route::Datagrams(_) => {
                    return rustix::net::send(self.fd()?, data, flags);
                }
                Route::Kernel(using) => {
                    let sent = rustix::net::send(self.fd()?, data, flags);
                    using.done(counted(sent));
                    return sent;
                }
                Route::Stream(call) => {
                    let how = Send { dont_wait: true };
                    if let Some(sent) = call.send(&[IoSlice::new(data)], how) {
                        return sent;
                    }
                }
            }
        }
    }

    /// Sends the session home for good. May wait for the session server.
    ///
    /// # Errors
    /// `EBUSY` if it is not home in time.
    pub(crate) fn go_home(&self) -> Result<(), Errno> {
        let until = Instant::now() + HOME_LIMIT;
        library().go_home(self.number, ReasonT::User, true);
        // Bytes that the peer's side still owes come by the session's calls until all are there.
        while matches!(library().reading(self.number), Route::Stream(_)) {
            if Instant::now() > until {
                return Err(Errno::BUSY);
            }
            std::thread::sleep(HOME_EVERY);
        }
        // The program may offer its own descriptor as soon as it has the answer.
        library().await_server(HOME_LIMIT);
        Ok(())
    }

    /// Returns a duplicate, for a program.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(self.fd()?, 0)
    }

    /// Ends one direction or both. May wait for the session server.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub(crate) fn shutdown(&self, how: u32) -> Result<(), Errno> {
        let how = match how {
            0 => Shutdown::Read,
            1 => Shutdown::Write,
            2 => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        library().shutting(self.number, how != Shutdown::Write);
        let done = rustix::net::shutdown(self.fd()?, how);
        library().ended();
        done
    }
}

impl Socket {
    /// Receives the bytes that are there, as many as fit; with `peek` they stay.
    fn receive_bytes(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno> {
        let mut flags = RecvFlags::DONTWAIT;
        flags.set(RecvFlags::PEEK, peek);
        let kernel = |buffer: &mut [u8]| Ok(rustix::net::recv(self.fd()?, buffer, flags)?.0);
        loop {
            match library().reading(self.number) {
                Route::Plain | Route::Datagrams(_) => return kernel(buffer),
                Route::Kernel(using) => {
                    let got = kernel(buffer);
                    using.done(counted(got));
                    return got;
                }
                Route::Stream(call) => {
                    let how = Recv { peek, dont_wait: true, ..Recv::default() };
                    let bufs = &mut [IoSliceMut::new(buffer)];
                    if let Some(got) = call.recv(bufs, how, &mut BytesOnly::default()) {
                        return got;
                    }
                }
            }
        }
    }
}

impl Data for Socket {
    fn has_datagrams(&self) -> bool {
        self.kind == Kind::Udp
    }

    fn receive(&self, buffer: &mut Buffer, room: usize, peek: bool) -> Result<usize, Errno> {
        match self.kind {
            Kind::Tcp => self.receive_bytes(buffer.room(room).bytes, peek),
            Kind::Udp => self.receive_datagram(buffer, peek),
        }
    }

    fn ready(&self, events: u32) -> u32 {
        // The bits of poll(2) fit.
        let mut polled = [PollFd { fd: self.number, events: events as i16, revents: 0 }];
        match library().poll(&mut polled, Some(Duration::ZERO), None) {
            Ok(0) => 0,
            Ok(_) => u32::from(polled[0].revents.cast_unsigned()) & (events | FAILED | HUNG_UP),
            Err(_) => FAILED,
        }
    }
}

impl Drop for Socket {
    /// Closes as a program closes. May wait for the session server, but not for the peer: the
    /// kernel sends the rest in the background if no close lingers (`SO_LINGER`, socket(7)).
    fn drop(&mut self) {
        // A close throws datagrams away that nobody has received. Another holder of the socket may
        // still want them.
        if self.kind == Kind::Udp {
            library().go_home(self.number, ReasonT::Closed, true);
        }
        library().closing(self.number);
        if let Ok(fd) = self.fd()
            && let Ok(Some(limit)) = sockopt::socket_linger(fd)
            && !limit.is_zero()
        {
            let _ = sockopt::set_socket_linger(fd, None);
        }
        drop(self.end.take());
        library().ended();
    }
}

/// A call's result as [`sojourn_library::Use::done`] wants it.
pub(crate) fn counted(result: Result<usize, Errno>) -> isize {
    result.map_or(-1, |len| isize::try_from(len).unwrap_or(isize::MAX))
}
