//! The client: sessions that are served by `sojourn-protocol`.
//!
//! The stubs do most of the work. Beyond that, a send waits for room, and a receive ends at its
//! deadline without a loss: it is cancelled, and its answer says if it has bytes.

use crate::token::Token;
use rustix::fd::{BorrowedFd, OwnedFd};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Address, ConnectError, ConnectOptions, Connection, Deadline, Wait};
use sojourn_options::OptionName;
use sojourn_session::protocol::answer;
use sojourn_session::protocol::client::{
    AddressT, CONTROL_MAX, DATA_MAX, DONT_WAIT, OPTION_MAX, ProtocolClient, ProtocolReceiveFromOut,
    ReadyT, TokenT, WRITABLE,
};
use sojourn_session::protocol::receiving::{Receiver, Receiving};
use std::net::{Shutdown, SocketAddr};

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no server, or it does not take us.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server could not be asked, or is gone. [`CallError::Timeout`]: nothing came in time.
    #[error("the protocol server: {0}")]
    Call(#[from] CallError),
    /// An error number, of the server or of the session. `ESTALE`: the session was released.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

impl Error {
    /// Returns true if the call can be made again later: there are no bytes, or there is no room.
    #[must_use]
    pub fn would_block(&self) -> bool {
        matches!(self, Self::Refused(libc::EAGAIN))
    }
}

/// A session, as one connection names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session(u32);

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who has sent it.
    pub from: SocketAddr,
    /// Its length (bytes).
    pub len: usize,
    /// Bytes of it that the buffer had room for.
    pub copied: usize,
}

/// A connection with the protocol server. One thread uses it at a time; threads and processes that
/// want to wait each for themselves have connections of their own, and attach to the session.
#[derive(Debug)]
pub struct Client {
    receiver: Receiver,
    /// The bytes received last.
    data: Vec<u8>,
    /// The control messages of the datagram received last.
    control: Vec<u8>,
}

/// A session that was handed over.
#[derive(Clone, Copy, Debug)]
pub struct OpenedSession {
    /// The session.
    pub session: Session,
    /// The right to take part in it.
    pub token: Token,
}

/// Watched events that have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvents {
    /// The session.
    pub session: Session,
    /// The events, as [`Client::watch`] takes them.
    pub events: u32,
}

impl Client {
    /// Connects to the protocol server at `server` (that of a session server, and
    /// [`crate::SUFFIX`]). It is started if need be.
    ///
    /// # Errors
    /// [`Error`].
    pub fn connect(server: Address, wait: Wait) -> Result<Self, Error> {
        let options = ConnectOptions {
            wait,
            ..sojourn_session::protocol::client::protocol_connect_options()
        };
        let connection = Connection::connect(server, &options)?;
        let receiver = Receiver::bind(connection, Deadline::after(options.timeout))?;
        let data = Vec::with_capacity(DATA_MAX as usize);
        Ok(Self { receiver, data, control: Vec::with_capacity(CONTROL_MAX as usize) })
    }

    /// Makes one more connection, for another thread: it has this one's sessions, under the same
    /// names, until this one is dropped.
    ///
    /// # Errors
    /// [`Error`].
    pub fn another(&mut self, server: Address, wait: Wait) -> Result<Self, Error> {
        let out = self.stubs().group()?;
        accept(out.ret)?;
        let mut other = Self::connect(server, wait)?;
        accept(other.stubs().join(&out.group)?)?;
        Ok(other)
    }

    fn stubs(&mut self) -> &mut ProtocolClient<Connection> {
        &mut self.receiver.client
    }

