//! The two ends of one stream that `sojourn-bench buffers` measures, each in a process.
//!
//! Both go through the same shapes and rounds; in each round both ways take turns on the same
//! stream. Every byte is made by the sender and looked at by the receiver, so a way that copies
//! copies beside that. Not here: starting them, and the tables (`buffers`).

#![allow(unsafe_code, reason = "bytes are made and looked at where the ring has them")]

use anyhow::{Context as _, Result, bail};
use sojourn_buffers::{Deadline, Receiver, Sender};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The calls by which the stream is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `read` and `write`, with buffers of the program.
    ReadWrite,
    /// `sojourn-buffers`.
    InPlace,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Bytes one way, made in pieces of that size.
    Bulk(usize),
    /// Messages of that size to and fro.
    PingPong(usize),
}

pub(crate) const SHAPES: [Shape; 7] = [
    Shape::Bulk(4 << 10),
    Shape::Bulk(16 << 10),
    Shape::Bulk(64 << 10),
    Shape::PingPong(1),
    Shape::PingPong(64),
    Shape::PingPong(1460),
    Shape::PingPong(1472),
];

/// The number of rounds, and the size of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    rounds: usize,
    bytes: usize,
    trips: usize,
}

impl Extent {
    pub(crate) fn new(quick: bool) -> Self {
        match quick {
            true => Self { rounds: 2, bytes: 1 << 20, trips: 100 },
            false => Self { rounds: 41, bytes: 32 << 20, trips: 2000 },
        }
    }
}

/// Round trips before anything is measured: a session that may move has moved by then.
const WARM: usize = 20_000;
const LIMIT: Duration = Duration::from_secs(60);

/// One end: the plain stream, and what is in place on it.
struct End<'s> {
    stream: &'s TcpStream,
    sender: Sender<&'s TcpStream>,
    receiver: Receiver<&'s TcpStream>,
    buffer: Vec<u8>,
    /// Keeps the looks at the bytes alive.
    sum: u64,
}

/// Serves one caller at the address, which it prints.
pub(crate) fn serve(quick: bool) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (stream, _) = listener.accept()?;
    let mut end = End::new(&stream)?;
    let extent = Extent::new(quick);
    for _ in 0..WARM {
        end.answer(Api::ReadWrite, 1)?;
    }
    for shape in SHAPES {
        for way in order(extent.rounds) {
            match shape {
                Shape::Bulk(piece) => {
                    end.take(way, piece, extent.bytes)?;
                    end.give(Api::ReadWrite, 1, 1)?;
                }
                Shape::PingPong(size) => {
                    for _ in 0..extent.trips {
                        end.answer(way, size)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Api, measures, and prints a line for each shape and way: the nanoseconds of each round, per
/// round trip or per mebibyte. The last line says whether memory of a ring was lent.
pub(crate) fn call(address: &str, quick: bool) -> Result<()> {
    let stream = TcpStream::connect(address)?;
    let mut end = End::new(&stream)?;
    let extent = Extent::new(quick);
    for _ in 0..WARM {
        end.ask(Api::ReadWrite, 1)?;
    }
    let is_in_place = end.is_in_place()?;
    for (at, shape) in SHAPES.into_iter().enumerate() {
        for way in order(extent.rounds) {
            let begun = Instant::now();
            let parts = match shape {
                Shape::Bulk(piece) => {
                    end.give(way, piece, extent.bytes)?;
                    end.take(Api::ReadWrite, 1, 1)?;
                    extent.bytes as f64 / f64::from(1 << 20)
                }
                Shape::PingPong(size) => {
                    for _ in 0..extent.trips {
                        end.ask(way, size)?;
                    }
                    extent.trips as f64
                }
            };
            let ns = begun.elapsed().as_nanos() as f64 / parts;
            println!("{at} {} {ns}", u8::from(way == Api::InPlace));
        }
    }
    println!("in place: {is_in_place}");
    Ok(())
}

/// Returns the ways of all rounds of a shape: they take turns, and take turns at being first.
fn order(rounds: usize) -> impl Iterator<Item = Api> {
    let ways = [Api::ReadWrite, Api::InPlace];
    (0..rounds).flat_map(move |round| [ways[round % 2], ways[(round + 1) % 2]])
}

fn soon() -> Deadline {
    Deadline::NEVER
}

impl<'s> End<'s> {
    fn new(stream: &'s TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let (sender, receiver) = (Sender::new(stream)?, Receiver::new(stream)?);
        Ok(Self { stream, sender, receiver, buffer: vec![0; 64 << 10], sum: 0 })
    }

    fn ask(&mut self, way: Api, size: usize) -> Result<()> {
        self.give(way, size, size)?;
        self.take(way, size, size)
    }

    fn answer(&mut self, way: Api, size: usize) -> Result<()> {
        self.take(way, size, size)?;
        self.give(way, size, size)
    }

    /// Makes and sends `bytes` bytes in pieces.
    fn give(&mut self, way: Api, piece: usize, bytes: usize) -> Result<()> {
        let (mut left, mut value) = (bytes, self.sum as u8);
        while left > 0 {
            value = value.wrapping_add(1);
            let len = piece.min(left);
            left -= match way {
                Api::ReadWrite => {
                    self.buffer[..len].fill(value);
                    self.stream.write_all(&self.buffer[..len])?;
                    len
                }
                Api::InPlace => {
                    // In pieces as long as those of the other way.
                    let mut space = self.sender.reserve(len, len, soon())?;
                    for piece in space.pieces() {
                        // SAFETY: the peer is this benchmark's own, and looks at it later.
                        unsafe { piece.as_mut_slice() }.fill(value);
                    }
                    space.commit(len, soon())?;
                    len
                }
            };
        }
        Ok(())
    }

    /// Receives `bytes` bytes, in pieces of at most that size, and looks at them.
    fn take(&mut self, way: Api, piece: usize, bytes: usize) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let len = piece.min(left);
            let got = match way {
                Api::ReadWrite => {
                    let got = self.stream.read(&mut self.buffer[..len])?;
                    self.sum = self.sum.wrapping_add(look(&self.buffer[..got]));
                    got
                }
                Api::InPlace => {
                    let loan = self.receiver.loan(1, len, soon())?;
                    for piece in loan.pieces() {
                        // SAFETY: the peer is this benchmark's own, and leaves it alone.
                        self.sum = self.sum.wrapping_add(look(unsafe { piece.as_slice() }));
                    }
                    let got = loan.len();
                    loan.give_back(got);
                    got
                }
            };
            if got == 0 {
                bail!("the other end has ended");
            }
            left -= got;
        }
        Ok(())
    }

    /// Returns true if reserved space lies in shared memory.
    fn is_in_place(&mut self) -> Result<bool> {
        let mut space = self.sender.reserve(1, 1, soon())?;
        let at = space.pieces()[0].as_ptr() as usize;
        drop(space);
        let maps = std::fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
        Ok(maps.lines().any(|line| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            line.contains("memfd:")
                && range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&at))
        }))
    }
}

/// Looks at every byte.
fn look(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    std::hint::black_box(sum.wrapping_add(rest.iter().map(|byte| u64::from(*byte)).sum()))
}
