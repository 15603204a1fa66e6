//! One connection: question and answer, and bulk transfer.
//!
//! A connection begins with the size of its frames in 3 bytes and their offset in a page in 1 byte.
//! The first byte of every frame is a request (`SEND_BACK` and the others). So the server needs no
//! other arguments, and both sides make only plain blocking reads and writes of whole frames.

use super::client::{ACKNOWLEDGE, Client, SEND_MANY, SWALLOW};
pub use super::client::{PROCESSOR_TIME, SEND_BACK, cpu_ns, cpu_ns_of};
use super::frames::Frames;
use super::{End, Histogram, Options, paced};
use serde_json::{Value, json};
use std::io::Result;
use std::time::{Duration, Instant};

/// Frames that one question asks for; below, the number of such questions in flight.
const MANY: u32 = 16;
const QUESTIONS: u32 = 3;
/// Length of the intervals whose longest gaps are reported.
const SLICE: Duration = Duration::from_millis(100);

/// Serves one client until it closes the connection.
pub fn serve(mut end: End) {
    let mut size = [0; 4];
    if end.input.read_exact(&mut size).is_err() {
        return;
    }
    let [low, middle, high, offset] = size;
    let size = u32::from_le_bytes([low, middle, high, 0]) as usize;
    let mut frames = Frames::new(size, usize::from(offset), false);
    let frame = frames.here();
    while end.input.read_exact(frame).is_ok() {
        let done = match frame[0] {
            SEND_BACK => end.output.write_all(frame),
            ACKNOWLEDGE => end.output.write_all(&[ACKNOWLEDGE]),
            SEND_MANY => send_many(&mut end, frame),
            PROCESSOR_TIME => end.output.write_all(&cpu_ns().to_le_bytes()),
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Answers a request for several frames.
fn send_many(end: &mut End, frame: &[u8]) -> Result<()> {
    let count = frame[1..5].try_into().map_or(0, u32::from_le_bytes);
    (0..count).try_for_each(|_| end.output.write_all(frame))
}

/// Measures question and answer.
pub fn ping(end: End, options: &Options) -> Result<Value> {
    let mut client = Client::new(end, options)?;
    // The other half of the warm-up follows: the connection may move during the first half.
    client.call_for(options.warm / 2)?;
    if let Some(pace) = options.pace {
        return paced::ping(&mut client, options, pace);
    }
    let count = client.call_for(options.warm / 2)?;
    // The clock is read at most once in 2 microseconds, so that reading it does not count.
    let each_ns = options.warm.as_nanos() as u64 / 2 / count.max(1);
    let group = 2_000_u64.div_ceil(each_ns.max(1));
    let mut histogram = Histogram::new();
    options.begin()?;
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

/// Measures one direction: sends frames one after the other, and waits for one answer at the end.
pub fn bulk(end: End, options: &Options) -> Result<Value> {
    let mut client = Client::new(end, options)?;
    client.call_for(options.warm)?;
    options.begin()?;
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

impl Client {
    /// Asks for several frames.
    fn ask_many(&mut self) -> Result<()> {
        let frame = self.frames.next();
        frame[0] = SEND_MANY;
        frame[1..5].copy_from_slice(&MANY.to_le_bytes());
        self.end.output.write_all(frame)
    }

    /// Reads the bytes that are there, at most `wanted`.
    fn read_some(&mut self, wanted: u64) -> Result<u64> {
        let answer = self.answers.here();
        let room = (answer.len() as u64).min(wanted) as usize;
        match self.end.input.read(&mut answer[..room])? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            got => Ok(got as u64),
        }
    }
}

/// The longest times without an arrival, one for each [`SLICE`].
struct Gaps {
    slice_start: Instant,
    last: Instant,
    longest: Duration,
    of_slices: Vec<u64>,
}

impl Gaps {
    fn new(start: Instant, options: &Options) -> Self {
        let slices = options.time.div_duration_f64(SLICE) as usize + 2;
        let of_slices = Vec::with_capacity(slices);
        Self { slice_start: start, last: start, longest: Duration::ZERO, of_slices }
    }

    fn on_bytes(&mut self, now: Instant) {
        self.longest = self.longest.max(now.duration_since(self.last));
        self.last = now;
        if now.duration_since(self.slice_start) >= SLICE {
            self.of_slices.push(self.longest.as_nanos() as u64);
            (self.slice_start, self.longest) = (now, Duration::ZERO);
        }
    }
}

/// Measures the other direction. The server sends without a pause, because the client asks for more
/// before the server has sent all of the last question's frames. Also reports, for each tenth of a
/// second, the longest time between two reads that returned bytes.
pub fn pull(end: End, options: &Options) -> Result<Value> {
    let mut client = Client::new(end, options)?;
    client.call_for(options.warm)?;
    options.begin()?;
    let cpu = client.cpu_ns()?;
    let each = u64::from(MANY) * options.size as u64;
    let start = Instant::now();
    let (mut bytes, mut asked) = (0, 0);
    let mut gaps = Gaps::new(start, options);
    for _ in 0..QUESTIONS {
        client.ask_many()?;
        asked += each;
    }
    while bytes < asked {
        bytes += client.read_some(asked - bytes)?;
        gaps.on_bytes(Instant::now());
        if asked - bytes <= u64::from(QUESTIONS - 1) * each && start.elapsed() < options.time {
            client.ask_many()?;
            asked += each;
        }
    }
    let ns = start.elapsed().as_nanos() as u64;
    let cpu = client.cpu_ns()? - cpu;
    let ops = bytes / options.size as u64;
    let gaps = gaps.of_slices;
    Ok(json!({ "operations": ops, "ns": ns, "cpu_ns": cpu, "bytes": bytes, "gaps_ns": gaps }))
}
