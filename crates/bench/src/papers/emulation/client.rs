//! What a program, or the library in its place, sends to the emulation server: four questions, over
//! Sojourn IPC or over a Unix socket.
//!
//! The library of `examples/emulation.rs` includes this file too, so it uses nothing of this crate.
//! Not here: whose calls become questions (that library), and what is answered (`server.rs`).

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use sojourn_ipc::{Address, CallError, ConnectOptions, Connection, Deadline, Wait};

/// What is asked.
pub(crate) mod op {
    /// Which process this is. Answer: the number.
    pub(crate) const PID: u16 = 1;
    /// A new pipe. Answer: its number.
    pub(crate) const PIPE: u16 = 2;
    /// Bytes of a pipe, so many at most. Answer: how many, and they.
    pub(crate) const READ: u16 = 3;
    /// Bytes for a pipe. Answer, when all are in it: how many.
    pub(crate) const WRITE: u16 = 4;
    /// Bytes that are to come back: a transfer both ways with nothing in between.
    pub(crate) const ECHO: u16 = 5;
}

/// Bytes up to which data travels in a message's own lines, behind one number.
pub(crate) const SHORT: usize = 64;
/// Bytes of a number.
pub(crate) const WORD: usize = 8;
/// Bytes of a question on a Unix socket: what, argument, bytes that follow.
pub(crate) const HEAD: usize = 3 * WORD;
/// Most bytes of one read, one write.
pub(crate) const DATA_MAX: usize = 64 << 10;

/// A connection to the server.
#[allow(missing_debug_implementations, reason = "nobody prints one")]
pub(crate) enum Client {
    /// By Sojourn IPC.
    Ipc(Box<Connection>),
    /// By a Unix stream socket, asked again and again if that is set.
    Socket(UnixStream, bool),
}

/// Whether that is one without sleep.
pub(crate) fn spins(wait: Wait) -> bool {
    wait != Wait::Park
}

impl Client {
    /// To the server of that abstract name.
    pub(crate) fn connect(by_socket: bool, name: &str, wait: Wait) -> Result<Self> {
        if by_socket {
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            stream.set_nonblocking(spins(wait))?;
            return Ok(Self::Socket(stream, spins(wait)));
        }
        let options = ConnectOptions { wait, ..ConnectOptions::default() };
        let connection = Connection::connect(Address::abstract_name(name), &options);
        connection.map(|one| Self::Ipc(Box::new(one))).map_err(Error::other)
    }

    /// [`op::PID`].
    #[inline]
    pub(crate) fn pid(&mut self) -> Result<i64> {
        self.ask(op::PID, 0, &[], &mut [])
    }

    /// [`op::PIPE`].
    pub(crate) fn pipe(&mut self) -> Result<i64> {
        self.ask(op::PIPE, 0, &[], &mut [])
    }

    /// [`op::WRITE`].
    #[inline]
    pub(crate) fn write(&mut self, pipe: i64, bytes: &[u8]) -> Result<i64> {
        self.ask(op::WRITE, pipe, &bytes[..bytes.len().min(DATA_MAX)], &mut [])
    }

    /// [`op::READ`].
    #[inline]
    pub(crate) fn read(&mut self, pipe: i64, room: &mut [u8]) -> Result<i64> {
        let most = room.len().min(DATA_MAX);
        let argument = pipe | (most as i64) << 32;
        self.ask(op::READ, argument, &[], &mut room[..most])
    }

    /// [`op::ECHO`].
    #[inline]
    pub(crate) fn echo(&mut self, bytes: &[u8], room: &mut [u8]) -> Result<i64> {
        self.ask(op::ECHO, 0, bytes, room)
    }

    /// Question and answer; what comes with the answer is put into `room`.
    #[inline]
    fn ask(&mut self, what: u16, argument: i64, data: &[u8], room: &mut [u8]) -> Result<i64> {
        match self {
            Self::Ipc(connection) => ask_ipc(connection, what, argument, (data, room)),
            Self::Socket(stream, polls) => {
                let mut link = Polled { stream, polls: *polls };
                ask_socket(&mut link, what, argument, (data, room))
            }
        }
    }
}

fn ask_ipc(
    connection: &mut Connection,
    what: u16,
    argument: i64,
    (data, room): (&[u8], &mut [u8]),
) -> Result<i64> {
    let short = if data.len() <= SHORT { data.len() } else { 0 };
    let mut draft = connection.start(what, WORD + short);
    let mut encoder = draft.encoder();
    encoder.put_bytes(&argument.to_ne_bytes()).map_err(Error::other)?;
    if data.len() > short {
        encoder.put_item(data).map_err(Error::other)?;
    } else {
        encoder.put_bytes(data).map_err(Error::other)?;
    }
    let reply = draft.call(Deadline::NEVER).map_err(|error: CallError| Error::other(error))?;
    let (answer, inline) =
        reply.body().split_first_chunk::<WORD>().ok_or(ErrorKind::InvalidData)?;
    if reply.item_into(0, room).is_none() {
        let len = inline.len().min(room.len());
        room[..len].copy_from_slice(&inline[..len]);
    }
    Ok(i64::from_ne_bytes(*answer))
}

/// A socket that is perhaps asked again and again.
pub(crate) struct Polled<'s> {
    /// The socket.
    pub(crate) stream: &'s UnixStream,
    /// Ask again and again, others first.
    pub(crate) polls: bool,
}

impl Polled<'_> {
    /// All of `bytes`.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Err(error) if self.is_early(&error) => std::thread::yield_now(),
                wrote => bytes = &bytes[wrote?..],
            }
        }
        Ok(())
    }

    /// Fills `room`.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < room.len() {
            match self.stream.read(&mut room[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if self.is_early(&error) => std::thread::yield_now(),
                got => filled += got?,
            }
        }
        Ok(())
    }

    fn is_early(&self, error: &Error) -> bool {
        self.polls && error.kind() == ErrorKind::WouldBlock
    }
}

fn ask_socket(
    link: &mut Polled<'_>,
    what: u16,
    argument: i64,
    (data, room): (&[u8], &mut [u8]),
) -> Result<i64> {
    // One message, so that the server wakes up once.
    let mut message = Vec::with_capacity(HEAD + data.len());
    for word in [i64::from(what), argument, data.len() as i64] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(data);
    link.put(&message)?;
    let mut head = [0; 2 * WORD];
    link.take(&mut head)?;
    let [answer, len] = *head.as_chunks::<WORD>().0 else {
        return Err(ErrorKind::InvalidData.into());
    };
    let len = usize::from_ne_bytes(len);
    link.take(room.get_mut(..len).ok_or(ErrorKind::InvalidData)?)?;
    Ok(i64::from_ne_bytes(answer))
}
