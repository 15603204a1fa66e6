//! The interface of a measured mechanism: the traits of a row, and the payload that every row
//! carries.
//!
//! A row is one mechanism in one style. It opens a *link* in the coordinator; server and client are
//! then made in two processes that the coordinator forks. `worker.rs` has the order of the calls.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use serde::Serialize;

/// Largest message of any row, in bytes.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// Bytes of a cache line.
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Bytes of memory for messages that must be in no cache.
const COLD_BYTES: usize = 64 << 20;

/// Where the sender's messages lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Bytes between the beginning of a page and the message.
    pub(crate) offset: usize,
    /// True if each message is in other memory than the one before, out of more than the caches
    /// hold.
    pub(crate) is_cold: bool,
}

/// The placement of this process and of the workers that it forks.
static PLACEMENT: Mutex<Placement> = Mutex::new(Placement { offset: 0, is_cold: false });

impl Placement {
    /// Returns the placement of this process.
    fn here() -> Self {
        *PLACEMENT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes this the placement of all workers that are forked from now on.
    pub(crate) fn set(self) {
        *PLACEMENT.lock().unwrap_or_else(PoisonError::into_inner) = self;
    }
}

/// The way in which both sides wait, and their placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Two processors; both sides spin, and neither ever sleeps.
    SpinTwo,
    /// Two processors; each side sleeps in the kernel until the other wakes it.
    BlockTwo,
    /// One processor for both sides, which sleep.
    BlockOne,
}

impl Mode {
    /// All modes, in the order of the tables.
    pub(crate) const ALL: [Self; 3] = [Self::SpinTwo, Self::BlockTwo, Self::BlockOne];

    /// Returns true if a side that waits polls.
    pub(crate) fn spins(self) -> bool {
        self == Self::SpinTwo
    }

    /// Returns the heading of the mode's column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SpinTwo => "spinning, two processors",
            Self::BlockTwo => "blocking, two processors",
            Self::BlockOne => "blocking, same processor",
        }
    }
}

/// The role of a row in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The hardware's floor: nothing that carries a message can be faster.
    Floor,
    /// Sojourn.
    Ours,
    /// A rival that copies the message to the receiver, or hands it over in shared memory after one
    /// copy.
    Rival,
    /// A rival whose sender makes the message in shared memory and whose receiver reads it there:
    /// no copy.
    RivalInPlace,
    /// Sojourn in the same style as `RivalInPlace`.
    OursInPlace,
}

/// One mechanism.
pub(crate) trait Row {
    /// Returns the name in the tables.
    fn name(&self) -> &str;
    /// Returns the role in the comparison.
    fn kind(&self) -> Kind;
    /// Returns true if the mechanism has this mode and carries messages of this size.
    fn supports(&self, mode: Mode, size: usize) -> bool {
        let _ = (mode, size);
        true
    }
    /// Opens the resources that both sides inherit. Runs in the coordinator, before the fork.
    fn link(&self, mode: Mode) -> Result<Sides>;
}

/// Makes one side. Runs in that side's own process.
pub(crate) type Make<T> = Box<dyn FnOnce() -> Result<T>>;

/// Both sides of a link, not made yet.
pub(crate) struct Sides {
    /// Runs in the server's process.
    pub(crate) server: Make<Box<dyn Server>>,
    /// Runs in the client's process, after the server is made.
    pub(crate) client: Make<Box<dyn Client>>,
}

impl Sides {
    /// Makes the pair of two closures.
    pub(crate) fn new<S, C>(
        server: impl FnOnce() -> Result<S> + 'static,
        client: impl FnOnce() -> Result<C> + 'static,
    ) -> Self
    where
        S: Server + 'static,
        C: Client + 'static,
    {
        Self {
            server: Box::new(move || Ok(Box::new(server()?) as Box<dyn Server>)),
            client: Box::new(move || Ok(Box::new(client()?) as Box<dyn Client>)),
        }
    }
}

/// The serving side.
pub(crate) trait Server {
    /// Accepts `clients` clients, if accepting takes the server's part. The clients connect
    /// meanwhile.
    fn admit(&mut self, clients: usize) -> Result<()> {
        let _ = clients;
        Ok(())
    }
    /// Answers `count` requests of `size` bytes with short replies, then returns.
    fn serve(&mut self, size: usize, count: u64) -> Result<()>;
    /// Takes `count` one-way messages of `size` bytes and answers the last one.
    fn absorb(&mut self, size: usize, count: u64) -> Result<()> {
        let _ = (size, count);
        bail!("this row has no one-way messages")
    }
}

/// The calling side.
pub(crate) trait Client {
    /// Makes `count` calls, one after the other, with `size` bytes each.
    fn call(&mut self, size: usize, count: u64) -> Result<()>;
    /// Sends `count` one-way messages; returns when the server has answered the last one.
    fn stream(&mut self, size: usize, count: u64) -> Result<()> {
        let _ = (size, count);
        bail!("this row has no one-way messages")
    }
}

/// The sender's message: private memory, numbered at both ends, so that the receiver can check that
/// all of *this* message arrived.
pub(crate) struct Source {
    bytes: Vec<u8>,
    placement: Placement,
    /// The place of the last message.
    at: usize,
    number: u64,
}

impl Source {
    /// Makes a source of messages of up to [`SIZE_MAX`] bytes, which lie as [`Placement::here`]
    /// says.
    pub(crate) fn new() -> Self {
        let placement = Placement::here();
        let len = if placement.is_cold { COLD_BYTES } else { SIZE_MAX + 2 * PAGE };
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let at = bytes.as_ptr().align_offset(PAGE) + placement.offset;
        Self { bytes, placement, at, number: 0 }
    }