    /// Hands over a connected TCP socket or a UDP socket: data goes by the server from now on, and
    /// the descriptor must not be used for data. `is_sole`: nobody but this process has the socket.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(&mut self, socket: BorrowedFd<'_>, is_sole: bool) -> Result<OpenedSession, Error> {
        let out = self.stubs().open(Some(socket), is_sole)?;
        accept(out.ret)?;
        Ok(OpenedSession { session: Session(out.session), token: Token(out.token.half) })
    }

    /// Takes part in a session that somebody else has opened.
    ///
    /// # Errors
    /// [`Error`].
    pub fn attach(&mut self, token: &Token) -> Result<Session, Error> {
        let out = self.stubs().attach(&TokenT { half: token.0 })?;
        accept(out.ret)?;
        Ok(Session(out.session))
    }

    /// Sends as many bytes as there is room for now.
    ///
    /// # Errors
    /// [`Error`]; it [would block](Error::would_block) if there is none.
    pub fn try_send(&mut self, session: Session, data: &[u8]) -> Result<usize, Error> {
        let part = &data[..data.len().min(DATA_MAX as usize)];
        let out = self.stubs().send(session.0, part)?;
        accept(out.ret)?;
        answer::taken(out.sent, part.len()).ok_or(Error::Refused(libc::EBADMSG))
    }

    /// Sends all of it; waits for room.
    ///
    /// # Errors
    /// [`Error`]; some of it may have been sent.
    pub fn send(
        &mut self,
        session: Session,
        mut data: &[u8],
        deadline: Deadline,
    ) -> Result<(), Error> {
        while !data.is_empty() {
            match self.try_send(session, data) {
                Ok(sent) => data = &data[sent..],
                Err(error) if error.would_block() => {
                    self.wait(session, WRITABLE, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives the bytes that are there. 0: the peer has sent all that it will.
    ///
    /// # Errors
    /// [`Error`]; it [would block](Error::would_block) if there is nothing.
    pub fn try_receive(&mut self, session: Session, buffer: &mut [u8]) -> Result<usize, Error> {
        self.receive_by(session, DONT_WAIT, buffer)
    }

    /// Receives; waits for the first byte. 0: the peer has sent all that it will.
    ///
    /// # Errors
    /// [`Error`].
    pub fn receive(
        &mut self,
        session: Session,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<usize, Error> {
        if deadline == Deadline::NEVER {
            return self.receive_by(session, 0, buffer);
        }
        let size = buffer.len().min(DATA_MAX as usize) as u32;
        let Self { receiver, data, .. } = self;
        let receiving = receiver.begin(session.0, size, Deadline::NEVER)?;
        let waited = wait_until(receiver, &receiving, deadline)?;
        let status = receiver.finish(receiving, data, Deadline::NEVER)?;
        if status == libc::EINTR.cast_unsigned() {
            waited?;
        }
        self.received(status, buffer)
    }

    fn receive_by(
        &mut self,
        session: Session,
        how: u32,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let size = buffer.len().min(DATA_MAX as usize);
        let Self { receiver, data, .. } = self;
        let status = receiver.client.receive(session.0, how, size as u32, data)?;
        self.received(status, buffer)
    }

    /// Copies the bytes received last to where they are wanted.
    fn received(&self, status: u32, buffer: &mut [u8]) -> Result<usize, Error> {
        accept(status)?;
        let size = buffer.len().min(DATA_MAX as usize);
        let len = self.data.len().min(size);
        buffer[..len].copy_from_slice(&self.data[..len]);
        Ok(len)
    }

    /// Sends a datagram to that address, or to the connected peer.
    ///
    /// # Errors
    /// [`Error`]; it [would block](Error::would_block) if there is no room.
    pub fn send_to(
        &mut self,
        session: Session,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        accept(self.stubs().send_to(session.0, &AddressT::from(to), 0, data)?)
    }

    /// Receives a datagram, if there is one.
    ///
    /// # Errors
    /// [`Error`]; it [would block](Error::would_block) if there is none.
    pub fn try_receive_from(
        &mut self,
        session: Session,
        buffer: &mut [u8],
    ) -> Result<Datagram, Error> {
        let size = buffer.len().min(DATA_MAX as usize) as u32;
        let Self { receiver, data, control } = self;
        let out = receiver.client.receive_from(session.0, DONT_WAIT, size, control, data)?;
        self.received_from(&out, buffer)
    }

    /// Receives a datagram; waits for one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn receive_from(
        &mut self,
        session: Session,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Datagram, Error> {
        let size = buffer.len().min(DATA_MAX as usize) as u32;
        let Self { receiver, data, control } = self;
        let receiving = receiver.begin_from(session.0, size, Deadline::NEVER)?;
        let waited = wait_until(receiver, &receiving, deadline)?;
        let out = receiver.finish_from(receiving, control, data, Deadline::NEVER)?;
        if out.ret == libc::EINTR.cast_unsigned() {
            waited?;
        }
        self.received_from(&out, buffer)
    }

    fn received_from(
        &self,
        out: &ProtocolReceiveFromOut,
        buffer: &mut [u8],
    ) -> Result<Datagram, Error> {
        let copied = self.received(out.ret, buffer)?;
        let from = out.from.socket_addr().ok().flatten();
        let from = from.ok_or(Error::Refused(libc::EBADMSG))?;
        Ok(Datagram { from, len: (out.whole as usize).max(copied), copied })
    }

    /// Waits until one of the events holds, and returns those that hold. Without events all that
    /// hold are returned at once.
    ///
    /// # Errors
    /// [`Error`].
    pub fn wait(
        &mut self,
        session: Session,
        events: u32,
        deadline: Deadline,
    ) -> Result<u32, Error> {
        let out = self.stubs().with_deadline(deadline).wait(session.0, events)?;
        accept(out.ret)?;
        Ok(out.ready)
    }

    /// Returns the bell of this connection: it is readable while [`Client::collect`] has something.
    /// Whoever hears it reads what is in it, and collects.
    ///
    /// # Errors
    /// [`Error`]; there is one for each connection.
    pub fn bell(&mut self) -> Result<OwnedFd, Error> {
        let out = self.stubs().bell()?;
        accept(out.ret)?;
        out.bell.ok_or(Error::Refused(libc::EIO))
    }

    /// Has the bell rung once when one of the events holds.
    ///
    /// # Errors
    /// [`Error`].
    pub fn watch(&mut self, session: Session, events: u32) -> Result<(), Error> {
        accept(self.stubs().watch(session.0, events)?)
    }

    /// Returns the watched events that have happened since.
    ///
    /// # Errors
    /// [`Error`].
    pub fn collect(&mut self) -> Result<Vec<SessionEvents>, Error> {
        let ready = self.stubs().collect()?;
        let events =
            |one: ReadyT| SessionEvents { session: Session(one.session), events: one.events };
        Ok(ready.into_iter().map(events).collect())
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// [`Error`].
    pub fn shutdown(&mut self, session: Session, how: Shutdown) -> Result<(), Error> {
        let how = match how {
            Shutdown::Read => 0,
            Shutdown::Write => 1,
            Shutdown::Both => 2,
        };
        accept(self.stubs().shutdown(session.0, how)?)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error`].
    pub fn set_option(
        &mut self,
        session: Session,
        option: OptionName,
        value: &[u8],
    ) -> Result<(), Error> {
        accept(self.stubs().set_option(session.0, option.level, option.number, value)?)
    }

    /// Returns the value of an option.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get_option(&mut self, session: Session, option: OptionName) -> Result<Vec<u8>, Error> {
        let mut value = Vec::with_capacity(OPTION_MAX as usize);
        accept(self.stubs().get_option(
            session.0,
            option.level,
            option.number,
            OPTION_MAX,
            &mut value,
        )?)?;
        Ok(value)
    }

    /// Sends the session to the kernel for good, for all its clients; returns its socket.
    ///
    /// # Errors
    /// [`Error`]. `EBUSY`: it is not there in time, and is served as before.
    pub fn release(&mut self, session: Session) -> Result<OwnedFd, Error> {
        let out = self.stubs().release(session.0)?;
        accept(out.ret)?;
        out.end.ok_or(Error::Refused(libc::EIO))
    }

    /// Gives up this connection's part of the session; with the last part it is closed.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close(&mut self, session: Session) -> Result<(), Error> {
        accept(self.stubs().close(session.0)?)
    }
}

fn accept(status: u32) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::Refused(status.cast_signed())) }
}

/// Waits for the answer to a receive. At the deadline it is cancelled, and its answer says if it
/// has something all the same: if not, the inner error is the call's.
fn wait_until(
    receiver: &mut Receiver,
    receiving: &Receiving,
    deadline: Deadline,
) -> Result<Result<bool, CallError>, CallError> {
    match receiver.wait(receiving, deadline, &|| false) {
        Err(CallError::Timeout) => {
            receiver.cancel(receiving, Deadline::NEVER)?;
            Ok(Err(CallError::Timeout))
        }
        waited => Ok(waited),
    }
}
