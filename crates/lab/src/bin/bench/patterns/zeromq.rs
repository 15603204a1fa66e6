//! ZeroMQ's way with long messages: the program's thread hands a message to an I/O thread and
//! waits, and both wake each other by event counters; the I/O thread sends and receives with
//! epoll(7).
//!
//! A message goes out as one batch of 8 KiB that begins with its length, then straight from its own
//! memory with as many bytes a call as there is room for, each call after a wait; it comes in the
//! same way. Not here: several connections, and ZeroMQ's formats.

use super::{Queue, lock};
use crate::ends::retry;
use crate::events::{Counter, READABLE, Set, WRITABLE, is_readable_within, no_events};
use serde_json::Value;
use sojourn_lab::measuring::Options;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of the first call for a message.
const BATCH: usize = 8192;
/// Bytes of a message's length.
const LENGTH: usize = 8;
/// Time after which a message is given up.
const LIMIT: Duration = Duration::from_secs(20);
/// Marks in the I/O thread's set.
const MAILBOX: usize = 0;
const STREAM: usize = 1;

/// One direction between both threads of a process.
struct Mailbox {
    messages: Queue<Vec<u8>>,
    counter: Counter,
}

impl Mailbox {
    fn new() -> Result<Self> {
        Ok(Self { messages: Queue::new(), counter: Counter::new()? })
    }

    fn put(&self, message: Vec<u8>) -> Result<()> {
        self.messages.push(message);
        self.counter.add_one()
    }

    /// Waits for a message.
    fn take(&self) -> Result<Vec<u8>> {
        loop {
            if let Some(message) = self.messages.try_take() {
                return Ok(message);
            }
            if !is_readable_within(self.counter.fd(), LIMIT)? {
                return Err(ErrorKind::TimedOut.into());
            }
            self.counter.take()?;
        }
    }
}

/// The program's side of a connection.
struct Socket {
    outgoing: Mailbox,
    incoming: Mailbox,
    /// The reason why the I/O thread has ended.
    end: Mutex<Option<Error>>,
}

impl Socket {
    fn new(stream: UnixStream) -> Result<Arc<Self>> {
        stream.set_nonblocking(true)?;
        let (outgoing, incoming) = (Mailbox::new()?, Mailbox::new()?);
        let socket = Arc::new(Self { outgoing, incoming, end: Mutex::new(None) });
        let of_thread = Arc::clone(&socket);
        std::thread::spawn(move || {
            let ended = IoThread::new(stream, &of_thread).and_then(|mut thread| thread.run());
            *lock(&of_thread.end) = ended.err();
            // An empty message says that there are no more.
            let _ = of_thread.incoming.put(Vec::new());
        });
        Ok(socket)
    }

    /// Waits for a message; `None` at the end of the connection.
    fn receive(&self) -> Result<Option<Vec<u8>>> {
        let message = self.incoming.take()?;
        if !message.is_empty() {
            return Ok(Some(message));
        }
        lock(&self.end).take().map_or(Ok(None), Err)
    }
}

/// A message on its way.
#[derive(Default)]
struct Partial {
    message: Vec<u8>,
    /// Bytes that have gone, or come.
    done: usize,
}

struct IoThread<'a> {
    socket: &'a Socket,
    stream: UnixStream,
    set: Set,
    /// The message that is being sent.
    sending: Option<Partial>,
    /// The first batch of a message.
    batch: [u8; BATCH],
    /// The message that is being received; empty before its first batch.
    receiving: Partial,
}

impl<'a> IoThread<'a> {
    fn new(stream: UnixStream, socket: &'a Socket) -> Result<Self> {
        let set = Set::new()?;
        set.add(socket.outgoing.counter.fd(), MAILBOX)?;
        set.add(stream.as_raw_fd(), STREAM)?;
        Ok(Self {
            socket,
            stream,
            set,
            sending: None,
            batch: [0; BATCH],
            receiving: Partial::default(),
        })
    }

    /// Runs until the peer closes the connection.
    fn run(&mut self) -> Result<()> {
        let mut events = no_events();
        loop {
            let count = self.set.wait(-1, &mut events)?;
            for event in &events[..count] {
                let (mark, what) = (event.u64 as usize, event.events);
                if mark == MAILBOX {
                    self.socket.outgoing.counter.take()?;
                    self.begin_sending()?;
                    continue;
                }
                if what & WRITABLE != 0 {
                    self.send()?;
                }
                if what & READABLE != 0 && !self.receive()? {
                    return Ok(());
                }
            }
        }
    }

    fn begin_sending(&mut self) -> Result<()> {
        if self.sending.is_none()
            && let Some(message) = self.socket.outgoing.messages.try_take()
        {
            self.sending = Some(Partial { message, done: 0 });
            self.set.change(self.stream.as_raw_fd(), STREAM, READABLE | WRITABLE)?;
            self.send()?;
        }
        Ok(())
    }

    /// Makes one call; without a message there is nothing more to wait for.
    fn send(&mut self) -> Result<()> {
        let Some(Partial { message, done: sent }) = &mut self.sending else {
            self.set.change(self.stream.as_raw_fd(), STREAM, READABLE)?;
            return self.begin_sending();
        };
        let end = if *sent == 0 { message.len().min(BATCH) } else { message.len() };
        match self.stream.write(&message[*sent..end]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if *sent == message.len() {
            self.sending = None;
        }
        Ok(())
    }

    /// Makes one call; returns false at the end of the connection.
    fn receive(&mut self) -> Result<bool> {
        let Partial { message, done: got } = &mut self.receiving;
        let is_first = message.is_empty();
        let room = if is_first { &mut self.batch[..] } else { &mut message[*got..] };
        let count = match self.stream.read(room) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        if is_first {
            let length = self.batch[..LENGTH].try_into().map_or(0, u64::from_le_bytes) as usize;
            if count < LENGTH || length < count {
                return Err(Error::other("not the beginning of a message"));
            }
            // Fresh memory, as the library's allocator gives it: its pages come with the bytes.
            *message = vec![0; length];
            message[..count].copy_from_slice(&self.batch[..count]);
        }
        *got += count;
        if *got == message.len() {
            *got = 0;
            self.socket.incoming.put(std::mem::take(message))?;
        }
        Ok(true)
    }
}

/// Sends every message back, of one client after the other.
pub(crate) fn serve(path: &str) -> Result<()> {
    for stream in UnixListener::bind(path)?.incoming() {
        let socket = Socket::new(stream?)?;
        std::thread::spawn(move || {
            while let Ok(Some(message)) = socket.receive() {
                if socket.outgoing.put(message).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

/// Measures question and answer with messages of `--size` bytes.
pub(crate) fn call(path: &str, options: &Options) -> Result<Value> {
    let socket = Socket::new(retry(|| UnixStream::connect(path))?)?;
    let size = options.size.max(2 * LENGTH);
    let call = || {
        let mut message = vec![1; size];
        message[..LENGTH].copy_from_slice(&(size as u64).to_le_bytes());
        socket.outgoing.put(message)?;
        match socket.receive()? {
            Some(answer) if answer.len() == size => Ok(()),
            _ => Err(Error::other("no answer, or one of another length")),
        }
    };
    super::measure(options, call)
}