    /// Returns the next message, of `size` bytes.
    #[inline]
    pub(crate) fn next(&mut self, size: usize) -> &[u8] {
        self.number += 1;
        if self.placement.is_cold {
            self.go_on(size);
        }
        let bytes = &mut self.bytes[self.at..][..size];
        stamp(bytes, self.number);
        bytes
    }

    /// Goes to the next place, which has left the caches since it was used.
    fn go_on(&mut self, size: usize) {
        let next = self.at + (size + PAGE).next_multiple_of(PAGE);
        let is_there = next + size <= self.bytes.len();
        let first = self.bytes.as_ptr().align_offset(PAGE) + self.placement.offset;
        self.at = if is_there { next } else { first };
    }

    /// Returns the number of the next message, for rows that write the message in place.
    #[inline]
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// Writes a message in shared memory: one byte of every cache line, then the number at both ends.
#[inline]
pub(crate) fn produce(bytes: &mut [u8], number: u64) {
    for line in bytes.as_chunks_mut::<LINE>().0 {
        line[8] = number as u8;
    }
    stamp(bytes, number);
}

/// Writes `number` at both ends of `bytes`, if they are long enough.
#[inline]
fn stamp(bytes: &mut [u8], number: u64) {
    if let Some(first) = bytes.first_chunk_mut::<8>() {
        *first = number.to_ne_bytes();
    }
    if bytes.len() >= 16
        && let Some(last) = bytes.last_chunk_mut::<8>()
    {
        *last = number.to_ne_bytes();
    }
}

/// The numbers at both ends of a message; the same number twice for fewer than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Stamps {
    /// Reads the numbers; `None` for fewer than 8 bytes.
    #[inline]
    fn of(bytes: &[u8]) -> Option<Self> {
        let first = u64::from_ne_bytes(*bytes.first_chunk::<8>()?);
        if bytes.len() < 16 {
            return Some(Self { first, last: first });
        }
        Some(Self { first, last: u64::from_ne_bytes(*bytes.last_chunk::<8>()?) })
    }
}

/// The receiver's half of [`Source`].
#[derive(Default)]
pub(crate) struct Sink {
    number: u64,
}

impl Sink {
    /// Checks that `bytes` is the next message, all `size` bytes of it.
    #[inline]
    pub(crate) fn take(&mut self, bytes: &[u8], size: usize) -> Result<()> {
        self.take_ends(Stamps::of(bytes), bytes.len(), size)
    }

    /// Checks the same for a message of `len` bytes whose ends had the numbers `ends`.
    #[inline]
    pub(crate) fn take_ends(
        &mut self,
        ends: Option<Stamps>,
        len: usize,
        size: usize,
    ) -> Result<()> {
        self.number += 1;
        let expected = Stamps { first: self.number, last: self.number };
        let whole = len == size && ends.is_none_or(|found| found == expected);
        ensure!(whole, "message {} arrived damaged ({len} of {size} bytes)", self.number);
        Ok(())
    }

    /// Checks the same for a message that still lies in shared memory. Also reads a word of every
    /// cache line: a message has been received only when its bytes have reached the receiver's
    /// processor.
    #[inline]
    pub(crate) fn take_in_place(&mut self, bytes: &[u8], size: usize) -> Result<()> {
        for line in bytes.as_chunks::<LINE>().0 {
            std::hint::black_box(line[8]);
        }
        self.take(bytes, size)
    }

    /// Checks that the numbers at both ends agree, for messages of several clients, whose numbers
    /// interleave.
    #[inline]
    pub(crate) fn take_any(bytes: &[u8], size: usize) -> Result<()> {
        let whole =
            bytes.len() == size && Stamps::of(bytes).is_none_or(|ends| ends.first == ends.last);
        ensure!(whole, "a message arrived damaged ({} of {size} bytes)", bytes.len());
        Ok(())
    }
}

/// Returns a receive buffer of [`SIZE_MAX`] bytes, whose pages are touched, so that page faults do
/// not count. It lies at any place.
pub(crate) fn receive_buffer() -> Vec<u8> {
    vec![1; SIZE_MAX]
}

/// A server and several clients, not made yet.
pub(super) struct Many {
    pub(super) server: Make<Box<dyn Server>>,
    pub(super) clients: Vec<Make<Box<dyn Client>>>,
}

/// A kind of server that takes many clients.
pub(super) struct Crowd {
    /// Name in the table.
    pub(super) name: &'static str,
    /// Makes the server and as many clients as the argument says.
    pub(super) make: fn(usize) -> Result<Many>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_messages_lie_in_memory_that_has_left_the_caches() {
        let mut source = Source::new();
        source.placement = Placement { offset: 3, is_cold: true };
        source.bytes = vec![0; 100 * PAGE];
        let mut places = std::collections::HashSet::new();
        for _ in 0..500 {
            assert_eq!(source.next(9001).len(), 9001);
            places.insert(source.at);
        }
        assert!(places.len() > 25, "{}", places.len());
    }

    #[test]
    fn a_sink_accepts_its_source_and_nothing_else() {
        let (mut source, mut sink) = (Source::new(), Sink::default());
        for size in [0, 1, 7, 8, 15, 16, 4096] {
            let message = source.next(size).to_vec();
            assert!(sink.take(&message, size).is_ok(), "{size}");
        }
        let stale = source.next(64).to_vec();
        let _ = source.next(64);
        sink.number += 1;
        assert!(sink.take(&stale, 64).is_err());
        let message = source.next(64).to_vec();
        assert!(sink.take(&message[..32], 64).is_err());
    }
}
