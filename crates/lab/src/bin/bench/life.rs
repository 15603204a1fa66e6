//! The beginning and the end of connections: the longest call while they are new, and the time
//! until the end of a connection is noticed.
//!
//! `first` sets no TCP_NODELAY for its caller: only programs without TCP_NODELAY wait for
//! acknowledgements (Nagle's algorithm, RFC 9293 section 3.7.4).

use crate::ends::retry;
use crate::events::{Set, no_events};
use crate::many::LIMIT_MS;
use serde_json::{Value, json};
use sojourn_lab::measuring::{Histogram, Options};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A question as many clients of redis send it.
const QUESTION: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// The question to which the server answers by closing the connection.
const END: u8 = 0xff;
/// Calls of a connection from which on it pauses in the middle, so that it has time to move.
const CALLS_OF_HOT: u64 = 100;
const TIME_TO_MOVE: Duration = Duration::from_millis(20);

/// Asks one question at a time on each connection, the next as soon as the last is answered.
/// Returns the longest call, the first call included.
pub(crate) fn first(address: &str, options: &Options) -> Result<Value> {
    let set = Set::new()?;
    let connect = |place| {
        let stream = retry(|| TcpStream::connect(address))?;
        stream.set_nonblocking(true)?;
        set.add(stream.as_raw_fd(), place)?;
        Ok((stream, Instant::now()))
    };
    let mut sessions = (0..options.sessions).map(connect).collect::<Result<Vec<_>>>()?;
    let ask = |(stream, asked): &mut (TcpStream, Instant)| {
        *asked = Instant::now();
        stream.write_all(QUESTION)
    };
    let (start, mut events) = (Instant::now(), no_events());
    let (mut longest, mut calls, mut histogram) = (Duration::ZERO, 0u64, Histogram::new());
    sessions.iter_mut().try_for_each(ask)?;
    while start.elapsed() < options.time {
        for event in 0..set.wait(LIMIT_MS, &mut events)? {
            let session = &mut sessions[events[event].u64 as usize];
            match session.0.read(&mut [0; QUESTION.len()]) {
                Ok(len) if len == QUESTION.len() => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                other => return Err(Error::other(format!("an answer of {other:?} bytes"))),
            }
            let took = session.1.elapsed();
            longest = longest.max(took);
            histogram.note(took.as_nanos() as u64, 1);
            calls += 1;
            ask(session)?;
        }
    }
    let ns = start.elapsed().as_nanos() as u64;
    let longest = longest.as_nanos() as u64;
    Ok(
        json!({ "operations": calls, "ns": ns, "longest_ns": longest, "histogram": histogram.pairs() }),
    )
}

/// Serves one client after the other: sends each byte back, until a client asks for the end.
pub(crate) fn serve(address: &str) -> Result<()> {
    for stream in TcpListener::bind(address)?.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while matches!(stream.read(&mut byte), Ok(1)) && byte[0] != END {
            stream.write_all(&byte)?;
        }
    }
    Ok(())
}

/// Measures, on connections of `--warm-calls` calls each, the time from the last question to the
/// end of the connection.
pub(crate) fn ends(address: &str, options: &Options) -> Result<Value> {
    let (start, mut ends, mut histogram) = (Instant::now(), 0u64, Histogram::new());
    while start.elapsed() < options.time {
        let mut stream = retry(|| TcpStream::connect(address))?;
        stream.set_nodelay(true)?;
        let mut byte = [1];
        for call in 0..options.warm_calls {
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)?;
            if call == options.warm_calls / 2 && options.warm_calls >= CALLS_OF_HOT {
                std::thread::sleep(TIME_TO_MOVE);
            }
        }
        let asked = Instant::now();
        stream.write_all(&[END])?;
        if stream.read(&mut byte)? != 0 {
            return Err(Error::other("an answer where an end is due"));
        }
        histogram.note(asked.elapsed().as_nanos() as u64, 1);
        ends += 1;
    }
    let ns = start.elapsed().as_nanos() as u64;
    Ok(json!({ "operations": ends, "ns": ns, "histogram": histogram.pairs() }))
}
