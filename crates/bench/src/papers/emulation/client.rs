//! The requests of a program, or of the library in it, to the emulation server, over Sojourn IPC or
//! over a Unix socket.
//!
//! The library of `crates/emulation` includes this file too, so the file uses nothing of this
//! crate. Not here: the calls that become requests (that library), and the answers (`server.rs`).

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::SocketAddrV4;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use sojourn_ipc::{Address, CallError, ConnectOptions, Connection, Deadline, Wait};

/// The operations.
pub(crate) mod op {
    /// The process number of the caller. Answer: the number.
    pub(crate) const PID: u16 = 1;
    /// A new pipe. Answer: its number.
    pub(crate) const PIPE: u16 = 2;
    /// A read of a pipe, with the most bytes to take. Answer: the count and the bytes.
    pub(crate) const READ: u16 = 3;
    /// A write to a pipe. Answer, when all bytes are in the pipe: their count.
    pub(crate) const WRITE: u16 = 4;
    /// Bytes to be returned: a transfer in both directions without a pipe.
    pub(crate) const ECHO: u16 = 5;
    /// A new UDP socket. Answer: its number.
    pub(crate) const SOCKET: u16 = 6;
    /// The local port of a socket. Answer: 0, or less.
    pub(crate) const BIND: u16 = 7;
    /// A datagram. Answer: its length.
    pub(crate) const SENDTO: u16 = 8;
    /// The next datagram, with the most bytes to take. Answer: the datagram and its sender.
    pub(crate) const RECVFROM: u16 = 9;
}

/// The most bytes of data that travel inside a message's own lines, behind one number.
pub(crate) const SHORT: usize = 64;
/// The bytes of a number.
pub(crate) const WORD: usize = 8;
/// The bytes of a request's header on a Unix socket: operation, argument, length of the data.
pub(crate) const HEAD: usize = 3 * WORD;
/// The most bytes of one read or write.
pub(crate) const DATA_MAX: usize = 64 << 10;

/// An address with a small number: of a socket, or of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Below 2^16.
    pub(crate) number: usize,
    /// The address.
    pub(crate) address: SocketAddrV4,
}

impl Peer {
    /// Returns both as the argument, or the answer, of a request.
    pub(crate) fn pack(self) -> i64 {
        let ip = u64::from(self.address.ip().to_bits()) << 32;
        (ip | u64::from(self.address.port()) << 16 | self.number as u64 & 0xffff).cast_signed()
    }

    /// Returns what was packed.
    pub(crate) fn unpack(word: i64) -> Self {
        let word = word.cast_unsigned();
        let address = SocketAddrV4::new(((word >> 32) as u32).into(), (word >> 16) as u16);
        Self { number: (word & 0xffff) as usize, address }
    }
}

/// A connection to the server.
#[allow(missing_debug_implementations, reason = "nobody prints one")]
pub(crate) enum Client {
    /// A connection by Sojourn IPC.
    Ipc(Box<Connection>),
    /// A Unix stream socket, which is polled if the flag is set.
    Socket(UnixStream, bool),
}

/// Returns true if this kind of waiting does not sleep.
pub(crate) fn spins(wait: Wait) -> bool {
    wait != Wait::Park
}

impl Client {
    /// Connects to the server with this abstract name.
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

    /// Sends a request and returns the answer; data with the answer is put into `room`.
    #[inline]
    fn ask(&mut self, what: u16, argument: i64, data: &[u8], room: &mut [u8]) -> Result<i64> {
        match self {
            Self::Ipc(connection) => ask_ipc(connection, what, argument, data, room),
            Self::Socket(stream, polls) => {
                let mut link = Polled { stream, polls: *polls };
                ask_socket(&mut link, what, argument, data, room)
            }
        }
    }
}

/// Requests that only the library makes.
#[allow(dead_code, reason = "this file is also the benchmark's, which calls no sockets")]
impl Client {
    /// [`op::SOCKET`].
    pub(crate) fn socket(&mut self) -> Result<i64> {
        self.ask(op::SOCKET, 0, &[], &mut [])
    }

    /// [`op::BIND`].
    pub(crate) fn bind(&mut self, socket: u8, local: SocketAddrV4) -> Result<i64> {
        self.ask(op::BIND, Peer { number: socket.into(), address: local }.pack(), &[], &mut [])
    }

    /// [`op::SENDTO`].
    #[inline]
    pub(crate) fn send_to(&mut self, socket: u8, to: SocketAddrV4, bytes: &[u8]) -> Result<i64> {
        let to = Peer { number: socket.into(), address: to };
        self.ask(op::SENDTO, to.pack(), &bytes[..bytes.len().min(DATA_MAX)], &mut [])
    }

    /// [`op::RECVFROM`]. Returns the sender and the length.
    #[inline]
    pub(crate) fn receive_from(&mut self, socket: u8, room: &mut [u8]) -> Result<Peer> {
        let most = room.len().min(DATA_MAX);
        let argument = i64::from(socket) | (most as i64) << 32;
        self.ask(op::RECVFROM, argument, &[], &mut room[..most]).map(Peer::unpack)
    }
}

fn ask_ipc(
    connection: &mut Connection,
    what: u16,
    argument: i64,
    data: &[u8],
    room: &mut [u8],
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

/// A socket that is polled, or waited for.
pub(crate) struct Polled<'s> {
    /// The socket.
    pub(crate) stream: &'s UnixStream,
    /// The socket is polled, and the thread yields between two attempts.
    pub(crate) polls: bool,
}

impl Polled<'_> {
    /// Sends all of `bytes`.
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
    data: &[u8],
    room: &mut [u8],
) -> Result<i64> {
    // Header and data are one message, so that the server wakes up once.
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
