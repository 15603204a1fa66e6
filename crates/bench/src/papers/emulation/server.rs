//! The emulation server: answers getpid(2) and pipes for programs whose calls are sent to it, in
//! one thread, over Sojourn IPC or over Unix sockets.
//!
//! The server stands for the Unix server of the papers and serves only the calls in their tables.
//! It is no part of Sojourn, and it trusts its clients, which are a benchmark's. Not here: the
//! pipes themselves (`pipes.rs`).

use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use anyhow::{Result, ensure};
use sojourn_ipc::{
    Address, Deadline, Endpoint, Event, ReadyReply, ReplyToken, Request, ServerOptions, Wait,
};

use super::client::{DATA_MAX, HEAD, Polled, SHORT, WORD, op, spins};
use super::pipes::{Pipes, Waiter};
use crate::os;

/// The server's answer to [`op::PID`]: no process has so high a number.
pub(crate) const EMULATED_PID: i64 = 5_000_000;

/// The argument of a read.
pub(crate) struct ReadArgument {
    /// The number of the pipe or socket.
    pub(crate) object: usize,
    /// The most bytes.
    pub(crate) most: usize,
}

impl ReadArgument {
    pub(crate) fn of(argument: i64) -> Self {
        Self { object: (argument & 0xffff_ffff) as usize, most: (argument >> 32) as usize }
    }
}

pub(crate) fn reply(token: ReplyToken, answer: i64, bytes: &[u8]) -> ReadyReply {
    let short = if bytes.len() <= SHORT { bytes.len() } else { 0 };
    let mut draft = token.start(WORD + short);
    let mut encoder = draft.encoder();
    // The body was made with this length, so an error here is a mistake of this function. The
    // client then reports a damaged answer.
    let _ = encoder.put_bytes(&answer.to_ne_bytes());
    let _ = match bytes.len() > short {
        true => encoder.put_item(bytes),
        false => encoder.put_bytes(bytes),
    };
    draft.finish()
}

impl Waiter for ReplyToken {
    fn give(self, bytes: &[u8]) {
        let _ = reply(self, bytes.len() as i64, bytes).send();
    }

    fn wrote(self, count: usize) {
        let _ = reply(self, count as i64, &[]).send();
    }
}

/// Serves under an abstract name until the process is killed; `ready` is called when clients may
/// connect.
pub(crate) fn by_ipc(name: &str, wait: Wait, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    // The area holds a whole write, which then travels in one piece.
    let options = ServerOptions { wait, area: 128 << 10, ..ServerOptions::default() };
    let endpoint = Endpoint::bind(Address::abstract_name(name), options)?;
    let mut server = endpoint.server();
    let (mut pipes, mut own) = (Pipes::new(), vec![0; DATA_MAX]);
    ready()?;
    let mut answer: Option<ReadyReply> = None;
    loop {
        if let Event::Call(request) = server.reply_wait(answer.take(), Deadline::NEVER)? {
            answer = on_call(request, &mut pipes, &mut own)?;
        }
    }
}

/// Handles a request and returns its answer, if it can be given at once. An echo is answered from
/// `own`, because a real program's answer is not in the buffer that it received into.
fn on_call(
    request: Request<'_>,
    pipes: &mut Pipes<ReplyToken>,
    own: &mut [u8],
) -> Result<Option<ReadyReply>> {
    let body = request.body();
    ensure!(body.len() >= WORD, "a question without its argument");
    let (head, inline) = body.split_at(WORD);
    let ReadArgument { object: pipe, most } =
        ReadArgument::of(i64::from_ne_bytes(head.try_into()?));
    let data = request.item(0).unwrap_or(inline);
    Ok(match request.op() {
        op::PID => Some(reply(request.into_token(), EMULATED_PID, &[])),
        op::PIPE => {
            let number = pipes.make();
            Some(reply(request.into_token(), number, &[]))
        }
        op::READ => {
            pipes.read(pipe, request.into_token(), most);
            None
        }
        op::ECHO => {
            let answer = stamped(own, data)?;
            Some(reply(request.into_token(), answer.len() as i64, answer))
        }
        _ => {
            let (len, taken) = (data.len(), pipes.write(pipe, data));
            let rest = data[taken.unwrap_or(len)..].to_vec();
            let token = request.into_token();
            if rest.is_empty() {
                return Ok(Some(reply(token, taken.map_or(-1, |count| count as i64), &[])));
            }
            pipes.park(pipe, token, rest, len);
            None
        }
    })
}

