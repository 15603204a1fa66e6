//! Transfers: in both directions at once, or as question and answer, with a check of every byte.

use crate::link::{self, ReceiveCall, Side};
use crate::wait::{Awaited, Found, WaitCall};
use sojourn_lab::progress::ProgressWriter;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

/// Calls in one direction before the other has its turn: a peer that reads as fast as this side
/// writes would keep it from ever reading.
const TURN: usize = 64;

/// The transfer, as the command line describes it.
#[derive(Clone, Debug)]
struct Plan {
    way: String,
    bytes: u64,
    rounds: u64,
    size_max: usize,
    seed: u64,
    /// A file: the transfer goes on until it exists.
    until: Option<PathBuf>,
    /// A file in which each side records its progress.
    progress: Option<PathBuf>,
    teller: ProgressWriter,
}

impl Plan {
    /// Returns true if the file of `--until` exists. Looks only at every 64th step, as a look is a
    /// system call.
    fn is_over(&self, step: u64) -> bool {
        step.is_multiple_of(64) && self.until.as_ref().is_some_and(|file| file.exists())
    }

    /// Records the end of the input, if the result of a read is one.
    fn heard(&self, got: Result<usize>) -> Result<usize> {
        match &got {
            Ok(0) => self.teller.input_ended(true),
            Err(error) if error.kind() != ErrorKind::WouldBlock => self.teller.input_ended(false),
            _ => {}
        }
        got
    }

    fn is_endless(&self) -> bool {
        self.until.is_some()
    }
}

/// A small generator: for the same seed, both sides get the same numbers.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit.max(1)
    }
}

impl ReceiveCall {
    /// Chooses a way to receive; mostly read(2), as most programs do.
    fn any(random: &mut Random, is_socket: bool) -> Self {
        match random.below(10) {
            0 if is_socket => Self::Looks,
            1 if is_socket => Self::WaitsForAll,
            2 => Self::InParts,
            _ => Self::Plain,
        }
    }
}

