//! One connection: question and answer, and bulk.
//!
//! A connection begins with the size of its frames, 4 bytes. The first byte of every frame says what the server is to
//! do with it (`SEND_BACK` and the others). So the server never has to be told beforehand, and
//! both sides make nothing but plain blocking reads and writes of whole frames.

use crate::ends::End;
use crate::histogram::Histogram;
use crate::options::Options;
use serde_json::{Value, json};
use std::io::Result;
use std::time::{Duration, Instant};

/// Answer with the whole frame.
const SEND_BACK: u8 = 1;
/// Answer nothing.
const SWALLOW: u8 = 2;
/// Answer with one byte.
const ACKNOWLEDGE: u8 = 3;
/// Answer with the server's processor time so far, 8 bytes.
const PROCESSOR_TIME: u8 = 4;

/// Serves one client until it closes.
pub(crate) fn serve(mut end: End) {
    let mut size = [0; 4];
    if end.input.read_exact(&mut size).is_err() {
        return;
    }
    let mut frame = vec![0; u32::from_le_bytes(size) as usize];
    while end.input.read_exact(&mut frame).is_ok() {
        let done = match frame[0] {
            SEND_BACK => end.output.write_all(&frame),
            ACKNOWLEDGE => end.output.write_all(&[ACKNOWLEDGE]),
            PROCESSOR_TIME => end.output.write_all(&cpu_ns().to_le_bytes()),
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Processor time of this process so far, with all its threads.
pub(crate) fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Client {
    end: End,
    frame: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    fn new(mut end: End, size: usize) -> Result<Self> {
        end.output.write_all(&(size as u32).to_le_bytes())?;
        Ok(Self { end, frame: vec![0; size], answer: vec![0; size.max(8)] })
    }

    fn send(&mut self, what: u8) -> Result<()> {
        self.frame[0] = what;
        self.end.output.write_all(&self.frame)
    }

    fn receive(&mut self, len: usize) -> Result<()> {
        self.end.input.read_exact(&mut self.answer[..len])
    }

    fn call(&mut self) -> Result<()> {
        self.send(SEND_BACK)?;
        self.receive(self.frame.len())
    }

    /// Calls for so long; how many.
    fn call_for(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut count = 0;
        while Instant::now() < end {
            self.call()?;
            count += 1;
        }
        Ok(count)
    }

    /// Processor time of both sides so far.
    fn cpu_ns(&mut self) -> Result<u64> {
        self.send(PROCESSOR_TIME)?;
        self.receive(8)?;
        let theirs = self.answer[..8].try_into().map_or(0, u64::from_le_bytes);
        Ok(theirs + cpu_ns())
    }
}

/// Question and answer.
pub(crate) fn ping(end: End, options: &Options) -> Result<Value> {
    let mut client = Client::new(end, options.size)?;
    // Half of the warm-up may pass before the connection has its final form.
    client.call_for(options.warm / 2)?;
    let count = client.call_for(options.warm / 2)?;
    // Reading the clock must not count: one look for at least 2 microseconds.
    let each_ns = options.warm.as_nanos() as u64 / 2 / count.max(1);
    let group = 2_000_u64.div_ceil(each_ns.max(1));
    let mut histogram = Histogram::new();
    let cpu = client.cpu_ns()?;
    let start = Instant::now();
    let (mut last, mut ops) = (start, 0);
    while last.duration_since(start) < options.time {
        for _ in 0..group {
            client.call()?;
        }
        let now = Instant::now();
        histogram.note(now.duration_since(last).as_nanos() as u64 / group, group);
        (last, ops) = (now, ops + group);
    }
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = client.cpu_ns()? - cpu;
    Ok(json!({ "operations": ops, "ns": ns, "cpu_ns": cpu, "histogram": histogram.pairs() }))
}

/// One way, one frame after the other, and one answer at the end.
pub(crate) fn bulk(end: End, options: &Options) -> Result<Value> {
    let mut client = Client::new(end, options.size)?;
    client.call_for(options.warm)?;
    let cpu = client.cpu_ns()?;
    let start = Instant::now();
    let mut ops = 1;
    while start.elapsed() < options.time {
        client.send(SWALLOW)?;
        ops += 1;
    }
    client.send(ACKNOWLEDGE)?;
    client.receive(1)?;
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = client.cpu_ns()? - cpu;
    Ok(json!({ "operations": ops, "ns": ns, "cpu_ns": cpu, "bytes": ops * options.size as u64 }))
}