/// Returns the beginning of `own` with the length of `data`, and with its first and last byte.
fn stamped<'o>(own: &'o mut [u8], data: &[u8]) -> Result<&'o [u8]> {
    ensure!(data.len() <= own.len(), "too much to be sent back");
    if let (Some(first), Some(last)) = (data.first(), data.last()) {
        own[0] = *first;
        own[data.len() - 1] = *last;
    }
    Ok(&own[..data.len()])
}

/// A client on a Unix socket whose call is not answered yet.
struct OnSocket {
    stream: Rc<UnixStream>,
    polls: bool,
}

fn send(client: &UnixStream, polls: bool, answer: i64, bytes: &[u8]) -> std::io::Result<()> {
    let mut message = Vec::with_capacity(2 * WORD + bytes.len());
    message.extend(answer.to_ne_bytes());
    message.extend(bytes.len().to_ne_bytes());
    message.extend(bytes);
    Polled { stream: client, polls }.put(&message)
}

impl Waiter for OnSocket {
    fn give(self, bytes: &[u8]) {
        let _ = send(&self.stream, self.polls, bytes.len() as i64, bytes);
    }

    fn wrote(self, count: usize) {
        let _ = send(&self.stream, self.polls, count as i64, &[]);
    }
}

/// Serves the clients of `listener` until the process is killed.
pub(crate) fn by_socket(listener: &UnixListener, wait: Wait) -> Result<()> {
    let polls = spins(wait);
    let poller = os::Poller::new()?;
    poller.add(listener, u64::MAX)?;
    let mut clients: Vec<Option<Rc<UnixStream>>> = Vec::new();
    let (mut pipes, mut ready, mut data) = (Pipes::new(), Vec::new(), Vec::new());
    loop {
        match polls {
            true => poller.look(&mut ready)?,
            false => poller.wait(&mut ready)?,
        }
        for &token in &ready {
            if token == u64::MAX {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(polls)?;
                poller.add(&stream, clients.len() as u64)?;
                clients.push(Some(Rc::new(stream)));
                continue;
            }
            let Some(place) = clients.get_mut(token as usize) else { continue };
            let is_gone = place
                .as_ref()
                .is_some_and(|stream| on_message(stream, polls, &mut pipes, &mut data).is_err());
            if is_gone {
                *place = None;
            }
        }
        if polls {
            std::thread::yield_now();
        }
    }
}

fn on_message(
    stream: &Rc<UnixStream>,
    polls: bool,
    pipes: &mut Pipes<OnSocket>,
    data: &mut Vec<u8>,
) -> Result<()> {
    let mut link = Polled { stream, polls };
    let mut head = [0; HEAD];
    link.take(&mut head)?;
    let word = |at: usize| i64::from_ne_bytes(head.as_chunks::<WORD>().0[at]);
    let (what, len) = (word(0) as u16, word(2) as usize);
    let ReadArgument { object: pipe, most } = ReadArgument::of(word(1));
    data.resize(len, 0);
    link.take(data)?;
    let waiter = || OnSocket { stream: Rc::clone(stream), polls };
    match what {
        op::PID => send(stream, polls, EMULATED_PID, &[])?,
        op::PIPE => send(stream, polls, pipes.make(), &[])?,
        op::READ => pipes.read(pipe, waiter(), most),
        op::ECHO => send(stream, polls, len as i64, data)?,
        _ => match pipes.write(pipe, data) {
            Some(taken) if taken < len => pipes.park(pipe, waiter(), data[taken..].to_vec(), len),
            taken => send(stream, polls, taken.map_or(-1, |count| count as i64), &[])?,
        },
    }
    Ok(())
}