/// Returns the byte at a position of the stream whose seed is `seed`.
fn byte_at(seed: u64, position: u64) -> u8 {
    let mixed = (position ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

fn fill(buf: &mut [u8], seed: u64, from: u64) {
    for (byte, position) in buf.iter_mut().zip(from..) {
        *byte = byte_at(seed, position);
    }
}

fn check(buf: &[u8], seed: u64, from: u64) -> Result<()> {
    for (byte, position) in buf.iter().zip(from..) {
        let wanted = byte_at(seed, position);
        if *byte != wanted {
            let rest = &buf[(position - from) as usize..];
            let found = origin(rest, seed, position);
            let text =
                format!("byte {position} is {byte:#04x} and should be {wanted:#04x}: {found}");
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
    }
    Ok(())
}

/// Describes the position at which bytes that should be those at `position` really belong.
fn origin(bytes: &[u8], seed: u64, position: u64) -> String {
    const FAR: u64 = 8 << 20;
    let bytes = &bytes[..bytes.len().min(16)];
    let is_from = |at: u64| bytes.iter().zip(at..).all(|(byte, at)| *byte == byte_at(seed, at));
    let later = (position..position + FAR).find(|at| is_from(*at));
    let earlier = (position.saturating_sub(FAR)..position).rev().find(|at| is_from(*at));
    match (later, earlier) {
        (Some(at), _) => format!("{} bytes are missing", at - position),
        (None, Some(at)) => format!("{} bytes have come again", position - at),
        (None, None) => format!("these are from nowhere near: {bytes:02x?}"),
    }
}

/// Runs the command line; returns the line to print.
pub(crate) fn run(words: &[String]) -> Result<String> {
    let usage = || {
        Error::other(
            "usage: serve|call KIND ADDRESS | pair|inherit KIND, then --way W --bytes N --rounds N --size N --seed N --until FILE --progress FILE",
        )
    };
    let side = words.first().ok_or_else(usage)?;
    let kind = words.get(1).ok_or_else(usage)?;
    let has_address = matches!(side.as_str(), "serve" | "call");
    let options = words.get(if has_address { 3 } else { 2 }..).ok_or_else(usage)?;
    let mut plan = parse(options)?;
    if let Some(file) = &plan.progress {
        plan.teller = ProgressWriter::open(file, matches!(side.as_str(), "serve" | "pair"))?;
    }
    let said = transfer(side, kind, words, &plan);
    plan.teller.ended(said.is_ok());
    said
}

/// Makes the link and does the transfer; returns the line to print.
fn transfer(side: &str, kind: &str, words: &[String], plan: &Plan) -> Result<String> {
    let (mut link, is_first) = match side {
        "serve" => (link::accept(kind, &words[2])?, true),
        "call" => (link::connect(kind, &words[2])?, false),
        "pair" => (link::pair(kind, &words[1..])?, true),
        "inherit" => (link::inherited(kind), false),
        other => return Err(Error::other(format!("no such side: {other}"))),
    };
    let start = Instant::now();
    let child = link.child.take();
    let done = if plan.rounds > 0 {
        converse(link, plan, is_first)
    } else {
        exchange(link, plan, is_first)
    };
    if let Some(mut child) = child
        && !child.wait()?.success()
    {
        // A failure of this side may be the cause of the child's failure, so both are reported.
        let own = done.err().map(|error| format!(", and this one: {error}"));
        let text = format!("the other side failed{}", own.unwrap_or_default());
        return Err(Error::other(text));
    }
    let text = done?;
    Ok(format!("{side} {kind} {} {text} in {} us", plan.way, start.elapsed().as_micros()))
}

fn parse(options: &[String]) -> Result<Plan> {
    let mut plan = Plan {
        way: "blocking".into(),
        bytes: 1 << 20,
        rounds: 0,
        size_max: 8192,
        seed: 1,
        until: None,
        progress: None,
        teller: ProgressWriter::nobody(),
    };
    for pair in options.chunks(2) {
        let [name, value] = pair else {
            return Err(Error::other(format!("{}: no value", pair[0])));
        };
        let number = || {
            value.parse::<u64>().map_err(|_| Error::other(format!("{name} {value}: not a number")))
        };
        match name.as_str() {
            "--way" => plan.way.clone_from(value),
            "--bytes" => plan.bytes = number()?,
            "--rounds" => plan.rounds = number()?,
            "--size" => plan.size_max = number()? as usize,
            "--seed" => plan.seed = number()?,
            "--until" => {
                plan.until = Some(value.into());
                plan.bytes = u64::MAX;
                plan.rounds = plan.rounds.saturating_mul(u64::MAX);
            }
            "--progress" => plan.progress = Some(value.into()),
            _ => return Err(Error::other(format!("{name}: no such option"))),
        }
    }
    Ok(plan)
}

/// Sends `bytes` in both directions at once, then ends the streams.
fn exchange(link: Side, plan: &Plan, is_first: bool) -> Result<String> {
    let (mine, theirs) = (plan.seed + u64::from(is_first), plan.seed + u64::from(!is_first));
    if plan.way == "blocking" {
        exchange_by_threads(link, plan, mine, theirs)?;
    } else {
        exchange_by_waiting(link, plan, mine, theirs)?;
    }
    Ok(format!("{} bytes each way", plan.bytes))
}

fn exchange_by_threads(link: Side, plan: &Plan, mine: u64, theirs: u64) -> Result<()> {
    let Side { input, mut output, .. } = link;
    let is_socket = output.is_socket();
    std::thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(move || -> Result<()> {
            let mut random = Random(mine);
            let mut buf = vec![0; plan.size_max];
            let (mut at, mut step) = (0, 0);
            while at < plan.bytes && !plan.is_over(step) {
                let len = (1 + random.below(plan.size_max)).min((plan.bytes - at) as usize);
                fill(&mut buf[..len], mine, at);
                output.file().write_all(&buf[..len])?;
                plan.teller.sent(len as u64);
                at += len as u64;
                step += 1;
            }
            output.end()
        });
        let mut random = Random(theirs ^ 77);
        let mut buf = vec![0; plan.size_max];
        let mut at = 0;
        loop {
            let len = 1 + random.below(plan.size_max);
            let how = ReceiveCall::any(&mut random, is_socket);
            let got = plan.heard(link::receive(&input, &mut buf[..len], how))?;
            if got == 0 {
                break;
            }
            check(&buf[..got], theirs, at)?;
            let taken = if how == ReceiveCall::Looks { 0 } else { got as u64 };
            plan.teller.received(taken);
            at += taken;
        }
        if at != plan.bytes && !plan.is_endless() {
            return Err(Error::other(format!("the end after {at} bytes")));
        }
        sender.join().map_err(|_| Error::other("the sender panicked"))?
    })
}

fn expect_end(link: &Side) -> Result<()> {
    let mut rest = Vec::new();
    (&link.input).read_to_end(&mut rest)?;
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Error::other(format!("{} bytes beyond the end", rest.len())))
    }
}

