//! gRPC's way over one connection: several calls at once in frames of 16 KiB (RFC 9113, section 4),
//! three kinds of threads, and edge-triggered epoll(7).
//!
//! A thread that has a message sends it itself, by `sendmsg` with one vector for each frame's
//! header and content; what finds no room goes out when the connection is writable. A *poller*
//! waits for the connection and hands what is to do to a *worker*, which receives until there is
//! nothing more and hands finished messages to the program: to the threads of a server, or to a
//! client by an event counter. Not here: HTTP/2's formats, settings, flow control.

use super::{Queue, lock};
use crate::ends::retry;
use crate::events::{
    Counter, EDGE_TRIGGERED, READABLE, Set, WRITABLE, is_readable_within, no_events,
};
use serde_json::Value;
use sojourn_lab::measuring::Options;
use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Content of the largest frame.
const FRAME: usize = 16_384;
/// Bytes of a frame's header: length, type, flags, stream (RFC 9113, section 4.1).
const HEADER: usize = 9;
/// Content of the frame that begins a message, about that of a request's header fields.
const FIELDS: usize = 14;
/// Types of frames, and the flag of a message's last one.
const DATA: u8 = 0;
const BEGINNING: u8 = 1;
const END: u8 = 1;
/// The number of no message's stream: there are no more messages.
const NO_STREAM: u32 = 0;
/// Vectors of one `sendmsg`, as gRPC has them at most.
const VECTORS: usize = 64;
/// Threads of a server's program.
const THREADS: usize = 4;
/// Most bytes of one receiving call.
const ROOM: usize = 64 << 10;
/// Time after which an answer is given up.
const LIMIT: Duration = Duration::from_secs(20);

/// A message of one stream of the connection.
struct Message {
    stream: u32,
    content: Vec<u8>,
}

impl Message {
    /// Returns the pieces of the message's frames: headers and contents.
    fn pieces(&self) -> Vec<Vec<u8>> {
        let mut beginning = header(FIELDS, BEGINNING, 0, self.stream).to_vec();
        beginning.extend([0; FIELDS]);
        let mut pieces = vec![beginning];
        let count = self.content.len().div_ceil(FRAME).max(1);
        for at in 0..count {
            let end = self.content.len().min((at + 1) * FRAME);
            let content = &self.content[at * FRAME..end];
            let flags = if at + 1 == count { END } else { 0 };
            pieces.push(header(content.len(), DATA, flags, self.stream).to_vec());
            pieces.push(content.to_vec());
        }
        pieces
    }
}

fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    (header[3], header[4]) = (kind, flags);
    header[5..].copy_from_slice(&stream.to_be_bytes());
    header
}

/// What is to be sent: pieces, and how much of the first one has gone.
#[derive(Default)]
struct Outgoing {
    pieces: VecDeque<Vec<u8>>,
    sent: usize,
}

