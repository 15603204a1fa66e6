//! Models of the kernel's part: a futex, an event descriptor, and rings of a few cells.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each model uses its part")]

use loom::sync::{Condvar, Mutex};
use sojourn_shm::{AtomicU32, AtomicU64, Ordering};
use sojourn_stream::bell::{Bell, BellWord, FUTEX, Sleepers};
use sojourn_stream::ring::{Ring, Stop, used};

/// The kernel's half of a futex: compares under its own lock, then sleeps.
pub(crate) struct Futex {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    pub(crate) fn new() -> Self {
        Self { lock: Mutex::new(()), sleepers: Condvar::new() }
    }

    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    pub(crate) fn wake_all(&self) {
        let _guard = self.lock.lock().unwrap();
        self.sleepers.notify_all();
    }
}

/// An event descriptor, level-triggered.
pub(crate) struct Event {
    count: Mutex<u32>,
    sleepers: Condvar,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self { count: Mutex::new(0), sleepers: Condvar::new() }
    }

    pub(crate) fn write(&self) {
        *self.count.lock().unwrap() += 1;
        self.sleepers.notify_all();
    }

    pub(crate) fn drain(&self) {
        *self.count.lock().unwrap() = 0;
    }

    pub(crate) fn wait(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.sleepers.wait(count).unwrap();
        }
    }
}

/// Cells of the small ring.
pub(crate) const CELLS: u32 = 2;

/// A ring of [`CELLS`] cells, one number each, and where its ends sleep.
pub(crate) struct World {
    pub(crate) ring: Ring,
    cells: [AtomicU64; CELLS as usize],
    pub(crate) reader: (Sleepers, Futex),
    pub(crate) writer: (Sleepers, Futex),
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            ring: Ring::new(),
            cells: core::array::from_fn(|_| AtomicU64::new(0)),
            reader: (Sleepers::default(), Futex::new()),
            writer: (Sleepers::default(), Futex::new()),
        }
    }

    fn cell(&self, position: u64) -> &AtomicU64 {
        &self.cells[(position % u64::from(CELLS)) as usize]
    }

    pub(crate) fn at(&self, position: u64) -> u64 {
        self.cell(position).load(Ordering::Relaxed)
    }

    pub(crate) fn room(&self, tail: u64) -> Result<usize, Stop> {
        Ok(CELLS as usize - used(tail, self.ring.head()?, CELLS)?)
    }

    pub(crate) fn available(&self, head: u64) -> Result<usize, Stop> {
        used(self.ring.tail()?, head, CELLS)
    }

    /// Writes one number as a message of its own, beside the tail too if `short`.
    pub(crate) fn write(&self, tail: u64, number: u64, short: bool) -> Result<(), Stop> {
        if self.room(tail)? == 0 {
            return Err(Stop::Full);
        }
        self.cell(tail).store(number, Ordering::Relaxed);
        if short {
            self.ring.put_short(tail, 1, &[number]);
        }
        self.ring.publish(tail, tail + 1)?;
        if self.ring.reader.bell.has_sleepers() {
            self.wake(&self.ring.reader.bell, &self.reader.1);
        }
        Ok(())
    }

    /// Reads one number, from beside the tail if it is there.
    pub(crate) fn read(&self, head: u64) -> Result<u64, Stop> {
        let available = self.available(head)?;
        if available == 0 {
            return Err(Stop::Empty);
        }
        let number = match self.ring.copy_short(head, available) {
            Some(bytes) => u64::from_ne_bytes(bytes[..8].try_into().unwrap()),
            None => self.at(head),
        };
        self.ring.consume(head, head + 1)?;
        let writer = &self.ring.writer;
        if writer.bell.has_sleepers() && head + 1 >= writer.want.load(Ordering::Relaxed) {
            self.wake(&writer.bell, &self.writer.1);
        }
        Ok(number)
    }

    pub(crate) fn wake(&self, bell: &BellWord, futex: &Futex) {
        if bell.take() & FUTEX != 0 {
            futex.wake_all();
        }
    }

    /// Sleeps as reader until there is something at `head`, or the ring is frozen.
    pub(crate) fn await_bytes(&self, head: u64) {
        let (sleepers, futex) = &self.reader;
        while self.available(head) == Ok(0) {
            let expected = sleepers.announce(&self.ring.reader.bell, Bell::OnFutex);
            if self.available(head) == Ok(0) {
                futex.wait(self.ring.reader.bell.word(), expected);
            }
            sleepers.withdraw(&self.ring.reader.bell);
        }
    }

    /// Sleeps as writer until there is room for `count`, or the ring is frozen.
    pub(crate) fn await_room(&self, tail: u64, count: u64) {
        let (sleepers, futex) = &self.writer;
        let (bell, want) = (&self.ring.writer.bell, &self.ring.writer.want);
        let is_short = || self.room(tail).is_ok_and(|room| (room as u64) < count);
        while is_short() {
            let position = (tail + count).saturating_sub(u64::from(CELLS));
            let expected = sleepers.announce_want(bell, Bell::OnFutex, want, position);
            if is_short() {
                futex.wait(bell.word(), expected);
            }
            sleepers.withdraw(bell);
        }
    }
}

pub(crate) fn check(bound: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Reads up to three numbers, by `read` from that position on.
pub(crate) fn read_three(read: impl Fn(u64) -> Result<u64, Stop>) -> Vec<u64> {
    let mut numbers = vec![];
    while numbers.len() < 3 {
        match read(numbers.len() as u64) {
            Ok(number) => numbers.push(number),
            Err(Stop::Empty | Stop::Frozen) => break,
            Err(stop) => panic!("{stop}"),
        }
    }
    numbers
}
