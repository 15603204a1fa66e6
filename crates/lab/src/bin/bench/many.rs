//! Many connections: an echo server of one thread with epoll(7), and a client of the same kind.
//!
//! Messages are 64 bytes. The client keeps up to 64 of them in flight and gives every connection
//! its turn, so each wait finds a few of many connections ready, as in a busy server. The server
//! answers a message that begins with 1 with its processor time so far.

use crate::ends::retry;
use crate::events::{Set, no_events};
use serde_json::{Value, json};
use sojourn_lab::measuring::flow::{cpu_ns, cpu_ns_of};
use sojourn_lab::measuring::{Histogram, Options};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const MESSAGE: usize = 64;
const ON_THEIR_WAY: usize = 64;
/// Fewer than the connections that a listener queues for its program (listen(2)).
const BACKLOG: usize = 64;
/// Milliseconds without any event after which a transfer has failed.
pub(crate) const LIMIT_MS: i32 = 20_000;

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid; if it cannot be raised, opening a descriptor will fail visibly.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Serves all clients, for ever.
pub(crate) fn serve(address: &str) -> Result<()> {
    raise_descriptor_limit();
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let set = Set::new()?;
    set.add(listener.as_raw_fd(), usize::MAX)?;
    let mut clients: Vec<Option<TcpStream>> = Vec::new();
    let mut events = no_events();
    loop {
        let count = match set.wait(-1, &mut events) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            found => found?,
        };
        for event in &events[..count] {
            match event.u64 as usize {
                usize::MAX => accept_all(&listener, &set, &mut clients)?,
                place => {
                    let is_open = clients[place].as_mut().is_some_and(echo);
                    if !is_open {
                        clients[place] = None;
                    }
                }
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    set: &Set,
    clients: &mut Vec<Option<TcpStream>>,
) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                set.add(stream.as_raw_fd(), clients.len())?;
                clients.push(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Answers the bytes that have come. Returns true if the client is still connected.
fn echo(stream: &mut TcpStream) -> bool {
    let mut message = [0; MESSAGE];
    match stream.read(&mut message) {
        Ok(0) => false,
        Ok(len) => {
            if message[0] == 1 && len == MESSAGE {
                message[1..9].copy_from_slice(&cpu_ns().to_le_bytes());
            }
            stream.write_all(&message[..len]).is_ok()
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// The answer that is being received.
#[derive(Clone, Copy)]
struct Answer {
    message: [u8; MESSAGE],
    /// Bytes that have come.
    got: usize,
}

struct Client {
    set: Set,
    sessions: Vec<TcpStream>,
    /// Times of the last question of each session.
    asked: Vec<Instant>,
    idle: VecDeque<usize>,
    /// For each session.
    answers: Vec<Answer>,
    events: Vec<libc::epoll_event>,
    histogram: Histogram,
    /// Number of reads that found nothing although the wait had reported the descriptor.
    in_vain: u64,
}

impl Client {
    fn connect(address: &str, count: usize) -> Result<Self> {
        let mut client = Self {
            set: Set::new()?,
            sessions: Vec::with_capacity(count),
            asked: vec![Instant::now(); count],
            idle: (0..count).collect(),
            answers: vec![Answer { message: [0; MESSAGE], got: 0 }; count],
            events: no_events(),
            histogram: Histogram::new(),
            in_vain: 0,
        };
        for place in 0..count {
            let mut stream = retry(|| TcpStream::connect(address))?;
            stream.set_nodelay(true)?;
            if place % BACKLOG == 0 {
                // The answer shows that the server has accepted this connection and those before
                // it. Otherwise the queue of the listener could overflow, and a connection would
                // wait a second for the retransmission of its SYN.
                let mut message = [0; MESSAGE];
                stream.write_all(&message)?;
                stream.read_exact(&mut message)?;
            }
            stream.set_nonblocking(true)?;
            client.set.add(stream.as_raw_fd(), place)?;
            client.sessions.push(stream);
        }
        Ok(client)
    }

    fn ask_next(&mut self) -> Result<()> {
        let Some(place) = self.idle.pop_front() else { return Ok(()) };
        self.asked[place] = Instant::now();
        self.sessions[place].write_all(&[0; MESSAGE])
    }

    /// Reads once. Returns the answer if the read completed it.
    fn answer(&mut self, place: usize) -> Result<Option<[u8; MESSAGE]>> {
        let Answer { message, got } = &mut self.answers[place];
        match self.sessions[place].read(&mut message[*got..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => *got += len,
            // As in any event loop: waits again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.in_vain += 1,
            Err(error) => return Err(error),
        }
        if *got < MESSAGE {
            return Ok(None);
        }
        *got = 0;
        Ok(Some(*message))
    }

    /// Asks every connection in turn until `is_enough` returns true, which gets the number of
    /// answers so far. Waits for the answers that are still in flight; returns the number of
    /// answers.
    fn run(&mut self, mut is_enough: impl FnMut(u64) -> bool) -> Result<u64> {
        let mut waiting = self.sessions.len().min(ON_THEIR_WAY);
        for _ in 0..waiting {
            self.ask_next()?;
        }
        let (mut done, mut ending) = (0, false);
        while waiting > 0 {
            let mut events = std::mem::take(&mut self.events);
            let count = self.set.wait(LIMIT_MS, &mut events)?;
            if count == 0 {
                return Err(Error::other(format!("nothing happened; {waiting} are waited for")));
            }
            for event in &events[..count] {
                let place = event.u64 as usize;
                if self.answer(place)?.is_none() {
                    continue;
                }
                let ns = self.asked[place].elapsed().as_nanos() as u64;
                self.histogram.note(ns, 1);
                self.idle.push_back(place);
                done += 1;
                ending = ending || is_enough(done);
                match ending {
                    true => waiting -= 1,
                    false => self.ask_next()?,
                }
            }
            self.events = events;
        }
        Ok(done)
    }

    fn run_for(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        self.run(|_| Instant::now() >= end)
    }

    /// Returns the processor time of both sides and of the `watched` processes so far.
    fn cpu_ns(&mut self, watched: &[u32]) -> Result<u64> {
        let mut question = [0; MESSAGE];
        question[0] = 1;
        self.sessions[0].write_all(&question)?;
        let answer = loop {
            self.set.wait(LIMIT_MS, &mut self.events)?;
            if let Some(answer) = self.answer(0)? {
                break answer;
            }
        };
        let others: u64 = watched.iter().map(|pid| cpu_ns_of(*pid)).sum();
        Ok(answer[1..9].try_into().map_or(0, u64::from_le_bytes) + cpu_ns() + others)
    }
}

/// Measures, or keeps the sessions busy while the file `--ready` exists.
pub(crate) fn call(address: &str, options: &Options) -> Result<Value> {
    raise_descriptor_limit();
    let mut client = Client::connect(address, options.sessions)?;
    if let Some(path) = &options.ready {
        // The program that waits for this file counts from here on.
        std::fs::write(path, "")?;
        let count = client.run(|count| count % 4096 == 0 && !path.exists())?;
        return Ok(json!({ "operations": count, "in_vain": client.in_vain }));
    }
    let wanted = options.warm_calls * options.sessions as u64;
    client.run(|count| count >= wanted)?;
    client.run_for(options.warm)?;
    client.histogram = Histogram::new();
    options.begin()?;
    let cpu = client.cpu_ns(&options.watched)?;
    let start = Instant::now();
    let ops = client.run_for(options.time)?;
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = client.cpu_ns(&options.watched)? - cpu;
    Ok(json!({
        "operations": ops, "ns": ns, "cpu_ns": cpu, "in_vain": client.in_vain,
        "histogram": client.histogram.pairs()
    }))
}