impl Outgoing {
    /// Sends until all has gone or there is no room.
    fn flush(&mut self, stream: &UnixStream) -> Result<()> {
        while !self.pieces.is_empty() {
            match send(stream, &self.pieces, self.sent) {
                Ok(count) => self.drop_sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn drop_sent(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.pieces.front()
            && first.len() <= self.sent
        {
            self.sent -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// Sends the pieces from the byte `from` of the first one on, as many as one call takes.
fn send(stream: &UnixStream, pieces: &VecDeque<Vec<u8>>, from: usize) -> Result<usize> {
    let parts = pieces.iter().take(VECTORS).enumerate().map(|(place, piece)| {
        let part = if place == 0 { &piece[from..] } else { &piece[..] };
        libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() }
    });
    let mut vectors: Vec<libc::iovec> = parts.collect();
    // SAFETY: the message is plain data; its vectors are of `pieces`, which live through the call,
    // and are only read.
    let count = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = vectors.len() as _;
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    usize::try_from(count).map_err(|_| Error::last_os_error())
}

/// What has come, and is not a whole message yet.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    contents: HashMap<u32, Vec<u8>>,
}

impl Incoming {
    /// Takes the frames that are complete; returns the messages that they complete.
    fn messages(&mut self) -> Vec<Message> {
        let (mut at, mut done) = (0, Vec::new());
        while let Some(header) = self.bytes.get(at..at + HEADER) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let start = at + HEADER;
            let Some(content) = self.bytes.get(start..start + length) else { break };
            if kind == DATA {
                let all = self.contents.entry(stream).or_default();
                all.extend_from_slice(content);
                if flags & END != 0 {
                    let content = self.contents.remove(&stream).unwrap_or_default();
                    done.push(Message { stream, content });
                }
            }
            at = start + length;
        }
        self.bytes.drain(..at);
        done
    }
}

/// A connection with its poller and its worker.
struct Connection {
    stream: UnixStream,
    outgoing: Mutex<Outgoing>,
    /// Events for the worker.
    events: Queue<u32>,
    /// Finished messages for the program, and the counter that tells a client of them.
    messages: Queue<Message>,
    counter: Counter,
}

impl Connection {
    fn new(stream: UnixStream) -> Result<Arc<Self>> {
        stream.set_nonblocking(true)?;
        let connection = Arc::new(Self {
            stream,
            outgoing: Mutex::default(),
            events: Queue::new(),
            messages: Queue::new(),
            counter: Counter::new()?,
        });
        let (poller, worker) = (Arc::clone(&connection), Arc::clone(&connection));
        std::thread::spawn(move || poller.poll());
        std::thread::spawn(move || {
            // However the connection has ended, the program's threads hear of it.
            let _ = worker.work();
            for _ in 0..THREADS {
                worker.messages.push(Message { stream: NO_STREAM, content: Vec::new() });
            }
            worker.counter.add_one()
        });
        Ok(connection)
    }

    fn send(&self, message: &Message) -> Result<()> {
        let mut outgoing = lock(&self.outgoing);
        let is_first = outgoing.pieces.is_empty();
        outgoing.pieces.extend(message.pieces());
        if is_first { outgoing.flush(&self.stream) } else { Ok(()) }
    }

    fn poll(&self) -> Result<()> {
        let set = Set::new()?;
        set.add_for(self.stream.as_raw_fd(), 0, READABLE | WRITABLE | EDGE_TRIGGERED)?;
        let mut events = no_events();
        loop {
            let count = match set.wait(-1, &mut events) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count?,
            };
            for event in &events[..count] {
                self.events.push(event.events);
                if event.events & libc::EPOLLHUP as u32 != 0 {
                    return Ok(());
                }
            }
        }
    }

    fn work(&self) -> Result<()> {
        let mut incoming = Incoming::default();
        let mut room = vec![0; ROOM];
        loop {
            let events = self.events.take();
            if events & WRITABLE != 0 {
                lock(&self.outgoing).flush(&self.stream)?;
            }
            if events & READABLE == 0 {
                continue;
            }
            loop {
                match (&self.stream).read(&mut room) {
                    Ok(0) => return Ok(()),
                    Ok(count) => incoming.bytes.extend_from_slice(&room[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                for message in incoming.messages() {
                    self.messages.push(message);
                    self.counter.add_one()?;
                }
            }
        }
    }
}

/// Sends every message back.
pub(crate) fn serve(path: &str) -> Result<()> {
    for stream in UnixListener::bind(path)?.incoming() {
        let connection = Connection::new(stream?)?;
        for _ in 0..THREADS {
            let connection = Arc::clone(&connection);
            std::thread::spawn(move || {
                loop {
                    let message = connection.messages.take();
                    if message.stream == NO_STREAM || connection.send(&message).is_err() {
                        return;
                    }
                }
            });
        }
    }
    Ok(())
}

/// Measures calls with messages of `--size` bytes, `--sessions` of them at once.
pub(crate) fn call(path: &str, options: &Options) -> Result<Value> {
    let connection = Connection::new(retry(|| UnixStream::connect(path))?)?;
    let next = AtomicU32::new(1);
    let ask = || {
        let stream = next.fetch_add(2, Ordering::Relaxed);
        connection.send(&Message { stream, content: vec![1; options.size] })
    };
    for _ in 1..options.sessions {
        ask()?;
    }
    super::measure(options, || {
        ask()?;
        let message = loop {
            if let Some(message) = connection.messages.try_take() {
                break message;
            }
            if !is_readable_within(connection.counter.fd(), LIMIT)? {
                return Err(ErrorKind::TimedOut.into());
            }
            connection.counter.take()?;
        };
        let is_whole = message.content.len() == options.size;
        if is_whole { Ok(()) } else { Err(Error::other("an answer of another length")) }
    })
}