fn exchange_by_waiting(mut link: Side, plan: &Plan, mine: u64, theirs: u64) -> Result<()> {
    let (input, output) = (link.input.as_raw_fd(), link.output.number());
    link::set_nonblocking(input)?;
    link::set_nonblocking(output)?;
    let way = WaitCall::new(&plan.way, input, output)?;
    let mut random = Random(mine);
    let mut buf = vec![0; plan.size_max];
    let (mut sent, mut got, mut ended, mut step) = (0, 0, false, 0);
    let mut bytes = plan.bytes;
    // Where only edges are told, a direction is ready until a call would block.
    let turn = if way.is_edge() { TURN } else { 1 };
    let mut ready = Found::default();
    while sent < bytes || !ended {
        let from = Awaited { fd: input, is_wanted: !ended };
        let to = Awaited { fd: output, is_wanted: sent < bytes };
        let news = way.wait(from, to, ready)?;
        ready = if way.is_edge() { ready.or(news) } else { news };
        for _ in 0..turn {
            step += 1;
            if sent < bytes && plan.is_over(step) {
                bytes = sent;
                link.output.end()?;
            }
            if !ready.output || sent >= bytes {
                break;
            }
            let len = (1 + random.below(plan.size_max)).min((bytes - sent) as usize);
            fill(&mut buf[..len], mine, sent);
            match link.output.file().write(&buf[..len]) {
                Ok(len) => {
                    plan.teller.sent(len as u64);
                    sent += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.output = false,
                Err(error) => return Err(error),
            }
            if sent == bytes {
                link.output.end()?;
            }
        }
        for _ in 0..turn {
            if !ready.input || ended {
                break;
            }
            let len = 1 + random.below(plan.size_max);
            match plan.heard((&link.input).read(&mut buf[..len])) {
                Ok(0) => ended = true,
                Ok(len) => {
                    check(&buf[..len], theirs, got)?;
                    plan.teller.received(len as u64);
                    got += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.input = false,
                Err(error) => return Err(error),
            }
        }
    }
    if got == plan.bytes || plan.is_endless() {
        Ok(())
    } else {
        Err(Error::other(format!("the end after {got} bytes")))
    }
}

/// Exchanges `rounds` questions and answers, of sizes up to `size_max`.
fn converse(mut link: Side, plan: &Plan, is_first: bool) -> Result<String> {
    let mut random = Random(plan.seed);
    let mut buf = vec![0; plan.size_max];
    let (input, output) = (link.input.as_raw_fd(), link.output.number());
    let way = match plan.way.as_str() {
        "blocking" => None,
        name => Some(WaitCall::new(name, input, output)?),
    };
    let mut at = 0;
    'rounds: for round in 0..plan.rounds {
        let len = 1 + random.below(plan.size_max);
        let is_mine = (round % 2 == 0) == is_first;
        if is_mine && plan.is_over(round / 2) {
            break;
        }
        if is_mine {
            fill(&mut buf[..len], plan.seed, at);
            link.output.file().write_all(&buf[..len])?;
            plan.teller.sent(len as u64);
        } else {
            let mut done = 0;
            while done < len {
                if let Some(way) = &way {
                    let from = Awaited { fd: input, is_wanted: true };
                    let to = Awaited { fd: output, is_wanted: false };
                    while !way.wait(from, to, Found::default())?.input {}
                }
                let got = plan.heard((&link.input).read(&mut buf[done..len]))?;
                if got == 0 && done == 0 && plan.is_endless() {
                    break 'rounds;
                }
                if got == 0 {
                    return Err(Error::new(
                        ErrorKind::UnexpectedEof,
                        format!("the end in round {round}"),
                    ));
                }
                done += got;
            }
            check(&buf[..len], plan.seed, at)?;
            plan.teller.received(len as u64);
        }
        at += len as u64;
    }
    link.output.end()?;
    expect_end(&link)?;
    Ok(format!("{} rounds", plan.rounds))
}
