//! Repeated operations: connections, and starts of programs.

use crate::ends::retry;
use serde_json::{Value, json};
use sojourn_lab::measuring::Histogram;
use sojourn_lab::measuring::Options;
use sojourn_lab::measuring::flow::cpu_ns;
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Serves one client after the other: sends one byte back, then waits for the end.
pub(crate) fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte)?;
            // Waits until the client closes first, so that TIME_WAIT (RFC 9293, section 3.6) holds
            // a port of the client and not the listener's.
            let _ = stream.read(&mut byte)?;
        }
    }
    Ok(())
}

/// Measures connections: connect, one question, close.
pub(crate) fn connect(address: &str, options: &Options) -> Result<Value> {
    let once = || {
        let mut stream = TcpStream::connect(address)?;
        let mut byte = [1];
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    };
    retry(once)?;
    repeat(options, once)
}

/// Measures starts of a program, each until the program's end.
pub(crate) fn start(words: &[String], options: &Options) -> Result<Value> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::other("no program"));
    };
    repeat(options, || {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        match command.status()?.success() {
            true => Ok(()),
            false => Err(Error::other(format!("{program} failed"))),
        }
    })
}

fn repeat(options: &Options, once: impl Fn() -> Result<()>) -> Result<Value> {
    let warm = Instant::now();
    while warm.elapsed() < options.warm {
        once()?;
    }
    let mut histogram = Histogram::new();
    let cpu = cpu_ns();
    let start = Instant::now();
    let (mut last, mut ops) = (start, 0);
    while last.duration_since(start) < options.time {
        once()?;
        let now = Instant::now();
        histogram.note(now.duration_since(last).as_nanos() as u64, 1);
        (last, ops) = (now, ops + 1);
    }
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = cpu_ns() - cpu;
    Ok(json!({ "operations": ops, "ns": ns, "own_cpu_ns": cpu, "histogram": histogram.pairs() }))
}
